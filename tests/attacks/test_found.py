"""A program in a place of root's that is a stranger's all the same: the file is his, or the link leads through his
directory. A place of PATH was judged by itself, and root ran what lay in it."""

from __future__ import annotations

import errno
import os
import struct
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import pytest
import warm
from sim.recorded import eventually

from mpstui.commands import Filled, RefusedError
from mpstui.commands import find_program as find_own_command
from mpstui.control.channel import exchange
from mpstui.core.model import Snapshot
from mpstui.daemons.modes import set_compute_mode
from mpstui.doctor.checkup import _server_binary
from mpstui.doctor.setup import server_binary
from mpstui.doctor.types import BinaryFacts, Facts
from mpstui.load import guard
from mpstui.system import own
from mpstui.system.own import ProgramError, find_program, own_path
from mpstui.ui.fleet import in_terminal

from .conftest import Stranger
from .programs import ROOT, short_deadline_for
from .test_here import ran
from .test_path import COMMANDS, PROGRAMS

CONTROL: Final = "nvidia-cuda-mps-control"


class Bin:
    """Root's directory in PATH, and what a stranger has to do with what lies in it."""

    def __init__(self, roots: Stranger, stranger: Stranger) -> None:
        self.his = stranger
        self.home = roots.home
        self.place, self.real = roots.home / "bin", roots.home / "real"
        for folder in (self.place, self.real, stranger.home / "bin"):
            folder.mkdir()
        for name in PROGRAMS:
            for folder in (self.real, stranger.home / "bin"):
                (folder / name).write_text(f"#!/bin/sh\necho {name} >> {ran(stranger.home)}\nexit 1\n")
                (folder / name).chmod(0o755)
            os.chown(stranger.home / "bin" / name, stranger.uid, stranger.uid)
        os.chown(stranger.home / "bin", stranger.uid, stranger.uid)

    def put(self, name: str, mode: int, *, uid: int = 0, gid: int = 0) -> None:
        file = self.place / name
        file.write_bytes((self.real / name).read_bytes())
        os.chown(file, uid, gid)
        file.chmod(mode)


def _his_file(there: Bin, name: str) -> None:
    there.put(name, 0o755, uid=there.his.uid)


def _for_all(there: Bin, name: str) -> None:
    there.put(name, 0o757)


def _his_groups(there: Bin, name: str) -> None:
    there.put(name, 0o775, gid=there.his.uid)


def _the_users(there: Bin, name: str) -> None:
    """The group 100, whose members all who have an account are on Debian, RHEL and SUSE."""
    there.put(name, 0o775, gid=100)


def _the_staffs(there: Bin, name: str) -> None:
    """A group of the system's has ordinary users among its members on many nodes, as staff, adm and docker."""
    there.put(name, 0o775, gid=50)


def _a_link_to_his(there: Bin, name: str) -> None:
    (there.place / name).symlink_to(there.his.home / "bin" / name)


def _a_link_through_his(there: Bin, name: str) -> None:
    """It ends at a program of root's, until he makes it end elsewhere."""
    there.his.run("ln", "-sfn", there.real, there.his.home / "way")
    (there.place / name).symlink_to(there.his.home / "way" / name)


def _roots_link_in_his(there: Bin, name: str) -> None:
    """The link in his directory is root's, and he may put another in its place."""
    if not os.path.lexists(link := there.his.home / "roots"):
        link.symlink_to(there.real)
    (there.place / name).symlink_to(link / name)


def _by_dots(there: Bin, name: str) -> None:
    (there.place / name).symlink_to(os.path.join("..", "..", there.his.home.name, "bin", "..", "bin", name))


def _sticky_for_all(there: Bin, name: str) -> None:
    """As /tmp: the next file of that name may be anybody's."""
    (folder := there.home / "sticky").mkdir(exist_ok=True)
    folder.chmod(0o1777)
    (folder / name).write_bytes((there.real / name).read_bytes())
    (folder / name).chmod(0o755)
    (there.place / name).symlink_to(folder / name)


WAYS: Final[dict[str, Callable[[Bin, str], None]]] = {
    "his file": _his_file,
    "for all": _for_all,
    "his group's": _his_groups,
    "the users'": _the_users,
    "the staff's": _the_staffs,
    "a link to his": _a_link_to_his,
    "a link through his": _a_link_through_his,
    "root's link in his": _roots_link_in_his,
    "by dots": _by_dots,
    "in a sticky one": _sticky_for_all,
}


@pytest.fixture
def there(roots: Stranger, stranger: Stranger) -> Bin:
    return Bin(roots, stranger)


@pytest.fixture(params=WAYS)
def trap(request: pytest.FixtureRequest, there: Bin, monkeypatch: pytest.MonkeyPatch) -> Bin:
    for name in PROGRAMS:
        WAYS[request.param](there, name)
    monkeypatch.setenv("PATH", f"{there.place}:/nowhere")
    return there


async def test_root_runs_none_that_a_stranger_can_change(trap: Bin, tmp_path: Path) -> None:
    """Once what root starts for a question, for a device, for a node, and for a load of its own."""
    await exchange((CONTROL, "-h"), b"", dict(os.environ), 60, "-h")
    set_compute_mode("GPU-0", "EXCLUSIVE_PROCESS")
    in_terminal(Filled("ssh", ("ssh", "node7"), "", ()))
    guard.start([CONTROL], {**os.environ, "PATH": own_path()}, tmp_path / "said")
    assert not ran(trap.his.home).exists(), ran(trap.his.home).read_text()


@pytest.mark.parametrize("what", COMMANDS)
@pytest.mark.parametrize("way", ["his file", "root's link in his"])
def test_nor_does_a_command(there: Bin, what: str, way: str, tmp_path: Path) -> None:
    for name in PROGRAMS:
        WAYS[way](there, name)
    places = {"PIPE": str(tmp_path / "mps"), "LOGS": str(tmp_path / "log")}
    command: Sequence[str] = [places.get(word, word) for word in COMMANDS[what]]
    path = f"{there.place}:{os.environ['PATH']}"
    warm.run(*command, env={**os.environ, "PATH": path, "MPSTUI_AUDIT_LOG": str(tmp_path / "audit")}, timeout=300)
    assert not ran(there.his.home).exists(), ran(there.his.home).read_text()


def test_nor_is_a_place_used_to_which_roots_link_in_his_leads(there: Bin) -> None:
    (there.his.home / "roots").symlink_to(there.real)
    (there.home / "led").symlink_to(there.his.home / "roots")
    assert own_path({"PATH": f"{there.home}/led:{there.his.home}/roots:{there.real}"}) == f"{there.real}"


def _why(there: Bin, name: str = CONTROL) -> str:
    with pytest.raises(ProgramError) as error:
        find_program(name, {"PATH": f"{there.place}"})
    return error.value.why


def test_it_is_told_which_one_is_not_used_and_what_to_do(there: Bin) -> None:
    program, his = there.place / CONTROL, there.his.home
    leads, again = f"PATH leads to {program}, which is not used: ", own._AGAIN
    _his_file(there, CONTROL)
    assert _why(there) == f"{leads}{program} belongs to UID {there.his.uid}: {again}"
    os.chown(program, 0, 0)
    program.chmod(0o757)
    assert _why(there) == f"{leads}{program} can be changed by everybody (mode 0757): chmod go-w {program}"
    program.chmod(0o755)
    os.chown(program, 0, there.his.uid)
    program.chmod(0o775)
    assert _why(there) == f"{leads}{program} can be changed by its group (mode 0775): chmod go-w {program}"
    program.unlink()
    _a_link_through_his(there, CONTROL)
    assert _why(there) == f"{leads}{his} belongs to UID {there.his.uid}: {again}"
    program.unlink()
    program.symlink_to(there.place / "missing")
    assert _why(there) == "it is not on PATH"
    program.unlink()
    program.symlink_to(program)
    assert _why(there) == "it is not on PATH"
    program.unlink()
    program.mkdir()
    assert _why(there) == "it is not on PATH"
    assert _why(there, "") == "it is not on PATH"


def test_the_next_one_of_roots_is_taken(trap: Bin) -> None:
    """As where the place is not good. A shell would run the first; it is passed over, as one is that is no program."""
    assert find_program(CONTROL, {"PATH": f"{trap.place}:{trap.real}"}) == os.fspath(trap.real / CONTROL)


def test_what_is_roots_all_the_way_is_found(there: Bin) -> None:
    """Through links of root's, past a sticky directory as /tmp is, in a directory where a group of the system's may
    write, as /usr/local/bin is staff's, and a file of root's own group."""
    os.chown(there.place, 0, 50)
    there.place.chmod(0o2775)
    (there.home / "other").symlink_to("real")
    (there.place / CONTROL).symlink_to(os.path.join("..", "other", ".", CONTROL))
    assert find_program(CONTROL, {"PATH": f"{there.place}"}) == os.fspath(there.place / CONTROL)
    there.put("ssh", 0o775)
    assert find_program("ssh", {"PATH": f"{there.place}"}) == os.fspath(there.place / "ssh")


def test_a_name_with_a_slash_is_as_it_was_written(trap: Bin, monkeypatch: pytest.MonkeyPatch) -> None:
    """But what a configuration has is judged, and what depends on where root stands is not used."""
    program = os.fspath(trap.place / CONTROL)
    assert find_program(program) == program
    with pytest.raises(RefusedError, match=f"root does not run {program}: "):
        find_own_command(program)
    monkeypatch.chdir(trap.place)
    with pytest.raises(ProgramError, match="it is not a whole path: write it from / on, or the name alone"):
        find_program(f"./{CONTROL}")
    with pytest.raises(ProgramError, match="it is not there, or is no program"):
        find_program(f"{trap.place}/missing")


@pytest.mark.parametrize(("mode", "whose"), [(0o1777, "everybody"), (0o1775, "its group")])
def test_nobody_is_told_to_close_a_directory_as_tmp_is(there: Bin, mode: int, whose: str) -> None:
    """The remedy was ``chmod go-w /tmp``, without which no other user's program works."""
    there.put(CONTROL, 0o755)
    os.chown(there.place, 0, there.his.uid)
    there.place.chmod(mode)
    place, program = there.place, there.place / CONTROL
    assert _why(there) == (
        f"PATH leads to {program}, which is not used: {place} can be changed by {whose} (mode {mode:04o}): {own._AGAIN}"
    )


async def test_the_remedy_is_told_whole_of_a_long_path(there: Bin) -> None:
    """As of modules and of spack: the path is in it three times, and the end was cut off."""
    (place := there.place / ("deep" * 40)).mkdir()
    (program := place / CONTROL).write_bytes((there.real / CONTROL).read_bytes())
    program.chmod(0o757)
    said = (await exchange((CONTROL,), b"", {"PATH": os.fspath(place)}, 60, "ps")).message
    assert said.endswith(f": chmod go-w {program}.")


def test_where_no_thread_can_be_started_it_is_said(there: Bin, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container at its limit of processes; nothing of it is kept for the next look."""

    def full(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    there.put(CONTROL, 0o755)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", full)
        why = _why(there)
    assert why == f"it is not on PATH, but {there.place} cannot be looked at: no thread can be started"
    assert find_program(CONTROL, {"PATH": f"{there.place}"}) == f"{there.place}/{CONTROL}"


def test_what_may_not_be_executed_is_passed_over(there: Bin, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a file system that is mounted with noexec."""
    there.put(CONTROL, 0o755)
    real, refused = os.access, os.fspath(there.place)
    monkeypatch.setattr(
        os, "access", lambda path, *more, **named: not str(path).startswith(refused) and real(path, *more, **named)
    )
    assert find_program(CONTROL, {"PATH": f"{there.place}:{there.real}"}) == os.fspath(there.real / CONTROL)


def test_what_cannot_be_looked_at_now_is_said_and_looked_at_again(there: Bin, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process without a descriptor to spare found no place of PATH, and for ten seconds more said that it is not
    there."""
    there.put(CONTROL, 0o755)
    real = own.walk

    def walk(*args: Any, **named: Any) -> Any:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(own, "_looks", {})
    monkeypatch.setattr(own, "walk", walk)
    assert "it cannot be looked at: Too many open files" in _why(there)
    monkeypatch.setattr(own, "walk", real)
    assert find_program(CONTROL, {"PATH": f"{there.place}"}) == os.fspath(there.place / CONTROL)


def test_no_list_names_him(there: Bin) -> None:
    program = there.place / CONTROL
    there.put(CONTROL, 0o755)
    nobody = 0xFFFFFFFF
    entries = ((1, 7, nobody), (2, 7, there.his.uid), (4, 5, nobody), (16, 7, nobody), (32, 5, nobody))
    data = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *each) for each in entries)
    try:
        os.setxattr(program, "system.posix_acl_access", data)
    except OSError as error:
        pytest.skip(f"no access control lists here: {error}")
    assert "can be changed by its group" in _why(there)


def test_a_link_to_what_does_not_answer_is_waited_for_once(there: Bin, monkeypatch: pytest.MonkeyPatch) -> None:
    """The place is root's and answers; what is mounted behind the link does not."""
    comes, asked, real = threading.Event(), list[str](), own.why_not_roots

    def looked(path: str, *, program: bool = True) -> str:
        asked.append(path)
        return "" if path == f"{there.place}/{CONTROL}" and comes.wait(300) else real(path, program=program)

    monkeypatch.setattr(own, "why_not_roots", looked)
    short_deadline_for(monkeypatch, f"{there.place}/{CONTROL}")
    (there.place / CONTROL).symlink_to(there.real / CONTROL)
    path = {"PATH": f"{there.place}:{there.real}"}
    assert own_path(path) == path["PATH"]
    assert find_program(CONTROL, path) == os.fspath(there.real / CONTROL)
    assert find_program(CONTROL, path) == os.fspath(there.real / CONTROL)
    assert asked.count(f"{there.place}/{CONTROL}") == 1
    comes.set()
    eventually(lambda: find_program(CONTROL, path) == os.fspath(there.place / CONTROL))


def test_two_who_look_at_once_see_the_same(there: Bin, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fleet asks many nodes in threads: the second one found no place in PATH that was root's, and used another."""
    begun, goes_on, real = threading.Event(), threading.Event(), own._why_others

    def looked(place: str) -> str:
        begun.set()
        goes_on.wait(300)
        return real(place)

    monkeypatch.setattr(own, "_why_others", looked)
    monkeypatch.setattr(own, "_ANSWERS", 300.0)
    monkeypatch.setattr(own, "_looks", {})
    found = list[str]()
    looks = [threading.Thread(target=lambda: found.append(own_path({"PATH": f"{there.real}"}))) for _ in range(2)]
    looks[0].start()
    assert begun.wait(300)
    looks[1].start()
    looks[1].join(0.05)
    goes_on.set()
    for look in looks:
        look.join(300)
    assert found == [f"{there.real}"] * 2


def test_whoever_is_not_root_has_what_his_path_says(there: Bin, bystander: Stranger) -> None:
    """Whose programs somebody uses is his to say."""
    _his_file(there, CONTROL)
    code = """if True:
        import sys
        sys.path.insert(0, sys.argv[1])
        from mpstui.system.own import find_program
        print(find_program(sys.argv[2], {"PATH": sys.argv[3]}))
        """
    words = ("-c", code, ROOT, CONTROL, f".:{there.place}")
    if "ModuleNotFound" in (told := bystander.run(bystander.interpreter, *words, check=False)).stderr:
        pytest.skip("the checkout is not open to others")
    assert told.stdout.strip() == os.fspath(there.place / CONTROL), told.stderr


@pytest.mark.parametrize("way", ["his file", "a link to his"])
def test_doctor_tells_of_a_server_binary_that_a_daemon_of_roots_would_start(
    there: Bin, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """It lies beside the control binary, and the daemon starts it with root's rights."""
    name = "nvidia-cuda-mps-server"
    for folder in (there.real, there.his.home / "bin"):
        (folder / name).write_text("#!/bin/sh\nexit 1\n")
        (folder / name).chmod(0o755)
    os.chown(there.his.home / "bin" / name, there.his.uid, there.his.uid)
    there.put(CONTROL, 0o755)
    monkeypatch.setenv("PATH", f"{there.place}:/nowhere")
    WAYS[way](there, name)
    place, trouble = _server_binary((CONTROL,))
    assert place == os.fspath(there.place / name)
    assert f"belongs to UID {there.his.uid}" in trouble
    facts = Facts(Snapshot(0.0), BinaryFacts(None), server_binary=place, server_trouble=trouble)
    (finding,) = server_binary(facts)
    assert finding.verdict == "error"
    assert trouble in finding.evidence


def test_doctor_says_no_more_of_a_server_binary_than_is_known(there: Bin, monkeypatch: pytest.MonkeyPatch) -> None:
    """That others can change it was said of one that is not beside the control binary and of which a mount in PATH may
    know, and of one below the directory where somebody stands."""
    there.put(CONTROL, 0o755)
    here = there.his.home / "nvidia-cuda-mps-server"
    here.write_text("#!/bin/sh\n")
    here.chmod(0o755)
    monkeypatch.chdir(there.his.home)
    comes, real = threading.Event(), own._why_others
    monkeypatch.setattr(own, "_why_others", lambda place: "" if place == "/away" and comes.wait(300) else real(place))
    short_deadline_for(monkeypatch, "/away")
    assert own_path({"PATH": f"{there.place}:/away"}) == f"{there.place}"
    for path, why in (("/away", "it is not on PATH, but /away does not answer"), (".", own._STANDS)):
        monkeypatch.setenv("PATH", f"{path}:{there.place}")
        place, trouble = _server_binary((CONTROL,))
        assert (place, trouble[-len(why) :]) == ("", why)
        facts = Facts(Snapshot(0.0), BinaryFacts(None), server_binary=place, server_trouble=trouble)
        (finding,) = server_binary(facts)
        assert (finding.verdict, finding.evidence) == ("warning", f"it is not beside the control binary, and {trouble}")
    comes.set()


def test_a_folder_in_one_place_that_is_another_place_is_still_one(there: Bin) -> None:
    path = {"PATH": f"{there.home}:{there.real}"}
    with pytest.raises(ProgramError, match="it is not on PATH"):
        find_program("real", path)
    assert find_program(CONTROL, path) == os.fspath(there.real / CONTROL)
    assert own_path(path) == path["PATH"]
