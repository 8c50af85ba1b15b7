"""A directory of one run, on the host: what is in it is for the command, and it goes with the run.

    trust/    what programs trust where requests are looked into: given, and not to be changed
    tmp/      for temporary files
    home/     a home directory with nothing in it but links to what was let in of the real one

Whoever removes it may be outrun by nobody: the command has ended by then, and links are not followed.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from contextlib import suppress

from launcher.mounts import PlanError, is_within

_BLOCK = 1 << 16


class Private:
    def __init__(self) -> None:
        base = "/tmp"  # noqa: S108  # mkdir below fails rather than share
        self.path = f"{base}/egress-{os.getpid()}-{os.urandom(6).hex()}"
        self.trust, self.tmp, self.home = (f"{self.path}/{name}" for name in ("trust", "tmp", "home"))
        try:
            for path in (self.path, self.trust, self.tmp, self.home):
                os.mkdir(path, 0o700)
        except OSError as error:
            raise PlanError(f"no directory for the run: {self.path!r}: {error.strerror}", "df -h /tmp") from None

    def fill(self, given: Mapping[str, int]) -> None:
        """Copy what is read from these descriptors to these paths, which are below `trust`, and close them."""
        for path, source in given.items():
            target = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o444)
            try:
                while block := os.read(source, _BLOCK):
                    os.write(target, block)
            finally:
                os.close(target)
                os.close(source)

    def furnish(self, home: str, shown: Iterable[str]) -> None:
        """Links in the new home to what is shown of the real one; shallow paths first."""
        made: list[str] = []
        for path in sorted(shown, key=lambda each: (each.count("/"), each)):
            if path != home and is_within(path, home) and not any(is_within(path, top) for top in made):
                link = self.home + path[len(home) :]
                os.makedirs(os.path.dirname(link), mode=0o700, exist_ok=True)
                os.symlink(path, link)
                made.append(path)

    def remove(self) -> None:
        """Again where it is gone already: the minder and the launcher both see to it."""
        import shutil  # some milliseconds, when nobody waits

        shutil.rmtree(self.path, onerror=self._unlock)
        shutil.rmtree(self.path, ignore_errors=True)  # what was behind those

    def _unlock(self, _: object, path: str, __: object) -> None:
        """A directory of the run that may not be read or written: its owner undoes that. Nothing above is touched."""
        for directory in (os.path.dirname(path), path):
            if is_within(directory, self.path) and os.path.isdir(directory) and not os.path.islink(directory):
                with suppress(OSError):
                    os.chmod(directory, 0o700)
