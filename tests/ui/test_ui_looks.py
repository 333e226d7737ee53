"""What pictures of every screen in four sizes have shown: what touched, was cut, or stood in the wrong column."""

from __future__ import annotations

from mpstui.core.activity import Trends
from mpstui.core.model import Client, Event, ProcessKey
from mpstui.fields import CLIENT, EVENT, Total, View
from mpstui.ui.bars import KeyBar, KeyHint
from mpstui.ui.box import BAR, Para, folded
from mpstui.ui.dialogs.widgets import in_columns
from mpstui.ui.keys import program_hints
from mpstui.ui.layout import Needs, plan


def plain(line) -> str:
    return "".join(text for text, _ in line)


def test_keys_that_do_nothing_now_do_not_touch():
    bar = KeyBar()
    bar.show(
        [KeyHint("t", "Terminate", "t", 9, "no"), KeyHint("l", "Limits", "l", 9, "no"), KeyHint("q", "Quit", "q", 9)]
    )
    assert plain(bar.lines(60, 1)[0]).rstrip() == "(t Terminate) (l Limits)  q Quit"


def test_one_panel_alone_names_the_way_back():
    def keys(zoomed: bool) -> list[str]:
        hints = program_hints({}, unknown=None, silent=None, paused=False, fleet=False, zoomed=zoomed)
        return [f"{hint.key} {hint.text}" for hint in hints]

    assert "z All panels" in keys(True)
    assert "z All panels" not in keys(False)


def test_users_and_commands_of_a_list_stand_below_each_other():
    assert in_columns(["645 alice a b", "20637 bob  c", "1   ダ d"]) == [
        "645    alice  a b",
        "20637  bob    c",
        "1      ダ     d",
    ]
    assert in_columns(["645 alice a", "and 3 more"]) == ["645 alice a", "and 3 more"]


def test_memory_before_is_of_the_same_time_in_each_row():
    trends, old, new = Trends(), client(1), client(2)
    for step in range(4):
        trends.take(10.0 * step, [old, new] if step > 2 else [old])
    view = View(trends=trends)
    shown = [plain(CLIENT["gpu_memory"].cell(each, view, 32)) for each in (old, new)]
    assert len(shown[0]) == len(shown[1])
    assert shown[0].endswith("▇▇▇▇")
    assert shown[1].endswith("  ▇")


def client(pid: int) -> Client:
    return Client(ProcessKey(pid, pid), gpu_memory={"GPU-0": 1 << 30})


def test_a_quoted_paragraph_has_its_bar_beside_all_of_its_lines():
    lines = [plain(line) for line in folded([Para("word " * 20, "dim", BAR), Para("word " * 20, "dim", "·")], 30)]
    assert sum(line.startswith(f" {BAR} ") for line in lines) == len(lines) // 2
    assert sum(line.startswith(" · ") for line in lines) == 1


def test_a_name_with_hyphens_stays_whole():
    (_, second) = folded([Para("left behind by nvidia-cuda-mps-control.pid")], 32)
    assert plain(second).strip() == "nvidia-cuda-mps-control.pid"


def test_a_command_in_an_event_takes_the_room_that_there_is():
    event = Event(
        0.0,
        "client_connected",
        pid=7,
        user="bob",
        command="python train.py --model resnet50",
        detail="client 7 connected",
    )
    wide, narrow = (plain(EVENT["detail"].cell(event, View(), cells)) for cells in (120, 60))
    assert wide == "client 7 (bob, python train.py --model resnet50) connected"
    assert narrow == "client 7 (bob, python train.py --m…) connected"
    starting = Event(0.0, "server_starting", uid=0, detail="server 9 is starting for user 0")
    assert starting.sentence() == "server 9 is starting for root"


def test_a_sum_of_a_part_keeps_its_unit_in_a_narrow_column():
    total = Total(lambda group: (157.0, False), lambda group, value, cells: f"{value:.0f} %")
    assert [plain(total.cell(None, cells)) for cells in (7, 8)] == ["≥157%", "≥157 %"]


def test_without_devices_their_panel_takes_no_room():
    none = plan(200, 60, Needs(0, 2, 1, False, 0, "clients", clients=6))
    assert none.heights["devices"] <= 10
    assert none.heights["events"] > 10
    assert plan(200, 60, Needs(0, 1, 0, True, 0, "devices")).heights["devices"] == 3


def test_the_thousandths_of_an_event_are_those_of_its_log() -> None:
    times = [1_795_000_000 + thousandths / 1000 for thousandths in range(1000)]
    shown = [plain(EVENT["time"].cell(Event("client_connected", time), View(), 14)) for time in times]
    assert [each[-4:] for each in shown] == [f".{thousandths:03d}" for thousandths in range(1000)]
