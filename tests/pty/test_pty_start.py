"""The program starts in every kind of terminal, shows the node, and copes with a terminal that changes its size."""

from __future__ import annotations

import re
import subprocess
import time

import pytest
from program import MPSTUI, WHOLE, Node
from terminal import Terminal

TRUE_OR_INDEXED = re.compile(rb"\x1b\[(?:[0-9;]*;)?[34]8;[25];")
ANY_COLOUR = re.compile(rb"\x1b\[(?:[0-9;]*;)?(?:3[0-8]|4[0-8]|9[0-7]|10[0-7])(?:;[0-9;]*)?m")


class Noted(Terminal):
    """Notes when it begins to draw."""

    drawn: float | None = None

    def _feed(self, text: str) -> None:
        self.drawn = self.drawn or time.monotonic()
        super()._feed(text)


def test_a_time_is_when_output_came_and_not_when_it_was_drawn() -> None:
    """Of 14 KB that came at once the emulator here takes some 40 ms, which is none of a measured program's."""
    with Noted(["seq", "3000"]) as terminal:
        while not terminal.ended:
            terminal.drawn = None
            if terminal.read(0.05):
                assert terminal.first_byte is not None
                assert terminal.drawn is not None
                assert terminal.came is not None
                assert terminal.first_byte <= terminal.came <= terminal.drawn
        assert "3000" in terminal.text


def client_shown(terminal: Terminal) -> bool:
    """A process that the demo started is a row of the clients' table: its PID stands on the screen."""
    shown = set(re.findall(r"\b\d+\b", terminal.text))
    return any(str(pid) in shown for pid in terminal.descendants() if pid != terminal.pid)


def test_the_demo_shows_its_clients_and_says_that_it_is_simulated() -> None:
    with Terminal([*MPSTUI, "--demo"]) as terminal:
        terminal.wait_for("SIMULATED")
        terminal.wait_for(client_shown)
        assert terminal.modes[1049]


@pytest.mark.slow
def test_a_pipe_directory_shows_the_clients_of_its_daemon(node: Node) -> None:
    with Terminal([*MPSTUI, "--pipe-dir", str(node.pipe_dir)]) as terminal:
        terminal.wait_for("SIMULATED")
        for pid in node.client_pids()[:5]:
            terminal.wait_for(re.compile(rf"\b{pid}\b"))


@pytest.mark.slow
@pytest.mark.parametrize("size", [(80, 24), (20, 5), (250, 70)])
def test_it_starts_in_a_terminal_of_another_size(node: Node, size: tuple[int, int]) -> None:
    columns, lines = size
    with Terminal([*MPSTUI, "--pipe-dir", str(node.pipe_dir)], columns=columns, lines=lines) as terminal:
        terminal.wait_for(lambda t: t.modes.get(1049) and t.text.strip())
        terminal.key("q")
        assert terminal.wait_exit() == 0


def test_it_lives_through_a_terminal_that_shrinks_and_grows(node: Node) -> None:
    with Terminal([*MPSTUI, "--pipe-dir", str(node.pipe_dir)]) as terminal:
        shown = re.compile(rf"\b{node.client_pids()[0]}\b")
        terminal.wait_for(WHOLE)
        terminal.wait_for(shown)
        for columns, lines in ((20, 5), (160, 48), (1, 1), (80, 24), (20, 5), (160, 48)):
            terminal.resize(columns, lines)
            terminal.key("j")
            if lines > 1:  # in one cell nothing can be read
                terminal.wait_for("too small" if lines < 24 else WHOLE)
        terminal.wait_for(shown)
        terminal.key("q")
        assert terminal.wait_exit() == 0


@pytest.mark.slow
@pytest.mark.parametrize("term", ["dumb", ""])
def test_a_terminal_without_a_cursor_is_refused_with_a_message(term: str) -> None:
    with Terminal([*MPSTUI, "--demo"], environment={"TERM": term, "COLORTERM": ""}) as terminal:
        assert terminal.wait_exit() == 2
        assert "TERM" in terminal.text
        assert "Traceback" not in terminal.text
        assert not terminal.modes
        assert terminal.descendants() == []


def test_without_a_terminal_it_says_so_and_draws_nothing() -> None:
    done = subprocess.run([*MPSTUI, "--demo"], capture_output=True, stdin=subprocess.DEVNULL, timeout=120, check=False)
    assert done.returncode == 2
    assert b"terminal" in done.stderr
    assert b"\x1b" not in done.stdout


@pytest.mark.slow
def test_sixteen_colours_get_no_others(node: Node) -> None:
    environment = {"TERM": "xterm", "COLORTERM": ""}
    with Terminal([*MPSTUI, "--pipe-dir", str(node.pipe_dir)], environment=environment) as terminal:
        terminal.wait_for(WHOLE)
        terminal.wait_for(re.compile(rf"\b{node.client_pids()[0]}\b"))
        assert ANY_COLOUR.search(terminal.bytes)
        assert not TRUE_OR_INDEXED.search(terminal.bytes)


@pytest.mark.slow
def test_no_color_gets_no_colour(node: Node) -> None:
    with Terminal([*MPSTUI, "--pipe-dir", str(node.pipe_dir)], environment={"NO_COLOR": "1"}) as terminal:
        terminal.wait_for(WHOLE)
        assert not ANY_COLOUR.search(terminal.bytes)
