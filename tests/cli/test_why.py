"""``why`` and ``explain``."""

from __future__ import annotations

import os

import pytest

from mpstui.sim.node import SimNode

from .conftest import Mpstui
from .test_schema import check


def test_a_client_and_who_is_none(node: SimNode, mpstui: Mpstui) -> None:
    client = node.spawn("busy", user="alice")
    told = mpstui("why", str(client.pid), "--pipe-dir", node.pipe_dir)
    assert told.status == 0, told
    assert f"Process {client.pid} (alice" in told.out
    assert "is a client of server" in told.out
    told = mpstui("why", str(os.getpid()), "--json", "--pipe-dir", node.pipe_dir)
    assert told.status == 0, told
    check("why", told.json)
    assert told.json["is_client"] is False
    assert told.json["reasons"][0]["code"] in {"no_variable", "no_daemon"}
    assert told.json["sentence"].startswith(f"Process {os.getpid()} ")


@pytest.mark.parametrize("pid", ["0", "-1", "x", "99999999999999999999", "4194303"])
def test_no_process(node: SimNode, mpstui: Mpstui, pid: str) -> None:
    told = mpstui("why", pid, "--pipe-dir", node.pipe_dir)
    assert told.status == 2
    assert "there is no process 4194303 here" in told.err or "is no process id" in told.err or "usage" in told.err


CODES = {
    "46": "CUDA_ERROR_DEVICE_UNAVAILABLE", "805": "CUDA_ERROR_MPS_CONNECTION_FAILED",
    "806": "CUDA_ERROR_MPS_RPC_FAILURE", "807": "CUDA_ERROR_MPS_SERVER_NOT_READY",
    "808": "CUDA_ERROR_MPS_MAX_CLIENTS_REACHED", "809": "CUDA_ERROR_MPS_MAX_CONNECTIONS_REACHED",
    "810": "CUDA_ERROR_MPS_CLIENT_TERMINATED", "915": "CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION",
}  # fmt: skip


@pytest.mark.parametrize(("code", "name"), CODES.items())
def test_the_errors_of_mps(mpstui: Mpstui, code: str, name: str) -> None:
    told = mpstui("explain", code)
    assert told.status == 0, told
    assert name in told.out
    assert "→" in told.out
    by_name = mpstui("explain", name.lower(), "--json")
    check("error", by_name.json)
    assert by_name.json["code"] == int(code)
    assert by_name.json["causes"]


def test_the_client_that_is_one_too_many_is_explained_under_both_of_its_errors(mpstui: Mpstui) -> None:
    """The 49th gets 808 of the driver API, and the runtime API makes 46 of it (fact 31)."""
    for code, other in (("46", "808"), ("808", "46")):
        full = next(cause for cause in mpstui("explain", code, "--json").json["causes"] if "48" in cause)
        assert other in full, code


def test_all_errors_and_one_that_is_not_known(mpstui: Mpstui) -> None:
    assert {line.split()[0] for line in mpstui("explain").out.splitlines()} >= set(CODES)
    for wrong in ("7777", "cudaErrorNone", "-5", "\x1b[2J", "9" * 5000):
        told = mpstui("explain", "--", wrong)
        assert told.status == 2
        assert "there are: " in told.err
        assert "\x1b" not in told.err
