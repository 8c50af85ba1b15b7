"""A persona → the values that Claude Code's settings should have, by their names there.

    allow        sandbox.network.allowedDomains, and deniedDomains for `deny`
    filesystem   sandbox.filesystem, for commands, and `Read(…)`, `Edit(…)` in permissions.deny for its own tools,
                 which run outside of its sandbox
    tools        permissions.allow and permissions.deny

`autoAllowBashIfSandboxed` runs any command in the sandbox without asking, whatever the rules for Bash say: it is the
sandbox that holds it. A person who wants to be asked writes `false` there, and that stays.

An agent that `egress-launch` runs cannot make a sandbox of its own, and needs none: hosts and files are seen to. It
is only told to leave its own off, and which tools it may use.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from egress.agentsettings.reach import Reach, reach_of
from egress.policy import Persona
from egress.surroundings import Filesystem

Tree = dict[str, Any]
PROJECT = "."

# Where credentials are kept at home. The agent reads everything that it is not told not to.
CREDENTIALS = (
    "~/.ssh",
    "~/.gnupg",
    "~/.aws",
    "~/.azure",
    "~/.config/gcloud",
    "~/.config/gh",
    "~/.config/git/credentials",
    "~/.git-credentials",
    "~/.netrc",
    "~/.npmrc",
    "~/.pypirc",
    "~/.cargo/credentials.toml",
    "~/.docker",
    "~/.kube",
    "~/.terraform.d",
    "~/.password-store",
    "~/.local/share/keyrings",
    "~/.mozilla",
    "~/.config/google-chrome",
    "~/.config/chromium",
    "~/.local/state/egress",  # the authority's key, and the log
)

AUTO_ALLOW = ("sandbox", "autoAllowBashIfSandboxed")

# Values that a person's own must not undo, and what theirs would do.
INSISTED = {
    ("sandbox", "enabled"): "decides whether commands are in its sandbox",
    ("sandbox", "failIfUnavailable"): "would run commands without a sandbox where there is none",
    ("sandbox", "allowUnsandboxedCommands"): "would let commands leave the sandbox",
    ("sandbox", "network", "allowLocalBinding"): "would let commands listen",
    ("sandbox", "network", "httpProxyPort"): "would lead past the gate",
    ("sandbox", "network", "socksProxyPort"): "would lead past the gate",
}

# Lists that let through what is in them, whoever wrote it.
WIDENING = (("permissions", "allow"), ("sandbox", "network", "allowedDomains"), ("sandbox", "filesystem", "allowWrite"))

# What else would undo some of it, and is not ours to change.
LOOSE = {
    ("sandbox", "excludedCommands"): "these commands run outside of the sandbox",
    ("sandbox", "enableWeakerNestedSandbox"): "the sandbox is weaker by it",
    ("sandbox", "network", "allowAllUnixSockets"): "the daemons of this machine can be reached by it",
}


class Place(NamedTuple):
    """What is true of where the agent runs, besides its persona."""

    protect: tuple[str, ...] = ()  # in the project, whoever works there
    port: int | None = None  # of a gate on this machine
    inside: bool = False  # it is egress-launch that runs it
    exact: bool = False  # leave out what cannot be said exactly, as a person has asked


def wanted(persona: Persona, place: Place) -> Tree:
    permissions = {"allow": [*persona.tools.allow], "deny": [*persona.tools.deny, *_denials(persona, place)]}
    sandbox = {"enabled": False} if place.inside else _sandbox(persona, place)
    return {"permissions": {name: rules for name, rules in permissions.items() if rules}, "sandbox": sandbox}


def leaves_out(place: Place) -> bool:
    """Whether narrowed hosts are not allowed at all: only a gate can tell their requests apart."""
    return place.exact and place.port is None and not place.inside


def widens(place: Place) -> bool:
    """Whether they are allowed with all their requests."""
    return not place.exact and place.port is None and not place.inside


def runs_any_command(persona: Persona) -> bool:
    return "Bash" in persona.tools.allow or not any(persona.tools)


def _sandbox(persona: Persona, place: Place) -> Tree:
    return {
        "enabled": True,
        "failIfUnavailable": True,
        "autoAllowBashIfSandboxed": True,
        "allowUnsandboxedCommands": False,
        "network": _network(reach_of(persona), place),
        "filesystem": _filesystem(persona, place),
    }


def _network(reach: Reach, place: Place) -> Tree:
    out = leaves_out(place)
    allowed = reach.whole if out else (*reach.whole, *reach.narrowed)
    denied = dict.fromkeys([*reach.denied, *(reach.taken_in if out else ())])
    ports = {} if place.port is None else {"httpProxyPort": place.port, "socksProxyPort": place.port}
    return {
        "allowedDomains": [*map(str, allowed)],
        **({"deniedDomains": [*map(str, denied)]} if denied else {}),
        "allowLocalBinding": False,
        **ports,
    }


def _filesystem(persona: Persona, place: Place) -> Tree:
    return {
        "allowWrite": [PROJECT, *map(_spelled, persona.filesystem.write)],
        "denyRead": _hidden(persona.filesystem),
        "denyWrite": _protected(persona, place),
    }


def _protected(persona: Persona, place: Place) -> list[str]:
    return [*dict.fromkeys(map(_spelled, (*place.protect, *persona.filesystem.protect)))]


def _hidden(files: Filesystem) -> list[str]:
    """Where credentials are, unless the persona is given them, and what it says itself."""
    given = [*map(_spelled, (*files.read, *files.write))]
    usual = (path for path in CREDENTIALS if not any(_within(path, top) or _within(top, path) for top in given))
    return [*dict.fromkeys([*usual, *map(_spelled, files.hide)])]


def _denials(persona: Persona, place: Place) -> Iterable[str]:
    if place.inside:
        return
    yield from (f"Read({_anchored(path)})" for path in _hidden(persona.filesystem))
    yield from (f"Edit({path if '/' not in path else _anchored(path)})" for path in _protected(persona, place))


def _anchored(path: str) -> str:
    """As a permission rule has it: one slash is the project's directory, two are the root."""
    return path if path.startswith("~") else f"/{path}"


def _spelled(path: str) -> str:
    return path.rstrip("/") or path


def _within(path: str, top: str) -> bool:
    return path == top or path.startswith(top + "/")
