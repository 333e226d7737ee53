"""What every command says the same way: one line on stderr, text or JSON on stdout, a daemon's state in words."""

from __future__ import annotations

import errno
import json
import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mpstui.core.model import Daemon
from mpstui.core.requests import ExitStatus, Unable
from mpstui.core.text import error_text, path_text, printable

if TYPE_CHECKING:
    from rich.console import Console

    from mpstui.fields import Thing, View
    from mpstui.operations.types import Result

SIMULATED = "SIMULATED — no GPU, no real daemon"
"""Before all that tells of a simulated node."""
NO_DAEMON = "no MPS control daemon found: none is running, and none was named"
NONE_OF_YOURS = "no daemon of root's, or of your own, runs here; to ask another user's, name it with --pipe-dir"
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


def meant(daemons: Sequence[Daemon], named: Sequence[Path], *, as_process: bool = False) -> list[Daemon]:
    """Those that a command can be for which names these directories, or none: not one that is closed to who asks, where
    there is another. Raises Unable where there are others' alone. ``as_process``: as of ``trust.meant``."""
    from mpstui.core import trust

    if named:
        return list(daemons)
    try:
        found = trust.meant(daemons, lambda one: one.runs, os.geteuid(), as_process=as_process)
        return [daemon for daemon in found if not daemon.closed] or found
    except trust.NotNamedError as error:
        raise Unable(str(error), ExitStatus.REFUSED_BY_SAFETY_RULE) from None


def only_one(daemons: Sequence[Daemon]) -> Daemon:
    """The daemon that a command is for, of those that are meant. Raises Unable."""
    if not daemons:
        raise Unable(NO_DAEMON, ExitStatus.NO_DAEMON)
    if len(daemons) > 1:
        names = ", ".join(path_text(daemon.pipe_dir) for daemon in daemons)
        raise Unable(f"there are several daemons; choose one with --pipe-dir: {names}")
    return daemons[0]


def state_text(daemon: Daemon) -> str:
    """Where, how and why, the place once only: ``/tmp/x: stale: no daemon runs here``."""
    detail = daemon.health_detail or ""
    where = "" if detail.startswith(path_text(daemon.pipe_dir)) else f"{path_text(daemon.pipe_dir)}: "
    return f"{where}{daemon.state_word}: {detail}"


def no_daemon_status(daemons: Iterable[Daemon]) -> ExitStatus:
    """How a command ends that finds none of them running: who may not look does not know that there is none."""
    return ExitStatus.NOT_PERMITTED if any(daemon.closed for daemon in daemons) else ExitStatus.NO_DAEMON


def no_answer(daemon: Daemon) -> Unable:
    """Why nothing is asked of a daemon that does not answer."""
    return Unable(state_text(daemon), ExitStatus.NO_ANSWER if daemon.runs else no_daemon_status([daemon]))


def unheard(error: OSError) -> str:
    """Why an address cannot be listened on, and what to type."""
    taken = "; a program has that port: give another with --listen HOST:PORT" if error.errno == errno.EADDRINUSE else ""
    return error_text(error) + taken


def print_json(thing: Thing[Any], value: object, view: View | None = None) -> None:
    """One object on one line of stdout, as its schema says."""
    from mpstui.fields import View, as_json

    print(json.dumps(as_json(thing, value, view or View()), ensure_ascii=False))


def tell(text: str) -> None:
    """A line on stderr, for whoever watches."""
    print(text, file=sys.stderr)


def agreed(question: str) -> bool:
    """Asks on the terminal, with no as the default."""
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in {"y", "yes"}


def print_result(result: Result) -> None:
    """What came of an operation: on stdout where it is done, otherwise on stderr."""
    stream = sys.stdout if result.done else sys.stderr
    print(f"{'SIMULATED: ' if result.simulated else ''}{result.message}", file=stream)
    for line in result.details:
        print(f"  {line}", file=stream)
    if result.remedy:
        print(f"  → {result.remedy}", file=stream)


def complain(text: str, status: int, remedy: str = "") -> int:
    """What is the matter, and what to do, on stderr; hands the exit status through."""
    complaints.append(printable(text, 2000))
    print(f"mpstui: {printable(text, 2000)}", file=sys.stderr)
    if remedy:
        print(f"  → {printable(remedy, 2000)}", file=sys.stderr)
    return status


def mistake(error: Exception) -> int:
    """How the program ends by a mistake of its own: in two lines, with the traceback in the user's state folder."""
    if isinstance(error, ModuleNotFoundError):
        return complain(f"{error}: the installation is not whole", ExitStatus.MISTAKE, "Install mpstui again.")
    from traceback import extract_tb, format_exception

    *_, place = extract_tb(error.__traceback__)
    where = f"{'/'.join(Path(place.filename).parts[-2:])}, line {place.lineno}"
    story = "".join(format_exception(error))
    return complain(
        f"a mistake of mpstui's own: {type(error).__name__}: {error_text(error)} ({where})",
        ExitStatus.MISTAKE,
        f"If something was to be changed, look whether it is. {_kept(story)}",
    )


def _kept(traceback: str) -> str:
    """Where it is to be found, for a report; what it says of the node is for this user alone. Whatever a stranger has
    put into it does nothing to the terminal that it is read in."""
    from mpstui.config import keep, state_folder

    file = state_folder() / "mistake.txt"
    try:
        keep(file, "".join(f"{printable(line, 10 * len(line))}\n" for line in traceback.splitlines()))
    except OSError as error:
        return f"Please report it; the Traceback could not be kept: {error_text(error)}."
    return f"Please report it; the Traceback is in {path_text(file)}."
