"""A clock that was set back, and a command that was refused, leave no state behind that never recovers."""

from __future__ import annotations

import pytest

from mpstui.control.wire import Membership
from mpstui.core.model import ProcessKey
from mpstui.observe.discovery import Place
from mpstui.observe.reducer import NodeState, Watching
from tests.observe.replay import PIPE, at, events, fold, running, shot
from tests.observe.test_logparse import control
from tests.observe.test_reducer import COMMANDS, facts


def test_a_refused_second_terminate_blocks_nothing():
    """Sent to a server that is not there, or for a process that has left: the daemon says no, and goes on."""
    node = fold("21:24:28.000", **COMMANDS)
    first = ("NEW UI", "Cmd:terminate_client 634 643", "0", "UI closed")
    again = ("NEW UI", "Cmd:terminate_client 999999 643", "Server 999999 not found", "UI closed")
    for event in events("control", control(*first, *again, clock="21:24:28.600")):
        node.add_event(PIPE, event, "control", at("21:24:28.700"))
    _, daemon = shot(node, "21:24:28.700")
    assert (daemon.health, daemon.blocked_by) == ("unknown", None)
    assert daemon.find_client(ProcessKey(643)).state == "TERMINATED"


@pytest.mark.parametrize("here", [480, 70000], ids=["here", "in a container"])
@pytest.mark.parametrize(("said", "restarted"), [(True, False), (True, True), (False, False)])
def test_only_an_end_without_a_word_is_called_one(here: int, said: bool, restarted: bool) -> None:
    """In a container the log has the daemon's PID there, which is not the one that /proc shows here."""
    node = NodeState()
    node.set_places([running(here)])
    node.set_watching(PIPE, Watching("logs"))
    start = ("Starting control daemon using socket /tmp/mps_0/control",)
    texts = start + (("Exit with status 0",) if said else ()) + (start if restarted else ())
    for event in events("control", control(*texts)):
        node.add_event(PIPE, event, "control", at("21:24:29"))
    node.set_places([running(here + 1) if restarted else Place(PIPE, "stale")], at("21:24:30"))
    snapshot = node.snapshot(1.0)
    ends = [(e.detail, e.time) for e in snapshot.events if e.kind == "daemon_exited"]
    assert len(ends) == 1
    assert ("does not say why" in ends[0][0]) != said
    assert snapshot.daemons[0].condition.since == (None if restarted else ends[0][1])


def test_answers_count_again_after_the_clock_was_set_back():
    node = NodeState()
    node.set_places([running()])
    node.fold_membership(PIPE, Membership(5000.0, (634,), {634: "ACTIVE"}, {634: (643,)}), 5000.1)
    for now in (1000.0, 1005.0):
        node.fold_membership(PIPE, Membership(now, (634,), {634: "ACTIVE"}, {634: ()}), now + 0.1)
    assert [*node.snapshot(1006.0).daemons[0].clients()] == []
    node.fold_membership(PIPE, Membership(1010.0), 1010.1)
    assert node.snapshot(1011.0).daemons[0].servers == ()


def test_the_cpu_is_measured_on_after_the_clock_was_set_back():
    node, seen = fold("21:24:28.000", **COMMANDS), []
    for now, used in ((1000, 1.0), (1001, 1.5), (500, 1.5), (501, 1.6)):
        node.set_facts([643], {643: facts(643, cpu_seconds=used)}, float(now))
        seen.append(node.snapshot(float(now)).daemons[0].find_client(ProcessKey(643, 77)).cpu_percent)
    assert seen == [None, 50.0, None, 10.0]


def test_a_share_of_a_cpu_that_differs_by_less_than_the_kernel_counts_is_the_same_one():
    """So that a client that does what it did is the same object in the next snapshot, and its row is not drawn anew."""
    node, seen, now, used = fold("21:24:28.000", **COMMANDS), [], 1000.0, 0.0
    for seconds, more in (
        (1, 0.97),
        (1.002, 0.97),
        (0.998, 0.975),
        (1, 0.96),
        (1, 0.95),
        (1, 0),
        (1, 0.004),
        (10, 9.6),
    ):
        now, used = now + seconds, used + more
        node.set_facts([643], {643: facts(643, cpu_seconds=used)}, now)
        seen.append(node.snapshot(now).daemons[0].find_client(ProcessKey(643, 77)))
    assert [client.cpu_percent for client in seen] == [None, 96.8, 96.8, 96.8, 95.0, 0.0, 0.4, 96.0]
    assert seen[1] is seen[2] is seen[3]
