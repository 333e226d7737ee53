"""Opens files that nobody but their owner can have written, or have put in the place of another.

A name says nothing about who made what is behind it: directories under /tmp are anybody's to make, a link leads where
its owner wants, and whoever may write to one directory of the way can exchange all that is below it. So the way is
walked one name at a time, each of them held open, and the file is opened in the directory that was looked at.
"""

from __future__ import annotations

import errno
import fcntl
import grp
import os
import pwd
import re
import stat
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from functools import lru_cache
from pathlib import Path
from typing import Final, Literal

from mpstui.core.late import pattern
from mpstui.core.text import error_text, path_text, path_word, printable
from mpstui.core.trust import ANYBODY
from mpstui.system.memory import INSIDE
from mpstui.system.procfs import lines_of, nameless_uid, process_uids, read_proc, user_name

_LOOK: Final = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_SAFE: Final = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
_LINKS: Final = 40
"""Symbolic links on one way, as the kernel counts them."""
_ACL: Final = "system.posix_acl_access"
_SYSTEM_GROUPS: Final = frozenset(("root", "syslog"))
"""``/var/log`` is the logging service's group's to write to on Ubuntu; the system's own logs stand and fall with it."""
SYSTEM_UIDS: Final = 1000
_MOUNT_ID: Final = pattern(rb"^mnt_id:\s*([0-9]+)", re.MULTILINE)
_OF_PROCESS: Final = pattern(rb"/proc/([0-9]+)/")
_FUSE_OWNER: Final = pattern(rb"(?:^|,)user_id=([0-9]+)")

_USERS_OF: Final = 0xB701
"""NS_GET_USERNS: the user namespace that a namespace is of."""

Fault = Literal["owner", "writable", "link", "kind", "hard_links", "steered"]


class NotTrustedError(Exception):
    """Why a file is not used though it could be opened; the text is a sentence without a full stop.

    ``whose`` names who could have written it: a user, ``everybody``, ``the group staff``; None where that is not the
    matter.
    """

    def __init__(self, text: str, fault: Fault, whose: str | None = None) -> None:
        super().__init__(text)
        self.fault = fault
        self.whose = whose


def open_trusted(path: Path, flags: int, owners: Collection[int], *, make: bool = False) -> int:
    """A descriptor of the regular file ``path``, which one of ``owners`` owns and nobody else can write to or replace.

    The last name may not be a link and the file has no second one; links on the way count where their owners do. With
    ``O_CREAT`` in ``flags`` a new file has mode 0600, with ``make`` so has each missing directory 0700. Never waits for
    the other end of a FIFO. Raises NotTrustedError, and OSError.
    """
    with ExitStack() as held:
        way, steered = walk(path, held, owners, 0o700 if make else None)
        fd = _open(path, flags, way[-1])
        try:
            found = _regular(path, fd)
            judge_entry(path, fd, found, owners)
            if found.st_nlink != 1:
                raise NotTrustedError(f"{path_text(path)} has {found.st_nlink} names (hard links)", "hard_links")
            if steered and found.st_uid not in steered:
                raise _led_elsewhere(path, steered, found.st_uid)
            judge_mounts(path, (fd,), owners)
        except BaseException:
            os.close(fd)
            raise
        return fd


def judge_directory(path: Path, owners: Collection[int]) -> None:
    """Raises NotTrustedError where others than ``owners`` own a directory or link of the way to ``path``, itself among
    it, or may change one that is not sticky, or where others run a file system of it; OSError where it is not there, or
    no directory.
    """
    with ExitStack() as held:
        walk(path / "-", held, owners)


def judge_own(path: Path, owners: Collection[int]) -> None:
    """As :func:`judge_directory`, for a directory in which others may not make anything either, as in one that is
    sticky; the way is judged as far as there is one. OSError where it is not there."""
    with ExitStack() as held:
        way, _ = walk(path / "-", held, owners)
        mode = stat.S_IMODE(os.fstat(way[-1]).st_mode)
        if mode & stat.S_ISVTX and mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise NotTrustedError(f"others may write to {path_text(path)} (mode {mode:04o})", "writable", "others")


def judge_open(path: Path, fd: int, owners: Collection[int]) -> None:
    """Raises NotTrustedError, without the path at the beginning and with the remedy, where others than ``owners`` own
    the file that was opened, or a link that has its name, or may write to it or to a folder that has its name, or that
    of a link to it. OSError where a folder is no longer there.

    As ssh judges its configuration, less strict than :func:`open_trusted`: who may change a folder further up still has
    no file of one of ``owners`` to put there, which says what he likes. Where this user namespace has no number for
    everybody, whose folder it is cannot be told, and is no fault.
    """
    found = os.fstat(fd)
    if found.st_uid not in owners:
        whose = user_name(found.st_uid)
        raise NotTrustedError(f"belongs to {whose}", "owner", whose)
    if whose := _writers(fd, found, owners):
        remedy = f"chmod go-w {path_word(path)}"
        raise NotTrustedError(f"can be changed by {whose} ({_mode(found)}): {remedy}", "writable", whose)
    nameless = nameless_uid()
    makers = {*owners} if nameless is None else {*owners, nameless}
    link = os.lstat(path)
    if stat.S_ISLNK(link.st_mode) and link.st_uid not in makers:
        whose = user_name(link.st_uid)
        raise NotTrustedError(f"is a link of {whose}'s", "link", whose)
    for folder in dict.fromkeys((path.absolute().parent, Path(os.path.realpath(path)).parent)):
        above = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            try:
                # As a container's configuration is mounted, with mode 0777.
                if os.fstatvfs(above).f_flag & os.ST_RDONLY:
                    continue
                judge_entry(folder, above, os.fstat(above), makers)
            except NotTrustedError as error:
                remedy = f": chmod go-w {path_word(folder)}" if error.fault == "writable" else ""
                text = f"is in a folder of others: {error}{remedy}"
                raise NotTrustedError(text, "writable", error.whose) from None
        finally:
            os.close(above)


def judge_way(path: Path, owners: Collection[int]) -> None:
    """As :func:`judge_directory`, for what is there of the way to ``path``: before the rest of it is made."""
    there = next((place for place in (path, *path.parents) if os.path.lexists(place)), Path("/"))
    judge_directory(there, owners)


def make_directory(path: Path, owners: Collection[int], mode: int) -> None:
    """Makes what is missing of the way to the directory and itself, with that mode, each in the one that was looked at.
    Raises NotTrustedError where others than ``owners`` have some of the way, and OSError."""
    with ExitStack() as held:
        walk(path / "-", held, owners, mode)


def open_named(path: Path) -> int:
    """A descriptor, to read, of the regular file that somebody asked to be read, whoever owns it.

    That somebody named a directory, and not what its owner may have made lead out of it: a link as last name is not
    followed, and a link on the way or a hard link only to what belongs to its owner. Raises NotTrustedError, OSError.
    """
    own = {0, os.geteuid()}
    with ExitStack() as held:
        way, steered = walk(path, held, None)
        fd = _open(path, os.O_RDONLY, way[-1])
        try:
            found = _regular(path, fd)
            above = os.fstat(way[-1])
            if found.st_nlink != 1 and above.st_uid not in own:
                steered = steered | {above.st_uid}
            if steered - own and found.st_uid not in steered:
                raise _led_elsewhere(path, steered - own, found.st_uid)
        except BaseException:
            os.close(fd)
            raise
        return fd


def open_given(path: Path) -> int:
    """A descriptor, to read, of what somebody names in a command: a file or a device, or a pipe of the user's own, or
    one that this process was started with (``/dev/stdin``, a shell's ``<(…)``), for whose other end it may wait.

    Nobody else's pipe is waited for: a FIFO may have been put in the place of the file. Raises NotTrustedError,
    OSError.
    """
    place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        found = os.fstat(place)
        if stat.S_ISFIFO(found.st_mode) and not _is_given(found):
            link = os.lstat(path)
            own = os.path.samestat(link, found) or (stat.S_ISLNK(link.st_mode) and link.st_uid in {0, os.geteuid()})
            if found.st_uid != os.geteuid() or not own:
                raise NotTrustedError(f"it is a pipe of {user_name(found.st_uid)}, and is not waited for", "kind")
        return os.open(f"/proc/self/fd/{place}", os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY)
    finally:
        os.close(place)


def _is_given(pipe: os.stat_result) -> bool:
    """Whether this process has the pipe open; what is only looked at is not."""
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            held = int(name)
            if os.path.samestat(os.fstat(held), pipe) and not fcntl.fcntl(held, fcntl.F_GETFL) & os.O_PATH:
                return True
    return False


def _open(path: Path, flags: int, folder: int) -> int:
    try:
        return os.open(path.name, flags | _SAFE, 0o600, dir_fd=folder)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise NotTrustedError(f"{path_text(path)} is a symbolic link, which is not followed", "link") from None
        if error.errno in {errno.ENXIO, errno.EISDIR}:  # a socket; a FIFO to write to that nobody reads; a directory
            raise NotTrustedError(f"{path_text(path)} is not a regular file", "kind") from None
        raise


def _regular(path: Path, fd: int) -> os.stat_result:
    found = os.fstat(fd)
    if not stat.S_ISREG(found.st_mode):
        raise NotTrustedError(f"{path_text(path)} is not a regular file", "kind")
    return found


def _led_elsewhere(path: Path, steered: Collection[int], owner: int) -> NotTrustedError:
    whose = user_name(min(steered))
    return NotTrustedError(
        f"{path_text(path)} belongs to {user_name(owner)}, but {whose} owns a directory or link in its path",
        "steered",
        whose,
    )


def walk(
    path: Path,
    held: ExitStack,
    owners: Collection[int] | None,
    make: int | None = None,
    passed: list[tuple[Path, int]] | None = None,
) -> tuple[list[int], frozenset[int]]:
    """The directories down to the one that holds ``path``, open until ``held`` ends, and who decides where the way
    leads: the owners that are not root, of all of it; without ``owners``, when it is walked as it is, of its links.
    ``make``: the mode of a missing directory, which is made then, where nobody else runs a file system so far.
    ``passed`` is given each directory and link that the way goes through, also those that a link leads out of again.

    Whoever runs a file system in user space has made what is on it, whatever it says: with ``owners`` nobody else may
    run one that the way goes through. What a process has for its root, its folder or a file open its user decides,
    whoever owns the link in /proc. Raises NotTrustedError, and OSError."""
    raw = os.fsencode(path)
    inside = INSIDE.match(raw)
    base = inside[0] if inside else b"/"
    rest = [part for part in raw[len(base) :].split(b"/") if part not in {b"", b"."}][:-1]
    if not path.is_absolute() or path.name in {"", ".."} or b"\0" in raw:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), path_text(path))
    top = os.open(base, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    held.callback(os.close, top)
    way, names, links, steered = [top], [base], list[int](), set[int]()
    seen = [] if passed is None else passed
    seen.append((Path(os.fsdecode(base)), top))
    if owners is not None:
        judge_entry(Path(os.fsdecode(base)), top, os.fstat(top), owners)
        if inside:  # who runs the process says what is mounted there
            steered |= _judge_process(inside[0], owners)
    while rest:
        name = rest.pop(0)
        if name == b"..":
            if len(way) > 1:
                way.pop()
                names.pop()
            continue
        place = Path(os.fsdecode(b"/".join((*names, name)).replace(b"//", b"/")))
        fd = _entry(path, name, way[-1], seen, owners, make)
        held.callback(os.close, fd)
        seen.append((place, fd))
        found = os.fstat(fd)
        link = stat.S_ISLNK(found.st_mode)
        if not link and not stat.S_ISDIR(found.st_mode):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path_text(place))
        steered |= _judged(place, fd, found, owners)
        if not link:
            way.append(fd)
            names.append(name)
            continue
        links.append(fd)
        if len(links) > _LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path_text(path))
        target = os.readlink(b"", dir_fd=fd)
        if target.startswith(b"/"):
            way, names = way[:1], names[:1]
        rest = [part for part in target.split(b"/") if part not in {b"", b"."}] + rest
    return way, frozenset(steered | _makers_by_mount(path, [fd for _, fd in seen], links, owners))


def _makers_by_mount(path: Path, way: Sequence[int], links: Sequence[int], owners: Collection[int] | None) -> set[int]:
    """Who has a say in where the way leads since a file system of a link on it is his; with ``owners`` nobody else may
    run one of the whole way."""
    if owners is None:
        return {uid for uid, _ in _runners(path, links)} - {0}
    judge_mounts(path, way, owners)
    return set()


def _judged(place: Path, fd: int, found: os.stat_result, owners: Collection[int] | None) -> set[int]:
    """Who has a say in where the way leads from there; without ``owners`` by links alone."""
    if owners is not None:
        judge_entry(place, fd, found, owners)
    return makers_of(place, found, owners) if owners is not None or stat.S_ISLNK(found.st_mode) else set()


def _judge_process(root: bytes, owners: Collection[int]) -> set[int]:
    """The users who say what is mounted at this root of a process. Raises NotTrustedError where others than ``owners``
    run it."""
    uids = process_uids(int(root.split(b"/")[2])) or {ANYBODY}
    if others := sorted({*uids} - {*owners}):
        whose = user_name(others[0])
        raise NotTrustedError(f"{path_text(Path(os.fsdecode(root)))} is of a process of {whose}", "steered", whose)
    return set(owners) - {0}


def makers_of(place: Path, found: os.stat_result, owners: Collection[int] | None) -> set[int]:
    """The user who has made this link or directory, if not root; of another process' link in /proc it may be anybody.
    Raises NotTrustedError for such a one, where there are ``owners``."""
    raw = os.fsencode(place)
    inside = INSIDE.match(raw)
    below = raw[len(inside[0]) :] if inside is not None and inside[0] != raw else raw
    of_process = _OF_PROCESS.match(below)
    if stat.S_ISLNK(found.st_mode) and of_process is not None and int(of_process[1]) != os.getpid():
        if owners is not None:
            raise NotTrustedError(
                f"{path_text(place)} is a link in /proc, and another process controls its target", "steered", "others"
            )
        return {ANYBODY}
    return {found.st_uid} - {0}


def _entry(
    path: Path,
    name: bytes,
    above: int,
    seen: Iterable[tuple[Path, int]],
    owners: Collection[int] | None,
    make: int | None,
) -> int:
    """A descriptor of what has that name in the directory ``above``, a link itself; with ``make`` a directory that is
    made where there is nothing, and where nobody but ``owners`` runs a file system that was ``seen`` on the way."""
    try:
        return os.open(name, _LOOK, dir_fd=above)
    except FileNotFoundError:
        if make is None or owners is None:
            raise
    judge_mounts(path, (fd for _, fd in seen), owners)
    with suppress(FileExistsError):  # made meanwhile: by whom is looked at next
        os.mkdir(name, make, dir_fd=above)
    return os.open(name, _LOOK, dir_fd=above)


def judge_entry(place: Path, fd: int, found: os.stat_result, owners: Collection[int]) -> None:
    """Raises NotTrustedError where somebody else owns it, or may write to it. What is in a directory that everybody may
    write to is its owner's alone to rename where the directory is sticky, and is looked at next."""
    if found.st_uid not in owners:
        whose = user_name(found.st_uid)
        raise NotTrustedError(f"{path_text(place)} belongs to {whose}", "owner", whose)
    if whose := _writers(fd, found, owners):
        raise NotTrustedError(f"{path_text(place)} can be changed by {whose} ({_mode(found)})", "writable", whose)


def _writers(fd: int, found: os.stat_result, owners: Collection[int]) -> str:
    """Who else may write to it, or take what is in it away, or nothing."""
    return "" if _is_sticky(found) else _adders(fd, found, owners)


def _is_sticky(found: os.stat_result) -> bool:
    return stat.S_ISDIR(found.st_mode) and bool(found.st_mode & stat.S_ISVTX)


def _adders(fd: int, found: os.stat_result, owners: Collection[int]) -> str:
    """Who else may write to it, or put something in it, also where it is sticky; or nothing."""
    if stat.S_ISLNK(found.st_mode):
        return ""
    if found.st_mode & stat.S_IWOTH:
        return "everybody"
    if found.st_mode & stat.S_IWGRP:
        if has_acl(fd):
            return "others, by an access control list"
        if _is_shared(found.st_gid, frozenset(owners), int(time.monotonic() // 60)):
            return f"the group {_group_name(found.st_gid)}"
    return ""


def teller_of(fd: int) -> int:
    """Whose word it is what an open file says: its owner's, or ANYBODY's where others may write to it."""
    found = os.fstat(fd)
    return ANYBODY if _writers(fd, found, {0, found.st_uid}) else found.st_uid


def _mode(found: os.stat_result) -> str:
    return f"mode {stat.S_IMODE(found.st_mode):04o}"


def has_acl(fd: int) -> bool:
    """Whether the group's bits are the mask of an access control list, which may name anybody."""
    try:
        os.getxattr(f"/proc/self/fd/{fd}", _ACL)
    except OSError as error:
        return error.errno not in {errno.ENODATA, errno.ENOTSUP, errno.EOPNOTSUPP}
    return True


@lru_cache(maxsize=64)
def _is_shared(gid: int, owners: frozenset[int], _minute: int) -> bool:
    """Whether a group has, or may have, other members than ``owners``: a user's own group has none."""
    try:
        group = grp.getgrgid(gid)
        members = {user.pw_uid for user in pwd.getpwall() if user.pw_gid == gid}
        members |= {pwd.getpwnam(name).pw_uid for name in group.gr_mem}
    except KeyError:
        return True
    if group.gr_name in _SYSTEM_GROUPS:
        return any(uid >= SYSTEM_UIDS and uid not in owners for uid in members)
    if not members:  # the directory service lists nobody
        return not any(_is_users_own(group, uid) for uid in owners)
    return not members <= owners


def _is_users_own(group: grp.struct_group, uid: int) -> bool:
    """Whether it is the group that a user has for himself alone, which has his name."""
    try:
        user = pwd.getpwuid(uid)
    except KeyError:
        return False
    return (user.pw_gid, user.pw_name) == (group.gr_gid, group.gr_name)


def _group_name(gid: int) -> str:
    try:
        return printable(grp.getgrgid(gid).gr_name, 64)
    except (KeyError, OverflowError):
        return str(gid)


def judge_mounts(path: Path, way: Iterable[int], owners: Collection[int]) -> None:
    """Raises NotTrustedError on a file system in user space that somebody else runs: it may say what it likes of who
    owns its files, and where its links lead. ``way``: what the way goes through, the links too."""
    for uid, said in _runners(path, way):
        if uid not in owners:
            known = uid != ANYBODY
            whose = user_name(uid) if known else "others"
            text = f"{path_text(path)} is on a file system {said or f'that {whose} runs'}"
            raise NotTrustedError(text, "owner" if known else "steered", whose)


def _runners(path: Path, way: Iterable[int]) -> Iterator[tuple[int, str]]:
    """The users who run the file systems in user space that are on the way; where that is not known, ANYBODY with what
    is said of it.

    It may be taken away after its answers and before the list of what is mounted is read, and is in none then; another
    process' root has a list of its own, and whoever runs that process is judged.
    """
    top = os.stat("/").st_dev
    devices = {found.st_dev: fd for fd in way if (found := os.fstat(fd)).st_dev != top}
    if not devices:
        return  # on the root's own there is nobody else's
    left = {b"%d:%d" % (os.major(device), os.minor(device)): fd for device, fd in devices.items()}
    lines = lines_of(read_proc("/proc/self/mountinfo") or b"")
    for line in lines:
        if left.pop(line.split(b" ", 3)[2], None) is None:
            continue
        kind, *_, options = line.partition(b" - ")[2].split(b" ")
        if kind.startswith(b"fuse") and (user := _FUSE_OWNER.search(options)):
            yield _runner(int(user[1]))
    if not left or INSIDE.match(os.fsencode(path)):
        return
    numbers = {line.split(b" ", 1)[0] for line in lines}
    for fd in left.values():  # as of a volume of btrfs, whose number no line has
        number = _MOUNT_ID.search(read_proc(f"/proc/self/fdinfo/{fd}", 1 << 12) or b"")
        if number is None or number[1] not in numbers:
            yield ANYBODY, "that is no longer mounted"


def _runner(number: int) -> tuple[int, str]:
    """The user of that number in the list of what is mounted, which has it as the user namespace has that mounted it.

    That is this process's, one above it, or one below where this process has come into a container's mounts. Only root
    of one above is root here too: every other number is somebody else's there, and one below is its own root.
    """
    if (nameless_uid() is None or number == 0) and not _mounts_are_below():
        return number, ""
    return ANYBODY, f"that UID {number} runs, which is not known to be a UID of this user namespace"


def _mounts_are_below() -> bool:
    """Whether the mounts that this process sees are those of a user namespace below its own."""
    with suppress(OSError):
        mounts = os.open("/proc/self/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
        try:
            users = fcntl.ioctl(mounts, _USERS_OF)  # EPERM: of one above, which is not told
        finally:
            os.close(mounts)
        try:
            return os.fstat(users).st_ino != os.stat("/proc/self/ns/user").st_ino
        finally:
            os.close(users)
    return False


Access = Literal["closed", "sticky", "open"]
"""What others may do in a directory: nothing, put there what is not there, or exchange all that is."""


def hold_directory(place: Path, above: int, held: ExitStack, owners: Collection[int]) -> tuple[int, Access]:
    """The directory itself, which no link may be, in the one that is held as ``above``, until ``held`` ends; what
    others may do in it. Raises NotTrustedError where others own it or run its file system, and OSError."""
    fd = os.open(place.name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=above)
    held.callback(os.close, fd)
    judge_mounts(place, (fd,), owners)
    found = os.fstat(fd)
    try:
        judge_entry(place, fd, found, owners)
    except NotTrustedError as error:
        if error.fault != "writable":
            raise
        return fd, "open"
    return fd, "sticky" if _adders(fd, found, owners) else "closed"


# The one place where logs are opened: whose they are decides whether they are read.
#
# What the logs say leads to advice, and to processes that are ended. So a log is believed where root or the daemon's
# own user has written it and nobody else could have. The directory of a daemon's logs may be gone (a reaper of
# /tmp) and made again by anybody.


Owners = frozenset[int]
REMEDY: Final = (
    "Another user can change these logs. Set CUDA_MPS_LOG_DIRECTORY to a directory that only the daemon's user can"
    " change. To read these logs without trusting them: mpstui events --log-dir"
)
"""For logs that are not believed."""


class UnreadableLogError(Exception):
    """A log that is not there, may not be read or is not believed; the text is one line for a person."""

    def __init__(self, path: Path, error: OSError | NotTrustedError | str) -> None:
        self.not_permitted = isinstance(error, PermissionError)
        self.not_believed = isinstance(error, NotTrustedError)
        self.missing = isinstance(error, FileNotFoundError)
        if isinstance(error, NotTrustedError) and error.fault in {"owner", "steered"}:
            self.reason = f"these logs belong to {error.whose}; not read ({error})"
        elif isinstance(error, NotTrustedError):
            self.reason = f"not read: {error}"
        else:
            self.reason = error if isinstance(error, str) else error_text(error)
        # What is not trusted is named there: the log, or what is above it.
        super().__init__(self.reason if self.not_believed else f"{path_text(path)}: {self.reason}")


class UnreadableNodeError(Exception):
    """No log could be read; ``errors`` says why, and is empty where no log directory is known."""

    def __init__(self, errors: Sequence[UnreadableLogError]) -> None:
        super().__init__("; ".join(map(str, errors)) or "no log directory is known")
        self.errors = tuple(errors)


def owners_of(daemon_uid: int | None) -> Owners:
    """Whose logs are believed: root's and the daemon's user's; root's and one's own where no daemon is known to run."""
    return frozenset((0, os.geteuid() if daemon_uid is None else daemon_uid))


def open_log(path: Path, owners: Owners | None) -> int:
    """A descriptor, to read. ``owners``: see :func:`owners_of`; None where somebody named a directory to have its logs
    read, whosever they are, and nothing is done by what they say. Raises UnreadableLogError."""
    try:
        return open_named(path) if owners is None else open_trusted(path, os.O_RDONLY, owners)
    except (OSError, NotTrustedError) as error:
        raise UnreadableLogError(path, error) from None


def is_believed(path: Path, owners: Owners) -> bool:
    """Whether the log is there to be read and believed."""
    try:
        os.close(open_log(path, owners))
    except UnreadableLogError:
        return False
    return True
