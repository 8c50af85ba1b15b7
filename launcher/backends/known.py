"""The backends by name: whether each can be used here, found out by trying it, and what makes its sandboxes."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from launcher.backends.choose import choose, steps
from launcher.backends.model import CONTAINERS, Backend, Chosen, Fit, Unfit, sentences, words
from launcher.mounts import PlanError

if TYPE_CHECKING:
    from launcher.backends.place import Site
    from launcher.options import Options


def settled(asked: Options, options: Options) -> tuple[Options, Site | None]:
    """The options as they can be done here, and what makes the sandbox; what it lacks is said first of all."""
    wanted, may_be_weaker = Backend(options.backend or Backend.BWRAP), options.fallback == "warn"
    is_usual = wanted is Backend.BWRAP and not may_be_weaker  # whether it can be made is seen when it is made
    chosen = Chosen(Fit(wanted)) if is_usual else choose(wanted, may_be_weaker, examine)
    _check_image(asked.image or asked.rootfs, chosen.fit.backend)
    if chosen.fit.lacks or options.verbose:
        announce(chosen, options.quiet)
    made = site(chosen.fit, options)
    return (options, None) if made is None else (made.settle(options), made)


def announce(chosen: Chosen, briefly: bool) -> None:
    """The first line is printed whatever was asked: nothing is weaker in silence."""
    lines = [words(chosen.fit)]
    if not briefly:
        lines += sentences(chosen.fit.lacks)
    lines += steps(chosen)
    with suppress(OSError):  # nobody reads it, and the command goes on
        os.write(2, "".join(f"egress: {line}\n" for line in lines).encode())


def _check_image(image: str | None, backend: Backend) -> None:
    """`image` as a flag: a word that would change nothing is a mistake."""
    if image is not None and backend not in CONTAINERS:
        raise PlanError(f"--image {image!r} is for containers, and the backend is {backend}", "--backend podman", 2)


def examine(backend: Backend) -> Fit | Unfit:
    row = _EXAMINE.get(backend)
    return row() if row else Unfit(backend, "it is not part of this version", "--backend bwrap")


def site(fit: Fit, options: Options) -> Site | None:
    """None for bubblewrap, which is what everything else is written for."""
    row = _SITES.get(fit.backend)
    return row(fit, options) if row else None


def _bwrap() -> Fit | Unfit:
    from launcher.checks.sandbox import ailment
    from launcher.room import find_bwrap

    try:
        found = ailment(find_bwrap())
    except PlanError as error:
        return Unfit(Backend.BWRAP, str(error), error.hint)
    return Unfit(Backend.BWRAP, found.what, found.hint) if found else Fit(Backend.BWRAP)


def _landlock() -> Fit | Unfit:
    from launcher.backends import landlocked

    return landlocked.examine()


def _none() -> Fit | Unfit:
    from launcher.backends import bare

    return bare.examine()


def _landlock_site(fit: Fit, options: Options) -> Site:
    from launcher.backends import landlocked

    return landlocked.site(fit, options)


def _bare_site(fit: Fit, options: Options) -> Site:
    from launcher.backends import bare

    return bare.site(fit, options)


def _container(backend: Backend) -> Fit | Unfit:
    from launcher.backends import engines

    return engines.examine(backend)


def _container_site(fit: Fit, options: Options) -> Site:
    from launcher.backends import containersite

    return containersite.site(fit, options)


_EXAMINE: dict[Backend, Callable[[], Fit | Unfit]] = {
    Backend.BWRAP: _bwrap,
    Backend.LANDLOCK: _landlock,
    Backend.PODMAN: partial(_container, Backend.PODMAN),
    Backend.DOCKER: partial(_container, Backend.DOCKER),
    Backend.NONE: _none,
}
_SITES: dict[Backend, Callable[[Fit, Options], Site]] = {
    Backend.LANDLOCK: _landlock_site,
    Backend.PODMAN: _container_site,
    Backend.DOCKER: _container_site,
    Backend.NONE: _bare_site,
}
