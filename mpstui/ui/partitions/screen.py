"""The static SM partitions of a daemon: each device in chunks, who is in which; adding one, removing one."""

from __future__ import annotations

from typing import ClassVar, Final, NamedTuple

from textual.binding import Binding, BindingType

from mpstui.core.cells import client_line, not_told
from mpstui.core.model import Chunks, Daemon, PartitionTable, SmPartition, Snapshot
from mpstui.core.text import UNKNOWN, owner, plural
from mpstui.operations.partitions import export_lines, not_static
from mpstui.operations.registry import operation
from mpstui.operations.types import Request
from mpstui.ui.bars import KeyHint, unless
from mpstui.ui.box import Para
from mpstui.ui.keys import own_binding
from mpstui.ui.lines import Line, fit
from mpstui.ui.panel import Panel
from mpstui.ui.screens import ListScreen
from mpstui.ui.typeahead import opens

_ADD: Final = operation("add_partition")
_REMOVE: Final = operation("remove_partition")
_MARKS: Final = "123456789abcdefghijklmnopqrstuvwxyz"
_INDENT: Final = 5
AS_DOCUMENTED: Final = "as documented; not recorded on a real daemon"


class Part(NamedTuple):
    """A device, or one of its partitions."""

    device: Chunks
    partition: SmPartition | None = None
    mark: str = ""
    """Of the partition, in the device's bar."""


def parts_of(table: PartitionTable) -> tuple[Part, ...]:
    """Each device with its partitions under it."""
    found: list[Part] = []
    for device in table.devices:
        found.append(Part(device))
        of = table.of(device.device)
        found += [Part(device, partition, _MARKS[n % len(_MARKS)]) for n, partition in enumerate(of)]
    return tuple(found)


class PartsPanel(Panel[Part]):
    """A line for a device, with a cell for each chunk, and one for each partition."""

    KIND: ClassVar[str] = "partition"

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._snapshot: Snapshot | None = None
        self._daemon: Daemon | None = None

    def show(self, snapshot: Snapshot | None, daemon: Daemon | None) -> None:
        self._snapshot, self._daemon = snapshot, daemon
        table = daemon.partitions if daemon is not None else None
        self.set_rows(parts_of(table) if table is not None else (), context=(daemon, table))

    def key(self, row: Part) -> tuple[str, str]:
        return row.device.device, "" if row.partition is None else row.partition.id

    def title(self) -> Line:
        return (("Static SM partitions", "title"), (f"  {AS_DOCUMENTED}", "dim"))

    def empty(self) -> str:
        return "no partitions"

    def row_lines(self, row: Part, width: int) -> list[Line]:
        return [self._device(row.device, width) if row.partition is None else self._partition(row, width)]

    def _device(self, device: Chunks, width: int) -> Line:
        known = self._snapshot.device(device.device) if self._snapshot is not None else None
        index = "?" if known is None or known.index is None else str(known.index)
        text = f"  {device.free} of {plural(device.total, 'chunk')} free"
        return ((f" GPU {index}  ", "bold"), *self._bar(device, max(8, width - len(text) - 12)), (text, "text"))

    def _bar(self, device: Chunks, room: int) -> list[tuple[str, str]]:
        """A cell for a chunk, with the mark of the partition that has it; a device of more chunks than cells has a
        number in the place of each run."""
        table = self._daemon.partitions if self._daemon is not None else None
        of = table.of(device.device) if table is not None else ()
        marks = [(_MARKS[n % len(_MARKS)], p.chunks or 0) for n, p in enumerate(of)]
        whole = sum(size for _, size in marks) + device.free <= room
        cells = [(mark * size if whole else f"{mark}:{size} ", "meter") for mark, size in marks]
        return [*cells, ("·" * device.free if whole else f"free:{device.free}", "track")]

    def _partition(self, row: Part, width: int) -> Line:
        partition, daemon = row.partition, self._daemon
        assert partition is not None  # noqa: S101
        users = daemon.clients_in(partition) if daemon is not None else ()
        use, style = {True: ("in use", "good"), False: ("unused", "dim"), None: (UNKNOWN, "dim")}[partition.in_use]
        who = ", ".join(f"{c.pid} {owner(c.user, c.uid)}" for c in users)
        if partition.in_use and not users:
            who = "by clients whose environment cannot be read"
        chunks = UNKNOWN if partition.chunks is None else plural(partition.chunks, "chunk")
        sms = UNKNOWN if partition.sm_count is None else plural(partition.sm_count, "SM")
        size = f"{chunks:>9} {sms:>8}  "
        return (
            (f"{' ' * _INDENT}{row.mark}  ", "meter"),
            (size, "bold"),
            (fit(use, 8), style),
            (fit(partition.id.rstrip("A") + ("…" if partition.id.endswith("A") else ""), 16), "dim"),
            (f" {who}", "user"),
        )


def _why_none(snapshot: Snapshot, daemon: Daemon | None) -> str:
    """Why a daemon shows no partitions, and what would give it some."""
    if daemon is None:
        why = not_told(snapshot, daemon)
        return f"Not known: {why}." if why else "There is no daemon here."
    if not daemon.static_partitioning:
        return f"This daemon has no static SM partitions: {not_static(daemon)}."
    return f"Not known: {daemon.partitions_detail or 'they have not been read yet'}."


def about(daemon: Daemon, part: Part) -> list[Para]:
    """All of a device or a partition: whom it has, and what a program exports to compute in it."""
    said: list[Para] = []
    if part.partition is None:
        table = daemon.partitions
        per = table.sms_per_chunk(part.device.device) if table is not None else None
        says = (
            "not known until there is a partition"
            if per is None
            else f"{plural(per, 'SM')}, as the partitions that are there have it"
        )
        said += [Para(part.device.device, "bold"), Para(f"A chunk: {says}.")]
        if (none := part.device.free_sms) is not None:
            among = "some of them may be in no chunk, and cannot be given to a partition"
            said.append(Para(f"In no partition: {plural(none, 'SM')}; {among}."))
        said.append(Para("Partitions share the memory, its bandwidth and every fault.", "dim"))
    else:
        users = daemon.clients_in(part.partition)
        said += [Para(line, "accent") for line in export_lines(daemon, part.partition.name)]
        said.append(Para("Its name is valid until the daemon ends.", "dim"))
        said += [Para(client_line(client)) for client in users]
        if users:
            said.append(Para("Which clients use it is read from their environments.", "dim"))
    odd = daemon.partitions.not_understood if daemon.partitions is not None else ()
    return [*said, *(Para(f"not understood: {line}", "warn") for line in odd)]


class PartitionsScreen(ListScreen):
    """a adds a partition to the device under the cursor, x removes the one under it; both ask."""

    NAME = "Partitions"
    BELOW = True
    panel: PartsPanel
    BINDINGS: ClassVar[list[BindingType]] = [
        own_binding(_ADD, "add"),
        own_binding(_REMOVE, "remove"),
        Binding("y", "copy", "Copy what a program exports", show=False, id="copy"),
        Binding("r", "read_again", "Read again", show=False, id="refresh"),
    ]

    def make_list(self) -> PartsPanel:
        return PartsPanel(id="list")

    @property
    def part(self) -> Part | None:
        """What the cursor is on."""
        return self.panel.cursor_row

    def fill(self, snapshot: Snapshot) -> None:
        self.panel.show(snapshot, self.daemon)

    def describe(self, snapshot: Snapshot) -> tuple[str, list[Para]]:
        part, daemon = self.part, self.daemon
        if part is None or daemon is None:
            return "No partitions", [Para(_why_none(snapshot, daemon))]
        return "Device" if part.partition is None else "Partition", about(daemon, part)

    def own_hints(self) -> list[KeyHint]:
        partition = self.part.partition if self.part is not None else None
        no_part = unless(partition, "the cursor is on no partition")
        return [
            KeyHint(self.k("partition.add", "S"), "Add", "add", 9, self._why_not(_ADD.id)),
            KeyHint(self.k("partition.remove", "x"), "Remove", "remove", 9, no_part or self._why_not(_REMOVE.id)),
            KeyHint(self.k("copy", "y"), "Copy exports", "copy", 6, no_part),
            KeyHint(self.k("refresh", "r"), "Read again", "read_again", 3),
        ]

    def _why_not(self, action: str) -> str | None:
        if self.daemon is None or self.snapshot is None:
            return "there is no daemon here"
        return self.runner.unavailable(operation(action), self.snapshot, self.daemon.pipe_dir, ())

    @opens
    def action_add(self) -> None:
        if self.daemon is not None:
            device = self.part.device.device if self.part is not None else None
            self.host.open_request(_ADD, Request(_ADD.id, self.daemon.pipe_dir, device=device))

    @opens
    def action_remove(self) -> None:
        if self.daemon is not None and self.part is not None and self.part.partition is not None:
            self.host.open_request(_REMOVE, Request(_REMOVE.id, self.daemon.pipe_dir, self.part.partition.name))

    def action_copy(self) -> None:
        if self.daemon is not None and self.part is not None and self.part.partition is not None:
            name = self.part.partition.name
            self.copy("\n".join(export_lines(self.daemon, name)), name)
