"""What the control binary and daemon of each driver have: the one table of it, for mpstui and for the simulated node.

A row is what was seen on the vendor's own binary of that driver, or what the vendor's documents say of it. Of a driver
that has no row nothing is assumed: its daemon is asked. Imports next to nothing, as the stand-in binary reads it too.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, Literal, NamedTuple

_PRIORITY: Final = frozenset(("get_default_client_priority", "set_default_client_priority"))
_MEMORY: Final = frozenset(
    (
        "get_default_device_pinned_mem_limit",
        "set_default_device_pinned_mem_limit",
        "get_device_pinned_mem_limit",
        "set_device_pinned_mem_limit",
    )
)
TOGETHER: Final = (_PRIORITY, _MEMORY)
"""Commands that came with one and the same driver: a daemon that does not know how to read a limit cannot set it."""
_ABSENT_555: Final = frozenset(("device_query",))
_ABSENT_535: Final = _ABSENT_555 | {"get_server_status"}
_ABSENT_470: Final = _ABSENT_535 | {"ps", "terminate_client"} | _PRIORITY | _MEMORY
COMMANDS: Final = _ABSENT_470
"""The commands that not every driver has."""
_NONE: Final[frozenset[str]] = frozenset()


class Driver(NamedTuple):
    """One driver's control binary and daemon."""

    number: int
    """The first part of its version."""
    version: str
    """The release that was recorded, or of which the documents speak."""
    source: Literal["recorded", "documented"]
    absent: frozenset[str] = _NONE
    """Of COMMANDS, those that its daemon does not know."""
    binary_version: str | None = None
    """What ``-v`` prints, such as 13000 for CUDA 13.0; None where there is no such option."""
    options: Literal["none", "usage", "listed"] = "listed"
    """What becomes of a word that is no option of its: ``none``, it opens a control session; ``usage``, a text that
    lists nothing, status 1; ``listed``, and ``-h`` lists the options."""
    multi_user: tuple[str, ...] = ()
    """The options that start multi-user mode; none where there is no such mode."""
    static_partitions: bool = False
    """Whether it starts with ``-S``, static SM partitions."""
    protocol_3: bool = False
    """Whether it starts with ``-p 3``, named servers and namespaces."""
    strangers_set: bool = False
    """Whether any local user may change the daemon's defaults (fact 48)."""
    pid_file: bool = True
    """Whether the daemon keeps its PID in the pipe directory."""
    contexts: int = 48
    """The most contexts that a device takes, from Volta on."""
    contexts_said: str = "documented, and measured with 580"
    """Whose number that is, in words."""


_M: Final = ("-M", "--multiuser-server")
_CLAIMED: Final = "claimed by the vendor, not measured"
DRIVERS: Final[tuple[Driver, ...]] = (
    Driver(470, "470.256.02", "recorded", _ABSENT_470, None, "none", strangers_set=True, pid_file=False),
    Driver(535, "535.261.03", "recorded", _ABSENT_535, None, "none", strangers_set=True, pid_file=False),
    Driver(550, "550.163.01", "recorded", _ABSENT_555, None, "none"),
    Driver(555, "555.58.02", "recorded", _ABSENT_555, None, "usage", ("-multiuser-server",)),
    Driver(580, "580.159.04", "recorded", _NONE, "13000", "listed", _M, contexts_said="measured with 580"),
    Driver(590, "590.44.01", "documented", _NONE, "13010", "listed", _M, True, contexts=60, contexts_said=_CLAIMED),
    Driver(615, "615.71", "documented", _NONE, "13040", "listed", _M, True, True, contexts=60, contexts_said=_CLAIMED),
)
"""In the order of their numbers. 470 to 555 as the vendor's own binary did (facts 45 to 48), 580 as on a GPU."""
_BY_NUMBER: Final = {driver.number: driver for driver in DRIVERS}


def number_of(version: str | None) -> int | None:
    """470 of ``470.256.02``; None where that is no driver's version."""
    major = (version or "").partition(".")[0]
    return int(major) if major.isascii() and major.isdigit() and len(major) <= 4 else None


def driver_of(version: str | None) -> Driver | None:
    """The row of the driver that NVML names so; None for one that nobody has seen."""
    number = number_of(version)
    return None if number is None else _BY_NUMBER.get(number)


def nearest(version: str) -> Driver:
    """The newest driver with a row that is no newer than this one; the oldest for one that is older than all."""
    number = number_of(version) or 0
    return next((driver for driver in reversed(DRIVERS) if driver.number <= number), DRIVERS[0])


def absent_from(version: str | None) -> frozenset[str]:
    """The commands that a daemon of the driver that NVML names so is known not to have."""
    driver = driver_of(version)
    return _NONE if driver is None else driver.absent


def is_before_protocol_3(version: str | None, binary_version: str | None) -> bool:
    """Whether a daemon is known not to speak it, nor to know its variable: by the driver as the kernel names it, and by
    what its control binary says of itself, where it does."""
    first = next(driver for driver in DRIVERS if driver.protocol_3)
    number = number_of(version)
    if number is not None and number >= first.number:
        return False
    if binary_version is not None:
        return int(binary_version) < int(first.binary_version or 0)
    return number is not None


def contexts_of(version: str | None, compute_capability: tuple[int, int] | None) -> tuple[int, str]:
    """The most contexts that a device takes, and whose number that is, in words. The daemon's own refusal, where its
    log has one, comes before it (fact 13)."""
    if compute_capability is not None and compute_capability < (7, 0):
        return 16, "documented for GPUs before Volta"
    driver = nearest(version) if number_of(version) is not None and version is not None else _BY_NUMBER[580]
    return driver.contexts, driver.contexts_said


def together(verbs: Collection[str]) -> frozenset[str]:
    """These commands, and those that came with them."""
    return frozenset(verbs).union(*(group for group in TOGETHER if not group.isdisjoint(verbs)))
