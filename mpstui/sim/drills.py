"""Scenarios in which something is wrong, for practice and for tests: each can be put right with what mpstui offers."""

from __future__ import annotations

import math
import os
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from mpstui.core.model import EMPTY
from mpstui.sim.client import SimClient
from mpstui.sim.marker import control_binary
from mpstui.sim.node import SimError, SimNode
from mpstui.sim.scenario import GIB, Job, JobPlace, Scenario, spawn_all
from mpstui.sim.simd.config import MIB, SERVER_START, context_limit, default_gpus

_NEWCOMER_PAUSE: Final = 6.0
_NEWCOMER_STAYS: Final = 10.0
_PATIENCE: Final = 120.0
_ALICE: Final = Job("alice", 2001, "python train.py --model vit-b16", memory=6 * GIB, linger=None)
_BOB: Final = Job("bob", 2002, "vllm serve meta-llama/Llama-3.1-8B", devices=(0, 1), memory=9 * GIB, linger=None)
_CAROL: Final = Job("carol", 2003, "gmx mdrun -deffnm md_0_1 -nb gpu", devices=(1,), memory=GIB, linger=None)
_DAVE: Final = Job("dave", 2004, "python -m ipykernel_launcher -f k.json", devices=(2,), memory=GIB, linger=None)
_ERIN: Final = Job("erin", 2005, "python infer.py --shard 3", memory=GIB)


class _Drill:
    """Clients that stay until somebody ends them, and one that tries to come in again and again."""

    gpus = 3
    multiuser = True
    environment: Mapping[str, str] = EMPTY
    options: Sequence[str] = ()
    newcomer: Job | None = _ERIN

    def __init__(self) -> None:
        self._new: SimClient | None = None
        self._due = -math.inf
        self._session: subprocess.Popen[bytes] | None = None

    def step(self, node: SimNode, now: float) -> float:
        """The newcomer comes, is refused or waits or works for a while, and comes again."""
        if self._session is not None:
            self._session.poll()
        if self.newcomer is None:
            return 3600.0
        if self._new is not None and self._new.status() in {"refused", "failed", "exited", "unmanaged"}:
            self._new.tell("exit")
            self._new, self._due = None, now + _NEWCOMER_PAUSE
        if now >= self._due:
            if self._new is None:
                self._new, self._due = self.newcomer.spawn(node), now + _NEWCOMER_STAYS
            elif self._new.status() == "connected":
                self._new.tell("exit")
                self._due = now + _NEWCOMER_PAUSE
            else:  # it waits for a daemon that answers nobody
                self._due = now + _NEWCOMER_PAUSE
        return 0.5

    @staticmethod
    def _fill(node: SimNode, jobs: Sequence[Job]) -> list[SimClient]:
        places = [JobPlace(job) for job in jobs]
        spawn_all(node, places)
        return [place.client for place in places if place.client is not None]


class FaultDrill(_Drill):
    """A client on GPU 0 has faulted; it took the one on 0 and 1 and the one on 1 with it, the one on 2 runs on.

    The log names bob's, which is innocent, as it names a busy neighbour whenever there is one (fact 36). What tells is
    an earlier fault, over by now: alice's was there both times, nobody else was.
    """

    def begin(self, node: SimNode, now: float) -> None:
        """Ends when the fault is in the log."""
        before = self._fill(node, [replace(job, devices=(0,), linger=0.0) for job in (_ALICE, _DAVE)])
        before[0].tell("fault")
        for client in before:
            client.wait()
        clients = self._fill(node, (_ALICE, _BOB, _CAROL, _DAVE))
        clients[0].tell("fault")
        for client in clients[:3]:
            client.wait_status("lost")


class Blocked(_Drill):
    """Somebody has sent terminate_client twice for a client whose process lives on (fact 16)."""

    def begin(self, node: SimNode, now: float) -> None:
        """The second one is a one-shot command that still waits."""
        client = self._fill(node, (_ALICE, _CAROL, _DAVE))[0]
        command = f"terminate_client {node.control('get_server_list').split()[0]} {client.pid}"
        node.control(command)
        client.wait_status("lost")
        self._session = open_session(node, command)
        if self._session.stdin is not None:
            self._session.stdin.close()


class Held(_Drill):
    """Somebody keeps a control session open (fact 2)."""

    def begin(self, node: SimNode, now: float) -> None:
        """The session lasts until its process is ended."""
        self._fill(node, (_ALICE, _CAROL, _DAVE))
        self._session = open_session(node, "get_server_list")


class Pending(_Drill):
    """A client of another user waits for the present server's clients to end (fact 21)."""

    multiuser = False
    newcomer = None

    def begin(self, node: SimNode, now: float) -> None:
        """The server is alice's."""
        mine = Job("alice", 2001, "python eval.py --checkpoint last", devices=(1,), memory=GIB, linger=None)
        self._fill(node, (_ALICE, mine))
        waiting = _BOB.spawn(node)
        waiting.wait_status("pending")


class Full(_Drill):
    """A device holds as many contexts as it takes; the next client gets error 46 (fact 13)."""

    gpus = 1

    def begin(self, node: SimNode, now: float) -> None:
        """Workers of three users."""
        users = (("alice", 2001), ("bob", 2002), ("carol", 2003))
        self._fill(
            node,
            [
                Job(*users[i % 3], f"python worker.py --rank {i}", behaviour="idle", memory=128 * MIB, linger=None)
                for i in range(context_limit(default_gpus(1)[0]))
            ],
        )


class Stale(_Drill):
    """The daemon has been killed; its files are there, and its clients have lost their server (facts 3 and 19)."""

    newcomer = None

    def begin(self, node: SimNode, now: float) -> None:
        """The clients' processes live on."""
        clients = self._fill(node, (_ALICE, _CAROL, _DAVE))
        node.kill_daemon()
        for client in clients:
            client.wait_status("lost")


class NoStart(_Drill):
    """Every server ends before it is ready, and whoever waits for one is refused in the end."""

    gpus = 1
    environment: Mapping[str, str] = {SERVER_START: "operation not supported"}

    def begin(self, node: SimNode, now: float) -> None:
        """Ends when the first client has been refused."""
        client = _ALICE.spawn(node)
        client.wait_status("refused", 30)


def open_session(node: SimNode, command: str) -> subprocess.Popen[bytes]:
    """A control session that stays open until its standard input is closed, once the daemon has its ``command``.

    Whoever looks at the node before that sees a daemon that answers everybody. One that meets another session is
    refused (fact 2) and tried again. Raises SimError where the daemon never has it.
    """
    said, end = b"", time.monotonic() + _PATIENCE
    with open(node.log_dir / "control.log", "rb") as log:
        log.seek(0, os.SEEK_END)
        while time.monotonic() < end:
            process = subprocess.Popen(
                control_binary(),
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={**os.environ, "CUDA_MPS_PIPE_DIRECTORY": os.fspath(node.pipe_dir)},
                bufsize=0,
            )
            if process.stdin is not None:
                process.stdin.write(command.encode() + b"\n")
            while process.poll() is None and time.monotonic() < end:
                said += log.read()
                if f" Cmd:{command}\n".encode() in said:
                    return process
                time.sleep(0.01)
            process.kill()
            process.wait()
    raise SimError(f"a control session did not come to {command}")


DRILLS: Final[Mapping[str, Callable[[], Scenario]]] = {
    "fault": FaultDrill,
    "blocked": Blocked,
    "held": Held,
    "pending": Pending,
    "full": Full,
    "stale": Stale,
    "nostart": NoStart,
}
