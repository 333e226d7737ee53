"""The screen of many nodes: rows, filter, what Enter does, and a source that fails."""

from __future__ import annotations

import asyncio
import os
import pty
import select
import signal
import subprocess
import sys
import termios
from collections.abc import Callable

import pytest
from textual import events

from mpstui.commands import Ended, Filled
from mpstui.fleet import STATES, Fleet, FleetError, FleetNode, FleetProblem, opening
from mpstui.ui.dialogs.widgets import Sheet
from mpstui.ui.fleet import FleetApp, FleetScreen, History, NodeProblemsScreen, about, plot
from tests.ui.screen import text_of as on_screen

Tell = Callable[[FleetNode], None]
SIZE = (120, 40)
PATIENCE = 120.0


def nodes(number: int) -> list[FleetNode]:
    bad = FleetNode("gpu-0500", "FAULT", "a fault", problems=(FleetProblem("error", "fault", "[b]x[/b]", "mend it"),))
    return [bad, *(FleetNode(f"gpu-{n:04}", "ok", clients=n % 48) for n in range(number) if n != 500)]


class Source:
    """Answers with ``nodes``, or raises ``error``."""

    def __init__(self, found: list[FleetNode]) -> None:
        self.nodes, self.error, self.notes, self.asked = found, "", list[str](), 0

    async def look(self, tell: Tell) -> Fleet:
        self.asked += 1
        if self.error:
            raise FleetError(self.error)
        return Fleet(0.0, self.nodes, self.notes)


def app(source: Source, opened: list[list[str]] | None = None, history: History | None = None) -> FleetApp:
    made = FleetApp(source.look, 3600.0, lambda host: opening("ssh -t {host} mpstui", host), history)
    if opened is not None:

        def call(filled: Filled) -> tuple[Ended, None]:
            opened.append([*filled.words])
            return Ended(0, ""), None

        made._call = call
    return made


def front(fleet: FleetApp) -> FleetScreen:
    assert isinstance(fleet.screen, FleetScreen)
    return fleet.screen


def keys(fleet: FleetApp) -> str:
    bar = front(fleet).keys
    return " ".join(text for line in bar.lines(bar.size.width, 1) for text, _ in line)


def names(fleet: FleetApp) -> list[str]:
    return [node.name for node in fleet.list.panel.rows]


def pointed(fleet: FleetApp) -> list[str]:
    return [line.strip("│ ").split()[0] for line in on_screen(fleet).splitlines() if "▸" in line]


async def test_a_thousand_nodes_the_worst_first() -> None:
    fleet = app(Source(nodes(1000)))
    async with fleet.run_test(size=SIZE) as pilot:
        await fleet.workers.wait_for_complete()
        await pilot.pause()
        assert len(names(fleet)) == 1000
        assert names(fleet)[0] == "gpu-0500"
        assert pointed(fleet) == ["▸gpu-0500"]
        shown = on_screen(fleet)
        assert "1 FAULT · 999 ok" in shown
        assert "Nodes 1000" in shown
        assert "[b]x[/b]" in shown
        assert "mend it" in shown
        await pilot.press("G")
        assert pointed(fleet) == ["▸gpu-0999"]


@pytest.mark.slow
async def test_the_filter_and_the_way_back() -> None:
    fleet = app(Source(nodes(100)))
    async with fleet.run_test(size=SIZE) as pilot:
        await fleet.workers.wait_for_complete()
        await pilot.press("slash", *"gpu-009", "enter")
        assert len(names(fleet)) == 10
        assert "/ gpu-009 10 of 101" in on_screen(fleet)
        assert "Esc All rows" in keys(fleet).replace("  ", " ")
        await pilot.press("q" if fleet.list.filter.has_focus else "j")
        assert fleet.list.panel.has_focus
        await pilot.press("n")
        assert pointed(fleet) == ["▸gpu-0092"]
        await pilot.press("N", "N", "N")
        assert pointed(fleet) == ["▸gpu-0099"], "round the end"
        await pilot.press("escape")
        assert len(names(fleet)) == len(nodes(100))
        assert pointed(fleet) == ["▸gpu-0099"]


@pytest.mark.slow
async def test_what_is_typed_at_once_reaches_what_the_key_before_it_opened() -> None:
    opened: list[list[str]] = []
    fleet = app(Source(nodes(100)), opened)
    told: list[str] = []

    async def type_at_once(*typed: str) -> None:
        for key in typed:
            fleet.post_message(events.Key(key, key if len(key) == 1 else None))
        await pilot.pause()

    async with fleet.run_test(size=SIZE) as pilot:
        await fleet.workers.wait_for_complete()
        fleet.suspend = NoTerminal  # type: ignore[method-assign,assignment]
        fleet.typeahead.dropped = lambda shown, why: told.append(shown)  # type: ignore[method-assign]
        await type_at_once("slash", *"phqr")
        assert fleet.list.filter.value == "phqr"
        await type_at_once("escape", "question_mark", "q", "slash", "p")
        assert fleet.list.filter.value == "p"
        assert fleet.screen is fleet.screen_stack[0]
        await type_at_once("escape", "j", "enter", "D", "q")
        assert (len(opened), fleet.screen is fleet.list, told) == (1, True, ["D, q"]), "they were for the node's own"
        await type_at_once("j", "D")
        assert isinstance(fleet.screen, NodeProblemsScreen)
    assert fleet.return_value is None


def test_of_a_crowd_of_daemons_the_worst_are_told_and_how_many_more_there_are() -> None:
    """Each had a line, whatever their number: anybody on a node can start one."""
    daemons = {**{f"/{number}": "ok" for number in range(5000)}, "/last": "blocked"}
    said = [para.text for para in about(FleetNode("n1", "BLOCKED", daemons=daemons), (), (), ())]
    assert said[1] == "/last: blocked"
    assert (len(said), said[2], said[-1]) == (66, "/0: answers", "and 4937 more")
    few = [para.text for para in about(FleetNode("n1", daemons={"/a": "ok", "/b": "held"}), (), (), ())]
    assert few[1:] == ["/b: held", "/a: answers"]


async def test_the_cursor_stays_on_its_node_when_others_get_worse() -> None:
    source = Source([FleetNode("b", "ok"), FleetNode("c", "ok")])
    fleet = app(source)
    async with fleet.run_test(size=SIZE) as pilot:
        await fleet.workers.wait_for_complete()
        await pilot.press("j")
        assert pointed(fleet) == ["▸c"]
        source.nodes = [FleetNode("a", "FAULT"), *source.nodes]
        await pilot.press("r")
        await fleet.workers.wait_for_complete()
        await pilot.pause()
        assert pointed(fleet) == ["▸c"]
        assert names(fleet)[0] == "a"
        await pilot.press("g")
        source.nodes = [FleetNode("aa", "FAULT", "a fault"), *(FleetNode(name, "ok") for name in "abc")]
        await pilot.press("r")
        await fleet.workers.wait_for_complete()
        await pilot.pause()
        assert pointed(fleet) == ["▸aa"], "who looks at the worst goes on doing so"


async def test_enter_opens_the_node_and_no_name_is_an_option() -> None:
    opened: list[list[str]] = []
    fleet = app(Source([FleetNode("n1", "ok")]), opened)
    shown: list[str] = []
    async with fleet.run_test(size=SIZE) as pilot:
        await fleet.workers.wait_for_complete()
        fleet.suspend = NoTerminal  # type: ignore[method-assign,assignment]
        fleet.notify = lambda message, **rest: shown.append(message)  # type: ignore[method-assign,assignment]
        await pilot.press("enter")
        assert opened == [["ssh", "-t", "n1", "mpstui"]]
        assert shown == []
        fleet._call = lambda filled: (Ended(127, "ended with exit status 127"), None)
        await pilot.press("enter")
        assert shown == ["ssh -t n1 mpstui: ended with exit status 127: is mpstui there, and on PATH?"]
        fleet.take([FleetNode("-oProxyCommand=evil", "ok")])
        await pilot.press("enter")
    assert len(opened) == 1
    assert "no name of a host" in shown[-1]


class NoTerminal:
    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...


async def test_a_source_that_fails_says_so_and_leaves_what_is_known() -> None:
    source = Source(nodes(10))
    fleet = app(source)
    async with fleet.run_test(size=(80, 24)) as pilot:
        await fleet.workers.wait_for_complete()
        source.error = "Prometheus does not answer"
        await pilot.press("r")
        await fleet.workers.wait_for_complete()
        await pilot.pause()
        assert "Prometheus does not answer; this is from" in on_screen(fleet)
        assert len(names(fleet)) == len(nodes(10))
        source.error, source.notes = "", ["No series of mpstui for the job “x”"]
        await pilot.press("r")
        await fleet.workers.wait_for_complete()
        await pilot.pause()
        assert " No series of mpstui for the job “x”" in on_screen(fleet).splitlines()[1]
        assert "does not answer" not in on_screen(fleet)


@pytest.mark.slow
async def test_the_line_of_keys_has_what_can_be_done_and_help_says_it_all() -> None:
    fleet, asked = app(Source(nodes(3))), list[str]()
    async with fleet.run_test(size=(80, 24)) as pilot:
        await fleet.workers.wait_for_complete()
        await pilot.pause()
        told = keys(fleet)
        for word in ("Enter", "Open", "Filter", "Problems", "? ", "Help", "q ", "Quit"):
            assert word in told
        assert "h History" not in told, "over ssh there is none"
        shown: list[str] = []
        fleet.notify = lambda message, **rest: shown.append(message)  # type: ignore[method-assign,assignment]
        await pilot.press("h")
        assert shown == ["there is a history from Prometheus only"]
        await pilot.press("question_mark")
        sheet = fleet.screen.query_one(Sheet).text
        assert "Esc on its overview, or q, comes back here" in sheet
        assert [state for state in STATES if state not in sheet] == []
        assert "six hours" in sheet
        assert "Nothing is changed from here" in sheet
        await pilot.press("D", "escape")
        assert fleet.screen_stack == [fleet.list], "its keys are help's alone"
        await pilot.press("slash")
        assert "Keep the filter" in keys(fleet)
        await pilot.press("escape", "D")
        assert "Back" in keys(fleet)
        assert "Quit" not in keys(fleet)
        await pilot.press("q")
        assert fleet.screen is fleet.list
    fleet = app(Source(nodes(3)), history=lambda name, seconds: asked.append(name) or {"clients": [1.0]})  # type: ignore[func-returns-value]
    async with fleet.run_test(size=(80, 24)) as pilot:
        await fleet.workers.wait_for_complete()
        await pilot.pause()
        assert "History" in keys(fleet)
        await pilot.press("h")
        await fleet.workers.wait_for_complete()
        assert asked == ["gpu-0500"]


@pytest.mark.slow
async def test_the_problems_of_all_nodes() -> None:
    fleet = app(Source(nodes(20)))
    async with fleet.run_test(size=SIZE) as pilot:
        await fleet.workers.wait_for_complete()
        await pilot.press("D")
        row = next(line for line in on_screen(fleet).splitlines() if "▸" in line)
        assert row.strip("│ ").split() == ["▸gpu-0500", "error", "fault", "[b]x[/b]", "mend", "it"]
        await pilot.press("slash", *"nothing", "enter")
        assert "no row has that" in on_screen(fleet)
        await pilot.press("escape", "escape")
        assert len(names(fleet)) == 20 + 1


@pytest.mark.slow
async def test_the_problem_under_the_cursor_is_told_first_and_the_filter_of_the_nodes_holds() -> None:
    two = (FleetProblem("error", "fault", "the first", "mend it"), FleetProblem("info", "old", "the second", ""))
    fleet = app(Source([FleetNode("n1", "FAULT", problems=two), FleetNode("n2", "WARNING", problems=two[:1])]))
    async with fleet.run_test(size=SIZE) as pilot:
        await fleet.workers.wait_for_complete()
        await pilot.press("slash", *"n1", "enter", "D", "j")
        assert len(front(fleet).panel.rows) == 2, "n2 is filtered away"
        below = on_screen(fleet).partition("╭─ n1")[2]
        assert below.index("the second") < below.index("the first")
        await pilot.press("escape", "escape", "j")
        assert pointed(fleet) == ["▸n2"]
        await pilot.press("D")
        assert pointed(fleet) == ["▸n2"], "at the node that the cursor was on"


async def test_at_80_columns_the_worst_problem_and_the_plots_are_seen_and_what_is_cut_is_said() -> None:
    long = "A fatal GPU fault; new clients are refused until the last client hit has ended."
    remedy = "End the clients hit by it: their work is lost already."
    problems = (
        FleetProblem("error", "fault", long, remedy),
        *(FleetProblem("info", f"note{n}", long, remedy) for n in range(6)),
    )
    places = {f"/tmp/mps{n}": "held" if n else "ok" for n in range(8)}
    bad = FleetNode("gpu-with-a-name", "FAULT", long, 3, 0, 0, 40, 48, 1 << 34, 1 << 35, places, problems)
    gib = 1 << 30
    told = {"clients": [1.0] * 30 + [13.0] * 30 + [4.0], "memory": [8.0 * gib, 2.0 * gib], "contexts": [3.0, None]}
    fleet = app(Source([bad, *nodes(60)[1:]]), history=lambda name, seconds: told)
    async with fleet.run_test(size=(80, 24)) as pilot:
        await fleet.workers.wait_for_complete()
        await pilot.press("h")
        await fleet.workers.wait_for_complete()
        await pilot.pause()
        shown = on_screen(fleet)
        assert remedy in shown
        assert "⇥ scroll" in shown, "there is more, and Tab goes there"
        assert "8 daemons: 7 held, 1 answers" in shown
        assert "now 4 · most 13 in 6 h" in shown
        assert "now 2.0 GiB · most 8.0 GiB in 6 h" in shown
        assert "now — · most 3 in 6 h" in shown
        row = next(line for line in shown.splitlines() if "gpu-with-a-name" in line)
        assert "A fatal GPU f" in row
        assert row.rstrip(" │┃").endswith("…"), row
        below = " ".join(shown.partition("read")[2].replace("│", " ").replace("┃", " ").split())
        assert "GPU MEM 16.0 GiB/32.0 GiB" in below
        await pilot.press("tab", "G")
        assert "/tmp/mps7: held" in on_screen(fleet)
        await pilot.resize_terminal(160, 60)
        await pilot.pause()
        shown = on_screen(fleet)
        assert "⇥ scroll" not in shown
        assert "/tmp/mps7: held" in shown


async def test_the_keys_are_the_users_own() -> None:
    source = Source(nodes(3))
    fleet = FleetApp(source.look, 3600.0, lambda host: [host], keys={"refresh": "f9"})
    async with fleet.run_test(size=SIZE) as pilot:
        await fleet.workers.wait_for_complete()
        assert "f9 Look now" in keys(fleet).replace("  ", " ")
        await pilot.press("r", "f9")
        await fleet.workers.wait_for_complete()
        assert source.asked == 2


async def test_who_makes_the_terminal_too_small_and_large_again_is_where_they_were() -> None:
    """Seen: the text had the focus afterwards, and Enter opened nothing."""
    fleet = app(Source(nodes(20)))
    async with fleet.run_test(size=(80, 24)) as pilot:
        await fleet.workers.wait_for_complete()
        await pilot.resize_terminal(39, 9)
        await pilot.pause()
        assert "terminal too small" in on_screen(fleet)
        await pilot.resize_terminal(60, 12)
        await pilot.pause()
        assert fleet.list.panel.has_focus
        assert len([line for line in on_screen(fleet).splitlines() if "gpu-0" in line]) > 3, "the list is not one line"


def test_a_plot_keeps_a_peak_and_says_where_nothing_is_known() -> None:
    line = plot("clients", [0.0] * 30 + [9.0] + [0.0] * 30, 60)
    assert "▇" in line
    assert len(line) <= 60
    assert plot("memory", [float(500 << 20)] * 2, 60).startswith("memory   ▁▁  now 500 MiB"), "little stays little"
    assert plot("memory", [None, None], 60) == "memory   nothing is known of the last 6 h"


@pytest.mark.slow
def test_told_to_end_it_gives_the_terminal_back() -> None:
    ours, theirs = pty.openpty()
    words = [sys.executable, "-m", "mpstui", "fleet", "--hosts", "away", "--ssh", "false"]
    told = b""
    with subprocess.Popen(words, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True) as child:
        os.close(theirs)
        before = termios.tcgetattr(ours)[3] & termios.ECHO
        while b"is mpstui there" not in told:
            told += read(ours)
        assert not termios.tcgetattr(ours)[3] & termios.ECHO
        child.send_signal(signal.SIGTERM)
        while part := read(ours):
            told += part
        assert child.wait(PATIENCE) == 128 + signal.SIGTERM
    assert before
    assert b"\x1b[?1049l" in told.rpartition(b"\x1b[?1049h")[2]
    os.close(ours)


def read(fd: int) -> bytes:
    """Empty at the end. Raises TimeoutError where nothing comes."""
    if not select.select([fd], [], [], PATIENCE)[0]:
        raise TimeoutError
    try:
        return os.read(fd, 1 << 16)
    except OSError:  # a terminal that nobody has open
        return b""


@pytest.mark.slow
async def test_a_long_name_leaves_the_reason_its_room_and_a_terminal_that_grows_shows_more_at_once() -> None:
    """Seen at 80 columns: “A f…” beside a name of 45 letters; after a change of size the columns of the old one."""
    why = "A fatal GPU fault; new clients are refused until the last client hit has ended."
    problem = FleetProblem("error", "daemon_blocked", why, "mend it")
    name = "gpu-a-host-with-a-very-long-name.example.org"
    fleet = app(Source([FleetNode(name, "FAULT", why, problems=(problem,)), *nodes(3)[1:]]))
    async with fleet.run_test(size=(80, 24)) as pilot:
        await fleet.workers.wait_for_complete()
        await pilot.pause()
        assert "A fatal GPU fault; ne" in on_screen(fleet)
        assert name in on_screen(fleet), "below the list, whole"
        await pilot.press("D")
        heads = next(line for line in on_screen(fleet).splitlines() if "SEVERITY" in line).strip("│ ").split()
        assert heads == ["NODE", "SEVERITY", "WHAT", "REMEDY"], (
            "the code stands below, and the remedy had three letters"
        )
        assert "mend it" in on_screen(fleet)
        await pilot.press("D")
        await pilot.resize_terminal(160, 48)
        await pilot.pause()
        row = next(line for line in on_screen(fleet).splitlines() if "FAULT" in line and why[:9] in line)
        assert name in row
        assert why[:40] in row


@pytest.mark.slow
async def test_the_filter_of_the_nodes_takes_their_fields_and_names_one_that_is_none() -> None:
    fleet = app(Source([FleetNode("n1", "FAULT"), FleetNode("fault-lab", "ok")]))
    async with fleet.run_test(size=(80, 24)) as pilot:
        await fleet.workers.wait_for_complete()
        await pilot.press("slash", *"state:f")
        await pilot.pause()
        assert [row.name for row in fleet.list.panel.rows] == ["n1"]
        await pilot.press(*["backspace"] * 7, *"!name=n1")
        await pilot.pause()
        assert [row.name for row in fleet.list.panel.rows] == ["fault-lab"]
        await pilot.press(*["backspace"] * 8, *"bad:x", "enter")
        await pilot.pause()
        assert any("no field “bad”" in each.message for each in fleet._notifications)


@pytest.mark.slow
async def test_help_in_the_filter_of_the_nodes_has_what_may_be_typed_there() -> None:
    """It was the words of the clients' filter, or nothing."""
    fleet = app(Source(nodes(3)))
    async with fleet.run_test(size=(80, 48)) as pilot:
        await fleet.workers.wait_for_complete()
        await pilot.press("slash", "question_mark")
        shown = on_screen(fleet)
        assert "What may be typed here" in shown
        assert "state:fault" in shown
        assert "outside_processes" in shown
        assert "user:alice" not in shown


async def test_nodes_that_do_not_answer_are_among_the_problems() -> None:
    """Only those were told whose mpstui had told some: a node that was down was in no row of D."""
    silent = FleetNode("down", "NO ANSWER", "ssh: no route to host")
    fleet = app(Source([silent, FleetNode("fine", "ok"), FleetNode("none", "ABSENT")]))
    async with fleet.run_test(size=SIZE) as pilot:
        await fleet.workers.wait_for_complete()
        await pilot.press("D")
        assert [row.node.name for row in front(fleet).panel.rows] == ["down"]
        row = next(line for line in on_screen(fleet).splitlines() if "▸" in line)
        assert row.strip("│ ").split()[:3] == ["▸down", "error", "no_answer"]
        assert "no route to host" in row


async def test_enter_with_no_node_and_looking_twice_say_why_nothing_happens() -> None:
    opened: list[list[str]] = []
    source = Source([])
    fleet = app(source, opened)
    async with fleet.run_test(size=SIZE) as pilot:
        await fleet.workers.wait_for_complete()
        await pilot.press("enter")
        assert any("no node" in each.message for each in fleet._notifications)
        assert not opened
        may = asyncio.Event()

        async def slow(tell: Tell) -> Fleet:
            await may.wait()
            return Fleet(0.0, [])

        fleet._look = slow
        await pilot.press("r", "r")
        assert any("asked already" in each.message for each in fleet._notifications)
        may.set()
        await fleet.workers.wait_for_complete()
