"""How much is done of everything: enough to be sure, or what fits into a minute."""

from __future__ import annotations

from typing import NamedTuple


class Scale(NamedTuple):
    rounds: int = 5
    bulk: int = 1_500_000_000  # bytes
    tunnels: int = 5000
    width: int = 64  # tunnels at a time
    one_by_one: int = 1500
    pages: int = 15_000
    idle: int = 5000
    inside_bulk: int = 1_000_000_000
    inside_tunnels: int = 1500
    inspected_pages: int = 2000
    inspected_bulk: int = 300_000_000
    starts: int = 15
    every_peer: bool = True  # or those alone that a goal names


FULL = Scale()
QUICK = Scale(
    rounds=3, bulk=800_000_000, tunnels=1500, one_by_one=300, pages=3000, idle=1000, inside_bulk=200_000_000,
    inside_tunnels=200, inspected_pages=400, inspected_bulk=60_000_000, starts=5, every_peer=False,
)  # fmt: skip
