"""Unit texts: linted, parsed, and the job scripts run against the simulated stand-in."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import stat
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest
from folders import daemons_below
from terminal import DEADLINE, until

from mpstui.daemons.spec import DaemonSpec
from mpstui.daemons.units import UnitKind, unit_text
from mpstui.plan.amounts import PlanError
from mpstui.plan.profile import Limits
from mpstui.sim.marker import control_binary

GIB = 1 << 30
HARD = DaemonSpec(
    Path('/run/it\'s "100%" $HOME'),
    Path("/var/log/mps;id"),
    ("GPU-1", "GPU-2"),
    False,
    frozenset({0}),
    Limits(33.4, 1, {"GPU-1": 10 * GIB}),
)
UUID = "GPU-74d43ed3-cdf7-e667-3644-bf5b4f46ed65"
STATIC = replace(HARD, driver="590.1", static=True, partitions=((UUID, 7), (UUID, 2)), limits=Limits())
V3 = replace(HARD, driver="615.1", protocol=3, limits=Limits())
PLAIN = DaemonSpec(Path("/tmp/mps_1"), Path("/tmp/mps_log_1"), multi_user=True)


@pytest.mark.parametrize("kind", ["slurm", "pbs"])
@pytest.mark.parametrize("shell", ["sh", "bash"])
def test_job_scripts_are_shell(kind: str, shell: str) -> None:
    text = unit_text(kind, (HARD, PLAIN))
    done = subprocess.run([shell, "-n"], input=text, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(shutil.which("shellcheck") is None, reason="needs shellcheck; sh -n and a run say the most of it")
@pytest.mark.parametrize("alone", [False, True])
@pytest.mark.parametrize("kind", ["slurm", "pbs"])
def test_shellcheck_finds_nothing(kind: str, alone: bool) -> None:
    spaced = replace(HARD, pipe_dir=Path("/run/two words"))  # quotes in a value make it doubt everything
    done = subprocess.run(
        ["shellcheck", "--severity=warning", "-"],
        input=unit_text(kind, (PLAIN,) if alone else (spaced, PLAIN)),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "")


def run_part(place: Path, text: str, part: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """The script as Slurm runs it, with the stand-in and an nvidia-smi that only takes notes."""
    tools = place / "bin"
    tools.mkdir(exist_ok=True)
    smi = tools / "nvidia-smi"
    smi.write_text(
        f'#!/bin/sh\necho "$@" >> {place}/smi.log\ncase "$*" in *query*) echo "$LEFT";; -L) exit ${{SICK:-0}};; esac\n'
    )
    smi.chmod(0o755)
    path = f"{tools}:{Path(control_binary()[-1]).parent}:{os.environ['PATH']}"
    own = {"PATH": path, "SLURM_SCRIPT_CONTEXT": part, "SLURM_JOB_UID": "0", "LEFT": "", **environment}
    # A file and not a pipe: the daemon keeps its standard output open.
    output = place / "output"
    with output.open("w") as file:
        done = subprocess.run(
            ["sh"], input=text, stdout=file, stderr=file, text=True, env=own, check=False, timeout=120
        )
    return subprocess.CompletedProcess(done.args, done.returncode, output.read_text())


def test_prolog_and_epilog_do_what_they_say(place: Path) -> None:
    cpu = min(os.sched_getaffinity(0))
    spec = DaemonSpec(
        place / "it's", place / "log", ("GPU-1",), False, frozenset({cpu}), Limits(33.4, 1, {"GPU-1": 10 * GIB})
    )
    text = unit_text("slurm", (spec,))
    started = run_part(place, text, "prolog_slurmd")
    assert (started.returncode, started.stdout) == (0, "")
    (daemon,) = daemons_below(place)
    assert os.sched_getaffinity(daemon.key.pid) == {cpu}
    log = place / "log" / "control.log"
    until(lambda: "Starting new server" in log.read_text(), DEADLINE)
    stopped = run_part(place, text, "epilog_slurmd")
    assert (stopped.returncode, stopped.stdout) == (0, "")
    assert not daemons_below(place)
    asked = (place / "smi.log").read_text().splitlines()
    assert asked[:2] == ["-L", "-i GPU-1 -c EXCLUSIVE_PROCESS"]
    assert asked[-1] == "-i GPU-1 -c DEFAULT"


def test_a_node_whose_gpus_do_not_answer_gets_no_job(place: Path) -> None:
    """A prologue that fails has Slurm drain the node, and PBS take it offline."""
    done = run_part(place, unit_text("slurm", (DaemonSpec(place / "pipe", place / "log"),)), "prolog_slurmd", SICK="9")
    assert (done.returncode, "nvidia-smi fails" in done.stdout) == (1, True)
    assert not daemons_below(place)


@pytest.mark.slow
def test_an_epilog_names_the_daemon_that_does_not_end(place: Path) -> None:
    text = unit_text("slurm", (DaemonSpec(place / "pipe", place / "log"),))
    started = run_part(place, text, "prolog_slurmd")  # with all its tries: a slow machine needs them
    assert (started.returncode, started.stdout) == (0, "")
    (daemon,) = daemons_below(place)
    impatient = text.replace("-lt 50", "-lt 3").replace("control 'quit", "control 'get_server_list")
    done = run_part(place, impatient, "epilog_slurmd")
    assert (done.returncode, f"did not end: process {daemon.key.pid}" in done.stdout) == (1, True)


@pytest.mark.slow
def test_a_command_that_meets_somebody_elses_session_is_sent_again(place: Path) -> None:
    """It is refused, not always in words (facts 2, 30); an exporter or an admin who looks at that moment is enough."""
    tools = place / "bin"
    tools.mkdir()
    wrapper = tools / "nvidia-cuda-mps-control"
    wrapper.write_text(
        f"""#!/bin/sh
[ $# -eq 0 ] || exec {shlex.join(control_binary())} "$@"
words=$(cat)
seen={place}/seen-$(printf %s "$words" | tr -dc a-z)
[ -e "$seen" ] || {{ : >"$seen"; exit 0; }}
printf '%s\\n' "$words" | {shlex.join(control_binary())}
"""
    )
    wrapper.chmod(0o755)
    text = unit_text("slurm", (DaemonSpec(place / "pipe", place / "log", limits=Limits(50.0)),))
    for part in ("prolog_slurmd", "epilog_slurmd"):
        done = run_part(place, text, part)
        assert (done.returncode, done.stdout) == (0, ""), part
    assert not daemons_below(place)
    assert {"seen-quitt", "seen-setdefaultactivethreadpercentage"} <= {each.name for each in place.iterdir()}


def test_a_process_that_is_left_fails_the_epilog(place: Path) -> None:
    spec = DaemonSpec(place / "pipe", place / "log", ("GPU-1",))
    done = run_part(place, unit_text("slurm", (spec,)), "epilog_slurmd", LEFT="4711")
    assert done.returncode == 1
    assert "processes are left on GPU-1: 4711" in done.stdout


@pytest.mark.slow
def test_a_limit_that_is_ignored_fails_the_prolog(place: Path) -> None:
    spec = DaemonSpec(place / "pipe", place / "log", limits=Limits(50.0))
    text = unit_text("slurm", (spec,)).replace("percentage 50", "percentage 0")
    done = run_part(place, text, "prolog_slurmd")
    assert (done.returncode, "not in force: set_default" in done.stdout) == (1, True)


def test_a_limit_that_is_no_whole_gibibyte_is_in_force_though_another_one_is_read_back(place: Path) -> None:
    """``56704M`` reads back as ``55G`` (fact 32)."""
    spec = DaemonSpec(place / "pipe", place / "log", limits=Limits(pinned_mem_limits={"0": 56704 << 20}))
    text = unit_text("slurm", (spec,))
    assert "set_default_device_pinned_mem_limit 0 56704M" in text
    done = run_part(place, text, "prolog_slurmd")
    assert (done.returncode, done.stdout) == (0, "")
    assert run_part(place, text, "epilog_slurmd").returncode == 0


def test_a_prolog_uses_no_directory_that_somebody_else_can_change(place: Path) -> None:
    (place / "private").mkdir(mode=0o700)
    (place / "link").symlink_to(place / "private")
    (place / "open").mkdir()
    (place / "open").chmod(0o777)
    (place / "theirs").mkdir()
    if os.geteuid() == 0:
        os.chown(place / "theirs", 12345, 12345)
    for name in ("link", "open", "theirs") if os.geteuid() == 0 else ("link", "open"):
        done = run_part(place, unit_text("slurm", (DaemonSpec(place / name, place / "log"),)), "prolog_slurmd")
        assert (done.returncode, f"{place / name} is a link, or not this user's" in done.stdout) == (1, True)
    assert stat.S_IMODE((place / "private").stat().st_mode) == 0o700
    assert not daemons_below(place)


def test_a_binary_that_says_nothing_is_no_daemon_that_answers(place: Path) -> None:
    """Status 0 and not a word is how a refused command ends (fact 30)."""
    (place / "bin").mkdir()
    silent = place / "bin" / "nvidia-cuda-mps-control"
    silent.write_text("#!/bin/sh\ncat > /dev/null\n")
    silent.chmod(0o755)
    spec = DaemonSpec(place / "pipe", place / "log")
    done = run_part(place, unit_text("slurm", (spec,)).replace("-lt 50", "-lt 2"), "prolog_slurmd")
    assert (done.returncode, "the daemon does not answer" in done.stdout) == (1, True)


def test_a_script_under_another_name_says_so(place: Path) -> None:
    done = run_part(place, unit_text("slurm", (PLAIN,)), "task")
    assert (done.returncode, "says neither" in done.stdout) == (1, True)


def test_the_systemd_unit_line_by_line() -> None:
    lines = unit_text("systemd", (HARD,)).splitlines()
    assert [line for line in lines if line.startswith("[")] == ["[Unit]", "[Service]", "[Install]"]
    assert 'Environment="CUDA_MPS_PIPE_DIRECTORY=/run/it\'s \\"100%%\\" $HOME"' in lines
    limited = "ExecStartPre=/usr/bin/timeout -k 5 20 "
    assert limited + '/usr/bin/mkdir -p -m 0755 "/run/it\'s \\"100%%\\" $$HOME" "/var/log/mps;id"' in lines
    assert 'ExecStartPre=/usr/bin/timeout -k 5 20 /usr/bin/test -O "/var/log/mps;id" -a ! -L "/var/log/mps;id"' in lines
    assert "ExecStartPre=/usr/bin/timeout -k 5 60 /usr/bin/nvidia-smi -i GPU-2 -c EXCLUSIVE_PROCESS" in lines
    assert "CPUAffinity=0" in lines
    assert any("set_default_device_pinned_mem_limit GPU-1 10G" in line for line in lines)
    assert "ExecStart=/usr/bin/timeout -k 5 60 /usr/bin/nvidia-cuda-mps-control -d -M" in unit_text("systemd", (PLAIN,))


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze; checked by line above")
@pytest.mark.parametrize("spec", [HARD, STATIC, V3], ids=["usual", "static", "v3"])
def test_systemd_takes_the_unit(tmp_path: Path, spec: DaemonSpec) -> None:
    # It insists on programs that are there.
    text = unit_text("systemd", (spec,)).replace("/usr/bin/nvidia-cuda-mps-control", "/bin/true")
    unit = tmp_path / "nvidia-mps.service"
    verify = ["systemd-analyze", "verify", "--man=no", str(unit)]
    unit.write_text(text.replace("/usr/bin/nvidia-smi", "/bin/true"))
    good = subprocess.run(verify, capture_output=True, text=True, check=False)
    assert "nvidia-mps.service" not in good.stderr
    unit.write_text(text.replace("Type=forking", "Type=nonsense"))
    assert "nvidia-mps.service" in subprocess.run(verify, capture_output=True, text=True, check=False).stderr


def as_systemd_runs(line: str) -> str:
    """What the shell of a line ``Exec…=/bin/sh -c '…'`` gets."""
    command = line.partition("=/bin/sh -c '")[2].removesuffix("'")
    return command.replace("$$", "$").replace("%%", "%").replace("\\\\", "\\")


@pytest.fixture
def programs(place: Path) -> Path:
    """A control binary that says what the test has put into the file ``said``, and notes what it is told."""
    (place / "control").write_text(f'#!/bin/sh\necho "$@" >>{place}/asked\ncat - >>{place}/asked\ncat {place}/said\n')
    (place / "control").chmod(0o755)
    return place


@pytest.mark.parametrize(
    ("said", "name"),
    [
        (f"Partition {UUID}/Dx4AAAA+AAAA/AAAAAAAAAAAAAAAAAAAAA created", f"{UUID}/Dx4AAAA+AAAA/AAAAAAAAAAAAAAAAAAAAA"),
        ("/x4AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA==", f"{UUID}//x4AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=="),  # as documented
        (
            "Failed to fulfill the requested SM partition of 28 chunks, error CUDA_ERROR_INVALID_RESOURCE_CONFIG",
            None,
        ),
        ('Unknown command "sm_partition"', None),
        ("", None),
    ],
)
def test_a_unit_makes_the_partitions_and_leaves_their_names(programs: Path, said: str, name: str | None) -> None:
    (programs / "said").write_text(said + "\n")
    lines = unit_text("systemd", (STATIC,)).splitlines()
    assert "RuntimeDirectory=nvidia-it-s--100----HOME" in lines
    assert any(line.endswith("-d -S") for line in lines)
    _, second = [as_systemd_runs(line) for line in lines if "sm_partition" in line]
    shell = second.replace("/run/nvidia-it-s--100----HOME", str(programs)).replace(
        "/usr/bin/nvidia-cuda-mps-control", str(programs / "control")
    )
    done = subprocess.run(["/bin/sh", "-c", shell], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode == 0, done.stderr) == (name is not None, "")
    assert f"sm_partition add {UUID} 2\n" in (programs / "asked").read_text()
    kept = programs / "partition-2"
    assert (kept.read_text() if kept.exists() else None) == (name and f"CUDA_MPS_SM_PARTITION={name}\n")


def test_what_a_unit_cannot_make_is_said(programs: Path) -> None:
    with pytest.raises(PlanError, match="by its whole UUID, and not as '1'"):
        unit_text("systemd", (replace(STATIC, partitions=(("1", 7),)),))
    for kind in ("slurm", "pbs", "pbs-hook"):
        for spec, why in ((STATIC, "cannot create partitions"), (V3, "works with protocol 2 only")):
            with pytest.raises(PlanError, match=why):
                unit_text(kind, (spec,))
    # Of protocol 3 the servers go, and systemd's SIGTERM does the rest: no quit, no -q.
    unit = unit_text("systemd", (V3,))
    assert "nvidia-cuda-mps-control -d -p 3" in unit
    assert "quit" not in unit
    (stop,) = [as_systemd_runs(line) for line in unit.splitlines() if line.startswith("ExecStop=")]
    (programs / "said").write_text("training,1000,1,Ready,/run/x,GPU-1,GPU-2,-\n$(id),0\n")
    subprocess.run(
        ["/bin/sh", "-c", stop.replace("/usr/bin/nvidia-cuda-mps-control", str(programs / "control"))],
        check=True, timeout=60, stdin=subprocess.DEVNULL, capture_output=True,
    )  # fmt: skip
    asked = (programs / "asked").read_text().splitlines()
    assert asked == [
        "server list --format=csv,noheader",
        "server delete training --force",
        "server delete $(id) --force",
    ]


@pytest.mark.parametrize("kind", get_args(UnitKind))
def test_control_characters_are_not_written(kind: str) -> None:
    with pytest.raises(PlanError, match="cannot be printed"):
        unit_text(kind, (DaemonSpec(Path("/tmp/a\nb"), Path("/tmp/l")),))


@pytest.mark.parametrize("name", ["mps\\", "mps\\\\", "mps \\", "\\", "mps%", 'mps"', "mps'", "mps$x", "mps;#"])
def test_no_name_of_a_directory_joins_two_lines_of_a_unit(name: str) -> None:
    text = unit_text("systemd", [DaemonSpec(Path("/tmp") / name, Path("/tmp") / f"log{name}", ("GPU-0",))])

    plain = unit_text("systemd", [DaemonSpec(Path("/tmp/x"), Path("/tmp/y"), ("GPU-0",))])
    assert not [line for line in text.splitlines() if line.endswith("\\")]
    keys = [[line.partition("=")[0] for line in unit.splitlines()[1:]] for unit in (text, plain)]
    assert keys[0] == keys[1]


def with_jobs(place: Path, text: str) -> str:
    """The script with its notes in the test's directory."""
    assert "/run/mpstui-jobs" in text
    return text.replace("/run/mpstui-jobs", os.fspath(place / "jobs"))


ASKED = {
    "comment=mps": {"SLURM_JOB_COMMENT": "big, MPS please"},
    "constraint=mps": {"SLURM_JOB_CONSTRAINTS": "gpu,mps"},
    "partition=shared": {"SLURM_JOB_PARTITION": "shared"},
    "account=ml": {"SLURM_JOB_ACCOUNT": "ml"},
    "licence=mps": {"SCONTROL": "JobId=7 Licenses=matlab:1,mps:2 Comment=x"},
    "gres=mps": {"SCONTROL": "JobId=7 TresPerNode=gres/gpu:1,gres/mps:50 Comment=x"},
}
NOT_ASKED = {
    "comment=mps": {"SLURM_JOB_COMMENT": "nompst; touch $(id) *"},
    "constraint=mps": {"SLURM_JOB_CONSTRAINTS": ""},
    "partition=shared": {"SLURM_JOB_PARTITION": "shared-2"},
    "account=ml": {},
    "licence=mps": {"SCONTROL": "JobId=7 Licenses=(null) Comment=mps"},
    "gres=mps": {"SCONTROL": "JobId=7 TresPerNode=gres/gpu:1 Comment=mps"},
}


@pytest.mark.slow
@pytest.mark.parametrize("opt_in", ASKED)
def test_a_job_that_asks_for_mps_has_it_and_learns_where(place: Path, opt_in: str) -> None:
    scontrol = place / "bin" / "scontrol"
    scontrol.parent.mkdir()
    scontrol.write_text('#!/bin/sh\necho "$SCONTROL"\n')
    scontrol.chmod(0o755)
    text = with_jobs(place, unit_text("slurm", (DaemonSpec(place / "it's", place / "log"),), opt_in))
    told = f"export CUDA_MPS_PIPE_DIRECTORY={place}/it's\n"
    job = {"SLURM_JOB_ID": "7"}

    no = run_part(place, text, "prolog_slurmd", **job, **NOT_ASKED[opt_in])
    assert (no.returncode, no.stdout) == (0, "")
    assert not daemons_below(place)
    assert run_part(place, text, "prolog_task", **job).stdout == ""
    assert run_part(place, text, "epilog_slurmd", **job).returncode == 0

    yes = run_part(place, text, "prolog_slurmd", **job, **ASKED[opt_in])
    assert (yes.returncode, yes.stdout) == (0, "")
    assert daemons_below(place)
    assert run_part(place, text, "prolog_task", **job).stdout == told
    assert run_part(place, text, "prolog_task", SLURM_JOB_ID="8").stdout == "", "another job on the node"
    other = run_part(place, text, "epilog_slurmd", SLURM_JOB_ID="8")
    assert (other.returncode, bool(daemons_below(place))) == (0, True), "its end is not this job's"

    assert run_part(place, text, "epilog_slurmd", **job).returncode == 0
    assert not daemons_below(place)
    assert run_part(place, text, "prolog_task", **job).stdout == ""


@pytest.mark.slow
def test_jobs_of_one_node_share_the_daemon_and_the_last_one_stops_it(place: Path) -> None:
    """Two of an array, say: on a real OpenPBS the second one took the node offline."""
    spec = DaemonSpec(place / "p", place / "log", ("GPU-1",), limits=Limits(50.0))
    text = with_jobs(place, unit_text("slurm", (spec,)))
    for job in ("1", "2"):
        done = run_part(place, text, "prolog_slurmd", SLURM_JOB_ID=job)
        assert (done.returncode, done.stdout) == (0, "")
    (daemon,) = daemons_below(place)
    assert sorted(path.name for path in (place / "jobs").iterdir() if path.name[0] != ".") == ["1", "2"]
    assert run_part(place, text, "epilog_slurmd", SLURM_JOB_ID="1").returncode == 0
    assert [d.key for d in daemons_below(place)] == [daemon.key]
    assert run_part(place, text, "epilog_slurmd", SLURM_JOB_ID="2").returncode == 0
    assert not daemons_below(place)
    asked = (place / "smi.log").read_text()
    assert [asked.count(mode) for mode in ("-c EXCLUSIVE_PROCESS", "-c DEFAULT")] == [1, 1]
    sick = run_part(place, text, "prolog_slurmd", SLURM_JOB_ID="4", SICK="1")
    assert sick.returncode == 1
    assert not (place / "jobs" / "4").exists(), "a job that was not begun keeps no daemon from its end"


def test_tasks_are_spread_over_the_daemons_and_name_their_gpus_by_uuid() -> None:
    specs = (DaemonSpec(Path("/run/a"), Path("/l"), ("GPU-1",)), DaemonSpec(Path("/run/b"), Path("/l"), ("GPU-2",)))
    text = unit_text("slurm", specs).replace("    marked || exit 0", "    :")
    for task, (where, gpu) in {"0": ("a", "GPU-1"), "1": ("b", "GPU-2"), "2": ("a", "GPU-1")}.items():
        env = {"PATH": os.environ["PATH"], "SLURM_SCRIPT_CONTEXT": "prolog_task", "SLURM_LOCALID": task}
        done = subprocess.run(["sh"], input=text, capture_output=True, text=True, env=env, check=False)
        assert done.stdout == f"export CUDA_MPS_PIPE_DIRECTORY=/run/{where}\nexport CUDA_VISIBLE_DEVICES={gpu}\n"


def as_pbs(place: Path, text: str, part: str, *arguments: str, qstat: str = "") -> subprocess.CompletedProcess[str]:
    """The script as PBS runs it: its role by its name, the job in its arguments."""
    script = place / part
    script.write_text(text)
    script.chmod(0o755)
    (place / "bin").mkdir(exist_ok=True)
    for name, body in {"qstat": f"echo '{qstat}'", "nvidia-smi": "true"}.items():
        (place / "bin" / name).write_text(f"#!/bin/sh\n{body}\n")
        (place / "bin" / name).chmod(0o755)
    path = f"{place / 'bin'}:{Path(control_binary()[-1]).parent}:{os.environ['PATH']}"
    with (place / "output").open("w") as file:
        done = subprocess.run(
            ["sh", script, *arguments], stdout=file, stderr=file, env={"PATH": path}, check=False, timeout=120
        )
    return subprocess.CompletedProcess(done.args, done.returncode, (place / "output").read_text())


TORQUE = ("4711[3].server", "root", "root", "name", "walltime=1", "batch", "MPS=true")
OPENPBS = ("4711[3].server", "root", "root")


@pytest.mark.parametrize(
    ("arguments", "qstat", "asks"),
    [
        (TORQUE, "", True),
        ((*TORQUE[:6], "physics"), "", False),
        (OPENPBS, "    Account_Name = MPS=true", True),
        (OPENPBS, "    Account_Name = none", False),
    ],
)
def test_a_pbs_job_asks_by_its_account_and_its_shell_learns_where(
    place: Path, arguments: tuple[str, ...], qstat: str, asks: bool
) -> None:
    text = with_jobs(place, unit_text("pbs", (DaemonSpec(place / "it's", place / "log"),), "account=MPS=true"))
    done = as_pbs(place, text, "prologue", *arguments, qstat=qstat)
    assert (done.returncode, done.stdout) == (0, "")
    assert bool(daemons_below(place)) is asks
    (line,) = [line for line in text.splitlines() if line.startswith("#     case ${PBS_JOBID")]
    for job, learns in ((arguments[0], asks), ("4712.server", False), ("../jobs/" + arguments[0], False)):
        shell = f'{line.removeprefix("#")}\necho "${{CUDA_MPS_PIPE_DIRECTORY:-none}}"'
        told = subprocess.run(["sh", "-c", shell], env={"PBS_JOBID": job}, capture_output=True, text=True, check=False)
        assert told.stdout.strip() == (f"{place}/it's" if learns else "none")
    assert as_pbs(place, text, "epilogue", *arguments, qstat=qstat).returncode == 0
    assert not daemons_below(place)


@pytest.mark.parametrize("command", ["start_server", "set_default_active_thread_percentage"])
@pytest.mark.parametrize("always", [False, True])
def test_what_a_try_says_that_somebody_elses_session_met_is_told_where_all_fail(
    place: Path, command: str, always: bool
) -> None:
    """On a busy machine the prologue's output was the complaint of a try, though the next one went through."""
    (place / "bin").mkdir()
    met = place / "bin" / "nvidia-cuda-mps-control"
    once = "true" if always else f"mkdir '{place}/met' 2>/dev/null"
    met.write_text(
        f'#!/bin/sh\n[ $# -eq 0 ] || exec {shlex.join(control_binary())} "$@"\nline=$(cat)\ncase $line in {command}*)\n'
        f"if {once}; then echo 'Cannot send it' >&2; exit 1; fi ;; esac\n"
        f"printf '%s\\n' \"$line\" | {shlex.join(control_binary())}\n"
    )
    met.chmod(0o755)
    spec = DaemonSpec(place / "p", place / "log", limits=Limits(50.0))
    text = with_jobs(place, unit_text("pbs", (spec,), "account=MPS=true")).replace("sleep 0.5", "")
    done = as_pbs(place, text, "prologue", *TORQUE)
    if not always:
        assert (done.returncode, done.stdout) == (0, "")
    else:
        assert done.returncode == 2
        assert done.stdout.count("Cannot send it") == 1
    as_pbs(place, text, "epilogue", *TORQUE)


@pytest.mark.slow
def test_what_pbs_does_not_put_on_the_path_is_found_and_a_failure_sends_the_job_elsewhere(place: Path) -> None:
    """OpenPBS runs the prologue with /bin:/usr/bin alone, and has its programs where pbs.conf says (seen on 23.06)."""
    text = with_jobs(place, unit_text("pbs", (DaemonSpec(place / "p", place / "log"),), "account=MPS=true"))
    programs = place / "exec" / "bin"
    programs.mkdir(parents=True)
    for name, body in {
        "qstat": "echo '    Account_Name = MPS=true'",
        "pbsnodes": f'echo "$@" >{place}/offline',
        "nvidia-cuda-mps-control": f'exec {shlex.join(control_binary())} "$@"',
        "nvidia-smi": "true",
        "mpstui": f'echo "$@" >{place}/ended',
    }.items():
        (programs / name).write_text(f"#!/bin/sh\n{body}\n")
        (programs / name).chmod(0o755)
    (place / "pbs.conf").write_text(f"PBS_SERVER=x\nPBS_EXEC={place}/exec\n")
    env = {"PATH": "/bin:/usr/bin", "PBS_CONF_FILE": str(place / "pbs.conf")}

    def run(part: str, job: str) -> tuple[int, bool]:
        (place / part).write_text(text)
        with (place / "output").open("w") as file:
            ended = subprocess.run(
                ["/bin/sh", place / part, job, *OPENPBS[1:]],
                stdout=file,
                stderr=file,
                check=False,
                timeout=120,
                env=env,
            )
        return ended.returncode, bool(daemons_below(place))

    assert run("prologue", OPENPBS[0]) == (0, True), (place / "output").read_text()
    assert run("epilogue", OPENPBS[0]) == (0, False), (place / "output").read_text()
    assert f" --job {OPENPBS[0]} " in (place / "ended").read_text(), "the same of PBS and of Torque"
    for part, status in (("prologue", 2), ("epilogue", 1)):
        assert run(part, "../4711")[0] == status
        assert "-C the job's number is none" in (place / "offline").read_text()
        (place / "offline").unlink()


def test_the_hook_of_openpbs_tells_the_job(tmp_path: Path) -> None:
    """Under a stand-in of its module ``pbs``, which OpenPBS alone has."""
    text = with_jobs(tmp_path, unit_text("pbs-hook", (DaemonSpec(Path("/run/it's"), Path("/l"), ("GPU-1",)),)))
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs" / "4711[3].server").write_text("x")
    (tmp_path / "jobs" / "link").symlink_to(tmp_path)
    (tmp_path / "pbs.py").write_text(
        "import json, sys\nfrom types import SimpleNamespace as N\n"
        "E = N(job=N(id=sys.argv[1]), env={})\nevent = lambda: E\n"
        "import atexit; atexit.register(lambda: print(json.dumps(E.env)))\n"
    )
    (tmp_path / "hook.py").write_text(text)
    for job, told in {"4711[3].server": True, "4712.server": False, "../jobs/4711[3].server": False, "": False}.items():
        done = subprocess.run(
            [sys.executable, "hook.py", job], cwd=tmp_path, capture_output=True, text=True, check=True
        )
        env = {"CUDA_MPS_PIPE_DIRECTORY": "/run/it's", "CUDA_VISIBLE_DEVICES": "GPU-1"} if told else {}
        assert json.loads(done.stdout) == env


@pytest.mark.parametrize("job", ["../x", ".x", "a/b", "7;id", "7 8", "$(id)", "7\n8"])
def test_a_number_of_a_job_that_is_none_writes_nothing(place: Path, job: str) -> None:
    text = with_jobs(place, unit_text("slurm", (DaemonSpec(place / "p", place / "log"),)))
    done = run_part(place, text, "prolog_slurmd", SLURM_JOB_ID=job)
    assert (done.returncode, "the job's number is none" in done.stdout) == (1, True)
    assert not (place / "jobs").exists()
    assert not daemons_below(place)


@pytest.mark.parametrize(
    ("kind", "opt_in"),
    [
        *(("slurm", wrong) for wrong in ("x=y", "comment", "comment=$(id)", "comment=a'b", "comment=a\n")),
        ("pbs", "comment=mps"),
        ("systemd", "account=a"),
        ("pbs-hook", "account=a"),
    ],
)
def test_what_cannot_be_asked_for_is_refused(kind: UnitKind, opt_in: str) -> None:
    with pytest.raises(PlanError, match="--opt-in"):
        unit_text(kind, (PLAIN,), opt_in)
