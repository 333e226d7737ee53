"""The dialog of a command of the user's own: what was Stop a moment ago starts nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from dialog_host import PIPE, Host, client, node
from ui.screen import text_of, until

from mpstui.commands import CommandTarget, Ended
from mpstui.config import CommandSpec
from mpstui.ui.dialogs import user_command
from mpstui.ui.dialogs.user_command import OwnCommandDialog
from mpstui.ui.dialogs.widgets import Push

SPEC = CommandSpec("look", "f9", ("/bin/echo", "{client.pid}"))


def asking(run: Callable[..., Awaitable[Ended]], monkeypatch: pytest.MonkeyPatch) -> Host:
    """The dialog of a command that is carried out by ``run``."""
    monkeypatch.setattr(user_command, "run", run)
    monkeypatch.setattr(user_command, "stopped_by", lambda _filled: None)
    target = CommandTarget(PIPE, client=client(4011).key)
    return Host(OwnCommandDialog(SPEC, node(), target, read_only=False, in_terminal=lambda *_: None))


def endless(monkeypatch: pytest.MonkeyPatch) -> tuple[list[str], Host]:
    """One that does not end by itself; how often it has been begun is in the list."""
    begun: list[str] = []

    async def run(*_arguments: object) -> Ended:
        begun.append("run")
        await asyncio.get_running_loop().create_future()
        raise AssertionError

    return begun, asking(run, monkeypatch)


@pytest.mark.parametrize("way", ["key", "click"])
async def test_a_press_that_was_meant_for_stop_starts_nothing(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command ended under the finger, and Stop was Repeat."""
    ends: list[asyncio.Future[Ended]] = []

    async def run(*_arguments: object) -> Ended:
        ends.append(asyncio.get_running_loop().create_future())
        return await ends[-1]

    host = asking(run, monkeypatch)
    async with host.run_test(size=(80, 24)) as pilot:
        dialog = host.screen
        assert isinstance(dialog, OwnCommandDialog)
        await pilot.press("tab", "enter")
        await until(pilot, lambda: ends)
        (stop,) = (button for button in dialog.query(Push) if button.text == "Stop" and not button.disabled)
        at = stop.region
        if way == "key":
            stop.focus()
        await pilot.pause()
        ends[0].set_result(Ended(1, "ended with 1"))
        await until(pilot, lambda: dialog.state == "ended")
        if way == "key":
            await pilot.press("enter")
        else:
            await pilot.click(offset=(at.x + at.width // 2, at.y))
        await pilot.pause()
        assert (len(ends), dialog.state) == (1, "ended")


async def test_it_is_stopped_and_repeated_by_buttons_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, host = endless(monkeypatch)
    async with host.run_test(size=(80, 24)) as pilot:
        dialog = host.screen
        assert isinstance(dialog, OwnCommandDialog)
        assert [button.text for button in dialog.query(Push) if button.display] == ["Cancel", "Run"]
        await pilot.press("tab", "enter")
        await until(pilot, lambda: begun)
        await pilot.press("tab", "enter")
        await until(pilot, lambda: dialog.state == "ended")
        assert "was ended" in "".join(line.plain for line in dialog.result.lines())  # type: ignore[union-attr]
        assert [(b.text, b.disabled) for b in dialog.query(Push)] == [
            ("Close", False),
            ("Repeat", False),
            ("Stop", True),
        ]
        await pilot.press("tab", "enter")
        await until(pilot, lambda: len(begun) == 2)


async def test_it_is_stopped_in_a_terminal_that_is_too_small_for_a_question(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stop is no yes to what is asked: it was refused there as one, and the command ran on."""
    begun, host = endless(monkeypatch)
    async with host.run_test(size=(80, 24)) as pilot:
        dialog = host.screen
        assert isinstance(dialog, OwnCommandDialog)
        await pilot.press("tab", "enter")
        await until(pilot, lambda: begun)
        await pilot.resize_terminal(20, 5)
        dialog.query_one("#stop", Push).focus()
        await pilot.press("enter")
        await until(pilot, lambda: dialog.state == "ended")


async def test_what_has_no_room_is_scrolled_by_keys_that_are_told() -> None:
    """Of a long command the end was reached by ↓, and no line said so."""
    spec = CommandSpec("look", "f9", ("/bin/echo", *(f"word-{n}" for n in range(40))))
    target = CommandTarget(PIPE, client=client(4011).key)
    host = Host(OwnCommandDialog(spec, node(), target, read_only=False, in_terminal=lambda *_: None))
    async with host.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: "↑↓ scroll" in text_of(host).splitlines()[-1])
        assert "word-39" not in text_of(host)
        await pilot.press(*["pagedown"] * 9)
        assert "word-39" in text_of(host)
