"""The question before a server is shut down: which one, whether its clients are waited for, and whom it hits."""

from __future__ import annotations

import dataclasses

import pytest
from dialog_host import PIPE, FakeRunner, Host, client, node, without_server
from ui.screen import text_of, until

from mpstui.core.model import ProcessKey, Server
from mpstui.operations.registry import operation
from mpstui.operations.types import ExitStatus, Result
from mpstui.ui.dialogs import HarmConfirm, open_action
from mpstui.ui.dialogs.widgets import Chooser, Listing

SERVER = ProcessKey(1402, 9000)


def opened(snapshot=None, server=None):
    """As the overview opens it: with the client that the cursor is on."""
    runner, snapshot = FakeRunner(), snapshot or node()
    chosen = [client.key for client in snapshot.daemons[0].clients()][:1]
    made = open_action(runner, operation("shutdown_server"), PIPE, snapshot, clients=chosen, server=server)
    return runner, Host(made)


def listing(host: Host, name: str) -> str:
    return host.screen.query_one(f"#{name}", Listing).text


@pytest.mark.slow
@pytest.mark.parametrize("size", [(80, 24), (160, 48)])
async def test_enter_cancels_and_the_clients_are_waited_for_unless_said(size) -> None:
    runner, host = opened()
    async with host.run_test(size=size) as pilot:
        assert isinstance(host.screen, HarmConfirm)
        assert host.focused is host.screen.query_one("#cancel")
        request = host.screen.request()
        assert (request.server_pid, request.force) == (1402, False)
        assert "Waits for: 3" in text_of(host)
        await pilot.press("enter")
        assert not isinstance(host.screen, HarmConfirm)
    assert runner.requests == []


@pytest.mark.slow
async def test_by_force_everybody_who_is_hit_is_named_and_nobody_else() -> None:
    runner, host = opened()
    async with host.run_test(size=(160, 48)) as pilot:
        await pilot.press("shift+tab", "down")
        assert listing(host, "hits").count("✕") == 3
        assert "4011" in listing(host, "hits"), "the one under the cursor too"
        host.screen.query_one("#apply").focus()
        await pilot.press("enter")
        await until(pilot, lambda: bool(runner.requests))
    (request,) = runner.requests
    assert request.force
    assert [key.pid for key in request.clients] == [4011, 4012, 4013]


@pytest.mark.slow
async def test_the_arrows_change_what_is_chosen_only_where_the_focus_and_its_mark_are() -> None:
    clients = tuple(client(4001 + n) for n in range(14))
    _, host = opened(node(clients))
    async with host.run_test(size=(80, 24)) as pilot:
        await pilot.press("down", "down", "pagedown")
        assert host.focused is host.screen.query_one("#cancel")
        assert "↑↓ scroll" in text_of(host)
        assert not host.screen.request().force, "arrows scroll; they do not choose the harmful end"
        await pilot.press("tab", "tab")
        assert "▸ Hit" in text_of(host) or "▸ Waits for: 14" in text_of(host), "a list in focus is marked"
        assert "Enter" not in text_of(host).splitlines()[-1], "which does nothing there"
        await pilot.press("down")
        assert not host.screen.request().force
        await pilot.press("shift+tab", "shift+tab", "shift+tab")
        assert host.focused is host.screen.query_one("#force"), "a list is in nobody's way between field and buttons"
        assert "▸● wait for them" in text_of(host)
        assert "↑↓ choose" in text_of(host)
        await pilot.press("down")
        assert host.screen.request().force
        assert "▸● by force" in text_of(host)
        await pilot.press("tab", "tab", "up")
        assert host.screen.request().force, "nor back"


@pytest.mark.slow
async def test_one_of_several_is_chosen_and_one_that_goes_is_not_taken_for_another() -> None:
    snapshot = node()
    daemon = snapshot.daemons[0]
    other = Server(ProcessKey(1500, 9100), 1001, "bob", "ACTIVE", clients=(client(4100),))
    two = dataclasses.replace(snapshot, daemons=(dataclasses.replace(daemon, servers=(*daemon.servers, other)),))
    _, host = opened(two, other.key)
    async with host.run_test(size=(160, 48)) as pilot:
        assert host.screen.request().server_pid == 1500
        assert [key.pid for key in host.screen.request().clients] == [4100]
        host.screen.update_snapshot(snapshot)
        await pilot.pause()
        assert host.screen.query_one("#server", Chooser).chosen.gone
        assert host.screen.request().server_pid is None
        assert host.screen.query_one("#apply").disabled


@pytest.mark.slow
async def test_its_outcome_goes_on_with_the_clients_that_it_waits_for() -> None:
    runner, host = opened()
    async with host.run_test(size=(80, 24)) as pilot:
        dialog = host.screen
        dialog.query_one("#apply").focus()
        await pilot.press("enter")
        await until(pilot, lambda: bool(runner.requests))
        text = "server 1402 was told to end, and waits for 3 clients"
        result = Result(runner.requests[-1], ExitStatus.REFUSED_BY_DAEMON, text, waits=True)
        runner.ending.set_result(result)
        await until(pilot, lambda: "waits for 3 clients" in text_of(host))
        dialog.update_snapshot(node((client(4011),)))
        await until(pilot, lambda: "waits for 1 client " in text_of(host))
        assert "3 clients" not in text_of(host), "what was asked is no longer true"
        dialog.update_snapshot(without_server(node()))
        await until(pilot, lambda: "✓ server 1402 has ended" in text_of(host))
        assert "waits for" not in text_of(host)
