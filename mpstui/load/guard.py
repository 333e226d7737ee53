"""Keeps a private control daemon and takes it down when its own standard input ends: ``python -m mpstui.load.guard``.

So the daemon does not survive whoever asked for it, not even one that was killed with SIGKILL: this process adopts
the daemon, is in a session of its own, and ends what is left of it by force.
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

from mpstui.control.commandline import patience
from mpstui.core.text import error_text, printable
from mpstui.load.runner import descendants, end_all
from mpstui.system.own import find_program, own_path
from mpstui.system.parent import adopt_orphans

PIPE, LOG, OUTPUT = "pipe", "log", "output"
READY: Final = b"ready\n"
_START_SECONDS: Final = 20.0
_QUIT: Final = b"quit -t 2\n"
_QUIT_SECONDS: Final = 15.0
_END_SECONDS: Final = 5.0


def main() -> int:
    """``guard FOLDER BINARY…``: the folder holds ``pipe`` and ``log`` and is removed at the end."""
    folder, binary = Path(sys.argv[1]), sys.argv[2:]
    wakeup, wakeup_write = os.pipe()
    os.set_blocking(wakeup_write, False)
    signal.set_wakeup_fd(wakeup_write, warn_on_full_buffer=False)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: None)
    adopt_orphans()
    environment = {
        **os.environ,
        "PATH": own_path(),
        "CUDA_MPS_PIPE_DIRECTORY": os.fspath(folder / PIPE),
        "CUDA_MPS_LOG_DIRECTORY": os.fspath(folder / LOG),
        "LC_ALL": "C",
    }
    try:
        reason = start(binary, environment, folder / LOG / OUTPUT)
        os.write(1, reason or READY)
        if not reason:
            wait_for_the_end(wakeup)
            with contextlib.suppress(OSError, subprocess.SubprocessError):
                subprocess.run(
                    binary,
                    executable=find_program(binary[0], environment),
                    input=_QUIT,
                    env=environment,
                    timeout=patience(_QUIT_SECONDS),
                    capture_output=True,
                )
    except OSError:
        pass  # nobody listens any more: the same end
    finally:
        end_all(descendants(), _END_SECONDS)
        shutil.rmtree(folder, ignore_errors=True)
    return 0


def wait_for_the_end(wakeup: int) -> None:
    """Until a signal, or the end of standard input."""
    while True:
        ready, _, _ = select.select([0, wakeup], [], [])
        if wakeup in ready or not os.read(0, 4096):
            return


def start(binary: list[str], environment: dict[str, str], output: Path) -> bytes:
    """Start the daemon; empty, or why it did not start. It may keep its outputs open: they are a file, not a pipe."""
    try:
        with open(output, "w+b") as said:
            done = subprocess.run(
                [*binary, "-d"],
                executable=find_program(binary[0], environment),
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                timeout=patience(_START_SECONDS),
            )
            said.seek(0)
            words = said.read(2000).split()
    except subprocess.TimeoutExpired:
        return b"it does not come up\n"
    except OSError as error:
        return f"{printable(binary[0])} cannot be run: {error_text(error)}\n".encode()
    if done.returncode:
        return b" ".join(words) + b"\n" if words else f"exit status {done.returncode}\n".encode()
    return b""


if __name__ == "__main__":
    sys.exit(main())
