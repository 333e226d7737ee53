"""Cgroup paths as container runtimes, batch systems and systemd write them."""

from __future__ import annotations

import pytest

from mpstui.core.where import cgroup_path, container_of

ID = "3f5c8a0d9b7e41c2a6f0d8e1b2c3a4958677665544332211ffeeddccbbaa9988"
SHORT = ID[:12]


@pytest.mark.parametrize(
    ("cgroup", "container"),
    [
        (f"/docker/{ID}", f"docker:{SHORT}"),
        (f"/system.slice/docker-{ID}.scope", f"docker:{SHORT}"),
        (f"/machine.slice/libpod-{ID}.scope", f"podman:{SHORT}"),
        (f"/machine.slice/libpod-{ID}.scope/container", f"podman:{SHORT}"),
        (
            f"/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-{ID}.scope/container",
            f"podman:{SHORT}",
        ),
        (f"/kubepods/burstable/pod7a6a3c5e-9d5b-4a43-8f5c-2a1b3c4d5e6f/{ID}", f"kubernetes:{SHORT}"),
        (
            "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod7a6a3c5e_9d5b_4a43_8f5c_2a1b3c4d5e6f"
            f".slice/cri-containerd-{ID}.scope",
            f"kubernetes:{SHORT}",
        ),
        (f"/kubepods.slice/kubepods-pod7a6a3c5e_9d5b.slice/crio-{ID}.scope", f"kubernetes:{SHORT}"),
        (
            f"/system.slice/containerd.service/kubepods-besteffort-pod7a6a3c5e_9d5b.slice:cri-containerd:{ID}",
            f"kubernetes:{SHORT}",
        ),
        (f"/docker/{'ab' * 32}/kubelet/kubepods/pod7a6a3c5e/cri-containerd-{ID}", f"kubernetes:{SHORT}"),
        (f"/default/{ID}", f"containerd:{SHORT}"),
        (f"/system.slice/nerdctl-{ID}.scope", f"containerd:{SHORT}"),
        (f"/user.slice/nerdctl:nerdctl:{ID}", f"containerd:{SHORT}"),
        (f"/../{ID}", f"container:{SHORT}"),
        (f"/system.slice/docker-{ID}.scope/init.scope", f"docker:{SHORT}"),
        ("/lxc/web-1", "lxc:web-1"),
        ("/lxc.payload.web-1/user.slice", "lxc:web-1"),
        ("/lxc.payload/web-1", "lxc:web-1"),
        ("/lxc.payload.web-1/system.slice/train.service", "train"),
        ("/user.slice/user-1000.slice/user@1000.service/user.slice/apptainer-4711.scope", "apptainer:4711"),
        ("/singularity/4711", "apptainer:4711"),
        ("/slurm/uid_1000/job_1234/step_0/task_0", "slurm:1234"),
        ("/system.slice/slurmstepd.scope/job_1234/step_batch/user/task_0", "slurm:1234"),
        ("/user/job_1234", None),
        ("/system.slice/nvidia-mps.service", "nvidia-mps"),
        ("/system.slice/system-mps.slice/mps@0.service", "mps@0"),
        ("/user.slice/user-1000.slice/user@1000.service/app.slice/app-train\\x2drun.scope", "app-train-run"),
        ("/user.slice/user-1000.slice/session-3.scope", None),
        ("/user.slice/user-1000.slice/session-c2.scope", None),
        ("/user.slice/user-1000.slice/user@1000.service", None),
        ("/init.scope", None),
        ("/", None),
        ("", None),
        (f"/docker/{ID[:-1]}", None),
    ],
)
def test_container_of(cgroup: str, container: str | None) -> None:
    assert container_of(cgroup) == container


def test_a_name_that_a_user_chose_is_made_printable_and_short() -> None:
    assert container_of("/user.slice/\x1b[2Jx\n.service") == "\\x1b[2Jx\\n"
    assert len(container_of("/lxc/" + "a" * 5000) or "") == 64


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("0::/system.slice/nvidia-mps.service\n", "/system.slice/nvidia-mps.service"),
        ("0::/\n", "/"),
        (f"12:pids:/docker/{ID}\n11:cpuset:/\n1:name=systemd:/docker/{ID}\n0::/system.slice/x.service\n", "hybrid"),
        (f"12:pids:/docker/{ID}\n2:cpu,cpuacct:/\n1:name=systemd:/init.scope\n", "/init.scope"),
        (f"9:name=systemd:/\n4:memory:/docker/{ID}\n3:cpuset:/\n0::/\n", f"/docker/{ID}"),
        ("5:devices:/a:b\n", "/a:b"),
        ("", None),
        ("nonsense\n::\n0:\n", None),
    ],
)
def test_cgroup_path(text: str, path: str | None) -> None:
    assert cgroup_path(text) == ("/system.slice/x.service" if path == "hybrid" else path)
