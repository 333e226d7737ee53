"""A libcuda.so of a page of code, written without a compiler: its launch functions return 0 and nothing else."""

from __future__ import annotations

import platform
import struct
from collections.abc import Sequence
from pathlib import Path

MACHINE = {"x86_64": 62, "aarch64": 183}
_CODE = {62: b"\x31\xc0\xc3", 183: struct.pack("<II", 0x52800000, 0xD65F03C0)}  # return 0
_TEXT, _DATA = 0x800, 0x1000


def library(names: Sequence[str], machine: int = 0) -> bytes:
    """The bytes of a shared object that can be loaded, with these functions, 16 bytes apart from 0x800 on."""
    machine = machine or MACHINE[platform.machine()]
    text = b"".join(_CODE[machine].ljust(16, b"\0") for _ in names)
    strings = b"\0" + b"".join(name.encode() + b"\0" for name in names)
    symbols = bytes(24)
    at = 1
    for number, name in enumerate(names):
        symbols += struct.pack("<IBBHQQ", at, 0x12, 0, 1, _TEXT + 16 * number, 16)
        at += len(name) + 1
    count = len(names) + 1
    # One bucket whose chain is all symbols.
    table = struct.pack(
        f"<{3 + count}I", 1, count, 1 if names else 0, 0, *(n + 1 if n + 1 < count else 0 for n in range(1, count))
    )
    data = b""

    def put(part: bytes) -> int:
        nonlocal data
        data += bytes(-len(data) % 8)
        place = _DATA + len(data)
        data += part
        return place

    symbols_at, strings_at, table_at = put(symbols), put(strings), put(table)
    dynamic = [(4, table_at), (5, strings_at), (6, symbols_at), (10, len(strings)), (11, 24), (0, 0)]
    dynamic_at = put(b"".join(struct.pack("<QQ", *entry) for entry in dynamic))
    sections = bytes(64)
    sections += struct.pack("<IIQQQQIIQQ", 0, 11, 2, symbols_at, symbols_at, len(symbols), 2, 1, 8, 24)
    sections += struct.pack("<IIQQQQIIQQ", 0, 3, 2, strings_at, strings_at, len(strings), 0, 0, 1, 0)
    sections_at = put(sections)
    size = len(data)
    head = b"\x7fELF\x02\x01\x01" + bytes(9)
    head += struct.pack("<HHIQQQIHHHHHH", 3, machine, 1, 0, 64, sections_at, 0, 64, 56, 4, 64, 3, 0)
    head += struct.pack("<IIQQQQQQ", 1, 5, 0, 0, 0, _TEXT + len(text), _TEXT + len(text), 0x1000)
    head += struct.pack("<IIQQQQQQ", 1, 6, _DATA, _DATA, _DATA, size, size, 0x1000)
    head += struct.pack("<IIQQQQQQ", 2, 6, dynamic_at, dynamic_at, dynamic_at, 16 * len(dynamic), 16 * len(dynamic), 8)
    # Without this a loader takes the stack to have to be executable, and glibc 2.41 refuses that.
    head += struct.pack("<IIQQQQQQ", 0x6474E551, 6, 0, 0, 0, 0, 0, 16)
    return (head.ljust(_TEXT, b"\0") + text).ljust(_DATA, b"\0") + data


def write(path: Path, names: Sequence[str]) -> Path:
    path.write_bytes(library(names))
    path.chmod(0o755)
    return path
