"""Several questions in one session: whose answer is which line, and when that cannot be told."""

from __future__ import annotations

from pathlib import Path

import pytest

from mpstui.control.answer import Outcome
from mpstui.control.mps import MpsControl
from mpstui.control.protocol import LEGACY as q
from mpstui.control.wire import Question

from .test_channel import Script, channel, script

__all__ = ["script"]
SERVER = 634
STATUS, PROOF = q.server_status(SERVER), q.default_percentage()
SET, READ = q.set_percentage(SERVER, 25), q.percentage(SERVER)
LIMIT, LIMIT_READ = q.set_memory_limit(SERVER, "0", "2G"), q.memory_limit(SERVER, "0")
NOT_FOUND = b"Server 634 not found\n"
NOT_PERMITTED = b"Insufficient privileges for UID 2001. Control deamon settings can only be modified by root.\n"


@pytest.mark.parametrize(
    ("asked", "printed", "parts"),
    [
        ((STATUS, SET, READ), b"ACTIVE\n25.0\n25.0\n", [b"ACTIVE\n", b"25.0\n", b"25.0\n"]),
        ((STATUS, SET, READ), NOT_FOUND * 3, [NOT_FOUND] * 3),
        ((STATUS, SET, READ), b"ACTIVE\n" + NOT_FOUND * 2, [b"ACTIVE\n", NOT_FOUND, NOT_FOUND]),
        ((STATUS, SET, READ), b"INITIALIZING\n", None),
        ((STATUS, SET, READ), b"INITIALIZING\n25.0\n", None),
        ((STATUS, SET, READ), b"ACTIVE\n25.0\n25.0", None),
        ((STATUS, SET, READ), b"ACTIVE\n25.0\n25.0\n25.0\n", None),
        ((STATUS, LIMIT, LIMIT_READ), b"ACTIVE\n2G\n", [b"ACTIVE\n", b"", b"2G\n"]),
        ((STATUS, LIMIT, LIMIT_READ), b"ACTIVE\n", [b"ACTIVE\n", b"", b""]),
        ((STATUS, LIMIT, LIMIT_READ), b"ACTIVE\n" + NOT_PERMITTED, [b"ACTIVE\n", NOT_PERMITTED, b""]),
        ((STATUS, LIMIT, LIMIT_READ), b"ACTIVE\n" + NOT_PERMITTED + b"1G\n", [b"ACTIVE\n", NOT_PERMITTED, b"1G\n"]),
        ((q.client_list(SERVER), PROOF), b"643\n644\n100.0\n", [b"643\n644\n", b"100.0\n"]),
        ((q.client_list(SERVER), PROOF), b"100.0\n", [b"", b"100.0\n"]),
        ((q.client_list(SERVER), PROOF), NOT_FOUND + b"100.0\n", [NOT_FOUND, b"100.0\n"]),
        ((q.client_list(SERVER), STATUS), b"643\nACTIVE\n", [b"643\n", b"ACTIVE\n"]),
        ((q.client_list(SERVER), STATUS), b"ACTIVE\n", [b"", b"ACTIVE\n"]),
        ((q.client_list(SERVER), STATUS), NOT_FOUND * 2, None),  # with one of them, it could be either's
        ((LIMIT_READ, STATUS), b"2G\nACTIVE\n", None),
        ((LIMIT_READ, PROOF, LIMIT_READ), b"100.0\n2G\n", [b"", b"100.0\n", b"2G\n"]),
        ((LIMIT_READ, PROOF, LIMIT_READ), b"2G\n100.0\n", [b"2G\n", b"100.0\n", b""]),
        ((LIMIT_READ, PROOF, LIMIT_READ), NOT_FOUND + b"100.0\n" + NOT_FOUND, [NOT_FOUND, b"100.0\n", NOT_FOUND]),
        ((LIMIT_READ, LIMIT_READ), b"2G\n", None),
        ((READ, LIMIT_READ, PROOF, LIMIT_READ), b"2G\n100.0\n", None),  # it is starting (fact 45)
        ((q.devices(), PROOF), b"Default\n100.0\n", None),
    ],
)
def test_answers_are_told_apart_or_not_at_all(
    asked: tuple[Question[object], ...], printed: bytes, parts: list[bytes] | None
) -> None:
    assert q.split(asked, printed) == parts


async def test_where_they_cannot_be_told_apart_each_is_asked_alone(tmp_path: Path, script: Script) -> None:
    text = 'lines=$(cat); [ "$(echo "$lines" | wc -l)" = 2 ] && { echo 50.0; echo 25.0; } || echo garbage'
    one = channel(tmp_path, script(text))
    status, percentage = await MpsControl(one).ask_all(STATUS, READ)
    assert one.sent == 3
    assert (status.outcome, percentage.value) == (Outcome.UNREADABLE, 25.0)


async def test_a_session_without_a_byte_is_put_again_and_never_an_answer(tmp_path: Path, script: Script) -> None:
    count = tmp_path / "count"
    one = channel(tmp_path, script(f'cat >/dev/null; echo x >> {count}; [ "$(wc -l < {count})" -lt 3 ] || echo 50.0'))
    sent, read = await MpsControl(one).ask_all(q.set_priority(1), q.default_percentage())
    assert (sent.outcome, read.value, one.sent) == (Outcome.OK, 50.0, 3)


@pytest.mark.parametrize(("percentage", "outcome"), [("", Outcome.STARTING), ("echo 25.0", Outcome.OK)])
async def test_of_a_driver_without_a_status_the_percentage_tells_whether_a_memory_limit_was_taken(
    tmp_path: Path, script: Script, percentage: str, outcome: Outcome
) -> None:
    """A memory limit is set in silence, and read back as nothing where there is none: as by a server that is starting
    (facts 6, 45, 46)."""
    text = f"""while read -r line; do case "$line" in
    get_server_status*) echo 'Unknown command "get_server_status"';;
    get_default_active*) echo 100.0;; get_active*) {percentage or ":"};;
    esac; done"""
    change = MpsControl(channel(tmp_path, script(text))).change
    answers = await change(q.set_memory_limit(SERVER, "0", "0"), q.memory_limit(SERVER, "0"), SERVER)
    assert [answer.outcome for answer in answers] == [outcome, outcome]


@pytest.mark.parametrize(
    ("again", "outcome", "said"),
    [
        ("echo 25.0", Outcome.STARTING, "was starting and is ACTIVE now"),
        (":", Outcome.UNREADABLE, "as ACTIVE but returns no value"),
    ],
)
async def test_of_a_server_that_is_active_it_is_not_said_that_it_is_starting(
    tmp_path: Path, script: Script, again: str, outcome: Outcome, said: str
) -> None:
    """Empty it is only while it starts (fact 45): it has become ready since, or this is no answer that is known."""
    asked = tmp_path / "asked"
    text = f"""while read -r line; do case "$line" in
    get_server_status*) echo ACTIVE; touch {asked};;
    get_default_active*) echo 100.0;; get_active*) if [ -e {asked} ]; then {again}; fi;;
    esac; done"""
    answer = await MpsControl(channel(tmp_path, script(text))).get_active_thread_percentage(SERVER)
    assert answer.outcome is outcome
    assert said in answer.message


async def test_a_daemon_that_is_gone_is_the_answer_to_all(tmp_path: Path, script: Script) -> None:
    one = channel(tmp_path, script("cat >/dev/null; echo Cannot find MPS control daemon process >&2; exit 1"))
    sent, read = await MpsControl(one).change(
        q.set_memory_limit(SERVER, "0", "2G"), q.memory_limit(SERVER, "0"), SERVER
    )
    assert (sent.outcome, read.outcome) == (Outcome.ABSENT, Outcome.ABSENT)


async def test_a_second_line_is_never_sent_with_others(tmp_path: Path, script: Script) -> None:
    one = channel(tmp_path, script("cat"))
    refused = await MpsControl(one).ask_all(PROOF, q.memory_limit(None, "0\nquit"))
    assert [answer.outcome for answer in refused] == [Outcome.REFUSED] * 2
    assert one.sent == 0
