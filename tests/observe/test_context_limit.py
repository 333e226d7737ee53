"""How many contexts a device takes: the daemon's own word, else the table's, with whose number it is (fact 13)."""

from __future__ import annotations

from pathlib import Path

import pytest

from mpstui.control.drivers import nearest
from mpstui.core.model import Device, Event
from mpstui.fields import DEVICE, View
from mpstui.load.footprint import Takes
from mpstui.observe.discovery import Place
from mpstui.observe.reducer import NodeState
from mpstui.observe.sources import NvmlSample
from mpstui.operations.load import beside
from tests.observe.replay import PIPE

CLAIMED = "claimed by the vendor, not measured"


def refusal(limit: str) -> Event:
    return Event("client_refused", 1.0, server_pid=1, values={"reason": "limit", "limit": limit})


def device_of(driver: str | None, capability: tuple[int, int], *, uid: int = 0, said: str | None = None) -> Device:
    node = NodeState()
    device = Device("GPU-0", 0, sm_count=132, compute_capability=capability)
    node.set_sample(NvmlSample(1.0, driver, devices=(device,)))
    if said is not None:
        node.set_places((Place(PIPE, "running", Path("/l"), uid=uid),))
        node.watched[PIPE].state.apply(refusal(said), 1.0)
    return node.snapshot(2.0).devices[0]


@pytest.mark.parametrize(
    ("driver", "capability", "limit", "source"),
    [
        ("470.256.02", (9, 0), 48, "documented, and measured with 580"),
        ("575.57.08", (9, 0), 48, "documented, and measured with 580"),
        ("580.159.04", (9, 0), 48, "measured with 580"),
        (None, (9, 0), 48, "measured with 580"),
        ("590.44.01", (10, 0), 60, CLAIMED),
        ("700.1", (10, 0), 60, CLAIMED),
        ("590.44.01", (7, 0), 60, CLAIMED),
        ("590.44.01", (6, 1), 16, "documented for GPUs before Volta"),
    ],
)
def test_the_table_says_it_with_its_mark(
    driver: str | None, capability: tuple[int, int], limit: int, source: str
) -> None:
    device = device_of(driver, capability)
    assert (device.context_limit, device.context_limit_source) == (limit, source)
    assert device.limit_is_claim == (limit == 60)


@pytest.mark.parametrize(
    ("version", "row"), [("450.80.02", 470), ("470.256.02", 470), ("549.1", 535), ("550.1", 550), ("1000.1", 615)]
)
def test_the_row_of_a_driver_that_nobody_has_seen_is_the_newest_that_is_no_newer(version: str, row: int) -> None:
    assert nearest(version).number == row


@pytest.mark.parametrize(
    ("uid", "said", "limit", "source"),
    [
        (0, "48", 48, "said by the daemon"),
        (0, "7", 7, "said by the daemon"),
        (0, "0", 60, CLAIMED),
        (0, "999999", 60, CLAIMED),
        (2001, "7", 60, CLAIMED),  # a stranger's daemon does not say what others' devices take
    ],
)
def test_what_the_daemon_said_comes_first(uid: int, said: str, limit: int, source: str) -> None:
    device = device_of("615.71", (9, 0), uid=uid, said=said)
    assert (device.context_limit, device.context_limit_source) == (limit, source)


@pytest.mark.parametrize(("second", "several", "code"), [(0, False, "device_full"), (20, True, "device_nearly_full")])
def test_beside_contexts_of_another_daemon_nobody_knows_when_a_device_is_full(
    second: int, several: bool, code: str
) -> None:
    """The sum over two daemons was held against the limit that was measured with one: 68/48 was full, with error 46."""
    node = NodeState()
    node.set_sample(NvmlSample(1.0, "580.159.04", devices=(Device("GPU-0", 0, compute_capability=(9, 0)),)))
    held = {PIPE: 48, Path("/tmp/another"): second}
    node.set_places(tuple(Place(pipe_dir, "running", Path("/l"), uid=0) for pipe_dir in held))
    for server, (pipe_dir, contexts) in enumerate(held.items(), 100):
        state = node.watched[pipe_dir].state
        state.daemon_pid = server - 50
        for pid in range(10 * server, 10 * server + contexts):
            state.apply(Event("context_active", 1.0, pipe_dir, server, pid, 1, ("GPU-0",)), 1.0)
    snapshot = node.snapshot(2.0)
    (device,) = snapshot.devices
    assert (device.contexts, device.context_limit, device.limit_is_claim) == (48 + second, 48, several)
    assert {problem.code for problem in snapshot.problems if problem.subject == "GPU 0"} == {code}
    words = "".join(text for text, _ in DEVICE["contexts"].column.cell(device, View(snapshot), 40))
    assert words.split()[-1:] == (["daemons"] if several else ["✕"])
    assert (" full" in words, "48?" in words or "contexts?" in words) == (not several, several)
    first = snapshot.daemons[0].limited(device)
    assert (first.contexts, device.contexts_left) == (48, None if several else 0)
    in_use = beside(1, (), Takes(1, 0), snapshot.devices)[1]
    assert (f"{48 + second} contexts of 2 daemons in use" in in_use, "of 48 contexts" in in_use) == (
        several,
        not several,
    )
