"""Where policy comes from: the shipped files, the user's own, and those named on the command line.

Never the working directory: the agent can write there. For the same reason a relative
`$XDG_CONFIG_HOME` or `$HOME` names no directory here.

A file is opened once, checked and read by that descriptor, so what was checked is what was read. It
must be a regular file: a FIFO or a device would hold the gate at its pleasure.
"""

from __future__ import annotations

import errno
import gc
import os
import stat
import sys
from collections.abc import Hashable, Iterable, Iterator, Mapping

import egress
from egress.record import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from egress.model import Source
    from egress.policy import Policy
    from egress.policybook import Book, ToolHost
    from egress.policyfile import Document
    from egress.problems import PolicyError, Problems
    from egress.toolhosts.machine import Machine

MAX_BYTES = 64 * 1024 * 1024
SHIPPED_AS = "policies"


class File(NamedTuple):
    path: str
    shown: str  # what stands before the line number in messages and in the log


class Sources(NamedTuple):
    """What a run was told to obey. `persona`, where given, must exist for the policy to be usable."""

    shipped: str
    user: str | None
    files: tuple[File, ...] = ()
    allow: tuple[str, ...] = ()
    persona: str | None = None
    writable: tuple[str, ...] = ()  # where a sandbox writes: no tool's configuration is taken from there


def locate(
    files: Iterable[str] = (),
    allow: Iterable[str] = (),
    persona: str | None = None,
    environ: Mapping[str, str] = os.environ,
    writable: tuple[str, ...] = (),
) -> Sources:
    """The sources for these options. Paths are made absolute now: a reload happens somewhere else, later."""
    named = tuple(File(os.path.abspath(name), name) for name in files)
    return Sources(_shipped(), _user(environ), named, tuple(allow), persona, writable)


def load(sources: Sources) -> Policy:
    """The policy as the files have it now; raises `PolicyError` with all that is wrong in them."""
    from egress.policybook import choose

    with Undisturbed():
        policy = read(sources).policy(sources.allow)
        if sources.persona is not None:
            choose(policy, sources.persona)
    return policy


def implied(sources: Sources) -> str | None:
    """The persona that is meant where none is named: the only one that the files on the command line define."""
    from egress.problems import Problems

    problems = Problems()
    names = {name for document in _documents(sources.files, problems) for name in document.personas}
    problems.settle()
    return names.pop() if len(names) == 1 else None


def text_of(name: str) -> str:
    """What is in a file that was named on the command line."""
    return _text(File(os.path.abspath(name), name))


def read(sources: Sources) -> Book:
    """All definitions, before a persona is put together."""
    from egress.policylayers import bind  # who only locates and compares need not pay for YAML
    from egress.problems import Problems

    problems = Problems()
    with Undisturbed():
        layers = [_documents(files, problems) for files in _layers(sources)]
        problems.settle()
        return bind(layers, lambda tool: _tool_hosts(tool, sources))


class Undisturbed:
    """While a policy is made nobody looks for garbage: all of it stays, and each look takes longer than the last."""

    def __enter__(self) -> None:
        self._collecting = gc.isenabled()
        gc.disable()

    def __exit__(self, *_: object) -> None:
        if self._collecting:
            gc.enable()


def _tool_hosts(tool: str, sources: Sources) -> Iterable[ToolHost]:
    from egress.toolhosts import expand  # asks the tool itself, so only for a rule that says `tool:`

    return expand(tool, machine(sources))


def machine(sources: Sources) -> Machine:
    """This one, as far as no sandbox can write to it."""
    from egress.toolhosts.machine import this_machine

    here = this_machine()
    return here._replace(writable=(*here.writable, *sources.writable))


def tools_of(sources: Sources) -> frozenset[str]:
    """The tools whose configuration the persona's rules stand on."""
    asked: set[str] = set()

    def note(tool: str) -> Iterable[ToolHost]:
        asked.add(tool)
        return ()

    if sources.persona is not None:
        read(sources)._replace(tools=note).persona(sources.persona)
    return frozenset(asked)


def fingerprint(sources: Sources) -> Hashable:
    """Differs when a file, or the set of files, has changed; costs a few system calls and never raises."""
    paths = [*_names(sources.shipped), *_names(sources.user), *(file.path for file in sources.files)]
    return tuple((path, _identity(path)) for path in paths), _of_tools()


def _of_tools() -> Hashable:
    """Of the tools that were asked; where none was, their part of the program is not even loaded."""
    asked = sys.modules.get("egress.toolhosts")
    return () if asked is None else asked.fingerprint()


def is_shipped(source: Source, sources: Sources) -> bool:
    """Whether a line came with the program, and so is not for editing."""
    return source.file.startswith(f"{SHIPPED_AS}/") and all(source.file != file.shown for file in sources.files)


def _shipped() -> str:
    """Inside the package as installed, beside it in a checkout."""
    package = os.path.dirname(os.path.abspath(egress.__file__))
    inside = os.path.join(package, SHIPPED_AS)
    return inside if os.path.isdir(inside) else os.path.join(os.path.dirname(package), SHIPPED_AS)


def _user(environ: Mapping[str, str]) -> str | None:
    config = environ.get("XDG_CONFIG_HOME", "")
    if not os.path.isabs(config):
        config = os.path.join(environ.get("HOME", ""), ".config")
    return os.path.join(config, "egress") if os.path.isabs(config) else None


def _layers(sources: Sources) -> Iterator[list[File]]:
    yield [File(path, f"{SHIPPED_AS}/{os.path.basename(path)}") for path in _listing(sources.shipped)]
    if sources.user is not None:
        yield [File(path, path) for path in _listing(sources.user, optional=True)]
    for file in sources.files:
        yield [file]


def _listing(directory: str, optional: bool = False) -> list[str]:
    try:
        names = sorted(filter(_is_policy, os.listdir(directory)))
    except OSError as error:
        if optional and error.errno == errno.ENOENT:
            return []
        raise _wrong(str(directory), 0, f"cannot be read: {error.strerror}") from None
    for name in names:
        if name.endswith(".yml"):  # a deny list that is silently not read is worse than an error
            path = os.path.join(directory, name)
            raise _wrong(path, 0, "is not read under this name; rename it to end in .yaml")
    return [os.path.join(directory, name) for name in names]


def _is_policy(name: str) -> bool:
    """Not what editors put beside the file they have open."""
    return name.endswith((".yaml", ".yml")) and not name.startswith(".")


def _documents(files: Iterable[File], problems: Problems) -> list[Document]:
    from egress.policyfile import parse_document
    from egress.problems import PolicyError

    documents = []
    for file in files:
        try:
            documents.append(parse_document(_text(file), file.shown))
        except PolicyError as error:
            problems.absorb(error)
    return documents


def _wrong(file: str, line: int, message: str) -> PolicyError:
    from egress.model import Source
    from egress.problems import wrong

    return wrong(Source(file, line), message)


def _text(file: File) -> str:
    try:
        data = _bytes(file.path)
    except OSError as error:
        raise _wrong(file.shown, 0, f"cannot be read: {error.strerror or error}") from None
    if len(data) > MAX_BYTES:
        raise _wrong(file.shown, 0, f"is larger than {MAX_BYTES} bytes")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise _wrong(file.shown, line, f"not UTF-8: byte 0x{data[error.start]:02x}") from None


def _bytes(path: str) -> bytes:
    # Without O_NONBLOCK the open itself would wait for a FIFO's writer.
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError("is not a regular file")
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            return file.read(MAX_BYTES + 1)
    finally:
        os.close(descriptor)


def _names(directory: str | None) -> list[str]:
    try:
        return (
            [os.path.join(directory, name) for name in sorted(os.listdir(directory)) if _is_policy(name)]
            if directory
            else []
        )
    except OSError:
        return []


def _identity(path: str) -> Hashable:
    try:
        at = os.stat(path)
    except OSError as error:
        return error.errno
    return at.st_dev, at.st_ino, at.st_mtime_ns, at.st_ctime_ns, at.st_size
