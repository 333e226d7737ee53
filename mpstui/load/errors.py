"""CUDA errors in words, with what to do about each."""

from __future__ import annotations

from typing import Final

from mpstui.load.types import WorkerError

OUT_OF_MEMORY: Final = 2
_WORDS: Final[dict[int, tuple[str, str]]] = {
    1: ("a value was not accepted", "report this: the worker asked the driver for something it does not know"),
    2: ("out of device memory, or over the pinned memory limit", "raise the limit, or run fewer clients"),
    3: ("the driver is not initialised", "check the driver with nvidia-smi"),
    34: ("only the driver's stub library is here", "take CUDA's stubs folder out of LD_LIBRARY_PATH"),
    35: ("the driver is too old", "driver 525 or later is needed, or an older cuda-bindings"),
    46: (
        "the device takes no more clients, or is busy exclusively",
        "48 contexts are the limit of a device: end some clients, or make the pool of shares smaller",
    ),
    100: ("no GPU here", "check nvidia-smi -L and CUDA_VISIBLE_DEVICES"),
    101: ("no such device", "name a device by the UUID that nvidia-smi -L prints"),
    209: ("the kernel does not run on this device", "compute capability 7.0 or later is needed"),
    218: ("the driver did not accept the kernel", "run scripts/build-ptx again, or install mpstui again"),
    222: ("the driver is too old for the kernels", "driver 525 or later is needed"),
    304: ("the system refused something to the driver", "the disk may be full; see dmesg"),
    700: ("an illegal memory access; with MPS any client of the device may have made it", "see the events for whose"),
    709: ("the context was destroyed", "restart the client"),
    716: ("a misaligned address", "restart the client"),
    718: ("an invalid program counter", "restart the client"),
    719: ("a kernel failed, here or in another client of the same MPS server", "see the events for whose"),
    800: ("not permitted", "MPS refused the client; see control.log"),
    801: ("not supported here", "the driver or the device does not have this"),
    802: ("the driver is not ready yet", "wait for nvidia-fabricmanager, see nvidia-smi"),
    803: ("driver and library do not match", "reboot, or install the driver again"),
    805: ("no connection to the MPS daemon", "check that the daemon runs and that you may enter its pipe directory"),
    806: ("the MPS server or daemon is gone", "start the daemon again, then the client"),
    807: ("the MPS server takes no clients now", "after a fault every affected client has to end first"),
    808: ("the MPS server has as many clients as it takes", "end some clients"),
    809: ("the MPS server has as many connections as it takes", "end some clients"),
    810: (
        "the client was terminated through MPS: by terminate_client, or evicted by a memory limit of its cgroup",
        "control.log has the command where somebody asked for it (mpstui events --kind terminate_requested)",
    ),
    999: ("an error that the driver cannot name", "see dmesg and server.log"),
}


def words(code: int) -> str:
    """``CUDA error 46: the device takes no more clients …``; the number alone for an error that is not listed."""
    known = _WORDS.get(code)
    return f"CUDA error {code}: {known[0]}" if known else f"CUDA error {code}"


def cuda_error(code: int, name: str = "", call: str = "") -> WorkerError:
    """The error with its words and remedy; ``call`` is the driver's function that gave it."""
    text, remedy = _WORDS.get(code, ("an error of the driver", "see dmesg and server.log"))
    where = f" ({call})" if call else ""
    return WorkerError(f"CUDA error {code}: {text}{where}", remedy, code, name)


def limit_too_small(name: str = "", call: str = "") -> WorkerError:
    """A memory limit that leaves no room for a context."""
    where = f" ({call})" if call else ""
    return WorkerError(
        f"CUDA error {OUT_OF_MEMORY}: the memory limit is too small for a context alone{where}",
        "a context takes 70 to 520 MiB, the more SMs the more: raise the limit or make the share smaller",
        OUT_OF_MEMORY,
        name,
    )
