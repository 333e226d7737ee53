"""The directory of a `--demo` goes with its owner, or with the next start after the owner was killed."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from terminal import DEADLINE, until
from warm import Popen

from mpstui.sim.demo import demo_directory, remove_left
from mpstui.sim.node import SimError, SimNode
from mpstui.sim.simd.config import MARKER, STATE, default_gpus, write_marker

OWNER = """
import sys
from mpstui.sim.node import SimNode
from mpstui.sim.demo import demo_directory
with demo_directory() as folder:
    node = SimNode.start(folder, gpus=1)
    print(folder, node.daemon_pid, flush=True)
    sys.stdin.read()
    node.stop()
"""
MANY = """
import os, sys
from mpstui.sim.demo import demo_directory
for _ in range(40):
    with demo_directory() as folder:
        (folder / "mpstui-simulated").write_text("{}")
        held = os.stat(folder).st_ino
        os.sched_yield()
        assert os.stat(folder).st_ino == held, folder
        assert os.listdir(folder) == ["mpstui-simulated"], folder
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """What these tests have for /tmp."""
    folder = Path(tempfile.mkdtemp(prefix="mps"))
    monkeypatch.setenv("TMPDIR", os.fspath(folder))
    yield folder
    subprocess.run(["rm", "-rf", folder], check=True)


def left(place: Path, name: str = "mpstui-demo-abcdefgh") -> Path:
    """As a killed demo leaves it."""
    folder = place / name
    folder.mkdir(mode=0o700)
    write_marker(folder, default_gpus(1))
    (folder / "logs").mkdir()
    (folder / "logs" / "control.log").write_text("x")
    return folder


def start_owner() -> tuple[subprocess.Popen[str], Path, int]:
    owner = subprocess.Popen([sys.executable, "-c", OWNER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    folder, daemon = owner.stdout.readline().split()
    return owner, Path(folder), int(daemon)


def end(owner: subprocess.Popen[str]) -> None:
    owner.communicate(timeout=60)


def test_it_is_its_owner_s_alone_and_goes_with_him(place: Path) -> None:
    with demo_directory() as folder:
        assert folder.parent == place
        assert folder.stat().st_mode & 0o777 == 0o700
    assert list(place.iterdir()) == []


def test_a_killed_owner_s_directory_goes_with_the_next_start(place: Path) -> None:
    owner, folder, daemon = start_owner()
    ended = os.pidfd_open(daemon)
    owner.send_signal(signal.SIGKILL)
    end(owner)
    assert (folder / MARKER).exists()
    import select

    assert select.select([ended], [], [], 60)[0], "its daemon ends with it"
    os.close(ended)

    with demo_directory() as mine:
        assert list(place.iterdir()) == [mine]


@pytest.mark.slow
def test_a_living_owner_s_stays(place: Path) -> None:
    owner, folder, _ = start_owner()
    with demo_directory():
        assert (folder / MARKER).exists()
    end(owner)
    assert list(place.iterdir()) == []


def test_a_living_daemon_s_stays_without_a_lock(place: Path) -> None:
    """A program of before there was a lock."""
    folder = left(place)
    with SimNode.start(folder, gpus=1):
        remove_left()
        assert (folder / MARKER).exists()


@pytest.mark.parametrize(
    "name",
    ["mpstui-demo-notes", "mpstui-demo-", "mpstui-demo-abcdefghi", "mpstui-demo-ABCDEFGH", "xmpstui-demo-abcdefgh"],
)
def test_a_name_that_no_demo_has_is_left_alone(place: Path, name: str) -> None:
    folder = left(place, name)
    remove_left()
    assert (folder / MARKER).exists()


def test_what_is_not_a_demo_s_is_left_alone(place: Path) -> None:
    mine = place / "mpstui-demo-mine0000"
    mine.mkdir(mode=0o700)
    (mine / "thesis.tex").write_text("x")
    shared = left(place, "mpstui-demo-shared00")
    shared.chmod(0o755)
    target = left(place, "elsewhere")
    (place / "mpstui-demo-link0000").symlink_to(target)
    (place / "mpstui-demo-file0000").write_text("x")
    os.mkfifo(place / "mpstui-demo-fifo0000")
    before = sorted(place.rglob("*"))

    remove_left()

    assert sorted(place.rglob("*")) == before


def test_a_link_in_it_is_removed_and_not_what_it_leads_to(place: Path, tmp_path: Path) -> None:
    (tmp_path / "kept").write_text("x")
    folder = left(place)
    (folder / "logs" / "link").symlink_to(tmp_path)
    remove_left()
    assert not folder.exists()
    assert (tmp_path / "kept").exists()


def test_nothing_is_removed_where_somebody_could_exchange_it(place: Path) -> None:
    folder = left(place)
    place.chmod(0o777)
    remove_left()
    assert (folder / MARKER).exists()


@pytest.mark.slow
def test_many_starts_at_once_take_nobody_s_directory(place: Path) -> None:
    for number in range(20):
        left(place, f"mpstui-demo-left{number:04}")
    starts = [subprocess.Popen([sys.executable, "-c", MANY], stderr=subprocess.PIPE, text=True) for _ in range(4)]
    said = [start.communicate(timeout=150)[1] for start in starts]
    assert [start.returncode for start in starts] == [0] * 4, said
    assert list(place.iterdir()) == []


@pytest.mark.parametrize("names", [("logs",), ("logs", f".{MARKER}.4711"), ()])
def test_one_whose_owner_was_killed_before_its_marker_was_there_goes_too(place: Path, names: tuple[str, ...]) -> None:
    """It stayed for good: only what had a marker, or nothing at all, was taken for a demo's."""
    folder = place / "mpstui-demo-abcdefgh"
    folder.mkdir(mode=0o700)
    for name in names:
        (folder / name).mkdir() if name == "logs" else (folder / name).write_text("{")
    remove_left()
    assert not folder.exists()


@pytest.mark.parametrize("name", ["logs/notes", "logs/notes/", f".{MARKER}.x", f".{MARKER}.7/", "other/"])
def test_a_person_s_that_looks_like_the_beginning_of_a_demo_s_stays(place: Path, name: str) -> None:
    folder = place / "mpstui-demo-abcdefgh"
    folder.mkdir(mode=0o700)
    (folder / "logs").mkdir()
    (folder / name).mkdir() if name.endswith("/") else (folder / name).write_text("x")
    remove_left()
    assert (folder / name).exists()


def test_no_demo_where_none_can_be_is_said_in_words(
    place: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    from mpstui import cli

    monkeypatch.setattr("mpstui.sim.demo.temporary_place", lambda: os.fspath(place))  # root's would be another one
    place.chmod(0o777)  # not sticky: anybody could exchange the demo's directory

    with pytest.raises(SystemExit) as ended:
        cli.main(["status", "--demo"])

    assert ended.value.code == 2
    assert "there can be no demo here" in capfd.readouterr().err


def processes_of(place: Path) -> list[int]:
    """Those that have a directory in it in their arguments."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            if os.fsencode(place) + b"/" in Path("/proc", name, "cmdline").read_bytes():
                found.append(int(name))
    return found


MOMENTS: dict[str, Callable[[Path], object]] = {
    "its directory is there": lambda place: list(place.iterdir()),
    "its marker is there": lambda place: list(place.glob(f"*/{MARKER}")),
    "its process runs": processes_of,
    "its daemon writes": lambda place: list(place.glob("*/logs/control.log")),
    "its state is there": lambda place: list(place.glob(f"*/{STATE}")),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL], ids=lambda number: number.name
)
@pytest.mark.parametrize("moment", MOMENTS)
def test_a_demo_that_is_interrupted_while_it_starts_leaves_nothing(
    place: Path, moment: str, number: signal.Signals
) -> None:
    """Of 26 moments eight left a directory or a process."""
    if number is signal.SIGKILL and moment in {"its directory is there", "its marker is there"}:
        pytest.skip("nobody is there yet who could remove it: the next start does")
    with Popen(["status", "--demo"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as owner:
        while not MOMENTS[moment](place) and owner.poll() is None:
            pass
        owner.send_signal(number)
        owner.wait(DEADLINE)
    until(lambda: not processes_of(place), DEADLINE, "no process is left")
    until(lambda: not list(place.iterdir()), DEADLINE, "no directory is left")


def test_what_a_demo_s_node_said_at_its_end_is_told_though_its_directory_has_gone_with_it(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log that has it is in that directory."""
    fails = "import shutil, sys; print('no room for it', file=sys.stderr); shutil.rmtree(sys.argv[2]); sys.exit(7)"
    monkeypatch.setattr("mpstui.sim.node._SERVE", fails)
    told = "did not become ready: it ended with exit status 7; .* ends with “no room for it”"
    with pytest.raises(SimError, match=told):
        SimNode.start(place / "node", scenario="demo", launched=lambda: None)
