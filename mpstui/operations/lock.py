"""One at a time: a daemon's turn, which all mpstui of the node take one after the other, and what was sent in it.

Of two admins who terminate the same client at once, the second one would block the daemon (fact 16), and each of them
keeps an audit log of his own. So there is one file for each daemon, which is locked while a change is checked, sent and
read back, and holds the terminates that were sent. It is in the pipe directory: whoever can send the daemon anything
comes there, from a container too, with a ``/run`` of its own, and by whatever name. It is root's or the daemon's user's
alone to open: nobody else can hold its lock, or say what was sent.

Whoever may write to the pipe directory, as everybody may to one that the daemon has made itself (fact 52), can take the
file away, or put his own in its place, but not make one that counts. What he has put there is left, and keeps nobody
waiting, also once the directory is closed to him. There the turn is taken in a second place too, which is out of his
reach: root's below ``/run``, or the user's own. Root takes that one always: it is known by the socket and not by its
directory, so that whoever comes by sockets that are mounted into another directory has the same turn, where he has the
same ``/run``. Only between different ``/run`` and where somebody exchanges the file, or has put his own there, or by
sockets that are mounted there alone, are there two turns.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import json
import os
import re
import stat
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import ExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

from mpstui.config import state_folder
from mpstui.control.commandline import SOCKETS
from mpstui.core.model import Client
from mpstui.core.text import path_text, path_word, printable
from mpstui.core.trust import Speaker
from mpstui.system.memory import real_path
from mpstui.system.procfs import proc_lines, process_key, process_uids, user_name
from mpstui.system.trusted import NotTrustedError, hold_directory, walk

FILE: Final = "mpstui.lock"
WAIT: Final = 60.0
"""Seconds that a turn is waited for: longer than one takes with a terminate_client that does not answer."""
_LOOK: Final = 0.05
_TRIES: Final = 20
"""Looks at a file that others may exchange, and at one that has just been made, before it is left."""
_HANGS: Final = 10.0
"""Seconds that a file system is waited for, at the least."""
_LONG: Final = 1 << 18
"""Bytes from which on entries of processes that are gone are taken out."""
_READ: Final = 1 << 22
_SHARED: Final = Path("/run/mpstui")
_WHO: Final = ("pid", "start_ticks", "seen_from", "run", "server", "number")
"""Of an entry: of which client it is."""
_OF_OTHERS: Final = frozenset(
    (
        errno.ELOOP,
        errno.EISDIR,
        errno.ENXIO,
        errno.ENODEV,
        errno.EAGAIN,
        errno.ETXTBSY,
        errno.ENOTCONN,
    )
)
"""Of what somebody else has put there: a link, a directory, a socket, a device, a file of his, also one that he has a
lease on, a program that runs, or a file system in user space that does not."""


class NoTurn(Exception):
    """Why there is no turn to be had; one clause. ``busy``: somebody else has it."""

    def __init__(self, text: str, *, busy: bool = False) -> None:
        super().__init__(text)
        self.busy = busy


class _NotYet(NoTurn):
    """Another look may come to it: somebody has it, or makes or exchanges it at this moment."""


class _NotOurs(NoTurn):
    """What is there is none that a turn is taken by."""


class _Closed(_NotOurs):
    """Or it may be one: it cannot be opened, or others have the way to it."""


class TurnPlace(NamedTuple):
    """Where a turn is taken."""

    path: Path
    user: int
    """Whose file it is; root may use it too."""
    beside: bool = False
    """It is not in the pipe directory, and is used where it can be."""
    exposed: bool = False
    """Others may exchange it. What is there and is not ``user``'s is left, and the turn is taken elsewhere."""
    instead: bool = False
    """It is used where the turn was taken in no place yet that nobody else may exchange."""
    folder: tuple[int, int] | None = None
    """Device and inode of the directory of which it is known that it is ``user``'s; None for any."""


class Sent(NamedTuple):
    """A terminate_client of before."""

    who: str
    surely: bool
    """Whether it is known that it was for this very client, and not for another one of its number."""


Run = dict[str, list[int | None]]
"""A daemon from its start to its end, by its sockets, which it makes anew each time: the inode of each, the lower 32
bits of it, and when it was made, in nanoseconds, where nobody else can have set that. They are the same by each name
and in each namespace, as the daemon's PID and start, and what a container says of the machine's boot, are not."""


def find_run(pipe_dir: Path) -> Run:
    """The one that answers here now; empty where none is seen. Everybody may write to ``control`` (fact 42), and so
    set its time: then only the inode counts, which a file system may give again."""
    found: Run = {}
    for name in SOCKETS:
        with suppress(OSError, ValueError):
            at = os.stat(pipe_dir / name)
            if stat.S_ISSOCK(at.st_mode):
                found[name] = [at.st_ino & 0xFFFFFFFF, None if at.st_mode & 0o022 else at.st_mtime_ns]
    return found


def same_run(one: object, other: object) -> bool | None:
    """Whether both are the same; None where that is not known. Root's commands go to the privileged socket (fact 59):
    whose that is comes first."""
    if not isinstance(one, dict) or not isinstance(other, dict):
        return None
    for name in reversed(SOCKETS):
        pair = [each for each in (one.get(name), other.get(name)) if isinstance(each, list) and len(each) == 2]
        if len(pair) < 2:
            continue
        (inode, made), (another, then) = pair
        if inode != another:
            return False
        if None not in (made, then):
            return bool(made == then)
    return None


def run_name(run: Run) -> str:
    """Of a run, for a file or a log; empty where it is not known."""
    sure = [run[name] for name in reversed(SOCKETS) if name in run and run[name][1] is not None]
    return "-".join(f"{number:x}" for number in (sure or [*run.values()] or [[]])[0] if number is not None)


class DaemonTurn:
    """A daemon's turn, as long as it is held. What it reads and writes may be on a slow file system."""

    def __init__(self, pipe_dir: Path, files: Sequence[int], run: Run) -> None:
        self.run = run
        self._pipe_dir = pipe_dir
        self._files = files

    def was_sent(self, client: Client) -> Sent | None:
        """Who sent a terminate_client for this client of the daemon that runs; None where none is known of."""
        found = None
        for entry, surely in self._of(client):
            uid = entry.get("uid")
            who = user_name(uid) if isinstance(uid, int) else "somebody"
            if found is None or surely:
                found = Sent(who, surely)
        return found

    def was_answered(self, client: Client) -> bool:
        """Whether the terminate_client that was sent for this very process was carried out: it was answered 0."""
        found = [entry for entry, surely in self._of(client) if surely]
        return client.key.start_ticks is not None and any(entry.get("answered") is True for entry in found)

    def _of(self, client: Client) -> list[tuple[dict[str, Any], bool]]:
        """What was sent for it and taken, as far as is known, with whether it is surely of this client."""
        found = []
        for file in self._files:
            latest = {json.dumps([entry.get(name) for name in _WHO]): entry for entry in _entries(file)}
            for entry in latest.values():
                means = _means(entry, client, self.run)
                if means is not False and entry.get("sent") is True:
                    found.append((entry, means is True))
        return found

    def note(self, client: Client, *, sent: bool, answered: bool = False) -> str | None:
        """Write down that a terminate_client is about to be sent for it, was answered 0, or was not taken; answers why
        that is not possible."""
        if sent and not answered and same_run(find_run(self._pipe_dir), self.run) is False:
            return "another daemon has been started there meanwhile"
        when = {"time": time.time(), "uid": os.geteuid(), "node": os.uname().nodename}
        entry = {**_identity(client, self.run), **when, "sent": sent}
        if answered:
            entry["answered"] = True
        for index, file in enumerate(self._files):
            try:
                _append(file, entry, self.run)
            except OSError as error:
                for other in self._files[:index] if sent and not answered else ():
                    with suppress(OSError):
                        _append(other, {**entry, "sent": False}, self.run)
                return _why(error, Path(os.readlink(f"/proc/self/fd/{file}")))
        return None


def _append(file: int, entry: dict[str, Any], run: Run) -> None:
    """Raises OSError."""
    line = json.dumps(entry).encode() + b"\n"
    size = os.fstat(file).st_size
    if size > _LONG:
        size = _shorten(file, run)
    if size and os.pread(file, 1, size - 1) != b"\n":
        line = b"\n" + line  # behind a line that somebody could not write to its end
    if os.pwrite(file, line, size) != len(line):
        raise OSError(errno.ENOSPC, "the disk is full")


def _entries(file: int) -> list[dict[str, Any]]:
    found = []
    with suppress(OSError):
        for line in os.pread(file, _READ, 0).splitlines():
            with suppress(ValueError, RecursionError):
                entry = json.loads(line)
                if isinstance(entry, dict):
                    found.append(entry)
    return found


def _is_list(file: int) -> bool:
    """Whether it is a list of what was sent, and nothing else, as a log that has been moved there."""
    entries = _entries(file)
    whole = len(entries) == len(os.pread(file, _READ, 0).splitlines())
    return bool(entries) and whole and all("run" in each for each in entries)


def _shorten(file: int, run: Run) -> int:
    data = b"".join(json.dumps(entry).encode() + b"\n" for entry in _entries(file) if _may_live(entry, run))
    os.pwrite(file, data, 0)
    os.ftruncate(file, len(data))
    return len(data)


@asynccontextmanager
async def turn(pipe_dir: Path, speaker: Speaker, wait: float | None = None) -> AsyncIterator[DaemonTurn]:
    """The daemon's turn, waited for ``wait`` seconds at most (``WAIT``). Raises NoTurn."""
    deadline = time.monotonic() + (WAIT if wait is None else wait)
    run, where = await asyncio.to_thread(_looked_at, pipe_dir, speaker)
    taken: list[tuple[TurnPlace, int]] = []
    try:
        trouble = None
        for place in where:
            if place.instead and any(not each.exposed for each, _ in taken):
                continue
            try:
                taken.append((place, await _take(place, deadline)))
            except NoTurn as error:
                theirs = place.exposed and isinstance(error, (_NotYet, _NotOurs))
                # Others may have put it there before the directory was closed to them.
                theirs = theirs or (isinstance(error, _NotOurs) and not isinstance(error, _Closed))
                if error.busy or not (place.beside or theirs):
                    raise
                trouble = trouble or error
        if not taken:
            raise trouble or NoTurn("this daemon cannot be locked")
        yield DaemonTurn(pipe_dir, [file for _, file in taken], run)
    finally:
        for place, file in taken:
            _give_back(place, file)


def make_ready(pipe_dir: Path, speaker: Speaker) -> None:
    """Makes the file in the pipe directory, where there is none and others may write to that: before somebody notes
    when it was changed last, to see whether they change it. May block."""
    with suppress(NoTurn, OSError):
        for place in places(pipe_dir, speaker, find_run(pipe_dir)):
            if place.exposed:
                os.close(_attempt(place))


def _looked_at(pipe_dir: Path, speaker: Speaker) -> tuple[Run, Sequence[TurnPlace]]:
    run = find_run(pipe_dir)
    try:
        return run, places(pipe_dir, speaker, run)
    except OSError as error:
        raise _no_turn(error, pipe_dir) from None


def places(pipe_dir: Path, speaker: Speaker, run: Run) -> Sequence[TurnPlace]:
    """Where the turn of this run is taken, in this order. Raises OSError."""
    folder = os.stat(pipe_dir)
    me = os.geteuid()
    user = me if speaker.uid is None else speaker.uid
    private = not stat.S_IMODE(folder.st_mode) & 0o022 and folder.st_uid in {0, user}
    exposed = speaker.uid is None or bool(speaker.stamp) or not private
    found = []
    if run or os.path.lexists(pipe_dir / FILE):  # a daemon that can be sent something has a socket
        found.append(TurnPlace(Path(real_path(pipe_dir)) / FILE, user, exposed=exposed, folder=speaker.folder))
    name = f"{run_name(run) or f'{folder.st_dev:x}.{folder.st_ino:x}'}.lock"
    if me == 0:
        found.append(TurnPlace(_SHARED / name, 0, beside=True))
    return [*found, TurnPlace(state_folder() / "turns" / name, me, beside=True, instead=True)]


async def _take(place: TurnPlace, deadline: float) -> int:
    """The file, locked. Raises NoTurn."""
    looks = 0
    while True:
        try:
            return await _in_thread(place, deadline)
        except _NotYet as error:
            looks += 1
            few = not error.busy and (place.exposed or place.beside)
            if looks >= _TRIES if few else time.monotonic() >= deadline:
                raise
        await asyncio.sleep(_LOOK)


async def _in_thread(place: TurnPlace, deadline: float) -> int:
    """``_attempt``, which a file system may keep: then it is left there, and what comes of it later is given back."""
    thread = asyncio.ensure_future(asyncio.to_thread(_attempt, place))
    try:
        await asyncio.wait({thread}, timeout=max(deadline - time.monotonic(), _HANGS))
    except asyncio.CancelledError:
        thread.add_done_callback(_close)
        raise
    if not thread.done():
        thread.add_done_callback(_close)
        raise NoTurn(f"this daemon cannot be locked: {path_text(place.path, 160)}: its file system does not answer")
    return thread.result()


def _close(late: asyncio.Future[int]) -> None:
    if not late.cancelled() and late.exception() is None:
        os.close(late.result())


def _attempt(place: TurnPlace) -> int:
    """The file, locked. Raises NoTurn."""
    with ExitStack() as held:
        try:
            folder = _folder(place, held)
            at = os.fstat(folder)
            if place.folder not in {None, (at.st_dev, at.st_ino)}:  # nothing is made, or given away, in somebody else's
                raise NoTurn("this daemon cannot be locked: its path leads to another directory than a moment ago")
            file = _open_in(folder, place)
        except NotTrustedError as error:
            raise _Closed(f"this daemon cannot be locked safely: {printable(error.args[0])}") from None
        except OSError as error:
            raise _no_turn(error, place.path) from None
        try:
            _check(file, place)
            _lock(file)
            # Whoever may write there may have put another file in its place, which somebody else has locked.
            if not _is_there(folder, place.path.name, file):
                raise _NotYet("its lock file is replaced again and again")
            if os.fstat(file).st_uid != place.user:
                os.unlink(place.path.name, dir_fd=folder)
                raise _NotYet(f"this daemon cannot be locked: {FILE}: another process replaces it again and again")
            if place.beside:
                _clear(place.path)
        except OSError as error:
            os.close(file)
            raise _no_turn(error, place.path) from None
        except BaseException:
            os.close(file)
            raise
        return file


def _no_turn(error: OSError, path: Path) -> NoTurn:
    closed = error.errno in {errno.EACCES, errno.EPERM}
    kind = _Closed if closed else _NotOurs if error.errno in _OF_OTHERS else NoTurn
    return kind(f"this daemon cannot be locked: {_why(error, path)}")


def _why(error: OSError, path: Path) -> str:
    """With what there is to do where nobody else than an admin can."""
    named, where = error.filename or path.name, path_word(path.parent)
    text = f"{path_text(path if named == path.name else named, 160)}: {error.strerror}"
    if error.errno in {errno.ENOSPC, errno.EDQUOT}:
        return f"{text}; make room in {where} (df {where}; df -i {where})"
    if error.errno == errno.EROFS:
        return f"{text}; run mpstui where {where} can be written to, as on the host of a container"
    return text


def _folder(place: TurnPlace, held: ExitStack) -> int:
    """The directory of the file, where nobody else is on the way there; he may write to that of an exposed one.
    Raises NotTrustedError, OSError."""
    owners, folder = {0, place.user}, place.path.parent
    if place.beside and not place.instead:
        with suppress(OSError):
            os.mkdir(folder, 0o700)
    try:
        return walk(place.path, held, owners, 0o700 if place.instead else None)[0][-1]
    except NotTrustedError as error:
        if error.fault != "writable" or not place.exposed:
            raise
    return hold_directory(folder, walk(folder, held, owners)[0][-1], held, owners)[0]


def _open_in(folder: int, place: TurnPlace) -> int:
    """The file of that user's, made where there is none; another link or FIFO of that name is not followed. Raises
    OSError, _NotYet."""
    flags, name = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, place.path.name
    me = os.geteuid()
    try:
        return os.open(name, flags, dir_fd=folder)
    except FileNotFoundError:
        if me not in {0, place.user}:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), name) from None
        if not place.beside:  # nothing is made in a directory that has been put in the place of a daemon's
            os.stat(SOCKETS[0], dir_fd=folder)
    except PermissionError:
        found = os.stat(name, dir_fd=folder, follow_symlinks=False)
        if me == place.user and found.st_uid == 0 and stat.S_ISREG(found.st_mode) and not place.beside:
            if not found.st_size and time.time() - found.st_ctime < WAIT:
                raise _NotYet(f"this daemon cannot be locked: {name}: root is creating it; try again") from None
            whose = f"the file is root's, left from an earlier daemon: rm {path_word(place.path)}"
            raise PermissionError(errno.EACCES, f"{os.strerror(errno.EACCES)}; {whose}", name) from None
        raise
    try:
        file = os.open(name, flags | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=folder)
    except FileExistsError:  # by somebody else, between the two
        raise _NotYet("its lock file is replaced again and again") from None
    except PermissionError:
        if place.beside or me == 0:
            raise
        give = f"as root: chown {place.user} {path_word(place.path.parent)}"
        raise PermissionError(errno.EACCES, f"{os.strerror(errno.EACCES)}; {give}", name) from None
    os.fchmod(file, 0o600)
    if me == 0 and place.user:
        os.fchown(file, place.user, -1)  # its user may come first the next time
    return file


def _check(file: int, place: TurnPlace) -> None:
    """Raises NoTurn where it is no file that only its user, and root, may open."""
    found, me, shown = os.fstat(file), os.geteuid(), path_text(place.path, 160)
    if not stat.S_ISREG(found.st_mode) or found.st_nlink > 1:
        raise _NotOurs(
            f"this daemon cannot be locked safely: {shown} is not a regular file, or has several names (hard links)"
        )
    # Root has not given it away: of a daemon of root's before, or an empty one where an mpstui of root's was ended.
    kept = found.st_uid == 0 == me and place.user
    if found.st_uid != place.user and not kept:
        owner = user_name(found.st_uid)
        raise _NotOurs(f"this daemon cannot be locked safely: {shown} belongs to {owner}")
    # Where others may write to it, or to the directory, somebody else may have it open, or have written it.
    opened = stat.S_IMODE(found.st_mode) != 0o600
    if opened and (found.st_mode & 0o022 or place.exposed or not _is_list(file)):
        raise _NotOurs(f"this daemon cannot be locked safely: {shown} is open to others")
    if kept and not found.st_size:
        os.fchown(file, place.user, -1)
    if opened:
        os.fchmod(file, 0o600)  # whoever may read it may lock it


def _lock(file: int) -> None:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise _NotYet(f"{_holder(file)} is changing this daemon, and has not finished", busy=True) from None
    except OSError as error:
        raise NoTurn(f"this daemon cannot be locked: {error.strerror}") from None


def _is_there(folder: int, name: str, file: int) -> bool:
    try:
        return os.path.samestat(os.stat(name, dir_fd=folder, follow_symlinks=False), os.fstat(file))
    except OSError:
        return False


def _clear(mine: Path) -> None:
    """Takes away what is of no use any more beside a file that is locked: of runs whose terminated clients are gone,
    which is known of those of this node alone (a home may be on several)."""
    for path in mine.parent.glob("*.lock"):
        with suppress(OSError), ExitStack() as held:
            file = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            held.callback(os.close, file)
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # not one's own, nor another's
            there = any(each.get("node") != os.uname().nodename or _may_live(each, {}) for each in _entries(file))
            if not there and os.path.samestat(os.lstat(path), os.fstat(file)):
                os.unlink(path)


def _give_back(place: TurnPlace, file: int) -> None:
    """One beside the pipe directory is there while it is of use: a run has no other one of its name."""
    with suppress(OSError):
        if place.beside and not os.fstat(file).st_size and os.path.samestat(os.lstat(place.path), os.fstat(file)):
            os.unlink(place.path)
    os.close(file)


def _holder(fd: int) -> str:
    """Who has locked it, by the kernel's list of locks."""
    inode = os.fstat(fd).st_ino
    for line in proc_lines("/proc/locks"):
        found = re.search(rb"FLOCK .* ([0-9]+) [0-9a-f]+:[0-9a-f]+:([0-9]+) ", line)
        if found and b"->" not in line and int(found[2]) == inode and int(found[1]) > 0:
            pid = int(found[1])
            users = sorted(process_uids(pid) or ())
            return f"process {pid}" + (f" of {user_name(users[0])}" if users else "")
    return "another mpstui"


def _identity(client: Client, run: Run) -> dict[str, Any]:
    """The client as its daemon has it, which is the same from every namespace, and which run of the daemon it was. The
    client's own start only where its process is seen from here, and from where that is."""
    key = client.key
    return dict(zip(_WHO, (key.pid, key.start_ticks, _namespaces(), run, client.server_pid, client.id), strict=True))


def _means(entry: dict[str, Any], client: Client, run: Run) -> bool | None:
    """Whether the entry is of this client; None where that is not known, as without the daemon's running numbers: a
    terminate too few does no harm."""
    wanted = _identity(client, run)
    told = {name: (entry.get(name), value) for name, value in wanted.items()}
    same = same_run(*told["run"])
    if told["pid"][0] != told["pid"][1] or same is False:
        return False
    if None not in (*told["start_ticks"], *told["seen_from"]) and told["seen_from"][0] == told["seen_from"][1]:
        return bool(told["start_ticks"][0] == told["start_ticks"][1])  # the process itself, by one count of its start
    numbers = [told[name] for name in ("server", "number")]
    if any(None not in pair and pair[0] != pair[1] for pair in numbers):
        return False
    return True if same and not any(None in pair for pair in numbers) else None


def _namespaces() -> list[int] | None:
    """This PID namespace, of which a PID is, and the one of time, from whose beginning a process' start is counted."""
    there = [f"/proc/self/ns/{each}" for each in ("pid", "time")]
    try:
        return [os.stat(each).st_ino for each in there if os.path.exists(each)]  # that of time is there from 5.6 on
    except OSError:
        return None


def _may_live(entry: dict[str, Any], run: Run) -> bool:
    """Whether the process that the entry tells of may be there: of one in another namespace that is not known."""
    if same_run(entry.get("run"), run) is False:
        return False
    pid, ticks = entry.get("pid"), entry.get("start_ticks")
    if not isinstance(pid, int) or ticks is None or entry.get("seen_from") != _namespaces():
        return True
    now = process_key(pid)
    return now is not None and now.start_ticks in {None, ticks}
