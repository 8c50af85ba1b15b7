"""The rooms of the house, and who may call on whom.

Parsing, deciding and doing stay apart because imports do: every module is in a room, and a room may import
only some rooms. Rooms follow from paths; a module that stands directly in `egress/` is declared below.
An import counts wherever it stands, also inside a function or under TYPE_CHECKING: it is a dependency all
the same. Two rooms, `inspection` and `control`, bring in whole frameworks, so they are imported only where
they are put to use: in `app.py`, inside a function.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parent.parent

# The modules that stand directly in egress/, by room.
ROOMS = {
    "pure": """
        addresses advice auditread auditrecords auditselect auditsummary commandline credentials dnslimits draft
        draftrequests explain floods foreign hazards inquiry jsontree limits lint metrics model names overlaps overrides
        policy policybook policyedit policyfields policyfile policylayers policyrequests policyrules policytree
        policywalls problems proctables record refusals requestadvice requestpolicy rootfiles rules ruletext sightings
        suffixes surroundings synthetic tally urlpath
    """,
    "service": """
        attendance attribution audit auditfiles auditfollow auditunpack bulletin captureface colleagues controlsocket
        counsel counts crew dnsregister enforce enginestart errand filteredzone following forward gateway httpface
        inspecting leading ledger logfile nameserver notify originface oversight passage places policysources
        policywriter processes projectfile questions reception reload requestdesk sessions signpost socksface
        syntheticzone tlsguard together toolhosts uploads users vault workers
    """,
    "entry": "app cli",
}
DECLARED = {name: room for room, names in ROOMS.items() for name in names.split()}
PACKAGES = {
    "agentsettings": "pure",
    "wire": "wire",
    "net": "net",
    "inspection": "inspection",
    "control": "control",
    "commands": "entry",
}

CORE = {"pure", "wire", "net", "service"}
FRAMEWORKS = {"inspection", "control"}
# `egress doctor` examines the launcher, which it otherwise knows nothing of, `egress attach` has it join networks, and
# `egress settings` has its list of protected files; inside a function.
DOORS = {
    ("egress.commands.attach", "launcher.attach"),
    ("egress.commands.doctor", "launcher.doctor"),
    ("egress.commands.settings", "launcher.protect"),
    ("egress.commands.ca", "egress.inspection.kept"),
    *(("launcher.mint", f"egress.inspection.{module}") for module in ("authority", "bundle", "keystore")),
}
MAY_IMPORT = {
    "pure": {"pure"},
    "wire": {"pure", "wire"},
    "net": {"pure", "wire", "net"},
    "service": CORE,
    "inspection": {*CORE, "inspection"},
    "control": {*CORE, "control"},
    "entry": {*CORE, "entry"},
    "launcher": {*CORE, "entry", "launcher"},
}
# What touches the world. The rooms that only compute have none of it.
EFFECTS = "asyncio multiprocessing os select selectors signal socket subprocess threading time"
COMPUTES = {"pure", "wire"}

# A name that the standard library has in one version of Python is taken in all of them.
REMOVED = "asynchat asyncore cgi chunk crypt distutils imp mailcap nis pipes smtpd telnetlib uu xdrlib"

MOST_LINES = 350
UNFINISHED = re.compile(rf"\b(?:{'TO'}DO|{'FIX'}ME|{'X' * 3})\b")


class Import(NamedTuple):
    module: str
    line: int
    late: bool  # inside a function, or for the type checker only: costs nothing at start


def module_name(path: Path) -> str:
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def tree() -> dict[str, str]:
    """Every module of ours, with its source."""
    files = (path for top in ("egress", "launcher") for path in (ROOT / top).rglob("*.py"))
    return {module_name(path.relative_to(ROOT)): path.read_text() for path in files}


def room_of(module: str) -> str | None:
    top, _, rest = module.partition(".")
    if top == "launcher":
        return "launcher"
    if not rest:  # egress itself holds its version and nothing else
        return "pure"
    name = rest.partition(".")[0]
    return PACKAGES.get(name) or DECLARED.get(name)


def imports(module: str, source: str, ours: Iterable[str] = ()) -> Iterator[Import]:
    return _imports(ast.parse(source), module, frozenset(ours), late=False)


def _imports(node: ast.AST, module: str, ours: frozenset[str], *, late: bool) -> Iterator[Import]:
    for target in _targets(node, module, ours):
        yield Import(target, node.lineno, late)  # type: ignore[attr-defined]
    late = late or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) or _for_type_checker(node)
    for child in ast.iter_child_nodes(node):
        yield from _imports(child, module, ours, late=late)


def _targets(node: ast.AST, module: str, ours: frozenset[str]) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        base = ".".join([*_package(module, node.level, ours), *filter(None, [node.module])])
        # `from package import name` may name a module, which is then what is imported
        yield from {f"{base}.{alias.name}" if f"{base}.{alias.name}" in ours else base for alias in node.names}
    elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
        yield from (arg.value for arg in node.args if isinstance(arg, ast.Constant) and isinstance(arg.value, str))


def _package(module: str, level: int, ours: frozenset[str]) -> list[str]:
    """What the dots of a relative import stand for: its own package with one, the package above with two."""
    if level == 0:
        return []
    parts = module.split(".")
    is_package = any(name.startswith(f"{module}.") for name in ours)
    return parts[: len(parts) - level + is_package]


def _for_type_checker(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")


def violations(modules: Mapping[str, str]) -> list[str]:
    return [line for module, source in sorted(modules.items()) for line in _violations(module, source, modules)]


def _violations(module: str, source: str, ours: Iterable[str]) -> Iterator[str]:
    room = room_of(module)
    if room is None:
        yield f"{module}: no room is declared for it; add it to ROOMS in tests/test_architecture.py"
        return
    for found in imports(module, source, ours):
        if objection := _objection(module, room, found):
            yield f"{module}:{found.line}: {objection}"


def _objection(module: str, room: str, found: Import) -> str | None:
    top = found.module.partition(".")[0]
    if room in COMPUTES and top in EFFECTS.split():
        return f"{room} may not import {top}"
    if top not in ("egress", "launcher"):
        return None
    target = room_of(found.module)
    if target in MAY_IMPORT[room] or target is None:  # None: reported where that module itself is looked at
        return None
    if (module, found.module) in DOORS and found.late:
        return None
    if target in FRAMEWORKS and module == "egress.app":
        return None if found.late else f"{found.module} is imported at the top; app.py does that inside a function"
    return f"{room} may not import {found.module}, which is {target}"


def named_like_the_standard_library(modules: Iterable[str]) -> list[str]:
    taken = {*REMOVED.split(), *sys.stdlib_module_names}
    return [module for module in modules if module.rpartition(".")[2] in taken]


def written_files(*tops: str) -> Iterator[Path]:
    texts = {".py", ".sh", ".yaml", ".md", ""}
    for top in tops:
        yield from (path for path in (ROOT / top).rglob("*") if path.is_file() and path.suffix in texts)


def imported_by(statement: str) -> set[str]:
    """What a fresh interpreter has loaded after this, beyond what it starts with."""
    script = f"import sys; before = set(sys.modules); {statement}; print(*set(sys.modules) - before)"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    return set(done.stdout.split())


def test_every_module_keeps_to_its_room() -> None:
    assert violations(tree()) == []


def test_the_tree_is_really_looked_at() -> None:
    found = tree()
    assert {"egress", "egress.names", "egress.wire.handshake", "launcher", "launcher.cli"} <= found.keys()
    assert Import("egress.model", 0, late=False).module in {i.module for i in imports("x", found["egress.names"])}


@pytest.mark.parametrize(
    ("module", "source", "complaint"),
    [
        ("egress.names", "import asyncio", "egress.names:1: pure may not import asyncio"),
        ("egress.names", "def f():\n    import os.path", "egress.names:2: pure may not import os"),
        ("egress.rules", "from time import monotonic", "egress.rules:1: pure may not import time"),
        (
            "egress.rules",
            "import importlib\nimportlib.import_module('socket')",
            "rules:2: pure may not import socket",
        ),
        (
            "egress.policy",
            "from egress.wire.http1 import Request",
            "pure may not import egress.wire.http1, which is wire",
        ),
        ("egress.policy", "from egress import audit", "pure may not import egress.audit, which is service"),
        ("egress.policy", "if TYPE_CHECKING:\n    import egress.net.relay", "egress.policy:2: pure may not import"),
        ("egress.wire.http1", "import select", "wire may not import select"),
        ("egress.wire.http1", "from egress.net.stream import Stream", "which is net"),
        ("egress.wire.http1", "from ..audit import Audit", "wire may not import egress.audit"),
        ("egress.wire.http1", "from .. import audit", "wire may not import egress.audit"),
        ("egress.wire", "from ..audit import Audit", "wire may not import egress.audit"),
        ("egress.wire", "from .. import audit", "wire may not import egress.audit"),
        ("egress.net.relay", "from egress.audit import Audit", "net may not import egress.audit"),
        ("egress.audit", "from egress import cli", "service may not import egress.cli, which is entry"),
        ("egress.audit", "import egress.commands.proxy", "which is entry"),
        ("egress.audit", "def f():\n    import egress.inspection.engine", "which is inspection"),
        ("egress.cli", "def f():\n    from egress.control import app", "entry may not import egress.control"),
        ("egress.control.app", "import egress.inspection", "control may not import egress.inspection"),
        ("egress.inspection.engine", "import egress.app", "which is entry"),
        ("egress.app", "from egress.inspection.engine import Engine", "app.py does that inside a function"),
        ("egress.app", "from launcher.plan import Plan", "entry may not import launcher.plan, which is launcher"),
        ("egress.names", "from launcher import cli", "which is launcher"),
        ("launcher.cli", "import egress.control", "launcher may not import egress.control"),
        ("egress.helpers", "", "egress.helpers: no room is declared for it; add it to ROOMS in tests/"),
    ],
)
def test_a_wrong_import_is_found(module: str, source: str, complaint: str) -> None:
    others = ["egress.audit", "egress.cli", "egress.control.app", "egress.wire.http1", "launcher.cli"]
    found = violations({**dict.fromkeys(others, ""), module: source})
    assert len(found) == 1
    assert re.search(complaint, found[0])


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("egress.names", "import re\nfrom egress.model import Host"),
        ("egress.wire.http1", "from egress.names import parse_host\nfrom .handshake import take"),
        ("egress.net.relay", "import os, asyncio\nfrom egress.wire import handshake"),
        ("egress.audit", "import time\nfrom egress.net.stream import Stream\nimport egress.sessions"),
        ("egress.app", "def f():\n    from egress.inspection.engine import Engine"),
        ("egress.app", "if TYPE_CHECKING:\n    from egress.control.app import Page"),
        ("egress.commands.proxy", "from egress import app, __version__"),
        ("launcher.run", "from egress.policy import Policy\nfrom egress import app"),
    ],
)
def test_a_right_import_is_left_alone(module: str, source: str) -> None:
    assert violations({module: source}) == []


def test_no_module_is_named_like_one_of_the_standard_library() -> None:
    assert named_like_the_standard_library(tree()) == []
    assert named_like_the_standard_library(["egress.inspect", "egress.inspection"]) == ["egress.inspect"]


@pytest.mark.parametrize("module", ["egress.cli", "egress.commands.proxy"])
def test_the_gate_starts_without_its_frameworks(module: str) -> None:
    assert imported_by(f"import {module}").isdisjoint({"mitmproxy", "aiohttp"})


def test_the_launcher_starts_without_what_costs_milliseconds() -> None:
    slow = {"mitmproxy", "aiohttp", "asyncio", "dataclasses", "msgspec"}
    assert imported_by("import launcher.cli").isdisjoint(slow)
    assert imported_by("import asyncio, dataclasses") & slow == {"asyncio", "dataclasses"}


def test_no_file_is_too_long_to_be_about_one_thing() -> None:
    lengths = {path: len(path.read_text().splitlines()) for path in written_files("egress", "launcher", "scripts")}
    assert lengths
    assert {path: length for path, length in lengths.items() if length > MOST_LINES} == {}


def test_nothing_is_left_for_later() -> None:
    files = list(written_files("egress", "launcher", "policies", "scripts", "tests"))
    assert [path for path in files if UNFINISHED.search(path.read_text())] == []
    assert UNFINISHED.search("# TO" + "DO: later")


def test_ruff_is_told_to_watch_complexity_and_printing() -> None:
    ruff = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["ruff"]["lint"]
    assert {"C90", "T20"} <= set(ruff["select"])
    assert ruff["mccabe"]["max-complexity"] == 8
    printing = {files for files, ignored in ruff["per-file-ignores"].items() if "T20" in ignored}
    assert printing == {"tests/**", "scripts/**", "docs/examples/*.py", "*/cli.py", "egress/commands/*.py"}
