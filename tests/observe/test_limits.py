"""Which limits a client has, and whether it would get others now."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from mpstui.core.limits import (
    LimitsInForce,
    by_ordinal,
    effective,
    in_doubt,
    inherited_memory,
    own_memory,
    own_numbers,
    own_percentage,
    own_priority,
)
from mpstui.core.model import (
    DEVICES_VARIABLE,
    MEMORY_VARIABLE,
    PERCENTAGE_VARIABLE,
    PRIORITY_VARIABLE,
    Client,
    Context,
    Daemon,
    OldLimit,
    ProcessKey,
    Server,
)
from mpstui.core.v3 import Namespace, V3Client, V3Device, V3Node, V3Server
from mpstui.observe.problems import find_problems
from mpstui.observe.state import in_namespace
from mpstui.plan.chain import limit_chains

GIB = 1 << 30


def limits(percentage: float | None, **memory: int) -> LimitsInForce:
    sizes = {name.removeprefix("d"): size for name, size in memory.items()}
    return LimitsInForce(percentage, memory=sizes, memory_known=True)


@pytest.mark.parametrize(
    ("told", "ordinals", "sure"),
    [
        ({"0": 2, "5": 2, "GPU-a": 3}, {"0": "GPU-a"}, {"0": 3, "5": 2}),
        ({"0": 2, "5": 2, "GPU-a": 3}, {}, {"GPU-a": 3}),
        ({"GPU-a": 3, "0": 2}, {}, {"0": 2}),
        ({"0": 2, "GPU-a": 3, "5": 1}, {}, {"5": 1}),
        ({"0": 2, "1": 4}, {}, {"0": 2, "1": 4}),
        ({}, {}, {}),
    ],
)
def test_a_limit_that_one_set_later_by_the_other_name_may_have_replaced_is_not_known(told, ordinals, sure) -> None:
    """Logs alone do not tell which number a UUID has: “0: 2.0 GiB” of a server that read back 3G (fact 6)."""
    assert by_ordinal(told, ordinals) == sure


@pytest.mark.parametrize(
    ("own", "then", "now", "outdated"),
    [
        (None, limits(100.0), limits(25.0), True),
        ("10", limits(100.0), limits(25.0), False),
        ("10", limits(100.0), limits(5.0), True),
        ("10", limits(5.0), limits(100.0), True),
        ("10", limits(None), limits(100.0), False),
        (None, limits(100.0), limits(None), False),
    ],
)
def test_outdated_is_who_would_get_another_percentage_now(own, then, now, outdated) -> None:
    environment = {} if own is None else {PERCENTAGE_VARIABLE: own}
    assert bool(effective(then, now, {}, environment).old) is outdated


@pytest.mark.parametrize(("own", "outdated"), [(None, True), ("0=1G", False), ("0=3G", True)])
def test_outdated_is_who_would_get_another_memory_limit_now(own, outdated) -> None:
    environment = {} if own is None else {MEMORY_VARIABLE: own}
    told = effective(limits(100.0, d0=4 * GIB), limits(100.0, d0=2 * GIB), {"0": "GPU-a"}, environment)
    assert bool(told.old) is outdated
    assert not outdated or told.old == (OldLimit("pinned_mem_limits", (3 if own else 4) * GIB, 2 * GIB, "0"),)


@pytest.mark.parametrize(
    ("on", "names"),
    [
        ((), ["0"]),
        (("GPU-aaaa-1",), ["0"]),
        (("GPU-bbbb-2",), []),
        (("GPU-aaaa-1", "GPU-bbbb-2"), ["0"]),
    ],
)
def test_a_memory_limit_of_a_device_that_the_client_is_not_on_is_not_old(on, names) -> None:
    then, now = limits(100.0, d0=4 * GIB, d1=9 * GIB), limits(100.0, d0=2 * GIB, d1=9 * GIB)
    told = effective(then, now, {"0": "GPU-aaaa-1", "1": "GPU-bbbb-2"}, {}, on=on)
    assert [old.device for old in told.old] == names


def test_of_which_device_a_limit_is_may_not_be_known_and_then_it_is_old() -> None:
    told = effective(limits(100.0), limits(50.0, d0=2 * GIB), {}, {}, on=("GPU-bbbb-2",))
    assert [(old.name, old.kept, old.now) for old in told.old] == [
        ("active_thread_percentage", 100.0, 50.0),
        ("pinned_mem_limits", None, 2 * GIB),
    ]


@pytest.mark.parametrize(
    ("default", "own", "priority", "source"),
    [
        (0, "1", 1, "client"),
        (1, "0", 0, "client"),
        (1, None, 1, "default"),
        (0, "7", 0, "default"),
        (None, "", None, None),
        (1, ..., None, None),
    ],
)
def test_a_clients_own_priority_goes_before_the_default(default, own, priority, source) -> None:
    at_connect = LimitsInForce(100.0, priority=default)
    environment = None if own is ... else {} if own is None else {PRIORITY_VARIABLE: own}
    told = effective(at_connect, at_connect, {}, environment)
    assert (told.priority, told.source.get("client_priority")) == (priority, source)


def test_what_the_client_set_itself_may_be_lower_where_its_environment_is_not_known() -> None:
    """10 % of its own under the server's 25 %: no log names it."""
    server = limits(25.0, d0=GIB)
    told, known = effective(server, server, DEVICES, None), effective(server, server, DEVICES, {})
    assert (told.percentage, told.percentage_at_most, told.source) == (25.0, True, {})
    assert (known.percentage, known.percentage_at_most) == (25.0, False)
    assert known.source == {"active_thread_percentage": "server", "pinned_mem_limits": "server"}
    none = effective(limits(None), server, DEVICES, None)
    assert (none.percentage, none.percentage_at_most) == (None, False)


@pytest.mark.parametrize(("read", "environment", "known"), [(True, {}, True), (True, None, False), (False, {}, False)])
def test_no_memory_limit_is_known_where_the_servers_and_the_clients_own_are(read, environment, known) -> None:
    then = LimitsInForce(100.0, memory_known=read)
    assert effective(then, then, {}, environment).memory_known is known


DEVICES = {"0": "GPU-aaaa-1", "1": "GPU-bbbb-2"}


@pytest.mark.parametrize(
    ("visible", "own", "expected"),
    [  # as CUDA clients on two H200s found them, the server's limits being 4G on 0 and 5G on 1 (fact 35)
        (None, None, {"0": 4, "1": 5}),
        ("GPU-bbbb-2", None, {"1": 4}),
        ("1", None, {"1": 4}),
        ("1,0", None, {"1": 4, "0": 5}),
        ("GPU-bbbb-2", "0=2G", {"1": 2}),
        ("GPU-bbbb-2", "0=100G", {"1": 4}),
        ("GPU-bbbb-2", "1=3G", {"1": 4}),  # it does not see a device 1, so its variable limits nothing (fact 43)
        ("GPU-bbbb-2", "0=2G,1=3G", {"1": 4}),
        ("GPU-bbbb-2", "GPU-aaaa-1=3G,0=2G", {"1": 4}),
        (None, "0=1G,2=512MB", {"0": 4, "1": 5}),
        (None, "0=1G,1=2048MB", {"0": 1, "1": 2}),
        (None, " 0 = 1G , 1 = 2g ", {"0": 4, "1": 5}),
        (None, "0=2048M,", {"0": 2, "1": 5}),
        (None, "1GB", {"0": 4, "1": 5}),
        (None, "0=1G,1G", {"0": 4, "1": 5}),
        (None, "=1G", {"0": 4, "1": 5}),
        ("GPU-bbbb-2", "GPU-bbbb-2=3G", {"1": 3}),
        (None, "GPU-bbbb-2=3G", {"0": 4, "1": 3}),
        (None, "1=100G", {"0": 4, "1": 5}),
    ],
)
def test_memory_limits_go_by_the_clients_own_numbers(visible, own, expected) -> None:
    environment = {name: text for name, text in ((DEVICES_VARIABLE, visible), (MEMORY_VARIABLE, own)) if text}
    then = limits(100.0, d0=4 * GIB, d1=5 * GIB)
    told = effective(then, then, DEVICES, environment)
    assert {ordinal: size // GIB for ordinal, size in told.memory.items()} == expected
    assert (told.memory_known, told.old) == (True, ())


@pytest.mark.parametrize(
    ("visible", "numbers"),
    [
        ("GPU-b", {"1": "0"}),
        ("1, 0 ", {"1": "0", "0": "1"}),
        ("1,1", {"1": "0"}),
        ("1,7,0", {"1": "0"}),
        ("GPU-", {}),
        ("", {}),
        ("-1", {}),
    ],
)
def test_the_numbers_that_a_client_has_for_its_devices(visible, numbers) -> None:
    assert own_numbers(DEVICES, visible) == numbers


def test_of_a_client_whose_devices_are_not_understood_nothing_is_known_to_be_none() -> None:
    then = limits(100.0)
    assert not effective(then, then, DEVICES, {DEVICES_VARIABLE: "MIG-x"}).memory_known


def test_without_the_servers_devices_it_is_not_known_whose_the_servers_limit_is() -> None:
    """Driver 535 has no device_query: a limit of device 0 was taken for no limit."""
    then = limits(100.0, d0=4 * GIB)
    told = effective(then, then, {}, {})
    assert (told.memory, told.memory_known) == ({"0": 4 * GIB}, False), "by its number, and of which GPU is not known"
    assert effective(limits(100.0), then, {}, {}).memory_known, "it has none, whichever device is which"
    assert effective(then, then, DEVICES, {}).memory_known


def test_without_the_servers_devices_it_is_not_known_what_the_variable_limits() -> None:
    then = LimitsInForce(100.0, memory_known=True)
    told = effective(then, then, {}, {MEMORY_VARIABLE: "0=1G"})
    assert (told.memory, told.memory_known) == ({}, False)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0=1G", {"0": GIB}),
        ("0=1500MB,1=512M", {"0": 1500 << 20, "1": 512 << 20}),
        ("GPU-bbbb-2=2G", {"1": 2 * GIB}),
        ("0=1G,2=1G", {}),
        ("1GB", {}),
        ("", {}),
    ],
)
def test_what_a_server_inherits_of_the_daemons_environment(text: str, expected: dict[str, int]) -> None:
    assert inherited_memory({MEMORY_VARIABLE: text}, DEVICES) == expected
    assert inherited_memory(None, DEVICES) is None


@pytest.mark.parametrize(
    ("text", "expected"), [("0=1G,1=512MB", {"0": GIB, "1": 512 << 20}), ("GPU-bbbb-2=2G", None), ("1GB", None)]
)
def test_of_a_driver_that_does_not_tell_its_devices_the_daemons_own_numbers_stand(text, expected) -> None:
    """Up to 555 there is no device_query, and a limit in the daemon's environment would be shown nowhere."""
    assert inherited_memory({MEMORY_VARIABLE: text}, {}) == expected
    assert in_doubt(expected, "535.261.03")


@pytest.mark.parametrize(("devices", "expected"), [(2, {}), (8, {"0": GIB, "7": GIB}), (None, {"0": GIB, "7": GIB})])
def test_but_a_number_that_the_node_has_no_device_of_drops_the_others(devices: int | None, expected) -> None:
    """As of a client's (fact 43); None: how many there are is not known."""
    assert inherited_memory({MEMORY_VARIABLE: "0=1G,7=1G"}, {}, devices) == expected


@pytest.mark.parametrize(
    ("driver", "severity", "word"),
    [("580.159.04", "warning", "it limits no client"), ("535.261.03", "info", "not known")],
)
def test_a_memory_limit_of_the_daemons_environment_is_told_beside_a_default_of_none(driver, severity, word) -> None:
    inherited = {"0": 2 * GIB}
    environment = {MEMORY_VARIABLE: "0=2G"}
    known = Daemon(Path("/d"), environment=environment, inherited_mem_limits=inherited, driver=driver)
    (problem,) = [each for each in find_problems([known], [], None) if each.code == "daemon_environment"]
    assert (problem.severity, "0=2G" in problem.text, word in problem.text) == (severity, True, True)


@pytest.mark.parametrize(
    ("text", "default", "said"), [("abc", 100.0, True), ("abc", None, True), ("abc", 7.0, False), ("30", 100.0, False)]
)
def test_a_default_in_force_is_not_said_to_be_set_by_nothing(text: str, default: float | None, said: bool) -> None:
    """A daemon may read its variable otherwise than mpstui does: what it answers goes before."""
    known = Daemon(Path("/d"), environment={PERCENTAGE_VARIABLE: text}, default_active_thread_percentage=default)
    assert said == any(each.code == "daemon_environment" for each in find_problems([known], [], None))


@pytest.mark.parametrize(("default", "said"), [(0, True), (None, True), (1, False)])
def test_nor_is_a_default_priority(default: int | None, said: bool) -> None:
    known = Daemon(Path("/d"), environment={PRIORITY_VARIABLE: "x"}, default_client_priority=default)
    assert said == any(each.code == "daemon_environment" for each in find_problems([known], [], None))


@pytest.mark.parametrize(
    ("set_", "own", "size", "source"),
    [({"d0": 4 * GIB}, None, 4, "server"), ({}, "0=1G", 1, "client"), ({"d0": 2 * GIB}, "0=3G", 2, "server")],
)
def test_the_lower_of_what_is_set_and_its_own(set_, own, size, source) -> None:
    then = limits(100.0, **set_)
    environment = {} if own is None else {MEMORY_VARIABLE: own}
    told = effective(then, then, {"0": "GPU-aaaa-1"}, environment)
    assert (told.memory, told.source["pinned_mem_limits"]) == ({"0": size * GIB}, source)
    assert (told.memory_known, told.old) == (True, ())
    assert not effective(then, then, {"0": "GPU-aaaa-1"}, environment, doubt=True).memory_known


@pytest.mark.parametrize(
    ("inherited", "driver", "doubt"),
    [
        ({"0": GIB}, "580.159.04", False), ({"0": GIB}, "555.58.02", True), ({"0": GIB}, None, True),
        ({}, "555.58.02", False), (None, "580.159.04", True),
    ],
)  # fmt: skip
def test_what_the_daemons_environment_names_of_memory_limits_nobody_with_580(inherited, driver, doubt) -> None:
    """Fact 57; of other drivers nobody knows it."""
    assert in_doubt(inherited, driver) is doubt


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("100", 100.0), ("100.5", None), ("101", None), ("0", None), ("0.5", 0.5), ("nan", None), ("", None),
        # As a daemon of driver 580 reads them, and its clients.
        ("50%", 50.0), ("0x1e", 30.0), ("30,5", 30.0), ("10abc", 10.0), ("3_0", 3.0), ("\u0663\u0660", None),
        (" 30", 30.0), ("30 ", 30.0), ("+30", 30.0), ("1e1", 10.0), ("-5", None), ("1e", 1.0), ("abc", None),
        ("0x", None), (".5", 0.5), ("0x" + "f" * 400, None), ("9" * 400, None),
    ],
)  # fmt: skip
def test_a_percentage_of_an_environment_is_above_0_and_at_most_100(text: str, value: float | None) -> None:
    assert own_percentage(text) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0), ("1", 1), ("01", 1), (" 1", 1), ("1x", 1), ("1.0", 1), ("2", None), ("10", None), ("-1", None),
        ("x", None), ("", None), ("\u0661", None), ("1" * 400, None),
    ],
)  # fmt: skip
def test_a_priority_of_an_environment_is_the_number_that_it_begins_with(text: str, value: int | None) -> None:
    assert own_priority(text) == value


UUID = "GPU-5beddb9d-0000-0000-0000-000000000000"


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        ("00=4G", {"0": 4 * GIB}), ("GPU-5beddb9d=4G", {"0": 4 * GIB}), (f"{UUID}=4G", {"0": 4 * GIB}),
        (" 0 = 4G", {}), ("0=4G,0=6G", {"0": 4 * GIB}), ("0=6G,0=4G", {"0": 4 * GIB}), ("0=4G,", {"0": 4 * GIB}),
        ("4G", {}), ("0:4G", {}), ("0=4G,1=2G", {}), ("GPU-x=4G", {}),
    ],
)  # fmt: skip
def test_a_memory_limit_of_an_environment_is_what_a_client_was_seen_to_get(text: str, sizes: dict[str, int]) -> None:
    assert own_memory(text, {"0": "0"}, {"0": UUID}) == sizes


@pytest.mark.parametrize(
    ("space", "environment", "percentage", "known"),
    [
        (25.0, None, 25.0, True),
        (25.0, {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "50"}, 25.0, True),
        (None, {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "50"}, 50.0, True),
        (None, {}, None, True),
        (None, {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "all"}, None, False),
        (None, None, None, False),  # its environment may not be read
    ],
)
def test_that_a_client_of_a_namespace_has_no_percentage_is_known_or_not(space, environment, percentage, known) -> None:
    spaces = (Namespace("open", "training", active_thread_percentage=space),)
    node = V3Node((V3Server("training", pid=60),), spaces, (V3Client(7, "training", "0", "open"),))
    found = in_namespace(Client(ProcessKey(7), server_pid=60), environment, node)
    assert (found.active_thread_percentage, found.percentage_known) == (percentage, known)
    nowhere = in_namespace(Client(ProcessKey(8), server_pid=60), {}, node)
    assert (nowhere.active_thread_percentage, nowhere.percentage_known) == (None, False)


@pytest.mark.parametrize(
    ("own", "memory", "source"),
    [
        (None, {"0": 8, "1": 8}, "namespace"),
        ("0=4G", {"0": 4, "1": 8}, "client"),
        ("0=16G", {"0": 8, "1": 8}, "namespace"),
        ("7=4G", {}, None),  # an entry for a GPU that it does not see takes every limit away
    ],
)
def test_a_client_of_a_namespace_has_its_memory_limit(own: str | None, memory: dict[str, int], source: str | None):
    devices = tuple(V3Device(ordinal=str(n), uuid=f"GPU-{n}") for n in range(2))
    space = Namespace("small", "training", pinned_mem_limit="8G", active_thread_percentage=25.0)
    node = V3Node((V3Server("training", pid=60),), (space,), (V3Client(7, "training", "0", "small"),), devices)
    environment = {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "50"}
    environment |= {"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": own} if own else {}
    found = in_namespace(Client(ProcessKey(7), server_pid=60), environment, node)
    assert found.pinned_mem_limits == {number: size << 30 for number, size in memory.items()}
    assert (found.limit_source.get("pinned_mem_limits"), found.memory_limit_known) == (source, True)
    server = Server(ProcessKey(60), v3=node.servers[0], clients=(found,))
    daemon = Daemon(Path("/p"), protocol="v3", v3=node, servers=(server,), ordinals={"0": "GPU-0", "1": "GPU-1"})
    on_first = replace(found, contexts=(Context(1, "GPU-0"),))
    chains = limit_chains(on_first, daemon, (), environment)
    said = {chain.limit: [(link.value, link.label) for link in chain.links] for chain in chains}
    of = "namespace small of server training"
    assert said["active_thread_percentage"] == [
        ("25 %", of), ("50 %", "its environment (CUDA_MPS_ACTIVE_THREAD_PERCENTAGE), without effect"),
    ]  # fmt: skip
    assert said["pinned_mem_limit"][0] == ("8.0 GiB", of)
