"""The result of an experiment as one HTML page with its tables and plots; it loads nothing from anywhere."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from html import escape
from pathlib import Path
from typing import Any, Final

from mpstui.core.text import error_text, path_text, plural
from mpstui.operations.types import ExitStatus

_BAR: Final = 420
_ROW: Final = 26
_STYLE: Final = (
    "body{font:15px/1.5 system-ui,sans-serif;max-width:70em;margin:2em auto;padding:0 1em;color:#222;background:#fff}"
    "table{border-collapse:collapse;margin:1em 0}td,th{padding:.2em .8em;border-bottom:1px solid #ccc;text-align:right}"
    "td:first-child,th:first-child{text-align:left}.verdict{font-weight:bold}.simulated{background:#b00;color:#fff;"
    "padding:.3em .6em}footer{color:#666;font-size:90%}svg{max-width:100%}svg text{font:13px system-ui,sans-serif}"
)
_LABELS: Final = ("kernel", "beside", "clients", "setting", "mps", "active_thread_percentage", "situation", "way")
"""Keys of the data that say which situation an entry is of."""


def page(result: Mapping[str, Any]) -> str:
    """``result`` as ``--json`` prints it. Everything in it is shown as text."""
    parts = [f"<h1>{_text(result['title'])}</h1>"]
    if result["simulated"]:
        parts.insert(0, '<p class="simulated">SIMULATED: no GPU, no real daemon</p>')
    parts.append(f'<p class="verdict">{_text(result["verdict"])}</p>')
    parts.append(_table(result["columns"], result["rows"]))
    parts.append(_plot(result["data"]))
    if result["utilisation"]:
        parts.append("<h2>On the device meanwhile</h2>")
        meters = [key for key in result["utilisation"][0] if key not in {"situation", "readings"}]
        rows = [[use["situation"], *(_spread(use[meter]) for meter in meters)] for use in result["utilisation"]]
        parts.append(_table(["situation", *meters], rows))
    facts = [result["gpu"] or "GPU unknown", f"driver {result['driver'] or 'unknown'}", result["time"]]
    parts.append(f"<footer>{_text(' · '.join(facts))}<br>{'<br>'.join(map(_text, result['notes']))}</footer>")
    head = f'<meta charset="utf-8"><title>{_text(result["title"])}</title><style>{_STYLE}</style>'
    body = "\n".join(part for part in parts if part)
    return f'<!doctype html>\n<html lang="en"><head>{head}</head><body>\n{body}\n</body></html>\n'


class ReportError(Exception):
    """The page cannot be written there; the message says why."""

    def __init__(self, text: str, status: ExitStatus) -> None:
        super().__init__(text)
        self.status = status


def check_report(path: Path) -> None:
    """Whether the page can be written there, to be asked before the first run. Raises ReportError; leaves nothing."""
    _beside(path, "")


def write_report(path: Path, result: Mapping[str, Any]) -> None:
    """The file is as before or the whole page, never a part; a link is not followed. Raises ReportError."""
    _beside(path, page(result), put=True)


def _beside(path: Path, text: str, *, put: bool = False) -> None:
    """Write it into a new file beside that one, and ``put`` that in its place. Raises ReportError."""
    where = path_text(path)
    temporary = None
    try:
        if (other := _in_the_way(path)) is not None:
            raise ReportError(
                f"{where} is {other}, which is not replaced: name a file", ExitStatus.REFUSED_BY_SAFETY_RULE
            )
        descriptor, temporary = tempfile.mkstemp(prefix=".mpstui-", suffix=".tmp", dir=path.parent)
        with open(descriptor, "w", encoding="utf-8") as file:
            os.fchmod(descriptor, 0o644)
            file.write(text)
            file.flush()
            os.fsync(descriptor)
        if put:
            os.replace(temporary, path)
            temporary = None
    except (OSError, ValueError) as error:  # ValueError: a name with a NUL
        denied = isinstance(error, PermissionError)
        why = error_text(error) if isinstance(error, OSError) else "that is no name of a file"
        raise ReportError(
            f"the report {where} cannot be written: {why}",
            ExitStatus.NOT_PERMITTED if denied else ExitStatus.REFUSED_BY_DAEMON,
        ) from None
    finally:
        if temporary is not None:
            with suppress(OSError):
                os.unlink(temporary)


def _in_the_way(path: Path) -> str | None:
    """What has that name and is no file that may be replaced; None where nothing is in the way. Raises OSError."""
    if not path.name:
        return "a directory"
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return None
    if stat.S_ISLNK(found.st_mode):
        return "a symbolic link"
    if stat.S_ISDIR(found.st_mode):
        return "a directory"
    if not stat.S_ISREG(found.st_mode):
        return "no regular file"
    folder = os.stat(path.parent)
    mine = os.geteuid() in {0, found.st_uid, folder.st_uid}
    return None if mine or not folder.st_mode & stat.S_ISVTX else "another user's file"


def _text(value: object) -> str:
    return escape(str(value))


def _spread(value: Mapping[str, float] | None) -> str:
    return "—" if value is None else f"{value['median']:.1f} ({value['low']:.1f}–{value['high']:.1f})"


def _table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    head = "".join(f"<th>{_text(column)}</th>" for column in columns)
    body = "".join("<tr>" + "".join(f"<td>{_text(cell)}</td>" for cell in row) + "</tr>\n" for row in rows)
    return f"<table><tr>{head}</tr>\n{body}</table>"


def _plot(data: Sequence[Mapping[str, Any]]) -> str:
    """A bar for each entry that has a median, with its smallest and largest value where it has those."""
    entries = [entry for entry in data if isinstance(entry.get("median"), (int, float))]
    top = max((max(entry["median"], entry.get("high") or 0.0) for entry in entries), default=0.0)
    if top <= 0:
        return ""
    parts = []
    for number, entry in enumerate(entries):
        y, width = number * _ROW + 4, _BAR * entry["median"] / top
        keys = ("situation",) if "situation" in entry else _LABELS
        label = ", ".join(_label(key, entry[key]) for key in keys if key in entry)
        parts.append(f'<text x="290" y="{y + 14}" text-anchor="end">{_text(label)}</text>')
        parts.append(f'<rect x="300" y="{y}" width="{width:.1f}" height="18" fill="#3a7"/>')
        low, high = entry.get("low"), entry.get("high")
        if isinstance(low, (int, float)) and isinstance(high, (int, float)) and high > low:
            ends = 300 + _BAR * low / top, 300 + _BAR * high / top
            parts.append(f'<path d="M{ends[0]:.1f} {y + 9}H{ends[1]:.1f}" stroke="#000" stroke-width="2"/>')
        parts.append(f'<text x="{308 + _BAR * max(entry["median"], high or 0) / top:.1f}" y="{y + 14}">')
        parts.append(f"{entry['median']:,.4g}</text>")
    size = f'width="{_BAR + 400}" height="{len(entries) * _ROW + 8}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">{"".join(parts)}</svg>'


def _label(key: str, value: object) -> str:
    if key == "mps":
        return "with MPS" if value else "without MPS"
    if key == "clients":
        return plural(int(str(value)), "client")
    if key == "active_thread_percentage":
        return f"{value} %"
    return f"beside {value}" if key == "beside" else str(value)
