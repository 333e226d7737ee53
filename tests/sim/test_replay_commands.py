"""The recorded commands, sent to the simulated node: every answer and both logs are the recorded ones."""

from __future__ import annotations

import os
import re
import stat
import subprocess
from collections.abc import Callable

import pytest

from mpstui.sim.client import SimClient
from mpstui.sim.marker import control_binary
from mpstui.sim.node import SimNode
from mpstui.sim.simd.config import Gpu

from .recorded import DATA, NAMESPACE, Command, Note, eventually, log_lines, one_shot, read_transcript, rename_pids

GPU = Gpu(0, "GPU-c6233a33-3507-69ef-fed3-0090a2cbc745")
MIB = 1 << 20
SHORT_LIVED = {
    632: {},
    1137: {},
    1142: {"memory": 3000 * MIB},
    1186: {"env": {"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=1G"}},
    1191: {"env": {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "10"}},
}


class Replay:
    """Walks through the recording and does what was done then."""

    def __init__(self, node: SimNode) -> None:
        self.node = node
        self.pids: dict[int, int] = {}
        """Recorded PID to simulated one."""
        self.clients: dict[int, SimClient] = {}
        self.section = ""
        self.compared = 0

    @property
    def names(self) -> dict[int, int]:
        return {simulated: recorded for recorded, simulated in self.pids.items()}

    def spawn(self, recorded: int, behaviour: str = "idle", **options: object) -> SimClient:
        client = self.node.spawn(behaviour, namespace=NAMESPACE, **options)
        self.pids[recorded] = client.pid
        self.clients[recorded] = client
        return client

    def note(self, text: str) -> None:
        if text.startswith("##### "):
            self.section = text.removeprefix("##### ")
            if self.section == "start":
                self.node.start_daemon()
                self.pids[480] = self.node.daemon_pid or 0
            if self.section == "second start on same dir":
                self.second_start()
        elif text == "server 634 clients 645 643 644":
            for recorded, behaviour in ((645, "idle"), (643, "busy"), (644, "busy")):
                self.spawn(recorded, behaviour)
            # The script that recorded asked for the PIDs first.
            one_shot(self.node, "get_server_list")
            one_shot(self.node, f"get_client_list {self.pids[634]}")
        elif (found := re.search(r" pid (\d+)\] sm (\d+) free (\d+) MiB", text)) and int(found[1]) in SHORT_LIVED:
            self.short_lived(int(found[1]), int(found[2]), int(found[3]))

    def second_start(self) -> None:
        process = subprocess.Popen(
            [*control_binary(), "-d"],
            env={
                "CUDA_MPS_PIPE_DIRECTORY": str(self.node.pipe_dir),
                "CUDA_MPS_LOG_DIRECTORY": str(self.node.log_dir),
            },
            stdout=subprocess.PIPE,
        )
        stdout, _ = process.communicate(timeout=120)
        assert (process.returncode, stdout) == (1, b"An instance of this daemon is already running\n")

    def short_lived(self, recorded: int, sms: int, free: int) -> None:
        if recorded == 632 and not self.node.daemon_pid:
            return
        client = self.spawn(recorded, **SHORT_LIVED[recorded])
        if recorded == 632:
            self.pids[634] = int(self.node.state()["servers"][0]["pid"])
        assert client.sm_count == sms
        if free < 4096:  # otherwise it is what the driver happens to leave
            assert client.free_memory is not None
            assert client.free_memory // MIB == free
        client.tell("exit")
        assert client.wait(120) == ("2" if recorded == 1142 else "0")

    def command(self, command: Command) -> None:
        line = re.sub(r"\d+", lambda m: str(self.pids.get(int(m[0]), m[0])), command.line)
        if command.status == 124:
            self.second_terminate(line)
            return
        answer = one_shot(self.node, line)
        assert answer.returncode == command.status, command.line
        for ours, theirs in ((answer.stdout, command.stdout), (answer.stderr, command.stderr)):
            lines = rename_pids(ours.decode(), self.names).splitlines()
            if command.line.startswith("get_device_client_list"):
                lines, theirs = sorted(lines), sorted(theirs)  # in no order (fact 9)
            assert lines == theirs, command.line
        self.compared += 1

    def second_terminate(self, line: str) -> None:
        """It hung until it was given up after 10 s; here it is given up once the server has got it."""
        process = subprocess.Popen(
            control_binary(),
            env={"CUDA_MPS_PIPE_DIRECTORY": str(self.node.pipe_dir)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert process.stdin is not None
        process.stdin.write(line.encode() + b"\n")
        process.stdin.close()
        process.stdin = None
        wanted = "requesting client"
        server_log = self.node.log_dir / "server.log"
        eventually(lambda: server_log.read_text().count(wanted) == 2)
        assert process.poll() is None
        process.kill()
        assert process.communicate()[0] == b""


def streams(lines: list[str], pids: tuple[str, ...]) -> dict[str, list[str]]:
    """Lines about each client, and the others: those of clients that start at the same time mix as they please."""
    found: dict[str, list[str]] = {}
    in_session = False
    for line in lines:
        in_session = (in_session or line.endswith("NEW UI")) and not line.endswith("UI closed")
        if line.endswith(
            ("Accepting connection...", "User did not send valid credentials", "Received new client request for")
        ):
            key = line
        else:
            key = next(
                (pid for pid in pids if not in_session and re.search(rf"(PID: |CLIENT |process ){pid}\b", line)), ""
            )
        found.setdefault(key, []).append(line)
    found[""] = _sorted_device_lists(found[""])
    return found


def _sorted_device_lists(lines: list[str]) -> list[str]:
    result: list[str] = []
    held: list[str] = []
    for line in lines:
        if re.fullmatch(r"Control 480 \d+\.1", line):
            held.append(line)
            continue
        result += [*sorted(held), line]
        held.clear()
    return result + sorted(held)


@pytest.mark.skipif(os.geteuid() != 0, reason="what was recorded says that it was root")
@pytest.mark.slow
def test_every_recorded_command_is_answered_byte_for_byte(start: Callable[..., SimNode]) -> None:
    node = start(gpus=[GPU], daemon=False)
    replay = Replay(node)
    for entry in read_transcript(DATA / "h100" / "commands.txt"):
        if isinstance(entry, Note):
            replay.note(entry.text)
        else:
            replay.command(entry)
    assert replay.compared == 81

    names = replay.names
    pids = tuple(str(pid) for pid in replay.pids if pid not in (480, 634))
    directory = str(node.pipe_dir)
    for log in ("control", "server"):
        text = (node.log_dir / f"{log}.log").read_text().replace(str(node.log_dir), "/tmp/mps_log_0")
        ours = log_lines(text.replace(directory, "/tmp/mps_0"), names)
        theirs = log_lines((DATA / "h100" / f"commands-{log}.log").read_text())
        ours, theirs = ([re.sub(r"^Other \d+ Using", "Other Using", x) for x in lines] for lines in (ours, theirs))
        ours_by, theirs_by = streams(ours, pids), streams(theirs, pids)
        assert set(ours_by) == set(theirs_by)
        for key, lines in ours_by.items():
            assert lines == theirs_by[key], (log, key)


def test_the_pipe_directory_has_the_recorded_names_and_modes(start: Callable[..., SimNode]) -> None:
    node = start()
    recorded = {}
    for entry in read_transcript(DATA / "h100" / "commands.txt"):
        if isinstance(entry, Note) and entry.text.startswith("##### second start"):
            break
        if isinstance(entry, Note) and (found := re.match(r"([sp-][rwx-]{9}) .* (\S+)$", entry.text)):
            recorded[found[2]] = found[1]
    logs = {name: recorded.pop(name) for name in ("control.log", "server.log")}
    recorded.pop("/tmp/client", None)
    assert len(recorded) == 5
    for directory, names in ((node.pipe_dir, recorded), (node.log_dir, logs)):
        assert {n: stat.filemode(os.lstat(directory / n).st_mode) for n in names} == names
    assert (node.pipe_dir / "nvidia-cuda-mps-control.pid").read_text() == str(node.daemon_pid)
