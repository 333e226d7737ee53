"""The table of fields: what one row of it brings, what ``--fields`` takes, and that nothing of it is forgotten."""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from rich.console import Console
from ui.screen import make_app, push, text_of
from ui.snapshots import GIB, NOW, client, daemon, rich, server

from mpstui.cli.status import print_text, to_json
from mpstui.core.model import Client, Event, OldLimit, PartitionTable, ProcessKey, Snapshot
from mpstui.core.v3 import Namespace, V3Node, V3Server
from mpstui.fields import (
    CHOICES,
    CLIENT,
    EVENT,
    INTEGER,
    LIMIT,
    SERVER,
    SNAPSHOT,
    Column,
    Detail,
    Field,
    Limit,
    NotingView,
    Shown,
    Text,
    Thing,
    UnknownFieldError,
    View,
    choose,
    fitted,
    lay_out,
    possible_columns,
    wished,
)
from mpstui.plan.chain import limit_chains
from mpstui.ui.daemons.screen import about
from mpstui.ui.filter import ClientFilter
from mpstui.ui.panels import ClientsPanel

LARGE = (200, 48)
MADE_UP: Field[Client] = Field(
    "luck", "luck", INTEGER, lambda c, v: c.pid % 7 + int(v.snapshot.time - NOW), null=True,
    column=Column(75, 8, 65), row=Text(75, "LUCK"), detail=Detail("process", 45), word="luck",
)  # fmt: skip


def things(thing: Thing[Any] = SNAPSHOT) -> Iterator[Thing[Any]]:
    yield thing
    for each in thing.fields:
        if each.of is not None:
            yield from things(each.of)


@pytest.fixture
def with_luck(monkeypatch: pytest.MonkeyPatch) -> Thing[Client]:
    """The table with one row more."""
    thing = replace(CLIENT, fields=(*CLIENT.fields, MADE_UP))
    monkeypatch.setattr(ClientsPanel, "THING", thing)
    return thing


def node(time: float = NOW) -> Snapshot:
    return replace(rich(daemons=(daemon(servers=(server(clients=(client(0), client(5))),)),)), time=time)


def row_of(text: str, pid: int) -> list[str]:
    return next(line for line in text.splitlines() if f" {pid} " in line and "alice" in line).split()


async def test_a_row_of_the_table_is_a_column_that_says_its_own_value(with_luck) -> None:
    app = make_app(node())
    async with app.run_test(size=LARGE):
        text = text_of(app)
        assert "LUCK" in next(line for line in text.splitlines() if "GPU MEM / LIMIT" in line)
        first = client(0)
        assert str(first.pid % 7) in row_of(text, first.pid)


async def test_a_cell_changes_with_its_value_though_its_client_is_the_same_object(with_luck) -> None:
    first = node()
    app = make_app(first)
    async with app.run_test(size=LARGE) as pilot:
        before = row_of(text_of(app), client(0).pid)
        after = row_of(await push(pilot, replace(first, time=NOW + 100)), client(0).pid)
        assert str(client(0).pid % 7) in before
        assert str(client(0).pid % 7 + 100) in after


async def test_a_column_is_sorted_by_its_value(with_luck) -> None:
    app = make_app(node())
    async with app.run_test(size=LARGE) as pilot:
        pids = [c.pid for c in app.screen.clients.rows]
        while app.screen.clients._sort is not MADE_UP:
            await pilot.press("s")
        assert [c.pid % 7 for c in app.screen.clients.rows] == sorted(pid % 7 for pid in pids)


def test_what_is_not_known_is_last_in_every_order() -> None:
    known, unknown = client(0, cpu_percent=5.0), client(1, cpu_percent=None, user=None, client_priority=None)
    for name in ("cpu_percent", "user", "client_priority"):
        assert CLIENT[name].order(known, View()) < CLIENT[name].order(unknown, View())


def test_each_has_an_identity_of_its_own_and_words_for_a_person() -> None:
    for thing in (*things(), EVENT):
        ids = [each.id for each in thing.fields]
        assert len(set(ids)) == len(ids)
        assert all(each.title and each.id == each.id.lower() for each in thing.fields)
        for places in ([f.column.at for f in thing.columns()], [f.row.at for f in thing.rows()]):
            assert len(set(places)) == len(places)
        groups = {each.detail.group for each in thing.fields if each.detail}
        assert groups <= set(thing.groups)


@pytest.mark.parametrize("width", range(20, 240, 7))
def test_columns_fit_and_the_first_stays(width: int) -> None:
    columns = lay_out(CLIENT, View(), width, 3, stretch=True)
    names = [each.id for each, _ in columns]
    assert {"pid", "state"} <= set(names)
    assert len(names) == 2 or 0 <= width - 3 - sum(room for _, room in columns) < 12, "too little for what comes next"


@pytest.mark.parametrize("gutter", [1, 3])
@pytest.mark.parametrize("stretch", [True, False])
@pytest.mark.parametrize("thing", [each for each in things() if each.columns()], ids=lambda each: each.name)
def test_a_wider_list_shows_less_of_no_column(thing: Thing[Any], stretch: bool, gutter: int) -> None:
    """At 85, 91, 105, 111, 119, 150 and 196 columns COMMAND gave cells away, at 96 CPU and AGE went."""
    asked = [Shown(each.id) for each in reversed(possible_columns(thing))][:9]
    for view in (View(), View(with_limits=True), View(Snapshot(0.0, watches_activity=True))):
        for chosen in ((), asked, [asked[0]._replace(width=30), *asked[1:]]):
            before: dict[str, int] = {}
            for width in range(20, 261):
                laid = lay_out(thing, view, width, gutter, stretch=stretch, chosen=chosen)
                shown = {each.id: room for each, room in laid}
                less = {name: (room, shown.get(name)) for name, room in before.items() if shown.get(name, 0) < room}
                assert not less, f"at {width}: {less}"
                assert len(laid) <= 2 or sum(shown.values()) + gutter <= width
                before = shown


def test_what_eighty_and_more_columns_show_of_the_clients() -> None:
    shown = {
        width: {each.id: room for each, room in lay_out(CLIENT, View(), width, 3, stretch=True)}
        for width in (80, 98, 118, 158, 198)
    }
    assert [each["command"] for each in shown.values()] == [15, 19, 25, 33, 38]
    assert {"pid", "user", "device_uuids", "state", "gpu_memory", "active_thread_percentage"} < set(shown[80])
    assert {"cpu_percent", "start_time"} < set(shown[98])
    assert {"server_pid", "client_priority"} < set(shown[158])
    assert "where" in shown[198]


def test_what_the_user_chose_stays_and_its_commands_too() -> None:
    chosen = [Shown(each.id) for each in CLIENT.columns() if each.id != "launches_per_second"]
    shown = [
        {each.id: room for each, room in lay_out(CLIENT, View(), width, 3, stretch=True, chosen=chosen)}
        for width in range(140, 241)
    ]
    assert {len(each) for each in shown} == {len(chosen)}
    assert all(after["command"] >= before["command"] for before, after in pairwise(shown))


def test_the_possible_columns_are_made_once_for_each_thing_and_are_its_own() -> None:
    """They were made twice for each list and second, the half of what laying it out took."""
    assert possible_columns(CLIENT) is possible_columns(CLIENT)
    assert wished(CLIENT, ()) is wished(CLIENT, ())
    narrow = fitted(CLIENT, {"user": 1})
    widths = [next(each.column.width for each in possible_columns(of) if each.id == "user") for of in (CLIENT, narrow)]
    assert widths[0] > widths[1]
    assert lay_out(narrow, View(), 158, 3, stretch=True) != lay_out(CLIENT, View(), 158, 3, stretch=True)


@pytest.mark.parametrize("thing", [CLIENT, SERVER, LIMIT], ids=lambda thing: thing.name)
def test_a_layout_that_is_remembered_is_the_one_that_would_be_made(thing):
    """With each snapshot comes another view; what its columns are laid out as goes by which of them there are."""
    chosen = [(), (Shown("pid"),), (Shown("pid", 12),), (Shown("pid", asked=False),)]
    ways = [
        (view, width, gutter, stretch, wish)
        for view in (View(), View(with_limits=True), View(beside=frozenset(("pid",))))
        for width in (0, 40, 79, 80, 158)
        for gutter in (1, 3)
        for stretch in (False, True)
        for wish in chosen
    ]
    for _ in range(2):
        for view, width, gutter, stretch, wish in ways:
            fresh = lay_out(replace(thing), view, width, gutter, stretch=stretch, chosen=wish)
            again = lay_out(thing, replace(view), width, gutter, stretch=stretch, chosen=wish)
            assert [(each.id, room) for each, room in again] == [(each.id, room) for each, room in fresh]
    assert lay_out(thing, View(), 80, 3, stretch=True) is lay_out(thing, View(), 80, 3, stretch=True)
    assert wished(CLIENT, [Shown("user", asked=False)]) != wished(CLIENT, ())


@pytest.mark.parametrize("width", [-2, -1])
def test_a_panel_that_is_not_shown_has_no_columns(width: int) -> None:
    """A key for a page of it was the end of the program."""
    assert lay_out(CLIENT, View(), width, 3, stretch=True) == []


def text_with(snapshot: Snapshot, fields: str) -> str:
    console = Console(width=500, file=io.StringIO())
    print_text(snapshot, console, choose(fields))
    return console.file.getvalue()


def test_the_fields_that_were_asked_for_in_their_order() -> None:
    snapshot = node()
    head, first, _ = text_with(snapshot, "state,pid,user").splitlines()
    assert head.split() == ["STATE", "PID", "USER"]
    assert first.split() == ["ACTIVE", str(client(0).pid), "alice"]
    told = to_json(snapshot, choose("user,pid"))
    assert list(told) == ["schema", "time", "source", "host", "driver_version", "daemons"]
    (shown,) = told["daemons"]
    assert list(shown) == ["servers"]
    assert list(shown["servers"][0]) == ["clients"]
    assert [list(each) for each in shown["servers"][0]["clients"]] == [["user", "pid"], ["user", "pid"]]


def test_a_bare_name_is_a_clients_and_others_say_whose() -> None:
    assert choose("pid, server.pid,daemon.pid,pid,sm_utilization,health") == {
        "client": ["pid"],
        "server": ["pid"],
        "daemon": ["pid", "health"],
        "device": ["sm_utilization"],
    }
    told = to_json(node(), choose("server.pid,servers,health"))
    assert list(told["daemons"][0]) == ["servers", "health"]
    assert list(told["daemons"][0]["servers"][0]) == ["pid"]
    whole = to_json(node(), choose("servers"))["daemons"][0]["servers"][0]
    assert whole == to_json(node())["daemons"][0]["servers"][0]


def test_every_field_can_be_asked_for_and_is_text() -> None:
    snapshot = node()
    for thing in CHOICES:
        for each in thing.fields:
            name = f"{thing.name}.{each.id}"
            head, *_ = text_with(snapshot, name).splitlines()
            assert head.strip() or thing.name == "limit"
            assert "None" not in text_with(snapshot, name)
            to_json(snapshot, choose(name))


@pytest.mark.parametrize(
    ("typed", "nearest"),
    [
        ("usr", "user"),
        ("gpu_mem", "gpu_memory"),
        ("mem", "gpu_memory"),
        ("PID", "pid"),
        ("server.usr", "server.user"),
        ("threads", "active_thread_percentage"),
        ("gpu", "device_uuids"),
        ("temp", "temperature"),
        ("", "mpstui schema status"),
        ("pid,,user", "mpstui schema status"),
        ("\x1b]0;x\x07", "\\x1b"),
        ("device.pid", "device"),
        ("nonsense.pid", "there is no field"),
    ],
)
def test_an_unknown_field_is_refused_with_the_nearest_names(typed: str, nearest: str) -> None:
    with pytest.raises(UnknownFieldError) as refused:
        choose(typed)
    assert nearest in str(refused.value)
    assert "\x1b" not in str(refused.value)


def test_memory_is_sorted_by_its_sum() -> None:
    small, large = client(0, gpu_memory={"a": GIB, "b": GIB}), client(1, gpu_memory={"a": 3 * GIB})
    assert CLIENT["gpu_memory"].order(large, View()) < CLIENT["gpu_memory"].order(small, View())


@pytest.mark.parametrize(
    ("cells", "shown"),
    [(18, "not in driver 470"), (17, "not in 470"), (11, "not in 470"), (10, "not 470"), (8, "not 470"), (7, "—")],
)
def test_what_a_driver_has_not_is_said_as_far_as_there_is_room(cells: int, shown: str) -> None:
    old = replace(daemon(), lacks=frozenset({"get_device_pinned_mem_limit"}), driver="470.256.02")
    limit, view = Limit(replace(old, default_pinned_mem_limits={})), View.of(rich(daemons=(old,)), old)
    assert [text for text, _ in LIMIT["pinned_mem_limits"].cell(limit, view, cells)] == [shown]


def test_what_is_known_is_shown_whatever_the_driver_has() -> None:
    old = replace(daemon(), lacks=frozenset({"get_device_pinned_mem_limit"}), driver="470.256.02")
    limit, view = Limit(replace(old, default_pinned_mem_limits={"0": GIB})), View.of(rich(daemons=(old,)), old)
    assert "1.0 GiB" in LIMIT["pinned_mem_limits"].text(limit, view)


@pytest.mark.parametrize("ordinals", [{}, {"0": "GPU-a"}])
def test_on_which_gpu_a_limit_is_is_not_known_without_a_command_and_that_is_said(ordinals) -> None:
    old = replace(daemon(), lacks=frozenset({"device_query"}), driver="535.261.03", ordinals=ordinals)
    limited = client(0, pinned_mem_limits={"0": GIB}, limit_source={"pinned_mem_limits": "server"})
    (fact,) = CLIENT["pinned_mem_limits"].facts(limited, View.of(rich(daemons=(old,)), old))
    reason = "; on which GPU is not known: device_query is not in driver 535"
    assert fact.text == f"set by server{'' if ordinals else reason}"


def test_without_the_driver_s_number_it_is_this_driver() -> None:
    old = replace(daemon(), lacks=frozenset({"ps"}))
    assert (old.lacking("ps"), old.lacking("get_server_list")) == ("not in this driver", None)


def test_a_view_notes_whether_a_cell_goes_by_what_the_next_snapshot_changes() -> None:
    snapshot = node()
    view = NotingView(View.of(snapshot, snapshot.daemons[0]))
    looked = []
    for each in (*CLIENT.columns(), MADE_UP):
        view.begin()
        assert each.cell(client(0), view, 20) == each.cell(client(0), View.of(snapshot, snapshot.daemons[0]), 20)
        looked += [each.id] * view.looked
    assert {"start_time", "luck"} <= set(looked)
    assert {"pid", "user", "command", "state", "device_uuids", "cpu_percent"}.isdisjoint(looked)


async def test_rows_that_are_as_they_were_are_not_worked_out_again() -> None:
    """Counted: of a client that has not changed only what goes by the snapshot or the daemon is asked for again."""
    counted: list[str] = []
    snapshot = node()

    def counting(each: Field[Client]) -> Field[Client]:
        column = each.column
        if column is None:
            return each

        def cell(c: Client, v: View, n: int) -> Any:
            counted.append(each.id)
            return each.cell(c, v, n)

        return replace(each, column=replace(column, cell=cell))

    panel = ClientsPanel
    before = panel.THING
    panel.THING = replace(CLIENT, fields=tuple(counting(each) for each in CLIENT.fields))
    try:
        async with make_app(snapshot).run_test(size=LARGE) as pilot:
            await push(pilot, replace(snapshot, host="one"))
            counted.clear()
            await push(pilot, replace(snapshot, host="another"))
            assert "start_time" in counted
            assert {"pid", "user", "command", "cpu_percent"}.isdisjoint(counted)
    finally:
        panel.THING = before


@pytest.mark.parametrize("name", [each.id for each in CLIENT.fields])
def test_the_filter_takes_every_field_of_a_client(name: str) -> None:
    view = View.of(node(), node().daemons[0])
    assert ClientFilter(f"{name}:").matches(client(0), view)
    assert not ClientFilter(f"{name}:no-such-text").matches(client(0), view)
    assert not ClientFilter(f"{name}:x").matches(Client(ProcessKey(1)), view), "what is not known is not found"


def test_a_filter_by_a_fields_name_finds_its_text() -> None:
    view = View()
    kept, other = (
        client(0, old_limits=(OldLimit("active_thread_percentage", 100.0, 50.0),), container="embed"),
        client(1),
    )
    for text in (
        "outdated_limits:yes",
        "old:yes",
        "container:embed",
        "!outdated_limits:no",
        f"server_pid:{kept.server_pid} embed",
    ):
        assert ClientFilter(text).matches(kept, view)
        assert not ClientFilter(text).matches(other, view)


def test_exactly_one_gpu_is_also_that_of_a_client_on_several() -> None:
    """Seen: gpu=1 left out the client that held the second most there."""
    view = View(indices={"GPU-a": 0, "GPU-b": 1, "GPU-c": 11})
    both = client(0, gpu_memory={"GPU-a": 1, "GPU-b": 1}, contexts=())
    other = client(1, gpu_memory={"GPU-c": 1}, contexts=())
    for text in ("gpu=1", "gpu=0", "gpu=0,1", "gpu!=11"):
        assert ClientFilter(text).matches(both, view), text
        assert not ClientFilter(text).matches(other, view), text


@pytest.mark.slow
async def test_rows_that_have_gone_are_not_remembered() -> None:
    """Counted in objects: as many as there is room for, however many clients come and go."""
    first = node()
    async with make_app(first).run_test(size=LARGE) as pilot:
        panel = pilot.app.query_one(ClientsPanel)
        for number in range(150):
            clients = tuple(client(index) for index in range(3 * number, 3 * number + 3))
            await push(pilot, rich(daemons=(daemon(servers=(server(clients=clients),)),)))
        assert len(panel._changing) <= 2 * panel._visible_rows() + 20
        assert len(panel._drawn) == 3


def test_a_line_of_an_event_gives_up_its_command_before_what_happened_is_cut() -> None:
    event = Event(
        "context_active", NOW, pid=18479, user="dave", command="python -m ipykernel_launcher -f x.json",
        detail="client 18479 opened context 1 on GPU 0", raw="x",
    )  # fmt: skip
    column = next(each.column for each in EVENT.fields if each.id == "detail")
    assert column is not None
    for cells in range(45, 90):
        ((text, _),) = column.cell(event, View(), cells)
        assert len(text) <= cells
        assert text.endswith("opened context 1 on GPU 0")
        assert ("python" in text) == (cells >= 54), (cells, text)
    uuid = "GPU-bd233e8e-1c49-552d-af60-c5382e4a7500"
    distant = event._replace(detail=f"client 18479 opened context 1 on {uuid}")
    for cells in (58, 70, 80):
        ((text, _),) = column.cell(distant, View(), cells)
        assert len(text) <= cells
        assert text.endswith(f"opened context 1 on {uuid[:12]}…"), "a UUID that NVML does not know gives way too"
    ((whole, _),) = column.cell(distant, View(), 200)
    assert whole.endswith(uuid)


def test_with_static_partitions_no_percentage_is_said_to_be_in_force_anywhere() -> None:
    static = daemon(static_partitioning=True, partitions=PartitionTable())
    view = View.of(rich(daemons=(static,)), static)
    told = [fact for fact in SERVER["active_thread_percentage"].facts(static.servers[0], view) if fact.text]
    assert [fact.text for fact in told] == ["no effect"]
    threads = next(para for para in about(static, rich(daemons=(static,)), 100) if para.label == "default threads")
    assert threads.text == "no effect"
    mine = client(0, sm_partition="GPU-x/a", sm_count=56, active_thread_percentage=None)
    share, sms, *_ = limit_chains(mine, static, (), {})
    assert (share.effective, [link.value for link in share.links]) == ("no effect", ["no effect"])
    assert [(link.label, link.value) for link in sms.links] == [("its SM partition", "56 SM")]


def test_a_limit_that_is_not_set_is_none_where_that_was_read_and_a_dash_where_it_was_not() -> None:
    node = V3Node((V3Server("serving"),), (Namespace("default", "serving"),))
    bare = {"active_thread_percentage": None, "pinned_mem_limits": {}}
    named = server(v3=node.servers[0], **bare)
    spoken = daemon(protocol="v3", v3=node, servers=(named,), default_active_thread_percentage=None)
    for of, shown in ((spoken, "none"), (daemon(servers=(server(**bare),)), "—")):
        view = View.of(rich(daemons=(of,)), of)
        row = Limit(of, of.servers[0])
        assert LIMIT["active_thread_percentage"].text(row, view) == shown
        assert LIMIT["pinned_mem_limits"].text(row, view) == shown
        (memory,) = [fact for fact in SERVER["pinned_mem_limits"].facts(of.servers[0], view) if fact.text]
        assert memory.text == shown
