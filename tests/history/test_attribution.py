"""A change is laid at the door of the one in whose audit log it stands, and at nobody else's."""

from __future__ import annotations

from datetime import datetime, timezone

import pytest

from mpstui.core.model import Event
from mpstui.history.attribution import AuditTrail
from mpstui.operations.audit import AuditLog

NOW = 1795210142.0
SET = "set_active_thread_percentage 634 25"


def event(time=NOW, command=SET, kind="limit_set"):
    return Event(kind, time, detail="25 %", values={"command": command} if command else {})


@pytest.fixture
def trail(tmp_path, monkeypatch):
    monkeypatch.setenv("SUDO_USER", "alice")
    moment = datetime.fromtimestamp(NOW + 0.1, timezone.utc)
    log = AuditLog(tmp_path / "audit.jsonl", lambda: moment)
    assert log.write(action="set_active_thread_percentage", command=SET) is None
    with log.path.open("ab") as out:
        out.write(b"\xff garbage\n[1]\n{}\n" + b"[" * 100_000 + b"\n")
    return AuditTrail(log.path)


def test_the_author_is_named(trail):
    named = trail.named(event())
    assert named.values["by"] == "alice"
    assert named.detail == "25 %, by alice"


@pytest.mark.parametrize(
    "other",
    [
        event(time=NOW - 60),
        event(time=NOW + 60),
        event(command="set_active_thread_percentage 634 50"),
        event(command=None),
        event(kind="fatal_fault"),
        event(time=None),
    ],
)
def test_nobody_is_named_for_something_else(trail, other):
    assert trail.named(other) is other


def test_without_an_audit_log_nobody_is_known(tmp_path):
    assert AuditTrail(tmp_path / "none").named(event()) == event()
