"""Regular expressions read what strangers write: none takes time that grows with a power of its text."""

from __future__ import annotations

import contextlib
import importlib
import pkgutil
import re
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from automaton import Automaton

import mpstui
from mpstui.core.late import _Pattern

REASONS = {
    "mpstui.control.grammar._TOLD": "what is behind its line breaks takes whatever comes",
    "mpstui.extras._OF_EXTRA": "what mpstui's own package needs, by its own metadata",
}
"""For those in which a text can be divided in many ways, and no stranger makes them be tried."""


@pytest.mark.parametrize(
    ("text", "many"),
    [
        ("a*b", False),
        ("a*b*a", False),
        ("a*a*b", True),
        ("a*b?a*c", True),
        ("(?:a|b)*c", False),
        ("(?:a|ab)*c", False),
        ("(?:a+)+b", True),
        ("(?:a*)*b", True),
        ("(?:a|aa)*c", True),
        ("(?:a|[ab])*c", False),
        ("(?i:A*a*)b", True),
        (r"\s*\d+(?:\s*,\s*\d+)*\s*,?\s*", True),
        (r"\s*\d+\s*(?:,\s*\d+\s*)*(?:,\s*)?", False),
        (r"\d+\.?\d*x", True),
        (r"\d+(?:\.\d*)?x", False),
        (r"[^ ]*\S*x", True),
        (r".{0,80}x{0,80}y", False),
        (rb"\w*-\w*", False),
    ],
)
def test_the_form_of_a_pattern_tells_whether_a_text_is_divided_in_many_ways(text: str | bytes, many: bool) -> None:
    assert any(Automaton(re.compile(text)).divided()) is many


def _patterns() -> Iterator[tuple[str, re.Pattern[Any]]]:
    for each in pkgutil.walk_packages(mpstui.__path__, "mpstui."):
        if not re.search(r"__main__|\.programs\.|\.bin\.", each.name):
            with contextlib.suppress(ImportError):  # of an extra that is not here
                importlib.import_module(each.name)
    for name, module in sorted(sys.modules.items()):
        for called, found in list(vars(module).items()) if name.startswith("mpstui.") else ():
            for each in found if isinstance(found, tuple | list) else (found,):
                if isinstance(each, _Pattern):
                    yield f"{name}.{called}", re.compile(each.pattern, each.flags)  # type: ignore[attr-defined]
                elif isinstance(each, re.Pattern):
                    yield f"{name}.{called}", each


def test_no_text_is_divided_in_many_ways_by_a_pattern_of_the_program() -> None:
    """A client with blanks in its CUDA_VISIBLE_DEVICES kept doctor for a quarter of a second each."""
    patterns = list(_patterns())
    assert len(patterns) > 150
    many = {name for name, each in patterns if any(Automaton(each).divided())}
    assert many == {*REASONS}
