"""Makes the pictures: runs mpstui in a pseudo-terminal, works its keys, draws what it shows.

    scripts/screenshots.py [--only REGEX]                      those that docs/screens.md shows, into screenshots/
    scripts/screenshots.py --all DIR [--only REGEX]            every screen in four sizes, as SVG, and on sheets as PNG
    scripts/screenshots.py --pipe-dir DIR --prefix real-       the daemon that serves DIR; nothing is changed there

All but the last are of simulated nodes. PNG needs CairoSVG (the `screenshots` extra) and the font DejaVu Sans Mono
(Debian and Ubuntu: fonts-dejavu-core); the picture of the browser, Chromium.
"""

from __future__ import annotations

import argparse
import contextlib
import http.server
import json
import math
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "pty"))
from program import MPSTUI
from screen_svg import screen_svg
from terminal import Terminal, Timeout

ROOT = Path(__file__).resolve().parents[1]
FONT = "DejaVu Sans Mono"
SIZES = ((80, 24), (120, 40), (160, 48), (200, 60))
USUAL = (160, 48)
"""Of a picture in the documentation."""
PATIENCE = 30.0


class View(NamedTuple):
    """A picture, and how one comes to it from the first screen of its node."""

    name: str
    keys: Sequence[str] = ()
    """Keys by name, pressed one after the other; ``"text`` types, ``~regex`` waits until that is shown."""
    back: Sequence[str] = ("escape", "escape", "escape")
    page: tuple[int, int] | None = None
    """The size in which docs/screens.md shows it; None: not at all."""
    settle: float = 0.6
    """Seconds in which it comes to rest."""


class Place(NamedTuple):
    """A node and the program's options on it, with the pictures that are taken there."""

    name: str
    views: Sequence[View]
    serve: Sequence[str] | None = ()
    """Of ``mpstui sim serve``; None: no node."""
    command: Sequence[str] = ()
    """Instead of the screen of the node."""
    ready: str = "⁴"
    environment: Mapping[str, str] = {}
    """Variables of the program's."""
    config: str = ""
    """The user's config.toml."""
    second: Sequence[str] | None = None
    """Of the ``mpstui sim serve`` of another daemon beside it; None: there is none."""
    settle: float = 3.0
    """Seconds until meters have two readings."""


FORCE = ("backtab", "backtab", "down", "down", "down", "down")
"""By force, in the question whether a daemon is to be stopped."""
DEMO = (
    View("overview-80x24", page=(80, 24), settle=6),
    View("zoom-limits", ("2", "z"), back=("z", "4")),
    View("zoom-servers", ("3", "z"), back=("z", "4")),
    View("zoom-clients", ("4", "z"), back=("z", "4")),
    View("zoom-events", ("5", "z"), back=("z", "4")),
    View("plots-hour", ("1", "+", "+"), back=("-", "-", "4")),
    View("group", ("f5",)),
    View("grouped", ("f5", "down", "enter"), back=("f5", "home", "enter"), page=USUAL),
    View("folded", ("f5", "down", "enter", "-"), back=("+", "f5", "home", "enter")),
    View("by-job", ("f5", "end", "up", "up", "enter"), back=("f5", "home", "enter")),
    View("columns", ("f2",), page=USUAL),
    View("columns-more", ("f2", "G")),
    View("sort", ("f6",), page=USUAL),
    View("filter", ("/", '"user:bob'), back=("escape", "escape")),
    View("filter-unknown", ("/", '"bad:xy', "enter"), back=("escape", "escape")),
    View("find", ("f", '"vllm')),
    View("user", ("U",)),
    View("user-one", ("U", "down", "enter"), back=("escape", "escape")),
    View("pin", ("j", "i"), back=("i", "g")),
    View("chosen", ("g", "space", "j", "space"), back=("escape",)),
    View("details", ("g", "enter"), page=USUAL),
    View("details-device", ("1", "enter"), back=("escape", "4")),
    View("details-limit", ("2", "enter"), back=("escape", "4")),
    View("details-server", ("3", "enter"), back=("escape", "4")),
    View("details-find", ("g", "enter", "/", '"mem')),
    View("details-event", ("5", "enter"), back=("escape", "4")),
    View("events-one", ("E", "enter"), back=("escape", "escape")),
    View("confirm", ("t", "~Cancel"), page=USUAL),
    View("confirm-kill", ("K", "~Cancel")),
    View("confirm-several", ("g", "space", "j", "space", "K", "~Cancel")),
    View("form", ("l", "~before Apply", '"50'), page=USUAL),
    View("form-server", ("3", "l", "~before Apply", '"50'), back=("escape", "escape", "4")),
    View("form-wrong", ("l", "~before Apply", '"500', "enter")),
    View("memory", ("m", "~before Apply", '"10G'), page=USUAL),
    View("priority", ("o", "~new value")),
    View("start-server", ("S",)),
    View("shutdown-server", ("3", "Z", "~Cancel"), back=("escape", "escape", "4")),
    View("unblock", ("u",)),
    View("help", ("?",), page=USUAL),
    View("help-2", ("?", "pagedown")),
    View("help-3", ("?", "G")),
    View("help-events", ("E", "?"), back=("escape", "escape")),
    View("palette", ("ctrl+p",), page=USUAL),
    View("palette-typed", ("ctrl+p", '"gro')),
    View("command", (":", '"set t')),
    View("command-wrong", (":", '"terminate 99999', "enter")),
    View("events", ("E",), page=USUAL, settle=1.5),
    View("events-kinds", ("E", "tab"), settle=1.5),
    View("events-find", ("E", "f", '"client'), settle=1.5),
    View("events-window", ("E", "h"), settle=1.5),
    View("events-filter-wrong", ("E", "/", '"bad:xy', "enter"), back=("escape", "escape", "escape")),
    View("events-trouble", ("E", "H"), back=("escape", "escape"), settle=1.5),
    View("problems", ("D",), page=USUAL, settle=4),
    View("blast", ("b",), page=USUAL, settle=1.5),
    View("users-none", ("W",), settle=1.5),
    View("activity", ("a",), page=USUAL, settle=4),
    View("suspects-none", ("B",), settle=1.5),
    View("fault-none", ("!",)),
    View("plan", ("p",), page=USUAL, settle=1.5),
    View("plan-bars", ("p", "tab"), back=("backtab", "escape"), settle=1.5),
    View("plan-comparison", ("p", "tab", "tab"), back=("tab", "escape"), settle=1.5),
    View("plan-apply", ("p", "A"), settle=1.5),
    View("plan-export", ("p", "C"), settle=1.5),
    View("plan-save", ("p", "w"), settle=1.5),
    View("plan-open", ("p", "V"), settle=1.5),
    View("load-fields", ("L",), settle=1.5),
    View("daemons", ("d",), page=USUAL, settle=1.5),
    View("daemons-start", ("d", "S"), settle=1.5),
    View("daemons-stop", ("d", "x"), settle=1.5),
    View("daemons-force", ("d", "x", *FORCE), settle=1.5),
    View("partitions-none", ("P",), settle=1.5),
    View("freeze", ("F",), back=("F",)),
    View("mouse", ("f12",), back=("f12",)),
    View("copied", ("y",)),
    View("past", ("<", "~PAST", "<"), back=("end",), page=USUAL),
    View("past-time", ("T",)),
    View("overview", page=USUAL, settle=6),  # last: these show some minutes
    View("zoom-devices", ("1", "z"), back=("z", "4"), page=USUAL, settle=6),
)
OWN = """[[commands]]
name = "Threads of it"
key = "f9"
run = ["ps", "-L", "-p", "{client.pid}"]
"""
DONE = (
    View("limit-set", ("l", "~before Apply", '"50', "enter", "tab", "enter", "~✓|✗"), settle=1),
    View("server-refused", ("S", "~before Apply", '"root', "~✗"), settle=1),
    View("terminated", ("t", "~Cancel", "tab", "enter", "~✓|✗"), settle=1),
    View("killed", ("j", "j", "K", "~Cancel", "tab", "enter", "~✓|✗"), settle=1),
    View("terminated-overview", settle=2),
    View("plan-saved", ("p", "w", '"half', "enter", "enter", "~✓|✗"), settle=1),
    View("plan-profile", ("p", "V", "~half"), settle=1),
    View("plan-applied", ("p", "A", "tab", "enter", "~✓|✗"), settle=1),
    View("own-menu", (":", '"Threads of')),
    View("own-asked", ("f9",), settle=1.5),
    View("server-ending", ("3", "Z", "~Cancel", "tab", "enter", "~told to end"), back=("escape", "4"), settle=1),
    View("server-ending-overview", settle=2),
    View("daemon-force-asked", ("d", "x", *FORCE, "tab", "tab", "tab", "enter", "~Force"), settle=1),
    View(
        "daemon-stopped", ("d", "x", *FORCE, "tab", "tab", "tab", "enter", "~Force", "tab", "enter", "~✓|✗"), settle=2
    ),
)
"""Of what has been done; the last one ends its node."""
FAULT = (
    View("fault-overview"),
    View("fault", ("!", "~Clients|owners|FAULT"), page=USUAL, settle=2),
    View("fault-end-lost", ("e", "~Cancel")),
    View("suspects", ("B",), page=USUAL, settle=1.5),
    View("problems-fault", ("D",), settle=4),
    View("events-fault", ("E",), settle=1.5),
    View("users-fault", ("W",), settle=1.5),
    View("blast-fault", ("b",), settle=1.5),
)
STATIC = (
    View("static-overview"),
    View("partitions", ("P",), page=USUAL, settle=1.5),
    View("partition-add", ("P", "S"), settle=1.5),
    View("partition-remove", ("P", "j", "j", "j", "x"), settle=1.5),
    View("static-details", ("enter",)),
)
V3 = (
    View("v3-overview"),
    View("namespaces", ("P",), page=USUAL, settle=1.5),
    View("namespace-create", ("P", "A"), settle=1.5),
    View("namespace-server", ("P", "S"), settle=1.5),
    View("namespace-partition", ("P", "P"), settle=1.5),
    View("namespace-limits", ("P", "l"), settle=1.5),
    View("namespace-delete", ("P", "j", "j", "j", "x"), settle=1.5),
    View("namespace-terminate", ("P", "j", "j", "t"), settle=1.5),
    View("v3-details", ("enter",)),
)
LOAD = (
    View("load-presets", ("L", "right", "right"), settle=1),
    View("load-asked", ("L", "enter"), settle=1.5),
    View("load", ("L", "enter", "~Cancel", "tab", "enter", "~TFLOP/s"), page=USUAL, back=(), settle=10),
    View("load-clients", ("down",), settle=2, back=()),
    View("load-limit", ("l",), settle=1, back=("escape",)),
    View("load-overview", ("escape",), settle=3, back=()),
    View("load-leave", ("q",), settle=1, back=()),
)
LOAD_FAULT = (View("load-fault", ("L", "left", "enter", "~TFLOP/s", "J", "~error 700"), settle=2, back=()),)
"""On a daemon of its own, as its preset has it: the next size has a node as the first one."""
REPLAY = (
    View("replay"),
    View("replay-fault", ("<", "<", "<", "<"), settle=1, back=(), page=USUAL),
    View("replay-details", ("enter",)),
    View("replay-refused", ("K",)),
    View("replay-time", ("T",)),
    View("replay-events", ("E",), settle=1.5),
    View("replay-suspects", ("B",), settle=1.5),
)
FLEET = (
    View("fleet", page=USUAL),
    View("fleet-filter", ("/", '"fault'), back=("escape", "escape")),
    View("fleet-problems", ("D",), back=("D",)),
    View("fleet-none", ("/", '"nothing', "enter"), back=("escape",)),
    View("fleet-help", ("?",)),
)
FLEET_PROMETHEUS = (View("fleet-prometheus", ("G", "k", "h", "~in 6 h"), page=USUAL),)
LOGS = (
    View("logs"),
    View("logs-fault", ("<", "<"), back=(), settle=1),
    View("logs-details", ("g", "enter")),
    View("logs-refused", ("K",)),
    View("logs-time", ("T",)),
    View("logs-events", ("E",), settle=1.5),
    View("logs-suspects", ("B",), settle=1.5),
    View("logs-blast", ("b",), settle=1.5),
    View("logs-problems", ("D",), settle=3),
    View("logs-plan", ("p",), settle=1.5),
)
PLAIN = (
    View("", settle=3),
    View("-form", ("l", "~before Apply", '"50')),
    View("-confirm", ("K", "~Cancel")),
    View("-plan", ("p",), settle=1.5),
    View("-events", ("E",), settle=1.5),
    View("-help", ("?",)),
    View("-columns", ("f2",)),
    View("-past", ("<", "~PAST", "<"), back=("end",)),
)
"""Each of the ways to draw has these: themes, few colours, none."""
PLAIN_FAULT = (
    View("-fault"),
    View("-fault-what", ("!", "~Clients|owners|FAULT"), settle=2),
    View("-fault-blast", ("b",), settle=1.5),
    View("-fault-problems", ("D",), settle=3),
)
THEMES = {f"theme-{path.stem}": ("--theme", path.stem) for path in sorted((ROOT / "themes").glob("*.toml"))}
WAYS: Mapping[str, tuple[Sequence[str], Mapping[str, str]]] = {
    "no-color": ((), {"NO_COLOR": "1"}),
    "sixteen": ((), {"TERM": "xterm", "COLORTERM": ""}),
    **{name: (words, {}) for name, words in THEMES.items()},
}
"""Options and variables by which the same is drawn otherwise."""
TOUR = (
    View("tour", back=(), page=USUAL),
    View("tour-2", ("f8",), back=(), settle=3),
    View("tour-3", ("f8",), back=(), settle=3),
    View("tour-4", ("f8",), back=(), settle=3),
    View("tour-5", ("f8",), back=(), settle=3),
    View("tour-6", ("f8",), back=(), settle=3),
    View("tour-7", ("f8",), back=(), settle=3),
    View("tour-end", ("f8",), back=(), settle=3),
)
"""Each of the tours has these."""
FOURTH = View(
    "tour-partitioning",
    ("f8", "~2 of 9", "f8", "~3 of 9", "~2 running", "f8", "~4 of 9"),
    back=(),
    page=USUAL,
    settle=9,
)


def named(way: str, views: Sequence[View]) -> list[View]:
    """Those of a way to draw; the overview in each theme is shown in the documentation."""
    return [
        view._replace(name=f"{way}{view.name}", page=None if view.name or way not in THEMES else USUAL)
        for view in views
    ]


FIFTH_ON = tuple(View(f"tour-{n}-partitioning", ("f8", f"~{n} of 9"), back=(), settle=5) for n in range(5, 10))


def drills(*names: str) -> Iterator[Place]:
    """A node on which something is wrong: the screen, its problems, and what the first key of the remedy asks."""
    for name in names:
        views = (View(name, page=USUAL if name in ("held", "blocked", "stale") else None, settle=6),)
        more = (View(f"{name}-problems", ("D",), settle=4), View(f"{name}-unblock", ("u",), settle=2))
        yield Place(
            name,
            (*views, *more, View(f"{name}-users", ("W",), settle=2, page=USUAL if name == "pending" else None)),
            ("--scenario", name),
            ready="",
        )


TWO = (View("two", settle=4), View("two-other", ("]",), settle=1), View("two-daemons", ("d",)))
OLD = {"": (), "-form": ("l",), "-memory": ("m",), "-priority": ("o",), "-partitions": ("P",)}
"""What is looked at with another driver."""
PLACES = (
    Place("demo", DEMO),
    Place("done", DONE, config=OWN),
    Place("two", TWO, second=("--scenario", "pending")),
    Place("panels", (View("hidden-panels", ("1", "1", "2", "2")),)),
    Place("launches", (View("launches", settle=6),), command=("--activity",)),
    *(
        Place(f"driver-{n}", tuple(View(f"driver-{n}{name}", keys) for name, keys in OLD.items()), ("--driver", n))
        for n in ("470", "535", "615")
    ),
    Place("crowd", (View("crowd", settle=6), View("crowd-blast", ("b",))), ("--scenario", "crowd")),
    Place("fault", FAULT, ("--scenario", "fault"), settle=5),
    *drills("held", "blocked", "pending", "full", "stale", "nostart"),
    Place("static", STATIC, ("--static",)),
    Place("v3", V3, ("--protocol", "3")),
    Place("load", LOAD),
    Place("load-fault", LOAD_FAULT),
    Place("read-only", (View("read-only"), View("read-only-refused", ("K",))), command=("--read-only",)),
    Place("replay", REPLAY, None, ("replay", str(ROOT / "docs" / "recordings" / "fault.mps"), "--speed", "0")),
    Place("fleet", FLEET, None, ("fleet",), ready="Nodes"),
    Place("fleet-prometheus", FLEET_PROMETHEUS, None, ("fleet",), ready="Nodes"),
    Place("logs", LOGS, None, ready="LOGS"),
    Place("tour", (FOURTH, *FIFTH_ON), None, ("tour", "partitioning", "--demo"), ready="F8"),
    *(
        Place(
            f"tour-{name}",
            tuple(view._replace(name=f"{view.name}-{name}") for view in TOUR),
            None,
            ("tour", name, "--demo"),
            ready="F8",
        )
        for name in ("limits", "fault", "who")
    ),
    *(
        Place(f"{way}{at}", named(way, views), serve, command, environment=environment)
        for way, (command, environment) in WAYS.items()
        for at, views, serve in (("", PLAIN, ()), ("-fault", PLAIN_FAULT, ("--scenario", "fault")))
    ),
    Place("absent", (View("absent"), View("absent-daemons", ("d",)), View("absent-start", ("S",))), None,
          ("--pipe-dir", "/tmp/mps_absent"), ready=""),
)  # fmt: skip


class Album:
    """Draws screens into a folder."""

    def __init__(self, out: Path, prefix: str, png: bool) -> None:
        self.out, self.prefix, self.png = out, prefix, png
        self.made: list[str] = []
        out.mkdir(parents=True, exist_ok=True)

    def take(self, screen: Terminal, name: str) -> None:
        """A picture of what is on the screen now."""
        screen.drain(0.2, 1.0)
        path = self.out / f"{self.prefix}{name}.svg"
        path.write_text(screen_svg(screen.screen, f"mpstui: {name}"))
        if self.png:
            draw(path)
        self.made.append(path.name)
        print(path, flush=True)


def draw(svg: Path) -> None:
    """The PNG beside it; a cell is 12 by 24 pixels there."""
    import cairosvg

    cairosvg.svg2png(url=str(svg), write_to=str(svg.with_suffix(".png")), scale=4 / 3)


def sheet(svgs: Sequence[Path], out: Path, across: int) -> None:
    """Several pictures of one size on one, each under its name."""
    pictures = [path.read_text() for path in svgs]
    width, height = (float(part) for part in re.findall(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', pictures[0])[0])
    rows = -(-len(svgs) // across)
    wide, high = across * (width + 12), rows * (height + 30)
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide:g} {high:g}" width="{wide:g}">']
    parts.append(f'<rect width="{wide:g}" height="{high:g}" fill="#404040"/>')
    for number, (path, text) in enumerate(zip(svgs, pictures, strict=True)):
        x, y = number % across * (width + 12), number // across * (height + 30)
        parts.append(f'<text x="{x + 4:g}" y="{y + 19:g}" fill="#ffd75f" font-size="16">{path.stem}</text>')
        parts.append(text.replace("<svg ", f'<svg x="{x:g}" y="{y + 26:g}" height="{height:g}" ', 1))
    import cairosvg

    cairosvg.svg2png(bytestring="\n".join([*parts, "</svg>"]).encode(), write_to=f"{out}.png")


def work(screen: Terminal, keys: Sequence[str]) -> None:
    """Press them."""
    for key in keys:
        if key.startswith("~"):
            screen.wait_for(re.compile(key[1:]), PATIENCE)
            continue
        if key.startswith('"'):
            screen.send(key[1:])
        else:
            screen.key(key)
        screen.drain(0.25, 1.0)


class Gone(Exception):
    """A picture could not be taken; the next one needs a new program."""


def take(screen: Terminal, view: View, album: Album, name: str) -> None:
    """The picture of a view. Raises Gone."""
    try:
        work(screen, view.keys)
        screen.read_for(view.settle)
        album.take(screen, name)
        work(screen, view.back)
    except (Timeout, OSError) as error:
        raise Gone(f"{name}: {error}") from None


def visit(
    argv: Sequence[str], place: Place, views: Sequence[View], size: tuple[int, int], album: Album, end: str = ""
) -> None:
    """The pictures of one place in one size; after one that cannot be taken the program is started anew."""
    left = list(views)
    while left:
        with Terminal(argv, environment=place.environment, columns=size[0], lines=size[1]) as screen:
            try:
                screen.wait_for(re.compile(place.ready), 2 * PATIENCE)
                screen.read_for(place.settle)
                while left:
                    view = left.pop(0)
                    take(screen, view, album, f"{view.name}{end}")
            except Gone as error:
                print(error, file=sys.stderr, flush=True)
            except Timeout as error:
                print(f"{place.name}: {error}", file=sys.stderr, flush=True)
                return


@contextlib.contextmanager
def open_place(place: Place, folder: Path) -> Iterator[list[str]]:
    """The words that start the program there."""
    if place.name == "fleet":
        with open_fleet(folder) as words:
            yield words
    elif place.name == "fleet-prometheus":
        with open_prometheus(folder) as words:
            yield words
    elif place.name == "logs":
        with open_logs(folder) as words:
            yield words
    elif place.second is not None:
        with open_two(folder, place.second) as words:
            yield words
    elif place.serve is None:
        yield [*MPSTUI, *place.command]
    else:
        with serve(folder, *place.serve):
            words = [*MPSTUI, "--pipe-dir", str(folder), "--fresh", *place.command]
            if place.config:
                (folder / "config" / "mpstui").mkdir(parents=True)
                (folder / "config" / "mpstui" / "config.toml").write_text(place.config)
                words = ["env", f"XDG_CONFIG_HOME={folder}/config", *words]
            yield words


@contextlib.contextmanager
def serve(folder: Path, *options: str) -> Iterator[None]:
    """A simulated node there, once its scenario has begun."""
    with subprocess.Popen([*MPSTUI, "sim", "serve", str(folder), *options], stdout=subprocess.PIPE, text=True) as node:
        assert node.stdout is not None
        try:
            if not any("ready" in line for line in node.stdout):
                raise Gone(f"no simulated node: {options}")
            yield
        finally:
            node.terminate()


@contextlib.contextmanager
def open_logs(folder: Path) -> Iterator[list[str]]:
    """The logs of a node on which a fault was, and which is gone."""
    with serve(folder / "node", "--scenario", "fault"):
        time.sleep(8)
        shutil.copytree(folder / "node" / "logs", folder / "logs")
    yield [*MPSTUI, "--log-dir", str(folder / "logs"), "--fresh"]


@contextlib.contextmanager
def open_two(folder: Path, second: Sequence[str]) -> Iterator[list[str]]:
    """Two daemons of one node."""
    first, other = folder / "first", folder / "other"
    with serve(first), serve(other, *second):
        yield [*MPSTUI, "--pipe-dir", str(first), "--pipe-dir", str(other), "--fresh"]


HOSTS = {
    "gpu-01": "demo",
    "gpu-02": "fault",
    "gpu-03": "crowd",
    "gpu-04": "pending",
    "gpu-05": "held",
    "gpu-06": "static",
}


@contextlib.contextmanager
def open_fleet(folder: Path) -> Iterator[list[str]]:
    """Six nodes as their own mpstui told of them, and two that do not answer; what stands for ssh hands that out."""
    for host, scenario in HOSTS.items():
        pipe_dir = folder / scenario
        pipe_dir.mkdir()
        with serve(pipe_dir, "--scenario", scenario):
            status = [*MPSTUI, "status", "--json", "--pipe-dir", str(pipe_dir)]
            told = subprocess.run(status, capture_output=True, check=False)
            (folder / f"{host}.json").write_bytes(told.stdout)
    ssh = folder / "ssh"
    answer = f'case "$3" in *events*) exec sleep 3600;; *) cat {shlex.quote(str(folder))}/"$2".json 2> /dev/null;; esac'
    away = 'echo "ssh: connect to host $2 port 22: No route to host" >&2; exit 255'
    ssh.write_text(f'#!/bin/sh\nwhile [ "$1" != -- ]; do shift; done\n{answer} || {{ {away}; }}\n')
    ssh.chmod(0o755)
    yield [*MPSTUI, "fleet", "--hosts", ",".join((*HOSTS, "gpu-07", "gpu-08")), "--ssh", str(ssh)]


class Sample(NamedTuple):
    """One line of an exporter, as Prometheus has it."""

    name: str
    labels: dict[str, str]
    value: float


def samples(host: str, text: str) -> Iterator[Sample]:
    """Those of a node, by the name that it has in the picture."""
    for name, labels, value in re.findall(r"^(mps_\w+)(?:\{(.*)\})? (\S+)$", text, re.MULTILINE):
        told = dict(re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', labels))
        yield Sample(name, {**told, "Hostname": host, "job": "mpstui", "instance": f"{host}:9936"}, float(value))


def answer(known: Sequence[Sample], query: str) -> list[Sample]:
    """What Prometheus would answer to one of the questions of mpstui/fleet.py."""
    if "max_over_time" in query:  # the one that does not answer was there ten minutes ago
        where = {"Hostname": "gpu-07", "job": "mpstui", "instance": "gpu-07:9936"}
        return [Sample("", where, time.time() - 600)]
    if grouped := re.fullmatch(r"(sum|max|count) by \(([^)]*)\) \((.*)\)", query):
        of = {"sum": sum, "max": max, "count": len}[grouped[1]]
        groups: dict[tuple[tuple[str, str], ...], list[float]] = {}
        for each in answer(known, grouped[3]):
            key = tuple((name, each.labels[name]) for name in grouped[2].split(", ") if name in each.labels)
            groups.setdefault(key, []).append(each.value)
        return [Sample("", dict(key), float(of(values))) for key, values in groups.items()]
    asked = re.fullmatch(r'(\w+)(?:\{(\w+)="([^"]*)"\})?(?: (==|>=|>) ([0-9.]+))?', query)
    assert asked is not None, query
    name, label, text, sign, bound = asked.groups()
    fits = {None: lambda _: True, "==": float(bound or 0).__eq__, ">": float(bound or 0).__lt__,
            ">=": float(bound or 0).__le__}[sign]  # fmt: skip
    return [
        each
        for each in known
        if each.name == name and (label is None or each.labels.get(label) == text) and fits(each.value) is True
    ]


def course(known: Sequence[Sample], query: str, start: float, end: float, step: float) -> list[list[object]]:
    """A made-up course of six hours that ends with what the simulated node has now."""
    name, host = re.findall(r'(mps_\w+)\{Hostname="([^"]*)"', query)[0]
    now = sum(each.value for each in known if each.name == name and each.labels["Hostname"] == host)
    points = round((end - start) / step)
    shares = [0.55 + 0.4 * math.sin(n / 7) for n in range(points)] + [1.0]
    return [[start + n * step, str(round(now * share))] for n, share in enumerate(shares)]


@contextlib.contextmanager
def open_prometheus(folder: Path) -> Iterator[list[str]]:
    """The same nodes as their exporters told a Prometheus of them; what stands for it answers on this machine alone."""
    known = [Sample("up", {"job": "mpstui", "instance": f"gpu-0{n}:9936"}, float(n < 7)) for n in range(1, 9)]
    for host, scenario in HOSTS.items():
        pipe_dir = folder / scenario
        pipe_dir.mkdir()
        with serve(pipe_dir, "--scenario", scenario):
            command = [*MPSTUI, "exporter", "--textfile", "-", "--once", "--pipe-dir", str(pipe_dir)]
            known += samples(host, subprocess.run(command, capture_output=True, check=False, text=True).stdout)

    class Stand(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked = urllib.parse.parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
            query = asked["query"][0]
            if self.path.endswith("query_range"):
                span = (float(asked[name][0]) for name in ("start", "end", "step"))
                result = [{"metric": {}, "values": course(known, query, *span)}]
            else:
                found = answer(known, query)
                result = [{"metric": each.labels, "value": [time.time(), str(each.value)]} for each in found]
            body = json.dumps({"status": "success", "data": {"result": result}}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None: ...

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Stand)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield [*MPSTUI, "fleet", "--prometheus", f"http://127.0.0.1:{server.server_port}"]
    finally:
        server.shutdown()
        server.server_close()


def every(out: Path, only: re.Pattern[str], sizes: Sequence[tuple[int, int]]) -> None:
    """All screens whose names match, in these sizes, and sheets of them to look at."""
    album = Album(out, "", png=False)
    for place in PLACES:
        views = [view for view in place.views if only.search(view.name) and view.page != (80, 24)]
        if not views:
            continue
        with tempfile.TemporaryDirectory(prefix="mps_") as folder, open_place(place, Path(folder)) as argv:
            for columns, lines in sizes:
                visit(argv, place, views, (columns, lines), album, f"-{columns}x{lines}")
        for columns, lines in sizes:
            there = [out / f"{view.name}-{columns}x{lines}.svg" for view in views]
            there = [path for path in there if path.exists()]
            most, across = (6, 2) if columns == 80 else (2, 1)
            for at in range(0, len(there), most):
                sheet(there[at : at + most], out / f"sheet-{columns}x{lines}-{place.name}-{at // most:02}", across)


def pages(album: Album, only: re.Pattern[str]) -> None:
    """Those of the documentation."""
    for place in PLACES:
        views = [view for view in place.views if view.page and only.search(view.name)]
        if not views:
            continue
        with tempfile.TemporaryDirectory(prefix="mps_") as folder, open_place(place, Path(folder)) as argv:
            for size in dict.fromkeys(view.page for view in views if view.page):
                visit(argv, place, [view for view in views if view.page == size], size, album)
    if only.search("browser"):
        browser(album.out / "browser.png")


def browser(out: Path) -> None:
    """The demo in Chromium, by mpstui web: the test that works it there takes the picture."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "MPSTUI_BROWSER": "1", "MPSTUI_PICTURES": folder}
        test = "tests/web/test_browser.py::test_overview_drill_resize_two_sessions_and_a_killed_browser"
        subprocess.run([sys.executable, "-m", "pytest", "-q", test], cwd=ROOT, env=environment, check=False)
        if (made := Path(folder, "browser-overview.png")).exists():
            shutil.copy(made, out)
            print(out, flush=True)


def real(album: Album, pipe_dir: Path) -> None:
    """Of a daemon that is there: nothing is changed, every dialog is left with Escape."""
    names = ("overview", "details", "form", "memory", "confirm", "help", "palette", "overview-80x24")
    views = [view for view in DEMO if view.name in names]
    argv = [*MPSTUI, "--pipe-dir", str(pipe_dir), "--fresh"]
    for size in (USUAL, (80, 24)):
        visit(argv, Place("real", views), [view for view in views if view.page == size], size, album)


def main() -> int:
    """All the pictures."""
    parser = argparse.ArgumentParser(description="Make the pictures of the screen.")
    parser.add_argument("--pipe-dir", type=Path, help="a running daemon, instead of simulated nodes")
    parser.add_argument("--all", type=Path, metavar="DIR", help="every screen in four sizes, into DIR")
    parser.add_argument("--only", type=re.compile, default=re.compile(""), metavar="REGEX", help="of their names")
    parser.add_argument("--size", action="append", help="with --all: as 80x24; may be repeated")
    parser.add_argument("--out", type=Path, default=ROOT / "screenshots")
    parser.add_argument("--prefix", default="", help="put before each name, e.g. real-")
    parser.add_argument("--svg-only", action="store_true")
    options = parser.parse_args()
    if not options.svg_only and FONT not in _fonts():
        print(f"the font {FONT} is not installed: symbols in the PNG files may be missing", file=sys.stderr)
    album = Album(options.out, options.prefix, not options.svg_only)
    if options.all:
        sizes = [(int(size.split("x")[0]), int(size.split("x")[1])) for size in options.size or ()]
        every(options.all, options.only, sizes or SIZES)
    elif options.pipe_dir:
        real(album, options.pipe_dir)
    else:
        pages(album, options.only)
    return 0


def _fonts() -> str:
    with contextlib.suppress(OSError):
        return subprocess.run(["fc-list"], capture_output=True, text=True, check=False).stdout
    return ""


if __name__ == "__main__":
    raise SystemExit(main())
