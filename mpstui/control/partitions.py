"""Static SM partitions: ``lspart`` and ``sm_partition`` of a daemon that was started with ``-S``. No I/O.

Nothing here was recorded by this project: the forms are those that the vendor documents and that three public parsers
read, and whatever is none of them is kept as it was printed. Whether something was done is seen in ``lspart`` alone.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from mpstui.control.answer import Outcome
from mpstui.control.legacy import Legacy, judge
from mpstui.control.wire import Question, Unreadable
from mpstui.core.late import pattern
from mpstui.core.model import Chunks, PartitionTable, SmPartition
from mpstui.core.text import printable

_MOST: Final = 4096
"""Lines; a device has some tens of chunks."""
ID: Final = r"[A-Za-z0-9+/=_-]{1,128}"
"""Base64 of a bit mask: it may hold slashes, and begin with one."""
_HEADING: Final = frozenset(("gpu", "partition", "free", "used", "chunks", "sm", "sms", "clients", "device", "uuid"))
_NUMBER: Final = pattern(r"[0-9]{1,9}")
_UUID: Final = pattern(r"(?:GPU|MIG)-[0-9A-Za-z-]{1,80}")
_ID: Final = pattern(ID)
_CREATED: Final = pattern(
    rf"(?:Partition )?(?:(?P<device>(?:GPU|MIG)-[0-9A-Za-z-]{{1,80}})/)?(?P<id>{ID})(?P<created> created\.?)?"
)
_BARE: Final = 12
"""Characters of an id from which on one that stands alone is taken for the answer."""
_REFUSED: Final = pattern(
    r"(?i)(?:failed|cannot|could not|invalid|error|no |not |.*(?:\bin use\b|terminate all clients|not found|CUDA_ERR))"
)
_WORDS: Final = {"yes": True, "no": False}


class Created(NamedTuple):
    """What ``sm_partition add`` says that it made."""

    device: str | None
    id: str


def parse_table(stdout: bytes) -> PartitionTable | Unreadable:
    """``lspart``, with the devices' UUIDs as they are printed, which is as much of them as tells them apart."""
    lines = [line for line in stdout.decode("utf-8", "replace").split("\n") if line.strip()]
    if len(lines) > _MOST:
        return Unreadable(f"The answer cannot be true: it has {len(lines)} lines.")
    devices: list[Chunks] = []
    partitions: list[SmPartition] = []
    odd: list[str] = []
    for line in lines:
        row = _row(line.split())
        if isinstance(row, Chunks):
            devices.append(row)
        elif row is not None:
            partitions.append(row)
        elif not {word.lower() for word in line.split()} <= _HEADING:
            odd.append(printable(line.strip(), 200))
    if odd and not devices and not partitions:
        return Unreadable(f"The answer is not understood: “{odd[0]}”.")
    return PartitionTable(tuple(devices), tuple(partitions), tuple(odd))


def _row(words: list[str]) -> Chunks | SmPartition | None:
    """A device has four numbers, a partition its id, two numbers and Yes or No; ``-`` is what does not apply."""
    words = [word for word in words if word != "-"]
    if len(words) != 5 or not _UUID.fullmatch(words[0]):
        return None
    if all(_NUMBER.fullmatch(word) for word in words[1:]):
        free, used, free_sms, used_sms = map(int, words[1:])
        return Chunks(words[0], free, used, free_sms, used_sms)
    uuid, identity, chunks, sms, clients = words
    told = _ID.fullmatch(identity) and _NUMBER.fullmatch(chunks) and _NUMBER.fullmatch(sms)
    if not told or clients.lower() not in _WORDS:
        return None
    return SmPartition(uuid, identity, int(chunks), int(sms), _WORDS[clients.lower()])


def parse_created(stdout: bytes) -> Created | Unreadable:
    """``sm_partition add``: what it names, in the forms that the documents show."""
    text = stdout.decode("utf-8", "replace").strip()
    match = _CREATED.fullmatch(text)
    if match is None or not (match["created"] or match["device"] or len(match["id"]) >= _BARE):
        return Unreadable(f"The answer is not understood: “{printable(text, 120)}”.")
    return Created(match["device"], match["id"])


def parse_removed(stdout: bytes) -> None:
    """Whatever it prints: how it says that it was done is not documented."""


class StaticPartitions(Legacy):
    """A daemon that was started with ``-S``: the same words, of which those of percentages have no effect, and these
    two."""

    def judge(self, command: str, stdout: bytes, stderr: bytes, exit_status: int | None) -> tuple[Outcome, str]:
        outcome, message = judge(command, stdout, stderr, exit_status)
        first = stdout.decode("utf-8", "replace").strip().partition("\n")[0]
        if outcome is Outcome.OK and command.startswith("sm_partition ") and _REFUSED.match(first):
            return Outcome.REFUSED, printable(first, 300).rstrip(".") + "."
        return outcome, message

    def partitions(self) -> Question[PartitionTable] | None:
        return Question("lspart", parse_table)

    def add_partition(self, device: str, chunks: int) -> Question[Created]:
        return Question(f"sm_partition add {device} {chunks}", parse_created)

    def remove_partition(self, device: str, identity: str) -> Question[None]:
        return Question(f"sm_partition rm {device} {identity}", parse_removed)


def whole_uuids(table: PartitionTable, uuids: frozenset[str]) -> PartitionTable:
    """The table with the whole UUID wherever exactly one of ``uuids`` begins as it is printed."""

    def whole(printed: str) -> str:
        found = [uuid for uuid in uuids if uuid.startswith(printed)]
        return found[0] if len(found) == 1 else printed

    return PartitionTable(
        tuple(Chunks(whole(d.device), d.free, d.used, d.free_sms, d.used_sms) for d in table.devices),
        tuple(SmPartition(whole(p.device), p.id, p.chunks, p.sm_count, p.in_use) for p in table.partitions),
        table.not_understood,
    )
