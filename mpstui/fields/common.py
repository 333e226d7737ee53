"""What several things say in the same words: whose they are, since when, their limits."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from mpstui.core.limits import in_doubt
from mpstui.core.model import (
    EMPTY,
    Client,
    Daemon,
    Server,
)
from mpstui.core.text import (
    PRIORITIES,
    UNKNOWN,
    Line,
    at_least,
    by_device,
    format_percentage,
    format_size,
    owner,
)
from mpstui.core.v3 import DEFAULT
from mpstui.core.where import KINDS
from mpstui.fields.rows import Fact, View, clock_text

DEVICE_QUERY: Final = "device_query"
MEMORY_LIMIT: Final = "get_device_pinned_mem_limit"
DEFAULT_PRIORITY: Final = "get_default_client_priority"
NO_EFFECT: Final = "no effect"
"""In the place of a percentage, on a daemon with static partitions."""


def when(moment: float | None, view: View) -> str:
    return UNKNOWN if moment is None else f"{clock_text(moment)}  ({view.age(moment)} ago)"


def started(label: str, thing: Any, view: View) -> Iterable[Fact]:
    return (Fact(label, when(thing.start_time, view)),)


def who(thing: Any, view: View) -> Iterable[Fact]:
    user, uid = thing.user, thing.uid
    return (Fact("user", owner(user, uid) if user is None or uid is None else f"{user} (UID {uid})"),)


def user_text(thing: Any, view: View | None = None) -> str:
    """A name; where there is none the number, in a column that is headed USER."""
    return thing.user or (UNKNOWN if thing.uid is None else "root" if thing.uid == 0 else str(thing.uid))


def user_cell(thing: Any, view: View, cells: int) -> Line:
    return ((user_text(thing), "user"),)


def clients_text(server: Server) -> str:
    """How many clients it has."""
    return at_least(len(server.clients), server.clients_known)


def age_cell(thing: Any, view: View, cells: int) -> Line:
    return ((view.age(thing.start_time), "plain"),)


def gpu_name(view: View, uuid: str | None) -> str:
    """``GPU 0 NVIDIA H100``; the UUID where NVML does not know the device."""
    device = view.snapshot.device(uuid) if uuid else None
    if device is None:
        return uuid or UNKNOWN
    return f"GPU {UNKNOWN if device.index is None else device.index} {device.name or ''}".rstrip()


def priority(value: int | None) -> str:
    return UNKNOWN if value is None else f"{PRIORITIES[value]} ({value})" if value in PRIORITIES else str(value)


def priority_word(value: int | None) -> str:
    return UNKNOWN if value is None else PRIORITIES.get(value, str(value))


def priority_cell(value: int | None, cells: int) -> Line:
    """Its word; where there is no room for all of it, the first one, which is enough under its heading."""
    word = priority_word(value)
    return ((word if len(word) <= cells else word.partition(" ")[0], "plain"),)


def memory_facts(
    view: View, limits: Mapping[str, int], used: Mapping[str, int] | None, none: str = "none"
) -> list[Fact]:
    """Memory for each device: what is used of what may be; without ``used``, what may be on each device of the
    daemon's."""
    known = view.daemon.ordinals if view.daemon is not None else EMPTY
    ordinals = {uuid: ordinal for ordinal, uuid in known.items()}
    facts: list[Fact] = []
    label = "memory, " if used is None else ""
    devices = {device.uuid: device.index for device in view.snapshot.devices if device.index is not None}
    named = known if used is None and limits else limits
    for uuid in dict.fromkeys([*(used or ()), *(known[o] for o in named if o in known)]):
        limit = limits.get(ordinals.get(uuid, ""))
        text = none if limit is None else format_size(limit)
        if used is not None:
            of = f"of {text}" if limit is not None else "no limit" if none == "none" else f"limit {none}"
            text = f"{format_size(used.get(uuid))}{',' if limit is None else ''} {of}"
        full = used is not None and limit is not None and used.get(uuid, 0) > 0.9 * limit
        text += "  ▲ nearly full" if full else ""
        short = used is None and uuid in devices  # beside other limits its number tells which it is
        name = f"GPU {devices[uuid]}" if short else gpu_name(view, uuid)
        facts.append(Fact(f"{label}{name}", text, "warn" if full else ""))
    facts += [Fact(f"{label}device {o}", format_size(size)) for o, size in limits.items() if o not in known]
    return facts or [Fact("memory", none if used is None else UNKNOWN)]


def limits_known(of: Server | Daemon, daemon: Daemon | None) -> bool:
    """Whether the limits of a daemon's servers to come, or of a server, were read, so that what is not set is none.
    The percentage is read along with the others, and is always set; with protocol 3 the namespace ``default`` has
    them."""
    if daemon is None or daemon.by_logs:  # logs tell what is set alone
        return False
    if isinstance(of, Daemon):
        return of.default_active_thread_percentage is not None
    if (node := daemon.v3) is not None:
        return of.v3 is not None and node.namespace(of.v3.name, DEFAULT) is not None
    return of.active_thread_percentage is not None


def inherited_facts(daemon: Daemon | None, view: View) -> list[Fact]:
    """What the daemon's environment names, and no command reads back."""
    if daemon is None:
        return []
    doubt = in_doubt(daemon.inherited_mem_limits, daemon.driver)
    held = "not known whether clients get it" if doubt else "no client gets it (driver 580)"
    return [
        Fact("", f"{format_size(size)} on {on} in the daemon's environment: {held}")
        for o, size in by_device(daemon.inherited_mem_limits)
        for on in [gpu_name(view, daemon.ordinals[o]) if o in daemon.ordinals else f"device {o}"]
    ]


def default_facts(daemon: Daemon, view: View) -> list[Fact]:
    """The limits of servers that start from now on."""
    share = format_percentage(daemon.default_active_thread_percentage)
    return [
        Fact("threads", NO_EFFECT if daemon.static_partitioning else share),
        Fact("priority", daemon.lacking("get_default_client_priority") or priority(daemon.default_client_priority)),
        *(
            [Fact("memory", why)]
            if (why := daemon.lacking("get_default_device_pinned_mem_limit"))
            else memory_facts(
                view, daemon.default_pinned_mem_limits, None, "none" if limits_known(daemon, daemon) else UNKNOWN
            )
        ),
        *inherited_facts(daemon, view),
    ]


def heading(text: str) -> Callable[[Any, View], str]:
    return lambda thing, view: text


def where_facts(thing: Client | Daemon, view: View) -> Iterable[Fact]:
    """One line for each thing that it is in."""
    where = thing.where
    if where is None:
        return
    if where.pod_uid is not None:
        pod = where.name("pod") or UNKNOWN
        yield Fact("pod", pod if where.pod is None else f"{pod}  (UID {where.pod_uid})")
        if where.container_name is not None:
            yield Fact("container's name", where.container_name)
    if where.job is not None:
        yield Fact("job", (where.name("job") or UNKNOWN) + (f"  step {where.step}" if where.step else ""))
    if where.unit is not None:
        yield Fact("unit", where.name("unit") or UNKNOWN)
    if where.claimed:
        claimed = ", ".join(kind for kind in KINDS if kind in where.claimed)
        yield Fact("", f"{claimed}: a claim, which its user or its container may have made up", "warn")
