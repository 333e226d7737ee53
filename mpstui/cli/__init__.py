"""The command line: parses, runs, prints; stdout is data, stderr is diagnostics."""

from __future__ import annotations

import errno
import io
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

from mpstui.cli.dispatch import carry_out
from mpstui.cli.output import complain, complaints
from mpstui.cli.parser import LOOKS, parse
from mpstui.core.requests import Unable
from mpstui.core.text import typed_count

_NOT_WRITTEN = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF})


_MOST_CELLS: Final = 9999
"""Columns or lines of a terminal."""
_READER_GONE = 128 + signal.SIGPIPE
"""As a shell shows a program that ended by SIGPIPE (`mpstui status | head -1`): no refusal, and nothing to be said."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run mpstui; returns the exit status. No traceback reaches the user for anything that can be foreseen."""
    _open_closed_streams()
    _leave_out_sizes()
    _start_by_fork()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a terminal or a pipe that knows ASCII only gets the rest as escapes
            stream.reconfigure(errors="backslashreplace")
    if sys.stderr is sys.__stderr__ and isinstance(sys.stderr, io.TextIOWrapper):
        sys.stderr = _Diagnostics(sys.stderr.buffer, sys.stderr.encoding, "backslashreplace", line_buffering=True)
    try:
        try:
            return _audited(sys.argv[1:] if arguments is None else arguments)
        finally:
            sys.stdout.flush()
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        _drop_output()
        return _READER_GONE
    except OSError as error:
        if error.errno not in _NOT_WRITTEN:
            raise
        _drop_output()
        complain(f"the output could not be written: {error.strerror}", 1)
        remedy = "Free some space, then ask again. Exit status 1 says only that; what was changed is in the audit log."
        print(f"  → {remedy}", file=sys.stderr)
        return 1


def _start_by_fork() -> None:
    """Have other programs started by fork, not vfork, so that Ctrl-Z never hangs the terminal: a child of vfork that is
    stopped with its job before it has become its program holds the thread that waits for it, and the kernel tells the
    shell of a stop only when all threads have stopped. Python's documentation names the two switches."""
    import subprocess

    switches: Any = subprocess
    switches._USE_VFORK = switches._USE_POSIX_SPAWN = False


class _Diagnostics(io.TextIOWrapper):
    """stderr. What cannot be written there has no other place, and must not end what is being done."""

    def write(self, text: str, /) -> int:
        with suppress(OSError):
            return super().write(text)
        return len(text)

    def flush(self) -> None:
        with suppress(OSError):
            super().flush()


def _open_closed_streams() -> None:
    """A standard stream that the caller has closed (``>&-``) is as good as /dev/null; left closed, the next file to be
    opened, the audit log say, would get its number and the output of every child."""
    while (fd := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(fd, True)
    os.close(fd)
    if sys.stdin is None:
        sys.stdin = open(0, closefd=False)  # noqa: SIM115
    if sys.stdout is None:
        sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115


def _leave_out_sizes() -> None:
    """A number of columns or lines that no terminal has is none: what writes tables would fail at it."""
    for name in ("COLUMNS", "LINES"):
        if not 0 < (typed_count(os.environ.get(name, "")) or 0) <= _MOST_CELLS:
            os.environ.pop(name, None)


def _drop_output() -> None:
    """What is left in the buffer must not be tried again at the end."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _audited(arguments: Sequence[str]) -> int:
    """Runs it. A change that was asked for and refused before the action layer heard of it, as by a mistake in the
    command line, leaves an audit line too."""
    if not _asks_for_change(arguments):
        return _run(arguments)
    from mpstui import api

    complaints.clear()
    before, status = api.audit_lines(), 130
    try:
        status = _run(arguments)
    except SystemExit as error:
        status = error.code if isinstance(error.code, int) else 1
        raise
    finally:
        if status != 0 and api.audit_lines() == before:
            trouble = api.audit(
                action="command line",
                arguments=[argument[:200] for argument in arguments[:50]],
                euid=os.geteuid(),
                command="",
                sent=False,
                status=status,
                result=complaints[-1] if complaints else "not understood" if status == 2 else "given up",
            )
            if trouble is not None:
                complain(trouble, status)
    return status


def _asks_for_change(arguments: Sequence[str]) -> bool:
    """Whether it does, also of a command line that cannot be parsed."""
    if not arguments or arguments[0] in LOOKS:
        return False
    from mpstui.cli.verbs import names_one

    words = set(arguments)
    return bool(names_one(words) or ("plan" in words and any(word.startswith("--a") for word in words)))


def _run(arguments: Sequence[str]) -> int:
    try:
        return carry_out(parse(arguments))
    except Unable as why:
        return complain(str(why), why.status, why.remedy)
