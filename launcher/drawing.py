"""From what was asked, by flags and by the persona, to the plan of a sandbox."""

from __future__ import annotations

import os

from egress.record import TYPE_CHECKING
from launcher.mounts import PlanError
from launcher.options import Options
from launcher.outline import Outline
from launcher.plan import Plan, plan
from launcher.request import Own, Request
from launcher.survey import survey

if TYPE_CHECKING:
    from egress.surroundings import Filesystem
    from launcher.backends.place import Site
    from launcher.bridge import RelaySocket

_CANNOT_RUN, _NOT_FOUND = 126, 127


def draw_plan(
    options: Options, persona: Outline, audit: str, on_tty: bool, relay: RelaySocket | None, site: Site | None
) -> Plan:
    request = Request(
        command=options.command,
        project=os.path.abspath(options.project),
        directory=os.getcwd(),
        filesystem=_hiding(options, persona),
        write=options.write,
        read=options.read,
        sockets=options.sockets,
        usual_sockets=options.usual_sockets,
        env=persona.env,
        set_env=_asked_for(options, persona),
        own=(
            Own(audit, "the audit log"),
            *(Own(os.path.abspath(file), "the policy", hide=False) for file in options.policy),
        ),
        terminal=on_tty,
        variables=dict(persona.variables),
    )
    if site is not None:
        request = site.arrange(request, trusting=bool(persona.inspected))
    elif persona.inspected:
        request = _trusting(request)
    if relay is not None:
        request = _through(relay, request)
    facts = survey(request, os.environ)
    if site is not None:
        facts = site.see(facts)
    if facts.program is None:
        raise _no_program(options.command[0])
    return plan(request, facts)


def _hiding(options: Options, persona: Outline) -> Filesystem:
    flags = map(os.path.abspath, options.hide)
    return persona.filesystem._replace(hide=(*persona.filesystem.hide, *flags))


def _asked_for(options: Options, persona: Outline) -> tuple[str, ...]:
    """`--env NAME` of a secret gets what the persona has for it, which is not its value."""
    held = dict(persona.variables)
    return tuple(flag for flag in options.env if flag not in held)


def _trusting(request: Request) -> Request:
    """The same sandbox, whose programs trust the session's certificate."""
    from launcher import mint, trust

    return request._replace(
        files=(*request.files, *mint.mounts()), variables={**request.variables, **trust.variables()}
    )


def _no_program(word: str) -> PlanError:
    """As a shell tells the two cases apart."""
    directories = [""] if "/" in word else os.environ.get("PATH", os.defpath).split(":")
    for path in (os.path.join(directory, word) for directory in directories):
        if os.path.exists(path):
            hint = "name a program in it" if os.path.isdir(path) else f"chmod +x {path}"
            return PlanError(f"{word!r} cannot be executed", hint, status=_CANNOT_RUN)
    hint = "it must be on PATH, or a path to a program that the sandbox can see"
    return PlanError(f"{word!r} was not found", hint, status=_NOT_FOUND)


def _through(relay: RelaySocket, request: Request) -> Request:
    """The same sandbox, with the relay as its first program and the gate's socket let in."""
    return request._replace(
        command=relay.command(request.command),
        read=(*request.read, relay.program),
        sockets=(*request.sockets, relay.path),
        capture=False,
    )
