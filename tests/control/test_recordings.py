"""Every command of the recorded transcripts is judged and parsed, and comes out as the transcript reads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from control.transcripts import DATA, Recorded, recorded
from mpstui.control import legacy
from mpstui.control.answer import Outcome
from mpstui.control.wire import ClientContext, DeviceClients, DeviceQuery, PsRow, QueriedDevice

GIB = 1 << 30
H100 = "NVIDIA H100 80GB HBM3"
HOST = 4026531836
NOT_ANSWERED = "not answered"
"""The recorder gave up: there is no text to judge."""


def row(pid: int, number: int, server: int, device: str, namespace: int = HOST, command: str = "/tmp/client") -> PsRow:
    return PsRow(pid, number, server, device, namespace, command)


def listed(ordinal: int, name: str, *contexts: tuple[int, int]) -> DeviceClients:
    return DeviceClients(ordinal, f"00:0{ordinal}.0", name, tuple(ClientContext(*pair) for pair in contexts))


def queried(*uuids: str, name: str = H100) -> tuple[QueriedDevice, ...]:
    return tuple(QueriedDevice(i, f"0000:00.0{6 + i}.00", uuid, name, "N/A") for i, uuid in enumerate(uuids))


def refused(text: str) -> tuple[Outcome, str]:
    return (Outcome.REFUSED, text)


ABSENT = (Outcome.ABSENT, "No control daemon answers there.")
FIRST = "GPU-c6233a33-3507-69ef"
SECOND = "GPU-51dbd800-8a65-a8fc"
FIRST_DEVICES = queried("GPU-c6233a33-3507-69ef-fed3-0090a2cbc745")
SECOND_DEVICES = queried("GPU-51dbd800-8a65-a8fc-d0ec-7abe3f1ec476")
THREE_ROWS = (row(645, 2, 634, FIRST), row(643, 3, 634, FIRST), row(644, 4, 634, FIRST))
THREE_CONTEXTS = (listed(0, H100, (645, 1), (644, 1), (643, 1)),)
FOUR = (
    "GPU-130f1685-9f54-cf96-d47a-0de868922083",
    "GPU-c0854c33-5d8c-25ba-ecaf-9b4f9628b105",
    "GPU-30bc6a1c-3e3c-c13e-bb27-81232f82b77d",
    "GPU-859a2bc5-02e2-fc44-221e-f0f5cfb5a8b6",
)
FOUR_DEVICES = queried(*FOUR, name="NVIDIA H200")
ONE_WAITS = (row(2843, 164, 1402, SECOND),)

COMMANDS: list[tuple[str, Any]] = [
    ("get_server_list", ABSENT),
    ("ps", ABSENT),
    ("help", refused('Unknown command "help".')),
    ("?", refused('Unknown command "?".')),
    ("-h", refused('Unknown command "-h".')),
    ("get_server_list", ()),
    ("ps", ()),
    ("ps -p 1", refused("Server 1 not found.")),
    ("get_device_client_list", ()),
    ("get_default_active_thread_percentage", 100.0),
    ("get_default_device_pinned_mem_limit 0", None),
    ("get_default_client_priority", 0),
    ("device_query", DeviceQuery(FIRST_DEVICES, {})),
    ("lspart", refused('Unknown command "lspart".')),
    ("get_server_status 1", refused("Server 1 not found.")),
    ("get_client_list 1", refused("Server 1 not found.")),
    ("bogus_command", refused('Unknown command "bogus_command".')),
    ("", refused('Unknown command "".')),
    ("get_server_list", (634,)),
    ("get_server_status 634", "ACTIVE"),
    ("get_client_list 634", (645, 643, 644)),
    ("ps", THREE_ROWS),
    ("ps -p 634", THREE_ROWS),
    ("get_device_client_list", THREE_CONTEXTS),
    ("get_device_client_list 634", THREE_CONTEXTS),
    ("get_default_active_thread_percentage", 100.0),
    ("get_active_thread_percentage 634", 100.0),
    ("get_default_device_pinned_mem_limit 0", None),
    ("get_device_pinned_mem_limit 634 0", None),
    ("get_default_client_priority", 0),
    ("device_query", DeviceQuery(FIRST_DEVICES, {634: FIRST_DEVICES})),
    ("lspart", refused('Unknown command "lspart".')),
    ("ps -p 999999", refused("Server 999999 not found.")),
    ("get_client_list 999999", refused("Server 999999 not found.")),
    ("get_active_thread_percentage 999999", refused("Server 999999 not found.")),
    ("set_default_active_thread_percentage 50", 50.0),
    ("get_default_active_thread_percentage", 50.0),
    ("set_default_active_thread_percentage 33.3", 33.3),
    ("get_default_active_thread_percentage", 33.3),
    ("set_default_active_thread_percentage 0", 33.3),
    ("set_default_active_thread_percentage 101", 33.3),
    ("set_default_active_thread_percentage -5", 33.3),
    ("set_default_active_thread_percentage abc", 33.3),
    ("set_default_active_thread_percentage", 33.3),
    ("get_default_active_thread_percentage", 33.3),
    ("set_active_thread_percentage 634 25", 25.0),
    ("get_active_thread_percentage 634", 25.0),
    ("set_active_thread_percentage 999999 25", refused("Server 999999 not found.")),
    ("set_active_thread_percentage 634 0.1", 0.1),
    ("get_active_thread_percentage 634", 0.1),
    ("set_default_device_pinned_mem_limit 0 10G", None),
    ("get_default_device_pinned_mem_limit 0", 10 * GIB),
    ("set_default_device_pinned_mem_limit 0 512MB", None),
    ("set_default_device_pinned_mem_limit 0 512M", None),
    ("set_default_device_pinned_mem_limit 7 1G", None),
    ("get_default_device_pinned_mem_limit 7", GIB),
    ("set_default_device_pinned_mem_limit 0 -1G", None),
    ("set_default_device_pinned_mem_limit 0 0G", None),
    ("set_default_device_pinned_mem_limit 0 abc", None),
    ("set_default_device_pinned_mem_limit 0", None),
    ("set_device_pinned_mem_limit 634 0 2G", None),
    ("get_device_pinned_mem_limit 634 0", 2 * GIB),
    ("get_device_pinned_mem_limit 634", None),
    ("set_device_pinned_mem_limit 999999 0 2G", refused("Server 999999 not found.")),
    ("set_device_pinned_mem_limit 634 5 2G", None),
    ("set_default_client_priority 1", None),
    ("get_default_client_priority", 1),
    ("set_default_client_priority 7", refused("Invalid priority value - must be 0 or 1!")),
    ("set_default_client_priority 0", None),
    ("start_server -uid 0", None),
    ("start_server -uid nosuch", refused("A user id (UID) is required to start a new server.")),
    ("quit_if_idle", refused('Unknown command "quit_if_idle".')),
    ("set_active_thread_percentage 634 100", 100.0),
    (f"set_device_pinned_mem_limit 634 {FIRST_DEVICES[0].uuid} 3G", None),
    (f"get_device_pinned_mem_limit 634 {FIRST_DEVICES[0].uuid}", 3 * GIB),
    ("get_device_pinned_mem_limit 634 0", 3 * GIB),
    ("terminate_client 634 999999", refused("Invalid process 999999!")),
    ("terminate_client 999999 645", refused("Server 999999 not found.")),
    ("terminate_client 634 645", None),
    ("ps", THREE_ROWS),
    ("get_client_list 634", (645, 643, 644)),
    ("terminate_client 634 645", NOT_ANSWERED),
]
FAULTS: list[tuple[str, Any]] = [
    ("start_server -uid 0", None),
    *[("get_server_status 453", "ACTIVE")] * 8,
    ("ps", (row(882, 4, 453, SECOND, 4026532266),)),
    ("get_client_list 453", (882,)),
    ("get_device_client_list", (listed(0, H100, (882, 1)),)),
    ("get_server_status 453", "ACTIVE"),
    ("terminate_client 453 936", None),
    ("get_server_status 453", "ACTIVE"),
    ("ps", (row(936, 5, 453, SECOND),)),
    ("ps", ()),
    ("terminate_client 453 992", None),
    ("get_server_list", NOT_ANSWERED),
    ("get_server_list", (453,)),
    ("ps", ()),
    ("get_server_status 1073", "FAULT"),
    ("ps", (row(1067, 2, 1073, SECOND),)),
    ("ps", (row(1133, 1, 1140, SECOND), row(1134, 3, 1140, SECOND))),
    ("get_server_status 1140", "ACTIVE"),
    ("get_server_list", (1140,)),
]
USERS: list[tuple[str, Any]] = [
    ("get_server_list", (2858,)),
    ("device_query", DeviceQuery(SECOND_DEVICES, {2858: SECOND_DEVICES})),
    ("quit", None),
    ("ps", ONE_WAITS),
    ("get_server_list", (1402,)),
    ("ps", ONE_WAITS),
    ("get_server_list", (1402,)),
    ("ps", ()),
    ("quit -t 2", None),
    ("get_server_list", ABSENT),
    ("quit", None),
    ("shutdown_server 3067", None),
    ("get_server_list", (3067,)),
    ("shutdown_server 3067 -f", None),
    ("get_server_list", (3067,)),
    ("get_server_list", ()),
    ("get_server_list", ABSENT),
    ("get_server_list", ()),
    ("get_server_list", (3193,)),
    ("ps", (row(3187, 1, 3193, SECOND), row(3194, 2, 3193, SECOND))),
    ("quit", None),
]
AFFINITY: list[tuple[str, Any]] = [
    ("get_server_list", (Outcome.HELD, "Another process keeps a control session open.")),
    ("get_server_list", (451,)),
]
CONTAINMENT: list[tuple[str, Any]] = [
    (
        "ps",
        tuple(
            row(pid, number, 910, uuid[:22], command="/tmp/multi")
            for pid, number, uuid in ((904, 1, FOUR[2]), (901, 2, FOUR[0]), (903, 3, FOUR[1]), (902, 4, FOUR[0]))
        ),
    ),
    (
        "get_device_client_list",
        (
            listed(1, "NVIDIA H200", (903, 1), (902, 2)),
            listed(2, "NVIDIA H200", (904, 1)),
            listed(0, "NVIDIA H200", (901, 1), (902, 1)),
        ),
    ),
    ("device_query", DeviceQuery(FOUR_DEVICES, {910: FOUR_DEVICES})),
    ("get_client_list 910", (904, 901, 903, 902)),
    ("get_server_status 910", "ACTIVE"),
    ("set_device_pinned_mem_limit 910 1 2G", None),
    ("get_device_pinned_mem_limit 910 0", None),
    ("get_device_pinned_mem_limit 910 1", 2 * GIB),
    ("get_device_pinned_mem_limit 910 2", None),
    ("get_device_pinned_mem_limit 910 3", None),
]

PARSERS: dict[str, Callable[[bytes], Any]] = {
    "get_server_list": legacy.parse_server_list,
    "get_server_status": legacy.parse_status,
    "get_client_list": legacy.parse_client_list,
    "ps": legacy.parse_ps,
    "get_device_client_list": legacy.parse_device_client_list,
    "device_query": legacy.parse_device_query,
    "get_default_active_thread_percentage": legacy.parse_percentage,
    "set_default_active_thread_percentage": legacy.parse_percentage,
    "get_active_thread_percentage": legacy.parse_percentage,
    "set_active_thread_percentage": legacy.parse_percentage,
    "get_default_device_pinned_mem_limit": legacy.parse_memory_limit,
    "set_default_device_pinned_mem_limit": legacy.parse_nothing,
    "get_device_pinned_mem_limit": legacy.parse_memory_limit,
    "set_device_pinned_mem_limit": legacy.parse_nothing,
    "get_default_client_priority": legacy.parse_number,
    "set_default_client_priority": legacy.parse_nothing,
    "start_server": legacy.parse_nothing,
    "shutdown_server": legacy.parse_nothing,
    "terminate_client": legacy.parse_terminated,
    "quit": legacy.parse_nothing,
}
TRANSCRIPTS = {
    "h100/commands": COMMANDS,
    "h100/faults-kills-limits": FAULTS,
    "h100/users-quit-daemons": USERS,
    "h100/sm-affinity": AFFINITY,
    "h200x4/containment": CONTAINMENT,
}


def cases() -> list[Any]:
    return [
        pytest.param(entry, command, expected, id=f"{entry.place} {entry.command}")
        for name, table in TRANSCRIPTS.items()
        for entry, (command, expected) in zip(recorded(name), table, strict=True)
    ]


@pytest.mark.parametrize(("entry", "command", "expected"), cases())
def test_recorded_answer(entry: Recorded, command: str, expected: Any) -> None:
    assert entry.command == command
    if expected is NOT_ANSWERED:
        assert entry.exit_status == 124
        assert not entry.stdout
        return
    outcome, message = legacy.judge(entry.command, entry.stdout, entry.stderr, entry.exit_status)
    if isinstance(expected, tuple) and expected and isinstance(expected[0], Outcome):
        assert (outcome, message) == expected
        return
    assert (outcome, message) == (Outcome.OK, "")
    value = PARSERS[command.split()[0]](entry.stdout)
    assert value == expected
    assert type(value) is type(expected)


@pytest.mark.parametrize("word", sorted(PARSERS))
def test_every_parser_says_so_when_it_cannot_read(word: str) -> None:
    assert isinstance(PARSERS[word](b"Segmentation fault\n"), legacy.Unreadable)


@pytest.mark.parametrize(
    "text",
    [
        "Insufficient privileges for UID 2001. Control deamon settings can only be modified by the user who started it"
        " or by the root user.",
        "Not enough privilege to execute quit command",
    ],
)
def test_the_recorded_refusals_of_another_user(text: str) -> None:
    assert text in (DATA / "h100/users-quit-daemons.txt").read_text()
    outcome, message = legacy.judge("quit", f"{text}\n".encode(), b"", 0)
    assert outcome is Outcome.NOT_PERMITTED
    assert message.rstrip(".") == text.rstrip(".")
