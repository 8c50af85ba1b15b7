"""`egress-launch`, from its options to the exit code.

Up to the release of the command everything here is on the user's clock. The gate, asyncio and all that
comes with them are imported after it, while the command already runs.
"""

from __future__ import annotations

import os
import sys

from egress import places, policysources
from egress.record import TYPE_CHECKING, NamedTuple
from launcher import interrupts
from launcher.drawing import draw_plan
from launcher.mounts import PlanError
from launcher.netns.model import Wanted
from launcher.options import Options, furnished
from launcher.outline import Outline, recall, remember
from launcher.plan import Plan
from launcher.process import on_terminal
from launcher.room import Room, load_filters

if TYPE_CHECKING:
    from egress.problems import PolicyError
    from launcher.backends.place import Place, Site
    from launcher.bridge import RelaySocket
    from launcher.engine import Engine
    from launcher.publish import Opening
    from launcher.seccomp import Filter
    from launcher.terminal import Terminal

_LACKING = "the secret for "  # as such a problem begins


class Session(NamedTuple):
    """One run of the launcher: what was asked, and what was made of it."""

    options: Options
    sources: policysources.Sources
    audit: str
    plan: Plan
    relay: RelaySocket | None
    openings: tuple[Opening, ...] = ()
    engine: Engine | None = None
    site: Site | None = None  # where it is not bubblewrap that makes the sandbox


def launch(options: Options) -> int:
    _check_routes(options)
    project = os.path.abspath(options.project)
    sources = policysources.locate(options.policy, options.allow, options.persona, writable=(project,))
    persona = _outline(sources)
    options, site = _settled(options, furnished(options, persona.walls))
    audit, on_tty = _audit(options), on_terminal() and (site is None or site.takes_terminal)
    relay = engine = None
    try:
        relay, engine = _relay(options), _engine(persona, options, site)
        drawn = draw_plan(options, persona, audit, on_tty, relay, site)
        if options.print_argv or options.dry_run:
            return _show(drawn, options.print_argv, site)
        return _run(Session(options, sources, audit, drawn, relay, engine=engine, site=site), on_tty)
    finally:
        _end(relay, engine, site)


def _settled(asked: Options, options: Options) -> tuple[Options, Site | None]:
    """What makes the sandbox, said at once where that is not bubblewrap; `asked` are the flags alone."""
    is_usual = options.backend in (None, "bwrap") and options.fallback != "warn" and asked.image is None
    if is_usual and not options.verbose:
        return options, None
    from launcher.backends import known

    return known.settled(asked, options)


def _end(relay: RelaySocket | None, engine: Engine | None, site: Site | None) -> None:
    if relay is not None:
        relay.close()
    if engine is not None:
        from launcher.engine import end

        end(engine)
    if site is not None:
        site.close()


def _engine(persona: Outline, options: Options, site: Site | None) -> Engine | None:
    """First of all processes: by the time that bwrap wants its certificate, it should have one."""
    if not persona.inspected or options.print_argv or options.dry_run:
        return None
    from launcher import engine, trust

    files = site.trusted() if site is not None else trust.given()
    return engine.start(persona.inspected, tuple(map(os.path.abspath, options.upstream_ca)), files)


def _relay(options: Options) -> RelaySocket | None:
    if options.bridge != "relay":
        return None
    from launcher.bridge import RelaySocket

    return RelaySocket()


def _show(drawn: Plan, as_line: bool, site: Site | None) -> int:
    from launcher.explain import explain, shell_line

    if site is not None:
        sys.stdout.write(site.show(drawn, as_line))
        return 0
    sys.stdout.write(shell_line(drawn) + "\n" if as_line else explain(drawn))
    return 0


def _run(session: Session, on_tty: bool) -> int:
    filters = load_filters(session.options.seccomp)
    session = session._replace(openings=_openings(session.options))
    interrupts.hold()
    terminal = _terminal() if on_tty else None
    try:
        room = _room(session, terminal, filters)
        try:
            _state(room)
            if terminal is not None:
                terminal.take()
            if session.engine is not None:
                _await(session.engine)
            room.release()
            return _attend(session, room, terminal, filters.warnings)
        finally:
            room.close()
    finally:
        if terminal is not None:
            terminal.close()


def _room(session: Session, terminal: Terminal | None, filters: Filter) -> Place:
    options, given = session.options, session.engine.given if session.engine else {}
    if session.site is not None:
        return session.site.room(session.plan, options, terminal, filters, given)
    return Room(session.plan, _wanted(options), terminal, filters, options.resources, given)


def _await(started: Engine) -> None:
    from launcher import engine

    engine.wait_until_ready(started)


def _terminal() -> Terminal:
    from launcher.terminal import Terminal

    return Terminal()


def _attend(session: Session, room: Place, terminal: Terminal | None, warnings: tuple[str, ...]) -> int:
    """While the command runs; what this takes to load is no longer on the user's clock."""
    if terminal is None and not session.options.verbose and (code := room.at_once()) is not None:
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


def _state(room: Place) -> None:
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


def _wanted(options: Options) -> Wanted | None:
    if options.bridge == "relay":
        if options.publish or options.host_ports:
            raise PlanError("--publish and --host-port need the hand-over, not --bridge relay", status=2)
        return None
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
