"""Every control command of the MPS daemon as a typed method."""

from __future__ import annotations

import math
import os
import re
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from mpstui.control import legacy
from mpstui.control.answer import Answer, Outcome
from mpstui.control.channel import ControlChannel, RawReply, exchange
from mpstui.control.legacy import DeviceClients, DeviceQuery, PsRow, Unreadable
from mpstui.text import printable

T = TypeVar("T")
Parser = Callable[[bytes], T | Unreadable]
_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9./-]{0,79}")


class MpsControl:
    """The commands of one daemon. No method raises for anything the daemon or its binary does."""

    def __init__(self, channel: ControlChannel) -> None:
        self.channel = channel

    def session_stays(self, open_: bool) -> None:
        """Whether the log has shown one open session for ``HELD_AFTER`` seconds: a refusal is not waited out then."""
        self.channel.occupied = open_

    def keep_silent(self, reason: str | None) -> None:
        """Send the daemon nothing at all, for this ``reason``; None: it is spoken to again."""
        self.channel.silent = reason

    async def get_server_list(self) -> Answer[tuple[int, ...]]:
        return await self._ask("get_server_list", legacy.parse_server_list)

    async def get_server_status(self, server: int) -> Answer[str]:
        """The daemon's own word, such as ``ACTIVE`` or ``FAULT`` (fact 18)."""
        return await self._ask(f"get_server_status {server}", legacy.parse_status)

    async def get_client_list(self, server: int) -> Answer[tuple[int, ...]]:
        """PIDs; cannot be forged (fact 10)."""
        return await self._ask(f"get_client_list {server}", legacy.parse_client_list)

    async def get_device_client_list(self, server: int | None = None) -> Answer[tuple[DeviceClients, ...]]:
        """Contexts by device ordinal (facts 9, 11)."""
        command = "get_device_client_list" if server is None else f"get_device_client_list {server}"
        return await self._ask(command, legacy.parse_device_client_list)

    async def ps(self, server: int | None = None) -> Answer[tuple[PsRow, ...]]:
        """Rows as printed, which a client can forge (fact 10); empty where no server runs."""
        return await self._ask("ps" if server is None else f"ps -p {server}", legacy.parse_ps)

    async def device_query(self) -> Answer[DeviceQuery]:
        """Ordinals and UUIDs (fact 11)."""
        return await self._ask("device_query", legacy.parse_device_query)

    async def get_default_active_thread_percentage(self) -> Answer[float]:
        return await self._ask("get_default_active_thread_percentage", legacy.parse_percentage)

    async def set_default_active_thread_percentage(self, value: float) -> Answer[float]:
        """Answers what holds afterwards: the old value where the daemon ignored the new one (fact 5)."""
        return await self._set_percentage("set_default_active_thread_percentage", value)

    async def get_active_thread_percentage(self, server: int) -> Answer[float]:
        answer = await self._ask(f"get_active_thread_percentage {server}", legacy.parse_percentage)
        return await self._unless_starting(answer, server)

    async def set_active_thread_percentage(self, server: int, value: float) -> Answer[float]:
        """Answers what holds afterwards: the old value where the daemon ignored the new one (fact 5)."""
        answer = await self._set_percentage(f"set_active_thread_percentage {server}", value)
        return await self._unless_starting(answer, server)

    async def get_default_device_pinned_mem_limit(self, device: str | int) -> Answer[int | None]:
        """Bytes; None where no limit is set (fact 6)."""
        return await self._ask_words("get_default_device_pinned_mem_limit", legacy.parse_memory_limit, str(device))

    async def set_default_device_pinned_mem_limit(self, device: str | int, text: str) -> Answer[None]:
        """``text`` as MPS writes it, ``10G``. Prints nothing, whatever is in force then: read it back (facts 5, 26)."""
        return await self._ask_words("set_default_device_pinned_mem_limit", legacy.parse_nothing, str(device), text)

    async def get_device_pinned_mem_limit(self, server: int, device: str | int) -> Answer[int | None]:
        """Bytes; None where no limit is set (fact 6), and while the server is starting, which looks the same (fact 45):
        its percentage, asked for before, tells."""
        return await self._ask_words(f"get_device_pinned_mem_limit {server}", legacy.parse_memory_limit, str(device))

    async def set_device_pinned_mem_limit(self, server: int, device: str | int, text: str) -> Answer[None]:
        """``text`` as MPS writes it, ``10G``. Prints nothing, whatever is in force then: read it back (facts 5, 26)."""
        command = f"set_device_pinned_mem_limit {server}"
        answer = await self._ask_words(command, legacy.parse_nothing, str(device), text)
        return await self._unless_starting(answer, server)

    async def get_default_client_priority(self) -> Answer[int]:
        return await self._ask("get_default_client_priority", legacy.parse_priority)

    async def set_default_client_priority(self, value: int) -> Answer[None]:
        return await self._ask(f"set_default_client_priority {value}", legacy.parse_nothing)

    async def start_server(self, uid: int) -> Answer[None]:
        """Prints nothing; the server is seen in ``get_server_list`` afterwards."""
        return await self._ask(f"start_server -uid {uid}", legacy.parse_nothing)

    async def shutdown_server(self, server: int, force: bool = False) -> Answer[None]:
        """Answers at once; without ``force`` the server goes when its clients have gone (fact 19)."""
        return await self._ask(f"shutdown_server {server}{' -f' if force else ''}", legacy.parse_nothing)

    async def terminate_client(self, server: int, client: int) -> Answer[None]:
        """End a client's GPU work (fact 15). NEVER twice for one process: that blocks the daemon (fact 16).

        The caller keeps that rule. HELD and BUSY mean that it did not reach the daemon; BLOCKED that it may have.
        """
        command = f"terminate_client {server} {client}"
        if client < 1:
            return Answer(command, Outcome.REFUSED, message=f"{client} is no process; nothing was sent.")
        return await self._ask(command, legacy.parse_terminated, self.channel.terminate_deadline, once=True)

    async def quit(self, timeout: int | None = None, deadline: float | None = None) -> Answer[None]:
        """End the daemon once its clients have ended; after ``timeout`` seconds with their work (fact 19).

        ``deadline`` is in seconds too; without one, as for terminate_client, behind ``timeout``. The daemon ends under
        the binary, which then often says nothing (fact 30): whether it was done is seen by whether the daemon is gone.
        """
        command = "quit" if timeout is None else f"quit -t {timeout}"
        if deadline is None:
            deadline = self.channel.terminate_deadline + max(0, timeout or 0)
        give_up = time.monotonic() + self.channel.deadline
        while True:
            answer = await self._ask(command, legacy.parse_nothing, deadline, once=True)
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
        """The answer; STARTING where it is empty because the server is starting (fact 45).

        A driver without ``get_server_status`` tells by the percentage, which is empty only then.
        """
        if answer.exit_status != 0 or answer.stdout.strip() or answer.outcome not in {Outcome.OK, Outcome.UNREADABLE}:
            return answer
        status = await self.get_server_status(server)
        starting = status.value == "INITIALIZING"
        if answer.outcome is Outcome.UNREADABLE:  # a percentage; ACTIVE: it has become ready since
            starting = starting or status.value == "ACTIVE" or status.outcome is Outcome.REFUSED
        elif status.outcome is Outcome.REFUSED:
            again = await self.channel.run(f"get_active_thread_percentage {server}")
            starting = again.exit_status == 0 and not again.stdout.strip() and again.failure is None
        if not starting:
            return answer
        return replace(answer, outcome=Outcome.STARTING, value=None, message=f"Server {server} is starting; try again.")

    async def _set_percentage(self, command: str, value: float) -> Answer[float]:
        if not math.isfinite(value):
            return Answer(command, Outcome.REFUSED, message="A percentage is a finite number; nothing was sent.")
        return await self._ask(f"{command} {legacy.percentage_text(value)}", legacy.parse_percentage)

    async def _ask_words(self, command: str, parser: Parser[T], *words: str) -> Answer[T]:
        """For arguments that are text: each must be one word, or it would shift the ones behind it."""
        wrong = next((word for word in words if not _WORD.fullmatch(word)), None)
        if wrong is not None:
            message = f"“{printable(wrong, 40)}” is neither a device nor a size; nothing was sent."
            return Answer(command, Outcome.REFUSED, message=message)
        return await self._ask(" ".join((command, *words)), parser)

    async def _ask(
        self, command: str, parser: Parser[T], deadline: float | None = None, *, once: bool = False
    ) -> Answer[T]:
        return to_answer(await self.channel.run(command, deadline, once=once), parser)


def to_answer(reply: RawReply, parser: Parser[T]) -> Answer[T]:
    """A judged and typed answer that keeps the raw bytes."""
    value: T | None = None
    if reply.failure is not None:
        outcome, message = reply.failure, reply.message
    else:
        outcome, message = legacy.judge(reply.command, reply.stdout, reply.stderr, reply.exit_status)
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
    )


async def binary_version(binary: tuple[str, ...], deadline: float = 5.0) -> Answer[str]:
    """The version that ``nvidia-cuda-mps-control -v`` prints, such as ``13000``; needs no daemon."""
    reply = await exchange((*binary, "-v"), b"", {**os.environ, "LC_ALL": "C"}, deadline, "-v")
    return to_answer(reply, legacy.parse_version)
