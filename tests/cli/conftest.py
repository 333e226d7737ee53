"""A simulated node for a module, and mpstui run on it as a user would run it."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import warm

from mpstui.sim.node import SimNode


@dataclass(frozen=True)
class Run:
    status: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        return json.loads(self.out)


Mpstui = Callable[..., Run]


@pytest.fixture
def mpstui(tmp_path: Path) -> Mpstui:
    """Runs ``mpstui``; keyword arguments are environment variables."""

    def run(*arguments: object, **variables: str) -> Run:
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("CUDA_", "MPSTUI_"))}
        environment = {**kept, "MPSTUI_AUDIT_LOG": str(tmp_path / "audit.jsonl"), **variables}
        ended = warm.run(*arguments, env=environment)
        assert "Traceback" not in ended.stderr, ended.stderr
        return Run(ended.returncode, ended.stdout, ended.stderr)

    return run


@contextmanager
def _running() -> Iterator[SimNode]:
    directory = Path(tempfile.mkdtemp(prefix="mpstui-cli-"))
    running = SimNode.start(directory)
    try:
        yield running
    finally:
        running.stop()
        shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture(scope="module")
def node() -> Iterator[SimNode]:
    with _running() as running:
        yield running


@pytest.fixture
def own_node() -> Iterator[SimNode]:
    """For one test alone, which changes it."""
    with _running() as running:
        yield running
