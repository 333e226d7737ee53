"""Who keeps a reader of its memory waiting is left; the others are read."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import mpstui
from mpstui.system import memory
from mpstui.system.memory import read_each, read_memory


def test_one_that_keeps_its_reader_is_left_and_asked_again_when_it_comes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A FIFO that nobody writes to stands for it."""
    stuck, real = set[int](), memory.read_file

    def read(path: str, limit: int) -> bytes | None:
        stuck.add(threading.get_native_id())
        try:
            return real(path, limit)
        finally:
            stuck.discard(threading.get_native_id())

    monkeypatch.setattr(memory, "PATIENCE", 0.2)
    monkeypatch.setattr(memory, "read_file", lambda path, limit: (read if path == paths[1] else real)(path, limit))
    monkeypatch.setattr(memory._Reader, "kept", lambda reader: reader._id in stuck)
    paths = [os.fspath(tmp_path / name / "cmdline") for name in ("1", "2", "3", "4")]
    for path in paths:
        Path(path).parent.mkdir()
    os.mkfifo(paths[1])
    for path in (paths[0], paths[3]):
        Path(path).write_bytes(b"train.py\0")
    assert read_each(paths, 5) == [b"train", None, None, b"train"], "of the third there is nothing"
    assert read_each([*paths, paths[0]], 100) == [b"train.py\0", None, None, b"train.py\0", b"train.py\0"]
    assert read_memory(os.fspath(tmp_path / "2" / "environ"), 100) is None, "of such a process nothing is asked"
    Path(paths[1]).write_bytes(b"late\0")
    end = time.monotonic() + 120
    while os.path.dirname(paths[1]) in memory._waits:
        assert time.monotonic() < end
    os.unlink(paths[1])
    Path(paths[1]).write_bytes(b"now\0")
    assert read_memory(paths[1], 100) == b"now\0"


def test_a_slow_machine_is_no_process_that_keeps_its_reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = iter([False] * 3)
    path = tmp_path / "7" / "cmdline"
    path.parent.mkdir()
    os.mkfifo(path)

    def runs(reader: memory._Reader) -> bool:
        if next(asked, None) is None:
            path.write_bytes(b"slow\0")  # whoever reads goes on
        return False

    monkeypatch.setattr(memory._Reader, "kept", runs)
    monkeypatch.setattr(memory, "PATIENCE", 0.05)
    assert read_memory(os.fspath(path), 100) == b"slow\0"


def test_a_child_reads_with_threads_of_its_own() -> None:
    """In a program without other threads: a fork beside those of pytest may never end."""
    program = """
import os
from mpstui.system.memory import read_memory
assert read_memory("/proc/self/cmdline", 1 << 16)
if (child := os.fork()) == 0:
    os._exit(0 if read_memory("/proc/self/cmdline", 1 << 16) else 1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)


def test_nothing_of_a_process_s_memory_is_opened_anywhere_else() -> None:
    opened = re.compile(r"open\(f?[\"']/proc/[^\"']*/(cmdline|environ|maps|exe)[\"']")
    sources = [p for p in Path(mpstui.__file__).parent.rglob("*.py") if "sim" not in p.parts]
    assert len(sources) > 100
    assert [path.name for path in sources if opened.search(path.read_text())] == []
