"""The sandbox's network: handed over for real, out of a sandbox that is thrown away."""

from __future__ import annotations

import subprocess

from launcher.checks.model import Finding, fail, ok, warn
from launcher.checks.sandbox import INSTALL, ailment, program, trial_words
from launcher.netns.handover import Handover, Joiner
from launcher.netns.model import Capture, HandoverError, Wanted

_MODULES = "sudo modprobe -a nf_tables nft_chain_nat nft_redir nft_reject_inet nft_ct"
_LOG = "sudo modprobe nfnetlink_log"
_RELAY = "egress-launch --bridge relay …"


def handed_over() -> Finding:
    return _examined(Capture.OFF, "sockets of a sandbox were handed over, and are where they should be")


def captured() -> Finding:
    return _examined(Capture.FULL, "every port and every name server, by the kernel's nftables")


def _examined(capture: Capture, good: str) -> Finding:
    path = program()
    if path is None:
        return fail("bubblewrap is not installed", INSTALL)
    try:
        handover = trial(path, Wanted(capture=capture))
    except HandoverError as error:
        return fail(*(ailment(path) or (error.what, _RELAY)))
    if handover.missing:
        return warn(f"without {'; '.join(handover.missing)}", _LOG if handover.full else _MODULES)
    return ok(good)


def trial(path: str, wanted: Wanted) -> Handover:
    """Nothing is ever released, so nothing ever runs."""
    with Joiner(wanted) as joiner:
        held = ("--info-fd", str(joiner.info), "--block-fd", str(joiner.block))
        pipes = (joiner.info, joiner.block)
        process = subprocess.Popen(trial_words(path, *held), pass_fds=pipes, stderr=subprocess.DEVNULL)
        try:
            handover = joiner.join()
        finally:
            joiner.close()
            process.kill()
            process.wait()
        for listener in handover.listeners:
            listener.sock.close()
        return handover
