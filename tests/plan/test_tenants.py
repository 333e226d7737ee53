"""Shares from activity: what the looks say, where they say too little, and lines that are no look."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from mpstui.plan.amounts import PlanError
from mpstui.plan.tenants import Look, devices_in, look_of, of_daemon, propose, read_looks

GIB = 1 << 30


def process(pid: int, launches: int | None, **more: Any) -> dict[str, Any]:
    base = {"pid": pid, "daemon": "/run/mps", "user": "alice", "container": None, "command": "python train.py"}
    return {**base, "gpu_memory": 4 * GIB, "launches": launches, **more}


def look(at: int, *processes: dict[str, Any], **more: Any) -> dict[str, Any]:
    time = f"2026-11-22T04:{at // 60:02}:{at % 60:02}.500+00:00"
    return {"schema": 1, "time": time, "source": "real", "seconds": 2.0, "processes": list(processes), **more}


def looks(*each: Sequence[dict[str, Any]]) -> list[Look]:
    """One every ten seconds."""
    return [look_of(look(10 * number, *processes)) for number, processes in enumerate(each)]


BOB = {"user": "bob", "gpu_memory": 10 * GIB}


def test_weights_follow_the_median_and_memory_the_largest_client() -> None:
    found = propose(
        looks(
            *[[process(1, 400), process(2, 200, gpu_memory=6 * GIB), process(3, 1800, **BOB)]] * 4,
            [process(1, 4000), process(3, None, **BOB)],
        )
    )
    assert (found.by, found.looks, found.span, found.counted, found.too_little) == ("user", 5, 42.0, 10.0, "")
    bob, alice = found.tenants
    assert (bob.what, bob.rate_median, bob.looks, bob.busy, bob.clients) == ("bob", 900.0, 4, 4, 1)
    assert (alice.rate_median, alice.rate_max, alice.clients, alice.memory_median) == (300.0, 2000.0, 2, 10 * GIB)
    assert [(s.name, float(s.weight), s.memory) for s in found.shares] == [
        ("bob", 900.0, 12.5 * GIB),
        ("alice-1", 150.0, 7.5 * GIB),
        ("alice-2", 150.0, 7.5 * GIB),
    ]
    assert found.notes[0].startswith("Launches are not SM time")
    assert found.notes[2].startswith("bob was counted in 4 of 5 samples: the rates leave out")


def test_who_is_idle_seldom_or_never_counted_gets_no_share() -> None:
    rows = [[process(1, 100), process(2, 0, user="idle"), process(3, None, user="apart")] for _ in range(6)]
    rows[0].append(process(4, 5, user="seldom"))
    found = {tenant.what: tenant for tenant in propose(looks(*rows)).tenants}
    assert [tenant.what for tenant in found.values() if not tenant.too_little] == ["alice"]
    assert found["idle"].too_little == "launched nothing in 6 samples"
    assert found["apart"].too_little == "could not be counted"
    assert "1 of 6 samples" in found["seldom"].too_little
    assert (found["apart"].rate_median, found["apart"].rate_max, found["apart"].missed) == (None, None, 6)
    # One that works in bursts has a median of 0, and is not idle.
    bursts = propose(looks(*[[process(1, 100), process(2, 300 * (n % 2), user="bursts")] for n in range(7)]))
    assert {s.name: float(s.weight) for s in bursts.shares} == {"alice": 50.0, "bursts": 75.0}


def test_a_look_that_did_not_count_a_tenant_or_all_of_it_is_no_look_at_an_idle_one() -> None:
    usual = [process(1, 100), process(2, 600, user="carol"), process(3, 600, user="carol"), process(4, 8, user="bob")]
    whole = propose(looks(*[usual] * 20))
    rows = [[usual[0], *usual[1:3], process(4, None, user="bob")] for _ in range(20)]
    for number, row in enumerate(rows[:13]):
        row[1] = process(2, None, user="carol")
        if number % 2:
            row[2] = process(3, None, user="carol")
    found = propose(looks(*rows))
    carol, _, bob = found.tenants
    assert (carol.what, carol.rate_median, carol.rate_max, carol.looks, carol.missed) == ("carol", 600.0, 600.0, 7, 13)
    assert (bob.rate_median, bob.rate_max, bob.looks, bob.too_little) == (None, None, 0, "could not be counted")
    assert [share for share in whole.shares if share.name != "bob"] == list(found.shares)
    said = " ".join(found.notes)
    assert "Never counted, and so left without a share: bob." in said
    assert "carol was counted in 7 of 20 samples" in said
    # Absent is 0 launches, and never counted is not: what was there and never counted has no rate.
    never = propose(looks(*[[process(1, 9)], [process(1, 9), process(2, None, user="bob")]] * 3)).tenants[1]
    assert (never.what, never.rate_median, never.rate_max) == ("bob", None, None)
    # Where a part of it is missing in each look there is no rate of it either.
    part = [[process(1, 9), process(2, 900, user="bob"), process(3, None, user="bob")]] * 6
    assert [share.name for share in propose(looks(*part)).shares] == ["alice"]
    assert propose(looks(*[[process(1, None)]] * 6)).too_little == "no client of MPS could be counted in the samples"


@pytest.mark.parametrize(
    ("each", "why"),
    [
        ([[process(1, 9)]] * 3, "3 samples in 22 s: not enough"),
        ([[process(1, 9)]], "1 sample in 2 s: not enough"),
        ([[process(1, 0)]] * 6, "nobody launched enough"),
        ([[]] * 6, "no client of MPS"),
        ([[process(1, 9, daemon=None)]] * 6, "no client of MPS"),
    ],
)
def test_too_little_for_anything(each: list[list[dict[str, Any]]], why: str) -> None:
    found = propose(looks(*each))
    assert why in found.too_little
    assert (found.proposed, found.shares) == ((), ())


def test_who_is_a_tenant() -> None:
    boxes = [process(1, 9, container="a b/ü"), process(2, 9, container="a-b"), process(3, 9, container="../../x")]
    found = propose(looks(*[boxes] * 5))
    assert found.by == "container"
    assert sorted(tenant.name for tenant in found.tenants) == ["a-b", "a-b-2", "x"]
    alone = [process(1, 9), process(2, 9, command="/usr/bin/vllm serve")]
    assert sorted(t.name for t in propose(looks(*[alone] * 5)).tenants) == ["python-1", "vllm-2"]
    assert propose(looks(*[alone] * 5), "command").tenants[0].clients == 1
    two = [process(1, 9), process(2, 9, daemon="/run/other")]
    assert "2 daemons" in " ".join(propose(looks(*[two] * 5)).notes)
    assert [t.clients for t in propose(of_daemon(looks(*[two] * 5), "/run/mps")).tenants] == [1]
    none = propose(looks(*[[process(1, 9, gpu_memory=None)]] * 5))
    assert none.shares[0].memory is None
    assert "no memory limit" in none.notes[-1]
    mixed = [look_of(look(0)), look_of(look(1, source="simulated"))]
    with pytest.raises(PlanError, match="simulated"):
        propose(mixed)
    with pytest.raises(PlanError, match="no sample"):
        propose([])


@pytest.mark.parametrize(
    "line",
    [
        b"{",
        b"\xff\xfe",
        b"[]",
        b"[" * 5000,
        b'{"processes": []}',
        *(
            json.dumps(bad).encode()
            for bad in (
                look(0, time="yesterday"),
                look(0, time=5),
                look(0, time="2026-11-22T04:00:00"),
                look(0, process(1, 5), seconds=0),
                look(0, seconds=float("nan")),
                look(0, seconds=1e300),
                look(0, source="other"),
                look(0, processes=[3]),
                look(0, process(1, -1)),
                look(0, process(1, True)),
                look(0, process(1, 1 << 70)),
                look(0, process(1, 1, user=7)),
                look(0, process(1, 1, device_uuids="GPU-a")),
                look(0, process(1, 1, device_uuids=[1])),
                look(0, process(1, 1, gpu_memory_by_device=[1])),
                look(0, process(1, 1, gpu_memory_by_device={"GPU-a": -1})),
            )
        ),
    ],
)
def test_a_line_that_is_no_look_is_named(line: bytes) -> None:
    good = json.dumps(look(0, process(1, 5, user="\x1b[2J"))).encode()
    (first,) = read_looks([good, b"\n"], "f")
    assert (first.clients[0].user or "").isprintable()
    with pytest.raises(PlanError, match=r"^f: line 3: .*mpstui activity --json") as refused:
        list(read_looks([good, b"", line], "f"))
    assert str(refused.value).isprintable()


def test_looks_of_one_moment_are_in_no_order_and_a_rate_is_a_number_to_divide_by() -> None:
    """Two daemons' looks in one file: what one tells and the other does not cannot be compared."""
    rows = [look(10 * n, process(1, 9)) for n in range(5)]
    rows += [look(10 * n, process(1, None, user=None, gpu_memory=None)) for n in range(5)]
    assert propose([look_of(each) for each in rows]).looks == 10
    assert look_of(look(0, seconds=0)).seconds == 0, "as activity --json says of a node without clients"
    for seconds in (0, 5e-324, 1e11, float("inf"), float("nan"), -1):
        with pytest.raises(ValueError, match="seconds is out of range"):
            look_of(look(0, process(1, (1 << 62) - 1), seconds=seconds))
    for time in ("0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59+00:00"):
        with pytest.raises(ValueError, match="time is"):
            look_of(look(0, time=time))


def test_clients_of_several_devices_are_not_mixed() -> None:
    on_a, on_b = {"device_uuids": ["GPU-a"]}, {"device_uuids": ["GPU-b"], "user": "bob"}
    both, untold = {"device_uuids": ["GPU-a", "GPU-b"], "user": "carol"}, {"user": "dave"}
    rows = [[process(1, 300, **on_a), process(2, 900, **on_b), process(3, 100, **both), process(4, 5, **untold)]] * 5
    seen = looks(*rows)
    assert devices_in(seen) == ["GPU-a", "GPU-b"]
    with pytest.raises(PlanError, match="on 2 GPUs, and a plan is for one: --device GPU-a"):
        propose(seen)
    found = propose(seen, device="GPU-a")
    assert [(share.name, float(share.weight)) for share in found.shares] == [("alice", 150.0), ("carol", 50.0)]
    assert (found.device, found.elsewhere, found.several) == ("GPU-a", 2, 1)
    assert [share.memory is None for share in found.shares] == [False, True]
    said = " ".join(found.notes)
    assert "2 clients on other GPUs, or on one that is not known, left out." in said
    assert "1 client worked on several GPUs: launches are those on all of them" in said
    with pytest.raises(PlanError, match="no client was on GPU GPU-c in the samples, but on GPU-a, GPU-b"):
        propose(seen, device="GPU-c")
    told = looks(*[[process(3, 100, **both, gpu_memory_by_device={"GPU-a": GIB, "GPU-b": 3 * GIB})]] * 5)
    assert [propose(told, device=uuid).tenants[0].largest for uuid in ("GPU-a", "GPU-b")] == [GIB, 3 * GIB]
    alone = propose(looks(*[[process(1, 300, **on_a)]] * 5))
    assert (alone.device, alone.elsewhere, alone.several) == ("GPU-a", 0, 0)
    assert "do not say which GPU" not in " ".join(alone.notes)
    old = propose(looks(*[[process(1, 300)]] * 5), device="GPU-a")
    assert old.device is None
    assert "The samples do not say which GPU a client used" in " ".join(old.notes)
