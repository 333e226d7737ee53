"""Pictures of the overview, compared with the ones kept beside this file."""

from __future__ import annotations

import pytest

from .screen import make_app
from .snapshots import fault, no_daemon, rich, simulated, unhealthy

LARGE, SMALL = (160, 48), (80, 24)
CASES = {
    "rich": (rich, LARGE, ()),
    "simulated": (simulated, LARGE, ()),
    "fault": (fault, LARGE, ()),
    "held": (lambda: unhealthy("held"), LARGE, ()),
    "blocked": (lambda: unhealthy("blocked"), LARGE, ()),
    "stale": (lambda: unhealthy("stale"), SMALL, ()),
    "absent": (lambda: unhealthy("absent"), SMALL, ()),
    "no_daemon": (no_daemon, SMALL, ()),
    "small": (rich, SMALL, ()),
    "filter": (rich, LARGE, ("slash", *"user:bob")),
    "selection": (rich, LARGE, ("j", "v", "v", "j", "v", "F")),
    "servers_focused": (rich, LARGE, ("3",)),
}


@pytest.mark.parametrize("case", CASES)
def test_picture(case, snap_compare) -> None:
    make, size, keys = CASES[case]
    assert snap_compare(make_app(make()), terminal_size=size, press=keys)


@pytest.mark.parametrize("theme", ["mpstui-light", "mpstui-contrast", "terminal"])
def test_picture_of_a_theme(theme, snap_compare) -> None:
    assert snap_compare(make_app(rich(), theme=theme), terminal_size=LARGE, press=("v",))


def test_picture_read_only(snap_compare) -> None:
    assert snap_compare(make_app(rich(), read_only=True), terminal_size=SMALL)
