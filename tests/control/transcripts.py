"""Reads the recorded transcripts: every command with what it printed."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

DATA = Path(__file__).parent.parent / "data"
_COMMAND = re.compile(r">>> (?P<command>.*?)   \[rc=(?P<exit_status>\d+) (?P<microseconds>\d+) us\]")


@dataclass(frozen=True, slots=True)
class Recorded:
    """One recorded command. Exit status 124 is the recorder's own deadline: the daemon had not answered."""

    place: str
    command: str
    stdout: bytes
    stderr: bytes
    exit_status: int


def recorded(name: str) -> list[Recorded]:
    """The commands of ``tests/data/<name>.txt`` in order."""
    found: list[tuple[str, str, int, list[str], list[str]]] = []
    out: list[str] | None = None
    for number, line in enumerate((DATA / f"{name}.txt").read_text().splitlines(), start=1):
        match = _COMMAND.fullmatch(line)
        if match is not None:
            out, err = [], []
            found.append((f"{name}:{number}", match["command"], int(match["exit_status"]), out, err))
        elif out is not None and line.startswith("out| "):
            out.append(line[5:])
        elif out is not None and line.startswith("err| "):
            err.append(line[5:])
        else:
            out = None
    return [
        Recorded(place, command, _text(stdout), _text(stderr), exit_status)
        for place, command, exit_status, stdout, stderr in found
    ]


def _text(lines: list[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()
