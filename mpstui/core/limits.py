"""Which limits hold for a client: those of its server when it connected, and its own environment's; pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import field
from typing import Final, NamedTuple

from mpstui.core.late import dataclass, pattern
from mpstui.core.model import (
    DEVICES_VARIABLE,
    EMPTY,
    MEMORY_VARIABLE,
    PERCENTAGE_VARIABLE,
    PRIORITY_VARIABLE,
    Daemon,
    OldLimit,
)
from mpstui.core.text import device_keys, lower_sizes, taken_limit


@dataclass(slots=True)
class LimitsInForce:
    """Limits of a server or a daemon, and whether history tells all of them. ``None``: not known."""

    percentage: float | None = None
    priority: int | None = None
    memory: dict[str, int] = field(default_factory=dict)
    """Bytes by ordinal or UUID as it was set, the latest last: the last one set wins (fact 6)."""
    memory_known: bool = False

    def copy(self) -> LimitsInForce:
        return LimitsInForce(self.percentage, self.priority, dict(self.memory), self.memory_known)


def counted(visible: str, uuids: Sequence[str]) -> dict[str, str]:
    """The ordinals of a program that sees the devices that ``visible`` names, each by its UUID or the first characters
    of one, of the node's ``uuids``. Empty where one of them is named otherwise, or is none of those: CUDA counts them
    in an order of its own, and ends at the first that it does not know."""
    named = [device_keys(name, {uuid: uuid for uuid in uuids}) for name in visible.split(",")]
    if any(len(keys) != 1 for keys in named) or len({keys[0] for keys in named}) < len(named):
        return {}
    return {str(number): keys[0] for number, keys in enumerate(named)}


def by_ordinal(memory: Mapping[str, int], ordinals: Mapping[str, str]) -> dict[str, int]:
    """Limits by ordinal: one set by UUID reads back by ordinal, and the last one set wins (fact 6). ``memory``: as they
    were set, the last one last; where no ordinal is known, without those that a later one may have replaced."""
    if not memory:
        return {}
    if not ordinals:
        return _not_replaced(memory)
    index = {uuid: ordinal for ordinal, uuid in ordinals.items()}
    result: dict[str, int] = {}
    for device, size in memory.items():
        result[index.get(device, device)] = size
    return result


def _not_replaced(memory: Mapping[str, int]) -> dict[str, int]:
    """Without the limits by number before one by UUID, and the other way round: the two may name the same device."""
    sure: list[str] = []
    for device in reversed(list(memory)):
        if sure and device.isdecimal() != sure[0].isdecimal():
            break
        sure.append(device)
    return {device: memory[device] for device in reversed(sure)}


class Effective(NamedTuple):
    """What a client got."""

    percentage: float | None = None
    memory: Mapping[str, int] = EMPTY
    """Bytes by the server's ordinal."""
    priority: int | None = None
    source: Mapping[str, str] = EMPTY
    old: tuple[OldLimit, ...] = ()
    """Those of them that it would get anew if it connected now."""
    memory_known: bool = False
    """Whether ``memory`` is all of it."""
    percentage_at_most: bool = False
    """Whether ``percentage`` is the server's, and it is not known whether the client's own is lower."""


def effective(
    at_connect: LimitsInForce,
    present: LimitsInForce,
    ordinals: Mapping[str, str],
    environment: Mapping[str, str] | None,
    *,
    doubt: bool = False,
    on: Collection[str] = (),
) -> Effective:
    """The lower one wins, the server's or the client's own, of percentages and of memory limits; of priorities its own.

    Memory limits, the server's too, go by the client's own numbers of its devices (fact 35).
    ``doubt``: something besides, of which nobody knows whether it holds, may limit the memory (``in_doubt``).
    ``environment``: the client's own; None where it is not known, nor then its priority and whose limits hold.
    A limit is old where the client would get another one if it connected now; where history does not tell, it is not.
    ``on``: the devices, by UUID, that the client is on: a limit of another one does not hold anything of it.
    """
    told = environment is not None
    known = at_connect.memory_known and told and not doubt
    environment = environment or {}
    own = own_percentage(environment.get(PERCENTAGE_VARIABLE))
    numbers = own_numbers(ordinals, environment.get(DEVICES_VARIABLE))
    known = known and (bool(numbers) or DEVICES_VARIABLE not in environment)
    own_sizes = own_memory(environment.get(MEMORY_VARIABLE), numbers, ordinals)
    known = known and own_sizes is not None
    own_sizes = own_sizes or {}
    source: dict[str, str] = {}
    percentage = _lower(at_connect.percentage, own)
    if percentage is not None and told:
        source["active_thread_percentage"] = "server" if percentage == at_connect.percentage else "client"
    sizes = by_ordinal(at_connect.memory, ordinals)
    known = known and ordinals.keys() >= sizes.keys()  # of which GPU they are is not told before driver 580
    served = _of_devices(sizes, numbers)
    memory = lower_sizes(served, own_sizes)
    if memory and told:
        source["pinned_mem_limits"] = "server" if memory == served else "client"
    priority = own_priority(environment.get(PRIORITY_VARIABLE))
    if priority is not None:
        source["client_priority"] = "client"
    elif at_connect.priority is not None and told:
        priority, source["client_priority"] = at_connect.priority, "default"
    again = _lower(present.percentage, own)
    old = list[OldLimit]()
    if percentage is not None and again is not None and percentage != again:
        old.append(OldLimit("active_thread_percentage", percentage, again))
    if at_connect.memory_known and present.memory_known:
        anew = lower_sizes(_of_devices(by_ordinal(present.memory, ordinals), numbers), own_sizes)
        for device in sorted(memory.keys() | anew.keys()):
            kept, now = memory.get(device), anew.get(device)
            if kept != now and (not on or ordinals.get(device, device) in on or device not in ordinals):
                old.append(OldLimit("pinned_mem_limits", kept, now, device))
    return Effective(percentage, memory, priority, source, tuple(old), known, percentage is not None and not told)


def own_numbers(ordinals: Mapping[str, str], visible: str | None) -> dict[str, str]:
    """The client's own number of each device that it sees, by the server's ordinal.

    ``visible``: its CUDA_VISIBLE_DEVICES, in which numbers are the server's (fact 11); what follows a name that is no
    device is not seen.
    """
    if visible is None:
        return {ordinal: ordinal for ordinal in ordinals}
    found: dict[str, str] = {}
    for name in (word.strip() for word in visible[:4096].split(",")):
        matches = [
            o for o, uuid in ordinals.items() if name == o or (not name.isdigit() and name and uuid.startswith(name))
        ]
        if len(matches) != 1:
            break
        found.setdefault(matches[0], str(len(found)))
    return found


def _of_devices(sizes: Mapping[str, int], numbers: Mapping[str, str]) -> dict[str, int]:
    """Limits by the client's numbers as limits by the server's ordinals. Without numbers, where the server's devices
    are not known, both are taken for the same."""
    if not numbers:
        return dict(sizes)
    return {ordinal: sizes[number] for ordinal, number in numbers.items() if number in sizes}


def _lower(served: float | None, own: float | None) -> float | None:
    """None where the server's is not known: the client's own may then be the higher one."""
    return own if served is not None and own is not None and own < served else served


_NUMBER: Final = pattern(
    r"[ \t\n\v\f\r]*([+-]?(?:0[xX](?:[0-9a-fA-F]+(?:\.[0-9a-fA-F]*)?|\.[0-9a-fA-F]+)(?:[pP][+-]?[0-9]+)?"
    r"|(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?))"
)
_DIGITS: Final = 10
_WHOLE: Final = pattern(r"[ \t\n\v\f\r]*([+-]?[0-9]+)")


def own_percentage(text: str | None) -> float | None:
    """``CUDA_MPS_ACTIVE_THREAD_PERCENTAGE``; None where it says nothing usable. The number that it begins with counts,
    as C reads it: 50 of ``50%``, 30 of ``0x1e``, 3 of ``3_0`` (fact 27)."""
    found = _NUMBER.match((text or "")[:4096])
    if found is None:
        return None
    try:
        value = float.fromhex(found[1]) if "x" in found[1].lower() else float(found[1])
    except OverflowError:
        return None
    return value if 0 < value <= 100 else None


def own_priority(text: str | None) -> int | None:
    """``CUDA_MPS_CLIENT_PRIORITY``; None where the whole number that it begins with, as C reads it, is neither 0 nor
    1."""
    found = _WHOLE.match((text or "")[:4096])
    return int(found[1]) if found is not None and len(found[1]) < _DIGITS and int(found[1]) in {0, 1} else None


def may_be_taken(daemon: Daemon, name: str) -> bool:
    """Whether the daemon may have read a percentage or a priority in this variable of its own where nothing is read
    here: its default, where it was asked for, is not MPS's own."""
    text = (daemon.environment or {}).get(name)
    if name == PERCENTAGE_VARIABLE and text:
        return own_percentage(text) is None and daemon.default_active_thread_percentage not in {None, 100.0}
    if name == PRIORITY_VARIABLE and text:
        return own_priority(text) is None and daemon.default_client_priority not in {None, 0}
    return False


def own_memory(text: str | None, numbers: Mapping[str, str], ordinals: Mapping[str, str]) -> dict[str, int] | None:
    """``CUDA_MPS_PINNED_DEVICE_MEM_LIMIT``, ``0=1G,1=512M``, in bytes by the server's ordinal.

    ``numbers``: the process's own number of each device that it sees, by ordinal. An entry for a device that it does
    not see, or one without a device, drops all of them (fact 43), as spaces around it do; of two for one device the
    lower one holds. None where that cannot be told: its devices are not known.
    """
    entries = [part.partition("=") for part in (text or "").split(",") if part.strip()]
    if entries and not numbers:
        return None
    named = {number: ordinal for ordinal, number in numbers.items()}
    named |= {uuid: ordinal for ordinal, uuid in ordinals.items() if ordinal in numbers}
    found: dict[str, int] = {}
    for device, equals, size in entries:
        keys = [str(int(device))] if device.isascii() and device.isdigit() and len(device) < _DIGITS else [device]
        if device.startswith(("GPU-", "MIG-")):
            keys = [uuid for uuid in named if uuid == device] or [uuid for uuid in named if uuid.startswith(device)]
        ordinal = named.get(keys[0]) if len(keys) == 1 else None
        if not equals or ordinal is None:
            return {}
        taken = taken_limit(size.strip())
        found[ordinal] = min(taken, found.get(ordinal) or taken)
    return {ordinal: size for ordinal, size in found.items() if size}


def inherited_memory(
    environment: Mapping[str, str] | None, ordinals: Mapping[str, str], devices: int | None = None
) -> dict[str, int] | None:
    """The memory limits that the daemon's own environment names, by ordinal; None where it may not be read, or it is
    not known which devices are meant. They limit no client of driver 580 (fact 57). ``devices``: how many the node has,
    None where that is not known."""
    if environment is None:
        return None
    text = environment.get(MEMORY_VARIABLE, "")
    own = list(ordinals)
    if not own:  # a driver that does not tell them: the numbers are the daemon's all the same
        own = [part.partition("=")[0].strip() for part in text.split(",") if part.strip()]
        if not all(number.isdecimal() for number in own):
            return None
        if devices is not None:
            own = [number for number in own if len(number) < _DIGITS and int(number) < devices]
            if text and not own:
                return {}
    return own_memory(text, {ordinal: ordinal for ordinal in own}, ordinals)


def in_doubt(inherited: Mapping[str, int] | None, driver: str | None) -> bool:
    """Whether clients may be limited by what the daemon's environment names: only of driver 580 is it known that they
    are not."""
    return inherited is None or (bool(inherited) and not (driver or "").startswith("580."))
