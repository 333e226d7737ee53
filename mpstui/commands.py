"""Commands of the user's own, ``[[commands]]`` of config.toml: filled in for a row of the screen, checked, and run.

What is filled in comes from the node, and strangers have a say in it: it is one word of the program's arguments, never
a part of another one's syntax, and no option. A PID is given only while it is the very process of the row, and to a
program that may harm only where the daemon's word is enough for that process (docs/commands.md).
"""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import signal
import subprocess
import termios
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

from mpstui.api import audit, why_not_its_number
from mpstui.config import CommandSpec
from mpstui.core.model import Client, Daemon, Device, ProcessKey, Server, Snapshot
from mpstui.core.text import UNKNOWN, error_text, owner, path_text, printable
from mpstui.core.trust import NOBODY, Speaker
from mpstui.fields import CLIENT, DAEMON, DEVICE, SERVER, SNAPSHOT, Field, Thing, View
from mpstui.system import own, starts
from mpstui.system.own import own_path
from mpstui.system.parent import ended_with_us

THINGS: Final[Mapping[str, Thing[Any]]] = {
    "client": CLIENT,
    "server": SERVER,
    "device": DEVICE,
    "daemon": DAEMON,
    "node": SNAPSHOT,
}
MOST: Final = 1 << 20
"""Bytes that a program may print; one that prints more is ended."""
GRACE: Final = 5.0
"""Seconds that a program with the terminal has to end where mpstui is told to end; then it is killed."""
_LINE: Final = 500
_VALUE: Final = 1000
"""Characters of a value; a longer one is refused."""
_SCALARS: Final = frozenset({"string", "integer", "number", "boolean"})
_FIELD: Final = re.compile(r"\{([a-z]+)\.([a-z0-9_]+)\}")
_INTERPRETERS: Final = frozenset(
    ("sh", "bash", "dash", "ash", "zsh", "ksh", "mksh", "fish", "csh", "tcsh", "busybox", "python", "perl", "ruby",
     "lua", "node", "awk", "gawk", "mawk", "tclsh", "sed", "php", "expect", "gdb", "ssh", "watch", "su", "runuser",
     "sudo", "doas", "xargs", "parallel", "tmux", "screen", "env", "at", "batch", "script", "kubectl", "docker",
     "podman", "nsenter", "eval", "rbash", "lksh", "pwsh", "nodejs", "deno", "bun", "pypy", "lldb", "vi", "vim", "ex",
     "ed", "flock", "make", "socat", "rsync", "rsh", "mosh", "pdsh", "clush", "srun", "sbatch", "oc", "crictl",
     "apptainer", "singularity", "chroot", "unshare", "systemd-run", "machinectl")
)  # fmt: skip
"""Programs that take a word for a program, or hand their words on to a shell."""
_HARMLESS: Final = re.compile(r"[A-Za-z0-9_@%+=:,./-]*")
"""What no shell takes for more than itself."""


_NAMES_A_FILE: Final = frozenset("@<>|")
"""With which a value begins that curl, compilers or Perl take for a file or a program to read from."""


class RefusedError(Exception):
    """Why a command is not run, as one sentence."""


class CommandTarget(NamedTuple):
    """The row that a command is for, by its identity."""

    pipe_dir: Path | None = None
    client: ProcessKey | None = None
    server: ProcessKey | None = None
    device: str | None = None
    many: int = 0
    """How many clients are chosen, where it is more than one."""


class Filled(NamedTuple):
    """What is run."""

    program: str
    """Its path."""
    words: tuple[str, ...]
    """With the name that the user has written first."""
    about: str
    """The row, in words."""
    processes: tuple[ProcessKey, ...]
    """Whose PIDs are among the words."""
    speaker: Speaker | None = None
    """Whose word it is that these are the daemon's processes; None where the program harms nobody."""

    @property
    def line(self) -> str:
        """As one would type it."""
        return shlex.join(map(printable, self.words))


class Ended(NamedTuple):
    """What came of a program."""

    status: int | None
    """Its exit status, negative for a signal; None where it was ended."""
    words: str

    @property
    def good(self) -> bool:
        return self.status == 0


def problems(spec: CommandSpec) -> Iterator[str]:
    """What is wrong in it on every node: fields that there are not, or that are no single value."""
    if _FIELD.search(spec.run[0]):
        yield "the program to run cannot come from a field"
    for word in spec.run:
        for kind, name in _FIELD.findall(word):
            thing = THINGS.get(kind)
            found = next((each for each in thing.fields if each.id == name), None) if thing is not None else None
            if thing is None:
                yield f"there is no {{{kind}.…}}; there are: {', '.join(THINGS)}"
            elif found is None:
                yield f"there is no field {{{kind}.{name}}}; “mpstui schema status” prints all"
            elif not _is_single(found):
                yield f"{{{kind}.{name}}} has several values, and one is needed"


def _is_single(found: Field[Any]) -> bool:
    return found.of is None and found.type.schema.get("type") in _SCALARS


def fill(spec: CommandSpec, snapshot: Snapshot | None, target: CommandTarget) -> Filled:
    """The program and its arguments for this row, as the node is in the snapshot. Raises RefusedError."""
    if snapshot is not None and snapshot.past is not None:
        raise RefusedError(snapshot.past.why)
    for problem in problems(spec):
        raise RefusedError(problem)
    things = _things(snapshot, target)
    words, processes = list[str](), dict[ProcessKey, None]()
    bases = [os.path.basename(word) for word in spec.run]
    named = {*bases, *(re.split("[-.0-9]", base)[0] for base in bases)}  # bash-5.1, python3.11-dbg
    for at, word in enumerate(spec.run):
        if not (fields := list(_FIELD.finditer(word))):
            words.append(word)
            continue
        values = [_value(found[1], found[2], things, target, snapshot) for found in fields]
        text = word
        for found, value in zip(reversed(fields), reversed(values), strict=True):
            text = text[: found.start()] + value + text[found.end() :]
        if named & _INTERPRETERS and not all(map(_HARMLESS.fullmatch, values)):
            raise RefusedError(f"{word} is “{printable(text, 80)}”, which a shell could take for more than a word")
        if any(value[0] in _NAMES_A_FILE for value in values):
            raise RefusedError(f"{word} is “{printable(text, 80)}”, which a program could take for the name of a file")
        if fields[0].start() == 0 and text.startswith(("-", "+")) and "--" not in spec.run[:at]:
            why = f"{word} is “{printable(text, 80)}”, which {spec.run[0]} could take for an option"
            raise RefusedError(f"{why}: write “--” before it in run, if the program knows that")
        words.append(text)
        for found in fields:
            if (key := _process(found[1], found[2], things)) is not None:
                processes[key] = None
    daemon: Daemon | None = things.get("daemon")
    client: Client | None = things.get("client")
    server: Server | None = things.get("server")
    for key in processes:
        process: Any = next((each for each in (client, server, daemon) if each is not None and each.key == key), None)
        if isinstance(process, Client) and not process.local:
            raise RefusedError(f"client {process.pid} is in another PID namespace: its number is no process here")
        if not spec.safe and isinstance(process, Client) and not (daemon is not None and daemon.covers(process)):
            raise RefusedError(
                f"process {key.pid} belongs to {owner(process.user, process.uid)}, and only this daemon says that it "
                "is a client, which is not proof: mpstui gives its PID only to a command with safe = true"
            )
    speaker = None if spec.safe else daemon.speaker if daemon is not None else NOBODY
    return Filled(find_program(spec.run[0]), tuple(words), _about(spec, things), tuple(processes), speaker)


def _things(snapshot: Snapshot | None, target: CommandTarget) -> dict[str, Any]:
    """What there is for this row: a client has a server and, where it is on one alone, a device."""
    if snapshot is None:
        raise RefusedError("the node has not been read yet")
    if snapshot.past is not None:
        raise RefusedError(snapshot.past.why)
    found: dict[str, Any] = {"node": snapshot}
    daemon = snapshot.daemon(target.pipe_dir) if target.pipe_dir is not None else None
    if daemon is not None:
        found["daemon"] = daemon
    client = daemon.find_client(target.client) if daemon is not None and target.client is not None else None
    server = next((s for s in daemon.servers if s.key == target.server), None) if daemon and target.server else None
    if client is not None:
        found["client"] = client
        server = daemon.find_server(client.server_pid) if daemon and client.server_pid is not None else None
    if server is not None:
        found["server"] = server
    uuids = client.device_uuids if client is not None else {target.device}
    devices = [device for device in snapshot.devices if device.uuid in uuids]
    if len(devices) == 1:
        found["device"] = devices[0]
    return found


def _value(owner: str, name: str, things: Mapping[str, Any], target: CommandTarget, snapshot: Snapshot | None) -> str:
    if owner == "client" and target.many:
        raise RefusedError(f"this command runs for one client only; {target.many} are chosen")
    if owner not in things:
        if owner == "client" and target.client is not None:
            raise RefusedError(f"client {target.client.pid} is gone")
        if owner == "device" and "client" in things:
            raise RefusedError("the client is not on one GPU alone: put the cursor on a GPU")
        raise RefusedError(f"put the cursor on a {owner}: {{{owner}.{name}}} is needed")
    if name == "pid_there":
        raise RefusedError(f"{{{owner}.pid_there}} is a number of another PID namespace, and here another process's")
    field, view = THINGS[owner][name], View.of(snapshot or Snapshot(0.0), things.get("daemon"))
    found = field.value(things[owner], view)
    text = UNKNOWN if found is None else _text(field.type.json(found))
    if text in {UNKNOWN, ""}:
        raise RefusedError(f"{{{owner}.{name}}} is not known here")
    if len(text) > _VALUE:
        raise RefusedError(f"{{{owner}.{name}}} is longer than {_VALUE} characters")
    return printable(text, _VALUE)


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _process(owner: str, name: str, things: Mapping[str, Any]) -> ProcessKey | None:
    """Whose PID a field is."""
    if name == "pid_here":
        raise RefusedError(f"{{{owner}.pid_here}} is not proved: it is for display only, and no command can use it")
    if name == "server_pid" and owner == "client":
        owner = "server"
    elif name != "pid":
        return None
    thing = things.get(owner)
    if thing is None or not isinstance(getattr(thing, "key", None), ProcessKey):
        raise RefusedError(f"mpstui cannot prove which process {{{owner}.{name}}} is")
    key: ProcessKey = thing.key
    return key


def _about(spec: CommandSpec, things: Mapping[str, Any]) -> str:
    named = {kind for word in spec.run for kind, _ in _FIELD.findall(word)}
    client, server, device, daemon = (things.get(name) for name in ("client", "server", "device", "daemon"))
    if "client" in named and isinstance(client, Client):
        return f"client {client.pid} of {owner(client.user, client.uid)}: {client.command or UNKNOWN}"
    if "server" in named and isinstance(server, Server):
        return f"server {server.pid} of {owner(server.user, server.uid)}"
    if "device" in named and isinstance(device, Device):
        return f"GPU {UNKNOWN if device.index is None else device.index}  {device.uuid}"
    if "daemon" in named and isinstance(daemon, Daemon):
        return f"the daemon in {path_text(daemon.pipe_dir)}"
    return "this node"


def find_program(name: str, path: str | None = None) -> str:
    """The path of the program: as it is written, or the first of that name in PATH. Root runs only what nobody else can
    have written or put there, also where it is written whole. Raises RefusedError."""
    shown = printable(name)
    if "/" in name and not os.path.isabs(name):
        raise RefusedError(f"{shown} is not a whole path; write it from / on, or the name alone")
    try:
        found = own.find_program(name, os.environ if path is None else {"PATH": path})
    except own.ProgramError as error:
        raise RefusedError(f"{shown} cannot be run: {error.why}") from None
    if os.geteuid() == 0 and found == name and (why := own.why_not_roots(name)):
        raise RefusedError(f"root does not run {shown}: {why}")
    return found


def stopped_by(filled: Filled) -> str | None:
    """Why it must not be run now, as the kernel has its processes: one is not there, its number is another one's, or
    the daemon's word is not enough for its owner. None where it may."""
    whys = (why_not_its_number(key, filled.speaker) for key in filled.processes)
    return next((why for why in whys if why is not None), None)


def refusal(spec: CommandSpec, *, read_only: bool) -> str | None:
    """Why it is not there in this mode."""
    return "mpstui runs read-only; only commands with safe = true run" if read_only and not spec.safe else None


def announce(spec: CommandSpec, filled: Filled) -> str | None:
    """The audit line before; why it could not be written."""
    return _line(spec, filled, None, "about to be run")


def conclude(spec: CommandSpec, filled: Filled, ended: Ended) -> str | None:
    """The audit line after; why it could not be written."""
    return _line(spec, filled, ended.status, ended.words)


def _line(spec: CommandSpec, filled: Filled, status: int | None, result: str) -> str | None:
    clients = [[key.pid, key.start_ticks] for key in filled.processes]
    told = {"action": "own_command", "name": spec.name, "command": filled.line, "program": filled.program}
    return audit(**told, from_file=spec.origin, clients=clients, euid=os.geteuid(), status=status, result=result)


async def run(filled: Filled, seconds: float, told: Callable[[Sequence[str]], None], most: int = MOST) -> Ended:
    """Run it without a terminal, and hand over its lines as they come, standard error among them. It is ended with all
    that it has started after ``seconds``, after ``most`` bytes, and when this is cancelled; the kernel ends it where
    this program is killed."""
    # A pipe of our own, as asyncio's is closed at its end alone, and that is for whoever holds it to choose.
    end, other_end = os.pipe()
    output = asyncio.StreamReader()
    pipe, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(output), os.fdopen(end, "rb", 0)
    )
    try:
        start = asyncio.create_subprocess_exec(
            *filled.words,
            executable=filled.program,
            env={**os.environ, "PATH": own_path()},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=other_end,
            stderr=other_end,
            start_new_session=True,
            preexec_fn=ended_with_us(),
        )
        process = await starts.started(start, _end_all)
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        pipe.close()
        return Ended(None, f"{printable(filled.program)} could not be started: {error_text(error)}")
    except BaseException:
        pipe.close()
        raise
    finally:
        os.close(other_end)

    async def to_its_end() -> int | None:
        return await process.wait() if await _hear(output, told, most) else None

    try:
        status = await asyncio.wait_for(to_its_end(), seconds)
    except asyncio.TimeoutError:
        return Ended(None, f"stopped: it ran longer than {seconds:g} s")
    finally:
        pipe.close()
        await _end_all(process)
    if status is None:
        return Ended(None, f"stopped: it printed more than {most} bytes")
    return Ended(status, _how(status))


async def _end_all(process: asyncio.subprocess.Process) -> None:
    """It and what it has started, as its group is its own."""
    with suppress(OSError):
        os.killpg(process.pid, signal.SIGKILL)
    await process.wait()


async def _hear(output: asyncio.StreamReader, told: Callable[[Sequence[str]], None], most: int) -> bool:
    """Its lines; False where there are more than ``most`` bytes."""
    rest, read = b"", 0
    while chunk := await output.read(1 << 16):
        read += len(chunk)
        *lines, rest = (rest + chunk[: max(0, most - read + len(chunk))]).split(b"\n")
        if len(rest) > 4 * _LINE:
            lines, rest = [*lines, rest], b""
        if lines:
            told([_shown(line) for line in lines])
        if read > most:
            return False
    if rest:
        told([_shown(rest)])
    return True


def _shown(line: bytes) -> str:
    line = line.removesuffix(b"\r").expandtabs()
    if len(line) <= _LINE and line.isascii() and (text := line.decode("ascii")).isprintable():
        return text  # nearly every line: a program may print many
    return printable(line, _LINE)


def _how(status: int) -> str:
    if status < 0:
        with suppress(ValueError):
            return f"ended by {signal.Signals(-status).name}"
        return f"ended by signal {-status}"
    return f"ended with exit status {status}"


def run_in_terminal(filled: Filled) -> tuple[Ended, int | None]:
    """Run it with the terminal, which is free; nothing else goes on meanwhile. What the keyboard sends is its own.
    Besides: the signal that asked this program to end meanwhile, which has ended it too."""
    asked: list[int] = []
    child: list[subprocess.Popen[bytes]] = []

    def end(number: int, _frame: object) -> None:
        asked.append(number)
        signal.setitimer(signal.ITIMER_REAL, GRACE)
        for each in child:
            each.send_signal(number)

    def kill(_number: int, _frame: object) -> None:
        for each in child:
            each.kill()

    wakeup = signal.set_wakeup_fd(-1)  # an event loop would hear the keyboard's signals of its own afterwards
    before = {number: signal.getsignal(number) for number in (*_KEYBOARD, *_ENDS, signal.SIGALRM, signal.SIGTSTP)}
    for number in _KEYBOARD:
        signal.signal(number, lambda *_: None)  # a program gets it as usual: what is caught is not handed down
    for number in _ENDS:
        signal.signal(number, end)
    signal.signal(signal.SIGALRM, kill)
    signal.signal(signal.SIGTSTP, signal.SIG_DFL)  # the kernel knows whether there is a shell that would say fg
    end_too, as_it_was = ended_with_us(), _terminal_settings()

    def start() -> None:
        """As a shell's job: a group of its own, which the keyboard's signals go to."""
        end_too()
        os.setpgid(0, 0)
        _restore_terminal(as_it_was)

    try:
        child.append(
            subprocess.Popen(
                filled.words,
                executable=filled.program,
                env={**os.environ, "PATH": own_path()},
                preexec_fn=start,
            )
        )
        for each in tuple(asked):  # while it was being started
            child[0].send_signal(each)
        status = _to_its_end(child[0])
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        return Ended(None, f"{printable(filled.program)} could not be started: {error_text(error)}"), next(
            iter(asked), None
        )
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        _restore_terminal(as_it_was)
        for number, handler in before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(wakeup, warn_on_full_buffer=False)
    return Ended(status, _how(status)), next(iter(asked), None)


def _to_its_end(child: subprocess.Popen[bytes]) -> int:
    """Its status. Where it stops, this program does as a shell's job does that holds it."""
    while True:
        try:
            told = os.waitid(os.P_PID, child.pid, os.WEXITED | os.WSTOPPED | os.WNOWAIT)
        except ChildProcessError:  # asked for where a signal was handed on
            return child.wait()
        if told is None or told.si_code != os.CLD_STOPPED:
            return child.wait()
        os.waitid(os.P_PID, child.pid, os.WSTOPPED | os.WNOHANG)
        _stop_with(child)


def _stop_with(child: subprocess.Popen[bytes]) -> None:
    """Stop too, so that the shell has its terminal, and go on with the child when it says fg. The kernel lets nobody be
    stopped so whom no shell would continue: then the child goes on at once."""
    settings = _terminal_settings()
    if settings is not None:
        os.killpg(0, signal.SIGTSTP)  # as the keyboard would: the shell's job may be sudo, whose child this is
        with suppress(OSError):
            if os.tcgetpgrp(0) in {os.getpgrp(), child.pid}:  # and not with bg
                _restore_terminal(settings, child.pid)
    with suppress(OSError):
        os.killpg(os.getpgid(child.pid), signal.SIGCONT)


def _terminal_settings() -> list[Any] | None:
    with suppress(OSError, termios.error):
        return termios.tcgetattr(0)
    return None


def _restore_terminal(settings: list[Any] | None, group: int | None = None) -> None:
    """As it was before a program had it, which may have been killed: its modes, and whose keyboard it is, this
    process group's unless told."""
    if settings is None:
        return
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTTOU})
    try:
        with suppress(OSError):
            os.tcsetpgrp(0, group or os.getpgrp())
        with suppress(OSError, termios.error):
            termios.tcsetattr(0, termios.TCSADRAIN, settings)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


_KEYBOARD: Final = (signal.SIGINT, signal.SIGQUIT)
_ENDS: Final = (signal.SIGTERM, signal.SIGHUP)
