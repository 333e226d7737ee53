"""``mpstui server export``: what a daemon of MPS protocol 3 has, as a file that another one applies."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from mpstui import api
from mpstui.cli.output import meant, no_answer, only_one
from mpstui.operations.types import ExitStatus, Unable
from mpstui.operations.v3 import node_of
from mpstui.plan.applyfile import apply_file


def export(options: argparse.Namespace, pipe_dirs: Sequence[Path]) -> int:
    """Returns the exit status. Raises Unable."""
    with api.open(pipe_dirs) as node:
        there = meant(node.snapshot().daemons, node.named)
    daemon = only_one([daemon for daemon in there if daemon.named_servers] or there)
    if daemon.unspoken is not None:
        raise Unable(daemon.unspoken, ExitStatus.REFUSED_BY_SAFETY_RULE)
    if not daemon.answers:
        raise no_answer(daemon)
    print(apply_file(node_of(daemon)), end="")
    print("the names of the keys marked “a guess” were tried on no daemon", file=sys.stderr)
    return ExitStatus.DONE
