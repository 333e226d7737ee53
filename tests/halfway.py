"""Processes that are half started for as long as a test needs."""

from __future__ import annotations

import asyncio
from asyncio.base_events import BaseEventLoop
from dataclasses import dataclass, field
from typing import Any

import pytest


@dataclass
class HalfStarted:
    begun: asyncio.Event = field(default_factory=asyncio.Event)
    """A process is half started now."""
    cancelled: int = 0
    """Starts that were cancelled half-way: before Python 3.12 asyncio may wait for ever for one of them."""


def start_slowly(monkeypatch: pytest.MonkeyPatch) -> HalfStarted:
    """From here on asyncio takes a thousand turns of its loop to start a process."""
    seen, start = HalfStarted(), BaseEventLoop.subprocess_exec

    async def slowly(*words: Any, **options: Any) -> Any:
        seen.begun.set()
        try:
            for _ in range(1000):
                await asyncio.sleep(0)
        except asyncio.CancelledError:
            seen.cancelled += 1
            raise
        return await start(*words, **options)

    monkeypatch.setattr(BaseEventLoop, "subprocess_exec", slowly)
    return seen
