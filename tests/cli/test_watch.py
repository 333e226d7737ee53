"""``status --watch``: a line in words for each thing that comes, goes or changes; none for what moves by itself."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from mpstui import api
from mpstui.cli import main
from mpstui.cli.watch import differences, things
from mpstui.core.model import Client, Context, Daemon, Device, OldLimit, Problem, ProcessKey, Server, Snapshot
from mpstui.core.trust import Speaker

GPU = "GPU-11111111-aaaa"


def client(pid: int, **more: object) -> Client:
    usual = Client(ProcessKey(pid, pid), user="bob", command="train", server_pid=7, state="ACTIVE")
    return replace(usual, **more)


def node(*clients: Client, status: str = "ACTIVE", threads: float | None = 50.0, **more: object) -> Snapshot:
    server = Server(ProcessKey(7, 7), user="root", status=status, active_thread_percentage=threads, clients=clients)
    return Snapshot(
        0.0,
        daemons=(Daemon(Path("/p"), servers=(server,), ordinals={"0": GPU}),),
        devices=(Device(GPU, 0, "H100"),),
        **more,
    )


def said(before: Snapshot, now: Snapshot) -> list[str]:
    return list(differences(things(before), things(now)))


def test_what_is_there_is_said_once_and_what_moves_by_itself_never() -> None:
    one = node(client(1, gpu_memory={GPU: 5}))
    lines = list(differences({}, things(one)))
    assert [line.partition(":")[0] for line in lines] == ["new"] * 4
    assert "new: client 1 bob train: state ACTIVE, server 7, GPU 0" in lines
    assert said(one, node(client(1, gpu_memory={GPU: 6}, cpu_percent=70.0))) == []


def test_each_change_is_a_line_in_words() -> None:
    before = node(client(1), client(2), threads=None)
    fault = Problem("error", "fault", "server 7", f"a client faulted on {GPU}", "end clients 1, 2")
    now = node(client(1, state="TERMINATED"), client(3), status="FAULT", problems=(fault,))
    assert said(before, now) == [
        "gone: client 2 bob train",
        "server 7 of root: status from ACTIVE to FAULT",
        "server 7 of root: threads 50 %",
        "client 1 bob train: state from ACTIVE to TERMINATED",
        "new: client 3 bob train: state ACTIVE, server 7",
        "new: error: server 7: a client faulted on GPU 0. Remedy: end clients 1, 2",
    ]
    waits = Problem("warning", "waiting", "client 9", "Client 9 (bob) waits", "wait")
    assert said(before, replace(before, problems=(waits,))) == ["new: warning: Client 9 (bob) waits. Remedy: wait"]
    by_log = node(client(1), status="FAULT?")
    assert "server 7 of root: status from FAULT by the log to FAULT" in said(by_log, now)
    limited = node(client(1, pinned_mem_limits={"0": 16 << 30, "1": 24 << 30}), client(2), threads=None)
    limits = "memory limits from none to GPU 0: 16.0 GiB, device 1: 24.0 GiB"
    assert any(line.endswith(limits) for line in said(before, limited)), (
        "by the daemon's own number where no more is known"
    )
    assert said(now, replace(now, problems=()))[0].startswith("gone: error: server 7: a client faulted")
    assert said(
        before,
        node(client(1, old_limits=(OldLimit("active_thread_percentage", 100.0, 50.0),)), client(2), threads=None),
    ) == ["client 1 bob train: outdated limits from no to yes"]


def test_a_name_that_becomes_known_is_no_change_and_another_device_is_one() -> None:
    named = node(client(1, contexts=(Context(1, GPU),), pinned_mem_limits={"0": 16 << 30}))
    unnamed = replace(named, devices=(), daemons=(replace(named.daemons[0], ordinals={}),))
    assert said(unnamed, replace(named, devices=())) == []
    lines = [*said(unnamed, named), *said(named, unnamed)]
    assert [line.split()[:2] for line in lines] == [["new:", "GPU"], ["gone:", "GPU"]]
    limited = node(client(1, contexts=(Context(1, GPU),), pinned_mem_limits={"0": 8 << 30}))
    assert said(named, limited) == ["client 1 bob train: memory limits from GPU 0: 16.0 GiB to GPU 0: 8.0 GiB"]
    moved = node(client(1, contexts=(Context(1, "GPU-2"),), pinned_mem_limits={"0": 16 << 30}))
    assert [line.split(": ")[1][:3] for line in said(named, moved)] == ["GPU"]


def test_a_pid_that_is_used_again_is_another_client_and_a_name_cannot_forge_a_line() -> None:
    again = client(1, key=ProcessKey(1, 99), command="x\n00:00:00 gone: server 7\u202e")
    lines = said(node(client(1)), node(again))
    assert [line.split()[:4] for line in lines] == [["gone:", "client", "1", "bob"], ["new:", "client", "1", "bob"]]
    assert all(line.isprintable() for line in lines)


def test_the_command_prints_until_there_is_no_more(monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    class Node:
        def watch(self, *, whole_within: float):
            assert whole_within > 0
            yield node(source="simulated")
            yield node(client(1))

    @contextmanager
    def opened(*_: object, **__: object):
        yield Node()

    monkeypatch.setattr(api, "open", opened)
    assert main(["status", "--watch", "--pipe-dir", "/p"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("SIMULATED")
    assert lines[-1].split(" ", 1)[1].startswith("new: client 1 bob train")
    for other in (["--json"], ["--health"], ["--at", "10m"], ["--group-by", "user"], ["--fields", "pid"]):
        assert main(["status", "--watch", *other]) == 2
    assert "--watch stands alone: not with --fields" in capsys.readouterr().err


def test_what_another_users_daemon_says_is_said_by_that_user() -> None:
    told = node(client(1))
    theirs = replace(told.daemons[0], uid=64101, user="mallory", speaker=Speaker(64101, "a daemon of mallory"))
    lines = list(differences({}, things(replace(told, daemons=(theirs,)))))
    of_daemon = [line for line in lines if line.startswith(("new: daemon", "new: server", "new: client"))]
    assert of_daemon
    assert all(", as mallory's daemon says" in line for line in of_daemon)
