"""How long a sandbox takes to start, beside the tools people would use instead.

Each round starts every tool once, so that all of them meet the same disturbances; medians are compared.
`srt` is sandbox-runtime from npm; where it cannot be installed it is reported as missing.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROUNDS = 20
ROOT = Path(__file__).resolve().parent.parent.parent
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "egress-bench"
SRT = "@anthropic-ai/sandbox-runtime@0.0.78"
POLICY = "version: 1\npersonas: {bench: {allow: [allowed.example]}}\n"


def srt(work: Path) -> list[str] | None:
    """The command line of sandbox-runtime, installed once."""
    program = CACHE / "node_modules" / ".bin" / "srt"
    if not program.exists() and shutil.which("npm"):
        install = ["npm", "install", "--silent", "--no-audit", "--no-fund", "--prefix", str(CACHE), SRT]
        subprocess.run(install, check=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    if not program.exists() or not all(map(shutil.which, ("socat", "rg"))):
        return None
    settings = work / "srt.json"
    settings.write_text(json.dumps({
        "network": {"allowedDomains": ["allowed.example"], "deniedDomains": []},
        "filesystem": {"denyRead": [], "allowWrite": ["."], "denyWrite": []},
    }))  # fmt: skip
    return [str(program), "--settings", str(settings), "-c"]


def tools(work: Path) -> dict[str, list[str] | None]:
    policy = work / "policy.yaml"
    policy.write_text(POLICY)
    launch = [str(ROOT / "scripts" / "egress-launch"), "--persona", "bench", "--policy", str(policy)]
    launch += ["--audit", str(work / "audit.jsonl"), "--"]
    bwrap = ["bwrap", "--unshare-all", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"]
    firejail = ["firejail", "--quiet", "--noprofile", "--net=none"] if shutil.which("firejail") else None
    return {"bare bwrap": bwrap, "egress-launch": launch, "firejail": firejail, "srt": srt(work)}


def measure(command: list[str], work: Path) -> tuple[float, float]:
    """Milliseconds to the command's own start, and to the end of it all."""
    words = ["date", "+%s%N"]
    full = [*command, " ".join(words)] if command[-1] == "-c" else [*command, *words]
    begun = time.time_ns()
    done = subprocess.run(full, cwd=work, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=True)
    ended = time.time_ns()
    return (int(done.stdout) - begun) / 1e6, (ended - begun) / 1e6


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        work = Path(directory)
        found = tools(work)
        present = {name: command for name, command in found.items() if command}
        for command in present.values():
            measure(command, work)
        rounds = [{name: measure(command, work) for name, command in present.items()} for _ in range(ROUNDS)]
    figures = {
        name: {
            "to the command": round(statistics.median(each[name][0] for each in rounds), 1),
            "in all": round(statistics.median(each[name][1] for each in rounds), 1),
        }
        for name in present
    }
    missing = sorted(set(found) - set(present))
    if "--json" in sys.argv:
        print(json.dumps({"figures": figures, "missing": missing}))
        return
    print(f"start of a sandbox, ms, median of {ROUNDS}   to the command     in all   of egress-launch")
    ours = figures["egress-launch"]["in all"]
    for name, row in figures.items():
        print(f"{name:<40} {row['to the command']:>16} {row['in all']:>10} {row['in all'] / ours:>17.2f}")
    for name in missing:
        print(f"{name:<40} missing: it could not be installed")


if __name__ == "__main__":
    main()
