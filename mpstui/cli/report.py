"""The result of an experiment as one HTML page with its tables and plots; it loads nothing from anywhere."""

from __future__ import annotations

import math
import os
import stat
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from html import escape
from pathlib import Path
from typing import Any, Final

from mpstui.cli.output import SIMULATED
from mpstui.config import folder_of, put_file
from mpstui.core.text import error_text, four_digits, path_text, plural
from mpstui.load import utilisation
from mpstui.load.results import ExperimentResult, Plot, use_plot
from mpstui.operations.types import ExitStatus, Unable

MIDDLE: Final = "median (smallest–largest) of the repeats"
OF_DEVICE: Final = "on the device: the median reading of each repeat, without its first second"

_LABEL: Final = 330
"""Where the bars begin, and the curves."""
_LONG: Final = 420
_ROW: Final = 24
_HIGH: Final = 240
_COLOURS: Final = ("#3a7", "#36b", "#c72", "#949", "#777", "#b33")
_STYLE: Final = (
    "body{font:15px/1.5 system-ui,sans-serif;max-width:70em;margin:2em auto;padding:0 1em;color:#222;background:#fff}"
    "table{border-collapse:collapse;margin:1em 0}td,th{padding:.2em .8em;border-bottom:1px solid #ccc;text-align:right}"
    "td:first-child,th:first-child{text-align:left}.verdict{font-weight:bold}.simulated{background:#b00;color:#fff;"
    "padding:.3em .6em}.about{color:#555;font-size:90%}svg{max-width:100%;display:block;margin:1em 0}"
    "svg text{font:13px system-ui,sans-serif}svg .axis{font-weight:bold}"
)


def page(outcome: ExperimentResult, about: Mapping[str, Any]) -> str:
    """The result with what the terminal says of it, and its plots. Everything in it is shown as text."""
    parts = [f"<h1>{_text(outcome.title)}</h1>"]
    if about["simulated"]:
        parts.insert(0, f'<p class="simulated">{SIMULATED}</p>')
    parts.append(f'<p class="verdict">{_text(outcome.verdict)}</p>')
    parts.append(f"<p>{' · '.join(map(_text, conditions(about)))}</p>")
    parts.append(_table(outcome.columns, outcome.rows))
    parts.append(f'<p class="about">{_text(MIDDLE)}</p>')
    if outcome.name == "gpu-util":  # its table is of the device
        parts.append(f'<p class="about">{_text(OF_DEVICE)}</p>')
    parts += [_drawn(plot) for plot in outcome.plots]
    heads, rows = utilisation.table(outcome.uses)
    if rows:
        parts.append(f"<h2>{_text(heads[0])}</h2>")
        parts.append(_table(("situation", *heads[1:]), rows))
        parts.append(f'<p class="about">{_text(OF_DEVICE)}</p>')
        parts.append(_drawn(use_plot(outcome.uses)))
    parts += [f"<p>{_text(note)}</p>" for note in outcome.notes]
    head = f'<meta charset="utf-8"><title>{_text(outcome.title)}</title><style>{_STYLE}</style>'
    body = "\n".join(part for part in parts if part)
    return f'<!doctype html>\n<html lang="en"><head>{head}</head><body>\n{body}\n</body></html>\n'


def conditions(about: Mapping[str, Any]) -> list[str]:
    """Where and when it was measured, and who else was there."""
    facts = [about["gpu"] or "GPU unknown", f"driver {about['driver'] or 'unknown'}", about["time"]]
    if about["other_clients"]:
        others = plural(about["other_clients"], "other MPS client")
        facts.append(f"{others} on the device when it began: what they did meanwhile is in these figures")
    return facts


class ReportError(Unable):
    """Why the page cannot be written there."""


def check_report(path: Path) -> None:
    """Whether the page can be written there, to be asked before the first run. Raises ReportError; leaves nothing."""
    with _told(path), folder_of(path) as folder, tempfile.TemporaryFile(dir=folder):
        pass


def write_report(path: Path, outcome: ExperimentResult, about: Mapping[str, Any]) -> None:
    """The file is as before or the whole page, never a part; a link is not followed. Raises ReportError."""
    with _told(path):
        put_file(path, page(outcome, about), 0o644, sync=True)


@contextmanager
def _told(path: Path) -> Iterator[None]:
    """Raises ReportError where something else is there, and for what comes of writing it."""
    where = path_text(path)
    try:
        if (other := _in_the_way(path)) is not None:
            raise ReportError(
                f"{where} is {other}, which is not replaced: name a file", ExitStatus.REFUSED_BY_SAFETY_RULE
            )
        yield
    except (OSError, ValueError) as error:  # ValueError: a name with a NUL
        denied = isinstance(error, PermissionError)
        why = error_text(error) if isinstance(error, OSError) else "that is no name of a file"
        raise ReportError(
            f"the report {where} cannot be written: {why}",
            ExitStatus.NOT_PERMITTED if denied else ExitStatus.REFUSED_BY_DAEMON,
        ) from None


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


def _table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    head = "".join(f"<th>{_text(column)}</th>" for column in columns)
    body = "".join("<tr>" + "".join(f"<td>{_text(cell)}</td>" for cell in row) + "</tr>\n" for row in rows)
    return f"<table><tr>{head}</tr>\n{body}</table>"


def _drawn(plot: Plot) -> str:
    """A plot with the names and the numbers of its axes; nothing where there is nothing to draw."""
    top = max((point.spread.high for point in plot.points), default=0.0)
    if top <= 0:
        return ""
    return _curve(plot, top) if plot.over else _bars(plot, top)


def _ticks(top: float) -> list[float]:
    """Round numbers from 0 to the first one that is not below ``top``."""
    size = 10.0 ** math.floor(math.log10(top / 4))
    step = next(size * factor for factor in (1, 2, 5, 10) if size * factor * 5 >= top)
    return [step * number for number in range(math.ceil(top / step - 1e-9) + 1)]


def _bars(plot: Plot, top: float) -> str:
    """A bar from 0 to each median, and a line from its smallest to its largest."""
    ticks = _ticks(top)
    series = list(dict.fromkeys(point.series for point in plot.points))
    scale, bottom = _LONG / ticks[-1], len(plot.points) * _ROW + 4
    parts = []
    for tick in ticks:
        x = _LABEL + tick * scale
        parts.append(f'<path d="M{x:.1f} 0V{bottom}" stroke="#ddd"/>')
        parts.append(_label(x, bottom + 16, four_digits(tick), "middle"))
    for number, point in enumerate(plot.points):
        y, spread = number * _ROW + 4, point.spread
        label = f"{point.at}, {point.series}" if point.series else str(point.at)
        colour = _COLOURS[series.index(point.series) % len(_COLOURS)]
        parts.append(_label(_LABEL - 8, y + 13, label, "end"))
        parts.append(f'<rect x="{_LABEL}" y="{y}" width="{spread.median * scale:.1f}" height="17" fill="{colour}"/>')
        if spread.high > spread.low:
            ends = _LABEL + spread.low * scale, _LABEL + spread.high * scale
            parts.append(f'<path d="M{ends[0]:.1f} {y + 8}H{ends[1]:.1f}" stroke="#000" stroke-width="2"/>')
        parts.append(_label(_LABEL + spread.high * scale + 6, y + 13, four_digits(spread.median)))
    parts.append(_label(_LABEL + _LONG / 2, bottom + 34, plot.value, "middle", "axis"))
    return _svg(_LABEL + _LONG + 80, bottom + 42, parts)


def _curve(plot: Plot, top: float) -> str:
    """The medians over a number, and a line from the smallest to the largest at each."""
    points = [(float(point.at), point.spread) for point in plot.points]
    right, up = _ticks(max(at for at, _ in points) or 1.0), _ticks(top)
    left, wide, head = 90, _LABEL + _LONG - 90, 30
    bottom = head + _HIGH

    def x(at: float) -> float:
        return left + at * wide / right[-1]

    def y(value: float) -> float:
        return bottom - value * _HIGH / up[-1]

    parts = [_label(left, 16, plot.value, "start", "axis")]
    for tick in up:
        parts.append(f'<path d="M{left} {y(tick):.1f}H{left + wide}" stroke="#ddd"/>')
        parts.append(_label(left - 8, y(tick) + 4, four_digits(tick), "end"))
    parts += [_label(x(tick), bottom + 18, four_digits(tick), "middle") for tick in right]
    parts.append(_label(left + wide / 2, bottom + 38, plot.over, "middle", "axis"))
    line = " ".join(f"{x(at):.1f},{y(spread.median):.1f}" for at, spread in points)
    parts.append(f'<polyline points="{line}" fill="none" stroke="{_COLOURS[0]}" stroke-width="2"/>')
    for at, spread in points:
        if spread.high > spread.low:
            parts.append(f'<path d="M{x(at):.1f} {y(spread.low):.1f}V{y(spread.high):.1f}" stroke="#000"/>')
        parts.append(f'<circle cx="{x(at):.1f}" cy="{y(spread.median):.1f}" r="4" fill="{_COLOURS[0]}"/>')
    return _svg(left + wide + 40, bottom + 46, parts)


def _label(x: float, y: float, text: str, anchor: str = "start", kind: str = "") -> str:
    named = f' class="{kind}"' if kind else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{named}>{_text(text)}</text>'


def _svg(width: float, height: float, parts: Sequence[str]) -> str:
    size = f'width="{width:.0f}" height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">{"".join(parts)}</svg>'
