"""Removes what a daemon left behind, where nobody owns it any more."""

from __future__ import annotations

import fcntl
import os
import stat
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from mpstui.control.commandline import PROGRAM, SOCKETS
from mpstui.control.holder import is_served
from mpstui.core.text import path_text
from mpstui.observe.discovery import LOCK, Place, discover, is_steered

REMOVED: Final = "stale files were removed"
"""How the line begins that says so; others say why not."""
_LEFT: Final[Mapping[str, Callable[[int], bool]]] = {
    "control": stat.S_ISSOCK,
    "control_privileged": stat.S_ISSOCK,
    "log": stat.S_ISFIFO,
    f"{PROGRAM}.pid": stat.S_ISREG,
}
"""What a dead daemon leaves (fact 3), each with what it must be. The lock stays: it says nothing, and a daemon that is
just starting may have it open."""


def clean(pipe_dir: Path) -> tuple[str, ...]:
    """Remove stale files; answers what was done or why not, one line each.

    Nothing is removed while a daemon lives, and the daemon's own lock is held meanwhile, so that none can start. Only
    sockets, FIFO and pid file that belong to this user go, through a descriptor of the directory itself, and none where
    others lead its name to it: they choose what is removed.
    """
    place: Place = discover((pipe_dir,), env={})[0]
    if place.state == "running":
        why = place.detail if place.daemon is None and place.detail else "a daemon runs there"
        return ("; ".join((f"nothing was removed from {path_text(pipe_dir)}: {why}", *_links(pipe_dir))),)
    if place.within is not None:
        return (f"nothing was removed: {place.detail}",)
    try:
        folder = os.open(pipe_dir, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        return () if isinstance(error, FileNotFoundError) else (f"{path_text(pipe_dir)}: {error.strerror}",)
    try:
        left = [f"{link}, which is left" for link in _links(pipe_dir)]
        return (*_clean(folder, pipe_dir), *(("; ".join(left),) if left else ()))
    finally:
        os.close(folder)


def _links(pipe_dir: Path) -> list[str]:
    """What is a link in the place of a daemon's file, and where it leads, a clause each: none is taken away, as another
    daemon's files may be named by it."""
    found = []
    for name in _LEFT:
        with suppress(OSError, ValueError):
            found.append(f"{name} is a link to {path_text(Path(os.readlink(pipe_dir / name)))}")
    return found


def _clean(folder: int, pipe_dir: Path) -> tuple[str, ...]:
    present = [name for name, right in _LEFT.items() if _mine(folder, name, right)]
    if not present:
        return ()
    if is_steered(pipe_dir, folder):
        why = "other users can change the path, or have redirected it: name it by a path that nobody else can change"
        return (f"nothing was removed from {path_text(pipe_dir)}: {why}",)
    lock = None
    try:
        lock = os.open(LOCK, os.O_RDWR | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
        fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except FileNotFoundError:
        pass  # a daemon that lives has one
    except OSError:
        if lock is not None:
            os.close(lock)
        return (f"nothing was removed from {path_text(pipe_dir)}: somebody holds its lock",)
    removed, kept = [], []
    try:
        for name in present:
            if name in SOCKETS and is_served(Path(f"/proc/self/fd/{folder}/{name}")) is not False:
                return (f"nothing was removed from {path_text(pipe_dir)}: somebody listens at its {name}",)
        for name in present:
            try:
                os.unlink(name, dir_fd=folder)
                removed.append(name)
            except OSError as error:
                kept.append(f"{name} could not be removed: {error.strerror}")
    finally:
        if lock is not None:
            os.close(lock)
    return (*((f"{REMOVED}: {', '.join(removed)}",) if removed else ()), *kept)


def _mine(folder: int, name: str, right: Callable[[int], bool]) -> bool:
    try:
        found = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except OSError:
        return False
    return right(found.st_mode) and found.st_uid == os.geteuid()
