"""Features of protocol 3: switched by the documented words, and believed as far as its description is understood."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mpstui.control.answer import Answer, Outcome
from mpstui.core.model import Daemon
from mpstui.core.v3 import Namespace, V3Node
from mpstui.operations.registry import operation
from mpstui.operations.types import ExitStatus, Request
from mpstui.operations.v3 import V3Operation, space_words

HERE = Path("/p")


def asked(action: str, name: str) -> tuple[V3Operation, Request]:
    found = operation(action)
    assert isinstance(found, V3Operation)
    return found, Request(action, HERE, name)


@pytest.mark.parametrize(
    ("lines", "told", "done"),
    [
        (("memacct: enabled", "context-share: disabled"), "enabled", True),
        (("MEMACCT = Disabled",), "disabled", False),
        (("Memory accounting is on",), "—", True),  # a form that is not known proves nothing
        ((), "—", True),
    ],
)
def test_what_the_daemon_says_of_it(lines: tuple[str, ...], told: str, done: bool) -> None:
    enable, request = asked("v3_feature_enable", "memacct")
    node = V3Node(features=lines)
    assert dict(enable.check(request, node, Daemon(HERE)))["now"] == told
    assert (enable.missing(request, node) is None) is done
    if told == "—":
        assert "feature describe does not confirm it" in enable.tell(request, node, Daemon(HERE))[0]


def test_the_words_that_are_sent_and_taken_back() -> None:
    enable, request = asked("v3_feature_enable", "context-share")
    assert enable.calls(request) == [["feature", "enable", "context-share"]]
    daemon = Daemon(HERE, protocol="v3", v3=V3Node(features=("context-share: disabled",)))
    back = enable.undo(request, daemon)
    assert back is not None
    assert (back.action, back.value) == ("v3_feature_disable", "context-share")
    assert enable.undo(request, Daemon(HERE, protocol="v3", v3=V3Node())) is None
    assert enable.command_line(request) == "mpstui feature enable context-share --pipe-dir /p"


@pytest.mark.parametrize(
    ("space", "words"),
    [
        (None, "—"),
        (Namespace("small", "a"), "no percentage, no memory limit"),
        (Namespace("small", "a", None, "8G", 25.0, 0), "25 %, 8G"),
        (Namespace("small", "a", None, "8G", 25.0, 1), "25 %, 8G, below normal"),
    ],
)
def test_the_limits_of_a_namespace_in_words(space: Namespace | None, words: str) -> None:
    assert space_words(space) == words


def test_what_is_no_feature_is_refused_with_those_that_there_are() -> None:
    disable, request = asked("v3_feature_disable", "mem\x1b[2Jacct")
    refused = disable.wrong_value(request)
    assert refused is not None
    assert refused.status is ExitStatus.USAGE
    assert "memacct, context-share" in str(refused)
    assert str(refused).isprintable()


@pytest.mark.parametrize(
    ("outcome", "after", "message"),
    [
        (Outcome.OK, "enabled", None),
        (Outcome.OK, "disabled", "memacct is disabled as before"),
        (Outcome.REFUSED, "disabled", "not now"),
        (Outcome.REFUSED, "enabled", "not now"),  # by somebody else
    ],
)
async def test_what_the_daemon_refused_or_does_not_show_was_not_done(
    outcome: Outcome, after: str, message: str | None
) -> None:
    enable, request = asked("v3_feature_enable", "memacct")
    nodes = [V3Node(features=(f"memacct: {state}",)) for state in (after, "disabled")]

    async def read_v3() -> tuple[Answer[object], V3Node]:
        return Answer("", Outcome.OK), nodes.pop()

    async def call(*words: str) -> Answer[str]:
        return Answer(" ".join(words), outcome, message="" if outcome is Outcome.OK else "not now")

    control: Any = SimpleNamespace(read_v3=read_v3, call=call)
    work: Any = SimpleNamespace(
        request=request, control=control, daemon=Daemon(HERE, protocol="v3", v3=nodes[1]), progress=lambda text: None
    )
    result = await enable.run(work)
    assert result.done is (message is None)
    assert message is None or (result.status, result.message) == (ExitStatus.REFUSED_BY_DAEMON, message)
