"""A command line as it may be kept: short, visible, and without the credentials that people write into them.

The words of another process are hostile text, and at times secret text. What looks like a credential becomes
`***`, and where in doubt it does: a value that is hidden for nothing costs less than a key in a log. Nothing
here can be complete: a password that stands alone, with no name before it, looks like any other word.

A pattern is tried at every place of the text, and none looks more than a few dozen characters ahead before it
is sure, so that no text takes long. A placeholder of our own is no secret, and stays.
"""

from __future__ import annotations

import re

LONGEST = 200
MOST_BYTES = 4096  # that are looked at
_MASK = "***"
_END = "\0"  # of a word; a word may have blanks in it

_NAME = (
    r"(?:token(?!s\b|iz)|secret|passw(?:or)?d|passphrase|passcode|pwd|credential|cookie|signature|auth(?!ors?\b)"
    r"|(?:api|access|private|account|shared|signing|session|license)[-_]?key|session[-_]?id"
    r"|(?<=[?&])(?:key|sig|code))[\w.-]{0,32}"
)
_QUOTED = r"""\\?"[^"\0]*|\\?'[^'\0]*"""
# Each has one named group: what stands before the credential, and is kept.
_PATTERNS = (
    # https://user:password@host and https://token@host
    r"(?P<scheme>[a-z][a-z0-9+.-]{0,15}://)[^\0\s/?#'\"]+(?=@)",
    # authorization: Bearer abc, up to the end of the word or quotation; and {"password": "abc"}
    rf"(?P<field>{_NAME}[\\\"']{{0,3}}[ \t]{{0,4}}:[ \t]{{0,4}})(?:{_QUOTED}|[^\0\"']+)",
    # token=abc, --api-key=abc, GH_TOKEN='abc', and ?key=abc&
    rf"(?P<setting>{_NAME}[\\\"']{{0,3}}=)(?:{_QUOTED}|[^\0\s&;\"']+)",
    # --password abc
    rf"(?P<option>(?<![\w-])--?[\w-]{{0,32}}?{_NAME}[\0\s]{{1,4}})(?:{_QUOTED}|[^\0\s\"'-][^\0\s\"']*)",
    # curl -u user:password
    r"(?P<user>(?<![^\0\s])(?:-u|--user|--proxy-user)[\0\s=]{0,4}[\"']?[^\0\s:\"']{1,64}:)[^\0\s\"']+",
    # Bearer abc, wherever it stands
    r"(?P<bearer>\bbearer[ \t]{1,4})[\w.~+/=-]{8,}",
    # tokens that say themselves what they are
    r"(?P<kind>\b(?:gh[a-z]_|github_pat_|glpat-|sk-|xox[a-z]-|npm_|pypi-|hf_|AKIA|ASIA|AIza|eyJ))[\w.-]{12,}",
)
_CREDENTIAL = re.compile("|".join(_PATTERNS), re.IGNORECASE)
_PLACEHOLDER = re.compile(r"""\\?["']?(?:(?:bearer|token)\s{1,4})?egress-placeholder-[\w-]{1,100}""", re.IGNORECASE)


def shown(cmdline: bytes) -> str:
    """The words of a command as the kernel has them, each ended by a NUL."""
    text = cmdline[:MOST_BYTES].decode("utf-8", "surrogateescape")
    if len(cmdline) >= MOST_BYTES:  # what would have given the last word away may be what was cut off
        text = text.rpartition(_END)[0]
    return fit(_CREDENTIAL.sub(_hide, text.rstrip(_END)).replace(_END, " "))


def fit(text: str) -> str:
    """As printable ASCII on one line, and no longer than what a record has room for."""
    return ascii(text[:LONGEST])[1:-1][:LONGEST]


def _hide(found: re.Match[str]) -> str:
    kept = found[found.lastgroup or 0]
    value = found[0][len(kept) :]
    if _PLACEHOLDER.fullmatch(value):
        return found[0]
    return kept + value[: len(value) - len(value.lstrip("\\\"'"))] + _MASK
