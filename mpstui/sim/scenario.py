"""Scenarios of the simulated node: who computes what on it, and when they come and go."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Final, Protocol

from mpstui.core.late import dataclass
from mpstui.core.model import EMPTY
from mpstui.sim.client import Behaviour, SimClient
from mpstui.sim.node import SimNode
from mpstui.sim.simd.config import MIB

GIB: Final = 1024 * MIB


@dataclass(frozen=True)
class Job:
    """One client to be: ``memory`` in bytes on each of its devices."""

    user: str
    uid: int
    command: str
    devices: tuple[int, ...] = (0,)
    behaviour: Behaviour = "busy"
    memory: int = GIB
    container: str | None = None
    cgroup: str | None = None
    """As ``mpstui.sim.sources.simulated_where`` takes it."""
    env: Mapping[str, str] = field(default_factory=dict)
    linger: float | None = 4.0
    """Seconds that its process lives on when its contexts are lost; None: until somebody ends it."""

    def spawn(self, node: SimNode) -> SimClient:
        """Starts it without waiting for it; ``ps`` shows the first word of its command."""
        return node.spawn(
            self.behaviour,
            wait=False,
            argv0=self.command.split()[0].encode(),
            command=self.command,
            user="alice" if node.one_user else self.user,
            uid=2001 if node.one_user else self.uid,
            devices=self.devices,
            memory=self.memory,
            container=None if self.container is self.cgroup is None else f"{self.container or ''} {self.cgroup or ''}",
            namespace=None if self.container is None else 4026532000 + self.uid % 100,
            env=self.env,
            linger=self.linger,
        )


class Scenario(Protocol):
    """What happens on a node."""

    gpus: int
    multiuser: bool
    """Whether one server serves all users."""
    environment: Mapping[str, str]
    """The daemon's own variables."""
    options: Sequence[str]
    """Of the daemon's command line."""

    def begin(self, node: SimNode, now: float) -> None:
        """Brings the node to its first state."""

    def step(self, node: SimNode, now: float) -> float:
        """Does what is due and gives the seconds until it wants to be called again."""


_VLLM: Final = (
    "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod5d3c0f6e_7a1b_4c52_9b7e_2f8f0c1d6a34.slice/"
    f"cri-containerd-{'1f3a9c5e7b2d4860' * 4}.scope#serving/vllm-8b-0/server"
)


def _slurm(job: int) -> str:
    return f"/system.slice/slurmstepd.scope/job_{job}/step_0/user/task_0"


_RESIDENTS: Final = (
    Job("alice", 2001, "python train.py --model resnet50 --batch 256", memory=6 * GIB, cgroup=_slurm(73201)),
    Job("alice", 2001, "python train.py --model vit-b16 --ddp", devices=(0, 1), memory=8 * GIB, cgroup=_slurm(73201)),
    Job(
        "bob",
        2002,
        "vllm serve meta-llama/Llama-3.1-8B --port 8000",
        devices=(1,),
        memory=17 * GIB,
        container="vllm-8b",
        cgroup=_VLLM,
    ),
    Job("carol", 2003, "gmx mdrun -deffnm md_0_1 -nb gpu -ntomp 8", memory=GIB, cgroup=_slurm(73188)),
    Job("carol", 2003, "gmx mdrun -deffnm md_0_2 -nb gpu -ntomp 8", devices=(1,), memory=GIB, cgroup=_slurm(73188)),
    Job(
        "dave",
        2004,
        "python -m ipykernel_launcher -f kernel-7f3a.json",
        behaviour="idle",
        memory=2 * GIB,
        cgroup="/system.slice/jupyter-dave.service",
    ),
)
_LATER: Final = (
    Job("erin", 2005, "tritonserver --model-repository=/models", devices=(1,), memory=4 * GIB, container="triton"),
    Job("dave", 2004, "python -m ipykernel_launcher -f kernel-02c9.json", devices=(1,), behaviour="idle"),
    Job("bob", 2002, "python embed.py --shard 3", env={"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "10"}, container="embed"),
    Job("alice", 2001, "python eval.py --checkpoint last", behaviour="idle", memory=3 * GIB),
    Job("erin", 2005, "namd3 +p4 apoa1.namd", devices=(0, 1), memory=2 * GIB),
)
_GUESTS: Final = (
    Job("alice", 2001, "python preprocess.py --shard 11", memory=512 * MIB),
    Job(
        "bob",
        2002,
        "python bench_decode.py --tokens 4096",
        devices=(1,),
        memory=2 * GIB,
        container="vllm-8b",
        cgroup=_VLLM,
    ),
    Job("carol", 2003, "relion_refine --gpu 0 --o Class2D/job014", memory=2 * GIB),
    Job("erin", 2005, "ffmpeg -hwaccel cuda -i in.mkv out.mp4", devices=(1,), memory=256 * MIB),
    Job("dave", 2004, "python notebook_cell.py", behaviour="idle", memory=GIB),
)


@dataclass
class JobPlace:
    """A job's place on the node; ``due`` is when it ends or, while it is not there, when it comes."""

    job: Job
    client: SimClient | None = None
    due: float = math.inf


def _told(node: SimNode, commands: str, patience: float = 5.0) -> str:
    """The answer to commands that print something; again while a screen's own session is in the way (fact 2)."""
    end = time.monotonic() + patience
    while not (answer := node.control(commands)) and time.monotonic() < end:
        time.sleep(0.02)
    return answer


class Demo:
    """Five users on two GPUs: about 14 clients, some of which come and go, and limits that not all of them have."""

    gpus = 2
    multiuser = True
    environment: Mapping[str, str] = EMPTY
    options: Sequence[str] = ()

    def __init__(self, seed: int = 7) -> None:
        self._random = random.Random(seed)  # noqa: S311  the same show each time
        self._places = [JobPlace(job) for job in (*_RESIDENTS, *_LATER, *_GUESTS)]

    def begin(self, node: SimNode, now: float) -> None:
        """Residents, then the limits, then those who get them."""
        first = len(_RESIDENTS)
        spawn_all(node, self._places[:first])
        server = _told(node, "get_server_list").strip()
        _told(
            node,
            f"set_default_active_thread_percentage 50\nset_default_device_pinned_mem_limit 0 20G\n"
            f"set_active_thread_percentage {server} 25\nset_device_pinned_mem_limit {server} 0 16G\n"
            f"set_device_pinned_mem_limit {server} 1 24G",
        )
        spawn_all(node, self._places[first:-2])
        for place in self._places:
            if place.job in _GUESTS:
                place.due = now + self._pause()

    def _pause(self) -> float:
        return self._random.uniform(10, 20)

    def step(self, node: SimNode, now: float) -> float:
        """Lets guests whose time has come connect or end; whoever was ended by somebody else comes back, too."""
        for place in self._places:
            if place.client is not None and place.client.status() == "exited":
                place.client, place.due = None, now + self._pause()
            elif place.due > now:
                continue
            elif place.client is None:
                place.client = place.job.spawn(node)
                place.due = now + self._pause() if place.job in _GUESTS else math.inf
            else:
                place.client.tell("exit")
                place.due = math.inf
        return max(0.05, min(place.due for place in self._places) - now)


class Crowd:
    """46 clients of four users on one GPU, that stay."""

    gpus = 1
    multiuser = True
    environment: Mapping[str, str] = EMPTY
    options: Sequence[str] = ()
    clients = 46

    def begin(self, node: SimNode, now: float) -> None:
        """All of them at once."""
        users = (("alice", 2001), ("bob", 2002), ("carol", 2003), ("dave", 2004))
        jobs = (
            Job(
                *users[i % 4],
                f"python worker.py --rank {i} --world {self.clients}",
                behaviour="busy" if i % 3 else "idle",
                memory=256 * MIB,
            )
            for i in range(self.clients)
        )
        spawn_all(node, [JobPlace(job) for job in jobs])

    def step(self, node: SimNode, now: float) -> float:
        """Only those leave that somebody ends."""
        return 3600.0


def spawn_all(node: SimNode, places: Sequence[JobPlace]) -> None:
    """Starts their clients at the same time and waits until all are connected."""
    clients = [place.job.spawn(node) for place in places]
    for place, client in zip(places, clients, strict=True):
        client.wait_settled()
        place.client = client


SCENARIOS: Final[Mapping[str, Callable[[], Scenario]]] = {"demo": Demo, "crowd": Crowd}
