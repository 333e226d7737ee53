"""Programs that mpstui runs by itself: its own, and those it looks for in PATH."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from mpstui.core.text import path_text
from mpstui.system.procfs import nameless_uid
from mpstui.system.trusted import SYSTEM_UIDS, NotTrustedError, has_acl, judge_directory, walk

ROOT: Final = Path(__file__).resolve().parents[2]
"""Where mpstui is to be found."""
OURS_ALONE: Final = "import sys; sys.path = [*filter(None, sys.path), sys.argv.pop(1)]; "
"""Before anything else is imported: what Python is given by ``-c`` or ``-m`` looks for every module in the current
directory first, which may be another user's."""
_RUN: Final = (
    f"{OURS_ALONE}del sys.argv[0]; from importlib import import_module; sys.exit(import_module(sys.argv[0]).main())"
)


def own_program(module: str, *words: str) -> tuple[str, ...]:
    """The command that runs ``main`` of a module of mpstui, with these words."""
    return (sys.executable, "-c", _RUN, os.fspath(ROOT), module, *words)


def own_path(environment: Mapping[str, str] = os.environ) -> str:
    """PATH for what nobody has typed: without places that are no whole path, which are wherever one stands, and for
    root without those where another user can put a program. A group's of the system are left in:
    ``/usr/local/bin`` may be ``staff``'s."""
    places = [p for p in environment.get("PATH", os.defpath).split(os.pathsep) if os.path.isabs(p)]
    others = _others(places) if os.geteuid() == 0 else set[str]()
    return os.pathsep.join(place for place in places if place not in others) or os.defpath


class _Look:
    """At one place of PATH, in a thread: what is mounted there may never answer, and the command has a deadline."""

    def __init__(self, place: str) -> None:
        self.begun = time.monotonic()
        self.others = True
        self._thread = threading.Thread(target=self._run, args=(place,), daemon=True)
        self._thread.start()

    def _run(self, place: str) -> None:
        self.others = _is_others(place)

    def holds(self) -> bool:
        """Whether it need not be looked again: it is not long ago, or has not come to its end."""
        return self._thread.is_alive() or time.monotonic() - self.begun < _HOLDS

    def wait(self, until: float) -> None:
        self._thread.join(max(0.0, until - time.monotonic()))


_HOLDS: Final = 10.0
"""Seconds for which what was seen of a place of PATH holds."""
_ANSWERS: Final = 5.0
"""Seconds that the places of PATH have to answer, all of them together, once each."""
_looks: Final[dict[str, _Look]] = {}


def _others(places: Sequence[str]) -> set[str]:
    """Of these the ones where somebody else can put a program, and those that do not answer."""
    fresh = {place: _Look(place) for place in places if place not in _looks or not _looks[place].holds()}
    _looks.update(fresh)
    until = time.monotonic() + _ANSWERS
    for look in fresh.values():
        look.wait(until)
    return {place for place in places if _looks[place].others}


def why_not_found(name: str) -> str:
    """Why ``own_path`` has no program of that name, as a clause: a shell may find one all the same."""
    found = shutil.which(name)
    if found is None or "/" in name:
        return "it is not there, or is no program" if "/" in name else "it is not on PATH"
    why = "another user can change what is there" if os.path.isabs(found) else "that depends on where you are"
    return f"PATH leads to {path_text(Path(found))}, which is not used: {why}"


def temporary_place() -> str:
    """Where directories are made for a while: TMPDIR's, or a usual one; for root none that another user may exchange,
    and for nobody the one where he stands, which Python's own search ends with. Raises OSError."""
    for place in (os.environ.get("TMPDIR", ""), "/tmp", "/var/tmp"):  # noqa: S108
        if not os.path.isabs(place) or not os.access(place, os.W_OK | os.X_OK):
            continue
        try:
            if os.geteuid() == 0:
                judge_directory(Path(place), roots())
        except (NotTrustedError, OSError):
            continue
        return place
    text = "there is no place for temporary files that can be written and that nobody else can change"
    raise FileNotFoundError(errno.ENOENT, text)


def roots() -> set[int]:
    """Root's numbers: in a user namespace of its own the machine's root is one of the nameless."""
    nameless = nameless_uid()
    return {0} if nameless is None else {0, nameless}


def _is_others(place: str) -> bool:
    """Whether somebody else has made some of the way, or may put something there, or it is not there."""
    ours = roots()
    try:
        with ExitStack() as held:
            way, steered = walk(Path(place) / "-", held, None, False)
            return not steered <= ours or any(_is_open(fd, ours, last=fd == way[-1]) for fd in way)
    except OSError:
        return True


def _is_open(fd: int, ours: set[int], *, last: bool) -> bool:
    found = os.fstat(fd)
    if found.st_uid not in ours or (found.st_mode & stat.S_IWOTH and (last or not found.st_mode & stat.S_ISVTX)):
        return True
    if not last and found.st_mode & stat.S_ISVTX:
        return False
    return bool(found.st_mode & stat.S_IWGRP) and (found.st_gid >= SYSTEM_UIDS or has_acl(fd))
