"""``exporter``: the node's metrics for Prometheus, by HTTP or as a file for node_exporter."""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import socket
import stat
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from mpstui import api
from mpstui.cli.arguments import EXPORTER_REFRESH, between, whole
from mpstui.cli.output import complain, unheard
from mpstui.config import put_file
from mpstui.core.model import Snapshot
from mpstui.core.text import UNKNOWN, error_text, path_text, printable
from mpstui.core.trust import is_anothers
from mpstui.operations.types import ExitStatus

if TYPE_CHECKING:
    from mpstui.export.metrics import Metrics

LISTEN: Final = "127.0.0.1:9936"
_BEAT: Final = 1.0
"""Seconds between two looks at when the node was last read."""
_SIZES: Final = 15.0
"""Seconds between two looks at the logs' sizes."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``exporter``."""
    where = parser.add_argument_group("where")
    where.add_argument(
        "--listen", action="append", metavar="ADDRESS", help=f"HOST:PORT; may be repeated (default {LISTEN})"
    )
    where.add_argument(
        "--textfile", metavar="FILE", help="write FILE for node_exporter's textfile collector instead, as a whole"
    )
    where.add_argument(
        "--every", type=between(1, 3600), default=15.0, metavar="S", help="seconds between writes (default 15)"
    )
    where.add_argument("--once", action="store_true", help="with --textfile: write it once and end; FILE may be -")
    where.add_argument(
        "--web-config",
        metavar="FILE",
        help="TLS and passwords: a web configuration file, as Prometheus's exporters take it",
    )
    what = parser.add_argument_group("what")
    what.add_argument("--per-process", action="store_true", help="series for each client, with labels pid and command")
    what.add_argument(
        "--max-groups", type=whole(1, 100_000), metavar="N",
        help="series for N groups of clients (user, container, job), the rest as one (default 100; 1000 per process)",
    )  # fmt: skip
    what.add_argument(
        "--host-label", choices=("Hostname", "hostname", "none"), default="Hostname",
        help="the label with the node's name, as DCGM's exporter has it (default Hostname)",
    )  # fmt: skip


def exporter(options: argparse.Namespace, pipe_dirs: Sequence[Path]) -> int:
    """Serve or write until it is told to end; the exit status."""
    if options.textfile is not None and (options.listen or options.web_config):
        return complain("--textfile writes a file: leave out --listen and --web-config", ExitStatus.USAGE)
    if options.once and options.textfile is None:
        return complain("--once needs --textfile FILE", ExitStatus.USAGE)
    if options.textfile == "-" and not options.once:
        return complain("--textfile - prints once: give --once too", ExitStatus.USAGE)
    if options.textfile not in {None, "-"} and not options.textfile.endswith(".prom"):
        name = path_text(Path(options.textfile).name)
        print(f"mpstui: node_exporter reads *.prom alone: it will not read {name}", file=sys.stderr, flush=True)
    try:
        from mpstui.export.metrics import GROUPS, PROCESSES, Metrics

        if options.web_config is not None:
            import bcrypt  # noqa: F401
            import yaml  # noqa: F401
    except ImportError as error:
        from mpstui.extras import how_to_install

        package = (error.name or UNKNOWN).partition(".")[0]
        missing = f"the exporter needs the package {package}: {how_to_install('exporter')}"
        return complain(missing, ExitStatus.USAGE)
    from mpstui.cli.screen import one_heap

    one_heap()
    metrics = Metrics(
        groups=options.max_groups or (PROCESSES if options.per_process else GROUPS),
        per_process=options.per_process,
        host_label="" if options.host_label == "none" else options.host_label,
    )
    with ExitStack() as held:
        if options.textfile is None and (status := _serve(options, metrics, held)) is not None:
            return status
        return asyncio.run(_watch(options, pipe_dirs, metrics))


def _serve(options: argparse.Namespace, metrics: Metrics, held: ExitStack) -> int | None:
    """Begins to answer; the exit status where it cannot."""
    from mpstui.export.serve import MetricsServer, listen, url
    from mpstui.export.webconfig import WebConfigError, WebRules

    path = None if options.web_config is None else Path(options.web_config).absolute()
    try:
        rules = WebRules(path)
    except WebConfigError as error:
        return complain(f"{path_text(path or Path())}: {error}", ExitStatus.USAGE)
    sockets: list[socket.socket] = []
    for address in options.listen or [LISTEN]:
        try:
            sockets.append(held.enter_context(listen(address)))
        except ValueError as error:
            return complain(str(error), ExitStatus.USAGE)
        except PermissionError:
            return complain(f"this user may not listen on {address}: take a port from 1024", ExitStatus.NOT_PERMITTED)
        except OSError as error:
            return complain(f"cannot listen on {printable(address, 80)}: {unheard(error)}", 1)
    server = MetricsServer(metrics, sockets, rules, lambda text: print(f"mpstui: {text}", file=sys.stderr, flush=True))
    server.start()
    held.callback(server.close)
    for listening in sockets:
        print(f"mpstui: metrics at {url(listening, rules.tls is not None)}", file=sys.stderr, flush=True)
    return None


async def _watch(options: argparse.Namespace, pipe_dirs: Sequence[Path], metrics: Metrics) -> int:
    """Watches the node until a signal comes; or, with --once, until it was seen."""
    ended, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            loop.add_signal_handler(number, ended.set)
    refresh = options.refresh or EXPORTER_REFRESH
    logs = getattr(options, "log_dir", None) or ()
    async with api.open(pipe_dirs, log_dirs=logs, refresh=refresh, read_only=True) as node:
        seen: list[Snapshot] = []
        if options.once:
            snapshot = await node.snapshot()
            metrics.take(snapshot, None)
            metrics.watched(snapshot.time if snapshot.nvml_detail is None else None, None, _log_bytes(snapshot))
            return _write(options.textfile, metrics)
        tasks = [
            asyncio.create_task(_follow(node, metrics, seen, options.activity)),
            asyncio.create_task(_beat(node, metrics, seen)),
            asyncio.create_task(ended.wait()),
        ]
        if options.textfile is not None:
            tasks.append(asyncio.create_task(_write_again(options, metrics, seen)))
        done, running = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        for task in done:
            task.result()  # what ended it, where it was no signal
    return ExitStatus.DONE


async def _follow(node: api.AsyncNode, metrics: Metrics, seen: list[Snapshot], activity: bool) -> None:
    since = time.time()
    async for snapshot in node.watch(activity=activity):
        metrics.take(snapshot, since)
        seen[:] = [snapshot]


async def _beat(node: api.AsyncNode, metrics: Metrics, seen: list[Snapshot]) -> None:
    """Tells of what no snapshot comes for: that all is as before, and that the logs grow."""
    sizes: Mapping[tuple[str, str], int] = {}
    looking: asyncio.Task[Mapping[tuple[str, str], int]] | None = None
    due = time.monotonic()
    while True:
        if looking is None and seen and time.monotonic() >= due:
            looking = asyncio.create_task(asyncio.to_thread(_log_bytes, seen[0]))
            due = time.monotonic() + _SIZES
        if looking is not None and looking.done():  # a disk that hangs leaves it under way, and the rest goes on
            sizes, looking = looking.result(), None
        metrics.watched(node.read_at, node.control_sessions, sizes, node.answers)
        await asyncio.sleep(_BEAT if seen else 0.1)


def _log_bytes(snapshot: Snapshot) -> Mapping[tuple[str, str], int]:
    """By pipe directory and log, of those that are files."""
    found: dict[tuple[str, str], int] = {}
    for daemon in snapshot.daemons:
        for name in daemon.log_names if daemon.log_dir is not None and daemon.pid is not None else ():
            with suppress(OSError):
                told = os.lstat(daemon.log_dir / name)  # type: ignore[operator]
                if stat.S_ISREG(told.st_mode):
                    found[path_text(daemon.pipe_dir), name] = told.st_size
    return found


async def _write_again(options: argparse.Namespace, metrics: Metrics, seen: list[Snapshot]) -> None:
    before = 0
    while True:
        if seen:
            status = await asyncio.to_thread(_write, options.textfile, metrics, quiet=before != 0)
            if before and not status:
                print("mpstui: the file can be written again", file=sys.stderr, flush=True)
            before = status
        await asyncio.sleep(options.every if seen else 0.1)


def _no_file(path: Path) -> str | None:
    """What is there instead of a file: a rename would put one in the place of /dev/null too, for the whole machine."""
    try:
        mode = os.lstat(path).st_mode
    except OSError:
        return None  # there is nothing, or writing says why not
    if stat.S_ISLNK(mode):
        return "a symbolic link"
    return None if stat.S_ISREG(mode) or stat.S_ISDIR(mode) else "no regular file"


def _mode(path: Path) -> int:
    """As the file that is there has it, where that is no other user's. A new one everybody can read, whatever the umask
    is: node_exporter is another user."""
    try:
        found = os.lstat(path)
    except OSError:
        return 0o644
    return 0o644 if is_anothers(found.st_uid, os.geteuid()) else stat.S_IMODE(found.st_mode) & 0o666


def _write(name: str, metrics: Metrics, *, quiet: bool = False) -> int:
    """The file is as before or all new, never a part; the exit status."""
    _, text = metrics.rendered("")
    if name == "-":
        sys.stdout.write(text.decode())
        return ExitStatus.DONE
    path = Path(name).absolute()
    if (other := _no_file(path)) is not None:
        refused = ExitStatus.REFUSED_BY_SAFETY_RULE
        why = f"{path_text(path)} is {other}, which is not replaced: name a file"
        return refused if quiet else complain(why, refused)
    try:
        put_file(path, text.decode(), _mode(path), sync=True)
    except OSError as error:
        status = ExitStatus.NOT_PERMITTED if isinstance(error, PermissionError) else 1
        if quiet:
            return status
        return complain(f"{path_text(path)} cannot be written: {error_text(error)}; it is as it was before", status)
    return ExitStatus.DONE
