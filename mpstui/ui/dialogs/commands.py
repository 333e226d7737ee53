"""The command palette: every action, every key of the screen, and the themes, found by a few letters."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from functools import partial
from typing import Any, ClassVar, Final, Protocol, cast, runtime_checkable

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.command import Command as Entry
from textual.command import CommandInput, CommandList, CommandPalette, DiscoveryHit, Hit, Hits, Provider
from textual.content import Content
from textual.strip import Strip
from textual.theme import BUILTIN_THEMES
from textual.widgets import Input, OptionList

from mpstui.core.late import dataclass, pattern
from mpstui.core.model import Daemon, Snapshot
from mpstui.core.text import printable
from mpstui.operations.operation import Operation
from mpstui.operations.registry import ELSEWHERE
from mpstui.ui.bars import KeyBar, KeyHint
from mpstui.ui.contract import Host, Runner
from mpstui.ui.dialogs.command_words import Typed, commands, views
from mpstui.ui.dialogs.help import NOT_HERE
from mpstui.ui.keys import ACTION_PREFIX, written
from mpstui.ui.lines import StyledScreen, pointed
from mpstui.ui.private import begins

_NOT_LISTED: Final = NOT_HERE | {"press"}
"""A button is pressed where it is seen: the list covers what is asked."""
_BEGINS, _NAMED, _DESCRIBED = 1.0, 0.8, 0.01
_LONG = 4
"""Letters from which descriptions are looked through too: with fewer nearly all of them have a word that begins so."""
_WORDS: Final = pattern(r"\w+|[^\w\s]+")
_NOT_NOW: Final = "not now: "
_TYPED = 1000
"""What is typed by name stands above all that its letters are found in."""


IN_A_SHELL: Final = {
    "config": "config show",
    "doctor": "doctor",
    "explain": "explain CODE",
    "exporter": "exporter",
    "fleet": "fleet --hosts A,B",
    "record": "record FILE",
    "replay": "replay FILE",
    "status": "status",
    "tour": "tour",
    "web": "web",
    "why": "why PID",
}
"""Commands that are typed in a shell alone, and how."""


@runtime_checkable
class ActsOn(Protocol):
    """A screen that says what an action would be for."""

    @property
    def daemon(self) -> Daemon | None: ...

    def unavailable(self, action: Operation) -> str | None:
        """Why it cannot be used now."""


@runtime_checkable
class Shows(Protocol):
    """A screen of which one can say by name what it is to show."""

    def views(self) -> Mapping[str, Sequence[tuple[str, str]]]: ...

    def show_view(self, name: str, word: str) -> None: ...


@dataclass(frozen=True, slots=True)
class Command:
    """One entry of the palette."""

    title: str
    help: str
    run: Callable[[], Any]
    listed: bool = True
    """Whether it is shown before anything is typed. How to move in a list is not what a palette is opened for."""


def rank(query: str, title: str, help: str = "") -> float:
    """How well an entry is what is typed, 0: not at all. Each word of it begins a word of the title, in any order, or
    of what is said of it."""
    typed = query.lower().split()
    if not typed:
        return 0.0

    def has(text: str) -> bool:
        words = _WORDS.findall(text.lower())
        return all(any(word.startswith(part) for word in words) or part in text.lower().split() for part in typed)

    if has(title):
        return _BEGINS if title.lower().startswith(typed[0]) else _NAMED
    return _DESCRIBED if len(query.strip()) >= _LONG and has(help) else 0.0


def _marked(query: str, title: str) -> Content:
    """The title, with what is typed of it underlined."""
    content = Content(title)
    for part in query.lower().split():
        found = next((each for each in _WORDS.finditer(title.lower()) if each.group().startswith(part)), None)
        if found is not None:
            content = content.stylize("bold underline", found.start(), found.start() + len(part))
    return content


class ByName(partial[None]):
    """The command of an entry that is typed by name: Tab takes it into the line."""


class TypeOn(ByName):
    """Of one that is not whole: it can be typed on."""


class Query(CommandInput):
    """Textual's; a question mark is text behind other text alone, as a regular expression may have it."""

    def check_consume_key(self, key: str, character: str | None) -> bool:
        """Whether no binding is to get the key."""
        return super().check_consume_key(key, character) and (character != "?" or bool(self.value))


class Entries(CommandList, can_focus=False):
    """Textual's, with a sign before what Enter takes, as in all lists.

    It is as wide as its padding, its bar and a wide character at least, and cut where the terminal is not: Textual's
    wraps in no cell otherwise, which ends the program.
    """

    def render_line(self, y: int) -> Strip:
        strip, line = super().render_line(y), self.scroll_offset.y + y
        return pointed(strip) if begins(self, self.highlighted, line) else strip

    def action_page_up(self) -> None:
        if self.scrollable_content_region:  # without room Textual's has no line that it could go on from
            super().action_page_up()  # type: ignore[no-untyped-call]

    def action_page_down(self) -> None:
        if self.scrollable_content_region:
            super().action_page_down()  # type: ignore[no-untyped-call]


class Palette(CommandPalette):
    """Textual's, with its keys at its foot, as a dialog has them, and help: by F1, and by ? where nothing is typed."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("question_mark,f1", "app.show_help", "Help", show=False, priority=True),
        Binding("tab", "complete", "Complete", show=False),
    ]
    OFFERS_ACTIONS: ClassVar[bool] = False
    """Help over it names its own keys."""

    # Textual takes styles from the first base alone.
    COMPONENT_CLASSES = StyledScreen.COMPONENT_CLASSES
    DEFAULT_CSS = (
        StyledScreen.DEFAULT_CSS.replace("StyledScreen", "Palette")
        + """
    Palette {
        & > KeyBar { dock: bottom; }
        #--input { border-top: hkey $border; &.--list-visible { border-bottom: none; } }
        Entries { border-bottom: hkey $border; min-width: 8; }
    }
    """
    )

    def __init__(self, text: str = "") -> None:
        super().__init__(id="--command-palette")
        self._text = text
        self._named = ""
        """What stands at the cursor, where it is typed by name."""
        self._keys = KeyBar()

    def compose(self) -> ComposeResult:
        for widget in super().compose():
            if isinstance(widget, CommandInput):
                yield Query(placeholder=widget.placeholder, select_on_focus=False)
            else:
                yield Entries() if isinstance(widget, CommandList) else widget

    async def on_mount(self) -> None:
        if self._text:
            self._type(self._text)
        await self.mount(self._keys)
        self._tell_keys("run it")

    def _type(self, text: str) -> None:
        entry = self.query_one(Input)
        entry.value, entry.cursor_position = text, len(text)

    def _tell_keys(self, enter: str, why: str | None = None, by_name: bool = False) -> None:
        """``why``: why Enter does nothing with what the cursor is on; ``by_name``: Tab completes it."""
        tab = [KeyHint("Tab", "complete", "complete", 5)] if by_name else []
        self._keys.show(
            [
                KeyHint("Enter", enter, "command_list('select')", 7, why),
                KeyHint("↑↓", "choose", "none", 4),
                *tab,
                KeyHint("Esc", "close", "escape", 8),
                KeyHint("F1", "Help", "app.show_help", 6),
            ]
        )

    @on(OptionList.OptionHighlighted)
    def _moved(self, event: OptionList.OptionHighlighted) -> None:
        hit = event.option.hit if isinstance(event.option, Entry) else None
        told = (hit and hit.help) or ""
        self._named = hit.text or "" if isinstance(hit, Hit) and isinstance(hit.command, ByName) else ""
        types_on = isinstance(hit, Hit) and isinstance(hit.command, TypeOn)
        why = told if told.startswith(_NOT_NOW) else None
        self._tell_keys("type on" if types_on else "run it", why, bool(self._named))

    def action_complete(self) -> None:
        """Take what the cursor is on into the line, as a shell does."""
        if self._named:
            self._type(self._named)

    @on(KeyBar.Pressed)
    async def _key_pressed(self, message: KeyBar.Pressed) -> None:
        message.stop()
        if message.action != "none":
            await self.run_action(message.action)


class ActionCommands(Provider):
    """What can be done on the screen below; what cannot be done now is listed too, and says why."""

    async def startup(self) -> None:
        self.app.screen.query("SearchIcon").set(display=False)  # a picture that many terminals and fonts do not have

    async def discover(self) -> Hits:
        for command in filter(lambda command: command.listed, self.commands()):
            yield DiscoveryHit(Content(command.title), command.run, text=command.title, help=command.help)

    async def search(self, query: str) -> Hits:
        query = printable(query)
        found = False
        for number, typed in enumerate(self._typed(query)):
            found = True
            yield self._hit(_TYPED - number, typed)
        for command in self.commands():
            # "percentage" finds Threads; what has the word in its name stands above what has it in its description.
            if (score := rank(query, command.title, command.help if command.listed else "")) > 0:
                found = True
                title = _marked(query, command.title)
                yield Hit(score, title, command.run, text=command.title, help=command.help)
        if query.strip() and not found:
            for number, typed in enumerate(self._misread(query)):
                yield self._hit(_TYPED - number, typed)

    def _hit(self, score: int, typed: Typed) -> Hit:
        whole = typed.view is not None or typed.pipe_dir is not None or typed.operation is not None
        take = (ByName if whole else TypeOn)(self._take, typed)
        return Hit(
            score, Content(typed.shown or typed.text), take, text=typed.text, help=self._refused(typed) or typed.help
        )

    def _refused(self, typed: Typed) -> str:
        """Why what is typed whole is not done now; empty where it is."""
        runner: Runner | None = getattr(self.app, "runner", None)
        snapshot: Snapshot | None = getattr(self.app, "snapshot", None)
        daemon = self.screen.daemon if isinstance(self.screen, ActsOn) else None
        if typed.operation is None or runner is None or snapshot is None or daemon is None:
            return ""
        why = runner.unavailable(typed.operation, snapshot, daemon.pipe_dir, typed.clients)
        return f"{_NOT_NOW}{why}" if why else ""

    def _misread(self, query: str) -> Iterator[Typed]:
        """What to say where nothing is called so: that more was typed than a command takes, or what is called alike."""
        first, _, rest = query.strip().partition(" ")
        titles = [command.title for command in self.commands() if command.listed]
        begun = next((title for title in titles if title.lower().split(":")[0] == first.lower()), None)
        named = {title.lower().split(":")[0].split()[0] for title in titles}
        near = sorted(n for n in named if n.startswith(first.lower())) or get_close_matches(first.lower(), named, 3)
        if begun is not None and rest:
            yield Typed(first, f"“{rest}” is not understood: “{begun}” takes nothing more")
        elif (command := IN_A_SHELL.get(first.lower())) is not None:
            here = "; save FILE writes what this screen has kept" if first.lower() == "record" else ""
            yield Typed(query, f"not a command of the screen: type  mpstui {command}  in a shell{here}")
        else:
            hint = f"; did you mean {' or '.join(near)}?" if near else "."
            yield Typed(query, f"there is no such command{hint} Without a word all are listed")

    def commands(self) -> Iterator[Command]:
        """All entries: actions first, then the keys of the screen, then the themes."""
        runner: Runner | None = getattr(self.app, "runner", None)
        actions = runner.actions if runner and getattr(self.screen, "OFFERS_ACTIONS", True) else ()
        for action in actions:
            reason = self._unavailable(action)
            help_line = f"{_NOT_NOW}{reason}" if reason else f"{action.key}  {action.help}".lstrip()
            yield Command(action.title, help_line, partial(self._run, f"act('{action.id}')"))
        for action in ELSEWHERE if actions else ():
            screen = action.place
            help_line = f"{action.key} on the screen {screen}  {action.help}"
            # What this daemon has not, as namespaces, is found by its name alone.
            yield Command(action.title, help_line, partial(self._run, screen), self._unavailable(action) is None)
        own = {ACTION_PREFIX + action.id for action in actions} | {f"act('{action.id}')" for action in actions}
        seen: set[str] = set()
        for node, binding, enabled, tooltip in self.screen.active_bindings.values():
            known = binding.id in own or binding.action in own or binding.action in seen
            if known or not binding.description or not enabled or binding.system or binding.action in _NOT_LISTED:
                continue
            seen.add(binding.action)
            key = written(self.app.get_key_display(binding))
            help_line = f"{key}  {tooltip}" if tooltip else key
            run = partial(self.app.run_action, binding.action, node)
            yield Command(binding.description, help_line, run, not (binding.id or "").startswith("move."))
        for name in sorted(set(self.app.available_themes) - set(BUILTIN_THEMES)):
            yield Command(f"Theme: {name}", "colours of the screen", partial(setattr, self.app, "theme", name))

    def _typed(self, query: str) -> Iterator[Typed]:
        """What is typed by name, on a screen that offers the operations."""
        runner: Runner | None = getattr(self.app, "runner", None)
        if runner is not None and isinstance(self.screen, ActsOn) and getattr(self.screen, "OFFERS_ACTIONS", True):
            if isinstance(self.screen, Shows):
                yield from views(query, self.screen.views())
            yield from commands(query, runner.actions, getattr(self.app, "snapshot", None), self.screen.daemon)

    def _take(self, typed: Typed) -> None:
        """Open the dialog; what is not whole yet can be typed on."""
        screen: Any = self.screen
        if typed.view is not None:
            screen.show_view(*typed.view)
        elif typed.pipe_dir is not None:
            screen.pick(typed.pipe_dir)
        elif typed.operation is not None:
            screen.open_typed(typed)
        else:
            cast("Host", self.app).open_palette(typed.text)

    async def _run(self, action: str) -> None:
        await self.app.run_action(action, self.screen)

    def _unavailable(self, action: Operation) -> str | None:
        return self.screen.unavailable(action) if isinstance(self.screen, ActsOn) else None
