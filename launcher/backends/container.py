"""A plan as the words that make a container of it. This list is the walls; read it from the top. Pure.

The root is an image instead of the host's, so of a plan's mounts those remain that show files of the host, and
what lies on these. An engine takes no order of mounts: it sorts them by depth, and a path may be there once. So
what a later mount covers is left out here, and then both orders mean the same.

    a closed file       a file of ours that nobody may open, mounted over it
    a hidden directory  an empty file system, read-only. podman would first copy into it what is hidden
    a text of ours      a file of the run's own directory

Variables go in by a file: command lines can be read by every user of the host, and values are secrets. Words of
the command come after the image, where no engine takes them for options; an image's entry point is set aside.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from egress.record import NamedTuple
from launcher.backends.model import Backend
from launcher.mounts import Kind, Mount, PlanError, by_depth, is_within
from launcher.options import Resources
from launcher.plan import Plan

# (word, why)
WALLS: tuple[tuple[str, str], ...] = (
    ("--network=none", "a network of its own, with loopback alone"),
    ("--read-only", "the image is not changed"),
    ("--cap-drop=ALL", "root inside is root in name only"),
    ("--security-opt=no-new-privileges", "setuid programs gain nothing"),
    ("--security-opt=label=disable", "or SELinux hides the project; to relabel the user's files would be worse"),
    ("--pull=never", "nothing is fetched without a word"),
    ("--log-driver=none", "what the command says is kept nowhere"),
    ("--rm", "gone when it has ended"),
    ("--interactive", "it has our standard input"),
)
PODMAN: tuple[tuple[str, str], ...] = (
    ("--http-proxy=false", "the host's own proxy, with its password, stays outside"),
    ("--read-only-tmpfs=false", "what is writable is said below"),
    ("--systemd=false", "no cgroups of its own to manage"),
)
OF_THE_IMAGE = ("PATH", "SHELL")  # variables that mean programs of the host
_KERNELS = ("/proc", "/sys", "/dev")  # every engine mounts these by itself
_TO_HOLD = 'read -r _ < "$0" && exec "$@"'
_AWKWARD = frozenset(',"\n\r')


class Setting(NamedTuple):
    """What the words depend on besides the plan."""

    backend: Backend
    name: str
    image: str = ""
    rootfs: str = ""  # a directory instead of an image
    user: tuple[int, int] = (0, 0)
    keep_id: bool = False  # rootless podman: the user inside is the user outside
    terminal: bool = False
    init: bool = True  # a first process that takes orphans, and that signals work with
    limits: Resources = Resources()
    seccomp: str = "unconfined"
    variables: str = ""  # the file with them
    closed: str = ""  # the file that cannot be opened
    files: Mapping[str, str] = {}  # by path inside: the file of ours that is mounted there
    hold: str = ""  # a pipe: the command waits for a line from it
    relay: bool = False  # the plan's command is the relay, to be run by a Python of the image's


def create(plan: Plan, setting: Setting) -> list[str]:
    """The words of `create`, without the engine's own name."""
    words = ["create", f"--name={setting.name}", *(word for word, _ in WALLS)]
    if setting.backend is Backend.PODMAN:
        words += [word for word, _ in PODMAN]
    words += _identity(plan, setting)
    words += _limits(setting.limits)
    words += [word for mount in layers(plan) for word in _mount(mount, setting)]
    words += [f"--mount=type=bind,source={setting.hold},target={setting.hold},readonly"] if setting.hold else []
    words += [f"--env-file={setting.variables}", f"--workdir={plan.directory}", "--entrypoint="]
    if setting.rootfs:
        return [*words, "--rootfs", f"{setting.rootfs}:O", *command(plan, setting)]
    return [*words, setting.image, *command(plan, setting)]


def command(plan: Plan, setting: Setting) -> list[str]:
    words = ["python3", *plan.command[1:]] if setting.relay else list(plan.command)
    return ["/bin/sh", "-c", _TO_HOLD, setting.hold, *words] if setting.hold else words


def variables(plan: Plan) -> str:
    """The file of them: one a line, which an engine takes as it is."""
    kept = {name: value for name, value in plan.env.items() if name in plan.passed or name not in OF_THE_IMAGE}
    for name, value in kept.items():
        if "\n" in value or "\r" in value:
            raise PlanError(f"the variable {name!r} has more than one line", "put it into a file of the project")
    return "".join(f"{name}={value}\n" for name, value in kept.items())


def layers(plan: Plan) -> list[Mount]:
    """What is mounted over the image; the order does not matter."""
    kept: list[Mount] = []
    for mount in plan.mounts:
        if _belongs(mount, kept):
            kept = [*(other for other in kept if not is_within(other.path, mount.path)), mount]
    return by_depth(kept)


def _belongs(mount: Mount, kept: Sequence[Mount]) -> bool:
    if mount.kind in (Kind.LINK, Kind.DEVICES, Kind.PROCESSES) or any(is_within(mount.path, top) for top in _KERNELS):
        return False
    if mount.kind in (Kind.EMPTY, Kind.CLOSED):
        return any(other.shows_host for other in _innermost(kept, mount.path))
    return mount.path != "/"


def _innermost(mounts: Iterable[Mount], path: str) -> list[Mount]:
    around = [mount for mount in mounts if is_within(path, mount.path)]
    return [max(around, key=lambda mount: len(mount.path))] if around else []


def _identity(plan: Plan, setting: Setting) -> Iterator[str]:
    yield "--user={}:{}".format(*setting.user)
    if setting.keep_id:
        yield "--userns=keep-id"
    yield f"--hostname={plan.hostname}"
    yield f"--security-opt=seccomp={setting.seccomp}"
    if setting.init:
        yield "--init"
    if setting.terminal:
        yield "--tty"


def _limits(limits: Resources) -> Iterator[str]:
    if limits.memory is not None:
        yield f"--memory={limits.memory}"
        yield f"--memory-swap={limits.memory}"  # or the same again is there to swap
    if limits.cpus is not None:
        yield f"--cpus={limits.cpus:g}"
    if limits.pids is not None:
        yield f"--pids-limit={limits.pids}"


def _mount(mount: Mount, setting: Setting) -> list[str]:
    for path in (mount.path, setting.files.get(mount.path, "")):
        if not _AWKWARD.isdisjoint(path):
            raise PlanError(f"{path!r} cannot be mounted in a container: it has a comma or a quote", "--backend bwrap")
    match mount.kind:
        case Kind.WRITE:
            return [f"--mount=type=bind,source={mount.path},target={mount.path}"]
        case Kind.READ:
            return [f"--mount=type=bind,source={mount.path},target={mount.path},readonly"]
        case Kind.CLOSED:
            return [f"--mount=type=bind,source={setting.closed},target={mount.path},readonly"]
        case Kind.TEXT | Kind.GIVEN:
            return [f"--mount=type=bind,source={setting.files[mount.path]},target={mount.path},readonly"]
    return [_tmpfs(mount, setting)]


def _tmpfs(mount: Mount, setting: Setting) -> str:
    """All may write what is scratch: it is the container's own, and would otherwise be its root's."""
    options = "rw,nosuid,nodev,mode=1777" if mount.kind is Kind.SCRATCH else "ro,nosuid,nodev,noexec,mode=0555"
    copying = ",notmpcopyup" if setting.backend is Backend.PODMAN else ""
    if ":" in mount.path:
        raise PlanError(f"{mount.path!r} cannot be hidden in a container: it has a colon", "--backend bwrap")
    return f"--tmpfs={mount.path}:{options}{copying}"
