"""`egress-launch`: the command line. What it imports is paid before every command: keep it short."""

from __future__ import annotations

import argparse
import signal
import sys

from launcher.interrupts import Interrupted, end_with
from launcher.mounts import PlanError
from launcher.options import Options, Resources, parse_port, parse_positive, parse_publish, parse_size
from launcher.process import fill_standard_streams

_FAILED = 125


def main(argv: list[str] | None = None) -> int:
    fill_standard_streams()
    words = sys.argv[1:] if argv is None else argv
    parser = _parser()
    options, command = _split(words)
    args = parser.parse_args(options)
    if not command:
        parser.error("no command given: egress-launch [options] -- COMMAND [ARG]…")
    from launcher.run import launch
    from launcher.terminal import on_terminal

    try:
        code = launch(_options(args, command))
        return end_with(code) if on_terminal() else code
    except PlanError as error:
        return _complain(str(error), error.hint, error.status)
    except Interrupted as signalled:
        return signalled.code
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except OSError as error:
        return _complain(str(error), "egress doctor", _FAILED)


def _split(words: list[str]) -> tuple[list[str], list[str]]:
    """Ours before the first `--`, the command's after it."""
    if "--" not in words:
        return words, []
    at = words.index("--")
    return words[:at], words[at + 1 :]


def _complain(message: str, hint: str, status: int) -> int:
    for line in message.splitlines():
        print(f"egress: error: {line}", file=sys.stderr)
    print(f"egress: hint: {hint or 'egress-launch --help'}", file=sys.stderr)
    return status


def _options(args: argparse.Namespace, command: list[str]) -> Options:
    memory = None if args.memory is None else parse_size(args.memory)
    cpus, timeout = (None if text is None else parse_positive(text) for text in (args.cpus, args.timeout))
    pids = None if args.pids is None else int(parse_positive(args.pids))
    return Options(
        command=tuple(command),
        persona=args.persona,
        policy=tuple(args.policy),
        allow=tuple(args.allow),
        project=args.project,
        write=tuple(args.rw),
        read=tuple(args.ro),
        sockets=tuple(args.socket),
        env=tuple(args.env),
        publish=tuple(map(parse_publish, args.publish)),
        host_ports=tuple(map(parse_port, args.host_port)),
        seccomp=args.seccomp,
        bridge=args.bridge,
        resources=Resources(memory, cpus, pids, timeout),
        audit=args.audit,
        dns_server=args.dns_server,
        upstream=args.upstream,
        quiet=args.quiet,
        verbose=args.verbose,
        dry_run=args.dry_run,
        print_argv=args.print_argv,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="egress-launch",
        usage="egress-launch --persona NAME [options] -- COMMAND [ARG]…",
        description="Run a command in a sandbox that can reach its persona's hosts, and nothing else.",
        epilog="example:\n  egress-launch --persona implementer -- claude",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _add_network(parser.add_argument_group("network"))
    _add_files(parser.add_argument_group("files and environment"))
    _add_walls(parser.add_argument_group("walls and limits"))
    _add_speech(parser.add_argument_group("what it says"))
    return parser


def _repeated(group: argparse._ArgumentGroup, name: str, metavar: str, text: str) -> None:
    group.add_argument(name, metavar=metavar, action="append", default=[], help=f"{text}; repeatable")


def _add_network(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--persona", metavar="NAME", help="whose rules apply (`egress policy show` lists them)")
    _repeated(group, "--policy", "FILE", "a further policy file, over all others")
    _repeated(group, "--allow", "HOST[:PORT]", "one more rule for this run")
    _repeated(group, "--publish", "PORT[:HOSTPORT]", "make a server inside reachable at 127.0.0.1 on the host")
    _repeated(group, "--host-port", "PORT", "make a service on the host's loopback reachable at 127.0.0.1 inside")
    group.add_argument("--bridge", choices=["handover", "relay"], default="handover", help="how the network gets out")
    group.add_argument("--dns-server", metavar="ADDR[:PORT]", help="resolve there instead of by the system")
    group.add_argument("--upstream", metavar="URL|env", help="reach the internet through another HTTP proxy")


def _add_files(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--project", metavar="DIR", default=".", help="the writable directory (default: this one)")
    _repeated(group, "--rw", "PATH", "another writable path")
    _repeated(group, "--ro", "PATH", "another readable path")
    _repeated(group, "--socket", "PATH", "a Unix socket of the host to let through")
    _repeated(group, "--env", "NAME[=VALUE]", "a variable to pass in")


def _add_walls(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--seccomp", metavar="default|debug|off|FILE", default="default", help="system call filter")
    group.add_argument("--memory", metavar="SIZE", help="such as 4G, for the whole sandbox")
    group.add_argument("--cpus", metavar="N", help="such as 2 or 0.5")
    group.add_argument("--pids", metavar="N", help="most processes and threads")
    group.add_argument("--timeout", metavar="SECONDS", help="end it after that")


def _add_speech(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--audit", metavar="FILE", help="default $XDG_STATE_HOME/egress/audit.jsonl")
    group.add_argument("--quiet", action="store_true", help="say nothing of what was blocked")
    group.add_argument("--verbose", action="store_true", help="say what is set up, and the counts at the end")
    group.add_argument("--dry-run", action="store_true", help="show what would be true inside, and stop")
    group.add_argument("--print-argv", action="store_true", help="show the bwrap command, and stop")
    from egress import __version__

    group.add_argument("--version", action="version", version=f"egress {__version__}")


if __name__ == "__main__":
    sys.exit(main())
