"""``mpstui.core.late`` beside the standard library's own: the same classes and patterns, made by both."""

from __future__ import annotations

import copy
import dataclasses
import importlib
import pickle
import pkgutil
import re
import sys
from collections.abc import Callable
from dataclasses import FrozenInstanceError, field
from pathlib import Path
from typing import Any, ClassVar, cast

import pytest

import mpstui.control
from mpstui.core import late


def frozen(make: Any) -> Any:
    @make(frozen=True, slots=True)
    class Frozen:
        first: int
        second: list[int] = field(default_factory=list)
        third: str = "c"
        fourth: int = field(default=4, compare=False, repr=False)
        fifth: int = field(default=5, init=False)
        kept: ClassVar[int] = 6

    return Frozen


def plain(make: Any) -> Any:
    @make
    class Plain:
        first: int
        second: int = 2
        total: int = field(init=False)

        def __post_init__(self) -> None:
            self.total = self.first + self.second

    return Plain


def by_identity(make: Any) -> Any:
    @make(eq=False)
    class Identity:
        first: int = 1

    return Identity


def with_own(make: Any) -> Any:
    @make(frozen=True)
    class Own:
        first: float = 0.0

        def __repr__(self) -> str:
            return "own"

        def __eq__(self, other: object) -> bool:
            return isinstance(other, int)

        def __hash__(self) -> int:
            return 7

    return Own


def empty(make: Any) -> Any:
    @make(frozen=True, slots=True)
    class Empty:
        pass

    return Empty


def told(ask: Callable[[], Any]) -> Any:
    """What comes of it, also where that is an error."""
    try:
        return ask()
    except (TypeError, AttributeError) as error:
        return type(error), str(error).replace("<locals>.", "")


ASKED: tuple[Callable[[Any], Any], ...] = (
    lambda kind: kind(),
    lambda kind: kind(1, 2, 3, 4, 5, 6),
    lambda kind: kind(unknown=1),
    lambda kind: repr(kind(1)),
    lambda kind: kind(1) == kind(1),
    lambda kind: kind(1) == kind(2),
    lambda kind: kind(first=1) != kind(1),
    lambda kind: kind(1) == 1,
    lambda kind: kind() == kind(),
    lambda kind: kind(1, (), fourth=1) == kind(1, (), fourth=2),
    lambda kind: hash(kind(1, ())) == hash(kind(1, ())),
    lambda kind: kind.__hash__ is None,
    lambda kind: setattr(kind(1), "first", 2),
    lambda kind: delattr(kind(1), "first"),
    lambda kind: kind(1).second is kind(1).second,
    lambda kind: dataclasses.astuple(dataclasses.replace(kind(1), first=3)),
    lambda kind: dataclasses.asdict(kind(1)),
    lambda kind: dataclasses.asdict(copy.copy(kind(1))),
    lambda kind: dataclasses.asdict(copy.deepcopy(kind(1))),
    lambda kind: [each.name for each in dataclasses.fields(kind)],
    lambda kind: kind.__match_args__,
    lambda kind: getattr(kind, "__slots__", None),
    lambda kind: dataclasses.is_dataclass(kind(1)),
)


@pytest.mark.parametrize("make", [frozen, plain, by_identity, with_own, empty])
def test_as_the_library(make: Callable[[Any], Any]) -> None:
    for number, ask in enumerate(ASKED):
        ours, theirs = make(late.dataclass), make(dataclasses.dataclass)  # anew: a first call is not as a second
        for _ in range(2):
            ours_told, theirs_told = told(lambda: ask(ours)), told(lambda: ask(theirs))  # noqa: B023
            if theirs_told.__class__ is theirs:  # an instance, which the other can't be equal to
                ours_told, theirs_told = repr(ours_told)[:20], repr(theirs_told)[:20]
            assert ours_told == theirs_told, number


@late.dataclass(frozen=True, slots=True)
class Kept:
    """At the top of a module, where pickle finds it."""

    first: int
    second: tuple[int, ...] = ()


def test_goes_through_pickle_and_stays_frozen() -> None:
    again = pickle.loads(pickle.dumps(Kept(1, (2,))))
    assert again == Kept(1, (2,))
    with pytest.raises(FrozenInstanceError):
        again.first = 2


@pytest.mark.parametrize("text", ["a(b)?(?P<name>c+)", b"A[0-9]{1,3}", "(?x) b | c", ""])
def test_a_pattern_as_the_library(text: Any) -> None:
    for flags in (0, re.IGNORECASE):
        for name, *arguments in (
            ("search", "xabccA12"), ("match", "abc"), ("fullmatch", "bc"), ("sub", "-", "abcc"), ("findall", "abcabc"),
        ):  # fmt: skip
            given = [each if isinstance(text, str) else each.encode() for each in arguments]
            ours, theirs = late.pattern(text, flags), re.compile(text, flags)
            for _ in range(2):
                assert str(getattr(ours, name)(*given)) == str(getattr(theirs, name)(*given))
            assert (ours.pattern, ours.flags, ours.groups) == (theirs.pattern, theirs.flags, theirs.groups)


def test_nobody_takes_the_library_s_own() -> None:
    for path in Path(mpstui.__path__[0]).rglob("*.py"):
        text = path.read_text()
        assert path.name == "late.py" or not re.search(r"(?m)^(from dataclasses import .*\bdataclass\b)", text), path


def test_re_is_given_no_pattern_that_is_made_late() -> None:
    """``re.match(A_PATTERN, …)`` takes the library's own alone, and mypy sees no difference."""
    found = 0
    for path in Path(mpstui.__path__[0]).rglob("*.py"):
        text = path.read_text()
        late_ones = set(re.findall(r"(?m)^(\w+)(?:: [^=\n]+)? = pattern\(", text))
        given = set(re.findall(r"\bre\.[a-z]+\(\s*(\w+)\s*[,)]", text))
        assert not late_ones & given, path
        found += len(late_ones)
    assert found > 60


def test_all_patterns_of_the_program_can_be_compiled() -> None:
    """What the library would say while the module is imported."""
    modules = [each.name for each in pkgutil.walk_packages(mpstui.__path__, "mpstui.") if ".core." in each.name]
    modules += [each.name for each in pkgutil.walk_packages(mpstui.control.__path__, "mpstui.control.")]
    modules += ["mpstui.system.procfs", "mpstui.observe.devices", "mpstui.operations.registry", "mpstui.config"]
    found = 0
    for name in modules:
        importlib.import_module(name)
    for name, module in sorted(sys.modules.items()):
        for each in vars(module).values() if name.startswith("mpstui.") else ():
            if isinstance(each, late._Pattern):
                assert cast("Any", each).groups >= 0, name
                found += 1
    assert found > 60
