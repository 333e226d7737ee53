"""Why a process is no client of MPS, or cannot become one; values in, sentences out, no I/O but :func:`gather`."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final, Literal, NamedTuple

from mpstui.core.faults import not_said
from mpstui.core.late import dataclass, pattern
from mpstui.core.limits import own_memory, own_numbers
from mpstui.core.model import (
    DEVICES_VARIABLE,
    MEMORY_VARIABLE,
    PARTITION_VARIABLE,
    Daemon,
    Device,
    LostClient,
    PendingClient,
    Server,
    Snapshot,
)
from mpstui.core.problems import MULTI_USER
from mpstui.core.text import UNKNOWN, format_size, owner, path_text, plural, printable
from mpstui.core.trust import as_yet, end_usurped
from mpstui.core.v3 import DEFAULT
from mpstui.doctor.program import Inside, Program, Shm, read_namespaces, read_program, shm_of
from mpstui.doctor.types import DEBUGGERS
from mpstui.observe.discovery import FileId, file_id
from mpstui.observe.sources import ProcessSource
from mpstui.plan.variables import CONTEXT_BYTES, meant
from mpstui.system.procfs import read_environment

Certainty = Literal["sure", "likely", "possible"]
_ORDER: Final[Mapping[Certainty, int]] = {"sure": 0, "likely": 1, "possible": 2}
_SHM: Final = 64 << 20
"""Bytes of /dev/shm below which a container's is too small: Docker's own default."""
_LEADING: Final = pattern(r"\+?(?:0*([1-9][0-9]*)|0+)")
_DIGITS: Final = 4
"""Of a number of a device; one with more is of none."""
_NO_DEVICES: Final = frozenset({"", "-1", "NoDevFiles", "void", "none"})
_DEBUGGERS: Final = (*DEBUGGERS, "compute-sanitizer", "cuda-memcheck")
_VARIABLE: Final = "CUDA_MPS_PIPE_DIRECTORY"
_NONE: Final = "no daemon of root's or of its user's"


class Reason(NamedTuple):
    """One thing that keeps it from being a client."""

    code: str
    """Stable."""
    certainty: Certainty
    text: str
    """A clause: ``no daemon runs in /tmp/x, where it looks``."""
    evidence: tuple[str, ...]
    remedy: str


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A daemon, as far as it matters to who wants to be its client."""

    daemon: Daemon
    id: FileId | None = None
    """Its pipe directory."""
    inner: Collection[FileId] = ()
    """The directories of its servers and namespaces, with protocol 3: who looks in one of them looks for it."""
    namespaces: Mapping[str, int] | None = None
    visible: str | None = None
    """Its own CUDA_VISIBLE_DEVICES; None where that is not set, or not known."""
    shm: Shm | None = None


class Diagnosis(NamedTuple):
    """What there is to say of one process."""

    program: Program
    reasons: tuple[Reason, ...]
    """The most certain first."""
    server: Server | None = None
    """Whose client it is."""
    daemon: Daemon | None = None
    """The daemon that it is a client of, or looks for; None where none is there."""

    @property
    def is_client(self) -> bool:
        return self.server is not None

    @property
    def sentence(self) -> str:
        """The whole in one sentence."""
        who = _who(self.program)
        if self.server is not None and self.daemon is not None:
            text = f"{who} is a client of server {self.server.pid} of the daemon in {path_text(self.daemon.pipe_dir)}"
            return f"{text}, but {self.reasons[0].text}." if self.reasons else f"{text}."
        if not self.reasons:
            return f"{who} is not a client of MPS. mpstui sees nothing that prevents it."
        first = self.reasons[0]
        if first.code == "pending":  # by the one word that a problem and an event have for it
            return f"{_who(self.program, 'Client')} {first.text.removeprefix('it ')}."
        if first.code == "unreadable":
            return f"{who} is not a client of MPS. The reason is not known: {first.text}."
        hedge = {"sure": "", "likely": "most likely ", "possible": "possibly "}[first.certainty]
        return f"{who} is not a client of MPS: {hedge}{first.text}."

    @property
    def remedy(self) -> str | None:
        return self.reasons[0].remedy if self.reasons else None


def gather(pid: int, snapshot: Snapshot, processes: ProcessSource | None = None) -> Diagnosis | None:
    """Reads what the process sees and what the daemons are, and says why; None where there is no such process.
    ``processes``: as of :func:`read_program`."""
    program = read_program(pid, processes=processes)
    if program is None:
        return None
    if snapshot.source == "simulated":  # its programs are stand-ins: they have no GPU, and no driver's library
        program = replace(program, devices=None, cuda=None)
    neighbours = [_neighbour(daemon) for daemon in snapshot.daemons]
    return answer(program, neighbours, snapshot)


def _neighbour(daemon: Daemon) -> Neighbour:
    pid = daemon.pid
    if pid is None:
        return Neighbour(daemon, file_id(daemon.pipe_dir))
    environment = read_environment(pid) or {}
    return Neighbour(
        daemon,
        file_id(daemon.pipe_dir),
        namespaces=read_namespaces(pid),
        visible=environment.get("CUDA_VISIBLE_DEVICES"),
        shm=shm_of(pid),
        inner=_inner(daemon),
    )


def _inner(daemon: Daemon) -> frozenset[FileId]:
    """The directories of a daemon's servers and namespaces by their names, PIPE/SERVER/NAMESPACE: where they are is the
    daemon's to say, and links lead nowhere."""
    if daemon.v3 is None:
        return frozenset()
    names = [(server.name,) for server in daemon.v3.servers]
    spaces = [(space.server, space.name) for space in daemon.v3.namespaces if space.name != DEFAULT]
    found = set()
    for parts in (*names, *spaces):
        if any("/" in part or part in {"", ".", ".."} for part in parts):
            continue
        with contextlib.suppress(OSError, ValueError):
            each = [os.lstat(daemon.pipe_dir.joinpath(*parts[:count])) for count in range(1, len(parts) + 1)]
            if all(stat.S_ISDIR(one.st_mode) for one in each):
                found.add((each[-1].st_dev, each[-1].st_ino))
    return frozenset(found)


def answer(program: Program, neighbours: Sequence[Neighbour], snapshot: Snapshot) -> Diagnosis:
    """Pure. A daemon of neither root's nor the process' own user counts for where it runs, and for whom: what it says
    of the process is that user's word, and nobody ends his process, or starts one, for that."""
    heard = [each for each in neighbours if each.daemon.counts_for(program.uid) and not each.daemon.lies()]
    for each in heard:
        for server in each.daemon.servers:
            for client in server.clients:
                mine = client.key == program.key and client.local
                if mine and snapshot.source == "simulated":  # it stands for somebody else's program
                    program = replace(program, user=client.user, command=client.command)
                if mine or (client.pid_here == program.pid and client.pid_here is not None):
                    return Diagnosis(program, tuple(_as_client(server, client.state, each.daemon)), server, each.daemon)
    for each in neighbours:
        if (role := _role(program, each.daemon, each in heard)) is not None:
            reason = Reason("is_mps", "sure", role, ("it serves clients, and is none",), "Nothing has to be done.")
            return Diagnosis(program, (reason,), None, each.daemon)
    if snapshot.source == "simulated":
        waiting: list[PendingClient | LostClient] = []
        for daemon in snapshot.daemons:
            waiting += [*daemon.pending, *daemon.lost]
        if (meant := next((one for one in waiting if one.key == program.key), None)) is not None:
            program = replace(program, user=meant.user, command=meant.command)
    mine_too = _looked_for(program, neighbours)
    usurped = [each.daemon for each in neighbours if each.daemon.usurped(program.uid)]
    reasons = sorted(_reasons(program, mine_too, heard, usurped, snapshot), key=lambda each: _ORDER[each.certainty])
    return Diagnosis(program, tuple(reasons), None, mine_too.daemon if mine_too is not None else None)


def _role(program: Program, daemon: Daemon, heard: bool) -> str | None:
    """What it is of MPS itself, one clause."""
    if program.pid == daemon.pid:
        return f"it is the daemon of {path_text(daemon.pipe_dir)} itself"
    ours = daemon.pid_there is None  # else the daemon's numbers are not the node's
    if ours and heard and any(server.key == program.key for server in daemon.servers):
        return f"it is a server of the daemon in {path_text(daemon.pipe_dir)}"
    return None


def _looked_for(program: Program, neighbours: Iterable[Neighbour]) -> Neighbour | None:
    """The daemon whose directory it looks in, by what that is and not by what it is called."""
    seen = program.pipe
    if seen is None or seen.id is None:
        return None
    near = list(neighbours)
    found = [each for each in near if each.id == seen.id] or [each for each in near if seen.id in each.inner]
    return found[0] if found else None


def _as_client(server: Server, state: str, daemon: Daemon) -> Iterator[Reason]:
    if state == "TERMINATED":
        yield Reason(
            "terminated", "sure", "its contexts were ended by terminate_client",
            ("each CUDA call of it gives error 810",), "End its process, and start it again.",
        )  # fmt: skip
    if server.fault is not None and not server.fault.confirmed:
        yield Reason(
            "fault_claimed", "possible", f"server.log reports a fault of server {server.pid}",
            (not_said(daemon, server.fault),), "End no process because of the log alone.",
        )  # fmt: skip
    elif server.status == "FAULT" or server.fault is not None:
        yield Reason(
            "fault", "sure", f"server {server.pid} is in FAULT",
            ("a fault of one client takes the contexts of every client that shares a GPU with it",),
            "See “mpstui suspects” and the screen Fault; every affected client has to end.",
        )  # fmt: skip


def _who(program: Program, what: str = "Process") -> str:
    about = [part for part in (program.user, program.command and printable(program.command, 60)) if part]
    return f"{what} {program.pid} ({', '.join(about)})" if about else f"{what} {program.pid}"


def _reasons(
    program: Program,
    looked_for: Neighbour | None,
    heard: Sequence[Neighbour],
    usurped: Sequence[Daemon],
    snapshot: Snapshot,
) -> Iterator[Reason]:
    running = [each for each in heard if each.daemon.runs and each.daemon not in usurped]
    yield from _of_waiting(program, heard)
    yield from _of_itself(program)
    yield from _of_place(program, looked_for, running, usurped)
    near = looked_for if looked_for in running else running[0] if len(running) == 1 else None
    if near is not None:
        yield from _of_daemon(program, near, snapshot)
        yield from _of_namespaces(program, near)
        yield from _of_numbers(program, near, snapshot)
    yield from _of_devices(program, near, snapshot)


def _of_waiting(program: Program, neighbours: Sequence[Neighbour]) -> Iterator[Reason]:
    for each in neighbours:
        where = path_text(each.daemon.pipe_dir)
        for pending in each.daemon.pending:
            if pending.key == program.key:
                after = f" behind server {pending.server_pid}" if pending.server_pid else ""
                ahead = ", ".join(map(str, pending.waits_for))
                yield Reason(
                    "pending", "sure", f"it waits in the daemon in {where}{after}",
                    (f"control.log: a server of another user runs; its clients: {ahead or 'none known'}",),
                    f"It goes on when those have ended; a daemon in {MULTI_USER} serves all users.",
                )  # fmt: skip
        for lost in each.daemon.lost:
            if lost.key == program.key:
                yield Reason(
                    "lost", "sure", f"its server {lost.server_pid} of {where} is gone",
                    ("each CUDA call of it gives error 806",), "End its process, and start it again.",
                )  # fmt: skip


def _of_itself(program: Program) -> Iterator[Reason]:
    if program.bits == 32:
        yield Reason(
            "32_bit", "sure", "it is a 32-bit program", ("its program file is ELF32",), "MPS serves 64-bit programs."
        )
    if program.tracer:
        cuda = program.tracer.startswith(_DEBUGGERS)
        yield Reason(
            "debugger", "likely" if cuda else "possible",
            f"a debugger holds it: {program.tracer}",
            ("TracerPid in /proc; the name is what that program calls itself",),
            "A program under cuda-gdb waits in cuInit until all clients of the server are gone: end them, or debug it "
            "without MPS.",
        )  # fmt: skip
    if os.path.basename((program.command or "").split(" ")[0]).startswith(_DEBUGGERS):
        yield Reason(
            "is_debugger", "likely", "it is a debugger: what it runs is, or would be, the client",
            ("its command names one",),
            "Ask about the program under it: that waits in cuInit until all clients of the server are gone.",
        )  # fmt: skip
        return
    if program.cuda is False:
        yield Reason(
            "no_cuda", "likely", "it has not loaded CUDA's driver library",
            ("no libcuda.so among what it has mapped",),
            "Nothing has to be done where it uses no GPU; else look again once it does.",
        )  # fmt: skip


def _of_place(
    program: Program, looked_for: Neighbour | None, running: Sequence[Neighbour], usurped: Sequence[Daemon]
) -> Iterator[Reason]:
    """Where it looks for a daemon, and what is there. ``usurped``: those of root's or of its user's that run, and in
    whose place another user answers."""
    seen = program.pipe
    if seen is None:
        if program.environment is None:
            yield Reason(
                "unreadable", "possible", "where it looks for a daemon cannot be read",
                ("its environment is its user's and root's alone",),
                "Run mpstui as root; where root is refused too, the system or the container hides it.",
            )  # fmt: skip
        return
    shown = path_text(seen.path, 160)
    evidence = _where_it_looks(program, seen, running, usurped)
    if looked_for is not None and looked_for in running:
        if seen.state == "closed" or seen.socket is False:
            yield Reason(
                "closed", "sure", f"its user does not get through to the daemon in {shown}", tuple(evidence),
                "Give that user access to the directory and its socket (0755, and 0666 for control).",
            )  # fmt: skip
        if (
            program.start_time is not None
            and looked_for.daemon.start_time is not None
            and program.start_time < looked_for.daemon.start_time
        ):
            yield Reason(
                "before_daemon", "likely", "it was started before the daemon",
                ("a program that does not find the daemon runs without MPS, and no error says so",),
                "Start it again.",
            )  # fmt: skip
        return
    sure: Certainty = "sure" if seen.state in {"there", "absent", "closed"} else "possible"
    same_name = [each for each in running if os.fspath(each.daemon.pipe_dir).rstrip("/") == seen.path.rstrip("/")]
    if same_name:
        yield Reason(
            "mount", sure,
            f"in the program's mount namespace, {shown} is not the daemon's directory",
            (*evidence, _inodes("mnt", program, same_name[0])),
            f"Mount the daemon's directory into its container as {shown}, with its socket.",
        )  # fmt: skip
        return
    if looked_for is not None and looked_for.daemon in usurped:
        daemon = looked_for.daemon
        if (still := as_yet(daemon)) is not None:
            yield Reason(
                "usurped", "possible", f"another user can change where it looks: {daemon.usurpation()}",
                (*evidence, still), end_usurped(daemon),
            )  # fmt: skip
            return
        yield Reason(
            "usurped", "sure", f"no program comes to the daemon in {shown}: {daemon.usurpation()}", tuple(evidence),
            f"{end_usurped(daemon)} Then start the program again, with that directory.",
        )  # fmt: skip
        return
    if looked_for is not None and looked_for.daemon.runs:
        whose = looked_for.daemon.whose(program.uid)
        yield Reason(
            "user", "sure", f"the daemon in {shown} serves {whose} alone",
            (*evidence, f"it belongs to {owner(program.user, program.uid)}, the daemon to {whose}"),
            "Start it again with the CUDA_MPS_PIPE_DIRECTORY of a daemon that serves its user.",
        )  # fmt: skip
        return
    if not running:
        text, remedy = f"{_NONE} runs", "Start one: mpstui daemon start."
        if usurped:
            text, remedy = f"no daemon runs in {shown}, where it looks", end_usurped(usurped[0])
    elif seen.state == "closed":
        text, remedy = (
            f"its user may not enter {shown}, where it looks",
            "Give that user access, or name another directory.",
        )
    else:
        text = f"no daemon runs in {shown}, where it looks"
        # Anybody starts daemons; one that is neither root's nor its own user's is not recommended.
        fit = [each.daemon for each in running if each.daemon.speaker.uid in {0, program.uid}]
        which = f"={path_text(fit[0].pipe_dir)}, as it is called there" if fit else " of a daemon that serves its user"
        remedy = f"Start it again with {_VARIABLE}{which}."
    yield Reason("no_daemon" if not running or seen.set else "no_variable", sure, text, tuple(evidence), remedy)


def _where_it_looks(
    program: Program, seen: Inside, running: Sequence[Neighbour], usurped: Sequence[Daemon]
) -> list[str]:
    shown = path_text(seen.path, 160)
    how = f"its {_VARIABLE} is {shown}" if seen.set else f"it has no {_VARIABLE}, so it looks in {shown}"
    found = [f"{how} (as it was started; it may have set another one since)"]
    if seen.detail:
        found.append(seen.detail)
    places = ", ".join(path_text(each.daemon.pipe_dir) for each in running)
    if places or not usurped:
        found.append(f"daemons run in: {places}" if places else f"{_NONE} runs on this node, as far as can be seen")
    for daemon in usurped:
        whose = daemon.who_answers(program.uid)
        found.append(daemon.usurpation() + (f"; {whose} may have made up any answer" if whose is not None else ""))
    misspelt = [name for name in program.environment or () if not seen.set and meant(name) == _VARIABLE]
    if misspelt:
        found.append(f"it has {printable(misspelt[0], 60)}, which is no variable of MPS: {_VARIABLE} is")
    return found


def _of_daemon(program: Program, near: Neighbour, snapshot: Snapshot) -> Iterator[Reason]:
    daemon = near.daemon
    others = [s for s in daemon.servers if s.clients and s.uid is not None and s.uid != program.uid]
    if others and not daemon.multiuser and program.uid is not None:
        server = others[0]
        count = len(server.clients)
        yield Reason(
            "server_user", "likely",
            f"server {server.pid} belongs to {owner(server.user, server.uid)}, and has clients",
            (f"one server runs at a time; it has {plural(count, 'client')}",),
            "It gets a server when these have ended: until then it waits, or its CUDA calls give error 807. In "
            f"{MULTI_USER} users share a server.",
        )  # fmt: skip
    if daemon.health in {"held", "blocked"} and daemon.condition.cause in {"terminated_twice", "quitting"}:
        yield Reason(
            "daemon", "likely", f"the daemon takes no new clients: {daemon.health_detail or daemon.health}",
            (f"health: {daemon.health}",), daemon.remedy or "See “mpstui status”.",
        )  # fmt: skip
    if any(server.status == "FAULT" or server.fault is not None for server in daemon.servers):
        yield Reason(
            "fault", "likely", "a server is in FAULT, and refuses new clients",
            ("error 807, until the last client that was hit has ended",), "mpstui end-lost",
        )  # fmt: skip
    if daemon.start_failures is not None:
        yield Reason(
            "no_server", "likely", "no server of the daemon starts",
            (daemon.start_failures.reason or "the logs that were read do not say why",), "See “mpstui doctor”.",
        )  # fmt: skip
    told = program.environment
    if daemon.static_partitioning and told is not None:
        named = told.get(PARTITION_VARIABLE)
        text = None
        if named is None:
            text = "the daemon has static partitions, and the program names none"
        elif daemon.partitions is not None and not any(each.is_named(named) for each in daemon.partitions.partitions):
            text = "the daemon has no static partition with the name that the program gives"
        if text is not None:
            has = f"{PARTITION_VARIABLE} is {printable(named, 120)}" if named else f"it has no {PARTITION_VARIABLE}"
            yield Reason(
                "partition", "sure", text, (f"{has}: CUDA error 915",),
                f"Start it with {PARTITION_VARIABLE}; “mpstui partition list” shows their names.",
            )  # fmt: skip
    limits = own_memory(
        (told or {}).get(MEMORY_VARIABLE),
        own_numbers(daemon.ordinals, (told or {}).get(DEVICES_VARIABLE)),
        daemon.ordinals,
    )
    if small := [size for size in (limits or {}).values() if size < CONTEXT_BYTES]:
        size = format_size(min(small))
        yield Reason(
            "small_limit", "possible", f"its own memory limit of {size} may be too small for a CUDA context",
            (f"{MEMORY_VARIABLE} is {printable((told or {})[MEMORY_VARIABLE], 80)}; a context counts towards it",),
            "Give it 1G or more.",
        )  # fmt: skip
    yield from _of_capacity(daemon, snapshot)


def _of_capacity(daemon: Daemon, snapshot: Snapshot) -> Iterator[Reason]:
    for device in _devices_of(daemon, snapshot):
        if device.contexts is not None and device.context_limit is not None and device.contexts >= device.context_limit:
            many = device.context_daemons
            yield Reason(
                "full", "possible" if many > 1 else "likely", f"{device.called} takes no more clients",
                (f"{device.contexts} of {device.context_limit} contexts are in use: error 46, or 808", *(
                    [f"they are of {many} daemons; whether the limit is for each or for all is not known"]
                    if many > 1 else []
                )), "End some clients.",
            )  # fmt: skip


def _of_namespaces(program: Program, near: Neighbour) -> Iterator[Reason]:
    daemon = near.namespaces or {}
    ours, theirs = program.namespaces, near
    shms = (program.shm.id if program.shm is not None else None, near.shm.id if near.shm is not None else None)
    if _differ("ipc", ours, daemon):
        if shms[0] is None or shms[0] != shms[1]:
            yield Reason(
                "ipc", "likely", "it is in another IPC namespace than the daemon, with a /dev/shm of its own",
                (_inodes("ipc", program, theirs),),
                "Run its container with the host's IPC (--ipc=host, hostIPC: true), or mount the daemon's /dev/shm.",
            )  # fmt: skip
    elif None not in shms and shms[0] != shms[1]:
        yield Reason(
            "other_shm", "possible", "it has another /dev/shm than the daemon",
            ("client and server share memory there, where the driver gives it a name",), "Mount the daemon's /dev/shm.",
        )  # fmt: skip
    if _differ("pid", ours, daemon) and program.pids and near.daemon.pid_there is not None:
        yield Reason(
            "pid", "possible", "it is in another PID namespace than the daemon, which is in one of its own",
            (_inodes("pid", program, theirs), f"its PIDs: {' → '.join(map(str, program.pids))}"),
            "The daemon calls such a client 0, and nobody can terminate it; share the PID namespace (hostPID: true).",
        )  # fmt: skip
    if _differ("user", ours, daemon):
        yield Reason(
            "user_namespace", "possible", "it is in another user namespace than the daemon",
            (_inodes("user", program, theirs),), "Run the container without user namespaces, or as the daemon's user.",
        )  # fmt: skip
    shm = program.shm
    if shm is not None and (shm.id is None or (shm.free is not None and shm.free < _SHM)):
        text = "it has no /dev/shm" if shm.id is None else f"its /dev/shm has {format_size(shm.free)} left"
        yield Reason(
            "shm", "likely", text, ("client and server share memory there",),
            "Give the container a larger one: --shm-size, or an emptyDir with medium: Memory.",
        )  # fmt: skip


def _of_numbers(program: Program, near: Neighbour, snapshot: Snapshot) -> Iterator[Reason]:
    """What it sees is numbered twice, by the daemon's variable and by its own; or it names what the daemon has not."""
    own = (program.environment or {}).get(DEVICES_VARIABLE)
    if own is None or own.split(",")[0].strip() in _NO_DEVICES:
        return
    theirs = None if near.visible is None else near.visible.split(",")
    uuids = [*near.daemon.ordinals.values()] or [each.uuid for each in snapshot.devices if theirs is None]
    count = len(uuids) if theirs is None else len(theirs)
    parts = [part.strip() for part in own.split(",")]
    evidence = (
        f"its {DEVICES_VARIABLE} is {printable(own, 80)}, the daemon's "
        + ("is not set" if near.visible is None else printable(near.visible, 80)),
        "a device number in the client counts the daemon's devices: 0 is the first one in the daemon's variable",
    )
    for index, part in enumerate(parts):
        if (wrong := _is_not_there(part, count, uuids)) is not None:
            left = "CUDA leaves it out, and all that come behind it" + ("" if index else ", so that none is left")
            yield Reason(
                "remap" if theirs is not None and _number(part) is not None else "not_visible",
                "possible" if index else "sure", wrong, (*evidence, left),
                f"Give it 0 to {count - 1}, or UUIDs of the daemon's devices." if count else "Give it UUIDs.",
            )  # fmt: skip
            return
    if (twice := _twice(parts, uuids)) is not None:
        left = "PyTorch sees no device if the variable names one twice"
        yield Reason("not_visible", "possible", f"it names {twice} twice", (*evidence, left), "Name each device once.")
        return
    numbers = _ordinals(own)
    if theirs is None or numbers is None:
        return
    if [theirs[number].strip() for number in numbers] != [str(number) for number in numbers]:
        gets = ", ".join(theirs[number].strip() for number in numbers)
        yield Reason(
            "remap", "possible", "daemon and client both renumber the devices",
            (*evidence, f"so it gets: {printable(gets, 80)}"),
            "Unset CUDA_VISIBLE_DEVICES for the daemon or for the client, or use UUIDs in the client's.",
        )  # fmt: skip


def _number(part: str) -> str | None:
    """The number that a word of CUDA_VISIBLE_DEVICES begins with, which is what CUDA is said to read of it (PyTorch
    reads “1gpu2” as 1, and “+0” as 0); None where it begins with none."""
    found = _LEADING.match(part)
    return (found[1] or "0") if found is not None else None


def _twice(parts: Sequence[str], uuids: Sequence[str]) -> str | None:
    """The device that the words name more than once, by its number or by its UUID; None where none is."""
    seen = set()
    for part in parts:
        number = _number(part)
        named = [uuid for uuid in uuids if part.startswith("GPU-") and uuid.startswith(part)]
        one = f"device {printable(number, 48)}" if number is not None else named[0] if len(named) == 1 else None
        if one is None:  # what comes behind a word that is none is left out
            return None
        if one in seen:
            return one
        seen.add(one)
    return None


def _is_not_there(part: str, count: int, uuids: Sequence[str]) -> str | None:
    """Why a word of CUDA_VISIBLE_DEVICES names no device of a daemon that has ``count``; None where it may."""
    shown = printable(part, 48)
    if (number := _number(part)) is not None:
        beyond = count and (len(number) > _DIGITS or int(number) >= count)
        return f"it asks for device {printable(number, 48)} of a daemon that has {count}" if beyond else None
    if part.startswith("GPU-"):
        known = [uuid for uuid in uuids if uuid.startswith("GPU-")] if len(uuids) >= count else []
        like = sum(uuid.startswith(part) for uuid in known)
        if not known or like == 1:
            return None
        why_not = f"with which {like} devices of the daemon begin" if like else "which is no device of the daemon"
        return f"it asks for {shown}, {why_not}"
    if not part or part.startswith("MIG-"):
        return None
    return f"it asks for “{shown}”, which is neither a number nor a UUID"


def _of_devices(program: Program, near: Neighbour | None, snapshot: Snapshot) -> Iterator[Reason]:
    if program.devices is not None and "nvidiactl" not in program.devices:
        yield Reason(
            "no_device", "sure", "it sees no GPU",
            (f"device files in its /dev: {', '.join(program.devices) or 'none of the driver'}",),
            "Give its container the GPUs (--gpus all, or a resource of the device plugin).",
        )  # fmt: skip
    visible = (program.environment or {}).get("CUDA_VISIBLE_DEVICES")
    if visible is not None and visible.split(",")[0].strip() in _NO_DEVICES:
        yield Reason(
            "no_visible", "sure", "its CUDA_VISIBLE_DEVICES hides every GPU",
            (f"CUDA_VISIBLE_DEVICES={printable(visible, 80)}",), "Unset it, or name a device.",
        )  # fmt: skip
    mine = _devices_of(near.daemon, snapshot) if near is not None else snapshot.devices
    for device in mine:
        name, capability = device.called, device.compute_capability
        if device.compute_mode == "Prohibited":
            yield Reason(
                "compute_mode", "sure", f"the compute mode of {name} is Prohibited", ("nobody may compute on it",),
                f"nvidia-smi -i {device.uuid} -c EXCLUSIVE_PROCESS",
            )  # fmt: skip
        elif device.exclusive:
            yield Reason(
                "exclusive", "possible", f"{name} is in compute mode Exclusive_Process: only MPS clients can use it",
                ("compute mode Exclusive_Process: without MPS it gets error 46",),
                f"Make the program find the daemon ({_VARIABLE}). Keep the compute mode: it is right for MPS.",
            )  # fmt: skip
        if capability is not None and capability < (3, 5):
            yield Reason(
                "architecture", "sure", f"{name} is too old for MPS",
                (f"compute capability {capability[0]}.{capability[1]}; 3.5 is needed",), "Use another GPU.",
            )  # fmt: skip
        elif capability is not None and capability < (7, 0):
            yield Reason(
                "pre_volta", "possible", f"{name} is older than Volta, where a server takes 16 clients and no limits",
                (f"compute capability {capability[0]}.{capability[1]}",),
                "Check that the server has at most 16 clients.",
            )  # fmt: skip
        if device.mig and "MIG-" not in (visible or ""):
            yield Reason(
                "mig", "possible", f"{name} is cut into MIG instances, and it names none",
                (f"CUDA_VISIBLE_DEVICES={UNKNOWN if visible is None else printable(visible, 80)}",),
                "Start daemon and client with the UUID of one instance (MIG-…) in CUDA_VISIBLE_DEVICES.",
            )  # fmt: skip


def _devices_of(daemon: Daemon, snapshot: Snapshot) -> list[Device]:
    uuids = set(daemon.ordinals.values())
    return [device for device in snapshot.devices if not uuids or device.uuid in uuids]


def _ordinals(visible: str) -> list[int] | None:
    """The numbers of a CUDA_VISIBLE_DEVICES, up to the first that is none; None where it names UUIDs, or nothing."""
    found: list[int] = []
    for part in visible.split(","):
        text = part.strip()
        if not (text.isascii() and text.isdecimal() and len(text) < 5):
            break
        found.append(int(text))
    return found or None


def _differ(name: str, ours: Mapping[str, int], theirs: Mapping[str, int]) -> bool:
    return name in ours and name in theirs and ours[name] != theirs[name]


def _inodes(name: str, program: Program, near: Neighbour) -> str:
    mine, theirs = program.namespaces.get(name), (near.namespaces or {}).get(name)
    return f"{name} namespace: its {mine or UNKNOWN}, the daemon's {theirs or UNKNOWN}"
