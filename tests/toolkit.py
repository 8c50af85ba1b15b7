"""A made-up machine for the tools of `egress.toolhosts`: a home, an /etc, programs in PATH, and a project."""

from __future__ import annotations

from pathlib import Path

from egress import toolhosts
from egress.toolhosts.machine import Machine

# What pip's own source says, with stand-ins for its hosts.
PIP_SAYS = """\
class PackageIndex: ...

PyPI = PackageIndex("https://index.example/", file_storage_domain="files.example")
TestPyPI = PackageIndex("https://test.example/", file_storage_domain="test-files.example")
"""


class Box:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.home = path / "home"
        self.project = path / "project"
        self.bin = path / "usr" / "bin"
        for directory in (self.home, self.project, self.bin, path / "etc"):
            directory.mkdir(parents=True)
        self.environ = {"HOME": str(self.home), "PATH": str(self.bin), "XDG_CONFIG_DIRS": str(path / "etc" / "xdg")}

    def write(self, name: str, text: str) -> Path:
        """A file of this machine, by its path there or below `~/`."""
        path = self.home / name[2:] if name.startswith("~/") else self.path / name.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def program(self, path: str, says: str, status: int = 0) -> Path:
        """A program that notes how it was run, and answers."""
        program = self.write(path, f'#!/bin/sh\n(echo "$@"; pwd; env) > "$0.run"\necho "{says}"\nexit {status}\n')
        program.chmod(0o755)
        return program

    def install_pip(self) -> None:
        self.write("lib/site-packages/pip/_internal/models/index.py", PIP_SAYS)

    @property
    def machine(self) -> Machine:
        return Machine(dict(self.environ), (str(self.project),), str(self.path))

    def hosts(self, tool: str) -> list[str]:
        """What a tool reaches, as URLs without paths, in order."""
        found = toolhosts.expand(tool, self.machine)
        return [f"{'https' if it.tls else 'http'}://{it.host}:{it.port}" for it in found]

    def environment(self, tool: str) -> dict[str, str]:
        return toolhosts.environment(tool, self.machine)

    def problems(self, tool: str) -> tuple[str, ...]:
        return toolhosts.problems(tool, self.machine)
