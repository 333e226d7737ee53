"""``doctor``: every check of the set-up, as text or JSON; the exit status is by the worst finding."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from mpstui import api
from mpstui.cli.output import SIMULATED, complain
from mpstui.cli.past import logs_alone
from mpstui.cli.status import unreadable
from mpstui.core.model import Snapshot, Source
from mpstui.core.text import about, plural
from mpstui.doctor.types import Finding, Verdict, worst
from mpstui.fields import OBJECTS, SCHEMA, TEXT, TIME, Field, Thing, Type, View, as_json, enum
from mpstui.operations.types import ExitStatus

_MARK: Final[dict[Verdict, str]] = {"ok": "ok", "unknown": "?", "warning": "warning", "error": "ERROR"}
TROUBLE: Final = 1
"""Exit status where a finding is a warning or an error."""


def doctor(options: argparse.Namespace, pipe_dirs: Sequence[Path]) -> int:
    """Check and print; 0 where nothing is worse than unknown, 1 where a warning or an error is among the findings."""
    if alone := logs_alone(options):
        return _of_logs(options, alone)
    log_dirs = getattr(options, "log_dir", None) or ()
    try:
        with api.open(pipe_dirs, log_dirs=log_dirs) as node:
            snapshot = node.snapshot(complete=True)
            findings = node.findings(snapshot)
    except api.Unavailable as error:
        return complain(str(error), TROUBLE)
    status = _told(options, snapshot, findings)
    if options.bundle is None:
        return status
    from mpstui.cli.bundle import bundle

    told = to_json(snapshot, findings)
    return bundle(options.bundle, snapshot, told, pipe_dirs, masked=not options.unmasked) or status


def _of_logs(options: argparse.Namespace, log_dirs: Sequence[Path]) -> int:
    """The same for logs without a daemon: what they tell, and nothing of this machine."""
    if options.bundle is not None:
        return complain("--bundle is of this machine: leave out --log-dir", ExitStatus.USAGE)
    try:
        with api.open(log_dirs=log_dirs) as node:
            snapshots = node.past()
            findings = node.findings(*snapshots)
    except api.UnreadableNodeError as error:
        return unreadable(error)
    return _told(options, max(snapshots, key=lambda snapshot: snapshot.time), findings)


def _told(options: argparse.Namespace, snapshot: Snapshot, findings: Sequence[Finding]) -> int:
    verdict = worst(findings)
    if options.json:
        print(json.dumps(to_json(snapshot, findings), ensure_ascii=False))
    else:
        _print_text(snapshot, findings)
    return TROUBLE if verdict in {"warning", "error"} else ExitStatus.DONE


FINDING: Final[Thing[Finding]] = Thing(
    "finding",
    "One answer of one check.",
    (
        Field("check", "check", TEXT, lambda f, v: f.check, about="Its name; stable."),
        Field("verdict", "verdict", enum(Verdict), lambda f, v: f.verdict),
        Field("subject", "subject", TEXT, lambda f, v: f.subject),
        Field("evidence", "evidence", TEXT, lambda f, v: f.evidence, about="What was seen."),
        Field("remedy", "remedy", TEXT, lambda f, v: f.remedy or None, null=True, about="null: nothing is to be done."),
    ),
)

DOCTOR: Final[Thing[tuple[Snapshot, Sequence[Finding]]]] = Thing(
    "doctor",
    "What the checks of the set-up say.",
    (
        Field("schema", "schema", Type({"const": SCHEMA}), lambda d, v: SCHEMA),
        Field("time", "time", TIME, lambda d, v: d[0].moment, null=True),
        Field("source", "source", enum(Source), lambda d, v: d[0].source),
        Field("host", "host", TEXT, lambda d, v: d[0].host),
        Field("verdict", "verdict", enum(Verdict), lambda d, v: worst(d[1]), about="The worst of the findings."),
        Field("findings", "findings", OBJECTS, lambda d, v: d[1], of=FINDING),
    ),
)


def to_json(snapshot: Snapshot, findings: Sequence[Finding]) -> dict[str, Any]:
    """``schema`` 1."""
    return as_json(DOCTOR, (snapshot, findings), View())


def _print_text(snapshot: Snapshot, findings: Sequence[Finding]) -> None:
    if snapshot.source == "simulated":
        print(SIMULATED)
    for finding in findings:
        print(f"{_MARK[finding.verdict]:<8} {finding.check:<16} {about(finding.subject, finding.evidence)}")
        if finding.remedy and finding.verdict != "ok":
            print(f"{'':<8} {'':<16} → {finding.remedy}")
    numbers = {verdict: sum(finding.verdict == verdict for finding in findings) for verdict in _MARK}
    print(summary(numbers))


def summary(numbers: Mapping[Verdict, int]) -> str:
    """How many findings there are of each verdict: ``1 error, 3 warnings, 0 unknown, 27 ok``."""
    bad = f"{plural(numbers['error'], 'error')}, {plural(numbers['warning'], 'warning')}"
    return f"{bad}, {numbers['unknown']} unknown, {numbers['ok']} ok"
