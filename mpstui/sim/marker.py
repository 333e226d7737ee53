"""Tells a simulated node's pipe directory from a real one, and names the executable that stands in there."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

from mpstui.core.text import error_text, path_text
from mpstui.sim.simd.config import DRIVER_VERSION, MARKER, read_marker
from mpstui.system.procfs import user_name
from mpstui.system.trusted import NotTrustedError, judge_directory, open_trusted


class BrokenMarkerError(Exception):
    """A marker of one's own that does not describe a node; the text is one line for a person."""


def is_simulated(pipe_dir: Path, *, check: bool = False) -> bool:
    """Whether the directory holds the marker of a simulated node; False where it cannot be read.

    A marker makes mpstui show the users and commands that files beside it tell of. So it counts only as a regular file
    of this user's or root's, in a directory that nobody else can write to or exchange; one of anybody else's is as if
    it were not there, and what runs in that directory is looked at as in any other. With ``check`` raises
    BrokenMarkerError where the marker counts and is not right.
    """
    marker = Path(os.path.abspath(pipe_dir)) / MARKER
    try:
        os.close(open_trusted(marker, os.O_RDONLY, owners()))  # by a way that is theirs, the directory itself among it
        if _shared(marker.parent) is not None:
            return False
        if check:
            read_marker(marker.parent)
    except (NotTrustedError, OSError):
        return False
    except ValueError as error:
        if not check or "\0" in os.fspath(marker):
            return False
        raise BrokenMarkerError(f"the marker of a simulated node, {path_text(marker)}: {error_text(error)}") from None
    return True


def claim(pipe_dir: Path) -> str | None:
    """What a marker that does not count says, in words to show; None where there is none, and where it counts."""
    try:
        owner = os.lstat(pipe_dir / MARKER).st_uid
    except (OSError, ValueError):
        return None
    if is_simulated(pipe_dir):
        return None
    return f"a file of {user_name(owner)} marks it as a simulated node; mpstui does not trust this file"


def owners() -> frozenset[int]:
    """Who may make a simulated node that this user looks at."""
    return frozenset((0, os.geteuid()))


def untrusted_directory(pipe_dir: Path) -> str | None:
    """Why a marker in this directory, which is there, would not count; None where it would. Raises OSError."""
    try:
        judge_directory(pipe_dir, owners())
    except NotTrustedError as error:
        return str(error)
    return _shared(pipe_dir)


def _shared(pipe_dir: Path) -> str | None:
    """Why a marker would not count in this directory, whose way is its owner's."""
    mode = os.stat(pipe_dir).st_mode
    if mode & stat.S_ISVTX and mode & (stat.S_IWGRP | stat.S_IWOTH):  # /tmp itself: others have files beside it
        return f"{path_text(pipe_dir)} is shared with others (mode {stat.S_IMODE(mode):04o})"
    return None


def driver_of_node(pipe_dir: Path) -> str | None:
    """The driver of a simulated node, as its NVML names it; None where its marker does not say it."""
    try:
        return read_marker(pipe_dir)[0].driver
    except (OSError, ValueError):
        return None


def control_binary(driver: str | None = None) -> tuple[str, ...]:
    """The command that stands in for nvidia-cuda-mps-control: that of this ``driver``, as NVML names it; else that of
    the node whose pipe directory is in the environment."""
    script = Path(__file__).resolve().parent / "bin" / "nvidia-cuda-mps-control"
    named = () if driver is None or driver == DRIVER_VERSION else (f"--simulated-driver={driver}",)
    return (sys.executable, "-I", "-S", os.fspath(script), *named)
