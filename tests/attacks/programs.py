"""Programs that attackers run: a daemon that says what it likes, and real processes that are to be its victims."""

from __future__ import annotations

import atexit
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import warm

from mpstui.observe import discovery
from mpstui.system import own
from mpstui.system.procfs import process_key

from .conftest import Stranger

ROOT = Path(__file__).resolve().parents[2]


def _for_all(program: Path) -> Path:
    """Root runs it with the rights of others too: a copy of it where they cannot come to the checkout."""
    if all(folder.stat().st_mode & 0o001 for folder in program.parents):
        return program
    folder = Path(tempfile.mkdtemp(prefix="mpstui-binary-", dir="/tmp"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    folder.chmod(0o755)
    return Path(shutil.copy(program, folder))


BINARY = _for_all(ROOT / "mpstui" / "sim" / "bin" / "nvidia-cuda-mps-control")

LIAR = r"""
import fcntl, json, os, select, socket, sys
pipe, spec = sys.argv[2], json.loads(sys.argv[3])
os.makedirs(pipe, exist_ok=True)
lock = open(os.path.join(pipe, "control_lock"), "w")
if spec.get("lock", True):
    fcntl.lockf(lock, fcntl.LOCK_EX)
server, clients, ns = spec["server"], spec["clients"], spec.get("namespace") or os.stat("/proc/self/ns/pid").st_ino
rows = "PID ID SERVER DEVICE NAMESPACE COMMAND\n" + "".join(
    f"{c} {i} {server} GPU-0 {ns} ./train\n" for i, c in enumerate(clients, 1))
def answer(words):
    command = words[0]
    if command == "get_default_active_thread_percentage": return "100.0\n"
    if command == "get_server_list": return f"{server}\n"
    if command == "get_server_status": return spec.get("status", "ACTIVE") + "\n"
    if command == "get_client_list": return "".join(f"{c}\n" for c in clients)
    if command == "ps": return rows if spec.get("ps", True) else 'Unknown command "ps"\n'
    if command == "get_active_thread_percentage": return "100.0\n"
    if command == "get_default_client_priority": return "0\n"
    if command == "terminate_client": return "0\n"
    return ""
def lead_away(words):
    if words[0] == "get_default_client_priority" and "leads_to" in spec and not os.path.islink(pipe):
        os.rename(pipe, pipe + ".old"); os.symlink(spec["leads_to"], pipe)
listeners = []
for name in ("control_privileged", "control"):
    path = os.path.join(pipe, name)
    if os.path.lexists(path): os.unlink(path)
    s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    s.bind(path); os.chmod(path, 0o666 if name == "control" else 0o755); s.listen(64); listeners.append(s)
if spec.get("mode", 0o755): os.chmod(pipe, spec.get("mode", 0o755))
print("ready", flush=True)
open_ = list(listeners)
while True:
    for s in select.select(open_, [], [])[0]:
        if s in listeners:
            open_.append(s.accept()[0]); continue
        try: data = s.recv(1 << 16)
        except OSError: data = b""
        if not data:
            open_.remove(s); s.close(); continue
        if spec.get("deaf") or os.path.exists(os.path.join(pipe, "deaf")): continue
        if data.startswith(b"UI"): s.send(b"+"); continue
        with open(os.path.join(pipe, "heard"), "a") as heard: heard.write(data[1:].decode() + "\n")
        lead_away(data[1:].decode().split())
        text = answer(data[1:].decode().split()).encode()
        for start in range(0, len(text), 1 << 14): s.send(b"D" + text[start:start + (1 << 14)])
        s.send(b"E")
"""


def lying_daemon(who: Stranger, pipe_dir: Path, **spec: Any) -> subprocess.Popen[str]:
    """A program of that user which calls itself a control daemon and answers by ``spec``: ``server``, ``clients`` and,
    if wanted, ``namespace``, ``status``, ``ps``, ``deaf``, ``lock``, ``mode`` (0: its directory's is left as it is),
    ``logs``, ``called``, another name for it, and ``leads_to``, where a link in its directory's place leads once the
    last question was asked. Runs when this returns, and falls silent when its
    user makes a file ``deaf`` in its pipe directory."""
    program = who.home / spec.pop("called", "nvidia-cuda-mps-control")
    program.write_text(LIAR)
    spec = {"server": os.getpid(), **spec}
    env = {"CUDA_MPS_PIPE_DIRECTORY": str(pipe_dir), "CUDA_MPS_LOG_DIRECTORY": str(spec.pop("logs", who.home / "logs"))}
    process = who.start(who.interpreter, program, "-d", pipe_dir, json.dumps(spec), env=env)
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line == "ready\n", line + process.stdout.read()
    return process


USURPS = {
    "a socket of his own": """
import os, socket, sys
os.rename(sys.argv[1] + "/control", sys.argv[1] + "/c2")
own = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
own.bind(sys.argv[1] + "/control")
own.listen(5)
""",
    "a file": """
import os, sys
os.rename(sys.argv[1] + "/control", sys.argv[1] + "/c2")
open(sys.argv[1] + "/control", "w").close()
""",
    "all that is there": """
import fcntl, os, socket, sys
for name in os.listdir(sys.argv[1]):
    os.rename(sys.argv[1] + "/" + name, sys.argv[1] + "/x" + name)
lock = open(sys.argv[1] + "/control_lock", "w")
fcntl.lockf(lock, fcntl.LOCK_EX)
own = [socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) for name in range(2)]
for each, name in zip(own, ("/control", "/control_privileged")):
    each.bind(sys.argv[1] + name)
    each.listen(5)
""",
}


def usurped(roots: Stranger, stranger: Stranger, pipe_dir: Path, how: str) -> subprocess.Popen[str]:
    """A daemon of root's, in a directory as it makes it, where that stranger has put something in its sockets' place
    (``USURPS``)."""
    pipe_dir.mkdir()
    pipe_dir.chmod(0o777)
    daemon = lying_daemon(roots, pipe_dir, clients=[], mode=0o777)
    usurper = stranger.start_python(
        USURPS[how] + "print('ready', flush=True)\nsys.stdin.read()", pipe_dir, stdin=subprocess.PIPE
    )
    assert usurper.stdout is not None
    assert usurper.stdout.readline() == "ready\n"
    return daemon


def posing(
    who: Stranger, source: str, folder: Path, pipe_dir: str | Path, *, words: Sequence[str] = (), **more: Any
) -> subprocess.Popen[str]:
    """A program of that user, kept in ``folder``, which has a control daemon's name and names that directory, with
    these ``words`` behind ``-d``. It has written ``ready`` when this returns; what it reads is held open until the test
    ends."""
    folder.mkdir(exist_ok=True)
    program = folder / "nvidia-cuda-mps-control"
    program.write_text(source)
    env = {"CUDA_MPS_PIPE_DIRECTORY": os.fspath(pipe_dir)}
    process = who.start(who.interpreter, "-I", "-S", program, "-d", *words, env=env, stdin=subprocess.PIPE, **more)
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line == "ready\n", line + process.stdout.read()
    return process


@contextmanager
def roots_process(source: str = "") -> Iterator[subprocess.Popen[str]]:
    """A process of this user (root, where the tests of strangers run) that waits; ``source`` is run before."""
    code = f"import os, sys\n{source}\nprint('ready', flush=True)\nsys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            yield process
        finally:
            process.kill()


def alone(monkeypatch: pytest.MonkeyPatch, *whose: Stranger) -> None:
    """Of the machine's daemons only those in these users' homes are found: many others would leave no room for those
    without a daemon, and one of root's that is blocked is what the status of all is."""
    every, homes = discovery.running_daemons, tuple(str(each.home) for each in whose)
    monkeypatch.setattr(
        discovery, "running_daemons", lambda: [each for each in every() if str(each.pipe_dir).startswith(homes)]
    )
    monkeypatch.setitem(discovery.discover.__kwdefaults__, "well_known", ())
    monkeypatch.delenv("CUDA_MPS_PIPE_DIRECTORY", raising=False)


def mpstui(*args: str | Path, timeout: float = 600, **env: str) -> subprocess.CompletedProcess[str]:
    """The program itself, as this user; the control binary speaks to simulated and lying daemons alike."""
    return warm.run(*args, cwd=ROOT, env={**os.environ, "MPSTUI_CONTROL_BINARY": str(BINARY), **env}, timeout=timeout)


def lives(process: subprocess.Popen[str]) -> bool:
    return process.poll() is None and process_key(process.pid) is not None


def short_deadline_for(monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    """What is at this path in PATH has a moment to answer, and all else as long as a slow machine takes."""

    class Look(own._Look):
        def __init__(self, look: partial[str]) -> None:
            self.short = look.args[0] == path
            super().__init__(look)

        def wait(self) -> None:
            with monkeypatch.context() as patched:
                patched.setattr(own, "_ANSWERS", 0.05 if self.short else 300.0)
                super().wait()

    monkeypatch.setattr(own, "_Look", Look)
    monkeypatch.setattr(own, "_looks", {})
