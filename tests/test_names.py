from __future__ import annotations

import string

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from egress.model import Target
from egress.names import Malformed, as_address, parse_authority, parse_host, parse_port, split_authority

LDH = string.ascii_letters + string.digits + "-"
LABELS = st.text(LDH, min_size=1, max_size=63).filter(lambda label: label[0] != "-" and label[-1] != "-")
NAMES = st.lists(LABELS.filter(lambda label: not label.lower().startswith("xn--")), min_size=1, max_size=5).map(
    ".".join
)


def canonical(text: str) -> str | None:
    try:
        return parse_host(text)
    except Malformed:
        return None


@pytest.mark.parametrize(
    ("text", "host"),
    [
        ("allowed.test", "allowed.test"),
        ("ALLOWED.test", "allowed.test"),
        ("aLLoWeD.TEST.", "allowed.test"),
        ("localhost", "localhost"),
        ("a", "a"),
        ("1a.test", "1a.test"),
        ("3com.com", "3com.com"),
        ("a--b.test", "a--b.test"),
        ("r3---sn-x.test", "r3---sn-x.test"),
        ("x" * 63 + ".test", "x" * 63 + ".test"),
        (".".join(["x" * 49] * 5) + ".tst", ".".join(["x" * 49] * 5) + ".tst"),  # 253 characters
        (".".join(["x" * 49] * 5) + ".tst.", ".".join(["x" * 49] * 5) + ".tst"),
        ("xn--mnchen-3ya.test", "xn--mnchen-3ya.test"),
        ("XN--MNCHEN-3YA.test", "xn--mnchen-3ya.test"),
        ("127.0.0.1", "127.0.0.1"),
        ("255.255.255.255", "255.255.255.255"),
        ("::1", "::1"),
        ("::", "::"),
        ("2001:DB8:0:0::1", "2001:db8::1"),
        ("0:0:0:0:0:0:0:1", "::1"),
    ],
)
def test_a_host_has_one_spelling(text: str, host: str) -> None:
    assert parse_host(text) == host


def test_a_trailing_dot_is_dropped_once() -> None:
    assert parse_host("allowed.test.") == "allowed.test"
    for text in ("allowed.test..", ".", "..", "allowed.test.\n", "127.0.0.1.", "::1."):
        assert canonical(text) is None


NOT_A_NAME = {
    "empty": ["", ".", "..", ".test", "a..test", "a.test..", "..a.test"],
    "nul": ["evil.test\0.allowed.test", "allowed.test\0", "\0", "a\0b"],
    "escaped": ["evil.test%00.allowed.test", "allowed%2etest", "%61llowed.test", "a%"],
    "brackets": ["[allowed.test]", "[[allowed.test]]", "[127.0.0.1]", "[::1]", "allowed.test]", "(allowed.test)"],
    "other dots": ["allowed。test", "allowed．test", "allowed｡test", "allowed·test", "allowed․test"],
    "full width": ["ａllowed.test", "１２７.0.0.1", "127.0.0.１", "127．0．0．1"],
    "invisible": ["allo\u200bwed.test", "allo\u00adwed.test", "allowed.test\u2060", "\ufeffallowed.test"],
    "mapped by unicode": ["℀.test", "ℂ.test", "\u212aelvin.test", "ſ.test", "ß.test", "ﬁ.test", "①.test", "İ.test"],
    "any non-ascii": ["münchen.test", "пример.test", "例え.test", "a\x80.test", "a\xff.test", "a\ud800.test"],
    "label length": ["x" * 64 + ".test", "a." + "x" * 64, "x" * 1000],
    "name length": [".".join(["x" * 49] * 5) + ".tests", "a." * 127 + "ab", "a" * 100_000],
    "hyphens": ["-a.test", "a-.test", "a.-test", "a.test-", "-", "--"],
    "other characters": ["a_b.test", "_dmarc.test", "a b.test", " a.test", "a.test ", "a*b.test", "*.test", "a'b.test"],
    "control": ["a\rb.test", "a\nb.test", "a.test\n", "a.test\r\n", "a\tb.test", "a\x7fb.test", "a\x0b.test"],
    "escape": ["\x1b[0m.test", "a.test\x1b"],
    "userinfo": ["user@host.test", "a@b.test:80"],
    "authority": ["a\\b.test", "a#b.test", "a?b.test", "a;b.test", "a,b.test", "a/b.test"],
    "numeric": ["127.1", "0177.0.0.1", "0x7f.1", "0x7f.0.0.1", "2130706433", "0", "0x7f000001", "127.0.0.0x1", "1.2.3"],
    "numeric last label": ["a.1", "allowed.test.1", "a.0x", "a.0x1f", "1.2.3.4.5", "256.0.0.1", "1.2.3.256", "a.01"],
    "leading zeros": ["127.0.0.01", "010.0.0.1", "127.000.0.1"],
    "zones": ["fe80::1%eth0", "fe80::1%25eth0", "::1%lo", "::1%1", "fe80::1%"],
    "broken v6": [":", ":::", "1::2::3", "12345::", "g::1", "1:2:3:4:5:6:7", "1:2:3:4:5:6:7:8:9", "::1 "],
    "other colons": ["::127.1", "a.test:", "a.test:443", ":a.test"],
    "broken a-labels": ["xn--a.test", "xn--", "xn--.test", "xn---.test", "xn--0.test", "xn--zzzzzzzzzzzzzzz.test"],
    "a-labels of ascii": ["xn--abc-.test", "xn--allowed-.test", "xn--a-.test"],
    "a-labels of what no name may have": ["xn--n3h.test", "xn--ls8h.test", "xn--xn--a--gua.test"],
}  # fmt: skip


@pytest.mark.parametrize("text", [text for texts in NOT_A_NAME.values() for text in texts], ids=ascii)
def test_what_is_not_a_host_is_refused_and_never_repaired(text: str) -> None:
    with pytest.raises(Malformed) as caught:
        parse_host(text)
    assert str(caught.value).isprintable(), "the message is one line that cannot forge another"
    assert len(str(caught.value)) < 2000


@given(st.text())
def test_a_host_parses_to_itself_or_not_at_all(text: str) -> None:
    host = canonical(text)
    assert host is None or parse_host(host) == host


@given(NAMES)
def test_every_well_formed_name_is_its_own_lower_case(name: str) -> None:
    assume(len(name) <= 253 and canonical(f"x.{name.rpartition('.')[2]}") is not None)
    assert parse_host(name) == parse_host(name + ".") == parse_host(name.upper()) == name.lower()


@given(st.text(), st.characters(min_codepoint=0x80), st.text())
def test_a_text_with_one_character_outside_ascii_never_parses(before: str, odd: str, after: str) -> None:
    assert canonical(before + odd + after) is None


@given(NAMES, st.integers(min_value=0), st.characters(max_codepoint=0x7F).filter(lambda c: c not in LDH + "."))
def test_a_name_with_one_character_outside_ldh_never_parses(name: str, at: int, odd: str) -> None:
    at %= len(name) + 1
    parsed = canonical(name[:at] + odd + name[at:])
    assert parsed is None or (odd == ":" and as_address(parsed))


@given(st.from_regex(r"xn--[a-z0-9-]{0,20}", fullmatch=True))
def test_an_a_label_that_is_accepted_stands_for_a_name_outside_ascii(label: str) -> None:
    import idna

    if canonical(f"{label}.test"):
        assert not idna.decode(label).isascii()
        assert idna.encode(idna.decode(label)) == label.encode()


@given(st.ip_addresses())
def test_every_address_parses_to_itself(address: object) -> None:
    host = parse_host(str(address))
    assert as_address(host) == address


@given(st.from_regex(r"(0x[0-9a-f]{0,8}|[0-9]{1,12})(\.(0x[0-9a-f]{0,8}|[0-9]{1,12})){0,4}", fullmatch=True))
def test_what_looks_like_numbers_is_a_dotted_quad_or_refused(text: str) -> None:
    host = canonical(text)
    assert host is None or (host == text and host.count(".") == 3 and as_address(host))


@given(NAMES)
def test_a_name_is_no_address(name: str) -> None:
    host = canonical(name)
    if host and not host.replace(".", "").isdigit():
        assert as_address(parse_host(host)) is None


@pytest.mark.parametrize("text", ["1", "80", "443", "65535", "10000"])
def test_a_port_is_a_plain_decimal(text: str) -> None:
    assert parse_port(text) == int(text)


BAD_PORTS = ["0", "65536", "99999", "100000", "+443", "-1", "4_43", "４４３", "٤٤٣", " 443", "443 ", "443\n", "",
             "0443", "0x1bb", "1e3", "443.0", "①", "²", "4\u200b43", "443:443", "https", "\0", "1" * 5000]  # fmt: skip


@pytest.mark.parametrize("text", BAD_PORTS, ids=ascii)
def test_what_only_int_would_take_for_a_port_is_refused(text: str) -> None:
    with pytest.raises(Malformed, match="not a number from 1 to 65535"):
        parse_port(text)


@given(st.text())
def test_a_port_spells_its_number_one_way(text: str) -> None:
    try:
        port = parse_port(text)
    except Malformed:
        return
    assert str(port) == text
    assert 1 <= port <= 65535


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("allowed.test:443", Target("allowed.test", 443)),
        ("ALLOWED.test.:443", Target("allowed.test", 443)),
        ("127.0.0.1:80", Target("127.0.0.1", 80)),
        ("[::1]:80", Target("::1", 80)),
        ("[2001:DB8::1]:65535", Target("2001:db8::1", 65535)),
    ],
)
def test_an_authority_is_a_host_and_a_port(text: str, target: Target) -> None:
    assert parse_authority(text) == target
    assert parse_authority(str(target)) == target


@pytest.mark.parametrize("text", ["allowed.test", "[::1]", "127.0.0.1"])
def test_a_default_port_is_used_only_where_it_is_given(text: str) -> None:
    assert parse_authority(text, 443).port == 443
    with pytest.raises(Malformed, match="names no port"):
        parse_authority(text)


BAD_AUTHORITIES = [
    "", ":", ":443", "a.test:", "a.test:0", "a.test:443:443", "a.test::443", "a.test:+443", "a.test:４４３",
    "a.test: 443",
    "user@a.test:443", "user:password@a.test:443", "@a.test:443", "a.test@:443", "a.test:443@evil.test:443",
    "[a.test]:443", "[[a.test]]:443", "[127.0.0.1]:443", "[::1]443", "[::1]:", "[::1", "::1]:443", "::1:443", "[]:443",
    "[::1%eth0]:443", "[::1]]:443", "[[::1]]:443", "[::1]x:443", "[::1] :443",
    "a.test:443/", "a.test/:443", "a.test:443?x", "a.test#:443", "http://a.test:443", "a.test\\:443", "a.test;:443",
    "a%2etest:443", "a.test%00:443", "a.test\0:443", " a.test:443", "a.test:443 ", "a.test:443\r\n",
    "a.test,b.test:443", "127.1:443", "2130706433:443", "0x7f.1:443", "1.2.3.4.5:443",
]  # fmt: skip


@pytest.mark.parametrize("text", BAD_AUTHORITIES, ids=ascii)
def test_an_authority_with_anything_else_in_it_is_refused(text: str) -> None:
    with pytest.raises(Malformed) as caught:
        parse_authority(text)
    assert str(caught.value).isprintable()


@given(st.text())
def test_an_authority_parses_to_a_target_that_prints_as_itself_or_not_at_all(text: str) -> None:
    try:
        target = parse_authority(text, 443)
    except Malformed:
        return
    assert parse_authority(str(target)) == target


def test_splitting_keeps_the_port_as_it_was_written() -> None:
    assert split_authority("a.test:0443") == ("a.test", "0443")
    assert split_authority("a.test:") == ("a.test", "")
    assert split_authority("a.test") == ("a.test", None)
    assert split_authority("[::1]") == ("::1", None)
