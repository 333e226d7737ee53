"""Applies profiles to running daemons and shows their drift: for ``plan --apply``, ``profile`` and ``daemon start``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple

from mpstui import api
from mpstui.cli.output import agreed, meant, no_answer, only_one, print_json, tell
from mpstui.core.model import Client, Daemon, Snapshot
from mpstui.core.text import path_text
from mpstui.fields import CLIENT, FLAG, INTEGER, OBJECTS, PATH, SCHEMA, TEXT, TEXTS, Field, Thing, Type
from mpstui.operations.apply import (
    ApplyProfile,
    ApplyStep,
    GoBack,
    Report,
    beside_words,
    can_go_back,
    reached_beside,
    report_of,
    steps,
    undo_line,
    way_of,
)
from mpstui.operations.types import ExitStatus, Unable
from mpstui.plan.profile import DaemonProfile, Profile
from mpstui.plan.settings import WAITS, Difference, drift, waits_for_a_server


def diff_profile(options: argparse.Namespace, profile: Profile, pipe_dirs: tuple[Path, ...]) -> int:
    """Print the drift; 0 where there is none, 1 where there is some. Raises Unable."""
    with api.open(profile_dirs(profile, pipe_dirs)) as node:
        return _diff(options, matched(profile, node.snapshot(complete=True), pipe_dirs, node.named))


class AppliedChange(NamedTuple):
    """What came of one daemon."""

    pipe_dir: Path
    report: Report
    beside: Sequence[Client]


class Applied(NamedTuple):
    """What is printed of it; nothing was done where there is a message."""

    status: ExitStatus
    daemons: Sequence[AppliedChange] = ()
    not_tried: Sequence[Path] = ()
    went_back: Sequence[str] = ()
    message: str | None = None


class Drift(NamedTuple):
    """What is not as it should be, and where that takes a server."""

    differences: Sequence[tuple[Path, Difference]]
    waits: Sequence[Path]


MET: Final[Thing[Client]] = Thing(
    "met",
    "A client that is not in the profile, and is affected too.",
    tuple(CLIENT[name] for name in ("pid", "user", "command")),
)

CHANGED: Final[Thing[AppliedChange]] = Thing(
    "changed_daemon",
    "The result for one daemon of the profile.",
    (
        Field("pipe_dir", "pipe directory", PATH, lambda c, v: c.pipe_dir),
        Field("done", "done", FLAG, lambda c, v: c.report.complete),
        Field("steps", "steps", INTEGER, lambda c, v: len(c.report.done), about="That were carried out."),
        Field("lines", "lines", TEXTS, lambda c, v: c.report.lines(), about="One for each step."),
        Field("reaches_too", "reaches too", OBJECTS, lambda c, v: c.beside, of=MET),
    ),
)


def _carried_out(applied: Applied) -> bool:
    return applied.message is None


APPLIED: Final[Thing[Applied]] = Thing(
    "profile_applied",
    "The result of applying a profile, or a plan.",
    (
        Field("schema", "schema", Type({"const": SCHEMA}), lambda a, v: SCHEMA),
        Field("done", "done", FLAG, lambda a, v: a.status is ExitStatus.DONE),
        Field("exit_status", "exit status", INTEGER, lambda a, v: int(a.status)),
        Field(
            "message", "message", TEXT, lambda a, v: a.message, only=lambda a: a.message is not None,
            about="Why nothing was done.",
        ),
        Field("daemons", "daemons", OBJECTS, lambda a, v: a.daemons, of=CHANGED, only=_carried_out),
        Field("not_tried", "not tried", TEXTS, lambda a, v: map(path_text, a.not_tried), only=_carried_out),
        Field(
            "went_back", "went back", TEXTS, lambda a, v: a.went_back, only=_carried_out,
            about="What was undone, one line each.",
        ),
    ),
)  # fmt: skip

DIFFERENCE: Final[Thing[tuple[Path, Difference]]] = Thing(
    "difference",
    "A setting of a daemon that is not as a profile says.",
    (
        Field("pipe_dir", "pipe directory", PATH, lambda d, v: d[0]),
        Field("what", "what", TEXT, lambda d, v: d[1].what),
        Field("wanted", "wanted", TEXT, lambda d, v: d[1].wanted),
        Field("found", "found", TEXT, lambda d, v: d[1].found),
    ),
)

DRIFT: Final[Thing[Drift]] = Thing(
    "profile_drift",
    "What is not as a profile, or a plan, says.",
    (
        Field("schema", "schema", Type({"const": SCHEMA}), lambda d, v: SCHEMA),
        Field("differences", "differences", OBJECTS, lambda d, v: d.differences, of=DIFFERENCE),
        Field(
            "waits_for_a_server", "waits for a server", TEXTS, lambda d, v: map(path_text, d.waits),
            about="Pipe directories of daemons that tell a setting only once a server runs.",
        ),
    ),
)  # fmt: skip


def profile_dirs(profile: Profile, pipe_dirs: tuple[Path, ...]) -> tuple[Path, ...]:
    """The pipe directories to read: those asked for, otherwise the profile's own."""
    return pipe_dirs or tuple(d.pipe_dir for d in profile.daemons if d.pipe_dir is not None)


def matched(
    profile: Profile, snapshot: Snapshot, pipe_dirs: tuple[Path, ...], named: Sequence[Path]
) -> list[tuple[Daemon, DaemonProfile]]:
    """Each daemon of the profile with the one that runs. ``named``: directories that were asked for, also by the
    environment. Raises Unable where one is not there or does not answer."""
    wanted = profile.daemons
    if len(wanted) == 1 and (pipe_dirs or wanted[0].pipe_dir is None):
        wanted = (replace(wanted[0], pipe_dir=only_one(meant(snapshot.daemons, named)).pipe_dir),)
    found = []
    for one in wanted:
        daemon = snapshot.daemon(one.pipe_dir) if one.pipe_dir is not None else None
        if daemon is None:
            raise Unable(f"{path_text(one.pipe_dir)}: there is no daemon there", ExitStatus.NO_DAEMON)
        if not daemon.answers:
            raise no_answer(daemon)
        found.append((daemon, one))
    return found


def apply_profile(options: argparse.Namespace, profile: Profile, pipe_dirs: tuple[Path, ...]) -> int:
    """Bring each daemon of the profile to what it says; the exit status of what failed first."""
    reports: list[tuple[Path, Report]] = []
    try:
        with api.open(profile_dirs(profile, pipe_dirs), read_only=getattr(options, "read_only", False)) as node:
            snapshot = node.snapshot(complete=True)
            pairs = matched(profile, snapshot, pipe_dirs, node.named)
            todo = [(daemon, one, steps(snapshot, daemon.pipe_dir, one)) for daemon, one in pairs]
            beside = [reached_beside(daemon, one, planned) for daemon, one, planned in todo]
            for found in beside:
                if found is not None:
                    sentence, lines = beside_words(found, snapshot)
                    tell(f"▲ {sentence}")
                    for line in lines:
                        tell(f"    {line}")
            if getattr(options, "dry_run", False):
                return _dry_run(options, [(daemon, planned) for daemon, _, planned in todo])
            for daemon, one, planned in todo:
                report = Report()
                if planned:
                    request = ApplyProfile().request(daemon.pipe_dir, one)
                    report = report_of(node.do(request, tell, snapshot=snapshot), planned)
                reports.append((daemon.pipe_dir, report))
                if waits_for_a_server(daemon, one):
                    tell(WAITS)
                if not report.complete:
                    break
            not_tried = [daemon.pipe_dir for daemon, _, _ in todo[len(reports) :]]
            if not getattr(options, "json", False):
                _print_reports(reports, not_tried)
            back = _offer_way_back(options, node, snapshot, [report for _, report in reports])
    except Unable as error:
        if getattr(options, "json", False):
            print_json(APPLIED, Applied(error.status, message=str(error)))
        raise
    status = next((report.status for _, report in reports if not report.complete), ExitStatus.DONE)
    if getattr(options, "json", False):
        met = [() if found is None else found.clients for found in beside]
        changed = [AppliedChange(*told, clients) for told, clients in zip(reports, met, strict=False)]
        print_json(APPLIED, Applied(status, changed, not_tried, back))
    return status


def _print_reports(reports: Sequence[tuple[Path, Report]], not_tried: Sequence[Path]) -> None:
    for pipe_dir, report in reports:
        stream = sys.stdout if report.complete else sys.stderr
        print(f"{path_text(pipe_dir)}: {'as it should be' if report.complete else 'only in part'}", file=stream)
        for line in report.lines() or ("nothing had to be changed",):
            print(f"  {line}", file=stream)
    for pipe_dir in not_tried:
        print(f"{path_text(pipe_dir)}: not tried", file=sys.stderr)


def _offer_way_back(
    options: argparse.Namespace, node: api.Node, snapshot: Snapshot, reports: Sequence[Report]
) -> list[str]:
    """What came of going back, one line each; nothing where there was no need, or no wish."""
    if not can_go_back(reports):
        return []
    if not getattr(options, "go_back", False):
        if not sys.stdin.isatty():
            tell("to set the earlier values again:")
            for report in reversed(reports):
                for step in reversed(report.done):
                    tell(f"  {undo_line(step)}")
            return []
        if getattr(options, "json", False):
            for line in (line for report in reports for line in report.lines()):
                tell(line)
        if not agreed("set the earlier values again?"):
            return []
    ways = [
        way_of(node.do(GoBack().request(report), tell, snapshot=snapshot), report)
        for report in reversed(reports)
        if report.done
    ]
    lines = [line for way in ways for line in way.lines()]
    for line in lines:
        tell(line)
    return lines


def _dry_run(options: argparse.Namespace, planned: Sequence[tuple[Daemon, Sequence[ApplyStep]]]) -> int:
    differences = [(daemon.pipe_dir, [step.difference for step in plan]) for daemon, plan in planned]
    _print_differences(options, differences, "would be set")
    return ExitStatus.DONE


def _diff(options: argparse.Namespace, pairs: Sequence[tuple[Daemon, DaemonProfile]]) -> int:
    found = [(daemon.pipe_dir, list(drift(daemon, one))) for daemon, one in pairs]
    waits = [daemon.pipe_dir for daemon, one in pairs if waits_for_a_server(daemon, one)]
    _print_differences(options, found, "should be", waits)
    return ExitStatus.REFUSED_BY_DAEMON if any(differences for _, differences in found) or waits else ExitStatus.DONE


def _print_differences(
    options: argparse.Namespace,
    found: Sequence[tuple[Path, Sequence[Difference]]],
    verb: str,
    waits: Sequence[Path] = (),
) -> None:
    if getattr(options, "json", False):
        print_json(DRIFT, Drift([(pipe_dir, each) for pipe_dir, listed in found for each in listed], waits))
        return
    for pipe_dir, differences in found:
        nothing = "no difference that can be seen yet" if pipe_dir in waits else "no difference"
        print(f"{path_text(pipe_dir)}: {'' if differences else nothing}".rstrip())
        for difference in differences:
            print(f"  {difference.what}: is {difference.found}, {verb} {difference.wanted}")
        if pipe_dir in waits:
            print(f"  {WAITS}")
