"""A plan in words for a person, and as the line that a shell would run.

Neither shows the value of a variable that the user passes in: the words name it, and the line has the
shell put it in.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from launcher.bwrap import NAMESPACES, Descriptors, arguments
from launcher.mounts import Kind, Mount
from launcher.plan import Plan

_FIRST_FREE_FD = 10  # in a shell, those below are its own
_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789@%+=:,./-_")


def explain(plan: Plan) -> str:
    """What the sandbox will see and may do, for --dry-run."""
    return "\n".join(_lines(plan)) + "\n"


def _lines(plan: Plan) -> Iterator[str]:
    yield "command"
    yield f"  {quoted(plan.command)}"
    yield f"  in {plan.directory}"
    yield "files, the last word on a path counts"
    yield from _columns((mount.kind, _shown(mount, plan), mount.why) for mount in plan.mounts)
    yield "  a new file that a pattern such as *.pem matches can be made: it is the sandbox's own"
    if plan.placeholders:
        yield "placeholders on the host, while it runs"
        yield from (f"  {place.root}/{place.path}{'/' * place.is_dir}" for place in plan.placeholders)
    yield "processes"
    yield from _columns((" ".join(words), "", why) for words, why in NAMESPACES)
    yield "environment, and nothing else"
    yield from (f"  {name}={_value(plan, name)}" for name in sorted(plan.env))
    for title, lines in (("notes", plan.notes), ("warnings", plan.warnings)):
        if lines:
            yield title
            yield from (f"  {line}" for line in lines)


def _shown(mount: Mount, plan: Plan) -> str:
    arrow = f" -> {mount.text}" if mount.kind is Kind.LINK else ""
    home = plan.env.get("HOME", "/")
    path = "~" + mount.path[len(home) :] if mount.path.startswith(home + "/") else mount.path
    return path + arrow


def _value(plan: Plan, name: str) -> str:
    return "(passed)" if name in plan.passed else plan.env[name]


def _columns(rows: Iterable[tuple[str, str, str]]) -> Iterator[str]:
    table = list(rows)
    widths = [max(len(row[column]) for row in table) for column in (0, 1)]
    for first, second, third in table:
        yield f"  {first:{widths[0]}}  {second:{widths[1]}}  {third}".rstrip()


class _Text(NamedTuple):
    fd: int
    text: str


def shell_line(plan: Plan) -> str:
    """The same sandbox from a bash prompt, for --print-argv. Placeholders are left to bwrap there, and remain."""
    texts = [mount for mount in plan.mounts if mount.kind in (Kind.TEXT, Kind.GIVEN)]
    carried = {mount.path: _Text(fd, mount.text) for fd, mount in enumerate(texts, _FIRST_FREE_FD)}
    fds = Descriptors(data={path: text.fd for path, text in carried.items()})
    hidden = plan._replace(env={name: _PASSED if name in plan.passed else value for name, value in plan.env.items()})
    words = list(_with_variables(arguments(hidden, fds)))
    redirects = [f"{text.fd}< <(printf %s {quote(text.text)})" for text in carried.values()]
    return " ".join(["bwrap", *words, "--", quoted(plan.command), *redirects])


_PASSED = "\0"  # stands for a value that is not shown; no real one can be this


def _with_variables(words: Iterable[str]) -> Iterator[str]:
    before = ""
    for word in words:
        yield f'"${before}"' if word == _PASSED else quote(word)
        before = word


def quoted(words: Iterable[str]) -> str:
    return " ".join(map(quote, words))


def quote(word: str) -> str:
    """For a shell; as shlex does, without loading it."""
    if word and _PLAIN.issuperset(word):
        return word
    return "'" + word.replace("'", "'\"'\"'") + "'"
