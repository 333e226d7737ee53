"""Drift, the least steps, and an apply that fails part-way, on a daemon that answers from memory."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
from operations import fakes
from operations.fakes import GPU, OTHER_GPU, PIPE, FakeControl, FakeNode, client

from mpstui.control.answer import Outcome
from mpstui.core.model import Client, Snapshot
from mpstui.operations.apply import GoBack, Report, apply, beside_words, can_go_back, go_back, reached_beside, steps
from mpstui.operations.audit import AuditLog
from mpstui.operations.runner import OperationRunner
from mpstui.operations.types import ExitStatus
from mpstui.plan.amounts import PlanError
from mpstui.plan.planner import make_plan
from mpstui.plan.profile import DaemonProfile, Limits
from mpstui.plan.settings import drift, in_force, limits_of_plan, waits_for_a_server
from mpstui.plan.types import target_of

GIB = 1 << 30
WANTED = DaemonProfile(limits=Limits(50.0, 1, {GPU: 20 * GIB}), server_limits=Limits(25.0))


def node(*clients: Client, **daemon: object) -> Snapshot:
    """The fakes' node with a daemon of whoever runs the tests: others may not change it."""
    return fakes.node(*clients, **{"uid": os.geteuid(), **daemon})


def one(snapshot: Snapshot) -> DaemonProfile:
    return in_force(snapshot.daemons[0])


def test_the_drift_names_each_setting_with_both_values() -> None:
    found = {d.what: (d.wanted, d.found) for d in drift(node().daemons[0], WANTED)}
    assert found == {
        "default active thread percentage": ("50 %", "100 %"),
        "default memory limit on device 0": ("20.0 GiB", "none"),
        "default client priority": ("below normal", "normal"),
        "server 634: active thread percentage": ("25 %", "100 %"),
        "server 634: memory limit on device 0": ("20.0 GiB", "none"),
    }


def test_only_what_differs_is_sent() -> None:
    snapshot = node(default_active_thread_percentage=50.0, default_pinned_mem_limits={"0": 20 * GIB})
    wanted = replace(WANTED, server_limits=None)
    requests = [step.difference.request for step in steps(snapshot, PIPE, wanted)]
    assert [(r.action, r.value, r.server_pid, r.device) for r in requests] == [
        ("set_client_priority", "1", None, None),
        ("set_active_thread_percentage", "50", 634, None),
        ("set_pinned_mem_limit", "20G", 634, "0"),
    ]


def test_what_was_saved_has_no_drift_but_for_what_a_profile_cannot_say() -> None:
    server = replace(node().daemons[0].servers[0], active_thread_percentage=25.0, pinned_mem_limits={"0": 20 * GIB})
    limits = {"default_active_thread_percentage": 50.0, "default_pinned_mem_limits": {"0": 10 * GIB}}
    same = node(**limits, servers=(server,))
    assert steps(same, PIPE, one(same)) == ()
    without = node(**limits, servers=(replace(server, pinned_mem_limits={}),))
    assert [d.what for d in drift(without.daemons[0], one(without))] == ["server 634: memory limit on device 0"]


def test_what_is_printed_with_one_decimal_is_the_same_value() -> None:
    snapshot = node(default_active_thread_percentage=33.3, servers=())
    assert drift(snapshot.daemons[0], DaemonProfile(limits=Limits(33.33))) == ()
    assert len(drift(snapshot.daemons[0], DaemonProfile(limits=Limits(33.4)))) == 1
    for half, printed in ((31.25, 31.2), (18.75, 18.8), (33.35, 33.3)):
        snapshot = node(default_active_thread_percentage=printed, servers=())
        assert drift(snapshot.daemons[0], DaemonProfile(limits=Limits(half))) == ()


def test_an_unknown_device_is_refused() -> None:
    with pytest.raises(PlanError, match="no device GPU-none"):
        steps(node(), PIPE, DaemonProfile(limits=Limits(pinned_mem_limits={"GPU-none": GIB})))
    with pytest.raises(PlanError, match="no daemon at /tmp/other"):
        steps(node(), Path("/tmp/other"), WANTED)


def test_a_limit_of_a_device_that_is_not_there_is_not_kept() -> None:
    server = replace(node().daemons[0].servers[0], pinned_mem_limits={"5": 2 * GIB})
    snapshot = node(servers=(server,), default_pinned_mem_limits={"7": GIB})
    assert steps(snapshot, PIPE, one(snapshot)) == ()


def test_a_device_named_by_ordinal_and_by_uuid_is_one_device() -> None:
    own = Limits(pinned_mem_limits={"0": 10 * GIB})
    wanted = DaemonProfile(limits=Limits(pinned_mem_limits={GPU: 20 * GIB}), server_limits=own)
    found = {d.what: d.wanted for d in drift(node().daemons[0], wanted)}
    assert found == {"default memory limit on device 0": "20.0 GiB", "server 634: memory limit on device 0": "10.0 GiB"}
    both = DaemonProfile(limits=Limits(pinned_mem_limits={GPU: 20 * GIB, "0": 10 * GIB}))
    with pytest.raises(PlanError, match=f"device 0 \\({GPU}\\) is given two memory limits"):
        drift(node().daemons[0], both)


def test_what_is_in_force_as_a_profile() -> None:
    snapshot = node(default_active_thread_percentage=50.0, default_pinned_mem_limits={"1": GIB}, multiuser=True)
    profile = one(snapshot)
    assert profile.limits == Limits(50.0, 0, {OTHER_GPU: GIB})
    assert profile.server_limits == Limits(100.0)
    assert profile.multi_user
    assert one(node()).server_limits is None
    assert waits_for_a_server(node(servers=()).daemons[0], profile)
    assert not waits_for_a_server(node(servers=()).daemons[0], one(node()))


def test_a_plan_needs_the_largest_of_its_shares_from_the_daemon() -> None:
    target = target_of(node().devices[0])
    assert target
    plan = make_plan(target, "exact", sm_counts=[24, 60], memory=[10 * GIB, 20 * GIB])
    assert limits_of_plan(plan) == Limits(45.5, None, {GPU: 20 * GIB})
    assert limits_of_plan(make_plan(target, "uniform", clients=2, memory="none")) == Limits(50.0)


def runner(control: FakeControl, tmp_path: Path, snapshot: Snapshot) -> OperationRunner:
    return OperationRunner(FakeNode(snapshot, control), AuditLog(tmp_path / "audit.jsonl"))


async def test_apply_reads_each_value_back_and_writes_the_audit_log(tmp_path: Path) -> None:
    snapshot, control = node(servers=()), FakeControl()
    report = await apply(runner(control, tmp_path, snapshot), snapshot, steps(snapshot, PIPE, WANTED))
    assert report.complete
    assert report.status is ExitStatus.DONE
    assert not can_go_back([report])
    assert [command.split()[0][:3] for command in control.sent] == ["set", "get"] * 3
    assert len((tmp_path / "audit.jsonl").read_text().splitlines()) == 6, "one before and one after each"
    assert report.lines()[0] == "in force: default active thread percentage 50 %"


async def test_a_failure_part_way_says_what_is_in_force_and_goes_back(tmp_path: Path) -> None:
    snapshot, control = node(client(643)), FakeControl(answers={"set_default_client_priority": Outcome.ABSENT})
    work = runner(control, tmp_path, snapshot)
    report = await apply(work, snapshot, steps(snapshot, PIPE, WANTED))
    assert report.status is ExitStatus.NO_DAEMON
    assert can_go_back([report])
    lines = report.lines()
    assert lines[:2] == (
        "in force: default active thread percentage 50 %",
        "in force: default memory limit on device 0 20.0 GiB",
    )
    assert lines[2].startswith("not in force: default client priority below normal: it said absent")
    assert lines[-1] == "not tried: server 634: memory limit on device 0 20.0 GiB"
    # Of several daemons the first may be as it should be, and the second fail at once.
    first, second = Report(report.done), Report((), report.failed, report.result)
    assert (can_go_back([first, second]), can_go_back([first]), can_go_back([second])) == (True, False, False)
    for which in (report, Report((), report.failed)):
        shown = GoBack().preview(GoBack().request(which), snapshot)
        assert (shown.error is None, len(shown.facts)) == (bool(which.done), len(which.done))
    went = await GoBack().carry_out(work, GoBack().request(report), snapshot, lambda text: None)
    assert (went.status, went.message) == (ExitStatus.DONE, "everything is as it was before")
    control.percentage, control.limits = 50.0, {"0": 20 * GIB}
    back = await go_back(work, snapshot, report)
    assert control.percentage == 100.0
    assert control.limits == {}
    assert len(back.undone) == 2
    assert not back.stays


async def test_a_step_that_may_still_be_carried_out_is_in_doubt(tmp_path: Path) -> None:
    snapshot, control = node(), FakeControl(answers={"set_default_active_thread_percentage": Outcome.BLOCKED})
    report = await apply(runner(control, tmp_path, snapshot), snapshot, steps(snapshot, PIPE, WANTED))
    assert report.lines()[0].startswith("not known whether in force: default active thread percentage")
    assert not can_go_back([report])


async def test_a_daemon_that_ignores_a_value_stops_the_apply(tmp_path: Path) -> None:
    snapshot, control = node(), FakeControl(deaf=True)
    report = await apply(runner(control, tmp_path, snapshot), snapshot, steps(snapshot, PIPE, WANTED))
    assert report.status is ExitStatus.REFUSED_BY_DAEMON
    assert not report.done
    assert len(report.not_tried) == 4


async def test_what_cannot_be_taken_back_stays_and_is_said(tmp_path: Path) -> None:
    snapshot = node(default_active_thread_percentage=None)
    control = FakeControl(answers={"set_default_device_pinned_mem_limit": Outcome.REFUSED})
    work = runner(control, tmp_path, snapshot)
    report = await apply(work, snapshot, steps(snapshot, PIPE, WANTED))
    assert not can_go_back([report])
    back = await go_back(work, snapshot, report)
    went = await GoBack().carry_out(work, GoBack().request(report), snapshot, lambda text: None)
    assert (went.status, went.message) == (ExitStatus.REFUSED_BY_DAEMON, "not all of it could be undone")
    assert (
        back.lines()
        == went.details
        == ("still in force: default active thread percentage 50 %: what it was is not known",)
    )


def beside(snapshot: Snapshot, wanted: DaemonProfile) -> tuple[str, tuple[str, ...]] | None:
    found = reached_beside(snapshot.daemons[0], wanted, steps(snapshot, PIPE, wanted))
    return None if found is None else beside_words(found, snapshot)


def test_a_percentage_for_one_gpu_names_the_clients_of_the_others() -> None:
    """MPS has one for all devices of a server."""
    here, there, both = client(1), client(2, OTHER_GPU), client(3, GPU, OTHER_GPU)
    snapshot = node(here, there, both)
    for device in (GPU, "0"):
        said = beside(snapshot, DaemonProfile(devices=(device,), limits=Limits(25.0)))
        assert said is not None
        assert "new clients on GPU 1 get it too (2 clients there now)" in said[0]
        assert [line.split()[0] for line in said[1]] == ["2", "3"]
    said = beside(node(here), DaemonProfile(devices=(GPU,), limits=Limits(25.0)))
    assert said is not None
    assert ("no client is there now" in said[0], said[1]) == (True, ())
    for silent in (
        DaemonProfile(limits=Limits(25.0)),
        DaemonProfile(devices=(GPU, OTHER_GPU), limits=Limits(25.0)),
        DaemonProfile(devices=(GPU,), limits=Limits(None, None, {GPU: 20 * GIB})),
    ):
        assert beside(snapshot, silent) is None


async def test_what_cannot_be_taken_back_keeps_nothing_before_it_from_being_so(tmp_path: Path) -> None:
    snapshot, control = node(servers=()), FakeControl()
    work = runner(control, tmp_path, snapshot)
    report = await apply(work, snapshot, steps(snapshot, PIPE, WANTED))
    first, last = report.done[0], replace(report.done[-1], undo=None, undo_note="nobody knows what it was")
    back = await go_back(work, snapshot, Report((first, last)))
    assert (back.undone, back.stays) == ((first,), ((last, "nobody knows what it was"),))
    assert control.percentage == 100.0


def test_a_way_back_is_of_the_daemon_that_was_changed() -> None:
    snapshot = node()
    (step, *_) = steps(snapshot, PIPE, WANTED)
    for report, where in ((Report((step,)), PIPE), (Report((), step), PIPE), (Report(()), Path())):
        assert GoBack().request(report).pipe_dir == where
