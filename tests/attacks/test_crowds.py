"""However many directories and daemons a stranger makes, those of root are found (attack A)."""

from __future__ import annotations

from pathlib import Path

import pytest

from mpstui.core.model import ProcessKey
from mpstui.observe import discovery
from mpstui.observe.discovery import DaemonProcess, file_id

from .conftest import Stranger


def _made(stranger: Stranger, crowd: Path) -> list[Path]:
    folders = [crowd / f"mps_{number}" for number in range(200)]
    stranger.run("mkdir", *folders)
    stranger.run("touch", *(folder / "control" for folder in folders))
    return folders


def test_directories_of_a_stranger_do_not_crowd_out_those_of_root(
    stranger: Stranger, crowd: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(discovery, "running_daemons", list)  # other tests may have some
    _made(stranger, crowd)
    (crowd / "mps_900").mkdir()
    (crowd / "mps_900" / "control").touch()
    places = discovery.discover(env={}, well_known=(f"{crowd}/mps_*",))
    assert crowd / "mps_900" in {place.pipe_dir for place in places}


@pytest.mark.slow
def test_daemons_of_a_stranger_do_not_crowd_out_those_of_root(
    stranger: Stranger, crowd: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = _made(stranger, crowd)
    (crowd / "of-root").mkdir()
    (crowd / "of-root" / "control").touch()
    running = [
        DaemonProcess(ProcessKey(pid, 1), uid, 1.0, False, "legacy", path, None, file_id(path))
        for pid, (path, uid) in enumerate([*((p, stranger.uid) for p in folders), (crowd / "of-root", 0)], 2)
    ]
    monkeypatch.setattr(discovery, "running_daemons", lambda: running)
    places = discovery.discover(env={}, well_known=())
    assert crowd / "of-root" in {place.pipe_dir for place in places}
