"""Scenarios of daemons in other modes: what they answer is as documented, and was not recorded on a real one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from mpstui.core.model import EMPTY
from mpstui.sim.client import Behaviour
from mpstui.sim.node import SimNode
from mpstui.sim.scenario import GIB, Job, JobPlace, Scenario, spawn_all
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
            places += [JobPlace(replace(job, command=command, behaviour=how)) for command, how in clients]
        spawn_all(node, places)

    def step(self, node: SimNode, now: float) -> float:
        """Only those leave that somebody ends."""
        return 3600.0


_SPACES: Final[tuple[tuple[str, str, str, tuple[tuple[str, int, Behaviour, Mapping[str, str]], ...]], ...]] = (
    ("training", "default", "", (("python train.py --model resnet50, --epochs 90", 0, "busy", EMPTY),)),
    (
        "training",
        "small",
        "--active-thread-percentage=25 --pinned-memory-limit=8G",
        (("python eval.py --checkpoint last", 0, "idle", {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "50"}),),
    ),
    ("training", "open", "", (("python sweep.py --trials 40", 1, "busy", EMPTY),)),
    ("serving", "default", "", (("vllm serve meta-llama/Llama-3.1-8B", 1, "busy", EMPTY),)),
)
"""Server, namespace, its options, and who is in it: command, device, what it does, its own variables."""


class V3Drill:
    """A daemon of MPS protocol 3: two servers, one with namespaces, one of which has no limits."""

    gpus = 2
    multiuser = True
    environment: Mapping[str, str] = EMPTY
    options: Sequence[str] = ("--protocol=3",)

    def begin(self, node: SimNode, now: float) -> None:
        """Servers and namespaces, their limits, then the clients."""
        for server in ("training", "serving"):
            node.call("server", "create", server, "--uid=0")
        node.call("server", "set", "training", "--active-thread-percentage=50")
        clients = []
        for server, space, options, jobs in _SPACES:
            if space != "default":
                node.call("namespace", "create", space, f"--server={server}")
            if options:
                node.call("namespace", "set", space, f"--server={server}", *options.split())
            place = node.pipe_dir / server / ("" if space == "default" else space)
            for command, device, behaviour, env in jobs:
                clients.append(
                    node.spawn(
                        behaviour,
                        at=place,
                        wait=False,
                        argv0=command.split()[0].encode(),
                        command=command,
                        user="root",
                        uid=0,
                        devices=(device,),
                        memory=2 * GIB,
                        env=env,
                    )
                )
        for client in clients:
            client.wait_settled()

    def step(self, node: SimNode, now: float) -> float:
        """Only those leave that somebody ends."""
        return 3600.0


MODES: Final[Mapping[str, Callable[[], Scenario]]] = {"static": Static, "v3": V3Drill}
