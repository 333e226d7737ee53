"""The program itself, writing down which key reaches what. Arguments: the file to write to, then mpstui's own.

F5 to F10 go to a screen (see ``BASES``), whatever is open; F3 and F4 tell where a key would go now. Nothing quits.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Any

from typed import BASES, TELLS

import mpstui.ui.app as app_module
from mpstui.cli import main


class Recorder(app_module.MpsTuiApp):
    """One line of JSON for each key, written when it is handed to what takes it."""

    def write(self, **what: object) -> None:
        os.write(_file, (json.dumps(what) + "\n").encode())

    def place(self) -> str:
        focused = self.screen.focused
        return type(self.screen).__name__ + (f" {type(focused).__name__} {focused.id}" if focused is not None else "")

    async def _check_bindings(self, key: str, priority: bool = False) -> bool:
        if not priority:
            return await super()._check_bindings(key, priority)
        if key in TELLS:
            self.write(tell=self.place(), by=key)
            return True
        if key in BASES.values():
            self.run_worker(self.go_to(next(name for name in BASES if BASES[name] == key)))
            return True
        self.write(key=key, to=self.place())
        return await super()._check_bindings(key, priority)

    async def go_to(self, name: str) -> None:
        """The screen as it is opened anew."""
        while len(self.screen_stack) > 1:
            await self.pop_screen()
        self.clear_notifications()
        overview: Any = self.overview
        overview.action_back()
        overview._end_filter()
        overview.clients.clear_chosen()
        overview.set_focus(overview.clients)
        if name in {"events", "problems"}:
            overview.action_trouble(name)
        elif name != "overview":
            getattr(overview, f"action_{name}")()
        while not self.screen.is_mounted or self.screen.focused is None:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        if name in {"load", "plan"}:
            self.screen.set_focus(self.screen.query_one("#fields"))
        for _ in range(50):  # what comes of that
            await asyncio.sleep(0)
        bound: dict[str, str] = {}
        for key, active in self.screen.active_bindings.items():
            if not active.binding.priority and key not in {"ctrl+c", "super+c"}:
                bound.setdefault(active.binding.action, key)
        self.write(base=name, at=self.place(), keys=[*bound.values()])

    def on_mount(self) -> None:
        refuse = self.typeahead.refuse

        def refused() -> None:
            self.write(refused=True)
            refuse()

        self.typeahead.refuse = refused  # type: ignore[method-assign]

    def action_quit_app(self) -> None:
        self.write(quit=True)


if __name__ == "__main__":
    _file = os.open(sys.argv.pop(1), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    app_module.MpsTuiApp = Recorder  # type: ignore[misc]
    sys.exit(main())
