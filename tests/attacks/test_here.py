"""Root stands in a directory of another user's: nothing of the program is looked for there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

import mpstui
from mpstui.load.supervisor import COMMAND_WORKER, CUDA_WORKER

from .conftest import Stranger
from .programs import ROOT

HIS = (
    "mpstui/__init__.py",
    "signal.py",
    "random.py",
    "json/__init__.py",
    "asyncio/__init__.py",
    "importlib/__init__.py",
)
MARK = "import sys\nopen(%r, 'a').write(__name__ + '\\n')\n"
RUN = "import sys; sys.path[:1] = [sys.argv.pop(1)]; from mpstui.__main__ import main; sys.exit(main())"


@pytest.fixture
def trap(stranger: Stranger) -> Path:
    """Modules of his that write down that they were run."""
    for name in HIS:
        stranger.run("mkdir", "-p", stranger.home / Path(name).parent)
        stranger.python(
            "import sys; open(sys.argv[1], 'w').write(sys.argv[2])",
            stranger.home / name,
            MARK % str(ran(stranger.home)),
        )
    return stranger.home


def ran(home: Path) -> Path:
    return home / "ran"


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        ("load", "--command", "true", "--clients", "1", "--seconds", "1", "--mps", "off", "--yes"),
        ("load", "nbody", "--clients", "1", "--seconds", "1", "--mps", "off", "--yes"),
        ("load", "--demo", "nbody", "--clients", "1", "--seconds", "1", "--yes"),
        ("status", "--demo"),
    ],
    ids=["command", "kernel", "simulated", "demo"],
)
def test_no_program_of_its_is_looked_for_where_one_stands(trap: Path, words: Sequence[str], tmp_path: Path) -> None:
    """An admin who tried a load, or the demo, in a user's directory ran that user's program as root."""
    done = subprocess.run(
        [sys.executable, "-c", RUN, ROOT, *words],
        cwd=trap,
        env={**os.environ, "MPSTUI_AUDIT_LOG": str(tmp_path / "audit")},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert not ran(trap).exists(), ran(trap).read_text()
    assert "No module named" not in done.stderr.replace("No module named 'cuda'", ""), done


def test_its_workers_run_from_anywhere(tmp_path: Path) -> None:
    for command in (CUDA_WORKER, COMMAND_WORKER):
        done = subprocess.run(
            command, cwd=tmp_path, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
        )
        assert "Traceback" not in done.stderr, done.stderr


def test_python_is_nowhere_started_so_that_it_looks_there() -> None:
    """``-m`` and ``-c`` have the current directory before the library."""
    started = re.compile(r'sys\.executable, "-[mc]"')
    folder = Path(mpstui.__file__).parent
    found = {str(file.relative_to(folder)) for file in folder.rglob("*.py") if started.search(file.read_text())}
    assert found == {"cli/web.py", "sim/node.py", "system/own.py"}, (
        "each of these takes the directory away, or goes to /"
    )
