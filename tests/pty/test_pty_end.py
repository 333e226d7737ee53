"""However the program ends, the terminal is as before and no process is left."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest
from program import MPSTUI, WHOLE, Node
from terminal import DEADLINE, Terminal, process_state, until

RESTORED = {1049: False, 25: True, 1000: False, 1002: False, 1003: False, 1006: False, 1004: False, 2004: False}
"""Alternate screen left, cursor shown, no mouse, focus or paste reports."""


def assert_restored(terminal: Terminal) -> None:
    assert {mode: on for mode, on in terminal.modes.items() if RESTORED.get(mode, on) != on} == {}
    assert terminal.modes[1049] is False
    assert terminal.current_settings() == terminal.settings


def assert_nothing_left(terminal: Terminal) -> None:
    until(lambda: not terminal.descendants(), DEADLINE, "every process that came from it has ended")


def demo() -> Terminal:
    """The demo, up and with its simulated processes running."""
    terminal = Terminal([*MPSTUI, "--demo"])
    terminal.wait_for(WHOLE)
    terminal.wait_for(lambda t: len(t.descendants()) > 3)
    return terminal


def test_q_restores_the_terminal_and_leaves_no_process_whatever_is_typed_after_it() -> None:
    with demo() as terminal:
        terminal.key("q", *"clear; stty tlmo?", "enter")
        assert terminal.wait_exit() == 0
        assert "Traceback" not in terminal.text
        assert_restored(terminal)
        assert_nothing_left(terminal)


BROKEN = """
import sys
from mpstui.__main__ import main
from mpstui.ui.screens import ListScreen

def broken(self, step):
    secret = "the value of a variable"
    raise ZeroDivisionError("integer modulo by zero")

ListScreen.action_seek = broken
sys.exit(main())
"""


def test_a_mistake_of_its_own_restores_the_terminal_and_is_said_in_words(tmp_path: Path) -> None:
    state = {"XDG_STATE_HOME": str(tmp_path)}
    with Terminal([sys.executable, "-c", BROKEN, "--demo"], environment=state) as terminal:
        terminal.wait_for(WHOLE)
        terminal.key("W", "n")
        assert terminal.wait_exit() == os.EX_SOFTWARE
        said = " ".join(terminal.text.split())
        assert "mpstui: a mistake of mpstui's own: ZeroDivisionError: integer modulo by zero" in said
        assert "the value of a variable" not in said
        assert "in action_seek" not in said
        assert_restored(terminal)
        assert_nothing_left(terminal)
    assert "ZeroDivisionError: integer modulo by zero" in (tmp_path / "mpstui" / "mistake.txt").read_text()


@pytest.mark.slow
@pytest.mark.parametrize(
    "number", [signal.SIGHUP, signal.SIGTERM, signal.SIGINT, signal.SIGQUIT], ids=lambda number: number.name
)
def test_a_signal_ends_it_and_restores_the_terminal(number: signal.Signals) -> None:
    with demo() as terminal:
        terminal.process.send_signal(number)
        terminal.wait_exit()
        assert_restored(terminal)
        assert_nothing_left(terminal)
        assert "Traceback" not in terminal.text


@pytest.mark.slow
@pytest.mark.parametrize("ignored", [False, True], ids=["SIGHUP as usual", "SIGHUP ignored"])
def test_a_terminal_torn_off_ends_it(ignored: bool) -> None:
    command = ["sh", "-c", "trap '' HUP; exec \"$@\"", "sh"] if ignored else []
    with Terminal([*command, *MPSTUI, "--demo"]) as terminal:
        terminal.wait_for(WHOLE)
        terminal.wait_for(lambda t: len(t.descendants()) > 3)
        terminal.tear_off()
        until(lambda: terminal.process.poll() is not None, DEADLINE, "the program has ended")
        assert_nothing_left(terminal)


@pytest.mark.slow
def test_a_terminal_torn_off_leaves_the_node_alone(node: Node) -> None:
    clients = node.client_pids()
    with Terminal([*MPSTUI, "--pipe-dir", str(node.pipe_dir)]) as terminal:
        terminal.wait_for(str(clients[0]))
        terminal.tear_off()
        until(lambda: terminal.process.poll() is not None, DEADLINE, "the program has ended")
        assert_nothing_left(terminal)
    assert node.server is not None
    assert node.server.poll() is None
    assert any(process_state(pid) not in (None, "Z") for pid in clients)


@pytest.mark.slow
def test_a_killed_demo_leaves_no_simulated_process() -> None:
    with demo() as terminal:
        terminal.process.kill()
        terminal.process.wait(DEADLINE)
        assert_nothing_left(terminal)


@pytest.mark.slow
def test_stopped_and_continued_it_draws_again(node: Node) -> None:
    with Terminal([*MPSTUI, "--pipe-dir", str(node.pipe_dir)]) as terminal:
        terminal.wait_for(WHOLE)
        terminal.process.send_signal(signal.SIGSTOP)
        until(lambda: process_state(terminal.pid) == "T", DEADLINE, "the program is stopped")
        terminal.screen.erase_in_display(2)
        terminal.process.send_signal(signal.SIGCONT)
        terminal.wait_for(lambda t: "Devices" in t.text and "Servers" in t.text and "Quit" in t.text)
        terminal.key("q")
        assert terminal.wait_exit() == 0
        assert_restored(terminal)


@pytest.mark.slow
def test_ctrl_z_stops_the_job_and_fg_brings_the_whole_screen_back(node: Node) -> None:
    shell = ["bash", "-c", 'set -m; sh -c \'"$@"; exit $?\' sh "$@"; echo stopped $?; read x; fg; echo ended $?', "sh"]
    with Terminal([*shell, *MPSTUI, "--pipe-dir", str(node.pipe_dir)]) as terminal:
        terminal.wait_for(WHOLE)
        terminal.insist("t", "Cancel")
        terminal.key("ctrl+z")
        terminal.wait_for("stopped 147")
        assert_restored(terminal)
        terminal.key("enter")
        terminal.wait_for(lambda t: "Devices" in t.text and "Cancel" in t.text)
        terminal.key("escape")
        terminal.wait_for(lambda t: "Cancel" not in t.text)
        terminal.key("q")
        terminal.wait_for("ended 0")
        assert_restored(terminal)


def test_what_is_typed_before_the_screen_is_there_again_is_dropped(node: Node) -> None:
    """It was meant for the shell: a t behind the Enter of fg opened Terminate."""
    shell = ["bash", "-c", 'set -m; "$@"; echo stopped $?; read x; fg; echo ended $?', "sh"]
    with Terminal([*shell, *MPSTUI, "--pipe-dir", str(node.pipe_dir)]) as terminal:
        terminal.wait_for(WHOLE)
        terminal.key("ctrl+z")
        terminal.wait_for("stopped 147")
        terminal.send("\rt")
        terminal.wait_for(lambda t: t.modes[1049] and WHOLE in t.text)
        terminal.insist("?", "Help ")
        terminal.key("escape")
        terminal.wait_for(lambda t: "Help  ─" not in t.text)
        assert "Cancel" not in terminal.text
        terminal.insist("t", "Cancel")  # it is heard again
        terminal.key("escape")
        terminal.wait_for(lambda t: "Cancel" not in t.text)
        terminal.key("q")
        terminal.wait_for("ended 0")


@pytest.mark.slow
def test_after_somebody_else_s_stop_and_fg_a_key_is_heard_at_once_and_not_echoed(node: Node) -> None:
    shell = ["bash", "-c", 'set -m; "$@"; jobs; read x; fg; jobs; read x; fg; echo ended $?', "sh"]
    with Terminal([*shell, *MPSTUI, "--pipe-dir", str(node.pipe_dir)]) as terminal:
        terminal.wait_for(WHOLE)
        terminal.key("ctrl+z")
        terminal.wait_for("Stopped")
        terminal.send("\n")  # from now on the shell knows the terminal's settings, and puts them back when a job stops
        terminal.wait_for(lambda t: WHOLE in t.text and "Stopped" not in t.text)
        (pid,) = Path(f"/proc/{terminal.pid}/task/{terminal.pid}/children").read_text().split()
        written = len(terminal.bytes)
        os.kill(int(pid), signal.SIGSTOP)
        until(lambda: process_state(int(pid)) == "T", DEADLINE, "the program is stopped")
        # Not in the picture: where the program was stopped in the last column, the shell's words are on one place.
        terminal.wait_for(lambda t: b"Stopped" in t.bytes[written:])
        terminal.send("\n")
        until(lambda: process_state(int(pid)) != "T", DEADLINE, "the program goes on")

        def asks(terminal: Terminal) -> bool:
            terminal.key("t")  # dropped where a client comes or goes at that moment
            terminal.read_for(1)
            return "Cancel" in terminal.text

        def leaves(terminal: Terminal) -> bool:
            if "ended 0" not in terminal.text:
                terminal.key("q")
                terminal.read_for(1)
            return "ended 0" in terminal.text

        terminal.wait_for(asks)
        terminal.key("escape")
        terminal.wait_for(lambda t: "Cancel" not in t.text)
        terminal.wait_for(leaves)


@pytest.mark.slow
def test_ctrl_z_where_no_shell_would_bring_it_back_stops_nothing(node: Node) -> None:
    with Terminal([*MPSTUI, "--pipe-dir", str(node.pipe_dir)]) as terminal:
        terminal.wait_for(WHOLE)
        terminal.key("ctrl+z")
        terminal.wait_for("There is no shell here that could bring mpstui back")

        def leaves(terminal: Terminal) -> bool:
            terminal.key("q")  # what is typed before a change of the node's state is seen is dropped
            terminal.read_for(1)
            return terminal.process.poll() is not None

        terminal.wait_for(leaves)
        assert terminal.wait_exit() == 0
