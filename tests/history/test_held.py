"""A session that somebody keeps open is noticed from the log, and by one question only."""

from __future__ import annotations

import pytest

from mpstui.control.answer import Outcome
from mpstui.control.holder import HELD_AFTER
from tests.observe.fakes import Node


@pytest.fixture
async def node(tmp_path):
    node = Node(tmp_path)
    node.processes.living = {480, 634}
    await node.collector.start()
    await node.settled()
    yield node
    await node.collector.stop()


async def test_a_session_left_open_is_asked_about_after_some_seconds(node):
    await node.pass_time(10)
    node.control.sent.clear()
    node.control.outcome = Outcome.HELD
    begin = node.clock.now
    node.log("control", "Accepting connection...", "NEW UI")
    await node.until(lambda: node.daemon.health == "held")
    assert HELD_AFTER <= node.clock.now - begin < HELD_AFTER + 0.5
    assert len(node.control.sent) == 1
    assert node.control.session  # and no time is lost by sending it again
    node.log("control", "UI closed")
    await node.until(lambda: not node.control.session)


async def test_a_session_that_is_closed_at_once_is_none_of_our_business(node):
    await node.pass_time(10)
    node.control.sent.clear()
    for _ in range(3):
        node.log("control", "Accepting connection...", "NEW UI", "Cmd:get_server_list", "634", "UI closed")
        await node.pass_time(1)
    assert node.control.sent == []
    assert node.daemon.health == "ok"


async def test_sessions_that_follow_one_another_are_none_of_our_business(node):
    """Commands of others, each slower than usual, with no pause between them."""
    await node.pass_time(10)
    node.control.sent.clear()
    node.control.outcome = Outcome.HELD  # asked, it would say so
    for _ in range(10):
        node.log("control", "Accepting connection...", "NEW UI")
        await node.pass_time(HELD_AFTER - 1)
        node.log("control", "UI closed")
    assert node.control.sent == []
    assert node.daemon.health == "ok"


async def test_a_daemon_that_others_keep_busy_is_not_held(node):
    await node.pass_time(10)
    node.control.outcome = Outcome.BUSY
    node.collector.request_refresh()
    node.control.sent.clear()
    await node.until(lambda: node.control.sent)
    await node.pass_time(2)
    assert (node.daemon.health, node.daemon.unread) == ("ok", False), "what it said some seconds ago stands"
    await node.pass_time(60)
    assert (node.daemon.health, node.daemon.unread) == ("unknown", True)
    assert "it is busy" in node.daemon.health_detail
    assert "old" in node.daemon.health_detail
    node.control.outcome = Outcome.OK
    await node.until(lambda: not node.daemon.unread)
