"""The shipped PTX belongs to its source, and every driver from 525 on can read it."""

from __future__ import annotations

import hashlib
import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

from mpstui.load.types import INFO, KERNELS
from mpstui.load.workloads import FUNCTIONS, ptx

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ROOT / "mpstui" / "load" / "kernels"
HAS_NVRTC = importlib.util.find_spec("nvidia") is not None and importlib.util.find_spec("nvidia.cuda_nvrtc") is not None


@pytest.mark.parametrize("kernel", KERNELS)
def test_ptx_was_made_from_the_source_beside_it(kernel: str) -> None:
    digest = hashlib.sha256((SOURCES / f"{kernel}.cu").read_bytes()).hexdigest()
    assert ptx(kernel).decode().splitlines()[0] == f"// source: {kernel}.cu sha256 {digest}"


@pytest.mark.parametrize("kernel", KERNELS)
def test_ptx_is_of_an_isa_and_a_target_that_old_drivers_and_devices_take(kernel: str) -> None:
    text = ptx(kernel).decode()
    version = re.search(r"^\.version (\d+)\.(\d+)$", text, re.MULTILINE)
    assert version is not None
    assert (int(version[1]), int(version[2])) <= (7, 8)
    assert re.search(r"^\.target sm_70$", text, re.MULTILINE)


@pytest.mark.parametrize("kernel", KERNELS)
def test_ptx_holds_the_functions_that_workers_ask_for(kernel: str) -> None:
    entries = re.findall(rb"^\.visible \.entry (\w+)\(", ptx(kernel), re.MULTILINE)
    assert {entry.decode() for entry in entries} == set(FUNCTIONS[kernel])


def test_each_source_has_a_docstring_and_each_kernel_a_description() -> None:
    assert {file.stem for file in SOURCES.glob("*.cu")} == set(KERNELS) == set(FUNCTIONS)
    for file in SOURCES.glob("*.cu"):
        assert re.match(r"// [A-Z0-9].+", file.read_text()), file.name
    assert all(INFO[kernel].text for kernel in KERNELS)


@pytest.mark.skipif(not HAS_NVRTC, reason="NVRTC 11.8 is not installed")
def test_compiling_again_gives_the_same() -> None:
    done = subprocess.run([sys.executable, ROOT / "scripts" / "build-ptx", "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
