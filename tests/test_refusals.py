from __future__ import annotations

import string

import pytest

from egress.refusals import TABLE, Reason, Refused

RCODES = {"NOERROR", "FORMERR", "SERVFAIL", "NXDOMAIN", "NOTIMP", "REFUSED"}
ALLOWED = {Reason.LISTED, Reason.OBSERVED, Reason.ANSWERED}


def test_every_reason_has_a_row_and_no_row_is_spare() -> None:
    assert set(TABLE) == set(Reason)


@pytest.mark.parametrize("reason", Reason)
def test_a_row_can_be_told_in_every_protocol(reason: Reason) -> None:
    row = TABLE[reason]
    assert 0 <= row.socks <= 8, "RFC 1928 knows replies 0 to 8"
    assert row.rcode in RCODES
    assert row.ede is None or 0 <= row.ede <= 30, "RFC 8914 and its registry"
    if reason in ALLOWED:
        assert (row.http, row.socks, row.rcode, row.ede) == (200, 0, "NOERROR", None)
    else:
        assert 400 <= row.http <= 599
        assert row.socks != 0
        assert row.rcode != "NOERROR"


@pytest.mark.parametrize("reason", Reason)
def test_a_sentence_is_one_plain_line_about_target_and_persona(reason: Reason) -> None:
    sentence = TABLE[reason].sentence
    fields = {name for _, name, _, _ in string.Formatter().parse(sentence) if name is not None}
    assert fields <= {"target", "persona"}
    told = sentence.format(target="evil.test:443", persona="reviewer")
    assert told.isascii()
    assert told.isprintable()
    assert not told.endswith(".")
    assert told[0] == told[0].lower()


@pytest.mark.parametrize("reason", Reason)
def test_a_reason_is_a_word_for_the_log(reason: Reason) -> None:
    assert reason.value == reason.name.lower()
    assert set(reason.value) <= set(string.ascii_lowercase + "_")


def test_the_reasons_that_the_audit_format_promises_are_there() -> None:
    promised = """listed not_listed denied port_not_listed malformed_host address_literal resolved_private
        metadata_address sni_mismatch no_sni not_tls host_mismatch method_not_listed path_not_listed limit"""
    assert set(promised.split()) <= set(Reason)


def test_a_refusal_carries_its_reason_and_what_was_asked() -> None:
    refused = Refused(Reason.NOT_LISTED, "a detail", "evil.test")
    assert (refused.reason, refused.detail, refused.asked) == (Reason.NOT_LISTED, "a detail", "evil.test")
    assert str(refused) == "a detail"
    assert str(Refused(Reason.NOT_LISTED)) == "not_listed"
