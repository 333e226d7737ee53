"""The program leaves TLS out of its own process, and out of nobody else's."""

from __future__ import annotations

import subprocess
import sys

TELL = "import asyncio.sslproto as s; print(s.ssl is not None, s.constants is not None)"


def told(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    return done.stdout.split("\n")[-2]


def test_who_imports_the_command_line_has_all_of_asyncio() -> None:
    assert told(f"import mpstui.cli, mpstui.__main__; {TELL}") == "True True"


def test_the_program_has_an_asyncio_without_tls_and_can_still_import_it() -> None:
    run = "import sys, runpy; sys.argv = ['mpstui', '--version']\ntry: runpy.run_module('mpstui', run_name='__main__')"
    code = f"{run}\nexcept SystemExit as end: assert not end.code\nassert 'ssl' not in sys.modules\n{TELL}\nimport ssl"
    assert told(code) == "False True"
