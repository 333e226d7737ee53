"""Counts the kernel launches of single processes from outside (facts 41, 49), in windows, and what the windows come to:
the clients' activity. Without a tool, a compiler or a change to them.

The kernel's uprobe PMU stops at the launch functions of the libcuda.so that the processes have mapped. One BPF program
of a few instructions, for all processes at once, counts there by process id; where BPF is not permitted, a counter for
each thread and function does, for few. Everything hangs on file descriptors: whoever is killed leaves nothing attached.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import errno
import fcntl
import math
import os
import platform
import re
import resource
import stat
import struct
import time
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import field
from typing import Final, NamedTuple, TypeVar

from mpstui.core.late import dataclass, pattern
from mpstui.core.model import Activity, ProcessKey
from mpstui.core.text import error_text, printable
from mpstui.observe.sources import BlockingCalls, LaunchReading, LaunchSource
from mpstui.system.memory import keepers
from mpstui.system.procfs import lines_of, mounts_of_its_own, process_key, read_proc

LAUNCHES: Final = frozenset(
    name + suffix
    for name in ("cuLaunchKernel", "cuLaunchKernelEx", "cuLaunchCooperativeKernel", "cuGraphLaunch")
    for suffix in ("", "_ptsz")
) | {"cuLaunch", "cuLaunchGrid", "cuLaunchGridAsync", "cuLaunchCooperativeKernelMultiDevice"}
"""What starts work on a GPU; a graph counts once, however many kernels it holds."""
PROCESSES: Final = 1024
"""Processes that are counted at most."""
AGAIN_SECONDS: Final = 15.0
"""After which it is looked again whether a process has a library now."""
LIBRARIES: Final = 4
"""Of one process at most: whoever maps a thousand files of that name would hold up everybody's counting."""
COUNTERS: Final = 256
"""Counters of single threads at most: each takes some 20 ms to attach (fact 49)."""
LAUNCH_SECONDS: Final = 5e-6
"""What one counted launch costs its process, where that cannot be measured. It goes by the first instruction of the
function: one that the kernel carries out itself cost 0.5 µs on a machine with an H200, any other one 6.5 µs."""

_PMU: Final = "/sys/bus/event_source/devices/uprobe/type"
_SYSTEM_CALLS: Final = {"x86_64": (321, 298, 62), "aarch64": (280, 241, 183)}
"""bpf(2), perf_event_open(2), and the number of the machine in an ELF file."""
_MAPS_LIMIT: Final = 1 << 25
_TABLE_LIMIT: Final = 1 << 23
_NAME_LIMIT: Final = 48
_STACKED: Final = frozenset((b"overlay", b"overlayfs", b"aufs", b"ecryptfs", b"shiftfs"))
"""File systems that are answered by another one."""
_C_LIBRARY: Final = pattern(rb" r-xp .*/(?:libc\.so\.6|libc-[\d.]+\.so|ld-musl-[\w-]+\.so\.1)$")
_LIBRARY: Final = pattern(rb"libcuda\.so(?:\.\d+)*(?: \(deleted\))?")
_INITIAL_NAMESPACE: Final = 0xEFFFFFFC
"""The inode of the PID namespace that a machine starts with; the kernel counts processes by its numbers."""


class UncountedError(Exception):
    """Why launches cannot be counted, as a clause."""


# System calls.


class _Kernel:
    """bpf(2) and perf_event_open(2) of this machine. Raises UncountedError where they are not known."""

    def __init__(self) -> None:
        machine = platform.machine()
        if machine not in _SYSTEM_CALLS:
            raise UncountedError(f"launches are not counted on {printable(machine, 20)} machines")
        self._bpf, self._perf, self.machine = _SYSTEM_CALLS[machine]
        try:
            with open(_PMU, "rb") as file:
                self._pmu = int(file.read(16))
        except (OSError, ValueError):
            raise UncountedError(
                "this kernel has no uprobe PMU (4.17 and later have), or /sys is not mounted"
            ) from None
        self._call = ctypes.CDLL(None, use_errno=True).syscall
        self._call.restype = ctypes.c_long

    def _do(self, *arguments: int) -> int:
        result = int(self._call(*map(ctypes.c_long, arguments)))
        if result < 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
        return result

    def bpf(self, command: int, attributes: bytes) -> int:
        buffer = ctypes.create_string_buffer(attributes, len(attributes))
        return self._do(self._bpf, command, ctypes.addressof(buffer), len(attributes))

    def uprobe(self, path: bytes, offset: int, process: int) -> int:
        """A perf event at ``offset`` of a file; ``process``: the thread whose hits it counts; −1: all.

        Never with ``inherit``: the kernel would look for the path again in the address space of whoever starts a
        thread, not find it, and let that start fail.
        """
        name = ctypes.create_string_buffer(path)
        sizes = self._pmu, 72, 0, 0, 0, 0, 0, 0, 0, ctypes.addressof(name), offset
        buffer = ctypes.create_string_buffer(struct.pack("<IIQQQQQIIQQ", *sizes), 72)
        close_on_exec, cpu = 8, 0 if process < 0 else -1
        return self._do(self._perf, ctypes.addressof(buffer), process, cpu, -1, close_on_exec)


_MAP_CREATE, _MAP_LOOKUP, _MAP_UPDATE, _MAP_DELETE, _PROGRAM_LOAD, _LINK_CREATE = 0, 1, 2, 3, 5, 28
_KPROBE, _UPROBE_MULTI = 2, 48
_SET_BPF: Final = 0x40042408
_LANDING: Final = b"\xf3\x0f\x1e\xfa"
"""endbr64, with which functions begin where control flow is checked."""


def program(map_fd: int, namespace: tuple[int, int] | None = None) -> bytes:
    """The BPF program: looks the process id up in the map and adds one to what it finds there; nobody else is counted.

    ``namespace``: device and inode of the PID namespace whose numbers the map has; None: the machine's first one.
    """
    r0, r1, r2, r3, r4, r10 = 0, 1, 2, 3, 4, 10

    def do(code: int, to: int = 0, of: int = 0, offset: int = 0, value: int = 0) -> bytes:
        return struct.pack("<BBhI", code, of << 4 | to, offset, value & 0xFFFFFFFF)

    def load(to: int, value: int, kind: int = 0) -> bytes:  # 64 bits, in two
        return do(0x18, to, kind, 0, value) + do(0, value=value >> 32)

    count = [
        do(0xBF, r2, r10),  # r2 = address of the process id on the stack
        do(0x07, r2, value=-4),
        load(r1, map_fd, kind=1),
        do(0x85, value=1),  # map_lookup_elem
        do(0x15, r0, offset=2),  # not there: to the end
        do(0xB7, r1, value=1),
        do(0xDB, r0, r1),  # atomic: *r0 += 1
    ]
    end = [do(0xB7, r0), do(0x95)]
    if namespace is None:
        begin = [
            do(0x85, value=14),  # get_current_pid_tgid
            do(0x77, r0, value=32),
            do(0x63, r10, r0, -4),
        ]
    else:
        begin = [
            do(0xBF, r3, r10),
            do(0x07, r3, value=-8),  # gets {thread, process}
            do(0xB7, r4, value=8),
            load(r1, namespace[0]),
            load(r2, namespace[1]),
            do(0x85, value=120),  # get_ns_current_pid_tgid
            do(0x55, r0, offset=len(b"".join(count)) // 8),  # of another namespace: to the end
        ]
    return b"".join([*begin, *count, *end])


def own_namespace() -> tuple[int, int] | None:
    """Device and inode, as the kernel writes them, of this process's PID namespace; None where it is the machine's."""
    try:
        found = os.stat("/proc/self/ns/pid")
    except OSError:
        return None
    if found.st_ino == _INITIAL_NAMESPACE:
        return None
    return os.major(found.st_dev) << 20 | os.minor(found.st_dev), found.st_ino


# The library that a process has mapped.


class Library(NamedTuple):
    """A libcuda.so that a process has mapped."""

    device: bytes
    inode: int
    range: str
    """Where in the process, as in /proc/PID/map_files."""
    path: bytes


def mapped_libraries(maps: bytes) -> list[Library]:
    """Each libcuda.so of a /proc/PID/maps, once. A process names its files as it likes: what they hold is looked at."""
    found: dict[tuple[bytes, int], Library] = {}
    for line in lines_of(maps):
        if b"libcuda.so" not in line:
            continue
        words = line.split(None, 5)
        if len(words) == 6 and words[4].isdigit() and _LIBRARY.fullmatch(os.path.basename(words[5])):
            library = Library(words[3], int(words[4]), words[0].decode("ascii", "replace"), words[5])
            found.setdefault((library.device, library.inode), library)
        if len(found) == LIBRARIES:
            break
    return list(found.values())


def open_library(pid: int, library: Library) -> int:
    """The mapped file itself, whatever namespace it is in and whatever now has its name. Raises UncountedError."""
    if not _is_answered_by_the_kernel(library.device, pid):
        raise UncountedError(_ON_FUSE)
    trouble: OSError | None = None
    ways = [os.fsencode(f"/proc/{pid}/map_files/{library.range}")]
    if os.geteuid() != 0:  # that way is root's; this one leads through what the process's user has mounted
        ways.append(os.fsencode(f"/proc/{pid}/root") + library.path.removesuffix(b" (deleted)"))
    for path in ways:
        try:
            place = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except OSError as error:
            trouble = trouble or error
            continue
        try:
            # What is mapped there by now may be another file: its file system is asked nothing before it is known.
            if not _is_answered_by_the_kernel(_mount_of(place), pid, _BY_MOUNT):
                raise UncountedError(_ON_FUSE)
            found = os.fstat(place)
            if stat.S_ISREG(found.st_mode) and found.st_ino == library.inode:
                return os.open(f"/proc/self/fd/{place}", os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
        except OSError as error:
            trouble = trouble or error
        finally:
            os.close(place)
    if trouble is not None and trouble.errno in {errno.EPERM, errno.EACCES}:
        raise UncountedError("its libcuda.so may not be opened; run mpstui as root")
    raise UncountedError("its libcuda.so could not be opened")


_ON_FUSE: Final = "its libcuda.so is on FUSE, or on a file system that is not mounted where it can be seen"
_BY_MOUNT, _BY_DEVICE = 0, 2
"""Columns of /proc/PID/mountinfo."""


def _mount_of(fd: int) -> bytes:
    """The number of the mount that an open file is reached by; nothing is asked of its file system."""
    for line in lines_of(read_proc(f"/proc/self/fdinfo/{fd}") or b""):
        if line.startswith(b"mnt_id:"):
            return line[7:].strip()
    return b""


def _is_answered_by_the_kernel(name: bytes, pid: int, column: int = _BY_DEVICE) -> bool:
    """Whether a file system of that device, as in /proc/PID/maps, or that mount, is mounted there or here and is none
    of FUSE: a read of such a one may never return, and whoever waits in it cannot be killed. One that was taken off its
    mount serves on, so what is mounted nowhere is not believed either; nor is an overlay of a user's own, which may be
    over FUSE."""
    if column == _BY_DEVICE:
        try:
            name = b"%d:%d" % tuple(int(part, 16) for part in name.split(b":"))
        except (ValueError, TypeError):
            return False
    kinds: dict[str, set[bytes]] = {}
    for whose in ("self", str(pid)):
        for line in lines_of(read_proc(f"/proc/{whose}/mountinfo") or b""):
            words, _, rest = line.partition(b" - ")
            if words.split()[column : column + 1] == [name]:
                kinds.setdefault(whose, set()).add(rest.split(b" ", 1)[0])
    if any(kind.startswith(b"fuse") for found in kinds.values() for kind in found):
        return False
    if "self" in kinds or not any(kind in _STACKED for found in kinds.values() for kind in found):
        return bool(kinds)
    return not mounts_of_its_own(pid)


def launch_offsets(fd: int, machine: int, wanted: Collection[str] = LAUNCHES) -> tuple[int, ...]:
    """Where in the file of a library its launch functions begin. Raises UncountedError where it has none.

    ``machine``: as ELF numbers them. Anybody may have written the file: nothing in it is believed beyond its length.
    """
    try:
        names = _symbols(fd, machine, wanted)
    except (struct.error, ValueError, OverflowError, OSError):
        raise UncountedError("its libcuda.so is not a library that can be read") from None
    if not names:
        raise UncountedError("its libcuda.so has no launch function that is known")
    return tuple(sorted(set(names.values())))


def _symbols(fd: int, machine: int, wanted: Collection[str]) -> dict[str, int]:
    head = os.pread(fd, 64, 0)
    if head[:6] != b"\x7fELF\x02\x01":
        raise ValueError("not a 64-bit ELF file")
    kind, of_machine = struct.unpack_from("<HH", head, 16)
    if (kind, of_machine) != (3, machine):
        raise ValueError("not a shared object for this machine")
    segments_at, sections_at = struct.unpack_from("<QQ", head, 32)
    segment_size, segments, section_size, sections = struct.unpack_from("<HHHH", head, 54)
    if segment_size != 56 or section_size != 64:
        raise ValueError("entries of another size")
    loaded = []
    for number in range(segments):
        entry = os.pread(fd, 56, segments_at + 56 * number)
        what, flags, offset, address, _, size, _, _ = struct.unpack("<IIQQQQQQ", entry)
        if what == 1 and flags & 1:  # loaded, executable
            loaded.append((address, address + size, offset - address))
    table = os.pread(fd, 64 * sections, sections_at)
    heads = list(struct.iter_unpack("<IIQQQQIIQQ", table[: len(table) // 64 * 64]))
    found: dict[str, int] = {}
    for _, what, _, _, offset, size, link, _, _, each in heads:
        if what != 11 or each != 24 or link >= len(heads):  # the dynamic symbols
            continue
        names = os.pread(fd, min(heads[link][5], _TABLE_LIMIT), heads[link][4])
        entries = os.pread(fd, min(size, _TABLE_LIMIT), offset)
        for name_at, _, _, section, value, _ in struct.iter_unpack("<IBBHQQ", entries[: len(entries) // 24 * 24]):
            name = names[name_at : name_at + _NAME_LIMIT].partition(b"\0")[0].decode("ascii", "replace")
            if section and name in wanted:
                places = [value + shift for begin, end, shift in loaded if begin <= value < end]
                found.update((name, place) for place in places)
    return found


# Counting.


class _OneProgram:
    """One BPF program for all processes; on kernels from 6.6 on attached to all functions at once. Raises OSError."""

    how = "one BPF program"

    def __init__(self, kernel: _Kernel) -> None:
        self.kernel = kernel
        self._followed: set[int] = set()
        self._held: list[int] = []
        with _locked_memory():
            self._map = kernel.bpf(_MAP_CREATE, struct.pack("<IIIII", 1, 4, 8, PROCESSES, 0).ljust(72, b"\0"))
        try:
            try:
                self._program, self._together = self._load(_UPROBE_MULTI), True
            except OSError:
                self._program, self._together = self._load(0), False
        except OSError:
            os.close(self._map)
            raise
        self._prices: dict[bool, float] = {}

    def price(self, simple: bool) -> float:
        """Seconds that a hit costs on this machine; ``simple``: of what the kernel carries out itself."""
        if simple not in self._prices:
            self._prices[simple] = LAUNCH_SECONDS
            with contextlib.suppress(OSError, UncountedError, AttributeError):
                name, argument = ("getenv", b"_") if simple else ("labs", 1)
                self._prices[simple] = self._measure(name, argument, simple)
        return self._prices[simple]

    def _measure(self, name: str, argument: object, simple: bool) -> float:
        """A function of the C library is called with and without a counter there, in this process alone."""
        maps = read_proc("/proc/self/maps", _MAPS_LIMIT) or b""
        path = next((line.split()[-1] for line in lines_of(maps) if _C_LIBRARY.search(line)), None)
        if path is None:
            raise UncountedError("it is not known which C library this is")
        with open(path, "rb") as file:
            place = launch_offsets(file.fileno(), self.kernel.machine, frozenset({name}))[0]
            if os.pread(file.fileno(), len(_LANDING), place) == _LANDING:
                place += len(_LANDING)
            if is_simple(os.pread(file.fileno(), 2, place)) != simple:
                raise UncountedError("its first instruction is not the one that is expected")
        called, program = getattr(ctypes.CDLL(None), name), self._program if not self._together else self._load(0)

        def function() -> object:
            return called(argument)

        plain = _seconds_a_call(function)
        event = self.kernel.uprobe(path, place, os.getpid())
        try:
            fcntl.ioctl(event, _SET_BPF, program)
            return max(1e-7, _seconds_a_call(function) - plain)
        finally:
            os.close(event)
            if program != self._program:
                os.close(program)

    def _load(self, attached: int) -> int:
        code = program(self._map, own_namespace())
        text, words = ctypes.create_string_buffer(code, len(code)), ctypes.create_string_buffer(b"Apache-2.0")
        head = (_KPROBE, len(code) // 8, ctypes.addressof(text), ctypes.addressof(words), 0, 0, 0)
        rest = (_version_code(platform.release()), 0, b"mpstui_launches", 0, attached)
        with _locked_memory():
            return self.kernel.bpf(_PROGRAM_LOAD, struct.pack("<IIQQIIQII16sII", *head, *rest))

    def attach(self, path: bytes, offsets: Iterable[int]) -> None:
        """To these places of a file, for whoever maps it now or later."""
        places = tuple(offsets)
        if self._together:
            name, table = ctypes.create_string_buffer(path), (ctypes.c_uint64 * len(places))(*places)
            addresses = ctypes.addressof(name), ctypes.addressof(table)
            attributes = struct.pack(
                "<IIIIQQQQIIII", self._program, 0, _UPROBE_MULTI, 0, *addresses, 0, 0, len(places), 0, 0, 0
            )
            try:
                self._held.append(self.kernel.bpf(_LINK_CREATE, attributes))
            except OSError as error:
                if error.errno not in {errno.EINVAL, errno.EOPNOTSUPP}:
                    raise
                os.close(self._program)
                self._together, self._program = False, self._load(0)
            else:
                return
        for offset in places:
            event = self.kernel.uprobe(path, offset, -1)
            self._held.append(event)
            fcntl.ioctl(event, _SET_BPF, self._program)

    def follow(self, pids: Collection[int]) -> None:
        """Count these processes alone."""
        for pid in self._followed.difference(pids):
            with contextlib.suppress(OSError):
                self._element(_MAP_DELETE, pid)
            self._followed.discard(pid)
        for pid in sorted(set(pids) - self._followed):
            self._element(_MAP_UPDATE, pid)
            self._followed.add(pid)

    def counts(self) -> dict[int, int]:
        return {pid: self._element(_MAP_LOOKUP, pid) for pid in self._followed}

    def _element(self, command: int, pid: int) -> int:
        key, value = ctypes.create_string_buffer(struct.pack("<I", pid), 4), ctypes.create_string_buffer(8)
        addresses = ctypes.addressof(key), 0 if command == _MAP_DELETE else ctypes.addressof(value)
        self.kernel.bpf(command, struct.pack("<IIQQQ", self._map, 0, *addresses, 0))
        return int(struct.unpack("<Q", value.raw)[0])

    def detach(self) -> None:
        held, self._held = self._held, []
        _close(held)

    def close(self) -> None:
        self.detach()
        os.close(self._program)
        os.close(self._map)


def is_simple(instruction: bytes) -> bool:
    """Whether the kernel carries out what begins with these two bytes itself: a push, a jump, a call or nothing, of
    x86. Any other one it has to step over with a second exception."""
    first, second = instruction[:2].ljust(2, b"\0")
    if platform.machine() != "x86_64":
        return False
    return first & 0xF8 == 0x50 or (first == 0x41 and second & 0xF8 == 0x50) or first in {0x90, 0xE8, 0xE9, 0xEB}


def _seconds_a_call(function: Callable[[], object]) -> float:
    """The best of several tries: whoever else works on the machine only makes it longer."""
    best = math.inf
    for _ in range(5):
        begun = time.perf_counter()
        for _ in range(200):
            function()
        best = min(best, (time.perf_counter() - begun) / 200)
    return best


class _ThreadCounters:
    """A counter for each thread and function; threads that start later are counted from the next look at them on."""

    how = "a counter for each thread"

    def __init__(self, kernel: _Kernel) -> None:
        self.kernel = kernel
        self._counters: dict[int, dict[int, list[int]]] = {}
        """Of each process and thread."""
        self._ended: dict[int, int] = {}
        """What threads of a process had launched that have ended since."""

    def missing(self, pid: int) -> list[int]:
        """Its threads that are not counted yet; those that have ended are no longer."""
        try:
            threads = {int(name) for name in os.listdir(f"/proc/{pid}/task")}
        except OSError:
            raise UncountedError("it has ended") from None
        counted = self._counters.setdefault(pid, {})
        for thread in counted.keys() - threads:
            self._ended[pid] = self._ended.get(pid, 0) + sum(map(_value, counted[thread]))
            _close(counted.pop(thread))
        return sorted(threads - counted.keys())

    def add(self, pid: int, threads: Collection[int], path: bytes, offsets: Collection[int]) -> None:
        """Raises UncountedError where there are too many, OSError where it is not permitted."""
        have = sum(len(each) for counted in self._counters.values() for each in counted.values())
        if have + len(threads) * len(offsets) > COUNTERS:
            raise UncountedError(
                f"BPF is not permitted here, and counters for each of {len(threads)} threads are too many"
            )
        for thread in threads:
            mine = self._counters[pid].setdefault(thread, [])
            with contextlib.suppress(ProcessLookupError):  # the thread has ended
                for offset in offsets:
                    mine.append(self.kernel.uprobe(path, offset, thread))

    def follow(self, pids: Collection[int]) -> None:
        for pid in self._counters.keys() - set(pids):
            for each in self._counters.pop(pid).values():
                _close(each)
            self._ended.pop(pid, None)

    def counts(self) -> dict[int, int]:
        return {
            pid: self._ended.get(pid, 0) + sum(_value(each) for held in counted.values() for each in held)
            for pid, counted in self._counters.items()
        }

    def detach(self) -> None:
        self.follow(())

    close = detach


def _value(counter: int) -> int:
    return int(struct.unpack("<Q", os.read(counter, 8))[0])


def _close(held: Iterable[int]) -> None:
    for each in held:
        os.close(each)


class LaunchCounter:
    """The LaunchSource of a real node."""

    def __init__(self) -> None:
        self._kernel: _Kernel | None = None
        self._way: _OneProgram | _ThreadCounters | None = None
        self._libraries: dict[ProcessKey, tuple[Library, ...]] = {}
        """Of each process that was counted."""
        self._attached: dict[tuple[bytes, int], str | None] = {}
        """Libraries that are attached to, or why that could not be done."""
        self._without: dict[ProcessKey, tuple[float, str]] = {}
        """Until when a process is not looked at again, and why it has no library."""
        self._keys: frozenset[ProcessKey] = frozenset()
        self._price = 0.0

    @property
    def how(self) -> str:
        return self._way.how if self._way is not None else ""

    @property
    def launch_seconds(self) -> float:
        """See LaunchSource."""
        return self._price

    def attach(self, keys: Collection[ProcessKey]) -> dict[ProcessKey, str]:
        """See LaunchSource."""
        try:
            way = self._begin()
        except UncountedError as error:
            self._keys = frozenset()
            return dict.fromkeys(keys, str(error))
        wanted = sorted(keys, key=lambda key: key.pid)
        refused = dict.fromkeys(wanted[PROCESSES:], f"more than {PROCESSES} processes are not counted")
        self._libraries = {key: known for key, known in self._libraries.items() if key in keys}
        self._without = {key: known for key, known in self._without.items() if key in keys}
        counted: set[ProcessKey] = set()
        way.follow({key.pid for key in self._keys.intersection(wanted)})  # not whoever has got the number of one
        for key in wanted[:PROCESSES]:
            try:
                self._cover(way, key)
                counted.add(key)
            except UncountedError as error:
                refused[key] = str(error)
        self._keys = frozenset(counted)
        way.follow({key.pid for key in counted})
        return refused

    def read(self) -> LaunchReading:
        """See LaunchSource."""
        counts = self._way.counts() if self._way is not None else {}
        now = time.monotonic()
        return LaunchReading(now, {key: counts[key.pid] for key in self._keys if key.pid in counts})

    def detach(self) -> None:
        """See LaunchSource."""
        self._attached.clear()
        if self._way is not None:
            self._way.detach()

    def close(self) -> None:
        """See LaunchSource."""
        self._attached.clear()
        if self._way is not None:
            self._way.close()
            self._way = None

    def _begin(self) -> _OneProgram | _ThreadCounters:
        if self._way is None:
            self._kernel = self._kernel or _Kernel()
            try:
                self._way = _OneProgram(self._kernel)
            except OSError:
                self._way = _ThreadCounters(self._kernel)
        return self._way

    def _cover(self, way: _OneProgram | _ThreadCounters, key: ProcessKey) -> None:
        known = self._libraries.get(key) or self._find(key)
        self._libraries[key] = known
        if isinstance(way, _ThreadCounters):
            threads = way.missing(key.pid)
            for library in known if threads else ():
                self._attach(way, key, library, threads)
            return
        for library in known:
            file = library.device, library.inode
            if file not in self._attached:
                try:
                    self._attach(way, key, library)
                    self._attached[file] = None
                except UncountedError as error:
                    self._attached[file] = str(error)
        reasons = [self._attached[library.device, library.inode] for library in known]
        if all(reasons):
            raise UncountedError(str(reasons[0]))

    def _find(self, key: ProcessKey) -> tuple[Library, ...]:
        """A map of some thousand lines is not read again every two seconds where it had no library."""
        until, why = self._without.get(key, (0.0, ""))
        if time.monotonic() < until:
            raise UncountedError(why)
        try:
            return self._look(key)
        except UncountedError as error:
            self._without[key] = time.monotonic() + AGAIN_SECONDS, str(error)
            raise

    def _look(self, key: ProcessKey) -> tuple[Library, ...]:
        maps = read_proc(f"/proc/{key.pid}/maps", _MAPS_LIMIT)
        if process_key(key.pid) != key:
            raise UncountedError("it has ended")
        if maps is None:
            raise UncountedError("its memory map cannot be read; run mpstui as root")
        found = tuple(mapped_libraries(maps))
        if not found:
            raise UncountedError("it has no libcuda.so mapped")
        return found

    def _attach(
        self, way: _OneProgram | _ThreadCounters, key: ProcessKey, library: Library, threads: Collection[int] = ()
    ) -> None:
        # A counter takes the lock of each process that maps the file, and of all that map the C library, where its
        # price is measured; meanwhile no process of the node can fork.
        if kept := keepers():
            raise UncountedError(
                f"nobody can read the memory of process {kept[0]}: the kernel would wait for it while it attaches a "
                "counter, and every new process of the node with it"
            )
        fd = open_library(key.pid, library)
        try:
            offsets, path = launch_offsets(fd, way.kernel.machine), os.fsencode(f"/proc/self/fd/{fd}")
            simple = all(is_simple(os.pread(fd, 2, offset)) for offset in offsets)
            if isinstance(way, _OneProgram):
                self._price = max(self._price, way.price(simple))
                way.attach(path, offsets)
            else:
                self._price = LAUNCH_SECONDS
                way.add(key.pid, threads, path, offsets)
        except OSError as error:
            if error.errno in {errno.EPERM, errno.EACCES}:
                raise UncountedError(
                    "counting launches is not permitted here: it needs root, or CAP_BPF and CAP_PERFMON"
                ) from None
            raise UncountedError(f"the kernel does not attach to its libcuda.so: {error_text(error)}") from None
        finally:
            os.close(fd)


def trouble() -> tuple[str, str | None]:
    """How launches are counted on this machine, in words, and why not otherwise, or at all; attaches nothing."""
    try:
        kernel = _Kernel()
    except UncountedError as error:
        return "", str(error)
    try:
        _OneProgram(kernel).close()
    except OSError as error:
        if os.geteuid() != 0:
            return "", "it needs root, or CAP_BPF and CAP_PERFMON"
        return _ThreadCounters.how, f"BPF is not permitted here: {error_text(error)}"
    return _OneProgram.how, None


@contextlib.contextmanager
def _locked_memory() -> Iterator[None]:
    """Kernels before 5.11 count maps and programs as locked memory, of which little is allowed."""
    kept = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_MEMLOCK, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    try:
        yield
    finally:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_MEMLOCK, kept)


def _version_code(release: str) -> int:
    """``6.18.44-x`` as kernels before 5.0 want to be told it."""
    numbers = [int(number) for number in re.findall(r"\d+", release)[:3]] + [0, 0, 0]
    return numbers[0] << 16 | numbers[1] << 8 | min(numbers[2], 255)


# What the clients' activity is: windows in which their launches are counted, and what the windows come to.


T = TypeVar("T")
WINDOW: Final = 0.5
"""Seconds of a window after which it is known how often the clients launch."""
INTERVAL: Final = 2.0
"""Seconds of a window where counting costs next to nothing, so that it goes on."""
BUDGET: Final = 0.01
"""What watching may cost the busiest client, as a part of its time."""
LONGEST: Final = 120.0
"""Seconds between two windows at most."""
RATES: Final = 16
"""Windows that are remembered of each client."""
PATIENCE: Final = 30.0
"""Seconds after which a look gives the kernel up: a library on a file system that hangs, say."""


class ActivityWindow(NamedTuple):
    """How often each process launched, from one reading of the counters to the next."""

    end: float
    """Seconds since the epoch."""
    seconds: float
    launches: Mapping[ProcessKey, int]
    refused: Mapping[ProcessKey, str]
    """Who is not counted, and why."""
    how: str = ""


@dataclass(slots=True)
class _Record:
    begun: float
    """When the first window began."""
    rates: deque[float] = field(default_factory=lambda: deque(maxlen=RATES))
    launched: float | None = None
    """The end of the last window in which it launched."""
    counted: float = 0.0
    """Seconds of windows since then."""


class ActivityLog:
    """What successive windows tell of each process; pure."""

    def __init__(self) -> None:
        self._records: dict[ProcessKey, _Record] = {}

    def add(self, window: ActivityWindow) -> dict[ProcessKey, Activity]:
        """All that is known after this window; who is in it no more is forgotten."""
        found: dict[ProcessKey, Activity] = {key: Activity(why=why) for key, why in window.refused.items()}
        records: dict[ProcessKey, _Record] = {}
        for key, launches in window.launches.items():
            record = records[key] = self._records.get(key) or _Record(window.end - window.seconds)
            rate = round(launches / window.seconds, 1) if window.seconds > 0 else 0.0
            record.rates.append(rate)
            if launches:
                record.launched, record.counted = window.end, 0.0
            else:
                record.counted += window.seconds
            since = record.begun if record.launched is None else record.launched
            passed = max(window.end - since, window.seconds)
            found[key] = Activity(
                launches_per_second=rate,
                rates=tuple(record.rates),
                idle_since=None if launches else since,
                seen_launching=record.launched is not None,
                watched=None if launches or passed <= 0 else min(1.0, round(record.counted / passed, 2)),
            )
        self._records = records
        return found


class ActivityWatch:
    """Counts in windows. Whatever may block is done in a thread of its own; methods belong to one event loop.

    ``keys``: the processes to be counted, asked again for each window.
    """

    def __init__(
        self,
        source: Callable[[], LaunchSource],
        keys: Callable[[], Collection[ProcessKey]],
        *,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._open = source
        self._keys = keys
        self._clock = clock
        self._monotonic = monotonic
        self._sleep = sleep
        self._worker = BlockingCalls("mpstui-activity")
        self._source: LaunchSource | None = None
        self._holds = 0

    async def look(self, seconds: float) -> ActivityWindow:
        """One window of so many seconds."""
        if not self._keys():
            return ActivityWindow(self._clock(), 0.0, {}, {})
        try:
            refused = await asyncio.wait_for(self._attach(), PATIENCE)
        except asyncio.TimeoutError:
            why = f"the kernel has not attached the counters within {PATIENCE:g} s"
            return ActivityWindow(self._clock(), 0.0, {}, dict.fromkeys(self._keys(), why))
        except OSError as error:
            return ActivityWindow(self._clock(), 0.0, {}, dict.fromkeys(self._keys(), error_text(error)))
        try:
            return await self._window(seconds, refused)
        finally:
            self._release()

    async def watch(self, told: Callable[[ActivityWindow], None]) -> None:
        """Window after window until it is cancelled: without a gap where counting costs next to nothing, otherwise with
        gaps, so that the busiest client loses ``BUDGET`` of its time at most (fact 49)."""
        while True:
            begun, cost = self._monotonic(), 0.0
            refused = await self._attach()
            try:
                seconds = WINDOW
                while cost <= BUDGET:
                    window = await self._window(seconds, refused)
                    told(window)
                    busiest = max(window.launches.values(), default=0) / max(window.seconds, 1e-3)
                    cost, seconds = busiest * (self._source.launch_seconds if self._source else 0.0), INTERVAL
                    if cost <= BUDGET:
                        refused = await self._call(lambda source: source.attach(self._keys()))
            except BaseException:
                self._release()
                raise
            await self._release()
            attached = self._monotonic() - begun
            await self._sleep(min(LONGEST, attached * (cost / BUDGET - 1)))

    def close(self) -> None:
        """Nothing stays attached; does not wait."""
        source, self._source = self._source, None
        self._worker.close(source.close if source is not None else None)

    async def _window(self, seconds: float, refused: Mapping[ProcessKey, str]) -> ActivityWindow:
        first = await self._call(lambda source: source.read())
        await self._sleep(seconds)
        last = await self._call(lambda source: source.read())
        both = {key: last.counts[key] - count for key, count in first.counts.items() if key in last.counts}
        how = self._source.how if self._source is not None else ""
        return ActivityWindow(self._clock(), last.time - first.time, both, refused, how)

    async def _attach(self) -> Mapping[ProcessKey, str]:
        self._holds += 1
        try:
            return await self._call(lambda source: source.attach(self._keys()))
        except BaseException:
            self._release()
            raise

    def _release(self) -> asyncio.Future[None]:
        """Detach, where nobody else counts; need not be waited for."""
        self._holds -= 1
        last = not self._holds
        return self._worker.call(lambda: self._source.detach() if last and self._source is not None else None)

    def _call(self, do: Callable[[LaunchSource], T]) -> asyncio.Future[T]:
        def done() -> T:
            if self._source is None:
                self._source = self._open()
            return do(self._source)

        return self._worker.call(done)
