"""Pictures of the screens of trouble, compared with the ones kept beside this file."""

from __future__ import annotations

import pytest

from .nodes import FINDINGS, TOLD, A, B, C, FakeTrouble, containment, faulted, history, recovered, trouble_app, waiting

LARGE, SMALL = (160, 48), (80, 24)
CASES = {
    "blast": (containment, ("b", "g")),
    "alert": (lambda: faulted(A, B, C), ()),
    "fault": (lambda: faulted(A, B, C, ended_nearby=(2999,)), ("exclamation_mark",)),
    "recovered": (recovered, ("exclamation_mark",)),
    "users": (waiting, ("W",)),
    "events": (lambda: containment(events=history()), ("E",)),
    "problems": (lambda: containment(problems=(TOLD,)), ("D", "g")),
}


@pytest.mark.parametrize("size", [LARGE, SMALL], ids=["large", "small"])
@pytest.mark.parametrize("case", CASES)
def test_picture(case, size, snap_compare) -> None:
    make, keys = CASES[case]
    assert snap_compare(trouble_app(make(), FakeTrouble(findings=FINDINGS)), terminal_size=size, press=keys)


@pytest.mark.slow
@pytest.mark.parametrize("theme", ["mpstui-light", "mpstui-contrast", "terminal"])
def test_picture_of_a_theme(theme, snap_compare) -> None:
    app = trouble_app(faulted(A, B, C), theme=theme)
    assert snap_compare(app, terminal_size=LARGE, press=("exclamation_mark",))
