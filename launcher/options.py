"""What `egress-launch` was asked to do, as a value, and how its words are read."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from egress.record import TYPE_CHECKING, NamedTuple
from egress.surroundings import BACKENDS, FALLBACKS, Walls
from launcher.mounts import PlanError

if TYPE_CHECKING:
    from typing import Any, TypeVar

    T = TypeVar("T")

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


class Word(NamedTuple):
    """An option as it is written. Without a metavar it takes no value; `many` may be given again."""

    name: str
    metavar: str
    help: str
    many: bool = False
    default: str | None = None
    choices: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        return self.name[2:].replace("-", "_")

    @property
    def nothing(self) -> Any:
        """What it is where it was not given."""
        return () if self.many else self.default if self.metavar else False


NETWORK = (
    Word("--persona", "NAME", "whose rules apply (`egress policy show` lists them)"),
    Word("--policy", "FILE", "a further policy file, over all others", many=True),
    Word("--allow", "HOST[:PORT]", "one more rule for this run", many=True),
    Word("--publish", "PORT[:HOSTPORT]", "make a server inside reachable at 127.0.0.1 on the host", many=True),
    Word("--host-port", "PORT", "make a service on the host's loopback reachable at 127.0.0.1 inside", many=True),
    Word("--bridge", "HOW", "how the network gets out", default="handover", choices=("handover", "relay")),
    Word("--dns-server", "ADDR[:PORT]", "resolve there instead of by the system"),
    Word("--upstream", "URL|env", "reach the internet through another HTTP proxy"),
    Word("--upstream-ca", "FILE", "certificates that inspected upstreams may be signed by, too", many=True),
)
FILES = (
    Word("--project", "DIR", "the writable directory (default: this one)", default="."),
    Word("--rw", "PATH", "another writable path", many=True),
    Word("--ro", "PATH", "another readable path", many=True),
    Word("--hide", "PATH", "a path that is not to be seen", many=True),
    Word("--socket", "PATH", "a Unix socket of the host to let through", many=True),
    Word("--env", "NAME[=VALUE]", "a variable to pass in", many=True),
)
WALLS = (
    Word("--backend", "NAME", "what makes the sandbox (default: the persona's, else bwrap)", choices=BACKENDS),
    Word("--fallback", "HOW", "where that cannot be used: stop, or say so and be weaker", choices=FALLBACKS),
    Word("--image", "IMAGE", "what podman and docker run the command in"),
    Word("--rootfs", "DIR", "a directory that podman takes for an image"),
    Word("--seccomp", "default|debug|off|FILE", "system call filter", default="default"),
    Word("--memory", "SIZE", "such as 4G, for the whole sandbox"),
    Word("--cpus", "N", "such as 2 or 0.5"),
    Word("--pids", "N", "most processes and threads"),
    Word("--timeout", "SECONDS", "end it after that"),
)
SPEECH = (
    Word("--audit", "FILE", "default $XDG_STATE_HOME/egress/audit.jsonl"),
    Word("--quiet", "", "say nothing of what was blocked"),
    Word("--verbose", "", "say what is set up, and the counts at the end"),
    Word("--dry-run", "", "show what would be true inside, and stop"),
    Word("--print-argv", "", "show the command that the backend runs, and stop"),
)
OVERSIGHT = (
    Word("--ui", "", "open the live page on the host, and print its link"),
    Word("--ask", "", "ask a person about hosts that no rule lists: on the page, or in `egress watch`"),
    Word("--ask-timeout", "SECONDS", "how long a question waits; then it is a no (default 60)"),
    Word("--observe", "", "block nothing but what is denied, and mark what would have been"),
    Word("--metrics", "ADDR:PORT", "numbers for Prometheus, at /metrics there"),
    Word(
        "--attribute",
        "WHICH",
        "of which connections the log names the program",
        default="refused",
        choices=("refused", "all", "none"),
    ),
    Word("--log-queries", "", "put the values in queries of inspected requests on record, too"),
)
GROUPS = {
    "network": NETWORK,
    "files and environment": FILES,
    "walls and limits": WALLS,
    "looking on": OVERSIGHT,
    "what it says": SPEECH,
}
WORDS = {word.name: word for group in GROUPS.values() for word in group}


class Publish(NamedTuple):
    inside: int
    outside: int


class Resources(NamedTuple):
    """Bounds on the whole sandbox; None where nothing was asked."""

    memory: int | None = None
    cpus: float | None = None
    pids: int | None = None
    timeout: float | None = None


class Options(NamedTuple):
    command: tuple[str, ...]
    persona: str | None = None
    policy: tuple[str, ...] = ()
    allow: tuple[str, ...] = ()
    project: str = "."
    write: tuple[str, ...] = ()
    read: tuple[str, ...] = ()
    hide: tuple[str, ...] = ()
    sockets: tuple[str, ...] = ()
    usual_sockets: tuple[str, ...] = ()  # the persona's
    env: tuple[str, ...] = ()
    publish: tuple[Publish, ...] = ()
    host_ports: tuple[int, ...] = ()
    seccomp: str = "default"
    deny_calls: tuple[str, ...] = ()  # the persona's, as the next
    allow_calls: tuple[str, ...] | None = None
    bridge: str = "handover"
    backend: str | None = None  # bwrap, if nobody says otherwise,
    fallback: str | None = None  # and no other
    image: str | None = None
    rootfs: str | None = None
    resources: Resources = Resources()
    audit: str | None = None
    dns_server: str | None = None
    upstream: str | None = None
    upstream_ca: tuple[str, ...] = ()
    ui: bool = False
    ask: bool = False
    ask_timeout: str | None = None
    observe: bool = False
    metrics: str | None = None
    attribute: str = "refused"
    log_queries: bool = False
    quiet: bool = False
    verbose: bool = False
    dry_run: bool = False
    print_argv: bool = False


def parse_port(text: str) -> int:
    if not _is_count(text) or len(text) > 5 or (port := int(text)) > 65535:
        raise PlanError(f"{text!r} is not a port from 1 to 65535", status=2)
    return port


def parse_publish(text: str) -> Publish:
    """`3000` or `3000:8080`: the port inside, and the one on the host where it is another."""
    inside, colon, outside = text.partition(":")
    return Publish(parse_port(inside), parse_port(outside if colon else inside))


def parse_size(text: str) -> int:
    number = text.rstrip("KMGTkmgt")
    unit = text[len(number) :].upper()
    if not _is_count(number) or unit not in _UNITS:
        raise PlanError(f"{text!r} is not a size such as 512M or 4G", status=2)
    return int(number) * _UNITS[unit]


def parse_positive(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0
    if not 0 < value < 1e9:
        raise PlanError(f"{text!r} is not a positive number", status=2)
    return value


def read(words: list[str]) -> dict[str, Any] | None:
    """The values of well-formed words by their key; None where there is something to explain, as argparse does."""
    values = {word.key: word.nothing for word in WORDS.values()}
    given = iter(words)
    for text in given:
        name, equals, value = text.partition("=")
        word = WORDS.get(name)
        if word is None or (equals and not word.metavar):
            return None
        if word.metavar and not equals:
            value = next(given, "")
        if word.metavar and (not value or value.startswith("-") or (word.choices and value not in word.choices)):
            return None
        values[word.key] = (*values[word.key], value) if word.many else value if word.metavar else True
    return values


def options(values: dict[str, Any], command: list[str]) -> Options:
    return Options(
        command=tuple(command),
        write=tuple(values["rw"]),
        read=tuple(values["ro"]),
        hide=tuple(values["hide"]),
        sockets=tuple(values["socket"]),
        publish=tuple(map(parse_publish, values["publish"])),
        host_ports=tuple(map(parse_port, values["host_port"])),
        resources=_resources(values),
        policy=tuple(values["policy"]),
        allow=tuple(values["allow"]),
        env=tuple(values["env"]),
        upstream_ca=tuple(values["upstream_ca"]),
        **{key: values[key] for key in _AS_THEY_ARE},
    )


def furnished(options: Options, walls: Walls) -> Options:
    """With what the persona asks of its sandbox, where no flag says otherwise."""
    if not any(walls):
        return options
    given = {name: value for name, value in options.resources._asdict().items() if value is not None}
    return options._replace(
        backend=options.backend or walls.backend,
        fallback=options.fallback or walls.fallback,
        image=options.image or (None if options.rootfs else walls.image),
        resources=_resources(walls._asdict())._replace(**given),
        usual_sockets=walls.sockets,
        deny_calls=walls.deny_calls,
        allow_calls=walls.allow_calls,
    )


def _resources(values: Mapping[str, Any]) -> Resources:
    return Resources(
        memory=_maybe(parse_size, values["memory"]),
        cpus=_maybe(parse_positive, values["cpus"]),
        pids=_maybe(lambda text: int(parse_positive(text)), values["pids"]),
        timeout=_maybe(parse_positive, values["timeout"]),
    )


_AS_THEY_ARE = (
    *("backend", "fallback", "image", "rootfs"),
    *("persona", "project", "seccomp", "bridge", "audit", "dns_server", "upstream"),
    *("ui", "ask", "ask_timeout", "observe", "metrics", "attribute", "log_queries"),
    *("quiet", "verbose", "dry_run", "print_argv"),
)


def _maybe(parse: Callable[[str], T], text: str | None) -> T | None:
    return None if text is None else parse(text)


def _is_count(text: str) -> bool:
    return text.isascii() and text.isdigit() and not text.startswith("0")
