#!/usr/bin/env python3
"""Makes screenshots/animation.svg: a minute of mpstui on a simulated node, played by a README in any browser.

    scripts/animation.py [--out FILE]

A client is looked at, the GPU is divided live, a client is ended without harm to others, a fault comes and is rescued.
Each row of the screen is drawn once for each thing that it shows, with the times at which it does: no picture is kept
twice. Needs what scripts/screenshots.py needs for SVG.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
import time
from html import escape
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parent / "gpu"))
from drive import Screen
from screen_svg import FONT_SIZE, FONTS, HEIGHT, WIDTH, ground_of, row_svg
from terminal import Timeout

from mpstui.sim.node import SimNode
from mpstui.sim.scenario import Job

ROOT = Path(__file__).resolve().parents[1]
COLUMNS, LINES = 80, 24
GIB = 1 << 30
JOBS = (
    Job("alice", 2001, "python train.py --model vit-b16", behaviour="faulting", memory=6 * GIB, linger=None),
    Job("bob", 2002, "vllm serve meta-llama/Llama-3.1-8B", memory=19 * GIB, linger=None),
    Job("carol", 2003, "gmx mdrun -deffnm md", memory=2 * GIB, linger=None),
    Job("dave", 2004, "python notebook.py", behaviour="idle", memory=GIB, linger=None),
)
CAPTION = 1
"""Rows below the screen, which say what is being done."""


class Film:
    """What stood in each row, from when to when; its time is that of the film, in which waiting is cut."""

    def __init__(self, screen: Screen) -> None:
        self.screen = screen
        self.now = 0.0
        self.caption = ""
        buffer = screen.screen.buffer
        self.ground = ground_of([[buffer[y][x] for x in range(COLUMNS)] for y in range(LINES)])
        self.shots: list[tuple[float, list[str]]] = []

    def take(self, seconds: float) -> None:
        """What is on the screen now stays for so long."""
        buffer = self.screen.screen.buffer
        rows = [row_svg([buffer[y][x] for x in range(COLUMNS)], y, self.ground) for y in range(LINES)]
        text = f'<text x="{WIDTH}" y="{(LINES + 1) * HEIGHT - 4:g}" fill="#f5c542" font-weight="bold">'
        rows.append(f"{text}{escape(self.caption)}</text>")
        self.shots.append((self.now, rows))
        self.now += seconds

    def live(self, seconds: float, every: float = 1.0) -> None:
        """So long, with what changes meanwhile."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            self.take(min(every, left))
            self.screen.read_for(min(every, left))

    def key(self, *names: str, wait: str | re.Pattern[str] | None = None, stay: float = 0.6) -> None:
        """Press keys, and show what comes of them."""
        for name in names:
            self.screen.key(name)
            if wait is not None:
                self.screen.wait_for(wait, 60)
            self.screen.wait_quiet()
            self.take(stay)

    def type(self, text: str) -> None:
        """Letter by letter."""
        for letter in text:
            self.screen.send(letter)
            self.screen.wait_quiet()
            self.take(0.25)

    def svg(self) -> str:
        """The film, over and over."""
        spans: dict[str, list[tuple[float, float]]] = {}
        for number, (begin, rows) in enumerate(self.shots):
            end = self.shots[number + 1][0] if number + 1 < len(self.shots) else self.now
            for row in rows:
                if not row or end - begin <= 0:
                    continue
                known = spans.setdefault(row, [])
                if known and abs(known[-1][1] - begin) < 1e-6:
                    known[-1] = known[-1][0], end
                else:
                    known.append((begin, end))
        width, height = COLUMNS * WIDTH, (LINES + CAPTION) * HEIGHT
        parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}">',
            "<title>mpstui: a minute on a simulated node</title>",
            f'<rect width="{width:g}" height="{height:g}" fill="{self.ground}"/>',
            f'<g font-family="{FONTS}" font-size="{FONT_SIZE}" xml:space="preserve">',
        ]
        for row, times in spans.items():
            shown = self._shown(times)
            hidden = ' visibility="hidden"' if shown else ""
            parts.append(f"<g{hidden}>{row}{shown}</g>")
        return "\n".join([*parts, "</g>", "</svg>"]) + "\n"

    def _shown(self, times: list[tuple[float, float]]) -> str:
        """When it is seen; nothing where it always is."""
        if times == [(0.0, self.now)]:
            return ""
        keys: list[tuple[float, str]] = [] if times[0][0] == 0 else [(0.0, "hidden")]
        for begin, end in times:
            keys.append((begin, "visible"))
            if end < self.now:
                keys.append((end, "hidden"))
        values = ";".join(value for _, value in keys)
        moments = ";".join(f"{moment / self.now:.4g}" for moment, _ in keys)
        return (
            f'<animate attributeName="visibility" calcMode="discrete" dur="{self.now:.1f}s" '
            f'repeatCount="indefinite" values="{values}" keyTimes="{moments}"/>'
        )


def yes(film: Film, button: str) -> None:
    """From wherever the dialog is to its button, not the safe one, and what comes of it."""
    chosen = re.compile(rf"▸ (?!Cancel){button}")
    for _ in range(6):
        if chosen.search("\n".join(film.screen.text.splitlines()[-8:])):
            break
        film.key("tab", stay=0.6)
    else:
        raise Timeout(f"there is no button {button}\n{film.screen.text}")
    film.take(1)
    film.key("enter", wait=re.compile(r"[✓✗] \S"), stay=3)
    film.screen.wait_for("Close", 60)
    film.take(1)
    film.key("escape", stay=0.5)


def play(node: SimNode, film: Film, faulty: object, pids: list[int]) -> None:
    """Look, divide, end, fault, rescue."""
    screen = film.screen
    film.caption = "look: who is on which GPU, with how much, and what holds for them"
    film.live(4)
    film.key("j", "j", stay=0.5)
    film.key("enter", wait=str(pids[2]), stay=3)
    film.key("escape", stay=0.5)
    film.caption = "divide live: new clients get 25 % of the SMs; nobody is restarted"
    film.key("l", wait="Nothing is sent before Apply", stay=2.5)
    film.type("25")
    film.take(2.5)
    yes(film, "Apply")
    JOBS[2].spawn(node)
    film.live(3)
    film.caption = "end one client without harm to the others; what it hits is said first"
    film.key("g", "j", "j", "j", stay=0.3)
    film.key("K", wait="Cancel", stay=3)
    yes(film, "")
    film.live(2)
    film.caption = "a fatal fault: all clients on that GPU are lost, new ones are refused"
    faulty.tell("fault")  # type: ignore[attr-defined]
    screen.wait_for(re.compile("✕ FAULT"), 60)
    screen.wait_quiet()
    film.live(3)
    film.key("!", wait="server", stay=4)
    film.key("escape", stay=0.6)
    film.caption = "rescue: end whom the fault has hit; then the server takes clients again"
    film.key("e", wait="Cancel", stay=3)
    yes(film, "")
    node.reap()
    JOBS[1].spawn(node)
    film.live(4)
    film.caption = "and back in time: < steps to the event before, T goes to a time, End to now"
    film.key("<", wait="PAST", stay=1.2)
    film.key("<", "<", "<", stay=1.2)
    film.key("end", stay=2)


def main() -> int:
    """The animation."""
    parser = argparse.ArgumentParser(description="Make the animation of the README.")
    parser.add_argument("--out", type=Path, default=ROOT / "screenshots" / "animation.svg")
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="mps_", ignore_cleanup_errors=True) as folder,
        SimNode.start(Path(folder), multiuser=True) as node,
    ):
        clients = [job.spawn(node) for job in JOBS]
        pids = [client.pid for client in clients]
        with Screen(node.pipe_dir, "--fresh", columns=COLUMNS, lines=LINES) as screen:
            screen.wait_clients(pids)
            screen.read_for(3)
            film = Film(screen)
            play(node, film, clients[0], pids)
            options.out.write_text(film.svg(), encoding="utf-8")
            screen.leave()
    size = options.out.stat().st_size
    print(f"{options.out}: {film.now:.0f} s, {len(film.shots)} pictures, {size >> 10} KiB")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
