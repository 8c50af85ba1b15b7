"""What is masked is what replacing in the whole text would mask, however the text is cut."""

from __future__ import annotations

import re
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from egress.wire.masking import Inflated, Masker, masked

# few letters, so that secrets overlap each other, themselves and the borders of pieces
letters = st.text("ab", max_size=30).map(str.encode)
secrets = st.lists(st.text("ab", min_size=1, max_size=6).map(str.encode), max_size=4)


def whole(text: bytes, hidden: list[bytes]) -> bytes:
    """The definition: from the left, and the longest at a place."""
    if not hidden:
        return text
    pattern = b"|".join(re.escape(each) for each in sorted(hidden, key=len, reverse=True))
    return re.sub(pattern, lambda match: b"*" * len(match[0]), text)


def fed(masker: Masker, pieces: list[bytes]) -> bytes:
    return b"".join([*(masker.feed(piece) for piece in pieces if piece), masker.feed(b"")])


@given(secrets, st.lists(letters, max_size=8))
def test_any_cutting_gives_what_the_whole_would(hidden: list[bytes], pieces: list[bytes]) -> None:
    text = b"".join(pieces)
    assert fed(Masker(hidden), pieces) == whole(text, hidden)
    assert Masker(hidden).whole(text) == whole(text, hidden)
    assert len(fed(Masker(hidden), pieces)) == len(text)


@given(secrets, letters)
def test_byte_by_byte_too(hidden: list[bytes], text: bytes) -> None:
    assert fed(Masker(hidden), [text[i : i + 1] for i in range(len(text))]) == whole(text, hidden)


def test_only_what_may_start_a_secret_is_held_back() -> None:
    masker = Masker([b"secret"])
    assert masker.feed(b"data: one\n\nsec") == b"data: one\n\n"
    assert masker.feed(b"ond") == b"second"
    assert masker.feed(b"sec") == b""
    assert masker.feed(b"ret!") == b"******!"


def test_the_longest_secret_wins_although_a_shorter_one_was_whole_first() -> None:
    masker = Masker([b"key", b"key-of-keys"])
    assert masker.feed(b"key") == b""
    assert masker.feed(b"-of-keys") == b"*" * 11
    assert masker.feed(b"key-of") == b""
    assert masker.feed(b"") == b"***-of"


def test_an_empty_secret_hides_nothing() -> None:
    assert fed(Masker([b""]), [b"abc"]) == b"abc"


def test_fields_are_masked_in_their_values_and_in_their_names() -> None:
    assert masked([(b"a-key", b"a key")], Masker([b"key"])) == ((b"a-***", b"a ***"),)


def test_a_name_is_masked_in_any_case_and_a_value_in_its_own() -> None:
    fields = [(b"X-Sk-Live-1", b"sk-live-1"), (b"x-sk-live-1", b"Sk-Live-1")]
    assert masked(fields, Masker([b"Sk-Live-1"])) == ((b"X-*********", b"sk-live-1"), (b"x-*********", b"*********"))


def packed(text: bytes, wbits: int) -> bytes:
    packer = zlib.compressobj(wbits=wbits)
    return packer.compress(text) + packer.flush()


@pytest.mark.parametrize("wbits", [31, 15, -15])
@pytest.mark.parametrize("step", [2, 1000])
def test_gzip_and_both_kinds_of_deflate_are_read(wbits: int, step: int) -> None:
    text = bytes(range(256)) * 20
    data = packed(text, wbits)
    inflated = Inflated()
    assert b"".join(inflated.feed(data[i : i + step]) for i in range(0, len(data), step)) == text
    inflated.finish()


def test_members_of_gzip_follow_each_other() -> None:
    assert Inflated().feed(packed(b"one", 31) + packed(b"two", 31)) == b"onetwo"


def test_much_of_nothing_inflates_whole_up_to_a_measure() -> None:
    assert Inflated().feed(packed(bytes(1 << 20), 31)) == bytes(1 << 20)
    with pytest.raises(ValueError, match="inflates to more than"):
        Inflated().feed(packed(bytes(32 << 20), 31))


def test_what_is_not_compressed_or_cut_short_is_an_error() -> None:
    with pytest.raises(ValueError, match="not what its content-encoding says"):
        Inflated().feed(b"\xff\xff plain text")
    cut = Inflated()
    cut.feed(packed(b"text" * 100, 31)[:-4])
    with pytest.raises(ValueError, match="in the middle"):
        cut.finish()


def test_an_empty_compressed_body_is_no_error() -> None:
    Inflated().finish()
