"""A stranger's daemon writes its logs as fast as they are read, and for ever."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mpstui import api
from mpstui.core.model import Snapshot
from mpstui.history.files import LogFile
from mpstui.history.reader import LogHistory
from mpstui.observe import daemon
from mpstui.observe.logs import CHUNK_BYTES, OTHERS_BYTES, LogTail, LogWatch
from mpstui.system.trusted import owners_of

from .conftest import Stranger
from .programs import BINARY, lying_daemon

_LINE = (
    "[2026-11-20 21:24:24.196 Control   480] NEW CLIENT {} from user 0: "
    "Server is not ready, push client to pending list\n"
)


def _lines(many: int) -> str:
    return "".join(_LINE.format(1000 + number) for number in range(many))


def test_what_is_written_while_the_past_is_read_is_read_later(
    stranger: Stranger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Root's screen read on and on, showed nothing, and took memory without end."""
    logs = stranger.home / "logs"
    stranger.run("mkdir", logs)
    stranger.run("touch", logs / "control.log", logs / "server.log")
    (logs / "control.log").write_text(_LINE.format(1))
    polls, poll, grows = 0, LogTail.poll, True

    def polled(tail: LogTail, *most: int) -> list[bytes]:
        nonlocal polls
        polls += 1
        assert polls < 2000, "it comes to no end"
        if grows and tail.path.name == "control.log":
            with Path(tail.path).open("a") as log:
                log.write(_LINE.format(polls + 1))
        return poll(tail, *most)

    monkeypatch.setattr(LogTail, "poll", polled)
    watch = LogWatch(logs, owners_of(stranger.uid))
    told = watch.history()
    grows, written = False, (logs / "control.log").read_text().count("\n")
    assert told, "what there was at first"
    watch.live(lambda: 0.0)
    while more := watch.poll():
        told += more
    assert len(told) == written
    watch.close()


def test_of_his_a_look_reads_little(stranger: Stranger, roots: Stranger, monkeypatch: pytest.MonkeyPatch) -> None:
    """What folds the lines answers keys too: of seconds of lines at a time nothing else was shown."""
    looks, watch = dict[Path, int](), LogWatch

    def watched(log_dir: Path, *more: Any) -> LogWatch:
        made = watch(log_dir, *more)
        looks[log_dir] = made._control.tail.look
        return made

    monkeypatch.setattr(daemon, "LogWatch", watched)
    monkeypatch.setenv("MPSTUI_CONTROL_BINARY", str(BINARY))
    dirs = []
    for who in (stranger, roots):
        who.run("mkdir", who.home / "logs")
        who.run("touch", who.home / "logs" / "control.log")
        lying_daemon(who, who.home / "p", clients=[])
        dirs.append(who.home / "p")
    with api.open(dirs) as node:
        assert isinstance(node.snapshot(), Snapshot)
    assert looks == {stranger.home / "logs": OTHERS_BYTES, roots.home / "logs": CHUNK_BYTES}


def test_and_is_as_far_behind_as_that(stranger: Stranger) -> None:
    logs = stranger.home / "logs"
    stranger.run("mkdir", logs)
    stranger.run("touch", logs / "control.log")
    (log := logs / "control.log").write_text(_lines(100_000))
    watch = LogWatch(logs, owners_of(stranger.uid), look=OTHERS_BYTES)
    assert 0 < len(watch.history()) * len(_LINE) < 32 * OTHERS_BYTES
    watch.live(lambda: 0.0)
    with log.open("a") as more:
        more.write(_lines(5_000))
    told = watch.poll()
    assert 0 < len(told) * len(_LINE) <= 2 * OTHERS_BYTES
    assert not watch.missed()
    with log.open("a") as more:
        more.write(_lines(100_000))
    assert len(watch.poll()) * len(_LINE) <= 2 * OTHERS_BYTES
    assert watch.missed(), "and what was left out is known to be"
    watch.close()


def test_of_a_huge_one_of_his_the_end_is_read(
    stranger: Stranger, roots: Stranger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever named no directory had it read whole, which took as long as he liked."""
    monkeypatch.setattr("mpstui.history.node._OTHERS", 0, raising=False)
    monkeypatch.setenv("MPSTUI_CONTROL_BINARY", str(BINARY))
    told, said = dict[str, int](), dict[str, tuple[str, ...]]()
    for who, name in ((stranger, "his"), (roots, "root's")):
        who.run("mkdir", logs := who.home / "logs")
        for log, many in (("control.log", 15_000), ("control.log.1", 10)):
            who.run("touch", logs / log)
            (logs / log).write_text(_lines(many))
        lying_daemon(who, who.home / "p", clients=[])
        with api.open([who.home / "p"]) as node:
            events = node.events()
            said[name], told[name] = events.trouble, len([*events])
    assert 0 < told["his"] * len(_LINE) <= 1 << 20
    assert told["root's"] == 15_010
    (cut,) = [each for each in said["his"] if "only the last" in each]
    assert cut == (
        f"{stranger.home}/logs: only the last 1 MiB of control.log is read, as another user has written it; "
        f"all of it: mpstui events --log-dir {stranger.home}/logs"
    )
    assert not [each for each in said["root's"] if "only the last" in each]
    with api.open(log_dirs=[stranger.home / "logs"]) as node:
        assert len([*node.events()]) == 15_010, "and all of it where somebody asks for that"


def test_of_several_huge_ones_of_his_that_is_said_of_each(stranger: Stranger) -> None:
    stranger.run("mkdir", logs := stranger.home / "logs")
    for log in ("control.log", "server.log"):
        stranger.run("touch", logs / log)
        (logs / log).write_text(_lines(15_000))
    (cut,) = LogHistory(logs, owners=owners_of(stranger.uid), most=1 << 20).trouble
    said = "only the last 1 MiB each of control.log, server.log is read, as another user has written them; "
    assert said in cut


@pytest.mark.parametrize("most", [1, len(_LINE) - 1, len(_LINE), len(_LINE) + 1, 250, 10_000])
def test_what_is_left_of_it_are_whole_lines(tmp_path: Path, most: int) -> None:
    for name, many in (("control.log.1", 3), ("control.log", 2)):
        (tmp_path / name).write_text("".join(_LINE.format(1000 + number) for number in range(many)))
    whole = b"".join((tmp_path / name).read_bytes() for name in ("control.log.1", "control.log"))
    log = LogFile(tmp_path / "control.log")
    size = len(_LINE.format(1000))
    assert log.keep_last(most) is (most < len(whole))
    left = min(5, most // size) * size
    assert b"".join(log.blocks(0)) == whole[len(whole) - left :]
    log.close()
