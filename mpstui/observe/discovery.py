"""Finds control daemons and pipe directories, whose word a daemon's is, where its logs are; reads, sends nothing."""

from __future__ import annotations

import errno
import fcntl
import fnmatch
import functools
import itertools
import os
import re
import socket
import stat
import struct
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final, Literal, NamedTuple

from mpstui.control.commandline import PROGRAM, SOCKETS, Options, Protocol, parse_command_line
from mpstui.control.drivers import is_before_protocol_3
from mpstui.control.holder import FileAt, file_at, is_served, listening, listening_at, same_network, sockets_of
from mpstui.core.condition import STARTING
from mpstui.core.late import pattern
from mpstui.core.model import DEVICES_VARIABLE, EMPTY, LIMIT_VARIABLES, ProcessKey
from mpstui.core.text import owner, path_text, path_word, printable, unprintable
from mpstui.core.trust import ANYBODY, Speaker, is_anothers, is_usurped, may_signal
from mpstui.system.memory import INSIDE, read_each, read_start, real_path
from mpstui.system.own import looked_at
from mpstui.system.procfs import (
    HiddenProcessError,
    Stat,
    effective_uid,
    lines_of,
    mounts_of_its_own,
    namespace_pids,
    pid_namespace,
    process_key,
    process_uids,
    read_environment,
    read_proc,
    read_stat,
    start_time,
    user_name,
)
from mpstui.system.trusted import (
    Access,
    NotTrustedError,
    Owners,
    UnreadableLogError,
    hold_directory,
    is_believed,
    judge_own,
    makers_of,
    open_log,
    owners_of,
    walk,
)

# Finds the control daemons that run on this machine: one pass over /proc, without a word to any of them.


DEFAULT_PIPE_DIR: Final = Path("/tmp/nvidia-mps")  # noqa: S108 - MPS's own default
DEFAULT_V3_PIPE_DIR: Final = Path("/run/nvidia-mps")
DEFAULT_LOG_DIR: Final = Path("/var/log/nvidia-mps")
_KERNEL_DRIVER: Final = "/sys/module/nvidia/version"
_SO_ACCEPTCON: Final = b"00010000"
_SOCKETS_LIMIT: Final = 1 << 22
_SOCKET_DIRS_LIMIT: Final = 64
_COMM: Final = PROGRAM[:15].encode()
"""The kernel cuts names at 15 bytes."""
_INTERPRETERS: Final = (b"python", b"pypy")
"""They may run a stand-in of that name."""
_OTHERS_S: Final = 60.0
FileId = tuple[int, int]


class DaemonProcess(NamedTuple):
    """A running control daemon and what may be known of it from outside."""

    key: ProcessKey
    uid: int | None
    start_time: float | None
    multiuser: bool
    protocol: Protocol
    pipe_dir: Path | None
    """As the daemon names it, in its own mount namespace; None where its environment may not be read."""
    log_dir: Path | None
    pipe_id: FileId | None = None
    """The directory behind that name, seen from within the daemon; None where it is gone or out of reach."""
    log_id: FileId | None = None
    static_partitioning: bool = False
    limits: Mapping[str, str] | None = EMPTY
    """The variables of its environment that set limits; None where that may not be read."""
    visible: str | None = None
    """CUDA_VISIBLE_DEVICES of its environment; None where it has none, or where that may not be read."""
    pid_there: int | None = None
    """Its PID in its own PID namespace, where that is another one than this."""
    foreground: bool = False
    """Its log is its standard output: what is in its log directory is another one's (fact 47)."""


class _Others:
    """Interpreters that run something else: their command lines were read twice, and are not read again each time,
    which was two thirds of a look beside hundreds of them. For so many seconds: a program may start another in its
    place, and does where it has just been forked."""

    def __init__(self) -> None:
        self._known: dict[int, int] = {}
        """The inode of a process' folder: another process of the same number has another one."""
        self._once: dict[int, int] = {}
        self._until = 0.0

    def among(self, there: Mapping[int, int | None], now: float) -> Collection[int]:
        """Those that still are."""
        if now >= self._until:
            self._known, self._once, self._until = {}, {}, now + _OTHERS_S
        self._known = {pid: inode for pid, inode in self._known.items() if there.get(pid) == inode}
        return self._known

    def take(self, others: dict[int, int]) -> None:
        """These were found to be."""
        again = {pid: inode for pid, inode in others.items() if self._once.get(pid) == inode}
        self._known, self._once = {**self._known, **again}, others


_others: Final = _Others()


def running_daemons() -> list[DaemonProcess]:
    """Every control daemon that /proc shows, oldest first. Costs some 10 µs a process of the machine."""
    there = dict(_candidates())
    others = _others.among(there, time.monotonic())
    asked = [pid for pid in there if pid not in others]
    named = dict(zip(asked, read_each([f"/proc/{pid}/cmdline" for pid in asked], 1 << 16), strict=True))
    so_named = [pid for pid, words in named.items() if PROGRAM.encode() in (words or b"")]
    told = {pid: there[pid] for pid, words in named.items() if words and pid not in so_named}
    _others.take({pid: inode for pid, inode in told.items() if inode is not None})
    found = [daemon for pid in so_named if (daemon := daemon_process(pid)) is not None]
    return sorted(found, key=lambda daemon: (daemon.key.start_ticks or 0, daemon.key.pid))


def daemon_process(pid: int) -> DaemonProcess | None:
    """The daemon that this PID is, judged by its own command line; None for anything else, a zombie among it."""
    words = read_proc(f"/proc/{pid}/cmdline", 1 << 16) or b""
    if PROGRAM.encode() not in words:
        return None  # one of a node's hundreds of Python programs: nothing else of them is read
    try:
        stat = read_stat(pid)
    except HiddenProcessError:
        return None
    if stat is None or stat.gone:
        return None
    environment = read_environment(pid)
    argv = [os.fsdecode(each) for each in words.rstrip(b"\0").split(b"\0")]
    options = parse_command_line(argv, environment)
    if options is None or not options.daemon:
        return None
    uid = effective_uid(pid)
    if process_uids(pid) not in ({uid}, None):
        return None  # a setuid program that somebody has started under this name
    found = _process(stat, uid, options, environment)
    without = parse_command_line(argv) or options
    if without.protocol != options.protocol and is_before_protocol_3(_kernel_driver(), _version_of(found)):
        return _process(stat, uid, options._replace(protocol=without.protocol), environment)
    return found


def _process(found: Stat, uid: int | None, options: Options, environment: Mapping[str, str] | None) -> DaemonProcess:
    pid, pipe_dir, log_dir = found.key.pid, None, None
    if environment is not None:
        default = DEFAULT_V3_PIPE_DIR if options.protocol == "v3" and uid == 0 else DEFAULT_PIPE_DIR
        pipe_dir = _absolute(environment.get("CUDA_MPS_PIPE_DIRECTORY"), default)
        log_dir = _absolute(environment.get("CUDA_MPS_LOG_DIRECTORY"), DEFAULT_LOG_DIR)
    return DaemonProcess(
        key=found.key,
        uid=uid,
        start_time=start_time(found.start_ticks),
        multiuser=options.multiuser,
        protocol=options.protocol,
        pipe_dir=pipe_dir,
        log_dir=log_dir,
        pipe_id=seen_by(pid, pipe_dir),
        log_id=seen_by(pid, log_dir),
        static_partitioning=options.static_partitioning,
        limits=None if environment is None else {k: v for k, v in environment.items() if k in LIMIT_VARIABLES},
        visible=None if environment is None else environment.get(DEVICES_VARIABLE),
        pid_there=pids[-1] if len(pids := namespace_pids(pid)) > 1 else None,
        foreground=options.foreground,
    )


def _kernel_driver() -> str | None:
    """The version of the driver that the kernel has, which a daemon on this machine is of, in a container too."""
    told = read_proc(_KERNEL_DRIVER)
    return None if told is None else told.decode("ascii", "replace").strip()


def _version_of(daemon: DaemonProcess) -> str | None:
    """What the daemon has written of its binary into its log."""
    if daemon.pipe_dir is None or (log_dir := find_log_dir(daemon.pipe_dir, daemon, None)) is None:
        return None
    return binary_version(log_dir, daemon.key.pid, owners_of(daemon.uid))


def listening_dirs() -> list[Path]:
    """Directories in which somebody of this network namespace listens as a control daemon would.

    Everybody may read that, so it finds the daemon whose environment is closed. Anybody may bind such a socket too, in
    a mount namespace by any name: what is seen here to be none is left out.
    """
    found = []
    for line in lines_of(read_proc("/proc/net/unix", _SOCKETS_LIMIT) or b""):
        fields = line.split(maxsplit=7)
        listens = len(fields) == 8 and fields[3] == _SO_ACCEPTCON and fields[7].startswith(b"/")
        if listens and fields[7].endswith(b"/control_privileged"):
            found.append(Path(os.fsdecode(fields[7])))
    found = found[:_SOCKET_DIRS_LIMIT]
    there = answering(path.parent for path in found)
    return [path.parent for path in found if path.parent in there and _may_be_socket(path)]


def _may_be_socket(path: Path) -> bool:
    """Whether it is one, or may not be looked at."""
    try:
        return stat.S_ISSOCK(os.stat(path).st_mode)
    except (OSError, ValueError) as error:
        return isinstance(error, PermissionError)


def seen_by(pid: int, path: Path | None) -> FileId | None:
    """Device and inode of ``path`` as the process sees it, which in a container is not what the path is here; None also
    where its user mounts there what he likes (``mounts_of_its_own``), and where what he names does not answer."""
    found: list[FileId | None] = []
    if path is not None:
        looked_at({f"{pid} " + os.fspath(path): lambda: found.append(_seen_by(pid, path))})
    return found[0] if found else None


def _seen_by(pid: int, path: Path) -> FileId | None:
    try:
        root = os.open(f"/proc/{pid}/root", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        # Looked at once its root is held: a process leaves its first user namespace, and never comes back.
        if mounts_of_its_own(pid):
            return None
        found = os.stat(os.fspath(path).lstrip("/") or ".", dir_fd=root)
    except (OSError, ValueError):
        return None
    finally:
        os.close(root)
    return found.st_dev, found.st_ino


def answering(paths: Iterable[Path]) -> set[Path]:
    """Those of these directories, which others may have named, that a look at them and at what a daemon has in one
    comes to an end in: a link leads to a mount whose server is away, or never answers."""
    there = {os.fspath(path): path for path in paths}
    return {there[name] for name in looked_at({name: functools.partial(_look, name) for name in there})}


def _look(folder: str) -> None:
    os.stat(folder)
    for name in OPENED:
        with suppress(OSError):
            os.stat(os.path.join(folder, name))


def file_id(path: Path) -> FileId | None:
    """Device and inode, which tell whether two paths are one directory."""
    try:
        stat = os.stat(path)
    except (OSError, ValueError):
        return None
    return _id(stat)


def _id(found: os.stat_result) -> FileId:
    return found.st_dev, found.st_ino


def _candidates() -> Iterator[tuple[int, int | None]]:
    """Their PIDs; of an interpreter the inode of its folder, before anything in that is read."""
    with os.scandir("/proc") as entries:
        for entry in entries:
            if not entry.name.isdigit():
                continue
            comm = read_start(os.path.join(entry.path, "comm"), 16)
            if comm.startswith(_COMM):
                yield int(entry.name), None
            elif comm.startswith(_INTERPRETERS):
                yield int(entry.name), entry.inode()


def _absolute(text: str | None, default: Path) -> Path | None:
    """A directory from an environment; None for a relative one, since where the daemon stood then is not known."""
    if not text:
        return default
    return Path(text) if text.startswith("/") else None


# Whose word a daemon's is, by what the kernel keeps of its sockets, its directory and its lock; sends nothing.
#
# A process may call itself ``nvidia-cuda-mps-control -d`` and name any directory, and anybody may write the PID file
# (fact 42). Who has made a socket, and who may put another one in its place, the kernel knows.


_FLOCK: Final = "hhqqi4x"
_PEER: Final = struct.Struct("3i")
_LINKS: Final = 40
SETTLED: Final = 0.1
"""Seconds since the last change in a directory that others may write to, from which on a further change is surely seen:
the kernel writes times of files down to its clock's ticks, of 1 to 10 ms."""
_TRIES: Final = 20
_PAUSE: Final = 0.05
"""Seconds; a directory that was changed just now is looked at again, so that the next change is seen."""
_LOOKS: Final = 4
"""At a name that leads elsewhere each time."""
_RECENT: Final = 60.0
"""Seconds since the last change in a directory, in which somebody may be exchanging its sockets again and again."""
STARTS_WITHIN: Final = 10.0
"""Seconds until a daemon has its sockets; it took 13 ms on an H100 node."""
_NOT_LOOKED_AT: Final = "its sockets cannot be looked at"


def find_speaker(pipe_dir: Path) -> Speaker:
    """For whom the daemon of this directory speaks. Follows links; blocks on names of users alone.

    One user owns both sockets, the directory and, beside root, the way to it, and nobody else can exchange any of it. A
    daemon that makes its directory itself leaves it open to everybody (0777): it is believed as long as
    ``stamp`` stays what it is, as whoever puts another socket there changes that. The directory is held meanwhile:
    where others lead its name elsewhere, all of it is one directory's.
    """
    return _looked_at(pipe_dir)[0]


def _looked_at(pipe_dir: Path) -> tuple[Speaker, FileId | None]:
    """``find_speaker``, and of which directory that is so."""
    with suppress(OSError, ValueError), held(pipe_dir) as folder:
        return _speaker_of(pipe_dir, folder), _id(os.fstat(folder))
    return Speaker(None, _NOT_LOOKED_AT, steered=True), None


def _speaker_of(pipe_dir: Path, folder: int) -> Speaker:
    """``find_speaker``, of the directory that is held."""
    at, found = os.fstat(folder), _speaker(pipe_dir, folder)
    proved = found.uid is not None and {0, found.uid} == _mine()  # by the same way, for the same users
    found = found._replace(steered=not proved and is_steered(pipe_dir, folder), folder=_id(at), owner=at.st_uid)
    if found.uid is not None or found.stamp:
        return found
    sockets = []
    for name in SOCKETS:
        with suppress(OSError):
            sockets.append(os.stat(name, dir_fd=folder))
    return found._replace(stamp=_stamp(os.fstat(folder), sockets))


@contextmanager
def held(folder: Path) -> Iterator[int]:
    """A descriptor of the directory that has this name now, whatever has it later. Raises OSError, ValueError."""
    fd = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield fd
    finally:
        os.close(fd)


def _stamp(folder: os.stat_result, sockets: Iterable[os.stat_result]) -> tuple[int, ...]:
    times = (folder.st_dev, folder.st_ino, folder.st_mtime_ns, folder.st_ctime_ns)
    return times + tuple(n for found in sockets for n in (found.st_ino, found.st_ctime_ns))


def _kept(folder: os.stat_result, sockets: Sequence[os.stat_result]) -> tuple[int, ...]:
    """``_stamp`` of a sticky directory, where nobody else can take a socket away: with the times of the newest socket,
    as what others have there besides changes those of the directory, and no socket."""
    stamp, newest = _stamp(folder, sockets), max(sockets, key=lambda found: found.st_ctime_ns)
    return (*stamp[:2], newest.st_mtime_ns, newest.st_ctime_ns, *stamp[4:])


def _speaker(pipe_dir: Path, folder: int) -> Speaker:
    """``find_speaker``, without a stamp for what is nobody's, of the directory that is held."""
    try:
        sockets = [os.stat(SOCKETS[0], dir_fd=folder, follow_symlinks=False)]
        with suppress(FileNotFoundError):  # of protocol 3 none is documented
            sockets.append(os.stat(SOCKETS[1], dir_fd=folder, follow_symlinks=False))
        owners = {found.st_uid for found in sockets} | {os.fstat(folder).st_uid}
    except OSError:
        return Speaker(None, _NOT_LOOKED_AT)
    users, theirs = sorted(owners - {0}), tuple(sorted({found.st_uid for found in sockets}))
    by = users[0] if users else None
    if links := [name for name, found in zip(SOCKETS, sockets, strict=False) if stat.S_ISLNK(found.st_mode)]:
        why = f"a link is in the place of its {'sockets' if links[1:] else 'socket'} {' and '.join(links)}"
        return Speaker(None, why, by=by, sockets=theirs, remedy=_put_back(pipe_dir, links))
    if not all(stat.S_ISSOCK(found.st_mode) for found in sockets):
        return Speaker(None, "the files in the place of its sockets are no sockets", by=by, sockets=theirs)
    if len(users) > 1:
        whose = " and ".join(map(user_name, users))
        return Speaker(None, f"its sockets and its directory belong to {whose}", by=by, sockets=theirs)
    uid = users[0] if users else 0
    why = "root's daemon" if uid == 0 else f"a daemon of {user_name(uid)}"
    try:
        access = _open_to_others(pipe_dir, {0, uid}, folder)
    except NotTrustedError as error:
        by = by or _on_the_way(pipe_dir) or (None if error.fault == "writable" else ANYBODY)
        return Speaker(None, printable(str(error)), by=by, sockets=theirs)
    except OSError as error:
        why = f"the path to its sockets cannot be looked at: {error.strerror}"
        return Speaker(None, why, by=by or _on_the_way(pipe_dir), sockets=theirs)
    if access == "closed":
        return Speaker(uid, why, sockets=theirs)
    at, sticky = os.fstat(folder), access == "sticky"
    return Speaker(uid, why, _kept(at, sockets) if sticky else _stamp(at, sockets), sockets=theirs, sticky=sticky)


def _put_back(pipe_dir: Path, links: Sequence[str]) -> str:
    """What ends that links are in the place of the sockets with these names, a sentence; empty where others than root
    and who looks may have put them there, or may put anything where they lead."""
    if _whose_else(pipe_dir) is not None:
        return ""
    moves, where = [], path_word(pipe_dir)
    own = sockets_of(lock_holder(pipe_dir) or 0) or frozenset()
    for name in links:
        link = pipe_dir / name
        with suppress(OSError, ValueError):
            found, real = os.stat(link), Path(real_path(link))
            # A socket listens on under another name of the same file system, and on no other one.
            here = found.st_dev == os.stat(pipe_dir).st_dev and own & listening_at(real)
            if here and unprintable(real) is None and _whose_else(real.parent) is None:
                moves.append(f"mv -f {path_word(real)} {path_word(link)}")
    if len(moves) == len(links):
        return f"Replace the link with the socket it points to: {' && '.join(moves)}"
    taken = " ".join(path_word(pipe_dir / name) for name in links)
    end = f"mpstui daemon stop --force --pipe-dir {where}"
    elsewhere = "A link there does not point to this daemon's own socket"
    return f"{elsewhere}. Remove it: rm {taken}; when the daemon's clients have ended, run: {end}"


def _on_the_way(pipe_dir: Path) -> int | None:
    """The nearest user but root who has made some of the way to the sockets."""
    for place in (pipe_dir, *pipe_dir.parents, *Path(os.path.realpath(pipe_dir)).parents):
        with suppress(OSError):
            if uid := os.lstat(place).st_uid:
                return uid
    return None


def settled(speaker: Speaker) -> bool:
    """Whether a change of the directory from now on would show in ``stamp``."""
    return speaker.uid is None or not speaker.stamp or time.time() - max(speaker.stamp[2:4]) / 1e9 > SETTLED


def steady_speaker(pipe_dir: Path, find: Callable[[Path], Speaker] = find_speaker) -> Speaker:
    """As ``find_speaker``, once a further change would be seen: of a directory that is changed all the time, as where
    somebody exchanges its sockets again and again, it is not known whose it is. Blocks, a second at most."""
    for _ in range(_TRIES):
        speaker = find(pipe_dir)
        if settled(speaker):
            return speaker
        time.sleep(_PAUSE)
    return _exchanged(speaker)


def _exchanged(speaker: Speaker) -> Speaker:
    why = "its directory, which others may write to, is being changed all the time"
    by = speaker.uid or ANYBODY
    return Speaker(None, why, speaker.stamp, by, (*speaker.sockets, ANYBODY), speaker.steered)


def is_steered(pipe_dir: Path, folder: int) -> bool:
    """``Speaker.steered``, of the directory that is held: also where the name leads to another one by now."""
    try:
        _open_to_others(pipe_dir, _mine(), folder)
    except (OSError, ValueError, NotTrustedError):
        return True
    return False


def _open_to_others(pipe_dir: Path, owners: Collection[int], folder: int | None = None) -> Access:
    """What others may do in the directory itself. Raises NotTrustedError where they have the way to it, or it
    leads to another one than ``folder``."""
    place = pipe_dir
    for _ in range(_LINKS):
        with ExitStack() as held:
            above = walk(place, held, owners)[0][-1]
            if place.is_symlink():
                if not makers_of(place, os.lstat(place), owners) <= {*owners}:
                    raise NotTrustedError(f"{path_text(place)} is a link of somebody else's", "owner")
                place = Path(os.path.join(place.parent, os.readlink(place)))
                continue
            fd, access = hold_directory(place, above, held, owners)
            if folder is not None and not os.path.sameopenfile(fd, folder):
                raise NotTrustedError(f"{path_text(pipe_dir)} led to another directory just now", "steered")
            return access
    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))


def lock_holder(pipe_dir: Path, daemons: Sequence[DaemonProcess] = ()) -> int | None:
    """The PID of whoever holds the lock that a daemon holds from start to end (fact 29), as the kernel says; 0 for one
    that has none here (in another PID namespace), None for nobody. Asking disturbs nobody.

    Everybody may write to the lock of a daemon (fact 42), so everybody may hold it once the daemon has ended, give it a
    second name in a directory of his, and where the directory is open to him too, move it elsewhere or put his own in
    its place. One that is of no user of this directory's, or is held by a user who cannot have made its sockets, or by
    the daemon of another directory, tells nothing; one that has two names only where its holder is seen to be the
    daemon of this one. ``daemons``: those that were looked at just now.
    """
    try:
        fd = os.open(pipe_dir / LOCK, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW)
    except (OSError, ValueError):
        return None
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode) or found.st_uid not in _users(pipe_dir):
            return None
        holder = locked_by(fd)
    except OSError:
        return None
    finally:
        os.close(fd)
    if not holder:
        return holder
    if not (process_uids(holder) or frozenset()) <= _makers(pipe_dir):
        return None
    is_here = is_daemon_of(pipe_dir, holder, daemons)
    return holder if is_here or (is_here is None and found.st_nlink == 1) else None


def locked_by(fd: int) -> int | None:
    """The PID of whoever holds a lock on this file, as the kernel says; 0 for one that has none here, None for nobody.
    Raises OSError."""
    answer = fcntl.fcntl(fd, fcntl.F_GETLK, struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
    kind, _, _, _, holder = struct.unpack(_FLOCK, answer)
    return None if kind == fcntl.F_UNLCK else max(0, holder)


def _users(pipe_dir: Path) -> set[int]:
    """Root, and the owners of the directory and of the privileged socket in it. Raises OSError."""
    users = {0, os.stat(pipe_dir).st_uid}
    with suppress(OSError):
        users.add(os.lstat(pipe_dir / "control_privileged").st_uid)
    return users


def _makers(pipe_dir: Path) -> set[int]:
    """Who can have made what who connects comes to there: root, and its owners; where nothing is, the directory's."""
    found = [uid for name in SOCKETS if (uid := _owner(pipe_dir / name)) is not None]
    return {0, *(found or [uid for uid in [_owner(pipe_dir)] if uid is not None])}


def is_daemon_of(pipe_dir: Path, pid: int, daemons: Sequence[DaemonProcess] = ()) -> bool | None:
    """Whether the process is a control daemon that has this directory, as it sees it itself; None for one that cannot
    be told to be a daemon."""
    known = next((each for each in daemons if each.key.pid == pid and process_key(pid) == each.key), None)
    daemon = known or daemon_process(pid)
    return None if daemon is None or daemon.pipe_id is None else daemon.pipe_id == file_id(pipe_dir)


def not_usurped(pipe_dir: Path, folder: int, pid: int) -> str | None:
    """Why a process of root's or one's own is not seen to be a daemon that others have cut off in this directory, which
    is held; None where it is one. By what the kernel tells at this moment of that very directory, and nobody's word."""
    name, daemon = path_text(pipe_dir), daemon_process(pid)
    if daemon is None or daemon.pipe_id != _id(os.fstat(folder)) or not _has_its_own_name(daemon):
        return (
            f"mpstui cannot prove, by a path that no other user can change, that process {pid} is the daemon of {name}"
        )
    for pause in (_PAUSE, 0):  # seen so twice: one that ends takes its sockets away first
        if is_starting(daemon.key, daemon.start_time, time.time(), _names_of(daemon.protocol)):
            return f"the daemon of {name} was started a moment ago: {STARTING}"
        speaker = _speaker_of(pipe_dir, folder)
        if speaker.steered:
            return f"other users can change the path {name}, or have redirected it"
        speaker = _cut_off(pipe_dir, daemon.protocol, daemon.key, speaker)  # nobody else leads that name elsewhere
        place = Place(pipe_dir, "running", daemon=daemon.key, uid=daemon.uid, speaker=speaker)
        if not place.usurped(os.geteuid()):
            return f"the sockets in {name} are its own now"
        time.sleep(pause)
    return None


def _has_its_own_name(daemon: DaemonProcess) -> bool:
    """Whether nobody else leads the name elsewhere by which the daemon has its directory, as it sees it itself."""
    if daemon.pipe_dir is None or daemon.pipe_id is None:
        return False
    within = _as_it_sees(daemon.key.pid, daemon.pipe_dir)
    with suppress(OSError, ValueError), held(within) as folder:
        return daemon.pipe_id == _id(os.fstat(folder)) and not is_steered(within, folder)
    return False


def _as_it_sees(pid: int, path: Path) -> Path:
    return Path(f"/proc/{pid}/root" + os.fspath(path))


def not_its_daemon(pipe_dir: Path, pid: int) -> str | None:
    """Why a process is not to be ended as the daemon of this directory; None where it is the one.

    The kernel tells who listens at a socket to whoever connects (fact 50), which leaves two lines in the daemon's log:
    to be asked once, before harm. Where that many wait already that nobody can connect, the process must be a control
    daemon that has this directory as it sees it itself.
    """
    peer = _listener(pipe_dir)
    if peer is not None:
        return None if peer == pid else f"process {pid} is not the one that listens in {path_text(pipe_dir)}"
    if is_daemon_of(pipe_dir, pid):
        return None
    return f"mpstui cannot confirm that process {pid} is the daemon of {path_text(pipe_dir)}"


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


def pids_are_ours(pipe_dir: Path, speaker: Speaker, daemons: Sequence[DaemonProcess] = ()) -> bool | None:
    """Whether the PIDs that this daemon names are of this PID namespace, which is that of the process that holds its
    lock; None where that is not known."""
    holder = lock_holder(pipe_dir, daemons)
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


# Finds the log directory that belongs to a pipe directory, and reads what its control.log says of the daemon.


_LOG: Final = "control.log"
_WINDOW: Final = 1 << 16
_VERSION: Final = pattern(rb"Control +(\d+)\] CUDA MPS Control binary version: (\d{1,9})")


def find_log_dir(pipe_dir: Path, daemon: DaemonProcess | None, wanted: Path | None) -> Path | None:
    """The directory whose control.log is this daemon's; None where none is to be found.

    ``wanted`` (an option, or the user's own environment) is taken at its word. Everything else counts only with a
    control.log in it, and a guess only where that file is believed: a log decides what is shown of a client, and
    anybody can make a directory in /tmp. Whether the daemon's own directory is believed is said where it is read.
    """
    if wanted is not None:
        return wanted
    if daemon is not None and daemon.foreground:
        return None
    owners = owners_of(daemon.uid if daemon is not None else None)
    own = None if daemon is None else daemon.log_dir
    guesses = [path for path in _siblings(pipe_dir) if os.path.lexists(path)]
    there = answering((*guesses, *([] if own is None else [own])))
    guesses = [path for path in guesses if path in there]
    if own is not None and own not in there:
        return None
    if daemon is not None and daemon.log_dir is not None:
        if daemon.log_id is None:
            return daemon.log_dir if os.path.lexists(daemon.log_dir / _LOG) else None
        # The daemon may run in a container: its directory is known by what it is, not by what it is called there.
        within = _as_it_sees(daemon.key.pid, daemon.log_dir)
        for path in (daemon.log_dir, *guesses, within):
            if file_id(path) == daemon.log_id and os.path.lexists(path / _LOG):
                return path
        return None
    for path in guesses:
        if is_believed(path / _LOG, owners):
            return path
    if is_believed(DEFAULT_LOG_DIR / _LOG, owners) and (
        pipe_dir in {DEFAULT_PIPE_DIR, DEFAULT_V3_PIPE_DIR}
        or b"CUDA_MPS_PIPE_DIRECTORY=%s\n" % os.fsencode(pipe_dir) in _ends(DEFAULT_LOG_DIR / _LOG, owners)
    ):
        return DEFAULT_LOG_DIR
    return None


def binary_version(log_dir: Path, pid: int | None, owners: Owners) -> str | None:
    """The version, ``13000``, that the daemon wrote to control.log when it started; the last one where ``pid`` is not
    in it (a PID namespace). Only the first and last 64 KiB are looked at: None where it is between them, and where the
    log is none of ``owners``'.
    """
    last = None
    for match in _VERSION.finditer(_ends(log_dir / _LOG, owners)):
        last = match[2].decode("ascii")
        if pid is not None and int(match[1]) == pid:
            return last
    return last


def last_written(log_dir: Path, owners: Owners) -> float | None:
    """When control.log was last written to, in seconds since the epoch."""
    try:
        fd = open_log(log_dir / _LOG, owners)
    except UnreadableLogError:
        return None
    try:
        return os.fstat(fd).st_mtime
    finally:
        os.close(fd)


def _siblings(pipe_dir: Path) -> Iterator[Path]:
    """Where deployments put the logs: of ``/tmp/mps_0`` to ``/tmp/mps_log_0``, of ``…/pipe`` to ``…/log``."""
    name, parent = pipe_dir.name, pipe_dir.parent
    head, mps, tail = name.rpartition("mps")
    names = []
    if "pipe" in name:
        names.append(name.replace("pipe", "log"))
    if mps:
        names += [f"{head}mps_log{tail}", f"{head}mps-log{tail}", f"{head}log{tail}"]
    yield from (parent / other for other in (*names, f"{name}-log", f"{name}_log"))
    # In the pipe directory itself ``log`` is a FIFO of the daemon's, elsewhere it may be a directory.
    yield pipe_dir / "log"
    yield pipe_dir / "logs"
    yield pipe_dir


def _ends(path: Path, owners: Owners) -> bytes:
    """The first and the last 64 KiB; empty where the log is not to be read."""
    try:
        fd = open_log(path, owners)
    except UnreadableLogError:
        return b""
    try:
        head = os.pread(fd, _WINDOW, 0)
        start = max(len(head), os.fstat(fd).st_size - _WINDOW)
        return head + b"\n" + os.pread(fd, _WINDOW, start)
    except OSError:
        return b""
    finally:
        os.close(fd)


# Finds pipe directories, tells what is in each of them, and whose daemon runs there; reads only, sends nothing.


WELL_KNOWN: Final = (
    os.fspath(DEFAULT_PIPE_DIR),
    os.fspath(DEFAULT_V3_PIPE_DIR),
    "/tmp/nvidia-mps_*",  # noqa: S108 - Slurm's prolog example, one for each GPU
    "/tmp/mps_*",  # noqa: S108
    "/run/nvidia/mps/*/pipe",  # the Kubernetes device plugin
    "/run/nvidia/mps/*/*/pipe",  # … whose resources are called nvidia.com/gpu
    "/var/lib/kubelet/plugins/*/mps/*/pipe",  # the Kubernetes DRA driver
)
"""Patterns of pipe directories, from public deployments."""
PATH_LIMIT: Final = 83
"""Bytes; with a longer path the daemon fails to start and leaves no log."""
_PID_FILE: Final = f"{PROGRAM}.pid"
LOCK: Final = "control_lock"
_FILES: Final = ("control", "control_privileged", LOCK, "log", _PID_FILE)
OPENED: Final = (*_FILES, _LOG, "server.log")
"""By a daemon that starts, in its two directories."""
_PLACES_LIMIT: Final = 32
_BY_OTHERS: Final = 3
"""Rank of a name that a daemon of another user's gives."""
_LED_ELSEWHERE: Final = 2
_DAEMONS_LIMIT: Final = 256
"""Running daemons of root's, or one's own, all of which are shown: where each container has one there are many."""
_ENTRIES_LIMIT: Final = 10_000
_AS_ROOT: Final = "run mpstui as root, or where the daemon runs"
_ANOTHER: Final = "give the daemon's CUDA_MPS_PIPE_DIRECTORY"

ANOTHER_MOUNT: Final = "see to that mount, or give another directory"
State = Literal["running", "stale", "absent", "unusable", "closed"]
Trouble = tuple[State, str, str]
"""State, detail, remedy."""


class Place(NamedTuple):
    """A pipe directory and what is known of it without asking anybody."""

    pipe_dir: Path
    state: State
    """``stale``: files of a daemon that is gone (fact 3). ``unusable``: nobody could talk through it.
    ``closed``: you may not look whether one is there."""
    log_dir: Path | None = None
    daemon: ProcessKey | None = None
    uid: int | None = None
    """Who runs the daemon; where there is none, who owns the directory. Whose word it is what it says:
    ``core.trust.whose_word``."""
    start_time: float | None = None
    version: str | None = None
    """The control binary's, as its log says: ``13000``."""
    multiuser: bool | None = None
    protocol: Protocol | None = None
    static_partitioning: bool | None = None
    limits: Mapping[str, str] | None = EMPTY
    """The variables of the daemon's environment that set limits; None where that may not be read."""
    visible: str | None = None
    """Its CUDA_VISIBLE_DEVICES; None where it has none, or where that may not be read."""
    detail: str = ""
    """What is the matter, one sentence for a person; may be empty where it runs."""
    remedy: str = ""
    log_owners: Owners = owners_of(None)
    """Whose logs are believed there."""
    speaker: Speaker = Speaker()
    """Whose word it is what the daemon says."""
    pids_are_ours: bool | None = None
    """Whether the PIDs that it names are of this PID namespace; None where that is not known."""
    pid_there: int | None = None
    """The daemon's PID in its own PID namespace, where that is another one than this."""
    foreground: bool = False
    """The daemon's log is its standard output."""
    starting: bool = False
    """The daemon was started just now, and does not have all of its sockets yet."""
    within: Path | None = None
    """The directory of the running daemon of protocol 3 that has this one for a server or a namespace of its."""
    real: Path | None = None
    """What the directory is called without links, where that is another name."""
    silent: bool = False
    """It is on a mount that does not answer: whoever looks there waits."""

    @property
    def pid(self) -> int | None:
        """Of the daemon that is seen to run."""
        return None if self.daemon is None else self.daemon.pid

    def usurped(self, euid: int | None) -> bool:
        """``core.trust.is_usurped``, where a daemon runs and is seen."""
        return self.state == "running" and self.daemon is not None and is_usurped(self, euid)


def _not_there(pipe_dir: Path, names: Sequence[str]) -> str | None:
    """Which of a daemon's sockets who connects does not find in its place, as a clause. Whoever may write to the
    directory puts its other files there too; which is which their modes tell (fact 42): everybody may write to
    ``control`` alone."""
    modes = []
    for name in names:
        try:
            modes.append(os.stat(pipe_dir / name).st_mode)
        except (OSError, ValueError):
            modes.append(0)
        if not stat.S_ISSOCK(modes[-1]):
            return f"its socket {name} is not there"
    if len(modes) > 1 and modes[1] & ~modes[0] & stat.S_IWOTH:
        return f"its sockets {' and '.join(names)} were exchanged"
    return None


def watched_speaker(place: Place) -> Speaker:
    """Whose word it is, for who looks once and never again: where others may write to the directory, and something
    there was changed in the last minute, it is looked at for a second, so that sockets that somebody exchanges again
    and again are not taken for root's because his were there for a moment. Blocks."""
    speaker = place.speaker
    if speaker.uid is None or not speaker.stamp or time.time() - max(speaker.stamp[2:4]) / 1e9 > _RECENT:
        return speaker
    for _ in range(_TRIES):
        time.sleep(_PAUSE)
        now = find_speaker(place.pipe_dir)
        if now.without_times != speaker.without_times:
            return _exchanged(now)
    return speaker


def named(pipe_dirs: Sequence[Path], env: Mapping[str, str] = os.environ) -> bool:
    """Whether :func:`discover` shows what somebody asked for, and not whatever there is."""
    return bool(pipe_dirs or env.get("CUDA_MPS_PIPE_DIRECTORY"))


def discover(
    pipe_dirs: Sequence[Path] = (),
    log_dirs: Sequence[Path] = (),
    *,
    env: Mapping[str, str] = os.environ,
    well_known: Iterable[str] = WELL_KNOWN,
) -> tuple[Place, ...]:
    """The places to watch: those asked for, else CUDA_MPS_PIPE_DIRECTORY's, else every running daemon's and what the
    well-known places hold, else the default directory with the reason why there is nothing.

    Whatever was asked for comes back, in that order, usable or not. ``log_dirs`` belong to the places in order. Costs
    about 7 µs for each process of the machine; it may block on a directory service (names of users).
    """
    daemons = running_daemons()
    asked = [Path(os.path.abspath(path)) for path in pipe_dirs]
    log_dir = None
    if not asked and (variable := env.get("CUDA_MPS_PIPE_DIRECTORY")):
        asked = [Path(os.path.abspath(variable))]
        log_dir = Path(os.path.abspath(env["CUDA_MPS_LOG_DIRECTORY"])) if env.get("CUDA_MPS_LOG_DIRECTORY") else None
    log_dirs = [Path(os.path.abspath(path)) for path in log_dirs]
    logs = [*log_dirs, *filter(None, (log_dir,))]
    own = [] if asked else [daemon.pipe_dir for daemon in daemons if daemon.pipe_dir is not None]
    silent = {*asked, *logs, *own} - answering((*asked, *logs, *own))
    found = asked or _discovered([daemon for daemon in daemons if daemon.pipe_dir not in silent], well_known)
    if not asked:
        found = list(dict.fromkeys((*found, *_late(daemons, silent))))
    places = []
    for index, pipe_dir in enumerate(found):
        if pipe_dir in silent:
            places.append(_silent(pipe_dir, daemons))
            continue
        wanted = log_dirs[index] if index < len(log_dirs) else log_dir
        wanted = None if wanted in silent else wanted
        # Those that were not asked for are all shown anyway.
        places.append(_place(pipe_dir, wanted, daemons, daemons if asked else ()))
    if not asked:
        # Root's and one's own come first: the first one is what is looked at.
        places.sort(key=lambda place: (_speaks(place) if place.state == "running" else place.uid) not in _mine())
        sure = [place for place in places if place.state == "running" and _speaks(place) in _mine()]
        sure = sure[:_DAEMONS_LIMIT]
        others = [place for place in places if place.state != "absent" and place not in sure]
        # Where others led a name to a daemon's directory while one looked, that daemon has its own place.
        seen = {place.daemon for place in places if not place.speaker.steered and place.daemon is not None}
        others = [place for place in others if not (place.speaker.steered and place.daemon in seen)]
        others = others[: max(_PLACES_LIMIT // 4, _PLACES_LIMIT - len(sure))]
        places = [place for place in places if place in sure or place in others]
        first = next((each for each in log_dirs[:1] if each not in silent), None)
        places = places or [_place(DEFAULT_PIPE_DIR, first, daemons)]
    return tuple(places)


def _silent(pipe_dir: Path, daemons: Sequence[DaemonProcess]) -> Place:
    """A directory at which nobody looks again: it is on a mount that keeps whoever looks waiting, or has a link to
    one."""
    daemon = next((each for each in daemons if each.pipe_dir == pipe_dir), None)
    uid = None if daemon is None else daemon.uid
    return Place(pipe_dir, "unusable", uid=uid, detail=silence(pipe_dir), remedy=ANOTHER_MOUNT, silent=True)


def silence(path: Path) -> str:
    """What is said of a directory that is not ``answering``."""
    return f"{path_text(path)}, or what a link there leads to, is on a mount that does not answer"


def _speaks(place: Place) -> int | None:
    """For whom the daemon speaks; of one that is cut off whose it is, which is no less root's for that."""
    return place.uid if place.usurped(os.geteuid()) else place.speaker.uid


def _late(daemons: Sequence[DaemonProcess], silent: Collection[Path]) -> list[Path]:
    """The directories of daemons of root's, or one's own, that do not answer; another user's are left out."""
    mine = {each.pipe_dir for each in daemons if each.uid in _mine() and each.pipe_dir in silent}
    return sorted((path for path in mine if path is not None and unprintable(path) is None), key=_natural)


def _discovered(daemons: Sequence[DaemonProcess], well_known: Iterable[str]) -> list[Path]:
    """The directories of running daemons, which answer, then the well-known ones; each directory once, however it is
    called, and none whose name cannot be printed.

    Anybody gives a directory of root's a name, by a link or a process: it has the name that a daemon of root's or one's
    own gives it, else that of a well-known place, and one that leads by way of others only where it has no other.
    """
    led = functools.cache(_who_leads)
    known = [path for pattern in well_known for path in _matching(pattern)]
    here = {file_id(path): path for path in reversed(known) if not led(path)}
    rank: dict[Path, int] = dict.fromkeys(known, 1)
    through: list[Path] = []
    paths = listening_dirs() if any(daemon.pipe_dir is None for daemon in daemons) else []
    for daemon in daemons:
        if daemon.pipe_dir is None:
            continue
        ours = daemon.uid in _mine()
        if daemon.pipe_id is not None and file_id(daemon.pipe_dir) != daemon.pipe_id:
            # In a container: its name there is not its name here, and it may have none here but by way of the process.
            within = _as_it_sees(daemon.key.pid, daemon.pipe_dir)
            if daemon.pipe_id in here or file_id(within) != daemon.pipe_id:
                paths.append(here.get(daemon.pipe_id, daemon.pipe_dir))
            else:
                through.append(within)
                # A process may have somebody else's directory in its root: the directory's own name comes first.
                rank[within] = 2 if ours and not _is_others(within) else 4
        elif _can_have_made(daemon.pipe_dir, daemon.uid):
            paths.append(daemon.pipe_dir)
            rank[daemon.pipe_dir] = min(rank.get(daemon.pipe_dir, _BY_OTHERS), 0 if ours else _BY_OTHERS)
    paths, through = ([path for path in each if unprintable(path) is None] for each in (paths, through))  # doctor tells
    names: dict[FileId | Path, list[Path]] = {}
    ordered = list(dict.fromkeys((*sorted(paths, key=_natural), *known, *sorted(through, key=_natural))))
    for path in ordered:
        names.setdefault(file_id(path) or path, []).append(path)
    best = [min(called, key=lambda path: (led(path), rank.get(path, _BY_OTHERS))) for called in names.values()]
    ran = {*paths, *through}
    # A link of anybody's to a directory of root's makes none of it, whatever program of root's listens there.
    order = {path: index for index, path in enumerate(ordered)}
    unique = sorted((path for path in best if path in ran or led(path) < _LED_ELSEWHERE), key=order.__getitem__)
    if len(unique) > _PLACES_LIMIT:
        # What others make in great number does not crowd out the rest, nor do directories without a daemon one that
        # runs.
        sure = [path for path in unique if path in ran and not _is_others(path)][:_DAEMONS_LIMIT]
        rest = [path for path in unique if path not in sure]
        unique = [*sure, *sorted(rest, key=_is_others)[: 2 * _PLACES_LIMIT]]
    return [_real_name(path) if led(path) else path for path in unique]


def _who_leads(path: Path) -> int:
    """Who decides to which directory this name leads: 0 where it is root or who looks, 1 beside them the directory's
    owner, ``_LED_ELSEWHERE`` anybody else, by a link, a process or a directory that is left again."""
    if ".." in path.parts:
        return _LED_ELSEWHERE
    try:
        owner = os.stat(path).st_uid
        with ExitStack() as held:
            makers = walk(path / "-", held, None)[1]
    except (OSError, ValueError):
        return _LED_ELSEWHERE
    if (inside := INSIDE.match(os.fsencode(path))) is not None:
        makers |= process_uids(int(inside[0].split(b"/")[2])) or {ANYBODY}
    makers -= _mine()
    return _LED_ELSEWHERE if makers - {owner} else len(makers)


def _real_name(path: Path) -> Path:
    """What the directory is called without the way by which others lead there, where all of that is root's or one's
    own; its only name where it is not."""
    try:
        real = Path(real_path(path))
        whose = {os.lstat(each).st_uid for each in (real, *real.parents)}
    except (OSError, ValueError):
        return path
    same = file_id(real) == file_id(path) and unprintable(real) is None
    return real if same and whose <= _mine() else path


def start_checked(pipe_dir: Path) -> str:
    """The command that starts a daemon there, as a shell takes it, and looks itself whether others could take that
    daemon's place: for a directory at which nobody has looked, or not since."""
    return f"Start one: mpstui daemon start --pipe-dir {path_word(pipe_dir)}"


def how_to_start(pipe_dir: Path) -> str:
    """The two commands that start a daemon there, as a shell takes them."""
    where = path_word(pipe_dir)
    return f"{start_checked(pipe_dir)}, or CUDA_MPS_PIPE_DIRECTORY={where} {PROGRAM} -d"


def _start(pipe_dir: Path, others: Sequence[DaemonProcess]) -> str:
    """As :func:`how_to_start`, and where one of ``others`` runs; no command where somebody else could take the daemon's
    place, as ``mpstui daemon start`` refuses it there and the control program does not, nor that program's where others
    have left there what it opens."""
    left = None
    with suppress(OSError, ValueError), held(pipe_dir) as folder:
        left = left_by_others(folder)
    if (doubt := _whose_else(pipe_dir)) is not None:
        start = f"start one in a directory of your own: {doubt}, and others could take its place"
    else:
        start = how_to_start(pipe_dir) if left is None else start_checked(pipe_dir)
    return start + _elsewhere(pipe_dir, others)


def left_by_others(folder: int) -> tuple[str, int] | None:
    """What a daemon opens in this directory and another user has made, from when he could write there, and who: a link
    may lead anywhere."""
    for name in OPENED:
        with suppress(FileNotFoundError):
            uid = os.stat(name, dir_fd=folder, follow_symlinks=False).st_uid
            if is_anothers(uid, os.geteuid()):
                return name, uid
    return None


def _whose_else(pipe_dir: Path) -> str | None:
    """Who else decides what is in this directory, or where its name leads; None where nobody does."""
    try:
        judge_own(pipe_dir, _mine())
    except NotTrustedError as error:
        return str(error)
    except (OSError, ValueError):  # not there
        return None
    return None


def _place(
    pipe_dir: Path,
    wanted_log_dir: Path | None,
    daemons: Sequence[DaemonProcess],
    others: Sequence[DaemonProcess] = (),
) -> Place:
    """``others``: of whom it is told where none runs here. A daemon that is cut off is seen so twice: one that ends
    takes its sockets away first."""
    place = _seen(pipe_dir, wanted_log_dir, daemons, others)
    if place.usurped(os.geteuid()):
        time.sleep(_PAUSE)
        living = [each for each in daemons if process_key(each.key.pid) == each.key]
        place = _seen(pipe_dir, wanted_log_dir, living, others)
    with suppress(ValueError):
        if (real := Path(real_path(pipe_dir))) != pipe_dir:
            return place._replace(real=real)
    return place


def _seen(
    pipe_dir: Path, wanted_log_dir: Path | None, daemons: Sequence[DaemonProcess], others: Sequence[DaemonProcess]
) -> Place:
    for _ in range(_LOOKS):
        speaker, folder = _looked_at(pipe_dir)
        found = _found(pipe_dir, wanted_log_dir, daemons, others)
        there = {each.pipe_id for each in daemons if each.key == found.daemon} - {None}
        if folder is None or (there or {file_id(pipe_dir)}) == {folder}:
            break
    else:  # the process is not the daemon of the directory whose word it is
        why, by = "other users keep changing which directory its name leads to", speaker.uid or ANYBODY
        speaker = Speaker(None, why, by=by, steered=True)
    daemon = found.daemon if found.state == "running" else None
    if daemon is not None:
        cut = _cut_off(pipe_dir, found.protocol, daemon, speaker)
        is_cut_off = any(uid not in {0, found.uid} for uid in cut.sockets)
        names = _names_of(found.protocol)
        starts = is_starting(daemon, found.start_time, time.time(), names, unknown=is_cut_off)
        if starts and not _others_listen(pipe_dir, names, daemon):
            theirs = is_anothers(speaker.uid, found.uid) or is_anothers(speaker.by, found.uid)
            nobodys = Speaker(None, STARTING, speaker.stamp, steered=speaker.steered)  # what is there answers nothing
            return found._replace(starting=True, speaker=nobodys if theirs else speaker._replace(sockets=()))
        speaker = cut
        own = next((each for each in daemons if each.key == daemon and each.pipe_dir is not None), None)
        if own is not None and is_usurped(found._replace(speaker=speaker), os.geteuid()):
            speaker = speaker._replace(steered=not _has_its_own_name(own))
        if is_cut_off:
            speaker = speaker._replace(reached=_is_reached(pipe_dir / SOCKETS[0], daemon, found.uid))
    return found._replace(speaker=speaker, pids_are_ours=pids_are_ours(pipe_dir, speaker, daemons))


def is_starting(
    daemon: ProcessKey, started: float | None, now: float, names: Sequence[str] = SOCKETS, *, unknown: bool = True
) -> bool:
    """Whether a daemon of that start time does not listen yet at as many sockets as it has, whatever is in their
    places, such as those of the one before it; ``unknown``: what it is where the kernel does not tell."""
    if started is None or abs(now - started) > STARTS_WITHIN:  # the clock may have been set
        return False
    sockets = sockets_of(daemon.pid)
    own = None if sockets is None or not same_network(daemon.pid) else listening(sockets)
    return unknown if own is None else len(own) < len(names)


def _others_listen(pipe_dir: Path, names: Sequence[str], daemon: ProcessKey) -> bool:
    """Whether another process is seen to listen in the place of a socket of this daemon's."""
    own = sockets_of(daemon.pid)
    return own is not None and any(listening_at(pipe_dir / name) - own for name in names)


def _is_reached(path: Path, daemon: ProcessKey, uid: int | None) -> bool | None:
    """Whether that daemon listens at this file, to which CUDA programs come, or where a link there leads now; None
    where that is not known."""
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return False
    if not stat.S_ISSOCK(found.st_mode) or found.st_uid != uid:
        return False
    if not (sockets := sockets_of(daemon.pid)):
        return None
    own, here = listening(sockets) or {}, file_at(path)
    reached = here in own.values()
    if process_key(daemon.pid) != daemon or not (reached or _is_told_of(here, own) or listening_at(path)):
        return None
    # Everybody may write to this one alone (fact 42): else it is the daemon's other one.
    return None if reached and not found.st_mode & stat.S_IWOTH else reached


def _is_told_of(here: FileAt | None, own: Mapping[int, FileAt]) -> bool:
    """Whether the kernel tells where a process with these listening sockets listens on the device of this file."""
    return here is not None and any(device == here[1] for _, device in own.values())


def _cut_off(pipe_dir: Path, protocol: Protocol | None, daemon: ProcessKey, speaker: Speaker) -> Speaker:
    """The same, of a daemon that runs, where a socket of its is not in its place."""
    speaker = _without_socket(pipe_dir, protocol, speaker)
    if protocol == "legacy" and speaker.stamp and (found := _anothers_socket(pipe_dir, daemon)):
        why, listens = found
        sockets = (*speaker.sockets, ANYBODY)
        return speaker._replace(uid=None, why=why, by=ANYBODY, sockets=sockets, listens=listens)
    return speaker


def _anothers_socket(pipe_dir: Path, daemon: ProcessKey) -> tuple[str, bool] | None:
    """Which socket in the place of a daemon's own is another process's, or nobody's, as a clause, and whether somebody
    listens there: whoever may write to the directory moves the socket of another daemon of root's there, which is
    root's too. The daemon itself listens at both (fact 50). None also where it is not known, as of a process in another
    network namespace, or of one whose descriptors may not be looked at."""
    if not (sockets := sockets_of(daemon.pid)):
        return None
    own = listening(sockets) or {}
    for name in SOCKETS:
        here = file_at(pipe_dir / name)
        if here in own.values():
            continue
        there = listening_at(pipe_dir / name)
        if there & sockets or process_key(daemon.pid) != daemon:
            continue
        if there:
            return f"its socket {name} is another process's", True
        if (pipe_dir / name).is_socket() and _is_told_of(here, own):  # else the kernel's list tells nothing
            return f"nobody listens at its socket {name}", False
    return None


def _names_of(protocol: Protocol | None) -> Sequence[str]:
    """The sockets that a daemon has; of protocol 3 one is known."""
    return SOCKETS[: 2 if protocol == "legacy" else 1]


def _without_socket(pipe_dir: Path, protocol: Protocol | None, speaker: Speaker) -> Speaker:
    """The same, of a daemon that runs, where one of its sockets is not there: CUDA programs come to ``control``, and
    root's commands to the privileged one (facts 59, 60). Each driver from 470 to 580 has both; of protocol 3 one is
    known."""
    if (why := _not_there(pipe_dir, _names_of(protocol))) is None:
        return speaker
    found = speaker._replace(why=why, sockets=(*speaker.sockets, ANYBODY))
    if speaker.uid is not None or speaker.by is not None:
        return found
    try:
        is_open = _open_to_others(pipe_dir, _users(pipe_dir)) == "open"
    except (OSError, NotTrustedError):
        is_open = True
    return found._replace(by=ANYBODY if is_open else None)


def _found(
    pipe_dir: Path,
    wanted_log_dir: Path | None,
    daemons: Sequence[DaemonProcess],
    others: Sequence[DaemonProcess],
) -> Place:
    daemon = _daemon_of(pipe_dir, daemons)
    log_dir = find_log_dir(pipe_dir, daemon, wanted_log_dir)
    if log_dir is not None and unprintable(log_dir) is not None:
        log_dir = None
    # A daemon that runs proves its path short enough; the way to it through the process is longer.
    proved = daemon is not None and daemon.pipe_dir == pipe_dir
    trouble = (None if proved else _too_long(pipe_dir)) or _trouble(pipe_dir, others)
    if daemon is None and (inner := _within(pipe_dir, daemons)) is not None:
        return inner
    if trouble is None and daemon is None:
        return _without_daemon(pipe_dir, log_dir, daemons, _start(pipe_dir, others))
    state, detail, remedy = trouble or ("running", "", "")
    if daemon is None:
        return Place(pipe_dir, state, log_dir, uid=_owner(pipe_dir), detail=detail, remedy=remedy)
    if state == "absent":
        state, detail, remedy = _unreachable(daemon)
    elif trouble is None and daemon.uid is not None and os.geteuid() not in {0, daemon.uid}:
        detail = f"run by {user_name(daemon.uid)}: only {_who(daemon.uid, 'and')} may change its settings"
    return Place(
        pipe_dir=pipe_dir,
        state=state,
        log_dir=log_dir,
        daemon=daemon.key,
        uid=daemon.uid,
        start_time=daemon.start_time,
        version=None if log_dir is None else binary_version(log_dir, daemon.key.pid, owners_of(daemon.uid)),
        multiuser=daemon.multiuser,
        protocol=daemon.protocol,
        static_partitioning=daemon.static_partitioning,
        limits=daemon.limits,
        visible=daemon.visible,
        detail=detail,
        remedy=remedy,
        log_owners=owners_of(daemon.uid),
        pid_there=daemon.pid_there,
        foreground=daemon.foreground,
    )


def _too_long(pipe_dir: Path) -> Trouble | None:
    length = len(os.fsencode(pipe_dir))
    if length <= PATH_LIMIT:
        return None
    text = f"{path_text(pipe_dir)} is too long for a control socket: {length} bytes, and MPS takes about {PATH_LIMIT}"
    return "unusable", text, "use a shorter directory, or a symbolic link to it"


def _trouble(pipe_dir: Path, others: Sequence[DaemonProcess]) -> Trouble | None:
    """Why nobody could talk through this directory, whatever is in it."""
    shown = path_text(pipe_dir)
    if (problem := unprintable(pipe_dir)) is not None:
        return "unusable", problem, _ANOTHER
    try:
        found = os.stat(pipe_dir)
    except PermissionError:
        return "closed", f"{shown} cannot be looked at: a directory above it is closed to you", _AS_ROOT
    except (OSError, ValueError) as error:
        if isinstance(error, FileNotFoundError):
            why = "is a symbolic link to nowhere" if os.path.islink(pipe_dir) else "does not exist"
            return "absent", f"{shown} {why}", _start(pipe_dir, others)
        reason = os.strerror(error.errno or 0) if isinstance(error, OSError) else "not a path"
        return "unusable", f"{shown}: {reason}", _ANOTHER
    if not stat.S_ISDIR(found.st_mode):
        return "unusable", f"{shown} is not a directory", _ANOTHER
    if not os.access(pipe_dir, os.R_OK | os.X_OK):
        text = f"{shown} belongs to {user_name(found.st_uid)} and is closed to you"
        text += f" (mode {stat.S_IMODE(found.st_mode):04o})"
        return "closed", text, f"run mpstui as {_who(found.st_uid, 'or')}"
    return None


def _unreachable(daemon: DaemonProcess) -> Trouble:
    """A daemon whose directory is not to be found under its name."""
    name = f"the daemon's directory {path_text(daemon.pipe_dir)}"
    if daemon.pipe_id is not None:
        text = f"{name} is in a container (process {daemon.key.pid}) and cannot be seen from here"
        return (
            "unusable",
            text,
            "run mpstui in that container, or give the directory's path on the host with --pipe-dir",
        )
    text = f"{name} was removed, or cannot be seen from here; process {daemon.key.pid} runs on"
    remedy = f"if it was removed: end process {daemon.key.pid} once its clients are done, and start a new daemon"
    if daemon.uid is not None and daemon.uid not in _mine():  # anybody may call a process so
        remedy = f"leave it to its owner, {owner(user_name(daemon.uid), daemon.uid)}"
    return "unusable", text, remedy


def _within(pipe_dir: Path, daemons: Sequence[DaemonProcess]) -> Place | None:
    """What there is to say of a directory that a running daemon of protocol 3 has for a server, ``PIPE/SERVER``, or a
    namespace, ``PIPE/SERVER/NAMESPACE``: the daemon's lock is not there, and its sockets are those of the server.

    A process that only calls itself a daemon of a directory above everybody's, as /tmp, keeps nobody else from his own.
    """
    daemons = [daemon for daemon in daemons if daemon.protocol == "v3"]
    try:
        real = Path(real_path(pipe_dir)) if daemons else pipe_dir
    except (OSError, ValueError):
        return None
    if not daemons or lock_holder(pipe_dir) is not None:
        return None
    for above in list(real.parents)[:2]:
        daemon = _daemon_of(above, daemons)
        if daemon is None or daemon.uid not in {0, _owner(above)}:
            continue
        names = real.relative_to(above).parts
        what = f"server {printable(names[0], 80)}"
        if len(names) > 1:
            what = f"namespace {printable(names[1], 80)} of {what}"
        named = path_text(above)
        text = f"{path_text(pipe_dir)} is the directory of {what} of the daemon in {named}"
        remedy = f"name {named}: --pipe-dir {path_word(above)}"
        return Place(pipe_dir, "unusable", uid=_owner(pipe_dir), detail=text, remedy=remedy, within=above)
    return None


def _without_daemon(pipe_dir: Path, log_dir: Path | None, daemons: Sequence[DaemonProcess], start: str) -> Place:
    shown, owner = path_text(pipe_dir), _owner(pipe_dir)
    present = [name for name in _FILES if os.path.lexists(pipe_dir / name)]
    pid = _read_pid_file(pipe_dir)
    doubt = _whose_else(pipe_dir)
    if (elsewhere := _served_from(pipe_dir, daemons, ours=doubt is not None)) is not None:
        name = path_text(elsewhere)
        text, remedy = f"what listens there is the daemon in {name}", f"name {name}: --pipe-dir {path_word(elsewhere)}"
        if doubt is not None:  # it is led there by others, who may lead it elsewhere
            return Place(pipe_dir, "stale", log_dir, uid=owner, detail=f"{text}; {doubt}", remedy=remedy)
        return Place(pipe_dir, "running", log_dir, uid=owner, detail=text, remedy=remedy)
    unseen = _unseen_daemon(pipe_dir, doubted=doubt is not None)
    if unseen is not None:
        text = f"a daemon runs that is hidden, in another container, or not called {PROGRAM}"
        key = unseen if unseen.pid else None
        uid = effective_uid(key.pid) if key is not None else None
        return Place(pipe_dir, "running", log_dir, key, owner if uid is None else uid, detail=text, remedy=_AS_ROOT)
    if doubt is not None:  # who may have put there whatever it is
        what = f"so its files ({', '.join(present)}) prove nothing" if present else "and it has no files of MPS"
        state: State = "stale" if "control" in present or _PID_FILE in present else "absent"
        return Place(pipe_dir, state, log_dir, uid=owner, detail=f"no daemon runs here; {doubt}, {what}", remedy=start)
    if "control" not in present and _PID_FILE not in present:
        return Place(pipe_dir, "absent", log_dir, uid=owner, detail=f"{shown} has no files of MPS", remedy=start)
    text = f"no daemon runs here; {', '.join(present)} left behind"
    started = _modified(pipe_dir / "control") or _modified(pipe_dir / _PID_FILE)
    if started is not None:
        text += f" by one started {_clock(started)}"
    if log_dir is not None and (written := last_written(log_dir, owners_of(None))) is not None:
        text += f", last heard of {_clock(written)}"
    if pid is not None:
        text += _named_in_pid_file(pid, daemons)
    return Place(pipe_dir, "stale", log_dir, uid=owner, detail=text, remedy=f"{start}; it takes the old files over")


def _named_in_pid_file(pid: int, daemons: Sequence[DaemonProcess]) -> str:
    """quit removes that file, a kill does not (fact 3)."""
    daemon = next((each for each in daemons if each.key.pid == pid), None)
    if daemon is None:
        return f"; it was killed or crashed (process {pid} is no control daemon)"
    runs = f"process {pid}, which is named there, is a daemon that runs {_named(daemon)}"
    return f"; {runs}: this may be a copy of its files"


def _served_from(pipe_dir: Path, daemons: Sequence[DaemonProcess], *, ours: bool) -> Path | None:
    """The directory of the daemon that listens at a socket of this one, as by a link, or a mount; ``ours``: only of one
    of root's, or one's own."""
    listens = listening_at(pipe_dir / SOCKETS[0])
    for daemon in daemons if listens else ():
        there = None if ours and daemon.uid not in _mine() else daemon.pipe_dir
        if there is not None and not unprintable(there) and listens & (sockets_of(daemon.key.pid) or frozenset()):
            return there
    return None


def _daemon_of(pipe_dir: Path, daemons: Sequence[DaemonProcess]) -> DaemonProcess | None:
    """The daemon of this directory. Anybody can call a process so and write the pid file, so where several claim the
    directory the one that holds the daemon's lock comes first, then the one in the pid file, then the oldest. One whose
    user is not the owner of the privileged socket, or can have made none there, or that does not hold a lock that is
    held, is none; but what another
    user has put there tells nothing of a process of root's, or of one's own, that has this directory as it sees it.
    """
    here, pid, owner = file_id(pipe_dir), _read_pid_file(pipe_dir), _owner(pipe_dir / "control_privileged")
    holder = lock_holder(pipe_dir, daemons)
    claims = []
    for daemon in daemons:
        if daemon.pipe_dir is None:
            mine = daemon.key.pid == pid and daemon.uid == owner
        elif daemon.pipe_id is not None and here is not None:
            mine = daemon.pipe_id == here
        else:
            mine = daemon.pipe_dir == pipe_dir
        if not mine or holder not in {None, daemon.key.pid}:
            continue
        if owner == daemon.uid or (owner is None and _can_have_made(pipe_dir, daemon.uid)):
            claims.append(daemon)
    claims.sort(key=lambda daemon: daemon.key.pid != pid)
    ours = _mine()
    if any(each.uid in ours for each in claims):
        return claims[0]
    by_lock = bool(holder) and not ours & (process_uids(holder or 0) or ours)
    if by_lock or owner not in {None, *ours}:
        there = [each for each in daemons if each.uid in ours and each.pipe_id == here is not None]
        claims = [each for each in there if by_lock or holder in {None, each.key.pid}] or claims
    return claims[0] if claims else None


def _can_have_made(pipe_dir: Path, uid: int | None) -> bool:
    """Whether a daemon of that user can have made its sockets in the directory, or may be about to: in one that is
    closed to him any process of his only says so."""
    try:
        found = os.stat(pipe_dir)
    except (OSError, ValueError):
        return True
    theirs = bool(found.st_mode & (stat.S_IWOTH | stat.S_IWGRP))
    return uid in {None, 0, found.st_uid} or theirs or any(_owner(pipe_dir / name) == uid for name in SOCKETS)


def _read_pid_file(pipe_dir: Path) -> int | None:
    """The PID in a regular pid file; a hint until the process was looked at, since everybody may write the file."""
    try:
        fd = os.open(pipe_dir / _PID_FILE, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW)
    except (OSError, ValueError):
        return None
    try:
        text = os.read(fd, 32).strip() if stat.S_ISREG(os.fstat(fd).st_mode) else b""
    except OSError:
        return None
    finally:
        os.close(fd)
    return int(text) if text.isdigit() and len(text) <= 9 else None


def _unseen_daemon(pipe_dir: Path, *, doubted: bool) -> ProcessKey | None:
    """A daemon that cannot be told by its command line; PID 0 where it has none here (another PID namespace).

    That somebody has the sockets there open says that it lives. Its lock on control_lock, which on 580 it holds from
    start to end, says which process it is: anybody may hold that. ``doubted``: others may have put there, or led there,
    what is open; then it takes both.
    """
    served = {is_served(pipe_dir / name) for name in SOCKETS}
    if served <= {False}:
        return None
    holder = lock_holder(pipe_dir)
    if holder and not _may_listen(pipe_dir, holder):
        holder = None
    if holder is None and (doubted or True not in served):
        return None
    return (process_key(holder) if holder else None) or ProcessKey(0)


def _may_listen(pipe_dir: Path, pid: int) -> bool:
    """Whether nothing that is seen says that it is other processes that listen there: a lock stays with a program that
    its user starts in his own place, one that runs as root among them."""
    listens, own = {each for name in SOCKETS for each in listening_at(pipe_dir / name)}, sockets_of(pid)
    return not listens or own is None or bool(listens & own)


def _matching(pattern: str) -> list[Path]:
    """Directories that a well-known pattern names; a directory with very many entries is looked through in part."""
    paths = [Path("/")]
    for part in Path(pattern).parts[1:]:
        if "*" in part:
            found = ((path, name) for path in paths for name in _names(path) if fnmatch.fnmatchcase(name, part))
            paths = [path / name for path, name in found if unprintable(name) is None]
        else:
            paths = [path / part for path in paths]
    paths = sorted(paths, key=_is_made_by_others)[:_PLACES_LIMIT]
    there = answering(paths)
    return sorted((path for path in paths if path in there and os.path.isdir(path)), key=_natural)


def _is_made_by_others(path: Path) -> bool:
    """As :func:`_is_others`, of a link itself: where it leads is not looked at."""
    try:
        return os.lstat(path).st_uid not in _mine()
    except (OSError, ValueError):
        return True


def _is_others(path: Path) -> bool:
    """Whether it is neither root's nor one's own, or not there."""
    return _owner(path) not in _mine()


def _mine() -> frozenset[int]:
    return frozenset((0, os.geteuid()))


def _names(directory: Path) -> list[str]:
    try:
        with os.scandir(directory) as entries:
            return [entry.name for entry in itertools.islice(entries, _ENTRIES_LIMIT)]
    except OSError:
        return []


def _natural(path: Path) -> list[tuple[int, str]]:
    """``mps_9`` before ``mps_10``."""
    return [(int(part), "") if part.isdigit() else (0, part) for part in re.split(r"([0-9]{1,18})", os.fspath(path))]


def _owner(path: Path) -> int | None:
    try:
        return os.stat(path).st_uid
    except (OSError, ValueError):
        return None


def _modified(path: Path) -> float | None:
    try:
        return os.lstat(path).st_mtime
    except OSError:
        return None


def _clock(when: float) -> str:
    try:
        return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(when))
    except (OverflowError, ValueError, OSError):
        return "long ago"


def _who(uid: int, word: str) -> str:
    return "root" if uid == 0 else f"{user_name(uid)} {word} root"


def _elsewhere(pipe_dir: Path, daemons: Sequence[DaemonProcess]) -> str:
    others = [_named(daemon) for daemon in daemons if daemon.pipe_dir != pipe_dir]
    return f" (one runs {', another '.join(others[:3])})" if others else ""


def _named(daemon: DaemonProcess) -> str:
    if daemon.pipe_dir is not None and unprintable(daemon.pipe_dir) is not None:
        return f"as process {daemon.key.pid}, in a directory whose name cannot be printed"
    if daemon.pipe_dir is not None:
        return f"in {path_text(daemon.pipe_dir, 160)}"
    return f"as process {daemon.key.pid}, whose directory only its user and root may know"
