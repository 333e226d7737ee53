"""Gathers the facts, runs every check, and says how bad it is."""

from __future__ import annotations

import asyncio
import os
import re
import stat
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from mpstui.config import load_config
from mpstui.control.binary import look
from mpstui.control.commandline import PROGRAM, patience, shown_program
from mpstui.control.grammar import Clock
from mpstui.control.protocol import protocol_of
from mpstui.core.model import Daemon, Snapshot
from mpstui.core.text import path_text, printable, unprintable
from mpstui.doctor import advice, modes, setup, sharing
from mpstui.doctor.types import (
    DEBUGGERS,
    RANK,
    SHM,
    BinaryFacts,
    Debugged,
    DirectoryFacts,
    Facts,
    Finding,
    LogFacts,
    PlatformFacts,
    ProcessLimits,
    ShmFacts,
    Stray,
)
from mpstui.observe.devices import dcgm_trouble
from mpstui.observe.discovery import Place, running_daemons
from mpstui.observe.logs import server_logs
from mpstui.observe.problems import OF_A_LIAR, claim_of, left_to
from mpstui.system.memory import INSIDE, real_path
from mpstui.system.own import MISSING, ProgramError, find_program, why_not_roots
from mpstui.system.procfs import (
    HiddenProcessError,
    environment_of,
    lines_of,
    proc_lines,
    read_arguments,
    read_cgroup_memory,
    read_environment,
    read_proc,
    read_stat,
    real_uid,
)
from mpstui.system.trusted import NotTrustedError, Owners, UnreadableLogError, judge_directory, open_log

CHECKS: Final[tuple[Callable[[Facts], Iterator[Finding]], ...]] = (
    setup.driver,
    setup.binary,
    setup.strangers,
    setup.pipe_directory,
    setup.logs,
    sharing.from_status,
    sharing.users,
    setup.compute_mode,
    setup.persistence,
    setup.mig,
    sharing.visible_devices,
    setup.shared_memory,
    setup.open_files,
    sharing.memory_limits,
    sharing.percentages,
    modes.partitions,
    modes.namespaces,
    sharing.one_daemon_a_device,
    sharing.variables,
    advice.platform,
    advice.architecture,
    advice.cpus,
    advice.debuggers,
    advice.repeated_faults,
    advice.gain,
    setup.server_binary,
    sharing.cgroup_memory,
    sharing.parts_of_devices,
    setup.stray_processes,
    setup.meters,
    setup.activity,
)
_OF_OTHERS: Final = (
    setup.strangers,
    setup.pipe_directory,
    setup.logs,
    sharing.users,
    sharing.visible_devices,
    setup.open_files,
    modes.partitions,
    modes.namespaces,
    sharing.variables,
    advice.cpus,
)
"""Checks of single daemons, which are made of other users' too."""
_OF_FILES: Final = (setup.pipe_directory, setup.open_files)
"""Those of them that look at files and processes, and at nothing that is answered."""
_LOGS: Final = ("control.log", "server.log")
_TAIL: Final = 1 << 16
_VERSION_SECONDS: Final = 5.0
_SERVER: Final = "nvidia-cuda-mps-server"
_DEBUGGERS: Final = tuple(name.encode() for name in DEBUGGERS)
_COMM: Final = b"nvidia-cuda-mps"
"""The kernel cuts names at 15 bytes, so it is both the server's and the daemon's."""


def examine(facts: Facts) -> tuple[Finding, ...]:
    """What every check says, the worst first. Of other users' daemons it is those users' word, and nothing that is
    wrong with the node: no finding of root's, or of one's own, is drawn from it."""
    mine: list[Daemon] = []
    others: list[Daemon] = []
    for daemon in facts.snapshot.daemons:
        (mine if daemon.counts_for(os.geteuid()) else others).append(daemon)
    about = _without(facts, others, mine)
    found = [finding for check in CHECKS for finding in check(about)]
    for daemon in others:
        theirs = _only(facts, daemon)
        for check in _OF_OTHERS:
            seen = check in _OF_FILES and daemon.usurped(os.geteuid())
            found += [finding if seen else _claimed(finding, daemon) for finding in check(theirs)]
    return tuple(sorted(found, key=lambda finding: -RANK[finding.verdict]))


def _without(facts: Facts, these: Sequence[Daemon], those: Sequence[Daemon]) -> Facts:
    """The facts about ``those`` daemons, and without what is about ``these`` alone. The status' problems are all
    there: each names whose it is."""
    if not these:
        return facts
    places, logs = {daemon.pipe_dir for daemon in these}, {daemon.log_dir for daemon in these}
    pids = {pid for daemon in these for pid in _pids(daemon)} - {pid for daemon in those for pid in _pids(daemon)}
    logs -= {daemon.log_dir for daemon in those}
    snapshot = facts.snapshot
    return replace(
        facts,
        snapshot=replace(
            snapshot,
            daemons=tuple(those),
            events=tuple(event for event in snapshot.events if event.pipe_dir not in places),
        ),
        directories=tuple(place for place in facts.directories if place.pipe_dir not in places),
        logs=tuple(log for log in facts.logs if log.path.parent not in logs),
        processes=tuple(process for process in facts.processes if process.pid not in pids),
    )


def _only(facts: Facts, daemon: Daemon) -> Facts:
    """The facts about this daemon: also a place that has none is another one's."""
    others = [each for each in facts.snapshot.daemons if each is not daemon]
    found = _without(facts, others, [daemon])
    pids = set(_pids(daemon))
    return replace(
        found,
        directories=tuple(place for place in found.directories if place.pipe_dir == daemon.pipe_dir),
        logs=tuple(log for log in found.logs if log.path.parent == daemon.log_dir),
        processes=tuple(process for process in found.processes if process.pid in pids),
    )


def _pids(daemon: Daemon) -> Iterator[int]:
    if daemon.pid is not None:
        yield daemon.pid
    yield from (server.pid for server in daemon.servers)


def _claimed(found: Finding, daemon: Daemon) -> Finding:
    """The same of another user's daemon, for whoever looks."""
    text = f"{claim_of(daemon, os.geteuid())}: {found.evidence}"
    if found.verdict in {"ok", "unknown"}:
        return replace(found, evidence=text, remedy="")
    remedy = found.remedy if found.remedy == OF_A_LIAR else left_to(daemon, os.geteuid())
    return replace(found, verdict="unknown", evidence=text, remedy=remedy)


def examine_logs(snapshot: Snapshot, log_dir: Path, faults: Sequence[float]) -> tuple[Finding, ...]:
    """What the logs of ``log_dir`` alone tell, from the ``snapshot`` that they come to; nothing of this machine.

    ``faults``: when fatal faults happened in them, seconds since the epoch.
    """
    logs = tuple(replace(_log(log_dir / name, None), free=None) for name in _LOGS if os.path.lexists(log_dir / name))
    facts = Facts(snapshot, BinaryFacts(None), logs=logs)
    found = [*setup.logs(facts), *sharing.past_faults(faults, path_text(log_dir)), *sharing.users(facts)]
    found += [finding for finding in sharing.from_status(facts) if finding.check in {"starting", "faults"}]
    text = "its logs alone were examined, and nothing of this machine"
    found.append(Finding("node", "unknown", path_text(log_dir), text, "On the node itself leave --log-dir out."))
    return tuple(sorted(found, key=lambda finding: -RANK[finding.verdict]))


def gather(snapshot: Snapshot, places: Sequence[Place], binary: Sequence[str]) -> Facts:
    """Reads /proc, the directories and the logs of ``snapshot``'s daemons; sets nothing, sends no command.

    Asks the binary what it knows, under a deadline of 5 s for each question. Takes some milliseconds otherwise; it may
    block on a slow file system. Not to be called where an event loop runs.
    """
    clients = [client for daemon in snapshot.daemons for client in daemon.clients() if client.local]
    # A simulated server is a small program, and its CPUs are this machine's.
    servers = [server for daemon in snapshot.daemons for server in daemon.servers if snapshot.source == "real"]
    server, trouble = (None, "") if snapshot.source == "simulated" else _server_binary(binary)
    return Facts(
        snapshot=snapshot,
        binary=_binary(binary),
        directories=tuple(_directory(place) for place in places),
        logs=tuple(
            _log(log, owners)
            for (log_dir, several), owners in {
                (place.log_dir, protocol_of(place.protocol, place.static_partitioning).named_servers): place.log_owners
                for place in reversed(places)
            }.items()
            if log_dir is not None
            for log in (*(log_dir / name for name in _LOGS), *(server_logs(log_dir, owners) if several else ()))
            # Before the first server there is no server.log, and nothing is wrong.
            if log == log_dir / "control.log" or not os.path.lexists(log_dir / "control.log") or os.path.lexists(log)
        ),
        processes=tuple(_processes(snapshot)),
        client_environments={client.pid: environment_of(client.key) for client in clients},
        cgroup_memory={client.pid: found for client in clients if (found := read_cgroup_memory(client.pid))},
        platform=_platform(),
        server_cpus={server.pid: _cpus_of(server.pid) for server in servers},
        debugged=tuple(_debugged()),
        server_binary=server,
        server_trouble=trouble,
        strays=tuple(_strays(snapshot)),
        shm=_shm(),
        counting=_counting(snapshot),
        dcgm=None if snapshot.source == "simulated" or not load_config()[0].dcgm else dcgm_trouble(),
    )


def _counting(snapshot: Snapshot) -> tuple[str, str | None]:
    """How launches are counted, and why not."""
    if snapshot.source == "simulated":
        return "counters of the simulated node, SIMULATED", None
    from mpstui.observe.activity import trouble

    return trouble()


def _binary(command: Sequence[str]) -> BinaryFacts:
    name = command[0] if command else PROGRAM
    try:
        path = find_program(name)
    except ProgramError as error:
        return BinaryFacts(None, trouble=f"{printable(name)} cannot be run: {error.why}")
    shown = printable(shown_program(command) if len(command) > 1 else path)
    found = asyncio.run(look(command, patience(_VERSION_SECONDS)))
    if found.missing:
        return BinaryFacts(None, trouble=found.trouble.rstrip("."))
    return BinaryFacts(shown, found.version, found.trouble.rstrip("."), found.options)


def _server_binary(command: Sequence[str]) -> tuple[str | None, str]:
    """Where the daemon finds it, beside the control binary or on PATH, and why root should not let a daemon start it;
    or why there is none on PATH. It is never run."""
    name = command[0] if command else PROGRAM
    try:
        path = find_program(name)
    except ProgramError:
        return None, ""
    beside = os.path.join(os.path.dirname(os.path.realpath(path)), _SERVER)
    if os.path.isfile(beside) and os.access(beside, os.X_OK):
        # Whoever has named the control binary whole has named its folder.
        judged = os.geteuid() == 0 and "/" not in name
        return beside, why_not_roots(beside) if judged else ""
    try:
        return find_program(_SERVER), ""
    except ProgramError as error:
        return "", "" if error.why == MISSING else error.why


def _platform() -> PlatformFacts:
    tree = read_proc("/proc/device-tree/compatible", 1 << 12) or b""
    tegra = b"nvidia,tegra" in tree or os.path.exists("/etc/nv_tegra_release")
    return PlatformFacts(os.uname().sysname, 64 if sys.maxsize > 1 << 32 else 32, tegra)


def _cpus_of(pid: int) -> int | None:
    try:
        return len(os.sched_getaffinity(pid))
    except OSError:
        return None


def _debugged() -> Iterator[Debugged]:
    """Processes under a debugger for CUDA. Costs a read for each process, another where there is such a debugger."""
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    names = {pid: (read_proc(f"/proc/{pid}/comm", 16) or b"").rstrip(b"\n") for pid in pids}
    tracers = {pid: name for pid, name in names.items() if name.startswith(_DEBUGGERS)}
    for pid in pids if tracers else ():
        for line in proc_lines(f"/proc/{pid}/status", 1 << 14):
            if line.startswith(b"TracerPid:") and (by := int(line.split()[1])) in tracers:
                yield Debugged(pid, printable(tracers[by]), by)


def _directory(place: Place) -> DirectoryFacts:
    owner = mode = None
    try:
        found = os.stat(place.pipe_dir)
        owner, mode = found.st_uid, stat.S_IMODE(found.st_mode)
    except (OSError, ValueError):
        pass  # the place's own detail says why
    return DirectoryFacts(
        pipe_dir=place.pipe_dir,
        state=place.state,
        detail=place.detail,
        remedy=place.remedy,
        owner=owner,
        daemon_uid=place.uid if place.state == "running" else None,
        mode=mode,
        filesystem=filesystem_of(place.pipe_dir, read_proc("/proc/self/mountinfo") or b""),
        length=len(os.fsencode(place.pipe_dir)),
        ours=is_ours(place.pipe_dir),
    )


def is_ours(path: Path) -> bool:
    """Whether a directory is root's or this user's own, and nobody else can change where its name leads."""
    own = {0, os.geteuid()}
    try:
        judge_directory(path.parent, own)
        found = os.lstat(path)
    except (NotTrustedError, OSError, ValueError):
        return False
    return found.st_uid in own and stat.S_ISDIR(found.st_mode)


def filesystem_of(path: Path, mountinfo: bytes) -> str | None:
    """The type of the file system that ``path`` is on, by the longest mount point that leads to it; None in another
    process' root, whose mounts are others."""
    best, kind = -1, None
    real = os.fsencode(real_path(path))
    if INSIDE.match(os.fsencode(path)):
        return None
    for line in lines_of(mountinfo):
        fields, _, rest = line.partition(b" - ")
        words = fields.split()
        if len(words) < 5 or not rest:
            continue
        point = re.sub(rb"\\([0-7]{3})", lambda m: bytes([int(m[1], 8) & 0xFF]), words[4])
        under = real == point or real.startswith(point.rstrip(b"/") + b"/")
        if under and len(point) >= best:  # of two on one point the later one is on top
            best, kind = len(point), rest.split()[0].decode("ascii", "replace")
    return kind


def _log(path: Path, owners: Owners | None) -> LogFacts:
    try:
        fd = open_log(path, owners)
    except UnreadableLogError as error:
        return LogFacts(path, error.reason, believed=not error.not_believed)
    try:
        found = os.fstat(fd)
        tail = os.pread(fd, _TAIL, max(0, found.st_size - _TAIL))
        space = os.fstatvfs(fd)
        return LogFacts(path, None, found.st_size, growth(tail), space.f_bavail * space.f_frsize)
    except OSError as error:
        return LogFacts(path, error.strerror or "it cannot be read")
    finally:
        os.close(fd)


def growth(tail: bytes) -> float | None:
    """Bytes an hour of a log whose end is ``tail``; None where it spans less than a minute or has no times."""
    clock, times = Clock(), []
    for line in tail.split(b"\n"):
        if line[:1] == b"[" and line[24:25] == b" ":
            try:
                times.append(clock.read(line[1:24]))
            except (ValueError, OverflowError):
                continue
    if len(times) < 2 or times[-1] - times[0] < 60:
        return None
    return len(tail) * 3600 / (times[-1] - times[0])


def _processes(snapshot: Snapshot) -> Iterator[ProcessLimits]:
    for daemon in snapshot.daemons:
        if daemon.pid is not None:
            yield ProcessLimits(daemon.pid, "daemon", _open_files(daemon.pid), read_environment(daemon.pid))
        for server in daemon.servers:
            yield ProcessLimits(server.pid, "server", _open_files(server.pid), read_environment(server.pid))


def _open_files(pid: int) -> int | None:
    for line in proc_lines(f"/proc/{pid}/limits", 1 << 14):
        if line.startswith(b"Max open files"):
            words = line.split()
            return int(words[3]) if len(words) > 3 and words[3].isdigit() else None
    return None


def _strays(snapshot: Snapshot) -> Iterator[Stray]:
    """Dead MPS processes that nobody has collected, and servers whose parent is no control daemon; beside a simulated
    node its own servers alone, for this machine's others are not simulated."""
    own = {os.fspath(daemon.pipe_dir) for daemon in snapshot.daemons} if snapshot.source == "simulated" else None
    servers = []
    for name in os.listdir("/proc"):
        if not name.isdigit() or not (read_proc(f"/proc/{name}/comm", 16) or b"").startswith(_COMM):
            continue
        pid = int(name)
        if own is not None and (read_environment(pid) or {}).get("CUDA_MPS_PIPE_DIRECTORY") not in own:
            continue
        try:
            found = read_stat(pid)
        except HiddenProcessError:
            continue
        if found is None:
            continue
        if found.gone:
            yield Stray(pid, "process", True, _parent(pid), _another(pid))
            continue
        arguments = read_arguments(pid) or []
        if arguments and os.path.basename(os.fsdecode(arguments[0])) == _SERVER:
            servers.append((pid, _parent(pid)))
    running = running_daemons()  # after the servers: of one that has just started the daemon is among them
    for daemon in running:
        if daemon.pipe_dir is not None and unprintable(daemon.pipe_dir) is not None:
            yield Stray(daemon.key.pid, "daemon", False, uid=_another(daemon.key.pid), unprintable=True)
    daemons = {daemon.key.pid for daemon in running}
    for pid, parent in servers:
        if parent not in daemons and _parent(pid) == parent:  # and has not ended with it meanwhile
            yield Stray(pid, "server", False, parent, _another(pid))


def _another(pid: int) -> int | None:
    """Whose the process is, where that is neither root nor oneself."""
    uid = real_uid(pid)
    return None if uid in {0, os.geteuid()} else uid


def _parent(pid: int) -> int | None:
    for line in proc_lines(f"/proc/{pid}/status", 1 << 14):
        if line.startswith(b"PPid:"):
            return int(line.split()[1])
    return None


def _shm() -> ShmFacts:
    try:
        found, space = os.stat(SHM), os.statvfs(SHM)
    except OSError:
        return ShmFacts(False)
    return ShmFacts(True, stat.S_IMODE(found.st_mode), space.f_bavail * space.f_frsize)
