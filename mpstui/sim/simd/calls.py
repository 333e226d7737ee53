"""A command of protocol 3: the executable's arguments go to the daemon, whose answer is printed; the status is its."""

from __future__ import annotations

import json
import os
import sys
from _socket import AF_UNIX, SOCK_SEQPACKET, socket  # the public module costs another 3 ms
from collections.abc import Sequence
from typing import Final

MODULES: Final = frozenset(("server", "namespace", "client", "device", "sm-partition", "feature", "memacct"))
PACKET: Final = 1 << 18


def call(args: Sequence[str]) -> int:
    """Sends it; the exit status."""
    place = os.environ.get("CUDA_MPS_PIPE_DIRECTORY") or "/tmp/nvidia-mps"  # noqa: S108 - MPS's own default
    connection = socket(AF_UNIX, SOCK_SEQPACKET)
    try:
        try:
            connection.connect(os.path.join(place, "control"))
        except OSError:
            sys.stderr.write("Cannot find MPS control daemon process\n")
            return 1
        connection.send(b"V3 " + json.dumps([os.environ.get("MPSTUI_SIM_UID", ""), *args]).encode())
        said: dict[bytes, bytes] = {b"O": b"", b"X": b""}
        while packet := connection.recv(PACKET):
            if packet[:1] == b"S":
                sys.stdout.buffer.write(said[b"O"])
                sys.stderr.buffer.write(said[b"X"])
                return int(packet[1:])
            said[packet[:1]] += packet[1:]
    finally:
        connection.close()
    sys.stderr.write("The MPS control daemon closed the connection\n")
    return 1
