"""One worker process as the supervisor holds it: its environment, its lines, and its end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import fields, replace
from typing import Any, Final

from mpstui.core.text import error_text, printable
from mpstui.load.process import EXIT_FAILED, EXIT_FORCED
from mpstui.load.protocol import LINE_LIMIT, Order, decode, encode, fold
from mpstui.load.types import Computation, WorkerError, WorkerReport, WorkerState
from mpstui.system import starts
from mpstui.system.procfs import process_key

NO_DAEMON_DIRECTORY: Final = "/nonexistent/mpstui-without-mps"
"""A pipe directory without a daemon: CUDA then works without MPS (fact 19)."""
_MPS_VARIABLES: Final = (
    "CUDA_MPS_PIPE_DIRECTORY",
    "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE",
    "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT",
    "CUDA_MPS_CLIENT_PRIORITY",
    "CUDA_MPS_ENABLE_PER_CTX_DEVICE_MULTIPROCESSOR_PARTITIONING",
    "CUDA_DEVICE_MAX_CONNECTIONS",
)
_STDERR_TAIL: Final = 2000


def client_environment(
    base: Mapping[str, str],
    *,
    pipe_dir: str | None,
    percentage: float | None = None,
    memory_limit: str | None = None,
    priority: int | None = None,
    device_uuid: str | None = None,
    connections: int | None = None,
) -> dict[str, str]:
    """The environment of a client; ``pipe_dir`` None is without MPS. Limits of the caller's own are not inherited."""
    environment = {name: value for name, value in base.items() if name not in _MPS_VARIABLES}
    environment["CUDA_MPS_PIPE_DIRECTORY"] = pipe_dir or NO_DAEMON_DIRECTORY
    if device_uuid is not None:
        environment["CUDA_VISIBLE_DEVICES"] = device_uuid
    if connections is not None:
        environment["CUDA_DEVICE_MAX_CONNECTIONS"] = str(connections)
    if pipe_dir is None:
        return environment
    if percentage is not None:
        environment["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] = f"{percentage:g}"
    if memory_limit is not None:
        environment["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] = f"0={memory_limit}"
    if priority is not None:
        environment["CUDA_MPS_CLIENT_PRIORITY"] = str(priority)
    return environment


class HeldName:
    """Another name than its directory's, by which a client finds its daemon, and what it inherits for that: ``what``,
    kept until it has connected. Without it, it goes by the directory's."""

    def __init__(self, what: AbstractContextManager[tuple[str, list[int]]] | None = None) -> None:
        self._stack = contextlib.ExitStack()
        self.name: str | None = None
        self.descriptors: Sequence[int] = ()
        if what is not None:
            self.name, self.descriptors = self._stack.enter_context(what)

    def close(self) -> None:
        self._stack.close()


class WorkerProcess:
    """One process; ``changed`` is called with every new report, in the event loop."""

    def __init__(self, report: WorkerReport, changed: Callable[[WorkerReport], None]) -> None:
        self.report = report
        self.settled = asyncio.Event()
        """Ready, or over before it was."""
        self.ended = asyncio.Event()
        self._changed = changed
        self._process: asyncio.subprocess.Process | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._stderr = b""
        self._verdict: WorkerError | None = None
        self._held = HeldName()

    async def start(self, argv: Sequence[str], environment: Mapping[str, str], order: Order, held: HeldName) -> None:
        """Start the process and hand it its order. Never raises for what the system refuses: the report says it."""
        self._held = held
        try:
            start = asyncio.create_subprocess_exec(
                *argv,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env=dict(environment),
                limit=LINE_LIMIT,
                pass_fds=held.descriptors,
            )
            self._process = await starts.started(start, _kill_without_order)
        except OSError as error:
            text = f"the worker cannot be started: {error_text(error)}"
            self._finish("failed", WorkerError(text, "see free memory and the limit of processes", kind="died"))
            return
        _let_live(self._process)
        self._update(key=process_key(self._process.pid))
        self._write(order.encode())
        self._tasks = [asyncio.create_task(self._read_errors()), asyncio.create_task(self._read())]

    def send(self, kind: str, **values: Any) -> None:
        """A command to the worker; one that has ended does not hear it."""
        self._write(encode(kind, values))

    def reject(self, error: WorkerError) -> None:
        """End it gracefully, as failed for a reason that the supervisor found."""
        self._verdict = error
        self.send("stop")

    def _write(self, data: bytes) -> None:
        stdin = self._process.stdin if self._process else None
        if stdin is not None and not stdin.is_closing():
            with contextlib.suppress(OSError):
                stdin.write(data)

    async def stop(self, deadline: float) -> None:
        """Ask it to end and wait; after ``deadline`` seconds it is killed, and neighbours with it maybe (fact 17)."""
        if self._process is None or self.ended.is_set():
            return
        if self.report.state not in {"stopping", "ended", "failed"}:
            self._update(state="stopping")
        self.send("stop")
        try:
            await asyncio.wait_for(self.ended.wait(), deadline)
        except asyncio.TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(signal.SIGKILL)
            await self.ended.wait()

    def give_up(self, error: WorkerError | None = None) -> None:
        """End before it was started; failed where that is for an error."""
        self._finish("ended" if error is None else "failed", error)

    def silence(self) -> None:
        """Report nothing any more: another process has taken its number."""
        self._changed = _nobody

    def kill(self) -> None:
        """SIGKILL at once, for experiments that want to see what it does."""
        if self._process is not None and not self.ended.is_set():
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(signal.SIGKILL)

    async def _read(self) -> None:
        process = self._process
        if process is None or process.stdout is None:
            return
        while True:
            try:
                line = await process.stdout.readline()
            except ValueError:
                continue  # longer than the limit: what was read of it is dropped
            if not line:
                break
            message = decode(line)
            if message is not None:
                self._heard(message)
        status = await process.wait()
        # A descendant of a program may hold standard error open for ever.
        await asyncio.wait(self._tasks[:1], timeout=0.5)
        self._tasks[0].cancel()
        self._over(status)

    async def _read_errors(self) -> None:
        process = self._process
        if process is None or process.stderr is None:
            return
        while chunk := await process.stderr.read(1 << 16):
            self._stderr = (self._stderr + chunk)[-_STDERR_TAIL:]

    def _heard(self, message: dict[str, Any]) -> None:
        before = self.report.state
        report = fold(self.report, message)
        if before == "stopping" and report.state in {"ready", "running"}:
            report = replace(report, state=before)
        if self._verdict is not None and report.state in {"ended", "failed"}:
            report = replace(report, state="failed", error=self._verdict)
        self.report = report
        self._changed(report)
        if report.state == "ready" or report.over:
            self._settle()

    def _over(self, status: int) -> None:
        report = self.report
        if report.over:
            self._finish(report.state, report.error)
            return
        lines = [line for line in self._stderr.decode("utf-8", "replace").splitlines() if line.strip()]
        last = f": {printable(lines[-1], 200)}" if lines else ""
        if status < 0:
            name = signal.Signals(-status).name if -status in set(signal.Signals) else str(-status)
            error = WorkerError(f"the worker was ended by {name}", "somebody killed it, or the system did", kind="died")
        elif status == EXIT_FORCED:
            error = WorkerError("the worker did not end by itself and ended by force", "see dmesg", kind="died")
        elif status == EXIT_FAILED or status:
            error = WorkerError(f"the worker ended with exit status {status}{last}", "see dmesg", kind="died")
        else:
            error = WorkerError(f"the worker ended and did not say why{last}", "see dmesg", kind="died")
        self._finish("failed", self._verdict or error)

    def _finish(self, state: WorkerState, error: WorkerError | None) -> None:
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()
        self._update(state=state, error=error)
        self._settle()
        self.ended.set()

    def _settle(self) -> None:
        """It has its contexts, or will never have any."""
        self._held.close()
        self.settled.set()

    def _update(self, **changes: Any) -> None:
        self.report = replace(self.report, time=time.monotonic(), **changes)
        self._changed(self.report)


async def _kill_without_order(process: asyncio.subprocess.Process) -> None:
    """It has no context yet, so that no neighbour is hit."""
    with contextlib.suppress(ProcessLookupError):
        process.kill()
    await process.wait()


def _let_live(process: asyncio.subprocess.Process) -> None:
    """asyncio kills the process of a transport that goes, as it does with Python 3.14 where the program ends by an
    exception: the worker's program would be left, and the neighbours of a busy client lost (fact 17). A worker ends by
    itself once nobody is at the other end of its standard input."""
    transport = getattr(process, "_transport", None)
    held = None if transport is None else transport.get_extra_info("subprocess")
    if held is not None:
        held.kill = lambda: None


def _nobody(_: WorkerReport) -> None:
    return None


def worker_order(of: Computation, **values: Any) -> Order:
    """The order to do that, with this process as the parent; ``values``: what an order has besides."""
    same = {each.name: getattr(of, each.name) for each in fields(Computation)}
    return Order(**same, parent=os.getpid(), **values)
