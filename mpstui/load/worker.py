"""One CUDA client as a process: ``python -m mpstui.load.worker``, told by its supervisor what to do."""

from __future__ import annotations

import ctypes
import os
import time
from collections import deque
from dataclasses import replace
from typing import Any, Final, NoReturn

from mpstui.core.late import dataclass
from mpstui.core.text import error_text, plural
from mpstui.load.driver import DEFAULT_STREAMS, Arguments, CudaDriver, CudaError, DeviceFacts, Handle, NoDriver
from mpstui.load.errors import OUT_OF_MEMORY, PINNED_CALL, cuda_error, limit_too_small, no_pinned_memory, words
from mpstui.load.footprint import BODIES, MIB, SMALL_STEPS
from mpstui.load.process import Channel
from mpstui.load.protocol import Order
from mpstui.load.requests import Latencies, Requests
from mpstui.load.types import INFO, WorkerError
from mpstui.load.workloads import FUNCTIONS, ContextShare, Copied, Nothing, Workload, make_workload, ptx

BATCH_SECONDS: Final = 0.004
"""Two batches are under way at a time: a change of share waits for some 8 ms of work."""
REPORT_SECONDS: Final = 0.25
SETTLE_SECONDS: Final = 0.03
"""After a change of share the first report covers this long, so that it comes within 100 ms of the key."""
FAULT_SECONDS: Final = 3.0
CONTEXT_RESERVE: Final = 640 * MIB
"""What a context may take (520 MiB were seen, fact 23), with some to spare."""
REQUEST_SMS: Final = 132
"""A request is one launch as these many SMs would get it."""
_UNAVAILABLE: Final = 46
_LARGEST_BATCH: Final = 2000
MAPPED_WORD: Final = 4
"""Bytes of the word that ends the endless kernel, all that it holds."""
_FILL_BLOCKS: Final = (256 * MIB, 32 * MIB, 2 * MIB)


@dataclass(slots=True)
class Batch:
    """Launches under way, with the event behind those of each stream."""

    events: tuple[Handle, ...]
    amount: float
    launches: int


class KernelWorker:
    """A pool of contexts, one kernel, and the loop that launches it."""

    def __init__(self, driver: CudaDriver, channel: Channel, order: Order) -> None:
        self.driver = driver
        self.channel = channel
        self.order = order
        self.facts: DeviceFacts = driver.facts()
        self.shares: dict[int, ContextShare] = {}
        self.share: ContextShare | None = None
        self.done = 0.0
        self.launches = 0
        self.started = 0.0
        self._reported_at = 0.0
        self._reported_done = 0.0
        self._report_due = 0.0
        self._switch_from: float | None = None
        self._latencies = Latencies()

    # The pool.

    def make_pool(self) -> tuple[ContextShare, list[str]]:
        """The context to start on and then the others, as far as the device takes them; notes on what was left out."""
        order, notes = self.order, []
        wanted = order.sms
        pool = sorted(set(order.pool))
        if not self.facts.affinity and (pool or wanted is not None):
            notes.append("this device cannot set a context's share here: a change restarts the client")
            pool, wanted = [], None
        if pool and wanted is None:
            wanted = self.facts.sms
        first = self.share = self._add_share(wanted)
        for sms in pool:
            if any(share.sms >= sms and share.sms - sms < 2 for share in self.shares.values()):
                continue  # rounds to one that is there
            if self.channel.stopping:
                break
            if self.driver.free_memory() < CONTEXT_RESERVE:
                notes.append(
                    f"the pool ends at {plural(len(self.shares), 'context')}: the memory that is left is kept free"
                )
                break
            try:
                self._add_share(sms)
            except CudaError as error:
                if error.code not in {OUT_OF_MEMORY, _UNAVAILABLE}:
                    raise
                notes.append(f"the pool ends at {plural(len(self.shares), 'context')}: {words(error.code)}")
                break
        self.driver.use(first.context)
        return first, notes

    def _add_share(self, sms: int | None) -> ContextShare:
        before = time.monotonic()
        free = self.driver.free_memory() if self.shares else None
        context, got = self.driver.create_context(sms)
        kernel = self.order.kernel
        functions = self.driver.load(ptx(kernel), FUNCTIONS[kernel])
        if kernel == "illegal":
            functions |= self.driver.load(ptx("fma"), FUNCTIONS["fma"])
        if self.order.default_stream is not None:
            functions |= self.driver.load(ptx("small"), FUNCTIONS["small"])
        share = ContextShare(context, got if got is not None else self.facts.sms, functions)
        share.streams = self._streams()
        share.events = [tuple(self.driver.event() for _ in share.streams) for _ in range(2)]
        share.seconds = time.monotonic() - before
        share.size = max(0, free - self.driver.free_memory()) if free is not None else 0
        self.shares[share.sms] = share
        return share

    def _streams(self) -> tuple[Handle, ...]:
        """Of the current context, the default stream behind the others."""
        order = self.order
        blocking = order.default_stream is not None
        count = order.streams or int(order.stream_priority is not None)
        own = [self.driver.stream(blocking=blocking, priority=order.stream_priority) for _ in range(count)]
        own = own or [DEFAULT_STREAMS["legacy"]]
        return (*own, DEFAULT_STREAMS[order.default_stream]) if order.default_stream else tuple(own)

    def destroy(self) -> None:
        """Give every context back, so that the server sees a client that left in order."""
        for share in self.shares.values():
            self.driver.use(share.context)
            self.driver.destroy_context(share.context)

    # The work.

    def run(self) -> NoReturn:
        """Until stopped, out of time, or done with the amount."""
        share, notes = self.make_pool()
        facts = self.facts
        for note in notes:
            self.channel.say("note", note=note)
        budget = min(int(facts.memory * 0.6), self.driver.free_memory() * 4 // 5) // max(1, self.order.clients)
        if self.order.memory_limited:
            budget = self.driver.free_memory() * 4 // 5
        again_and_again = self.order.kernel not in {"endless", "memory"}
        works = self._works(budget, share) if again_and_again else []
        self.channel.say(
            "ready",
            device_uuid=facts.uuid,
            device_name=facts.name,
            device_sms=facts.sms,
            mps=facts.mps,
            affinity=facts.affinity,
            unit=INFO[self.order.kernel].unit,
            sms=share.sms,
            levels=sorted(self.shares) if facts.affinity and self.order.pool else [share.sms],
            pool=[{"sms": s.sms, "seconds": s.seconds, "size": s.size} for s in self.shares.values()],
        )
        if self.channel.wait_for_go():
            self.started = self._reported_at = time.monotonic()
            self._report_due = self.started + REPORT_SECONDS
            self.channel.say("running", time=self.started)
            if self.order.kernel == "endless":
                self._endless(share)
            elif self.order.kernel == "memory":
                self._fill(share)
            else:
                requests = self.order.arrivals is not None or self.order.busy is not None
                (self._serve if requests else self._loop)(works, share)
        elapsed = max(0.0, self._reported_at - self.started)
        for work in works:
            if isinstance(work, Copied):
                work.close()
        self.destroy()
        self.channel.end(done=self.done, launches=self.launches, running_seconds=elapsed, time=self._reported_at)

    def _works(self, budget: int, share: ContextShare) -> list[Workload]:
        """One for each stream of the share."""
        order, works = self.order, list[Workload]()
        each = budget // len(share.streams) - (order.copies or 0)
        for _ in range(order.streams or 1):
            bodies, steps = order.bodies or BODIES, order.steps or SMALL_STEPS
            work = make_workload(order.kernel, self.driver, each, bodies, steps)
            works.append(Copied(self.driver, work, order.copies) if order.copies else work)
        return [*works, Nothing(self.driver)] if order.default_stream else works

    def _over(self) -> bool:
        seconds = self.order.seconds
        return self.channel.stopping or (seconds is not None and time.monotonic() - self.started >= seconds)

    def _loop(self, works: list[Workload], share: ContextShare) -> None:
        """Keep two batches under way; a batch is as many launches in each stream as fill some milliseconds."""
        for work in works:
            work.enter(share)
        under_way: deque[Batch] = deque()
        size, enqueued, last = 1, 0.0, time.monotonic()
        amount = self.order.amount
        turns = self._turns(share)
        fault_due = self.started + FAULT_SECONDS if self.order.kernel == "illegal" else None
        while not self._over() and (amount is None or self.done < amount):
            target, fault_due = self._told(share, fault_due)
            if target is not share:
                while under_way:
                    self._finish(under_way.popleft())
                share = self._change(works, target, target)
                self._reported_at, self._reported_done = time.monotonic(), self.done
                self._report_due = self._reported_at + SETTLE_SECONDS
                size, last = 1, self._reported_at
            if fault_due is not None and time.monotonic() >= fault_due:
                self.driver.launch(share.functions["illegal_store"], 1, 1, None)
                self.driver.synchronize()
                fault_due = None
            if amount is None or enqueued < amount:
                batch = self._enqueue(works, share, turns, size, None if amount is None else amount - enqueued)
                enqueued += batch.amount
                under_way.append(batch)
                if len(under_way) < 2:
                    continue
            ended = under_way.popleft()
            self._finish(ended)
            now = time.monotonic()
            if ended.launches == size * (self.order.streams or 1):
                wanted = size * BATCH_SECONDS / max(1e-5, now - last)
                size = max(1, min(_LARGEST_BATCH, 2 * size, int(wanted + 0.5)))
            last = now
            if now >= self._report_due:
                self._report(works, now)
        while under_way:
            self._finish(under_way.popleft())
        self._report(works, time.monotonic())
        for work in works:
            work.leave()

    def _told(self, share: ContextShare, fault_due: float | None) -> tuple[ContextShare, float | None]:
        """The share that is wanted now, and when a fault is due."""
        for message in self.channel.take():
            if message["type"] == "share":
                share = self._choose(message, share)
            elif message["type"] == "fault":
                fault_due = 0.0
        return share, fault_due

    def _change(self, works: list[Workload], target: ContextShare, room: ContextShare) -> ContextShare:
        """To another context of the pool, with the memory of the workloads. ``room``: for what share they are made."""
        for work in works:
            work.leave()
        self.share = target
        self.driver.use(target.context)
        for work in works:
            work.enter(room)
        return target

    def _turns(self, share: ContextShare) -> list[int]:
        """In which stream is launched, one after the other; behind each the default stream, where that is asked."""
        own = range(self.order.streams or 1)
        if self.order.default_stream is None:
            return list(own)
        return [turn for number in own for turn in (number, len(own))]

    def _serve(self, works: list[Workload], share: ContextShare) -> None:
        """A launch for each request, one after the other, as an inference server does. A request is as large whatever
        the share, and so takes longer on a smaller one."""
        for work in works:
            work.enter(replace(share, sms=REQUEST_SMS))
        requests = Requests(self.order.arrivals, self.order.busy, os.getpid())
        came = requests.first(time.monotonic())
        amount = self.order.amount
        while not self._over() and (amount is None or self.done < amount):
            now = time.monotonic()
            if now >= self._report_due:
                self._report(works, now)
            messages = self.channel.take() if now >= came else self.channel.wait(min(came, self._report_due) - now)
            for message in messages:
                if message["type"] == "share" and (target := self._choose(message, share)) is not share:
                    share = self._change(works, target, replace(target, sms=REQUEST_SMS))
                    self._latencies.forget()
                    self._reported_at, self._reported_done = time.monotonic(), self.done
                    self._report_due = self._reported_at + SETTLE_SECONDS
            begun = time.monotonic()
            if begun < came:
                continue
            self._finish(self._enqueue(works, share, [0], 1, None))
            ended = time.monotonic()
            self._latencies.add(ended, ended - came)
            came = requests.next(came, begun, ended)
        self._report(works, time.monotonic())
        for work in works:
            work.leave()

    def _enqueue(
        self, works: list[Workload], share: ContextShare, turns: list[int], size: int, left: float | None
    ) -> Batch:
        """``size`` launches in each stream, all of one before those of the next; fewer where ``left`` is less work."""
        amount, launches = 0.0, 0
        if self.order.by_step:
            amount, launches = self._by_step(works, share, size, left)
        for turn in () if self.order.by_step else turns:
            work, stream = works[turn], share.streams[turn]
            if isinstance(work, Nothing):
                work.launch(stream)
                continue
            for _ in range(size):
                if left is not None and amount >= left:
                    break
                amount += work.launch(stream)
                launches += 1
        events = share.events.pop(0)
        share.events.append(events)
        for event, stream in zip(events, share.streams, strict=True):
            self.driver.record(event, stream)
        return Batch(events, amount, launches)

    def _by_step(self, works: list[Workload], share: ContextShare, size: int, left: float | None) -> tuple[float, int]:
        """``size`` times in all streams: the copies to the device, then the kernels, then the copies back."""
        amount, launches = 0.0, 0
        both = [(work, stream) for work, stream in zip(works, share.streams, strict=False) if isinstance(work, Copied)]
        for _ in range(size):
            if left is not None and amount >= left:
                break
            for work, stream in both:
                work.bring(stream)
            amount += sum(work.compute(stream) for work, stream in both)
            for work, stream in both:
                work.fetch(stream)
            launches += len(both)
        return amount, launches

    def _finish(self, batch: Batch) -> None:
        for event in batch.events:
            self.driver.wait(event)
        self.done += batch.amount
        self.launches += batch.launches

    def _choose(self, message: dict[str, Any], now: ContextShare) -> ContextShare:
        """The context of the pool that is nearest to the share asked for."""
        sms = message.get("sms")
        if not isinstance(sms, int) or len(self.shares) < 2:
            return now
        asked = message.get("asked")
        self._switch_from = asked if isinstance(asked, float) else time.monotonic()
        nearest = min(self.shares, key=lambda level: (abs(level - sms), -level))
        if nearest == now.sms:
            self._switch_from = None
        return self.shares[nearest]

    def _report(self, works: list[Workload], now: float) -> None:
        passed = now - self._reported_at
        info = INFO[self.order.kernel]
        values: dict[str, Any] = {}
        if self._switch_from is not None:
            values["switch_seconds"] = now - self._switch_from
            self._switch_from = None
        if (latency := self._latencies.percentiles(now)) is not None:
            values["latency_p50"], values["latency_p99"] = latency
        if self.order.copies:
            values["copied"] = 2 * self.order.copies * self.launches
        if passed > 0 and info.unit:
            values["figure"] = (self.done - self._reported_done) / passed / info.scale
        self.channel.say(
            "report",
            droppable=not values.get("switch_seconds"),
            time=now,
            done=self.done,
            launches=self.launches,
            running_seconds=now - self.started,
            sms=self.share.sms if self.share else None,
            memory=sum(work.memory for work in works) if works else MAPPED_WORD,
            **values,
        )
        self._reported_at, self._reported_done, self._report_due = now, self.done, now + REPORT_SECONDS

    # The kernels that are not launched again and again.

    def _endless(self, share: ContextShare) -> None:
        word, pointer = self.driver.mapped_word()
        arguments = Arguments(ctypes.c_void_p(pointer))
        blocks, threads = (share.sms, 128) if self.order.blocks is None else (self.order.blocks, 1)
        self.driver.launch(share.functions["endless"], blocks, threads, arguments)
        self.driver.record(share.events[0][0])
        self.launches = 1
        try:
            while not self._over() and not self.driver.happened(share.events[0][0]):
                self.channel.wait(REPORT_SECONDS / 2)
                self._report([], time.monotonic())
        finally:
            word.value = 1
        self.driver.synchronize()

    def _fill(self, share: ContextShare) -> None:
        """Allocate smaller and smaller blocks until each is refused, then hold them."""
        held, blocks = 0, []
        refused: CudaError | None = None
        for size in _FILL_BLOCKS:
            while not self._over():
                try:
                    pointer = self.driver.alloc(size)
                except CudaError as error:
                    if error.code != OUT_OF_MEMORY:
                        raise
                    refused = error
                    break
                pages = ctypes.c_ulonglong(size // 4096)
                self.driver.launch(share.functions["touch"], 64, 256, Arguments(ctypes.c_void_p(pointer), pages))
                self.driver.synchronize()
                blocks.append(pointer)
                held += size
                self.launches += 1
                self.done = float(held)
                if time.monotonic() >= self._report_due:
                    self._report_memory(held)
        if refused is not None:
            self.channel.say("note", note=f"refused after {held / MIB:,.0f} MiB: {words(refused.code)}")
        self._report_memory(held)
        while not self._over():
            self.channel.wait(REPORT_SECONDS)
            self._report_memory(held)
        for pointer in blocks:
            self.driver.free(pointer)

    def _report_memory(self, held: int) -> None:
        now = time.monotonic()
        self.channel.say(
            "report",
            droppable=True,
            time=now,
            figure=held / INFO["memory"].scale,
            done=self.done,
            launches=self.launches,
            running_seconds=now - self.started,
            memory=held,
        )
        self._reported_at, self._report_due = now, now + REPORT_SECONDS


def explain(error: CudaError, order: Order, has_context: bool) -> WorkerError:
    """The error in words, with the remedy that fits a worker that got so far."""
    said = cuda_error(error.code, error.name, error.call)
    if error.code == OUT_OF_MEMORY and not has_context and order.memory_limited:
        return limit_too_small(error.name, error.call)
    if error.call == PINNED_CALL:
        return no_pinned_memory(error.code, error.name, error.call)
    return said


def main() -> None:
    """The whole life of a worker; never returns."""
    channel = Channel()
    order = channel.order
    worker: KernelWorker | None = None
    try:
        worker = KernelWorker(CudaDriver(), channel, order)
        worker.run()
    except NoDriver as error:
        channel.fail(error.error)
    except CudaError as error:
        channel.fail(explain(error, order, worker is not None and bool(worker.shares)))
    except (OSError, MemoryError) as error:
        channel.fail(
            WorkerError(f"the worker could not go on: {error_text(error)}", "see free memory and disk", kind="died")
        )


if __name__ == "__main__":
    main()
