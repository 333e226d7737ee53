"""Lists of CPUs as ``taskset`` writes them: ``0-3,8``."""

from __future__ import annotations

from collections.abc import Collection

from mpstui.core.late import pattern
from mpstui.core.text import printable
from mpstui.plan.amounts import PlanError

_PART = pattern(r"(?P<first>[0-9]{1,4})(-(?P<last>[0-9]{1,4}))?")
CPU_LIMIT = 4096


def cpu_list(text: str) -> frozenset[int]:
    """The CPUs of ``0-3,8``. Raises PlanError; whether the machine has them is not looked at."""
    found: set[int] = set()
    for part in text.split(","):
        match = _PART.fullmatch(part.strip())
        first = int(match["first"]) if match else 0
        last = int(match["last"] or first) if match else -1
        if not first <= last < CPU_LIMIT:
            raise PlanError(f"“{printable(text, 60)}” is no list of CPUs, as 0-3,8")
        found |= set(range(first, last + 1))
    return frozenset(found)


def cpu_text(cpus: Collection[int]) -> str:
    """``0-3,8``."""
    parts: list[str] = []
    ordered = sorted(cpus)
    while ordered:
        run = next((i for i, cpu in enumerate(ordered) if cpu != ordered[0] + i), len(ordered))
        parts.append(str(ordered[0]) if run == 1 else f"{ordered[0]}-{ordered[run - 1]}")
        ordered = ordered[run:]
    return ",".join(parts)
