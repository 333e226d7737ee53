"""What root writes at a name that somebody gave: not where another user's link leads, and in no file of others'."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from mpstui.cli.exporter import _write
from mpstui.cli.report import ReportError, check_report
from mpstui.config import put_file
from mpstui.export.metrics import Metrics

from .conftest import Stranger
from .programs import ROOT, mpstui

WRITES: dict[str, Callable[[Path], Sequence[str | Path]]] = {
    "metrics": lambda path: ("exporter", "--textfile", path, "--once"),
    "a bundle": lambda path: ("doctor", "--bundle", path.with_name("bundle")),
}


@pytest.fixture
def precious(roots: Stranger) -> Path:
    (folder := roots.home / "rooms").mkdir()
    (file := folder / "m.prom").write_text("as it was")
    return file


@pytest.mark.parametrize("what", WRITES)
@pytest.mark.parametrize("way", ["d", "d/below", "up/../d"])
def test_nothing_is_written_by_the_way_of_a_strangers_link(
    stranger: Stranger, roots: Stranger, precious: Path, what: str, way: str
) -> None:
    """An admin who wrote to a name in a user's directory replaced a file of that name wherever the user wanted."""
    (precious.parent / "below").mkdir()
    (precious.parent / "below" / "m.prom").write_text("as it was")
    stranger.run("ln", "-s", precious.parent, stranger.home / "d")
    stranger.run("mkdir", stranger.home / "up")
    done = mpstui(*WRITES[what](stranger.home / way / "m.prom"))
    assert f"UID {stranger.uid} has made a link on the way there" in done.stderr, done
    for folder in (precious.parent, precious.parent / "below"):
        assert (folder / "m.prom").read_text() == "as it was"
        assert not (folder / "bundle").exists()


@pytest.mark.parametrize("what", WRITES)
def test_links_of_roots_own_are_followed(roots: Stranger, precious: Path, what: str) -> None:
    (roots.home / "d").symlink_to(precious.parent)
    done = mpstui(*WRITES[what](roots.home / "d" / "m.prom"))
    assert "link on the way" not in done.stderr
    changed = {"metrics": precious, "a bundle": precious.with_name("bundle")}[what]
    assert changed.exists()
    assert changed.read_bytes() != b"as it was"


def test_whoever_is_not_root_follows_roots_links_and_his_own_and_nobody_elses(
    stranger: Stranger, bystander: Stranger, crowd: Path
) -> None:
    """As where root has led /home to another disk."""
    source = """if True:
        import sys
        from pathlib import Path
        sys.path.insert(0, sys.argv[1])
        from mpstui.config import put_file
        put_file(Path(sys.argv[2]), "new")
        """
    (crowd / "home").symlink_to(stranger.home)
    stranger.run("ln", "-s", stranger.home, crowd / "own")
    bystander.run("ln", "-s", stranger.home, crowd / "other")
    for name in ("home", "own", "other"):
        done = stranger.run(stranger.interpreter, "-c", source, ROOT, crowd / name / name, check=False)
        if "ModuleNotFound" in done.stderr:
            pytest.skip("the checkout is not open to others")
        assert (stranger.home / name).exists() == (done.returncode == 0) == (name != "other"), done.stderr
    assert f"UID {bystander.uid} has made a link on the way there" in done.stderr


def test_no_page_either_which_is_told_before_the_first_run(stranger: Stranger, precious: Path) -> None:
    stranger.run("ln", "-s", precious.parent, stranger.home / "d")
    with pytest.raises(ReportError, match="has made a link on the way there"):
        check_report(stranger.home / "d" / "page.html")
    assert os.listdir(precious.parent) == ["m.prom"]


def test_a_way_that_is_led_elsewhere_meanwhile_is_the_one_that_was_looked_at(
    stranger: Stranger, precious: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stranger.run("mkdir", stranger.home / "d")
    replaces, swapped = os.replace, []

    def swaps(*names: str | Path) -> None:
        if not swapped:
            swapped.append(stranger.run("mv", stranger.home / "d", stranger.home / "old"))
            stranger.run("ln", "-s", precious.parent, stranger.home / "d")
        replaces(*names)

    monkeypatch.setattr(os, "replace", swaps)
    put_file(stranger.home / "d" / "m.prom", "new")
    assert precious.read_text() == "as it was"
    assert (stranger.home / "old" / "m.prom").read_text() == "new"


def test_a_file_of_metrics_is_not_as_open_as_the_strangers_that_was_there(stranger: Stranger, crowd: Path) -> None:
    """In a directory as /tmp is: root's file was everybody's to write to, and what Prometheus has of it."""
    place = crowd / "m.prom"
    for mode, kept in ((0o666, 0o644), (0o600, 0o644), (0o640, 0o640)):
        stranger.run("touch", place)
        stranger.run("chmod", f"{mode:o}", place)
        if mode == kept:
            os.chown(place, 0, 0)
        assert _write(os.fspath(place), Metrics()) == 0
        found = place.lstat()
        assert (found.st_uid, found.st_mode & 0o777) == (0, kept)
        place.unlink()
