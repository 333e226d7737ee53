"""What the session does to its clients, without a screen."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from ui.snapshots import GPU0, daemon, device, one_daemon, rich, server

from mpstui.core.model import Client, Context, ProcessKey
from mpstui.fields import DEVICE, View
from mpstui.load.types import WorkerError
from mpstui.ui.load.presets import PRESETS, apply
from mpstui.ui.load.session import LoadSession
from mpstui.ui.load.setup import Setup

from .fakes import NOW, PRIVATE, FakeBackend, FakeSupervisor

DEVICES = (device(0, 10), device(1, 0))
OPEN = daemon(servers=(server(active_thread_percentage=100.0),))


async def settle(session: LoadSession) -> None:
    while session._tasks:
        await asyncio.gather(*session._tasks)


async def started(setup: Setup | None = None, backend: FakeBackend | None = None) -> tuple[LoadSession, FakeSupervisor]:
    backend = backend or FakeBackend()
    session = LoadSession(backend, clock=lambda: NOW)
    session.know(DEVICES, {})
    session.start(setup or made("even"), one_daemon(), OPEN, DEVICES)
    await settle(session)
    return session, backend.supervisors[-1]


NAMED = {preset.id: preset for preset in PRESETS}


def made(name: str, **changes) -> Setup:
    return replace(apply(NAMED[name], Setup(), [d.uuid for d in DEVICES]), **changes)


async def test_a_share_moves_by_levels_of_the_pool():
    session, supervisor = await started()
    levels = session.members[0].report.levels
    at = levels.index(32)
    session.nudge(1, 1)
    session.nudge(1, 1)
    assert session.members[0].target == levels[at + 2]
    await settle(session)
    assert supervisor.calls == [("share", 1, levels[at + 1]), ("share", 1, levels[at + 2])]
    assert session.members[0].target is None
    assert session.members[0].report.switch_seconds == 0.012


async def test_a_share_ends_at_the_edges():
    session, supervisor = await started()
    session.nudge(1, 100)
    session.nudge(1, 1)
    session.nudge(1, -100)
    session.nudge(1, -4)
    await settle(session)
    assert supervisor.calls == [("share", 1, 132), ("share", 1, 8)]
    assert session.message == "client 1 has 8 SM: no share is smaller"


async def test_a_share_that_ends_at_the_servers_limit_says_so_and_how_it_goes_on():
    backend = FakeBackend()
    session = LoadSession(backend, clock=lambda: NOW)
    low = daemon(servers=(server(active_thread_percentage=25.0),))
    session.know(DEVICES, {low.pipe_dir: 25.0})
    session.start(made("even"), one_daemon(), low, DEVICES)
    await settle(session)
    session.nudge(1, 1)
    assert session.message == "client 1 has at most 32 SM, the server's 25 %: l raises it, then R restarts it"
    session.know(DEVICES, {low.pipe_dir: 100.0})
    session.nudge(1, 1)
    assert session.message == "client 1 has at most 32 SM: R restarts it with the server's present 100 %, 132 SM"
    session.restart(1)
    await settle(session)
    assert backend.supervisors[-1].calls == [("restart", 1, None, 132)], "with the shares that are open to it now"
    assert session.message == ""


async def test_a_held_key_goes_on_from_where_the_share_is_going():
    session, supervisor = await started(backend=FakeBackend(lazy=True))
    for _ in range(3):
        session.nudge(1, 1)
    await settle(session)
    levels = session.members[0].report.levels
    at = levels.index(32)
    assert [call[2] for call in supervisor.calls] == list(levels[at + 1 : at + 4])
    supervisor.say(1, sms=levels[at + 1])
    assert session.members[0].target == levels[at + 3]
    supervisor.say(1, sms=levels[at + 3])
    assert session.members[0].target is None


async def test_without_affinity_the_share_waits_for_a_restart():
    session, supervisor = await started(made("one"), FakeBackend(affinity=False))
    session.nudge(1, -3)
    assert session.members[0].target == 126
    assert "cannot set a context's share" in session.message
    assert "R restarts it with 126 SM" in session.message
    session.restart(1)
    await settle(session)
    # 126 of 132 is 95.45 %: rounded up to what a daemon can print.
    assert supervisor.calls == [("restart", 1, 95.5)]
    assert session.members[0].target is None


async def test_back_to_the_present_share_is_no_wish():
    session, _ = await started(made("one"), FakeBackend(affinity=False))
    session.nudge(1, -1)
    session.nudge(1, 1)
    assert session.members[0].target is None
    assert session.message == ""


async def test_restart_alone_is_under_the_servers_present_limit():
    session, supervisor = await started()
    session.restart(2)
    await settle(session)
    session.restart(2)  # it is being restarted
    await settle(session)
    assert supervisor.calls == [("restart", 2, None)], "the limit is not known, so its pool is as it was"


@pytest.mark.parametrize(
    ("name", "changes", "words"),
    [("one", {"where": "off"}, "without MPS"), ("one", {}, "has ended"), ("one", {"seconds": 5.0}, "not ready")],
)
async def test_who_cannot_move_says_why(name, changes, words):
    session, supervisor = await started(made(name, **changes))
    if words == "has ended":
        supervisor.say(1, state="ended")
    elif words == "not ready":
        supervisor.say(1, state="starting", sms=None, levels=())
    session.nudge(1, 1)
    assert words in session.message
    assert supervisor.calls == []


async def test_stop_one_and_then_not_again():
    session, supervisor = await started()
    session.stop([3])
    await settle(session)
    assert [m.number for m in session.live] == [1, 2, 4]
    session.restart(3)
    assert "was stopped" in session.message
    assert supervisor.calls == [("stop", (3,))]


async def test_more_clients_join_those_that_run_and_take_the_place_of_those_that_ended():
    session, supervisor = await started(made("two"))
    session.start(made("one"), one_daemon(), OPEN, DEVICES)
    await settle(session)
    assert [m.number for m in session.live] == [1, 2, 3]
    session.stop([1, 2, 3])
    await settle(session)
    session.start(made("one"), one_daemon(), OPEN, DEVICES)
    await settle(session)
    assert [m.number for m in session.members] == [1]
    assert len(session.backend.supervisors) == 2
    supervisor.say(2, figure=1.0)  # nobody listens to the old one
    assert [m.number for m in session.members] == [1]


async def test_contexts_of_others_are_left_to_them():
    session, supervisor = await started(made("one"))
    assert supervisor.specs[0][1] == 48 - 46 - 8  # of the snapshot's device, and some that stay free
    mine = Client(ProcessKey(7001, 501), contexts=tuple(Context(n, GPU0) for n in range(12)))
    own = rich(daemons=(daemon(servers=(server(clients=(mine,)),)),))
    session.start(made("one"), own, OPEN, DEVICES)
    await settle(session)
    assert supervisor.specs[1][1] == 48 - (46 - 12) - 8
    before_volta = replace(own, devices=tuple(replace(d, context_limit=16, contexts=12) for d in own.devices))
    session.start(made("one"), before_volta, OPEN, DEVICES)
    await settle(session)
    assert supervisor.specs[2][1] == 16 - 8


async def test_a_private_daemon_lives_as_long_as_its_clients():
    session, supervisor = await started(made("fault"))
    assert session.private_dir == PRIVATE
    assert {spec.pipe_dir for spec, _ in supervisor.specs} == {PRIVATE}
    assert {contexts for _, contexts in supervisor.specs} == {48 - 8}
    for number in (1, 2, 3):
        supervisor.say(number, state="failed", error=WorkerError("CUDA error 700: gone"))
    assert session.busy
    assert session.backend.private == ["up"]
    supervisor.say(4, state="ended")
    await settle(session)
    assert session.backend.private == ["up", "down"]
    assert not session.busy


async def test_contexts_of_the_loads_own_daemon_count_once_where_it_is_watched_too():
    """Beside “26 in the load's daemon” the device had 35, those among them."""
    session, _ = await started(made("fault"))
    load = Client(ProcessKey(7001, 501), contexts=tuple(Context(n, GPU0) for n in range(26)))
    other = Client(ProcessKey(7002, 502), contexts=tuple(Context(n, GPU0) for n in range(9)))
    private = daemon(servers=(server(clients=(load,)),), pipe_dir=PRIVATE)
    node = rich(daemons=(daemon(servers=(server(clients=(other,)),)), private))
    gpu = replace(node.devices[0], contexts=35)
    assert session.beside(gpu, node).contexts == 9
    assert session.beside(gpu, replace(node, daemons=node.daemons[:1])) == gpu
    assert session.beside(None, node) is None
    facts = [fact.text for fact in DEVICE["contexts"].facts(gpu, View.of(node))]
    assert [text.partition(" of the")[0] for text in facts if "of the daemon" in text] == ["9", "26"]


async def test_a_private_daemon_that_does_not_start_is_a_message():
    backend = FakeBackend(unavailable="no place for a private daemon: No space left on device")
    session = LoadSession(backend)
    session.start(made("fault"), one_daemon(), OPEN, DEVICES)
    await settle(session)
    assert "No space left" in session.message
    assert "free some disk" in session.message
    assert session.failed
    assert not session.busy
    assert backend.supervisors == []


async def test_the_fault_comes_when_asked_for_from_the_kernel_that_has_one():
    session, supervisor = await started(made("fault"))
    session.fault(1)
    session.fault(2)
    assert supervisor.calls == [("fault", 1)]


async def test_close_ends_everything_also_what_is_only_being_started():
    backend = FakeBackend()
    session = LoadSession(backend)
    session.start(made("fault"), one_daemon(), OPEN, DEVICES)
    assert session.busy
    await session.close()
    assert not session.busy
    assert all(member.report.over for member in session.members)
    assert len(session.members) == 4
    assert backend.private == ["up", "down"]


async def test_totals_by_unit():
    session, supervisor = await started(made("beside"))
    assert session.totals() == {"GB/s": pytest.approx(2723 / 2), "TFLOP/s": pytest.approx(57.2 / 2)}
    supervisor.say(1, state="ended")
    assert list(session.totals()) == ["TFLOP/s"]


async def test_listeners_hear_what_must_be_shown_at_once():
    session, supervisor = await started()
    heard: list[bool] = []
    unsubscribe = session.subscribe(heard.append)
    supervisor.say(1, figure=3.0)
    supervisor.say(1, sms=8)
    supervisor.say(1, state="failed")
    assert heard == [False, True, True]
    unsubscribe()
    unsubscribe()
    supervisor.say(2, state="failed")
    assert len(heard) == 3


async def test_own_clients_by_identity():
    session, supervisor = await started(made("two"))
    assert session.keys == {ProcessKey(7001, 501): 1, ProcessKey(7002, 502): 2}
    supervisor.say(1, state="ended")
    assert list(session.keys.values()) == [2]
