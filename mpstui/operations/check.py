"""What all operations check, pure: whether the daemon may be changed, whom a request names, and in which words."""

from __future__ import annotations

import os
import pwd
from typing import Final

from mpstui.core.condition import NOT_FOUND, STARTING
from mpstui.core.late import dataclass, pattern
from mpstui.core.model import Client, Daemon, Server, Snapshot
from mpstui.core.text import UNKNOWN, listed, owner, path_text, printable, typed_count
from mpstui.core.trust import ANOTHER_NAMESPACE, NOT_PROVED
from mpstui.operations.types import ExitStatus, Preview, Request, Unable
from mpstui.system.procfs import pid_namespace

NOT_IN_V3: Final = (
    "it runs with MPS protocol 3, where limits belong to servers and namespaces and this command does not exist: "
    "they are set with mpstui namespace or, on the screen, P"
)
_SIZE: Final = pattern(r"(?i)([0-9]{1,6})\s*(chunks?|sms?)?")
NOT_YET: Final = "whether the daemon answers is not known yet"
_IN_V3: Final = frozenset(("terminate_client", "terminate_and_kill", "stop_daemon"))
"""What a daemon of protocol 3 has under another name."""


class Refused(Unable):
    """Why a request cannot be done as asked."""


@dataclass(frozen=True, slots=True)
class PartitionSize:
    """What is asked for: whole chunks, or SMs that have to come to whole chunks."""

    chunks: int | None = None
    sms: int | None = None


def parse_size(text: str) -> PartitionSize:
    """``7``, ``7 chunks``, ``56 SM``; raises Refused."""
    match = _SIZE.fullmatch(text.strip())
    if match is None or not int(match[1]):
        what = "a whole number of chunks, as 7, or of SMs, as 56 SM"
        raise Refused(f"“{printable(text, 40)}” is no size: {what}, is needed", ExitStatus.USAGE)
    number = int(match[1])
    return PartitionSize(sms=number) if (match[2] or "").lower().startswith("sm") else PartitionSize(number)


_NO_UID: Final = (1 << 32) - 1
"""The kernel's word for no user."""


def parse_uid(text: str) -> int:
    """A user name or number to a UID."""
    text = text.strip()
    number = typed_count(text)
    if number is not None and number < _NO_UID:
        return number
    try:
        return pwd.getpwnam(text).pw_uid
    except (KeyError, ValueError):
        raise Refused(f"there is no user {printable(text, 60)!r} on this node", ExitStatus.USAGE) from None


def find_server(daemon: Daemon, pid: int) -> Server:
    """The daemon's server of that PID."""
    server = daemon.find_server(pid)
    if server is None:
        present = listed(s.pid for s in daemon.servers) or "none"
        raise Refused(f"no server {pid} there; running: {present}", ExitStatus.REFUSED_BY_DAEMON)
    return server


def reachable_daemon(request: Request, snapshot: Snapshot, command: str = "") -> Daemon:
    """The daemon of the request, provided that it answers, that this user may change it (facts 2, 3, 16, 21), and that
    it has the ``command`` which that takes (fact 46)."""
    daemon = snapshot.daemon(request.pipe_dir)
    if daemon is not None and daemon.closed:
        raise Refused(daemon.health_detail or UNKNOWN, ExitStatus.NOT_PERMITTED)
    if daemon is None or not daemon.runs:
        detail = daemon.health_detail if daemon else None
        raise Refused(
            f"no daemon at {path_text(request.pipe_dir)}" + (f": {detail}" if detail else ""), ExitStatus.NO_DAEMON
        )
    if daemon.condition.cause == "starting":
        raise Refused(f"the daemon is starting: {STARTING}; try again", ExitStatus.NO_ANSWER)
    if daemon.health in {"held", "blocked"}:
        raise Refused(f"the daemon is {daemon.health}: {daemon.health_detail or UNKNOWN}", ExitStatus.NO_ANSWER)
    if daemon.condition.cause == "not_found":
        hidden = "; which process it is cannot be seen" if daemon.key is None else ""
        text = f"the daemon cannot be asked: {daemon.health_detail or NOT_FOUND}{hidden}"
        raise Refused(text, ExitStatus.NO_ANSWER)
    if daemon.unspoken is not None:
        raise Refused(daemon.unspoken, ExitStatus.REFUSED_BY_SAFETY_RULE)
    if daemon.named_servers and not (request.action.startswith("v3_") or request.action in _IN_V3):
        raise Refused(NOT_IN_V3, ExitStatus.REFUSED_BY_SAFETY_RULE)
    if daemon.uid is not None and os.geteuid() not in {0, daemon.uid}:
        raise Refused(
            f"the daemon belongs to {owner(daemon.user, daemon.uid)}; only that user and root may change it",
            ExitStatus.NOT_PERMITTED,
        )
    if command and (why := daemon.lacking(command)) is not None:
        raise Refused(f"the command {command} is {why}", ExitStatus.REFUSED_BY_DAEMON)
    return daemon


def answering_daemon(request: Request, snapshot: Snapshot, command: str = "") -> Daemon:
    """``reachable_daemon``, of which it is known by now whether it answers: nothing is offered on a guess."""
    daemon = reachable_daemon(request, snapshot, command)
    if daemon.condition.cause == "unasked":
        raise Refused(NOT_YET, ExitStatus.NO_ANSWER)
    return daemon


def namespace_words(client: Client) -> str:
    """Why nothing here is taken for a client's process: its daemon says that it is in another namespace, or it is not
    known, as where /proc does not show it."""
    return NOT_PROVED if client.pid_namespace in {None, pid_namespace("self")} else ANOTHER_NAMESPACE


def owner_typed(shown: Preview, text: str) -> str:
    """The owner for ``Request.owner``, where the text is what this preview wants typed in; otherwise empty."""
    wanted = shown.type_in.split()
    return wanted[1] if len(wanted) == 2 and text.split() == wanted else ""
