"""``why PID``: why a process is no client of MPS; ``explain CODE``: what an error of CUDA means under MPS."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from mpstui import api
from mpstui.cli.output import SIMULATED, complain, output, print_json
from mpstui.core.model import Source
from mpstui.core.text import printable
from mpstui.doctor.why import Certainty, Diagnosis, Reason
from mpstui.fields import FLAG, INTEGER, OBJECTS, PATH, SCHEMA, TEXT, TEXTS, Field, Thing, Type, View, enum
from mpstui.load.errors import Explanation, explanation, explanations
from mpstui.operations.types import ExitStatus

if TYPE_CHECKING:
    from rich.console import Console

REASON: Final[Thing[Reason]] = Thing(
    "reason",
    "One thing that keeps a process from being a client of MPS.",
    (
        Field("code", "code", TEXT, lambda r, v: r.code, about="Stable."),
        Field(
            "certainty", "certainty", enum(Certainty), lambda r, v: r.certainty,
            about="possible: it may be so, and does no harm in many cases.",
        ),
        Field("text", "text", TEXT, lambda r, v: r.text),
        Field("evidence", "evidence", TEXTS, lambda r, v: r.evidence),
        Field("remedy", "remedy", TEXT, lambda r, v: r.remedy),
    ),
)  # fmt: skip

WHY: Final[Thing[Diagnosis]] = Thing(
    "why",
    "mpstui why PID --json: why a process is not a client of MPS, or cannot become one.",
    (
        Field("schema", "schema", Type({"const": SCHEMA}), lambda a, v: SCHEMA),
        Field("source", "source", enum(Source), lambda a, v: v.snapshot.source),
        Field("pid", "PID", INTEGER, lambda a, v: a.program.pid),
        Field(
            "pids", "PIDs", Type({"type": "array", "items": {"type": "integer"}}, str, list),
            lambda a, v: a.program.pids, about="Its PIDs from this namespace down to its own.",
        ),
        Field("uid", "UID", INTEGER, lambda a, v: a.program.uid, null=True),
        Field("user", "user", TEXT, lambda a, v: a.program.user, null=True),
        Field("command", "command", TEXT, lambda a, v: a.program.command, null=True),
        Field(
            "where", "where", TEXT, lambda a, v: (a.program.where.text() or None) if a.program.where else None,
            null=True, about="As of a client of “status”.",
        ),
        Field("is_client", "client of MPS", FLAG, lambda a, v: a.is_client),
        Field("server_pid", "server", INTEGER, lambda a, v: a.server.pid if a.server else None, null=True),
        Field(
            "pipe_dir", "pipe directory", PATH, lambda a, v: a.daemon.pipe_dir if a.daemon else None, null=True,
            about="Of the daemon that it is a client of, or looks for. null: none is where it looks.",
        ),
        Field("sentence", "sentence", TEXT, lambda a, v: a.sentence),
        Field("remedy", "remedy", TEXT, lambda a, v: a.remedy, null=True),
        Field(
            "reasons", "reasons", OBJECTS, lambda a, v: a.reasons, of=REASON, about="The most certain first."
        ),
        Field("trouble", "trouble", TEXT, lambda a, v: a.program.trouble or None, null=True,
              about="Why something of it could not be seen."),
    ),
)  # fmt: skip

ERROR: Final[Thing[Explanation]] = Thing(
    "error",
    "mpstui explain CODE --json: what an error of CUDA means under MPS.",
    (
        Field("schema", "schema", Type({"const": SCHEMA}), lambda e, v: SCHEMA),
        Field("code", "code", INTEGER, lambda e, v: e.code),
        Field("names", "names", TEXTS, lambda e, v: e.names, about="The driver's and the runtime's."),
        Field("text", "text", TEXT, lambda e, v: e.text),
        Field("causes", "causes", TEXTS, lambda e, v: e.causes, about="The most frequent first."),
        Field("remedy", "remedy", TEXT, lambda e, v: e.remedy),
    ),
)  # fmt: skip


def why(options: argparse.Namespace, pipe_dirs: Sequence[Path]) -> int:
    """Looks and prints; returns the exit status. Raises Unable."""
    try:
        with api.open(pipe_dirs, log_dirs=getattr(options, "log_dir", None) or ()) as node:
            snapshot = node.snapshot(complete=True)
            found = node.why(options.pid, snapshot)
    except api.Unavailable as error:
        return complain(str(error), ExitStatus.NOT_PERMITTED)
    if found is None:
        return complain(f"there is no process {options.pid} here", ExitStatus.USAGE)
    if options.json:
        print_json(WHY, found, View.of(snapshot))
    else:
        if snapshot.source == "simulated":
            print(SIMULATED)
        _print(found, output())
    unread = not found.is_client and found.program.environment is None
    return ExitStatus.NOT_PERMITTED if unread else ExitStatus.DONE


def lines_of(found: Diagnosis) -> list[tuple[str, str]]:
    """What there is to say, each line behind its mark."""
    lines: list[tuple[str, str]] = [("", found.sentence)]
    for number, reason in enumerate(found.reasons):
        if number or found.is_client:
            mark = {"sure": "✕", "likely": "▲", "possible": "·"}[reason.certainty]
            lines.append((mark, f"{reason.text[0].upper()}{reason.text[1:]}."))
        lines += [("  ", text) for text in reason.evidence]
        lines.append(("  →", reason.remedy))
    if found.program.trouble:
        lines.append(("?", found.program.trouble))
    return lines


def _print(found: Diagnosis, console: Console) -> None:
    from rich.text import Text

    for mark, text in lines_of(found):
        console.print(Text(f"{mark} {text}" if mark else text, style="" if mark else "bold"))


def explain(options: argparse.Namespace) -> int:
    """Prints what the code means; all that are known without one. Returns the exit status."""
    if options.code is None:
        for each in explanations():
            print(f"{each.code:<5} {each.text}")
        return ExitStatus.DONE
    found = explanation(options.code)
    if found is None:
        known = ", ".join(str(each.code) for each in explanations())
        text = f"no error “{printable(options.code, 60)}” of CUDA is known here; there are: {known}"
        return complain(text, ExitStatus.USAGE)
    if options.json:
        print_json(ERROR, found)
        return ExitStatus.DONE
    print(f"{found.code} {' · '.join(found.names)}".rstrip())
    print(f"{found.text[0].upper()}{found.text[1:]}.")
    for cause in found.causes:
        print(f"  · {cause}")
    print(f"  → {found.remedy}")
    return ExitStatus.DONE
