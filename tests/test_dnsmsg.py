"""Queries are read strictly, and answers are what clients can read."""

from __future__ import annotations

import struct

import pytest
from dnskit import header, opt, query, question, read, wire
from dnslib import QTYPE, DNSRecord
from hypothesis import given
from hypothesis import strategies as st
from wiredrive import FUZZ

from egress.model import Host
from egress.names import Malformed, as_address, parse_host
from egress.refusals import TABLE, Reason
from egress.wire.dnsanswer import NODATA, Answer, build, refusal
from egress.wire.dnsmsg import (
    Edns,
    Query,
    Rcode,
    Rejected,
    Subject,
    Type,
    objection,
    parse,
    rejection,
    subject,
)

WWW = (b"www", b"example", b"test")
PLAIN = question(*WWW)
WITH_OPT = header(0x1234, 0x0100, 1, 0, 0, 1) + PLAIN[12:]


def parsed(packet: bytes) -> Query:
    found = parse(packet)
    assert found is not None
    return found


# What a query is


def test_a_plain_query_is_read() -> None:
    assert parse(PLAIN) == Query(0x1234, 0x0100, WWW, Type.A, 1, None)


def test_a_query_with_edns_is_read() -> None:
    cookie = b"\0\x0a\0\x08abcdefgh"
    assert parsed(WITH_OPT + opt(4096, 0x8000, cookie)).edns == Edns(4096, 0, dnssec=True)
    assert parsed(WITH_OPT + opt(512, 0x00010000)).edns == Edns(512, 1, dnssec=False)


def test_of_the_flags_only_those_that_an_answer_repeats_are_kept() -> None:
    assert parsed(header(1, 0x07FF) + PLAIN[12:]).flags == 0x0110


def test_the_longest_name_is_read() -> None:
    labels = (b"a" * 63, b"b" * 63, b"c" * 63, b"d" * 61)
    assert parsed(question(*labels)).labels == labels


@pytest.mark.parametrize(
    "packet",
    [b"", b"\0", PLAIN[:11], header(1, 0x8100) + PLAIN[12:], header(1, 0xF800, 0, 0, 0, 0)],
    ids=["empty", "a byte", "half a header", "a response", "a response to something else"],
)
def test_what_may_be_an_answer_is_never_answered(packet: bytes) -> None:
    assert parse(packet) is None


FORMERR = {
    "no question": header(1, 0x0100, 0, 0, 0, 0),
    "no question but its bytes": header(1, 0x0100, 0, 0, 0, 0) + PLAIN[12:],
    "two questions": header(1, 0x0100, 2, 0, 0, 0) + PLAIN[12:] * 2,
    "an answer": header(1, 0x0100, 1, 1, 0, 0) + PLAIN[12:] + b"\xc0\x0c" + struct.pack("!HHIH", 1, 1, 1, 4) + b"abcd",
    "an authority": header(1, 0x0100, 1, 0, 1, 0) + PLAIN[12:] + b"\0" + struct.pack("!HHIH", 2, 1, 1, 1) + b"\0",
    "two additional records": header(1, 0x0100, 1, 0, 0, 2) + PLAIN[12:] + opt() * 2,
    "an additional record that is none": WITH_OPT,
    "an additional record that is no OPT": WITH_OPT + b"\0" + struct.pack("!HHIH", 1, 1, 1, 4) + b"abcd",
    "an OPT with a name": WITH_OPT + opt(root=b"\1a\0"),
    "an OPT with half a name": WITH_OPT + opt(root=b"\1"),
    "a cut OPT": WITH_OPT + opt()[:-1],
    "an OPT that promises more": WITH_OPT + opt()[:-2] + b"\0\4",
    "a cut option": WITH_OPT + opt(data=b"\0\x0a\0"),
    "an option that is too long": WITH_OPT + opt(data=b"\0\x0a\0\x09abcdefgh"),
    "trailing bytes": PLAIN + b"\0",
    "trailing bytes behind OPT": WITH_OPT + opt() + b"\0",
    "a pointer to itself": header() + b"\xc0\x0c\0\1\0\1",
    "a pointer forward": header() + b"\xc0\x10\0\1\0\1",
    "a pointer behind a label": header() + b"\3www\xc0\x0c\0\1\0\1",
    "a label of the kind 01": header() + b"\x41" + b"a" * 65 + b"\0\0\1\0\1",
    "a label of the kind 10": header() + b"\x81" + b"a" * 129 + b"\0\0\1\0\1",
    "a name of 256": question(b"a" * 63, b"b" * 63, b"c" * 63, b"d" * 62),
    "a name without end": header() + b"\3www",
    "a label without end": header() + b"\x3fwww",
    "no type": header() + wire(*WWW),
    "no class": PLAIN[:-2],
    "a header alone": header(),
}


@pytest.mark.parametrize("packet", FORMERR.values(), ids=FORMERR.keys())
def test_what_is_no_query_is_a_format_error(packet: bytes) -> None:
    with pytest.raises(Rejected) as caught:
        parse(packet)
    assert caught.value.rcode is Rcode.FORMERR


@pytest.mark.parametrize("opcode", range(1, 16))
def test_other_opcodes_are_not_implemented(opcode: int) -> None:
    packet = header(7, opcode << 11 | 0x0100) + PLAIN[12:]
    with pytest.raises(Rejected) as caught:
        parse(packet)
    assert rejection(packet, caught.value.rcode) == header(7, 0x8080 | opcode << 11 | 0x0100 | 4, 0, 0, 0, 0)


def test_a_rejection_repeats_nothing_but_the_header() -> None:
    assert rejection(PLAIN + b"secret", Rcode.FORMERR) == header(0x1234, 0x8181, 0, 0, 0, 0)


# What it is about


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        (WWW, Subject(Host("www.example.test"), service=False)),
        ((b"wWw", b"EXAMPLE", b"tEsT"), Subject(Host("www.example.test"), service=False)),
        ((b"_http", b"_tcp", b"example", b"test"), Subject(Host("example.test"), service=True)),
        ((b"intranet",), Subject(Host("intranet"), service=False)),
    ],
)
def test_a_name_is_a_host_or_a_service_of_one(labels: tuple[bytes, ...], expected: Subject) -> None:
    assert subject(parsed(question(*labels))) == expected


@pytest.mark.parametrize(
    "labels",
    [
        (b"evil.test\0", b"allowed", b"test"),
        (b"evil\0", b"allowed", b"test"),
        (b"evil.allowed", b"test"),
        (b"allowed.test",),
        (b"a b", b"test"),
        (b"::1",),
        (b"fd00", b"::1"),
        (b"\xff\xfe", b"test"),
        ("é".encode(), b"test"),
        (b"a_b", b"test"),
        (b"www", b"_tcp", b"test"),
        (b"_tcp",),
        (b"-a", b"test"),
        (b"a-", b"test"),
        (b"*", b"test"),
        (b"127", b"0", b"0", b"1"),
        (b"127", b"1"),
        (b"0x7f", b"1"),
        (b"xn--a", b"test"),
        (b"a%2e", b"test"),
        (b"a\n", b"test"),
    ],
)
def test_other_names_reach_no_policy(labels: tuple[bytes, ...]) -> None:
    with pytest.raises(Malformed):
        subject(parsed(question(*labels)))


@pytest.mark.parametrize("qclass", [0, 2, 3, 4, 254, 255, 65535])
def test_other_classes_are_refused(qclass: int) -> None:
    assert objection(parsed(question(*WWW, qclass=qclass))) is Rcode.REFUSED


@pytest.mark.parametrize("qtype", [0, 41, 128, 249, 250, 251, 252, 253, 254, 255])
def test_questions_for_everything_and_for_zones_are_refused(qtype: int) -> None:
    assert objection(parsed(question(*WWW, qtype=qtype))) is Rcode.REFUSED


@pytest.mark.parametrize("qtype", [1, 28, 2, 5, 6, 10, 12, 15, 16, 33, 64, 65, 99, 257, 65280])
def test_questions_for_records_are_taken(qtype: int) -> None:
    assert objection(parsed(question(*WWW, qtype=qtype))) is None


def test_another_version_of_edns_is_told_ours() -> None:
    later = parsed(WITH_OPT + opt(ttl=0x00010000))
    assert objection(later) is Rcode.BADVERS
    (answered,) = DNSRecord.parse(build(later, Answer(Rcode.BADVERS), 512)).ar
    assert (answered.edns_rcode, answered.edns_ver) == (1, 0)


# What is answered


def test_an_answer_repeats_the_question_in_its_own_case() -> None:
    packet = question(b"wWw", b"eXAMple", b"test")
    answer = build(parsed(packet), Answer(addresses=("198.18.1.1",), ttl=10), 512)
    assert answer[12 : len(packet)] == packet[12:]
    (record,) = DNSRecord.parse(answer).rr
    assert (b".".join(record.rname.label), record.ttl, str(record.rdata)) == (b"wWw.eXAMple.test", 10, "198.18.1.1")
    assert answer[:4] == b"\x12\x34\x81\x80"


@pytest.mark.parametrize("labels", [(b"a.b", b"\0"), (b"\xff" * 63,), (b"A", b"a", b"A"), ()])
def test_whatever_stands_in_the_question_is_repeated_byte_by_byte(labels: tuple[bytes, ...]) -> None:
    packet = question(*labels)
    assert build(parsed(packet), NODATA, 512) == header(0x1234, 0x8180) + packet[12:]


def test_an_ipv6_address_is_an_aaaa_record() -> None:
    answer = read(build(parsed(question(*WWW, qtype=28)), Answer(addresses=("fd00::1",), ttl=1), 512))
    assert [(rr.rtype, str(rr.rdata)) for rr in answer.message.rr] == [(QTYPE.AAAA, "fd00::1")]


def test_only_a_client_with_edns_gets_an_opt_record() -> None:
    assert DNSRecord.parse(build(parsed(PLAIN), refusal(Reason.DENIED, "x", "p"), 512)).ar == []
    (answered,) = DNSRecord.parse(build(parsed(WITH_OPT + opt(4096, 0x8000)), NODATA, 512)).ar
    assert (answered.rtype, answered.edns_len, answered.edns_do) == (QTYPE.OPT, 1232, 1)


@pytest.mark.parametrize("reason", [reason for reason in Reason if TABLE[reason].ede is not None])
def test_a_refusal_says_its_reason_in_words(reason: Reason) -> None:
    answer = read(build(parsed(query("evil.test")), refusal(reason, "evil.test", "p"), 1232))
    row = TABLE[reason]
    assert (answer.rcode, answer.error) == (row.rcode, row.ede)
    assert answer.words == row.sentence.format(target="evil.test", persona="p")


@pytest.mark.parametrize(
    ("edns", "udp", "room"),
    [
        (None, True, 512),
        (None, False, 65535),
        (Edns(0, 0, False), True, 512),
        (Edns(600, 0, False), True, 600),
        (Edns(65535, 0, False), True, 1232),
        (Edns(512, 0, False), False, 65535),
    ],
)
def test_a_datagram_has_the_room_that_the_client_and_the_path_have(edns: Edns | None, udp: bool, room: int) -> None:
    assert parsed(PLAIN)._replace(edns=edns).room(udp) == room


MANY = tuple(f"198.18.1.{n}" for n in range(1, 61))


def test_an_answer_that_is_too_large_is_cut_and_says_so() -> None:
    asked = parsed(PLAIN)
    cut = build(asked, Answer(addresses=MANY, ttl=10), 512)
    assert len(cut) <= 512
    assert (read(cut).addresses, read(cut).truncated, read(cut).rcode) == ([], True, "NOERROR")
    whole = read(build(asked, Answer(addresses=MANY, ttl=10), 65535))
    assert (len(whole.addresses), whole.truncated) == (60, False)


def test_an_answer_that_just_fits_is_whole() -> None:
    whole = build(parsed(PLAIN), Answer(addresses=MANY), 65535)
    assert build(parsed(PLAIN), Answer(addresses=MANY), len(whole)) == whole
    assert read(build(parsed(PLAIN), Answer(addresses=MANY), len(whole) - 1)).truncated


def test_words_that_do_not_fit_are_left_out_before_anything_else() -> None:
    name = ".".join(["a" * 60] * 4)
    answer = read(build(parsed(query(name)), refusal(Reason.DENIED, name, "p"), 512))
    assert (answer.rcode, answer.error, answer.words, answer.truncated) == ("REFUSED", 15, "", False)


# Fuzz: packets that know how a query is framed


LABELS = st.one_of(
    st.sampled_from([b"www", b"_tcp", b"xn--a", b"1", b"a.b", b"\0", b"-"]), st.binary(min_size=1, max_size=64)
)
SIZES = st.one_of(st.none(), st.integers(0, 255))


@st.composite
def names(draw: st.DrawFn) -> bytes:
    """Labels with lengths that are mostly true, then an end, a pointer or nothing."""
    parts = []
    for label in draw(st.lists(LABELS, max_size=6)):
        lie = draw(SIZES) if draw(st.integers(0, 19)) == 0 else None
        parts.append(bytes([len(label) if lie is None else lie]) + label)
    return b"".join(parts) + draw(st.sampled_from([b"\0", b"\0", b"\0", b"\xc0\x0c", b"\xff", b""]))


@st.composite
def opts(draw: st.DrawFn) -> bytes:
    data = b"".join(
        struct.pack("!HH", code, size if size is not None else len(text)) + text
        for code, size, text in draw(
            st.lists(st.tuples(st.integers(0, 65535), SIZES, st.binary(max_size=9)), max_size=3)
        )
    )
    length = draw(st.one_of(st.just(len(data)), st.just(len(data)), st.integers(0, 65535)))
    kind = draw(st.sampled_from([41, 41, 41, 1, 250]))
    fixed = struct.pack("!HHIH", kind, draw(st.integers(0, 65535)), draw(st.integers(0, 2**32 - 1)), length)
    return draw(st.sampled_from([b"\0", b"\0", b"\0", b"\1a\0", b"\xc0\x0c"])) + fixed + data


@st.composite
def packets(draw: st.DrawFn) -> bytes:
    tail = b"".join(draw(st.lists(opts(), max_size=2)))
    counts = draw(
        st.sampled_from([(1, 0, 0, bool(tail)), (1, 0, 0, bool(tail)), (1, 0, 0, 0), (0, 0, 0, 0), (2, 1, 1, 2)])
    )
    flags = draw(st.one_of(st.sampled_from([0x0100, 0x0120, 0]), st.integers(0, 65535)))
    kind = struct.pack("!HH", draw(st.sampled_from([1, 28, 16, 65, 255, 0])), draw(st.sampled_from([1, 1, 1, 3, 255])))
    packet = header(draw(st.integers(0, 65535)), flags, *counts) + draw(names()) + kind + tail
    return packet[: draw(st.one_of(st.none(), st.integers(0, len(packet))))] + draw(
        st.sampled_from([b"", b"", b"", b"x"])
    )


def outcome(packet: bytes) -> Query | Rcode | None:
    try:
        return parse(packet)
    except Rejected as rejected:
        return rejected.rcode


@FUZZ
@given(packets())
def test_no_packet_raises_and_what_is_read_is_what_was_sent(packet: bytes) -> None:
    found = outcome(packet)
    if isinstance(found, Rcode):
        assert read(rejection(packet, found)).rcode in ("FORMERR", "NOTIMP")
        return
    if found is None:
        assert len(packet) < 12 or packet[2] & 0x80
        return
    answer = build(found, refusal(Reason.NOT_LISTED, "x", "p"), found.room(udp=True))
    asked = packet[12 : 12 + len(wire(*found.labels)) + 4]
    assert wire(*found.labels) + struct.pack("!HH", found.type, found.qclass) == asked
    assert answer[:2] == packet[:2]
    assert answer[12 : 12 + len(asked)] == asked
    assert len(answer) <= 512


@FUZZ
@given(st.lists(LABELS.filter(lambda label: len(label) < 64), max_size=4))
def test_a_subject_is_a_canonical_name_made_of_the_labels_that_were_sent(labels: list[bytes]) -> None:
    try:
        host, _ = subject(parsed(question(*labels)))
    except Malformed:
        return
    assert parse_host(host) == host
    assert as_address(host) is None
    assert host.encode().split(b".") == [label.lower() for label in labels][-len(host.split(".")) :]
