"""A handle on a simulated node: starts it, drives it, ends it with everything that belongs to it."""

from __future__ import annotations

import contextlib
import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Final

from mpstui.control.commandline import PROOF, SOCKET_PATH_LIMIT
from mpstui.control.drivers import DRIVERS, nearest
from mpstui.core.text import path_text, printable
from mpstui.sim.client import Behaviour, SimClient
from mpstui.sim.marker import control_binary, owners, untrusted_directory
from mpstui.sim.simd.config import (
    DRIVER_VERSION,
    SIM_DRIVER,
    STATE,
    Gpu,
    default_gpus,
    driver_here,
    read_json,
    write_marker,
)
from mpstui.sim.simd.process import start_ticks
from mpstui.system.own import OURS_ALONE, ROOT
from mpstui.system.trusted import NotTrustedError, make_directory

LOGS: Final = "logs"
"""The folder for the logs in the pipe directory, unless another one is said."""
_END_SECONDS: Final = 120.0
"""After a SIGKILL; a busy machine takes its time."""
_START_SECONDS: Final = 300.0
"""Until it is ready; one that has ended is not waited for."""
REMOVES: Final = "removes"
"""The last word for a node whose directory goes with it."""
_SERVE: Final = (
    f"{OURS_ALONE}import gc; gc.disable(); "
    "from mpstui.sim.serving import main; gc.freeze(); gc.enable(); main(sys.argv[1:])"
)


class SimError(Exception):
    """A simulated node that cannot be; its text is one line for a person."""


def driver_with(options: Sequence[str]) -> str:
    """The driver of a node whose daemon has these options, where nobody has named one: the oldest that knows them."""
    usual = os.environ.get(SIM_DRIVER) or DRIVER_VERSION
    if any(re.fullmatch(r"(-p|--protocol)=?3", option) for option in options):
        return DRIVERS[-1].version
    if {"-S", "--static-partitioning"}.isdisjoint(options) or nearest(usual).static_partitions:
        return usual
    return next(driver.version for driver in DRIVERS if driver.static_partitions)


class SimNode:
    """One simulated node, with its daemon and clients as child processes that end with it."""

    def __init__(self, pipe_dir: Path, log_dir: Path) -> None:
        self.pipe_dir = pipe_dir
        self.log_dir = log_dir
        self.clients: list[SimClient] = []
        self.one_user = False
        """A scenario's clients are all of one user: the driver has no multi-user mode."""
        self._processes: list[subprocess.Popen[bytes]] = []

    @classmethod
    def start(
        cls,
        pipe_dir: Path,
        *,
        log_dir: Path | None = None,
        gpus: int | Sequence[Gpu] = 2,
        scenario: str | None = None,
        daemon: bool = True,
        multiuser: bool = False,
        visible: str | None = None,
        options: Sequence[str] = (),
        driver: str | None = None,
        env: Mapping[str, str] | None = None,
        timeout: float = _START_SECONDS,
        launched: Callable[[], None] | None = None,
    ) -> SimNode:
        """Makes ``pipe_dir`` a simulated node's and starts its daemon, or ``scenario`` with its clients.

        Logs go to ``pipe_dir/logs`` unless ``log_dir`` says otherwise. ``visible`` is CUDA_VISIBLE_DEVICES for the
        daemon, ``driver`` that of devices that are given by their number. ``launched`` is told when the process of a
        scenario is there, which then removes ``pipe_dir`` at its end. Returns when the node is ready; raises SimError
        where it cannot be made.
        """
        pipe_dir = Path(os.path.abspath(pipe_dir))
        node = cls(pipe_dir, Path(os.path.abspath(log_dir)) if log_dir else pipe_dir / LOGS)
        if len(os.fsencode(pipe_dir / "control_privileged")) > SOCKET_PATH_LIMIT:
            raise SimError(
                f"{path_text(pipe_dir)} is too long for the daemon's sockets (at most {SOCKET_PATH_LIMIT - 19} bytes)"
            )
        try:
            for folder in (pipe_dir, node.log_dir):
                make_directory(folder, owners(), 0o755)
                if (problem := untrusted_directory(folder)) is not None:
                    raise SimError(f"{problem}: a simulated node needs a directory that nobody else can change")
            write_marker(
                pipe_dir,
                default_gpus(gpus, driver=driver or driver_with(options)) if isinstance(gpus, int) else tuple(gpus),
            )
        except NotTrustedError as error:
            raise SimError(f"{error}: a simulated node needs a directory that nobody else can change") from None
        except OSError as error:
            raise SimError(f"{path_text(error.filename or pipe_dir)}: {error.strerror}") from error
        if scenario is not None:
            serve = [sys.executable, "-c", _SERVE, os.fspath(ROOT), os.fspath(pipe_dir), scenario, driver or ""]
            node._launch(serve if launched is None else [*serve, REMOVES], timeout, {}, launched)
        elif daemon:
            node.start_daemon(multiuser=multiuser, visible=visible, options=options, env=env, timeout=timeout)
        return node

    def start_daemon(
        self,
        *,
        multiuser: bool = False,
        visible: str | None = None,
        options: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        timeout: float = _START_SECONDS,
    ) -> None:
        """Starts the control daemon, with more ``options`` and variables; raises SimError where one runs already."""
        environment = {**(env or {}), **({} if visible is None else {"CUDA_VISIBLE_DEVICES": visible})}
        mode = driver_here(self.pipe_dir).multi_user[:1] if multiuser else ()
        self._launch([*control_binary(), "-d", *mode, *options], timeout, environment)

    def _launch(
        self,
        command: Sequence[str],
        timeout: float,
        more: Mapping[str, str],
        launched: Callable[[], None] | None = None,
    ) -> None:
        environment = {
            **{key: value for key, value in os.environ.items() if key != "CUDA_VISIBLE_DEVICES"},
            **more,
            "CUDA_MPS_PIPE_DIRECTORY": os.fspath(self.pipe_dir),
            "CUDA_MPS_LOG_DIRECTORY": os.fspath(self.log_dir),
            "MPSTUI_SIM_LIFELINE": "1",
        }
        receiver, report = os.pipe()
        environment["MPSTUI_SIM_REPORT"] = str(report)
        with contextlib.ExitStack() as held:
            try:
                # What it may print must not get onto somebody's screen; its own session keeps the terminal's signals
                # away. It is held: a demo's directory, and the log in it, goes with the process that says there why.
                log = held.enter_context(open(self.log_dir / "simulator.log", "a+b"))
                before = log.tell()
                process = subprocess.Popen(
                    command,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.DEVNULL,
                    stderr=log,
                    env=environment,
                    pass_fds=(report,),
                    start_new_session=True,
                )
            except OSError as error:
                os.close(receiver)
                raise SimError(f"{path_text(self.log_dir)}: {error.strerror}") from error
            finally:
                os.close(report)
            try:
                with open(receiver, "rb") as reader:
                    if launched is not None:
                        launched()
                    message = _read_line(receiver, reader, timeout)
            except BaseException:
                _end(process)
                raise
            if message != "ready":
                _end(process)
                late = f" within {timeout:g} s" if message is None else f": {_how_it_ended(process.returncode)}"
                what = f"the simulated node in {path_text(self.pipe_dir)} did not become ready"
                raise SimError(message or f"{what}{late}; {_last_line(log, before)}")
        self._processes.append(process)

    @property
    def daemon_pid(self) -> int | None:
        """The control daemon's PID; None without one."""
        try:
            daemon = read_json(self.pipe_dir / STATE)["daemon"]
            pid = int(daemon["pid"])
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return pid if start_ticks(pid) is not None and start_ticks(pid) == daemon["start_ticks"] else None

    def state(self) -> dict[str, Any]:
        """The node's own account of its servers and clients; raises OSError and ValueError."""
        state: dict[str, Any] = read_json(self.pipe_dir / STATE)
        return state

    def control(self, commands: str, *, timeout: float = 120.0, env: Mapping[str, str] | None = None) -> str:
        """Standard output of a one-shot session with these lines. Raises subprocess.TimeoutExpired.

        One that meets somebody else's session is refused, not always in words (facts 2, 30), and tried again for
        ``timeout`` seconds.
        """
        deadline = time.monotonic() + timeout
        while True:
            done = subprocess.run(
                control_binary(),
                input=f"{PROOF}\n{commands}\n".encode(),
                capture_output=True,
                env={**os.environ, **(env or {}), "CUDA_MPS_PIPE_DIRECTORY": os.fspath(self.pipe_dir)},
                timeout=timeout,
                check=False,
            )
            refused = not done.stdout and done.returncode in {0, 1} and b"Cannot find" not in done.stderr
            if not refused or time.monotonic() > deadline:
                return done.stdout.partition(b"\n")[2].decode("utf-8", "surrogateescape")
            time.sleep(0.02)

    def call(self, *words: str, timeout: float = 120.0) -> str:
        """Standard output of the control executable with these words as its arguments, as protocol 3 has it. Raises
        SimError where it refuses."""
        environment = {**os.environ, "CUDA_MPS_PIPE_DIRECTORY": os.fspath(self.pipe_dir)}
        done = subprocess.run(
            [*control_binary(), *words], capture_output=True, env=environment, timeout=timeout, check=False
        )
        if done.returncode:
            raise SimError(printable(done.stderr or done.stdout, 300))
        return done.stdout.decode("utf-8", "surrogateescape")

    def spawn(
        self,
        behaviour: Behaviour = "idle",
        *,
        at: Path | None = None,
        wait: bool = True,
        timeout: float = 120.0,
        **options: Any,
    ) -> SimClient:
        """Starts a client (``options`` as SimClient's) and waits until it is connected, refused or pending.

        At a daemon that answers nobody it is still ``starting`` after ``timeout`` seconds.
        """
        client = SimClient(at or self.pipe_dir, behaviour, **options)
        self.clients.append(client)
        if wait:
            client.wait_settled(timeout)
        return client

    def reap(self) -> None:
        """Forgets the clients and daemons that have ended."""
        for process in [p for p in self._processes if p.poll() is not None]:
            self._processes.remove(process)
            _end(process)
        for client in [c for c in self.clients if c.status() == "exited"]:
            self.clients.remove(client)
            client.close()

    def kill_daemon(self) -> None:
        """kill -9 of the control daemon: its files stay behind and its clients get 806 (facts 3 and 19)."""
        pid = self.daemon_pid
        if pid is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        deadline = time.monotonic() + _END_SECONDS
        while self.daemon_pid is not None and time.monotonic() < deadline:
            time.sleep(0.005)
        self.reap()

    def stop(self) -> None:
        """Ends everything that belongs to the node, and a daemon started in it by others; its directory stays."""
        for client in self.clients:
            client.close()
        self.clients.clear()
        for process in self._processes:
            _end(process)
        self._processes.clear()
        self.kill_daemon()

    def __enter__(self) -> SimNode:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()


def _read_line(descriptor: int, reader: BinaryIO, timeout: float) -> str | None:
    """None where none came in time; empty where none will come."""
    ready, _, _ = select.select([descriptor], [], [], timeout)
    return reader.readline(4096).decode("utf-8", "replace").strip() if ready else None


def _how_it_ended(status: int) -> str:
    return f"it ended by signal {-status}" if status < 0 else f"it ended with exit status {status}"


def _last_line(log: BinaryIO, before: int) -> str:
    """Of what was written into a log since it had so many bytes."""
    log.seek(before)
    last = next((line for line in reversed(log.read().split(b"\n")) if line.strip()), None)
    where = path_text(log.name)
    return f"{where} says nothing" if last is None else f"{where} ends with “{printable(last, 200)}”"


def _end(process: subprocess.Popen[bytes]) -> None:
    """Closes the lifeline and waits; one that does not end is killed."""
    if process.stdin is not None:
        process.stdin.close()
    try:
        process.wait(5)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
