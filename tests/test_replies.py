"""What a client is told in the server's place, and how it is told in gRPC."""

from __future__ import annotations

import pytest

from egress.inspection import replies
from egress.inspection.replies import Reply, as_grpc


@pytest.mark.parametrize(("status", "code"), [(403, b"7"), (421, b"7"), (413, b"8"), (503, b"14"), (418, b"13")])
def test_a_grpc_status_says_what_the_http_status_says(status: int, code: bytes) -> None:
    assert dict(as_grpc(Reply(status, (), b"")).fields)[b"grpc-status"] == code


def test_the_words_and_the_reason_stay_and_there_is_no_body() -> None:
    told = as_grpc(replies.UPLOAD_LIMIT)
    fields = dict(told.fields)
    assert (told.status, told.body) == (200, b"")
    assert fields[b"content-type"] == b"application/grpc"
    assert fields[b"x-egress-reason"] == b"upload_limit"
    assert fields[b"grpc-message"] == (
        b"egress: blocked: the request sends more than its rule permits; egress: reason: upload_limit"
    )
    assert b"content-length" not in fields


def test_what_may_not_stand_in_a_header_is_escaped() -> None:
    fields = dict(as_grpc(Reply(403, (), "100% of caf\u00e9\x00\r\nnext".encode())).fields)
    assert fields[b"grpc-message"] == b"100%25 of caf%C3%A9%00; next"
