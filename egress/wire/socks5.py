"""SOCKS5, the server's side (RFC 1928; names and passwords by RFC 1929).

    client                              gate
    05 count methods                    05 method, or 05 FF: none will do       greeting()
    01 user password                    01 status; only after method 02         greeting(), then the gate
    05 command 00 type address port     05 reply 00 01 0.0.0.0 0                request(), then the gate

Where the gate asks for a password it is the gate that judges it, so `greeting` ends with the
credentials read and the status not yet sent. Where it asks for none, a client that insists on giving
one (`curl --proxy-user`) is told that it is fine: identity is the socket.

Only CONNECT is served. An address in binary and the same address as text are the same target: there
is no way round the policy for addresses by calling one a name, nor round that for names.
Clients that send everything at once, before they are answered, are served too.
"""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address
from typing import NamedTuple

from egress.model import Target
from egress.names import Malformed, parse_host
from egress.refusals import TABLE, Reason, Refused
from egress.wire.handshake import Handshake, take

_NO_AUTH, _PASSWORD = 0x00, 0x02
_CONNECT = 0x01
_OTHER_COMMANDS = {0x02: "BIND", 0x03: "UDP ASSOCIATE"}
_IPV4, _NAME, _IPV6 = 0x01, 0x03, 0x04
_ADDRESS_TYPE_NOT_SUPPORTED = 0x08

NO_METHOD = b"\x05\xff"
AUTH_OK = b"\x01\x00"
AUTH_FAILED = b"\x01\x01"
SOCKS4_REFUSED = b"\x00\x5b" + bytes(6)


def reply(code: int) -> bytes:
    """The answer to a request (RFC 1928 section 6). The gate tells no one which address it dials from."""
    return bytes((0x05, code, 0x00, _IPV4)) + bytes(6)


SUCCEEDED = reply(0x00)


class Rejected(Refused):
    """Refused while SOCKS was being spoken; `answer` is what the client is told, at the stage it is in."""

    def __init__(self, answer: bytes, reason: Reason, detail: str, asked: str = "") -> None:
        super().__init__(reason, detail, asked)
        self.answer = answer


class Credentials(NamedTuple):
    user: str
    password: str

    def __repr__(self) -> str:
        return f"Credentials(user={self.user!r}, password=…)"


def answer(refused: Refused) -> bytes:
    """What a SOCKS5 client is sent for any refusal, from here or from policy."""
    return refused.answer if isinstance(refused, Rejected) else reply(TABLE[refused.reason].socks)


def greeting(buffer: bytearray, password: bool) -> Handshake[Credentials | None]:
    """Agree on a method. With `password`: what the client gave, its status still to be sent."""
    version, count = yield from take(buffer, 2)
    if version != 0x05:
        raise Rejected(NO_METHOD, Reason.MALFORMED_REQUEST, f"SOCKS version {version}, expected 5")
    methods = yield from take(buffer, count)
    if _NO_AUTH in methods and not password:
        yield bytes((0x05, _NO_AUTH))
        return None
    if _PASSWORD not in methods:
        raise _no_method(methods, password)
    yield bytes((0x05, _PASSWORD))
    user, secret = yield from _user_and_password(buffer)
    if password:
        return _credentials(user, secret)
    yield AUTH_OK
    return None


def request(buffer: bytearray) -> Handshake[Target]:
    """Where the client wants to go."""
    version, command, reserved, kind = yield from take(buffer, 4)
    if version != 0x05 or reserved != 0x00:
        detail = f"SOCKS version {version}, reserved byte {reserved}, expected 5 and 0"
        raise _rejected(Reason.MALFORMED_REQUEST, detail)
    if command != _CONNECT:
        name = _OTHER_COMMANDS.get(command, f"{command:#04x}")
        raise _rejected(Reason.UNSUPPORTED, f"SOCKS command {name}, expected CONNECT")
    text = yield from _address(buffer, kind)
    port = int.from_bytes((yield from take(buffer, 2)), "big")
    return _target(text, port)


def _user_and_password(buffer: bytearray) -> Handshake[tuple[bytes, bytes]]:
    """RFC 1929 wants both to have 1 to 255 bytes; clients do send empty ones, which are merely wrong."""
    (version,) = yield from take(buffer, 1)
    if version != 0x01:
        detail = f"version {version} of the password message, expected 1"
        raise Rejected(AUTH_FAILED, Reason.MALFORMED_REQUEST, detail)
    user = yield from _counted(buffer)
    secret = yield from _counted(buffer)
    return user, secret


def _address(buffer: bytearray, kind: int) -> Handshake[str]:
    """The address as text, whichever of its three forms it came in."""
    if kind == _NAME:
        name = yield from _counted(buffer)
        return name.decode("latin-1")
    if kind == _IPV4:
        return str(IPv4Address((yield from take(buffer, 4))))
    if kind == _IPV6:
        return str(IPv6Address((yield from take(buffer, 16))))
    detail = f"SOCKS address type {kind:#04x}, expected 1, 3 or 4"
    raise Rejected(reply(_ADDRESS_TYPE_NOT_SUPPORTED), Reason.UNSUPPORTED, detail)


def _counted(buffer: bytearray) -> Handshake[bytes]:
    (count,) = yield from take(buffer, 1)
    return (yield from take(buffer, count))


def _target(text: str, port: int) -> Target:
    try:
        host = parse_host(text)
    except Malformed as error:
        raise _rejected(Reason.MALFORMED_HOST, str(error), text) from None
    target = Target(host, port)
    if port == 0:
        raise _rejected(Reason.MALFORMED_HOST, "port 0 is not a number from 1 to 65535", str(target))
    return target


def _credentials(user: bytes, secret: bytes) -> Credentials:
    try:
        return Credentials(user.decode(), secret.decode())
    except UnicodeDecodeError:
        raise Rejected(AUTH_FAILED, Reason.CREDENTIALS, "the user name or password is not UTF-8") from None


def _no_method(methods: bytes, password: bool) -> Rejected:
    wanted = "2 (user name and password)" if password else "0 (none) or 2 (user name and password)"
    detail = f"SOCKS methods {list(methods)}, expected {wanted} among them"
    return Rejected(NO_METHOD, Reason.CREDENTIALS if password else Reason.UNSUPPORTED, detail)


def _rejected(reason: Reason, detail: str, asked: str = "") -> Rejected:
    return Rejected(reply(TABLE[reason].socks), reason, detail, asked)
