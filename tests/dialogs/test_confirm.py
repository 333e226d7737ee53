"""The question before harm: Cancel is the default, the targets are processes, and the rest of the node is named."""

from __future__ import annotations

import contextlib
import dataclasses
import pwd
import re

import pytest
from dialog_host import HOSTILE, PIPE, UUIDS, FakeRunner, Host, client, node
from textual.color import Color
from textual.widgets import Button
from ui.screen import text_of, until

from mpstui.core.model import Context, ProcessKey, Snapshot
from mpstui.core.trust import Speaker
from mpstui.operations.registry import operation
from mpstui.operations.types import ExitStatus, Preview
from mpstui.ui.dialogs import HarmConfirm
from mpstui.ui.dialogs.widgets import Lines, Listing, Push
from mpstui.ui.theme import contrast

KILL, TERMINATE = "terminate_and_kill", "terminate_client"


def opened(count: int = 1, action_id: str = TERMINATE, snapshot=None, runner=None):
    """A dialog for the first ``count`` of the node's clients."""
    runner, snapshot = runner or FakeRunner(), snapshot or node()
    clients = [c.key for c in snapshot.daemons[0].clients()][:count]
    return runner, Host(HarmConfirm(runner, operation(action_id), PIPE, snapshot, clients))


def listing(host: Host, name: str) -> str:
    return host.screen.query_one(f"#{name}", Listing).text


def lines(host: Host, name: str) -> str:
    return host.screen.query_one(f"#{name}", Lines).text


@pytest.mark.slow
@pytest.mark.parametrize("size", [(80, 24), (160, 48)])
async def test_enter_cancels(size):
    runner, host = opened()
    async with host.run_test(size=size) as pilot:
        assert host.focused is host.screen.query_one("#cancel")
        assert "▸ Cancel ◂" in text_of(host)
        await pilot.press("enter")
        assert not isinstance(host.screen, HarmConfirm)
    assert runner.requests == []


async def test_typing_does_nothing():
    runner, host = opened(3, KILL)
    async with host.run_test(size=(80, 24)) as pilot:
        await pilot.press("y", "Y", "o", "k", "t", "K", "1", "space", "s", "delete", "ctrl+j")
        assert isinstance(host.screen, HarmConfirm)
        assert host.focused is host.screen.query_one("#cancel")
    assert runner.requests == []
    assert host.begun == []


@pytest.mark.slow
@pytest.mark.parametrize("size", [(80, 24), (160, 48)])
async def test_each_client_is_named_and_the_others_too(size):
    runner, host = opened(2, KILL)
    async with host.run_test(size=size) as pilot:
        shown = text_of(host)
        for pid, user in ((4011, "dave"), (4012, "alice")):
            assert f"{pid}" in listing(host, "targets")
            assert user in listing(host, "targets")
        assert "python train.py" in shown
        assert "Terminate + kill 2 clients" in shown
        assert "4013  bob  " in listing(host, "others-0")
        assert listing(host, "hits") == ""
        await pilot.press("tab", "enter")
        await until(pilot, lambda: runner.requests)
    assert runner.requests[0].clients == (ProcessKey(4011, 401100), ProcessKey(4012, 401200))


async def test_who_has_no_name_is_told_by_the_number():
    nameless = dataclasses.replace(client(4011), user=None, uid=70123)
    _, host = opened(snapshot=node((nameless,)))
    async with host.run_test(size=(80, 24)):
        assert listing(host, "targets").startswith("● 4011    UID 70123  ")


async def test_who_else_would_be_hit_stands_there():
    class Dangerous(FakeRunner):
        def preview(self, request, snapshot):
            return Preview("Terminate", hits=("4011 dave x", "4012 alice y", "4013 bob z"), warnings=("look out",))

    _runner, host = opened(runner=Dangerous())
    async with host.run_test(size=(80, 24)):
        assert listing(host, "hits").splitlines() == ["✕ 4012  alice  y", "✕ 4013  bob    z"]
        assert "▲ look out" in text_of(host)


@pytest.mark.slow
async def test_a_client_that_has_gone_is_left_alone():
    runner, host = opened(3, KILL)
    async with host.run_test(size=(80, 24)) as pilot:
        reused = dataclasses.replace(client(4012), key=ProcessKey(4012, 999), command="somebody else")
        host.screen.update_snapshot(node((client(4011), reused, client(4013))))
        await pilot.pause()
        assert "4012    alice  gone; left alone" in listing(host, "targets")
        assert "python train.py" in listing(host, "targets").splitlines()[1]
        assert host.screen.query_one("#apply", Push).text == "Terminate + kill 2 clients"
        await pilot.press("tab", "enter")
        shown = host.screen.snapshot
        await until(pilot, lambda: runner.requests)
        assert [key.pid for key in runner.requests[0].clients] == [4011, 4013]
        assert runner.asked is not None
        assert runner.asked is not shown, "a yes is for the daemon that it was opened on"
        await pilot.pause()
        assert host.screen.query_one("#apply", Push).text == "Terminate + kill 2 clients", "as many as were meant then"


@pytest.mark.slow
async def test_when_all_have_gone_nothing_can_be_done():
    runner, host = opened(2)
    async with host.run_test(size=(80, 24)) as pilot:
        await pilot.press("tab")
        assert host.focused is host.screen.query_one("#apply")
        host.screen.update_snapshot(node(()))
        await pilot.pause()
        assert "none of the chosen clients" in lines(host, "problem")
        assert host.screen.query_one("#apply", Button).disabled
        assert host.focused is host.screen.query_one("#cancel")
        host.screen.on_button_pressed(Button.Pressed(host.screen.query_one("#apply")))
        host.screen.update_snapshot(dataclasses.replace(node(), daemons=()))
        await pilot.press("enter")
    assert runner.requests == []


@pytest.mark.slow
async def test_a_second_terminate_is_refused_before_it_is_asked():
    runner, host = opened(snapshot=node((client(4011, terminate_requested=True), client(4012))))
    async with host.run_test(size=(80, 24)) as pilot:
        assert "would block the whole daemon" in lines(host, "problem")
        await pilot.press("tab", "enter")
    assert runner.requests == []


@pytest.mark.slow
async def test_read_only_is_said_and_the_button_that_does_nothing_can_be_read():
    runner, host = opened(runner=FakeRunner(read_only=True))
    async with host.run_test(size=(80, 24)) as pilot:
        assert "read-only" in text_of(host)
        button = host.screen.query_one("#apply", Button)
        assert button.disabled
        for theme, least in (("mpstui-contrast", 7), ("mpstui-dark", 4.5), ("mpstui-light", 4.5)):
            host.theme = theme
            await pilot.pause()
            style = button.rich_style
            assert style.color is not None
            assert style.bgcolor is not None
            found = contrast(Color.from_rich_color(style.color), Color.from_rich_color(style.bgcolor))
            assert (found >= least, style.dim, button.styles.text_opacity) == (True, None, 1.0), (theme, found)
        await pilot.press("tab", "enter")
    assert runner.requests == []


@pytest.mark.slow
async def test_progress_and_each_clients_end_are_shown_and_it_cannot_be_done_twice():
    runner, host = opened(3, KILL)
    runner.steps = ("4011: terminate_client", "4011: SIGTERM")
    async with host.run_test(size=(80, 24)) as pilot:
        await pilot.press("tab", "enter")
        await until(pilot, lambda: runner.requests)
        assert "4011: SIGTERM" in text_of(host)
        host.screen.update_snapshot(node((client(4013),)))
        assert "gone" not in listing(host, "targets")
        runner.end(ExitStatus.DONE, "3 clients ended", ("4011 ended", "4012 ended", "4013 had ended by itself"))
        await until(pilot, lambda: "✓ 3 clients ended" in lines(host, "outcome"))
        assert "4013 had ended by itself" in text_of(host)
        assert host.focused is host.screen.query_one("#cancel")
        assert host.screen.query_one("#cancel", Push).text == "Close"
        assert text_of(host).splitlines()[-1].split()[:6] == ["Enter", "Close", "y", "copy", "Esc", "close"]
        host.screen.update_snapshot(node())
        host.screen.on_button_pressed(Button.Pressed(host.screen.query_one("#apply")))
        await pilot.press("tab", "enter")
        assert len(runner.requests) == 1


@pytest.mark.slow
async def test_what_came_of_it_is_scrolled_and_copied_as_other_texts_are_and_a_key_for_below_says_so():
    """Nothing but Enter and Escape did anything there: `U` after an Apply was lost without a word."""
    runner, host = opened(3, KILL)
    runner.steps = tuple(f"step {n}" for n in range(30))
    async with host.run_test(size=(80, 24)) as pilot:
        await pilot.press("y")
        assert host.copied == [], "a question is not copied"
        await pilot.press("tab", "enter")
        await until(pilot, lambda: runner.requests)
        runner.end(ExitStatus.REFUSED_BY_DAEMON, "the daemon said no", ("4011 ended",))
        await until(pilot, lambda: "the daemon said no" in lines(host, "outcome"))
        part = host.screen.query_one("#progress")
        await until(pilot, lambda: part.scroll_y == part.max_scroll_y > 0)
        await pilot.press("k")
        assert part.scroll_y == part.max_scroll_y - 1
        await pilot.press("y")
        assert host.copied[0].splitlines()[0] == "Terminate + kill"
        assert {"step 29", "✕ the daemon said no", "  4011 ended"} <= set(host.copied[0].splitlines())
        host.screen_stack[-2]._bindings.bind("U", "nothing", "User: whose clients are shown")
        await pilot.press("U")
        told = [each.message for each in host._notifications]
        assert "U (User: whose clients are shown) works on the screen below; Esc closes this one." in told


@pytest.mark.slow
async def test_closed_while_it_goes_on():
    runner, host = opened(2)
    async with host.run_test(size=(80, 24)) as pilot:
        await pilot.press("tab", "enter")
        await until(pilot, lambda: runner.requests)
        await pilot.press("enter")
        assert not isinstance(host.screen, HarmConfirm)
        runner.end(ExitStatus.DONE, "2 clients terminated", ("4011 done", "4012 done"))
        await until(pilot, lambda: len(host._notifications))
        (notification,) = host._notifications
        assert notification.severity == "information"
        assert notification.message == "2 clients terminated\n4011 done\n4012 done"


@pytest.mark.slow
@pytest.mark.parametrize("size", [(80, 24), (160, 48), (40, 10)])
async def test_hostile_names_are_text(size):
    evil = node((client(4011, command=HOSTILE, user=HOSTILE), client(4012, command="x" * 100_000, user="長い名前")))
    runner, host = opened(2, snapshot=evil)
    runner.steps = (HOSTILE,)
    async with host.run_test(size=size) as pilot:
        await pilot.press("tab", "enter")
        await until(pilot, lambda: runner.requests)
        runner.end(ExitStatus.NO_ANSWER, HOSTILE, (HOSTILE,), HOSTILE)
        await until(pilot, lambda: "✕" in lines(host, "outcome"))
        shown = text_of(host)
        assert "\x1b" not in shown
        assert "\u202e" not in shown
        assert all("\x1b" not in listing(host, name) for name in ("targets", "progress"))
        assert len(listing(host, "targets").splitlines()) == 2


@pytest.mark.slow
async def test_those_beside_it_and_those_reached_through_them_are_told_apart():
    wide = client(4012, contexts=(Context(1, UUIDS[0]), Context(2, UUIDS[1])))
    far = client(4013, contexts=(Context(1, UUIDS[1]),), gpu_memory={})
    _runner, host = opened(snapshot=node((client(4011), wide, far)))
    async with host.run_test(size=(100, 30)):
        shown = text_of(host)
        assert "Share a GPU with it, and run on as a rule: 1" in shown
        assert "More clients on other GPUs would be lost if it faults while it is ended: 1" in shown
        assert listing(host, "others-1").startswith("4013")


@pytest.mark.slow
async def test_arrows_scroll_the_lists_while_cancel_keeps_the_focus():
    _runner, host = opened(20, snapshot=node(tuple(client(4001 + n) for n in range(40))))
    async with host.run_test(size=(100, 48)) as pilot:
        assert "↑↓ scroll lists" in text_of(host)
        assert "4020" not in text_of(host)
        await pilot.press(*["pagedown"] * 3)
        assert "4020" in text_of(host)
        assert "4040" not in text_of(host)
        await pilot.press(*["pagedown"] * 4)
        assert "4040" in text_of(host), "the next list"
        await pilot.press(*["pageup"] * 8)
        assert "4001" in text_of(host)
        assert host.focused is host.screen.query_one("#cancel")


@pytest.mark.slow
async def test_forty_eight_clients_leave_the_buttons_on_the_screen():
    _runner, host = opened(48, snapshot=node(tuple(client(4001 + n) for n in range(48))))
    async with host.run_test(size=(80, 24)) as pilot:
        assert "Terminate 48 clients" in text_of(host)
        assert "48 clients  ↓ 42 more " in text_of(host)
        await pilot.press("down")
        assert "48 clients  ↑ 1 more  ↓ 41 more " in text_of(host)
        await pilot.press("shift+tab", "end")
        assert "4048" in text_of(host)
        assert "48 clients  ↑ 42 more " in text_of(host)


@pytest.mark.slow
@pytest.mark.parametrize("chosen", [1, 2, 3])
async def test_the_lines_that_are_seen_and_those_that_are_not_add_up(chosen):
    """“11 ↓ 5 more” stood over five lines: the sixth was below the end of the dialog, which scrolls too."""
    _runner, host = opened(chosen, KILL, snapshot=node(tuple(client(4011 + n) for n in range(14))))
    async with host.run_test(size=(80, 24)) as pilot:
        await pilot.pause()
        for _ in range(4):
            told = text_of(host).splitlines()
            at = next(n for n, line in enumerate(told) if "as a rule: " in line)
            all_of, *out = map(int, re.findall(r"\d+", told[at].partition("as a rule: ")[2]))
            seen = sum(bool(re.search(r"\b40\d\d\b", line)) for line in told[at + 1 :])
            assert seen + sum(out) == all_of == 14 - chosen, "\n".join(told)
            host.screen.query_one("#body").scroll_relative(y=1, animate=False)
            await pilot.pause()


@pytest.mark.slow
async def test_on_a_paused_screen_the_newest_picture_decides():
    runner, host = opened(2)
    async with host.run_test(size=(80, 24)) as pilot:
        host.snapshot = dataclasses.replace(node((client(4012),)), time=node().time + 60)
        await pilot.press("tab", "enter")
        await until(pilot, lambda: runner.requests)
    assert [key.pid for key in runner.requests[0].clients] == [4012]


STRANGER = Speaker(1003, "a daemon of dave")


def of_dave(*clients) -> Snapshot:
    """Dave's daemon, which names others' processes as its clients."""
    shown = node(clients or (client(4011), client(4012), client(4015)))
    return dataclasses.replace(
        shown, daemons=(dataclasses.replace(shown.daemons[0], uid=None, user="dave", speaker=STRANGER),)
    )


@contextlib.contextmanager
def known_users():
    """The made-up users are in the password file."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pwd, "getpwnam", lambda name: pwd.struct_passwd((name, "x", {"alice": 1000}[name], *"1gds")))
        yield


def of_alice() -> Snapshot:
    return of_dave(client(4012), client(4011))


@pytest.mark.slow
@pytest.mark.parametrize("size", [(80, 24), (160, 48)])
async def test_a_process_that_the_daemon_does_not_speak_for_needs_pid_and_owner(size):
    runner, host = opened(1, KILL, of_alice())
    with known_users():
        async with host.run_test(size=size) as pilot:
            assert host.focused is host.screen.query_one("#cancel")
            shown = " ".join(text_of(host).replace("│", " ").split())
            assert "process 4012 belongs to alice; a daemon of dave is trusted for its user only" in shown
            assert re.search("name .*PID .*owner:.* 4012 alice", shown), "what is behind it stands between its lines"
            assert host.screen.query_one("#apply", Button).disabled
            assert "Tab to the field" in text_of(host)
            await pilot.press("tab")
            assert host.focused is host.screen.query_one("#owner")
            await pilot.press(*"4012 bob", "enter")
            assert any("The value is not taken" in str(told.message) for told in host._notifications)
            assert host.screen.query_one("#apply", Button).disabled
            assert host.focused is host.screen.query_one("#owner")
            await pilot.press("backspace", "backspace", "backspace", *"alice", "enter")
            await until(pilot, lambda: host.focused is host.screen.query_one("#apply"))
            assert runner.requests == []
            await pilot.press("enter")
            await until(pilot, lambda: runner.requests)
            assert not host.screen.query_one("#typed").display
    assert runner.requests[0].owner == "alice"
    assert [key.pid for key in runner.requests[0].clients] == [4012]


@pytest.mark.slow
async def test_enter_cancels_there_too_and_an_owner_that_changes_takes_the_yes_back():
    runner, host = opened(1, KILL, of_alice())
    with known_users():
        async with host.run_test(size=(80, 24)) as pilot:
            await pilot.press("tab", *"4012 alice", "enter")
            await until(pilot, lambda: host.focused is host.screen.query_one("#apply"))
            host.screen.update_snapshot(of_dave(client(4012, user="root", uid=0)))
            await pilot.pause()
            assert host.focused is host.screen.query_one("#cancel")
            assert host.screen.query_one("#apply", Button).disabled
            await pilot.press("enter")
            assert not isinstance(host.screen, HarmConfirm)
    assert runner.requests == []


@pytest.mark.slow
async def test_no_field_where_the_daemon_speaks_for_it_or_where_several_are_chosen():
    _runner, host = opened(1, KILL, of_dave(client(4011)))
    async with host.run_test(size=(80, 24)):
        assert not host.screen.query_one("#typed").display
        assert not host.screen.query_one("#apply", Button).disabled
    _runner, host = opened(2, KILL, of_alice())
    async with host.run_test(size=(80, 24)) as pilot:
        assert not host.screen.query_one("#typed").display
        assert "choose it alone" in lines(host, "problem")
        await pilot.press("tab")
        assert host.focused is host.screen.query_one("#cancel")
