"""Variables that clients were started with, limits of cgroups, devices in parts: named, and nothing is done by them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from mpstui.core.model import Daemon, Event
from mpstui.doctor import sharing
from mpstui.plan.variables import DOES, MOST, variables_of
from mpstui.system import procfs
from mpstui.system.procfs import CgroupMemory, read_cgroup_memory
from tests.doctor.test_checks import GIB, client, daemon, facts

SERVED = Daemon(Path("/tmp/mps_0"), ordinals={"0": "GPU-0", "1": "GPU-1"}, protocol="legacy")


def one(environment, in_force=None, daemon=SERVED):
    (found,), more = variables_of(environment, daemon, in_force)
    assert more == 0
    return found


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("CUDA_MPS_DEVICE_MEM_LIMIT", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"),
        ("CUDA_MPS_PINNED_MEM_LIMIT", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"),
        ("CUDA_MPS_ACTIVE_THREADS_PERCENTAGE", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"),
        ("CUDA_MPS_THREAD_PERCENTAGE", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"),
        ("CUDA_MSP_ACTIVE_THREAD_PERCENTAGE", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"),
        ("CUDA_MPS_active_thread_percentage", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"),
        ("CUDA_DEVICE_MAX_CONECTIONS", "CUDA_DEVICE_MAX_CONNECTIONS"),
        ("CUDA_MPS_PRIORITY", "CUDA_MPS_CLIENT_PRIORITY"),
        ("cuda_mps_pipe_directory", "CUDA_MPS_PIPE_DIRECTORY"),
        ("CUDA_MPS_PIPE_DIR", "CUDA_MPS_PIPE_DIRECTORY"),
        ("MPS_PIPE_DIRECTORY", "CUDA_MPS_PIPE_DIRECTORY"),
        ("NVIDIA_MPS_CLIENT_PRIORITY", "CUDA_MPS_CLIENT_PRIORITY"),
    ],
)
def test_a_misspelt_variable_is_named_with_the_one_that_was_meant(name: str, meant: str) -> None:
    found = one({name: "1"})
    assert found.trouble == "no variable of this name is known to do anything"
    assert found.remedy == f"Did you mean {meant}?"


def test_a_misspelt_name_is_read_of_a_process_too() -> None:
    """What the kernel tells is looked through for names that somebody may have meant, and for no others."""
    raw = b"cuda_mps_pipe_directory=/a\0MPS_LOG_DIRECTORY=/b\0CUDA_X=1\0HOME=/root\0TIMPS_A=1\0MPSTUI_A=1\0PASSMPS_=x"
    assert procfs._cuda_variables(raw) == {"cuda_mps_pipe_directory": "/a", "MPS_LOG_DIRECTORY": "/b", "CUDA_X": "1"}


def test_what_all_names_begin_with_is_no_likeness() -> None:
    assert one({"CUDA_MPS_FOO": "1"}).remedy == "See the vendor's guide for the name."


@pytest.mark.parametrize("name", ["CUDA_DEVICE_ORDER", "CUDA_HOME", "CUDA_DEVICE_MAX_COPY_CONNECTIONS", "CUDA_PATH"])
def test_other_variables_of_cuda_are_left_alone(name: str) -> None:
    assert variables_of({name: "1"}, SERVED) == ((), 0)


@pytest.mark.parametrize(
    ("environment", "trouble"),
    [
        ({"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=2G"}, ""),
        ({"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=2G,1=700M"}, ""),
        ({"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=2G,1=512M"}, "hardly more than a CUDA context"),
        ({"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "GPU-1=2G"}, ""),
        ({"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "2G"}, "it sets no limit"),
        ({"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=2G,7=2G"}, "then none counts"),
        ({"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "1=2G", "CUDA_VISIBLE_DEVICES": "1"}, "then none counts"),
        ({"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=abc"}, "has no size"),
        ({"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": ""}, "it sets no limit"),
        ({"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "33.3"}, ""),
        ({"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "0"}, "it sets nothing"),
        ({"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "50%"}, "the server's 40 % is lower"),
        ({"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "90"}, "the server's 40 % is lower"),
        ({"CUDA_MPS_CLIENT_PRIORITY": "2"}, "it sets nothing"),
        ({"CUDA_MPS_CLIENT_PRIORITY": "1"}, ""),
        ({"CUDA_DEVICE_MAX_CONNECTIONS": "2"}, ""),
        ({"CUDA_DEVICE_MAX_CONNECTIONS": "32"}, "fewer clients may fit"),
        ({"CUDA_DEVICE_MAX_CONNECTIONS": "many"}, "has no known effect"),
        ({"CUDA_MPS_ENABLE_PER_CTX_DEVICE_MULTIPROCESSOR_PARTITIONING": "1"}, ""),
        ({"CUDA_MPS_ENABLE_PER_CTX_DEVICE_MULTIPROCESSOR_PARTITIONING": "0"}, "has no known effect"),
    ],
)
def test_what_does_nothing_or_costs_something_says_so(environment: dict[str, str], trouble: str) -> None:
    told, _ = variables_of(environment, SERVED, 40.0)
    found = next(each for each in told if each.name != "CUDA_VISIBLE_DEVICES")
    assert found.does == DOES[found.name]
    assert (trouble in found.trouble) if trouble else not found.trouble
    assert bool(found.remedy) == bool(found.trouble)


def test_a_limit_whose_devices_are_not_known_is_not_said_to_set_nothing() -> None:
    assert one({"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=2G"}, daemon=replace(SERVED, ordinals={})).trouble == ""


def test_a_strangers_environment_is_bounded_and_printable() -> None:
    wild = {f"CUDA_MPS_{number}\x1b[2J" + "x" * 5000: "\x1b]52;c;aGk=\x07\n" * 999 for number in range(1000)}
    told, more = variables_of(wild, SERVED)
    assert (len(told), more) == (MOST, 1000 - MOST)
    for each in told:
        assert (each.name + each.value + each.remedy).isprintable()
        assert len(each.name) + len(each.value) < 400


def test_doctor_names_what_each_client_was_started_with() -> None:
    given = facts(daemon(client(643), client(644), client(645), client(646)))
    environments = {
        643: {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "25"},
        644: {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "25"},
        645: {"CUDA_MPS_DEVICE_MEM_LIMIT": "0=2G"},
        646: None,
    }
    found = list(sharing.variables(replace(given, client_environments=environments)))
    assert [(f.verdict, f.subject) for f in found] == [
        ("warning", "client 645"),
        ("ok", "clients 643, 644"),
        ("ok", "client 645"),
        ("unknown", "client 646"),
    ]
    assert found[0].remedy == "Did you mean CUDA_MPS_PINNED_DEVICE_MEM_LIMIT?"
    assert found[0].evidence.startswith("started with CUDA_MPS_DEVICE_MEM_LIMIT: ")  # not what it is set to
    assert found[1].evidence.startswith("started with CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=25 (its share of the SMs")
    assert found[2].evidence == "started without a variable of MPS"


def test_a_client_of_another_pid_namespace_is_not_looked_up_here() -> None:
    given = facts(daemon(client(643, local=False)))
    environments = {643: {"CUDA_MPS_DEVICE_MEM_LIMIT": "0=2G"}}
    (found,) = sharing.variables(replace(given, client_environments=environments))
    assert found.verdict == "unknown"


@pytest.fixture
def cgroups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A hierarchy with a limit above and one below, and a process in it."""
    where = {"path": "/pods/one"}
    real = procfs.read_proc

    def read_proc(path: str, limit: int = 1 << 20) -> bytes | None:
        return f"0::{where['path']}\n".encode() if path == "/proc/643/cgroup" else real(path, limit)

    monkeypatch.setattr(procfs, "read_proc", read_proc)
    (tmp_path / "pods/one").mkdir(parents=True)
    return tmp_path, where


VIDMEM = "nvidia/0000:01:00.0/vidmem"


def test_the_lowest_limit_of_the_cgroups_above_counts(cgroups) -> None:
    root, where = cgroups
    assert read_cgroup_memory(643, str(root)) == ()
    (root / "pods/dmem.max").write_text(f"drm/0000:02:00.0/vram0 1\n{VIDMEM} {4 * GIB}\n")
    (root / "pods/one/dmem.max").write_text(f"{VIDMEM} max\n")
    (root / "pods/one/dmem.min").write_text(f"{VIDMEM} {GIB}\n")
    assert read_cgroup_memory(643, str(root)) == (CgroupMemory(VIDMEM, "/pods", 4 * GIB, GIB),)
    (root / "pods/one/dmem.max").write_text(f"{VIDMEM} {2 * GIB}\nnonsense\n\nnvidia/x y\n")
    assert read_cgroup_memory(643, str(root)) == (CgroupMemory(VIDMEM, "/pods/one", 2 * GIB, GIB),)
    where["path"] = "/../../pods/one"
    assert read_cgroup_memory(643, str(root)) == ()


def test_limits_by_cgroup_are_named() -> None:
    limits = {643: (CgroupMemory(VIDMEM, "/pods/one", 2 * GIB, GIB),)}
    (found,) = sharing.cgroup_memory(facts(cgroup_memory=limits))
    assert (found.verdict, found.subject) == ("ok", "client 643")
    assert "at most 2.0 GiB, 1.0 GiB kept for it, by cgroup /pods/one" in found.evidence
    assert "error 810" in found.evidence


@pytest.mark.parametrize(
    ("ordinals", "verdict", "words"),
    [
        ({"0": "GPU-0"}, None, ""),
        ({"0": "MIG-a", "1": "MIG-b"}, "ok", "are MIG instances"),
        (
            {"0": "GPU-0", "1": "GPU-half"},
            "unknown",
            "memory-locality parts of a GPU (-mlopart), or a GPU that is hidden",
        ),
    ],
)
def test_devices_that_nvml_does_not_list_are_named(ordinals, verdict, words) -> None:
    found = list(sharing.parts_of_devices(facts(daemon(ordinals=ordinals))))
    assert [f.verdict for f in found] == ([verdict] if verdict else [])
    assert all(words in f.evidence for f in found)


def test_a_server_that_was_started_with_parts_by_locality_is_known_by_its_command() -> None:
    given = facts(daemon(ordinals={"0": "GPU-a", "1": "GPU-b"}))
    asked = Event("command", values={"command": "start_server -uid 0 -mlopart"})
    given = replace(given, snapshot=replace(given.snapshot, events=(asked,)))
    (found,) = sharing.parts_of_devices(given)
    assert (found.verdict, found.evidence.endswith("memory-locality parts of a GPU (-mlopart)")) == ("ok", True)


def test_an_eviction_is_told_as_the_claim_that_it_is() -> None:
    from mpstui.control.grammar import LogParser
    from tests.observe.test_logparse import control, server

    (event,) = LogParser("server").feed(
        server("Client {PID: 643, Context: 1} was evicted: memory limit of its cgroup")[0]
    )
    assert (event.kind, event.pid) == ("client_evicted", 643)
    (event,) = LogParser("control").feed(control("Evicting client 645 from GPU-1")[0])
    assert (event.kind, event.pid) == ("client_evicted", 645)


def test_what_a_variable_does_goes_by_the_daemons_mode() -> None:
    share, part = {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "50"}, {"CUDA_MPS_SM_PARTITION": "GPU-0/abc"}
    static, third = replace(SERVED, static_partitioning=True), replace(SERVED, protocol="v3")
    assert "no effect: the daemon was started with static partitions" in one(share, 25.0, static).trouble
    assert one(part, daemon=static).trouble == ""
    assert "was not started with static" in one(part, daemon=replace(SERVED, static_partitioning=False)).trouble
    assert one(part, daemon=replace(third, static_partitioning=False)).trouble == ""
    assert one(part).trouble == ""  # not known
    told = one(share, 25.0, third)
    assert (told.trouble, told.does.endswith("of its namespace overrides it")) == ("", True)
