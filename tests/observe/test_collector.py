"""The collector on stand-ins: no command in quiet, one refresh on a change, and every kind of trouble and back."""

from __future__ import annotations

import asyncio
import itertools
import os
import threading
from dataclasses import replace
from types import SimpleNamespace

import pytest

from mpstui.control.answer import Answer, Outcome
from mpstui.control.wire import PsRow, QueriedDevice
from mpstui.core.model import ProcessKey
from mpstui.core.requests import CROWD, REFRESH, SLOWEST_REFRESH
from mpstui.core.text import owner
from mpstui.core.v3 import V3Node
from mpstui.observe import watcher as watcher_module
from mpstui.observe.discovery import Place
from mpstui.observe.logs import CONTROL_BYTES, Wakeups
from mpstui.observe.poll import Need
from mpstui.observe.sources import BlockingCalls
from tests.observe.fakes import UUID, AtOnce, FakeControl, FakeNvml, Node


@pytest.fixture
async def node(tmp_path):
    found = Node(tmp_path)
    found.connect(643)
    await found.collector.start()
    yield found
    found.nvml.gate.set()
    await found.collector.stop()


@pytest.mark.slow
async def test_quiet_sends_nothing(node):
    await node.settled()
    before = len(node.control.sent)
    await node.pass_time(300)
    assert node.control.sent[before:] == []
    assert node.daemon.watch == "logs"


async def test_the_first_look_has_what_nvml_has_answered_and_asks_no_daemon(tmp_path):
    node = Node(tmp_path)
    node.connect(643)
    shown = await node.collector.prime()
    assert [device.uuid for device in shown.devices] == [UUID]
    assert [client.pid for client in shown.daemons[0].clients()] == [643]
    assert node.control.sent == []


async def test_the_first_look_waits_for_no_nvml_and_what_it_answers_later_is_there_before_the_start(tmp_path):
    node = Node(tmp_path)
    node.nvml.gate.clear()
    node.collector._gpu = calls = BlockingCalls("test-nvml")
    try:
        shown = await node.collector.prime()
        assert shown.devices == ()
        node.collector.catch_up()
        assert node.collector.snapshot is shown
        node.nvml.gate.set()
        await calls.call(lambda: None)
        node.collector.catch_up()
        assert [device.uuid for device in node.collector.snapshot.devices] == [UUID]
        assert node.seen[-1] is node.collector.snapshot
        node.collector.catch_up()
        assert len(node.seen) == 2
    finally:
        node.nvml.gate.set()
        calls.close()


async def test_what_keeps_the_past_begins_with_what_the_first_look_comes_to(tmp_path):
    """Each line of the logs was written down before the first picture, and then all that they come to."""
    node, told = Node(tmp_path), []

    def listener(state, name, values):
        told.append(name)

    listener.anew = lambda: None
    node.collector.listen(listener)
    node.connect(643)
    await node.collector.prime()
    assert told == []
    await node.collector.start()
    await node.settled()
    assert "set_sample" in told
    await node.collector.stop()


async def test_quiet_tells_nothing(node):
    await node.settled()
    before = len(node.seen)
    await node.pass_time(30)
    assert len(node.seen) == before


async def test_nvmls_lists_are_read_anew_when_somebody_comes_or_goes_and_where_no_log_tells(node, tmp_path):
    await node.settled()
    await node.pass_time(5)
    wholes, steadies = node.nvml.wholes, node.nvml.steadies
    await node.pass_time(30)
    assert (node.nvml.wholes, node.nvml.steadies > steadies + 20) == (wholes, True)
    node.connect(644)
    await node.pass_time(5)
    assert node.nvml.wholes > wholes
    await node.pass_time(5)
    wholes = node.nvml.wholes
    node.nvml.members[UUID][999] = 1 << 20  # no log tells of it: the second look at it is no older list
    await node.pass_time(5)
    assert node.nvml.wholes == wholes + 1
    wholes = node.nvml.wholes
    node.collector.request_refresh()
    await node.pass_time(5)
    assert node.nvml.wholes > wholes
    await node.collector.stop()
    (tmp_path / "mute").mkdir()
    mute = Node(tmp_path / "mute", logs=False)
    await mute.collector.start()
    await mute.settled()
    await mute.pass_time(10)
    assert mute.nvml.steadies == 0
    await mute.collector.stop()


@pytest.mark.slow
async def test_mpstuis_own_questions_trigger_nothing(node):
    await node.settled()
    before = len(node.control.sent)
    node.log("control", "Accepting connection...", "NEW UI", "Cmd:ps", "645 1 634 forged", "UI closed")
    await node.pass_time(120)
    assert node.control.sent[before:] == []


async def test_a_connect_is_seen_from_the_log_and_asked_about_once(node):
    await node.settled()
    before = len(node.control.sent)
    node.connect(700)
    begun = node.clock.now
    await node.until(lambda: 700 in {c.pid for c in node.daemon.clients()})
    assert node.clock.now - begun < 1.5  # the clock runs on while threads are waited for
    assert node.control.sent[before:] == []
    await node.pass_time(10)
    assert node.control.sent[before:] == ["ps"]
    client = next(c for c in node.daemon.clients() if c.pid == 700)
    assert [context.device_uuid for context in client.contexts] == [UUID]


class Late(AtOnce):
    """Calls that are answered some turns of the loop later."""

    def call(self, function):
        async def later():
            for _ in range(20):
                await asyncio.sleep(0)
            return function()

        return asyncio.ensure_future(later())


def _readings(node):
    return node.nvml.wholes + node.nvml.steadies


async def _behind_a_reading(node, seconds):
    before = _readings(node)
    await node.until(lambda: _readings(node) > before)
    await node.pass_time(seconds)


async def test_who_comes_is_in_one_snapshot_with_what_nvml_and_proc_say(node, monkeypatch):
    """NVML's word came a moment after that of /proc, and the whole screen was worked out twice for each arrival."""
    monkeypatch.setattr(watcher_module, "TOGETHER", 120.0)
    node.processes.living = {480, 634, 643, 700}
    await node.settled()
    await _behind_a_reading(node, 0.1 * REFRESH)
    node.collector._gpu = Late()
    node.connect(700)
    await node.until(lambda: any(700 in {c.pid for c in seen.daemons[0].clients()} for seen in node.seen))
    shown = next(client for seen in node.seen for client in seen.daemons[0].clients() if client.pid == 700)
    assert shown.gpu_memory == {UUID: 1 << 20}


async def test_a_reading_that_is_nearly_due_is_taken_with_who_comes(node):
    """Who came had the screen worked out twice within half a second."""

    async def comes_behind_a_reading(pid, seconds):
        await _behind_a_reading(node, seconds)
        before = _readings(node)
        node.connect(pid)
        await node.until(lambda: pid in {client.pid for client in node.daemon.clients()})
        return _readings(node) - before

    await node.settled()
    assert await comes_behind_a_reading(700, 0.6 * REFRESH) == 1
    assert await comes_behind_a_reading(701, 0.1 * REFRESH) == 0


async def test_a_reading_waits_for_another_one_that_looks_for_clients_in_other_namespaces(tmp_path):
    """Two in 109 on a busy machine: pid_here was — for all clients of a container at once, as a snapshot had asked for
    a reading of its own, which had just begun to look for them, and `status` took that for done."""
    node = Node(tmp_path)
    node.connect(700)
    node.control.rows = (PsRow(700, 1, 634, UUID[:22], 4026999999, "./train"),)
    node.processes.living = {5000}
    claim, looked = (4026999999, 700), asyncio.Event()
    collector = node.collector

    class Busy(AtOnce):
        """What is looked for is found once somebody says so."""

        def call(self, function):
            begun = len(asked)
            future = super().call(function)
            return future if len(asked) == begun else asyncio.ensure_future(self.later(future))

        async def later(self, future):
            await looked.wait()
            return await future

    asked: list[object] = []
    collector._sources = replace(
        collector._sources, elsewhere=lambda claims: asked.append(claims) or {claim: ProcessKey(5000, 1)}
    )
    collector._files = Busy()
    await collector._discover()
    await asyncio.gather(*(watcher.ask_everything() for watcher in collector._watchers.values()))
    readings = [asyncio.ensure_future(collector._read_facts()) for _ in range(2)]
    for _ in range(50):
        await asyncio.sleep(0)
    assert [reading.done() for reading in readings] == [False, False]
    looked.set()
    await asyncio.gather(*readings)
    (client,) = collector._emit().daemons[0].clients()
    assert (client.pid_here, asked) == (5000, [frozenset({claim})])
    await collector.stop()


@pytest.mark.parametrize("unread", ["not yet", "not readable", "not readable, in a whole reading"])
async def test_a_client_of_whom_ps_told_nothing_is_looked_for_again(node, monkeypatch, unread):
    """It was asked once for each client, whatever came of it: which namespace one is in was — for good, where its row
    was not there yet or could not be read."""
    await node.settled()
    row = PsRow(700, 2, 634, UUID[:22], 4026999999, "./train")
    if unread != "not yet":
        told = Answer("ps", Outcome.UNREADABLE, message="cut")
        monkeypatch.setattr(node.control, "ps", lambda: asyncio.sleep(0, node.control.sent.append("ps") or told))
    before = len(node.control.sent)
    if "whole" in unread:
        node.control.clients.append(700)
        node.collector.request_refresh()
    else:
        node.connect(700)
    await node.until(lambda: "ps" in node.control.sent[before:])
    await node.pass_time(5)
    monkeypatch.undo()
    node.control.rows = (row,)
    node.log(
        "server",
        f"Device NVIDIA H100 (uuid {UUID}) is associated",
        "Status of client {PID: 700, Context ID: 2} is ACTIVE",
    )
    await node.until(lambda: [c.pid_namespace for c in node.daemon.clients() if c.pid == 700] == [4026999999])


async def test_with_a_log_cut_short_a_connect_costs_no_more_once_everything_was_asked(tmp_path):
    node = Node(tmp_path)
    node.log("control", *["Accepting connection..." + 900 * "."] * (CONTROL_BYTES // 900))
    node.connect(643)
    await node.collector.start()
    try:
        await node.settled()
        before = len(node.control.sent)
        node.connect(700)
        await node.pass_time(10)
        assert node.control.sent[before:] == ["ps"]
        assert 700 in {c.pid for c in node.daemon.clients()}
    finally:
        await node.collector.stop()


async def test_a_limit_set_by_somebody_is_seen_and_read_back(node):
    await node.settled()
    before = len(node.control.sent)
    node.control.percentage = 25.0
    node.log("control", "NEW UI", "Cmd:set_active_thread_percentage 634 25", "25.0", "UI closed")
    await node.until(lambda: node.daemon.servers[0].active_thread_percentage == 25.0)
    await node.pass_time(10)
    assert node.control.sent[before:].count("get_active_thread_percentage") == 1
    assert "get_client_list" not in node.control.sent[before:]
    assert node.daemon.servers[0].clients[0].outdated_limits


async def test_a_change_that_was_read_back_costs_the_limits_alone(node):
    await node.settled()
    before = len(node.control.sent)
    node.control.percentage = 25.0
    node.log("control", "NEW UI", "Cmd:set_active_thread_percentage 634 25", "25.0", "UI closed")
    node.collector.changed(node.folder)
    await node.until(lambda: "get_active_thread_percentage" in node.control.sent[before:])
    await node.pass_time(10)
    assert node.control.sent[before:].count("get_active_thread_percentage") == 1
    assert {"get_server_list", "get_client_list", "ps"}.isdisjoint(node.control.sent[before:])
    assert node.daemon.servers[0].active_thread_percentage == 25.0


async def test_a_limit_set_while_the_limits_are_read_is_not_taken_for_the_old_clients(node):
    """The answer has it before the log was looked at."""
    await node.settled()
    answer, tries = node.control.get_active_thread_percentage, []

    async def get_active_thread_percentage(server):
        tries.append(server)
        if len(tries) == 1:
            node.control.percentage = 50.0
            node.log("control", "NEW UI", "Cmd:set_active_thread_percentage 634 50", "50.0", "UI closed")
        return await answer(server)

    node.control.get_active_thread_percentage = get_active_thread_percentage
    node.collector.request_refresh()
    await node.until(lambda: node.daemon.servers[0].active_thread_percentage == 50.0)
    await node.pass_time(10)
    (client,) = node.daemon.clients()
    assert (client.active_thread_percentage, client.outdated_limits) == (100.0, True)


@pytest.mark.slow
async def test_one_reconciliation_after_the_last_change(node):
    await node.settled()
    node.connect(700)
    await node.pass_time(10)
    before = len(node.control.sent)
    await node.pass_time(400)
    assert node.control.sent[before:].count("get_server_list") == 1


async def test_a_client_that_only_nvml_tells_of_is_asked_about_once(node):
    await node.settled()
    before = len(node.control.sent)
    node.nvml.members[UUID][999] = 1 << 20
    await node.until(lambda: "get_client_list" in node.control.sent[before:])
    await node.pass_time(50)
    assert node.control.sent[before:].count("get_client_list") == 1
    assert 999 not in {c.pid for c in node.daemon.clients()}


@pytest.mark.slow
async def test_a_client_of_another_daemon_costs_this_one_its_lists_alone(node):
    """Seen on a node where another daemon's clients came: six commands for each of them, and everything a minute on."""
    await node.settled()
    node.control.rows = (PsRow(643, 1, 634, UUID[:22], 4026531836, "./train"),)
    node.collector.request_refresh(node.folder)
    await node.pass_time(100)
    before = len(node.control.sent)
    node.nvml.members[UUID][999] = 1 << 20
    await node.until(lambda: "get_client_list" in node.control.sent[before:])
    await node.pass_time(300)
    proof = "get_default_active_thread_percentage"
    assert node.control.sent[before:] == ["get_server_list", proof, "get_client_list", proof]


@pytest.mark.slow
async def test_a_client_on_another_daemons_device_costs_this_one_nothing(node):
    node.nvml.members["GPU-other"] = {}
    await node.settled()
    await node.pass_time(100)
    before = len(node.control.sent)
    node.nvml.members["GPU-other"][999] = 1 << 20
    await node.pass_time(300)
    assert node.control.sent[before:] == []


@pytest.mark.slow
@pytest.mark.parametrize(("listed", "asked"), [((UUID,), False), ((UUID, "GPU-other"), True)])
async def test_who_is_listed_under_some_devices_is_no_client_of_a_daemon_of_all(node, listed, asked):
    """Fact 34: NVML lists each client of a server under every device of it."""
    node.control.also = (QueriedDevice(1, "0000:00.07.00", "GPU-other", "H100", "N/A"),)
    node.nvml.members["GPU-other"] = {643: 0}
    await node.settled()
    await node.pass_time(100)
    before = len(node.control.sent)
    for uuid in listed:
        node.nvml.members[uuid][999] = 0
    await node.pass_time(30)
    assert bool(node.control.sent[before:]) == asked


@pytest.mark.parametrize("shown", ["whole", "in parts"])
async def test_a_client_that_the_logs_miss_is_found_by_nvmls_word(node, shown):
    """A full disk, or a log that somebody else has put into the place of the daemon's."""
    if shown == "in parts":  # the daemon's device is none of those whose list NVML gives: it may be anybody's
        node.nvml.members = {"GPU-whole": {643: 1 << 20}}
    await node.settled()
    node.control.clients.append(999)
    next(iter(node.nvml.members.values()))[999] = 1 << 20
    await node.until(lambda: 999 in {c.pid for c in node.daemon.clients()})


async def test_fault_from_the_log(node):
    await node.settled()
    node.log(
        "server",
        "Client {PID: 643, Context: 1} encountered a fatal GPU error.",
        "Server is handling a fatal GPU error.",
    )
    node.control.status = "FAULT"
    await node.until(lambda: node.daemon.servers[0].status == "FAULT")


@pytest.mark.parametrize(("outcome", "health"), [(Outcome.HELD, "held"), (Outcome.BLOCKED, "blocked")])
async def test_silence_keeps_what_is_known_and_comes_back_by_itself(node, outcome, health):
    await node.settled()
    node.control.outcome = outcome
    node.collector.request_refresh(node.folder)
    await node.until(lambda: node.daemon.health == health)
    assert [c.pid for c in node.daemon.clients()] == [643]
    await node.until(lambda: "old" in (node.daemon.health_detail or ""))
    before, begun = len(node.control.sent), node.clock.now
    await node.pass_time(60)
    assert len(node.control.sent) - before <= (node.clock.now - begun) / 5
    node.control.outcome = Outcome.OK
    node.log("control", "UI closed")
    await node.until(lambda: node.daemon.health == "ok")


async def test_no_probe_while_the_log_says_blocked_and_the_daemon_does_not_answer(node):
    node.processes.living = {643}
    await node.settled()
    ended = "MPS server requesting client {PID: 643, Context ID: 1} to exit"
    node.control.outcome = Outcome.BLOCKED
    node.log("server", ended, "Client termination succeeded.", ended)
    await node.until(lambda: node.daemon.health == "blocked")
    before = len(node.control.sent)
    await node.pass_time(60)
    assert node.control.sent[before:] == []
    node.control.outcome = Outcome.OK
    node.control.clients.clear()
    node.processes.living = set()
    await node.until(lambda: node.daemon.health == "ok" and not node.daemon.servers[0].clients)


async def test_a_daemon_that_goes_and_comes(node):
    await node.settled()
    place = node.place
    node.place = place._replace(state="stale", daemon=None, detail="its files were left behind")
    node.log("control", "Exit with status 0")
    await node.until(lambda: node.daemon.health == "stale")
    assert node.daemon.servers == ()
    before = len(node.control.sent)
    await node.pass_time(30)
    assert node.control.sent[before:] == []
    node.place = place
    await node.until(lambda: node.daemon.health == "ok" and len(node.daemon.servers) == 1)


async def test_hanging_nvml_stops_nothing(node):
    node.collector._gpu = BlockingCalls("hung")
    node.nvml.gate.clear()
    node.connect(700)
    await node.settled()
    assert {c.pid for c in node.daemon.clients()} == {643, 700}
    await asyncio.wait_for(node.collector.stop(), 120)


async def test_hanging_nvml_is_said_on_the_screen(tmp_path):
    node = Node(tmp_path, patience=0.05)
    node.collector._gpu = BlockingCalls("hung")
    node.nvml.gate.clear()
    await node.collector.start()
    await node.until(lambda: node.collector.snapshot and "hung" in (node.collector.snapshot.nvml_detail or ""))
    node.nvml.gate.set()
    await node.until(lambda: node.collector.snapshot.nvml_detail is None)
    await node.collector.stop()


async def test_without_logs_it_polls_and_says_so(tmp_path):
    node = Node(tmp_path, logs=False)
    await node.collector.start()
    try:
        await node.settled()
        assert node.daemon.watch == "polling"
        asked = "The daemon is asked every few seconds, and each question goes to its log"
        assert node.daemon.watch_detail == f"{asked}: it is not known where its logs are"
        before, begun = node.control.sent.count("get_server_list"), node.clock.now
        await node.pass_time(60)
        asked, passed = node.control.sent.count("get_server_list") - before, node.clock.now - begun
        assert 3 <= asked <= passed / 5 + 1
        node.collector.changed(node.folder)  # no log tells of it
        assert node.collector._watchers[node.folder].schedule.due() < node.clock.now
    finally:
        await node.collector.stop()


async def test_once_reads_everything(tmp_path):
    node = Node(tmp_path)
    node.connect(643)
    node.processes.living = {643}
    snapshot = await node.collector.once()
    await node.collector.stop()
    (daemon,) = snapshot.daemons
    (client,) = daemon.clients()
    assert (client.pid, client.user, client.active_thread_percentage) == (643, "alice", 100.0)
    assert daemon.default_active_thread_percentage == 100.0
    assert snapshot.devices[0].contexts == 1


async def test_nobody_waits_long_for_a_daemon_of_anothers_that_nobody_named(tmp_path, monkeypatch):
    """A deaf one made root's status take five to eight seconds."""
    for name in ("CUDA_MPS_PIPE_DIRECTORY", "MPSTUI_CONTROL_DEADLINE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(watcher_module, "OTHERS_PATIENCE", 0.0)
    node, deaf = Node(tmp_path), FakeControl()
    deaf.ask_all = lambda *asked: asyncio.get_running_loop().create_future()
    node.places = (node.place, Place(tmp_path / "his", "running", None, ProcessKey(7, 1), uid=os.geteuid() + 2001))
    node.collector._make_control = lambda path: node.control if path == tmp_path else deaf
    node.collector._pipe_dirs = ()
    mine, his = (await node.collector.once()).daemons
    assert (mine.health, mine.default_active_thread_percentage) == ("ok", 100.0)
    assert (his.health, his.remedy) == (
        "blocked",
        f"The daemon belongs to {owner(None, his.uid)}: leave it to its owner.",
    )
    assert "another user's" in his.health_detail
    await node.collector.stop()


async def test_once_of_a_held_daemon_says_so(tmp_path):
    node = Node(tmp_path)
    node.control.outcome = Outcome.HELD
    snapshot = await node.collector.once()
    await node.collector.stop()
    assert snapshot.daemons[0].health == "held"
    assert node.control.sent == ["get_server_list"]


async def test_stop_leaves_no_thread_and_no_task(tmp_path):
    before = set(threading.enumerate())  # another test's driver may hang for ever
    node = Node(tmp_path)
    await node.collector.start()
    await node.settled()
    await node.collector.stop()
    assert [task for task in asyncio.all_tasks() if task is not asyncio.current_task()] == []
    await node.until(lambda: not [t for t in set(threading.enumerate()) - before if t.name.startswith("mpstui-")])


async def test_unsubscribed_is_told_nothing_more(node):
    seen = []
    unsubscribe = node.collector.subscribe(seen.append)
    await node.settled()
    assert seen
    unsubscribe()
    before = len(seen)
    node.connect(701)
    await node.until(lambda: 701 in {c.pid for c in node.daemon.clients()})
    assert len(seen) == before


async def test_a_pid_that_is_used_again_is_another_client(node):
    node.processes.living = {643}
    await node.settled()
    node.control.clients.remove(643)
    node.log("server", "Client process 643 disconnected")
    await node.until(lambda: not list(node.daemon.clients()))
    node.connect(643)
    await node.until(lambda: [c.pid for c in node.daemon.clients()] == [643])
    await node.pass_time(5)
    assert [c.pid for c in node.daemon.clients()] == [643]


async def test_it_can_be_started_again(node):
    await node.settled()
    await node.collector.stop()
    await node.collector.start()
    node.connect(702)
    await node.until(lambda: 702 in {c.pid for c in node.daemon.clients()})


async def test_a_flood_of_the_log_is_skipped_and_made_up_for_by_asking(node, monkeypatch):
    monkeypatch.setattr("mpstui.observe.logs.BEHIND_BYTES", 10_000)
    monkeypatch.setattr("mpstui.observe.logs.HISTORY_BYTES", 1_000)
    await node.settled()
    node.control.clients.append(703)
    before = len(node.control.sent)
    node.log("control", *["Accepting connection..."] * 1000)
    await node.until(lambda: 703 in {c.pid for c in node.daemon.clients()})
    assert "get_active_thread_percentage" in node.control.sent[before:]


async def test_a_place_that_is_no_longer_found_leaves_the_screen(node):
    await node.settled()
    node.places = ()
    await node.until(lambda: node.collector.snapshot.daemons == ())


async def test_a_client_is_never_shown_under_two_identities(tmp_path):
    """A dialog opened in the first second held (643, unknown start) and called the client gone a moment later."""
    node = Node(tmp_path)
    node.processes.living = {480, 634, 643, 700}
    node.connect(643)
    await node.collector.start()
    try:
        await node.settled()
        node.connect(700)
        await node.until(lambda: 700 in {c.pid for c in node.daemon.clients()})
        await node.pass_time(5)
    finally:
        await node.collector.stop()
    shown = {c.key for snapshot in node.seen for daemon in snapshot.daemons for c in daemon.clients()}
    assert shown == {ProcessKey(643, 1), ProcessKey(700, 1)}


async def test_a_slow_user_directory_does_not_hold_the_screen_up(node):
    await node.settled()
    node.collector._files = BlockingCalls("slow")
    released = threading.Event()
    read = node.processes.facts
    node.processes.facts = lambda pids: (released.wait(120), read(pids))[1]
    try:
        node.connect(700)
        await node.until(lambda: 700 in {c.pid for c in node.daemon.clients()})
    finally:
        released.set()


class Silent:
    """A watcher on a file system that tells of nothing."""

    def __init__(self) -> None:
        self._fds = os.pipe()

    def fileno(self):
        return self._fds[0]

    def add_watch(self, path, mask):
        return 1

    def rm_watch(self, number):
        pass

    def close(self):
        for fd in self._fds:
            os.close(fd)


async def test_where_the_kernel_does_not_tell_the_logs_are_looked_at_again_and_again(tmp_path, monkeypatch):
    monkeypatch.setattr(watcher_module, "REST", 0.15)
    node = Node(tmp_path)
    node.connect(643)
    wakeups = node.collector._wakeups = Wakeups(Silent, node.clock.sleep)
    await node.collector.start()
    try:
        await node.until(lambda: wakeups.relied)
        for pid in range(700, 730):  # a change that is found while something else goes on proves nothing
            if not wakeups.relied:
                break
            await node.until(lambda: node.collector._idle() > watcher_module.TICK)
            node.connect(pid)
            await node.until(lambda pid=pid: pid in {c.pid for c in node.daemon.clients()})
        assert not wakeups.relied
    finally:
        await node.collector.stop()


class CountsBetweenReadings(FakeNvml):
    """Tells how busy the SMs are from the second reading on, as NVML does."""

    readings = 0

    def sample(self):
        self.readings += 1
        taken = super().sample()
        devices = tuple(replace(device, sm_utilization=87.0) for device in taken.devices)
        return replace(taken, devices=devices) if self.readings > 1 else taken

    def rated(self):
        self.sample()
        return self.sample()


async def test_a_single_reading_tells_of_sm_activity_where_asked_to(tmp_path):
    node = Node(tmp_path)
    node.collector._sources = replace(node.collector._sources, nvml=CountsBetweenReadings())
    assert (await node.collector.once()).devices[0].sm_utilization is None
    node = Node(tmp_path)
    nvml = CountsBetweenReadings()
    node.collector._sources = replace(node.collector._sources, nvml=nvml)
    assert (await node.collector.once(rates=True)).devices[0].sm_utilization == 87.0
    assert nvml.readings == 2
    await node.collector.stop()


async def test_before_it_has_looked_no_daemon_means_nothing(tmp_path):
    node = Node(tmp_path)
    looked = asyncio.Event()

    class Waiting(AtOnce):
        def call(self, function):
            return asyncio.ensure_future(self._later(function))

        async def _later(self, function):
            await looked.wait()
            return function()

    node.collector._files = Waiting()
    await node.collector.start()
    await node.until(lambda: node.seen)
    assert (node.seen[0].looked, node.seen[0].daemons) == (False, ())
    looked.set()
    await node.until(lambda: node.seen[-1].looked)
    assert node.seen[-1].daemons
    await node.collector.stop()


async def test_a_client_that_nobody_sees_is_looked_up_more_rarely_and_at_once_when_it_is_shown(node, tmp_path):
    node.processes.living = {480, 634, 643}
    await node.settled()
    asked: list[set[int]] = []
    facts = node.processes.facts
    node.processes.facts = lambda pids: (asked.append(set(pids)), facts(pids))[1]
    node.collector.look_at(tmp_path / "another")
    await node.pass_time(40)
    seconds, seen = len(asked), sum(643 in pids for pids in asked)
    assert 35 <= seconds <= 45, "the daemon and its server are looked at each second all the same"
    assert all({480, 634} <= pids for pids in asked)
    assert 1 <= seen <= 3
    asked.clear()
    node.collector.look_at(node.folder)
    await node.until(lambda: asked)
    assert 643 in asked[0]
    await node.pass_time(10)
    assert all(643 in pids for pids in asked)
    node.collector.look_at(tmp_path / "another")
    node.connect(700)  # one that is new is identified at once
    await node.until(lambda: 700 in {c.pid for c in node.daemon.clients()})
    assert any(700 in pids for pids in asked)


async def test_of_a_crowd_the_figures_are_read_more_rarely_and_who_comes_is_there_at_once(node):
    """CPU at rest: 736 clients cost two thirds less so, and the figures of so many nobody reads each second."""

    async def readings(seconds):
        before = node.nvml.wholes + node.nvml.steadies
        await node.pass_time(seconds)
        return (node.nvml.wholes + node.nvml.steadies - before) / seconds

    await node.settled()
    assert await readings(30) == pytest.approx(1 / REFRESH, rel=0.2)
    crowd = range(1000, 1000 + 3 * CROWD)
    for pid in crowd:
        node.connect(pid)
    await node.until(lambda: len(list(node.daemon.clients())) == len(crowd) + 1)
    await node.pass_time(10)
    assert await readings(60) == pytest.approx(1 / (3 * REFRESH), rel=0.2)
    came = node.clock.now
    node.connect(700)
    await node.until(lambda: 700 in {client.pid for client in node.daemon.clients()})
    assert node.clock.now - came < REFRESH
    for pid in range(5000, 5000 + 5 * CROWD):
        node.connect(pid)
    await node.pass_time(10)
    assert await readings(60) == pytest.approx(1 / SLOWEST_REFRESH, rel=0.2)


async def test_who_reads_again_gets_the_figures_of_a_crowd_at_once_too(node):
    """They came with the next reading, five seconds later."""

    def readings():
        return node.nvml.wholes + node.nvml.steadies

    for pid in range(1000, 1000 + 5 * CROWD):
        node.connect(pid)
    await node.settled()
    await node.pass_time(20)
    before = readings()
    await node.until(lambda: readings() > before)
    asked, before = node.clock.now, readings()
    node.collector.request_refresh(node.folder)
    await node.until(lambda: readings() > before)
    assert node.clock.now - asked < REFRESH


async def test_whoever_says_how_often_is_obeyed_however_many_there_are(tmp_path):
    node = Node(tmp_path, refresh=0.5)
    for pid in range(1000, 1000 + 2 * CROWD):
        node.connect(pid)
    await node.collector.start()
    await node.settled()
    before = node.nvml.wholes + node.nvml.steadies
    await node.pass_time(30)
    assert 50 <= node.nvml.wholes + node.nvml.steadies - before <= 70
    await node.collector.stop()


async def test_a_client_whose_end_no_log_tells_is_looked_up_each_second(node, tmp_path):
    await node.settled()
    asked: list[set[int]] = []
    facts = node.processes.facts
    node.processes.facts = lambda pids: (asked.append(set(pids)), facts(pids))[1]
    node.control.outcome = Outcome.BLOCKED
    node.collector.request_refresh(node.folder)
    await node.until(lambda: node.daemon.health == "blocked")
    node.collector.look_at(tmp_path / "another")
    asked.clear()
    await node.pass_time(15)
    assert all(643 in pids for pids in asked)


@pytest.mark.slow
async def test_of_protocol_3_all_is_asked_once_in_a_while_and_when_somebody_wants_to_see_it(tmp_path):
    """Between that, who is there alone: what somebody has to set is taken over."""
    node, whole = Node(tmp_path), []

    async def read_v3(known=None):
        whole.append((node.clock.now, known is None))
        return Answer("server list", Outcome.OK, ()), known or V3Node()

    node.control.read_v3 = read_v3
    node.place = node.place._replace(protocol="v3")
    await node.collector.start()
    try:
        await node.until(lambda: len(whole) > 30)
        times = [when for when, all_ in whole if all_]
        assert 0 < len(times) < len(whole) / 3
        assert all(later - earlier >= 60 for earlier, later in itertools.pairwise(times))
        assert len(times) > 1
        before = len(whole)
        node.collector.request_refresh(node.folder)
        await node.until(lambda: len(whole) > before)
        assert whole[before][1]
    finally:
        await node.collector.stop()


async def test_sessions_with_a_daemon_that_has_gone_still_count(node):
    await node.settled()
    node.control.channel = SimpleNamespace(sent=3)
    assert node.collector.sessions == 3
    node.places = ()
    await node.until(lambda: not node.collector.snapshot.daemons)
    assert node.collector.sessions == 3


@pytest.mark.parametrize(("status", "whole"), [("ACTIVE", False), ("FAULT", True)])
async def test_where_the_daemon_says_of_a_server_what_its_log_does_not_all_is_asked(tmp_path, status, whole):
    node = Node(tmp_path)
    node.connect(643)
    node.place = node.place._replace(limits={})
    node.control.status = status
    await node.collector.once(need=Need(servers=True))
    assert "get_server_status" in node.control.sent
    assert ("get_device_client_list" in node.control.sent) is whole
    assert node.daemon.servers[0].status == status
    await node.collector.stop()
