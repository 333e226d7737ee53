"""What a yes depends on can be read, in a small terminal too: no dialog cuts it, and where it scrolls it says so."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from dialog_host import PIPE, FakeRunner, Host, client, node
from rich.cells import cell_len
from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.geometry import Region
from textual.widgets import Static
from ui_load.fakes import FakeBackend
from ui_plan.fakes import FakeDaemons, FakePlans

from mpstui.commands import CommandTarget
from mpstui.config import CommandSpec
from mpstui.load.footprint import Takes
from mpstui.operations.registry import OPERATIONS, operation
from mpstui.plan.profile import DaemonProfile, Limits
from mpstui.ui.daemons.starting import StartDialog
from mpstui.ui.daemons.stopping import ForceConfirm, StopDialog
from mpstui.ui.dialogs import ChangeForm, HarmConfirm, HelpScreen
from mpstui.ui.dialogs.base import ConfirmDialog
from mpstui.ui.dialogs.progress import ActionDialog, ProgressDialog
from mpstui.ui.dialogs.user_command import OwnCommandDialog
from mpstui.ui.dialogs.widgets import Chooser, DetailRow, Lines, Listing, Push, Sheet, plain
from mpstui.ui.load.dialogs import BesideDialog, EndangerDialog, LeaveDialog
from mpstui.ui.load.session import LoadSession
from mpstui.ui.plan.applying import ApplyDialog
from mpstui.ui.plan.profiles import OpenDialog, SaveDialog

CLIENTS = tuple(client(4001 + n) for n in range(12))
MANY = node(CLIENTS)
DAEMON = MANY.daemons[0]
RUNNER = FakeRunner()
COMMAND = CommandSpec("look", "f9", ("/bin/echo", "{client.pid}"))
TARGET = CommandTarget(PIPE, client=CLIENTS[0].key)


def harm(name: str) -> HarmConfirm:
    keys = [each.key for each in CLIENTS]
    return HarmConfirm(RUNNER, operation(name), PIPE, MANY, keys, DAEMON.servers[0].key)


def form(name: str) -> ChangeForm:
    return ChangeForm(RUNNER, operation(name), PIPE, MANY)


DIALOGS: dict[str, Callable[[], ConfirmDialog]] = {
    **{
        name: lambda name=name: harm(name)  # type: ignore[misc]
        for name in ("terminate_client", "terminate_and_kill", "end_lost_clients", "unblock", "shutdown_server")
    },
    **{
        name: lambda name=name: form(name)  # type: ignore[misc]
        for name in ("set_active_thread_percentage", "set_pinned_mem_limit", "set_client_priority", "start_server")
    },
    "stop": lambda: StopDialog(FakeDaemons(), MANY, DAEMON),
    "force": lambda: ForceConfirm(MANY, DAEMON, lambda: None),
    "start": lambda: StartDialog(FakeDaemons(), FakePlans(), RUNNER, MANY),
    "beside": lambda: BesideDialog(4, lambda: CLIENTS, lambda: Takes(4, 1 << 30), tuple, lambda: None),
    "endanger": lambda: EndangerDialog("It ends others. " * 9, "elsewhere", "bob", lambda: None),
    "leave": lambda: LeaveDialog(LoadSession(FakeBackend()), lambda: None),
    "apply": lambda: ApplyDialog(
        RUNNER, "the profile usual", ((PIPE, DaemonProfile(PIPE, limits=Limits(50.0))),), MANY
    ),
    "save": lambda: SaveDialog(FakePlans(), MANY, PIPE, None, "", lambda _: None, "no device is chosen"),
    "open": lambda: OpenDialog(FakePlans(), MANY, PIPE, None, lambda *_: None),
    "own": lambda: OwnCommandDialog(COMMAND, MANY, TARGET, read_only=False, in_terminal=lambda *_: None),
}


def test_every_question_is_among_them() -> None:
    def below(kind: type) -> Iterator[type]:
        for each in kind.__subclasses__():
            yield each
            yield from below(each)

    ours = {each for each in below(ConfirmDialog) if each.__module__.startswith("mpstui.")}
    assert ours - {ProgressDialog, ActionDialog} == {type(make()) for make in DIALOGS.values()}


class FewBelow(Host):
    def compose(self) -> ComposeResult:
        yield Static("a row of the screen below")


def frame(host: Host) -> list[str]:
    return [strip.text for strip in host.screen._compositor.render_strips()]


def inside(lines: list[str], region: Region) -> str:
    return " ".join(line[region.x : region.right] for line in lines[region.y : region.bottom])


@pytest.mark.parametrize("size", [(80, 24), (60, 20), (40, 10)])
@pytest.mark.parametrize("name", DIALOGS)
async def test_what_a_yes_depends_on_can_be_read(name: str, size: tuple[int, int]) -> None:
    """At 80x24 what “force” does to a daemon ended in “…”."""
    host = FewBelow(DIALOGS[name]())
    async with host.run_test(size=size) as pilot:
        dialog = host.screen
        assert isinstance(dialog, ConfirmDialog)
        for _ in range(3):
            await pilot.pause()
        dialog.query_one("#cancel").focus()
        await pilot.pause()
        body = dialog.query_one("#body", VerticalScroll)
        lists = [each for each in dialog.query(Listing) if each.display]
        if body.max_scroll_y or any(each.max_scroll_y for each in lists):
            assert "↑↓ scroll" in frame(host)[-1], frame(host)
        seen = ""
        for y in range(round(body.max_scroll_y) + 1):
            body.scroll_to(y=y, animate=False)
            await pilot.pause()
            now = frame(host)
            for button in dialog.query(Push):
                assert not button.display or button.text in inside(now, button.region), now
            seen += inside(now, body.region) + " "
        for chooser in dialog.query(Chooser):
            if len(chooser.choices) <= chooser.ROOM:
                assert "…" not in chooser.render().plain
        texts = [each.text for each in dialog.query(Lines) if each.display]
        texts += [each.text for each in dialog.query(Sheet) if each.display]
        texts += [f"{c.label} {c.detail}" for each in dialog.query(Chooser) for c in each.choices[: each.ROOM]]
        assert not [word for text in texts for word in text.split() if word[:8] not in seen], seen


@pytest.mark.parametrize("size", [(80, 24), (60, 20), (40, 10)])
async def test_a_sheet_keeps_what_it_is_about_whole(size: tuple[int, int]) -> None:
    """At 40x10 the first column of the help was wider than half of it and went on in the middle of a word."""
    host = FewBelow(HelpScreen(OPERATIONS))
    async with host.run_test(size=size) as pilot:
        await pilot.pause()
        (sheet,) = host.screen.query(Sheet)
        width = sheet.content_size.width
        lines = [line.plain for line in sheet.lines(width)]
        assert max(map(cell_len, lines)) <= width, "what is longer is broken anywhere"
        labels = [plain(row.label) for row in sheet.rows if isinstance(row, DetailRow)]
        assert not [label for label in labels if not any(line.startswith(label) for line in lines)]


@pytest.mark.parametrize("size", [(80, 24), (60, 20), (40, 10)])
async def test_a_choice_that_the_arrows_reach_is_in_view(size: tuple[int, int]) -> None:
    host = FewBelow(DIALOGS["stop"]())
    async with host.run_test(size=size) as pilot:
        dialog = host.screen
        chooser = dialog.query_one("#wait", Chooser)
        chooser.focus()
        ways = [
            *zip(chooser.choices, ["down"] * 9, strict=False),
            *zip(chooser.choices[-2::-1], ["up"] * 9, strict=False),
        ]
        for choice, key in ways:
            if choice != chooser.chosen:
                await pilot.press(key)
            await pilot.pause()
            await pilot.pause()
            assert chooser.chosen == choice
            shown = inside(frame(host), dialog.query_one("#body").region)
            assert f"● {choice.label.split()[0]}" in shown, shown
