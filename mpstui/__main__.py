"""The program: ``mpstui``, and ``python -m mpstui``."""

from __future__ import annotations

import gc
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:  # see observe/ahead.py
    from typing import Any


def main() -> int:
    """Run it; returns the exit status. No traceback is shown of a mistake of its own either."""
    try:
        return _main()
    except Exception as error:
        from mpstui.cli.output import mistake

        return mistake(error)


def _main() -> int:
    """Run it.

    While it is imported nothing is collected, as nothing of it is garbage: a seventh of the processor time of that
    (0.151 and 0.137 s, 0.142 and 0.115 s; the least of 15 runs each on a busy machine, 2026-11-21). A command that
    reads once and ends collects nothing at all, nor does Python at its end: the system takes it all back.
    """
    gc.disable()
    if "--health" in sys.argv:
        from mpstui.doctor import health

        if (asked := health.directories(sys.argv[1:])) is not None:
            return health.tell(health.probe(*asked))
    once = sys.argv[1:2] and sys.argv[1] in _READ_ONCE and "--watch" not in sys.argv
    if once:
        from mpstui.observe.ahead import begin_ahead

        begin_ahead()
    _leave_out_tls()
    from mpstui.cli import main as run

    gc.freeze()
    if not once:
        gc.enable()
    try:
        return run()
    finally:
        gc.freeze()


_READ_ONCE = frozenset({"set", "status", "terminate"})
"""Commands that begin with one reading of NVML, and end."""


def _leave_out_tls() -> None:
    """Import asyncio as on a Python without TLS, which nobody here speaks but the exporter.

    It saves 4 MiB of memory and 9 ms of processor time (medians of 20 alternating runs, 2026-11-21: ``status`` 24.5
    instead of 28.8 MiB and 193 instead of 201 ms, the screen's first picture 38.2 instead of 42.1 MiB and 298 instead
    of 307 ms). Only here, where the process is mpstui's own: whoever imports mpstui has all of asyncio.
    """
    modules: dict[str, Any] = sys.modules
    if "asyncio" in modules or "ssl" in modules or "exporter" in sys.argv:
        return
    modules["ssl"] = None
    try:
        import asyncio  # noqa: F401
    finally:
        del modules["ssl"]


if __name__ == "__main__":
    sys.exit(main())
