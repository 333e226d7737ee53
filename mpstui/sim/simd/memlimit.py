"""Pinned memory limits as a real daemon reads and prints them, seen on an H100 with driver 580 (fact 26)."""

from __future__ import annotations

import re
from collections.abc import Sequence

from .config import Gpu, ordinal

_NUMBER = re.compile(r"\s*([+-]?[0-9]+)(.?)")


def read_limit(text: str) -> int:
    """Bytes of what was typed; 0, for what is no number too, is no limit.

    The number ends at the first other character, and that one is the unit where it is a G; everything else counts as M:
    ``512MB`` and ``512K`` are 512M, ``1.5G`` and ``1T`` are 1M, ``-1G`` is 2⁶⁴ less 1G.
    """
    match = _NUMBER.match(text)
    if match is None:
        return 0
    return (int(match[1]) << (30 if match[2] in {"G", "g"} else 20)) % (1 << 64)


def limit_text(size: int) -> str:
    """In whole G from 1G on, rounded down, below in M: ``1024M`` reads back as ``1G``, ``56704M`` as ``55G``."""
    return f"{size >> 20}M" if size < 1 << 30 else f"{size >> 30}G"


def environment_limits(text: str, gpus: Sequence[Gpu]) -> dict[str, int]:
    """CUDA_MPS_PINNED_DEVICE_MEM_LIMIT in bytes by ordinal. An entry for a device that is not visible, and one without
    a device, drops all of them (fact 43)."""
    found: dict[str, int] = {}
    for entry in text.split(",") if text else ():
        name, equals, size = entry.partition("=")
        device = ordinal(gpus, name.strip())
        if not equals or not device.isdigit() or int(device) >= len(gpus):
            return {}
        found[str(int(device))] = read_limit(size.strip())
    return {device: size for device, size in found.items() if size}
