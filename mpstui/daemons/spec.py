"""What a control daemon is to be: its directories, devices, CPUs. Pure."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path

from mpstui.control.binary import Binary
from mpstui.control.drivers import Driver, driver_of, number_of
from mpstui.core.late import dataclass, pattern
from mpstui.core.model import Device, device_named
from mpstui.core.requests import ExitStatus
from mpstui.core.text import unprintable
from mpstui.observe.discovery import DEFAULT_LOG_DIR, DEFAULT_PIPE_DIR, DEFAULT_V3_PIPE_DIR
from mpstui.plan.amounts import PlanError
from mpstui.plan.profile import DaemonProfile, Limits

_UUID = pattern(r"(GPU|MIG)-[A-Za-z0-9-]{1,60}")
_PER_GPU = Path("/tmp/mps")  # noqa: S108 - what discovery and deployments look for: /tmp/mps_0


@dataclass(frozen=True, slots=True)
class DaemonSpec:
    """One daemon to start, or to write a unit for."""

    pipe_dir: Path
    log_dir: Path
    devices: tuple[str, ...] = ()
    """UUIDs; empty for all of the node."""
    multi_user: bool = False
    cpus: frozenset[int] | None = None
    limits: Limits = field(default_factory=Limits)
    """To be set once it runs."""
    static: bool = False
    """With static SM partitions (``-S``), which cannot be turned on later."""
    partitions: tuple[tuple[str, int], ...] = ()
    """Static ones, to be made once it runs: device and chunks of each."""
    driver: str | None = None
    """That it is for, as NVML names it; None where that is not known."""
    protocol: int = 2
    """3: with named servers and namespaces (``-p 3``)."""

    @property
    def named_servers(self) -> bool:
        """As ``Daemon.named_servers``: whether it is to run with MPS protocol 3."""
        return self.protocol == 3

    @property
    def options(self) -> tuple[str, ...]:
        """Of the daemon's command line, beside ``-d``: as its driver spells them. Raises PlanError for what the driver
        does not have."""
        known = driver_of(self.driver)
        if known is not None and (lacks := self.lacking(known)) is not None:
            raise PlanError(lacks)
        return self.spelt(known.multi_user[0] if known is not None and known.multi_user else "-M")

    def spelt(self, multi_user: str) -> tuple[str, ...]:
        """The same, where the option for several users is this one."""
        return (
            *((multi_user,) if self.multi_user else ()),
            *(("-S",) if self.static else ()),
            *(("-p", "3") if self.named_servers else ()),
        )

    def lacking(self, there: Driver | Binary) -> str | None:
        """What it asks for and is not to be had, in words."""
        number = number_of(self.driver)
        who = "this control binary" if number is None else f"driver {number}"
        if self.multi_user and not there.multi_user:
            return f"{who} has no multi-user mode: start one daemon for each user"
        if self.static and not there.static_partitions:
            return f"{who} has no static partitions: they need CUDA 13.1, driver 590 or later"
        if self.named_servers and not there.protocol_3:
            return f"{who} has no MPS protocol 3: it needs CUDA 13.4, driver 615 or later"
        return None


@dataclass(frozen=True, slots=True)
class Started:
    """What came of a start."""

    spec: DaemonSpec
    status: ExitStatus
    message: str
    """One sentence."""
    pid: int | None = None
    details: tuple[str, ...] = ()

    @property
    def done(self) -> bool:
        return self.status is ExitStatus.DONE


@dataclass(frozen=True, slots=True)
class Wish:
    """What the options, or a form, ask for."""

    devices: tuple[str, ...] = ()
    """Indices or UUIDs."""
    per_gpu: bool = False
    multi_user: bool = False
    cpus: frozenset[int] | None = None
    pipe_dir: Path | None = None
    log_dir: Path | None = None
    static: bool = False
    protocol: int = 2


def usual_dir(environment: Mapping[str, str], protocol: int = 2) -> Path:
    """Where a daemon is started, and looked for, unless somebody says otherwise. Root's of protocol 3 has a place of
    its own."""
    usual = DEFAULT_V3_PIPE_DIR if protocol == 3 and os.geteuid() == 0 else DEFAULT_PIPE_DIR
    return Path(environment.get("CUDA_MPS_PIPE_DIRECTORY") or usual).absolute()


def log_dir_for(pipe_dir: Path) -> Path:
    """Where the logs go unless somebody says otherwise, and where discovery looks for them: of ``/tmp/mps_0`` it is
    ``/tmp/mps_log_0``.
    """
    if pipe_dir in {DEFAULT_PIPE_DIR, DEFAULT_V3_PIPE_DIR}:
        return DEFAULT_LOG_DIR
    if not pipe_dir.name:  # the root, in which no daemon is started
        return pipe_dir / "mps_log"
    head, mps, tail = pipe_dir.name.rpartition("mps")
    return pipe_dir.with_name(f"{head}mps_log{tail}" if mps else pipe_dir.name + "-log")


def specs_of(
    wish: Wish, devices: Sequence[Device], environment: Mapping[str, str], *, root: bool
) -> tuple[DaemonSpec, ...]:
    """The daemons that are asked for. ``devices``: those of the node, empty where NVML does not answer.

    Raises PlanError for a device that is not there, for too few CPUs, and for ordinals that cannot be told.
    """
    chosen = tuple(_device(text, devices) for text in wish.devices)
    if len(set(chosen)) != len(chosen):
        raise PlanError("a device is named twice")
    if wish.protocol == 3 and wish.static:
        raise PlanError(
            "protocol 3 has no -S: its partitions need no option at the start, mpstui sm-partition create makes them"
        )
    pipe_dir = wish.pipe_dir or usual_dir(environment, wish.protocol)
    if not _absolute(pipe_dir).name:
        raise PlanError("/ is no pipe directory: a daemon needs a directory of its own")
    for named in (pipe_dir, wish.log_dir or pipe_dir):
        if (problem := unprintable(_absolute(named))) is not None:
            raise PlanError(problem)
    if wish.per_gpu:
        return _per_gpu(wish, chosen, devices)
    log_dir = wish.log_dir
    if log_dir is None and wish.pipe_dir is None and environment.get("CUDA_MPS_LOG_DIRECTORY"):
        log_dir = Path(environment["CUDA_MPS_LOG_DIRECTORY"])
    if log_dir is None:
        log_dir = log_dir_for(pipe_dir)
        if log_dir == DEFAULT_LOG_DIR and not root:  # nobody else may write there
            log_dir = pipe_dir.with_name("nvidia-mps-log")
    return (
        DaemonSpec(
            _absolute(pipe_dir),
            _absolute(log_dir),
            chosen,
            wish.multi_user,
            wish.cpus,
            static=wish.static,
            protocol=wish.protocol,
        ),
    )


def newer_modes(driver: str | None) -> frozenset[str]:
    """Of ``static`` and ``protocol_3`` those that this driver is known to start with."""
    known = driver_of(driver)
    modes = () if known is None else (("static", known.static_partitions), ("protocol_3", known.protocol_3))
    return frozenset(mode for mode, has in modes if has)


def for_driver(specs: Sequence[DaemonSpec], driver: str | None) -> tuple[DaemonSpec, ...]:
    """The same, on a node of this ``driver``. Raises PlanError for what the driver is known not to have."""
    here = tuple(replace(spec, driver=driver) for spec in specs)
    known = driver_of(driver)
    for spec in here if known is not None else ():
        if known is not None and (why := spec.lacking(known)) is not None:
            raise PlanError(why)
    return here


def spec_of_profile(profile: DaemonProfile, environment: Mapping[str, str]) -> DaemonSpec:
    """The daemon that a profile describes; in the usual directory where it does not say which."""
    of = profile
    pipe_dir = of.pipe_dir or usual_dir(environment, of.protocol)
    log_dir = of.log_dir or log_dir_for(pipe_dir)
    made = tuple((part.device, part.chunks) for part in of.partitions)
    return DaemonSpec(
        pipe_dir, log_dir, of.devices, of.multi_user, of.cpus, of.limits, of.static, made, protocol=of.protocol
    )


def _per_gpu(wish: Wish, chosen: Sequence[str], devices: Sequence[Device]) -> tuple[DaemonSpec, ...]:
    if not devices:
        raise PlanError("which GPUs there are is not known, since NVML does not answer: start one daemon at a time")
    if wish.log_dir is not None:
        raise PlanError("--log-dir cannot be shared by several daemons; leave it out with --per-gpu")
    each = [device for device in devices if not chosen or device.uuid in chosen]
    cpus: list[int | None] = [*sorted(wish.cpus)] if wish.cpus else [None] * len(each)
    if len(cpus) < len(each):
        raise PlanError(f"{len(each)} daemons need a CPU each, and the list has {len(cpus)}")
    base = wish.pipe_dir or _PER_GPU
    specs = []
    for position, (device, cpu) in enumerate(zip(each, cpus, strict=False)):
        pipe_dir = _absolute(base.with_name(base.name + f"_{position if device.index is None else device.index}"))
        cpu_set = None if cpu is None else frozenset({cpu})
        specs.append(
            DaemonSpec(
                pipe_dir,
                log_dir_for(pipe_dir),
                (device.uuid,),
                wish.multi_user,
                cpu_set,
                static=wish.static,
                protocol=wish.protocol,
            )
        )
    return tuple(specs)


def _device(text: str, devices: Sequence[Device]) -> str:
    """The UUID of a device given by UUID, by the first characters of one, or by NVML's index."""
    text = text.strip()
    if not devices and _UUID.fullmatch(text):
        return text
    try:
        return device_named(text, devices).uuid
    except LookupError as error:
        raise PlanError(str(error) if devices else f"{error}, so give its UUID") from None


def _absolute(path: Path) -> Path:
    return Path.cwd() / path
