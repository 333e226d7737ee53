"""Large logs are parsed by processes of their own: the same events, the same end, and nobody left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest
from folders import leave_logs

READ = """
import os, signal, sys
from pathlib import Path
from mpstui.history import parser_process
from mpstui.history.reader import LogHistory

folder, how = Path(sys.argv[1]), sys.argv[2]
parser_process.LARGE, parser_process._PIECE = (1 << 40 if how == "alone" else 0), 5
os.sched_getaffinity = lambda pid: {0, 1}
fork, children = os.fork, []

def forked():
    children.append(fork())
    return children[-1]

os.fork = forked
history = LogHistory(folder)
told = history.events()
for number, event in enumerate(told):
    print(repr(event))
    if number == 40 and how == "killed":
        for child in children:
            os.kill(child, signal.SIGKILL)
    if number == 40 and how == "left":
        told.close()
        break
print(history.version, history.daemon)
if how != "left":
    with (folder / "control.log").open("a") as out:
        out.write("[2026-11-20 21:40:00.000 Control   443] UI closed\\n")
    for event in history.follow():
        if event is None:
            break
        print(repr(event))
history.close()
print(len(children), file=sys.stderr)
try:
    os.waitpid(-1, 0)
except ChildProcessError:
    print("nobody is left", file=sys.stderr)
"""
ASKED = (
    "[2026-11-20 21:39:00.000 Control   443] Cmd:ps\n"
    "[2026-11-20 21:39:00.000 Control   443] 1   0   2   GPU-1   4026531836   [2026 Control 443] NEW SERVER 5: Ready\n"
)


@pytest.fixture
def logs(tmp_path):
    """With the answer to a command under way at the end: what is read later depends on it."""
    folder = leave_logs(tmp_path)
    with (folder / "control.log").open("a") as out:
        out.write(ASKED)
    return folder


def read(folder, how):
    """What was told, and how many processes were made."""
    before = (folder / "control.log").read_bytes()
    done = subprocess.run(
        [sys.executable, "-c", READ, str(folder), how], capture_output=True, text=True, timeout=120, check=True
    )
    (folder / "control.log").write_bytes(before)
    made, left = done.stderr.splitlines()
    assert left == "nobody is left"
    return done.stdout, int(made)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["ahead", "killed"])
def test_what_another_process_parses_is_what_is_read_here(logs, how):
    alone, none = read(logs, "alone")
    told, made = read(logs, how)
    assert (none, made) == (0, 2)
    assert told == alone
    assert "21:40:00.000 Control   443] UI closed" in told.splitlines()[-1], "the answer to the ps is over there"


@pytest.mark.slow
def test_who_reads_no_further_leaves_nobody_behind(logs):
    told, made = read(logs, "left")
    assert (len(told.splitlines()), made) == (42, 2)


def children(pid):
    try:
        return [int(child) for child in open(f"/proc/{pid}/task/{pid}/children").read().split()]
    except FileNotFoundError:
        return []


def lives(pid):
    try:
        return open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_the_other_process_ends_with_the_program(tmp_path, number):
    """Also where the program had no time to end it."""
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("one core: there is no other process")
    line = "[2026-11-20 21:24:28.598 Server   910] Client {{PID: {}, Context ID: 0}} connected\n"
    (tmp_path / "server.log").write_text("".join(line.format(pid) for pid in range(10_000, 410_000)))
    program = [sys.executable, "-m", "mpstui", "events", "--log-dir", str(tmp_path)]
    with subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        process.stdout.readline()  # and no more: it waits, and so does who parses
        (child,) = children(process.pid)
        process.send_signal(number)
        process.stdout.close()
        process.wait(120)
    deadline = time.monotonic() + 120
    while lives(child) and time.monotonic() < deadline:
        os.sched_yield()
    assert not lives(child)
