"""``mpstui run``: becomes a command with the environment of a share."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Final

from mpstui import api
from mpstui.cli.output import complain
from mpstui.core.text import printable
from mpstui.core.trust import NotNamedError
from mpstui.operations.types import ExitStatus
from mpstui.plan import store
from mpstui.plan.exports import ShareSettings, environment
from mpstui.plan.profile import DaemonProfile, ProfileError

USAGE = 2
VARIABLE: Final = "CUDA_MPS_PIPE_DIRECTORY"
NOT_EXECUTABLE, NOT_FOUND = 126, 127
"""As a shell says it."""


def run(options: argparse.Namespace) -> int:
    """Replace this process by the command; returns only where that cannot be. Raises Unable."""
    argv = options.argv[1:] if options.argv[:1] == ["--"] else options.argv
    if not argv:
        return complain("run what? mpstui run --share NAME -- COMMAND", USAGE)
    daemon, share = _find(options.share, options.profile)
    variables = environment(share, daemon.pipe_dir, devices_of(daemon, share))
    place = variables.get(VARIABLE) or os.environ.get(VARIABLE)
    # Of root's environment root is the author; a profile may be older than the daemon that is there now.
    named = [*(getattr(options, "pipe_dir", None) or ()), *([] if VARIABLE in variables or place is None else [place])]
    try:
        api.check_meant(Path(place) if place else None, [Path(each) for each in named])
    except NotNamedError as error:
        return complain(str(error), ExitStatus.REFUSED_BY_SAFETY_RULE)
    try:
        os.execvpe(argv[0], argv, {**os.environ, **variables})  # noqa: S606 - the command is what the user typed
    except OSError as error:
        status = NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_EXECUTABLE
        return complain(f"{printable(argv[0])}: {error.strerror}", status)


def _find(name: str, profile: str | None) -> tuple[DaemonProfile, ShareSettings]:
    """Raises ProfileError where there is no such share, or more than one."""
    if profile is not None:
        found = store.read(profile)[0].share(name)
        if found is None:
            raise ProfileError(f"profile “{profile}” has no share “{printable(name, 60)}”")
        return found
    matches = {}
    for candidate in store.names():
        try:
            found = store.read(candidate)[0].share(name)
        except ProfileError as error:
            print(f"mpstui: {error}", file=sys.stderr)
            continue
        if found is not None:
            matches[candidate] = found
    if len(matches) != 1:
        which = f"several profiles have it, choose with --profile: {', '.join(matches)}" if matches else "none has it"
        raise ProfileError(f"share “{printable(name, 60)}”: {which}")
    return next(iter(matches.values()))


def devices_of(daemon: DaemonProfile, share: ShareSettings) -> tuple[str, ...]:
    """UUIDs of the daemon's devices; without a word about them in the profile all that the node has."""
    if share.pinned_mem_limit is None or daemon.devices:
        return daemon.devices
    try:
        with api.open((daemon.pipe_dir or Path("/nonexistent"),)) as node:
            found = node.hardware().devices
    except api.UnusableNode:
        return ("0",)
    return tuple(device.uuid for device in found) or ("0",)
