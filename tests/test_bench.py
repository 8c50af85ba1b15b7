"""What the benchmark says of its measurements: ratios, goals, and what has become worse."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parent.parent / "scripts"))

from benchmarks import gate, generator
from benchmarks.figures import OURS, Failed, Figure, Goal, as_json, as_table, compare, fallen, record

from egress.names import parse_host
from egress.policyfile import parse_document
from egress.wire import clienthello

FAST = Figure("bulk", "bulk", "GB/s", True, {OURS: [2.0, 4.0, 9.0], "squid": [1.0, 4.0, 3.0]}, (Goal("squid", 1.5),))
SLOW = Figure("p50", "latency", "ms", False, {OURS: [3.0], "squid": [2.0]}, (Goal("squid", 1.3), Goal("", 5)))


def test_a_ratio_is_the_median_of_what_the_rounds_gave_not_of_what_their_medians_give() -> None:
    assert FAST.ratio("squid") == 2.0
    assert FAST.median() / FAST.median("squid") == pytest.approx(4 / 3)


def test_a_goal_is_a_least_value_where_more_is_better_and_a_most_value_where_less_is() -> None:
    assert [FAST.meets(goal) for goal in FAST.goals] == [True]
    assert [SLOW.meets(goal) for goal in SLOW.goals] == [False, True]


def test_a_goal_whose_peer_is_missing_is_neither_met_nor_missed() -> None:
    alone = Figure(
        "bulk", "bulk", "GB/s", True, {OURS: [1.0]}, (Goal("squid", 1),), {"squid": "could not be installed"}
    )
    assert alone.meets(alone.goals[0]) is None
    assert "squid missing: could not be installed" in as_table([alone])
    assert "at least 1 × squid: not measured" in as_table([alone])


def test_the_table_shows_every_goal_with_what_was_reached() -> None:
    table = as_table([FAST, SLOW]).splitlines()
    assert table[2] == "| bulk | 4 GB/s | squid 3 (2.00 ×) | at least 1.5 × squid: met (2) |"
    assert table[3].endswith("| at most 1.3 × squid: **not met** (1.5); at most 5 ms: met (3) |")


def test_the_json_has_medians_ratios_and_goals() -> None:
    bulk = as_json([FAST])["bulk"]
    assert bulk["medians"] == {OURS: 4.0, "squid": 3.0}
    assert bulk["ratios"] == {"squid": 2.0}
    assert bulk["goals"] == [{"against": "squid", "bound": 1.5, "reached": 2.0, "met": True}]


@pytest.mark.parametrize(
    ("figure", "before", "worse"),
    [
        (FAST, 2.6, False),
        (FAST, 2.7, True),
        (FAST, 1.0, False),
        (SLOW, 1.2, False),
        (SLOW, 1.1, True),
        (SLOW, 9, False),
    ],
)
def test_a_quarter_worse_than_recorded_is_told(figure: Figure, before: float, worse: bool) -> None:
    assert bool(fallen([figure], {figure.key: {"squid": before}})) is worse


def test_what_was_never_recorded_is_not_worse() -> None:
    assert fallen([FAST], {}) == fallen([FAST], {"bulk": {"socat": 99.0}}) == []


def test_what_is_recorded_now_is_not_worse_than_itself() -> None:
    assert record([FAST, SLOW]) == {"bulk": {"squid": 2.0}, "p50": {"squid": 1.5}}
    assert fallen([FAST, SLOW], record([FAST, SLOW])) == []


def test_contestants_take_turns_and_the_order_turns_around() -> None:
    order = []

    def one(name: str) -> Callable[[], float]:
        return lambda: order.append(name) or 1.0

    compare(2, {OURS: one("a"), "peer": one("b")})
    assert order == ["a", "b", "b", "a"]


def test_a_peer_that_fails_is_missing_and_the_others_go_on() -> None:
    def broken() -> float:
        raise Failed("it fell over")

    rounds, missing = compare(3, {OURS: lambda: 1.0, "peer": broken})
    assert (rounds, missing) == ({OURS: [1.0] * 3}, {"peer": "it fell over"})
    with pytest.raises(Failed):
        compare(1, {OURS: broken})


def test_the_gate_is_measured_with_two_hundred_rules() -> None:
    text = gate.policy({gate.ECHO: 1234, gate.NAMED: 1234})
    assert len(parse_document(text, "policy.yaml").personas["bench"].allow) == gate.RULES


def test_the_hello_that_tunnels_begin_with_is_one_that_the_gate_accepts() -> None:
    reading = clienthello.read(bytearray(generator.client_hello(gate.NAMED)))
    with pytest.raises(StopIteration) as read:
        next(reading)
    clienthello.verify(read.value.value, parse_host(gate.NAMED))


@pytest.mark.scenario
def test_the_load_generator_and_its_servers_understand_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(generator, "CACHE", tmp_path)
    with generator.origin("echo") as echo, generator.origin("source", 3_000_000) as source:
        assert generator.tunnels("run", "direct", "-", echo, 4, 40)["done"] == 40
        assert generator.tunnels("bulk", "direct", "-", source)["bytes"] == 3_000_000
    with generator.origin("pages", 100) as pages:
        assert generator.tunnels("pages", "direct", "-", pages, 4, 40)["done"] == 40
    with pytest.raises(Failed):
        generator.tunnels("run", "direct", "-", 1, 4, 40)


@pytest.mark.scenario
def test_an_unknown_part_is_refused_with_those_there_are() -> None:
    scripts = Path(__file__).resolve().parent.parent / "scripts"
    command = [sys.executable, "-m", "benchmarks", "nonsense"]
    env = {"PYTHONPATH": f"{scripts}:{scripts.parent}", "PATH": "/usr/bin:/bin"}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "no part 'nonsense'; expected some of decision, start" in done.stderr
