"""The words that the screen uses are explained in the help, in short sentences."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest
from ui.screen import make_app
from ui.snapshots import one_daemon

from mpstui.ui.dialogs.help import GLOSSARY
from mpstui.ui.dialogs.widgets import Sheet

STRINGS = Path(__file__).parents[2] / "scripts" / "strings"


@pytest.mark.slow
async def test_each_word_of_the_field_is_explained_in_the_help() -> None:
    app = make_app(one_daemon())
    async with app.run_test(size=(100, 40)) as pilot:
        await pilot.press("question_mark")
        await pilot.pause()
        text = " ".join(app.screen.query_one("#facts", Sheet).text.split())
        await pilot.press("slash", *"glossary")
        await pilot.pause()
        for row in GLOSSARY:
            assert row.label in app.screen.query_one("#facts", Sheet).text
    for word in ("client", "context", "server", "daemon", "SM", "active thread percentage", "execution affinity"):
        assert word in text
    for word in ("context pool", "outdated limits", "blast radius", "held", "blocked", "pending"):
        assert word in text
    assert all(len(sentence.split()) <= 20 for row in GLOSSARY for sentence in row.value.split(". "))


def test_the_list_of_strings_has_what_is_said_and_no_docstring(tmp_path) -> None:
    texts = runpy.run_path(str(STRINGS), run_name="strings")["texts"]
    file = tmp_path / "x.py"
    file.write_text(
        '"""A docstring of words."""\nsay(f"client {pid} waits for a server")\nname("x")\ncss("A { color: red; }")\n'
    )
    assert list(texts(file)) == [(2, "client {…} waits for a server")]
