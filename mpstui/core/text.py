"""Text from outside, made safe to show: control characters become visible, sizes become readable."""

from __future__ import annotations

import os
import re
import shlex
import time
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from mpstui.core.late import pattern

UNKNOWN = "—"
MASKED: Final = "(masked)"
"""What stands in a recording or an archive in the place of what is nobody's business."""
Span = tuple[str, str]
"""Text and the names of its styles, ``"good"`` or ``"good+cursor"``; never markup."""
Line = tuple[Span, ...]
PRIORITIES: Final[Mapping[int, str]] = {0: "normal", 1: "below normal"}
"""The two values of a client priority, in words."""
PRIORITY_WORDS: Final = ", ".join(f"{value} {words}" for value, words in PRIORITIES.items())
PRIORITY_NEEDED: Final = " or ".join(f"{value} ({words})" for value, words in PRIORITIES.items())
_INVISIBLE = frozenset(
    chr(code)
    for first, last in ((0x34F, 0x34F), (0x115F, 0x1160), (0x17B4, 0x17B5), (0x180B, 0x180F), (0x2800, 0x2800),
                        (0x3164, 0x3164), (0xFE00, 0xFE0F), (0xFFA0, 0xFFA0), (0xE0100, 0xE01EF))
    for code in range(first, last + 1)
)  # fmt: skip
"""Letters and marks that take no place, or an empty one: with them two names look alike."""
_UNEVEN = frozenset(
    chr(code)
    for first, last in ((0x2630, 0x2637), (0x268A, 0x268F), (0x3248, 0x324F), (0xD7B0, 0xD7FF), (0x1D300, 0x1D376),
                        (0x1F1E6, 0x1F1FF), (0x1F3FB, 0x1F3FF))
    for code in range(first, last + 1)
)  # fmt: skip
"""What takes more cells in one terminal than in another: flags and the colour of a skin, which some draw as one with
what stands before it, and signs that became wide later; as marks with a width (Mc) do. They would move what follows."""
_MARKS = 4
"""Marks that a letter may have: Vietnamese has two, Hebrew and Arabic three."""
_JAMO: Final = ("\u1161", "\u11ff")
"""From and to which letters stand in the cells of the one before them, as marks do: Korean that is written apart."""
_SIZE = pattern(r"(?P<number>[0-9]+)(?P<unit>[KMGT])")
_FACTOR = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def owner(user: str | None, uid: int | None) -> str:
    """A user's name; without one the number, which is root's wherever it is 0. ``user`` may be the number too, as
    /proc's reader has it of who has no name here. A negative one stands for somebody, whoever that is."""
    if uid is not None and uid < 0:
        return "an unknown user"
    if user and user != str(uid):
        return user
    return UNKNOWN if uid is None else f"UID {uid}" if uid else "root"


def plural(number: int, noun: str) -> str:
    """``1 server``, ``2 servers``, ``2 processes``."""
    return f"{number} {nouns(number, noun)}"


def nouns(number: int, noun: str) -> str:
    """The noun alone, as it goes with so many."""
    return noun if number == 1 else f"{noun}{'es' if noun.endswith(('s', 'ch')) else 's'}"


def are(number: int) -> str:
    """What goes with so many of something: ``is``, ``are``."""
    return "is" if number == 1 else "are"


def have(number: int) -> str:
    """What goes with so many of something: ``has``, ``have``."""
    return "has" if number == 1 else "have"


def listed(things: Iterable[object], most: int | None = None) -> str:
    """``5, 6``; where at most ``most`` are named: ``5, 6 and 3 more``."""
    named = list(map(str, things))
    more = 0 if most is None else len(named) - most
    return ", ".join(named[:most]) + (f" and {more} more" if more > 0 else "")


def at_least(count: int, known: bool) -> str:
    """How many there are; ``≥ 3`` where there may be more than are ``known``, and ``—`` where none of them is."""
    return str(count) if known else f"≥ {count}" if count else UNKNOWN


def printable(raw: bytes | str, limit: int = 300) -> str:
    """Text of unknown origin on one line of at most ``limit`` characters.

    Line breaks, escape sequences, bidirectional overrides, what cannot be seen, bytes that are not UTF-8, and what is
    wider in one terminal than in another are written as ``\\n``, ``\\x1b``, ``\\u202e``, ``\\u3164``, ``\\xff``,
    ``\\u093e``: a client chooses its own argv[0] (fact 10), and it must not be able to move the cursor or a column, or
    forge a row.
    """
    text = raw[: limit * 4].decode("utf-8", "backslashreplace") if isinstance(raw, bytes) else raw[: limit * 4]
    shown = text if text.isascii() and text.isprintable() else "".join(_seen(text))
    return shown if len(shown) <= limit and len(raw) <= limit * 4 else shown[: limit - 1] + "…"


def _seen(text: str, uneven: bool = False) -> Iterator[str]:
    """Each character, or its escape; ``uneven``: what terminals draw with other widths as it is. A mark that is drawn
    over the letter before it needs one in this text, and there are few on one: otherwise it would be drawn over a
    neighbour's cell, or over other lines."""
    room = 0
    for char in text:
        kind = unicodedata.category(char)
        mark = kind in {"Mn", "Me"} or _JAMO[0] <= char <= _JAMO[1]
        hidden = not char.isprintable() or char in _INVISIBLE or kind in {"Cf", "Cn", "Co", "Cs"}
        hidden = hidden or (not uneven and (kind == "Mc" or char in _UNEVEN))
        if hidden or (mark and not room):
            room = 0
            yield char.encode("unicode_escape").decode("ascii")
        else:
            room = room - 1 if mark else 0 if kind == "Zs" else _MARKS
            yield char


def as_shown(typed: str) -> str:
    """What is looked for, as it is typed, in the form in which a text from outside is shown."""
    return printable(typed, 12 * len(typed) + 1)


def path_text(path: os.PathLike[str] | str | bytes | None, limit: int = 4096) -> str:
    """A path as text to show, ``—`` where not known; there is no other way (``scripts/mypy_path_text.py``).

    Whoever may make a directory chooses its name. The system is given ``os.fspath(path)`` instead. An error of the
    system names a path as it was given one: as bytes, too.
    """
    if path is None:
        return UNKNOWN
    name = os.fsdecode(path)
    try:
        return printable(name.encode("utf-8", "surrogateescape"), limit)  # bytes that are not UTF-8 become \\xff
    except UnicodeEncodeError:
        return printable(name, limit)


def path_word(path: os.PathLike[str] | str) -> str:
    """A path as a word of a command that is offered for pasting: a name that is shown otherwise than it is, which may
    be that of another file, is written as bash's ``$'…'``, byte by byte."""
    shown, name = path_text(path), os.fspath(path)
    if shown == name:
        return shlex.quote(shown)
    try:
        raw = os.fsencode(name)
    except UnicodeEncodeError:  # nothing has that name
        raw = os.fsencode(shown)
    return f"$'{''.join(map(_in_bash, raw))}'"


def _in_bash(byte: int) -> str:
    char = chr(byte)
    if char in "\\'":
        return f"\\{char}"
    return char if char.isascii() and char.isprintable() else f"\\x{byte:02x}"


def unprintable(path: os.PathLike[str] | str) -> str | None:
    """Why a directory of this name is not used, in one sentence that can be printed; None for every usual name.

    It could not be told from another one on a screen, or would steer the terminal that it is shown on. One that is only
    wider there than here can be used: it is shown by its escapes.
    """
    name = os.fspath(path)
    if "".join(_seen(name, uneven=True)) == name:
        return None
    return f"“{path_text(name, 200)}” has characters in its name that cannot be printed; rename it, or use another"


WITH_PATHS: Final = 4 * 4096
"""Characters of a text of mpstui's own that has paths in it, each as long as the system lets one be, and a remedy."""


def error_text(error: Exception) -> str:
    """What an exception says, without the path and the address that Python's words for an error of the system have in
    them."""
    said = (error.strerror or "").partition(" (while attempting to")[0] if isinstance(error, OSError) else None
    if said:  # the system's, and short, or mpstui's own, which may have paths in it and what to do about them
        return printable(said, WITH_PATHS)
    return printable(("" if isinstance(error, OSError) else str(error)) or type(error).__name__)


_NUMBER = pattern(r"[0-9]{1,15}(\.[0-9]{0,15})?|\.[0-9]{1,15}")


def typed_number(text: str) -> float | None:
    """A number as a person types it, ``25`` or ``0.5``. None for all else that Python takes for one: ``nan``,
    ``1e999``, ``1_000``, ``-1``, the digits of other scripts, and more digits than there are figures for."""
    return float(text) if _NUMBER.fullmatch(text := text.strip()) else None


def typed_count(text: str) -> int | None:
    """The same of a whole number."""
    text = text.strip()
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= 15 else None


def parse_size(text: str) -> int | None:
    """Bytes of a memory limit as MPS writes it, ``900M`` or ``10G``; None for ``512MB``, ``-1G``, ``0G``."""
    match = _SIZE.fullmatch(text.strip())
    if match is None or int(match["number"]) == 0:
        return None
    return int(match["number"]) * _FACTOR[match["unit"]]


_TOO_LARGE: Final = 1 << 63
_WRITTEN = pattern(r"([0-9]{1,30})(?:\.([0-9]{1,6}))? ?([KMGT])(iB)?", re.ASCII | re.IGNORECASE)
_DECIMAL = pattern(r"([0-9]{1,12}(?:\.[0-9]{1,6})?) ?([KMGT])B", re.ASCII | re.IGNORECASE)


def typed_size(text: str) -> int | None:
    """Bytes, rounded down, of a size as a person types it who can mean that one alone: ``10G``, ``10g``, ``10 G``,
    ``10GiB``, ``10.0 GiB`` as sizes are shown, ``1.5G``. None for anything else, as ``10GB`` (1000 or 1024 MB), and
    for what does not fit in 63 bits, of which a daemon makes another one (fact 26)."""
    match = _WRITTEN.fullmatch(text.strip())
    if match is None:
        return None
    part = match[2] or ""
    size = int(match[1] + part) * _FACTOR[match[3].upper()] // int(f"1{'0' * len(part)}")
    return size if size < _TOO_LARGE else None


def mps_size(text: str) -> str | None:
    """A memory limit in MPS's own form: ``10G`` of ``10GiB`` and of all else that ``typed_size`` takes for that,
    ``1536M`` of ``1.5 GiB``. None for ``1.5G`` too (of which MPS makes 1M: fact 26), for 0, and what is
    no whole KiB."""
    size, match = typed_size(text), _WRITTEN.fullmatch(text.strip())
    if not size or match is None or (match[2] and not match[4]):
        return None
    if not (match[2] or "").strip("0"):
        return f"{int(match[1])}{match[3].upper()}"
    exact = int(match[1] + match[2]) * _FACTOR[match[3].upper()] % 10 ** len(match[2]) == 0
    if not exact or size % (1 << 10):
        return None
    return f"{size >> 10}K" if size % (1 << 20) else f"{size >> 20}M"


def size_hint(text: str) -> str:
    """For a size that was refused: what to write in place of ``10GB``, and what is too large; empty for others."""
    match = _DECIMAL.fullmatch(text.strip())
    if match is None and _WRITTEN.fullmatch(text.strip()) and typed_size(text) is None:
        return f"the largest size is {(_TOO_LARGE >> 30) - 1}G, which fits in 63 bits"
    if match is None:
        return ""
    number, unit = match[1], match[2].upper()
    return f"{unit}B may count by 1000 or by 1024; for {number} {unit}iB write {number}{unit} or {number}{unit}iB"


_TYPED = pattern(r"([+-]?[0-9]+)(.?)", re.DOTALL)


def taken_limit(text: str) -> int:
    """Bytes that MPS makes of a memory limit as it was typed, 0 for none: the number up to the first other character,
    which is the unit where it is a G; everything else counts as M (fact 26)."""
    found = _TYPED.match(text[:64])
    return (int(found[1]) << (30 if found[2] in {"G", "g"} else 20)) % (1 << 64) if found else 0


def same_limit(limit: int | None, read: int | None) -> bool:
    """Whether a daemon that has ``limit`` prints ``read``: from 1 GiB on it prints whole GiB only (fact 26)."""
    if limit is None or read is None or limit < 1 << 30:
        return limit == read
    return limit >> 30 << 30 == read or limit == read


def lower_sizes(served: Mapping[str, int], own: Mapping[str, int]) -> dict[str, int]:
    """The lower of two limits of each device, in bytes; one that has none does not count."""
    return dict(served) | {device: size for device, size in own.items() if size < served.get(device, size + 1)}


def same_percentage(value: float, read: float | None) -> bool:
    """Whether a daemon that has ``value`` prints ``read``: one decimal (fact 27), and of 31.25 it may be either."""
    return read is not None and abs(value - read) <= 0.05 + 1e-6


def four_digits(value: float) -> str:
    """``12,904``, ``2,723``, ``57.22``: four digits, and all of those before the point."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:,.4g}"


def format_size(size: int | None) -> str:
    """Bytes in binary units with three significant digits, ``2.0 GiB``; ``—`` where not known."""
    if size is None:
        return UNKNOWN
    value, unit = float(size), "B"
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if value < 1024 or unit == "TiB":
            break
        value /= 1024
    return f"{value:.0f} {unit}" if unit == "B" or value >= 100 else f"{value:.1f} {unit}"


def short_size(size: int | None) -> str:
    """The same in few cells: ``2.0G``, ``500M``."""
    return format_size(size).replace("iB", "").replace(" ", "")


def format_percentage(value: float | None) -> str:
    """``25 %``, ``33.3 %``; ``—`` where not known."""
    return UNKNOWN if value is None else f"{value:g} %"


def format_change(part: float) -> str:
    """A difference as a part of something, ``+2.9%``; what rounds to nothing has no sign."""
    text = f"{part:+.1%}"
    return text[1:] if text[1:] == "0.0%" else text


def format_age(seconds: float | None) -> str:
    """``8s``, ``4m``, ``3h``, ``12d``: one unit, so that the text changes seldom; ``—`` where not known."""
    if seconds is None:
        return UNKNOWN
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= size:
            return f"{int(seconds // size)}{unit}"
    return f"{max(0, int(seconds))}s"


def moment_text(when: float) -> str:
    """Seconds since the epoch as the date and the time here; logs may tell of any."""
    try:
        return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(when))
    except (OverflowError, ValueError, OSError):
        return "a time beyond the calendar"


def client_pids(pids: Sequence[int], most: int = 8) -> str:
    """``client 5``; ``clients 5, 6``; at most ``most`` are named: ``clients 5, 6 and 3 more``."""
    return f"{nouns(len(pids), 'client')} {listed(pids, most)}"


def is_own_number(text: str) -> bool:
    """Whether it can be the number that a daemon gives a device."""
    return text.isascii() and text.isdigit() and len(text) <= 2 and text == str(int(text))


def device_keys(text: str, uuids: Mapping[str, str]) -> list[str]:
    """The keys of the devices that ``text`` means: by key (an ordinal, an index), by UUID, or by the first characters
    of one, as CUDA takes them: ``GPU-bd23``. More than one where several UUIDs begin so."""
    text = text.strip()
    if text in uuids:
        return [text]
    exact = [key for key, uuid in uuids.items() if uuid == text]
    if exact or not text.startswith(("GPU-", "MIG-")) or len(text) < len("GPU-") + 1:
        return exact[:1]
    return [key for key, uuid in uuids.items() if uuid.startswith(text)]


def by_device(limits: Mapping[str, int]) -> list[tuple[str, int]]:
    """In the order of the ordinals, UUIDs after them."""
    return sorted(limits.items(), key=lambda item: (not item[0].isdecimal(), len(item[0]), item[0]))


def about(subject: str | None, text: str) -> str:
    """``server 7: 2 clients wait``; the subject once only, where the text begins with it."""
    begins = text.casefold().startswith(subject.casefold()) if subject else True
    if not subject or (begins and not text[len(subject) : len(subject) + 1].isalnum()):
        return text
    return f"{subject}: {text}"
