"""``status --health``: whether each daemon is there and takes commands, told by the exit status alone.

Made to be asked often, as by a liveness probe: no command is sent, and nothing is loaded that this does not need.
What is looked at is the daemon's process and the end of its control.log, where that is to be believed.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from mpstui.core.condition import STARTING
from mpstui.core.text import path_text, unprintable
from mpstui.core.trust import anothers_place, cut_off_by, in_anothers_place, whose_word
from mpstui.observe.discovery import Place, answering, discover, named, silence, watched_speaker
from mpstui.system.procfs import HiddenProcessError, read_stat, user_name
from mpstui.system.trusted import UnreadableLogError, open_log

WELL, USAGE, ABSENT, NO_ANSWER, NOT_PERMITTED = 0, 2, 3, 4, 5
"""As in ``operations.types.ExitStatus``, which is slow to load."""
UNANSWERED: Final = 10.0
"""Seconds from which on a session that stays open, or a command without an answer, is no usual one (facts 1 and 2)."""
_TAILS: Final = (1 << 16, 1 << 22)
"""Bytes. A daemon that waits for its clients writes of each try to end its server: two days of that are in the larger
one, which is read where the other has no session's line."""
_OPEN: Final = (b"NEW UI", b"Cmd:")
_QUIT: Final = b"Cmd:quit"
_QUIT_REFUSED: Final = b"Not enough privilege to execute quit"
_CLOSED: Final = (b"UI closed", b"Starting control daemon", b"Exit with status")


class Health(NamedTuple):
    """What is known of one daemon without asking it."""

    status: int
    reason: str = ""
    """One sentence; empty where it is well."""


def probe(pipe_dirs: Sequence[Path] = (), log_dirs: Sequence[Path] = ()) -> Health:
    """The worst of the daemons that were named, or of root's and one's own that run where none was. May block on a slow
    file system."""
    if late := {*log_dirs} - answering(log_dirs):
        return Health(ABSENT, silence(min(late)))
    places = discover(pipe_dirs, log_dirs)
    if not named(pipe_dirs):
        # What a daemon that is gone has left behind is nobody's death, and anybody may run a daemon and write its log.
        euid = os.geteuid()
        closed = tuple(p for p in places if p.state == "closed" and p.uid in {0, euid})
        places = tuple(p for p in places if p.state == "running" and (whose_word(p, euid) is None or p.usurped(euid)))
        places = places or closed
    found = [_of_place(place) for place in places]
    return (
        max(found, key=lambda health: health.status)
        if found
        else Health(ABSENT, "no daemon of root's, or of your own, runs here")
    )


def _of_place(place: Place) -> Health:
    shown = path_text(place.pipe_dir)
    if place.state != "running":
        reason = place.detail or f"{shown}: no daemon runs there"
        return Health(NOT_PERMITTED if place.state == "closed" else ABSENT, reason)
    if (other := in_anothers_place(place, os.geteuid())) is not None:
        return Health(NO_ANSWER, anothers_place(place, user_name(other)))
    if place.daemon is None:
        return Health(WELL)  # it runs where no more of it is to be seen, as in another container
    pid = place.daemon.pid
    try:
        stat = read_stat(pid)
    except HiddenProcessError:
        stat = None
    if stat is not None and stat.state in "Tt":
        return Health(NO_ANSWER, f"{shown}: daemon {pid} is stopped, by a signal or by a debugger")
    if place.starting:
        return Health(NO_ANSWER, f"{shown}: daemon {pid} is starting: {STARTING}")
    if not place.usurped(os.geteuid()):
        place = place._replace(speaker=watched_speaker(place))
    if place.usurped(os.geteuid()):
        return Health(NO_ANSWER, f"{shown}: daemon {pid} runs, but {cut_off_by(place)}")
    if (session := _open_session(place)) is None:
        return Health(WELL)
    since, quitting = session
    if quitting:
        text = f"is told to quit since {since:.0f} s: it ends when its clients have ended, and takes no command"
        return Health(NO_ANSWER, f"{shown}: daemon {pid} {text}")
    if since >= UNANSWERED:
        text = f"a control session, or a command without an answer, is open since {since:.0f} s"
        return Health(NO_ANSWER, f"{shown}: daemon {pid} does not answer: {text}")
    return Health(WELL)


def _open_session(place: Place) -> tuple[float, bool] | None:
    """For how many seconds the daemon has been busy with one session, and whether by that it was told to quit (since
    then); None where it is not, or its log does not tell.

    A ``ps`` copies text of clients into the log (fact 10), but the end of its session follows at once.
    """
    if place.log_dir is None or place.daemon is None:
        return None
    try:
        fd = open_log(place.log_dir / "control.log", place.log_owners)
    except UnreadableLogError:
        return None
    try:
        begun = _open_since(fd, place.daemon.pid)
    except OSError:
        return None
    finally:
        os.close(fd)
    if begun is None:
        return None
    from mpstui.control.grammar import Clock  # seldom needed

    try:
        return time.time() - Clock().read(begun[0]), begun[1]
    except (ValueError, OverflowError):
        return None


def _open_since(fd: int, pid: int) -> tuple[bytes, bool] | None:
    """When the session began that no line closes, as the log has it, and whether it was told to quit, and when; None
    where there is none."""
    size = os.fstat(fd).st_size
    for length in _TAILS:
        ended, found = _last_session(os.pread(fd, length, max(0, size - length)), pid)
        if ended or found is not None or length >= size:
            return found
    return None


def _last_session(tail: bytes, pid: int) -> tuple[bool, tuple[bytes, bool] | None]:
    """Whether the last line of a session closes it, and ``_open_since`` by these lines alone."""
    tag, begun, refused = b" Control %5d] " % pid, None, False
    for line in reversed(tail.split(b"\n")):
        begin, _, text = line.partition(tag)
        if not line.startswith(b"[") or not text.startswith((*_OPEN, *_CLOSED, _QUIT_REFUSED)):
            continue
        if text.startswith(_CLOSED):
            return True, begun
        if text.startswith(_QUIT_REFUSED):
            refused = True
            continue
        begun = begin[1:24], False
        if text.startswith(_QUIT) and not refused:
            return False, (begin[1:24], True)
        if text.startswith(b"NEW UI"):
            break
    return False, begun


def tell(health: Health) -> int:
    """Says on standard error why it is not well; the exit status."""
    if health.status:
        print(f"mpstui: {health.reason} (exit status {health.status})", file=sys.stderr)
    return health.status


def directories(arguments: Sequence[str]) -> tuple[list[Path], list[Path]] | None:
    """The directories of ``status --health …`` as whole words; None for anything else, which the whole parser reads."""
    places: dict[str, list[Path]] = {"--pipe-dir": [], "--log-dir": []}
    words = iter(arguments)
    seen = []
    for word in words:
        option, equals, value = word.partition("=")
        if option in places:
            value = value if equals else next(words, "")
            if not value or value.startswith("-") or unprintable(value) is not None:
                return None
            places[option].append(Path(value).absolute())
        else:
            seen.append(word)
    variables = ("CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY", "MPSTUI_AUDIT_LOG", "MPSTUI_CONTROL_BINARY")
    if seen != ["status", "--health"] or any(unprintable(os.environ.get(name, "")) is not None for name in variables):
        return None
    return places["--pipe-dir"], places["--log-dir"]
