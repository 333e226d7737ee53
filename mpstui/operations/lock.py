"""One at a time: a daemon's turn, which all mpstui of the node take one after the other, and what was sent in it.

Of two admins who terminate the same client at once, the second one would block the daemon (fact 16), and each of them
keeps an audit log of his own. So there is one file for each daemon, which is locked while a change is checked, sent and
read back, and holds the terminates that were sent. It is where only root and the daemon's user can write: nobody else
can hold its lock, and nobody else can say what was sent.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import re
import stat
import time
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

from mpstui.core.model import Client, ProcessKey
from mpstui.core.text import path_text, printable
from mpstui.core.trust import Speaker
from mpstui.system.memory import real_path
from mpstui.system.procfs import boot_id, process_key, process_uids, read_proc, user_name
from mpstui.system.trusted import NotTrustedError, walk

FILE: Final = "mpstui.lock"
WAIT: Final = 60.0
"""Seconds that a turn is waited for: longer than one takes with a terminate_client that does not answer."""
_LOOK: Final = 0.05
_LONG: Final = 1 << 18
"""Bytes from which on entries of processes that are gone are taken out."""
_READ: Final = 1 << 22
_SHARED: Final = Path("/run/mpstui")
_FALLBACK: Final = "/tmp/mpstui-{uid}"  # noqa: S108 - made by its user or by root, and refused where it is not


class NoTurn(Exception):
    """Why there is no turn to be had; one clause. ``busy``: somebody else has it."""

    def __init__(self, text: str, *, busy: bool = False) -> None:
        super().__init__(text)
        self.busy = busy


class _BeingMade(NoTurn):
    """Root makes the file at this moment, and has not given it to the daemon's user yet."""


class Sent(NamedTuple):
    """A terminate_client of before."""

    who: str
    surely: bool
    """Whether it is known that it was for this very client, and not for another one of its number."""


class DaemonTurn:
    """A daemon's turn, as long as it is held."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def was_sent(self, client: Client, daemon: ProcessKey | None) -> Sent | None:
        """Who sent a terminate_client for this client of that process; None where none is known of."""
        found = None
        for entry in self._entries():
            if (same := _means(entry, client, daemon)) is not False:
                uid = entry.get("uid")
                who = user_name(uid) if isinstance(uid, int) else "somebody"
                found = Sent(who, same is True) if entry.get("sent") is True else None
        return found

    def was_answered(self, client: Client, daemon: ProcessKey | None) -> bool:
        """Whether the terminate_client that was sent for this very process was carried out: it was answered 0."""
        found = [entry for entry in self._entries() if _means(entry, client, daemon)]
        return client.key.start_ticks is not None and bool(found) and found[-1].get("answered") is True

    def note(self, client: Client, daemon: ProcessKey | None, *, sent: bool, answered: bool = False) -> str | None:
        """Write down that a terminate_client is about to be sent for it, was answered 0, or was not taken; answers why
        that is not possible."""
        entry = {**_identity(client, daemon), "time": time.time(), "uid": os.geteuid(), "sent": sent}
        if answered:
            entry["answered"] = True
        line = json.dumps(entry).encode() + b"\n"
        try:
            size = os.fstat(self._fd).st_size
            if size > _LONG:
                size = self._shorten()
            if size and os.pread(self._fd, 1, size - 1) != b"\n":
                line = b"\n" + line  # behind a line that somebody could not write to its end
            if os.pwrite(self._fd, line, size) != len(line):
                return "the disk is full"
        except OSError as error:
            return error.strerror or "it cannot be written"
        return None

    def _entries(self) -> list[dict[str, Any]]:
        found = []
        with suppress(OSError):
            for line in os.pread(self._fd, _READ, 0).splitlines():
                with suppress(ValueError, RecursionError):
                    entry = json.loads(line)
                    if isinstance(entry, dict):
                        found.append(entry)
        return found

    def _shorten(self) -> int:
        kept = [entry for entry in self._entries() if _may_live(entry)]
        data = b"".join(json.dumps(entry).encode() + b"\n" for entry in kept)
        os.pwrite(self._fd, data, 0)
        os.ftruncate(self._fd, len(data))
        return len(data)


@asynccontextmanager
async def turn(pipe_dir: Path, speaker: Speaker, wait: float | None = None) -> AsyncIterator[DaemonTurn]:
    """The daemon's turn, waited for ``wait`` seconds at most (``WAIT``). Raises NoTurn."""
    deadline = time.monotonic() + (WAIT if wait is None else wait)
    while True:
        try:
            fd = _open(pipe_dir, speaker)
        except _BeingMade:
            if time.monotonic() >= deadline:
                raise
            await asyncio.sleep(_LOOK)
            continue
        try:
            await _lock(fd, deadline)
            # Whoever may write there may have put another file in its place meanwhile, which somebody else has locked.
            if _still(pipe_dir, speaker, fd):
                yield DaemonTurn(fd)
                return
        finally:
            os.close(fd)
        if time.monotonic() >= deadline:
            raise NoTurn("its lock file is replaced again and again", busy=True)


async def _lock(fd: int, deadline: float) -> None:
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() >= deadline:
                raise NoTurn(f"{_holder(fd)} is changing this daemon, and has not finished", busy=True) from None
        except OSError as error:
            raise NoTurn(f"this daemon cannot be locked: {error.strerror}") from None
        await asyncio.sleep(_LOOK)


def place(pipe_dir: Path, speaker: Speaker) -> tuple[Path, int]:
    """The file of the daemon in this directory, and the user who may use it beside root. Raises OSError.

    It is in the pipe directory, where nobody else can write to that: two names of a directory, and a container that
    has it mounted, come to the same file. Otherwise in a directory of root's or of the daemon's user.
    """
    folder = os.stat(pipe_dir)
    user = os.geteuid() if speaker.uid is None else speaker.uid
    private = not stat.S_IMODE(folder.st_mode) & 0o022 and folder.st_uid in {0, user}
    if speaker.uid is not None and private and not speaker.stamp:
        return Path(real_path(pipe_dir)) / FILE, user
    name = f"{folder.st_dev:x}-{folder.st_ino:x}.lock"
    if user == 0 and _made(_SHARED, 0):
        return _SHARED / name, user
    other = Path(_FALLBACK.format(uid=user))
    _made(other, user)
    return other / name, user


def _made(folder: Path, user: int) -> bool:
    """Whether the directory is there, made for this user where it was not."""
    with suppress(OSError):
        os.mkdir(folder, 0o700)
        if os.geteuid() == 0 and user:
            os.chown(folder, user, -1, follow_symlinks=False)
    return folder.is_dir() and not folder.is_symlink()


def _open(pipe_dir: Path, speaker: Speaker) -> int:
    try:
        path, user = place(pipe_dir, speaker)
        with ExitStack() as held:
            folders, _ = walk(path, held, {0, user}, False)
            fd = _open_in(folders[-1], path.name, user)
    except NotTrustedError as error:
        raise NoTurn(f"this daemon cannot be locked safely: {printable(error.args[0])}") from None
    except OSError as error:
        where = path_text(error.filename or pipe_dir, 160)
        kind = _BeingMade if isinstance(error, PermissionError) and _is_being_made(pipe_dir, speaker) else NoTurn
        raise kind(f"this daemon cannot be locked: {where}: {error.strerror}") from None
    try:
        _check(fd, path, user)
    except BaseException:
        os.close(fd)
        raise
    return fd


def _is_being_made(pipe_dir: Path, speaker: Speaker) -> bool:
    """Whether the file is root's and empty, though it is for another user: ``_open_in`` is between two of its lines."""
    try:
        path, user = place(pipe_dir, speaker)
        found = os.lstat(path)
    except OSError:
        return False
    return user != 0 and found.st_uid == 0 and stat.S_ISREG(found.st_mode) and not found.st_size


def _open_in(folder: int, name: str, user: int) -> int:
    """The file of that user's, made where there is none; another link or FIFO of that name is not followed."""
    flags = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    with suppress(FileExistsError):
        fd = os.open(name, flags | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=folder)
        if os.geteuid() == 0 and user:
            os.fchown(fd, user, -1)  # its user may come first the next time
        return fd
    return os.open(name, flags, dir_fd=folder)


def _check(fd: int, path: Path, user: int) -> None:
    found, me = os.fstat(fd), os.geteuid()
    if not stat.S_ISREG(found.st_mode) or found.st_nlink > 1:
        raise NoTurn(f"this daemon cannot be locked safely: {path_text(path, 160)} is no file with one name")
    if found.st_uid == 0 == me and user and not found.st_size:
        os.fchown(fd, user, -1)  # an mpstui of root's was ended before it could
    elif found.st_uid != user:
        owner = user_name(found.st_uid)
        raise NoTurn(f"this daemon cannot be locked safely: {path_text(path, 160)} belongs to {owner}")
    if stat.S_IMODE(found.st_mode) != 0o600:
        os.fchmod(fd, 0o600)  # whoever may read it may lock it


def _still(pipe_dir: Path, speaker: Speaker, fd: int) -> bool:
    try:
        found = os.lstat(place(pipe_dir, speaker)[0])
    except OSError:
        return False
    return (found.st_dev, found.st_ino) == (os.fstat(fd).st_dev, os.fstat(fd).st_ino)


def _holder(fd: int) -> str:
    """Who has locked it, by the kernel's list of locks."""
    inode = os.fstat(fd).st_ino
    for line in (read_proc("/proc/locks") or b"").splitlines():
        found = re.search(rb"FLOCK .* ([0-9]+) [0-9a-f]+:[0-9a-f]+:([0-9]+) ", line)
        if found and b"->" not in line and int(found[2]) == inode and int(found[1]) > 0:
            pid = int(found[1])
            users = sorted(process_uids(pid) or ())
            return f"process {pid}" + (f" of {user_name(users[0])}" if users else "")
    return "another mpstui"


def _identity(client: Client, daemon: ProcessKey | None) -> dict[str, object]:
    """The client as its daemon has it, which is the same from every PID namespace, and which run of the daemon it was:
    its start, in ticks since the machine's. The client's own start only where its process is seen from here."""
    return {
        "pid": client.key.pid,
        "start_ticks": client.key.start_ticks,
        "boot_id": boot_id(),
        "daemon": daemon.start_ticks if daemon is not None else None,
        "server": client.server_pid,
        "number": client.id,
        "namespace": _namespace(),
    }


def _means(entry: dict[str, Any], client: Client, daemon: ProcessKey | None) -> bool | None:
    """Whether the entry is of this client; None where that is not known, as without the daemon's running numbers: a
    terminate too few does no harm."""
    wanted = _identity(client, daemon)
    told = {name: (entry.get(name), value) for name, value in wanted.items()}
    if any(found != value for found, value in (told["pid"], told["boot_id"])):
        return False
    if None not in told["start_ticks"]:  # the process itself, from one namespace
        return told["start_ticks"][0] == told["start_ticks"][1]
    numbers = [told[name] for name in ("daemon", "server", "number")]
    if any(None not in pair and pair[0] != pair[1] for pair in numbers):
        return False
    return True if not any(None in pair for pair in numbers) else None


def _namespace() -> int | None:
    """This PID namespace."""
    try:
        return os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        return None


def _may_live(entry: dict[str, Any]) -> bool:
    """Whether the process that the entry tells of may be there: of one in another namespace that is not known."""
    if entry.get("boot_id") != boot_id():
        return False
    pid, ticks = entry.get("pid"), entry.get("start_ticks")
    if not isinstance(pid, int) or ticks is None or entry.get("namespace") != _namespace():
        return True
    now = process_key(pid)
    return now is not None and now.start_ticks in {None, ticks}
