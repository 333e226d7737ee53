"""What a load takes of a device, said before it runs: contexts, and the memory that its kernels allocate.

The sizes are those that the kernels are made with; what a context takes was measured (facts 23 and 25).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from mpstui.core.late import dataclass
from mpstui.core.model import Client
from mpstui.core.text import format_size, owner, parse_size, plural

MIB: Final = 1 << 20
CONTEXT_BASE: Final = 58 * MIB
"""Bytes that a context took (fact 25)."""
CONTEXT_PER_SM: Final = 3.5 * MIB
"""Bytes that each SM of its share adds, where it has execution affinity (fact 23: 70 to 520 MiB from 8 to 132 SMs)."""
FMA_BLOCKS_PER_SM: Final = 8
FMA_THREADS: Final = 256
TRIAD_LARGEST: Final = 1024 * MIB
"""Bytes of one of triad's three arrays; fewer where the device has no room for them."""
BODIES: Final = 65536
SMALL_BLOCKS: Final = 4
SMALL_THREADS: Final = 64
SMALL_STEPS: Final = 256


@dataclass(frozen=True, slots=True)
class Takes:
    """``memory``: bytes at most, None where it is not known. ``all_memory``: it goes on until it is refused."""

    contexts: int
    memory: int | None
    all_memory: bool = False

    @property
    def text(self) -> str:
        """``4 contexts and about 240 MiB of device memory``."""
        contexts = plural(self.contexts, "context")
        if self.all_memory:
            return f"{contexts} and all device memory that is free"
        if self.memory is None:
            return f"{contexts}; how much memory is not known"
        return f"{contexts} and about {format_size(self.memory)} of device memory"


def kernel_memory(kernel: str, sms: int | None) -> int | None:
    """Bytes that a kernel's client allocates at most, with so many SMs; None where that is not known."""
    sizes = {
        "fma": None if sms is None else FMA_BLOCKS_PER_SM * sms * FMA_THREADS * 4,
        "triad": 3 * TRIAD_LARGEST,
        "nbody": 3 * BODIES * 16,
        "small": SMALL_BLOCKS * SMALL_THREADS * 4,
        "endless": 0,
    }
    return sizes["fma"] if kernel == "illegal" else sizes.get(kernel)


def pool_memory(pool: Iterable[int]) -> int:
    """Bytes of contexts with shares of so many SMs."""
    return int(sum(CONTEXT_BASE + CONTEXT_PER_SM * sms for sms in pool))


def takes(
    kernels: Iterable[str],
    sms: int | None,
    memory_limit: str = "",
    pools: Sequence[Sequence[int]] = (),
    streams: int = 1,
    copies: int = 0,
) -> Takes:
    """``kernels``: one for each client. ``pools``: for each client in any order the shares, in SMs, of which it makes
    contexts ahead; none: it has one context. ``streams`` of each, and the bytes that each stream copies."""
    clients = list(kernels)
    contexts = sum(max(1, len(pool)) for pool in pools) + len(clients) - len(pools)
    limit = parse_size(memory_limit) if memory_limit else None
    if "memory" in clients and limit is None:
        return Takes(contexts, None, all_memory=True)
    pooled = sum(map(pool_memory, pools)) - CONTEXT_BASE * sum(map(bool, pools))  # each has one of those anyway
    known: list[int] = []
    for kernel in clients:
        size = kernel_memory(kernel, sms)
        if size is not None:
            size = (size + copies) * streams + CONTEXT_BASE
        # The context counts for a limit too (fact 25), so a limit is the most where the rest is not known.
        if (most := min((n for n in (size, limit) if n is not None), default=None)) is not None:
            known.append(most)
    memory = sum(known) + pooled if len(known) == len(clients) else None
    return Takes(contexts, memory)


def others(clients: Iterable[Client], uid: int) -> list[Client]:
    """Those of other users, on whatever device, as one server has them all: whose user is not known is one of them."""
    return [client for client in clients if client.uid != uid]


def whose(clients: Iterable[Client]) -> str:
    """``3 clients of alice, bob``."""
    found = list(clients)
    users = sorted({owner(client.user, client.uid) for client in found})
    return f"{plural(len(found), 'client')} of {', '.join(users)}"
