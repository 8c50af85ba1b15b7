"""Placeholders for values: which spelling of a token is kept, which credential is refused, and what is masked."""

from __future__ import annotations

from base64 import b64encode

import pytest

from egress.credentials import NOTHING_TO_EXCHANGE, Exchange, Known, exchange, has_placeholder
from egress.refusals import Reason, Refused
from egress.rules import Secret

REAL = "gh-real-0123456789"
TOKEN = Known(Secret("authorization", "Bearer {}", env="GH_TOKEN"), REAL)
KEY = Known(Secret("x-api-key", env="API_KEY"), "key-real-0123")
P = "egress-placeholder-GH_TOKEN"
KEY_P = "egress-placeholder-API_KEY"


def basic(text: str) -> str:
    return "Basic " + b64encode(text.encode()).decode()


def put(known: Known, value: str) -> str:
    ((name, written),) = exchange([known], [(known.secret.header, value)]).put
    assert name == known.secret.header
    return written


def refusal(known: list[Known], *fields: tuple[str, str]) -> Refused:
    with pytest.raises(Refused) as caught:
        exchange(known, fields)
    assert caught.value.reason is Reason.CREDENTIAL_MISMATCH
    return caught.value


def test_without_secrets_any_credential_goes_as_it_stands() -> None:
    assert exchange([], [("authorization", "Bearer mine")]) == NOTHING_TO_EXCHANGE


def test_an_absent_header_stays_absent_but_its_value_is_masked_all_the_same() -> None:
    assert exchange([TOKEN], [("accept", "*/*")]) == Exchange((), (REAL.encode(),))


@pytest.mark.parametrize("scheme", ["Bearer {}", "bearer {}", "token {}", "Token {}"])
def test_the_scheme_that_the_client_chose_is_kept(scheme: str) -> None:
    assert put(TOKEN, scheme.format(P)) == scheme.format(REAL)


def test_a_password_is_put_into_basic_and_the_user_is_kept() -> None:
    assert put(TOKEN, basic(f"git:{P}")) == basic(f"git:{REAL}")


@pytest.mark.parametrize("password", ["", "x-oauth-basic"])
def test_a_token_in_the_place_of_the_user_is_put_in_there(password: str) -> None:
    assert put(TOKEN, basic(f"{P}:{password}")) == basic(f"{REAL}:{password}")


def test_a_token_as_the_user_beside_a_password_of_its_own_is_refused() -> None:
    refusal([TOKEN], ("authorization", basic(f"{P}:stolen")))


@pytest.mark.parametrize("value", ["Basic !!!", "Basic /w==", "Basic ", "Bearer other", f"Bearer  {P}", f"{P}x", ""])
def test_any_other_value_in_the_header_of_a_secret_is_refused(value: str) -> None:
    assert refusal([TOKEN], ("authorization", value)).detail == "in its authorization header"


def test_a_format_of_its_own_is_the_only_one_outside_authorization() -> None:
    known = Known(Secret("x-api-key", "key={}", env="API_KEY"), "real")
    assert put(known, f"key={KEY_P}") == "key=real"
    refusal([known], ("x-api-key", f"Bearer {KEY_P}"))
    refusal([known], ("x-api-key", KEY_P))


@pytest.mark.parametrize("name", ["x-api-key", "private-token", "x-goog-api-key", "x-auth-token"])
def test_a_credential_in_another_usual_header_is_refused(name: str) -> None:
    assert name in refusal([TOKEN], ("authorization", f"Bearer {P}"), (name, "stolen")).detail


@pytest.mark.parametrize("name", ["x_api_key", "x-api_key", "private_token"])
def test_an_underscore_is_no_way_around_the_header(name: str) -> None:
    refusal([KEY], (name, KEY_P))


def test_the_placeholder_of_one_header_is_worth_nothing_in_another() -> None:
    refusal([TOKEN, KEY], ("x-api-key", P))


def test_two_headers_of_one_name_are_refused_even_if_both_are_placeholders() -> None:
    twice = ("authorization", f"Bearer {P}")
    assert refusal([TOKEN], twice, twice).detail == "it has more than one authorization header"


def test_where_other_credentials_may_pass_they_go_unchanged_and_placeholders_are_still_filled() -> None:
    lenient = Known(TOKEN.secret._replace(allow_other=True), REAL)
    assert exchange([lenient], [("authorization", "Bearer mine")]).put == ()
    assert put(lenient, f"Bearer {P}") == f"Bearer {REAL}"


def test_two_secrets_of_a_host_are_put_into_their_own_headers() -> None:
    fields = [("x-api-key", KEY_P), ("accept", P), ("authorization", f"Bearer {P}")]
    assert exchange([TOKEN, KEY], fields).put == (("x-api-key", KEY.value), ("authorization", f"Bearer {REAL}"))


def test_of_two_secrets_for_one_header_the_placeholder_says_which() -> None:
    other = Known(Secret("authorization", env="OTHER"), "other-real")
    assert exchange([TOKEN, other], [("authorization", "egress-placeholder-OTHER")]).put == (
        ("authorization", "other-real"),
    )


def test_what_was_sent_in_base64_is_masked_in_base64_too_and_the_longest_first() -> None:
    value = basic(f"git:{REAL}")
    masks = exchange([TOKEN], [("authorization", basic(f"git:{P}"))]).masks
    assert masks == (value.removeprefix("Basic ").encode(), REAL.encode())


def test_a_value_too_short_to_be_told_from_other_text_is_put_in_and_not_masked() -> None:
    short = Known(KEY.secret, "abc")
    assert exchange([short], [("x-api-key", KEY_P)]) == Exchange((("x-api-key", "abc"),), ())


def test_a_placeholder_is_found_only_where_it_would_be_filled() -> None:
    assert has_placeholder([TOKEN], [("accept", "*/*"), ("authorization", f"token {P}")])
    assert not has_placeholder([TOKEN], [("accept", P), ("authorization", "Bearer other")])


def test_no_value_is_in_a_repr() -> None:
    shown = repr(TOKEN) + repr(exchange([TOKEN], [("authorization", f"Bearer {P}")]))
    assert "authorization" in shown
    assert REAL not in shown
