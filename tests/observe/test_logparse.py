"""Lines of the recorded and of older logs come to the right events; hostile lines to none."""

from __future__ import annotations

import time
from datetime import datetime, timezone

import pytest

from mpstui.control.grammar import LogParser, raw_text
from mpstui.core.faults import fault_reports
from mpstui.history.times import parse_time
from tests.observe.replay import DATA, at, events, fold, lines, shot

RECORDED = [(path, path.stem.rpartition("-")[2]) for path in sorted((DATA / "h100").glob("*.log"))]


def control(*texts: str, pid: int = 480, clock: str = "21:24:28.598") -> list[bytes]:
    return [f"[2026-11-20 {clock} Control {pid:>5}] {text}".encode() for text in texts]


def server(*texts: str, pid: int = 634) -> list[bytes]:
    return [f"[2026-11-20 21:24:28.598 Server {pid:>5}] {text}".encode() for text in texts]


@pytest.mark.parametrize(("at", "other"), [(0, b"<"), (0, b" "), (24, b"x"), (24, b"]")])
def test_a_line_that_does_not_begin_as_all_do_tells_of_no_client(at: int, other: bytes) -> None:
    (line,) = server("Client {PID: 7, Context ID: 0} connected")
    assert [event.kind for event in events("server", [line])] == ["client_connected"]
    (found,) = events("server", [line[:at] + other + line[at + 1 :]])
    assert (found.kind, found.pid, found.time) == ("unknown", None, None)


@pytest.mark.parametrize(
    "line",
    [
        b"[2026-11-20 21:24:28.598 ] Server 634] Client {PID: 7, Context ID: 0} connected",
        b"[2026-11-20 21:24:28.598 Server 6349",  # cut off: what follows may be more digits
    ],
)
def test_a_line_whose_head_does_not_end_after_its_writers_number_is_nobodys(line: bytes) -> None:
    (found,) = events("server", [line])
    assert (found.kind, found.server_pid, found.time) == ("unknown", None, None)


@pytest.mark.parametrize(("path", "kind"), RECORDED, ids=[path.stem for path, _ in RECORDED])
def test_recorded_lines_are_all_known(path, kind):
    strange = [e.detail for e in events(kind, lines(path)) if e.kind == "unknown"]
    assert set(strange) <= {"Unable to accept connection"}


@pytest.mark.parametrize(
    "text",
    [
        "Starting new server 846 for user {}",
        "NEW SERVER {}: Ready",
        "Server {} is ready",
        "Server 846 exited with status {}",
        "Force shutting down server {}",
        "NEW DEBUGGEE 5 from user {}",
        "NEW CLIENT {} from user 0: Server already exists",
        "Failed to start server using uid {}",
    ],
)
def test_of_a_number_that_none_can_be_no_part_is_taken_for_one(text):
    number = "1234567890" * 2
    said = repr(events("control", control(text.format(number)))).replace(number, "")
    assert number[:10] not in said


def test_a_server_that_waits_for_its_clients_is_told_once():
    counts = ((634, 3), (634, 2), (700, 1), (634, 1))
    found = events("control", control(*(f"Server {pid} has {n} active worker threads" for pid, n in counts)))
    assert [(e.kind, e.server_pid) for e in found] == [("server_shutdown_waiting", pid) for pid in (634, 700, 634)]


def test_times_are_local():
    (event,) = events("control", control("Starting control daemon using socket /tmp/mps_0/control"))
    assert event.time == pytest.approx(at("21:24:28.598"))
    assert (event.kind, event.pid) == ("daemon_started", 480)


@pytest.fixture
def berlin(monkeypatch):
    """Where 02:00 to 03:00 of 2026-10-25 was there twice."""
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3")
        time.tzset()
        yield datetime(2026, 10, 25, 0, 0, tzinfo=timezone.utc).timestamp()  # 02:00, for the first time
    time.tzset()


def night(*clocks: str) -> list[bytes]:
    said = "Client {PID: 7, Context ID: 0} connected"
    return [f"[2026-10-25 {clock} Server   634] {said}".encode() for clock in clocks]


def test_an_hour_that_is_there_twice_is_told_in_its_order(berlin):
    clocks = ("01:59:59.000", "02:00:00.000", "02:30:00.000", "02:59:59.000", "02:00:00.000", "02:30:00.000")
    parser = LogParser("server")
    block = b"\n".join([*night(*clocks, "03:00:00.000"), b""])
    minutes = [-1 / 60, 0, 30, 59 + 59 / 60, 60, 90, 120]
    assert [e.time - berlin for e in parser.feed_all(block)] == pytest.approx([60 * minute for minute in minutes])


def test_lines_a_moment_out_of_order_are_not_an_hour_apart(berlin):
    times = [e.time - berlin for e in events("server", night("02:30:00.500", "02:29:59.900", "02:30:01.000"))]
    assert times == pytest.approx([1800.5, 1799.9, 1801])


@pytest.mark.parametrize("again", [0, 1])
def test_what_is_just_written_in_an_hour_that_is_there_twice_is_of_now(berlin, again):
    parser = LogParser("server")
    for line in night("01:30:00.000"):
        parser.feed(line)
    now = berlin + 600 + 3600 * again
    parser.live(lambda: 0.0, lambda: now)
    (event,) = parser.feed(night("02:10:00.000")[0])
    assert event.time == pytest.approx(now)


@pytest.mark.parametrize(
    ("now", "text", "then"),
    [(4200, "02:30", 1800), (4200, "02:05", 3900), (6000, "02:30", 5400), (1200, "02:05", 300), (600, "03:00", -82800)],
)
def test_the_last_time_that_it_was_so_late_may_be_within_the_same_hour(berlin, now, text, then):
    assert parse_time(text, berlin + now) - berlin == then


@pytest.mark.parametrize(
    "stamp",
    [
        "2026-11-20 21:24:9e9999",
        "2026-11-20 21:24:   nan",
        "2026-11-20 21:24:61.000",
        "2026-11-20 21:24:-1.000",
        "9999-12-31 23:59:59.999",
    ],
)
def test_a_time_that_is_none_is_no_time(stamp):
    """It would come before, after or beside every other one, and have no place in a calendar."""
    (event,) = events("server", [f"[{stamp:<23} Server   634] Server has started".encode()])
    assert (event.kind, event.time) == ("unknown", None)


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        (b"plain", "plain"),
        (b"a\x1b[2Jb", "a\\x1b[2Jb"),
        (b"a\nb", "a\\nb"),
        ("ü".encode(), "ü"),
        (b"\xff", "\\xff"),
        (b"x" * 300, "x" * 300),
    ],
)
def test_a_line_is_shown_without_what_a_terminal_would_do(line, shown):
    assert raw_text(line) == shown
    assert raw_text(b"x" * 301) != "x" * 301


def test_a_daemon_that_starts_names_its_directory():
    for socket, values in (
        ("/tmp/mps_0/control", {"pipe_dir": "/tmp/mps_0"}),
        ("/tmp/mps_0/other", {}),
        ("control", {}),
    ):
        (event,) = events("control", control(f"Starting control daemon using socket {socket}"))
        assert (event.kind, dict(event.values)) == ("daemon_started", values)


def test_refused_percentage_sets_nothing():
    told = events(
        "control",
        control(
            "NEW UI",
            "Cmd:set_default_active_thread_percentage 101",
            "Invalid percentage, expected",
            "33.3",
            "UI closed",
        ),
    )
    assert [e.kind for e in told] == ["session_opened", "command", "session_closed"]
    assert told[1].values["refused"] == "1"


def test_what_proves_that_a_command_arrives_is_not_told():
    asked = ["NEW UI", "Cmd:get_default_active_thread_percentage", "100.0", "Cmd:get_server_list", "634", "UI closed"]
    told = events("control", control(*asked))
    assert [e.detail for e in told if e.kind == "command"] == ["asked for: get_server_list"]
    told = events("control", control(*asked[:3], "UI closed"))
    assert [e.detail for e in told if e.kind == "command"] == ["asked for: get_default_active_thread_percentage"]


def test_what_stands_without_a_time_is_an_answer_while_a_session_is_open_and_news_when_none_is():
    trouble = b"An instance of this daemon is already running"
    parser = LogParser("control")
    for line, kinds in (
        (*control("NEW UI"), ["session_opened"]),
        (trouble, []),
        (*control("UI closed"), ["session_closed"]),
        (trouble, ["daemon_error"]),
    ):
        assert [event.kind for event in parser.feed(line)] == kinds


def test_the_end_of_one_server_says_nothing_of_the_contexts_of_another():
    destroyed = [*server("Destroy server context on device 0", pid=700), *server("Exiting", pid=634)]
    told = events("server", [*destroyed, *server("Creating server context on device 0", pid=700)])
    assert [event.kind for event in told] == ["server_context", "server_exited", "server_context"]


def test_percentage_is_the_one_read_back():
    told = events("control", control("Cmd:set_active_thread_percentage 634 25", "25.0", "UI closed"))
    assert told[0].kind == "limit_set"
    assert told[0].server_pid == 634
    assert told[0].values["value"] == "25"
    assert told[0].detail == "server 634: active thread percentage set to 25 %"


@pytest.mark.parametrize(
    ("typed", "size"),
    [
        ("10G", 10 << 30),
        ("512MB", 512 << 20),
        ("512K", 512 << 20),
        ("1.5G", 1 << 20),
        ("1T", 1 << 20),
        ("10", 10 << 20),
        ("-1G", 17179869183 << 30),
        ("0G", 0),
        ("0", 0),
        ("abc", 0),
    ],
)
def test_a_memory_limit_is_what_the_daemon_makes_of_it(typed, size):
    """Fact 26: a wrong one is not ignored, and 0 is how a limit is taken away."""
    asked = f"set_default_device_pinned_mem_limit 0 {typed}"
    told = events("control", control(f"Cmd:{asked}", f"{asked}.", "UI closed"))
    assert [e.kind for e in told] == ["limit_set", "session_closed"]
    assert (told[0].values["value"], told[0].values["scope"], told[0].values["device"]) == (str(size), "default", "0")
    assert told[0].detail.endswith("taken away") == (size == 0)


def test_memory_limit_of_the_server_log():
    (event,) = events("server", server("Device pinned memory limit for device 0 set to 0x80000000 bytes"))
    assert event.values["value"] == str(2 << 30)
    assert event.detail == "server 634: pinned memory limit of device 0 set to 2.0 GiB"


def test_one_that_is_asked_to_end_on_two_contexts_is_not_asked_twice():
    """The two lines were the same, and a second terminate_client blocks the daemon (fact 16)."""
    asks = [f"MPS server requesting client {{PID: 645, Context ID: {number}}} to exit" for number in (1, 2)]
    told = [event.detail for event in events("server", server(*asks))]
    assert told == [f"client 645 is asked to end: its context {number}" for number in (1, 2)]


def test_terminate_refused_and_done():
    told = events("control", control("Cmd:terminate_client 634 999999", "Invalid process 999999!", "1", "UI closed"))
    assert [e.kind for e in told] == ["terminate_requested", "command", "session_closed"]
    told = events("control", control("Cmd:terminate_client 634 645", "0", "UI closed"))
    assert [(e.kind, e.pid) for e in told][:2] == [("terminate_requested", 645), ("terminate_succeeded", 645)]


@pytest.mark.parametrize("number", ["1", "201"])  # fact 28
def test_a_refusal_by_a_bare_number_is_told_with_that(number: str) -> None:
    *_, refused, _ = events("control", control("NEW UI", "Cmd:terminate_client 634 645", number, "UI closed"))
    assert refused.detail == f"refused: terminate_client 634 645 ({number})"
    before = [b"[2026-11-20 21:24:28.100 Server   634] Client {PID: 645, Context ID: 0} connected"]
    node = fold("21:24:30.000", control("Cmd:terminate_client 634 645", number, "UI closed"), before)
    (client,) = shot(node, "21:24:31")[1].clients()
    assert (client.pid, client.terminate_requested) == (645, False), "it may be asked again"


@pytest.mark.parametrize(
    ("command", "answers", "told"),
    [  # of each event its kind, server, process and values
        ("terminate_client 634 645", ["0"], [("terminate_requested", 634, 645), ("terminate_succeeded", 634, 645)]),
        ("terminate_client 634 645", [], [("terminate_requested", 634, 645)]),
        (
            "terminate_client 634 645",
            ["1"],  # a refusal without a word
            [("terminate_requested", 634, 645), ("command", None, 645, "refused=1")],
        ),
        (
            "terminate_client 634 645",
            ["Invalid process 645!", "1"],
            [("terminate_requested", 634, 645), ("command", None, 645, "refused=1")],
        ),
        # What is not that command is no termination, before it in the alphabet or behind it.
        ("what 634 645", ["0"], [("command", None, None)]),
        ("quit 634 645", ["0"], [("command", 634, None, "changes=1")]),
        ("quit", [], [("command", None, None, "changes=1")]),
        ("quit -t 5", [], [("command", None, None, "changes=1")]),
        ("shutdown_server 634 -f", [], [("command", 634, None, "changes=1")]),
        ("ps", [], [("command", None, None)]),
        (
            "set_default_active_thread_percentage 33",
            ["33.0"],
            [("limit_set", None, None, "scope=default", "value=33", "what=active_thread_percentage")],
        ),
        ("set_default_active_thread_percentage", [], [("command", None, None)]),
        ("set_default_active_thread_percentage", ["50.0"], [("command", None, None)]),
        ("set_default_active_thread_percentage 33", [], [("command", None, None)]),
        (
            "set_active_thread_percentage 634 12.5",
            ["12.5"],
            [("limit_set", 634, None, "scope=server", "value=12.5", "what=active_thread_percentage")],
        ),
        ("set_active_thread_percentage 634", ["12.5"], [("command", None, None)]),
        ("set_active_thread_percentage 634 12.5", ["1.2.5"], [("command", None, None)]),
        (
            "set_active_thread_percentage 634 12",
            ["Server 634 is <busy>"],  # nothing was set (fact 45), and 12 is no process
            [("command", None, None, "refused=1")],
        ),
        (
            "set_default_client_priority 1",
            [],
            [("limit_set", None, None, "scope=default", "value=1", "what=client_priority")],
        ),
        ("set_default_client_priority 2", [], [("command", None, None)]),
        ("set_default_client_priority", [], [("command", None, None)]),
        (
            "set_default_device_pinned_mem_limit 0 2G",
            [],
            [("limit_set", None, None, "device=0", "scope=default", f"value={2 << 30}", "what=pinned_mem_limit")],
        ),
        ("set_default_device_pinned_mem_limit 0", [], [("command", None, None)]),
        (
            "set_device_pinned_mem_limit 634 1 2G",
            [],
            [("limit_set", 634, None, "device=1", "scope=server", f"value={2 << 30}", "what=pinned_mem_limit")],
        ),
        (
            "set_device_pinned_mem_limit 634 1 2G more",
            [],
            [("limit_set", 634, None, "device=1", "scope=server", f"value={2 << 30}", "what=pinned_mem_limit")],
        ),
        ("set_device_pinned_mem_limit 634 1", [], [("command", None, None)]),
    ],
)
def test_what_a_command_with_its_answer_tells(command: str, answers: list[str], told: list[tuple[object, ...]]) -> None:
    found = events("control", control("NEW UI", f"Cmd:{command}", *answers, "UI closed"))
    assert [
        (e.kind, e.server_pid, e.pid, *sorted(f"{k}={v}" for k, v in e.values.items() if k != "command"))
        for e in found[1:-1]
    ] == told
    assert {e.values["command"] for e in found[1:-1]} == {command}


def test_the_end_of_a_refusal_whose_command_was_not_read_names_the_server() -> None:
    (told,) = events("control", control("Server 634 is <busy>"))
    assert (told.kind, told.server_pid, told.values["refused"]) == ("command", 634, "1")


@pytest.mark.parametrize(
    ("before", "status", "reason"),
    [
        ([], "807", "fault"),
        ([], "808", "limit"),
        ([], "809", "limit"),
        ([], "801", "unknown"),
        (["MPS server requesting client {PID: 645, Context ID: 1} to exit"], "807", "terminate"),
        (["MPS server requesting client {PID: 645, Context ID: 1} to exit"], "801", "unknown"),
        (["MPS server requesting client {PID: 645, Context ID: 1} to exit"], "809", "limit"),
    ],
)
def test_why_a_client_was_refused(before: list[str], status: str, reason: str) -> None:
    told = f"Failed to accept client {{PID: 700, Context ID: 0}} with status {status}"
    event = events("server", server(*before, told))[-1]
    assert (event.kind, event.server_pid, event.pid) == ("client_refused", 634, 700)
    assert dict(event.values) == {"reason": reason, "status": status}


def test_a_client_that_a_server_in_fault_refuses_is_told_once() -> None:
    why, failed = (
        "Server teardown in progress, client {{PID: {0}, Context ID: 0}}",
        "Failed to accept client {{PID: {0}",
    )
    told = (why.format(7000), failed.format(7000) + ", Context ID: 0} with status 807")
    assert [(e.kind, e.pid, e.values["reason"]) for e in events("server", server(*told, *told))] == [
        ("client_refused", 7000, "fault"),
        ("client_refused", 7000, "fault"),
    ]
    other = failed.format(7001) + ", Context ID: 0} with status 807"
    assert [e.pid for e in events("server", server(told[0], other))] == [7000, 7001]


def test_a_context_is_on_the_device_that_the_line_before_named() -> None:
    uuid = "GPU-c6233a33-3507-69ef-fed3-0090a2cbc745"
    status = "Status of client {PID: 645, Context ID: 1} is ACTIVE"
    named = f"Device NVIDIA H100 (uuid {uuid}) is associated"
    for raw, devices in (((status,), ()), ((named, status), (uuid,))):
        event = events("server", server(*raw))[-1]
        assert (event.kind, event.pid, event.context_id, event.devices) == ("context_active", 645, 1, devices)
        assert event.detail == "client 645 opened context 1" + (f" on {uuid}" if devices else "")


def test_what_the_daemon_does_not_know_is_learnt_from_its_own_line_alone() -> None:
    for said, known in (
        ('Unknown command "get_device_client_list"', {"get_device_client_list"}),
        ('Unknown command "get_device_client_lis"', set()),
        ('Unknown command "zzz"', set()),
        ("Unknown", set()),
    ):
        parser = LogParser("control")
        for line in control("NEW UI", "Cmd:get_device_client_list", said):
            parser.feed(line)
        assert parser.unknown == ((480, frozenset(known)) if known else (0, frozenset()))
    assert LogParser("server").unknown == (0, frozenset())


def test_a_client_may_have_chosen_the_words_of_the_answer_to_ps_alone() -> None:
    assert not LogParser("server").answering
    for command, chosen in (("ps", True), ("get_server_list", False)):
        parser = LogParser("control")
        assert not parser.answering
        for line in control("NEW UI", f"Cmd:{command}"):
            parser.feed(line)
        assert parser.answering is chosen
    for line in control("NEW UI", "Cmd:ps", 'Unknown command "ps"'):
        parser.feed(line)
    assert not parser.answering, "a daemon that has no ps answers with its own words"


def test_a_fault_is_one_event():
    told = [e for e in events("server", lines(DATA / "h100/faults-server.log")) if e.kind == "fatal_fault"]
    assert [(e.pid, e.values["named"], e.values["clients"], e.devices) for e in told] == [
        (None, "1067", "1067", ("0",)),
        (None, "1133", "1133 1134 1135", ("0",)),
    ]
    assert told[1].detail == (
        "fatal GPU fault on server device 0; clients 1133, 1134, 1135 lost; no proof: server.log names client 1133"
    )


def trials(kind):
    """The faults of the H200's eight trials: what server.log wrote, and who it was."""
    found = []
    for line in lines(DATA / "h200/blame-and-utilisation.txt"):
        if line.startswith(b"trial "):
            found.append((line.split()[2].decode(), int(line.split()[4]), []))
        elif line.startswith(b"   log: "):
            found[-1][2].append(line.removeprefix(b"   log: "))
    return [(who, events("server", raw)) for what, who, raw in found if what == kind]


def test_whom_the_log_names_is_told_as_no_proof():
    """With busy neighbours it named an innocent one in five of five, and never is a client said to have made it."""
    told = trials("fault")
    assert [[e.kind for e in found] for _, found in told] == [["fatal_fault"]] * 6
    assert [found[0].values["named"] == str(who) for who, found in told] == [False, False, False, False, True, False]
    for _, (event,) in told:
        assert event.pid is None
        lost = list(map(int, event.values["clients"].split()))
        assert lost == sorted(lost), "an order by whom the log names would accuse"
        assert event.detail.endswith(f"; no proof: server.log names client {event.values['named']}")


def test_the_contexts_that_a_fault_makes_inactive_are_those_of_their_clients():
    parser = LogParser("server")
    for line in server(
        "Server is handling a fatal GPU error.",
        "Status of client {PID: 1133, Context ID: 2} is INACTIVE",
        "Status of client {PID: 1134, Context ID: 5} is INACTIVE",
    ):
        assert parser.feed(line) == []
    (event,) = parser.flush()
    assert (event.values["contexts"], event.values["clients"]) == ("1133.2 1134.5", "1133 1134")


@pytest.mark.parametrize("cut", range(2, 6))
def test_of_a_fault_whose_begin_is_cut_off_it_is_not_said_whom_the_log_names(cut):
    """The line with the name may be in the log that was rotated away, and so may more clients."""
    raw = lines(DATA / "h100/faults-server.log")[177:200]
    assert b"1133, Context: 1} encountered" in raw[0]
    (event,) = (e for e in events("server", raw[cut:]) if e.kind == "fatal_fault")
    assert event.detail.startswith("fatal GPU fault, whose begin is not in the log, on server device 0; at least ")
    assert event.detail.endswith("lost; whom server.log names is not known")
    node = fold("21:29:30.000", server=raw[cut:])
    (report,) = fault_reports(shot(node, "21:29:13.000")[1], shot(node, "21:29:13.000")[0])
    assert report.named == "The begin of the fault is not in server.log: whom that names is not known."
    whole = fold("21:29:13.000", server=raw)
    (report,) = fault_reports(shot(whole, "21:29:13.000")[1], shot(whole, "21:29:13.000")[0])
    assert report.named.startswith("server.log names client 1133, ")


def test_after_a_trap_nobody_is_named():
    """Fact 37: 719, and the log's first line is the server's own."""
    for _, found in trials("trap"):
        (event,) = found
        assert (event.kind, event.pid, event.values["named"]) == ("fatal_fault", None, "")
        assert len(event.values["clients"].split()) >= 3
        assert event.detail.endswith("server.log names no client")


def test_the_vendor_guides_own_fault_is_one_and_names_nobody():
    told = [e for e in events("server", lines(DATA / "guide/server-2022.log")) if e.kind == "fatal_fault"]
    assert [(e.pid, e.values["named"], e.values["clients"], e.devices) for e in told] == [
        (None, "", "11641 11643", ("0", "1"))
    ]


def test_contexts_that_become_inactive_without_a_fault_are_none():
    """In 2022 a terminate_client wrote such lines as well."""
    raw = (
        "Volta MPS: status of client {11641, 1} is INACTIVE",
        "Volta MPS: The following clients have a sticky error set:",
        "11641",
        "Client {11641, 1} exit",
    )
    kinds = [e.kind for e in events("server", server(*raw))]
    assert "fatal_fault" not in kinds
    assert kinds[-1] == "context_closed"


def test_numbers_belong_to_the_list_announced_last():
    raw = (
        "Volta MPS: Server is handling a fatal GPU error.",
        "Volta MPS: The following devices",
        "0",
        "Volta MPS: status of client {11641, 1} is INACTIVE",
        "1",
        "Volta MPS: The following clients have a sticky error set:",
        "Volta MPS: status of client {11643, 1} is INACTIVE",
        "11641",
        "11643",
    )
    (event,) = events("server", server(*raw))
    assert (event.devices, event.values["clients"]) == (("0", "1"), "11641 11643")


def test_two_faults_one_after_the_other_are_two():
    one = (
        "Server is handling a fatal GPU error.",
        "All clients belonging to error trigging process 7 will be torn down",
    )
    assert [e.kind for e in events("server", server(*one, *one))] == ["fatal_fault"] * 2


def fault_lines(pid: int, clients: tuple[int, int], device: int, second: str = "28.598") -> list[bytes]:
    texts = (
        f"Client {{PID: {clients[0]}, Context: 1}} encountered a fatal GPU error.",
        "Server is handling a fatal GPU error.",
        *(f"Client {{PID: {each}, Context ID: 1}} on device {device} to be torn down" for each in clients),
        "The following devices will be reset:",
        f"{device}",
        "The following client process have a sticky error set:",
        *map(str, clients),
    )
    return [f"[2026-11-20 21:24:{second} Server {pid:>5}] {text}".encode() for text in texts]


def test_of_two_servers_that_write_at_the_same_moment_each_has_its_own_fault():
    one, other = fault_lines(634, (11, 12), 0), fault_lines(700, (21, 22), 1)
    mixed = [line for pair in zip(one, other, strict=True) for line in pair]
    told = [
        (e.server_pid, e.devices, e.values["named"], e.values["clients"])
        for e in events("server", mixed)
        if e.kind == "fatal_fault"
    ]
    assert told == [(634, ("0",), "11", "11 12"), (700, ("1",), "21", "21 22")]


def test_what_another_server_says_meanwhile_does_not_cut_a_fault_in_two():
    begin, *rest = fault_lines(634, (11, 12), 0)
    mixed = [begin, *server("Client {PID: 21, Context ID: 0} connected", pid=700), *rest]
    assert sorted(e.kind for e in events("server", mixed)) == ["client_connected", "fatal_fault"]
    parser = LogParser("server")
    assert sorted(e.kind for e in (*parser.feed_all(b"\n".join(mixed) + b"\n"), *parser.flush())) == [
        "client_connected",
        "fatal_fault",
    ]


def test_a_fault_is_told_as_soon_as_another_servers_lines_are_later_than_it_can_be():
    late = b"[2026-11-20 21:24:29.700 Server   700] Client {PID: 21, Context ID: 0} connected"
    parser = LogParser("server")
    found = [e.kind for line in [*fault_lines(634, (11, 12), 0), late] for e in parser.feed(line)]
    assert found == ["fatal_fault", "client_connected"]


def test_two_servers_that_refuse_and_wait_at_once_are_each_told_once():
    refusal, again = "Server teardown in progress for client {{PID: {0}, Context ID: 0}}", "with status 807"
    mixed = [
        *server(refusal.format(11)),
        *server(refusal.format(21), pid=700),
        *server("Failed to accept client {PID: 11, Context ID: 0} " + again),
        *server("Failed to accept client {PID: 21, Context ID: 0} " + again, pid=700),
        *server("Server unable to shutdown due to 3 active clients"),
        *server("Server unable to shutdown due to 2 active clients", pid=700),
        *server("Server unable to shutdown due to 1 active clients"),
    ]
    assert [(e.kind, e.server_pid, e.pid) for e in events("server", mixed)] == [
        ("client_refused", 634, 11),
        ("client_refused", 700, 21),
        ("server_shutdown_waiting", 634, None),
        ("server_shutdown_waiting", 700, None),
    ]


def test_a_fault_is_told_when_no_more_lines_come():
    parser = LogParser("server")
    for line in server(
        "Client {PID: 7, Context: 1} encountered a fatal GPU error.", "Server is handling a fatal GPU error."
    ):
        assert parser.feed(line) == []
    (event,) = parser.flush()
    assert (event.kind, event.values["named"]) == ("fatal_fault", "7")
    assert parser.flush() == []


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("Volta MPS: status of client {11661, 1} is ACTIVE", "context_active"),
        ("Client {11641, 1} exit", "context_closed"),
        ("activeThreadsPercentage set to 33.000000", "limit_set"),
        ("Active Threads Percentage set to 12.0", "limit_set"),
        ("Client disconnected. Number of active client contexts is 2", "context_closed"),
        ("Server has started", "server_ready"),
        ("Failed to accept new client. Maximum number of clients (48) reached.", "client_refused"),
        ("something nobody has seen", "unknown"),
    ],
)
def test_older_formats(text, kind):
    assert [e.kind for e in events("server", server(text))] == [kind]
    assert [e.kind for e in events("server", [b"[2020-10-12 10:00:00.000 Legacy Server 12] " + text.encode()])] == [
        kind
    ]


def test_older_formats_without_news():
    assert events("server", server("Volta MPS: Creating server context on device 0")) == []


FORGED = (
    b"[2026-11-20 21:24:28.598 Server   634] Client {PID: 999, Context ID: 0} connected",
    b"[2026-11-20 21:24:28.598 Control   480] Server 634 exited with status 0",
    b"[2026-11-20 21:24:27.000 Control   480] UI closed",
    b"[2026-11-20 21:24:29.598 Control   999] UI closed",
    b"[2026-11-20 21:24:28.599 Control   480] NEW SERVER 666: Ready",
    b"\x1b[2J",
)


def test_rows_of_ps_are_never_log_lines():
    """argv[0] is printed as it is (fact 10): whatever it holds stays an answer."""
    asked = control("NEW UI", "Cmd:ps", "PID ID SERVER DEVICE NAMESPACE COMMAND", "645 2 634 GPU-c 4026531836 a")
    after = control("UI closed", "NEW SERVER 700: Ready", clock="21:24:28.600")
    told = events("control", [*asked, *FORGED, *after])
    assert [(e.kind, e.server_pid) for e in told if e.kind not in {"command", "session_opened", "session_closed"}] == [
        ("server_ready", 700)
    ]


def test_a_forged_end_from_the_future_is_not_believed_live():
    parser, now = LogParser("control"), [100.0]
    parser.live(lambda: now[0])
    forged = control("UI closed", "Server 634 exited with status 0", clock="21:40:00.000")
    told = [e for line in [*control("Cmd:ps"), *forged] for e in parser.feed(line)]
    assert [e.kind for e in told] == ["command"]
    now[0] += 0.01
    told = [e for line in control("UI closed", "NEW SERVER 7: Ready") for e in parser.feed(line)]
    assert [e.kind for e in told] == ["session_closed", "server_ready"]


LISTED = ("NEW UI", "Cmd:ps", "PID ID SERVER DEVICE NAMESPACE COMMAND")


def test_a_session_that_was_read_all_at_once_does_not_silence_the_log_for_good():
    """Someone typed ps and left some seconds later, while mpstui was suspended: the log and its reader disagree."""
    parser, now = LogParser("control"), [100.0]
    parser.live(lambda: now[0])
    late = [*control(*LISTED), *control("UI closed", clock="21:24:38.598")]
    assert [e.kind for line in late for e in parser.feed(line)] == ["session_opened", "command"]
    now[0] += 60.0
    later = control("Accepting connection...", "NEW UI", "UI closed", "NEW SERVER 7: Ready", clock="21:25:38.598")
    told = [e.kind for line in later for e in parser.feed(line)]
    assert told == ["session_opened", "session_closed", "server_ready"]


@pytest.mark.parametrize("seconds", [None, 0.01, 60.0])
def test_a_daemon_that_died_at_a_ps_does_not_silence_its_successor(seconds):
    """After SIGKILL nothing ends the answer, and the next daemon has another PID."""
    parser, now = LogParser("control"), [100.0]
    if seconds is not None:
        parser.live(lambda: now[0])
    next_ = ("Starting control daemon using socket /tmp/mps_0/control", "NEW UI", "UI closed", "NEW SERVER 7: Ready")
    told = [e.kind for line in control(*LISTED) for e in parser.feed(line)]
    now[0] += seconds or 0.0
    told += [e.kind for line in control(*next_, pid=999, clock="21:24:29.000") for e in parser.feed(line)]
    if seconds == 0.01:  # it may be a row of the answer
        assert told[2:] == []
        now[0] += 60.0
        later = control("Accepting connection...", "NEW SERVER 7: Ready", pid=999, clock="21:25:29.000")
        assert [e.kind for line in later for e in parser.feed(line)] == ["server_ready"]
    else:
        assert told[2:] == ["daemon_started", "session_opened", "session_closed", "server_ready"]


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"[",
        b"[2026-11-20 21:24:28.598 Control",
        b"[2026-13-99 99:99:99.999 Control   480] NEW SERVER 1: Ready",
        b"[xxxx-11-20 21:24:28.598 Control   480] x",
        b"[2026-11-20 21:24:28.598 Control   x] y",
        b"\xff" * 100_000,
        b"[2026-11-20 21:24:28.598 Control   480] Cmd:" + b"\xff" * 100_000,
        b"[2026-11-20 21:24:28.598 Control   480] Cmd:terminate_client 99999999999999999999999 x",
        b"[2026-11-20 21:24:28.598 Control   480] Cmd:set_active_thread_percentage 1",
    ],
)
def test_nothing_raises_and_everything_is_printable(raw):
    for kind in ("control", "server"):
        for event in events(kind, [raw, raw]):
            assert event.detail.isprintable()
            assert event.raw.isprintable()
            assert len(event.raw) <= 300


def test_a_servers_memory_limit_in_control_log_is_that_servers():
    (told,) = [
        e for e in events("control", control("Cmd:set_device_pinned_mem_limit 634 0 2G", "UI closed")) if e.values
    ]
    assert (told.kind, told.server_pid, told.values["scope"], told.values["device"]) == (
        "limit_set",
        634,
        "server",
        "0",
    )


def test_a_torrent_of_faults_of_ever_other_servers_is_told_meanwhile():
    """All were kept until the second was over, and looked through at each line: 20,000 took half a minute."""
    parser = LogParser("server")
    raw = [line for pid in range(1, 201) for line in server("Server is handling a fatal GPU error.", pid=pid)]
    told = [e.server_pid for line in raw for e in parser.feed(line)]
    assert len(told) > 150
    assert [*told, *(e.server_pid for e in parser.flush())] == list(range(1, 201))


@pytest.mark.parametrize("said", ["{}", "Client {{PID: {}, Context: 1}} is INACTIVE"])
def test_a_list_that_has_no_end_is_told_once_it_is_longer_than_a_node_has_clients(said):
    """Each was looked for among all before it, and all were kept."""
    begin = ["Server is handling a fatal GPU error.", "The following client process have a sticky error set:"]
    parser = LogParser("server")
    told = [e for line in server(*begin, *map(said.format, range(1, 3001))) for e in parser.feed(line)]
    (fault,) = (e for e in told if e.kind == "fatal_fault")
    assert 960 <= len(fault.values["clients"].split()) < 2000  # 60 on each of 16 devices
    assert len(told) > 1000, "what follows is shown by itself"


def test_two_clients_that_are_refused_at_once_by_a_fault_are_each_told_once():
    """They may be told of in each other's midst."""
    refusal, again = "Server teardown in progress for client {{PID: {0}, Context ID: 0}}", "with status 807"
    mixed = server(
        refusal.format(11),
        refusal.format(21),
        "Failed to accept client {PID: 11, Context ID: 0} " + again,
        "Failed to accept client {PID: 21, Context ID: 0} " + again,
    )
    assert [(e.kind, e.pid) for e in events("server", mixed)] == [("client_refused", 11), ("client_refused", 21)]
