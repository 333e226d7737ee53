"""``daemon``, ``profile`` and ``plan --apply`` on the simulated stand-in, from start to stop."""

from __future__ import annotations

import io
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from cli_plan.conftest import Run
from mpstui.plan.store import profiles_dir
from mpstui.sim.client import SimClient


@pytest.fixture
def started(mpstui: Run, place: Path) -> Path:
    pipe_dir = place / "mps_0"
    status, _, err = mpstui("daemon", "start", "--pipe-dir", pipe_dir)
    assert status == 0, err
    return pipe_dir


def pid_of(pipe_dir: Path) -> int:
    return int((pipe_dir / "nvidia-cuda-mps-control.pid").read_text())


@pytest.mark.slow
def test_a_profile_restores_what_quit_lost(mpstui: Run, place: Path, started: Path) -> None:
    here = ("--pipe-dir", started)
    plan = ("plan", *here, "--device", 0, "--sm-count", "24,60", "--mem", "10G,20G", "--names", "a,b")
    status, out, err = mpstui(*plan, "--apply", "--save", "two")
    assert status == 0, err
    assert "SIMULATED" in out
    assert "in force: default active thread percentage 45.5 %" in out
    assert mpstui("profile", "save", "now", *here)[0] == 0
    assert mpstui("profile", "diff", "now")[0] == 0
    assert mpstui("daemon", "stop", *here, "--yes")[0] == 0
    assert mpstui("profile", "diff", "now")[0] == 3  # no daemon there
    assert mpstui("daemon", "start", *here)[0] == 0
    status, out, _ = mpstui("profile", "diff", "now")
    assert (status, out.count("should be")) == (1, 2)
    status, out, _ = mpstui("profile", "apply", "now", "--dry-run", "--json")
    assert (status, len(json.loads(out)["differences"])) == (0, 2)
    assert mpstui("profile", "diff", "now")[0] == 1
    status, out, _ = mpstui("profile", "apply", "now", "--json")
    assert (status, json.loads(out)["daemons"][0]["steps"]) == (0, 2)
    assert mpstui("profile", "diff", "now")[0] == 0
    assert "nothing had to be changed" in mpstui("profile", "apply", "now")[1]
    # Saving over the plan's profile keeps its shares.
    assert mpstui("profile", "save", "two", "--replace", *here)[0] == 0
    assert [p["shares"] for p in json.loads(mpstui("profile", "list", "--json")[1])["profiles"]] == [[], ["a", "b"]]


@pytest.mark.slow
def test_start_with_a_profile_sets_its_limits(mpstui: Run, place: Path) -> None:
    folder = place / "config" / "mpstui" / "profiles"
    folder.mkdir(parents=True)
    cpu = min(os.sched_getaffinity(0))
    text = (
        f'schema = 1\n[[daemon]]\npipe_dir = "{place}/a"\ncpu = "{cpu}"\n[daemon.limits]\nclient_priority = 1\n'
        f'[[daemon]]\npipe_dir = "{place}/b"\nmulti_user = true\n[daemon.limits]\nactive_thread_percentage = 50\n'
    )
    (folder / "both.toml").write_text(text)
    status, _, err = mpstui("daemon", "start", "--profile", "both")
    assert status == 0, err
    assert os.sched_getaffinity(pid_of(place / "a")) == {cpu}
    assert mpstui("profile", "diff", "both")[0] == 0
    status, out, _ = mpstui("daemon", "unit", "slurm", "--profile", "both")
    assert (status, out.count("start nvidia-cuda-mps-control")) == (0, 2)
    assert mpstui("daemon", "start", "--profile", "both", "--multi-user")[0] == 2
    assert mpstui("daemon", "start", "--profile", "none")[0] == 2


def test_a_profile_without_a_directory_is_for_the_one_in_the_environment(
    mpstui: Run, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = place / "config" / "mpstui" / "profiles"
    folder.mkdir(parents=True)
    (folder / "any.toml").write_text("schema = 1\n[[daemon]]\n[daemon.limits]\nclient_priority = 1\n")
    monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", str(place / "chosen"))
    status, out, _ = mpstui("daemon", "unit", "slurm", "--profile", "any")  # so that none starts elsewhere
    assert (status, f"CUDA_MPS_PIPE_DIRECTORY={place}/chosen\n" in out) == (0, True)
    status, out, err = mpstui("daemon", "start", "--profile", "any", "--json")
    assert (status, json.loads(out)["daemons"][0]["pipe_dir"]) == (0, str(place / "chosen"))
    assert "in force: default client priority below normal" in err


@pytest.mark.slow
def test_start_refuses_in_words(mpstui: Run, place: Path, started: Path) -> None:
    status, out, err = mpstui("daemon", "start", "--pipe-dir", started, "--json")
    entry = json.loads(out)["daemons"][0]
    assert (status, entry["exit_status"]) == (6, 6)
    assert f"as process {pid_of(started)}" in entry["message"]
    for words, expected in [
        (("--pipe-dir", place / ("x" * 90)), 2),
        (("--pipe-dir", started, "--device", "7"), 2),
        (("--pipe-dir", started, "--cpu", "9-1"), 2),
        (("--pipe-dir", started, "--cpu", "4095"), 6),  # it runs already, which is found first
        (("--pipe-dir", place / "other", "--cpu", "4095"), 2),
        (("--pipe-dir", started, "--demo"), 2),
    ]:
        status, out, err = mpstui("daemon", "start", *words)
        assert status == expected, err
        assert "Traceback" not in err
        assert err
    assert mpstui("--read-only", "daemon", "start", "--pipe-dir", place / "ro")[0] == 6
    assert not (place / "ro").exists()


@pytest.mark.parametrize("text", ["read_only = true", "read_only = tru"])
def test_read_only_in_the_configuration_holds_for_commands_too(
    mpstui: Run, place: Path, started: Path, text: str
) -> None:
    folder = place / "config" / "mpstui"
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text(text)
    here = ("--pipe-dir", started)
    for words in (("set", "client-priority", "1", *here), ("daemon", "stop", "--yes", *here)):
        status, _, err = mpstui(*words)
        assert (status, "config.toml" in err) == (6, True)
    assert mpstui("status", *here)[0] == 0


@pytest.mark.slow
def test_stop_asks_and_names_who_is_hit(mpstui: Run, started: Path) -> None:
    client = SimClient(started, "busy", argv0=b"python train.py")
    try:
        assert client.wait_settled() == "connected"
        status, _, err = mpstui("daemon", "stop", "--pipe-dir", started)
        assert status == 6
        assert f"affects: {client.pid} " in err
        assert "waits until 1 client has ended" in err
        assert mpstui("--read-only", "daemon", "stop", "--pipe-dir", started, "--yes")[0] == 6
        status, out, _ = mpstui("daemon", "stop", "--pipe-dir", started, "--yes", "--timeout", 0, "--json")
        assert (status, json.loads(out)["done"]) == (0, True)
        assert client.wait_status("lost")
    finally:
        client.close()


def test_a_client_that_comes_while_the_question_stands_is_named_before_it_is_hit(
    mpstui: Run, started: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    came: list[SimClient] = []

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

        def readline(self, size: int = -1, /) -> str:
            if came:
                return "n\n"
            came.append(SimClient(started, "busy"))
            assert came[0].wait_settled() == "connected"
            return "y\n"

    monkeypatch.setattr("sys.stdin", Terminal())
    try:
        status, _, err = mpstui("daemon", "stop", "--pipe-dir", started, "--force")
        assert (status, came[0].wait_settled()) == (6, "connected")
        assert f"clients have come since:\nStop the daemon in {started}" in err
        assert f"affects: {came[0].pid} " in err
    finally:
        for client in came:
            client.close()


@pytest.mark.slow
def test_stop_where_nothing_runs_cleans_what_is_stale(mpstui: Run, place: Path, started: Path) -> None:
    assert mpstui("daemon", "clean", "--pipe-dir", started)[0] == 3
    assert (started / "control").exists(), "of a daemon that runs nothing is removed"
    os.kill(pid_of(started), signal.SIGKILL)
    while mpstui("status", "--pipe-dir", started)[0] != 3:
        pass  # each look takes its time; pytest's time limit ends it
    held = "import fcntl, sys; f = open(sys.argv[1], 'r+'); fcntl.lockf(f, fcntl.LOCK_EX); print(flush=True); input()"
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", held, started / "control_lock"], stdin=pipe, stdout=pipe) as holder:
        assert holder.stdout
        holder.stdout.readline()
        status, _, err = mpstui("daemon", "stop", "--pipe-dir", started, "--yes")
        assert (status, "nothing was removed" in err) == (3, True)
        holder.kill()
    status, out, _ = mpstui("daemon", "stop", "--pipe-dir", started, "--yes")
    assert (status, "stale files were removed" in out) == (0, True)
    assert mpstui("daemon", "stop", "--pipe-dir", started, "--yes")[0] == 3
    assert mpstui("daemon", "stop", "--pipe-dir", place / "never", "--yes")[0] == 3
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(started / "control"))
    status, out, _ = mpstui("--read-only", "daemon", "clean", "--pipe-dir", started)
    assert (status, (started / "control").exists()) == (6, True)
    status, out, _ = mpstui("daemon", "clean", "--pipe-dir", started, "--json")
    told = json.loads(out)
    assert (status, told["action"], told["details"]) == (
        0,
        "remove_stale_files",
        ["stale files were removed: control"],
    )
    assert mpstui("daemon", "clean", "--pipe-dir", started)[0] == 3


def test_a_daemon_that_dies_between_two_commands(
    mpstui: Run, place: Path, started: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control binary ends the daemon when the second setting comes: what is in force stays known."""
    real = os.environ["MPSTUI_CONTROL_BINARY"]
    wrapper = place / "nvidia-cuda-mps-control"
    wrapper.write_text(
        '#!/bin/sh\nread -r proof; read -r line\ncase "$line" in\n'
        f'set_default_device*) kill -9 "$(cat {started}/nvidia-cuda-mps-control.pid)"; sleep 0.1 ;;\nesac\n'
        f'printf "%s\\n" "$proof" "$line" | exec {real}\n'
    )
    wrapper.chmod(0o755)
    monkeypatch.setenv("MPSTUI_CONTROL_BINARY", str(wrapper))
    for marker in started.glob("mpstui-simulated"):  # without it this binary is used
        marker.unlink()
    folder = place / "config" / "mpstui" / "profiles"
    folder.mkdir(parents=True)
    (folder / "p.toml").write_text(
        "schema = 1\n[[daemon]]\n[daemon.limits]\nactive_thread_percentage = 40\nclient_priority = 1\n"
        '[daemon.limits.pinned_mem_limit]\n0 = "4G"\n'
    )
    status, _, err = mpstui("profile", "apply", "p", "--pipe-dir", started)
    assert status == 3
    assert "only in part" in err
    assert "in force: default active thread percentage 40 %" in err
    assert "not in force: default memory limit on device 0 4.0 GiB: " in err
    assert "not tried: default client priority below normal" in err
    assert "mpstui set active-thread-percentage 100 --default --pipe-dir" in err
    assert "Traceback" not in err


@pytest.mark.slow
def test_where_the_second_daemon_refuses_the_first_is_taken_back_too(
    mpstui: Run, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second, third = (place / name for name in ("my first", "second", "third"))
    for pipe_dir in (first, second, third):
        assert mpstui("daemon", "start", "--pipe-dir", pipe_dir)[0] == 0
        for marker in pipe_dir.glob("mpstui-simulated"):  # without it this binary is used
            marker.unlink()
    real = os.environ["MPSTUI_CONTROL_BINARY"]
    wrapper = place / "nvidia-cuda-mps-control"
    wrapper.write_text(
        '#!/bin/sh\nread -r proof; read -r line\ncase "$CUDA_MPS_PIPE_DIRECTORY $line" in\n'
        '*"/second set_"*) echo "Insufficient privileges for UID 2001."; exit ;;\nesac\n'
        f'printf "%s\\n" "$proof" "$line" | exec {real}\n'
    )
    wrapper.chmod(0o755)
    monkeypatch.setenv("MPSTUI_CONTROL_BINARY", str(wrapper))
    folder = place / "config" / "mpstui" / "profiles"
    folder.mkdir(parents=True)
    each = '[[daemon]]\npipe_dir = "{}"\n[daemon.limits]\nclient_priority = 1\n'
    (folder / "p.toml").write_text("schema = 1\n" + "".join(map(each.format, (first, second, third))))
    status, out, _ = mpstui("profile", "apply", "p", "--go-back", "--json")
    told = json.loads(out)
    assert (status, told["not_tried"]) == (5, [str(third)])
    assert told["went_back"] == ["undone: default client priority below normal"]
    status, out, err = mpstui("profile", "apply", "p")  # and the first had to be set again
    assert (status, f"{first}: as it should be\n  in force: default client priority" in out) == (5, True)
    assert f"{second}: only in part" in err
    assert f"{third}: not tried" in err
    assert err.endswith(f"to set the earlier values again:\n  mpstui set client-priority 0 --pipe-dir '{first}'\n")


def test_a_plan_is_for_one_gpu_and_a_node_that_is_there(mpstui: Run, place: Path, started: Path) -> None:
    status, _, err = mpstui("plan", "--clients", 2, "--pipe-dir", started, "--apply")
    assert (status, "choose it with --device" in err) == (2, True)
    status, _, err = mpstui("plan", "--clients", 2, "--pipe-dir", started, "--device", "9")
    assert (status, "no GPU “9”" in err) == (2, True)
    assert mpstui("plan", "--clients", 2, "--sm-count-total", 132, "--pipe-dir", started, "--apply")[0] == 2
    status, out, _ = mpstui("--read-only", "plan", "--clients", 2, "--pipe-dir", started, "--device", 0, "--apply")
    assert status == 6
    status, out, _ = mpstui("plan", "--clients", 2, "--pipe-dir", started, "--device", 0, "--json")
    assert (status, json.loads(out)["source"]) == (0, "simulated")


def test_a_memory_limit_is_exported_for_the_device_that_was_planned(mpstui: Run, started: Path) -> None:
    plan = ("plan", "--clients", 2, "--mem", "10G", "--pipe-dir", started, "--device", 1)
    first, second = (
        device["uuid"] for device in json.loads(mpstui("status", "--pipe-dir", started, "--json")[1])["devices"]
    )
    _, exported, said = mpstui(*plan, "--export", "shell", "--share", "client1")
    assert "SIMULATED: it is for a GPU that does not exist" in said, "what is exported has its UUID"
    assert f"PINNED_DEVICE_MEM_LIMIT={second}=10G\n" in exported  # not by a number, which is the client's own (fact 35)
    status, _, err = mpstui(*plan, "--export", "shell", "--apply")
    assert (status, "give one of the two" in err) == (2, True)  # and not one of them in silence
    assert mpstui("profile", "save", "all", "--pipe-dir", started)[0] == 0
    kept = profiles_dir() / "all.toml"
    kept.write_text(kept.read_text() + '[[daemon.share]]\nname = "a"\npinned_mem_limit = "2G"\n')
    shown = mpstui("profile", "show", "all", "--export", "shell")[1]
    assert f"PINNED_DEVICE_MEM_LIMIT={first}=2G,{second}=2G\n" in shown


@pytest.mark.slow
def test_what_cannot_be_asked_is_neither_kept_nor_compared(
    mpstui: Run, started: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = ("--pipe-dir", started)
    assert mpstui("profile", "save", "before", *here)[0] == 0
    for marker in started.glob("mpstui-simulated"):  # without it this binary is used
        marker.unlink()
    monkeypatch.setenv("MPSTUI_CONTROL_BINARY", "/nonexistent/nvidia-cuda-mps-control")
    for words in (("save", "after"), ("diff", "before"), ("apply", "before")):
        status, out, err = mpstui("profile", *words, *here)
        assert (status, out, "cannot be asked" in err) == (4, "", True)
    assert not (profiles_dir() / "after.toml").exists()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may look at everything")
def test_places_that_are_closed_to_the_user(mpstui: Run, place: Path) -> None:
    (place / "config").mkdir(mode=0)
    (place / "closed").mkdir(mode=0)
    status, _, err = mpstui("profile", "save", "a", "--pipe-dir", place / "closed" / "mps")
    assert (status, "cannot be looked at" in err) == (5, True)
    status, _, err = mpstui("daemon", "stop", "--pipe-dir", place / "closed" / "mps")
    assert (status, "no daemon" in err, "cannot be looked at" in err) == (5, False, True), "it is not known"
    status, _, err = mpstui("daemon", "start", "--pipe-dir", place / "closed" / "mps")
    assert (status, "mpstui runs read-only" in err) == (6, True), "what the configuration forbids is not known"
    (place / "config").rmdir()
    status, _, err = mpstui("daemon", "start", "--pipe-dir", place / "closed" / "mps")
    assert (status, "Permission denied" in err) == (5, True)


def test_words_that_are_no_directory(mpstui: Run) -> None:
    assert "the directory has no name" in mpstui("daemon", "start", "--pipe-dir", "")[2]
    for words in (("start",), ("unit", "slurm")):
        status, _, err = mpstui("daemon", *words, "--pipe-dir", "/")
        assert (status, "/ is no pipe directory" in err) == (2, True)


def test_a_diff_without_a_server_does_not_say_that_nothing_differs(mpstui: Run, started: Path) -> None:
    assert mpstui("profile", "save", "kept", "--pipe-dir", started)[0] == 0
    kept = profiles_dir() / "kept.toml"
    kept.write_text(kept.read_text() + "\n[daemon.server_limits]\nactive_thread_percentage = 25\n")
    status, out, _ = mpstui("profile", "diff", "kept", "--pipe-dir", started)
    assert status == 1
    assert "no difference that can be seen yet" in out
    assert "no server runs" in out


@pytest.mark.slow
def test_a_plan_for_one_gpu_names_the_clients_of_the_others(mpstui: Run, place: Path, started: Path) -> None:
    """The daemon has one percentage for all of its GPUs."""
    client = SimClient(started, "idle", devices=(1,), command="python elsewhere.py")
    try:
        client.wait_settled(30)
        plan = ("plan", "--clients", 4, "--device", 0, "--apply", "--pipe-dir", started)
        status, out, err = mpstui(*plan, "--json")
        (daemon,) = json.loads(out)["daemons"]
        assert (status, [one["pid"] for one in daemon["reaches_too"]]) == (0, [client.pid])
        assert "new clients on GPU 1 get it too (1 client there now)" in err
        assert f"{client.pid} " in err
        assert "elsewhere.py" in err
    finally:
        client.close()
