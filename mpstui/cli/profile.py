"""``mpstui profile``: lists, shows, keeps, applies and compares profiles."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from mpstui import api
from mpstui.cli.apply import apply_profile, diff_profile
from mpstui.cli.output import NO_DAEMON, meant, no_answer, print_json, state_text
from mpstui.cli.run import devices_of
from mpstui.cli.shares import export
from mpstui.core.text import path_text, plural
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
from mpstui.operations.types import ExitStatus, Unable
from mpstui.plan import store
from mpstui.plan.amounts import PlanError
from mpstui.plan.profile import Profile, ProfileError
from mpstui.plan.settings import unsaid


def apply(options: argparse.Namespace, pipe_dirs: tuple[Path, ...]) -> int:
    """``profile apply``; returns the exit status. Raises Unable."""
    return apply_profile(options, store.read(options.name)[0], pipe_dirs)


def diff(options: argparse.Namespace, pipe_dirs: tuple[Path, ...]) -> int:
    """``profile diff``; returns the exit status. Raises Unable."""
    return diff_profile(options, store.read(options.name)[0], pipe_dirs)


def show(options: argparse.Namespace) -> int:
    """``profile show``; returns the exit status. Raises Unable."""
    found, text = store.read(options.name)
    if options.export is not None:
        return _export(options, found)
    print(text, end="" if text.endswith("\n") else "\n")
    return ExitStatus.DONE


class ListedProfile(NamedTuple):
    """A profile of the config folder."""

    name: str
    daemons: int = 0
    shares: tuple[str, ...] = ()
    description: str = ""
    error: str | None = None


LISTED: Final[Thing[ListedProfile]] = Thing(
    "profile",
    "A profile of the config folder.",
    (
        Field("name", "name", TEXT, lambda e, v: e.name),
        Field("daemons", "daemons", INTEGER, lambda e, v: e.daemons, about="How many it describes."),
        Field("shares", "shares", TEXTS, lambda e, v: e.shares, about="Their names."),
        Field("description", "description", TEXT, lambda e, v: e.description),
        Field("error", "error", TEXT, lambda e, v: e.error, null=True, about="Why it cannot be read."),
    ),
)

PROFILES: Final[Thing[Sequence[ListedProfile]]] = Thing(
    "profile_list",
    "The profiles that are there.",
    (
        Field("schema", "schema", Type({"const": SCHEMA}), lambda e, v: SCHEMA),
        Field("profiles", "profiles", OBJECTS, lambda e, v: e, of=LISTED),
    ),
)


class SavedProfile(NamedTuple):
    """A profile that was saved."""

    path: Path
    notes: list[str]


SAVED: Final[Thing[SavedProfile]] = Thing(
    "profile_saved",
    "What the daemons have now, kept as a profile.",
    (
        Field("schema", "schema", Type({"const": SCHEMA}), lambda k, v: SCHEMA),
        Field("done", "done", FLAG, lambda k, v: True),
        Field("path", "path", PATH, lambda k, v: k.path),
        Field(
            "notes",
            "notes",
            TEXTS,
            lambda k, v: k.notes,
            about="What a profile cannot store, or what was left out of this one.",
        ),
    ),
)


def print_list(options: argparse.Namespace) -> int:
    """``profile list``; returns the exit status."""
    entries: list[ListedProfile] = []
    for name in store.names():
        try:
            found, _ = store.read(name)
            shares = [share.name for daemon in found.daemons for share in daemon.shares]
            entries.append(ListedProfile(name, len(found.daemons), tuple(shares), found.description))
        except ProfileError as error:
            entries.append(ListedProfile(name, error=str(error)))
    if options.json:
        print_json(PROFILES, entries)
        return ExitStatus.DONE
    for name, daemons, names, description, problem in entries:
        if problem is not None:
            print(f"{name}: {problem}", file=sys.stderr)
            continue
        what = plural(daemons, "daemon") + (f", shares {', '.join(names)}" if names else "")
        print(f"{name}: {what}{f' — {description}' if description else ''}")
    if not entries:
        print(f"no profiles in {path_text(store.profiles_dir())}", file=sys.stderr)
    return ExitStatus.DONE


def _export(options: argparse.Namespace, found: Profile) -> int:
    status = 0
    shares = [share for daemon in found.daemons for share in daemon.shares]
    if options.share is not None and options.share not in {share.name for share in shares}:
        raise PlanError(
            f"there is no share {options.share!r}; there are: {', '.join(s.name for s in shares) or 'none'}"
        )
    for daemon in found.daemons:
        chosen = [share for share in daemon.shares if options.share in {None, share.name}]
        if chosen:
            limited = next((share for share in chosen if share.pinned_mem_limit is not None), chosen[0])
            status = export(options, daemon.shares, daemon.pipe_dir, devices_of(daemon, limited), options.name)
    return status


def save(options: argparse.Namespace, pipe_dirs: tuple[Path, ...]) -> int:
    """``profile save``; returns the exit status. Raises Unable."""
    path = store.path_of(options.name)
    old: Profile | None = None
    if options.replace and os.path.lexists(path):
        old, _ = store.read(options.name)
    with api.open(pipe_dirs) as node:
        return _save_from(node, options, old)


def _save_from(node: api.Node, options: argparse.Namespace, old: Profile | None) -> int:
    snapshot = node.snapshot(complete=True)
    # Whose directory is in a profile is named by it: a stranger's is not to get there by itself.
    there = meant(snapshot.daemons, node.named)
    daemons = [daemon for daemon in there if daemon.answers]
    others = [daemon for daemon in there if daemon not in daemons]
    if not daemons:
        states = "; ".join(map(state_text, others))
        raise Unable(states or NO_DAEMON, max((no_answer(d).status for d in others), default=ExitStatus.NO_DAEMON))
    made = Profile(tuple(node.in_force(daemon, snapshot, old) for daemon in daemons), options.description)
    path = store.write(options.name, made, replace=options.replace)
    notes = [note for daemon, one in zip(daemons, made.daemons, strict=True) for note in unsaid(daemon, one)]
    notes += [f"not in it: {state_text(d)}" for d in others if d.runs]
    if options.json:
        print_json(SAVED, SavedProfile(path, notes))
    else:
        print(f"kept as {path_text(path)}")
        for note in notes:
            print(f"  {note}", file=sys.stderr)
    return ExitStatus.DONE
