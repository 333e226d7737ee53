"""Programs that mpstui runs by itself: its own, and those it looks for in PATH."""

from __future__ import annotations

import errno
import os
import shlex
import stat
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Final

from mpstui.core.text import error_text, path_text
from mpstui.core.trust import ANYBODY
from mpstui.system.memory import INSIDE
from mpstui.system.procfs import nameless_uid, user_name
from mpstui.system.trusted import SYSTEM_UIDS, NotTrustedError, has_acl, judge_directory, judge_mounts, walk

ROOT: Final = Path(__file__).resolve().parents[2]
"""Where mpstui is to be found."""
OURS_ALONE: Final = "import sys; sys.path = [*filter(None, sys.path), sys.argv.pop(1)]; "
"""Before anything else is imported: what Python is given by ``-c`` or ``-m`` looks for every module in the current
directory first, which may be another user's."""
_RUN: Final = (
    f"{OURS_ALONE}del sys.argv[0]; from importlib import import_module; sys.exit(import_module(sys.argv[0]).main())"
)


def own_program(module: str, *words: str) -> tuple[str, ...]:
    """The command that runs ``main`` of a module of mpstui, with these words."""
    return (sys.executable, "-c", _RUN, os.fspath(ROOT), module, *words)


class ProgramError(FileNotFoundError):
    """Why no program of that name is run; its text is a clause with the remedy, where there is one to name."""

    def __init__(self, why: str) -> None:
        super().__init__(errno.ENOENT, why)
        self.why = why


def own_path(environment: Mapping[str, str] = os.environ) -> str:
    """PATH for what nobody has typed: without places that are no whole path, which are wherever one stands, and for
    root without those where another user can put a program. A group's of the system are left in:
    ``/usr/local/bin`` may be ``staff``'s. Where none is left: the system's, as an empty PATH is wherever one stands."""
    return os.pathsep.join(_own_places(environment)) or os.defpath


def find_program(name: str, environment: Mapping[str, str] = os.environ) -> str:
    """The path of the program of that name: the first one in a whole place of PATH, for root the first that nobody else
    can have written, put there, or led to by a link, step by step. Raises ProgramError.

    One that is not good is passed over as a place is that is not: whichever is run is root's own, and where there is
    none it is told which was not used, and why. A name with a ``/`` is as somebody has written it down, as
    MPSTUI_CONTROL_BINARY or ``--ssh``, and is only looked for, as a shell does: whoever writes a file's name has said
    which one he means. (What a configuration names so is judged, by :func:`why_not_roots`: whoever presses its key
    has not written it.) But for root none that depends on where he stands.

    What is found is started by its path, and nobody else can exchange it until then: all that leads there, links and
    directories, is root's; a group of the system may write to a directory of it. That is all that is judged: an
    interpreter that its first line names by ``/usr/bin/env`` is looked for by the system, in ``own_path``.
    """
    if "/" in name:
        if os.geteuid() == 0 and not os.path.isabs(name):
            raise ProgramError("it is not a whole path: write it from / on, or the name alone")
        if not _is_program(name):
            raise ProgramError(_ABSENT)
        return name
    if not name:
        raise ProgramError(MISSING)
    # lexists asks a place that has answered just now; what a link leads to may be on a mount that does not.
    found = [f"{place}/{name}" for place in _own_places(environment) if os.path.lexists(f"{place}/{name}")]
    if os.geteuid() != 0:
        good = next(filter(_is_program, found), None)
    else:
        said = _ask({f"file {each}": partial(why_not_roots, each) for each in found}, bad=0.0)
        good = next((each for each in found if not said[f"file {each}"]), None)
    if good is None:
        raise ProgramError(_why_not_found(name, _places(environment)))
    return good


def why_not_roots(path: str, *, program: bool = True) -> str:
    """Why root does not run the program at this whole path, as a clause with the remedy; empty where nobody else can
    have written it, or put it there, or has a say in where a link on its way leads. A place of PATH where ``program``
    is false: who can put a program there."""
    try:
        return _fault(path, program)
    except NotTrustedError as error:
        return f"{error}: {_AGAIN}"
    except OSError as error:
        return _ABSENT if error.errno in _NOT_THERE else f"{_UNSEEN}: {error_text(error)}"


def _fault(path: str, program: bool) -> str:
    """Raises NotTrustedError, and OSError where it is not there."""
    ours, place = roots(), Path(path if program else os.path.join(path, "-"))
    for _ in range(_LINKS + 1):  # the last one is the file
        meant = place if program else place.parent
        with ExitStack() as held:
            passed: list[tuple[Path, int]] = []
            way, steered = walk(place, held, None, passed=passed)
            if program:
                passed.append((place, os.open(place.name, os.O_PATH | os.O_NOFOLLOW, dir_fd=way[-1])))
                held.callback(os.close, passed[-1][1])
            seen = [os.fstat(fd) for _, fd in passed]
            for (each, fd), found in zip(passed, seen, strict=True):
                if found.st_uid not in ours:
                    return f"{path_text(each)} belongs to {user_name(found.st_uid)}: {_AGAIN}"
                if whose := _writer(fd, found, last=fd in {way[-1], passed[-1][1]}):
                    shown, mode = path_text(each), stat.S_IMODE(found.st_mode)
                    # Who made a directory as /tmp is has meant it for all.
                    remedy = _AGAIN if mode & stat.S_ISVTX else f"chmod go-w {shlex.quote(shown)}"
                    return f"{shown} can be changed by {whose} (mode {mode:04o}): {remedy}"
            if ANYBODY in steered or INSIDE.match(os.fsencode(place)):
                return f"another process says what {path_text(meant)} is: take it out of PATH"
            if len({found.st_dev for found in seen}) > 1:  # on the root's own there is nobody else's file system
                judge_mounts(meant, (fd for _, fd in passed), ours)
            if not program:
                return ""
            if not stat.S_ISLNK(seen[-1].st_mode):
                return "" if _is_program(path) else _ABSENT
            place = place.parent / os.fsdecode(os.readlink(b"", dir_fd=passed[-1][1]))
    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))


def _writer(fd: int, found: os.stat_result, *, last: bool) -> str:
    """Who else may change a directory, or a file, or put another in its place; of a link nobody."""
    mode = found.st_mode
    if not mode & (stat.S_IWOTH | stat.S_IWGRP) or stat.S_ISLNK(mode):
        return ""
    if stat.S_ISDIR(mode) and mode & stat.S_ISVTX and not last:
        return ""
    if mode & stat.S_IWOTH:
        return "everybody"
    # A directory may be a group's of the system, as /usr/local/bin is staff's; the users' is none of these, which
    # whoever has an account may be in. A file may not: no layout asks for it, and staff, adm or docker have ordinary
    # users among them on many nodes.
    good = found.st_gid < SYSTEM_UIDS and found.st_gid != _USERS if stat.S_ISDIR(mode) else found.st_gid == 0
    return "" if good and not has_acl(fd) else "its group"


def _is_program(path: str) -> bool:
    return os.path.isfile(path) and os.access(path, os.X_OK)


def _own_places(environment: Mapping[str, str]) -> list[str]:
    places = [place for place in _places(environment) if os.path.isabs(place)]
    others = _others(places) if os.geteuid() == 0 else {}
    return [place for place in places if place not in others]


def _places(environment: Mapping[str, str]) -> list[str]:
    return list(dict.fromkeys(environment.get("PATH", os.defpath).split(os.pathsep)))


class _Look:
    """At something in PATH, in a thread: what is mounted there may never answer, and the command has a deadline."""

    def __init__(self, look: Callable[[], str]) -> None:
        self.begun = time.monotonic()
        self.said = _SILENT
        self._thread = threading.Thread(target=self._run, args=(look,), daemon=True)
        try:
            self._thread.start()
        except RuntimeError:  # of processes there are as many as there may be
            self.said = _NO_THREAD

    def _run(self, look: Callable[[], str]) -> None:
        self.said = look()

    def holds(self, bad: float) -> bool:
        """Whether it need not be looked again: it is not long ago, or has not come to its end."""
        if self.said.startswith(_UNSEEN):  # for want of a descriptor, of memory: not the fault of what is there
            bad = 0.0
        return self._thread.is_alive() or time.monotonic() - self.begun < (bad if self.said else _HOLDS)

    def wait(self) -> None:
        """Also for one that was begun elsewhere just now."""
        if self.said != _NO_THREAD:
            self._thread.join(max(0.0, self.begun + _ANSWERS - time.monotonic()))


_HOLDS: Final = 10.0
"""Seconds for which what was seen of a place of PATH, or of a good program, holds."""
_ANSWERS: Final = 5.0
"""Seconds that what is in PATH has to answer, all of it together, once each."""
_LINKS: Final = 40
"""Links in the place of the file, one after the other, as the kernel counts them."""
_USERS: Final = 100
"""The group ``users`` on Debian, RHEL and SUSE."""
_ABSENT: Final = "it is not there, or is no program"
MISSING: Final = "it is not on PATH"
_NOT_THERE: Final = frozenset((errno.ENOENT, errno.ENOTDIR, errno.EINVAL, errno.ENAMETOOLONG))
_UNSEEN: Final = "it cannot be looked at"
_SILENT: Final = "it does not answer"
_NO_THREAD: Final = f"{_UNSEEN}: no thread can be started"
_STANDS: Final = "that depends on where you are; write the places of PATH from / on"
_AGAIN: Final = "install the program again as root, in a place of root's"
_looks: Final[dict[str, _Look]] = {}


def _ask(questions: Mapping[str, Callable[[], str]], bad: float = _HOLDS) -> dict[str, str]:
    """What came of each, of all at once; ``bad``: seconds for which one holds that said something."""
    looks = {key: found for key in questions if (found := _looks.get(key)) is not None and found.holds(bad)}
    for key in questions.keys() - looks.keys():
        looks[key] = _looks[key] = _Look(questions[key])
    for look in looks.values():
        look.wait()
    return {key: looks[key].said for key in questions}


def _others(places: Sequence[str]) -> dict[str, str]:
    """Of these the ones where somebody else can put a program, and those that do not answer, or are not there, each
    with why."""
    said = _ask({place: partial(_why_others, place) for place in places})
    return {place: why for place, why in said.items() if why}


def _why_others(place: str) -> str:
    return why_not_roots(place, program=False)


def _why_not_found(name: str, places: Sequence[str]) -> str:
    """A shell may find one all the same: which, and why it is not used."""
    others = _others([place for place in places if os.path.isabs(place)]) if os.geteuid() == 0 else {}
    unseen = [(place, why) for place in places if (why := others.get(place, "")) in {_SILENT, _NO_THREAD}]
    there = {
        place: os.path.join(place, name) for place in places if others.get(place) not in {_ABSENT, _SILENT, _NO_THREAD}
    }
    said = _ask(
        {f"why {each}": partial(_why_not_used, each, others.get(place, "")) for place, each in there.items()}, 0.0
    )
    for place, each in there.items():
        if (why := said[f"why {each}"]) in {_SILENT, _NO_THREAD}:
            unseen.append((place, why))
        elif why:
            return f"PATH leads to {path_text(Path(each))}, which is not used: {why}"
    if unseen:
        place, why = unseen[0]
        return f"{MISSING}, but {path_text(Path(place))} {why.removeprefix('it ')}"
    return MISSING


def _why_not_used(candidate: str, others: str) -> str:
    """Empty where it is no program."""
    if not _is_program(candidate):
        return ""
    if not os.path.isabs(candidate):
        return _STANDS
    return others or why_not_roots(candidate)


def temporary_place() -> str:
    """Where directories are made for a while: TMPDIR's, or a usual one; for root none that another user may exchange,
    and for nobody the one where he stands, which Python's own search ends with. Raises OSError."""
    whys = list[str]()
    for place in dict.fromkeys((os.environ.get("TMPDIR", ""), "/tmp", "/var/tmp")):  # noqa: S108
        try:
            if not os.path.isabs(place):
                continue
            if not os.access(place, os.W_OK | os.X_OK):
                whys.append(f"{path_text(Path(place))} is not there, or cannot be written")
                continue
            if os.geteuid() == 0:
                judge_directory(Path(place), roots())
        except (NotTrustedError, OSError) as error:
            whys.append(error_text(error))
            continue
        return place
    text = "there is no place for temporary files that can be written and that nobody else can change"
    remedy = "set TMPDIR to a directory that only you can write to"
    raise FileNotFoundError(errno.ENOENT, f"{text} ({'; '.join(whys)}): {remedy}")


def roots() -> set[int]:
    """Root's numbers: in a user namespace of its own the machine's root is one of the nameless."""
    nameless = nameless_uid()
    return {0} if nameless is None else {0, nameless}
