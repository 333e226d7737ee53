"""Pictures of the panel, compared with the ones kept beside this file."""

from __future__ import annotations

from dataclasses import replace

import pytest
from ui.screen import until
from ui.snapshots import GPU0, client, daemon, device, rich, server, unhealthy

from mpstui.core.model import OldLimit, ProcessKey
from mpstui.load.types import WorkerError
from mpstui.ui.load.plot import POINT_SECONDS

from .fakes import NOW, FakeBackend, load_app, opened, running

LARGE, SMALL = (160, 48), (80, 24)
OPEN = daemon(servers=(server(active_thread_percentage=100.0),))
FREE = rich(daemons=(OPEN,), devices=(device(0, 4), device(1, 0)))


def minute(session) -> None:
    """A minute in which one share was moved twice."""
    for member in session.members:
        figure = member.report.figure or 0.0
        for point in range(80):
            moved = member.number == 1 and 20 <= point < 50
            member.history.add(NOW - (79 - point) * POINT_SECONDS, figure * (0.3 if moved else 1.0))


async def fields(pilot) -> None:
    await opened(pilot, "right")


async def empty(pilot) -> None:
    await opened(pilot)


async def shares(pilot) -> None:
    await running(pilot, "right")
    minute(pilot.app.load)
    await pilot.press("right", "right")
    await settled(pilot)


async def mixed(pilot) -> None:
    """One that has just failed, one that is on its way, one under an older limit."""
    supervisor = await running(pilot, "right", "right", "right", "down", "down", "4")
    minute(pilot.app.load)
    text = "CUDA error 700: an illegal memory access; with MPS any client of the device may have made it"
    supervisor.say(
        1, state="failed", error=WorkerError(f"{text} (cuEventSynchronize)", "mpstui suspects names who was there")
    )
    supervisor.say(
        3, state="restarting", figure=None, notes=("restarted: a change of limits reaches new clients only",)
    )
    mine = client(0, key=ProcessKey(7002, 502), old_limits=(OldLimit("active_thread_percentage", 100.0, 50.0),))
    held = server(active_thread_percentage=50.0, clients=(mine,))
    pilot.app.collector.push(replace(FREE, daemons=(daemon(servers=(held,)),)))
    await settled(pilot)


async def many(pilot) -> None:
    supervisor = await running(pilot, *["right"] * 4, "down", "down", "2", "0")
    minute(pilot.app.load)
    supervisor.say(7, state="failed", error=WorkerError("CUDA error 46: the device takes no more clients"))
    await settled(pilot)


async def danger(pilot) -> None:
    await opened(pilot, "left", "end", "left", "enter")


async def leave(pilot) -> None:
    await running(pilot, "left")
    await pilot.press("ctrl+c")


async def settled(pilot) -> None:
    pilot.app.screen.tick()
    session = pilot.app.load
    await until(pilot, lambda: not session._tasks and not session.starting)


CASES = {
    "empty": (empty, LARGE, {}),
    "shares": (shares, LARGE, {}),
    "mixed": (mixed, LARGE, {}),
    "many": (many, LARGE, {}),
    "danger": (danger, LARGE, {}),
    "leave": (leave, LARGE, {}),
    "small_fields": (fields, SMALL, {}),
    "small_shares": (shares, SMALL, {}),
    "small_mixed": (mixed, SMALL, {}),
    "tall": (shares, (100, 50), {}),
    "read_only": (empty, SMALL, {"read_only": True}),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_picture(case, snap_compare) -> None:
    prepare, size, options = CASES[case]
    assert snap_compare(load_app(snapshot=FREE, **options), terminal_size=size, run_before=prepare)


@pytest.mark.slow
@pytest.mark.parametrize("theme", ["mpstui-light", "mpstui-contrast", "terminal"])
def test_picture_of_a_theme(theme, snap_compare) -> None:
    assert snap_compare(load_app(snapshot=FREE, theme=theme), terminal_size=LARGE, run_before=mixed)


@pytest.mark.slow
def test_picture_simulated(snap_compare) -> None:
    snapshot = replace(FREE, source="simulated", daemons=(replace(OPEN, simulated=True),))
    app = load_app(FakeBackend(simulated=True), snapshot)
    assert snap_compare(app, terminal_size=LARGE, run_before=shares)


def test_picture_without_a_daemon(snap_compare) -> None:
    assert snap_compare(load_app(snapshot=unhealthy("absent")), terminal_size=SMALL, run_before=empty)


def test_the_minute_is_a_minute() -> None:
    """The picture's history has what it says: a share that was lower for a while."""
    from mpstui.load.types import LoadSpec, WorkerReport
    from mpstui.ui.load.session import Member

    member = Member(LoadSpec(), WorkerReport(1, "fma", "running", NOW, figure=10.0, device_uuid=GPU0))
    minute(type("Session", (), {"members": (member,)}))
    points = member.history.points(NOW)
    assert {3.0, 10.0} <= set(points)
