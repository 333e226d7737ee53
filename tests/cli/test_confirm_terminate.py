"""What is asked on the terminal may take its time: the node is looked at again after the answer."""

from __future__ import annotations

import argparse
import io
import os
from dataclasses import replace
from pathlib import Path

import pytest

from mpstui import api
from mpstui.cli import change
from mpstui.operations.registry import operation
from mpstui.system.procfs import read_stat
from tests.operations.fakes import FakeNode, client, node


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_who_is_terminated_by_somebody_else_while_the_question_stands_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MPSTUI_AUDIT_LOG", str(tmp_path / "audit.jsonl"))
    monkeypatch.setattr("sys.stdin", Terminal("y\n"))
    stat = read_stat(os.getpid())  # a process that lives; the control channel is a stand-in
    assert stat
    mine = client(stat.pid, ticks=stat.start_ticks)
    fake = FakeNode(node(mine))
    fake.control.listed = (stat.pid,)

    looks = iter((mine, replace(mine, terminate_requested=True)))

    async def once(*, need: object = None) -> object:
        fake.snapshot = node(next(looks))
        return fake.snapshot

    fake.once = once  # type: ignore[attr-defined]
    options = argparse.Namespace(command="terminate", client_pid=stat.pid, kill=False, yes=False, json=False)
    opened = api.AsyncNode((), (), 1.0, read_only=False)
    opened._collector = fake  # type: ignore[assignment]
    assert change.carry_out(operation("terminate_client"), options, api.Node(opened)) == 6
    assert not any("terminate" in command for command in fake.control.sent)
