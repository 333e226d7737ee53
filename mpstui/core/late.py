"""What costs much to import and is often not used: made when it is first used.

``pattern`` is ``re.compile``, which is asked when the pattern is. ``dataclass`` is as the standard library has it, with
methods that are compiled when they are first called: the library's own writes the source of six methods for each class
and compiles it while a module is imported, nearly all of it for nothing, half a millisecond a class, of which
``status`` imports some seventy (33 ms of its processor time; with these 4, 2026-11-22). Fields, defaults, slots and
``replace`` are the library's.

What ``dataclass`` knows: ``frozen``, ``slots`` and ``eq``; fields with defaults, factories, ``init``, ``repr`` and
``compare``; ``__post_init__``. A method that the class has is left as it is.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, AnyStr, cast


class _Pattern:
    """A compiled pattern as soon as anything is asked of it."""

    def __init__(self, text: Any, flags: int) -> None:
        self._asked = text, flags

    def __getattr__(self, name: str) -> Any:
        compiled = re.compile(*self._asked)
        for each in ("search", "match", "fullmatch", "finditer", "sub"):
            setattr(self, each, getattr(compiled, each))
        return getattr(compiled, name)


def pattern(text: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """``re.compile``, when it is first used."""
    return cast("re.Pattern[AnyStr]", _Pattern(text, flags))


if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:
    import dataclasses
    from collections.abc import Callable
    from dataclasses import MISSING, FrozenInstanceError, fields

    def dataclass(
        cls: type | None = None, /, *, frozen: bool = False, slots: bool = False, eq: bool = True
    ) -> Callable[[type], type] | type:
        """As ``dataclasses.dataclass``."""

        def made(cls: type) -> type:
            return _made(cls, frozen, slots, eq)

        return made if cls is None else made(cls)

    def _made(cls: type, frozen: bool, slots: bool, eq: bool) -> type:
        own = set(cls.__dict__)
        cls.__doc__ = cls.__doc__ or cls.__name__  # the library would write its signature, for which it is inspected
        cls = dataclasses.dataclass(init=False, repr=False, eq=False, slots=slots)(cls)
        methods: dict[str, Any] = {"__init__": _late(cls, "__init__", _init_source, frozen), "__repr__": _repr}
        if eq:
            methods["__eq__"] = _late(cls, "__eq__", _eq_source, frozen)
            methods["__hash__"] = _late(cls, "__hash__", _hash_source, frozen) if frozen else None
        if frozen:
            methods |= {"__setattr__": _setattr, "__delattr__": _delattr}
            if slots:
                methods |= {"__getstate__": _getstate, "__setstate__": _setstate}
        for name in methods.keys() - own:
            setattr(cls, name, methods[name])
        return cls

    def _late(cls: type, name: str, source: Callable[[type, bool, dict[str, Any]], str], frozen: bool) -> Any:
        """A method that takes its own place, compiled, when it is first called."""

        def first(self: Any, *arguments: Any, **named: Any) -> Any:
            known: dict[str, Any] = {}
            exec(source(cls, frozen, known), known)  # noqa: S102 - the names of fields, and nothing else
            method = known[name]
            method.__qualname__ = f"{cls.__qualname__}.{name}"
            setattr(cls, name, method)
            return method(self, *arguments, **named)

        return first

    def _init_source(cls: type, frozen: bool, known: dict[str, Any]) -> str:
        known |= {"_MISSING": MISSING, "_put": object.__setattr__}
        parameters, lines = ["self"], []
        for field in fields(cls):
            name, value, default = field.name, field.name, f"_default_{field.name}"
            if field.default_factory is not MISSING:
                known[default] = field.default_factory
                value = f"{default}() if {name} is _MISSING else {name}" if field.init else f"{default}()"
                default = "_MISSING"
            elif field.default is not MISSING:
                known[default] = field.default
                value = name if field.init else default
            elif field.init:
                default = ""
            else:
                continue
            if field.init:
                parameters.append(f"{name}={default}" if default else name)
            lines.append(f"_put(self, {name!r}, {value})" if frozen else f"self.{name} = {value}")
        if hasattr(cls, "__post_init__"):
            lines.append("self.__post_init__()")
        return "\n  ".join([f"def __init__({', '.join(parameters)}):", *lines, "pass"])

    def _values(cls: type, of: str) -> str:
        return f"({''.join(f'{of}.{field.name}, ' for field in fields(cls) if field.compare)})"

    def _eq_source(cls: type, frozen: bool, known: dict[str, Any]) -> str:
        same = f"{_values(cls, 'self')} == {_values(cls, 'other')}"
        return f"def __eq__(self, other):\n  return {same} if other.__class__ is self.__class__ else NotImplemented"

    def _hash_source(cls: type, frozen: bool, known: dict[str, Any]) -> str:
        return f"def __hash__(self):\n  return hash({_values(cls, 'self')})"

    def _repr(self: Any) -> str:
        values = ", ".join(f"{field.name}={getattr(self, field.name)!r}" for field in fields(self) if field.repr)
        return f"{self.__class__.__qualname__}({values})"

    def _setattr(self: Any, name: str, value: Any) -> None:
        raise FrozenInstanceError(f"cannot assign to field {name!r}")

    def _delattr(self: Any, name: str) -> None:
        raise FrozenInstanceError(f"cannot delete field {name!r}")

    def _getstate(self: Any) -> list[Any]:
        return [getattr(self, field.name) for field in fields(self)]

    def _setstate(self: Any, state: list[Any]) -> None:
        for field, value in zip(fields(self), state, strict=True):
            object.__setattr__(self, field.name, value)
