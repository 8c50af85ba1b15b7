"""DER as it is written: its lengths, numbers, names of things, times, and the text that carries it."""

from __future__ import annotations

import calendar
import ssl

import pytest
from hypothesis import given
from hypothesis import strategies as st

from egress.inspection import der


@pytest.mark.parametrize(
    ("size", "head"),
    [
        (0, "0400"),
        (127, "047f"),
        (128, "048180"),
        (255, "0481ff"),
        (256, "04820100"),
        (65536, "0483010000"),
    ],
)
def test_a_length_takes_as_few_bytes_as_it_can(size: int, head: str) -> None:
    assert der.octets(bytes(size)) == bytes.fromhex(head) + bytes(size)


@pytest.mark.parametrize(
    ("value", "written"),
    [(0, "020100"), (127, "02017f"), (128, "02020080"), (255, "020200ff"), (256, "02020100"), (32768, "0203008000")],
)
def test_an_integer_is_never_negative_by_accident(value: int, written: str) -> None:
    assert der.integer(value).hex() == written


@given(st.integers(min_value=0, max_value=1 << 200))
def test_an_integer_reads_back_and_has_no_byte_too_many(value: int) -> None:
    content = der.integer(value)[2:]
    assert int.from_bytes(content, signed=True) == value
    assert len(content) == 1 or content[0] != 0 or content[1] >= 0x80


@pytest.mark.parametrize(
    ("dotted", "written"),
    [
        ("2.5.29.19", "0603551d13"),
        ("1.2.840.10045.2.1", "06072a8648ce3d0201"),
        ("1.3.6.1.5.5.7.3.1", "06082b06010505070301"),
    ],
)
def test_an_object_identifier_is_written_in_base_128(dotted: str, written: str) -> None:
    assert der.oid(dotted).hex() == written


@pytest.mark.parametrize(
    ("day", "written"),
    [
        ((2026, 11, 18, 6, 0, 0), b"\x17\x0d261118060000Z"),
        ((2049, 12, 31, 23, 59, 59), b"\x17\x0d491231235959Z"),
        ((2050, 1, 1, 0, 0, 0), b"\x18\x0f20500101000000Z"),
    ],
)
def test_years_from_2050_on_are_written_in_full(day: tuple[int, ...], written: bytes) -> None:
    assert der.moment(calendar.timegm(day)) == written


def test_tags_of_a_context_tell_plain_values_from_those_with_parts() -> None:
    assert der.implicit(2, b"a.test") == b"\x82\x06a.test"
    assert der.explicit(3, der.boolean(True), der.boolean(False)) == b"\xa3\x06\x01\x01\xff\x01\x01\x00"
    assert der.sequence(der.set_of(der.utf8("é")), der.bits(b"\x80", unused=7)) == bytes.fromhex(
        "300a31040c02c3a903020780"
    )


@given(st.binary(min_size=1, max_size=300))
def test_pem_carries_all_bytes_in_lines_of_64(data: bytes) -> None:
    text = der.pem("CERTIFICATE", data).decode()
    assert ssl.PEM_cert_to_DER_cert(text) == data
    assert max(map(len, text.splitlines()[1:-1])) <= 64
