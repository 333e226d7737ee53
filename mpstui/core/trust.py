"""What may be concluded from whose word: who a daemon speaks for, and whose PID a number is. Pure, no I/O.

A daemon is a program of some user, and what it answers, and what its logs say, is that user's word. It is enough to
send a command to that very daemon; it is not enough to signal another user's process.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Final, NamedTuple, Protocol, TypeVar

from mpstui.core.text import path_text, path_word

ANOTHER_NAMESPACE: Final = "in another PID namespace"
NOT_PROVED: Final = "not proved to be a PID of this namespace"
REUSED: Final = "its process has ended, and another one has its PID"


ANYBODY: Final = -1
"""No user's number: of some user, who is neither root nor whoever looks, as far as anybody can tell."""


class Speaker(NamedTuple):
    """Whose word a daemon's is, by the owners of its sockets and of the way to them, which the kernel keeps."""

    uid: int | None = None
    """0: root's, which may speak for everybody's processes. None: nobody's, for ``why``."""
    why: str = "whose daemon it is has not been looked at"
    """One clause. For a user's daemon: whose."""
    stamp: tuple[int, ...] = ()
    """Of a pipe directory that others may write to, or of which it is not known whose it is: its device, inode and
    times, and inode and time of each socket, so that it changes with everything that is put there. Empty for any
    other."""
    by: int | None = None
    """Where it is nobody's word: a user who has put there what answers, or may have; ANYBODY where that may be several.
    None where only root has."""
    sockets: tuple[int, ...] = ()
    """The owners of what is in the place of the sockets, with ANYBODY where it was exchanged while one looked, or where
    one is not there though the daemon runs."""
    steered: bool = False
    """Whether somebody else than root and who looks has made some of the way there, or may change it. What is seen is
    what he shows, at this moment: of a daemon of root's, or of one's own, that has this directory it tells nothing."""
    reached: bool | None = None
    """Where not all of them are the daemon's own: whether it is the one that listens at the one that CUDA programs come
    to; None where that is not known."""
    listens: bool = True
    """Whether somebody may answer there: not where nobody listens at one of its sockets."""
    folder: tuple[int, int] | None = None
    """Device and inode of the directory of which that is so, where it was looked at."""
    remedy: str = ""
    """What makes it known whose daemon it is, a sentence, where nobody else's doing keeps it unknown."""
    owner: int | None = None
    """Who owns the directory, where it was looked at."""
    sticky: bool = False
    """Whether others may put something in the place of a socket only once that is taken away, as of a daemon that has
    ended: in a directory as /tmp is. The times in ``stamp`` are then those of the newest socket."""

    @property
    def without_times(self) -> Speaker:
        """Without the directory's own times, which change with each file that the daemon makes there."""
        return self._replace(stamp=self.stamp[:2] + self.stamp[4:])

    def is_elsewhere(self, before: Speaker) -> bool:
        """Whether it is of another directory than the one before."""
        return None not in {self.folder, before.folder} and self.folder != before.folder


NOBODY: Final = Speaker()


def written_by(uid: int, whose: str) -> Speaker:
    """Whose word it is what another user has written down, a recording or logs, whosever daemon it is about; ``whose``:
    that user's name."""
    return Speaker(None, f"what {whose} has written", by=uid)


class Meant(NamedTuple):
    """The daemon that somebody was asked about: a change is for no other, whatever is behind its directory's name by
    the time it is carried out."""

    pipe_dir: Path
    speaker: Speaker = NOBODY
    """Whose it was then; NOBODY where nobody had looked."""
    process: tuple[int, int | None] | None = None
    """PID and start time, where they were known."""

    def why_not(self, now: Speaker) -> str | None:
        """Why what is behind the name now is not that one, as a clause; None where it is, as its directory tells."""
        asked = self.speaker
        if asked == NOBODY:
            return None
        if asked.uid != now.uid:
            before = "not known" if asked.uid is None else asked.why
            return f"the daemon's owner has changed since mpstui looked at it (before: {before}; now: {now.why})"
        if now.is_elsewhere(asked):
            return "the path leads to another directory than when mpstui looked at it"
        looked = asked.uid is None or (asked.stamp and now.stamp)  # of nobody's one knows nothing else
        if looked and asked.without_times.stamp != now.without_times.stamp:
            return "the daemon's directory or its sockets were replaced after mpstui had looked at them"
        return None


def is_anothers(uid: int | None, euid: int | None) -> bool:
    """Whether a file, a directory or a process of user ``uid`` is another user's for ``euid``: neither root's nor one's
    own. Whose it is has to be known. For what a daemon says ask :func:`whose_word`."""
    return uid not in {None, 0, euid}


def may_signal(speaker: Speaker, uids: Collection[int]) -> bool:
    """Whether a claim of this daemon may lead to a signal to a process that has these user IDs: real, effective and
    saved, of each thread. One that is not known is not covered."""
    return speaker.uid == 0 or (speaker.uid is not None and set(uids) == {speaker.uid})


def why_not(speaker: Speaker, pid: int, owner: str) -> str:
    """Why a process of ``owner`` is not ended on this daemon's word, as a clause."""
    if speaker.uid is None:
        return f"process {pid} belongs to {owner}; mpstui ends no process for this daemon: {speaker.why}"
    return f"process {pid} belongs to {owner}; {speaker.why} is trusted for its user only"


class Heard(Protocol):
    """A daemon, or the place of one."""

    @property
    def pipe_dir(self) -> Path: ...

    @property
    def uid(self) -> int | None:
        """Who runs it; of a place without a daemon whose the directory is."""

    @property
    def pid(self) -> int | None:
        """Of the daemon that is seen to run."""

    @property
    def speaker(self) -> Speaker: ...

    def usurped(self, euid: int | None) -> bool:
        """:func:`is_usurped`, where a daemon runs and is seen."""


def whose_word(heard: Heard, euid: int | None) -> int | None:
    """The other user whose word it is what a daemon says, or what is in a place; None where it is root's, that of
    ``euid``, who looks or whose process it is about, or not known to be anybody's.

    What another user says is shown as said by that user. It is no fact about processes of root's or of a third person,
    no reason to advise anybody else to do something, and nothing that is wrong with the node. Whose sockets they are
    comes first: the directory, and the process that is seen to hold it, may be somebody else's.
    """
    return next((uid for uid in (heard.speaker.uid, heard.speaker.by, heard.uid) if is_anothers(uid, euid)), None)


def is_usurped(heard: Heard, euid: int | None) -> bool:
    """Of a place where a daemon runs: whether that is a process of root's, or of ``euid``'s, and what is in the place
    of its sockets is another user's, or may be, or is not there. It is seen in the owners of the files, and is nobody's
    claim; that the directory is another user's, who may do so, is not enough, and where another user decides what
    directory that is, it is none of the daemon's."""
    return (
        heard.uid in {0, euid}
        and not heard.speaker.steered
        and any(uid not in {0, heard.uid} for uid in heard.speaker.sockets)
    )


def usurpation(heard: Heard, whose: str, where: str = "") -> str:
    """What is seen of a usurped daemon, one of ``whose``, as a clause; ``where`` it runs, if not by its directory."""
    return f"daemon {heard.pid} of {whose} runs {where or f'in {path_text(heard.pipe_dir)}'}, but {cut_off_by(heard)}"


def cut_off_by(heard: Heard) -> str:
    """What is in the place of a usurped daemon's sockets, as a clause."""
    why, uid, sockets = heard.speaker.why, heard.speaker.uid, heard.speaker.sockets
    return f"its sockets are those of {why}" if uid and ANYBODY not in sockets else why


def in_anothers_place(heard: Heard, euid: int | None) -> int | None:
    """Another user whose sockets are in a directory of root's, or of ``euid``'s: whoever may write there puts his own
    in the place of those of a daemon that has ended. So does a service user's daemon in a volume that all may write to:
    which of the two it is that user knows, who asks for his own, and nobody else. It is not the daemon that is meant by
    the directory."""
    owner = heard.speaker.owner
    if owner is None or is_anothers(owner, euid) or heard.usurped(euid):
        return None
    return next((uid for uid in heard.speaker.sockets if uid != ANYBODY and is_anothers(uid, euid)), None)


def anothers_place(heard: Heard, whose: str) -> str:
    """What there is to say of that, and to do, sentences without the last full stop; ``whose``: that user's name."""
    text = "another user with write access may have replaced the daemon's sockets"
    meant = f"If you want the daemon of {whose}, run mpstui as that user, or chown the directory to that user"
    return f"{path_text(heard.pipe_dir)}: sockets of {whose} are in a directory of another owner: {text}. {meant}"


def end_usurped(heard: Heard) -> str:
    """What there is to do about one, sentences: a command would go to whoever answers."""
    command = f"mpstui daemon stop --force --pipe-dir {path_word(heard.pipe_dir)}"
    when = "" if heard.speaker.reached is False else ", once its clients have ended,"
    end = f"As root{when or ','} end its process" if heard.uid == 0 else f"End its process{when.removesuffix(',')}"
    return f"{end}: {command}. Start it again in a directory that only its user may change."


def end_not_found(heard: Heard) -> str:
    """What there is to do about a daemon that runs and takes no command, a sentence."""
    command = f"mpstui daemon stop --force --pipe-dir {path_word(heard.pipe_dir)}"
    whose = "As root, end" if heard.uid == 0 else "End"
    return f"{whose} its process, once its clients have ended: {command}. Then start it again."


def as_yet(heard: Heard) -> str | None:
    """What is known of its clients all the same, a clause; None where they do not come to it."""
    if heard.speaker.reached is None:
        return "whether CUDA programs can still connect to it is not known"
    return "CUDA programs can still connect through its socket “control”" if heard.speaker.reached else None


def to_its_owner(whose: str) -> str:
    """What there is to do where another user's daemon says that something is wrong."""
    return f"The daemon belongs to {whose}: leave it to its owner."


HeardT = TypeVar("HeardT", bound=Heard)


class NotNamedError(Exception):
    """Nobody but other users answers here, and none of them was named; the text is a sentence with its remedy."""


def meant(
    found: Sequence[HeardT], runs: Callable[[HeardT], bool], euid: int, *, as_process: bool = False
) -> list[HeardT]:
    """The daemons that user ``euid`` can mean without a name: root's, the user's own, and places where none runs.

    Anybody starts daemons, as many as he likes, and discovery finds them: without a name none of them gets a command, a
    program or a signal, and none stands in the way of the one that is meant, nor does what he has left or made without
    a daemon. A usurped one is meant only ``as_process``: it may be sent a signal. Raises NotNamedError where there are
    only others that run.
    """
    running, idle = [one for one in found if runs(one)], [one for one in found if not runs(one)]
    usurped = [one for one in running if one.usurped(euid)]
    mine = [one for one in running if _is_mine(one, euid) or (as_process and one in usurped)]
    mine += [one for one in idle if whose_word(one, euid) is None and not one.speaker.steered]
    if mine:
        return [one for one in found if one in mine]
    if running:
        if usurped:
            whose = "root" if usurped[0].uid == 0 else "your own"
            raise NotNamedError(f"nothing was sent: {usurpation(usurped[0], whose)}. {end_usurped(usurped[0])}")
        other = running[0]
        where = path_text(other.pipe_dir)
        whose = other.speaker.why if other.speaker.uid is not None else f"of an unknown user: {other.speaker.why}"
        if other.speaker.uid in {0, euid}:
            whose = "of an unknown user: its process belongs to another user than its sockets"
        raise NotNamedError(
            f"the daemon in {where} is {whose}; to use it anyway, name it: --pipe-dir {path_word(other.pipe_dir)}"
        )
    return idle


def _is_mine(one: Heard, euid: int) -> bool:
    """Of a daemon that runs: also that process is nobody else's who has only put himself behind a socket of root's."""
    return one.speaker.uid in {0, euid} and not is_anothers(one.uid, euid)


def is_lying(heard: Heard, uid: int | None) -> bool:
    """Whether a daemon that names a process of user ``uid`` as its client says what cannot be: only a process of root's
    has clients of other users, also where its directory is a user's. Anybody may start his with -multiuser-server."""
    return uid is not None and heard.speaker.uid not in {None, 0, uid} and heard.uid != 0


def same_namespace(claimed: int | None, found: int | None, listed: bool) -> bool:
    """Whether a daemon's client number is proved to be the PID of the process that has this number here.

    ``claimed`` is the inode of the PID namespace that the daemon's ``ps`` prints for it (fact 14), ``found`` that of
    the process here; None where it is not known, or not printed, which proves nothing. ``listed``: NVML, which
    translates PIDs to the namespace of whoever asks, lists it as a client of MPS.
    """
    if claimed is not None and found is not None:
        return claimed == found
    return listed
