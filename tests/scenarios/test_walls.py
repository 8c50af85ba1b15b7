"""Attempts on the walls, in real sandboxes, as root and as an ordinary user.

A probe is a few lines of Python that run inside, in a process of their own, and what must come of them: the
name of an errno, or what they saw. All probes of one person run in one sandbox. Where it does no harm the
same lines are also run outside, by the same person, on a copy of everything: there they must come to
something else, or the probe proves nothing.
"""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import select
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

pytestmark = pytest.mark.scenario

ROOT = Path(__file__).resolve().parents[2]
PYTHON = "/usr/bin/python3"  # every user can run this one
CANARY = "c4n4ry-of-the-host"
IS_ROOT = os.geteuid() == 0
PEOPLE = ["root", "ordinary"] if IS_ROOT else ["ordinary"]
PATIENCE = 30


class Probe(NamedTuple):
    name: str
    code: str
    expected: str  # words, of which the outcome must be one
    control: str = "root ordinary"  # who also runs it outside, where it must come to something else


FILES = [
    Probe("create a file outside of the project", "open(f'{O}/new', 'w')", "EROFS"),
    Probe("write a file outside of the project", "open(f'{O}/note', 'a').write('x')", "EROFS"),
    Probe("remove a file outside of the project", "os.unlink(f'{O}/victim')", "EROFS"),
    Probe(
        "rename a file outside of the project",
        "os.rename(f'{O}/note', f'{O}/n'); os.rename(f'{O}/n', f'{O}/note')",
        "EROFS",
    ),
    Probe("change the mode of a file outside", "os.chmod(f'{O}/note', 0o666)", "EROFS"),
    Probe("write through a link that leads outside", "open(f'{P}/link-out', 'a').write('x')", "EROFS"),
    Probe("write through /proc/self/root", "open(f'/proc/self/root{O}/note', 'a')", "EROFS"),
    Probe("create a file in /etc", "open('/etc/walls-probe', 'w')", "EROFS", control=""),
    Probe("create a file in the root directory", "open('/walls-probe', 'w')", "EROFS", control=""),
    Probe("read a key", "open(f'{H}/.ssh/id_ed25519').read()", "ENOENT"),
    Probe("read credentials", "open(f'{H}/.aws/credentials').read()", "ENOENT"),
    Probe("read a neighbouring project", "os.listdir(f'{H}/neighbour')", "ENOENT"),
    Probe("reach a neighbour by ..", "os.listdir(f'{P}/../neighbour')", "ENOENT"),
    Probe("write a neighbouring project", "open(f'{H}/neighbour/x', 'w')", "ENOENT"),
    Probe("list the home directory", "seen = sorted(set(os.listdir(H)) - SHOWN)", "[]"),
    Probe("list people's homes", "seen = sorted(set(os.listdir('/home')) - {os.path.basename(H)})", "[]"),
    Probe("list the administrator's home", "seen = os.listdir('/root')", "[] EACCES", control=""),
    Probe("read password hashes", "open('/etc/shadow').read()", "EACCES", control="root"),
    Probe("read what the host has in /tmp", "open(f'/tmp/{MARK}').read()", "ENOENT"),
    Probe("read what the host has in /var/tmp", "open(f'/var/tmp/{MARK}').read()", "ENOENT"),
    Probe("read what the host has in /dev/shm", "open(f'/dev/shm/{MARK}').read()", "ENOENT"),
    Probe(
        "see disks",
        "seen = sorted(n for n in os.listdir('/dev') if n[:2] in ('vd', 'sd', 'nv', 'lo', 'dm', 'me', 'km'))",
        "[]",
    ),
    Probe("make a device", "os.mknod(f'{P}/disk', 0o60600, os.makedev(254, 0))", "EPERM", control=""),
    Probe("see network devices", "os.listdir('/sys/class/net')", "ENOENT"),
    Probe("write in /sys", "open('/sys/x', 'w')", "EACCES EROFS", control=""),
    Probe("set a kernel variable", "open('/proc/sys/kernel/core_pattern', 'w')", "EROFS EACCES", control=""),
    Probe("read kernel memory", "open('/proc/kcore', 'rb').read(1)", "EACCES ENOENT EPERM", control=""),
    Probe("count the host's pages", "open('/proc/kpagecount', 'rb').read(8)", "EACCES ENOENT EPERM", control=""),
    Probe("read the kernel's symbols", "open('/proc/kallsyms').read(1)", "EACCES ENOENT", control=""),
    Probe("pull the kernel's trigger", "open('/proc/sysrq-trigger', 'w')", "EACCES ENOENT EPERM EROFS", control=""),
    Probe("read the log of the kernel", "open('/dev/kmsg').read(1)", "ENOENT", control=""),
    Probe("write the git configuration of the user", "open(f'{H}/.gitconfig', 'a')", "EROFS"),
    Probe("write a tool", "open(f'{H}/.local/share/tool/versions/1', 'a')", "EROFS EACCES"),
    Probe("replace a tool", "os.rename(f'{P}/free', f'{H}/.local/bin/tool')", "EROFS EXDEV EBUSY", control=""),
]

GATE = [
    Probe("read the gate's configuration", "seen = os.listdir(f'{H}/.config/egress')", "[]"),
    Probe("write the gate's configuration", "open(f'{H}/.config/egress/policy.yaml', 'w')", "EACCES"),
    Probe(
        "move the gate's configuration",
        "os.rename(f'{H}/.config/egress', f'{H}/.config/e'); os.rename(f'{H}/.config/e', f'{H}/.config/egress')",
        "EBUSY",
    ),
    Probe("make the gate's missing state", "open(f'{H}/.local/state/egress/x', 'w')", "EACCES"),
    Probe("read the audit log", "open(f'{P}/audit.jsonl').read()", "EACCES"),
    Probe("write the audit log", "open(f'{P}/audit.jsonl', 'a')", "EACCES"),
    Probe("remove the audit log", "os.unlink(f'{P}/audit.jsonl')", "EBUSY"),
    Probe("write the policy", "open(f'{P}/policy/rules.yaml', 'a')", "EROFS"),
    Probe("move the policy's directory", "os.rename(f'{P}/policy', f'{P}/policy2')", "EBUSY"),
]

RUN = [
    *(".cursor/mcp.json", ".codex/config.toml", ".gemini/settings.json", ".opencode/plugins/x.ts", "opencode.json"),
    *("opencode.jsonc", ".kiro/settings/mcp.json", ".kiro/hooks/x", ".windsurf/hooks.json", "lefthook-local.yml"),
    *(".devcontainer/devcontainer.json", ".devcontainer.json", ".zed/tasks.json"),
    *(".exrc", ".vimrc", ".nvimrc", ".nvim.lua"),
]

PROTECTED = [
    Probe("write .env", "open(f'{P}/.env', 'a').write('x')", "EROFS"),
    Probe("truncate .env", "os.truncate(f'{P}/.env', 0)", "EROFS"),
    Probe("change the mode of .env", "os.chmod(f'{P}/.env', 0o600)", "EROFS"),
    Probe("rename something over .env", "os.rename(f'{P}/free', f'{P}/.env')", "EBUSY"),
    Probe("move .env away", "os.rename(f'{P}/.env', f'{P}/env')", "EBUSY"),
    Probe("remove .env", "os.unlink(f'{P}/.env')", "EBUSY", control=""),
    Probe("link to .env", "os.link(f'{P}/audit-link', f'{P}/x') if 0 else os.link(f'{P}/sub/.env', f'{P}/e')", "EXDEV"),
    Probe("write .env through a symbolic link", "open(f'{P}/link-in', 'a')", "EROFS", control=""),
    Probe("write .env through /proc", "os.chdir(P); open('/proc/self/cwd/sub/.env', 'a')", "EROFS"),
    Probe("write a key further down", "open(f'{P}/sub/server.pem', 'a')", "EROFS"),
    Probe("remove a key further down", "os.unlink(f'{P}/sub/server.pem')", "EBUSY"),
    Probe(
        "write a key in a directory that was moved",
        "os.rename(f'{P}/sub', f'{P}/sub2'); open(f'{P}/sub2/a.key', 'a')",
        "EROFS",
    ),
    Probe("create .envrc", "open(f'{P}/.envrc', 'w')", "EACCES"),
    Probe("make a directory .envrc", "os.mkdir(f'{P}/.envrc')", "EEXIST", control=""),
    Probe("make a link .envrc", "os.symlink('/etc/passwd', f'{P}/.envrc')", "EEXIST", control=""),
    Probe("rename something to .envrc", "open(f'{P}/t', 'w'); os.rename(f'{P}/t', f'{P}/.envrc')", "EBUSY"),
    Probe("link something to .envrc", "open(f'{P}/t', 'w'); os.link(f'{P}/t', f'{P}/.envrc')", "EEXIST", control=""),
    Probe("remove what stands for .envrc", "os.unlink(f'{P}/.envrc')", "EBUSY", control=""),
    Probe("open what stands for .mcp.json", "open(f'{P}/.mcp.json').read()", "EACCES", control=""),
    Probe(
        "create a file in .vscode",
        "os.makedirs(f'{P}/.vscode', exist_ok=True); open(f'{P}/.vscode/tasks.json', 'w')",
        "EACCES",
    ),
    Probe("remove what stands for .vscode", "os.rmdir(f'{P}/.vscode')", "EBUSY", control=""),
    Probe(
        "put another directory at .vscode",
        "os.mkdir(f'{P}/v'); os.rename(f'{P}/v', f'{P}/.vscode')",
        "EBUSY",
        control="",
    ),
    Probe(
        "create what an agent or an editor would run", "seen = [path for path in RUN if can_make(f'{P}/{path}')]", "[]"
    ),
    Probe("write a workspace of an editor", "open(f'{P}/x.code-workspace', 'a')", "EROFS"),
    Probe("write what git runs on commit", "open(f'{P}/lefthook.yml', 'a')", "EROFS"),
    Probe("create settings of the agent", "open(f'{P}/.claude/settings.local.json', 'w')", "EROFS"),
    Probe("move the directory of the agent's settings", "os.rename(f'{P}/.claude', f'{P}/c')", "EBUSY", control=""),
    Probe("write settings of the user's agent", "open(f'{H}/.claude/settings.json', 'a')", "EROFS"),
    Probe("create a git hook", "open(f'{P}/.git/hooks/pre-commit', 'w')", "EROFS"),
    Probe(
        "move the git hooks",
        "os.rename(f'{P}/.git/hooks', f'{P}/.git/h'); os.rename(f'{P}/.git/h', f'{P}/.git/hooks')",
        "EBUSY",
    ),
    Probe("move the git directory", "os.rename(f'{P}/.git', f'{P}/g'); os.rename(f'{P}/g', f'{P}/.git')", "EBUSY"),
    Probe(
        "exchange the git directory",
        "os.mkdir(f'{P}/g2'); exchange(f'{P}/g2', f'{P}/.git'); exchange(f'{P}/g2', f'{P}/.git')",
        "EBUSY",
    ),
    Probe("write git's configuration", "open(f'{P}/.git/config', 'a')", "EROFS"),
    Probe(
        "replace git's configuration",
        "open(f'{P}/.git/c', 'w').write(CONFIG); os.rename(f'{P}/.git/c', f'{P}/.git/config')",
        "EBUSY",
    ),
    Probe("move git's configuration by commondir", "open(f'{P}/.git/commondir', 'w').write('.')", "EROFS EACCES"),
    Probe(
        "replace what stands for commondir",
        "open(f'{P}/.git/c', 'w').write('.'); os.rename(f'{P}/.git/c', f'{P}/.git/commondir')",
        "EBUSY",
    ),
    Probe("give git other hooks in the project", "open(f'{P}/tools/hooks/pre-push', 'w')", "EROFS"),
    Probe("write what the persona may only read", "open(f'{P}/docs/x', 'w')", "EROFS"),
    Probe("see what the persona may not", "seen = os.listdir(f'{P}/private')", "[]"),
    Probe("write by the old mount of the project", "open(f'/proc/self/root{P}/.git/config', 'a')", "EROFS"),
]

PROCESSES = [
    Probe("signal a process of the host", "os.kill(HOST_PID, 0)", "ESRCH"),
    Probe("see processes of the host", "seen = sum(int(n) > 100 for n in os.listdir('/proc') if n.isdigit())", "0"),
    Probe(
        "read the host's environment from pid 1",
        "seen = CANARY in open('/proc/1/environ').read()",
        "False",
        control="",
    ),
    Probe("read the host's environment from one's own", "seen = CANARY in str(os.environ)", "False"),
    Probe(
        "inherit a variable that loads code",
        "seen = sorted({'NODE_OPTIONS', 'PYTHONPATH', 'LD_PRELOAD'} & set(os.environ))",
        "[]",
    ),
    Probe(
        "inherit the host's proxy",
        "seen = sorted({v for k, v in os.environ.items() if k.lower() == 'https_proxy'})",
        "['http://127.0.0.1:3128']",
    ),
    Probe(
        "find a secret on a command line",
        "seen = any(SECRET in open(f'/proc/{n}/cmdline').read() for n in os.listdir('/proc') if n.isdigit())",
        "False",
        control="",
    ),
    Probe("inherit a descriptor", "seen = sorted(n for n in FDS if n > 2)", "[]"),
    Probe(
        "have a capability",
        "seen = {l.split()[1] for l in open('/proc/self/status') if l.startswith('Cap')} == {'0' * 16}",
        "True",
        control="",
    ),
    Probe(
        "gain privileges",
        "seen = [l.split()[1] for l in open('/proc/self/status') if l.startswith('NoNewPrivs')]",
        "['1']",
    ),
    Probe("become root by a setuid program", "seen = os.popen(f'{O}/suid-id').read().count('euid=0')", "0", control=""),
    Probe("become another user", "os.setuid(12345)", "EPERM EINVAL", control=""),
    Probe("make a user namespace", "call('unshare', 0x10000000)", "EPERM ENOSPC EUSERS"),
    Probe("make a mount namespace", "call('unshare', 0x00020000)", "EPERM", control=""),
    Probe(
        "make namespaces by clone3's elder brother",
        "seen = os.popen('unshare -Urm true 2>/dev/null && echo yes').read().strip() or 'no'",
        "no",
    ),
    Probe("mount something", "call('mount', b'x', f'{P}/docs'.encode(), b'tmpfs', 0, None)", "EPERM", control=""),
    Probe("unmount a mask", "call('umount2', f'{P}/private'.encode(), 2)", "EPERM EINVAL", control=""),
    Probe("unmount the home", "call('umount2', H.encode(), 2)", "EPERM EINVAL", control=""),
    Probe("make a mask writable", "call('mount', b'x', f'{P}/.env'.encode(), b'', 0x1020, None)", "EPERM", control=""),
    Probe("change the root directory", "os.chroot(P)", "EPERM", control=""),
    Probe("rename the host", "socket.sethostname('x')", "EPERM", control=""),
    Probe("see the host's name", "seen = socket.gethostname()", "sandbox"),
    Probe("see shared memory of the host", "call('shmget', SHM, 0, 0)", "ENOENT"),
    Probe("see network devices but lo", "seen = sorted(n for _, n in socket.if_nameindex())", "['lo']", control=""),
]

SOCKETS = [
    Probe("a socket in /tmp", "connect(f'/tmp/{MARK}.sock')", "ENOENT"),
    Probe("a socket in a visible directory", "connect(f'{O}/daemon.sock')", "ECONNREFUSED"),
    Probe("a socket in the project", "connect(f'{P}/dev.sock')", "ECONNREFUSED"),
    Probe("a socket in the home directory", "connect(f'{H}/.agent.sock')", "ENOENT"),
    Probe("a socket by a link in the project", "connect(f'{P}/link-socket')", "ECONNREFUSED"),
    Probe("an abstract socket", "connect(f'\\0{MARK}')", "ECONNREFUSED"),
    Probe(
        "a datagram to a visible socket",
        "s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM); s.sendto(b'x', f'{O}/log.sock')",
        "ECONNREFUSED",
    ),
]
if IS_ROOT:
    SOCKETS += [
        Probe("a socket in /run", "connect(f'/run/{MARK}.sock')", "ENOENT"),
        Probe("a socket in /var/run", "connect(f'/var/run/{MARK}.sock')", "ENOENT"),
        Probe("what the host has in /run", "open(f'/run/{MARK}').read()", "ENOENT"),
    ]

WORKS = [
    Probe("write in the project", "open(f'{P}/made-inside', 'w').write('x')", "ok"),
    Probe("make a directory in the project", "os.makedirs(f'{P}/a/b/c')", "ok"),
    Probe("write a new file that a pattern matches", "open(f'{P}/new.pem', 'w')", "ok"),
    Probe("use /tmp", "open('/tmp/x', 'w'); open('/dev/shm/x', 'w'); open('/var/tmp/x', 'w')", "ok"),
    Probe("use the home directory", "os.makedirs(f'{H}/.cache/x')", "ok"),
    Probe("write the agent's files", "open(f'{H}/.claude/history', 'w'); open(f'{H}/.claude.json', 'a')", "ok"),
    Probe("read git's configuration of the user", "seen = 'walls' in open(f'{H}/.gitconfig').read()", "True"),
    Probe("read the policy", "seen = open(f'{P}/policy/rules.yaml').read()", "version: 1"),
    Probe("reach a socket that was asked for", "connect(f'{O}/granted.sock')", "ok"),
    Probe("use a variable that was asked for", "seen = os.environ['TOKEN'] == SECRET", "True"),
    Probe("have a name", "import pwd; seen = pwd.getpwuid(os.getuid()).pw_name == os.environ['USER']", "True"),
    Probe("ask a name server", "seen = open('/etc/resolv.conf').read().split()", "['nameserver', '198.18.0.1']"),
    Probe("know oneself", "seen = socket.gethostbyname(socket.gethostname())", "127.0.0.1"),
    Probe("count processors", "seen = os.path.exists('/sys/devices/system/cpu/online')", "True"),
    Probe("run a tool from the home directory", "seen = os.popen('tool').read().strip()", "the tool works"),
    Probe("use null", "open('/dev/null', 'w').write('x'); seen = len(open('/dev/urandom', 'rb').read(4))", "4"),
]  # fmt: skip

PROBES = [*FILES, *GATE, *PROTECTED, *PROCESSES, *SOCKETS, *WORKS]

# Runs the probes, each in its own process: names, and what became of it.
RUNNER = r"""
import ctypes, errno, json, os, socket, sys
FDS = [int(n) for n in os.listdir('/proc/self/fd') if os.path.exists(f'/proc/self/fd/{n}')]
libc = ctypes.CDLL(None, use_errno=True)

def call(name, *args):
    if getattr(libc, name)(*args) < 0:
        raise OSError(ctypes.get_errno(), name)

def exchange(a, b):
    call('renameat2', -100, a.encode(), -100, b.encode(), 2)

def can_make(path):
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        open(path, 'w').close()
    except OSError:
        return False
    return True

def connect(path):
    with socket.socket(socket.AF_UNIX) as s:
        s.connect(path)

def attempt(code, names):
    names = {**globals(), **names}
    try:
        exec(code, names)
    except OSError as error:
        return errno.errorcode[error.errno]
    except Exception as error:
        return repr(error)
    return str(names.get('seen', 'ok'))

given = json.load(sys.stdin)
given['names']['SHOWN'] = set(given['names']['SHOWN'])
for name, code in given['probes']:
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(write, attempt(code, given['names']).encode())
        os._exit(0)
    os.close(write)
    outcome = os.read(read, 65536).decode()
    os.close(read)
    os.waitpid(pid, 0)
    print(json.dumps([name, outcome]))
"""


class Person(NamedTuple):
    """Somebody who starts sandboxes, with a home of their own."""

    kind: str
    uid: int
    gid: int
    home: Path
    code: Path  # a copy of the launcher that they can read
    outside: Path  # a directory that everybody may write, on the host

    def command(self, **fields: object) -> list[str]:
        return [PYTHON, str(self.code / "roomkit.py"), json.dumps(fields)]

    def popen(self, command: list[str], **options: object) -> subprocess.Popen[str]:
        as_them = {"user": self.uid, "group": self.gid, "extra_groups": []} if IS_ROOT else {}
        return subprocess.Popen(
            command,
            env=self.environ,
            cwd="/",
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            **(as_them | options),
        )

    def run(self, command: list[str], given: str = "", **options: object) -> str:
        process = self.popen(command, **options)
        output, _ = process.communicate(given, timeout=PATIENCE)
        assert process.returncode == 0, output
        return output

    @property
    def environ(self) -> dict[str, str]:
        return {
            "HOME": str(self.home),
            "PATH": f"{self.home}/.local/bin:/usr/local/bin:/usr/bin:/bin",
            "PYTHONPATH": str(self.code),
            "PYTHONDONTWRITEBYTECODE": "1",
            "AWS_SECRET_ACCESS_KEY": CANARY,
            "NODE_OPTIONS": CANARY,
            "HTTPS_PROXY": f"http://{CANARY}:1",
            "TOKEN": "hunter2-" + CANARY[::-1],
        }

    def owns(self, *paths: Path) -> None:
        """Hand over what the test has made."""
        for top in paths:
            for path in (top, *top.rglob("*")):
                if not path.is_symlink():
                    os.chown(path, self.uid, self.gid)


@pytest.fixture(scope="module", params=PEOPLE)
def person(request: pytest.FixtureRequest) -> Iterator[Person]:
    base = Path(tempfile.mkdtemp(prefix="walls-", dir="/var/tmp"))
    base.chmod(0o755)
    outside = base / "outside"  # seen inside because it is asked for, and by no other sandbox of this machine
    outside.mkdir()
    outside.chmod(0o777)
    code = base / "code"
    shutil.copytree(ROOT / "launcher", code / "launcher", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "egress", code / "egress", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "tests" / "roomkit.py", code)
    with contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, base)
        if request.param == "ordinary" and IS_ROOT:
            name = f"walls{os.getpid()}"
            subprocess.run(["useradd", "--create-home", name], check=True)
            remove = ["userdel", "--remove", "--force", name]  # also when a failed test has left processes
            stack.callback(subprocess.run, remove, check=True, stderr=subprocess.DEVNULL)
            known = pwd.getpwnam(name)
            yield Person("ordinary", known.pw_uid, known.pw_gid, Path(known.pw_dir), code, outside)
        else:
            home = base / "home"
            home.mkdir()
            yield Person(request.param, os.getuid(), os.getgid(), home, code, outside)


def furnish(home: Path) -> None:
    """A home as people have them."""
    for name in (".ssh/id_ed25519", ".aws/credentials", "neighbour/x", ".config/egress/policy.yaml"):
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text("theirs")
    for name in (".claude", ".local/state", ".local/bin", ".local/share/tool/versions"):
        (home / name).mkdir(parents=True, exist_ok=True)
    (home / ".claude/settings.json").write_text("{}")
    (home / ".claude.json").write_text("{}")
    (home / ".gitconfig").write_text("[user]\n\tname = walls\n\temail = walls@example.test\n")
    tool = home / ".local/share/tool/versions/1"
    tool.write_text("#!/bin/sh\necho the tool works\n")
    tool.chmod(0o755)
    if not (home / ".local/bin/tool").exists():
        (home / ".local/bin/tool").symlink_to(tool)


def make_project(path: Path, outside: Path) -> None:
    for name in ("sub", "docs", "private", "policy", ".claude", "tools/hooks"):
        (path / name).mkdir(parents=True)
    for name in (".env", "sub/.env", "sub/server.pem", "sub/a.key", "free", "private/plans", "audit.jsonl"):
        (path / name).write_text("before")
    for name in ("x.code-workspace", "lefthook.yml"):
        (path / name).write_text("{}")
    (path / "policy/rules.yaml").write_text("version: 1")
    (path / "link-out").symlink_to(outside / "note")
    (path / "link-in").symlink_to(".env")
    (path / "link-socket").symlink_to(outside / "daemon.sock")
    subprocess.run(["git", "init", "-q", str(path)], check=True)
    with (path / ".git/config").open("a") as config:
        config.write("\thooksPath = tools/hooks\n")


def tree(*tops: Path) -> dict[str, str]:
    """Everything below, with its kind, mode and text."""
    found = {}
    for top in tops:
        for path in top.rglob("*"):
            status = path.lstat()
            text = path.read_text() if path.is_file() and not path.is_symlink() else ""
            found[str(path)] = f"{status.st_mode:o} {text}"
    return found


class Listener:
    """Sockets of the host, that anybody may connect to."""

    def __init__(self) -> None:
        self.sockets: list[socket.socket] = []

    def bind(self, path: str, kind: int = socket.SOCK_STREAM) -> None:
        sock = socket.socket(socket.AF_UNIX, kind)
        self.sockets.append(sock)
        sock.bind(path)
        if not path.startswith("\0"):
            os.chmod(path, 0o777)
        if kind == socket.SOCK_STREAM:
            sock.listen(100)

    def close(self) -> None:
        for sock in self.sockets:
            path = sock.getsockname()
            sock.close()
            if isinstance(path, str):
                os.unlink(path)


@pytest.fixture(scope="module")
def outcomes(person: Person) -> Iterator[dict[str, dict[str, str]]]:
    """What became of each probe: inside, and outside."""
    mark = f"walls-{os.getpid()}-{person.uid}"
    shadow = os.stat("/etc/shadow").st_ino
    project, control = person.home / "project", person.home / "control"
    outside = person.outside
    furnish(person.home)
    for path in (project, control):
        make_project(path, outside)
    person.owns(person.home)
    (outside / "note").write_text("host")
    (outside / "victim").write_text("host")
    if IS_ROOT:
        shutil.copy("/usr/bin/id", outside / "suid-id")
        (outside / "suid-id").chmod(0o4755)
    markers = [Path(top) / mark for top in ("/tmp", "/var/tmp", "/dev/shm", *(["/run"] if IS_ROOT else []))]
    for marker in markers:
        marker.write_text("host")
        marker.chmod(0o644)
    for path in (outside / "note", outside / "victim"):
        os.chown(path, person.uid, person.gid)
    key = os.getpid()
    shared = person.run([PYTHON, "-c", f"import ctypes; print(ctypes.CDLL(None).shmget({key}, 4096, 0o1600))"])
    neighbour = person.popen(["cat"])
    listener = Listener()
    paths = [
        f"/tmp/{mark}.sock",
        f"{project}/dev.sock",
        f"{control}/dev.sock",
        f"{person.home}/.agent.sock",
        f"\0{mark}",
    ]
    paths += [f"{outside}/daemon.sock", f"{outside}/granted.sock", *([f"/run/{mark}.sock"] if IS_ROOT else [])]
    for path in paths:
        listener.bind(path)
    listener.bind(f"{outside}/log.sock", socket.SOCK_DGRAM)
    names = {
        "H": str(person.home),
        "O": str(outside),
        "MARK": mark,
        "CANARY": CANARY,
        "SECRET": person.environ["TOKEN"],
        "HOST_PID": neighbour.pid,
        "SHM": key,
        "RUN": RUN,
        "SHOWN": [".claude", ".claude.json", ".gitconfig", ".config", ".local", ".cache", "project"],
        "CONFIG": (project / ".git/config").read_text(),
    }
    fields = {
        "command": [PYTHON, "-c", RUNNER],
        "project": str(project),
        "set_env": ["TOKEN"],
        "write": [f"{person.home}/.config", f"{person.home}/.local/state"],
        "sockets": [f"{outside}/granted.sock"],
        "own": [[f"{project}/audit.jsonl", "the log", True], [f"{project}/policy/rules.yaml", "the policy", False]],
        "filesystem": {"read": ["docs"], "hide": ["private"]},
        "read": [str(outside)],
    }
    inside = [[probe.name, probe.code] for probe in PROBES]
    beside = [[probe.name, probe.code] for probe in PROBES if person.kind in probe.control and probe not in WORKS]
    leak = os.open("/dev/null", os.O_RDONLY)
    try:
        given = json.dumps({"probes": inside, "names": names | {"P": str(project)}})
        said = person.run(person.command(**fields), given, pass_fds=[leak])
        given = json.dumps({"probes": beside, "names": names | {"P": str(control)}})
        said_beside = person.run([PYTHON, "-c", RUNNER], given, pass_fds=[leak])
        replaced = {"read password hashes": "yes"} if os.stat("/etc/shadow").st_ino != shadow else {}
        yield {"inside": _parsed(said), "beside": _parsed(said_beside), "replaced": replaced}
    finally:
        os.close(leak)
        listener.close()
        neighbour.communicate()
        for marker in markers:
            marker.unlink(missing_ok=True)
        subprocess.run(["ipcrm", "-m", shared.strip()], check=True)


def _parsed(said: str) -> dict[str, str]:
    return dict(json.loads(line) for line in said.splitlines())


@pytest.mark.parametrize("probe", PROBES, ids=lambda probe: probe.name)
def test_the_walls_hold(outcomes: dict[str, dict[str, str]], probe: Probe) -> None:
    outcome = outcomes["inside"][probe.name]
    if probe.name in outcomes["replaced"]:
        pytest.skip("another program replaced the file on the host meanwhile, and its mask went with it")
    assert outcome == probe.expected or outcome in probe.expected.split()
    if probe.name in outcomes["beside"]:
        beside = outcomes["beside"][probe.name]
        assert beside != probe.expected
        assert beside not in probe.expected.split(), "it fails without walls too"


@pytest.fixture
def project(person: Person, request: pytest.FixtureRequest) -> Iterator[Path]:
    """An empty repository in a furnished home."""
    furnish(person.home)
    path = Path(tempfile.mkdtemp(prefix="project-", dir=person.home))
    subprocess.run(["git", "init", "-q", str(path)], check=True)
    person.owns(person.home)
    yield path
    shutil.rmtree(path)


def inside(person: Person, project: Path, script: str, **fields: object) -> str:
    return person.run(person.command(command=["sh", "-c", script], project=str(project), **fields))


def test_nothing_is_left_on_the_host(person: Person, project: Path) -> None:
    before = tree(project, person.home / ".claude")
    assert "d" in inside(person, project, "ls -la; cat .env .mcp.json .git/commondir; git status; echo done")
    assert tree(project, person.home / ".claude") == before


def test_placeholders_stand_while_it_runs_and_git_takes_no_notice(person: Person, project: Path) -> None:
    with room(person, project) as running:
        made = {path.name for path in project.iterdir()}
        assert {".env", ".envrc", ".mcp.json", ".vscode", ".idea"} <= made
        status = ["git", "-c", "safe.directory=*", "-C", str(project), "status", "--porcelain"]
        assert subprocess.run(status, check=True, stdout=subprocess.PIPE, text=True).stdout == ""
        running.end()
    assert {path.name for path in project.iterdir()} == {".git"}


def test_git_works_inside_and_commits_no_placeholders(person: Person, project: Path) -> None:
    inside(person, project, "echo x > file; git add -A && git commit -qm one && git checkout -qb b && git gc -q")
    listed = person.run(["git", "-C", str(project), "ls-tree", "-r", "--name-only", "HEAD"])
    assert listed == "file\n"
    assert person.run(["git", "-C", str(project), "status", "--porcelain"]) == ""


def test_git_works_in_a_linked_worktree_and_its_hooks_are_out_of_reach(person: Person, project: Path) -> None:
    person.run(["git", "-C", str(project), "commit", "-q", "--allow-empty", "-m", "one"])
    linked = person.home / f"{project.name}-linked"
    person.run(["git", "-C", str(project), "worktree", "add", "-q", str(linked)])
    common = project / ".git"
    targets = f"{common}/hooks/post-commit {common}/config {common}/worktrees/*/commondir .git"
    attack = f"for f in {targets}; do echo x >> $f; done; mv {common}/worktrees {common}/w"
    said = inside(person, linked, f"echo x > file; git add -A; git commit -qm two; {attack}; git log --format=%s")
    assert said == "two\none\n"
    assert not (common / "hooks/post-commit").exists()
    assert not (common / "commondir").exists()
    assert person.run(["git", "-C", str(linked), "log", "--format=%s"]) == "two\none\n"
    shutil.rmtree(linked)


def test_git_works_in_a_submodule_and_its_hooks_are_out_of_reach(person: Person, project: Path) -> None:
    other = person.home / f"{project.name}-other"
    person.run(["git", "init", "-q", str(other)])
    person.run(["git", "-C", str(other), "commit", "-q", "--allow-empty", "-m", "one"])
    person.run(
        ["git", "-c", "protocol.file.allow=always", "-C", str(project), "submodule", "add", "-q", str(other), "sub"]
    )
    git_dir = project / ".git/modules/sub"
    attack = f"echo x > {git_dir}/hooks/post-commit; echo x >> {git_dir}/config; ls {project}/.git"
    said = inside(person, project / "sub", f"git commit -q --allow-empty -m two; {attack}; git log --format=%s")
    assert said == "modules\ntwo\none\n"
    said = inside(person, project, f"{attack.replace('ls', 'ls -d')}; git -C sub log --format=%s")
    assert said.endswith("two\none\n")
    assert not (git_dir / "hooks/post-commit").exists()
    assert "x" not in (git_dir / "config").read_text().splitlines()
    shutil.rmtree(other)


def test_words_of_the_command_are_not_options_of_bwrap(person: Person, project: Path) -> None:
    words = ["--bind", "/", "/mnt", "--args", "3", "--", "--cap-add", "ALL"]
    said = person.run(person.command(command=["printf", "%s ", *words], project=str(project)))
    assert said.split() == words
    process = person.popen(person.command(command=["--help"], project=str(project)), stderr=subprocess.PIPE)
    said, complaint = process.communicate(timeout=PATIENCE)
    assert process.returncode != 0
    assert "usage" not in said
    assert "--help" in complaint


class Room:
    """A running sandbox, and its processes as the host sees them."""

    def __init__(self, person: Person, project: Path) -> None:
        script = "echo ready; cat > /dev/null"
        self.launcher = person.popen(person.command(command=["sh", "-c", script], project=str(project)))
        assert self.launcher.stdout is not None
        assert self.launcher.stdout.readline() == "ready\n"
        children = {comm(pid): pid for pid in children_of(self.launcher.pid)}
        self.warden, self.bwrap = children["egress-warden"], children["bwrap"]
        self.init = children_of(self.bwrap)[0]
        self._ends = [os.pidfd_open(pid) for pid in (self.launcher.pid, self.warden, self.bwrap, self.init)]

    def kill(self, *names: str) -> None:
        pids = {"launcher": self.launcher.pid, "warden": self.warden, "bwrap": self.bwrap, "init": self.init}
        for name in names:
            os.kill(pids[name], signal.SIGKILL)

    def end(self) -> None:
        """Let the command end."""
        self.launcher.communicate(timeout=PATIENCE)

    def wait(self) -> None:
        """Until every process of it is gone; 5 seconds are promised."""
        waiting = set(self._ends)
        while waiting:
            gone, _, _ = select.select(list(waiting), [], [], 5)
            assert gone, "something survived"
            waiting -= set(gone)

    def close(self) -> None:
        for pid in (self.launcher.pid, self.warden):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for fd in self._ends:
            os.close(fd)
        if self.launcher.poll() is None:
            self.launcher.communicate(timeout=PATIENCE)
        for pipe in (self.launcher.stdin, self.launcher.stdout):
            assert pipe is not None
            pipe.close()


@contextlib.contextmanager
def room(person: Person, project: Path) -> Iterator[Room]:
    running = Room(person, project)
    try:
        yield running
    finally:
        running.close()


def comm(pid: int) -> str:
    return Path(f"/proc/{pid}/comm").read_text().strip()


def children_of(parent: int) -> list[int]:
    pids = [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]
    return [pid for pid in pids if parent_of(pid) == parent]


def parent_of(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except (FileNotFoundError, ProcessLookupError):
        return 0


@pytest.mark.parametrize(
    "victims",
    [["launcher"], ["bwrap"], ["init"], ["launcher", "bwrap"], ["bwrap", "launcher"], ["init", "launcher"]],
    ids=" ".join,
)
def test_whoever_is_killed_nothing_is_left(person: Person, project: Path, victims: list[str]) -> None:
    before = tree(project)
    with room(person, project) as running:
        assert tree(project) != before
        running.kill(*victims)
        running.wait()
    assert tree(project) == before


def test_without_its_warden_the_launcher_cleans_up(person: Person, project: Path) -> None:
    before = tree(project)
    with room(person, project) as running:
        running.kill("warden")
        running.end()
    assert tree(project) == before


def test_what_two_kills_at_once_leave_behind_goes_with_the_next_sandbox(person: Person, project: Path) -> None:
    before = tree(project)
    with room(person, project) as running:
        running.kill("warden", "launcher")
        running.wait()
    left = {path.name for path in project.iterdir()}
    assert ".envrc" in left
    assert inside(person, project, "echo x > .envrc || echo refused") == "refused\n"
    assert tree(project) == before


def test_sandboxes_in_one_project_do_not_take_each_others_placeholders(person: Person, project: Path) -> None:
    before = tree(project)
    with room(person, project) as first:
        script = "echo ready; read line; echo x > .envrc || echo refused; ls -a | grep -c envrc"
        second = person.popen(person.command(command=["sh", "-c", script], project=str(project)))
        assert second.stdout is not None
        assert second.stdout.readline() == "ready\n"
        first.end()
        assert (project / ".envrc").exists()
        said, _ = second.communicate("go\n", timeout=PATIENCE)
        assert said == "refused\n1\n"
    assert tree(project) == before


def test_a_launcher_killed_before_bwrap_starts_leaves_nothing(person: Person, project: Path) -> None:
    before = tree(project)
    script = (
        "import os, signal, roomkit, sys; from launcher.placeholders import hold;"
        f"made = roomkit.make_plan(command=['true'], project={str(project)!r}); hold(made.placeholders);"
        "print(os.getpid(), flush=True);"
        "sys.stdin.read(); os.kill(os.getpid(), signal.SIGKILL)"
    )
    process = person.popen([PYTHON, "-c", script])
    assert process.stdout is not None
    warden = os.pidfd_open(children_of(int(process.stdout.readline()))[0])
    assert tree(project) != before
    process.communicate()
    assert select.select([warden], [], [], 5)[0]
    os.close(warden)
    assert tree(project) == before


def test_no_secret_is_on_a_command_line_of_the_host(person: Person, project: Path) -> None:
    script = "echo ready; cat > /dev/null"
    command = person.command(command=["sh", "-c", script], project=str(project), set_env=["TOKEN"])
    process = person.popen(command)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    for pid in children_of(process.pid):
        for each in (pid, *children_of(pid)):
            assert person.environ["TOKEN"] not in Path(f"/proc/{each}/cmdline").read_text()
    process.communicate(timeout=PATIENCE)


def mounted(pid: int, path: Path) -> bool:
    """Whether there is a mount on this path, as a process sees it."""
    return any(line.split()[4] == str(path) for line in Path(f"/proc/{pid}/mountinfo").read_text().splitlines())


def until_cut_off(pid: int) -> None:
    """No mount of a process is a slave of another any more."""
    deadline = time.monotonic() + PATIENCE
    while " master:" in Path(f"/proc/{pid}/mountinfo").read_text():
        assert time.monotonic() < deadline


@pytest.mark.skipif(not IS_ROOT, reason="only root can mount anything outside")
def test_what_the_host_mounts_later_is_not_seen_inside(person: Person, project: Path) -> None:
    """On a host with shared mounts, as systemd has them: a mount namespace that plays one."""
    target = person.outside / "later"
    target.mkdir()
    command = ["sh", "-c", "echo ready; read line; ls $0", str(target)]
    launch = person.command(command=command, project=str(project), read=[str(person.outside)])
    as_them = ["setpriv", f"--reuid={person.uid}", f"--regid={person.gid}", "--clear-groups"]
    host = ["unshare", "--mount", "--propagation", "shared"]
    process = person.popen([*host, *as_them, *launch], user=0, group=0)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    [init] = [child for pid in children_of(process.pid) if comm(pid) == "bwrap" for child in children_of(pid)]
    until_cut_off(init)
    there = ["nsenter", f"--mount=/proc/{process.pid}/ns/mnt", "sh", "-c"]
    subprocess.run([*there, f"mount -t tmpfs x {target} && touch {target}/seen"], check=True)
    said, _ = process.communicate("go\n", timeout=PATIENCE)
    assert said == ""
    target.rmdir()
