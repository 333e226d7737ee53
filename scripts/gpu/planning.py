"""What the parts of gpu-plan run on: a directory, a client program, a deadline, and mpstui's command line."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from report import Report

from mpstui.plan.types import PlanTarget

ROOT = Path(__file__).resolve().parents[2]
LIMIT = 540.0
"""Seconds; what is not done by then is left out, and said."""
READY = re.compile(r"ready pid (\d+) sm (\d+) free (\d+)")
MIB = 1 << 20


class OutOfTime(Exception):
    """The time of the whole script is up."""


@dataclass
class Seen:
    """What a client saw."""

    pid: int = 0
    sms: int | None = None
    free: int | None = None
    """MiB."""
    end: str = ""


class Setting:
    """Where the parts work: one directory, one client program, one deadline."""

    def __init__(self, folder: Path, simulated: bool, report: Report) -> None:
        self.folder = folder
        self.simulated = simulated
        self.report = report
        self.ends = time.monotonic() + LIMIT
        self.environment = {
            **{k: v for k, v in os.environ.items() if not k.startswith("CUDA_")},
            "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]),
            "XDG_CONFIG_HOME": str(folder / "config"),
            "MPSTUI_AUDIT_LOG": str(folder / "audit.jsonl"),
        }
        if simulated:
            from mpstui.sim.marker import control_binary

            self.environment["MPSTUI_CONTROL_BINARY"] = control_binary()[-1]
            self.client = [sys.executable, str(ROOT / "scripts" / "gpu" / "sim_client.py")]
        else:
            from contract.real_node import compiled_client

            self.client = [str(compiled_client())]
        self.device: dict[str, Any] = {}
        self.devices: list[dict[str, Any]] = []
        """All of the node, as `status --json` has them."""
        self.target = PlanTarget(0)

    def left(self, most: float = 60.0) -> float:
        """Seconds for the next thing to do. Raises OutOfTime."""
        found = min(most, self.ends - time.monotonic())
        if found <= 0:
            raise OutOfTime("the time of the script is up")
        return found

    def mpstui(self, *words: object, most: float = 60.0) -> tuple[int, str, str]:
        """Run mpstui as a user does, for ``most`` seconds: exit status, stdout, stderr."""
        command = [sys.executable, "-m", "mpstui", *map(str, words)]
        done = subprocess.run(
            command, env=self.environment, capture_output=True, text=True, timeout=self.left(most), check=False
        )
        return done.returncode, done.stdout, done.stderr

    def must(self, *words: object, most: float = 60.0) -> str:
        """The same, where anything but success ends the part."""
        status, out, err = self.mpstui(*words, most=most)
        if status != 0:
            raise RuntimeError(f"mpstui {' '.join(map(str, words))}: {status}: {err.strip() or out.strip()}")
        return out

    def see(self, pipe_dir: Path, *mode: object, share: tuple[str, str] | None = None, **variables: str) -> Seen:
        """Run a client to its end; through ``mpstui run`` where it has a share (profile and name)."""
        with self.started(pipe_dir, *mode, share=share, **variables) as process:
            return self.read(process, to_the_end=True)

    @contextlib.contextmanager
    def started(
        self,
        pipe_dir: Path,
        *mode: object,
        share: tuple[str, str] | None = None,
        before: Sequence[str] = (),
        **variables: str,
    ) -> Iterator[subprocess.Popen[str]]:
        """A client on its way, its command behind ``before``; killed at the end where it still runs."""
        command = [*before, *self.client, *map(str, mode)]
        if share is not None:
            words = ["run", "--profile", share[0], "--share", share[1], "--"]
            command = [sys.executable, "-m", "mpstui", *words, *command]
        environment = {**self.environment, "CUDA_MPS_PIPE_DIRECTORY": str(pipe_dir), **variables}
        process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
        try:
            yield process
        finally:
            process.kill()
            process.wait()
            assert process.stdout is not None
            process.stdout.close()

    def read(self, process: subprocess.Popen[str], to_the_end: bool = False) -> Seen:
        """What it says until it is ready, or until its end."""
        assert process.stdout is not None
        self.left()
        seen = Seen()
        for line in process.stdout:
            if match := READY.search(line):
                seen.pid, seen.sms, seen.free = (int(number) for number in match.groups())
                if not to_the_end:
                    break
            elif line.startswith("end "):
                seen.end = line.strip()
        return seen


@contextlib.contextmanager
def daemon(setting: Setting, name: str, *options: object) -> Iterator[Path]:
    """A daemon of mpstui's own starting, stopped by force whatever happens."""
    pipe_dir = setting.folder / name
    setting.must("daemon", "start", "--pipe-dir", pipe_dir, *options)
    try:
        yield pipe_dir
    finally:
        setting.ends = max(setting.ends, time.monotonic() + 20)
        status, out, err = setting.mpstui("daemon", "stop", "--pipe-dir", pipe_dir, "--force", "--yes")
        if status not in {0, 3}:
            setting.report.check(f"the daemon {name} is stopped", False, err or out)
