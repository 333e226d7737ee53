"""What a step of the check found: written to a file as it comes, so that a step that is cut off loses nothing."""

from __future__ import annotations

import json
import math
import statistics
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any


class Report:
    """Values and checks of one step. ``check`` never raises: one that fails is recorded and the step goes on."""

    def __init__(self, file: Path, step: str) -> None:
        self.file = file
        self.started = time.monotonic()
        self.data: dict[str, Any] = {"step": step, "finished": False, "checks": [], "values": {}}
        self._write()

    def value(self, name: str, value: Any) -> None:
        """Keep a measured value."""
        self.data["values"][name] = value
        print(f"  {name}: {value}", flush=True)
        self._write()

    def check(self, name: str, good: bool, detail: object = "") -> bool:
        """Keep whether something that must hold does."""
        self.data["checks"].append({"name": name, "ok": bool(good), "detail": str(detail)})
        print(f"  {'ok  ' if good else 'FAIL'} {name}{f': {detail}' if detail != '' else ''}", flush=True)
        self._write()
        return bool(good)

    def attempt(self, name: str, work: Callable[[], Any]) -> Any:
        """Do a part of the step; an error fails that part alone. What it returns, or None."""
        try:
            return work()
        except Exception as error:
            traceback.print_exc()
            self.check(name, False, f"{type(error).__name__}: {str(error)[:6000]}")
            return None

    def finish(self) -> None:
        """The step came to its end."""
        self.data["finished"] = True
        self._write()

    def _write(self) -> None:
        self.data["seconds"] = round(time.monotonic() - self.started, 1)
        self.file.write_text(json.dumps(self.data, indent=1, ensure_ascii=False, default=str) + "\n")


def milliseconds(seconds: Sequence[float]) -> dict[str, float | int | list[float]]:
    """Median, 95th percentile (nearest rank) and all, in milliseconds."""
    ordered = sorted(round(1000 * value, 1) for value in seconds)
    return {
        "count": len(ordered),
        "median": round(statistics.median(ordered), 1),
        "p95": ordered[math.ceil(len(ordered) * 0.95) - 1],
        "all": ordered,
    }
