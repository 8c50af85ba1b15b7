"""Backend `none`: no walls at all. A program that honours its proxy variables goes through the gate; others do not.

It is for machines where nothing else can be had, and for looking on: with `--observe`, what an agent asks for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from launcher.backends.hosted import Hosted
from launcher.backends.model import Backend, Fit, Lack
from launcher.mounts import PlanError

if TYPE_CHECKING:
    from launcher.options import Options

LACKS = (Lack.NETWORK, Lack.FILES, Lack.PROCESSES, Lack.SIGNALS, Lack.CALLS, Lack.SURVIVORS)


def examine() -> Fit:
    return Fit(Backend.NONE, LACKS)


def site(fit: Fit, options: Options) -> Bare:
    return Bare(fit, options)


class Bare(Hosted):
    def settle(self, options: Options) -> Options:
        super().settle(options)
        if options.seccomp not in ("default", "off"):
            raise PlanError(f"--seccomp {options.seccomp} needs walls to be a part of", "--backend bwrap", status=2)
        return options._replace(seccomp="off")

    def variables(self) -> dict[str, str]:
        """Temporary files are where they are for everybody else."""
        return {"SANDBOX_ACTIVE": "0"}
