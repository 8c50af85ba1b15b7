"""A run on the host itself: what the backends without namespaces have in common.

The command is the user's own process, on the user's own terminal. Its environment is made from nothing, as in any
sandbox; its way to the gate is a port of the host's. What walls there are is up to the backend.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from launcher import trust
from launcher.backends.entrance import UNOPENED, open_entrance
from launcher.backends.hostroom import HostRoom
from launcher.backends.minder import Errand
from launcher.backends.model import Fit, sentences, words
from launcher.backends.place import Entrance
from launcher.backends.private import Private
from launcher.explain import quote, quoted
from launcher.mounts import PlanError

if TYPE_CHECKING:
    from launcher.options import Options
    from launcher.plan import Facts, Plan
    from launcher.request import Request
    from launcher.seccomp import Filter
    from launcher.terminal import Terminal

_NO_DIRECTORY = "/tmp/egress-RUN"  # noqa: S108  # as it is shown, where nothing is to be run


def needs_namespace(options: Options) -> None:
    """What can only be done to a network of the sandbox's own."""
    asked = {
        "--publish": options.publish,
        "--host-port": options.host_ports,
        "--bridge relay": options.bridge == "relay",
    }
    for name in (name for name, given in asked.items() if given):
        raise PlanError(f"{name} needs a network of the sandbox's own", "--backend bwrap", status=2)


class Hosted:
    """What a backend adds are its own `settle`, `variables`, `rules`, `prepare` and `changed`."""

    takes_terminal = False

    def __init__(self, fit: Fit, options: Options) -> None:
        self.fit = fit
        is_shown = options.dry_run or options.print_argv
        self.entrance: Entrance | None = None if is_shown else open_entrance()
        self.private: Private | None = None

    def settle(self, options: Options) -> Options:
        needs_namespace(options)
        return options

    @property
    def directory(self) -> str:
        """Of the run; made when it is first needed."""
        if self.entrance is None:
            return _NO_DIRECTORY
        if self.private is None:
            self.private = Private()
        return self.private.path

    def trusted(self) -> tuple[trust.Given, ...]:
        return trust.elsewhere(f"{self.directory}/trust")

    def arrange(self, request: Request, trusting: bool) -> Request:
        """The same plan, with the gate at a port of the host's."""
        variables = {**request.variables, **self.variables()}
        if trusting:
            variables |= trust.variables(f"{self.directory}/trust")
        url = self.entrance.url if self.entrance else UNOPENED
        return request._replace(variables=variables, proxy=url, capture=False)

    def see(self, facts: Facts) -> Facts:
        return facts

    def variables(self) -> dict[str, str]:
        return {}

    def rules(self, plan: Plan) -> list[str]:
        """What holds, for --dry-run."""
        return []

    def prepare(self, plan: Plan, filters: Filter) -> Callable[[], Callable[[], None]]:
        """What the command does to itself: before its release, and after it."""
        return lambda: lambda: None

    def changed(self, plan: Plan) -> Callable[[], list[str]]:
        return list

    def show(self, plan: Plan, as_line: bool) -> str:
        return _line(plan) if as_line else "\n".join(self._lines(plan)) + "\n"

    def _lines(self, plan: Plan) -> list[str]:
        return [
            words(self.fit).removeprefix("warning: "),
            *(f"  {sentence}" for sentence in sentences(self.fit.lacks)),
            "command",
            f"  {quoted(plan.command)}",
            f"  in {plan.directory}",
            *self.rules(plan),
            "environment, and nothing else",
            *(f"  {name}={_value(plan, name)}" for name in sorted(plan.env)),
        ]

    def room(
        self, plan: Plan, options: Options, terminal: Terminal | None, filters: Filter, given: Mapping[str, int]
    ) -> HostRoom:
        assert self.entrance is not None  # noqa: S101  # it is to be run
        if given:
            self._fill(given)
        return HostRoom(self.errand(plan, filters), self.entrance, options.resources, self.changed(plan))

    def errand(self, plan: Plan, filters: Filter) -> Errand:
        return Errand(plan.command, plan.directory, plan.env, self.prepare(plan, filters), self._tidy)

    def close(self) -> None:
        if self.entrance is not None:
            self.entrance.sock.close()
        self._tidy()

    def _fill(self, given: Mapping[str, int]) -> None:
        assert self.private is not None  # noqa: S101  # it has named the paths
        self.private.fill(given)

    def _tidy(self) -> None:
        if self.private is not None:
            self.private.remove()


def _value(plan: Plan, name: str) -> str:
    return "(passed)" if name in plan.passed else plan.env[name]


def _line(plan: Plan) -> str:
    """From a shell. Values that are the user's are put in by it."""
    pairs = (f'{name}="${name}"' if name in plan.passed else quote(f"{name}={plan.env[name]}") for name in plan.env)
    return " ".join(["env", "-i", "-C", quote(plan.directory), *pairs, quoted(plan.command)]) + "\n"
