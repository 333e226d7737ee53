"""What an operation is told, what it is asked to do, what it would do, and what came of it. Values only, no I/O."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum, IntEnum
from pathlib import Path
from typing import Final, Literal, NamedTuple

from mpstui.control.answer import Outcome
from mpstui.core.model import ProcessKey

ArgumentKind = Literal["value", "choice", "scope", "device", "clients", "owner", "server", "force"]
"""``value``: typed. ``choice``: one of ``Argument.choices``. ``scope``: the daemon's default or one server.
``device``: an ordinal of the daemon or a UUID. ``owner``: ``Request.owner``. ``server``: one that runs. ``force``: a
yes or no."""

Progress = Callable[[str], None]
"""Told of each step of a piece of work as it is taken, one line each."""


class Danger(Enum):
    """How much an operation can hurt."""

    CHANGE = "change"
    """Reaches new clients only; asked for by a form."""
    HARM = "harm"
    """Ends somebody's work; asks, and says whose."""


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


class Argument(NamedTuple):
    """One thing an operation has to be told: a field of its form, an option of its command."""

    kind: ArgumentKind
    label: str
    hint: str = ""
    """Beside the field of the form."""
    help: str = ""
    """Of the option of the command line."""
    metavar: str = "VALUE"
    choices: tuple[tuple[str, str], ...] = ()
    """Of a ``choice``: what is sent, and what it is called."""


class Verb(NamedTuple):
    """How the command line calls an operation."""

    words: tuple[str, ...]
    """``("set", "client-priority")``."""
    help: str
    flag: str = ""
    """``--kill``: the operation is the verb with this option; without it the verb is another one."""
    example: str = ""


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


class Others(NamedTuple):
    """Clients that an operation does not mean, and what they have to do with it."""

    title: str
    """``Share a GPU with it, and run on``."""
    clients: tuple[str, ...]
    """One line each."""


class Preview(NamedTuple):
    """What a request would do, worked out from a snapshot without asking the daemon."""

    title: str
    facts: tuple[tuple[str, str], ...] = ()
    """Label and text, e.g. ``("today", "25 %  32 SM")``, ``("becomes", "50 %  66 SM")``."""
    not_reached: tuple[str, ...] = ()
    """Clients that keep what they have, one line each."""
    hits: tuple[str, ...] = ()
    """Whose work it ends or endangers, one line each."""
    others: tuple[Others, ...] = ()
    """Who runs on; at most three groups, none of them empty."""
    warnings: tuple[str, ...] = ()
    error: str | None = None
    """Why it cannot be done as asked; nothing is sent while this is set."""
    error_status: ExitStatus = ExitStatus.DONE
    type_in: str = ""
    """What has to be typed for it, ``4711 alice``, where a yes is not enough; ``Request.owner`` is its second word."""


class Result(NamedTuple):
    """What came of a request."""

    request: Request
    status: ExitStatus
    message: str
    """One sentence."""
    details: tuple[str, ...] = ()
    """What is known besides, one line each: the value read back, each client's end."""
    remedy: str | None = None

    @property
    def done(self) -> bool:
        return self.status is ExitStatus.DONE
