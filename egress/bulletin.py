"""The policy in force, where every worker of a gate finds it.

One worker, the first, reads the files and puts each good policy up here, secrets and all; the others take what is
up. So all of them have the same one whatever happens to the files meanwhile, an edit that cannot be taken up
changes none of them, and a worker that is started anew begins with the last good policy, not with the files.

It is up as bytes, in two files in memory that take turns: what is written is never what is being read, unless
the reader was overtaken twice, and then it sees that the generation has moved on and reads again. The files have
no name, belong to the gate's processes alone, and are inherited when workers are forked.
"""

from __future__ import annotations

import mmap
import os
import pickle
from typing import Any

from egress.policy import Persona, Policy
from egress.problems import PolicyError
from egress.vault import Vault


class Bulletin:
    def __init__(self) -> None:
        self._cell = memoryview(mmap.mmap(-1, mmap.PAGESIZE)).cast("Q")
        self._files = [os.memfd_create("egress-policy", os.MFD_CLOEXEC) for _ in range(2)]
        self.taken = 0  # the generation that this process took last, or put up

    @property
    def generation(self) -> int:
        """Of what is up."""
        return self._cell[0]

    def put_up(self, policy: Policy, vault: Vault) -> Policy:
        """For the one worker that reads the files."""
        data = pickle.dumps((_personas(policy), dict(policy.hosts), vault.contents()), pickle.HIGHEST_PROTOCOL)
        self.taken = self.generation + 1
        fd = self._files[self.taken % 2]
        os.ftruncate(fd, 0)
        _write(fd, data)
        self._cell[0] = self.taken
        return policy

    def take(self, vault: Vault) -> Policy:
        """What is up; its secrets go to the vault."""
        while True:
            taken = self.generation
            data = _read(self._files[taken % 2])
            if self.generation == taken:
                break
        personas, hosts, contents = pickle.loads(data)  # noqa: S301  # from our own worker
        vault.fill(contents)
        self.taken = taken
        return Policy({words[0]: Persona(*words) for words in personas}, hosts)

    def close(self) -> None:
        for fd in self._files:
            os.close(fd)


def _personas(policy: Policy) -> list[Any]:
    """All that can be made: one that nobody uses may need what this machine does not have."""
    made = []
    for name in policy.personas:
        try:
            it = policy.personas[name]
        except PolicyError:
            continue
        made.append((it.name, it.allow, it.deny, it.description, it.env, it.filesystem))
    return made


def _write(fd: int, data: bytes) -> None:
    done = 0
    while done < len(data):
        done += os.pwrite(fd, memoryview(data)[done:], done)


def _read(fd: int) -> bytes:
    return os.pread(fd, os.fstat(fd).st_size, 0)
