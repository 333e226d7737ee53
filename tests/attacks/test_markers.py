"""A stranger says that his directory is a simulated node's: it shows nobody's users over real processes, and hides none
of his daemons. And a marker of one's own that is wrong is told of in words.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from deadline import usual

from mpstui import cli
from mpstui.node import open_node
from mpstui.observe.watcher import NodeWatcher
from mpstui.sim.marker import is_simulated
from mpstui.sim.node import SimError, SimNode
from mpstui.sim.simd.config import MARKER, STATE, default_gpus, write_marker
from mpstui.sim.sources import SimNvml, SimProcesses
from mpstui.system.procfs import ProcProcesses

from .conftest import Stranger
from .programs import posing

DEVICE = {
    "index": 0, "uuid": "GPU-0", "name": "X", "sm_count": 132, "memory_total": 85520809984, "compute_capability": [9, 0]
}  # fmt: skip
GOOD = json.dumps({"version": 1, "devices": [DEVICE]})
FORGE = """
import os, sys
folder, marker, state = sys.argv[1:]
os.makedirs(folder, exist_ok=True)
for name, text in (("mpstui-simulated", marker), ("mpstui-simulated.json", state)):
    with open(os.path.join(folder, name), "w") as file:
        file.write(text)
"""
DAEMON = """
import os, socket, sys
folder = os.environ["CUDA_MPS_PIPE_DIRECTORY"]
kept = []
for name in ("control", "control_privileged"):
    kept.append(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
    kept[-1].bind(folder + "/" + name)
    kept[-1].listen()
with open(folder + "/nvidia-cuda-mps-control.pid", "w") as file:
    file.write(str(os.getpid()))
print("ready", flush=True)
sys.stdin.read()
"""


def forged_state(pid: int, ticks: int) -> str:
    """Says that process ``pid`` is a client of alice's."""
    client = {
        "pid": pid, "start_ticks": ticks, "uid": 2001, "user": "alice", "command": "forged", "container": None,
        "namespace": None, "busy": True, "sm": 132, "since": 0, "memory": {"GPU-0": 1 << 30},
    }  # fmt: skip
    return json.dumps({"daemon": {"pid": pid, "start_ticks": ticks}, "servers": [], "clients": [client]})


def ticks_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])


@pytest.fixture
def forged(stranger: Stranger) -> Path:
    """A stranger's directory with a good marker, which says that this very process is a client of alice's."""
    folder = stranger.home / "p"
    stranger.python(FORGE, folder, GOOD, forged_state(os.getpid(), ticks_of(os.getpid())))
    return folder


@pytest.fixture
def daemon(stranger: Stranger, forged: Path) -> int:
    """The PID of a daemon in it."""
    return posing(stranger, DAEMON, stranger.home, forged).pid


def test_a_stranger_s_marker_does_not_count(forged: Path) -> None:
    assert not is_simulated(forged)
    sources, dirs = open_node((forged,))
    assert (sources.simulated, dirs) == (False, (forged,))
    sources.nvml.close()


def test_it_is_no_node_with_a_simulated_one_either(forged: Path, crowd: Path) -> None:
    """Before, the two together were shown as one simulated node."""
    own = crowd / "own"
    own.mkdir()
    write_marker(own, default_gpus(1))

    assert is_simulated(own)
    assert not is_simulated(forged)


ARRANGEMENTS: dict[str, Callable[[Stranger, Path, Path], None]] = {
    "a hard link to root's in his": lambda him, crowd, own: os.link(own / MARKER, crowd / "x" / MARKER),
    "a link to his directory": lambda him, crowd, own: him.run("ln", "-s", him.home / "p", crowd / "y") and None,
    "his link to root's own": lambda him, crowd, own: him.run("ln", "-s", own, crowd / "y") and None,
    "a directory of root's that everybody can write to": lambda him, crowd, own: os.chmod(own, 0o777),
    "one that is sticky": lambda him, crowd, own: os.chmod(own, 0o1777),
    "one of a group with others in it": lambda him, crowd, own: (os.chmod(own, 0o775), os.chown(own, 0, him.uid)),
    "a marker that everybody can write to": lambda him, crowd, own: os.chmod(own / MARKER, 0o666),
    "a marker of his in root's directory": lambda him, crowd, own: os.chown(own / MARKER, him.uid, him.uid),
    "a marker that is a link": lambda him, crowd, own: (
        os.rename(own / MARKER, own / "other"), os.symlink(own / "other", own / MARKER)
    ),
    "a marker that is a FIFO": lambda him, crowd, own: (os.unlink(own / MARKER), os.mkfifo(own / MARKER)),
    "a marker that is a directory": lambda him, crowd, own: (os.unlink(own / MARKER), os.mkdir(own / MARKER)),
    "root's directory below his": lambda him, crowd, own: os.rename(own, him.home / "own"),
}  # fmt: skip
STILL_GOOD = ("a link to his directory", "his link to root's own")
"""Where root's own directory goes on to be what it was."""


@pytest.mark.parametrize("arrangement", ARRANGEMENTS)
def test_who_could_have_put_it_there_decides(arrangement: str, stranger: Stranger, forged: Path, crowd: Path) -> None:
    own = crowd / "own"
    own.mkdir(mode=0o755)
    write_marker(own, default_gpus(1))
    stranger.run("mkdir", crowd / "x")
    assert is_simulated(own)

    ARRANGEMENTS[arrangement](stranger, crowd, own)

    places = (own, crowd / "x", crowd / "y", stranger.home / "own")
    assert [place for place in places if is_simulated(place)] == ([own] if arrangement in STILL_GOOD else [])


def test_the_daemon_of_whoever_left_a_marker_is_found(
    forged: Path, daemon: int, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MPSTUI_CONTROL_DEADLINE", usual())
    monkeypatch.setattr("mpstui.observe.discovery._PLACES_LIMIT", 10_000)  # root's, which come first, may be many here
    cli.main(["status", "--json"])

    told = json.loads(capfd.readouterr().out)
    assert {d["pipe_dir"]: d["pid"] for d in told["daemons"]}.get(os.fspath(forged)) == daemon
    assert told["source"] == "real"


@pytest.mark.parametrize("above", [False, True])
def test_a_simulated_node_is_one_by_whatever_name_it_is_reached(
    above: bool, stranger: Stranger, crowd: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A stranger's link leads to root's own demo, itself or on the way: it was shown as a daemon that is real."""
    with SimNode.start(crowd / "own" / "mps", gpus=1) as node:
        stranger.run("ln", "-s", node.pipe_dir.parent if above else node.pipe_dir, crowd / "link")
        named = crowd / "link" / "mps" if above else crowd / "link"
        assert cli.main(["status", "--json", "--pipe-dir", os.fspath(named)]) == 0
        told = json.loads(capfd.readouterr().out)
        assert (told["source"], [d["pipe_dir"] for d in told["daemons"]]) == ("simulated", [os.fspath(node.pipe_dir)])
        assert cli.main(["set", "client-priority", "1", "--pipe-dir", os.fspath(named)]) == 0


def test_what_the_marker_says_is_shown_as_its_owner_s_claim(stranger: Stranger, forged: Path, crowd: Path) -> None:
    (crowd / "plain").mkdir()
    sources, dirs = open_node((forged, crowd / "plain"))
    claims = [sources.claim(pipe_dir) for pipe_dir in dirs]
    place = NodeWatcher(dirs, sources)._look()[0]
    sources.nvml.close()

    said = f"a file of UID {stranger.uid} marks it as a simulated node; mpstui does not trust this file"
    assert claims == [said, None]
    assert said in place.detail


def test_none_of_what_stands_beside_it_is_shown(
    forged: Path, daemon: int, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MPSTUI_CONTROL_DEADLINE", usual())
    cli.main(["status", "--json", "--pipe-dir", os.fspath(forged)])
    cli.main(["status", "--pipe-dir", os.fspath(forged)])

    out, err = capfd.readouterr()
    assert "forged" not in out + err
    assert "SIMULATED" not in out
    assert json.loads(out.splitlines()[0])["source"] == "real"


def test_what_is_put_in_the_place_of_one_s_own_node_is_not_read_on(stranger: Stranger, crowd: Path) -> None:
    """Root's demo ends, its directory goes, and somebody makes another one of that name."""
    folder = crowd / "sim"
    with SimNode.start(folder, gpus=1):
        nvml, processes = SimNvml(folder), SimProcesses(folder, ProcProcesses())
        assert len(nvml.sample().devices) == 1
    subprocess.run(["rm", "-r", folder], check=True)
    stranger.python(FORGE, folder, GOOD, forged_state(os.getpid(), ticks_of(os.getpid())))

    assert nvml.sample().devices == ()
    assert "is gone" in (nvml.sample().error or "")
    assert processes.facts([os.getpid()])[os.getpid()].command != "forged"


def test_a_simulated_node_is_not_served_where_somebody_else_could_change_it(
    stranger: Stranger, crowd: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (crowd / "open").mkdir()
    (crowd / "open").chmod(0o777)
    stranger.run("mkdir", stranger.home / "his")

    for folder in (crowd, crowd / "open", stranger.home / "his", stranger.home / "his" / "new" / "deep"):
        assert cli.main(["sim", "serve", os.fspath(folder)]) == 2
        said = capfd.readouterr().err
        assert "nobody else can change" in said or "holds other files" in said
    assert os.listdir(crowd / "open") == []
    assert os.listdir(stranger.home / "his") == []


def wrong(**changes: object) -> str:
    return json.dumps({"version": 1, "devices": [{**DEVICE, **changes}]})


DIGITS = "9" * 400
WRONG = {
    "400 digits of SMs": GOOD.replace("132", DIGITS),
    "400 digits of memory": GOOD.replace("85520809984", DIGITS),
    "400 digits of an index": GOOD.replace('"index": 0', f'"index": {DIGITS}'),
    "400 digits of a capability": GOOD.replace("[9, 0]", f"[{DIGITS}, 0]"),
    "minus 400 digits": GOOD.replace("132", f"-{DIGITS}"),
    "a million digits": GOOD.replace("132", "9" * 1_000_000),
    "400 digits, and a point": GOOD.replace("132", f"{DIGITS}.5"),
    "an exponent": GOOD.replace("132", "1e999"),
    "NaN": GOOD.replace("132", "NaN"),
    "infinity": GOOD.replace("132", "-Infinity"),
    "negative": wrong(sm_count=-1),
    "zero": wrong(sm_count=0),
    "a fraction": wrong(sm_count=132.5),
    "a whole float": wrong(memory_total=1.0),
    "true": wrong(sm_count=True),
    "text": wrong(sm_count="132"),
    "null": wrong(memory_total=None),
    "a list": wrong(sm_count=[132]),
    "an object": wrong(index={"a": 1}),
    "much": wrong(memory_total=1 << 60),
    "a capability of one number": wrong(compute_capability=[9]),
    "a capability that is text": wrong(compute_capability="90"),
    "a UUID that is a number": wrong(uuid=7),
    "a name with escapes": wrong(name="\x1b[2J"),
    "a long name": wrong(name="x" * 100_000),
    "two alike": json.dumps({"version": 1, "devices": [DEVICE, DEVICE]}),
    "many": json.dumps({"version": 1, "devices": [{**DEVICE, "index": i, "uuid": f"GPU-{i}"} for i in range(65)]}),
    "none": json.dumps({"version": 1, "devices": []}),
    "devices that are an object": json.dumps({"version": 1, "devices": {"0": DEVICE}}),
    "no devices": "{}",
    "a list of nothing": "[]",
    "deep": "[" * 500_000,
    "deep objects": '{"devices":' * 100_000,
    "large": " " * (3 << 20),
    "nothing": "",
    "half": GOOD[:20],
    "no text": "\x00\x01",
}


COMMANDS = (["doctor"], ["daemon", "stop"], ["plan", "--clients", "2"], ["load", "fma"])


@pytest.mark.parametrize(
    ("command", "kind"),
    [*((["status"], kind) for kind in WRONG), *((command, "400 digits of SMs") for command in COMMANDS)],
)
def test_a_wrong_marker_of_one_s_own_is_told_of(
    command: list[str], kind: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / MARKER).write_text(WRONG[kind])

    assert cli.main([*command, "--pipe-dir", os.fspath(tmp_path)]) == 2

    out, err = capfd.readouterr()
    assert out == ""
    assert err.startswith(f"mpstui: the marker of a simulated node, {tmp_path / MARKER}: ")
    assert len(err) < 400
    assert "Traceback" not in err


def test_what_is_wrong_is_named(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for kind, said in {
        "400 digits of SMs": "a number in it has 400 digits",
        "true": "devices[0].sm_count: not a whole number from 1 to 4096",
        "deep": "it is nested too deeply",
        "large": "it is larger than 2 MiB",
        "two alike": "devices: two have the same index",
    }.items():
        (tmp_path / MARKER).write_text(WRONG[kind])
        assert cli.main(["status", "--pipe-dir", os.fspath(tmp_path)]) == 2
        assert said in capfd.readouterr().err


@pytest.mark.parametrize("kind", WRONG)
def test_a_marker_or_a_state_that_becomes_wrong_is_an_error_and_no_traceback(kind: str, tmp_path: Path) -> None:
    (tmp_path / MARKER).write_text(GOOD)
    (tmp_path / STATE).write_text(WRONG[kind])
    assert SimNvml(tmp_path).sample().error is None
    assert SimProcesses(tmp_path, ProcProcesses()).facts([os.getpid()])
    (tmp_path / MARKER).write_text(WRONG[kind])
    assert SimNvml(tmp_path).sample().error is not None


def test_no_simulated_node_writes_its_logs_where_others_make_links(
    stranger: Stranger, roots: Stranger, crowd: Path
) -> None:
    """As in /tmp itself: root's wrote what it said into the file that a stranger's link there led to."""
    stranger.run("ln", "-s", roots.home / "made", crowd / "simulator.log")
    with pytest.raises(SimError, match="is shared with others"):
        SimNode.start(roots.home / "node", log_dir=crowd).stop()
    assert not (roots.home / "made").exists()
