"""Whoever names no daemon means root's or their own: nothing is sent to, run on or ended for one that somebody else has
started, however many there are."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from deadline import usual

from mpstui import cli
from mpstui.observe import discovery
from mpstui.observe.discovery import discover
from mpstui.operations.registry import VERBS

from .conftest import Stranger
from .programs import BINARY, USURPS, lives, lying_daemon, mpstui, roots_process, usurped

COMMANDS = {
    "a priority": ("set", "client-priority", "1"),
    "a percentage": ("set", "active-thread-percentage", "50", "--default"),
    "a server's percentage": ("set", "active-thread-percentage", "50", "--server", "{server}"),
    "a memory limit": ("set", "pinned-mem-limit", "1G", "--device", "0", "--default"),
    "a profile": ("profile", "apply", "half"),
    "a profile kept": ("profile", "save", "new"),
    "a client": ("terminate", "{server}", "--yes"),
    "a client and its process": ("terminate", "{server}", "--kill", "--yes"),
    "lost clients": ("end-lost", "--yes"),
    "what blocks": ("unblock", "--yes"),
    "a partition": ("partition", "add", "--device", "0", "--chunks", "1"),
    "a named server": ("server", "create", "a"),
    "a feature": ("feature", "enable", "memacct"),
    "a namespace": ("namespace", "create", "n", "--server", "a"),
    "SMs of a named server": ("sm-partition", "create", "p", "--server", "a", "--device", "0", "--chunks", "1"),
    "a server started": ("start-server", "root"),
    "a server shut down": ("shutdown-server", "{server}", "-f", "--yes"),
    "stop": ("daemon", "stop", "--yes"),
    "stop by force": ("daemon", "stop", "--force", "--yes"),
    "what is left": ("daemon", "clean"),
    "load": ("load", "nbody", "--seconds", "1", "--yes"),
    "a program": ("load", "--yes", "--command", "touch {mark}"),
    "an experiment": ("experiment", "nbody", "--shared", "--seconds", "1"),
}
CHANGES = ("set_", "quit", "shutdown_server", "start_server", "terminate_client")

Main = Callable[..., tuple[int, str]]


@pytest.fixture
def main(
    stranger: Stranger,
    bystander: Stranger,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> Main:
    """The command line on a node that has no daemons but those of this test; its exit status and what it said."""
    every = discovery.running_daemons
    homes = {stranger.home, bystander.home}
    mine = lambda: [d for d in every() if d.pipe_dir is not None and homes & {*d.pipe_dir.parents}]  # noqa: E731
    monkeypatch.setattr(discovery, "running_daemons", mine)
    monkeypatch.setitem(discover.__kwdefaults__, "well_known", ())
    monkeypatch.setenv("MPSTUI_CONTROL_BINARY", str(BINARY))
    monkeypatch.setenv("MPSTUI_AUDIT_LOG", str(tmp_path / "audit.jsonl"))

    def run(*words: str) -> tuple[int, str]:
        filled = [word.format(server=os.getpid(), mark=tmp_path / "mark") for word in words]
        try:
            status = cli.main(filled)
        except SystemExit as end:
            status = int(end.code or 0)
        out, err = capfd.readouterr()
        return status, out + err

    made = ("--clients", "2", "--sm-count-total", "132", "--memory-total", "80GiB", "--save", "half", "--replace")
    assert run("plan", *made)[0] == 0
    return run


def heard(pipe_dir: Path) -> str:
    return (pipe_dir / "heard").read_text() if (pipe_dir / "heard").exists() else ""


def test_every_command_that_changes_a_node_has_its_place_here() -> None:
    """Or its like: those with the same first word look for their daemon in the same way."""
    tried = {words[0] for words in COMMANDS.values()}
    assert not {verb.words[0] for verb, _ in VERBS} - tried


@pytest.mark.slow
def test_a_daemon_of_somebody_elses_is_not_taken_for_the_one_that_is_meant(
    stranger: Stranger, main: Main, tmp_path: Path
) -> None:
    pipe_dir = stranger.home / "p"
    daemon = lying_daemon(stranger, pipe_dir, clients=[os.getpid()])
    refusal = f"a daemon of UID {stranger.uid}; to use it anyway, name it: --pipe-dir {pipe_dir}"
    for command, words in COMMANDS.items():
        status, said = main(*words)
        assert (status, refusal in said) == (6, True), (command, status, said)
    assert not any(word in heard(pipe_dir) for word in CHANGES)
    assert lives(daemon)
    assert not (tmp_path / "mark").exists()


def test_a_program_of_a_share_is_no_client_of_somebody_elses_by_an_older_profile(
    stranger: Stranger, main: Main, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The directory was root's when the profile was made."""
    became: list[dict[str, str]] = []
    monkeypatch.setattr(os, "execvpe", lambda file, argv, env: became.append(env))
    pipe_dir = stranger.home / "p"
    monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", os.fspath(pipe_dir))
    main("plan", "--clients", "2", "--sm-count-total", "132", "--memory-total", "80GiB", "--save", "own", "--replace")
    monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", os.fspath(pipe_dir.parent / "other"))
    run = ("run", "--share", "client1", "--profile", "own", "--", "x")
    assert (main(*run)[1], len(became)) == ("", 1), "nobody's is there yet"
    assert became.pop()["CUDA_MPS_PIPE_DIRECTORY"] == os.fspath(pipe_dir)
    lying_daemon(stranger, pipe_dir, clients=[])
    status, said = main(*run)
    assert (status, became) == (6, [])
    assert f"a daemon of UID {stranger.uid}; to use it anyway, name it" in said
    main("--pipe-dir", os.fspath(pipe_dir), *run)
    assert became.pop()["CUDA_MPS_PIPE_DIRECTORY"] == os.fspath(pipe_dir)
    monkeypatch.setattr(os, "geteuid", lambda: stranger.uid)
    main(*run)
    assert len(became) == 1, "his own"


@pytest.mark.parametrize("command", ["a program", "load", "an experiment"])
def test_whose_daemon_it_is_that_was_named_is_told_where_nobody_is_asked(
    stranger: Stranger, main: Main, command: str, tmp_path: Path
) -> None:
    """With --yes root's load ran on a stranger's daemon without a word about whose it is."""
    pipe_dir = stranger.home / "p"
    lying_daemon(stranger, pipe_dir, clients=[])
    words = dict.fromkeys((*COMMANDS[command], "--yes"))
    _, said = main("--pipe-dir", os.fspath(pipe_dir), *words)
    whose = f"This is a daemon of UID {stranger.uid}: its user can read and change all that the load has on the GPU."
    assert said.count(whose) == 1, said


def test_nothing_is_told_of_roots(roots: Stranger, main: Main) -> None:
    lying_daemon(roots, roots.home / "p", clients=[])
    assert "its user can read" not in main("--pipe-dir", os.fspath(roots.home / "p"), *COMMANDS["a program"])[1]


@pytest.mark.slow
@pytest.mark.parametrize("command", ["a priority", "a server's percentage", "stop", "a program"])
def test_many_of_somebody_elses_do_not_stand_in_the_way_of_roots(
    stranger: Stranger, roots: Stranger, main: Main, command: str, tmp_path: Path
) -> None:
    """All of them name root's server as theirs."""
    theirs = [stranger.home / f"p{number}" for number in range(3)]
    for pipe_dir in theirs:
        lying_daemon(stranger, pipe_dir, clients=[])
    own = roots.home / "p"
    lying_daemon(roots, own, clients=[])
    if command == "stop":
        assert main("status")[1].startswith(f"{own} "), "root's comes first"
    _, said = main(*COMMANDS[command])
    assert "several daemons" not in said
    assert any(word in heard(own) for word in CHANGES) or (tmp_path / "mark").exists(), said
    assert not any(word in heard(pipe_dir) for pipe_dir in theirs for word in CHANGES)
    assert "choose one" not in said


LEFT = """
import os, socket, sys
os.makedirs(sys.argv[1])
for name in ("control", "control_privileged"):
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as left: left.bind(sys.argv[1] + "/" + name)
os.chmod(sys.argv[1], int(sys.argv[2], 8))
"""


@pytest.mark.parametrize("mode", ["0755", "0700"])
@pytest.mark.parametrize("who", ["root", "a user"])
def test_nor_does_what_somebody_else_has_made_without_a_daemon(
    stranger: Stranger,
    bystander: Stranger,
    crowd: Path,
    main: Main,
    monkeypatch: pytest.MonkeyPatch,
    who: str,
    mode: str,
) -> None:
    """Two dead sockets in /tmp/mps_x, or a directory of his alone: root named no daemon, and was to choose one. A user
    was to choose beside what is closed to him, as root's --demo."""
    left, closed = crowd / "mps_left", crowd / "mps_closed"
    stranger.python(LEFT, left, mode)
    closed.mkdir(mode=0o700)
    monkeypatch.setitem(discover.__kwdefaults__, "well_known", (f"{crowd}/mps_*",))
    own = Stranger(0 if who == "root" else bystander.uid, bystander.home)
    own.interpreter = bystander.interpreter
    os.chown(own.home, own.uid, own.uid)
    try:
        lying_daemon(own, own.home / "p", clients=[])
        if who != "root":  # root comes everywhere
            monkeypatch.setattr(os, "geteuid", lambda: own.uid)
            real, away = os.access, {closed, *([left] if mode == "0700" else [])}
            monkeypatch.setattr(os, "access", lambda path, *more, **how: path not in away and real(path, *more, **how))
        _, said = main(*COMMANDS["a priority"])
    finally:
        own.end()
    assert "set_default_client_priority 1" in heard(own.home / "p"), said


def test_whose_daemon_is_not_known_is_nobodys(stranger: Stranger, main: Main) -> None:
    """Root's sockets where the stranger can exchange them."""
    as_root = Stranger(0, stranger.home)
    as_root.interpreter = stranger.interpreter
    try:
        lying_daemon(as_root, stranger.home / "of-root" / "p", clients=[])
        status, said = main("set", "client-priority", "1")
    finally:
        as_root.end()
    assert status == 6, said
    assert "of an unknown user" in said


def test_his_own_is_what_a_user_means(stranger: Stranger, main: Main, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: stranger.uid)
    lying_daemon(stranger, stranger.home / "p", clients=[])
    main("set", "client-priority", "1")
    assert "set_default_client_priority 1" in heard(stranger.home / "p")


@pytest.mark.slow
@pytest.mark.parametrize("how", USURPS)
def test_roots_own_daemon_is_ended_as_a_process_where_another_user_has_put_himself_in_its_place(
    stranger: Stranger, roots: Stranger, main: Main, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """It was called a daemon of that user's, and its own owner had no way to stop it: ``quit`` went to who answers."""
    monkeypatch.setenv("MPSTUI_CONTROL_DEADLINE", usual())
    pipe_dir = roots.home / "p"
    daemon = usurped(roots, stranger, pipe_dir, how)
    remedies = {"a priority": f"mpstui daemon stop --force --pipe-dir {pipe_dir}", "stop": "--force ends its process"}
    for command, remedy in remedies.items():
        status, said = main(*COMMANDS[command])
        assert (status, f"daemon {daemon.pid} of root runs in {pipe_dir}, but" in said) == (6, True), said
        assert remedy in said
    assert lives(daemon)
    assert not any(word in heard(pipe_dir) for word in CHANGES)
    status, said = main(*COMMANDS["stop by force"])
    assert (status, lives(daemon)) == (0, False), said
    assert not any(word in heard(pipe_dir) for word in CHANGES)


def test_a_daemon_of_which_nobody_knows_whose_it_is_claims_its_clients(
    stranger: Stranger, bystander: Stranger, crowd: Path
) -> None:
    """Its directory is one user's and a socket another's. Root's process was in the group of root's clients."""
    pipe_dir = crowd / "mps"
    with roots_process() as victim:
        lying_daemon(stranger, pipe_dir, clients=[victim.pid])
        os.chown(pipe_dir / "control", bystander.uid, bystander.uid)
        at = ("--pipe-dir", pipe_dir)
        told = mpstui("status", "--group-by", "user", "--json", *at, MPSTUI_CONTROL_DEADLINE=usual())
        found = {
            group["name"]: group["pids"] for each in json.loads(told.stdout)["daemons"] for group in each["groups"]
        }
        assert found == {"claims root": [victim.pid]}, told


@pytest.mark.parametrize("words", [COMMANDS["a percentage"], COMMANDS["a server started"]])
def test_whose_the_daemon_is_that_was_named_is_said_where_it_is_another_users(
    stranger: Stranger, roots: Stranger, words: tuple[str, ...]
) -> None:
    """Who names a directory need not know who has come there since root's daemon ended."""
    for who, said in ((stranger, True), (roots, False)):
        lying_daemon(who, who.home / "p", clients=[])
        done = mpstui(*words, "--pipe-dir", who.home / "p", MPSTUI_CONTROL_DEADLINE=usual())
        told = done.stdout + done.stderr
        assert (str(stranger.uid) in told) is said, told
