"""One-shot commands to a control daemon: one process a command, one at a time, each under a deadline."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary, WeakValueDictionary

from mpstui.control.answer import Outcome
from mpstui.control.commandline import PROOF, SOCKET_PATH_LIMIT, SOCKETS, patience
from mpstui.control.holder import HELD_AFTER, SessionWatch
from mpstui.core.condition import describe_holder
from mpstui.core.late import pattern
from mpstui.core.model import SessionHolder
from mpstui.core.text import error_text, path_text, printable
from mpstui.core.trust import Meant, Speaker
from mpstui.system import starts
from mpstui.system.memory import real_path
from mpstui.system.own import find_program, own_path, temporary_place

OUTPUT_LIMIT = 4 << 20
"""Bytes of output after which a binary is taken to be flooding; 48 clients with 4 KB of argv[0] each are 0.2 MB."""
CANNOT_SEND = b"Cannot send command to MPS control daemon process"
"""The daemon serves another session. The command did not reach it: its log does not show it (fact 2)."""
MODULES = frozenset(("server", "namespace", "client", "device", "sm-partition", "feature"))
"""Of protocol 3, whose commands are sent as the binary's arguments."""
_QUESTIONS = ("get_", "ps", "device_query", "lspart")
_V3_QUESTIONS = frozenset(("list", "get"))
"""What changes nothing, by the beginning of its first word, and by the second word in protocol 3."""
_PASSED_ON = ("PATH", "LC_ALL", "CUDA_MPS_", "MPSTUI_SIM_DRIVER")
"""How the variables of root's environment begin that another user may see."""
_NOBODY = 65534
_PROVEN = pattern(rb"[0-9]{1,3}\.[0-9]{1,10}\n")
_FIRST_PAUSE = 0.03
_LONGEST_PAUSE = 0.4
"""Seconds between two tries while others use the daemon, doubled each time; the half of each is left to chance, so that
programs that met once do not meet again."""
_LOOK_AFTER = 0.2
_LOOK_INTERVAL = 0.5
"""Seconds of refusals until it is looked who has a session, and between two looks: each reads all processes."""
_REAP_SECONDS = 2.0

MEANT: ContextVar[Meant | None] = ContextVar("MEANT", default=None)
"""For which daemon a change is being carried out: all that is sent meanwhile to its directory to change something, by
whatever way, is for that one, as the directory may be exchanged until the last moment."""
_locks: WeakKeyDictionary[asyncio.AbstractEventLoop, WeakValueDictionary[str, asyncio.Lock]] = WeakKeyDictionary()


class RawReply(NamedTuple):
    """What the binary printed for one command, or why there is nothing to judge."""

    command: str
    stdout: bytes = b""
    stderr: bytes = b""
    exit_status: int | None = None
    seconds: float = 0.0
    failure: Outcome | None = None
    """Set where the command was not sent, or the process was killed: the output is then not to be judged."""
    message: str = ""
    holder: SessionHolder | None = None
    """Who keeps the session open, where the ``failure`` is HELD and the process could be found."""
    asked: bool = True
    """False where nothing was sent, as nobody knows to whom."""
    sender: int | None = None
    """The UID with whose rights it was sent; None: with those of this process."""

    @property
    def undelivered(self) -> bool:
        """The daemon serves another session, and has not seen the command: it may be sent again (facts 2, 30)."""
        if self.failure is not None or self.stdout:
            return False
        return CANNOT_SEND in self.stderr or (not self.stderr and self.exit_status in {0, 1})


class _Exchange(asyncio.SubprocessProtocol):
    """Collects what one process prints, up to ``OUTPUT_LIMIT``."""

    def __init__(self) -> None:
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.exited = asyncio.Event()
        self.flooded = False
        self.output: dict[int, bytearray] = {1: bytearray(), 2: bytearray()}
        self._open = {1, 2}

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        self.output[fd] += data
        if sum(map(len, self.output.values())) > OUTPUT_LIMIT:
            self.flooded = True
            self._finish()

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        self._open.discard(fd)
        self._finish_if_over()

    def process_exited(self) -> None:
        self.exited.set()
        self._finish_if_over()

    def _finish_if_over(self) -> None:
        if self.exited.is_set() and not self._open:
            self._finish()

    def _finish(self) -> None:
        if not self.done.done():
            self.done.set_result(None)


async def exchange(
    argv: tuple[str, ...],
    stdin: bytes,
    environment: Mapping[str, str],
    deadline: float,
    command: str,
    sender: int | None = None,
    keep: Sequence[int] = (),
) -> RawReply:
    """Run ``argv`` with ``stdin`` and EOF; its process group is killed after ``deadline`` seconds or on cancellation.
    With the rights of the user ``sender``, where one is given, and then without root's environment and folder. It has
    the descriptors in ``keep``, by the same numbers.

    Never raises but on cancellation: a binary that is missing, hangs or floods is a ``failure`` of the reply.
    """
    started = time.monotonic()
    if not argv:
        return RawReply(command, failure=Outcome.NO_BINARY, message="No control binary is configured.")
    loop = asyncio.get_running_loop()
    try:
        program = find_program(argv[0], environment)
        read_end = _filled_pipe(stdin)
    except OSError as error:
        message = f"{printable(argv[0])} cannot be run: {error_text(error)}."
        return RawReply(command, failure=Outcome.NO_BINARY, message=message)
    as_whom: dict[str, Any] = {} if sender is None else _as(sender)
    if sender is not None:
        environment = {name: value for name, value in environment.items() if name.startswith(_PASSED_ON)}
    start = loop.subprocess_exec(
        _Exchange,
        *argv,
        executable=program,
        stdin=read_end,
        env={**environment, "PATH": own_path(environment)},
        start_new_session=True,
        pass_fds=tuple(keep),
        **as_whom,
    )
    try:
        transport, protocol = await starts.started(start, _leave)
    except (OSError, ValueError) as error:
        rights = "" if sender is None else f" with the rights of user {sender}"
        message = f"{printable(argv[0])} cannot be executed{rights}: {error_text(error)}."
        return RawReply(command, failure=Outcome.NO_BINARY, message=message, seconds=time.monotonic() - started)
    finally:
        os.close(read_end)
    timed_out = False
    try:
        await asyncio.wait_for(asyncio.shield(protocol.done), deadline)
    except asyncio.TimeoutError:
        timed_out = not protocol.done.done()
    finally:
        try:
            if not protocol.done.done() or protocol.flooded:
                await _kill(transport, protocol)
        finally:
            transport.close()
    reply = RawReply(
        command,
        bytes(protocol.output[1]),
        bytes(protocol.output[2]),
        transport.get_returncode(),
        time.monotonic() - started,
        sender=sender,
    )
    if protocol.flooded:
        return _failed(reply, Outcome.UNREADABLE, f"The control binary printed more than {OUTPUT_LIMIT >> 20} MiB.")
    if timed_out:
        return _failed(reply, Outcome.BLOCKED, f"The control daemon did not answer within {deadline:g} s.")
    return reply


def _as(uid: int) -> dict[str, Any]:
    """A process of that user's, and of none of root's groups; nobody comes through it to where root has been."""
    import pwd

    try:
        group = pwd.getpwuid(uid).pw_gid
    except (KeyError, OverflowError):
        group = _NOBODY
    return {"user": uid, "group": group, "extra_groups": (), "cwd": "/"}


def _filled_pipe(data: bytes) -> int:
    """The reading end of a pipe that holds ``data`` and its end.

    The session is over once the daemon has answered, also where this program is stopped or has no time just then: it
    never keeps a session open.
    """
    read_end, write_end = os.pipe()
    try:
        os.write(write_end, data)  # less than a pipe holds
    finally:
        os.close(write_end)
    return read_end


async def _leave(process: tuple[asyncio.SubprocessTransport, _Exchange]) -> None:
    transport, protocol = process
    try:
        await _kill(transport, protocol)
    finally:
        transport.close()


async def _kill(transport: asyncio.SubprocessTransport, protocol: _Exchange) -> None:
    """Kill the process group and wait until the process is reaped; a process stuck in the kernel is not waited for."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(transport.get_pid(), signal.SIGKILL)
    with contextlib.suppress(asyncio.TimeoutError):
        await asyncio.wait_for(protocol.exited.wait(), _REAP_SECONDS)


def _failed(reply: RawReply, outcome: Outcome, message: str) -> RawReply:
    return reply._replace(failure=outcome, message=message)


def _told(reply: RawReply) -> RawReply:
    """The reply as it is to be judged, without the proof."""
    if reply.undelivered:
        return _told_nothing(reply)
    proof = _PROVEN.match(reply.stdout)
    return reply._replace(stdout=reply.stdout[proof.end() :]) if proof else reply


def _told_nothing(reply: RawReply) -> RawReply:
    text = "The control binary printed nothing. This happens while another control session is open."
    return _failed(reply, Outcome.BUSY, text)


def _busy(reply: RawReply, seconds: float) -> RawReply:
    message = f"Other control sessions kept the daemon busy for {seconds:.0f} s: it took no command of ours."
    return _failed(reply, Outcome.BUSY, message)


def _held(reply: RawReply, holder: SessionHolder | None) -> RawReply:
    message = "Another process keeps a control session open." if holder is None else describe_holder(holder)
    return _failed(reply, Outcome.HELD, message)._replace(holder=holder)


def nothing_sent(pipe_dir: Path, speaker: Speaker, other: str | None) -> str:
    """Why a command has no way to whom it is for: nobody knows whose the directory is, or it is an ``other`` one."""
    where = path_text(pipe_dir)
    if speaker.uid is not None:
        return f"Nothing was sent to {where}: {other}. Check the daemon, then repeat the command."
    message = f"Nothing was sent: the owner of the daemon in {where} is not known: {speaker.why}. "
    return message + (speaker.remedy or "Name it by a path that nobody else can change.")


class ExchangedError(Exception):
    """Why the sockets that were judged cannot be held; one clause."""


@contextlib.contextmanager
def as_judged(pipe_dir: Path, judged: Speaker) -> Iterator[tuple[str, list[int]]]:
    """The sockets as they were judged, in a directory that others may write to: a name for the control binary, or for a
    CUDA program, under which it finds those and no others, whatever is put in their place until it connects (facts 59,
    60), and what it has to inherit for that. The name is a directory of this program's own, with links to the sockets,
    each by a descriptor that holds it. Raises ExchangedError."""
    with contextlib.ExitStack() as stack:

        def look(path: str | Path, flags: int, folder: int | None = None) -> int:
            found = os.open(path, os.O_PATH | os.O_CLOEXEC | flags, dir_fd=folder)
            stack.callback(os.close, found)
            return found

        try:
            there = look(pipe_dir, os.O_DIRECTORY)
            same = (os.fstat(there).st_dev, os.fstat(there).st_ino) == judged.stamp[:2]
            held, things = list[int](), judged.stamp[4:]
            for name, thing in zip(SOCKETS, zip(things[::2], things[1::2], strict=True), strict=False):
                held.append(look(name, os.O_NOFOLLOW, there))
                found = os.fstat(held[-1])
                same &= (found.st_ino, found.st_ctime_ns) == thing
        except (OSError, ValueError):
            same = False
        if not same:
            raise ExchangedError("its directory or its sockets were exchanged just now")
        import tempfile  # seldom needed, and slow to load

        try:
            own = stack.enter_context(tempfile.TemporaryDirectory(prefix="mpstui-sockets-", dir=temporary_place()))
            for name, descriptor in zip(SOCKETS, held, strict=False):
                os.symlink(f"/proc/self/fd/{descriptor}", os.path.join(own, name))
            folder = look(own, os.O_DIRECTORY)
        except OSError as error:
            raise ExchangedError(f"its sockets cannot be held: {error_text(error)}") from None
        yield f"/proc/self/fd/{folder}", [folder, *held]


def _lock(pipe_dir: Path) -> asyncio.Lock:
    """The one lock of a daemon in this process and event loop; the daemon serves one session at a time (fact 2)."""
    of_loop = _locks.setdefault(asyncio.get_running_loop(), WeakValueDictionary())
    return of_loop.setdefault(real_path(pipe_dir), asyncio.Lock())


class ControlChannel:
    """The way to one control daemon.

    ``deadline`` and ``terminate_deadline`` are seconds, 5 and 30 where nothing else is said (see ``patience``).
    ``binary`` is the command to run, with arguments that come before everything else; ``log_dir`` is handed on in the
    environment.

    ``speaker`` tells whose a directory is. Its user can lead a command to any other daemon, at any moment, by a link:
    so what root sends to change a daemon of another user's is sent with that user's rights, and where it is not known
    whose it is, nothing is sent that changes anything.
    """

    def __init__(
        self,
        pipe_dir: Path,
        binary: tuple[str, ...],
        *,
        deadline: float | None = None,
        terminate_deadline: float | None = None,
        log_dir: Path | None = None,
        speaker: Callable[[Path], Speaker] | None = None,
    ) -> None:
        self._find_speaker = speaker
        self.pipe_dir = pipe_dir
        self.binary = binary
        self.deadline = patience(5.0) if deadline is None else deadline
        self.terminate_deadline = patience(30.0) if terminate_deadline is None else terminate_deadline
        self.log_dir = log_dir
        self.sent = 0
        """Processes started for commands so far, retries included."""
        self.occupied = False
        """The daemon's log has shown one open session for ``HELD_AFTER`` seconds."""
        self._sessions = SessionWatch(pipe_dir, binary)

        self.silent: str | None = None
        """Why the daemon must not be sent anything, one clause; None where it may."""

    async def run(self, command: str, deadline: float | None = None, *, once: bool = False) -> RawReply:
        """Send one command. Waits for its turn; ``deadline`` counts from the moment it is sent.

        Others' sessions are waited out, for as long as one command may take: what was refused has not reached the
        daemon (facts 2, 30) and is sent again. HELD is the last word beside one that stays open, BUSY where one
        followed the other. ``once``: where the binary does not say in words that it was refused, a command that must
        not arrive twice is not sent again.
        """
        refusal = self._refusal(command)
        if refusal is not None:
            return refusal
        return _told(await self._converse(command, f"{PROOF}\n{command}\n", deadline, once))

    async def run_all(self, commands: Sequence[str]) -> RawReply:
        """Send several commands in one session; what the binary prints for all of them comes in one piece, unframed.

        The answer to one of them at least is never empty: what comes without a byte was not delivered, and is sent
        again. So none of them may do harm when it arrives twice.
        """
        together = "; ".join(commands)
        refusal = next((found for command in commands if (found := self._refusal(command)) is not None), None)
        if refusal is not None:
            return refusal._replace(command=together)
        reply = await self._converse(together, "".join(f"{command}\n" for command in commands), None, False)
        return _told_nothing(reply) if reply.undelivered else reply

    async def call(self, words: Sequence[str], deadline: float | None = None) -> RawReply:
        """Run the binary with these words as its arguments, as protocol 3 has it; nothing is sent again. The first one
        is a module's name: no option of the binary's own is ever given, ``-q`` least of all."""
        command = shlex.join(words)
        if not words or words[0] not in MODULES or any(word.startswith("-") for word in words[:2]):
            message = f"“{printable(command, 80)}” is no command of a module; it was not sent."
            return RawReply(command, failure=Outcome.REFUSED, message=message)
        refusal = self._refusal(command, spoken=True)
        if refusal is not None:
            return refusal
        async with _lock(self.pipe_dir):
            limit = self.deadline if deadline is None else deadline
            return await self._exchange(words, b"", limit, command, len(words) > 1 and words[1] in _V3_QUESTIONS)

    async def _converse(self, command: str, lines: str, deadline: float | None, once: bool) -> RawReply:
        """One session of these ``lines``, tried again while others' are in the way; ``command`` names it."""
        limit = self.deadline if deadline is None else deadline
        async with _lock(self.pipe_dir):
            begun, pause = time.monotonic(), _FIRST_PAUSE
            look_at = begun if self.occupied or self._sessions.held else begun + _LOOK_AFTER
            end, looked = begun + min(limit, self.deadline), False
            while True:
                reply = await self._send(command, lines, limit)
                if not reply.undelivered:
                    return reply
                now = time.monotonic()
                if now >= look_at or (now + pause > end and not looked):
                    held, holder = await asyncio.to_thread(self._sessions.look, self.occupied)
                    if held:
                        return _held(reply, holder)
                    look_at = time.monotonic() + _LOOK_INTERVAL
                    if self._sessions.seen and not looked:
                        # Where little time is left, or was on a slow machine, only a later look tells whether it stays.
                        end = max(end, look_at + HELD_AFTER + _LONGEST_PAUSE)
                    looked = True
                if once and CANNOT_SEND not in reply.stderr:
                    return reply
                if time.monotonic() + pause > end:
                    return _busy(reply, time.monotonic() - begun)
                import random  # a try is seldom the second one

                await asyncio.sleep(pause * random.uniform(0.5, 1))  # noqa: S311
                pause = min(2 * pause, _LONGEST_PAUSE)

    async def _send(self, command: str, lines: str, deadline: float) -> RawReply:
        asks = all(line.startswith(_QUESTIONS) for line in lines.splitlines())
        return await self._exchange((), lines.encode(), deadline, command, asks)

    async def _exchange(
        self, words: Sequence[str], stdin: bytes, deadline: float, command: str, asks: bool
    ) -> RawReply:
        """With the rights that it may have, and to whom it is for; ``asks``: it changes nothing, wherever it comes
        to."""
        argv, environment = (*self.binary, *words), self._environment()
        judged = await self._judge(command, asks)
        if isinstance(judged, RawReply):
            return judged
        sender = None if asks or os.geteuid() != 0 else judged.uid or None
        # What a binary of protocol 3 looks for in the directory is not known.
        if judged.uid is None or not judged.stamp or sender is not None or words:
            self.sent += 1
            reply = await exchange(argv, stdin, environment, deadline, command, sender)
            return await self._of_judged(reply, judged)
        try:
            with as_judged(self.pipe_dir, judged) as (folder, descriptors):
                self.sent += 1
                environment["CUDA_MPS_PIPE_DIRECTORY"] = folder
                return await exchange(argv, stdin, environment, deadline, command, keep=descriptors)
        except ExchangedError as error:
            message = f"Nothing was sent to {path_text(self.pipe_dir)}: {error}."
            return RawReply(command, failure=Outcome.NOT_PERMITTED, message=message, asked=False)

    async def _judge(self, command: str, asks: bool) -> Speaker | RawReply:
        """Whose the directory is at this moment, or why nothing is sent there. A question goes anywhere, unless a
        change is being carried out: that may stand on the answer."""
        meant, root = MEANT.get(), os.geteuid() == 0
        if meant is not None and meant.pipe_dir != self.pipe_dir:
            meant = None
        if self._find_speaker is None or (meant is None and (asks or not root)):
            return Speaker()
        speaker = await asyncio.to_thread(self._find_speaker, self.pipe_dir)
        other = None if meant is None else meant.why_not(speaker)
        # What a user may do is the daemon's to say, but by a link of root's or his own he comes to another daemon.
        if other is None and (speaker.uid is not None or asks or not (root or speaker.remedy)):
            return speaker
        where = path_text(self.pipe_dir)
        if speaker.uid is None and not os.path.lexists(self.pipe_dir / "control"):  # noqa: ASYNC240 - one may come
            message = f"No control daemon answers in {where}."
            return RawReply(command, failure=Outcome.ABSENT, message=message, asked=False)
        message = nothing_sent(self.pipe_dir, speaker, other)
        return RawReply(command, failure=Outcome.NOT_PERMITTED, message=message, asked=False)

    async def _of_judged(self, reply: RawReply, judged: Speaker) -> RawReply:
        """What was answered, where the sockets were not held, as long as they are those that were judged."""
        if self._find_speaker is None or not judged.stamp:
            return reply
        now = await asyncio.to_thread(self._find_speaker, self.pipe_dir)
        if (now.uid, now.without_times.stamp) == (judged.uid, judged.without_times.stamp):
            return reply
        why = "The daemon's sockets were exchanged while it was asked: the answer is not used."
        return _failed(reply, Outcome.UNREADABLE, why)

    def _environment(self) -> dict[str, str]:
        environment = dict(os.environ, CUDA_MPS_PIPE_DIRECTORY=os.fspath(self.pipe_dir), LC_ALL="C")
        if self.log_dir is not None:
            environment["CUDA_MPS_LOG_DIRECTORY"] = os.fspath(self.log_dir)
        return environment

    def _refusal(self, command: str, *, spoken: bool = False) -> RawReply | None:
        """Why the command cannot be sent at all: a second line would be a second command. ``spoken``: it is of the
        daemon's own protocol."""
        if self.silent is not None and not spoken:
            message = f"Nothing was sent to the daemon: {self.silent}."
            return RawReply(command, failure=Outcome.REFUSED, message=message)
        if not command.isprintable():
            message = "A command is one line without control characters; it was not sent."
            return RawReply(command, failure=Outcome.REFUSED, message=message)
        try:
            path = os.fsencode(self.pipe_dir / "control_privileged")
        except UnicodeEncodeError:
            path = b"\0"
        if b"\0" in path:
            message = f"{path_text(self.pipe_dir)} is no path."
            return RawReply(command, failure=Outcome.ABSENT, message=message)
        if len(path) > SOCKET_PATH_LIMIT:
            message = f"No control daemon can be in {path_text(self.pipe_dir)}: the path is too long for a socket."
            return RawReply(command, failure=Outcome.ABSENT, message=message)
        return None
