"""What a NodeState hears is written down and folded again: the same snapshots, entered anywhere, and whatever a
stranger makes of the file."""

from __future__ import annotations

import asyncio
import errno
import gzip
import json
import os
import random
import re
import stat
import struct
import tempfile
import zlib
from contextlib import suppress
from dataclasses import replace
from io import FileIO
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from mpstui.core.codec import codec, difference, patched
from mpstui.core.mask import MASKED, Mask
from mpstui.core.model import ProcessKey, Snapshot
from mpstui.core.text import printable
from mpstui.core.where import Where
from mpstui.core.xid import Xid
from mpstui.history import recording
from mpstui.history.player import Player
from mpstui.history.recording import (
    Coder,
    FileSink,
    FileTape,
    Head,
    MemoryTape,
    Recorder,
    RecordingError,
    _packed,
    line_schema,
    lines,
)
from mpstui.history.viewer import of_file
from mpstui.observe.reducer import Kept, NodeState, Watching
from mpstui.system.procfs import ProcessFacts
from tests.observe.replay import PIPE, events, running
from tests.observe.test_reducer import COMMANDS, FAULTS, USERS, facts, read_between

CHANGES = (
    {"cpu_seconds": 2.5},
    {"cpu_seconds": None},
    {"where": Where(unit="a.service")},
    {"where": None},
    {"environment": {"CUDA_MPS_PIPE_DIRECTORY": "/a"}},
    {"environment": {}},
    {"vouched": True},
    {"user": "erin", "uid": 2005},
)


def told_by(logs, listener, now: list[float]) -> list[Snapshot]:
    """The snapshots of a node that reads these logs, with readings between them."""
    told = sorted(
        ((event.time, kind, event) for kind, raw in logs.items() for event in events(kind, raw) if event.time),
        key=lambda each: each[:2],
    )
    node = NodeState("gpu-07", euid=0)
    node.listener = listener
    now[0] = told[0][0]
    node.set_places([running()])
    node.set_watching(PIPE, Watching("logs"))
    made = []
    for number, (when, kind, event) in enumerate(told):
        now[0] = when
        node.add_event(PIPE, event, kind, when)
        read_between(node, number, when)
        made.append(node.snapshot(when))
    return made


def recorded(logs, sink, **options) -> tuple[list[Snapshot], Recorder]:
    now = [0.0]
    recorder = Recorder(sink, lambda: now[0], **options)
    made = told_by(logs, recorder, now)
    recorder.end()
    assert recorder.trouble is None
    return made, recorder


@pytest.fixture(scope="module")
def small_file(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("small", numbered=True) / "small.mps"
    sink = FileSink(path, 1 << 30, 1e9)
    recorded({kind: raw[:12] for kind, raw in FAULTS.items()}, sink, many=30)
    sink.close()
    return path


@pytest.fixture(scope="module")
def fault_file(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("recording", numbered=True) / "fault.mps"
    sink = FileSink(path, 1 << 30, 1e9)
    recorded(FAULTS, sink, many=60)
    sink.close()
    return path


@pytest.mark.slow
@pytest.mark.parametrize("logs", [COMMANDS, FAULTS, USERS], ids=["commands", "faults", "users"])
def test_a_recording_folded_again_gives_equal_snapshots(logs):
    """Each member begins with a state of its own: 60 lines a member, so that many are entered in the middle."""
    tape = MemoryTape(1 << 30, 1e9)
    made, _ = recorded(logs, tape, many=60)
    player = Player(tape)
    assert len(tape.heads()) > 3
    back = [shown for n in range(len(tape.heads())) for _, shown, _ in player.moments(n) if shown is not None]
    assert player.trouble is None
    assert back == made


@pytest.mark.slow
def test_each_line_is_as_the_schema_says(fault_file):
    validator = Draft202012Validator(line_schema())
    with gzip.open(fault_file) as file:
        told = [json.loads(line) for line in file]
    assert len(told) > 200
    assert not [error.message for each in told[::9] for error in validator.iter_errors(each)]


@pytest.mark.slow
def test_steps_go_through_the_events_and_back():
    tape = MemoryTape(1 << 30, 1e9)
    made, _ = recorded({kind: raw[:70] for kind, raw in FAULTS.items()}, tape, many=30)
    player = Player(tape)
    first, last = player.span
    ahead, at = [], first - 1
    while (moment := player.next_event(at)) is not None:
        ahead.append(moment.time)
        at = moment.time
    back, at = [], last + 1
    while (moment := player.previous_event(at)) is not None:
        back.append(moment.time)
        at = moment.time
    assert ahead == back[::-1] == sorted(set(ahead))
    assert len(ahead) > 10
    middle = player.at(made[len(made) // 2].time)
    assert middle.snapshot == [each for each in made if each.time == middle.time][-1]
    assert player.at(first - 100).snapshot == made[0]
    assert player.at(last + 100).snapshot == made[-1]


@pytest.mark.slow
def test_what_a_screen_keeps_is_bounded():
    tape = MemoryTape(20_000, 1e9)
    made, _ = recorded(COMMANDS, tape, many=40)
    assert tape.size < 40_000
    assert Player(tape).at(made[-1].time).snapshot == made[-1]
    assert tape.heads()[0].first > made[0].time
    short = MemoryTape(1 << 30, 3.0)
    recorded(COMMANDS, short, many=40)
    assert short.heads()[-1].first - short.heads()[1].last <= 4.0


class Full(FileIO):
    """A file for which there is half the room."""

    def write(self, data) -> int:
        return super().write(bytes(data)[: len(data) // 2])


class Disk:
    """Where files without a name are made, in place of the folders of the machine."""

    def __init__(self, folder: Path, monkeypatch) -> None:
        self.folder, self.room = folder, "all"
        self._make = tempfile.TemporaryFile
        monkeypatch.setattr(tempfile, "TemporaryFile", self._made)

    def _made(self, **options) -> FileIO:
        if self.room == "none":
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))
        file = self._make(**{**options, "dir": self.folder})
        return file if self.room == "all" else Full(os.dup(file.fileno()), "r+")


@pytest.fixture
def disk(tmp_path, monkeypatch) -> Disk:
    return Disk(tmp_path, monkeypatch)


@pytest.mark.parametrize("room", ["all", "half", "none"])
def test_whole_members_go_where_they_take_less_memory_and_are_read_as_before(room, disk):
    disk.room = room
    tape = MemoryTape(1 << 30, 1e9)
    made, _ = recorded(COMMANDS, tape, many=400)
    assert len(tape.heads()) > 1
    tape.begin(Head(0, made[-1].time, made[-1].time, 0))
    loose, size, heads = tape.copy(), tape.size, tape.heads()
    tape.tighten()
    assert tape.size - tape.in_files < (100 if room == "all" else 0.8 * size)
    assert tape.in_files == (sum(head.size for head in heads) if room == "all" else 0)
    assert loose.size == size, "whoever reads it meanwhile reads what was there"
    assert tape.heads() == heads
    for number in range(len(heads)):
        assert [*lines(tape, number)] == [*lines(loose, number)] == [*lines(tape.copy(), number)]
    size = tape.size
    tape.tighten()
    assert tape.size == size


def files_in(folder: Path) -> list[int]:
    """The open files of this process that were made there."""
    found = []
    for link in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # the listing's own
            if os.readlink(link).startswith(os.fspath(folder)):
                found.append(int(link.name))
    return found


@pytest.mark.slow
def test_what_is_kept_in_files_has_no_name_is_its_owners_alone_and_ends_with_who_reads_it(disk):
    tape = MemoryTape(20_000, 1e9)
    recorded(COMMANDS, tape, many=400)
    tape.tighten()
    assert len(files_in(disk.folder)) == len(tape.heads())
    assert not [*disk.folder.iterdir()]
    for fd in files_in(disk.folder):
        found = os.fstat(fd)
        assert (found.st_nlink, stat.S_IMODE(found.st_mode), os.get_inheritable(fd)) == (0, 0o600, False)
    meanwhile, first = tape.copy(), tape.heads()[0]
    rounds = 0
    while tape.heads()[0] is first:  # in files too, only so much is kept
        recorded(COMMANDS, tape, many=400)
        tape.tighten()
        rounds += 1
        assert rounds < 9
    assert tape.size <= 60_000 + tape.heads()[-1].size
    assert [*lines(meanwhile, 0)]
    del meanwhile, tape
    assert not files_in(disk.folder)


@pytest.mark.slow
def test_what_is_packed_again_while_it_is_counted_copied_or_read_is_one_or_the_other(monkeypatch):
    """That is done in another thread, between any two steps of this one."""
    for look in (lambda tape: tape.size > 0, lambda tape: [*lines(tape.copy(), 0)], lambda tape: tape.read(0, 0, 100)):
        tape = MemoryTape(1 << 30, 1e9)
        recorded(COMMANDS, tape, many=400)
        before, pending = look(tape), [tape]

        def asked(value, kind, pending=pending):
            found = isinstance(value, kind)
            if pending:
                pending.pop().tighten()
            return found

        with monkeypatch.context() as there:
            there.setattr(recording, "isinstance", asked, raising=False)
            assert look(tape) == before
        assert not pending


def test_a_difference_and_the_value_before_make_the_value():
    values = [{"a": 1}, {"a": {"b": [1], "c": None}}, {"a": {"c": 2}}, {}, {"~": {"-": 1}, "=": {}}, {"~": 3}, [1], 4]
    for old in values:
        for new in values:
            assert patched(old, difference(old, new)) == new


def test_a_state_in_pieces_is_the_same_json():
    node = NodeState("gpu-07", euid=0)
    node.set_places([running()])
    for kind, raw in FAULTS.items():
        for event in events(kind, raw):
            node.add_event(PIPE, event, kind, event.time or 1.0)
    node.set_facts([1, 2], {1: facts(1, where=Where(unit="a"), environment={'a"b': "ü"}), 2: facts(2)}, 1e9)
    kept, code = node.kept(), codec(Kept)
    whole = code.encode(kept)
    for depth in range(9):
        assert json.loads("".join(code.text(kept, depth))) == whole
    pieces = [*code.text(kept, 4)]
    assert max(map(len, pieces)) < len("".join(pieces)) / 4
    assert json.loads(Coder().begin(node, 2.5)) == {"mpstui_recording": 1, "time": 2.5, "state": whole}


# The file.


def test_what_is_encoded_again_is_as_if_it_were_the_first():
    """Whatever has changed, and whatever a mapping has more or less; what has not is the same object."""
    code, chance = codec(dict[int, ProcessFacts]), random.Random(7)
    value = {pid: facts(pid, cpu_seconds=1.0) for pid in range(1, 9)}
    told = code.encode(value)
    for _ in range(300):
        changed = {
            pid: replace(each, **chance.choice(CHANGES)) if chance.random() < 0.3 else each
            for pid, each in value.items()
            if chance.random() < 0.9
        }
        changed |= {pid: facts(pid) for pid in chance.sample(range(1, 30), 2)}
        again = code.again(changed, value, told)
        assert again == code.encode(changed)
        assert all(
            again[str(pid)] is told[str(pid)] for pid in changed.keys() & value.keys() if changed[pid] == value[pid]
        )
        value, told = changed, again
    assert code.again(dict(value), value, told) is told


def test_a_recording_is_for_its_owner_alone(fault_file):
    assert stat.S_IMODE(fault_file.stat().st_mode) == 0o600


def test_nothing_but_a_recording_of_ones_own_is_continued(tmp_path, fault_file):
    other = tmp_path / "other"
    other.write_text("mine")
    with pytest.raises(RecordingError, match="others may read it"):
        FileSink(other, 1 << 30, 1e9)
    other.chmod(0o600)
    with pytest.raises(RecordingError, match="is there and is no recording"):
        FileSink(other, 1 << 30, 1e9)
    assert other.read_text() == "mine"
    for name, make in (("link", os.symlink), ("hard", os.link)):
        place = tmp_path / "folder" / name
        place.parent.mkdir(exist_ok=True)
        target = tmp_path / f"target of {name}"
        target.write_bytes(fault_file.read_bytes())
        target.chmod(0o600)
        make(target, place)
        with pytest.raises(RecordingError):
            FileSink(place, 1 << 30, 1e9)
    os.mkfifo(tmp_path / "fifo", 0o600)
    with pytest.raises(RecordingError):
        FileSink(tmp_path / "fifo", 1 << 30, 1e9)
    open_folder = tmp_path / "open"
    open_folder.mkdir()
    open_folder.chmod(0o777)
    with pytest.raises(RecordingError, match="is not written"):
        FileSink(open_folder / "file", 1 << 30, 1e9)


def test_one_that_was_torn_off_is_continued_behind_that(tmp_path, fault_file):
    path = tmp_path / "torn.mps"
    path.write_bytes(fault_file.read_bytes()[:-500])
    path.chmod(0o600)
    before = FileTape(path)
    sink = FileSink(path, 1 << 30, 1e9)
    now = [before.heads()[-1].last + 10]
    recorder = Recorder(sink, lambda: now[0])
    node = NodeState("later", euid=0)
    node.listener = recorder
    node.set_places([running()])
    node.snapshot(now[0])
    recorder.end()
    sink.close()
    tape = FileTape(path)
    player = Player(tape)
    assert player.at(now[0]).snapshot.host == "later"
    assert player.at(before.heads()[0].last).snapshot.host == "gpu-07"
    assert tape.trouble is None


def test_what_was_before_is_recorded_as_the_state_that_it_came_to():
    """A history has thousands of events, all told at the same moment."""
    tape, now = MemoryTape(1 << 30, 1e9), [0.0]
    recorder = Recorder(tape, lambda: now[0])
    told = [(event.time, kind, event) for kind, raw in FAULTS.items() for event in events(kind, raw) if event.time]
    node = NodeState("gpu-07", euid=0)
    node.listener = recorder
    now[0] = max(when for when, *_ in told) + 1
    node.set_places([running()])
    node.set_watching(PIPE, Watching("logs"))
    with node.untold():
        for when, kind, event in sorted(told, key=lambda each: each[:2]):
            node.add_event(PIPE, event, kind, when)
    now[0] += 1
    made = node.snapshot(now[0])
    node.set_facts([1], {}, now[0])
    recorder.flush()
    assert node.listener is recorder
    assert recorder.trouble is None
    assert made.events
    written = b"".join(line for number in range(len(tape.heads())) for line in lines(tape, number))
    assert b"add_event" not in written
    assert Player(tape).at(now[0]).snapshot == made


def test_what_waits_to_be_packed_is_little():
    tape, now = MemoryTape(1 << 30, 1e9), [0.0]
    recorder = Recorder(tape, lambda: now[0], flush=1e9)
    node = NodeState("gpu-07", euid=0)
    node.listener = recorder
    most = 0
    for kind, raw in FAULTS.items():
        for event in events(kind, raw) * 5:
            now[0] = event.time or now[0]
            node.add_event(PIPE, event, kind, now[0])
            most = max(most, sum(map(len, recorder._waiting)))
    assert recorder._told > 1 << 18
    assert most < 1 << 17


@pytest.mark.slow
def test_a_full_file_becomes_the_older_part(tmp_path):
    path = tmp_path / "long.mps"
    sink = FileSink(path, 60_000, 1e12)
    made, _ = recorded(COMMANDS, sink, many=20)
    sink.close()
    parts = sorted(each.name for each in tmp_path.iterdir())
    assert parts == ["long.mps", "long.mps.1", "long.mps.2", "long.mps.3"]
    assert sum(each.stat().st_size for each in tmp_path.iterdir()) < 120_000
    assert all(stat.S_IMODE(each.stat().st_mode) == 0o600 for each in tmp_path.iterdir())
    player = Player(FileTape(path))
    assert player.at(made[-1].time).snapshot == made[-1]
    assert player.span[0] > made[0].time
    again = FileSink(path, 1 << 30, 1e12)
    again.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs another owner")
def test_an_older_part_that_is_somebody_elses_is_left_out(tmp_path, small_file):
    path, forged = tmp_path / "a.mps", tmp_path / "a.mps.1"
    for each in (path, forged):
        each.write_bytes(small_file.read_bytes())
    os.chown(forged, 12345, 12345)
    path.chmod(0o600)
    forged.chmod(0o666)
    tape = FileTape(path)
    assert tape.uid == os.geteuid(), "what is left out says nothing of whose the rest is"
    assert len(tape.heads()) == len(FileTape(small_file).heads())
    assert "a.mps.1 is left out: it belongs to another user" in tape.trouble
    forged.unlink()
    os.mkfifo(forged)
    assert "is left out" in FileTape(path).trouble


# Whatever somebody makes of it.


def read_all(path: Path) -> str | None:
    """Everything of it, once: why it was not read, or not further; None where there is nothing the matter."""
    try:
        tape = FileTape(path)
    except RecordingError as error:
        return str(error)
    try:
        player = Player(tape)
        for number in range(len(tape.heads())):
            for _, shown, _ in player.moments(number):
                assert shown is None or isinstance(shown, Snapshot)
        first, last = player.span
        if (moment := player.at((first + last) / 2)) is not None:
            text = repr(moment.snapshot)
            assert printable(text, len(text)) == text
        player.next_event(first)
        player.previous_event(last)
        return player.trouble or tape.trouble
    finally:
        tape.close()


@pytest.mark.slow
def test_torn_anywhere_it_is_read_up_to_there(tmp_path, small_file):
    raw, torn = small_file.read_bytes(), tmp_path / "torn.mps"
    for size in random.Random(7).sample(range(len(raw)), 25):
        torn.write_bytes(raw[:size])
        read_all(torn)
    torn.write_bytes(raw[: len(raw) - 9])
    assert len(FileTape(torn).heads()) == len(FileTape(small_file).heads())


def test_one_that_is_cut_ends_where_its_lines_do_and_says_so(tmp_path, small_file):
    raw, cut = small_file.read_bytes(), tmp_path / "cut.mps"
    cut.write_bytes(raw[: len(raw) * 2 // 3])
    tape, whole = FileTape(cut), FileTape(small_file)
    assert "is cut off" in tape.trouble
    assert whole.trouble is None
    assert tape.heads()[0].first < tape.heads()[-1].last < whole.heads()[-1].last, "what it has nothing of is no ok"


def test_one_with_no_moment_of_the_node_is_refused_in_a_sentence(tmp_path, small_file):
    begun = gzip.decompress(small_file.read_bytes()).splitlines()[0]
    for told, why in (((begun,), "ends before anything"), ((begun, b'{"a":' * 9999), "no JSON")):
        (path := tmp_path / "begun.mps").write_bytes(member(*told))
        with pytest.raises(RecordingError, match=why):
            of_file(path, 1.0)


def test_changed_anywhere_it_is_damaged_and_no_traceback(tmp_path, small_file):
    raw, bad = small_file.read_bytes(), tmp_path / "bad.mps"
    chance = random.Random(11)
    for _ in range(25):
        wrong = bytearray(raw)
        for _ in range(chance.choice((1, 1, 5))):
            wrong[chance.randrange(len(wrong))] = chance.randrange(256)
        bad.write_bytes(wrong)
        read_all(bad)


def member(*told: bytes, first: float = 1e9) -> bytes:
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    body = packer.compress(b"".join(line + b"\n" for line in told)) + packer.flush()
    end = struct.pack("<II", 0, 0)
    size = len(_packed(Head(0, 0.0, 0.0, 0))) + len(body) + len(end)
    return _packed(Head(size, first, first + 10, 3)) + body + end


def state(**more: object) -> bytes:
    return json.dumps({"mpstui_recording": 1, "time": 1e9, "state": {"looked": True, **more}}).encode()


SHOW = json.dumps({"t": 1e9, "r": "snapshot", "v": {"time": 1e9}}).encode()


def event(**more: object) -> bytes:
    values = {
        "pipe_dir": "/tmp/x",
        "event": {"kind": "server_ready", "time": 1e9, **more},
        "origin": "server",
        "now": 1e9,
    }
    return json.dumps({"t": 1e9, "r": "add_event", "v": values}).encode()


def test_a_file_without_end_is_looked_through_as_far_as_one_look_goes_and_left_at_once(tmp_path):
    """A stranger's of 200,000 members with nothing to show: q and Ctrl-C had to wait for all of them."""
    (path := tmp_path / "bomb.mps").write_bytes(
        member(state(), SHOW) + b"".join(member(state(), first=1e9 + number) for number in range(1, 1000))
    )
    tape, read = FileTape(path), []
    whole = tape.read
    tape.read = lambda number, offset, most: read.append(number) or whole(number, offset, most)
    player = Player(tape)
    for look in (player.at, player.previous_event, lambda _: player.next_event(1e9)):
        player.trouble = None
        assert look(2e9) is None
        assert len(set(read)) < 250
        assert player.trouble == "Too much of the recording has nothing to show: not all of it was read."
        read.clear()
    assert player.at(player.begin).snapshot.time == 1e9, "one look is not the next one's"
    player.leave()
    player.trouble = None
    read.clear()
    assert (player.at(2e9), player.next_event(1e9), player.trouble, read) == (None, None, None, [])


def test_who_leaves_a_recording_waits_for_no_look(tmp_path):
    (path := tmp_path / "one.mps").write_bytes(member(state(), SHOW))
    viewer = of_file(path, 1.0)
    asyncio.run(viewer.prime())
    asyncio.run(viewer.stop())
    assert viewer._player.at(1e9 - 1) is None


def test_of_many_parts_that_are_cut_off_a_few_are_looked_through(tmp_path, monkeypatch):
    cut, looked = member(state(), SHOW, first=1e9)[:-8], []
    for name in ("a", *(f"a.{number}" for number in range(1, 9))):
        (tmp_path / name).write_bytes(cut)
    end = FileTape._end_of
    monkeypatch.setattr(FileTape, "_end_of", lambda tape, head: looked.append(head) or end(tape, head))
    heads = FileTape(tmp_path / "a").heads()
    assert (len(heads), len(looked)) == (9, 3)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "is empty"),
        (b"hello", "is not a recording"),
        (gzip.compress(b"{}"), "is not a recording"),
        (_packed(Head(0, 5.0, 5.0, 0)).replace(b"\x01\x00\x00\x00", b"\x09\x00\x00\x00", 1), "format 9"),
        (member(state(), b"[" * 100_000), "no JSON"),
        (member(state(), b'{"t": ' + b"9" * 400 + b"}"), "damaged|no known kind|no JSON"),
        (member(state(), event(pid=10**400)), "a whole number"),
        (member(state(), event(time=1e300)), "a number is needed"),
        (member(state(), b'{"t": 1e9, "r": "kept", "v": {}}'), "no known kind"),
        (member(state(), b'{"t": NaN, "r": "snapshot", "v": {}}'), "no JSON"),
        (member(state(), event(kind="server_starting")), "cannot be read"),
        (member(state(), event(nonsense=1)), "an? .*Event is needed"),
        (member(state(), event(pipe_dir="/tmp/\x1b]0;x")), "a path that can be shown"),
        (member(state(watched={"/tmp/\u202e": {}})), "a path|Watched"),
        (member(b'{"mpstui_recording": 2}'), "does not begin with a state"),
        (member(state(), b"\xff\xfe"), "no JSON"),
        (member(state(), b" " * (9 << 20)), "larger than any"),
    ],
    ids=range(17),
)
def test_a_strangers_file_is_refused_in_words(data, said, tmp_path):
    path = tmp_path / "theirs.mps"
    path.write_bytes(data)
    told = read_all(path)
    assert told is not None
    assert printable(told, len(told)) == told
    assert re.search(said, told), told


def test_what_a_strangers_file_says_is_printable(tmp_path):
    path = tmp_path / "theirs.mps"
    evil = "\x1b]52;c;aGk=\x07\u202e\n"
    path.write_bytes(member(state(host=evil), event(server_pid=1, detail=evil, raw=evil), SHOW))
    assert read_all(path) is None
    tape = FileTape(path)
    shown = Player(tape).at(2e9).snapshot
    assert "\\x1b]52" in shown.host
    assert "\\u202e" in shown.events[0].detail


def test_it_is_read_whosever_it_is_and_no_fifo(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    assert "cannot be read" in str(read_all(tmp_path / "fifo"))
    assert "cannot be read" in str(read_all(tmp_path / "none"))
    assert "cannot be read" in str(read_all(tmp_path))


def test_every_part_of_a_state_has_a_way_to_json():
    assert codec(Kept).decode(codec(Kept).encode(Kept("x"))).host == "x"


def test_the_lines_are_read_in_pieces(fault_file):
    tape = FileTape(fault_file)
    with gzip.open(fault_file) as file:
        whole = file.read().splitlines()
    assert [line for n in range(len(tape.heads())) for line in lines(tape, n)] == whole


def test_what_stands_where_an_older_part_would_go_does_not_end_the_recording(tmp_path: Path) -> None:
    """In /tmp anybody makes a directory ``FILE.1``."""
    path = tmp_path / "a"
    squatted = [tmp_path / f"a.{number}" for number in (1, 2, 3, 5)]
    for each in squatted:
        each.mkdir()
        (each / "x").touch()
    sink = FileSink(path, 4096, 1e12)
    for time in range(20):
        head = Head(0, float(time), float(time), 0)
        sink.begin(head)
        sink.write(b"x" * 1200)
        sink.end(head)
    sink.close()
    assert sorted(p.name for p in tmp_path.iterdir() if p.is_file()) == ["a", "a.4", "a.6", "a.7"]
    for number in range(4, 100):
        if not (tmp_path / f"a.{number}").exists():
            (tmp_path / f"a.{number}").mkdir()
    for number in (4, 6, 7):
        (tmp_path / f"a.{number}").unlink()
        (tmp_path / f"a.{number}").mkdir()
    sink = FileSink(tmp_path / "a", 4096, 1e12)
    sink.begin(Head(0, 30.0, 30.0, 0))
    sink.write(b"x" * 1200)
    sink.begin(Head(0, 31.0, 31.0, 0))
    sink.close()
    assert path.stat().st_size < 100, "with no place at all the newest part begins anew"


# To be given away.

XID = "NVRM: Xid (PCI:0000:00:06): 31, pid=947, name=secret, hunter2, channel 0x00000010, intr 00000000. MMU Fault: x"


@pytest.mark.slow
def test_a_masked_recording_names_nobody_and_comes_to_the_same(tmp_path):
    """Of the same readings, with names and without: all but the names is alike."""
    secrets = ("alice", "hunter2", "secret", "gpu-07", "2001")
    whole, masked = MemoryTape(1 << 30, 1e9), FileSink(tmp_path / "masked", 1 << 30, 1e9, new=True)
    pipe = Path("/home/alice/mps/pipe")
    made: list[list[Snapshot]] = []
    for sink, mask in ((whole, None), (masked, Mask(shaped=True, names={2001: "alice"}.get))):
        now, shown = [0.0], []
        recorder = Recorder(sink, lambda now=now: now[0], many=25, mask=mask)
        node = NodeState("gpu-07.secret.site", euid=2001)
        node.listener = recorder
        place = running()._replace(pipe_dir=pipe, log_dir=Path("/tmp/mps_2001/log"), uid=2001)
        told = [(event.time, kind, event) for kind, raw in USERS.items() for event in events(kind, raw) if event.time]
        now[0] = min(each[0] for each in told)
        node.set_places([place])
        for number, (when, kind, event) in enumerate(sorted(told, key=lambda each: each[:2])):
            now[0] = when
            node.add_event(pipe, event, kind, when)
            there = {
                pid: facts(
                    pid, uid=2001, user="alice", command=f"/opt/secret/train --password hunter2 {pid}",
                    cgroup="/alice/secret", container="secretbox", terminal="secret",
                    where=Where(pod="secret-0", namespace="alice", batch="slurm", job="secret"),
                    environment={"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "40", "CUDA_SECRET": "hunter2"},
                )
                for pid in node.pids()
            }  # fmt: skip
            node.set_facts(sorted(there), there, when)
            if number % 9 == 8:
                node.add_xids([Xid(when, 31, line=XID)])
            shown.append(node.snapshot(when))
        recorder.end()
        made.append(shown)
    masked.close()
    raw = gzip.decompress((tmp_path / "masked").read_bytes()).decode()
    assert [secret for secret in secrets if re.search(rf"(?<![0-9]){secret}", raw)] == []
    assert "user1" in raw
    tape = FileTape(tmp_path / "masked")
    player = Player(tape)
    back = [shown for n in range(len(tape.heads())) for _, shown, _ in player.moments(n) if shown is not None]
    tape.close()
    assert player.trouble is None

    def shape(snapshot: Snapshot) -> object:
        clients = [
            (c.key, c.state, c.user, c.active_thread_percentage, c.device_uuids)
            for d in snapshot.daemons for c in d.clients()
        ]  # fmt: skip
        people = [(who[0], who[1], who[2].replace("alice", "user1") if who[2] else None, *who[3:]) for who in clients]
        events = [(e.kind, e.time, e.pid, e.server_pid) for e in snapshot.events]
        return people, [(d.health, [s.status for s in d.servers]) for d in snapshot.daemons], events

    assert [shape(each) for each in back] == [shape(each) for each in made[0]]


def test_masked_is_a_new_file(tmp_path, small_file):
    before = small_file.read_bytes()
    with pytest.raises(RecordingError, match="may name people"):
        FileSink(small_file, 1 << 30, 1e9, new=True)
    assert small_file.read_bytes() == before


def test_the_recordings_of_the_documentation_replay():
    """Those that the page names are those that are there; each is masked, and shows a fault and the way out of it."""
    docs = Path(__file__).parents[2] / "docs"
    named = set(re.findall(r"\(recordings/([\w.-]+)\)", (docs / "past.md").read_text()))
    there = {path.name: path for path in (docs / "recordings").glob("*")}
    assert named == set(there)
    for path in there.values():
        tape = FileTape(path)
        player = Player(tape)
        shown = [each for n in range(len(tape.heads())) for _, each, _ in player.moments(n) if each is not None]
        tape.close()
        assert player.trouble is None
        assert {each.host for each in shown} == {"host"}
        servers = [each.daemons[0].servers[0].status for each in shown if each.daemons and each.daemons[0].servers]
        assert "FAULT" in servers
        assert servers[-1] == "ACTIVE"
        assert any(event.kind == "fatal_fault" for event in shown[-1].events)
        clients = [client for each in shown for daemon in each.daemons for client in daemon.clients()]
        assert {client.command for client in clients} <= {None, MASKED}
        assert all(re.fullmatch(r"root|user\d+", client.user) for client in clients if client.user)


def test_who_is_shown_is_told_beside_the_last_time_and_not_beside_all() -> None:
    def facts(pids: range, seconds: float) -> dict[int, ProcessFacts]:
        return {pid: ProcessFacts(ProcessKey(pid, 1), user="alice", cpu_seconds=seconds * (pid < 103)) for pid in pids}

    writer, reader = Coder(), Coder()
    readings = [
        (float(t), range(100, 400 + (t > 15)) if t % 5 == 0 else range(100, 110)) for t in range(1, 31)
    ]  # and somebody comes
    lengths = []
    for time, pids in readings:
        values = tuple(pids), facts(pids, time), time
        line = writer.encode(time, "set_facts", values)
        lengths.append(len(line))
        assert reader.decode(line) == (time, "set_facts", [*values])
    assert lengths[4] > 20_000, "all, the first time"
    assert max(lengths[5:]) < 4_000, "with the list of all"
