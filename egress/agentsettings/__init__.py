"""A persona as an agent's own settings say it: Claude Code's `settings.json` and `CLAUDE.md`. Pure.

    reach      its rules → hosts as the agent's own sandbox can tell them apart, and what it cannot
    wanted     the persona → the values that the settings should have
    merging    those values, what is there and what was ours before → what should be there
    document   JSON text ↔ values, in the layout that the file has
    memory     the same for CLAUDE.md: a part between two marks

A second set of walls, for whom the agent's own sandbox and permission rules are at hand: where the gate runs, it
has the last word over every host, and `egress-launch` over every file.
"""
