"""What the stand-in binary does with its arguments, by driver, as recorded; of drivers from 590 on as documented."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Final, Literal

from mpstui.control.drivers import Driver

from .calls import FROM, MODULES, call
from .config import driver_here

_START: Final = ("-d", "--daemon", "-f", "--forground")
_MORE: Final = ("-q", "--ready-devices", *_START)
_STATIC: Final = ("-S", "--static-partitioning")
_ABOUT: Final = """\
CUDA MPS Control for Linux/Unix%s.%s
Copyright (C) 2003 - %d NVIDIA Corporation.

"""
_WHAT: Final = """\
  This program allows multiple CUDA processes to share a single GPU context. For information on how to use the CUDA \
MPS, see the nvidia-cuda-mps-control manual page.

"""
_OPTIONS: Final = """\
nvidia-cuda-mps-control [options] [command]
OPTIONS:
  -h,--help                Print this message
  -d,--daemon              Setup the daemon in the background
  -f,--forground           Setup the daemon in the foreground
  -M,--multiuser-server    Enable multi-user mode
  -q,--ready-devices      Prepare the daemon to query devices on startup
%s
"""
_COMMANDS: Final = """\
COMMAND:
  start_server -uid <user id>
                       Start a new instance of nvidia-cuda-mps-server with the given user ID
  quit
                       Terminate the controller
  get_server_list
                       Print out a list of servers
  get_server_status <PID>
                       Print out the status of the server
  get_client_list <PID>
                       List the client applications connected to the server
  get_device_client_list [<PID>]
                       List the devices and their client applications
  ps [-p PID]
                       Report a snapshot of the current client processes
  set_default_active_thread_percentage <percentage>
                       Set default active thread percentage for upcoming servers
  get_default_active_thread_percentage
                       Query the current default available thread percentage
  set_active_thread_percentage <PID> <percentage>
                       Override the active thread percentage of the MPS server
  get_active_thread_percentage <PID>
                       Query the current active thread percentage of the MPS server
  set_default_device_pinned_mem_limit <dev> <value>
                       Set default device pinned memory for upcoming servers
  get_default_device_pinned_mem_limit <dev>
                       Query the current default pinned memory limit for the device
  set_device_pinned_mem_limit <PID> <dev> <value>
                       Override the device pinned memory limit for MPS servers
  get_device_pinned_mem_limit <PID> <dev>
                       Query the current device pinned memory limit of the MPS server for the device
  set_default_client_priority <priority>
                       Sets default client priority for incoming clients
  get_default_client_priority
                       Query the current priority value that will be used for new clients
  terminate_client <server PID> <client PID>
                       Terminate all the outstanding GPU work of the MPS client process running on the MPS server
  device_query [<PID>] [--csv]
                       Enumerate all usable devices


"""
_FROM_590: Final = "  -S,--static-partitioning Enable static SM partitioning\n"
_FROM_615: Final = """\
  -v,--version             Print the version
  -p,--protocol <2|3>      The protocol of the commands
  -a,--apply <file>        Apply the settings of a file
"""


def usage(driver: Driver) -> str:
    """What is printed for a word that is no option: it lists nothing."""
    new = driver.number >= 580
    return _ABOUT % ("/QNX" if new else "", "", 2025 if new else 2024) + _WHAT


def help_text(driver: Driver) -> str:
    """What ``-h`` prints."""
    more = _FROM_590 * driver.static_partitions + _FROM_615 * (driver.number >= 615)
    return usage(driver) + _OPTIONS % more + _COMMANDS


def version_text(driver: Driver) -> str:
    """What ``-v`` prints."""
    return _ABOUT % ("/QNX", f" Binary version: {driver.binary_version}", 2025)


def order(driver: Driver, args: Sequence[str]) -> Literal["start", "help", "version", "usage", "session", "run"]:
    """What the arguments, of which there is one at least, ask for. ``run``: they are a command for the daemon."""
    if driver.options == "none":  # a second word is one too many, whatever it is
        return "start" if list(args) in (["-d"], ["-f"]) else "session"
    if driver.options == "usage":
        starts = not {"-d", "-f"}.isdisjoint(args) and {"-d", "-f", *driver.multi_user}.issuperset(args)
        return "start" if starts else "usage"
    if "-h" in args or "--help" in args:
        return "help"
    if "-v" in args or (driver.number >= 615 and "--version" in args):
        return "version"
    if not {*_START}.isdisjoint(args):
        known = {*_MORE, *driver.multi_user, *(_STATIC if driver.static_partitions else ())}
        return "start" if known.issuperset(args) or driver.number >= 615 else "usage"
    return "run" if driver.number >= 590 else "session"


def ordered(program: str, args: list[str]) -> int | bytes | None:
    """Does what the arguments of the executable ``program`` ask for: the exit status; None for a control session, bytes
    for one with these lines."""
    if args[0] == "--simulated-daemon" or "MPSTUI_SIM_LIFELINE" in os.environ:
        return _start(program, args)
    place = os.environ.get("CUDA_MPS_PIPE_DIRECTORY") or "/tmp/nvidia-mps"  # noqa: S108
    driver = driver_here(place)
    if driver.number >= FROM and args[0] in MODULES:
        return call(os.fsencode(place), os.environb.get(b"MPSTUI_SIM_UID", b""), args)
    wanted = order(driver, args)
    if wanted == "start":
        return _start(program, args)
    if wanted in {"session", "run"}:
        return " ".join(args).encode() + b"\n" if wanted == "run" else None
    texts = {"help": help_text, "version": version_text, "usage": usage}
    sys.stdout.write(texts[wanted](driver))
    return int(wanted == "usage")


def _start(program: str, args: list[str]) -> int:
    from .main import start

    return start(program, args)
