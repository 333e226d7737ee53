"""The form of a change: what it shows at each keystroke, what it sends, and that it never sends what it should not."""

from __future__ import annotations

import dataclasses

import pytest
from dialog_host import HOSTILE, PIPE, UUIDS, FakeRunner, Host, client, held, node, without_server
from textual.widgets import Button, Input
from ui.screen import text_of, until

from mpstui.core.model import ProcessKey
from mpstui.operations.registry import ON_OVERVIEW, OPERATIONS, operation
from mpstui.operations.types import Danger, ExitStatus, Request
from mpstui.ui.dialogs import ChangeForm, open_action
from mpstui.ui.dialogs.widgets import Chooser, Lines, Listing, Sheet

SIZES = [(80, 24), (160, 48)]
PERCENTAGE, MEMORY, PRIORITY, START = (
    "set_active_thread_percentage",
    "set_pinned_mem_limit",
    "set_client_priority",
    "start_server",
)


def text(host: Host, name: str) -> str:
    kinds = {
        "problem": Lines,
        "outcome": Lines,
        "warnings": Lines,
        "facts": Sheet,
        "kept": Listing,
        "progress": Listing,
    }
    return host.screen.query_one(f"#{name}", kinds[name]).text


def disabled(host: Host) -> bool:
    return host.screen.query_one("#apply").disabled


def opened(action_id: str, snapshot=None, runner=None, **more):
    runner = runner or FakeRunner()
    return runner, Host(ChangeForm(runner, operation(action_id), PIPE, snapshot or node(), **more))


@pytest.mark.slow
@pytest.mark.parametrize("size", SIZES)
async def test_a_percentage_is_shown_as_it_is_typed_and_sent_with_the_second_enter(size):
    runner, host = opened(PERCENTAGE)
    async with host.run_test(size=size) as pilot:
        assert disabled(host)
        assert "now" in text(host, "facts")
        assert "new value" not in text(host, "facts")
        await pilot.press("2", "5")
        assert "new value      25 %  32 SM" in text(host, "facts")
        assert "4011  dave  " in text(host, "kept")
        assert "Apply" in text_of(host)
        await pilot.press("enter")
        assert runner.requests == []
        assert host.focused is host.screen.query_one("#cancel"), "Enter alone changes nothing"
        runner.steps = ("set the value", "read it back")
        await pilot.press("tab", "enter")
        await until(pilot, lambda: runner.requests)
        assert "read it back" in text(host, "progress")
        assert "working" in text(host, "outcome")
        runner.end(ExitStatus.DONE, "The default is 25 %", ("read back: 25 %",))
        await until(pilot, lambda: "✓" in text(host, "outcome"))
        assert "read back: 25 %" in text_of(host)
    (request,) = runner.requests
    assert (request.action, request.value, request.server_pid, request.pipe_dir) == (PERCENTAGE, "25", None, PIPE)


@pytest.mark.slow
async def test_at_24_lines_those_who_keep_what_they_have_get_the_lines_that_are_left():
    """Seen: 6 of 14 in view, below five empty lines."""
    many = node(tuple(client(6000 + n, user="dave") for n in range(14)))
    _, host = opened(PERCENTAGE, many, server=ProcessKey(1402, 9000))
    async with host.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: text_of(host).count("  dave  ") >= 10)
        await pilot.press("0", ".")
        await until(pilot, lambda: "Apply" in text_of(host))
        body = host.screen.query_one("#body")
        assert body.virtual_size.height <= body.size.height, "one thing scrolls, not two"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("action_id", "values", "said"),
    [
        (PERCENTAGE, ("0", "101", "-5", "abc", "25;quit", "1e2"), "is no percentage"),
        (MEMORY, ("512MB", "-1G", "0G", "abc"), "is no memory limit"),
    ],
)
async def test_a_wrong_value_is_said_in_place_and_never_sent(action_id, values, said):
    runner, host = opened(action_id)
    async with host.run_test(size=(80, 24)) as pilot:
        entry = host.screen.query_one(Input)
        for value in values:
            entry.value = value
            await until(pilot, lambda value=value: f"✕ {value!r}".lower() in text(host, "problem").lower())
            assert said in text(host, "problem")
            assert disabled(host)
            host.clear_notifications()
            await pilot.press("enter", "enter")
            assert host.focused is entry
            assert any("The value is not taken" in str(told.message) for told in host._notifications), (
                "Enter says that too"
            )
    assert runner.requests == []


@pytest.mark.slow
@pytest.mark.parametrize("action_id", [PERCENTAGE, MEMORY, PRIORITY])
async def test_enter_alone_changes_nothing_however_often(action_id):
    runner, host = opened(action_id)
    async with host.run_test(size=(80, 24)) as pilot:
        if action_id != PRIORITY:
            await pilot.press(*("42" if action_id == PERCENTAGE else "4G"))
        await pilot.press("enter", "enter", "enter", "enter")
        assert not isinstance(host.screen, ChangeForm), "Cancel was pressed"
    assert runner.requests == []


@pytest.mark.slow
async def test_the_keys_at_the_foot_are_the_dialogs_and_can_be_clicked():
    _runner, host = opened(PERCENTAGE)
    async with host.run_test(size=(80, 24)) as pilot:
        last = text_of(host).splitlines()[-1]
        assert "Esc close" in last
        assert "Terminate" not in last
        await pilot.click(host.screen.keys, offset=(last.index("Esc"), 0))
        assert not isinstance(host.screen, ChangeForm)


@pytest.mark.slow
async def test_the_foot_says_what_enter_and_tab_do_where_the_focus_is():
    runner, host = opened(PERCENTAGE)
    async with host.run_test(size=(80, 24)) as pilot:
        await pilot.press("4")
        assert "Enter next" in text_of(host).splitlines()[-1]
        await pilot.press("enter")
        assert "Enter Cancel  Tab to Apply" in text_of(host).splitlines()[-1]
        await pilot.press("tab")
        assert "Enter Apply  Tab move" in text_of(host).splitlines()[-1]
        await pilot.press("enter")
        await until(pilot, lambda: host.screen.state == "running")
        await pilot.pause()
        assert "Enter Close" in text_of(host).splitlines()[-1]
        await until(pilot, lambda: runner.requests)
        runner.end(ExitStatus.DONE, "in force: 4 %")
        await until(pilot, lambda: host.screen.state == "ended")
        await pilot.pause()
        assert "Tab to Apply" not in text_of(host).splitlines()[-1], "it is in force"
        await pilot.press("shift+tab", "5")
        assert not disabled(host), "another value can be"


async def test_nothing_typed_yet_is_no_error():
    _runner, host = opened(PERCENTAGE)
    async with host.run_test(size=(80, 24)):
        assert "✕" not in text(host, "problem")
        assert disabled(host)


@pytest.mark.slow
async def test_a_server_and_a_device_are_chosen_by_keys():
    runner, host = opened(MEMORY)
    async with host.run_test(size=(80, 24)) as pilot:
        await pilot.press("2", "G", "shift+tab", "shift+tab")
        assert host.focused is host.screen.query_one("#scope")
        await pilot.press("down", "enter", "down", "enter", "enter", "tab", "enter")
        await until(pilot, lambda: runner.requests)
    (request,) = runner.requests
    assert (request.server_pid, request.device, request.value) == (1402, UUIDS[1], "2G")


@pytest.mark.slow
async def test_a_click_chooses():
    runner, host = opened(PERCENTAGE)
    async with host.run_test(size=(80, 24)) as pilot:
        await pilot.click("#scope", offset=(4, 1))
        await pilot.click("#value")
        await pilot.press("5", "0")
        assert "server 1402" in str(host.screen.query_one("#box").border_title)
        await pilot.click("#apply")
        await until(pilot, lambda: runner.requests)
    assert runner.requests[0].server_pid == 1402


@pytest.mark.slow
async def test_the_row_under_the_cursor_is_where_the_form_begins():
    runner, host = opened(MEMORY, server=ProcessKey(1402, 9000), device=UUIDS[1])
    async with host.run_test(size=(80, 24)) as pilot:
        await pilot.press("1", "G", "enter", "tab", "enter")
        await until(pilot, lambda: runner.requests)
    assert (runner.requests[0].server_pid, runner.requests[0].device) == (1402, UUIDS[1])


@pytest.mark.slow
async def test_a_priority_is_chosen_not_typed():
    runner, host = opened(PRIORITY)
    async with host.run_test(size=(80, 24)) as pilot:
        await pilot.press("down", "enter")
        assert host.focused is host.screen.query_one("#cancel"), "Enter alone changes nothing"
        await pilot.press("tab", "enter")
        await until(pilot, lambda: runner.requests or not isinstance(host.screen, ChangeForm))
    assert [request.value for request in runner.requests] == ["1"]


@pytest.mark.slow
async def test_the_choice_begins_where_today_is_and_enter_passes_the_list_of_clients():
    shot = node(tuple(client(5000 + number) for number in range(20)))
    shot = dataclasses.replace(shot, daemons=(dataclasses.replace(shot.daemons[0], default_client_priority=1),))
    runner, host = opened(PRIORITY, shot)
    async with host.run_test(size=(160, 48)) as pilot:
        assert host.screen.query_one("#choice", Chooser).chosen.value == "1"
        assert host.screen.query_one("#kept", Listing).can_focus
        await pilot.press("up", "enter", "tab", "enter")
        await until(pilot, lambda: runner.requests)
    assert [request.value for request in runner.requests] == ["0"]


@pytest.mark.slow
async def test_a_server_is_started_for_a_user():
    runner, host = opened(START, without_server(node()))
    async with host.run_test(size=(80, 24)) as pilot:
        await pilot.press("4", "2", "enter", "tab", "enter")
        await until(pilot, lambda: runner.requests)
    assert runner.requests[0].value == "42"


@pytest.mark.slow
async def test_a_new_snapshot_takes_nothing_from_the_user():
    _runner, host = opened(PERCENTAGE)
    async with host.run_test(size=(80, 24)) as pilot:
        await pilot.press("3", "3", "shift+tab", "down")
        for count in range(60):
            host.screen.update_snapshot(node(tuple(client(4000 + n) for n in range(count))))
        await pilot.pause()
        assert host.screen.query_one(Input).value == "33"
        assert host.focused is host.screen.query_one("#scope")
        assert host.screen.query_one(Chooser).chosen.value == ProcessKey(1402, 9000)
        assert "59 clients" in str(host.screen.query_one("#kept").border_title)


@pytest.mark.slow
async def test_a_server_that_ends_is_an_error_and_comes_back():
    runner, host = opened(PERCENTAGE, server=ProcessKey(1402, 9000))
    async with host.run_test(size=(80, 24)) as pilot:
        await pilot.press("2", "5", "enter")
        assert not disabled(host)
        host.screen.update_snapshot(without_server(node()))
        await pilot.pause()
        assert "server 1402 is gone" in text(host, "problem")
        assert disabled(host)
        assert host.focused is host.screen.query_one("#cancel")
        assert "is gone" in text_of(host)
        host.screen.update_snapshot(node())
        await pilot.pause()
        assert not disabled(host)
    assert runner.requests == []


@pytest.mark.slow
async def test_another_server_with_the_number_of_the_chosen_one_is_not_taken_for_it():
    runner, host = opened(PERCENTAGE, server=ProcessKey(1402, 9000))
    snapshot = node()
    server = dataclasses.replace(snapshot.daemons[0].servers[0], key=ProcessKey(1402, 777777))
    other = dataclasses.replace(snapshot, daemons=(dataclasses.replace(snapshot.daemons[0], servers=(server,)),))
    async with host.run_test(size=(80, 24)) as pilot:
        await pilot.press("2", "5")
        host.screen.update_snapshot(other)
        await pilot.press("enter")
        assert "is gone" in text(host, "problem")
    assert runner.requests == []


@pytest.mark.slow
@pytest.mark.parametrize("snapshot", [held(node()), dataclasses.replace(node(), daemons=())])
async def test_a_daemon_that_does_not_answer_or_is_gone_is_said(snapshot):
    runner, host = opened(PERCENTAGE)
    async with host.run_test(size=(80, 24)) as pilot:
        await pilot.press("2", "5")
        host.screen.update_snapshot(snapshot)
        await pilot.pause()
        assert "✕" in text(host, "problem")
        await pilot.press("enter", "tab", "enter")
    assert runner.requests == []


@pytest.mark.slow
async def test_read_only_is_said_and_nothing_is_sent():
    runner, host = opened(PERCENTAGE, runner=FakeRunner(read_only=True))
    async with host.run_test(size=(80, 24)) as pilot:
        await pilot.press("2", "5", "enter")
        assert "read-only" in text(host, "problem")
        assert disabled(host)
    assert runner.requests == []


@pytest.mark.slow
async def test_a_refusal_shows_the_remedy_and_the_value_can_be_changed():
    runner, host = opened(PERCENTAGE)
    async with host.run_test(size=(80, 24)) as pilot:
        await pilot.press("2", "5", "enter", "tab", "enter")
        await until(pilot, lambda: runner.requests)
        runner.end(ExitStatus.REFUSED_BY_DAEMON, "The daemon kept 100 %", remedy="look at control.log")
        await until(pilot, lambda: "✕ The daemon kept 100 %" in text(host, "outcome"))
        assert "look at control.log" in text_of(host)
        # Another daemon may be there by now: what was refused for it is tried again as it is shown then.
        host.screen.update_snapshot(newer := node())
        await pilot.press("tab", "enter")
        await until(pilot, lambda: runner.asked is newer)
        runner.end(ExitStatus.REFUSED_BY_DAEMON, "The daemon kept 100 %", remedy="look at control.log")
        await until(pilot, lambda: "✕ The daemon kept 100 %" in text(host, "outcome"))
        host.screen.query_one(Input).focus()
        await pilot.press("5")
        assert text(host, "outcome") == ""
        assert not disabled(host)


@pytest.mark.slow
async def test_apply_is_not_pressed_twice():
    runner, host = opened(PERCENTAGE)
    async with host.run_test(size=(80, 24)) as pilot:
        await pilot.press("2", "5", "enter", "tab", "enter")
        await until(pilot, lambda: runner.requests)
        assert disabled(host)
        host.screen.query_one(Input).focus()
        await pilot.press("0", "enter")
        host.screen.on_button_pressed(Button.Pressed(host.screen.query_one("#apply")))
        await pilot.pause()
    assert len(runner.requests) == 1


@pytest.mark.slow
async def test_closed_meanwhile_the_result_is_a_notification():
    runner, host = opened(PERCENTAGE)
    async with host.run_test(size=(80, 24)) as pilot:
        await pilot.press("2", "5", "enter", "tab", "enter")
        await until(pilot, lambda: runner.requests)
        await pilot.press("escape")
        assert not isinstance(host.screen, ChangeForm)
        runner.end(ExitStatus.NO_ANSWER, f"No answer {HOSTILE}", remedy="look")
        await until(pilot, lambda: len(host._notifications))
        (notification,) = host._notifications
        assert notification.severity == "error"
        assert "No answer" in notification.message
        assert "\x1b" not in notification.message
        await pilot.pause()


@pytest.mark.slow
async def test_an_error_of_the_runner_itself_is_words():
    runner, host = opened(PERCENTAGE)
    async with host.run_test(size=(80, 24)) as pilot:
        await pilot.press("2", "5", "enter", "tab", "enter")
        await until(pilot, lambda: runner.requests)
        runner.ending.set_exception(RuntimeError("[/oops]"))
        await until(pilot, lambda: "RuntimeError: [/oops]" in text(host, "outcome"))
        assert "not known" in text(host, "outcome")


@pytest.mark.slow
async def test_escape_closes_and_sends_nothing():
    runner, host = opened(PERCENTAGE)
    async with host.run_test(size=(80, 24)) as pilot:
        await pilot.press("2", "5", "escape")
        assert not isinstance(host.screen, ChangeForm)
    assert runner.requests == []


@pytest.mark.slow
@pytest.mark.parametrize("size", SIZES)
async def test_hostile_names_are_text(size):
    evil = node((client(4011, command=HOSTILE, user="[red]eve"),))
    _runner, host = opened(PERCENTAGE, evil)
    async with host.run_test(size=size) as pilot:
        host.screen.query_one(Input).value = "[/bad]"
        await until(pilot, lambda: "✕" in text(host, "problem"))
        shown = text_of(host)
        assert "\x1b" not in shown
        assert "\u202e" not in shown
        assert "[/bad] [bold red]x[/] \\x1b[31mred" in shown
        assert "'[/bad]'" in shown


@pytest.mark.slow
async def test_many_devices_scroll_in_the_chooser():
    snapshot = node()
    ordinals = {str(n): f"GPU-{n:08}" for n in range(16)}
    many = dataclasses.replace(snapshot, daemons=(dataclasses.replace(snapshot.daemons[0], ordinals=ordinals),))
    runner, host = opened(MEMORY, many)
    async with host.run_test(size=(80, 24)) as pilot:
        await pilot.press("1", "G", "shift+tab")
        assert "↓ 10 more" in text_of(host)
        await pilot.press("end")
        assert "↑ 10 more" in text_of(host)
        await pilot.press("enter", "enter", "tab", "enter")
        await until(pilot, lambda: runner.requests)
    assert runner.requests[0].device == "GPU-00000015"


@pytest.mark.slow
async def test_of_a_driver_without_device_query_the_daemons_numbers_are_chosen():
    """With 535 to 555 the form had no device to choose, so that no memory limit could be set by keys."""
    snapshot = node()
    told = {"ordinals": {}, "lacks": frozenset({"device_query"}), "driver": "550.163.01"}
    old = dataclasses.replace(snapshot, daemons=(dataclasses.replace(snapshot.daemons[0], **told),))
    runner, host = opened(MEMORY, old, device=UUIDS[1])
    async with host.run_test(size=(80, 24)) as pilot:
        await pilot.press("4", "G", "shift+tab", "down")
        assert "as the daemon counts" in text_of(host)
        assert "mpstui cannot find out which GPU" in " ".join(text(host, "warnings").split())
        await pilot.press("enter", "enter", "tab", "enter")
        await until(pilot, lambda: runner.requests)
    assert runner.requests[0].device == "1"


@pytest.mark.slow
async def test_a_screen_of_five_rows_does_not_crash():
    _runner, host = opened(MEMORY)
    async with host.run_test(size=(20, 5)) as pilot:
        await pilot.press("1", "G")
        await pilot.resize_terminal(160, 48)
        await pilot.pause()
        assert "900M, 10G or none" in text_of(host)


async def test_every_action_has_its_dialog():
    runner = FakeRunner()
    for each in ON_OVERVIEW:
        dialog = open_action(runner, each, PIPE, node(), clients=(client(4011).key,))
        assert isinstance(dialog, ChangeForm) is (each.danger is Danger.CHANGE)
        async with Host(dialog).run_test(size=(80, 24)) as pilot:
            await pilot.pause()


@pytest.mark.parametrize(
    "action", [each for each in OPERATIONS if each.danger is Danger.CHANGE], ids=lambda each: each.id
)
async def test_a_form_with_nothing_left_to_ask_is_a_question(action):
    """It ended the program: what undoes a change says all of it."""
    settings = tuple((each.option.lstrip("-"), "1") for each in action.arguments if each.kind == "setting")
    asked = Request(action.id, PIPE, value="25", settings=settings)
    dialog = open_action(FakeRunner(), action, PIPE, node(), asked=asked)
    host = Host(dialog)
    async with host.run_test(size=(80, 24)) as pilot:
        await pilot.pause()
        assert host.screen is dialog
        assert dialog.focused is not None
        await pilot.press("escape")
        assert host.screen is not dialog
