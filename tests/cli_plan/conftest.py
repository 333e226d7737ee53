"""A node of one's own for the command line: config folder, audit log and stand-in binary in a short directory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from folders import place_for_daemons

from mpstui.cli import main
from mpstui.sim.marker import control_binary

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    with place_for_daemons() as folder:
        monkeypatch.setenv("XDG_CONFIG_HOME", str(folder / "config"))
        monkeypatch.setenv("MPSTUI_AUDIT_LOG", str(folder / "audit.jsonl"))
        monkeypatch.setenv("MPSTUI_CONTROL_BINARY", control_binary()[-1])
        for name in ("CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY", "CUDA_VISIBLE_DEVICES"):
            monkeypatch.delenv(name, raising=False)
        yield folder


@pytest.fixture
def mpstui(place: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run the command line here: exit status, stdout, stderr."""

    def run(*words: object) -> tuple[int, str, str]:
        capsys.readouterr()
        try:
            status = main([str(word) for word in words])
        except SystemExit as error:  # argparse's way to say no
            status = int(error.code or 0)
        out, err = capsys.readouterr()
        return int(status), out, err

    return run
