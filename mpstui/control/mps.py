"""What a daemon is asked and told, typed: each command under its deadline, its answer judged."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from mpstui.control.answer import Answer, Outcome
from mpstui.control.channel import ControlChannel, RawReply
from mpstui.control.partitions import ID, Created, StaticPartitions
from mpstui.control.protocol import LEGACY, Capabilities, ControlProtocol
from mpstui.control.v3 import AS_CSV, LISTS, MOVING, judge_call, parse_clients, parse_done, parse_servers
from mpstui.control.wire import STARTING, DeviceQuery, PsRow, Question, Unreadable
from mpstui.core.late import pattern
from mpstui.core.model import PartitionTable
from mpstui.core.text import printable
from mpstui.core.v3 import V3Node, V3Server

T = TypeVar("T")
U = TypeVar("U")
Parser = Callable[[bytes], T | Unreadable]
Judge = Callable[[str, bytes, bytes, "int | None"], tuple[Outcome, str]]
_WORD = pattern(r"[A-Za-z0-9][A-Za-z0-9./-]{0,79}")
NOT_STATIC: Answer[Any] = Answer(
    "lspart",
    Outcome.REFUSED,
    message="The daemon was not started with -S and has no static partitions; nothing was sent.",
    asked=False,
)


class MpsControl:
    """The commands of one daemon. No method raises for anything the daemon or its binary does."""

    def __init__(self, channel: ControlChannel, protocol: ControlProtocol = LEGACY, *, hidden: str = "") -> None:
        """``hidden``: what stands for the commands of clients that a daemon tells, where a policy hides them."""
        self.channel = channel
        self._hidden = hidden
        self.protocol = protocol
        self.capabilities = Capabilities()

    def session_stays(self, open_: bool) -> None:
        """Whether the log has shown one open session for ``HELD_AFTER`` seconds: a refusal is not waited out then."""
        self.channel.occupied = open_

    def speak(self, protocol: ControlProtocol) -> None:
        """From now on in this protocol; in one that is not spoken here nothing at all is sent."""
        self.protocol = protocol
        self.channel.silent = protocol.silent

    async def get_server_list(self) -> Answer[tuple[int, ...]]:
        return await self._ask(self.protocol.server_list())

    async def get_server_status(self, server: int) -> Answer[str]:
        """The daemon's own word, such as ``ACTIVE`` or ``FAULT`` (fact 18)."""
        return await self._ask(self.protocol.server_status(server))

    async def get_client_list(self, server: int) -> Answer[tuple[int, ...]]:
        """PIDs; cannot be forged (fact 10), but for those that a daemon of protocol 3 lists."""
        if self.protocol.named_servers:
            return await self._v3_clients(server)
        return await self._ask(self.protocol.client_list(server))

    async def _v3_clients(self, server: int) -> Answer[tuple[int, ...]]:
        """Those of the server that runs as this process: one named by a row, which a client can forge, is asked for by
        its number."""
        name = await self._v3_name(server)
        if isinstance(name, Answer):
            return name
        answer = await self._call(("client", "list", f"--server={name}", AS_CSV), parse_clients)
        pids = None if answer.value is None else tuple(row.pid for row in answer.value[0])
        return replace(answer, value=pids)  # type: ignore[return-value,arg-type]

    async def server_names(self) -> Answer[tuple[tuple[V3Server, ...], tuple[str, ...]]]:
        """The servers of a daemon of protocol 3, and the lines that name none."""
        return await self._call(("server", "list", AS_CSV), parse_servers)

    async def _v3_name(self, server: int) -> str | Answer[Any]:
        """The name of the server that runs as this process, or why there is none."""
        listed = await self.server_names()
        name = next((s.name for s in listed.value[0] if s.pid == server), None) if listed.value else None
        if name is not None:
            return name
        outcome = Outcome.REFUSED if listed.ok else listed.outcome
        return Answer(listed.command, outcome, message=listed.message or f"No server runs as process {server}.")

    async def _not_its_client(self, server: int, client: int) -> Answer[None] | None:
        """Why this process is no client of that server, by the daemon's word for its number alone: a row of the list
        may be of a client's making."""
        name = await self._v3_name(server)
        if isinstance(name, Answer):
            return name
        found = await self._call(("client", "get", str(client), "server"), parse_done)
        if found.value is not None and found.value.split()[-1:] == [name]:
            return None
        why = found.message or f"The daemon does not say that process {client} is a client of server {name}."
        return Answer(found.command, Outcome.REFUSED if found.ok else found.outcome, message=f"{why} Nothing was sent.")

    async def ps(self, server: int | None = None) -> Answer[tuple[PsRow, ...]]:
        """Rows as printed, which a client can forge (fact 10); empty where no server runs."""
        return self._masked(await self._ask(self.protocol.rows(server)))

    async def ps_behind(self, *asked: Question[Any]) -> tuple[Answer[Any], ...]:
        """The same in one session with other questions, behind them."""
        *answers, rows = await self.ask_all(*asked, self.protocol.rows())
        return *answers, self._masked(rows)

    def _masked(self, told: Answer[tuple[PsRow, ...]]) -> Answer[tuple[PsRow, ...]]:
        if not self._hidden or told.value is None:
            return told
        return replace(told, value=tuple(row._replace(command=self._hidden) for row in told.value))

    async def device_query(self) -> Answer[DeviceQuery]:
        """Ordinals and UUIDs (fact 11)."""
        return await self._ask(self.protocol.devices())

    async def get_default_active_thread_percentage(self) -> Answer[float]:
        return await self._ask(self.protocol.default_percentage())

    async def get_active_thread_percentage(self, server: int) -> Answer[float]:
        answer = await self._ask(self.protocol.percentage(server))
        return await self._unless_starting(answer, server)

    async def change(
        self, change: Question[T], read: Question[U], server: int | None = None
    ) -> tuple[Answer[T], Answer[U]]:
        """Sets something, the default or a ``server``'s, and reads it back, in one session. Both answer what holds
        afterwards, as far as the daemon says it: STARTING for a server that takes nothing yet (fact 45)."""
        if (refused := _wrong_command(change.command)) is not None:
            return refused, refused
        if server is None:
            if not change.proof:  # nothing behind it could be told apart from an answer of it
                _, sent, got = await self.ask_all(self.protocol.default_percentage(), change, read)
            else:
                sent, got = await self.ask_all(change, read)
            return sent, got
        status, sent, got = await self.ask_all(self.protocol.server_status(server), change, read)
        if status.value == STARTING or Outcome.UNREADABLE in {sent.outcome, got.outcome}:
            sent = await self._unless_starting(await self._ask(change), server)
            got = await self._unless_starting(await self._ask(read), server)
        elif status.outcome is Outcome.REFUSED:  # nor does the driver's daemon know the question
            sent = await self._unless_starting(sent, server)
            got = await self._unless_starting(got, server)
        return sent, got

    async def start_server(self, uid: int) -> Answer[None]:
        """Prints nothing; the server is seen in ``get_server_list`` afterwards."""
        return await self._ask(self.protocol.start_server(uid))

    async def shutdown_server(self, server: int, force: bool = False) -> Answer[None]:
        """Answers at once; without ``force`` the server goes when its clients have gone (fact 19)."""
        return await self._ask(self.protocol.shutdown_server(server, force))

    async def terminate_client(self, server: int, client: int) -> Answer[None]:
        """End a client's GPU work (fact 15). NEVER twice for one process: that blocks the daemon (fact 16).

        The caller keeps that rule. HELD and BUSY mean that it did not reach the daemon; BLOCKED that it may have.
        """
        question = self.protocol.terminate_client(server, client)
        if client < 1:
            return Answer(question.command, Outcome.REFUSED, message=f"{client} is no process; nothing was sent.")
        if self.protocol.named_servers:
            if (refused := await self._not_its_client(server, client)) is not None:
                return refused
            answer = await self.call("client", "terminate", str(client), deadline=self.channel.terminate_deadline)
            return replace(answer, value=None)  # type: ignore[return-value]
        return await self._ask(question, self.channel.terminate_deadline, once=True)

    async def call(self, *words: str, deadline: float | None = None) -> Answer[str]:
        """A command of protocol 3 that changes something; the value is what it printed, for a person."""
        return await self._call(words, parse_done, deadline)

    async def _call(
        self, words: Sequence[str], parser: Callable[[bytes], T | Unreadable], deadline: float | None = None
    ) -> Answer[T]:
        reply = await self.channel.call(words, deadline)
        return to_answer(reply, parser, judge=lambda _, *told: judge_call(*told))

    async def read_v3(self, known: V3Node | None = None) -> tuple[Answer[object], V3Node | None]:
        """Everything that a daemon of protocol 3 tells; None where its servers could not be read. The answer is the one
        that ended the reading, else that of the servers.

        ``known``: what it told before. Where servers and clients go on as they were, or clients come and go in
        namespaces that are known, two lists are asked and the rest of it is taken over.
        """
        if known is not None and not known.not_read:
            answer, moved = await self._read_v3_lists(MOVING)
            if moved is None or answer.value is None or not _goes_on(known, moved):
                return (answer, None) if moved is None else await self.read_v3()
            return answer, replace(
                known,
                clients=moved.clients,
                not_understood=(*_but(known.not_understood, MOVING), *moved.not_understood),
            )
        return await self._read_v3_lists(LISTS)

    async def _read_v3_lists(self, lists: Sequence[Any]) -> tuple[Answer[object], V3Node | None]:
        found: dict[str, tuple[Any, ...]] = {}
        not_read: dict[str, str] = {}
        odd: list[str] = []
        first: Answer[object] | None = None
        for module, words, parser in lists:
            answer: Answer[Any] = await self._call(words, parser)
            first = first or answer
            if answer.value is None:
                if first is answer or answer.outcome not in {
                    Outcome.REFUSED,
                    Outcome.UNREADABLE,
                    Outcome.NOT_PERMITTED,
                }:
                    return answer, None
                not_read[module] = answer.message
                continue
            found[module], told = answer.value
            if module == "client" and self._hidden:
                found[module] = tuple(replace(each, command=self._hidden) for each in found[module])
                told = [self._hidden for _ in told]
            odd += [f"{module} list: {line}" for line in told]
        node = V3Node(
            found.get("server", ()),
            found.get("namespace", ()),
            found.get("client", ()),
            found.get("device", ()),
            found.get("sm-partition", ()),
            found.get("feature", ()),
            not_read,
            tuple(odd),
        )
        return first or NOT_STATIC, node

    async def partitions(self) -> Answer[PartitionTable]:
        """The static partitions, with UUIDs as they are printed; REFUSED where the daemon was not started for them."""
        question = self.protocol.partitions()
        return NOT_STATIC if question is None else await self._ask(question)

    async def add_partition(self, device: str, chunks: int) -> Answer[Created]:
        """Not sent again where it is not known to have arrived: a second one would be a second partition."""
        if not isinstance(self.protocol, StaticPartitions):
            return NOT_STATIC
        question = self.protocol.add_partition(device, chunks)
        return _wrong_word(question.command, device) or await self._ask(question, once=True)

    async def remove_partition(self, device: str, identity: str) -> Answer[None]:
        """Whether it is gone is seen in the partitions afterwards alone."""
        if not isinstance(self.protocol, StaticPartitions):
            return NOT_STATIC
        question = self.protocol.remove_partition(device, identity)
        if not re.fullmatch(ID, identity):
            message = f"“{printable(identity, 40)}” is no partition's id; nothing was sent."
            return Answer(question.command, Outcome.REFUSED, message=message)
        return _wrong_word(question.command, device) or await self._ask(question, once=True)

    async def quit(self, timeout: int | None = None, deadline: float | None = None) -> Answer[None]:
        """End the daemon once its clients have ended; after ``timeout`` seconds with their work (fact 19).

        ``deadline`` is in seconds too; without one, as for terminate_client, behind ``timeout``. The daemon ends under
        the binary, which then often says nothing (fact 30): whether it was done is seen by whether the daemon is gone.
        """
        question = self.protocol.quit(timeout)
        command = question.command
        if deadline is None:
            deadline = self.channel.terminate_deadline + max(0, timeout or 0)
        give_up = time.monotonic() + self.channel.deadline
        while True:
            answer = await self._ask(question, deadline, once=True)
            if answer.outcome is not Outcome.BUSY or answer.stderr:
                return answer
            after = await self.get_default_active_thread_percentage()
            if after.outcome is Outcome.ABSENT:
                return Answer(command, Outcome.OK, exit_status=answer.exit_status, seconds=answer.seconds)
            if after.outcome is Outcome.HELD:
                return Answer(command, Outcome.HELD, message=after.message, stderr=after.stderr, holder=after.holder)
            if not after.ok or time.monotonic() > give_up:  # one that answers has not heard of it (fact 19)
                return answer

    async def _unless_starting(self, answer: Answer[T], server: int) -> Answer[T]:
        """The answer; STARTING where it is empty because the server is starting, or was until now (fact 45).

        A driver without ``get_server_status`` tells by the percentage, which is empty only then. Of a server that is
        ACTIVE nothing is known to make it empty.
        """
        if answer.exit_status != 0 or answer.stdout.strip() or answer.outcome not in {Outcome.OK, Outcome.UNREADABLE}:
            return answer
        status = await self.get_server_status(server)
        ready, unknown = status.value == "ACTIVE", status.outcome is Outcome.REFUSED
        percentage, text = answer.outcome is Outcome.UNREADABLE, f"Server {server} is starting; try again."
        if (ready and percentage) or (unknown and not percentage):
            again = await self.channel.run(f"get_active_thread_percentage {server}")
            empty = not again.stdout.strip()
            if again.exit_status != 0 or again.failure is not None or (unknown and not empty):
                return answer
            if ready and empty:
                message = f"The daemon reports server {server} as ACTIVE but returns no value for it."
                return replace(answer, message=message)
            text = text if unknown else f"Server {server} was starting and is ACTIVE now; try again."
        elif status.value != STARTING and not unknown:
            return answer
        return replace(answer, outcome=Outcome.STARTING, value=None, message=text)

    async def ask_all(self, *asked: Question[Any]) -> tuple[Answer[Any], ...]:
        """The answers to several questions, put in one session; in one for each where the answers cannot be told apart.

        None of them may do harm when it is put twice: never terminate_client, never quit. Where none of them proves
        that the session has reached the daemon (fact 30), the proof is asked first. What the daemon is known not to
        know is not asked again.
        """
        absent = {question.command: answer for question in asked if (answer := self._absent(question)) is not None}
        put = [question for question in asked if question.command not in absent]
        answers = iter(await self._ask_session(put) if put else ())
        return tuple([absent[q.command] if q.command in absent else next(answers) for q in asked])

    async def _ask_session(self, asked: Sequence[Question[Any]]) -> tuple[Answer[Any], ...]:
        proved = asked if any(question.proof for question in asked) else (self.protocol.default_percentage(), *asked)
        reply = await self.channel.run_all([question.command for question in proved])
        if reply.failure is not None or reply.stderr.strip() or reply.exit_status != 0:
            each = reply._replace(stdout=b"")
            return tuple(self._judge(each._replace(command=q.command), q) for q in asked)
        parts = self.protocol.split(proved, reply.stdout)
        if parts is None:
            return tuple([await self._ask(question) for question in asked])
        answers = (
            self._judge(reply._replace(command=question.command, stdout=part), question)
            for question, part in zip(proved, parts, strict=True)
        )
        return tuple(answers)[len(proved) - len(asked) :]

    async def _ask(self, question: Question[T], deadline: float | None = None, *, once: bool = False) -> Answer[T]:
        if (absent := self._absent(question)) is not None:
            return absent
        return self._judge(await self.channel.run(question.command, deadline, once=once), question)

    def _absent(self, question: Question[Any]) -> Answer[Any] | None:
        """The answer to a command that this daemon has been asked once, and does not know."""
        if question.verb not in self.capabilities.unknown or self.channel.silent is not None:
            return None
        message = f"This daemon does not know the command {question.verb}; it is not asked again."
        return Answer(question.command, Outcome.REFUSED, message=message, asked=False)

    def _judge(self, reply: RawReply, question: Question[T]) -> Answer[T]:
        answer = to_answer(reply, question.parser, self.protocol)
        if answer.outcome is Outcome.REFUSED and reply.failure is None:
            unknown = self.protocol.unknown_command(reply.stdout.partition(b"\n")[0].strip())
            self.capabilities.learn(question.verb, known=unknown != question.verb)
        elif answer.ok:
            self.capabilities.learn(question.verb, known=True)
        return answer


def _wrong_word(command: str, *words: str) -> Answer[Any] | None:
    """For arguments that are text: each must be one word, or it would shift the ones behind it."""
    wrong = next((word for word in words if not _WORD.fullmatch(word)), None)
    if wrong is None:
        return None
    message = f"“{printable(wrong, 40)}” is neither a device nor a size; nothing was sent."
    return Answer(command, Outcome.REFUSED, message=message)


def _wrong_command(command: str) -> Answer[Any] | None:
    """For a command that was put together elsewhere: each argument must be one word, or it would shift the others."""
    return _wrong_word(command, *command.split(" ")[1:])


def to_answer(
    reply: RawReply, parser: Parser[T], protocol: ControlProtocol = LEGACY, judge: Judge | None = None
) -> Answer[T]:
    """A judged and typed answer that keeps the raw bytes. ``judge``: where it is not the protocol's."""
    value: T | None = None
    if reply.failure is not None:
        outcome, message = reply.failure, reply.message
    else:
        judged = (judge or protocol.judge)(reply.command, reply.stdout, reply.stderr, reply.exit_status)
        outcome, message = judged
    if outcome is Outcome.NOT_PERMITTED and reply.sender is not None:
        message += (
            f" It was sent with the rights of user {reply.sender}, who can put other sockets into the directory: "
            "where the daemon is root's, its directory has to be root's too."
        )
    if outcome is Outcome.OK:
        parsed = parser(reply.stdout)
        if isinstance(parsed, Unreadable):
            outcome, message = Outcome.UNREADABLE, parsed.reason
        else:
            value = parsed
    return Answer(
        reply.command,
        outcome,
        value,
        message,
        reply.stdout,
        reply.stderr,
        reply.exit_status,
        reply.seconds,
        reply.holder,
        reply.asked,
    )


def _goes_on(known: V3Node, moved: V3Node) -> bool:
    """Whether a reading of servers and clients alone leaves the rest as it was."""
    places = {(space.server, space.name) for space in known.namespaces}
    return (
        moved.servers == known.servers
        and not moved.not_read
        and all((client.server, client.namespace) in places for client in moved.clients)
    )


def _but(told: Sequence[str], lists: Sequence[Any]) -> tuple[str, ...]:
    """What was not understood of other lists than these."""
    return tuple(line for line in told if line.split(" list:")[0] not in {module for module, _, _ in lists})
