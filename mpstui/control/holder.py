"""Who keeps a control session open: the process that shuts everybody else out (fact 2).

A daemon that refuses a command serves some session; most are one-shot commands of others, which take milliseconds. Held
is what one and the same session has done that was open for ``HELD_AFTER`` seconds.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import socket
import struct
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from mpstui.control.commandline import SOCKETS, parse_command_line
from mpstui.core.model import SessionHolder
from mpstui.system.memory import read_each, real_path
from mpstui.system.own import looked_at
from mpstui.system.procfs import (
    TICKS_PER_SECOND,
    HiddenProcessError,
    effective_uid,
    login_name,
    read_proc,
    read_stat,
    real_uid,
    terminal_name,
)

DEFAULT_PIPE_DIRECTORY = "/tmp/nvidia-mps"  # noqa: S108  the daemon's own default
HELD_AFTER: Final = 3.0
"""Seconds that one session is open before it is said to be held; a one-shot takes 2 to 11 ms (facts 1, 15)."""


class HeldSession(NamedTuple):
    """A process that has a control session with the daemon, as far as one can tell."""

    holder: SessionHolder
    sockets: frozenset[int] | None
    """Inodes of its connections. Where this user may not see them, those of all connections to this daemon that are of
    no process that he may look into; None where these are not known either."""
    shared: bool = False
    """Whether these may as well be a client's."""


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
        are connected are younger, the log is behind. Without that word it is not known of one whose connections are
        ``shared``: somebody is busy there, and a client is connected as long as it runs.
        """
        sessions = self._find(self._pipe_dir, {os.getpid()}, self._binary)
        now, seen = self._clock(), {}
        ages: list[tuple[bool, float, SessionHolder]] = []
        for holder, sockets, shared in sessions:
            names = [(holder.pid, holder.start_ticks, inode) for inode in (sockets or (None,))]
            seen.update({name: self._since.get(name, now) for name in names})
            age = now - min(seen[name] for name in names)
            if logged and (process_age := _age(holder.start_ticks)) is not None:
                age = max(age, process_age)
            if age >= HELD_AFTER and (logged or not shared):
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
    connected = _Connected(pipe_dir)
    found: list[HeldSession] = []
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit() and int(name) not in exclude]
    for pid, words in zip(pids, read_each([f"/proc/{pid}/cmdline" for pid in pids], 1 << 16), strict=True):
        with contextlib.suppress(OSError):
            if words and (session := _session(pid, words, wanted, binary, connected)) is not None:
                found.append(session)
    return found


class _Connected:
    """The connections to the daemon of a directory, for one look at all processes."""

    def __init__(self, pipe_dir: Path) -> None:
        self._pipe_dir = pipe_dir
        self.listed = connections(pipe_dir)

    @functools.cached_property
    def roots(self) -> frozenset[int] | None:
        """Those to the socket to which root's commands come, and no client (facts 59, 60); None where there is none, as
        with protocol 3, or where the kernel does not tell."""
        return connections(self._pipe_dir, SOCKETS[1:]) if os.path.lexists(self._pipe_dir / SOCKETS[1]) else None

    @functools.cached_property
    def _again(self) -> frozenset[int]:
        """The kernel's list may leave some out: another one."""
        return connections(self._pipe_dir) or frozenset()

    def among(self, sockets: frozenset[int]) -> frozenset[int]:
        """Those of a process's sockets that are connected to the daemon."""
        return sockets & (self.listed or frozenset()) or sockets & self._again

    @functools.cached_property
    def of_hidden(self) -> frozenset[int] | None:
        """Those of processes that this user may not look into: whoever of them has a session with the daemon has one of
        these. None where the kernel does not list them, as of a daemon in another network namespace."""
        there = [path for name in SOCKETS if os.path.lexists(path := self._pipe_dir / name)]
        if self.listed is None or (there and not any(map(listening_at, there))):
            return None
        shown = (sockets_of(int(name)) for name in os.listdir("/proc") if name.isdigit())
        return (self.listed | self._again).difference(*(sockets or () for sockets in shown))


def _session(pid: int, words: bytes, wanted: str, binary: Sequence[str], connected: _Connected) -> HeldSession | None:
    argv = os.fsdecode(words).split("\0")
    options = parse_command_line(argv[:-1] if argv[-1] == "" else argv, binary=binary)
    if options is None or options.daemon:
        return None
    sockets = sockets_of(pid)
    if sockets is not None and not sockets:
        return None  # it is not connected yet, or no more
    shared = False
    if sockets is not None and connected.listed is not None and same_network(pid):
        sockets = connected.among(sockets)
        certain = True
    else:
        directory = _pipe_directory(pid)
        here = None if directory is None else _leads_here(pid, directory, wanted)
        if here is False:
            return None
        certain = bool(here) and sockets is not None
        if sockets is None and (sockets := connected.of_hidden) is not None:
            shared = connected.roots is None or effective_uid(pid) != 0
            sockets = sockets if shared else sockets & (connected.roots or frozenset())
    if sockets is not None and not sockets:
        return None
    try:
        stat = read_stat(pid)
    except HiddenProcessError:
        return None
    if stat is None or stat.gone:
        return None  # of one that has ended nothing is seen
    uid, tty = real_uid(pid), terminal_name(stat.tty)
    user = None if uid is None else login_name(uid)
    holder = SessionHolder(pid, user, f"/dev/{tty}" if tty else None, certain, stat.start_ticks, uid)
    return HeldSession(holder, sockets, shared)


def _pipe_directory(pid: int) -> str | None:
    """From the environment; None where that may not be read."""
    environment = read_proc(f"/proc/{pid}/environ")
    if environment is None:
        return None
    words = environment.split(b"\0")
    key = b"CUDA_MPS_PIPE_DIRECTORY="
    named = [os.fsdecode(word[len(key) :]) for word in words if word.startswith(key)]
    return named[0] if named else DEFAULT_PIPE_DIRECTORY


def _leads_here(pid: int, directory: str, wanted: str) -> bool | None:
    """Whether the process means the directory here; None where that cannot be seen, and it is called so. Whoever names
    what does not answer does not mean one that does."""
    found: list[bool | None] = []

    def look() -> None:
        here = _is_here(pid, directory, wanted)
        found.append(here if here is not None or real_path(directory) == wanted else False)

    looked_at({f"{pid} names {directory}": look})
    return found[0] if found else False


def _is_here(pid: int, directory: str, wanted: str) -> bool | None:
    """Whether what the process calls so is the directory here: in each container /tmp/nvidia-mps is another one, and
    this one may have another name. None where that cannot be seen."""
    try:
        inside = f"/proc/{pid}/root{directory}" if directory.startswith("/") else f"/proc/{pid}/cwd/{directory}"
        return os.path.samestat(os.stat(inside), os.stat(wanted))
    except (OSError, ValueError):
        return None


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


def same_network(pid: int) -> bool:
    """The kernel lists the connections of one network namespace, ours."""
    try:
        return os.stat(f"/proc/{pid}/ns/net").st_ino == os.stat("/proc/self/ns/net").st_ino
    except OSError:
        return False


_SOCK_DIAG, _DIAG_BY_FAMILY, _ESTABLISHED, _LISTENING = 4, 20, 1, 10
_NAME, _VFS, _PEER = 0, 1, 2
_HEADER = struct.Struct("=IHHII")
_ERROR, _DONE, _DUMP = 2, 3, 0x300
_ASKED_FOR = 4096


def connections(pipe_dir: Path, at: Sequence[str] = SOCKETS, *, by_name: bool = True) -> frozenset[int] | None:
    """Inodes of the sockets that are connected to the daemon of ``pipe_dir``, its servers' and waiting clients' too, by
    its sockets of these names.

    The kernel's own list of Unix sockets (sock_diag), which names each one's peer; None where it cannot be had. It has
    the name that a socket was bound by, which in a container may be that of another directory here: by that alone they
    are told where the kernel has other numbers for the files (:func:`listening`), and with ``by_name``.
    """
    names, files = set(), set()
    for name in at:
        path = os.path.join(real_path(pipe_dir), name)
        names.add(path)
        with contextlib.suppress(OSError):
            files.add(_vfs(os.stat(path)))
    found, named = set[int](), set[int]()
    try:
        for _, attributes in _unix_sockets(_ESTABLISHED):
            path = os.fsdecode(attributes.get(_NAME, b"").rstrip(b"\0"))
            same = path.startswith("/") and (path in names or real_path(path) in names)
            vfs = attributes.get(_VFS, b"")
            there = len(vfs) == 8 and struct.unpack("=II", vfs) in files
            if (same or there) and len(attributes.get(_PEER, b"")) == 4:
                (found if there else named).add(struct.unpack("=I", attributes[_PEER])[0])
    except (OSError, ValueError, struct.error):
        return None
    if by_name and named and not any(map(listening_at, map(Path, names))):
        found |= named
    return frozenset(found - {0})  # the other end of one that is not closed yet has gone


FileAt = tuple[int, int]
"""Inode and device of a socket's file, by the numbers of the kernel's list."""


def file_at(path: Path) -> FileAt | None:
    """What who connects at this name comes to; None for nothing."""
    try:
        return _vfs(os.stat(path))
    except (OSError, ValueError):
        return None


def listening(sockets: Collection[int]) -> Mapping[int, FileAt] | None:
    """Those of these sockets, by their inodes, that listen at a file of this network namespace, whatever its name was
    when they were bound to it. Each is asked for by itself: the list of all comes in pieces, and while sockets come and
    go elsewhere it leaves some out, without a word (NLM_F_DUMP_INTR is never set in it).

    None where the kernel tells nothing. It may have other numbers: of an overlay whose layers are on several file
    systems a file has another device there than for who looks. So it tells where they do not listen only of a device on
    which one of them does. Of very many sockets, as where others have connected, the oldest are looked at.
    """
    found = {}
    try:
        with _diagnosis() as link:
            for inode in sorted(sockets)[:_ASKED_FOR]:
                if (attributes := _unix_socket(link, inode)) and (at := _place(attributes)) is not None:
                    found[inode] = at
    except (OSError, struct.error):
        return None
    return found


def listening_at(path: Path) -> frozenset[int]:
    """Inodes of all sockets of this network namespace that listen at this file. What is not in the list is looked for
    twice; what one knows the inodes of is looked for by :func:`listening`."""
    with contextlib.suppress(OSError):
        for _ in range(2):
            file = file_at(path)
            if found := frozenset(inode for inode, at in _listening() if at == file):
                return found
    return frozenset()


def is_served(path: Path) -> bool | None:
    """Whether some process has the socket open that who connects at this name comes to, in whatever namespace; None
    where that cannot be told.

    What asks is a socket of another kind: the kernel refuses it by that where there is one to connect to, and by its
    absence where there is none, and nobody hears of it (a connection leaves two lines in the daemon's log, fact 50).
    """
    try:
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except (OSError, ValueError) as error:
        return None if isinstance(error, PermissionError) else False
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as asks:
            asks.connect(f"/proc/self/fd/{fd}")  # of any length
    except OSError as error:
        if error.errno == errno.EPROTOTYPE:
            return True
        return False if error.errno == errno.ECONNREFUSED else bool(listening_at(path)) or None
    finally:
        os.close(fd)
    return True


def _listening() -> Iterator[tuple[int, FileAt]]:
    """Each listening socket with the file it is at; raises OSError."""
    for inode, attributes in _unix_sockets(_LISTENING):
        if (at := _place(attributes)) is not None:
            yield inode, at


def _place(attributes: Mapping[int, bytes]) -> FileAt | None:
    vfs = attributes.get(_VFS, b"")
    if len(vfs) != 8:
        return None
    file, device = struct.unpack("=II", vfs)
    return file, device


def _vfs(found: os.stat_result) -> tuple[int, int]:
    """Inode and device of a socket's file as the kernel's list has them, which cuts the inode."""
    return found.st_ino & 0xFFFFFFFF, os.major(found.st_dev) << 20 | os.minor(found.st_dev)


def _unix_sockets(state: int) -> Iterator[tuple[int, dict[int, bytes]]]:
    """Inode and attributes of each Unix socket of this network namespace that is in this state, but for some that it
    leaves out (:func:`listening`); raises OSError."""
    with _diagnosis() as link:
        link.send(_request(_DUMP, 1 << state, 0))
        while True:
            data = link.recv(1 << 18)
            while len(data) >= _HEADER.size:
                length, kind, *_ = _HEADER.unpack_from(data)
                if kind == _DONE:
                    return
                if kind != _DIAG_BY_FAMILY or length < _HEADER.size:
                    raise OSError("no list of sockets")
                yield struct.unpack_from("=I", data, _HEADER.size + 4)[0], _attributes(data[_HEADER.size + 16 : length])
                data = data[(length + 3) & ~3 :]


def _unix_socket(link: socket.socket, inode: int) -> dict[int, bytes]:
    """Attributes of that one, if it is a Unix socket of this network namespace and listens, else none; raises
    OSError."""
    link.send(_request(0, 0xFFFFFFFF, inode))
    data = link.recv(1 << 16)
    length, kind, *_ = _HEADER.unpack_from(data)
    if kind == _DIAG_BY_FAMILY:
        return _attributes(data[_HEADER.size + 16 : length]) if data[_HEADER.size + 2] == _LISTENING else {}
    if kind == _ERROR and struct.unpack_from("=i", data, _HEADER.size)[0] == -errno.ENOENT:
        return {}
    raise OSError("no word of a socket")


@contextlib.contextmanager
def _diagnosis() -> Iterator[socket.socket]:
    """The kernel's side that tells of sockets; raises OSError."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _SOCK_DIAG) as link:
        link.settimeout(2.0)
        yield link


def _request(flags: int, states: int, inode: int) -> bytes:
    """Names and peers are asked for, never whose a socket is: asked for that of a single one, some kernels fall."""
    show = 1 << _NAME | 1 << _VFS | 1 << _PEER
    asked = struct.pack("=BBHIIIII", socket.AF_UNIX, 0, 0, states, inode, show, 0xFFFFFFFF, 0xFFFFFFFF)
    return _HEADER.pack(_HEADER.size + len(asked), _DIAG_BY_FAMILY, 1 | flags, 1, 0) + asked


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
