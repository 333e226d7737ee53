"""What is concluded from whose word, case by case; tests/attacks plays the same with real users."""

from __future__ import annotations

import signal
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import pytest

from mpstui.core.model import Daemon, ProcessKey
from mpstui.core.trust import (
    ANYBODY,
    NOBODY,
    Meant,
    NotNamedError,
    Speaker,
    as_yet,
    cut_off_by,
    end_not_found,
    end_usurped,
    in_anothers_place,
    is_anothers,
    is_lying,
    is_usurped,
    may_signal,
    meant,
    same_namespace,
    whose_word,
    why_not,
)
from mpstui.operations.signals import AFTER_KILL, Guard, end_process
from mpstui.operations.types import ExitStatus
from mpstui.system.procfs import Trouble

ROOT, ALICE, BOB = Speaker(0, "root's"), Speaker(2001, "alice's daemon"), Speaker(2002, "bob's daemon")


class Place(NamedTuple):
    pipe_dir: Path
    speaker: Speaker
    runs: bool = True
    uid: int | None = None
    pid: int | None = None

    def usurped(self, euid: int | None) -> bool:
        return is_usurped(self, euid)


def place(name: str, speaker: Speaker, runs: bool = True) -> Place:
    return Place(Path("/tmp", name), speaker, runs)


@pytest.mark.parametrize(
    ("speaker", "uids", "may"),
    [
        (ROOT, {2001}, True),
        (ROOT, set(), True),
        (ALICE, {2001}, True),
        (ALICE, {2001, 0}, False),  # a program that has another user's rights besides
        (ALICE, {2002}, False),
        (ALICE, set(), False),
        (NOBODY, {2001}, False),
        (NOBODY, set(), False),
    ],
)
def test_a_daemon_speaks_for_its_own_user(speaker: Speaker, uids: set[int], may: bool) -> None:
    assert may_signal(speaker, uids) is may


def test_why_it_does_not_is_said() -> None:
    assert "mpstui ends no process for this daemon: whose daemon it is has not been looked at" in why_not(
        NOBODY, 7, "bob"
    )
    assert why_not(ALICE, 7, "bob") == ("process 7 belongs to bob; alice's daemon is trusted for its user only")


@pytest.mark.parametrize(
    ("speaker", "uid", "whose"),
    [
        (ROOT, 0, None),
        (ALICE, 2001, 2001),
        (ALICE, 0, 2001),  # in a directory of root's that is open to her
        (ROOT, 2001, 2001),
        (Speaker(2002, "that of who looks"), 2002, None),
        (Speaker(None, "no sockets", by=2001), 0, 2001),
        (NOBODY, 2001, 2001),
        (NOBODY, 0, None),
        (NOBODY, None, None),
    ],
)
def test_it_is_another_users_word_where_any_of_it_is(speaker: Speaker, uid: int | None, whose: int | None) -> None:
    assert whose_word(Daemon(Path("/tmp/mps"), uid=uid, speaker=speaker), 2002) == whose


@pytest.mark.parametrize(
    ("speaker", "uid", "lies"),
    [
        (ALICE, 2002, True),
        (ALICE, 2001, False),
        (ALICE, None, False),
        (ROOT, 2002, False),
        (NOBODY, 2002, False),
    ],
)
def test_a_users_daemon_has_no_clients_of_others(speaker: Speaker, uid: int | None, lies: bool) -> None:
    daemon = Daemon(Path("/tmp/mps"), uid=speaker.uid, speaker=speaker)
    assert is_lying(daemon, uid) is lies
    assert not is_lying(replace(daemon, uid=0), uid), "root's process, in a directory of that user's"


@pytest.mark.parametrize("uid", [2001, None])
def test_who_puts_his_daemon_behind_roots_sockets_speaks_for_all(uid: int | None) -> None:
    assert not is_lying(Daemon(Path("/tmp/mps"), uid=uid, speaker=ROOT), 2002)
    assert is_lying(Daemon(Path("/tmp/mps"), uid=uid, speaker=ALICE), 2002)


@pytest.mark.parametrize(
    ("uid", "euid", "sockets", "usurped"),
    [
        (0, 2002, (2001,), True),
        (0, 0, (0, 2001), True),
        (0, 2002, (ANYBODY,), True),
        (0, 2002, (0,), False),
        (0, 2002, (), False),
        (2002, 2002, (2001,), True),
        (2002, 2002, (0, 2002), False),
        (2001, 2002, (2002,), False),  # a third user's daemon is nobody's business
        (1, 2002, (2001,), False),
        (None, 2002, (2001,), False),
    ],
)
def test_a_daemon_is_usurped_where_anothers_sockets_are_in_the_place_of_roots_or_ones_own(
    uid: int | None, euid: int, sockets: tuple[int, ...], usurped: bool
) -> None:
    daemon = Daemon(Path("/tmp/mps"), uid=uid, speaker=Speaker(None, "a mixture", sockets=sockets))
    assert is_usurped(daemon, euid) is usurped
    daemon = Daemon(Path("/tmp/mps"), uid=uid, speaker=Speaker(None, "a mixture", sockets=sockets, steered=True))
    assert not is_usurped(daemon, euid), "that directory is whatever another user makes of it"


def test_anybody_is_no_user() -> None:
    assert ANYBODY < 0
    assert is_anothers(ANYBODY, 0)


UNKNOWN = Speaker(None, "of nobody known", stamp=(1, 2, 3, 3, 4, 5))
STAMPED = ALICE._replace(stamp=(1, 2, 3, 3, 4, 5))


@pytest.mark.parametrize(
    ("asked", "now", "why"),
    [
        (ROOT, ROOT, None),
        (NOBODY, ROOT, None),  # nobody had looked
        (NOBODY, ALICE, None),
        (ROOT, ALICE, "(before: root's; now: alice's daemon)"),
        (ALICE, ROOT, "(before: alice's daemon; now: root's)"),
        (ALICE, NOBODY, "(before: alice's daemon; now: "),
        (UNKNOWN, ALICE, "(before: not known; now: alice's daemon)"),
        (UNKNOWN, UNKNOWN, None),
        (UNKNOWN, UNKNOWN._replace(stamp=()), "the daemon's directory or its sockets were replaced"),
        (UNKNOWN._replace(stamp=()), UNKNOWN, "the daemon's directory or its sockets were replaced"),
        (STAMPED, STAMPED._replace(stamp=(1, 2, 9, 9, 4, 5)), None),  # a file was made in it
        (STAMPED, STAMPED._replace(stamp=(1, 9, 3, 3, 4, 5)), "the daemon's directory or its sockets were replaced"),
        (STAMPED, STAMPED._replace(stamp=(1, 2, 3, 3, 3, 5)), "the daemon's directory or its sockets were replaced"),
        (STAMPED, ALICE, None),  # others may no longer write there
        (ALICE, STAMPED, None),
        (ROOT._replace(folder=(1, 2)), ROOT._replace(folder=(1, 2)), None),
        (ROOT._replace(folder=(1, 2)), ROOT, None),
        (ROOT._replace(folder=(1, 2)), ROOT._replace(folder=(1, 3)), "the path leads to another directory"),
    ],
)
def test_a_change_is_for_the_daemon_that_was_asked_about(asked: Speaker, now: Speaker, why: str | None) -> None:
    told = Meant(Path("/tmp/mps"), asked).why_not(now)
    assert told is None if why is None else why in str(told)


@pytest.mark.parametrize(
    ("claimed", "found", "listed", "same"),
    [
        (1, 1, False, True),
        (2, 1, True, False),
        (1, 2, True, False),  # what the kernel says comes before NVML's list
        (None, 1, True, True),
        (None, 1, False, False),
        (1, None, True, True),
        (1, None, False, False),
        (None, None, False, False),
    ],
)
def test_a_number_is_a_pid_of_ours_where_that_is_proved(
    claimed: int | None, found: int | None, listed: bool, same: bool
) -> None:
    assert same_namespace(claimed, found, listed) is same


def test_without_a_name_no_strangers_daemon_is_meant() -> None:
    roots, mine, bobs = place("root", ROOT), place("mine", ALICE), place("bob", BOB)
    ended, nobodys = place("ended", BOB, runs=False), place("nobody", NOBODY)
    gone = place("gone", ROOT, runs=False)
    assert meant([bobs, roots, gone, mine, ended, nobodys], lambda one: one.runs, 2001) == [roots, gone, mine]
    assert meant([ended], lambda one: one.runs, 2001) == [ended], "there is nothing else"
    assert meant([], lambda one: one.runs, 2001) == []
    with pytest.raises(NotNamedError, match="/tmp/bob is bob's daemon; to use it anyway, name it: --pipe-dir"):
        meant([ended, bobs, nobodys], lambda one: one.runs, 2001)
    with pytest.raises(NotNamedError, match="of an unknown user: whose daemon it is has not been looked at"):
        meant([nobodys], lambda one: one.runs, 2001)


@pytest.mark.parametrize(
    ("speaker", "named", "uids", "later", "why"),
    [
        (ROOT, None, {2001}, ROOT, None),
        (ROOT, None, set(), ROOT, "the owner of process 7 cannot be read"),
        (ROOT, None, {2001}, ALICE, "the daemon's directory has changed"),
        (ALICE, None, {2001}, ALICE, None),
        (ALICE, None, {2002}, ALICE, "is trusted for its user only"),
        (ALICE, 2002, {2002}, ALICE, None),
        (NOBODY, 2002, {2002}, ROOT, None),
        (NOBODY, 2002, {2001}, NOBODY, "mpstui ends no process for this daemon"),
        (NOBODY, 2002, {2002, 0}, NOBODY, "mpstui ends no process for this daemon"),
        (NOBODY, 2002, set(), NOBODY, "the owner of process 7 cannot be read"),
    ],
)
def test_right_before_a_signal_it_is_asked_again_whose_the_process_is(
    speaker: Speaker, named: int | None, uids: set[int], later: Speaker, why: str | None
) -> None:
    """``named``: the owner whom the admin has typed; that one is enough without the daemon, and no other."""
    guard = Guard(Path("/p"), speaker, lambda path: later, named)
    process = SimpleNamespace(key=ProcessKey(7, 7), uids=lambda: uids)
    said = guard(process)  # type: ignore[arg-type]
    assert said is None if why is None else why in str(said)


@pytest.mark.parametrize(
    ("later", "has_servers_there", "changed"),
    [
        ((1, 2, 3, 3, 4, 5), False, False),
        ((1, 2, 9, 9, 4, 5), False, True),
        ((1, 2, 9, 9, 4, 5), True, False),
        ((1, 2, 9, 9, 4, 9), True, True),
        ((1, 2, 9, 9, 9, 5), True, True),
        ((1, 9, 3, 3, 4, 5), True, True),
        ((9, 2, 3, 3, 4, 5), True, True),
        ((), True, True),
    ],
)
def test_a_daemon_that_removes_its_servers_directories_has_not_exchanged_its_own(
    later: tuple[int, ...], has_servers_there: bool, changed: bool
) -> None:
    """Of a directory that others may write to: device, inode, its two times, and a socket's inode and time."""
    asked, now = ROOT._replace(stamp=(1, 2, 3, 3, 4, 5)), ROOT._replace(stamp=later)
    guard = Guard(Path("/p"), asked, lambda path: now, has_servers_there=has_servers_there)
    process = SimpleNamespace(key=ProcessKey(7, 7), uids=lambda: {0})
    said = guard(process)  # type: ignore[arg-type]
    assert said == (
        "the daemon's directory has changed, so mpstui does not know which daemon answered" * changed or None
    )


def test_a_usurped_daemon_is_meant_as_a_process_alone() -> None:
    """A command would go to who answers in its place."""
    taken = Place(Path("/tmp/my mps"), BOB._replace(sockets=(2002, 0)), uid=0, pid=7)
    bobs = place("bob", BOB)
    for found in ([taken], [bobs, taken]):
        with pytest.raises(NotNamedError, match="daemon 7 of root runs in /tmp/my mps, but its sockets") as refused:
            meant(found, lambda one: one.runs, 2001)
        assert "mpstui daemon stop --force --pipe-dir '/tmp/my mps'" in str(refused.value)
        assert meant(found, lambda one: one.runs, 2001, as_process=True) == [taken]


async def test_unless_it_is_said_a_daemon_makes_nothing_in_its_directory_meanwhile() -> None:
    times = [ALICE._replace(stamp=(1, 2, now, now, 4, 5)) for now in (3, 9)]
    begun = await Guard.begin(Path("/p"), lambda path: times[0])
    process = SimpleNamespace(key=ProcessKey(7, 7), uids=lambda: {2001})
    for now, why in ((times[0], None), (times[1], "the daemon's directory has changed")):
        begun._find = lambda path, now=now: now  # type: ignore[misc]
        for guard in (begun, Guard(Path("/p"), times[0], lambda path, now=now: now)):  # type: ignore[misc]
            said = guard(process)  # type: ignore[arg-type]
            assert said is None if why is None else str(said).startswith(why)


TERM, KILL = signal.SIGTERM, signal.SIGKILL


@pytest.mark.parametrize(
    ("ends_at", "forbids", "trouble", "kill", "status", "sent"),
    [
        (TERM, [None], None, True, ExitStatus.DONE, [TERM]),
        (KILL, [None, None], None, True, ExitStatus.DONE, [TERM, KILL]),
        (None, [None, None], None, True, ExitStatus.NO_ANSWER, [TERM, KILL]),
        (KILL, [None], None, False, ExitStatus.NO_ANSWER, [TERM]),
        (TERM, ["his"], None, True, ExitStatus.REFUSED_BY_SAFETY_RULE, []),
        (KILL, [None, "his"], None, True, ExitStatus.REFUSED_BY_SAFETY_RULE, [TERM]),  # it has become somebody else's
        (0, ["not seen"], None, True, ExitStatus.DONE, []),  # it has ended, so that it cannot be seen whose it was
        (TERM, [None], Trouble("no", not_permitted=True), True, ExitStatus.NOT_PERMITTED, []),
        (TERM, [None], Trouble("no"), True, ExitStatus.REFUSED_BY_SAFETY_RULE, []),
    ],
)
async def test_before_each_signal_it_is_asked_again_and_sigkill_is_the_last(
    ends_at: int | None,
    forbids: list[str | None],
    trouble: Trouble | None,
    kill: bool,
    status: ExitStatus,
    sent: list[signal.Signals],
) -> None:
    done: list[signal.Signals] = []
    waits: list[float] = []

    def send(number: signal.Signals) -> Trouble | None:
        if trouble is None:
            done.append(number)
        return trouble

    async def wait(patience: float) -> bool:
        waits.append(patience)
        return ends_at == 0 or ends_at in done

    process = SimpleNamespace(key=ProcessKey(7, 7), send=send, wait=wait)
    how = {} if kill else {"kill": False}
    ended = await end_process(process, 2.0, lambda text: None, lambda _: forbids.pop(0), **how)  # type: ignore[arg-type]
    assert (ended[0], done, forbids) == (status, sent, [])
    assert set(waits) <= {0, 2.0, AFTER_KILL}, "of one that may not be signalled it is asked, and not waited for"


ONES_OWN = Speaker(2001, "alice's daemon", owner=2001, sockets=(2001,))


@pytest.mark.parametrize(
    ("speaker", "euid", "other"),
    [
        (ALICE._replace(owner=0, sockets=(0, 2001)), 0, 2001),
        (ALICE._replace(owner=0, sockets=(2001,)), 2002, 2001),
        (ALICE._replace(owner=2002, sockets=(2001,)), 2002, 2001),
        (ALICE._replace(owner=0, sockets=(2001,)), 2001, None),  # her own, to herself
        (
            ALICE._replace(owner=2002, sockets=(2001,)),
            0,
            None,
        ),  # of a directory of a third one's nobody expects anything
        (ONES_OWN, 0, None),
        (ONES_OWN._replace(owner=None), 0, None),  # nobody has looked
        (ROOT._replace(owner=0, sockets=(0,)), 2001, None),
        (ROOT._replace(owner=0, sockets=(ANYBODY,)), 0, None),
        (ROOT._replace(owner=0, sockets=(ANYBODY, 2002)), 0, 2002),
    ],
)
def test_whose_sockets_are_in_a_directory_of_anothers(speaker: Speaker, euid: int, other: int | None) -> None:
    assert in_anothers_place(Place(Path("/p"), speaker, uid=2001), euid) == other


def test_one_that_is_cut_off_is_not_told_so_as_well() -> None:
    cut = Place(Path("/p"), ALICE._replace(owner=0, sockets=(2001,)), uid=0)
    assert (cut.usurped(0), in_anothers_place(cut, 0)) == (True, None)


@pytest.mark.parametrize(
    ("uid", "reached", "end"),
    [
        (0, None, "As root, once its clients have ended, end its process: "),
        (0, True, "As root, once its clients have ended, end its process: "),
        (0, False, "As root, end its process: "),
        (2001, None, "End its process, once its clients have ended: "),
        (2001, False, "End its process: "),
    ],
)
def test_how_a_daemon_that_is_cut_off_is_ended(uid: int, reached: bool | None, end: str) -> None:
    """No client loses its work where it can still come to its daemon."""
    cut = Place(Path("/p q"), ALICE._replace(reached=reached), uid=uid)
    assert end_usurped(cut).startswith(f"{end}mpstui daemon stop --force --pipe-dir '/p q'.")
    whose = "As root, end" if uid == 0 else "End"
    assert end_not_found(cut).startswith(f"{whose} its process, once its clients have ended: mpstui daemon stop")
    told = {None: "is not known", True: "can still connect through", False: None}[reached]
    assert as_yet(cut) is None if told is None else told in str(as_yet(cut))


def test_whose_the_sockets_of_one_are_that_is_cut_off() -> None:
    of = [ALICE._replace(sockets=(2001,)), ALICE._replace(sockets=(2001, ANYBODY)), NOBODY._replace(sockets=(2001,))]
    said = [cut_off_by(Place(Path("/p"), each, uid=0)) for each in of]
    assert said == [f"its sockets are those of {ALICE.why}", ALICE.why, NOBODY.why]


def test_of_several_that_are_cut_off_the_first_is_told() -> None:
    cut = [
        Place(Path("/first"), BOB._replace(sockets=(2002,)), uid=0, pid=7),
        Place(Path("/second"), BOB._replace(sockets=(2002,)), uid=2001, pid=8),
    ]
    with pytest.raises(NotNamedError) as refused:
        meant(cut, lambda one: one.runs, 2001)
    text = str(refused.value)
    assert text.startswith("nothing was sent: daemon 7 of root runs in /first, but")
    assert "--pipe-dir /first." in text
    assert "/second" not in text
