"""Control daemons: one started; one stopped, with who is hit, the clients going, and what it leaves (fact 19)."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from mpstui.control.answer import Answer, Outcome
from mpstui.control.mps import MpsControl
from mpstui.core.cells import client_line
from mpstui.core.late import dataclass
from mpstui.core.model import EMPTY, EXCLUSIVE_PROCESS, Client, Daemon, ProcessKey, Snapshot
from mpstui.core.text import (
    PRIORITIES,
    UNKNOWN,
    by_device,
    format_percentage,
    format_size,
    have,
    owner,
    path_text,
    plural,
)
from mpstui.core.trust import ANYBODY, is_anothers
from mpstui.core.v3 import V3Node
from mpstui.observe.discovery import held, not_its_daemon, not_usurped
from mpstui.operations.check import Refused, reachable_daemon
from mpstui.operations.operation import Operation, Work
from mpstui.operations.types import STATUS, Argument, Danger, ExitStatus, Preview, Progress, Request, Result, Verb
from mpstui.system.procfs import PidFd, open_pidfd, process_key

# Imported by what runs: the table of operations costs every command as little as it can.
if TYPE_CHECKING:
    from mpstui.daemons.spec import DaemonSpec
    from mpstui.operations.signals import Guard

FORCE_AFTER: Final = 1
"""Seconds that ``--force`` leaves the clients."""
_FORCE: Final = "--force"
_UNHEARD: Final = frozenset((Outcome.HELD, Outcome.BLOCKED, Outcome.ABSENT))
"""How a command to a daemon ends that is not heard by it though it runs."""
_NO_END: Final = 30 * 86400.0
"""Seconds: a quit without a limit waits as long as its clients take."""
_LOOK: Final = 0.2
_ROUND: Final = 1.0
"""Seconds between two looks at a daemon that is asked who is left: six commands each."""
_REFUSALS: Final = 3
"""So often a client may have come between the look and the delete; then there is another reason."""
_SHOWN: Final = 5
_LEAVING: Final = 10.0
"""Seconds that the daemon's process may take to end once quit has answered; it took milliseconds."""


@dataclass(frozen=True, slots=True)
class StopPreview:
    """What a stop would do, from a snapshot, without asking anybody."""

    hits: tuple[str, ...]
    """The clients that it waits for, or ends, one line each."""
    effect: str
    """One sentence."""
    error: str | None = None
    error_status: ExitStatus = ExitStatus.DONE
    limits: str = ""
    """Which limits go with the daemon, and how to keep them, one sentence; empty where it has none."""


def preview_stop(snapshot: Snapshot, pipe_dir: Path, timeout: int | None, force: bool) -> StopPreview:
    """Whom it hits and how long it waits. With ``force`` a daemon that does not answer is ended as a process."""
    daemon = snapshot.daemon(pipe_dir)
    if daemon is not None and daemon.usurped(os.geteuid()):
        return _preview_usurped(daemon, force)
    hits = tuple(client_line(client) for client in daemon.clients()) if daemon else ()
    error, status = None, ExitStatus.DONE
    try:
        reachable_daemon(Request(StopDaemon.id, pipe_dir), snapshot)
    except Refused as refused:
        unanswering = refused.status is ExitStatus.NO_ANSWER and daemon is not None and daemon.key is not None
        unanswering = unanswering and daemon is not None and daemon.condition.cause != "starting"
        if unanswering and daemon is not None and daemon.condition.cause == "not_found":
            unanswering = _FORCE in (daemon.remedy or "")
        if not (force and unanswering):
            hint = f"; {_FORCE} ends its process" if unanswering else ""
            error, status = f"{refused}{hint}", refused.status
    limit = FORCE_AFTER if force else timeout
    if daemon is not None and daemon.named_servers:
        return StopPreview(hits, _effect_of_v3(daemon, len(hits), limit), error, status, limits_lost(daemon))
    if not hits and daemon is not None and not daemon.servers_known:
        then = "it waits for all clients" if limit is None else f"their GPU work is ended after {limit} s"
        effect = f"the clients are not known, because the daemon cannot be asked; {then}"
    elif not hits:
        effect = "no client is connected: it ends at once"
    elif limit is None:
        effect = f"it waits until {_clients(len(hits))} ended, and serves nobody else meanwhile"
    else:
        effect = f"{_clients(len(hits))} at most {limit} s to end; then their GPU work is ended with error 806"
    return StopPreview(hits, effect, error, status, "" if daemon is None else limits_lost(daemon))


def _preview_usurped(daemon: Daemon, force: bool) -> StopPreview:
    """A command would go to whoever answers in its place, and it is his word which clients there are."""
    effect = "its process gets SIGTERM, and SIGKILL if it stays; the GPU work of its clients, which are not known, ends"
    effect += " with error 806"
    error, status = None, ExitStatus.DONE
    if os.geteuid() not in {0, daemon.uid}:
        error, status = f"{daemon.usurpation()}; only root may end it", ExitStatus.NOT_PERMITTED
    elif not force:
        error, status = f"{daemon.usurpation()}; --force ends its process", ExitStatus.REFUSED_BY_SAFETY_RULE
    return StopPreview((), effect, error, status)


def _effect_of_v3(daemon: Daemon, clients: int, limit: int | None) -> str:
    """Here no command is sent that ends the daemon: ``-q`` means something else to an older binary."""
    end = "its servers are deleted, and its process gets SIGTERM"
    if daemon.v3 is None:
        return f"the clients are not known; once there are none, {end}"
    if not clients:
        return f"no client is connected: {end}"
    if limit is None:
        return f"it waits until {_clients(clients)} ended, and also all that connect meanwhile; then {end}"
    return f"{_clients(clients)} at most {limit} s to end; then {end}: their GPU work ends with an error"


def limits_lost(daemon: Daemon) -> str:
    """The limits, and static partitions, that the daemon alone keeps: they go when it ends, and a new one begins
    without them."""
    keeps = "mpstui profile save NAME saves them for the next daemon"
    if daemon.named_servers:
        names = [server.name for server in daemon.v3.servers] if daemon.v3 is not None else []
        what = "with their namespaces, limits and partitions, are lost"
        return f"its servers ({', '.join(names)}), {what}; {keeps}" if names else ""
    static = bool(daemon.static_partitioning)  # where percentages have no effect
    default = _limits(None if static else daemon.default_active_thread_percentage, daemon.default_pinned_mem_limits)
    if daemon.default_client_priority:
        default.append(
            f"priority {PRIORITIES.get(daemon.default_client_priority, str(daemon.default_client_priority))}"
        )
    of = [("the default", default)]
    for server in daemon.servers:
        own = _limits(None if static else server.active_thread_percentage, server.pinned_mem_limits)
        of.append((f"server {server.pid}", [limit for limit in own if limit not in default]))
    said = [f"{whose}: {', '.join(limits)}" for whose, limits in of if limits]
    made = daemon.partitions.partitions if daemon.partitions is not None else ()
    what = "limits and partitions" if said and made else "partitions" if made else "limits"
    if made:
        sizes = ", ".join(UNKNOWN if part.chunks is None else str(part.chunks) for part in made)
        said.append(f"{plural(len(made), 'static partition')} of {sizes} {'chunk' if sizes == '1' else 'chunks'}")
    return f"its {what} are lost ({'; '.join(said)}); {keeps}" if said else ""


def _limits(percentage: float | None, memory: Mapping[str, int]) -> list[str]:
    shown = [] if percentage in {None, 100.0} else [format_percentage(percentage)]
    return shown + [f"{format_size(size)} on device {device}" for device, size in by_device(memory)]


_EXCLUSIVE: Final = "exclusive"


def _told_modes(modes: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    return ((_EXCLUSIVE, ",".join(f"{uuid}={mode}" for uuid, mode in modes.items())),) if modes else ()


def _modes(request: Request) -> dict[str, str]:
    """UUID to mode: for a start what its devices have before it, for a stop what they get back."""
    pairs = [pair.rpartition("=") for pair in (request.setting(_EXCLUSIVE) or "").split(",") if pair]
    return {uuid: mode for uuid, _, mode in pairs}


async def _set_modes(work: Work, modes: Mapping[str, str]) -> tuple[dict[str, str], str | None]:
    """The devices whose compute mode was set, and of the first whose could not be, which and why."""
    changed: dict[str, str] = {}
    for uuid, mode in modes.items():
        work.progress(f"compute mode of {uuid}: {mode}")
        why = await asyncio.to_thread(work.set_compute_mode, uuid, mode)
        if why is not None:
            return changed, f"{uuid} was not set to {mode}: {why}"
        changed[uuid] = mode
    return changed, None


def _is_gone(request: Request) -> bool:
    """Whether no daemon is to be stopped, and what the one that is gone has left of compute modes is given back."""
    return isinstance(request.subject, Daemon) and not request.subject.runs and bool(_modes(request))


def _said(modes: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(f"{uuid}: compute mode {mode}" for uuid, mode in modes.items())


def _given_back(modes: Mapping[str, str]) -> str:
    """One clause, for the question before a stop."""
    by_mode: dict[str, list[str]] = {}
    for uuid, mode in modes.items():
        by_mode.setdefault(mode, []).append(uuid)
    return "; ".join(
        f"stays {mode}, as it was before the start: {', '.join(uuids)}"
        if mode == EXCLUSIVE_PROCESS
        else f"{mode} again, for all users: {', '.join(uuids)}"
        for mode, uuids in by_mode.items()
    )


def _spec_of(request: Request) -> DaemonSpec | None:
    from mpstui.daemons.spec import DaemonSpec

    return request.subject if isinstance(request.subject, DaemonSpec) else None


class StartDaemon(Operation):
    """A control daemon started, with its directories, devices and CPUs: ``Request.subject`` is its DaemonSpec."""

    id = "start_daemon"
    subject = "a DaemonSpec"
    title = "Start daemon"
    key = "S"
    key_id = "daemon.start"
    place = "daemons"
    help = "Start a new daemon"
    arguments = (
        Argument(
            "list",
            "Devices",
            help="a UUID, its first characters, or an index; repeatable",
            metavar="DEV",
            option="--device",
        ),
        Argument("flag", "", help="one daemon a GPU, each with its own directories", option="--per-gpu"),
        Argument("flag", "", help="serve several users at the same time", option="--multi-user"),
        Argument("flag", "", help="with static SM partitions (-S; driver 590 or later)", option="--static"),
        Argument(
            "option",
            "Protocol",
            help="3: with named servers and namespaces (-p 3; driver 615 or later); 2 is the usual one",
            option="--protocol",
            choices=(("2", "2"), ("3", "3")),
        ),
        Argument(
            "text", "CPUs", help="its CPUs, 0-3,8; with --per-gpu one for each daemon", metavar="LIST", option="--cpu"
        ),
        Argument("text", "Profile", help="as a profile says, limits included", metavar="NAME", option="--profile"),
        Argument("flag", "", help="first set its devices to EXCLUSIVE_PROCESS, for all users", option="--exclusive"),
        Argument("flag", "", help="do not ask whether the compute mode may be set", option="--yes"),
    )
    verb = Verb(("daemon", "start"), "start a control daemon, or one for each GPU", example="mpstui daemon start")
    in_turn = False
    """There is no daemon yet whose turn it could be; MPS itself lets one start in a directory (fact 20)."""

    def request(self, spec: DaemonSpec, exclusive: Mapping[str, str] = EMPTY) -> Request:
        """For one daemon; ``exclusive``: UUIDs of devices that are to be EXCLUSIVE_PROCESS before it starts, each with
        the mode that it has now, which a stop gives back."""
        return Request(self.id, spec.pipe_dir, settings=_told_modes(exclusive), subject=spec)

    @staticmethod
    def is_free(spec: DaemonSpec) -> bool:
        """Whether no daemon has its directory now; reads only, and may block."""
        from mpstui.daemons.start import taken

        return taken(spec) is None

    def unavailable(self, snapshot: Snapshot, pipe_dir: Path, clients: Sequence[ProcessKey]) -> str | None:
        return None

    def preview(self, request: Request, snapshot: Snapshot) -> Preview:
        """What would be run; whether it can be is found out by doing it, as others start daemons too."""
        if _spec_of(request) is None:
            return Preview(self.title, error="say which daemon", error_status=ExitStatus.USAGE)
        return Preview(self.title, (("directory", path_text(request.pipe_dir)),))

    def line(self, request: Request) -> Mapping[str, object]:
        from mpstui.plan.cpus import cpu_text

        spec = _spec_of(request)
        if spec is None:
            return {}
        return {
            "log_dir": path_text(spec.log_dir),
            "devices": list(spec.devices),
            "multi_user": spec.multi_user,
            "static": spec.static,
            "protocol": spec.protocol,
            "cpus": None if spec.cpus is None else cpu_text(spec.cpus),
            "exclusive": _modes(request),
        }

    async def run(self, work: Work) -> Result:
        """In a thread of its own: directories and logs may be on a slow file system. ``Result.outcome`` is Started."""
        from mpstui.daemons.modes import keep_modes
        from mpstui.daemons.start import start, taken

        spec, binary = _spec_of(work.request), work.control.channel.binary
        if spec is None:
            raise AssertionError("checked by the preview")
        loop = asyncio.get_running_loop()

        def tell(text: str) -> None:
            loop.call_soon_threadsafe(work.progress, text)

        before = _modes(work.request)
        if before and (there := await asyncio.to_thread(taken, spec)) is not None:  # no mode is set for nothing
            return Result(work.request, there.status, there.message, outcome=there)
        forgotten: tuple[str, ...] = ()
        if before and (why := await asyncio.to_thread(keep_modes, before)) is not None:
            forgotten = (f"the previous compute mode could not be saved; “daemon stop” will set DEFAULT: {why}",)
        wanted = {uuid: EXCLUSIVE_PROCESS for uuid, mode in before.items() if mode != EXCLUSIVE_PROCESS}
        changed, trouble = await _set_modes(work, wanted)
        if trouble is not None:
            text = f"no daemon was started: the compute mode of {trouble}"
            back = await self._back(work, spec, before, changed)
            return Result(work.request, ExitStatus.REFUSED_BY_DAEMON, text, back)
        started = await asyncio.to_thread(lambda: asyncio.run(start(spec, binary, progress=tell)))
        details = (*_said(changed), *forgotten, *started.details)
        if not started.done:  # what was changed for it is given back
            details = (*started.details, *await self._back(work, spec, before, changed))
        return Result(work.request, started.status, started.message, details, outcome=started)

    async def _back(
        self, work: Work, spec: DaemonSpec, before: Mapping[str, str], changed: Collection[str]
    ) -> tuple[str, ...]:
        """What was set is set back, and said; not where somebody else's start was the first there meanwhile, as that
        daemon was to have it too, and its stop gives it back."""
        from mpstui.daemons.modes import keep_modes
        from mpstui.daemons.start import taken

        if changed and await asyncio.to_thread(taken, spec) is not None:
            text = "compute mode stays EXCLUSIVE_PROCESS, as another daemon was started there meanwhile"
            return tuple(f"{uuid}: {text}" for uuid in changed)
        back, trouble = await _set_modes(work, {uuid: before[uuid] for uuid in changed})
        # What was not set at all is not remembered either: who makes it exclusive by hand later meant that.
        as_before = {u for u, mode in before.items() if mode != EXCLUSIVE_PROCESS and (u in back or u not in changed)}
        await asyncio.to_thread(keep_modes, {}, as_before)
        return (*_said(back), *([f"the compute mode of {trouble}"] if trouble else []))


class StopDaemon(Operation):
    """``quit``, with a limit or by force as ``quit -t``; then the stale files. ``Request.subject`` is the Daemon that
    was named, ``Request.value`` the seconds that its clients have, empty for as long as they take. Of protocol 3 the
    servers are deleted, and then its process ended, as no such command is one for every binary.

    By force the daemon's turn is held over question and signals, and the process of one that answers nobody is
    ended where it is the daemon's by what the kernel says, as a client's is (``Guard``).
    """

    id = "stop_daemon"
    subject = "the Daemon that was seen"
    title = "Stop daemon"
    key = "x"
    key_id = "daemon.stop"
    place = "daemons"
    help = "Stop the daemon"
    danger = Danger.HARM
    arguments = (
        Argument(
            "seconds", "It may wait", help="end the clients' work after S seconds", metavar="S", option="--timeout"
        ),
        Argument("flag", "Force", help="after 1 s; and end a daemon that does not answer", option="--force"),
        Argument("flag", "", help="then give its devices the compute mode back that they had", option="--exclusive"),
    )
    verb = Verb(("daemon", "stop"), "stop a control daemon", example="mpstui daemon stop --timeout 60")
    in_turn = False
    """It may wait for days, and whoever wants to force it meanwhile needs the turn."""
    given_up = "stopped waiting; a quit that was sent still ends the daemon once its clients have ended"

    def unavailable(self, snapshot: Snapshot, pipe_dir: Path, clients: Sequence[ProcessKey] = ()) -> str | None:
        """One that does not answer can be stopped too, by force."""
        daemon = snapshot.daemon(pipe_dir)
        if daemon is not None and daemon.closed:
            return daemon.health_detail
        return "no daemon runs there" if daemon is None or not daemon.runs else None

    def request(
        self, daemon: Daemon, timeout: int | None = None, *, force: bool = False, exclusive: Mapping[str, str] = EMPTY
    ) -> Request:
        """For the daemon that was seen and named, and no other that is there by then. ``exclusive``: UUIDs of devices
        with the compute mode that each gets back once it has ended; where it is gone already, that alone is done."""
        value = "" if timeout is None else str(timeout)
        return Request(self.id, daemon.pipe_dir, value, force=force, settings=_told_modes(exclusive), subject=daemon)

    def preview(self, request: Request, snapshot: Snapshot) -> Preview:
        limit = int(request.value) if request.value else None
        there, named = snapshot.daemon(request.pipe_dir), request.subject
        if _is_gone(request) and not (there is not None and there.runs):
            back = ("compute mode", _given_back(_modes(request)))
            return Preview(self.title, (("effect", "no daemon runs there"), back))
        shown = preview_stop(snapshot, request.pipe_dir, limit, request.force)
        error, status = shown.error, shown.error_status
        if error is None and not (isinstance(named, Daemon) and there is not None and there.key == named.key):
            error = f"the daemon in {path_text(request.pipe_dir)} has ended, or another one is there now"
            status = ExitStatus.REFUSED_BY_SAFETY_RULE
        facts = (("effect", shown.effect), *((("limits", shown.limits),) if shown.limits else ()))
        if given_back := _modes(request):
            facts = (*facts, ("compute mode", _given_back(given_back)))
        return Preview(self.title, facts, hits=shown.hits, error=error, error_status=status)

    def is_for_process(self, request: Request) -> bool:
        return isinstance(request.subject, Daemon) and request.subject.usurped(os.geteuid())

    def command(self, request: Request) -> str:
        if self.is_for_process(request):
            return "SIGTERM"
        limit = str(FORCE_AFTER) if request.force else request.value
        if isinstance(request.subject, Daemon) and request.subject.named_servers:
            return f"server delete{' --force' * bool(limit)}, of each; SIGTERM"
        return f"quit -t {limit}" if limit else "quit"

    def line(self, request: Request) -> Mapping[str, object]:
        named = request.subject
        return {
            "daemon": named.pid if isinstance(named, Daemon) else None,
            "command": self.command(request),
            "exclusive": _modes(request),
        }

    async def run(self, work: Work) -> Result:
        from mpstui.daemons.modes import keep_modes

        if _is_gone(work.request):
            text = f"{path_text(work.request.pipe_dir)}: no daemon runs there"
            result = Result(work.request, ExitStatus.DONE, text)
        else:
            result = await self._end(work)
        if not result.done or not (given_back := _modes(work.request)):
            return result
        changed, trouble = await _set_modes(work, {u: m for u, m in given_back.items() if m != EXCLUSIVE_PROCESS})
        stay = {uuid: mode for uuid, mode in given_back.items() if mode == EXCLUSIVE_PROCESS}
        await asyncio.to_thread(keep_modes, {}, {*changed, *stay})
        details = (*result.details, *_said(changed), *(f"{said}, as before" for said in _said(stay)))
        if trouble is None:
            return result._replace(details=details)
        text = f"{result.message}, and the compute mode of {trouble}"
        return result._replace(status=ExitStatus.REFUSED_BY_DAEMON, message=text, details=details)

    async def _end(self, work: Work) -> Result:
        from mpstui.operations.lock import NoTurn, turn
        from mpstui.operations.signals import Guard

        request, daemon = work.request, work.daemon
        limit = FORCE_AFTER if request.force else int(request.value) if request.value else None
        of_v3 = daemon.named_servers
        if isinstance(request.subject, Daemon) and self.is_for_process(request):
            return await _end_usurped(work, request.subject)
        if not request.force and not of_v3:
            return await _stop(work, daemon, limit, None)
        guard = await Guard.begin(daemon.pipe_dir, work.find_speaker, has_servers_there=of_v3)
        try:
            if of_v3:
                return await _stop_v3(work, daemon, limit, guard)
            async with turn(daemon.pipe_dir, guard.speaker):
                return await _stop(work, daemon, limit, guard)
        except NoTurn as error:
            status = ExitStatus.NO_ANSWER if error.busy else ExitStatus.REFUSED_BY_SAFETY_RULE
            return Result(request, status, f"nothing was sent: {error}")


class RemoveStale(Operation):
    """What a daemon that is gone has left, removed where nobody owns it any more; ``Result.details`` says what, or why
    not. ``daemon stop`` does it too where no daemon runs."""

    id = "remove_stale_files"
    title = "Remove stale files"
    key = ""
    place = "daemons"
    help = "Remove the stale files of a daemon that is gone"
    verb = Verb(("daemon", "clean"), "remove what a daemon that is gone has left", example="mpstui daemon clean")
    in_turn = False
    """The daemon's own lock is held meanwhile, so that none can start."""

    def unavailable(self, snapshot: Snapshot, pipe_dir: Path, clients: Sequence[ProcessKey] = ()) -> str | None:
        daemon = snapshot.daemon(pipe_dir)
        if daemon is None or daemon.health == "absent":
            return f"{path_text(pipe_dir)}: there are no files of a daemon"
        if daemon.closed:
            return daemon.health_detail
        return None if daemon.health == "stale" else f"{path_text(pipe_dir)}: a daemon runs there"

    def belongs(self, request: Request, daemon: Daemon) -> bool:
        return daemon.health == "stale"

    def preview(self, request: Request, snapshot: Snapshot) -> Preview:
        why = self.unavailable(snapshot, request.pipe_dir)
        facts = (("removes", f"the sockets, the FIFO and the PID file in {path_text(request.pipe_dir)}"),)
        daemon = snapshot.daemon(request.pipe_dir)
        status = ExitStatus.NOT_PERMITTED if daemon is not None and daemon.closed else ExitStatus.NO_DAEMON
        return Preview(self.title, facts, error=why, error_status=ExitStatus.DONE if why is None else status)

    async def run(self, work: Work) -> Result:
        from mpstui.daemons.stale import REMOVED, clean

        lines = await asyncio.to_thread(clean, work.request.pipe_dir)
        done = any(line.startswith(REMOVED) for line in lines)
        status = ExitStatus.DONE if done else ExitStatus.NO_DAEMON
        what = "stale files were removed from" if done else "nothing was removed from"
        return Result(work.request, status, f"{what} {path_text(work.request.pipe_dir)}", lines)


async def _stop(work: Work, daemon: Daemon, limit: int | None, guard: Guard | None) -> Result:
    from mpstui.daemons.stale import clean

    work.progress("quit" if limit is None else f"quit -t {limit}")
    task = asyncio.create_task(work.control.quit(limit, _deadline(work.control, limit, guard is not None)))
    try:
        await _watch(task, daemon, work.progress)
        work.sent = answer = await task
    finally:
        task.cancel()
    name = path_text(daemon.pipe_dir)
    if answer.outcome is Outcome.UNREADABLE and daemon.key is not None and await _gone(daemon.key):
        # Whoever ran it has taken its directory away, or started the next one there, before its answer was judged.
        return Result(work.request, ExitStatus.DONE, f"the daemon in {name} has ended")
    if not answer.ok:
        unheard = daemon.key is not None and answer.outcome in _UNHEARD
        if answer.outcome is Outcome.ABSENT:  # it may have ended meanwhile
            unheard = daemon.key is not None and process_key(daemon.key.pid) == daemon.key
        if guard is not None and daemon.key is not None and unheard:
            return await _kill(work, daemon, daemon.key, answer, guard)
        hint = f"; {_FORCE} ends its process" if unheard and guard is None else ""
        text = f"the daemon in {name} was not stopped: {answer.message.rstrip('.') if hint else answer.message}{hint}"
        return Result(work.request, STATUS[answer.outcome], text)
    if not await _gone(daemon.key):
        return Result(work.request, ExitStatus.NO_ANSWER, f"quit was answered, but process {daemon.pid} is still there")
    removed = await asyncio.to_thread(clean, daemon.pipe_dir)
    return Result(work.request, ExitStatus.DONE, f"the daemon in {name} has ended", removed)


async def _stop_v3(work: Work, daemon: Daemon, limit: int | None, guard: Guard) -> Result:
    """Deletes the servers, those with clients by force once their time is over, and ends the daemon's process, which
    is held from before the first of it. The daemon's turn is held over each look with what follows from it. Raises
    NoTurn where nothing was sent."""
    from mpstui.operations.lock import NoTurn, turn

    request, name = work.request, path_text(daemon.pipe_dir)

    def not_stopped(status: ExitStatus, why: str) -> Result:
        return Result(request, status, f"the daemon in {name} was not stopped: {why}")

    if daemon.key is None:
        return not_stopped(ExitStatus.REFUSED_BY_SAFETY_RULE, "which process it is cannot be seen")
    opened = open_pidfd(daemon.key)
    if not isinstance(opened, PidFd):
        return not_stopped(ExitStatus.REFUSED_BY_SAFETY_RULE, opened.message)
    ends = None if limit is None else time.monotonic() + limit
    refused: dict[str, int] = {}
    left: int | None = None
    with opened as process:
        why = await asyncio.to_thread(not_its_daemon, daemon.pipe_dir, daemon.key.pid) or guard(process)
        if why is not None:
            return not_stopped(ExitStatus.REFUSED_BY_SAFETY_RULE, why)
        while True:
            try:
                async with turn(daemon.pipe_dir, guard.speaker):
                    answer, node = await work.control.read_v3()
                    if node is None:
                        if request.force and answer.outcome in _UNHEARD:
                            return await _kill(work, daemon, daemon.key, answer, guard)
                        return not_stopped(STATUS[answer.outcome], answer.message)
                    if unread := [node.not_read[what] for what in ("server", "client") if what in node.not_read]:
                        return not_stopped(ExitStatus.NO_ANSWER, "; ".join(unread))
                    if not node.servers:
                        return await _end_v3(work, daemon, process, guard)
                    over = ends is not None and time.monotonic() >= ends
                    if (stays := await _delete_servers(work, node, over, refused)) is not None:
                        return not_stopped(*stays)
            except NoTurn as error:
                if left is None:
                    raise
                return not_stopped(ExitStatus.NO_ANSWER, str(error))
            if len(node.clients) != left:
                left = len(node.clients)
                work.progress(f"{left} left")
            # Where nobody is left the next look is the last one.
            await asyncio.sleep(_ROUND if left else 0)


async def _delete_servers(
    work: Work, node: V3Node, over: bool, refused: dict[str, int]
) -> tuple[ExitStatus, str] | None:
    """Those without clients, or ``over``, whose time is over: all. Why one stays, where that is not for clients that
    come; ``refused`` counts how often by the server's name."""
    for server in node.servers:
        if node.clients_of(server.name) and not over:
            continue
        words = ("server", "delete", server.name, *(("--force",) if over else ()))
        work.progress(" ".join(words))
        work.sent = sent = await work.control.call(*words)
        refused[server.name] = 0 if sent.ok else refused.get(server.name, 0) + 1
        if refused[server.name] > _REFUSALS:
            return STATUS[sent.outcome], f"server {server.name} stays: {sent.message}"
    return None


async def _end_v3(work: Work, daemon: Daemon, process: PidFd, guard: Guard) -> Result:
    from mpstui.daemons.stale import clean
    from mpstui.operations.signals import end_process

    status, text = await end_process(process, _LEAVING, work.progress, guard, kill=work.request.force)
    name = path_text(daemon.pipe_dir)
    if status is not ExitStatus.DONE:
        return Result(work.request, status, f"its servers are gone, but not the daemon in {name}: {text}")
    return Result(
        work.request, status, f"the daemon in {name} has ended", await asyncio.to_thread(clean, daemon.pipe_dir)
    )


def _deadline(control: MpsControl, limit: int | None, force: bool) -> float | None:
    """Seconds that the answer to ``quit`` may take; ``None`` is what the control channel gives a terminate.

    By force an answer is waited for as for any other command: whoever has said ``--force`` to a daemon that does not
    answer has been told so, and wants it ended.
    """
    if limit is None:
        return _NO_END
    return control.channel.deadline + limit if force else None


async def _watch(task: asyncio.Task[Answer[None]], daemon: Daemon, progress: Progress) -> None:
    """Tells of the clients that are left each time that some have gone, until the task is done."""
    clients = list(daemon.clients())
    told = len(clients)
    while not task.done():
        await asyncio.wait({task}, timeout=_LOOK)
        clients = [client for client in clients if _may_be_there(client)]
        if len(clients) != told:
            told = len(clients)
            names = "; ".join(client_line(client) for client in clients[:_SHOWN])
            more = f" and {told - _SHOWN} more" if told > _SHOWN else ""
            progress(f"{told} left{': ' if names else ''}{names}{more}")


def _may_be_there(client: Client) -> bool:
    """Whether its process has not been seen to end; of one in another PID namespace that cannot always be seen."""
    if client.local:
        return process_key(client.pid) == client.key
    return client.pid_here is None or process_key(client.pid_here) is not None


async def _kill(work: Work, daemon: Daemon, key: ProcessKey, answer: Answer[Any], guard: Guard) -> Result:
    """Ends the process of a daemon that answers nobody. Its clients get 806 (fact 19)."""
    from mpstui.daemons.stale import clean
    from mpstui.operations.signals import end_process

    opened = open_pidfd(key)
    if not isinstance(opened, PidFd):
        return Result(work.request, STATUS[answer.outcome], f"{answer.message} It was not killed: {opened.message}")
    with opened as process:
        if (why := await asyncio.to_thread(not_its_daemon, daemon.pipe_dir, key.pid)) is not None:
            text = f"{answer.message.rstrip('.')}. It was not killed: {why}"
            return Result(work.request, ExitStatus.REFUSED_BY_SAFETY_RULE, text)
        status, text = await end_process(process, _LEAVING / 2, work.progress, guard)
    if status is not ExitStatus.DONE:
        return Result(work.request, status, f"{answer.message.rstrip('.')}. It was not killed: {text}")
    details = await asyncio.to_thread(clean, daemon.pipe_dir)
    name = path_text(daemon.pipe_dir)
    return Result(work.request, ExitStatus.DONE, f"the daemon in {name} did not answer and {_was(text)}", details)


async def _end_usurped(work: Work, daemon: Daemon) -> Result:
    """Ends the process of a daemon in whose place another user answers: that it is one, of whom and of which directory,
    the kernel tells, of one directory that is held meanwhile. No command is sent."""
    from mpstui.daemons.stale import clean
    from mpstui.operations.signals import end_process

    name = path_text(daemon.pipe_dir)

    def forbidden(process: PidFd) -> str | None:
        pid = process.key.pid
        if set(process.uids() or ()) != {daemon.uid}:
            return f"process {pid} does not belong to {owner(daemon.user, daemon.uid)} alone"
        return not_usurped(daemon.pipe_dir, folder, pid)

    opened = None if daemon.key is None else open_pidfd(daemon.key)
    if not isinstance(opened, PidFd):
        why = "which process it is cannot be seen" if opened is None else opened.message
        return Result(work.request, ExitStatus.REFUSED_BY_SAFETY_RULE, f"the daemon in {name} was not ended: {why}")
    with opened as process, ExitStack() as stack:
        try:
            folder = stack.enter_context(held(daemon.pipe_dir))
        except (OSError, ValueError):
            text = f"the daemon in {name} was not ended: the directory cannot be looked at"
            return Result(work.request, ExitStatus.REFUSED_BY_SAFETY_RULE, text)
        status, text = await end_process(process, _LEAVING / 2, work.progress, forbidden)
    if status is not ExitStatus.DONE:
        return Result(work.request, status, f"the daemon in {name} was not ended: {text}")
    details = await asyncio.to_thread(clean, daemon.pipe_dir)
    left = any(is_anothers(uid, daemon.uid) and uid != ANYBODY for uid in daemon.speaker.sockets)
    text = f"the daemon in {name} {_was(text)}" + ("; the sockets at its path belong to another user" * left)
    return Result(work.request, ExitStatus.DONE, text, details)


def _was(text: str) -> str:
    return f"was {text}" if text.startswith("ended by") else "has ended"


async def _gone(key: ProcessKey | None) -> bool:
    if key is None:
        return True
    opened = open_pidfd(key)
    if not isinstance(opened, PidFd):
        return process_key(key.pid) != key
    with opened as process:
        return await process.wait(_LEAVING)


def _clients(count: int) -> str:
    return f"{plural(count, 'client')} {have(count)}"
