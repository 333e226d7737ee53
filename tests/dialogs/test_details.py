"""Details, help and palette: all that is known, as text, from the bindings and the registry as they are."""

from __future__ import annotations

from dataclasses import replace

import pytest
from dialog_host import HOSTILE, NOW, PIPE, UUIDS, FakeRunner, Host, client, held, node
from textual.screen import Screen
from ui.screen import text_of, until

from mpstui.core.model import Client, Context, Daemon, Device, Event, ProcessKey, Server, Snapshot
from mpstui.operations.registry import ELSEWHERE, ON_OVERVIEW, operation
from mpstui.ui.dialogs import DetailsScreen, HarmConfirm, HelpScreen
from mpstui.ui.dialogs.commands import ActionCommands
from mpstui.ui.dialogs.facts import rows_of
from mpstui.ui.dialogs.widgets import DetailRow, Heading, Sheet

KEYS = [
    ("client", ProcessKey(4013, 401300)),
    ("server", ProcessKey(1402, 9000)),
    ("device", UUIDS[0]),
    ("daemon", PIPE),
    ("limit", None),
    ("limit", 1402),
    ("event", (NOW - 65, "client_connected", 4011, 1402, None, "NEW CLIENT 4011")),
]


def value(rows, label: str) -> str:
    return next(row.value for row in rows if isinstance(row, DetailRow) and row.label == label)


def test_a_client_with_all_that_is_known():
    _title, rows = rows_of(node(), "client", ProcessKey(4013, 401300))
    assert value(rows, "PID") == "4013"
    assert value(rows, "memory limit") == "set by default"
    assert value(rows, "user") == "bob (UID 1001)"
    assert value(rows, "threads") == "25 %  32 SM  set by server"
    assert value(rows, "priority") == "normal (0)"
    assert value(rows, "outdated").startswith("⟳ connected before")
    assert any(row.value == "threads: 100 %; started again it gets 50 %" for row in rows if isinstance(row, DetailRow))
    assert "2.0 GiB of 2.0 GiB  ▲ nearly full" in value(rows, "GPU 0 NVIDIA H100 80GB HBM3")
    assert value(rows, "container") == "—"


def test_the_command_of_a_client_and_the_one_that_the_daemon_was_given_have_two_names():
    asked = Event("terminate_requested", NOW, PIPE, pid=4011, command="train", values={"command": "terminate_client"})
    _title, rows = rows_of(replace(node(), events=(asked,)), "event", asked.key)
    assert (value(rows, "command"), value(rows, "control command")) == ("train", "terminate_client")


def test_a_clients_last_events_are_its_own():
    """And its daemon's: another one, a stranger's too, may say of the same number what it likes."""
    told = node()
    ended = Event("client_terminated", NOW, PIPE / "other", pid=4011, server_pid=1402)
    _title, rows = rows_of(replace(told, events=(*told.events, ended)), "client", ProcessKey(4011, 401100))
    assert [row.value for row in rows[-2:]] == [
        "client connected  client 4011 connected",
        "context active    context 1 on GPU 0",
    ]


def test_unknown_is_a_dash_and_never_zero():
    snapshot = Snapshot(
        NOW,
        daemons=(Daemon(PIPE, servers=(Server(ProcessKey(1), clients=(Client(ProcessKey(2)),)),)),),
        devices=(Device("GPU-x"),),
    )
    for kind, identity in (("client", ProcessKey(2)), ("server", ProcessKey(1)), ("device", "GPU-x"), ("daemon", PIPE)):
        found = rows_of(snapshot, kind, identity)
        assert found is not None
        shown = [row.value for row in found[1] if isinstance(row, DetailRow)]
        assert shown.count("—") >= 3
        assert not any("None" in text for text in shown)


def test_who_holds_a_daemon_and_what_to_do():
    _title, rows = rows_of(held(node()), "daemon", PIPE)
    assert value(rows, "health") == "held: a control session is kept open by 777 (bob, pts/3)"
    assert value(rows, "session held by") == "process 777, user bob on pts/3"
    assert value(rows, "remedy") == "ask bob to leave it, or end process 777"


def test_a_device_says_what_nvidia_smi_says_of_it_and_the_limits_of_new_clients_on_it():
    here = UUIDS[0]
    one = Server(ProcessKey(7), active_thread_percentage=50.0, pinned_mem_limits={"1": 4 << 30})
    two = Server(ProcessKey(8), active_thread_percentage=100.0)
    daemon = Daemon(
        PIPE, ordinals={"1": here}, servers=(one, two), default_active_thread_percentage=100.0,
        default_pinned_mem_limits={"1": 20 << 30},
    )  # fmt: skip
    device = Device(here, pci_bus_id="00000000:06:00.0", memory_total=80 << 30, memory_used=20 << 30, persistence=False)
    _title, rows = rows_of(Snapshot(NOW, daemons=(daemon,), devices=(device,)), "device", here)
    assert value(rows, "PCI bus ID") == "00000000:06:00.0"
    assert value(rows, "memory") == "20.0 GiB of 80.0 GiB, 25 %"
    assert value(rows, "persistence mode") == "no"
    assert value(rows, "processes without MPS") == "0"
    texts = [row.value for row in rows if isinstance(row, DetailRow)]
    at = texts.index("default 20.0 GiB")
    assert texts[at : at + 3] == ["default 20.0 GiB", "server 7 4.0 GiB", "server 8 none"]
    empty = replace(device, persistence=None, pci_bus_id=None, memory_used=None)
    _title, rows = rows_of(Snapshot(NOW, devices=(empty,), nvml_detail="no NVML"), "device", here)
    assert [value(rows, label) for label in ("PCI bus ID", "persistence mode", "processes without MPS")] == ["—"] * 3
    assert value(rows, "memory") == "— of 80.0 GiB"


def test_a_device_names_its_clients_by_their_memory_on_it_alone():
    here, there = UUIDS[0], "GPU-there"
    clients = (
        Client(ProcessKey(11), user="alice", gpu_memory={here: 2 << 30, there: 30 << 30}),
        Client(ProcessKey(12), user="bob", gpu_memory={here: 3 << 30}),
        Client(ProcessKey(13), user="carol", contexts=(Context(1, here),)),
        Client(ProcessKey(14), user="dave", gpu_memory={there: 9 << 30}),
    )
    shown = Snapshot(
        NOW, daemons=(Daemon(PIPE, servers=(Server(ProcessKey(1), clients=clients),)),), devices=(Device(here),)
    )
    _title, rows = rows_of(shown, "device", here)
    names = [row.label for row in rows if isinstance(row, DetailRow) and row.label in {"11", "12", "13", "14"}]
    assert names == ["12", "11", "13"]
    assert value(rows, "11").split() == ["2.0", "GiB", "alice", "—"]
    assert value(rows, "13").split() == ["—", "carol", "—"], "not known is not zero"
    assert isinstance(rows[0], Heading), "who is there comes first: it has to be seen at 80x24"
    many = tuple(Client(ProcessKey(20 + n), gpu_memory={here: (20 - n) << 30}) for n in range(9))
    shown = Snapshot(
        NOW, daemons=(Daemon(PIPE, servers=(Server(ProcessKey(1), clients=many),)),), devices=(Device(here),)
    )
    _title, rows = rows_of(shown, "device", here)
    labels = [row.label for row in rows if isinstance(row, DetailRow)]
    assert labels[:6] == [str(20 + n) for n in range(6)]
    assert labels[-3:] == ["26", "27", "28"], "the others are behind what is said of the device"
    at = labels.index("25")
    assert [row.value for row in rows if isinstance(row, DetailRow)][at + 1] == "3 more below: “Its other clients”"


def test_what_is_not_there_is_none():
    for kind, identity in KEYS:
        assert rows_of(node(), kind, identity) is not None
        assert rows_of(Snapshot(NOW), kind, identity) is None
    assert rows_of(node(), "client", ProcessKey(4013, 1)) is None


@pytest.mark.slow
@pytest.mark.parametrize("size", [(80, 24), (160, 48)])
async def test_details_stay_when_the_thing_goes(size):
    host = Host()
    async with host.run_test(size=size) as pilot:
        for kind, identity in KEYS:
            await host.push_screen(DetailsScreen(node(), kind, identity))
            await _goes_and_comes_back(host, pilot)


async def _goes_and_comes_back(host, pilot):
    before = host.screen.query_one(Sheet).text
    assert before
    host.screen.update_snapshot(Snapshot(NOW + 1))
    await pilot.pause()
    assert "✕ It is gone" in text_of(host)
    assert host.screen.query_one(Sheet).text == before
    host.screen.update_snapshot(node())
    await pilot.pause()
    assert "It is gone" not in text_of(host)
    await pilot.press("y")
    assert host.copied[-1] == before
    await pilot.press("escape")
    assert not isinstance(host.screen, DetailsScreen)


@pytest.mark.slow
async def test_details_follow_the_snapshot_and_scroll():
    host = Host(DetailsScreen(node(), "client", ProcessKey(4013, 401300)))
    async with host.run_test(size=(80, 24)) as pilot:
        host.screen.update_snapshot(node((client(4013, state="TERMINATED", terminate_requested=True),)))
        await pilot.press("G")
        assert "Last events" in text_of(host)
        assert "TERMINATED" in host.screen.query_one(Sheet).text
        await pilot.press("g")
        assert "Process" in text_of(host)
        await pilot.press("slash", *"MEMORY lim", "enter")
        await pilot.pause()
        found = [row.label for row in host.screen.query_one(Sheet).rows if isinstance(row, DetailRow) and row.label]
        assert "memory limit" in found, "/ finds here as in help"
        assert not {"PID", "user", "state"} & set(found)
        assert "Esc show all" in text_of(host).splitlines()[-1]
        host.screen.update_snapshot(node((client(4013, state="INACTIVE"),)))
        assert "INACTIVE" not in host.screen.query_one(Sheet).text, "and goes on to"
        await pilot.press("escape")
        await pilot.pause()
        assert "INACTIVE" in host.screen.query_one(Sheet).text


@pytest.mark.slow
async def test_hostile_text_is_text():
    raw = f"NEW CLIENT {HOSTILE}" + "x" * 100_000
    event = Event("unknown", NOW, PIPE, raw=raw, detail=HOSTILE, values={HOSTILE: HOSTILE})
    snapshot = node((client(4011, command=HOSTILE, user=HOSTILE, container=HOSTILE),), events=(event,))
    for kind, identity in (
        ("client", ProcessKey(4011, 401100)),
        ("event", (NOW, "unknown", None, None, None, raw)),
    ):
        host = Host(DetailsScreen(snapshot, kind, identity))
        async with host.run_test(size=(80, 24)) as pilot:
            await pilot.press("G", "y")
            assert "\x1b" not in text_of(host) + host.copied[0]
            assert "\u202e" not in text_of(host) + host.copied[0]
            assert "[bold red]x[/]" in host.copied[0]


@pytest.mark.parametrize("size", [(80, 24), (160, 48), (20, 5)])
async def test_help_is_made_from_the_registry_and_the_bindings(size):
    host = Host(HelpScreen(ON_OVERVIEW))
    async with host.run_test(size=size) as pilot:
        text = host.screen.query_one(Sheet).text
        for each in ON_OVERVIEW:
            assert any(line.split()[0] == each.key and each.title in line for line in text.splitlines() if line.strip())
        assert "Stop the picture" in text
        assert text.count("Terminate:") == 1
        for mark in "⟳▲✕≈—":
            assert f"\n{mark} " in text
        lines = text.splitlines()
        at = lines.index("Safety")
        assert [line[0] for line in lines[at + 1 : at + 6]] == list("12345")
        assert "waits in cuInit" in text[text.index("About MPS") :]
        await pilot.press("q")
        assert not isinstance(host.screen, HelpScreen)


class Below(Screen[None]):
    """What the palette needs of the overview."""

    def __init__(self, daemon: Daemon | None) -> None:
        super().__init__()
        self.daemon = daemon

    def unavailable(self, action) -> str | None:
        if self.daemon is None:
            return "there is no daemon to act on"
        return self.app.runner.unavailable(action, self.app.snapshot, self.daemon.pipe_dir, ())

    def action_act(self, action_id: str) -> None:
        self.app.begun.append(action_id)


class PaletteHost(Host):
    """A host with a runner, a node and an overview, as the real application has them."""

    COMMANDS = {ActionCommands}  # noqa: RUF012

    def __init__(self, read_only: bool = False) -> None:
        super().__init__()
        self.runner = FakeRunner(read_only)
        self.snapshot = node()

    def get_default_screen(self) -> Screen[None]:
        return Below(self.snapshot.daemons[0])


def entries(host: Host) -> dict[str, object]:
    return {command.title: command for command in ActionCommands(host.screen).commands()}


async def test_the_palette_lists_actions_keys_and_our_themes():
    host = PaletteHost()
    async with host.run_test():
        found = entries(host)
        assert {each.title for each in (*ON_OVERVIEW, *ELSEWHERE)} <= set(found)
        assert found["Stop daemon"].help.startswith("x on the screen daemons")
        assert {"Sort", "Filter", "Pause", "Quit"} <= set(found)
        themes = [title for title in found if title.startswith("Theme: ")]
        assert themes == [f"Theme: {n}" for n in ("mpstui-contrast", "mpstui-dark", "mpstui-light", "terminal")]


async def test_the_palette_says_no_yes_to_the_question_that_it_covers():
    """It began with “Press button”: Tab, ^p and Enter ended a client behind the list."""
    host = PaletteHost()
    async with host.run_test() as pilot:
        keys = [each.key for each in node().daemons[0].clients()]
        asked = HarmConfirm(FakeRunner(), operation("terminate_client"), PIPE, node(), keys)
        await host.push_screen(asked)
        await pilot.press("tab")
        assert asked.focused is asked.query_one("#apply")
        assert "enter" in asked.active_bindings
        found = entries(host)
        assert "Close" in found
        assert "Press button" not in found


@pytest.mark.slow
async def test_the_palette_begins_an_action_and_changes_the_theme():
    host = PaletteHost()
    async with host.run_test(size=(80, 24)) as pilot:
        await pilot.press("ctrl+p", *"start server")
        await until(pilot, lambda: host.screen.query("OptionList") and host.screen.query_one("OptionList").option_count)
        await pilot.press("enter")
        await until(pilot, lambda: host.begun)
        assert host.begun == ["start_server"]
        entries(host)["Theme: terminal"].run()
        await pilot.pause()
        assert host.theme == "terminal"


async def test_the_palette_says_why_not():
    host = PaletteHost(read_only=True)
    async with host.run_test():
        assert entries(host)["Terminate"].help == "not now: mpstui runs read-only"
        host.screen.daemon = None
        assert entries(host)["Terminate"].help == "not now: there is no daemon to act on"


async def test_the_palette_finds_a_word_of_the_description_and_spares_how_to_move():
    host = PaletteHost()
    host.runner.unavailable = lambda operation, *on: operation.unavailable(*on)  # this daemon has no namespaces
    async with host.run_test(size=(120, 40)):
        commands = ActionCommands(host.screen)
        listed = [str(hit.text) async for hit in commands.discover()]
        assert "Threads" in listed
        assert not {"Down", "Up", "First", "Page down"} & set(listed)
        assert not {"Create namespace", "Delete server"} & set(listed)
        assert [str(hit.text) async for hit in commands.search("percentage")] == ["Threads"]
        assert "Create namespace" in [str(hit.text) async for hit in commands.search("namespace")]
        assert "Terminate + kill" in [str(hit.text) async for hit in commands.search("kill")]


def test_a_command_goes_on_below_itself_and_the_last_client_needs_no_pointer():
    here = UUIDS[0]
    each = tuple(
        Client(ProcessKey(20 + n), user="bob", command=f"vllm serve {'x' * 40} --port {n}", gpu_memory={here: 1 << 30})
        for n in range(7)
    )
    shown = Snapshot(
        NOW, daemons=(Daemon(PIPE, servers=(Server(ProcessKey(1), clients=each),)),), devices=(Device(here),)
    )
    _title, rows = rows_of(shown, "device", here)
    assert not [row for row in rows if isinstance(row, Heading) and row.text == "Its other clients"]
    first = next(row for row in rows if isinstance(row, DetailRow))
    lines = [line.plain for line in Sheet([first]).lines(60)]
    begin = lines[0].index("vllm")
    assert len(lines) > 1
    assert all(line[:begin].isspace() for line in lines[1:]), lines
    assert all(len(line.rstrip()) <= 60 for line in lines)
