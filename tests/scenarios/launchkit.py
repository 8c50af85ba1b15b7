"""The launcher as people run it: its command line, as root and as an ordinary user, with pipes and on terminals.

An ordinary user cannot read root's Python. So where root runs the tests, a copy of the interpreter, of what we
need of its packages and of our own code is made where everybody can read it.
"""

from __future__ import annotations

import atexit
import compileall
import contextlib
import fcntl
import functools
import importlib.util
import json
import os
import pwd
import select
import shutil
import signal
import struct
import subprocess
import sys
import sysconfig
import tempfile
import termios
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from gateprocess import Rules, until

ROOT = Path(__file__).resolve().parents[2]
IS_ROOT = os.geteuid() == 0
PEOPLE = ["root", "ordinary"] if IS_ROOT else ["ordinary"]
PATIENCE = 20.0  # for what must happen; nothing waits as long as that unless it is broken
PACKAGES = ("yaml", "_yaml", "msgspec", "uvloop", "dnslib", "idna", "publicsuffixlist")
NOT_NEEDED = shutil.ignore_patterns(
    "site-packages", "test", "tests", "idlelib", "tkinter", "ensurepip", "lib2to3", "turtledemo", "config-*", "*.a"
)


class Installation(NamedTuple):
    """A Python and our code, readable for whoever runs it."""

    python: str
    env: dict[str, str]


@functools.cache
def installation(kind: str) -> Installation:
    if kind == "root" or not IS_ROOT:
        return Installation(sys.executable, {"PYTHONPATH": str(ROOT)})
    folder = Path(tempfile.mkdtemp(prefix="launchkit-"))
    atexit.register(shutil.rmtree, folder)
    for name in ("egress", "launcher", "policies"):
        shutil.copytree(ROOT / name, folder / "site" / name)
    for name in PACKAGES:
        shutil.copytree(_package(name), folder / "site" / name)
    compileall.compile_dir(folder / "site", quiet=1)
    python = _copied_python(folder)
    subprocess.run(["chmod", "-R", "a+rX", folder], check=True)
    return Installation(str(python), {"PYTHONPATH": f"{folder}/site", "LD_LIBRARY_PATH": f"{folder}/lib"})


def _package(name: str) -> str:
    spec = importlib.util.find_spec(name)
    assert spec, name
    assert spec.origin, name
    return os.path.dirname(spec.origin)


def _copied_python(folder: Path) -> Path:
    stdlib = Path(sysconfig.get_path("stdlib"))
    shutil.copytree(stdlib, folder / "lib" / stdlib.name, ignore=NOT_NEEDED)
    for library in Path(sysconfig.get_config_var("LIBDIR")).glob("libpython*.so*"):
        shutil.copy2(library, folder / "lib")
    (folder / "bin").mkdir()
    return Path(shutil.copy2(os.path.realpath(sys.executable), folder / "bin"))


class Person:
    """Somebody with a home, a project in it and a policy; `p` is the persona."""

    def __init__(self, kind: str, home: Path, account: pwd.struct_passwd) -> None:
        self.kind, self.home = kind, home
        self.installation = installation(kind)
        self.project = home / "project"
        self.project.mkdir()
        self.policy = home / "policy.yaml"
        self.audit = home / "audit.jsonl"
        self._account = account
        self.env = {
            "HOME": str(home),
            "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "LANG": "C.UTF-8",
            "TERM": "xterm",
            "XDG_RUNTIME_DIR": str(home / "runtime"),
            **self.installation.env,
        }
        (home / "runtime").mkdir(mode=0o700)
        self.rules(Rules(allow={}))

    def rules(self, rules: Rules) -> None:
        self.policy.write_text(rules.text)
        self.own()

    def own(self) -> None:
        """All that is in the home is theirs."""
        if os.geteuid() != self._account.pw_uid:
            subprocess.run(["chown", "-R", f"{self._account.pw_uid}:{self._account.pw_gid}", self.home], check=True)

    @property
    def identity(self) -> dict[str, Any]:
        """For subprocess."""
        if os.geteuid() == self._account.pw_uid:
            return {}
        return {"user": self._account.pw_uid, "group": self._account.pw_gid, "extra_groups": []}

    def words(self, *command: str, options: tuple[str, ...] = ()) -> list[str]:
        ours = ["--persona", "p", "--policy", str(self.policy), "--audit", str(self.audit)]
        return [self.installation.python, "-m", "launcher.cli", *ours, *options, "--", *command]

    def start(self, *command: str, options: tuple[str, ...] = (), **how: Any) -> subprocess.Popen[bytes]:
        how.setdefault("env", self.env)
        return subprocess.Popen(self.words(*command, options=options), cwd=self.project, **self.identity, **how)

    def run(self, *command: str, options: tuple[str, ...] = (), **how: Any) -> subprocess.CompletedProcess[bytes]:
        """To its end, with its output."""
        data = how.pop("input", None)
        how.setdefault("stdin", subprocess.DEVNULL if data is None else subprocess.PIPE)
        how.setdefault("stdout", subprocess.PIPE)
        how.setdefault("stderr", subprocess.PIPE)
        with self.start(*command, options=options, **how) as process:
            try:
                out, err = process.communicate(data, timeout=PATIENCE)
            except BaseException:
                process.kill()
                raise
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def records(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.audit.read_text().splitlines()] if self.audit.exists() else []


@contextlib.contextmanager
def somebody(kind: str) -> Iterator[Person]:
    with _account(kind) as account:
        home = Path(tempfile.mkdtemp(prefix="launched-", dir="/var/tmp"))
        try:
            yield Person(kind, home, account)
        finally:
            shutil.rmtree(home)


@contextlib.contextmanager
def _account(kind: str) -> Iterator[pwd.struct_passwd]:
    if kind == "root" or not IS_ROOT:
        yield pwd.getpwuid(os.geteuid())
        return
    name = f"egress-{os.getpid()}"
    until(lambda: subprocess.run(["useradd", "--no-create-home", name], check=False).returncode == 0)
    try:
        yield pwd.getpwnam(name)
    finally:
        until(lambda: subprocess.run(["userdel", name], check=False, stderr=subprocess.DEVNULL).returncode in (0, 6))


class Tty:
    """A terminal that a person sits at: what is shown on it, and keys."""

    def __init__(self, rows: int = 30, columns: int = 100) -> None:
        self.master, self.slave = os.openpty()
        self.shown = bytearray()
        self.process: subprocess.Popen[bytes] | None = None
        os.set_blocking(self.master, False)
        self.resize(rows, columns)

    def start(
        self, person: Person, *command: str, options: tuple[str, ...] = (), **how: Any
    ) -> subprocess.Popen[bytes]:
        """The launcher, as the leader of a session on this terminal."""

        def sit_down() -> None:
            fcntl.ioctl(self.slave, termios.TIOCSCTTY, 0)

        for stream in ("stdin", "stdout", "stderr"):
            how.setdefault(stream, self.slave)
        if person.identity:
            os.fchown(self.slave, person.identity["user"], -1)
        self.process = person.start(
            *command, options=options, start_new_session=True, preexec_fn=sit_down, pass_fds=(self.slave,), **how
        )
        return self.process

    def resize(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def type(self, keys: bytes) -> None:
        """All of them; what is shown meanwhile is taken in, as a terminal would."""
        deadline = time.monotonic() + PATIENCE
        while keys:
            assert time.monotonic() < deadline, f"{len(keys)} keys could not be typed"
            readable, writable, _ = select.select([self.master], [self.master], [], PATIENCE)
            if writable:
                keys = keys[os.write(self.master, keys) :]
            if readable:
                self._look()

    def wait_for(self, text: bytes) -> None:
        self._until(lambda: text in self.shown, f"{text!r} was never shown, but {bytes(self.shown[-500:])!r}")

    def wait(self) -> int:
        """For the launcher's end, and all that it shows."""
        assert self.process
        process = self.process
        self._until(lambda: process.poll() is not None, f"it never ended, and shows {bytes(self.shown[-500:])!r}")
        while self._look():
            pass
        return process.returncode

    def mode(self) -> list[Any]:
        return termios.tcgetattr(self.slave)

    def is_raw(self) -> bool:
        return not self.mode()[3] & termios.ICANON

    def close(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        for descriptor in {self.master, self.slave} - {-1}:
            os.close(descriptor)

    def hang_up(self) -> None:
        os.close(self.slave)
        os.close(self.master)
        self.master = self.slave = -1

    def _until(self, holds: Any, otherwise: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while not holds():
            assert time.monotonic() < deadline, otherwise
            if select.select([self.master], [], [], 0.01)[0]:
                self._look()

    def _look(self) -> bool:
        try:
            data = os.read(self.master, 1 << 20)
        except BlockingIOError:
            return False
        self.shown += data
        return bool(data)


@contextlib.contextmanager
def tty(**size: int) -> Iterator[Tty]:
    terminal = Tty(**size)
    try:
        yield terminal
    finally:
        terminal.close()


def processes(token: str) -> dict[int, str]:
    """Those with this word on their command line: the launcher, all that it forks, bwrap and the command."""
    found = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError):
                line = Path(f"/proc/{name}/cmdline").read_bytes()
                if token.encode() in line:
                    found[int(name)] = line.replace(b"\0", b" ").decode()
    return found


def children(pid: int) -> list[int]:
    """In the order of their birth."""
    with contextlib.suppress(OSError):
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


def status(pid: int | str, *fields: str) -> dict[str, str]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    pairs = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
    return {field: pairs[field] for field in fields}


def kill(pid: int, number: int = signal.SIGKILL) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
