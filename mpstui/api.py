"""The Python interface of mpstui: open a node, look at it, follow it, read its events, change it.

    import mpstui.api

    with mpstui.api.open() as node:
        for daemon in node.snapshot().daemons:
            print(daemon.pipe_dir, daemon.health)

``async with`` gives an :class:`AsyncNode`, whose methods are the same ones, to be awaited. What is in ``__all__`` is
stable: names may come, none goes. Nothing of the screen is imported, neither textual nor rich. docs/api.md tells more.
"""

from __future__ import annotations

import asyncio
import io
import os
import signal
import threading
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager, suppress
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from mpstui.core.activity import ActivityLook, Launcher
from mpstui.core.model import (
    Client,
    Daemon,
    Device,
    Event,
    LogEvents,
    Problem,
    ProcessKey,
    Server,
    Snapshot,
    no_test_clients,
)
from mpstui.core.text import UNKNOWN, error_text, path_text
from mpstui.node import CONTROL_BINARY, UnusableNode, check_answers, named_dirs, open_node, real_processes
from mpstui.node import demo_node as demo_node
from mpstui.observe.sources import NvmlSample as NvmlSample
from mpstui.operations.types import SELECTORS, ExitStatus, Preview, Progress, Request, Result, Unable
from mpstui.system.trusted import UnreadableLogError, UnreadableNodeError

# Imported when they are used: a command that does something else pays for none of them.
if TYPE_CHECKING:
    from collections.abc import Mapping

    from mpstui.core.trust import Speaker
    from mpstui.doctor.health import Health
    from mpstui.doctor.types import Finding
    from mpstui.doctor.why import Diagnosis
    from mpstui.history.node import LogPlace, NodeLogs
    from mpstui.history.viewer import Recording, Viewer
    from mpstui.load.utilisation import Meter
    from mpstui.observe import watcher
    from mpstui.observe.sources import BlockingCalls, NodeSources
    from mpstui.operations import runner
    from mpstui.operations.load import OperatedLoad
    from mpstui.operations.operation import Operation
    from mpstui.operations.selectors import Selection
    from mpstui.plan.profile import DaemonProfile, Profile

__all__ = [
    "SELECTORS",
    "ActivityLook",
    "AsyncNode",
    "Client",
    "Daemon",
    "Device",
    "Event",
    "Events",
    "ExitStatus",
    "Launcher",
    "Node",
    "Preview",
    "Problem",
    "ProcessKey",
    "Request",
    "Result",
    "Server",
    "Snapshot",
    "Unavailable",
    "UnreadableNodeError",
    "UnusableNode",
    "health",
    "open",
    "operations",
    "read_stream",
    "select",
    "to_json",
]

T = TypeVar("T")
PathName = str | PathLike[str]
_BATCH = 500
"""Events that are read at a time for a reader that awaits them."""


def to_json(thing: Snapshot | Event | ActivityLook) -> dict[str, Any]:
    """What ``mpstui status --json`` prints of a snapshot, ``mpstui events --json`` of an event, ``mpstui activity
    --json`` of a look; see docs/schema."""
    from mpstui.fields import ACTIVITY, EVENT, SNAPSHOT, View, as_json

    if isinstance(thing, ActivityLook):
        return as_json(ACTIVITY, thing, View())
    if isinstance(thing, Snapshot):
        return as_json(SNAPSHOT, thing, View.of(thing))
    return as_json(EVENT, thing, View(place=None if thing.pipe_dir is None else path_text(thing.pipe_dir)))


def operations() -> dict[str, str]:
    """What can be asked of :meth:`Node.do`: what ``Request.action`` may be, with what it does in a sentence."""
    from mpstui.operations.registry import OPERATIONS

    return {each.id: each.help for each in OPERATIONS if not each.subject}


def health(pipe_dirs: Sequence[Path] = (), log_dirs: Sequence[Path] = ()) -> Health:
    """``status``, 0 where all is well, and ``reason``, one sentence: of the worst of these daemons, or of root's and
    one's own that run. No command is sent; may block on a slow file system."""
    from mpstui.doctor.health import probe

    return probe(pipe_dirs, log_dirs)


def select(kind: str, name: str) -> Selection:
    """The clients of a job, a pod, a unit, a cgroup or a file of PIDs; ``kind`` is one of ``SELECTORS``.

    ``.clients(daemon)`` are those of a daemon, by the kernel's word of now, ``.unknown(daemon)`` of how many it cannot
    be told, and why; ``.within`` goes into each ``Request``. Raises ``operations.check.Refused`` where nobody can be
    named so.
    """
    from mpstui.operations.selectors import select as chosen

    return chosen(kind, name)


def recording_schema() -> dict[str, Any]:
    """The JSON Schema of a line of a recording."""
    from mpstui.history.recording import line_schema

    return line_schema()


def may_know_more(request: Request, snapshot: Snapshot, status: ExitStatus | None) -> bool:
    """Whether the daemons' own word may tell more than the reading of what the request needs, which refused it with
    this ``status``: no refusal on the word of the logs alone. Words that are wrong, and a command that no driver here
    has, stay so."""
    wanted, asked = _operation(request), [daemon for daemon in snapshot.daemons if daemon.answers]
    if not asked or status is ExitStatus.USAGE or wanted.needs(request) is None:
        return False
    return not wanted.sends or any(daemon.lacking(wanted.sends) is None for daemon in asked)


def check_meant(pipe_dir: Path | None, named: Sequence[Path]) -> None:
    """Whether a program of one's own may become a client of the daemon that is in this directory now, MPS' own default
    for None: a server has all that its clients have on the GPU. Raises NotNamedError where it is another user's, and
    was not ``named``; what takes its place later is not seen."""
    from mpstui.core.trust import meant
    from mpstui.observe.discovery import DEFAULT_PIPE_DIR, Place, find_speaker
    from mpstui.system.memory import real_path

    where = pipe_dir or DEFAULT_PIPE_DIR
    wanted = real_path(where)
    if os.path.lexists(where / "control") and all(real_path(each) != wanted for each in named):
        meant([Place(where, "running", speaker=find_speaker(where))], lambda place: True, os.geteuid())


def why_not_its_number(key: ProcessKey, speaker: Speaker | None) -> str | None:
    """Why nothing may be run now with the number of this process, as the kernel has it: it is not there, its number is
    another one's, or the word of the daemon (``speaker``; None: it need not be its word) is not enough for its owner.
    None where it may."""
    from mpstui.core.trust import may_signal, why_not
    from mpstui.system.procfs import HiddenProcessError, process_uids, read_stat, user_name

    try:
        now = read_stat(key.pid)
    except HiddenProcessError:
        return f"mpstui cannot see if {key.pid} is still the same process"
    if now is None or now.gone or now.key != key:
        return f"process {key.pid} has ended: nothing is run with its PID"
    uids = process_uids(key.pid) or ()
    if speaker is None or may_signal(speaker, uids):
        return None
    return why_not(speaker, key.pid, " and ".join(user_name(uid) for uid in sorted(uids)) or UNKNOWN)


def check_roots_own(directory: Path) -> None:
    """Whether only root can have put anything into it. Raises Unavailable where another can, or it cannot be seen."""
    from mpstui.system.trusted import NotTrustedError, judge_directory

    try:
        judge_directory(directory, {0})
    except (OSError, NotTrustedError) as error:
        raise Unavailable(error_text(error)) from None


def modes_to_give_back(daemon: Daemon, snapshot: Snapshot, *, kept: bool = False) -> dict[str, str]:
    """UUID to compute mode: what the daemon's exclusive devices that no other one has get back when it stops. ``kept``:
    those alone whose mode before it started was written down."""
    from mpstui.daemons.modes import to_give_back

    return to_give_back(daemon, snapshot, kept=kept)


def modes_that_stay(daemon: Daemon, snapshot: Snapshot) -> dict[str, int]:
    """UUID to PID: the daemon's exclusive devices that stay so when it stops, since the daemon of that PID has them."""
    from mpstui.daemons.modes import that_stay

    return that_stay(daemon, snapshot)


def named_users() -> dict[int, str]:
    """Users by number, as they have been named in this process so far."""
    from mpstui.system import procfs

    return procfs.named_users()


def end_of_log(daemon: Daemon, name: str, most: int) -> tuple[bytes, bool]:
    """The last bytes of ``control.log`` or ``server.log``, ``most`` of them, and whether that is all of it. Only what
    its user, or root, wrote is read. Raises Unavailable."""
    from mpstui.system.trusted import UnreadableLogError, open_log, owners_of

    if daemon.log_dir is None:
        raise Unavailable("its directory is not known")
    try:
        with io.FileIO(open_log(daemon.log_dir / name, owners_of(daemon.uid))) as file:
            size = os.fstat(file.fileno()).st_size
            file.seek(max(0, size - most))
            return file.read(most), size <= most
    except OSError as error:
        raise Unavailable(error_text(error)) from None
    except UnreadableLogError as error:
        raise Unavailable(error.reason.removeprefix("not read: ")) from None


def audit_lines() -> int:
    """How many lines this process has written into the audit log."""
    from mpstui.operations.audit import AuditLog

    return AuditLog.written


def audit(**fields: object) -> str | None:
    """One line into the audit log, of a change that was asked for and refused before it came to :meth:`Node.do`; why it
    could not be written."""
    from mpstui.operations.audit import AuditLog, default_path

    return AuditLog(default_path()).write(**fields)


class Unavailable(Unable):
    """It cannot be had; the message is one sentence that says why, ``remedy`` what to do, ``status`` the exit status
    that says so."""

    def __init__(self, text: str, remedy: str = "", status: ExitStatus = ExitStatus.NO_DAEMON) -> None:
        super().__init__(text, status, remedy)


class Collector(Protocol):
    """Keeps the snapshot of a node up to date, for a screen; see :meth:`AsyncNode.live`."""

    @property
    def snapshot(self) -> Snapshot | None: ...

    def subscribe(self, callback: Callable[[Snapshot], None], /) -> Callable[[], None]:
        """Have ``callback`` called with each new snapshot, from any thread, until the returned function is called."""

    async def prime(self) -> Snapshot:
        """A first look in whatever event loop, before :meth:`start`; no daemon is asked."""

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    def watch(self, pipe_dir: Path, /) -> None:
        """Take one more directory in, whichever were named."""

    def request_refresh(self, pipe_dir: Path | None = None, /) -> None:
        """Ask the daemon, or all of them, now instead of when something is seen to change."""

    def heard(self, pipe_dir: Path, /) -> Snapshot | None:
        """The newest snapshot, with what the daemon's logs have told by now."""

    def changed(self, pipe_dir: Path, /) -> None:
        """A change of that daemon was made and read back."""

    def look_at(self, pipe_dir: Path | None, /) -> None:
        """Whose clients are shown: what nobody sees is read more rarely. None: any may be."""

    def watch_activity(self, idle_after: float | None = None) -> None:
        """Count everybody's kernel launches all the time; idle for longer than ``idle_after`` seconds is a problem."""

    async def activity(self, seconds: float, /) -> ActivityLook:
        """Count the kernel launches of everybody for so long."""


class Runner(Protocol):
    """The operations with their safety rules, for a screen; see :attr:`AsyncNode.runner`."""

    @property
    def read_only(self) -> bool: ...

    @property
    def actions(self) -> tuple[Operation, ...]: ...

    def unavailable(
        self, action: Operation, snapshot: Snapshot | None, pipe_dir: Path, clients: Sequence[ProcessKey] = (), /
    ) -> str | None:
        """Why the action cannot be used now, in one sentence; None where it can."""

    def preview(self, request: Request, snapshot: Snapshot, /) -> Preview: ...

    async def execute(self, request: Request, snapshot: Snapshot, progress: Progress = ..., /) -> Result: ...

    def refuse(self, request: Request, why: str, status: ExitStatus, /) -> Result:
        """See :meth:`AsyncNode.refuse`."""


def _operation(request: Request) -> Operation:
    from mpstui.operations.registry import operation

    try:
        return operation(request.action)
    except KeyError:
        raise ValueError(f"there is no operation {request.action!r}; there are: {', '.join(operations())}") from None


def open(
    pipe_dirs: Sequence[PathName] = (),
    *,
    demo: str | bool | None = None,
    log_dirs: Sequence[PathName] = (),
    refresh: float | None = None,
    read_only: bool | None = None,
    recording: PathName | None = None,
    speed: float = 1.0,
) -> Opening:
    """The node, for ``with`` or ``async with``.

    ``pipe_dirs``: the daemons' pipe directories; without them CUDA_MPS_PIPE_DIRECTORY, then discovery. ``demo``: a
    simulated node that is started for this and ended with it, ``True`` or the name of one on which something is wrong.
    ``log_dirs``: where the daemons' logs are; without ``pipe_dirs`` and ``demo``, ``events`` and ``past`` read these
    alone. ``refresh``: seconds between two readings of NVML and /proc while it is watched; None: one for each 256
    processes, five at most. ``read_only``: nothing is changed; None: as the configuration says. ``recording``: a file
    of ``mpstui record`` in the place of a node, for a screen; ``speed`` is how fast it plays, 0 not at all.

    Entering it raises UnusableNode where that cannot be.
    """
    places = [tuple(Path(path).absolute() for path in paths) for paths in (pipe_dirs, log_dirs)]
    scenario = "demo" if demo is True else demo or None
    if scenario is not None and pipe_dirs:
        raise ValueError("demo has its own pipe directory; leave out pipe_dirs")
    opening = Opening(places[0], places[1], scenario, refresh, read_only)
    if recording is not None:
        opening.play(Path(recording).absolute(), speed)
    return opening


class Opening:
    """A node that is not open yet: ``with`` it, or ``async with`` it."""

    def __init__(
        self,
        pipe_dirs: tuple[Path, ...],
        log_dirs: tuple[Path, ...],
        demo: str | None,
        refresh: float | None,
        read_only: bool | None,
    ) -> None:
        self._pipe_dirs = pipe_dirs
        self._rest = log_dirs, refresh, read_only
        self._demo = demo
        self._held = ExitStack()
        self._open: AsyncNode | None = None
        self._sync: Node | None = None
        self._recording: tuple[Path, float] | None = None

    def play(self, recording: Path, speed: float) -> None:
        """A recording in the place of a node."""
        self._recording = recording, speed

    def _begin(self) -> AsyncNode:
        dirs, demo = self._pipe_dirs, self._demo is not None
        if self._demo is not None:
            dirs = (self._held.enter_context(demo_node(self._demo)),)
        self._open = AsyncNode(dirs, *self._rest, demo=demo)
        return self._open

    def unentered(self) -> AsyncNode:
        """For a screen, which starts and ends what :meth:`AsyncNode.live` gives; there is nothing else to be ended."""
        return AsyncNode(self._pipe_dirs, *self._rest, recording=self._recording)

    def __enter__(self) -> Node:
        self._sync = Node(self._begin())
        return self._sync

    def __exit__(self, *_: object) -> None:
        with self._held:
            if self._sync is not None:
                self._sync.close()

    async def __aenter__(self) -> AsyncNode:
        return await asyncio.to_thread(self._begin)

    async def __aexit__(self, *_: object) -> None:
        try:
            if self._open is not None:
                await self._open.close()
        finally:
            await asyncio.to_thread(self._held.close)


class AsyncNode:
    """An open node; its methods belong to one event loop. Made by :func:`open`."""

    def __init__(
        self,
        pipe_dirs: tuple[Path, ...],
        log_dirs: tuple[Path, ...],
        refresh: float | None,
        read_only: bool | None,
        *,
        demo: bool = False,
        recording: tuple[Path, float] | None = None,
    ) -> None:
        self._recording = recording
        self._viewer: Viewer | None = None
        self._pipe_dirs = pipe_dirs
        self.named = named_dirs(pipe_dirs)
        """The pipe directories that were asked for, CUDA_MPS_PIPE_DIRECTORY too; empty: those that are found."""
        if recording is None:
            check_answers(self.named, log_dirs)
        self._log_dirs = log_dirs
        self._refresh = refresh
        self._read_only = read_only
        self._alone = bool(log_dirs) and not pipe_dirs and not demo
        self._opened: tuple[NodeSources, tuple[Path, ...]] | None = None
        self._workers: dict[str, BlockingCalls] = {}
        self._collector: watcher.NodeWatcher | None = None
        self._watching: watcher.NodeWatcher | None = None
        self._runner: runner.OperationRunner | None = None
        self._closing: list[Callable[[], Coroutine[Any, Any, object]]] = []

    async def close(self) -> None:
        """Ends everything that was begun; ``with`` does it. Waits for processes that are half started, whoever has
        begun that."""
        from mpstui.system import starts

        closing, self._closing = self._closing, []
        for close in reversed(closing):
            await close()
        self._collector = None
        for worker in self._workers.values():
            worker.close()
        if self._opened is not None:
            await asyncio.to_thread(self._opened[0].nvml.close)
        await starts.done()

    # Looking.

    async def snapshot(self, *, complete: bool = False, request: Request | None = None) -> Snapshot:
        """The node as it is now. A daemon whose logs tell the rest is asked what those do not tell, eight commands at
        most; with ``request`` what that one has to know; ``complete``: everything. What is not known is None. Raises
        UnusableNode."""
        from mpstui.observe.poll import STATUS

        if complete:
            return await self._reader().once()
        if request is not None:
            return await self._reader().once(need=_operation(request).needs(request))
        return await self._reader().once(rates=True, need=STATUS)

    async def watch(self, *, activity: bool = False, whole_within: float = 0.0) -> AsyncGenerator[Snapshot, None]:
        """A snapshot once it was looked for daemons, and another one whenever the node has changed; only the latest to
        who is slow. A node on which nothing changes is sent no command. ``activity``: the clients' kernel launches are
        counted, window after window (see :meth:`activity`). ``whole_within``: so many seconds are waited at most for
        the first one until all was read once, so that what is read after the rest does not look like a change. Raises
        UnusableNode."""
        collector = self._watching = self._make()
        if activity:
            collector.watch_activity()
        changed = asyncio.Event()
        latest: list[Snapshot] = []

        def see(snapshot: Snapshot) -> None:
            if snapshot.looked:
                latest[:] = [snapshot]
                changed.set()

        async def read_whole() -> None:
            while not latest or not latest[0].whole:
                changed.clear()
                await changed.wait()

        collector.subscribe(see)
        self._closing.append(collector.stop)
        try:
            await collector.start()
            if whole_within > 0:
                with suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(read_whole(), whole_within)
                if latest:
                    changed.set()
            while True:
                await changed.wait()
                changed.clear()
                yield latest[0]
        finally:
            try:
                await collector.stop()
            finally:  # not before: who closes the node meanwhile waits for it
                if collector.stop in self._closing:
                    self._closing.remove(collector.stop)

    @property
    def read_at(self) -> float | None:
        """When :meth:`watch` last had an answer of NVML, in seconds since the epoch: a snapshot comes only where
        something has changed. None: not yet."""
        return None if self._watching is None else self._watching.read_at

    @property
    def answers(self) -> Mapping[Path, float]:
        """When each daemon last answered :meth:`watch`, by pipe directory; seconds since the epoch. One is asked only
        where something has changed."""
        return {} if self._watching is None else self._watching.answers

    @property
    def control_sessions(self) -> int:
        """How often :meth:`watch` has asked a daemon: sessions, each with one control command or more."""
        return 0 if self._watching is None else self._watching.sessions

    async def activity(self, seconds: float = 2.0) -> ActivityLook:
        """Who launches how many kernels: all clients of all daemons, and who computes without MPS, counted for so long
        from outside (facts 41, 49). Needs root, or CAP_BPF and CAP_PERFMON; of whom it cannot be told, ``why`` says
        why. Raises UnusableNode."""
        from mpstui.observe.poll import Need

        reader = self._reader()
        await reader.once(need=Need(clients=True))
        return await reader.activity(seconds)

    @property
    def simulated(self) -> bool:
        """Whether it is a simulated node. Raises UnusableNode."""
        if self._viewer is not None and self._viewer.live is None:
            shown = self._viewer.snapshot
            return shown is not None and shown.source == "simulated"
        return self._sources()[0].simulated

    @property
    def program(self) -> str:
        """What the control binary is called. Raises UnusableNode."""
        from mpstui.control.commandline import shown_program

        if self._viewer is not None and self._viewer.live is None:
            return CONTROL_BINARY
        return os.path.basename(shown_program(self._sources()[0].control_binary))

    async def hardware(self) -> NvmlSample:
        """The devices, with who has memory on them, as NVML says; no daemon is asked. ``error`` says why nothing is
        known. Raises UnusableNode."""
        return await asyncio.to_thread(self._sources()[0].nvml.sample)

    async def findings(self, *snapshots: Snapshot) -> Sequence[Finding]:
        """The check-up of the set-up, the worst finding first, with a complete snapshot of the node. Of logs that are
        read alone: what they tell, with what :meth:`past` gave for each. Raises UnusableNode, Unavailable, or
        UnreadableNodeError for logs."""
        self._now()
        if self._alone:
            return await asyncio.to_thread(self._examine_logs, snapshots)
        try:
            return await self._worker("check-up").call(lambda: self._examine(snapshots[0]))
        except OSError as error:
            raise Unavailable(f"the check-up stopped: {error_text(error)}") from None

    def _examine(self, snapshot: Snapshot) -> Sequence[Finding]:
        from mpstui.doctor.checkup import examine, gather
        from mpstui.observe.discovery import discover

        sources, dirs = self._sources()
        return examine(gather(snapshot, discover(dirs, self._log_dirs), sources.control_binary))

    def _examine_logs(self, snapshots: Sequence[Snapshot]) -> Sequence[Finding]:
        from mpstui.doctor.checkup import examine_logs
        from mpstui.history.reader import faults

        found: list[Finding] = []
        for snapshot, log_dir in zip(snapshots, self._log_dirs, strict=True):
            try:
                times = [event.time for event in faults(log_dir).events if event.time is not None]
            except UnreadableLogError as error:
                raise UnreadableNodeError((error,)) from None
            found += examine_logs(snapshot, log_dir, times)
        return found

    async def why(self, pid: int, snapshot: Snapshot) -> Diagnosis | None:
        """Why a process is no client of MPS, or cannot become one, with a complete snapshot; None where there is no
        such process. Raises Unavailable."""
        from mpstui.doctor.why import gather

        self._now()
        try:
            return await self._worker("check-up").call(lambda: gather(pid, snapshot, real_processes()))
        except OSError as error:
            raise Unavailable(f"the check of process {pid} failed: {error_text(error)}") from None

    async def in_force(self, daemon: Daemon, snapshot: Snapshot, old: Profile | None = None) -> DaemonProfile:
        """What a daemon has now, as a profile says it: limits, devices and CPUs where they are not all, and the shares
        that ``old`` has for it."""
        from mpstui.plan.settings import as_it_runs
        from mpstui.system.procfs import cpus_of

        here = self._viewer is None or self._viewer.live is not None
        cpus = await asyncio.to_thread(cpus_of, daemon.pid) if here and daemon.pid is not None else None
        return as_it_runs(daemon, snapshot, cpus, old)

    async def environment(self, client: ProcessKey) -> Mapping[str, str] | None:
        """The CUDA_* variables that a client was started with; None where they may not be read."""
        from mpstui.system.procfs import environment_of

        if self._viewer is not None and self._viewer.live is None:
            return None
        return await asyncio.to_thread(environment_of, client)

    async def older_events(self, daemon: Daemon, before: float, most: int) -> LogEvents:
        """The last ``most`` events of the daemon's logs up to ``before`` (seconds since the epoch). What is read grows
        with how far back they lie. It stops when nobody waits for it any more. Raises Unavailable."""
        from mpstui.history.reader import last_events

        return await self._older(daemon, lambda *of: last_events(before, most, *of))

    async def faults(self, daemon: Daemon) -> LogEvents:
        """Every fatal fault in the daemon's logs. Raises Unavailable."""
        from mpstui.history.reader import faults

        return await self._older(daemon, faults)

    async def _older(self, daemon: Daemon, read: Callable[..., LogEvents]) -> LogEvents:
        """``read`` is given the log directory, the daemon's own, whose logs are believed there, and what says whether
        nobody waits any more."""
        from mpstui.history.node import owners

        if not self._alone:
            self._there()
        if daemon.log_dir is None:
            raise Unavailable("the daemon's log directory is not known; name it with --log-dir")
        log_dir, pipe_dir, over = daemon.log_dir, daemon.pipe_dir, threading.Event()
        logs = self._worker("older events")
        try:
            return await logs.call(
                lambda: read(log_dir, pipe_dir, None if self._alone else owners(pipe_dir), over.is_set)
            )
        except (UnreadableLogError, OSError) as error:
            raise Unavailable(error_text(error)) from None
        finally:
            over.set()

    async def past(self, at: float | None = None) -> list[Snapshot]:
        """The state that each daemon's logs come to at that time, in seconds since the epoch; None: where they end."""
        return await asyncio.to_thread(self.read_past, at)

    async def events(self, since: float | None = None, *, follow: bool = False) -> AsyncGenerator[Event, None]:
        """What the logs and the driver tell, oldest first, from ``since`` on, in seconds since the epoch. ``follow``:
        what comes too, and of the past only what ``since`` asks for; it ends when its reader does."""
        events = await asyncio.to_thread(self.read_events, since, follow=follow)
        told = events.told()

        def read() -> tuple[list[Event], bool]:
            """Some events, and whether there may be more."""
            batch: list[Event] = []
            for each in told:
                if each is not None:
                    batch += _with_daemon(*each)
                if each is None or len(batch) >= _BATCH:
                    return batch, True
            return batch, False

        more, reading = True, None
        try:
            while more:
                reading = asyncio.ensure_future(asyncio.to_thread(read))
                batch, more = await asyncio.shield(reading)
                for event in batch:
                    yield event
        finally:
            if reading is not None and not reading.done():
                await asyncio.wait([reading])  # its thread is in the midst of a log; it looks up within a moment
            events.close()

    def read_past(self, at: float | None = None) -> list[Snapshot]:
        """:meth:`past`, for a caller that may wait."""
        from mpstui.history.node import past

        return past(self._places(None), at)

    def read_events(self, since: float | None = None, *, follow: bool = False) -> Events:
        """:meth:`events`, for a caller that may wait."""
        return Events(self._logs(), since, follow)

    # Changing.

    async def preview(self, request: Request, snapshot: Snapshot | None = None) -> Preview:
        """What the request would do, worked out from ``snapshot``, or from what the node is now; nothing is sent that
        changes it. Raises ValueError where there is no such operation."""
        _operation(request)
        if snapshot is None:
            snapshot = await self._sure_of(request)
        return self._acting().preview(request, snapshot)

    def refuse(self, request: Request, why: str, status: ExitStatus) -> Result:
        """The result of a request that is not carried out, since somebody who was asked said no; it leaves an audit
        line too."""
        return self._acting().refuse(request, why, status)._replace(simulated=self._is_simulated())

    def _is_simulated(self) -> bool:
        try:
            return self.simulated
        except UnusableNode:
            return False

    async def do(
        self,
        request: Request,
        progress: Callable[[str], None] = lambda text: None,
        *,
        snapshot: Snapshot | None = None,
    ) -> Result:
        """Carry it out: checked, sent, read back, and written to the audit log. Nobody is asked: who wants to know whom
        it hits looks at :meth:`preview` before. A refusal is a result too; ``result.done`` says whether it was done.
        ``progress`` is told of each step. ``snapshot``: what :meth:`preview` was shown on, and somebody has said yes
        to: none is taken anew, and where its daemon is another one's by now nothing is done. Raises ValueError where
        there is no such operation."""
        operation, runner = _operation(request), self._acting()
        wrong = None if runner.read_only else operation.wrong_value(request)
        if wrong is not None:
            return self.refuse(request, str(wrong), wrong.status)
        result = await runner.execute(request, snapshot or await self._sure_of(request), progress)
        return result._replace(simulated=self._is_simulated())

    async def _sure_of(self, request: Request) -> Snapshot:
        """A reading of what it needs; the daemon's own word of who is there where the logs alone would refuse it."""
        snapshot = await self.snapshot(request=request)
        shown = self._acting().preview(request, snapshot)
        return snapshot if shown.error is None else await self.confirmed(request, snapshot, shown.error_status)

    async def confirmed(self, request: Request, snapshot: Snapshot, status: ExitStatus | None) -> Snapshot:
        """For a request that ``snapshot`` refuses with ``status``: another one where the daemon may know better than
        its logs. It is asked who is there; everything where that is otherwise than the logs tell."""
        from mpstui.observe.poll import PRESENT

        if self._acting().read_only or not may_know_more(request, snapshot, status):
            return snapshot
        return await self._reader().once(need=PRESENT)

    def _acting(self) -> runner.OperationRunner:
        if self._runner is None:
            from mpstui.config import load_config
            from mpstui.operations.audit import AuditLog, default_path
            from mpstui.operations.runner import OperationRunner

            config = load_config()[0]
            read_only = config.read_only if self._read_only is None else self._read_only or config.policy.read_only
            acts_on = self._viewer or self._reader()
            audit = AuditLog(default_path(), simulated=self._is_simulated())
            self._runner = OperationRunner(acts_on, audit, read_only=read_only)
        return self._runner

    # Test clients.

    def supervisor(self, pipe_dir: Path | None, asked: Snapshot | None = None) -> OperatedLoad:
        """Starts test clients of the daemon in ``pipe_dir``, or without MPS, keeps their reports and ends them: an
        operation each time. ``asked``: what was shown to whoever has said yes to them, as for :meth:`do`. Raises
        UnusableNode."""
        from mpstui.load.supervisor import supervisor_of
        from mpstui.operations.load import OperatedLoad

        return OperatedLoad(supervisor_of(self._sources()[0], pipe_dir), self._acting(), pipe_dir, asked)

    def meter(self, device_uuid: str | None) -> Meter:
        """Reads how busy a device is while something runs; None: the first one. Raises UnusableNode."""
        from mpstui.load.utilisation import Meter

        return Meter(self._sources()[0].nvml, device_uuid)

    async def one_daemon(self) -> Path:
        """The pipe directory of the daemon that was named, or of the one that runs and is meant, for clients of one's
        own; it is asked one command. Raises Unavailable, UnusableNode."""
        from mpstui.core.trust import NotNamedError, meant
        from mpstui.load.private_daemon import ask_daemon
        from mpstui.observe.discovery import discover
        from mpstui.operations.types import STATUS

        offer = "start one for this run with --private, or run without MPS: --mps off"
        sources, dirs = self._sources()
        places = await asyncio.to_thread(discover, dirs)
        if not dirs:
            running = [place for place in places if place.state == "running" and not sources.foreign(place.pipe_dir)]
            try:
                places = tuple(meant(running, lambda place: True, os.geteuid()))
            except NotNamedError as error:
                raise Unavailable(str(error), offer, ExitStatus.REFUSED_BY_SAFETY_RULE) from None
        if not places:
            raise Unavailable("no MPS control daemon is running here", offer)
        if len(places) > 1:
            named = ", ".join(path_text(place.pipe_dir, 80) for place in places)
            raise Unavailable(f"there are several daemons: {named}", "choose one with --pipe-dir", ExitStatus.USAGE)
        pipe_dir, shown = places[0].pipe_dir, path_text(places[0].pipe_dir, 100)
        # A server's directory of protocol 3, or a namespace's, is of a daemon that runs elsewhere.
        spoken = "v3" if places[0].within is not None else places[0].protocol
        if (reason := no_test_clients(spoken, places[0].static_partitioning)) is not None:
            whose = f"{shown}: " if places[0].within is None else f"{places[0].detail}: "
            raise Unavailable(f"{whose}{reason}", offer, ExitStatus.REFUSED_BY_SAFETY_RULE)
        answer = await ask_daemon(pipe_dir, sources.control_binary)
        if not answer.ok:
            status = STATUS[answer.outcome]
            remedy = offer if status is ExitStatus.NO_DAEMON else "see mpstui status"
            raise Unavailable(f"{shown}: {answer.message}", remedy, status)
        return pipe_dir

    @asynccontextmanager
    async def private_daemon(self) -> AsyncIterator[Path]:
        """A daemon of its own, by its pipe directory, gone at the end. Raises Unavailable."""
        from mpstui.load.private_daemon import REMEDY, PrivateDaemon, PrivateDaemonError

        try:
            async with PrivateDaemon(self._sources()[0].control_binary) as daemon:
                self._sources()[0].add(daemon.pipe_dir)
                yield daemon.pipe_dir
        except PrivateDaemonError as error:
            raise Unavailable(str(error), REMEDY) from None

    # For a screen, which starts and stops what keeps it up to date.

    def live(self, reconcile: float) -> Viewer:
        """What keeps a screen up to date, and can be moved in time; what is done goes by what it shows. Whoever asks
        for it starts it and stops it. Of log directories alone, and of a recording, it is what those tell.
        ``reconcile``: seconds from the last change to one complete reading of a daemon; 0 for never. Raises
        UnusableNode."""
        from mpstui.history import viewer
        from mpstui.history.recording import RecordingError

        self._runner = self._viewer = None
        try:
            if self._recording is not None:
                self._viewer = viewer.of_file(*self._recording)
            elif self._alone:
                self._viewer = viewer.of_logs(self._log_dirs)
            else:
                self._collector = self._make(reconcile)
                self._viewer = viewer.LiveViewer(self._collector)
        except RecordingError as error:
            raise UnusableNode(str(error)) from None
        return self._viewer

    def record(self, path: Path, most: int, seconds: float, *, masked: bool = False) -> Recording:
        """What writes down all that is seen of the node: to be entered, and left at the end. ``most``: bytes of the
        file and its older parts; ``seconds``: how old a part may become; ``masked``: into a new file, without names of
        users, commands, jobs and the machine. Raises UnusableNode."""
        from mpstui.history.recording import RecordingError
        from mpstui.history.viewer import Recording

        collector = self._make()
        try:
            return Recording(collector, path, most, seconds, masked=masked)
        except RecordingError as error:
            raise UnusableNode(str(error)) from None

    @property
    def runner(self) -> Runner:
        """Checks and carries out, as :meth:`preview` and :meth:`do`, on the snapshots of :meth:`live`."""
        return self._acting()

    # What it is made of.

    def _worker(self, name: str) -> BlockingCalls:
        """A daemon thread: a file system that hangs holds up neither a screen nor its end, and only what would read
        there too."""
        from mpstui.observe.sources import BlockingCalls

        if name not in self._workers:
            self._workers[name] = BlockingCalls(name)
        return self._workers[name]

    def _there(self) -> None:
        """Raises Unavailable where it is logs or a recording that are shown: nothing of this machine is looked at."""
        if self._viewer is not None and self._viewer.live is None:
            raise Unavailable(self._viewer.why, status=ExitStatus.REFUSED_BY_SAFETY_RULE)

    def _now(self) -> None:
        """Raises Unavailable, too, where a screen shows the past of this machine: what is looked at here is of now."""
        self._there()
        shown = self._viewer.snapshot if self._viewer is not None else None
        if self._viewer is not None and shown is not None and shown.past is not None:
            raise Unavailable(self._viewer.why, status=ExitStatus.REFUSED_BY_SAFETY_RULE)

    def _sources(self) -> tuple[NodeSources, tuple[Path, ...]]:
        try:
            self._there()
        except Unavailable as error:
            raise UnusableNode(str(error)) from None
        if self._opened is None:
            self._opened = open_node(self.named)
        return self._opened

    def _make(self, reconcile: float = 60.0) -> watcher.NodeWatcher:
        from mpstui.observe.watcher import NodeWatcher

        sources, dirs = self._sources()
        return NodeWatcher(dirs, sources, log_dirs=self._log_dirs, refresh=self._refresh, reconcile=reconcile)

    def _reader(self) -> watcher.NodeWatcher:
        if self._collector is None:
            self._collector = self._make()
            self._closing.append(self._collector.stop)
        return self._collector

    def _places(self, sources: NodeSources | None) -> list[LogPlace]:
        from mpstui.history import node

        return node.alone(self._log_dirs) if self._alone else node.of_node(self._pipe_dirs, self._log_dirs, sources)

    def _logs(self) -> NodeLogs:
        from mpstui.history.node import NodeLogs

        try:
            sources = None if self._alone else self._sources()[0]
        except UnusableNode:
            sources = None
        return NodeLogs(self._places(sources), sources)


class Events(Iterator[Event]):
    """The events that :meth:`Node.events` reads, one after the other; it gives the logs back at its end, and when it is
    closed."""

    def __init__(self, logs: NodeLogs, since: float | None, follow: bool) -> None:
        self._logs = logs
        self._all = since is None and not follow
        since = time.time() if follow and since is None else since
        self._simulated = logs.simulated(since)
        self._told = self._read(since, follow)
        self._ahead: Iterator[Event] = iter(())

    @property
    def trouble(self) -> tuple[str, ...]:
        """Why some of the logs could not be read; where all events are asked for, those that are compressed too."""
        return self._logs.trouble + (self._logs.left_out if self._all else ())

    @property
    def claims(self) -> tuple[str, ...]:
        """Whose word it is what is told of those logs that another user has written."""
        return self._logs.claims

    @property
    def simulated(self) -> tuple[Path, ...]:
        """The log directories of those that a simulated node has written, or a part of them."""
        return tuple(each.log_dir for each in self._simulated)

    @property
    def simulated_parts(self) -> tuple[str, ...]:
        """The same in words, each with when it has."""
        return tuple(each.text for each in self._simulated)

    @property
    def all_simulated(self) -> bool:
        """Whether a simulated node has written all of them."""
        return all(each.whole for each in self._simulated) and len(self._simulated) == len(self._logs)

    def told(self) -> Iterator[tuple[Sequence[Event], Path | None] | None]:
        """The events some at a time, each as its log tells it, with their daemon's pipe directory; and None whenever
        there is no more at present. For who reads millions of them, or has something else to do meanwhile."""
        return self._told

    def _read(
        self, since: float | None, follow: bool
    ) -> Generator[tuple[Sequence[Event], Path | None] | None, None, None]:
        try:
            yield from self._logs.told(since, follow=follow)
        finally:
            self._logs.close()

    def __next__(self) -> Event:
        while (event := next(self._ahead, None)) is None:
            if (told := next(self._told)) is not None:
                self._ahead = iter(_with_daemon(*told))
        return event

    def close(self) -> None:
        """Reads no more."""
        self._told.close()
        self._logs.close()


def read_stream(chunks: Iterable[bytes], since: float | None = None) -> Iterator[Event | None]:
    """The events of what a daemon that was started with ``-f`` has printed, which is both its logs in one (fact 47):
    ``chunks`` of it, which may end anywhere. None behind each of them."""
    from mpstui.history.stream import StreamHistory

    return StreamHistory().events(chunks, since)


def _with_daemon(events: Sequence[Event], daemon: Path | None) -> Sequence[Event]:
    if daemon is None:
        return events
    return [event if event.pipe_dir is not None else event._replace(pipe_dir=daemon) for event in events]


async def _end_the_rest() -> None:
    """What a cancelled start of a process has left behind in the loop, which would complain once that is closed."""
    from mpstui.system import starts

    await starts.done()
    rest = asyncio.all_tasks() - {asyncio.current_task()}
    for task in rest:
        task.cancel()
    await asyncio.gather(*rest, return_exceptions=True)


class Node:
    """An open node, for a program without an event loop. See :class:`AsyncNode` for each method."""

    def __init__(self, node: AsyncNode) -> None:
        self._node = node
        self._loop = asyncio.new_event_loop()

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        """As ``asyncio.run``: Ctrl-C ends the work, which then says how far it came, before it is raised."""
        task: asyncio.Task[T] | None = None
        pressed = 0

        def interrupt() -> None:
            nonlocal pressed
            pressed += 1
            if pressed > 1 or task is None or not task.cancel():  # in the very moment in which it is done
                raise KeyboardInterrupt

        ours = threading.current_thread() is threading.main_thread()
        ours = ours and signal.getsignal(signal.SIGINT) is signal.default_int_handler
        try:
            task = self._loop.create_task(work)
            if ours:
                self._loop.add_signal_handler(signal.SIGINT, interrupt)
            return self._loop.run_until_complete(task)
        except asyncio.CancelledError:
            if pressed:
                raise KeyboardInterrupt from None
            raise
        except KeyboardInterrupt:
            # Pressed before our handler was there, or twice: nothing stays half done in a loop that stands.
            if task is not None and not task.done():
                task.cancel()
                self._loop.run_until_complete(asyncio.wait({task}))
            raise
        finally:
            if task is None:
                work.close()
            if ours:
                self._loop.remove_signal_handler(signal.SIGINT)

    @property
    def named(self) -> tuple[Path, ...]:
        """See :class:`AsyncNode`."""
        return self._node.named

    @property
    def simulated(self) -> bool:
        """See :class:`AsyncNode`."""
        return self._node.simulated

    def wait_for(self, work: Coroutine[Any, Any, T]) -> T:
        """The answer of a coroutine of the caller's own, which works with :attr:`asynchronous`; Ctrl-C ends it."""
        return self._run(work)

    @property
    def asynchronous(self) -> AsyncNode:
        """The same node, for an event loop of the caller's own."""
        return self._node

    def close(self) -> None:
        """Ends everything that was begun; ``with`` does it."""
        if self._loop.is_closed():
            return
        try:
            self._run(self._node.close())
            self._run(_end_the_rest())
            self._run(self._loop.shutdown_asyncgens())
            self._run(self._loop.shutdown_default_executor())
        finally:
            self._loop.close()

    def snapshot(self, *, complete: bool = False, request: Request | None = None) -> Snapshot:
        """See :meth:`AsyncNode.snapshot`."""
        return self._run(self._node.snapshot(complete=complete, request=request))

    def watch(self, *, activity: bool = False, whole_within: float = 0.0) -> Iterator[Snapshot]:
        """See :meth:`AsyncNode.watch`. It watches while it is asked for the next one."""
        stream = self._node.watch(activity=activity, whole_within=whole_within)

        async def following() -> Snapshot:
            return await anext(stream)

        try:
            while True:
                yield self._run(following())
        finally:
            if not self._loop.is_closed():
                self._run(stream.aclose())

    def activity(self, seconds: float = 2.0) -> ActivityLook:
        """See :meth:`AsyncNode.activity`."""
        return self._run(self._node.activity(seconds))

    def hardware(self) -> NvmlSample:
        """See :meth:`AsyncNode.hardware`."""
        return self._run(self._node.hardware())

    def findings(self, *snapshots: Snapshot) -> Sequence[Finding]:
        """See :meth:`AsyncNode.findings`."""
        return self._run(self._node.findings(*snapshots))

    def why(self, pid: int, snapshot: Snapshot) -> Diagnosis | None:
        """See :meth:`AsyncNode.why`."""
        return self._run(self._node.why(pid, snapshot))

    def one_daemon(self) -> Path:
        """See :meth:`AsyncNode.one_daemon`."""
        return self._run(self._node.one_daemon())

    def in_force(self, daemon: Daemon, snapshot: Snapshot, old: Profile | None = None) -> DaemonProfile:
        """See :meth:`AsyncNode.in_force`."""
        return self._run(self._node.in_force(daemon, snapshot, old))

    def past(self, at: float | None = None) -> list[Snapshot]:
        """See :meth:`AsyncNode.past`."""
        return self._node.read_past(at)

    def events(self, since: float | None = None, *, follow: bool = False) -> Events:
        """See :meth:`AsyncNode.events`. Raises UnreadableNodeError where no log can be read."""
        return self._node.read_events(since, follow=follow)

    def confirmed(self, request: Request, snapshot: Snapshot, status: ExitStatus | None) -> Snapshot:
        """See :meth:`AsyncNode.confirmed`."""
        return self._run(self._node.confirmed(request, snapshot, status))

    def preview(self, request: Request, snapshot: Snapshot | None = None) -> Preview:
        """See :meth:`AsyncNode.preview`."""
        return self._run(self._node.preview(request, snapshot))

    def refuse(self, request: Request, why: str, status: ExitStatus) -> Result:
        """See :meth:`AsyncNode.refuse`."""
        return self._node.refuse(request, why, status)

    def do(
        self,
        request: Request,
        progress: Callable[[str], None] = lambda text: None,
        *,
        snapshot: Snapshot | None = None,
    ) -> Result:
        """See :meth:`AsyncNode.do`."""
        return self._run(self._node.do(request, progress, snapshot=snapshot))
