"""What a daemon of protocol 3 has, as a file: TOML whatever the daemon says, with what was set and no more."""

from __future__ import annotations

import sys

import pytest

from mpstui.core.v3 import Namespace, V3Node, V3Partition, V3Server
from mpstui.plan.applyfile import apply_file

if sys.version_info >= (3, 11):
    import tomllib
else:
    tomllib = pytest.importorskip("tomli")

NODE = V3Node(
    (V3Server("training", 1000, 7, "Ready", "/p", "GPU-a,GPU-b"), V3Server("serving")),
    (
        Namespace("default", "training", active_thread_percentage=50.0),
        Namespace("small", "training", None, "8G", 25.0, 1),
        Namespace("open", "training"),
    ),
    partitions=(
        V3Partition("large", "training", "GPU-b", 4, 34, True, "created", "GPU-b/x"),
        V3Partition(None, None, "GPU-b", 11, 88, None, "unallocated"),
    ),
    features=("memacct: disabled", "context-share: enabled", "what is this"),
)


def test_what_is_set_is_there_and_what_is_not_is_left_out() -> None:
    text = apply_file(NODE)
    keys = [line for line in text.splitlines() if " = " in line and not line.startswith("schema_version")]
    assert keys
    assert all(line.endswith("# a guess") for line in keys), "no name of a key is documented"
    told = tomllib.loads(text)
    assert told["schema_version"] == "1.0"
    training = told["servers"]["training"]
    assert (training["uid"], training["active_thread_percentage"]) == (1000, 50.0)
    assert "pinned_memory_limit" not in training
    assert training["namespaces"]["small"] == {
        "pinned_memory_limit": "8G", "active_thread_percentage": 25.0, "client_priority": 1
    }  # fmt: skip
    assert training["namespaces"]["open"] == {}
    assert [d["device"] for d in training["devices"]] == ["GPU-a", "GPU-b"]
    assert training["devices"][1]["sm_partitions"] == [{"name": "large", "chunks": 4, "include_remainder": True}]
    assert told["servers"]["serving"] == {}
    assert told["features"] == {"memacct": {"enabled": False}, "context-share": {"enabled": True}}


def test_names_and_values_that_lie_do_not_break_out() -> None:
    evil = V3Node(
        (V3Server("x]\n[servers.y", 0), V3Server("ok", 1, allowed_devices='0"\n[servers.z]\n#')),
        (Namespace("small", "ok", pinned_mem_limit='8G"\nuid = 0 #'), Namespace('a".b', "ok")),
    )
    told = tomllib.loads(apply_file(evil))
    assert list(told["servers"]) == ["ok"]
    assert list(told["servers"]["ok"]["namespaces"]) == ["small"]
    assert told["servers"]["ok"]["uid"] == 1
