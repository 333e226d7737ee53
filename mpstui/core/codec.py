"""Typed values as JSON and back, by their type hints: dataclasses, named tuples, mappings, paths. Pure, no I/O.

What is read back may be a stranger's: every value is held against its type, a number has bounds, text is printable,
a path is one that can be shown.
"""

from __future__ import annotations

import json
import types
import typing
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, Union, cast

from mpstui.core.text import printable, unprintable

NOT_KEPT: Final[Mapping[str, bool]] = {"kept": False}
"""Metadata of a field that can be made again from the others."""
_LARGEST: Final = 1 << 63
_LARGEST_FLOAT: Final = 2.5e11
"""Later than any date that can be written."""
_TEXT: Final = 1 << 16
Code = Callable[[Any], Any]


class Unfit(ValueError):
    """The value is not of its type; the message says why, without the value."""


class Codec(NamedTuple):
    """A type's way to JSON, back, and its JSON Schema."""

    encode: Code
    decode: Code
    schema: Mapping[str, Any]
    renew: Callable[[Any, Any, Any], Any] | None = None
    """As ``encode``, where the value before this one, and what that was in JSON, may have parts that are the same."""
    parts: Callable[[Any, int], Iterator[str]] | None = None
    """As ``text``, of what is made of parts."""

    def again(self, value: Any, old: Any, told: Any) -> Any:
        """``value`` in JSON: what is as it was in ``old``, which is ``told`` in JSON, is the same object there."""
        if value is old or value == old:
            return told
        return self.encode(value) if self.renew is None or old is None else self.renew(value, old, told)

    def text(self, value: Any, depth: int) -> Iterator[str]:
        """``value`` as JSON text, in the parts of its parts, so many times: a state in one object takes 2 MiB of
        memory for a moment, which Python does not give back."""
        if self.parts is None or value is None or not depth:
            yield compact(self.encode(value))
        else:
            yield from self.parts(value, depth - 1)


@cache
def codec(kind: Any) -> Codec:
    """Of a type as ``typing.get_type_hints`` gives it. Raises TypeError for a type that has no way to JSON."""
    if kind is None or kind is type(None):
        return Codec(_same, _none, {"type": "null"})
    if kind in _PLAIN:
        return _PLAIN[kind]
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is Literal:
        # typing takes the same words in another order for the same type, and gives whichever was made first.
        return Codec(_same, lambda value: _one_of(value, arguments), {"enum": sorted(arguments, key=str)})
    if origin in {Union, types.UnionType}:
        return _optional(arguments)
    if origin is tuple and not (len(arguments) == 2 and arguments[1] is Ellipsis):
        return _fixed([codec(argument) for argument in arguments])
    if origin in {dict, Mapping}:
        return _mapping(codec(arguments[0]), codec(arguments[1]), text=arguments[0] in {str, Path})
    if origin in _MANY:
        return _several(codec(arguments[0]), _MANY[origin], ordered=origin not in {set, frozenset})
    if isinstance(kind, type) and issubclass(kind, Enum):
        known = {each.value: each for each in kind}
        return Codec(_value, lambda value: known[_one_of(value, tuple(known))], {"enum": list(known)})
    if isinstance(kind, type) and (is_dataclass(kind) or hasattr(kind, "_field_defaults")):
        return _record(kind)
    raise TypeError(f"{kind} has no way to JSON")


_MANY: Final[Mapping[Any, Callable[[Iterable[Any]], Any]]] = {
    tuple: tuple,
    list: list,
    deque: deque,
    set: set,
    frozenset: frozenset,
    Sequence: tuple,
    Collection: tuple,
    Iterable: tuple,
}


def _same(value: Any) -> Any:
    return value


def _value(value: Enum) -> Any:
    return value.value


def _none(value: Any) -> None:
    if value is not None:
        raise Unfit("null is needed")


def _one_of(value: Any, known: Sequence[Any]) -> Any:
    if not isinstance(value, str | int) or value not in known:
        raise Unfit("a word that is not known")
    return value


def _bool(value: Any) -> bool:
    if not isinstance(value, bool):
        raise Unfit("true or false is needed")
    return value


def _int(value: Any) -> int:
    if type(value) is not int or not -_LARGEST <= value <= 2 * _LARGEST:
        raise Unfit("a whole number is needed")
    return value


def _float(value: Any) -> float:
    if type(value) not in {int, float} or not -_LARGEST_FLOAT <= value <= _LARGEST_FLOAT:
        raise Unfit("a number is needed")
    return cast("float", value)


def _text(value: Any) -> str:
    if not isinstance(value, str) or len(value) > _TEXT:
        raise Unfit("text is needed")
    return value if value.isascii() and value.isprintable() else printable(value, _TEXT)


def _path(value: Any) -> Path:
    if not isinstance(value, str) or len(value) > 4096 or unprintable(value) is not None:
        raise Unfit("a path that can be shown is needed")
    return Path(value)


_PLAIN: Final[Mapping[Any, Codec]] = {
    bool: Codec(_same, _bool, {"type": "boolean"}),
    int: Codec(_same, _int, {"type": "integer"}),
    float: Codec(_same, _float, {"type": "number"}),
    str: Codec(_same, _text, {"type": "string"}),
    Path: Codec(str, _path, {"type": "string"}),
}


def _optional(arguments: Sequence[Any]) -> Codec:
    some = [argument for argument in arguments if argument is not type(None)]
    if len(some) != 1 or len(some) == len(arguments):
        raise TypeError(f"{arguments}: only one type or None has a way to JSON")
    inner = codec(some[0])
    return Codec(
        lambda value: None if value is None else inner.encode(value),
        lambda value: None if value is None else inner.decode(value),
        {"anyOf": [inner.schema, {"type": "null"}]},
        lambda value, old, told: None if value is None else inner.again(value, old, told),
        inner.parts,
    )


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise Unfit("a list is needed")
    return value


def _object(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise Unfit("an object is needed")
    return value


def _fixed(parts: Sequence[Codec]) -> Codec:
    def decode(value: Any) -> tuple[Any, ...]:
        if len(_list(value)) != len(parts):
            raise Unfit("a list of another length is needed")
        return tuple(part.decode(each) for part, each in zip(parts, value, strict=True))

    return Codec(
        lambda value: [part.encode(each) for part, each in zip(parts, value, strict=True)],
        decode,
        {"type": "array", "prefixItems": [part.schema for part in parts], "minItems": len(parts)},
    )


def _several(part: Codec, make: Callable[[Iterable[Any]], Any], *, ordered: bool) -> Codec:
    def encode(value: Iterable[Any]) -> list[Any]:
        told = list(value) if part.encode is _same else [part.encode(each) for each in value]
        return told if ordered else sorted(told, key=json.dumps)

    def parts(value: Iterable[Any], depth: int) -> Iterator[str]:
        return _joined("[", (part.text(each, depth) for each in value), "]")

    return Codec(
        encode,
        lambda value: make([part.decode(each) for each in _list(value)]),
        {"type": "array", "items": part.schema},
        parts=parts if ordered else None,
    )


compact: Final = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode
"""json.dumps makes an encoder anew each time that it is not asked for the usual form."""


def _joined(begin: str, parts: Iterable[Iterable[str]], end: str) -> Iterator[str]:
    """Texts, each in its pieces, with commas between them."""
    yield begin
    for number, part in enumerate(parts):
        if number:
            yield ","
        yield from part
    yield end


def _mapping(key: Codec, part: Codec, *, text: bool) -> Codec:
    """An object; a key that is no text is written as its JSON."""

    def name(value: Any) -> str:
        if type(value) is int:  # PIDs, hundreds of them each second
            return str(value)
        told = key.encode(value)
        return cast("str", told) if text else compact(told)

    def named(value: str) -> Any:
        return key.decode(value if text else json.loads(value))

    def renew(value: Mapping[Any, Any], old: Mapping[Any, Any], told: dict[str, Any]) -> dict[str, Any]:
        return {
            (called := name(each)): part.again(other, old[each], told[called]) if each in old else part.encode(other)
            for each, other in value.items()
        }

    def parts(value: Mapping[Any, Any], depth: int) -> Iterator[str]:
        told = (chain((compact(name(each)), ":"), part.text(other, depth)) for each, other in value.items())
        return _joined("{", told, "}")

    return Codec(
        lambda value: {name(each): part.encode(other) for each, other in value.items()},
        lambda value: {named(each): part.decode(other) for each, other in _object(value).items()},
        {"type": "object", "additionalProperties": part.schema},
        renew,
        parts,
    )


def _record(kind: Any) -> Codec:
    """An object of its fields; one that has its default is left out."""
    hints = typing.get_type_hints(kind)
    if is_dataclass(kind):
        kept = [each for each in fields(kind) if each.metadata.get("kept", True)]
        defaults = {
            each.name: each.default_factory() if each.default_factory is not MISSING else each.default for each in kept
        }
        parts = {each.name: codec(hints[each.name]) for each in kept}
    else:
        parts = {name: codec(hints[name]) for name in kind._fields}
        defaults = {name: kind._field_defaults.get(name, MISSING) for name in kind._fields}
    needed = {name for name, default in defaults.items() if default is MISSING}
    plan = [(name, part, defaults[name]) for name, part in parts.items()]

    def encode(value: Any) -> dict[str, Any]:
        told = {}
        for name, part, default in plan:
            each = getattr(value, name)
            if each is not default and each != default:
                told[name] = part.encode(each)
        return told

    def as_parts(value: Any, depth: int) -> Iterator[str]:
        given = ((name, part, getattr(value, name), default) for name, part, default in plan)
        told = (
            chain((f'"{name}":',), part.text(each, depth))
            for name, part, each, default in given
            if each is not default and each != default
        )
        return _joined("{", told, "}")

    def renew(value: Any, old: Any, before: dict[str, Any]) -> dict[str, Any]:
        told = {}
        for name, part, default in plan:
            each, known = getattr(value, name), name in before
            if each is (was := getattr(old, name)):
                if known:
                    told[name] = before[name]
            elif each is not default and each != default:
                told[name] = part.again(each, was, before[name]) if known else part.encode(each)
        return told

    def decode(value: Any) -> Any:
        if not _object(value).keys() <= parts.keys() or not needed <= value.keys():
            raise Unfit(f"a {kind.__name__} is needed")
        return kind(**{name: parts[name].decode(each) for name, each in value.items()})

    DEFINITIONS[kind.__name__] = {
        "type": "object",
        "properties": {name: part.schema for name, part in parts.items()},
        **({"required": sorted(needed)} if needed else {}),
        "additionalProperties": False,
    }
    return Codec(encode, decode, {"$ref": f"#/$defs/{kind.__name__}"}, renew, as_parts)


DEFINITIONS: Final[dict[str, Any]] = {}
"""The JSON Schemas of dataclasses and named tuples that were asked for, by name."""


def definitions(schema: Any) -> dict[str, Any]:
    """Those that a JSON Schema names, and that these name, in the order of their names."""
    found: dict[str, Any] = {}
    left = [schema]
    while left:
        each = left.pop()
        if isinstance(each, list):
            left += each
        elif isinstance(each, dict):
            left += each.values()
            name = str(each.get("$ref", "")).removeprefix("#/$defs/")
            if name in DEFINITIONS and name not in found:
                found[name] = DEFINITIONS[name]
                left.append(found[name])
    return dict(sorted(found.items()))


# What has changed in a JSON value since the one before, and the value made of both again.


def difference(old: Any, new: Any) -> Any:
    """``{"=": value}``, or for two objects ``{"~": {name: difference}, "-": [names that went]}``."""
    if not (isinstance(old, dict) and isinstance(new, dict)):
        return {"=": new}
    changed = {
        name: difference(old[name], value) if name in old else {"=": value}
        for name, value in new.items()
        if name not in old or (old[name] is not value and old[name] != value)
    }
    gone = [name for name in old if name not in new]
    return {**({"~": changed} if changed else {}), **({"-": gone} if gone else {})}


def patched(old: Any, change: Any) -> Any:
    """The value of which ``difference`` told. Raises Unfit."""
    if "=" in _object(change):
        return change["="]
    told, gone = _object(change.get("~", {})), _list(change.get("-", []))
    if not isinstance(old, dict):
        raise Unfit("a change of what is not there")
    left = {name: value for name, value in old.items() if name not in gone}
    for name, each in told.items():
        left[name] = patched(left.get(name), each)
    return left
