"""``mpstui events`` and ``mpstui status --at`` on logs alone and on a simulated node."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import subprocess
import sys
import time
from datetime import datetime, timezone
from pathlib import Path

import pytest
from folders import leave_logs

from mpstui.cli import main
from mpstui.cli.events import _json_lines as event_lines
from mpstui.cli.events import to_json
from mpstui.core.model import Event
from mpstui.history.log_recording import LogTape
from mpstui.history.node import NodeLogs, alone
from mpstui.history.player import Player
from mpstui.history.reader import LogHistory
from mpstui.history.times import local_text
from mpstui.sim.node import SimNode

KEYS = [
    "time",
    "kind",
    "daemon",
    "server_pid",
    "pid",
    "context_id",
    "devices",
    "detail",
    "raw",
    "uid",
    "user",
    "command",
    "severity",
    "claimed_by",
    "source",
    "source_known",
]


@pytest.fixture
def logs(tmp_path):
    return leave_logs(tmp_path)


def run(capsys, *arguments):
    status = main([str(argument) for argument in arguments])
    said = capsys.readouterr()
    return status, said.out, said.err


@pytest.mark.slow
def test_a_line_of_json_is_the_object_of_the_promised_keys(logs):
    """Most are written without making the object first: they are what json would have made of it."""
    history = LogHistory(logs)
    told = list(history.events())
    history.close()
    odd = '"\\\x00\n\x7f é\u2028 \ud83d\ude00'.encode("utf-16", "surrogatepass").decode("utf-16")
    every = Event("unknown", 0.0, Path("/p"), 1, 2, 3, ("0", odd), odd, odd, 0, {"a": odd}, odd, odd)
    told += [
        every,
        every._replace(values={"unmarked": "1"}),
        Event("unknown"),
        Event("xid", 1.5, values={"xid": "31"}),
        every._replace(devices=(odd,)),
    ]
    times = [0.0, 0.9995, 0.9999994, 0.9999996, 1.0005, 1795210142.0004999, 1795210142.9999998, 253402300799.5, -1.25]
    told += [every._replace(time=time) for time in times]
    told += [every._replace(time=1795210142 + number / 997) for number in range(3000)]
    for event in told:
        for daemon in (None, "/tmp/mps_0", odd):
            line = event_lines([event], daemon)
            assert line == json.dumps(to_json(event, daemon), ensure_ascii=False) + "\n"
        when = event.time
        text = None if when is None else datetime.fromtimestamp(when, timezone.utc).isoformat(timespec="milliseconds")
        assert json.loads(line)["time"] == text


def test_json_has_the_promised_keys_and_nothing_else(capsys, logs):
    status, out, err = run(capsys, "events", "--json", "--log-dir", logs)
    assert (status, err) == (0, "")
    told = [json.loads(line) for line in out.splitlines()]
    assert all(list(event) == KEYS for event in told if event["kind"] != "fatal_fault")
    assert {event["daemon"] for event in told[5:]} == {"/tmp/mps_0"}
    fault = next(event for event in told if event["kind"] == "fatal_fault")
    assert list(fault) == [*KEYS, "named", "suspects", "xids"]
    assert fault["xids"] is None, "the logs do not tell"
    assert (fault["server_pid"], fault["pid"], fault["devices"]) == (1073, None, ["0"])
    assert fault["named"] == [1067]
    who = {"uid": 0, "user": None, "command": None}
    assert fault["suspects"] == [{"pid": 1067, **who}, {"pid": 1069, **who}], "1069 was killed, 1067 is named"
    gone = [event for event in told if event["kind"] == "client_disconnected"]
    assert gone
    assert {event["uid"] for event in gone} == {0}, "control.log has told it when they came"
    assert "encountered a fatal GPU error" in fault["raw"]
    assert re.fullmatch(r"2026-11-20T\d\d:29:05\.514\+00:00", fault["time"])


def test_what_a_simulated_node_has_logged_says_so_wherever_it_is_read(capsys, tmp_path, logs):
    """Its events, and its logs without it, were told as a real daemon's."""
    pipe, copied = tmp_path / "node", tmp_path / "copied"
    with SimNode.start(pipe, gpus=1):
        told = [run(capsys, "events", *form, "--pipe-dir", pipe)[1] for form in ([], ["--json"])]
        suspects = [run(capsys, "suspects", *form, "--pipe-dir", pipe)[1] for form in ([], ["--json"])]
    for lines in told, suspects:
        assert lines[0].startswith("SIMULATED — no GPU, no real daemon\n")
        assert {json.loads(line)["source"] for line in lines[1].splitlines()} == {"simulated"}
    shutil.copytree(pipe / "logs", copied)
    for command in ("events", "suspects", "status", "doctor"):
        for folder in (pipe / "logs", copied):
            assert "SIMULATED — no GPU, no real daemon\n" in run(capsys, command, "--log-dir", folder)[1]
            out = run(capsys, command, "--log-dir", folder, "--json")[1]
            assert {json.loads(line)["source"] for line in out.splitlines()} == {"simulated"}
    assert Player(LogTape([copied])).at(math.inf).snapshot.source == "simulated"
    both = ("--log-dir", copied, "--log-dir", logs)
    out = run(capsys, "events", *both)[1]
    assert out.startswith(f"SIMULATED — no GPU, no real daemon: what is from {copied}\n")
    found = [json.loads(line) for line in run(capsys, "events", *both, "--json")[1].splitlines()]
    assert {event["source"] for event in found if event["daemon"] == str(pipe)} == {"simulated"}
    assert {event["source"] for event in found if event["daemon"] == "/tmp/mps_0"} == {"real"}
    assert Player(LogTape([copied, logs])).at(math.inf).snapshot.source == "simulated"
    (copied / "mpstui-simulated").unlink()
    assert "SIMULATED" not in run(capsys, "events", "--log-dir", copied)[1]


def real_lines(moment: float, pid: int = 71) -> str:
    """What a daemon has written from its start on, with a server's start."""
    stamp = datetime.fromtimestamp(moment).strftime("%Y-%m-%d %H:%M:%S.000")
    texts = ("Starting control daemon using socket /tmp/mps_r/control", "Starting new server 81 for user 0")
    return "".join(f"[{stamp} Control {pid:5d}] {text}\n" for text in texts)


def test_what_a_real_daemon_has_logged_where_a_simulated_one_did_is_real(capsys, tmp_path, logs):
    """The mark of a simulated node beside the logs was believed for all that is in them, whoever wrote it, for ever."""
    pipe, later = tmp_path / "node", math.floor(time.time() + 3600)
    with SimNode.start(pipe, gpus=1, log_dir=logs):
        pass
    with (logs / "control.log").open("a") as control:
        control.write(real_lines(later))

    def sources(*options):
        out = run(capsys, "events", "--json", "--all", "--log-dir", logs, *options)[1]
        told = map(json.loads, out.splitlines())
        return {(event["daemon"].removeprefix(str(tmp_path)), event["source"]) for event in told}

    assert sources() == {("/tmp/mps_0", "real"), ("/node", "simulated"), ("/tmp/mps_r", "real")}
    text = run(capsys, "events", "--log-dir", logs)[1].splitlines()[0]
    assert text.startswith(f"SIMULATED — no GPU, no real daemon: what is from {logs} between ")
    assert text.endswith(f" and {local_text(later)}")
    since = ("--since", f"@{later}")
    assert {source for _, source in sources(*since)} == {"real"}
    assert "SIMULATED" not in run(capsys, "events", "--log-dir", logs, *since)[1]
    assert json.loads(run(capsys, "suspects", "--json", "--log-dir", logs, *since)[1])["source"] == "real"
    assert json.loads(run(capsys, "status", "--json", "--log-dir", logs)[1])["source"] == "real"
    past = ("--at", f"@{later - 1800:.0f}")
    assert json.loads(run(capsys, "status", "--json", "--log-dir", logs, *past)[1])["source"] == "simulated"
    (logs / "mpstui-simulated.starts").unlink()
    assert {source for _, source in sources()} == {"simulated"}, "which of it is a simulated node's is not known"


def test_a_daemon_that_follows_is_told_as_what_it_is(tmp_path, logs):
    """Who follows the logs reads on, whichever daemon goes on with them."""
    with SimNode.start(tmp_path / "node", gpus=1, log_dir=logs):
        pass
    written = NodeLogs(alone([logs]))
    told = written.told(follow=True)
    try:
        while next(told) is not None:
            pass
        with (logs / "control.log").open("a") as control:
            control.write(real_lines(time.time() + 3600))
        found = (event for batch in told for event in (batch[0] if batch else ()))
        events = [next(found) for _ in range(2)]
        assert [event.kind for event in events] == ["daemon_started", "server_starting"]
        assert not any("simulated" in event.values for event in events)
    finally:
        told.close()
        written.close()


def test_since_kind_and_client(capsys, logs):
    _, out, _ = run(capsys, "events", "--log-dir", logs, "--since", "2026-11-20 21:29:12", "--client", "1134")
    told = [line.split()[2] for line in out.splitlines()]
    assert told[0] == "fatal_fault", "it was hit, though it is not the one that the log names"
    assert told[-1] == "client_disconnected"
    _, out, _ = run(capsys, "events", "--log-dir", logs, "--kind", "client_refused")
    assert len(out.splitlines()) == 2


@pytest.mark.skipif(os.geteuid() != 0, reason="root alone gives a file to another user")
@pytest.mark.parametrize("command", ["events", "suspects"])
def test_of_logs_that_another_user_has_written_it_is_said_whose_word_they_are(capsys, logs, command):
    told = f"mpstui: {logs}: this is what UID 64101 has written, and mpstui has not confirmed it"
    assert main([command, "--log-dir", str(logs)]) == 0
    assert told not in capsys.readouterr().err
    for log in logs.glob("*.log"):
        os.chown(log, 64101, -1)
    assert main([command, "--log-dir", str(logs)]) == 0
    assert capsys.readouterr().err.count(told) == 1


@pytest.mark.skipif(os.geteuid() != 0, reason="root alone gives a file to another user")
def test_each_event_in_json_says_whose_word_it_is(capsys, logs):
    for uid, claimed_by in ((0, None), (64101, 64101)):
        for log in logs.glob("*.log"):
            os.chown(log, uid, -1)
        _, out, _ = run(capsys, "events", "--log-dir", logs, "--all", "--json")
        told = [json.loads(line) for line in out.splitlines()]
        assert {each["claimed_by"] for each in told} == {claimed_by}
        assert {"fatal_fault", "client_connected"} <= {each["kind"] for each in told}


def test_no_logs_no_traceback(capsys, tmp_path):
    status, out, err = run(capsys, "events", "--log-dir", tmp_path / "none")
    assert (status, out) == (3, "")
    assert err.count("\n") == 1
    status, out, err = run(capsys, "status", "--log-dir", tmp_path / "none")
    assert (status, out) == (3, "")


def test_a_time_that_is_none_is_a_matter_of_usage(capsys, logs):
    with pytest.raises(SystemExit) as end:
        main(["events", "--log-dir", str(logs), "--since", "tomorrow"])
    assert end.value.code == 2
    assert "is no time" in capsys.readouterr().err


def test_the_past_has_the_schema_of_the_present(capsys, logs):
    status, out, _ = run(capsys, "status", "--json", "--log-dir", logs, "--at", "2026-11-20 21:29:13")
    said = json.loads(out)
    assert (status, said["schema"]) == (0, 1)
    (daemon,) = said["daemons"]
    assert daemon["servers"][0]["status"] == "FAULT"
    assert [client["pid"] for client in daemon["servers"][0]["clients"]] == [1133, 1134]
    assert said["problems"][0]["code"] == "fault"
    status, out, _ = run(capsys, "status", "--log-dir", logs, "--at", "2026-11-20 21:28:46.390")
    assert status == 4
    assert "blocked" in out
    assert "from the logs alone" in out


@pytest.mark.slow
def test_follow_goes_on_until_it_is_interrupted(logs):
    command = [sys.executable, "-m", "mpstui", "events", "--json", "--follow", "--log-dir", str(logs)]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        [sys.executable, "-c", "from mpstui.cli import main; raise SystemExit(main())", *command[3:]],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
    ) as process:
        try:
            line = b"[2099-11-20 21:29:12.195 Server  1140] Client {PID: 77, Context ID: 0} connected\n"
            found = b""
            while not found:  # until it has got as far as following, each line that is written is history to it
                with (logs / "server.log").open("ab") as out:
                    out.write(line)
                found = process.stdout.readline()
            assert json.loads(found)["pid"] == 77
            process.send_signal(2)
            process.stdout.read()
            assert process.wait(120) == 130
            assert b"Traceback" not in process.stderr.read()
        finally:
            process.kill()


def test_an_unknown_drill_is_refused(capsys):
    with pytest.raises(SystemExit) as end:
        main(["--demo=nonsense", "status"])
    assert end.value.code == 2


@pytest.mark.slow
def test_the_drill_of_a_fault_teaches_whom_not_to_believe(capsys):
    """The log names bob's, the kernel names one, and who was there both times is alice's."""
    status, out, _ = run(capsys, "--demo=fault", "events", "--json")
    told = [json.loads(line) for line in out.splitlines()]
    fault = [event for event in told if event["kind"] == "fatal_fault"][-1]
    who = {suspect["pid"]: (suspect["user"], suspect["command"]) for suspect in fault["suspects"]}
    assert status == 0
    assert sorted(user for user, _ in who.values()) == ["alice", "bob", "carol"]
    assert [who[pid][0] for pid in fault["named"]] == ["bob"]
    assert (fault["pid"], fault["xids"]) == (None, [31])
    xid = [event for event in told if event["kind"] == "xid"][-1]
    assert (xid["xid"], xid["daemon"], len(xid["devices"])) == (31, None, 1)
    assert "no proof: the kernel names" in xid["detail"]
    assert any(event["user"] == "alice" and event["kind"] == "client_connected" for event in told)
    status, out, _ = run(capsys, "--demo=fault", "suspects", "--json")
    said = json.loads(out)
    assert (status, said["faults"], said["tied"]) == (0, 2, 1)
    assert (said["suspects"][0]["user"], said["suspects"][0]["named"]) == ("alice", 0)
    assert {each["user"] for each in said["suspects"]} == {"alice", "bob", "carol", "dave"}, "by what other events tell"
    assert said["text"].startswith("In 1 to 2 of 2 faults: alice, python train.py")


@pytest.mark.slow
def test_no_faults_no_suspects(capsys):
    status, out, _ = run(capsys, "--demo=pending", "suspects")
    assert (status, out) == (0, "SIMULATED — no GPU, no real daemon\nNo fatal fault is in the history.\n")


@pytest.mark.slow
def test_what_the_demo_has_done(capsys):
    status, out, _ = run(capsys, "--demo", "events", "--json")
    told = [json.loads(line)["kind"] for line in out.splitlines()]
    assert status == 0
    assert {"daemon_started", "client_connected", "limit_set"} <= set(told)


@pytest.mark.parametrize("form", [(), ("--json",)])
def test_sessions_and_commands_are_shown_where_asked_for(capsys, logs, form):
    """Every question of every tool leaves three lines in the log."""
    noise = {"session_opened", "session_closed", "command"}

    def kinds(*more):
        _, out, _ = run(capsys, "events", "--log-dir", logs, *form, *more)
        return [json.loads(line)["kind"] if form else line.split()[2] for line in out.splitlines()]

    usual, everything = kinds(), kinds("--all")
    assert usual
    assert noise.isdisjoint(usual)
    assert noise <= set(everything)
    assert [kind for kind in everything if kind not in {*noise, "client_admitted"}] == usual
    assert set(kinds("--kind", "session_opened")) == {"session_opened"}


@pytest.mark.parametrize("form", [(), ("--json",)])
def test_doctor_examines_the_logs_that_it_is_given(capsys, logs, form, monkeypatch):
    """Nothing of this machine is looked at, whatever runs here."""
    run(
        capsys, "doctor", "--log-dir", logs, *form
    )  # a module that is imported meanwhile would keep what is put in place
    for name in ("mpstui.observe.discovery.discover", "mpstui.doctor.checkup.gather"):
        monkeypatch.setattr(name, lambda *_: pytest.fail("this machine was examined"))
    status, out, err = run(capsys, "doctor", "--log-dir", logs, *form)
    assert (status, err) == (1, "")
    assert str(logs / "server.log") in out
    assert "the last on 2026-11-20 21:2" in out
    assert "its logs alone were examined" in out
    assert "file system" not in out, "how much room is left here says nothing of the node that wrote them"
    for word in ("NVML", "/dev/shm", "nvidia-cuda-mps-control"):
        assert word not in out
    if form:
        assert {finding["check"] for finding in json.loads(out)["findings"]} == {"logs", "faults", "starting", "node"}


def test_doctor_on_logs_that_are_not_there(capsys, tmp_path):
    status, out, err = run(capsys, "doctor", "--log-dir", tmp_path / "none")
    assert (status, out) == (3, "")
    assert "none/" in err


@pytest.mark.slow
def test_follow_ends_when_nobody_reads_any_more(logs):
    """Of ssh without a terminal nothing else is heard at its end: the node may be quiet for days."""
    command = [sys.executable, "-m", "mpstui", "events", "--json", "--follow", "--log-dir", str(logs)]
    child = subprocess.Popen(command, stdout=subprocess.PIPE)
    child.stdout.close()
    try:
        assert child.wait(120) == 0
    finally:
        child.kill()


def test_where_nobody_is_suspected_no_advice_is_given_about_suspects(capsys, tmp_path):
    (tmp_path / "server.log").write_bytes(b"[2026-11-20 21:24:28.598 Server   634] Startup\n")
    _, out, _ = run(capsys, "suspects", "--json", "--log-dir", str(tmp_path))
    told = json.loads(out)
    assert (told["faults"], told["suspects"], told["advice"]) == (0, [], [])


def test_what_a_simulated_daemon_has_left_behind_is_removed_as_a_simulated_ones(capsys):
    status, out, err = run(capsys, "--demo=stale", "daemon", "stop")
    assert status == 0
    assert (out + err).startswith("SIMULATED: "), out + err
