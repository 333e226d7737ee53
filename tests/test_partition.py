"""The arithmetic of shares against the recording of every percentage from 1 to 100."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from mpstui.core.blast import blast_radius
from mpstui.core.model import Client, Context, Device, ProcessKey, Server
from mpstui.core.partition import next_step, rounding_for, sm_share, smallest_percentage, sms_of

RECORDED = Path(__file__).parent / "data" / "h100" / "faults-kills-limits.txt"
H100 = Device("GPU-0", sm_count=132, compute_capability=(9, 0))


def test_every_recorded_percentage_gives_the_recorded_sms() -> None:
    recorded = {int(p): int(sm) for p, sm in re.findall(r"(\d+) sm (\d+);", RECORDED.read_text())}
    assert len(recorded) == 100
    shares = {p: sm_share(float(p), H100) for p in recorded}
    assert {p: share.count for p, share in shares.items() if share} == recorded
    assert not any(share.estimated for share in shares.values() if share)


@pytest.mark.parametrize(
    ("percentage", "sms"), [(0.1, 8), (33.3, 42), (66.7, 88), (33.34, 44), (100 / 3, 44), (1e-5, 8), (100, 132)]
)
def test_fractions(percentage: float, sms: int) -> None:
    share = sm_share(percentage, H100)
    assert share
    assert share.count == sms


def test_a_third_is_one_step_above_what_33_3_comes_to() -> None:
    assert next_step(33.3, H100) == (33.4, 44)
    assert next_step(33.4, H100) is None, "the next one is farther than what a slip of the hand is"
    assert next_step(100.0, H100) is None
    assert next_step(33.3, Device("GPU-0", sm_count=108, compute_capability=(8, 0))) is None, "a guess is no advice"
    assert next_step(33.3, None) is None


def test_what_is_not_known_stays_unknown() -> None:
    assert sm_share(None, H100) is None
    assert sm_share(50.0, None) is None
    assert sm_share(50.0, Device("GPU-0")) is None
    unmeasured = sm_share(50.0, Device("GPU-0", sm_count=108, compute_capability=(8, 0)))
    assert unmeasured
    assert unmeasured.estimated


@pytest.mark.parametrize(("sms", "percentage"), [(1, 6.1), (8, 6.1), (9, 7.6), (24, 18.2), (60, 45.5), (132, 100.0)])
def test_the_smallest_percentage_for_a_number_of_sms(sms: int, percentage: float) -> None:
    assert smallest_percentage(sms, 132, rounding_for(132, (9, 0))) == percentage


@pytest.mark.parametrize(("sm_count", "capability"), [(132, (9, 0)), (108, (8, 0)), (28, None)])
def test_the_smallest_percentage_gives_the_sms_and_a_smaller_one_does_not(
    sm_count: int, capability: tuple[int, int] | None
) -> None:
    rounding = rounding_for(sm_count, capability)
    for sms in range(rounding.floor + 1, sm_count + 1):
        percentage = smallest_percentage(sms, sm_count, rounding)
        assert 0 < percentage <= 100
        got = sms_of(percentage, sm_count, rounding)
        assert got >= sms
        assert sms_of(round(percentage - 0.1, 1), sm_count, rounding) < got


def test_a_device_known_by_its_sms_alone_is_taken_for_the_measured_one() -> None:
    assert rounding_for(132, None).measured
    assert not rounding_for(132, (8, 0)).measured
    assert not rounding_for(108, None).measured


def server(**devices: str) -> tuple[Server, dict[str, Client]]:
    clients = {
        name: Client(ProcessKey(pid, 1), contexts=tuple(Context(n, gpu) for n, gpu in enumerate(gpus)))
        for pid, (name, gpus) in enumerate(devices.items(), 901)
    }
    return Server(ProcessKey(910, 1), clients=tuple(clients.values())), clients


def lost(served: Server, clients: dict[str, Client], culprit: str) -> set[str]:
    names = {c.key: name for name, c in clients.items()}
    return {names[c.key] for c in blast_radius(served, [clients[culprit].key])}


def test_the_radius_is_the_closure_over_shared_gpus() -> None:
    """The four-GPU recording: A{0} B{0,1} C{1} D{2}; A faulted, A, B and C were lost, D ran on (fact 18)."""
    served, clients = server(A="0", B="01", C="1", D="2")
    assert lost(served, clients, "A") == {"B", "C"}
    assert lost(served, clients, "C") == {"A", "B"}
    assert lost(served, clients, "D") == set()


def test_a_client_on_unknown_devices_is_counted_in() -> None:
    served, clients = server(A="0", B="", D="2")
    assert lost(served, clients, "A") == {"B", "D"}
    assert lost(served, clients, "B") == {"A", "D"}
