"""A daemon that runs, as its lock and its process show, and that the control program does not find, is not gone: it is
said once, everywhere the same, with what can be done, and that can be done."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from mpstui.control.answer import Outcome
from mpstui.core.condition import NOT_FOUND
from mpstui.core.model import ProcessKey
from mpstui.core.trust import Speaker
from mpstui.observe.discovery import Place, discover
from mpstui.observe.problems import Probe
from mpstui.observe.reducer import NodeState
from mpstui.sim.node import SimNode
from tests.cli.conftest import Mpstui, mpstui  # noqa: F401 - a fixture


@pytest.fixture
def node(tmp_path: Path) -> Iterator[SimNode]:
    """Of protocol 3, with the socket alone that is documented, which its control program does not go by."""
    started = SimNode.start(tmp_path / "p", gpus=1, options=["-p", "3"])
    (started.pipe_dir / "control_privileged").unlink()
    yield started
    started.stop()


@pytest.mark.skipif(os.geteuid() != 0, reason="another user's control program goes by the other socket too (fact 59)")
def test_it_is_said_once_what_it_is_and_force_ends_it(node: SimNode, mpstui: Mpstui) -> None:  # noqa: F811
    where = ("--pipe-dir", node.pipe_dir)
    run = mpstui("status", *where)
    assert run.status == 4
    assert NOT_FOUND in run.out
    assert f"mpstui daemon stop --force --pipe-dir {node.pipe_dir}" in run.out
    assert "stale" not in run.out + run.err
    run = mpstui("server", "create", "x", *where)
    assert (run.status, NOT_FOUND in run.err) == (4, True), run
    run = mpstui("daemon", "stop", "--yes", *where)
    assert (run.status, "--force ends its process" in run.err) == (4, True), run
    assert "no daemon" not in run.err
    run = mpstui("daemon", "stop", "--force", "--yes", *where)
    assert (run.status, "ended by SIGTERM" in run.out) == (0, True), run
    assert discover((node.pipe_dir,))[0].state == "absent"


@pytest.mark.parametrize(
    ("seen", "whose", "remedy"),
    [
        ({"daemon": ProcessKey(7, 1), "protocol": "legacy", "uid": 0}, 0, "mpstui daemon stop --force"),
        ({"daemon": ProcessKey(7, 1), "uid": 0, "remedy": "run mpstui as root"}, 0, "run mpstui as root"),
        ({"remedy": "run mpstui as root"}, 0, "run mpstui as root"),
        ({"daemon": ProcessKey(7, 1), "protocol": "legacy", "uid": 4242}, 4242, "leave it to its owner"),
    ],
    ids=["a daemon", "one not called so", "hidden", "a stranger's"],
)
def test_one_that_is_hidden_is_not_stale(seen: dict[str, object], whose: int, remedy: str) -> None:
    path = Path("/run/p")
    place = Place(path, "running", **seen)  # type: ignore[arg-type]
    place = place._replace(speaker=Speaker(whose, "whose"), detail="a daemon runs that is hidden")
    node = NodeState(euid=0)
    node.set_places([place], 1.0)
    node.take_probe(path, Probe(2.0, Outcome.ABSENT, "No control daemon answers there."))
    (daemon,) = node.snapshot(3.0).daemons
    assert (daemon.health, daemon.runs, daemon.state_word) == ("unknown", True, "cannot be asked")
    assert (daemon.health_detail or "").startswith(NOT_FOUND)
    assert "a daemon runs that is hidden" in (daemon.health_detail or "")
    assert remedy in (daemon.remedy or "")
    assert node.not_found()
