"""The machine: what it is, and what of it a sandbox can have besides walls."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import termios

from launcher import ground
from launcher.cgroup import look, mounted
from launcher.checks.model import Finding, fail, ok, warn
from launcher.confine import confine
from launcher.limits import Facts, plan_limits
from launcher.options import Resources

_AGENTS = ("claude", "codex")
_TOOLS = ("node", "python3", "git", "ssh")
_TRIAL = Resources(memory=1 << 30, cpus=1, pids=1000)
_UNIFIED = """\
sudo sed -i \\
  's/^GRUB_CMDLINE_LINUX="/&systemd.unified_cgroup_hierarchy=1 /' \\
  /etc/default/grub && sudo update-grub # and boot again"""
_CONTAINER = "docker run --memory 8G --cpus 4 --pids-limit 2000 … # around it all"
_LINGER = "loginctl enable-linger # for a systemd of your own, which makes them"
_DELEGATE = """\
sudo mkdir -p /etc/systemd/system/user@.service.d
printf '[Service]\\nDelegate=cpu memory pids\\n' |
  sudo tee /etc/systemd/system/user@.service.d/egress.conf
sudo systemctl daemon-reload # and log in again"""


def system() -> Finding:
    name = next((line[12:].strip().strip('"') for line in _release() if line.startswith("PRETTY_NAME=")), "Linux")
    kernel = os.uname()
    container = ground.engine(os.environ)
    who = "root" if os.geteuid() == 0 else f"user {os.geteuid()}"
    where = f", in a container ({container})" if container else ""
    return ok(f"{name}, Linux {kernel.release} on {kernel.machine}, as {who}{where}")


def _release() -> list[str]:
    return ground.read("/etc/os-release").splitlines()


def limits() -> Finding:
    """Imposed on a process that does nothing."""
    facts = look()
    pid = os.fork()
    if pid == 0:
        signal.pause()
    try:
        confined = confine(plan_limits(_TRIAL, facts), pid)
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    confined.release()
    kinds = sorted({words.split(":")[0] for words in confined.enforced.missing})
    if not kinds:
        return ok("memory, cpus and pids can be bounded for a sandbox as a whole")
    return warn(f"no cgroup for {', '.join(kinds)}: these limits hold in part or not at all", _cure(facts))


def _cure(facts: Facts) -> str:
    mount = mounted()
    if mount is None or "memory" not in ground.read(f"{mount.path}/cgroup.controllers"):
        return _UNIFIED
    if ground.engine(os.environ):
        return _CONTAINER
    return _DELEGATE if facts.manager else _LINGER


def terminal() -> Finding:
    try:
        master, slave = os.openpty()
        fcntl.ioctl(master, termios.TIOCSWINSZ, bytes(8))
    except OSError as error:
        mount = "sudo mount -t devpts devpts /dev/pts -o ptmxmode=0666,mode=0620"
        return fail(f"there can be no new terminal: {error.strerror}", f"{mount}\nsudo sysctl -w kernel.pty.max=4096")
    is_terminal = os.isatty(slave)
    os.close(master)
    os.close(slave)
    return ok("can be made") if is_terminal else fail("a new terminal is none", "ls -l /dev/ptmx /dev/pts")


def programs() -> Finding:
    names = (*_AGENTS, *_TOOLS)
    found = [name for name in names if shutil.which(name)]
    lacking = [name for name in names if name not in found]
    return ok(f"{' '.join(found) or 'none'}{'; not here: ' + ' '.join(lacking) if lacking else ''}")
