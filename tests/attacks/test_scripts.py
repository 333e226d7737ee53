"""Job scripts and units beside PID files that others have written: they hang on none, and stop what they started."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import get_args

import pytest
from folders import daemons_below, place_for_daemons

from mpstui.daemons.spec import DaemonSpec
from mpstui.daemons.units import UnitKind, unit_text
from mpstui.observe.discovery import discover, held, left_by_others
from mpstui.plan.profile import Limits
from mpstui.sim.marker import control_binary
from tests.attacks.conftest import Stranger
from tests.attacks.programs import mpstui
from tests.daemons.test_units import run_part

PID_FILE = "nvidia-cuda-mps-control.pid"


@pytest.fixture
def place() -> Iterator[Path]:
    with place_for_daemons() as folder:
        folder.chmod(0o755)
        yield folder


def holding(text: str | bytes) -> Callable[[Path], None]:
    def forge(path: Path) -> None:
        path.unlink(missing_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())

    return forge


def a_fifo(path: Path) -> None:
    path.unlink(missing_ok=True)
    os.mkfifo(path)


def a_link_to_a_fifo(path: Path) -> None:
    path.unlink(missing_ok=True)
    os.mkfifo(path.with_name("fifo"))
    path.symlink_to("fifo")


def a_link_to_the_endless(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.symlink_to("/dev/zero")


def nothing(path: Path) -> None:
    path.unlink(missing_ok=True)


EVIL = Path(f"/tmp/mpstui-evil-{os.getpid()}")
"""Other runs of the tests on this machine have their own."""
FORGED = {
    "a way out": holding("../tmp/evil"),
    "a way to a FIFO": holding(f"..{EVIL}"),
    "all": holding("-1"),
    "one": holding("1"),
    "a process group": holding("-2\n"),
    "a huge number": holding("9" * 400),
    "a huge file": holding(b"7" * (1 << 20)),
    "a command": holding(f"$(touch {EVIL}-made) `id`; kill 1\n"),
    "bytes": holding(b"\x00\xff\x1b[31m\n12\n"),
    "lines": holding("\n".join(str(pid) for pid in range(1, 200))),
    "itself": holding("self"),
    "this process": holding(str(os.getpid())),
    "a FIFO": a_fifo,
    "a link to a FIFO": a_link_to_a_fifo,
    "a link to /dev/zero": a_link_to_the_endless,
    "none": nothing,
}


def stopping(kind: UnitKind) -> tuple[str, str]:
    """What a part of a job script is made of that ends daemons: its functions, and what the epilogue calls of them."""
    text = unit_text(kind, (DaemonSpec(Path("/x/pipe"), Path("/x/log"), ("GPU-1",), multi_user=True),))
    functions, _, calls = text.partition('\ncase "$part" in\n')
    return functions.partition("\n    exit 1\n}\n")[2], calls[calls.index("\nepilog") :]


def test_slurm_and_pbs_stop_a_daemon_in_the_same_words() -> None:
    """So that what stops it beside each forged file is tried in one of them, and one file in both."""
    functions, calls = stopping("slurm")
    assert "pid" in functions
    assert "stop" in calls
    assert stopping("pbs") == (functions, calls)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "forged"),
    [
        *(pytest.param("slurm", forged, id=f"slurm-{name}") for name, forged in FORGED.items()),
        pytest.param("pbs", FORGED["one"], id="pbs-one"),
        pytest.param("pbs", FORGED["none"], id="pbs-none"),
    ],
)
def test_an_epilog_goes_by_no_pid_file(place: Path, kind: UnitKind, forged: Callable[[Path], None]) -> None:
    spec = DaemonSpec(place / "pipe", place / "log", ("GPU-1",), multi_user=True)
    text = unit_text(kind, (spec,)).replace('$(basename "$0")', '$(basename "$PART")')
    EVIL.mkdir(exist_ok=True)
    try:
        if not (EVIL / "cmdline").exists():
            os.mkfifo(EVIL / "cmdline")
        assert run_part(place, text, "prologue", PART="prologue").returncode == 0
        assert daemons_below(place)
        forged(spec.pipe_dir / PID_FILE)
        done = run_part(place, text, "epilogue", PART="epilogue")
        assert (done.returncode, done.stdout) == (0, "")
        assert not daemons_below(place)
        assert not Path(f"{EVIL}-made").exists()
        discover((spec.pipe_dir,))  # does not hang either
    finally:
        shutil.rmtree(EVIL, ignore_errors=True)


POSE = """
import ctypes, os, sys, time
ctypes.CDLL(None).prctl(15, b"nvidia-cuda-mps", 0, 0, 0)
if len(sys.argv) > 2:
    ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)  # not dumpable: /proc/PID is root's
print("ready", flush=True)
time.sleep(600)
"""


@pytest.mark.slow
@pytest.mark.parametrize("how", [(), ("hidden",)], ids=["plain", "not dumpable"])
def test_a_strangers_process_that_poses_as_the_daemon_drains_no_node(
    place: Path, stranger: Stranger, how: tuple[str, ...]
) -> None:
    spec = DaemonSpec(place / "pipe", place / "log", ("GPU-1",), multi_user=True)
    text = unit_text("slurm", (spec,))
    assert run_part(place, text, "prolog_slurmd").returncode == 0
    script = stranger.home / "nvidia-cuda-mps-control"
    stranger.python("import sys; open(sys.argv[1], 'w').write(sys.argv[2])", script, POSE)
    posing = stranger.start(
        stranger.interpreter, script, "-d", *how, env={"CUDA_MPS_PIPE_DIRECTORY": str(spec.pipe_dir)}
    )
    assert posing.stdout is not None
    assert posing.stdout.readline() == "ready\n"
    (spec.pipe_dir / PID_FILE).chmod(0o666)  # as the daemon leaves it (fact 42)
    stranger.python("import sys; open(sys.argv[1], 'w').write(sys.argv[2])", spec.pipe_dir / PID_FILE, str(posing.pid))
    done = run_part(place, text, "epilog_slurmd")
    assert (done.returncode, done.stdout) == (0, "")
    assert posing.poll() is None, "and it is nobody's to end"


@pytest.mark.slow
@pytest.mark.skipif(not os.path.exists("/usr/bin/su"), reason="no setuid program that waits is here")
def test_nor_does_a_setuid_program_that_a_stranger_has_started_by_that_name(place: Path, stranger: Stranger) -> None:
    """Its effective user is root, and it waits for a password for as long as he likes."""
    spec = DaemonSpec(place / "pipe", place / "log", ("GPU-1",), multi_user=True)
    text = unit_text("slurm", (spec,))
    assert run_part(place, text, "prolog_slurmd").returncode == 0
    program = stranger.home / "nvidia-cuda-mps-control"
    program.symlink_to("/usr/bin/su")
    posing = stranger.start(program, "-f", env={"CUDA_MPS_PIPE_DIRECTORY": str(spec.pipe_dir)}, stdin=subprocess.PIPE)
    assert posing.stdout is not None
    assert posing.stdout.read(9) == "Password:"
    done = run_part(place, text, "epilog_slurmd")
    assert (done.returncode, done.stdout) == (0, "")
    assert posing.poll() is None


@pytest.mark.slow
def test_another_daemon_of_the_same_user_is_not_waited_for(place: Path) -> None:
    one, other = (DaemonSpec(place / name, place / f"log_{name}", multi_user=True) for name in ("a", "b"))
    for spec in (one, other):
        assert run_part(place, unit_text("slurm", (spec,)), "prolog_slurmd").returncode == 0
    (one.pipe_dir / PID_FILE).write_text((other.pipe_dir / PID_FILE).read_text())
    done = run_part(place, unit_text("slurm", (one,)), "epilog_slurmd")
    assert (done.returncode, done.stdout) == (0, "")
    assert [daemon.pipe_dir for daemon in daemons_below(place)] == [other.pipe_dir]


HANGING = [
    "nvidia-cuda-mps-control",
    "nvidia-smi",
    "find",
    "id",
    "install",
    "tr",
    "chmod",
    "rm",
    "mpstui",
    "scontrol",
    "sed",
]


@pytest.mark.parametrize("program", HANGING)
@pytest.mark.parametrize("part", ["prolog_slurmd", "epilog_slurmd"])
def test_no_program_that_hangs_holds_the_node_up(place: Path, program: str, part: str) -> None:
    tools = place / "bin"
    tools.mkdir()
    smi = tools / "nvidia-smi"
    smi.write_text("#!/bin/sh\n")
    hangs = tools / program
    hangs.write_text("#!/bin/sh\nexec sleep 300\n")
    for path in tools.iterdir():
        path.chmod(0o755)
    spec = DaemonSpec(place / "pipe", place / "log", ("GPU-1",), multi_user=True)
    text = unit_text("slurm", (spec,), "gres=mps" if program in {"scontrol", "sed"} else None)
    text = text.replace("/run/mpstui-jobs", str(place / "jobs"))
    if part.startswith("epilog"):
        (place / "jobs").mkdir()
        (place / "jobs" / "7").touch()
    # The limits are seconds to tens of seconds; here they are a tenth of one, and the tries few.
    text = re.sub(r'timeout -k 5 "\$@"', 'shift; timeout -k 5 0.1 "$@"', text).replace("-lt 50", "-lt 3")
    path = f"{tools}:{Path(control_binary()[-1]).parent}:{os.environ['PATH']}"
    environment = {"PATH": path, "SLURM_SCRIPT_CONTEXT": part, "SLURM_JOB_UID": "0", "SLURM_JOB_ID": "7"}
    with (place / "output").open("w") as output:
        script = subprocess.Popen(
            ["sh", "-c", text], stdout=output, stderr=output, env=environment, start_new_session=True
        )
        try:
            script.wait(120)
        finally:
            if script.poll() is None:
                os.killpg(script.pid, signal.SIGKILL)
                script.wait()


@pytest.mark.parametrize("kind", get_args(UnitKind))
def test_everything_that_could_hang_has_a_limit(kind: UnitKind) -> None:
    spec = DaemonSpec(Path("/run/mps"), Path("/var/log/mps"), ("GPU-1",), limits=Limits(50.0))
    for line in unit_text(kind, (spec,)).splitlines():
        words = line.split("#")[0]
        if "fail " in words:
            words = words.split("fail ")[0]
        if re.search(r"nvidia-smi|nvidia-cuda-mps-control|\bfind\b|/proc/\$1/(cmd|env)|\binstall\b|\bmkdir\b", words):
            harmless = ("    start nvidia", "    printf", "        nvidia-cuda-mps*", "        grep", "    echo")
            assert "limited" in words or "/usr/bin/timeout" in words or line.startswith(harmless), line


def test_the_suite_that_runs_this_is_no_daemon(place: Path) -> None:
    """Whoever names the program in an argument is not waited for."""
    spec = DaemonSpec(place / "pipe", place / "log", multi_user=True)
    sleeper = subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(600)", "nvidia-cuda-mps-control", "-d"],
        env={**os.environ, "CUDA_MPS_PIPE_DIRECTORY": str(spec.pipe_dir)},
    )
    try:
        begun = time.monotonic()
        done = run_part(place, unit_text("slurm", (spec,)), "epilog_slurmd")
        assert (done.returncode, done.stdout) == (0, ""), time.monotonic() - begun
    finally:
        sleeper.kill()
        sleeper.wait()


@pytest.mark.parametrize("way", ["of his", "open to all", "by a link of his"])
def test_a_daemon_is_not_started_where_a_stranger_can_exchange_its_directory(
    place: Path, crowd: Path, stranger: Stranger, way: str
) -> None:
    """Root's own directory in it is root's alone to write to; what is above it is not."""
    (place / "there").mkdir()
    above = crowd / "job"
    if way == "by a link of his":
        stranger.run("ln", "-s", place / "there", above)
    elif way == "of his":
        stranger.run("mkdir", above)
    else:
        above.mkdir()
        above.chmod(0o777)
    spec = DaemonSpec(above / "pipe", place / "log", multi_user=True)
    done = run_part(place, unit_text("slurm", (spec,)), "prolog_slurmd")
    assert done.returncode != 0
    assert "others can exchange" in done.stdout
    assert not daemons_below(place)
    safe = DaemonSpec(place / "pipe", place / "log", multi_user=True)
    assert [_starts(unit_text("systemd", (each,))) for each in (spec, safe)] == [False, True]


LEFT = {
    "pipe": ("control", "control_privileged", "control_lock", "log", PID_FILE),
    "log": ("control.log", "server.log"),
}


@pytest.mark.parametrize(("where", "name"), [(where, name) for where, names in LEFT.items() for name in names])
def test_nor_over_what_a_stranger_has_left_in_it_before_it_was_closed_to_him(
    place: Path, stranger: Stranger, where: str, name: str, tmp_path: Path
) -> None:
    """The daemon opens its files by their names: where a link of his is there, one of root's."""
    (folder := place / where).mkdir()
    folder.chmod(0o777)
    (precious := place / "precious").write_text("as it was")
    stranger.run("ln", "-s", precious, folder / name)
    folder.chmod(0o755)
    words = ("daemon", "start", "--pipe-dir", place / "pipe", "--log-dir", place / "log", "--yes")
    done = mpstui(*words, MPSTUI_AUDIT_LOG=os.fspath(tmp_path / "audit"))
    said = f"/{name} belongs to UID {stranger.uid}, and the daemon would open"
    assert (done.returncode, said in done.stdout + done.stderr) == (6, True), done
    start = "mpstui daemon start", "nvidia-cuda-mps-control -d"
    assert [each in discover((folder,), env={})[0].remedy for each in start] == [True, False]
    spec = DaemonSpec(place / "pipe", place / "log", multi_user=True)
    done = run_part(place, unit_text("slurm", (spec,)), "prolog_slurmd")
    assert (done.returncode, f"what the daemon opens: {folder / name}" in done.stdout) == (1, True), done
    assert not _starts(unit_text("systemd", (spec,)))
    precious.unlink()
    (folder / name).rename(folder / f"{name}-of-no-daemon")
    assert _starts(unit_text("systemd", (spec,)))
    with held(folder) as descriptor:
        assert left_by_others(descriptor) is None, "the program and the scripts have one list"
    precious.write_text("as it was")
    assert not daemons_below(place)
    assert precious.read_text() == "as it was"


def _starts(unit: str) -> bool:
    """Whether what a unit does before its start succeeds, each line split and expanded as systemd does it."""
    lines = [line.partition("=")[2] for line in unit.splitlines() if line.startswith("ExecStartPre=")]
    commands = [[w.replace("$$", "$").replace("%%", "%") for w in shlex.split(line)] for line in lines]
    return all(subprocess.run(command, check=False).returncode == 0 for command in commands)
