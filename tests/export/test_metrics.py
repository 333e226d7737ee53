"""Snapshots as metrics: what is told, what is left out, and that no number of clients makes too many series."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_metrics
from prometheus_client.parser import text_string_to_metric_families as parsed
from prometheus_client.samples import Sample
from ui.snapshots import GIB, GPU0, GPU1, NOW, client, daemon, device, rich, server

from mpstui.core import condition
from mpstui.core.model import (
    Activity,
    Event,
    OutsideClient,
    PendingClient,
    ProcessKey,
    ServerFault,
    Snapshot,
    StartFailures,
)
from mpstui.core.where import Where
from mpstui.export.metrics import BY_LOGS, COUNTED, DAEMONS, OTHER, Metrics
from mpstui.fields import DAEMON, SNAPSHOT, Thing, View

PAGE = Path(__file__).parents[2] / "docs" / "exporter.md"
OPEN = "application/openmetrics-text; version=1.0.0"


def told(snapshot: Snapshot | None, **how: Any) -> list[Sample]:
    metrics = Metrics(**how)
    if snapshot is not None:
        metrics.take(snapshot, NOW - 1000)
    return samples(metrics)


def samples(metrics: Metrics) -> list[Sample]:
    return [sample for family in parsed(metrics.rendered("")[1].decode()) for sample in family.samples]


def value(found: list[Sample], name: str, **labels: str) -> float:
    (one,) = [s for s in found if s.name == name and labels.items() <= s.labels.items()]
    return one.value


def names(found: list[Sample], name: str) -> list[dict[str, str]]:
    return [{k: v for k, v in s.labels.items() if k != "Hostname"} for s in found if s.name == name]


def test_whose_number_the_limit_of_contexts_is_stands_beside_it() -> None:
    """The screen had ``3/60?``, and the metrics 60 as if that had been measured."""
    claimed = "claimed by the vendor, not measured"
    devices = (replace(device(0, 3), context_limit=60, context_limit_source=claimed),)
    found = told(Snapshot(NOW, devices=devices))
    assert value(found, "mps_gpu_contexts_limit", UUID=GPU0) == 60
    assert value(found, "mps_gpu_info", UUID=GPU0, context_limit_source=claimed) == 1
    text = Metrics()
    text.take(Snapshot(NOW, devices=devices), None)
    (help_,) = [
        line for line in text.rendered("")[1].decode().splitlines() if line.startswith("# HELP mps_gpu_contexts_limit ")
    ]
    assert "context_limit_source of mps_gpu_info" in help_


def one_daemon(**changes: Any) -> Snapshot:
    return Snapshot(NOW, host="node7", daemons=(daemon(**changes),), devices=(device(0, 3), device(1, 0)))


def things(thing: Thing[Any]) -> Iterator[Thing[Any]]:
    yield thing
    for each in thing.fields:
        if each.of is not None:
            yield from things(each.of)


def test_percent_are_ratios_and_sizes_are_bytes() -> None:
    found = told(one_daemon(servers=(server(clients=(client(0), client(3))),)))
    assert value(found, "mps_server_active_thread_ratio", user="root") == 0.25
    assert value(found, "mps_daemon_default_active_thread_ratio") == 1.0
    assert value(found, "mps_server_memory_limit_bytes", UUID=GPU0, gpu="0") == 2 * GIB
    assert value(found, "mps_client_active_thread_ratio", user="alice") == 0.25
    assert value(found, "mps_client_memory_used_bytes", user="alice", UUID=GPU0) == 500 << 20
    assert value(found, "mps_daemon_start_time_seconds") == NOW - 7400


def test_clients_are_added_up_by_state_and_user() -> None:
    mine = (client(0), client(5), client(10), client(15, state="TERMINATED"))
    found = told(one_daemon(servers=(server(clients=mine),)))
    counts = {s.labels["state"]: s.value for s in found if s.name == "mps_clients"}
    assert counts == {"ACTIVE": 2, "INACTIVE": 1, "TERMINATED": 1, "LOST": 0}
    assert {s.labels["user"] for s in found if s.name == "mps_clients"} == {"alice"}


def test_a_client_whose_contexts_a_fault_took_is_lost() -> None:
    fault = ServerFault(NOW, (), (client(0).key,))
    found = told(one_daemon(servers=(server(status="FAULT", fault=fault, clients=(client(0),)),)))
    assert value(found, "mps_clients", state="LOST") == 1
    assert value(found, "mps_servers", state="FAULT") == 1
    assert value(found, "mps_servers", state="ACTIVE") == 0


def test_a_percentage_that_has_no_effect_is_no_share_of_the_sms() -> None:
    """With static partitions a client has the SMs of its partition, and the screen says “no effect”."""
    found = told(one_daemon(static_partitioning=True, servers=(server(clients=(client(0),)),)))
    assert names(found, "mps_server_active_thread_ratio") == []
    assert names(found, "mps_daemon_default_active_thread_ratio") == []


@pytest.mark.parametrize("status", ["FAULT", "ACTIVE"])
def test_that_nobody_is_lost_is_not_told_where_no_log_tells_it(status: str) -> None:
    """The daemon itself says ACTIVE of a client that a fault has hit."""
    found = told(one_daemon(watch="polling", servers=(server(status=status, clients=(client(0), client(10))),)))
    assert {s.labels["state"]: s.value for s in found if s.name == "mps_clients"} == {
        "ACTIVE": 2, "INACTIVE": 0, "TERMINATED": 0,
    }  # fmt: skip


def test_a_word_that_is_new_is_other() -> None:
    found = told(one_daemon(servers=(server(status="RECOVERING\n", clients=()),)))
    assert value(found, "mps_servers", state="other") == 1


def test_what_is_not_known_is_left_out() -> None:
    unknown = replace(
        daemon(), default_active_thread_percentage=None, start_time=None,
        servers=(server(status=None, active_thread_percentage=None, clients=(client(0, sm_count=None),)),),
    )  # fmt: skip
    found = told(Snapshot(NOW, daemons=(unknown,), devices=(device(0, None),), nvml_detail="NVML is away"))
    gone = {
        "mps_daemon_default_active_thread_ratio", "mps_daemon_start_time_seconds", "mps_servers",
        "mps_server_active_thread_ratio", "mps_client_sms", "mps_gpu_contexts", "mps_gpu_outside_processes",
        "mps_last_reading_timestamp_seconds", "mps_control_sessions_total",
        "mps_daemon_last_answer_timestamp_seconds",
    }  # fmt: skip
    assert not gone & {s.name for s in found}
    assert value(found, "mps_nvml_up") == 0


def test_a_daemon_that_is_held_has_a_state_and_a_time() -> None:
    held = replace(condition.ok(), health="held", cause="held", since=NOW - 60)
    found = told(one_daemon(condition=held))
    assert value(found, "mps_daemon_up") == 1
    assert {s.labels["state"]: s.value for s in found if s.name == "mps_daemon_state"} == {
        "ok": 0, "held": 1, "blocked": 0, "stale": 0, "absent": 0
    }  # fmt: skip
    assert value(found, "mps_daemon_state_since_timestamp_seconds") == NOW - 60


def test_a_daemon_that_has_answered_nothing_so_far_is_up_and_in_no_state() -> None:
    found = told(one_daemon(condition=condition.unasked("", condition.Moment())))
    assert value(found, "mps_daemon_up") == 1
    assert not [s for s in found if s.name.startswith("mps_daemon_state")]


def test_who_waits_and_who_computes_outside() -> None:
    waiting = tuple(
        PendingClient(ProcessKey(pid, 1), user="bob", since=NOW - age) for pid, age in ((1, 20), (2, 400), (3, 30))
    )
    snapshot = replace(
        one_daemon(servers=(), pending=waiting, start_failures=StartFailures(3)),
        outside=(OutsideClient(ProcessKey(9), (GPU1,)), OutsideClient(ProcessKey(10), (GPU0, GPU1))),
    )
    found = told(snapshot)
    assert value(found, "mps_clients_pending", user="bob") == 3
    assert value(found, "mps_clients_pending_since_timestamp_seconds") == NOW - 400
    assert value(found, "mps_server_consecutive_start_failures") == 3
    assert value(found, "mps_gpu_outside_processes", gpu="0") == 1
    assert value(found, "mps_gpu_outside_processes", gpu="1") == 2


def test_a_job_and_a_container_are_labels() -> None:
    in_pod = Where(pod_uid="0a1b", pod="train-0", namespace="ml", container_name="main")
    mine = (
        client(0, where=Where(batch="slurm", job="4711")),
        client(5, container="docker:0123456789ab"),
        client(10, where=in_pod, container="containerd:77"),
    )
    found = told(one_daemon(servers=(server(clients=mine),)))
    assert value(found, "mps_client_sms", hpc_job="4711") == 32
    assert value(found, "mps_client_sms", container="docker:0123456789ab") == 132
    (labels,) = [each for each in names(found, "mps_client_sms") if "pod" in each]
    assert labels == {
        "pipe_dir": "/tmp/mps_0", "user": "alice", "pod": "train-0", "namespace": "ml", "pod_uid": "0a1b",
        "container": "main",
    }  # fmt: skip


def test_what_a_user_may_have_made_up_is_no_label() -> None:
    forged = Where(
        pod_uid="0a1b", pod="train-0", namespace="ml", container_name="main", batch="slurm", job="1",
        claimed=frozenset(("pod", "job", "container")),
    )  # fmt: skip
    found = told(one_daemon(servers=(server(clients=(client(0, where=forged, container="docker:1"),)),)))
    assert names(found, "mps_client_sms") == [{"pipe_dir": "/tmp/mps_0", "user": "alice"}]


def test_launches_are_told_where_they_are_counted() -> None:
    counted = client(0, activity=Activity(launches_per_second=12.0)), client(5), client(6)
    found = told(one_daemon(servers=(server(clients=counted),)))
    assert names(found, "mps_client_launches_per_second") == [{"pipe_dir": "/tmp/mps_0", "user": "alice"}]
    assert value(found, "mps_client_launches_per_second") == 12


def test_memory_of_an_idle_client_that_is_not_known_is_not_0() -> None:
    idle = Activity(launches_per_second=0.0, idle_since=NOW - 900)
    mine = client(0, activity=idle, gpu_memory={}), client(5, activity=idle, user="bob", gpu_memory={GPU0: 7})
    found = told(one_daemon(servers=(server(clients=mine),)))
    assert [labels["user"] for labels in names(found, "mps_client_idle_memory_used_bytes")] == ["bob"]


def test_a_client_of_protocol_3_without_a_limit_may_use_all_sms() -> None:
    """Where it was left out of the sum, clients that may use the whole GPU came to less than one GPU."""
    mine = (
        client(0, active_thread_percentage=25.0),
        client(5, active_thread_percentage=None, percentage_known=True),
        client(6, active_thread_percentage=None, percentage_known=False),
        client(7, active_thread_percentage=None, percentage_known=True, sm_partition="x"),
    )
    found = told(one_daemon(servers=(server(clients=mine),)))
    assert value(found, "mps_client_active_thread_ratio") == 1.25


def test_a_memory_limit_that_may_be_lower_is_not_told_as_the_limit() -> None:
    """Whoever may not read a client's environment knows no more than that it is at most its server's."""
    limits = {"pinned_mem_limits": {"0": 7 << 30}}
    mine = client(0, memory_limit_known=False, **limits), client(5, user="bob", memory_limit_known=True, **limits)
    found = told(one_daemon(servers=(server(clients=mine),)))
    assert [labels["user"] for labels in names(found, "mps_client_memory_limit_bytes")] == ["bob"]


def test_what_is_written_once_counts_no_events() -> None:
    """A program that has just been started has counted nothing: 0 faults each time, whatever happens."""
    metrics = Metrics()
    metrics.take(replace(one_daemon(), events=(event("fatal_fault", NOW),)), None)
    assert not [sample.name for sample in samples(metrics) if sample.name.endswith("_total")]


def test_neither_pid_nor_command_unless_asked_for() -> None:
    text = Metrics()
    text.take(rich(), NOW)
    said = text.rendered("")[1].decode()
    assert "pid=" not in said
    assert "train.py" not in said
    found = told(one_daemon(servers=(server(clients=(client(0),)),)), per_process=True)
    assert value(found, "mps_client_sms", pid="2000", command="python train.py --config resnet50.yaml") == 32


def crowd(number: int, first: int = 0) -> Snapshot:
    many = tuple(
        client(0, key=ProcessKey(9000 + n, n), user=f"user{n}", command="x" * 500) for n in range(first, first + number)
    )
    return one_daemon(servers=(server(clients=many),))


@pytest.mark.parametrize("per_process", [False, True])
def test_768_users_are_as_many_series_as_the_groups_that_were_asked_for(per_process: bool) -> None:
    found = told(crowd(768), groups=20, per_process=per_process)
    who = {s.labels["user"] for s in found if s.name == "mps_client_sms"}
    assert len(who) == 21
    assert OTHER in who
    assert value(found, "mps_exporter_folded_clients") == 748
    assert sum(s.value for s in found if s.name == "mps_client_sms") == 768 * 32
    assert len(found) < 500
    assert all(len(v) <= 255 for s in found for v in s.labels.values())


def test_who_has_series_keeps_them_while_others_come_and_go() -> None:
    metrics = Metrics(groups=3)
    seen = []
    for first in (0, 1, 0, 2):
        metrics.take(crowd(6, first), NOW)
        metrics.rendered("")
        seen.append({s.labels["user"] for s in samples(metrics) if s.name == "mps_client_sms"} - {OTHER})
    assert seen[0] == {"user0", "user1", "user2"}
    assert seen[1] == {"user1", "user2", "user3"}
    assert seen[2] == {"user1", "user2", "user3"}
    assert seen[3] == {"user2", "user3", "user4"}


@pytest.mark.slow
def test_a_thousand_directories_are_not_a_thousand_daemons() -> None:
    places = tuple(replace(daemon(), pipe_dir=Path(f"/tmp/mps-{n}"), key=None, servers=()) for n in range(1000))
    found = told(Snapshot(NOW, daemons=(*places, daemon())))
    assert len(names(found, "mps_daemon_up")) == DAEMONS
    assert sum(s.value for s in found if s.name == "mps_daemon_up") == 1
    assert value(found, "mps_exporter_left_out_daemons") == 1001 - DAEMONS


def event(kind: Any, time: float, **more: Any) -> Event:
    return Event(kind, time, daemon().pipe_dir, raw=f"{kind} {time}", **more)


def test_events_are_counted_once_and_from_the_start_on() -> None:
    metrics, start = Metrics(), NOW
    before = event("fatal_fault", start - 5)
    metrics.take(replace(one_daemon(), events=(before,)), start)
    assert value(samples(metrics), "mps_faults_total") == 0
    new = event("fatal_fault", start + 1), event("client_refused", start + 2, values={"reason": "fault"})
    for events in ((before, *new), (before, *new), new, (*new, event("client_refused", start + 3, values={}))):
        metrics.take(replace(one_daemon(), events=events), start)
    found = samples(metrics)
    assert value(found, "mps_faults_total") == 1
    assert value(found, "mps_clients_refused_total", reason="fault") == 1
    assert value(found, "mps_clients_refused_total", reason="unknown") == 1
    assert value(found, "mps_clients_refused_total", reason="limit") == 0


def test_what_logs_alone_tell_is_not_0_where_they_are_not_followed() -> None:
    """No faults, said of a daemon whose logs are another user's and not read."""
    alone = {f"mps_{COUNTED[kind].name}_total" for kind in BY_LOGS} | {"mps_server_consecutive_start_failures"}
    assert {"mps_faults_total", "mps_clients_refused_total"} < alone
    heard = {sample.name for sample in told(one_daemon())}
    for deaf in ("polling", "none"):
        found = told(one_daemon(watch=deaf))
        assert heard - {sample.name for sample in found} == alone
        assert value(found, "mps_clients_connected_total") == 0, "asking tells of it too"
    (failures,) = [each for each in DAEMON.fields if each.id == "start_failures"]
    one = [failures.text(daemon(watch=watch), View()) for watch in ("logs", "polling")]
    assert one == ["0", "—"]
    metrics = Metrics()
    metrics.take(replace(one_daemon(), events=(event("client_refused", NOW, values={"reason": "limit"}),)), NOW - 1)
    metrics.take(one_daemon(watch="polling"), NOW - 1)
    assert value(samples(metrics), "mps_clients_refused_total", reason="limit") == 1, "what was told stays"
    assert len(names(samples(metrics), "mps_clients_refused_total")) == 1


@pytest.mark.slow
def test_a_forged_reason_is_no_label() -> None:
    metrics = Metrics()
    for number in range(300):
        forged = event("client_refused", NOW + number, values={"reason": f"r{number}"})
        metrics.take(replace(one_daemon(), events=(forged,)), NOW)
    assert len(names(samples(metrics), "mps_clients_refused_total")) == 4


def test_an_xid_is_told_by_its_device() -> None:
    xid = Event("xid", NOW, devices=(GPU1,), values={"xid": "31"}, raw="x")
    found = told(replace(one_daemon(), events=(xid,)))
    assert value(found, "mps_xids_total", UUID=GPU1, gpu="1", xid="31") == 1


@pytest.mark.parametrize("label", ["Hostname", "hostname"])
def test_the_node_is_named_as_dcgm_does(label: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert all(s.labels.get(label) == "node7" for s in told(one_daemon(), host_label=label))
    monkeypatch.setenv("NODE_NAME", "gpu-3\n")
    assert all(s.labels[label] == "gpu-3\\n" for s in told(one_daemon(), host_label=label))


def test_no_label_is_there_where_none_is_wished() -> None:
    assert not any("ostname" in label for s in told(one_daemon(), host_label="") for label in s.labels)


def test_before_the_node_was_seen_there_is_the_program() -> None:
    assert {s.name for s in told(None)} == {"mps_exporter_build_info"}


def test_both_forms_say_the_same() -> None:
    metrics = Metrics()
    metrics.take(rich(), NOW)
    metrics.watched(NOW, 3, {("/tmp/mps_0", "server.log"): 77}, {Path("/tmp/mps_0"): NOW - 5})
    kind, text = metrics.rendered(OPEN)
    assert "openmetrics" in kind
    assert text.endswith(b"# EOF\n")
    there = {(s.name, *sorted(s.labels.items()), s.value) for f in open_metrics(text.decode()) for s in f.samples}
    assert there == {(s.name, *sorted(s.labels.items()), s.value) for s in samples(metrics)}
    assert value(samples(metrics), "mps_log_bytes", log="server.log") == 77
    assert value(samples(metrics), "mps_daemon_last_answer_timestamp_seconds") == NOW - 5
    metrics.watched(NOW, 3, {}, {Path("/tmp/mps_0"): NOW})
    assert value(samples(metrics), "mps_daemon_last_answer_timestamp_seconds") == NOW


EVIL = client(0, user='x"} 1\nmps_daemon_up{a="', container='docker:\\"\n#', command="\x1b]52;")


@pytest.mark.parametrize("accept", ["", OPEN])
def test_the_text_is_what_prometheus_own_library_writes(accept: str) -> None:
    for snapshot in (rich(), one_daemon(servers=(server(clients=(EVIL,)),)), None):
        metrics, registry = Metrics(per_process=True), CollectorRegistry(auto_describe=False)
        if snapshot is not None:
            metrics.take(snapshot, NOW - 9)
        metrics.watched(NOW, 3, {("/tmp/mps_0", "server.log"): 7 << 30})
        registry.register(metrics)
        assert metrics.rendered(accept)[1] == choose_encoder(accept)[0](registry)


def test_whatever_versions_are_asked_for_two_texts_are_kept() -> None:
    """Each one more would be made anew and kept: as long as the node stands still, without an end."""
    metrics = Metrics()
    metrics.take(rich(), NOW)
    asked = (*(f"application/openmetrics-text; version=1.0.{n}" for n in range(9)), "text/plain; version=1.0.0", "*/*")
    odd = [f"application/openmetrics-text; version={n}" for n in ("abc", "", "9" * 6000, "1.0.0\nX-Evil: 1")]
    assert len({id(metrics.rendered(accept)[1]) for accept in (*asked, *odd)}) == 2


def test_what_a_client_writes_cannot_forge_a_series() -> None:
    found = told(one_daemon(servers=(server(clients=(EVIL,)),)), per_process=True)
    assert len(names(found, "mps_daemon_up")) == 1
    assert "\x1b" not in "".join(v for s in found for v in s.labels.values())


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
def test_promtool_has_nothing_to_say(tmp_path: Path) -> None:
    metrics = Metrics(per_process=True)
    metrics.take(replace(rich(), events=(event("xid", NOW, values={"xid": "31"}),)), NOW - 9)
    metrics.watched(NOW, 3, {("/tmp/mps_0", "server.log"): 77}, {Path("/tmp/mps_0"): NOW - 5})
    checked = subprocess.run(
        ["promtool", "check", "metrics"], input=metrics.rendered("")[1], capture_output=True, timeout=60
    )
    assert (checked.returncode, checked.stdout + checked.stderr) == (0, b"")


def test_every_metric_is_in_the_documentation() -> None:
    fields = [each.metric for thing in things(SNAPSHOT) for each in thing.fields if each.metric]
    helps = {f"mps_{metric.name}": metric.help for metric in fields}
    known = {*helps, *(f"mps_{count.name}_total" for count in COUNTED.values())}
    metrics = Metrics()
    metrics.take(replace(rich(), events=(event("xid", NOW, values={"xid": "31"}),)), NOW - 9)
    metrics.watched(NOW, 3, {("/tmp/mps_0", "server.log"): 77}, {Path("/tmp/mps_0"): NOW - 5})
    known |= {sample.name for sample in samples(metrics)}
    rows = dict(re.findall(r"^\| `(mps_\w+)` \|.*\| (.*) \|$", PAGE.read_text(), re.MULTILINE))
    assert set(rows) == known
    helps |= dict(re.findall(r"^# HELP (\w+) (.*)$", metrics.rendered("")[1].decode(), re.MULTILINE))
    assert {name: rows[name] for name in helps} == helps
