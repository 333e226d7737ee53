"""Other users of the node, as they are: what they run has a UID of theirs, beside a root who looks at it."""

from __future__ import annotations

import functools
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

FIRST_UID = 64_101
"""UIDs that no account of a usual machine has; the groups have the same numbers."""

_PYTHONS = ("/usr/bin/python3", "/usr/local/bin/python3")


class Stranger:
    """A user without privileges, with a directory of his own; what he has started ends with the test."""

    def __init__(self, uid: int, home: Path) -> None:
        self.uid = uid
        self.home = home
        """His own, mode 0755; above it are only directories that everybody may pass."""
        self.interpreter = sys.executable
        """Has the standard library; mpstui only where the suite's own interpreter is open to others."""
        self._started: list[subprocess.Popen[str]] = []

    def run(self, *argv: str | Path, check: bool = True, timeout: float = 600, **more: Any) -> Any:
        """``subprocess.run`` of this command as this user, in his directory; its output is text."""
        more = {"stdin": subprocess.DEVNULL, **more} if "input" not in more else more
        done = subprocess.run(
            self._as_himself(argv),
            **{"cwd": self.home, "env": self._env(more.pop("env", {})), **more},
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        assert not check or done.returncode == 0, f"{argv}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done

    def python(self, source: str, *args: str | Path, **more: Any) -> Any:
        """``run`` of a Python program that is given as text, with these arguments."""
        return self.run(self.interpreter, "-c", source, *args, **more)

    def start(self, *argv: str | Path, **more: Any) -> subprocess.Popen[str]:
        """Starts a command that goes on; it is killed with its session when the test ends."""
        process: subprocess.Popen[str] = subprocess.Popen(
            self._as_himself(argv),
            **{
                "cwd": self.home,
                "stdin": subprocess.DEVNULL,
                "stdout": subprocess.PIPE,
                "stderr": subprocess.STDOUT,
                "env": self._env(more.pop("env", {})),
                **more,
            },
            text=True,
            start_new_session=True,
        )
        self._started.append(process)
        return process

    def start_python(self, source: str, *args: str | Path, **more: Any) -> subprocess.Popen[str]:
        """``start`` of a Python program that is given as text."""
        return self.start(self.interpreter, "-c", source, *args, **more)

    def end(self) -> None:
        for process in self._started:
            # Ends as its own session's leader: nothing else of the machine is in it.
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(120)
            if process.stdout is not None:
                process.stdout.close()

    def _as_himself(self, argv: Sequence[str | Path]) -> list[str]:
        who = [f"--reuid={self.uid}", f"--regid={self.uid}", "--clear-groups"]
        return ["setpriv", *who, "--", *(str(word) for word in argv)]

    def _env(self, more: Mapping[str, str]) -> dict[str, str]:
        return {"PATH": os.environ["PATH"], "HOME": str(self.home), "TZ": "UTC", "LANG": "C.UTF-8", **more}


@functools.cache
def _open_python() -> str | None:
    """A Python that other users may run: looked for once, with a process for each that is tried."""
    nobody = Stranger(FIRST_UID, Path("/"))
    for python in (sys.executable, *_PYTHONS):
        if os.path.exists(python) and nobody.run(python, "-c", "", check=False).returncode == 0:
            return python
    return None


def _strangers(uid: int) -> Iterator[Stranger]:
    if os.geteuid() != 0:
        pytest.skip("an attack by another user can be made by root alone, who can become one")
    if shutil.which("setpriv") is None:
        pytest.skip("there is no setpriv to become another user with")
    home = Path(tempfile.mkdtemp(prefix="mpstui-stranger-", dir="/tmp"))
    os.chown(home, uid, uid)
    home.chmod(0o755)
    stranger = Stranger(uid, home)
    try:
        if (interpreter := _open_python()) is None:
            pytest.skip("no Python of this machine is open to other users")
        stranger.interpreter = interpreter
        yield stranger
    finally:
        stranger.end()
        shutil.rmtree(home, ignore_errors=True)


@pytest.fixture
def stranger() -> Iterator[Stranger]:
    """The attacker."""
    yield from _strangers(FIRST_UID)


@pytest.fixture
def bystander() -> Iterator[Stranger]:
    """Another user without privileges, who is attacked or only there."""
    yield from _strangers(FIRST_UID + 1)


@pytest.fixture
def roots(bystander: Stranger) -> Iterator[Stranger]:
    """Root, with a directory of root's own that others may pass."""
    os.chown(bystander.home, 0, 0)
    as_root = Stranger(0, bystander.home)
    as_root.interpreter = bystander.interpreter
    yield as_root
    as_root.end()


@pytest.fixture
def crowd() -> Iterator[Path]:
    """A directory as /tmp is: root's (or the runner's), sticky, and everybody may make things in it."""
    folder = Path(tempfile.mkdtemp(prefix="mpstui-crowd-", dir="/tmp"))
    folder.chmod(0o1777)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)
