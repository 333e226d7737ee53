"""Pictures of the main dialogs; `pytest --snapshot-update` renews them after they were looked at."""

from __future__ import annotations

import pytest
from dialog_host import PIPE, UUIDS, FakeRunner, Host, client, held, node

from mpstui.operations.registry import ON_OVERVIEW, operation
from mpstui.ui.dialogs import ChangeForm, DetailsScreen, HarmConfirm, HelpScreen

SMALL, LARGE = (80, 24), (160, 48)
MANY = node(tuple(client(4001 + n) for n in range(46)))


def form(action_id: str, snapshot=MANY) -> ChangeForm:
    return ChangeForm(FakeRunner(), operation(action_id), PIPE, snapshot)


def confirm(action_id: str, count: int) -> HarmConfirm:
    return HarmConfirm(FakeRunner(), operation(action_id), PIPE, MANY, [client(4001 + n).key for n in range(count)])


@pytest.mark.slow
@pytest.mark.parametrize("theme", ["mpstui-dark", "mpstui-light", "mpstui-contrast", "terminal"])
def test_form(snap_compare, theme):
    host = Host(form("set_active_thread_percentage"), theme)
    assert snap_compare(host, press=["2", "5"], terminal_size=SMALL)


@pytest.mark.slow
def test_form_large(snap_compare):
    assert snap_compare(Host(form("set_pinned_mem_limit")), press=["1", "0", "G", "enter"], terminal_size=LARGE)


@pytest.mark.slow
def test_form_with_a_wrong_value(snap_compare):
    assert snap_compare(Host(form("set_pinned_mem_limit")), press=["5", "1", "2"], terminal_size=SMALL)


@pytest.mark.slow
@pytest.mark.parametrize("theme", ["mpstui-dark", "mpstui-light", "mpstui-contrast", "terminal"])
def test_confirm(snap_compare, theme):
    assert snap_compare(Host(confirm("terminate_and_kill", 3), theme), press=["tab"], terminal_size=SMALL)


@pytest.mark.slow
def test_confirm_large(snap_compare):
    assert snap_compare(Host(confirm("terminate_client", 12)), terminal_size=LARGE)


def test_daemon_held(snap_compare):
    assert snap_compare(Host(form("set_client_priority", held(MANY))), terminal_size=SMALL)


def test_device(snap_compare):
    assert snap_compare(Host(DetailsScreen(MANY, "device", UUIDS[0])), terminal_size=SMALL)


@pytest.mark.slow
def test_help(snap_compare):
    assert snap_compare(Host(HelpScreen(ON_OVERVIEW)), terminal_size=LARGE)
