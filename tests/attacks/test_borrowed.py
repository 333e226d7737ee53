"""Sockets of root's that are no control daemon's: many programs have one that is called ``control`` (/run/udev has)."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from mpstui.core.trust import NotNamedError, meant
from mpstui.daemons.spec import DaemonSpec
from mpstui.daemons.start import taken
from mpstui.observe import discovery
from mpstui.observe.discovery import discover, listening_dirs

from .conftest import Stranger
from .programs import lying_daemon, mpstui, posing

WAITS = "import sys; print('ready', flush=True); sys.stdin.read()"


@pytest.fixture
def program(roots: Stranger) -> Iterator[tuple[Path, socket.socket]]:
    """A directory of root's in which a program of root's listens, and where it does."""
    folder = roots.home / "udev"
    folder.mkdir()
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listens:
        listens.bind(os.fspath(folder / "control"))
        (folder / "control").chmod(0o600)
        listens.listen()
        listens.setblocking(False)
        yield folder, listens


def unheard(listens: socket.socket) -> bool:
    """Whether nobody has connected."""
    try:
        listens.accept()[0].close()
    except BlockingIOError:
        return True
    return False


def test_a_link_of_a_strangers_to_it_makes_no_daemon(
    program: tuple[Path, socket.socket], stranger: Stranger, roots: Stranger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was root's daemon that answers nobody, and stood in the way of the one that is meant."""
    folder, listens = program
    stranger.run("ln", "-s", folder, stranger.home / "mps_x")
    monkeypatch.setattr(discovery, "running_daemons", list)
    found = discover(env={}, well_known=(f"{stranger.home}/mps_*",))
    assert folder not in {place.pipe_dir for place in found}
    (roots.home / "mps_x").symlink_to(folder)
    (place,) = discover(env={}, well_known=(f"{roots.home}/mps_*",))
    assert (place.pipe_dir, place.state) == (roots.home / "mps_x", "running"), "root says so"
    assert unheard(listens)


@pytest.mark.parametrize("mode", [0o755, 0o777])
def test_nor_does_a_process_of_his_that_names_it(
    program: tuple[Path, socket.socket], stranger: Stranger, mode: int
) -> None:
    folder, listens = program
    folder.chmod(mode)
    his = posing(stranger, WAITS, stranger.home / "d", folder)
    found = [place for place in discover(env={}, well_known=()) if place.pipe_dir == folder]
    if mode == 0o755:
        assert found == [], "he can have made no socket there"
    else:
        with pytest.raises(NotNamedError, match="its process belongs to another user than its sockets"):
            meant(found, lambda place: place.state == "running", 0)
    for words in (("status",), ("status", "--json"), ("doctor",), ("set", "client-priority", "1")):
        done = mpstui(*words)
        assert unheard(listens), (words, done)
    assert his.poll() is None


@pytest.mark.parametrize("left", [False, True])
def test_a_process_that_names_a_directory_of_roots_is_no_daemon_of_it(
    stranger: Stranger, roots: Stranger, left: bool
) -> None:
    """Root could start none there: a daemon ran there already, or was just starting, by his process' word."""
    pipe_dir = roots.home / "mps"
    pipe_dir.mkdir()
    his = posing(stranger, WAITS, stranger.home / "d", pipe_dir)
    if left:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as one:
            one.bind(os.fspath(pipe_dir / "control"))
    (place,) = discover([pipe_dir], env={})
    assert (place.state, place.daemon) == ("stale" if left else "absent", None)
    assert taken(DaemonSpec(pipe_dir, roots.home / "log")) is None
    pipe_dir.chmod(0o777)
    (place,) = discover([pipe_dir], env={})
    assert place.pid == his.pid, "there he may be about to make them"


MOUNTED = """
import ctypes, os, socket, sys
libc, maps = ctypes.CDLL(None, use_errno=True), {"setgroups": "deny"}
maps |= {"uid_map": f"0 {os.getuid()} 1", "gid_map": f"0 {os.getgid()} 1"}
if libc.unshare(0x10000000 | 0x20000):
    sys.exit()
for name, text in maps.items():
    with open(f"/proc/self/{name}", "w") as file: file.write(text)
if libc.mount(b"x", os.fsencode(sys.argv[1]), b"tmpfs", 0, None):
    sys.exit()
one = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
one.bind(sys.argv[1] + "/control_privileged")
one.listen()
print("ready", flush=True)
sys.stdin.read()
"""


def test_nor_does_a_socket_that_has_its_name_in_a_mount_namespace(
    program: tuple[Path, socket.socket], stranger: Stranger, roots: Stranger
) -> None:
    """The kernel's list has the name by which it was bound."""
    folder, _ = program
    process = stranger.start_python(MOUNTED, folder, stdin=subprocess.PIPE)
    assert process.stdout is not None
    if process.stdout.readline() != "ready\n":
        pytest.skip("users may have no mounts of their own here")
    assert folder not in listening_dirs()
    lying_daemon(roots, roots.home / "p", clients=[])
    assert roots.home / "p" in listening_dirs()
