"""Pictures of the plan and daemon screens, compared with the ones kept beside this file."""

from __future__ import annotations

from dataclasses import replace

import pytest
from ui.snapshots import GPU0, GPU1, rich, simulated, unhealthy

from mpstui.core.model import Chunks, PartitionTable, SmPartition, Snapshot
from mpstui.core.v3 import Namespace, V3Client, V3Node, V3Partition, V3Server

from .fakes import LARGE, PROFILE, SMALL, FakeDaemons, FakePlans, RecordingRunner, make_app, small

MIDDLE = (120, 40)


def static() -> Snapshot:
    """A daemon with static SM partitions, one of them with clients."""
    table = PartitionTable(
        (Chunks(GPU0, 3, 12, 36, 96), Chunks(GPU1, 15, 0, 132, 0)),
        (
            SmPartition(GPU0, "fw8PDw8", 7, 56, True),
            SmPartition(GPU0, "gA8PDw8", 4, 32, False),
            SmPartition(GPU0, "AAE"),
        ),
    )
    snapshot = small()
    return replace(snapshot, daemons=(replace(snapshot.daemons[0], static_partitioning=True, partitions=table),))


def named() -> Snapshot:
    """A daemon of protocol 3 with a server, its namespaces, clients and an SM partition."""
    node = V3Node(
        (V3Server("training", 1000, 48201, "Ready", "/run/mps/training", GPU0), V3Server("serving", 1001)),
        (
            Namespace("default", "training", active_thread_percentage=50.0, pipe_dir="/run/mps/training"),
            Namespace("small", "training", pinned_mem_limit="8G", active_thread_percentage=25.0),
            Namespace("open", "training"),
        ),
        (V3Client(51023, "training", "0", "default", "python train.py"), V3Client(51024, "training", "0", "open", "x")),
        partitions=(V3Partition("large", "training", GPU0, 4, 34, True, "created", f"{GPU0}/Kp8"),),
    )
    snapshot = small()
    return replace(snapshot, daemons=(replace(snapshot.daemons[0], protocol="v3", v3=node),))


CASES = {
    "plan": (small, LARGE, ("p",)),
    "plan_moved": (simulated, LARGE, ("p", "tab", *["shift+right"] * 2, "down", "shift+left")),
    "plan_small": (small, SMALL, ("p",)),
    "bars_small": (rich, SMALL, ("p", "tab", "right")),
    "apply": (small, LARGE, ("p", "A")),
    "part": (small, SMALL, ("p", "A", "tab", "enter")),
    "export": (small, SMALL, ("p", "C", "end")),
    "save": (small, SMALL, ("p", "w", "t", "w", "o")),
    "open": (small, LARGE, ("p", "V")),
    "daemons": (rich, LARGE, ("d",)),
    "daemons_small": (lambda: unhealthy("held"), SMALL, ("d",)),
    "start": (small, LARGE, ("d", "S", "space")),
    "start_small": (small, SMALL, ("d", "S")),
    "stop": (small, LARGE, ("d", "x", "shift+tab", "down")),
    "partitions": (static, MIDDLE, ("P", "j")),
    "partitions_small": (static, SMALL, ("P",)),
    "namespaces": (named, MIDDLE, ("P", "j")),
    "namespaces_small": (named, SMALL, ("P",)),
    "force": (small, SMALL, ("d", "x", "shift+tab", "end", "tab", "tab", "enter")),
}


def app_of(snapshot, theme: str = "mpstui-dark"):
    plans = FakePlans({"two": PROFILE})
    return make_app(snapshot, plans=plans, daemons=FakeDaemons(), runner=RecordingRunner(refuses="pinned"), theme=theme)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_picture(case, snap_compare) -> None:
    make, size, keys = CASES[case]
    assert snap_compare(app_of(make()), terminal_size=size, press=keys)


@pytest.mark.slow
@pytest.mark.parametrize("theme", ["mpstui-light", "mpstui-contrast", "terminal"])
@pytest.mark.parametrize("keys", [("p", "tab", "right"), ("d",)], ids=["plan", "daemons"])
def test_picture_of_a_theme(theme, keys, snap_compare) -> None:
    assert snap_compare(app_of(small(), theme), terminal_size=LARGE, press=keys)
