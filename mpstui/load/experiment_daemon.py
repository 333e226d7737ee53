"""Where experiments are carried out: in the daemon that runs, or in one of their own."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from mpstui.load.advising import advise_on
from mpstui.load.experiments import (
    command,
    gpu_util,
    interference,
    metric,
    nbody,
    oversubscribe,
    priority,
    sweep,
    training,
)
from mpstui.load.measure import Lab
from mpstui.load.overlap import copies, streams
from mpstui.load.private_daemon import PrivateDaemon
from mpstui.load.results import GROUPS, Experiment, ExperimentResult, Measured
from mpstui.load.stopping import stop
from mpstui.load.supervisor import Supervisor, supervisor_of
from mpstui.load.utilisation import Meter
from mpstui.observe.sources import NodeSources

ONE_REPEAT: Final = "One repeat does not show how much is chance, so it shows no difference. Give more --repeats."


async def perform(
    asked: Experiment,
    sources: NodeSources,
    progress: Callable[[str], None],
    why_not: Callable[[], str | None] | None = None,
) -> ExperimentResult | Measured:
    """``why_not``: of a daemon that is shared, see Supervisor. Raises ExperimentError, and PrivateDaemonError where
    there can be no daemon of its own."""
    advice = asked.name == "advice"
    meter = Meter(None if advice else sources.nvml, asked.device_uuid)

    def lab_in(pipe_dir: Path) -> Lab:
        def supervisor() -> Supervisor:
            made = supervisor_of(sources, pipe_dir)
            made.why_not = why_not if pipe_dir == asked.shared else None
            return made

        return Lab(supervisor, pipe_dir, progress, asked.device_uuid, asked.repeats, asked.seconds, meter)

    def daemon() -> PrivateDaemon:
        return PrivateDaemon(sources.control_binary)

    if asked.name == "stop":
        ended = await stop(lab_in(Path()), daemon, lambda started: lab_in(started.pipe_dir))
        return replace(ended, uses=tuple(meter.uses.values()))
    if asked.shared is not None:
        found = await _compare(asked, lab_in(asked.shared))
    else:
        async with daemon() as started:
            sources.add(started.pipe_dir)
            found = await _compare(asked, lab_in(started.pipe_dir))
    if (
        not isinstance(found, ExperimentResult) or asked.name == "gpu-util"
    ):  # of that one the readings are the table itself
        return found
    notes = (*found.notes, ONE_REPEAT) if asked.repeats == 1 else found.notes
    return replace(found, uses=tuple(meter.uses.values()), notes=notes)


async def _compare(asked: Experiment, lab: Lab) -> ExperimentResult | Measured:
    if asked.name == "advice" and asked.target is not None:
        return await advise_on(lab, asked.loads, asked.target, asked.clients)
    if asked.name == "nbody":
        return await nbody(lab, asked.groups or (1, 2, 4), asked.bodies, asked.divided)
    if asked.name == "training":
        return await training(lab, asked.command[0], asked.groups or (1, 4))
    if asked.name == "command" and asked.metric:
        return await metric(lab, asked.command, asked.metric, asked.groups or (1, 4), asked.percentages)
    if asked.name == "command":
        return await command(lab, asked.command, asked.groups or (1, 4))
    if asked.name == "streams":
        return await streams(lab, asked.groups or GROUPS["streams"])
    if asked.name == "copies":
        return await copies(lab, asked.groups or GROUPS["copies"])
    return await _ALONE[asked.name](lab)


_ALONE: Final[Mapping[str, Callable[[Lab], Awaitable[ExperimentResult]]]] = {
    "sweep": sweep,
    "interference": interference,
    "gpu-util": gpu_util,
    "priority": priority,
    "oversubscribe": oversubscribe,
}
"""Experiments that have no options of their own."""
