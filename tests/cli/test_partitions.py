"""Static SM partitions from the command line: read, added, removed, and refused, on a simulated daemon with ``-S``."""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from mpstui import api
from mpstui.cli.partition import _apply_static
from mpstui.core.model import Daemon, SmPartition, Snapshot
from mpstui.operations.types import ExitStatus, Request, Result
from mpstui.plan.static import StaticPlan, StaticShare
from mpstui.sim.marker import control_binary
from mpstui.sim.node import SimNode

from .conftest import Mpstui, Run


@pytest.fixture
def static() -> Iterator[SimNode]:
    directory = Path(tempfile.mkdtemp(prefix="mpstui-static-"))
    node = SimNode.start(directory, options=("-S",))
    try:
        yield node
    finally:
        node.stop()
        shutil.rmtree(directory, ignore_errors=True)


def listed(mpstui: Mpstui, node: SimNode) -> dict[str, list]:
    told = mpstui("partition", "list", "--json", "--pipe-dir", node.pipe_dir)
    assert told.status == 0, told
    return told.json["sm_partitions"]


def uuids(node: SimNode) -> list[str]:
    return [device["uuid"] for device in json.loads((node.pipe_dir / "mpstui-simulated").read_text())["devices"]]


def exported(told: Run) -> dict[str, str]:
    lines = [line.strip().removeprefix("export ") for line in told.out.splitlines() if "export " in line]
    return dict(line.split("=", 1) for line in lines)


def test_a_partition_is_added_used_and_removed(static: SimNode, mpstui: Mpstui, tmp_path: Path) -> None:
    at, device = ("--pipe-dir", static.pipe_dir), uuids(static)[1]
    empty = listed(mpstui, static)
    assert [d["chunks_free"] for d in empty["devices"]] == [15, 15]
    assert [d["sms_per_chunk"] for d in empty["devices"]] == [None, None]
    told = mpstui("partition", "add", "--device", device[:8], "--chunks", "7", *at)
    assert told.status == 0, told
    variables = exported(told)
    assert variables["CUDA_MPS_PIPE_DIRECTORY"] == str(static.pipe_dir)
    name = variables["CUDA_MPS_SM_PARTITION"]
    assert name.startswith(f"{device}/")
    client = static.spawn(env=variables)
    assert (client.status(), client.sm_count) == ("connected", 56)
    (partition,) = listed(mpstui, static)["partitions"]
    assert partition == {
        "name": name, "id": name.partition("/")[2], "device_uuid": device, "chunks": 7, "sm_count": 56, "in_use": True,
        "clients": [client.pid],
    }  # fmt: skip
    refused = mpstui("partition", "rm", name, "--yes", *at)
    assert refused.status == 6
    assert str(client.pid) in refused.err
    client.tell("exit")
    client.wait()
    asked = mpstui("partition", "rm", name, *at)
    assert asked.status == 6, "nobody was there to say yes"
    assert "error 915" in asked.err
    told = mpstui("partition", "rm", name, "--yes", "--json", *at)
    assert (told.status, told.json["done"]) == (0, True)
    assert listed(mpstui, static)["partitions"] == []
    entries = [json.loads(line) for line in (tmp_path / "audit.jsonl").read_text().splitlines()]
    sent = [e["command"] for e in entries if e.get("sent")]
    assert sent == [f"sm_partition add {device} 7", f"sm_partition rm {device} {name.partition('/')[2]}"]


def test_sms_come_to_whole_chunks_that_were_read_before(static: SimNode, mpstui: Mpstui) -> None:
    at, device = ("--pipe-dir", static.pipe_dir), uuids(static)[0]
    for wrong in ("20", "12"):
        told = mpstui("partition", "add", "--device", device, "--sms", wrong, *at)
        assert told.status == 2
        assert "whole number of chunks of 8" in told.err
        assert listed(mpstui, static)["partitions"] == [], "the chunk that was added to be read is gone again"
    told = mpstui("partition", "add", "--device", device, "--sms", "64", *at)
    assert told.status == 0, told
    (partition,) = listed(mpstui, static)["partitions"]
    assert (partition["chunks"], partition["sm_count"]) == (8, 64)
    told = mpstui("partition", "add", "--device", device, "--sms", "64", *at)
    assert told.status == 1
    assert "7 that are free" in told.err


@pytest.mark.parametrize(
    ("arguments", "status", "word"),
    [
        (("add", "--device", "GPU-nope", "--chunks", "1"), 2, "no device"),
        (("add", "--device", "0", "--chunks", "16"), 1, "more than the 15"),
        (("add", "--device", "0", "--chunks", "0"), 2, "no size"),
        (("add", "--device", "0", "--chunks", "1; quit"), 2, "no size"),
        (("add", "--device", "0", "--chunks", "1", "--sms", "8"), 2, "not allowed"),
        (("add", "--device", "0"), 2, "required"),
        (("rm", "nope", "--yes"), 1, "no partition"),
        (("rm", "a\nquit", "--yes"), 1, "no partition"),
        (("rm", "\x1b[2J", "--yes"), 1, "no partition"),
    ],
)
def test_what_cannot_be_is_refused_and_nothing_is_sent(
    static: SimNode, mpstui: Mpstui, arguments: tuple[str, ...], status: int, word: str
) -> None:
    told = mpstui("partition", *arguments, "--pipe-dir", static.pipe_dir)
    assert (told.status, word in told.err) == (status, True), told
    assert "\x1b" not in told.err
    assert "Cmd:sm_partition" not in (static.log_dir / "control.log").read_text()
    assert static.daemon_pid is not None


def test_one_id_on_two_devices_has_to_be_named_whole(static: SimNode, mpstui: Mpstui) -> None:
    at = ("--pipe-dir", static.pipe_dir)
    names = [
        exported(mpstui("partition", "add", "--device", d, "--chunks", "1", *at))["CUDA_MPS_SM_PARTITION"]
        for d in uuids(static)
    ]
    identity = names[0].partition("/")[2]
    assert names[1].endswith(f"/{identity}")
    told = mpstui("partition", "rm", identity, "--yes", *at)
    assert told.status == 2
    assert all(name in told.err for name in names)
    assert mpstui("partition", "rm", names[1], "--yes", *at).status == 0
    assert [p["name"] for p in listed(mpstui, static)["partitions"]] == names[:1]


def test_a_client_without_a_partition_is_refused_and_percentages_have_no_effect(
    static: SimNode, mpstui: Mpstui
) -> None:
    at = ("--pipe-dir", static.pipe_dir)
    client = static.spawn()
    assert (client.status(), client.error) == ("refused", 915)
    told = mpstui("set", "active-thread-percentage", "50", "--default", *at)
    assert told.status == 6
    assert "no effect" in told.err
    assert "Cmd:set_default" not in (static.log_dir / "control.log").read_text()
    assert mpstui("set", "pinned-mem-limit", "2G", "--device", "0", "--default", *at).status == 0
    assert mpstui("load", "fma", "--seconds", "1", *at).status == 6
    told = mpstui("status", *at)
    assert told.status == 0
    assert "no effect" in next(line for line in told.out.splitlines() if line.startswith("default"))


def test_the_partition_that_a_client_names_is_its_claim_and_printable(static: SimNode, mpstui: Mpstui) -> None:
    at, device = ("--pipe-dir", static.pipe_dir), uuids(static)[0]
    name = exported(mpstui("partition", "add", "--device", device, "--chunks", "2", *at))["CUDA_MPS_SM_PARTITION"]
    client = static.spawn(env={"CUDA_MPS_SM_PARTITION": name})
    (daemon,) = mpstui("status", "--json", *at).json["daemons"]
    (found,) = daemon["servers"][0]["clients"]
    assert (found["pid"], found["sm_partition"], found["sm_count"]) == (client.pid, name, 16)
    assert found["active_thread_percentage"] is None
    assert daemon["sm_partitions"]["partitions"][0]["clients"] == [client.pid]


@pytest.mark.parametrize(
    ("driver", "word"),
    [("590.44.01", "mpstui daemon start --static"), ("580.159.04", "static partitions are not in driver 580")],
)
def test_a_daemon_without_them_says_how_one_gets_them(tmp_path: Path, mpstui: Mpstui, driver: str, word: str) -> None:
    node = SimNode.start(tmp_path / "n", driver=driver)
    try:
        for arguments in (("list",), ("add", "--device", "0", "--chunks", "1"), ("rm", "x", "--yes")):
            told = mpstui("partition", *arguments, "--pipe-dir", node.pipe_dir)
            assert told.status == 6
            assert word in told.err
    finally:
        node.stop()


def test_a_daemon_is_started_with_them(tmp_path: Path, mpstui: Mpstui) -> None:
    place = Path(tempfile.mkdtemp(prefix="mpstui-static-"))
    node = SimNode.start(place / "n", daemon=False, driver="590.44.01")
    try:
        told = mpstui("daemon", "start", "--static", "--pipe-dir", node.pipe_dir, "--log-dir", node.log_dir)
        assert told.status == 0, told
        assert len(listed(mpstui, node)["devices"]) == 2
        unit = mpstui("daemon", "unit", "systemd", "--static", "--pipe-dir", node.pipe_dir)
        assert "nvidia-cuda-mps-control -d -S" in unit.out
    finally:
        node.stop()
        shutil.rmtree(place, ignore_errors=True)


def test_a_plan_in_chunks_is_carried_out_as_printed(static: SimNode, mpstui: Mpstui) -> None:
    at, device = ("--pipe-dir", static.pipe_dir), uuids(static)[0]
    told = mpstui("plan", "--static", "--clients", "4", "--device", device, "--json", *at)
    assert told.status == 0, told
    assert [share["chunks"] for share in told.json["clients"]] == [3, 3, 3, 3]
    assert [share["sm_count_about"] for share in told.json["clients"]] == [None] * 4
    for command in told.json["commands"]:
        assert mpstui(*command.split()[1:], *at).status == 0
    assert [p["chunks"] for p in listed(mpstui, static)["partitions"]] == [3, 3, 3, 3]
    told = mpstui("plan", "--static", "--clients", "3", "--device", device, *at)
    assert told.status == 0
    assert "≈8" in told.out
    one = mpstui("plan", "--static", "--clients", "2", "--device", device, *at)
    assert f"{device}: 3 of 15 chunks are free" in one.out, one
    assert "  left: 1 chunk" in one.out.splitlines(), one
    assert mpstui("plan", "--static", "--clients", "4", "--device", device, *at).status == 2, "three are left"
    assert mpstui("plan", "--static", "--clients", "4", "--apply", "--device", device, *at).status == 2
    assert mpstui("plan", "--static", "--clients", "4", *at).status == 2, "which of two devices"


def test_a_plan_in_chunks_is_applied_once_it_is_agreed_to(static: SimNode, mpstui: Mpstui) -> None:
    device = uuids(static)[0]
    words = ("plan", "--static", "--weights", "2,1", "--device", device, "--apply", "--pipe-dir", static.pipe_dir)
    asked = mpstui(*words)
    assert (asked.status, "hits nobody" in asked.err, "--yes" in asked.err) == (6, True, True)
    dry = mpstui(*words, "--dry-run")
    assert (dry.status, "mpstui partition add" in dry.out) == (0, True)
    assert mpstui(*words, "--yes", "--read-only").status != 0
    assert listed(mpstui, static)["partitions"] == []
    told = mpstui(*words, "--yes", "--json")
    assert told.status == 0, told
    names = [share["sm_partition"] for share in told.json["clients"]]
    there = {p["name"]: p["chunks"] for p in listed(mpstui, static)["partitions"]}
    assert {name: there[name] for name in names} == dict(zip(names, (10, 5), strict=True))
    again = mpstui(*words, "--yes")
    assert (again.status, len(listed(mpstui, static)["partitions"])) == (2, 2), "no chunk is free"


@pytest.mark.parametrize("back", [True, False])
def test_where_one_fails_those_before_it_are_taken_back_or_named(
    back: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[Request] = []

    def do(request: Request) -> Result:
        asked.append(request)
        if request.action == "remove_partition":
            return Result(request, ExitStatus.DONE, "gone")
        if request.value == "2 chunks":
            return Result(request, ExitStatus.REFUSED_BY_DAEMON, "no more")
        return Result(request, ExitStatus.DONE, "there", outcome=SmPartition("GPU-0", "A", 5, 40, False))

    options = argparse.Namespace(json=True, yes=True, go_back=back)
    plan = StaticPlan("GPU-0", 9, 9, (StaticShare("a", 5), StaticShare("b", 2), StaticShare("c", 1)))
    node = cast(api.Node, SimpleNamespace(do=do))
    status = _apply_static(options, plan, node, Snapshot(0.0), Daemon(Path("/p")))
    assert status is ExitStatus.REFUSED_BY_DAEMON
    assert [request.value for request in asked] == ["5 chunks", "2 chunks", *(["GPU-0/A"] if back else [])]
    told = capsys.readouterr()
    assert ("partition rm GPU-0/A" in told.err) is not back
    left = [share["sm_partition"] for share in json.loads(told.out)["clients"]]
    assert left == [None if back else "GPU-0/A", None, None]


@pytest.mark.slow
def test_partitions_are_saved_with_the_daemon_and_made_again(static: SimNode, mpstui: Mpstui, tmp_path: Path) -> None:
    """What ``daemon stop`` takes away: its question says so, ``profile save`` keeps it, ``profile apply`` makes it."""
    at, config = ("--pipe-dir", static.pipe_dir), {"XDG_CONFIG_HOME": str(tmp_path / "config")}
    first, second = uuids(static)
    made = []
    for device, chunks in ((first, 3), (first, 3), (second, 5)):
        told = mpstui("partition", "add", "--device", device, "--chunks", chunks, *at)
        made.append(exported(told)["CUDA_MPS_SM_PARTITION"])
    asked = mpstui("daemon", "stop", *at)
    assert (asked.status, "3 static partitions of 3, 3, 5 chunks" in asked.err) == (6, True), asked
    assert mpstui("profile", "save", "day", *at, **config).err == ""
    text = (tmp_path / "config" / "mpstui" / "profiles" / "day.toml").read_text()
    assert "static = true" in text
    assert mpstui("profile", "diff", "day", *at, **config).status == 0
    mpstui("partition", "rm", made[0], "--yes", *at)
    mpstui("partition", "rm", made[2], "--yes", *at)
    differs = mpstui("profile", "diff", "day", "--json", *at, **config)
    assert (differs.status, [d["what"] for d in differs.json["differences"]]) == (
        1, [f"partition of 3 chunks on {first}", f"partition of 5 chunks on {second}"]
    )  # fmt: skip
    told = mpstui("profile", "apply", "day", *at, **config)
    assert told.status == 0, told
    there = sorted((p["device_uuid"], p["chunks"]) for p in listed(mpstui, static)["partitions"])
    assert there == sorted([(first, 3), (first, 3), (second, 5)])
    assert "nothing had to be changed" in mpstui("profile", "apply", "day", *at, **config).out

    # One that does not fit: those before it are taken back by the ids that they got.
    more = text + f'\n[[daemon.partition]]\ndevice = "{second}"\nchunks = 2\n' * 2
    (tmp_path / "config" / "mpstui" / "profiles" / "more.toml").write_text(
        f'{more}\n[[daemon.partition]]\ndevice = "{second}"\nchunks = 9\n'
    )
    failed = mpstui("profile", "apply", "more", "--go-back", *at, **config)
    assert (failed.status, failed.err.count("undone: partition of 2 chunks")) == (1, 2), failed
    assert sorted((p["device_uuid"], p["chunks"]) for p in listed(mpstui, static)["partitions"]) == there
    refused = mpstui("daemon", "unit", "slurm", "--profile", "day", **config)
    assert (refused.status, "cannot create partitions" in refused.err) == (2, True), refused

    # The unit's own lines on this daemon: one more of each, and its name left for services.
    stands_in = {"MPSTUI_CONTROL_BINARY": control_binary()[-1], "MPSTUI_SIM_DRIVER": "590"}  # for this machine's own
    unit = mpstui("daemon", "unit", "systemd", "--profile", "day", *at, **config, **stands_in)
    assert unit.status == 0, unit
    made = [line.partition("-c '")[2][:-1] for line in unit.out.splitlines() if "sm_partition add" in line]
    assert len(made) == 3
    (place,) = re.findall(r">(/run/[^ ]+)/partition-1", made[0])
    shell = made[0].replace("$$", "$").replace("\\\\", "\\").replace(place, str(tmp_path))
    done = subprocess.run(
        ["/bin/sh", "-c", shell.replace("/usr/bin/nvidia-cuda-mps-control", shlex.join(control_binary()))],
        env={**os.environ, "CUDA_MPS_PIPE_DIRECTORY": str(static.pipe_dir)}, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0
    variable, _, name = (tmp_path / "partition-1").read_text().strip().partition("=")
    now = [f"{p['device_uuid']}/{p['id']}" for p in listed(mpstui, static)["partitions"]]
    assert (variable, len(now), name in now) == ("CUDA_MPS_SM_PARTITION", 4, True)
