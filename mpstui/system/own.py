"""Programs of mpstui's own that run as processes of their own."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
"""Where mpstui is to be found."""
OURS_ALONE: Final = "import sys; sys.path = [*filter(None, sys.path), sys.argv.pop(1)]; "
"""Before anything else is imported: what Python is given by ``-c`` or ``-m`` looks for every module in the current
directory first, which may be another user's."""
_RUN: Final = (
    f"{OURS_ALONE}del sys.argv[0]; from importlib import import_module; sys.exit(import_module(sys.argv[0]).main())"
)


def own_program(module: str, *words: str) -> tuple[str, ...]:
    """The command that runs ``main`` of a module of mpstui, with these words."""
    return (sys.executable, "-c", _RUN, os.fspath(ROOT), module, *words)
