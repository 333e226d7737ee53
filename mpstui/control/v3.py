"""MPS protocol 3: modules with verbs, tables as CSV, errors by exit status. No I/O.

As the vendor documents it; nothing of it was recorded by this project. Columns are taken by the names of the heading,
in whatever order; those that are not known are kept as they are, those that are missing are not known. What a client
may choose, its command, may hold commas, quotes and line breaks: fields are counted from both ends, and nothing in it
becomes a row without the form of one.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple, TypeVar

from mpstui.control.answer import Outcome
from mpstui.control.legacy import Legacy, parse_terminated
from mpstui.control.wire import MOST_CLIENTS, MOST_SERVERS, Question, Unreadable
from mpstui.core.late import pattern
from mpstui.core.text import printable
from mpstui.core.v3 import Namespace, V3Client, V3Device, V3Partition, V3Server

T = TypeVar("T")

NAME: Final = pattern(r"[a-z0-9_]{1,64}")
AS_CSV: Final = "--format=csv"
_MOST: Final = 20_000
"""Lines of a table."""
_UNSET: Final = frozenset(("", "-", "n/a", "none", "unset", "not set", "null"))
_NUMBER: Final = pattern(r"[0-9]{1,10}")
_PERCENTAGE: Final = pattern(r"([0-9]{1,3}(?:\.[0-9]{1,6})?) ?%?")
_DEVICE: Final = pattern(r"[0-9]{1,6}|(?:GPU|MIG)-[0-9A-Za-z/-]{1,80}|-|")
_IN: Final = pattern(r"(?:(?P<server>[a-z0-9_]{1,64})/)?(?P<name>[a-z0-9_]{1,64})(?: ?\([0-9]{1,19}\))?")
_CANNOT_FIND: Final = b"Cannot find MPS control daemon process"
_PRIVILEGE: Final = pattern(rb"(?i)privilege|permission|not permitted|NOT_PERMITTED")


class Layout(NamedTuple):
    """How a table is written where it has no heading: its columns, and which of them may hold commas."""

    columns: tuple[str, ...]
    greedy: str
    is_row: Callable[[Mapping[str, str]], bool]
    """Whether fields make a row, and no rest of the one before."""


def _named(row: Mapping[str, str]) -> bool:
    return NAME.fullmatch(row.get("name", "")) is not None


def _is_client(row: Mapping[str, str]) -> bool:
    server = row.get("server", "-")
    device = _DEVICE.fullmatch(row.get("device", "-"))
    return bool(_NUMBER.fullmatch(row.get("pid", "")) and device and (server == "-" or NAME.fullmatch(server)))


SERVERS: Final = Layout(
    ("name", "uid", "pid", "status", "pipe-directory", "allowed-devices", "context-ids"), "allowed-devices", _named
)
NAMESPACES: Final = Layout(
    (
        "name",
        "server",
        "server-status",
        "pinned-memory-limit",
        "active-thread-percentage",
        "client-priority",
        "pipe-directory",
    ),
    "pinned-memory-limit",
    _named,
)
CLIENTS: Final = Layout(("pid", "server", "device", "namespace", "cmd"), "cmd", _is_client)
DEVICES: Final = Layout(
    ("ordinal", "server", "pci-id", "device-uuid", "name", "total-sms", "total-chunks", "attributes"),
    "attributes",
    lambda row: bool(row.get("device-uuid", "").startswith(("GPU-", "MIG-")) or row.get("ordinal", "").isdigit()),
)
PARTITIONS: Final = Layout(
    ("server", "device", "name", "chunks", "sm-count", "include-remainder", "status", "visible-uuid"),
    "visible-uuid",
    lambda row: bool(row.get("device")),
)
_SAME: Final[Mapping[str, str]] = {
    "pipe-dir": "pipe-directory",
    "pipedirectory": "pipe-directory",
    "command": "cmd",
    "command-line": "cmd",
    "uuid": "device-uuid",
    "sms": "total-sms",
    "chunk-count": "chunks",
    "sm": "sm-count",
    "partition": "name",
    "namespace-name": "name",
    "server-name": "server",
    "memory-limit": "pinned-memory-limit",
    "priority": "client-priority",
}
"""Other names of the same columns."""


class Table(NamedTuple):
    """Rows by the names of their columns, and what is no row."""

    rows: tuple[Mapping[str, str], ...]
    odd: tuple[str, ...] = ()


def parse_csv(stdout: bytes, layout: Layout) -> Table | Unreadable:
    """Values are printable; of a last column that may hold anything, a line that is no row goes on with the one
    before."""
    lines = stdout.decode("utf-8", "replace").replace("\r\n", "\n").split("\n")
    if len(lines) > _MOST:
        return Unreadable(f"The answer cannot be true: it has {len(lines)} lines.")
    columns = layout.columns
    start = next((number for number, line in enumerate(lines) if line.strip()), len(lines))
    if start < len(lines) and (heading := _heading(lines[start], layout)) is not None:
        columns, start = heading, start + 1
    rows: list[dict[str, str]] = []
    odd: list[str] = []
    runs_on = columns[-1] == layout.greedy
    for line in lines[start:]:
        fields = _fields(line, columns, layout.greedy)
        row = None if fields is None else dict(zip(columns, (printable(f.strip(), 4000) for f in fields), strict=True))
        if row is not None and layout.is_row(row):
            rows.append(row)
        elif runs_on and rows and layout.greedy == "cmd":
            rows[-1]["cmd"] = printable(f"{rows[-1]['cmd']} {line}".rstrip(), 4000)
        elif line.strip():
            odd.append(printable(line.strip(), 200))
    if odd and not rows:
        return Unreadable(f"The answer is not understood: “{odd[0]}”.")
    most = MOST_SERVERS if layout is SERVERS else MOST_CLIENTS
    if len(rows) > most:
        return Unreadable(f"The answer cannot be true: it has {len(rows)} rows, and no daemon has more than {most}.")
    return Table(tuple(rows), tuple(odd))


def _heading(line: str, layout: Layout) -> tuple[str, ...] | None:
    """The columns that a first line names; None where it is none that names them."""
    words = [re.sub(r"[\s_]+", "-", word.strip().strip('"').lower()) for word in line.split(",")]
    words = [word if word in layout.columns else _SAME.get(word, word) for word in words]
    known = sum(word in layout.columns for word in words)
    if known < 2 or 2 * known < len(words) or len(set(words)) < len(words):
        return None
    return tuple(words)


def _fields(line: str, columns: Sequence[str], greedy: str) -> list[str] | None:
    """One field a column, the commas of the greedy one left in it; None where there are too few."""
    import csv  # only a daemon of protocol 3 speaks it

    if '"' in line:
        try:
            quoted = next(csv.reader(io.StringIO(line), strict=True), [])
        except csv.Error:
            quoted = []
        if len(quoted) == len(columns):
            return quoted
    fields = line.split(",")
    if len(fields) <= len(columns):
        return fields if len(fields) == len(columns) else None
    if greedy not in columns:
        return None
    at = columns.index(greedy)
    after = len(columns) - at - 1
    end = len(fields) - after
    return [*fields[:at], ",".join(fields[at:end]), *fields[end:]]


def _text(row: Mapping[str, str], name: str) -> str | None:
    value = row.get(name, "")
    return None if value.lower() in _UNSET else value


def _number(row: Mapping[str, str], name: str) -> int | None:
    value = row.get(name, "")
    return int(value) if _NUMBER.fullmatch(value) else None


def _more(row: Mapping[str, str], layout: Layout) -> dict[str, str]:
    known = (*layout.columns, "context-ids")
    return {printable(name, 60): value for name, value in row.items() if name not in known and value}


Rows = tuple[tuple[T, ...], tuple[str, ...]]
"""What a list has, and its lines that are no row of it, printable."""


def _rows(stdout: bytes, layout: Layout, make: Callable[[Mapping[str, str]], T]) -> Rows[T] | Unreadable:
    table = parse_csv(stdout, layout)
    return table if isinstance(table, Unreadable) else (tuple(map(make, table.rows)), table.odd)


def parse_servers(stdout: bytes) -> Rows[V3Server] | Unreadable:
    """``server list``; one without a process has the PID 0, or none."""
    return _rows(
        stdout,
        SERVERS,
        lambda row: V3Server(
            row["name"],
            _number(row, "uid"),
            _number(row, "pid") or None,
            _text(row, "status"),
            _text(row, "pipe-directory"),
            _text(row, "allowed-devices"),
            _more(row, SERVERS),
        ),
    )


def parse_namespaces(stdout: bytes) -> Rows[Namespace] | Unreadable:
    """``namespace list``; the percentage is above 0 and at most 100, or not known."""
    return _rows(
        stdout,
        NAMESPACES,
        lambda row: Namespace(
            row["name"],
            _text(row, "server") or "",
            _text(row, "server-status"),
            _text(row, "pinned-memory-limit"),
            _percentage(row),
            _number(row, "client-priority"),
            _text(row, "pipe-directory"),
            _more(row, NAMESPACES),
        ),
    )


def _percentage(row: Mapping[str, str]) -> float | None:
    match = _PERCENTAGE.fullmatch(row.get("active-thread-percentage", ""))
    value = float(match[1]) if match else 0.0
    return value if 0 < value <= 100 else None


def parse_clients(stdout: bytes) -> Rows[V3Client] | Unreadable:
    """``client list``. The last column is a client's own text, which may look like further rows."""
    return _rows(stdout, CLIENTS, _client)


def _client(row: Mapping[str, str]) -> V3Client:
    """The namespace is written as its name, or as ``server/name (number)``."""
    within = _IN.fullmatch(row.get("namespace", ""))
    return V3Client(
        int(row["pid"]),
        _text(row, "server") or (within["server"] if within else None),
        _text(row, "device"),
        within["name"] if within else _text(row, "namespace"),
        row.get("cmd") or None,
    )


def parse_devices(stdout: bytes) -> Rows[V3Device] | Unreadable:
    """``device list``, a row for each device of each server."""
    return _rows(
        stdout,
        DEVICES,
        lambda row: V3Device(
            _text(row, "ordinal"),
            _text(row, "server"),
            _text(row, "pci-id"),
            _text(row, "device-uuid"),
            _text(row, "name"),
            _number(row, "total-sms"),
            _number(row, "total-chunks"),
            _text(row, "attributes"),
            _more(row, DEVICES),
        ),
    )


def parse_partitions(stdout: bytes) -> Rows[V3Partition] | Unreadable:
    """``sm-partition list``, with rows for what is free."""
    words = {"true": True, "yes": True, "false": False, "no": False}
    return _rows(
        stdout,
        PARTITIONS,
        lambda row: V3Partition(
            _text(row, "name"),
            _text(row, "server"),
            _text(row, "device"),
            _number(row, "chunks"),
            _number(row, "sm-count"),
            words.get(row.get("include-remainder", "").lower()),
            _text(row, "status"),
            _text(row, "visible-uuid"),
            _more(row, PARTITIONS),
        ),
    )


def parse_lines(stdout: bytes) -> Rows[str]:
    """``feature describe``, whose form is not documented."""
    lines = [line for line in stdout.decode("utf-8", "replace").split("\n") if line.strip()]
    return tuple(printable(line.rstrip(), 200) for line in lines[:100]), ()


def parse_done(stdout: bytes) -> str:
    """What a command that changes something prints: for a person."""
    return printable(stdout.strip(), 1000)


def judge_call(stdout: bytes, stderr: bytes, exit_status: int | None) -> tuple[Outcome, str]:
    """Outcome and message: here the exit status tells, and the text says why."""
    if _CANNOT_FIND in stderr:
        return Outcome.ABSENT, "No control daemon answers there."
    if exit_status == 0:
        return Outcome.OK, ""
    said = printable((stderr.strip() or stdout.strip()).partition(b"\n")[0], 300).rstrip(".")
    if exit_status is None or exit_status < 0:
        return Outcome.UNREADABLE, "The control binary was killed or did not end, so its answer is not used."
    if _PRIVILEGE.search(stderr or stdout):
        return Outcome.NOT_PERMITTED, f"{said}."
    return Outcome.REFUSED, f"{said or f'The control binary exited with status {exit_status}'}."


LISTS: Final = (
    ("server", ("server", "list", AS_CSV), parse_servers),
    ("namespace", ("namespace", "list", AS_CSV), parse_namespaces),
    ("client", ("client", "list", AS_CSV), parse_clients),
    ("device", ("device", "list", AS_CSV), parse_devices),
    ("sm-partition", ("sm-partition", "list", AS_CSV), parse_partitions),
    ("feature", ("feature", "describe"), parse_lines),
)
"""What is asked for a whole reading: each list with its command and its parser."""
MOVING: Final = tuple(each for each in LISTS if each[0] in {"server", "client"})
"""What changes by itself: who comes and goes. The rest somebody has to set."""
OTHER_WORDS: Final = "it runs with MPS protocol 3, which has other commands"


class V3Protocol(Legacy):
    """Of the older protocol's commands, which it inherits, nothing is ever sent. Its logs are not known."""

    name = "v3"
    silent = OTHER_WORDS
    named_servers = True

    def terminate_client(self, server: int, client: int) -> Question[None]:
        return Question(f"client terminate {client}", parse_terminated)
