"""Chunks divided as the daemon tells them: nobody gets a part of one, and nothing is multiplied but what was read."""

from __future__ import annotations

from fractions import Fraction

import pytest

from mpstui.core.model import Chunks, PartitionTable, SmPartition
from mpstui.plan.amounts import PlanError
from mpstui.plan.static import divide

GPU = "GPU-1"
EMPTY = PartitionTable((Chunks(GPU, 15, 0, 132, 0),))
USED = PartitionTable((Chunks(GPU, 8, 7, 76, 56),), (SmPartition(GPU, "a", 7, 56),))
UNEVEN = PartitionTable((Chunks(GPU, 12, 4, 98, 34),), (SmPartition(GPU, "a", 4, 34),))


def test_free_chunks_are_divided_evenly_and_by_weights() -> None:
    made = divide(EMPTY, GPU, clients=4)
    assert [share.chunks for share in made.shares] == [3, 3, 3, 3]
    assert made.left == 3
    assert [share.chunks for share in divide(EMPTY, GPU, weights=[Fraction(2), Fraction(1)]).shares] == [10, 5]


def test_sms_are_not_told_before_a_partition_is_there() -> None:
    assert {share.sms_about for share in divide(EMPTY, GPU, clients=2).shares} == {None}
    assert {share.sms_about for share in divide(USED, GPU, clients=2).shares} == {32}
    assert {share.sms_about for share in divide(UNEVEN, GPU, clients=2).shares} == {None}, "34 of 4 chunks is no rule"


def test_sms_are_taken_where_they_come_to_whole_chunks() -> None:
    assert [share.chunks for share in divide(USED, GPU, sm_counts=[16, 48]).shares] == [2, 6]


@pytest.mark.parametrize(
    ("table", "asked", "word"),
    [
        (EMPTY, {"sm_counts": [16]}, "not known before a partition"),
        (UNEVEN, {"sm_counts": [34]}, "not known"),
        (USED, {"sm_counts": [20]}, "no whole chunks"),
        (USED, {"sm_counts": [64, 8]}, "more than the 8"),
        (EMPTY, {"clients": 16}, "too few"),
        (USED, {"weights": [Fraction(1), Fraction(1000)]}, "too few"),
        (EMPTY, {}, "say one"),
        (EMPTY, {"clients": 2, "weights": [Fraction(1)]}, "say one"),
        (EMPTY, {"clients": 2, "names": ["a"]}, "a name each"),
        (EMPTY, {"clients": 1, "names": ["a", "b"]}, "1 client needs one name"),
        (USED, {"sm_counts": [1]}, "1 SM is no whole chunk"),
        (EMPTY, {"clients": 2, "names": ["a", "a"]}, "each its own"),
        (PartitionTable(), {"clients": 2}, "does not list"),
    ],
)
def test_what_cannot_be_is_refused(table: PartitionTable, asked: dict[str, object], word: str) -> None:
    with pytest.raises(PlanError, match=word):
        divide(table, GPU, **asked)
