"""Scenarios of daemons in other modes: what they answer is as documented, and was not recorded on a real one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from mpstui.core.model import EMPTY
from mpstui.sim.client import Behaviour
from mpstui.sim.node import SimNode
from mpstui.sim.scenario import GIB, Job, Place, Scenario, spawn_all
from mpstui.sim.simd.config import read_marker

_IN: Final[tuple[tuple[int, int, tuple[tuple[str, Behaviour], ...]], ...]] = (
    (0, 7, (("python train.py --model resnet50", "busy"), ("python eval.py --checkpoint last", "idle"))),
    (0, 4, (("vllm serve meta-llama/Llama-3.1-8B", "busy"),)),
    (0, 1, ()),
    (1, 8, (("gmx mdrun -deffnm md_0_1 -nb gpu", "busy"),)),
)
"""Partitions: the device, chunks, and who is in it."""


class Static:
    """A daemon with static SM partitions: four of them, one without clients."""

    gpus = 2
    multiuser = False
    environment: Mapping[str, str] = EMPTY
    options: Sequence[str] = ("-S",)

    def begin(self, node: SimNode, now: float) -> None:
        """The partitions, then the clients that name them."""
        uuids = [gpu.uuid for gpu in read_marker(node.pipe_dir)]
        places = []
        for device, chunks, clients in _IN:
            name = node.control(f"sm_partition add {uuids[device]} {chunks}").split()[1]
            job = Job("root", 0, "", (device,), env={"CUDA_MPS_SM_PARTITION": name}, memory=2 * GIB)
            places += [Place(replace(job, command=command, behaviour=how)) for command, how in clients]
        spawn_all(node, places)

    def step(self, node: SimNode, now: float) -> float:
        """Only those leave that somebody ends."""
        return 3600.0


MODES: Final[Mapping[str, Callable[[], Scenario]]] = {"static": Static}
