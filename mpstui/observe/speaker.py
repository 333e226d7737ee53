"""Whose word a daemon's is, by what the kernel keeps of its sockets, its directory and its lock; sends nothing.

A process may call itself ``nvidia-cuda-mps-control -d`` and name any directory, and anybody may write the PID file
(fact 42). Who has made a socket, and who may put another one in its place, the kernel knows.
"""

from __future__ import annotations

import fcntl
import os
import stat
import struct
import time
from collections.abc import Collection
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from mpstui.observe.procfs import pid_namespace, process_uids, user_name
from mpstui.observe.trusted import NotTrustedError, _judge, _walk
from mpstui.text import path_text, printable
from mpstui.trust import Speaker, may_signal

_SOCKETS: Final = ("control", "control_privileged")
_FLOCK: Final = "hhqqi4x"
_LINKS: Final = 40
SETTLED: Final = 0.1
"""Seconds since the last change in a directory that others may write to, from which on a further change is surely seen:
the kernel writes times of files down to its clock's ticks, of 1 to 10 ms."""


def find_speaker(pipe_dir: Path) -> Speaker:
    """For whom the daemon of this directory speaks. Follows links; blocks on names of users alone.

    One user owns both sockets, the directory and, beside root, the way to it, and nobody else can exchange any of it. A
    daemon that makes its directory itself leaves it open to everybody (0777): it is believed as long as
    ``stamp`` stays what it is, as whoever puts another socket there changes that.
    """
    try:
        sockets = [os.lstat(pipe_dir / name) for name in _SOCKETS]
        owners = {found.st_uid for found in sockets} | {os.stat(pipe_dir).st_uid}
    except (OSError, ValueError):
        return Speaker(None, "its sockets are not to be seen")
    if not all(stat.S_ISSOCK(found.st_mode) for found in sockets):
        return Speaker(None, "its sockets are none")
    users = sorted(owners - {0})
    if len(users) > 1:
        return Speaker(None, f"its sockets and its directory belong to {' and '.join(map(user_name, users))}")
    uid = users[0] if users else 0
    why = "root's daemon" if uid == 0 else f"a daemon of {user_name(uid)}"
    try:
        is_open = _open_to_others(pipe_dir, {0, uid})
    except NotTrustedError as error:
        return Speaker(None, printable(str(error)))
    except OSError as error:
        return Speaker(None, f"the way to its sockets is not to be seen: {error.strerror}")
    if not is_open:
        return Speaker(uid, why)
    folder = os.stat(pipe_dir)
    times = (folder.st_dev, folder.st_ino, folder.st_mtime_ns, folder.st_ctime_ns)
    return Speaker(uid, why, times + tuple(n for found in sockets for n in (found.st_ino, found.st_ctime_ns)))


def settled(speaker: Speaker) -> bool:
    """Whether a change of the directory from now on would show in ``stamp``."""
    return not speaker.stamp or time.time() - max(speaker.stamp[2:4]) / 1e9 > SETTLED


def _open_to_others(pipe_dir: Path, owners: Collection[int]) -> bool:
    """Whether others may write to the directory itself. Raises NotTrustedError where they have the way to it."""
    place = pipe_dir
    for _ in range(_LINKS):
        with ExitStack() as held:
            _walk(place, held, owners, False)
        if not place.is_symlink():
            break
        if os.lstat(place).st_uid not in owners:
            raise NotTrustedError(f"{path_text(place)} is a link of somebody else's", "owner")
        place = Path(os.path.join(place.parent, os.readlink(place)))
    fd = os.open(place, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        _judge(place, fd, os.fstat(fd), owners)
    except NotTrustedError as error:
        if error.fault != "writable":
            raise
        return True
    finally:
        os.close(fd)
    return False


def lock_holder(pipe_dir: Path) -> int | None:
    """The PID of whoever holds the lock that a daemon holds from start to end (fact 29), as the kernel says; 0 for one
    that has none here (in another PID namespace), None for nobody. Asking disturbs nobody."""
    try:
        fd = os.open(pipe_dir / "control_lock", os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW)
    except (OSError, ValueError):
        return None
    try:
        answer = fcntl.fcntl(fd, fcntl.F_GETLK, struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
    except OSError:
        return None
    finally:
        os.close(fd)
    kind, _, _, _, holder = struct.unpack(_FLOCK, answer)
    return None if kind == fcntl.F_UNLCK else max(0, holder)


def pids_are_ours(pipe_dir: Path, speaker: Speaker) -> bool | None:
    """Whether the PIDs that this daemon names are of this PID namespace, which is that of the process that holds its
    lock; None where that is not known."""
    holder = lock_holder(pipe_dir)
    if holder is None:
        return None
    if holder == 0:
        return False
    theirs, ours = pid_namespace(holder), pid_namespace("self")
    if theirs is None or ours is None:
        return None
    if theirs != ours:
        return False
    uids = process_uids(holder)
    return True if uids is not None and may_signal(speaker, uids) else None
