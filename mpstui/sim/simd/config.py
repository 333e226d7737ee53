"""What the simulated node is made of, as the marker file in its pipe directory says.

The stand-in binary reads it at every start, so no module of this package imports dataclasses or pathlib: each of them
takes as long as Python itself.
"""

from __future__ import annotations

import errno
import json
import os
import re
import stat
from collections.abc import Collection, Sequence
from typing import Any, Final, NamedTuple, Union

from mpstui.control.drivers import Driver, contexts_of, nearest

Place = Union[str, "os.PathLike[str]"]
MARKER: Final = "mpstui-simulated"
"""A file of this name makes a pipe directory that of a simulated node. It holds the devices as JSON."""
STARTS: Final = "mpstui-simulated.starts"
"""Beside logs: how the first line of each simulated daemon's begins. What other daemons write there is their own."""
STATE: Final = "mpstui-simulated.json"
"""What NVML and /proc would tell of the node's processes; the daemon rewrites it when something changes."""
SERVER_START: Final = "MPSTUI_SIM_SERVER_START"
"""A variable: the seconds that each server stays INITIALIZING, or the words with which it fails to start."""
TERMINATE_FAULTS: Final = "MPSTUI_SIM_TERMINATE_FAULTS"
"""A variable, not empty: a client that is terminated in a long kernel takes its busy neighbours along, as was seen once
(fact 61)."""
LOAD: Final = "load"
"""The folder in which simulated load workers tell of each other."""
MIB: Final = 1 << 20
READ_LIMIT: Final = 2 * MIB
_DIGITS: Final = 20
_MOST_DEVICES: Final = 64
DRIVER_VERSION: Final = "580.159.04"
SIM_DRIVER: Final = "MPSTUI_SIM_DRIVER"
"""A variable: the driver of a node that is made now, such as ``470.256.02``. Its binary and daemon are of that one."""
SERVER_MEMORY: Final = 66 * MIB
"""What NVML counted for the MPS server itself on each device (fact 9)."""
_NAMESPACE: Final = "6f0a1f7e-53a5-4cf7-9a2f-2f1d0c6f1a52"


class Gpu(NamedTuple):
    """One simulated device; ``index`` is NVML's, ``memory_total`` in bytes."""

    index: int  # type: ignore[assignment]  # not the method of a tuple
    uuid: str
    name: str = "NVIDIA H100 80GB HBM3"
    sm_count: int = 132
    compute_capability: tuple[int, int] = (9, 0)
    memory_total: int = 81559 * MIB
    driver: str = DRIVER_VERSION
    compute_mode: str = "Default"


def default_gpus(count: int, name: str = "NVIDIA H100 80GB HBM3", driver: str | None = None) -> tuple[Gpu, ...]:
    """The first ``count`` devices of the simulated machine; the same ones in every directory."""
    driver = driver or os.environ.get(SIM_DRIVER) or DRIVER_VERSION
    import uuid  # every start asks this package whether a node is simulated, and no real one has a use for it

    names = uuid.UUID(_NAMESPACE)
    return tuple(Gpu(i, f"GPU-{uuid.uuid5(names, f'gpu {i}')}", name, driver=driver) for i in range(count))


def driver_here(pipe_dir: Place) -> Driver:
    """The driver of the simulated node in ``pipe_dir``; where there is none, that of one to be made there."""
    try:
        version = read_marker(pipe_dir)[0].driver
    except (OSError, ValueError):
        version = os.environ.get(SIM_DRIVER) or DRIVER_VERSION
    return nearest(version)


def context_limit(gpu: Gpu) -> int:
    """The most contexts that the device takes."""
    return contexts_of(gpu.driver, gpu.compute_capability)[0]


def ordinal(gpus: Sequence[Gpu], device: str) -> str:
    """The daemon's ordinal of a device given by ordinal or UUID; what is neither stays as it is (fact 5)."""
    return next((str(i) for i, gpu in enumerate(gpus) if gpu.uuid == device), device)


def visible_gpus(gpus: Sequence[Gpu], visible: str | None) -> tuple[Gpu, ...]:
    """What CUDA_VISIBLE_DEVICES leaves of the devices, in its order, which makes the ordinals (fact 11)."""
    if visible is None:
        return tuple(gpus)
    by_name = {str(gpu.index): gpu for gpu in gpus} | {gpu.uuid: gpu for gpu in gpus}
    chosen: list[Gpu] = []
    for name in visible.split(","):
        gpu = by_name.get(name.strip())
        if gpu is None:
            break  # CUDA takes none behind one that it does not know
        chosen.append(gpu)
    return tuple(chosen)


def read_json(path: Place, owners: Collection[int] | None = None) -> Any:
    """The JSON of a regular file of at most 2 MiB, which belongs to one of ``owners``.

    Raises OSError where it cannot be read and ValueError where it is not JSON, is nested too deeply, or has a number
    of more than 20 digits; a link is not followed and a FIFO not waited for.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, "rb") as file:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.EINVAL, "not a regular file")
        if owners is not None and found.st_uid not in owners:
            raise PermissionError(errno.EPERM, "somebody else's")
        data = file.read(READ_LIMIT + 1)
    if len(data) > READ_LIMIT:
        raise ValueError(f"it is larger than {READ_LIMIT >> 20} MiB")
    try:
        return json.loads(data, parse_int=_whole_number, parse_constant=_no_number)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _whole_number(text: str) -> int:
    if len(text) > _DIGITS:
        raise ValueError(f"a number in it has {len(text)} digits")
    return int(text)


def _no_number(text: str) -> float:
    raise ValueError(f"{text} in it is no number")


def write_json(path: Place, value: Any) -> None:
    """Puts ``value`` at ``path`` in one step, so that a reader sees the old one or the new one."""
    folder, name = os.path.split(path)
    temporary = os.path.join(folder, f".{name}.{os.getpid()}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    with open(os.open(temporary, flags, 0o644), "w", encoding="utf-8") as file:
        json.dump(value, file)
    os.replace(temporary, path)


def write_marker(pipe_dir: Place, gpus: tuple[Gpu, ...]) -> None:
    """Makes ``pipe_dir`` that of a simulated node with these devices."""
    write_json(os.path.join(pipe_dir, MARKER), {"version": 1, "devices": [gpu._asdict() for gpu in gpus]})


def read_marker(pipe_dir: Place) -> tuple[Gpu, ...]:
    """The devices of a simulated node. Raises OSError and ValueError, the latter also for what a Gpu cannot be."""
    try:
        devices = read_json(os.path.join(pipe_dir, MARKER))["devices"]
        if not isinstance(devices, list) or not 1 <= len(devices) <= _MOST_DEVICES:
            raise ValueError(f"devices: not a list of 1 to {_MOST_DEVICES}")
        gpus = tuple(_gpu(entry, f"devices[{position}]") for position, entry in enumerate(devices))
    except (KeyError, TypeError) as error:
        raise ValueError("it does not describe a simulated node") from error
    for name, values in (("index", {gpu.index for gpu in gpus}), ("uuid", {gpu.uuid for gpu in gpus})):
        if len(values) < len(gpus):
            raise ValueError(f"devices: two have the same {name}")
    return gpus


def _gpu(entry: dict[str, Any], where: str) -> Gpu:
    major, minor = entry["compute_capability"]
    return Gpu(
        _bounded(entry["index"], 0, 1023, f"{where}.index"),
        _short(entry["uuid"], f"{where}.uuid"),
        _short(entry["name"], f"{where}.name"),
        _bounded(entry["sm_count"], 1, 4096, f"{where}.sm_count"),
        (
            _bounded(major, 1, 99, f"{where}.compute_capability"),
            _bounded(minor, 0, 99, f"{where}.compute_capability"),
        ),
        _bounded(entry["memory_total"], 1, 1 << 50, f"{where}.memory_total"),
        _driver(entry.get("driver", DRIVER_VERSION), f"{where}.driver"),
        _short(entry.get("compute_mode", "Default"), f"{where}.compute_mode"),
    )


def _bounded(value: object, low: int, high: int, where: str) -> int:
    if type(value) is not int or not low <= value <= high:  # a bool is an int
        raise ValueError(f"{where}: not a whole number from {low} to {high}")
    return value


def _driver(value: object, where: str) -> str:
    if not isinstance(value, str) or not re.fullmatch(r"[0-9]{3}(\.[0-9]{1,5}){0,3}", value):
        raise ValueError(f"{where}: not a driver's version")
    return value


def _short(value: object, where: str) -> str:
    if not isinstance(value, str) or not value.isprintable() or not 1 <= len(value) <= 80:
        raise ValueError(f"{where}: not a text of 1 to 80 characters that can be printed")
    return value
