"""``status --group-by``, and the fields that tell where a client belongs, on the simulated node."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mpstui.cli.parser import build_parser
from mpstui.core.model import Client, Daemon, ProcessKey, Server
from mpstui.core.trust import ANYBODY, Speaker
from mpstui.core.where import Where
from mpstui.fields import CLIENT, GROUPS, View, grouped
from mpstui.sim.node import SimNode
from mpstui.ui.filter import ClientFilter

from .conftest import Mpstui
from .test_schema import check

GIB = 1 << 30
SLURM = " /system.slice/slurmstepd.scope/job_{}/step_0/user/task_0"
POD = f" /kubepods/pod7a6a3c5e-9d5b-4a43-8f5c-2a1b3c4d5e6f/{'ab' * 32}#ml/train-0/trainer"


@pytest.fixture(scope="module")
def batch(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SimNode]:
    """A node with two clients of one job, one of a pod, one of nothing."""
    with SimNode.start(tmp_path_factory.mktemp("batch")) as node:
        _fill(node)
        yield node


def _fill(node: SimNode) -> None:
    limit = {"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=4G", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "20"}
    for container, env in ((SLURM.format(7), limit), (SLURM.format(7), limit), (POD, {}), (None, {})):
        node.spawn("idle", container=container, env=env, memory=GIB)


def groups(told: Any) -> dict[str | None, Any]:
    (daemon,) = told["daemons"]
    return {group["name"]: group for group in daemon["groups"]}


def test_the_sums_of_a_job(batch: SimNode, mpstui: Mpstui) -> None:
    told = mpstui("status", "--group-by", "job", "--json", "--pipe-dir", batch.pipe_dir).json
    check("groups", told)
    found = groups(told)
    assert list(found) == ["slurm:7", None]
    job, rest = found["slurm:7"], found[None]
    ((uuid, used),) = job["gpu_memory"].items()
    assert (len(job["pids"]), used >= 2 * GIB, job["pinned_mem_limits"]) == (2, True, {uuid: 8 * GIB})
    assert (job["without_limit"], job["active_thread_percentage"]) == (0, 40)
    assert (len(rest["pids"]), rest["pinned_mem_limits"], rest["without_limit"]) == (2, {}, 2)
    text = mpstui("status", "--group-by", "job", "--pipe-dir", batch.pipe_dir)
    assert text.status == 0
    assert [line.split()[:2] for line in text.out.splitlines() if line.startswith(("JOB", "slurm"))] == [
        ["JOB", "CLIENTS"],
        ["slurm:7", "2"],
    ]


@pytest.mark.parametrize(
    ("by", "name"), [("pod", "ml/train-0"), ("unit", "slurmstepd.scope"), ("container", "ml/train-0/trainer")]
)
def test_other_groups(batch: SimNode, mpstui: Mpstui, by: str, name: str | None) -> None:
    found = groups(mpstui("status", "--group-by", by, "--json", "--pipe-dir", batch.pipe_dir).json)
    assert {name, None} == set(found)


def test_the_fields_of_a_client(batch: SimNode, mpstui: Mpstui) -> None:
    told = mpstui("status", "--json", "--pipe-dir", batch.pipe_dir).json
    (server,) = told["daemons"][0]["servers"]
    pods = [client for client in server["clients"] if client["pod"]]
    assert len(pods) == 1
    assert {
        key: pods[0][key] for key in ("where", "pod_name", "pod_namespace", "container_name", "job", "claimed")
    } == {
        "where": "ml/train-0/trainer",
        "pod_name": "train-0",
        "pod_namespace": "ml",
        "container_name": "trainer",
        "job": None,
        "claimed": [],
    }
    text = mpstui("status", "--fields", "pid,where", "--pipe-dir", batch.pipe_dir)
    assert "slurm:7.0" in text.out


def test_what_may_be_grouped_by_is_what_the_option_takes(capsys: pytest.CaptureFixture[str]) -> None:
    for name in GROUPS:
        assert build_parser().parse_args(["status", "--group-by", name]).group_by == name
    for wrong in (["--group-by", "servers"], ["--group-by", "job", "--fields", "pid"]):
        with pytest.raises(SystemExit):
            build_parser().parse_args(["status", *wrong])
    capsys.readouterr()


def client(pid: int, where: Where | None, **more: Any) -> Client:
    return Client(ProcessKey(pid, pid), where=where, **more)


def test_a_claim_is_no_member_of_the_group_that_it_claims() -> None:
    true, false = Where(batch="slurm", job="7"), Where(batch="slurm", job="7", claimed=frozenset({"job"}))
    daemon = Daemon(
        Path("/p"),
        servers=(Server(ProcessKey(1), clients=(client(10, true), client(11, false), client(12, None))),),
    )
    assert [(g.name, [c.pid for c in g.clients]) for g in grouped(daemon, "job", View())] == [
        ("claims slurm:7", [11]),
        ("slurm:7", [10]),
        (None, [12]),
    ]


@pytest.mark.parametrize(
    ("by", "names"),
    [("user", ["claims root", "mallory"]), ("server", ["claims 1", "1"]), ("job", ["claims —", None])],
)
def test_who_cannot_be_a_client_of_a_users_daemon_is_in_no_group_with_those_who_are(
    by: str, names: list[str | None]
) -> None:
    """A stranger's daemon named a process of root's, and its memory was in the sums."""
    his = client(10, None, uid=2002, user="mallory", server_pid=1, gpu_memory={"GPU-0": 5})
    roots = client(11, None, uid=0, user="root", server_pid=1, gpu_memory={"GPU-0": 9})
    servers = (Server(ProcessKey(1), uid=2002, user="mallory", clients=(his, roots)),)
    daemon = Daemon(Path("/p"), uid=2002, speaker=Speaker(2002, "a daemon of mallory"), servers=servers)
    found = grouped(daemon, by, View())
    assert {g.name: [c.pid for c in g.clients] for g in found} == dict(zip(names, ([11], [10]), strict=True))
    assert [g.name for g in found if g.memory == {"GPU-0": 5}] == [names[1]]


def test_a_process_that_it_names_on_two_gpus_makes_a_group_of_one_no_whole_gpus() -> None:
    """GPU 1 was “1 only” and GPU 0 “0”, which says that nothing else is there."""
    his = [client(10 + n, None, uid=2002, user="mallory", server_pid=1, gpu_memory={f"GPU-{n}": 1}) for n in range(2)]
    roots = client(12, None, uid=0, user="root", server_pid=1, gpu_memory={"GPU-0": 1, "GPU-1": 1})
    servers = (Server(ProcessKey(1), uid=2002, user="mallory", clients=(*his, roots)),)
    daemon = Daemon(Path("/p"), uid=2002, speaker=Speaker(2002, "a daemon of mallory"), servers=servers)
    found = grouped(daemon, "gpu", View(indices={"GPU-0": 0, "GPU-1": 1}))
    assert sorted(g.words for g in found) == ["0 only", "1 only", "claims 0 and 1"]


@pytest.mark.parametrize(("by", "name"), [(2002, "claims mallory"), (ANYBODY, "claims mallory"), (None, "mallory")])
def test_who_is_a_client_by_nobodys_known_word_is_in_no_group_with_those_who_are(by: int | None, name: str) -> None:
    """As long as somebody exchanges the sockets of root's daemon. Where only root can have, it is root's still."""
    his = client(10, None, uid=2002, user="mallory", server_pid=1)
    servers = (Server(ProcessKey(1), uid=2002, user="mallory", clients=(his,)),)
    daemon = Daemon(Path("/p"), uid=0, speaker=Speaker(None, "its sockets were exchanged", by=by), servers=servers)
    assert [g.name for g in grouped(daemon, "user", View())] == [name]


def test_limits_of_which_one_is_not_known_have_no_sum() -> None:
    daemon = Daemon(
        Path("/p"),
        ordinals={"0": "GPU-0"},
        servers=(
            Server(
                ProcessKey(1),
                clients=(
                    client(10, None, gpu_memory={"GPU-0": 5}, pinned_mem_limits={"0": 9}, memory_limit_known=True),
                    client(11, None, gpu_memory={"GPU-0": 6}),
                ),
            ),
        ),
    )
    (group,) = grouped(daemon, "job", View())
    assert (dict(group.memory), group.limits, group.unlimited, group.threads) == ({"GPU-0": 11}, None, 0, None)


@pytest.mark.parametrize(
    ("text", "hit"),
    [
        ("pod:train", True),
        ("pod:ml/", True),
        ("job:12", True),
        ("job:124", False),
        ("unit:slurm", True),
        ("container:trainer", True),
        ("container:abab", True),
        ("where:train", False),
        ("where:slurm:123", True),
        ("!job:123", False),
        ("slurm:123", True),
    ],
)
def test_filters(text: str, hit: bool) -> None:
    where = Where("u-1", "train-0", "ml", "trainer", "docker", "ab" * 32, "slurm", "123", None, "slurmd.service")
    assert ClientFilter(text).matches(client(1, where), View()) is hit


def test_the_column_is_hidden_until_it_is_asked_for_where_there_is_little_room() -> None:
    from mpstui.fields import lay_out

    column = CLIENT["where"].column
    assert column is not None
    shown = {cells: [each.id for each, _ in lay_out(CLIENT, View(), cells, 0, stretch=True)] for cells in (179, 180)}
    assert ["where" in shown[cells] for cells in (179, 180)] == [False, True]
