"""`egress-launch`, from its options to the exit code.

Up to the release of the command everything here is on the user's clock. What makes the sandbox is imported when
the mint, where one is needed, works already; the gate, asyncio and all that comes with them when the command does.
"""

from __future__ import annotations

import os
import sys

from egress import places, policysources
from egress.record import TYPE_CHECKING, NamedTuple
from launcher.mounts import PlanError
from launcher.options import Options, furnished
from launcher.outline import Outline, recall, remember
from launcher.process import on_terminal
from launcher.request import Own, Request

if TYPE_CHECKING:
    from egress.problems import PolicyError
    from egress.surroundings import Filesystem
    from launcher.bridge import RelaySocket
    from launcher.mint import Mint
    from launcher.netns.model import Wanted
    from launcher.plan import Plan
    from launcher.publish import Opening
    from launcher.room import Room
    from launcher.seccomp import Filter
    from launcher.terminal import Terminal

_CANNOT_RUN, _NOT_FOUND = 126, 127
_LACKING = "the secret for "  # as such a problem begins


class Session(NamedTuple):
    """One run of the launcher: what was asked, and what was made of it."""

    options: Options
    sources: policysources.Sources
    audit: str
    plan: Plan
    relay: RelaySocket | None
    openings: tuple[Opening, ...] = ()
    mint: Mint | None = None


def launch(options: Options) -> int:
    on_tty = on_terminal()
    session = prepare(options, on_tty)
    try:
        if options.print_argv or options.dry_run:
            return _show(session.plan, options.print_argv)
        return _run(session, on_tty)
    finally:
        end(session)


def prepare(options: Options, on_tty: bool = False) -> Session:
    """All that is decided, and what must be there first; `end` it, whatever comes of it."""
    _check_routes(options)
    project = os.path.abspath(options.project)
    sources = policysources.locate(options.policy, options.allow, options.persona, writable=(project,))
    persona = _outline(sources)
    options = furnished(options, persona.walls)
    audit = _audit(options)
    relay, mint = _relay(options), _mint(persona, options)
    try:
        return Session(options, sources, audit, _plan(options, persona, audit, on_tty, relay), relay, mint=mint)
    except BaseException:
        _end(relay, mint)
        raise


def end(session: Session) -> None:
    _end(session.relay, session.mint)


def _end(relay: RelaySocket | None, mint: Mint | None) -> None:
    if relay is not None:
        relay.close()
    if mint is not None:
        from launcher.mint import end

        end(mint)


def _mint(persona: Outline, options: Options) -> Mint | None:
    """First of all processes: by the time that bwrap wants the session's certificate, there should be one."""
    if not persona.inspected or options.print_argv or options.dry_run:
        return None
    from launcher import mint

    return mint.start(persona.inspected, tuple(map(os.path.abspath, options.upstream_ca)))


def _relay(options: Options) -> RelaySocket | None:
    if options.bridge != "relay":
        return None
    from launcher.bridge import RelaySocket

    return RelaySocket()


def _show(drawn: Plan, as_line: bool) -> int:
    from launcher.explain import explain, shell_line

    sys.stdout.write(shell_line(drawn) + "\n" if as_line else explain(drawn))
    return 0


def _run(session: Session, on_tty: bool) -> int:
    from launcher import interrupts
    from launcher.room import load_filters

    filters = load_filters(session.options.seccomp)
    session = session._replace(openings=_openings(session.options))
    interrupts.hold()
    terminal = _terminal() if on_tty else None
    try:
        room = make_room(session, filters, terminal)
        try:
            _state(room)
            if terminal is not None:
                terminal.take()
            room.release()
            return _attend(session, room, terminal, filters.warnings)
        finally:
            room.close()
    finally:
        if terminal is not None:
            terminal.close()


def make_room(session: Session, filters: Filter, terminal: Terminal | None = None) -> Room:
    from launcher.room import Room

    given = session.mint.given if session.mint else {}
    return Room(session.plan, _wanted(session.options), terminal, filters, session.options.resources, given)


def _terminal() -> Terminal:
    from launcher.terminal import Terminal

    return Terminal()


def _attend(session: Session, room: Room, terminal: Terminal | None, warnings: tuple[str, ...]) -> int:
    """While the command runs; what this takes to load is no longer on the user's clock."""
    from launcher import brief

    if terminal is None and not session.options.verbose and (code := brief.exit_code(room)) is not None:
        return code
    from launcher.serve import serve

    return serve(session, room, terminal, warnings)


def _openings(options: Options) -> tuple[Opening, ...]:
    """Ports of the host that servers inside are to have."""
    if not options.publish:
        return ()
    if options.bridge == "relay":
        raise PlanError("--publish needs a network that can be joined", "leave out --bridge relay", status=2)
    from launcher.publish import Opening  # it brings asyncio with it: only who asks for ports pays

    return tuple(map(Opening, options.publish))


def _check_routes(options: Options) -> None:
    """Mistakes are told before anything starts; only who uses these pays for reading them early."""
    if options.ask or options.ask_timeout or options.observe or options.metrics or options.upstream_ca:
        from launcher.oversee import wishes

        wishes(options)
    if options.dns_server or options.upstream:
        from launcher.routes import routes

        routes(options.dns_server, options.upstream)


def _state(room: Room) -> None:
    """What was asked for and is not enforced is said before the command starts."""
    for missing in room.confined.enforced.missing if room.confined else ():
        sys.stderr.write(f"egress: warning: {missing}\n")


def _outline(sources: policysources.Sources) -> Outline:
    known = recall(sources, os.environ)
    if known is not None:
        return known
    from egress.problems import PolicyError
    from launcher.outlining import draw

    try:
        outline, lasts = draw(sources, os.environ)
    except PolicyError as error:
        raise PlanError(str(error), _remedy(error, sources), status=2) from None
    if lasts:
        remember(sources, outline, os.environ)
    return outline


def _remedy(error: PolicyError, sources: policysources.Sources) -> str:
    from egress.problems import UnknownPersona

    if isinstance(error, UnknownPersona):
        return "egress policy show"
    if any(problem.source.file == "--allow" for problem in error.problems):
        return "--allow example.com, or --allow example.com:8443"
    if any(problem.message.startswith(_LACKING) for problem in error.problems):
        return "set it on the host, where the sandbox does not see it; or write `optional: true` in the secret"
    return " ".join(("egress policy lint", *(file.shown for file in sources.files)))


def _plan(options: Options, persona: Outline, audit: str, on_tty: bool, relay: RelaySocket | None) -> Plan:
    from launcher.plan import plan
    from launcher.survey import survey

    request = Request(
        command=options.command,
        project=os.path.abspath(options.project),
        directory=os.getcwd(),
        filesystem=_hiding(options, persona),
        write=options.write,
        read=options.read,
        sockets=options.sockets,
        env=persona.env,
        set_env=_asked_for(options, persona),
        own=(
            Own(audit, "the audit log"),
            *(Own(os.path.abspath(file), "the policy", hide=False) for file in options.policy),
        ),
        terminal=on_tty,
        variables=dict(persona.variables),
    )
    if persona.inspected:
        request = _trusting(request)
    if relay is not None:
        request = _through(relay, request)
    facts = survey(request, os.environ)
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


def _wanted(options: Options) -> Wanted | None:
    if options.bridge == "relay":
        if options.publish or options.host_ports:
            raise PlanError("--publish and --host-port need the hand-over, not --bridge relay", status=2)
        return None
    from launcher.netns.model import Wanted

    return Wanted(host_ports=options.host_ports)


def _audit(options: Options) -> str:
    """Where the log goes; no start without one."""
    path = os.path.abspath(options.audit) if options.audit else places.audit_log(os.environ)
    try:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        os.close(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
    except OSError as error:
        raise PlanError(f"the audit log {path!r} cannot be written: {error.strerror}", "--audit FILE") from None
    return path
