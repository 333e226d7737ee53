"""Faults among busy neighbours: what mpstui, the log and the driver say of each, beside the truth."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

from contract.harness import ClientRefused
from watched import Watched

from mpstui.core.suspects import rank

TIME: float = 160.0
"""Seconds after which no other fault is begun."""
READY = 60.0
"""Seconds in which a client of PyTorch or CuPy has to be ready: importing it takes some."""
NEIGHBOURS = ("alpha", "beta", "gamma", "delta", "epsilon")
BESIDE = 3
"""Neighbours of a fault, another choice each time."""


class PythonClient:
    """A client that computes with PyTorch or CuPy."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @property
    def pid(self) -> int:
        return self._process.pid

    @classmethod
    async def spawn(cls, python: str, kind: str, name: str, pipe_dir: Path) -> PythonClient:
        process = await asyncio.create_subprocess_exec(
            python,
            str(Path(__file__).with_name("blame_client.py")),
            kind,
            name,
            env={**os.environ, "CUDA_MPS_PIPE_DIRECTORY": str(pipe_dir)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        client = cls(process)
        assert process.stdout is not None
        line = await asyncio.wait_for(process.stdout.readline(), READY)
        if line.strip() != b"ready":
            raise ClientRefused(0)
        return client

    async def tell(self, word: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(word.encode() + b"\n")
        await self._process.stdin.drain()

    async def fault(self) -> None:
        await self.tell("fault")

    async def trap(self) -> None:
        await self.tell("trap")

    async def error(self) -> str:
        """The CUDA error that it saw."""
        assert self._process.stdout is not None
        words = (await asyncio.wait_for(self._process.stdout.readline(), 20)).split()
        await asyncio.wait_for(self._process.wait(), 20)
        return words[1].decode() if words[:1] == [b"end"] else "none"


def library() -> tuple[str, tuple[str, ...]] | None:
    """An interpreter, and which of CuPy and PyTorch it has; None without CuPy, which makes the fault."""
    for python in dict.fromkeys(filter(None, (os.environ.get("BLAME_PYTHON"), shutil.which("python3")))):
        there = []
        for name in ("cupy", "torch"):
            code = f"import {name}"
            done = subprocess.run([python, "-c", code], capture_output=True, timeout=120, check=False)
            if done.returncode == 0:
                there.append(name)
        if "cupy" in there:
            return python, tuple(there)
    return None


async def blame(watched: Watched, repeat: int) -> dict[str, Any]:
    """``repeat`` faults; what is said of each is printed with what was done."""
    found = await asyncio.to_thread(library) if watched.node.real else None
    kinds = found[1] if found else ()
    print("clients:", "PyTorch and CuPy" if "torch" in kinds else "CuPy" if kinds else "the project's own", flush=True)
    faults: list[dict[str, Any]] = []
    begun = time.monotonic()
    for number in range(repeat):
        if time.monotonic() - begun > TIME:
            break
        names = [NEIGHBOURS[(number + step) % len(NEIGHBOURS)] for step in range(BESIDE)]
        if found:
            spawn = [PythonClient.spawn(found[0], kinds[-1], name, watched.node.pipe_dir) for name in names]
            spawn.append(PythonClient.spawn(found[0], "cupy", "faulty", watched.node.pipe_dir))
        else:
            spawn = [watched.node.spawn("busy", argv0=name.encode()) for name in names]
            spawn.append(watched.node.spawn("fault", argv0=b"faulty"))
        *neighbours, faulty = await asyncio.gather(*spawn)
        faults.append(await _one(watched, number, neighbours, faulty))
    events = [e for e in watched.collector.snapshot.events if e.kind == "fatal_fault"]
    ranking = rank(events)
    print(ranking.sentence)
    for each in ranking.ranked[:4]:
        print(f"  {each.presence}: {each.text}; server.log named it in {each.named}")
    told = [fault for fault in faults if fault["named"] is not None]
    return {
        "faults": len(faults),
        "named_right": sum(fault["named"] == fault["culprit"] for fault in told),
        "named_wrong": sum(fault["named"] != fault["culprit"] for fault in told),
        "named_nobody": len(faults) - len(told),
        "kernel_named_right": sum(fault["kernel"] == fault["culprit"] for fault in faults),
        "with_xid": sum(bool(fault["xids"]) for fault in faults),
        "trials": faults,
        "says_that_it_is_no_proof": all(fault["no_proof"] for fault in faults),
        "the_culprit_is_a_suspect": all(fault["suspected"] for fault in faults),
        "every_neighbour_is_a_suspect": all(fault["all_suspected"] for fault in faults),
        "comparing_finds_it": [each.program or "" for each in ranking.leaders if _is_it(each.program)] != []
        and len(ranking.leaders) == 1,
    }


def _is_it(program: str | None) -> bool:
    return "faulty" in (program or "")


async def _one(watched: Watched, number: int, neighbours: list[Any], faulty: Any) -> dict[str, Any]:
    """One fault, from its cause to recovery."""
    pids = {client.pid for client in (*neighbours, faulty)}
    await watched.until(
        lambda s, d: pids <= {c.pid for c in d.clients() if c.key.start_ticks and c.contexts and c.command}
    )
    before = {event.key for event in watched.collector.snapshot.events}
    trap = number % 5 == 4 and hasattr(faulty, "trap")
    asked = time.time()
    await (faulty.trap() if trap else faulty.fault())

    def new(snapshot: Any, kind: str) -> list[Any]:
        return [e for e in snapshot.events if e.kind == kind and e.key not in before]

    (event, *_), seen = await watched.until(lambda s, d: new(s, "fatal_fault"))
    xids: list[Any] = []
    with contextlib.suppress(asyncio.TimeoutError, TimeoutError):
        xids, _ = await asyncio.wait_for(watched.until(lambda s, d: new(s, "xid")), 3.0)
    event = next(e for e in watched.collector.snapshot.events if e.key == event.key)
    kernel = next((int(x.values["kernel_names"]) for x in xids if "kernel_names" in x.values), None)
    suspects = {suspect.pid for suspect in event.suspects}
    print(f"fault {number}: {'trap' if trap else 'illegal store'} by {faulty.pid} among {sorted(pids - {faulty.pid})}")
    print(f"  said: {event.sentence()}")
    print(f"  suspects: {', '.join(f'{s.pid} {s.user} {s.command}' for s in event.suspects)}")
    for xid in xids:
        print(f"  driver: {xid.detail}")
    print(flush=True)
    await watched.until(lambda s, d: d.servers and (d.servers[0].fault is None or d.servers[0].fault.affected))
    server = watched.collector.snapshot.daemons[0].servers[0]
    if server.fault is not None:
        with contextlib.suppress(RuntimeError):  # all have freed their GPU by themselves, and nobody is to be ended
            await watched.act("end_lost_clients")
    await watched.until(lambda s, d: not list(d.clients()) and all(not x.fault for x in d.servers))
    return {
        "culprit": faulty.pid,
        "what": "trap" if trap else "illegal store",
        "named": event.named[0] if event.named else None,
        "kernel": kernel,
        "xids": event.values.get("xid", ""),
        "seconds_to_alert": round(seen - asked, 3),
        "no_proof": "no proof" in event.detail or "names no client" in event.detail,
        "suspected": faulty.pid in suspects,
        "all_suspected": pids <= suspects,
    }
