"""``make test-real``: the part of the contract that needs no GPU, on a vendor's binary; a new one is recorded."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from control.test_drivers import answers_in

from contract.control_node import RECORDINGS, ControlNode, binary_there, name_of, record
from contract.harness import WAIT, Node, chosen
from mpstui.control.binary import look
from mpstui.control.drivers import COMMANDS, DRIVERS, driver_of
from mpstui.sim.marker import control_binary

SUITE = Path(__file__).parent


@pytest.mark.every_driver
@pytest.mark.skipif(chosen() != "control", reason="needs MPSTUI_REAL_CONTROL: make test-real")
async def test_a_new_binary_is_recorded(node: Node) -> None:
    """Where no row of the table is like it; MPSTUI_REAL_DRIVER names its driver, where it is known."""
    assert isinstance(node, ControlNode)
    knows = await look(node.binary, WAIT)
    if node.driver is not None:
        print(f"{binary_there()} is like driver {node.driver.version}, which the table has")
        return
    folder = Path(os.environ.get("MPSTUI_REAL_RECORDINGS") or RECORDINGS)
    path = folder / f"daemon-{name_of(node, knows)}.txt"
    path.write_text(record(node, name_of(node, knows)))
    print(f"a new control binary: {path} has what it says; its row of mpstui/control/drivers.py is to be written")
    told = answers_in(path.read_text())
    assert {verb for verb in COMMANDS if told.get(verb, "").startswith("Unknown")} == set(node.unknown)


def fake(folder: Path, driver: str, version: str | None = None) -> Path:
    """A control binary made of the stand-in of that driver; with ``version`` it says that it is another one."""
    path = folder / "nvidia-cuda-mps-control"
    says = f"test \"$1\" = -v && echo 'CUDA MPS Control for Linux/Unix/QNX. Binary version: {version}' && exit 0\n"
    path.write_text(f'#!/bin/sh\n{says if version else ""}exec {shlex.join(control_binary(driver))} "$@"\n')
    path.chmod(0o755)
    return path


@pytest.mark.skipif(chosen() != "sim", reason="starts the suite by itself")
@pytest.mark.parametrize(
    ("driver", "version", "recorded"), [("535.261.03", None, ()), ("615.71", "13990", ("daemon-binary-13990.txt",))]
)
def test_the_part_without_a_gpu_runs_on_any_binary(
    tmp_path: Path, driver: str, version: str | None, recorded: tuple[str, ...], request: pytest.FixtureRequest
) -> None:
    place = Path(tempfile.mkdtemp(prefix="mpstui-fake-", dir="/tmp"))
    request.addfinalizer(lambda: shutil.rmtree(place, ignore_errors=True))
    place.chmod(0o755)  # another user runs it too
    binary, folder = fake(place, driver, version), tmp_path / "recordings"
    folder.mkdir()
    environment = {
        **os.environ,
        "MPSTUI_CONTRACT": "control",
        "MPSTUI_REAL_CONTROL": str(binary),
        "MPSTUI_REAL_RECORDINGS": str(folder),
    }
    command = [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", "-p", "no:xdist", str(SUITE)]
    done = subprocess.run(
        command, env=environment, cwd=SUITE.parents[1], capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stdout[-3000:]
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed is not None, done.stdout[-3000:]
    assert int(passed[1]) >= 18, done.stdout[-3000:]
    assert tuple(path.name for path in folder.iterdir()) == recorded
    for name in recorded:
        text = (folder / name).read_text()
        told, row = answers_in(text), driver_of(driver)
        assert row is not None
        assert {verb for verb in COMMANDS if told.get(verb, "").startswith("Unknown")} == row.absent
        assert "Cmd:set_default_client_priority 1" in text
        assert str(tmp_path) not in text


def test_each_driver_is_told_from_the_others_by_what_its_binary_says() -> None:
    seen = [(d.options, d.absent, d.binary_version) for d in DRIVERS]
    assert len(set(seen)) == len(seen)
