"""``mpstui plan`` and ``mpstui run`` where no GPU and no daemon are needed."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
from datetime import datetime, timezone
from pathlib import Path
from types import SimpleNamespace

import pytest
import warm
from jsonschema import Draft202012Validator

from cli_plan.conftest import Run
from mpstui.cli.schema import schema_of
from mpstui.core.activity import ActivityLook

SIZE = ("--sm-count-total", 132, "--memory-total", "80GiB")


def test_the_plan_of_the_design_needs_no_gpu(mpstui: Run) -> None:
    status, out, err = mpstui("plan", "--clients", 4, "--strategy", "uniform", *SIZE, "--json")
    plan = json.loads(out)
    assert (status, err) == (0, "")
    assert [c["active_thread_percentage"] for c in plan["clients"]] == [25.0] * 4
    assert [c["sm_count"] for c in plan["clients"]] == [32] * 4
    assert all(isinstance(c["pinned_mem_limit"], int) for c in plan["clients"])
    assert plan["left"]["sm_count"] == 4
    assert plan["warnings"]
    assert all(isinstance(c["warnings"], list) for c in plan["clients"])


def test_it_imports_nothing_heavy() -> None:
    code = (
        "import sys; from mpstui.cli import main;"
        "main(['plan','--clients','2','--sm-count-total','132','--json']);"
        "print([m for m in ('textual','rich','psutil','pynvml','mpstui.sim','mpstui.observe.watcher')"
        " if m in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"


def test_as_text(mpstui: Run) -> None:
    status, out, _ = mpstui("plan", "--sm-count", "24,60", "--names", "train,serve", "--mem", "10G,20G", *SIZE)
    assert status == 0
    assert "train    18.2 %     24   10.0 GiB  10G" in " ".join(out.splitlines()[2].split(" "))
    assert "left: 48 SMs" in out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--clients", 0), "--clients: “0” is no whole number above 0"),
        (("--clients", "four"), "--clients: “four”"),
        (("--clients", 49), "more than the 48 contexts"),
        (("--clients", 4, "--contexts", 13), "more than the 48 contexts"),
        (("--weights", "0,1"), "--weights: “0” is no number above 0"),
        (("--weights", "30,x"), "--weights: “x”"),
        (("--weights", "1,2", "--clients", 3), "weights: 2 were given for 3 clients"),
        (("--sm-count", "24,133"), "133 SMs are more than the 132"),
        (("--sm-count", "0"), "--sm-count: “0”"),
        (("--sm-count", "24", "--strategy", "half"), "takes neither"),
        (("--clients", 2, "--mem", "512MB"), "is no size"),
        (("--clients", 2, "--mem", "0G"), "less than 1M"),
        (("--clients", 2, "--mem", "10G,10G,10G"), "3 were given for 2"),
        (("--clients", 2, "--mem", "81G"), "more than the 80.0 GiB"),
        (("--clients", 2, "--names", "a"), "2 clients need a name each"),
        (("--clients", 2, "--names", "a,a"), "given twice"),
        (("--weights", "1,99999999999999999999"), "no number above 0 of at most 9 digits"),
        (("--clients", 2, "--names", "a,../b"), "letters, digits"),
        (("--clients", 2, "--device", "0"), "exclude each other"),
        (("--clients", 2, "--export", "wrapper"), "save the plan"),
        (("--clients", 2, "--export", "shell", "--share", "x"), "no share 'x'"),
        (("--clients", 2, "--strategy", "best"), "invalid choice"),
        ((), "how many clients"),
    ],
)
def test_bad_input_is_a_message_and_status_2(mpstui: Run, words: tuple[object, ...], message: str) -> None:
    status, out, err = mpstui("plan", *words, *SIZE)
    assert (status, out) == (2, "")
    assert message in err
    assert "Traceback" not in err


def test_wrong_sizes_of_the_device(mpstui: Run) -> None:
    for words in (
        ("--sm-count-total", "x"),
        ("--sm-count-total", 0),
        ("--sm-count-total", 132, "--memory-total", "80 GB"),
        ("--memory-total", "80GiB"),
    ):
        status, out, err = mpstui("plan", "--clients", 2, *words)
        assert (status, out) == (2, "")
        assert err


def activity(folder: Path, seconds: float = 10.0, **more: object) -> Path:
    """Six looks at alice, who launches, and bob, who does not. ``more``: of alice."""
    lines = []
    for number in range(6):
        people = [("alice", 300), ("bob", 0), ("carol", 100)]
        processes = [
            {"pid": pid, "daemon": "/run/mps", "user": user, "launches": launches, "gpu_memory": pid << 30}
            for pid, (user, launches) in enumerate(people, 1)
        ]
        processes[0].update(more)
        time = datetime.fromtimestamp(1.7e9 + seconds * number, timezone.utc).isoformat()
        lines.append(json.dumps({"time": time, "source": "real", "seconds": 2, "processes": processes}))
    path = folder / "hour.ndjson"
    path.write_text("\n".join(lines))
    return path


def test_shares_from_activity(mpstui: Run, tmp_path: Path) -> None:
    path = activity(tmp_path)
    status, out, err = mpstui("plan", "--from-activity", path, *SIZE, "--json")
    made = json.loads(out)
    assert (status, err) == (0, "")
    assert [(c["name"], c["active_thread_percentage"]) for c in made["clients"]] == [("alice", 75.0), ("carol", 25.0)]
    assert made["clients"][1]["pinned_mem_limit"] == 3.75 * (1 << 30)
    assert (made["activity"]["looks"], made["activity"]["span"], made["activity"]["counted"]) == (6, 52.0, 12.0)
    assert made["activity"]["tenants"][2]["too_little"] == "launched nothing in 6 samples"
    status, out, _ = mpstui("plan", "--from-activity", path, *SIZE)
    assert status == 0
    Draft202012Validator(schema_of("plan")).validate(made)
    for words in (
        "6 samples from",
        "tenants by user",
        "Launches are not SM time",
        "bob: no share is proposed",
        "weighted",
    ):
        assert words in out
    status, out, _ = mpstui("plan", "--from-activity", path, *SIZE, "--export", "shell", "--share", "carol")
    assert "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=25" in out
    status, out, err = mpstui("plan", "--from-activity", activity(tmp_path, 1.0), *SIZE)
    assert (status, ": not enough; record at least 5" in err, "LIMIT" in out) == (1, True, False)


@pytest.mark.slow
def test_activity_of_several_devices_is_for_one_at_a_time(mpstui: Run, tmp_path: Path) -> None:
    plan = ("plan", "--from-activity")
    status, out, err = mpstui(*plan, activity(tmp_path, device_uuids=["GPU-a1", "GPU-b1"]), *SIZE)
    assert (status, out, "on 2 GPUs, and a plan is for one: --device GPU-a1" in err) == (2, "", True)
    status, out, _ = mpstui(*plan, tmp_path / "hour.ndjson", *SIZE, "--device", "GPU-b", "--json")
    assert (status, json.loads(out)["activity"]["device"]) == (0, "GPU-b1")
    Draft202012Validator(schema_of("plan")).validate(json.loads(out))
    for wanted in ("GPU-", "GPU-c", "", "1", "\x1b[2J"):
        status, out, err = mpstui(*plan, tmp_path / "hour.ndjson", *SIZE, "--device", wanted)
        assert (status, out, "name a GPU of the samples by its UUID: GPU-a1, GPU-b1" in err) == (2, "", True)
    # Looks of before, which do not say where a client was: not on a node that has several.
    status, out, err = mpstui(*plan, activity(tmp_path), "--demo")
    assert (status, out, "do not say on which GPU each client was" in err) == (2, "", True)
    assert "The samples do not say which GPU a client used" in mpstui(*plan, tmp_path / "hour.ndjson", *SIZE)[1]
    # Nobody is on no GPU: what is missing are clients, whatever the node has, and however short it was.
    whole = tmp_path / "hour.ndjson"
    status, out, err = mpstui(*plan, whole, *SIZE, "--pipe-dir", "/run/none")
    assert (status, "in the samples; --pipe-dir leaves out those of /run/mps\n" in err) == (1, True)
    for kept, words in ((6, ("--device", "0")), (1, ())):
        looks = [json.loads(line) | {"processes": [], "seconds": 0} for line in whole.read_text().splitlines()]
        whole.write_text("\n".join(json.dumps(look) for look in looks[:kept]))
        status, out, err = mpstui(*plan, whole, "--demo", *words)
        why = "no share is proposed: no client of MPS is in the samples\n"
        assert (status, why in err, "On which GPU" in out) == (1, True, False), err


def test_looking_ends_where_nobody_is(mpstui: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[float] = []
    waited: list[float] = []
    daemons = 1

    def look(seconds: float) -> ActivityLook:
        taken.append(seconds)
        assert len(taken) < 50, "it looks again and again: nobody takes no time"
        return ActivityLook(1.7e9 + sum(waited), "simulated", 0.0, "", (), daemons)

    node = SimpleNamespace(activity=look)
    monkeypatch.setattr("mpstui.api.open", lambda _dirs: contextlib.nullcontext(node))
    monkeypatch.setattr("mpstui.cli.plan.time", SimpleNamespace(sleep=waited.append))
    status, _, err = mpstui("plan", "--from-activity", "--seconds", 9, *SIZE)
    assert (status, "no client of MPS is in the samples" in err, waited) == (1, True, [2, 2, 2, 2])
    daemons = 0
    taken.clear()
    status, _, err = mpstui("plan", "--from-activity", "--seconds", 9, *SIZE)
    assert (status, "No MPS daemon runs here" in err, len(taken)) == (2, True, 1)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--clients", 2), "leave out --clients"),
        (("--static",), "--from-activity"),
        (("--seconds", 5), "leave out the file"),
        (("--pipe-dir", "/run/none"), "no client of MPS"),
        (("--save", "x", "--names", "a"), "2 clients need a name each"),
    ],
)
def test_what_does_not_go_with_activity(mpstui: Run, tmp_path: Path, words: tuple[object, ...], message: str) -> None:
    status, _, err = mpstui("plan", "--from-activity", activity(tmp_path), *SIZE, *words)
    assert status in {1, 2}
    assert message in err


def test_looks_that_cannot_be_read(mpstui: Run, tmp_path: Path) -> None:
    assert "No such file" in mpstui("plan", "--from-activity", tmp_path / "none", *SIZE)[2]
    assert "line 1: it is longer" in mpstui("plan", "--from-activity", "/dev/zero", *SIZE)[2]
    # Before anything of this node is asked, which may have several GPUs.
    assert "it has no sample" in mpstui("plan", "--from-activity", "/dev/null")[2]
    assert "--by goes with" in mpstui("plan", "--by", "user", "--clients", 2, *SIZE)[2]


def test_the_pipe_of_somebody_else_is_not_waited_for_and_one_that_is_given_is(mpstui: Run, tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.write(writing, b"{}\n")
    os.close(writing)
    os.mkfifo(fifo := tmp_path / "fifo")
    (link := tmp_path / "link").symlink_to("fifo")
    for name in (fifo, link):
        tells = threading.Thread(target=fifo.write_bytes, args=(b"{}\n",), daemon=True)
        tells.start()
        assert f"{name}: line 1" in mpstui("plan", "--from-activity", name, *SIZE)[2]
        tells.join()
    if os.geteuid() == 0:
        os.chown(link, 64107, -1, follow_symlinks=False)
        assert "is not waited for" in mpstui("plan", "--from-activity", link, *SIZE)[2]
        os.fchown(reading, 64107, -1)  # as it is behind sudo
        os.chown(fifo, 64107, -1)
        status, _, err = mpstui("plan", "--from-activity", fifo, *SIZE)
        assert (status, "it is a pipe of UID 64107, and is not waited for" in err) == (2, True)
    assert f"{reading}: line 1" in mpstui("plan", "--from-activity", f"/dev/fd/{reading}", *SIZE)[2]
    os.close(reading)


def test_exports_and_a_profile(mpstui: Run, place: Path) -> None:
    plan = ("plan", "--sm-count", "24,60", "--names", "train,serve", "--mem", "10G", *SIZE)
    status, out, err = mpstui(*plan, "--save", "two", "--export", "wrapper", "--share", "train")
    assert status == 0
    assert "exec mpstui run --profile two --share train" in out
    assert str(place / "config" / "mpstui" / "profiles" / "two.toml") in err
    assert mpstui(*plan, "--save", "two")[0] == 2  # it is there
    assert mpstui(*plan, "--save", "two", "--replace")[0] == 0
    status, out, _ = mpstui("profile", "show", "two", "--export", "shell", "--share", "serve")
    assert out.splitlines()[0] == "export CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=45.5"
    assert mpstui("profile", "show", "two", "--export", "shell", "--share", "none")[0] == 2
    status, out, _ = mpstui("profile", "list", "--json")
    assert [p["shares"] for p in json.loads(out)["profiles"]] == [["train", "serve"]]


def run_mpstui(*words: str) -> subprocess.CompletedProcess[str]:
    return warm.run(*words)


@pytest.mark.slow
def test_run_becomes_the_command(mpstui: Run, place: Path) -> None:
    mpstui("plan", "--sm-count", "24,60", "--names", "train,serve", "--mem", "none", *SIZE, "--save", "two")
    program = "import os, sys; print(os.getpid(), os.environ['CUDA_MPS_ACTIVE_THREAD_PERCENTAGE'], sys.argv[1:])"
    with subprocess.Popen(
        [
            sys.executable,
            "-m",
            "mpstui",
            "run",
            "--share",
            "train",
            "--",
            sys.executable,
            "-c",
            program,
            "-x",
            "--",
            "y z",
        ],
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        out, _ = process.communicate(timeout=120)
    # The same process: no parent lingers, and the command's status is the status.
    assert out == f"{process.pid} 18.2 ['-x', '--', 'y z']\n"
    done = run_mpstui("run", "--share", "serve", "--", "sh", "-c", "exit 7")
    assert done.returncode == 7


def test_run_says_what_is_wrong(mpstui: Run, place: Path) -> None:
    assert mpstui("run", "--share", "a", "--", "true")[::2] == (2, "mpstui: share “a”: none has it\n")
    for name in ("one", "two"):
        mpstui("plan", "--clients", 1, "--names", "a", *SIZE, "--mem", "none", "--save", name)
    status, _, err = mpstui("run", "--share", "a", "--", "true")
    assert (status, "one, two" in err) == (2, True)
    assert mpstui("run", "--share", "a")[0] == 2
    assert mpstui("run", "--share", "b", "--profile", "one", "--", "true")[0] == 2
    assert mpstui("run", "--share", "a", "--profile", "../one", "--", "true")[0] == 2
    assert mpstui("run", "--share", "a", "--profile", "one", "--", "/nonexistent")[0] == 127
    assert mpstui("run", "--share", "a", "--profile", "one", "--", "/etc/passwd")[0] == 126
    (place / "config" / "mpstui" / "profiles" / "half.toml").write_text('schema = 1\n[[daemon]]\npipe_dir = "/tm')
    status, _, err = mpstui("profile", "show", "half")
    assert (status, "half.toml: is not TOML: " in err, "line 3" in err) == (2, True, True)
    assert "half.toml" in mpstui("profile", "list")[2]
