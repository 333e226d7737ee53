"""Simulated load workers: clients of the simulated daemon whose figures follow what was measured (facts 23, 24).

They speak the same lines as real workers and know of each other through files beside the simulated daemon. SM counts of
an H100; what was not measured (shares of triad, small grids and n-body, unlike neighbours) is a plain model, and all of
it is marked as simulated.
"""

from __future__ import annotations

import base64
import contextlib
import itertools
import json
import os
import random
import socket
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NoReturn

from mpstui.core.late import dataclass
from mpstui.load.errors import cuda_error, limit_too_small, words
from mpstui.load.process import Channel
from mpstui.load.protocol import Order
from mpstui.load.types import INFO
from mpstui.sim.simd.clients import context_memory
from mpstui.sim.simd.config import LOAD, Gpu, read_json, read_marker, write_json
from mpstui.sim.simd.process import start_ticks
from mpstui.system.own import own_program

REPORT_SECONDS: Final = 0.25
FIRST_SECONDS: Final = 0.03
"""For a first look at the others, who start at the same time."""
FAULT_SECONDS: Final = 3.0
POOL_SECONDS: Final = 0.105
"""What a context took to make (fact 23); the simulated one takes no time and says so much."""
DAEMON_GONE: Final = 806
NOT_ACCEPTED: Final = 805
_FMA: Final = (
    (0, 0.0),
    (8, 3.59),
    (10, 4.45),
    (12, 5.37),
    (20, 8.73),
    (34, 14.58),
    (66, 28.75),
    (100, 37.92),
    (132, 57.2),
)
_ALONE: Final = {"fma": 57.4e12, "triad": 2.723e12, "nbody": 1.2e12, "small": 2.0e5}
"""A second's work of one client without MPS; n-body and small grids were not measured on this card."""
_LAUNCH: Final = {"fma": 1.2e-3, "nbody": 3e-3, "triad": 1.2e-3, "small": 5e-6}
"""Seconds of one launch, alone."""
_SLICED: Final = {"fma": 0.753, "triad": 0.826, "nbody": 0.929, "small": 0.5}
"""What several clients get together without MPS, of one alone."""
_TOGETHER: Final = {"fma": 1.036, "triad": 1.028, "nbody": 1.175, "small": 4.0}
"""What they get together with MPS."""
_TRIAD_KNEE: Final = 48
_TRIAD_DRAM: Final = 90
"""Percent of the time in which the memory moves data, with triad at its full speed."""
_STEP: Final = 2.2e-9
"""Seconds of a multiply-add that waits for the one before it."""
_QUEUES: Final = 8
"""Queues for streams that a process has where CUDA_DEVICE_MAX_CONNECTIONS says nothing else."""
_LINK: Final = 50e9
"""Bytes a second between host and device, each way, of all clients together."""
_SMALL_SMS: Final = 4
"""SMs that a launch of a few blocks reaches."""
_MIB: Final = 1 << 20


@dataclass(frozen=True)
class Peer:
    """A worker as the others see it."""

    kernel: str
    sms: int
    device: int
    mps: bool
    copies: bool = False


def rate(me: Peer, all_of_them: Sequence[Peer], device_sms: int) -> float:
    """Work a second of one worker beside the others, ``me`` among them. Interactions, operations, bytes, launches."""
    kernel = me.kernel if me.kernel in _ALONE else "fma"
    alone = _ALONE[kernel]
    peers = [p for p in all_of_them if p.device == me.device]
    if not me.mps or any(not p.mps for p in peers):
        count = max(1, len(peers))
        return alone if count == 1 else alone * _SLICED[kernel] / count
    wanted = sum(p.sms for p in peers)
    crowding = min(1.0, device_sms / wanted) if wanted else 1.0
    undisturbed = _by_share(kernel, me.sms, device_sms)
    alike = sum(_by_share(kernel, p.sms * crowding, device_sms) for p in peers if p.kernel == me.kernel)
    if crowding == 1.0:  # each has its SMs; the memory's bandwidth they share all the same
        return undisturbed * alone * (min(1.0, _TOGETHER[kernel] / alike) if alike else 1.0)
    mine = _by_share(kernel, me.sms * crowding, device_sms)
    # Like clients together reach what was measured, and none does more than it would by itself.
    gain = min(_TOGETHER[kernel], _TOGETHER[kernel] / alike) if alike else 1.0
    return min(undisturbed, mine * gain) * alone


def _by_share(kernel: str, sms: float, device_sms: int) -> float:
    """Throughput on ``sms`` SMs as a fraction of that on all."""
    scaled = sms * 132 / device_sms
    if kernel == "triad":
        return min(1.0, scaled / _TRIAD_KNEE)
    if kernel == "small":
        return 1.0
    for (low, below), (high, above) in itertools.pairwise(_FMA):
        if scaled <= high:
            return (below + (above - below) * (scaled - low) / (high - low)) / _FMA[-1][1]
    return 1.0


def streamed(order: Order, queues: int) -> int:
    """Streams whose launches run side by side: as many as there are queues for, and one where each waits for the
    default stream."""
    return 1 if order.default_stream == "legacy" else min(order.streams or 1, queues)


def launch_seconds(order: Order) -> float:
    """Of one launch, alone: of small grids as long as their steps take, or as it takes to launch one."""
    if order.kernel == "small" and order.steps:
        return max(_LAUNCH["small"], order.steps * _STEP)
    return _LAUNCH.get(order.kernel, 1e-3)


def with_copies(order: Order, speed: float, copying: int) -> float:
    """Work a second where ``copying`` clients share the way between host and device: one stream is on its way there,
    at work, or on its way back; several are all of it at once."""
    if not order.copies or order.kernel not in _ALONE:
        return speed
    kernel, copy = launch_seconds(order), order.copies / _LINK
    amount = _ALONE[order.kernel] * _LAUNCH[order.kernel]
    whole = max(kernel, copy) if (order.streams or 1) > 1 else 2 * copy + kernel
    return min(speed, amount / whole, amount / copy / max(1, copying))


def round_affinity(sms: int, device_sms: int) -> int:
    """SMs of an execution affinity: rounded up to a multiple of 2, never under 8 (fact 22)."""
    return min(device_sms, max(8, sms + sms % 2))


def worker_command(pipe_dir: Path) -> tuple[str, ...]:
    """What a supervisor starts instead of CUDA workers, for the simulated node in ``pipe_dir``."""
    return own_program("mpstui.sim.load", os.fspath(pipe_dir))


class SimWorker:
    """One simulated client."""

    def __init__(self, channel: Channel, node: Path) -> None:
        self.channel = channel
        self.order = channel.order
        self.gpus = read_marker(node)
        wanted = os.environ.get("CUDA_VISIBLE_DEVICES")
        found = [gpu for gpu in self.gpus if wanted in (None, gpu.uuid)]
        if not found:
            channel.fail(cuda_error(101, "CUDA_ERROR_INVALID_DEVICE", "cuInit"))
        self.gpu: Gpu = found[0]
        self.peers_dir = node / LOAD
        self.daemon: socket.socket | None = None
        self.lost = 0
        self.sms = self.gpu.sm_count
        self._changed = 0.0
        """When its share was changed last."""
        self.levels: tuple[int, ...] = ()
        each = {"triad": 3072 * _MIB, "nbody": 3 * _MIB}.get(self.order.kernel, 0) + (self.order.copies or 0)
        self.memory = each if self.order.kernel == "triad" else each * (self.order.streams or 1)
        queues = os.environ.get("CUDA_DEVICE_MAX_CONNECTIONS", "")
        self.streams = streamed(self.order, int(queues) if queues.isdigit() else _QUEUES)

    def run(self) -> NoReturn:
        """Connect, wait for the word, work; never returns."""
        order = self.order
        limit = self._connect()
        levels = {round_affinity(sms, limit) for sms in (*order.pool, order.sms or limit)}
        self.levels = tuple(sorted(levels)) if self.daemon is not None else (limit,)
        self.sms = round_affinity(order.sms, limit) if order.sms and self.daemon is not None else limit
        gpu = self.gpu
        self.channel.say(
            "ready",
            device_uuid=gpu.uuid,
            device_name=gpu.name,
            device_sms=limit,
            mps=self.daemon is not None,
            affinity=self.daemon is not None,
            unit=INFO[order.kernel].unit,
            sms=self.sms,
            levels=list(self.levels) if order.pool else [self.sms],
            pool=[{"sms": s, "seconds": POOL_SECONDS, "size": int((58 + 3.5 * s) * _MIB)} for s in self.levels],
        )
        done, launches, elapsed = 0.0, 0, 0.0
        if self.channel.wait_for_go() and not self.lost:
            self.channel.say("running", time=time.monotonic())
            if order.kernel != "memory":
                self._tell(b"endless" if order.kernel == "endless" else b"busy")
            done, launches, elapsed = self._work()
        self._leave()
        self.channel.end(done=done, launches=launches, running_seconds=elapsed, time=time.monotonic())

    def _connect(self) -> int:
        """Become a client of the daemon; the SMs that it leaves us. Without a daemon: without MPS (fact 19)."""
        pipe_dir = os.environ.get("CUDA_MPS_PIPE_DIRECTORY", "")
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        limits = {name: value for name, value in os.environ.items() if name.startswith("CUDA_MPS_")}
        hello = {
            "user": None,
            "argv0": base64.b64encode(b"mpstui-load").decode(),
            "command": f"mpstui-load {self.order.kernel}",
            "devices": [self.gpu.index],
            "contexts": max(1, len(self.order.pool)),
            "memory": self.memory,
            "env": limits,
            "busy": False,
        }
        try:
            connection.connect(f"{pipe_dir}/control")
            connection.send(json.dumps(hello).encode())
        except OSError:
            connection.close()
            return self.gpu.sm_count
        self.daemon = connection
        connection.settimeout(0.1)
        answer = self._answer(connection)
        if answer.get("error"):
            self.channel.fail(cuda_error(answer["error"], "", "cuCtxCreate"))
        if self.order.memory_limited and not answer.get("free", 1):
            self.channel.fail(limit_too_small("", "cuCtxCreate"))
        connection.settimeout(None)
        threading.Thread(target=self._listen, args=(connection,), daemon=True).start()
        if self.order.kernel == "memory":
            self.memory = answer.get("free", 0) // (2 * _MIB) * 2 * _MIB
            self.channel.say("note", note=f"refused after {self.memory // _MIB:,} MiB: {words(2)}")
        return answer.get("sm", self.gpu.sm_count)

    def _answer(self, connection: socket.socket) -> dict[str, int]:
        """The daemon's word, which a client on the pending list waits for (fact 21)."""
        while True:
            if self.channel.stopping:
                self._leave()
                self.channel.end()
            try:
                packet = connection.recv(1 << 16)
            except TimeoutError:
                continue
            except OSError:
                packet = b""
            kind, values = event(packet) if packet else ("refused", {"error": NOT_ACCEPTED})
            if kind != "pending":
                return values

    def _listen(self, connection: socket.socket) -> None:
        """What the daemon does to us: a fault, a termination, its own end."""
        while not self.lost:
            try:
                packet = connection.recv(1 << 16)
            except OSError:
                packet = b""
            self.lost = event(packet)[1].get("error", 0) if packet else DAEMON_GONE
        self.channel.poke()

    def _tell(self, word: bytes) -> None:
        if self.daemon is not None:
            with contextlib.suppress(OSError):
                self.daemon.send(word)

    def _leave(self) -> None:
        with contextlib.suppress(OSError):
            (self.peers_dir / f"{os.getpid()}.json").unlink(missing_ok=True)
        self._tell(b"idle")
        self._tell(b"bye")

    def _work(self) -> tuple[float, int, float]:
        """Until stopped, out of time, done, or lost."""
        order, info = self.order, INFO[self.order.kernel]
        started = last = time.monotonic()
        done, elapsed, fault_told = 0.0, 0.0, False
        self._publish()
        noise = random.Random(os.getpid())  # noqa: S311 - jitter of a figure
        while not self.channel.stopping:
            speed = self._speed() * noise.uniform(0.997, 1.003)
            until = REPORT_SECONDS if elapsed else FIRST_SECONDS
            if order.amount is not None and speed:
                until = min(until, max(0.0, (order.amount - done) / speed))
            if order.seconds is not None:
                until = min(until, max(0.0, started + order.seconds - last))
            commands = self._wait(last + until)
            now = time.monotonic()
            if self.lost:
                self.channel.fail(cuda_error(self.lost, "", "cuEventSynchronize"))
            done += speed * self._part(speed) * (now - last)
            last, elapsed = now, now - started
            part = self._part(speed)
            values: dict[str, Any] = {"figure": speed * part / info.scale} if info.unit else {}
            values |= self._latency(speed, now - max(started, self._changed))
            if order.kernel == "memory":
                values["figure"] = self.memory / info.scale
            for command in commands:
                if command["type"] == "share" and (asked := self._choose(command)) is not None:
                    after = self._speed()
                    figure = after * self._part(after) / info.scale
                    values |= {
                        "switch_seconds": time.monotonic() - asked,
                        "figure": figure,
                        **self._latency(after, 0.0),
                    }
            due = order.kernel == "illegal" and not fault_told and elapsed >= FAULT_SECONDS
            if due or any(command["type"] == "fault" for command in commands):
                fault_told = True
                self._fault()
            if order.copies:
                values["copied"] = int(done / self._amount) * 2 * order.copies
            self.channel.say(
                "report",
                droppable=True,
                time=now,
                done=done,
                launches=int(done // 1e9) + 1,
                running_seconds=elapsed,
                sms=self.sms,
                memory=self.memory,
                **values,
            )
            if (order.amount is not None and done >= order.amount * (1 - 1e-9)) or (
                order.seconds is not None and elapsed >= order.seconds
            ):
                break
        return done, int(done // 1e9) + 1, elapsed

    def _wait(self, until: float) -> list[dict[str, Any]]:
        """Commands, or nothing at ``until``."""
        while not self.lost and (left := until - time.monotonic()) > 0:
            commands = [c for c in self.channel.wait(left) if c["type"] != "poke"]
            if commands or self.channel.stopping:
                return commands
        return self.channel.take()

    def _choose(self, command: dict[str, Any]) -> float | None:
        """Take the nearest level; when it was asked for, or None where nothing changes."""
        sms = command.get("sms")
        if not isinstance(sms, int) or len(self.levels) < 2:
            return None
        nearest = min(self.levels, key=lambda level: (abs(level - sms), -level))
        if nearest == self.sms:
            return None
        self.sms, self._changed = nearest, time.monotonic()
        self._publish()
        asked = command.get("asked")
        return asked if isinstance(asked, float) else time.monotonic()

    def _fault(self) -> None:
        if self.daemon is None:
            self._leave()
            self.channel.fail(cuda_error(700, "CUDA_ERROR_ILLEGAL_ADDRESS", "cuCtxSynchronize"))
        self._tell(b"fault")

    def _publish(self) -> None:
        sms = min(self.sms, _SMALL_SMS * self.streams) if self.order.kernel == "small" else self.sms
        if self.order.copies:
            sms = max(1, round(sms * with_copies(self.order, self._rate([]), 1) / self._rate([])))
        sms = sms if self.order.blocks is None else min(sms, self.order.blocks)
        dram = int(min(1.0, sms / _TRIAD_KNEE) * _TRIAD_DRAM) if self.order.kernel == "triad" else 0
        self._tell(f"uses {sms} {dram}".encode())
        me = {
            "kernel": self.order.kernel,
            "sms": self.sms,
            "device": self.gpu.index,
            "mps": self.daemon is not None,
            "copies": bool(self.order.copies),
            # Of a worker without MPS no daemon tells: the simulated NVML reads it here.
            "start_ticks": start_ticks(os.getpid()),
            "used_sms": sms,
            "dram": dram,
            "memory": context_memory(self.gpu.sm_count, self.gpu) + self.memory,
        }
        with contextlib.suppress(OSError):
            self.peers_dir.mkdir(exist_ok=True)
            write_json(self.peers_dir / f"{os.getpid()}.json", me)

    def _service(self, speed: float) -> float:
        """Seconds that a launch takes at this speed, by a plain model."""
        return self._amount / speed if speed else 0.0

    @property
    def _amount(self) -> float:
        """Work of one launch."""
        return _LAUNCH.get(self.order.kernel, 1e-3) * _ALONE.get(self.order.kernel, 1.0)

    def _part(self, speed: float) -> float:
        """The part of the time in which it is at work, where it gets requests."""
        if self.order.busy is not None:
            return self.order.busy / 100
        return 1.0 if self.order.arrivals is None else min(1.0, self.order.arrivals * self._service(speed))

    def _latency(self, speed: float, elapsed: float) -> dict[str, float]:
        """A plain model of a queue: requests that come by chance, each taking as long."""
        if self.order.arrivals is None and self.order.busy is None:
            return {}
        service = self._service(speed)
        load = 0.0 if self.order.arrivals is None else self.order.arrivals * service
        wait = elapsed * (1 - 1 / load) if load >= 1 else load * service / (2 * (1 - load))
        most = max(elapsed, service)
        return {"latency_p50": min(most, service + 0.69 * wait), "latency_p99": min(most, service + 4.6 * wait)}

    def _speed(self) -> float:
        if self.order.kernel in {"memory", "endless"}:
            return 0.0
        found = peers(self.peers_dir)
        copying = 1 + sum(peer.copies for peer in found if peer.device == self.gpu.index)
        return with_copies(self.order, self._rate(found), copying)

    def _rate(self, others: Sequence[Peer]) -> float:
        """Work a second of the kernels alone."""
        me = Peer(self.order.kernel, self.sms, self.gpu.index, self.daemon is not None)
        if self.order.kernel != "small" or (self.order.steps or 0) * _STEP <= _LAUNCH["small"]:
            return rate(me, [me, *others], self.gpu.sm_count)
        # Few blocks that last: they leave room for all others of MPS, and take turns without it.
        here = [peer for peer in others if peer.device == me.device]
        turns = 1 if me.mps and all(peer.mps for peer in here) else 1 + len(here)
        return min(_ALONE["small"], self.streams / launch_seconds(self.order)) / turns


def event(packet: bytes) -> tuple[str, dict[str, int]]:
    """What the simulated daemon says: a word and its values, ``lost error=700``."""
    kind, *pairs = packet.decode("ascii", "replace").split()
    values = {}
    for pair in pairs:
        name, _, value = pair.partition("=")
        if value.isdigit():
            values[name] = int(value)
    return kind, values


def peers(folder: Path) -> list[Peer]:
    """The other simulated workers that live; files of dead ones are removed."""
    found = []
    for file in folder.glob("[0-9]*.json"):
        pid = int(file.stem) if file.stem.isdigit() else 0
        if pid in (0, os.getpid()):
            continue
        try:
            os.kill(pid, 0)
            entry = read_json(file)
            peer = Peer(
                str(entry["kernel"]), int(entry["sms"]), int(entry["device"]), bool(entry["mps"]), bool(entry["copies"])
            )
        except ProcessLookupError:
            file.unlink(missing_ok=True)
        except (OSError, ValueError, TypeError, KeyError):
            continue
        else:
            if peer.kernel != "memory":
                found.append(peer)
    return found


def main() -> None:
    """The whole life of a simulated worker; never returns."""
    channel = Channel()
    SimWorker(channel, Path(sys.argv[1])).run()


if __name__ == "__main__":
    main()
