"""A name that comes to mean another directory while somebody looks: no change goes there that was meant for the one
before, no answer of there is taken for that one's, and it is said."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from mpstui import api
from mpstui.control.answer import Outcome
from mpstui.core.model import ProcessKey
from mpstui.core.trust import Speaker
from mpstui.observe.discovery import Place
from mpstui.observe.problems import Probe
from mpstui.observe.reducer import NodeState
from mpstui.operations.limits import SetClientPriority
from mpstui.operations.types import ExitStatus, Request
from mpstui.sim.node import SimNode

LINK, ONE, OTHER = Path("/run/mps"), Path("/run/one"), Path("/run/other")
ROOTS = Speaker(0, "root's daemon")


def swing(link: Path, to: Path) -> None:
    made = link.with_name("new")
    made.symlink_to(to)
    made.rename(link)


@pytest.fixture
def two(tmp_path: Path) -> Iterator[tuple[SimNode, SimNode]]:
    nodes = SimNode.start(tmp_path / "a", gpus=1), SimNode.start(tmp_path / "b", gpus=1)
    (tmp_path / "link").symlink_to(tmp_path / "a")
    yield nodes
    for each in nodes:
        each.stop()


def place(real: Path, inode: int, daemon: int | None) -> Place:
    key = None if daemon is None else ProcessKey(daemon, 1)
    state = "stale" if daemon is None else "running"
    return Place(LINK, state, daemon=key, uid=0, speaker=ROOTS._replace(folder=(1, inode)), real=real)


def test_it_is_said_and_nobody_has_ended() -> None:
    node = NodeState(euid=0)
    node.set_places([place(ONE, 1, 7)], 1.0)
    node.take_probe(LINK, Probe(2.0, Outcome.OK))
    assert [each.code for each in node.snapshot(2.0).problems if each.code == "daemon_led_elsewhere"] == []
    assert node.set_places([place(OTHER, 2, 8)], 3.0) == [LINK]
    shown = node.snapshot(3.0)
    (found,) = [each for each in shown.problems if each.code == "daemon_led_elsewhere"]
    assert f"{LINK} leads to {OTHER} since" in found.text
    assert f"led to {ONE} before" in found.text
    assert "daemon_ended" not in {event.kind for event in shown.events}


def test_it_is_over_once_the_name_leads_again_where_it_led_at_first() -> None:
    """It was said for as long as mpstui ran."""
    node = NodeState(euid=0)
    said = []
    for now, (real, inode) in enumerate([(ONE, 1), (OTHER, 2), (LINK, 3), (OTHER, 2), (ONE, 1), (LINK, 3), (ONE, 4)]):
        node.set_places([place(real, inode, 7)._replace(real=None if real == LINK else real)], float(now))
        said.append([each.text for each in node.snapshot(float(now)).problems if each.code == "daemon_led_elsewhere"])
    assert [bool(texts) for texts in said] == [False, True, True, True, False, True, False]
    assert f"{LINK} leads to {OTHER} since" in said[3][0]
    assert f"led to {LINK} before" in said[3][0]


NOWHERE = Speaker(None, "its sockets cannot be looked at", steered=True)


@pytest.mark.parametrize("made", [False, True], ids=["led to nothing", "taken away"])
def test_a_name_that_leads_nowhere_between_is_told_of_all_the_same(made: bool) -> None:
    """Whoever let it lead nowhere for one look led it elsewhere without a word."""
    between = Place(LINK, "absent", speaker=NOWHERE, real=None if made else Path("/run/none"))
    node = NodeState(euid=0)
    node.set_places([place(ONE, 1, 7)], 1.0)
    node.set_places([between], 2.0)
    node.set_places([place(OTHER, 2, 8)], 3.0)
    (found,) = [each for each in node.snapshot(3.0).problems if each.code == "daemon_led_elsewhere"]
    assert f"{LINK} leads to {OTHER} since" in found.text
    node.set_places([place(ONE, 1, 7)], 4.0)
    assert "daemon_led_elsewhere" not in {each.code for each in node.snapshot(4.0).problems}, "it is back"


def test_nor_where_it_led_to_nothing_at_first() -> None:
    node = NodeState(euid=0)
    node.set_places([Place(LINK, "absent", speaker=NOWHERE, real=ONE)], 1.0)
    node.set_places([place(ONE, 1, 7)], 2.0)
    assert "daemon_led_elsewhere" not in {each.code for each in node.snapshot(2.0).problems}, "it was made there"
    node.set_places([place(OTHER, 2, 8)], 3.0)
    assert "daemon_led_elsewhere" in {each.code for each in node.snapshot(3.0).problems}


def test_a_name_that_was_none_before_is_led_nowhere_else() -> None:
    node = NodeState(euid=0)
    node.set_places([Place(LINK, "absent", speaker=NOWHERE)], 1.0)
    node.set_places([place(ONE, 1, 7)], 2.0)
    assert "daemon_led_elsewhere" not in {each.code for each in node.snapshot(2.0).problems}


@pytest.mark.parametrize("daemon", [7, None])
def test_of_another_directory_nothing_is_known_of_before(daemon: int | None) -> None:
    node = NodeState(euid=0)
    node.set_places([place(ONE, 1, daemon)], 1.0)
    node.take_probe(LINK, Probe(2.0, Outcome.OK))
    assert node.set_places([place(OTHER, 2, daemon)], 3.0) == [LINK]
    assert node.watch(LINK).probe is None


@pytest.mark.parametrize("real", [None, ONE])
def test_a_directory_that_is_made_anew_is_no_link_elsewhere(real: Path | None) -> None:
    """By the way of a link, too, as /var/run is one: it was said to lead to where it had led before."""
    node = NodeState(euid=0)
    node.set_places([place(ONE, 1, 7)._replace(real=real)], 1.0)
    node.set_places([place(ONE, 2, 8)._replace(real=real)], 3.0)
    assert "daemon_led_elsewhere" not in {each.code for each in node.snapshot(3.0).problems}


def test_a_change_goes_to_the_daemon_that_was_shown_or_nowhere(two: tuple[SimNode, SimNode], tmp_path: Path) -> None:
    link = tmp_path / "link"
    with api.open((link,)) as node:
        snapshot = node.snapshot()
        swing(link, tmp_path / "b")
        result = node.do(Request(SetClientPriority.id, link, "1"), snapshot=snapshot)
        assert result.status is ExitStatus.REFUSED_BY_SAFETY_RULE, result
        assert "the path leads to another directory than when mpstui looked at it" in result.message
    for each in two:
        assert "set_default_client_priority" not in (each.log_dir / "control.log").read_text()


def test_an_answer_of_another_directory_is_not_used(
    two: tuple[SimNode, SimNode], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Led elsewhere between the look at the place and the question."""
    monkeypatch.setattr("mpstui.observe.daemon.file_id", lambda path: (0, 0))
    with api.open((tmp_path / "link",)) as node:
        daemon = node.snapshot(complete=True).daemons[0]
    assert daemon.default_active_thread_percentage is None
    assert not daemon.servers


def test_a_node_of_the_other_kind_is_neither_asked_nor_shown(
    two: tuple[SimNode, SimNode], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What stands in for the control binary goes to no real daemon, and the real one to no simulated."""
    link = tmp_path / "link"
    with api.open((link,)) as node:
        assert node.snapshot().daemons[0].health == "ok"
        monkeypatch.setattr("mpstui.node.is_simulated", lambda pipe_dir: False)
        daemon = node.snapshot().daemons[0]
    assert (daemon.health, daemon.servers) == ("absent", ())
    assert daemon.health_detail == f"{link} is no simulated node any more"
    assert daemon.remedy == "start mpstui again to see what is there"
