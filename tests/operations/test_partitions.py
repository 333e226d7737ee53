"""A partition added and removed where the daemon's answer is lost, lies, or says no: the second reading decides."""

from __future__ import annotations

import contextlib
from pathlib import Path
from types import SimpleNamespace

import pytest

from mpstui.control.answer import Answer, Outcome
from mpstui.control.partitions import Created
from mpstui.core.model import (
    Chunks,
    Client,
    Daemon,
    PartitionTable,
    ProcessKey,
    Server,
    SmPartition,
    Snapshot,
)
from mpstui.operations import partitions
from mpstui.operations.check import Refused
from mpstui.operations.partitions import AddPartition, RemovePartition, device_of, not_static, table_of
from mpstui.operations.types import ExitStatus, Request

GPU, PIPE = "GPU-1234", Path("/tmp/p")
EMPTY = PartitionTable((Chunks(GPU, 15, 0, 132, 0),))
SEVEN = PartitionTable((Chunks(GPU, 8, 7, 76, 56),), (SmPartition(GPU, "seven", 7, 56, False),))
USED = PartitionTable(SEVEN.devices, (SmPartition(GPU, "seven", 7, 56, True),))
LOST = Answer("sm_partition", Outcome.BLOCKED, message="The control daemon did not answer within 5 s.")
NO = Answer("sm_partition", Outcome.REFUSED, message="Failed to fulfill the request.")
UNREAD = Answer("lspart", Outcome.BLOCKED, message="The control daemon did not answer within 5 s.")


@pytest.mark.parametrize(
    ("detail", "why"), [(None, "they have not been read"), ("the daemon did not answer", "the daemon did not answer")]
)
def test_where_it_is_not_known_which_there_are_it_is_said_why(detail: str | None, why: str) -> None:
    with pytest.raises(Refused, match=f"not known: {why}$"):
        table_of(Daemon(PIPE, static_partitioning=True, partitions_detail=detail))


class Control:
    """Answers the readings one after the other, and each change with ``said``."""

    def __init__(self, said: Answer, *tables: PartitionTable | Answer) -> None:
        self.said, self.tables, self.sent = said, list(tables), []

    async def partitions(self) -> Answer:
        found = self.tables.pop(0)
        return found if isinstance(found, Answer) else Answer("lspart", Outcome.OK, found)

    async def add_partition(self, device: str, chunks: int) -> Answer:
        self.sent.append((device, chunks))
        return self.said

    async def remove_partition(self, device: str, identity: str) -> Answer:
        self.sent.append((device, identity))
        return self.said


def work(control: Control, request: Request) -> SimpleNamespace:
    daemon = Daemon(PIPE, key=ProcessKey(1, 1), static_partitioning=True, partitions=EMPTY, ordinals={"0": GPU})
    return SimpleNamespace(
        request=request, control=control, daemon=daemon, progress=lambda text: None, sent=None, read=None
    )


async def add(said: Answer, *tables: PartitionTable | Answer, value: str = "7"):
    control = Control(said, *tables)
    request = Request("add_partition", PIPE, value, device="0")
    return await AddPartition().run(work(control, request)), control


def ok(identity: str = "seven") -> Answer:
    return Answer("sm_partition", Outcome.OK, Created(GPU, identity), stdout=b"x")


async def test_a_lost_answer_is_told_by_what_has_come() -> None:
    result, control = await add(LOST, EMPTY, SEVEN)
    assert (result.status, control.sent) == (ExitStatus.DONE, [(GPU, 7)])
    assert "the answer was lost" in result.details[0]
    assert any(f"CUDA_MPS_SM_PARTITION={GPU}/seven" in line for line in result.details)
    result, control = await add(LOST, EMPTY, EMPTY)
    assert (result.status, len(control.sent)) == (ExitStatus.NO_ANSWER, 1), "never sent twice"


@pytest.mark.parametrize(
    ("said", "tables", "status"),
    [
        (NO, (EMPTY, EMPTY), ExitStatus.REFUSED_BY_DAEMON),
        (ok(), (EMPTY, EMPTY), ExitStatus.REFUSED_BY_DAEMON),
        (ok("another"), (EMPTY, SEVEN), ExitStatus.REFUSED_BY_DAEMON),
        (ok(), (EMPTY, UNREAD), ExitStatus.NO_ANSWER),
        (ok(), (UNREAD,), ExitStatus.NO_ANSWER),
    ],
    ids=["no", "yes and none there", "yes and another one there", "not read back", "not read before"],
)
async def test_a_yes_is_believed_where_the_partition_is_there_alone(
    said: Answer, tables: tuple[PartitionTable | Answer, ...], status: ExitStatus
) -> None:
    result, control = await add(said, *tables)
    assert result.status is status
    assert len(control.sent) == len(tables) - 1


async def test_another_size_than_was_asked_for_is_an_error() -> None:
    result, _ = await add(ok(), EMPTY, SEVEN, value="6")
    assert result.status is ExitStatus.REFUSED_BY_DAEMON
    assert "6 chunks were asked for" in result.message
    assert f"to undo this: mpstui partition rm {SEVEN.partitions[0].name} --pipe-dir {PIPE}" in result.details


async def test_the_chunk_that_was_added_to_be_read_and_stays_is_named() -> None:
    one = PartitionTable((Chunks(GPU, 14, 1, 124, 8),), (SmPartition(GPU, "one", 1, 8, False),))
    result, control = await add(ok("one"), EMPTY, one, one, value="56 SM")
    assert result.status is ExitStatus.REFUSED_BY_DAEMON
    assert f"still there: {GPU}/one" in result.message
    assert control.sent == [(GPU, 1), (GPU, "one")], "and nothing more is sent"


@pytest.mark.parametrize(
    ("said", "tables", "status"),
    [
        (Answer("x", Outcome.OK, None), (SEVEN, EMPTY), ExitStatus.DONE),
        (NO, (SEVEN, EMPTY), ExitStatus.DONE),
        (LOST, (SEVEN, EMPTY), ExitStatus.DONE),
        (Answer("x", Outcome.OK, None), (SEVEN, SEVEN), ExitStatus.REFUSED_BY_DAEMON),
        (NO, (SEVEN, USED), ExitStatus.REFUSED_BY_SAFETY_RULE),
        (LOST, (SEVEN, SEVEN), ExitStatus.NO_ANSWER),
        (LOST, (SEVEN, UNREAD), ExitStatus.NO_ANSWER),
        (NO, (USED,), ExitStatus.REFUSED_BY_SAFETY_RULE),
    ],
)
async def test_a_removal_is_what_the_second_reading_says(
    said: Answer, tables: tuple[PartitionTable | Answer, ...], status: ExitStatus
) -> None:
    control = Control(said, *tables)
    result = await RemovePartition().run(work(control, Request("remove_partition", PIPE, "seven")))
    assert result.status is status
    assert len(control.sent) == len(tables) - 1


SEVERAL = PartitionTable((Chunks("GPU-1234", 15, 0, 132, 0), Chunks("GPU-1299", 15, 0, 132, 0)))


@pytest.mark.parametrize(
    ("device", "words"),
    [("GPU-12", "2 devices are meant by “GPU-12”; it has: GPU-1234, GPU-1299"), ("GPU-9", "no device of the daemon")],
)
def test_a_device_has_to_be_one(device: str, words: str) -> None:
    with pytest.raises(Refused, match=words):
        device_of(SEVERAL, Daemon(PIPE), device)


def test_sms_that_are_no_whole_chunks_are_refused_with_those_that_are() -> None:
    request = Request("add_partition", PIPE, "60 SM", device="0")
    shown = AddPartition().show(request, Snapshot(0.0), having(SEVEN))
    assert "60 SMs are no whole number of chunks of 8 SMs: 56 or 64 is possible" in (shown.error or "")


def test_how_many_sms_a_number_of_chunks_has_is_no_more_than_about_so_many() -> None:
    """36 SMs in no partition, 3 chunks, 8 SMs a chunk: the product is not read from anywhere."""
    asked = Request("add_partition", PIPE, "3", device="0")
    told = dict(AddPartition().show(asked, Snapshot(0.0), having(SEVEN)).facts)["new partition"]
    assert told.startswith("3 chunks, about 24 SMs"), told
    empty = dict(AddPartition().show(asked, Snapshot(0.0), having(EMPTY)).facts)["new partition"]
    assert empty.startswith("3 chunks, —;"), empty


def having(table: PartitionTable, *clients: Client) -> Daemon:
    servers = (Server(ProcessKey(2, 1), clients=clients),)
    return Daemon(
        PIPE, key=ProcessKey(1, 1), static_partitioning=True, partitions=table, ordinals={"0": GPU}, servers=servers
    )


IN_IT = Client(ProcessKey(3, 1), sm_partition=f"{GPU}/seven")


@pytest.mark.parametrize(
    ("daemon", "why"),
    [
        (having(USED), "the daemon says that it has clients"),
        (having(SEVEN, IN_IT), "clients compute in it: 3"),
        (having(USED, IN_IT), "clients compute in it: 3"),
        (having(SEVEN), None),
    ],
    ids=["by the daemon's word", "by the client's", "by both", "nobody's"],
)
def test_a_partition_in_use_is_not_removed_by_whosever_word_it_is(daemon: Daemon, why: str | None) -> None:
    shown = RemovePartition().show(Request("remove_partition", PIPE, "seven"), Snapshot(0.0), daemon)
    assert shown.error == (None if why is None else f"{why}; end them first")


def test_what_is_told_to_type_and_what_takes_it_back_name_the_same_device_and_size() -> None:
    back = RemovePartition().undo(Request("remove_partition", PIPE, f"{GPU}/seven"), having(SEVEN))
    assert back == Request("add_partition", PIPE, "7", device=GPU)
    assert AddPartition().command_line(back) == f"mpstui partition add --device {GPU} --chunks 7 --pipe-dir {PIPE}"
    assert RemovePartition().undo(Request("remove_partition", PIPE, f"{GPU}/seven"), Daemon(PIPE)) is None


def test_a_daemon_of_protocol_3_is_not_told_to_be_started_with_static_partitions() -> None:
    assert "sm-partition create" in not_static(Daemon(PIPE, protocol="v3", driver="615.71"))
    assert "--static" in not_static(Daemon(PIPE, protocol="legacy", driver="590.44"))


@pytest.mark.parametrize(
    ("free", "wanted", "said"),
    [
        (0, None, "1 chunk is more than the 0 that are free, of 8"),
        (1, 2, "2 chunks are more than the 1 that are free, of 8"),
        (1, None, None),
        (2, 2, None),
    ],
)
def test_no_more_chunks_are_asked_for_than_are_free(free, wanted, said) -> None:
    device = Chunks(GPU, free, 8 - free)
    with pytest.raises(Refused) if said else contextlib.nullcontext() as refused:
        partitions._check_free(device, wanted)
    assert said is None or (str(refused.value), refused.value.status) == (said, ExitStatus.REFUSED_BY_DAEMON)
