"""A plan beside what is, and the chain behind a client's limits."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest
from operations.fakes import GPU, OTHER_GPU, PIPE, client, node

from mpstui.core.model import Client, Event, ProcessKey
from mpstui.plan.chain import Chain, limit_chains
from mpstui.plan.planner import make_plan
from mpstui.plan.types import Plan, target_of
from mpstui.plan.whatif import By, tenants, what_if
from mpstui.system.procfs import environment_of, process_key

GIB = 1 << 30
CLIENTS = (
    client(1, GPU, command="python a.py", active_thread_percentage=50.0, gpu_memory={GPU: 5 * GIB}),
    client(2, GPU, command="python b.py", active_thread_percentage=50.0, gpu_memory={GPU: 30 * GIB}),
    client(3, GPU, user="bob", command="vllm serve", active_thread_percentage=25.0, pinned_mem_limits={"0": 20 * GIB}),
    client(4, OTHER_GPU, user="carol", command="far away"),
)
SNAPSHOT = node(*CLIENTS)
DEVICE = SNAPSHOT.devices[0]
DAEMON = SNAPSHOT.daemons[0]


def plan(**options: object) -> Plan:
    target = target_of(DEVICE)
    assert target
    return make_plan(target, "exact", **{"sm_counts": [66, 32], "memory": [10 * GIB, 20 * GIB], **options})


@pytest.mark.parametrize(
    ("by", "patterns", "expected"),
    [
        ("user", (), {"alice": [1, 2], "bob": [3]}),
        ("command", (), {"python": [1, 2], "vllm": [3]}),
        ("command", ("*b.py", "python *"), {"python *": [1], "*b.py": [2], "vllm": [3]}),
        ("client", (), {"1 alice python a.py": [1], "2 alice python b.py": [2], "3 bob vllm serve": [3]}),
    ],
)
def test_tenants(by: By, patterns: tuple[str, ...], expected: dict[str, list[int]]) -> None:
    found = {t.label: [c.pid for c in t.clients] for t in tenants(DAEMON, DEVICE, by, patterns)}
    assert found == expected


def test_users_without_a_name_are_each_one_of_their_own() -> None:
    nameless = (client(pid, GPU, user=None, uid=uid) for pid, uid in ((1, 2001), (2, 2002), (3, 2001)))
    found = tenants(node(*nameless).daemons[0], DEVICE, "user")
    assert {t.label: [c.pid for c in t.clients] for t in found} == {"UID 2001": [1, 3], "UID 2002": [2]}


def test_what_each_tenant_has_and_would_get() -> None:
    shown = what_if(plan(), DEVICE, tenants(DAEMON, DEVICE, "user"))
    alice, bob = shown.rows
    assert (alice.clients, alice.sms_today, alice.sms_planned) == (2, 132, 132)
    assert (alice.memory_used, alice.memory_planned) == (35 * GIB, 20 * GIB)
    assert (bob.sms_today, bob.sms_planned) == (32, 32)
    assert (shown.sms_planned, shown.over_committed) == (164, 32)
    assert shown.misfits == ("2 alice python b.py: uses 30.0 GiB, and its limit would be 10.0 GiB",)
    assert shown.contexts_free == 45
    beside = replace(DEVICE, contexts=60, context_daemons=2)
    assert what_if(plan(), beside, tenants(DAEMON, beside, "user")).contexts_free is None, "48 is not the sum's limit"
    # Alice's two have 50 %, as they would get, but no memory limit; Bob's has 25 %, not the 24.3 % of 32 SMs.
    assert [line.split(":")[0] for line in shown.keeps] == [
        "1 alice python a.py",
        "2 alice python b.py",
        "3 bob vllm serve",
    ]


def test_the_sms_of_a_static_partition_count_once_whoever_shares_it() -> None:
    def of(pid: int, partition: str | None, sms: int | None) -> Client:
        return client(pid, GPU, active_thread_percentage=None, sm_partition=partition, sm_count=sms)

    def today(*clients: Client) -> int | None:
        return what_if(plan(), DEVICE, tenants(node(*clients).daemons[0], DEVICE, "user")).rows[0].sms_today

    both = of(1, "aa", 56), of(2, "aa", 56)
    assert today(*both) == 56
    assert today(*both, of(3, "bb", 32)) == 88
    assert today(*both, of(3, None, None)) is None


def test_who_has_the_share_already_keeps_nothing_old() -> None:
    groups = tenants(node(CLIENTS[2]).daemons[0], DEVICE, "user")
    same = what_if(replace(plan(), shares=(replace(plan().shares[1], percentage=25.0),)), DEVICE, groups)
    assert (same.keeps, same.misfits) == ((), ())
    # The daemon prints 2G of 2500M (fact 32), and a limit of another device is none of this one's.
    odd = plan(sm_counts=[66], memory=[2500 << 20])
    for limits, keeps in (({"0": 2 * GIB}, 0), ({"1": 2500 << 20}, 1)):
        mine = client(1, GPU, OTHER_GPU, active_thread_percentage=50.0, pinned_mem_limits=limits)
        found = what_if(odd, DEVICE, tenants(node(mine).daemons[0], DEVICE, "user"), "0")
        assert len(found.keeps) == keeps


def test_shares_without_tenants_and_tenants_without_shares() -> None:
    few = what_if(plan(), DEVICE, ())
    assert [(row.label, row.clients, row.sms_planned) for row in few.rows] == [("client1", 0, 66), ("client2", 0, 32)]
    many = what_if(plan(sm_counts=[66], memory="none"), DEVICE, tenants(DAEMON, DEVICE, "user"))
    assert many.rows[1].share is None
    assert many.misfits == ("3 bob vllm serve: the plan has no share for it",)
    unknown = what_if(plan(), DEVICE, tenants(node(client(9, GPU)).daemons[0], DEVICE, "user"))
    assert unknown.rows[0].sms_today is None


def limit(time: float, scope: str, what: str, value: str, device: str = "") -> Event:
    server = 634 if scope == "server" else None
    return Event(
        "limit_set", time, PIPE, server, values={"what": what, "scope": scope, "value": value, "device": device}
    )


HISTORY = (
    Event("daemon_started", 1.0),
    limit(2, "default", "active_thread_percentage", "60"),
    limit(3, "default", "pinned_mem_limit", str(8 * GIB), GPU),
    limit(20, "default", "active_thread_percentage", "10"),  # after the server's start
    limit(30, "server", "active_thread_percentage", "50"),
    limit(31, "server", "pinned_mem_limit", str(4 * GIB), "0"),
    limit(32, "server", "pinned_mem_limit", str(GIB), "1"),  # another device
    Event("client_connected", 40.0, pid=643),
    limit(50, "server", "active_thread_percentage", "5"),  # after it connected
)


def chains(
    environment: dict[str, str] | None, events: tuple[Event, ...] = HISTORY, **fields: object
) -> dict[str, Chain]:
    one = client(643, GPU, **fields)
    daemon = node(one).daemons[0]
    daemon = replace(daemon, servers=(replace(daemon.servers[0], start_time=10.0),))
    return {chain.limit: chain for chain in limit_chains(one, daemon, events, environment, SNAPSHOT.devices)}


def values(chain: Chain) -> list[str]:
    return [link.value for link in chain.links]


def test_the_chain_of_a_client() -> None:
    own = {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "18.2", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=2G,1=1G"}
    found = chains(own, active_thread_percentage=18.2, pinned_mem_limits={"0": 2 * GIB}, client_priority=0)
    assert found["active_thread_percentage"].effective == "18.2 %"
    assert values(found["active_thread_percentage"]) == ["60 %", "50 %", "18.2 %"]
    assert values(found["pinned_mem_limit"]) == ["8.0 GiB", "4.0 GiB", "2.0 GiB"]
    assert found["pinned_mem_limit"].effective == "2.0 GiB on device 0"
    assert values(found["client_priority"]) == ["normal", "normal", "not set"]
    assert found["sm_count"].effective == "24 SM"
    assert values(found["sm_count"]) == ["24 SM", "—"]


def test_the_daemons_own_environment_comes_first() -> None:
    """Percentage and priority are the defaults with which it began; its servers inherit the memory limit."""
    one = client(643, GPU, pinned_mem_limits={"0": 2 * GIB})
    names = ("ACTIVE_THREAD_PERCENTAGE", "PINNED_DEVICE_MEM_LIMIT", "CLIENT_PRIORITY")

    def links(*texts: str | None) -> dict[str, list[str]]:
        own = {f"CUDA_MPS_{name}": text for name, text in zip(names, texts, strict=True) if text is not None}
        daemon = replace(node(one).daemons[0], environment=own)
        daemon = replace(daemon, servers=(replace(daemon.servers[0], start_time=10.0),))
        events = (HISTORY[0], HISTORY[7])
        return {chain.limit: values(chain) for chain in limit_chains(one, daemon, events, {})}

    found = links("25", "0=2G", "1")
    assert found["active_thread_percentage"] == ["25 %", "25 %", "25 %", "not set"]
    assert found["pinned_mem_limit"] == ["2.0 GiB", "none", "none", "not set"]
    assert found["client_priority"] == ["below normal", "below normal", "below normal", "not set"]
    wrong = links("150", "0=2G,2=1G", "7")
    assert wrong["active_thread_percentage"][1:] == ["100 %", "100 %", "not set"]
    assert wrong["active_thread_percentage"][0].startswith("150, not taken")
    assert wrong["pinned_mem_limit"][0].startswith("0=2G,2=1G, sets no limit")
    assert wrong["client_priority"][1:] == ["normal", "normal", "not set"]
    assert wrong["client_priority"][0].startswith("7, not taken")
    assert links(None, "1=1G", None)["pinned_mem_limit"][0] == "not set"
    assert links(None, None, None)["active_thread_percentage"] == ["100 %", "100 %", "not set"]
    closed = replace(node(one).daemons[0], environment=None)
    assert {values(chain)[0] for chain in limit_chains(one, closed, (), {})} == {"—"}


def test_what_a_daemon_may_have_taken_of_its_environment_is_not_said_to_be_left() -> None:
    """Its default is another one than MPS's own, and the variable is not read as the daemon may read it."""
    one = client(643, GPU)
    own = {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "half", "CUDA_MPS_CLIENT_PRIORITY": "low"}
    daemon = replace(node(one).daemons[0], environment=own)
    daemon = replace(
        daemon,
        servers=(replace(daemon.servers[0], start_time=10.0),),
        default_active_thread_percentage=50.0,
        default_client_priority=1,
    )
    found = {chain.limit: values(chain) for chain in limit_chains(one, daemon, (HISTORY[0], HISTORY[7]), {})}
    assert found["active_thread_percentage"][:2] == ["half", "—"]
    assert found["client_priority"][:2] == ["low", "—"]


def test_a_memory_limit_goes_by_the_clients_own_number_of_the_device() -> None:
    """It sees GPU 1 as its device 0: the server's limit of device 0 is the one that binds it (fact 35)."""
    mine = client(9, OTHER_GPU, pinned_mem_limits={"1": 4 * GIB})
    daemon = node(mine).daemons[0]
    environment = {"CUDA_VISIBLE_DEVICES": OTHER_GPU, "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=8G"}
    found = {chain.limit: chain for chain in limit_chains(mine, daemon, (), environment)}["pinned_mem_limit"]
    assert found.effective == "4.0 GiB on device 1"
    links = {link.label: link.value for link in found.links}
    assert links["its CUDA_VISIBLE_DEVICES"] == "device 0 to it"
    assert links["its environment (CUDA_MPS_PINNED_DEVICE_MEM_LIMIT)"] == "8.0 GiB"


def test_the_servers_links_are_those_of_the_number_that_the_client_has_for_the_device() -> None:
    own = {"CUDA_VISIBLE_DEVICES": f"{OTHER_GPU},{GPU}", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=2G,1=3G"}
    found = chains(own, pinned_mem_limits={"0": GIB})["pinned_mem_limit"]
    assert values(found) == ["device 1 to it", "none", "1.0 GiB", "3.0 GiB"]


def test_unknown_links_stay_unknown() -> None:
    found = chains(None, ())
    assert all(value == "—" for chain in found.values() for value in values(chain))
    # What a client has from its server is known without any history.
    known = chains({}, (), active_thread_percentage=25.0, limit_source={"active_thread_percentage": "server"})
    assert values(known["active_thread_percentage"]) == ["—", "25 %", "not set"]


def test_a_server_that_nobody_set_anything_on_has_the_default() -> None:
    events = (HISTORY[0], HISTORY[1], HISTORY[7])
    assert values(chains({}, events)["active_thread_percentage"]) == ["60 %", "60 %", "not set"]
    assert values(chains({}, (HISTORY[0], HISTORY[7]))["active_thread_percentage"]) == ["100 %", "100 %", "not set"]


@pytest.mark.parametrize(("known", "shown"), [(True, "none on device 0"), (False, "— on device 0")])
def test_no_memory_limit_is_none_where_that_is_known_and_unknown_otherwise(known: bool, shown: str) -> None:
    assert chains({}, HISTORY[7:8], memory_limit_known=known)["pinned_mem_limit"].effective == shown


def test_the_environment_is_read_of_the_same_process_only() -> None:
    me = process_key(os.getpid())
    assert me
    assert environment_of(me) is not None
    assert environment_of(ProcessKey(me.pid, 1)) is None
