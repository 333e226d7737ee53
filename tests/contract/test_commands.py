"""Contract: what each command answers, before a server and with one (facts 1–8)."""

from __future__ import annotations

import asyncio
import getpass
import os
import re
import time
from collections.abc import Awaitable
from typing import Any

import pytest

from contract.commands import Commands
from contract.harness import Node, chosen, control_of, eventually, logged, one_shots, only_server, raw_session
from mpstui.control import legacy
from mpstui.control.answer import Answer, Outcome
from mpstui.control.binary import look
from mpstui.control.holder import HELD_AFTER
from mpstui.control.protocol import LEGACY
from mpstui.control.wire import Question

GIB = 1 << 30
NO_SERVER = 999999
OTHER_USER = 2001


async def known_or_not(
    node: Node, control: Commands, asking: Awaitable[Answer[object]], command: str, value: object
) -> None:
    """The ``value`` where the driver has the command, and its refusal in words where it has not."""
    answer = await asking
    if node.knows(command):
        assert (answer.outcome, answer.value) == (Outcome.OK, value), answer
    else:
        assert answer.outcome is Outcome.REFUSED, answer
        assert command in control.capabilities.unknown


async def started(control: Commands) -> int:
    """A server without clients."""
    assert (await control.start_server(os.getuid())).ok
    return await only_server(control)


async def _without_a_server(node: Node, control: Commands) -> None:
    assert (await control.get_server_list()).value == ()
    await known_or_not(node, control, control.ps(), "ps", ())
    assert (await control.get_device_client_list()).value == ()
    assert (await control.get_default_active_thread_percentage()).value == 100.0
    await known_or_not(node, control, control.get_default_client_priority(), "get_default_client_priority", 0)
    limit = control.get_default_device_pinned_mem_limit(0)
    await known_or_not(node, control, limit, "get_default_device_pinned_mem_limit", None)
    if not node.knows("device_query") or not node.device_count:
        return
    query = (await control.device_query()).value
    assert query is not None
    assert query.servers == {}
    assert [device.ordinal for device in query.default] == list(range(node.device_count))
    assert all(re.fullmatch(r"(GPU|MIG)-[0-9a-f-]{36}", device.uuid) for device in query.default)


@pytest.mark.every_driver
@pytest.mark.ready_server
async def test_a_server_is_started_and_asked(node: Node, control: Commands) -> None:
    server = await started(control)
    await known_or_not(node, control, control.get_server_status(server), "get_server_status", "ACTIVE")
    assert (await control.get_client_list(server)).value == ()
    await known_or_not(node, control, control.ps(), "ps", ())
    await known_or_not(node, control, control.ps(server), "ps", ())
    assert (await control.get_device_client_list(server)).ok
    assert (await control.get_active_thread_percentage(server)).value == 100.0
    if not node.knows("device_query"):
        return
    query = (await control.device_query()).value
    assert query is not None
    assert query.servers == {server: query.default}


@pytest.mark.every_driver
async def test_commands_take_milliseconds_and_are_logged(node: Node, control: Commands) -> None:
    answers = [await control.get_server_list() for _ in range(10)]
    assert min(answer.seconds for answer in answers) < 0.5
    log = (node.log_dir / "control.log").read_text()
    assert log.count("Cmd:get_server_list\n") == 10
    assert re.search(rf"Control\s+{node.daemon_pid}\] NEW UI\n", log)


async def _words_that_are_no_command(node: Node, control: Commands) -> None:
    """Nor are the commands that the driver has not: they are answered alike, and each is asked once."""
    lacking = [] if node.driver is None else sorted(node.driver.absent)
    for command in ("help", "bogus_command", "-h", *lacking):
        reply = await control.channel.run(command)
        assert reply.stdout.decode() == f'Unknown command "{command}"\n'
        assert reply.exit_status == 0
        assert legacy.judge(command, reply.stdout, reply.stderr, reply.exit_status)[0] is Outcome.REFUSED


async def _a_server_that_is_not_there(node: Node, control: Commands) -> None:
    asked: dict[str, Awaitable[Answer[object]]] = {
        "get_server_status": control.get_server_status(NO_SERVER),
        "get_client_list": control.get_client_list(NO_SERVER),
        "ps": control.ps(NO_SERVER),
        "get_active_thread_percentage": control.get_active_thread_percentage(NO_SERVER),
        "set_active_thread_percentage": control.set_active_thread_percentage(NO_SERVER, 25),
        "set_device_pinned_mem_limit": control.set_device_pinned_mem_limit(NO_SERVER, 0, "2G"),
        "terminate_client": control.terminate_client(NO_SERVER, 1),
    }
    for command, asking in asked.items():
        answer = await asking
        not_there = f"Server {NO_SERVER} not found."
        unknown = f'Unknown command "{command}".'
        assert (answer.outcome, answer.message) == (Outcome.REFUSED, not_there if node.knows(command) else unknown)
        assert answer.exit_status == 0


@pytest.mark.every_driver
async def test_the_default_percentage_is_echoed_and_wrong_ones_are_ignored(node: Node, control: Commands) -> None:
    assert (await control.set_default_active_thread_percentage(50)).value == 50.0
    assert (await control.set_default_active_thread_percentage(33.3)).value == 33.3
    for wrong in (0, 101, -5):
        assert (await control.set_default_active_thread_percentage(wrong)).value == 33.3
    assert (await control.channel.run("set_default_active_thread_percentage abc")).stdout == b"33.3\n"
    assert (await control.channel.run("set_default_active_thread_percentage")).stdout == b"33.3\n"
    assert (await control.get_default_active_thread_percentage()).value == 33.3


@pytest.mark.every_driver
@pytest.mark.ready_server
async def test_the_percentage_of_a_server(node: Node, control: Commands) -> None:
    await control.set_default_active_thread_percentage(50)
    server = await started(control)
    assert (await control.get_active_thread_percentage(server)).value == 50.0
    assert (await control.set_active_thread_percentage(server, 25)).value == 25.0
    assert (await control.set_active_thread_percentage(server, 0.1)).value == 0.1
    assert (await control.get_active_thread_percentage(server)).value == 0.1
    assert (await control.get_default_active_thread_percentage()).value == 50.0


WRONG_LIMITS = (
    *(
        ("10G", b"10G"),
        ("900M", b"900M"),
        ("2g", b"2G"),
        ("1024M", b"1G"),
        ("56704M", b"55G"),
        ("512MB", b"512M"),
        ("512K", b"512M"),
        ("1.5G", b"1M"),
        ("1T", b"1M"),
        ("10", b"10M"),
        ("-1G", b"17179869183G"),
        ("0G", b""),
        ("0", b""),
        ("abc", b""),
        ("1500M", b"1G"),
        ("2047M", b"1G"),
        ("1023M", b"1023M"),
    ),
)


@pytest.mark.every_driver
async def test_a_wrong_memory_limit_becomes_something_else_in_silence(node: Node, control: Commands) -> None:
    """Nothing is printed, and what is in force is another limit, or none any more (fact 26)."""
    for typed, printed in WRONG_LIMITS:
        set_ = await control.set_default_device_pinned_mem_limit(0, "7G")
        if not node.knows("set_default_device_pinned_mem_limit"):
            assert set_.outcome is Outcome.REFUSED
            return
        answer = await control.channel.run(f"set_default_device_pinned_mem_limit 0 {typed}")
        assert (answer.stdout, answer.stderr, answer.exit_status) == (b"", b"", 0), typed
        read = await control.get_default_device_pinned_mem_limit(0)
        assert (read.outcome, read.stdout.strip()) == (Outcome.OK, printed), typed


async def test_new_clients_see_the_limits_and_zero_takes_a_memory_limit_away(node: Node, control: Commands) -> None:
    server = await started(control)
    before = await node.spawn()
    assert (await control.set_active_thread_percentage(server, 25)).ok
    assert (await control.set_device_pinned_mem_limit(server, 0, "2G")).ok
    limited = await node.spawn()
    assert limited.sm_count < before.sm_count / 2
    assert limited.free_memory < 2 * GIB < before.free_memory
    assert (await control.set_device_pinned_mem_limit(server, 0, "0")).ok
    assert (await control.get_device_pinned_mem_limit(server, 0)).value is None
    freed = await node.spawn()
    assert freed.free_memory > 2 * GIB
    for client in (before, limited, freed):
        await client.stop()


@pytest.mark.no_server
async def test_a_device_that_is_not_there_is_accepted(node: Node, control: Commands) -> None:
    if not node.knows("set_default_device_pinned_mem_limit"):
        pytest.skip("a driver without memory limits")
    assert (await control.set_default_device_pinned_mem_limit(17, "1G")).ok
    assert (await control.get_default_device_pinned_mem_limit(17)).value == GIB


async def test_a_limit_set_by_uuid_reads_back_by_ordinal(node: Node, control: Commands) -> None:
    server = await started(control)
    query = (await control.device_query()).value
    assert query is not None
    uuid = query.servers[server][0].uuid
    assert (await control.get_device_pinned_mem_limit(server, 0)).value is None
    assert (await control.set_device_pinned_mem_limit(server, 0, "2G")).ok
    assert (await control.get_device_pinned_mem_limit(server, 0)).value == 2 * GIB
    assert (await control.set_device_pinned_mem_limit(server, uuid, "3G")).ok
    assert (await control.get_device_pinned_mem_limit(server, uuid)).value == 3 * GIB
    assert (await control.get_device_pinned_mem_limit(server, 0)).value == 3 * GIB
    assert (await control.get_default_device_pinned_mem_limit(0)).value is None


@pytest.mark.every_driver
async def test_the_default_priority(node: Node, control: Commands) -> None:
    if not node.knows("set_default_client_priority"):
        assert (await control.set_default_client_priority(1)).outcome is Outcome.REFUSED
        return
    assert (await control.set_default_client_priority(1)).ok
    assert (await control.get_default_client_priority()).value == 1
    answer = await control.set_default_client_priority(7)
    assert (answer.outcome, answer.message) == (Outcome.REFUSED, "Invalid priority value - must be 0 or 1!")
    assert (await control.get_default_client_priority()).value == 1
    if node.driver is not None and node.driver.number >= 580:
        return  # nobody has seen what it says to no number
    for nothing in ("abc", ""):  # it sets 0, and says so no more than that it was wrong
        assert (await control.set_default_client_priority(1)).ok
        assert (await control.channel.run(f"set_default_client_priority {nothing}".strip())).stdout == b""
        assert (await control.get_default_client_priority()).value == 0


async def _start_server_wants_a_uid(node: Node, control: Commands) -> None:
    old = node.driver is not None and node.driver.number < 580
    reply = await control.channel.run("start_server -uid" if old else "start_server -uid nosuch")
    assert reply.stdout == b"A user id (UID) is required to start a new server\n"
    assert legacy.judge(reply.command, reply.stdout, reply.stderr, reply.exit_status)[0] is Outcome.REFUSED


async def _what_the_binary_knows_of_options(node: Node, _: Commands) -> None:
    log = node.log_dir / "control.log"
    before = log.read_text().count("NEW UI\n")
    knows = await look(node.binary, 120.0)
    assert log.read_text().count("NEW UI\n") == before, "the question opened a session"
    if node.driver is None:  # a new one
        assert knows.options != "unknown"
        return
    assert (knows.options, knows.version) == (node.driver.options, node.driver.binary_version)
    assert knows.multi_user == next(iter(node.driver.multi_user), None)


@pytest.mark.every_driver
async def test_what_leaves_a_daemon_as_it_is(node: Node) -> None:
    """All of it on one daemon, which nothing of it changes; each with what is known of no command yet."""
    for part in (
        _without_a_server,
        _words_that_are_no_command,
        _a_server_that_is_not_there,
        _start_server_wants_a_uid,
        _what_the_binary_knows_of_options,
        _without_a_server,
    ):
        await part(node, control_of(node))


@pytest.mark.every_driver
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: another user may ask and not set")
async def test_another_user_may_ask_and_set_as_far_as_the_driver_lets_him(node: Node, control: Commands) -> None:
    other = control_of(node, uid=OTHER_USER)
    listed = await other.get_server_list()
    if b"Permission denied" in listed.stderr:
        pytest.skip("other users may not run this binary")
    assert listed.value == ()
    assert (await other.get_default_active_thread_percentage()).value == 100.0
    strangers_set = node.driver is not None and node.driver.strangers_set
    changed = await other.set_default_active_thread_percentage(10)
    if strangers_set:  # fact 48
        assert (changed.outcome, changed.value) == (Outcome.OK, 10.0)
    else:
        assert (changed.outcome, changed.exit_status) == (Outcome.NOT_PERMITTED, 0), changed
        assert str(OTHER_USER) in changed.message
    quit_ = await other.quit()
    assert (quit_.outcome, quit_.exit_status) == (Outcome.NOT_PERMITTED, 0), quit_
    for_root = await other.start_server(0)
    assert for_root.outcome is Outcome.NOT_PERMITTED
    now = (await control.get_default_active_thread_percentage()).value
    assert now == (10.0 if strangers_set else 100.0)


@pytest.mark.slow
@pytest.mark.no_server
async def test_a_session_of_somebody_else_is_named(node: Node, control: Commands) -> None:
    earlier = (node.log_dir / "control.log").read_text().count("NEW UI\n")
    with raw_session(node) as session:
        await logged(node, "NEW UI\n", earlier + 1)
        begun = time.monotonic()
        answer = await control.get_server_list()
        assert answer.outcome is Outcome.HELD
        assert time.monotonic() - begun >= HELD_AFTER
        assert answer.stdout == b""
        assert answer.holder is not None
        assert (answer.holder.pid, answer.holder.user, answer.holder.certain) == (session.pid, getpass.getuser(), True)
        assert f"PID {session.pid}" in answer.message
    assert (await eventually(control.get_server_list, lambda answer: answer.ok)).value == ()


@pytest.mark.no_server
async def test_commands_of_others_are_no_held_session(node: Node, control: Commands) -> None:
    """Each answer is the daemon's, or that it was busy; nobody is said to hold it."""
    # The real daemon is never free between the two: it is waited that long.
    patient = control_of(node, deadline=20.0 if node.real else 120.0)
    with one_shots(node):
        end, answers = time.monotonic() + 2 * HELD_AFTER, []
        while time.monotonic() < end:
            answers.append(await patient.get_server_list())
    assert [answer for answer in answers if answer.outcome is Outcome.HELD] == []
    assert {(answer.outcome, answer.holder) for answer in answers} <= {(Outcome.OK, None), (Outcome.BUSY, None)}
    assert (await eventually(control.get_server_list, lambda answer: answer.ok)).value == ()


@pytest.mark.slow
@pytest.mark.no_server
async def test_beside_a_session_that_stays_no_answer_is_taken_for_an_empty_one(node: Node, control: Commands) -> None:
    """The binary does not always say that it was refused: often it ends with status 0 and not a word (fact 30)."""
    servers = () if chosen() == "control" else (await started(control),)
    earlier = (node.log_dir / "control.log").read_text().count("NEW UI\n")
    with raw_session(node):
        await logged(node, "NEW UI\n", earlier + 1)
        control.session_stays(True)
        answers: list[Answer[object]] = []
        for _ in range(20):
            answers += [await control.get_server_list(), await control.set_default_active_thread_percentage(40)]
        assert {answer.outcome for answer in answers} == {Outcome.HELD}, answers
    control.session_stays(False)
    assert (await eventually(control.get_server_list, lambda answer: answer.ok)).value == servers
    assert (await control.get_default_active_thread_percentage()).value == 100.0
    log = (node.log_dir / "control.log").read_text()
    assert "set_default_active_thread_percentage" not in log, "none of them arrived"


@pytest.mark.no_server
async def test_two_programs_at_the_same_moment(node: Node) -> None:
    """Each with its own event loop, and so without a lock between them."""

    def ask() -> list[Outcome]:
        async def twenty() -> list[Outcome]:
            control = control_of(node)
            return [(await control.get_server_list()).outcome for _ in range(20)]

        return asyncio.run(twenty())

    assert await asyncio.gather(*(asyncio.to_thread(ask) for _ in range(2))) == [[Outcome.OK] * 20] * 2


@pytest.mark.no_server
async def test_a_limit_is_set_and_read_back_in_one_session(node: Node, control: Commands) -> None:
    """The answers come in one piece, and each is known by its form (fact 1). Without a GPU: the defaults alone."""
    server = None if chosen() == "control" else await started(control)

    def sent() -> int:
        return (node.log_dir / "control.log").read_text(errors="replace").count("Cmd:")

    of = (None,) if server is None else (None, server)
    changes: list[tuple[Question[Any], Question[Any], int | None, object, object]] = [
        (LEGACY.set_default_percentage(33.3), LEGACY.default_percentage(), None, 33.3, 33.3)
    ]
    if server is not None:
        changes.append((LEGACY.set_percentage(server, 25), LEGACY.percentage(server), server, 25.0, 25.0))
    if node.knows("set_default_device_pinned_mem_limit"):
        for size, found in (("7G", 7 * GIB), ("0", None)):
            for each in of:
                set_it, read_it = LEGACY.set_memory_limit(each, "0", size), LEGACY.memory_limit(each, "0")
                changes.append((set_it, read_it, each, None, found))
        changes.append((LEGACY.set_priority(1), LEGACY.priority(), None, None, 1))
    before, processes = sent(), control.channel.sent
    for set_it, read_it, each, answered, in_force in changes:
        set_, read = await control.change(set_it, read_it, each)
        assert (set_.outcome, set_.value, read.outcome, read.value) == (Outcome.OK, answered, Outcome.OK, in_force)
    assert control.channel.sent - processes == len(changes)
    assert sent() - before == 2 + (len(changes) - 1) * 3
    for set_it, read_it in (
        (LEGACY.set_percentage(NO_SERVER, 25), LEGACY.percentage(NO_SERVER)),
        (LEGACY.set_memory_limit(NO_SERVER, "0", "2G"), LEGACY.memory_limit(NO_SERVER, "0")),
    )[: 1 + node.knows("set_default_device_pinned_mem_limit")]:
        set_, read = await control.change(set_it, read_it, NO_SERVER)
        assert (set_.outcome, read.outcome) == (Outcome.REFUSED, Outcome.REFUSED)
        assert "not found" in set_.message


async def test_clients_are_listed_in_one_session_with_others(node: Node, control: Commands) -> None:
    client = await node.spawn()
    server = await only_server(control)
    before = control.channel.sent
    asked = (
        LEGACY.priority(),
        LEGACY.client_list(server),
        LEGACY.default_percentage(),
        LEGACY.devices(),
    )
    priority, listed, percentage, devices = await control.ask_all(*asked)
    assert (priority.value, listed.value, percentage.value) == (0, (client.pid,), 100.0)
    assert devices.value == (await control.device_query()).value
    assert control.channel.sent == before + 2
    await client.stop()


@pytest.mark.no_server
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: another user may ask and not set")
async def test_a_user_who_may_not_set_is_told_so_in_one_session(node: Node) -> None:
    if node.driver is not None and node.driver.strangers_set:
        pytest.skip("this driver lets everybody set the defaults (fact 48)")
    other = control_of(node, uid=OTHER_USER)
    if b"Permission denied" in (await other.get_server_list()).stderr:
        pytest.skip("other users may not run this binary")
    for set_, _ in (
        await other.change(LEGACY.set_default_percentage(10), LEGACY.default_percentage()),
        await other.change(LEGACY.set_memory_limit(None, "0", "1G"), LEGACY.memory_limit(None, "0")),
        await other.change(LEGACY.set_priority(1), LEGACY.priority()),
    ):
        assert set_.outcome is Outcome.NOT_PERMITTED
