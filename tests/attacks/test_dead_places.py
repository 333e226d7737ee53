"""A place in PATH, or for temporary files, that dies: a mount whose server is away, or whose user lets nobody have an
answer. Nobody waits for it."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from sim.recorded import eventually

from mpstui.system import own
from mpstui.system.own import ProgramError, find_program, own_path, temporary_place

_FEW = 200
"""Threads, of thousands of places: one more for each moment of the seconds in which they answer."""


class Mount:
    """A directory of a test's own, of which every look waits from ``dies`` until ``comes``."""

    def __init__(self, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.place = place
        self.waited = list[str]()
        self._dead, self._comes = False, threading.Event()
        for module, name in ((os, "open"), (os, "stat"), (os, "lstat"), (os, "access")):
            monkeypatch.setattr(module, name, self._held(getattr(module, name)))

    def _held(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def held(path: Any, *more: Any, **named: Any) -> Any:
            if self._dead and self._is_there(path, named.get("dir_fd")):
                assert threading.current_thread() is not threading.main_thread(), f"{path} is waited for"
                self.waited.append(os.fsdecode(path))
                self._comes.wait(300)
            return real(path, *more, **named)

        return held

    def _is_there(self, path: Any, folder: int | None) -> bool:
        if isinstance(path, int):
            return False
        within = "" if folder is None else os.readlink(f"/proc/self/fd/{folder}")
        return os.path.join(within, os.fsdecode(path)).startswith(os.fspath(self.place))

    def dies(self) -> None:
        self._dead = True

    def comes(self) -> None:
        self._dead = False
        self._comes.set()


@pytest.fixture
def mount(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Mount]:
    (place := tmp_path / "away").mkdir()
    _program(place / "smi")
    for name in ("_looks", "_silent"):
        monkeypatch.setattr(own, name, {})
    with monkeypatch.context() as patch:
        mount = Mount(place, patch)
        yield mount
        mount.comes()


def _program(path: Path) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize("root", [True, False])
@pytest.mark.parametrize("was_good", [True, False])
def test_nobody_waits_for_a_place_of_path_that_dies(
    mount: Mount, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, root: bool, was_good: bool
) -> None:
    """It was asked without a thread for what it has, as long as it held for good; and by whoever is not root at all
    times."""
    if root and os.geteuid() != 0:
        pytest.skip("places are judged for root")
    monkeypatch.setattr(os, "geteuid", lambda: 0 if root else 1000)
    monkeypatch.setattr(own, "_HOLDS", 1e9)
    monkeypatch.setattr(own, "_fault", lambda path, program: os.stat(path) and "")
    there = _program(tmp_path / "there" / "smi")
    path = {"PATH": f"{mount.place}:{there.parent}"}
    if was_good:
        assert find_program("smi", path) == f"{mount.place}/smi"
    mount.dies()
    monkeypatch.setattr(own, "_ANSWERS", 0.2)
    eventually(lambda: find_program("smi", path) == os.fspath(there))  # on a slow machine that one is late as well
    waited = len(mount.waited)
    assert (waited > 0, find_program("smi", path)) == (True, os.fspath(there))
    with pytest.raises(ProgramError, match="it is not on PATH"):
        find_program("another", path)
    assert len(mount.waited) == waited, "nothing more is asked of it"
    mount.comes()
    eventually(lambda: find_program("smi", path) == f"{mount.place}/smi")


def test_thousands_of_places_are_not_thousands_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    started, real = 0, threading.Thread.start

    def start(self: threading.Thread) -> None:
        nonlocal started
        started += 1
        real(self)

    for name in ("_looks", "_silent"):
        monkeypatch.setattr(own, name, {})
    monkeypatch.setattr(threading.Thread, "start", start)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(own, "_why_others", lambda place: "" if place == "/good" else "it is another's")
    places = ":".join(f"/place/{number}" for number in range(5000))
    assert own_path({"PATH": f"{places}:/good"}) == "/good"
    assert 0 < started <= _FEW


def test_places_that_keep_all_threads_waiting_hide_none_that_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = threading.Event()

    def why(place: str) -> str:
        if place == "/good":
            asked.set()
        return "" if asked.wait(300) else "it is another's"

    for name in ("_looks", "_silent"):
        monkeypatch.setattr(own, name, {})
    monkeypatch.setattr(own, "_ANSWERS", 300.0)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(own, "_why_others", why)
    path = f"{':'.join(f'/dead/{number}' for number in range(40))}:/good"
    assert own_path({"PATH": path}) == path


def test_a_look_that_raises_is_an_answer(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """It was a traceback on the terminal, and the place was said not to answer."""

    def raises(path: str, program: bool) -> str:
        raise RuntimeError("of a library's")

    for name in ("_looks", "_silent"):
        monkeypatch.setattr(own, name, {})
    monkeypatch.setattr(own, "_fault", raises)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    _program(tmp_path / "smi")
    with pytest.raises(ProgramError) as error:
        find_program("smi", {"PATH": os.fspath(tmp_path)})
    assert error.value.why == (
        f"PATH leads to {tmp_path}/smi, which is not used: it cannot be looked at: of a library's"
    )
    assert capfd.readouterr().err == ""


def test_a_place_for_temporary_files_that_does_not_answer_is_none(
    mount: Mount, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every command that makes one hung."""
    monkeypatch.setattr(own, "_ANSWERS", 0.2)
    monkeypatch.setenv("TMPDIR", os.fspath(mount.place))
    mount.dies()
    eventually(lambda: temporary_place() == "/tmp")
    real, usual = own._why_not_temporary, ("/tmp", "/var/tmp")
    monkeypatch.setattr(own, "_why_not_temporary", lambda place: "full" if place in usual else real(place))
    with pytest.raises(FileNotFoundError, match=f"{mount.place} does not answer; .*set TMPDIR"):
        temporary_place()


FORKED = """
import os, sys, threading
from mpstui.system import own
own._ANSWERS = 0.01
place = "/somewhere"
assert own._ask({(place, "first"): lambda: str(threading.Event().wait())})[place, "first"] == own._SILENT
assert own._ask({(place, "second"): lambda: "told"})[place, "second"] == own._SILENT, "it is not asked anything more"
own._ANSWERS = 120.0
if (child := os.fork()) == 0:
    os._exit(own._ask({(place, "second"): lambda: "told"})[place, "second"] != "told")
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_process_that_is_forked_off_looks_itself() -> None:
    """The thread that waits for a place is not in it: what it waits for would be waited for in vain, for good."""
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", FORKED], capture_output=True, check=False, timeout=240)
    assert done.returncode == 0, done.stderr.decode()


def test_a_program_that_was_stopped_calls_nothing_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """As by Ctrl-Z in the middle of a look: the clock goes on, and no thread does."""
    now, event, goes_on = [1000.0], threading.Event, threading.Event()

    class Over(event):
        def wait(self, timeout: float | None = None) -> bool:
            if now[0] == 1000.0:
                now[0] += 3600.0
                return False
            goes_on.set()
            return event.wait(self, 60)

    class Threading:
        Event = Over
        Thread = threading.Thread

    monkeypatch.setattr(own, "threading", Threading)
    monkeypatch.setattr(own, "time", SimpleNamespace(monotonic=lambda: now[0]))
    looks = {name: (lambda: goes_on.wait(60)) for name in ("one", "another")}
    assert own.looked_at(looks) == {"one", "another"}
