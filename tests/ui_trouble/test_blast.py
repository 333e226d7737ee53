"""The blast radius on the screen: the recorded containment case, who joins groups, and what if on any client."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mpstui.core import condition
from mpstui.core.model import PendingClient, ProcessKey, ServerFault
from mpstui.core.trust import Speaker
from mpstui.ui.dialogs import HarmConfirm
from mpstui.ui.trouble.blast import BlastScreen, nodes_of
from tests.ui.screen import text_of
from tests.ui.snapshots import NOW

from .nodes import A, B, C, D, containment, member, node, said, trouble_app

SIZE = (160, 48)


async def on(pilot, key: ProcessKey) -> str:
    """Puts the cursor on a client by the keys, and gives the screen."""
    await pilot.press("g")
    for _ in range(60):
        if pilot.app.screen.client.key == key:
            break
        await pilot.press("j")
    assert pilot.app.screen.client.key == key
    await pilot.pause()
    return text_of(pilot.app)


def lost_rows(text: str) -> set[int]:
    """PIDs of the rows with a cross."""
    rows = (line.lstrip("│▸ ").split() for line in text.splitlines() if line.startswith("│"))
    return {int(words[1]) for words in rows if len(words) > 1 and words[0] == "✕" and words[1].isdigit()}


@pytest.mark.parametrize(
    ("who", "lost", "unhurt"),
    [(A, {3000, 3001, 3002}, "3003"), (C, {3000, 3001, 3002}, "3003"), (D, {3003}, "3000, 3001, 3002")],
)
async def test_what_if_gives_what_was_recorded(who, lost, unhurt) -> None:
    app = trouble_app(containment())
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("b")
        text = await on(pilot, who)
        assert f"If client {who.pid} faults" in text
        assert lost_rows(text) == lost
        assert f"of the server would run on: {unhurt}." in said(app)
        assert "server 1402 would refuse" in text


@pytest.mark.slow
async def test_a_client_that_joins_groups_is_marked_and_what_it_would_be_without() -> None:
    app = trouble_app(containment())
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("b")
        text = await on(pilot, A)
        (row,) = [line for line in text.splitlines() if "3001" in line and "●" in line]
        assert "●━━━" in row
        assert "↔ connects" in row
        assert "Client 3001 connects groups: without it 3000 would be lost alone." in said(app)
        await pilot.press("n")
        assert app.screen.client.key == A, "n is the next match, as everywhere"
        assert [n.message for n in app._notifications][-1] == "no text to look for: / filters"
        await pilot.press("ampersand")
        assert app.screen.client.key == B
        await pilot.pause()
        assert "It connects groups that share no GPU without it: 3000, 3002." in said(app)
        await pilot.press("slash", *"!3002", "enter", "n")
        found = [app.screen.client.key]
        for key in ("n", "N", "N"):
            await pilot.press(key)
            found.append(app.screen.client.key)
        assert found == [D, A, D, B], "through the rows that the filter leaves, and round the end"


async def test_it_opens_at_the_client_under_the_cursor_and_stays_with_it() -> None:
    app = trouble_app(containment())
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("j", "j", "b")
        assert isinstance(app.screen, BlastScreen)
        assert app.screen.client.key == C
        app.collector.push(node((member(C, 1), member(D, 2))))
        await pilot.pause()
        assert app.screen.client.key == C
        assert "No other client would lose" in text_of(app)


async def test_what_another_users_daemon_says_of_its_clients_is_that_users_word() -> None:
    told = containment()
    theirs = replace(told.daemons[0], uid=64101, user="mallory", speaker=Speaker(64101, "a daemon of mallory"))
    app = trouble_app(replace(told, daemons=(theirs,)))
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("b")
        assert "Only mallory's daemon says so. mpstui has not confirmed it." in said(app)


async def test_who_waits_would_be_refused_and_unknown_devices_are_counted_in() -> None:
    pending = PendingClient(ProcessKey(4100), user="bob", server_pid=1402)
    app = trouble_app(node((member(A), member(D, 2)), pending=(pending,)))
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("b")
        text = await on(pilot, A)
        assert lost_rows(text) == {3000, 3003}
        assert "Its GPUs are not known" in text
        assert "Waiting now, and refused then: 4100 (bob)" in text
        assert "?" in next(line for line in text.splitlines() if line.startswith("│▸ ✕ 3000 "))


@pytest.mark.slow
async def test_terminate_is_for_the_client_that_is_asked_about_and_not_for_its_neighbour() -> None:
    app = trouble_app(containment())
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("b")
        await on(pilot, C)
        await pilot.press("K")
        assert isinstance(app.screen, HarmConfirm)
        assert app.screen.clients == (C,)
        await pilot.press("escape")
        app.collector.push(node((member(A, 0), member(D, 2))))
        await pilot.pause()
        await pilot.press("K")
        assert isinstance(app.screen, BlastScreen), "it has just gone: the key was meant for it"
        assert any("3002 has ended; nothing was done" in note.message for note in app._notifications)


@pytest.mark.parametrize("blocked", [False, True])
async def test_whose_gpu_work_was_ended_takes_nothing_down(blocked: bool) -> None:
    """“If client 3000 faults … Torn down: GPU 0”, while another screen said that its GPU work was ended."""
    told = node((member(A, 0, state="ACTIVE" if blocked else "TERMINATED"), member(B, 0)))
    if blocked:
        found = condition.terminated_twice(A, None, condition.Moment())
        told = replace(told, daemons=(replace(told.daemons[0], condition=found),))
    app = trouble_app(told)
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("b")
        text = await on(pilot, A)
        assert f"Client {A.pid} is terminated" in text
        assert "it can fault no more" in said(app)
        assert ("Contexts lost on" in said(app), lost_rows(text)) == (False, set())
        assert "Contexts lost on" in await on(pilot, B)


@pytest.mark.parametrize(("claimed", "lost"), [(False, {3000}), (True, {3000, 3001, 3002})])
async def test_whose_gpu_work_has_ended_loses_nothing_more_and_joins_nobody(claimed: bool, lost: set[int]) -> None:
    """B was terminated, and joined A and C. What another user's daemon says of B is no reason to leave B out."""
    told = node((member(A, 0), member(B, 0, 1, state="TERMINATED"), member(C, 1)))
    if claimed:
        theirs = replace(told.daemons[0], uid=64101, user="mallory", speaker=Speaker(64101, "a daemon of mallory"))
        told = replace(told, daemons=(theirs,))
    app = trouble_app(told)
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("b")
        text = await on(pilot, A)
        assert lost_rows(text) & {3000, 3001, 3002} == lost
        assert ("↔ connects" in text) is claimed
        assert ("3001 has no GPU work left to lose" in said(app)) is not claimed
        assert ("would run on: 3002" in said(app)) is not claimed


@pytest.mark.parametrize("confirmed", [True, False])
async def test_who_is_lost_already_is_at_no_risk_where_that_is_sure(confirmed: bool) -> None:
    fault = ServerFault(NOW - 12, (3000,), (B,), devices=("0", "1"), confirmed=confirmed)
    clients = (member(A, 0), member(B, 0))
    app = trouble_app(node(clients, server_changes={"status": "FAULT", "fault": fault}))
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("b")
        assert lost_rows(await on(pilot, A)) == ({3000} if confirmed else {3000, 3001})
        text = await on(pilot, B)
        assert ("Client 3001 is lost" in text) is confirmed
        assert ("it can fault no more" in said(app)) is confirmed


async def test_read_only_refuses_and_nobody_there_is_said() -> None:
    app = trouble_app(containment(), read_only=True)
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("b", "K")
        assert isinstance(app.screen, BlastScreen)
        app.collector.push(node())
        await pilot.pause()
        assert "There is no client that could fault." in text_of(app)
        await pilot.press("ampersand", "t", "y", "escape")
        assert app.screen is app.overview


async def test_of_clients_that_are_not_known_none_is_said_to_be_able_to_fault() -> None:
    healthy = node()
    servers = tuple(replace(server, clients=(), clients_known=False) for server in healthy.daemons[0].servers)
    app = trouble_app(replace(healthy, daemons=(replace(healthy.daemons[0], servers=servers),)))
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("b")
        assert "There is no client that could fault." not in text_of(app)
        assert "Which clients there are is not known" in text_of(app)


async def test_copy_gives_the_whole_answer() -> None:
    app = trouble_app(containment())
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("b", "y")
        assert app.clipboard.startswith("If client 3000 faults\n3000 alice python train.py\n2 other clients would lose")


def test_many_devices_and_clients_stay_in_groups() -> None:
    daemon = node([member(ProcessKey(3000 + n, n), n % 4) for n in range(46)]).daemons[0]
    found = nodes_of(daemon)
    assert [row.group for row in found] == sorted(row.group for row in found)
    assert len({row.group for row in found}) == 4
