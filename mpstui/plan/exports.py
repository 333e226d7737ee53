"""One client's share as text for other programs: MPS takes it from the client's environment alone."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final, Literal

from mpstui.core.late import dataclass
from mpstui.core.model import MEMORY_VARIABLE, PERCENTAGE_VARIABLE, PRIORITY_VARIABLE
from mpstui.plan.amounts import PlanError, limit_text

ExportKind = Literal["shell", "wrapper", "systemd", "slurm", "kubernetes"]
EXPORTS: Final[tuple[ExportKind, ...]] = ("shell", "wrapper", "systemd", "slurm", "kubernetes")
ClusterKind = Literal["device-plugin", "time-slicing", "dra"]
CLUSTER_EXPORTS: Final[tuple[ClusterKind, ...]] = ("device-plugin", "time-slicing", "dra")
"""For all shares at once: what the cluster's own programs divide a GPU by."""
PIPE_DIRECTORY: Final = "CUDA_MPS_PIPE_DIRECTORY"
_MOST_REPLICAS: Final = 48
_NEAR: Final = 1.0
"""Percent that a share may differ from what the device plugin gives, which knows whole numbers alone."""


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


def cluster_text(kind: ClusterKind, shares: Sequence[ShareSettings]) -> str:
    """What divides a GPU among the pods of a cluster as the plan does: the ConfigMap of NVIDIA's device plugin for
    Kubernetes, with MPS or with turns of time, or the ResourceClaimTemplate of its DRA driver. All of them know clients
    that are alike alone. Raises PlanError where the plan cannot be said so.
    """
    if not shares:
        raise PlanError("the plan has no shares to export")
    first = shares[0]
    if any(share != replace(first, name=share.name) for share in shares):
        raise PlanError(f"the shares differ, and “{kind}” gives each client the same: use --export kubernetes for each")
    return _dra(first) if kind == "dra" else _device_plugin(kind, first, len(shares))


def _device_plugin(kind: ClusterKind, share: ShareSettings, replicas: int) -> str:
    """The plugin's configuration, version v1: it sets 100 / replicas percent and as much of the memory by itself."""
    if not 2 <= replicas <= _MOST_REPLICAS:
        raise PlanError(
            f"the device plugin shares a GPU among 2 to {_MOST_REPLICAS} clients, and the plan has {replicas}"
        )
    given, wanted = 100 // replicas, share.active_thread_percentage
    if kind == "device-plugin" and wanted is not None and abs(wanted - given) > _NEAR:
        raise PlanError(
            f"the device plugin gives each of {replicas} clients {given} %, and the plan {wanted:g} %: use --export dra"
        )
    mps = kind == "device-plugin"
    about = (
        f"each of {replicas} clients gets {given} % of the SMs and 1/{replicas} of the memory"
        if mps
        else f"{replicas} pods take turns on each GPU: no MPS, and no limit of SMs or memory"
    )
    return (
        f"# For NVIDIA's device plugin for Kubernetes: {about}.\n"
        "apiVersion: v1\n"
        "kind: ConfigMap\n"
        "metadata:\n"
        f"  name: nvidia-device-plugin-{'mps' if mps else 'time-slicing'}\n"
        "data:\n"
        f"  {'mps' if mps else 'time-slicing'}: |\n"
        "    version: v1\n"
        "    sharing:\n"
        f"      {'mps' if mps else 'timeSlicing'}:\n"
        "        resources:\n"
        "          - name: nvidia.com/gpu\n"
        f"            replicas: {replicas}\n"
    )


def _dra(share: ShareSettings) -> str:
    """For a claim whose pods share one GPU by a daemon with these defaults; percentages are whole numbers there."""
    lines = []
    if share.active_thread_percentage is not None:
        whole = int(share.active_thread_percentage)
        if whole < 1:
            raise PlanError(f"{share.active_thread_percentage:g} %: the DRA driver takes whole numbers from 1 to 100")
        lines.append(f"defaultActiveThreadPercentage: {whole}")
    if share.pinned_mem_limit is not None:
        mebibytes = share.pinned_mem_limit >> 20
        if mebibytes < 1:
            raise PlanError("the DRA driver takes memory limits of 1 MiB or more")
        lines.append(f"defaultPinnedDeviceMemoryLimit: {mebibytes}Mi")
    config = "".join(f"                  {line}\n" for line in lines)
    return (
        "# For NVIDIA's DRA driver (Kubernetes 1.34 and later): pods with one claim of this template share a GPU.\n"
        "apiVersion: resource.k8s.io/v1\n"
        "kind: ResourceClaimTemplate\n"
        "metadata:\n"
        "  name: mps-gpu\n"
        "spec:\n"
        "  spec:\n"
        "    devices:\n"
        "      requests:\n"
        "        - name: gpu\n"
        "          exactly:\n"
        "            deviceClassName: gpu.nvidia.com\n"
        "      config:\n"
        '        - requests: ["gpu"]\n'
        "          opaque:\n"
        "            driver: gpu.nvidia.com\n"
        "            parameters:\n"
        "              apiVersion: resource.nvidia.com/v1beta1\n"
        "              kind: GpuConfig\n"
        "              sharing:\n"
        "                strategy: MPS\n"
        f"                mpsConfig:{'' if lines else ' {}'}\n{config}"
    )
