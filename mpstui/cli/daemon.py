"""``mpstui daemon``: starts and stops control daemons, prints units."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from mpstui import api
from mpstui.cli.apply import apply_profile
from mpstui.cli.say import NO_DAEMON, complain, meant, print_json
from mpstui.core.model import Daemon, Device, Snapshot
from mpstui.core.text import path_text
from mpstui.core.trust import NotNamedError
from mpstui.daemons.spec import DaemonSpec, Started, Wish, spec_of_profile, specs_of, usual_dir
from mpstui.daemons.units import unit_text
from mpstui.operations.daemons import RemoveStale, StartDaemon, StopDaemon
from mpstui.operations.types import ExitStatus, Preview, Request, Result
from mpstui.plan import store
from mpstui.plan.amounts import PlanError
from mpstui.plan.cpus import cpu_list
from mpstui.plan.profile import DaemonProfile, Profile, ProfileError


def daemon(options: argparse.Namespace, pipe_dirs: tuple[Path, ...]) -> int:
    """Carry it out; returns the exit status."""
    if getattr(options, "demo", False) and options.daemon_action != "stop":
        return complain("a demo has its own daemon; leave out --demo", ExitStatus.USAGE)
    try:
        if options.daemon_action == "unit":
            with _node_for(options, pipe_dirs) as node:
                _, specs, _ = _wanted(options, pipe_dirs, node)
            print(unit_text(options.kind, specs, options.opt_in), end="")
            return ExitStatus.DONE
        if options.daemon_action == "start":
            return _start(options, pipe_dirs)
        with api.open(pipe_dirs, read_only=_read_only(options)) as node:
            return _stop(options, pipe_dirs, node)
    except NotNamedError as error:
        return complain(str(error), ExitStatus.REFUSED_BY_SAFETY_RULE)
    except (PlanError, ProfileError, api.UnusableNode) as error:
        return complain(str(error), ExitStatus.USAGE)


def _read_only(options: argparse.Namespace) -> bool:
    """As the command line, and the configuration, say."""
    return bool(getattr(options, "read_only", False))


def _node_for(options: argparse.Namespace, pipe_dirs: tuple[Path, ...]) -> api.Opening:
    """The node on which a daemon is to be started, in whose directory one need not be."""
    if len(pipe_dirs) > 1:
        raise PlanError("one --pipe-dir only; --per-gpu makes one for each GPU from it")
    return api.open(pipe_dirs or (usual_dir(os.environ),), read_only=_read_only(options))


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
    )
    if options.profile is None:
        specs = specs_of(wish, devices, os.environ, root=os.geteuid() == 0)
        return None, tuple(replace(spec, driver=sample.driver_version) for spec in specs), devices
    if wish.devices or wish.per_gpu or wish.multi_user or wish.cpus or wish.static or wish.log_dir:
        raise PlanError("--profile says everything itself; leave the other options out")
    profile, _ = store.read(options.profile)
    if pipe_dirs and len(profile.daemons) > 1:
        raise PlanError("the profile has several daemons with their own directories; leave out --pipe-dir")
    usual = usual_dir(os.environ)
    specs = tuple(
        replace(spec_of_profile(_at(one, pipe_dirs), usual), driver=sample.driver_version) for one in profile.daemons
    )
    return profile, specs, devices


def _at(one: DaemonProfile, pipe_dirs: tuple[Path, ...]) -> DaemonProfile:
    """A directory that was asked for comes before the profile's."""
    return replace(one, pipe_dir=pipe_dirs[0], log_dir=None) if pipe_dirs else one


def _start(options: argparse.Namespace, pipe_dirs: tuple[Path, ...]) -> int:
    with _node_for(options, pipe_dirs) as node:
        profile, specs, devices = _wanted(options, pipe_dirs, node)
        # One after the other: each failure is told before the next daemon is there.
        nothing = Snapshot(0.0)
        started = [(spec, node.do(StartDaemon().request(spec), _tell, snapshot=nothing)) for spec in specs]
    results = [result for _, result in started]
    status = next((result.status for result in results if not result.done), ExitStatus.DONE)
    modes = _compute_modes(specs, devices)
    if options.json:
        entries = [
            {
                "pipe_dir": path_text(spec.pipe_dir),
                "log_dir": path_text(spec.log_dir),
                "pid": r.outcome.pid if isinstance(r.outcome, Started) else None,
                "done": r.done,
                "exit_status": int(r.status),
                "message": r.message,
                "details": list(r.details),
            }
            for spec, r in started
        ]
        print_json(done=status is ExitStatus.DONE, exit_status=int(status), daemons=entries, compute_mode=modes)
    else:
        for result in results:
            stream = sys.stdout if result.done else sys.stderr
            print(result.message, file=stream)
            for line in result.details:
                print(f"  {line}", file=stream)
        for line in modes if any(result.done for result in results) else ():
            print(line)
    if profile is not None and status is ExitStatus.DONE:
        dirs = tuple(spec.pipe_dir for spec in specs) if len(specs) == 1 else ()  # several have theirs in the profile
        with contextlib.redirect_stdout(sys.stderr if options.json else sys.stdout):
            options.json = False  # what is applied is told on stderr and in the exit status
            return apply_profile(options, profile, dirs)
    return status


def _compute_modes(specs: Sequence[DaemonSpec], devices: Sequence[Device]) -> list[str]:
    """The compute mode of each device, and the command that changes it, which is for the admin to run."""
    wanted = {uuid for spec in specs for uuid in spec.devices}
    return [
        f"GPU {device.index}: compute mode {device.compute_mode or 'not known'};"
        f" so that only the MPS server may use it: nvidia-smi -i {device.uuid} -c EXCLUSIVE_PROCESS (not run)"
        for device in devices
        if device.compute_mode != "Exclusive_Process" and (not wanted or device.uuid in wanted)
    ]


def _stop(options: argparse.Namespace, pipe_dirs: tuple[Path, ...], node: api.Node) -> int:
    snapshot = node.snapshot(complete=True)
    running = [d for d in snapshot.daemons if d.health not in {"absent", "stale"}]
    if not running:
        return _nothing_runs(options, node, snapshot)
    running = meant(running, node.named)
    if len(running) > max(1, len(pipe_dirs)):
        names = ", ".join(path_text(d.pipe_dir) for d in running)
        raise PlanError(f"there are several daemons; choose with --pipe-dir: {names}")
    status = ExitStatus.DONE
    for one in running:
        request = StopDaemon().request(one, options.timeout, force=options.force)
        shown = node.preview(request, snapshot)
        declined = None
        if shown.error is None and not options.yes:
            declined = _declined(node, request, one, shown)
        if declined is not None:
            result = node.refuse(request, declined[1], declined[0])
        else:
            result = node.do(request, _tell, snapshot=snapshot)
        _report(options, one.pipe_dir, result)
        status = result.status if status is ExitStatus.DONE else status
    return status


def _nothing_runs(options: argparse.Namespace, node: api.Node, snapshot: Snapshot) -> int:
    """No daemon to stop; what one left behind is removed where nobody owns it."""
    status = ExitStatus.DONE
    for one in snapshot.daemons:
        removed = None
        if one.health == "stale":
            removed = node.do(Request(RemoveStale.id, one.pipe_dir), snapshot=snapshot)
        message = f"{path_text(one.pipe_dir)}: no daemon runs there"
        if one.health == "absent" and one.health_detail:  # or none that can be seen from here
            message = f"no daemon to stop: {one.health_detail}"
        done = removed is not None and removed.done
        lines = removed.details if removed is not None else ()
        result = Result(StopDaemon().request(one), ExitStatus.DONE if done else ExitStatus.NO_DAEMON, message, lines)
        _report(options, one.pipe_dir, result)
        status = result.status if status is ExitStatus.DONE else status
    return status if snapshot.daemons else complain(NO_DAEMON, ExitStatus.NO_DAEMON)


def _report(options: argparse.Namespace, pipe_dir: Path, result: Result) -> None:
    if options.json:
        print_json(
            done=result.done,
            exit_status=int(result.status),
            pipe_dir=path_text(pipe_dir),
            message=result.message,
            details=list(result.details),
        )
        return
    stream = sys.stdout if result.done else sys.stderr
    print(result.message, file=stream)
    for line in result.details:
        print(f"  {line}", file=stream)


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
        _tell("clients have come since:")
    return ExitStatus.REFUSED_BY_SAFETY_RULE, "nothing was sent"


def _confirmed(one: Daemon, shown: Preview) -> bool:
    """Ask on the terminal, with no as the default; without a terminal the answer is no."""
    _tell(f"Stop the daemon in {path_text(one.pipe_dir)} (PID {one.pid}): {dict(shown.facts)['effect']}")
    for hit in shown.hits:
        _tell(f"  hits: {hit}")
    if limits := dict(shown.facts).get("limits"):
        _tell(f"  {limits}")
    if not sys.stdin.isatty():
        _tell("this stops a daemon: add --yes, or answer at a terminal")
        return False
    print("stop it? [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in {"y", "yes"}


def _tell(text: str) -> None:
    print(text, file=sys.stderr)
