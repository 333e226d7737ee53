"""``load`` on a daemon with others' clients asks at a terminal, and takes nothing but a yes for one."""

from __future__ import annotations

import os

import pytest
from program import MPSTUI, Node
from terminal import Terminal


def asked(node: Node) -> Terminal:
    argv = [*MPSTUI, "load", "nbody", "--seconds", "0.2", "--pipe-dir", os.fspath(node.pipe_dir)]
    terminal = Terminal(argv)
    terminal.wait_for("start them? [y/N]")
    return terminal


@pytest.mark.slow
@pytest.mark.parametrize(
    ("answer", "status"),
    [("n\r", 6), ("\r", 6), ("yess\r", 6), ("\x04", 6), ("\x03", 130), ("y\r", 0), (" YES \r", 0)],
)
def test_a_load_beside_others_is_a_question(node: Node, answer: str, status: int) -> None:
    with asked(node) as terminal:
        before = " ".join(terminal.text.split())
        assert "1 client of the load would run beside" in before
        assert "They take 1 context" in before
        assert "Ginteractions" not in before
        terminal.send(answer)
        assert terminal.wait_exit() == status, terminal.text
        after = " ".join(terminal.text.split())
        assert ("nothing was started" in after) == (status == 6)
        assert ("Ginteractions/s" in after) == (status == 0)
        assert terminal.current_settings() == terminal.settings
