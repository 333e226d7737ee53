"""Small pieces of text: meters, SM shares, memory of a limit, filters."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len

from mpstui.core import condition
from mpstui.core.cells import (
    CUT_OFF,
    FAULT,
    FAULT_BY_LOG,
    HEALTH,
    NO_WORD,
    SERVES_NOBODY,
    gpus_text,
    health_word,
    limits_text,
    memory_of,
    meter,
    sm_text,
    state_mark,
    status_mark,
    threads_text,
    with_indices,
)
from mpstui.core.model import Activity, Context, Past, Snapshot
from mpstui.core.text import by_device, printable
from mpstui.core.trust import Speaker
from mpstui.core.v3 import V3Server
from mpstui.fields import CLIENT, DAEMON, LIMIT, SERVER, Limit, Thing, View, groups_of, limits_of, possible_columns
from mpstui.ui.bars import DaemonTabs, KeyBar, KeyHint, brief_state
from mpstui.ui.dialogs.pick import Pick, PickList
from mpstui.ui.filter import ClientFilter
from mpstui.ui.lines import fit, fit_line, justify, width_of
from mpstui.ui.panels import ClientsPanel
from mpstui.ui.panels.events import EventsPanel
from mpstui.ui.panels.servers import ServersPanel
from mpstui.ui.panels.table import _placed

from .snapshots import GIB, GPU0, GPU1, NOW, PIPE, client, clients, daemon, device, rich, server


@pytest.mark.parametrize(
    ("percent", "bar"),
    [
        (0, "──────────"),
        (5, "╾─────────"),
        (50, "━━━━━─────"),
        (100, "━━━━━━━━━━"),
        (250, "━━━━━━━━━━"),
        (-1, "──────────"),
        (None, "┄┄┄┄┄┄┄┄┄┄"),
    ],
)
def test_a_meter_reads_without_colour(percent: float | None, bar: str) -> None:
    assert "".join(text for text, _ in meter(percent, 10)) == bar


def test_percent_comes_to_sms_of_a_measured_device() -> None:
    assert sm_text(25.0, [device(0, 1)]) == "32 SM"
    assert sm_text(25.0, [device(0, 1, compute_capability=(8, 0))]) == "≈ 32 SM"
    assert sm_text(None, [device(0, 1)]) == ""
    assert sm_text(50.0, [device(0, 1), device(1, 1, sm_count=108)]).startswith("≈ 54/66")
    assert threads_text("25 %", "32 SM") == "  25 %  32 SM"
    assert threads_text("—", "") == "     —"


def test_memory_is_the_sum_and_the_limit_that_of_the_fullest_device() -> None:
    ordinals = {"0": GPU0, "1": GPU1}
    both = client(0, gpu_memory={GPU0: 1 * GIB, GPU1: 3 * GIB}, pinned_mem_limits={"0": 8 * GIB, "1": 4 * GIB})
    assert memory_of(both, ordinals) == (4 * GIB, 4 * GIB, 75.0, GPU1, 12 * GIB)
    on_one = replace(both, pinned_mem_limits={"0": 8 * GIB})
    assert memory_of(on_one, ordinals) == (4 * GIB, 8 * GIB, 12.5, GPU0, None), "on the other one without an end"
    assert memory_of(replace(both, pinned_mem_limits={}), {}) == (4 * GIB, None, None, None, None)
    one = replace(both, gpu_memory={GPU0: GIB})
    assert memory_of(one, ordinals) == (GIB, 8 * GIB, 12.5, None, None)
    another = replace(one, pinned_mem_limits={"1": GIB})
    assert memory_of(another, ordinals)[:4] == (GIB, None, None, None), "another's limit"
    assert memory_of(replace(both, gpu_memory={}, pinned_mem_limits={"0": GIB}), ordinals)[:2] == (None, GIB)

    def shown(limits: dict[str, int], cells: int = 13) -> str:
        view = View(daemon=daemon(ordinals=ordinals))
        cell = CLIENT["gpu_memory"].cell(replace(both, pinned_mem_limits=limits), view, cells)
        return "".join(text for text, _ in cell).strip()

    assert shown({"0": 8 * GIB, "1": 8 * GIB}) == "4.0G/16.0G", "was 4.0G 1:37%, which nobody could read"
    assert shown({"0": 8 * GIB, "1": 3 * GIB}) == "4.0G/11.0G▲", "of one device all that it may have"
    assert shown({"0": 8 * GIB}) == "4.0G/by GPU"
    assert len(shown({"1": 3 * GIB})) <= 12, "the column's last cell stays free"
    assert memory_of(replace(both, gpu_memory={}, pinned_mem_limits={}), {})[:4] == (None, None, None, None)


def test_what_is_known_of_a_clients_limits_is_said_in_narrow_columns_too() -> None:
    def shown(name: str, cells: int, **changes: object) -> str:
        cell = CLIENT[name].cell(client(1, gpu_memory={GPU0: 2 * GIB}, **changes), View(), cells)
        return "".join(text for text, _ in cell).strip()

    unknown = {"pinned_mem_limits": {}, "memory_limit_known": False}
    assert [shown("gpu_memory", cells, **unknown) for cells in (13, 22)] == ["2.0G/—", "2.0 GiB / —"]
    assert [shown("gpu_memory", cells, pinned_mem_limits={}) for cells in (13, 22)] == ["2.0G", "2.0 GiB"]
    none = {"active_thread_percentage": None, "sm_count": None}
    assert [shown("active_thread_percentage", cells, **none) for cells in (13, 18)] == ["—", "—"]
    none["percentage_known"] = True
    assert [shown("active_thread_percentage", cells, **none) for cells in (13, 18)] == ["none", "none"]
    partition = {"active_thread_percentage": None, "sm_count": 56}
    assert [shown("active_thread_percentage", cells, **partition) for cells in (13, 18)] == ["56SM", "56 SM"]
    assert [shown("client_priority", 13, client_priority=n) for n in (0, 1, None)] == ["normal", "below normal", "—"]
    assert [shown("client_priority", 7, client_priority=n) for n in (0, 1, None)] == ["normal", "below", "—"]
    below = Limit(daemon(default_client_priority=1))
    told = ["".join(text for text, _ in LIMIT["client_priority"].cell(below, View(), cells)) for cells in (8, 12)]
    assert told == ["below", "below normal"], "not “below n…”"


def test_limits_are_never_cut_and_say_whose_they_are() -> None:
    assert limits_text({}, True, 20, 2) == "none"
    assert limits_text({}, False, 20, 2) == "—"
    assert limits_text({"0": 2 * GIB}, True, 20, 1) == "2.0 GiB"
    assert limits_text({"0": 2 * GIB}, True, 20, 2) == "0: 2.0 GiB", "device 1 has none"
    assert limits_text({"1": 2 * GIB}, True, 20, 2) == "1: 2.0 GiB"
    assert limits_text({"0": GIB, "1": GIB}, True, 20, 2) == "1.0 GiB each"
    assert limits_text({"0": GIB, "1": GIB}, True, 30, 3) == "0: 1.0 GiB  1: 1.0 GiB"
    assert limits_text({"1": GIB, "0": 2 * GIB}, True, 30, 2) == "0: 2.0 GiB  1: 1.0 GiB"
    assert limits_text({"0": GIB, "1": 2 * GIB}, True, 12, 2) == "by device"
    assert [device for device, _ in by_device({"10": 1, "GPU-a": 1, "2": 1})] == ["2", "10", "GPU-a"]


def test_only_uuids_become_indices() -> None:
    text = f"fatal GPU fault on {GPU0}; clients 2900, 2001, 1000 lost"
    assert with_indices(text, {GPU0: 0, "0": 1}) == text.replace(GPU0, "GPU 0")
    assert with_indices(text, {}) == text


@pytest.mark.parametrize(
    ("rates", "mark"),
    [
        ((), ("● ACTIVE", "plain")),
        ((0.0, 12.0), ("● LAUNCHES", "good")),
        ((12.0, 0.0), ("● LAUNCHES", "good")),
        ((0.0, 12.0, 0.0, 0.0), ("● LAUNCHES", "good")),
        ((12.0, 0.0, 0.0, 0.0), ("○ NO LAUNCH", "plain")),
        ((0.0,), ("○ NO LAUNCH", "plain")),
    ],
)
def test_where_launches_are_counted_a_state_says_whether_it_launches_and_one_window_does_not_turn_it(
    rates: tuple[float, ...], mark: tuple[str, str]
) -> None:
    counted = Activity(rates[-1] if rates else None, rates, why="" if rates else "no permission")
    active = client(0, activity=counted)
    assert state_mark(active) == mark
    word = mark[0][2:].lower()
    assert CLIENT["state"].matches(active, View(), "active"), "it is active either way"
    assert CLIENT["state"].matches(active, View(), word)
    assert not CLIENT["state"].matches(active, View(), "launches" if word.startswith("no") else "no launch")


@pytest.mark.parametrize("width", [76, 120])
def test_the_servers_of_protocol_3_have_their_names_in_the_list(width: int) -> None:
    named = server(v3=V3Server("training", 1000, 1402))
    panel = ServersPanel()
    for one, there in ((named, True), (server(), False)):
        panel.show(rich(), daemon(servers=(one,)), with_limits=width < 100)
        line = "".join(text for text, _ in panel.row_lines(one, width)[0])
        head = "".join(text for text, _ in panel.head(width))
        assert ("training" in line, " NAME " in head) == (there, there)


def test_every_state_has_a_symbol_and_a_word() -> None:
    states = {state_mark(client(0, state=state))[0] for state in ("ACTIVE", "INACTIVE", "TERMINATED")}
    assert states == {"● ACTIVE", "○ INACTIVE", "✕ TERMINATED"}
    assert state_mark(client(0, state="ACTIVE"))[1] == "plain", "a context is no work"
    assert state_mark(client(0, terminate_requested=True))[0] == "◌ ENDING"
    assert state_mark(client(0), lost=True) == ("✕ LOST", "bad")
    assert status_mark(server(status="FAULT")) == ("✕ FAULT", "bad")
    assert status_mark(server(status="INITIALIZING"))[0] == "◌ INITIALIZING"
    fine, hit = daemon(servers=(server(),)), daemon(servers=(server(), server(status="FAULT")))
    assert [health_word(each)[0] for each in (fine, hit)] == ["● ok", "✕ FAULT"]
    assert status_mark(server(status=None))[0] == "—"


def test_a_fault_by_the_word_of_another_users_daemon_is_his_claim_in_each_list_and_detail() -> None:
    """The header had it as his; the row of the server, the list of the daemons and the details were red."""
    failed = server(status="FAULT")
    his = daemon(servers=(failed,), uid=64101, user="mallory", speaker=Speaker(64101, "a daemon of mallory"))
    view = View.of(Snapshot(NOW, daemons=(his,)), his)
    things: tuple[tuple[Thing[Any], Any, str], ...] = ((SERVER, failed, "status"), (DAEMON, his, "health"))
    for thing, item, name in things:
        field = thing[name]
        assert field.column is not None
        assert field.detail is not None
        assert field.column.cell(item, view, 20) == (("? FAULT", "dim"),)
        facts = [(fact.text, fact.style) for fact in field.detail.facts(item, view)]
        assert facts == [("FAULT: only mallory's daemon says so", "dim")]
    assert SERVER["status"].text(failed, view) == "? FAULT"
    panel = ServersPanel()
    panel.show(view.snapshot, his, with_limits=False)
    assert panel.note(replace(failed, clients=()), 80) == ()


def test_devices_of_a_client_by_their_index() -> None:
    assert gpus_text(client(0, gpu_memory={GPU1: 1}), {GPU0: 0, GPU1: 1}) == "0,1"
    assert gpus_text(client(0, gpu_memory={}, contexts=()), {GPU0: 0}) == "—"
    assert gpus_text(client(0), {}) == "GPU-11111111", "as its UUID begins"


@pytest.mark.parametrize(
    ("text", "width", "shown"),
    [
        ("abc", 5, "abc  "),
        ("abcdef", 4, "abc…"),
        ("日本語", 4, "日… "),
        ("日本", 4, "日本"),
        ("abc", 0, ""),
        ("ab cd", 4, "ab… "),
        ("ab    ", 4, "ab  "),
    ],
)
def test_text_takes_exactly_its_cells_and_a_cut_is_marked(text: str, width: int, shown: str) -> None:
    assert fit(text, width) == shown


@pytest.mark.parametrize("width", range(20))
def test_lines_take_exactly_their_cells(width: int) -> None:
    line = (("日本", "text"), ("abc", "bad"), ("", "text"), ("語xyz", "dim"))
    assert width_of(fit_line(line, width)) == width
    assert width_of(justify(line, (("end", "text"),), width)) == width
    blank = (("UP", "head"), ("  ", "text"), ("", "text"), ("   ", "head"))
    shown = "".join(text for text, _ in fit_line(blank, width))
    assert shown == ("…" if width == 1 else "UP" + " " * (width - 2) if width else "")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 46),
        ("user:alice", 10),
        ("user:alice gpu:1", 2),
        ("gpu:0,1", 0),
        ("state:term", 1),
        ("state:outdated", 2),
        ("state:inactive !user:eve", 4),
        ("vllm", 9),
        ("VLLM user:BOB", 9),
        ("pid:2007", 1),
        ("server:1402", 46),
        ("server:9", 0),
        ("user:", 46),
        ("!", 46),
        ("job-4711", 1),
        ("[/bad]", 1),
        ("cmd:日本", 1),
        ("nonsense:1", 0),
        ("cpu>=0", 45),
        ("!cpu>=0", 0),
        ("cpu>90", 4),
        ("mem>1500M", 14),
        ("mem<=1.5G  user:alice", 7),
        ("threads<100 gpu:0", 16),
        ("mem>", 0),
        ("user=alice", 10),
        ("user:=alice", 10),
        ("USER=ALICE cpu=0", 1),
        ("user!=alice", 36),
        ("!user=alice", 36),
        ("user=ali", 0),
        ("user=", 46),
        ("lr=0.1", 0),
    ],
)
def test_filter(text: str, expected: int) -> None:
    view = View(indices={GPU0: 0, GPU1: 1})
    assert sum(ClientFilter(text).matches(c, view) for c in clients()) == expected


@pytest.mark.parametrize("typed", ["काम", "cmd:काम", "cmd=काम", "!cmd:काम", "cmd!=काम"])
def test_what_is_shown_by_its_escapes_is_found_as_it_is_typed(typed: str) -> None:
    """A vowel sign takes other widths in other terminals, and is an escape in what is looked through."""
    there, other = client(0, command=printable("काम"), user="bob"), client(1)
    found = [each for each in (there, other) if ClientFilter(typed).matches(each, View())]
    assert found == [other if "!" in typed else there]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("mem>4", "“mem>4”: write it as mem>4G"),
        ("age<5", "“age<5”: write it as age<10m"),
        ("user>3", "“user>3”: user is no number"),
        ("cpu>10%", ""),
        ("age>2h", ""),
        ("mem=4", "“mem=4”: write it as mem=4G"),
        ("lr=0.1", ""),
    ],
)
def test_a_comparison_that_cannot_be_made_is_said_and_leaves_nothing(text: str, said: str) -> None:
    assert ClientFilter(text).complaint() == said
    if said:
        view = View(indices={GPU0: 0, GPU1: 1})
        assert not any(
            ClientFilter(each).matches(c, view) for each in (text, f"!{text}", f"a {text}") for c in clients()
        )


def test_a_number_that_is_none_leaves_nothing_in_any_field_that_is_compared() -> None:
    view, one = View(indices={GPU0: 0, GPU1: 1}), next(iter(clients()))
    for name in (name for each in CLIENT.fields for name in (each.id, each.word) if name):
        for sign in ("<", "<=", ">", ">="):
            for number in ("", "4X", "-1", "1..2", "nan", "∞", ">4G"):
                bad = ClientFilter(f"{name}{sign}{number}")
                assert bad.complaint(), bad.text
                assert not bad.matches(one, view), bad.text
    assert "no field “foo”" in ClientFilter("foo>3").complaint()


def test_an_age_is_compared_with_the_time_of_the_snapshot() -> None:
    shown = [c for c in clients() if ClientFilter("age>1h").matches(c, View(Snapshot(NOW)))]
    assert shown
    assert all(c.start_time is not None and NOW - c.start_time > 3600 for c in shown)


ODD = (
    "日本語のユーザー",
    "e\u0301a\u0308 o\u0323\u0302",
    "👩\u200d👩\u200d👧 fam",
    "🇩🇪🇫🇷 flags ☎\ufe0f 1\ufe0f\u20e3",
    "\u202eevil\u202c \u2066x\u2069 \u200f",
    "أهلا שלום",
    "\u0301first",
    "Z\u0351\u036b\u0343\u036a\u0302\u036b\u033d\u0334\u0319A",
    "क्षि ｆｕｌｌ ﷺ",
    "a\ttab\x1b[31m",
    "",
)


@pytest.mark.parametrize("odd", ODD, ids=range(len(ODD)))
def test_wide_combining_and_steering_characters_never_move_a_column(odd: str) -> None:
    """Every cell is as wide as its column, whatever stands in it, and each part of a line is as wide as all of it."""
    shown = printable(odd)
    assert not {"\u202e", "\u202c", "\u2066", "\u2069", "\u200f", "\u200d", "\x1b", "\t"} & set(shown)
    one = client(0, user=shown or None, command=shown or None, container=shown or None)
    made = server(user=shown, status=shown, clients=(one, client(1, user="ж")))
    node = rich(daemons=(daemon(servers=(made,), user=shown),))
    view = View.of(node, node.daemons[0])
    things = (CLIENT, [one]), (SERVER, [made]), (LIMIT, limits_of(node.daemons[0]))
    for thing, items in things:
        for each in possible_columns(thing):
            for room in (4, 5, 7, 8, 11, 14, 22, 34):
                for item in items:
                    cell = tuple(each.cell(item, view, room))
                    line = tuple(_placed([(each, room)], [cell], "text", item, stretch=False))
                    assert width_of(line) == cell_len("".join(text for text, _ in line)) == room, (each.id, room, line)
    panel, picks = ClientsPanel(), PickList([Pick(1, odd, odd), Pick(2, "x")])
    panel.view = view
    (group, *_) = groups_of(made.clients, "user", view)
    for width in (38, 79, 118, 158, 199):
        for line in (
            *panel.row_lines(one, width),
            *panel.row_lines(group, width),
            *picks.row_lines(picks.rows[0], width),
        ):
            assert cell_len("".join(text for text, _ in fit_line(line, width))) == width


def test_what_is_short_takes_the_room_that_a_long_entry_has_left() -> None:
    bar = KeyBar()
    words = [("K", "Terminate and kill", 5), ("l", "Threads", 4), ("m", "Memory", 4), ("q", "Quit", 8)]
    bar.show([KeyHint(key, text, key, keep) for key, text, keep in words])
    told = {width: "".join(hint.key for hint in bar._shown(width)) for width in (52, 51, 41, 40)}
    assert told == {52: "Klmq", 51: "Klq", 41: "Kmq", 40: "Kq"}


def test_what_a_column_is_said_to_be_is_one_sentence_without_json() -> None:
    told = {each.id: each.brief for each in possible_columns(CLIENT)}
    assert told["pid"] == "Its process ID"
    fullest = "(GPU0 13 %: on several GPUs, how full the fullest is)"
    assert told["gpu_memory"] == f"The device memory that it uses {fullest}"
    assert [name for name, text in told.items() if not text or "JSON" in text or "null" in text] == []


def test_the_tab_of_the_loads_own_daemon_says_so() -> None:
    tabs, other = DaemonTabs(), daemon(pipe_dir=Path("/tmp/mpstui-load-x/pipe"))
    tabs._daemons, tabs._load = (daemon(), other), other.pipe_dir
    assert ["◆ load" in text for _, text in tabs._tabs(120)] == [False, True]


def test_of_daemons_that_have_gone_nothing_is_kept() -> None:
    """A job's daemon has a directory of its own, and all of its clients were kept with it."""
    tabs = DaemonTabs()
    for number in range(3):
        tabs._daemons = (daemon(pipe_dir=Path(f"/tmp/job-{number}")),)
        tabs.lines(80, 1)
    assert list(tabs._words) == [Path("/tmp/job-2")]


def test_which_tab_is_in_front_and_each_state_are_to_be_read_without_colour() -> None:
    tabs, other = (
        DaemonTabs(),
        daemon(pipe_dir=Path("/tmp/long/other"), condition=condition.held(None, "", None, condition.Moment())),
    )
    tabs._daemons, tabs._current = (daemon(), other), other.pipe_dir

    def told(width: int) -> str:
        return "".join(text for text, _ in tabs.lines(width, 1)[0])

    assert told(80) == f"  ● ok {PIPE} ▸ ◆ HELD /tmp/long/other   [ ] switch"
    wide = len(told(80))
    assert told(wide) == told(80)
    assert told(wide - 1) == f"  ● ok {PIPE} ▸ ◆ HELD …/long/other   [ ] switch", "the name gives way"
    tabs._past = Past("REPLAY", 2.0, 0.0, 9.0, False, 1.0, "", gap=(1.0, 3.0))
    assert "— not recorded /tmp/long/other" in told(120)
    assert "▸ — unknown …g/other" in told(40)
    states = (*(word for word, _ in (*HEALTH.values(), FAULT, FAULT_BY_LOG)), NO_WORD[0], SERVES_NOBODY[0], CUT_OFF[0])
    assert [brief_state(state)[2:] for state in states] == [
        *("ok", "HELD", "BLOCKED", "STALE", "ABSENT", "looking", "FAULT", "FAULT?", "unknown", "NO SERVER", "CUT OFF")
    ]


def test_a_devices_index_that_is_learnt_later_is_kept_for_a_past_without_devices() -> None:
    """Seen: soon after the start { showed “opened context 1 on GPU-bd233e8e…”, and the live screen “GPU 0”."""
    panel = EventsPanel()
    panel.know(rich(), None)
    panel.know(rich(devices=()), None)
    assert panel.view.indices[GPU0] == 0


def test_a_share_that_may_be_lower_is_an_upper_bound_and_in_json_not_known() -> None:
    one = client(0, active_thread_percentage=25.0, percentage_at_most=True, sm_count=32, limit_source={})
    full = replace(one, active_thread_percentage=100.0, sm_count=132, sm_count_estimated=True)
    view, threads = View(), CLIENT["active_thread_percentage"]
    cells = {room: "".join(text for text, _ in threads.cell(one, view, room)) for room in (13, 18)}
    assert cells == {13: " ≤25% ≤32SM", 18: " ≤25 %  ≤32 SM"}
    measured = replace(full, sm_count_estimated=False)
    assert "".join(text for text, _ in threads.cell(measured, view, 13)) == "≤100%≤132SM"
    assert "".join(text for text, _ in threads.cell(full, view, 13)) == "≤100%", "there is no room for both marks"
    assert "".join(text for text, _ in threads.cell(full, view, 18)) == "≤100 %  ≤≈ 132 SM"
    assert threads.text(one, view) == "≤25 %  ≤32 SM"
    assert (threads.value(one, view), CLIENT["sm_count"].value(one, view)) == (None, None)
    (fact,) = threads.detail.facts(one, view)
    assert fact.text == "≤25 %  ≤32 SM  as its server had it; its own setting, which can only be lower, is not known"
    sure = replace(one, percentage_at_most=False, limit_source={"active_thread_percentage": "server"})
    (fact,) = threads.detail.facts(sure, view)
    assert fact.text == "25 %  32 SM  set by server"
    limited = replace(one, pinned_mem_limits={"0": 1 << 30})
    (fact,) = CLIENT["pinned_mem_limits"].detail.facts(limited, view)
    assert fact.text == "as its server had it; its own setting, which can only be lower, is not known"


def test_a_gpu_that_nvml_does_not_tell_has_the_same_name_on_screen_and_in_a_table() -> None:
    one = client(0, contexts=(Context(1, "GPU-bd233e8e-3ac0"),), gpu_memory={})
    gpu, view = CLIENT["device_uuids"], View()
    assert gpu.text(one, view) == "GPU-bd233e8e"
    wide, narrow = ("".join(text for text, _ in gpu.cell(one, view, room)) for room in (14, 5))
    assert (wide, narrow) == ("GPU-bd233e8e", "bd23")
    assert gpu.matches(one, view, "gpu-bd233e8e")


@pytest.mark.parametrize(
    ("numbers", "room", "shown"),
    [
        ((0, 1), 5, "0,1"),
        (range(8), 5, "0-7"),
        ((0, 2, 4, 6), 5, "0,2…"),
        ((0, 2, 4, 6), 8, "0,2,4,6"),
        ((0, 1, 2, 9, 10, 11), 10, "0-2,9-11"),
        ((None, None), 5, "aa0…"),
        ((None, 3), 5, "3,a…"),
    ],
)
def test_a_client_on_several_gpus_never_looks_as_if_it_were_on_one(numbers, room, shown) -> None:
    """Seen: of eight GPUs “0,1,”, and of two that NVML does not tell the first one alone."""
    uuids = {f"GPU-aa{at}bbbb{at}-3ac0": number for at, number in enumerate(numbers)}
    one = client(0, contexts=tuple(Context(1, uuid) for uuid in uuids), gpu_memory={})
    cell = CLIENT["device_uuids"].cell(one, View(indices=uuids), room)
    assert "".join(text for text, _ in cell) == shown
