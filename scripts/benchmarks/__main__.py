"""`scripts/bench`: measures, prints the table, and compares with what was recorded."""

from __future__ import annotations

import argparse
import datetime as dt
import json
import os
import platform
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path

from benchmarks.figures import Failed, Figure, as_json, as_table, fallen, record
from benchmarks.scale import FULL, QUICK, Scale

RECORDED = Path(__file__).with_name("recorded.json")
PARTS = ("decision", "start", "enter", "hosted", "inside", "inspected", "nameserver", "growth", "workers")
LEFT_OUT_OF_QUICK = ("growth", "workers")
Part = Callable[[Path, Scale], Iterator[Figure]]


def main() -> int:
    args = _arguments()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # whatever ends this, it ends what was started
    parts = args.parts or [part for part in PARTS if not (args.quick and part in LEFT_OUT_OF_QUICK)]
    begun = time.monotonic()
    figures: list[Figure] = []
    unmeasured = [part for part in parts if not _measure(part, QUICK if args.quick else FULL, figures)]
    if args.json:
        print(json.dumps({"machine": _machine(), "figures": as_json(figures)}, indent=2))
    else:
        print(f"{_machine()}, {time.monotonic() - begun:.0f} s\n\n{as_table(figures)}")
    if args.record:
        _write(record(figures), "quick" if args.quick else "full")
    return int(bool(unmeasured) or (args.quick and not _as_good_as_recorded(figures)))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="bench", description="Measures egress beside other tools. Ratios count; times on a shared machine do not."
    )
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"some of: {', '.join(PARTS)}; default: all")
    parser.add_argument("--quick", action="store_true", help="a minute; fails if a ratio fell by a quarter")
    parser.add_argument("--json", action="store_true", help="one JSON object")
    parser.add_argument("--record", action="store_true", help="keep the ratios, to be compared with")
    args = parser.parse_args()
    if unknown := set(args.parts) - set(PARTS):
        parser.error(f"no part {', '.join(sorted(unknown))!r}; expected some of {', '.join(PARTS)}")
    return args


def _measure(part: str, scale: Scale, figures: list[Figure]) -> bool:
    """Add what a part measures; whether it came to its end."""
    measure: Part = import_module(f"benchmarks.{part}").measure
    with tempfile.TemporaryDirectory(prefix="egress-bench-", dir="/var/tmp") as work:
        Path(work).chmod(0o755)
        try:
            for figure in measure(Path(work), scale):
                _say(f"{figure.what}: {figure.median():.4g} {figure.unit}")
                figures.append(figure)
        except Failed as failed:
            _say(f"error: {part} could not be measured: {failed}")
            return False
    return True


def _say(words: str) -> None:
    print(f"egress: {words}", file=sys.stderr)


def _machine() -> str:
    today = dt.datetime.now(dt.UTC).date()
    python = platform.python_version()
    return f"{today}, {len(os.sched_getaffinity(0))} cores, Linux {platform.release()}, Python {python}"


def _recorded() -> dict[str, dict[str, dict[str, float]]]:
    return json.loads(RECORDED.read_text()) if RECORDED.exists() else {}  # type: ignore[no-any-return]


def _write(ratios: dict[str, dict[str, float]], kind: str) -> None:
    """Under the scale that they were measured at; figures that were not measured now stay as they were."""
    kept = _recorded()
    kept[kind] = {**kept.get(kind, {}), **ratios}
    RECORDED.write_text(json.dumps(kept, indent=2, sort_keys=True) + "\n")


def _as_good_as_recorded(figures: list[Figure]) -> bool:
    worse = fallen(figures, _recorded().get("quick", {}))
    for line in worse:
        _say(f"error: a quarter worse than it was: {line}")
    if worse:
        _say("hint: run it again when the machine is quiet, then look at what changed")
    return not worse


if __name__ == "__main__":
    sys.exit(main())
