"""A process that lets nobody read its memory keeps no program of ours waiting, whatever looks at all processes.

It gives back a changed page of a file in user space that is never written, and asks for memory meanwhile: whoever reads
its arguments then waits until it ends, ``ps`` too. Any user can do that who may mount a file system in user space.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import warm
from folders import others_memory

from mpstui.control.holder import find_sessions
from mpstui.core.model import ProcessKey
from mpstui.observe.activity import LaunchCounter, Library, UncountedError
from mpstui.sim.node import SimNode
from mpstui.system.memory import keepers

GUARD = Path(__file__).resolve().parents[2] / "scripts" / "gpu" / "ending.py"

KEEPER = r"""
import ctypes, os, struct, sys, threading
libc = ctypes.CDLL(None, use_errno=True)
libc.prctl(1, 9, 0, 0, 0)
libc.unshare(0x20000)
libc.mount(b"none", b"/", None, 0x44000, None)
fd, where = os.open("/dev/fuse", os.O_RDWR), sys.argv[1]
if libc.mount(b"fuse", where.encode(), b"fuse", 0, f"fd={fd},rootmode=40000,user_id=0,group_id=0".encode()):
    sys.exit("no file system in user space can be mounted")
attr = lambda n: struct.pack("=QQQQQQ10I", n, 4096 * (n > 1), 8, 0, 0, 0, 0, 0, 0, 0o100666 if n > 1 else 0o40755, 1,
                             0, 0, 0, 4096, 0)
answers = {
    26: lambda n: struct.pack("=IIIIHHIIHHI28x", 7, 31, 1 << 16, 0, 12, 9, 1 << 16, 1, 16, 0, 0),
    1: lambda n: struct.pack("=QQQQII", 2, 0, 1, 1, 0, 0) + attr(2),
    3: lambda n: struct.pack("=QII", 1, 0, 0) + attr(n), 4: lambda n: struct.pack("=QII", 1, 0, 0) + attr(n),
    14: lambda n: struct.pack("=QII", 7, 0, 0), 15: lambda n: bytes(4096),
    18: lambda n: b"", 25: lambda n: b"", 27: lambda n: b"",
}
def serve():
    while True:
        _, asked, unique, node = struct.unpack_from("=IIQQ", os.read(fd, 1 << 17))
        if asked == 16:
            print("kept", flush=True)  # the page is to be written, and never is
        elif asked not in {2, 36, 42}:
            body = answers[asked](node) if asked in answers else b""
            os.write(fd, struct.pack("=IiQ", 16 + len(body), 0 if asked in answers else -38, unique) + body)
child = os.fork()
if child == 0:
    libc.prctl(1, 9, 0, 0, 0)
    os.close(fd)
    libc.mmap.restype, size = ctypes.c_void_p, ctypes.c_size_t(4096)
    page = libc.mmap(None, size, 3, 1, os.open(where + "/x", os.O_RDWR), ctypes.c_long(0))
    ctypes.memset(page, 65, 4096)
    threading.Thread(target=lambda: libc.munmap(ctypes.c_void_p(page), size), daemon=True).start()
    while True:
        libc.mmap(None, size, 3, 0x22, -1, ctypes.c_long(0))
print(child, flush=True)
threading.Thread(target=serve, daemon=True).start()
sys.stdin.read()
os.kill(child, 9)
os._exit(0)  # its end of the file system goes with it, and with that all who wait
"""


@pytest.fixture
def keeper(tmp_path: Path) -> Iterator[int]:
    """The PID of such a process."""
    if os.geteuid() != 0 or not os.access("/dev/fuse", os.R_OK | os.W_OK):
        pytest.skip("a file system in user space is mounted by root, with /dev/fuse")
    (tmp_path / "there").mkdir()
    command = [sys.executable, "-c", KEEPER, os.fspath(tmp_path / "there")]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with others_memory(kept=True), subprocess.Popen(command, **pipes) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        told = process.stdout.readline()
        if not told:
            pytest.skip(process.stderr.read().decode())
        ends = threading.Timer(100, process.kill)  # nobody else is to be kept for long
        ends.start()
        try:
            assert process.stdout.readline() == b"kept\n"
            while Path(f"/proc/{int(told)}/stat").read_text().rpartition(") ")[2][0] != "D":
                pass  # until it asks for memory and waits, too
            yield int(told)
        finally:
            ends.cancel()
            process.kill()


@pytest.mark.slow
def test_who_keeps_whoever_reads_its_memory_keeps_none_of_ours(keeper: int, tmp_path: Path) -> None:
    reader = subprocess.Popen(["cat", f"/proc/{keeper}/cmdline"], stdout=subprocess.DEVNULL)
    with tempfile.TemporaryDirectory(prefix="mps", dir="/tmp") as place, SimNode.start(Path(place)) as node:
        at = ("--pipe-dir", node.pipe_dir)
        commands = (
            ("status", "--json", *at),
            ("status",),
            ("doctor", *at),
            ("why", keeper, *at),
            ("exporter", "--textfile", tmp_path / "metrics.prom", "--once", *at),
        )
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        programs = [warm.Popen(words, env=os.environ, **pipes) for words in commands]
        guard = [sys.executable, GUARD, "nobody's", "0"]  # of the scripts for a GPU machine; it looks at every process
        programs.append(subprocess.Popen(guard, stdin=subprocess.DEVNULL, **pipes))
        assert keepers() == [keeper]
        counter, library = LaunchCounter(), Library(b"0:0", 1, "0-1", b"/libcuda.so.1")
        with pytest.raises(UncountedError, match=f"process {keeper}: the kernel would wait"):
            counter._attach(None, ProcessKey(os.getpid(), 1), library)  # type: ignore[arg-type]
        found = {session.holder.pid for session in find_sessions(node.pipe_dir)}
        assert keeper not in found, "the programs may have sessions, it has none"
        for program in programs:
            out, err = program.communicate(timeout=170)
            assert "Traceback" not in err, program.args
            assert out or program.returncode == 0, (program.args, err)
        assert find_sessions(node.pipe_dir) == [], "and none is left by the programs"
    assert reader.poll() is None, "it keeps everybody else"
    reader.kill()
    reader.wait()
