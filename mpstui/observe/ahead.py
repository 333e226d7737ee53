"""NVML in a process of its own, for a command that reads it once.

It is begun before anything else of the command is imported. What it does first is to start NVML and to take the
sample that SM activity is counted from: so the 0.1 s that have to lie between two samples, the vendor's binding (0.024
s of processor time, 2026-11-22) and the rest of the command take the same time. What is read is read when it is asked
for. Nothing is imported here that Python has not imported by then: what it takes would be before the first sample.
"""

from __future__ import annotations

import marshal
import os
import time

TYPE_CHECKING = False
if TYPE_CHECKING:  # typing's own name would take 6 of the milliseconds that are to be saved
    from collections.abc import Callable, Mapping
    from typing import Any, Final, TypeAlias, TypeVar

    from mpstui.observe.devices import Counted
    from mpstui.observe.sources import NvmlSample, NvmlSource

    T = TypeVar("T")
    Addresses: TypeAlias = Mapping[int, tuple[float, int]]

NVIDIACTL: Final = "/dev/nvidiactl"
"""Without it NVML cannot be started."""
_LIBRARY: Final = "libnvidia-ml.so.1"
_CALLS: Final = {b"s": "sample", b"r": "rated", b"m": "membership"}

_begun: list[tuple[int, int, int]] = []
"""The process, where it is asked and where it tells."""


def count() -> Addresses:
    """Start NVML, and take a sample of each device's counters (GPM): by the device's index, when that was, in
    monotonic seconds, and the sample's address. Devices that have none are left out; empty where NVML does not work,
    of which the first reading tells. Past the vendor's binding, which is not imported yet."""
    import ctypes

    counted: dict[int, tuple[float, int]] = {}
    try:
        nvml, number = ctypes.CDLL(_LIBRARY), ctypes.c_uint()
        if nvml.nvmlInit_v2() or nvml.nvmlDeviceGetCount_v2(ctypes.byref(number)):
            return counted
        for index in range(number.value):
            device, sample = ctypes.c_void_p(), ctypes.c_void_p()
            if nvml.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(device)):
                continue
            if nvml.nvmlGpmSampleAlloc(ctypes.byref(sample)) or nvml.nvmlGpmSampleGet(device, sample):
                continue
            if sample.value:
                counted[index] = time.monotonic(), sample.value
    except (OSError, AttributeError):
        return counted  # no such library, or one without counters
    return counted


def _reader(counted: Addresses) -> NvmlSource:
    from mpstui.observe.devices import RealNvml

    return RealNvml(counted=_samples(counted))


def _samples(counted: Addresses) -> Mapping[int, Counted]:
    """In the binding's type."""
    if not counted:
        return {}  # so that who says that there is no binding is who reads
    import ctypes

    import pynvml

    return {index: (when, ctypes.cast(at, pynvml.c_nvmlGpmSample_t)) for index, (when, at) in counted.items()}


def begin_ahead(make: Callable[[Addresses], NvmlSource] = _reader) -> None:
    """Starts it where there is a driver and another core, before any thread; without DCGM, which needs seconds.
    Whatever cannot be had is left out: NVML is then read here. ``make`` is called there, with what :func:`count`
    gave."""
    if not os.path.exists(NVIDIACTL) or len(os.sched_getaffinity(0)) < 2:
        return
    try:
        for number in range(3):
            os.fstat(number)  # a pipe in the place of a closed one would be taken for the command's own input or output
        questions, ask = os.pipe()
        told, answers = os.pipe()
        parent, child = os.getpid(), os.fork()
    except OSError:
        return
    if child == 0:
        _serve(make, parent, questions, answers)
    os.close(questions)
    os.close(answers)
    _begun.append((child, ask, told))


def begun_ahead(instead: NvmlSource) -> NvmlSource:
    """What was begun, which is ``instead`` where it has ended; itself where nothing was begun."""
    return NvmlProcess(*_begun.pop(), instead) if _begun else instead


class NvmlProcess:
    """An NvmlSource. May be called from several threads."""

    def __init__(self, child: int, ask: int, told: int, instead: NvmlSource) -> None:
        import threading

        self.child, self._ask, self._told = child, ask, open(told, "rb")  # noqa: SIM115 - closed by close
        self._instead = instead
        self._lock = threading.Lock()

    def sample(self) -> NvmlSample:
        """A reading of now."""
        return self._called(b"s", _made)

    def steady(self) -> NvmlSample:
        """A reading of now too: it is for who reads once."""
        return self.sample()

    def rated(self) -> NvmlSample:
        """See NvmlSource."""
        return self._called(b"r", _made)

    def membership(self) -> Mapping[str, Mapping[int, int | None]]:
        """See NvmlSource."""
        return self._called(b"m", dict)

    def close(self) -> None:
        """Ends it, and does not wait for one that hangs in the driver."""
        import signal
        from contextlib import suppress

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
        found: T = getattr(self._instead, _CALLS[what])()
        return found


def _serve(make: Callable[[Addresses], NvmlSource], parent: int, questions: int, answers: int) -> None:
    """The process; does not return."""
    try:
        _keep(questions, answers)  # before NVML, which opens files of its own
        if _ends_with(parent):  # before NVML too, in which it may hang
            counted = count()

            import signal

            signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent hears it too, and ends this
            source = make(counted)
            source.sample()
            with open(3, "rb", buffering=0) as asked, open(4, "wb") as told:
                while call := _CALLS.get(asked.read(1) or b""):
                    found = getattr(source, call)()
                    marshal.dump(found if call == "membership" else _parts(found), told)
                    told.flush()
    finally:
        os._exit(0)


def _ends_with(parent: int) -> bool:
    """``end_with_parent``, whose module would be imported for it."""
    import ctypes

    ctypes.CDLL(None).prctl(1, 9, 0, 0, 0)  # PR_SET_PDEATHSIG, SIGKILL
    return os.getppid() == parent


def _keep(questions: int, answers: int) -> None:
    """These two, as 3 and 4, and nothing else: whoever waits for the command's output to end waits for no driver."""
    import fcntl

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

    when, driver, devices, *rest = parts
    return NvmlSample(when, driver, tuple(Device(**each) for each in devices), *rest)
