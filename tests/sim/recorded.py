"""Reads the recordings of a real daemon and brings a simulated one's words into their terms."""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from mpstui.sim.marker import control_binary
from mpstui.sim.node import SimNode

DATA = Path(__file__).parent.parent / "data"
NAMESPACE = 4026531836
_HEAD = re.compile(r"^\[[0-9: .-]{23} (\w+) +(\d+)\] ?")
_GARBAGE = re.compile(r"(Received new client request for) \{.*\}")


@dataclass(frozen=True)
class Command:
    """A recorded one-shot command and its answer."""

    line: str
    status: int
    stdout: list[str]
    stderr: list[str]


@dataclass(frozen=True)
class Note:
    """Anything else in a recording: a section's title or what a client printed."""

    text: str


def read_transcript(path: Path) -> Iterator[Command | Note]:
    lines = path.read_text().splitlines()
    position = 0
    while position < len(lines):
        line = lines[position]
        position += 1
        match = re.fullmatch(r">>> (.*?)   \[rc=(\d+) \d+ us\]", line)
        if match is None:
            yield Note(line)
            continue
        streams: dict[str, list[str]] = {"out": [], "err": []}
        while position < len(lines) and (answer := re.fullmatch(r"(out|err)\| (.*)", lines[position])):
            streams[answer[1]].append(answer[2])
            position += 1
        yield Command(match[1], int(match[2]), streams["out"], streams["err"])


def one_shot(node: SimNode, line: str | bytes) -> subprocess.CompletedProcess[bytes]:
    data = line.encode() if isinstance(line, str) else line
    environment = {"CUDA_MPS_PIPE_DIRECTORY": str(node.pipe_dir)}
    return subprocess.run(
        control_binary(), input=data + b"\n", capture_output=True, env=environment, timeout=120, check=False
    )


def rename_pids(text: str, names: Mapping[int, int]) -> str:
    """``text`` with the simulated PIDs replaced by the recorded ones, columns kept where there are any."""

    def renamed(match: re.Match[str]) -> str:
        name = str(names[int(match[1])])
        return name.ljust(len(match[0])) if match[2] else name

    pids = "|".join(str(pid) for pid in sorted(names, reverse=True))
    return re.sub(rf"(?<![\w-])({pids})(?!\d)( {{2,}})?", renamed, text) if names else text


def log_lines(text: str, names: Mapping[int, int] | None = None) -> list[str]:
    """Lines as ``Control 480 Cmd:ps``: without time and padding, and without what a real server made of old memory."""
    lines = []
    for line in text.splitlines():
        head = _HEAD.match(line)
        body = line[head.end() :] if head else line
        prefix = f"{head[1]} {rename_pids(head[2], names or {})} " if head else ""
        lines.append(prefix + _GARBAGE.sub(r"\1", rename_pids(body, names or {})).rstrip())
    return lines


def between(lines: Iterable[str], first: str, last: str) -> list[str]:
    """The lines from the first that contains ``first`` to the next that contains ``last``."""
    found: list[str] = []
    for line in lines:
        if found or first in line:
            found.append(line)
            if last in line:
                return found
    raise AssertionError(f"no lines from {first!r} to {last!r}")


def eventually(condition: Callable[[], object], timeout: float = 120.0) -> None:
    """Waits until the condition holds; looks often and gives up after ``timeout`` seconds."""
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true in time"
        time.sleep(0.005)
