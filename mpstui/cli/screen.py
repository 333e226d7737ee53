"""Starts the screen: configuration, themes, sources and actions put together."""

from __future__ import annotations

import argparse
import gc
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from mpstui import api
from mpstui.cli.arguments import FLEET_VARIABLE
from mpstui.cli.output import complain
from mpstui.config import (
    CommandSpec,
    Config,
    ScreenMemory,
    config_dir,
    load_config,
    load_themes,
    state_folder,
    terminal_problem,
)
from mpstui.core.model import Snapshot
from mpstui.core.text import path_text
from mpstui.operations.types import ExitStatus

if TYPE_CHECKING:
    from mpstui.ui.tours import Tour

IN_BROWSER: Final = "TEXTUAL_DRIVER" in os.environ
"""Whether it is a session of ``mpstui web``: Textual is told by this which driver to take."""


_ARENA_MAX: Final = -8
_MMAP_THRESHOLD: Final = -3
_TRIM_THRESHOLD: Final = -1
_LARGE: Final = 128 << 10


def one_heap() -> Callable[[], object]:
    """Before the first thread of what runs for long: malloc keeps one heap for all, and gives large blocks back.

    One for each of some eight threads was 10 of 78 MiB on a node with 64 cores (2026-11-22); only one of them runs
    Python at a time. Large blocks, as of a log that is read, would otherwise stay in the heap once the first was freed.
    Where the C library is another one nothing is changed.

    Answers what gives back the pages in which nothing is any more, to be called now and then: of itself malloc does so
    at the end of its heap alone, and 1.2 MiB of such pages came together in half an hour in which as much was kept as
    before (2026-11-23). It takes 0.3 ms.
    """
    import ctypes

    with suppress(AttributeError, OSError):
        library = ctypes.CDLL(None)
        mallopt, trim = library.mallopt, library.malloc_trim
        for name, value in ((_ARENA_MAX, 1), (_MMAP_THRESHOLD, _LARGE), (_TRIM_THRESHOLD, _LARGE)):
            mallopt(name, value)
        return lambda: trim(0)
    return lambda: None


def run_screen(options: argparse.Namespace, pipe_dirs: tuple[Path, ...], tour: Tour | None = None) -> int:
    """The screen until the user leaves it, led through by ``tour``; returns the exit status."""
    problem = terminal_problem(os.environ, sys.stdin.isatty() and sys.stdout.isatty())
    if problem is not None and not IN_BROWSER:
        return complain(problem, ExitStatus.USAGE)
    # Nothing of what is imported here is garbage: to look through it takes 36 of 334 ms of processor time until the
    # first picture (medians of 20 alternating runs, 2026-11-21). The screen turns the collection on again after that.
    gc.disable()
    give_back = one_heap()

    from mpstui.cli.firstlook import first_look, shown

    config, messages = load_config()
    specs, broken = load_themes()
    names = [spec.name for spec in specs]
    if options.theme and options.theme not in names:
        for text in broken:
            complain(text, ExitStatus.USAGE)
        return complain(_no_theme(options.theme, names), ExitStatus.USAGE)
    read_only = options.read_only or config.read_only
    replayed = options.command == "replay"
    node = api.open(
        pipe_dirs,
        log_dirs=tuple(getattr(options, "log_dir", ())),
        refresh=options.refresh or config.refresh,
        read_only=read_only,
        recording=options.file if replayed else None,
        speed=options.speed if replayed else 1.0,
    ).unentered()
    collector, seen = first_look(lambda: node.live(config.reconcile))
    if options.activity or config.activity:
        collector.watch_activity(60 * config.idle_minutes or None)
    with shown(None if IN_BROWSER else seen) as take_over:
        from mpstui.cli.settings import NodeDaemons, NodePlans
        from mpstui.ui.app import MpsTuiApp
        from mpstui.ui.theme import build_themes, choose_theme

        wanted, more = theme_wish(options.theme, config.theme, names)
        messages += [*broken, *more]
        themes = build_themes(specs)
        theme = choose_theme(wanted, os.environ)
        keys, commands, unheeded = settled(config)
        messages += unheeded
        demo = bool(getattr(options, "demo", False))
        make: Callable[..., MpsTuiApp] = MpsTuiApp
        if tour is not None:
            from mpstui.ui.touring import led

            make = led(tour, own_demo=demo, auto=options.auto)
        app = make(
            collector,
            node.runner,
            themes=themes,
            theme=theme,
            read_only=read_only,
            messages=messages,
            keys=keys,
            load=node,
            plans=NodePlans(node),
            daemons=NodeDaemons(
                node.program,
                node.runner,
                node.named,
                demo=demo,
                gone=lambda: nobody_runs(collector.snapshot),
                watch=collector.watch,
            ),
            trouble=node,
            # A tour shows the screen as it comes, and leaves it as it was.
            memory=None if tour is not None else ScreenMemory(state_folder() / "screen.json", fresh=options.fresh),
            taking_over=take_over,
        )
        app.mouse, app.past, app.give_back = not options.no_mouse, collector, give_back
        app.fleet = os.environ.pop(FLEET_VARIABLE, "") == "1"  # and of no program that is started from here
        app.commands = commands
        if collector.live is not None:
            collector.live.catch_up()
        return app.finish(mouse=app.mouse) or 0


def settled(config: Config) -> tuple[dict[str, str], list[CommandSpec], list[str]]:
    """The user's keys and commands that can be had, and what is to be said of the others."""
    if not config.keys and not config.commands:
        return {}, [], []  # without the screens, all of which are imported to look for clashes
    from mpstui.ui.keymap import places, resolve, usable

    there = places()
    keys, unheeded = resolve(dict(config.keys), there)
    commands, more = usable(list(config.commands), keys, there)
    return keys, commands, [*unheeded, *more]


def nobody_runs(snapshot: Snapshot | None) -> bool:
    """Whether the node has been read and no daemon is left on it."""
    return snapshot is not None and not any(daemon.runs for daemon in snapshot.daemons)


def theme_wish(asked: str | None, configured: str | None, names: Sequence[str]) -> tuple[str | None, list[str]]:
    """The theme that is wanted and there, and what is to be said: one in config.toml that is missing stops nobody."""
    if asked or configured is None or configured in names:
        return asked or configured, []
    return None, [f"{path_text(config_dir() / 'config.toml')}: {_no_theme(configured, names)}"]


def _no_theme(name: str, names: Sequence[str]) -> str:
    return f"no theme {name!r}; there are: {', '.join(names)}"
