"""The CUDA driver through cuda.bindings: the only module that imports it, and only workers import this one."""

from __future__ import annotations

import ctypes
import importlib
import uuid
from collections.abc import Sequence
from typing import Any, Final

from mpstui.core.late import dataclass
from mpstui.load.types import WorkerError

_BLOCKING_SYNC: Final = 4
_MAP_HOST: Final = 8
_HOST_PORTABLE: Final = 1
_HOST_DEVICEMAP: Final = 2
_STREAM_BLOCKING: Final = 0
_STREAM_NON_BLOCKING: Final = 1
_BLOCKING_EVENT: Final = 1
_NO_TIMING: Final = 2
_NOT_READY: Final = 600
_REASON: Final = 120
"""Characters of an error's own words."""
_MINIMUM_DRIVER: Final = 12000
"""CUDA version of driver 525."""

Value = ctypes.c_void_p | ctypes.c_int | ctypes.c_float | ctypes.c_ulonglong
Handle = Any
DEFAULT_STREAMS: Final[dict[str, Handle]] = {"legacy": 0, "per-thread": 2}
"""The driver's own names for them: they are not made."""


class CudaError(Exception):
    """A call of the driver that failed."""

    def __init__(self, code: int, name: str, call: str) -> None:
        super().__init__(f"{call}: {code} {name}")
        self.code = code
        self.name = name
        self.call = call


class NoDriver(Exception):
    """There is nothing to call: ``error`` says what is missing."""

    def __init__(self, error: WorkerError) -> None:
        super().__init__(error.text)
        self.error = error


class Arguments:
    """The arguments of a kernel, made once: a launch then costs no conversion."""

    def __init__(self, *values: Value) -> None:
        self.values = values
        self._pointers = (ctypes.c_void_p * len(values))(*(ctypes.addressof(value) for value in values))
        self.address = ctypes.addressof(self._pointers)


@dataclass(frozen=True, slots=True)
class DeviceFacts:
    """The device as this client sees it: ``sms`` is what its thread percentage leaves it (fact 22).

    ``mps`` is None where the driver does not say, or says one thing and offers another: contexts have shares of their
    own under MPS alone.
    """

    uuid: str
    name: str
    sms: int
    memory: int
    mps: bool | None
    affinity: bool


def _for_older_drivers() -> str:
    from mpstui.extras import how_to_install

    return f"with a driver before 580: {how_to_install('load', 'cuda-bindings<13')}"


class CudaDriver:
    """The first visible device. Every method raises CudaError; pointers are integers."""

    def __init__(self) -> None:
        try:
            self._cu: Any = importlib.import_module("cuda.bindings.driver")
        except ImportError as error:
            from mpstui.extras import how_to_install

            raise NoDriver(
                WorkerError(
                    f"cuda.bindings is not installed ({error})",
                    f"{how_to_install('load')}; {_for_older_drivers()}",
                    kind="no_bindings",
                )
            ) from None
        try:
            self._call("cuInit", 0)
        except CudaError:
            raise
        except Exception as error:  # the bindings raise an error of their own kind in each version
            why = str(error).partition("\n")[0].partition(". ")[0][:_REASON]
            raise NoDriver(
                WorkerError(
                    f"no CUDA driver library here{': ' if why else ''}{why}",
                    "install the NVIDIA driver (libcuda.so.1), and check nvidia-smi",
                    kind="no_driver",
                )
            ) from None
        version = int(self._call("cuDriverGetVersion"))
        if version < _MINIMUM_DRIVER:
            raise NoDriver(
                WorkerError(
                    f"the driver has CUDA {version // 1000}.{version % 1000 // 10}, too old for the kernels",
                    "install driver 525 or later",
                    kind="old_driver",
                )
            )
        self._device = self._call("cuDeviceGet", 0)

    def _call(self, name: str, *values: Any) -> Any:
        """A function of the driver; its results without the status."""
        try:
            function = getattr(self._cu, name)
            status, *results = function(*values)
        except (AttributeError, RuntimeError) as error:
            if name == "cuInit":
                raise
            raise NoDriver(
                WorkerError(
                    f"driver and cuda-bindings do not fit: {name}: {str(error)[:_REASON]}",
                    _for_older_drivers(),
                    kind="old_driver",
                )
            ) from None
        if int(status):
            raise CudaError(int(status), str(getattr(status, "name", "")), name)
        return results[0] if len(results) == 1 else results

    def _attribute(self, name: str) -> int | None:
        attribute = getattr(self._cu.CUdevice_attribute, name, None)
        try:
            return None if attribute is None else int(self._call("cuDeviceGetAttribute", attribute, self._device))
        except CudaError:
            return None

    def facts(self) -> DeviceFacts:
        """What the device is and which share of it there is."""
        kind = self._cu.CUexecAffinityType.CU_EXEC_AFFINITY_TYPE_SM_COUNT
        mps = self._attribute("CU_DEVICE_ATTRIBUTE_MPS_ENABLED")
        affinity = bool(self._call("cuDeviceGetExecAffinitySupport", kind, self._device))
        name = self._call("cuDeviceGetName", 96, self._device)
        return DeviceFacts(
            uuid=f"GPU-{uuid.UUID(bytes=bytes(self._call('cuDeviceGetUuid', self._device).bytes))}",
            name=bytes(name).split(b"\0")[0].decode("utf-8", "replace"),
            sms=self._attribute("CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT") or 1,
            memory=int(self._call("cuDeviceTotalMem", self._device)),
            mps=None if mps is None or bool(mps) != affinity else affinity,
            affinity=affinity,
        )

    def create_context(self, sms: int | None) -> tuple[Handle, int | None]:
        """A context, made current, and the SMs that it got; None for all that the client may have (facts 22, 23)."""
        cu, flags = self._cu, _BLOCKING_SYNC | _MAP_HOST
        old_bindings = hasattr(cu, "cuCtxCreate_v3")
        if sms is None:
            plain = (flags, self._device) if old_bindings else (None, flags, self._device)
            return self._call("cuCtxCreate", *plain), None
        kind = cu.CUexecAffinityType.CU_EXEC_AFFINITY_TYPE_SM_COUNT
        affinity = cu.CUexecAffinityParam()
        affinity.type = kind
        affinity.param.smCount.val = sms
        if old_bindings:
            context = self._call("cuCtxCreate_v3", [affinity], 1, flags, self._device)
        else:
            parameters = cu.CUctxCreateParams()
            parameters.execAffinityParams = [affinity]
            parameters.numExecAffinityParams = 1
            context = self._call("cuCtxCreate", parameters, flags, self._device)
        # Held by a name while it is read: cuda-bindings 12 frees the parameter under its own parts.
        got = self._call("cuCtxGetExecAffinity", kind)
        return context, int(got.param.smCount.val)

    def use(self, context: Handle) -> None:
        """Make a context current: 7 µs (fact 23)."""
        self._call("cuCtxSetCurrent", context)

    def destroy_context(self, context: Handle) -> None:
        self._call("cuCtxDestroy", context)

    def synchronize(self) -> None:
        self._call("cuCtxSynchronize")

    def free_memory(self) -> int:
        """Bytes that may still be allocated, under the memory limit (fact 25)."""
        return int(self._call("cuMemGetInfo")[0])

    def load(self, ptx: bytes, names: Sequence[str]) -> dict[str, Handle]:
        """The functions of a PTX file in the current context."""
        module = self._call("cuModuleLoadData", ptx + b"\0")
        return {name: self._call("cuModuleGetFunction", module, name.encode()) for name in names}

    def alloc(self, size: int) -> int:
        return int(self._call("cuMemAlloc", size))

    def free(self, pointer: int) -> None:
        self._call("cuMemFree", pointer)

    def fill(self, pointer: int, pattern: int, words: int) -> None:
        """Set 32-bit words."""
        self._call("cuMemsetD32", pointer, pattern, words)

    def write(self, pointer: int, data: bytes) -> None:
        self._call("cuMemcpyHtoD", pointer, data, len(data))

    def read(self, pointer: int, size: int) -> bytes:
        data = bytearray(size)
        self._call("cuMemcpyDtoH", data, pointer, size)
        return bytes(data)

    def mapped_word(self) -> tuple[ctypes.c_int, int]:
        """An integer of the host's that kernels see too: the host's view and the device's pointer."""
        host = int(self._call("cuMemHostAlloc", 4, _HOST_DEVICEMAP))
        word = ctypes.c_int.from_address(host)
        word.value = 0
        return word, int(self._call("cuMemHostGetDevicePointer", host, 0))

    def launch(
        self, function: Handle, blocks: int, threads: int, arguments: Arguments | None, stream: Handle = 0
    ) -> None:
        address = arguments.address if arguments else 0
        self._call("cuLaunchKernel", function, blocks, 1, 1, threads, 1, 1, 0, stream, address, 0)

    def stream(self, *, blocking: bool = False, priority: int | None = None) -> Handle:
        """A stream of the current context, gone with it; a ``blocking`` one waits for the legacy default stream, which
        waits for it. A ``priority`` that the device has not becomes the nearest that it has."""
        flags = _STREAM_BLOCKING if blocking else _STREAM_NON_BLOCKING
        if priority is None:
            return self._call("cuStreamCreate", flags)
        return self._call("cuStreamCreateWithPriority", flags, priority)

    def pinned(self, size: int) -> int:
        """Memory of the host that a copy is made of directly, in every context of this process."""
        return int(self._call("cuMemHostAlloc", size, _HOST_PORTABLE))

    def free_pinned(self, pointer: int) -> None:
        self._call("cuMemFreeHost", pointer)

    def copy_in(self, device: int, host: int, size: int, stream: Handle) -> None:
        """Enqueue a copy of pinned memory to the device."""
        self._call("cuMemcpyHtoDAsync", device, host, size, stream)

    def copy_out(self, host: int, device: int, size: int, stream: Handle) -> None:
        """Enqueue a copy of the device's memory to the host's."""
        self._call("cuMemcpyDtoHAsync", host, device, size, stream)

    def event(self) -> Handle:
        """An event of the current context; waiting for it takes no CPU."""
        return self._call("cuEventCreate", _BLOCKING_EVENT | _NO_TIMING)

    def record(self, event: Handle, stream: Handle = 0) -> None:
        self._call("cuEventRecord", event, stream)

    def wait(self, event: Handle) -> None:
        self._call("cuEventSynchronize", event)

    def happened(self, event: Handle) -> bool:
        try:
            self._call("cuEventQuery", event)
        except CudaError as error:
            if error.code == _NOT_READY:
                return False
            raise
        return True
