"""Hostile and odd answers: a client's argv[0] decides nothing, and no text makes a parser raise."""

from __future__ import annotations

import random

import pytest

from mpstui.control import legacy
from mpstui.control.answer import Outcome
from mpstui.control.wire import PsRow, Unreadable

HEADER = b"PID       ID        SERVER         DEVICE                    NAMESPACE      COMMAND        \n"
PARSERS = [getattr(legacy, name) for name in dir(legacy) if name.startswith("parse_") and name != "parse_size"]


def ps_line(pid: int, command: bytes, device: bytes = b"GPU-c6233a33-3507-69ef") -> bytes:
    return b"%-9d %-9d %-14d %-25s %-14d %-15s\n" % (pid, 2, 634, device, 4026531836, command)


def rows(text: bytes) -> tuple[PsRow, ...]:
    parsed = legacy.parse_ps(text)
    assert not isinstance(parsed, Unreadable), parsed
    return parsed


def test_pids_that_fill_or_overrun_their_column() -> None:
    text = HEADER + ps_line(4194303, b"/tmp/client") + ps_line(1234567890, b"/tmp/client")
    assert [(row.pid, row.command) for row in rows(text)] == [(4194303, "/tmp/client"), (1234567890, "/tmp/client")]


def test_a_forged_row_is_kept_as_printed_and_the_true_ones_survive() -> None:
    forged = b"x\n999       5         634            GPU-c6233a33-3507-69ef    4026531836     forged"
    text = HEADER + ps_line(643, forged) + ps_line(644, b"/tmp/client")
    assert [(row.pid, row.command) for row in rows(text)] == [(643, "x"), (999, "forged"), (644, "/tmp/client")]


@pytest.mark.parametrize(
    ("argv0", "shown"),
    [
        (b"a\nb\n\nc", "a\\nb\\n\\nc"),
        (b"\x1b[2J\x1b]0;title\x07", "\\x1b[2J\\x1b]0;title\\x07"),
        (b"\xff\xfe", "\\xff\\xfe"),
        ("\u202etxt.exe".encode(), "\\u202etxt.exe"),
        (b"\rPID", "\\rPID"),
        (b"\x0b\x0c\x1c\xc2\x85", "\\x0b\\x0c\\x1c\\x85"),
        (b"[red]markup[/red]", "[red]markup[/red]"),
        (b"two  words   ", "two  words"),
        (b"", ""),
        (b"Server 634 not found", "Server 634 not found"),
        (b"0\nServer 634 not found\n", "0\\nServer 634 not found\\n"),
    ],
)
def test_hostile_names_stay_on_their_row(argv0: bytes, shown: str) -> None:
    text = HEADER + ps_line(643, argv0) + ps_line(644, b"/tmp/client")
    assert legacy.judge("ps", text, b"", 0) == (Outcome.OK, "")
    assert [(row.pid, row.command) for row in rows(text)] == [(643, shown), (644, "/tmp/client")]


def test_a_name_of_100_kilobytes_is_cut() -> None:
    (row,) = rows(HEADER + ps_line(643, b"x" * 100_000))
    assert row.command.endswith("…")
    assert len(row.command) == 300


def test_a_client_without_a_device_keeps_its_namespace() -> None:
    (row,) = rows(HEADER + ps_line(643, b"/tmp/client", device=b""))
    assert (row.device, row.namespace, row.command) == ("", 4026531836, "/tmp/client")


def test_text_before_the_first_row_is_not_read_as_a_client() -> None:
    assert isinstance(legacy.parse_ps(HEADER + b"nonsense\n" + ps_line(643, b"c")), Unreadable)
    assert isinstance(legacy.parse_ps(ps_line(643, b"c")), Unreadable)


@pytest.mark.slow
def test_no_text_makes_a_parser_raise() -> None:
    chooser = random.Random(580159)
    pieces = [
        HEADER,
        ps_line(643, b"/tmp/client"),
        b"[0] 00:00.0, NVIDIA H100\n645.1\n",
        b"Default\nDevice Ordinal  PCI IDs\n0  0000:00.06.00  GPU-x  NVIDIA  N/A\n\nServer 634\n",
        b"9" * 5000,
        b"33.3\n",
        b"10G\n",
        b"-1\n",
        b"\xff\x00\x1b[2J",
        "٣٣".encode(),
        b"Binary version: 13000",
        b"\n",
        b" ",
        b"",
    ]
    for _ in range(3000):
        text = b"".join(chooser.choice(pieces) for _ in range(chooser.randint(0, 4)))
        cut = chooser.randint(0, len(text))
        text = text[:cut] + bytes(chooser.choices(range(256), k=chooser.randint(0, 3))) + text[cut + 1 :]
        for parser in PARSERS:
            parser(text)
        outcome, message = legacy.judge(chooser.choice(["ps", "terminate_client 1 2", ""]), text, text[::-1], 0)
        assert isinstance(outcome, Outcome)
        assert message.isprintable()


@pytest.mark.parametrize(
    ("stdout", "stderr", "exit_status", "outcome"),
    [
        (b"", b"Cannot find MPS control daemon process\n", 1, Outcome.ABSENT),
        (b"", b"Cannot send command to MPS control daemon process\n", 1, Outcome.HELD),
        (b"Insufficient privileges for UID 2001. x\n", b"", 0, Outcome.NOT_PERMITTED),
        (b"Server not found\n", b"", 0, Outcome.REFUSED),
        (b"634\n", b"", 3, Outcome.UNREADABLE),
        (b"634\n", b"", -11, Outcome.UNREADABLE),
        (b"634\n", b"warning\n", 0, Outcome.UNREADABLE),
        (b"634\nServer 634 not found\n", b"", 0, Outcome.OK),
        (b"Server 634 not found yet, but soon\n", b"", 0, Outcome.OK),
    ],
)
def test_judged_by_the_text(stdout: bytes, stderr: bytes, exit_status: int, outcome: Outcome) -> None:
    judged, message = legacy.judge("get_server_list", stdout, stderr, exit_status)
    assert judged is outcome
    assert bool(message) == (outcome is not Outcome.OK)


def test_terminate_of_a_process_that_is_no_client_is_a_refusal() -> None:
    """Seen on an H100: CUDA error 201 alone, with exit status 0 (fact 28)."""
    outcome, message = legacy.judge("terminate_client 634 409", b"201\n", b"", 0)
    assert (outcome, message) == (Outcome.REFUSED, "The daemon did not terminate the client: it answered 201.")


def test_terminate_is_done_only_by_zero() -> None:
    assert legacy.parse_terminated(b"0\n") is None
    assert isinstance(legacy.parse_terminated(b""), Unreadable)
    assert legacy.judge("terminate_client 1 2", b"1\n", b"", 0)[0] is Outcome.REFUSED


@pytest.mark.parametrize("text", [b"512MB", b"-1G", b"0G", b"abc", b"10", b"10G 2G"])
def test_a_limit_that_mps_never_prints(text: bytes) -> None:
    assert isinstance(legacy.parse_memory_limit(text), Unreadable)


def test_a_device_name_that_fills_its_column() -> None:
    text = b"Default\nDevice Ordinal  PCI IDs  UUID\n0  0000:00.06.00  GPU-x  NVIDIA RTX PRO 6000 Blackwell Max-Q N/A\n"
    query = legacy.parse_device_query(text)
    assert not isinstance(query, Unreadable)
    assert [(d.name, d.attributes) for d in query.default] == [("NVIDIA RTX PRO 6000 Blackwell Max-Q", "N/A")]


@pytest.mark.parametrize(
    ("value", "text"),
    [(25.0, "25"), (33.3, "33.3"), (100.0, "100"), (0.1, "0.1"), (0.00001, "0.00001"), (1 / 3, "0.333333")],
)
def test_percentages_are_sent_as_short_decimal_text(value: float, text: str) -> None:
    assert legacy.percentage_text(value) == text


@pytest.mark.parametrize(
    ("status", "how"),
    [(None, "did not end"), (-9, "was killed by signal 9"), (0, "exited with status 0"), (1, "exited with status 1")],
)
def test_how_the_binary_ended_is_told_where_it_said_nothing(status: int | None, how: str) -> None:
    assert legacy._ending(status) == how


def test_as_many_clients_as_a_daemon_can_have_are_believed() -> None:
    def numbers(count: int) -> object:
        return legacy._numbers(b"".join(b"%d\n" % pid for pid in range(1, count + 1)), 48)

    assert not isinstance(numbers(48), Unreadable)
    assert isinstance(numbers(49), Unreadable)


def test_which_answers_prove_that_the_daemon_was_reached() -> None:
    """Without one of them a question more is asked in the session (fact 30)."""
    asked = legacy.Legacy()
    proofs = (asked.default_percentage(), asked.priority(), asked.server_status(1), asked.devices())
    assert all(question.proof for question in proofs)
    silent = (
        asked.server_list(),
        asked.client_list(1),
        asked.rows(),
        asked.percentage(1),
        asked.memory_limit(None, "0"),
    )
    assert not any(question.proof for question in silent)


def test_a_list_ends_where_the_proof_begins_and_nowhere_else() -> None:
    asked = legacy.Legacy()
    proof, lists = asked.default_percentage(), asked.server_list()
    assert asked.split((lists, proof), b"634\n635\n100.0\n") == [b"634\n635\n", b"100.0\n"]
    assert asked.split((proof, lists), b"100.0\n634\n") == [b"100.0\n", b"634\n"]
    assert asked.split((proof, lists, asked.client_list(634)), b"100.0\n634\n635\n") is None, "whose is which?"
