"""Starts the simulated daemon: its pipe directory, its lock, its place in the background."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import socket
import sys

from .config import MARKER, STARTS, default_gpus, driver_here, read_marker, visible_gpus, write_json, write_marker
from .daemon import SimDaemon
from .logs import Logs, head
from .partitions import StaticDaemon, is_static
from .process import rename
from .v3 import V3Daemon, is_v3

_DEFAULT_GPUS = 2
_SOCKET_PATH_LIMIT = 107
"""Bytes of a Unix socket's path; a longer one was refused without a word."""


def start(program: str, args: list[str]) -> int:
    """``-d`` and ``-f`` of the control executable ``program``; gives the exit status.

    A daemon with a lifeline stays its starter's child, and has files for logs, whichever of the two it is started with.
    """
    pipe_dir = os.path.abspath(os.environ.get("CUDA_MPS_PIPE_DIRECTORY") or "/tmp/nvidia-mps")  # noqa: S108
    log_dir = os.path.abspath(os.environ.get("CUDA_MPS_LOG_DIRECTORY") or os.path.join(pipe_dir, "logs"))
    if args[0] == "--simulated-daemon":
        return _serve(pipe_dir, log_dir, int(args[1]), args[2:])
    background = ("-d" in args or "--daemon" in args) and not os.environ.get("MPSTUI_SIM_LIFELINE")
    receiver, report = os.pipe()
    if not background and os.environ.get("MPSTUI_SIM_REPORT", "").isdigit():
        report = int(os.environ["MPSTUI_SIM_REPORT"])
    os.set_inheritable(report, True)
    environment = {
        **os.environ,
        "CUDA_MPS_PIPE_DIRECTORY": pipe_dir,
        "CUDA_MPS_LOG_DIRECTORY": log_dir,
    }
    command = [sys.executable, "-I", "-S", program, "--simulated-daemon", str(report), *args]
    # /proc/PID/environ shows where a daemon is. A process that has all of it there becomes the daemon as it is.
    named = environment == dict(os.environ)
    if not background:
        if named:
            return _serve(pipe_dir, log_dir, report, args)
        os.execve(command[0], command, environment)  # noqa: S606
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            null = os.open(os.devnull, os.O_RDWR)
            for descriptor in range(3):
                os.dup2(null, descriptor)
            os.close(receiver)
            if named:
                return _serve(pipe_dir, log_dir, report, args)
            os.execve(command[0], command, environment)  # noqa: S606
        os._exit(0)
    os.wait()
    os.close(report)
    message = b""
    while more := os.read(receiver, 4096):
        message += more
    done = message.endswith(b"ready\n")
    sys.stdout.write(message.removesuffix(b"ready\n").decode())
    return int(not done)


def _serve(pipe_dir: str, log_dir: str, report: int, args: list[str]) -> int:
    def fail(message: str) -> int:
        if message and foreground:
            print(message, flush=True)
        tell(message.encode() + b"\n" * bool(message))
        return 1

    def tell(text: bytes) -> None:
        with contextlib.suppress(BrokenPipeError):  # nobody waits for one in the foreground
            os.write(report, text)

    os.umask(0o022)
    foreground = "-d" not in args and "--daemon" not in args
    if len(os.fsencode(os.path.join(pipe_dir, "control_privileged"))) > _SOCKET_PATH_LIMIT:
        return fail("")
    try:
        _make_folder(pipe_dir)
    except OSError:
        return fail("Cannot access CUDA_MPS_PIPE_DIRECTORY=" + pipe_dir)
    to_stdout = foreground and not os.environ.get("MPSTUI_SIM_LIFELINE")
    with contextlib.suppress(OSError):
        _make_folder(log_dir)
    try:
        logs = Logs(None if to_stdout else log_dir)
        lock = os.open(
            os.path.join(pipe_dir, "control_lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666
        )
        try:
            fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            logs.server(os.getpid(), "Using log directory: " + log_dir, "Other")
            return fail("An instance of this daemon is already running")
        begin = head("Control", os.getpid())
        _mark(pipe_dir, None if to_stdout else log_dir, begin)
        driver = driver_here(pipe_dir)
        gpus = visible_gpus(read_marker(pipe_dir), os.environ.get("CUDA_VISIBLE_DEVICES"))
        listeners = _make_files(pipe_dir, driver.pid_file)
    except (OSError, ValueError) as error:
        return fail(f"Cannot start the simulated daemon: {error.strerror if isinstance(error, OSError) else error}")
    wakeup = _wakeup()
    rename([b"nvidia-cuda-mps-control", *(arg.encode() for arg in args)])
    logs.started(begin, "Starting control daemon using socket " + os.path.join(pipe_dir, "control"))
    logs.control("To connect CUDA applications to this daemon, set env CUDA_MPS_PIPE_DIRECTORY=" + pipe_dir)
    if driver.binary_version is not None:
        logs.control(f"CUDA MPS Control binary version: {driver.binary_version}")
    multiuser = not {"-M", "--multiuser-server", "-multiuser-server"}.isdisjoint(args)
    make = (
        V3Daemon
        if is_v3(args, os.environ if driver.protocol_3 else {})
        else StaticDaemon
        if is_static(args)
        else SimDaemon
    )
    daemon = make(pipe_dir, listeners, gpus, logs, multiuser, os.environ)
    said = "" if os.environ.get("MPSTUI_SIM_LIFELINE") or not logs.warning else logs.warning + "\n"
    tell(said.encode() + b"ready\n")
    os.close(report)
    goodbye = daemon.run(0 if os.environ.get("MPSTUI_SIM_LIFELINE") else None, wakeup)
    _end(pipe_dir, listeners, lock)
    goodbye()
    return 0


def _mark(pipe_dir: str, log_dir: str | None, begin: bytes) -> None:
    """Says of a directory without a marker that it is a simulated node's, and of the logs from the line with this
    ``begin`` on."""
    if not os.path.lexists(os.path.join(pipe_dir, MARKER)):
        write_marker(pipe_dir, default_gpus(_DEFAULT_GPUS))
    if log_dir is None:
        return
    marker, starts = os.path.join(log_dir, MARKER), os.path.join(log_dir, STARTS)
    new = not os.path.lexists(marker)
    with contextlib.suppress(OSError):
        if new or os.path.lexists(starts):  # else there are others already that it does not have
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            with open(os.open(starts, flags, 0o644), "wb") as file:
                file.write(begin + b"\n")
    with contextlib.suppress(OSError):
        if new:
            write_json(marker, {})


def _end(pipe_dir: str, listeners: list[socket.socket], lock: int) -> None:
    """Leaves what a daemon leaves: the sockets and the lock stay (fact 3)."""
    for name in ("log", "nvidia-cuda-mps-control.pid"):
        with contextlib.suppress(OSError):
            os.unlink(os.path.join(pipe_dir, name))
    for listener in listeners:
        listener.close()
    os.close(lock)


def _wakeup() -> int:
    """What can be read where a signal has come."""
    wakeup, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: None)
    return wakeup


def _make_folder(place: str) -> None:
    """It may be there already."""
    try:
        os.mkdir(place)
    except FileExistsError:
        if not os.path.isdir(place):
            raise


def _make_files(pipe_dir: str, pid_file: bool) -> list[socket.socket]:
    """The sockets, the FIFO and the PID file, which not every driver has, with the recorded modes; what a dead daemon
    left is replaced."""
    listeners = []
    for name, mode in (("control_privileged", 0o755), ("control", 0o666)):
        path = os.path.join(pipe_dir, name)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        listener.bind(path)
        os.chmod(path, mode)
        listener.listen(128)
        listener.setblocking(False)
        listeners.append(listener)
    for name in ("log", "nvidia-cuda-mps-control.pid"):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(os.path.join(pipe_dir, name))
    os.mkfifo(os.path.join(pipe_dir, "log"))
    modes = {"control_lock": 0o666, "log": 0o777}
    if pid_file:
        with open(os.path.join(pipe_dir, "nvidia-cuda-mps-control.pid"), "w", encoding="ascii") as file:
            file.write(str(os.getpid()))
        modes["nvidia-cuda-mps-control.pid"] = 0o666
    for name, mode in modes.items():
        os.chmod(os.path.join(pipe_dir, name), mode)
    return listeners
