"""What this machine has that decides whether there can be a sandbox. It is read here, and tried elsewhere."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from launcher.diagnosis import Facts


def look(bwrap: str, environ: Mapping[str, str] = os.environ) -> Facts:
    mounts = [line.split()[4] for line in read("/proc/self/mountinfo").splitlines()]
    return Facts(
        bwrap=os.path.realpath(bwrap),
        is_root=os.geteuid() == 0,
        container=engine(environ),
        is_filtered=bool(re.search(r"^Seccomp:\s*2", read("/proc/self/status"), re.MULTILINE)),
        is_chroot=bool(mounts) and "/" not in mounts,
        is_sandboxed=environ.get("SANDBOX_ACTIVE") == "1",
        clone_allowed=_setting("kernel/unprivileged_userns_clone"),
        apparmor=_setting("kernel/apparmor_restrict_unprivileged_userns"),
        most_namespaces=_setting("user/max_user_namespaces"),
    )


def engine(environ: Mapping[str, str]) -> str:
    """What made the container that this is, or nothing."""
    if "KUBERNETES_SERVICE_HOST" in environ:
        return "kubernetes"
    if os.path.exists("/run/.containerenv"):
        return "podman"
    if os.path.exists("/.dockerenv"):
        return "docker"
    return environ.get("container", "")


def read(path: str) -> str:
    """What is in a file of the kernel's; nothing, if it is not for us."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def _setting(name: str) -> int | None:
    text = read(f"/proc/sys/{name}").strip()
    return int(text) if text.isdigit() else None
