"""The daemon of these tests is in memory: it is that of whoever runs them, and its turn is a file of the test's own."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mpstui.operations import clients, lock, runner

from .fakes import OWN


@pytest.fixture(autouse=True)
def logs_that_tell_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a daemon in memory there are none: nobody waits for them."""
    monkeypatch.setattr(clients, "_LOOK", 0.0)


@pytest.fixture(autouse=True)
def own_daemon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "find_speaker", lambda pipe_dir: OWN)
    monkeypatch.setattr(lock, "places", lambda *_: [lock.TurnPlace(tmp_path / "turn.lock", os.geteuid(), beside=True)])
