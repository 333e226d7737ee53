"""Stand-ins for NVML and /proc that tell of a simulated node what the real ones would."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from operator import is_
from pathlib import Path
from typing import Any, Final, NamedTuple

from mpstui.core.late import dataclass
from mpstui.core.model import Device, ProcessKey
from mpstui.core.text import error_text, path_text, printable
from mpstui.core.where import Cgroup, PodName, Where, find_where
from mpstui.core.xid import Xid, parse_line
from mpstui.observe.sources import LaunchReading, NvmlSample, ProcessSource
from mpstui.sim.marker import is_simulated, owners
from mpstui.sim.simd.config import (
    LOAD,
    MIB,
    SERVER_MEMORY,
    STATE,
    Gpu,
    read_json,
    read_marker,
    write_marker,
)
from mpstui.sim.simd.process import start_ticks
from mpstui.system.procfs import ProcessFacts

_DRIVER_RESERVED: Final = 487 * MIB
"""What the driver itself takes of a device's memory."""
_IDLE_WATTS: Final = 71.0
_FULL_WATTS: Final = 640.0
_LIMIT_WATTS: Final = 700.0
_IDLE_CELSIUS: Final = 31.0
_CLIENT_LIMIT: Final = 4096
_GONE_LIMIT: Final = 256
"""Clients that no daemon tells of any more and of whom it is remembered what they stood for."""
_LOOKS: Final = 16
"""Clients looked up at each reading of whom it is known that they were there."""
_XID_LOOK: Final = 0.25
"""Seconds between two looks for Xids; NVML tells of one about 0.02 s after the log does (fact 38)."""


@dataclass(frozen=True)
class _Process:
    """A client as the state file tells of it."""

    pid: int
    start_ticks: int | None
    uid: int
    user: str | None
    command: str
    container: str | None
    cgroup: str | None
    namespace: int | None
    busy: bool
    sm_count: int
    used_sms: int | None
    """What its kernels are on, where it says so."""
    dram: int
    since: float
    memory: Mapping[str, int]
    mps: bool = True
    """Without MPS it takes turns with everybody else on its device."""


_IN_TURNS: Final = 0.826
"""What four programs bound by memory reached of its bandwidth without MPS, of one alone (fact 24)."""


@dataclass(frozen=True)
class _State:
    servers: Mapping[int, int]
    """PID to UID."""
    clients: Mapping[int, _Process]


_NOTHING: Final = _State({}, {})


class _States:
    """What is on the devices of one machine, from the state files of several pipe directories."""

    def __init__(self, pipe_dirs: Path | Sequence[Path]) -> None:
        self.dirs = (pipe_dirs,) if isinstance(pipe_dirs, Path) else tuple(pipe_dirs)
        self._readers = [_StateReader(directory) for directory in self.dirs]
        self._merged: tuple[list[_State], _State] = ([], _NOTHING)

    def add(self, pipe_dir: Path) -> None:
        self.dirs += (pipe_dir,)
        self._readers.append(_StateReader(pipe_dir))

    def read(self, orphans: bool = False) -> _State:
        states = [reader.read(orphans) for reader in self._readers]
        if len(states) == 1:
            return states[0]
        if len(states) == len(self._merged[0]) and all(map(is_, states, self._merged[0])):
            return self._merged[1]  # the same object until something has changed
        servers = {pid: uid for state in states for pid, uid in state.servers.items()}
        merged = _State(servers, {pid: client for state in states for pid, client in state.clients.items()})
        self._merged = states, merged
        return merged


class _StateReader:
    """Reads the state file when it has changed; a daemon that is gone has no processes."""

    def __init__(self, pipe_dir: Path) -> None:
        self._path = pipe_dir / STATE
        self._stamp: tuple[int, int, int] | None = None
        self._state = _NOTHING
        self._daemon: tuple[int, int | None] = (0, None)

    def read(self, orphans: bool = False) -> _State:
        """The present state, empty where there is none that can be believed.

        ``orphans``: of a daemon that is gone, too; its clients' processes may live on.
        """
        try:
            found = self._path.lstat()
            stamp = (found.st_mtime_ns, found.st_ino, found.st_size)
            if stamp != self._stamp:
                self._stamp = stamp
                self._state, self._daemon = _parse(read_json(self._path, owners()))
        except (OSError, ValueError):
            self._stamp = None
            return _NOTHING
        pid, ticks = self._daemon
        return self._state if orphans or (ticks is not None and start_ticks(pid) == ticks) else _NOTHING


def _parse(raw: Any) -> tuple[_State, tuple[int, int | None]]:
    """Raises ValueError for what is not a state file."""
    try:
        clients = [_process(entry) for entry in raw["clients"][:_CLIENT_LIMIT]]
        servers = {int(entry["pid"]): int(entry["uid"]) for entry in raw["servers"][:_CLIENT_LIMIT]}
        daemon = raw["daemon"]
        return _State(servers, {c.pid: c for c in clients}), (int(daemon["pid"]), int(daemon["start_ticks"]))
    except (KeyError, TypeError, AttributeError, OverflowError) as error:
        raise ValueError("not a state file") from error


def _process(entry: Mapping[str, Any]) -> _Process:
    container, namespace, ticks, user = (entry[key] for key in ("container", "namespace", "start_ticks", "user"))
    cgroup = entry.get("cgroup")
    return _Process(
        pid=int(entry["pid"]),
        start_ticks=None if ticks is None else int(ticks),
        uid=int(entry["uid"]),
        user=None if user is None else printable(str(user), 64),
        command=printable(str(entry["command"]), 1000),
        container=None if container is None else printable(str(container), 64),
        cgroup=None if cgroup is None else str(cgroup)[:1000],
        namespace=None if namespace is None else int(namespace),
        busy=entry["busy"] is True,
        sm_count=int(entry["sm"]),
        used_sms=None if entry.get("used_sms") is None else int(entry["used_sms"]),
        dram=int(entry.get("dram", 0)),
        since=float(entry["since"]),
        memory={str(uuid): int(size) for uuid, size in entry["memory"].items()},
    )


class _Lists(NamedTuple):
    """What NVML lists while nothing changes."""

    state: _State
    clients: Mapping[str, Mapping[int, int]]
    processes: Mapping[str, Mapping[int, int]]
    used: Mapping[str, int]
    """Bytes of each device's memory, of all processes."""
    loads: Mapping[str, tuple[float, float] | None]
    """Of each device the parts of its SMs and of its memory's bandwidth that are in use; None: nobody is busy there."""


class SimNvml:
    """The devices of a simulated node. Readings follow from the time and from who is busy: nothing writes them.

    Several pipe directories are several daemons on the devices of the first (fact 20).
    """

    def __init__(self, pipe_dirs: Path | Sequence[Path], clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._state = _States(pipe_dirs)
        self._pipe_dir = self._state.dirs[0]
        self._gpus: tuple[Gpu, ...] = ()
        self._alive: dict[int, int | None] = {}
        """The start ticks of clients that were there when they were looked up last."""
        self._turn = 0
        self._clients: tuple[_State, list[_Process]] = (_NOTHING, [])
        """Those of a state, without whoever was not there when looked up."""
        self._lists: tuple[_Lists, list[_Process], list[_Process]] | None = None
        """What NVML lists, and of which clients and workers."""

    def sample(self) -> NvmlSample:
        """A reading; ``error`` says so where the node is gone."""
        now = self._clock()
        try:
            if not is_simulated(self._pipe_dir):  # another one may be in its place
                raise FileNotFoundError
            self._gpus = self._gpus or read_marker(self._pipe_dir)
        except OSError:
            self._gpus, self._lists = (), None
            return NvmlSample(now, error=f"the simulated node in {path_text(self._pipe_dir)} is gone")
        except ValueError as error:
            why = f"the marker in {path_text(self._pipe_dir)} is not right: {error_text(error)}"
            return NvmlSample(now, error=why)
        lists = self._listed()
        return NvmlSample(
            time=now,
            driver_version=self._gpus[0].driver,
            devices=tuple(_device(gpu, lists, now) for gpu in self._gpus),
            mps_clients=lists.clients,
            processes=lists.processes,
        )

    def _listed(self) -> _Lists:
        """What the devices' lists come to; the same object until something has changed."""
        state = self._state.read()
        clients = self._living(state)
        outside = [found for directory in self._state.dirs for found in _outside(directory, self._gpus)]
        known = self._lists
        if known is not None and known[0].state is state and known[1] is clients and known[2] == outside:
            return known[0]
        members = self._members(clients)
        servers = dict.fromkeys(state.servers, SERVER_MEMORY)
        processes = {
            uuid: {
                **servers,
                **{pid: size for pid, size in mine.items() if size},
                **{process.pid: process.memory[uuid] for process in outside if uuid in process.memory},
            }
            for uuid, mine in members.items()
        }
        busy = [process for process in (*state.clients.values(), *outside) if process.busy]
        loads = {
            gpu.uuid: _loads([process for process in busy if gpu.uuid in process.memory], gpu.sm_count)
            for gpu in self._gpus
        }
        used = {uuid: sum(sizes.values()) for uuid, sizes in processes.items()}
        lists = _Lists(state, members, processes, used, loads)
        self._lists = lists, clients, outside
        return lists

    def set_compute_mode(self, uuid: str, mode: str) -> str | None:
        """As nvidia-smi does on a real node; nothing here keeps to it."""
        try:
            gpus = read_marker(self._pipe_dir)
            here = "_".join(word.capitalize() for word in mode.split("_"))
            self._gpus = tuple(gpu._replace(compute_mode=here) if gpu.uuid == uuid else gpu for gpu in gpus)
            write_marker(self._pipe_dir, self._gpus)
        except (OSError, ValueError) as error:
            return error_text(error)
        return None if any(gpu.uuid == uuid for gpu in gpus) else f"there is no device {printable(uuid, 60)}"

    def add(self, pipe_dir: Path) -> None:
        """One more daemon on these devices."""
        self._state.add(pipe_dir)

    def steady(self) -> NvmlSample:
        """See NvmlSource: everything is as cheap here."""
        return self.sample()

    def rated(self) -> NvmlSample:
        """The same: a simulated device tells everything at once."""
        return self.sample()

    def membership(self) -> dict[str, dict[int, int | None]]:
        """Only the clients; empty where the node is gone."""
        try:
            self._gpus = self._gpus or read_marker(self._pipe_dir)
        except (OSError, ValueError):
            return {}
        return {uuid: dict(members) for uuid, members in self._members(self._living(self._state.read())).items()}

    def close(self) -> None:
        """Nothing is held open."""

    def _members(self, clients: Sequence[_Process]) -> dict[str, dict[int, int]]:
        """Each client under each device, with 0 where it has no context (fact 34). A daemon in another PID namespace
        counts its processes by other numbers: they are not here."""
        return {gpu.uuid: {c.pid: c.memory.get(gpu.uuid, 0) for c in clients} for gpu in self._gpus}

    def _living(self, state: _State) -> list[_Process]:
        """The clients whose processes are there; the same list until something has changed. The daemon tells of the end
        of a client as soon as it sees it, so of many those that were there are looked up by turns."""
        known, clients = self._clients
        begin, same = self._turn, state is known
        if not same:
            clients = [client for client in state.clients.values() if client.memory]
        self._turn = (begin + _LOOKS) % max(1, len(clients))
        due = [clients[(begin + number) % len(clients)] for number in range(min(_LOOKS, len(clients)))]
        if not same:
            due += [client for client in clients if self._alive.get(client.pid, -1) != client.start_ticks]
        gone = {client.pid for client in due if client.start_ticks != start_ticks(client.pid)}
        if gone or not same:
            clients = [client for client in clients if client.pid not in gone]
            self._clients, self._alive = (state, clients), {client.pid: client.start_ticks for client in clients}
        return clients


class SimXids:
    """What NVML and the kernel would say of the faults of a simulated node: its daemons write both into their state."""

    def __init__(self, pipe_dirs: Path | Sequence[Path], rest: Callable[[float], object] = time.sleep) -> None:
        """``rest`` waits that many seconds."""
        self._paths = [path / STATE for path in ((pipe_dirs,) if isinstance(pipe_dirs, Path) else pipe_dirs)]
        self._rest = rest
        self._stamps: dict[Path, tuple[int, int, int]] = {}
        self._told: set[tuple[float, str]] = set()

    def past(self) -> list[Xid]:
        """As the kernel's log would have them."""
        return self._read()

    def wait(self, seconds: float) -> list[Xid]:
        """Those that were not told yet; looks several times within ``seconds``."""
        for _ in range(max(1, round(seconds / _XID_LOOK))):
            if found := self._read():
                return found
            self._rest(min(seconds, _XID_LOOK))
        return []

    def close(self) -> None:
        """Nothing is held open."""

    def _read(self) -> list[Xid]:
        found: list[Xid] = []
        for path in self._paths:
            try:
                seen = path.lstat()
                stamp = (seen.st_mtime_ns, seen.st_ino, seen.st_size)
                if self._stamps.get(path) == stamp:
                    continue
                self._stamps[path] = stamp
                for entry in read_json(path, owners()).get("xids", ())[:_CLIENT_LIMIT]:
                    when, line = float(entry["time"]), str(entry["line"])
                    xid = parse_line(line, when)
                    if xid is not None and math.isfinite(when) and (when, line) not in self._told:
                        self._told.add((when, line))
                        found.append(replace(xid, uuid=printable(str(entry["uuid"]), 64)))
            except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError):
                continue
        return found


class SimLaunches:
    """Launches of the clients of a simulated node: a steady number a second for each that is busy."""

    how = "counters of the simulated node, SIMULATED"
    launch_seconds = 0.0

    def __init__(self, pipe_dirs: Path | Sequence[Path], clock: Callable[[], float] = time.monotonic) -> None:
        self._state = _States(pipe_dirs)
        self._clock = clock
        self._counts: dict[ProcessKey, float] = {}
        self._read_at = clock()

    def attach(self, keys: Collection[ProcessKey]) -> dict[ProcessKey, str]:
        """See ``mpstui.observe.activity.LaunchSource``."""
        self._count()
        known = self._known()
        self._counts = {key: self._counts.get(key, 0.0) for key in keys if key in known}
        return {key: "it is no process of the simulated node" for key in keys if key not in known}

    def read(self) -> LaunchReading:
        """See LaunchSource."""
        self._count()
        return LaunchReading(self._read_at, {key: int(count) for key, count in self._counts.items()})

    def detach(self) -> None:
        """Nothing is attached."""

    close = detach

    def _known(self) -> dict[ProcessKey, _Process]:
        outside = (found for directory in self._state.dirs for found in _outside(directory, ()))
        return {ProcessKey(c.pid, c.start_ticks): c for c in (*self._state.read().clients.values(), *outside)}

    def _count(self) -> None:
        before, self._read_at = self._read_at, self._clock()
        for key, process in self._known().items():
            if key in self._counts and process.busy:
                self._counts[key] += (self._read_at - before) * _launch_rate(process)


def _launch_rate(process: _Process) -> float:
    """A second, steady for each client: a training has some thousands (fact 41)."""
    return 900.0 + process.pid * 7919 % 9000


def _outside(pipe_dir: Path, gpus: Sequence[Gpu]) -> list[_Process]:
    """The simulated workers that compute without MPS: of these no daemon knows."""
    found: list[_Process] = []
    try:
        names = sorted(name for name in os.listdir(pipe_dir / LOAD) if name[0].isdigit() and name.endswith(".json"))
    except OSError:
        return []
    for file in (pipe_dir / LOAD / name for name in names[:_CLIENT_LIMIT]):
        try:
            entry, pid = read_json(file, owners()), int(file.stem)
            ticks = int(entry["start_ticks"])
            if entry["mps"] is not False or start_ticks(pid) != ticks:
                continue
            memory = {gpu.uuid: int(entry["memory"]) for gpu in gpus if gpu.index == int(entry["device"])}
            used, dram = int(entry["used_sms"]), int(entry["dram"])
        except (OSError, ValueError, TypeError, KeyError, OverflowError):
            continue
        found.append(
            _Process(
                pid, ticks, os.getuid(), None, "", None, None, None, True, used, used, dram, 0.0, memory, mps=False
            )
        )
    return found


def _device(gpu: Gpu, lists: _Lists, now: float) -> Device:
    used, busy = lists.used[gpu.uuid], lists.loads[gpu.uuid]
    load, dram_load = busy or (0.0, 0.0)
    wave = _wave(now, gpu.index)
    sm = _clamp(100 * load * (0.93 + 0.07 * wave), 99.0)
    occupancy = _clamp(sm * (0.46 + 0.05 * _wave(now, gpu.index + 7)))
    dram = _clamp(100 * dram_load * (0.95 + 0.05 * _wave(now, gpu.index + 13)))
    warm = sm / 100
    return Device(
        uuid=gpu.uuid,
        index=gpu.index,
        name=printable(gpu.name),
        pci_bus_id=f"00000000:{6 + gpu.index:02X}:00.0",
        sm_count=gpu.sm_count,
        compute_capability=gpu.compute_capability,
        memory_total=gpu.memory_total,
        memory_used=min(gpu.memory_total, _DRIVER_RESERVED + used),
        compute_mode=printable(gpu.compute_mode),
        mig=False,
        persistence=True,
        sm_utilization=round(sm, 1),
        sm_occupancy=round(occupancy, 1),
        dram_utilization=round(dram, 1),
        # The part of the time in which some kernel runs: one that launches again and again is enough for all of it.
        gpu_utilization=100.0 if busy is not None else 0.0,
        memory_utilization=round(min(100.0, 1.6 * dram)),
        power_watts=round(_IDLE_WATTS + warm * (_FULL_WATTS - _IDLE_WATTS) + wave, 1),
        power_limit_watts=_LIMIT_WATTS,
        temperature=round(_IDLE_CELSIUS + 34 * warm + 2 * _wave(now / 8, gpu.index)),
    )


def _loads(busy: Sequence[_Process], device_sms: int) -> tuple[float, float] | None:
    """The parts of the SMs and of the memory's bandwidth that are in use; None where nobody is busy. Whoever computes
    without MPS takes turns with the others: what is in use then is what each uses in its turn, less what the change of
    turns costs."""
    clients = [process for process in busy if process.mps]
    turns = [*([clients] if clients else []), *([process] for process in busy if not process.mps)]
    each = [_at_once(turn, device_sms) for turn in turns]
    if len(each) < 2:
        return each[0] if each else None
    return sum(sms for sms, _ in each) / len(each), _IN_TURNS * sum(dram for _, dram in each) / len(each)


def _at_once(busy: Sequence[_Process], device_sms: int) -> tuple[float, float]:
    total = max(1, device_sms)
    told = min(1.0, sum(c.used_sms for c in busy if c.used_sms is not None) / total)
    free = 1.0
    for client in busy:  # one that does not say it keeps a part of what the others leave
        if client.used_sms is None:
            free *= 1 - 0.55 * min(1.0, client.sm_count / total)
    others = (1 - free) * (1 - told)
    dram = sum(client.dram for client in busy) / 100
    return told + others, min(1.0, dram + 0.27 * others)


def _wave(now: float, phase: int) -> float:
    """Between -1 and 1, smooth, without a visible period."""
    return (math.sin(now / 3.7 + phase) + math.sin(now / 11.3 + 2.1 * phase) + math.sin(now / 29.0 + 0.7 * phase)) / 3


def _clamp(value: float, top: float = 100.0) -> float:
    return max(0.0, min(top, value))


class SimProcesses:
    """Facts of real processes, with who and what the simulated clients stand for laid over them.

    Identity stays the real one: PID and start ticks are those of the process that would be signalled.
    """

    def __init__(
        self, pipe_dirs: Path | Sequence[Path], real: ProcessSource, clock: Callable[[], float] = time.time
    ) -> None:
        self._state = _States(pipe_dirs)
        self._known: dict[int, _Process] = {}
        """Whom a process has stood for; it goes on to when its daemon is gone and another one keeps the state."""
        self._present: Mapping[int, _Process] = {}
        self._servers: Mapping[int, int] = {}
        """Of each server the UID that it serves; it runs as that user, and 0 is what serves everybody."""
        self._real = real
        self._clock = clock

    def add(self, pipe_dir: Path) -> None:
        """One more daemon whose clients stand for others."""
        self._state.add(pipe_dir)

    def facts(self, pids: Iterable[int]) -> dict[int, ProcessFacts]:
        """Facts by PID; a process that is gone is missing."""
        now = self._clock()
        state = self._state.read(orphans=True)
        present, self._servers = state.clients, state.servers
        if present is not self._present:
            before = {pid: client for pid, client in self._known.items() if pid not in present}
            for pid in tuple(before)[:-_GONE_LIMIT]:
                del before[pid]
            self._known, self._present = {**before, **present}, present
        return {pid: self._overlaid(facts, now) for pid, facts in self._real.facts(pids).items()}

    def _overlaid(self, facts: ProcessFacts, now: float) -> ProcessFacts:
        client = self._known.get(facts.key.pid)
        if client is None and (uid := self._servers.get(facts.key.pid)):
            user = next((each.user for each in self._present.values() if each.uid == uid and each.user), None)
            return replace(facts, uid=uid, user=user or (facts.user if facts.uid == uid else None))
        if client is None or client.start_ticks != facts.key.start_ticks:
            return facts
        return replace(
            facts,
            uid=client.uid,
            user=client.user or facts.user,
            command=client.command,
            container=client.container,
            where=None if client.cgroup is None else simulated_where(client.cgroup),
            pid_namespace=client.namespace,
            cpu_seconds=round(max(0.0, now - client.since) * _cpu_share(client), 2),  # in ticks, as the kernel counts
            vouched=True,
        )


@lru_cache(maxsize=256)
def simulated_where(cgroup: str) -> Where | None:
    """Where a simulated client belongs, as if its cgroup were root's: the part behind a ``#`` is what the kubelet
    would call it, ``/kubepods/pod<uid>/<id>#ml/train-0/trainer``."""
    path, _, told = cgroup.partition("#")
    names = [printable(part, 64) for part in told.split("/")] if told.count("/") == 2 else []
    name = PodName(*names) if names else None
    return find_where((Cgroup("", path),), lambda above: True, lambda uid, container: name)


def _cpu_share(client: _Process) -> float:
    """Of one core, steady for each client: a CUDA process spins while it waits for its kernels."""
    return (70 + client.pid * 7 % 31) / 100 if client.busy else (client.pid * 7 % 5) / 100
