"""Names that a stranger gives his processes, mounts and cgroups, with what ends a line for Python and not for the
kernel: what stood behind that was taken for the kernel's own word, as of whose a process is."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from mpstui.core.where import Cgroup, parse_cgroups
from mpstui.doctor import program
from mpstui.doctor.checkup import filesystem_of
from mpstui.observe.activity import mapped_libraries
from mpstui.system import procfs
from mpstui.system.procfs import effective_uid, namespace_pids, process_uids, real_uid
from mpstui.system.trusted import NotTrustedError, judge_directory

from .conftest import Stranger
from .userspace import mounted

NAMED = """
import sys, threading
name = sys.argv[1].encode().decode("unicode_escape")
def call_itself():
    with open(f"/proc/self/task/{threading.get_native_id()}/comm", "w", newline="") as comm:
        comm.write(name)
def other():
    call_itself()
    print("ready", flush=True)
    sys.stdin.read()
call_itself()
threading.Thread(target=other).start()
"""


@pytest.mark.parametrize(
    "name", [r"a\rUid:\t0\t0\t0\t0", r"a\rUid:", r"a\rUid:\tx\tx\tx", r"a\rNSpid:\t1\t2", r"a\rNSpid:\tx"]
)
def test_a_process_does_not_say_whose_it_is(stranger: Stranger, name: str) -> None:
    his = stranger.start_python(NAMED, name, stdin=subprocess.PIPE)
    assert his.stdout is not None
    assert his.stdout.readline() == "ready\n"
    assert (effective_uid(his.pid), real_uid(his.pid)) == (stranger.uid, stranger.uid)
    assert process_uids(his.pid) == {stranger.uid}
    assert namespace_pids(his.pid) == (his.pid,)
    assert program._status(his.pid)["Uid"].split() == [str(stranger.uid)] * 4
    facts = procfs.ProcProcesses().facts([his.pid])[his.pid]
    assert facts.uid == stranger.uid


@pytest.mark.parametrize("end", ["\r", "\v", "\f", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029"])
def test_nor_in_which_cgroup_it_is(end: str) -> None:
    """A user who has a part of the tree makes ``…/a<end>1:name=systemd:/system.slice/job.service``."""
    own = f"/user.slice/user@7.service/a{end}1:memory:/slurm/uid_0/job_5"
    assert parse_cgroups(f"0::{own}\n") == (Cgroup("", own),)


def test_nor_whose_a_mount_is(roots: Stranger, stranger: Stranger) -> None:
    """``fusermount`` mounts at any directory of his. Root's programs ended with a traceback."""
    (place := roots.home / "his\rb").mkdir()
    os.chown(place, stranger.uid, stranger.uid)
    with (
        mounted(place, stranger.uid),
        pytest.raises(NotTrustedError, match=f"on a file system that UID {stranger.uid} runs"),
    ):
        judge_directory(place, {0})


def test_nor_what_kind_of_file_system_or_library_there_is() -> None:
    mounts = b"1 1 0:1 / / rw - ext4 x rw\n2 1 0:2 / /home/his/a\r3 1 0:3 / / rw - nfs x rw - fuse x rw\n"
    assert filesystem_of(Path("/"), mounts) == "ext4"
    maps = b"7f0-7f1 r-xp 0 08:01 7 /tmp/a\r7f0-7f1 r-xp 0 08:01 9 /usr/lib/libcuda.so.1\n"
    assert 9 not in [library.inode for library in mapped_libraries(maps)]
