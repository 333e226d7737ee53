"""What the screen goes by, a node and its operations as the Python interface has them, and what the overview needs of
the application."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from mpstui.api import Collector as Collector
from mpstui.api import Runner as Runner
from mpstui.config import CommandSpec
from mpstui.core.activity import ActivityLook
from mpstui.core.model import ProcessKey, Server, Snapshot
from mpstui.operations.operation import Operation
from mpstui.operations.types import READ_ONLY, Request
from mpstui.ui.plots import DeviceHistory

if TYPE_CHECKING:
    from mpstui.commands import CommandTarget


def none_now(read_only: bool, snapshot: Snapshot | None) -> str | None:
    """Why no operation at all can be used, for whomever; None where some can."""
    if snapshot is not None and snapshot.past is not None:
        return snapshot.past.why
    return READ_ONLY if read_only else None


class Memory(Protocol):
    """What is kept from one start of the screen to the next."""

    def get(self, name: str, /) -> object: ...

    def put(self, name: str, value: object, /) -> None: ...


class TimeMachine(Protocol):
    """Moves what is shown in time. What answers a text has not moved, for that reason."""

    @property
    def earlier(self) -> Sequence[Snapshot]:
        """Some of what was before the moment that is shown, oldest first."""

    @property
    def begin(self) -> float | None:
        """When what is kept begins; None: not known yet."""

    def meanwhile(self, callback: Callable[[Snapshot], None], /) -> None:
        """Tell it of now, while the past is shown."""

    async def step(self, events: int, /) -> str | None: ...

    async def move(self, seconds: float, /) -> str | None: ...

    async def jump(self, text: str, /) -> str | None: ...

    async def to_end(self) -> str | None: ...

    async def save(self, text: str, /) -> tuple[bool, str]:
        """Write what is kept into the file of that name; whether it was, and a sentence."""

    def toggle(self) -> bool:
        """Let time go on, or stand; False where it is now that is shown."""


class Host(Protocol):
    """What the overview asks of the application."""

    fleet: bool
    past: TimeMachine | None

    def action_quit_app(self) -> None: ...

    def travel(self, how: str, *values: object, done: Callable[[bool], None] = ...) -> None:
        """Move in time: one of the ways of a ``TimeMachine``."""

    def save_past(self, file: str) -> None:
        """Write what is kept of the past into that file."""

    def open_palette(self, text: str) -> None:
        """The line that takes commands by name, with that typed into it."""

    def catch_up(self) -> None: ...

    def remembered(self, name: str) -> object:
        """What was kept under that name, also by an earlier start: any value that JSON has, None where nothing was."""

    def remember(self, name: str, value: object) -> None:
        """Keep it for the next start too."""

    def refresh_now(self, pipe_dir: Path | None) -> None: ...

    @property
    def history(self) -> DeviceHistory:
        """The devices' readings since the start."""

    def look_at(self, pipe_dir: Path | None) -> None:
        """The daemon whose clients are shown."""

    def open_details(self, kind: str, identity: Hashable) -> None: ...

    def open_load(self, pipe_dir: Path | None) -> None:
        """The panel of test clients, for the daemon in ``pipe_dir``."""

    def open_plan(self, pipe_dir: Path | None, device: str | None = None) -> None:
        """The plan screen, for the daemon in ``pipe_dir``, and for this device where one is meant."""

    def open_daemons(self, pipe_dir: Path | None) -> None:
        """The screen of the control daemons."""

    def open_partitions(self, pipe_dir: Path | None) -> None:
        """The static partitions of the daemon in ``pipe_dir``."""

    def open_request(self, action: Operation, request: Request) -> None:
        """The dialog of an operation that begins with this request."""

    @property
    def can_take_back(self) -> bool:
        """Whether something was changed of which it is known what was before."""

    def take_back(self) -> None:
        """Ask for what was before the last change."""

    async def activity(self, seconds: float) -> ActivityLook:
        """Count the kernel launches of everybody for so long."""

    def open_own(self, spec: CommandSpec, target: CommandTarget) -> None:
        """A command of the user's own, for a row of the overview."""

    def open_trouble(self, name: str, pipe_dir: Path | None, identity: object) -> None:
        """One of the screens of ``mpstui.ui.trouble.opening``."""

    @property
    def keymap(self) -> Mapping[str, str]:
        """The user's keys by id of a binding."""

    @property
    def load_keys(self) -> Mapping[ProcessKey, int]:
        """Test clients that this program runs, with their numbers."""

    @property
    def load_daemon(self) -> Path | None:
        """The pipe directory of the daemon that was started for those alone."""

    def open_action(
        self,
        action: Operation,
        pipe_dir: Path,
        snapshot: Snapshot,
        clients: tuple[ProcessKey, ...],
        server: Server | None,
        device: str | None,
        value: str = "",
    ) -> None: ...
