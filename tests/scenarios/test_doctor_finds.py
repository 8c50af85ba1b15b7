"""`egress doctor` on machines with something wrong: the real command, under faults that are made for it.

Faults are made in mount and user namespaces of their own, with seccomp filters and with other programs in
PATH; nothing of the machine itself is changed.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

pytestmark = pytest.mark.scenario

ROOT = Path(__file__).resolve().parents[2]
IS_ROOT = os.geteuid() == 0
NOBODY = 47116
BWRAP = shutil.which("bwrap") or "/usr/bin/bwrap"
DOCTOR = """
import argparse, sys
from egress.commands import doctor
parser = argparse.ArgumentParser()
doctor.add(parser.add_subparsers())
args = parser.parse_args(["doctor", *sys.argv[1:]])
sys.exit(args.run(args))
"""
# Loads a filter, and becomes the words after it.
FILTERED = """
import ctypes, json, os, sys
from launcher.seccomp_bpf import compile_profile
from launcher.seccomp_profile import parse
rules = json.loads(sys.argv[1])
profile = json.dumps({"defaultAction": "SCMP_ACT_ALLOW", "syscalls": rules}).encode()
machine = os.uname()
code = compile_profile(parse(profile, machine.machine, machine.release), machine.machine)
class Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("code", ctypes.c_char_p))
libc = ctypes.CDLL(None)
assert libc.prctl(38, 1, 0, 0, 0) == 0
assert libc.prctl(22, 2, ctypes.byref(Program(len(code) // 8, code)), 0, 0) == 0
os.execv(sys.argv[2], sys.argv[2:])
"""


class Told(NamedTuple):
    status: int
    checks: dict[str, dict[str, Any]]

    def __getitem__(self, name: str) -> dict[str, Any]:  # type: ignore[override]
        return self.checks[name]

    @property
    def ailing(self) -> set[str]:
        return {name for name, check in self.checks.items() if check["status"] == "fail"}


class Patient:
    """Somebody who asks the doctor, in whatever state; `prefix` is a shell's words before the command."""

    def __init__(self, home: Path, uid: int | None = None) -> None:
        self.home = home
        self.environment = {
            "PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "HOME": str(home), "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONPATH": os.pathsep.join([str(ROOT), *(path for path in sys.path if path.endswith("site-packages"))]),
        }  # fmt: skip
        self.uid = uid

    def run(self, prefix: str, *words: str) -> subprocess.CompletedProcess[str]:
        command = ["/bin/sh", "-euc", f'{prefix} "$@"', "sh", *self._python, "-c", DOCTOR, *words]
        return subprocess.run(
            [*self._entering, *command],
            env=self.environment, cwd="/", stdout=-1, stderr=-1, text=True, timeout=50, check=False,
        )  # fmt: skip

    def ask(self, prefix: str = "") -> Told:
        done = self.run(prefix, "--json")
        assert done.stdout, done.stderr
        told = json.loads(done.stdout)
        assert told["ok"] is (done.returncode == 0)
        return Told(done.returncode, {check["name"]: check for check in told["checks"]})

    @property
    def _entering(self) -> list[str]:
        """An interpreter in somebody's home cannot be run by others, unless it is shown to them elsewhere."""
        if self.uid is None:
            return []
        show = 'mount --bind "$1" "$2"; shift 2; exec "$@"'
        become = ["setpriv", "--reuid", str(self.uid), "--regid", str(self.uid), "--clear-groups"]
        apart = ["unshare", "--mount", "--propagation", "private", "sh", "-euc", show, "sh"]
        return [*apart, sys.base_prefix, str(self.home / "python"), *become]

    @property
    def _python(self) -> list[str]:
        if self.uid is None:
            return [sys.executable]
        inside = Path(os.path.realpath(sys.executable)).relative_to(os.path.realpath(sys.base_prefix))
        return [str(self.home / "python" / inside)]


@pytest.fixture
def home() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(dir="/tmp"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def patient(home: Path) -> Patient:
    """Whoever runs the tests."""
    return Patient(home)


@pytest.fixture(params=["root", "ordinary"] if IS_ROOT else ["ordinary"])
def person(request: pytest.FixtureRequest, home: Path) -> Patient:
    if request.param == "root" or not IS_ROOT:
        return Patient(home)
    (home / "python").mkdir()
    (home / "state").mkdir()
    os.chown(home / "state", NOBODY, NOBODY)
    someone = Patient(home, NOBODY)
    someone.environment |= {"XDG_STATE_HOME": str(home / "state"), "LD_LIBRARY_PATH": str(home / "python" / "lib")}
    return someone


needs_root = pytest.mark.skipif(not IS_ROOT, reason="needs root, to make mounts")


def filtered(*rules: dict[str, Any]) -> str:
    """The shell's words for running what follows under a filter that refuses these calls."""
    denied = [{"action": "SCMP_ACT_ERRNO", "errnoRet": 1, **rule} for rule in rules]
    return f"'{sys.executable}' -c '{FILTERED}' '{json.dumps(denied)}'"


def argument(index: int, value: int, mask: int | None = None) -> dict[str, Any]:
    if mask is None:
        return {"index": index, "value": value, "op": "SCMP_CMP_EQ"}
    return {"index": index, "value": mask, "valueTwo": value, "op": "SCMP_CMP_MASKED_EQ"}


NEW_USER = 0x10000000
NO_NAMESPACES = ({"names": ["unshare"]}, {"names": ["clone"], "args": [argument(0, NEW_USER, NEW_USER)]})
NETLINK, NETFILTER = 16, 12
IN_OWN_MOUNTS = "unshare --mount --propagation private sh -euc"


# Where nothing is wrong.


def test_a_good_machine_is_found_to_be_good(person: Patient) -> None:
    told = person.ask()
    assert (told.status, told.ailing) == (0, set())
    assert {told[name]["status"] for name in ("sandbox", "user namespaces", "seccomp", "network", "audit")} == {"ok"}
    assert "0 personas" not in told["policy"]["what"]


def test_the_table_is_for_a_page_of_eighty_columns(person: Patient) -> None:
    done = person.run("")
    assert done.returncode == 0
    assert done.stderr == "egress: egress-launch can run here\n"
    table, _, _ = done.stdout.partition("\n\n")
    assert max(map(len, table.splitlines())) <= 80
    assert "bubblewrap       ok    " in table


def test_nothing_is_left_of_an_examination(person: Patient) -> None:
    before = sorted(path for path in person.home.rglob("*") if "python/" not in str(path))
    person.ask()
    assert sorted(path for path in person.home.rglob("*") if "python/" not in str(path)) == before


# Where something is.


def test_a_machine_without_bubblewrap(patient: Patient) -> None:
    bare = patient.home / "bin"
    bare.mkdir()
    patient.environment["PATH"] = str(bare)
    told = patient.ask()
    assert (told.status, told.ailing) == (1, {"bubblewrap", "sandbox", "network"})
    assert {told[name]["hint"] for name in told.ailing} == {"sudo apt-get install bubblewrap"}


def test_user_namespaces_that_are_switched_off(patient: Patient) -> None:
    told = patient.ask("unshare --user --map-root-user sh -euc 'echo 0 >/proc/sys/user/max_user_namespaces; \"$@\"' sh")
    assert told.status == 1
    for name in ("user namespaces", "sandbox", "network"):
        assert "user.max_user_namespaces is 0" in told[name]["what"]
        assert "user.max_user_namespaces = 15000" in told[name]["hint"]


@needs_root
def test_a_container_whose_proc_is_masked(patient: Patient) -> None:
    told = patient.ask(f"{IN_OWN_MOUNTS} 'mount -t tmpfs none /proc/tty; \"$@\"' sh")
    assert told.status == 1
    assert {"sandbox"} <= told.ailing <= {"sandbox", "network"}  # the hand-over may be done before bwrap gives up
    assert "parts of /proc are hidden" in told["sandbox"]["what"]


CHROOT = """
mkdir $HOME/root
for each in /*; do
    [ ! -d "$each" ] || { mkdir "$HOME/root$each"; mount --rbind "$each" "$HOME/root$each"; }
done
chroot $HOME/root "$@"
"""


@needs_root
def test_a_chroot(patient: Patient) -> None:
    told = patient.ask(f"{IN_OWN_MOUNTS} '{CHROOT}' sh")
    assert told.status == 1
    for name in ("user namespaces", "sandbox", "network"):
        assert "chroot" in told[name]["what"]


def test_a_container_whose_filter_forbids_namespaces(patient: Patient) -> None:
    told = patient.ask(filtered(*NO_NAMESPACES))
    assert told.status == 1
    for name in ("user namespaces", "sandbox", "network"):
        assert "a seccomp filter" in told[name]["what"]
        assert "seccomp" in told[name]["hint"] or "nesting" in told[name]["hint"]


def test_a_container_that_forbids_mounts(patient: Patient) -> None:
    told = patient.ask(filtered({"names": ["mount"]}))
    assert (told.status, told.ailing) == (1, {"sandbox", "network"})
    assert "mounts are forbidden" in told["sandbox"]["what"]


def test_a_container_without_netlink(patient: Patient) -> None:
    told = patient.ask(filtered({"names": ["socket"], "args": [argument(0, NETLINK)]}))
    assert (told.status, told.ailing) == (1, {"sandbox", "network"})
    assert "loopback" in told["sandbox"]["what"]


def test_a_kernel_without_nftables_still_runs_sandboxes(patient: Patient) -> None:
    told = patient.ask(filtered({"names": ["socket"], "args": [argument(0, NETLINK), argument(2, NETFILTER)]}))
    assert (told.status, told["network"]["status"], told["capture"]["status"]) == (0, "ok", "warn")
    assert "nftables" in told["capture"]["what"]
    assert told["capture"]["hint"].startswith("sudo modprobe -a nf_tables")


def test_a_kernel_without_seccomp_filters(patient: Patient) -> None:
    told = patient.ask(filtered({"names": ["prctl"], "args": [argument(0, 22)]}))
    assert (told.status, told.ailing) == (1, {"seccomp"})
    assert "no seccomp filter" in told["seccomp"]["what"]


@needs_root
def test_a_machine_that_has_no_terminals_to_give(patient: Patient) -> None:
    told = patient.ask(f"{IN_OWN_MOUNTS} 'mount -t tmpfs none /dev/pts; \"$@\"' sh")
    assert told["terminal"]["status"] == "warn"
    assert "mount -t devpts" in told["terminal"]["hint"]


def test_an_old_bubblewrap(patient: Patient) -> None:
    _instead_of_bwrap(patient, "bubblewrap 0.4.0", "--bind --ro-bind --proc --dev --tmpfs")
    told = patient.ask()
    assert told.status == 1
    assert "0.4.0" in told["bubblewrap"]["what"]
    assert "--disable-userns" in told["bubblewrap"]["what"]
    assert told["bubblewrap"]["hint"] == "sudo apt-get install --only-upgrade bubblewrap"


def test_a_bubblewrap_that_hangs_does_not_hold_up_the_doctor(patient: Patient) -> None:
    _instead_of_bwrap(patient, "bubblewrap 0.8.0", "", "exec sleep 1000")
    short = DOCTOR.replace("from egress", "from launcher import doctor as d; examine = d.examine\nfrom egress", 1)
    short = short.replace("parser =", "d.examine = lambda: examine(patience=0.5)\nparser =", 1)
    command = [sys.executable, "-c", short, "--json"]
    done = subprocess.run(command, env=patient.environment, cwd="/", stdout=-1, text=True, timeout=50, check=False)
    told = {check["name"]: check for check in json.loads(done.stdout)["checks"]}
    assert told["sandbox"]["what"] == "no answer within 0.5 seconds"
    assert told["audit"]["status"] == "ok"


def _instead_of_bwrap(patient: Patient, version: str, options: str, otherwise: str = "exit 1") -> None:
    folder = patient.home / "bin"
    folder.mkdir()
    script = f"#!/bin/sh\ncase $1 in --version) echo {version};; --help) echo '{options}';; *) {otherwise};; esac\n"
    (folder / "bwrap").write_text(script)
    (folder / "bwrap").chmod(0o755)
    patient.environment["PATH"] = f"{folder}:{patient.environment['PATH']}"


@needs_root
def test_a_setuid_bubblewrap(patient: Patient) -> None:
    (patient.home / "bin").mkdir()
    copy = patient.home / "bin" / "bwrap"
    shutil.copy(BWRAP, copy)
    copy.chmod(0o4755)
    patient.environment["PATH"] = f"{copy.parent}:{patient.environment['PATH']}"
    told = patient.ask()
    assert (told["bubblewrap"]["status"], told["bubblewrap"]["hint"]) == ("warn", f"sudo chmod u-s {copy}")


def test_a_policy_with_a_mistake(patient: Patient) -> None:
    folder = patient.home / ".config" / "egress"
    folder.mkdir(parents=True)
    (folder / "mine.yaml").write_text("version: 1\nno-such-key: 1\n")
    told = patient.ask()
    assert (told.status, told.ailing) == (1, {"policy"})
    assert f"{folder}/mine.yaml:2" in told["policy"]["what"]


def test_an_audit_log_that_cannot_be_written(patient: Patient) -> None:
    patient.environment["XDG_STATE_HOME"] = "/proc/nowhere"
    told = patient.ask()
    assert (told.status, told.ailing) == (1, {"audit"})
    assert "/proc/nowhere/egress" in told["audit"]["hint"]


# bubblewrap's own words, as it says them here.

FAULTS = [
    ("ulimit -n 5;", "there may be no more open files"),
    ("setpriv --inh-caps +net_admin --ambient-caps +net_admin --reuid 47117", "started with capabilities"),
    ("setpriv --bounding-set=-setfcap,-setpcap --inh-caps=-all", "root lacks a capability"),
    (f"{IN_OWN_MOUNTS} 'umount -R /proc; \"$@\"' sh", "/proc is not mounted"),
    (f"{IN_OWN_MOUNTS} 'mount --bind /proc/sys /proc/sys; mount -o remount,bind,ro /proc/sys; \"$@\"' sh", "of /proc"),
]


@needs_root
@pytest.mark.parametrize(("fault", "cause"), FAULTS)
def test_real_words_lead_to_the_real_cause(fault: str, cause: str, ailing: Callable[[str], str]) -> None:
    assert cause in ailing(fault)


@pytest.fixture
def ailing(patient: Patient) -> Callable[[str], str]:
    """What is said of a sandbox that is tried with a fault."""
    from launcher import ground
    from launcher.checks.sandbox import trial_words
    from launcher.diagnosis import diagnose

    def of(fault: str) -> str:
        words = ["sh", "-euc", f'{fault} "$@"', "sh", *trial_words(BWRAP)]
        done = subprocess.run(words, env=patient.environment, stdout=-1, stderr=-1, text=True, timeout=20, check=False)
        assert done.returncode != 0
        return diagnose(done.stderr, ground.look(BWRAP)).what

    return of
