"""docs/importing.md names every setting that a table has."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from egress.foreign import callfilter, claude, manifest, runtime, worker, workflow

PAGE = (Path(__file__).parents[1] / "docs/importing.md").read_text()


def section(title: str) -> str:
    return PAGE.split(f"\n## {title}", 1)[1].split("\n## ", 1)[0]


def under(prefix: str, keys: Iterable[str]) -> list[str]:
    return [f"{prefix}.{key}" for key in keys]


CLAUDE = set(claude.TABLE) - set(under("sandbox", runtime.TABLE))
WAVE = {*manifest.RUNTIME, *under("personas.*", manifest.PERSONA)} - {"personas", "personas.*.*"}
WORKER = {*worker.DEFAULTS, *under("profiles.*", worker.PROFILE)} - {"profiles"}
WORKFLOW = set(workflow.TABLE) - {"security.sandbox.claude_code", "security.sandbox.shell"}


@pytest.mark.parametrize(
    ("title", "settings"),
    [
        ("Claude Code", CLAUDE),
        ("sandbox-runtime", set(runtime.TABLE)),
        ("Wave", WAVE),
        ("A worker", WORKER),
        ("A seccomp profile", set(callfilter.TABLE)),
        ("A workflow engine", WORKFLOW),
    ],
)
def test_every_setting_has_its_row(title: str, settings: set[str]) -> None:
    text = section(title)
    assert [path for path in sorted(settings) if not path.endswith("*") and f"`{path}`" not in text] == []


def test_every_step_of_a_workflow_has_its_rows() -> None:
    assert [name for name in workflow.STEP if f".{name}`" not in section("A workflow engine")] == []
