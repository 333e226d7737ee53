"""Starts a control daemon: directories, environment, CPUs, and the wait until it answers.

The daemon puts itself into the background and outlives mpstui on purpose: it is the one process that may.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from mpstui.control.answer import STATUS, Answer
from mpstui.control.binary import look
from mpstui.control.channel import ControlChannel
from mpstui.control.commandline import patience, shown_program
from mpstui.control.mps import MpsControl
from mpstui.control.protocol import protocol_of
from mpstui.core.model import MEMORY_VARIABLE, PERCENTAGE_VARIABLE, PRIORITY_VARIABLE
from mpstui.core.requests import ExitStatus, Progress
from mpstui.core.text import listed, path_text, printable
from mpstui.core.trust import end_usurped, usurpation
from mpstui.daemons.directories import DaemonError, check, check_length, free_lock, prepare
from mpstui.daemons.spec import DaemonSpec, Started
from mpstui.observe.discovery import Place, discover
from mpstui.plan.cpus import cpu_text
from mpstui.system.own import ProgramError, find_program, own_path
from mpstui.system.procfs import user_name
from mpstui.system.trusted import UnreadableLogError, open_log, owners_of

READY_WITHIN: Final = 10.0
"""Seconds; a daemon took 13 ms on an H100 node."""
_ASK_SECONDS: Final = 5.0
_POLL: Final = 0.02
_OUTPUT: Final = 4096
_RUNNING: Final = "An instance of this daemon is already running"


async def start(
    spec: DaemonSpec,
    binary: tuple[str, ...],
    *,
    deadline: float | None = None,
    progress: Progress = lambda text: None,
) -> Started:
    """Start the daemon and wait until it answers, at most ``deadline`` seconds. For the operation, which asks whether
    it may and leaves the audit lines."""
    try:
        return await _start(spec, binary, patience(READY_WITHIN) if deadline is None else deadline, progress)
    except DaemonError as error:
        return Started(spec, error.status, str(error))


def environment_of(spec: DaemonSpec, inherited: Mapping[str, str]) -> dict[str, str]:
    """The daemon's environment. Devices by UUID: their ordinals change. What the user has set of MPS and of visible
    devices does not leak in.
    """
    own = {k: v for k, v in inherited.items() if not k.startswith("CUDA_MPS_") and k != "CUDA_VISIBLE_DEVICES"}
    own["CUDA_MPS_PIPE_DIRECTORY"] = os.fspath(spec.pipe_dir)
    own["CUDA_MPS_LOG_DIRECTORY"] = os.fspath(spec.log_dir)
    if spec.devices:
        own["CUDA_VISIBLE_DEVICES"] = ",".join(spec.devices)
    return own


def _not_taken(inherited: Mapping[str, str]) -> Iterator[str]:
    """Limits of the caller's environment, which the control binary would take for the daemon's defaults."""
    if names := [name for name in (PERCENTAGE_VARIABLE, MEMORY_VARIABLE, PRIORITY_VARIABLE) if inherited.get(name)]:
        yield f"ignored from your environment: {listed(names)}; to set limits, use mpstui set or a profile"


def place_of(pipe_dir: Path) -> Place:
    """What is in a pipe directory now."""
    return discover((pipe_dir,), env={})[0]


def taken(spec: DaemonSpec) -> Started | None:
    """Why no daemon is started there, whatever else is done before; None where its directory is free. Reads only."""
    error = _taken(place_of(spec.pipe_dir))
    return None if error is None else Started(spec, error.status, str(error))


def _taken(place: Place) -> DaemonError | None:
    if place.state == "running":
        return _already(place)
    if place.within is not None:
        return DaemonError(f"{place.detail}; {place.remedy}", ExitStatus.REFUSED_BY_SAFETY_RULE)
    return None


async def _start(spec: DaemonSpec, binary: tuple[str, ...], deadline: float, progress: Progress) -> Started:
    check_length(spec.pipe_dir)
    if spec.pipe_dir == spec.log_dir:
        raise DaemonError("pipe and log directory must not be the same", ExitStatus.USAGE)
    place = await asyncio.to_thread(place_of, spec.pipe_dir)
    if (taken := _taken(place)) is not None:
        raise taken
    program = _program(binary[0])
    options = await _options(spec, binary)
    # Others than the daemon's user must reach its socket where they may be its clients.
    mode = 0o755 if spec.multi_user or os.geteuid() == 0 else 0o700
    for directory in (spec.pipe_dir, spec.log_dir):
        check(directory)
    details = [note for directory in (spec.pipe_dir, spec.log_dir) for note in prepare(directory, mode)]
    details += free_lock(spec.pipe_dir)
    if place.state == "stale":
        details.append("files of a daemon that is gone were taken over")
    details += _not_taken(os.environ)
    log = spec.log_dir / "control.log"
    before = _length(log)
    argv = (program, *binary[1:], "-d", *options)
    progress(f"starting in {path_text(spec.pipe_dir)}")
    ends = time.monotonic() + deadline
    status, said = await asyncio.to_thread(_launch, argv, environment_of(spec, os.environ), spec.cpus, deadline)
    if status != 0:
        if _RUNNING in said:  # fact 20; its process may be one that is not to be seen from here
            raise _already(await asyncio.to_thread(place_of, spec.pipe_dir))
        why = "it did not return in time" if status is None else said or _tail(log, before) or f"exit status {status}"
        raise DaemonError(
            f"the daemon in {path_text(spec.pipe_dir)} did not start: {why}", ExitStatus.REFUSED_BY_DAEMON
        )
    progress("waiting until it answers")
    return await _ready(spec, binary, ends, tuple(details), before)


async def _ready(
    spec: DaemonSpec, binary: tuple[str, ...], ends: float, details: tuple[str, ...], before: int
) -> Started:
    control = MpsControl(ControlChannel(spec.pipe_dir, binary, deadline=max(1.0, ends - time.monotonic())))
    control.speak(protocol_of("v3" if spec.named_servers else None, spec.static))
    why, status = "it is not there", ExitStatus.NO_ANSWER
    pid: int | None = None
    while time.monotonic() < ends:
        place = await asyncio.to_thread(place_of, spec.pipe_dir)
        if place.state == "running":
            pid = place.daemon.pid if place.daemon is not None else None
            answer: Answer[Any] = (
                await control.server_names() if spec.named_servers else await control.get_server_list()
            )
            if answer.ok:
                text = f"the daemon runs in {path_text(spec.pipe_dir)}" + ("" if pid is None else f", PID {pid}")
                return Started(spec, ExitStatus.DONE, text, pid, (*details, *_affinity_note(spec, pid)))
            why, status = answer.message, STATUS[answer.outcome]
        await asyncio.sleep(_POLL)
    log = _tail(spec.log_dir / "control.log", before)
    said = (f"control.log: {log}",) if log else ()
    return Started(
        spec,
        status,
        f"the daemon in {path_text(spec.pipe_dir)} was started but does not answer: {why}",
        pid,
        details + said,
    )


def _program(name: str) -> str:
    """Absolute, since the daemon starts in /, where it keeps no file system busy."""
    try:
        return os.path.abspath(find_program(name))
    except ProgramError as error:
        raise DaemonError(f"{printable(name)} cannot be run: {error.why}", ExitStatus.NO_DAEMON) from None


async def _options(spec: DaemonSpec, binary: tuple[str, ...]) -> tuple[str, ...]:
    """Of the command line beside ``-d``, as this binary spells them. Raises DaemonError for what it does not have: an
    old one would take a second word for a control session (fact 46)."""
    if not (spec.multi_user or spec.static or spec.named_servers):
        return ()
    knows = await look(binary, patience(_ASK_SECONDS))
    if knows.missing or knows.options == "unknown":
        text = f"whether {printable(shown_program(binary))} can do that is not known: {knows.trouble.rstrip('.')}"
        raise DaemonError(text, ExitStatus.REFUSED_BY_DAEMON)
    if (lacks := spec.lacking(knows)) is not None:
        raise DaemonError(f"{lacks}; nothing was started", ExitStatus.REFUSED_BY_DAEMON)
    return spec.spelt(knows.multi_user_of(spec.protocol) or "")


def _already(place: Place) -> DaemonError:
    if place.usurped(os.geteuid()):
        seen = usurpation(place, user_name(place.uid or 0))
        return DaemonError(f"nothing was started: {seen}. {end_usurped(place)}", ExitStatus.REFUSED_BY_SAFETY_RULE)
    who = f" as process {place.daemon.pid}" if place.daemon is not None and place.daemon.pid else ""
    return DaemonError(f"a daemon runs{who} in {path_text(place.pipe_dir)} already", ExitStatus.REFUSED_BY_SAFETY_RULE)


def _launch(
    argv: tuple[str, ...], environment: Mapping[str, str], cpus: Collection[int] | None, deadline: float
) -> tuple[int | None, str]:
    """Exit status of the launching process, None where it had to be killed, and what it printed.

    A file and not a pipe: the daemon may keep its standard output open. In memory: no directory is needed for it.
    """
    with open(os.memfd_create("mpstui-output"), "w+b") as output:
        try:
            with _affinity(cpus):
                process = subprocess.Popen(
                    argv,
                    env={**environment, "PATH": own_path(environment)},
                    cwd="/",
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
        except OSError as error:
            raise DaemonError(
                f"{printable(argv[0])} cannot be executed: {error.strerror}", ExitStatus.NO_DAEMON
            ) from None
        try:
            status: int | None = process.wait(deadline)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            status = None
        output.seek(0)
        return status, printable(output.read(_OUTPUT).strip(), 300)


@contextlib.contextmanager
def _affinity(cpus: Collection[int] | None) -> Iterator[None]:
    """The CPUs of this thread, which a process started meanwhile keeps, as ``taskset`` does it."""
    if cpus is None:
        yield
        return
    before = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, cpus)
    except OSError:
        present = cpu_text(before)
        raise DaemonError(
            f"CPUs {cpu_text(cpus)} are not to be had here; there are {present}", ExitStatus.USAGE
        ) from None
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def _affinity_note(spec: DaemonSpec, pid: int | None) -> tuple[str, ...]:
    """The kernel leaves CPUs out that a cgroup does not allow, without a word."""
    if spec.cpus is None or pid is None:
        return ()
    try:
        got = os.sched_getaffinity(pid)
    except OSError:
        return ()
    return (f"on CPU {cpu_text(got)}" + ("" if got == spec.cpus else f", not {cpu_text(spec.cpus)} as asked for"),)


def _length(log: Path) -> int:
    try:
        fd = open_log(log, owners_of(None))
    except UnreadableLogError:
        return 0
    try:
        return os.fstat(fd).st_size
    finally:
        os.close(fd)


def _tail(log: Path, before: int) -> str:
    """The last words of what was written to the log since."""
    try:
        descriptor = open_log(log, owners_of(None))
    except UnreadableLogError:
        return ""
    with open(descriptor, "rb") as file:
        file.seek(max(before, os.fstat(descriptor).st_size - _OUTPUT))
        lines = [line for line in file.read(_OUTPUT).splitlines() if line.strip()]
    return printable(b" | ".join(lines[-3:]), 300)
