"""The recorded containment case made again: what mpstui foretells of a fault, beside whom it really took."""

from __future__ import annotations

import asyncio
from typing import Any

from contract.harness import ClientRefused, Mode
from watched import Watched

from mpstui.core.blast import BlastRadius, blast_of
from mpstui.core.faults import fault_reports

Place = tuple[Mode, tuple[int, ...]]
RECORDED: dict[str, Place] = {"A": ("fault", (0,)), "B": ("idle", (0, 1)), "C": ("idle", (1,)), "D": ("idle", (2,))}
"""As on 2026-11-20 on four GPUs: A, B and C were lost, D ran on (fact 18)."""
ON_TWO: dict[str, Place] = {"A": ("fault", (0,)), "B": ("idle", (0,)), "D": ("idle", (1,))}
"""Where there are two GPUs: without the client that joins groups."""


def places(gpus: int) -> dict[str, Place]:
    """Who sits where; empty with one GPU, where nobody can be spared."""
    return RECORDED if gpus >= 3 else ON_TWO if gpus == 2 else {}


async def containment(watched: Watched) -> dict[str, Any]:
    """A faults; each other client is then asked to end and says with what error, which is the truth to compare with."""
    where = places(watched.node.device_count)
    if not where:
        raise RuntimeError("there is one GPU: nobody can be spared")
    started = await asyncio.gather(*(watched.node.spawn(mode, devices=on) for mode, on in where.values()))
    clients = dict(zip(where, started, strict=True))
    names = {client.pid: name for name, client in clients.items()}
    await watched.ready(*started)
    await watched.until(lambda s, d: all(len(c.device_uuids) == len(where[names[c.pid]][1]) for c in d.clients()))
    radius = _foretell(watched, clients["A"].pid)
    foretold = {names[client.pid] for client in radius.lost}
    spared = {names[client.pid] for client in radius.unhurt}

    await clients["A"].fault()
    (report,), _ = await watched.until(lambda s, d: fault_reports(d, s))
    logged = {names[pid] for pid in {*(k.pid for k in report.fault.affected), *report.fault.ended} if pid in names}
    refused = await _newcomer(watched, where["D"][1])
    ends = {name: await (client.ended() if name == "A" else client.stop()) for name, client in clients.items()}
    await watched.until(lambda s, d: d.servers and not d.servers[0].fault)
    afterwards = await _newcomer(watched, where["D"][1])

    lost = {name for name, end in ends.items() if end.error != 0 and name != "A"}
    _table(where, {name: client.pid for name, client in clients.items()}, foretold, ends, refused, afterwards)
    return {
        "foretold": sorted(foretold),
        "lost": sorted(lost),
        "errors": {name: end.error for name, end in ends.items()},
        "refused_while_it_lasts": refused,
        "refused_afterwards": afterwards,
        "foretold_is_what_came": foretold == lost,
        "the_log_says_the_same": logged - {"A"} == lost,
        "among_idle_ones_the_culprit_is_named": report.fault.named == (clients["A"].pid,),
        "the_spared_run_on": spared == {name for name, end in ends.items() if end.error == 0},
        "as_recorded": where is not RECORDED or lost == {"B", "C"},
        "new_clients_are_refused_until_then": bool(refused) and afterwards == 0,
    }


def _foretell(watched: Watched, pid: int) -> BlastRadius:
    """What the screen of the blast radius says of this client now."""
    snapshot = watched.collector.snapshot
    daemon = snapshot.daemons[0] if snapshot is not None and snapshot.daemons else None
    client = next((c for c in daemon.clients() if c.pid == pid), None) if daemon is not None else None
    radius = blast_of(daemon, client.key) if daemon is not None and client is not None else None
    if radius is None:
        raise RuntimeError(f"client {pid} is not in the snapshot")
    return radius


async def _newcomer(watched: Watched, devices: tuple[int, ...]) -> int:
    """The CUDA error of a client that comes now; 0 where it is served."""
    try:
        client = await watched.node.spawn("idle", devices=devices)
    except ClientRefused as refused:
        return refused.error
    await client.stop()
    return 0


def _table(
    where: dict[str, Place], pids: dict[str, int], foretold: set[str], ends: dict[str, Any], refused: int, after: int
) -> None:
    print(f"{'client':<8}{'pid':<9}{'GPUs':<7}{'foretold':<13}really")
    for name, (_, devices) in where.items():
        said = "faults" if name == "A" else "lost" if name in foretold else "runs on"
        error = ends[name].error
        came = "ran on" if error == 0 else f"lost, error {error}"
        print(f"{name:<8}{pids[name]:<9}{','.join(map(str, devices)):<7}{said:<13}{came}")
    gpus = ",".join(map(str, where["D"][1]))
    print(f"{'new':<8}{'':<9}{gpus:<7}{'refused':<13}{f'refused, error {refused}' if refused else 'served'}")
    print(f"{'later':<8}{'':<9}{gpus:<7}{'served':<13}{f'refused, error {after}' if after else 'served'}", flush=True)
