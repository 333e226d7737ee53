"""What a screen shows of the past, and that nothing is changed from there."""

from __future__ import annotations

import asyncio
import errno
import gzip
import json
import os
import shutil
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from mpstui import api
from mpstui.commands import CommandTarget, RefusedError, fill
from mpstui.config import CommandSpec
from mpstui.core.model import Device, Event, Past, Snapshot, Suspect
from mpstui.core.trust import ANYBODY, Speaker
from mpstui.history import player
from mpstui.history.files import LogFile
from mpstui.history.log_recording import LogTape
from mpstui.history.player import Player, ShownMoment
from mpstui.history.postmortem import state_at
from mpstui.history.reader import LogHistory
from mpstui.history.recording import FileSink, FileTape, MemoryTape, Recorder, RecordingError, lines
from mpstui.history.times import time_within
from mpstui.history.viewer import LiveViewer, Viewer, of_file, of_logs
from mpstui.observe.discovery import Place
from mpstui.observe.reducer import NodeState
from mpstui.observe.sources import NvmlSample
from mpstui.operations.registry import ON_OVERVIEW, OPERATIONS
from mpstui.operations.runner import OperationRunner
from mpstui.operations.types import ExitStatus, Request
from tests.observe.replay import PIPE, at, running
from tests.observe.test_reducer import FAULTS

from .test_tape import recorded

FEW = {kind: raw[:40] for kind, raw in FAULTS.items()}


@pytest.fixture(scope="module")
def tape() -> MemoryTape:
    kept = MemoryTape(1 << 30, 1e9)
    recorded(FEW, kept, many=30)
    return kept


@pytest.fixture
def log_dir(tmp_path) -> Path:
    for kind, raw in FAULTS.items():
        (tmp_path / f"{kind}.log").write_bytes(b"\n".join(raw) + b"\n")
    return tmp_path


def test_what_a_screen_has_kept_is_saved_as_a_recording(tape, tmp_path) -> None:
    """Whole, for its owner alone, in a new file, and it says what it is."""
    screen = Viewer("PAST", lambda: tape, speed=0)
    path = tmp_path / "kept.mps"
    made, said = asyncio.run(screen.save(f" {path} "))
    assert made
    assert said.endswith(f", readable by you alone. mpstui replay {path} shows it.")
    assert said.startswith(time.strftime("%H:%M:%S to ", time.localtime(tape.heads()[0].first)))
    assert path.stat().st_mode & 0o777 == 0o600
    whole = b"".join(line + b"\n" for n in range(len(tape.heads())) for line in lines(tape, n))
    first = whole.index(b"\n") - 1
    assert gzip.decompress(path.read_bytes()) == whole[:first] + b',"from":"screen"' + whole[first:]
    again = of_file(path, 0)
    past = asyncio.run(again.prime()).past
    assert (past.first, past.last) == (tape.heads()[0].first, tape.heads()[-1].last)
    assert past.note == "A screen has saved this: it begins where what that screen had kept began."
    ours, theirs = Player(tape), Player(again._open().tape)
    assert ours.at(past.last).snapshot == theirs.at(past.last).snapshot
    assert ours.next_event(past.first).time == theirs.next_event(past.first).time
    for refused, why in ((path, "is there"), (tmp_path / "no" / "a.mps", "No such"), (f"{tmp_path}/a\x1b", "rename")):
        made, said = asyncio.run(screen.save(str(refused)))
        assert not made
        assert why in said
    made, said = asyncio.run(again.save(f"{path}.2"))
    assert (made, said) == (False, "This is a recording already: copy its file.")
    assert [each.name for each in tmp_path.iterdir()] == ["kept.mps"]


def test_what_is_saved_is_written_to_no_place_of_anothers_and_whole_or_not_at_all(tape, tmp_path, monkeypatch) -> None:
    screen = Viewer("PAST", lambda: tape, speed=0)
    (tmp_path / "theirs").write_text("theirs")
    (tmp_path / "link").symlink_to("theirs")
    assert "is there" in asyncio.run(screen.save(f"{tmp_path}/link"))[1]
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    assert "can be changed by everybody" in asyncio.run(screen.save(f"{tmp_path}/open/a.mps"))[1]
    write = os.write

    def full(fd: int, data: bytes) -> int:
        if len(data) > 100:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(fd, data)

    (tmp_path / "gone").mkdir()
    with monkeypatch.context() as there:
        there.chdir(tmp_path / "gone")
        (tmp_path / "gone").rmdir()
        assert asyncio.run(screen.save("a.mps")) == (False, "No such file or directory")
    monkeypatch.setattr(os, "write", full)
    made, said = asyncio.run(screen.save(f"{tmp_path}/a.mps"))
    assert not made
    assert said.endswith("a.mps cannot be written: No space left on device")
    assert sorted(each.name for each in tmp_path.iterdir()) == ["link", "open", "theirs"]


async def shown(viewer, condition) -> Snapshot:
    end = time.monotonic() + 120
    while viewer.snapshot is None or not condition(viewer.snapshot):
        assert time.monotonic() < end
        await asyncio.sleep(0)
    return viewer.snapshot


def test_a_recording_plays_stands_steps_and_ends(tape) -> None:
    first, last = Player(tape).span

    async def play() -> None:
        now, ticks = [0.0], asyncio.Semaphore(0)

        async def sleep(seconds: float) -> None:
            await ticks.acquire()
            now[0] += seconds

        viewer = Viewer("REPLAY", lambda: tape, speed=4.0, clock=lambda: now[0], sleep=sleep)
        await viewer.start()
        begun = await shown(viewer, lambda s: True)
        assert begun.past.at == first
        assert begun.past.playing
        ticks.release()
        assert (await shown(viewer, lambda s: s.past.at > first)).past.at == pytest.approx(first + 1.0)
        assert await viewer.step(1) is None
        assert not viewer.snapshot.past.playing
        after = viewer.snapshot.past.at
        assert await viewer.step(1) is None
        assert viewer.snapshot.past.at > after
        assert await viewer.step(-1) is None
        assert viewer.snapshot.past.at == after
        assert await viewer.move(-1e6) is None
        assert viewer.snapshot.past.at == first
        assert "There is no record from before" in await viewer.move(-60)
        begins = time.strftime("%H:%M:%S", time.localtime(first))
        said = f"The record has no earlier event: it begins at {begins}."  # the screen shows some from before
        assert await viewer.step(-1) == said
        assert await viewer.to_end() is None
        assert viewer.snapshot.past.at == last
        assert "no later event" in await viewer.step(1)
        assert "end" in await viewer.move(60)
        middle = time.strftime("%H:%M:%S", time.localtime(first + 2))
        assert await viewer.jump(middle) is None
        assert viewer.snapshot.past.at == int(first + 2)
        earlier = time.localtime(last + 3600)
        yesterday = f"no record of {time.strftime('%Y-%m-%d %H', time.localtime(last + 3600 - 86400))}"
        assert await viewer.jump(time.strftime("%H:%M:%S", earlier)) is None, "one that has not been yet is yesterday's"
        assert viewer.snapshot.past.at == first, "as far back as there is something"
        assert yesterday in viewer.snapshot.past.note
        assert yesterday in (await viewer.jump(time.strftime("%H:%M:%S", earlier)) or ""), "it is there already"
        assert await viewer.jump(middle) is None
        assert viewer.snapshot.past.note is None
        for wrong in ("99:99", "", "noon", "10:61", "@nan", "@inf", "@1e99", "9" * 400, "\x1b"):
            assert await viewer.jump(wrong) is not None
        of_day = time.strftime("%Y-%m-%d %H:", time.localtime(first))
        told = await viewer.jump("2040-01-01 10:00")
        assert f"no record of 2040-01-01 10:00:00: the record is from {of_day}" in told, "of which day, too"
        assert viewer.snapshot.past.at == int(first + 2)
        assert viewer.toggle()
        assert viewer.snapshot.past.playing
        await viewer.stop()

    asyncio.run(play())


@pytest.mark.parametrize(("how", "back", "on"), [("move", -1.0, 1.0), ("step", -1, 1)])
def test_what_is_asked_for_while_a_move_is_under_way_is_one_move_by_the_sum(tape, how, back, on) -> None:
    """A key that was held for 20 moves led there one after the other, long after it was let go."""

    async def go() -> tuple[list[float], list[float], list[str | None]]:
        viewer = Viewer("REPLAY", lambda: tape, speed=0.0)
        await viewer.start()
        await shown(viewer, lambda s: True)
        at: list[float] = []
        viewer.subscribe(lambda s: at.append(s.past.at))
        move = getattr(viewer, how)
        for _ in range(6):
            await move(back)
        single = at.copy()
        await viewer.to_end()
        at.clear()
        said = await asyncio.gather(*(move(each) for each in [back] * 6))
        said += await asyncio.gather(move(back), move(back), move(on))
        await viewer.stop()
        return single, at, said

    single, at, said = asyncio.run(go())
    assert at == [single[0], single[5], at[2]]
    assert at[2] < single[5], "the two that came to nothing are no move"
    assert said == [None] * 9


@pytest.mark.slow
@pytest.mark.parametrize("many", [2, 3, 7, 1000])
def test_many_events_on_or_back_are_as_many_as_one_by_one(tape, many: int) -> None:
    """In one look, however many: each looked through a whole piece of the recording."""
    shown = Player(tape)
    first, last = shown.span
    for look, begin in ((shown.next_event, first - 1), (shown.previous_event, last + 1)):
        one_by_one = [begin]
        while (found := look(one_by_one[-1])) is not None:
            one_by_one.append(found.time)
        assert len(one_by_one) > 8
        for number, begin in enumerate(one_by_one[:-1]):
            assert look(begin, many).time == one_by_one[min(number + many, len(one_by_one) - 1)]
        assert look(one_by_one[-1], many) is None


def test_where_nothing_was_recorded_between_two_pieces_is_said(tape) -> None:
    """Seen: two runs of ``record`` into one file played as one, the hour between them as if nothing had happened."""
    first, last = Player(tape).span
    heads = tape.heads()
    later = 3600.0

    class Pieces:
        """The same twice, an hour apart, as a run of record that is gone on with."""

        def heads(self):
            return [*heads, *(head._replace(first=head.first + later, last=head.last + later) for head in heads)]

        def read(self, number: int, offset: int, most: int) -> bytes:
            return tape.read(number % len(heads), offset, most)

    player = Player(Pieces())
    assert player.gap(last + 1) == (last, first + later)
    assert [player.gap(at) for at in (first, last, first + later)] == [None] * 3

    async def look() -> None:
        viewer = Viewer("REPLAY", lambda: Pieces(), speed=0.0)
        await viewer.start()
        await shown(viewer, lambda s: True)
        await viewer.jump(f"@{last + 60}")
        found = viewer.snapshot.past
        assert found.gap == (last, first + later)
        assert found.note.startswith("Nothing was recorded from ")
        await viewer.jump(f"@{last - 1}")
        assert (viewer.snapshot.past.gap, viewer.snapshot.past.note) == (None, None)
        await viewer.stop()

    asyncio.run(look())


def test_a_recording_begins_with_what_is_to_be_seen() -> None:
    """Seen: its first second was of a program that looked for daemons; what was before can be gone back to."""
    recording = Path(__file__).parents[2] / "docs" / "recordings" / "fault.mps"
    shown = asyncio.run(of_file(recording, 1.0).prime())
    assert shown.past is not None
    assert (shown.looked, len(shown.devices), [each.health for each in shown.daemons]) == (True, 4, ["ok"])
    assert 0 < shown.past.at - shown.past.first < 3
    assert Player(MemoryTape(1, 1.0)).begin == 0.0


@pytest.mark.parametrize("many", [1, 1000], ids=["in parts", "in one"])
def test_before_the_devices_are_read_they_have_the_numbers_that_they_have_then(many: int) -> None:
    """Seen at the first moment of a replay: UUIDs, which were GPU 0 and 1 a second later."""
    tape, now = MemoryTape(1 << 30, 1e9), [0.0]
    node = NodeState("gpu-07", euid=0)
    node.listener = recorder = Recorder(tape, lambda: now[0], many=many, span=1e9)
    node.set_places(())
    for when, devices in ((1.0, ()), (2.0, ()), (3.0, (Device("GPU-b", index=1),)), (70.0, ())):
        now[0] = when
        if when > 2:
            node.set_sample(NvmlSample(when, devices=devices))
        node.snapshot(when)
    recorder.end()
    player = Player(tape)
    assert player.begin == 3.0

    async def look() -> list[Snapshot]:
        viewer = Viewer("REPLAY", lambda: tape, speed=0.0)
        await viewer.start()
        found = []
        for when in (1.0, 3.0, 70.0):
            await viewer.jump(f"@{when}")
            found.append(viewer.snapshot)
        await viewer.stop()
        return found

    shown = asyncio.run(look())
    numbered = {"GPU-b": 1}
    assert [(len(each.devices), each.indices) for each in shown] == [(0, numbered), (1, numbered), (0, {})]


@pytest.mark.skipif(os.geteuid() != 0, reason="root alone gives a file to another user")
def test_of_another_users_recording_it_is_said_whose_word_it_is(tmp_path: Path) -> None:
    recording = Path(__file__).parents[2] / "docs" / "recordings" / "fault.mps"
    theirs = Path(shutil.copy(recording, tmp_path / "theirs.mps"))
    anybody = "Other users can write to this file: anybody may have made up what it shows."
    his = "This file belongs to UID 64101: it shows what UID 64101 wrote."
    for uid, mode, said in ((64101, 0o644, his), (0, 0o644, None), (0, 0o646, anybody), (0, 0o664, anybody)):
        os.chown(theirs, uid, 64103)
        theirs.chmod(mode)
        assert asyncio.run(of_file(theirs, 1.0).prime()).past.note == said


@pytest.mark.skipif(os.geteuid() != 0, reason="root alone gives a file to another user")
def test_roots_older_logs_are_read_below_another_users_newest(log_dir: Path) -> None:
    """A node whose daemon ran as root, and then as a user of its own, lost what was before."""
    logs = [log_dir / "control.log.2", log_dir / "control.log.1", log_dir / "control.log"]
    for log, uid in zip(logs, (64102, 0, 64101), strict=True):
        log.write_bytes(b"%d\n" % uid)
        os.chown(log, uid, uid)
    history = LogFile(logs[-1])
    assert (history.read(0, 9), history.read(2, 9)) == (b"0\n", b"64101\n")
    assert (history.uid, history.others) == (64101, ("control.log.2",)), "and all of it is the newest one's word"
    history.close()


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="root alone gives a file to another user")
@pytest.mark.parametrize(("uid", "mode"), [(64101, 0o644), (0, 0o644), (0, 0o646), (0, 0o664)])
def test_what_another_user_wrote_down_is_that_users_claim_whatever_it_says(log_dir, tmp_path, uid, mode) -> None:
    """A recording or a log of his told root as a fact that root's process had to end, with no word whose that is; as
    did one of root's that everybody, or a group, may write to. What he puts beside it is not read: one older log of his
    made all of root's a claim."""
    whose = uid or (None if mode == 0o644 else ANYBODY)
    folder, recording = log_dir / "logs", tmp_path / "theirs.mps"
    folder.mkdir()
    sink = FileSink(recording, 1 << 30, 1e9)
    recorded({kind: raw[:190] for kind, raw in FAULTS.items()}, sink, many=30)
    sink.close()
    for kind in FAULTS:
        log = (log_dir / f"{kind}.log").rename(folder / f"{kind}.log")
        os.chown(log, uid, 64103)
        log.chmod(mode)
    os.chown(recording, uid, 64103)
    recording.chmod(mode)
    planted = folder / "control.log.9"
    planted.write_bytes(b"\n".join(FAULTS["control"]))
    os.chown(planted, 64102, -1)
    history = LogHistory(folder)
    assert history.left_out == (
        f"{folder}: what belongs to neither root nor the owner of the newest log is not read: control.log.9",
    )
    history.close()
    planted.unlink()
    tape = LogTape([folder])
    assert (tape.trouble is None) is (whose is None)
    when = next(event.time for event in Player(tape).at(1e12).snapshot.events if event.kind == "fatal_fault")
    shown = [asyncio.run(of_file(recording, 0.0).prime()), Player(tape).at(when).snapshot, state_at(folder, when + 0.1)]
    for snapshot in shown:
        assert any(problem.code == "fault" for problem in snapshot.problems)
        assert [daemon.counts_for(os.geteuid()) for daemon in snapshot.daemons] == [whose is None]
        assert {problem.uid for problem in snapshot.problems} == {whose}
        name = "UID 64101" if uid else "an unknown user"
        claims = (p.text.startswith(name) and p.severity == "info" for p in snapshot.problems)
        assert whose is None or all(claims)


def test_who_wrote_all_of_it_stays_its_teller_when_its_daemon_ends() -> None:
    """A recording of his in which a daemon ended blamed whom he liked by name again."""
    written = NodeState()
    written.believe_only(Speaker(None, "what mallory has written", by=64301))
    theirs = Event("fatal_fault", 1.0)._replace(pipe_dir=PIPE, suspects=(Suspect(5, 1000, "alice", "train.py"),))
    for state in ("running", "stale"):
        written.set_places([Place(PIPE, state, PIPE)])
        assert [each.user for each in written._events.named(theirs).suspects] == [None], state


def test_a_clock_that_was_set_back_hides_no_event_from_who_steps(tape, monkeypatch) -> None:
    """A recorder of ours writes no such thing. Seen: < led from the end to the beginning, > to half of it."""

    def set_back(tape: MemoryTape, number: int) -> Iterator[bytes]:
        every = list(lines(tape, number))
        for place, line in enumerate(every):
            told = json.loads(line)
            yield line if place <= len(every) // 2 else json.dumps({**told, "t": told["t"] - 1000.0}).encode()

    monkeypatch.setattr(player, "lines", set_back)
    shown = Player(tape)
    for number in range(len(tape.heads())):
        times = [when for when, _, _ in shown.moments(number)]
        assert times == sorted(times)
    (first, last), seen = shown.span, []
    while (found := shown.next_event(seen[-1] if seen else first - 1)) is not None:
        seen.append(found.time)
    end, reached = shown.at(last), shown.at(seen[-1])
    assert end is not None
    assert reached is not None
    assert end.snapshot.events[-1] == reached.snapshot.events[-1]


def test_nothing_is_changed_from_the_past(tape) -> None:
    """One rule for all of them, in the wrapper: also where one that is asked with is of now, and the screen is not."""

    class Audit:
        def write(self, **_: object) -> None: ...

    async def look() -> None:
        viewer = Viewer("REPLAY", lambda: tape, speed=0.0)
        past = await viewer.prime()
        await viewer.start()
        await shown(viewer, lambda s: True)
        runner = OperationRunner(viewer, Audit())
        for action in (*ON_OVERVIEW, *OPERATIONS):
            for asked in (past, viewer.snapshot, replace(past, past=None), None):
                assert runner.unavailable(action, asked, PIPE) == viewer.why
        for action in OPERATIONS:
            request = Request(action.id, PIPE, subject=action.subject)
            for asked in (past, replace(past, past=None)):
                assert runner.preview(request, asked).error == viewer.why
                result = await runner.execute(request, asked)
                assert (result.status, result.message) == (ExitStatus.REFUSED_BY_SAFETY_RULE, viewer.why)
        await viewer.stop()

    asyncio.run(look())


@pytest.mark.slow
def test_logs_without_a_daemon_come_to_what_they_tell_at_each_time(log_dir) -> None:
    player = Player(LogTape([log_dir]))
    first, last = player.span
    for part in (0.2, 0.4, 0.6, 0.8, 1.0):
        when = first + part * (last - first)
        found, told = player.at(when).snapshot, state_at(log_dir, when)
        mine, theirs = found.daemons[0], told.daemons[0]
        assert [(s.pid, s.status, [c.key for c in s.clients]) for s in mine.servers] == [
            (s.pid, s.status, [c.key for c in s.clients]) for s in theirs.servers
        ]
        assert mine.key == theirs.key
        assert when - 5 < found.time <= when


def test_logs_that_are_compressed_are_said_to_be_left_out(log_dir) -> None:
    """They were on the screen as if nothing had been before."""
    (log_dir / "server.log.2.gz").write_bytes(b"")
    assert "what was compressed is not read, and its events are missing: server.log.2.gz." in LogTape([log_dir]).trouble


def test_logs_that_are_not_there_are_said_so(tmp_path) -> None:
    with pytest.raises(RecordingError, match="No such file"):
        of_logs([tmp_path])
    (tmp_path / "control.log").write_bytes(b"nothing\n")
    with pytest.raises(RecordingError, match="have no events"):
        LogTape([tmp_path])


def test_a_recording_looks_at_nothing_here(tmp_path) -> None:
    path = tmp_path / "a.mps"
    sink = FileSink(path, 1 << 30, 1e9)
    recorded(FEW, sink)
    sink.close()
    node = api.open(recording=path, speed=0).unentered()
    viewer = node.live(60)

    async def look() -> None:
        past = await viewer.prime()
        daemon = past.daemons[0]
        with pytest.raises(api.UnusableNode, match="this is a recording"):
            await node.hardware()
        with pytest.raises(api.UnusableNode):
            node.supervisor(PIPE)
        for asked in (node.findings(past), node.why(1, past), node.older_events(daemon, 2e9, 5), node.faults(daemon)):
            with pytest.raises(api.Unavailable, match="this is a recording"):
                await asked
        assert await node.environment(daemon.key) is None

    asyncio.run(look())
    with pytest.raises(api.UnusableNode, match="cannot be read"):
        api.open(recording=tmp_path / "none").unentered().live(60)


class Live:
    """A collector whose node is told by the test."""

    def __init__(self, node: NodeState) -> None:
        self.node, self.callbacks, self.snapshot = node, [], None

    def listen(self, listener) -> None:
        self.node.listener = listener

    def subscribe(self, callback):
        self.callbacks.append(callback)

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    def tell(self, now: float) -> None:
        self.snapshot = self.node.snapshot(now)
        for callback in self.callbacks:
            callback(self.snapshot)


def test_the_live_screen_goes_back_and_comes_again(monkeypatch) -> None:
    now = [at("21:29:00")]
    monkeypatch.setattr(time, "time", lambda: now[0])
    live = Live(NodeState("gpu-07", euid=0))
    viewer = LiveViewer(live)
    seen: list[Snapshot] = []
    viewer.subscribe(seen.append)
    missed: list[Snapshot] = []
    viewer.meanwhile(missed.append)
    live.node.set_places([running()])
    for _ in range(200):
        now[0] += 1
        live.tell(now[0])

    async def look() -> None:
        await viewer.start()
        assert viewer.snapshot.past is None
        assert await viewer.move(-60) is None
        back = viewer.snapshot
        assert back.past.what == "PAST"
        assert back.time == now[0] - 60
        before = len(seen)
        now[0] += 1
        live.tell(now[0])
        assert len(seen) == before
        assert missed == [live.snapshot], "plots of now go on"
        assert viewer.snapshot is back
        assert len(viewer.earlier) > 10
        assert await viewer.jump("10m") is None
        assert viewer.snapshot.past.at == viewer.snapshot.past.first
        assert "no record of" in viewer.snapshot.past.note
        assert await viewer.jump(f"@{back.time}") is None
        assert await viewer.move(60) is None
        assert viewer.snapshot.past is not None
        assert await viewer.move(60) is None
        assert viewer.snapshot.past is None
        assert viewer.snapshot is live.snapshot is seen[-1]
        assert await viewer.move(-90) is None
        node = api.open((PIPE,)).unentered()
        node._viewer = viewer
        for asked in (node.findings(viewer.snapshot), node.why(1, viewer.snapshot)):
            with pytest.raises(api.Unavailable, match="the screen shows the past"):
                await asked
        await viewer.to_end()
        assert viewer.snapshot is live.snapshot
        assert viewer._player is None, "what was read of before is not kept"
        await viewer.stop()

    asyncio.run(look())
    assert viewer.kept < 50_000


def test_what_a_live_screen_keeps_takes_no_memory_once_a_member_is_whole(monkeypatch, tmp_path) -> None:
    now = [at("21:29:00")]
    monkeypatch.setattr(time, "time", lambda: now[0])
    live = Live(NodeState("gpu-07", euid=0))
    viewer = LiveViewer(live)
    live.node.set_places([running()])
    for _ in range(400):
        now[0] += 1
        live.tell(now[0])
    pauses: asyncio.Queue[float] = asyncio.Queue()
    goes = asyncio.Semaphore(0)

    async def sleep(seconds: float) -> None:
        pauses.put_nowait(seconds)
        await goes.acquire()

    async def look() -> None:
        viewer._sleep = sleep
        await viewer.start()
        assert await pauses.get() == 60.0
        before, whole = viewer.kept, viewer._tape.heads()[0].size
        goes.release()
        await pauses.get()
        assert viewer.kept == before
        assert viewer._tape.in_files == whole > before / 2
        assert (await viewer.save(f"{tmp_path}/a.mps"))[0]
        live.tell(now[0])
        assert viewer._player is None, "what was read of before is not kept"
        assert Player(FileTape(tmp_path / "a.mps")).at(now[0] - 390).snapshot.time == now[0] - 390
        call, arrived = viewer._worker.call, asyncio.Event()
        saving: list[asyncio.Task[tuple[bool, str]]] = []

        async def beside(look):
            if saving:
                await arrived.wait()
                return await call(look)
            found = await call(look)
            if isinstance(found, ShownMoment):
                saving.append(asyncio.ensure_future(viewer.save(f"{tmp_path}/b.mps")))
                await asyncio.sleep(0)
            return found

        viewer._worker.call = beside
        assert await viewer.move(-390) is None
        arrived.set()
        assert (await saving[0])[0]
        assert viewer.snapshot.time == now[0] - 390
        await viewer.stop()

    asyncio.run(look())


def test_no_command_of_ones_own_is_run_from_the_past(tape) -> None:
    spec = CommandSpec("look", "f9", ("true",))
    shown = Player(tape).at(2e9).snapshot
    assert fill(spec, shown, CommandTarget(PIPE)).words
    with pytest.raises(RefusedError, match="the past"):
        fill(spec, replace(shown, past=Past("PAST", 1.0, 0.0, 1.0, False, 1.0, "the past")), CommandTarget(PIPE))


@pytest.mark.parametrize(
    ("typed", "shown", "first", "last", "found"),
    [
        ("02:10", "22 14:51", "22 14:00", "22 14:51", "22 02:10"),
        ("23:50", "22 00:30", "21 20:00", "22 00:40", "21 23:50"),
        ("23:59", "21 12:00", "20 10:00", "22 09:00", "21 23:59"),
        ("08:15", "21 20:10", "21 20:00", "22 10:00", "22 08:15"),
        ("14:51:00", "22 14:51", "22 14:00", "22 14:51", "22 14:51"),
        ("15:00", "20 15:30", "19 12:00", "22 14:51", "20 15:00"),
        ("2026-11-20 15:00", "22 14:51", "22 14:00", "22 14:51", "20 15:00"),
        ("10m", "20 10:00", "19 12:00", "22 14:51", "22 14:41"),
    ],
)
def test_a_time_of_day_is_the_nearest_that_was(typed: str, shown: str, first: str, last: str, found: str) -> None:
    def at(text: str) -> float:
        return time.mktime(time.strptime(f"2026-11-{text}", "%Y-%m-%d %H:%M"))

    assert time_within(typed, at(shown), at(first), at(last)) == at(found)
