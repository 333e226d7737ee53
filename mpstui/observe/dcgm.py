"""SM activity, occupancy and DRAM of devices of which NVML tells none (before Hopper), as DCGM has them.

``dcgmi`` is asked in the background, and where the configuration says so alone: while DCGM counts, no other profiler
can. What it prints is documented by its vendor; it was never tried here on a machine that has it.
"""

from __future__ import annotations

import math
import os
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from mpstui.core.late import pattern
from mpstui.observe.trusted import NotTrustedError, judge_directory

EVERY: Final = 10.0
"""Seconds from the end of one look to the next."""
LASTS: Final = 30.0
"""Seconds for which a reading is shown."""
DEADLINE: Final = 8.0
_MOST: Final = 256 << 10
_FIELDS: Final = "1002,1003,1005"
"""SM activity, SM occupancy, DRAM: their short names are those of ``_TAGS``."""
_TAGS: Final = ("SMACT", "SMOCC", "DRAMA")
_GPU: Final = pattern(r"\s*GPU\s+(\d{1,4})\s+(\S.*)")
_ID: Final = pattern(r"\|?\s*(?:GPU ID:\s*)?(\d{1,4})\s*(?:\|.*)?$")
_UUID: Final = pattern(r"Device UUID:\s*(GPU-[0-9a-fA-F-]{1,60})\b")


class Meters(NamedTuple):
    """Percent of the device; None where DCGM does not tell."""

    sm_utilization: float | None = None
    sm_occupancy: float | None = None
    dram_utilization: float | None = None


def program(path: str | None = None) -> Path | None:
    """``dcgmi`` of PATH, where nobody but root can have put it there or changed it; None otherwise."""
    found = shutil.which("dcgmi", path=path)
    if found is None:
        return None
    real = Path(os.path.realpath(found))
    try:
        judge_directory(real.parent, {0})
        state = os.lstat(real)
    except (NotTrustedError, OSError):
        return None
    return real if state.st_uid == 0 and not state.st_mode & 0o022 else None


def devices_in(text: str) -> dict[str, str]:
    """UUIDs by DCGM's own numbers, of ``dcgmi discovery -l``."""
    found: dict[str, str] = {}
    number: str | None = None
    for line in text.splitlines():
        if (named := _ID.match(line)) is not None:
            number = named[1]
        elif number is not None and (uuid := _UUID.search(line)) is not None:
            found[number] = uuid[1]
    return found


def meters_in(text: str) -> dict[str, Meters]:
    """The last reading of each device by DCGM's own numbers, of ``dcgmi dmon``: ratios below their short names."""
    found: dict[str, Meters] = {}
    heads: list[str] = []
    for line in text.splitlines():
        if line.lstrip().startswith("#"):
            heads = [word for word in line.replace("#", " ").split() if not word.startswith("Entity")]
        elif (row := _GPU.match(line)) is not None and set(_TAGS) <= set(heads):
            values = dict(zip(heads, row[2].split(), strict=False))
            read = Meters(*(_percent(values.get(tag, "")) for tag in _TAGS))
            if any(value is not None for value in read):
                found[row[1]] = read
    return found


def _percent(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return 100 * value if 0 <= value <= 1.001 else None  # not a number is not in it either


class Dcgm:
    """What ``dcgmi`` told last. A reader never waits for it."""

    def __init__(self, binary: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._binary = binary
        self._clock = clock
        self._lock = threading.Lock()
        self._known: Mapping[str, Meters] = {}
        self._devices: Mapping[str, str] = {}
        self._read_at = -math.inf
        self._due = -math.inf
        self._looking: threading.Thread | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._closed = False

    def read(self, uuid: str) -> Meters:
        """Of this device; all None where nothing was told for a while. Has the next look taken where it is time."""
        with self._lock:
            now = self._clock()
            if self._looking is None and now >= self._due and not self._closed:
                self._looking = threading.Thread(target=self._look, name="dcgmi", daemon=True)
                self._looking.start()
            fresh = now - self._read_at <= LASTS
            return self._known.get(uuid, Meters()) if fresh else Meters()

    def close(self) -> None:
        """End a look that is under way."""
        with self._lock:
            self._closed = True
            self._end()

    def _look(self) -> None:
        devices = self._devices or devices_in(self._ask("discovery", "-l"))
        # Two readings: the first one after a field is asked for may be N/A.
        told = meters_in(self._ask("dmon", "-e", _FIELDS, "-d", "1000", "-c", "2")) if devices else {}
        with self._lock:
            now = self._clock()
            if told:
                self._known, self._read_at = {devices[n]: each for n, each in told.items() if n in devices}, now
            self._devices = devices if told else {}
            self._due, self._looking = now + EVERY, None

    def _ask(self, *words: str) -> str:
        """What it printed; nothing where it failed or took too long."""
        try:
            with self._lock:
                if self._closed:
                    return ""
                process = self._process = subprocess.Popen(
                    [self._binary, *words],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    env={"PATH": "/usr/bin:/bin", "LC_ALL": "C"},
                    start_new_session=True,
                )
        except OSError:
            return ""
        late = threading.Timer(DEADLINE, self._end)
        late.start()
        try:
            with process:
                raw = b"" if process.stdout is None else process.stdout.read(_MOST + 1)
                if len(raw) > _MOST:
                    self._end()
                    return ""
            return raw.decode("utf-8", "replace") if process.returncode == 0 else ""
        finally:
            late.cancel()
            self._process = None

    def _end(self) -> None:
        """Its whole session, which holds the pipe open; only as long as it has not been waited for."""
        process = self._process
        if process is not None and process.returncode is None:
            try:
                os.killpg(process.pid, 9)
            except OSError:
                return
