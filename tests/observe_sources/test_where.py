"""Where a process belongs, by its cgroups: what the names say, and whose word they are."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mpstui.core.where import Cgroup, PodName, Where, find_where, parse_cgroups
from mpstui.system.procfs import Cgroups

ID = "3f5c8a0d9b7e41c2a6f0d8e1b2c3a4958677665544332211ffeeddccbbaa9988"
UID = "7a6a3c5e-9d5b-4a43-8f5c-2a1b3c4d5e6f"
UID_ = UID.replace("-", "_")
BURSTABLE = f"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{UID_}.slice/cri-containerd-{ID}.scope"


def where(text: str, names: Callable[[str, str | None], PodName | None] = lambda uid, container: None) -> Where:
    """As root's own tree would tell it."""
    found = find_where(parse_cgroups(text), lambda cgroup: True, names)
    assert found is not None
    return found


POD = {
    "cgroupfs": f"0::/kubepods/burstable/pod{UID}/{ID}",
    "cgroupfs, guaranteed": f"0::/kubepods/pod{UID}/{ID}",
    "cgroupfs, v1": f"11:memory:/kubepods/besteffort/pod{UID}/{ID}\n1:name=systemd:/kubepods/besteffort/pod{UID}/{ID}",
    "systemd": f"0::{BURSTABLE}",
    "systemd, guaranteed": f"0::/kubepods.slice/kubepods-pod{UID_}.slice/crio-{ID}.scope",
    "systemd, docker": f"0::{BURSTABLE.replace('cri-containerd', 'docker').replace('burstable', 'besteffort')}",
    "systemd, crun": f"0::/kubepods.slice/kubepods-pod{UID_}.slice/crio-{ID}.scope/container",
    "colons": f"0::/system.slice/containerd.service/kubepods-besteffort-pod{UID_}.slice:cri-containerd:{ID}",
    "a kubelet with its own root": "0::/kubelet.slice/kubelet-kubepods.slice/"
    f"kubelet-kubepods-pod{UID_}.slice/cri-containerd-{ID}.scope",
}


@pytest.mark.parametrize("text", POD.values(), ids=POD)
def test_a_pod(text: str) -> None:
    found = where(text)
    assert (found.pod_uid, found.container_id, found.claimed) == (UID, ID, frozenset())
    assert found.name("pod") == f"pod {UID}"
    named = where(text, lambda uid, container: {(UID, ID): PodName("ml", "train-0", "trainer")}.get((uid, container)))
    assert (named.text(), named.name("pod")) == ("ml/train-0/trainer", "ml/train-0")


def test_a_static_pod_has_a_hash_for_a_uid() -> None:
    assert where(f"0::/kubepods/burstable/pod{'ab' * 16}/{ID}").pod_uid == "ab" * 16


@pytest.mark.parametrize(
    ("text", "job", "step"),
    [
        ("0::/system.slice/slurmstepd.scope/job_123/step_0/user/task_0", "slurm:123", "0"),
        ("0::/system.slice/node7_slurmstepd.scope/job_123/step_batch/user/task_0", "slurm:123", "batch"),
        # Version 1: systemd's hierarchy tells of slurmd, the others of the job.
        (
            "9:memory:/slurm/uid_1000/job_123/step_extern\n4:freezer:/slurm/uid_1000/job_123/step_extern\n"
            "1:name=systemd:/system.slice/slurmd.service\n0::/",
            "slurm:123",
            "extern",
        ),
        ("5:cpuset:/slurm_node7/uid_1000/job_9/step_0", "slurm:9", "0"),
        ("5:cpuset:/torque/4711.server.example", "torque:4711.server.example", None),
        (
            "5:cpuset:/torque/4711[3].server\n1:name=systemd:/system.slice/pbs_mom.service",
            "torque:4711[3].server",
            None,
        ),
        ("0::/pbs_jobs.service/jobid/4711.server", "pbs:4711.server", None),
        ("3:memory:/pbs_jobs.service/jobid/4711[12].pbs-1", "pbs:4711[12].pbs-1", None),
        ("3:memory:/pbspro/4711.server", "pbs:4711.server", None),
        # As users posted it: the job's hierarchies beside those that stay the daemon's.
        (
            "12:pids:/system.slice/pbs.service\n11:rdma:/\n9:cpu,cpuacct:/pbspro.service/jobid/174849168.gadi-pbs\n"
            "5:blkio:/system.slice/pbs.service\n0::/system.slice/pbs.service",
            "pbs:174849168.gadi-pbs",
            None,
        ),
        ("4:memory:/htcondor/condor_var_lib_condor_execute_slot1\n0::/", "htcondor:slot1", None),
        (
            "0::/system.slice/htcondor/condor_var_lib_condor_execute_slot1_23@wn-7.example",
            "htcondor:slot1_23@wn-7.example",
            None,
        ),
        ("3:memory:/pbspro.slice/pbspro-4711.pbs\\x2d1.slice", "pbs:4711.pbs-1", None),
    ],
)
def test_a_job(text: str, job: str, step: str | None) -> None:
    found = where(text)
    assert (found.name("job"), found.step) == (job, step)


def test_a_job_and_the_unit_of_its_batch_system() -> None:
    found = where("9:memory:/slurm/uid_1000/job_123/step_0\n1:name=systemd:/system.slice/slurmd.service")
    assert (found.text(), found.name("unit")) == ("slurm:123.0", "slurmd.service")


@pytest.mark.parametrize(
    ("text", "container"),
    [
        (f"0::/system.slice/docker-{ID}.scope", f"docker:{ID[:12]}"),
        (f"4:memory:/docker/{ID}\n1:name=systemd:/docker/{ID}", f"docker:{ID[:12]}"),
        (f"0::/machine.slice/libpod-{ID}.scope/container", f"podman:{ID[:12]}"),
        (f"0::/machine.slice/machine-libpod_pod_{ID}.slice/libpod-{ID}.scope/container", f"podman:{ID[:12]}"),
        (f"0::/system.slice/nginx.service/libpod-payload-{ID}", f"podman:{ID[:12]}"),  # Quadlet: --cgroups=split
        (
            f"0::/user.slice/user-7.slice/user@7.service/app.slice/redis.service/libpod-payload-{ID}",
            f"podman:{ID[:12]}",
        ),
        (f"0::/user.slice/user-7.slice/user@7.service/user.slice/docker-{ID}.scope", f"docker:{ID[:12]}"),
        ("0::/user.slice/user-7.slice/user@7.service/user.slice/apptainer-817.scope", "apptainer:817"),
        (f"0::/system.slice/nerdctl-{ID}.scope", f"containerd:{ID[:12]}"),
        (f"0::/default/{ID}", f"containerd:{ID[:12]}"),
        ("0::/lxc.payload.web-1/system.slice/x.service", "lxc:web-1"),
        ("0::/machine.slice/systemd-nspawn@box.service/payload/init.scope", "nspawn:systemd-nspawn@box.service"),
    ],
)
def test_a_container(text: str, container: str) -> None:
    assert where(text).name("container") == container


@pytest.mark.parametrize(
    "text", ["", "0::/", "0::/init.scope", "0::/user.slice/user-7.slice/session-3.scope", "rubbish"]
)
def test_nowhere(text: str) -> None:
    assert find_where(parse_cgroups(text)) is None


def test_what_is_in_a_container_is_the_containers_word() -> None:
    """Its root makes cgroups there as it likes; the outer one is the node's."""
    found = where(f"0::/docker/{ID}/kubepods/pod{UID}/{'ab' * 32}")
    assert found.name("container") == f"docker:{ID[:12]}"
    assert found.name("pod") == f"claims pod {UID}"
    assert found.claimed == {"pod"}
    inner = where(f"0::{BURSTABLE}/kubepods/pod{UID.replace('7a6a', 'ffff')}/{'ab' * 32}")
    assert inner.name("pod") == f"pod {UID}", "a pod that its container makes does not hide the pod"
    unit = where(f"0::/system.slice/docker-{ID}.scope/system.slice/slurmd.service")
    assert unit.name("unit") == "claims slurmd.service"


def test_what_is_not_seen_to_be_roots_is_a_claim() -> None:
    found = find_where(parse_cgroups(f"0::{BURSTABLE}"))
    assert found is not None
    assert found.claimed == {"pod", "container"}
    assert found.text().startswith("claims pod ")
    delegated = find_where(
        parse_cgroups("0::/user.slice/user-7.slice/user@7.service/slurmstepd.scope/job_1/step_0"),
        lambda cgroup: not cgroup.path.startswith("/user.slice/user-7.slice/user@7.service"),
    )
    assert delegated is not None
    assert (delegated.name("job"), delegated.name("unit")) == ("claims slurm:1", "claims slurmstepd.scope")


def test_names_are_bounded_and_printable() -> None:
    found = where("0::/system.slice/\x1b]52;c;\x07" + "x" * 4000 + ".service")
    assert (found.unit or "").isprintable()
    assert len(found.unit or "") == 64
    assert find_where(parse_cgroups("0::" + "/a" * 100_000 + "/x.service")) is None


@pytest.mark.parametrize(
    ("kind", "text", "hit"),
    [
        ("pod", "train", True),
        ("pod", "ml/train-0", True),
        ("pod", UID[:8], True),
        ("pod", "other", False),
        ("container", "trainer", True),
        ("container", ID[:16], True),
        ("job", "12", True),
        ("job", "slurm:123", True),
        ("job", "23", False),
        ("unit", "slurmd", True),
        ("unit", "x", False),
    ],
)
def test_what_a_filter_finds(kind: str, text: str, hit: bool) -> None:
    whole = Where(UID, "train-0", "ml", "trainer", "containerd", ID, "slurm", "123", "0", "slurmd.service")
    assert whole.matches(kind, text) is hit  # type: ignore[arg-type]


# The kubelet's folders.


@pytest.fixture
def kubelet(tmp_path: Path) -> tuple[Path, Path]:
    """Its folders of container logs and of pod logs."""
    containers, pods = tmp_path / "containers", tmp_path / "pods"
    for folder in (containers, pods):
        folder.mkdir(mode=0o755)
    (containers / f"train-0_ml_trainer-{ID}.log").symlink_to("/nowhere")
    (pods / f"ml_train-0_{UID}").mkdir()
    return containers, pods


def _in_roots(*folders: Path) -> Cgroups:
    found = Cgroups(*folders)
    found._is_roots = lambda cgroup: True  # type: ignore[method-assign]
    return found


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root makes folders that are root's")


@needs_root
def test_pods_have_names_without_the_cluster(kubelet: tuple[Path, Path]) -> None:
    source = _in_roots(*kubelet)
    found = source.where(f"0::{BURSTABLE}")
    assert found is not None
    assert found.text() == "ml/train-0/trainer"
    other = source.where(f"0::{BURSTABLE.replace(ID, 'cd' * 32)}")
    assert other is not None
    assert other.text() == "ml/train-0", "the pod's folder tells all but the container"
    later = "ef" * 32
    (kubelet[0] / f"eval_ml_x-{later}.log").symlink_to("/nowhere")
    now = source.where(f"0::{BURSTABLE.replace(ID, later)}")
    assert now is not None
    assert now.text() == "ml/eval/x", "a container that came since"


@needs_root
def test_a_folder_that_others_can_write_to_tells_no_name(kubelet: tuple[Path, Path]) -> None:
    for folder in kubelet:
        folder.chmod(0o777)
    found = _in_roots(*kubelet).where(f"0::{BURSTABLE}")
    assert found is not None
    assert found.text() == f"pod {UID}"


@needs_root
def test_a_name_with_an_escape_sequence_is_no_pods(kubelet: tuple[Path, Path]) -> None:
    bad = "ab" * 32
    (kubelet[0] / f"tr\x1b[2J_ml_x-{bad}.log").symlink_to("/nowhere")
    found = _in_roots(*kubelet).where(f"0::{BURSTABLE.replace(ID, bad)}")
    assert found is not None
    assert found.text() == "ml/train-0"


# Real cgroups.


@pytest.fixture(params=[1, 2], ids=["version 1", "version 2"])
def cgroup_root(request: pytest.FixtureRequest) -> Iterator[Path]:
    """A cgroup of root's to make others in; they go with the test."""
    version = request.param
    places = ["/sys/fs/cgroup/systemd"] if version == 1 else ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"]
    root = next((Path(p) for p in places if os.path.exists(f"{p}/cgroup.procs")), None)
    if root is None or os.geteuid() != 0:
        pytest.skip(f"no cgroups of version {version} to make, or not root")
    top = root / f"mpstui-test-{os.getpid()}"
    try:
        top.mkdir()
    except OSError as error:
        pytest.skip(f"cgroups cannot be made here: {error.strerror}")
    try:
        yield top
    finally:
        for folder in sorted((p for p in top.rglob("*") if p.is_dir()), reverse=True):
            with contextlib.suppress(OSError):
                folder.rmdir()
        with contextlib.suppress(OSError):
            top.rmdir()


def _moved_to(folder: Path) -> subprocess.Popen[str]:
    code = "import sys; print('ready', flush=True); sys.stdin.read()"
    process = subprocess.Popen(
        [sys.executable, "-S", "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    process.stdout.readline()
    (folder / "cgroup.procs").write_text(str(process.pid))
    return process


def _end(process: subprocess.Popen[str]) -> None:
    process.communicate()


def test_root_s_cgroup_is_believed_and_a_delegated_one_is_a_claim(cgroup_root: Path) -> None:
    folder = cgroup_root / "slurmstepd.scope" / "job_77" / "step_0"
    folder.mkdir(parents=True)
    process = _moved_to(folder)
    try:
        found = Cgroups().where_is(process.pid)
        assert found is not None
        assert (found.name("job"), found.claimed) == ("slurm:77", frozenset())
        os.chown(cgroup_root, 64_101, 64_101)
        found = Cgroups().where_is(process.pid)
        assert found is not None
        assert found.name("job") == "claims slurm:77", "the directory above is a user's"
        os.chown(cgroup_root, 0, 0)
        os.chown(folder / "cgroup.procs", 64_101, 64_101)
        found = Cgroups().where_is(process.pid)
        assert found is not None
        assert found.name("job") == "claims slurm:77", "a user can move his processes in"
    finally:
        _end(process)


def test_a_process_that_is_gone_belongs_nowhere() -> None:
    assert Cgroups().where_is(0) is None
    assert find_where((Cgroup("", "/"),)) is None
