"""``mpstui`` in a process of its own that need not import it first: it is forked from one that has done so.

Most of what such a process costs is the import of the program, and the suite starts over a thousand. One process of
each test run, the store, has imported the command line and waits; what is asked of it is done by a child of its that
has a PID, a command line, an environment, a folder, streams, signals and an exit status of its own, and shares no
memory with anybody. Not as in any other process: the parent's PID, /proc/PID/environ, and when modules are imported.
What is about these is started with :mod:`subprocess`.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import gc
import importlib
import io
import os
import pickle
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, NoReturn

_OF_PYTHON = ("PYTHON", "LC_", "LANG")
"""Variables that Python reads when it starts."""
_ROOM = 2048
"""Bytes for the command line that a child shows; empty words follow it where the kernel lets nobody shorten it."""
_NEVER = ("MPSTUI_", "CUDA_")
_IMPORTED = (
    "api", "config", "cli", "cli.apply", "cli.change", "cli.daemon", "cli.doctor", "cli.events", "cli.load",
    "cli.partition", "cli.plan", "cli.profile", "cli.schema", "cli.shares", "cli.status", "cli.why", "history.node",
    "observe.watcher", "operations.runner", "sim.demo", "sim.sources",
)  # fmt: skip
"""What commands import that are run often."""


class Popen(subprocess.Popen[Any]):
    """``subprocess.Popen`` of ``python -m mpstui`` with these words."""

    def __init__(self, words: Any, **options: Any) -> None:
        environment = options["env"] = {**(os.environ if options.get("env") is None else options["env"])}
        assert _of_python(environment) == _of_python(os.environ), "Python itself is to start otherwise: not from here"
        assert options.keys() <= {"env", "cwd", "stdin", "stdout", "stderr", "text", "bufsize"}
        super().__init__([sys.executable, "-m", "mpstui", *map(str, words)], **options)

    def _execute_child(self, args: Any, *rest: Any) -> None:
        cwd, env, pipes = rest[4], rest[5], rest[9:15]
        streams = [number if end == -1 else end for number, end in enumerate((pipes[0], pipes[3], pipes[5]))]
        self._said, reply = os.pipe()
        order = os.memfd_create("order")
        try:
            os.write(order, pickle.dumps((args, env, os.fspath(cwd or os.getcwd()))))
            socket.send_fds(_door(), [b"!"], [order, reply, *streams])
        finally:
            os.close(order)
            os.close(reply)
        self._close_pipe_fds(*pipes)  # type: ignore[attr-defined]
        self.pid = int.from_bytes(os.read(self._said, 4), "little")
        assert self.pid, "the store has ended"
        self._child_created = True

    def _try_wait(self, wait_flags: int) -> tuple[int, int]:
        if wait_flags & os.WNOHANG and not select.select([self._said], [], [], 0)[0]:
            return 0, 0
        word = os.read(self._said, 4)
        os.close(self._said)
        assert word, "the store has ended"
        return self.pid, int.from_bytes(word, "little")

    def _internal_poll(self, *_: Any, **__: Any) -> int | None:
        if self.returncode is None:
            pid, status = self._try_wait(os.WNOHANG)
            if pid:
                self._handle_exitstatus(status)  # type: ignore[attr-defined]
        return self.returncode


def run(*words: object, timeout: float = 600, **options: Any) -> subprocess.CompletedProcess[Any]:
    """``subprocess.run`` of it, with its output as text unless ``options`` say otherwise; nothing on standard input.

    Where Python is to start in another way, by its variables or those of the language, a process does start.
    """
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    options = {**pipes, **options}
    if _of_python(options.get("env") or os.environ) != _of_python(os.environ):
        command = [sys.executable, "-m", "mpstui", *map(str, words)]
        return subprocess.run(command, timeout=timeout, check=False, **options)
    with Popen(words, **options) as process:
        try:
            out, err = process.communicate(timeout=timeout)
        except BaseException:
            process.kill()
            raise
        return subprocess.CompletedProcess(process.args, process.wait(), out, err)


def _of_python(environment: Any) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name.startswith(_OF_PYTHON)}


_one = threading.Lock()


def _door() -> socket.socket:
    """That of this process's store."""
    with _one:  # two threads would start two
        return _store()


@functools.cache
def _store() -> socket.socket:
    """Starts a store, which ends with this process."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    number = str(theirs.fileno())
    environment = {name: value for name, value in os.environ.items() if not name.startswith(_NEVER)}
    # A process can show a command line that is no longer than the one it was started with.
    command = [sys.executable, os.path.abspath(__file__), number, "-" * _ROOM]
    subprocess.Popen(command, pass_fds=(theirs.fileno(),), env=environment, start_new_session=True)
    theirs.close()
    return ours


def _keep(door: socket.socket) -> NoReturn:
    """The store. Ends where nobody can ask any more."""
    poll = select.poll()
    poll.register(door, select.POLLIN)
    running: dict[int, tuple[int, int]] = {}
    while True:
        for ready, _ in poll.poll():
            if ready != door.fileno():
                pid, reply = running.pop(ready)
                poll.unregister(ready)
                _tell(reply, os.waitpid(pid, 0)[1])
                os.close(ready)
                os.close(reply)
                continue
            said, descriptors, _, _ = socket.recv_fds(door, 1, 5)
            if not said:
                os._exit(0)
            order, reply, *streams = descriptors
            pid = os.fork()
            if pid == 0:
                _become(*pickle.loads(os.pread(order, 1 << 24, 0)), streams, reply)
            for descriptor in (order, *streams):
                os.close(descriptor)
            watched = os.pidfd_open(pid)
            poll.register(watched, select.POLLIN)
            running[watched] = (pid, reply)


def _compile() -> None:
    """What ``mpstui.core.late`` puts off until it is used would be made by each child anew."""
    modules = [module for name, module in [*sys.modules.items()] if name.startswith("mpstui.")]
    for kind in {kind for module in modules for kind in vars(module).values() if isinstance(kind, type)}:
        for name in ("__init__", "__eq__", "__hash__"):
            if getattr(vars(kind).get(name), "__module__", None) == "mpstui.core.late":
                with contextlib.suppress(AttributeError, TypeError):
                    getattr(kind, name)(None, *[None] * (name == "__eq__"))  # compiled, then of no use for None


def _tell(reply: int, number: int) -> None:
    try:
        os.write(reply, number.to_bytes(4, "little"))
    except BrokenPipeError:
        return


def _become(argv: list[str], environment: dict[str, str], folder: str, streams: list[int], reply: int) -> NoReturn:
    """Be ``argv`` from now on."""
    from mpstui.__main__ import main
    from mpstui.sim.simd.process import rename

    for number, stream in enumerate(streams):
        os.dup2(stream, number)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    time.tzset()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    rename([os.fsencode(word) for word in argv])
    sys.argv = [os.fspath(Path(sys.modules[main.__module__].__file__ or "")), *argv[3:]]
    for name, number, mode in (("stdin", 0, "rb"), ("stdout", 1, "wb"), ("stderr", 2, "wb")):
        was: Any = getattr(sys, name)
        more = {"line_buffering": name == "stderr" or os.isatty(number), "write_through": was.write_through}
        stream = io.TextIOWrapper(open(number, mode, closefd=False), was.encoding, was.errors, **more)  # noqa: SIM115
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    _tell(reply, os.getpid())
    os.closerange(3, 1 << 12)
    try:
        status = main()
    except SystemExit as error:
        if not isinstance(error.code, int):
            raise
        status = error.code
    # What is left of a usual end, to free each object, would copy the memory that is the store's.
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for end in (sys.stdout, sys.stderr):
        end.flush()
    os._exit(status)


if __name__ == "__main__":
    from mpstui import __main__ as program

    program._leave_out_tls()
    import stand_in

    stand_in.use()
    for name in _IMPORTED:
        importlib.import_module(f"mpstui.{name}")
    importlib.import_module("concurrent.futures.thread")
    _compile()
    gc.freeze()
    _keep(socket.socket(fileno=int(sys.argv[1])))
