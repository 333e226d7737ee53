"""The table of what mpstui can change: keys, palette, help, forms and commands are made from it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from mpstui.core.model import Snapshot
from mpstui.operations.apply import ApplyProfile, GoBack
from mpstui.operations.clients import TerminateAndKill, TerminateClient
from mpstui.operations.daemons import RemoveStale, StartDaemon, StopDaemon
from mpstui.operations.limits import LIMITS
from mpstui.operations.load import RestartLoad, RunExperiment, StartLoad, StopLoad
from mpstui.operations.operation import Operation
from mpstui.operations.partitions import AddPartition, RemovePartition
from mpstui.operations.rescue import EndLostClients, Unblock
from mpstui.operations.servers import ShutdownServer, StartServer
from mpstui.operations.types import Preview, Request
from mpstui.operations.v3 import V3_OPERATIONS

OPERATIONS: Final[tuple[Operation, ...]] = (
    TerminateClient(),
    TerminateAndKill(),
    EndLostClients(),
    Unblock(),
    *LIMITS,
    StartServer(),
    ShutdownServer(),
    StartDaemon(),
    StopDaemon(),
    RemoveStale(),
    ApplyProfile(),
    GoBack(),
    AddPartition(),
    RemovePartition(),
    *V3_OPERATIONS,
    StartLoad(),
    StopLoad(),
    RestartLoad(),
    RunExperiment(),
)
"""In the order of the key bar."""
ON_OVERVIEW: Final = tuple(each for each in OPERATIONS if each.place == "overview")
"""Those whose key is there."""
ELSEWHERE: Final = tuple(each for each in OPERATIONS if each.place != "overview" and each.key)
"""Those that have a screen of their own."""
VERBS: Final = tuple((each.verb, each) for each in OPERATIONS if each.verb is not None)
"""The commands of the command line."""
_BY_ID: Final[Mapping[str, Operation]] = {each.id: each for each in OPERATIONS}


def operation(name: str) -> Operation:
    """The operation of that id."""
    return _BY_ID[name]


def preview(request: Request, snapshot: Snapshot) -> Preview:
    """What the request would do; instant, asks nobody."""
    return operation(request.action).preview(request, snapshot)
