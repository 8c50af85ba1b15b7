"""What pip says in its own source: the public index, and the host that its files are on.

    PyPI = PackageIndex("https://…/", file_storage_domain="…")

The text is read, and nothing is imported or run. It is looked for where no sandbox writes: in the library of
our own interpreter and in that of the system's, as a package or in the wheel for new environments.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

from egress.record import NamedTuple
from egress.toolhosts.machine import Machine, read_text
from egress.toolhosts.registry import Registry, parse_registry

LIBRARIES = (os.path.dirname(os.__file__), "/usr/lib/python3", "/usr/share/python-wheels", "/usr/lib/python3.*")
_MEMBER = "pip/_internal/models/index.py"
_PACKAGES = (f"site-packages/{_MEMBER}", f"dist-packages/{_MEMBER}")
_WHEELS = ("ensurepip/_bundled/pip-*.whl", "pip-*.whl")
_MAX_BYTES = 65536
_STATED = re.compile(
    r"""^PyPI\s*=\s*PackageIndex\(\s*["'](https://[A-Za-z0-9./-]+)["'],\s*file_storage_domain=["']([A-Za-z0-9.-]+)["']""",
    re.MULTILINE,
)


class PublicIndex(NamedTuple):
    simple: Registry
    files: Registry


def public_index(machine: Machine) -> PublicIndex | None:
    for text in _texts(machine):
        if found := _STATED.search(text):
            return PublicIndex(_default(f"{found[1].rstrip('/')}/simple"), _default(f"https://{found[2]}/"))
    return None


def _default(url: str) -> Registry:
    return parse_registry(url, "pip's own default", configured=False)


def _texts(machine: Machine) -> Iterator[str]:
    from glob import iglob

    for library in LIBRARIES:
        for place in (*_PACKAGES, *_WHEELS):
            for path in filter(machine.trusts, iglob(os.path.join(library, place))):
                yield _packed(path) if path.endswith(".whl") else _plain(path)


def _plain(path: str) -> str:
    try:
        return read_text(path)
    except OSError:
        return ""


def _packed(wheel: str) -> str:
    from zipfile import BadZipFile, ZipFile

    try:
        with ZipFile(wheel) as archive, archive.open(_MEMBER) as member:
            return member.read(_MAX_BYTES).decode(errors="replace")
    except (OSError, BadZipFile, KeyError):
        return ""
