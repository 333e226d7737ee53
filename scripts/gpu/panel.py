"""The load panel on a node: started and worked from its keys, drawn and recorded."""

from __future__ import annotations

import codecs
import json
import re
import subprocess
import sys
import time
from pathlib import Path

from drive import Screen
from node import Node
from report import Report
from terminal import COLUMNS, LINES

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from screenshots import Album

SHARES = re.compile(r"\d+(?:\.\d+)? TFLOP/s")


class Recording(Screen):
    """A screen that keeps when each byte came."""

    def __init__(self, pipe_dir: Path) -> None:
        self.frames: list[tuple[float, bytes]] = []
        super().__init__(pipe_dir)

    def read(self, timeout: float) -> int:
        before = len(self.bytes)
        size = super().read(timeout)
        if size:
            self.frames.append((time.monotonic() - self.started, bytes(self.bytes[before:])))
        return size

    def asciicast(self) -> str:
        """The recording in version 2 of asciinema's format."""
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        header = {"version": 2, "width": COLUMNS, "height": LINES, "env": {"TERM": "xterm-256color"}}
        frames = [json.dumps([round(at, 3), "o", decoder.decode(data)]) for at, data in self.frames]
        return "\n".join([json.dumps(header), *frames]) + "\n"


def tour(report: Report, node: Node, out: Path) -> None:
    """Four clients with even shares; the first one's share is grown and shrunk while it runs; all are stopped."""
    album = Album(out, "real-", png=False)
    with Recording(node.pipe_dir) as screen:
        screen.wait_for(re.compile(r"● ok"), 20)
        screen.key("L")
        screen.wait_for("even shares", 10)
        screen.key("enter")
        screen.wait_for(lambda terminal: len(SHARES.findall(terminal.text)) >= 4, 60)
        screen.read_for(6)
        album.take(screen, "load-even")
        for key in ("right",) * 3 + ("left",) * 6:
            screen.key(key)
            screen.read_for(1.5)
        album.take(screen, "load-moved")
        screen.key("X")
        screen.read_for(3)
        screen.key("escape")
        screen.wait_quiet()
        status = screen.leave()
        (out / "real-load.cast").write_text(screen.asciicast())
    report.check("the panel is left with status 0 and no process", status == 0 and not screen.descendants(), status)
    report.value("GPU processes after the panel; the server stays", _gpu_processes())


def _gpu_processes() -> str:
    query = ["nvidia-smi", "--query-compute-apps=pid,name", "--format=csv,noheader"]
    try:
        return subprocess.run(query, capture_output=True, text=True, timeout=20, check=False).stdout.strip()
    except OSError:
        return ""
