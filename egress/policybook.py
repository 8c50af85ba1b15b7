"""All definitions in force, and the policy that they come to.

A persona's own rules stand before those of the persona it extends, so for the same pattern the child
speaks; denials and variables add up. Groups are followed without recursion and each at most once per
list: what comes again could not change an answer, and groups of groups cannot multiply.

A persona is put together and indexed when it is asked for: a start needs one of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple, Protocol

from egress.model import Host, Source
from egress.policy import Fixed, Persona, Policy
from egress.policyfile import Entries, Entry, Group, Profile, Ref
from egress.policyrules import ToolRule, read_option
from egress.problems import PolicyError, Problem, Problems, UnknownPersona, near, wrong
from egress.rules import Rule
from egress.surroundings import files_of, tools_of, union, walls_of

if TYPE_CHECKING:
    from egress.foreign.translation import Remark


class ToolHost(Protocol):
    """A place that a tool is set up to use."""

    @property
    def host(self) -> Host: ...
    @property
    def port(self) -> int: ...
    @property
    def tls(self) -> bool: ...
    @property
    def private(self) -> bool: ...


Tools = Callable[[str], Iterable[ToolHost]]


def no_tools(tool: str) -> Iterable[ToolHost]:
    """For books that are read where no tool can be asked."""
    raise ValueError(f"nobody here can say which hosts {tool} uses; write `host:`")


class Book(NamedTuple):
    """Definitions by name; each has the one that it replaced below it. `policylayers` makes it, and sound."""

    groups: Mapping[str, Group]
    personas: Mapping[str, Profile]
    hosts: Mapping[Host, tuple[Fixed, Source]]
    tools: Tools = no_tools
    remarks: tuple[Remark, ...] = ()

    def group(self, ref: Ref, inside: Group | None) -> Group | None:
        return inside.below if inside and ref.name == inside.name else self.groups.get(ref.name)

    def parent(self, profile: Profile) -> Profile | None:
        ref = profile.extends
        if ref is None:
            return None
        return profile.below if ref.name == profile.name else self.personas.get(ref.name)

    def lineage(self, name: str) -> Iterator[Profile]:
        """A persona and those it extends, the nearest first."""
        profile: Profile | None = self.personas[name]
        while profile is not None:
            yield profile
            profile = self.parent(profile)

    def rules(self, lists: Iterable[Entries], inside: Group | None = None) -> Iterator[Rule]:
        """The rules of some lists in their order, each group where it is first named."""
        seen: set[int] = set()
        stack: list[tuple[Iterator[Entry], Group | None]] = [(chain.from_iterable(lists), inside)]
        while stack:
            entries, home = stack[-1]
            for entry in entries:
                if isinstance(entry, Rule):
                    yield entry
                elif isinstance(entry, ToolRule):
                    yield from self._expanded(entry)
                elif (group := self.group(entry, home)) and id(group) not in seen:
                    seen.add(id(group))
                    stack.append((iter(group.entries), group))
                    break
            else:
                stack.pop()

    def _expanded(self, rule: ToolRule) -> list[Rule]:
        """A rule for each place that its tool uses."""
        try:
            return [rule.for_host(at.host, at.port, at.tls, at.private) for at in self.tools(rule.tool)]
        except ValueError as error:
            raise wrong(rule.source, f"`tool: {rule.tool}`: {error}") from None

    def persona(self, name: str, extra: Iterable[Rule] = ()) -> Persona:
        family = list(self.lineage(name))
        return Persona(
            name,
            allow=chain(extra, self.rules(profile.allow for profile in family)),
            deny=self.rules(profile.deny for profile in family),
            description=next((profile.description for profile in family if profile.description), ""),
            env=union(profile.env for profile in family),
            filesystem=files_of(profile.filesystem for profile in family),
            tools=tools_of(profile.tools for profile in family),
            walls=walls_of([profile.sandbox for profile in family]),
        )

    def policy(self, allow: Iterable[str] = ()) -> Policy:
        """The policy to ask, with further rules from the command line before all others."""
        hosts = {host: fixed for host, (fixed, _) in self.hosts.items()}
        return Policy(_Personas(self, _options(allow)), hosts, tuple(self._remarks()))

    def _remarks(self) -> Iterator[Remark]:
        """Of whole files, and of each persona what is said of it and of those that it extends."""
        yield from (remark for remark in self.remarks if not remark.persona)
        for name in self.personas if self.remarks else ():
            family = {(profile.name, profile.source.file) for profile in self.lineage(name)}
            for remark in self.remarks:
                if (remark.persona, remark.source.file) in family:
                    yield remark._replace(persona=name)


class _Personas(Mapping[str, Persona]):
    """Personas, each made when it is first asked for."""

    def __init__(self, book: Book, extra: tuple[Rule, ...]) -> None:
        self._book = book
        self._extra = extra
        self._made: dict[str, Persona] = {}

    def __getitem__(self, name: str) -> Persona:
        if name not in self._made:
            self._made[name] = self._book.persona(name, self._extra)
        return self._made[name]

    def __contains__(self, name: object) -> bool:
        return name in self._book.personas

    def __iter__(self) -> Iterator[str]:
        return iter(self._book.personas)

    def __len__(self) -> int:
        return len(self._book.personas)


def choose(policy: Policy, name: str) -> Persona:
    """The persona of that name, or a refusal that says which there are."""
    if name in policy.personas:
        return policy.personas[name]
    known = sorted(policy.personas)
    message = f"unknown persona {name[:80]!r}{near(name, known)} (personas: {', '.join(known) or 'none'})"
    raise UnknownPersona([Problem(Source("--persona", 0), message)])


def _options(allow: Iterable[str]) -> tuple[Rule, ...]:
    problems = Problems()
    rules = []
    for text in allow:
        try:
            rules.append(read_option(text, "--allow"))
        except PolicyError as error:
            problems.absorb(error)
    problems.settle()
    return tuple(rules)
