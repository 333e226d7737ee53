"""What a control binary knows of options, asked so that nothing can come of the question.

Only from 580 on ``-h`` is an option. Before that it is a word like any other, with which a binary opens a control
session or starts a daemon, by driver (fact 46). So the question is put with a pipe directory that nobody can make, and
the version is asked only where the answer lists options.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import Final, Literal

from mpstui.control.answer import Outcome
from mpstui.control.channel import RawReply, exchange
from mpstui.control.legacy import parse_version
from mpstui.control.wire import Unreadable
from mpstui.core.late import dataclass, pattern
from mpstui.core.text import printable

NOWHERE: Final = "/dev/null/none"
"""As a pipe directory: no daemon is there, and none can be started there."""
_OPTION: Final = pattern(rb"^\s{1,8}(-[A-Za-z])\s?,\s?(--[a-z][a-z-]{1,40})\b", re.MULTILINE)
_OURS: Final = b"CUDA MPS Control"
_NO_OPTION: Final = (b"Cannot find MPS control daemon process", b"Cannot access CUDA_MPS_PIPE_DIRECTORY")
_MULTI_USER: Final = (("-M", "--multiuser-server"), ("-m", "--multiuser"))
_OF_USAGE: Final = "-multiuser-server"
"""The one option of 555 for it, where a wrong one starts nothing (fact 46)."""


@dataclass(frozen=True, slots=True)
class Binary:
    """What ``-h`` told of a control binary."""

    options: Literal["none", "usage", "listed", "unknown"]
    """As in ``drivers.Driver``; ``unknown`` where it said something else, or nothing: see ``trouble``."""
    listed: frozenset[str] = frozenset()
    """Options, short and long, that it lists."""
    version: str | None = None
    """``13000``; None where it does not say it, and where it must not be asked."""
    trouble: str = ""
    missing: bool = False
    """It is not there, or cannot be executed."""

    @property
    def multi_user(self) -> str | None:
        """The option that starts multi-user mode; None where there is none, or where nothing is known of it."""
        return self.multi_user_of(2)

    def multi_user_of(self, protocol: int) -> str | None:
        """The same, with this protocol: where two are listed, the newer one is of protocol 3."""
        if self.options == "usage":
            return _OF_USAGE
        known = _MULTI_USER if protocol == 2 else reversed(_MULTI_USER)
        return next((short for short, long in known if {short, long} & self.listed), None)

    @property
    def protocol_3(self) -> bool:
        """Whether it lists ``-p``, the protocol."""
        return bool({"-p", "--protocol"} & self.listed)

    @property
    def static_partitions(self) -> bool:
        """Whether it lists ``-S``."""
        return bool({"-S", "--static-partitioning"} & self.listed)


async def look(binary: Sequence[str], deadline: float) -> Binary:
    """Ask ``-h``, and the version where that is safe; ``deadline`` in seconds for each. Never raises."""
    told = await _run(binary, "-h", deadline)
    if told.failure is not None:
        slow = told.failure is Outcome.BLOCKED
        trouble = f"it has not answered in {deadline:g} s" if slow else told.message
        return Binary("unknown", trouble=trouble, missing=told.failure is Outcome.NO_BINARY)
    text = told.stdout[:65536]
    listed = frozenset(name.decode("ascii") for found in _OPTION.findall(text) for name in found)
    if listed:
        version = _version(text) or _version((await _run(binary, "-v", deadline)).stdout[:65536])
        return Binary("listed", listed, version, "" if version else "it does not say its version")
    if text.lstrip().startswith(_OURS):
        return Binary("usage", version=_version(text), trouble="it has no option that says its version")
    if any(said in told.stdout + told.stderr for said in _NO_OPTION):
        return Binary("none", trouble="it has no option that says its version")
    said = printable((told.stdout or told.stderr).strip(), 80)
    return Binary("unknown", trouble=f"what it says to -h is not understood{f': “{said}”' if said else ': nothing'}")


async def _run(binary: Sequence[str], option: str, deadline: float) -> RawReply:
    environment = {**os.environ, "LC_ALL": "C", "CUDA_MPS_PIPE_DIRECTORY": NOWHERE, "CUDA_MPS_LOG_DIRECTORY": NOWHERE}
    return await exchange((*binary, option), b"", environment, deadline, option)


def _version(text: bytes) -> str | None:
    found = parse_version(text)
    return None if isinstance(found, Unreadable) else found
