"""The application: takes snapshots, shows the overview, opens dialogs, leaves the terminal as it found it."""

from __future__ import annotations

import asyncio
import gc
import signal
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from time import thread_time
from typing import TYPE_CHECKING, Any, ClassVar, cast

from textual import constants
from textual.command import Provider
from textual.message import Message
from textual.notifications import SeverityLevel
from textual.screen import Screen
from textual.theme import Theme

from mpstui.core.activity import ActivityLook
from mpstui.core.model import Daemon, ProcessKey, Server, Snapshot
from mpstui.core.trust import Meant
from mpstui.operations.operation import Operation
from mpstui.ui.contract import Collector, Memory, Runner, TimeMachine
from mpstui.ui.overview import offering
from mpstui.ui.plots import DeviceHistory
from mpstui.ui.private import forget_widths
from mpstui.ui.program import ScreenProgram
from mpstui.ui.typeahead import OPENING

if TYPE_CHECKING:
    from mpstui.commands import CommandTarget, Filled
    from mpstui.config import CommandSpec
    from mpstui.operations.types import Request
    from mpstui.ui.daemons.contract import DaemonBackend
    from mpstui.ui.load.contract import LoadBackend
    from mpstui.ui.load.session import LoadSession
    from mpstui.ui.plan.contract import PlanBackend
    from mpstui.ui.trouble.contract import TroubleBackend

_STOP_S = 5.0
"""Longest wait for the collector at the end."""
_COLLECT_S = 10.0
"""Seconds between two collections of all garbage at least, 1 to 2 ms each: Textual leaves some 200 objects a second in
circles, and left to itself the collector lets so many gather that memory grows by 2 MiB, and never comes back
(2026-11-22)."""


def _server_of(request: Request, daemon: Daemon) -> ProcessKey | None:
    found = daemon.find_server(request.server_pid) if request.server_pid is not None else None
    return found.key if found is not None else None


class NewSnapshot(Message):
    """The collector has a new snapshot; an older one that still waits is dropped."""

    def __init__(self, snapshot: Snapshot) -> None:
        super().__init__()
        self.snapshot = snapshot

    def can_replace(self, message: Message) -> bool:
        return isinstance(message, NewSnapshot)


def _palette() -> type[Provider]:
    """Imported when the palette is opened."""
    from mpstui.ui.dialogs.commands import ActionCommands

    return ActionCommands


class MpsTuiApp(ScreenProgram):
    """Returns the exit status: 0, or 128 and the number of the signal that ended it."""

    TITLE = "mpstui"
    COMMANDS: ClassVar[set[type[Provider] | Callable[[], type[Provider]]]] = {_palette}
    give_back: Callable[[], object] = staticmethod(lambda: None)
    """Called whenever garbage was collected: memory that is free goes to the system. Before the start."""

    def __init__(
        self,
        collector: Collector,
        runner: Runner,
        *,
        themes: Sequence[Theme] = (),
        theme: str = "",
        read_only: bool = False,
        messages: Sequence[str] = (),
        keys: Mapping[str, str] | None = None,
        load: LoadBackend | None = None,
        plans: PlanBackend | None = None,
        daemons: DaemonBackend | None = None,
        trouble: TroubleBackend | None = None,
        memory: Memory | None = None,
        taking_over: Callable[[], None] = lambda: None,
    ) -> None:
        """``messages`` are told at the start, e.g. about a broken
        theme. ``keys`` maps ids of bindings to the user's keys, settled by ``mpstui.ui.keymap.resolve``. ``load``
        starts test clients, ``plans`` keeps profiles, ``daemons`` starts and stops control daemons,
        ``trouble`` reads older events and checks the set-up, ``memory`` keeps the layout.
        ``taking_over`` is called when signals are heeded and the
        terminal is about to be taken.
        """
        super().__init__(themes, theme, keys)
        self.collector = collector
        self.runner = runner
        self.read_only = read_only or runner.read_only
        self._messages = tuple(messages)
        self._load_backend = load
        self.plans = plans
        self._daemon_backend = daemons
        self._trouble_backend = trouble
        self._taking_over = taking_over
        self.commands: Sequence[CommandSpec] = ()
        """The user's own, settled by ``mpstui.ui.keymap.usable``. Given before the start."""
        self._memory = memory
        self.history = self._live_history = DeviceHistory()
        self.past: TimeMachine | None = None
        """Moves what is shown in time. Before the start: where that can be."""
        self._past_note: str | None = None
        self.fleet = False
        """Whether ``mpstui fleet`` has opened this, and its end leads back there. Before the start."""
        self.load: LoadSession | None = None
        self._way_back: tuple[Request, Daemon] | None = None
        self._paused_at: float | None = None
        self._unsubscribe: Callable[[], None] | None = None
        self._starting: asyncio.Task[None] | None = None

    def get_default_screen(self) -> Screen[None]:
        self.overview = offering(self.commands)(self.runner, self._user_keys)
        return self.overview

    def begun(self) -> bool:
        return self.overview.knows and self.overview.placed

    def placed(self, screen: Screen[Any]) -> bool:
        return screen is not self.overview or self.overview.placed

    def taking_over(self) -> None:
        self._taking_over()

    # Beginning and end.

    async def on_mount(self) -> None:
        self._unsubscribe = self.collector.subscribe(self._receive)
        if self.past is not None:
            self.past.meanwhile(self._live_history.take)
        if self.collector.snapshot is not None:
            self.history.take(self.collector.snapshot)
            self._show(self.collector.snapshot)
        else:
            self._start_collector()
        self.overview.call_after_refresh(self._painted)

    def _painted(self) -> None:
        """The first screen is there: keep what was imported out of later garbage collections, watch, and tell the
        messages.

        Collections are switched on here for a caller who switched them off to start sooner.
        """
        self._start_collector()
        gc.freeze()
        gc.enable()
        self.set_timer(_COLLECT_S, self._settle)
        for text in self._messages:
            self.notify(text, title="Configuration", severity="warning", timeout=15, markup=False)

    def _start_collector(self) -> None:
        """Once. Where something is known already that is painted first: readings would hold it up."""
        if self._starting is None:
            self._starting = asyncio.create_task(self.collector.start())

    def _settle(self) -> None:
        """What is there by now stays, or ends with its clients without a collection: with 700 of them each took 30 ms,
        nearly all of it for these."""
        gc.collect()
        gc.freeze()
        self._tidy()

    def _tidy(self) -> None:
        """As often as a thousandth of a core allows."""
        begin = thread_time()
        forget_widths()
        gc.collect()
        self.give_back()
        self.set_timer(max(_COLLECT_S, 1000 * (thread_time() - begin)), self._tidy)

    async def ended(self) -> None:
        if self._unsubscribe is not None:
            self._unsubscribe()
        if self._starting is not None and not self._starting.done():
            self._starting.cancel()
        if self.load is not None:
            await self.load.close()
        with suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self.collector.stop(), _STOP_S)

    def action_quit_app(self) -> None:
        if self.load is None or not self.load.busy:
            self.exit(0)
            return
        from mpstui.ui.load.dialogs import LeaveDialog

        if not isinstance(self.screen, LeaveDialog):
            self.push_screen(LeaveDialog(self.load, lambda: self.exit(0)))

    # Snapshots.

    def _receive(self, snapshot: Snapshot) -> None:
        self.post_message(NewSnapshot(snapshot))

    def on_new_snapshot(self, message: NewSnapshot) -> None:
        self._remember_readings(message.snapshot)
        if self._paused_at is None:
            with self.typeahead.by_itself():
                self._show(message.snapshot)

    def _remember_readings(self, snapshot: Snapshot) -> None:
        """Of the past, what was before the moment that is shown."""
        if snapshot.past is None:
            self.history = self._live_history
        else:
            self.history = DeviceHistory()
            for each in self.past.earlier if self.past is not None else ():
                self.history.take(each)
            if snapshot.past.note not in {None, self._past_note}:
                self._past_note = snapshot.past.note
                self.notify(str(snapshot.past.note), title=snapshot.past.what, severity="warning", markup=False)
        self.history.take(snapshot)

    def travel(self, how: str, *values: object, done: Callable[[bool], None] = lambda went: None) -> None:
        """Move in time; what is typed right behind it is for what is seen then. ``done`` is told whether it went."""
        if self.past is None:
            self.notify("No earlier states are kept here.", severity="warning", markup=False)
            return
        self._paused_at = None
        work = self._travel(getattr(self.past, how), done, *values)
        self.run_worker(work, name=how, group=OPENING, exit_on_error=False)

    async def _travel(
        self, move: Callable[..., Awaitable[str | None]], done: Callable[[bool], None], *values: object
    ) -> None:
        why = await move(*values)
        done(why is None)
        if why is not None:
            self.notify(why, title="Time", severity="warning", markup=False, timeout=6)

    def save_past(self, file: str) -> None:
        if constants.DRIVER:
            told = "the screen in a browser writes no file on this machine"
            self.notify(told, title="Not saved", severity="warning", markup=False)
        elif self.past is not None:
            self.run_worker(self._save_past(self.past, file), exit_on_error=False)

    async def _save_past(self, past: TimeMachine, file: str) -> None:
        saved, said = await past.save(file)
        severity: SeverityLevel = "information" if saved else "warning"
        title = "Saved" if saved else "Not saved"
        self.notify(said, title=title, severity=severity, markup=False, timeout=15)

    def _show(self, snapshot: Snapshot | None) -> None:
        """Only what is seen is brought up to date: the screen in front, and under a window the one that it stands on,
        whose numbers would be other ones than the window's. The others catch up when they are in front again."""
        if not (self.is_running and self.screen_stack):  # a snapshot that was under way when the program ended
            return
        seen = [self.screen]
        while seen[0].is_modal and len(seen) < len(self.screen_stack):
            seen.insert(0, self.screen_stack[-1 - len(seen)])
        if self.screen is not self.overview:
            self.look_at(None)
        for each in seen:
            if each is self.overview:
                self.overview.apply(snapshot, self._paused_at)
            elif snapshot is not None and (update := getattr(each, "update_snapshot", None)) is not None:
                update(snapshot)

    @property
    def snapshot(self) -> Snapshot | None:
        """The newest snapshot, also while the screen is paused: nobody acts on an old one."""
        return self.collector.snapshot

    def catch_up(self) -> None:
        """Show the newest snapshot, unless the user has stopped the screen."""
        if self._paused_at is None:
            self._show(self.collector.snapshot)

    def action_pause(self) -> None:
        """Stop and go on; going on shows the newest snapshot at once."""
        if self.past is not None and self.past.toggle():
            return
        newest = self.collector.snapshot
        if self._paused_at is None and newest is not None:
            self._paused_at = newest.time
        else:
            self._paused_at = None
        self._show(newest)

    def look_at(self, pipe_dir: Path | None) -> None:
        self.collector.look_at(pipe_dir)

    async def activity(self, seconds: float) -> ActivityLook:
        return await self.collector.activity(seconds)

    def refresh_now(self, pipe_dir: Path | None) -> None:
        self.collector.request_refresh(pipe_dir)

    def remembered(self, name: str) -> object:
        return None if self._memory is None else self._memory.get(name)

    def remember(self, name: str, value: object) -> None:
        if self._memory is not None:
            self._memory.put(name, value)

    # Dialogs; imported when they are asked for.

    def open_action(
        self,
        action: Operation,
        pipe_dir: Path,
        snapshot: Snapshot,
        clients: tuple[ProcessKey, ...],
        server: Server | None,
        device: str | None,
        value: str = "",
    ) -> None:
        from mpstui.ui.dialogs import open_action

        key = server.key if server else None
        self.push_screen(
            open_action(
                self.runner, action, pipe_dir, snapshot, clients=clients, server=key, device=device, value=value
            )
        )

    def open_details(self, kind: str, identity: Hashable) -> None:
        from mpstui.ui.dialogs import DetailsScreen

        if self.snapshot is not None:
            self.push_screen(DetailsScreen(self.snapshot, kind, identity))

    def _stays_in_past(self, what: str) -> bool:
        """Whether the past is shown, and so a screen that is there to change something does not open; says why."""
        past = self.snapshot.past if self.snapshot is not None else None
        if past is not None:
            self.notify(past.why, title=what, severity="warning", markup=False)
        return past is not None

    def open_load(self, pipe_dir: Path | None) -> None:
        if self._stays_in_past("Load"):
            return
        if self._load_backend is None:
            return
        from mpstui.ui.load.screen import LoadScreen
        from mpstui.ui.load.session import LoadSession

        if self.load is None:
            self.load = LoadSession(self._load_backend)
            self.install_screen(LoadScreen(self.load, self.runner), "load")
        screen = cast("LoadScreen", self.get_screen("load"))
        screen.open_for(self.snapshot, pipe_dir)
        self.push_screen(screen)

    def open_plan(self, pipe_dir: Path | None, device: str | None = None) -> None:
        if self._stays_in_past("Plan"):
            return
        if self.plans is None:
            return
        from mpstui.ui.plan.screen import PlanScreen

        if not self.is_screen_installed("plan"):
            self.install_screen(PlanScreen(self.plans, self.runner), "plan")
        screen = cast("PlanScreen", self.get_screen("plan"))
        screen.open_for(self.snapshot, pipe_dir, device)
        self.push_screen(screen)

    def open_daemons(self, pipe_dir: Path | None) -> None:
        if self._stays_in_past("Daemons"):
            return
        if self._daemon_backend is None or self.plans is None:
            return
        from mpstui.ui.daemons.screen import DaemonScreen

        self.push_screen(DaemonScreen(self._daemon_backend, self.plans, self.runner, self.snapshot, pipe_dir))

    def open_partitions(self, pipe_dir: Path | None) -> None:
        from mpstui.ui.partitions.namespaces import NamespacesScreen
        from mpstui.ui.partitions.screen import PartitionsScreen

        daemon = self.snapshot.daemon(pipe_dir) if self.snapshot is not None and pipe_dir is not None else None
        screen = NamespacesScreen if daemon is not None and daemon.named_servers else PartitionsScreen
        self.push_screen(screen(self.runner, self.snapshot, pipe_dir))

    def open_request(self, action: Operation, request: Request) -> None:
        from mpstui.ui.dialogs import open_action

        if self.snapshot is not None:
            self.push_screen(
                open_action(self.runner, action, request.pipe_dir, self.snapshot, asked=request, device=request.device)
            )

    @property
    def can_take_back(self) -> bool:
        """Whether something was changed of which it is known what was before, and it is still there."""
        return self._way_back is not None and self._no_way_back(*self._way_back) is None

    def keep_way_back(self, back: Request, daemon: Daemon) -> None:
        """What takes the last change back, on that ``daemon``, as it was before, and no other."""
        self._way_back = back, daemon

    def _no_way_back(self, back: Request, then: Daemon) -> str | None:
        """Why what was changed is not there any more, as a clause."""
        now = self.snapshot.daemon(back.pipe_dir) if self.snapshot is not None else None
        meant = Meant(back.pipe_dir, then.speaker)
        if now is None or not now.runs or now.key != then.key or meant.why_not(now.speaker) is not None:
            return "the daemon that was changed is not there any more, so nothing can be undone"
        if back.server_pid is not None and _server_of(back, now) != _server_of(back, then):
            return f"server {back.server_pid} has ended, and its limits with it"
        return None

    def take_back(self) -> None:
        """Ask for what was before the last change: a change of its own."""
        from mpstui.operations.registry import operation
        from mpstui.ui.dialogs import open_action

        if self._stays_in_past("Undo") or self.snapshot is None:
            return
        if self._way_back is None:
            why: str | None = "nothing was changed here that can be undone"
        else:
            why = self._no_way_back(*self._way_back)
        if why is not None or self._way_back is None:
            self.notify(why or "", title="Undo", severity="warning", markup=False)
            return
        back, then = self._way_back
        action = operation(back.action)
        # The value of a limit stands in its field, where it can be seen and typed over.
        more: dict[str, Any] = {"value": back.value} if action.said_value(back) else {"asked": back}
        shown, where, server = self.snapshot, back.pipe_dir, _server_of(back, then)
        self.push_screen(open_action(self.runner, action, where, shown, server=server, device=back.device, **more))

    def open_trouble(self, name: str, pipe_dir: Path | None, identity: object) -> None:
        from mpstui.ui.trouble.opening import open_screen

        backend = self._trouble_backend
        self.push_screen(open_screen(name, self.runner, backend, self.snapshot, pipe_dir, identity))

    def open_own(self, spec: CommandSpec, target: CommandTarget) -> None:
        """Asks first, unless it is marked safe."""
        from mpstui.commands import RefusedError, fill, refusal
        from mpstui.ui.dialogs.user_command import OwnCommandDialog

        why = refusal(spec, read_only=self.read_only)
        if why is None and spec.terminal and not self.can_suspend:
            why = "it needs a terminal, and mpstui runs in a browser here"
        try:
            filled = fill(spec, self.snapshot, target)
        except RefusedError as error:
            why = why or str(error)
        if why is not None or self.snapshot is None:
            self.notify(why or "", title=spec.name, severity="warning", markup=False)
        elif spec.safe and spec.terminal:
            self.run_in_terminal(spec, filled)
        else:
            self.push_screen(
                OwnCommandDialog(
                    spec, self.snapshot, target, read_only=self.read_only, in_terminal=self.run_in_terminal
                )
            )

    @property
    def can_suspend(self) -> bool:
        """Whether there is a terminal that can be given to another program."""
        driver = self.terminal_driver
        return driver is not None and driver.can_suspend

    def run_in_terminal(self, spec: CommandSpec, filled: Filled) -> None:
        """Give the terminal to a command of the user's own until it ends."""
        from mpstui.commands import Ended, announce, conclude, run_in_terminal, stopped_by

        unwritten = announce(spec, filled)
        why = stopped_by(filled) or (None if spec.safe else unwritten)
        asked = None
        if why is None:
            with self.suspend():
                ended, asked = run_in_terminal(filled)
        else:
            ended = Ended(None, f"nothing was run: {why}")
        trouble = conclude(spec, filled, ended)
        if asked is not None:
            self._on_signal(signal.Signals(asked))
        elif not ended.good or trouble:
            words = "; ".join(filter(None, (ended.words, trouble if trouble != why else None)))
            self.notify(words, title=spec.name, severity="warning", timeout=15, markup=False)

    @property
    def load_keys(self) -> Mapping[ProcessKey, int]:
        """The load's own clients, with their numbers."""
        return self.load.keys if self.load is not None else {}

    @property
    def load_daemon(self) -> Path | None:
        """The pipe directory of the load's own daemon, where it has one."""
        return self.load.private_dir if self.load is not None else None

    def action_command_palette(self) -> None:
        self.open_palette("")

    def open_palette(self, text: str) -> None:
        from mpstui.ui.dialogs.commands import Palette

        if not isinstance(self.screen, Palette):
            self.push_screen(Palette(text))
