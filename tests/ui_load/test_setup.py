"""Fields, presets and the groups of clients that come of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from ui.snapshots import GPU0, GPU1, PIPE, daemon, device, server, unhealthy

from mpstui.core.trust import Speaker
from mpstui.ui.load.presets import PRESETS, apply
from mpstui.ui.load.setup import (
    STEADY,
    Setup,
    groups,
    harm,
    held_back,
    pool_cost,
    pools,
    problem,
    safer,
    server_limit,
    sm_counts,
    taken,
    way,
)

DEVICES = (device(0, 10), device(1, 0))
UUIDS = [GPU0, GPU1]
MIB = 1 << 20
OPEN = daemon(servers=(server(active_thread_percentage=100.0),))

NAMED = {preset.id: preset for preset in PRESETS}


def made(name: str, **changes) -> Setup:
    return replace(apply(NAMED[name], Setup(), UUIDS), **changes)


def specs(setup: Setup, limit: float | None = None):
    return groups(setup, PIPE, DEVICES, limit)


@pytest.mark.parametrize(
    ("name", "kernels", "clients", "counts"),
    [
        ("even", ("fma",), 4, (32, 32, 32, 32)),
        ("30-70", ("fma",), 2, (38, 92)),
        ("half", ("fma",), 4, (66, 66, 66, 66)),
        ("beside", ("triad", "fma"), 2, (66, 66)),
        ("one", ("nbody",), 1, (132,)),
        ("two", ("nbody",), 2, (132, 132)),
        ("four", ("nbody",), 4, (132, 132, 132, 132)),
        ("noisy", ("fma",), 4, (32, 132, 132, 132)),
        ("requests", ("fma",), 4, (32, 32, 32, 32)),
        ("busy", ("fma",), 4, (66, 66, 66, 66)),
        ("streams", ("small",), 1, (132,)),
        ("copies", ("fma",), 1, (132,)),
        ("priority", ("fma",), 2, (132, 132)),
        ("gpu-util", ("endless",), 1, (132,)),
        ("fault", ("illegal", "fma"), 4, (132, 132, 132, 132)),
    ],
)
def test_presets(name, kernels, clients, counts):
    setup = made(name)
    assert (setup.kernels, setup.clients) == (kernels, clients)
    assert sm_counts(setup, DEVICES) == counts
    assert problem(setup, OPEN, DEVICES) is None
    assert setup.where == ("private" if name in {"fault", "gpu-util"} else "on")


def test_every_preset_is_tested_and_says_what_to_look_at():
    assert len(PRESETS) == 15
    assert len({p.id for p in PRESETS}) == 15
    assert all(p.text.endswith(".") for p in PRESETS)


@pytest.mark.parametrize(
    ("name", "asked"),
    [
        ("even", {}),
        ("requests", {"arrivals": 100.0}),
        ("busy", {"busy": 50.0}),
        ("streams", {"streams": 16, "steps": 200_000}),
        ("copies", {"streams": 4, "copies": 32 << 20}),
        ("gpu-util", {"blocks": 1}),
    ],
)
def test_the_way_of_launching_reaches_the_clients(name, asked):
    (spec,) = specs(made(name))
    found = {key: getattr(spec, key) for key in ("streams", "copies", "busy", "arrivals", "steps", "blocks")}
    assert {key: value for key, value in found.items() if value is not None} == asked


def test_what_is_launched_once_takes_no_other_way():
    odd = Setup(kernels=("memory", "fma"), memory_limit="1G", way=way("in 4 streams"))
    assert problem(odd, OPEN, DEVICES) == "memory is launched once: choose launches ‹one after another›"
    assert problem(replace(odd, way=STEADY), OPEN, DEVICES) is None


def test_each_client_has_the_priority_of_the_preset_and_no_other_preset_keeps_it():
    setup = made("priority")
    assert [(spec.clients, spec.priority, spec.busy) for spec in specs(setup)] == [(1, 0, 100.0), (1, 1, 100.0)]
    assert [(spec.clients, spec.priority) for spec in specs(replace(setup, clients=4))] == [(1, 0), (3, 1)]
    assert apply(NAMED["even"], setup, UUIDS).priority == ()
    assert {spec.priority for spec in specs(replace(setup, where="off"))} == {None}


def test_one_thread_is_of_the_kernel_that_never_ends():
    thread = made("gpu-util")
    assert problem(thread, OPEN, DEVICES) is None
    assert problem(replace(thread, way=STEADY), OPEN, DEVICES) is None
    wrong = problem(replace(thread, kernels=("fma",)), OPEN, DEVICES)
    assert wrong == "launches ‹of one thread› go with the kernel ‹endless›: choose ‹one after another›"
    assert "endless is launched once" in (problem(replace(thread, way=way("no pause")), OPEN, DEVICES) or "")


def test_memory_of_streams_and_copies_is_told_before_they_start():
    one, copying = (taken(made("copies", way=each), DEVICES, 100.0) for each in (STEADY, way("copies, overlapped")))
    assert copying.memory - one.memory >= 4 * (32 << 20)


def test_half_is_100_by_half_the_clients_and_never_over_100():
    assert NAMED["half"].shares(8) == (25.0,)
    assert NAMED["half"].shares(1) == (100.0,)


def test_a_preset_keeps_what_the_user_chose_besides():
    chosen = Setup(devices=(GPU1,), memory_limit="2G", priority=(1,), seconds=30.0, where="off")
    setup = apply(NAMED["30-70"], chosen, UUIDS)
    assert (setup.devices, setup.memory_limit, setup.priority, setup.seconds) == ((GPU1,), "2G", (1,), 30.0)
    assert setup.where == "off"


def test_after_fault_containment_the_private_daemon_is_not_kept():
    assert apply(NAMED["even"], made("fault"), UUIDS).where == "on"


def test_without_a_daemon_a_private_one_is_offered():
    assert apply(NAMED["even"], Setup(), UUIDS, has_daemon=False).where == "private"
    assert "private" in problem(Setup(), None, DEVICES)
    assert "private" in problem(Setup(), unhealthy("blocked").daemons[0], DEVICES)
    assert problem(Setup(where="private"), None, DEVICES) is None


def test_nothing_is_run_on_a_daemon_that_is_not_spoken_to_or_is_another_users():
    assert problem(Setup(), OPEN, DEVICES) is None
    v3 = replace(OPEN, protocol="v3")
    assert problem(Setup(), v3, DEVICES).startswith("it runs with MPS protocol 3")
    his = replace(OPEN, speaker=Speaker(64_101, "a daemon of mallory"))
    assert "this is a daemon of mallory" in problem(Setup(), his, DEVICES)
    assert "whose user is not known" in problem(Setup(), replace(OPEN, speaker=Speaker()), DEVICES)
    for odd in (v3, his):
        assert problem(Setup(where="private"), odd, DEVICES) is None
        assert problem(Setup(where="off"), odd, DEVICES) is None


@pytest.mark.parametrize(
    "changes",
    [
        {"clients": 0},
        {"clients": 65},
        {"shares": (0.0,)},
        {"shares": (101.0,)},
        {"shares": (float("nan"),)},
        {"shares": (50.0, 50.0, 50.0)},
        {"memory_limit": "512MB"},
        {"memory_limit": "0G"},
        {"seconds": 0.0},
        {"seconds": 1e9},
    ],
)
def test_what_cannot_be_started(changes):
    assert problem(replace(Setup(), **changes), OPEN, DEVICES)


def test_affinity_needs_to_know_the_sms():
    unknown = (device(0, 10, sm_count=None),)
    setup = Setup(shares=(25.0,), devices=(GPU0,))
    assert "choose the method ‹percentage›" in problem(setup, OPEN, unknown)
    assert problem(replace(setup, hold="percentage"), OPEN, unknown) is None


def test_harm():
    assert harm(made("fault")) is None
    assert harm(made("fault", where="off")) is None
    assert "every client" in harm(made("fault", where="on"))
    assert "all memory" in harm(Setup(kernels=("memory",)))
    assert harm(Setup(kernels=("memory",), memory_limit="1G")) is None


def test_a_memory_limit_that_does_not_reach_the_filler_spares_nobody():
    off = Setup(kernels=("memory",), memory_limit="1G", where="off")
    assert "no limit reaches" in harm(off)
    assert [safer(setup) for setup in (off, replace(off, where="private"), made("fault", where="on"))] == [
        "MPS ‹on›, with a memory limit",
        "a memory limit",
        "MPS ‹private daemon›",
    ]


def test_shares_by_affinity_come_with_a_pool():
    (spec,) = specs(made("30-70"))
    assert spec.sm_counts == (38, 92)
    assert spec.percentages == ()
    assert spec.pool[0] == 8
    assert spec.pool[-1] == 132
    assert len(spec.pool) == 12
    assert spec.pipe_dir == PIPE


def test_shares_by_percentage_have_none():
    (spec,) = specs(made("30-70", hold="percentage"))
    assert (spec.percentages, spec.sm_counts, spec.pool) == ((30.0, 70.0), (), ())


def test_without_mps_there_are_no_limits():
    (spec,) = specs(made("30-70", where="off", memory_limit="2G", priority=(1,)))
    assert (spec.mps, spec.percentages, spec.sm_counts, spec.pool) == (False, (), (), ())
    assert (spec.memory_limit, spec.priority, spec.pipe_dir) == (None, None, None)


def test_limits_reach_the_clients():
    (spec,) = specs(made("even", memory_limit="2G", priority=(1,), seconds=30.0))
    assert (spec.memory_limit, spec.priority, spec.seconds) == ("2G", 1, 30.0)


def test_kernels_and_devices_are_groups():
    found = [(s.kernel, s.device_uuid, s.clients) for s in specs(made("fault"))]
    assert found == [("illegal", GPU0, 1), ("fma", GPU1, 2), ("fma", GPU0, 1)]


def test_kernels_that_cannot_move_get_no_pool():
    assert [s.pool for s in specs(Setup(kernels=("endless", "memory"), clients=2))] == [(), ()]


def test_the_pool_ends_at_the_servers_limit():
    limited = daemon()
    assert server_limit(made("even"), limited) == 25.0
    (spec,) = specs(made("even"), 25.0)
    assert spec.pool[-1] == 32
    assert "25 %" in held_back(made("30-70"), limited)
    assert held_back(made("even"), limited) is None
    assert held_back(made("fault"), limited) is None
    assert server_limit(Setup(), daemon(servers=())) == 100.0


def test_the_pool_leaves_contexts_to_others():
    each = (48 - 10 - 8) // 4
    cost = pool_cost(made("even"), DEVICES, None)
    assert (cost.contexts, cost.clients) == (4 * each, 4)
    assert cost.seconds == pytest.approx(0.105 * each)
    full = (device(0, 46), *DEVICES[1:])
    assert pool_cost(made("even"), full, None).contexts == 4, "one each"
    assert pool_cost(made("even", hold="percentage"), DEVICES, None) is None
    assert pool_cost(made("even", clients=0), DEVICES, None) is None


@pytest.mark.parametrize("name", ["even", "half", "30-70", "mixed"])
def test_what_is_told_before_is_what_the_workers_make(name):
    """Fact 23: 70 to 520 MiB from 8 to 132 SMs."""
    setup = replace(made("even"), kernels=("fma", "memory"), memory_limit="1G") if name == "mixed" else made(name)
    pooled = [pool for pool in pools(setup, DEVICES, 25.0) if pool]
    cost, told = pool_cost(setup, DEVICES, 25.0), taken(setup, DEVICES, 25.0)
    assert all(8 <= sms <= 32 for pool in pooled for sms in pool), "the server's 25 %"
    assert cost.contexts == sum(map(len, pooled))
    assert told.contexts == cost.contexts + setup.clients - cost.clients
    assert cost.size == sum(58 * MIB + 3.5 * MIB * sms for pool in pooled for sms in pool)
    if name != "mixed":
        assert 0 <= told.memory - cost.size < 10 * MIB, "and what the kernels allocate"


def test_counts_of_nonsense_are_none():
    assert sm_counts(Setup(shares=(0.0,)), DEVICES) == ()
    assert sm_counts(Setup(), ()) == ()
    assert groups(Setup(), Path("/x"), (), None)[0].device_uuid is None
