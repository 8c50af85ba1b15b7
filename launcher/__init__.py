"""The sandbox launcher: a room whose only way out is the gate.

For programs: `from launcher import Sandbox` (docs/python.md). What stands here is loaded when it is asked for:
`egress-launch` imports this package on its way to every command, and needs none of it.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from launcher.sandbox import Sandbox
    from launcher.sandboxasync import AsyncBox, AsyncProcess
    from launcher.sandboxresults import (
        Availability,
        Blocked,
        CommandFailed,
        CommandNotStarted,
        Done,
        ExcludedCommand,
        Problem,
        Program,
        SandboxEnded,
        SandboxError,
    )
    from launcher.sandboxsettings import Settings
    from launcher.sandboxstreams import DEVNULL, PIPE, STDOUT
    from launcher.sandboxsync import Box, Process

_PLACES = {
    "sandbox": ("Sandbox",),
    "sandboxsettings": ("Settings",),
    "sandboxsync": ("Box", "Process"),
    "sandboxasync": ("AsyncBox", "AsyncProcess"),
    "sandboxstreams": ("DEVNULL", "PIPE", "STDOUT"),
    "sandboxresults": (
        *("Availability", "Blocked", "CommandFailed", "CommandNotStarted", "Done", "ExcludedCommand"),
        *("Problem", "Program", "SandboxEnded", "SandboxError"),
    ),
}

__all__ = [
    "DEVNULL",
    "PIPE",
    "STDOUT",
    "AsyncBox",
    "AsyncProcess",
    "Availability",
    "Blocked",
    "Box",
    "CommandFailed",
    "CommandNotStarted",
    "Done",
    "ExcludedCommand",
    "Problem",
    "Process",
    "Program",
    "Sandbox",
    "SandboxEnded",
    "SandboxError",
    "Settings",
]


def __getattr__(name: str) -> object:
    for module, names in _PLACES.items():
        if name in names:
            from importlib import import_module

            return getattr(import_module(f"launcher.{module}"), name)
    raise AttributeError(f"module 'launcher' has no {name!r}, expected one of {', '.join(__all__)}")
