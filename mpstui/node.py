"""Chooses a node's sources: the real ones, or the stand-ins where a pipe directory is a simulated node's."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from mpstui.core.requests import ExitStatus, Unable
from mpstui.core.text import error_text, path_text
from mpstui.observe.ahead import begun_ahead
from mpstui.observe.devices import NodeXids, RealNvml
from mpstui.observe.discovery import ANOTHER_MOUNT, answering, silence
from mpstui.observe.sources import LaunchSource, NodeSources, ProcessSource
from mpstui.sim.marker import BrokenMarkerError, claim, is_simulated
from mpstui.system.procfs import Cgroups, ProcessFacts, ProcProcesses, find_elsewhere, nameless_uid

if TYPE_CHECKING:
    from mpstui.observe.devices import Dcgm

CONTROL_BINARY = "nvidia-cuda-mps-control"


class UnusableNode(Unable):
    """Why the pipe directories that were named cannot be shown; the text is one line for a person."""


def named_dirs(pipe_dirs: Sequence[Path], environment: Mapping[str, str] = os.environ) -> tuple[Path, ...]:
    """The pipe directories that were asked for, by options or else by the environment."""
    if not pipe_dirs and (chosen := environment.get("CUDA_MPS_PIPE_DIRECTORY")):
        pipe_dirs = (Path(chosen).absolute(),)
    there = answering(pipe_dirs)
    return tuple(_own_name(pipe_dir) if pipe_dir in there else pipe_dir for pipe_dir in pipe_dirs)


def check_answers(pipe_dirs: Sequence[Path], log_dirs: Sequence[Path]) -> None:
    """Raises UnusableNode where none of the pipe directories that were named can be looked at, or one of the logs'."""
    there = answering((*pipe_dirs, *log_dirs))
    silent = [path for path in log_dirs if path not in there]
    if not silent and not there.intersection(pipe_dirs):
        silent += pipe_dirs
    if silent:
        raise UnusableNode(silence(silent[0]), ExitStatus.NO_DAEMON, ANOTHER_MOUNT)


def _own_name(pipe_dir: Path) -> Path:
    """That of a simulated node which is reached by somebody else's link: by that its marker does not count, and it
    would be shown as a real one."""
    with suppress(OSError, ValueError):
        real = Path(os.path.realpath(pipe_dir))
        if real != pipe_dir and not is_simulated(pipe_dir) and is_simulated(real):
            return real
    return pipe_dir


def open_node(
    pipe_dirs: Sequence[Path], environment: Mapping[str, str] = os.environ
) -> tuple[NodeSources, tuple[Path, ...]]:
    """The sources of the node and the pipe directories to watch; empty where they are to be discovered again and again.

    A simulated node is shown to whoever names its directory: somebody else's demo on a GPU node, which discovery comes
    upon, is left out. One that was asked for together with a real one, and one whose marker is not right,
    raises UnusableNode.
    """
    dirs = named_dirs(pipe_dirs, environment)
    try:
        there = answering(dirs)
        simulated = tuple(d for d in dirs if d in there and is_simulated(d, check=True))
    except BrokenMarkerError as error:
        raise UnusableNode(str(error)) from None
    if simulated and len(simulated) == len(dirs):
        return _simulated(simulated), simulated
    if simulated:
        raise UnusableNode(
            f"{path_text(simulated[0])} is a simulated node; it cannot be shown together with a real one"
        )
    binary = environment.get("MPSTUI_CONTROL_BINARY", CONTROL_BINARY)
    processes = real_processes()
    sources = NodeSources(
        False,
        (binary,),
        begun_ahead(RealNvml(beside=_dcgm)),
        processes,
        is_simulated,
        claim=claim,
        elsewhere=find_elsewhere,
        set_compute_mode=_set_compute_mode,
        xids=NodeXids,
        hidden=OwnCommands.HIDDEN if isinstance(processes, OwnCommands) else "",
        launches=_launches,
    )
    return sources, dirs


def _set_compute_mode(uuid: str, mode: str) -> str | None:
    from mpstui.daemons.modes import set_compute_mode  # only who asked for it pays for it

    return set_compute_mode(uuid, mode)


def _dcgm() -> Dcgm | None:
    """Where the configuration asks for it and there is one that root alone can have put there."""
    from mpstui.config import load_config

    if not load_config()[0].dcgm:
        return None
    from mpstui.observe.devices import Dcgm, find_dcgmi

    return None if (found := find_dcgmi()) is None else Dcgm(found)


def _launches() -> LaunchSource:
    from mpstui.observe.activity import LaunchCounter  # only who counts pays for it

    return LaunchCounter()


def real_processes() -> ProcessSource:
    """/proc, as far as root's policy lets this user see it."""
    processes = ProcProcesses(Cgroups().where)
    if os.geteuid() != 0:
        from mpstui.config import load_config, may_see_commands

        if not may_see_commands(load_config()[0].policy):
            return OwnCommands(processes)
    return processes


class OwnCommands:
    """A ProcessSource that tells the command lines of one's own processes, and of MPS' programs, alone."""

    HIDDEN: Final = "(hidden by policy)"

    def __init__(self, processes: ProcessSource) -> None:
        self._processes = processes

    def facts(self, pids: Iterable[int]) -> dict[int, ProcessFacts]:
        found, own = self._processes.facts(pids), os.geteuid()
        known = own != nameless_uid()  # else it is the number of all whom this user namespace has none for
        return {
            pid: each
            if (known and each.uid == own) or not _is_private(each.command)
            else replace(each, command=self.HIDDEN)
            for pid, each in found.items()
        }


def _is_private(command: str | None) -> bool:
    """Whether it is another one than a program of MPS."""
    return bool(command) and not os.path.basename(str(command).split()[0]).startswith("nvidia-cuda-")


@contextmanager
def demo_node(scenario: str) -> Iterator[Path]:
    """The pipe directory of a simulated node that is started for this block and ended with it. Raises UnusableNode."""
    from mpstui.sim.demo import demo_directory, held_back
    from mpstui.sim.node import SimError, SimNode

    with ExitStack() as held:
        try:
            with held_back() as release:
                folder = held.enter_context(demo_directory())
                node = SimNode.start(folder, scenario=scenario, launched=release)
        except (SimError, OSError) as error:
            text = f"there can be no demo here: {error_text(error)}; TMPDIR may name another place"
            raise UnusableNode(text) from None
        held.callback(node.stop)
        yield folder


def _simulated(pipe_dirs: Sequence[Path]) -> NodeSources:
    from mpstui.sim.marker import control_binary, driver_of_node
    from mpstui.sim.sources import SimLaunches, SimNvml, SimProcesses, SimXids

    dirs = tuple(pipe_dirs)
    nvml, processes = SimNvml(dirs), SimProcesses(dirs, real_processes())

    def add(pipe_dir: Path) -> None:
        nvml.add(pipe_dir)
        processes.add(pipe_dir)

    def worker(pipe_dir: Path | None) -> tuple[str, ...]:
        from mpstui.sim.load import worker_command

        return worker_command(pipe_dir or dirs[0])

    return NodeSources(
        True,
        control_binary(driver_of_node(dirs[0])),
        nvml,
        processes,
        foreign=lambda pipe_dir: not is_simulated(pipe_dir),
        add=add,
        worker_command=worker,
        set_compute_mode=nvml.set_compute_mode,
        elsewhere=find_elsewhere,
        xids=partial(SimXids, dirs),
        launches=partial(SimLaunches, dirs),
    )
