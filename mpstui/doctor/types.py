"""What the checks look at and what they say; frozen values, no I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Final, Literal

from mpstui.core.late import dataclass
from mpstui.core.model import Snapshot
from mpstui.system.procfs import CgroupMemory

SHM: Final = "/dev/shm"  # noqa: S108 - the kernel's name for it
DEBUGGERS: Final = ("cuda-gdb", "ddt", "forge-backend", "totalview", "tvdsvr")
"""How the names of debuggers for CUDA begin, as the kernel has them."""
Verdict = Literal["ok", "warning", "error", "unknown"]
RANK: Final[Mapping[Verdict, int]] = {"ok": 0, "unknown": 1, "warning": 2, "error": 3}


@dataclass(frozen=True, slots=True)
class Finding:
    """One answer of one check."""

    check: str
    verdict: Verdict
    subject: str
    evidence: str
    """What was seen, one sentence."""
    remedy: str = ""
    """What to do; empty where nothing is to be done."""
    codes: tuple[str, ...] = ()
    """Of the problems of the status that it tells of, or that it says are not there."""


def worst(findings: Sequence[Finding]) -> Verdict:
    """The worst verdict; a check that could not be made is no trouble in itself."""
    return max((finding.verdict for finding in findings), key=RANK.__getitem__, default="ok")


@dataclass(frozen=True, slots=True)
class BinaryFacts:
    """The control binary that commands are sent with."""

    path: str | None
    version: str | None = None
    """``13000``."""
    trouble: str = ""
    options: str = "listed"
    """What becomes of options, as in ``control.drivers.Driver``."""


@dataclass(frozen=True, slots=True)
class DirectoryFacts:
    """A pipe directory; None for what could not be read."""

    pipe_dir: Path
    state: str
    """``running``, ``stale``, ``absent``, ``unusable`` or ``closed``."""
    detail: str = ""
    remedy: str = ""
    owner: int | None = None
    daemon_uid: int | None = None
    mode: int | None = None
    """Permission bits."""
    filesystem: str | None = None
    """The type of its file system, ``tmpfs``."""
    length: int = 0
    """Bytes of the path."""
    ours: bool = True
    """Whether it is root's or this user's own, by a way that nobody else can change: whatever is done to it by its name
    is done to no other thing."""


@dataclass(frozen=True, slots=True)
class LogFacts:
    """One log file."""

    path: Path
    trouble: str | None = None
    """Why it cannot be read."""
    size: int | None = None
    bytes_per_hour: float | None = None
    """Between the first and the last time in its last 64 KiB; None where that says nothing."""
    free: int | None = None
    """Bytes left on its file system."""
    believed: bool = True
    """False where somebody else could have written it; it is then not read."""


@dataclass(frozen=True, slots=True)
class ProcessLimits:
    """A daemon or a server."""

    pid: int
    name: str
    """``daemon`` or ``server``."""
    open_files: int | None = None
    """The soft limit; None where it may not be read."""
    environment: Mapping[str, str] | None = None
    """Its CUDA_* variables; None where they may not be read."""


@dataclass(frozen=True, slots=True)
class Stray:
    """An MPS process that belongs to no running daemon."""

    pid: int
    name: str
    zombie: bool
    parent: int | None = None
    uid: int | None = None
    """Another user, whose it is, and who gives his processes what names he likes; None for root's and one's own."""
    unprintable: bool = False
    """A daemon that runs, and is left out everywhere, since its directory's name cannot be printed."""


@dataclass(frozen=True, slots=True)
class ShmFacts:
    """The file system of shared memory."""

    exists: bool
    mode: int | None = None
    free: int | None = None


@dataclass(frozen=True, slots=True)
class PlatformFacts:
    """What the programs of this machine run on."""

    system: str
    """``Linux``."""
    bits: int
    tegra: bool = False


@dataclass(frozen=True, slots=True)
class Debugged:
    """A process under a debugger for CUDA, by the name that the debugger has: a claim."""

    pid: int
    debugger: str
    by: int
    """The debugger's PID."""


@dataclass(frozen=True, slots=True)
class Facts:
    """Everything that the checks look at."""

    snapshot: Snapshot
    binary: BinaryFacts
    directories: tuple[DirectoryFacts, ...] = ()
    logs: tuple[LogFacts, ...] = ()
    processes: tuple[ProcessLimits, ...] = ()
    client_environments: Mapping[int, Mapping[str, str] | None] = field(default_factory=dict)
    cgroup_memory: Mapping[int, tuple[CgroupMemory, ...]] = field(default_factory=dict)
    """By client, where a cgroup limits its device memory."""
    platform: PlatformFacts | None = None
    server_cpus: Mapping[int, int | None] = field(default_factory=dict)
    """How many CPUs each server may use."""
    debugged: tuple[Debugged, ...] = ()
    server_binary: str | None = None
    """Where the server's binary is that the daemon starts; None where it was not looked for, empty where it is not."""
    server_trouble: str = ""
    """Why root should not let a daemon start it, as others can change it; without ``server_binary`` why none was found
    on PATH. One clause, with the remedy."""
    strays: tuple[Stray, ...] = ()
    shm: ShmFacts = field(default_factory=lambda: ShmFacts(False))
    counting: tuple[str, str | None] | None = None
    """How launches are counted, and why not otherwise, or at all; None where nobody has looked."""
    dcgm: str | None = None
    """Why DCGM is not asked for meters, though the configuration says so; empty where it is, None where it need not."""
