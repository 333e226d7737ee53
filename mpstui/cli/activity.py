"""``activity``: who launches kernels, in one look at all clients at once."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Sequence
from pathlib import Path

from mpstui import api
from mpstui.cli.output import SIMULATED, complain, output
from mpstui.core.activity import CAVEAT
from mpstui.fields import LAUNCHER, View, table
from mpstui.operations.types import ExitStatus


def print_activity(options: argparse.Namespace, pipe_dirs: Sequence[Path]) -> int:
    """One look; returns the exit status. Raises Unable."""
    with api.open(pipe_dirs, log_dirs=getattr(options, "log_dir", None) or ()) as node:
        look = node.activity(options.seconds)
    if options.json:
        print(json.dumps(api.to_json(look), ensure_ascii=False))
    elif look.daemons or look.launchers:
        _print_text(look)
    if not look.daemons:
        return complain(look.sentence, ExitStatus.NOT_PERMITTED if look.closed else ExitStatus.NO_DAEMON)
    if look.launchers and not look.counted:
        status = ExitStatus.REFUSED_BY_DAEMON if os.geteuid() == 0 else ExitStatus.NOT_PERMITTED
        return complain(look.sentence, status)
    return ExitStatus.DONE


def _print_text(look: api.ActivityLook) -> None:
    from rich.text import Text

    from mpstui.cli.status import print_table

    console = output()
    if look.source == "simulated":
        console.print(Text(SIMULATED, style="bold reverse"))
    if look.launchers:
        print_table(console, table(LAUNCHER, look.launchers, View()))
    console.print(Text(look.sentence))
    for why in dict.fromkeys(each.why for each in look.launchers if each.why):
        pids = ", ".join(str(each.pid) for each in look.launchers if each.why == why)
        console.print(Text(f"not counted: {pids}: {why}"))
    console.print(Text(CAVEAT, style="dim"))
