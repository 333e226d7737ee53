"""Dialogs on terminals that have no room for them: they come to rest, whatever the size."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from dialog_host import PIPE, UUIDS, FakeRunner, Host, client, node
from textual import events
from textual.app import ComposeResult
from textual.geometry import Size
from textual.widgets import Static

from mpstui.load.footprint import Takes
from mpstui.operations.registry import OPERATIONS, operation
from mpstui.ui.dialogs import ChangeForm, DetailsScreen, HarmConfirm, HelpScreen
from mpstui.ui.dialogs.base import Dialog
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
