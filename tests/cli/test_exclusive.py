"""``daemon start --exclusive`` and ``daemon stop --exclusive``: on request alone, with who is hit, and given back."""

from __future__ import annotations

import io
import os
import pwd
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from mpstui.api import Node
from mpstui.cli import main
from mpstui.cli.daemon import _exclusive_agreed
from mpstui.core.model import Daemon, Device, ProcessKey, Server, Snapshot
from mpstui.daemons.modes import keep_modes, modes_before, served_by_others, set_compute_mode
from mpstui.observe.devices import RealNvml
from mpstui.observe.discovery import DaemonProcess
from mpstui.observe.sources import NvmlSample
from mpstui.sim.node import SimNode
from mpstui.sim.simd.config import read_marker, write_marker
from mpstui.sim.sources import SimNvml

from .conftest import Mpstui


@pytest.fixture
def place(tmp_path: Path) -> Iterator[SimNode]:
    node = SimNode.start(tmp_path / "n", daemon=False)
    yield node
    node.stop()


def modes(node: SimNode) -> list[str]:
    return [gpu.compute_mode for gpu in read_marker(node.pipe_dir)]


def test_nothing_is_set_unless_it_is_asked_for_and_agreed_to(mpstui: Mpstui, place: SimNode) -> None:
    at = ("--pipe-dir", place.pipe_dir, "--log-dir", place.log_dir)
    told = mpstui("daemon", "start", "--exclusive", *at)
    assert told.status == 6
    assert "Set GPU 0, GPU 1 to EXCLUSIVE_PROCESS, for all users" in told.err
    assert (place.daemon_pid, modes(place)) == (None, ["Default"] * 2)
    assert mpstui("daemon", "start", *at).status == 0
    assert modes(place) == ["Default"] * 2
    for agreed in ((), ("--yes",)):
        told = mpstui("daemon", "start", "--exclusive", *agreed, *at)
        assert (told.status, modes(place)) == (6, ["Default"] * 2)
        assert "already" in told.err + told.out
        assert "compute mode" not in told.err + told.out, "nothing is asked or set, and given back, for nothing"
        assert "EXCLUSIVE" not in told.err + told.out
    assert mpstui("daemon", "stop", "--yes", "--exclusive", *at[:2]).status == 0
    assert modes(place) == ["Default"] * 2


@pytest.mark.slow
def test_it_is_set_before_the_start_and_what_was_there_before_is_given_back_at_the_end(
    mpstui: Mpstui, place: SimNode, tmp_path: Path
) -> None:
    at = ("--pipe-dir", place.pipe_dir, "--log-dir", place.log_dir)
    gpus = read_marker(place.pipe_dir)
    uuid = gpus[1].uuid
    told = mpstui("daemon", "start", "--exclusive", "--yes", "--device", "1", *at)
    assert told.status == 0, told
    assert f"{uuid}: compute mode EXCLUSIVE_PROCESS" in told.out
    assert "(not run)" not in told.out
    assert modes(place) == ["Default", "Exclusive_Process"]
    (device,) = [d for d in mpstui("status", "--json", *at).json["devices"] if d["uuid"] == uuid]
    assert device["compute_mode"] == "Exclusive_Process"
    declined = mpstui("daemon", "stop", "--exclusive", *at[:2])
    assert declined.status == 6
    assert f"DEFAULT again, for all users: {uuid}" in declined.err
    assert (place.daemon_pid is None, modes(place)[1]) == (False, "Exclusive_Process")
    stopped = mpstui("daemon", "stop", "--exclusive", "--yes", *at[:2])
    assert stopped.status == 0, stopped
    assert f"{uuid}: compute mode DEFAULT" in stopped.out
    assert modes(place) == ["Default"] * 2
    # A stop that gives nothing back says so, and it can be had later: of a daemon that was killed, too.
    told = mpstui("daemon", "start", "--exclusive", "--yes", "--device", "1", *at)
    stopped = mpstui("daemon", "stop", "--yes", *at[:2])
    assert (
        f"{uuid}: compute mode stays EXCLUSIVE_PROCESS; to set it back to DEFAULT: mpstui daemon stop --exclusive"
        in stopped.out
    )
    told = mpstui("daemon", "stop", "--exclusive", *at[:2])
    assert (told.status, modes(place)) == (6, ["Default", "Exclusive_Process"]), told
    assert f"DEFAULT again, for all users: {uuid}" in told.err
    told = mpstui("daemon", "stop", "--exclusive", "--yes", *at[:2])
    assert (told.status, modes(place)) == (0, ["Default"] * 2), told
    assert mpstui("daemon", "stop", "--exclusive", "--yes", *at[:2]).status == 3, "nothing is left to be given back"
    # Another one than the usual before: one prohibited, one exclusive already.
    write_marker(
        place.pipe_dir,
        [g._replace(compute_mode=m) for g, m in zip(gpus, ("Prohibited", "Exclusive_Process"), strict=True)],
    )
    assert mpstui("daemon", "start", "--exclusive", "--yes", *at).status == 0
    assert modes(place) == ["Exclusive_Process"] * 2
    asked = mpstui("daemon", "stop", "--exclusive", *at[:2])
    assert f"PROHIBITED again, for all users: {gpus[0].uuid}" in asked.err
    assert f"stays EXCLUSIVE_PROCESS, as it was before the start: {uuid}" in asked.err
    stopped = mpstui("daemon", "stop", "--exclusive", "--yes", *at[:2])
    assert modes(place) == ["Prohibited", "Exclusive_Process"], stopped
    assert modes_before() == {}


def test_a_device_that_another_daemon_serves_keeps_its_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether or not it was named; one whose variable does not tell which devices it has may have all of them."""
    devices = [Device("GPU-aa", 0), Device("GPU-ab", 1)]
    running = [
        DaemonProcess(ProcessKey(7, 7), 0, None, False, "legacy", None, None, visible=None),
        DaemonProcess(ProcessKey(8, 8), 0, None, False, "legacy", None, None, visible="GPU-ab"),
        DaemonProcess(ProcessKey(9, 9), 0, None, False, "legacy", None, None, visible="1"),
    ]
    served = []
    for others in (running[:1], running[:2], running[::2]):
        monkeypatch.setattr("mpstui.daemons.modes.running_daemons", lambda others=others: others)
        served.append(served_by_others(devices, ProcessKey(7, 7)))
    assert served == [{}, {"GPU-ab": 8}, {"GPU-aa": 9, "GPU-ab": 9}]


def test_what_is_kept_of_the_modes_is_nobody_elses_word(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert keep_modes({"GPU-0": "DEFAULT", "GPU-1": "PROHIBITED", "GPU-2": "EXCLUSIVE_PROCESS"}) is None
    # A daemon that died gave nothing back: the second start finds them exclusive, and what was before still holds.
    assert keep_modes(dict.fromkeys(("GPU-0", "GPU-1", "GPU-2"), "EXCLUSIVE_PROCESS"), ["GPU-0"]) is None
    assert modes_before() == {"GPU-1": "PROHIBITED", "GPU-2": "EXCLUSIVE_PROCESS"}
    file = tmp_path / "mpstui/compute-modes.json"
    good = file.read_text()
    for bad in (
        "",
        "[]",
        "[" * 10000,
        good.replace('"boot_id": "', '"boot_id": "x'),
        good.replace("PROHIBITED", "rm -rf"),
    ):
        file.write_text(bad)
        assert "GPU-1" not in modes_before()
    file.write_text(good)
    file.chmod(0o666)
    assert modes_before() == {}
    file.chmod(0o600)
    if os.geteuid() == 0:
        os.chown(file, 4321, 4321)
        assert modes_before() == {}
    file.unlink()
    file.mkdir()
    assert "compute-modes.json" in (keep_modes({"GPU-0": "DEFAULT"}) or "")


def test_of_several_starts_at_once_none_forgets_what_another_has_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    uuids = [f"GPU-{number}" for number in range(24)]
    with ThreadPoolExecutor(4) as pool:
        assert set(pool.map(lambda uuid: keep_modes({uuid: "PROHIBITED"}), uuids)) == {None}
    assert modes_before() == dict.fromkeys(uuids, "PROHIBITED")


def test_a_start_that_fails_gives_it_back(mpstui: Mpstui, tmp_path: Path) -> None:
    node = SimNode.start(tmp_path / "n", driver="535.261.03", daemon=False)
    at = ("--pipe-dir", node.pipe_dir, "--log-dir", node.log_dir)
    told = mpstui("daemon", "start", "--exclusive", "--yes", "--multi-user", *at)
    assert told.status == 1
    assert "no multi-user mode" in told.err
    assert modes(node) == ["Default"] * 2


def test_one_that_cannot_be_set_gives_the_others_back_and_leaves_no_memory(
    place: SimNode, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real, second = SimNvml.set_compute_mode, read_marker(place.pipe_dir)[1].uuid

    def refuse(self: SimNvml, uuid: str, mode: str) -> str | None:
        return "Insufficient Permissions" if uuid == second else real(self, uuid, mode)

    monkeypatch.setattr(SimNvml, "set_compute_mode", refuse)
    at = ["--pipe-dir", str(place.pipe_dir), "--log-dir", str(place.log_dir)]
    assert main(["daemon", "start", "--exclusive", "--yes", *at]) == 1
    assert f"no daemon was started: the compute mode of {second} was not set" in capsys.readouterr().err
    assert (place.daemon_pid, modes(place), modes_before()) == (None, ["Default"] * 2, {})


def test_of_two_starts_at_once_the_later_one_leaves_the_mode_to_the_first(
    mpstui: Mpstui, place: SimNode, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """nvidia-smi takes a second: it was set back from under the daemon of the first, which had asked for it too."""
    real, at = SimNvml.set_compute_mode, ["--pipe-dir", str(place.pipe_dir), "--log-dir", str(place.log_dir)]

    def overtaken(self: SimNvml, uuid: str, mode: str) -> str | None:
        if place.daemon_pid is None:
            assert mpstui("daemon", "start", "--exclusive", "--yes", *at).status == 0
        return real(self, uuid, mode)

    monkeypatch.setattr(SimNvml, "set_compute_mode", overtaken)
    assert main(["daemon", "start", "--exclusive", "--yes", *at]) == 6
    assert "compute mode stays EXCLUSIVE_PROCESS, as another daemon" in "".join(capsys.readouterr())
    assert modes(place) == ["Exclusive_Process"] * 2
    told = mpstui("daemon", "stop", "--exclusive", "--yes", *at[:2])
    assert (told.status, modes(place), modes_before()) == (0, ["Default"] * 2, {}), told


def test_read_only_sets_nothing(mpstui: Mpstui, place: SimNode) -> None:
    told = mpstui("daemon", "start", "--exclusive", "--yes", "--pipe-dir", place.pipe_dir, "--read-only")
    assert told.status != 0
    assert modes(place) == ["Default"] * 2


def test_on_a_real_node_it_is_nvidia_smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    smi = tmp_path / "nvidia-smi"
    smi.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/asked\n')
    smi.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert set_compute_mode("GPU-1", "EXCLUSIVE_PROCESS") is None
    assert (tmp_path / "asked").read_text() == "-i GPU-1 -c EXCLUSIVE_PROCESS\n"
    smi.write_text("#!/bin/sh\nprintf 'Unable to set \\033[2Jthe compute mode: Insufficient Permissions\\n'; exit 4\n")
    why = set_compute_mode("GPU-1", "DEFAULT") or ""
    assert "Insufficient Permissions" in why
    assert why.isprintable()
    monkeypatch.setenv("PATH", str(tmp_path / "none"))
    assert "nvidia-smi" in (set_compute_mode("GPU-1", "DEFAULT") or "")


def test_without_nvml_nothing_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In this process, and with a binary that starts nothing: a test sets no mode of a GPU that is here."""
    monkeypatch.setattr(RealNvml, "sample", lambda self: NvmlSample(1.0, error="no NVML"))
    monkeypatch.setattr("mpstui.daemons.modes.set_compute_mode", lambda *_: pytest.fail("it sets a mode"))
    monkeypatch.setenv("MPSTUI_CONTROL_BINARY", "/bin/false")
    status = main(["daemon", "start", "--exclusive", "--yes", "--pipe-dir", str(tmp_path / "p")])
    assert (status, "nothing was started" in capsys.readouterr().err) == (4, True)
    assert not (tmp_path / "p").exists()


def test_who_is_hit_is_named(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    here, client, server = os.getpid(), os.getppid(), 3
    sample = NvmlSample(
        1.0,
        devices=(Device("GPU-0", 0), Device("GPU-1", 1)),
        processes={"GPU-0": {here: 1, client: 1, server: 1}, "GPU-1": {99: 1}},
        mps_clients={"GPU-0": {client: 1}},
    )
    daemon = Daemon(Path("/p"), servers=(Server(ProcessKey(server, 1)),))
    node = SimpleNamespace(hardware=lambda: sample, snapshot=lambda: Snapshot(1.0, daemons=(daemon,)))
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))  # no terminal: the answer is no
    assert not _exclusive_agreed(cast(Node, node), {Path("/p"): {"GPU-0": "DEFAULT", "GPU-1": "EXCLUSIVE_PROCESS"}})
    told = capsys.readouterr().err
    user = pwd.getpwuid(os.geteuid()).pw_name
    assert f"affects: process {here} of {user} on GPU 0, not a client of MPS" in told
    assert f"affects: process {client} of" in told
    assert "a client of another daemon" in told
    assert f"process {server} " not in told
    assert "GPU 1" not in told
