"""What a log shows that was let through, target by target: the evidence that a policy is drafted from.

A connection counts by the last word on it, as in `auditsummary`: one that was allowed and then refused was not
seen. Connections that were looked into count by their requests, of which a refused one is evidence too: that
the connection around it allows nothing by itself.

Every name in a log was chosen by whoever asked for it. What is not a canonical host is counted, and kept only to
be shown.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import msgspec

from egress.addresses import Kind, classify
from egress.auditread import Entry, Passages, Records, Text
from egress.model import Target, Verdict
from egress.names import Malformed, as_address, parse_host
from egress.refusals import Reason

MOST_TARGETS = 10_000
_MOST_PROGRAMS = 3
_MOST_SHOWN = 5
_GIVEN = "--host-port "  # a service of this host that an option gave: no rule is needed for it, or wanted


class Seen(Entry, frozen=True, gc=False):
    """A record, with what the reading of a log for people leaves out."""

    ip: Text | None = None
    method: Text = ""
    path: Text = ""


class SeenRecords(Records):
    """Reads these."""

    def __init__(self) -> None:
        super().__init__()
        decoder = msgspec.json.Decoder(Seen)
        self._one, self._all = decoder.decode, decoder.decode_lines  # type: ignore[assignment]  # each Seen is an Entry


class Request(NamedTuple):
    method: str
    path: str


class Evidence:
    """What was seen of one target."""

    __slots__ = ("connections", "is_private", "lifted", "looked_into", "programs", "requests")

    def __init__(self) -> None:
        self.connections = 0
        self.requests: Counter[Request] = Counter()
        self.looked_into = False  # at least one request was judged, whatever came of it
        self.is_private = False  # it led to an address that is not public
        self.lifted: Counter[str] = Counter()  # connections that no rule had allowed, by how they passed
        self.programs: dict[str, None] = {}

    def note(self, entry: Seen, count: int = 1) -> None:
        if entry.method:
            self.looked_into = True
            self.requests[Request(entry.method, entry.path)] += count
        else:
            self.connections += count
            self.lifted[entry.reason] += count
        if entry.process is not None and entry.process.exe and len(self.programs) < _MOST_PROGRAMS:
            self.programs[entry.process.exe] = None

    @property
    def was_seen(self) -> bool:
        """A connection that was looked into is worth its requests and no more."""
        return any(count > 0 for count in self.requests.values()) or (self.connections > 0 and not self.looked_into)


class Sightings:
    def __init__(self) -> None:
        self.sessions: dict[str, None] = {}
        self.last = ""  # the time of the newest record
        self.strange: list[str] = []  # names that are no hosts, the first of them
        self.left_out = 0  # records of more targets than are kept
        self._targets: dict[Target, Evidence] = {}
        self._refused: dict[Target, None] = {}
        self._denied: dict[str, None] = {}  # names that a deny rule refused to look up
        self._open = Passages[tuple[Evidence, Seen]]()

    def add(self, records: Iterable[msgspec.Struct]) -> None:
        for record in records:
            self._take(record if isinstance(record, Seen) else _as_seen(record))

    @property
    def targets(self) -> dict[Target, Evidence]:
        return {target: evidence for target, evidence in self._targets.items() if evidence.was_seen}

    @property
    def knows_all_refused(self) -> bool:
        return max(len(self._refused), len(self._denied)) < MOST_TARGETS

    def refused(self) -> Iterator[tuple[str, int | None]]:
        """Hosts and ports that were tried and never reached; without a port, names that are denied on all."""
        seen = self.targets
        yield from ((host, None) for host in self._denied)
        yield from (target for target in (*self._refused, *self._targets) if target not in seen)

    def _take(self, entry: Seen) -> None:
        self.last = max(self.last, entry.ts)
        if len(self.sessions) <= _MOST_SHOWN:
            self.sessions[entry.session] = None
        if entry.event == "end":
            self._end(entry)
        elif entry.event == "decision" and not (entry.rule or "").startswith(_GIVEN):
            self._decision(entry)

    def _decision(self, entry: Seen) -> None:
        target = self._target(entry)
        if target is None:
            return
        if entry.verdict == Verdict.ALLOW:
            self._allowed(target, entry)
        else:
            self._denial(target, entry)

    def _allowed(self, target: Target, entry: Seen) -> None:
        evidence = self._targets.get(target)
        if evidence is None:
            if len(self._targets) >= MOST_TARGETS:
                self.left_out += 1
                return
            evidence = self._targets[target] = Evidence()
            evidence.is_private = as_address(target.host) is not None and classify(target.host) is not Kind.PUBLIC
        evidence.note(entry)
        self._open.begin(entry, (evidence, entry))

    def _denial(self, target: Target, entry: Seen) -> None:
        if (begun := self._open.end(entry)) is not None:
            evidence, first = begun
            evidence.note(first, -1)
        if entry.method and target in self._targets:
            self._targets[target].looked_into = True
        elif len(self._refused) < MOST_TARGETS:
            self._refused[target] = None

    def _end(self, entry: Seen) -> None:
        begun = self._open.end(entry)
        if begun is not None and entry.ip and _is_private(entry.ip):
            begun[0].is_private = True

    def _target(self, entry: Seen) -> Target | None:
        try:
            host = parse_host(entry.host)
        except Malformed:
            host = None
        if host is None or host != entry.host:
            self._note_strange(entry)
            return None
        if entry.port is None:
            if entry.reason == Reason.DENIED and len(self._denied) < MOST_TARGETS:
                self._denied[host] = None
            return None
        return Target(host, entry.port)

    def _note_strange(self, entry: Seen) -> None:
        if entry.verdict == Verdict.ALLOW and entry.host not in self.strange and len(self.strange) < _MOST_SHOWN:
            self.strange.append(entry.host)


def _as_seen(record: msgspec.Struct) -> Seen:
    return msgspec.convert(msgspec.to_builtins(record), Seen)


def _is_private(ip: str) -> bool:
    try:
        return classify(parse_host(ip)) is not Kind.PUBLIC
    except ValueError:
        return False
