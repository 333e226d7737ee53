"""``mpstui server export``: what a daemon of MPS protocol 3 has, as a file that another one applies."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from mpstui import api
from mpstui.cli.output import NO_DAEMON, complain, meant, state_text
from mpstui.core.text import path_text
from mpstui.core.trust import NotNamedError
from mpstui.operations.check import Refused
from mpstui.operations.types import ExitStatus
from mpstui.operations.v3 import node_of
from mpstui.plan.applyfile import apply_file


def export(options: argparse.Namespace, pipe_dirs: Sequence[Path]) -> int:
    """Returns the exit status."""
    try:
        with api.open(pipe_dirs) as node:
            snapshot = node.snapshot()
            there = meant(snapshot.daemons, node.named)
        found = [daemon for daemon in there if daemon.named_servers] or there
        if not found:
            return complain(NO_DAEMON, ExitStatus.NO_DAEMON)
        if len(found) > 1:
            names = ", ".join(path_text(daemon.pipe_dir) for daemon in found)
            return complain(f"there are several daemons; choose one with --pipe-dir: {names}", ExitStatus.USAGE)
        if found[0].unspoken is not None:
            return complain(found[0].unspoken, ExitStatus.REFUSED_BY_SAFETY_RULE)
        if not found[0].answers:
            return complain(state_text(found[0]), ExitStatus.NO_ANSWER if found[0].runs else ExitStatus.NO_DAEMON)
        print(apply_file(node_of(found[0])), end="")
        print("the names of the keys marked “a guess” were tried on no daemon", file=sys.stderr)
    except NotNamedError as error:
        return complain(str(error), ExitStatus.REFUSED_BY_SAFETY_RULE)
    except Refused as error:
        return complain(str(error), error.status)
    except api.UnusableNode as error:
        return complain(str(error), ExitStatus.USAGE)
    return ExitStatus.DONE
