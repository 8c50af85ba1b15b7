"""What scenarios share: an authority that clients trust, and gates that are stopped, and looked at, afterwards."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from gateprocess import GateProcess, Rules
from servers import Authority

NAMES = ["localhost", "secure.test", "denied.test", "h2.test", "wss.test", "git.test", "index.test", "registry.test"]


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"), *NAMES)


@pytest.fixture
def start_gate(tmp_path: Path) -> Iterator[Callable[..., GateProcess]]:
    """Starts `egress proxy`, each in a directory of its own; what still runs at the test's end is asked to stop."""
    with contextlib.ExitStack() as stack:
        numbers = itertools.count()

        def start(policy: Rules | str, *words: str | Path, **options: Any) -> GateProcess:
            gate = GateProcess(tmp_path / f"gate{next(numbers)}", policy, *words, **options)
            stack.callback(lambda: gate.process.poll() is None and gate.stop())
            return gate

        yield start
