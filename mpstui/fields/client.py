"""What a client has; what clients of one job, pod, user or GPU have together; and who of them launches kernels."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Final, NamedTuple, get_args

from mpstui.core.activity import (
    ELSEWHERE,
    FULLY_WATCHED,
    ActivityLook,
    Launcher,
    rate_text,
    share_of_all,
    short_rate,
    sparkline,
)
from mpstui.core.cells import (
    KEEPS_OLD,
    OUTDATED,
    OUTDATED_LEGEND,
    MemoryUse,
    gpu_label,
    gpus_text,
    memory_of,
    meter,
    on_device,
    share_text,
    sm_count_text,
    state_mark,
    threads_text,
)
from mpstui.core.model import (
    EMPTY,
    Client,
    ClientState,
    Context,
    Daemon,
    Snapshot,
    Source,
)
from mpstui.core.text import (
    PRIORITY_WORDS,
    UNKNOWN,
    Line,
    format_percentage,
    format_size,
    owner,
    short_size,
)
from mpstui.core.where import CLAIMS, KINDS, Kind
from mpstui.fields.common import (
    DEFAULT_PRIORITY,
    DEVICE_QUERY,
    MEMORY_LIMIT,
    age_cell,
    gpu_name,
    heading,
    memory_facts,
    priority,
    priority_cell,
    priority_word,
    started,
    user_cell,
    user_text,
    when,
    where_facts,
    who,
)
from mpstui.fields.rows import (
    FLAG,
    INTEGER,
    INTEGERS,
    LOAD,
    NUMBER,
    OBJECTS,
    PATH,
    SCHEMA,
    SECONDS,
    SHARE,
    SIZE,
    SIZES,
    TEXT,
    TEXTS,
    TIME,
    WORDS,
    Column,
    Detail,
    Fact,
    Field,
    Metric,
    Text,
    Thing,
    Total,
    Type,
    View,
    enum,
)

_IDLE: Final = 600
"""Seconds without a launch from which the exporter counts a client's memory as idle."""
NEAR_LIMIT: Final = 90
"""Percent of its memory limit at which a client is marked."""
_FULL_MEMORY: Final = 20
_AT_MOST: Final = "as its server had it; its own setting, which can only be lower, is not known"
_THREADS_GAP: Final = 2
_FULL_THREADS: Final = 16
"""Cells from which memory and threads are written with their units apart."""
_MEMORY_TEXT: Final = 22
_CPU_TEXT: Final = 7
"""Cells that memory and CPU take without what was before."""


def _added(of: Callable[[Client], float | None]) -> Callable[[Group], tuple[float | None, bool]]:
    """The sum over a group of what may not be known of each."""

    def add_up(group: Group) -> tuple[float | None, bool]:
        values = [of(client) for client in group.clients]
        known = [value for value in values if value is not None]
        return (sum(known) if known else None), len(known) == len(values)

    return add_up


# A client.


def _sms(client: Client, between: str) -> str:
    """``≈ 32 SM``, ``≤32 SM`` of a share that may be lower; with ``between`` after the mark of an estimate."""
    if client.sm_count is None:
        return ""
    most = "≤" if client.percentage_at_most else ""
    return most + sm_count_text(client.sm_count, client.sm_count_estimated, between)


def _state_cell(client: Client, view: View, cells: int) -> Line:
    word, style = state_mark(client, lost=client.key in view.lost, claimed=client.key in view.claimed)
    unmarked = any(_COLUMN_OF.get(old.name, old.name) not in view.beside for old in client.old_limits)
    return ((f"{word} {OUTDATED}" if unmarked else word, style),)


_COLUMN_OF: Final[Mapping[str, str]] = {"pinned_mem_limits": "gpu_memory"}
"""The column that shows a limit, where that is another field's."""


def _old(name: str) -> Callable[[Client], str]:
    """The mark of a client that keeps an old limit of this name."""
    return lambda client: OUTDATED if any(old.name == name for old in client.old_limits) else ""


_old_threads, _old_memory = _old("active_thread_percentage"), _old("pinned_mem_limits")


def _state_row(client: Client, view: View) -> str:
    lost = "LOST?" if client.key in view.claimed else "LOST"
    return (lost if client.key in view.lost else client.state) + (f" {OUTDATED}" if client.outdated_limits else "")


def _lost(client: Client, view: View) -> bool | None:
    if client.key in view.lost:
        return None if client.key in view.claimed else True
    return False if view.daemon is not None and view.daemon.watch == "logs" else None


def _client_word(client: Client, view: View) -> str:
    return "LOST" if client.key in view.lost else client.state


def _state_facts(client: Client, view: View) -> Iterable[Fact]:
    if client.key in view.claimed:
        return (Fact("state", "LOST?: a fault took its contexts, by server.log alone", "warn"),)
    if client.key in view.lost:
        return (Fact("state", f"LOST: a fault took its contexts; the daemon says {client.state}", "bad"),)
    by = ", by its log" if view.daemon is not None and view.daemon.by_logs else ""
    return (Fact("state", f"{client.state}{by}", "warn" if client.state == "TERMINATED" else ""),)


def _state_hit(client: Client, view: View, text: str) -> bool:
    shown = state_mark(client, lost=client.key in view.lost, claimed=client.key in view.claimed)[0][2:]
    words = [client.state.lower(), shown.lower(), *(["outdated"] if client.outdated_limits else ())]
    return any(word.startswith(text) for word in words)


def _gpus_cell(client: Client, view: View, cells: int) -> Line:
    """All of them; ``0-7`` where there is no room for that, and a sign where it says less than all."""
    text, room = gpus_text(client, view.indices), cells - 1
    if len(text) > room and "," in text:
        from mpstui.plan.cpus import cpu_text

        numbers = [view.indices.get(uuid) for uuid in client.device_uuids]
        known = [number for number in numbers if number is not None]
        text = cpu_text(known) if len(known) == len(numbers) else text.replace("GPU-", "")
        text = text if len(text) <= room else f"{text[: room - 1]}…"
    return ((text if len(text) <= room else text.replace("GPU-", "")[:room], "plain"),)


def _memory_cell(client: Client, view: View, cells: int) -> Line:
    """What it uses and of what, and what it used before where there is room: one time stands below the other."""
    line = _memory_text(client, view, cells)
    room = cells - _MEMORY_TEXT - 2
    bars = view.trends.memory(client.key, room) if view.trends is not None else ""
    if not bars:
        return line
    gap = _MEMORY_TEXT + room - len(bars) - sum(len(text) for text, _ in line)
    return (*line, (" " * max(1, gap), "plain"), (bars, "meter-memory"))


def _cpu_cell(client: Client, view: View, cells: int) -> Line:
    text = UNKNOWN if client.cpu_percent is None else LOAD.text(client.cpu_percent)
    bars = view.trends.cpu(client.key, cells - _CPU_TEXT - 2) if view.trends is not None else ""
    return ((f"{bars} ", "meter"), (f"{text:>5}", "plain")) if bars else ((text, "plain"),)


def _memory_text(client: Client, view: View, cells: int) -> Line:
    """What it uses in all, and of what; on several devices how full the fullest is, because a limit is a device's."""
    use = memory_of(client, view.ordinals, view.device)
    total, limit, percent, device, _ = use
    there = f"{gpu_label(view.device, view.indices)}:" if view.device is not None and len(client.gpu_memory) > 1 else ""
    none = total is None or client.memory_limit_known or MEMORY_LIMIT in view.lacks
    room = cells - (2 if _old_memory(client) else 1)
    if cells < _FULL_MEMORY:
        short, style = _short_memory(use, "" if none else f"/{UNKNOWN}")
        return ((_squeezed(there + short.lstrip() if there else short, room), style),)
    text = f"{there + format_size(total):>9}"
    if limit is None:
        return ((text if none else f"{text} / {UNKNOWN}", "plain"),)
    style, mark = ("warn", " ▲") if percent is not None and percent >= NEAR_LIMIT else ("plain", "")
    if device is not None and percent is not None:
        return ((_squeezed(f"{text} GPU{gpu_label(device, view.indices)} {percent:.0f} %{mark}", room), style),)
    return ((_squeezed(f"{text} / {format_size(limit)}{mark}", room), style),)


def _squeezed(text: str, room: int) -> str:
    """The same in fewer cells, as far as it takes: no digit that says something goes, nor a mark."""
    if len(text) > room:
        text = text.lstrip()
    for more, less in ((" ▲", "▲"), (" / ", "/"), (".0G", "G")):
        if len(text) > room:
            text = text.replace(more, less)
    return text


def _short_memory(use: MemoryUse, unknown: str) -> tuple[str, str]:
    """``500M/2.0G``; on several devices of what it may have there together, ``by GPU`` where that has no end on one of
    them, with a mark where one is nearly full; ``unknown`` stands behind where the limit is not known."""
    text = f"{short_size(use.total):>5}"
    if use.limit is None:
        return text + unknown, "plain"
    style, mark = ("warn", "▲") if use.percent is not None and use.percent >= NEAR_LIMIT else ("plain", "")
    of = use.limit if use.device is None else use.limits
    return f"{text}/{'by GPU' if of is None else short_size(of)}{mark}", style


def _threads_cell(client: Client, view: View, cells: int) -> Line:
    share, sms = client.active_thread_percentage, _sms(client, " ")
    if cells < _FULL_THREADS:
        text = _no_share(client) if share is None else share_text(client).replace(" ", "")
        text, sms = f"{text:>5}", _sms(client, "").replace(" ", "")  # 33.3% below 100%
        whole = f"{text} {sms}"
        if len(whole) > cells - _THREADS_GAP and sms.startswith(("≈", "≤")):
            whole = text + sms
        return ((whole if len(whole) <= cells - _THREADS_GAP else text, "plain"),)
    return ((threads_text(_no_share(client) if share is None else share_text(client), sms), "plain"),)


def _share(client: Client) -> float | None:
    """Its percentage, where that is no more than an upper bound None."""
    return None if client.percentage_at_most else client.active_thread_percentage


def _share_or_all(client: Client) -> float | None:
    """The same, and all of the SMs where it is known that nothing limits it."""
    unlimited = client.percentage_known and client.active_thread_percentage is None and client.sm_partition is None
    return 100.0 if unlimited else _share(client)


def _no_share(client: Client) -> str:
    """In the place of a percentage that a client does not have: with a static partition none has an effect."""
    return "none" if client.percentage_known else "" if client.sm_count is not None else UNKNOWN


def _memory_row(client: Client, view: View) -> str:
    return format_size(_used(client, view.device))


def _threads_row(client: Client, view: View) -> str:
    if client.active_thread_percentage is None:
        return _sms(client, "") or _no_share(client)
    return f"{share_text(client)}  {_sms(client, '') or UNKNOWN}"


def _threads_facts(client: Client, view: View) -> Iterable[Fact]:
    by, sms = client.limit_source.get("active_thread_percentage"), _sms(client, " ")
    share = client.active_thread_percentage
    text = _no_share(client) if share is None else share_text(client)
    whose = f"set by {by}" if by else _AT_MOST if client.percentage_at_most else ""
    return (Fact("threads", "  ".join(filter(None, (text, sms, whose)))),)


def _unlimited(client: Client) -> str:
    return "none" if client.memory_limit_known else UNKNOWN


def _memory_limit_facts(client: Client, view: View) -> Iterable[Fact]:
    by = client.limit_source.get("pinned_mem_limits")
    text = f"set by {by}" if by is not None else _AT_MOST if client.pinned_mem_limits else _unlimited(client)
    daemon = view.daemon if client.pinned_mem_limits else None
    if daemon is not None and not daemon.ordinals and (why := daemon.lacking(DEVICE_QUERY)):
        text += f"; on which GPU is not known: {DEVICE_QUERY} is {why}"
    return (Fact("memory limit", text),)


def _outdated_facts(client: Client, view: View) -> Iterable[Fact]:
    """Which, what it keeps, and what it would have now."""
    if client.outdated_limits:
        yield Fact("outdated", f"{OUTDATED} {KEEPS_OLD}:", "warn")
    for old in client.old_limits:
        if old.name == "active_thread_percentage":
            yield Fact(
                "", f"threads: {format_percentage(old.kept)}; started again it gets {format_percentage(old.now)}"
            )
        else:
            kept, now = ("no limit" if size is None else format_size(int(size)) for size in (old.kept, old.now))
            uuid = view.ordinals.get(old.device or "")
            where = f" on GPU {gpu_label(uuid, view.indices)}" if uuid is not None else ""
            yield Fact("", f"memory{where}: {kept}; started again it gets {now}")


def _terminate_facts(client: Client, view: View) -> Iterable[Fact]:
    if not client.terminate_requested:
        return ()
    return (Fact("terminate", "✕ asked for; a second one would block the daemon", "bad"),)


def _here_facts(client: Client, view: View) -> Iterable[Fact]:
    if client.pid_here is not None:
        yield Fact("PID here", f"{client.pid_here}, as /proc has it; the daemon calls it {client.pid}")


def _in(kind: Kind) -> Callable[[Client, View], str | None]:
    """The name of what the client is in."""
    return lambda client, view: None if client.where is None else client.where.name(kind)


def _is_in(kind: Kind) -> Callable[[Client, View, str], bool]:
    return lambda client, view, text: client.where is not None and client.where.matches(kind, text)


def _command_cell(client: Client, view: View, cells: int) -> Line:
    box, own = client.container, view.own.get(client.key)
    where: Line = ((f"[{box if len(box) <= 20 else box[:19].rstrip() + '…'}] ", "label"),) if box else ()
    mine: Line = ((f"◆ load {own} ", "accent"),) if own is not None else ()
    return (*mine, *where, (client.command or UNKNOWN, "plain"))


def _launches(client: Client) -> float | None:
    return client.activity.launches_per_second if client.activity is not None else None


def _idle_memory(client: Client, view: View) -> int | None:
    found = client.activity
    if found is None or found.launches_per_second is None:
        return None
    idle = found.idle_since is not None and view.snapshot.time - found.idle_since >= _IDLE
    return _used(client) if idle else 0


_WHOLE_RATE: Final = 16
"""Cells from which the rate of launches is written out."""


def _launch_text(rate: float | None, cells: int) -> str:
    """With the same width for every rate: the figure, or below that many cells ``13.7k``."""
    return f"{rate_text(rate):>8}" if cells >= _WHOLE_RATE else f"{short_rate(rate):>5}"


def _launch_cell(client: Client, view: View, cells: int) -> Line:
    rate = _launches(client)
    text = _launch_text(rate, cells)
    most = view.trends.most_launches if view.trends is not None else 0.0
    bars = sparkline(client.activity.rates, cells - len(text) - 2, most) if client.activity is not None else ""
    return ((f"{text} ", "plain" if rate else "dim"), (bars, "meter"))


def _activity_facts(client: Client, view: View) -> Iterable[Fact]:
    found = client.activity
    if found is None:
        if view.snapshot.watches_activity:
            yield Fact("launches/s", f"{UNKNOWN}  {'not looked at yet' if client.local else ELSEWHERE}", "dim")
        return
    if found.launches_per_second is None:
        yield Fact("launches/s", f"{UNKNOWN}  {found.why}", "dim")
        return
    bars = sparkline(found.rates, len(found.rates))
    yield Fact("launches/s", f"{rate_text(found.launches_per_second)}  {bars}".rstrip())
    if found.idle_since is not None:
        text = when(found.idle_since, view)
        text += "" if found.seen_launching else ", when it was first watched"
        if found.watched is not None and found.watched < FULLY_WATCHED:
            text += f"; watched for {found.watched:.0%} of that time"
        yield Fact("idle since", text)


def _used(client: Client, device: str | None = None) -> int | None:
    """Memory, of that device alone where one is named."""
    used = on_device(client.gpu_memory, device)
    return sum(used.values()) if used else None


def _group_used(group: Group) -> tuple[float | None, bool]:
    return _added(lambda client: _used(client, group.device))(group)


def _total_memory(group: Group, value: float, cells: int) -> str:
    """With the sum of their limits, where each has one on each of its devices."""
    limits = group.limits
    limit = sum(limits.values()) if limits and not group.unlimited else None
    if cells < _FULL_MEMORY:
        return f"{short_size(int(value)):>5}" + (f"/{short_size(limit)}" if limit is not None else "")
    return f"{format_size(int(value)):>9}" + (f" / {format_size(limit)}" if limit is not None else "")


def _total_threads(group: Group, value: float, cells: int) -> str:
    return f"{value:g}%".rjust(5) if cells < _FULL_THREADS else f"{value:g} %".rjust(5)


CONTEXT: Final[Thing[Context]] = Thing(
    "context",
    "A CUDA context of a client.",
    (
        Field("id", "id", INTEGER, lambda c, v: c.id),
        Field("device_uuid", "device", TEXT, lambda c, v: c.device_uuid, null=True),
    ),
)


CLIENT: Final[Thing[Client]] = Thing(
    "client",
    "A process that computes through a server.",
    (
        Field(
            "pid", "PID", INTEGER, lambda c, v: c.pid,
            about="Its process ID. Where pid_proved is false: the daemon's number for it, and no process here.",
            column=Column(10, 8, 99, style="bold"), row=Text(10, "PID"), detail=Detail("process", 20), searched=True,
        ),
        Field(
            "id", "id", INTEGER, lambda c, v: c.id, null=True, about="The running number that ps prints.",
            detail=Detail("mps", 30, "number in ps"), command="ps",
        ),
        Field(
            "start_time", "started", TIME, lambda c, v: c.start_time, null=True,
            about="When its process was started.",
            column=Column(100, 6, 30, "AGE", cell=age_cell, align=">", falling=True),
            row=Text(80, "AGE", lambda c, v: v.age(c.start_time)),
            detail=Detail("process", 40, facts=partial(started, "started")), word="age",
        ),
        Field(
            "user", "user", TEXT, lambda c, v: c.user, null=True,
            about="Whose process it is.",
            column=Column(20, 11, 90, cell=user_cell, narrow=9), row=Text(20, "USER", user_text),
            detail=Detail("process", 30, facts=who),
            matches=lambda c, v, t: t in (c.user or "").lower() or t == str(c.uid), searched=True,
        ),
        Field("uid", "UID", INTEGER, lambda c, v: c.uid, null=True, about="That user's number."),
        Field(
            "command", "command", TEXT, lambda c, v: c.command, null=True,
            about="Its arguments, printable; a client chooses them itself.",
            column=Column(110, 24, 85, short="CMD", narrow=15, comfort=33, cell=_command_cell), row=Text(90, "COMMAND"),
            detail=Detail("process", 10, style="bold"), word="cmd", searched=True,
        ),
        Field(
            "pid_namespace", "PID namespace", INTEGER, lambda c, v: c.pid_namespace, null=True,
            about="The inode of its PID namespace.", detail=Detail("process", 60),
        ),
        Field(
            "pid_proved", "PID proved", FLAG, lambda c, v: c.local,
            about="Whether its number is proved to be a PID of this PID namespace. Where not, nothing here may be "
            "signalled for it.",
        ),
        Field(
            "pid_here", "PID here", INTEGER, lambda c, v: c.pid_here, null=True,
            about="Its PID in this PID namespace, if the daemon has another number for it. /proc has both numbers; "
            "mpstui sends no signal to this PID.",
            detail=Detail("process", 25, facts=_here_facts),
        ),
        Field(
            "container", "container", TEXT, lambda c, v: c.container, null=True, detail=Detail("process", 50),
            about="The container that it runs in.",
            matches=lambda c, v, t: t in (c.container or "").lower() or _is_in("container")(c, v, t), searched=True,
        ),
        Field(
            "where", "where", TEXT, lambda c, v: (c.where.text() or None) if c.where else None, null=True,
            about="Its batch job, pod, container or systemd unit, by its cgroups. Where its user or a container may "
            "have made the name up, it begins with “claims”.",
            column=Column(105, 22, 5, "WHERE", narrow=12),
            detail=Detail("process", 55, facts=where_facts), searched=True,
        ),
        Field(
            "pod", "pod", TEXT, _in("pod"), null=True, matches=_is_in("pod"),
            about="Its pod: NAMESPACE/NAME, or “pod UID”.",
        ),
        Field(
            "pod_uid", "pod UID", TEXT, lambda c, v: c.where and c.where.pod_uid, null=True,
            about="The UID of its pod, as the cgroup has it.",
        ),
        Field(
            "pod_namespace", "pod's namespace", TEXT, lambda c, v: c.where and c.where.namespace, null=True,
            about="The namespace of its pod in Kubernetes.",
        ),
        Field(
            "pod_name", "pod's name", TEXT, lambda c, v: c.where and c.where.pod, null=True,
            about="The name of its pod, without the namespace.",
        ),
        Field(
            "container_name", "container's name", TEXT, lambda c, v: c.where and c.where.container_name, null=True,
            about="The name of its container within the pod.",
        ),
        Field(
            "container_id", "container's id", TEXT, lambda c, v: c.where and c.where.container_id, null=True,
            about="The ID of its container, as the cgroup has it.",
        ),
        Field(
            "job", "job", TEXT, _in("job"), null=True, matches=_is_in("job"),
            about="Its batch job: slurm:123, pbs:4711.server, torque:4711.server.",
        ),
        Field(
            "job_step", "job step", TEXT, lambda c, v: c.where and c.where.step, null=True,
            about="The step of its batch job.",
        ),
        Field(
            "unit", "systemd unit", TEXT, _in("unit"), null=True, about="The systemd unit that it belongs to.",
            matches=_is_in("unit"),
        ),
        Field(
            "claimed", "claimed", TEXTS, lambda c, v: sorted(c.where.claimed) if c.where else [],
            about="Which of pod, container, job, unit its user or a container may have made up.",
        ),
        Field(
            "state", "state", enum(ClientState), lambda c, v: c.state,
            about="ACTIVE: it has a context, at work or not. LAUNCHES and NO LAUNCH on the screen, where these are "
            "counted. INACTIVE: connected without a context. TERMINATED: its contexts were ended, its process lives.",
            column=Column(50, 13, 95, cell=_state_cell, gap=0), row=Text(50, "STATE", _state_row),
            detail=Detail("mps", 10, facts=_state_facts), matches=_state_hit, searched=True,
            metric=Metric(
                "clients",
                "Clients by state; LOST: a fault took the contexts, as server.log says, confirmed or not.",
                _client_word,
                (*get_args(ClientState), "LOST"), lambda c, v: () if _lost(c, v) is not None else ("LOST",),
            ),
        ),
        Field(
            "lost", "lost", FLAG, _lost, null=True,
            about="Whether a fault took its contexts, which state does not say. null: not known, because server.log "
            "alone says so, LOST? on the screen, or the logs are not read.",
        ),
        Field(
            "contexts", "contexts", OBJECTS, lambda c, v: c.contexts, of=CONTEXT,
            detail=Detail(
                "contexts", 10,
                facts=lambda c, v: [Fact(str(each.id), gpu_name(v, each.device_uuid)) for each in c.contexts],
            ),
        ),
        Field(
            "gpu_memory", "GPU memory", SIZES, lambda c, v: on_device(c.gpu_memory, v.device),
            about="The device memory that it uses (GPU0 13 %: on several GPUs, how full the fullest is); "
            "in JSON by the UUID of the device.",
            column=Column(
                60, _MEMORY_TEXT, 80, "GPU MEM / LIMIT", "MEM/LIMIT", _memory_cell, falling=True,
                roomy=_MEMORY_TEXT + 12, narrow=13, mark=_old_memory, legend=OUTDATED_LEGEND,
                total=Total(_group_used, _total_memory),
            ),
            row=Text(60, "GPU MEM", _memory_row),
            detail=Detail(
                "memory", 10,
                facts=lambda c, v: memory_facts(v, c.pinned_mem_limits, c.gpu_memory, _unlimited(c)),
            ),
            word="mem",
            metric=Metric("client_memory_used_bytes", "Device memory of clients, as NVML counts it."),
        ),
        Field(
            "active_thread_percentage", "threads", SHARE, lambda c, v: _share(c), null=True,
            about="The share of the SMs that it may use; in JSON null where its own setting is not known.",
            column=Column(
                70, 18, 60, falling=True,
                cell=_threads_cell, narrow=13, gap=_THREADS_GAP, mark=_old_threads,
                legend=OUTDATED_LEGEND, total=Total(_added(_share), _total_threads),
            ),
            row=Text(70, "THREADS", _threads_row), detail=Detail("mps", 40, facts=_threads_facts), word="threads",
            metric=Metric(
                "client_active_thread_ratio", "Shares of the SMs, added up: over 1 they share SMs.",
                lambda c, v: _share_or_all(c),
            ),
        ),
        Field(
            "namespace", "namespace", TEXT, lambda c, v: c.namespace, null=True,
            about="The namespace of its server that it connected to, of a daemon of MPS protocol 3.",
            detail=Detail(
                "mps", 44, facts=lambda c, v: (Fact("namespace", c.namespace),) if c.namespace is not None else ()
            ),
            searched=True,
        ),
        Field(
            "sm_partition", "SM partition", TEXT, lambda c, v: c.sm_partition, null=True,
            about="The static partition that its own environment names, of a daemon that has such: a claim.",
            detail=Detail(
                "mps", 45,
                facts=lambda c, v: (Fact("SM partition", c.sm_partition),) if c.sm_partition is not None else (),
            ),
            searched=True,
        ),
        Field(
            "sm_count", "SMs", INTEGER, lambda c, v: None if c.percentage_at_most else c.sm_count, null=True,
            about="What that share comes to, or its static partition has.",
            metric=Metric("client_sms", "SMs that clients may use, added up."),
        ),
        Field(
            "sm_count_estimated", "SMs estimated", FLAG, lambda c, v: c.sm_count_estimated,
            about="Whether the rounding of this kind of device has not been measured.",
        ),
        Field(
            "pinned_mem_limits", "memory limits", SIZES, lambda c, v: c.pinned_mem_limits,
            about="Its memory limits, by the server's device ordinal.",
            detail=Detail("mps", 60, facts=_memory_limit_facts), command=MEMORY_LIMIT,
            metric=Metric(
                "client_memory_limit_bytes", "Limits of device memory, added up.",
                lambda c, v: c.pinned_mem_limits if c.memory_limit_known else None,
            ),
        ),
        Field(
            "client_priority", "priority", INTEGER, lambda c, v: c.client_priority, null=True,
            about=f"{PRIORITY_WORDS}.",
            column=Column(
                80, 13, 10, "PRIO", cell=lambda c, v, n: priority_cell(c.client_priority, n - 1), narrow=7,
                when=lambda v: not (v.daemon and v.daemon.lacking(DEFAULT_PRIORITY)),
            ),
            matches=lambda c, v, t: t == str(c.client_priority) or priority_word(c.client_priority).startswith(t),
            detail=Detail("mps", 50, facts=lambda c, v: (Fact("priority", priority(c.client_priority)),)), word="prio",
            command=DEFAULT_PRIORITY,
        ),
        Field(
            "limit_source", "limits set by", WORDS, lambda c, v: c.limit_source,
            about="The name of a limit to where it came from: server, client, default.",
        ),
        Field(
            "outdated_limits", "outdated limits", FLAG, lambda c, v: c.outdated_limits,
            about="Whether it connected before the server's present limits were set, and so keeps the old ones.",
            detail=Detail("mps", 70, facts=_outdated_facts), word="old",
            metric=Metric("clients_outdated", "Clients that connected before the present limits and keep older ones."),
        ),
        Field(
            "old_limits", "old limits", TEXTS, lambda c, v: sorted({old.name for old in c.old_limits}),
            about="The outdated limits that it keeps: active_thread_percentage, pinned_mem_limits. A memory limit "
            "counts only for devices that the client is on.",
        ),
        Field(
            "server_pid", "server", INTEGER, lambda c, v: c.server_pid, null=True,
            about="The server it computes through.",
            column=Column(30, 8, 20, style="dim"), row=Text(30, "SERVER"), detail=Detail("mps", 20), word="server",
        ),
        Field(
            "device_uuids", "GPU", TEXTS, lambda c, v: sorted(c.device_uuids),
            about="Every device that it is known to be on, by context or by memory.",
            column=Column(40, 5, 70, cell=_gpus_cell),
            row=Text(40, "GPU", lambda c, v: gpus_text(c, v.indices)), word="gpu",
            matches=lambda c, v, t: t in gpus_text(c, v.indices).lower().split(","),
        ),
        Field(
            "cpu_percent", "CPU", LOAD, lambda c, v: c.cpu_percent, null=True,
            about="Its CPU use; 100 % is one core.",
            column=Column(
                90, _CPU_TEXT, 40, align=">", falling=True, cell=_cpu_cell, roomy=_CPU_TEXT + 12,
                total=Total(_added(lambda c: c.cpu_percent), lambda g, value, cells: LOAD.text(value)),
            ),
            detail=Detail("process", 70), word="cpu",
            metric=Metric(
                "client_cpu_ratio", "CPU use of clients; 1 is one core. A client that launches kernels uses some CPU."
            ),
        ),
        Field(
            "terminate_requested", "terminate requested", FLAG, lambda c, v: c.terminate_requested,
            about="Whether anybody has sent terminate_client for this process: a second one would block the daemon.",
            detail=Detail("mps", 80, facts=_terminate_facts),
        ),
        Field(
            "launches_per_second", "launches/s", NUMBER, lambda c, v: _launches(c), null=True,
            about="Only with --activity: kernel launches a second, counted from outside; a graph counts once. "
            "Launches are not SM time. null: not counted.",
            column=Column(
                95, 18, 82, "LAUNCH/s", cell=_launch_cell, narrow=13, falling=True,
                when=lambda v: v.snapshot.watches_activity,
                total=Total(_added(_launches), lambda g, value, cells: _launch_text(value, cells)),
            ),
            detail=Detail("activity", 10, facts=_activity_facts), word="launch",
            metric=Metric("client_launches_per_second", "Kernel launches a second, where watched; no SM time."),
        ),
        Field(
            "idle_since", "idle since", TIME, lambda c, v: c.activity.idle_since if c.activity else None, null=True,
            metric=Metric(
                "client_idle_memory_used_bytes",
                "Device memory of clients that have launched nothing for 10 minutes, where launches are watched.",
                _idle_memory,
            ),
            about="The end of the last window in which it was seen to launch, or when watching it began. null: it "
            "launches, or is not counted.",
        ),
        Field(
            "not_counted", "not counted", TEXT, lambda c, v: (c.activity.why or None) if c.activity else None,
            null=True, about="Why its launches are not counted.",
        ),
    ),
    {
        "process": heading("Process"),
        "mps": heading("MPS"),
        "memory": heading("GPU memory, used of the limit"),
        "activity": heading("Activity: kernel launches, which are not SM time"),
        "contexts": lambda c, v: f"Contexts: {len(c.contexts)}",
    },
)  # fmt: skip


# Clients that belong together: to a job, a pod, a unit, a user, a GPU, a server.


class Group(NamedTuple):
    """The clients of one daemon that belong to the same job, pod, container, unit, user or server, or are on the same
    GPUs."""

    by: str
    """One of ``GROUPS``."""
    name: str | None
    """None: those that belong to none."""
    clients: tuple[Client, ...]
    ordinals: Mapping[str, str]
    """The daemon's device ordinal to UUID."""
    device: str | None = None
    """The one that memory and limits are told of, where that is not all of them."""
    others: bool = False
    """Of GPUs: whether others are on one of these as well, in a group with another GPU."""

    @property
    def title(self) -> str:
        """``user alice``, ``GPU 0 only``, ``GPU 0 and 1``, ``in no job``."""
        if self.name is None and self.by in KINDS:
            return f"in no {self.by}"
        return f"{'GPU' if self.by == 'gpu' else self.by} {self.words}"

    @property
    def words(self) -> str:
        """Its name; of GPUs in words, so that nobody takes what those have who are on them alone for all of it."""
        name = self.name or UNKNOWN
        if self.by != "gpu":
            return name
        first, _, last = name.rpartition(",")
        return f"{first} and {last}" if first else f"{name} only" if self.others else name

    @property
    def order(self) -> tuple[bool, list[tuple[int, str]]]:
        """By name, numbers in names by their value; the nameless last."""
        parts = re.findall(r"\d+|\D+", self.name or "")
        return self.name is None, [(int(part), "") if part.isdecimal() else (-1, part.lower()) for part in parts]

    @property
    def memory(self) -> Mapping[str, int]:
        """Bytes used, by device."""
        found: dict[str, int] = {}
        for client in self.clients:
            for uuid, size in on_device(client.gpu_memory, self.device).items():
                found[uuid] = found.get(uuid, 0) + size
        return found

    @property
    def limits(self) -> Mapping[str, int] | None:
        """Bytes that they may use together, by device, of every device that one of them is on and on which each of
        those has a limit; None where the limits of one of them are not known."""
        devices = self.ordinals
        sums: dict[str, int] = {}
        endless: set[str] = set()
        for client in self.clients:
            limits = {devices.get(ordinal, ordinal): size for ordinal, size in client.pinned_mem_limits.items()}
            for uuid in client.device_uuids:
                if self.device not in {None, uuid}:
                    continue
                if uuid in limits:
                    sums[uuid] = sums.get(uuid, 0) + limits[uuid]
                elif not client.memory_limit_known:
                    return None
                else:
                    endless.add(uuid)
        return {uuid: size for uuid, size in sums.items() if uuid not in endless}

    @property
    def unlimited(self) -> int:
        """Clients that have no limit on some device of theirs, as far as that is known."""
        devices = {uuid: ordinal for ordinal, uuid in self.ordinals.items()}
        return sum(
            client.memory_limit_known
            and any(
                devices.get(uuid) not in client.pinned_mem_limits
                for uuid in client.device_uuids
                if self.device in {None, uuid}
            )
            for client in self.clients
        )

    @property
    def threads(self) -> float | None:
        """The sum of their percentages; None where one is not known."""
        shares = [_share(client) for client in self.clients]
        return None if None in shares else sum(share for share in shares if share is not None)


GROUPS: Final[Mapping[str, Callable[[Client, View], str | None]]] = {
    "pod": _in("pod"),
    "job": _in("job"),
    "unit": _in("unit"),
    "container": lambda client, view: client.where.name("container") if client.where else client.container,
    "user": lambda client, view: client.user or (None if client.uid is None else str(client.uid)),
    "gpu": lambda client, view: gpus_text(client, view.indices) if client.device_uuids else None,
    "server": lambda client, view: None if client.server_pid is None else str(client.server_pid),
}
"""What clients are grouped by, and the name of a client's group. One that is on several GPUs is in a group of its own
with those that are on the same ones: no byte is counted twice."""


def groups_of(clients: Iterable[Client], by: str, view: View) -> list[Group]:
    """Clients by ``GROUPS``, in the order in which they come; a group stands where its first one does. Those that are
    clients by nobody's known word are in groups apart."""
    found: dict[str | None, list[Client]] = {}
    name, ordinals = GROUPS[by], view.daemon.ordinals if view.daemon is not None else EMPTY
    clients = tuple(clients)
    called = _called(clients) if by == "container" else EMPTY
    claimed = view.daemon.claimed(os.geteuid()) if view.daemon is not None else EMPTY
    for client in clients:
        own = name(client, view)
        own = called.get(own or "", own)
        if client.key in claimed and not (own or "").startswith(CLAIMS):
            own = f"{CLAIMS}{own or UNKNOWN}"
        found.setdefault(own, []).append(client)
    apart = [_gpus_in(name) for name in found if name is not None] if by == "gpu" else []
    return [
        Group(by, name, tuple(clients), ordinals, view.device, name is not None and _others(name, apart))
        for name, clients in found.items()
    ]


def _called(clients: Iterable[Client]) -> Mapping[str, str]:
    """The names that the kubelet has for containers, by the ID that a group is called by otherwise. One container is
    one group where only some of its clients know the name; two of one name, one of them started again, are two."""
    wheres = [client.where for client in clients if client.where is not None]
    pairs = {(each.name("container") or "", *each.inner("pod")) for each in wheres if not each.claimed}
    told = [(pair[0], pair[1]) for pair in pairs if len(pair) == 2 and pair[0]]
    names = [name for _, name in told]
    return {own: name for own, name in told if names.count(name) == 1}


def _gpus_in(name: str) -> set[str]:
    """The GPUs that the name of a group is made of."""
    return set(name.removeprefix(CLAIMS).split(","))


def _others(name: str, apart: Iterable[set[str]]) -> bool:
    """Whether another group has one of these GPUs too."""
    own = _gpus_in(name)
    return any(own & each and own != each for each in apart)


def grouped(daemon: Daemon, by: str, view: View) -> list[Group]:
    """The clients of a daemon, by ``GROUPS``: the group that uses most memory first, and last those in none."""
    return sorted(
        groups_of(daemon.clients(), by, replace(view, daemon=daemon)),
        key=lambda each: (each.name is None, -sum(each.memory.values()), each.name or ""),
    )


def _by_gpu(sizes: Mapping[str, int], view: View) -> str:
    return "  ".join(f"GPU{gpu_label(uuid, view.indices)} {format_size(size)}" for uuid, size in sorted(sizes.items()))


def _group_limits(group: Group, view: View) -> str:
    limits = group.limits
    if limits is None:
        return UNKNOWN
    parts = [_by_gpu(limits, view)] if limits else []
    if group.unlimited:
        parts.append("none" if group.unlimited == len(group.clients) else f"{group.unlimited} without a limit")
    return ", ".join(parts) or UNKNOWN


GROUP: Final[Thing[Group]] = Thing(
    "group",
    "Clients of one daemon that belong together.",
    (
        Field(
            "name", "name", TEXT, lambda g, v: g.name, null=True,
            about="Name of the group: the job, pod, unit, container or user; the PID of the server; or the indices of "
            "the GPUs, 0,1. null: clients that belong to none. “claims NAME”: the user or a container may have made up "
            "this name, a user's daemon names a process that it cannot have, or the daemon's owner is not known; it is "
            "a separate group from NAME.",
            row=Text(10, "GROUP", lambda g, v: UNKNOWN if g.name is None else g.words),
        ),
        Field(
            "pids", "clients", INTEGERS, lambda g, v: sorted(client.pid for client in g.clients),
            row=Text(20, "CLIENTS", lambda g, v: str(len(g.clients))),
        ),
        Field(
            "users", "users", TEXTS,
            lambda g, v: sorted({client.user for client in g.clients if client.user}), row=Text(30, "USERS"),
        ),
        Field(
            "gpu_memory", "GPU memory", SIZES, lambda g, v: g.memory, about="Used, by the UUID of the device.",
            row=Text(40, "GPU MEM", lambda g, v: _by_gpu(g.memory, v) or UNKNOWN),
        ),
        Field(
            "pinned_mem_limits", "memory limits", SIZES, lambda g, v: g.limits, null=True,
            about="The sum of their limits, by the UUID of each device on which every one of them has a limit. null: "
            "the limits of one of them are not known.",
            row=Text(50, "LIMITS", _group_limits),
        ),
        Field(
            "without_limit", "without a limit", INTEGER, lambda g, v: g.unlimited,
            about="Clients that have no limit on some device of theirs.",
        ),
        Field(
            "active_thread_percentage", "threads", SHARE, lambda g, v: g.threads, null=True,
            about="The sum of their shares of the SMs, which may be more than 100.", row=Text(60, "THREADS"),
        ),
    ),
)  # fmt: skip


class GroupedDaemon(NamedTuple):
    """A daemon, and what its clients are grouped by."""

    daemon: Daemon
    by: str


GROUPED: Final[Thing[GroupedDaemon]] = Thing(
    "grouped",
    "A daemon's clients in groups.",
    (
        Field("pipe_dir", "pipe directory", PATH, lambda d, v: d.daemon.pipe_dir),
        Field("groups", "groups", OBJECTS, lambda d, v: grouped(d.daemon, d.by, v), of=GROUP),
    ),
)


class GroupedNode(NamedTuple):
    """A snapshot, and what its clients are grouped by."""

    snapshot: Snapshot
    by: str


GROUPED_NODE: Final[Thing[GroupedNode]] = Thing(
    "groups",
    "mpstui status --group-by NAME --json: the clients of each daemon in groups, with what they use and may use.",
    (
        Field("schema", "schema", Type({"const": SCHEMA}), lambda n, v: SCHEMA),
        Field("time", "time", TIME, lambda n, v: n.snapshot.moment, null=True),
        Field("source", "source", enum(Source), lambda n, v: n.snapshot.source),
        Field("by", "by", Type({"enum": list(GROUPS)}), lambda n, v: n.by),
        Field(
            "daemons", "daemons", OBJECTS, lambda n, v: [GroupedDaemon(d, n.by) for d in n.snapshot.daemons],
            of=GROUPED,
        ),
    ),
)  # fmt: skip


# A look at who launches kernels.


def _rate_cell(launcher: Launcher, view: View, cells: int) -> Line:
    return ((rate_text(launcher.per_second), "text" if launcher.launches else "dim"),)


def _of_all_cell(launcher: Launcher, view: View, cells: int) -> Line:
    share = UNKNOWN if launcher.share is None else share_of_all(launcher.share)
    return ((f"{share:>6} ", "text" if launcher.launches else "dim"), *meter(launcher.share, cells - 8))


OF_ALL: Final = Type({"type": "number"}, share_of_all, lambda value: round(value, 1), unit="percent")


def _launcher_cell(launcher: Launcher, view: View, cells: int) -> Line:
    command = (launcher.command or UNKNOWN, "text" if launcher.command else "dim")
    return (command,) if launcher.pipe_dir is not None else (("▲ no MPS  ", "bad"), command)


LAUNCHER: Final[Thing[Launcher]] = Thing(
    "launcher",
    "A client, or a process that computes without MPS, and the kernels that it launched during a look.",
    (
        Field(
            "pid", "PID", INTEGER, lambda a, v: a.pid, row=Text(10, "PID"), column=Column(10, 9, 100, style="bold"),
        ),
        Field("uid", "UID", INTEGER, lambda a, v: a.uid, null=True),
        Field(
            "user", "user", TEXT, lambda a, v: a.user, null=True, row=Text(20, "USER", user_text),
            column=Column(20, 11, 60, cell=lambda a, v, cells: ((owner(a.user, a.uid), "user"),)),
        ),
        Field("mps", "MPS", FLAG, lambda a, v: a.pipe_dir is not None, about="Whether it is a client of MPS.",
              row=Text(30, "MPS")),
        Field("daemon", "daemon", PATH, lambda a, v: a.pipe_dir, null=True, about="Its pipe directory."),
        Field("server_pid", "server", INTEGER, lambda a, v: a.server_pid, null=True),
        Field(
            "launches_per_second", "launches/s", NUMBER, lambda a, v: a.per_second, null=True,
            about="A graph counts once. Launches are not SM time. null: not counted.",
            row=Text(40, "LAUNCH/s", lambda a, v: rate_text(a.per_second)),
            column=Column(30, 10, 90, "LAUNCH/s", cell=_rate_cell, align=">"),
        ),
        Field("launches", "launches", INTEGER, lambda a, v: a.launches, null=True, about="During the look."),
        Field(
            "share", "share", OF_ALL, lambda a, v: a.share, null=True,
            about="Percent of all launches that were counted, rounded to a tenth: they need not add up to 100.",
            row=Text(50, "OF ALL"), column=Column(40, 14, 50, "OF ALL", cell=_of_all_cell),
        ),
        Field("gpu_memory", "GPU memory", SIZE, lambda a, v: a.gpu_memory, null=True, row=Text(60, "GPU MEM")),
        Field(
            "device_uuids", "devices", TEXTS, lambda a, v: a.devices or None, null=True,
            about="That it has a context on; null: nobody tells. Launches are those on all of them together.",
        ),
        Field(
            "gpu_memory_by_device", "memory by device", SIZES, lambda a, v: a.memory_by_device, null=True,
            about="By UUID; null: not told apart.",
        ),
        Field("container", "container", TEXT, lambda a, v: a.container, null=True),
        Field("not_counted", "not counted", TEXT, lambda a, v: a.why or None, null=True, about="Why not."),
        Field(
            "command", "command", TEXT, lambda a, v: a.command, null=True, row=Text(70, "COMMAND"),
            column=Column(50, 10, 80, cell=_launcher_cell),
        ),
    ),
)  # fmt: skip


ACTIVITY: Final[Thing[ActivityLook]] = Thing(
    "activity",
    "One look at who launches kernels; who launched most comes first.",
    (
        Field("schema", "schema", Type({"const": SCHEMA}), lambda a, v: SCHEMA),
        Field("time", "time", TIME, lambda a, v: a.time),
        Field("source", "source", enum(Source), lambda a, v: a.source),
        Field("seconds", "seconds", SECONDS, lambda a, v: round(a.seconds, 3), about="How long was counted."),
        Field("how", "how", TEXT, lambda a, v: a.how or None, null=True, about="What counted, in words."),
        Field("processes", "processes", OBJECTS, lambda a, v: a.launchers, of=LAUNCHER),
        Field("text", "text", TEXT, lambda a, v: a.sentence),
    ),
)
