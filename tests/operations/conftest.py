"""The daemon of these tests is in memory: it is root's, and its turn is a file of the test's own."""

from __future__ import annotations

from pathlib import Path

import pytest

from mpstui.operations import lock, runner

from .fakes import ROOTS


@pytest.fixture(autouse=True)
def roots_daemon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "find_speaker", lambda pipe_dir: ROOTS)
    monkeypatch.setattr(lock, "places", lambda *_: [lock.TurnPlace(tmp_path / "turn.lock", 0, beside=True)])
