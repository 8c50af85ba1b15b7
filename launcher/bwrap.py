"""A plan as bwrap's arguments. This list is the walls; read it from the top.

    namespaces     nothing of the host's processes, network, IPC or names; no way to make namespaces anew
    identity       the same user, without a single capability
    files          the plan's mounts, in their order
    environment    cleared, then set word by word
    life           it dies with its parent; it gets no terminal but ours

Three things are not in the list, and the caller owes them:

    an empty environment for bwrap itself. --clearenv is for the command; the process that stays as pid 1
        inside was started with bwrap's own, and /proc/1/environ shows it;
    no descriptors but 0 to 2 and those named here. bwrap closes what it was told of and hands on the rest;
    the list by --args. Command lines can be read by every user of the host, and values of variables are
        secrets. The command itself stays behind `--` on the real command line, where no word of it can be
        taken for an option.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from egress.record import NamedTuple
from launcher.mounts import DEV_NULL, Kind, Mount, PlanError
from launcher.plan import Plan

Words = list[str]

# (words, why)
NAMESPACES: tuple[tuple[tuple[str, ...], str], ...] = (
    (("--unshare-all",), "its own mount, pid, ipc, uts, cgroup and network namespaces"),
    (("--unshare-user",), "its own user namespace, or it does not start"),
    (("--disable-userns",), "and none within that: no way to capabilities, mounts and their kernel code"),
    (("--cap-drop", "ALL"), "root inside is root in name only"),
    (("--die-with-parent",), "no sandbox without its launcher"),
)


class Descriptors(NamedTuple):
    """Open descriptors that bwrap inherits; all are closed before the command starts."""

    data: Mapping[str, int] = {}  # by path: texts to be mounted there
    binds: Mapping[str, int] = {}  # by path: what to bind there, opened without following links
    info: int | None = None
    block: int | None = None
    status: int | None = None
    seccomp: tuple[int, ...] = ()

    @property
    def all(self) -> tuple[int, ...]:
        single = (self.info, self.block, self.status)
        return (*self.data.values(), *self.binds.values(), *(fd for fd in single if fd is not None), *self.seccomp)


def arguments(plan: Plan, fds: Descriptors) -> Words:
    """The options, for --args."""
    words = [word for option, _ in NAMESPACES for word in option]
    words += ["--hostname", plan.hostname]
    words += [word for mount in plan.mounts for word in _mount(mount, fds)]
    words += ["--clearenv"]
    words += [word for name, value in plan.env.items() for word in ("--setenv", name, value)]
    words += ["--chdir", plan.directory]
    words += ["--new-session"] if plan.new_session else []
    words += _control(fds)
    return words


def packed(words: Iterable[str]) -> bytes:
    """The list as --args reads it."""
    encoded = [word.encode(errors="surrogateescape") for word in words]
    if any(b"\0" in word for word in encoded):
        raise PlanError("a NUL byte cannot be part of a path or a variable")
    return b"".join(word + b"\0" for word in encoded)


def command_line(bwrap: str, args_fd: int, plan: Plan) -> Words:
    """What is executed on the host."""
    return [bwrap, "--args", str(args_fd), "--", *plan.command]


def _mount(mount: Mount, fds: Descriptors) -> Words:
    path = mount.path
    if path in fds.binds and mount.beneath:
        option = "--bind-fd" if mount.kind is Kind.WRITE else "--ro-bind-fd"
        return [option, str(fds.binds[path]), path]
    if mount.kind in (Kind.TEXT, Kind.GIVEN):
        return ["--perms", "0444", "--ro-bind-data", str(fds.data[path]), path]
    return _FORMS[mount.kind](mount)


_FORMS = {
    Kind.READ: lambda mount: ["--ro-bind", mount.path, mount.path],
    Kind.WRITE: lambda mount: ["--bind", mount.path, mount.path],
    Kind.SCRATCH: lambda mount: ["--perms", _scratch_mode(mount.path), "--tmpfs", mount.path],
    Kind.EMPTY: lambda mount: ["--perms", "0555", "--tmpfs", mount.path],
    # A device without its driver: cannot be opened, written, renamed or removed, and git takes no notice.
    Kind.CLOSED: lambda mount: ["--ro-bind", DEV_NULL, mount.path],
    Kind.LINK: lambda mount: ["--symlink", mount.text, mount.path],
    Kind.DEVICES: lambda mount: ["--dev", mount.path],
    Kind.PROCESSES: lambda mount: ["--proc", mount.path],
}


def _scratch_mode(path: str) -> str:
    """As on any machine: all may use /tmp, and a home is its owner's."""
    return "1777" if path in _SHARED else "0700"


_SHARED = ("/tmp", "/var/tmp", "/dev/shm")  # noqa: S108


def _control(fds: Descriptors) -> Iterator[str]:
    for option, fd in (("--info-fd", fds.info), ("--json-status-fd", fds.status), ("--block-fd", fds.block)):
        if fd is not None:
            yield from (option, str(fd))
    for fd in fds.seccomp:
        yield from ("--add-seccomp-fd", str(fd))
