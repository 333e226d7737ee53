"""The draft of a plan: amounts that stay with their tenants, bars that move by the hardware's step."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest
from ui.snapshots import GIB, GPU0, GPU1, client

from mpstui.core.model import Device
from mpstui.plan.amounts import PlanError
from mpstui.plan.profile import parse
from mpstui.plan.types import target_of
from mpstui.ui.plan.draft import (
    MEMORY_STEP,
    Draft,
    Picture,
    draft_of,
    nudge_memory,
    nudge_sms,
    picture,
    regroup,
    share_names,
    wanted,
    with_clients,
    with_memory,
    with_strategy,
)

from .fakes import CLIENTS, small

SNAPSHOT = small()
DEVICES = SNAPSHOT.devices


def on(snapshot, draft: Draft) -> Picture:
    return picture(draft, snapshot.daemons[0], snapshot.devices)


def begin(snapshot=SNAPSHOT, **changes) -> Draft:
    return regroup(replace(Draft(device=GPU0), **changes), snapshot.daemons[0], snapshot.devices)


def sms(now: Picture) -> list[int]:
    assert now.plan is not None, now.problem
    return [share.sm_count for share in now.plan.shares]


def test_it_begins_with_the_tenants_there_are() -> None:
    draft = begin()
    assert (draft.labels, draft.clients) == (("alice", "bob"), 2)
    now = on(SNAPSHOT, draft)
    assert sms(now) == [66, 66]
    assert [(row.clients, row.sms_today, row.sms_planned) for row in now.shown.rows] == [(2, 132, 132), (1, 32, 66)]


def test_the_plan_does_not_change_when_clients_come_and_go() -> None:
    draft = begin()
    without_bob, with_carol = small(CLIENTS[0]), small(*CLIENTS, client(5, user="carol"))
    gone = on(without_bob, draft)
    assert sms(gone) == [66, 66]
    assert [(row.label, row.clients) for row in gone.shown.rows] == [("alice", 1), ("bob", 0)]
    come = on(with_carol, draft)
    assert [row.label for row in come.shown.rows] == ["alice", "bob", "carol"]
    assert come.shown.rows[2].share is None
    assert "no share" in come.shown.misfits[-1]
    # A share for a client to come is not given to somebody who was not asked about.
    spare = on(with_carol, with_clients(draft, 3, DEVICES))
    assert [(row.label, row.share is None) for row in spare.shown.rows] == [
        ("alice", False), ("bob", False), ("client3", False), ("carol", True)
    ]  # fmt: skip


def test_read_again_keeps_amounts_with_their_names() -> None:
    draft = replace(begin(), strategy="exact", sm_counts=(80, 20))
    with_aaron = small(*CLIENTS, client(5, user="aaron"))
    again = regroup(draft, with_aaron.daemons[0], DEVICES)
    assert again.labels == ("aaron", "alice", "bob")
    assert again.sm_counts == (44, 80, 20)


def test_a_bar_moves_by_the_step_and_makes_the_plan_exact() -> None:
    draft = begin()
    moved = nudge_sms(draft, on(SNAPSHOT, draft), 0, 1)
    assert (moved.strategy, moved.sm_counts) == ("exact", (68, 66))
    assert sms(on(SNAPSHOT, moved)) == [68, 66]
    assert on(SNAPSHOT, moved).plan.left.over_sm_count == 2
    at_floor = nudge_sms(moved, on(SNAPSHOT, moved), 1, -1000)
    assert sms(on(SNAPSHOT, at_floor)) == [68, 8]
    at_top = nudge_sms(moved, on(SNAPSHOT, moved), 1, 1000)
    assert sms(on(SNAPSHOT, at_top)) == [68, 132]


def test_memory_moves_to_whole_steps_within_the_device() -> None:
    draft = begin()
    even = on(SNAPSHOT, draft).plan.shares[0].memory
    assert even % MEMORY_STEP
    up = nudge_memory(draft, on(SNAPSHOT, draft), 0, 1)
    down = nudge_memory(draft, on(SNAPSHOT, draft), 0, -1)
    assert up.limits[0] == even // MEMORY_STEP * MEMORY_STEP + MEMORY_STEP
    assert down.limits[0] == even // MEMORY_STEP * MEMORY_STEP
    assert up.limits[1] == even
    assert nudge_memory(draft, on(SNAPSHOT, draft), 0, -10_000).limits[0] == MEMORY_STEP
    assert nudge_memory(draft, on(SNAPSHOT, draft), 0, 10_000).limits[0] <= DEVICES[0].memory_total
    # From no limits at all the others get an even one: MPS has no half-limited plan.
    none = with_memory(draft, "none", on(SNAPSHOT, draft))
    assert nudge_memory(none, on(SNAPSHOT, none), 0, 1).limits[1] == even


def test_strategies_begin_with_what_there_is() -> None:
    draft = begin()
    exact = with_strategy(draft, "exact", on(SNAPSHOT, draft))
    assert exact.sm_counts == (66, 66)
    weighted = with_strategy(replace(exact, sm_counts=(100, 32)), "weighted", on(SNAPSHOT, exact))
    assert weighted.weights == (Fraction(1), Fraction(1))
    half = with_strategy(draft, "half", on(SNAPSHOT, draft))
    assert sms(on(SNAPSHOT, half)) == [132, 132]


def test_what_cannot_be_is_said_and_moves_nothing() -> None:
    many = with_clients(begin(), 49, DEVICES)
    now = on(SNAPSHOT, many)
    assert now.plan is None
    assert "48 contexts" in now.problem
    assert nudge_sms(many, now, 0, 1) == many
    assert nudge_memory(many, now, 0, 1) == many
    assert "no GPU" in picture(Draft(), None, ()).problem
    assert "how many SMs" in picture(Draft(device="GPU-x"), None, (Device("GPU-x"),)).problem


@pytest.mark.parametrize(
    ("labels", "clients", "names"),
    [
        (("alice", "bob"), 3, ("alice", "bob", "client3")),
        (("a b", "a/b", "—"), 3, ("a-b", "a-b-2", "client3")),
        (("[/bad]\x1b[2J",), 1, ("bad-2J",)),
        ((), 2, ("client1", "client2")),
    ],
)
def test_share_names_can_be_kept(labels, clients, names) -> None:
    assert share_names(labels, clients) == names


def test_what_is_set_is_the_largest_share_and_a_profile_has_the_device() -> None:
    draft = replace(begin(), strategy="exact", sm_counts=(24, 60), memory="own", limits=(10 * GIB, 20 * GIB))
    plan = on(SNAPSHOT, draft).plan
    found = wanted(plan, with_device=True)
    assert (found.limits.active_thread_percentage, dict(found.limits.pinned_mem_limits)) == (45.5, {GPU0: 20 * GIB})
    assert found.devices == (GPU0,)
    assert [share.name for share in found.shares] == ["alice", "bob"]
    assert wanted(plan).devices == ()


def test_a_profile_comes_back_as_a_draft() -> None:
    text = """schema = 1
    [[daemon]]
    [daemon.limits]
    active_thread_percentage = 50
    [[daemon.share]]
    name = "alice"
    active_thread_percentage = 25
    pinned_mem_limit = "10G"
    [[daemon.share]]
    name = "bob"
    pinned_mem_limit = "20G"
    """
    profile = parse(text).daemons[0]
    target = target_of(DEVICES[0])
    draft = draft_of(profile, begin(), target)
    assert (draft.strategy, draft.sm_counts, draft.memory, draft.limits) == (
        "exact", (32, 66), "own", (10 * GIB, 20 * GIB)
    )  # fmt: skip
    with pytest.raises(PlanError, match="no shares"):
        draft_of(replace(profile, shares=()), begin(), target)


def test_another_device_has_other_tenants() -> None:
    there = small(*CLIENTS, client(42, user="dmitri"))
    assert regroup(Draft(device=GPU1), there.daemons[0], there.devices).labels == ("dmitri",)
