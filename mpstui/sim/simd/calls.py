"""A command of protocol 3: the executable's arguments go to the daemon, whose answer is printed; the status is its.

One is made for every question to such a daemon, seven a reading: what is imported here is there when Python starts.
"""

from __future__ import annotations

import sys
from _socket import AF_UNIX, SOCK_SEQPACKET, socket
from posix import O_NOFOLLOW, O_NONBLOCK, O_RDONLY, close, read, write
from posix import open as open_file

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Final

MODULES: Final = frozenset(("server", "namespace", "client", "device", "sm-partition", "feature", "memacct"))
FROM: Final = 615
"""The first driver that has them."""
PACKET: Final = 1 << 18
_DRIVER: Final = b'"driver": "'


def at_once(directory: bytes, words: Sequence[str]) -> bool:
    """Whether it is plain at first sight that the words are such a command to the simulated node in ``directory``: as
    the marker is written, without reading it as JSON, which takes longer than the call. False is no answer."""
    if words[0] not in MODULES:
        return False
    try:
        descriptor = open_file(directory + b"/mpstui-simulated", O_RDONLY | O_NOFOLLOW | O_NONBLOCK)
        try:
            number = read(descriptor, 1 << 16).partition(_DRIVER)[2][:3]
        finally:
            close(descriptor)
    except OSError:
        return False
    return number.isdigit() and int(number) >= FROM


def call(directory: bytes, user: bytes, words: Sequence[str]) -> int:
    """Sends it, as ``user``, the digits of a UID, where the caller may play one; the exit status."""
    connection = socket(AF_UNIX, SOCK_SEQPACKET)
    try:
        try:
            connection.connect(directory + b"/control")
        except OSError:
            sys.stderr.write("Cannot find MPS control daemon process\n")
            return 1
        connection.send(b"V3 " + b"\0".join((user, *(word.encode("utf-8", "surrogateescape") for word in words))))
        said: dict[bytes, bytes] = {b"O": b"", b"X": b""}
        while packet := connection.recv(PACKET):
            if packet[:1] == b"S":
                _say(1, said[b"O"])
                _say(2, said[b"X"])
                return int(packet[1:])
            said[packet[:1]] += packet[1:]
    finally:
        connection.close()
    sys.stderr.write("The MPS control daemon closed the connection\n")
    return 1


def _say(stream: int, text: bytes) -> None:
    while text:
        text = text[write(stream, text) :]
