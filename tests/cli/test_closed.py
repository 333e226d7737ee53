"""A pipe directory that is closed to who asks: whether a daemon runs there is not known, and not said."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from mpstui.cli import main
from mpstui.observe import discovery


@pytest.fixture(params=["above", "itself"])
def closed(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """One that is below a directory of another user's with mode 0700, or is one; to root too."""
    place = tmp_path / "node"
    place.mkdir()
    stat, access = os.stat, os.access

    def closed_stat(path, *args, **options):
        if path == place and request.param == "above":
            raise PermissionError(13, "Permission denied", str(path))
        return stat(path, *args, **options)

    monkeypatch.setattr(os, "stat", closed_stat)
    monkeypatch.setattr(os, "access", lambda path, *rest, **o: path != place and access(path, *rest, **o))
    monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", str(place))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return place


@pytest.mark.parametrize(
    "words",
    [
        "status",
        "status --health",
        "status --group-by user",
        "set active-thread-percentage 50 --default",
        "terminate 4242 --yes",
        "terminate --job 4242 --yes",
        "start-server root",
        "unblock",
        "daemon stop",
        "daemon clean",
        "profile save night",
        "activity --seconds 0.1",
    ],
)
def test_no_command_says_that_no_daemon_is_there(words, closed, capsys):
    """It was 3 and “absent”, or “no daemon”, and 5 of --health alone."""
    status = main(words.split())
    out, err = capsys.readouterr()
    assert status == 5, err
    assert "closed to you" in err
    for text in ("absent", "no daemon", "No daemon", "no control daemon"):
        assert text not in out + err


def test_what_is_not_known_is_null(closed, capsys):
    assert main(["status", "--json"]) == 5
    told = json.loads(capsys.readouterr().out)
    (daemon,) = told["daemons"]
    assert (daemon["health"], daemon["cause"]) == (None, "closed")
    assert "closed to you" in daemon["health_detail"]
    assert "absent" not in json.dumps(told)


@pytest.mark.parametrize("closed", ["itself"], indirect=True)
@pytest.mark.parametrize("words", ["status", "status --health"])
def test_one_of_roots_that_nobody_named_too(words, closed, capsys, monkeypatch):
    monkeypatch.delenv("CUDA_MPS_PIPE_DIRECTORY")
    monkeypatch.setattr(discovery, "_discovered", lambda *_: [closed])
    monkeypatch.setattr(discovery, "_owner", lambda _: 0)
    assert main(words.split()) == 5
    assert "closed to you" in capsys.readouterr().err
