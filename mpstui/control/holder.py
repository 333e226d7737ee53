"""Who keeps a control session open: the process that shuts everybody else out (fact 2).

A daemon that refuses a command serves some session; most are one-shot commands of others, which take milliseconds. Held
is what one and the same session has done that was open for ``HELD_AFTER`` seconds.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from mpstui.control.commandline import SOCKETS, parse_command_line
from mpstui.core.model import SessionHolder
from mpstui.system.memory import read_each, real_path
from mpstui.system.procfs import (
    TICKS_PER_SECOND,
    HiddenProcessError,
    effective_uid,
    login_name,
    read_proc,
    read_stat,
    terminal_name,
)

DEFAULT_PIPE_DIRECTORY = "/tmp/nvidia-mps"  # noqa: S108  the daemon's own default
HELD_AFTER: Final = 3.0
"""Seconds that one session is open before it is said to be held; a one-shot takes 2 to 11 ms (facts 1, 15)."""


class HeldSession(NamedTuple):
    """A process that has a control session with the daemon, as far as one can tell."""

    holder: SessionHolder
    sockets: frozenset[int] | None
    """Inodes of its connections; None where this user may not see them."""


class SessionWatch:
    """Tells which session stays open, by looking again: the same process, and the same connection where it can be seen.

    A process that opens one session after the other has another connection each time. ``clock``: monotonic seconds.
    """

    def __init__(
        self,
        pipe_dir: Path,
        binary: Sequence[str] = (),
        clock: Callable[[], float] = time.monotonic,
        find: Callable[..., list[HeldSession]] | None = None,
    ) -> None:
        self._pipe_dir = pipe_dir
        self._binary = tuple(binary)
        self._clock = clock
        self._find = find or find_sessions
        self._since: dict[tuple[int, int | None, int | None], float] = {}
        self.held = False
        """Whether the latest look found a session that stays."""
        self.seen = False
        """Whether the latest look found any."""

    def look(self, logged: bool = False) -> tuple[bool, SessionHolder | None]:
        """Whether a session stays open, and whose. Reads every process; call it off the event loop.

        ``logged``: the daemon's log has shown one open session for ``HELD_AFTER`` seconds. Then it is held also where
        no process can be found (in a container, say), and an old process that is connected is the one. If all that
        are connected are younger, the log is behind.
        """
        sessions = self._find(self._pipe_dir, {os.getpid()}, self._binary)
        now, seen = self._clock(), {}
        ages: list[tuple[bool, float, SessionHolder]] = []
        for holder, sockets in sessions:
            names = [(holder.pid, holder.start_ticks, inode) for inode in (sockets or (None,))]
            seen.update({name: self._since.get(name, now) for name in names})
            age = now - min(seen[name] for name in names)
            if logged and (process_age := _age(holder.start_ticks)) is not None:
                age = max(age, process_age)
            if age >= HELD_AFTER:
                ages.append((not holder.certain, -age, holder))
        self._since, self.seen = seen, bool(sessions)
        self.held = bool(ages) or (logged and not sessions)
        return self.held, min(ages, key=lambda entry: entry[:2])[2] if ages else None


def find_sessions(pipe_dir: Path, exclude: Collection[int] = (), binary: Sequence[str] = ()) -> list[HeldSession]:
    """The control binary's processes that have, or may have, a session with the daemon of ``pipe_dir`` now.

    ``certain`` of a holder: its connection to this daemon was seen, or, where the kernel shows none (another network
    namespace), its environment names the directory and it has a connection. Reads every process; call it off the event
    loop.
    """
    wanted = real_path(pipe_dir)
    connected = connections(pipe_dir)
    found: list[HeldSession] = []
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit() and int(name) not in exclude]
    for pid, words in zip(pids, read_each([f"/proc/{pid}/cmdline" for pid in pids], 1 << 16), strict=True):
        with contextlib.suppress(OSError):
            if words and (session := _session(pid, words, wanted, binary, connected)) is not None:
                found.append(session)
    return found


def _session(
    pid: int, words: bytes, wanted: str, binary: Sequence[str], connected: frozenset[int] | None
) -> HeldSession | None:
    argv = os.fsdecode(words).split("\0")
    options = parse_command_line(argv[:-1] if argv[-1] == "" else argv, binary=binary)
    if options is None or options.daemon:
        return None
    sockets = sockets_of(pid)
    if sockets is not None and not sockets:
        return None  # it is not connected yet, or no more
    if sockets is not None and connected is not None and _same_network(pid):
        sockets &= connected
        if not sockets:
            return None
        certain = True
    else:
        directory = _pipe_directory(pid)
        if directory is not None and real_path(directory) != wanted:
            return None
        certain = directory is not None and sockets is not None
    try:
        stat = read_stat(pid)
    except HiddenProcessError:
        return None
    if stat is None or stat.gone:
        return None  # of one that has ended nothing is seen
    uid, tty = effective_uid(pid), terminal_name(stat.tty)
    user = None if uid is None else login_name(uid)
    holder = SessionHolder(pid, user, f"/dev/{tty}" if tty else None, certain, stat.start_ticks, uid)
    return HeldSession(holder, sockets)


def _pipe_directory(pid: int) -> str | None:
    """From the environment; None where that may not be read."""
    environment = read_proc(f"/proc/{pid}/environ")
    if environment is None:
        return None
    words = environment.split(b"\0")
    key = b"CUDA_MPS_PIPE_DIRECTORY="
    named = [os.fsdecode(word[len(key) :]) for word in words if word.startswith(key)]
    return named[0] if named else DEFAULT_PIPE_DIRECTORY


def sockets_of(pid: int) -> frozenset[int] | None:
    """Inodes of the process's sockets; None where they may not be seen."""
    found = set()
    try:
        for fd in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(FileNotFoundError):
                link = os.readlink(f"/proc/{pid}/fd/{fd}")
                if link.startswith("socket:["):
                    found.add(int(link[8:-1]))
    except (OSError, ValueError):
        return None
    return frozenset(found)


def _same_network(pid: int) -> bool:
    """The kernel lists the connections of one network namespace, ours."""
    try:
        return os.stat(f"/proc/{pid}/ns/net").st_ino == os.stat("/proc/self/ns/net").st_ino
    except OSError:
        return False


_SOCK_DIAG, _DIAG_BY_FAMILY, _ESTABLISHED, _LISTENING = 4, 20, 1, 10
_NAME, _VFS, _PEER = 0, 1, 2
_HEADER = struct.Struct("=IHHII")


def connections(pipe_dir: Path) -> frozenset[int] | None:
    """Inodes of the sockets that are connected to the daemon of ``pipe_dir``, its servers' and waiting clients' too.

    The kernel's own list of Unix sockets (sock_diag), which names each one's peer; None where it cannot be had.
    """
    names, files = set(), set()
    for name in SOCKETS:
        path = os.path.join(real_path(pipe_dir), name)
        names.add(path)
        with contextlib.suppress(OSError):
            files.add(_vfs(os.stat(path)))
    found = set()
    try:
        for _, attributes in _unix_sockets(_ESTABLISHED):
            path = os.fsdecode(attributes.get(_NAME, b"").rstrip(b"\0"))
            same = path.startswith("/") and (path in names or real_path(path) in names)
            vfs = attributes.get(_VFS, b"")
            if (same or (len(vfs) == 8 and struct.unpack("=II", vfs) in files)) and len(
                attributes.get(_PEER, b"")
            ) == 4:
                found.add(struct.unpack("=I", attributes[_PEER])[0])
    except (OSError, ValueError, struct.error):
        return None
    return frozenset(found)


def listening_at(path: Path) -> frozenset[int]:
    """Inodes of the sockets of this network namespace that listen at this file, whatever its name was when they were
    bound to it; empty also where the kernel's list cannot be had, or has other numbers: of an overlay whose layers are
    on several file systems a file has another device there than for who looks."""
    with contextlib.suppress(OSError, ValueError):
        file = _vfs(os.lstat(path))
        return frozenset(inode for inode, at in _listening() if at == file)
    return frozenset()


def listening_beside(path: Path | None) -> frozenset[int]:
    """The same at any file of that one's file system, by the list's numbers; None: at any. Without one of a process's
    own among them the list tells nothing of where it listens there."""
    with contextlib.suppress(OSError, ValueError):
        device = None if path is None else _vfs(os.lstat(path))[1]
        return frozenset(inode for inode, (_, on) in _listening() if device in {None, on})
    return frozenset()


def _listening() -> Iterator[tuple[int, tuple[int, int]]]:
    """Each listening socket with the file it is at; raises OSError."""
    for inode, attributes in _unix_sockets(_LISTENING):
        vfs = attributes.get(_VFS, b"")
        if len(vfs) == 8:
            file, device = struct.unpack("=II", vfs)
            yield inode, (file, device)


def _vfs(found: os.stat_result) -> tuple[int, int]:
    """Inode and device of a socket's file as the kernel's list has them, which cuts the inode."""
    return found.st_ino & 0xFFFFFFFF, os.major(found.st_dev) << 20 | os.minor(found.st_dev)


def _unix_sockets(state: int) -> Iterator[tuple[int, dict[int, bytes]]]:
    """Inode and attributes of each Unix socket of this network namespace that is in this state; raises OSError."""
    show = 1 << _NAME | 1 << _VFS | 1 << _PEER
    request = struct.pack("=BBHIIIII", socket.AF_UNIX, 0, 0, 1 << state, 0, show, 0xFFFFFFFF, 0xFFFFFFFF)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _SOCK_DIAG) as link:
        link.settimeout(2.0)
        link.send(_HEADER.pack(_HEADER.size + len(request), _DIAG_BY_FAMILY, 0x301, 1, 0) + request)  # REQUEST, DUMP
        while True:
            data = link.recv(1 << 18)
            while len(data) >= _HEADER.size:
                length, kind, *_ = _HEADER.unpack_from(data)
                if kind == 3:  # DONE
                    return
                if kind != _DIAG_BY_FAMILY or length < _HEADER.size:
                    raise OSError("no list of sockets")
                yield struct.unpack_from("=I", data, _HEADER.size + 4)[0], _attributes(data[_HEADER.size + 16 : length])
                data = data[(length + 3) & ~3 :]


def _attributes(data: bytes) -> dict[int, bytes]:
    found = {}
    while len(data) >= 4:
        length, kind = struct.unpack_from("=HH", data)
        if length < 4:
            break
        found[kind] = data[4:length]
        data = data[(length + 3) & ~3 :]
    return found


def _age(start_ticks: int | None) -> float | None:
    """Seconds that a process has lived."""
    if start_ticks is None:
        return None
    return time.clock_gettime(time.CLOCK_BOOTTIME) - start_ticks / TICKS_PER_SECOND
