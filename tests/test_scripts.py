"""The scripts that set a checkout up, in a checkout of their own, with a python and an apt-get that only take notes.

The machine of these tests has no bwrap: its PATH is one directory, with links to what the scripts may use.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).resolve().parent.parent / "scripts"
TOOLS = "cat cp cut env find flock grep id ls mkdir mktemp readlink rm sed sh sha256sum sort tail touch tr true"

# A python that writes down what it was asked, and makes environments whose python does the same.
PYTHON = r"""#!/bin/sh
echo "$*" | tr '\n' ' ' >>"$NOTES" && echo >>"$NOTES"
case $* in
*ensurepip*) echo "$VERSION $0" ;;
*tomllib*) echo a-dev-tool ;;
*'-m venv'*) while [ $# -gt 1 ]; do shift; done && mkdir -p "$1/bin" && cp "$0" "$1/bin/python" ;;
*'-m pip install'* | *'--no-input install'*) [ ! -e "$NOTES.offline" ] || { echo 'no route to the index' && exit 1; } ;;
*main*) while [ "$1" != -c ]; do shift; done && shift 4 && printf '%s\n' "$@" ;;
esac
"""
APT = r"""#!/bin/sh
echo "apt-get $*" >>"$NOTES"
case $* in
*install*bubblewrap*) cp "$0" "${0%/*}/bwrap" ;;
esac
"""
SUDO = '#!/bin/sh\nshift\n"$@"\n'  # sudo -n COMMAND…
SET_UP = "egress: setting up (first use) …\n"


class Machine:
    def __init__(self, home: Path) -> None:
        self.home = home
        self.root = home / "a checkout"
        self.notes = home / "notes"
        self.bin = home / "bin"
        shutil.copytree(SCRIPTS, self.root / "scripts")
        (self.root / "pyproject.toml").write_text("one")
        self.bin.mkdir()
        for tool in TOOLS.split():
            (self.bin / tool).symlink_to(shutil.which(tool) or tool)
        self.env = {"PATH": str(self.bin), "HOME": str(home), "NOTES": str(self.notes), "VERSION": "13 0"}
        self.env["EGRESS_PYTHON"] = str(self.program("our python", PYTHON))

    def program(self, name: str, text: str) -> Path:
        path = self.bin / name
        path.unlink(missing_ok=True)
        path.write_text(text)
        path.chmod(0o755)
        return path

    def user(self, uid: int) -> None:
        self.program("id", f"#!/bin/sh\necho {uid}\n")

    def run(self, *words: str | Path, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        return subprocess.run(words, cwd=cwd or self.home, env=self.env, capture_output=True, text=True, check=False)

    def egress(self, *words: str) -> subprocess.CompletedProcess[str]:
        return self.run(self.root / "scripts" / "egress", *words)

    def launch(self, *words: str) -> subprocess.CompletedProcess[str]:
        return self.run(self.root / "scripts" / "egress-launch", *words)

    def noted(self, words: str) -> int:
        """How often this was asked of python or apt-get."""
        return self.notes.read_text().count(words) if self.notes.exists() else 0


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    machine = Machine(tmp_path)
    machine.program("bwrap", "#!/bin/sh\n")
    machine.program("nft", "#!/bin/sh\n")
    machine.program("ip", "#!/bin/sh\n")
    return machine


@pytest.fixture
def bare(machine: Machine) -> Machine:
    """Without bwrap, and with an ordinary user."""
    (machine.bin / "bwrap").unlink()
    machine.program("apt-get", APT)
    machine.user(1000)
    return machine


def test_the_first_use_sets_up_and_the_second_only_starts(machine: Machine) -> None:
    first = machine.egress("check", "two words")
    assert (first.returncode, first.stdout, first.stderr) == (0, "check\ntwo words\n", SET_UP)
    before = machine.notes.read_text()
    second = machine.egress("check")
    assert (second.returncode, second.stdout, second.stderr) == (0, "check\n", "")
    assert len(machine.notes.read_text().removeprefix(before).splitlines()) == 1


def test_both_commands_share_one_environment(machine: Machine) -> None:
    machine.egress()
    assert machine.launch("--", "ls").stdout == "--\nls\n"
    assert machine.noted("-m venv") == 1
    assert machine.noted("from launcher.cli import main") == 1


def test_a_link_to_a_script_leads_to_its_checkout(machine: Machine, tmp_path: Path) -> None:
    link = tmp_path / "a link"
    link.symlink_to(machine.root / "scripts" / "egress")
    assert machine.run(link, "hello", cwd=Path("/")).stdout == "hello\n"
    assert (machine.root / ".venv" / ".ready-run").exists()


def test_what_lies_in_the_working_directory_is_not_imported(machine: Machine) -> None:
    machine.egress()
    assert machine.notes.read_text().splitlines()[-1].startswith("-I -S -c ")


@pytest.mark.parametrize("hours", [-1, 1], ids=["older", "newer"])
def test_another_pyproject_is_installed_anew(machine: Machine, hours: int) -> None:
    machine.egress()
    project = machine.root / "pyproject.toml"
    time = project.stat().st_mtime + hours * 3600
    os.utime(project, (time, time))
    assert machine.egress("x").stdout == "x\n"
    assert machine.noted("install -e") == 2
    assert machine.noted("-m venv") == 1
    assert machine.egress().stderr == ""


def test_a_copied_checkout_makes_its_own_environment(machine: Machine, tmp_path: Path) -> None:
    machine.egress()
    copy = tmp_path / "copy"
    shutil.copytree(machine.root, copy, symlinks=True)
    assert machine.run(copy / "scripts" / "egress", "x").stderr == SET_UP
    assert machine.noted(f"install -e {copy}") == 1


def test_an_interrupted_set_up_is_made_anew(machine: Machine) -> None:
    venv = machine.root / ".venv"
    machine.run(machine.env["EGRESS_PYTHON"], "-m venv", venv)
    (venv / "half a package").touch()
    (venv / ".unfinished").touch()
    assert machine.egress("x").stdout == "x\n"
    assert not (venv / "half a package").exists()
    assert not (venv / ".unfinished").exists()


def test_an_environment_made_by_hand_is_used(machine: Machine) -> None:
    mine = machine.root / ".venv"
    machine.run(machine.env["EGRESS_PYTHON"], "-m venv", mine)
    (mine / "mine").touch()
    assert machine.egress("x").stdout == "x\n"
    assert (mine / "mine").exists()


def test_two_first_uses_make_one_environment(machine: Machine) -> None:
    word = [machine.root / "scripts" / "egress", "x"]
    both = [subprocess.Popen(word, env=machine.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE) for _ in range(2)]
    assert [one.communicate()[0] for one in both] == [b"x\n", b"x\n"]
    assert machine.noted("-m venv") == 1


def test_when_pip_fails_its_last_words_are_shown(machine: Machine) -> None:
    offline = Path(f"{machine.notes}.offline")
    offline.touch()
    failed = machine.egress("x")
    assert (failed.returncode, failed.stdout) == (125, "")
    assert "no route to the index\negress: error: " in failed.stderr
    assert failed.stderr.splitlines()[-1].startswith("egress: hint: ")
    offline.unlink()
    assert machine.egress("x").stdout == "x\n"


def test_the_newest_interpreter_that_works_is_taken(machine: Machine) -> None:
    del machine.env["EGRESS_PYTHON"]
    machine.program("python3", PYTHON.replace("$VERSION", "97 9"))
    machine.program("python3.98", PYTHON.replace("$VERSION", "98 1"))
    machine.program("python3.99", "#!/bin/sh\necho 'pyenv: python3.99: command not found'; exit 127\n")
    machine.program("python3.98-config", PYTHON.replace("$VERSION", "99 1"))
    assert machine.egress("x").stdout == "x\n"
    assert "98 1" in (machine.root / ".venv" / "bin" / "python").read_text()


def test_an_interpreter_that_is_too_old_is_an_error(machine: Machine) -> None:
    old = machine.program("old", "#!/bin/sh\n")
    machine.env["EGRESS_PYTHON"] = str(old)
    refused = machine.egress()
    assert refused.returncode == 125
    assert f"egress: error: python 3.11 or newer is needed (found: {old})\negress: hint: " in refused.stderr


def test_an_ordinary_user_is_told_the_one_command(bare: Machine) -> None:
    refused = bare.launch("--", "ls")
    assert (refused.returncode, refused.stdout) == (125, "")
    hint = "egress: hint: sudo apt-get update && sudo apt-get install -y bubblewrap"
    assert refused.stderr.splitlines()[-1] == hint
    assert bare.noted("apt-get") == 0


def test_the_gate_alone_goes_on_without_the_sandbox(bare: Machine) -> None:
    first = bare.egress("x")
    assert (first.returncode, first.stdout) == (0, "x\n")
    assert "egress: warning: " in first.stderr
    assert bare.egress("x").stderr == ""
    assert bare.launch("x").returncode == 125


@pytest.mark.parametrize("who", ["root", "a user with sudo"])
def test_who_may_install_gets_what_is_missing(bare: Machine, who: str) -> None:
    if who == "root":
        bare.user(0)
    else:
        bare.program("sudo", SUDO)
    assert bare.launch("--", "ls").stdout == "--\nls\n"
    assert bare.noted("apt-get update") == 1
    assert bare.noted("apt-get install") == 1
    assert bare.launch().stderr == ""


def test_tests_run_with_the_tools_of_the_dev_group(bare: Machine) -> None:
    bare.run(bare.root / "scripts" / "test", "-k", "two words")
    assert "a-dev-tool" in (bare.root / ".venv" / "dev-requirements.txt").read_text()
    asked = bare.notes.read_text().splitlines()[-1]
    assert asked.startswith("-m pytest ")
    assert asked.endswith("-k two words ")


def test_what_was_set_up_for_tests_also_runs(bare: Machine) -> None:
    bare.run(bare.root / "scripts" / "test")
    installs = bare.noted("install -e")
    bare.egress()
    assert bare.noted("install -e") == installs


@pytest.mark.scenario
def test_a_checkout_that_cannot_be_written_has_its_environment_in_the_cache(machine: Machine) -> None:
    (machine.home / ".cache").mkdir()
    writable = [machine.home / ".cache", machine.notes]
    machine.notes.touch()
    binds = [word for path in writable for word in ("--bind", path, path)]
    sandbox = [shutil.which("bwrap") or "bwrap", "--ro-bind", "/", "/", "--dev", "/dev", "--tmpfs", "/var/tmp", *binds]
    machine.env["TMPDIR"] = "/var/tmp"
    for expected in (SET_UP, ""):
        done = machine.run(*sandbox, machine.root / "scripts" / "egress", "x")
        assert (done.returncode, done.stdout, done.stderr) == (0, "x\n", expected)
    assert not (machine.root / ".venv").exists()
    assert machine.noted("-X pycache_prefix=") == 2
