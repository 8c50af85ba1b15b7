"""A rule: one host or everything below one, the ports it grants, and what is expected there."""

from __future__ import annotations

from typing import NamedTuple

from egress.model import Host, Source, Target
from egress.names import Malformed, as_address, parse_port, split_authority

DEFAULT_PORTS = frozenset({443, 80})
TLS_PORT = 443
NOWHERE = Source("", 0)


class Pattern(NamedTuple):
    """`example.com`: that host alone. `*.example.com`: every name below it, never itself."""

    host: Host
    below: bool = False

    def __str__(self) -> str:
        return f"*.{self.host}" if self.below else self.host

    def matches(self, host: Host) -> bool:
        return host.endswith(f".{self.host}") if self.below else host == self.host


class Secret(NamedTuple):
    """A credential put in on the host side; the sandbox sees a placeholder. Names of headers are in lower case."""

    header: str
    format: str = "{}"
    env: str | None = None  # holds the placeholder inside, and outside the value, unless a file or command has it
    file: str | None = None
    command: tuple[str, ...] = ()
    optional: bool = False
    allow_other: bool = False
    user: str | None = None  # that may come with it in Basic, besides those that stand for nobody

    @property
    def placeholder(self) -> str:
        return f"egress-placeholder-{self.env or self.header}"

    @property
    def source(self) -> str:
        """Where the value comes from, in words."""
        if self.command:
            return f"the command {' '.join(self.command)}"
        return f"the file {self.file}" if self.file else f"${self.env}"


class Headers(NamedTuple):
    """Fields that a request must have, with a value or with any (None), and those that it must not."""

    require: tuple[tuple[str, str | None], ...] = ()
    forbid: tuple[str, ...] = ()


class UploadLimit(NamedTuple):
    """Bytes of body that one request may send, and all of a session by the same rule."""

    request: int | None = None
    session: int | None = None


class Requests(NamedTuple):
    """What a rule says about single requests. Any of it needs inspection."""

    methods: frozenset[str] = frozenset()
    paths: tuple[str, ...] = ()
    headers: Headers | None = None
    upload_limit: UploadLimit | None = None
    secret: Secret | None = None
    inspect: bool = False

    @property
    def only_brings_a_secret(self) -> bool:
        """It says nothing about which requests, and leaves that to the other rules of its host."""
        return self.secret is not None and self == Requests(secret=self.secret)


class Rule(NamedTuple):
    pattern: Pattern
    ports: frozenset[int] = DEFAULT_PORTS
    tls: bool | None = None
    private: bool = False
    requests: Requests | None = None
    source: Source = NOWHERE
    all_ports: bool = False  # no port was written: an allow list reads `ports`, a deny list every port

    def __str__(self) -> str:
        return f"{self.source} {self.pattern}"

    @property
    def needs_inspection(self) -> bool:
        return self.requests is not None

    def expects_tls(self, port: int) -> bool:
        return port == TLS_PORT if self.tls is None else self.tls


def parse_pattern(text: str) -> tuple[Pattern, int | None]:
    """`host`, `*.host`, `host:port`, `*.host:port`, `[v6]:port`; anything else says what to write."""
    _reject_what_people_try(text)
    below = text.startswith("*.")
    host, port = split_authority(text[2:] if below else text)
    if below and as_address(host):
        raise Malformed(f"{text!r}: an address has nothing below it; write {host}")
    return Pattern(host, below), None if port is None else parse_port(port)


def _reject_what_people_try(text: str) -> None:
    if text.split() != [text]:
        raise Malformed(f"{text!r}: a rule is a host without blanks, such as example.com")
    if "://" in text:
        host = text.split("://", 1)[1].split("/", 1)[0]
        raise Malformed(f"{text!r} is a URL; write only its host: {host or 'example.com'}")
    if "/" in text:
        host = text.split("/", 1)[0]
        raise Malformed(f"{text!r} has a path; write {host or 'example.com'}, or a mapping with `paths:`")
    if text == "*":
        raise Malformed("'*' would allow everything; list the hosts, such as example.com or *.example.com")
    if text.count(":") > 1 and "[" not in text:
        raise Malformed(f"{text!r}: an IPv6 address stands in brackets, as in [fd00::7] or [fd00::7]:443")
    if "*" in text.removeprefix("*."):
        raise Malformed(f"{text!r}: a star stands only in front of a whole name, as in *.example.com")


def parse_target(text: str, default_port: int = TLS_PORT) -> Target:
    """What a person types to ask about: `github.com`, `github.com:22` or a URL."""
    scheme, slashes, rest = text.partition("://")
    if slashes:
        default_port = {"http": 80, "ws": 80, "ssh": 22, "git": 9418, "ftp": 21}.get(scheme.lower(), default_port)
        text = rest.split("/", 1)[0].split("?", 1)[0].split("#", 1)[0].rpartition("@")[2]
    host, port = split_authority(text)
    return Target(host, default_port if port is None else parse_port(port))


def parse_rule(text: str, source: Source = NOWHERE) -> Rule:
    """A rule written as one word."""
    pattern, port = parse_pattern(text)
    ports = DEFAULT_PORTS if port is None else frozenset({port})
    return Rule(pattern, ports, source=source, all_ports=port is None)
