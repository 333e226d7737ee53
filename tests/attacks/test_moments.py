"""What changes between the question and the signal, or the command: another user's program in the same process, another
socket in the same directory, another daemon behind its name."""

from __future__ import annotations

import errno
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from contract.commands import Commands

from mpstui.control import channel
from mpstui.control.answer import Answer, Outcome
from mpstui.control.channel import ControlChannel, RawReply
from mpstui.control.mps import MpsControl
from mpstui.core.trust import Speaker
from mpstui.load.supervisor import Supervisor
from mpstui.load.types import LoadSpec
from mpstui.observe import discovery
from mpstui.observe.discovery import find_speaker, steady_speaker
from mpstui.operations.signals import Guard
from mpstui.sim.node import SimNode
from mpstui.system.memory import real_path
from mpstui.system.procfs import PidFd, open_pidfd, process_key, process_uids

from .conftest import Stranger
from .programs import BINARY, lives, lying_daemon, mpstui, roots_process

BECOMES_ROOTS = """
import os, signal, sys, time
def change(*_):
    os.execv(sys.argv[1], ["cut", "-d", ",", "-f", "1"])
signal.signal(signal.SIGTERM, change)
print("ready", flush=True)
while True: time.sleep(600)
"""


@pytest.mark.slow
def test_a_process_that_becomes_roots_after_sigterm_is_not_killed(stranger: Stranger) -> None:
    """It runs a setuid program from then on, with the PID and the start time that it had."""
    cut = shutil.which("cut")
    assert cut is not None
    program = stranger.home / "setuid"
    shutil.copy(cut, program)
    os.chown(program, 0, 0)
    program.chmod(0o4755)
    his = stranger.start_python(BECOMES_ROOTS, program, stdin=subprocess.PIPE)
    assert his.stdout is not None
    assert his.stdout.readline() == "ready\n"
    lying_daemon(stranger, stranger.home / "p", clients=[his.pid])
    done = mpstui("terminate", str(his.pid), "--kill", "--yes", "--pipe-dir", stranger.home / "p")
    assert process_uids(his.pid) == {0, stranger.uid}, "it took SIGTERM for that"
    assert done.returncode == 6, done.stderr
    assert "the process lives" in done.stderr
    assert lives(his)


SWAPS = {
    "his own": "os.rename(pipe + '/control', pipe + '/x'); s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET); "
    "s.bind(pipe + '/control')",
    "there and back": "os.rename(pipe + '/control', pipe + '/x'); os.rename(pipe + '/x', pipe + '/control')",
    "one for the other": "os.rename(pipe + '/control', pipe + '/x'); "
    "os.rename(pipe + '/control_privileged', pipe + '/control'); os.rename(pipe + '/x', pipe + '/control_privileged')",
    "a link": "os.rename(pipe + '/control', pipe + '/x'); os.symlink(pipe + '/x', pipe + '/control')",
}


@pytest.mark.parametrize("swap", SWAPS.values(), ids=SWAPS)
async def test_a_socket_that_is_exchanged_before_the_signal_ends_nobody(
    stranger: Stranger, roots: Stranger, swap: str
) -> None:
    """Root's daemon has made its directory itself, open to everybody; whoever answered is not known any more."""
    pipe_dir: Path = roots.home / "p"
    with roots_process() as victim:
        lying_daemon(roots, pipe_dir, clients=[victim.pid], mode=0o777)
        guards = [await Guard.begin(pipe_dir, find_speaker, has_servers_there=each) for each in (False, True)]
        assert [guard.speaker.uid for guard in guards] == [0, 0]
        key = process_key(victim.pid)
        assert key is not None
        opened = open_pidfd(key)
        assert isinstance(opened, PidFd)
        with opened as process:
            assert [guard(process) for guard in guards] == [None, None]
            stranger.python(f"import os, socket, sys; pipe = sys.argv[1]; {swap}", pipe_dir)
            for guard in guards:
                said = guard(process)
                assert said is not None
                assert "the daemon's directory has changed" in said
            assert lives(victim)


@pytest.fixture
def production(roots: Stranger) -> Iterator[SimNode]:
    """Root's daemon with another user's client."""
    with SimNode.start(roots.home / "production", gpus=1) as node:
        node.spawn("busy", user="alice")
        yield node


async def goes_on(node: SimNode) -> bool:
    control = MpsControl(ControlChannel(node.pipe_dir, (str(BINARY),)))
    (server,) = (await control.get_server_list()).value or (0,)
    percentage = (await control.get_default_active_thread_percentage()).value
    return percentage == 100.0 and len((await control.get_client_list(server)).value or ()) == 1


async def test_a_strangers_directory_does_not_lead_root_to_the_daemon_that_all_use(
    stranger: Stranger, production: SimNode, tmp_path: Path
) -> None:
    """He sees which question is the last one; then the name that root has typed is that of another daemon."""
    lying_daemon(stranger, stranger.home / "p", clients=[], leads_to=str(production.pipe_dir))
    log = tmp_path / "audit.log"
    where = ("--pipe-dir", stranger.home / "p")
    done = mpstui("daemon", "stop", "--yes", "--timeout", "1", *where, MPSTUI_AUDIT_LOG=str(log))
    assert (stranger.home / "p").is_symlink(), "it was not led away in time"
    assert done.returncode == 5, done
    assert "Nothing was sent: the owner of the daemon in" in done.stdout + done.stderr
    last = json.loads(log.read_text().splitlines()[-1])
    assert (last["action"], last["status"], last["sent"]) == ("stop_daemon", 5, False)
    assert await goes_on(production)


@pytest.mark.parametrize("way", ["directory", "socket"])
async def test_a_command_has_the_rights_of_who_can_lead_it_elsewhere(
    stranger: Stranger, production: SimNode, way: str
) -> None:
    """Between the look at whose directory it is and the connection."""
    (server,) = (each["pid"] for each in production.state()["servers"])

    def his_directory(name: str) -> Path:
        folder: Path = stranger.home / name
        folder.mkdir()
        for path in (folder / "control", folder / "control_privileged"):
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as bound:
                bound.bind(str(path))
            os.chown(path, stranger.uid, stranger.uid)
        os.chown(folder, stranger.uid, stranger.uid)
        return folder

    def looked_at(path: Path) -> Speaker:
        found = find_speaker(path)
        if found.uid == stranger.uid:
            for place in (path,) if way == "directory" else (path / "control", path / "control_privileged"):
                place.rename(place.with_suffix(".old"))
                place.symlink_to(production.pipe_dir if place == path else production.pipe_dir / place.name)
        return found

    async def sent(name: str, ask: Callable[[Commands], Awaitable[Answer[Any]]]) -> None:
        control = Commands(ControlChannel(his_directory(name), (str(BINARY),), speaker=looked_at))
        answer = await ask(control)
        assert answer.outcome is Outcome.NOT_PERMITTED, (name, answer)
        if name != "quit":  # behind a quit its answer may be lost, and it is asked again (fact 30)
            assert f"with the rights of user {stranger.uid}" in answer.message

    await sent("set", lambda control: control.set_default_active_thread_percentage(10))
    await sent("shutdown", lambda control: control.shutdown_server(server, force=True))
    await sent("quit", lambda control: control.quit(1))
    assert await goes_on(production)


SECRETLY = (
    "import os, sys; pipe, other = sys.argv[1:]\n"
    "for n in ('control', 'control_privileged'):\n"
    "  os.rename(f'{pipe}/{n}', f'{pipe}/{n}.x'); "
)


class Exchange:
    """A daemon of root's that has made its directory itself, open to everybody, and a stranger who once puts the
    sockets of another one there: when it is looked at, or whenever ``attack`` is called."""

    def __init__(self, stranger: Stranger, roots: Stranger, exchange: str, when: str) -> None:
        self.pipe_dir, self.other = roots.home / "p", roots.home / "other"
        self.done = False
        self._stranger, self._how, self._early = stranger, SECRETLY + exchange, when == "before it is held"
        for place in (self.pipe_dir, self.other):
            lying_daemon(roots, place, clients=[], mode=0o777)

    def attack(self) -> None:
        if not self.done:
            self._stranger.python(self._how, self.pipe_dir, self.other)
            self.done = True

    def looked_at(self, path: Path) -> Speaker:
        found = find_speaker(path)
        if self._early:
            self.attack()
        return found


@pytest.fixture(params=["before it is held", "before it connects"])
def when(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(
    params=["os.symlink(f'{other}/{n}', f'{pipe}/{n}')", "os.rename(f'{other}/{n}', f'{pipe}/{n}')"],
    ids=["a link", "another daemon's own"],
)
def exchange(stranger: Stranger, roots: Stranger, when: str, request: pytest.FixtureRequest) -> Exchange:
    return Exchange(stranger, roots, request.param, when)


async def test_a_command_goes_to_the_socket_that_was_looked_at(
    exchange: Exchange, when: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever puts another daemon's socket there, in the moment between the look and the connection, leads no command
    to that one."""
    pipe_dir, other = exchange.pipe_dir, exchange.other
    run = channel.exchange

    async def late(*args: Any, **more: Any) -> RawReply:
        exchange.attack()
        return await run(*args, **more)

    monkeypatch.setattr(channel, "exchange", late)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    control = MpsControl(ControlChannel(pipe_dir, (str(BINARY),), speaker=exchange.looked_at))
    answer = await control.start_server(0)
    assert exchange.done
    there, elsewhere = (
        [line for place in places if place.exists() for line in place.read_text().splitlines()]
        for places in ([pipe_dir / "heard"], [other / "heard"])
    )
    assert not [line for line in elsewhere if line.startswith("start_server")]
    if when == "before it is held":
        assert answer.outcome is Outcome.NOT_PERMITTED
        assert "were exchanged just now" in answer.message
        assert there == []
    else:
        assert "start_server -uid 0" in there, answer
    assert os.listdir(tmp_path) == [], "nothing is left of it"


def test_the_socket_of_protocol_3_alone_tells_whose_a_daemon_is(stranger: Stranger, roots: Stranger) -> None:
    """Of that protocol no privileged one is documented; root could change nothing there otherwise."""
    for folder, uid in ((stranger.home / "p", stranger.uid), (roots.home / "p", 0)):
        folder.mkdir()
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as bound:
            bound.bind(str(folder / "control"))
        for path in (folder, folder / "control"):
            os.chown(path, uid, uid)
        assert find_speaker(folder).uid == uid
    (stranger.home / "p" / "control_privileged").symlink_to(roots.home / "p" / "control")
    assert find_speaker(stranger.home / "p").uid is None
    os.chown(stranger.home / "p" / "control_privileged", stranger.uid, stranger.uid, follow_symlinks=False)
    assert find_speaker(stranger.home / "p").uid is None


async def test_what_is_sent_with_anothers_rights_has_nothing_of_roots(
    stranger: Stranger, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SECRET", "of root's")
    monkeypatch.chdir(tmp_path)
    told = stranger.home / "told"
    script = stranger.home / "binary"
    script.write_text(f"#!/bin/sh\n{{ id -u; id -G; pwd; env; }} > {told}\necho 100.0; echo 100.0\n")
    script.chmod(0o755)
    one = ControlChannel(stranger.home / "p", (str(script),), speaker=lambda _: Speaker(stranger.uid, "his"))
    before = os.getgroups()
    os.setgroups([0, 4])  # as those of a root who has logged in
    try:
        assert (await Commands(one).set_default_active_thread_percentage(100)).ok
    finally:
        os.setgroups(before)
    uid, groups, folder, *variables = told.read_text().splitlines()
    assert (uid, groups, folder) == (str(stranger.uid), "65534", "/")
    names = {line.partition("=")[0] for line in variables}
    assert names - {"PWD", "SHLVL", "_", "OLDPWD"} <= {"PATH", "LC_ALL"} | {
        n for n in names if n.startswith("CUDA_MPS_")
    }
    assert "0" not in groups.split()


def test_a_link_that_is_none_any_more_when_it_is_read_is_no_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Another user exchanges it for a directory all the time: whatever looked at his socket or his daemon ended."""
    (tmp_path / "p").symlink_to("/tmp")

    def exchanged(*_: object, **__: object) -> str:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))

    monkeypatch.setattr(os, "readlink", exchanged)
    assert real_path(tmp_path / "p" / "control") == str(tmp_path / "p" / "control")


def test_a_directory_that_is_changed_all_the_time_is_nobodys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Root's own, open to all: between the look and the command a socket there became a link to another daemon's."""
    now = time.time_ns()
    monkeypatch.setattr(discovery, "_PAUSE", 0.0)
    monkeypatch.setattr(discovery.time, "time", lambda: now / 1e9)
    changing = Speaker(0, "root's daemon", (1, 2, now, now))
    assert steady_speaker(Path("/p"), lambda path: changing).uid is None
    quiet = Speaker(0, "root's daemon", (1, 2, now - 10**10, now - 10**10))
    answers = iter((changing, changing, quiet))
    assert steady_speaker(Path("/p"), lambda path: next(answers)) is quiet


CLIENT = """
import json, os, socket, sys
order = json.loads(sys.stdin.readline())
with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as daemon:
    daemon.connect(os.environ["CUDA_MPS_PIPE_DIRECTORY"] + "/control")
    daemon.send(b"Xnew client")
    daemon.recv(9)
print(json.dumps({"type": "ready", "mps": True}), flush=True)
sys.stdin.readline()
print(json.dumps({"type": "end"}), flush=True)
"""


async def test_a_client_of_a_load_comes_to_the_socket_that_was_looked_at(
    exchange: Exchange, when: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CUDA takes a path alone, and who exchanges what is behind it had a client of root's, with its contexts."""
    pipe_dir, other = exchange.pipe_dir, exchange.other
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    supervisor = Supervisor(worker_command=(sys.executable, "-c", CLIENT), speaker=exchange.looked_at)
    supervisor.why_not = exchange.attack
    await supervisor.start(LoadSpec("fma", pipe_dir=pipe_dir))
    await supervisor.wait_settled([1])
    await supervisor.stop()
    assert exchange.done
    there, elsewhere = (_clients_of(each) for each in (pipe_dir, other))
    assert elsewhere == 0
    if when == "before it is held":
        error = supervisor.report(1).error
        assert error is not None
        assert "were exchanged just now" in error.text
        assert there == 0
    else:
        assert there == 1
    assert os.listdir(tmp_path) == [], "nothing is left of it"


def _clients_of(pipe_dir: Path) -> int:
    """How many have come to that daemon; whoever looks at all daemons of the machine asks it, too."""
    heard = pipe_dir / "heard"
    return heard.read_text().splitlines().count("new client") if heard.exists() else 0


@pytest.mark.parametrize(("mode", "answer"), [(0o777, 6), (0o1777, 0), (0o755, 0)])
def test_a_program_wants_a_yes_where_others_can_lead_it_elsewhere(roots: Stranger, mode: int, answer: int) -> None:
    """It finds the daemon by name, as do the processes that it starts, which inherit no descriptor."""
    lying_daemon(roots, roots.home / "p", clients=[], mode=mode)
    words = ("load", "--command", "true", "--pipe-dir", roots.home / "p")
    done = mpstui(*words)
    assert done.returncode == answer, done
    if answer:
        assert "so they can make the program connect to a daemon of their own" in done.stderr
        assert "chmod 755" in done.stderr
        assert mpstui(*words, "--yes").returncode == 0
