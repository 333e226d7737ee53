"""The options of ``plan``, ``profile``, ``daemon`` and ``run``."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any, Final

from mpstui.cli.arguments import between, whole

EXPORTS: Final = ("shell", "wrapper", "systemd", "slurm", "kubernetes", "device-plugin", "time-slicing", "dra")
STRATEGIES: Final = ("uniform", "half", "weighted", "exact")
BYS: Final = ("container", "user", "command", "process")
MEASURABLE: Final = ("fma", "triad", "nbody", "small")


def add_commands(commands: Any, node: argparse.ArgumentParser, groups: Mapping[str, Any]) -> None:
    """Add them to the command line. ``node``: the options that every command takes; ``groups``: the parsers of first
    words that the operations have made."""
    plan = commands.add_parser(
        "plan",
        parents=[node],
        help="divide a GPU among clients: SMs, memory, contexts",
        epilog="example: mpstui plan --device 0 --clients 4",
    )
    _add_plan(plan)
    _add_profile(groups["profile"], node)
    _add_unit(groups["daemon"], node)
    groups["server"].add_parser(
        "export",
        parents=[node],
        help="print all servers and namespaces as a file for nvidia-cuda-mps-control -a",
        epilog="example: mpstui server export",
    )
    listing = groups["partition"].add_parser(
        "list",
        parents=[node],
        help="the devices in chunks, their partitions, and who is in which",
        epilog="example: mpstui partition list",
    )
    listing.add_argument("--json", action="store_true", help="print JSON")
    run = commands.add_parser(
        "run",
        help="run a command with its share of the GPU",
        epilog="example: mpstui run --share large -- python train.py",
    )
    run.add_argument("--share", required=True, metavar="NAME", help="a share of a profile")
    run.add_argument("--profile", metavar="NAME", help="the profile; needed where several have such a share")
    run.add_argument("argv", nargs=argparse.REMAINDER, metavar="-- COMMAND")


def _add_plan(plan: argparse.ArgumentParser) -> None:
    plan.add_argument("--clients", metavar="N", help="how many")
    plan.add_argument("--strategy", choices=STRATEGIES, help="default: by other options; half: 100 %% / (0.5 N) each")
    plan.add_argument("--weights", metavar="W,W…", help="for weighted: 30,70")
    plan.add_argument("--sm-count", metavar="N,N…", help="for exact: SMs of each client, 24,60")
    plan.add_argument("--mem", metavar="HOW", help="even (default), weight, none, or a limit: 10G or 10G,20G")
    plan.add_argument("--contexts", metavar="N", default="1", help="contexts of each client on the device (default 1)")
    plan.add_argument("--names", metavar="A,B…", help="names of the clients' shares")
    device = plan.add_argument_group("device")
    device.add_argument(
        "--device", metavar="DEV", help="an index, a UUID or its first characters; default: the only one"
    )
    device.add_argument("--sm-count-total", metavar="N", help="its SMs, for a plan that needs no GPU")
    device.add_argument("--memory-total", metavar="SIZE", help="its memory, 80GiB")
    measured = plan.add_argument_group("measured advice: throughput over SMs, and shares that come of it")
    measured.add_argument(
        "--measure", action="append", default=[], choices=MEASURABLE, metavar="KERNEL",
        help=f"{', '.join(MEASURABLE)}; give it twice to measure how much two loads slow each other down",
    )  # fmt: skip
    measured.add_argument("--command", dest="program", metavar="CMD", help="a program, run from start to end")
    measured.add_argument(
        "--repeats", type=whole(1, 100), metavar="N", help="how often each measurement is made (default 3)"
    )
    measured.add_argument(
        "--seconds",
        type=between(0.3, 600),
        metavar="S",
        help="length of one measurement (default 1); with --from-activity, how long mpstui samples",
    )
    measured.add_argument("--shared", action="store_true", help="in the daemon that runs, not in one of its own")
    activity = plan.add_argument_group("shares from activity: who launched how much, and held how much memory")
    activity.add_argument(
        "--from-activity", nargs="?", const="", metavar="FILE",
        help="samples of mpstui activity --json, one per line, - for standard input; without FILE: 60 s of new ones",
    )  # fmt: skip
    activity.add_argument("--by", choices=BYS, help="who is one tenant; default: container, else user, else process")
    plan.add_argument(
        "--static", action="store_true", help="for a daemon with static SM partitions: divide in whole chunks"
    )
    plan.add_argument("--json", action="store_true", help="print JSON")
    _add_exports(plan)
    plan.add_argument("--save", metavar="NAME", help="keep the plan as a profile")
    plan.add_argument("--replace", action="store_true", help="overwrite a profile that is there")
    plan.add_argument("--apply", action="store_true", help="set what the daemon and its servers need for the plan")
    plan.add_argument("--yes", action="store_true", help="with --static --apply, and --shared: do not ask")
    _add_apply(plan)


def _add_exports(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--export",
        choices=EXPORTS,
        help="print the clients' shares for another program; device-plugin, time-slicing, dra: all of them for "
        "NVIDIA's programs in Kubernetes",
    )
    parser.add_argument("--share", metavar="NAME", help="of one client only")


def _add_apply(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--dry-run", action="store_true", help="only show what would be sent")
    parser.add_argument("--go-back", action="store_true", help="if a step fails, undo the others without asking")


def _add_profile(actions: Any, node: argparse.ArgumentParser) -> None:
    about = {
        "list": "the profiles that are there",
        "show": "one profile, checked",
        "save": "keep what is in force as a profile",
        "diff": "what differs from a profile; exit status 1 if anything does",
    }
    listing, show, save, diff = (
        actions.add_parser(
            name,
            parents=[node],
            help=told,
            epilog=f"example: mpstui profile {name}{'' if name == 'list' else ' day'}",
        )
        for name, told in about.items()
    )
    for command in (show, save, diff):
        command.add_argument("name", metavar="NAME")
    for command in (listing, save, diff):
        command.add_argument("--json", action="store_true", help="print JSON")
    _add_exports(show)
    save.add_argument("--replace", action="store_true", help="overwrite one that is there; its shares are kept")
    save.add_argument("--description", metavar="TEXT", default="", help="one line about it")


def _add_unit(actions: Any, node: argparse.ArgumentParser) -> None:
    from mpstui.cli.verbs import add_arguments
    from mpstui.operations.registry import operation

    unit = actions.add_parser(
        "unit",
        parents=[node],
        help="print a unit or a job script that starts and stops it",
        epilog="example: mpstui daemon unit systemd",
    )
    unit.add_argument("kind", choices=("systemd", "slurm", "pbs", "pbs-hook"))
    unit.add_argument(
        "--opt-in",
        metavar="WHAT=WORD",
        help="only for jobs that ask for it: slurm comment=mps, constraint=, partition=, account=, licence=, gres=; "
        "pbs account=MPS=true",
    )
    add_arguments(unit, operation("start_daemon"))
