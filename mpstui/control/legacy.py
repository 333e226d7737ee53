"""The protocol of commands on standard input: the text of an answer to an outcome and to values. No I/O.

Parsers never raise. They return ``Unreadable`` for text that the command never prints. Only the first line of an
answer is judged: text further down may be a client's argv[0] (fact 10).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from mpstui.control.answer import Outcome
from mpstui.control.channel import CANNOT_SEND
from mpstui.control.commandline import PROOF
from mpstui.control.grammar import LogKind, LogParser
from mpstui.control.wire import (
    MOST_CLIENTS,
    MOST_SERVERS,
    ClientContext,
    DeviceClients,
    DeviceQuery,
    Extent,
    PsRow,
    QueriedDevice,
    Question,
    Unreadable,
)
from mpstui.core.late import pattern
from mpstui.core.model import PartitionTable
from mpstui.core.text import parse_size, printable

_CANNOT_FIND = b"Cannot find MPS control daemon process"
_NOT_PERMITTED = (b"Insufficient privileges", b"Not enough privilege")
# Patterns that re compiles, once, when they are first needed: all at once they would be a fiftieth of the start.
_NOT_TERMINATED = rb"[1-9][0-9]{0,9}"
_REFUSED = (
    rb"(?s)Server(?: -?[0-9]{1,10})? not found!?|Unknown command \".*|Invalid .*"
    rb"|A (?:user id \(UID\)|server PID) is required.*"
)
_UNKNOWN_COMMAND = pattern(rb'Unknown command "([a-z_]{1,64})"')
_NUMBER = rb"[0-9]{1,10}"
_PERCENTAGE = rb"[0-9]{1,3}(?:\.[0-9]{1,10})?"
_STATUS = rb"[A-Z][A-Z_ ]{2,31}"
_PS_ROW = (
    rb"(?s)(?P<pid>[0-9]{1,10}) +(?P<id>[0-9]{1,10}) +(?P<server>[0-9]{1,10})"
    rb"(?: +(?P<device>[^ \n]*[^ 0-9\n][^ \n]*))?"
    rb" +(?P<namespace>[0-9]{1,19})(?: +(?P<command>.*))?"
)
_DEVICE_HEADING = rb"(?s)\[(?P<ordinal>[0-9]{1,6})\] (?P<pci>[^,\n]*), (?P<name>.*)"
_CONTEXT = rb"(?P<pid>[0-9]{1,10})\.(?P<context>[0-9]{1,10})"
_SECTION = rb"Server (?P<server>[0-9]{1,10})"
_QUERIED = rb"(?s)(?P<ordinal>[0-9]{1,6}) +(?P<pci>[^ ]+) +(?P<uuid>[^ ]+) +(?P<rest>[^ ].*)"
_VERSION = rb"Binary version: ([0-9][0-9.]{0,30})"


def judge(command: str, stdout: bytes, stderr: bytes, exit_status: int | None) -> tuple[Outcome, str]:
    """Outcome and message of an answer by its text: errors come on stdout with exit status 0 (facts 2, 3, 4)."""
    if CANNOT_SEND in stderr:
        return Outcome.HELD, "Another process keeps a control session open."
    if _CANNOT_FIND in stderr:
        return Outcome.ABSENT, "No control daemon answers there."
    if exit_status != 0:
        return Outcome.UNREADABLE, f"The control binary {_ending(exit_status)}{_quoted(stderr or stdout)}."
    lines = stdout.split(b"\n")
    first = lines[0].strip()
    if first.startswith(_NOT_PERMITTED):
        return Outcome.NOT_PERMITTED, _sentence(first)
    if command == "ps" and first == b"Server not found":
        return Outcome.OK, ""
    if re.fullmatch(_REFUSED, first):
        return Outcome.REFUSED, _sentence(first)
    if command.startswith("terminate_client ") and re.fullmatch(_NOT_TERMINATED, stdout.strip()):
        # 1, or a CUDA error: 201 is the answer for a process that lives and is no client (fact 28).
        return (
            Outcome.REFUSED,
            f"The daemon did not terminate the client: it answered {stdout.strip().decode('ascii')}.",
        )
    if stderr.strip():
        return Outcome.UNREADABLE, f"The control binary complained{_quoted(stderr)}."
    return Outcome.OK, ""


def is_refusal(line: bytes) -> bool:
    """Whether a line is the daemon's no, in place of an answer (fact 4)."""
    text = line.strip()
    return text.startswith(_NOT_PERMITTED) or re.fullmatch(_REFUSED, text) is not None


def parse_server_list(stdout: bytes) -> tuple[int, ...] | Unreadable:
    """PIDs, a line each."""
    return _numbers(stdout, MOST_SERVERS)


def parse_client_list(stdout: bytes) -> tuple[int, ...] | Unreadable:
    """PIDs in the daemon's order; a terminated client stays until its process ends (fact 15)."""
    return _numbers(stdout, MOST_CLIENTS)


def parse_status(stdout: bytes) -> str | Unreadable:
    """The daemon's own word, ``ACTIVE``."""
    text = stdout.strip()
    return text.decode("ascii") if re.fullmatch(_STATUS, text) else _unreadable(stdout)


def parse_ps(stdout: bytes) -> tuple[PsRow, ...] | Unreadable:
    """Rows as printed; empty without a server and without clients."""
    header, _, body = stdout.partition(b"\n")
    if header.strip() in {b"", b"Server not found"}:
        return () if not body.strip() else _unreadable(stdout)
    if header.split()[:3] != [b"PID", b"ID", b"SERVER"]:
        return _unreadable(stdout)
    rows: list[tuple[re.Match[bytes], list[bytes]]] = []
    for line in body.removesuffix(b"\n").split(b"\n") if body else []:
        match = re.fullmatch(_PS_ROW, line)
        if match is not None:
            rows.append((match, [match["command"] or b""]))
        elif rows:
            rows[-1][1].append(line)
        else:
            return _unreadable(line)
    return tuple(
        PsRow(
            int(match["pid"]),
            int(match["id"]),
            int(match["server"]),
            printable(match["device"] or b""),
            int(match["namespace"]),
            printable(b"\n".join(command).rstrip(b" ")),
        )
        for match, command in rows
    )


def parse_device_client_list(stdout: bytes) -> tuple[DeviceClients, ...] | Unreadable:
    """One entry a heading, in the order printed."""
    found: list[tuple[re.Match[bytes], list[ClientContext]]] = []
    for line in _lines(stdout):
        heading, context = re.fullmatch(_DEVICE_HEADING, line), re.fullmatch(_CONTEXT, line)
        if heading is not None:
            found.append((heading, []))
        elif context is not None and found:
            found[-1][1].append(ClientContext(int(context["pid"]), int(context["context"])))
        else:
            return _unreadable(line)
    return tuple(
        DeviceClients(int(match["ordinal"]), printable(match["pci"]), printable(match["name"]), tuple(contexts))
        for match, contexts in found
    )


def parse_device_query(stdout: bytes) -> DeviceQuery | Unreadable:
    """The section ``Default`` and one for each server."""
    sections: dict[int | None, list[QueriedDevice]] = {}
    rows: list[QueriedDevice] | None = None
    for line in _lines(stdout):
        section, row = re.fullmatch(_SECTION, line), re.fullmatch(_QUERIED, line)
        if line == b"Default" or section is not None:
            rows = sections.setdefault(int(section["server"]) if section else None, [])
        elif rows is not None and row is not None:
            rows.append(_queried(row))
        elif rows is None or not line.startswith(b"Device Ordinal"):
            return _unreadable(line)
    if not sections:
        return _unreadable(stdout)
    servers = {server: tuple(devices) for server, devices in sections.items() if server is not None}
    return DeviceQuery(tuple(sections.get(None, ())), servers)


def parse_percentage(stdout: bytes) -> float | Unreadable:
    """Percent. The daemon answers a value that it ignores with the old one (fact 5)."""
    text = stdout.strip()
    return float(text) if re.fullmatch(_PERCENTAGE, text) else _unreadable(stdout)


def parse_memory_limit(stdout: bytes) -> int | Unreadable | None:
    """Bytes; None where no limit is set, which prints nothing (fact 6)."""
    text = stdout.strip()
    if not text:
        return None
    size = parse_size(text[:32].decode("ascii", "replace"))
    return _unreadable(stdout) if size is None else size


def parse_number(stdout: bytes) -> int | Unreadable:
    """A whole number, as of a priority."""
    text = stdout.strip()
    return int(text) if re.fullmatch(_NUMBER, text) else _unreadable(stdout)


def parse_nothing(stdout: bytes) -> Unreadable | None:
    """For commands that print nothing, whether they were carried out or ignored (fact 5)."""
    return _unreadable(stdout) if stdout.strip() else None


def parse_terminated(stdout: bytes) -> Unreadable | None:
    """``0`` is the whole answer of a terminate_client that was carried out (fact 15)."""
    return None if stdout.strip() == b"0" else _unreadable(stdout)


def parse_version(stdout: bytes) -> str | Unreadable:
    """The control binary's own, ``13000`` for CUDA 13.0."""
    match = re.search(_VERSION, stdout[:4096])
    return match[1].decode("ascii") if match else _unreadable(stdout)


def percentage_text(value: float) -> str:
    """A percentage as short decimal text: ``25``, ``33.3``, ``0.1``, never ``1e-05``."""
    return f"{value:.6f}".rstrip("0").rstrip(".")


class Legacy:
    """The commands on standard input that every driver up to 615 speaks by default. Which of them a driver has it
    answers itself (fact 46)."""

    name: str = "legacy"
    silent: str | None = None
    named_servers: bool = False

    @property
    def log_parser(self) -> Callable[[LogKind], LogParser]:
        return LogParser

    def judge(self, command: str, stdout: bytes, stderr: bytes, exit_status: int | None) -> tuple[Outcome, str]:
        return judge(command, stdout, stderr, exit_status)

    def unknown_command(self, line: bytes) -> str | None:
        found = _UNKNOWN_COMMAND.match(line)
        return found[1].decode("ascii") if found else None

    def default_percentage(self) -> Question[float]:
        """The proof itself."""
        return Question(PROOF, parse_percentage, Extent.LINE, proof=True)

    def set_default_percentage(self, value: float) -> Question[float]:
        """Answers what holds afterwards: the old value where the daemon ignored the new one (fact 5)."""
        command = f"set_default_active_thread_percentage {percentage_text(value)}"
        return Question(command, parse_percentage, Extent.LINE, proof=True)

    def percentage(self, server: int) -> Question[float]:
        """No proof: a server that is starting prints nothing (fact 45)."""
        return Question(f"get_active_thread_percentage {server}", parse_percentage, Extent.LINE)

    def set_percentage(self, server: int, value: float) -> Question[float]:
        """As the default's (fact 5)."""
        command = f"set_active_thread_percentage {server} {percentage_text(value)}"
        return Question(command, parse_percentage, Extent.LINE)

    def priority(self) -> Question[int]:
        return self.number("client_priority")

    def set_priority(self, value: int) -> Question[None]:
        return self.set_number("client_priority", value)

    def number(self, name: str) -> Question[int]:
        """A whole number that the daemon keeps for the clients to come."""
        return Question(f"get_default_{name}", parse_number, Extent.LINE, proof=True)

    def set_number(self, name: str, value: int) -> Question[None]:
        return Question(f"set_default_{name} {value}", parse_nothing, Extent.SILENT)

    def memory_limit(self, server: int | None, device: str) -> Question[int | None]:
        """Bytes; None where no limit is set (fact 6), and while the server is starting, which looks the same (fact 45):
        its percentage, asked for before, tells."""
        command = "get_default_device_pinned_mem_limit" if server is None else f"get_device_pinned_mem_limit {server}"
        return Question(f"{command} {device}", parse_memory_limit, Extent.OPTIONAL)

    def set_memory_limit(self, server: int | None, device: str, text: str) -> Question[None]:
        """``text`` as MPS writes it, ``10G``. Prints nothing, whatever is in force then: read it back (facts 5, 26)."""
        command = "set_default_device_pinned_mem_limit" if server is None else f"set_device_pinned_mem_limit {server}"
        return Question(f"{command} {device} {text}", parse_nothing, Extent.SILENT)

    def server_list(self) -> Question[tuple[int, ...]]:
        return Question("get_server_list", parse_server_list, Extent.NUMBERS)

    def server_status(self, server: int) -> Question[str]:
        return Question(f"get_server_status {server}", parse_status, Extent.LINE, proof=True)

    def client_list(self, server: int) -> Question[tuple[int, ...]]:
        return Question(f"get_client_list {server}", parse_client_list, Extent.NUMBERS)

    def rows(self, server: int | None = None) -> Question[tuple[PsRow, ...]]:
        """What it prints is the clients' to choose (fact 10): nothing behind it could be told apart."""
        return Question("ps" if server is None else f"ps -p {server}", parse_ps)

    def devices(self) -> Question[DeviceQuery]:
        return Question("device_query", parse_device_query, proof=True)

    def contexts(self, server: int | None = None) -> Question[tuple[DeviceClients, ...]]:
        """By device ordinal (facts 9, 11)."""
        command = "get_device_client_list" if server is None else f"get_device_client_list {server}"
        return Question(command, parse_device_client_list)

    def start_server(self, uid: int) -> Question[None]:
        return Question(f"start_server -uid {uid}", parse_nothing)

    def shutdown_server(self, server: int, force: bool) -> Question[None]:
        return Question(f"shutdown_server {server}{' -f' if force else ''}", parse_nothing)

    def terminate_client(self, server: int, client: int) -> Question[None]:
        return Question(f"terminate_client {server} {client}", parse_terminated)

    def quit(self, timeout: int | None) -> Question[None]:
        return Question("quit" if timeout is None else f"quit -t {timeout}", parse_nothing)

    def partitions(self) -> Question[PartitionTable] | None:
        return None

    def split(self, asked: Sequence[Question[object]], stdout: bytes) -> list[bytes] | None:
        """The answer to each question, in their order; None where they cannot be told apart for certain."""
        lines = [line + b"\n" for line in stdout.split(b"\n")]
        if lines.pop() != b"\n":
            return None  # the last line is not whole
        found: list[bytes] = []
        for index, question in enumerate(asked):
            following = asked[index + 1] if index + 1 < len(asked) else None
            taken = _taken(question, following, lines)
            if taken is None:
                return None
            found.append(b"".join(lines[:taken]))
            del lines[:taken]
        return None if lines else found


def _taken(question: Question[object], following: Question[object] | None, lines: Sequence[bytes]) -> int | None:
    """How many of ``lines`` are the answer to ``question``."""
    error = bool(lines) and is_refusal(lines[0])
    if question.extent is Extent.REST:
        return len(lines) if following is None else None
    if question.extent is Extent.SILENT:
        return int(error)
    if question.extent is Extent.LINE:
        sure = error or (bool(lines) and not isinstance(question.parser(lines[0]), Unreadable))
        return 1 if sure else None
    if following is not None and following.command != PROOF:
        status = question.extent is Extent.NUMBERS and following.parser is parse_status
        if error or not status:
            return None
    if error:
        return 1
    if question.extent is Extent.OPTIONAL:
        if following is None:
            return len(lines)
        return int(bool(lines) and not isinstance(question.parser(lines[0]), Unreadable))
    return next((i for i, line in enumerate(lines) if not re.fullmatch(_NUMBER, line.rstrip(b"\n"))), len(lines))


def _queried(row: re.Match[bytes]) -> QueriedDevice:
    name, _, attributes = row["rest"].strip().partition(b"  ")
    if not attributes and name.endswith(b" N/A"):  # a name that fills its column leaves one blank
        name, attributes = name[:-4], b"N/A"
    return QueriedDevice(
        int(row["ordinal"]),
        printable(row["pci"]),
        printable(row["uuid"]),
        printable(name),
        printable(attributes.strip()),
    )


def _lines(stdout: bytes) -> list[bytes]:
    return [line.rstrip() for line in stdout.split(b"\n") if line.strip()]


def _numbers(stdout: bytes, most: int) -> tuple[int, ...] | Unreadable:
    lines = _lines(stdout)
    if len(lines) > most:
        return Unreadable(f"The answer cannot be true: it names {len(lines)}, and no daemon has more than {most}.")
    wrong = next((line for line in lines if not re.fullmatch(_NUMBER, line)), None)
    return tuple(int(line) for line in lines) if wrong is None else _unreadable(wrong)


def _unreadable(stdout: bytes) -> Unreadable:
    return Unreadable(f"The answer cannot be read{_quoted(stdout) or ': it is empty'}.")


def _quoted(raw: bytes) -> str:
    text = printable(raw.strip(), 120)
    return f": “{text}”" if text else ""


def _sentence(line: bytes) -> str:
    text = printable(line).strip()
    return text if text.endswith((".", "!")) else f"{text}."


def _ending(exit_status: int | None) -> str:
    if exit_status is None:
        return "did not end"
    return f"was killed by signal {-exit_status}" if exit_status < 0 else f"exited with status {exit_status}"
