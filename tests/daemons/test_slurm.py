"""The job script of ``mpstui daemon unit slurm`` as a real Slurm runs it, with the stand-in for the control binary.

Slurm's controller and node run here as root, without its authentication, on ports of their own. What a job leaves
behind is only to be seen where Slurm can put it into a cgroup: version 1 and its memory controller here, so that
this needs no systemd; elsewhere that part is left out.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from folders import daemons_below

from mpstui.daemons.spec import DaemonSpec
from mpstui.daemons.units import unit_text
from mpstui.sim.marker import control_binary

WAIT = 120.0
PROGRAMS = ("slurmctld", "slurmd", "sbatch", "sinfo")
CLIENT = Path(__file__).parents[2] / "mpstui" / "sim" / "simd" / "client.py"
pytestmark = [
    pytest.mark.skipif(any(shutil.which(name) is None for name in PROGRAMS), reason="Slurm is not installed"),
    pytest.mark.skipif(os.geteuid() != 0, reason="Prolog and Epilog are root's"),
]
HELLO = {
    "devices": [0], "uid": None, "user": None, "argv0": base64.b64encode(b"train").decode(), "command": "train",
    "contexts": 1, "memory": 1 << 30, "env": {}, "busy": True, "endless": False, "container": None, "cgroup": None,
    "namespace": None,
}  # fmt: skip
LEAVES = """\
import json, os, subprocess, sys, time
pipe, said = os.environ["CUDA_MPS_PIPE_DIRECTORY"], @SAID@
os.mkfifo(said + ".in")
keep = os.open(said + ".in", os.O_RDWR)
subprocess.Popen(
    [sys.executable, "-I", "-S", @CLIENT@, pipe + "/control", "train", "1", "0", "-"],
    stdin=keep, stdout=open(said, "wb"), stderr=subprocess.STDOUT, start_new_session=True,
)
os.write(keep, @HELLO@ + b"\\n")
end = time.monotonic() + 120
while b"connected" not in open(said, "rb").read() and time.monotonic() < end:
    time.sleep(0.05)
"""


def until(wanted: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + WAIT
    while not wanted():
        assert time.monotonic() < end, what
        time.sleep(0.05)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Slurm:
    """One controller and one node."""

    def __init__(self, place: Path, script: str) -> None:
        self.place = place
        memory = Path("/sys/fs/cgroup/memory/cgroup.procs").exists()
        self.cgroups = memory and os.access("/sys/fs/cgroup/memory", os.W_OK)
        for name in ("state", "spool"):
            (place / name).mkdir()
        (place / "mps.sh").write_text(script)
        path = f"{Path(control_binary()[-1]).parent}:{Path(sys.executable).parent}:/usr/sbin:/usr/bin:/sbin:/bin"
        part = place / "part.sh"
        audit = place / "audit.jsonl"
        part.write_text(
            f"#!/bin/sh\nexport PATH={path} MPSTUI_AUDIT_LOG={audit}\n"
            f"sh {place}/mps.sh 2>>{place}/errors\nstatus=$?\n"
            f'echo "$SLURM_SCRIPT_CONTEXT $SLURM_JOB_ID $status" >>{place}/parts\nexit $status\n'
        )
        part.chmod(0o755)
        (place / "cgroup.conf").write_text(
            "CgroupPlugin=cgroup/v1\nCgroupMountpoint=/sys/fs/cgroup\nConstrainRAMSpace=yes\n"
        )
        (place / "slurm.conf").write_text(f"""\
ClusterName=t
SlurmctldHost=localhost
SlurmctldPort={free_port()}
SlurmdPort={free_port()}
AuthType=auth/none
CredType=cred/none
SlurmUser=root
StateSaveLocation={place}/state
SlurmdSpoolDir={place}/spool
SlurmctldPidFile={place}/ctld.pid
SlurmdPidFile={place}/slurmd.pid
SlurmctldLogFile={place}/ctld.log
SlurmdLogFile={place}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin={"task/cgroup" if self.cgroups else "task/none"}
SelectType=select/linear
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
Prolog={part}
TaskProlog={part}
Epilog={part}
PrologFlags=Alloc
NodeName=localhost CPUs=1 State=UNKNOWN
PartitionName=p Nodes=localhost Default=YES State=UP OverSubscribe=FORCE:2
""")
        self.environment = {**os.environ, "SLURM_CONF": str(place / "slurm.conf")}

    def run(self, stack: ExitStack) -> None:
        for words in (("slurmctld", "-D", "-i"), ("slurmd", "-D", "-N", "localhost")):
            process = subprocess.Popen(
                words,
                env=self.environment,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
            stack.callback(process.wait)
            stack.callback(process.send_signal, signal.SIGTERM)
        until(lambda: "idle" in self._told("sinfo", "-h", "-o", "%t"), "the node is not idle")

    def _told(self, *words: str) -> str:
        return subprocess.run(words, env=self.environment, capture_output=True, text=True, check=False).stdout

    def parts(self) -> list[str]:
        return (self.place / "parts").read_text().splitlines() if (self.place / "parts").exists() else []

    def job(self, body: str, *options: str, jobs: int = 1) -> tuple[str, str]:
        """The number of a job that has ended, with its epilog, and what it printed; ``jobs`` of an array."""
        script = self.place / "job"
        script.write_text(f"#!/bin/sh\n{body}\n")
        told = self._told("sbatch", "--chdir", "/", "-o", f"{self.place}/out-%j", *options, str(script))
        number = told.split()[-1]
        ends = len([line for line in self.parts() if line.startswith("epilog_slurmd")]) + jobs

        def ended() -> bool:
            return len([line for line in self.parts() if line.startswith("epilog_slurmd")]) >= ends

        until(ended, f"job {number}: {self.parts()}")
        return number, (self.place / f"out-{number}").read_text()


def slurms_cgroups() -> set[Path]:
    return set(Path("/sys/fs/cgroup/memory").glob("slurm*"))


@pytest.fixture
def place() -> Iterator[Path]:
    found = Path(tempfile.mkdtemp(prefix="mpstui-slurm-", dir="/tmp"))
    found.chmod(0o755)
    before = slurms_cgroups()
    yield found
    for daemon in daemons_below(found):
        os.kill(daemon.key.pid, signal.SIGKILL)
    for folder in slurms_cgroups() - before:  # only those of this test, and only empty ones
        for place, _, _ in os.walk(folder, topdown=False):
            with contextlib.suppress(OSError):
                os.rmdir(place)
    shutil.rmtree(found, ignore_errors=True)


def test_a_job_that_asks_learns_its_daemon_and_its_epilog_ends_what_it_leaves(place: Path) -> None:
    spec = DaemonSpec(place / "pipe", place / "log")
    text = unit_text("slurm", (spec,), "comment=mps").replace("/run/mpstui-jobs", os.fspath(place / "jobs"))
    with ExitStack() as stack:
        slurm = Slurm(place, text)
        slurm.run(stack)
        number, told = slurm.job('echo "${CUDA_MPS_PIPE_DIRECTORY:-none}"')
        assert told == "none\n"
        assert not daemons_below(place)
        body = 'echo "$CUDA_MPS_PIPE_DIRECTORY"; ls "$CUDA_MPS_PIPE_DIRECTORY"'
        leaves = LEAVES.replace("@SAID@", repr(f"{place}/said")).replace("@CLIENT@", repr(os.fspath(CLIENT)))
        (place / "leaves.py").write_text(leaves.replace("@HELLO@", repr(json.dumps(HELLO).encode())))
        if slurm.cgroups:
            body += f"; {sys.executable} {place}/leaves.py"
        asked, told = slurm.job(body, "--comment=big, MPS please")
        assert told.splitlines()[0] == str(place / "pipe")
        assert "control" in told.splitlines()
        states = dict(line.rsplit(" ", 1) for line in slurm.parts())
        assert states == {
            f"{part} {job}": "0"
            for part in ("prolog_slurmd", "prolog_task", "epilog_slurmd")
            for job in (number, asked)
        }, (place / "errors").read_text()
        assert not daemons_below(place)
        if slurm.cgroups:
            # It is ended as soon as its work is: it may be gone before it has said what it saw.
            said, log = (place / "said").read_text(), (place / "log" / "control.log").read_text()
            assert ("connected" in said, "error=806" in said) == (True, False), f"it lost its server: {said}"
            assert log.index("Cmd:terminate_client") < log.index("Cmd:quit")
            ended = [json.loads(line) for line in (place / "audit.jsonl").read_text().splitlines()]
            assert [entry["status"] for entry in ended if entry["action"] == "terminate_and_kill"][-1] == 0, ended

        # Two of an array at the same time: one daemon, which the last of them stops.
        before = (place / "log" / "control.log").read_text().count("Starting control daemon")
        here = f"{place}/here"
        body = (
            f"touch {here}-$SLURM_ARRAY_TASK_ID; until [ -e {here}-0 ] && [ -e {here}-1 ]; do sleep 0.1; done; "
            "echo get_default_active_thread_percentage | timeout 20 nvidia-cuda-mps-control"
        )
        _, told = slurm.job(body, "--comment=mps", "--array=0-1", jobs=2)
        assert told == "100.0\n"
        assert {line.rpartition(" ")[2] for line in slurm.parts()} == {"0"}, (place / "errors").read_text()
        assert (place / "log" / "control.log").read_text().count("Starting control daemon") == before + 1
        assert not daemons_below(place)
        until(lambda: "idle" in slurm._told("sinfo", "-h", "-o", "%t"), "the node is not idle again")
