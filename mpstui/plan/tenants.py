"""Shares proposed from looks at who launches kernels, recorded over a time: what they are based on, and where they say
too little. Pure but for :func:`looks_of_file`; raises PlanError.

Launches are not SM time: a proposal is a beginning that a measurement (``plan --measure``) or the owners correct.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from fractions import Fraction
from pathlib import Path
from typing import Any, BinaryIO, Final, Literal, NamedTuple

from mpstui.core.late import dataclass, pattern
from mpstui.core.text import UNKNOWN, error_text, owner, path_text, plural, printable
from mpstui.plan.amounts import PlanError
from mpstui.system.trusted import NotTrustedError, open_given

By = Literal["container", "user", "command", "process"]
BYS: Final[tuple[By, ...]] = ("container", "user", "command", "process")
LEAST_LOOKS: Final = 5
LEAST_SECONDS: Final = 30.0
"""Fewer looks, or a shorter time from the first to the last, say nothing of a tenant."""
LEAST_BUSY: Final = 3
"""Looks in which a tenant launched something."""
MARGIN: Final = Fraction(5, 4)
"""Of the memory that was seen at most: the next batch may be larger."""
_STEP: Final = 256 << 20
MOST_LINE: Final = 1 << 22
"""Bytes of one look."""
_MOST_LOOKS: Final = 200_000
_LATEST: Final = 2.5e11
"""Seconds since the epoch; the years 1 and 9999 are none in some time zones."""
_LEAST_LOOK: Final = 0.01
_LONGEST_LOOK: Final = 86400.0
"""Seconds of one look; beyond these a rate is no number to divide by, or comes to nothing."""
_NOT_IN_NAMES: Final = pattern(r"[^A-Za-z0-9._-]+")
NO_LOOK: Final = "it has no sample: record some with mpstui activity --json >> FILE"
_REMEDY: Final = "it must be one line of mpstui activity --json"


class Counted(NamedTuple):
    """A client in one look."""

    pid: int
    daemon: str
    user: str | None
    container: str | None
    command: str | None
    gpu_memory: int | None
    launches: int | None
    """None: it was not counted."""
    devices: tuple[str, ...] = ()
    """UUIDs; none where the look does not tell."""
    memory_by_device: Mapping[str, int] | None = None


class Look(NamedTuple):
    """One look at all processes."""

    time: float
    seconds: float
    simulated: bool
    clients: tuple[Counted, ...]
    outside: int
    """Processes that compute without MPS: a share would not reach them."""


@dataclass(frozen=True, slots=True)
class Tenant:
    """Those who get one share together, or each the same one."""

    name: str
    """Of the share: letters, digits, ``.``, ``_`` and ``-``."""
    what: str
    """The user, container, command or process as recorded; printable."""
    clients: int
    """At the same time, at most."""
    looks: int
    """In which it was there and all of it was counted."""
    missed: int
    """In which it was there and not, or not all of it, was counted: they are in no rate."""
    busy: int
    """Of the looks in which it was counted: in which it launched something."""
    rate_median: float | None
    """Launches a second over all looks but those missed, those without it as 0; None where it never was counted."""
    rate_max: float | None
    memory_median: int | None
    memory_max: int | None
    """Bytes, of all of them together; None where it was not told."""
    largest: int | None
    """Bytes of the one of them that had most."""
    too_little: str = ""
    """Why no share is proposed."""

    @property
    def memory(self) -> int | None:
        """The limit that is proposed for each of them: what the largest was seen with, and a quarter more."""
        return math.ceil(self.largest * MARGIN / _STEP) * _STEP if self.largest else None


class TenantShare(NamedTuple):
    """What one client of a tenant is to get."""

    name: str
    weight: Fraction
    memory: int | None


@dataclass(frozen=True, slots=True)
class Proposal:
    """What the looks say."""

    by: By
    looks: int
    counted: float
    """Seconds in which launches were counted."""
    first: float
    last: float
    simulated: bool
    tenants: tuple[Tenant, ...]
    """Who launched most comes first."""
    not_counted: int
    """Clients that could not be counted, in the look that had most of them."""
    outside: int
    daemons: int
    too_little: str = ""
    """Why nothing at all is proposed."""
    device: str | None = None
    """Whose clients these are: a UUID; None where no look tells on which device a client was."""
    elsewhere: int = 0
    """Clients on other devices alone, and clients whose device is not told, that are left out, in one look."""
    several: int = 0
    """Clients on this device and on others, in one look."""

    @property
    def span(self) -> float:
        """Seconds from the first look to the end of the last."""
        return self.last - self.first

    @property
    def proposed(self) -> tuple[Tenant, ...]:
        """Those who get a share."""
        return () if self.too_little else tuple(tenant for tenant in self.tenants if not tenant.too_little)

    @property
    def shares(self) -> tuple[TenantShare, ...]:
        """One for each client of those who get some: a share is one client's, and a tenant's clients divide theirs.

        By the median of launches a second; by half of the most where the median is 0.
        """
        found = []
        for tenant in self.proposed:
            rate = tenant.rate_median or (tenant.rate_max or 0.0) / 2
            weight = Fraction(rate).limit_denominator(10**6) / tenant.clients
            names = (
                [f"{tenant.name}-{n}" for n in range(1, tenant.clients + 1)] if tenant.clients > 1 else [tenant.name]
            )
            found += [TenantShare(name, weight, tenant.memory) for name in names]
        return tuple(found)

    @property
    def notes(self) -> tuple[str, ...]:
        """What has to be known of it, a sentence each."""
        found = ["Launches are not SM time: a tenant with few long kernels gets less here than it needs."]
        if self.device is None and self.tenants:
            found.append(
                "The samples do not say which GPU a client used: mpstui assumes that all used the GPU to divide."
            )
        if self.elsewhere:
            found.append(f"{plural(self.elsewhere, 'client')} on other GPUs, or on one that is not known, left out.")
        if self.several:
            found.append(f"{plural(self.several, 'client')} worked on several GPUs: launches are those on all of them.")
        if never := [tenant.what for tenant in self.tenants if not tenant.looks]:
            found.append(f"Never counted, and so left without a share: {_some(never)}.")
        if missed := [
            f"{tenant.what} was counted in {tenant.looks} of {tenant.looks + tenant.missed} samples"
            for tenant in self.tenants
            if tenant.looks and tenant.missed
        ]:
            found.append(f"{_some(missed)}: the rates leave out samples in which it was not counted.")
        if self.outside:
            found.append(f"{plural(self.outside, 'process')} computed without MPS: no share reaches them.")
        if any(tenant.clients > 1 for tenant in self.proposed):
            found.append("A tenant's share is divided among as many clients as it had at the same time.")
        if self.daemons > 1:
            found.append(f"The samples have clients of {self.daemons} daemons: --pipe-dir chooses one.")
        if any(share.memory is None for share in self.shares):
            found.append("The memory of some was not told, so that no memory limit is proposed.")
        return tuple(found)


def read_looks(lines: Iterable[bytes], where: str) -> Iterator[Look]:
    """Each line is what ``mpstui activity --json`` prints; empty ones are left out. Raises PlanError with the line."""
    for number, line in enumerate(lines, 1):
        if number > _MOST_LOOKS:
            raise PlanError(f"{where}: more than {_MOST_LOOKS} lines; take a part of them")
        if not line.strip():
            continue
        try:
            if len(line) > MOST_LINE:
                raise ValueError("it is longer than 4 MiB")
            yield look_of(json.loads(line))
        except (ValueError, RecursionError) as error:
            why = "it is no JSON" if isinstance(error, (json.JSONDecodeError, UnicodeDecodeError)) else str(error)
            raise PlanError(f"{where}: line {number}: {why or 'it is nested too deeply'}; {_REMEDY}") from None


def looks_of_file(path: Path) -> list[Look]:
    """Of a file, or of a pipe that is not somebody else's. May block; raises PlanError."""
    where = path_text(path, 200)
    try:
        with open(open_given(path), "rb") as file:
            return list(read_looks(lines_of(file), where))
    except (OSError, NotTrustedError) as error:
        raise PlanError(f"{where}: {error_text(error)}") from None


def lines_of(file: BinaryIO) -> Iterator[bytes]:
    """Lines; one that is too long for a look is cut, and so refused."""
    return iter(lambda: file.readline(MOST_LINE + 1), b"")


def look_of(data: Any) -> Look:
    """Of one look as JSON. Raises ValueError, which says what is wrong."""
    if not isinstance(data, dict) or not isinstance(data.get("processes"), list):
        raise ValueError("it has no processes")
    begun, seconds = _time(data.get("time")), _number(data, "seconds")
    if begun is None or seconds is None:
        raise ValueError("time or seconds is missing")
    nobody = seconds == 0 and not data["processes"]  # where there is no client, nothing is counted
    if not nobody and not _LEAST_LOOK <= seconds <= _LONGEST_LOOK:
        raise ValueError("seconds is out of range")
    if data.get("source") not in {"real", "simulated"}:
        raise ValueError("source is neither real nor simulated")
    clients, outside = [], 0
    for entry in data["processes"]:
        pid = _count(entry, "pid") if isinstance(entry, dict) else None
        if pid is None:
            raise ValueError("a process has no pid")
        daemon = _text(entry, "daemon")
        if daemon is None:
            outside += 1
            continue
        whose = owner(_text(entry, "user"), _count(entry, "uid"))
        texts = (None if whose == UNKNOWN else whose, _text(entry, "container"), _text(entry, "command"))
        numbers = (_count(entry, "gpu_memory"), _count(entry, "launches"))
        clients.append(Counted(pid, daemon, *texts, *numbers, _devices(entry), _by_device(entry)))
    return Look(begun, seconds, data["source"] == "simulated", tuple(clients), outside)


def _time(value: object) -> float | None:
    """Seconds since the epoch of ``2026-11-22T04:20:40.783+00:00``. Raises ValueError."""
    if not isinstance(value, str):
        return None
    try:
        found = datetime.fromisoformat(value)
        at = found.timestamp() if found.tzinfo is not None else None
    except (ValueError, OverflowError):
        raise ValueError("time is not a time") from None
    if at is not None and not 0 <= at < _LATEST:
        raise ValueError("time is out of range")
    return at


def _number(data: dict[str, Any], name: str) -> float | None:
    value = data.get(name)
    if value is None or isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    if not 0 <= value < 1e12:  # not a number is not in it either
        raise ValueError(f"{name} is out of range")
    return float(value)


def _count(data: dict[str, Any], name: str) -> int | None:
    value = data.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 62:
        raise ValueError(f"{name} is no whole number")
    return value


def _text(data: dict[str, Any], name: str) -> str | None:
    value = data.get(name)
    if value is not None and not isinstance(value, str):
        raise ValueError(f"{name} is no text")
    return None if value is None else printable(value, 200)


def _devices(data: dict[str, Any]) -> tuple[str, ...]:
    value = data.get("device_uuids")
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(uuid, str) for uuid in value):
        raise ValueError("device_uuids is no list of texts")
    return tuple(dict.fromkeys(printable(uuid, 80) for uuid in value))


def _by_device(data: dict[str, Any]) -> dict[str, int] | None:
    value = data.get("gpu_memory_by_device")
    if value is None:
        return None
    if not isinstance(value, dict):
        raise ValueError("gpu_memory_by_device is no object")
    found = {printable(uuid, 80): _count(value, uuid) for uuid in value}
    return {uuid: size for uuid, size in found.items() if size is not None}


def of_daemon(looks: Sequence[Look], daemon: str) -> list[Look]:
    """With the clients of this pipe directory alone."""
    return [look._replace(clients=tuple(c for c in look.clients if c.daemon == daemon)) for look in looks]


def devices_in(looks: Iterable[Look]) -> list[str]:
    """UUIDs of the devices on which the looks saw clients, as far as they tell."""
    return sorted({uuid for look in looks for client in look.clients for uuid in client.devices})


def only_device(looks: Iterable[Look]) -> str | None:
    """None where the looks do not tell. Raises PlanError where they have clients on several."""
    told = devices_in(looks)
    if len(told) > 1:
        raise PlanError(f"the samples have clients on {len(told)} GPUs, and a plan is for one: --device {told[0]}")
    return told[0] if told else None


def propose(looks: Sequence[Look], by: By | None = None, device: str | None = None) -> Proposal:
    """``by``: who counts as one tenant; None: by container where all are in one, else by user where there are several,
    else each process. ``device``: a UUID, whose clients get shares of it; None is enough where the looks are of one
    device alone, or do not tell. Raises PlanError: shares are parts of one device, and clients of several are not
    mixed."""
    told = devices_in(looks)
    device = device or only_device(looks)
    if told and device not in told:
        there = ", ".join(told)
        raise PlanError(
            f"no client was on GPU {device} in the samples, but on {there}: for another GPU give its size, "
            "--sm-count-total"
        )
    if not told:
        device = None
    left_out = several = 0
    if device is not None:
        mine = [look._replace(clients=tuple(_on(device, look.clients))) for look in looks]
        left_out = max((len(a.clients) - len(b.clients) for a, b in zip(looks, mine, strict=True)), default=0)
        several = max((sum(len(c.devices) > 1 for c in look.clients) for look in mine), default=0)
        looks = mine
    if not looks:
        raise PlanError(NO_LOOK)
    if len({look.simulated for look in looks}) > 1:
        raise PlanError("some samples are of a simulated node and some of a real one: put them into two files")
    looks = sorted(looks, key=lambda look: look.time)
    seen = [client for look in looks for client in look.clients]
    by = by or _usual(seen)
    first, last = looks[0].time, looks[-1].time + looks[-1].seconds
    whole = ""
    if len(looks) < LEAST_LOOKS or last - first < LEAST_SECONDS:
        span = f"{plural(len(looks), 'sample')} in {last - first:.0f} s: not enough"
        whole = f"{span}; record at least {LEAST_LOOKS} over {LEAST_SECONDS:.0f} s, better an hour of usual work"
    names = dict.fromkeys(_whose(client, by) for client in seen)
    tenants = [_tenant(what, looks, by) for what in names]
    tenants.sort(key=lambda tenant: (-(tenant.rate_median or 0), -(tenant.rate_max or 0), tenant.what))
    if not tenants:  # however long the looks are
        whole = "no client of MPS is in the samples"
    elif not whole and not any(not tenant.too_little for tenant in tenants):
        counted = any(tenant.looks for tenant in tenants)
        whole = "nobody launched enough for a share" if counted else "no client of MPS could be counted in the samples"
    return Proposal(
        by,
        len(looks),
        sum(look.seconds for look in looks),
        first,
        last,
        looks[0].simulated,
        _named(tenants),
        max(sum(client.launches is None for client in look.clients) for look in looks),
        max(look.outside for look in looks),
        len({client.daemon for client in seen}),
        whole,
        device,
        left_out,
        several,
    )


def _on(device: str, clients: Iterable[Counted]) -> Iterator[Counted]:
    """The clients of this device, with what they have of its memory as far as that is told."""
    for client in clients:
        if device in client.devices:
            whole = client.gpu_memory if len(client.devices) == 1 else None
            told = client.memory_by_device
            yield client._replace(gpu_memory=whole if told is None else told.get(device, whole))


def _usual(seen: Sequence[Counted]) -> By:
    if seen and all(client.container for client in seen):
        return "container"
    return "user" if len({client.user for client in seen}) > 1 else "process"


def _whose(client: Counted, by: By) -> str:
    if by == "process":
        return f"{(client.command or '').split(' ')[0].rpartition('/')[2] or 'process'}-{client.pid}"
    found = {"container": client.container, "user": client.user, "command": client.command}[by]
    return found or f"no {by}"


def _tenant(what: str, looks: Sequence[Look], by: By) -> Tenant:
    rates: list[float] = []
    memory: list[int] = []
    largest: int | None = None
    there, missed, busy, most = 0, 0, 0, 0
    for look in looks:
        mine = [client for client in look.clients if _whose(client, by) == what]
        counted = [client.launches for client in mine if client.launches is not None]
        if len(counted) < len(mine):
            missed += 1  # how much it launched is not known, also where some of it was counted
        else:
            rates.append(sum(counted) / look.seconds)
            there += bool(counted)
            busy += any(counted)
        most = max(most, len(mine))
        if mine and all(client.gpu_memory is not None for client in mine):
            memory.append(sum(client.gpu_memory or 0 for client in mine))
            largest = max(largest or 0, *(client.gpu_memory or 0 for client in mine))
    too_little = ""
    unknown = f", and was not counted in {missed}" if missed else ""
    if not there:
        too_little = "could not be counted"
        rates = []
    elif not busy:
        too_little = f"launched nothing in {plural(there, 'sample')}{unknown}"
    elif busy < LEAST_BUSY:
        too_little = f"launched something in {busy} of {len(looks)} samples{unknown}: {LEAST_BUSY} are needed"
    middle = int(statistics.median(memory)) if memory else None
    most_memory = max(memory, default=None)
    rate = statistics.median(rates) if rates else None
    highest = max(rates, default=None)
    return Tenant("", what, most, there, missed, busy, rate, highest, middle, most_memory, largest, too_little)


def _named(tenants: Iterable[Tenant]) -> tuple[Tenant, ...]:
    """With names that shares can have, each its own."""
    taken: set[str] = set()
    found = []
    for tenant in tenants:
        base = (_NOT_IN_NAMES.sub("-", tenant.what).strip("-._") or "tenant")[:50]
        name = next(n for n in (base, *(f"{base}-{i}" for i in range(2, len(taken) + 3))) if n not in taken)
        taken.add(name)
        found.append(replace(tenant, name=name))
    return tuple(found)


def _some(texts: Sequence[str]) -> str:
    """The first of them, and how many more."""
    rest = len(texts) - 3
    return ", ".join(texts[:3]) + (f" and {rest} more" if rest > 0 else "")
