"""Whose word a daemon's is, by what the kernel keeps of its sockets, its directory and its lock; sends nothing.

A process may call itself ``nvidia-cuda-mps-control -d`` and name any directory, and anybody may write the PID file
(fact 42). Who has made a socket, and who may put another one in its place, the kernel knows.
"""

from __future__ import annotations

import fcntl
import os
import socket
import stat
import struct
import time
from collections.abc import Collection
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final

from mpstui.core.text import path_text, printable
from mpstui.core.trust import Speaker, may_signal
from mpstui.observe.daemons import daemon_process, file_id
from mpstui.observe.procfs import pid_namespace, process_uids, user_name
from mpstui.observe.trusted import NotTrustedError, _judge, _judge_mounts, _walk

_SOCKETS: Final = ("control", "control_privileged")
_FLOCK: Final = "hhqqi4x"
_PEER: Final = struct.Struct("3i")
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
        _judge_mounts(place, (fd,), owners)
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
    that has none here (in another PID namespace), None for nobody. Asking disturbs nobody.

    Everybody may write to the lock of a daemon (fact 42), so everybody may give it a second name in a directory of his,
    and where the directory is open to him too, move it elsewhere or put his own in its place. One that is of no user
    of this directory's, or is held by the daemon of another directory, tells nothing; one that has two names only where
    its holder is seen to be the daemon of this one.
    """
    try:
        fd = os.open(pipe_dir / "control_lock", os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW)
    except (OSError, ValueError):
        return None
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode) or found.st_uid not in _users(pipe_dir):
            return None
        answer = fcntl.fcntl(fd, fcntl.F_GETLK, struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
    except OSError:
        return None
    finally:
        os.close(fd)
    kind, _, _, _, holder = struct.unpack(_FLOCK, answer)
    if kind == fcntl.F_UNLCK:
        return None
    if holder <= 0:
        return 0
    is_here = _is_daemon_of(pipe_dir, holder)
    return holder if is_here or (is_here is None and found.st_nlink == 1) else None


def _users(pipe_dir: Path) -> set[int]:
    """Root, and the owners of the directory and of the privileged socket in it. Raises OSError."""
    users = {0, os.stat(pipe_dir).st_uid}
    with suppress(OSError):
        users.add(os.lstat(pipe_dir / "control_privileged").st_uid)
    return users


def _is_daemon_of(pipe_dir: Path, pid: int) -> bool | None:
    """Whether the process is a control daemon that has this directory, as it sees it itself; None for one that cannot
    be told to be a daemon."""
    daemon = daemon_process(pid)
    return None if daemon is None or daemon.pipe_id is None else daemon.pipe_id == file_id(pipe_dir)


def not_its_daemon(pipe_dir: Path, pid: int) -> str | None:
    """Why a process is not to be ended as the daemon of this directory; None where it is the one.

    The kernel tells who listens at a socket to whoever connects (fact 50), which leaves two lines in the daemon's log:
    to be asked once, before harm. Where that many wait already that nobody can connect, the process must be a control
    daemon that has this directory as it sees it itself.
    """
    peer = _listener(pipe_dir)
    if peer is not None:
        return None if peer == pid else f"process {pid} is not the one that listens in {path_text(pipe_dir)}"
    if _is_daemon_of(pipe_dir, pid):
        return None
    return f"that process {pid} is the daemon of {path_text(pipe_dir)} cannot be seen"


def _listener(pipe_dir: Path) -> int | None:
    """The PID of the process that listens at the privileged socket, 0 for one that has none here; None where that
    cannot be asked."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as asking:
            asking.setblocking(False)
            asking.connect(os.fspath(pipe_dir / "control_privileged"))
            return int(_PEER.unpack(asking.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))[0])
    except (OSError, ValueError):
        return None


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
