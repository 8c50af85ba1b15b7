from __future__ import annotations

import asyncio
import socket
import struct
import subprocess
import sys
from collections.abc import Iterable

import pytest
from dnslib import QTYPE, RR, DNSError, DNSRecord
from fakedns import about, fake_dns, reply
from hypothesis import example, given
from hypothesis import strategies as st
from loops import on_both_loops
from wiredrive import FUZZ

from egress.limits import LIMITS
from egress.model import Host
from egress.names import Malformed
from egress.net.dnsclient import Answer, DnsClient, DnsServer, Question, Record, ask, read
from egress.refusals import Reason, Refused

NAME = Host("www.example.test")
RIGHT = "www.example.test 60 IN A 192.0.2.1"
WRONG = "www.example.test 60 IN A 192.0.2.66"
HURRIED = LIMITS._replace(resolve=0.25)  # 0.05 s for each try


def client(server: DnsServer, hurried: bool = False) -> DnsClient:
    return DnsClient(server, asyncio.get_running_loop(), HURRIED if hurried else LIMITS)


def addresses(answer: Answer) -> list[str]:
    return [record.data for record in answer.records]


# What is asked


@on_both_loops
async def test_the_query_is_one_plain_recursive_question_with_room_for_1232_bytes() -> None:
    async with fake_dns(lambda query, _: [reply(query, RIGHT)]) as fake:
        answer = await client(fake.server).query(NAME, "A")
    assert answer == Answer(0, (Record("A", 60, "192.0.2.1"),), 60)
    (query,) = fake.queries
    assert [(str(q.qname), q.qtype, q.qclass) for q in query.questions] == [("www.example.test.", QTYPE.A, 1)]
    assert (query.header.rd, query.header.qr, query.header.opcode) == (1, 0, 0)
    assert [(rr.rtype, rr.edns_len, rr.edns_ver) for rr in query.ar] == [(QTYPE.OPT, 1232, 0)]


@on_both_loops
async def test_every_try_has_a_new_port_and_a_new_id() -> None:
    async with fake_dns() as fake:
        for _ in range(3):
            with pytest.raises(Refused):
                await client(fake.server, hurried=True).query(NAME, "A")
    assert len(fake.queries) == 9
    assert len({port for _, port in fake.sources}) > 5
    assert len({query.header.id for query in fake.queries}) > 5


# What is heard


def stray_then_right(stray: object) -> object:
    """A script that sends what must not count first, and the truth after it."""
    return lambda query, _: [*stray(query), reply(query, RIGHT)]  # type: ignore[operator]


STRAYS = {
    "another id": lambda query: [reply(query, WRONG, id=query.header.id ^ 1)],
    "another name": lambda query: [about(query, "other.test", "A", "other.test 60 A 192.0.2.66")],
    "a longer name": lambda query: [about(query, "www.example.test.evil.test", "A", WRONG)],
    "another type": lambda query: [about(query, NAME, "AAAA", WRONG)],
    "another class": lambda query: [reply(query, WRONG).replace(b"\0\0\1\0\1", b"\0\0\1\0\3", 1)],
    "a query": lambda query: [reply(query, WRONG, qr=0)],
    "another opcode": lambda query: [reply(query, WRONG, opcode=4)],
    "no question": lambda query: [reply(query, WRONG, q=0)],
    "two questions": lambda query: [reply(query, WRONG, q=2)],
    "nothing": lambda query: [b""],
    "garbage": lambda query: [b"\xff" * 40, query.header.id.to_bytes(2, "big") + b"\x81\x80" + b"\xc0" * 300],
    "a header alone": lambda query: [reply(query, WRONG)[:12]],
    "a cut message": lambda query: [reply(query, WRONG)[:-2]],
    "a promise of more": lambda query: [reply(query, WRONG, a=9)],
}


@pytest.mark.parametrize("stray", STRAYS.values(), ids=STRAYS.keys())
@on_both_loops
async def test_what_is_no_answer_to_this_question_is_not_heard(stray: object) -> None:
    async with fake_dns(stray_then_right(stray)) as fake:  # type: ignore[arg-type]
        assert addresses(await client(fake.server).query(NAME, "A")) == ["192.0.2.1"]
    assert len(fake.queries) == 1, "it was waited on, not asked again"


@on_both_loops
async def test_another_source_is_not_heard() -> None:
    with socket.socket(type=socket.SOCK_DGRAM) as other:
        other.bind(("127.0.0.1", 0))

        def script(query: DNSRecord, _: int) -> Iterable[bytes]:
            other.sendto(reply(query, WRONG), fake.sources[-1])
            return [reply(query, RIGHT)]

        async with fake_dns(script) as fake:
            assert addresses(await client(fake.server).query(NAME, "A")) == ["192.0.2.1"]


@on_both_loops
async def test_the_case_of_the_question_does_not_matter() -> None:
    async with fake_dns(lambda query, _: [reply(query, RIGHT).replace(b"example", b"eXaMPle", 1)]) as fake:
        assert addresses(await client(fake.server).query(NAME, "A")) == ["192.0.2.1"]


@on_both_loops
async def test_a_flood_of_strays_makes_it_ask_again_elsewhere() -> None:
    def script(query: DNSRecord, count: int) -> Iterable[bytes]:
        return [reply(query, WRONG, id=query.header.id ^ 1)] * 100 if count == 0 else [reply(query, RIGHT)]

    async with fake_dns(script) as fake:
        patient = DnsClient(fake.server, asyncio.get_running_loop(), LIMITS._replace(resolve=3600))
        assert addresses(await patient.query(NAME, "A")) == ["192.0.2.1"]
    assert len(set(fake.sources)) == len(fake.queries) == 2


# What is believed


def answer_to(*zone: str, qtype: str = "A", **more: object) -> Answer:
    question = ask(NAME, qtype)
    answer = read(reply(DNSRecord.parse(question.packet), *zone, **more), question)  # type: ignore[arg-type]
    assert answer is not None
    return answer


def test_aliases_are_followed_from_the_question_and_the_shortest_life_counts() -> None:
    answer = answer_to(
        "b.test 20 IN CNAME c.test",
        "www.example.test 300 IN CNAME B.test",
        "c.test 90 IN A 192.0.2.1",
        "C.test 10 IN A 192.0.2.2",
    )
    assert answer.records == (Record("A", 20, "192.0.2.1"), Record("A", 10, "192.0.2.2"))
    assert answer.ttl == 10


def test_records_off_the_chain_are_not_believed() -> None:
    answer = answer_to(
        RIGHT,
        "other.test 60 IN A 192.0.2.66",
        "www.example.test 60 IN AAAA 2001:db8::66",
        "www.example.test 60 CH A 192.0.2.66",
        "other.test 60 IN CNAME www.example.test",
        authority=WRONG,
        additional=WRONG,
    )
    assert addresses(answer) == ["192.0.2.1"]


def test_an_alias_that_leads_nowhere_has_no_records() -> None:
    assert answer_to("www.example.test 60 IN CNAME b.test", "x.test 60 IN A 192.0.2.66").records == ()


def test_a_record_beside_an_alias_of_the_same_name_is_not_the_answer() -> None:
    assert addresses(answer_to(WRONG, "www.example.test 9 CNAME b.test", "b.test 9 A 192.0.2.1")) == ["192.0.2.1"]


def test_the_first_of_two_aliases_counts() -> None:
    zone = ["www.example.test 9 CNAME b.test", "www.example.test 9 CNAME x.test"]
    assert addresses(answer_to(*zone, "x.test 9 A 192.0.2.66", "b.test 9 A 192.0.2.1")) == ["192.0.2.1"]


def test_a_circle_of_aliases_ends() -> None:
    assert answer_to("www.example.test 9 CNAME b.test", "b.test 9 CNAME www.example.test").records == ()


def test_an_alias_can_itself_be_asked_for() -> None:
    (record,) = answer_to("www.example.test 9 CNAME b.test", "b.test 9 CNAME c.test", qtype="CNAME").records
    assert (record.type, str(record.data)) == ("CNAME", "b.test.")


def test_an_ipv6_address_comes_in_its_canonical_spelling() -> None:
    assert addresses(answer_to("www.example.test 60 AAAA 2001:db8:0:1:0:0:0:1", qtype="AAAA")) == ["2001:db8:0:1::1"]


@pytest.mark.parametrize(
    ("qtype", "text"),
    [
        ("MX", "10 mail.example.test."),
        ("TXT", '"v=spf1 -all" "two"'),
        ("SRV", "1 2 443 srv.example.test."),
        ("NS", "ns1.example.test."),
        ("HTTPS", "1 . alpn=h2"),
    ],
)
def test_records_of_other_types_can_be_passed_on(qtype: str, text: str) -> None:
    (record,) = answer_to(f"www.example.test 60 IN {qtype} {text}", qtype=qtype).records
    again = DNSRecord(rr=[RR("other.test", getattr(QTYPE, record.type), ttl=record.ttl, rdata=record.data)])
    (passed,) = DNSRecord.parse(again.pack()).rr
    assert (str(passed.rname), passed.rdata) == ("other.test.", RR.fromZone(f"x.test 1 IN {qtype} {text}")[0].rdata)


SOA = "example.test {ttl} IN SOA ns.example.test. admin.example.test. 1 2 3 4 {minimum}"


@pytest.mark.parametrize(("ttl", "minimum", "expected"), [(60, 30, 30), (20, 30, 20)])
def test_an_empty_answer_holds_for_as_long_as_its_soa_says(ttl: int, minimum: int, expected: int) -> None:
    answer = answer_to(authority=SOA.format(ttl=ttl, minimum=minimum), rcode=3)
    assert answer == Answer(3, (), expected)


def test_an_empty_answer_without_soa_does_not_say_how_long_it_holds() -> None:
    assert answer_to() == Answer(0, (), None)


def test_the_upper_bits_of_the_code_are_read_from_the_opt_record() -> None:
    question = ask(NAME, "A")
    packet = bytearray(reply(DNSRecord.parse(question.packet), ar=1))
    packet += b"\0" + struct.pack("!HHBBHH", 41, 1232, 1, 0, 0, 0)
    assert read(bytes(packet), question) == Answer(16)


def test_a_deep_chain_of_pointers_is_no_answer() -> None:
    question = ask(NAME, "A")
    start = 12 + len(ASKED) + 11  # behind the head of a record that holds nothing but pointers, each to the one before
    pointers = b"".join(struct.pack("!H", 0xC000 | start + 2 * max(0, at - 1)) for at in range(5000))
    holder = b"\0" + struct.pack("!HHIH", 10, 1, 60, len(pointers)) + pointers
    victim = pointers[-2:] + struct.pack("!HHIH", 1, 1, 60, 4) + b"\1\2\3\4"
    packet = struct.pack("!6H", question.id, 0x8180, 1, 2, 0, 0) + ASKED + holder + victim
    with pytest.raises((RecursionError, DNSError)):
        DNSRecord.parse(packet)
    assert read(packet, question) is None


# Over TCP


MANY = [f"www.example.test 60 A 192.0.2.{n}" for n in range(1, 200)]


@on_both_loops
async def test_a_cut_answer_is_asked_for_again_over_tcp() -> None:
    async with fake_dns(lambda query, _: [reply(query, WRONG, tc=1)], lambda query, _: [reply(query, *MANY)]) as fake:
        answer = await client(fake.server).query(NAME, "A")
    assert len(answer.records) == 199
    assert (len(fake.queries), len(fake.tcp_queries)) == (1, 1)


@pytest.mark.parametrize("stray", STRAYS.values(), ids=STRAYS.keys())
@on_both_loops
async def test_over_tcp_the_same_checks_hold(stray: object) -> None:
    async with fake_dns(lambda query, _: [reply(query, tc=1)], stray_then_right(stray)) as fake:  # type: ignore[arg-type]
        assert addresses(await client(fake.server).query(NAME, "A")) == ["192.0.2.1"]
    assert len(fake.tcp_queries) == 1


@on_both_loops
async def test_a_tcp_side_that_hangs_up_or_cuts_again_is_no_answer() -> None:
    def over_tcp(query: DNSRecord, count: int) -> Iterable[bytes]:
        return [reply(query, WRONG, tc=1)] if count == 0 else []

    async with fake_dns(lambda query, _: [reply(query, tc=1)], over_tcp) as fake:
        with pytest.raises(Refused) as caught:
            await client(fake.server).query(NAME, "A")
    assert len(fake.tcp_queries) == 3
    assert caught.value.detail.startswith(f"no answer from the DNS server {fake.server}: ")


# Silence


@on_both_loops
async def test_silence_is_refused_after_three_tries() -> None:
    async with fake_dns() as fake:
        with pytest.raises(Refused) as caught:
            await client(fake.server, hurried=True).query(NAME, "A")
    assert len(fake.queries) == 3
    assert caught.value.reason is Reason.UNRESOLVED
    assert caught.value.detail == f"no answer from the DNS server {fake.server}: no reply in time"


@on_both_loops
async def test_a_lost_packet_is_asked_for_again() -> None:
    async with fake_dns(lambda query, count: [reply(query, RIGHT)] if count > 0 else []) as fake:
        assert addresses(await client(fake.server, hurried=True).query(NAME, "A")) == ["192.0.2.1"]


@on_both_loops
async def test_a_server_that_is_not_there_is_told_as_such() -> None:
    with socket.socket(type=socket.SOCK_DGRAM) as sock:
        sock.bind(("127.0.0.1", 0))
        server = DnsServer(*sock.getsockname())
    with pytest.raises(Refused, match="connection refused"):
        await client(server).query(NAME, "A")


@on_both_loops
async def test_cancelling_a_query_leaves_nothing() -> None:
    async with fake_dns() as fake:
        task = asyncio.get_running_loop().create_task(client(fake.server).query(NAME, "A"))
        while not fake.queries:
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


# Fuzz


QUESTION = Question(0x1234, ask(NAME, "A").name, 1)
HEAD = struct.pack("!2H", 0x1234, 0x8180)
ASKED = QUESTION.packet[12 : 12 + len(QUESTION.name) + 4]
NAMES = st.sampled_from([b"\xc0\x0c", b"\0", b"\1b\4test\0", b"\xc0\x10", b"\xc0\xff", b"\xff", QUESTION.name])


@st.composite
def records(draw: st.DrawFn) -> bytes:
    """A record whose length may be true or not."""
    data = draw(st.one_of(NAMES, st.binary(min_size=4, max_size=4), st.binary(max_size=30)))
    size = draw(st.one_of(st.just(len(data)), st.integers(0, 65535)))
    kind = draw(st.sampled_from([1, 5, 28, 6, 41, 16, 15, 65, 46, 47, 257, 29, 999]))
    kind_class_ttl = struct.pack("!HHI", kind, draw(st.sampled_from([1, 1, 3])), draw(st.integers(0, 2**32 - 1)))
    return draw(NAMES) + kind_class_ttl + size.to_bytes(2, "big") + data


@st.composite
def packets(draw: st.DrawFn) -> bytes:
    """The right id and question, then records that are mostly framed."""
    answers = draw(st.lists(records(), max_size=6))
    counts = (1, *draw(st.tuples(*[st.integers(0, len(answers) + 1)] * 3)))
    return HEAD + struct.pack("!4H", *counts) + ASKED + b"".join(answers) + draw(st.binary(max_size=4))


@FUZZ
@given(packets())
@example(HEAD + struct.pack("!4H", 1, 1, 0, 0) + ASKED + b"\xc0\x0c\0\1\0\1\0\0\0\x3c\0\0")
def test_no_packet_raises_and_only_addresses_come_of_it(packet: bytes) -> None:
    answer = read(packet, QUESTION)
    assert answer is None or all(
        record.type == "A" and socket.inet_aton(record.data) in packet for record in answer.records
    )


@FUZZ
@given(st.one_of(st.binary(max_size=80), st.binary(max_size=80).map(lambda tail: HEAD + b"\0\1" + tail)))
def test_bytes_that_do_not_repeat_the_question_are_no_answer(packet: bytes) -> None:
    assert read(packet, QUESTION) is None or ASKED in packet


# The option


@pytest.mark.parametrize(
    ("text", "server"),
    [
        ("1.1.1.1", DnsServer("1.1.1.1", 53)),
        ("127.0.0.1:5353", DnsServer("127.0.0.1", 5353)),
        ("[::1]:53", DnsServer("::1", 53)),
        ("[::1]", DnsServer("::1", 53)),
        ("2001:DB8::1", DnsServer("2001:db8::1", 53)),
    ],
)
def test_a_server_is_an_address_with_or_without_port(text: str, server: DnsServer) -> None:
    assert DnsServer.parse(text) == server


@pytest.mark.parametrize("text", ["dns.example.test", "1.1.1.1:0", "1.1.1.1:", "127.1", "", "[::1", "fe80::1%eth0"])
def test_anything_else_is_no_server(text: str) -> None:
    with pytest.raises(Malformed):
        DnsServer.parse(text)


def test_dnslib_is_not_imported_before_it_is_needed() -> None:
    code = "import sys, egress.net.dnsclient, egress.net.resolver; sys.exit('dnslib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
