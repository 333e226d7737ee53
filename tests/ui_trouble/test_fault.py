"""The alert and the screen of a fault: what is offered, for whom, and the recovery."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mpstui.core.faults import fault_reports
from mpstui.core.model import LostClient, ProcessKey, Snapshot
from mpstui.core.trust import Speaker
from mpstui.ui.dialogs import HarmConfirm
from mpstui.ui.dialogs.facts import rows_of
from mpstui.ui.dialogs.widgets import DetailRow
from mpstui.ui.lines import fit_line, width_of
from mpstui.ui.trouble.alert import alert_lines
from mpstui.ui.trouble.fault import FaultScreen, Victim, victims_of
from tests.ui.screen import push, text_of
from tests.ui.snapshots import NOW, OTHER_PIPE

from .nodes import FATAL, A, B, C, D, containment, event, faulted, node, recovered, said, trouble_app

SIZE = (160, 48)


@pytest.mark.parametrize("size", [SIZE, (80, 24), (44, 12)])
async def test_the_alert_comes_stays_and_gives_way_to_the_recovery_for_a_minute(size) -> None:
    app = trouble_app(node())
    async with app.run_test(size=size) as pilot:
        assert "FAULT" not in text_of(app)
        text = await push(pilot, faulted(A, B, C))
        assert "✕ FAULT server 1402" in text
        assert "! what to do" in text
        if size == SIZE:
            assert "3 clients have to end before it takes new ones; 2 refused so far" in text
            assert (
                "still to end: 3000, 3001, 3002; server.log names client 3000 (alice, python train.py), which is"
                in text
            )
        if size == (80, 24):
            assert "server 1402, 12s ago: 3 to end; 2 refused" in text
        text = await push(pilot, recovered())
        assert "✓ RECOVERED server 1402 takes new" in text
        assert "✕ FAULT" not in text
        later = replace(recovered(), time=NOW + 70)
        assert "RECOVERED" not in await push(pilot, later)


def test_what_the_logs_word_is_worth_is_seen_at_every_width() -> None:
    """At 100 columns the line ended behind the user's name, and what was cut was that it is no proof."""
    fault = faulted(A, B, C)
    (server,) = fault.daemons[0].servers
    assert server.fault is not None
    for named in ((), (3000,), (4194301, 4194302, 4194303, 3000)):
        told = replace(server, fault=replace(server.fault, named=named))
        daemon = replace(fault.daemons[0], servers=(told,))
        for width in range(80, 240):
            _, who = alert_lines(fault, daemon, width, 2)
            assert width_of(who) <= width
            assert ("proof" in str(who)) == bool(named), (width, who)
        for width in range(20, 80):
            shown = fit_line(alert_lines(fault, daemon, width, 2)[1], width)
            assert not any(str(pid) in str(shown) for pid in named) or "proof" in str(shown), (width, shown)


@pytest.mark.parametrize(("size", "named"), [((80, 24), "◀ named, not proof"), ((120, 40), "◀ named")])
async def test_whom_the_log_names_has_a_command_where_the_list_is_narrow(size, named) -> None:
    """At 120 columns the note had all the room, and which program has to end was told of all others."""
    app = trouble_app(faulted(A, B, C))
    async with app.run_test(size=size) as pilot:
        await pilot.press("exclamation_mark")
        lines = [line.split("│")[1] for line in text_of(app).splitlines() if line.count("│") > 1]
        at = next(at for at, line in enumerate(lines) if "3000" in line and "alice" in line)
        assert "python" in " ".join(lines[at : at + 2]).partition(named)[2].partition("3001")[0]


async def test_what_another_users_daemon_says_of_a_fault_is_said_as_his() -> None:
    """In red, as a fact, it stood first on root's screen: whoever starts a daemon may have it say so."""
    healthy = node()
    servers = tuple(replace(server, status="FAULT") for server in healthy.daemons[0].servers)
    his = replace(
        healthy.daemons[0],
        servers=servers,
        uid=64301,
        user="mallory",
        speaker=Speaker(64301, "a daemon of mallory"),
        simulated=False,
    )
    app = trouble_app(replace(healthy, daemons=(his,)))
    async with app.run_test(size=SIZE) as pilot:
        text = text_of(app)
        assert "? mallory's daemon says that server 1402 is in FAULT" in text
        assert "? FAULT" in text.splitlines()[0]
        await pilot.press("exclamation_mark")
        assert "mallory's daemon says that its server 1402 is in FAULT" in said(app)
        assert "leave it to its owner" in said(app)
        assert "are refused" not in said(app)


async def test_a_fault_that_no_log_tells_of_is_not_called_none() -> None:
    """The daemon says FAULT, and its logs are somebody else's, or not to be read."""
    healthy = node()
    servers = tuple(replace(server, status="FAULT") for server in healthy.daemons[0].servers)
    app = trouble_app(replace(healthy, daemons=(replace(healthy.daemons[0], servers=servers),)))
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("exclamation_mark")
        told = said(app)
        assert "Server 1402 is in FAULT. No log reports it, so the affected clients are not known." in told
        assert "No server is in FAULT" not in told
        assert "not known: no log names the affected clients" in text_of(app)
        await pilot.press("e", "enter")
        assert isinstance(app.screen, FaultScreen), "nobody is offered"


async def test_whom_a_fault_has_hit_by_another_users_daemon_does_not_have_to_end() -> None:
    """It said of root's processes that they have to end, and made a note to root that asks for it."""
    claimed = faulted(A, B, C, confirmed=False, doubt="no proof: a daemon of mallory")
    app = trouble_app(claimed)
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("exclamation_mark")
        text, told = text_of(app), said(app)
        assert (text.count("? by the log"), "has to end" in text + told) == (3, False)
        assert "server.log reports a fatal fault" in told
        assert "no proof: a daemon of mallory" in told
        assert "This report is no proof, so mpstui offers no action" in told
        assert "Tell the owners" not in told
        await pilot.press("y")
        assert "there is no note" in [*app._notifications][-1].message


async def test_a_daemon_that_cannot_confirm_a_fault_is_not_said_to_be_asked() -> None:
    """Drivers before 550 have no get_server_status (fact 46)."""
    old = faulted(A, B, C, confirmed=False)
    lacking = replace(old.daemons[0], driver="535.261.03", lacks=frozenset({"get_server_status"}))
    app = trouble_app(replace(old, daemons=(lacking,)))
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("exclamation_mark")
        told = said(app)
        assert "asks the daemon" not in told
        assert (
            "get_server_status, which would confirm it, is not in driver 535, so mpstui offers no action: end no "
            "process because of it."
        ) in told


@pytest.mark.parametrize("size", [SIZE, (80, 24)])
async def test_what_the_log_alone_says_is_told_as_its_word_and_offers_nothing(size) -> None:
    app = trouble_app(faulted(A, B, C, confirmed=False))
    async with app.run_test(size=size) as pilot:
        text = text_of(app)
        assert "▲ FAULT? server" in text
        assert "the daemon has not confirmed it" in text
        assert "to end" not in text
        assert "what to do" not in text.lower()
        await pilot.press("exclamation_mark")
        told = said(app)
        assert "mpstui offers no action: end no process because of it." in told
        assert "End them" not in told
        assert "End all" not in told
        assert "? by the log" in text_of(app)
        assert "has to end" not in text_of(app)
        await pilot.press("x", "e", "y", "Y")
        assert isinstance(app.screen, FaultScreen)
        assert app.clipboard == "", "no note that asks an owner to end something"
        await push(pilot, faulted(A, B, C))
        assert "End all 3: e" in said(app), "once the daemon says so"


async def test_a_fault_that_no_log_explains_is_said_too() -> None:
    app = trouble_app(node(server_changes={"status": "FAULT"}))
    async with app.run_test(size=SIZE):
        assert "server 1402 is in FAULT and takes no new clients; no log says" in text_of(app)


async def test_offers_stand_in_order_with_whom_the_log_names_and_what_that_is_worth() -> None:
    app = trouble_app(faulted(A, B, C, ended_nearby=(2999,)))
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("exclamation_mark")
        text = text_of(app)
        places = [
            text.index(part)
            for part in (
                "2 new connections refused so far",
                "server.log names client 3000 (alice, python",
                "Client 2999 ended at the same moment",
                "Still to end before the server takes new clients: 3000, 3001, 3002.",
                "1 Tell the owners: y copies the note to alice, Y those to all 3.",
                "2 End them one by one: x ends process 3000",
                "3 End all 3: e",
            )
        ]
        assert places == sorted(places)
        assert "● runs on" in text
        assert "◀ named, not proof" in next(line for line in text.splitlines() if "3000" in line and "alice" in line)


async def test_of_clients_in_containers_nobody_is_counted_and_nobody_is_noted() -> None:
    """It offered "End all 0" and the note to "—"."""
    told = faulted(A)
    server = told.daemons[0].servers[0]
    fault = replace(server.fault, affected=())
    server = replace(server, clients=(), clients_elsewhere=2, fault=fault)
    app = trouble_app(replace(told, daemons=(replace(told.daemons[0], servers=(server,)),)))
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("exclamation_mark")
        assert "No process can be ended from here" in said(app)
        assert "There is no note: the owners of the affected processes are not known here." in said(app)
        for word in ("End all", "End them", "Tell the owners"):
            assert word not in said(app)


async def test_the_notes_go_to_the_clipboard_one_by_one_and_together() -> None:
    app = trouble_app(faulted(A, B, C))
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("exclamation_mark", "j", "y")
        assert app.clipboard.startswith("To bob:")
        assert "3001  vllm serve llama" in app.clipboard
        assert "3000  python" not in app.clipboard
        await pilot.press("Y")
        assert [line for line in app.clipboard.splitlines() if line.startswith("To ")] == [
            "To alice:",
            "To bob:",
            "To carol:",
        ]


async def test_the_note_is_to_whom_the_cursor_is_on_or_there_is_none() -> None:
    """With the cursor on dave, whose process runs on, it copied the note to alice."""
    app = trouble_app(faulted(A, B, C))
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("exclamation_mark", "G")
        assert "put the cursor on a process that has to end, then y; Y copies those to all 3." in said(app)
        assert "To alice" not in said(app)
        await pilot.press("y")
        assert app.clipboard == ""
        assert f"there is no note to dave: {D.pid} runs on" in [*app._notifications][-1].message
        await pilot.press("Y")
        assert "To alice" in app.clipboard


def test_a_note_does_not_tell_its_reader_to_wait_for_what_has_failed() -> None:
    """It said that "these" end in any way, and next that "one that still computes" waits: of them none computes."""
    snapshot = faulted(A, B, C)
    for note in fault_reports(snapshot.daemons[0], snapshot)[0].notes:
        assert "Do not kill a client that is not listed here while its kernel runs" in note.text
        assert "They may be ended in any way" in note.text


def test_the_details_of_a_client_that_was_hit_say_so_as_its_row_does() -> None:
    snapshot = faulted(A, B, C)
    title, rows = rows_of(snapshot, "client", B) or ("", [])
    states = [row.value for row in rows if isinstance(row, DetailRow) and row.label == "state"]
    assert (title, states) == (f"Client {B.pid}", ["LOST: a fault took its contexts; the daemon says ACTIVE"])


@pytest.mark.slow
async def test_one_or_all_are_asked_for_by_identity_and_who_runs_on_never() -> None:
    app = trouble_app(faulted(A, B, C))
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("exclamation_mark", "j")
        assert text_of(app).splitlines()[-1].rstrip().endswith("Esc Back  ? Help")
        await pilot.press("x")
        assert isinstance(app.screen, HarmConfirm)
        assert app.screen.clients == (B,)
        await pilot.press("escape", "e")
        assert app.screen.clients == (A, B, C)
        await pilot.press("escape", "G", "x")
        assert isinstance(app.screen, FaultScreen), "dave's runs on: x is not for it"
        left = ", ".join(str(each.pid) for each in (A, B, C))
        assert [*app._notifications][-1].message.endswith(f" runs on; still to end: {left}")


async def test_who_has_gone_is_ticked_off_and_the_recovery_told_on_the_same_screen() -> None:
    app = trouble_app(faulted(A, B, C))
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("exclamation_mark")
        text = await push(pilot, faulted(B))
        rows = {n: line for line in text.splitlines() for n in ("3000", "3001", "3002") if f"  {n} " in line[:12]}
        assert "✓ disconnected" in rows["3000"]
        assert "✕ has to end" in rows["3001"]
        assert "✓ disconnected" in rows["3002"]
        text = await push(pilot, recovered())
        assert "Server 1402 has recovered" in text
        assert "takes new clients again, since 12:04:30, 11s after the fault" in text
        assert "2 connections had been refused" in text
        assert "Tell the owners" not in text


def not_looked_at(snapshot: Snapshot) -> Snapshot:
    """The same before /proc's word on the clients is there: the daemon's numbers are all that is known of them."""
    one = snapshot.daemons[0]
    server = one.servers[0]
    clients = tuple(replace(c, key=ProcessKey(c.pid), user=None, uid=None) for c in server.clients)
    assert server.fault is not None
    fault = replace(server.fault, affected=tuple(ProcessKey(key.pid) for key in server.fault.affected))
    return replace(snapshot, daemons=(replace(one, servers=(replace(server, clients=clients, fault=fault),)),))


def states(*pictures: Snapshot) -> list[tuple[ProcessKey, str]]:
    """What the rows say after these pictures."""
    seen: list[Victim] = []
    for picture in pictures:
        one = picture.daemons[0]
        there = [each.key for each in (*one.clients(), *one.lost)]
        seen = victims_of(seen, fault_reports(one, picture), there)
    return [(row.key, row.state) for row in seen]


def test_a_client_that_is_looked_at_later_stays_one_row_and_has_not_ended() -> None:
    known = faulted(A, B, C)
    stand = [(A, "left"), (B, "left"), (C, "left"), (D, "unhurt")]
    assert states(not_looked_at(known), known) == stand
    assert states(known, not_looked_at(known), known) == stand, "nor has one whose identity is doubted for a while"
    assert states(not_looked_at(known), faulted(B)) == [
        (B, "left"),
        (ProcessKey(A.pid), "unknown"),
        (ProcessKey(C.pid), "unknown"),
        (D, "unhurt"),
    ]
    again = ProcessKey(A.pid, 99)
    assert (A, "gone") in states(known, faulted(B, again)), "another process of the number is another one"


async def test_who_lives_when_the_fault_is_over_has_not_ended() -> None:
    """The daemon says that the log's fault is none, or the server has ended without its clients."""
    app = trouble_app(faulted(A, B, C, confirmed=False))
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("exclamation_mark")
        text = await push(pilot, containment())
        assert (text.count("● runs on"), "✓ disconnected" in text) == (4, False)
        await push(pilot, faulted(A, B, C))
        one = node().daemons[0]
        alone = replace(one, servers=(), lost=(LostClient(A, 1402), LostClient(B, 1402)))
        await push(pilot, replace(node(), daemons=(alone,)))
        stand = [(row.key, row.state) for row in app.screen.panel.rows]
        assert stand == [(C, "gone"), (D, "gone"), (A, "unhurt"), (B, "unhurt")]


async def test_ended_is_not_said_of_a_client_that_was_never_known() -> None:
    known = faulted(A, B, C)
    app = trouble_app(not_looked_at(known))
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("exclamation_mark", "j")
        text = await push(pilot, known)
        assert (text.count("✕ has to end"), text.count("● runs on"), text.count("✓ disconnected")) == (3, 1, 0)
        assert "x ends process 3001" in said(app), "the cursor stays on its client"
        await push(pilot, not_looked_at(known))
        text = await push(pilot, not_looked_at(faulted(B)))
        assert "✓ disconnected" not in text
        assert [row.state for row in app.screen.panel.rows] == ["left", "unknown", "unknown", "unhurt"]


@pytest.mark.slow
async def test_the_cursor_goes_on_to_the_next_one_that_has_to_end() -> None:
    app = trouble_app(faulted(A, B, C))
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("exclamation_mark", "j")
        assert "x ends process 3002" in await push(pilot, faulted(A, C))
        assert "x ends process 3000" in await push(pilot, faulted(A))
        await pilot.press("j")
        await push(pilot, faulted(A))
        assert "put the cursor on a process that has to end" in text_of(app), "the user's choice of row stays"
        assert "has recovered" in await push(pilot, recovered())


@pytest.mark.parametrize(
    ("ended_nearby", "to", "said"),
    [
        ((), "alice", "server.log names your client 3000, which is not proof: with busy neighbours it often names"),
        ((), "carol", "server.log names client 3000, which is not proof: with busy neighbours it often names the"),
        ((2999,), "bob", "Client 2999 ended at the same moment: if it was killed while busy"),
        ((), "bob", "Run it alone under compute-sanitizer"),
    ],
)
def test_the_notes_say_no_more_of_the_cause_than_the_log_does(ended_nearby, to, said) -> None:
    snapshot = faulted(A, B, C, ended_nearby=ended_nearby)
    notes = fault_reports(snapshot.daemons[0], snapshot)[0].notes
    assert said in next(note.text for note in notes if note.user == to)


async def test_a_server_that_ended_instead_has_no_recovery() -> None:
    app = trouble_app(faulted(A))
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("exclamation_mark")
        gone = node()
        gone = replace(gone, daemons=(replace(gone.daemons[0], servers=()),))
        assert "Server 1402 has ended; the next client gets a new one." in await push(pilot, gone)


async def test_nothing_is_wrong_is_said() -> None:
    app = trouble_app(node())
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("exclamation_mark", "x", "e", "y", "Y")
        assert "No server is in FAULT." in text_of(app)
        await pilot.press("escape")
        assert app.screen is app.overview


async def test_read_only_offers_the_notes_alone_and_says_why() -> None:
    app = trouble_app(faulted(A, B, C), read_only=True)
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("exclamation_mark", "e")
        assert isinstance(app.screen, FaultScreen)
        assert "Not now: mpstui runs read-only." in text_of(app)
        await pilot.press("y")
        assert app.clipboard.startswith("To alice:")


async def test_a_client_whose_name_is_hostile_is_shown_as_text() -> None:
    snapshot = faulted(A)
    server = snapshot.daemons[0].servers[0]
    bad = replace(server.clients[0], user="[/bad]", command="[bold]x \\x1b[2J")
    server = replace(server, clients=(bad, *server.clients[1:]))
    snapshot = replace(snapshot, daemons=(replace(snapshot.daemons[0], servers=(server,)),))
    app = trouble_app(snapshot)
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("exclamation_mark", "y")
        assert "[bold]x \\x1b[2J" in text_of(app)


async def test_the_problem_bar_and_the_alert_open_their_screens_by_mouse() -> None:
    app = trouble_app(faulted(A))
    async with app.run_test(size=SIZE) as pilot:
        await pilot.click("#alert", offset=(20, 0))
        await pilot.pause()
        assert isinstance(app.screen, FaultScreen)


async def test_an_old_recovery_of_another_directory_is_not_told() -> None:
    other = event(1, "server_recovered")._replace(pipe_dir=OTHER_PIPE)
    app = trouble_app(node(events=(FATAL, other)))
    async with app.run_test(size=SIZE):
        assert "RECOVERED" not in text_of(app)
