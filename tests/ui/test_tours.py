"""Guided tours: files checked with their lines, steps led on, and nothing done that is the reader's to do."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from textual.events import Key
from textual.geometry import Size
from textual.screen import ModalScreen

from mpstui.cli.past import NODES
from mpstui.config import CommandSpec, load_themes
from mpstui.ui.app import MpsTuiApp
from mpstui.ui.bars import KeyBar
from mpstui.ui.dialogs.base import Dialog
from mpstui.ui.keymap import places
from mpstui.ui.theme import build_themes
from mpstui.ui.touring import Guide, TouringApp
from mpstui.ui.tours import Tour, TourError, parse, read, shipped
from ui.fakes import FakeCollector, FakeRunner
from ui.screen import text_of, until
from ui.snapshots import one_daemon

GOOD = '[[step]]\ncaption = "One. Two."\n'


def test_the_shipped_ones_press_keys_that_there_are() -> None:
    assert set(shipped()) == {"fault", "limits", "partitioning", "who"}
    known = {name for bindings in places().values() for name in bindings}
    for name in shipped():
        tour = read(name)
        assert tour.demo is None or tour.demo in NODES
        assert {key[1:] for step in tour.steps for key in step.keys if len(key) > 1 and key[0] == "@"} <= known
        for step in tour.steps:
            assert len(re.findall(r"[.?!](?: |$)", step.caption)) == 2, step.caption
        assert tour.steps[-1].keys[-1] == "escape", "it ends where it began"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("x = 1\n" + GOOD, "line 1: “x” is not known; known: demo, step, title"),
        ("", "there is no step"),
        ("step = 3", "line 1: there is no step"),
        ("[[step", "is not TOML"),
        ('title = "a"\n[[step]]\nkeys = []', "line 2: it has no caption"),
        (GOOD + 'colour = "red"', "line 3: “colour” is not known"),
        (GOOD + 'keys = "L"', "line 3: keys must be a list"),
        (GOOD + 'keys = ["L", "entre"]', "line 3: “entre” is no key: a key is a single character"),
        (GOOD + 'keys = ["\\u001b"]', "is no key"),
        (GOOD + "keys = [3]", "is no key"),
        (GOOD + 'keys = ["f8"]', "f8 is the next step"),
        (GOOD + 'wait = "user:bob"', "line 3: wait must begin with client"),
        (GOOD + 'wait = "client usr:bob"', "did you mean user:?"),
        (GOOD + 'wait = "load runing"', "line 3: wait: unknown state; after “load” use one of"),
        (GOOD + 'if = "load none"', "line 1: if and otherwise go together"),
        (GOOD + 'if = "load gone"\notherwise = "No."', "line 3: if: unknown state; after “load” use one of"),
        (GOOD + "seconds = 0", "seconds must be a number from 1 to 600"),
        (GOOD + "seconds = true", "seconds must be a number"),
        ('demo = "../x"\n' + GOOD, "line 1: demo must be the name"),
        ('[[step]]\ncaption = ""', "caption must be text of at most 400"),
        pytest.param(GOOD * 61, "61 steps are more than 60", id="many"),
    ],
)
def test_a_file_that_is_wrong_says_where_and_what_may_stand_there(text: str, told: str) -> None:
    with pytest.raises(TourError) as refused:
        parse(text, "t")
    assert told in str(refused.value)
    assert str(refused.value).isprintable()


def test_a_binding_that_there_is_not_is_refused_with_its_line_and_a_character_of_any_alphabet_is_a_key() -> None:
    ids = {name for bindings in places().values() for name in bindings}
    good = '[[step]]\ncaption = "A."\nkeys = ["@", "é", "@load.stop_all"]\n'
    assert parse(good, "t", lambda: ids).steps[0].keys == ("@", "é", "@load.stop_all")
    with pytest.raises(TourError, match=r"line 6: there is no binding “@load.stopall”; did you mean @load.stop_all"):
        parse(good + '[[step]]\ncaption = "A."\nkeys = ["a", "@load.stopall"]\n', "t", lambda: ids)


def test_files_that_cannot_be_read(tmp_path: Any) -> None:
    (tmp_path / "bad.toml").write_bytes(b'[[step]]\ncaption = "\xff"')
    (tmp_path / "large.toml").write_bytes(b"#" * 70000)
    # Some editors begin a file with a mark of its encoding.
    (tmp_path / "mark.toml").write_bytes(b'\xef\xbb\xbf[[step]]\ncaption = "A."')
    assert read(f"{tmp_path}/mark.toml").steps[0].caption == "A."
    for name, told in {
        "none": "there is no tour “none”; there are: fault, limits",
        f"{tmp_path}/none.toml": "No such file",
        f"{tmp_path}/bad.toml": "line 2: is not UTF-8",
        f"{tmp_path}/large.toml": "is larger than 64 KiB",
        "/dev/null.toml": "",
        "a\x1b[2J.toml": "",
    }.items():
        with pytest.raises(TourError) as refused:
            read(name)
        assert told in str(refused.value)
        assert str(refused.value).isprintable()


class Question(ModalScreen[None]):
    """One that stands open."""

    active_bindings: Any = {}  # noqa: RUF012

    def query(self, *_: Any) -> Any:
        return [object()]


class Surface:
    """What a guide needs of the app, and what it did."""

    def __init__(self) -> None:
        ids = {"K": "action.terminate_and_kill", "L": "load", "X": "load.stop_all"}
        bound = {key: SimpleNamespace(binding=SimpleNamespace(id=id)) for key, id in ids.items()}
        self.plain = self.screen = SimpleNamespace(active_bindings=bound)
        self.screen_stack = [self.screen]
        self.overview = SimpleNamespace(knows=True)
        self.typeahead = SimpleNamespace(busy=False)
        self.commands = (SimpleNamespace(key="f9"),)
        self.load: Any = None
        self.snapshot: Any = one_daemon()
        self.keys: list[str] = []
        self.said = ""
        self.size = Size(80, 24)

    def post_message(self, event: Key) -> None:
        self.keys.append(event.key)

    def notify(self, text: str, **_: Any) -> None:
        self.said = text

    def caption(self, title: str, lines: Any) -> None:
        self.said = "\n".join(filter(None, (title, *lines)))


def guide(tour: Tour, *, own: bool = False, auto: bool = False) -> tuple[Guide, Any, list[float]]:
    surface, now = Surface(), [0.0]
    return Guide(surface, tour, own_demo=own, auto=auto, clock=lambda: now[0]), surface, now  # type: ignore[arg-type]


def steps(*each: str) -> Tour:
    return parse("".join(f'[[step]]\ncaption = "Seen."\n{text}\n' for text in each), "t")


def ticks(lead: Guide, count: int = 12) -> None:
    for _ in range(count):
        lead.lead_on()


def test_what_ends_work_and_what_is_asked_are_the_readers_on_a_real_node() -> None:
    lead, surface, _ = guide(steps('keys = ["L", "@load.stop_all", "a", "f9", "b"]', 'keys = ["enter", "escape"]'))
    ticks(lead)
    assert surface.keys == ["L"]
    assert "Press X yourself" in surface.said
    lead.typed(Key("K", "K"))  # another one is not what was asked for
    ticks(lead)
    assert surface.keys == ["L"]
    pressed = Key("X", "X")
    lead.typed(pressed)
    lead.typed(pressed)  # it comes twice: when it is read, and when its turn has come
    ticks(lead)
    assert surface.keys == ["L"], "what comes of it is the reader's too"
    lead.next()
    surface.screen = Question()
    ticks(lead)
    assert surface.keys == ["L"]
    assert "This is not part of the tour" in surface.said
    surface.screen = surface.plain  # the reader has answered
    ticks(lead)
    assert surface.keys == ["L", "enter", "escape"]
    own, surface, _ = guide(steps('keys = ["f9"]'))
    ticks(own)
    assert surface.keys == [], "a command of the reader's own"


@pytest.mark.parametrize("auto", [True, False])
def test_a_tour_that_goes_on_by_itself_does_not_stand_for_ever_at_a_key_that_is_the_readers(auto: bool) -> None:
    lead, surface, now = guide(steps('keys = ["@load.stop_all", "a"]\nseconds = 6', 'keys = ["b"]'), auto=auto)
    for now[0] in (0.0, 59.0):
        ticks(lead)
    assert "Press X yourself" in surface.said
    told: list[str] = []
    surface.notify = lambda text, **_: told.append(text)  # type: ignore[method-assign]
    now[0] = 61.0
    lead.lead_on()
    assert ["the tour goes on without it" in text for text in told] == [True] * auto
    ticks(lead)
    assert surface.keys == (["b"] if auto else [])
    theirs, surface, now = guide(steps('keys = ["a"]'), auto=auto)
    surface.screen = Question()  # the reader's own is waited for as long as it takes
    for now[0] in (0.0, 999.0):
        ticks(theirs)
    assert surface.keys == []


def test_in_a_question_of_a_real_node_it_types_and_leaves_and_nothing_else() -> None:
    lead, surface, _ = guide(steps('keys = ["l", "5", "up", "tab", "enter"]', 'keys = ["escape"]'))
    ticks(lead, 2)
    surface.screen = Question()
    ticks(lead)
    assert surface.keys == ["l", "5", "up"]
    assert "The answer is yours" in surface.said
    lead.next()
    ticks(lead)
    assert surface.keys == ["l", "5", "up", "escape"]


def test_on_its_own_node_it_does_all_of_it() -> None:
    lead, surface, _ = guide(steps('keys = ["K", "tab", "enter", "@nothing", "f5"]'), own=True)
    ticks(lead, 2)
    surface.screen = Question()
    ticks(lead)
    assert surface.keys == ["K", "tab", "enter", "f5"]
    assert "(no key for nothing here) F5" in surface.said


@pytest.mark.parametrize("own", [True, False])
def test_what_the_reader_has_opened_is_left_to_the_reader_on_every_node(own: bool) -> None:
    lead, surface, now = guide(steps('keys = ["L"]\nseconds = 3', 'keys = ["a", "enter", "b"]'), own=own, auto=True)
    ticks(lead, 3)
    lead.typed(Key("t", "t"))
    surface.screen = Question()
    now[0] = 4.0
    ticks(lead)
    assert lead.step is lead.tour.steps[1]
    assert surface.keys == ["L"]
    assert "This is not part of the tour" in surface.said
    surface.screen = surface.plain
    ticks(lead)
    assert surface.keys == ["L", "a", "enter", "b"]
    late, surface, now = guide(steps('keys = ["L"]\nseconds = 100', 'keys = ["enter"]'), own=own, auto=True)
    ticks(late, 3)
    now[0] = 99.0
    surface.screen = Question()  # by itself, long after the tour's key
    ticks(late)
    now[0] = 101.0
    ticks(late)
    assert surface.keys == ["L"]


@pytest.mark.parametrize(("seconds", "bound"), [(1, 60.0), (20, 200.0)])
@pytest.mark.parametrize("auto", [True, False])
def test_what_does_not_come_holds_a_tour_that_goes_on_by_itself_for_a_while_alone(seconds, bound, auto) -> None:
    tour = steps(f'keys = ["L"]\nwait = "load failed"\nseconds = {seconds}', "seconds = 600")
    lead, surface, now = guide(tour, own=True, auto=auto)
    told: list[str] = []
    surface.notify = lambda text, **_: told.append(text)  # type: ignore[method-assign]
    ticks(lead)
    now[0] = bound - 1
    ticks(lead)
    assert (lead.step, told) == (tour.steps[0], [])
    now[0] = bound + 1
    ticks(lead)
    assert lead.step is tour.steps[auto]
    assert told == (["“a test client that has failed” was not seen: the tour goes on without it."] if auto else [])


def test_it_waits_and_goes_on_by_itself_only_where_it_was_told_to() -> None:
    tour = steps('wait = "client user:alice"', 'wait = "client user:=nobody"\nseconds = 5', 'wait = "load running"')
    lead, surface, now = guide(tour)
    ticks(lead)
    now[0] = 1e6
    ticks(lead)
    assert lead.step is tour.steps[0]
    lead, surface, now = guide(tour, auto=True)
    ticks(lead)
    now[0] = 9.0
    ticks(lead)
    assert lead.step is tour.steps[1]
    now[0] = 50.0
    ticks(lead)
    assert "waits for: client user:=nobody (not seen yet" in surface.said
    lead.next()
    assert lead.step is tour.steps[2]
    surface.load = SimpleNamespace(members=[SimpleNamespace(report=SimpleNamespace(state="running"))])
    ticks(lead)
    assert "waits for" not in surface.said
    lead.next()
    assert lead.step is None
    assert "over" in surface.said
    lead, surface, _ = guide(tour)
    ticks(lead)
    lead.end()
    ticks(lead)
    assert (surface.said, surface.keys) == ("", [])


def members(*states: str) -> Any:
    return SimpleNamespace(members=[SimpleNamespace(report=SimpleNamespace(state=state)) for state in states])


@pytest.mark.parametrize("name", ["fault", "partitioning"])
def test_however_it_is_left_it_says_of_the_load_what_is_so(name: str) -> None:
    """Where the reader goes on without the key that ends the clients, they still run."""
    tour = read(name)
    lead, surface, _ = guide(tour)
    surface.load = members("running", "ended")
    ticks(lead, 1)
    while lead.step is not tour.steps[-1]:
        lead._left.clear()
        lead.next()
        ticks(lead)
    assert "have not ended" in surface.said
    assert "No client of the load is left" not in surface.said
    surface.load = members("failed", "ended")
    ticks(lead)
    assert "No client of the load is left" in surface.said
    surface.load = members("running")
    lead.end()
    assert surface.said == "Not ended: 1 test client. X on the load's screen (L) stops all of the load."


def test_a_reader_in_a_hurry_leaves_out_no_key_that_the_tour_may_press() -> None:
    lead, surface, _ = guide(steps('keys = ["L", "a", "b"]', 'keys = ["escape"]', 'keys = ["@load.stop_all"]', ""))
    ticks(lead, 2)
    for _ in range(3):
        lead.next()
    ticks(lead)
    assert surface.keys == ["L", "a", "b", "escape"]
    assert lead.step is lead.tour.steps[2], "its key is the reader's"
    assert "Press X yourself" in surface.said
    lead.next()
    assert lead.step is lead.tour.steps[3]


@pytest.mark.parametrize("key", ["f8", "escape"])
def test_who_asks_for_the_next_step_too_soon_waits_for_it_or_gives_it_up_and_no_caption_is_untrue(key: str) -> None:
    tour = steps(
        'keys = ["L"]\nwait = "load running"',
        'keys = ["up"]',
        'keys = ["a"]\nwait = "load failed"',
        'keys = ["escape"]\nif = "load none"\notherwise = "Some run."',
    )
    lead, surface, _ = guide(tour)
    ticks(lead, 1)
    lead.next()  # its keys are not pressed yet
    ticks(lead)
    assert lead.step is tour.steps[0]
    assert "waiting for a test client that runs: F8 again or Esc gives up" in surface.said
    surface.load = members("starting", "running")
    ticks(lead)
    assert (lead.step, surface.keys) == (tour.steps[1], ["L", "up"])
    lead, surface, _ = guide(tour)
    ticks(lead)
    assert not lead.escaped(), "nobody asked for the next step: it is the screen's"
    lead.next()
    surface.screen = Question()
    assert not lead.escaped(), "it is the question's"
    surface.screen = surface.plain
    lead.next() if key == "f8" else lead.escaped()
    ticks(lead)
    assert (lead.step, surface.keys) == (tour.steps[1], ["L"])
    assert "The tour skips this step: it needs “a test client that runs”" in surface.said
    assert "Seen." not in surface.said
    lead.next()
    ticks(lead)
    assert (lead.step, surface.keys) == (tour.steps[2], ["L"])
    lead.next()
    ticks(lead)
    assert surface.keys == ["L", "escape"], "the way back is taken"
    assert "Seen." in surface.said, "by its own condition, there is none"
    lead, surface, _ = guide(tour)
    ticks(lead)
    lead.next()
    lead.next()
    surface.load = members("running")  # late
    lead.next()
    ticks(lead)
    assert (lead.step, surface.keys) == (tour.steps[2], ["L", "a"])


async def test_escape_while_the_next_step_is_waited_for_is_the_tours_alone() -> None:
    app = TouringApp(FakeCollector(one_daemon()), FakeRunner(), themes=build_themes(load_themes()[0]))
    app.guide = Guide(app, steps('keys = ["p"]\nwait = "load running"', ""), own_demo=True, auto=False)
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: "waits for: a test client that runs" in text_of(app))
        front = app.screen
        await pilot.press("f8")
        await until(pilot, lambda: "F8 again or Esc gives up" in text_of(app))
        await pilot.press("escape")
        await until(pilot, lambda: "skips this step" in text_of(app))
        assert app.screen is front
        await pilot.press("escape")
        assert app.screen is app.overview


def test_where_there_is_no_room_for_a_caption_what_the_reader_has_to_do_is_said() -> None:
    lead, surface, _ = guide(read("fault"))
    said = {}
    for height in (24, 17, 16, 10):
        surface.size = Size(60, height)
        ticks(lead, 1)
        said[height] = surface.said.splitlines()
    assert len(said[24]) > 3
    assert said[17][2].endswith(" …")
    assert len([line for line in said[10] if line]) == 2
    short = read("limits")
    for width in (60, 40):
        lead, surface, _ = guide(short, own=True)
        surface.size = Size(width, 16)
        lead.lead_on()
        lead.next()
        ticks(lead)
        title, *lines = surface.said.splitlines()
        assert title.endswith("2 of 7 · F8 next · F7 no tour"), "in one line"
        assert len(title) < width
        assert lines[0].startswith("l asks for"), "a caption goes before the keys that were pressed"
    other, surface, _ = guide(parse(GOOD.replace("Two", "Two " * 40) + 'keys = ["@load.stop_all"]', "t"))
    surface.size = Size(60, 10)
    ticks(other)
    assert surface.said.splitlines()[1] == "Press X yourself, or F8 to leave it: it acts on this"[:52] + " …"


@pytest.mark.slow
@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_a_caption_covers_nothing(size: tuple[int, int]) -> None:
    """Above it is what a terminal that has so many lines fewer shows, in front of every screen and dialog."""
    themes = build_themes(load_themes()[0])

    def app(kind: type[MpsTuiApp]) -> Any:
        return kind(FakeCollector(one_daemon()), FakeRunner(), themes=themes, theme="mpstui-dark")

    def above(text: str, lines: int) -> list[str]:
        return [re.sub(r"\d\d:\d\d(:\d\d)?", "", line) for line in text.splitlines()[:lines]]

    tour = parse(GOOD + GOOD.replace("Two", "Two" * 60), "t")
    taken, walk = 2 + (3 if size[0] == 80 else 2), ("", "l", "escape D")
    room, wanted = size[1] - taken, {}
    least = app(MpsTuiApp)
    async with least.run_test(size=(size[0], room)) as pilot:
        await until(pilot, lambda: least.overview.knows)
        for keys in walk:
            await pilot.press(*keys.split())
            await pilot.pause()
            wanted[keys] = above(text_of(least), room)
    led = app(TouringApp)
    led.guide = Guide(led, tour, own_demo=False, auto=False)
    async with led.run_test(size=size) as pilot:
        await until(pilot, lambda: "One. Two." in text_of(led))
        for keys in walk:
            await pilot.press(*keys.split())
            await until(pilot, lambda keys=keys: above(text_of(led), room) == wanted[keys])
            await until(pilot, lambda: all("▌" in line for line in text_of(led).splitlines()[room:]))


@pytest.mark.slow
async def test_keys_of_a_dialog_that_come_after_the_caption_do_not_cover_it() -> None:
    """They did where the caption was told between the dialog and its keys, and the dialog stood on its first line."""
    themes = build_themes(load_themes()[0])
    led = TouringApp(FakeCollector(one_daemon()), FakeRunner(), themes=themes, theme="mpstui-dark")
    led.guide = Guide(led, parse(GOOD, "t"), own_demo=False, auto=False)
    async with led.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: "One. Two." in text_of(led))
        await pilot.press("l")
        dialog = led.screen
        assert isinstance(dialog, Dialog)
        await until(pilot, lambda: "▌" in text_of(led).splitlines()[-1])
        await dialog.keys.remove()
        dialog.keys = KeyBar()
        await dialog.mount(dialog.keys)
        await until(pilot, lambda: dialog.keys.region.bottom == 24 - led.lines_taken)


@pytest.mark.slow
async def test_in_the_real_dialogs_it_says_yes_to_nothing_on_a_real_node() -> None:
    """By the dialogs themselves: to Textual's queries their buttons are none."""
    done: list[Any] = []
    runner = FakeRunner()
    runner.execute = lambda *asked: done.append(asked)  # type: ignore[assignment, return-value]
    app = TouringApp(FakeCollector(one_daemon()), runner, themes=build_themes(load_themes()[0]), theme="mpstui-dark")
    tour = steps('keys = ["l", "5", "0", "tab", "enter", "enter"]', 'keys = ["escape", "K", "tab", "enter"]')
    app.guide = Guide(app, tour, own_demo=False, auto=False)
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        await until(pilot, lambda: "The answer is yours" in text_of(app))
        assert "50" in text_of(app)
        await pilot.press("f8")
        await until(pilot, lambda: "Press K yourself" in text_of(app))
        await pilot.press("K")
        await until(pilot, lambda: isinstance(app.screen, ModalScreen) and "keys: Esc K" in text_of(app))
        for _ in range(3):
            app.guide.lead_on()
            await pilot.pause()
        assert isinstance(app.screen, ModalScreen)
        await pilot.press("f7")
        await until(pilot, lambda: "no tour" not in text_of(app))
    assert not done


@pytest.mark.slow
async def test_it_runs_nothing_by_the_palette_on_a_real_node(tmp_path: Path) -> None:
    """A command of one's own, a file that is written, the end of a load: by their names, which no key of theirs says.
    Whoever has written a tour need not be who runs it."""
    mark = tmp_path / "ran"
    own = CommandSpec("touch", "f9", ("/usr/bin/touch", str(mark)), safe=True, origin="config.toml")
    themes = build_themes(load_themes()[0])
    app = TouringApp(FakeCollector(one_daemon()), FakeRunner(), themes=themes, theme="mpstui-dark")
    app.commands = (own,)
    app.guide = Guide(app, steps(f"keys = {json.dumps([':', *'touch', 'enter'])}"), own_demo=False, auto=False)
    async with app.run_test(size=(160, 48), notifications=True) as pilot:
        await until(pilot, lambda: mark.exists() or "Press Enter yourself" in text_of(app))
        assert not mark.exists()
        await pilot.press("enter")
        await until(pilot, mark.exists)
