"""The options of ``mpstui load``, and the words that it and ``mpstui experiment`` take, checked while they are read."""

from __future__ import annotations

import argparse
import shlex

from mpstui.cli.arguments import between, whole
from mpstui.core.text import PRIORITY_WORDS, mps_size, printable, size_hint, typed_count, typed_number, typed_size
from mpstui.load.types import COPIED, DEFAULT_STREAM_NAMES, INFO, KERNELS

MOST_STREAMS = 128
MOST_CONNECTIONS = 32
MOST_STEPS = 100_000_000
"""Some tenths of a second a launch."""
MOST_COPIED = 1 << 30
MOST_CLIENTS = 64
"""A device takes 48 (fact 13); a few more show what the others are told."""


def numbers(text: str) -> tuple[float, ...]:
    """``25`` or ``30,70``, for argparse."""
    values = tuple(value for word in text.split(",") if (value := typed_number(word)) is not None)
    if len(values) <= text.count(","):
        raise argparse.ArgumentTypeError(f"{printable(text, 40)!r} is not a number, or several with commas")
    if not all(0 < value <= 100 for value in values):
        raise argparse.ArgumentTypeError("a percentage is above 0 and at most 100")
    return values


def counts(text: str) -> tuple[int, ...]:
    """``32`` or ``16,66``, for argparse."""
    values = tuple(value for word in text.split(",") if (value := typed_count(word)) is not None)
    if len(values) <= text.count(","):
        raise argparse.ArgumentTypeError(f"{printable(text, 40)!r} is not a count, or several with commas")
    if not all(0 < value <= 1024 for value in values):
        raise argparse.ArgumentTypeError("a count of SMs is 1 to 1024")
    return values


def size(text: str) -> str:
    """A memory limit as MPS writes it, for argparse."""
    found = mps_size(text)
    if found is None:
        hint = size_hint(text) or "900M, 10G"
        raise argparse.ArgumentTypeError(f"{printable(text, 40)!r} is no size: {hint}")
    return found


def copy_size(text: str) -> int:
    """Bytes of a copy, for argparse."""
    found = typed_size(text)
    if not found or found > MOST_COPIED:
        raise argparse.ArgumentTypeError(
            f"{printable(text, 40)!r} is no size of a copy: {size_hint(text) or '1M to 1G'}"
        )
    return found


def words(text: str) -> tuple[str, ...]:
    """A command as a shell splits it, for argparse; no shell runs it."""
    try:
        command = tuple(shlex.split(text))
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"the command cannot be split into words: {error}") from None
    if not command or any("\0" in word for word in command):
        raise argparse.ArgumentTypeError("the command is empty")
    return command


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``load``, beside those of every command."""
    names = ", ".join(f"{name} ({INFO[name].text})" for name in KERNELS)
    parser.add_argument("kernel", nargs="?", choices=KERNELS, metavar="KERNEL", help=names)
    parser.add_argument("--command", dest="program", type=words, metavar="CMD", help="run this program instead")
    parser.add_argument(
        "--clients", type=whole(1, MOST_CLIENTS), default=1, metavar="N", help="how many, together (default 1)"
    )
    parser.add_argument(
        "--device", metavar="DEV", help="a UUID, its first characters, or NVML's index (default: the first)"
    )
    share = parser.add_mutually_exclusive_group()
    share.add_argument("--active-thread-percentage", type=numbers, default=(), metavar="P[,P…]")
    share.add_argument("--sm-count", type=counts, default=(), metavar="N[,N…]", help="SMs by execution affinity")
    pace = parser.add_mutually_exclusive_group()
    pace.add_argument(
        "--arrivals",
        type=between(0.01, 1e6, "a second"),
        metavar="R",
        help="requests a second for each client, at random times; with p50 and p99",
    )
    pace.add_argument(
        "--busy",
        type=between(1, 100, "percent"),
        metavar="P",
        help="each client works P percent of the time, with pauses between requests; shows p50 and p99",
    )
    parser.add_argument(
        "--streams", type=whole(1, MOST_STREAMS), metavar="N", help="launch in N streams (default: the default stream)"
    )
    parser.add_argument(
        "--copies",
        type=copy_size,
        nargs="?",
        const=COPIED,
        metavar="SIZE",
        help="copy so much to the device before each launch and back after it (32M); with --streams they overlap",
    )
    parser.add_argument(
        "--default-stream",
        choices=DEFAULT_STREAM_NAMES,
        help="add an empty launch in the default stream after each; legacy waits for all streams, and all wait for it",
    )
    parser.add_argument(
        "--device-max-connections",
        type=whole(1, MOST_CONNECTIONS),
        metavar="N",
        help="queues of each client's streams, 1 to 32",
    )
    parser.add_argument(
        "--steps",
        type=whole(1, MOST_STEPS),
        metavar="N",
        help="for the kernel small: how long a launch lasts (256; 200000 is some 0.4 ms)",
    )
    parser.add_argument("--pinned-mem-limit", type=size, metavar="S", help="memory of each client: 900M, 10G")
    parser.add_argument("--client-priority", type=whole(0, 1), choices=(0, 1), help=PRIORITY_WORDS)
    parser.add_argument(
        "--seconds", type=between(0.1, 86400), metavar="S", help="default 10; a program runs to its end"
    )
    parser.add_argument(
        "--mps", choices=("on", "off"), default="on", help="off: the clients compute without MPS (default on)"
    )
    parser.add_argument("--private", action="store_true", help="in a daemon of its own, started for this run")
    parser.add_argument("--endanger-others", action="store_true", help="allow what harms other clients")
    parser.add_argument("--yes", action="store_true", help="do not ask where others' clients are on the daemon")
    parser.add_argument("--json", action="store_true", help="one object a second, the last with final: true")
