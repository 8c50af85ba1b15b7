"""bubblewrap, and whether it can make a sandbox: its program, the namespaces it needs, and one for real."""

from __future__ import annotations

import ctypes
import errno
import os
import re
import shutil
import stat
import subprocess

from launcher import bwrap, ground, seccomp
from launcher.checks.model import Finding, fail, ok, warn
from launcher.diagnosis import Diagnosis, diagnose
from launcher.mounts import Kind, Mount
from launcher.plan import Plan

INSTALL = "sudo apt-get install bubblewrap"
_UPGRADE = "sudo apt-get install --only-upgrade bubblewrap"
_VIEW = ["--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"]
_NEW_USER, _NEW_NETWORK = 0x10000000, 0x40000000
_NO_NEW_PRIVILEGES, _SECCOMP, _FILTER = 38, 22, 2  # prctl
# The kernel's errors, in bubblewrap's words, so that one table knows them.
_REFUSED = {
    errno.EPERM: "No permissions to create new namespace",
    errno.EACCES: "No permissions to create new namespace",
    errno.EINVAL: "the kernel does not support user namespaces",
    errno.ENOSPC: "Creating new namespace failed: nesting depth",
}


def program() -> str | None:
    return shutil.which("bwrap")


def installed() -> Finding:
    path = program()
    if path is None:
        return fail("it is not installed", INSTALL)
    version = _said(path, "--version").removeprefix("bubblewrap ").strip()
    lacking = wanted_options() - set(re.findall(r"--[a-z][a-z0-9-]+", _said(path, "--help")))
    where = f"{version or 'a version that it does not tell'}, {path}"
    if lacking - OPTIONAL:
        return fail(f"{where}: does not know {' '.join(sorted(lacking - OPTIONAL))}; 0.8 or later is needed", _UPGRADE)
    if os.stat(path).st_mode & stat.S_ISUID:
        return warn(f"{where}: is setuid root, which is not needed and is a risk", f"sudo chmod u-s {path}")
    if lacking:
        return warn(f"{where}: cannot bind descriptors, so races for paths are possible", _UPGRADE)
    return ok(where)


OPTIONAL = {"--bind-fd", "--ro-bind-fd"}


def wanted_options() -> set[str]:
    """Every option that a plan can become."""
    mounts = [Mount(kind, f"/{kind}", "") for kind in Kind]
    bound = [Mount(kind, f"/bound/{kind}", "", beneath="/bound") for kind in (Kind.READ, Kind.WRITE)]
    plan = Plan((*mounts, *bound), {"A": ""}, frozenset(), "/", ("true",), new_session=True)
    data = {mount.path: 0 for mount in mounts}
    fds = bwrap.Descriptors(data, {mount.path: 0 for mount in bound}, info=0, block=0, status=0, seccomp=(0,))
    return {word for word in ["--args", *bwrap.arguments(plan, fds)] if word.startswith("--")}


def _said(path: str, option: str) -> str:
    done = subprocess.run([path, option], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False)
    return done.stdout


def user_namespaces() -> Finding:
    """Made, given a user, and used: where AppArmor restricts them they can be made, and are good for nothing."""
    facts = ground.look(program() or "/usr/bin/bwrap")
    try:
        enter_one()
    except OSError as error:
        words = error.filename or _REFUSED.get(error.errno or 0, f"unshare: {error.strerror}")
        return fail(*diagnose(words, facts))
    return ok(f"can be made (at most {facts.most_namespaces})" if facts.most_namespaces else "can be made")


def enter_one() -> None:
    uid, gid = os.geteuid(), os.getegid()
    _call("unshare", _NEW_USER)
    try:
        for name, text in (("setgroups", "deny"), ("uid_map", f"0 {uid} 1"), ("gid_map", f"0 {gid} 1")):
            with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
                file.write(text)
    except OSError as error:
        raise OSError(error.errno, error.strerror, f"setting up uid map: {error.strerror}") from None
    _call("unshare", _NEW_NETWORK)


def _call(name: str, *words: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, name)(*words) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def sandboxes() -> Finding:
    path = program()
    if path is None:
        return fail("bubblewrap is not installed", INSTALL)
    diagnosis = ailment(path)
    return ok("one was made, with nothing in it") if diagnosis is None else fail(*diagnosis)


def ailment(path: str) -> Diagnosis | None:
    """Why there can be no sandbox, found by making one; None if there can be."""
    done = subprocess.run(
        trial_words(path), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=False
    )
    return diagnose(done.stderr.decode(errors="replace"), ground.look(path)) if done.returncode else None


def trial_words(path: str, *options: str) -> list[str]:
    """A sandbox with all our walls. What runs in it is bubblewrap itself, the one program that must be there."""
    walls = [word for option, _ in bwrap.NAMESPACES for word in option]
    return [path, *walls, *_VIEW, *options, "--", path, "--version"]


class _Program(ctypes.Structure):  # struct sock_fprog
    _fields_ = (("length", ctypes.c_ushort), ("code", ctypes.c_char_p))


def system_calls() -> Finding:
    """Our filter, loaded into this process, which is forked for the check and ends with it."""
    try:
        (code,) = seccomp.program(seccomp.DEFAULT, os.uname().machine)
    except seccomp.SeccompError as error:
        return fail(str(error), error.hint or "install egress again")
    count = len(code) // seccomp.INSTRUCTION
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    if libc.prctl(_SECCOMP, _FILTER, ctypes.byref(_Program(count, code)), 0, 0) != 0:
        return fail(*diagnose("PR_SET_SECCOMP", ground.look("bwrap")))
    if libc.unshare(_NEW_USER) == 0 or ctypes.get_errno() != errno.EPERM:
        return fail("the filter was loaded and does not hold", "egress-launch --seccomp off …")
    return ok(f"the default filter holds, {count} instructions")
