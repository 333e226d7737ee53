"""``record``: writes down all that is seen of a node."""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from mpstui import api
from mpstui.cli.output import complain
from mpstui.config import load_config
from mpstui.core.text import path_text, path_word
from mpstui.operations.types import ExitStatus

_LOOK = 1.0
"""Seconds between two looks whether it is still written."""
_UNITS = (("d", 86400), ("h", 3600), ("m", 60), ("s", 1))


def record(options: argparse.Namespace, pipe_dirs: Sequence[Path]) -> int:
    """Until it is interrupted, or its time is over; the exit status. Raises Unable."""
    config, _ = load_config()
    refresh = options.refresh or config.refresh
    log_dirs = tuple(getattr(options, "log_dir", None) or ())
    return asyncio.run(_record(options, tuple(pipe_dirs), log_dirs, refresh))


async def _record(
    options: argparse.Namespace, pipe_dirs: tuple[Path, ...], log_dirs: tuple[Path, ...], refresh: float | None
) -> int:
    async with api.open(pipe_dirs, log_dirs=log_dirs, refresh=refresh, read_only=True) as node:
        over = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is not signal.SIG_IGN:  # nohup
                asyncio.get_running_loop().add_signal_handler(number, over.set)
        async with node.record(options.file, options.max_size, options.max_age, masked=options.mask) as recording:
            where = path_text(options.file)
            end_of_it = "until Ctrl-C" if options.seconds is None else f"for {_span(options.seconds)}, or until Ctrl-C"
            print(
                f"recording to {where} {end_of_it}; mpstui replay {path_word(options.file)} shows it",
                file=sys.stderr,
                flush=True,
            )
            loop = asyncio.get_running_loop()
            end = None if options.seconds is None else loop.time() + options.seconds
            while not over.is_set() and recording.trouble is None and (end is None or loop.time() < end):
                left = _LOOK if end is None else max(0.0, min(_LOOK, end - loop.time()))
                try:
                    await asyncio.wait_for(over.wait(), left)
                except asyncio.TimeoutError:
                    continue
            if recording.trouble is not None:
                return complain(f"{where} cannot be written any more: {recording.trouble}", 1)
    return ExitStatus.DONE


def _span(seconds: float) -> str:
    """As it is typed: ``90s``, ``10m``."""
    unit, size = next((unit, size) for unit, size in _UNITS if size == 1 or not seconds % size)
    return f"{seconds / size:g}{unit}"
