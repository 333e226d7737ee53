"""The limits of new clients: each is one class with its values, its words, and the questions that set and read it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar, Final, Generic, TypeVar

from mpstui.control.answer import Answer, Outcome
from mpstui.control.protocol import ControlProtocol
from mpstui.control.wire import Question
from mpstui.core.cells import client_line, each_sm_text
from mpstui.core.late import pattern
from mpstui.core.model import Daemon, Device, ProcessKey, Server, Snapshot
from mpstui.core.partition import next_step, sm_share
from mpstui.core.text import (
    PRIORITIES,
    PRIORITY_NEEDED,
    PRIORITY_WORDS,
    UNKNOWN,
    device_keys,
    format_percentage,
    format_size,
    is_own_number,
    mps_size,
    plural,
    same_limit,
    same_percentage,
    size_hint,
    typed_size,
)
from mpstui.observe.poll import Need
from mpstui.operations.check import Refused, find_server
from mpstui.operations.operation import Operation, Work
from mpstui.operations.types import STATUS, Argument, ExitStatus, Preview, Request, Result, Verb

T = TypeVar("T")
_PERCENTAGE = pattern(r"([0-9]{1,3}(\.[0-9]{1,6})?|\.[0-9]{1,6})")
SMALL_LIMIT: Final = 1 << 30
"""A context alone took 518 MiB on an H100 (fact 9) and counts against the limit (fact 25)."""
LEAST_LIMIT: Final = 58 << 20
"""What a context on 8 SMs of an H100 took of a limit, the least that was measured (fact 23): under less no client
starts, as none did under 512M with a context on all SMs (fact 43)."""
SMALL: Final = "a CUDA context counts against the limit, and one alone took 518 MiB on an H100"
MORE_FROM: Final = "more SMs from"
NO_EFFECT: Final = (
    "percentages have no effect on a daemon with static partitions: a client gets the SMs of its partition"
)
_SCOPE = Argument("scope", "For", "the default for new servers, or one server")


class SetLimit(Operation, Generic[T]):
    """A limit of the clients that connect from now on: of one server, or the default of servers to come.

    A limit is a subclass: the value, the questions, the words. One whose present value no snapshot has leaves
    ``today`` as it is.
    """

    what: ClassVar[str]
    """``Active thread percentage``: in the title of its form."""

    def parse(self, text: str) -> T:
        """The value of what was typed; raises Refused for what the daemon would ignore in silence (facts 5, 26)."""
        raise NotImplementedError

    def questions(
        self, protocol: ControlProtocol, request: Request, daemon: Daemon, value: T
    ) -> tuple[Question[Any], Question[Any]]:
        """The one that sets it and the one that reads it back. Raises Refused."""
        raise NotImplementedError

    def value_words(self, value: Any) -> str:
        """A value that the daemon has, for a person."""
        return str(value)

    def said_value(self, request: Request) -> str:
        return self.value_words(self.parse(request.value))

    def same(self, wanted: T, found: object) -> bool:
        """Whether the value that was read back is the one that was sent."""
        return wanted == found

    def done_words(self, wanted: T, found: Any) -> str:
        """What is in force now that ``found``, which is the ``same``, was read back."""
        return f"in force: {'none' if found is None else self.value_words(found)}"

    def today(self, request: Request, snapshot: Snapshot, daemon: Daemon, server: Server | None) -> str:
        """What it is now. Raises Refused where that is asked of a device that is not there."""
        return UNKNOWN

    def wanted_words(self, request: Request, snapshot: Snapshot, daemon: Daemon, value: T) -> str:
        """What it becomes."""
        return self.value_words(value)

    def warnings(self, request: Request, snapshot: Snapshot, daemon: Daemon, value: T) -> Iterable[str]:
        """What is odd about a value that is taken."""
        return ()

    def facts(self, request: Request, snapshot: Snapshot, daemon: Daemon, value: T) -> Iterable[tuple[str, str]]:
        """What else is to be known of a value that is taken."""
        return ()

    def own_of(self, request: Request, daemon: Daemon, server: Server) -> str | None:
        """What a running server has, which a new default does not reach; None where servers have none of their own."""
        return None

    def wrong_value(self, request: Request) -> Refused | None:
        try:
            self.parse(request.value)
        except Refused as refused:
            return refused
        return None

    def show(self, request: Request, snapshot: Snapshot, daemon: Daemon) -> Preview:
        server = None if request.server_pid is None else find_server(daemon, request.server_pid)
        title = f"{self.what} · {f'server {server.pid}' if server else 'default'}"
        kept = tuple(client_line(client) for client in (server.clients if server else daemon.clients()))
        facts: list[tuple[str, str]] = []
        try:
            facts.append(("now", self.today(request, snapshot, daemon, server)))
            value = self.parse(request.value)
            facts.append(("new value", self.wanted_words(request, snapshot, daemon, value)))
        except Refused as refused:
            return Preview(title, tuple(facts), kept, error=str(refused), error_status=refused.status)
        facts += self.facts(request, snapshot, daemon, value)
        facts.append(("applies to", self._reaches(server)))
        return Preview(title, tuple(facts), kept, warnings=tuple(self.warnings(request, snapshot, daemon, value)))

    def _reaches(self, server: Server | None) -> str:
        if server is not None:
            return f"clients that connect to server {server.pid} from now on"
        of_servers = any(argument.kind == "scope" for argument in self.arguments)
        return "servers that start from now on, and their clients" if of_servers else "clients that connect from now on"

    async def run(self, work: Work) -> Result:
        request, value = work.request, self.parse(work.request.value)
        change, read = self.questions(work.control.protocol, request, work.daemon, value)
        work.progress("sending")
        work.sent, work.read = await work.control.change(change, read, request.server_pid)
        result = self._judge(request, work.sent, work.read, value)
        if result.done and request.server_pid is None:
            own = ((server.pid, self.own_of(request, work.daemon, server)) for server in work.daemon.servers)
            kept = (
                f"server {pid} keeps its own{', which is not known' if words == UNKNOWN else f': {words}'}"
                for pid, words in own
                if words is not None
            )
            result = result._replace(details=(*result.details, *kept))
        return result

    def _judge(self, request: Request, sent: Answer[Any], read: Answer[Any], wanted: T) -> Result:
        if not sent.ok:
            return failed(request, sent)
        if not read.ok:
            text = f"sent, but the value could not be read back: {read.message}"
            return Result(request, STATUS[read.outcome], text, (f"sent: {sent.command}",))
        found = "none" if read.value is None else self.value_words(read.value)
        if not self.same(wanted, read.value):
            text = f"the daemon did not take it: {self.value_words(wanted)} was sent, {found} is in force"
            return Result(request, ExitStatus.REFUSED_BY_DAEMON, text, (f"sent: {sent.command}",))
        details = (f"sent: {sent.command}", f"read back: {found}")
        return Result(request, ExitStatus.DONE, self.done_words(wanted, read.value), details)


_IN_FORCE = {
    Outcome.BLOCKED: "it may still be carried out when the daemon answers again: read the value again then",
    Outcome.UNREADABLE: "whether it was carried out is not known: read the value again",
    Outcome.NO_BINARY: "nothing was sent",
    Outcome.HELD: "nothing reached the daemon",
    Outcome.BUSY: "nothing reached the daemon",
    Outcome.ABSENT: "nothing reached a daemon",
}
"""What is known of the value after a command that ended so; a daemon that refused has left it as it was."""


def failed(request: Request, answer: Answer[Any]) -> Result:
    """Of a command that was not carried out, as far as one knows."""
    known = _IN_FORCE.get(answer.outcome, "the value is as it was")
    return Result(request, STATUS[answer.outcome], answer.message, (known,))


class SetActiveThreadPercentage(SetLimit[float]):
    """``set_active_thread_percentage``, ``set_default_active_thread_percentage``."""

    id = "set_active_thread_percentage"
    title = "Threads"
    key = "l"
    help = "Set the active thread percentage: the share of the SMs that a new client may use"
    what = "Active thread percentage"
    verb = Verb(
        ("set", "active-thread-percentage"),
        "share of the SMs of a client",
        example="mpstui set active-thread-percentage 50 --default",
    )
    arguments = (
        _SCOPE,
        Argument("value", "Percentage", "more than 0, at most 100", "percent of the SMs: more than 0, at most 100"),
    )

    def needs(self, request: Request) -> Need | None:
        return Need(percentage=request.server_pid is None, devices=True)

    def unavailable(self, snapshot: Snapshot, pipe_dir: Path, clients: Sequence[ProcessKey]) -> str | None:
        daemon = snapshot.daemon(pipe_dir)
        without = NO_EFFECT if daemon is not None and daemon.static_partitioning else None
        return super().unavailable(snapshot, pipe_dir, clients) or without

    def show(self, request: Request, snapshot: Snapshot, daemon: Daemon) -> Preview:
        if daemon.static_partitioning:
            raise Refused(NO_EFFECT, ExitStatus.REFUSED_BY_SAFETY_RULE)
        return super().show(request, snapshot, daemon)

    def parse(self, text: str) -> float:
        return parse_percentage(text)

    def questions(
        self, protocol: ControlProtocol, request: Request, daemon: Daemon, value: float
    ) -> tuple[Question[Any], Question[Any]]:
        if request.server_pid is None:
            return protocol.set_default_percentage(value), protocol.default_percentage()
        return protocol.set_percentage(request.server_pid, value), protocol.percentage(request.server_pid)

    def value_words(self, value: Any) -> str:
        return format_percentage(value)

    def same(self, wanted: float, found: object) -> bool:
        return isinstance(found, float) and same_percentage(wanted, found)

    def today(self, request: Request, snapshot: Snapshot, daemon: Daemon, server: Server | None) -> str:
        value = server.active_thread_percentage if server else daemon.default_active_thread_percentage
        return _share(value, _devices(daemon, snapshot))

    def wanted_words(self, request: Request, snapshot: Snapshot, daemon: Daemon, value: float) -> str:
        return _share(value, _devices(daemon, snapshot))

    def warnings(self, request: Request, snapshot: Snapshot, daemon: Daemon, value: float) -> Iterable[str]:
        found = []
        for device in _devices(daemon, snapshot):
            share = sm_share(value, device)
            if share and device.sm_count and share.count > device.sm_count * value / 100:
                name = device.name or device.uuid
                found.append(f"{value:g} % of {name} is less than the smallest share, {share.count} SM")
        return dict.fromkeys(found)

    def facts(self, request: Request, snapshot: Snapshot, daemon: Daemon, value: float) -> Iterable[tuple[str, str]]:
        steps = {step for device in _devices(daemon, snapshot) if (step := next_step(value, device))}
        if len(steps) == 1:
            ((percentage, sms),) = steps
            yield MORE_FROM, f"{format_percentage(percentage)}: {sms} SM, as SMs are given in steps"

    def own_of(self, request: Request, daemon: Daemon, server: Server) -> str | None:
        return format_percentage(server.active_thread_percentage)

    def undo(self, request: Request, daemon: Daemon) -> Request | None:
        server = None if request.server_pid is None else daemon.find_server(request.server_pid)
        before = server.active_thread_percentage if server else daemon.default_active_thread_percentage
        return None if before is None else request._replace(value=f"{before:g}")

    def command(self, request: Request) -> str:
        default, server = _scope_words(request)
        return f"set_{default}active_thread_percentage{server} {request.value}"


class SetPinnedMemLimit(SetLimit["int | None"]):
    """``set_device_pinned_mem_limit``, ``set_default_device_pinned_mem_limit``."""

    id = "set_pinned_mem_limit"
    sends = "set_default_device_pinned_mem_limit"
    title = "Memory"
    key = "m"
    help = "Set how much GPU memory a new client may take on one device: its pinned device memory limit"
    what = "GPU memory limit"
    verb = Verb(
        ("set", "pinned-mem-limit"),
        "device memory of a client: 900M, 10G, none",
        example="mpstui set pinned-mem-limit 10G --device 0 --default",
    )
    arguments = (
        _SCOPE,
        Argument("device", "Device", "an ordinal of the daemon or a UUID", "an ordinal of the daemon or a UUID", "DEV"),
        Argument(
            "value", "Limit", "900M, 10G or none", "900M or 10G, a whole number with M or G; none takes the limit away"
        ),
    )

    def needs(self, request: Request) -> Need | None:
        return Need(devices=True, memory=True)

    def parse(self, text: str) -> int | None:
        return parse_memory(text)

    def questions(
        self, protocol: ControlProtocol, request: Request, daemon: Daemon, value: int | None
    ) -> tuple[Question[Any], Question[Any]]:
        device, server = device_ordinal(daemon, request.device), request.server_pid
        change = protocol.set_memory_limit(server, device, memory_text(value))
        return change, protocol.memory_limit(server, device)

    def value_words(self, value: Any) -> str:
        return "none" if value is None else format_size(value)

    def same(self, wanted: int | None, found: object) -> bool:
        return same_limit(wanted, found) if found is None or isinstance(found, int) else False

    def done_words(self, wanted: int | None, found: Any) -> str:
        if wanted == found:
            return super().done_words(wanted, found)
        return f"set: {memory_text(wanted)} (the driver shows it as {memory_text(found)})"  # fact 32

    def today(self, request: Request, snapshot: Snapshot, daemon: Daemon, server: Server | None) -> str:
        ordinal = device_ordinal(daemon, request.device)
        limits = server.pinned_mem_limits if server else daemon.default_pinned_mem_limits
        return limit_words(limits.get(ordinal), server or daemon)

    def wanted_words(self, request: Request, snapshot: Snapshot, daemon: Daemon, value: int | None) -> str:
        ordinal = device_ordinal(daemon, request.device)
        if daemon.own_numbers and 0 < len(snapshot.devices) <= int(ordinal):
            count = plural(len(snapshot.devices), "GPU")
            raise Refused(f"the daemon has no device {ordinal}: the node has {count}, from 0 on", ExitStatus.USAGE)
        if value is None:
            return f"none on device {ordinal}"
        beyond(value, snapshot.devices)
        device = snapshot.device(daemon.ordinals.get(ordinal, ""))
        of = f" of {format_size(device.memory_total)}" if device and device.memory_total else ""
        return f"{format_size(value)}{of} for each client on device {ordinal}"

    def warnings(self, request: Request, snapshot: Snapshot, daemon: Daemon, value: int | None) -> Iterable[str]:
        if value is None:
            return
        ordinal = device_ordinal(daemon, request.device)
        if daemon.own_numbers:
            how = "as the daemon counts, after its own CUDA_VISIBLE_DEVICES"
            yield f"mpstui cannot find out which GPU device {ordinal} is, {how}"
        device = snapshot.device(daemon.ordinals.get(ordinal, ""))
        if (none := beyond(value, snapshot.devices)) is not None:
            yield none
        elif device and device.memory_total and value > device.memory_total:
            yield f"more than the device has: {format_size(device.memory_total)}"
        if value < SMALL_LIMIT:
            yield SMALL

    def own_of(self, request: Request, daemon: Daemon, server: Server) -> str | None:
        return limit_words(server.pinned_mem_limits.get(device_ordinal(daemon, request.device)), server)

    def undo(self, request: Request, daemon: Daemon) -> Request | None:
        server = None if request.server_pid is None else daemon.find_server(request.server_pid)
        of = server or daemon
        limits = server.pinned_mem_limits if server else daemon.default_pinned_mem_limits
        try:
            before = limits.get(device_ordinal(daemon, request.device))
        except Refused:
            return None
        if before is None and not _limits_read(of):
            return None
        return request._replace(value="none" if before is None else memory_text(before))

    def command(self, request: Request) -> str:
        default, server = _scope_words(request)
        value = request.value
        with suppress(Refused):
            value = memory_text(parse_memory(value))
        return f"set_{default}device_pinned_mem_limit{server} {request.device} {value}"


class SetClientPriority(SetLimit[int]):
    """``set_default_client_priority``."""

    id = "set_client_priority"
    sends = "set_default_client_priority"
    title = "Priority"
    key = "o"
    weight = 3
    help = f"Set the priority of new clients: {PRIORITY_WORDS}"
    what = "Client priority"
    verb = Verb(("set", "client-priority"), PRIORITY_WORDS, example="mpstui set client-priority 1")
    arguments = (
        Argument(
            "choice",
            "Priority",
            PRIORITY_WORDS,
            "0 or normal, 1 or below-normal",
            choices=tuple((str(value), words) for value, words in PRIORITIES.items()),
        ),
    )

    def needs(self, request: Request) -> Need | None:
        return Need(priority=True)

    def parse(self, text: str) -> int:
        return parse_priority(text)

    def questions(
        self, protocol: ControlProtocol, request: Request, daemon: Daemon, value: int
    ) -> tuple[Question[Any], Question[Any]]:
        return protocol.set_priority(value), protocol.priority()

    def value_words(self, value: Any) -> str:
        return PRIORITIES.get(value) or str(value)

    def today(self, request: Request, snapshot: Snapshot, daemon: Daemon, server: Server | None) -> str:
        today = daemon.default_client_priority
        return UNKNOWN if today is None else self.value_words(today)

    def undo(self, request: Request, daemon: Daemon) -> Request | None:
        before = daemon.default_client_priority
        return None if before is None else request._replace(value=str(before))

    def command(self, request: Request) -> str:
        return f"set_default_client_priority {request.value}"


LIMITS: Final[tuple[Operation, ...]] = (SetActiveThreadPercentage(), SetPinnedMemLimit(), SetClientPriority())
"""In the order of the key bar."""


def parse_percentage(text: str) -> float:
    """A percentage as MPS takes it: more than 0, at most 100. The daemon ignores others in silence (fact 5)."""
    text = text.strip().removesuffix("%").strip()
    if not _PERCENTAGE.fullmatch(text) or not 0 < float(text) <= 100:
        raise Refused(
            f"{text or 'nothing'!r} is no percentage: a number above 0 and at most 100 is needed", ExitStatus.USAGE
        )
    return float(text)


def parse_memory(text: str) -> int | None:
    """Bytes of a limit, ``900M``, ``10G`` or ``10 GiB`` (``mps_size``); None for ``none``.

    The daemon makes another limit, or none, of every form but the first two, in silence (fact 26): they are sent alone.
    """
    text = text.strip()
    if text.upper() == "NONE":
        return None
    own = mps_size(text)
    if own is None or own[-1] not in "MG":
        what = size_hint(text) or "a whole number above 0 with M or G is needed, as 900M or 10G; or none"
        raise Refused(f"{text or 'nothing'!r} is no memory limit: {what}", ExitStatus.USAGE)
    size = typed_size(own)
    check_least(size)
    return size


def check_least(size: int | None) -> None:
    """Raises Refused for a limit in bytes under which no client can start."""
    if size is not None and size < LEAST_LIMIT:
        text = f"a CUDA context alone takes {format_size(LEAST_LIMIT)} and more, and 518 MiB on all SMs of an H100"
        raise Refused(f"under {format_size(size)} no client starts: {text}", ExitStatus.USAGE)


def beyond(size: int, devices: Iterable[Device]) -> str | None:
    """Why a limit of ``size`` bytes limits nobody; None where it limits, and where the devices' memory is not known.

    It goes by a client's own number of a device (fact 35), so that any of them may be meant. Raises Refused for more
    than twice what the largest one has: 80G of a device that is sold as one of 80 GB is written for all of it, 800G by
    a slip of the hand.
    """
    most = max((device.memory_total or 0 for device in devices), default=0)
    if not most or size <= most:
        return None
    text = f"more than any device has: {format_size(most)}"
    if size > 2 * most:
        raise Refused(f"{format_size(size)} is {text}; none takes the limit away", ExitStatus.USAGE)
    return text


def memory_text(size: int | None) -> str:
    """What is sent for a limit: ``0`` takes it away (fact 26)."""
    return "0" if size is None else f"{size >> 30}G" if size % (1 << 30) == 0 else f"{size >> 20}M"


def parse_priority(text: str) -> int:
    """0 or 1; the words for it are taken too."""
    words = {"low": 1} | {words.replace(" ", by): value for value, words in PRIORITIES.items() for by in " _-"}
    text = text.strip().lower()
    if text not in words and text not in {"0", "1"}:
        raise Refused(f"{text or 'nothing'!r} is no priority: {PRIORITY_NEEDED} is needed", ExitStatus.USAGE)
    return words.get(text, int(text) if text.isdecimal() else 0)


def device_ordinal(daemon: Daemon, device: str | None) -> str:
    """The daemon's ordinal of a device given by ordinal, by UUID or by the first characters of one; MPS itself would
    accept an unknown one (fact 5)."""
    known = ", ".join(f"{ordinal} ({uuid})" for ordinal, uuid in daemon.ordinals.items()) or "none known"
    if daemon.own_numbers:
        if device is not None and is_own_number(device.strip()):
            return device.strip()
        which = f"{device.strip()!r} is" if device is not None and device.strip() else "is meant"
        raise Refused(
            f"mpstui cannot find out which device {which}: device_query is {daemon.lacking('device_query')}. Give the "
            "daemon's own number of it, for example 0, or start the daemon with UUIDs (mpstui daemon start --device)",
            ExitStatus.USAGE,
        )
    if device is None or not device.strip():
        raise Refused(f"a device is needed: {known}", ExitStatus.USAGE)
    found = device_keys(device, daemon.ordinals)
    if len(found) > 1:
        raise Refused(f"{len(found)} devices of the daemon begin with {device.strip()!r}: {known}", ExitStatus.USAGE)
    if not found:
        raise Refused(f"the daemon has no device {device.strip()!r}; it has: {known}", ExitStatus.USAGE)
    return found[0]


def limit_words(limit: int | None, of: Server | Daemon) -> str:
    """A memory limit; "none" only where the limits have been read."""
    return format_size(limit) if limit is not None or not _limits_read(of) else "none"


def _limits_read(of: Server | Daemon) -> bool:
    """Whether a device without a limit has none; the percentage is read along with them."""
    percentage = of.active_thread_percentage if isinstance(of, Server) else of.default_active_thread_percentage
    return percentage is not None


def _share(value: float | None, devices: Sequence[Device]) -> str:
    """``25 %  32 SM``; where the devices differ, each one's SMs."""
    return "  ".join([format_percentage(value), each_sm_text(value, devices)]).rstrip()


def _devices(daemon: Daemon, snapshot: Snapshot) -> tuple[Device, ...]:
    return tuple(device for uuid in daemon.ordinals.values() if (device := snapshot.device(uuid)))


def _scope_words(request: Request) -> tuple[str, str]:
    return ("default_", "") if request.server_pid is None else ("", f" {request.server_pid}")
