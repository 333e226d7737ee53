"""Prints clients' shares for other programs: ``--export`` of ``plan`` and ``profile show``."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from mpstui.plan.amounts import PlanError
from mpstui.plan.exports import ShareSettings, environment, export_text


def export(
    options: argparse.Namespace,
    shares: Sequence[ShareSettings],
    pipe_dir: Path | None,
    devices: Sequence[str],
    profile: str | None,
) -> int:
    """Print the text of each share, or of the one asked for. Raises PlanError."""
    chosen = [share for share in shares if options.share in {None, share.name}]
    if not chosen:
        raise PlanError(
            f"there is no share {options.share!r}; there are: {', '.join(s.name for s in shares) or 'none'}"
        )
    for position, share in enumerate(chosen):
        text = export_text(options.export, share, environment(share, pipe_dir, devices), profile)
        if len(chosen) > 1:
            print(f"{chr(10) if position else ''}# {share.name}")
        print(text, end="")
    return 0
