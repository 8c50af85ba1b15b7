"""What a session came to, counted as it goes: for the one line at its end."""

from __future__ import annotations

from collections import Counter

_MOST_HOSTS = 1000
_SHOWN = 5


class Tally:
    """Blocked hosts are counted by name up to a bound; the rest of them as a sum."""

    def __init__(self) -> None:
        self.allowed = 0
        self.blocked: Counter[str] = Counter()

    def allow(self) -> None:
        self.allowed += 1

    def deny(self, host: str) -> None:
        known = host in self.blocked or len(self.blocked) < _MOST_HOSTS
        self.blocked[host if known else ""] += 1

    def __str__(self) -> str:
        """`214 allowed, 3 blocked: evil.example (2), telemetry.example (1)`"""
        total = sum(self.blocked.values())
        line = f"{self.allowed} allowed, {total} blocked"
        if not total:
            return line
        shown = [f"{host or 'others'} ({count})" for host, count in self.blocked.most_common(_SHOWN)]
        more = len(self.blocked) - len(shown)
        return f"{line}: {', '.join(shown)}" + (f" and {more} more" if more > 0 else "")
