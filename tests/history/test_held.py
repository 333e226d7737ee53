"""A session that somebody keeps open is noticed from the log, and by one question only."""

from __future__ import annotations

import pytest

from mpstui.control.answer import Outcome
from tests.observe.fakes import Node


@pytest.fixture
async def node(tmp_path):
    node = Node(tmp_path)
    node.processes.living = {480, 634}
    await node.collector.start()
    await node.settled()
    yield node
    await node.collector.stop()


async def test_a_session_left_open_is_asked_about_within_half_a_second(node):
    await node.pass_time(10)
    node.control.sent.clear()
    node.control.outcome = Outcome.HELD
    begin = node.clock.now
    node.log("control", "Accepting connection...", "NEW UI")
    await node.until(lambda: node.daemon.health == "held")
    assert node.clock.now - begin < 0.5
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
