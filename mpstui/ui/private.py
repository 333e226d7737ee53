"""All that mpstui uses of Textual and Rich without their saying that it is for others; no other file does.

Each of it is looked for before it is used. Where a release has it no longer, or in another form, plain Textual does the
work: whole regions are written instead of the cells that differ, what a timer has lost comes with the next change, the
terminal's size and keys come as Textual reads them. ``tests/pty/test_pty_private.py`` takes the names away to see it.
"""

from __future__ import annotations

import importlib
import inspect
import termios
import tty
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar, cast

from rich.color import ColorSystem
from rich.console import Console, RenderableType
from rich.style import Style
from textual import events
from textual.app import App, ScreenError
from textual.content import Content
from textual.css.query import QueryError
from textual.dom import NoScreen
from textual.drivers.linux_driver import LinuxDriver
from textual.geometry import Size
from textual.message import Message
from textual.screen import Screen
from textual.strip import Strip
from textual.timer import Timer
from textual.widget import Widget
from textual.widgets import OptionList

from mpstui.ui.rawinput import Piece

R = TypeVar("R")


def _of(module: str, name: str) -> Any:
    """What a module of Textual's has by that name; None where there is none."""
    try:
        return getattr(importlib.import_module(module), name, None)
    except ImportError:
        return None


# What is painted.

_CompositorUpdate: Any = _of("textual._compositor", "CompositorUpdate")
_LayoutUpdate: Any = _of("textual._compositor", "LayoutUpdate")
_ChopsUpdate: Any = _of("textual._compositor", "ChopsUpdate")
_APP = ("_batch_count", "_running", "_closed", "_previous_cursor_position")
"""Of the app: whether Textual would write an update to the terminal now, and what it remembers of that."""


_widths: Any = _of("rich.cells", "cached_cell_len")
_WIDTHS = 1024


def forget_widths() -> None:
    """Rich remembers the widths of 4,096 texts, whole lines among them: a MiB, which takes an hour to fill."""
    told = getattr(_widths, "cache_info", None)
    if told is not None and told().currsize > _WIDTHS:
        _widths.cache_clear()


def begins(options: OptionList, entry: int | None, line: int) -> bool:
    """Whether that line of the list is the first one of this entry; never, where that cannot be seen."""
    lines = getattr(options, "_lines", None)
    return isinstance(lines, Sequence) and entry is not None and list(lines[line : line + 1]) == [(entry, 0)]


def leaving(app: App[Any]) -> bool:
    """Whether the program is on its way out; False where that is not known."""
    return bool(getattr(app, "_exit", False))


class Update(NamedTuple):
    """What Textual wants to have written."""

    size: Size | None
    """Of the screen, where it is all of it."""
    spans: Iterable[tuple[int, int, list[Strip]]]
    """Line, column, and what stands from there on."""


def update_of(renderable: object) -> Update | None:
    """None where it is not a kind of update known here."""
    if _LayoutUpdate is not None and isinstance(renderable, _LayoutUpdate) and _has(renderable, "region", "strips"):
        region, strips = cast("Any", renderable).region, cast("Any", renderable).strips
        if region.x or region.y:
            return None
        return Update(region.size, ((y, 0, list(line)) for y, line in enumerate(strips)))
    if _ChopsUpdate is not None and isinstance(renderable, _ChopsUpdate) and _has(renderable, "spans", "chops"):
        return Update(None, _chops(cast("Any", renderable)))
    return None


def _chops(update: Any) -> Iterator[tuple[int, int, list[Strip]]]:
    for y, left, right in update.spans:
        for end, (x, strip) in zip(update.chop_ends[y], update.chops[y].items(), strict=False):
            if strip is not None and x < right and end > left:
                start = max(x, left)
                yield y, start, [strip.crop(start - x, min(end, right) - x)]


def colours_of(console: Console) -> ColorSystem:
    """How many colours the terminal has."""
    return getattr(console, "_color_system", None) or ColorSystem.TRUECOLOR


def sgr_of(style: Style, system: ColorSystem) -> str:
    """The parameters of the sequence that takes a terminal without any style to this one."""
    known = getattr(style, "_ansi", None)
    if isinstance(known, str):
        return known
    render = getattr(Strip, "render_ansi", None)
    return cast("str", render(style, system)) if render is not None else _sgr_drawn(style, system)


@lru_cache(maxsize=4096)
def _sgr_drawn(style: Style, system: ColorSystem) -> str:
    drawn = style.render("x", color_system=system)
    return drawn[2 : drawn.index("m")] if drawn.startswith("\x1b[") else ""


if _CompositorUpdate is not None:

    class _Written(_CompositorUpdate):  # type: ignore[misc]
        """An update that is a terminal sequence already."""

        def __init__(self, sequence: str) -> None:
            self.sequence = sequence

        def render_segments(self, console: Console) -> str:
            return self.sequence


_Compositor: Any = _of("textual._compositor", "Compositor")
_PLACES = ("_full_map", "_visible_map", "_dirty_regions", "reflow", "reflow_visible", "render_update", "clear")
"""Of the compositor: where the widgets are, and what of them is to be painted."""
_MADE_OF_PLACES = ("_cuts", "_layers", "_layers_visible")
"""What it keeps of that."""


def _seen(places: Any) -> dict[Any, Any]:
    """What can be seen of each widget."""
    parts = ((widget, place.clip.intersection(place.region)) for widget, place in places.items())
    return {widget: part for widget, part in parts if part}


if _Compositor is not None:

    class _PaintedCompositor(_Compositor):  # type: ignore[misc]
        """Has written after a layout all that is not where it was when the screen was last laid out and painted.

        Textual compares with its newest arrangement. It makes one also to answer where a widget is, of which nothing is
        painted: the layout that follows finds no difference then, and a notification, say, stays where it was below one
        that has come. What is painted before that layout is painted by the newest arrangement, cut where the one before
        it had edges: part of a notification is blank then, or where it is not. And where no layout follows for a while,
        as of a notification that has gone before what it stood in, nothing paints the answer: so one is asked for.
        """

        def __init__(self) -> None:
            super().__init__()
            self._laid_out: Any = {}
            """Every widget's place at the last whole layout."""
            self._on_screen: Any = {}
            """The places of those that can be seen, at the last layout or scroll."""
            self._asked = False
            """Whether a layout was asked for since the last one."""
            self._painting = self._mixed = False
            """Whether a part is painted now, and an arrangement was made meanwhile: rows are cut as that has them."""

        def clear(self) -> None:
            super().clear()
            self._laid_out, self._on_screen = {}, {}

        def reflow(self, parent: Any, size: Size) -> Any:
            self._full_map, self._asked = self._laid_out, False
            result = super().reflow(parent, size)
            self._laid_out = self._full_map
            self._mark(self._full_map, size)
            return result

        def reflow_visible(self, parent: Any, size: Size) -> Any:
            exposed = super().reflow_visible(parent, size)
            self._mark(self._visible_map, size)
            return exposed

        @property
        def full_map(self) -> Any:
            """Where all widgets are; made anew where that is not known any more."""
            before, places = self._full_map, super().full_map
            if places is not before:
                for name in _MADE_OF_PLACES:
                    setattr(self, name, None)
                root = self.root  # None before the first layout
                if root is not None and root.is_running and _seen(places) != _seen(self._on_screen):
                    if not self._asked:
                        self._asked = True
                        root.call_later(root.refresh, repaint=False, layout=True)
                    self._mixed = self._painting
            return places

        def render_update(self, *args: Any, **options: Any) -> Any:
            places = self._full_map if self._visible_map is None else self._visible_map
            if places is not self._on_screen:
                self._mark(places, self.size)
            self._painting, self._mixed = True, False
            try:
                return super().render_update(*args, **options)
            finally:
                self._painting = False
                if self._mixed:
                    self._on_screen = {}  # whatever it is

        def _mark(self, places: Any, size: Size) -> None:
            """Have painted again what has come, gone or moved."""
            changes = places.items() ^ self._on_screen.items()
            self._on_screen = places
            if size.region not in self._dirty_regions:
                seen = (place.clip.intersection(place.region) for _, place in changes)
                self._dirty_regions.update(region for region in seen if region)


_run_timer: Any = getattr(Timer, "_run", None)

if inspect.iscoroutinefunction(_run_timer):

    async def _run_once(timer: Any) -> None:
        """The one tick of a timer that has one comes, however late; such are the ends of a change of size, of a batch
        of updates and of a notification.

        Textual's is skipped where it is late before it has begun to wait: a process that is not let run at that moment
        would never follow the terminal's size again, paint nothing after a batch, or leave a notification for good. And
        one that should have been before it began, as the end of a notification that is over when it is put up, is
        waited for in a circle that nothing leaves.
        """
        if _has(timer, "_repeat", "_skip", "_interval") and timer._repeat == 0:
            timer._skip, timer._interval = False, max(0.0, timer._interval)
        await _run_timer(timer)

    Timer._run = _run_once  # type: ignore[assignment, method-assign]


_Toast: Any = _of("textual.widgets._toast", "Toast")


def toast_racks(screen: Screen[Any]) -> list[Widget]:
    """What holds its notifications. Asked for each second: a query of Textual's costs ten times as much."""
    return [each for each in screen.children if type(each).__name__ == "ToastRack"]


def _in_a_line(toast: Any) -> None:
    """Have a notification's title stand before its text, and not on a line above it."""
    told, above = toast._notification, toast.render

    def beside() -> Content:
        if not told.title or told.markup:
            return cast("Content", above())
        title = toast.get_visual_style("toast--title")
        return Content.assemble((told.title, title), "  ", told.message)

    toast.render = beside


class WritingApp(App[R]):
    """An app that may write something else to the terminal than Textual would."""

    lines_taken: int = 0
    """Lines at the foot of each screen that are not the screen's."""
    mistake: Exception | None = None
    """What a mistake of the program's own has ended it with."""

    def _register(self, parent: Any, *widgets: Any, **options: Any) -> Any:
        """Every screen comes this way before it is laid out for the first time, the first one and Textual's own too; so
        does each notification."""
        for widget in widgets:
            if isinstance(widget, Screen) and _Compositor is not None:
                plain: Any = getattr(widget, "_compositor", None)
                if type(plain) is _Compositor and _has(plain, *_PLACES, *_MADE_OF_PLACES):
                    widget._compositor = _PaintedCompositor()
            elif _Toast is not None and isinstance(widget, _Toast) and _has(widget, "_notification"):
                _in_a_line(widget)
        return super()._register(parent, *widgets, **options)

    def on_exit_app(self) -> None:
        """A browser's tab that goes ends the program by this message alone; from here on it is leaving too."""
        if not leaving(self):
            self.exit(cast("R", 0))

    def _handle_exception(self, error: Exception) -> None:
        """What is looked for in vain on the way out has been taken down before, or was never put up."""
        if leaving(self) and isinstance(error, QueryError | NoScreen | ScreenError):
            return
        super()._handle_exception(error)
        if _has(self, "_exit_renderables"):
            self.mistake = self.mistake or error
            self._exit_renderables.clear()

    def finish(self, **options: Any) -> R | None:
        """Run it to its end. Raises what a mistake of the program's own has ended it with: whoever runs the program
        says so, where Textual would write the traceback, with the values of all variables, to the terminal."""
        answer = self.run(**options)
        if self.mistake is not None:
            raise self.mistake
        return answer

    def written_instead(self, update: Update | None, screen: Screen[Any]) -> str | None:
        """The sequence to write for an update, empty where nothing is to be written; None for Textual's own.

        ``update`` is None where it is of a kind that is not known.
        """
        raise NotImplementedError

    def written(self) -> None:
        """What was to be painted has just been written."""
        raise NotImplementedError

    def whole(self, screen: Screen[Any]) -> Update | None:
        """All of the screen, as it is now; None where that cannot be had."""
        return update_of(self._all_of(screen))

    def _all_of(self, screen: Screen[Any]) -> RenderableType | None:
        if not self._can_write_all(screen):
            return None
        compositor = cast("Any", screen)._compositor
        return cast("RenderableType", compositor.render_update(full=True, screen_stack=self._background_screens))

    def _can_write_all(self, screen: Screen[Any]) -> bool:
        known = _has(screen, "_compositor", "_refresh_layout") and _has(self, "_background_screens")
        return known and hasattr(App, "_display") and hasattr(cast("Any", screen)._compositor, "render_update")

    def write_all(self, screen: Screen[Any]) -> None:
        """Have all of the screen laid out and written, at once where that can be had."""
        if not (screen.is_mounted and screen.is_running):  # it has no widgets yet, or none any more
            return
        if self._can_write_all(screen) and not getattr(self, "_batch_count", 0):
            screen._refresh_layout(self.size)
            self._display(screen, self._all_of(screen))
        else:
            self.refresh(layout=True)

    def unpainted(self, screen: Screen[Any]) -> bool:
        """Whether something of the screen waits to be painted; False, where that is not known."""
        names = ("_layout_required", "_repaint_required", "_dirty_widgets")
        return any(bool(getattr(screen, name, False)) for name in names)

    def paint(self, screen: Screen[Any]) -> None:
        """Paint what waits for it, whatever has become of the timer that does so."""
        tick = getattr(screen, "_on_timer_update", None)
        if tick is not None:
            tick()
        else:
            screen.refresh()

    def _writes(self) -> bool:
        """Whether Textual would write an update to the terminal now, and in the way known here."""
        driver = self.terminal_driver
        if driver is None or driver.is_inline or self.is_headless or not _has(self, *_APP):
            return False
        return bool(self._running and not self._closed and not self._batch_count)

    @property
    def terminal_driver(self) -> Any:
        """What the app writes to; None before it has one."""
        return getattr(self, "_driver", None)

    def _display(self, screen: Screen[Any], renderable: RenderableType | None) -> None:
        if _CompositorUpdate is not None and isinstance(renderable, _CompositorUpdate) and self._writes():
            sequence = self.written_instead(update_of(renderable), screen)
            if sequence == "" and self.cursor_position == self._previous_cursor_position:
                self.post_display_hook()
                self.written()
                return
            if sequence is not None:
                renderable = cast("RenderableType", _Written(sequence))
        super()._display(screen, renderable)
        if renderable is None:
            return
        if getattr(self, "_batch_count", 0):
            # What a layout puts off to the end of one batch of updates can come in the next one: Textual forgets then
            # what was to be painted, and writes nothing. A notification stayed blank, or as the one before it was.
            screen.refresh()
        else:
            self.written()

    def post_display_hook(self) -> None:
        if not hasattr(App, "_display"):
            self.written()


# What is typed, and the terminal itself.

_XTermParser: Any = _of("textual._xterm_parser", "XTermParser")


class PrivateDriver(LinuxDriver):
    """Textual's driver; a subclass has a say in the terminal's size, the output and the way back from a stop."""

    def size_now(self) -> Size | None:
        """The terminal's size; None for what Textual finds out."""
        raise NotImplementedError

    def came_back(self) -> None:
        """The process goes on after a stop that the program has not asked for: the keyboard is as Textual has it."""
        raise NotImplementedError

    def tell_lost(self) -> None:
        """The terminal is gone."""
        raise NotImplementedError

    def write_to(self, file: object) -> None:
        """Have all output go there."""
        self._file = cast("Any", file)

    def told_of_stop(self) -> None:
        """Have the app told when the process goes on."""
        self._must_signal_resume = True

    def _get_terminal_size(self) -> tuple[int, int]:
        return self.size_now() or super()._get_terminal_size()

    def _query_in_band_window_resize(self) -> None:
        """Not asked for: a terminal that answers is heard instead of the kernel, and counts the mouse in pixels."""

    def _sigcont_application(self, *args: object) -> None:
        """Go on. After a bare SIGSTOP the screen is as it was, but a shell has taken the keyboard back, and written."""
        if getattr(self, "_must_signal_resume", True) or not _has(self, "_patch_lflag", "_patch_iflag"):
            super()._sigcont_application(*args)
            return
        try:
            now = termios.tcgetattr(self.fileno)
            now[tty.LFLAG], now[tty.IFLAG] = self._patch_lflag(now[tty.LFLAG]), self._patch_iflag(now[tty.IFLAG])
            now[tty.CC][termios.VMIN] = 1
            termios.tcsetattr(self.fileno, termios.TCSANOW, now)
        except termios.error:
            self.tell_lost()
        self.came_back()


def reader() -> Callable[[Iterable[Piece]], Iterator[Message]] | None:
    """What makes events of what was typed; None where only Textual's driver can."""
    if _XTermParser is None or not _has(_XTermParser, "feed", "tick"):
        return None
    parser = _XTermParser(False)
    if not hasattr(parser, "_timeout_time"):
        return None

    def read(pieces: Iterable[Piece]) -> Iterator[Message]:
        for piece in pieces:
            if piece.kind == "escape":
                yield events.Key("escape", piece.text)
            elif piece.kind == "paste":
                yield events.Paste(piece.text)
            else:
                yield from parser.feed(piece.text)
                if parser._timeout_time is not None:  # a sequence that nobody knows: its characters are no keys
                    parser._timeout_time = 0.0
                    for _ in parser.tick():
                        pass

    return read


def _has(thing: object, *names: str) -> bool:
    return all(hasattr(thing, name) for name in names)
