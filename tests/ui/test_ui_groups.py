"""Clients in groups: sums, folding, and whom a key means on the line of a group."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mpstui.core.model import Context
from mpstui.core.where import Where
from mpstui.fields import CLIENT, GROUPS, Group, View, groups_of
from mpstui.ui.dialogs import DetailsScreen, HarmConfirm
from mpstui.ui.stale_target import HOLD

from .screen import make_app, push, text_of
from .snapshots import GIB, GPU0, GPU1, client, daemon, one_daemon, rich, server
from .test_ui_stale_target import Clock
from .test_ui_states import Memory

SIZE = (120, 40)


def node(*clients):
    return rich(daemons=(daemon(servers=(server(clients=clients),)),))


def total(group: Group, name: str, cells: int = 22) -> str:
    return "".join(text for text, _ in CLIENT[name].column.total.cell(group, cells)).strip()


def test_a_sum_is_of_what_is_known_and_says_where_that_is_not_all() -> None:
    view = View.of(one_daemon(), daemon())
    one, two = client(0, gpu_memory={GPU0: GIB}), client(5, gpu_memory={GPU0: GIB, GPU1: GIB})
    (alice,) = groups_of([one, two], "user", view)
    assert total(alice, "gpu_memory") == "3.0 GiB", "no sum of limits: one has none"
    assert total(alice, "cpu_percent") == f"{one.cpu_percent + two.cpu_percent:.0f} %"
    assert total(alice, "active_thread_percentage") == "125 %"
    assert total(alice, "launches_per_second") == "—"
    (alice,) = groups_of([one, client(5, gpu_memory={}, cpu_percent=None)], "user", view)
    assert total(alice, "gpu_memory") == "≥1.0 GiB"
    assert total(alice, "gpu_memory", 12) == "≥1.0G"
    assert total(alice, "cpu_percent") == f"≥{one.cpu_percent:.0f} %"
    limited = [client(n, pinned_mem_limits={"0": 2 * GIB}, gpu_memory={GPU0: GIB}) for n in (0, 5)]
    assert total(groups_of(limited, "user", view)[0], "gpu_memory") == "2.0 GiB / 4.0 GiB"


def test_names_of_groups_are_in_the_order_that_people_count_in_and_no_byte_is_counted_twice() -> None:
    indices = {f"GPU-{n}": n for n in range(12)}
    view = View(indices=indices)
    clients = [client(n, contexts=(Context(n, f"GPU-{n}"),), gpu_memory={f"GPU-{n}": GIB}) for n in range(12)]
    clients.append(client(12, contexts=(Context(1, "GPU-0"), Context(2, "GPU-1")), gpu_memory={"GPU-0": GIB}))
    clients.append(client(13, contexts=(), gpu_memory={}))
    groups = sorted(groups_of(clients, "gpu", view), key=lambda group: group.order)
    assert [g.title for g in groups] == [
        "GPU 0 only", "GPU 0 and 1", "GPU 1 only", *(f"GPU {n}" for n in range(2, 12)), "GPU —",
    ]  # fmt: skip
    assert sum(len(g.clients) for g in groups) == len(clients)
    for by in GROUPS:
        assert sum(len(g.clients) for g in groups_of(clients, by, view)) == len(clients)


ONE, OTHER = (Where(container_id=letter * 64, runtime="containerd") for letter in "ab")


def in_pod(box: Where, container: str | None = "server", **changes) -> Where:
    return replace(box, pod_uid="7", pod="vllm-0", namespace="ml", container_name=container, **changes)


@pytest.mark.parametrize(
    ("places", "titles"),
    [
        ((in_pod(ONE), in_pod(ONE, None), ONE), ["ml/vllm-0/server"]),
        ((ONE, OTHER), [f"containerd:{'a' * 12}", f"containerd:{'b' * 12}"]),
        ((in_pod(ONE), in_pod(OTHER)), [f"containerd:{'a' * 12}", f"containerd:{'b' * 12}"]),
        ((in_pod(ONE), in_pod(OTHER, "sidecar")), ["ml/vllm-0/server", "ml/vllm-0/sidecar"]),
        ((in_pod(ONE), in_pod(ONE, claimed=frozenset({"pod", "container"}))),
         ["ml/vllm-0/server", f"claims containerd:{'a' * 12}"]),
    ],
)  # fmt: skip
def test_one_container_is_one_group_by_its_name_where_a_client_knows_it(places, titles) -> None:
    clients = [client(n, where=where) for n, where in enumerate(places)]
    found = groups_of(clients, "container", View())
    assert [group.title for group in found] == [f"container {title}" for title in titles]


def test_who_is_known_to_be_in_a_container_by_its_name_alone_is_not_in_none() -> None:
    (group,) = groups_of([client(0, container="embed")], "container", View())
    assert group.title == "container embed"


@pytest.mark.slow
async def test_groups_fold_keep_the_cursor_are_sorted_by_their_sums_and_are_there_at_the_next_start() -> None:
    memory = Memory()
    app = make_app(one_daemon(), memory=memory)
    async with app.run_test(size=SIZE) as pilot:
        table = app.overview.clients
        await pilot.press("1", "f5")
        assert "10 groups" not in text_of(app)
        await pilot.press("j", "enter")
        assert app.focused is table
        titles = [row.title for row in table.rows if isinstance(row, Group)]
        named = [f"user {name}" for name in ("alice", "bob", "carol", "dmitri", "eve", "ユーザー名前", "—")]
        assert titles == named
        assert "[-] user alice · 10 clients" in text_of(app)
        line = next(line for line in text_of(app).splitlines() if "user alice" in line)
        assert not line.rstrip(" │┃").endswith("—"), "a column that has no sum is not unknown"
        assert "46 by user" in text_of(app)
        assert table.cursor_row.pid == 2000, "the cursor is where it was"
        await pilot.press("left")
        assert table.cursor_group.title == "user alice"
        await pilot.press("left")
        assert isinstance(table.rows[1], Group), "folded"
        await pilot.press("enter")
        assert not isinstance(table.rows[1], Group)
        assert not isinstance(app.screen, DetailsScreen)
        await pilot.press("j", "minus")
        assert table.cursor_group.title == "user alice", "a client that is folded away gives its cursor to its group"
        assert [row.title for row in table.rows] == titles
        table.sort_by("gpu_memory")
        sums = [sum(row.memory.values()) for row in table.rows]
        assert sums[:-1] == sorted(sums[:-1], reverse=True)
        assert table.rows[-1].title == "user —", "what is not known comes last"
        await pilot.press("I")
        assert [sum(row.memory.values()) for row in table.rows][:-1] == sorted(sums[:-1])
        await pilot.press("g", "plus", "minus", "right")
        opened = [row.title for n, row in enumerate(table.rows[:-1]) if isinstance(row, Group)]
        assert len(table.rows) > len(titles)
        rows = len(table.rows)
        await pilot.press("slash", *"user:eve", "enter")
        assert [row.title for row in table.rows if isinstance(row, Group)] == ["user eve"]
        await pilot.press("escape")
        assert opened
    again = make_app(one_daemon(), memory=memory)
    async with again.run_test(size=SIZE) as pilot:
        await pilot.pause()
        assert (again.overview.clients.by, len(again.overview.clients.rows)) == ("user", rows)


@pytest.mark.slow
async def test_on_the_line_of_a_group_a_key_that_ends_work_names_each_of_its_clients() -> None:
    alices = [client(n) for n in (0, 5, 10)]
    app = make_app(node(*alices, client(1)))
    async with app.run_test(size=SIZE) as pilot:
        clock = app.overview.stale.clock = Clock()
        table = app.overview.clients
        table.group("user")
        await pilot.press("g", "t")
        assert isinstance(app.screen, HarmConfirm)
        assert app.screen.clients == tuple(c.key for c in alices)
        assert all(f"{c.pid} " in text_of(app) for c in alices)
        assert "3 clients" in text_of(app)
        await pilot.press("escape", "space")
        assert table.chosen == {c.key for c in alices}
        assert table.cursor_row is table.rows[1], "as with a client, the cursor goes on"
        await pilot.press("k", "space", "minus")
        assert table.chosen == frozenset()
        table.folded = frozenset({"alice"})
        table.group("gpu")
        # The client under the cursor opens a context on another device, whose group is folded.
        table.group("gpu", ["0,1"])
        table.move_to(1)
        both = client(0, contexts=(Context(1, GPU0), Context(2, GPU1)))
        assert table.cursor_row.key == both.key
        await push(pilot, node(both, *alices[1:], client(1)))
        assert table.cursor_group.title == "GPU 0 and 1"
        await pilot.press("t")
        assert app.screen is app.overview, "the row under the cursor has become another one just now"
        assert "no longer in that row" in [n.message for n in app._notifications][-1]
        clock.now += 2 * HOLD
        await pilot.press("t")
        assert isinstance(app.screen, HarmConfirm)


async def test_nonsense_that_was_kept_is_left_out() -> None:
    app = make_app(one_daemon(), memory=Memory())
    async with app.run_test(size=SIZE) as pilot:
        table = app.overview.clients
        for kept in (
            {"groups": [1]}, {"groups": ["nothing", [], False]}, {"groups": ["user", {}, True]}, {"groups": 7},
            {"pinned": [[1], "x", [None, 2]]}, {"pinned": 3}, {"filter": 4}, {"filter": " "},
        ):  # fmt: skip
            app._memory = Memory(kept)
            app.overview._recall_clients()
            await pilot.pause()
            assert (len(table.rows), table.by, table.pinned) == (46, None, frozenset()), kept
        app._memory = Memory({"groups": ["user", [1, None, {}, "alice"], "x"]})
        app.overview._recall_clients()
        assert (table.by, table.folded) == ("user", {"alice"})


async def test_the_foot_says_how_the_group_under_the_cursor_is_folded() -> None:
    app = make_app(one_daemon())
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("f5", "j", "enter")
        assert "Fold" not in text_of(app)
        await pilot.press("left")
        assert "Enter Fold " in text_of(app)
        await pilot.press("enter")
        assert "Enter Unfold " in text_of(app)
        await pilot.press("1")
        assert "Enter Details " in text_of(app), "of the device"
