"""A stranger's daemon keeps no GPU of root's in the compute mode that root's daemon was started with."""

from __future__ import annotations

from pathlib import Path

import pytest

from mpstui.cli.daemon import _stays_exclusive
from mpstui.core.model import EXCLUSIVE_PROCESS, Daemon, Device, ProcessKey, Snapshot
from mpstui.core.trust import Speaker
from mpstui.daemons import modes
from mpstui.daemons.modes import to_give_back
from mpstui.observe import discovery

from .conftest import Stranger
from .programs import posing

WAITS = "import sys; print('ready', flush=True); sys.stdin.read()"
ROOTS = Speaker(0, "root's daemon")


@pytest.fixture(autouse=True)
def _kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(modes, "modes_before", lambda: {"GPU-a": "DEFAULT"})


def _snapshot(*daemons: Daemon) -> Snapshot:
    return Snapshot(0.0, source="real", daemons=daemons, devices=(Device("GPU-a", 0, compute_mode=EXCLUSIVE_PROCESS),))


def _roots(pid: int = 7) -> Daemon:
    return Daemon(Path(f"/run/mps{pid}"), key=ProcessKey(pid, 7), uid=0, speaker=ROOTS)


def test_a_strangers_fake_keeps_no_compute_mode(stranger: Stranger, monkeypatch: pytest.MonkeyPatch) -> None:
    """He calls a process so, or has root's setuid program hold the lock in a directory of his: root's was not given
    back, and nothing was said."""
    fake = posing(stranger, WAITS, stranger.home / "fake", stranger.home / "p")
    every = discovery.running_daemons  # others of the machine may be root's
    monkeypatch.setattr(modes, "running_daemons", lambda: [each for each in every() if each.key.pid == fake.pid])
    assert [each.uid for each in modes.running_daemons()] == [stranger.uid]
    his = Daemon(stranger.home / "q", key=ProcessKey(9, 9), uid=0, speaker=Speaker(stranger.uid, "a stranger's"))
    mine = _roots()
    assert to_give_back(mine, _snapshot(mine, his)) == {"GPU-a": "DEFAULT"}
    assert _stays_exclusive(mine, _snapshot(mine, his)) == []


def test_another_daemon_of_roots_keeps_it_and_that_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(modes, "running_daemons", list)
    mine, other = _roots(), _roots(8)
    snapshot = _snapshot(mine, other)
    assert to_give_back(mine, snapshot) == {}
    stays = "GPU-a: compute mode stays EXCLUSIVE_PROCESS, as another daemon has it: process 8"
    assert _stays_exclusive(mine, snapshot) == [stays]
