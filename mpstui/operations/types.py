"""What an operation is told, what it is asked to do, what it would do, and what came of it. Values only, no I/O."""

from __future__ import annotations

from enum import Enum
from typing import Final, Literal, NamedTuple

from mpstui.control.answer import STATUS as STATUS
from mpstui.core.requests import LATER as LATER
from mpstui.core.requests import SELECTORS as SELECTORS
from mpstui.core.requests import ExitStatus as ExitStatus
from mpstui.core.requests import Progress as Progress
from mpstui.core.requests import Request as Request
from mpstui.core.requests import Unable as Unable

READ_ONLY: Final = "mpstui runs read-only"
"""Why nothing can be changed where the program was started so."""
ArgumentKind = Literal[
    "value",
    "choice",
    "scope",
    "device",
    "clients",
    "owner",
    "server",
    "force",
    "name",
    "text",
    "list",
    "flag",
    "option",
    "seconds",
    "size",
    "setting",
]
"""``value``: typed. ``choice``: one of ``Argument.choices``. ``scope``: the daemon's default or one server.
``device``: an ordinal of the daemon or a UUID. ``owner``: ``Request.owner``. ``server``: one that runs. ``force``: a
yes or no. ``size``: in whole chunks or in SMs. ``setting``: one of ``Request.settings``, by the option's name. The
six before those two are of the command line alone, and of forms of their own: ``Argument.option`` is the option, and
an ``option`` is one with ``Argument.choices``."""


class Danger(Enum):
    """How much an operation can hurt."""

    CHANGE = "change"
    """Reaches new clients only; asked for by a form."""
    HARM = "harm"
    """Ends somebody's work; asks, and says whose."""


class Argument(NamedTuple):
    """One thing an operation has to be told: a field of its form, an option of its command."""

    kind: ArgumentKind
    label: str
    hint: str = ""
    """Beside the field of the form."""
    help: str = ""
    """Of the option of the command line."""
    metavar: str = "VALUE"
    option: str = ""
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


class Others(NamedTuple):
    """Clients that an operation does not mean, and what they have to do with it."""

    title: str
    """``Share a GPU with it, and run on as a rule``."""
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
    outcome: object = None
    """What came of it besides: the daemon that was started, the steps of an apply."""
    waits: bool = False
    """It was taken, and goes on by itself: it is not done, and has not failed."""
    simulated: bool = False
    """The node is a simulated one."""

    @property
    def done(self) -> bool:
        return self.status is ExitStatus.DONE
