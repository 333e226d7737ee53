"""Amounts as a person types them, weights, SM counts, sizes, made into numbers or refused in words."""

from __future__ import annotations

import re
from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction

from mpstui.core.late import pattern
from mpstui.core.requests import Unable
from mpstui.core.text import plural, printable, size_hint, typed_size

_NUMBER = pattern(r"[0-9]{1,12}(\.[0-9]{1,6})?")
_COUNT = pattern(r"[0-9]{1,9}")
_MEBIBYTE = 1 << 20


class PlanError(Unable):
    """Why there is no such plan, in one sentence for a person."""


def count(text: str, what: str) -> int:
    """A whole number above 0. Raises PlanError; ``what`` names it."""
    text = text.strip()
    if not _COUNT.fullmatch(text) or int(text) == 0:
        raise PlanError(f"{what}: {_quoted(text)} is no whole number above 0{_too_long(text)}")
    return int(text)


def counts(text: str, what: str) -> tuple[int, ...]:
    """``24,60``: whole numbers above 0. Raises PlanError."""
    return tuple(count(part, what) for part in text.split(","))


def weights(text: str, what: str = "weights") -> tuple[Fraction, ...]:
    """``30,70`` or ``1,1.5``: numbers above 0. Raises PlanError."""
    found = []
    for part in text.split(","):
        part = part.strip()
        if not _NUMBER.fullmatch(part) or not Decimal(part):
            raise PlanError(f"{what}: {_quoted(part)} is no number above 0{_too_long(part)}")
        found.append(Fraction(part))
    return tuple(found)


def size(text: str, what: str) -> int:
    """Bytes of ``80GiB``, ``10G``, ``900M``, ``79.6 GiB``; units are binary as MPS's are. Raises PlanError."""
    found = typed_size(text)
    if found is None:
        raise PlanError(f"{what}: {_quoted(text)} is no size; {size_hint(text) or 'write 900M, 10G or 79.6GiB'}")
    if found < _MEBIBYTE:
        raise PlanError(f"{what}: {_quoted(text)} is less than 1M, the least that MPS takes")
    return found


def sizes(text: str, what: str) -> tuple[int, ...]:
    """``10G,20G``, in bytes. Raises PlanError."""
    return tuple(size(part, what) for part in text.split(","))


def limit_text(limit: int) -> str:
    """A memory limit as MPS takes it, ``10G`` or ``20341M``; what is no whole MiB is rounded down."""
    mebibytes = limit // _MEBIBYTE
    return f"{mebibytes // 1024}G" if mebibytes and mebibytes % 1024 == 0 else f"{mebibytes}M"


def printed_limit(limit: int) -> str:
    """A memory limit as a daemon prints it: whole G from 1G on, rounded down (fact 32)."""
    gibibytes = limit >> 30
    return f"{gibibytes}G" if gibibytes else limit_text(limit)


def whole_mebibytes(limit: int) -> int:
    """``limit`` rounded down to what a limit can say."""
    return limit // _MEBIBYTE * _MEBIBYTE


def times_given(number: int) -> str:
    """``1 was given``, ``3 were given``."""
    return f"{number} {'was' if number == 1 else 'were'} given"


def given_for(number: int, clients: int) -> str:
    """``3 were given for 1 client``."""
    return f"{times_given(number)} for {plural(clients, 'client')}"


def spread(values: Sequence[int], number: int, what: str) -> tuple[int, ...]:
    """One value for each of ``number`` clients: as many as there are, or one for all. Raises PlanError."""
    if len(values) == 1:
        return tuple(values) * number
    if len(values) != number:
        raise PlanError(f"{what}: {given_for(len(values), number)}")
    return tuple(values)


def _too_long(text: str) -> str:
    """What is wrong with a number that is one."""
    return " of at most 9 digits" if re.fullmatch(r"[0-9.]{10,}", text) else ""


def _quoted(text: str) -> str:
    return f"“{printable(text, 40)}”" if text else "nothing"
