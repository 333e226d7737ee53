"""Times as people write them on a command line."""

from __future__ import annotations

import re
import time as system
from datetime import datetime, timedelta
from typing import Final

from mpstui.core.late import pattern
from mpstui.core.text import printable, typed_number

_AGO: Final = pattern(r"-?([0-9]{1,9})\s*([smhd])(?: ago)?")
_CLOCK: Final = pattern(r"([0-9]{1,2}):([0-9]{2})(?::([0-9]{2}(?:\.[0-9]{1,6})?))?")
_UNIT: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def parse_time(text: str, now: float) -> float:
    """Seconds since the epoch of ``10m``, ``-10m`` or ``10m ago``, ``21:29[:12.195]`` (the last time it was that),
    ``2026-11-20 21:29``, ISO 8601 with or without a zone (without: local time, as the logs are), or ``@1795210142``.

    Raises ValueError for anything else.
    """
    text = text.strip()
    if found := _AGO.fullmatch(text):
        return now - int(found[1]) * _UNIT[found[2]]
    if text.startswith("@") and (since := typed_number(text[1:])) is not None:
        return since
    try:
        if found := _CLOCK.fullmatch(text):
            seconds = float(found[3] or 0)
            moment = datetime.fromtimestamp(now).replace(hour=int(found[1]), minute=int(found[2]), second=0)
            days = (moment.replace(microsecond=0) - timedelta(days=back) for back in (0, 1))
            # An hour may be there twice, where the clock goes back.
            times = [day.replace(fold=fold).timestamp() + seconds for day in days for fold in (0, 1)]
            return max(time for time in times if time <= now)
        # Python 3.10 does not know Z and takes three or six digits of a second only.
        plain = re.sub(r"\.(\d{1,6})", lambda m: "." + m[1].ljust(6, "0"), text.replace("Z", "+00:00"))
        return datetime.fromisoformat(plain).timestamp()
    except (ValueError, OverflowError):
        pass
    raise ValueError(f"{printable(text, 40)!r} is no time: 10m, 21:29:12, 2026-11-20T21:29:12 or @SECONDS is needed")


def time_within(text: str, shown: float, first: float, last: float) -> float:
    """The same for who stands at ``shown`` in a record from ``first`` to ``last``: a time of day without a date is the
    one nearest to ``shown`` of those that the record has, and otherwise of those that were before its end."""
    latest = last + 1.0  # what is shown as that second
    if not _CLOCK.fullmatch(text.strip()):
        return parse_time(text, last)
    newest = datetime.fromtimestamp(parse_time(text, latest))
    days = max(0, round((newest.timestamp() - shown) / 86400))
    back = (newest - timedelta(days=each) for each in range(max(0, days - 1), days + 2))
    found = [moment.timestamp() for moment in back if moment.timestamp() <= latest]
    recorded = [time for time in found if time >= first - 1.0]
    return min(recorded or found, key=lambda time: abs(time - shown))


def local_text(time: float | None) -> str:
    """``2026-11-20 21:29:12.195`` in local time, as the logs write it; blanks where it is not known."""
    if time is None:
        return " " * 23
    whole, thousandths = divmod(round(time * 1000), 1000)
    return f"{system.strftime('%Y-%m-%d %H:%M:%S', system.localtime(whole))}.{thousandths:03d}"
