"""``mpstui exporter`` on simulated nodes: what is scraped, what is written, and what each mistake says."""

from __future__ import annotations

import os
import re
import resource
import select
import signal
import socket
import stat
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import warm
from folders import simulated_node
from prometheus_client.parser import text_string_to_metric_families as parsed

from mpstui.extras import how_to_install
from mpstui.sim.node import SimNode

PATIENCE = 120.0
Exporter = Callable[..., "Started"]


class Started:
    def __init__(self, *arguments: object) -> None:
        words, pipe = ("--refresh", "0.2", "exporter", *arguments), subprocess.PIPE
        self.child = warm.Popen(words, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True)
        self.url = ""

    def ready(self) -> Started:
        assert self.child.stderr is not None
        found = re.search(r"metrics at (\S+)", line := self.child.stderr.readline())
        assert found, line + self.child.stderr.read()
        self.url = found[1]
        return self

    def scrape(self) -> dict[str, float]:
        """By name and by the label ``state``; samples that differ in other labels are added up."""
        with urllib.request.urlopen(self.url, timeout=PATIENCE) as answer:
            return added_up(answer.read().decode())

    def until(self, condition: Callable[[dict[str, float]], object]) -> dict[str, float]:
        deadline = time.monotonic() + PATIENCE
        while not condition(found := self.scrape()):
            assert time.monotonic() < deadline, found
            select.select([], [], [], 0.05)  # to ask again at once takes a processor from what is waited for
        return found


def added_up(text: str) -> dict[str, float]:
    found: dict[str, float] = {}
    for family in parsed(text):
        for sample in family.samples:
            name = f"{sample.name}:{sample.labels['state']}" if "state" in sample.labels else sample.name
            found[name] = found.get(name, 0) + sample.value
    return found


@pytest.fixture
def exporter() -> Iterator[Exporter]:
    started: list[Started] = []

    def run(*arguments: object) -> Started:
        started.append(Started(*arguments))
        return started[-1]

    yield run
    for each in started:
        each.child.terminate()
        with suppress(subprocess.TimeoutExpired):
            each.child.wait(PATIENCE)
        each.child.kill()
        each.child.communicate()


@pytest.fixture
def node() -> Iterator[SimNode]:
    with simulated_node() as running:
        yield running


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    return warm.run("exporter", *arguments, timeout=PATIENCE)


def run_alone(*arguments: object, **how: object) -> subprocess.CompletedProcess[str]:
    """In a process that is started for itself, and so with this one's mask and limits."""
    command = [sys.executable, "-m", "mpstui", "exporter", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, **how)  # type: ignore[call-overload,no-any-return]


@pytest.mark.slow
def test_a_node_is_scraped_and_left_alone(node: SimNode, exporter: Exporter) -> None:
    """Once all is known a daemon is asked nothing, however often it is scraped."""
    node.spawn()
    started = exporter("--listen", "127.0.0.1:0", "--pipe-dir", node.pipe_dir).ready()
    started.until(lambda found: found.get("mps_clients:ACTIVE") == 1)
    log = node.log_dir / "control.log"
    deadline = time.monotonic() + PATIENCE
    while True:
        assert time.monotonic() < deadline
        before = started.until(lambda found: "mps_last_reading_timestamp_seconds" in found)
        size = log.stat().st_size
        later = before["mps_last_reading_timestamp_seconds"] + 3
        after = started.until(lambda found, later=later: found["mps_last_reading_timestamp_seconds"] > later)
        if after["mps_control_sessions_total"] == before["mps_control_sessions_total"] and log.stat().st_size == size:
            break
    assert after["mps_daemon_state:ok"] == 1
    assert 0 < after["mps_daemon_last_answer_timestamp_seconds"] < later, (
        "it is asked nothing, and its state is from that time"
    )
    assert after["mps_nvml_up"] == 1
    started.child.send_signal(signal.SIGTERM)
    assert started.child.wait(PATIENCE) == 0


@pytest.mark.usefixtures("usual_deadline")
def test_a_daemon_that_hangs_keeps_no_scrape_waiting(node: SimNode, exporter: Exporter) -> None:
    started = exporter("--listen", "127.0.0.1:0", "--pipe-dir", node.pipe_dir).ready()
    started.until(lambda found: found.get("mps_daemon_state:ok") == 1)
    pid = node.daemon_pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    try:
        with open(node.log_dir / "control.log", "a") as log:  # something that makes the exporter ask
            log.write("[2026-11-21 21:29:12.195 Control     1] User did not send valid credentials\n")
        slow = max(_seconds(started.scrape) for _ in range(20))
        assert slow < PATIENCE / 4  # a scrape that waited for the daemon would wait for its deadline
    finally:
        os.kill(pid, signal.SIGCONT)


def _seconds(work: Callable[[], object]) -> float:
    begun = time.monotonic()
    work()
    return time.monotonic() - begun


def test_a_fault_is_a_counter_and_a_state(exporter: Exporter) -> None:
    started = exporter("--demo=fault", "--listen", "127.0.0.1:0").ready()
    found = started.until(lambda found: found.get("mps_servers:FAULT") == 1)
    assert found["mps_clients:LOST"] > 0
    assert found["mps_problems"] >= 1


def test_a_port_that_is_taken_says_so(node: SimNode) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        ended = run("--pipe-dir", node.pipe_dir, "--listen", f"127.0.0.1:{taken.getsockname()[1]}")
    assert ended.returncode == 1
    assert ended.stderr.endswith(
        ": Address already in use; a program has that port: give another with --listen HOST:PORT\n"
    )
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (("--listen", "nowhere"), 2, "HOST:PORT"),
        (("--once",), 2, "--textfile"),
        (("--textfile", "-"), 2, "--once"),
        (("--textfile", "x", "--listen", ":1"), 2, "leave out --listen"),
        (("--max-groups", "0"), 2, "1 to 100000"),
        (("--every", "0"), 2, "1 to 3600"),
        (("--web-config", "/nonexistent/web.yml"), 2, "No such file"),
        (("--textfile", "/nonexistent/x.prom", "--once", "--demo"), 1, "cannot be written"),
        (("--textfile", "/nonexistent/x.txt", "--once", "--demo"), 1, "reads *.prom alone: it will not read x.txt\n"),
    ],
)
def test_a_mistake_is_a_sentence(arguments: tuple[str, ...], status: int, said: str) -> None:
    ended = run(*arguments)
    assert (ended.returncode, said in ended.stderr, "Traceback" in ended.stderr) == (status, True, False), ended.stderr


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become somebody else")
def test_who_may_not_write_is_told_so() -> None:
    command = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", sys.executable, "-m", "mpstui"]
    nowhere = {**os.environ, "HOME": "/nonexistent", "CUDA_MPS_PIPE_DIRECTORY": "/nonexistent"}
    arguments = ["exporter", "--once", "--textfile", "/mps.prom"]
    ended = subprocess.run([*command, *arguments], capture_output=True, text=True, timeout=PATIENCE, env=nowhere)
    if ended.returncode in {126, 127}:
        pytest.skip(f"another user may not run this Python: {ended.stderr.strip()}")
    assert ended.returncode == 5, ended.stderr
    assert "Permission denied" in ended.stderr


@pytest.mark.slow
def test_a_file_is_written_as_a_whole(tmp_path: Path, node: SimNode) -> None:
    file = tmp_path / "mps.prom"
    before = os.umask(0o077)  # as root may have it: node_exporter reads the file as another user
    try:
        ended = run_alone("--pipe-dir", node.pipe_dir, "--textfile", file, "--once")
    finally:
        os.umask(before)
    assert (ended.returncode, "*.prom" in ended.stderr) == (0, False)
    found = added_up(file.read_text())
    assert found["mps_daemon_up"] == 1
    assert "mps_control_sessions_total" not in found
    assert os.listdir(tmp_path) == ["mps.prom"]
    assert file.stat().st_mode & 0o777 == 0o644
    file.chmod(0o640)  # by an admin, whose commands are not for everybody
    assert run("--pipe-dir", node.pipe_dir, "--textfile", file, "--once").returncode == 0
    assert file.stat().st_mode & 0o777 == 0o640
    printed = run("--pipe-dir", node.pipe_dir, "--textfile", "-", "--once")
    assert added_up(printed.stdout)["mps_daemon_up"] == 1


def test_what_is_no_file_is_never_replaced(tmp_path: Path, node: SimNode) -> None:
    (tmp_path / "there").write_text("old")
    os.mkfifo(tmp_path / "pipe.prom")
    os.mknod(tmp_path / "socket.prom", 0o600 | stat.S_IFSOCK)
    (tmp_path / "link.prom").symlink_to(tmp_path / "there")
    (tmp_path / "dangling.prom").symlink_to(tmp_path / "nowhere")
    with suppress(PermissionError):  # not even root can make one everywhere
        os.mknod(tmp_path / "device.prom", 0o666 | stat.S_IFCHR, os.makedev(1, 3))
    names = sorted(os.listdir(tmp_path))
    for file in sorted(tmp_path.glob("*.prom")):
        before = file.lstat()
        ended = run("--pipe-dir", node.pipe_dir, "--textfile", file, "--once")
        assert (ended.returncode, "is not replaced" in ended.stderr) == (6, True), f"{file.name}: {ended.stderr}"
        assert (file.lstat().st_ino, file.lstat().st_mode) == (before.st_ino, before.st_mode), file.name
        assert sorted(os.listdir(tmp_path)) == names, file.name
    assert (tmp_path / "there").read_text() == "old"


def full() -> None:
    """No file may have more than 100 bytes, as on a disk that is full."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))


@pytest.mark.slow
def test_a_full_disk_leaves_the_file_as_it_was(tmp_path: Path, node: SimNode) -> None:
    file = tmp_path / "mps.prom"
    file.write_text("old")
    ended = run_alone("--pipe-dir", node.pipe_dir, "--textfile", file, "--once", preexec_fn=full)
    assert ended.returncode == 1
    assert "as it was before" in ended.stderr
    assert (file.read_text(), os.listdir(tmp_path)) == ("old", ["mps.prom"])


def test_a_file_is_written_again_and_again_and_a_full_disk_is_told_once(
    tmp_path: Path, node: SimNode, exporter: Exporter
) -> None:
    folder = tmp_path / "metrics"
    started = exporter("--pipe-dir", node.pipe_dir, "--textfile", folder / "mps.prom", "--every", "1")
    assert started.child.stderr is not None
    assert "cannot be written" in started.child.stderr.readline()
    folder.mkdir()
    assert "written again" in started.child.stderr.readline()
    first = (folder / "mps.prom").stat().st_ino
    deadline = time.monotonic() + PATIENCE
    while (folder / "mps.prom").stat().st_ino == first:
        assert time.monotonic() < deadline


@pytest.mark.slow
def test_without_its_packages_it_names_them(tmp_path: Path) -> None:
    program = (
        "import sys; sys.modules['prometheus_client'] = None; from mpstui.cli import main; sys.exit(main(['exporter']))"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE)
    assert ended.returncode == 2
    assert f"prometheus_client: {how_to_install('exporter')}" in ended.stderr
