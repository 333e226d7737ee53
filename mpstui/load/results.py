"""What experiments are asked to be and what they come to; values only."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from mpstui.core.late import dataclass
from mpstui.core.text import printable
from mpstui.load.spread import Spread
from mpstui.load.types import COMMAND, INFO, LoadSpec
from mpstui.load.utilisation import Use, shares
from mpstui.plan.advice import Advice
from mpstui.plan.types import PlanTarget

RUNS: Final = "runs/min"
GROUPS: Final[Mapping[str, tuple[int, ...]]] = {
    "streams": (1, 4, 16, 32), "copies": (4,), "sweep": (1,), "gpu-util": (1,), "interference": (2,), "priority": (2,),
}  # fmt: skip
"""How many clients an experiment has at a time where nothing is said; others up to 4."""


@dataclass(frozen=True, slots=True)
class Experiment:
    """What is to be compared, and where. ``advice`` is what a plan is made from; the others are those of ``mpstui
    experiment``."""

    name: str
    device_uuid: str | None = None
    """None: the first device that CUDA shows."""
    repeats: int = 3
    seconds: float = 1.0
    """Of one window."""
    shared: Path | None = None
    """The pipe directory of the daemon that it runs in; None: in one of its own, gone at the end."""
    groups: tuple[int, ...] = ()
    """How many clients at a time, one number for each comparison; empty: as the experiment has them."""
    command: tuple[str, ...] = ()
    """The program; of ``training`` the Python that runs it."""
    bodies: int | None = None
    divided: bool = False
    """Of ``nbody``: the work of one client is divided among the clients."""
    metric: str = ""
    """Of ``command``: a regular expression whose group is the throughput that the program tells."""
    percentages: tuple[float, ...] = ()
    """To try with a ``metric``."""
    loads: tuple[LoadSpec, ...] = ()
    """Of ``advice``: one, for ``clients`` like ones, or two, for one client each."""
    target: PlanTarget | None = None
    clients: int = 1

    def most_at_once(self) -> LoadSpec:
        """As many clients as it has at the same time on its daemon."""
        number = max(self.groups or GROUPS.get(self.name, (4,)))
        if self.name == "advice":
            number = self.clients if len(self.loads) == 1 else len(self.loads)
        return LoadSpec("nbody" if self.name == "nbody" else COMMAND, clients=number, device_uuid=self.device_uuid)


class PlotPoint(NamedTuple):
    """One value of a plot."""

    at: str | float
    """Which situation, in words; of a curve a number."""
    spread: Spread
    series: str = ""
    """What several have at the same place are told apart by."""


class Plot(NamedTuple):
    """What can be drawn of a result."""

    value: str
    """What is measured, with its unit: the name of its axis."""
    points: tuple[PlotPoint, ...]
    over: str = ""
    """Of a curve, what it is drawn over, with its unit; otherwise a bar for each point."""


@dataclass(frozen=True, slots=True)
class ExperimentResult:
    """A table, the numbers behind it, and one sentence."""

    name: str
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    data: tuple[dict[str, Any], ...]
    verdict: str
    notes: tuple[str, ...] = ()
    uses: tuple[Use, ...] = ()
    """How busy the device was in each situation."""
    plots: tuple[Plot, ...] = ()


@dataclass(frozen=True, slots=True)
class Cost:
    """Throughput of one load of two: alone on the whole device, beside the other, beside it with the advised shares."""

    load: LoadSpec
    alone: Spread
    beside: Spread
    with_shares: Spread


@dataclass(frozen=True, slots=True)
class Measured:
    """What was measured, and the SMs of each client that come of it."""

    target: PlanTarget
    """With the rounding that was measured, where it was not known."""
    loads: tuple[LoadSpec, ...]
    advices: tuple[Advice, ...]
    sm_counts: tuple[int, ...]
    costs: tuple[Cost, ...] = ()
    """Of two loads; of one there is nothing to compare."""


def use_plot(uses: Iterable[Use]) -> Plot:
    """How busy the device was in each situation, as far as that is told in percent."""
    points = (PlotPoint(label, spread, meter) for label, meter, spread in shares(uses))
    return Plot("of the device, or of the time (%)", tuple(points))


def unit(load: LoadSpec) -> str:
    """Of its throughput."""
    return RUNS if load.kernel == COMMAND else INFO[load.kernel].unit


def name_of(load: LoadSpec) -> str:
    """The kernel, or the program with its arguments, as text to show."""
    return printable(shlex.join(load.command), 40) if load.kernel == COMMAND else load.kernel
