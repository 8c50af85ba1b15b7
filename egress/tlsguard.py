"""Where TLS is expected: see that the handshake goes to the target before it goes on.

A ClientHello that names another host never leaves. One hello is not enough, though: a server may ask for a
second (HelloRetryRequest, RFC 8446 section 4.1.4), a hostile client can provoke that with a key share
nobody takes, and real servers believe the name in the second. So the first hello goes up alone, and only
when the server has answered with something else than a retry is the tunnel left to itself.
"""

from __future__ import annotations

from egress.limits import Limits
from egress.model import Host
from egress.net.stream import Stream
from egress.passage import Passage
from egress.refusals import Reason, Refused
from egress.wire import clienthello, helloretry
from egress.wire.clienthello import ClientHello
from egress.wire.handshake import Handshake


async def watch(passage: Passage, limits: Limits) -> None:
    """Let the opening of a TLS handshake through, piece by piece as it is understood."""
    client, upstream, host = passage.client, passage.upstream, passage.target.host
    assert upstream is not None  # noqa: S101  # it was reached
    hello = await hear(client, host, limits)
    await _pass_on(client, upstream, hello.size)
    passage.up += hello.size
    if not await _asks_again(upstream, limits):
        return
    passage.down += len(upstream.buffer)
    await _pass_on(upstream, client, len(upstream.buffer))
    await _named(client, helloretry.read(client.buffer, limits.client_hello), host, limits)


async def hear(client: Stream, host: Host, limits: Limits) -> ClientHello:
    """A whole hello that names the host; it stays in the client's buffer."""
    return await _named(client, clienthello.read(client.buffer, limits.client_hello), host, limits)


async def _named(client: Stream, reading: Handshake[ClientHello], host: Host, limits: Limits) -> ClientHello:
    """The hello that comes next, if it names the host."""
    client.expire_in(limits.handshake)
    try:
        hello = await client.run(reading)
        clienthello.verify(hello, host)
    except TimeoutError:
        raise _told(Refused(Reason.TIMEOUT, "no TLS ClientHello came")) from None
    except Refused as refused:
        await client.send(clienthello.ALERT_ACCESS_DENIED)
        raise _told(refused) from None
    return hello


async def _asks_again(upstream: Stream, limits: Limits) -> bool:
    upstream.expire_in(limits.connect)
    try:
        return await upstream.run(helloretry.is_retry(upstream.buffer))
    except TimeoutError:
        raise _told(Refused(Reason.UNREACHABLE, "no answer to the ClientHello")) from None
    finally:
        upstream.expire_in(None)


async def _pass_on(source: Stream, sink: Stream, size: int) -> None:
    await sink.send(source.buffer[:size])
    del source.buffer[:size]


def _told(refused: Refused) -> Refused:
    """The tunnel is open: there is no more HTTP or SOCKS to answer in."""
    refused.told = True
    return refused
