"""What the exporter tells of another user's daemon: alerts, and whoever pays by user, go by it."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mpstui.cli.status import to_json
from mpstui.core import condition
from mpstui.core.model import Client, Context, ProcessKey, Server, Snapshot, StartFailures
from mpstui.core.trust import ANYBODY, Speaker
from mpstui.export.metrics import Metrics
from mpstui.fleet import Prometheus, from_status
from tests.operations.fakes import GPU, as_root, client, node

MALLORY = Speaker(64101, "a daemon of mallory")
RULES = Path(__file__).parents[2] / "deploy" / "prometheus" / "mpstui.rules.yml"


def text(snapshot: Snapshot, **how: Any) -> str:
    metrics = Metrics(**how)
    metrics.take(snapshot, 0.0)
    return metrics.rendered("")[1].decode()


def mallorys(*clients: Client, **changes: Any) -> Snapshot:
    shown = node(*clients, uid=64101, user="mallory", speaker=MALLORY)
    (daemon,) = shown.daemons
    own = replace(daemon.servers[0], uid=64101, user="mallory", status="FAULT")
    return replace(shown, daemons=(replace(daemon, servers=(own,), **changes),))


@as_root
@pytest.mark.parametrize("per_process", [False, True])
def test_nobody_else_is_told_to_be_a_client_of_a_users_daemon(per_process: bool) -> None:
    """Root's processes, and anybody's, were clients of MPS by the word of whoever ran a daemon."""
    own = replace(client(700), uid=64101, user="mallory")
    other = replace(client(701), uid=64102, user="bystander")
    roots = Server(ProcessKey(1, 1), 0, "root", "ACTIVE", clients=(replace(client(702), uid=0, user="root"),))
    (daemon,) = mallorys(own, other).daemons
    shown = replace(mallorys(own, other), daemons=(replace(daemon, servers=(*daemon.servers, roots)),))
    told = text(shown, per_process=per_process)
    assert "mps_clients{" in told
    assert 'user="mallory"' in told
    assert 'user="bystander"' not in told
    assert 'user="root"' not in told
    of_roots = node(replace(client(701), uid=64102, user="bystander"))
    assert 'user="bystander"' in text(of_roots), "root's daemon has clients of all"


def test_what_is_one_users_word_alone_is_told_to_be() -> None:
    assert re.search(r'^mps_daemon_info\{.*claimant="mallory"', text(mallorys()), re.MULTILINE)
    assert re.search(r'^mps_daemon_info\{.*claimant=""', text(node()), re.MULTILINE)
    usurped = node(speaker=MALLORY._replace(sockets=(64101, ANYBODY)))
    assert re.search(r'^mps_daemon_info\{.*claimant=""', text(usurped), re.MULTILINE), "a daemon of root's is cut off"


def test_contexts_that_another_user_claims_fill_no_device() -> None:
    many = replace(client(700), contexts=tuple(Context(n, GPU) for n in range(48)), uid=64101, user="mallory")
    of_mallory = mallorys(many)
    of_root = replace(node(client(643)).daemons[0], pipe_dir=Path("/tmp/mps_1"))
    devices = (replace(of_mallory.devices[0], contexts=49, context_limit=48), *of_mallory.devices[1:])
    told = text(replace(of_mallory, daemons=(*of_mallory.daemons, of_root), devices=devices))
    (contexts,) = re.findall(rf'^mps_gpu_contexts\{{.*UUID="{GPU}".*\}} (.*)$', told, re.MULTILINE)
    assert float(contexts) == 1


def test_no_alert_goes_by_the_word_of_another_user() -> None:
    """Whoever ran a daemon of his own had the node's admin called by night. What his own clients have of a device NVML
    tells, and who launches the kernel."""
    whole = RULES.read_text()
    for alert in re.split(r"(?m)^ +- alert: ", whole)[1:]:
        expr = alert.partition("expr: |")[2].partition("labels:")[0]
        if "$labels.pipe_dir" in alert and not alert.startswith(("MpsIdleMemory", "MpsNoLaunches")):
            assert 'unless on (instance, Hostname, hostname, pipe_dir) mps_daemon_info{claimant!=""}' in expr, alert


@pytest.mark.parametrize("beside", [False, True], ids=["alone", "beside root's"])
@pytest.mark.parametrize("what", ["FAULT", "blocked", "start failures"])
def test_no_node_of_a_fleet_is_what_a_strangers_daemon_says(what: str, beside: bool) -> None:
    shown = mallorys(replace(client(700), uid=64101, user="mallory"))
    (his,) = shown.daemons
    if what != "FAULT":
        his = replace(his, servers=(replace(his.servers[0], status="ACTIVE"),))
    if what == "blocked":
        his = replace(his, condition=condition.silent("", (), False, condition.Moment()))
    if what == "start failures":
        his = replace(his, start_failures=StartFailures(9, 1.0, 2.0))
    roots = replace(node(client(643)).daemons[0], pipe_dir=Path("/tmp/mps_1"))
    told = from_status("n", to_json(replace(shown, daemons=(his, roots) if beside else (his,))), 1.0)
    assert told.state == ("ABSENT" if what == "blocked" and not beside else "ok")
    assert told.clients == (None if what == "blocked" and not beside else 1)
    if beside:
        assert [*told.daemons] == ["/tmp/mps_1"]
    own = replace(his, uid=0, user="root", speaker=Speaker(0, "root's daemon"))
    told = from_status("n", to_json(replace(shown, daemons=(own,))), 1.0)
    assert told.state in {"FAULT", "BLOCKED", "NOT STARTING"}


def test_nor_by_way_of_a_prometheus(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(Prometheus, "ask", lambda _, what, values: asked.append(values["query"]) or [])
    Prometheus("http://x").look(1.0)
    judging = [each for each in asked if re.match(r"mps_(daemon|server)", each)]
    assert len(judging) == 5
    assert all('mps_daemon_info{claimant!=""}' in each for each in judging)
