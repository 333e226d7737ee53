"""NVML in a process of its own, for a command that reads it once.

The vendor's binding is imported (0.024 s of processor time, 2026-11-22), and NVML started, while the command itself is
imported. Only the preparation is ahead: what is read is read when it is asked for.
"""

from __future__ import annotations

import fcntl
import marshal
import os
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

if TYPE_CHECKING:
    from mpstui.observe.sources import NvmlSample, NvmlSource

T = TypeVar("T")

DEVICE: Final = "/dev/nvidiactl"
"""Without it NVML cannot be started."""
_CALLS: Final = {b"s": "sample", b"r": "rated", b"m": "membership"}

_begun: list[tuple[int, int, int]] = []
"""The process, where it is asked and where it tells."""


def _real() -> NvmlSource:
    """DCGM, which needs seconds, is nothing for who reads once."""
    from mpstui.observe.devices import RealNvml

    return RealNvml()


def begin(make: Callable[[], NvmlSource] = _real) -> None:
    """Starts it, where there is a driver and another core; before any thread. Whatever cannot be had is left out: NVML
    is then read here. ``make`` is called there."""
    if not os.path.exists(DEVICE) or len(os.sched_getaffinity(0)) < 2:
        return
    with suppress(OSError):
        for number in range(3):
            os.fstat(number)  # a pipe in the place of a closed one would be taken for the command's own input or output
        questions, ask = os.pipe()
        told, answers = os.pipe()
        parent, child = os.getpid(), os.fork()
        if child == 0:
            _serve(make, parent, questions, answers)
        os.close(questions)
        os.close(answers)
        _begun.append((child, ask, told))


def taken(instead: NvmlSource) -> NvmlSource:
    """What was begun, which is ``instead`` where it has ended; itself where nothing was begun."""
    return NvmlProcess(*_begun.pop(), instead) if _begun else instead


class NvmlProcess:
    """An NvmlSource. May be called from several threads."""

    def __init__(self, child: int, ask: int, told: int, instead: NvmlSource) -> None:
        self.child, self._ask, self._told = child, ask, open(told, "rb")  # noqa: SIM115 - closed by close
        self._instead = instead
        self._lock = threading.Lock()

    def sample(self) -> NvmlSample:
        """A reading of now."""
        return self._called(b"s", _made)

    def rated(self) -> NvmlSample:
        """See NvmlSource."""
        return self._called(b"r", _made)

    def membership(self) -> dict[str, dict[int, int | None]]:
        """See NvmlSource."""
        return self._called(b"m", dict)

    def close(self) -> None:
        """Ends it, and does not wait for one that hangs in the driver."""
        with suppress(OSError):
            os.kill(self.child, signal.SIGKILL)
            os.waitpid(self.child, os.WNOHANG)
        self._instead.close()

    def _called(self, what: bytes, make: Callable[[Any], T]) -> T:
        with self._lock:
            try:
                os.write(self._ask, what)
                return make(marshal.load(self._told))  # noqa: S302 - this program has written it
            except (OSError, EOFError, ValueError, TypeError):
                pass  # it has ended
        return cast("T", getattr(self._instead, _CALLS[what])())


def _serve(make: Callable[[], NvmlSource], parent: int, questions: int, answers: int) -> None:
    """The process; does not return."""
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent hears it too, and ends this
        _keep(questions, answers)
        from mpstui.system.parent import end_with_parent

        if end_with_parent(parent, signal.SIGKILL):
            source = make()
            source.sample()  # starts NVML, and what it counts from
            with open(3, "rb", buffering=0) as asked, open(4, "wb") as told:
                while call := _CALLS.get(asked.read(1) or b""):
                    found = getattr(source, call)()
                    marshal.dump(found if call == "membership" else _parts(found), told)
                    told.flush()
    finally:
        os._exit(0)


def _keep(questions: int, answers: int) -> None:
    """These two, as 3 and 4, and nothing else: whoever waits for the command's output to end waits for no driver."""
    high = [fcntl.fcntl(fd, fcntl.F_DUPFD, 5) for fd in (questions, answers, os.open(os.devnull, os.O_RDWR))]
    for fd, source in enumerate((high[2], high[2], high[2], high[0], high[1])):
        os.dup2(source, fd)
    os.closerange(5, min(os.sysconf("SC_OPEN_MAX"), 1 << 16))


def _parts(sample: NvmlSample) -> tuple[Any, ...]:
    """What marshal knows."""
    devices = [{name: getattr(device, name) for name in device.__slots__} for device in sample.devices]
    lists = ({uuid: dict(rows) for uuid, rows in found.items()} for found in (sample.mps_clients, sample.processes))
    return sample.time, sample.driver_version, devices, *lists, sample.error


def _made(parts: Any) -> NvmlSample:
    from mpstui.core.model import Device
    from mpstui.observe.sources import NvmlSample

    time, driver, devices, *rest = parts
    return NvmlSample(time, driver, tuple(Device(**each) for each in devices), *rest)
