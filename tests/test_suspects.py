"""Who was there each time: faults compared by user and command."""

from __future__ import annotations

import pytest

from mpstui.core.model import Event, Suspect
from mpstui.core.suspects import ADVICE, program, rank
from mpstui.core.text import MASKED

ALICE, BOB, CAROL = (2001, "alice"), (2002, "bob"), (2003, "carol")


def fault(number: int, *who: tuple[int, tuple[int, str], str | None], named: int | None = None) -> Event:
    suspects = tuple(Suspect(pid, uid, user, command) for pid, (uid, user), command in who)
    values = {"named": str(named or ""), "clients": " ".join(str(s.pid) for s in suspects)}
    return Event("fatal_fault", 1000.0 * number, server_pid=7, raw=f"fault {number}", values=values, suspects=suspects)


def test_who_was_there_each_time_comes_first_whoever_was_named() -> None:
    ranking = rank(
        [
            fault(1, (11, BOB, "python train.py --seed 1"), (12, ALICE, "vllm serve m"), named=12),
            fault(2, (21, BOB, "python train.py --seed 2"), (22, CAROL, "gmx mdrun"), named=22),
            fault(3, (31, CAROL, "other"), (32, BOB, "python train.py"), named=31),
        ]
    )
    # Carol was there twice, by two commands.
    assert ranking.sentence == "In 3 of 3 faults: bob, python train.py; no other command was there at more than 1."
    first = ranking.ranked[0]
    assert (first.user, first.program, first.seen, first.named, first.pids) == (
        "bob",
        "python train.py",
        3,
        0,
        (11, 21, 32),
    )
    assert {each.named for each in ranking.ranked[1:]} == {1}


def test_a_tie_is_said_to_be_one() -> None:
    both = ((11, BOB, "python a.py"), (12, ALICE, "python b.py"))
    ranking = rank([fault(1, *both), fault(2, *both, (13, CAROL, "gmx"))])
    assert [each.user for each in ranking.leaders] == ["alice", "bob"]
    assert ranking.sentence == (
        "Equal: each was there at 2 of 2 faults: alice, python b.py; bob, python a.py; no other user or command was "
        "there at more than 1."
    )


def test_one_fault_tells_nobody_apart() -> None:
    ranking = rank([fault(1, (11, BOB, "python a.py"), (12, ALICE, "python b.py"), named=11)])
    assert ranking.sentence.startswith("One fault so far; any client that was there may have made it: alice")
    assert rank([]).sentence == "No fatal fault is in the history."


def test_two_clients_of_one_program_count_once_a_fault() -> None:
    ranking = rank([fault(1, (11, BOB, "python a.py"), (12, BOB, "python a.py")), fault(2, (21, CAROL, "gmx"))])
    assert [(each.user, each.seen) for each in ranking.ranked] == [("bob", 1), ("carol", 1)]
    assert "Nobody was there each time" in ranking.sentence


def test_a_user_whose_command_is_not_known_may_have_run_any_of_his_programs() -> None:
    """Of clients that ended before mpstui came, the logs tell the user alone."""
    unknown = (2001, None), (2002, None)
    ranking = rank(
        [
            fault(1, (11, unknown[0], None), (12, unknown[1], None)),
            fault(2, (21, ALICE, "python train.py"), (22, CAROL, "gmx")),
        ]
    )
    assert [(e.owner, e.program, e.seen, e.perhaps) for e in ranking.ranked] == [
        ("alice", "python train.py", 1, 1),
        ("UID 2002", None, 1, 0),
        ("carol", "gmx", 1, 0),
    ]
    assert (
        ranking.sentence
        == "In 1 to 2 of 2 faults: alice, python train.py; no other user or command was there at more than 1."
    )
    assert any("only the user is known" in note for note in ranking.notes)


def test_a_tie_with_one_who_was_perhaps_there_says_so() -> None:
    ranking = rank(
        [
            fault(1, (11, ALICE, None), (12, BOB, "python b.py")),
            fault(2, (21, ALICE, "python a.py"), (22, BOB, "python b.py")),
        ]
    )
    assert ranking.sentence == (
        "Equal: each was there at up to 2 of 2 faults: bob, python b.py; alice, python a.py; no other user or command "
        "is known to have been there at any of them."
    )


def test_of_commands_that_nobody_knows_none_is_said_to_have_been_away() -> None:
    """As in logs alone, which tell the user of each client and no command."""
    known = rank([fault(1, (11, ALICE, None)), fault(2, (21, ALICE, None), (22, ALICE, None))])
    assert known.sentence == (
        "In 2 of 2 faults: alice, command not known; no other user or command is known to have been there at any of "
        "them."
    )
    perhaps = rank([fault(1, (11, ALICE, None)), fault(2, (21, ALICE, None)), fault(3, (31, ALICE, "python a.py"))])
    assert perhaps.sentence == (
        "In 1 to 3 of 3 faults: alice, python a.py; no other user or command is known to have been there at any of "
        "them."
    )


def test_the_advice_does_not_promise_that_the_log_names_whoever_was_alone() -> None:
    """After a trap it names nobody (fact 37)."""
    assert "names the right one" not in ADVICE[0]
    assert "nobody else can have made it" in ADVICE[0]


def test_commands_that_a_recording_masks_are_not_one_command() -> None:
    """All of them read the same there, whatever they were: “In 2 of 2 faults: alice, (masked)”."""
    ranking = rank([fault(1, (11, ALICE, MASKED)), fault(2, (21, ALICE, MASKED), (22, BOB, MASKED))])
    assert [(each.user, each.program) for each in ranking.ranked] == [("alice", None), ("bob", None)]
    assert ranking.sentence.startswith("In 2 of 2 faults: alice, command not known; ")


def test_a_user_who_was_there_each_time_with_other_programs_is_not_said_to_have_been_away() -> None:
    """No program of alice's was there twice, and alice was."""
    ranking = rank(
        [
            fault(1, (11, ALICE, "python a.py"), (12, BOB, "vllm")),
            fault(2, (21, ALICE, "python b.py"), (22, CAROL, "gmx")),
        ]
    )
    assert "Nobody was there each time" not in ranking.sentence
    assert ranking.sentence.endswith(" No command was there each time, but a client of alice was.")
    both = (12, BOB, "vllm")
    ranking = rank([fault(1, (11, ALICE, "python a.py"), both), fault(2, (21, ALICE, "python b.py"), both)])
    assert ranking.sentence == (
        "In 2 of 2 faults: bob, vllm; no other command was there at more than 1. A client of alice was there each time "
        "too."
    )


@pytest.mark.parametrize(
    ("there", "note"),
    [
        ((Suspect(4),), "At 1 fault neither user nor command of client 4 is known."),
        ((), "At 1 fault nothing tells which clients were there."),
    ],
)
def test_of_a_fault_at_which_nobody_is_known_nobody_is_said_to_have_been_away(
    there: tuple[Suspect, ...], note: str
) -> None:
    """As in a container, where control.log calls each client 0, or where the log began to be kept later."""
    known = [fault(1, (11, BOB, "python a.py"), (12, CAROL, "gmx")), fault(2, (21, BOB, "python a.py"))]
    ranking = rank([*known, Event("fatal_fault", 9000.0, raw="x", suspects=there)])
    assert (
        ranking.sentence
        == "In 2 of 3 faults: bob, python a.py; no other user or command is known to have been there at more than 1."
    )
    assert note in ranking.notes


def test_a_fault_told_twice_counts_once_and_nobody_known_is_said() -> None:
    stranger = Event("fatal_fault", 5.0, suspects=(Suspect(4),), raw="x")
    ranking = rank([stranger, stranger])
    assert (len(ranking.faults), ranking.strangers, ranking.ranked) == (1, 1, ())
    assert ranking.sentence == "1 fault, and neither user nor command of any client there is known."
    assert "At 1 fault neither user nor command of client 4 is known." in ranking.notes


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("python train.py --lr 3 --seed 4", "python train.py"),
        ("python -m vllm.entrypoints.api --port 8", "python -m vllm.entrypoints.api"),
        ("/tmp/client spin 30", "/tmp/client spin 30"),
        ("gmx mdrun -deffnm md_0_1", "gmx mdrun"),
        ("-weird", "-weird"),
        ("", None),
        (None, None),
    ],
)
def test_a_program_is_its_command_without_options(command, name) -> None:
    assert program(command) == name
