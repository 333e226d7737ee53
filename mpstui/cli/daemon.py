"""``mpstui daemon``: starts and stops control daemons, prints units."""

from __future__ import annotations

import argparse
import contextlib
import os
import pwd
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NamedTuple

from mpstui import api
from mpstui.cli.apply import apply_profile
from mpstui.cli.change import change
from mpstui.cli.output import NO_DAEMON, agreed, complain, meant, no_daemon_status, print_json, print_result, tell
from mpstui.core.model import DEFAULT_MODE, EXCLUSIVE_PROCESS, Daemon, Device, Snapshot
from mpstui.core.text import UNKNOWN, path_text, path_word
from mpstui.daemons.spec import DaemonSpec, Started, Wish, spec_of_profile, specs_of, usual_dir
from mpstui.daemons.units import unit_text
from mpstui.fields import (
    FLAG,
    INTEGER,
    OBJECTS,
    PATH,
    SCHEMA,
    TEXT,
    TEXTS,
    Field,
    Thing,
    Type,
)
from mpstui.operations.daemons import RemoveStale, StartDaemon, StopDaemon
from mpstui.operations.types import ExitStatus, Preview, Request, Result, Unable
from mpstui.plan import store
from mpstui.plan.amounts import PlanError
from mpstui.plan.cpus import cpu_list
from mpstui.plan.profile import DaemonProfile, Profile


def unit(options: argparse.Namespace, pipe_dirs: tuple[Path, ...]) -> int:
    """``daemon unit``; returns the exit status. Raises Unable."""
    _check_no_demo(options)
    with _node_for(options, pipe_dirs) as node:
        _, specs, _ = _wanted(options, pipe_dirs, node)
    print(unit_text(options.kind, specs, options.opt_in), end="")
    return ExitStatus.DONE


def clean(options: argparse.Namespace, pipe_dirs: tuple[Path, ...]) -> int:
    """``daemon clean``; returns the exit status. Raises Unable."""
    _check_no_demo(options)
    return change(options, pipe_dirs)


def _check_no_demo(options: argparse.Namespace) -> None:
    """Raises Unable."""
    if getattr(options, "demo", False):
        raise Unable("a demo has its own daemon; leave out --demo")


def _read_only(options: argparse.Namespace) -> bool:
    """As the command line, and the configuration, say."""
    return bool(getattr(options, "read_only", False))


def _node_for(options: argparse.Namespace, pipe_dirs: tuple[Path, ...]) -> api.Opening:
    """The node on which a daemon is to be started, in whose directory one need not be."""
    if len(pipe_dirs) > 1:
        raise PlanError("one --pipe-dir only; --per-gpu makes one for each GPU from it")
    usual = usual_dir(os.environ, int(options.protocol or 2))
    log_dirs = tuple(getattr(options, "log_dir", None) or ())
    return api.open(pipe_dirs or (usual,), log_dirs=log_dirs, read_only=_read_only(options))


def _wanted(
    options: argparse.Namespace, pipe_dirs: tuple[Path, ...], node: api.Node
) -> tuple[Profile | None, tuple[DaemonSpec, ...], tuple[Device, ...]]:
    """The profile, the daemons asked for, and the node's devices."""
    sample = node.hardware()
    devices = sample.devices
    log_dirs = tuple(getattr(options, "log_dir", None) or ())
    wish = Wish(
        tuple(options.device),
        options.per_gpu,
        options.multi_user,
        None if options.cpu is None else cpu_list(options.cpu),
        pipe_dirs[0] if pipe_dirs else None,
        log_dirs[0] if log_dirs else None,
        static=options.static,
        protocol=int(options.protocol or 2),
    )
    if options.profile is None:
        specs = specs_of(wish, devices, os.environ, root=os.geteuid() == 0)
        return None, tuple(replace(spec, driver=sample.driver_version) for spec in specs), devices
    if wish.devices or wish.per_gpu or wish.multi_user or wish.cpus or wish.static or wish.log_dir or options.protocol:
        raise PlanError("--profile says everything itself; leave the other options out")
    profile, _ = store.read(options.profile)
    if pipe_dirs and len(profile.daemons) > 1:
        raise PlanError("the profile has several daemons with their own directories; leave out --pipe-dir")
    specs = tuple(
        replace(spec_of_profile(_at(one, pipe_dirs), os.environ), driver=sample.driver_version)
        for one in profile.daemons
    )
    return profile, specs, devices


def _at(one: DaemonProfile, pipe_dirs: tuple[Path, ...]) -> DaemonProfile:
    """A directory that was asked for comes before the profile's."""
    return replace(one, pipe_dir=pipe_dirs[0], log_dir=None) if pipe_dirs else one


def start(options: argparse.Namespace, pipe_dirs: tuple[Path, ...]) -> int:
    """``daemon start``; returns the exit status. Raises Unable."""
    _check_no_demo(options)
    with _node_for(options, pipe_dirs) as node:
        profile, specs, devices = _wanted(options, pipe_dirs, node)
        if options.exclusive and not devices:
            text = "no compute mode can be set, since NVML does not tell which GPUs there are; nothing was started"
            return complain(text, ExitStatus.NO_ANSWER)
        # Where a daemon runs already nothing is set, and nobody is asked; the start says why.
        free = [spec for spec in specs if StartDaemon.is_free(spec)] if options.exclusive else []
        modes = _to_be_set(free, devices)
        if not options.yes and not _exclusive_agreed(node, modes):
            return complain("nothing was started, and no compute mode was set", ExitStatus.REFUSED_BY_SAFETY_RULE)
        # One after the other: each failure is told before the next daemon is there.
        nothing = Snapshot(0.0)
        started = [
            (spec, node.do(StartDaemon().request(spec, modes.get(spec.pipe_dir, {})), tell, snapshot=nothing))
            for spec in specs
        ]
    results = [result for _, result in started]
    status = next((result.status for result in results if not result.done), ExitStatus.DONE)
    left = [] if options.exclusive else _compute_modes(specs, devices)
    if options.json:
        print_json(ALL_STARTED, AllStarted(status, results, left))
    else:
        for result in results:
            print_result(result)
        for line in left if any(result.done for result in results) else ():
            print(line)
    if profile is not None and status is ExitStatus.DONE:
        dirs = tuple(spec.pipe_dir for spec in specs) if len(specs) == 1 else ()  # several have theirs in the profile
        with contextlib.redirect_stdout(sys.stderr if options.json else sys.stdout):
            options.json = False  # what is applied is told on stderr and in the exit status
            return apply_profile(options, profile, dirs)
    return status


def _to_be_set(specs: Sequence[DaemonSpec], devices: Sequence[Device]) -> dict[Path, dict[str, str]]:
    """The devices of each daemon with the mode that each has now; each is the first one's that has it."""
    found: dict[Path, dict[str, str]] = {}
    for spec in specs:
        others = {uuid for uuids in found.values() for uuid in uuids}
        mine = [d for d in devices if (not spec.devices or d.uuid in spec.devices) and d.uuid not in others]
        found[spec.pipe_dir] = {d.uuid: d.settable_mode or DEFAULT_MODE for d in mine}
    return found


def _exclusive_agreed(node: api.Node, modes: Mapping[Path, Mapping[str, str]]) -> bool:
    """Ask, with whom it hits, where a mode changes; without a terminal the answer is no."""
    uuids = [uuid for each in modes.values() for uuid, mode in each.items() if mode != EXCLUSIVE_PROCESS]
    if not uuids:
        return True
    sample, snapshot = node.hardware(), node.snapshot()
    names = ", ".join(f"GPU {device.index}" for device in sample.devices if device.uuid in uuids)
    tell(f"Set {names} to EXCLUSIVE_PROCESS, for all users: a program that does not find the daemon gets error 46")
    mps = {server.pid for daemon in snapshot.daemons for server in daemon.servers}
    for device in (device for device in sample.devices if device.uuid in uuids):
        clients = sample.mps_clients.get(device.uuid, {})
        for pid in sorted(set(sample.processes.get(device.uuid, {})) - set(clients) - mps):
            who = f"process {pid} of {_owner(pid)} on GPU {device.index}"
            tell(f"  affects: {who}, not a client of MPS: it runs on, and no MPS server can start there until it ends")
        for pid in sorted(clients):
            who = f"process {pid} of {_owner(pid)} on GPU {device.index}"
            tell(
                f"  affects: {who}, a client of another daemon: an EXCLUSIVE_PROCESS GPU takes one MPS server at a time"
            )
    if not sys.stdin.isatty():
        tell("this changes the GPUs for all users: add --yes, or answer at a terminal")
        return False
    return agreed("set it?")


def _owner(pid: int) -> str:
    try:
        uid = os.stat(f"/proc/{pid}").st_uid
    except OSError:
        return UNKNOWN
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"UID {uid}"


def _compute_modes(specs: Sequence[DaemonSpec], devices: Sequence[Device]) -> list[str]:
    """The compute mode of each device, and the command that changes it, which is for the admin to run."""
    wanted = {uuid for spec in specs for uuid in spec.devices}
    return [
        f"GPU {device.index}: compute mode {device.compute_mode or 'not known'};"
        f" so that only the MPS server may use it: nvidia-smi -i {device.uuid} -c EXCLUSIVE_PROCESS (not run)"
        for device in devices
        if not device.exclusive and (not wanted or device.uuid in wanted)
    ]


def stop(options: argparse.Namespace, pipe_dirs: tuple[Path, ...]) -> int:
    """``daemon stop``; returns the exit status. Raises Unable."""
    with api.open(pipe_dirs, read_only=_read_only(options)) as node:
        return _stop(options, pipe_dirs, node)


def _stop(options: argparse.Namespace, pipe_dirs: tuple[Path, ...], node: api.Node) -> int:
    snapshot = node.snapshot(complete=True)
    running = [d for d in snapshot.daemons if d.runs]
    if not running:
        return _nothing_runs(options, node, snapshot)
    running = meant(running, node.named, as_process=True)
    if len(running) > max(1, len(pipe_dirs)):
        names = ", ".join(path_text(d.pipe_dir) for d in running)
        raise PlanError(f"there are several daemons; choose with --pipe-dir: {names}")
    status = ExitStatus.DONE
    for one in running:
        back = api.modes_to_give_back(one, snapshot) if options.exclusive else {}
        request = StopDaemon().request(one, options.timeout, force=options.force, exclusive=back)
        shown = node.preview(request, snapshot)
        declined = None
        if shown.error is None and not options.yes:
            declined = _declined(node, request, one, shown)
        if declined is not None:
            result = node.refuse(request, declined[1], declined[0])
        else:
            result = node.do(request, tell, snapshot=snapshot)
        if result.done:
            left = _stays_exclusive(one, snapshot) if options.exclusive else _left_exclusive(one, snapshot)
            result = result._replace(details=(*result.details, *left))
        _report(options, result)
        status = result.status if status is ExitStatus.DONE else status
    return status


def _left_exclusive(one: Daemon, snapshot: Snapshot) -> list[str]:
    """What a start has set and this stop leaves, with the command that gives it back."""
    left = api.modes_to_give_back(one, snapshot, kept=True)
    command = f"mpstui daemon stop --exclusive --pipe-dir {path_word(one.pipe_dir)}"
    back = "compute mode stays EXCLUSIVE_PROCESS; to set it back to"
    return [f"{uuid}: {back} {mode}: {command}" for uuid, mode in left.items()]


def _stays_exclusive(one: Daemon, snapshot: Snapshot) -> list[str]:
    """What is not given back, and for whose sake."""
    stays = "compute mode stays EXCLUSIVE_PROCESS, as another daemon has it"
    return [f"{uuid}: {stays}: process {pid}" for uuid, pid in api.modes_that_stay(one, snapshot).items()]


def _nothing_runs(options: argparse.Namespace, node: api.Node, snapshot: Snapshot) -> int:
    """No daemon to stop; what one left behind is removed where nobody owns it."""
    status = ExitStatus.DONE
    for one in snapshot.daemons:
        removed = None
        if one.health == "stale":
            removed = node.do(Request(RemoveStale.id, one.pipe_dir), snapshot=snapshot)
        message = f"{path_text(one.pipe_dir)}: no daemon runs there"
        if (one.health == "absent" or one.closed) and one.health_detail:  # or none that can be seen from here
            message = one.health_detail if one.closed else f"no daemon to stop: {one.health_detail}"
            if one.remedy and one.remedy.startswith("name "):
                message += f"; {one.remedy}"
        done = removed is not None and removed.done
        lines = removed.details if removed is not None else ()
        result = Result(StopDaemon().request(one), ExitStatus.DONE if done else no_daemon_status([one]), message, lines)
        back = api.modes_to_give_back(one, snapshot) if options.exclusive and one.health in {"stale", "absent"} else {}
        if back:
            request = StopDaemon().request(one, exclusive=back)
            shown = node.preview(request, snapshot)
            if shown.error is None and not options.yes and not _given_back_agreed(shown):
                result = node.refuse(request, "no compute mode was set", ExitStatus.REFUSED_BY_SAFETY_RULE)
            else:
                result = node.do(request, tell, snapshot=snapshot)
            result = result._replace(details=(*lines, *result.details))
        _report(options, result._replace(simulated=node.simulated))
        status = result.status if status is ExitStatus.DONE else status
    return status if snapshot.daemons else complain(NO_DAEMON, ExitStatus.NO_DAEMON)


def _given_back_agreed(shown: Preview) -> bool:
    """Ask, where no daemon is stopped; without a terminal the answer is no."""
    tell(f"No daemon runs; compute mode: {dict(shown.facts)['compute mode']}")
    if not sys.stdin.isatty():
        tell("this changes the GPUs for all users: add --yes, or answer at a terminal")
        return False
    return agreed("set it?")


_OUTCOME: Final[tuple[Field[Any], ...]] = (
    Field("done", "done", FLAG, lambda r, v: r.done),
    Field("exit_status", "exit status", INTEGER, lambda r, v: int(r.status)),
)
_WORDS: Final[tuple[Field[Any], ...]] = (
    Field("message", "message", TEXT, lambda r, v: r.message),
    Field("details", "details", TEXTS, lambda r, v: r.details),
)

STARTED: Final[Thing[Any]] = Thing(
    "daemon_started",
    "The result of starting one daemon.",
    (
        Field("pipe_dir", "pipe directory", PATH, lambda r, v: r.request.subject.pipe_dir),
        Field("log_dir", "log directory", PATH, lambda r, v: r.request.subject.log_dir),
        Field("pid", "PID", INTEGER, lambda r, v: r.outcome.pid if isinstance(r.outcome, Started) else None, null=True),
        *_OUTCOME,
        *_WORDS,
    ),
)


class AllStarted(NamedTuple):
    """What is printed of a start of one or several."""

    status: ExitStatus
    results: Sequence[Result]
    modes: Sequence[str]

    @property
    def done(self) -> bool:
        return self.status is ExitStatus.DONE


ALL_STARTED: Final[Thing[Any]] = Thing(
    "daemon_start",
    "The result of starting daemons.",
    (
        Field("schema", "schema", Type({"const": SCHEMA}), lambda r, v: SCHEMA),
        *_OUTCOME,
        Field("daemons", "daemons", OBJECTS, lambda r, v: r.results, of=STARTED),
        Field(
            "compute_mode", "compute mode", TEXTS, lambda r, v: r.modes,
            about="Of each device that programs may use beside MPS, with the command that changes it.",
        ),
    ),
)  # fmt: skip

STOPPED: Final[Thing[Any]] = Thing(
    "daemon_stop",
    "The result of stopping a daemon.",
    (
        Field("schema", "schema", Type({"const": SCHEMA}), lambda r, v: SCHEMA),
        *_OUTCOME,
        Field("pipe_dir", "pipe directory", PATH, lambda r, v: r.request.pipe_dir),
        *_WORDS,
    ),
)


def _report(options: argparse.Namespace, result: Result) -> None:
    if options.json:
        print_json(STOPPED, result)
        return
    print_result(result)


def _declined(node: api.Node, request: Request, one: Daemon, shown: Preview) -> tuple[ExitStatus, str] | None:
    """Asks until everybody who would be hit was named; None where it was agreed to.

    The answer may take its time: clients come meanwhile, and the daemon may be another one by then.
    """
    while _confirmed(one, shown):
        snapshot = node.snapshot(complete=True)
        now = snapshot.daemon(one.pipe_dir)
        if now is None or now.key != one.key:
            gone = f"the daemon in {path_text(one.pipe_dir)} has ended, or another one is there now; nothing was sent"
            return ExitStatus.REFUSED_BY_SAFETY_RULE, gone
        named, shown = set(shown.hits), node.preview(request, snapshot)
        if shown.error is not None:
            return shown.error_status, shown.error
        if named.issuperset(shown.hits):
            return None
        tell("clients have come since:")
    return ExitStatus.REFUSED_BY_SAFETY_RULE, "nothing was sent"


def _confirmed(one: Daemon, shown: Preview) -> bool:
    """Ask on the terminal, with no as the default; without a terminal the answer is no."""
    tell(f"Stop the daemon in {path_text(one.pipe_dir)} (PID {one.pid}): {dict(shown.facts)['effect']}")
    for hit in shown.hits:
        tell(f"  affects: {hit}")
    if mode := dict(shown.facts).get("compute mode"):
        tell(f"  compute mode: {mode}")
    if limits := dict(shown.facts).get("limits"):
        tell(f"  {limits}")
    if not sys.stdin.isatty():
        tell("this stops a daemon: add --yes, or answer at a terminal")
        return False
    return agreed("stop it?")
