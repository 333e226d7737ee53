"""``mpstui plan``: divides a device, prints, exports, keeps or applies what comes of it."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from mpstui.cli.output import complain, print_json
from mpstui.cli.shares import choose_device, export, plan_of
from mpstui.core.activity import rate_text
from mpstui.core.model import Source
from mpstui.core.text import format_percentage, format_size, path_text, plural, printable
from mpstui.fields import (
    FLAG,
    INTEGER,
    NUMBER,
    OBJECT,
    OBJECTS,
    SCHEMA,
    SECONDS,
    SHARE,
    SIZE,
    TEXT,
    TEXTS,
    TIME,
    Field,
    Text,
    Thing,
    Type,
    View,
    as_json,
    enum,
    table,
)
from mpstui.operations.types import ExitStatus
from mpstui.plan import amounts
from mpstui.plan.amounts import PlanError, limit_text
from mpstui.plan.profile import DaemonProfile, Profile
from mpstui.plan.tenants import (
    NO_LOOK,
    By,
    Look,
    Proposal,
    Tenant,
    devices_in,
    lines_of,
    look_of,
    looks_of_file,
    of_daemon,
    only_device,
    propose,
    read_looks,
)
from mpstui.plan.types import Plan, PlanTarget, Rest, Share, Strategy, target_from, target_of

USAGE = 2


def plan(options: argparse.Namespace, pipe_dirs: tuple[Path, ...]) -> int:
    """Carry it out; returns the exit status. Raises Unable. ``--sm-count-total``: it looks at no GPU and no daemon."""
    if options.static:
        from mpstui.cli.partition import plan_static

        return plan_static(options, pipe_dirs)
    if options.apply and options.export is not None:
        raise PlanError("--apply sets the plan and --export prints it: give one of the two")
    result = _made(options, pipe_dirs)
    if isinstance(result, int):
        return result
    made, simulated, measured = result
    pipe_dir = _pipe_dir(pipe_dirs)
    if simulated and (options.save is not None or options.export is not None):
        print("SIMULATED: it is for a GPU that does not exist", file=sys.stderr)
    if options.save is not None:
        print(f"kept as {path_text(_save(options, made, pipe_dir))}", file=sys.stderr)
    if options.export is not None:
        return export(options, settings_of(made), pipe_dir, (made.target.uuid or "0",), options.save)
    if not (options.apply and options.json):
        _print(options, made, simulated, measured)
    if options.apply:
        return _apply(options, made, pipe_dirs)
    return 0


def _made(options: argparse.Namespace, pipe_dirs: tuple[Path, ...]) -> tuple[Plan, bool, dict[str, Any]] | int:
    """The plan, whether its node is simulated, and what it is based on; or the exit status. Raises PlanError."""
    if options.from_activity is not None:
        return _made_from_activity(options, pipe_dirs)
    if wants_measuring(options):
        from mpstui.cli.measure import measure

        return measure(options, pipe_dirs)
    if options.sm_count_total is None:
        target, simulated = _target_here(options, pipe_dirs)
        return plan_of(options, target), simulated, {}
    return plan_of(options, _target_given(options)), False, {}


def _made_from_activity(
    options: argparse.Namespace, pipe_dirs: tuple[Path, ...]
) -> tuple[Plan, bool, dict[str, Any]] | int:
    taken = _looks(options, pipe_dirs)
    if not taken:
        raise PlanError(NO_LOOK)
    # Not a demo's own directory, which is another one each time.
    named = [path_text(Path(name).absolute()) for name in getattr(options, "pipe_dir", None) or ()]
    looks = of_daemon(taken, named[0]) if len(named) == 1 else taken
    if not any(look.clients for look in looks):
        # Before anything of this node is asked: which GPU, and which size, is of no moment.
        others = sorted({client.daemon for look in taken for client in look.clients})
        left_out = f"; --pipe-dir leaves out those of {', '.join(others[:3])}" if others else ""
        return _nothing(options, propose(looks, options.by), left_out)
    told = devices_in(looks)
    simulated: bool | None = None
    if options.sm_count_total is None:
        if options.device is None:
            options.device = only_device(looks)
        target, simulated = _target_here(options, pipe_dirs, alone=not told)
        device = target.uuid
    else:
        device = _of_looks(options.device, told)
        target = _target_given(options)
    proposal = propose(looks, options.by, device)
    if simulated not in {None, proposal.simulated}:
        raise PlanError("the samples are of another node: either they or this node are simulated")
    if not proposal.proposed:
        return _nothing(options, proposal)
    if not options.json and options.export is None:
        _print_basis(proposal)
    shares = proposal.shares
    limits = [share.memory for share in shares if share.memory is not None]
    made = plan_of(
        options,
        target,
        labels=[share.name for share in shares],
        proposed=[share.weight for share in shares],
        limits=limits if len(limits) == len(shares) else (),
    )
    return made, proposal.simulated, {"activity": proposal}


def _nothing(options: argparse.Namespace, proposal: Proposal, more: str = "") -> int:
    """Says that no share is proposed, and what that is based on; returns the exit status."""
    if options.json:
        print_json(PROPOSAL, proposal)
    elif options.export is None:
        _print_basis(proposal)
    return complain(f"no share is proposed: {proposal.too_little}{more}", ExitStatus.REFUSED_BY_DAEMON)


def wants_measuring(options: argparse.Namespace) -> bool:
    """Whether the shares are to come from a measurement. Raises PlanError for its options without one."""
    if options.measure or options.program is not None:
        return True
    if options.by is not None:
        raise PlanError("--by goes with --from-activity")
    if options.shared or options.repeats or options.seconds:
        raise PlanError("--repeats, --seconds and --shared go with --measure KERNEL or --command CMD")
    return False


TARGET: Final[Thing[PlanTarget]] = Thing(
    "plan_device",
    "The device that is divided.",
    (
        Field("name", "name", TEXT, lambda t, v: t.name, null=True),
        Field("uuid", "UUID", TEXT, lambda t, v: t.uuid, null=True),
        Field("sm_count", "SMs", INTEGER, lambda t, v: t.sm_count),
        Field("memory_total", "memory", SIZE, lambda t, v: t.memory_total, null=True),
        Field("context_limit", "context limit", INTEGER, lambda t, v: t.context_limit),
        Field("sm_step", "SM step", INTEGER, lambda t, v: t.rounding.step, about="Shares are rounded down to it."),
        Field("sm_floor", "SM floor", INTEGER, lambda t, v: t.rounding.floor, about="No share comes to less."),
        Field(
            "rounding_measured", "rounding measured", FLAG, lambda t, v: t.rounding.measured,
            about="false: step and floor are an estimate.",
        ),
    ),
)  # fmt: skip

SHARE_OF: Final[Thing[tuple[PlanTarget, Share]]] = Thing(
    "plan_client",
    "What one client is to get.",
    (
        Field("name", "name", TEXT, lambda s, v: s[1].name),
        Field("active_thread_percentage", "threads", SHARE, lambda s, v: s[1].percentage, about="To be set."),
        Field("sm_count", "SMs", INTEGER, lambda s, v: s[1].sm_count, about="What that share comes to."),
        Field(
            "sm_count_wanted", "SMs wanted", NUMBER, lambda s, v: round(s[1].wanted_sms, 3), about="Before rounding.",
        ),
        Field("sm_count_estimated", "SMs estimated", FLAG, lambda s, v: not s[0].rounding.measured),
        Field(
            "execution_affinity_sm_count", "SMs by execution affinity", INTEGER, lambda s, v: s[1].affinity_sms,
            null=True, about="What a program gets that asks for its count itself; of the strategy exact.",
        ),
        Field(
            "pinned_mem_limit", "memory limit", SIZE, lambda s, v: s[1].memory, null=True, about="null: none is set.",
        ),
        Field(
            "context_memory", "context memory", SIZE, lambda s, v: s[1].context_memory,
            about="What of the limit its contexts take: an estimate.",
        ),
        Field("warnings", "warnings", TEXTS, lambda s, v: s[1].warnings),
    ),
)  # fmt: skip

LEFT: Final[Thing[Rest]] = Thing(
    "plan_left",
    "What stays free after the plan, or what the plan over-commits.",
    (
        Field("sm_count", "SMs", INTEGER, lambda r, v: r.sm_count),
        Field("memory", "memory", SIZE, lambda r, v: r.memory, null=True),
        Field("contexts", "contexts", INTEGER, lambda r, v: r.contexts),
        Field("over_committed_sm_count", "SMs over-committed", INTEGER, lambda r, v: r.over_sm_count),
        Field("over_committed_memory", "memory over-committed", SIZE, lambda r, v: r.over_memory),
    ),
)


TENANT: Final[Thing[Tenant]] = Thing(
    "plan_tenant",
    "What was recorded of those who are to get one share.",
    (
        Field("name", "share", TEXT, lambda t, v: t.name, row=Text(10, "SHARE")),
        Field("what", "tenant", TEXT, lambda t, v: t.what, about="As recorded.", row=Text(80, "TENANT")),
        Field("clients", "clients", INTEGER, lambda t, v: t.clients, about="At the same time, at most.",
              row=Text(20, "CLIENTS")),
        Field("looks", "samples", INTEGER, lambda t, v: t.looks, about="In which it was there and counted.",
              row=Text(30, "SAMPLES")),
        Field("looks_not_counted", "samples not counted", INTEGER, lambda t, v: t.missed,
              about="In which it was there and could not be counted, or only a part of it: they are in no rate."),
        Field("busy", "busy", INTEGER, lambda t, v: t.busy, about="Counted samples in which it launched something.",
              row=Text(35, "BUSY")),
        Field("launches_per_second_median", "median launches/s", NUMBER, lambda t, v: _rounded(t.rate_median),
              null=True, about="Samples without it count as 0; null: it never was counted.",
              row=Text(40, "MEDIAN/s", lambda t, v: rate_text(t.rate_median))),
        Field("launches_per_second_max", "most launches/s", NUMBER, lambda t, v: _rounded(t.rate_max), null=True,
              row=Text(50, "MOST/s", lambda t, v: rate_text(t.rate_max))),
        Field("memory_median", "median memory", SIZE, lambda t, v: t.memory_median, null=True,
              row=Text(60, "MEMORY")),
        Field("memory_max", "most memory", SIZE, lambda t, v: t.memory_max, null=True, row=Text(70, "MOST")),
        Field("client_memory_max", "most of a client", SIZE, lambda t, v: t.largest, null=True,
              row=Text(75, "ONE CLIENT"), about="Of its largest client: its limit is a quarter more."),
        Field("too_little", "too little", TEXT, lambda t, v: t.too_little or None, null=True,
              about="Why no share is proposed for it; null: one is."),
    ),
)  # fmt: skip

PROPOSAL: Final[Thing[Proposal]] = Thing(
    "plan_activity",
    "The samples that shares are proposed from. Launches are not SM time.",
    (
        Field("by", "by", enum(By), lambda p, v: p.by, about="Who is one tenant."),
        Field("looks", "samples", INTEGER, lambda p, v: p.looks),
        Field("first", "first", TIME, lambda p, v: p.first),
        Field("span", "span", SECONDS, lambda p, v: round(p.span, 1), about="From the first sample to the last."),
        Field("counted", "counted", SECONDS, lambda p, v: round(p.counted, 1), about="In which launches were counted."),
        Field("tenants", "tenants", OBJECTS, lambda p, v: p.tenants, of=TENANT),
        Field("not_counted", "not counted", INTEGER, lambda p, v: p.not_counted, about="Clients, in one sample."),
        Field("outside", "outside MPS", INTEGER, lambda p, v: p.outside, about="Processes, in one sample."),
        Field(
            "device", "device", TEXT, lambda p, v: p.device, null=True,
            about="UUID of whose clients these are; null: the samples do not tell.",
        ),
        Field(
            "elsewhere", "on other devices", INTEGER, lambda p, v: p.elsewhere,
            about="Clients that are left out, in one sample.",
        ),
        Field("notes", "notes", TEXTS, lambda p, v: p.notes),
    ),
)  # fmt: skip


class Made(NamedTuple):
    """A plan as it is printed."""

    plan: Plan
    simulated: bool
    measured: dict[str, Any]
    """What was measured for it, under ``measured``; empty where nothing was."""


PLAN: Final[Thing[Made]] = Thing(
    "plan",
    "A device divided among clients.",
    (
        Field("schema", "schema", Type({"const": SCHEMA}), lambda m, v: SCHEMA),
        Field("source", "source", enum(Source), lambda m, v: "simulated" if m.simulated else "real"),
        Field("strategy", "strategy", enum(Strategy), lambda m, v: m.plan.strategy),
        Field("device", "device", OBJECT, lambda m, v: m.plan.target, of=TARGET),
        Field(
            "clients", "clients", OBJECTS, lambda m, v: [(m.plan.target, share) for share in m.plan.shares], of=SHARE_OF
        ),
        Field("left", "left", OBJECT, lambda m, v: m.plan.left, of=LEFT),
        Field("warnings", "warnings", TEXTS, lambda m, v: m.plan.warnings),
        Field(
            "measured", "measured", Type({"type": "object"}), lambda m, v: m.measured["measured"],
            about="With --measure or --command: throughput over SMs, and what comes of it.",
            only=lambda m: "measured" in m.measured,
        ),
        Field(
            "activity", "activity", OBJECT, lambda m, v: m.measured["activity"], of=PROPOSAL,
            about="With --from-activity: what the shares are based on.", only=lambda m: "activity" in m.measured,
        ),
    ),
)  # fmt: skip


def to_json(made: Plan, simulated: bool = False, measured: dict[str, Any] | None = None) -> dict[str, Any]:
    """Schema 1: bytes and percentages as numbers, what is not known or not set is null."""
    return as_json(PLAN, Made(made, simulated, measured or {}), View())


def _rounded(rate: float | None) -> float | None:
    return None if rate is None else round(rate, 1)


def settings_of(made: Plan) -> tuple[Any, ...]:
    """The shares as a client's environment can say them."""
    from mpstui.plan.exports import ShareSettings

    return tuple(ShareSettings(share.name, share.percentage, share.memory) for share in made.shares)


def _looks(options: argparse.Namespace, pipe_dirs: tuple[Path, ...]) -> list[Look]:
    """The looks, of all daemons: those of a file, of standard input, or taken now. Raises PlanError."""
    if wrong := next((name for name in _OTHERS if getattr(options, name, None)), None):
        raise PlanError(f"--from-activity gives the shares itself: leave out {_option(wrong)}")
    if options.from_activity == "":
        looks = _look_now(options, pipe_dirs)
    elif options.seconds:
        raise PlanError("--seconds goes with samples that are taken now: leave out the file")
    elif options.from_activity == "-":
        looks = list(read_looks(lines_of(sys.stdin.buffer), "standard input"))
    else:
        looks = looks_of_file(Path(options.from_activity))
    return looks


def _of_looks(wanted: str | None, told: Sequence[str]) -> str | None:
    """The device of the looks whose UUID begins so, where the plan's size is given. Raises PlanError."""
    if wanted is None:
        return None
    found = [uuid for uuid in told if uuid.startswith(wanted)]
    if len(found) != 1 or not wanted:
        known = ", ".join(told) or "not told in the samples"
        raise PlanError(f"--device {printable(wanted, 80)}: name a GPU of the samples by its UUID: {known}")
    return found[0]


_OTHERS: Final = ("clients", "strategy", "weights", "sm_count", "measure", "program", "repeats", "shared")
_LOOK: Final = 2.0
"""Seconds of one look."""


def _option(name: str) -> str:
    return {"program": "--command"}.get(name, f"--{name.replace('_', '-')}")


def _look_now(options: argparse.Namespace, pipe_dirs: tuple[Path, ...]) -> list[Look]:
    from mpstui import api

    seconds = options.seconds or 60.0
    looks: list[Look] = []
    spent = 0.0
    with api.open(pipe_dirs) as node:
        while (left := seconds - spent) > _LOOK / 2:
            look = node.activity(min(_LOOK, left))
            spent += look.seconds or min(_LOOK, left)
            nowhere = not looks and not look.launchers and not look.daemons  # nor is anybody to come
            if nowhere or (look.launchers and not look.counted):
                raise PlanError(look.sentence)
            looks.append(look_of(api.to_json(look)))
            if options.device is None:
                only_device(looks)  # to be told before the time is over
            if sys.stderr.isatty():
                print(f"\rsampling, {max(0.0, left - _LOOK):.0f} s left ", end="", file=sys.stderr, flush=True)
            if not look.seconds:
                time.sleep(min(_LOOK, left))  # where nobody is, nothing is counted, and a look takes no time
    if sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr)
    return looks


def _print_basis(proposal: Proposal) -> None:
    """What the proposal is based on, and where it has too little."""
    from datetime import datetime

    from mpstui.cli.output import output
    from mpstui.cli.status import print_table

    begun = datetime.fromtimestamp(proposal.first).strftime("%Y-%m-%d %H:%M:%S")
    word = "SIMULATED " if proposal.simulated else ""
    print(
        f"{word}{plural(proposal.looks, 'sample')} from {begun} on, over {proposal.span:.0f} s,"
        f" {proposal.counted:.0f} s of them counted; tenants by {proposal.by}"
        f"{'' if proposal.device is None else f', on GPU {proposal.device}'}"
    )
    if proposal.tenants:
        print_table(output(), table(TENANT, proposal.tenants, View()))
    for tenant in proposal.tenants:
        if tenant.too_little:
            print(f"  ! {tenant.name}: no share is proposed: it {tenant.too_little}")
    for note in proposal.notes:
        print(f"  ! {note}")


def _target_given(options: argparse.Namespace) -> PlanTarget:
    if options.device is not None and options.from_activity is None:
        raise PlanError("--device and --sm-count-total exclude each other")
    memory = None if options.memory_total is None else amounts.size(options.memory_total, "--memory-total")
    return target_from(amounts.count(options.sm_count_total, "--sm-count-total"), memory)


def _target_here(
    options: argparse.Namespace, pipe_dirs: tuple[Path, ...], alone: bool = False
) -> tuple[PlanTarget, bool]:
    """``alone``: it must be the node's only device. Raises PlanError."""
    if options.memory_total is not None:
        raise PlanError("--memory-total needs --sm-count-total")
    from mpstui import api

    with api.open(pipe_dirs) as node:
        sample, simulated = node.hardware(), node.simulated
    if sample.error is not None and not sample.devices:
        raise PlanError(f"{sample.error}; without it give the size: --sm-count-total 132 --memory-total 80GiB")
    if alone and len(sample.devices) > 1:
        raise PlanError(
            "the samples do not say on which GPU each client was, and this node has several: record them anew with "
            "mpstui activity --json"
        )
    binding = options.apply or options.save is not None
    chosen = choose_device(sample.devices, options.device, binding)
    if options.device is None and len(sample.devices) > 1:
        print(f"for GPU {chosen.index}, one of {len(sample.devices)} alike; --device chooses another", file=sys.stderr)
    target = target_of(chosen)
    if target is None:
        raise PlanError("how many SMs the GPU has is not known; give --sm-count-total")
    return target, simulated


def _pipe_dir(pipe_dirs: tuple[Path, ...]) -> Path | None:
    if pipe_dirs:
        return pipe_dirs[0]
    return Path(variable) if (variable := os.environ.get("CUDA_MPS_PIPE_DIRECTORY")) else None


def _save(options: argparse.Namespace, made: Plan, pipe_dir: Path | None) -> Path:
    from mpstui.plan import store
    from mpstui.plan.settings import limits_of_plan

    devices = (made.target.uuid,) if made.target.uuid is not None else ()
    daemon = DaemonProfile(pipe_dir, devices=devices, limits=limits_of_plan(made), shares=settings_of(made))
    what = f"plan {made.strategy} for {plural(len(made.shares), 'client')} on {made.target.sm_count} SMs"
    return store.write(options.save, Profile((daemon,), what), replace=options.replace)


def _apply(options: argparse.Namespace, made: Plan, pipe_dirs: tuple[Path, ...]) -> int:
    from mpstui.cli.apply import apply_profile
    from mpstui.plan.settings import limits_of_plan

    if made.target.uuid is None:
        return complain("a plan is applied to a GPU of this node: leave out --sm-count-total", USAGE)
    if not options.json:
        print("The daemon must allow the largest share; smaller ones go into the clients' environment: --export")
    wanted = DaemonProfile(devices=(made.target.uuid,), limits=limits_of_plan(made))
    return apply_profile(options, Profile((wanted,)), pipe_dirs)


def _print(options: argparse.Namespace, made: Plan, simulated: bool, measured: dict[str, Any]) -> None:
    if options.json:
        print(json.dumps(to_json(made, simulated, measured), ensure_ascii=False))
        return
    target, left = made.target, made.left
    print(
        f"{'SIMULATED ' if simulated else ''}{target.name or 'device'}: {target.sm_count} SMs,"
        f" {format_size(target.memory_total)}, {made.strategy}"
    )
    width = max(4, *(len(share.name) for share in made.shares))
    print(f"  {'NAME':{width}}  {'THREADS':>8}  {'SMS':>5}  {'MEMORY':>9}  LIMIT")
    mark = "" if target.rounding.measured else "≈"
    for share in made.shares:
        print(
            f"  {share.name:{width}}  {format_percentage(share.percentage):>8}  {mark + str(share.sm_count):>5}"
            f"  {format_size(share.memory) if share.memory else 'none':>9}"
            f"  {limit_text(share.memory) if share.memory else ''}".rstrip()
        )
    over = f", {left.over_sm_count} SMs over-committed" if left.over_sm_count else ""
    memory = "" if left.memory is None else f", {format_size(left.memory)}"
    print(f"  left: {left.sm_count} SMs{memory}, {plural(left.contexts, 'context')}{over}")
    for text, names in _grouped(made):
        print(f"  ! {names}{text}")
    for warning in made.warnings:
        print(f"  ! {warning}")


def _grouped(made: Plan) -> list[tuple[str, str]]:
    """Each warning once, with the clients that it is about."""
    found: dict[str, list[str]] = {}
    for share in made.shares:
        for warning in share.warnings:
            found.setdefault(warning, []).append(share.name)
    every = len(made.shares)
    return [(text, f"{'each client' if len(who) == every > 1 else ', '.join(who)}: ") for text, who in found.items()]
