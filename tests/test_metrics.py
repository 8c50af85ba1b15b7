"""Counting, and the text form of it."""

from __future__ import annotations

import pytest

from egress.metrics import Histogram, Metrics, Now

NOW = Now("1.2.3", open_tunnels=4, questions=2, generation=3, audit_failing=False)


@pytest.fixture
def metrics() -> Metrics:
    return Metrics(lambda: {"reviewer", "implementer"})


def samples(metrics: Metrics, now: Now = NOW) -> dict[str, float]:
    lines = [line for line in metrics.text(now).splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}


def test_decisions_are_counted_by_persona_verdict_and_reason(metrics: Metrics) -> None:
    metrics.decided("reviewer", "deny", "not_listed")
    metrics.decided("reviewer", "deny", "not_listed")
    metrics.decided("implementer", "allow", "listed")
    found = samples(metrics)
    assert found['egress_decisions_total{persona="reviewer",verdict="deny",reason="not_listed"}'] == 2
    assert found['egress_decisions_total{persona="implementer",verdict="allow",reason="listed"}'] == 1


def test_one_record_for_many_questions_counts_for_all_of_them(metrics: Metrics) -> None:
    metrics.decided("reviewer", "deny", "not_listed", count=1000)
    assert samples(metrics)['egress_decisions_total{persona="reviewer",verdict="deny",reason="not_listed"}'] == 1000


def test_a_persona_that_the_policy_does_not_have_makes_no_series_of_its_own(metrics: Metrics) -> None:
    for number in range(1000):
        metrics.decided(f"chosen{number}", "deny", "not_listed")
    metrics.decided("", "deny", "credentials")
    decisions = {name for name in samples(metrics) if name.startswith("egress_decisions")}
    assert decisions == {
        'egress_decisions_total{persona="other",verdict="deny",reason="not_listed"}',
        'egress_decisions_total{persona="none",verdict="deny",reason="credentials"}',
    }


def test_bytes_and_ends_add_up(metrics: Metrics) -> None:
    metrics.ended(10, 200, "closed")
    metrics.ended(1, 3, "reset")
    found = samples(metrics)
    assert found['egress_bytes_total{direction="up"}'] == 11
    assert found['egress_bytes_total{direction="down"}'] == 203
    assert found['egress_ended_total{outcome="reset"}'] == 1


def test_what_is_looked_up_is_as_it_is_now(metrics: Metrics) -> None:
    found = samples(metrics)
    assert found["egress_tunnels_open"] == 4
    assert found["egress_questions_pending"] == 2
    assert found["egress_policy_generation"] == 3
    assert found["egress_audit_failing"] == 0
    assert found['egress_info{version="1.2.3"}'] == 1
    assert samples(metrics, NOW._replace(audit_failing=True))["egress_audit_failing"] == 1


def test_a_reload_leaves_its_time_and_a_bad_one_its_count(metrics: Metrics) -> None:
    assert "egress_policy_last_reload_timestamp_seconds" not in samples(metrics)
    metrics.reloaded(1000.5, None)
    metrics.reloaded(2000.0, "policy.yaml:3: nonsense")
    found = samples(metrics)
    assert found["egress_policy_last_reload_timestamp_seconds"] == 1000.5
    assert found["egress_policy_reload_errors_total"] == 1


def test_lost_records_are_counted(metrics: Metrics) -> None:
    metrics.lost(3)
    metrics.lost(4)
    assert samples(metrics)["egress_audit_lost_records_total"] == 7


def test_a_histogram_counts_up_to_each_bound_and_including_it() -> None:
    histogram = Histogram((0.1, 1.0))
    for seconds in (0.05, 0.1, 0.5, 7.0):
        histogram.observe(seconds)
    assert list(histogram.lines("x")) == [
        'x_bucket{le="0.1"} 2',
        'x_bucket{le="1"} 3',
        'x_bucket{le="+Inf"} 4',
        "x_sum 7.650000",
        "x_count 4",
    ]


def test_times_of_dials_and_decisions_are_told_apart(metrics: Metrics) -> None:
    metrics.observe("dial", 0.2)
    metrics.observe("decision", 0.00002)
    metrics.observe("decision", 0.00003)
    found = samples(metrics)
    assert found["egress_dial_seconds_count"] == 1
    assert found["egress_decision_seconds_count"] == 2
    assert found['egress_dial_seconds_bucket{le="0.1"}'] == 0


def test_every_series_has_its_help_and_type_once_and_before_it(metrics: Metrics) -> None:
    metrics.decided("reviewer", "allow", "listed")
    metrics.ended(1, 1, "closed")
    known: dict[str, str] = {}
    for line in metrics.text(NOW).splitlines():
        words = line.split(" ")
        if words[1] == "TYPE":
            assert words[2] not in known
            known[words[2]] = words[3]
        elif words[0] != "#":
            name = words[0].partition("{")[0]
            assert name in known or known[name.rpartition("_")[0]] == "histogram"


def test_what_would_end_a_label_is_escaped() -> None:
    strange = 'a"b\\c\nd'
    metrics = Metrics(lambda: {strange})
    metrics.decided(strange, "allow", "listed")
    assert 'persona="a\\"b\\\\c\\nd"' in metrics.text(NOW)
