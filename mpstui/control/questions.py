"""Questions to a daemon, and several of them in one session: whose answer is which part of what the binary prints.

The binary prints all answers in one piece (fact 1). They can be told apart where each one's end is seen from its own
form; ``split`` says no wherever it is not, and then each question is put in a session of its own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Generic, TypeVar

from mpstui.control import legacy
from mpstui.control.channel import PROOF
from mpstui.control.legacy import DeviceQuery, PsRow, Unreadable

T_co = TypeVar("T_co", covariant=True)
_NUMBER = re.compile(rb"[0-9]{1,10}")


class Extent(Enum):
    """Where an answer ends. One line that is an error may stand in the place of any of them (fact 4)."""

    LINE = "one line that its parser takes"
    NUMBERS = "lines of whole numbers, or none; only before the proof, whose line has a point, or at the end"
    SILENT = "nothing"
    REST = "whatever is left; only at the end"


@dataclass(frozen=True, slots=True)
class Question(Generic[T_co]):
    """A command and what its answer looks like."""

    command: str
    parser: Callable[[bytes], T_co | Unreadable]
    extent: Extent = Extent.REST
    proof: bool = False
    """Its answer is never empty, whatever there is: without one the session has not reached the daemon (fact 30)."""


def default_percentage() -> Question[float]:
    """The proof itself."""
    return Question(PROOF, legacy.parse_percentage, Extent.LINE, proof=True)


def set_default_percentage(value: float) -> Question[float]:
    command = f"set_default_active_thread_percentage {legacy.percentage_text(value)}"
    return Question(command, legacy.parse_percentage, Extent.LINE, proof=True)


def percentage(server: int) -> Question[float]:
    """No proof: a server that is starting prints nothing (fact 45)."""
    return Question(f"get_active_thread_percentage {server}", legacy.parse_percentage, Extent.LINE)


def set_percentage(server: int, value: float) -> Question[float]:
    command = f"set_active_thread_percentage {server} {legacy.percentage_text(value)}"
    return Question(command, legacy.parse_percentage, Extent.LINE)


def priority() -> Question[int]:
    return Question("get_default_client_priority", legacy.parse_priority, Extent.LINE, proof=True)


def set_priority(value: int) -> Question[None]:
    return Question(f"set_default_client_priority {value}", legacy.parse_nothing, Extent.SILENT)


def memory_limit(server: int | None, device: str) -> Question[int | None]:
    command = "get_default_device_pinned_mem_limit" if server is None else f"get_device_pinned_mem_limit {server}"
    return Question(f"{command} {device}", legacy.parse_memory_limit)


def set_memory_limit(server: int | None, device: str, text: str) -> Question[None]:
    command = "set_default_device_pinned_mem_limit" if server is None else f"set_device_pinned_mem_limit {server}"
    return Question(f"{command} {device} {text}", legacy.parse_nothing, Extent.SILENT)


def server_list() -> Question[tuple[int, ...]]:
    return Question("get_server_list", legacy.parse_server_list, Extent.NUMBERS)


def server_status(server: int) -> Question[str]:
    return Question(f"get_server_status {server}", legacy.parse_status, Extent.LINE, proof=True)


def client_list(server: int) -> Question[tuple[int, ...]]:
    return Question(f"get_client_list {server}", legacy.parse_client_list, Extent.NUMBERS)


def ps() -> Question[tuple[PsRow, ...]]:
    """What it prints is the clients' to choose (fact 10): nothing behind it could be told apart."""
    return Question("ps", legacy.parse_ps)


def device_query() -> Question[DeviceQuery]:
    return Question("device_query", legacy.parse_device_query, proof=True)


def split(questions: Sequence[Question[object]], stdout: bytes) -> list[bytes] | None:
    """The answer to each question, in their order; None where they cannot be told apart for certain."""
    lines = [line + b"\n" for line in stdout.split(b"\n")]
    if lines.pop() != b"\n":
        return None  # the last line is not whole
    found: list[bytes] = []
    for index, question in enumerate(questions):
        following = questions[index + 1] if index + 1 < len(questions) else None
        taken = _taken(question, following, lines)
        if taken is None:
            return None
        found.append(b"".join(lines[:taken]))
        del lines[:taken]
    return None if lines else found


def _taken(question: Question[object], following: Question[object] | None, lines: Sequence[bytes]) -> int | None:
    """How many of ``lines`` are the answer to ``question``."""
    error = bool(lines) and legacy.is_refusal(lines[0])
    if question.extent is Extent.REST:
        return len(lines) if following is None else None
    if question.extent is Extent.SILENT:
        return int(error)
    if question.extent is Extent.LINE:
        sure = error or (bool(lines) and not isinstance(question.parser(lines[0]), Unreadable))
        return 1 if sure else None
    if following is not None and following.command != PROOF:
        return None
    if error:
        return 1
    return next((i for i, line in enumerate(lines) if not _NUMBER.fullmatch(line.rstrip(b"\n"))), len(lines))
