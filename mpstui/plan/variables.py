"""What the variables of MPS in a process's start environment do, and which of them do nothing; pure.

They are what the process was started with: it may have changed them since, and anybody may set what he likes. So they
explain, and decide nothing.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from typing import Final

from mpstui.core.late import dataclass, pattern
from mpstui.core.limits import own_memory, own_numbers, own_percentage, own_priority
from mpstui.core.model import (
    DEVICES_VARIABLE,
    MEMORY_VARIABLE,
    PARTITION_VARIABLE,
    PERCENTAGE_VARIABLE,
    PRIORITY_VARIABLE,
    Daemon,
)
from mpstui.core.text import PRIORITY_WORDS, format_size, printable

CONNECTIONS_VARIABLE: Final = "CUDA_DEVICE_MAX_CONNECTIONS"
PER_CONTEXT_VARIABLE: Final = "CUDA_MPS_ENABLE_PER_CTX_DEVICE_MULTIPROCESSOR_PARTITIONING"
DOES: Final[Mapping[str, str]] = {
    "CUDA_MPS_PIPE_DIRECTORY": "where it looks for the daemon",
    "CUDA_MPS_LOG_DIRECTORY": "where a daemon writes its logs; without effect in a client",
    PERCENTAGE_VARIABLE: "its share of the SMs; a lower one of the server wins",
    MEMORY_VARIABLE: "its memory limits, by its own numbers of its devices; lower ones of the server win",
    PRIORITY_VARIABLE: f"{PRIORITY_WORDS}; a hint: no order is promised",
    PER_CONTEXT_VARIABLE: "each context can have its own percentage; mpstui shows the percentage at the client's start",
    PARTITION_VARIABLE: "the static partition of SMs that it runs in, where the daemon was started with -S",
    "CUDA_MPS_PROTOCOL_VERSION": "the protocol that a daemon speaks; without effect in a client",
    CONNECTIONS_VARIABLE: "its work queues to each device, 2 under MPS where it is not set",
    DEVICES_VARIABLE: "which of the daemon's devices it sees, and in which order",
}
"""The variables of the vendor's guide that a client of MPS goes by, and what each does."""
_OVERRIDDEN: Final = "its share of the SMs; a percentage of its namespace overrides it"
"""What the percentage does with a daemon of protocol 3, as the vendor documents it."""
_OTHERS: Final = frozenset({"CUDA_DEVICE_ORDER", "CUDA_DEVICE_MAX_COPY_CONNECTIONS"})
"""Names of CUDA's own that are much like one of these."""
_PREFIX: Final = "CUDA_MPS_"
_BEGUN: Final = pattern(r"(?:NV(?:IDIA)?_?)?(?P<cuda>CUDA_?)?MPS_?")
_LIKE, _ALIKE = 0.6, 0.9
"""How much a name has to be like one of these to be taken for it: one of CUDA's MPS, and any other one."""
CONTEXT_BYTES: Final = 600 << 20
"""A context on all SMs of an H100 took 520 MiB (fact 23) and counts against the limit (fact 25); with 512M a client did
not start (fact 43)."""
_QUEUES: Final = 2
_MOST_QUEUES: Final = 32
MOST: Final = 12
"""Variables of one process that are told; the others are counted."""
_NAME, _VALUE = 80, 80


@dataclass(frozen=True, slots=True)
class Variable:
    """One variable of a process; all text printable."""

    name: str
    value: str
    does: str
    """What it does; empty where that is not known."""
    trouble: str = ""
    """Why it does not do that, or what it costs; one sentence without its end."""
    remedy: str = ""


def variables_of(
    environment: Mapping[str, str], daemon: Daemon, in_force: float | None = None
) -> tuple[tuple[Variable, ...], int]:
    """The variables of MPS in ``environment``, and how many more there are.

    ``daemon``: what its process is a client of, or itself. ``in_force``: the client's active thread percentage; None
    where it is not known.
    """
    names = [name for name in environment if _is_of_mps(name)]
    names.sort(key=lambda name: (name not in DOES, name))
    told = tuple(_variable(name, environment, daemon, in_force) for name in names[:MOST])
    return told, max(0, len(names) - MOST)


def _is_of_mps(name: str) -> bool:
    return name in DOES or name.upper().startswith(("CUDA_MPS", "CUDAMPS")) or meant(name) is not None


def meant(name: str) -> str | None:
    """The variable that was probably meant; None where none is like it."""
    if name in DOES or name in _OTHERS or len(name) > _NAME:
        return None
    upper = name.upper()
    begun = _BEGUN.match(upper)
    if begun is None:
        return next(iter(difflib.get_close_matches(upper, DOES, 1, _ALIKE)), None)
    # What all of them begin with tells nothing.
    rest = {known.removeprefix(_PREFIX): known for known in DOES if known.startswith(_PREFIX)}
    likeness = _LIKE if begun["cuda"] else _ALIKE
    found = difflib.get_close_matches(upper[begun.end() :], rest, 1, likeness)
    return rest[found[0]] if found else None


def _variable(name: str, environment: Mapping[str, str], daemon: Daemon, in_force: float | None) -> Variable:
    value = environment[name]
    shown = printable(name, _NAME), printable(value, _VALUE)
    if name not in DOES:
        like = meant(name)
        trouble = "no variable of this name is known to do anything"
        remedy = f"Did you mean {like}?" if like else "See the vendor's guide for the name."
        return Variable(*shown, "", trouble, remedy)
    trouble, remedy = next(_troubles(name, value, environment, daemon, in_force), ("", ""))
    does = _OVERRIDDEN if name == PERCENTAGE_VARIABLE and daemon.named_servers else DOES[name]
    return Variable(*shown, does, trouble, remedy)


def _troubles(
    name: str, value: str, environment: Mapping[str, str], daemon: Daemon, in_force: float | None
) -> Iterator[tuple[str, str]]:
    """Why the variable does nothing, or what it costs, with the remedy."""
    if name == PERCENTAGE_VARIABLE:
        own = own_percentage(value)
        if own is None:
            yield "it sets nothing", "A number above 0 and at most 100 is needed."
        elif daemon.static_partitioning:
            text = "it has no effect: the daemon was started with static partitions"
            yield text, f"Its partition ({PARTITION_VARIABLE}) says how many SMs it has."
        elif not daemon.named_servers and in_force is not None and own > in_force:
            yield f"it has no effect: the server's {in_force:g} % is lower", "Raise the server's before it connects."
    elif name == PRIORITY_VARIABLE and own_priority(value) is None:
        yield "it sets nothing", "0 or 1 is needed."
    elif name == MEMORY_VARIABLE:
        yield from _memory_troubles(value, environment.get(DEVICES_VARIABLE), daemon.ordinals)
    elif name == PER_CONTEXT_VARIABLE and value.strip() != "1":
        yield "this value has no known effect", "1 switches it on."
    elif name == PARTITION_VARIABLE and daemon.static_partitioning is False and daemon.protocol == "legacy":
        text = "it names a partition, and the daemon was not started with static partitions"
        yield text, "Start the daemon with them: mpstui daemon start --static."
    elif name == CONNECTIONS_VARIABLE:
        queues = int(value) if value.isdecimal() and len(value) < 4 else None
        if queues is None or not 1 <= queues <= _MOST_QUEUES:
            yield "this value has no known effect", f"A whole number from 1 to {_MOST_QUEUES} is needed."
        elif queues > _QUEUES:
            text = "all clients of a server share one pool of queues, so that fewer clients may fit"
            yield text, f"Leave it unset, or set it to {_QUEUES}, where more clients are wanted."


def _memory_troubles(value: str, visible: str | None, ordinals: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """A limit that sets nothing (fact 43)."""
    entries = [part for part in value.split(",") if part.strip()]
    if not entries or any("=" not in part for part in entries):
        yield "it sets no limit", "Each entry needs a device and a size: 0=2G,1=512M."
        return
    limits = own_memory(value, own_numbers(ordinals, visible), ordinals)
    if limits == {}:
        text = (
            "it sets no limit: an entry has no size, or names a device that the client does not see: then none counts"
        )
        yield text, "Name only devices that it sees, by its own numbers: 0=2G."
    elif small := [size for size in (limits or {}).values() if size < CONTEXT_BYTES]:
        text = f"{format_size(min(small))} is hardly more than a CUDA context takes, or less: it may not start"
        yield text, "Set 1G or more."
