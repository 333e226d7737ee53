"""Reads /proc: a process's facts, where it belongs, a handle for ending it safely, and word of its end; what may not be
read is None."""

from __future__ import annotations

import errno
import fcntl
import functools
import itertools
import os
import pwd
import re
import select
import signal
import stat
import struct
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import fields, replace
from operator import attrgetter
from pathlib import Path
from types import TracebackType
from typing import Final, NamedTuple

from mpstui.core.late import dataclass, pattern
from mpstui.core.model import ProcessKey
from mpstui.core.text import owner, printable
from mpstui.core.where import Cgroup, PodName, Where, cgroup_path, container_of, find_where, parse_cgroups
from mpstui.system.memory import read_each, read_file, read_memory

# Reads /proc: one process's stat, arguments, environment, user; what may not be read is None.
#
# /proc is read directly: one read of ``stat`` gives the identity, the state, the terminal and the CPU time of one
# moment, and its start ticks do not move when the clock is set.


TICKS_PER_SECOND: Final = os.sysconf("SC_CLK_TCK")
_READ_LIMIT: Final = 1 << 20
_VALUE_LIMIT: Final = 4096
_IN_MEMORY: Final = ("/cmdline", "/environ", "/maps", "/exe")
"""Files of /proc/PID that lie in its memory, or on any file system: whoever has them decides when they are read."""
_NS_GET_OWNER_UID: Final = 0xB704
"""ioctl_nsfs(2)."""
_CLOCK_STEP: Final = 1.0
_boot = 0.0


class Stat(NamedTuple):
    """One reading of /proc/PID/stat."""

    pid: int
    comm: bytes
    state: str
    tty: int
    cpu_ticks: int
    threads: int
    start_ticks: int
    stack: int
    """Where its stack starts, changed by exec; 0 without permission."""

    @property
    def key(self) -> ProcessKey:
        return ProcessKey(self.pid, self.start_ticks)

    @property
    def gone(self) -> bool:
        """A zombie holds no GPU, except one whose other threads still run, e.g. inside the driver."""
        return self.state in "ZXx" and self.threads <= 1


class HiddenProcessError(Exception):
    """The process exists, but /proc does not show it (mounted with hidepid)."""


def boot_id() -> str:
    """The kernel's id of this boot: start ticks identify a process within one boot only. Empty where unreadable."""
    return (read_proc("/proc/sys/kernel/random/boot_id", 64) or b"").decode("ascii", "replace").strip()


def read_stat(pid: int) -> Stat | None:
    """The process's ``stat``, or None where there is no such process. Raises HiddenProcessError."""
    raw = _raw_stat(pid)
    return None if raw is None else _stat(pid, raw)


def _raw_stat(pid: int) -> bytes | None:
    try:
        fd = os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
        try:
            return os.read(fd, 4096)
        finally:
            os.close(fd)
    except PermissionError:
        raise HiddenProcessError from None
    except OSError:
        if _exists(pid):
            raise HiddenProcessError from None
        return None


def _stat(pid: int, raw: bytes) -> Stat | None:
    # The name may hold spaces and parentheses: the fields start behind the last one.
    end = raw.rfind(b")")
    fields = raw[end + 2 :].split()
    if len(fields) < 26:
        return None
    return Stat(
        pid=pid,
        comm=raw[raw.find(b"(") + 1 : end],
        state=fields[0].decode("ascii", "replace"),
        tty=int(fields[4]),
        cpu_ticks=int(fields[11]) + int(fields[12]),
        threads=int(fields[17]),
        start_ticks=int(fields[19]),
        stack=int(fields[25]),
    )


def _exists(pid: int) -> bool:
    """Whether a process that /proc does not show is there all the same. One's own and root's view are complete."""
    if pid <= 0:
        return False
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except (OSError, OverflowError):
        return False
    return False


def process_key(pid: int) -> ProcessKey | None:
    """The identity of the living process that has this PID now."""
    try:
        stat = read_stat(pid)
    except HiddenProcessError:
        return ProcessKey(pid)
    return None if stat is None or stat.gone else stat.key


@functools.cache
def nameless_uid() -> int | None:
    """The number that stands for every user who has none in this process's user namespace; None where each has one."""
    mapped = read_proc("/proc/self/uid_map")
    if mapped is None or mapped.split() == [b"0", b"0", b"4294967295"]:  # empty: nobody has one
        return None
    shown = (read_proc("/proc/sys/kernel/overflowuid") or b"").strip()
    return int(shown) if shown.isdigit() else 65534


_NAMES: Final[dict[int, str]] = {}
_MOST_NAMES: Final = 1024


def user_name(uid: int) -> str:
    """A user as texts name one: :func:`login_name`, or ``UID 2001`` where there is no name."""
    return owner(login_name(uid), uid)


def login_name(uid: int) -> str:
    """The login name, or the number as text. May ask a directory service the first time, so it may block."""
    if uid == nameless_uid():
        return "unmapped user"
    if (known := _NAMES.get(uid)) is not None:
        return known
    try:
        name = printable(pwd.getpwuid(uid).pw_name, 64)
    except (KeyError, OverflowError):
        name = str(uid)
    if len(_NAMES) >= _MOST_NAMES:
        _NAMES.clear()
    _NAMES[uid] = name
    return name


def named_users() -> dict[int, str]:
    """Users by number, as :func:`login_name` has told them so far: whoever is named in a text of this program's."""
    return dict(_NAMES)


def environment_of(key: ProcessKey) -> dict[str, str] | None:
    """As :func:`read_environment`, of this process and no later one of its PID; None too where it has ended.

    Reads /proc: a few tens of microseconds.
    """
    found = read_environment(key.pid)
    return found if process_key(key.pid) == key else None


def cpus_of(pid: int) -> frozenset[int] | None:
    """The CPUs that a process may use, where that is not every one; None where it is, or is not known."""
    try:
        cpus = frozenset(os.sched_getaffinity(pid))
    except OSError:
        return None
    return cpus if 0 < len(cpus) < (os.cpu_count() or 1) else None


def read_environment(pid: int) -> dict[str, str] | None:
    """The variables of CUDA and MPS that the process was started with, misspelt ones too, decoded as file names are (so
    not printable); None where not permitted."""
    return _cuda_variables(read_proc(f"/proc/{pid}/environ"))


_LIKE_MPS: Final = pattern(rb"(?i:(?:nv(?:idia)?_?)?(?:cuda_?)?mps_|cuda)[A-Za-z0-9_]*=")
"""Names that somebody may have meant for one of MPS'."""


def _cuda_variables(raw: bytes | None) -> dict[str, str] | None:
    if raw is None:
        return None
    found: dict[str, str] = {}
    for entry in raw.split(b"\0"):
        if entry.startswith(b"CUDA_") or _LIKE_MPS.match(entry):
            name, _, value = entry.partition(b"=")
            # Like getenv: of a name given twice the first one counts.
            found.setdefault(os.fsdecode(name[:_VALUE_LIMIT]), os.fsdecode(value[:_VALUE_LIMIT]))
    return found


def read_arguments(pid: int) -> list[bytes] | None:
    """argv as the process has it now; [] for a kernel thread or a zombie, None if gone or not permitted."""
    raw = read_proc(f"/proc/{pid}/cmdline", 1 << 16)
    if raw is None:
        return None
    raw = raw.rstrip(b"\0")
    return raw.split(b"\0") if raw else []


def effective_uid(pid: int) -> int | None:
    """The effective user, which is whom MPS takes a client for."""
    return _uid(pid, 2)


def real_uid(pid: int) -> int | None:
    """The user who has started it, also where that is a setuid program."""
    return _uid(pid, 1)


def _uid(pid: int, column: int) -> int | None:
    for line in proc_lines(f"/proc/{pid}/status"):
        if line.startswith(b"Uid:"):
            return int(line.split()[column])
    return None


def process_uids(pid: int) -> frozenset[int] | None:
    """Every user ID that the process has: real, effective and saved, of each of its threads. None where it is gone, or
    not shown."""
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return None
    found: set[int] = set()
    for thread in threads:
        for line in proc_lines(f"/proc/{pid}/task/{thread}/status"):
            if line.startswith(b"Uid:"):
                found.update(map(int, line.split()[1:4]))
    return frozenset(found) or None


def pid_namespace(pid: int | str) -> int | None:
    """The inode of the PID namespace that the process is in; None where that may not be read.

    Of another user's process everybody may read how many PIDs it has: one that has a single one is in the namespace
    that /proc shows, which is this process's own where that, too, has one.
    """
    try:
        return os.stat(f"/proc/{pid}/ns/pid").st_ino
    except PermissionError:
        return pid_namespace("self") if _is_at_the_top(pid) and _is_at_the_top("self") else None
    except OSError:
        return None


def _is_at_the_top(pid: int | str) -> bool:
    lines = proc_lines(f"/proc/{pid}/status")
    return any(line.startswith(b"NSpid:") and len(line.split()) == 2 for line in lines)


def mounts_of_its_own(pid: int) -> bool:
    """Whether the process is in a user namespace that some other user has made, or may be: in such a one everybody
    mounts an overlay over a file system in user space, and whoever looks at a name there waits until that answers, for
    ever if it likes (seen with overlayfs over FUSE on Linux 6.18; a plain FUSE mount refuses those outside)."""
    try:
        fd = os.open(f"/proc/{pid}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return True
    try:
        if os.fstat(fd).st_ino == os.stat("/proc/self/ns/user").st_ino:
            return False
        owner = struct.unpack("=I", fcntl.ioctl(fd, _NS_GET_OWNER_UID, bytes(4)))[0]
    except OSError:
        return True
    finally:
        os.close(fd)
    return owner not in {0, os.geteuid()}


def namespace_pids(pid: int) -> tuple[int, ...]:
    """The process's PIDs, from the PID namespace that /proc shows down to its own; empty where it is gone."""
    for line in proc_lines(f"/proc/{pid}/status", 1 << 14):
        if line.startswith(b"NSpid:"):
            return tuple(map(int, line.split()[1:]))
    return ()


def find_elsewhere(claims: Collection[tuple[int, int]]) -> dict[tuple[int, int], ProcessKey]:
    """The processes that are in other PID namespaces, by the inode of the namespace and a PID that they have in one of
    the namespaces below this one: what a daemon there says of a client (fact 14). One that two processes could be is
    left out. Costs a look at each process of the machine.
    """
    inodes = {inode for inode, _ in claims}
    found: dict[tuple[int, int], list[int]] = {}
    for name in os.listdir("/proc") if inodes else ():
        if not name.isdigit():
            continue
        try:
            inode = os.stat(f"/proc/{name}/ns/pid").st_ino
        except OSError:
            continue
        if inode in inodes:
            for number in set(namespace_pids(int(name))[1:]):
                found.setdefault((inode, number), []).append(int(name))
    keys = {claim: process_key(pids[0]) for claim, pids in found.items() if len(pids) == 1 and claim in claims}
    return {claim: key for claim, key in keys.items() if key is not None}


def terminal_name(tty: int) -> str | None:
    """The name of a terminal's device number as ``ps`` writes it: ``pts/3``, ``tty1``, ``ttyS0``."""
    major, minor = (tty >> 8) & 0xFFF, (tty & 0xFF) | ((tty >> 12) & 0xFFF00)
    if 136 <= major <= 143:
        return f"pts/{minor + 256 * (major - 136)}"
    if major == 4:
        return f"tty{minor}" if minor < 64 else f"ttyS{minor - 64}"
    return None


def start_time(start_ticks: int) -> float:
    """Start ticks as seconds since the epoch, by today's clock."""
    return boot_time() + start_ticks / TICKS_PER_SECOND


def read_proc(path: str, limit: int = _READ_LIMIT) -> bytes | None:
    """A file of /proc, whole up to ``limit`` bytes; None where it cannot be read, or keeps whoever reads it waiting."""
    return (read_memory if path.endswith(_IN_MEMORY) else read_file)(path, limit)


def proc_lines(path: str, limit: int = _READ_LIMIT) -> list[bytes]:
    """The lines of a file of /proc that are not empty; none where it cannot be read.

    The kernel writes a line break in a name as ``\\n``, and nothing else that ends a line elsewhere: a process that is
    called ``a``, a carriage return and ``Uid: 0`` would say of itself whose it is."""
    return lines_of(read_proc(path, limit) or b"")


def lines_of(text: bytes) -> list[bytes]:
    """As ``proc_lines``, of what was read before."""
    return [line for line in text.split(b"\n") if line]


def boot_time() -> float:
    """When the machine started, in seconds since the epoch by today's clock.

    The same number each time, so that start times stay what they are, until the clock is set by more than a second.
    """
    global _boot
    now = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
    if abs(now - _boot) > _CLOCK_STEP:
        _boot = now
    return _boot


# Device memory by cgroup.


class CgroupMemory(NamedTuple):
    """The device memory that a cgroup allows on one device, in bytes; of several above each other the lowest one."""

    region: str
    """The kernel's name of the memory, printable: ``nvidia/0000:01:00.0/vidmem``."""
    cgroup: str
    """The one that sets ``most``, printable."""
    most: int | None
    """``dmem.max``; None where it sets none."""
    least: int | None
    """``dmem.min``, which is not taken from it; None where it sets none."""


def read_cgroup_memory(pid: int, root: str = "/sys/fs/cgroup") -> tuple[CgroupMemory, ...]:
    """The limits of device memory by the cgroups of process ``pid`` (kernel 6.14, dmem); empty where there are none.

    As the kernel's documents have them; not measured. ``root``: where the unified hierarchy is mounted.
    """
    path = cgroup_path((read_proc(f"/proc/{pid}/cgroup") or b"").decode("utf-8", "replace"))
    parts = [part for part in (path or "").split("/") if part]
    if path is None or ".." in parts:  # of another cgroup namespace
        return ()
    found: dict[str, CgroupMemory] = {}
    for depth in range(len(parts), 0, -1):
        above = "/".join(parts[:depth])
        most, least = _dmem(f"{root}/{above}/dmem.max"), _dmem(f"{root}/{above}/dmem.min")
        for region in most.keys() | (least.keys() if depth == len(parts) else set()):
            here = CgroupMemory(region, printable(f"/{above}", 128), most.get(region), least.get(region))
            known = found.get(region)
            if known is None:
                found[region] = here
            elif here.most is not None and (known.most is None or here.most < known.most):
                found[region] = known._replace(most=here.most, cgroup=here.cgroup)
    return tuple(limit for _, limit in sorted(found.items()) if limit.most is not None or limit.least)


def _dmem(path: str) -> dict[str, int | None]:
    """``nvidia/0000:01:00.0/vidmem 8589934592`` on each line, or ``max``; other vendors' devices are left out."""
    found: dict[str, int | None] = {}
    for line in (read_proc(path, 1 << 14) or b"").decode("ascii", "replace").splitlines():
        region, _, size = line.strip().rpartition(" ")
        if region.startswith("nvidia/"):
            found[printable(region, 80)] = int(size) if size.isdecimal() and len(size) < 20 else None
    return found


# Facts of processes at a cost that does not matter once a second, and a handle for killing one safely.


_COMMAND_LIMIT: Final = 1000
_SPARE: Final = 64
"""Processes that are remembered beyond twice as many as were asked for at a time."""


def is_alive(key: ProcessKey) -> bool:
    """Whether this very process lives: False for a zombie and where the PID belongs to a successor.

    A key without start ticks, or a process that /proc hides, is judged by its PID alone.
    """
    now = process_key(key.pid)
    return now is not None and (key.start_ticks is None or now.start_ticks is None or now == key)


@dataclass(frozen=True, slots=True)
class ProcessFacts:
    """What /proc tells of a process; what may not be read is None."""

    key: ProcessKey
    start_time: float | None = None
    uid: int | None = None
    user: str | None = None
    command: str | None = None
    """The command line, printable."""
    cpu_seconds: float | None = None
    cgroup: str | None = None
    container: str | None = None
    terminal: str | None = None
    pid_namespace: int | None = None
    environment: Mapping[str, str] | None = None
    """Only the CUDA_* variables; None where /proc does not permit."""
    where: Where | None = None
    """Where it belongs: pod, container, job, unit."""
    vouched: bool = False
    """Whether the source knows by PID and start time that it is the client that the daemon means. Only the simulated
    node's does, which has started it."""

    def alike(self, other: ProcessFacts) -> bool:
        """Whether all is the same but the CPU time."""
        return bool(_LASTING(self) == _LASTING(other))


_LASTING = attrgetter(*(each.name for each in fields(ProcessFacts) if each.name != "cpu_seconds"))


class ProcProcesses:
    """The ProcessSource of a real node. May block (``user_name``); the caller runs it off the event loop.

    What does not change is read once for each process and again after an exec; a tick then reads one file for each
    process: 48 processes take 0.7 ms, and 9 ms the first time.
    """

    def __init__(self, belongs: Callable[[str], Where | None] = lambda text: None) -> None:
        """``belongs``: where a process belongs, by the text of its /proc/PID/cgroup."""
        self._belongs = belongs
        self._known: dict[int, tuple[bytes, Stat, ProcessFacts]] = {}
        """What was read of a process last, and what it came to."""
        self._boot = boot_time()
        self._most = 0
        """How many were asked for at a time."""

    def facts(self, pids: Iterable[int]) -> dict[int, ProcessFacts]:
        """Facts by PID; a process that is gone, or a zombie, is missing."""
        boot = boot_time()
        if boot != self._boot:
            # The clock was set: start times as they were read before are wrong now.
            self._boot = boot
            self._known.clear()
        found: dict[int, ProcessFacts] = {}
        for pid in pids:
            facts = self._facts(pid)
            if facts is not None:
                found[pid] = facts
        self._most = max(self._most, len(found))
        while len(self._known) > 2 * self._most + _SPARE:  # whoever has not been asked for the longest
            del self._known[next(iter(self._known))]
        return found

    def _facts(self, pid: int) -> ProcessFacts | None:
        try:
            raw = _raw_stat(pid)
        except HiddenProcessError:
            return ProcessFacts(ProcessKey(pid))
        known = self._known.pop(pid, None)  # put back, the last of them is the latest that was asked for
        if raw is None:
            return None
        if known is not None and known[0] == raw and known[2].command is not None:  # it has done nothing since
            self._known[pid] = known
            return known[2]
        stat = _stat(pid, raw)
        if stat is None or stat.gone:
            return None
        if known is not None and known[1].key != stat.key:
            known = None
        if known is None or known[2].command is None or _identity(known[1]) != _identity(stat):
            facts = self._read_all(stat)
            if process_key(pid) != stat.key:
                return None  # It ended meanwhile: what was read may be its successor's.
        elif known[1].cpu_ticks != stat.cpu_ticks:
            facts = replace(known[2], cpu_seconds=stat.cpu_ticks / TICKS_PER_SECOND)
        else:
            facts = known[2]
        self._known[pid] = raw, stat, facts
        return facts

    def _read_all(self, stat: Stat) -> ProcessFacts:
        pid = stat.pid
        uid = effective_uid(pid)
        cgroups = (read_proc(f"/proc/{pid}/cgroup", 1 << 16) or b"").decode("utf-8", "replace")
        cgroup = cgroup_path(cgroups)
        arguments, environment = read_each((f"/proc/{pid}/cmdline", f"/proc/{pid}/environ"), _READ_LIMIT)
        return ProcessFacts(
            key=stat.key,
            start_time=self._boot + stat.start_ticks / TICKS_PER_SECOND,
            uid=uid,
            user=None if uid is None else login_name(uid),
            command=_command(arguments, stat.comm),
            cpu_seconds=stat.cpu_ticks / TICKS_PER_SECOND,
            cgroup=None if cgroup is None else printable(cgroup, _COMMAND_LIMIT),
            container=None if cgroup is None else container_of(cgroup),
            where=self._belongs(cgroups),
            terminal=terminal_name(stat.tty),
            pid_namespace=pid_namespace(pid),
            environment=_cuda_variables(environment),
        )


def _identity(stat: Stat) -> tuple[bytes, int]:
    """What an exec or a new process title alters: PID and start ticks stay as they are."""
    return stat.comm, stat.stack


def _command(raw: bytes | None, comm: bytes) -> str | None:
    if raw is None:
        return None
    raw = raw[: 1 << 14].rstrip(b"\0")
    if not raw:
        return printable(b"[" + comm + b"]", _COMMAND_LIMIT)
    return printable(raw.replace(b"\0", b" "), _COMMAND_LIMIT)


class Trouble(NamedTuple):
    """Why a process could not be held or signalled."""

    message: str
    """In words for a person."""
    not_permitted: bool = False
    gone: bool = False
    """It has ended, or its PID belongs to a successor."""


class PidFd:
    """One process, held by a pidfd: a signal through it cannot reach a successor of the PID.

    Made by ``open_pidfd``; to be closed.
    """

    def __init__(self, key: ProcessKey, fd: int) -> None:
        self.key = key
        self._fd = fd

    def send(self, number: signal.Signals) -> Trouble | None:
        """Signal this very process. None where it was sent, or had nobody to reach any more: ``wait`` tells at once."""
        try:
            signal.pidfd_send_signal(self._fd, number)
        except ProcessLookupError:
            return None
        except OSError as error:
            return _trouble(self.key.pid, error)
        return None

    def uids(self) -> frozenset[int] | None:
        """Every user ID that this very process has now, of all its threads; None where they cannot be read."""
        found = process_uids(self.key.pid)
        try:
            signal.pidfd_send_signal(self._fd, 0)  # it is there after they were read, so they are its own
        except PermissionError:
            pass
        except OSError:
            return None
        return found

    async def wait(self, timeout: float) -> bool:
        """Whether the process ended within ``timeout`` seconds; all its threads, reaped or not."""
        import asyncio  # the liveness probe has no use for it, and it is slow to load

        loop = asyncio.get_running_loop()
        ended = asyncio.Event()
        # A descriptor of its own: a loop knows one reader for each, and two may wait.
        fd = os.dup(self._fd)
        try:
            loop.add_reader(fd, ended.set)
            try:
                await asyncio.wait_for(ended.wait(), timeout)
            except asyncio.TimeoutError:
                return _is_ready(fd)  # the loop may have been busy for all of that time
            finally:
                loop.remove_reader(fd)
        finally:
            os.close(fd)
        return True

    def close(self) -> None:
        """Give the descriptor back; a second time does nothing."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __enter__(self) -> PidFd:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def open_pidfd(key: ProcessKey) -> PidFd | Trouble:
    """A handle on this very process.

    The descriptor is opened before the start time is compared: whatever takes the PID afterwards, the descriptor stays
    with the process that was checked.
    """
    if key.start_ticks is None:
        return Trouble(
            f"the start time of process {key.pid} is not known, so it may be a new process with the same PID"
        )
    gone = Trouble(f"process {key.pid} has ended", gone=True)
    try:
        fd = os.pidfd_open(key.pid)
    except (ProcessLookupError, OverflowError):
        return gone
    except AttributeError:
        return _trouble(key.pid, OSError(errno.ENOSYS, ""))
    except OSError as error:
        # EINVAL: the number of a thread now, so the process that had it is gone.
        return gone if error.errno == errno.EINVAL else _trouble(key.pid, error)
    try:
        stat = read_stat(key.pid)
    except HiddenProcessError:
        os.close(fd)
        return Trouble(
            f"/proc does not show process {key.pid}, so its start time cannot be checked", not_permitted=True
        )
    if stat is None or stat.gone or stat.key != key:
        os.close(fd)
        return gone
    return PidFd(key, fd)


def _is_ready(fd: int) -> bool:
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(0))


def _trouble(pid: int, error: OSError) -> Trouble:
    if error.errno == errno.ENOSYS:
        return Trouble("this kernel or Python has no pidfds (Linux 5.3 has), so no process can be signalled safely")
    if error.errno == errno.EPERM:
        return Trouble(f"process {pid} belongs to somebody else, or pidfds are forbidden here", not_permitted=True)
    return Trouble(f"no handle on process {pid}: {os.strerror(error.errno or 0)}")


# Whether the names of a process's cgroups are root's word, and what the kubelet calls its pods.


CONTAINER_LOGS: Final = Path("/var/log/containers")
POD_LOGS: Final = Path("/var/log/pods")
_ENTRIES_LIMIT: Final = 20_000
_CGROUP_LIMIT: Final = 1 << 16
_SYSTEM_GIDS: Final = 1000
_NAME: Final = r"[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?"
_CONTAINER_LOG: Final = pattern(
    rf"(?P<pod>{_NAME})_(?P<namespace>{_NAME})_(?P<container>{_NAME})-(?P<id>[0-9a-f]{{64}})\.log"
)
"""``train-0_ml_trainer-<id>.log``."""
_POD_LOG: Final = pattern(rf"(?P<namespace>{_NAME})_(?P<pod>{_NAME})_(?P<uid>[0-9a-f-]{{32,36}})")
"""``ml_train-0_<uid>``."""
_OCTAL: Final = pattern(rb"\\([0-7]{3})")


class Cgroups:
    """Where processes belong, with what was read for one of them kept for the next. May be used by several threads."""

    def __init__(self, container_logs: Path = CONTAINER_LOGS, pod_logs: Path = POD_LOGS) -> None:
        self._by_container = _Names(container_logs, _CONTAINER_LOG, "id")
        self._by_pod = _Names(pod_logs, _POD_LOG, "uid")
        self._mounts: Mapping[str, Path] | None = None
        self._lock = threading.Lock()

    def where(self, text: str) -> Where | None:
        """Where the process belongs whose /proc/PID/cgroup says ``text``."""
        with self._lock:
            self._mounts = _mounts() if self._mounts is None else self._mounts
            return find_where(parse_cgroups(text), self._is_roots, self._name)

    def where_is(self, pid: int) -> Where | None:
        """Where a process belongs now; None where that may not be read, or it is gone."""
        return self.where((read_proc(f"/proc/{pid}/cgroup", _CGROUP_LIMIT) or b"").decode("utf-8", "replace"))

    def _is_roots(self, cgroup: Cgroup) -> bool:
        """Whether root alone can make cgroups in this one and move processes into it; False where that cannot be
        seen."""
        mount = (self._mounts or {}).get(cgroup.controllers.split(",")[0])
        if mount is None or ".." in cgroup.path.split("/"):
            return False
        folder = os.fspath(mount) + cgroup.path.rstrip("/")
        try:
            found = [os.lstat(folder)]
        except (OSError, ValueError):
            return False
        for name in ("cgroup.procs", "tasks"):
            try:
                found.append(os.lstat(f"{folder}/{name}"))
            except FileNotFoundError:
                continue
            except OSError:
                return False
        return all(each.st_uid == 0 and not _others_write(each) for each in found)

    def _name(self, uid: str, container: str | None) -> PodName | None:
        if container is not None and (found := self._by_container.find(container)) is not None:
            return PodName(found["namespace"], found["pod"], found["container"])
        found = self._by_pod.find(uid) or self._by_pod.find(uid.replace("-", ""))
        return None if found is None else PodName(found["namespace"], found["pod"])


class _Names:
    """The names in a folder of the kubelet's, read again when the folder has changed. A folder that others than root
    can write to tells nothing: anybody could call a container as he likes."""

    def __init__(self, folder: Path, pattern: re.Pattern[str], key: str) -> None:
        self._folder, self._pattern, self._key = folder, pattern, key
        self._stamp: tuple[int, int] | None = None
        self._found: Mapping[str, Mapping[str, str]] = {}

    def find(self, identity: str) -> Mapping[str, str] | None:
        try:
            way = [os.lstat(place) for place in (self._folder, *self._folder.parents)]
            stamp = way[0].st_ino, way[0].st_mtime_ns
            if stamp != self._stamp:
                self._found = self._read() if all(_is_roots_folder(each) for each in way) else {}
                self._stamp = stamp
        except OSError:
            self._stamp, self._found = None, {}
        return self._found.get(identity)

    def _read(self) -> Mapping[str, Mapping[str, str]]:
        with os.scandir(self._folder) as entries:
            names = [entry.name for entry in itertools.islice(entries, _ENTRIES_LIMIT)]
        matches = (self._pattern.fullmatch(name) for name in names)
        return {match[self._key]: match.groupdict() for match in matches if match is not None}


def _is_roots_folder(found: os.stat_result) -> bool:
    sticky = bool(found.st_mode & stat.S_ISVTX)
    return stat.S_ISDIR(found.st_mode) and found.st_uid == 0 and (sticky or not _others_write(found))


def _others_write(found: os.stat_result) -> bool:
    """Whether others than root may write to it. The groups of the system, as syslog's of /var/log, stand with it."""
    shared = bool(found.st_mode & stat.S_IWGRP) and found.st_gid >= _SYSTEM_GIDS
    return shared or bool(found.st_mode & stat.S_IWOTH)


def _mounts() -> Mapping[str, Path]:
    """Where each hierarchy is mounted whole: by each controller of version 1, ``name=systemd`` and such, and ``""`` for
    version 2."""
    found: dict[str, Path] = {}
    for line in proc_lines("/proc/self/mountinfo"):
        head, _, tail = line.partition(b" - ")
        where, kind = head.split(b" "), tail.split(b" ")
        if len(where) < 5 or len(kind) < 3 or kind[0] not in {b"cgroup", b"cgroup2"} or where[3] != b"/":
            continue
        place = Path(os.fsdecode(_OCTAL.sub(lambda match: bytes([int(match[1], 8)]), where[4])))
        names = [""] if kind[0] == b"cgroup2" else os.fsdecode(kind[2]).split(",")
        for name in names:
            found.setdefault(name, place)
    return found


# Tells at once when one of a few processes ends, where the kernel has pidfds (Linux 5.3).


class Exits:
    """Calls ``ended`` in the event loop when a watched process ends, each time once. Nothing raises: a process that
    cannot be watched is left to whoever looks at /proc now and then."""

    def __init__(self, ended: Callable[[], None]) -> None:
        self._ended = ended
        self._watched: dict[int, int | None] = {}
        """Descriptors by PID; None for a process that has ended, which is told once."""

    def watch(self, pids: Collection[int]) -> None:
        """From now on these processes and no others. Costs two system calls for each that is new."""
        for pid in [pid for pid in self._watched if pid not in pids]:
            self._forget(pid)
        for pid in pids:
            if pid not in self._watched:
                self._begin(pid)

    def close(self) -> None:
        """Give all descriptors back."""
        self.watch(())

    def _begin(self, pid: int) -> None:
        try:
            fd = os.pidfd_open(pid)
        except (OSError, OverflowError, ValueError, AttributeError):
            return
        import asyncio  # as above

        try:
            asyncio.get_running_loop().add_reader(fd, self._over, pid)
        except (OSError, NotImplementedError):
            os.close(fd)
        else:
            self._watched[pid] = fd

    def _over(self, pid: int) -> None:
        self._forget(pid)
        self._watched[pid] = None
        self._ended()

    def _forget(self, pid: int) -> None:
        fd = self._watched.pop(pid)
        if fd is not None:
            import asyncio

            asyncio.get_running_loop().remove_reader(fd)
            os.close(fd)
