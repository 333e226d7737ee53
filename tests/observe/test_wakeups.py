"""The kernel's notices: what ends a rest, and when they are not relied on."""

from __future__ import annotations

import asyncio

import pytest

from mpstui.observe.logs import Wakeups, open_watcher
from tests.observe.fakes import AtOnce

PATIENCE = 120.0


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """Whether this kernel tells of changes at all; some sandboxes have the calls and no wakeups."""
    path = tmp_path_factory.mktemp("probe") / "file"
    path.touch()
    watcher = open_watcher()
    if watcher is None:
        pytest.skip("no inotify here")
    try:
        watcher.add_watch(path, 0x2)  # IN_MODIFY
        path.write_text("x")
        if not watcher.read(timeout=2000):
            pytest.skip("inotify tells nothing here")
    finally:
        watcher.close()


@pytest.fixture
async def wakeups(told):
    found = Wakeups(open_watcher, lambda seconds: asyncio.sleep(0))
    await found.open(AtOnce())
    yield found
    found.close()


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "logs" / "control.log"
    path.parent.mkdir()
    path.write_text("one\n")
    return path


def write(path) -> None:
    with path.open("a") as out:
        out.write("two\n")


async def test_a_line_ends_the_rest_and_quiet_does_not(wakeups, log):
    wakeups.watch([log])
    assert wakeups.relied
    assert not await wakeups.rest(0.001)
    write(log)
    assert await wakeups.rest(PATIENCE)
    assert not await wakeups.rest(0.001)


async def test_another_file_in_the_folder_ends_no_rest(wakeups, log):
    wakeups.watch([log])
    write(log.with_name("other.log"))
    assert not await wakeups.rest(0.001)


async def test_a_log_below_a_link_is_watched(wakeups, log, tmp_path):
    (tmp_path / "way").symlink_to(log.parent)
    wakeups.watch([tmp_path / "way" / log.name])
    write(log)
    assert await wakeups.rest(PATIENCE)


async def test_a_link_in_the_place_of_a_log_is_not_followed(wakeups, log, tmp_path):
    link = tmp_path / "link.log"
    link.symlink_to(log)
    wakeups.watch([link])
    write(log)
    assert not await wakeups.rest(0.001)


async def test_rotation_and_truncation_end_the_rest_and_the_next_file_is_watched(wakeups, log):
    wakeups.watch([log])
    log.rename(log.with_suffix(".1"))
    assert await wakeups.rest(PATIENCE)
    wakeups.watch([log])
    write(log)  # a new file
    assert await wakeups.rest(PATIENCE)
    wakeups.watch([log])
    write(log)
    assert await wakeups.rest(PATIENCE)
    log.write_text("")
    assert await wakeups.rest(PATIENCE)
    write(log.with_suffix(".1"))
    assert not await wakeups.rest(0.001)


async def test_a_log_that_is_still_to_come_is_awaited(wakeups, log):
    server = log.with_name("server.log")
    wakeups.watch([log, server])
    assert wakeups.relied
    write(server)
    assert await wakeups.rest(PATIENCE)


async def test_somebody_may_end_the_rest(wakeups, log):
    wakeups.watch([log])
    wakeups.stir()
    assert await wakeups.rest(PATIENCE)


async def test_a_rest_that_is_cancelled_as_a_notice_comes_is_over(wakeups, log):
    wakeups.watch([log])
    resting = asyncio.create_task(wakeups.rest(PATIENCE))
    await asyncio.sleep(0)
    wakeups.stir()
    resting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await resting


async def test_a_folder_that_is_not_there_is_not_relied_on(wakeups, tmp_path):
    wakeups.watch([tmp_path / "none" / "control.log"])
    assert not wakeups.relied


async def test_a_file_system_that_does_not_tell_is_not_relied_on_until_it_does(wakeups, log):
    wakeups.watch([log])
    wakeups.missed()
    assert wakeups.relied
    wakeups.missed()
    assert not wakeups.relied
    write(log)
    assert await wakeups.rest(PATIENCE)
    assert wakeups.relied


async def test_without_inotify_nothing_is_relied_on(log):
    found = Wakeups(lambda: None, asyncio.sleep)
    await found.open(AtOnce())
    found.watch([log])
    assert not found.relied
    found.close()
