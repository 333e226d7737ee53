"""What the control binary's stand-in is started with: where a C compiler is, ``stand_in.c``, which answers at once."""

from __future__ import annotations

import atexit
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from mpstui.sim import marker

_HERE = "TESTS_STAND_IN"
"""Names it to the processes of the same run; empty where there is none."""


def _made() -> str:
    compiler = shutil.which("cc")
    if compiler is None or os.name != "posix":
        return ""
    folder = Path(tempfile.mkdtemp(prefix="stand-in-", dir="/tmp"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    folder.chmod(0o755)  # root runs it with the rights of others, too
    program = folder / "python3"
    source = Path(__file__).with_suffix(".c")
    python = os.path.realpath(sys.executable)  # the python3 beside it may be another one
    command = [compiler, "-O1", f'-DPYTHON="{python}"', "-o", program, source]
    try:
        subprocess.run(command, capture_output=True, check=True)
        subprocess.run([program, "-I", "-S", "-c", ""], capture_output=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return ""
    return os.fspath(program)


def made() -> str:
    """The program; empty where there is no compiler."""
    if _HERE not in os.environ:
        os.environ[_HERE] = _made()
    return os.environ[_HERE]


def use() -> None:
    """From here on in this process, and for what it starts by the name of python3."""
    if program := made():
        os.environ["PATH"] = os.path.dirname(program) + os.pathsep + os.environ["PATH"]
        namespace: Any = SimpleNamespace(executable=program)
        marker.sys = namespace
