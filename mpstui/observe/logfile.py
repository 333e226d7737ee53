"""The one place where logs are opened: whose they are decides whether they are read.

What the logs say leads to advice, and to processes that are ended. So a log is believed where root or the daemon's own
user has written it and nobody else could have. The directory of a daemon's logs may be gone (a reaper of /tmp) and
made again by anybody.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from mpstui.core.text import error_text, path_text
from mpstui.observe.trusted import NotTrustedError, open_named, open_trusted

Owners = frozenset[int]
REMEDY: Final = (
    "Another user can write there what he likes. Let the daemon write its logs (CUDA_MPS_LOG_DIRECTORY) where only its"
    " own user can; to read these without believing them: mpstui events --log-dir"
)
"""For logs that are not believed."""


class UnreadableLogError(Exception):
    """A log that is not there, may not be read or is not believed; the text is one line for a person."""

    def __init__(self, path: Path, error: OSError | NotTrustedError | str) -> None:
        self.not_permitted = isinstance(error, PermissionError)
        self.not_believed = isinstance(error, NotTrustedError)
        self.missing = isinstance(error, FileNotFoundError)
        if isinstance(error, NotTrustedError) and error.fault in {"owner", "steered"}:
            self.reason = f"these logs belong to {error.whose}; not read ({error})"
        elif isinstance(error, NotTrustedError):
            self.reason = f"not read: {error}"
        else:
            self.reason = error if isinstance(error, str) else error_text(error)
        # What is not trusted is named there: the log, or what is above it.
        super().__init__(self.reason if self.not_believed else f"{path_text(path)}: {self.reason}")


def owners_of(daemon_uid: int | None) -> Owners:
    """Whose logs are believed: root's and the daemon's user's; root's and one's own where no daemon is known to run."""
    return frozenset((0, os.geteuid() if daemon_uid is None else daemon_uid))


def open_log(path: Path, owners: Owners | None) -> int:
    """A descriptor, to read. ``owners``: see :func:`owners_of`; None where somebody named a directory to have its logs
    read, whosever they are, and nothing is done by what they say. Raises UnreadableLogError."""
    try:
        return open_named(path) if owners is None else open_trusted(path, os.O_RDONLY, owners)
    except (OSError, NotTrustedError) as error:
        raise UnreadableLogError(path, error) from None


def is_believed(path: Path, owners: Owners) -> bool:
    """Whether the log is there to be read and believed."""
    try:
        os.close(open_log(path, owners))
    except UnreadableLogError:
        return False
    return True


def is_there(path: Path) -> bool:
    """Whether there is anything of that name."""
    try:
        return os.path.lexists(path)
    except ValueError:
        return False
