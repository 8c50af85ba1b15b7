"""What people install is what stands in the checkout: the wheel, by itself and by way of the sdist."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path
from typing import NamedTuple

import pytest

from egress import __version__

ROOT = Path(__file__).resolve().parent.parent

pytestmark = pytest.mark.scenario


class Built(NamedTuple):
    wheel: Path
    sdist: Path


def run(*words: str | Path, cwd: Path) -> str:
    done = subprocess.run(words, cwd=cwd, stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout


def build(source: Path, out: Path) -> Built:
    run(sys.executable, "-m", "hatchling", "build", "--directory", out, cwd=source)
    return Built(next(out.glob("*.whl")), next(out.glob("*.tar.gz")))


def contents(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist() if ".dist-info/" not in name}


def checked_out(top: str, below: str) -> dict[str, bytes]:
    """The files of a directory of the checkout, by their names in the wheel."""
    files = (path for path in (ROOT / top).rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {f"{below}/{path.relative_to(ROOT / top).as_posix()}": path.read_bytes() for path in files}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    return build(ROOT, tmp_path_factory.mktemp("built"))


@pytest.fixture(scope="module")
def installed(built: Built, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new environment with our wheel. Its dependencies are borrowed from the one that runs the tests."""
    home = tmp_path_factory.mktemp("installed")
    run(sys.executable, "-m", "venv", "--without-pip", home, cwd=home)
    python = home / "bin" / "python"
    run(
        sys.executable,
        "-m",
        "pip",
        "--python",
        python,
        "install",
        "-q",
        "--no-deps",
        "--no-index",
        built.wheel,
        cwd=home,
    )
    site = run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=home).strip()
    borrowed = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    Path(site, "borrowed.pth").write_text("\n".join(borrowed))
    return home


def test_the_wheel_holds_the_two_packages_and_the_policies(built: Built) -> None:
    expected = checked_out("egress", "egress") | checked_out("launcher", "launcher")
    assert contents(built.wheel) == expected | checked_out("policies", "egress/policies")


def test_the_wheel_holds_what_programs_look_for(built: Built) -> None:
    names = contents(built.wheel).keys()
    assert {"egress/py.typed", "launcher/py.typed"} <= names
    assert [name for name in names if name.startswith("egress/policies/") and name.endswith(".yaml")]


def test_the_sdist_makes_the_same_wheel(built: Built, tmp_path: Path) -> None:
    run("tar", "-xf", built.sdist, cwd=tmp_path)
    again = build(tmp_path / built.sdist.name.removesuffix(".tar.gz"), tmp_path)
    assert again.wheel.read_bytes() == built.wheel.read_bytes()


def test_an_installed_egress_says_its_version(installed: Path, tmp_path: Path) -> None:
    assert run(installed / "bin" / "egress", "--version", cwd=tmp_path) == f"egress {__version__}\n"


def test_an_installed_egress_is_not_the_checkout(installed: Path, tmp_path: Path) -> None:
    where = run(installed / "bin" / "python", "-c", "import egress, launcher; print(egress.__path__[0])", cwd=tmp_path)
    assert Path(where.strip()).is_relative_to(installed)


def test_an_installed_egress_has_its_policies(installed: Path, tmp_path: Path) -> None:
    answer = run(installed / "bin" / "egress", "check", "api.anthropic.com", "--persona", "navigator", cwd=tmp_path)
    assert "allow" in answer


def test_both_commands_are_installed(installed: Path) -> None:
    assert {"egress", "egress-launch"} <= {path.name for path in (installed / "bin").iterdir()}
