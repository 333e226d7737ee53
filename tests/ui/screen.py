"""The app on fakes, and its screen as text."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from textual.app import App
from textual.pilot import Pilot

from mpstui.config import load_themes
from mpstui.core.model import Snapshot
from mpstui.ui.app import MpsTuiApp
from mpstui.ui.theme import build_themes

from .fakes import FakeCollector, FakeRunner


def make_app(snapshot: Snapshot | None, *, read_only: bool = False, theme: str = "mpstui-dark", **options) -> MpsTuiApp:
    themes = build_themes(load_themes()[0])
    collector = FakeCollector(snapshot)
    return MpsTuiApp(collector, FakeRunner(read_only=read_only), themes=themes, theme=theme, **options)


def text_of(app: App[Any]) -> str:
    """What is on the screen, one line a row."""
    return "\n".join(strip.text for strip in app.screen._compositor.render_strips())


async def push(pilot: Pilot[Any], snapshot: Snapshot) -> str:
    """Have the collector see something new; what is on the screen then."""
    pilot.app.collector.push(snapshot)
    await pilot.pause()
    return text_of(pilot.app)


async def until(pilot: Pilot[Any], condition: Callable[[], object], seconds: float = 120.0) -> None:
    """Let the app work until the condition holds. Raises TimeoutError with what is on the screen."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(text_of(pilot.app))
        await pilot.pause()
