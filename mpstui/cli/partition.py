"""``mpstui partition list``: the devices in chunks, their static partitions, and who is in which."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NamedTuple

from mpstui import api
from mpstui.cli.output import complain, meant, no_answer, only_one, output, print_json
from mpstui.cli.status import print_table
from mpstui.core.model import Daemon, PartitionTable, SmPartition, Snapshot, Source
from mpstui.core.text import UNKNOWN, are, path_text, path_word, plural
from mpstui.fields import (
    CHUNKS,
    INTEGER,
    OBJECT,
    OBJECTS,
    PARTITION,
    PARTITIONS,
    PATH,
    SCHEMA,
    TEXT,
    TEXTS,
    Field,
    Text,
    Thing,
    Type,
    View,
    enum,
    table,
)
from mpstui.operations.partitions import AddPartition, RemovePartition, device_of, export_lines, not_static, table_of
from mpstui.operations.types import ExitStatus, Request, Unable
from mpstui.plan import amounts
from mpstui.plan.amounts import PlanError
from mpstui.plan.static import ABOUT, StaticPlan, StaticShare, divide


class ListedDaemon(NamedTuple):
    """One daemon as it is printed."""

    snapshot: Snapshot
    daemon: Daemon


LISTED: Final[Thing[Any]] = Thing(
    "partition_list",
    "The static SM partitions of a daemon.",
    (
        Field("schema", "schema", Type({"const": SCHEMA}), lambda x, v: SCHEMA),
        Field("source", "source", enum(Source), lambda x, v: x.snapshot.source),
        Field("pipe_dir", "pipe directory", PATH, lambda x, v: x.daemon.pipe_dir),
        Field("sm_partitions", "SM partitions", OBJECT, lambda x, v: x.daemon.partitions, of=PARTITIONS),
    ),
)


def print_partitions(options: argparse.Namespace, pipe_dirs: Sequence[Path]) -> int:
    """Returns the exit status. Raises Unable."""
    with api.open(pipe_dirs, log_dirs=getattr(options, "log_dir", None) or ()) as node:
        snapshot = node.snapshot(request=Request(AddPartition.id, Path()))
        daemon = _daemon(snapshot, node.named)
        found = table_of(daemon)
    view = View.of(snapshot, daemon)
    if options.json:
        print_json(LISTED, ListedDaemon(snapshot, daemon), view)
        return ExitStatus.DONE
    console = output()
    if snapshot.source == "simulated":
        print("SIMULATED: as documented; static partitions were not recorded on a real daemon")
    print_table(console, table(CHUNKS, found.devices, view))
    print_table(console, table(PARTITION, found.partitions, view))
    for line in found.not_understood:
        print(f"not understood: {line}")
    return ExitStatus.DONE


def _commands(made: StaticPlan) -> list[str]:
    return [f"mpstui partition add --device {made.device} --chunks {share.chunks}" for share in made.shares]


STATIC_SHARE: Final[Thing[StaticShare]] = Thing(
    "static_client",
    "What one client is to get.",
    (
        Field("name", "name", TEXT, lambda s, v: s.name, row=Text(10, "NAME")),
        Field("chunks", "chunks", INTEGER, lambda s, v: s.chunks, row=Text(20, "CHUNKS")),
        Field(
            "sm_partition", "partition", TEXT, lambda s, v: s.partition, null=True,
            about="With --apply: the one that was made. null: none was.",
        ),
        Field(
            "sm_count_about", "about SMs", INTEGER, lambda s, v: s.sms_about, null=True,
            about="An estimate, from the SMs of a chunk in the partitions of now; only the daemon can confirm it.",
            row=Text(30, "ABOUT SMS", lambda s, v: UNKNOWN if s.sms_about is None else f"≈{s.sms_about}"),
        ),
    ),
)  # fmt: skip

STATIC_PLAN: Final[Thing[StaticPlan]] = Thing(
    "static_plan",
    "The free chunks of a device divided among clients.",
    (
        Field("schema", "schema", Type({"const": SCHEMA}), lambda p, v: SCHEMA),
        Field("device_uuid", "device", TEXT, lambda p, v: p.device),
        Field("chunks_total", "chunks", INTEGER, lambda p, v: p.total),
        Field("chunks_free", "free chunks", INTEGER, lambda p, v: p.free, about="Before the plan."),
        Field("clients", "clients", OBJECTS, lambda p, v: p.shares, of=STATIC_SHARE),
        Field("chunks_left", "left chunks", INTEGER, lambda p, v: p.left),
        Field("commands", "commands", TEXTS, lambda p, v: _commands(p), about="What makes the partitions."),
    ),
)


def plan_static(options: argparse.Namespace, pipe_dirs: Sequence[Path]) -> int:
    """``plan --static``; returns the exit status. Raises Unable."""
    others = ("strategy", "export", "share", "save", "sm_count_total", "memory_total", "measure", "program")
    if options.from_activity is not None:
        raise PlanError("--static goes with no --from-activity")
    if wrong := next((name for name in others if getattr(options, name, None)), None):
        option = f"--{wrong.replace('_', '-')}"
        raise PlanError(f"--static goes with --clients, --weights, --sm-count, --names and --device, not with {option}")
    with api.open(pipe_dirs) as node:
        snapshot = node.snapshot(request=Request(AddPartition.id, Path()))
        daemon = _daemon(snapshot, node.named)
        found = table_of(daemon)
        made = _divided(options, found, daemon)
        if options.apply and not options.dry_run:
            return _apply_static(options, made, node, snapshot, daemon)
    view = View.of(snapshot, daemon)
    if options.json:
        print_json(STATIC_PLAN, made, view)
        return ExitStatus.DONE
    _print_static(made, snapshot, view)
    for line in _commands(made):
        print(line)
    return ExitStatus.DONE


def _divided(options: argparse.Namespace, found: PartitionTable, daemon: Daemon) -> StaticPlan:
    """The free chunks as the options say. Raises Unable."""
    if options.device is None and len(found.devices) != 1:
        known = ", ".join(device.device for device in found.devices) or "none"
        raise PlanError(f"say which device with --device; the daemon has: {known}")
    device = device_of(found, daemon, options.device or found.devices[0].device).device
    return divide(
        found,
        device,
        clients=None if options.clients is None else amounts.count(options.clients, "--clients"),
        weights=() if options.weights is None else amounts.weights(options.weights, "--weights"),
        sm_counts=() if options.sm_count is None else amounts.counts(options.sm_count, "--sm-count"),
        names=tuple(name.strip() for name in options.names.split(",")) if options.names else (),
    )


def _print_static(made: StaticPlan, snapshot: Snapshot, view: View) -> None:
    simulated = "SIMULATED " if snapshot.source == "simulated" else ""
    print(f"{simulated}{made.device}: {made.free} of {plural(made.total, 'chunk')} {are(made.free)} free")
    print_table(output(), table(STATIC_SHARE, made.shares, view))
    print(f"  left: {plural(made.left, 'chunk')}")
    if any(share.sms_about is None for share in made.shares):
        print(f"  ! {ABOUT}")


def _apply_static(
    options: argparse.Namespace, made: StaticPlan, node: api.Node, snapshot: Snapshot, daemon: Daemon
) -> int:
    """Makes the partitions, one after the other, once it was agreed to. Where one fails, those before it are taken back
    with ``--go-back``, and named otherwise."""
    if not options.json:
        _print_static(made, snapshot, View.of(snapshot, daemon))
    print("hits nobody: only free chunks are given, and clients in a partition keep it", file=sys.stderr)
    if not options.yes:
        if not sys.stdin.isatty():
            return complain("to make them add --yes, or answer at a terminal", ExitStatus.REFUSED_BY_SAFETY_RULE)
        print(f"make {plural(len(made.shares), 'partition')}? [y/N] ", end="", file=sys.stderr, flush=True)
        if sys.stdin.readline().strip().lower() not in {"y", "yes"}:
            return complain("nothing was sent", ExitStatus.REFUSED_BY_SAFETY_RULE)
    done: list[StaticShare] = []
    status = ExitStatus.DONE
    for share in made.shares:
        asked = Request(AddPartition.id, daemon.pipe_dir, f"{share.chunks} chunks", device=made.device)
        result = node.do(asked)
        if not result.done or not isinstance(result.outcome, SmPartition):
            status = result.status if not result.done else ExitStatus.REFUSED_BY_DAEMON
            complain(f"{share.name}: {result.message}", status)
            break
        done.append(replace(share, partition=result.outcome.name))
        if not options.json:
            print(f"# {share.name}: {result.message}")
            print("\n".join(export_lines(daemon, result.outcome.name)))
    if status is not ExitStatus.DONE:
        done = _taken_back(options, node, daemon, done)
    if options.json:
        shares = (*done, *(replace(share, partition=None) for share in made.shares[len(done) :]))
        print_json(STATIC_PLAN, replace(made, shares=shares), View.of(snapshot, daemon))
    return status


def _taken_back(
    options: argparse.Namespace, node: api.Node, daemon: Daemon, done: list[StaticShare]
) -> list[StaticShare]:
    """After a failure; what is left there."""
    left = []
    for share in done:
        name = share.partition or ""
        if options.go_back and node.do(Request(RemovePartition.id, daemon.pipe_dir, name)).done:
            complain(f"{share.name}: partition {name} is removed again", ExitStatus.DONE)
            continue
        left.append(share)
        again = f"mpstui partition rm {shlex.quote(name)} --pipe-dir {path_word(daemon.pipe_dir)}"
        complain(f"{share.name}: partition {name} is there; {again}", ExitStatus.DONE)
    return left


def _daemon(snapshot: Snapshot, named: Sequence[Path]) -> Daemon:
    """The one that was named, or the only one with static partitions. Raises Unable."""
    there = meant(snapshot.daemons, named)
    daemon = only_one([daemon for daemon in there if daemon.static_partitioning] or there)
    if not daemon.answers:
        raise no_answer(daemon)
    if not daemon.static_partitioning:
        raise Unable(f"{path_text(daemon.pipe_dir)}: {not_static(daemon)}", ExitStatus.REFUSED_BY_SAFETY_RULE)
    return daemon
