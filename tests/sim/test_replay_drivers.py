"""The recordings of drivers 470 to 555, replayed against its stand-in: arguments, answers, files, log."""

from __future__ import annotations

import os
import re
import signal
import stat
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from folders import daemons_below

from mpstui.control.drivers import DRIVERS
from mpstui.sim.marker import control_binary
from mpstui.sim.simd.config import SERVER_START, default_gpus, write_marker

from .recorded import DATA, eventually

RECORDINGS = DATA / "drivers"
RECORDED = [driver.version for driver in DRIVERS if (RECORDINGS / f"daemon-{driver.version}.txt").exists()]
SEVERAL = b"get_default_active_thread_percentage\nget_server_list\nps\nfoo\n"
"""What was sent in the recordings' “several lines in one session”."""


@dataclass
class Entry:
    """A recorded call: what was sent on standard input, or the arguments where it begins with a dash."""

    line: str
    section: str
    status: int = 0
    stranger: bool = False
    out: list[str] = field(default_factory=list)
    err: list[str] = field(default_factory=list)
    files: dict[str, dict[str, str]] = field(default_factory=dict)
    """The modes of the files that were listed behind it, by their directory's name."""


def entries(driver: str) -> Iterator[Entry]:
    """What was called, in order, up to the logs."""
    found: list[Entry] = []
    section, folder = "", "pipe"
    text = (RECORDINGS / f"daemon-{driver}.txt").read_text().partition("=== control.log")[0]
    for line in text.splitlines():
        if match := re.fullmatch(r">>> (.*?) *(?:\[rc (\d+)(, \d+ ms)?\])?", line):
            called = match[1].removeprefix("nvidia-cuda-mps-control ").partition(" again")[0].partition(" with a ")[0]
            stranger = section.startswith("as uid") and match[3] is None
            found.append(Entry(called, section, int(match[2] or 0), stranger))
        elif match := re.fullmatch(r"--- (.*)", line):
            section = match[1]
            if section.startswith("several"):
                found.append(Entry("get_server_list", section))  # in the log alone
                found.append(Entry(SEVERAL.decode(), section))
        elif match := re.fullmatch(r"/tmp/mps/(\w+):", line):
            folder = match[1]
        elif not found:
            continue
        elif match := re.fullmatch(r"\[rc (\d+)\]", line):
            found[-1].status = int(match[1])
        elif line.startswith(("out| ", "err| ")):
            (found[-1].out if line.startswith("out") else found[-1].err).append(line[5:].rstrip())
        elif match := re.fullmatch(r"([-sp][rwx-]{9}) .* (\S+)", line):
            found[-1].files.setdefault(folder, {})[match[2]] = match[1]
        elif found[-1].line == SEVERAL.decode():
            found[-1].out.append(line)
    return iter(found)


class Place:
    """Directories of the stand-in of a driver, and its environment."""

    def __init__(self, folder: Path, driver: str) -> None:
        self.pipe, self.log = folder / "pipe", folder / "log"
        self.driver, self.binary = driver, control_binary(driver)
        for directory in (self.pipe, self.log):
            directory.mkdir()
        write_marker(self.pipe, default_gpus(1, driver=driver))

    def call(
        self, *arguments: str, data: bytes = b"", env: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[bytes]:
        environment = {
            "CUDA_MPS_PIPE_DIRECTORY": str(self.pipe),
            "CUDA_MPS_LOG_DIRECTORY": str(self.log),
            SERVER_START: "there is no libcuda",
            "PATH": os.environ["PATH"],
            **(env or {}),
        }
        return subprocess.run(
            [*self.binary, *arguments], input=data, env=environment, capture_output=True, timeout=120, check=False
        )

    def control_log(self) -> str:
        path = self.log / "control.log"
        return path.read_text() if path.exists() else ""

    def files(self, name: str) -> dict[str, str]:
        """The modes of what is there, the stand-in's own files left out."""
        folder = self.pipe if name == "pipe" else self.log
        there = [path for path in folder.iterdir() if not path.name.startswith(("mpstui-", "."))]
        return {path.name: stat.filemode(path.lstat().st_mode) for path in there}


@pytest.fixture
def place(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Place]:
    made = Place(tmp_path, request.param)
    yield made
    made.call(data=b"quit -t 0\n")
    for daemon in daemons_below(tmp_path):  # one whose server never gets ready waits for it
        with suppress(ProcessLookupError):
            os.kill(daemon.key.pid, signal.SIGKILL)


def story(log: str) -> list[str]:
    """The lines of a control.log: who wrote them, and what, with PIDs by the order of their coming. Where a session
    ends among the lines of a server that starts is chance."""
    pids: dict[str, str] = {}
    told = []
    for line in log.splitlines():
        match = re.fullmatch(r"\[[-\d :.]{23} (\w+) +(\d+)\] ?(.*)", line)
        if match is None or match[3] in {"UI closed", "NEW UI", "Accepting connection..."}:
            continue
        server = re.match(r"(?:Starting new server|Server) (\d+) (?:for user|exited)", match[3])
        for pid in (match[2], *([server[1]] if server else [])):
            pids.setdefault(pid, f"P{len(pids)}")
        text = re.sub(r"\b\d{3,}\b", lambda m: pids.get(m[0], m[0]), match[3]).rstrip()
        told.append(f"{match[1]} {pids[match[2]]} {text}")
    return told


def starts_told(place: Place) -> int:
    """How many servers the daemon has begun to start so far."""
    return place.control_log().count("Starting new server")


def over(place: Place) -> bool:
    """Every server that was started has ended, and been taken off the list."""
    return starts_told(place) == place.control_log().count("Removed Shm file")


@pytest.mark.skipif(os.geteuid() != 0, reason="what was recorded says that it was root")
@pytest.mark.slow
@pytest.mark.parametrize("place", RECORDED, indirect=True)
def test_every_recorded_call_comes_out_as_it_was(place: Place) -> None:
    compared = listed = 0
    for entry in entries(place.driver):
        beside = entry.section.startswith("held")  # there the binary says what it likes; the last ones were heard
        if beside and not entry.line.startswith(("start_server", "get_server_list")):
            continue
        begun = starts_told(place)
        if entry.line.startswith("-"):
            done = place.call(*entry.line.split())
        else:
            lowered = {"MPSTUI_SIM_UID": "65534"} if entry.stranger else None
            done = place.call(data=entry.line.encode() + b"\n" * (entry.line != SEVERAL.decode()), env=lowered)
        where = (entry.section, entry.line)
        assert done.returncode == (0 if beside else entry.status), where
        assert [line.rstrip() for line in done.stdout.decode().splitlines()] == entry.out, where
        assert done.stderr.decode().splitlines() == entry.err, where
        if entry.line.startswith("start_server -uid") and not entry.out and not entry.status:
            eventually(lambda begun=begun: starts_told(place) > begun)  # from 550 on once the session is over
        eventually(lambda: over(place))
        for name, files in entry.files.items():
            listed += 1
            assert place.files(name) == files, where
        compared += 1
    assert compared > 75
    assert listed >= 3
    recorded = (RECORDINGS / f"daemon-{place.driver}.txt").read_text().partition("=== control.log\n")[2]
    recorded = recorded.partition("=== server.log")[0].replace("/tmp/mps/pipe", str(place.pipe))
    assert story(place.control_log()) == story(recorded)


def starts(driver: str) -> Iterator[tuple[str, list[str], int, list[str], list[str]]]:
    """Of ``start-options``: the words behind the binary, its status, what it printed, and the daemon's log."""
    text = (RECORDINGS / f"start-options-{driver}.txt").read_text()
    for block in text.split("### ")[1:]:
        title, *lines = block.splitlines()
        status = next(int(line[3:]) for line in lines if line.startswith("rc="))
        printed = [line[5:].rstrip() for line in lines if line.startswith(("out| ", "err| "))]
        log = [line.partition("] ")[2].rstrip() for line in lines if line.startswith("Control ")]
        yield title, [line[9:] for line in lines if line.startswith("answers: ")], status, printed, log


ENVIRONMENTS = {
    "env percentage": "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE",
    "env priority": "CUDA_MPS_CLIENT_PRIORITY",
    "env memory": "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT",
}
QUESTIONS = (
    b"get_default_active_thread_percentage\nget_default_client_priority\nget_default_device_pinned_mem_limit 0\n"
)


@pytest.mark.slow
@pytest.mark.parametrize("place", ["470.256.02", "550.163.01", "555.58.02"], indirect=True)
def test_every_recorded_start_comes_out_as_it_was(place: Place, tmp_path: Path) -> None:
    compared = 0
    for number, (title, answers, status, printed, log) in enumerate(starts(place.driver)):
        pipe, logs = tmp_path / f"p{number}", tmp_path / f"l{number}"
        pipe.mkdir()
        logs.mkdir()
        write_marker(pipe, default_gpus(1, driver=place.driver))
        env, words = {"CUDA_MPS_PIPE_DIRECTORY": str(pipe), "CUDA_MPS_LOG_DIRECTORY": str(logs)}, ["-d"]
        if title.startswith("-f"):
            continue  # it does not come back: the test below
        if title.startswith("-d "):
            words = title.split()
        elif title == "command as argument":
            words = ["get_server_list"]
        elif variable := next((v for k, v in ENVIRONMENTS.items() if title.startswith(k)), None):
            env[variable] = title.split()[-1]
        elif title == "log dir absent":
            env["CUDA_MPS_LOG_DIRECTORY"] = "/tmp/mps/nowhere/x"
        elif title == "log dir a file":
            (tmp_path / "file").touch()
            env["CUDA_MPS_LOG_DIRECTORY"] = str(tmp_path / "file")
        elif title == "pipe dir absent parent":
            env["CUDA_MPS_PIPE_DIRECTORY"] = "/tmp/mps/no/such"
        elif title.startswith("pipe dir length") and status:
            env["CUDA_MPS_PIPE_DIRECTORY"] = str(tmp_path / ("a" * (int(title.split()[-1]) - len(str(tmp_path)) - 1)))
        done = place.call(*words, env=env)
        said = (done.stdout + done.stderr).decode().splitlines()
        assert (done.returncode, [line.rstrip() for line in said]) == (status, printed), title
        asked = place.call(data=QUESTIONS, env=env)
        told = (asked.stdout + asked.stderr).decode().splitlines()
        assert told == list(dict.fromkeys(answers)), title
        place.call(data=b"quit\n", env=env)
        if log:
            lines = re.findall(r"\] (.*)", (logs / "control.log").read_text())
            heard = [line for line in lines if not line.startswith(("Cmd:", "NEW UI", "UI closed", "Accepting"))]
            assert [re.sub(r"/tmp/\S*/p\d*", "P", line) for line in heard] == [
                re.sub(r"/tmp/mps/(?:\d+/p|\w+)", "P", line) for line in log
            ], title
        compared += 1
    assert compared >= 18


@pytest.mark.parametrize("place", [*RECORDED, "580.159.04"], indirect=True)
def test_in_the_foreground_its_log_is_its_standard_output(place: Place) -> None:
    env = {"CUDA_MPS_PIPE_DIRECTORY": str(place.pipe), "CUDA_MPS_LOG_DIRECTORY": str(place.log)}
    with subprocess.Popen([*place.binary, "-f"], env=env, stdout=subprocess.PIPE) as daemon:
        try:
            assert daemon.stdout is not None
            first, second = daemon.stdout.readline(), daemon.stdout.readline()
            assert b"] Starting control daemon using socket " in first
            assert b"] To connect CUDA applications to this daemon, set env " in second
            eventually(lambda: (place.pipe / "control").exists())
            assert place.call(data=b"get_default_active_thread_percentage\n").stdout == b"100.0\n"
            assert place.files("log") == {}
            place.call(data=b"quit\n")
            assert b"Exit with status 0" in daemon.stdout.read()
        finally:
            daemon.kill()


def standin(driver: str) -> list[tuple[str, list[str]]]:
    """What was asked of a daemon whose server never got ready, up to its end by force."""
    found: list[tuple[str, list[str]]] = []
    for line in (RECORDINGS / f"server-standin-{driver}.txt").read_text().splitlines():
        if found and found[-1][0].endswith("-f"):
            break
        if match := re.fullmatch(r">>> (\S.*?) +\[rc 0\]", line):
            found.append((match[1], []))
        elif line.startswith("out| "):
            found[-1][1].append(line[5:])
    return found


@pytest.mark.slow
@pytest.mark.parametrize("place", ["470.256.02", "555.58.02"], indirect=True)
def test_a_server_that_never_gets_ready_is_answered_for_as_recorded(place: Place) -> None:
    assert place.call("-d", env={SERVER_START: "100000"}).returncode == 0
    calls = standin(place.driver)
    theirs = next(out[0] for line, out in calls if line == "get_server_list")
    ours = ""
    for line, out in calls:
        if not ours and line != "start_server -uid 0":
            eventually(lambda: place.call(data=b"get_server_list\n").stdout)
            ours = place.call(data=b"get_server_list\n").stdout.decode().strip()
        answer = place.call(data=line.replace(theirs, ours or theirs).encode() + b"\n")
        told = [text.replace(ours, theirs) if ours else text for text in answer.stdout.decode().splitlines()]
        assert (answer.returncode, told) == (0, out), line
    log = place.control_log()
    eventually(lambda: "for user 2001" in place.control_log())  # what was kept for later
    eventually(lambda: f"Server {ours} exited with status 0" in place.control_log())
    busy = [line.partition("] ")[2] for line in log.splitlines() if "<busy>" in line]
    assert set(busy) == {f"Server {ours} is <busy>"}
    assert ("Force shutting down" in place.control_log()) == (place.driver[:3] != "470")
