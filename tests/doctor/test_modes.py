"""What the doctor says of static partitions and of namespaces."""

from __future__ import annotations

import pytest

from mpstui.core.model import Chunks, PartitionTable, SmPartition, Snapshot
from mpstui.core.v3 import V3Node
from mpstui.doctor import modes, sharing
from mpstui.doctor.types import BinaryFacts, Facts

from .test_checks import GPU, client, daemon

FULL = PartitionTable((Chunks(GPU, 0, 15, 12, 120),), (SmPartition(GPU, "a", 15, 120, True),))


def found(one, environments=None, check=modes.partitions):
    facts = Facts(Snapshot(0.0, daemons=(one,)), BinaryFacts(None), client_environments=environments or {})
    return [(finding.verdict, finding.subject, finding.evidence) for finding in check(facts)]


def static(*clients, **fields):
    return daemon(*clients, static_partitioning=True, **fields)


def test_sms_in_no_chunk_and_how_many_are_used() -> None:
    said = found(static(partitions=FULL))
    assert {verdict for verdict, _, _ in said} == {"ok"}
    assert "12 SMs are in no chunk" in said[0][2]
    assert "1 static partition, 1 in use" in said[1][2]


@pytest.mark.parametrize(
    ("fields", "verdict", "word"),
    [
        ({"partitions": None, "partitions_detail": "no answer"}, "unknown", "not known: no answer"),
        ({"partitions": PartitionTable((Chunks(GPU, 15, 0, 132, 0),))}, "warning", "915"),
        (
            {"partitions": FULL, "environment": {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "50\x1b[2J"}},
            "warning",
            "no effect",
        ),
        ({"partitions": PartitionTable(FULL.devices, FULL.partitions, ("odd",))}, "unknown", "not understood: odd"),
    ],
)
def test_what_is_wrong_with_the_daemon(fields: dict[str, object], verdict: str, word: str) -> None:
    said = found(static(**fields))
    assert any(v == verdict and word in evidence for v, _, evidence in said), said
    assert all(evidence.isprintable() for _, _, evidence in said)


def test_a_client_that_names_a_partition_that_is_gone() -> None:
    said = found(static(client(7, sm_partition=f"{GPU}/old"), client(8, sm_partition=f"{GPU}/a"), partitions=FULL))
    assert [subject for verdict, subject, _ in said if verdict == "warning"] == ["client 7"]
    # Of a daemon without static partitions the check of the variables says it, once.
    environments = {7: {"CUDA_MPS_SM_PARTITION": "x"}, 8: {}}
    without = daemon(client(7), client(8), static_partitioning=False, protocol="legacy")
    assert found(without, environments) == []
    vain = found(without, environments, sharing.variables)
    assert [s for v, s, _ in vain if v == "warning"] == ["client 7"]


def test_a_percentage_that_a_namespace_overrides() -> None:
    one = client(7, namespace="small", limit_source={"active_thread_percentage": "namespace"})
    environments = {7: {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "80"}}
    (said,) = found(daemon(one, protocol="v3", v3=V3Node()), environments, modes.namespaces)
    assert "namespace small has its own" in said[2]
    assert found(daemon(one, protocol="v3", v3=V3Node()), {}, modes.namespaces) == []
