"""What an old driver's daemon does not have is said, where there would be a dash or "none"."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from mpstui.sim import SimNode
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
