"""Where a client's limits come from: default, server when it connected, its own environment, execution affinity."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Literal

from mpstui.core.cells import each_sm_text, share_text, sm_count_text
from mpstui.core.late import dataclass
from mpstui.core.limits import (
    in_doubt,
    may_be_taken,
    own_memory,
    own_numbers,
    own_percentage,
    own_priority,
)
from mpstui.core.model import (
    DEVICES_VARIABLE,
    MEMORY_VARIABLE,
    PERCENTAGE_VARIABLE,
    PRIORITY_VARIABLE,
    Client,
    Daemon,
    Device,
    Event,
)
from mpstui.core.text import PRIORITIES, UNKNOWN, format_percentage, format_size, printable

Limit = Literal["active_thread_percentage", "sm_count", "pinned_mem_limit", "client_priority"]
NOT_SET = "not set"
NO_LIMIT = "none"
_NO_EFFECT = "no effect"


@dataclass(frozen=True, slots=True)
class Link:
    """One place that has a say."""

    label: str
    value: str
    """``—`` where it is not known, ``not set`` where it is known to say nothing."""


@dataclass(frozen=True, slots=True)
class Chain:
    """One limit of a client with everything that had a say, the earliest first."""

    limit: Limit
    effective: str
    links: tuple[Link, ...]


def limit_chains(
    client: Client,
    daemon: Daemon,
    events: Iterable[Event],
    environment: Mapping[str, str] | None,
    devices: Iterable[Device] = (),
) -> tuple[Chain, ...]:
    """The chains of ``client``: thread percentage, SMs, the memory limit of each device, priority.

    ``events``: the snapshot's; what was set before they begin is not known. ``environment``: the client's own, None
    where it could not be read. ``devices``: the node's. Pure.
    """
    if daemon.named_servers:
        return _of_v3(client, daemon, environment, devices)
    history = _History(client, daemon, tuple(events))
    here = [device for device in devices if device.uuid in client.device_uuids]
    percentage = Chain(
        "active_thread_percentage",
        share_text(client),
        (
            *_of_daemon(daemon, PERCENTAGE_VARIABLE, _own_percent),
            *history.links(
                "active_thread_percentage",
                None,
                _percent,
                _initial(daemon, PERCENTAGE_VARIABLE, _percent, "100 %"),
                _of_server(client, "percentage"),
            ),
            _own(environment, PERCENTAGE_VARIABLE, _own_percent),
        ),
    )
    numbers = own_numbers(daemon.ordinals, (environment or {}).get(DEVICES_VARIABLE))
    memory = []
    for ordinal, uuid in daemon.ordinals.items():
        if uuid not in client.device_uuids:
            continue
        number = numbers.get(ordinal, ordinal)
        bound = (number, daemon.ordinals.get(number, ""))
        renamed = (Link(f"its {DEVICES_VARIABLE}", f"device {number} to it"),) if number != ordinal else ()
        everywhere = {ordinal: ordinal for ordinal in daemon.ordinals}
        links = (
            *renamed,
            *_of_daemon(
                daemon, MEMORY_VARIABLE, _named(daemon, number, _own_limit(number, everywhere, daemon.ordinals))
            ),
            *history.links("pinned_mem_limit", bound, _bytes, NO_LIMIT, _of_server(client, "memory", ordinal)),
            _own(environment, MEMORY_VARIABLE, _own_limit(ordinal, numbers, daemon.ordinals)),
        )
        memory.append(_memory(client, ordinal, links))
    priority = Chain(
        "client_priority",
        UNKNOWN if client.client_priority is None else _priority(str(client.client_priority)),
        (
            *_of_daemon(daemon, PRIORITY_VARIABLE, _own_priority),
            *history.links(
                "client_priority", None, _priority, _initial(daemon, PRIORITY_VARIABLE, _priority, "normal")
            ),
            _own(environment, PRIORITY_VARIABLE, _own_priority),
        ),
    )
    if daemon.static_partitioning:
        percentage = Chain("active_thread_percentage", _NO_EFFECT, (Link("with static partitions", _NO_EFFECT),))
        partition = Chain("sm_count", _count(client), (Link("its SM partition", _count(client)),))
        return percentage, partition, *memory, priority
    return percentage, _sms(client, here), *memory, priority


def _of_v3(
    client: Client, daemon: Daemon, environment: Mapping[str, str] | None, devices: Iterable[Device]
) -> tuple[Chain, ...]:
    """Of a daemon of protocol 3: its namespace has the say. Nothing is inherited of the server, nor of the daemon."""
    server = daemon.find_server(client.server_pid) if client.server_pid is not None else None
    name = server.v3.name if server is not None and server.v3 is not None else None
    space = daemon.v3.namespace(name, client.namespace) if daemon.v3 is not None else None
    label = f"namespace {printable(client.namespace or UNKNOWN, 64)} of server {printable(name or UNKNOWN, 64)}"

    def said(value: str | None) -> Link:
        return Link(label, UNKNOWN if space is None else NOT_SET if value is None else value)

    percentage = None if space is None else space.active_thread_percentage
    own = _own(environment, PERCENTAGE_VARIABLE, _own_percent)
    if percentage is not None and own.value not in {NOT_SET, UNKNOWN}:
        own = Link(f"{own.label}, without effect", own.value)
    numbers = own_numbers(daemon.ordinals, (environment or {}).get(DEVICES_VARIABLE))
    sizes = space.memory_limits(daemon.ordinals) if space is not None else {}
    memory = [
        _memory(
            client,
            ordinal,
            (
                said(format_size(sizes[ordinal]) if ordinal in sizes else None),
                _own(environment, MEMORY_VARIABLE, _own_limit(ordinal, numbers, daemon.ordinals)),
            ),
        )
        for ordinal, uuid in daemon.ordinals.items()
        if uuid in client.device_uuids
    ]
    priority = None if space is None or space.client_priority is None else _priority(str(space.client_priority))
    return (
        Chain(
            "active_thread_percentage",
            format_percentage(client.active_thread_percentage),
            (said(None if percentage is None else format_percentage(percentage)), own),
        ),
        _sms(client, [device for device in devices if device.uuid in client.device_uuids]),
        *memory,
        Chain(
            "client_priority",
            UNKNOWN if client.client_priority is None else _priority(str(client.client_priority)),
            (said(priority), _own(environment, PRIORITY_VARIABLE, _own_priority)),
        ),
    )


def _memory(client: Client, ordinal: str, links: tuple[Link, ...]) -> Chain:
    limit = client.pinned_mem_limits.get(ordinal)
    none = limit is None and client.memory_limit_known
    return Chain("pinned_mem_limit", f"{NO_LIMIT if none else format_size(limit)} on device {ordinal}", links)


def _count(client: Client) -> str:
    if client.sm_count is None:
        return UNKNOWN
    return sm_count_text(client.sm_count, client.sm_count_estimated)


def _sms(client: Client, devices: Iterable[Device]) -> Chain:
    comes_to = each_sm_text(client.active_thread_percentage, devices) or UNKNOWN
    effective = comes_to if client.sm_count is None else ("≤" if client.percentage_at_most else "") + _count(client)
    # A context's affinity is the program's own secret: nothing outside shows it.
    links = (Link("percentage of the device", comes_to), Link("execution affinity", UNKNOWN))
    return Chain("sm_count", effective, links)


class _History:
    """What was set when, as far as the events tell."""

    def __init__(self, client: Client, daemon: Daemon, events: tuple[Event, ...]) -> None:
        self._events = events
        self._server = client.server_pid
        server = daemon.find_server(client.server_pid) if client.server_pid is not None else None
        self._started = server.start_time if server else None
        connected = [e.time for e in events if e.kind == "client_connected" and e.pid == client.pid]
        self._connected = connected[-1] if connected else None
        # A daemon whose own start was seen began with MPS's defaults.
        births = [e.time for e in events if e.kind == "daemon_started" and e.time is not None]
        self._born = births[-1] if births else None

    def links(
        self,
        what: str,
        device: tuple[str, str] | None,
        words: Callable[[str], str],
        initial: str | None,
        from_server: str | None = None,
    ) -> tuple[Link, Link]:
        """The default when the server started, and the server's setting when the client connected.

        ``initial``: the default with which the daemon began; None where that is not known.

        ``from_server``: what the client has, where that is known to be the server's; it comes before the history.
        """
        default = self._last("default", what, device, words, self._started)
        if default is None and self._born is not None and self._started is not None and self._born <= self._started:
            default = initial
        at_connect = from_server or self._last("server", what, device, words, self._connected)
        if at_connect is None and self._connected is not None:
            at_connect = default  # a server begins with the default
        return (
            Link("default when the server started", default or UNKNOWN),
            Link("server when it connected", at_connect or UNKNOWN),
        )

    def _last(
        self,
        scope: str,
        what: str,
        device: tuple[str, str] | None,
        words: Callable[[str], str],
        until: float | None,
    ) -> str | None:
        if until is None:
            return None
        found = None
        for event in self._events:
            values = event.values
            if event.kind != "limit_set" or event.time is None or event.time > until or values.get("what") != what:
                continue
            mine = event.server_pid == self._server if scope == "server" else True
            if values.get("scope") == scope and mine and (device is None or values.get("device") in device):
                found = words(values.get("value", ""))
        return found


def _of_server(client: Client, what: Literal["percentage", "memory"], ordinal: str = "") -> str | None:
    """What the client has, where its server gave it."""
    if what == "percentage":
        mine = client.percentage_at_most or client.limit_source.get("active_thread_percentage") == "server"
        return format_percentage(client.active_thread_percentage) if mine else None
    mine = client.limit_source.get("pinned_mem_limits") == "server"
    return format_size(client.pinned_mem_limits[ordinal]) if mine and ordinal in client.pinned_mem_limits else None


def _own(environment: Mapping[str, str] | None, name: str, words: Callable[[str], str]) -> Link:
    label = f"its environment ({name})"
    if environment is None:
        return Link(label, UNKNOWN)
    return Link(label, words(environment[name]) if name in environment else NOT_SET)


def _of_daemon(daemon: Daemon, name: str, words: Callable[[str], str]) -> tuple[Link, ...]:
    """What the daemon's own environment says, where it says something or may not be read."""
    label = f"the daemon's environment ({name})"
    if daemon.environment is None:
        return (Link(label, UNKNOWN),)
    if may_be_taken(daemon, name):
        return (Link(label, printable(daemon.environment[name], 60)),)
    return (Link(label, words(daemon.environment[name])),) if name in daemon.environment else ()


def _named(daemon: Daemon, ordinal: str, words: Callable[[str], str]) -> Callable[[str], str]:
    """A memory limit of the daemon's environment with what is known of whether clients get it."""
    if ordinal not in daemon.inherited_mem_limits:
        return words
    doubt = in_doubt(daemon.inherited_mem_limits, daemon.driver)
    return lambda text: f"{words(text)}, {'not known whether it holds' if doubt else 'limits no client'}"


def _initial(daemon: Daemon, name: str, words: Callable[[str], str], otherwise: str) -> str | None:
    """The default with which the daemon began: its environment's, where that is a value, else MPS's own."""
    if daemon.environment is None or may_be_taken(daemon, name):
        return None
    found = words(daemon.environment.get(name, ""))
    return otherwise if found == UNKNOWN else found


def _own_percent(text: str) -> str:
    found = own_percentage(text)
    return format_percentage(found) if found is not None else _not_taken(text, "above 0, at most 100")


def _own_priority(text: str) -> str:
    found = own_priority(text)
    return _not_taken(text, "0 or 1") if found is None else PRIORITIES[found]


def _not_taken(text: str, allowed: str) -> str:
    return f"{printable(text, 40)}, not taken: {allowed}" if text else NOT_SET


def _own_limit(ordinal: str, numbers: Mapping[str, str], ordinals: Mapping[str, str]) -> Callable[[str], str]:
    def words(text: str) -> str:
        limits = own_memory(text, numbers, ordinals)
        if limits is None:
            return UNKNOWN
        if not limits and text:
            return f"{printable(text, 60)}, sets no limit: an entry is for no device that is visible"
        return format_size(limits[ordinal]) if ordinal in limits else NOT_SET

    return words


def _percent(text: str) -> str:
    return format_percentage(own_percentage(text))


def _bytes(text: str) -> str:
    return format_size(int(text)) if text.isdecimal() else text or UNKNOWN


def _priority(text: str) -> str:
    found = own_priority(text)
    return UNKNOWN if found is None else PRIORITIES[found]
