"""Dialogs on terminals that have no room for them: they come to rest, whatever the size."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from dialog_host import PIPE, UUIDS, FakeRunner, Host, client, node
from textual import events
from textual.app import App, ComposeResult
from textual.geometry import Size
from textual.widgets import Static

from mpstui.load.footprint import Takes
from mpstui.operations.registry import OPERATIONS, operation
from mpstui.ui.dialogs import ChangeForm, DetailsScreen, HarmConfirm, HelpScreen
from mpstui.ui.dialogs.base import Dialog
from mpstui.ui.dialogs.widgets import Choice, Chooser
from mpstui.ui.load.dialogs import BesideDialog, EndangerDialog

CLIENTS = tuple(client(4001 + n) for n in range(48))
MANY = node(CLIENTS)
ENOUGH = 20
"""Layouts at one size that no change of size needs."""


def form(name: str) -> ChangeForm:
    return ChangeForm(FakeRunner(), operation(name), PIPE, MANY)


DIALOGS: dict[str, Callable[[], Dialog]] = {
    "memory": lambda: form("set_pinned_mem_limit"),
    "percentage": lambda: form("set_active_thread_percentage"),
    "priority": lambda: form("set_client_priority"),
    "confirm": lambda: HarmConfirm(
        FakeRunner(), operation("terminate_and_kill"), PIPE, MANY, [each.key for each in CLIENTS]
    ),
    "device": lambda: DetailsScreen(MANY, "device", UUIDS[0]),
    "help": lambda: HelpScreen(OPERATIONS),
    "beside": lambda: BesideDialog(4, lambda: CLIENTS, lambda: Takes(4, 1 << 30), tuple, lambda: None),
    "endanger": lambda: EndangerDialog("It ends others. " * 9, "elsewhere", "bob", lambda: None),
}


class FewBelow(Host):
    """The rows below a dialog, broken into a cell each, were painted a hundred times: they are not what is tried."""

    def compose(self) -> ComposeResult:
        yield Static("a row of the screen below")


@pytest.mark.slow
@pytest.mark.parametrize("name", DIALOGS)
async def test_a_dialog_comes_to_rest_at_every_size(name: str) -> None:
    """A bar that took the last cell was laid out for ever: without width no height, so no bar, so width again."""
    host = FewBelow(DIALOGS[name]())
    async with host.run_test(size=(100, 30)):
        screen = host.screen
        for width in (1, 9):
            size = Size(width, 30)
            screen.post_message(events.Resize(size, size))
            for _ in range(ENOUGH):
                await turns()
                screen._on_timer_update()
            await turns()
            assert screen.outer_size == size
            assert not screen._layout_required, "it is laid out for ever"


async def turns() -> None:
    """More turns of the event loop than any chain of messages takes."""
    for _ in range(30):
        await asyncio.sleep(0)


LONG_COMMAND = "python train.py --model resnet50 --batch 256 --epochs 90 --data /datasets/imagenet --LAST"


@pytest.mark.slow
@pytest.mark.parametrize("height", [24, 13])
async def test_a_question_names_a_command_whole_where_lines_are_free_and_keeps_its_foot(height: int) -> None:
    """At 80x24 who is to be ended was cut, with two lines free below it."""
    one = client(4001, command=LONG_COMMAND)
    dialog = HarmConfirm(FakeRunner(), operation("terminate_client"), PIPE, node((one,)), [one.key])
    host = Host(dialog)
    async with host.run_test(size=(80, height)) as pilot:
        await pilot.pause()
        await pilot.pause()
        shown = "\n".join(strip.text for strip in host.screen._compositor.render_strips())
        body = dialog.query_one("#body")
        assert "Cancel" in shown
        assert ("--LAST" in shown) == (height == 24), shown
        assert height == 13 or body.max_scroll_y == 0


class Choosing(App[None]):
    """Two to choose from, one of them with a long word about it."""

    def compose(self) -> ComposeResult:
        yield Chooser((Choice("a", "first", "word " * 30 + "LAST"), Choice("b", "second", "short")), id="two")


async def test_what_a_choice_means_is_whole_and_a_click_below_it_is_for_it() -> None:
    app = Choosing()
    async with app.run_test(size=(80, 24)) as pilot:
        chooser = app.query_one(Chooser)
        shown = [strip.text for strip in app.screen._compositor.render_strips()]
        assert "LAST" in "".join(shown)
        assert "…" not in "".join(shown)
        at = next(y for y, line in enumerate(shown) if "second" in line)
        assert at > 1
        await pilot.click(chooser, offset=(3, at))
        assert chooser.chosen is not None
        assert chooser.chosen.value == "b"
        await pilot.click(chooser, offset=(3, at - 1))
        assert chooser.chosen.value == "a"
