"""The shipped filters in real sandboxes, as root and as an ordinary user: walls stand, programs work."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import platform
import pwd
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from launcher.libseccomp import Library
from launcher.seccomp import DEBUG, DEFAULT, OFF, load, program
from launcher.seccomp_bpf import MACHINES, RECENT

pytestmark = pytest.mark.scenario

MACHINE = platform.machine()
LIBRARY = Library(MACHINES[MACHINE].token)
USERS = [0, pwd.getpwnam("nobody").pw_uid] if os.geteuid() == 0 else [os.geteuid()]
by_user = pytest.mark.parametrize("user", USERS)

EPERM, ENOSYS = errno.EPERM, errno.ENOSYS


@contextlib.contextmanager
def descriptors(choice: str) -> Iterator[list[int]]:
    with contextlib.ExitStack() as stack:
        held = []
        for code in program(choice, MACHINE):
            fd = os.memfd_create("filter")
            stack.callback(os.close, fd)
            os.write(fd, code)
            os.lseek(fd, 0, os.SEEK_SET)
            held.append(fd)
        yield held


def run(choice: str, user: int, command: Sequence[str], text: str = "") -> subprocess.CompletedProcess[str]:
    """The command in a sandbox with nothing of its own but the filter."""
    walls = ["--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp", "--chdir", "/tmp"]
    walls += ["--unshare-all", "--die-with-parent"]
    with descriptors(choice) as filters:
        loading = [word for fd in filters for word in ("--add-seccomp-fd", str(fd))]
        return subprocess.run(
            ["bwrap", *walls, *loading, "--", *command],
            check=False,
            input=text,
            capture_output=True,
            text=True,
            pass_fds=filters,
            env={"PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "HOME": "/tmp", "LANG": "C.UTF-8"},
            **({"user": user, "group": user, "extra_groups": []} if user != os.geteuid() else {}),
        )


def python_for(user: int) -> str:
    """An interpreter that this user can reach: ours may lie in somebody's home."""
    for candidate in (sys.executable, "/usr/bin/python3"):
        if run(OFF, user, [candidate, "-c", "import ctypes"]).returncode == 0:
            return candidate
    raise AssertionError(f"user {user} has no python3 to probe with")


# --- walls -----------------------------------------------------------------------------------------------

# Each call is made in a process of its own, whose exit status is the errno.
PROBE = """
import ctypes, json, mmap, os, sys
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long

def int80(number):
    page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    page.write(bytes.fromhex("53 89f8 cd80 4898 5b c3"))  # push rbx; mov eax, edi; int 0x80; cdqe; pop rbx; ret
    call = ctypes.CFUNCTYPE(ctypes.c_long, ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))
    return max(-call(number), 0)

def syscall(number, args):
    if libc.syscall(ctypes.c_long(number), *map(ctypes.c_ulong, args)) < 0:
        return ctypes.get_errno()
    return 0

answers = {}
for name, number, args in json.load(sys.stdin):
    child = os.fork()
    if child == 0:
        os._exit(int80(number) if name.startswith("int80") else syscall(number, args))
    answers[name] = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
print(json.dumps(answers))
"""

NOWHERE = 2**64 - 1  # no descriptor and no address
WALLS: dict[str, tuple[tuple[int, ...], int]] = {
    # call, with `:` and a remark where there are several: its arguments, the errno under `default`
    "ptrace": ((0, 0, 0, 0), EPERM),  # PTRACE_TRACEME
    "process_vm_readv": ((1, 0, 0, 0, 0, 0), EPERM),
    "process_vm_writev": ((1, 0, 0, 0, 0, 0), EPERM),
    "kcmp": ((1, 1, 0, 0, 0), EPERM),
    "pidfd_getfd": ((NOWHERE, 0, 0), EPERM),
    "mount": ((0, 0, 0, 0, 0), EPERM),
    "umount2": ((0, 0), EPERM),
    "pivot_root": ((0, 0), EPERM),
    "chroot": ((0,), EPERM),
    "swapon": ((0, 0), EPERM),
    "fsopen": ((0, 0), ENOSYS),
    "fsconfig": ((NOWHERE, 0, 0, 0, 0), ENOSYS),
    "fsmount": ((NOWHERE, 0, 0), ENOSYS),
    "fspick": ((NOWHERE, 0, 0), ENOSYS),
    "move_mount": ((NOWHERE, 0, NOWHERE, 0, 0), ENOSYS),
    "open_tree": ((NOWHERE, 0, 0), ENOSYS),
    "open_tree_attr": ((NOWHERE, 0, 0, 0, 0), ENOSYS),
    "mount_setattr": ((NOWHERE, 0, 0, 0, 0), ENOSYS),
    "statmount": ((0, 0, 0, 0), ENOSYS),
    "listmount": ((0, 0, 0, 0), ENOSYS),
    "unshare": ((0,), EPERM),
    "unshare:user": ((0x10000000,), EPERM),
    "setns": ((NOWHERE, 0), EPERM),
    "clone:user": ((0x10000011,), EPERM),
    "clone:net": ((0x40000011,), EPERM),
    "clone3": ((0, 0), ENOSYS),
    "keyctl": ((0, 0, 0, 0, 0), EPERM),
    "add_key": ((0, 0, 0, 0, 0), EPERM),
    "request_key": ((0, 0, 0, 0), EPERM),
    "bpf": ((0, 0, 0), EPERM),
    "perf_event_open": ((0, 0, 0, 0, 0), EPERM),
    "userfaultfd": ((NOWHERE,), ENOSYS),
    "memfd_secret": ((NOWHERE,), ENOSYS),
    "io_uring_setup": ((0, 0), ENOSYS),
    "io_uring_enter": ((NOWHERE, 0, 0, 0, 0, 0), ENOSYS),
    "io_uring_register": ((NOWHERE, 0, 0, 0), ENOSYS),
    "name_to_handle_at": ((NOWHERE, 0, 0, 0, 0), EPERM),
    "open_by_handle_at": ((NOWHERE, 0, 0), EPERM),
    "fanotify_init": ((0, 0), EPERM),
    "finit_module": ((NOWHERE, 0, 0), EPERM),
    "kexec_load": ((0, 0, 0, 0), EPERM),
    "reboot": ((0, 0, 0, 0), EPERM),
    "syslog": ((NOWHERE, 0, 0), EPERM),
    "acct": ((0,), EPERM),
    "quotactl": ((0, 0, 0, 0), EPERM),
    "settimeofday": ((0, 0), EPERM),
    "clock_settime": ((0, 0), EPERM),
    "adjtimex": ((0,), EPERM),
    "migrate_pages": ((0, 0, 0, 0), EPERM),
    "move_pages": ((0, 0, 0, 0, 0, 0), EPERM),
    "personality:read implies exec": ((0x00400000,), EPERM),
    "personality:no randomization": ((0x00040000,), EPERM),
    "ioctl:TIOCSTI": ((NOWHERE, 0x5412, 0), EPERM),
    "ioctl:TIOCSTI, dirty": ((NOWHERE, 1 << 32 | 0x5412, 0), EPERM),
    "ioctl:TIOCLINUX": ((NOWHERE, 0x541C, 0), EPERM),
    "ioctl:TIOCLINUX, dirty": ((NOWHERE, 1 << 63 | 0x541C, 0), EPERM),
    "ioctl:TIOCSETD": ((NOWHERE, 0x5423, 0), EPERM),
    "socket:packet": ((17, 3, 0), EPERM),
    "socket:raw": ((2, 3, 1), EPERM),
    "socket:raw, v6": ((10, 3 | 0x80800, 58), EPERM),
    "socket:packet, the old way": ((2, 10, 0), EPERM),
    "socket:ping": ((2, 2, 1), EPERM),
    "socket:alg": ((38, 5, 0), EPERM),
    "socket:vsock": ((40, 1, 0), EPERM),
    "socket:vsock, dirty": ((1 << 32 | 40, 1, 0), EPERM),
    "socket:audit": ((16, 3, 9), EPERM),
    "socket:netfilter": ((16, 3, 12), EPERM),
    "socket:generic netlink": ((16, 3, 16), EPERM),
}
DOORS: dict[str, tuple[tuple[int, ...], int]] = {
    # what stays open, with the errno that the kernel itself gives
    "personality:ask": ((0xFFFFFFFF,), 0),
    "ioctl:FIONREAD": ((NOWHERE, 0x541B, 0), errno.EBADF),
    "socket:unix": ((1, 1, 0), 0),
    "socket:tcp": ((2, 1 | 0x80000, 6), 0),
    "socket:udp": ((10, 2, 0), 0),
    "socket:route": ((16, 3 | 0x80000, 0), 0),
    "openat2": ((NOWHERE, 0, 0, 0), errno.EINVAL),
    "seccomp": ((NOWHERE, 0, 0), errno.EINVAL),
    "getpid": ((), 0),
}
FOREIGN = {"int80:getpid": 20} if MACHINE == "x86_64" else {}
UNKNOWN = {"unknown:next": 472, "unknown:gap": 400, "unknown:x32": 39 | 0x40000000, "unknown:x32 own": 520}


def number_of(call: str) -> int:
    name = call.partition(":")[0]
    return RECENT.get(name) or LIBRARY.number(name)


def probe(choice: str, user: int) -> dict[str, int]:
    calls = [(call, number_of(call), args) for call, (args, _) in (WALLS | DOORS).items()]
    calls += [(call, number, ()) for call, number in (FOREIGN | UNKNOWN).items()]
    done = run(choice, user, [python_for(user), "-c", PROBE], json.dumps(calls))
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@by_user
def test_every_wall_stands_under_default(user: int) -> None:
    answers = probe(DEFAULT, user)
    assert {call: answers[call] for call in WALLS} == {call: error for call, (_, error) in WALLS.items()}
    assert {answers[call] for call in FOREIGN | UNKNOWN} == {ENOSYS}


@by_user
def test_what_stays_open_answers_as_without_a_filter(user: int) -> None:
    filtered, free = probe(DEFAULT, user), probe(OFF, user)
    assert {call: filtered[call] for call in DOORS} == {call: free[call] for call in DOORS}
    assert {call: free[call] for call in DOORS} == {call: error for call, (_, error) in DOORS.items()}


# What any kernel lets an ordinary process try: so it is the filter that says no.
OPEN_OTHERWISE = {
    *("process_vm_readv", "process_vm_writev", "unshare", "setns", "clone3", "move_pages", "name_to_handle_at"),
    *("pidfd_getfd", "open_tree", "mount_setattr", "personality:read implies exec", "personality:no randomization"),
    *("ioctl:TIOCSTI", "ioctl:TIOCSTI, dirty", "ioctl:TIOCLINUX", "ioctl:TIOCLINUX, dirty", "ioctl:TIOCSETD"),
    *("socket:audit", "socket:generic netlink"),
}


@by_user
def test_it_is_the_filter_that_refuses(user: int) -> None:
    free = probe(OFF, user)
    assert {call for call in OPEN_OTHERWISE if free[call] == WALLS[call][1]} == set()


@by_user
def test_debug_opens_tracing_and_nothing_else(user: int) -> None:
    strict, debug = probe(DEFAULT, user), probe(DEBUG, user)
    assert {call for call in strict if strict[call] != debug[call]} == {
        "ptrace",
        "process_vm_readv",
        "process_vm_writev",
        "personality:no randomization",
    }


# --- programs --------------------------------------------------------------------------------------------

PYTHON = """
import asyncio, multiprocessing, socket, subprocess, threading
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

async def talk():
    async def serve(reader, writer):
        writer.write(await reader.readline())
        writer.close()
    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        writer.write(b"spoken\\n")
        line = await reader.readline()
        writer.close()
    child = await asyncio.create_subprocess_exec("cat", stdin=-1, stdout=-1)
    return (await child.communicate(line))[0].decode().strip()

if __name__ == "__main__":
    with ThreadPoolExecutor(4) as threads, ProcessPoolExecutor(2) as processes:
        assert sum(threads.map(abs, range(100))) == sum(processes.map(abs, range(100)))
    assert subprocess.check_output(["echo", "heard"]) == b"heard\\n"
    assert [name for _, name in socket.if_nameindex()] == ["lo"]
    assert socket.getaddrinfo("localhost", 80, flags=socket.AI_ADDRCONFIG)
    print(asyncio.run(talk()))
"""
NODE = """
const { Worker } = require("worker_threads"), http = require("http"), os = require("os"), fs = require("fs");
const { execFileSync } = require("child_process");
fs.writeFileSync("watched", execFileSync("echo", ["child"]));
const server = http.createServer((_, response) => response.end("fetched")).listen(0, "127.0.0.1", async () => {
  const text = await (await fetch(`http://127.0.0.1:${server.address().port}`)).text();
  const worker = new Worker("require('worker_threads').parentPort.postMessage('worker')", { eval: true });
  worker.on("message", (message) => {
    console.log(text, message, fs.readFileSync("watched", "utf8").trim(), os.networkInterfaces().lo[0].address);
    server.close();
  });
});
"""
CURL = """
import http.server, subprocess, threading
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), http.server.SimpleHTTPRequestHandler)
threading.Thread(target=server.serve_forever, daemon=True).start()
print(subprocess.check_output(["curl", "-sSI", f"http://127.0.0.1:{server.server_port}/"], text=True))
"""
GIT = """
git init -q repo && cd repo && git config user.name n && git config user.email n@example.org
for i in 1 2 3; do echo $i >file && git add file && git commit -qm "number $i"; done
git gc -q && git clone -q . ../copy && git -C ../copy log --format=%s | head -1
"""
GCC = """
cat >hello.c <<'END'
#include <pthread.h>
#include <stdio.h>
static void *say(void *word) { return puts(word), NULL; }
int main(void) { pthread_t t; return pthread_create(&t, NULL, say, "compiled") || pthread_join(t, NULL); }
END
gcc -O2 -pthread -o hello hello.c && ./hello
"""
JAVA = """
cat >Hello.java <<'END'
public class Hello {
    public static void main(String[] words) throws Exception {
        Thread thread = new Thread(() -> System.out.println("threaded"));
        thread.start();
        thread.join();
        new java.net.ServerSocket(0).close();
        System.exit(new ProcessBuilder("true").start().waitFor());
    }
}
END
java Hello.java
"""
BASH = 'set -m; sleep 0 & wait $!; for i in 3 1 2; do (echo $i); done | sort | tr "\\n" " "; cat <(echo there)'
TAR = "mkdir d && echo kept >d/f && ln -s f d/l && tar czf - d | (mkdir e && tar xzf - -C e) && cat e/d/l"
SSH = "ssh -V && ssh-keygen -q -t ed25519 -N '' -f key && ssh-keygen -lf key"
PROGRAMS = {
    "bash": (["bash", "-c", BASH], "1 2 3 there"),
    "node": (["node", "-e", NODE], "fetched worker child 127.0.0.1"),
    "npm": (["npm", "--version"], "."),
    "git": (["sh", "-ec", GIT], "number 3"),
    "gcc": (["sh", "-ec", GCC], "compiled"),
    "java": (["sh", "-ec", JAVA], "threaded"),
    "ssh": (["sh", "-ec", SSH], "ED25519"),
    "tar": (["sh", "-ec", TAR], "kept"),
}


def succeeds(done: subprocess.CompletedProcess[str], says: str) -> bool:
    assert done.returncode == 0, done.stderr
    return says in done.stdout


@by_user
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_work_under_default(user: int, name: str) -> None:
    if shutil.which(name) is None:
        pytest.skip(f"{name} is not installed")
    command, says = PROGRAMS[name]
    assert succeeds(run(DEFAULT, user, command), says)


@by_user
@pytest.mark.parametrize(("script", "says"), [(PYTHON, "spoken"), (CURL, "200 OK")], ids=["python", "curl"])
def test_python_works_under_default(user: int, script: str, says: str) -> None:
    save = f"cat >script.py; {python_for(user)} -W ignore script.py"  # a pool's children import it
    assert succeeds(run(DEFAULT, user, ["sh", "-ec", save], script), says)


# --- debuggers -------------------------------------------------------------------------------------------

DEBUGGERS = {
    "strace": (["sh", "-c", "strace -f -o log sh -c 'true; true'; cat log"], "exited with 0"),
    "gdb": (["gdb", "-nx", "-batch", "-ex", "run", "--args", "true"], "exited normally"),
}


@by_user
@pytest.mark.parametrize("name", DEBUGGERS)
def test_debuggers_work_under_debug_and_only_there(user: int, name: str) -> None:
    if shutil.which(name) is None:
        pytest.skip(f"{name} is not installed")
    command, says = DEBUGGERS[name]
    done = run(DEBUG, user, command)
    assert says in done.stdout
    assert "randomization" not in done.stderr
    assert says not in run(DEFAULT, user, command).stdout


# --- profiles of one's own -------------------------------------------------------------------------------


@by_user
def test_a_profile_of_ones_own_is_what_the_kernel_enforces(
    user: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    path = tmp_path / "profile.json"
    rule = {"names": ["mkdir", "mkdirat"], "action": "SCMP_ACT_ERRNO", "errnoRet": errno.EXDEV}
    path.write_text(json.dumps({"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [rule]}))
    done = run(str(path), user, ["mkdir", "new"])
    assert (done.returncode, "Invalid cross-device link" in done.stderr) == (1, True)
    assert load(str(path), MACHINE).warnings == ()
