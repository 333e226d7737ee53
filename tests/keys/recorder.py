"""The program itself, writing down which key reaches what. Arguments: the file to write to, then mpstui's own.

F9 goes to the screen whose name is in FILE.base, whatever is open; F3 and F4 tell where a key would go now. Nothing
quits, and nothing is changed: what a dialog would do is refused.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any, NoReturn

from typed import GOES, TELLS

import mpstui.ui.app as app_module
from mpstui.cli import main
from mpstui.ui import typeahead
from mpstui.ui.typeahead import OPENING


class Recorder(app_module.MpsTuiApp):
    """One line of JSON for each key, written when it is handed to what takes it."""

    done: int | None = None
    """Keys that are still carried out; None: all."""

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
        if key == GOES:
            name, self.done = json.loads(Path(f"{_path}.base").read_text())  # noqa: ASYNC240
            self.run_worker(self.go_to(name), group=OPENING)
            return True
        self.write(key=key, to=self.place())
        if self.done is not None:
            self.done -= 1
            if self.done < 0:
                return True
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
        overview._shown, overview._zoomed = {}, False
        overview.apply(overview._snapshot, None)
        overview.set_focus(overview.clients if overview.clients.display else None)
        overview._keep_focus()  # not on a panel that is not shown, where nobody comes
        place, _, key = name.partition(" > ")
        screen, _, part = place.partition(": ")
        if screen in {"plan", "load", "daemons", "partitions", "namespaces"}:
            getattr(overview, f"action_{screen.replace('namespaces', 'partitions')}")()
        elif screen != "overview":
            overview.action_trouble(screen)
        await self.settled()
        if screen in {"load", "plan"}:
            self.screen.set_focus(self.screen.query_one("#fields"))
        if part:
            self.screen.query_one(f"#{part}").display = True
            self.screen.set_focus(self.screen.query_one(f"#{part}"))
            await self.settled()
        before = self.place()
        if key and (bound := self.screen.active_bindings.get(key)) is not None:
            await self.run_action(bound.binding.action, bound.node)
            await self.settled()
        keys: dict[str, str] = {}
        for each, active in self.screen.active_bindings.items():
            if not active.binding.priority and each not in {"ctrl+c", "super+c"}:
                keys.setdefault("escape" if each == "escape" else active.binding.action, each)
        self.write(base=name, at=self.place(), keys=[*keys.values()], opened=not key or self.place() != before)

    async def settled(self) -> None:
        """All that is open takes keys, and what comes of that is done."""
        while not self.screen.is_mounted or (self.screen.focused is None and self.screen.focus_chain):  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        for _ in range(50):
            await asyncio.sleep(0)

    def on_mount(self) -> None:
        for does, what in ((self.runner, "execute"), (self.plans, "save"), (self._daemon_backend, "start")):
            setattr(does, what, self.nothing)
        refuse = self.typeahead.refuse

        def refused() -> None:
            self.write(refused=True)
            refuse()

        self.typeahead.refuse = refused  # type: ignore[method-assign]
        tell = self.typeahead.dropped

        def dropped(shown: str, why: str) -> None:
            self.write(dropped=shown)
            tell(shown, why)

        self.typeahead.dropped = dropped  # type: ignore[method-assign]

    async def nothing(self, *_: object, **__: object) -> NoReturn:
        """A daemon's start, a profile, a change of a limit are not what is looked at here."""
        self.write(asked=True)
        await asyncio.Event().wait()
        raise AssertionError

    def action_quit_app(self) -> None:
        self.write(quit=True)


if __name__ == "__main__":
    _path = sys.argv.pop(1)
    _file = os.open(_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    app_module.MpsTuiApp = Recorder  # type: ignore[misc]
    typeahead.PATIENCE = 120.0  # a screen that a busy machine opens late has not failed to open
    sys.exit(main())
