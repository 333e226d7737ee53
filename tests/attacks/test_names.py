"""Directories whose names steer a terminal, or look like another one: left out, and refused when named."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from terminal import Terminal

from mpstui import cli
from mpstui.core.model import Snapshot
from mpstui.core.text import unprintable
from mpstui.doctor.checkup import examine, gather
from mpstui.observe import discovery
from mpstui.observe.discovery import discover
from mpstui.plan import store

from .conftest import Stranger
from .programs import alone, posing

NAMES = {
    "clipboard": b"\x1b]52;c;cm0gLXJmIC8=\x07",
    "screen": b"\x1b[2J\x1b[H",
    "line": b"0\nmps_1: ok",
    "return": b"0\rok",
    "c1": "\x9b2J".encode(),
    "raw c1": b"\x9b2J",
    "delete": b"0\x7f",
    "override": "\u202e0".encode(),
    "isolate": "\u20670\u2069".encode(),
    "zero width": "0\u200b".encode(),
    "joiner": "0\u200d".encode(),
    "mark": "\ufeff0".encode(),
    "soft hyphen": "0\u00ad".encode(),
    "line separator": "0\u2028".encode(),
    "no-break space": "0\u00a0".encode(),
    "tag": "0\U000e0041".encode(),
    "filler": "0\u3164".encode(),
    "variation": "0\ufe0f".encode(),
    "unassigned": "0\u0378".encode(),
    "private": "0\ue000".encode(),
    "no UTF-8": b"\xff\xfe",
    "surrogate": b"\xed\xa0\x80",
    "long": b"\x1b" * 200,
}
"""What is behind ``mps_``, in bytes: a name is any bytes but / and NUL."""
MAKE = """
import os, sys
for name in sys.argv[2:]:
    folder = os.path.join(os.fsencode(sys.argv[1]), b"mps_" + bytes.fromhex(name))
    os.mkdir(folder, 0o755)
    open(os.path.join(folder, b"control"), "w").close()
"""
DAEMON = """
import os, sys
os.makedirs(os.environb[b"CUDA_MPS_PIPE_DIRECTORY"], exist_ok=True)
print("ready", flush=True)
sys.stdin.read()
"""


def printed_cleanly(text: str) -> bool:
    return all(unprintable(line) is None for line in text.replace("\t", " ").split("\n"))


def path_in(folder: Path, kind: str) -> str:
    return os.fsdecode(os.fsencode(folder) + b"/mps_" + NAMES[kind])


@pytest.fixture
def crowded(stranger: Stranger, crowd: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A /tmp in which a stranger has made one directory of each kind, and a good one."""
    alone(monkeypatch, stranger)
    stranger.python(MAKE, crowd, *(name.hex() for name in NAMES.values()), b"good".hex())
    monkeypatch.setitem(discover.__kwdefaults__, "well_known", (f"{crowd}/mps_*",))
    return crowd


@pytest.fixture
def hidden(stranger: Stranger) -> int:
    """The PID of a stranger's daemon whose directory cannot be printed."""
    return posing(stranger, DAEMON, stranger.home, path_in(stranger.home, "clipboard")).pid


def test_discovery_leaves_such_names_out(crowded: Path) -> None:
    found = [place.pipe_dir for place in discover(env={}) if place.pipe_dir.parent == crowded]

    assert found == [crowded / "mps_good"]


def test_such_names_take_nobody_s_place_among_those_that_are_looked_at(
    stranger: Stranger, crowded: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    many = [f"\x1b{number}".encode().hex() for number in range(200)]
    stranger.python(MAKE, crowded, *many)

    found = [place.pipe_dir for place in discover(env={}) if place.pipe_dir.parent == crowded]

    assert found == [crowded / "mps_good"]


@pytest.mark.parametrize("command", [["status"], ["status", "--json"], ["doctor"], ["events"], ["daemon", "stop"]])
def test_what_root_runs_writes_none_of_them(
    crowded: Path, hidden: int, command: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    cli.main(command)

    out, err = capfd.readouterr()
    assert printed_cleanly(out)
    assert printed_cleanly(err)


def test_a_daemon_that_hides_behind_such_a_name_is_told_of(hidden: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(discover.__kwdefaults__, "well_known", ())

    places = discover(env={})

    assert all(unprintable(place.pipe_dir) is None for place in places)
    elsewhere = discovery._elsewhere(Path("/nowhere"), discovery.running_daemons())
    assert printed_cleanly(elsewhere)
    findings = examine(gather(Snapshot("real", 0.0, "here"), (), ()))
    about = [finding for finding in findings if finding.subject == f"daemon {hidden}"]
    assert [(finding.verdict, finding.remedy) for finding in about] == [("unknown", "Leave it to its owner.")]


COMMANDS = {
    "screen": [],
    "status": ["status"],
    "events": ["events"],
    "doctor": ["doctor"],
    "set": ["set", "active-thread-percentage", "50", "--default"],
    "terminate": ["terminate", "1"],
    "plan": ["plan", "--clients", "2"],
    "load": ["load"],
    "profile": ["profile", "list"],
    "start": ["daemon", "start"],
    "stop": ["daemon", "stop"],
    "unit": ["daemon", "unit", "systemd"],
}


def refused(arguments: list[str], capfd: pytest.CaptureFixture[str]) -> str:
    """What was said on the way to exit status 2."""
    try:
        status = cli.main(arguments)
    except SystemExit as end:
        status = end.code  # type: ignore[assignment]
    out, err = capfd.readouterr()
    assert status == 2, (out, err)
    assert out == ""
    assert printed_cleanly(err)
    return err


@pytest.mark.parametrize("option", ["--pipe-dir", "--log-dir"])
@pytest.mark.parametrize("command", COMMANDS)
def test_refused_as_an_option(command: str, option: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    said = refused([*COMMANDS[command], option, path_in(tmp_path, "clipboard")], capfd)

    assert "cannot be printed" in said
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", NAMES)
@pytest.mark.parametrize("command", [["status", "--pipe-dir"], ["daemon", "start", "--pipe-dir"], ["sim", "serve"]])
def test_each_kind_is_refused(kind: str, command: list[str], tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    os.mkdir(path_in(tmp_path, kind))

    assert "cannot be printed" in refused([*command, path_in(tmp_path, kind)], capfd)
    assert os.listdir(path_in(tmp_path, kind)) == []


@pytest.mark.parametrize("below", ["sub", "sub/../x", "./"])
def test_refused_below_such_a_directory_too(below: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    refused(["status", "--pipe-dir", f"{path_in(tmp_path, 'screen')}/{below}"], capfd)


@pytest.mark.parametrize("word", [".", "sub", "../mps_\x1b[2J\x1b[H"])
def test_refused_where_one_stands_in_it(
    word: str, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    os.mkdir(path_in(tmp_path, "screen"))
    monkeypatch.chdir(path_in(tmp_path, "screen"))

    refused(["status", "--pipe-dir", word], capfd)
    refused(["sim", "serve", word], capfd)


def test_no_current_directory_is_no_traceback(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()

    assert "absolute" in refused(["status", "--pipe-dir", "x"], capfd)


@pytest.mark.parametrize(
    "variable", ["CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY", "MPSTUI_AUDIT_LOG", "MPSTUI_CONTROL_BINARY"]
)
@pytest.mark.parametrize("command", [[], ["status"], ["daemon", "start"], ["run", "--share", "a", "--", "true"]])
def test_refused_in_the_environment(
    variable: str,
    command: list[str],
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(variable, path_in(tmp_path, "override"))

    assert f"mpstui: {variable}: “" in refused(command, capfd)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", [r"\u001b]52;c;aGk=\u0007", r"\u202e0", r"0\u200b", r"0\u3164", r"0\n"])
@pytest.mark.parametrize("which", ["pipe_dir", "log_dir"])
def test_refused_in_a_profile(
    which: str, name: str, capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", os.fspath(tmp_path))
    store.profiles_dir().mkdir(parents=True)
    folder = f"{tmp_path}/mps_{name}"
    (store.profiles_dir() / "evil.toml").write_text(f'schema = 1\n[[daemon]]\n{which} = "{folder}"\n')

    for command in (["profile", "show"], ["profile", "apply"], ["daemon", "start", "--profile"]):
        assert "cannot be printed" in refused([*command, "evil"], capfd)
    assert not [found for found in os.listdir(tmp_path) if found.startswith("mps_")]


def test_words_that_a_shell_makes_of_such_names_are_not_written_back(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    refused(["status", path_in(tmp_path, "clipboard")], capfd)
    refused([path_in(tmp_path, "screen")], capfd)
    refused(["terminate", path_in(tmp_path, "line")], capfd)


def test_a_directory_that_was_asked_for_by_a_program_is_unusable_and_never_opened(
    stranger: Stranger, crowded: Path
) -> None:
    for kind in NAMES:
        place = discover((Path(path_in(crowded, kind)),), env={})[0]

        assert place.state == "unusable"
        assert printed_cleanly(place.detail + place.remedy)


def test_a_good_name_of_such_a_directory_is_taken_and_the_other_never_shown(
    crowded: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "link").symlink_to(path_in(crowded, "clipboard"))

    assert cli.main(["status", "--pipe-dir", os.fspath(tmp_path / "link")]) == 3

    out, err = capfd.readouterr()
    assert printed_cleanly(out + err)
    assert os.fspath(tmp_path / "link") in out


@pytest.mark.parametrize("name", ["mps_0", "mps ü", "mps_日本", "mps_été", "mps_\\x1b", "mps_'\"$`", "mps_%n"])
def test_usual_names_are_taken(name: str) -> None:
    assert unprintable(f"/tmp/{name}") is None


@pytest.mark.slow
def test_the_screen_writes_none_of_them(crowded: Path, stranger: Stranger, hidden: int) -> None:
    """Every byte that the program writes to its terminal while it watches such a /tmp."""
    program = (
        "import sys; from mpstui.observe import discovery;"
        "discovery.discover.__kwdefaults__['well_known'] = (sys.argv.pop(1),);"
        f"every, home = discovery.running_daemons, {str(stranger.home)!r};"
        "discovery.running_daemons = lambda: [each for each in every() if str(each.pipe_dir).startswith(home)];"
        "from mpstui.cli import main; sys.exit(main())"
    )
    with Terminal([sys.executable, "-c", program, f"{crowded}/mps_*"]) as terminal:
        terminal.wait_for("Palette")  # the whole screen; a card lies over its panels
        terminal.wait_for("mps_good")
        written = bytes(terminal.bytes)
    for kind, name in NAMES.items():
        assert name not in written, kind
    assert b"\x1b]52" not in written
