"""What carries out each command: one table. A command without a row is an error, and not another one."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from mpstui.cli.output import complain
from mpstui.cli.parser import LOOKS, build_parser
from mpstui.cli.past import NODES, wants_past
from mpstui.core.late import dataclass
from mpstui.core.text import unprintable

_DIRECTORIES = ("CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY", "MPSTUI_AUDIT_LOG", "MPSTUI_CONTROL_BINARY")
"""Variables that name a place as an option does."""


@dataclass(frozen=True)
class Alone:
    """A command that looks at no node: the function of its options, which is imported when it is given."""

    place: str
    """Module of this package and name: ``schema:schema``."""

    def function(self) -> Callable[..., int]:
        module, _, name = self.place.partition(":")
        found: Any = getattr(import_module(f"mpstui.cli.{module}"), name)
        return found  # type: ignore[no-any-return]

    def __call__(self, options: argparse.Namespace) -> int:
        return self.function()(options)


@dataclass(frozen=True)
class OnNode(Alone):
    """A command for a node: the function of its options and the pipe directories that were asked for."""

    def __call__(self, options: argparse.Namespace) -> int:
        with _node(options) as pipe_dirs:
            return self.function()(options, pipe_dirs)


def _status(options: argparse.Namespace) -> int:
    """``status``, which is four things by its options."""
    if options.watch:
        return OnNode("watch:watch_status")(options)
    if options.health:
        return OnNode("status:print_health")(options)
    return OnNode("status:print_past" if wants_past(options) else "status:print_status")(options)


def _plan(options: argparse.Namespace) -> int:
    """``plan``; for a device of a given size it mostly needs no node."""
    if options.sm_count_total is None or options.apply or options.from_activity == "":
        return OnNode("plan:plan")(options)
    return Alone("plan:plan").function()(options, ())


def _replay(options: argparse.Namespace) -> int:
    """``replay``: the screen, on no node."""
    return Alone("screen:run_screen").function()(options, ())


def _tour(options: argparse.Namespace) -> int:
    """The screen with a guide; without a name, which tours there are. A file is checked before a node is started.

    Raises TourError."""
    from mpstui.ui.tours import TourError, read, shipped

    if options.name is None:
        for name in shipped():
            print(f"{name:14}{read(name).title}")
        return 0
    tour = read(options.name, _binding_ids)
    if tour.demo is not None and tour.demo not in NODES:
        raise TourError(f"there is no simulated node {tour.demo}; there are: {', '.join(NODES)}")
    if getattr(options, "demo", None) == "demo" and tour.demo is not None:
        options.demo = tour.demo
    with _node(options) as pipe_dirs:
        from mpstui.cli.screen import run_screen

        return run_screen(options, pipe_dirs, tour)


def _binding_ids() -> Collection[str]:
    from mpstui.ui.keymap import places

    return {name for bindings in places().values() for name in bindings}


def _sim_serve(options: argparse.Namespace) -> int:
    from mpstui.sim.serving import serve

    mode = "v3" if options.protocol == "3" else "static" if options.static else "demo"
    return serve(options.directory, options.scenario or mode, options.driver)


COMMANDS: Final[dict[tuple[str, ...], Callable[[argparse.Namespace], int]]] = {
    (): OnNode("screen:run_screen"),
    ("status",): _status,
    ("events",): OnNode("events:print_events"),
    ("suspects",): OnNode("events:print_suspects"),
    ("activity",): OnNode("activity:print_activity"),
    ("doctor",): OnNode("doctor:doctor"),
    ("why",): OnNode("why:why"),
    ("explain",): Alone("why:explain"),
    ("record",): OnNode("record:record"),
    ("replay",): _replay,
    ("plan",): _plan,
    ("profile", "list"): Alone("profile:print_list"),
    ("profile", "show"): Alone("profile:show"),
    ("profile", "save"): OnNode("profile:save"),
    ("profile", "diff"): OnNode("profile:diff"),
    ("profile", "apply"): OnNode("profile:apply"),
    ("daemon", "start"): OnNode("daemon:start"),
    ("daemon", "stop"): OnNode("daemon:stop"),
    ("daemon", "clean"): OnNode("daemon:clean"),
    ("daemon", "unit"): OnNode("daemon:unit"),
    ("server", "export"): OnNode("v3:export"),
    ("partition", "list"): OnNode("partition:print_partitions"),
    ("run",): Alone("run:run"),
    ("load",): OnNode("load:load"),
    ("experiment",): OnNode("experiment:experiment"),
    ("exporter",): OnNode("exporter:exporter"),
    ("fleet",): Alone("fleet:fleet"),
    ("web",): OnNode("web:web"),
    ("tour",): _tour,
    ("config", "show"): Alone("config:show"),
    ("config", "check"): Alone("config:check"),
    ("schema",): Alone("schema:schema"),
    ("sim", "serve"): _sim_serve,
}
"""By the words of a command, as its parser has them. An operation has no row where ``change`` does all of it."""


def carry_out(options: argparse.Namespace) -> int:
    """Runs what the options ask for; returns the exit status. Raises Unable."""
    for name in _DIRECTORIES:
        if (problem := unprintable(os.environ.get(name, ""))) is not None:
            return complain(f"{name}: {problem}", 2)
    if not options.read_only and _changes(options):
        options.read_only = _read_only_by_config()
    return function_of(options.words)(options)


def function_of(words: tuple[str, ...]) -> Callable[[argparse.Namespace], int]:
    """What carries a command out. Raises KeyError where nothing does."""
    if (found := COMMANDS.get(words)) is not None:
        return found
    from mpstui.cli.verbs import is_operation

    if not is_operation(words):
        raise KeyError(f"nothing carries out “{' '.join(words)}”: it has no row in {__name__}.COMMANDS")
    return OnNode("change:change")


def _changes(options: argparse.Namespace) -> bool:
    """Whether the command changes something on a daemon: who only looks does not import the table of operations."""
    if options.command is None or options.command in LOOKS:
        return False
    from mpstui.cli.verbs import is_operation

    return is_operation(options.words) or getattr(options, "apply", False)


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
