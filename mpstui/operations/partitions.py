"""Static SM partitions of a daemon that was started with ``-S``: one added, one removed.

What the daemon says of either proves nothing: the partitions are read before and after, in the daemon's turn.
"""

from __future__ import annotations

import shlex
from typing import Final

from mpstui.control.answer import Answer, Outcome
from mpstui.control.drivers import driver_of
from mpstui.control.mps import MpsControl
from mpstui.control.partitions import Created, whole_uuids
from mpstui.core.cells import client_line
from mpstui.core.model import Chunks, Daemon, PartitionTable, SmPartition, Snapshot
from mpstui.core.text import UNKNOWN, are, device_keys, listed, path_word, plural, printable
from mpstui.observe.poll import Need
from mpstui.operations.check import Refused, parse_size
from mpstui.operations.operation import Operation, Work, refused_result
from mpstui.operations.types import STATUS, Argument, Danger, ExitStatus, Others, Preview, Request, Result, Verb

_NOT_STATIC: Final = (
    "the daemon was not started with static partitions, and they cannot be turned on later: "
    "stop it, and start it with mpstui daemon start --static"
)


def not_static(daemon: Daemon) -> str:
    """Why it has no partitions, and what would give it some."""
    if daemon.named_servers:
        return "it runs MPS protocol 3, where SM partitions belong to servers: mpstui sm-partition create makes one"
    driver = driver_of(daemon.driver)
    if driver is not None and not driver.static_partitions:
        return f"static partitions are not in driver {driver.number}: they need CUDA 13.1, driver 590 or later"
    return _NOT_STATIC


def table_of(daemon: Daemon) -> PartitionTable:
    """Its partitions; raises Refused where it has none, or they are not known."""
    if not daemon.static_partitioning:
        raise Refused(not_static(daemon), ExitStatus.REFUSED_BY_SAFETY_RULE)
    if daemon.partitions is None:
        why = daemon.partitions_detail or "they have not been read"
        raise Refused(f"which partitions there are is not known: {why}", ExitStatus.NO_ANSWER)
    return daemon.partitions


def device_of(table: PartitionTable, daemon: Daemon, text: str | None) -> Chunks:
    """The device that is meant by a UUID, the beginning of one, or the daemon's ordinal; raises Refused."""
    known = ", ".join(device.device for device in table.devices) or "none"
    wanted = (text or "").strip()
    wanted = daemon.ordinals.get(wanted, wanted)
    by_uuid = {device.device: device for device in table.devices}
    found = [by_uuid[key] for key in device_keys(wanted, {uuid: uuid for uuid in by_uuid})]
    if len(found) != 1:
        what = f"{len(found)} devices are meant by" if found else "no device of the daemon is"
        raise Refused(f"{what} “{printable(wanted, 60)}”; it has: {known}", ExitStatus.USAGE)
    return found[0]


def size_words(chunks: int | None, sms: int | None) -> str:
    """``7 chunks, 56 SMs``; ``—`` for what is not known."""
    return f"{UNKNOWN if chunks is None else plural(chunks, 'chunk')}, {UNKNOWN if sms is None else plural(sms, 'SM')}"


def export_lines(daemon: Daemon, name: str) -> tuple[str, ...]:
    """What a program has to have in its environment to compute in the partition."""
    return (
        f"export CUDA_MPS_PIPE_DIRECTORY={path_word(daemon.pipe_dir)}",
        f"export CUDA_MPS_SM_PARTITION={shlex.quote(name)}",
    )


def _told(daemon: Daemon, *words: str) -> str:
    """A command for a person, which says of which daemon: there may be others, and of another user's it has to."""
    return f"{shlex.join(['mpstui', 'partition', *words])} --pipe-dir {path_word(daemon.pipe_dir)}"


class _PartitionOperation(Operation):
    place = "partitions"
    looks_again = True

    def needs(self, request: Request) -> Need | None:
        return Need(devices=True, clients=True, partitions=True)

    def belongs(self, request: Request, daemon: Daemon) -> bool:
        return bool(daemon.static_partitioning)

    def check_daemon(self, daemon: Daemon) -> None:
        table_of(daemon)


class AddPartition(_PartitionOperation):
    """``sm_partition add``: ``Request.value`` is its size, ``Request.device`` the device.

    How many SMs a chunk has is read from what is in partitions. Where nothing is, and SMs are asked for, one chunk is
    added, read and removed before.
    """

    id = "add_partition"
    title = "Add partition"
    key = "S"
    key_id = "partition.add"
    help = "Set SMs of a device aside for the programs that name the partition"
    verb = Verb(
        ("partition", "add"),
        "set SMs of a device aside, in whole chunks",
        example="mpstui partition add --device GPU-89a1 --chunks 7",
    )
    arguments = (
        Argument(
            "device", "Device", "a UUID, its beginning, or the daemon's ordinal", "a UUID or its beginning", "DEV"
        ),
        Argument("size", "Size", "7 chunks, or 56 SM", "how much of it", "N"),
    )

    def wrong_value(self, request: Request) -> Refused | None:
        try:
            parse_size(request.value)
        except Refused as refused:
            return refused
        return None

    def show(self, request: Request, snapshot: Snapshot, daemon: Daemon) -> Preview:
        table = table_of(daemon)
        device = device_of(table, daemon, request.device)
        size, per = parse_size(request.value), table.sms_per_chunk(device.device)
        of = snapshot.device(device.device)
        facts = [
            ("device", f"{of.name if of is not None and of.name else UNKNOWN}  {device.device}"),
            ("free", f"{device.free} of {plural(device.total, 'chunk')}"),
        ]
        title, chunks = "Add a static partition", size.chunks
        try:
            if size.sms is not None and per is not None:
                chunks = _whole_chunks(size.sms, per)
            _check_free(device, chunks)
        except Refused as refused:
            return Preview(title, tuple(facts), error=str(refused), error_status=refused.status)
        new = size_words(chunks, size.sms)
        if chunks is None:
            new += "; one chunk is added, read and removed first, since no partition tells how many SMs a chunk has"
        elif per is None:
            new += "; how many SMs a chunk has is read when the first partition is there"
        elif size.sms is None:
            new = f"{plural(chunks, 'chunk')}, about {plural(chunks * per, 'SM')} by the partitions that are there"
        facts.append(("new partition", new))
        return Preview(title, tuple(facts))

    def command(self, request: Request) -> str:
        size = parse_size(request.value)
        return f"sm_partition add {request.device} {size.chunks if size.chunks is not None else '…'}"

    async def run(self, work: Work) -> Result:
        request, control, daemon = work.request, work.control, work.daemon
        try:
            before = await _read(control, daemon)
            device = device_of(before, daemon, request.device)
            size = parse_size(request.value)
            chunks = size.chunks
            if chunks is None:
                chunks = _whole_chunks(size.sms or 0, await self._sms_per_chunk(work, before, device))
            _check_free(device, chunks)
        except Refused as refused:
            return refused_result(request, str(refused), refused.status)
        uuid = device.device
        work.progress(f"sm_partition add {uuid} {chunks}")
        work.sent = sent = await control.add_partition(uuid, chunks)
        work.read = read = await control.partitions()
        if read.value is None:
            text = f"sent, but the partitions could not be read back: {read.message}"
            return Result(request, STATUS[read.outcome], text, _said(sent), "Look at mpstui partition list.")
        made = _made(before, _whole(read.value, daemon), uuid, sent)
        if made is None:
            status = ExitStatus.REFUSED_BY_DAEMON if sent.ok else STATUS[sent.outcome]
            text = sent.message or "the daemon said that it made a partition, but there is no new one"
            return Result(request, status, text, ("there is no new partition",))
        lost = () if sent.ok else (f"the answer was lost ({sent.message.rstrip('.')}); this partition is new",)
        back = _told(daemon, "rm", made.name)
        details = (*lost, *export_lines(daemon, made.name), f"to undo this: {back}")
        text = f"partition {made.name} is there: {size_words(made.chunks, made.sm_count)}"
        if made.chunks != chunks:
            text = f"{plural(chunks, 'chunk')} were asked for; {text}"
            return Result(request, ExitStatus.REFUSED_BY_DAEMON, text, details, outcome=made)
        return Result(request, ExitStatus.DONE, text, details, outcome=made)

    async def _sms_per_chunk(self, work: Work, before: PartitionTable, device: Chunks) -> int:
        """As the partitions tell, or one of a chunk that is there for a moment. Raises Refused."""
        if (per := before.sms_per_chunk(device.device)) is not None:
            return per
        _check_free(device, 1)
        work.progress("one chunk is added, to read how many SMs it has")
        control, daemon = work.control, work.daemon
        sent = await control.add_partition(device.device, 1)
        after = await _read(control, daemon)
        made = _made(before, after, device.device, sent)
        if made is None:
            raise Refused(f"how many SMs a chunk has could not be read: {sent.message}", ExitStatus.REFUSED_BY_DAEMON)
        await control.remove_partition(device.device, made.id)
        if (await _read(control, daemon)).find(made.name) is not None:
            text = f"the partition of one chunk that was added to read its size is still there: {made.name}"
            raise Refused(f"{text}; {_told(daemon, 'rm', made.name)} takes it away", ExitStatus.REFUSED_BY_DAEMON)
        if made.chunks != 1 or not made.sm_count:
            raise Refused("the daemon does not tell how many SMs a chunk has", ExitStatus.REFUSED_BY_DAEMON)
        return made.sm_count


class RemovePartition(_PartitionOperation):
    """``sm_partition rm`` of one without clients: ``Request.value`` names it, as ``lspart`` or as its clients do."""

    id = "remove_partition"
    title = "Remove partition"
    key = "x"
    key_id = "partition.remove"
    help = "Give the SMs of a partition without clients back to its device"
    danger = Danger.HARM
    question = "remove it?"
    harms = "programs that name this partition cannot start any more"
    verb = Verb(
        ("partition", "rm"),
        "give the SMs of a partition without clients back",
        example="mpstui partition rm GPU-89a1/fwAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
    )
    arguments = (
        Argument("value", "Partition", "its id", "as partition list names it, or its id behind the slash", "ID"),
    )

    def show(self, request: Request, snapshot: Snapshot, daemon: Daemon) -> Preview:
        table = table_of(daemon)
        partition = _named(table, request.value)
        users = daemon.clients_in(partition)
        facts = (
            ("partition", partition.name),
            ("size", size_words(partition.chunks, partition.sm_count)),
            ("then", "a program that is started with its name fails with CUDA error 915"),
        )
        title, hits = "Remove a static partition", tuple(client_line(client) for client in users)
        if partition.in_use or users:
            who = listed(client.pid for client in users)
            text = f"clients compute in it: {who}" if users else "the daemon says that it has clients"
            rule = ExitStatus.REFUSED_BY_SAFETY_RULE
            return Preview(title, facts, hits=hits, error=f"{text}; end them first", error_status=rule)
        waiting = tuple(map(client_line, daemon.pending))
        others = (Others("Wait for a server, and may need it", waiting),) if waiting else ()
        return Preview(title, facts, others=others)

    def undo(self, request: Request, daemon: Daemon) -> Request | None:
        found = daemon.partitions.find(request.value) if daemon.partitions is not None else None
        if found is None or found.chunks is None:
            return None
        return Request(AddPartition.id, request.pipe_dir, str(found.chunks), device=found.device)

    def command(self, request: Request) -> str:
        return f"sm_partition rm {request.value.replace('/', ' ', 1)}"

    async def run(self, work: Work) -> Result:
        request, control, daemon = work.request, work.control, work.daemon
        try:
            partition = _named(await _read(control, daemon), request.value)
            if partition.in_use:
                raise Refused("a client has come since; end it first", ExitStatus.REFUSED_BY_SAFETY_RULE)
        except Refused as refused:
            return refused_result(request, str(refused), refused.status)
        work.progress(f"sm_partition rm {partition.device} {partition.id}")
        work.sent = sent = await control.remove_partition(partition.device, partition.id)
        work.read = read = await control.partitions()
        if read.value is None:
            text = f"sent, but the partitions could not be read back: {read.message}"
            return Result(request, STATUS[read.outcome], text, _said(sent), "Look at mpstui partition list.")
        left = _whole(read.value, daemon).find(partition.name)
        if left is None:
            again = _told(daemon, "add", "--device", partition.device, "--chunks", str(partition.chunks))
            details = (f"{again} creates a partition of the same size again, with a new id",)
            return Result(request, ExitStatus.DONE, f"partition {partition.name} is gone", details)
        status = ExitStatus.REFUSED_BY_SAFETY_RULE if left.in_use else ExitStatus.REFUSED_BY_DAEMON
        if not sent.ok and sent.outcome is not Outcome.REFUSED:
            status = STATUS[sent.outcome]
        why = sent.message or printable(sent.stdout.strip(), 200) or "the daemon gave no reason"
        return Result(request, status, f"partition {partition.name} is still there: {why}", _said(sent))


def _whole_chunks(sms: int, per: int) -> int:
    """SMs as chunks of ``per`` SMs; raises Refused where they are not whole."""
    if sms % per:
        below, above = sms // per * per, (sms // per + 1) * per
        near = f"{below} or {above}" if below else str(above)
        no_whole = f"{plural(sms, 'SM')} {are(sms)} no whole number of chunks of {per} SMs"
        raise Refused(f"{no_whole}: {near} is possible", ExitStatus.USAGE)
    return sms // per


def _check_free(device: Chunks, chunks: int | None) -> None:
    wanted = 1 if chunks is None else chunks
    if wanted > device.free:
        what = f"{plural(wanted, 'chunk')} {are(wanted)} more than the {device.free} that are free"
        raise Refused(f"{what}, of {device.total}", ExitStatus.REFUSED_BY_DAEMON)


def _named(table: PartitionTable, name: str) -> SmPartition:
    found = table.find(name)
    if found is None:
        several = sum(partition.is_named(name) for partition in table.partitions)
        known = ", ".join(partition.name for partition in table.partitions) or "none"
        what = "several partitions are" if several else "no partition is"
        status = ExitStatus.USAGE if several else ExitStatus.REFUSED_BY_DAEMON
        raise Refused(f"{what} called “{printable(name, 80)}”; there are: {known}", status)
    return found


def _whole(table: PartitionTable, daemon: Daemon) -> PartitionTable:
    known = daemon.partitions or PartitionTable()
    return whole_uuids(table, frozenset(daemon.ordinals.values()) | {device.device for device in known.devices})


async def _read(control: MpsControl, daemon: Daemon) -> PartitionTable:
    """Raises Refused."""
    answer = await control.partitions()
    if answer.value is None:
        raise Refused(f"which partitions there are is not known: {answer.message}", STATUS[answer.outcome])
    return _whole(answer.value, daemon)


def _made(before: PartitionTable, after: PartitionTable, uuid: str, sent: Answer[Created]) -> SmPartition | None:
    """The one that came: the one that the daemon named, or the only new one where its answer was lost."""
    fresh = [p for p in after.of(uuid) if before.find(p.name) is None]
    if sent.value is not None:
        return next((p for p in fresh if p.id == sent.value.id), None)
    unknown = sent.outcome in {Outcome.BLOCKED, Outcome.UNREADABLE, Outcome.BUSY}
    return fresh[0] if unknown and len(fresh) == 1 else None


def _said(sent: Answer[object]) -> tuple[str, ...]:
    text = printable(sent.stdout.strip(), 200)
    return (f"the daemon said: {text}",) if text else ()
