"""Dialogs on terminals that have no room for them: they come to rest, whatever the size."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from dialog_host import PIPE, UUIDS, FakeRunner, Host, client, node
from textual import events
from textual.app import App, ComposeResult
from textual.containers import VerticalScroll
from textual.geometry import Size
from textual.widgets import Static

from mpstui.load.footprint import Takes
from mpstui.operations.registry import OPERATIONS, operation
from mpstui.ui.daemons.stopping import ForceConfirm
from mpstui.ui.dialogs import ChangeForm, DetailsScreen, HarmConfirm, HelpScreen
from mpstui.ui.dialogs.base import Dialog
from mpstui.ui.dialogs.widgets import Choice, Chooser, Lines, Listing, Push
from mpstui.ui.load.dialogs import BesideDialog, EndangerDialog
from mpstui.ui.load.setup import WORD
from mpstui.ui.private import toast_racks

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
@pytest.mark.parametrize("height", [24, 10])
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
        assert height == 10 or body.max_scroll_y == 0


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


SAID: list[str] = []
"""What was carried out."""


def confirmed() -> HarmConfirm:
    class Runner(FakeRunner):
        async def execute(self, request, snapshot, progress):
            SAID.append("yes")
            return await super().execute(request, snapshot, progress)

    keys = [each.key for each in CLIENTS]
    return HarmConfirm(Runner(), operation("terminate_and_kill"), PIPE, MANY, keys)


QUESTIONS: dict[str, Callable[[], Dialog]] = {
    "confirm": confirmed,
    "beside": lambda: BesideDialog(4, lambda: CLIENTS, lambda: Takes(4, 1 << 30), tuple, lambda: SAID.append("yes")),
    "endanger": lambda: EndangerDialog("It ends others. " * 9, "elsewhere", "bob", lambda: SAID.append("yes")),
    "force": lambda: ForceConfirm(MANY, MANY.daemons[0], lambda: SAID.append("yes")),
}


@pytest.mark.parametrize("size", [(20, 5), (39, 30), (100, 9), (3, 2)])
@pytest.mark.parametrize("name", QUESTIONS)
async def test_a_question_that_cannot_be_seen_takes_no_yes(name: str, size: tuple[int, int]) -> None:
    """At 20x5 there was its border, and Tab Enter ended 48 clients."""
    SAID.clear()
    host = FewBelow(QUESTIONS[name]())
    async with host.run_test(size=(80, 24)) as pilot:
        asked = host.screen
        await pilot.press(*WORD if name == "endanger" else ["tab"])
        await pilot.resize_terminal(*size)
        await pilot.press("enter")
        asked.query_one("#apply", Push).press()
        await pilot.pause()
        assert (SAID, host.screen) == ([], asked)
        assert any("40×10" in told.message for told in host._notifications)
        if size[0] > 15:
            assert "40×10" in shown_by(host)[-1], "the line of the keys says why"
        await pilot.resize_terminal(80, 24)
        await pilot.press("enter")
        assert SAID == ["yes"], "it can be answered again"


@pytest.mark.parametrize("name", QUESTIONS)
async def test_a_question_with_a_notification_over_it_takes_no_yes(name: str) -> None:
    """An error that stands for half a minute covered what was asked, and Enter behind it was a yes."""
    SAID.clear()
    host = FewBelow(QUESTIONS[name]())
    async with host.run_test(size=(40, 10), notifications=True) as pilot:
        asked = host.screen
        await pilot.press(*WORD if name == "endanger" else ["tab"])
        host.notify("It could not be done. " * 8, severity="error", timeout=300)
        await pilot.pause()
        await pilot.press("enter")
        assert (SAID, host.screen) == ([], asked)
        await pilot.pause()
        body = asked.query_one("#body").region
        toasts = [toast.region for rack in toast_racks(asked) for toast in rack.query("Toast")]
        assert toasts and not any(region.overlaps(body) for region in toasts)  # noqa: PT018
        assert any("press again" in told.message for told in host._notifications), "and why nothing was done is told"
        await pilot.press("enter")
        assert SAID == ["yes"]


async def test_a_notification_beside_what_is_asked_is_in_nobody_s_way() -> None:
    SAID.clear()
    host = FewBelow(QUESTIONS["force"]())
    async with host.run_test(size=(100, 48), notifications=True) as pilot:
        host.notify("It could not be done.", severity="error", timeout=300)
        await pilot.pause()
        await pilot.press("tab", "enter")
        assert SAID == ["yes"]


@pytest.mark.parametrize("name", QUESTIONS)
async def test_a_question_that_cannot_be_seen_can_be_left(name: str) -> None:
    SAID.clear()
    host = FewBelow(QUESTIONS[name]())
    async with host.run_test(size=(20, 5)) as pilot:
        await pilot.press("escape")
        assert len(host.screen_stack) == 1
    assert SAID == []


def shown_by(host: Host) -> list[str]:
    return [strip.text for strip in host.screen._compositor.render_strips()]


@pytest.mark.parametrize("name", QUESTIONS)
async def test_all_of_a_question_can_be_read_in_the_smallest_terminal(name: str) -> None:
    """Keys scroll what is in it, and its buttons are never cut: “Terminate” was what was left of “Terminate + kill”."""
    host = FewBelow(QUESTIONS[name]())
    async with host.run_test(size=(40, 10)) as pilot:
        await pilot.pause()
        asked = host.screen
        await pilot.press(*["up"] * 60)  # it begins where something is typed
        seen, before = "", [""]
        while (now := shown_by(host)) != before:
            seen += " ".join(now) + " "
            assert all(button.text in "\n".join(now) for button in asked.query(Push) if button.display), now
            before = now
            await pilot.press("down")
            await pilot.pause()
        assert asked.query_one("#body", VerticalScroll).is_vertical_scroll_end
        words = [word for lines in asked.query(Lines) for word in lines.text.split()]
        words += [line.split()[1] for listing in asked.query(Listing) for line in listing.text.splitlines()]
        assert not [word for word in words if word not in seen]


async def test_a_forced_end_names_who_is_there_now() -> None:
    """It named those of when it was opened, and ended those who had come since as well."""
    host = FewBelow(ForceConfirm(MANY, MANY.daemons[0], lambda: None))
    async with host.run_test(size=(100, 30)) as pilot:
        asked = host.screen
        assert isinstance(asked, ForceConfirm)
        assert "48 clients" in asked.query_one("#what", Lines).text
        asked.update_snapshot(node((*CLIENTS, client(4999))))
        await pilot.pause()
        assert "49 clients" in asked.query_one("#what", Lines).text
        assert "4999" in asked.query_one("#hits", Listing).text
        asked.update_snapshot(node((), daemons=()))
        await pilot.pause()
        assert "49 clients" in asked.query_one("#what", Lines).text, "of a daemon that has gone, as it was last"
