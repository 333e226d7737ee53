"""mpstui with the CPU column of every client different each second: the worst case of the benchmark."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import mpstui.node
from mpstui.cli import main
from mpstui.observe.sources import NodeSources, ProcessSource
from mpstui.system.procfs import ProcessFacts

open_node = mpstui.node.open_node


class RestlessProcesses:
    """Between 10 and 90 % of a core, another figure for each client and each second."""

    def __init__(self, processes: ProcessSource) -> None:
        self._processes = processes

    def facts(self, pids: Iterable[int]) -> dict[int, ProcessFacts]:
        now = time.time()
        facts = self._processes.facts(pids)
        return {pid: replace(found, cpu_seconds=_spent(pid, now)) for pid, found in facts.items()}


def _spent(pid: int, now: float) -> float:
    """CPU seconds that never go down and grow unevenly."""
    second = int(now)
    return 0.5 * now + 0.4 * (hash((pid, second)) % 97) / 97


def open_restless_node(*args: Sequence[Path], **options: Mapping[str, str]) -> tuple[NodeSources, tuple[Path, ...]]:
    """``mpstui.node.open_node`` with restless processes."""
    sources, dirs = open_node(*args, **options)  # type: ignore[arg-type]
    return replace(sources, processes=RestlessProcesses(sources.processes)), dirs


mpstui.node.open_node = open_restless_node  # type: ignore[assignment]

if __name__ == "__main__":
    raise SystemExit(main())
