"""The app on fakes, and its screen as text."""

from __future__ import annotations

from mpstui.config import load_themes
from mpstui.model import Snapshot
from mpstui.ui.app import MpsTuiApp
from mpstui.ui.theme import build_themes

from .fakes import FakeCollector, FakeRunner


def make_app(snapshot: Snapshot | None, *, read_only: bool = False, theme: str = "mpstui-dark", **options) -> MpsTuiApp:
    themes = build_themes(load_themes()[0])
    collector = FakeCollector(snapshot)
    return MpsTuiApp(collector, FakeRunner(read_only=read_only), themes=themes, theme=theme, **options)


def text_of(app: MpsTuiApp) -> str:
    """What is on the screen, one line a row."""
    return "\n".join(strip.text for strip in app.screen._compositor.render_strips())
