"""A daemon's directories, made so that nobody else can put files in their place."""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path

from mpstui.core.requests import ExitStatus
from mpstui.core.text import path_text, unprintable
from mpstui.observe.discovery import LOCK, PATH_LIMIT, left_by_others, locked_by
from mpstui.system.procfs import process_uids, user_name
from mpstui.system.trusted import NotTrustedError, judge_mounts, judge_way

_OTHERS_WRITE = 0o022


class DaemonError(Exception):
    """Why a daemon cannot be started or stopped as asked, in one sentence, and the exit status that says so."""

    def __init__(self, message: str, status: ExitStatus) -> None:
        super().__init__(message)
        self.status = status


def check_length(pipe_dir: Path) -> None:
    """Raises DaemonError where the daemon would fail without a word: it takes 83 bytes."""
    length = len(os.fsencode(pipe_dir))
    if length > PATH_LIMIT:
        raise DaemonError(
            f"{path_text(pipe_dir)} is too long for the daemon's sockets: {length} bytes, and MPS takes {PATH_LIMIT}",
            ExitStatus.USAGE,
        )


def check_way(parent: Path) -> None:
    """Raises DaemonError where somebody else could exchange what is, or will be, below a directory of this way; OSError
    where it leads nowhere. Makes nothing.
    """
    try:
        judge_way(parent, {0, os.geteuid()})
    except NotTrustedError as error:
        raise DaemonError(
            f"{error}: other users could replace a daemon's directory there", ExitStatus.NOT_PERMITTED
        ) from None


def check_name(directory: Path) -> None:
    """Raises DaemonError for what is no directory for a daemon by its name alone."""
    if (problem := unprintable(directory)) is not None:
        raise DaemonError(problem, ExitStatus.USAGE)
    if "\0" in os.fspath(directory) or ".." in directory.parts or not directory.is_absolute():
        raise DaemonError(f"{path_text(directory)} is no absolute path without “..”", ExitStatus.USAGE)
    if not directory.name:
        raise DaemonError("/ is no directory for a daemon alone: choose another", ExitStatus.USAGE)


def check(directory: Path) -> None:
    """Raises DaemonError where :func:`prepare` would, as far as that can be told before anything is made."""
    check_name(directory)
    try:
        check_way(directory.parent)
    except OSError as error:
        raise _refusal(directory, error) from None


def prepare(directory: Path, mode: int) -> tuple[str, ...]:
    """Make ``directory`` with ``mode`` where it is not there, and make sure that it is one's own and nobody else's to
    write to, and that nobody else has left there what a daemon opens. Answers what was changed on one that was there.
    Raises DaemonError.
    """
    check_name(directory)
    name = path_text(directory)
    try:
        _make_parents(directory.parent)
        made = _make(directory, mode)
        # Nothing is done through the name from here on: somebody could exchange what it stands for.
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise _refusal(directory, error) from None
    try:
        _judge_mount(directory, descriptor)
        found = os.fstat(descriptor)
        if found.st_uid != os.geteuid():
            raise DaemonError(
                f"{name} belongs to {user_name(found.st_uid)}, who could take the daemon's place; choose another"
                f" directory, or start the daemon as {user_name(found.st_uid)}",
                ExitStatus.NOT_PERMITTED,
            )
        if made:
            os.fchmod(descriptor, mode)  # whatever the umask is
        elif found.st_mode & _OTHERS_WRITE:
            if found.st_mode & stat.S_ISVTX or _has_files_of_others(descriptor):
                raise DaemonError(
                    f"{name} is shared with others, who would lose it: choose a directory for the daemon alone",
                    ExitStatus.REFUSED_BY_SAFETY_RULE,
                )
            os.fchmod(descriptor, stat.S_IMODE(found.st_mode) & ~_OTHERS_WRITE)
        if (left := left_by_others(descriptor)) is not None:
            raise DaemonError(
                f"{path_text(directory / left[0])} belongs to {user_name(left[1])}, and the daemon would open it, or"
                " the target if it is a link: remove it first",
                ExitStatus.REFUSED_BY_SAFETY_RULE,
            )
        if not made and found.st_mode & _OTHERS_WRITE:
            return (f"{name} was writable for others (mode {stat.S_IMODE(found.st_mode):04o}); it no longer is",)
    except OSError as error:  # a file system in user space tells nobody but its user
        raise _refusal(directory, error) from None
    finally:
        os.close(descriptor)
    return ()


def free_lock(pipe_dir: Path) -> tuple[str, ...]:
    """Takes the lock of a daemon that has ended away where a process of another user holds it: everybody may write to
    it (fact 42), and would keep the next one from starting. In a directory that was prepared, in which none of that
    user's can be; answers what was done."""
    try:
        lock = os.open(pipe_dir / LOCK, os.O_RDWR | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return ()
    try:
        holder = locked_by(lock)
        uids = process_uids(holder) if holder else None
        if not uids or uids & {0, os.geteuid()}:
            return ()
        os.unlink(pipe_dir / LOCK)
    except OSError:
        return ()
    finally:
        os.close(lock)
    whose = user_name(min(uids))
    return (f"{LOCK} of a daemon that is gone was locked by process {holder} of {whose}; a new one is made",)


def _judge_mount(directory: Path, descriptor: int) -> None:
    """Raises DaemonError where somebody else runs the file system of it, and says of what is there what he likes."""
    try:
        judge_mounts(directory, (descriptor,), {0, os.geteuid()})
    except NotTrustedError as error:
        raise DaemonError(f"{error}: choose another directory", ExitStatus.NOT_PERMITTED) from None


def _has_files_of_others(folder: int) -> bool:
    """Whether somebody else keeps something there: ``/var/log`` is a group's to write to on some systems."""
    for name in os.listdir(folder):
        with contextlib.suppress(FileNotFoundError):  # gone since
            if os.stat(name, dir_fd=folder, follow_symlinks=False).st_uid != os.geteuid():
                return True
    return False


def _make(directory: Path, mode: int) -> bool:
    try:
        os.mkdir(directory, mode)
    except FileExistsError:
        return False
    return True


def _make_parents(parent: Path) -> None:
    """Raises DaemonError where somebody else could exchange what is below a directory on the way."""
    check_way(parent)
    for directory in reversed((parent, *parent.parents)):
        _make_if_missing(directory)
    check_way(parent)  # in /tmp somebody else may have made one of them meanwhile


def _make_if_missing(directory: Path) -> None:
    if not os.path.lexists(directory):
        _make(directory, 0o755)


def _refusal(directory: Path, error: OSError) -> DaemonError:
    name = path_text(directory)
    if os.path.islink(directory):
        return DaemonError(
            f"{name} is a symbolic link, which is not followed; give the directory itself", ExitStatus.NOT_PERMITTED
        )
    if isinstance(error, NotADirectoryError | FileExistsError):
        return DaemonError(f"{path_text(error.filename or directory)} is not a directory", ExitStatus.USAGE)
    status = ExitStatus.NOT_PERMITTED if isinstance(error, PermissionError) else ExitStatus.REFUSED_BY_DAEMON
    return DaemonError(f"{name} cannot be made or opened: {error.strerror}", status)
