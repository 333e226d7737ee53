"""The command line: parses, runs, prints; stdout is data, stderr is diagnostics."""

from __future__ import annotations

import argparse
import asyncio
import errno
import io
import os
import signal
import sys
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from mpstui.cli import planning
from mpstui.cli.output import complain, complaints
from mpstui.cli.parser import LOOKS, build_parser, parse
from mpstui.cli.past import NODES, wants_past
from mpstui.core.requests import Unable
from mpstui.core.text import unprintable

if TYPE_CHECKING:
    from mpstui.operations.operation import Operation

_DIRECTORIES = ("CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY", "MPSTUI_AUDIT_LOG", "MPSTUI_CONTROL_BINARY")
"""Variables that name a place as an option does."""
_NOT_WRITTEN = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF})


_READER_GONE = 128 + signal.SIGPIPE
"""As a shell shows a program that ended by SIGPIPE (`mpstui status | head -1`): no refusal, and nothing to be said."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run mpstui; returns the exit status. No traceback reaches the user for anything that can be foreseen."""
    _open_closed_streams()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a terminal or a pipe that knows ASCII only gets the rest as escapes
            stream.reconfigure(errors="backslashreplace")
    if sys.stderr is sys.__stderr__ and isinstance(sys.stderr, io.TextIOWrapper):
        sys.stderr = _Diagnostics(sys.stderr.buffer, sys.stderr.encoding, "backslashreplace", line_buffering=True)
    try:
        try:
            return _audited(sys.argv[1:] if arguments is None else arguments)
        finally:
            sys.stdout.flush()
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        _drop_output()
        return _READER_GONE
    except OSError as error:
        if error.errno not in _NOT_WRITTEN:
            raise
        _drop_output()
        complain(f"the output could not be written: {error.strerror}", 1)
        remedy = "Free some space, then ask again. Exit status 1 says only that; what was changed is in the audit log."
        print(f"  → {remedy}", file=sys.stderr)
        return 1


class _Diagnostics(io.TextIOWrapper):
    """stderr. What cannot be written there has no other place, and must not end what is being done."""

    def write(self, text: str, /) -> int:
        with suppress(OSError):
            return super().write(text)
        return len(text)

    def flush(self) -> None:
        with suppress(OSError):
            super().flush()


def _open_closed_streams() -> None:
    """A standard stream that the caller has closed (``>&-``) is as good as /dev/null; left closed, the next file to be
    opened, the audit log say, would get its number and the output of every child."""
    while (fd := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(fd, True)
    os.close(fd)
    if sys.stdin is None:
        sys.stdin = open(0, closefd=False)  # noqa: SIM115
    if sys.stdout is None:
        sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115


def _drop_output() -> None:
    """What is left in the buffer must not be tried again at the end."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _audited(arguments: Sequence[str]) -> int:
    """Runs it. A change that was asked for and refused before the action layer heard of it, as by a mistake in the
    command line, leaves an audit line too."""
    if not _asks_for_change(arguments):
        return _run(arguments)
    from mpstui import api

    complaints.clear()
    before, status = api.audit_lines(), 130
    try:
        status = _run(arguments)
    except SystemExit as error:
        status = error.code if isinstance(error.code, int) else 1
        raise
    finally:
        if status != 0 and api.audit_lines() == before:
            trouble = api.audit(
                action="command line",
                arguments=[argument[:200] for argument in arguments[:50]],
                euid=os.geteuid(),
                command="",
                sent=False,
                status=status,
                result=complaints[-1] if complaints else "not understood" if status == 2 else "given up",
            )
            if trouble is not None:
                complain(trouble, status)
    return status


def _asks_for_change(arguments: Sequence[str]) -> bool:
    """As :func:`_changes`, also of a command line that cannot be parsed."""
    if not arguments or arguments[0] in LOOKS:
        return False
    from mpstui.cli.verbs import names_one

    words = set(arguments)
    return bool(names_one(words) or ("plan" in words and any(word.startswith("--a") for word in words)))


def _run(arguments: Sequence[str]) -> int:
    try:
        return _command(parse(arguments))
    except Unable as why:
        return complain(str(why), why.status, why.remedy)


def _command(options: argparse.Namespace) -> int:
    for name in _DIRECTORIES:
        if (problem := unprintable(os.environ.get(name, ""))) is not None:
            return complain(f"{name}: {problem}", 2)
    if options.command == "replay":
        from mpstui.cli.screen import run_screen

        return run_screen(options, ())
    if options.command in _WITHOUT_NODE:
        return _without_node(options)
    if not options.read_only and _changes(options):
        options.read_only = _read_only_by_config()
    if options.command == "tour":
        return _tour(options)
    if options.command in planning.COMMANDS:
        return planning.dispatch(options, _node)
    with _node(options) as pipe_dirs:
        return _on_node(options, pipe_dirs)


def _on_node(options: argparse.Namespace, pipe_dirs: tuple[Path, ...]) -> int:
    """What looks at a node, or changes it."""
    if options.command in _FOLLOWING or getattr(options, "watch", False):
        return _following(options, pipe_dirs)
    if getattr(options, "health", False):
        return _health(options, pipe_dirs)
    if options.command is None:
        from mpstui.cli.screen import run_screen

        return run_screen(options, pipe_dirs)
    if wants_past(options):
        from mpstui.cli.status import print_past

        return print_past(options, pipe_dirs)
    if options.command == "status":
        from mpstui.cli.status import print_status

        return print_status(options, pipe_dirs)
    if options.command in {"load", "experiment"}:
        return asyncio.run(_load(options, pipe_dirs))
    if (operation := _chosen(options)) is not None:
        from mpstui.cli.change import change

        return change(operation, options, pipe_dirs)
    return _LOOKS.get(options.command, _doctor)(options, pipe_dirs)


def _tour(options: argparse.Namespace) -> int:
    """The screen with a guide; without a name, which tours there are. A file is checked before a node is started."""
    from mpstui.ui.tours import TourError, read, shipped

    try:
        if options.name is None:
            for name in shipped():
                print(f"{name:14}{read(name).title}")
            return 0
        tour = read(options.name, _binding_ids)
        if tour.demo is not None and tour.demo not in NODES:
            raise TourError(f"there is no simulated node {tour.demo}; there are: {', '.join(NODES)}")
    except TourError as error:
        return complain(str(error), 2)
    if getattr(options, "demo", None) == "demo" and tour.demo is not None:
        options.demo = tour.demo
    with _node(options) as pipe_dirs:
        from mpstui.cli.screen import run_screen

        return run_screen(options, pipe_dirs, tour)


def _binding_ids() -> Collection[str]:
    from mpstui.ui.keymap import places

    return {name for bindings in places().values() for name in bindings}


def _partitions(options: argparse.Namespace, pipe_dirs: Sequence[Path]) -> int:
    from mpstui.cli.partition import print_partitions

    return print_partitions(options, pipe_dirs)


def _export(options: argparse.Namespace, pipe_dirs: Sequence[Path]) -> int:
    from mpstui.cli.v3 import export

    return export(options, pipe_dirs)


def _doctor(options: argparse.Namespace, pipe_dirs: Sequence[Path]) -> int:
    from mpstui.cli.doctor import doctor

    return doctor(options, pipe_dirs)


def _why(options: argparse.Namespace, pipe_dirs: Sequence[Path]) -> int:
    from mpstui.cli.why import why

    return why(options, pipe_dirs)


def _health(options: argparse.Namespace, pipe_dirs: Sequence[Path]) -> int:
    """``status --health`` where the short way of ``__main__`` did not take it."""
    from mpstui.api import health

    if options.json or options.fields or options.group_by or wants_past(options):
        return complain(
            "--health prints nothing and looks at the present only: leave out --json, --fields, --group-by and times", 2
        )
    found = health(pipe_dirs, getattr(options, "log_dir", None) or ())
    return complain(f"{found.reason} (exit status {found.status})", found.status) if found.status else 0


_WITHOUT_NODE = frozenset({"schema", "config", "explain", "fleet", "sim"})


def _without_node(options: argparse.Namespace) -> int:
    """What looks at no node."""
    if options.command == "schema":
        from mpstui.cli.schema import schema

        return schema(options)
    if options.command == "config":
        from mpstui.cli.config import config

        return config(options)
    if options.command == "explain":
        from mpstui.cli.why import explain

        return explain(options)
    if options.command == "fleet":
        from mpstui.cli.fleet import fleet

        return fleet(options)
    from mpstui.sim.serving import serve

    mode = "v3" if options.protocol == "3" else "static" if options.static else "demo"
    return serve(options.directory, options.scenario or mode, options.driver)


_FOLLOWING = frozenset({"events", "suspects", "activity", "exporter", "web"})


def _following(options: argparse.Namespace, pipe_dirs: tuple[Path, ...]) -> int:
    """What reads or follows the node and changes nothing."""
    if options.command == "exporter":
        from mpstui.cli.exporter import exporter

        return exporter(options, pipe_dirs)
    if options.command == "web":
        from mpstui.cli.web import web

        return web(options, pipe_dirs)
    if options.command == "status":
        from mpstui.cli.watch import watch_status

        return watch_status(options, pipe_dirs)
    if options.command == "activity":
        from mpstui.cli.activity import print_activity

        return print_activity(options, pipe_dirs)
    from mpstui.cli import events

    return (events.print_events if options.command == "events" else events.print_suspects)(options, pipe_dirs)


def _changes(options: argparse.Namespace) -> bool:
    """Whether the command changes something on a daemon."""
    return _chosen(options) is not None or getattr(options, "apply", False)


def _chosen(options: argparse.Namespace) -> Operation | None:
    """The operation that is asked for: only then the table of them is imported."""
    if getattr(options, "verb", None) is None:
        return None
    from mpstui.cli.verbs import chosen

    return chosen(options)


def _read_only_by_config() -> bool:
    """As the screen takes it: a configuration that cannot be understood may have said so."""
    from mpstui.config import load_config

    config, messages = load_config()
    if config.read_only:
        told = "the policy of {} says read_only" if config.policy.read_only else "{} says read_only"
        for message in messages or (told.format(config.origins["read_only"]),):
            complain(message, 0)
    return config.read_only


@contextmanager
def _node(options: argparse.Namespace) -> Iterator[tuple[Path, ...]]:
    """The pipe directories asked for; with ``--demo`` those of a simulated node that lives as long as this block."""
    asked = tuple(Path(d).absolute() for d in getattr(options, "pipe_dir", None) or ())
    if not getattr(options, "demo", False):
        yield asked
        return
    if asked:
        build_parser().error("--demo has its own pipe directory; leave out --pipe-dir")
    from mpstui import api

    with ExitStack() as held:
        try:
            folder = held.enter_context(api.demo_node(options.demo))
        except api.UnusableNode as error:
            build_parser().error(str(error))
        yield (folder,)


async def _load(options: argparse.Namespace, pipe_dirs: tuple[Path, ...]) -> int:
    """``load`` and ``experiment``: CUDA clients of our own. SIGTERM and SIGHUP end them as Ctrl-C does."""
    from mpstui import api

    if options.command == "load":
        from mpstui.cli.load import run
    else:
        from mpstui.cli.experiment import run
    ended_by: list[int] = []
    task = asyncio.current_task()

    def end(number: int) -> None:
        if not ended_by and task is not None:
            ended_by.append(number)
            task.cancel()

    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # nohup
            asyncio.get_running_loop().add_signal_handler(number, end, number)
    try:
        async with api.open(pipe_dirs, read_only=getattr(options, "read_only", False)) as node:
            return await run(options, node)
    except asyncio.CancelledError:
        if not ended_by:
            raise
        return 128 + ended_by[0]


def _record(options: argparse.Namespace, pipe_dirs: Sequence[Path]) -> int:
    from mpstui.cli.record import record

    return record(options, tuple(pipe_dirs))


_LOOKS = {"record": _record, "partition": _partitions, "server": _export, "why": _why}
"""Commands that look at the node, beside ``doctor``."""
