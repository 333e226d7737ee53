"""``mpstui partition list``: the devices in chunks, their static partitions, and who is in which."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from mpstui import api
from mpstui.cli.say import NO_DAEMON, complain, meant, output, state_text
from mpstui.cli.status import print_table
from mpstui.core.model import Daemon, Snapshot, Source
from mpstui.core.text import path_text
from mpstui.core.trust import NotNamedError
from mpstui.fields import (
    CHUNKS,
    OBJECT,
    PARTITION,
    PARTITIONS,
    PATH,
    SCHEMA,
    Field,
    Thing,
    Type,
    View,
    as_json,
    enum,
    table,
)
from mpstui.operations.check import Refused
from mpstui.operations.partitions import AddPartition, not_static, table_of
from mpstui.operations.types import ExitStatus, Request


class Listed(NamedTuple):
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
    """Returns the exit status."""
    log_dirs = getattr(options, "log_dir", None) or ()
    try:
        with api.open(pipe_dirs, log_dirs=log_dirs) as node:
            snapshot = node.snapshot(request=Request(AddPartition.id, Path()))
            daemon = _daemon(snapshot, node.named)
            found = table_of(daemon)
    except Refused as error:
        return complain(str(error), error.status)
    except api.UnusableNode as error:
        return complain(str(error), ExitStatus.USAGE)
    view = View.of(snapshot, daemon)
    if options.json:
        print(json.dumps(as_json(LISTED, Listed(snapshot, daemon), view), ensure_ascii=False))
        return ExitStatus.DONE
    console = output()
    if snapshot.source == "simulated":
        print("SIMULATED: as documented; static partitions were not recorded on a real daemon")
    print_table(console, table(CHUNKS, found.devices, view))
    print_table(console, table(PARTITION, found.partitions, view))
    for line in found.not_understood:
        print(f"not understood: {line}")
    return ExitStatus.DONE


def _daemon(snapshot: Snapshot, named: Sequence[Path]) -> Daemon:
    """The one that was named, or the only one with static partitions. Raises Refused."""
    if not snapshot.daemons:
        raise Refused(NO_DAEMON, ExitStatus.NO_DAEMON)
    try:
        there = meant(snapshot.daemons, named)
    except NotNamedError as error:
        raise Refused(str(error), ExitStatus.REFUSED_BY_SAFETY_RULE) from None
    static = [daemon for daemon in there if daemon.static_partitioning] or there
    if len(static) > 1:
        names = ", ".join(path_text(daemon.pipe_dir) for daemon in static)
        raise Refused(f"there are several daemons; choose one with --pipe-dir: {names}", ExitStatus.USAGE)
    daemon = static[0]
    if daemon.health != "ok" or daemon.unread:
        status = ExitStatus.NO_DAEMON if daemon.health in {"absent", "stale"} else ExitStatus.NO_ANSWER
        raise Refused(state_text(daemon), status)
    if not daemon.static_partitioning:
        raise Refused(f"{path_text(daemon.pipe_dir)}: {not_static(daemon)}", ExitStatus.REFUSED_BY_SAFETY_RULE)
    return daemon
