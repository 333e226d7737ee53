"""Runs a simulated node in the foreground, with a scenario's clients."""

from __future__ import annotations

import os
import select
import shutil
import signal
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from mpstui.control.drivers import DRIVERS, driver_of, nearest
from mpstui.core.text import path_text, path_word, printable
from mpstui.sim.drills import DRILLS
from mpstui.sim.marker import is_simulated
from mpstui.sim.modes import MODES
from mpstui.sim.node import REMOVES, SimError, SimNode, driver_with
from mpstui.sim.scenario import SCENARIOS, Scenario

ALL: Mapping[str, Callable[[], Scenario]] = {**SCENARIOS, **DRILLS, **MODES}
_NEEDS: Mapping[str, str] = {"blocked": "terminate_client"}
"""Scenarios that a command makes, which not every driver has."""
_ENDING = frozenset({signal.SIGINT, signal.SIGTERM, signal.SIGHUP})
_OWN_FILES = frozenset({"control", "control_lock", "control_privileged", "log", "nvidia-cuda-mps-control.pid", "logs"})


def serve(directory: Path, scenario: str | None, driver: str | None = None) -> int:
    """Runs a simulated node in ``directory`` until SIGINT, SIGTERM or SIGHUP; gives the exit status.

    ``driver`` is one of the table by its number, or a version as NVML has it. What of it is documented and was never
    seen is said.

    The pipe files come directly into the directory, the logs into ``logs`` below it. One line says when it is ready;
    where it cannot be, one line on stderr says why, and the status is 2.
    """
    report = os.environ.pop("MPSTUI_SIM_REPORT", "")
    lifeline = os.environ.pop("MPSTUI_SIM_LIFELINE", "")
    wakeup, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake)
    for number in (*_ENDING, signal.SIGCHLD):
        signal.signal(number, lambda *_: None)
    try:
        version = None if driver is None else version_of(driver)
        node, play = _start(directory, scenario, version)
    except SimError as error:
        if report:
            os.write(int(report), f"{error}\n".encode())
        else:
            sys.stderr.write(f"mpstui: {error}\n")
        return 2
    with node:
        if report:
            os.write(int(report), b"ready\n")
            os.close(int(report))
        else:
            mode = ALL[scenario]().options if scenario is not None else ()
            if version is not None or mode:
                sys.stdout.write(f"{_told(version or driver_with(mode))}\n")
            sys.stdout.write(f"simulated node ready: --pipe-dir {path_word(node.pipe_dir)}\n")
            sys.stdout.flush()
        sources = [wakeup, 0] if lifeline else [wakeup]
        while True:
            pause = None if play is None else play.step(node, time.monotonic())
            node.reap()
            ready, _, _ = select.select(sources, [], [], pause)
            if 0 in ready or (wakeup in ready and not _ENDING.isdisjoint(os.read(wakeup, 4096))):
                break
    return 0


def version_of(driver: str) -> str:
    """As NVML names the driver of that number, or that is so named. Raises SimError for one without a row."""
    found = driver_of(driver)
    if found is None or driver not in {str(found.number), found.version}:
        known = ", ".join(str(one.number) for one in DRIVERS)
        raise SimError(f"there is no simulated driver “{printable(driver, 40)}”; there are {known}")
    return found.version


def _told(version: str) -> str:
    found = nearest(version)
    if found.source == "recorded":
        return f"driver {version}: answers, logs and starts as recorded"
    return f"driver {version}: as its documents say; no recording of its control binary exists"


def _start(directory: Path, scenario: str | None, driver: str | None) -> tuple[SimNode, Scenario | None]:
    if scenario is not None and scenario not in ALL:
        raise SimError(f"there is no scenario {scenario!r}; there are {', '.join(sorted(ALL))}")
    try:
        others = [name for name in os.listdir(directory) if name not in _OWN_FILES] if directory.exists() else []
    except OSError as error:
        raise SimError(f"{path_text(directory)}: {error.strerror}") from error
    if others and not is_simulated(directory):
        raise SimError(f"{path_text(directory)} holds other files; give an empty or a new directory")
    if scenario is None:
        return SimNode.start(directory, driver=driver), None
    play = ALL[scenario]()
    here = nearest(driver or driver_with(play.options))
    if {"-S", "--static-partitioning"}.intersection(play.options) and not here.static_partitions:
        raise SimError(f"driver {here.number} has no static SM partitions")
    newest = nearest(driver_with(play.options))  # what came with the newest driver alone
    if newest is DRIVERS[-1] and here is not newest and play.options:
        raise SimError(f"driver {here.number} has no MPS protocol 3")
    if scenario in _NEEDS and _NEEDS[scenario] in here.absent:
        raise SimError(f"driver {here.number} has no {_NEEDS[scenario]}; scenario “{scenario}” needs it")
    with_mode = bool(here.multi_user)
    node = SimNode.start(
        directory,
        gpus=play.gpus,
        multiuser=play.multiuser and with_mode,
        driver=driver,
        env=play.environment,
        options=play.options,
    )
    node.one_user = play.multiuser and not with_mode
    try:
        play.begin(node, time.monotonic())
    except BaseException:
        node.stop()
        raise
    return node, play


def main(args: list[str]) -> None:
    """What SimNode starts: a directory, a scenario, the version of a driver or an empty word, and ``REMOVES`` for a
    demo's directory, which goes with it, however its owner ended."""
    directory, scenario, driver, *more = args
    try:
        status = serve(Path(directory), scenario, driver or None)
    finally:
        if REMOVES in more:  # no variable says it: that would count for each node that somebody starts by hand too
            shutil.rmtree(directory, ignore_errors=True)
    sys.exit(status)
