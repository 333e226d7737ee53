"""``terminate --job``, ``--pod``, ``--unit``, ``--cgroup``, ``--pid-file``: whom kernel and daemon both name."""

from __future__ import annotations

import contextlib
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from mpstui.core.model import Client, Daemon, ProcessKey, Server
from mpstui.core.where import Cgroup, Where
from mpstui.operations.check import Refused
from mpstui.operations.selectors import Selection, is_named, pids_in, select
from mpstui.sim.client import SimClient
from mpstui.sim.node import SimNode

from .conftest import Mpstui

DEPLOY = Path(__file__).parents[2] / "deploy"
SLURM = " /system.slice/slurmstepd.scope/job_{}/step_0/user/task_0"
POD = f" /kubepods/pod7a6a3c5e-9d5b-4a43-8f5c-2a1b3c4d5e6f/{'ab' * 32}#ml/train-0/trainer"


@pytest.fixture
def batch(own_node: SimNode) -> tuple[SimNode, list[SimClient]]:
    """Two clients of job 7, one of job 77, one of a pod, one of nothing."""
    boxes = (SLURM.format(7), SLURM.format(7), SLURM.format(77), POD, None)
    return own_node, [own_node.spawn("busy", container=box, linger=None) for box in boxes]


def ended(clients: list[SimClient]) -> list[bool]:
    return [client.status() == "exited" for client in clients]


def test_the_clients_of_a_job_end_and_nobody_else(batch: tuple[SimNode, list[SimClient]], mpstui: Mpstui) -> None:
    node, clients = batch
    told = mpstui("terminate", "--job", "7", "--kill", "--yes", "--pipe-dir", node.pipe_dir)
    assert told.status == 0, told
    assert "2 clients in job 7 ended" in told.out
    for client in clients[:2]:
        client.wait_status("exited")
    assert ended(clients) == [True, True, False, False, False]
    again = mpstui("terminate", "--job", "slurm:7", "--kill", "--yes", "--json", "--pipe-dir", node.pipe_dir)
    assert again.status == 0, "an epilogue has nothing to do then, which is no mistake"
    assert again.json["message"] == "no client is in job slurm:7: nothing was sent"


def test_a_pod_and_a_unit(batch: tuple[SimNode, list[SimClient]], mpstui: Mpstui) -> None:
    node, clients = batch
    told = mpstui("terminate", "--pod", "ml/train-0", "--yes", "--pipe-dir", node.pipe_dir)
    assert told.status == 0, told
    assert clients[3].wait_status("lost")
    assert clients[3].error == 810
    told = mpstui("terminate", "--unit", "slurmstepd.scope", "--yes", "--pipe-dir", node.pipe_dir)
    assert "3 clients in unit slurmstepd.scope terminated" in told.out


def test_it_needs_a_yes_and_one_way_to_name_them(batch: tuple[SimNode, list[SimClient]], mpstui: Mpstui) -> None:
    node, clients = batch
    told = mpstui("terminate", "--job", "7", "--pipe-dir", node.pipe_dir)
    assert told.status == 6
    assert told.err.count("ends: ") == 2
    for wrong in (("--job", "7", "--pod", "x"), ("--job", "7", str(clients[0].pid)), ("--cgroup", "/"), ()):
        told = mpstui("terminate", *wrong, "--yes", "--pipe-dir", node.pipe_dir)
        assert told.status == 2, told
    assert not any(ended(clients))


def test_a_file_of_pids(batch: tuple[SimNode, list[SimClient]], mpstui: Mpstui, tmp_path: Path) -> None:
    node, clients = batch
    file = tmp_path / "pids"
    file.write_text(f"{clients[4].pid}\n{os.getpid()}\n")
    os.utime(file, (100.0, 100.0))  # one that has the number of another, which ended long ago
    told = mpstui("terminate", "--pid-file", file, "--kill", "--yes", "--pipe-dir", node.pipe_dir)
    assert (told.status, "no client is in the file" in told.out) == (0, True), told
    assert f"{clients[4].pid} " in told.out
    assert "started after the file was written" in told.out
    os.utime(file)
    told = mpstui("terminate", "--pid-file", file, "--kill", "--yes", "--pipe-dir", node.pipe_dir)
    assert told.status == 0, told
    assert "1 client in the file" in told.out, "the other one is no client"
    clients[4].wait_status("exited")


@pytest.mark.parametrize("content", ["../../etc", "4711 x", "-1", "0", "9" * 400, "\x1b[2J"])
def test_a_file_with_something_else_in_it_names_nobody(tmp_path: Path, content: str) -> None:
    (file := tmp_path / "pids").write_text(content)
    with pytest.raises(Refused) as refused:
        pids_in(file)
    assert refused.value.status == 2
    assert str(refused.value).isprintable()


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(Refused, match=r"pids: No such file") as refused:
        pids_in(tmp_path / "pids")
    assert refused.value.status == 2


def test_a_file_that_others_can_write_to_names_nobody(tmp_path: Path) -> None:
    (file := tmp_path / "pids").write_text("4711")
    assert pids_in(file)[0] == {4711}
    file.chmod(0o666)
    with pytest.raises(Refused) as refused:
        pids_in(file)
    assert refused.value.status == 6
    file.chmod(0o600)
    (tmp_path / "link").symlink_to(file)
    with pytest.raises(Refused):
        pids_in(tmp_path / "link")
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(Refused):
        pids_in(tmp_path / "fifo")
    if os.geteuid() == 0:
        os.chown(file, 64_101, 64_101)
        with pytest.raises(Refused):
            pids_in(file)


def test_a_claim_is_not_what_it_claims() -> None:
    true, false = Where(batch="slurm", job="7"), Where(batch="slurm", job="7", claimed=frozenset({"job"}))
    assert [is_named(each, "job", "7") for each in (true, false)] == [True, False]
    assert not is_named(true, "job", "77")
    assert not is_named(true, "job", "pbs:7")
    assert is_named(Where(batch="pbs", job="4711[3].server"), "job", "4711[3]")


def test_what_the_column_where_shows_names_it() -> None:
    """A step of a job, a container of a pod; of a container that is only claimed no more than the pod is known."""
    step = Where(batch="slurm", job="7", step="0")
    pod = Where(pod_uid="u", pod="train-0", namespace="ml", container_name="trainer", container_id="c")
    for where, kind in ((step, "job"), (pod, "pod")):
        assert is_named(where, kind, where.text())
        assert where.matches(kind, where.text())  # type: ignore[arg-type]
    assert [is_named(step, "job", name) for name in ("7.0", "7.1", "slurm:7.1", "7.")] == [True, False, False, False]
    assert not is_named(replace(pod, claimed=frozenset({"container"})), "pod", pod.text())
    assert not is_named(replace(step, claimed=frozenset({"job"})), "job", "slurm:7.0")


def test_what_can_name_nothing_is_refused() -> None:
    for option, text in (("job", ""), ("job", "a b"), ("unit", "x\n"), ("cgroup", "a/b"), ("cgroup", "/a/../b")):
        with pytest.raises(Refused):
            select(option, text)
    assert select("cgroup", "//a/b/").within == "cgroup:/a/b"


@pytest.fixture
def cgroup() -> Iterator[Path]:
    """A real one of root's."""
    places = ("/sys/fs/cgroup", "/sys/fs/cgroup/unified", "/sys/fs/cgroup/systemd")
    root = next((Path(p) for p in places if os.path.exists(f"{p}/cgroup.procs")), None)
    if root is None or os.geteuid() != 0:
        pytest.skip("no cgroups to make, or not root")
    top = root / f"mpstui-many-{os.getpid()}"
    try:
        (top / "in").mkdir(parents=True)
    except OSError as error:
        pytest.skip(f"cgroups cannot be made here: {error.strerror}")
    try:
        yield top
    finally:
        (root / "cgroup.procs").write_text("0")
        for folder in (top / "in", top):
            with contextlib.suppress(OSError):
                folder.rmdir()


def test_a_cgroup_and_what_is_below_it(batch: tuple[SimNode, list[SimClient]], mpstui: Mpstui, cgroup: Path) -> None:
    node, clients = batch
    (cgroup / "in" / "cgroup.procs").write_text(str(clients[4].pid))
    told = mpstui("terminate", "--cgroup", f"/{cgroup.name}", "--kill", "--yes", "--pipe-dir", node.pipe_dir)
    assert told.status == 0, told
    assert f"1 client in cgroup /{cgroup.name} ended" in told.out
    clients[4].wait_status("exited")
    assert ended(clients) == [False] * 4 + [True]
    beside = mpstui("terminate", "--cgroup", f"/{cgroup.name}x", "--kill", "--yes", "--pipe-dir", node.pipe_dir)
    assert "no client is in" in beside.out


@pytest.mark.slow
def test_in_a_container_its_own_cgroup_is_the_container(
    batch: tuple[SimNode, list[SimClient]], cgroup: Path, tmp_path: Path
) -> None:
    """The preStop hook of deploy/kubernetes, run in a cgroup namespace as a container has one."""
    node, clients = batch
    (pod,) = yaml.safe_load_all((DEPLOY / "kubernetes" / "client-pod.yaml").read_text())
    (container,) = pod["spec"]["containers"]
    program, *words = container["lifecycle"]["preStop"]["exec"]["command"]
    assert program == "mpstui"
    assert words[-2:] == ["--pipe-dir", container["env"][0]["value"]]
    words[-1] = str(node.pipe_dir)
    environment = {**os.environ, "MPSTUI_AUDIT_LOG": str(tmp_path / "audit.jsonl")}

    def inside(place: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = shlex.join(["unshare", "--cgroup", sys.executable, "-m", "mpstui", *arguments])
        enter = f"echo $$ > {place}/cgroup.procs; exec {command}"
        return subprocess.run(["sh", "-c", enter], capture_output=True, text=True, check=False, env=environment)

    (cgroup / "in" / "cgroup.procs").write_text(str(clients[4].pid))
    told = inside(cgroup / "in", *words)
    assert (told.returncode, "1 client in cgroup / ended" in told.stdout) == (0, True), told
    clients[4].wait_status("exited")
    assert ended(clients) == [False] * 4 + [True]
    assert "no client is in cgroup /" in inside(cgroup / "in", *words).stdout


@pytest.mark.parametrize(
    ("own", "namespace", "first", "firsts", "named"),
    [
        ("/", 1, "/../..", 2, "cgroup:/"),
        ("/", 1, "/", 1, "cgroup:/"),  # with a PID namespace too: process 1 is the container's
        ("/", 1, "/", 2, None),  # a namespace that holds the whole node
        ("/", 1, "/", None, None),  # perhaps such a one
        ("/", 0xEFFFFFFB, "/", 0xEFFFFFFB, None),  # the node itself
        ("/system.slice/a.service", 0xEFFFFFFB, "/init.scope", 0xEFFFFFFB, "cgroup:/system.slice/a.service"),
        ("/user", 1, "/../..", 2, "cgroup:/user"),
        ("/../other", 1, "/../..", 2, None),  # it has been moved out of its namespace
        ("/", None, "/", None, None),
    ],
)
def test_its_own_cgroup_is_never_the_whole_node(
    monkeypatch: pytest.MonkeyPatch, own: str, namespace: int | None, first: str, firsts: int | None, named: str | None
) -> None:
    paths, inodes = {"self": own, "1": first}, {"self": namespace, "1": firsts}
    monkeypatch.setattr("mpstui.operations.selectors._cgroups", lambda process: (Cgroup("", paths[process]),))
    monkeypatch.setattr("mpstui.operations.selectors._namespace", lambda process: inodes[process])
    if named is not None:
        assert select("cgroup", "self").within == named
        return
    with pytest.raises(Refused, match="names nothing") as refused:
        select("cgroup", "self")
    assert refused.value.status == 6


def test_where_it_cannot_be_seen_nobody_is_said_to_be_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who is in which pod is not told in a container: status 0 would have its processes killed at work."""
    away = Client(ProcessKey(4711), local=False)
    joined = Client(ProcessKey(4712), local=False, pid_here=os.getpid())
    daemon = Daemon(Path("/p"), servers=(Server(ProcessKey(1), clients=(away, joined)),))
    assert Selection("pid_file:/x").unknown(daemon)[0] == 0
    count, why = Selection("pod:ml/train-0").unknown(daemon)
    assert (count, "hostPID" in why) == (1, True)
    daemon = Daemon(Path("/p"), servers=(Server(ProcessKey(1), clients=(joined,)),))
    monkeypatch.setattr("mpstui.operations.selectors.Cgroups.where_is", lambda self, pid: None)
    monkeypatch.setattr("mpstui.operations.selectors._namespace", lambda process: 0xEFFFFFFB)
    assert Selection("pod:ml/train-0").unknown(daemon)[0] == 0, "on the node itself all is seen"
    monkeypatch.setattr("mpstui.operations.selectors._namespace", lambda process: 0xF00003A2)
    count, why = Selection("pod:ml/train-0").unknown(daemon)
    assert (count, "--cgroup self" in why) == (1, True)
    assert Selection("cgroup:/").unknown(daemon)[0] == 0
