"""What somebody wants changed, and how that ends: values that every part of the program speaks in."""

from __future__ import annotations

import os
from collections.abc import Callable
from enum import IntEnum
from pathlib import Path
from typing import Final, NamedTuple

from mpstui.core.model import ProcessKey

LATER: Final = "later"
"""As ``Request.subject``: what the request stands on is made by the ones before it, and what there is by then is looked
at when it is carried out."""
REFRESH: Final = 1.0
CROWD: Final = 256
SLOWEST_REFRESH: Final = 5.0
"""Seconds between two readings of NVML and /proc of a node that is watched, where nobody says: the first for each so
many processes, the last at most. Who comes, goes or faults is told by the logs and by the kernel, at once and whatever
the pace: what is read are figures."""
SHORTEST_REFRESH: Final = 0.1
LONGEST_REFRESH: Final = 3600.0
Progress = Callable[[str], None]
"""Told of each step of a piece of work as it is taken, one line each."""


class ExitStatus(IntEnum):
    """Exit status of the command line; also tells the screen how an operation ended."""

    DONE = 0
    REFUSED_BY_DAEMON = 1
    USAGE = 2
    NO_DAEMON = 3
    NO_ANSWER = 4
    """Held, blocked or kept busy; or it cannot be asked, for want of a control binary that answers as one."""
    NOT_PERMITTED = 5
    REFUSED_BY_SAFETY_RULE = 6
    MISTAKE = os.EX_SOFTWARE
    """Of mpstui's own: what was to be done may have been done."""


class Unable(Exception):
    """Why something is not done, in one sentence for a person, the exit status that says so, and what to do."""

    def __init__(self, why: str, status: ExitStatus = ExitStatus.USAGE, remedy: str = "") -> None:
        super().__init__(why)
        self.status = status
        self.remedy = remedy


SELECTORS: Final = ("job", "pod", "unit", "cgroup", "pid_file")
"""By what several clients can be named at once: what they belong to. The first three are kinds of ``core.where``."""


class Request(NamedTuple):
    """One wish of the user. Clients are named by identity, never by position."""

    action: str
    """The id of the operation."""
    pipe_dir: Path
    value: str = ""
    """As typed: a percentage, ``10G``, a priority, a UID."""
    server_pid: int | None = None
    """None: the daemon's default."""
    device: str | None = None
    clients: tuple[ProcessKey, ...] = ()
    owner: str = ""
    """The owner of the one client whose process is to be ended though the daemon does not speak for it: a user's name
    or number, as the admin has typed it."""
    force: bool = False
    """Without waiting for the clients."""
    within: str = ""
    """What its clients have to belong to at the moment they are ended: ``job:slurm:123``, ``cgroup:/a/b``. Empty: they
    were named one by one."""
    settings: tuple[tuple[str, str], ...] = ()
    """Named values besides: ``("server", "training")``."""
    subject: object = None
    """What it is about, where that is no value: the daemon to be started or stopped, a profile, a load."""

    def setting(self, name: str) -> str | None:
        """One of ``settings``; None where it is not among them."""
        return dict(self.settings).get(name)
