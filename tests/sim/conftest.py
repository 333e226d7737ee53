"""Simulated nodes for tests: each in a directory of its own whose name fits into a socket's address."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mpstui.sim import marker
from mpstui.sim.node import SimNode


@pytest.fixture(autouse=True)
def the_script_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """Here the stand-in is what is tested: nothing answers in its place."""
    monkeypatch.setattr(marker, "sys", sys)


@pytest.fixture
def pipe_dir() -> Iterator[Path]:
    directory = Path(tempfile.mkdtemp(prefix="mpstui-"))
    yield directory
    shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture
def start(pipe_dir: Path) -> Iterator[Callable[..., SimNode]]:
    """Starts nodes that end with the test."""
    nodes: list[SimNode] = []

    def start(**options: object) -> SimNode:
        nodes.append(SimNode.start(pipe_dir, **options))
        return nodes[-1]

    yield start
    for node in nodes:
        node.stop()
