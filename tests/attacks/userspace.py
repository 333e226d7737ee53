"""A file system in user space that another user runs: it says that all of it is root's, and is gone when it likes."""

from __future__ import annotations

import ctypes
import os
import stat
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

_HEADER = struct.Struct("<IIQQIIII")
_LOOKUP, _FORGET, _GETATTR, _READLINK, _OPEN, _RELEASE, _FLUSH, _INIT, _BATCH = 1, 2, 3, 5, 14, 18, 25, 26, 42
_NOT_KNOWN, _DETACH, _LONG = -38, 2, 3600
_FOLDER, _FILE, _LINK = 1, 2, 3
_MODES = {_FOLDER: stat.S_IFDIR | 0o755, _FILE: stat.S_IFREG | 0o755, _LINK: stat.S_IFLNK | 0o777}


@contextmanager
def mounted(place: Path, uid: int, *, leads: Path = Path("/"), leaves_at: str = "") -> Iterator[None]:
    """At this directory of the user's: ``bin`` is a directory, ``link`` leads to ``leads``, all else is a file. It is
    taken away while somebody looks for ``leaves_at`` in it, as ``fusermount -uz`` does."""
    libc = ctypes.CDLL(None, use_errno=True)
    try:
        device = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    except OSError as error:
        pytest.skip(f"no file systems in user space here: {error}")
    options = f"fd={device},rootmode=40000,user_id={uid},group_id={uid},allow_other".encode()
    if libc.mount(b"his", os.fsencode(place), b"fuse", 0, options):
        os.close(device)
        pytest.skip(f"no file systems in user space here: {os.strerror(ctypes.get_errno())}")

    def answer(code: int, node: int, data: bytes) -> bytes | int | None:
        if code == _INIT:
            return struct.pack("<IIIIHHII32x", 7, 31, 0, 0, 0, 0, 4096, 1)
        if code == _LOOKUP:
            name = os.fsdecode(data.rstrip(b"\0"))
            if name == leaves_at:
                libc.umount2(os.fsencode(place), _DETACH)
            kind = {"bin": _FOLDER, "link": _LINK}.get(name, _FILE)
            return struct.pack("<QQQQII", kind + 10 * node, 0, _LONG, _LONG, 0, 0) + attributes(kind)
        if code == _GETATTR:
            return struct.pack("<QII", _LONG, 0, 0) + attributes(node % 10)
        if code == _READLINK:
            return os.fsencode(leads)
        if code in {_FORGET, _BATCH}:
            return None
        return {_OPEN: bytes(16), _RELEASE: b"", _FLUSH: b""}.get(code, _NOT_KNOWN)

    def serve() -> None:
        with suppress(OSError):  # ENODEV: nothing of it is open any more
            while True:
                asked = os.read(device, 1 << 20)
                _, code, unique, node, *_ = _HEADER.unpack_from(asked)
                said = answer(code, node, asked[_HEADER.size :])
                if said is not None:
                    error, data = (said, b"") if isinstance(said, int) else (0, said)
                    os.write(device, struct.pack("<IiQ", 16 + len(data), error, unique) + data)
        os.close(device)  # whoever still waits for an answer has an error

    server = threading.Thread(target=serve, daemon=True)
    server.start()
    try:
        yield
    finally:
        libc.umount2(os.fsencode(place), _DETACH)
        server.join(120)


def attributes(kind: int) -> bytes:
    return struct.pack("<6Q10I", kind, 0, 0, 0, 0, 0, 0, 0, 0, _MODES[kind], 1, 0, 0, 0, 4096, 0)
