"""What is painted after a layout is all that has moved, whatever else has been asked of the arrangement meanwhile."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pyte
import pytest
from rich.cells import cell_len
from settled import settled
from textual import _time
from textual.geometry import Region
from textual.screen import Screen

from mpstui.core.model import Problem
from mpstui.operations.registry import OPERATIONS
from mpstui.ui.dialogs import HelpScreen
from mpstui.ui.diff import ScreenDiff
from mpstui.ui.lines import LineWidget
from mpstui.ui.private import update_of

from .screen import make_app, text_of, until
from .snapshots import one_daemon

SIZE = (100, 30)


class Paper:
    """What a terminal would show of all that the app has had displayed."""

    def __init__(self, app: Any) -> None:
        self.app = app
        self.diff = ScreenDiff()
        self.screen = pyte.Screen(*SIZE)
        self.stream = pyte.Stream(self.screen)
        self.stream.feed("\x1b[?7l")
        display = app._display

        def displayed(screen: Screen[object], renderable: Any) -> None:
            display(screen, renderable)
            if renderable is not None and not app._batch_count:
                self.write(renderable)

        app._display = displayed

    def write(self, update: Any) -> None:
        known = update_of(update)
        sequence = None if known is None else self.diff.sequence(known, self.app.console)
        if sequence is None:
            sequence = self.diff.sequence(self.app.whole(self.app.screen), self.app.console)
        self.stream.feed(sequence)

    def missing(self) -> str:
        """What a whole repaint would still write."""
        return self.diff.sequence(self.app.whole(self.app.screen), self.app.console)


@pytest.mark.slow
async def test_a_notification_moves_up_for_the_next_one_behind_a_scroll() -> None:
    app = make_app(one_daemon())
    async with app.run_test(size=SIZE, notifications=True) as pilot:
        paper = Paper(app)
        app.action_redraw()
        for key in ("question_mark", "G", "home", "end"):
            await pilot.press(key)
            app.notify("one\ntwo\nthree", title=f"before {key}", timeout=600)
            await pilot.pause()
            assert not paper.missing(), f"after {key}\n" + "\n".join(paper.screen.display)


async def test_what_was_painted_somewhere_else_meanwhile_is_painted_over() -> None:
    """Where a widget is can be asked while it moves; what is painted then is painted by that answer."""
    app = make_app(one_daemon())
    async with app.run_test(size=SIZE, notifications=True) as pilot:
        app.notify("\n".join("ABCDEFGH"), timeout=600)
        await pilot.pause()
        paper, screen = Paper(app), app.screen
        app.action_redraw()
        toast, compositor = screen.query_one("Toast"), screen._compositor

        def move(x: int, y: int) -> Region:
            toast.styles.offset = (x, y)
            toast.parent._clear_arrangement_cache()
            compositor._full_map_invalidated = True
            return compositor.full_map[toast].region

        for x, y in ((0, -2), (-9, 0), (0, -12)):
            before = toast.region
            assert move(x, y) == before.translate((x, y))
            compositor._dirty_regions.add(Region(45, SIZE[1] - 10, 50, 4))
            screen._compositor_refresh()
            move(0, 0)
            screen._refresh_layout()
            assert toast.region == before
            assert not paper.missing(), f"{x}, {y}\n" + "\n".join(paper.screen.display)


async def test_what_was_cut_by_an_arrangement_that_was_made_while_it_was_painted_is_painted_over() -> None:
    """A monkey saw the border of a dialog a cell too far to the left: its rows were as long as another arrangement had
    them, which was made while they were painted, and was none any more at the next layout."""
    app = make_app(one_daemon())
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("f2")
        await pilot.pause()
        paper, screen = Paper(app), app.screen
        app.action_redraw()
        box, compositor = screen.query_one("#box"), screen._compositor
        width = box.region.width
        first = screen.query_one("#columns")
        render_lines = first.render_lines

        def asks(crop: Region) -> Any:
            assert compositor.full_map
            return render_lines(crop)

        first.render_lines = asks
        compositor.reflow_visible(screen, screen.size)
        box.styles.max_width = width - 3
        screen._clear_arrangement_cache()
        app._display(screen, compositor.render_update(full=True, screen_stack=app._background_screens))
        assert box.region.width == width - 3, "the other arrangement"
        box.styles.max_width = width
        await settled()
        await pilot.pause()
        assert box.region.width == width
        assert not paper.missing(), "\n".join(paper.screen.display)


@pytest.mark.parametrize("wide", [132, 60])
async def test_what_is_painted_before_its_lines_fit_again_moves_nothing_beside_it(
    monkeypatch: pytest.MonkeyPatch, wide: int
) -> None:
    """A monkey saw all that stood right of a list a cell too far to the left: its lines had the width of before, and
    said that they had the new one."""
    app = make_app(one_daemon())
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("f2")
        await pilot.pause()
        monkeypatch.setattr(LineWidget, "on_resize", lambda _: None)  # it has not come yet
        await pilot.resize_terminal(wide, 40)
        await pilot.pause()
        whole = app.whole(app.screen)
        assert whole is not None
        widths = [sum(cell_len(strip.text) for strip in strips) for _, _, strips in whole.spans]
        assert widths == [wide] * 40


@pytest.mark.slow
async def test_what_has_gone_is_painted_over_also_while_its_layout_is_waited_for() -> None:
    """Over a dialog, the one below it has the same notification there, dimmed; the app asks for the layout once it has
    done what it is at."""
    app = make_app(one_daemon())
    async with app.run_test(size=SIZE, notifications=True) as pilot:
        app.notify("one", timeout=600)
        await pilot.press("question_mark")
        app.notify("two", timeout=600)
        await pilot.pause()
        paper, screen, done = Paper(app), app.screen, asyncio.Event()
        app.action_redraw()
        app.call_next(done.wait)
        screen.query("Toast").first()._expire()
        for _ in range(1000):
            await asyncio.sleep(0)
        assert len(screen.query("Toast")) == 1
        screen._compositor._full_map_invalidated = True
        assert screen.query("Toast").first().region
        await settled()
        missing = paper.missing()
        done.set()
        await pilot.pause()
        assert not missing, "\n".join(paper.screen.display)
        assert not paper.missing()


async def test_nothing_is_anywhere_before_the_first_layout() -> None:
    app = make_app(one_daemon())
    async with app.run_test(size=SIZE):
        assert type(app.screen._compositor)().full_map == {}


async def test_the_place_of_a_notification_is_put_right_without_a_key() -> None:
    """While it stands there, and when it has gone."""
    app = make_app(one_daemon())
    async with app.run_test(size=SIZE, notifications=True) as pilot:
        paper = Paper(app)
        app.action_redraw()
        app.notify("one", timeout=600)
        await pilot.pause()
        for _ in range(2):
            sequence = f"\x1b[{SIZE[1] - 3};{SIZE[0] - 9}H~~~~~~~~"
            paper.diff._chars[SIZE[1] - 4][SIZE[0] - 10 : SIZE[0] - 2] = "~" * 8
            paper.stream.feed(sequence)
            app._looks = 0
            app._heal()
            assert not paper.missing(), "\n".join(paper.screen.display)
            app.clear_notifications()
            await pilot.pause()


async def test_what_a_change_of_size_has_left_is_put_right_without_a_key() -> None:
    """A monkey saw the scrollbar of a dialog stay after a small terminal had become a large one."""
    app = make_app(one_daemon())
    async with app.run_test(size=SIZE) as pilot:
        paper = Paper(app)
        for size in ((40, 10), SIZE):
            app._looks = 0
            await pilot.resize_terminal(*size)
            await pilot.pause()
        paper.diff._chars[SIZE[1] - 4][SIZE[0] - 10 : SIZE[0] - 2] = "~" * 8
        paper.stream.feed(f"\x1b[{SIZE[1] - 3};{SIZE[0] - 9}H~~~~~~~~")
        app._heal()
        assert not paper.missing(), "\n".join(paper.screen.display)


@pytest.mark.slow
async def test_a_screen_without_its_widgets_is_not_written() -> None:
    app = make_app(one_daemon())
    async with app.run_test(size=SIZE) as pilot:
        app._writes = lambda: True
        app.push_screen(HelpScreen(OPERATIONS))
        assert not app.screen.is_mounted
        app.action_redraw()
        app._looks = 1
        app._heal()
        await pilot.pause()
        assert "Help" in text_of(app)


@pytest.mark.parametrize("seconds", [1 / 120, 0.0, -1.0])
async def test_the_one_tick_of_a_timer_comes_however_late(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """A process that is not let run between two looks at the clock; a notification that is over when it is put up."""
    told = []
    late = 0.0
    clock = _time.get_time

    def get_time() -> float:
        nonlocal late
        task = asyncio.current_task()
        if task is not None and task.get_name() == "late":
            late += 1.0
            return clock() + late
        return clock()

    monkeypatch.setattr(_time, "get_time", get_time)
    app = make_app(one_daemon())
    async with app.run_test(size=SIZE) as pilot:
        for waits in (app, app.overview):
            waits.set_timer(seconds, lambda: told.append(late), name="late")
        await until(pilot, lambda: len(told) == 2)


async def test_what_is_to_be_painted_while_updates_are_held_back_is_painted_after_that() -> None:
    """A layout in a batch of updates puts its painting off, and that can come in the next batch."""
    app = make_app(one_daemon())
    async with app.run_test(size=SIZE) as pilot:
        await pilot.pause()
        painted = []
        app.written = lambda: painted.append(app._batch_count)
        with app.batch_update():
            app.screen._compositor._dirty_regions.add(Region(0, 0, 5, 1))
            app.screen._compositor_refresh()
        await until(pilot, lambda: painted)
    assert set(painted) == {0}


@pytest.mark.slow
async def test_what_is_told_covers_neither_the_keys_nor_the_first_problems_remedy() -> None:
    """Seen at 80x24: the line of the keys was gone for five seconds, and with two notifications the remedy too."""
    problem = Problem(
        "warning", "outdated", "server 1402", "2 clients keep old limits, as they did before.", "Do this."
    )
    app = make_app(replace(one_daemon(), problems=(problem,) * 3))
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        await pilot.pause()
        remedy, keys = text_of(app).splitlines()[-2:]
        assert "→" in remedy
        for text in ("one is told", "and another one"):
            app.notify(text, markup=False)
            await until(pilot, lambda text=text: text in text_of(app))
        assert text_of(app).splitlines()[-2:] == [remedy, keys]
        await pilot.press("l")
        app.notify("over a dialog", markup=False)
        await until(pilot, lambda: "over a dialog" in text_of(app))
        assert "Esc close" in text_of(app).splitlines()[-1]
