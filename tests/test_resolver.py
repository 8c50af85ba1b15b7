from __future__ import annotations

import asyncio
import contextlib
import socket
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterable, Iterator

import pytest
from dnskit import Clock
from dnslib import QTYPE, DNSRecord
from fakedns import fake_dns, reply
from loops import LOOPS, on_both_loops

from egress.addresses import Kind
from egress.limits import LIMITS, Limits
from egress.model import Candidate, Host, Target
from egress.net import resolver as resolver_module
from egress.net.resolver import Resolver
from egress.policy import Fixed
from egress.refusals import Reason, Refused

NAME = Target(Host("www.example.test"), 443)
OTHER = Target(Host("other.example.test"), 443)
HURRIED = LIMITS._replace(resolve=0.05)
STREAM = (socket.SOCK_STREAM, socket.IPPROTO_TCP, "")


class System:
    """Stands in for getaddrinfo; each name gives rows, or an error, and may have to wait at a gate."""

    def __init__(self) -> None:
        self.asked: list[object] = []
        self.answer: list[tuple[object, ...]] | OSError = v4("203.0.113.1")
        self.gate = threading.Event()
        self.gate.set()

    def getaddrinfo(self, host: object, port: object, **options: object) -> list[tuple[object, ...]]:
        self.asked.append(host)
        assert (port, options) == (None, {"type": socket.SOCK_STREAM, "proto": socket.IPPROTO_TCP})
        self.gate.wait()
        if isinstance(self.answer, OSError):
            raise self.answer
        return self.answer

    @contextlib.contextmanager
    def stuck(self) -> Iterator[None]:
        self.gate.clear()
        try:
            yield
        finally:
            self.gate.set()
            for thread in threading.enumerate():
                if thread.name == "look-up":
                    thread.join()


def v4(*ips: str) -> list[tuple[object, ...]]:
    return [(socket.AF_INET, *STREAM, (ip, 0)) for ip in ips]


def v6(*ips: str, scope: int = 0) -> list[tuple[object, ...]]:
    return [(socket.AF_INET6, *STREAM, (ip, 0, 0, scope)) for ip in ips]


@pytest.fixture
def system(monkeypatch: pytest.MonkeyPatch) -> System:
    fake = System()
    monkeypatch.setattr(resolver_module.socket, "getaddrinfo", fake.getaddrinfo)
    return fake


def resolver(limits: Limits = LIMITS, clock: Clock | None = None, **more: object) -> Resolver:
    return Resolver(clock or asyncio.get_running_loop(), limits, **more)  # type: ignore[arg-type]


async def refusal_of(resolver: Resolver, target: Target = NAME) -> str:
    with pytest.raises(Refused) as caught:
        await resolver.resolve(target, {})
    assert caught.value.reason is Reason.UNRESOLVED
    return caught.value.detail


# What needs no look-up


@on_both_loops
async def test_an_address_is_itself() -> None:
    it = resolver()
    for ip in ("127.0.0.1", "198.51.100.1", "2001:db8::1"):
        assert it.known(Target(Host(ip), 80), {}) == (Candidate(ip, 80),)
        assert await it.resolve(Target(Host(ip), 80), {}) == (Candidate(ip, 80),)


@on_both_loops
async def test_a_v4_mapped_address_is_the_address_it_maps() -> None:
    assert resolver().known(Target(Host("::ffff:7f00:1"), 80), {}) == (Candidate("127.0.0.1", 80),)


@on_both_loops
async def test_a_fixed_host_is_not_looked_up(system: System) -> None:
    hosts = {NAME.host: Fixed("198.51.100.7"), OTHER.host: Fixed("198.51.100.8", 8443)}
    it = resolver()
    assert await it.resolve(NAME, hosts) == (Candidate("198.51.100.7", 443),)
    assert it.known(OTHER, hosts) == (Candidate("198.51.100.8", 8443),)
    assert system.asked == []


@on_both_loops
async def test_a_fixed_host_goes_before_what_is_remembered(system: System) -> None:
    it = resolver()
    await it.resolve(NAME, {})
    assert it.known(NAME, {NAME.host: Fixed("198.51.100.7")}) == (Candidate("198.51.100.7", 443),)


# The system's resolver


@on_both_loops
async def test_a_name_is_looked_up_once_and_remembered(system: System) -> None:
    system.answer = v6("2001:db8::1") + v4("203.0.113.1")
    it = resolver()
    assert it.known(NAME, {}) is None
    found = await it.resolve(NAME, {})
    assert found == (Candidate("2001:db8::1", 443), Candidate("203.0.113.1", 443))
    assert it.known(NAME, {}) == found
    assert it.known(Target(NAME.host, 22), {}) == tuple(Candidate(ip, 22) for ip, _, _ in found)
    assert system.asked == [b"www.example.test"]


@on_both_loops
async def test_what_is_remembered_is_forgotten_in_time(system: System) -> None:
    clock = Clock()
    it = resolver(LIMITS._replace(resolver_ttl=30), clock)
    await it.resolve(NAME, {})
    clock.now += 29
    assert it.known(NAME, {}) is not None
    clock.now += 1
    assert it.known(NAME, {}) is None
    system.answer = v4("203.0.113.2")
    assert await it.resolve(NAME, {}) == (Candidate("203.0.113.2", 443),)


@on_both_loops
async def test_a_failure_is_remembered_for_a_short_while(system: System) -> None:
    clock = Clock()
    it = resolver(clock=clock)
    system.answer = socket.gaierror(socket.EAI_NONAME, "Name or service not known")
    assert await refusal_of(it) == "no such name"
    system.answer = v4("203.0.113.1")
    clock.now += 4
    with pytest.raises(Refused):
        it.known(NAME, {})
    assert await refusal_of(it) == "no such name"
    clock.now += 1
    assert it.known(NAME, {}) is None
    assert await it.resolve(NAME, {}) == (Candidate("203.0.113.1", 443),)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (socket.gaierror(socket.EAI_NONAME, "x"), "no such name"),
        (socket.gaierror(socket.EAI_NODATA, "x"), "the name has no address"),
        (socket.gaierror(socket.EAI_AGAIN, "x"), "the resolver of this host cannot answer now"),
        (socket.gaierror(socket.EAI_FAIL, "Non-recoverable failure"), "non-recoverable failure"),
        (OSError(24, "Too many open files"), "too many open files"),
    ],
)
@on_both_loops
async def test_failures_are_told_in_words(system: System, error: OSError, words: str) -> None:
    system.answer = error
    assert await refusal_of(resolver()) == words


@on_both_loops
async def test_the_real_resolver_knows_this_host() -> None:
    found = await resolver().resolve(Target(Host("localhost"), 80), {})
    assert {"127.0.0.1", "::1"} & {candidate.ip for candidate in found}


@on_both_loops
async def test_the_memory_is_bounded_and_the_oldest_goes_first(system: System) -> None:
    it = resolver(LIMITS._replace(resolver_cache=2))
    names = [Target(Host(f"n{number}.test"), 443) for number in range(3)]
    for name in names:
        await it.resolve(name, {})
    assert [it.known(name, {}) is None for name in names] == [True, False, False]


@on_both_loops
async def test_of_many_addresses_the_first_are_kept(system: System) -> None:
    system.answer = v4(*(f"203.0.113.{n}" for n in range(1, 30)))
    found = await resolver().resolve(NAME, {})
    assert [candidate.ip for candidate in found] == [f"203.0.113.{n}" for n in range(1, 17)]


@on_both_loops
async def test_odd_addresses_are_dropped_or_unwrapped_and_doubles_go(system: System) -> None:
    system.answer = [
        *v6("fe80::1", scope=2),
        *v6("fe80::1%eth0", "::ffff:203.0.113.1", "::ffff:cb00:7101", "2001:DB8:0::1"),
        *v4("203.0.113.1", "not-an-address"),
    ]
    found = await resolver().resolve(NAME, {})
    assert [candidate.ip for candidate in found] == ["203.0.113.1", "2001:db8::1"]


@on_both_loops
async def test_a_name_with_none_but_odd_addresses_has_none(system: System) -> None:
    system.answer = v6("fe80::1", scope=2)
    assert await refusal_of(resolver()) == "the name has no usable address"


# Whose address it is


@on_both_loops
async def test_an_address_of_this_host_is_marked_as_its_own(system: System, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resolver_module, "classify", lambda ip: Kind.PUBLIC)
    system.answer = v4("127.0.0.1", "198.51.100.1") + v6("::1", "fe80::1")
    found = await resolver().resolve(NAME, {})
    assert [candidate.own for candidate in found] == [True, False, True, False]
    assert resolver().known(Target(Host("127.0.0.1"), 80), {}) == (Candidate("127.0.0.1", 80, own=True),)


@pytest.mark.parametrize("kind", [kind for kind in Kind if kind is Kind.LOOPBACK or not kind.opt_in])
@on_both_loops
async def test_where_the_kind_says_enough_nobody_is_asked(kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resolver_module, "classify", lambda ip: kind)
    assert resolver().known(Target(Host("127.0.0.1"), 80), {}) == (Candidate("127.0.0.1", 80, own=False),)


# Many askers, few threads


async def until_asked(system: System, count: int) -> None:
    while len(system.asked) < count:
        await asyncio.sleep(0)


@on_both_loops
async def test_a_name_in_flight_is_looked_up_once_and_one_who_leaves_takes_nobody_along(system: System) -> None:
    it = resolver()
    loop = asyncio.get_running_loop()
    with system.stuck():
        waiters = [loop.create_task(it.resolve(NAME, {})) for _ in range(5)]
        await until_asked(system, 1)
        waiters[0].cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiters[0]
        system.gate.set()
        assert await asyncio.gather(*waiters[1:]) == [(Candidate("203.0.113.1", 443),)] * 4
    assert len(system.asked) == 1


@on_both_loops
async def test_a_look_up_that_everybody_left_is_still_remembered(system: System) -> None:
    it = resolver()
    with system.stuck():
        waiter = asyncio.get_running_loop().create_task(it.resolve(NAME, {}))
        await until_asked(system, 1)
        waiter.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiter
    while it.known(NAME, {}) is None:
        await asyncio.sleep(0)
    assert len(system.asked) == 1


@on_both_loops
async def test_a_stuck_look_up_costs_one_thread_however_often_it_is_asked_for(system: System) -> None:
    it = resolver(HURRIED)
    with system.stuck():
        for _ in range(3):
            assert await refusal_of(it) == "no answer in 0.05 s"
        assert len(system.asked) == 1
    assert (await it.resolve(NAME, {}))[0].ip == "203.0.113.1"


@on_both_loops
async def test_when_all_threads_are_stuck_others_are_told_so_and_it_recovers(system: System) -> None:
    it = resolver(HURRIED._replace(lookups=2))
    names = [Target(Host(f"n{number}.test"), 443) for number in range(4)]
    with system.stuck():
        stuck = await asyncio.gather(*(refusal_of(it, name) for name in names))
        assert stuck == ["no answer in 0.05 s"] * 2 + ["the resolver is busy"] * 2
        assert len(system.asked) == 2
        assert await refusal_of(it, names[3]) == "the resolver is busy"
    assert await it.resolve(names[3], {}) == (Candidate("203.0.113.1", 443),)
    assert await it.resolve(names[0], {}) == (Candidate("203.0.113.1", 443),)
    assert b"n2.test" not in system.asked, "nobody waited for it any more"


@on_both_loops
async def test_one_who_leaves_the_queue_leaves_the_place_to_the_others(system: System) -> None:
    it = resolver(LIMITS._replace(lookups=1))
    loop = asyncio.get_running_loop()
    with system.stuck():
        first = loop.create_task(it.resolve(NAME, {}))
        await until_asked(system, 1)
        queued = [loop.create_task(it.resolve(OTHER, {})) for _ in range(2)]
        await asyncio.sleep(0)
        queued[0].cancel()
        with pytest.raises(asyncio.CancelledError):
            await queued[0]
        system.gate.set()
        assert await first == await queued[1] == (Candidate("203.0.113.1", 443),)
    assert system.asked == [b"www.example.test", b"other.example.test"]


@on_both_loops
async def test_a_machine_without_threads_refuses_and_recovers(system: System, monkeypatch: pytest.MonkeyPatch) -> None:
    def cannot(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    it = resolver(LIMITS._replace(lookups=1))
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", cannot)
        assert await refusal_of(it) == "the resolver is busy"
    assert (await it.resolve(NAME, {}))[0].ip == "203.0.113.1"


@on_both_loops
async def test_closing_lets_waiters_go_and_a_late_thread_is_not_missed(system: System) -> None:
    complaints: list[object] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: complaints.append(context))
    it = resolver()
    with system.stuck():
        waiter = loop.create_task(refusal_of(it))
        await until_asked(system, 1)
        it.close()
        assert await waiter == "the gate is closing"
    for _ in range(3):
        await asyncio.sleep(0)
    assert complaints == []


@pytest.mark.parametrize("new_loop", LOOPS.values(), ids=LOOPS.keys())
def test_a_thread_that_comes_back_to_a_closed_loop_goes_quietly(system: System, new_loop: Callable[[], object]) -> None:
    async def story() -> None:
        it = resolver(HURRIED)
        assert await refusal_of(it) == "no answer in 0.05 s"
        it.close()

    with system.stuck(), asyncio.Runner(loop_factory=new_loop) as runner:  # type: ignore[arg-type]
        runner.run(story())


def test_a_stuck_look_up_does_not_keep_the_process() -> None:
    code = """
        import asyncio, socket, threading
        from egress.limits import LIMITS
        from egress.model import Host, Target
        from egress.net.resolver import Resolver
        from egress.refusals import Refused

        async def main():
            resolver = Resolver(asyncio.get_running_loop(), LIMITS._replace(resolve=0.05))
            try:
                await resolver.resolve(Target(Host("www.example.test"), 443), {})
            except Refused as refused:
                print(refused.detail)
            resolver.close()

        socket.getaddrinfo = lambda *_, **__: threading.Event().wait()
        asyncio.run(main())
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=30, check=True
    )
    assert (done.stdout, done.stderr) == ("no answer in 0.05 s\n", "")


# A DNS server of the operator's


def zone(**records: list[str]) -> object:
    """A script that answers each type with its lines; a type it has no word for stays unanswered."""

    def script(query: DNSRecord, _: int) -> Iterable[bytes]:
        lines = records.get(QTYPE[query.q.qtype])
        return [] if lines is None else [reply(query, *(f"www.example.test {line}" for line in lines))]

    return script


@on_both_loops
async def test_both_families_are_asked_for_and_come_by_turns(system: System) -> None:
    script = zone(A=["60 A 203.0.113.1", "60 A 203.0.113.2"], AAAA=["60 AAAA 2001:db8::1"])
    async with fake_dns(script) as fake:  # type: ignore[arg-type]
        it = resolver(server=fake.server)
        found = await it.resolve(NAME, {})
        assert it.known(NAME, {}) == found
    assert [candidate.ip for candidate in found] == ["2001:db8::1", "203.0.113.1", "203.0.113.2"]
    assert {query.q.qtype for query in fake.queries} == {QTYPE.A, QTYPE.AAAA}
    assert system.asked == []


@on_both_loops
async def test_one_silent_family_does_not_spoil_the_other() -> None:
    async with fake_dns(zone(A=["60 A 203.0.113.1"])) as fake:  # type: ignore[arg-type]
        it = resolver(LIMITS._replace(resolve=1), server=fake.server)
        assert await it.resolve(NAME, {}) == (Candidate("203.0.113.1", 443),)


@pytest.mark.parametrize(("ttl", "kept", "gone"), [(0, 0.9, 1), (60, 59, 60), (4294967295, 299, 300)])
@on_both_loops
async def test_the_server_says_how_long_it_holds_within_bounds(ttl: int, kept: float, gone: float) -> None:
    clock = Clock()
    async with fake_dns(zone(A=[f"{ttl} A 203.0.113.1"], AAAA=[])) as fake:  # type: ignore[arg-type]
        it = resolver(clock=clock, server=fake.server)
        await it.resolve(NAME, {})
    clock.now += kept
    assert it.known(NAME, {}) is not None
    clock.now += gone - kept
    assert it.known(NAME, {}) is None


@on_both_loops
async def test_an_empty_family_does_not_say_how_long_the_other_holds() -> None:
    def script(query: DNSRecord, _: int) -> Iterable[bytes]:
        answer = ["www.example.test 60 A 203.0.113.1"] if query.q.qtype == QTYPE.A else []
        return [reply(query, *answer, authority=SOA)]

    clock = Clock()
    async with fake_dns(script) as fake:
        it = resolver(clock=clock, server=fake.server)
        await it.resolve(NAME, {})
    clock.now += 59
    assert it.known(NAME, {}) is not None


SOA = "example.test 60 IN SOA ns.example.test. admin.example.test. 1 2 3 4 20"


@pytest.mark.parametrize(("authority", "kept", "gone"), [(SOA, 19, 20), ("", 4, 5)])
@on_both_loops
async def test_a_name_that_does_not_exist_is_remembered_as_long_as_its_soa_says(
    authority: str, kept: float, gone: float
) -> None:
    clock = Clock()
    async with fake_dns(lambda query, _: [reply(query, authority=authority, rcode=3)]) as fake:
        it = resolver(clock=clock, server=fake.server)
        assert await refusal_of(it) == "no such name"
    clock.now += kept
    with pytest.raises(Refused):
        it.known(NAME, {})
    clock.now += gone - kept
    assert it.known(NAME, {}) is None


@pytest.mark.parametrize(
    ("rcode", "words"),
    [
        (0, "the name has no address"),
        (2, "the DNS server answered SERVFAIL"),
        (5, "the DNS server answered REFUSED"),
        (15, "the DNS server answered 15"),
    ],
)
@on_both_loops
async def test_what_else_a_server_may_say_is_told(rcode: int, words: str) -> None:
    async with fake_dns(lambda query, _: [reply(query, rcode=rcode)]) as fake:
        assert await refusal_of(resolver(server=fake.server)) == words


@on_both_loops
async def test_addresses_beside_an_error_code_are_not_believed() -> None:
    async with fake_dns(lambda query, _: [reply(query, "www.example.test 60 A 203.0.113.66", rcode=2)]) as fake:
        assert await refusal_of(resolver(server=fake.server)) == "the DNS server answered SERVFAIL"


@on_both_loops
async def test_a_silent_server_is_told_as_such() -> None:
    async with fake_dns() as fake:
        it = resolver(LIMITS._replace(resolve=1), server=fake.server)
        assert await refusal_of(it) == f"no answer from the DNS server {fake.server}: no reply in time"
