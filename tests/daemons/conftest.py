"""A short directory for pipe directories, whose daemons are all ended with it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from folders import place_for_daemons

from mpstui.operations.audit import AuditLog


@pytest.fixture
def place() -> Iterator[Path]:
    with place_for_daemons() as folder:
        yield folder


@pytest.fixture
def audit(tmp_path: Path) -> AuditLog:
    return AuditLog(tmp_path / "audit.jsonl")
