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
from mpstui.control.channel import ControlChannel, exchange
from mpstui.control.mps import MpsControl
from mpstui.text import printable

_START_SECONDS = 20.0
_QUIT_SECONDS = 2


class PrivateDaemonError(Exception):
    """It could not be started; the message says why, for a person."""


class PrivateDaemon:
    """``async with PrivateDaemon(binary) as daemon``: a daemon in a temporary directory, gone with its files after."""

    def __init__(self, binary: tuple[str, ...]) -> None:
        self._binary = binary
        self._folder: Path | None = None
        self.pipe_dir = Path()
        self.control = MpsControl(ControlChannel(self.pipe_dir, binary))

    async def __aenter__(self) -> PrivateDaemon:
        try:
            self._folder = Path(tempfile.mkdtemp(prefix="mpstui-load-"))
            self.pipe_dir, log_dir = self._folder / "pipe", self._folder / "log"
            self.pipe_dir.mkdir()
            log_dir.mkdir()
        except OSError as error:
            self._remove()
            raise PrivateDaemonError(f"no place for a private daemon: {error.strerror or error}") from None
        environment = {
            **os.environ,
            "CUDA_MPS_PIPE_DIRECTORY": str(self.pipe_dir),
            "CUDA_MPS_LOG_DIRECTORY": str(log_dir),
            "LC_ALL": "C",
        }
        self.control = MpsControl(ControlChannel(self.pipe_dir, self._binary, log_dir=log_dir))
        reply = await exchange((*self._binary, "-d"), b"", environment, _START_SECONDS, "-d")
        if reply.failure is not None or reply.exit_status:
            said = printable((reply.stderr + reply.stdout).strip(), 200)
            await self._close()
            raise PrivateDaemonError(f"a private daemon does not start: {reply.message or said or 'no reason given'}")
        answer = await self.control.get_server_list()
        if not answer.ok:
            await self._close()
            raise PrivateDaemonError(f"the private daemon does not answer: {answer.message}")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.shield(self._close())

    async def _close(self) -> None:
        # Its clients are ours and have ended; whoever else found it is ended after two seconds.
        await self.control.quit(_QUIT_SECONDS)
        self._remove()

    def _remove(self) -> None:
        if self._folder is not None:
            with contextlib.suppress(OSError):
                shutil.rmtree(self._folder)


async def ask_daemon(pipe_dir: Path, binary: tuple[str, ...]) -> Answer[tuple[int, ...]]:
    """Whether a daemon answers there, by one command. A client without one works without MPS, in silence (fact 19)."""
    return await MpsControl(ControlChannel(pipe_dir, binary)).get_server_list()
