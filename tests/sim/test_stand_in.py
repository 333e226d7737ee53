"""What the tests have in place of the stand-in's Python says and hears the same as that, whatever the daemon does."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import stand_in

from mpstui.sim.marker import control_binary

SCRIPT = control_binary()[-1]
MADE = stand_in.made()
OTHER = b"\x80 \xff\n"
Said = list[bytes]
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: it is told by its user ID")
pytestmark = pytest.mark.skipif(not MADE, reason="no C compiler here")


@pytest.fixture(scope="module")
def places() -> Iterator[dict[str, Path]]:
    """Pipe directories of daemons of protocol 2 and 3, by what the marker says."""
    with tempfile.TemporaryDirectory(prefix="mps", dir="/tmp") as folder:
        found = {}
        for name, driver in (("580", "580.95.05"), ("614", "614.1"), ("615", "615.71"), ("1000", "1000.1")):
            found[name] = Path(folder, name)
            found[name].mkdir()
            found[name].joinpath("mpstui-simulated").write_text(json.dumps({"gpus": [{"driver": driver}]}, indent=1))
        found["none"] = Path(folder, "none")
        yield found


class Daemon:
    """Answers packet by packet with what it was given, then closes; an empty list says nothing to that packet."""

    def __init__(self, place: Path, answers: list[Said], *, name: str = "control_privileged") -> None:
        self.heard: list[bytes] = []
        self._path = place / name
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listener.bind(os.fspath(self._path))
        self._listener.listen()
        self._answers = answers
        self._thread = threading.Thread(target=self._serve)

    def _serve(self) -> None:
        connection, _ = self._listener.accept()
        with connection, contextlib.suppress(OSError):  # gone, and not all was read
            for answer in self._answers:
                if not (packet := connection.recv(1 << 18)):
                    return
                self.heard.append(packet)
                for part in answer:
                    connection.send(part)
            connection.shutdown(socket.SHUT_WR)
            while packet := connection.recv(1 << 18):
                self.heard.append(packet)

    def __enter__(self) -> Daemon:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as last:  # to one that nobody came to
            last.connect(os.fspath(self._path))
        self._thread.join()
        self._listener.close()
        self._path.unlink()


def outcome(
    python: str,
    place: Path,
    words: list[str],
    stdin: bytes,
    answers: list[Said],
    *,
    name: str = "control",
    uid: str = "4711",
) -> tuple[object, ...]:
    environment = {"CUDA_MPS_PIPE_DIRECTORY": os.fspath(place), "MPSTUI_SIM_UID": uid}
    command = [python, "-I", "-S", SCRIPT, *words]
    with Daemon(place, answers, name=name) as daemon:
        done = subprocess.run(command, input=stdin, capture_output=True, env=environment, timeout=120)
    return done.returncode, done.stdout, done.stderr, daemon.heard


UP: Said = [b"+"]
SESSIONS: dict[str, tuple[bytes, list[Said]]] = {
    "nothing is asked": (b"", [UP]),
    "one": (b"ps\n", [UP, [b"Da", b"D b\n", b"E"]]),
    "without an end": (b"a\nb", [UP, [b"D1\n", b"E"], [b"D2\n", b"E"]]),
    "empty lines": (b"\n\na\n", [UP, [b"E"], [b"D\n", b"E"], [b"D" + OTHER, b"E"]]),
    "bytes": (OTHER + b"\0x\n", [UP, [b"E"], [b"D\0" + OTHER, b"E"]]),
    "a long line": (b"x" * 5000 + b"\nps\n", [UP, [b"E"], [b"D" * 60000, b"E"]]),
    "a longer one": (b"x" * 70000 + b"\nps", [UP, [b"E"], [b"D" + b"y" * 65535, b"D" * 70, b"E"]]),
    "refused": (b"ps\n", [[b"-"]]),
    "refused at once": (b"ps\n", [[b"!"]]),
    "refused, and nothing asked": (b"", [[b"!"]]),
    "another word": (b"ps\n", [[b"?"]]),
    "it ends at once": (b"ps\n", [[]]),
    "it ends before an answer": (b"a\nb\n", [UP, [b"D1\n", b"E"], []]),
    "it ends in an answer": (b"a\nb\n", [UP, [b"D1\n", b"E"], [b"D2"]]),
    "quit": (b"a\nquit\n", [UP, [b"D1\n", b"E"], [b"Q"]]),
    "it ends behind the last": (b"a\n", [UP, [b"D1\n", b"E"]]),
}


@pytest.mark.parametrize("name", ["control", "control_privileged"])
@pytest.mark.parametrize("case", SESSIONS)
def test_a_session(case: str, name: str, places: dict[str, Path]) -> None:
    stdin, answers = SESSIONS[case]
    told = [outcome(python, places["580"], [], stdin, answers, name=name) for python in (sys.executable, MADE)]
    assert told[0] == told[1]
    assert outcome(MADE, places["580"], ["--simulated-driver=535.1"], stdin, answers, name=name) == told[0]


@pytest.mark.parametrize("uid", ["0", pytest.param("", marks=needs_root)])
@pytest.mark.parametrize(("name", "status"), [("control", 1), ("control_privileged", 0)])
def test_root_comes_to_the_privileged_socket_alone(name: str, status: int, uid: str, places: dict[str, Path]) -> None:
    """Fact 59. It came to the other one too, as no control binary does."""
    up = [[b"+"], [b"Da", b"E"]]
    told = [outcome(python, places["580"], [], b"ps\n", up, name=name, uid=uid) for python in (sys.executable, MADE)]
    assert told[0] == told[1]
    assert (told[0][0], bool(told[0][3])) == (status, status == 0)


CALLS: dict[str, list[Said]] = {
    "an answer": [[b"Oone\n", b"O" + OTHER, b"S0"]],
    "an error": [[b"Xno\n", b"Osome", b"S1"]],
    "a status": [[b"S255"]],
    "it ends": [[b"Oone"]],
    "it ends at once": [[]],
}


@pytest.mark.parametrize("case", CALLS)
def test_a_question(case: str, places: dict[str, Path]) -> None:
    words = ["--simulated-driver=615.71", "server", "list", "--format=ÿ json"]
    told = [outcome(python, places["615"], words, b"", CALLS[case]) for python in (sys.executable, MADE)]
    assert told[0] == told[1]
    assert told[0][3] == [b"V3 4711\0server\0list\0--format=\xc3\xbf json"]


@pytest.mark.parametrize("place", ["580", "614", "615", "1000"])
@pytest.mark.parametrize("words", [["client", "list"], ["clients"], ["-h"], ["-v"], ["--nonsense"]])
def test_which_words_are_a_question(words: list[str], place: str, places: dict[str, Path]) -> None:
    """Of the two, each asks the daemon where the other does; all else than a question is the same program."""
    told = [outcome(python, places[place], words, b"", [[b"Oyes\n", b"S3"]]) for python in (sys.executable, MADE)]
    assert told[0] == told[1]


def test_without_a_daemon(places: dict[str, Path]) -> None:
    for words in ([], ["server", "list"]):
        for place in (places["none"], places["615"], Path("/tmp", "x" * 120)):
            told = []
            for python in (sys.executable, MADE):
                environment = {"CUDA_MPS_PIPE_DIRECTORY": os.fspath(place)}
                done = subprocess.run(
                    [python, "-I", "-S", SCRIPT, *words], input=b"ps\n", capture_output=True, env=environment
                )
                told.append((done.returncode, done.stdout, done.stderr))
            assert told[0] == told[1]


def test_at_a_terminal_each_answer_is_shown_at_once(places: dict[str, Path]) -> None:
    for python in (sys.executable, MADE):
        ours, theirs = pty.openpty()
        environment = {"CUDA_MPS_PIPE_DIRECTORY": os.fspath(places["580"])}
        command = [python, "-I", "-S", SCRIPT]
        with (
            Daemon(places["580"], [UP, [b"Done\n", b"E"], [b"Q"]]),
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=theirs, env=environment) as running,
        ):
            os.close(theirs)
            assert running.stdin is not None
            running.stdin.write(b"ps\n")
            running.stdin.flush()
            assert os.read(ours, 100) == b"one\r\n"
            assert Path(f"/proc/{running.pid}/comm").read_text() == "nvidia-cuda-mps\n"
            running.stdin.write(b"quit\n")
            running.stdin.close()
            assert running.wait(120) == 0
            os.close(ours)


@pytest.mark.parametrize("number", ["SIGINT", "SIGTERM"])
def test_a_signal_ends_it(number: str, places: dict[str, Path]) -> None:
    told = []
    for python in (sys.executable, MADE):
        environment = {"CUDA_MPS_PIPE_DIRECTORY": os.fspath(places["580"])}
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        with (
            Daemon(places["580"], [UP, []]) as daemon,
            subprocess.Popen([python, "-I", "-S", SCRIPT], env=environment, **pipes) as running,
        ):
            while not daemon.heard:
                assert running.poll() is None
            while running.poll() is None:  # one that comes just before Python waits is seen only with the next one
                running.send_signal(getattr(signal, number))
                with contextlib.suppress(subprocess.TimeoutExpired):
                    running.wait(10)
            told.append((running.returncode, running.stdout.read(), running.stderr.read()))
    assert told[0] == told[1]


def test_whoever_does_not_listen_hears_nothing(places: dict[str, Path]) -> None:
    told = []
    for python in (sys.executable, MADE):
        environment = {"CUDA_MPS_PIPE_DIRECTORY": os.fspath(places["580"])}
        reader, writer = os.pipe()
        os.close(reader)
        with Daemon(places["580"], [UP, [b"Done\n", b"E"]]):
            done = subprocess.run(
                [python, "-I", "-S", SCRIPT], input=b"ps\n", stdout=writer, stderr=subprocess.PIPE, env=environment
            )
        os.close(writer)
        told.append((done.returncode, done.stderr))
    assert told[0] == told[1] == (1, b"")
