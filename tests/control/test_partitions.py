"""``lspart`` and ``sm_partition`` as the documents and public parsers have them; whatever else comes is kept, never
guessed, and nothing in it reaches a terminal raw."""

from __future__ import annotations

import random

import pytest

from mpstui.control.answer import Outcome
from mpstui.control.mps import to_answer
from mpstui.control.partitions import Created, StaticPartitions, parse_created, parse_table, whole_uuids
from mpstui.control.wire import Unreadable
from mpstui.core.model import Chunks, PartitionTable, SmPartition

UUID = "GPU-89a1f2ed-cdf7-e667-3644-bf5b4f46ed65"
ID = "Dw8PDw8PDwAAAAAAAAAAAAAAAAAAAAAAAAAA"
DEVICE, PARTITION = Chunks("GPU-89", 0, 22, 4, 176), SmPartition("GPU-89", ID, 7, 56, False)
HEAD = (
    "GPU       Partition                          free    used    free  used  clients\n"
    "                                             chunks  chunks  SM    SM\n"
)


@pytest.mark.parametrize(
    "rows",
    [
        f"GPU-89    0       22      4     176\nGPU-89    {ID}   7   56   No\n",
        f"GPU-89 - 0 22 4 176 -\nGPU-89 {ID} - 7 - 56 No\n",
        f"GPU-89\t0\t22\t4\t176\r\nGPU-89\t{ID}\t7\t56\tNO\r\n",
    ],
    ids=["five fields", "seven fields", "tabs"],
)
@pytest.mark.parametrize("head", [HEAD, "", HEAD.lower(), HEAD + "\n"])
def test_both_layouts_are_read_with_and_without_their_heading(head: str, rows: str) -> None:
    assert parse_table((head + rows).encode()) == PartitionTable((DEVICE,), (PARTITION,))


def test_an_empty_table_is_one() -> None:
    assert parse_table(HEAD.encode()) == PartitionTable()


@pytest.mark.parametrize(
    "odd",
    [
        f"GPU-89 {ID} 7 56 Maybe",
        "GPU-89 0 22 4",
        "GPU-89 0 22 4 176 12 13 14",
        "\x1b]52;c;evil\x07 GPU-89 1 2 3 4",
        "GPU-89 99999999999999999999 1 2 3",
        "no partitions",
    ],
)
def test_what_is_not_understood_is_kept_printable_beside_what_is(odd: str) -> None:
    table = parse_table(f"{HEAD}GPU-89 0 22 4 176\n{odd}\n".encode())
    assert isinstance(table, PartitionTable)
    assert table.devices == (DEVICE,)
    assert len(table.not_understood) == 1
    assert table.not_understood[0].isprintable()
    assert isinstance(parse_table(odd.encode()), Unreadable), "nothing of it is understood"


def test_uuids_are_made_whole_only_where_one_device_begins_so() -> None:
    table = PartitionTable((DEVICE, Chunks("GPU-aa", 1, 0)), (PARTITION,))
    whole = whole_uuids(table, frozenset((UUID, "GPU-aa11", "GPU-aa22")))
    assert [device.device for device in whole.devices] == [UUID, "GPU-aa"]
    assert whole.partitions[0].name == f"{UUID}/{ID}"


@pytest.mark.parametrize(
    ("partitions", "used", "per"),
    [
        ((), (0, 0), None),
        (((7, 56),), (7, 56), 8),
        (((7, 56), (1, 8)), (8, 64), 8),
        (((4, 34),), (4, 34), None),  # 8.5: no whole number, nothing is multiplied with it
        (((7, 56), (4, 34)), (11, 90), None),
        (((7, 56),), (7, 60), None),  # the two say something else
        (((1, 4),), (1, 4), 4),
    ],
)
def test_sms_of_a_chunk_are_read_and_agree_or_are_not_known(
    partitions: tuple[tuple[int, int], ...], used: tuple[int, int], per: int | None
) -> None:
    of = tuple(SmPartition(UUID, f"{n:012}", *size, False) for n, size in enumerate(partitions))
    assert PartitionTable((Chunks(UUID, 3, used[0], 40, used[1]),), of).sms_per_chunk(UUID) == per


@pytest.mark.parametrize(
    ("text", "made"),
    [
        (f"Partition {UUID}/{ID} created\n", Created(UUID, ID)),
        (f"Partition {UUID}//A+{ID} created", Created(UUID, f"/A+{ID}")),
        (f"{UUID}/{ID}\n", Created(UUID, ID)),
        (f"{ID}\n", Created(None, ID)),
        (f"Partition {ID} created.", Created(None, ID)),
    ],
)
def test_the_name_of_what_was_made_is_read(text: str, made: Created) -> None:
    answer = to_answer_of("sm_partition add x 7", text)
    assert (answer.outcome, answer.value) == (Outcome.OK, made)


@pytest.mark.parametrize("text", ["", "ok", "7", f"Partition {ID}\x1b[2J created", f"{ID}\n{ID}\n"])
def test_an_answer_that_is_none_of_these_names_nothing(text: str) -> None:
    assert isinstance(parse_created(text.encode()), Unreadable)


@pytest.mark.parametrize(
    ("command", "text"),
    [
        (
            "sm_partition add x 28",
            "Failed to fulfill the requested SM partition of 28 chunks, error "
            "CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION\n",
        ),
        ("sm_partition rm x y", f"Partition {UUID}/{ID} in use. Terminate all clients before removing.\n"),
        ("sm_partition rm x y", f"Partition {UUID}/{ID} not found\n"),
        ("sm_partition add x 1", 'Unknown command "sm_partition"\n'),
    ],
)
def test_the_daemons_no_comes_with_status_0_and_is_one(command: str, text: str) -> None:
    answer = to_answer_of(command, text)
    assert answer.outcome is Outcome.REFUSED
    assert text.strip().rstrip(".") in answer.message


def to_answer_of(command: str, text: str):
    from mpstui.control.channel import RawReply

    protocol = StaticPartitions()
    question = protocol.add_partition("x", 1) if " add " in command else protocol.remove_partition("x", "y")
    return to_answer(RawReply(command, text.encode(), exit_status=0), question.parser, protocol)


@pytest.mark.slow
def test_no_mutation_of_a_table_is_an_error_or_prints_a_control_character() -> None:
    pick = random.Random(5)
    good = f"{HEAD}GPU-89 0 22 4 176\nGPU-89 {ID} 7 56 No\n".encode()
    for _ in range(3000):
        raw = bytearray(good)
        for _ in range(pick.randrange(1, 6)):
            raw[pick.randrange(len(raw))] = pick.randrange(256)
        found = parse_table(bytes(raw))
        texts = (found.reason,) if isinstance(found, Unreadable) else (
            *found.not_understood, *(p.name for p in found.partitions), *(d.device for d in found.devices)
        )  # fmt: skip
        assert all(text.isprintable() for text in texts), raw
