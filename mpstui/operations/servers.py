"""Servers: one started for a user before its clients come, and one shut down (fact 19)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from mpstui.control.answer import Outcome
from mpstui.control.commandline import patience
from mpstui.core.cells import client_line, clients_of, told_to_end
from mpstui.core.model import Client, Daemon, ProcessKey, Server, Snapshot
from mpstui.core.text import have, owner, plural
from mpstui.core.trust import is_lying
from mpstui.observe.poll import Need
from mpstui.operations.check import Refused, find_server, parse_uid
from mpstui.operations.limits import failed
from mpstui.operations.operation import Operation, Work, refused_result
from mpstui.operations.types import STATUS, Argument, Danger, ExitStatus, Others, Preview, Request, Result, Verb

GONE_WITHIN: Final = 10.0
"""Seconds; by force it took 23 ms with two clients on an H100."""
_LOOKS: Final = (0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
"""Seconds between two questions whether it has gone: each of them is a line in control.log (fact 8)."""
_NAMED: Final = 5


class StartServer(Operation):
    """``start_server -uid``."""

    id = "start_server"
    title = "Start server"
    key = "S"
    weight = 3
    help = "Start an MPS server for a user, so that the first client need not wait for it"
    verb = Verb(("start-server",), "start an MPS server for a user", example="mpstui start-server alice")
    arguments = (
        Argument("value", "User", "a user name or a number", "whose clients it serves: a name or a number", "USER"),
    )

    def wrong_value(self, request: Request) -> Refused | None:
        try:
            parse_uid(request.value)
        except Refused as refused:
            return refused
        return None

    def show(self, request: Request, snapshot: Snapshot, daemon: Daemon) -> Preview:
        uid = parse_uid(request.value)
        facts = (("user", f"{request.value.strip()} (UID {uid})"), ("running", str(len(daemon.servers))))
        warnings: tuple[str, ...] = ()
        if is_lying(daemon, uid) and not daemon.simulated:
            why = (
                f"{daemon.speaker.why} can have servers of that user alone: a server for another one is root's to start"
            )
            raise Refused(why, ExitStatus.REFUSED_BY_SAFETY_RULE)
        if same := next((s for s in daemon.servers if s.uid == uid), None):
            raise Refused(
                f"server {same.pid} of {owner(same.user, uid)} is running already", ExitStatus.REFUSED_BY_SAFETY_RULE
            )
        if daemon.servers:
            warnings = (
                "a server of another user waits until the present one has no clients, and its clients wait with it",
            )
        return Preview("Start a server", facts, warnings=warnings)

    def command(self, request: Request) -> str:
        return f"start_server -uid {parse_uid(request.value)}"

    async def run(self, work: Work) -> Result:
        uid = parse_uid(work.request.value)
        work.progress(f"start_server -uid {uid}")
        work.sent = await work.control.start_server(uid)
        if not work.sent.ok:
            return failed(work.request, work.sent)
        work.read = listed = await work.control.get_server_list()
        known = {server.pid for server in work.daemon.servers}
        fresh = [pid for pid in listed.value or () if pid not in known]
        detail = "it is in the list of servers when it is ready; MPS reports nothing else"
        if len(fresh) == 1:
            detail = f"server {fresh[0]} has started; it takes clients once it is ready"
        return Result(work.request, ExitStatus.DONE, f"a server for UID {uid} was asked for", (detail,))


class ShutdownServer(Operation):
    """``shutdown_server``: without force it goes once its clients have gone, with it they lose their GPU work.

    ``Request.subject``, where it is given, is the Server that was named, and whom it hits has been named:
    ``request.clients``, and as many in other PID namespaces as that Server had. By force one that has come since stops
    it, by the daemon's own list (fact 10), right before the command.
    """

    id = "shutdown_server"
    title = "Shut down server"
    key = "Z"
    help = "Shut an MPS server down: once its clients have ended, or at once, which ends their GPU work"
    danger = Danger.HARM
    weight = 1
    question = "shut it down?"
    harms = "this ends a server"
    verb = Verb(
        ("shutdown-server",),
        "shut an MPS server down",
        example="mpstui shutdown-server 3067 -f",
    )
    arguments = (
        Argument("server", "Server", help="its process id", metavar="SERVER_PID"),
        Argument("force", "Clients", help="do not wait for its clients: their GPU work ends with an error"),
    )

    def needs(self, request: Request) -> Need | None:
        return Need(clients=True, servers=True)

    def unavailable(self, snapshot: Snapshot, pipe_dir: Path, clients: Sequence[ProcessKey]) -> str | None:
        why = super().unavailable(snapshot, pipe_dir, clients)
        daemon = snapshot.daemon(pipe_dir)
        return why or ("no server is running" if daemon is None or not daemon.servers else None)

    def show(self, request: Request, snapshot: Snapshot, daemon: Daemon) -> Preview:
        if request.server_pid is None:
            raise Refused("choose a server first", ExitStatus.USAGE)
        server = find_server(daemon, request.server_pid)
        if isinstance(request.subject, Server) and request.subject.key != server.key:
            raise Refused(f"server {server.pid} is another server now", ExitStatus.REFUSED_BY_SAFETY_RULE)
        if server.status == "INITIALIZING" and not request.force:
            why = f"server {server.pid} is starting; the daemon can shut it down only by force"
            raise Refused(why, ExitStatus.REFUSED_BY_DAEMON)
        number = len(server.clients) + server.clients_elsewhere
        clients = clients_of(server)
        facts = [("server", f"{server.pid} of {owner(server.user, server.uid)}")]
        warnings: tuple[str, ...] = ()
        if (told := told_to_end(server)) is not None:
            facts.append(("already", told))
        if not number and server.clients_known:
            facts.append(("ends", "at once: it has no clients"))
        elif request.force:
            facts.append(("ends", f"at once, and with it the GPU work of {clients}"))
            warnings = ("their processes live on, and each CUDA call of theirs gives an error",)
        else:
            facts.append(("ends", f"when {clients} {have(number)} ended; none is touched"))
            warnings = ("it still takes new clients meanwhile, and waits for them too",)
        facts.append(("then", _afterwards(daemon, server)))
        lines = [client_line(client) for client in server.clients]
        if server.clients_elsewhere:
            lines.append(_elsewhere(server.clients_elsewhere))
        hits, others = (tuple(lines), ()) if request.force else ((), tuple(lines))
        groups = (Others("Waits for", others),) if others else ()
        title = f"Shut down server {server.pid}"
        fresh = [client for client in server.clients if client.key not in request.clients] if request.clients else []
        if fresh or (isinstance(request.subject, Server) and server.clients_elsewhere > _elsewhere_named(request)):
            error = f"clients have come since: {_names(fresh) or _elsewhere(server.clients_elsewhere)}"
            rule = ExitStatus.REFUSED_BY_SAFETY_RULE
            return Preview(title, tuple(facts), (), hits, groups, warnings, error, rule)
        return Preview(title, tuple(facts), (), hits, groups, warnings)

    def command(self, request: Request) -> str:
        return f"shutdown_server {request.server_pid}{' -f' * request.force}"

    async def run(self, work: Work) -> Result:
        request = work.request
        pid, rule = request.server_pid or 0, ExitStatus.REFUSED_BY_SAFETY_RULE
        listed = await work.control.get_client_list(pid)
        if listed.value is None:
            if listed.outcome is Outcome.REFUSED:
                return refused_result(request, f"no server {pid} there any more", ExitStatus.REFUSED_BY_DAEMON)
            return refused_result(
                request, f"the clients of server {pid} are not known: {listed.message}", STATUS[listed.outcome]
            )
        named = {key.pid for key in request.clients}
        fresh = [str(number) for number in listed.value if number > 0 and number not in named]
        if (elsewhere := sum(number <= 0 for number in listed.value)) > _elsewhere_named(request):
            fresh.append(_elsewhere(elsewhere))
        if request.force and fresh:
            return refused_result(request, f"clients have come since: {', '.join(fresh)}", rule)
        work.progress(self.command(request))
        work.sent = await work.control.shutdown_server(pid, request.force)
        if not work.sent.ok:
            return failed(request, work.sent)
        waits = bool(listed.value) and not request.force
        return await self._read_back(work, pid, len(listed.value) if waits else 0)

    def by_now(self, request: Request, snapshot: Snapshot) -> Result | None:
        daemon, told = snapshot.daemon(request.pipe_dir), request.subject
        if daemon is None or not daemon.servers_known or not isinstance(told, Server):
            return None
        server = next((each for each in daemon.servers if each.key == told.key), None)
        return _ended(request) if server is None else _waiting(request, len(server.clients) + server.clients_elsewhere)

    async def _read_back(self, work: Work, pid: int, waits_for: int) -> Result:
        """Whether it has gone, which the answer does not say: at once where clients keep it, else for a while."""
        ends = time.monotonic() + patience(GONE_WITHIN)
        for look in (*_LOOKS, *([_LOOKS[-1]] * 1000)):
            listed = await work.control.get_server_list()
            work.read = listed
            if listed.value is None:
                text = f"sent, but whether server {pid} has gone is not known: {listed.message}"
                return Result(work.request, STATUS[listed.outcome], text)
            if pid not in listed.value:
                return _ended(work.request)
            if waits_for:
                return _waiting(work.request, waits_for)
            if time.monotonic() > ends:
                break
            await asyncio.sleep(look)
        text = f"the daemon took the command, but server {pid} is still there"
        return Result(work.request, ExitStatus.REFUSED_BY_DAEMON, text)


def _ended(request: Request) -> Result:
    return Result(request, ExitStatus.DONE, f"server {request.server_pid} has ended")


def _waiting(request: Request, clients: int) -> Result:
    """It was told to end, and has these left."""
    text = f"server {request.server_pid} was told to end, and waits for {plural(clients, 'client')}"
    detail = "it ends when these clients and all later ones have ended; by force it ends now: their GPU work is lost"
    return Result(request, ExitStatus.REFUSED_BY_DAEMON, text, (detail,), waits=True)


def _afterwards(daemon: Daemon, server: Server) -> str:
    """Who gets a server next."""
    waiting = [pending for pending in daemon.pending if pending.server_pid in {None, server.pid}]
    if waiting:
        return f"{plural(len(waiting), 'client')} that {'waits' if len(waiting) == 1 else 'wait'} may get a server"
    return "the daemon starts another one when a client comes"


def _elsewhere(number: int) -> str:
    return f"{plural(number, 'client')} in PID namespaces that are not seen from here"


def _elsewhere_named(request: Request) -> int:
    """How many clients of other PID namespaces were named: they have no number by which to know one of them again."""
    return request.subject.clients_elsewhere if isinstance(request.subject, Server) else 0


def _names(clients: Sequence[Client]) -> str:
    more = f" and {len(clients) - _NAMED} more" if len(clients) > _NAMED else ""
    return "; ".join(client_line(client) for client in clients[:_NAMED]) + more
