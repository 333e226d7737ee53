"""CUDA errors in words, with what to do about each."""

from __future__ import annotations

from typing import Final, NamedTuple

from mpstui.load.types import WorkerError

OUT_OF_MEMORY: Final = 2
_FAULTS: Final = frozenset((700, 719))
"""What clients get of a fault that any of them may have made."""
PINNED_CALL: Final = "cuMemHostAlloc"
_WORDS: Final[dict[int, tuple[str, str]]] = {
    1: ("a value was not accepted", "report this: the worker asked the driver for something it does not know"),
    2: ("out of device memory, or over the pinned memory limit", "raise the limit, or run fewer clients"),
    3: ("the driver is not initialised", "check the driver with nvidia-smi"),
    34: ("only the driver's stub library is here", "take CUDA's stubs folder out of LD_LIBRARY_PATH"),
    35: ("the driver is too old", "driver 525 or later is needed, or an older cuda-bindings"),
    46: (
        "the device takes no more clients, or is busy exclusively",
        "a device takes 48 contexts, or what mpstui status says: end some clients, or make the pool of shares smaller",
    ),
    100: ("no GPU here", "check nvidia-smi -L and CUDA_VISIBLE_DEVICES"),
    101: ("no such device", "name a device by the UUID that nvidia-smi -L prints"),
    209: ("the kernel does not run on this device", "compute capability 7.0 or later is needed"),
    218: ("the driver did not accept the kernel", "run scripts/build-ptx again, or install mpstui again"),
    222: ("the driver is too old for the kernels", "driver 525 or later is needed"),
    304: ("the operating system refused a call of the driver", "the disk may be full; see dmesg"),
    700: (
        "an illegal memory access; with MPS any client of the device may have made it",
        "mpstui suspects names who was there",
    ),
    709: ("the context was destroyed", "restart the client"),
    716: ("a misaligned address", "restart the client"),
    718: ("an invalid program counter", "restart the client"),
    719: ("a kernel failed, here or in another client of the same MPS server", "mpstui suspects names who was there"),
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
    915: (
        "the resource configuration is not valid: a client of a daemon with static partitions needs one",
        "start it with CUDA_MPS_SM_PARTITION set to a partition that is there: mpstui partition list",
    ),
    999: ("an error that the driver cannot name", "see dmesg and server.log"),
}


def remedy_of(error: WorkerError, *, private: bool) -> str:
    """``private``: in a daemon of the load's own, whose logs end with it: no suspects are looked for in them."""
    return "only clients of this load were in the daemon" if private and error.code in _FAULTS else error.remedy


class Explanation(NamedTuple):
    """What an error means under MPS."""

    code: int
    names: tuple[str, ...]
    """The driver's and the runtime's; empty where they are none of MPS' own."""
    text: str
    causes: tuple[str, ...]
    """The most frequent first."""
    remedy: str


_MPS: Final[dict[int, tuple[tuple[str, str], tuple[str, ...]]]] = {
    46: (
        ("CUDA_ERROR_DEVICE_UNAVAILABLE", "cudaErrorDevicesUnavailable"),
        (
            "the device has all contexts that it takes: 48 as measured with driver 580, 16 before Volta; CUDA's driver "
            "API calls it 808",
            "the compute mode is EXCLUSIVE_PROCESS and the process is not a client of MPS: mpstui why PID",
            "the compute mode is PROHIBITED",
        ),
    ),
    800: (
        ("CUDA_ERROR_NOT_PERMITTED", "cudaErrorNotPermitted"),
        ("the server is another user's, and the daemon serves one user at a time",),
    ),
    805: (
        ("CUDA_ERROR_MPS_CONNECTION_FAILED", "cudaErrorMpsConnectionFailed"),
        (
            "the daemon runs and starts no server for it: server.log says why",
            "its user may not write to the socket in the pipe directory: mpstui why PID",
            "the daemon was ended while it connected",
        ),
    ),
    806: (
        ("CUDA_ERROR_MPS_RPC_FAILURE", "cudaErrorMpsRpcFailure"),
        ("its server, or the daemon, was ended or has crashed while it was connected",),
    ),
    807: (
        ("CUDA_ERROR_MPS_SERVER_NOT_READY", "cudaErrorMpsServerNotReady"),
        (
            "a fault: until every client that was hit has ended, on whatever GPU, no new client is let in",
            "the server of another user still has clients",
            "the server is starting, or is told to end",
        ),
    ),
    808: (
        ("CUDA_ERROR_MPS_MAX_CLIENTS_REACHED", "cudaErrorMpsMaxClientsReached"),
        (
            "the device has all contexts that it takes: 48 as measured with driver 580, 16 before Volta; CUDA's "
            "runtime API calls it 46",
        ),
    ),
    809: (
        ("CUDA_ERROR_MPS_MAX_CONNECTIONS_REACHED", "cudaErrorMpsMaxConnectionsReached"),
        ("the device has as many connections as it takes; CUDA_DEVICE_MAX_CONNECTIONS of the clients counts too",),
    ),
    810: (
        ("CUDA_ERROR_MPS_CLIENT_TERMINATED", "cudaErrorMpsClientTerminated"),
        (
            "somebody sent terminate_client for it; its process lives on, and has to be ended",
            "a limit of device memory of its cgroup has evicted it (driver 615 and later)",
        ),
    ),
    915: (
        ("CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION", "cudaErrorInvalidResourceConfiguration"),
        (
            "the daemon was started with -S, and the client names no partition",
            "the partition that it names is not there any more: their ids change with each start of the daemon",
        ),
    ),
}
"""Of the errors that MPS gives: the names, and why."""


def explanations() -> list[Explanation]:
    """All errors that are known, by their codes."""
    return [found for code in sorted(_WORDS) if (found := explanation(str(code))) is not None]


def explanation(text: str) -> Explanation | None:
    """The error of that code, or that name of CUDA's, however it is written; None where it is not known."""
    wanted = text.strip().lower()
    code = int(wanted) if wanted.isascii() and wanted.isdecimal() and len(wanted) < 6 else None
    if code is None:
        named = (code for code, (names, _) in _MPS.items() if wanted in {name.lower() for name in names})
        code = next(named, None)
    if code is None or code not in _WORDS:
        return None
    names, causes = _MPS.get(code, ((), ()))
    return Explanation(code, names, _WORDS[code][0], causes, _WORDS[code][1])


def words(code: int) -> str:
    """``CUDA error 46: the device takes no more clients …``; the number alone for an error that is not listed."""
    known = _WORDS.get(code)
    return f"CUDA error {code}: {known[0]}" if known else f"CUDA error {code}"


def cuda_error(code: int, name: str = "", call: str = "") -> WorkerError:
    """The error with its words and remedy; ``call`` is the driver's function that gave it."""
    text, remedy = _WORDS.get(code, ("an error of the driver", "see dmesg and server.log"))
    where = f" ({call})" if call else ""
    return WorkerError(f"CUDA error {code}: {text}{where}", remedy, code, name)


def no_pinned_memory(code: int, name: str, call: str) -> WorkerError:
    """No room in the host's memory for copies."""
    return WorkerError(
        f"CUDA error {code}: no pinned memory of the host ({call})",
        "smaller --copies, or fewer --streams; clients of MPS take it from /dev/shm: see df /dev/shm",
        code,
        name,
    )


def limit_too_small(name: str = "", call: str = "") -> WorkerError:
    """A memory limit that leaves no room for a context."""
    where = f" ({call})" if call else ""
    return WorkerError(
        f"CUDA error {OUT_OF_MEMORY}: the memory limit is too small for a context alone{where}",
        "a context takes 70 to 520 MiB, the more SMs the more: raise the limit or make the share smaller",
        OUT_OF_MEMORY,
        name,
    )
