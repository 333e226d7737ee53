"""What the screen keeps from one start to the next, and from whom it takes it."""

from __future__ import annotations

import os

import pytest

from mpstui.config import ScreenMemory


@pytest.fixture
def file(tmp_path):
    return tmp_path / "state" / "mpstui" / "screen.json"


def test_what_is_put_is_there_at_the_next_start_and_a_fresh_one_begins_with_nothing(file):
    first = ScreenMemory(file)
    assert first.get("panels") is None
    first.put("panels", {"limits": True})
    first.put("zoomed", False)
    assert ScreenMemory(file).get("panels") == {"limits": True}
    assert ScreenMemory(file).get("zoomed") is False
    assert file.stat().st_mode & 0o077 == 0
    fresh = ScreenMemory(file, fresh=True)
    assert fresh.get("panels") is None
    fresh.put("zoomed", True)
    assert fresh.get("zoomed") is True
    assert ScreenMemory(file).get("panels") == {"limits": True}, "a fresh start leaves what was kept as it was"
    assert ScreenMemory(file).get("zoomed") is False
    assert [entry.name for entry in file.parent.iterdir()] == ["screen.json"], "nothing is left beside it"


@pytest.mark.parametrize(
    "content", [b"", b"[1]", b"{", b"\xff", b'"x"', b"[" * 100_000, b'{"a": "' + b"x" * 70_000 + b'"}']
)
def test_a_file_that_cannot_be_used_is_nothing(file, content):
    file.parent.mkdir(parents=True)
    file.write_bytes(content)
    memory = ScreenMemory(file)
    assert memory.get("a") is None
    memory.put("a", 1)
    assert ScreenMemory(file).get("a") == 1


def test_a_file_that_another_user_could_have_written_a_link_and_a_fifo_are_not_read(file):
    ScreenMemory(file).put("a", 1)
    file.chmod(0o666)
    assert ScreenMemory(file).get("a") is None
    file.chmod(0o600)
    if os.geteuid() == 0:
        os.chown(file, 12345, 12345)
        assert ScreenMemory(file).get("a") is None
    kept = file.with_name("kept.json")
    ScreenMemory(kept).put("a", 1)
    file.unlink()
    file.symlink_to(kept)
    assert ScreenMemory(file).get("a") is None
    file.unlink()
    os.mkfifo(file)
    assert ScreenMemory(file).get("a") is None


def test_where_nothing_can_be_written_nothing_is_said(tmp_path):
    (tmp_path / "file").write_text("")
    memory = ScreenMemory(tmp_path / "file" / "screen.json")
    memory.put("a", 1)
    assert memory.get("a") == 1
