"""Programs that mpstui runs by itself: its own, and those it looks for in PATH."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from mpstui.system.procfs import nameless_uid
from mpstui.system.trusted import walk

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
    root without those where another user can put a program. A group's are left in: ``/usr/local/bin`` may be
    ``staff``'s."""
    places = environment.get("PATH", os.defpath).split(os.pathsep)
    root = os.geteuid() == 0
    return os.pathsep.join(p for p in places if os.path.isabs(p) and not (root and _is_others(p))) or os.defpath


def _is_others(place: str) -> bool:
    """Whether somebody else has made some of the way, or may put something there, or it is not there."""
    ours = {0, nameless_uid()}
    try:
        with ExitStack() as held:
            way, steered = walk(Path(place) / "-", held, None, False)
            found = [os.fstat(fd) for fd in way]
    except OSError:
        return True
    last = len(found) - 1
    return (not steered <= ours) or any(
        each.st_uid not in ours or (each.st_mode & stat.S_IWOTH and (at == last or not each.st_mode & stat.S_ISVTX))
        for at, each in enumerate(found)
    )
