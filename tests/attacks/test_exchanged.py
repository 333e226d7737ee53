"""Sockets and links that a stranger exchanges while root asks: nothing that he answers is root's daemon's word."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from mpstui.core.trust import ANYBODY

from .conftest import Stranger
from .programs import lying_daemon, mpstui, roots_process

SOCKETS = r"""
import ctypes, os, sys, time
libc = ctypes.CDLL(None, use_errno=True)
pipe_dir, mine = sys.argv[1:]
names = "control", "control_privileged"
for name in names:
    os.rename(os.path.join(mine, name), os.path.join(pipe_dir, name + ".x"))
print("ready", flush=True)
while True:
    time.sleep(0.03)
    for name in names:
        path = os.path.join(pipe_dir, name).encode()
        libc.renameat2(-100, path, -100, path + b".x", 2)
"""
LINK = r"""
import os, sys, time
link, *leads_to = sys.argv[1:]
print("ready", flush=True)
while True:
    for to in leads_to:
        os.symlink(to, link + ".n")
        os.rename(link + ".n", link)
        time.sleep(0.03)
"""


@pytest.mark.parametrize("what", ["sockets", "link"])
def test_what_a_stranger_answers_is_not_the_word_of_roots_daemon(
    stranger: Stranger, roots: Stranger, crowd: Path, what: str
) -> None:
    """Root was told of a fault, and to end the clients hit by it, as said by his own daemon."""
    pipe_dir, theirs = crowd / "mps", stranger.home / "p"
    pipe_dir.mkdir()
    pipe_dir.chmod(0o777)  # as a daemon leaves the one that it makes
    server = stranger.start("sleep", "600").pid
    with roots_process() as victim:
        lying_daemon(roots, pipe_dir, clients=[victim.pid], server=os.getpid(), mode=0o777)
        lying_daemon(stranger, theirs, clients=[victim.pid], server=server, status="FAULT")
        if what == "link":
            asked = stranger.home / "link"
            flips = stranger.start_python(LINK, asked, pipe_dir, theirs)
        else:
            asked = pipe_dir
            flips = stranger.start_python(SOCKETS, pipe_dir, theirs)
        assert flips.stdout is not None
        assert flips.stdout.readline() == "ready\n"
        for _ in range(6):
            told = mpstui("status", "--json", "--pipe-dir", asked, MPSTUI_CONTROL_DEADLINE="1")
            problems = json.loads(told.stdout)["problems"] if told.stdout else []
            said = [each for each in problems if each["code"] in {"fault", "daemon_lies"}]
            assert all(each["uid"] in {stranger.uid, ANYBODY} for each in said), said
            assert not any("End the clients" in each["remedy"] for each in problems)
