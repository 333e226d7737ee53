"""The program leaves TLS out of its own process, and out of nobody else's."""

from __future__ import annotations

import subprocess
import sys

import pytest

TELL = "import asyncio.sslproto as s; print(s.ssl is not None, s.constants is not None)"


def told(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    return done.stdout.split("\n")[-2]


def test_who_imports_the_command_line_has_all_of_asyncio() -> None:
    assert told(f"import mpstui.cli, mpstui.__main__; {TELL}") == "True True"


@pytest.mark.slow
def test_the_program_has_an_asyncio_without_tls_and_can_still_import_it() -> None:
    run = "import sys, runpy; sys.argv = ['mpstui', '--version']\ntry: runpy.run_module('mpstui', run_name='__main__')"
    code = f"{run}\nexcept SystemExit as end: assert not end.code\nassert 'ssl' not in sys.modules\n{TELL}\nimport ssl"
    assert told(code) == "False True"


@pytest.mark.parametrize(
    ("words", "collects"), [("status", False), ("set x", False), ("status --watch", True), ("events", True), ("", True)]
)
def test_a_command_that_ends_at_once_collects_no_garbage(words: str, collects: bool) -> None:
    code = (
        f"import gc, sys; sys.argv = ['mpstui', *{words.split()}]\n"
        "import mpstui.cli, mpstui.observe.ahead\nfrom mpstui.__main__ import main\n"
        "mpstui.observe.ahead.begin_ahead = lambda: None\n"
        "mpstui.cli.main = lambda: print(gc.isenabled()) or 0\n"
        "main()"
    )
    assert told(code) == str(collects)
