"""The compute mode of a device, set as an admin does it: by ``nvidia-smi -c``, which needs root."""

from __future__ import annotations

import os
import subprocess
from typing import Final

from mpstui.core.text import printable

EXCLUSIVE: Final = "EXCLUSIVE_PROCESS"
DEFAULT: Final = "DEFAULT"
_SECONDS: Final = 60.0
"""A driver without persistence mode loads first."""


def set_compute_mode(uuid: str, mode: str) -> str | None:
    """Sets the mode of the device; why it could not be, or None. Waits for at most a minute."""
    command = ["nvidia-smi", "-i", uuid, "-c", mode]
    try:
        done = subprocess.run(
            command,
            env={**os.environ, "LC_ALL": "C"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"nvidia-smi has not ended in {_SECONDS:g} s"
    except OSError as error:
        return f"nvidia-smi: {error.strerror}"
    if done.returncode:
        return printable(done.stdout[:2000].strip(), 200) or f"nvidia-smi exited with status {done.returncode}"
    return None
