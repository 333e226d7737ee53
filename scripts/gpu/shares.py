"""The load panel worked from its keys beside a daemon: a share moved from 8 SMs to all and back, the figures read."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

from drive import Screen
from terminal import Timeout

CLIENTS = 2
MOVED = 1
"""The client whose share is moved; the other one keeps its own."""
SMALLEST = 8
COLUMNS = ("SMs", "keys", "TFLOP/s", "the other client (SMs, TFLOP/s)", "the panel says", "last key to screen")
_SETTLE = 1.5
"""Seconds for a figure after a move: reports come four times a second."""


def client(text: str, number: int) -> tuple[int, float] | None:
    """SMs and TFLOP/s that the panel shows for a client; None where it does not show both."""
    found = re.search(rf"[▸ ] {number}  \d+ [^\n]*?([\d.,]+) TFLOP/s[^\n]*\n[^\n]*?(?:→ )?(\d+) SM", text)
    return (int(found[2]), float(found[1].replace(",", ""))) if found else None


def work(pipe_dir: Path, log_dir: Path, out: Path) -> dict[str, Any]:
    """Start two clients, move a share, stop, quit; what was seen. Raises Timeout and RuntimeError where it went wrong.

    What the screen showed at each step is written to ``out`` as text, also of a step that failed.
    """
    seen: dict[str, Any] = {"moves": []}
    with Screen(pipe_dir, "--log-dir", str(log_dir)) as screen:
        try:
            _start(screen, out)
            total = _move(screen, "right", None, seen, out)
            for key, wanted in (("left", SMALLEST), ("right", total), ("left", SMALLEST), ("right", total)):
                _move(screen, key, wanted, seen, out)
            screen.key("X")
            screen.wait_for("nothing runs", 40)
            _keep(screen, out, "stopped")
            screen.key("escape")
            screen.wait_quiet()
            seen["status"] = screen.leave()
        finally:
            _keep(screen, out, "last")
        seen["left"] = screen.descendants()
    if seen["status"] != 0 or seen["left"]:
        raise RuntimeError(f"the panel was left with status {seen['status']} and processes {seen['left']}")
    return seen


def rows(seen: dict[str, Any]) -> list[tuple[str, ...]]:
    """A table's rows of what ``work`` saw, under ``COLUMNS``."""
    found = []
    for move in seen["moves"]:
        times = (move["panel_says_ms"], move["last_key_to_screen_ms"])
        figures = f"{move['figure_before']} → {move['figure']}"
        others = "; ".join(f"{sms}, {figure}" for sms, figure in filter(None, move["others"]))
        told, came = ("—" if value is None else f"{value} ms" for value in times)
        found.append((f"{move['from']} → {move['to']}", str(move["presses"]), figures, others, told, came))
    return found


def _start(screen: Screen, out: Path) -> None:
    screen.wait_for(re.compile("● ok"), 30)
    screen.key("L")
    screen.wait_for("even shares", 10)
    screen.press_until("right", "30 : 70", 3)
    screen.key("enter")
    screen.wait_for(lambda s: all(client(s.text, number) for number in range(1, CLIENTS + 1)), 60)
    screen.wait_for("←→ move the share", 10)
    _keep(screen, out, "started")


def _move(screen: Screen, key: str, wanted: int | None, seen: dict[str, Any], out: Path) -> int:
    """Press a key until the share is ``wanted``, or goes no further; the share that it has then."""
    before = _shown(screen)
    presses, pressed = 0, time.monotonic()
    while (here := _shown(screen))[0] != wanted:
        if presses == 40:
            raise Timeout(f"client {MOVED} is at {here[0]} SMs after {presses} presses\n{screen.text}")
        pressed = screen.key(key)
        presses += 1
        try:
            screen.wait_for(lambda s, last=here[0]: _at(s) != last, 2.0)
        except Timeout:
            if wanted is None:
                break
            raise
    shown = time.monotonic()
    screen.read_for(_SETTLE)
    sms, figure = _shown(screen)
    told = re.search(r"moved in (\d+) ms", screen.text)
    seen["moves"].append(
        {
            "from": before[0],
            "to": sms,
            "presses": presses,
            "figure_before": before[1],
            "figure": figure,
            "others": [client(screen.text, n) for n in range(1, CLIENTS + 1) if n != MOVED],
            "panel_says_ms": int(told[1]) if told else None,
            "last_key_to_screen_ms": round((shown - pressed) * 1000) if wanted is not None else None,
            "gpu": re.findall(r"(GPU-Util|SMs busy|occupancy|DRAM) [^\n]*?(\d+) %", screen.text),
        }
    )
    _keep(screen, out, f"{len(seen['moves'])}-at-{sms}")
    return sms


def _at(screen: Any) -> int | None:
    found = client(screen.text, MOVED)
    return found[0] if found else None


def _shown(screen: Screen) -> tuple[int, float]:
    screen.wait_for(lambda s: client(s.text, MOVED), 10)
    found = client(screen.text, MOVED)
    assert found is not None
    return found


def _keep(screen: Screen, out: Path, name: str) -> None:
    (out / f"panel-{name}.txt").write_text(screen.text + "\n")
