"""Static SM partitions planned: whole chunks as the daemon tells them; how many SMs they come to is not worked out.

A chunk has as many SMs as the hardware gives it, which differs by device, and not always all chunks are alike: the
number is read when a partition is there. What is shown before is what other partitions of the device have, as an
estimate. Pure; raises PlanError.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from mpstui.core.late import dataclass
from mpstui.core.model import PartitionTable
from mpstui.core.text import are, plural
from mpstui.plan.amounts import PlanError

ABOUT = (
    "how many SMs a chunk has is not known before a partition is there: about 8 on Hopper and later, to be confirmed"
)


@dataclass(frozen=True, slots=True)
class StaticShare:
    """What one client is to get."""

    name: str
    chunks: int
    sms_about: int | None = None
    """By what a chunk of the partitions that are there has; None where there are none. To be confirmed."""
    partition: str | None = None
    """The name of the one that was made for it; None where none was."""


@dataclass(frozen=True, slots=True)
class StaticPlan:
    """A device divided into whole chunks."""

    device: str
    free: int
    total: int
    shares: tuple[StaticShare, ...]

    @property
    def left(self) -> int:
        """Chunks that stay free."""
        return self.free - sum(share.chunks for share in self.shares)


def divide(
    table: PartitionTable,
    device: str,
    *,
    clients: int | None = None,
    weights: Sequence[Fraction] = (),
    sm_counts: Sequence[int] = (),
    names: Sequence[str] = (),
) -> StaticPlan:
    """Divide the chunks that are free: evenly among ``clients``, by ``weights``, or into ``sm_counts`` that come to
    whole chunks. Fails closed: nobody gets a part of a chunk, and no more is given than is free."""
    found = table.device(device)
    if found is None:
        raise PlanError(f"the daemon does not list the device {device}")
    per = table.sms_per_chunk(device)
    if sum(bool(given) for given in (clients, weights, sm_counts)) != 1:
        raise PlanError("say one of --clients N, --weights 30,70 and --sm-count 24,56")
    if sm_counts:
        if per is None:
            raise PlanError(f"{ABOUT}; give --clients or --weights")
        if wrong := next((count for count in sm_counts if count % per), None):
            raise PlanError(f"{plural(wrong, 'SM')} {are(wrong)} no whole chunks of {per} SMs")
        chunks = [count // per for count in sm_counts]
    else:
        parts = list(weights) or [Fraction(1)] * (clients or 0)
        chunks = [int(found.free * part / sum(parts)) for part in parts]
    if min(chunks) < 1:
        raise PlanError(f"too few chunks are free, {found.free}: each client needs one at least")
    if sum(chunks) > found.free:
        free = f"the {found.free} that are free, of {found.total}"
        raise PlanError(f"{plural(sum(chunks), 'chunk')} {are(sum(chunks))} more than {free}")
    labels = tuple(names) or tuple(f"client{number}" for number in range(1, len(chunks) + 1))
    if len(labels) != len(chunks) or len(set(labels)) < len(labels):
        need = "1 client needs one name"
        raise PlanError(need if len(chunks) == 1 else f"{len(chunks)} clients need a name each, and each its own")
    about = [None if per is None else per * number for number in chunks]
    shares = tuple(StaticShare(*each) for each in zip(labels, chunks, about, strict=True))
    return StaticPlan(device, found.free, found.total, shares)
