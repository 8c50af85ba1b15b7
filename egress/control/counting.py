"""Records of the log become numbers."""

from __future__ import annotations

import time

from egress.auditrecords import DecisionRecord, EndRecord, FloodRecord, GapRecord, PolicyRecord, Record
from egress.metrics import Metrics


def count(record: Record, metrics: Metrics) -> None:
    if isinstance(record, DecisionRecord):
        many = record.count if isinstance(record, FloodRecord) else 1
        metrics.decided(record.persona, record.verdict, record.reason, many)
    elif isinstance(record, EndRecord):
        metrics.ended(record.up, record.down, record.outcome)
    elif isinstance(record, PolicyRecord):
        metrics.reloaded(time.time(), record.error)
    elif isinstance(record, GapRecord):
        metrics.lost(record.lost)
