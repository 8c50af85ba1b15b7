"""Backends `podman` and `docker`: the command runs in an image, with the project and what was granted mounted in it.

Of the host nothing else is there: programs and system files are the image's. So the survey of this machine is kept
where it is about the project, the home and what was asked for, and set aside where it is about programs.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from egress.rootfiles import BUNDLES
from launcher import trust
from launcher.backends.container import PODMAN, WALLS, Setting, create, layers, variables
from launcher.backends.engines import Engine, Facts, find
from launcher.backends.model import Backend, Fit, Lack, sentences, words
from launcher.backends.private import Private
from launcher.explain import quoted
from launcher.mounts import Kind, Mount, PlanError
from launcher.netns.model import Wanted
from launcher.process import on_terminal
from launcher.seccomp import DEBUG, DEFAULT, OFF, SeccompError

if TYPE_CHECKING:
    from launcher import plan as planning
    from launcher.backends.containerroom import ContainerRoom
    from launcher.options import Options, Resources
    from launcher.plan import Plan
    from launcher.request import Request
    from launcher.seccomp import Filter
    from launcher.terminal import Terminal

_SHOWN = "/tmp/egress-RUN"  # noqa: S108  # as it is shown, where nothing is to be run
_NAMESERVER = "nameserver 198.18.0.1\n"


def site(fit: Fit, options: Options) -> Containers:
    return Containers(fit, options)


class Containers:
    takes_terminal = False  # the engine's client handles the user's own

    def __init__(self, fit: Fit, options: Options) -> None:
        self.fit = fit._replace(lacks=(Lack.CAPTURE,)) if options.bridge == "relay" else fit
        self._options = options
        self._is_shown = options.dry_run or options.print_argv
        self._private: Private | None = None

    def settle(self, options: Options) -> Options:
        """Where the network cannot be joined, through a relay."""
        backend = self.fit.backend
        if options.image and options.rootfs:
            raise PlanError("--image and --rootfs exclude each other", "give one of them", status=2)
        if options.rootfs and backend is Backend.DOCKER:
            raise PlanError("docker runs images, not directories", "--backend podman, or docker import", status=2)
        if not options.image and not options.rootfs:
            hint = "--image IMAGE, or `sandbox: {image: IMAGE}` in the persona"
            raise PlanError(f"backend {backend} needs an image", hint, status=2)
        if options.image and options.image.startswith("-"):
            raise PlanError(f"{options.image!r} is not an image", "--image ubuntu:24.04", status=2)
        bridge = "relay" if Lack.CAPTURE in self.fit.lacks else options.bridge
        self._options = options._replace(bridge=bridge, rootfs=options.rootfs and os.path.realpath(options.rootfs))
        return self._options

    def trusted(self) -> tuple[trust.Given, ...]:
        """Also where most images look; a file that an image does not have is made for the run."""
        usual = trust.Given(trust.Content.BUNDLE, BUNDLES[0], "the host's authorities, and the gate's")
        return (usual, *trust.OWN)

    def arrange(self, request: Request, trusting: bool) -> Request:
        if not trusting:
            return request
        files = (Mount(Kind.GIVEN, file.path, file.why) for file in self.trusted())
        return request._replace(files=(*request.files, *files), variables={**request.variables, **trust.variables()})

    def see(self, facts: planning.Facts) -> planning.Facts:
        resolver = Mount(Kind.TEXT, "/etc/resolv.conf", "DNS ends at the gate", text=_NAMESERVER)
        return facts._replace(program=self._options.command[0], binds=(), links=(), texts=(resolver,))

    def show(self, plan: Plan, as_line: bool) -> str:
        engine = find(self.fit.backend)
        files = {mount.path: f"{_SHOWN}/file" for mount in plan.mounts if mount.kind in (Kind.TEXT, Kind.GIVEN)}
        setting = self._setting(plan, engine.facts(), _SHOWN, files, "")
        if as_line:
            line = quoted((self.fit.backend, *create(plan, setting)))
            return f"{line}\n{self.fit.backend} start --attach --interactive {setting.name}\n"
        return "\n".join(self._lines(plan)) + "\n"

    def _lines(self, plan: Plan) -> list[str]:
        walls = (*WALLS, *(PODMAN if self.fit.backend is Backend.PODMAN else ()))
        return [
            words(self.fit).removeprefix("warning: "),
            *(f"  {sentence}" for sentence in sentences(self.fit.lacks)),
            f"image\n  {self._options.image or self._options.rootfs}",
            f"command\n  {quoted(plan.command)}\n  in {plan.directory}",
            "files, over those of the image",
            *(f"  {mount.kind:9}  {mount.path}  {mount.why}" for mount in layers(plan)),
            "walls",
            *(f"  {word}  {why}" for word, why in walls),
            "environment, besides the image's own",
            *(f"  {line.partition('=')[0]}" for line in variables(plan).splitlines()),
        ]

    def room(
        self, plan: Plan, options: Options, terminal: Terminal | None, filters: Filter, given: Mapping[str, int]
    ) -> ContainerRoom:
        from launcher.backends.containerroom import ContainerRoom, files_of

        engine = find(self.fit.backend, [mount.path for mount in plan.mounts if mount.kind is Kind.WRITE])
        self._check_image(engine)
        facts = engine.facts()
        self._private = Private()
        filled = {path: f"{self._private.trust}/{place}" for place, path in enumerate(given)}
        self._private.fill({filled[path]: source for path, source in given.items()})
        files = files_of(plan, self._private.path, filled)
        setting = self._setting(plan, facts, self._private.path, files, _seccomp(options, self._private.path))
        _write(setting.variables, variables(plan), 0o600)
        _write(setting.closed, "", 0)
        if setting.hold:
            os.mkfifo(setting.hold, 0o600)
        wanted = None if setting.relay else Wanted(host_ports=options.host_ports)
        return ContainerRoom(engine, plan, setting, wanted, _unheld(options.resources, facts), self.close)

    def _setting(self, plan: Plan, facts: Facts, directory: str, files: Mapping[str, str], seccomp: str) -> Setting:
        options, backend = self._options, self.fit.backend
        relay = options.bridge == "relay"
        keep_id = backend is Backend.PODMAN and facts.rootless
        # A rootless docker has no way to keep the user's number: there, root inside is the user outside.
        is_root = backend is Backend.DOCKER and facts.rootless
        return Setting(
            backend=backend,
            name=f"egress-{os.path.basename(directory).removeprefix('egress-')}",
            image=options.image or "",
            rootfs=options.rootfs or "",
            user=(0, 0) if is_root else (os.getuid(), os.getgid()),
            keep_id=keep_id,
            terminal=all(map(os.isatty, (0, 1))) and on_terminal(),
            init=facts.init,
            limits=options.resources,
            seccomp=seccomp or options.seccomp,
            variables=f"{directory}/variables",
            closed=f"{directory}/closed",
            files=files,
            hold=f"{directory}/hold" if backend is Backend.DOCKER and not relay else "",
            relay=relay,
        )

    def _check_image(self, engine: Engine) -> None:
        image = self._options.image
        if image and not engine.has_image(image):
            raise PlanError(f"the image {image!r} is not on this machine", f"{engine.backend} pull {image}")
        rootfs = self._options.rootfs
        if rootfs and not os.path.isdir(rootfs):
            raise PlanError(f"--rootfs {rootfs!r} is not a directory", "--rootfs DIR, with a /bin in it", status=2)

    def close(self) -> None:
        if self._private is not None:
            self._private.remove()


def _write(path: str, text: str, mode: int) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        os.write(descriptor, text.encode(errors="surrogateescape"))
        os.fchmod(descriptor, mode)
    finally:
        os.close(descriptor)


def _unheld(wanted: Resources, facts: Facts) -> tuple[str, ...]:
    asked = {"memory": wanted.memory, "cpus": wanted.cpus, "pids": wanted.pids}
    lost = [name for name, value in asked.items() if value is not None and name not in facts.limits]
    return tuple(f"{name}: not held, the engine has no cgroup for it" for name in lost)


def _seccomp(options: Options, directory: str) -> str:
    """What follows `seccomp=`. A profile of one's own is in the engine's words already."""
    choice = options.seccomp
    if choice not in (DEFAULT, DEBUG):
        if options.deny_calls or options.allow_calls is not None:
            raise PlanError(
                f"--seccomp {choice} and the persona's lists of calls: an engine takes one filter", "leave one out", 2
            )
        return "unconfined" if choice == OFF else os.path.abspath(choice)
    from launcher.backends.ociseccomp import engine_profile, narrowed
    from launcher.libseccomp import Library
    from launcher.seccomp import profile_text
    from launcher.seccomp_bpf import MACHINES
    from launcher.seccomp_profile import parse

    machine = os.uname()
    try:
        profile = parse(profile_text(choice), machine.machine, machine.release)
        made = engine_profile(profile, Library(MACHINES[machine.machine].token).names())
    except SeccompError as error:
        raise PlanError(str(error), error.hint) from None
    made = narrowed(made, options.deny_calls, options.allow_calls)
    _write(f"{directory}/seccomp.json", json.dumps(made), 0o600)
    return f"{directory}/seccomp.json"
