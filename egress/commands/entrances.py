"""Where the gate listens, and for whom: `--listen`, `--unix` and the personas that go with them."""

from __future__ import annotations

import argparse
import os
import pwd
import re
import socket
from collections.abc import Callable
from functools import partial

from egress.commands.say import Failure
from egress.names import Malformed, as_address, split_authority
from egress.net.listeners import close_listening, open_tcp, open_unix
from egress.policy import Policy
from egress.sessions import Door
from egress.signpost import Entrance
from egress.users import Users

Opened = list[tuple[socket.socket, Door]]
_DEFAULT = "127.0.0.1:3128"
_ONE_USER, _ANY_USER = 0o600, 0o666  # of others the door asks who they are: the mode could not tell them apart
_WITH_PERSONA = re.compile(r"([A-Za-z0-9][A-Za-z0-9_.-]*)@(.+)")


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--listen", metavar="[PERSONA@]ADDR:PORT", action="append", default=[], help=f"repeatable; default {_DEFAULT}"
    )
    parser.add_argument(
        "--unix", metavar="[PERSONA@]PATH", action="append", default=[], help="listen on a Unix socket; repeatable"
    )
    parser.add_argument(
        "--unix-user", metavar="NAME", action="append", default=[], help="another user who may use the Unix sockets"
    )


def open_all(args: argparse.Namespace, policy: Policy, users: Users | None) -> Opened:
    """Every listening socket with its door. If one cannot be had, none is kept."""
    peers = frozenset({0, os.getuid(), *map(_uid, args.unix_user)})
    unix: Callable[[str], socket.socket] = partial(open_unix, mode=_ANY_USER if args.unix_user else _ONE_USER)
    wanted = [(text, _tcp, None) for text in args.listen or ([] if args.unix else [_DEFAULT])]
    opened: Opened = []
    try:
        for text, opener, allowed in [*wanted, *((text, unix, peers) for text in args.unix)]:
            persona, where = _split(text, args.persona, policy, users)
            opened.append((_open(opener, where), Door(persona, allowed)))
    except Failure:
        close_all(opened)
        raise
    return opened


def close_all(opened: Opened) -> None:
    for sock, _ in opened:
        close_listening(sock)


def addresses(opened: Opened) -> list[Entrance]:
    """Those on the network that are one persona's."""
    return [
        Entrance(door.persona, *sock.getsockname()[:2])
        for sock, door in opened
        if door.persona and sock.family != socket.AF_UNIX
    ]


def describe(sock: socket.socket, door: Door) -> str:
    """One fact for whoever started us: where, and for whom."""
    who = door.persona or "by password"
    if sock.family == socket.AF_UNIX:
        return f"unix:{sock.getsockname()} {who}"
    host, port = sock.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port} {who}"


def _split(text: str, default: str | None, policy: Policy, users: Users | None) -> tuple[str | None, str]:
    """Whose an entrance is (None: whoever has a password), and where."""
    match = _WITH_PERSONA.fullmatch(text)
    persona, where = match.groups() if match else (None if users else default, text)
    if persona is None and users is None:
        raise Failure(f"no persona for {text!r}", f"add --persona NAME, one of: {', '.join(policy.personas)}")
    for name in {persona} if persona else users.personas if users else ():
        if name not in policy.personas:
            raise Failure(f"unknown persona {name!r}", f"use one of: {', '.join(policy.personas)}")
    return persona, where


def _open(opener: Callable[[str], socket.socket], where: str) -> socket.socket:
    try:
        return opener(where)
    except Malformed as error:
        raise Failure(str(error), "write it as --listen 127.0.0.1:3128") from None
    except OSError as error:
        words = f"cannot listen on {where}: {error.strerror or error}"
        raise Failure(words, "choose another with --listen or --unix") from None


def _tcp(where: str) -> socket.socket:
    host, port = split_authority(where)
    if as_address(host) is None or port is None or not re.fullmatch("0|[1-9][0-9]{0,4}", port) or int(port) > 65535:
        raise Malformed(f"{where!r} is not ADDRESS:PORT, with an address and not a name")
    return open_tcp(host, int(port))


def _uid(name: str) -> int:
    try:
        return pwd.getpwnam(name).pw_uid
    except KeyError:
        raise Failure(f"no user {name!r} on this machine", "getent passwd") from None
