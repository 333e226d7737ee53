"""PATH names directories of other users, or the one where root stands: nothing that mpstui runs by itself is from
there."""

from __future__ import annotations

import asyncio
import os
import struct
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest
import warm
from sim.recorded import eventually

from mpstui.commands import Filled, run, run_in_terminal
from mpstui.control.channel import exchange
from mpstui.daemons import start
from mpstui.daemons.directories import DaemonError
from mpstui.daemons.modes import set_compute_mode
from mpstui.doctor import checkup
from mpstui.fleet import FleetNode, over_ssh
from mpstui.observe.devices import dcgm_trouble
from mpstui.system import own
from mpstui.system.own import ProgramError, find_program, own_path
from mpstui.ui.fleet import in_terminal

from .conftest import Stranger
from .programs import ROOT, short_deadline_for
from .test_here import ran

PROGRAMS = ("nvidia-cuda-mps-control", "nvidia-smi", "journalctl", "ssh", "dcgmi", "python3")
COMMANDS: dict[str, Sequence[str]] = {
    "doctor": ("doctor",),
    "a daemon": ("daemon", "start", "--pipe-dir", "PIPE", "--log-dir", "LOGS"),
    "the journal": ("events", "--journal", "mps"),
    "a fleet": ("fleet", "--hosts", "node7", "--once"),
    "a load": ("load", "--command", "true", "--clients", "1", "--seconds", "1", "--mps", "private", "--yes"),
}
PLACES = {
    "where it stands": "{rest}:",
    "in front": ":{rest}",
    "by a dot": ".:{rest}",
    "below": "bin:{rest}",
    "nothing else": "",
    "his": "{home}/bin:{rest}",
    "a link of his": "{home}/link:{rest}",
    "for all": "{home}/all:{rest}",
}


_PUT = """
import os, sys
for file in sys.argv[2:]:
    open(file, "w").write(f"#!/bin/sh\\necho {os.path.basename(file)} >> {sys.argv[1]}\\nexit 1\\n")
    os.chmod(file, 0o755)
"""


@pytest.fixture
def trap(stranger: Stranger) -> Path:
    """Programs of his in his directory, in one below, and in one that root has and everybody may write to."""
    (for_all := stranger.home / "all").mkdir()
    for_all.chmod(0o777)
    stranger.run("mkdir", "bin", "behind")
    stranger.run("ln", "-s", "behind", "link")
    files = [stranger.home / folder / name for folder in (".", "bin", "behind", "all") for name in PROGRAMS]
    stranger.python(_PUT, ran(stranger.home), *files)
    return stranger.home


@pytest.mark.parametrize("what", COMMANDS)
@pytest.mark.parametrize("place", PLACES)
def test_root_runs_no_program_that_a_stranger_can_have_put_in_path(
    trap: Path, what: str, place: str, tmp_path: Path
) -> None:
    """A PATH that ends with a colon, as a script makes it by accident, was enough for ``doctor``: root ran the control
    program of whoever's directory it stood in."""
    places = {"PIPE": str(tmp_path / "mps"), "LOGS": str(tmp_path / "log")}
    path = PLACES[place].format(rest=os.environ["PATH"], home=trap)
    warm.run(
        *(places.get(word, word) for word in COMMANDS[what]),
        cwd=trap,
        env={**os.environ, "PATH": path, "MPSTUI_AUDIT_LOG": str(tmp_path / "audit")},
        timeout=300,
    )
    assert not ran(trap).exists(), ran(trap).read_text()


def test_nor_for_a_device_or_where_enter_opens_a_node(trap: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(trap)
    monkeypatch.setenv("PATH", f".:{trap}/bin:/nowhere")
    set_compute_mode("GPU-0", "EXCLUSIVE_PROCESS")
    in_terminal(Filled("nvidia-smi", ("nvidia-smi", "node7"), "", ()))
    assert not ran(trap).exists(), ran(trap).read_text()


def test_places_of_roots_stay_in_their_order(trap: Path, roots: Stranger) -> None:
    (mine := roots.home / "bin").mkdir()
    (roots.home / "link").symlink_to(mine)
    path = f"/usr/bin:{trap}:.:{mine}::{roots.home}/link:/nowhere:/bin"
    assert own_path({"PATH": path}) == f"/usr/bin:{mine}:{roots.home}/link:/bin"
    assert own_path({"PATH": f".:{trap}"}) == own_path({}) == os.defpath


@pytest.mark.parametrize(
    ("path", "why"),
    [
        (
            ".",
            "PATH leads to {name}, which is not used: {stand}",
        ),
        ("{trap}/bin", "PATH leads to {trap}/bin/{name}, which is not used: {trap} belongs to UID 64101: {again}"),
        (
            "{trap}/all",
            "PATH leads to {trap}/all/{name}, which is not used: {trap} belongs to UID 64101: {again}",
        ),
        ("/nowhere:/usr/lib:/usr/lib", "it is not on PATH"),
    ],
)
def test_whoever_has_put_it_there_is_told_why_it_is_not_found(
    trap: Path, monkeypatch: pytest.MonkeyPatch, path: str, why: str
) -> None:
    """A shell finds the program, and doctor says that there is none."""
    name = "nvidia-cuda-mps-control"
    monkeypatch.chdir(trap)
    monkeypatch.setenv("PATH", path.format(trap=trap))
    with pytest.raises(ProgramError) as error:
        find_program(name)
    told = f"{name} cannot be run: {why.format(name=name, trap=trap, again=own._AGAIN, stand=own._STANDS)}"
    assert f"{name} cannot be run: {error.value.why}" == told
    assert checkup._binary((name,)).trouble == told
    with pytest.raises(DaemonError) as refused:
        start._program(name)
    assert str(refused.value) == told
    assert asyncio.run(exchange((name,), b"", dict(os.environ), 60, "ps")).message == f"{told}."
    assert in_terminal(Filled(name, (name,), "", ()))[0].words == told
    assert dcgm_trouble() == told.replace(name, "dcgmi")
    assert set_compute_mode("GPU-0", "DEFAULT") == told.replace(name, "nvidia-smi")
    told_of = list[FleetNode]()
    asyncio.run(over_ssh(["node7"], told_of.append, ssh=(name,)))
    assert [each.detail for each in told_of] == [told]


def test_nor_those_of_a_users_group_or_a_list(stranger: Stranger, roots: Stranger) -> None:
    """``/usr/local/bin`` is a group's of the system on Debian."""
    places = {}
    modes = (("staff", 50, 0o2775), ("users", 100, 0o775), ("his", stranger.uid, 0o775), ("list", 0, 0o755))
    for name, gid, mode in modes:
        (place := roots.home / name).mkdir()
        os.chown(place, 0, gid)
        place.chmod(mode)
        places[name] = os.fspath(place)
    nobody = 0xFFFFFFFF
    entries = ((1, 7, nobody), (2, 7, stranger.uid), (4, 5, nobody), (16, 7, nobody), (32, 5, nobody))
    data = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *each) for each in entries)
    try:
        os.setxattr(places["list"], "system.posix_acl_access", data)
    except OSError as error:
        pytest.skip(f"no access control lists here: {error}")
    assert own_path({"PATH": ":".join((*places.values(), "/bin"))}) == f"{places['staff']}:/bin"


@pytest.mark.parametrize(("gid", "good"), [(0, True), (50, False)])
def test_nor_a_program_that_a_group_of_the_system_may_write(roots: Stranger, gid: int, good: bool) -> None:
    """Of a directory that is usual, of a program never."""
    (program := roots.home / "smi").write_text("#!/bin/sh\n")
    os.chown(program, 0, gid)
    program.chmod(0o775)
    said = own.why_not_roots(os.fspath(program))
    assert said == ("" if good else f"{program} can be changed by its group (mode 0775): chmod go-w {program}")


def test_a_program_that_has_been_made_good_is_found_at_once(roots: Stranger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own, "_HOLDS", 1e9)
    (program := roots.home / "smi").write_text("#!/bin/sh\n")
    program.chmod(0o777)
    with pytest.raises(ProgramError, match="chmod go-w"):
        find_program("smi", {"PATH": os.fspath(roots.home)})
    program.chmod(0o755)
    assert find_program("smi", {"PATH": os.fspath(roots.home)}) == os.fspath(program)


@pytest.mark.parametrize("nameless", [True, False])
def test_in_a_user_namespace_the_machines_root_is_root(
    stranger: Stranger, monkeypatch: pytest.MonkeyPatch, nameless: bool
) -> None:
    """There all who have no number have the same one."""
    monkeypatch.setattr(own, "nameless_uid", lambda: stranger.uid if nameless else None)
    assert (own_path({"PATH": os.fspath(stranger.home)}) == os.fspath(stranger.home)) is nameless


@pytest.mark.parametrize("by_a_link", [True, False])
def test_nor_what_another_process_has_for_its_root(roots: Stranger, by_a_link: bool) -> None:
    """Also where it is root's, and shows root's own programs: what it has there it can exchange."""
    there = f"/proc/{roots.start('sleep', '300').pid}/root/usr/bin"
    place = there
    if by_a_link:
        os.symlink(there, place := os.fspath(roots.home / "link"))
    assert own.why_not_roots(place, program=False) == f"another process says what {place} is: take it out of PATH"
    assert own_path({"PATH": f"{place}:/bin"}) == "/bin"


def test_a_place_that_could_not_be_looked_at_is_looked_at_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """For want of a descriptor: it was not the place's fault, and is over in a moment."""
    said = iter(("it cannot be looked at: Too many open files", ""))
    monkeypatch.setattr(own, "_why_others", lambda place: next(said))
    monkeypatch.setattr(own, "_HOLDS", 1e9)
    for name in ("_looks", "_silent"):
        monkeypatch.setattr(own, name, {})
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert [own_path({"PATH": "/place"}) for _ in range(3)] == [os.defpath, "/place", "/place"]


def test_whoever_is_not_root_has_the_places_that_he_named(trap: Path, bystander: Stranger) -> None:
    """Whose programs somebody uses is his to say; not so what happens to lie where he stands."""
    path = f"/usr/bin:{trap}::./bin:{bystander.home}"
    code = "import sys; sys.path.insert(0, sys.argv[1]); from mpstui.system.own import own_path; print(own_path())"
    if bystander.run(bystander.interpreter, "-c", code, ROOT, check=False).returncode:
        pytest.skip("the checkout is not open to others")
    assert bystander.python(code, ROOT, env={"PATH": path}).stdout.strip() == f"/usr/bin:{trap}:{bystander.home}"


def test_a_place_that_does_not_answer_is_waited_for_once(monkeypatch: pytest.MonkeyPatch, roots: Stranger) -> None:
    """A mount whose server is away hung every command, and the screen, for good: PATH had it behind the program."""
    comes, asked = threading.Event(), list[str]()
    real = own._why_others

    def looked(place: str) -> str:
        asked.append(place)
        return "" if place == "/away" and comes.wait(300) else real(place)

    monkeypatch.setattr(own, "_why_others", looked)
    short_deadline_for(monkeypatch, "/away")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    path = f"{roots.home}:/away"
    assert own_path({"PATH": path}) == f"{roots.home}"
    assert own_path({"PATH": path}) == f"{roots.home}"
    assert asked.count("/away") == 1
    with pytest.raises(ProgramError, match="it is not on PATH, but /away does not answer"):
        find_program("no-such-program", {"PATH": path})
    comes.set()
    eventually(lambda: own_path({"PATH": path}) == path)


def test_a_sticky_groups_directory_on_the_way_is_no_place_of_others(roots: Stranger) -> None:
    """As /nix/store is: who may write there can exchange nothing of root's."""
    (store := roots.home / "store").mkdir()
    (place := store / "bin").mkdir()
    os.chown(store, 0, 30000)
    store.chmod(0o1775)
    assert own_path({"PATH": os.fspath(place)}) == os.fspath(place)
    assert own_path({"PATH": os.fspath(store)}) == os.defpath


async def test_nor_by_a_program_of_the_configurations(trap: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(trap)
    monkeypatch.setenv("PATH", f":{os.environ['PATH']}")
    filled = Filled("/bin/sh", ("sh", "-c", "nvidia-smi"), "", ())
    await run(filled, 300, lambda lines: None)
    assert not ran(trap).exists(), ran(trap).read_text()
    run_in_terminal(filled)
    assert not ran(trap).exists(), ran(trap).read_text()
