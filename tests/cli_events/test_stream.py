"""``events -`` and ``--journal``: the output of a daemon that was started with -f (fact 47)."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from mpstui import api
from mpstui.cli import main
from mpstui.history.reader import LogHistory
from mpstui.sim.client import SimClient
from mpstui.sim.marker import control_binary, is_simulated
from mpstui.sim.simd.config import default_gpus, write_marker

DATA = Path(__file__).parent.parent / "data"
STAMP = re.compile(rb"^\[(.{23}) ", re.MULTILINE)


def both() -> bytes:
    """Control.log and server.log of a recording as one stream: in the order of their times."""
    lines: list[tuple[bytes, bytes]] = []
    for kind in ("control", "server"):
        at = b""
        for line in (DATA / "h100" / f"faults-{kind}.log").read_bytes().splitlines(keepends=True):
            found = STAMP.match(line)
            at = found[1] if found else at
            lines.append((at, line))
    return b"".join(line for _, line in sorted(lines, key=lambda each: each[0]))


def told(data: bytes, size: int = 1 << 16) -> list[tuple[str, int | None]]:
    chunks = [data[i : i + size] for i in range(0, len(data), size)]
    return [(event.kind, event.pid) for event in api.read_stream(chunks) if event is not None]


def test_one_stream_tells_what_the_two_logs_tell(tmp_path: Path) -> None:
    for kind in ("control", "server"):
        (tmp_path / f"{kind}.log").write_bytes((DATA / "h100" / f"faults-{kind}.log").read_bytes())
    history = LogHistory(tmp_path)
    files = sorted((event.kind, event.pid or 0) for event in history.events())
    history.close()
    stream = sorted((kind, pid or 0) for kind, pid in told(both()))
    assert [each for each in stream if each[0] != "client_refused"] == [e for e in files if e[0] != "client_refused"]
    assert len(stream) > 500


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_where_the_chunks_end_does_not_matter(size: int) -> None:
    data = both()[:60_000]
    assert told(data, size) == told(data)


@pytest.mark.parametrize(
    "prefix",
    [
        b"2026-11-21T16:53:31.090123456Z stdout F ",
        b"mps-daemon        | ",
        b"[pod/mps-control-daemon-x7/mps-control-daemon-ctr] ",
        b"[pod/mps-x7/ctr] 2026-11-21T16:53:31.090123456Z ",
        b"2026-11-21T16:53:31.090123456Z ",
        b"Nov 21 16:53:31 gpu-07 nvidia-cuda-mps-control[31818]: ",
    ],
)
def test_what_a_container_or_the_journal_puts_before_each_line_is_taken_off(prefix: bytes) -> None:
    data = both()[:60_000].rpartition(b"\n")[0] + b"\n"
    assert told(b"".join(prefix + line for line in data.splitlines(keepends=True))) == told(data)


def test_a_client_s_name_cannot_make_a_line_of_the_server_s() -> None:
    at = b"[2026-11-21 16:53:31.090 Control 318] "
    forged = b"[2026-11-21 16:53:31.091 Server 400] Client {PID: 7, Context: 1} encountered a fatal GPU error."
    lines = [b"NEW UI", b"Cmd:ps", b"PID       ID        SERVER", b"7 1 400 GPU-0 1 name\n" + forged, b"UI closed"]
    kinds = [kind for kind, _ in told(b"".join(at + line + b"\n" for line in lines))]
    assert kinds
    assert "fatal_fault" not in kinds


def test_a_line_without_an_end_is_bounded_and_what_follows_is_read() -> None:
    good = b"[2026-11-21 16:53:31.090 Control 318] Starting new server 400 for user 0\n"
    data = good + b"[2026-11-21 16:53:31.090 Control 318] " + b"x" * 300_000 + b"\n" + good.replace(b"400", b"401")
    assert [kind for kind, _ in told(data, 4096)].count("server_starting") == 2


@pytest.mark.parametrize(
    "data", [b"", b"\0" * 5000, b"\n" * 100, b"\xff\xfe[2026-", b"[9999-99-99 99:99:99.999 Control 1] x\n"]
)
def test_what_is_no_log_is_no_trouble(data: bytes) -> None:
    assert {kind for kind, _ in told(data)} <= {"unknown"}


def events_of(data: bytes, capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    """What ``mpstui events - --json`` prints of it."""
    read, write = os.pipe()
    os.write(write, data)
    os.close(write)
    saved = os.dup(0)
    try:
        os.dup2(read, 0)
        assert main(["events", "-", "--json"]) == 0
    finally:
        os.dup2(saved, 0)
        os.close(saved)
        os.close(read)
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_of_a_stream_it_is_not_known_whether_a_real_daemon_wrote_it(capsys: pytest.CaptureFixture[str]) -> None:
    """Every event was said to be of a real one. The word stays what it was, as who reads it may rely on it; a key of
    its own tells what it is worth."""
    (event,) = events_of(b"[2026-11-21 16:53:31.090 Control 318] Starting new server 400 for user 0\n", capsys)
    assert (event["kind"], event["source"], event["source_known"]) == ("server_starting", "real", False)


@pytest.mark.parametrize("driver", ["470.256.02", "580.159.04"])
def test_a_daemon_in_the_foreground_is_read_from_its_output(
    driver: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pipe, log = tmp_path / "p", tmp_path / "l"
    for folder in (pipe, log):
        folder.mkdir()
    (log / "control.log").write_text(
        "[2026-11-21 16:53:31.090 Control 1] NEW CLIENT 9 from user 9: Server already exists\n"
    )
    write_marker(pipe, default_gpus(1, driver=driver))
    env = {"CUDA_MPS_PIPE_DIRECTORY": str(pipe), "CUDA_MPS_LOG_DIRECTORY": str(log), "PATH": os.environ["PATH"]}
    assert is_simulated(pipe)
    with subprocess.Popen([*control_binary(driver), "-f"], env=env, stdout=subprocess.PIPE) as daemon:
        try:
            assert daemon.stdout is not None
            first = daemon.stdout.readline() + daemon.stdout.readline()
            client = SimClient(pipe, "idle")
            assert client.wait_settled(120) == "connected"
            assert main(["status", "--pipe-dir", str(pipe), "--json"]) == 0
            snapshot = json.loads(capsys.readouterr().out)
            (server,) = snapshot["daemons"][0]["servers"]
            assert [c["pid"] for c in server["clients"]] == [client.pid]
            (problem,) = [p for p in snapshot["problems"] if p["code"] == "polling"]
            assert problem["text"].startswith("Its log is its standard output")
            assert main(["events", "--pipe-dir", str(pipe)]) == 3
            assert "mpstui events --journal UNIT" in capsys.readouterr().err
            assert "mpstui events -" in problem["remedy"]
            client.close()
        finally:
            daemon.terminate()
        data = first + daemon.stdout.read()
    events = events_of(data, capsys)
    kinds = [event["kind"] for event in events]
    assert {"daemon_started", "server_starting", "server_ready", "client_connected"} <= set(kinds)
    assert {event["daemon"] for event in events} == {str(pipe)}
    assert not [event for event in events if event["pid"] == 9]


def test_the_journal_of_a_unit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = tmp_path / "journalctl"
    fake.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/asked\ncat {DATA}/h100/users-control.log\n')
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert main(["events", "--journal", "nvidia-mps.service", "--kind", "server_starting"]) == 0
    assert "is starting for root" in capsys.readouterr().out
    asked = (tmp_path / "asked").read_text().split()
    assert asked == ["--unit=nvidia-mps.service", "--output=cat", "--all", "--no-pager", "--quiet"]
    for wrong in ("", "-M", "a b", "x;y", "a\nb", "é"):
        assert main(["events", f"--journal={wrong}"]) == 2
    fake.write_text(f"#!/bin/sh\nhead -c 1000000 /dev/zero >&2; cat {DATA}/h100/users-control.log\n")
    assert main(["events", "--journal", "mps"]) == 0, "who fills its standard error is not waited for"
    capsys.readouterr()
    fake.write_text("#!/bin/sh\necho Hint: you see no others >&2\n")
    for since in ([], ["--since", "1h"]):
        assert main(["events", "--journal", "no-such", *since]) == 3
        said = capsys.readouterr()
        assert said.out == ""
        assert "has no line of the unit “no-such”" in said.err
        assert "Hint: you see no others" in said.err
    fake.write_text('#!/bin/sh\ncase "$*" in *since*) ;; *) echo line;; esac\n')
    assert main(["events", "--journal", "mps", "--since", "1h"]) == 0, "it was quiet since then"
    fake.write_text("#!/bin/sh\necho 'No journal files were found.' >&2; exit 1\n")
    assert main(["events", "--journal", "mps"]) == 3
    assert "No journal files were found." in capsys.readouterr().err
    (none := tmp_path / "none").mkdir()
    monkeypatch.setenv("PATH", str(none))
    assert main(["events", "--journal", "mps"]) == 3
    assert "journalctl" in capsys.readouterr().err


def test_one_source_at_a_time(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["events", "-", "--journal", "mps"]) == 2
    assert main(["events", "-", "--log-dir", str(tmp_path)]) == 2
    assert "one source only" in capsys.readouterr().err
