"""Placeholders for values: which spelling of a token is kept, which credential is refused, and what is masked."""

from __future__ import annotations

from base64 import b64encode, urlsafe_b64encode
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from egress.credentials import NOBODY, NOTHING_TO_EXCHANGE, Exchange, Known, exchange, has_placeholder
from egress.refusals import Reason, Refused
from egress.rules import Secret
from egress.wire.masking import Masker

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
    done = exchange([TOKEN], [("accept", "*/*")])
    assert done.put == ()
    assert REAL.encode() in done.masks


@pytest.mark.parametrize("scheme", ["Bearer {}", "bearer {}", "token {}", "Token {}"])
def test_the_scheme_that_the_client_chose_is_kept(scheme: str) -> None:
    assert put(TOKEN, scheme.format(P)) == scheme.format(REAL)


def test_a_password_is_put_into_basic_and_the_user_is_kept() -> None:
    assert put(TOKEN, basic(f"git:{P}")) == basic(f"git:{REAL}")


@pytest.mark.parametrize("user", sorted(NOBODY))
def test_a_user_that_stands_for_nobody_may_come_with_the_password(user: str) -> None:
    assert put(TOKEN, basic(f"{user}:{P}")) == basic(f"{user}:{REAL}")


@pytest.mark.parametrize("user", ["sk_attacker_own_key", "alice", "X", "git ", "x-access-token\0", "Git"])
def test_any_other_user_is_somebody_and_refused(user: str) -> None:
    refusal([TOKEN], ("authorization", basic(f"{user}:{P}")))


def test_the_user_that_the_rule_names_may_come_with_the_password_and_no_other() -> None:
    known = Known(TOKEN.secret._replace(user="me@corp.example"), REAL)
    assert put(known, basic(f"me@corp.example:{P}")) == basic(f"me@corp.example:{REAL}")
    assert put(known, basic(f"git:{P}")) == basic(f"git:{REAL}")
    refusal([known], ("authorization", basic(f"you@corp.example:{P}")))


def test_where_other_credentials_may_pass_so_may_any_user() -> None:
    known = Known(TOKEN.secret._replace(allow_other=True), REAL)
    assert put(known, basic(f"alice:{P}")) == basic(f"alice:{REAL}")


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


FOR_CREDENTIALS = """
    x-api-key api-key apikey x-apikey x-goog-api-key dd-api-key dd-application-key x-rapidapi-key x-anthropic-api-key
    x-auth-token private-token job-token deploy-token x-access-token access-token x-amz-security-token x-api-token
    x-vault-token x-gitlab-token x-figma-token x-shopify-access-token x-subscription-token x-session-token
    x-user-token x-token token x-goog-iam-authorization-token anthropic-auth-token x-authtoken
    x-authorization x-serverless-authorization x-forwarded-authorization authentication x-auth x-registry-auth
    ocp-apim-subscription-key x-auth-key x-access-key x-master-key key x-key cf-access-client-secret x-auth-password
"""
FOR_OTHER_THINGS = """
    accept user-agent content-type anthropic-version anthropic-beta anthropic-dangerous-direct-browser-access x-app
    x-stainless-lang x-stainless-retry-count x-claude-code-session-id x-github-api-version graphql-features git-protocol
    npm-auth-type npm-command npm-session x-goog-api-client openai-organization openai-beta chatgpt-account-id
    idempotency-key x-idempotency-key sec-websocket-key surrogate-key x-amz-server-side-encryption-customer-key
    x-csrf-token x-xsrf-token x-csrftoken requestverificationtoken x-continuation-token page-token
    session_id x-max-tokens author authority cookie proxy-authorization access-control-request-headers
"""


@pytest.mark.parametrize("name", FOR_CREDENTIALS.split())
def test_a_credential_in_another_header_that_is_for_one_is_refused(name: str) -> None:
    assert name in refusal([TOKEN], ("authorization", f"Bearer {P}"), (name, "stolen")).detail
    refusal([TOKEN], (name.replace("-", "_"), "stolen"))


@pytest.mark.parametrize("name", FOR_OTHER_THINGS.split())
def test_a_header_that_is_for_something_else_passes(name: str) -> None:
    assert exchange([TOKEN], [(name, "x")]).put == ()


@pytest.mark.parametrize(
    "offered",
    [
        "realtime, openai-insecure-api-key.sk-attacker",
        "base64url.bearer.authorization.k8s.io.c3RvbGVu, v4.channel.k8s.io",
        "token, 0123456789abcdef",
        "Bearer, x",
        "chat, 0123456789abcdef0123456789abcdef01234567",
        "v1.access_token.x",
    ],
)
@pytest.mark.parametrize("name", ["sec-websocket-protocol", "sec_websocket_protocol"])
def test_a_subprotocol_that_carries_a_key_is_refused(name: str, offered: str) -> None:
    assert name in refusal([TOKEN], ("authorization", f"Bearer {P}"), (name, offered)).detail
    assert exchange([], [(name, offered)]) == NOTHING_TO_EXCHANGE


@pytest.mark.parametrize(
    "offered",
    ["graphql-transport-ws, graphql-ws, mqtt, wamp.2.json", "v12.stomp,v11.stomp", "realtime, openai-beta.realtime-v1",
     "SPDY/3.1+portforward.k8s.io", "json.reliable.webpubsub.azure.v1", "actioncable-v1-json, actioncable-unsupported"],
)  # fmt: skip
def test_a_subprotocol_that_is_one_passes(offered: str) -> None:
    assert exchange([TOKEN], [("sec-websocket-protocol", offered)]).put == ()


def test_a_secret_whose_header_has_an_underscore_is_put_in() -> None:
    known = Known(Secret("x_key", env="API_KEY"), "key-real-0123")
    assert put(known, KEY_P) == "key-real-0123"
    refusal([known], ("x-key", KEY_P))


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


def test_what_one_secret_lets_pass_is_for_its_own_header() -> None:
    lenient = Known(KEY.secret._replace(allow_other=True), KEY.value)
    assert exchange([TOKEN, lenient], [("x-api-key", "mine")]).put == ()
    refusal([TOKEN, lenient], ("authorization", "Bearer mine"))
    refusal([TOKEN, lenient], ("x-auth-token", "mine"))
    both = [Known(TOKEN.secret._replace(allow_other=True), REAL), lenient]
    assert exchange(both, [("authorization", "Bearer mine"), ("x-auth-token", "mine")]).put == ()


def test_of_two_secrets_for_one_header_either_may_let_others_pass() -> None:
    lenient = Known(Secret("authorization", env="OTHER", allow_other=True), "other-real")
    assert exchange([TOKEN, lenient], [("authorization", "Bearer mine")]).put == ()


def test_two_secrets_of_a_host_are_put_into_their_own_headers() -> None:
    fields = [("x-api-key", KEY_P), ("accept", P), ("authorization", f"Bearer {P}")]
    assert exchange([TOKEN, KEY], fields).put == (("x-api-key", KEY.value), ("authorization", f"Bearer {REAL}"))


def test_of_two_secrets_for_one_header_the_placeholder_says_which() -> None:
    other = Known(Secret("authorization", env="OTHER"), "other-real")
    assert exchange([TOKEN, other], [("authorization", "egress-placeholder-OTHER")]).put == (
        ("authorization", "other-real"),
    )


def test_what_was_sent_in_base64_is_masked_whole_and_the_longest_comes_first() -> None:
    value = basic(f"git:{REAL}")
    masks = exchange([TOKEN], [("authorization", basic(f"git:{P}"))]).masks
    assert masks[0] == value.removeprefix("Basic ").encode()
    assert list(masks) == sorted(masks, key=len, reverse=True)


AROUND = st.lists(st.integers(0, 32), max_size=9).map(bytes)
VALUES = st.lists(st.integers(33, 126), min_size=7, max_size=40, unique=True).map(bytes)


@given(AROUND, VALUES, AROUND, st.sampled_from([b64encode, urlsafe_b64encode]))
def test_a_value_in_base64_is_masked_whatever_stands_around_it(
    before: bytes, value: bytes, behind: bytes, encode: Callable[[bytes], bytes]
) -> None:
    """But for the first and the last character, which may be half of something else."""
    masks = exchange([Known(KEY.secret, value.decode())], []).masks
    masked = Masker(masks).whole(encode(before + value + behind))
    first, end = len(before) * 8 // 6, -(-(len(before) + len(value)) * 8 // 6)
    assert set(masked[first + 1 : end - 1]) == set(b"*")


def test_a_value_too_short_to_be_told_from_other_text_in_base64_is_masked_as_it_is_alone() -> None:
    assert exchange([Known(KEY.secret, "abcde")], []).masks == (b"abcde",)


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
