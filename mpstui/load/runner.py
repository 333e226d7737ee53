"""The user's own program as a client: ``python -m mpstui.load.runner`` starts it, times it, and leaves nothing behind.

Nothing is assumed about the program. Its descendants stay ours, also those that fork away: this process adopts them.
"""

from __future__ import annotations

import contextlib
import math
import os
import queue
import re
import signal
import subprocess
import threading
import time
from collections import deque
from typing import IO, Final, NoReturn

import psutil

from mpstui.core.text import error_text, plural, printable
from mpstui.load.process import Channel
from mpstui.load.types import WorkerError
from mpstui.system.parent import adopt_orphans, ended_with_us

TERM_SECONDS: Final = 10.0
"""From SIGTERM to SIGKILL for the program and its descendants."""
GRACE: Final = 30.0
LEFT_SECONDS: Final = 0.5
"""What descendants have for ending after the program itself."""
DRAIN_SECONDS: Final = 10.0
"""What the end of the output has to come in: something that this process could not adopt may hold it open."""
METRIC_SECONDS: Final = 1.0
"""CPU time that the metric may take of a piece of output: an expression may need longer than the world will last."""
_REPORT_SECONDS: Final = 0.5
_SOON: Final = 0.1
"""Seconds from one report to the next where the program has said something of its throughput."""
_TAIL: Final = 2000
_METRICS: Final = 1000
_LINE: Final = 4096
_CHUNK: Final = 1 << 16
_CHUNKS: Final = 16


class SlowMetric(Exception):
    """The metric does not come to an end."""


class LoadRun:
    """One run of the program."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self.tail = b""
        self.metrics: deque[float] = deque(maxlen=_METRICS)
        self.no_metric = ""
        """What the metric's group was where that is no finite number, the first time."""
        self._told = 0
        self._line = b""
        self._chunks: queue.Queue[bytes] = queue.Queue(_CHUNKS)
        self._metric = re.compile(channel.order.metric) if channel.order.metric else None
        self.ended_at: float | None = None

    def run(self) -> None:
        """Wait for the word, run, report; never returns."""
        order = self.channel.order
        self.channel.say("ready", unit="s", levels=[])
        if not self.channel.wait_for_go():
            self.channel.end()
        started = time.monotonic()
        process = self._start(order.command)
        self.channel.say("running", time=started, pids=[process.pid])
        threading.Thread(target=self._wait, args=(process,), daemon=True).start()
        drain = threading.Thread(target=self._drain, args=(process.stdout,), daemon=True)
        drain.start()
        try:
            stopped = self._watch(started, process.pid)
        except SlowMetric:
            self._too_slow()
        elapsed = (self.ended_at or time.monotonic()) - started
        behind = descendants() if stopped else self._left_behind(process.pid)
        killed = end_all(behind)
        if killed:
            self.channel.say("note", note=f"{plural(killed, 'process')} did not end on SIGTERM and had to be killed")
        if self.ended_at is None:
            process.wait()
        if behind and not stopped:
            self.channel.fail(
                WorkerError(
                    f"the command ended after {elapsed:.1f} s but left {plural(len(behind), 'process')} running, "
                    "ended now",
                    "run it in the foreground: a program that forks away cannot be timed",
                    kind="command",
                )
            )
        # All that could write has ended; what it wrote may still be unread on a busy machine.
        try:
            self._rest(drain)
        except SlowMetric:
            self._too_slow()
        if process.returncode and not stopped:
            self.channel.fail(self._failure(process.returncode))
        if stopped:
            self.channel.say("note", note=f"stopped after {elapsed:.1f} s, before it had ended by itself")
        self.channel.end(
            done=0.0 if stopped else 1.0,
            running_seconds=elapsed,
            figure=elapsed,
            time=time.monotonic(),
            metrics=list(self.metrics),
            no_metric=self.no_metric,
        )

    def _watch(self, started: float, main: int) -> bool:
        """Until it has ended; whether it is to be ended before that. Raises SlowMetric."""
        seconds, reported, due = self.channel.order.seconds, started, started + _REPORT_SECONDS
        while self.ended_at is None:
            now = time.monotonic()
            if self.channel.stopping or (seconds is not None and now - started >= seconds):
                return True
            if len(self.metrics) != self._told:
                due = min(due, reported + _SOON)
            if now >= due:
                self._report(now, now - started, main)
                reported, due = now, now + _REPORT_SECONDS
            until = due if seconds is None else min(due, started + seconds)
            if not self._take():
                self.channel.wait(max(0.0, until - now))
        return False

    def _rest(self, drain: threading.Thread) -> None:
        """What is still to be read of the output. Raises SlowMetric."""
        end = time.monotonic() + DRAIN_SECONDS
        while self._take() or (drain.is_alive() and time.monotonic() < end):
            drain.join(0 if self._chunks.qsize() else 0.02)
        self._measure(b"\n")

    def _too_slow(self) -> NoReturn:
        end_all(descendants())
        self.channel.fail(
            WorkerError(
                f"the metric takes more than {METRIC_SECONDS:g} s of CPU for a piece of the program's output",
                "make the expression simpler: no repetition within a repetition, as in (a+)+",
                kind="command",
            )
        )

    def _start(self, command: tuple[str, ...]) -> subprocess.Popen[bytes]:
        try:
            return subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=ended_with_us(signal.SIGTERM),
            )
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            name = printable(command[0], 80) if command else "an empty command"
            self.channel.fail(
                WorkerError(
                    f"{name} cannot be started: {error_text(error)}", "check the command and its path", kind="command"
                )
            )

    def _wait(self, process: subprocess.Popen[bytes]) -> None:
        process.wait()
        self.ended_at = time.monotonic()
        self.channel.poke()

    def _drain(self, output: IO[bytes] | None) -> None:
        """Keep the last words: a full disk or a pipe that nobody reads must not stop the program."""
        with contextlib.suppress(OSError, ValueError):
            while output is not None and (chunk := os.read(output.fileno(), _CHUNK)):
                self.tail = (self.tail + chunk)[-_TAIL:]
                if self._metric is not None:
                    self._chunks.put(chunk)
                    self.channel.poke()

    def _take(self) -> bool:
        """Look for the metric in the next piece of output; whether there was one. Raises SlowMetric."""
        try:
            chunk = self._chunks.get_nowait()
        except queue.Empty:
            return False
        self._measure(chunk)
        return True

    def _measure(self, chunk: bytes) -> None:
        """Whole lines, also those that a progress bar writes over each other. Raises SlowMetric.

        In the main thread: only there does a signal end a search that goes on for ever.
        """
        metric = self._metric
        if metric is None:
            return
        *lines, rest = re.split(rb"[\r\n]", self._line + chunk)
        self._line = rest[-_LINE:]
        signal.signal(signal.SIGVTALRM, _give_up)
        signal.setitimer(signal.ITIMER_VIRTUAL, METRIC_SECONDS)
        try:
            for line in lines:
                found = metric.search(line[:_LINE].decode("utf-8", "replace"))
                if found is None:
                    continue
                said = found[1] or ""  # the group of an alternative that was not taken
                value = math.nan
                with contextlib.suppress(ValueError):
                    value = float(said.replace(",", ""))
                if math.isfinite(value):
                    self.metrics.append(value)
                else:
                    self.no_metric = self.no_metric or printable(said, 40) or "nothing"
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)

    def _report(self, now: float, elapsed: float, main: int) -> None:
        reap(main)
        new, self._told = len(self.metrics) != self._told, len(self.metrics)
        self.channel.say(
            "report",
            droppable=not new,
            time=now,
            figure=elapsed,
            running_seconds=elapsed,
            pids=[process.pid for process in descendants()],
            **({"metrics": list(self.metrics)} if new else {}),
        )

    def _left_behind(self, main: int) -> list[psutil.Process]:
        """Descendants that outlive the program by more than a moment."""
        end = time.monotonic() + LEFT_SECONDS
        while True:
            reap(main)
            left = descendants()
            if not left or time.monotonic() >= end:
                return left
            self.channel.wait(0.02)

    def _failure(self, status: int) -> WorkerError:
        lines = [line for line in self.tail.decode("utf-8", "replace").splitlines() if line.strip()]
        last = printable(lines[-1], 200) if lines else "it printed nothing"
        how = f"was ended by {signal.Signals(-status).name}" if status < 0 else f"ended with exit status {status}"
        return WorkerError(f"the command {how}: {last}", "run it by hand in the same environment", kind="command")


def _give_up(*_: object) -> NoReturn:
    raise SlowMetric


def descendants() -> list[psutil.Process]:
    """All processes below this one that live."""
    found = []
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if process.status() not in {psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD}:
                found.append(process)
    return found


def reap(main: int) -> None:
    """Let adopted processes that have ended go; ``main`` is waited for by its own thread."""
    for process in psutil.Process().children():
        if process.pid != main:
            with contextlib.suppress(OSError):
                os.waitpid(process.pid, os.WNOHANG)


def end_all(processes: list[psutil.Process], seconds: float = TERM_SECONDS) -> int:
    """SIGTERM, and SIGKILL for what does not end, new descendants included; how many had to be killed."""
    for process in processes:
        with contextlib.suppress(psutil.Error):
            process.terminate()
    psutil.wait_procs(processes, seconds)
    killed = 0
    for _ in range(100):
        left = descendants()
        if not left:
            break
        for process in left:
            with contextlib.suppress(psutil.Error):
                process.kill()
        killed += len(left)
        psutil.wait_procs(left, 1)
    return killed


def main() -> None:
    """The whole life of a runner; never returns."""
    channel = Channel(GRACE)
    adopt_orphans()
    LoadRun(channel).run()


if __name__ == "__main__":
    main()
