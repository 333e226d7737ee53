"""One client's share as text for other programs: MPS takes it from the client's environment alone."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from mpstui.core.model import MEMORY_VARIABLE, PERCENTAGE_VARIABLE, PRIORITY_VARIABLE
from mpstui.plan.amounts import PlanError, limit_text

ExportKind = Literal["shell", "wrapper", "systemd", "slurm", "kubernetes"]
EXPORTS: Final[tuple[ExportKind, ...]] = ("shell", "wrapper", "systemd", "slurm", "kubernetes")
PIPE_DIRECTORY: Final = "CUDA_MPS_PIPE_DIRECTORY"


@dataclass(frozen=True, slots=True)
class ShareSettings:
    """What a client's environment can say of its share. What is None is the server's to decide.

    The lower one wins, the server's limit or the client's: a share can only be as large as the daemon allows.
    """

    name: str
    active_thread_percentage: float | None = None
    pinned_mem_limit: int | None = None
    """Bytes on each device of the daemon."""
    client_priority: int | None = None


def environment(share: ShareSettings, pipe_dir: Path | None, devices: Iterable[str] = ("0",)) -> dict[str, str]:
    """The variables of a client. ``devices``: those that get the memory limit each, by UUID where they are known: an
    ordinal is the client's own, after its own CUDA_VISIBLE_DEVICES (fact 35)."""
    found: dict[str, str] = {}
    if pipe_dir is not None:
        found[PIPE_DIRECTORY] = os.fspath(pipe_dir)
    if share.active_thread_percentage is not None:
        found[PERCENTAGE_VARIABLE] = f"{share.active_thread_percentage:g}"
    if share.pinned_mem_limit is not None:
        found[MEMORY_VARIABLE] = ",".join(f"{device}={limit_text(share.pinned_mem_limit)}" for device in devices)
    if share.client_priority is not None:
        found[PRIORITY_VARIABLE] = str(share.client_priority)
    return found


def export_text(kind: ExportKind, share: ShareSettings, variables: Mapping[str, str], profile: str | None) -> str:
    """The text to hand over. Raises PlanError for the wrapper of a share that is in no profile, and for a value that
    cannot be written.
    """
    wrong = next((value for value in variables.values() if not value.isprintable()), None)
    if wrong is not None:
        raise PlanError(f"a value with control characters cannot be handed over: {wrong!r}")
    if kind == "wrapper":
        return _wrapper(share, profile)
    return {"shell": _shell, "systemd": _systemd, "slurm": _slurm, "kubernetes": _kubernetes}[kind](share, variables)


def _shell(_share: ShareSettings, variables: Mapping[str, str]) -> str:
    return "".join(f"export {name}={shlex.quote(value)}\n" for name, value in variables.items())


def _wrapper(share: ShareSettings, profile: str | None) -> str:
    if profile is None:
        raise PlanError("a wrapper reads its share from a profile: save the plan as one first, with --save NAME")
    return (
        "#!/bin/sh\n"
        "# Runs a command with its share of the GPU: the profile is read each time, so that a change of it counts.\n"
        f"exec mpstui run --profile {shlex.quote(profile)} --share {shlex.quote(share.name)}"
        ' -- "$@"\n'
    )


def _systemd(share: ShareSettings, variables: Mapping[str, str]) -> str:
    lines = [f"# /etc/systemd/system/UNIT.service.d/50-mps-{share.name}.conf", "[Service]"]
    for name, value in variables.items():
        quoted = f"{name}={value}".replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
        lines.append(f'Environment="{quoted}"')
    return "\n".join(lines) + "\n"


def _slurm(_share: ShareSettings, variables: Mapping[str, str]) -> str:
    """For TaskProlog, whose output ``export NAME=value`` becomes the task's environment, taken as it is."""
    return "".join(f"printf '%s\\n' {shlex.quote(f'export {name}={value}')}\n" for name, value in variables.items())


def _kubernetes(_share: ShareSettings, variables: Mapping[str, str]) -> str:
    """For a container; YAML takes JSON's strings but not its pairs of surrogates, and ``$$`` is a ``$`` there."""
    lines = ["env:"]
    for name, value in variables.items():
        lines += [f"  - name: {name}", f"    value: {json.dumps(value.replace('$', '$$'), ensure_ascii=False)}"]
    return "\n".join(lines) + "\n"
