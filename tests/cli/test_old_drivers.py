"""What an old driver's daemon does not have is said, where there would be a dash or "none"."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from mpstui.sim.node import SimNode
from mpstui.sim.serving import version_of
from mpstui.sim.simd.config import SIM_DRIVER

from .conftest import Mpstui


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A node of driver 470 with one client."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(SIM_DRIVER, "470.256.02")
        node = SimNode.start(tmp_path_factory.mktemp("o") / "n")
    node.spawn("idle")
    try:
        yield node.pipe_dir
    finally:
        node.stop()


def test_status_says_what_the_driver_has_not(mpstui: Mpstui, old: Path) -> None:
    lines = mpstui("status", "--pipe-dir", old).out.splitlines()
    at = next(number for number, line in enumerate(lines) if line.startswith("LIMITS"))
    default, server = lines[at + 1], lines[at + 2]
    assert default.count("not in driver 470") == 2  # memory and priority
    assert server.count("not in driver 470") == 1  # it has no priority of its own
    assert "none" not in default + server
    assert not [line for line in lines if line.startswith(("warning", "error"))]


def test_the_json_names_the_commands_and_keeps_its_nulls(mpstui: Mpstui, old: Path) -> None:
    (daemon,) = mpstui("status", "--pipe-dir", old, "--json").json["daemons"]
    assert {"ps", "terminate_client", "device_query", "get_server_status"} <= set(daemon["lacks"])
    assert (daemon["default_client_priority"], daemon["default_pinned_mem_limits"]) == (None, {})
    assert daemon["servers"][0]["clients"][0]["command"]


def test_fields_say_it_too(mpstui: Mpstui, old: Path) -> None:
    out = mpstui("status", "--pipe-dir", old, "--fields", "pid,id,client_priority,pinned_mem_limits").out
    assert out.splitlines()[-1].count("not in driver 470") == 3


@pytest.mark.parametrize("driver", ["535", "555"])
def test_a_memory_limit_by_uuid_where_the_daemon_was_started_with_uuids(
    mpstui: Mpstui, tmp_path: Path, driver: str
) -> None:
    """It has no device_query, and says of no ordinal which device it is."""
    node = SimNode.start(tmp_path / "n", driver=version_of(driver), daemon=False)
    at = ("--pipe-dir", node.pipe_dir, "--log-dir", node.log_dir)
    try:
        assert mpstui("daemon", "start", *at).status == 0
        second = mpstui("status", "--json", *at).json["devices"][1]["uuid"]
        refused = mpstui("set", "pinned-mem-limit", "4G", "--default", "--device", second[:8], *at)
        assert refused.status == 2
        assert (
            f"mpstui cannot find out which device '{second[:8]}' is: device_query is not in driver {driver}"
            in refused.err
        )
        assert "daemon start --device" in refused.err
        assert mpstui("daemon", "stop", "--yes", *at).status == 0
        assert mpstui("daemon", "start", "--device", "1", "--device", "0", *at).status == 0
        told = mpstui("set", "pinned-mem-limit", "4G", "--default", "--device", second[:8], *at)
        assert told.status == 0, told
        (daemon,) = mpstui("status", "--json", *at).json["daemons"]
        assert daemon["default_pinned_mem_limits"] == {"0": 4 << 30}, "its first device is the node's second"
    finally:
        node.stop()


@pytest.mark.parametrize(
    ("driver", "option"),
    [("470", None), ("535", None), ("550", None), ("555", "-multiuser-server"), ("580", "-M"), ("615", "-M")],
)
def test_multi_user_mode_is_started_as_the_binary_spells_it(
    mpstui: Mpstui, tmp_path: Path, driver: str, option: str | None
) -> None:
    node = SimNode.start(tmp_path / "n", driver=version_of(driver), daemon=False)
    at = ("--pipe-dir", node.pipe_dir, "--log-dir", node.log_dir)
    try:
        told = mpstui("daemon", "start", "--multi-user", *at)
        unit = mpstui("daemon", "unit", "systemd", "--multi-user", *at)
        if option is None:
            assert told.status == 1
            assert f"driver {driver} has no multi-user mode: start one daemon for each user" in told.err
            assert "nothing was started" in told.err
            assert not (node.pipe_dir / "control").exists()
            assert (unit.status, unit.out) == (2, "")
            assert f"driver {driver} has no multi-user mode" in unit.err
            return
        assert told.status == 0, told
        argv = Path(f"/proc/{node.daemon_pid}/cmdline").read_bytes().split(b"\0")
        assert argv[:3] == [b"nvidia-cuda-mps-control", b"-d", option.encode()]
        assert mpstui("status", *at, "--json").json["daemons"][0]["multiuser"] is True
        assert f"nvidia-cuda-mps-control -d {option}\n" in unit.out
    finally:
        node.stop()


@pytest.mark.parametrize(
    ("driver", "verdict", "words"),
    [
        ("470", "warning", "every local user may change the defaults"),
        ("550", "ok", "change nothing of others'"),
        ("615", "ok", "(as its documents say)"),
    ],
)
def test_doctor_says_what_strangers_may_do(
    mpstui: Mpstui, tmp_path: Path, driver: str, verdict: str, words: str
) -> None:
    node = SimNode.start(tmp_path / "n", driver=version_of(driver))
    try:
        findings = mpstui("doctor", "--json", "--pipe-dir", node.pipe_dir).json["findings"]
        (found,) = [finding for finding in findings if finding["check"] == "strangers"]
        assert (found["verdict"], words in found["evidence"]) == (verdict, True)
        assert f"driver {driver}" in found["evidence"]
        (binary,) = [f for f in findings if f["check"] == "binary" and f["subject"] == "nvidia-cuda-mps-control"]
        assert binary["verdict"] == "ok"
        assert ("no option that says its version" in binary["evidence"]) == (driver in {"470", "550"})
        node.pipe_dir.chmod(0o700)
        findings = mpstui("doctor", "--json", "--pipe-dir", node.pipe_dir).json["findings"]
        (found,) = [finding for finding in findings if finding["check"] == "strangers"]
        assert (found["verdict"], found["evidence"]) == ("ok", "no other user may enter its directory")
    finally:
        node.stop()


def test_how_many_contexts_a_device_takes_is_a_claim_until_the_daemon_has_said_it(
    mpstui: Mpstui, tmp_path: Path
) -> None:
    node = SimNode.start(tmp_path / "n", driver="590.44.01", gpus=1)
    try:
        node.spawn("idle", contexts=60)
        (device,) = mpstui("status", "--json", "--pipe-dir", node.pipe_dir).json["devices"]
        assert (device["context_limit"], device["context_limit_source"]) == (60, "claimed by the vendor, not measured")
        assert "60/60? " in mpstui("status", "--pipe-dir", node.pipe_dir).out
        assert node.spawn("idle").error == 46
        (device,) = mpstui("status", "--json", "--pipe-dir", node.pipe_dir).json["devices"]
        assert (device["context_limit"], device["context_limit_source"]) == (60, "said by the daemon")
        assert "60/60 " in mpstui("status", "--pipe-dir", node.pipe_dir).out
    finally:
        node.stop()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("set", "pinned-mem-limit", "1G", "--device", "0", "--default"), "is not in driver 470"),
        (("set", "client-priority", "1"), "set_default_client_priority is not in driver 470"),
        (("terminate", "CLIENT", "--yes"), "terminate_client is not in driver 470"),
        (("terminate", "CLIENT", "--kill", "--yes"), "terminate_client is not in driver 470"),
        (("plan", "--clients", "2", "--mem", "10G", "--device", "0", "--apply"), "memory limits are not in driver 470"),
        (("partition", "list"), "static partitions are not in driver 470"),
        (("daemon", "unit", "systemd", "--multi-user"), "driver 470 has no multi-user mode"),
        (("daemon", "unit", "slurm", "--static"), "driver 470 has no static partitions"),
    ],
)
def test_every_command_says_what_the_driver_has_not(
    mpstui: Mpstui, old: Path, words: tuple[str, ...], said: str
) -> None:
    before = (old / "logs" / "control.log").read_text().count("Cmd:set_")
    (daemon,) = mpstui("status", "--pipe-dir", old, "--json").json["daemons"]
    client = str(daemon["servers"][0]["clients"][0]["pid"])
    told = mpstui(*(client if word == "CLIENT" else word for word in words), "--pipe-dir", old)
    assert told.status in {1, 2, 6}, told
    assert said in told.err, told
    assert (old / "logs" / "control.log").read_text().count("Cmd:set_") == before


def test_memory_limits_go_by_the_daemons_numbers_where_it_cannot_be_asked_for_its_devices(
    mpstui: Mpstui, tmp_path: Path
) -> None:
    """535 to 555 have memory limits and no ``device_query``: with several GPUs none could be set, and a profile that
    was saved left them out without a word."""
    node = SimNode.start(tmp_path / "n", driver=version_of("550"))
    at, config = ("--pipe-dir", node.pipe_dir), {"XDG_CONFIG_HOME": str(tmp_path / "config")}
    try:
        told = mpstui("set", "pinned-mem-limit", "20G", "--device", "1", "--default", *at)
        assert (told.status, "mpstui cannot find out which GPU" in told.err) == (0, True), told
        for wrong in ("2", "01", "GPU-1", "x", "-1"):
            refused = mpstui("set", "pinned-mem-limit", "20G", f"--device={wrong}", "--default", *at)
            why = "the daemon has no device" if wrong == "2" else "mpstui cannot find out"
            assert (refused.status, why in refused.err) == (2, True), refused
        saved = mpstui("profile", "save", "day", *at, **config)
        assert (saved.status, saved.err) == (0, ""), saved
        assert mpstui("set", "pinned-mem-limit", "none", "--device", "1", "--default", *at).status == 0
        differs = mpstui("profile", "diff", "day", "--json", *at, **config).json["differences"]
        assert [(d["what"], d["wanted"], d["found"]) for d in differs] == [
            ("default memory limit on device 1", "20.0 GiB", "none")
        ]
        assert mpstui("profile", "apply", "day", *at, **config).status == 0
        (daemon,) = mpstui("status", "--json", *at).json["daemons"]
        assert daemon["default_pinned_mem_limits"] == {"1": 20 << 30}
    finally:
        node.stop()
