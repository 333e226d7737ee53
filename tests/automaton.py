"""Whether a regular expression can take time that grows with a power of its text, told by its form alone.

A backtracking matcher tries each way to divide a text among the repeats of a pattern. It has more than a few where two
places of the pattern, one behind the other, can both go round by one and the same word, and the word leads from the one
to the other: blanks and blanks again, with nothing needed between. Then n characters are divided in n ways, each of
which is tried before the pattern fails.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from itertools import product
from typing import Any, Final, NamedTuple

if sys.version_info >= (3, 11):
    from re import _parser as parser  # type: ignore[attr-defined]
else:
    import sre_parse as parser

_ALPHABET: Final = (*map(chr, range(128)), "\x85", "\xa0", "é", "٣", "\u2003", "漢")
"""Of each kind of character some."""
_COPIES: Final = 2
"""Of what is repeated so often at most that a number is named: that is divided in few ways."""


class _Part(NamedTuple):
    """Of a pattern: the places where it may begin and end, and whether it may be nothing."""

    first: frozenset[int] = frozenset()
    last: frozenset[int] = frozenset()
    nothing: bool = True


class Automaton:
    """The places of a pattern, each with the characters that it takes, and which may follow which. What looks ahead or
    behind takes nothing, and is taken for true. ``twice``: places that are followed by another one in two ways."""

    def __init__(self, pattern: re.Pattern[Any]) -> None:
        self._flags = pattern.flags & (re.ASCII | re.IGNORECASE | re.DOTALL)
        if isinstance(pattern.pattern, bytes):
            self._flags |= re.ASCII
        self.takes = list[frozenset[str]]()
        self.follow = list[set[int]]()
        self.twice = set[int]()
        source = pattern.pattern
        self._tree(parser.parse(source, pattern.flags))

    def _place(self, takes: Iterable[str]) -> _Part:
        self.takes.append(frozenset(takes))
        self.follow.append(set())
        only = frozenset((len(self.takes) - 1,))
        return _Part(only, only, False)

    def _then(self, one: _Part, other: _Part) -> _Part:
        for place in one.last:
            self.twice |= {place} if self.follow[place] & other.first else set()
            self.follow[place] |= other.first
        return _Part(
            one.first | (other.first if one.nothing else frozenset()),
            other.last | (one.last if other.nothing else frozenset()),
            one.nothing and other.nothing,
        )

    def _tree(self, items: Iterable[tuple[Any, Any]]) -> _Part:
        whole = _Part()
        for code, given in items:
            whole = self._then(whole, self._item(str(code), given))
        return whole

    def _item(self, code: str, given: Any) -> _Part:
        if code == "BRANCH":
            parts = [self._tree(branch) for branch in given[1]]
            first, last = (frozenset().union(*(part[n] for part in parts)) for n in (0, 1))
            return _Part(first, last, any(part.nothing for part in parts))
        if code == "SUBPATTERN":
            outside, (_, more, fewer, items) = self._flags, given
            self._flags = (outside | more) & ~fewer
            part = self._tree(items)
            self._flags = outside
            return part
        if code == "ATOMIC_GROUP":
            return self._tree(given)
        if code in {"MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"}:
            return self._repeat(*given)
        if code in {"AT", "ASSERT", "ASSERT_NOT"}:
            return _Part()
        return self._place(char for char in _ALPHABET if self._is_one(code, given, char))

    def _repeat(self, least: int, most: Any, items: Any) -> _Part:
        whole = _Part()
        if most == parser.MAXREPEAT:
            whole = self._tree(items)
            whole = self._then(whole, whole)._replace(first=whole.first, last=whole.last, nothing=True)
        else:
            for _ in range(min(int(most) - least, _COPIES)):
                whole = self._then(self._tree(items), whole)._replace(nothing=True)
        for _ in range(min(least, _COPIES)):
            whole = self._then(self._tree(items), whole)
        return whole

    def _is_one(self, code: str, given: Any, char: str) -> bool:
        if self._flags & re.IGNORECASE and char.swapcase() != char:
            plain = Automaton.__new__(Automaton)
            plain._flags = self._flags & ~re.IGNORECASE
            return plain._is_one(code, given, char) or plain._is_one(code, given, char.swapcase())
        if code == "LITERAL":
            return ord(char) == int(given)
        if code == "NOT_LITERAL":
            return ord(char) != int(given)
        if code == "ANY":
            return char != "\n" or bool(self._flags & re.DOTALL)
        if code == "RANGE":
            return given[0] <= ord(char) <= given[1]
        if code == "CATEGORY":
            kind = str(given).removeprefix("CATEGORY_")
            word = {"DIGIT": r"\d", "SPACE": r"\s", "WORD": r"\w"}[kind.removeprefix("NOT_")]
            return bool(re.match(word, char, self._flags & re.ASCII)) is not kind.startswith("NOT_")
        assert code == "IN", code
        negated = str(given[0][0]) == "NEGATE"
        return any(self._is_one(str(one), what, char) for one, what in given[negated:]) is not negated

    def _reached(self, start: int) -> set[int]:
        found, rest = set[int](), [start]
        while rest:
            for place in self.follow[rest.pop()] - found:
                found.add(place)
                rest.append(place)
        return found

    def divided(self) -> Iterator[tuple[int, int]]:
        """Two places between which one text is divided in as many ways as it has characters."""
        reached = [self._reached(place) for place in range(len(self.takes))]
        yield from ((place, place) for place in self.twice)
        rounds = [place for place in range(len(self.takes)) if place in reached[place]]
        for one, other in product(rounds, rounds):
            if one != other and other in reached[one] and self._share(one, other, reached):
                yield one, other

    def _share(self, one: int, other: int, reached: list[set[int]]) -> bool:
        """Whether a word leads from the one place to itself, from it to the other, and from that to itself."""
        start, end = (one, one, other), (one, other, other)
        seen, rest = set[tuple[int, ...]](), [start]
        while rest:
            now = rest.pop()
            for step in product(*(self.follow[place] for place in now)):
                if step in seen or one not in reached[step[0]] | {step[0]} or other not in reached[step[2]] | {step[2]}:
                    continue
                if other not in reached[step[1]] | {step[1]}:
                    continue
                if not self.takes[step[0]] & self.takes[step[1]] & self.takes[step[2]]:
                    continue
                if step == end:
                    return True
                seen.add(step)
                rest.append(step)
        return False
