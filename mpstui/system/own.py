"""Programs that mpstui runs by itself: its own, and those it looks for in PATH."""

from __future__ import annotations

import errno
import os
import stat
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Final

from mpstui.core.text import error_text, path_text, path_word
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
    places, root = _own_places(environment), os.geteuid() == 0
    there = os.path.lexists if root else _is_program
    said = _ask({(place, f"there {name}"): partial(_absent, there, f"{place}/{name}") for place in places}, 0.0, 0.0, 1)
    found = [place for place in places if not said[place, f"there {name}"]]
    if root:  # what a link leads to may be on a mount that does not answer
        said = _ask({(place, f"file {name}"): partial(why_not_roots, f"{place}/{name}") for place in found}, bad=0.0)
        found = [place for place in found if not said[place, f"file {name}"]]
    if not found:
        raise ProgramError(_why_not_found(name, _places(environment)))
    return f"{found[0]}/{name}"


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
                    remedy = _AGAIN if mode & stat.S_ISVTX else f"chmod go-w {path_word(each)}"
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


def _absent(is_there: Callable[[str], bool], path: str) -> str:
    return "" if is_there(path) else _ABSENT


def _is_program(path: str) -> bool:
    return os.path.isfile(path) and os.access(path, os.X_OK)


def _own_places(environment: Mapping[str, str]) -> list[str]:
    places = [place for place in _places(environment) if os.path.isabs(place)]
    others = _others(places) if os.geteuid() == 0 else {}
    return [place for place in places if place not in others]


def _places(environment: Mapping[str, str]) -> list[str]:
    return list(dict.fromkeys(environment.get("PATH", os.defpath).split(os.pathsep)))


class _Look:
    """At something in a place: what is mounted there may never answer, and the command has a deadline."""

    def __init__(self, look: Callable[[], str]) -> None:
        self.begun, self.stood = time.monotonic(), _pool.stood
        self.said = _SILENT
        self.over = threading.Event()
        self._look = look

    def run(self) -> None:
        try:
            self.said = self._look()
        except Exception as error:  # whatever it is, it is what came of the look
            self.said = f"{_UNSEEN}: {error_text(error)}"
        self.over.set()

    def give_up(self) -> None:
        self.said = _NO_THREAD
        self.over.set()

    def holds(self, good: float, bad: float) -> bool:
        """Whether it need not be looked again: it is not so many seconds ago, or has not come to its end."""
        if self.said.startswith(_UNSEEN):  # for want of a descriptor, of memory: not the fault of what is there
            bad = 0.0
        return not self.over.is_set() or time.monotonic() - self.begun < (bad if self.said else good)


class _Pool:
    """The threads that look, each at one thing after the other: PATH may have thousands of places. Where nothing has
    come of any of them for a moment, as all are kept waiting, one more helps."""

    def __init__(self) -> None:
        self._waiting: deque[_Look] = deque()
        self._done = 0
        self.stood = 0.0
        """Seconds in which this program was stopped, as by Ctrl-Z: nobody looked, and nothing was late."""

    def forget(self) -> None:
        """What waits for a thread that is not there: in a process that is forked off."""
        self._waiting.clear()

    def begin(self, looks: Sequence[_Look], threads: int) -> None:
        self._waiting.extend(looks)
        helped = [self._help() for _ in range(min(threads, len(self._waiting)))]
        if False not in helped[:1]:
            return
        for look in looks:  # of processes there are as many as there may be
            with suppress(ValueError):  # taken meanwhile
                self._waiting.remove(look)
                look.give_up()

    def wait(self, look: _Look, answers: float) -> None:
        """Also for one that was begun elsewhere just now. ``answers``: seconds that it has."""
        while (left := look.begun + answers + self.stood - look.stood - (now := time.monotonic())) > 0:
            done = self._done
            if look.over.wait(min(left, _MOMENT)):
                return
            if (took := time.monotonic() - now) > _STOOD:
                self.stood += took
            if done == self._done and self._waiting:
                self._help()

    def _help(self) -> bool:
        """Whether a thread could be started."""
        try:
            threading.Thread(target=self._work, daemon=True).start()
        except RuntimeError:
            return False
        return True

    def _work(self) -> None:
        with suppress(IndexError):  # nothing is left
            while True:
                self._waiting.popleft().run()
                self._done += 1


_HOLDS: Final = 10.0
"""Seconds for which what was seen of a place of PATH, or of a good program, holds."""
_ANSWERS: Final = 5.0
"""Seconds that what is in PATH has to answer, all of it together, once each."""
_LEAST: Final = 0.2
"""Seconds that a look at what others have named has at least, however many of those were late."""
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
_THREADS: Final = 8
_MOMENT: Final = 0.05
_STOOD: Final = 1.0
"""A moment that was so long was none: the program was stopped meanwhile."""
_LOOK: Final = "look "
"""What the place of a look at what others have named begins with, which is no path."""
_Question = tuple[str, str]
"""A place, and what is asked of it."""
_looks: Final[dict[_Question, _Look]] = {}
_silent: Final[dict[str, _Look]] = {}
"""Of each place what it has not answered in time: until it does, nothing else is asked of it."""
_pool: Final = _Pool()


def _forget() -> None:
    """In a process that is forked off no thread looks on."""
    _looks.clear()
    _silent.clear()
    _pool.forget()


os.register_at_fork(after_in_child=_forget)


def _ask(
    questions: Mapping[_Question, Callable[[], str]],
    good: float = _HOLDS,
    bad: float = _HOLDS,
    threads: int = _THREADS,
    answers: float | None = None,
) -> dict[_Question, str]:
    """What came of each, of all at once; ``good`` and ``bad``: seconds for which one holds that said nothing, and
    something. ``threads``: how many look, as long as they get on. ``answers``: seconds for all; None: as for PATH."""
    looks, new = dict[_Question, _Look](), list[_Look]()
    for key, question in questions.items():
        look = _silent.get(key[0])
        if look is None or look.over.is_set():
            look = _looks.get(key)
        if look is None or not look.holds(good, bad):
            look = _looks[key] = _Look(question)
            new.append(look)
        looks[key] = look
    _pool.begin(new, threads)
    for (place, _), look in looks.items():
        _pool.wait(look, _ANSWERS if answers is None else answers)
        if not look.over.is_set():
            _silent[place] = look
    return {key: look.said for key, look in looks.items()}


def looked_at(looks: Mapping[str, Callable[[], object]]) -> set[str]:
    """The names of those looks that have come to their end, whatever came of them. Anybody leads root to a mount that
    never answers, by a link or by what his process says it uses: so a thread looks first at what others have named. Of
    those that are late all together are waited for once, some seconds, and none again until its look ends. Each further
    call has half as long while others are late: anybody starts a hundred processes that name such a mount."""
    late = sum(place.startswith(_LOOK) and not look.over.is_set() for place, look in _silent.items())
    answers = max(_LEAST, _ANSWERS / 2 ** min(late, 10))
    questions = {(f"{_LOOK}{name}", "look"): partial(_silently, look) for name, look in looks.items()}
    said = _ask(questions, 0.0, 0.0, 1, answers)
    for place, kind in said:  # of names that others give there is no end
        if (look := _looks.get((place, kind))) is not None and look.over.is_set():
            _looks.pop((place, kind), None)
        if (look := _silent.get(place)) is not None and look.over.is_set():
            _silent.pop(place, None)
    return {name for name, why in zip(looks, said.values(), strict=True) if why != _SILENT}


def _silently(look: Callable[[], object]) -> str:
    with suppress(OSError, ValueError):
        look()
    return ""


def _others(places: Sequence[str]) -> dict[str, str]:
    """Of these the ones where somebody else can put a program, and those that do not answer, or are not there, each
    with why."""
    said = _ask({(place, "place"): partial(_why_others, place) for place in places})
    return {place: why for (place, _), why in said.items() if why}


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
        {(place, f"why {name}"): partial(_why_not_used, each, others.get(place, "")) for place, each in there.items()},
        0.0,
        0.0,
    )
    for place, each in there.items():
        if (why := said[place, f"why {name}"]) in {_SILENT, _NO_THREAD}:
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
        if not os.path.isabs(place):
            continue
        key = place, "temporary"
        if not (why := _ask({key: partial(_why_not_temporary, place)}, 0.0, 0.0)[key]):
            return place
        whys.append(f"{path_text(Path(place))} {why.removeprefix('it ')}" if why.startswith("it ") else why)
    text = "there is no place for temporary files that can be written and that nobody else can change"
    remedy = "set TMPDIR to a directory that only you can write to"
    raise FileNotFoundError(errno.ENOENT, f"{text} ({'; '.join(whys)}): {remedy}")


def _why_not_temporary(place: str) -> str:
    if not os.access(place, os.W_OK | os.X_OK):
        return "it is not there, or cannot be written"
    try:
        if os.geteuid() == 0:
            judge_directory(Path(place), roots())
    except (NotTrustedError, OSError) as error:
        return error_text(error)
    return ""


def roots() -> set[int]:
    """Root's numbers: in a user namespace of its own the machine's root is one of the nameless."""
    nameless = nameless_uid()
    return {0} if nameless is None else {0, nameless}
