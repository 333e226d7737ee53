"""What every command says the same way: one line on stderr, text or JSON on stdout, a daemon's state in words."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from mpstui.core.model import Daemon
from mpstui.core.text import path_text, printable

if TYPE_CHECKING:
    from rich.console import Console

NO_DAEMON = "no MPS control daemon found: none is running, and none was named"
complaints: list[str] = []
"""What was said on stderr."""


def output(width: int = 10_000) -> Console:
    """Standard output for text and tables; ``width`` where it is no terminal, so that nothing is cut in a file."""
    from rich.console import Console

    class Output(Console):
        def on_broken_pipe(self) -> None:
            """As with print(); Rich ends the program with status 1."""
            raise

    return Output(highlight=False, markup=False, width=None if sys.stdout.isatty() else width)


def meant(daemons: Sequence[Daemon], named: Sequence[Path]) -> list[Daemon]:
    """Those that a command can be for which names these directories, or none. Raises NotNamedError."""
    from mpstui.core import trust

    return (
        list(daemons)
        if named
        else trust.meant(daemons, lambda one: one.health not in {"absent", "stale"}, os.geteuid())
    )


def state_text(daemon: Daemon) -> str:
    """Where, how and why, the place once only: ``/tmp/x: stale: no daemon runs here``."""
    detail = daemon.health_detail or ""
    where = "" if detail.startswith(path_text(daemon.pipe_dir)) else f"{path_text(daemon.pipe_dir)}: "
    return f"{where}{daemon.state_word}: {detail}"


def print_json(**fields: object) -> None:
    """One object on stdout, with the number of its schema."""
    print(json.dumps({"schema": 1, **fields}, ensure_ascii=False))


def complain(text: str, status: int) -> int:
    """One line on stderr; hands the exit status through."""
    complaints.append(printable(text, 2000))
    print(f"mpstui: {printable(text, 2000)}", file=sys.stderr)
    return status
