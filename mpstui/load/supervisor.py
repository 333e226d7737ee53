"""Starts workers, keeps what they report, moves their shares, and leaves none behind."""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from mpstui.control.channel import ExchangedError, as_judged
from mpstui.core.late import dataclass
from mpstui.core.model import CONTEXT_LIMIT
from mpstui.core.partition import shorten
from mpstui.core.text import path_text
from mpstui.core.trust import Speaker
from mpstui.load.client import HeldName, WorkerProcess, client_environment, worker_order
from mpstui.load.process import GRACE
from mpstui.load.runner import GRACE as COMMAND_GRACE
from mpstui.load.types import COMMAND, INFO, LoadSpec, WorkerError, WorkerReport, value_for
from mpstui.observe.discovery import find_speaker
from mpstui.observe.sources import NodeSources, NvmlSample, NvmlSource
from mpstui.system.own import own_program

CUDA_WORKER: Final = own_program("mpstui.load.worker")
COMMAND_WORKER: Final = own_program("mpstui.load.runner")
READY_SECONDS: Final = 60.0
"""How long the first of a group waits for the last; a client of another user may wait for ever (fact 21)."""
_MEMORY_SECONDS: Final = 1.0

Callback = Callable[[WorkerReport], None]


@dataclass(slots=True)
class _Slot:
    """A worker's number, what it is to be, and the process that is it now."""

    spec: LoadSpec
    index: int
    process: WorkerProcess
    percentage: float | None
    sms: int | None
    pool: tuple[int, ...]
    room: int
    """Contexts that its pool may have."""
    together: asyncio.Task[None] | None = None
    leaving: WorkerProcess | None = None
    """The process before a restart, until it has ended."""
    stopped: bool = False


def supervisor_of(sources: NodeSources, pipe_dir: Path | None) -> Supervisor:
    """Of workers of the daemon in ``pipe_dir``, or without MPS, as the node has them."""
    command = CUDA_WORKER if sources.worker_command is None else sources.worker_command(pipe_dir)
    return Supervisor(worker_command=command, simulated=sources.simulated, nvml=sources.nvml)


class Supervisor:
    """All workers of one screen or one command. To be used from one event loop, in the main thread: the kernel ends
    the workers when the thread that started them ends."""

    def __init__(
        self,
        *,
        worker_command: tuple[str, ...] = CUDA_WORKER,
        simulated: bool = False,
        nvml: NvmlSource | None = None,
        environment: Mapping[str, str] = os.environ,
        speaker: Callable[[Path], Speaker] = find_speaker,
    ) -> None:
        """``speaker`` tells whose a pipe directory is, and whether others may write to it."""
        self.simulated = simulated
        self._find_speaker = speaker
        self.why_not: Callable[[], str | None] | None = None
        """Asked in a thread for a reason, before each worker under MPS is started and before it goes on to its work:
        the daemon that was asked about may not be the one that is in the directory by then."""
        self._worker_command = worker_command
        self._nvml = nvml
        self._environment = environment
        self._slots: dict[int, _Slot] = {}
        self._callbacks: list[Callback] = []
        self._memory_task: asyncio.Task[None] | None = None

    @property
    def workers(self) -> tuple[WorkerReport, ...]:
        """The latest report of each worker, by its number."""
        return tuple(slot.process.report for slot in self._slots.values())

    def subscribe(self, callback: Callback) -> Callable[[], None]:
        """Call ``callback`` in the event loop with each new report; returns what ends that."""
        self._callbacks.append(callback)

        def unsubscribe() -> None:
            with contextlib.suppress(ValueError):
                self._callbacks.remove(callback)

        return unsubscribe

    async def start(self, spec: LoadSpec, contexts: int = CONTEXT_LIMIT) -> tuple[int, ...]:
        """Start a group of workers; they begin together once each is ready. Returns their numbers.

        ``contexts``: how many of its device this supervisor's workers may have; the pools share them (fact 13).
        """
        there = [slot for slot in self._slots.values() if slot.spec.device_uuid == spec.device_uuid]
        mine = sum(max(1, len(slot.pool)) for slot in there if not slot.process.report.over)
        room = max(1, (contexts - mine) // max(1, spec.clients))
        numbers = []
        for index in range(spec.clients):
            number = len(self._slots) + 1
            sms = value_for(spec.sm_counts, index)
            wanted = None if sms is None else int(sms)
            self._slots[number] = _Slot(
                spec,
                index,
                self._new_process(number, spec),
                value_for(spec.percentages, index),
                wanted,
                shorten(spec.pool, room, wanted),
                room,
            )
            numbers.append(number)
        for number in numbers:
            if self._slots[number].stopped:
                self._slots[number].process.give_up()
            else:
                await self._launch(self._slots[number])
        self._go_together(numbers)
        if spec.kernel == COMMAND and self._nvml is not None and self._memory_task is None:
            self._memory_task = asyncio.create_task(self._watch_memory(self._nvml))
        return tuple(numbers)

    async def set_share(self, worker: int, sms: int) -> None:
        """Move the worker to ``sms`` SMs: at its next launch, on the level of its pool that is nearest.

        Without a pool (no affinity, or one context) it is restarted under a percentage, which takes a second; its
        report says so. Without MPS there are no shares: nothing happens.
        """
        slot = self._slots[worker]
        report = slot.process.report
        if not slot.spec.mps:
            return
        if len(report.levels) > 1:
            slot.sms = min(report.levels, key=lambda level: (abs(level - sms), -level))
            slot.process.send("share", sms=slot.sms, asked=time.monotonic())
            return
        total = await self._device_sms(report)
        if total:
            share = min(100.0, math.ceil(sms / total * 10_000) / 100)
            await self.restart(worker, percentage=share)

    async def restart(self, worker: int, percentage: float | None = None, pool: tuple[int, ...] | None = None) -> None:
        """End the worker gracefully and start it again under the server's present limits, or under ``percentage``.

        ``pool``: the shares that those limits leave it now. It gets no more contexts than it had room for at first.
        """
        slot = self._slots[worker]
        if percentage is not None:
            slot.percentage, slot.sms = percentage, None
        if pool:
            slot.sms = None if slot.sms is None else min(slot.sms, max(pool))
            slot.pool = shorten(pool, slot.room, slot.sms)
        if slot.leaving is not None:
            return  # it is being restarted, and takes the percentage from above
        old, slot.leaving = slot.process, slot.process
        old.silence()
        slot.process = self._new_process(worker, slot.spec)
        note = "restarted: a change of limits reaches new clients only"
        slot.process.report = replace(slot.process.report, state="restarting", notes=(note,))
        self._notify(slot.process.report)
        await old.stop(self._deadline(slot))
        slot.leaving = None
        if slot.stopped:
            slot.process.give_up()
            return
        await self._launch(slot)
        self._go_together([worker])

    def fault(self, worker: int) -> None:
        """Have a worker with the illegal kernel make its illegal store now."""
        self._slots[worker].process.send("fault")

    def kill(self, worker: int) -> None:
        """SIGKILL a worker. A busy one takes its neighbours along (fact 17): for experiments in a private daemon."""
        self._slots[worker].process.kill()

    def die(self, worker: int, number: int) -> None:
        """Have a worker end as a program of a user does that nobody has written a handler for: by this signal, wherever
        it is. As harmful as :meth:`kill`."""
        self._slots[worker].process.send("die", signal=number)

    async def stop(self, workers: Iterable[int] | None = None) -> None:
        """End these workers, or all, gracefully; returns when their processes are gone."""
        chosen = [self._slots[number] for number in (self._slots if workers is None else workers)]
        for slot in chosen:
            slot.stopped = True
        processes = [(slot, process) for slot in chosen for process in (slot.process, slot.leaving) if process]
        await asyncio.gather(*(process.stop(self._deadline(slot)) for slot, process in processes))
        if workers is None:
            for task in [self._memory_task, *(slot.together for slot in self._slots.values())]:
                if task is not None:
                    task.cancel()
            self._memory_task = None

    async def wait(self, workers: Iterable[int] | None = None) -> None:
        """Until these workers, or all, have ended."""
        numbers = list(self._slots if workers is None else workers)
        await asyncio.gather(*(self._slots[number].process.ended.wait() for number in numbers))

    async def wait_settled(self, workers: Iterable[int]) -> None:
        """Until each of these is ready, or over before it was."""
        await asyncio.gather(*(self._slots[number].process.settled.wait() for number in workers))

    def report(self, worker: int) -> WorkerReport:
        """The latest report of one worker."""
        return self._slots[worker].process.report

    def _new_process(self, number: int, spec: LoadSpec) -> WorkerProcess:
        report = WorkerReport(
            number, spec.kernel, "starting", time.monotonic(), unit=INFO[spec.kernel].unit, simulated=self.simulated
        )
        return WorkerProcess(report, self._notify)

    def _notify(self, report: WorkerReport) -> None:
        for callback in tuple(self._callbacks):
            callback(report)

    def _deadline(self, slot: _Slot) -> float:
        return 4.0 + (COMMAND_GRACE if slot.spec.kernel == COMMAND else GRACE)

    async def _launch(self, slot: _Slot) -> None:
        spec = slot.spec
        argv = COMMAND_WORKER if spec.kernel == COMMAND else self._worker_command
        way = spec.pipe_dir if spec.mps else None
        refused, held = None, HeldName()
        try:
            held = await self._hold(spec)
        except ExchangedError as error:
            text = f"no client was started in {path_text(spec.pipe_dir)}: {error}"
            refused = WorkerError(text, "see mpstui status", kind="refused")
        environment = client_environment(
            self._environment,
            pipe_dir=held.name or (path_text(way) if way else None),
            percentage=slot.percentage,
            memory_limit=spec.memory_limit,
            priority=spec.priority,
            device_uuid=spec.device_uuid,
            connections=spec.connections,
        )
        limited = spec.memory_limit is not None
        order = worker_order(spec, sms=slot.sms, pool=slot.pool, memory_limited=limited)
        slot.process.report = replace(slot.process.report, percentage=slot.percentage, device_uuid=spec.device_uuid)
        try:
            refused = refused or await self._refused(spec)
            if refused is None:
                await slot.process.start(argv, environment, order, held)
        except BaseException:
            held.close()
            raise
        if refused is not None:
            held.close()
            slot.process.give_up(refused)

    async def _hold(self, spec: LoadSpec) -> HeldName:
        """The daemon's sockets as they are looked at now, for a client that connects to no others, where somebody could
        exchange them until it does. A program finds them by name: what it starts inherits no descriptor, and would
        compute without MPS (fact 19). Raises ExchangedError."""
        if not spec.mps or spec.pipe_dir is None or spec.kernel == COMMAND or self.simulated:
            return HeldName()
        speaker = await asyncio.to_thread(self._find_speaker, spec.pipe_dir)
        return HeldName() if speaker.uid is None or not speaker.stamp else HeldName(as_judged(spec.pipe_dir, speaker))

    def _go_together(self, numbers: list[int]) -> None:
        task = asyncio.create_task(self._go(numbers))
        for number in numbers:
            self._slots[number].together = task

    async def _go(self, numbers: list[int]) -> None:
        slots = [self._slots[number] for number in numbers]
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self.wait_settled(numbers), READY_SECONDS)
        refused = await self._refused(slots[0].spec)  # of one group, which begins together
        for slot in slots:
            _release(slot, refused)
        await asyncio.gather(*(self._go_late(slot) for slot in slots if not slot.process.settled.is_set()))

    async def _go_late(self, slot: _Slot) -> None:
        process = slot.process
        note = "waits for the MPS server: it now serves another user, until all clients of that user have ended"
        process.report = replace(process.report, notes=(*process.report.notes, note))
        self._notify(process.report)
        await process.settled.wait()
        _release(slot, await self._refused(slot.spec))

    async def _refused(self, spec: LoadSpec) -> WorkerError | None:
        why = await asyncio.to_thread(self.why_not) if spec.mps and self.why_not is not None else None
        return None if why is None else WorkerError(why.rstrip("."), "see mpstui status", kind="refused")

    async def _device_sms(self, report: WorkerReport) -> int | None:
        """All SMs of the device: a client under a percentage sees only its share of them."""
        if self._nvml is not None:
            sample = await asyncio.to_thread(self._nvml.sample)
            for device in sample.devices:
                if report.device_uuid in (None, device.uuid) and device.sm_count:
                    return device.sm_count
        return report.device_sms

    async def _watch_memory(self, nvml: NvmlSource) -> None:
        """What NVML counts for the processes of each command."""
        while True:
            sample = await asyncio.to_thread(nvml.sample)
            for slot in self._slots.values():
                process = slot.process
                if slot.spec.kernel == COMMAND and process.report.pids and not process.report.over:
                    process.report = replace(process.report, memory=memory_of(sample, process.report.pids))
                    self._notify(process.report)
            await asyncio.sleep(_MEMORY_SECONDS)


def _release(slot: _Slot, refused: WorkerError | None) -> None:
    """Let a ready worker go, unless it is refused, or runs in another way than it was asked to."""
    report = slot.process.report
    if report.state != "ready":
        return
    if refused is not None:
        slot.process.reject(refused)
    elif report.mps is not None and report.mps != slot.spec.mps:
        slot.process.reject(_wrong_mode(slot.spec))
    else:
        slot.process.send("go")


def memory_of(sample: NvmlSample, pids: Iterable[int]) -> int | None:
    """Bytes that NVML counts for these processes on all devices; None where it counts none of them."""
    wanted, found = set(pids), []
    for uuid in {*sample.processes, *sample.mps_clients}:
        both = {**sample.processes.get(uuid, {}), **sample.mps_clients.get(uuid, {})}
        found += [size for pid, size in both.items() if pid in wanted and size]  # 0: not on this device (fact 34)
    return sum(found) if found else None


def _wrong_mode(spec: LoadSpec) -> WorkerError:
    if spec.mps:
        return WorkerError(
            f"the client runs without MPS: no daemon took it in {path_text(spec.pipe_dir)}",
            "start a daemon there, or use --private or --mps off",
            kind="no_mps",
        )
    return WorkerError("the client runs under MPS although it should not", "see CUDA_MPS_PIPE_DIRECTORY", kind="no_mps")
