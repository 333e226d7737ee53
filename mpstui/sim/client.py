"""Starts simulated CUDA clients and drives them."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, Literal

Behaviour = Literal["idle", "busy", "endless", "faulting", "hostile"]
Word = Literal["idle", "busy", "endless", "fault", "trap", "reset", "exit"]
_SCRIPT: Final = Path(__file__).resolve().parent / "simd" / "client.py"
_LIMITS: Final = (
    "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE",
    "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT",
    "CUDA_MPS_CLIENT_PRIORITY",
    "CUDA_MPS_SM_PARTITION",
)


class SimClient:
    """One simulated client process. It ends when this handle is closed, or with the process that holds it.

    ``container``: its short name, and behind a space its cgroup as ``mpstui.sim.sources.simulated_where`` takes it.
    """

    def __init__(
        self,
        pipe_dir: Path,
        behaviour: Behaviour = "idle",
        *,
        argv0: bytes = b"/tmp/client",
        command: str | None = None,
        user: str | None = None,
        uid: int | None = None,
        devices: Sequence[int] = (0,),
        env: Mapping[str, str] | None = None,
        memory: int = 0,
        contexts: int = 1,
        container: str | None = None,
        namespace: int | None = None,
        linger: float | None = None,
    ) -> None:
        container, _, cgroup = (container or "").partition(" ")
        limits = {key: value for key, value in (env or {}).items() if key in _LIMITS}
        busy = behaviour != "idle"
        text = argv0.decode("utf-8", "backslashreplace")
        hello = {
            "devices": list(devices),
            "uid": uid,
            "user": user,
            "argv0": base64.b64encode(argv0).decode(),
            "command": (command or text)[:4000],
            "contexts": contexts,
            "memory": memory,
            "env": limits,
            "busy": busy,
            "endless": behaviour == "endless",
            "container": container or None,
            "cgroup": cgroup or None,
            "namespace": namespace,
        }
        if behaviour == "faulting" and linger is None:
            linger = 0.0
        arguments = [
            os.fspath(pipe_dir / "control"),
            os.path.basename(text[:64].replace("\0", "")) or "client",
            str(int(busy)),
            str(int(behaviour == "hostile")),
            "-" if linger is None else str(linger),
        ]
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", os.fspath(_SCRIPT), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **(env or {}), "CUDA_MPS_PIPE_DIRECTORY": os.fspath(pipe_dir)},
            bufsize=0,
            start_new_session=True,  # the terminal's signals are for its starter
        )
        self.pid = self._process.pid
        self.error = 0
        """The first CUDA error it got, 0 for none."""
        self.sm_count: int | None = None
        self.free_memory: int | None = None
        """Bytes that it found free on its first device when it connected."""
        self._statuses = ["starting"]
        self._input = b""
        self._write(json.dumps(hello).encode() + b"\n")

    def _write(self, data: bytes) -> None:
        if self._process.stdin is not None and not self._process.stdin.closed:
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.write(data)

    def _read(self, timeout: float) -> bool:
        """Takes in what it said; False when nothing came in time or nothing will come any more."""
        stdout = self._process.stdout
        if stdout is None or stdout.closed or not select.select([stdout], [], [], max(0.0, timeout))[0]:
            return False
        chunk = os.read(stdout.fileno(), 65536)
        *lines, self._input = (self._input + chunk).split(b"\n")
        for line in lines:
            status, *words = line.decode().split()
            values = {key: int(value) for key, _, value in (word.partition("=") for word in words)}
            if status == "connected":
                self.sm_count, self.free_memory = values["sm"], values["free"]
            else:
                self.error = values.get("error", self.error)
            self._statuses.append(status)
        return bool(chunk)

    def wait_settled(self, timeout: float = 120.0) -> str:
        """Waits until it is connected, refused, pending or without MPS; gives the status reached by then."""
        deadline = time.monotonic() + timeout
        while len(self._statuses) < 2 and self._read(deadline - time.monotonic()):
            pass
        return self.status()

    def wait_status(self, wanted: str, timeout: float = 120.0) -> bool:
        """Waits until it has, or has had, this status, e.g. ``lost``; False when it did not come in time."""
        deadline = time.monotonic() + timeout
        while wanted not in self._statuses and self._read(deadline - time.monotonic()):
            pass
        return wanted in self._statuses

    def status(self) -> str:
        """``starting`` (waits for a deaf daemon), ``connected``, ``pending``, ``refused``, ``unmanaged`` (no daemon,
        runs without MPS), ``failed`` (its own error), ``lost`` (its contexts were ended) or ``exited``.
        """
        while self._read(0):
            pass
        return "exited" if self._process.poll() is not None else self._statuses[-1]

    def tell(self, what: Word) -> None:
        """Changes it. ``fault``: an illegal store; ``trap``: a kernel that stops itself; ``reset``: gives up its
        contexts; ``exit``: a clean end. To one that has ended it says nothing."""
        self._write(what.encode() + b"\n")

    def wait(self, timeout: float | None = None) -> str:
        """Waits for its end. Gives the CUDA error that it would have printed, ``0`` for none; ``-9`` when killed so.

        Raises subprocess.TimeoutExpired.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while self._read(3600 if deadline is None else deadline - time.monotonic()):
            pass
        status = self._process.wait(None if deadline is None else max(0.0, deadline - time.monotonic()))
        return str(status) if status < 0 and not self.error else str(self.error)

    def kill(self) -> None:
        """kill -9."""
        self._process.kill()

    def close(self) -> None:
        """Ends it in any case and forgets it."""
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()
