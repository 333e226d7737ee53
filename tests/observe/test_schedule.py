"""When a daemon is asked: never in quiet, once for what belongs together, less and less while it does not answer."""

from __future__ import annotations

import math

import pytest

from mpstui.control.answer import Outcome
from mpstui.observe.poll import LONGEST_RETRY, LONGEST_SPACING, SETTLE, SPACING, Schedule


def read(schedule: Schedule, now: float, outcome: Outcome = Outcome.OK) -> tuple[bool, bool]:
    wanted = schedule.begin(now)
    schedule.end(now, outcome)
    return wanted


def settled(**options) -> Schedule:
    schedule = Schedule(**options)
    assert schedule.due() <= 0.0
    assert read(schedule, 0.0) == (True, True)
    return schedule


def test_quiet_is_never():
    assert settled().due() == math.inf


def test_what_belongs_together_is_asked_about_once():
    schedule = settled()
    schedule.changed("client_connected", 10.0)
    schedule.changed("context_active", 10.1)
    assert schedule.due() == pytest.approx(10.0 + SETTLE)
    assert read(schedule, 10.4) == (True, False)
    assert schedule.due() == pytest.approx(10.1 + 60)


def test_a_limit_is_asked_about_alone():
    schedule = settled()
    schedule.changed("limit_set", 10.0)
    assert read(schedule, 10.5) == (False, True)


def test_a_stream_of_limits_does_not_put_the_question_off():
    schedule = settled()
    for number in range(4):
        schedule.changed("limit_set", 10.0 + number * SETTLE)
    assert schedule.due() == pytest.approx(10.0 + SETTLE)


def test_nor_does_a_doubt() -> None:
    schedule = settled()
    schedule.changed("limit_set", 10.0)
    schedule.doubt(10.0 + SETTLE / 2)
    assert schedule.due() == pytest.approx(10.0 + SETTLE)


@pytest.mark.parametrize("kind", ["command", "session_opened", "session_closed", "unknown", "client_refused"])
def test_questions_trigger_nothing(kind):
    schedule = settled()
    schedule.changed(kind, 10.0)
    assert schedule.due() == math.inf


def test_reconciliation_once_after_the_last_change_and_not_again():
    schedule = settled()
    schedule.changed("client_connected", 10.0)
    read(schedule, 10.5)
    assert schedule.due() == 70.0
    assert read(schedule, 70.0) == (True, True)
    assert schedule.due() == math.inf


def test_reconciliation_can_be_turned_off():
    schedule = settled(reconcile=0)
    schedule.changed("client_connected", 10.0)
    read(schedule, 10.5)
    assert schedule.due() == math.inf


def test_a_stream_of_changes_is_asked_about_less_and_less_often():
    schedule, now, gaps = settled(), 100.0, []
    for _ in range(8):
        schedule.changed("client_connected", now)
        gaps.append(schedule.due() - now)
        now = schedule.due()
        read(schedule, now)
    assert gaps[1] == SPACING
    assert gaps[-1] == LONGEST_SPACING
    schedule.changed("client_connected", now + 60)
    assert schedule.due() - (now + 60) == pytest.approx(SETTLE)


def test_silence_is_probed_later_and_later_and_what_may_end_it_at_once():
    schedule, now, gaps = settled(), 100.0, []
    schedule.ask_now(now)
    for _ in range(5):
        read(schedule, now, Outcome.HELD)
        gaps.append(schedule.due() - now)
        now = schedule.due()
    assert gaps == [2.0, 4.0, 8.0, LONGEST_RETRY, LONGEST_RETRY]
    schedule.changed("session_closed", now)
    assert schedule.due() <= now
    assert read(schedule, now) == (True, True)
    assert schedule.due() == math.inf


def test_polling_is_slow_but_never_ends():
    schedule = settled()
    schedule.polling = True
    assert schedule.due() == 5.0
    assert read(schedule, 5.0) == (True, True)
    assert schedule.due() == 10.0


def test_asleep_is_never():
    schedule = Schedule(asleep=True)
    schedule.ask_now(1.0)
    assert schedule.due() == math.inf


def test_it_is_quiet_where_nothing_changed_and_nobody_asked() -> None:
    schedule = settled()
    assert schedule.quiet
    schedule.ask_now(10.0)
    assert not schedule.quiet
