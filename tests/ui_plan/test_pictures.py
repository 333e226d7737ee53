"""Pictures of the plan and daemon screens, compared with the ones kept beside this file."""

from __future__ import annotations

import pytest
from ui.snapshots import rich, simulated, unhealthy

from .fakes import LARGE, PROFILE, SMALL, FakeDaemons, FakePlans, RecordingRunner, make_app, small

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
    "force": (small, SMALL, ("d", "x", "shift+tab", "end", "tab", "tab", "enter")),
}


def app_of(snapshot, theme: str = "mpstui-dark"):
    plans = FakePlans({"two": PROFILE})
    return make_app(snapshot, plans=plans, daemons=FakeDaemons(), runner=RecordingRunner(refuses="pinned"), theme=theme)


@pytest.mark.parametrize("case", CASES)
def test_picture(case, snap_compare) -> None:
    make, size, keys = CASES[case]
    assert snap_compare(app_of(make()), terminal_size=size, press=keys)


@pytest.mark.parametrize("theme", ["mpstui-light", "mpstui-contrast", "terminal"])
@pytest.mark.parametrize("keys", [("p", "tab", "right"), ("d",)], ids=["plan", "daemons"])
def test_picture_of_a_theme(theme, keys, snap_compare) -> None:
    assert snap_compare(app_of(small(), theme), terminal_size=LARGE, press=keys)
