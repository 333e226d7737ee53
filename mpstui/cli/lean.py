"""asyncio, imported without TLS, which nobody here speaks: 4 MiB of memory and 5 ms of the start less."""

from __future__ import annotations

import sys
from typing import Any, cast

_modules = cast("dict[str, Any]", sys.modules)
_without = "asyncio" not in _modules and "ssl" not in _modules
if _without:
    _modules["ssl"] = None  # asyncio then takes this for a Python without it
try:
    import asyncio
finally:
    if _without:
        del _modules["ssl"]

__all__ = ["asyncio"]
