"""Finds pipe directories, tells what is in each of them, and whose daemon runs there; reads only, sends nothing."""

from __future__ import annotations

import fnmatch
import itertools
import os
import re
import shlex
import stat
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, Literal, NamedTuple

from mpstui.control.commandline import PROGRAM, Protocol
from mpstui.core.model import EMPTY, ProcessKey
from mpstui.core.text import path_text, unprintable
from mpstui.core.trust import Speaker
from mpstui.observe.daemons import (
    DEFAULT_PIPE_DIR,
    DEFAULT_V3_PIPE_DIR,
    DaemonProcess,
    FileId,
    file_id,
    listening_dirs,
    running_daemons,
)
from mpstui.observe.logdir import binary_version, find_log_dir, last_written
from mpstui.observe.logfile import Owners, owners_of
from mpstui.observe.procfs import HiddenProcessError, process_key, read_stat, user_name
from mpstui.observe.speaker import find_speaker, lock_holder, pids_are_ours

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
_FILES: Final = ("control", "control_privileged", "control_lock", "log", _PID_FILE)
_PLACES_LIMIT: Final = 32
_ENTRIES_LIMIT: Final = 10_000
_AS_ROOT: Final = "run mpstui as root, or where the daemon runs"
_ANOTHER: Final = "give the daemon's CUDA_MPS_PIPE_DIRECTORY"

State = Literal["running", "stale", "absent", "unusable"]
Trouble = tuple[State, str, str]
"""State, detail, remedy."""


class Place(NamedTuple):
    """A pipe directory and what is known of it without asking anybody."""

    pipe_dir: Path
    state: State
    """``stale``: files of a daemon that is gone (fact 3). ``unusable``: nobody, or not you, could talk through it."""
    log_dir: Path | None = None
    daemon: ProcessKey | None = None
    uid: int | None = None
    """Who runs the daemon; where there is none, who owns the directory."""
    start_time: float | None = None
    version: str | None = None
    """The control binary's, as its log says: ``13000``."""
    multiuser: bool | None = None
    protocol: Protocol | None = None
    static_partitioning: bool | None = None
    limits: Mapping[str, str] | None = EMPTY
    """The variables of the daemon's environment that set limits; None where that may not be read."""
    detail: str = ""
    """What is the matter, one sentence for a person; may be empty where it runs."""
    remedy: str = ""
    log_owners: Owners = owners_of(None)
    """Whose logs are believed there."""
    speaker: Speaker = Speaker()
    """Whose word it is what the daemon says."""
    pids_are_ours: bool | None = None
    """Whether the PIDs that it names are of this PID namespace; None where that is not known."""


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
    found = asked or _discovered(daemons, well_known)
    places = []
    for index, pipe_dir in enumerate(found):
        wanted = Path(os.path.abspath(log_dirs[index])) if index < len(log_dirs) else log_dir
        # Those that were not asked for are all shown anyway.
        places.append(_place(pipe_dir, wanted, daemons, _elsewhere(pipe_dir, daemons) if asked else ""))
    if not asked:
        places = [place for place in places if place.state != "absent"][:_PLACES_LIMIT]
        places = places or [_place(DEFAULT_PIPE_DIR, log_dirs[0] if log_dirs else None, daemons)]
    return tuple(places)


def _discovered(daemons: Sequence[DaemonProcess], well_known: Iterable[str]) -> list[Path]:
    """The directories of running daemons, then the well-known ones; each directory once, however it is called, and
    none whose name cannot be printed.
    """
    known = [path for pattern in well_known for path in _matching(pattern)]
    here = {file_id(path): path for path in reversed(known)}
    paths = listening_dirs() if any(daemon.pipe_dir is None for daemon in daemons) else []
    for daemon in daemons:
        if daemon.pipe_dir is None:
            continue
        if daemon.pipe_id is not None and file_id(daemon.pipe_dir) != daemon.pipe_id:
            # In a container: its name there is not its name here.
            paths.append(here.get(daemon.pipe_id, daemon.pipe_dir))
        else:
            paths.append(daemon.pipe_dir)
    paths = [path for path in paths if unprintable(path) is None]  # doctor tells of such a daemon
    seen: set[FileId | Path] = set()
    unique: list[Path] = []
    for path in (*sorted(paths, key=_natural), *known):
        identity = file_id(path) or path
        if identity not in seen:
            seen.add(identity)
            unique.append(path)
    # What others make in great number does not crowd out the rest.
    return unique if len(unique) <= _PLACES_LIMIT else sorted(unique, key=_is_others)[: 2 * _PLACES_LIMIT]


def how_to_start(pipe_dir: Path) -> str:
    """The two commands that start a daemon there, as a shell takes them."""
    where = shlex.quote(path_text(pipe_dir))
    return f"start one: mpstui daemon start --pipe-dir {where}, or CUDA_MPS_PIPE_DIRECTORY={where} {PROGRAM} -d"


def _place(pipe_dir: Path, wanted_log_dir: Path | None, daemons: Sequence[DaemonProcess], elsewhere: str = "") -> Place:
    speaker = find_speaker(pipe_dir)
    found = _found(pipe_dir, wanted_log_dir, daemons, elsewhere)
    return found._replace(speaker=speaker, pids_are_ours=pids_are_ours(pipe_dir, speaker))


def _found(pipe_dir: Path, wanted_log_dir: Path | None, daemons: Sequence[DaemonProcess], elsewhere: str) -> Place:
    start = how_to_start(pipe_dir) + elsewhere
    daemon = _daemon_of(pipe_dir, daemons)
    log_dir = find_log_dir(pipe_dir, daemon, wanted_log_dir)
    if log_dir is not None and unprintable(log_dir) is not None:
        log_dir = None
    # A daemon that runs proves its path short enough.
    trouble = (None if daemon else _too_long(pipe_dir)) or _trouble(pipe_dir, start)
    if trouble is None and daemon is None:
        return _without_daemon(pipe_dir, log_dir, start)
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
        detail=detail,
        remedy=remedy,
        log_owners=owners_of(daemon.uid),
    )


def _too_long(pipe_dir: Path) -> Trouble | None:
    length = len(os.fsencode(pipe_dir))
    if length <= PATH_LIMIT:
        return None
    text = f"{path_text(pipe_dir)} is too long for a control socket: {length} bytes, and MPS takes about {PATH_LIMIT}"
    return "unusable", text, "use a shorter directory, or a symbolic link to it"


def _trouble(pipe_dir: Path, start: str) -> Trouble | None:
    """Why nobody could talk through this directory, whatever is in it."""
    shown = path_text(pipe_dir)
    if (problem := unprintable(pipe_dir)) is not None:
        return "unusable", problem, _ANOTHER
    try:
        found = os.stat(pipe_dir)
    except PermissionError:
        return "unusable", f"{shown} cannot be looked at: a directory above it is closed to you", _AS_ROOT
    except (OSError, ValueError) as error:
        if isinstance(error, FileNotFoundError):
            dangling = os.path.islink(pipe_dir)
            return "absent", f"{shown} {'is a symbolic link to nowhere' if dangling else 'does not exist'}", start
        reason = os.strerror(error.errno or 0) if isinstance(error, OSError) else "not a path"
        return "unusable", f"{shown}: {reason}", _ANOTHER
    if not stat.S_ISDIR(found.st_mode):
        return "unusable", f"{shown} is not a directory", _ANOTHER
    if not os.access(pipe_dir, os.R_OK | os.X_OK):
        text = f"{shown} belongs to {user_name(found.st_uid)} and is closed to you"
        text += f" (mode {stat.S_IMODE(found.st_mode):04o})"
        return "unusable", text, f"run mpstui as {_who(found.st_uid, 'or')}"
    return None


def _unreachable(daemon: DaemonProcess) -> Trouble:
    """A daemon whose directory is not to be found under its name."""
    name = f"the daemon's directory {path_text(daemon.pipe_dir)}"
    if daemon.pipe_id is not None:
        text = f"{name} is in a container (process {daemon.key.pid}) and not to be seen from here"
        return (
            "unusable",
            text,
            "run mpstui in that container, or give the directory's path on the host with --pipe-dir",
        )
    text = f"{name} was removed, or is not to be seen from here; process {daemon.key.pid} runs on"
    return (
        "unusable",
        text,
        f"if it was removed: end process {daemon.key.pid} once its clients are done, and start anew",
    )


def _without_daemon(pipe_dir: Path, log_dir: Path | None, start: str) -> Place:
    shown, owner = path_text(pipe_dir), _owner(pipe_dir)
    present = [name for name in _FILES if os.path.lexists(pipe_dir / name)]
    pid = _read_pid_file(pipe_dir)
    unseen = _unseen_daemon(pipe_dir, pid)
    if unseen is not None:
        text = f"a daemon runs that is hidden, in another container, or not called {PROGRAM}"
        return Place(pipe_dir, "running", log_dir, unseen if unseen.pid else None, owner, detail=text, remedy=_AS_ROOT)
    if "control" not in present and _PID_FILE not in present:
        return Place(pipe_dir, "absent", log_dir, uid=owner, detail=f"{shown} holds nothing of MPS", remedy=start)
    text = f"no daemon runs here; {', '.join(present)} left behind"
    started = _modified(pipe_dir / "control") or _modified(pipe_dir / _PID_FILE)
    if started is not None:
        text += f" by one started {_clock(started)}"
    if log_dir is not None and (written := last_written(log_dir, owners_of(None))) is not None:
        text += f", last heard of {_clock(written)}"
    if pid is not None:
        # quit removes the pid file, a kill does not (fact 3).
        text += f"; it was killed or crashed (process {pid} is no control daemon)"
    return Place(pipe_dir, "stale", log_dir, uid=owner, detail=text, remedy=f"{start}; it takes the old files over")


def _daemon_of(pipe_dir: Path, daemons: Sequence[DaemonProcess]) -> DaemonProcess | None:
    """The daemon of this directory. Anybody can call a process so and write the pid file, so where several claim the
    directory the one that holds the daemon's lock comes first, then the one in the pid file, then the oldest. One whose
    user is not the owner of the privileged socket, or that does not hold a lock that is held, is none.
    """
    here, pid, owner = file_id(pipe_dir), _read_pid_file(pipe_dir), _owner(pipe_dir / "control_privileged")
    holder = lock_holder(pipe_dir)
    claims = []
    for daemon in daemons:
        if daemon.pipe_dir is None:
            mine = daemon.key.pid == pid and daemon.uid == owner
        elif daemon.pipe_id is not None and here is not None:
            mine = daemon.pipe_id == here
        else:
            mine = daemon.pipe_dir == pipe_dir
        if mine and (holder is None or holder == daemon.key.pid) and (owner is None or owner == daemon.uid):
            claims.append(daemon)
    claims.sort(key=lambda daemon: daemon.key.pid != pid)
    return claims[0] if claims else None


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


def _unseen_daemon(pipe_dir: Path, pid: int | None) -> ProcessKey | None:
    """A daemon that cannot be told by its command line; PID 0 where it has none here (another PID namespace).

    Its lock on control_lock says that it lives (on 580 it is held from start to end, and free after quit and after a
    kill), and asking for the lock's holder disturbs nobody.
    """
    if pid is not None:
        try:
            read_stat(pid)
        except HiddenProcessError:
            return ProcessKey(pid)
    holder = lock_holder(pipe_dir)
    if holder is None:
        return None
    return (process_key(holder) if holder else None) or ProcessKey(0)


def _matching(pattern: str) -> list[Path]:
    """Directories that a well-known pattern names; a directory with very many entries is looked through in part."""
    paths = [Path("/")]
    for part in Path(pattern).parts[1:]:
        if "*" in part:
            found = ((path, name) for path in paths for name in _names(path) if fnmatch.fnmatchcase(name, part))
            paths = [path / name for path, name in found if unprintable(name) is None]
        else:
            paths = [path / part for path in paths]
    paths = sorted(paths, key=_is_others)[:_PLACES_LIMIT]
    return sorted((path for path in paths if os.path.isdir(path)), key=_natural)


def _is_others(path: Path) -> bool:
    """Whether it is neither root's nor one's own, or not there."""
    return _owner(path) not in {0, os.geteuid()}


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
