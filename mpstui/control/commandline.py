"""The control binary: whether an argv is that program's, what it asks for, and how long it is waited for. No I/O."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, Literal, NamedTuple

from mpstui.core.late import pattern

PROGRAM: Final = "nvidia-cuda-mps-control"
SOCKETS: Final = ("control", "control_privileged")
"""In a daemon's pipe directory; of protocol 3 the first alone is documented."""
SOCKET_PATH_LIMIT: Final = 107
"""Bytes of a Unix socket's path (``sun_path`` less its NUL)."""
PROOF: Final = "get_default_active_thread_percentage"
"""Asked in the same session before a command whose answer may be empty. Its own never is: without it nothing has
reached the daemon, which the binary does not always say (fact 30); with it an empty answer to the command is one. Only
``quit`` takes the answer along: the daemon ends under the binary."""
PROTOCOL_VARIABLE: Final = "CUDA_MPS_PROTOCOL_VERSION"
Protocol = Literal["legacy", "v3", "unknown"]
"""unknown: it was told to speak one that is neither 2 nor 3, or one that is no number."""
_INTERPRETER: Final = pattern(r"(?:python|pypy|perl)[\d.]*|(?:ba|da|k|z)?sh")
_LONG: Final = (
    "apply",
    "daemon",
    "foreground",
    "forground",  # how the 580 binary spells it
    "multiuser",
    "multiuser-server",
    "protocol",
    "static-partitioning",
)
_SHORT: Final = {
    "a": "apply",
    "d": "daemon",
    "f": "foreground",
    "M": "multiuser-server",
    "m": "multiuser",
    "p": "protocol",
    "S": "static-partitioning",
    "s": "static-partitioning",  # code for a Tegra board says -d -s -q
}
_PROTOCOLS: Final[Mapping[int, Protocol]] = {1: "legacy", 2: "legacy", 3: "v3"}
_WITH_VALUE: Final = frozenset({"apply", "protocol"})
_SHORTEST: Final = 4
"""Letters of a long option from which on an abbreviation is taken for it."""


class Options(NamedTuple):
    """What a command line of the control program asks for."""

    daemon: bool = False
    """``-d`` or ``-f``; without one of them it is somebody's control session, or a one-shot command."""
    multiuser: bool = False
    protocol: Protocol = "legacy"
    static_partitioning: bool = False
    foreground: bool = False
    """``-f`` without ``-d``: its log is its standard output (fact 47)."""


def control_arguments(argv: Sequence[str], binary: Sequence[str] = ()) -> list[str] | None:
    """The arguments behind the control binary in ``argv``; None where it runs something else.

    It is the binary itself, an interpreter that runs a script of that name, or the command ``binary``.
    """
    if binary and list(argv[: len(binary)]) == list(binary):
        return list(argv[len(binary) :])
    words = list(argv)
    if words and _INTERPRETER.fullmatch(os.path.basename(words[0])):
        words = list(_script(words[1:]))
    if not words or os.path.basename(words[0]) != PROGRAM:
        return None
    return words[1:]


def shown_program(binary: Sequence[str]) -> str:
    """The word of a command that names the control program, as it is shown: no interpreter and no option."""
    return next((word for word in reversed(binary) if not word.startswith("-")), PROGRAM)


def parse_command_line(
    argv: Sequence[str], environment: Mapping[str, str] | None = None, binary: Sequence[str] = ()
) -> Options | None:
    """The options of a control program's command line; None where it is another program's.

    ``environment``: the process's own, where it may be read; its protocol version comes before the option.
    """
    arguments = control_arguments(argv, binary)
    if arguments is None:
        return None
    given = dict(_given(arguments))
    protocol = (environment or {}).get(PROTOCOL_VARIABLE, "").strip() or given.get("protocol")
    return Options(
        daemon=not given.keys().isdisjoint({"daemon", "foreground", "forground"}),
        multiuser=not given.keys().isdisjoint({"multiuser", "multiuser-server"}),
        protocol="legacy" if protocol is None else _PROTOCOLS.get(_number(protocol), "unknown"),
        static_partitioning="static-partitioning" in given,
        foreground="daemon" not in given and not given.keys().isdisjoint({"foreground", "forground"}),
    )


def _given(arguments: Sequence[str]) -> Iterator[tuple[str, str]]:
    """The options by their long names, each with its value. Long ones have one dash or two (``-multiuser-server``)."""
    rest = iter(arguments)
    for argument in rest:
        if argument == "--":
            return
        if not argument.startswith("-"):
            continue
        text, equals, value = argument.lstrip("-").partition("=")
        name = _long(text)
        if name is not None:
            if name in _WITH_VALUE and not equals:
                value = next(rest, "")
            yield name, value
        elif not argument.startswith("--"):
            letters = argument[1:]
            for place, letter in enumerate(letters):
                name = _SHORT.get(letter, "")
                if name in _WITH_VALUE:
                    yield name, letters[place + 1 :].removeprefix("=") or next(rest, "")
                    break
                if name:
                    yield name, ""


def _long(text: str) -> str | None:
    if text in _LONG:
        return text
    return next((name for name in _LONG if len(text) >= _SHORTEST and name.startswith(text)), None)


def _number(text: str) -> int:
    """The number that a text begins with; 0 where it begins with none."""
    found = re.match(r"\s*\+?([0-9]{1,9})", text, re.ASCII)
    return int(found[1]) if found else 0


def _script(arguments: Sequence[str]) -> Iterator[str]:
    """What follows an interpreter's own options: the script and its arguments; nothing for ``-c`` and ``-m``."""
    rest = iter(arguments)
    for argument in rest:
        if not argument.startswith("-"):
            yield argument
            yield from rest
        elif argument in {"-W", "-X"}:
            next(rest, None)
        elif not argument.startswith(("--", "-W", "-X")) and ("c" in argument or "m" in argument):
            return


def patience(seconds: float) -> float:
    """How long the control binary is waited for: ``seconds``, or MPSTUI_CONTROL_DEADLINE where that is more.

    On a machine with more work than processors a binary that is only slow looks like a daemon that does not answer.
    """
    try:
        wish = float(os.environ.get("MPSTUI_CONTROL_DEADLINE", ""))
    except ValueError:
        return seconds
    return min(max(seconds, wish), 3600.0) if wish == wish else seconds
