"""`egress-launch`, from its options to the exit code.

Up to the release of the command everything here is on the user's clock. What makes the sandbox is imported when
the mint, where one is needed, works already; the gate, asyncio and all that comes with them when the command does.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable

from egress import places
from egress.policysources import Sources
from egress.record import TYPE_CHECKING, NamedTuple
from launcher.mounts import PlanError
from launcher.obeyed import outline_of, sources_of
from launcher.options import Options, furnished
from launcher.process import on_terminal

if TYPE_CHECKING:
    from launcher.backends.place import Place, Site
    from launcher.bridge import RelaySocket
    from launcher.mint import Mint
    from launcher.netns.model import Wanted
    from launcher.outline import Outline
    from launcher.plan import Plan
    from launcher.publish import Opening
    from launcher.room import Room
    from launcher.seccomp import Filter
    from launcher.terminal import Terminal


class Session(NamedTuple):
    """One run of the launcher: what was asked, and what was made of it."""

    options: Options
    sources: Sources
    audit: str
    plan: Plan
    relay: RelaySocket | None
    openings: tuple[Opening, ...] = ()
    mint: Mint | None = None
    site: Site | None = None  # where it is not bubblewrap that makes the sandbox
    on_tty: bool = False


def launch(options: Options) -> int:
    session = prepare(options, on_terminal())
    try:
        if options.print_argv or options.dry_run:
            return _show(session)
        return _run(session)
    finally:
        end(session)


def prepare(options: Options, on_tty: bool = False) -> Session:
    """All that is decided, and what must be there first; `end` it, whatever comes of it."""
    _check_routes(options)
    sources = sources_of(options)
    persona = outline_of(sources)
    _warn(persona.remarks)
    asked = options._replace(persona=sources.persona)
    options, site = _settled(asked, furnished(asked, persona.walls))
    relay = mint = None
    try:
        audit, on_tty = _audit(options), on_tty and (site is None or site.takes_terminal)
        relay, mint = _relay(options), _mint(persona, options, site)
        from launcher.drawing import draw_plan

        drawn = draw_plan(options, persona, audit, on_tty, relay, site)
        return Session(options, sources, audit, drawn, relay, mint=mint, site=site, on_tty=on_tty)
    except BaseException:
        _end(relay, mint, site)
        raise


def end(session: Session) -> None:
    _end(session.relay, session.mint, session.site)


def _settled(asked: Options, options: Options) -> tuple[Options, Site | None]:
    """What makes the sandbox, said at once where that is not bubblewrap; `asked` are the flags alone."""
    is_usual = options.backend in (None, "bwrap") and options.fallback != "warn" and asked.image is None
    if is_usual and not options.verbose:
        return options, None
    from launcher.backends import known

    return known.settled(asked, options)


def _end(relay: RelaySocket | None, mint: Mint | None, site: Site | None) -> None:
    if relay is not None:
        relay.close()
    if mint is not None:
        from launcher.mint import end

        end(mint)
    if site is not None:
        site.close()


def _mint(persona: Outline, options: Options, site: Site | None) -> Mint | None:
    """First of all processes: by the time that bwrap wants the session's certificate, there should be one."""
    if not persona.inspected or options.print_argv or options.dry_run:
        return None
    from launcher import mint, trust

    files = site.trusted() if site is not None else trust.given()
    return mint.start(persona.inspected, tuple(map(os.path.abspath, options.upstream_ca)), files)


def _relay(options: Options) -> RelaySocket | None:
    if options.bridge != "relay":
        return None
    from launcher.bridge import RelaySocket

    return RelaySocket()


def _show(session: Session) -> int:
    from launcher.explain import explain, shell_line

    drawn, as_line, site = session.plan, session.options.print_argv, session.site
    if site is not None:
        sys.stdout.write(site.show(drawn, as_line))
    else:
        sys.stdout.write(shell_line(drawn) + "\n" if as_line else explain(drawn))
    return 0


def _run(session: Session) -> int:
    from launcher import interrupts
    from launcher.room import load_filters

    filters = load_filters(session.options)
    _warn(filters.doubts)
    session = session._replace(openings=_openings(session.options))
    interrupts.hold()
    terminal = _terminal() if session.on_tty else None
    try:
        room = _place(session, filters, terminal)
        try:
            _state(room)
            if terminal is not None:
                terminal.take()
            room.release()
            return _attend(session, room, terminal, filters.warnings)
        finally:
            room.close()
            _look_back(session.plan)
    finally:
        if terminal is not None:
            terminal.close()


def _place(session: Session, filters: Filter, terminal: Terminal | None) -> Place:
    if session.site is None:
        return make_room(session, filters, terminal)
    given = session.mint.given if session.mint else {}
    return session.site.room(session.plan, session.options, terminal, filters, given)


def make_room(session: Session, filters: Filter, terminal: Terminal | None = None) -> Room:
    """With bubblewrap."""
    from launcher.room import Room

    options, given = session.options, session.mint.given if session.mint else {}
    return Room(session.plan, _wanted(options), terminal, filters, options.resources, given)


def _terminal() -> Terminal:
    from launcher.terminal import Terminal

    return Terminal()


def _attend(session: Session, room: Place, terminal: Terminal | None, warnings: tuple[str, ...]) -> int:
    """While the command runs; what this takes to load is no longer on the user's clock."""
    if terminal is None and not session.options.verbose and (code := room.at_once()) is not None:
        return code
    from launcher.serve import serve

    return serve(session, room, terminal, warnings)


def _look_back(done: Plan) -> None:
    """When no process is left inside that could still make something."""
    from contextlib import suppress

    from launcher.aftermath import report

    text = "".join(f"egress: {line}\n" for line in report(done.repositories, done.project))
    with suppress(OSError):  # nobody reads it any more
        os.write(2, text.encode(errors="replace"))


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
    _warn(room.confined.enforced.missing if room.confined else ())


def _warn(lines: Iterable[str]) -> None:
    for line in lines:
        sys.stderr.write(f"egress: warning: {line}\n")


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
