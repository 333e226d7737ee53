"""Root's next `--demo` removes what a killed one left, and nothing that a stranger would have it remove."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from mpstui.sim.demo import demo_directory
from mpstui.sim.simd.config import MARKER, default_gpus, write_marker

from .conftest import Stranger


@pytest.fixture(autouse=True)
def tmp_of_the_crowd(crowd: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", os.fspath(crowd))


@pytest.fixture
def roots(crowd: Path) -> Path:
    """A directory of root's that looks as a demo's does and is not called so."""
    folder = crowd / "roots"
    folder.mkdir(mode=0o700)
    write_marker(folder, default_gpus(1))
    (folder / "kept").write_text("x")
    return folder


def test_a_stranger_s_directories_stay_his(stranger: Stranger, crowd: Path) -> None:
    folder = crowd / "mpstui-demo-his00000"
    stranger.run("mkdir", "-m", "0700", folder)
    stranger.run("touch", folder / MARKER)

    with demo_directory():
        assert (folder / MARKER).exists()


def test_his_links_to_root_s_lead_nowhere(stranger: Stranger, crowd: Path, roots: Path) -> None:
    stranger.run("ln", "-s", roots, crowd / "mpstui-demo-link0000")
    stranger.run("mkdir", crowd / "mpstui-demo-his00000")
    stranger.run("ln", "-s", roots, crowd / "mpstui-demo-his00000" / "link")

    with demo_directory():
        pass

    assert (roots / "kept").exists()


def test_a_flood_of_names_stops_no_demo(stranger: Stranger, crowd: Path) -> None:
    make = "import os, sys; [os.mkdir(f'{sys.argv[1]}/mpstui-demo-{i:08}', 0o700) for i in range(2000)]"
    stranger.python(make, crowd)
    left = crowd / "mpstui-demo-zzzzzzzz"
    left.mkdir(mode=0o700)
    write_marker(left, default_gpus(1))

    with demo_directory() as folder:
        assert folder.is_dir()
    assert not left.exists()


def test_a_lock_that_he_holds_is_not_waited_for(stranger: Stranger, crowd: Path) -> None:
    """Root's directory is closed to him; one of his own that he locks is his alone."""
    folder = crowd / "mpstui-demo-lock0000"
    program = (
        "import fcntl, os, sys; os.mkdir(sys.argv[1], 0o755);"
        "fcntl.flock(os.open(sys.argv[1], os.O_RDONLY), fcntl.LOCK_EX);"
        "print('locked', flush=True); sys.stdin.read()"
    )
    process = stranger.start_python(program, folder, stdin=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()

    with demo_directory() as mine:
        assert mine != folder
    assert process.stdin is not None
    process.stdin.close()
