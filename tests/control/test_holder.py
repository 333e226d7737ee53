"""The process that keeps a session is found by its name, its arguments and its pipe directory."""

from __future__ import annotations

import getpass
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from mpstui.control.holder import find_holder
from mpstui.control.mps import describe_holder
from mpstui.model import SessionHolder
from mpstui.observe.procfs import process_key

Start = Callable[..., subprocess.Popen[bytes]]


class AllBut(frozenset[int]):
    """Every process except these; also what other tests start at this moment."""

    def __contains__(self, pid: object) -> bool:
        return not super().__contains__(pid)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts a shell that sleeps, under any argv and with any pipe directory."""
    started: list[subprocess.Popen[bytes]] = []

    def run(argv: list[str], pipe_dir: Path | None, executable: str | None = None) -> subprocess.Popen[bytes]:
        environment = {"PATH": os.environ["PATH"]}
        if pipe_dir is not None:
            environment["CUDA_MPS_PIPE_DIRECTORY"] = str(pipe_dir)
        process = subprocess.Popen(argv, executable=executable, env=environment, stdin=subprocess.PIPE)
        started.append(process)
        end = time.monotonic() + 30
        while psutil.Process(process.pid).cmdline()[: len(argv)] != argv:
            assert time.monotonic() < end, psutil.Process(process.pid).cmdline()
        return process

    yield run
    for process in started:
        process.kill()
        process.communicate()


def session(start: Start, pipe_dir: Path | None) -> subprocess.Popen[bytes]:
    return start(["nvidia-cuda-mps-control"], pipe_dir, shutil.which("cat"))


def test_the_holder_of_this_directory_is_named(tmp_path: Path, start: Start) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "alias").symlink_to(tmp_path / "a")
    session(start, tmp_path / "b")
    mine = session(start, tmp_path / "alias")
    assert find_holder(tmp_path / "a") == SessionHolder(
        mine.pid, getpass.getuser(), psutil.Process(mine.pid).terminal(), True, process_key(mine.pid).start_ticks
    )


def test_daemons_are_no_holders(tmp_path: Path, start: Start) -> None:
    for option in ("-d", "-f"):
        start(["nvidia-cuda-mps-control", option], tmp_path, shutil.which("sort"))
    assert find_holder(tmp_path) is None


def test_a_process_without_the_variable_talks_to_the_default_directory(tmp_path: Path, start: Start) -> None:
    mine = session(start, None)
    assert find_holder(tmp_path) is None
    found = find_holder(Path("/tmp/nvidia-mps"), exclude=AllBut({mine.pid}))
    assert found is not None
    assert found.pid == mine.pid


def test_excluded_processes_are_passed_over(tmp_path: Path, start: Start) -> None:
    first, second = session(start, tmp_path), session(start, tmp_path)
    found = find_holder(tmp_path, exclude={first.pid})
    assert found is not None
    assert found.pid == second.pid


def test_a_dead_process_that_nobody_reaped_is_no_holder(tmp_path: Path, start: Start) -> None:
    process = session(start, tmp_path)
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert find_holder(tmp_path) is None


@pytest.mark.parametrize(
    ("holder", "text"),
    [
        (SessionHolder(543, "root", "/dev/pts/0"), "is kept open by PID 543, user root on /dev/pts/0."),
        (SessionHolder(543, None, None, certain=False), "is most likely kept open by PID 543, user unknown."),
    ],
)
def test_the_sentence_that_names_it(holder: SessionHolder, text: str) -> None:
    assert describe_holder(holder).endswith(text)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to run as another user")
def test_a_hidden_environment_makes_it_only_likely(tmp_path: Path, start: Start) -> None:
    """Asked by another user, who may not read root's environment."""
    mine = session(start, tmp_path)
    read, write = os.pipe()
    if (child := os.fork()) == 0:
        try:
            os.setgid(2001)
            os.setuid(2001)
            found = find_holder(tmp_path, exclude=AllBut({mine.pid}))
            os.write(write, f"{found.pid} {found.certain}".encode() if found else b"none")
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert os.read(read, 100) == f"{mine.pid} False".encode()
    os.close(read)
    os.close(write)
