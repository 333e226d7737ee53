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


@pytest.mark.slow
@pytest.mark.skipif(chosen() != "sim", reason="starts the suite by itself")
def test_the_part_without_a_gpu_runs_on_any_binary(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """A new one and one of the table, in one process. What is tried on one driver alone is so on the new one."""
    place = Path(tempfile.mkdtemp(prefix="mpstui-fake-", dir="/tmp"))
    request.addfinalizer(lambda: shutil.rmtree(place, ignore_errors=True))
    place.chmod(0o755)  # another user runs it too
    runs: list[tuple[str, str, Path, list[str]]] = []
    for driver, version, more in (("615.71", "13990", []), ("535.261.03", None, ["-m", "not no_server"])):
        for folder in (here := place / driver, recordings := tmp_path / driver):
            folder.mkdir()
        here.chmod(0o755)
        runs.append((driver, str(fake(here, driver, version)), recordings, more))
    program = f"""
import os, sys, pytest
status = 0
for driver, binary, recordings, more in {[(d, b, str(r), m) for d, b, r, m in runs]!r}:
    os.environ.update(MPSTUI_REAL_CONTROL=binary, MPSTUI_REAL_RECORDINGS=recordings)
    print(f"@@@ {{driver}}", flush=True)
    status |= pytest.main(["-v", "-p", "no:cacheprovider", "-p", "no:xdist", *more, {str(SUITE)!r}])
sys.exit(status)
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "MPSTUI_CONTRACT": "control"},
        cwd=SUITE.parents[1],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
    said = dict(zip((each[0] for each in runs), done.stdout.split("@@@ ")[1:], strict=True))
    recorded = {driver: tuple(path.name for path in folder.iterdir()) for driver, _, folder, _ in runs}
    assert recorded == {"615.71": ("daemon-binary-13990.txt",), "535.261.03": ()}
    for driver, least in (("615.71", 15), ("535.261.03", 8)):
        passed = re.search(r"(\d+) passed", said[driver])
        assert passed is not None, said[driver][-3000:]
        assert int(passed[1]) >= least, said[driver][-3000:]
    text = (tmp_path / "615.71" / "daemon-binary-13990.txt").read_text()
    told, row = answers_in(text), driver_of("615.71")
    assert row is not None
    assert {verb for verb in COMMANDS if told.get(verb, "").startswith("Unknown")} == row.absent
    assert "Cmd:set_default_client_priority 1" in text
    assert str(place) not in text


def test_each_driver_is_told_from_the_others_by_what_its_binary_says() -> None:
    seen = [(d.options, d.absent, d.binary_version) for d in DRIVERS]
    assert len(set(seen)) == len(seen)
