"""What came of one control command."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final, Generic, TypeVar

from mpstui.core.late import dataclass
from mpstui.core.model import SessionHolder
from mpstui.core.requests import ExitStatus

T_co = TypeVar("T_co", covariant=True)


class Outcome(str, Enum):
    """How a command ended. Judged by the text: errors come with exit status 0 (fact 4)."""

    OK = "ok"
    ABSENT = "absent"
    """No daemon there (fact 3)."""
    HELD = "held"
    """Somebody keeps a control session open (fact 2): one and the same for seconds."""
    BUSY = "busy"
    """Sessions of others one after the other until the deadline, none of which stays; the command did not arrive."""
    BLOCKED = "blocked"
    """No answer before the deadline (fact 16). The command may still be carried out when the daemon wakes up."""
    NOT_PERMITTED = "not_permitted"
    STARTING = "starting"
    """The server that it is for is starting: it answers nothing, and nothing was set (fact 45)."""
    REFUSED = "refused"
    """The daemon said no, in words: see ``message``."""
    UNREADABLE = "unreadable"
    """The binary printed something that this command never prints, or too much of it."""
    NO_BINARY = "no_binary"
    """nvidia-cuda-mps-control is not there or cannot be executed."""


@dataclass(frozen=True, slots=True)
class Answer(Generic[T_co]):
    """A typed answer that keeps the raw bytes. ``value`` is None unless ``outcome`` is OK."""

    command: str
    outcome: Outcome
    value: T_co | None = None
    message: str = ""
    """One sentence for a person; empty where the outcome is OK."""
    stdout: bytes = b""
    stderr: bytes = b""
    exit_status: int | None = None
    seconds: float = 0.0
    holder: SessionHolder | None = None
    """Who keeps the session, where ``outcome`` is HELD and the process could be found (fact 2)."""

    asked: bool = True
    """False where nothing was sent: the daemon is known not to know the command, or it is not known whose it is. No
    word of the daemon's."""

    @property
    def ok(self) -> bool:
        return self.outcome is Outcome.OK


STATUS: Final[Mapping[Outcome, ExitStatus]] = {
    Outcome.OK: ExitStatus.DONE,
    Outcome.ABSENT: ExitStatus.NO_DAEMON,
    Outcome.NO_BINARY: ExitStatus.NO_ANSWER,
    Outcome.HELD: ExitStatus.NO_ANSWER,
    Outcome.BUSY: ExitStatus.NO_ANSWER,
    Outcome.BLOCKED: ExitStatus.NO_ANSWER,
    Outcome.NOT_PERMITTED: ExitStatus.NOT_PERMITTED,
    Outcome.STARTING: ExitStatus.REFUSED_BY_DAEMON,
    Outcome.REFUSED: ExitStatus.REFUSED_BY_DAEMON,
    Outcome.UNREADABLE: ExitStatus.NO_ANSWER,
}
"""The exit status of a command that ended so."""
