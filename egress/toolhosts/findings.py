"""What was found in a tool's configuration, gathered while it is read.

A setting that cannot be used is a problem to report and no reason to stop: the tool's other registries are
as good as they were. Every file that was looked for is noted, there or not, so that a later change is seen.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping

from egress.model import Host
from egress.names import Malformed
from egress.record import NamedTuple
from egress.toolhosts.machine import Machine, identity, read_text
from egress.toolhosts.registry import Registry, is_local, parse_registry


class Found(NamedTuple):
    registries: tuple[Registry, ...]
    environment: Mapping[str, str]  # for the tool inside, where its own configuration is out of sight
    problems: tuple[str, ...]
    files: Mapping[str, Hashable]  # that it was read from or would have been, each as it was before


class Setting(NamedTuple):
    """A value as it was written, credentials and all: it is not to leave this package."""

    value: str
    source: str

    def __repr__(self) -> str:
        return f"Setting(source={self.source!r})"


class Findings:
    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self._registries: dict[str, Registry] = {}
        self._problems: list[str] = []
        self._files: dict[str, Hashable] = {}

    def report(self, problem: str) -> None:
        self._problems.append(problem)

    def watch(self, path: str) -> None:
        self._files.setdefault(path, identity(path))

    def read(self, path: str) -> str | None:
        """The text of a configuration file; None where there is none, or none to be trusted."""
        if not self.machine.trusts(path):
            self.report(f"{path!r} is not read: a sandbox could write it, or it is not an absolute path")
            return None
        self.watch(path)
        try:
            return read_text(path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            self.report(f"{path!r} cannot be read: {error.strerror or error}")
            return None

    def named(self, setting: Setting, *, configured: bool = True) -> Registry | None:
        """Take in the registry that a setting names."""
        try:
            registry = parse_registry(setting.value, setting.source, configured)
        except Malformed as error:
            self.report(f"{setting.source}: {error}")
            return None
        return self.take(registry)

    def take(self, registry: Registry) -> Registry:
        return self._registries.setdefault(registry.url, registry)

    def has(self, host: Host) -> bool:
        return any(registry.host == host for registry in self._registries.values())

    def listed(self, settings: Iterable[Setting]) -> list[Registry]:
        """The same for lists in which directories of this machine may stand too."""
        named = (self.named(setting) for setting in settings if not is_local(setting.value))
        return [registry for registry in named if registry is not None]

    def done(self, environment: Mapping[str, str]) -> Found:
        return Found(tuple(self._registries.values()), environment, tuple(self._problems), self._files)
