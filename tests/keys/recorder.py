"""The program itself, writing down which key reaches what. Arguments: the file to write to, then mpstui's own.

F9 goes to the screen whose name is in FILE.base, whatever is open; F3 and F4 tell where a key would go now, F10 where
one goes when all that was set off is done, whether keys wait for it or not. Nothing quits, and nothing is changed: what
a dialog would do is refused.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from pathlib import Path
from typing import Any, NoReturn

from textual.widgets import Input, OptionList
from textual.worker import Worker, get_current_worker
from typed import GOES, RESTS, SAVES, STAYS, TELLS

import mpstui.ui.app as app_module
from mpstui.cli import main
from mpstui.ui import typeahead
from mpstui.ui.typeahead import OPENING


class Recorder(app_module.MpsTuiApp):
    """One line of JSON for each key, written when it is handed to what takes it."""

    done: int | None = None
    """Keys that are still carried out; None: all."""
    at_work: frozenset[Worker[Any]] = frozenset()
    """What was under way before the first key."""
    moment: tuple[bool, object] = False, None
    """Whether the last screen that was gone to is one of the past, and which moment it showed."""

    def write(self, **what: object) -> None:
        os.write(_file, (json.dumps(what) + "\n").encode())

    def place(self) -> str:
        focused = self.screen.focused
        return type(self.screen).__name__ + (f" {type(focused).__name__} {focused.id}" if focused is not None else "")

    def holds(self) -> dict[str, object]:
        """What is there beside the place: the text that the next letter is added to, the moment that is shown; and
        what Enter would choose."""
        focused, past = self.screen.focused, self.snapshot.past if self.snapshot is not None else None
        chosen = [each.highlighted for each in self.screen.query(OptionList) if each.display]
        return {
            "text": re.sub("[0-9]", "0", focused.value) if isinstance(focused, Input) else None,
            "time": None if past is None or past.playing else past.at,
            "chosen": chosen,
        }

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
        if key == RESTS:
            self.run_worker(self.rest())
            return True
        self.write(key=key, to=self.place(), **self.holds())
        if self.done is not None:
            self.done -= 1
            if self.done < 0:
                return True
        return await super()._check_bindings(key, priority)

    async def go_to(self, name: str) -> None:
        """The screen as it is opened anew."""
        if name == STAYS:
            self.write(base=name)
            return
        if name.startswith(SAVES):
            assert self.past is not None
            saved, said = await self.past.save(name.removeprefix(SAVES))
            assert saved, said
            self.write(base=name)
            return
        if self._paused_at is not None:
            self.action_pause()
        while len(self.screen_stack) > 1:
            await self.pop_screen()
        self.clear_notifications()
        there = self.moment == (name.startswith("past"), self.holds()["time"])
        if self.past is not None and self.snapshot is not None and self.snapshot.past is not None and not there:
            await self.past.to_end()
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
        elif screen == "past":
            if not there:
                await self.go_back()
        elif screen != "overview":
            overview.action_trouble(screen)
        await self.settled()
        if screen in {"load", "plan"}:
            self.screen.set_focus(self.screen.query_one("#fields"))
        if part:
            self.screen.query_one(f"#{part}").display = True
            self.screen.set_focus(self.screen.query_one(f"#{part}"))
            await self.settled()
        before, self.at_work = self.place(), frozenset(self.workers)
        self.moment = name.startswith("past"), self.holds()["time"]
        if key and (bound := self.screen.active_bindings.get(key)) is not None:
            await self.run_action(bound.binding.action, bound.node)
            await self.settled()
        keys: dict[str, str] = {}
        for each, active in self.screen.active_bindings.items():
            if not (active.binding.priority and active.node is self) and each not in {"ctrl+c", "super+c"}:
                keys.setdefault("escape" if each == "escape" else active.binding.action, each)
        self.write(
            base=name, at=self.place(), keys=[*keys.values()], opened=not key or self.place() != before, **self.holds()
        )

    async def go_back(self) -> None:
        """Half a second, as soon as so much has been kept; of a recording, from its end."""
        assert self.past is not None
        while (await self.past.move(-0.5)) is not None or self.snapshot is None or self.snapshot.past is None:  # noqa: ASYNC110
            await asyncio.sleep(0.01)

    async def rest(self) -> None:
        """All that the keys have set off is done, whoever waits for it: then where the next one goes is told."""
        own = get_current_worker()
        while any(not each.is_finished and each is not own and each not in self.at_work for each in self.workers):  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        painted = asyncio.Event()
        self.screen.call_after_refresh(painted.set)
        while not painted.is_set():
            self.screen.check_idle()  # nothing may be left to paint
            await asyncio.sleep(0.005)
        await self.settled()
        self.write(rest=self.place(), **self.holds())

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
