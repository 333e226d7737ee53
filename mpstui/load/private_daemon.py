"""A private control daemon for one run, so that a fault hits nobody else; and whether a shared one is there."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import tempfile
from pathlib import Path
from types import TracebackType

from mpstui.control.answer import Answer
from mpstui.control.channel import ControlChannel
from mpstui.control.commandline import patience
from mpstui.control.mps import MpsControl
from mpstui.core.text import WITH_PATHS, error_text, printable
from mpstui.load.guard import LOG, PIPE, READY
from mpstui.system import starts
from mpstui.system.own import own_program, temporary_place

_START_SECONDS = 25.0
_END_SECONDS = 30.0


REMEDY = "check nvidia-cuda-mps-control by hand, and free disk"


class PrivateDaemonError(Exception):
    """It could not be started; the message says why, for a person."""


class PrivateDaemon:
    """``async with PrivateDaemon(binary) as daemon``: a daemon in a temporary directory, gone with its files after.

    It goes too where this process is killed: see ``guard``.
    """

    def __init__(self, binary: tuple[str, ...]) -> None:
        self._binary = binary
        self._guard: asyncio.subprocess.Process | None = None
        self.pipe_dir = Path()
        self.control = MpsControl(ControlChannel(self.pipe_dir, binary))

    async def __aenter__(self) -> PrivateDaemon:
        folder = None
        try:
            folder = Path(tempfile.mkdtemp(prefix="mpstui-load-", dir=temporary_place()))
            self.pipe_dir = folder / PIPE
            self.pipe_dir.mkdir()
            (folder / LOG).mkdir()
            command = own_program("mpstui.load.guard", os.fspath(folder), *self._binary)
            pipe = asyncio.subprocess.PIPE
            start = asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, start_new_session=True)
            self._guard = await starts.started(start, _let_end)
        except BaseException as error:
            if folder is not None:
                shutil.rmtree(folder, ignore_errors=True)
            if not isinstance(error, OSError):
                raise
            raise PrivateDaemonError(f"no place for a private daemon: {error_text(error)}") from None
        self.control = MpsControl(ControlChannel(self.pipe_dir, self._binary, log_dir=folder / LOG))
        try:
            await self._wait_until_ready(self._guard)
        except BaseException:
            await self._close()
            raise
        return self

    async def _wait_until_ready(self, guard: asyncio.subprocess.Process) -> None:
        said = b""
        if guard.stdout is not None:
            with contextlib.suppress(asyncio.TimeoutError):
                said = await asyncio.wait_for(guard.stdout.readline(), patience(_START_SECONDS))
        if said != READY:
            reason = printable(said.strip(), WITH_PATHS) or "no reason given"
            raise PrivateDaemonError(f"a private daemon does not start: {reason}")
        answer = await self.control.get_server_list()
        if not answer.ok:
            raise PrivateDaemonError(f"the private daemon does not answer: {answer.message}")

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.shield(self._close())

    async def _close(self) -> None:
        if self._guard is not None:
            await _let_end(self._guard)


async def _let_end(guard: asyncio.subprocess.Process) -> None:
    """It ends with its daemon and its folder once nobody is at the other end of its standard input."""
    if guard.stdin is not None:
        guard.stdin.close()
    with contextlib.suppress(asyncio.TimeoutError):
        await asyncio.wait_for(guard.wait(), patience(_END_SECONDS))


async def ask_daemon(pipe_dir: Path, binary: tuple[str, ...]) -> Answer[tuple[int, ...]]:
    """Whether a daemon answers there, by one command. A client without one works without MPS, in silence (fact 19)."""
    return await MpsControl(ControlChannel(pipe_dir, binary)).get_server_list()
