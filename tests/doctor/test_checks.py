"""Each check over facts made by hand: what it says where all is well, and where it is not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from mpstui.core import condition
from mpstui.core.model import (
    Client,
    Condition,
    Context,
    Daemon,
    Device,
    PendingClient,
    Problem,
    ProcessKey,
    Server,
    ServerFault,
    Snapshot,
)
from mpstui.core.problems import KINDS
from mpstui.core.text import path_text
from mpstui.core.trust import Speaker
from mpstui.core.v3 import Namespace, V3Node, V3Server
from mpstui.doctor import setup, sharing
from mpstui.doctor.checkup import CHECKS, examine, filesystem_of, growth, is_ours
from mpstui.doctor.types import (
    BinaryFacts,
    DirectoryFacts,
    Facts,
    Finding,
    LogFacts,
    ProcessLimits,
    ShmFacts,
    Stray,
    worst,
)

PIPE = Path("/tmp/mps_0")
GPU, OTHER = "GPU-0", "GPU-1"
NO_CHECK = {
    "pending": "the check of users says who waits for whom",
    "server_ending": "as it was told to, or for a client that waits, which the check of users says",
    "daemon_lies": "the check of users says it",
    "shared_device": "a check of its own, which looks at the same",
    "nvml": "the check of the driver says it",
    "bridge": "how a program is made, and nothing to put right: the status and the blast radius show it",
    "daemon_led_elsewhere": "of who looks for a while; the doctor looks once",
    "outdated": "the settings are right, and hold for new clients: the status shows it",
    "idle": "somebody's question to the status, by idle_minutes",
}
"""Problems of the status that are no check, and why."""
GIB = 1 << 30


def client(pid=643, *gpus, **fields):
    contexts = tuple(Context(number, gpu) for number, gpu in enumerate(gpus or (GPU,), 1))
    return Client(ProcessKey(pid, 1), 634, uid=fields.pop("uid", 0), contexts=contexts, **fields)


def daemon(*clients, **fields):
    server = Server(ProcessKey(634, 1), uid=0, clients=clients, **fields.pop("server", {}))
    values = {
        "key": ProcessKey(480, 1),
        "uid": 0,
        "condition": condition.ok(),
        "version": "13000",
        "driver": "580.1",
        "multiuser": False,
        "default_active_thread_percentage": 100.0,
        "ordinals": {"0": GPU, "1": OTHER},
        "servers": (server,),
    }
    return Daemon(fields.pop("pipe_dir", PIPE), **(values | fields))


def device(uuid=GPU, index=0, **fields):
    values = {"memory_total": 80 * GIB, "compute_mode": "Exclusive_Process", "mig": False, "persistence": True}
    values |= {"contexts": 1}
    return Device(uuid, index, "H100", 132, **(values | fields))


def facts(*daemons, devices=None, problems=(), nvml=None, **fields):
    snapshot = Snapshot(
        1.0,
        driver_version="580.1",
        nvml_detail=nvml,
        daemons=daemons or (daemon(client()),),
        devices=(device(),) if devices is None else devices,
        problems=problems,
    )
    values = {
        "binary": BinaryFacts("/usr/bin/nvidia-cuda-mps-control", "13000"),
        "directories": (place(),),
        "logs": (LogFacts(Path("/var/log/nvidia-mps/control.log"), None, 1 << 20, 1000.0, 10 * GIB),),
        "processes": (ProcessLimits(480, "daemon", 16384, {}), ProcessLimits(634, "server", 65536, {})),
        "shm": ShmFacts(True, 0o1777, GIB),
    }
    return Facts(snapshot, **(values | fields))


def place(**fields):
    values = {"owner": 0, "daemon_uid": 0, "mode": 0o755, "filesystem": "tmpfs", "length": 10}
    return DirectoryFacts(PIPE, **({"state": "running"} | values | fields))


def verdicts(check, given):
    return [finding.verdict for finding in check(given)]


def test_a_node_in_order_gives_no_cause_for_complaint():
    told = {"compute_capability": (9, 0), "gpu_utilization": 90.0, "sm_utilization": 85.0}
    devices = (device(**told), device(OTHER, 1, **told))
    found = examine(facts(devices=devices, client_environments={643: {}}, server_cpus={634: 8}))
    assert {finding.verdict for finding in found} == {"ok"}, [f for f in found if f.verdict != "ok"]
    assert worst(found) == "ok"
    assert {finding.check for finding in found} >= {"driver", "binary", "pipe_dir", "logs", "users", "shm", "mig"}


@pytest.mark.parametrize("mode", [0o777, 0o700])
def test_no_command_is_given_for_what_a_name_of_somebody_elses_leads_to(mode):
    """As user 1234: mkdir -m 777 '/tmp/mps_e;id'. Root was told to run chmod 755 /tmp/mps_e;id; without the id, chmod
    on what by then may be a link to /etc/shadow."""
    odd = replace(place(mode=mode), pipe_dir=Path("/tmp/mps_e;id"))
    (found,) = setup.pipe_directory(facts(directories=(odd,)))
    assert "chmod 755 '/tmp/mps_e;id'" in found.remedy
    (found,) = setup.pipe_directory(facts(directories=(replace(odd, ours=False),)))
    assert "chmod" not in found.remedy
    assert found.remedy.startswith("The owner must set mode 755. Do not change it as root")


def test_another_users_daemon_is_nothing_that_is_wrong_with_the_node():
    """Root was told to run it as root, for one line of its log; what it says of its limits, its devices and its clients
    was wrong with the node, and with root's process that it names."""
    path, theirs = Path("/tmp/mps_1"), {"uid": 60_001, "speaker": Speaker(60_001, "a daemon of 60001")}
    false = client(700, uid=60_001, active_thread_percentage=90.0, pinned_mem_limits={"0": 99 * GIB})
    liar = daemon(*[false] * 9, key=ProcessKey(490, 1), pipe_dir=path, pending=(waiting(0),), **theirs)
    told = {"compute_capability": (9, 0), "gpu_utilization": 90.0, "sm_utilization": 85.0}
    given = facts(
        daemon(client(active_thread_percentage=100.0)),
        liar,
        devices=(device(**told), device(OTHER, 1, **told)),
        client_environments={643: {}, 700: {"CUDA_VISIBLE_DEVICES": "7"}},
        server_cpus={634: 1},
        directories=(place(), replace(place(mode=0o777, owner=60_001, daemon_uid=60_001, ours=False), pipe_dir=path)),
        processes=(ProcessLimits(480, "daemon", 16384, {}), ProcessLimits(490, "daemon", 10, {})),
    )
    found = examine(given)
    assert worst([one for one in found if one.verdict != "unknown"]) == "ok", found[0]
    about = [one for one in found if one.verdict == "unknown"]
    assert {one.check for one in about} == {"pipe_dir", "users", "visible_devices", "open_files", "cpus"}
    assert all(one.evidence.startswith("UID 60001's daemon: ") for one in about)
    assert {one.remedy for one in about} == {"The daemon belongs to UID 60001: leave it to its owner."}


def test_whose_a_directory_is_goes_by_the_way_to_it(tmp_path):
    own, link, hidden = tmp_path / "own", tmp_path / "link", tmp_path / "open" / "own"
    own.mkdir()
    link.symlink_to(own)
    hidden.parent.mkdir(mode=0o777)
    hidden.parent.chmod(0o777)
    hidden.mkdir()
    found = [is_ours(each) for each in (own, link, hidden, tmp_path / "gone")]
    assert found == [True, False, False, False]


def test_who_else_can_lead_commands_elsewhere_is_named():
    """Where the mode does not tell: a group, an access control list, a link of somebody else's on the way."""
    group = Speaker(0, "root's daemon", (1, 2, 3, 3, 4, 4))
    (found,) = setup.pipe_directory(facts(daemon(speaker=group), directories=(place(mode=0o775),)))
    assert (found.verdict, found.remedy) == ("warning", f"chmod 755 {PIPE}")
    assert "its group, or users in its ACL, can replace the daemon's sockets" in found.evidence
    led = Speaker(None, "/tmp/p is a link of somebody else's")
    (found,) = setup.pipe_directory(facts(daemon(speaker=led)))
    assert found.verdict == "warning"
    assert found.evidence.startswith(
        "the owner of the daemon there is not known: /tmp/p is a link of somebody else's; as root"
    )
    (found,) = setup.pipe_directory(facts(daemon(speaker=Speaker(0, "root's daemon"))))
    assert found.verdict == "ok"


SETUP = [
    (setup.activity, {"counting": ("one BPF program", None)}, ["ok"]),
    (setup.activity, {"counting": ("a counter for each thread", "not permitted")}, ["ok"]),
    (setup.activity, {"counting": ("", "it needs root")}, ["unknown"]),
    (setup.activity, {"counting": None}, []),
    (setup.driver, {"nvml": "no device readings: the driver is not loaded"}, ["error"]),
    (setup.binary, {"binary": BinaryFacts(None)}, ["error"]),
    (setup.binary, {"binary": BinaryFacts("/bin/x", None, "it hung")}, ["unknown"]),
    (setup.binary, {"binary": BinaryFacts("/bin/x", "12090")}, ["ok", "warning"]),
    (setup.pipe_directory, {"directories": (place(length=84),)}, ["error"]),
    (setup.pipe_directory, {"directories": (place(length=83),)}, ["ok"]),
    (setup.pipe_directory, {"directories": (place(state="stale"),)}, ["warning"]),
    (setup.pipe_directory, {"directories": (place(state="unusable", detail="not a directory"),)}, ["error"]),
    (setup.pipe_directory, {"directories": (place(filesystem="nfs4"),)}, ["warning"]),
    (setup.pipe_directory, {"directories": (place(filesystem="fuse.sshfs"),)}, ["warning"]),
    (setup.pipe_directory, {"directories": (place(mode=0o777),)}, ["warning"]),
    (setup.pipe_directory, {"directories": (place(mode=0o1777),)}, ["ok"]),
    (setup.pipe_directory, {"directories": (place(mode=0o700),)}, ["warning"]),
    (setup.pipe_directory, {"directories": (place(mode=0o700, daemon_uid=2001, owner=2001),)}, ["ok"]),
    (setup.pipe_directory, {"directories": (place(owner=2001),)}, ["warning"]),
    (setup.logs, {"logs": (LogFacts(PIPE, "no permission"),)}, ["warning"]),
    (setup.logs, {"logs": (LogFacts(PIPE, None, 2 * GIB, None, 10 * GIB),)}, ["warning"]),
    (setup.logs, {"logs": (LogFacts(PIPE, None, 1, 20 * (1 << 20), 10 * GIB),)}, ["warning"]),
    (setup.logs, {"logs": (LogFacts(PIPE, None, 1, 1 << 20, 20 << 20),)}, ["error"]),
    (setup.shared_memory, {"shm": ShmFacts(False)}, ["error"]),
    (setup.shared_memory, {"shm": ShmFacts(True, 0o755, GIB)}, ["warning"]),
    (setup.shared_memory, {"shm": ShmFacts(True, 0o1777, 1 << 20)}, ["warning"]),
    (setup.open_files, {"processes": (ProcessLimits(480, "daemon", 1024),)}, ["warning"]),
    (setup.open_files, {"processes": (ProcessLimits(480, "daemon", None),)}, ["unknown"]),
    (setup.stray_processes, {"strays": (Stray(9, "process", True, 1),)}, ["warning"]),
    (setup.stray_processes, {"strays": (Stray(9, "server", False, 1),)}, ["error"]),
    (setup.stray_processes, {"strays": (Stray(9, "server", False, 1, uid=60_001),)}, ["unknown"]),
    (setup.stray_processes, {"strays": (Stray(9, "daemon", False, uid=60_001, unprintable=True),)}, ["unknown"]),
    (setup.compute_mode, {"devices": (device(compute_mode="Default"),)}, ["warning"]),
    (setup.compute_mode, {"devices": (device(compute_mode="Prohibited"),)}, ["error"]),
    (setup.compute_mode, {"devices": (device(compute_mode=None),)}, ["unknown"]),
    (setup.persistence, {"devices": (device(persistence=False),)}, ["warning"]),
    (setup.persistence, {"devices": (device(persistence=None),)}, ["unknown"]),
    (setup.mig, {"devices": (device(mig=True),)}, ["warning"]),
    (setup.meters, {"devices": (device(),)}, ["ok"]),
    (setup.meters, {"devices": (device(), device(sm_utilization=9.0)), "dcgm": "no dcgmi"}, ["warning"]),
    (setup.meters, {"devices": (device(),), "dcgm": ""}, ["ok"]),
    (setup.meters, {"devices": (device(sm_utilization=9.0),), "dcgm": "no dcgmi"}, ["ok"]),
    (setup.meters, {"devices": (device(sm_utilization=9.0),)}, []),
    (setup.mig, {"devices": (device(mig=None),)}, ["unknown"]),
]


@pytest.mark.parametrize(("check", "given", "expected"), SETUP)
def test_setup(check, given, expected):
    assert verdicts(check, facts(**given)) == expected


def waiting(uid):
    return PendingClient(ProcessKey(99, 1), uid)


def spaces(limit, *clients):
    """A daemon of protocol 3 whose server t has a namespace s with that memory limit."""
    node = V3Node((V3Server("t"),), (Namespace("default", "t"), Namespace("s", "t", pinned_mem_limit=limit)))
    return daemon(*clients, protocol="v3", v3=node, server={"v3": V3Server("t")}, ordinals={"0": GPU, "1": OTHER})


def test_the_limit_of_a_namespace_is_one():
    (finding,) = sharing.memory_limits(facts(spaces("8G")))
    assert finding.evidence == "the memory limits fit the devices"
    (finding,) = sharing.memory_limits(facts(spaces(None)))
    assert finding.evidence == "no memory limit is set"


def test_a_place_without_a_daemon_is_not_told_as_another_users_daemons():
    """It was, once for each of them: "UID 64101's daemon: … no daemon runs here"."""
    theirs = [
        daemon(pipe_dir=Path(f"/tmp/mps_{n}"), uid=n, speaker=Speaker(n, f"a daemon of UID {n}"))
        for n in (64101, 64102)
    ]
    left, log = Path("/tmp/left"), LogFacts(Path("/tmp/log/control.log"), "not there", 0, 1000.0, 1)
    empty = replace(place(state="stale"), pipe_dir=left)
    shown = facts(daemon(client()), *theirs, directories=(place(), empty), logs=(log,))
    found = [finding for finding in examine(shown) if "/tmp/left" in f"{finding}" or "/tmp/log" in f"{finding}"]
    assert found
    assert [finding.evidence for finding in found if "UID 641" in finding.evidence] == []


def test_what_protocol_3_lets_others_do_is_not_known():
    given = facts(daemon(protocol="v3", driver="615.71"), directories=(place(),))
    assert verdicts(setup.strangers, given) == ["unknown"]


def test_a_daemon_of_protocol_3_has_more_than_one_server_for_all_users():
    for protocol, says in (("v3", "each server takes clients of all users"), ("legacy", "one server for the clients")):
        (found,) = sharing.users(facts(daemon(client(), multiuser=True, protocol=protocol)))
        assert says in found.evidence


SHARING = [
    (sharing.users, [daemon(client(), multiuser=True)], {}, ["ok"]),
    (sharing.users, [daemon(client(), multiuser=None)], {}, ["unknown"]),
    (sharing.users, [daemon(client(), pending=(waiting(2001),))], {}, ["warning"]),
    (sharing.users, [daemon(client(), pending=(waiting(0),))], {}, ["ok"]),
    (sharing.users, [daemon(uid=2001, pending=(waiting(2002),))], {}, ["warning"]),
    (sharing.users, [daemon(pending=(waiting(2001),))], {}, ["ok"]),
    (sharing.memory_limits, [daemon(default_pinned_mem_limits={"0": 1 << 20})], {}, ["warning"]),
    (sharing.memory_limits, [daemon(server={"pinned_mem_limits": {"0": 512 << 20}})], {}, ["warning"]),
    (
        sharing.memory_limits,
        [daemon(client(1, pinned_mem_limits={"0": 50 * GIB}), client(2, pinned_mem_limits={"0": 50 * GIB}))],
        {},
        ["warning"],
    ),
    (
        sharing.memory_limits,
        [daemon(client(1, pinned_mem_limits={"0": 50 * GIB}), client(2, OTHER, pinned_mem_limits={"0": 50 * GIB}))],
        {},
        ["ok"],
    ),
    (sharing.memory_limits, [spaces("8G", client(1), client(2))], {}, ["ok"]),
    (sharing.memory_limits, [spaces("50G", client(1, namespace="s"), client(2, namespace="s"))], {}, ["warning"]),
    (sharing.memory_limits, [spaces("50G", client(1, namespace="s"), client(2))], {}, ["ok"]),
    (sharing.memory_limits, [spaces("200G")], {}, ["warning"]),
    (
        sharing.memory_limits,
        [spaces(f"0=8G,{OTHER}=200G")],
        {"devices": (device(), device(OTHER, 1))},
        ["warning"],
    ),
    (sharing.memory_limits, [spaces("0=512M,1=8G")], {}, ["warning"]),
    (sharing.percentages, [daemon(*(client(n, active_thread_percentage=60.0) for n in range(4)))], {}, ["warning"]),
    (sharing.percentages, [daemon(*(client(n, active_thread_percentage=10.0) for n in range(4)))], {}, ["warning"]),
    (sharing.percentages, [daemon(*(client(n, active_thread_percentage=25.0) for n in range(4)))], {}, ["ok"]),
    (sharing.percentages, [daemon(*(client(n, active_thread_percentage=100.0) for n in range(9)))], {}, ["ok"]),
    (sharing.percentages, [daemon(client(1, active_thread_percentage=10.0), client(2))], {}, []),
    (sharing.one_daemon_a_device, [daemon(client()), daemon(pipe_dir=Path("/tmp/mps_1"))], {}, ["warning"]),
    (sharing.one_daemon_a_device, [daemon(client(), ordinals={"0": GPU}), daemon(ordinals={"0": OTHER})], {}, ["ok"]),
]


@pytest.mark.parametrize(("check", "daemons", "given", "expected"), SHARING)
def test_sharing(check, daemons, given, expected):
    assert verdicts(check, facts(*daemons, **given)) == expected


@pytest.mark.parametrize(
    ("own", "wanted", "expected"),
    [
        ({}, "0", ["ok"]),
        ({}, "0,2", ["error"]),
        ({"CUDA_VISIBLE_DEVICES": "2,3"}, "0", ["warning"]),
        ({"CUDA_VISIBLE_DEVICES": "2,3"}, "2,3", ["error"]),
        ({"CUDA_VISIBLE_DEVICES": "GPU-0"}, "GPU-0", ["ok"]),
        ({"CUDA_VISIBLE_DEVICES": "1,0"}, "1,0", ["warning"]),  # remapped twice
        ({"CUDA_VISIBLE_DEVICES": "0,1"}, " 00 , 1 , ", ["ok"]),
        pytest.param({"CUDA_VISIBLE_DEVICES": "0"}, "9" * 5000, ["error"], id="more digits than Python takes"),
        ({"CUDA_VISIBLE_DEVICES": "1,0"}, "0", ["warning"]),
        ({"CUDA_VISIBLE_DEVICES": "0,1"}, "1", ["ok"]),
        ({"CUDA_VISIBLE_DEVICES": "0,1"}, "0,1", ["ok"]),
        ({}, None, ["ok"]),
        (None, "0", ["unknown"]),
    ],
)
def test_numbers_of_devices_are_the_daemons(own, wanted, expected):
    environment = {} if wanted is None else {"CUDA_VISIBLE_DEVICES": wanted}
    given = facts(processes=(ProcessLimits(480, "daemon", 16384, own),), client_environments={643: environment})
    assert verdicts(sharing.visible_devices, given) == expected


@pytest.mark.parametrize(
    ("visible", "expected"), [(None, ["ok"]), (OTHER, ["warning"]), ("1", ["warning"]), ("0,1", ["ok"])]
)
def test_a_limit_that_binds_a_client_on_another_device_than_was_meant(visible, expected):
    """Limits go by the client's own numbers of its devices (fact 35)."""
    limits = {"pinned_mem_limits": {"0": 4 * GIB, "1": 5 * GIB}}
    environment = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    given = facts(daemon(client(643, OTHER), server=limits), client_environments={643: environment})
    assert verdicts(sharing.memory_limits, given) == expected
    if expected == ["warning"]:
        (finding,) = sharing.memory_limits(given)
        assert "the limit of device 0 applies, 4.0 GiB, not the limit of device 1, 5.0 GiB" in finding.evidence


def test_a_clients_words_are_shown_as_text():
    given = facts(
        processes=(ProcessLimits(480, "daemon", 1, {"CUDA_VISIBLE_DEVICES": "\x1b[2J"}),),
        client_environments={643: {"CUDA_VISIBLE_DEVICES": "1"}},
    )
    (finding,) = sharing.visible_devices(given)
    assert "\x1b" not in finding.evidence


def test_problems_of_the_status_are_findings_in_the_same_words():
    problem = Problem("error", "device_full", "GPU 0", "It holds 48 of 48 contexts.", "Wait.")
    found = {f.check: f for f in sharing.from_status(facts(problems=(problem,)))}
    assert found["contexts"] == Finding("contexts", "error", "GPU 0", problem.text, problem.remedy, ("device_full",))
    assert found["outside"].verdict == "ok"
    claim = replace(problem, severity="info", uid=2001)
    assert [f.verdict for f in sharing.from_status(facts(problems=(claim,))) if f.check == "contexts"] == ["unknown"]


def test_of_clients_that_are_not_known_it_is_not_said_that_none_is_lost():
    """Logs up to driver 550 name no client: “no client that is there has lost its contexts”."""
    given = facts(daemon(server={"clients_known": False}))
    (found,) = [f for f in sharing.from_status(given) if f.check == "faults"]
    assert (found.verdict, found.evidence) == ("unknown", "a daemon has not told of its clients")
    assert verdicts(sharing.percentages, facts(daemon(client(1), server={"clients_known": False}))) == []


def test_whose_contexts_are_gone_uses_no_sms():
    """Lost in a fault, or terminated: “2 clients may use 200 % of its SMs in all”."""
    share = {"active_thread_percentage": 100.0}
    lost, ended, runs = client(1, **share), client(2, state="TERMINATED", **share), client(3, **share)
    for confirmed, words in ((True, "1 client may use 100 %"), (False, "2 clients may use 200 %")):
        fault = ServerFault(0.0, (), (lost.key,), confirmed=confirmed)
        (found,) = sharing.percentages(facts(daemon(lost, ended, runs, server={"fault": fault})))
        assert found.evidence.startswith(words)


def test_every_problem_of_the_status_is_a_check_or_is_left_out_with_a_reason():
    checked = [code for codes, _ in sharing._FROM_STATUS.values() for code in codes]
    assert sorted([*checked, *NO_CHECK]) == sorted(KINDS)


def test_users_are_named_as_everywhere_and_by_number_who_has_no_name():
    known = replace(client(), uid=2001, user="alice")
    (found,) = sharing.users(facts(daemon(known, pending=(waiting(2002), replace(waiting(2003), user="bob")))))
    assert found.evidence == "UID 2002, bob wait until the clients of alice have ended"


def test_named_servers_serve_their_users_side_by_side():
    """It said: one user at a time, and nobody waits. That is so of a daemon with one server (fact 21)."""
    (found,) = sharing.users(facts(daemon(protocol="v3")))
    assert (found.verdict, found.evidence) == (
        "ok",
        "multi-user mode is off: each server takes the clients of its own user",
    )


def test_nobody_waits_for_clients_that_are_not_there():
    """It said: UID 2001 waits until the clients of UID somebody have ended, start it with -multiuser-server."""
    (found,) = sharing.users(facts(daemon(pending=(waiting(2001),))))
    assert (found.evidence, found.remedy) == (
        "multi-user mode is off: one user at a time, and UID 2001 waits for a server",
        "",
    )


@pytest.mark.parametrize(
    ("given", "unknown"),
    [
        ({"devices": (), "nvml": "no device readings: the NVIDIA driver is not loaded"}, {"contexts", "outside"}),
        ({"daemons": (daemon(condition=Condition("held", "held"), servers=(), watch="polling"),)}, {"faults"}),
        ({"devices": (device(contexts=None),)}, {"contexts"}),
        ({}, set()),
    ],
)
def test_what_could_not_be_looked_at_is_not_in_order(given, unknown):
    given = dict(given)
    found = sharing.from_status(facts(*given.pop("daemons", ()), **given))
    assert {f.check for f in found if f.verdict == "unknown"} == unknown


@pytest.mark.parametrize(("protocol", "verdict", "told"), [("v3", "ok", False), ("legacy", "warning", True)])
def test_that_a_daemon_is_asked_is_a_warning_only_where_something_can_be_done(protocol, verdict, told) -> None:
    """What a daemon of protocol 3 logs is not known: to ask it is the usual way, and nothing is to be mended."""
    asked = daemon(protocol=protocol, watch="polling", watch_detail="it is asked", watch_remedy="do this")
    problem = Problem("info", "polling", path_text(asked.pipe_dir), "it is asked", "do this")
    found = sharing.from_status(facts(asked, problems=(problem,)))
    (one,) = [each for each in found if each.check == "watching"]
    assert (one.verdict, one.evidence, bool(one.remedy)) == (verdict, "it is asked", told)


def test_the_worst_comes_first_and_decides():
    found = examine(facts(shm=ShmFacts(False), processes=(ProcessLimits(480, "daemon", 1024, {}),)))
    ranks = [finding.verdict for finding in found]
    assert ranks[0] == "error"
    assert ranks == sorted(ranks, key=["error", "warning", "unknown", "ok"].index)
    assert worst(found) == "error"
    assert worst([Finding("x", "unknown", "", ""), Finding("x", "ok", "", "")]) == "unknown"


def test_every_complaint_says_what_to_do():
    for check, given, _ in SETUP:
        for finding in check(facts(**given)):
            assert finding.verdict in {"ok", "unknown"} or finding.remedy or check in {setup.pipe_directory}, finding


def test_a_node_without_anything_is_no_crash():
    bare = Facts(Snapshot(0.0), BinaryFacts(None))
    assert worst(examine(bare)) == "error"
    assert len(CHECKS) == len(set(CHECKS))


MOUNTS = b"""\
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
30 22 0:25 / /mnt/with\\040space rw shared:9 - nfs4 host:/x rw
31 22 0:26 / /run rw - tmpfs tmpfs rw
garbage
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [("/mnt/with space/mps", "nfs4"), ("/run/nvidia-mps", "tmpfs"), ("/runner/mps", "ext4"), ("/", "ext4")],
)
def test_the_file_system_of_a_path(path, kind):
    assert filesystem_of(Path(path), MOUNTS) == kind
    assert filesystem_of(Path(path), b"") is None


def test_growth_is_by_the_times_in_the_log():
    line = b"[2026-11-20 21:%02d:28.598 Control   480] NEW UI\n"
    tail = b"".join(line % minute for minute in range(11))
    assert growth(b"half a line\n" + tail) == pytest.approx((len(tail) + 12) * 6)
    assert growth(line % 1 * 5) is None
    assert growth(b"no times") is None


@pytest.mark.parametrize("driver", ["470.256.02", "535.261.03", "550.163.01", "555.58.02", None])
def test_who_waits_is_offered_nothing_that_the_driver_does_not_have(driver):
    """It was "-d -M": up to 550 that opens a control session on the daemon that runs, and 555 does not know -M."""
    (found,) = sharing.users(facts(daemon(replace(client(), uid=2001), driver=driver, pending=(waiting(2002),))))
    assert "-M" not in found.remedy
    assert "drivers from 555 on" in found.remedy


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, "ok"),
        ({"default_active_thread_percentage": None, "condition": Condition("held", "held")}, "unknown"),
        ({"default_active_thread_percentage": None, "condition": Condition("stale", "stale")}, "ok"),
        ({"default_active_thread_percentage": None, "lacks": frozenset(("get_device_pinned_mem_limit",))}, "ok"),
    ],
)
def test_that_no_memory_limit_is_set_is_said_where_that_was_read(changes, said):
    """Of a daemon that is held, whose defaults are "—" in the status, it said that no limit is set."""
    (found,) = sharing.memory_limits(facts(daemon(**changes)))
    assert found.verdict == said


@pytest.mark.parametrize(("known", "most"), [(True, ""), (False, " at most")])
def test_limits_that_may_be_lower_come_to_no_more_than_that(known, most):
    mine = [client(n, pinned_mem_limits={"0": 50 * GIB}, memory_limit_known=known) for n in (1, 2)]
    (found,) = sharing.memory_limits(facts(daemon(*mine)))
    assert found.evidence == f"the limits of 2 clients come to 100 GiB{most}, and it has 80.0 GiB"
