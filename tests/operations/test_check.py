"""What is refused before anything is sent, and what a preview says."""

from __future__ import annotations

import os
import re
from dataclasses import replace

import pytest

from mpstui.control.drivers import absent_from
from mpstui.core import condition
from mpstui.core.model import Client, Condition, ProcessKey, ServerFault, Snapshot
from mpstui.core.trust import ANOTHER_NAMESPACE, NOT_PROVED, Speaker
from mpstui.operations.check import Refused, namespace_words, parse_uid, reachable_daemon
from mpstui.operations.limits import SMALL, memory_text, parse_memory, parse_percentage, parse_priority
from mpstui.operations.registry import operation, preview
from mpstui.operations.types import ExitStatus, Request
from mpstui.system.procfs import pid_namespace

from .fakes import GPU, OTHER_GPU, PIPE, as_root, client, node


@pytest.mark.parametrize(
    "text", ["0", "101", "-5", "abc", "", "100.1", "nan", "inf", "1e1", "５０", "0.0", "25 25", "."]
)
def test_a_wrong_percentage_is_refused(text: str) -> None:
    with pytest.raises(Refused, match=re.escape(f"{text or 'nothing'!r} is no percentage")) as refused:
        parse_percentage(text)
    assert refused.value.status is ExitStatus.USAGE


@pytest.mark.parametrize(("limit", "warned"), [("1023M", True), ("1G", False), ("2G", False)])
def test_a_limit_that_leaves_little_beside_a_context_is_warned_of(limit: str, warned: bool) -> None:
    shown = preview(Request("set_pinned_mem_limit", PIPE, limit, None, "0"), node())
    assert (SMALL in shown.warnings) is warned


@pytest.mark.parametrize(
    ("text", "value"), [("0.1", 0.1), ("100", 100.0), (" 33.3 ", 33.3), ("25%", 25.0), ("25 %", 25.0), (".4", 0.4)]
)
def test_a_right_percentage_is_taken(text: str, value: float) -> None:
    assert parse_percentage(text) == value


@pytest.mark.parametrize(
    "text",
    ["512MB", "-1G", "0G", "abc", "", "1.5G", "10", "1T", "10 gb", "0 GiB", "1.3 GiB", "10 GiBs", "٣G", "9" * 30 + "G"],
)
def test_a_wrong_memory_limit_is_refused(text: str) -> None:
    with pytest.raises(Refused):
        parse_memory(text)


@pytest.mark.parametrize("text", ["99999999999G", "8589934592G", "8796093022208M", "8589934592.0 GiB"])
def test_a_memory_limit_of_more_than_63_bits_is_refused_and_never_sent(text: str) -> None:
    """A daemon keeps 64 bits of it: 99999999999G would be another limit, in silence (fact 26)."""
    with pytest.raises(Refused, match="the largest size is 8589934591G") as refused:
        parse_memory(text)
    assert refused.value.status is ExitStatus.USAGE


def test_what_was_typed_is_what_is_refused() -> None:
    with pytest.raises(Refused, match="'abc' is no memory limit"):
        parse_memory(" abc ")


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("900M", 900 << 20),
        ("10G", 10 << 30),
        ("2g", 2 << 30),
        ("10 G", 10 << 30),
        ("10GiB", 10 << 30),
        ("10 gib", 10 << 30),
        (" 10.0 GiB ", 10 << 30),
        ("1.5 GiB", 1536 << 20),
        ("900 MiB", 900 << 20),
        ("8589934591G", 8589934591 << 30),
    ],
)
def test_a_right_memory_limit_is_taken(text: str, size: int) -> None:
    assert parse_memory(text) == size


def test_none_takes_a_memory_limit_away() -> None:
    assert parse_memory("None") is None
    assert [memory_text(size) for size in (None, 10 << 30, 900 << 20)] == ["0", "10G", "900M"]
    shown = preview(Request("set_pinned_mem_limit", PIPE, "none", 634, "0"), node())
    assert ("new value", "none on device 0") in shown.facts
    assert shown.error is None


@pytest.mark.parametrize("text", ["2", "7", "-1", "", "high", "²"])
def test_a_wrong_priority_is_refused(text: str) -> None:
    with pytest.raises(Refused):
        parse_priority(text)


@pytest.mark.parametrize(("text", "value"), [("0", 0), ("1", 1), ("normal", 0), ("Below normal", 1)])
def test_a_right_priority_is_taken(text: str, value: int) -> None:
    assert parse_priority(text) == value


def test_a_user_is_a_name_or_a_number() -> None:
    assert parse_uid("root") == 0
    assert parse_uid("2001") == 2001
    for wrong in ("nosuchuser", "", "-1", "4294967295", "4294967296", "a\0b"):
        with pytest.raises(Refused):
            parse_uid(wrong)


def set_threads(value: str, server: int | None = 634) -> Request:
    return Request("set_active_thread_percentage", PIPE, value, server)


def test_a_percentage_shows_its_sms_and_whom_it_does_not_reach() -> None:
    shown = preview(set_threads("25"), node())
    assert ("now", "100 %  132 SM") in shown.facts
    assert ("new value", "25 %  32 SM") in shown.facts
    assert shown.not_reached == ("643 alice python job643.py",)
    assert shown.error is None
    assert not shown.warnings


def test_a_tiny_percentage_is_taken_with_a_warning() -> None:
    shown = preview(set_threads("0.1"), node())
    assert ("new value", "0.1 %  8 SM") in shown.facts
    assert "smallest share, 8 SM" in shown.warnings[0]


def test_an_unmeasured_device_is_marked_as_estimated() -> None:
    snapshot = node()
    snapshot = replace(
        snapshot, devices=tuple(replace(d, compute_capability=(8, 0), sm_count=108) for d in snapshot.devices)
    )
    assert ("new value", "25 %  ≈26 SM") in preview(set_threads("25"), snapshot).facts


def test_an_unknown_server_is_refused_and_the_running_ones_are_named() -> None:
    shown = preview(set_threads("25", 999999), node())
    assert shown.error == "no server 999999 there; running: 634"
    assert shown.error_status is ExitStatus.REFUSED_BY_DAEMON


@pytest.mark.parametrize("device", ["5", "7", "GPU-none", "", "-1"])
def test_a_memory_limit_needs_a_device_of_the_daemon(device: str) -> None:
    shown = preview(Request("set_pinned_mem_limit", PIPE, "2G", 634, device), node())
    assert shown.error is not None
    assert GPU in shown.error
    assert shown.error_status is ExitStatus.USAGE


@pytest.mark.parametrize("device", ["1", OTHER_GPU])
def test_a_memory_limit_takes_an_ordinal_or_a_uuid(device: str) -> None:
    shown = preview(Request("set_pinned_mem_limit", PIPE, "2G", 634, device), node())
    assert ("now", "none") in shown.facts
    assert ("new value", "2.0 GiB of 79.6 GiB for each client on device 1") in shown.facts


def test_a_memory_limit_that_nobody_has_read_is_not_none() -> None:
    unread = node(default_active_thread_percentage=None)
    assert ("now", "—") in preview(Request("set_pinned_mem_limit", PIPE, "2G", None, "0"), unread).facts
    read = node(default_active_thread_percentage=100.0)
    assert ("now", "none") in preview(Request("set_pinned_mem_limit", PIPE, "2G", None, "0"), read).facts


def test_a_memory_limit_that_cannot_help_is_warned_of() -> None:
    too_much = preview(Request("set_pinned_mem_limit", PIPE, "100G", 634, "0"), node())
    too_little = preview(Request("set_pinned_mem_limit", PIPE, "256M", 634, "0"), node())
    assert "more than any device has" in too_much.warnings[0]
    assert "context counts against the limit" in too_little.warnings[0]


@pytest.mark.parametrize("scope", [634, None])
@pytest.mark.parametrize(
    ("limit", "why"),
    [
        ("1M", "under 1.0 MiB no client starts: a CUDA context alone takes 58.0 MiB and more"),
        ("57M", "under 57.0 MiB no client starts"),
        ("160G", "160 GiB is more than any device has: 79.6 GiB; none takes the limit away"),
    ],
)
def test_a_memory_limit_that_cannot_be_meant_is_refused(limit: str, why: str, scope: int | None) -> None:
    shown = preview(Request("set_pinned_mem_limit", PIPE, limit, scope, "0"), node())
    assert (shown.error_status, why in (shown.error or "")) == (ExitStatus.USAGE, True), shown.error
    unseen = preview(Request("set_pinned_mem_limit", PIPE, "160G", scope, "0"), replace(node(), devices=()))
    assert unseen.error is None, "what the devices have is not known"


@pytest.mark.parametrize(
    ("found", "status"),
    [
        (condition.absent("why", ""), ExitStatus.NO_DAEMON),
        (condition.gone("why", ""), ExitStatus.NO_DAEMON),
        (condition.held(None, "why", None, condition.Moment()), ExitStatus.NO_ANSWER),
        (condition.silent("why", (), False, condition.Moment()), ExitStatus.NO_ANSWER),
    ],
)
def test_nothing_is_sent_to_a_daemon_that_does_not_answer(found: Condition, status: ExitStatus) -> None:
    shown = preview(set_threads("25"), node(condition=found))
    assert shown.error_status is status
    assert "why" in (shown.error or "")


@as_root
def test_another_users_daemon_is_not_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 2001)
    shown = preview(set_threads("25"), node())
    assert shown.error_status is ExitStatus.NOT_PERMITTED
    assert "root" in (shown.error or "")


def end(*keys: ProcessKey, kill: bool = False) -> Request:
    return Request("terminate_and_kill" if kill else "terminate_client", PIPE, clients=keys)


THIRD_GPU = "GPU-30bc6a1c-3e3c-c13e-bb27-81232f82b77d"


@as_root
def test_ending_a_client_names_it_those_on_its_gpus_and_those_reached_through_them() -> None:
    """The graph of the containment recording: A{0} B{0,1} C{1}; D, on a GPU of its own, is not concerned (fact 18)."""
    snapshot = node(client(901), client(902, GPU, OTHER_GPU), client(903, OTHER_GPU), client(904, THIRD_GPU))
    shown = preview(end(ProcessKey(901, 1), kill=True), snapshot)
    assert shown.hits == ("901 alice python job901.py",)
    beside, further = shown.others
    assert (beside.title, beside.clients) == (
        "Share a GPU with it, and run on as a rule",
        ("902 alice python job902.py",),
    )
    assert further.clients == ("903 alice python job903.py",)
    assert further.title == "More clients on other GPUs would be lost if it faults while it is ended"
    assert "without that 2 other clients would be lost" in shown.warnings[0]
    assert dict(shown.facts)["others"].startswith(
        "1 shares a GPU with it, and runs on as a rule; 1 more client on other GPUs"
    )
    counts = "a terminated client still counts as a client until its process ends"
    assert counts not in shown.warnings, "its process is ended"
    assert preview(end(ProcessKey(901, 1)), snapshot).warnings == (counts,)


def faulted(*clients: Client, hit: int) -> Snapshot:
    """A node whose server is in FAULT; the first ``hit`` of its clients have lost their contexts."""
    shown = node(*clients)
    fault = ServerFault(1.0, (), tuple(client.key for client in clients[:hit]))
    daemon = shown.daemons[0]
    server = replace(daemon.servers[0], fault=fault)
    return replace(shown, daemons=(replace(daemon, servers=(server,)),))


@pytest.mark.parametrize("pid", [0, -1])
@pytest.mark.parametrize("kill", [False, True])
def test_what_is_no_process_is_not_ended(pid: int, kill: bool) -> None:
    """By number 0 a signal is for the whole group of whoever sends it."""
    shown = preview(end(ProcessKey(pid, 1), kill=kill), node(client(pid)))
    assert (shown.error_status, "has no number here" in (shown.error or "")) == (ExitStatus.NOT_PERMITTED, True)


@as_root
def test_of_a_client_that_a_fault_has_hit_nothing_is_said_that_is_over() -> None:
    """Its GPU work is lost, and so is that of those who shared a GPU with it; one on a GPU of its own runs on."""
    snapshot = faulted(client(901), client(902, GPU, OTHER_GPU), client(903, OTHER_GPU), client(904, THIRD_GPU), hit=3)
    shown = preview(end(ProcessKey(901, 1)), snapshot)
    assert dict(shown.facts)["ends"] == "nothing; a fault took its GPU work already"
    (group,) = shown.others
    assert group.title == "Hit by the fault too, and not ended"
    assert [line.split()[0] for line in group.clients] == ["902", "903"]
    assert "mpstui end-lost" in shown.warnings[0]
    assert not any("would be lost" in text or "terminated client" in text for text in shown.warnings)
    killed = preview(end(ProcessKey(901, 1), ProcessKey(904, 1), kill=True), snapshot)
    assert dict(killed.facts)["ends"] == "2 processes; a fault took the GPU work of 1 already"
    alone = preview(end(ProcessKey(904, 1)), snapshot)
    assert (alone.others, dict(alone.facts)["ends"]) == ((), "the GPU work of 1 client"), "lost ones lose no more"


def test_who_shares_a_gpu_with_one_of_the_chosen_is_not_said_to_share_none() -> None:
    snapshot = node(client(901), client(902, GPU, OTHER_GPU), client(903, OTHER_GPU), client(904, OTHER_GPU))
    (beside,) = preview(end(ProcessKey(901, 1), ProcessKey(903, 1)), snapshot).others
    assert [line.split()[0] for line in beside.clients] == ["902", "904"]
    assert beside.title == "Share a GPU with them, and run on as a rule"


def test_a_client_alone_has_no_others_and_one_of_unknown_gpus_may_have() -> None:
    assert preview(end(ProcessKey(901, 1)), node(client(901), client(902, OTHER_GPU))).others == ()
    lost = client(901, contexts=())
    (group,) = preview(end(lost.key), node(lost, client(902))).others
    assert group.title.startswith("May share a GPU with it")


@pytest.mark.parametrize("key", [ProcessKey(999, 1), ProcessKey(643, 2)])
def test_a_process_that_is_no_client_or_has_reused_its_pid_is_refused(key: ProcessKey) -> None:
    shown = preview(end(key), node())
    assert shown.error_status is ExitStatus.REFUSED_BY_SAFETY_RULE
    assert "not, or no longer, a client" in (shown.error or "")


def test_a_second_terminate_is_refused() -> None:
    for asked in (client(643, terminate_requested=True), client(643, state="TERMINATED")):
        shown = preview(end(asked.key), node(asked))
        assert shown.error_status is ExitStatus.REFUSED_BY_SAFETY_RULE
        assert "block the whole daemon" in (shown.error or "")


@as_root
def test_a_terminated_client_may_still_be_killed() -> None:
    done = client(643, state="TERMINATED", terminate_requested=True)
    assert preview(end(done.key, kill=True), node(done)).error is None
    asked = client(643, terminate_requested=True)
    assert preview(end(asked.key, kill=True), node(asked)).error is not None


@pytest.mark.parametrize(("watch", "warned"), [("polling", True), ("logs", False)])
def test_without_logs_it_is_said_that_nobody_knows_of_an_earlier_terminate(watch: str, warned: bool) -> None:
    request = Request("terminate_client", PIPE, clients=(ProcessKey(643, 1),))
    warnings = preview(request, node(client(643), watch=watch)).warnings
    assert any("the daemon's logs cannot be read" in text for text in warnings) == warned
    spoken = preview(request, node(client(643), watch=watch, protocol="v3")).warnings
    assert not any("cannot be read" in text for text in spoken), "they are there; what they say is not known"
    assert any("not known" in text for text in spoken) == warned


@pytest.mark.parametrize(("limit", "warned"), [("1023M", True), ("1024M", False), ("1G", False), ("58M", True)])
def test_below_a_gib_a_context_alone_may_be_too_much(limit: str, warned: bool) -> None:
    shown = preview(Request("set_pinned_mem_limit", PIPE, limit, 634, "0"), node())
    assert any("context" in warning for warning in shown.warnings) is warned


@as_root
@pytest.mark.parametrize(
    ("request_", "command"),
    [
        (Request("terminate_client", PIPE, clients=(ProcessKey(643, 1),)), "terminate_client"),
        (Request("terminate_and_kill", PIPE, clients=(ProcessKey(643, 1),)), "terminate_client"),
        (Request("set_pinned_mem_limit", PIPE, "1G", 634, "0"), "set_default_device_pinned_mem_limit"),
        (Request("set_client_priority", PIPE, "1"), "set_default_client_priority"),
    ],
)
def test_what_the_driver_has_not_is_refused_with_that_reason_before_anything_is_sent(
    request_: Request, command: str
) -> None:
    there = preview(request_, node(client(643)))
    assert there.error is None
    old = node(client(643), lacks=absent_from("470.256.02"), driver="470.256.02")
    shown = preview(request_, old)
    assert (shown.error, shown.error_status) == (
        f"the command {command} is not in driver 470",
        ExitStatus.REFUSED_BY_DAEMON,
    )
    why = operation(request_.action).unavailable(old, PIPE, request_.clients)
    assert why == shown.error


def test_what_every_driver_has_is_not_refused() -> None:
    old = node(client(643), lacks=absent_from("470.256.02"), driver="470.256.02")
    assert preview(set_threads("25"), old).error is None


def test_devices_that_cannot_be_told_apart_are_said_to_be_so() -> None:
    old = node(client(643), ordinals={}, lacks=absent_from("535.1"), driver="535.1")
    shown = preview(Request("set_pinned_mem_limit", PIPE, "1G", None, "GPU-a"), old)
    assert "device_query is not in driver 535" in (shown.error or "")
    by_number = preview(Request("set_pinned_mem_limit", PIPE, "1G", None, "0"), old)
    assert (by_number.error, "mpstui cannot find out which GPU" in " ".join(by_number.warnings)) == (None, True)


def test_two_devices_that_begin_alike_are_none() -> None:
    shown = preview(
        Request("set_pinned_mem_limit", PIPE, "1G", None, "GPU-a"), node(ordinals={"0": "GPU-a1", "1": "GPU-a2"})
    )
    assert (shown.error or "").startswith("2 devices of the daemon begin with 'GPU-a': 0 (GPU-a1)")


def test_a_percentage_that_is_a_share_as_it_stands_is_not_warned_of() -> None:
    assert preview(set_threads("50"), node()).warnings == (), "66 of 132 SMs, no more than was asked for"


def test_a_priority_that_nobody_has_read_is_not_known() -> None:
    shown = preview(Request("set_client_priority", PIPE, "1"), node(default_client_priority=None))
    assert dict(shown.facts)["now"] == "—"


def test_where_a_percentage_has_no_effect_the_reason_is_said() -> None:
    threads = operation("set_active_thread_percentage")
    assert threads.unavailable(node(), PIPE, ()) is None
    assert "static" in (threads.unavailable(node(static_partitioning=True), PIPE, ()) or "")


@as_root
def test_a_client_that_the_daemon_does_not_speak_for_is_chosen_alone() -> None:
    of_bob = client(644, uid=2002, user="bob")
    alices = node(client(643, uid=2001), of_bob, speaker=Speaker(2001, "alice's daemon"), uid=2001)
    kill = Request("terminate_and_kill", PIPE, clients=(ProcessKey(644, 1),))
    alone = preview(kill, alices)
    assert (alone.type_in, alone.error_status) == ("644 bob", ExitStatus.REFUSED_BY_SAFETY_RULE)
    both = preview(kill._replace(clients=(ProcessKey(643, 1), ProcessKey(644, 1))), alices)
    assert (both.error or "").endswith("; choose it alone")
    assert both.type_in == ""


@pytest.mark.parametrize(
    ("fields", "typed", "status"),
    [
        ({"uid": 64002, "user": "bob"}, "64002", ExitStatus.DONE),
        ({"uid": 64002, "user": "bob"}, "64003", ExitStatus.REFUSED_BY_SAFETY_RULE),
        ({"uid": 64002, "user": "bob"}, "0", ExitStatus.REFUSED_BY_SAFETY_RULE),
        ({"uid": 64002, "user": "bob"}, "", ExitStatus.REFUSED_BY_SAFETY_RULE),
        ({"uid": None}, "64002", ExitStatus.NOT_PERMITTED),  # whose it is nobody knows
        ({"uid": 64001}, "", ExitStatus.DONE),  # the daemon's own user's
    ],
)
def test_a_process_that_the_daemon_does_not_speak_for_is_ended_by_the_name_of_its_owner_alone(
    monkeypatch: pytest.MonkeyPatch, fields: dict[str, object], typed: str, status: ExitStatus
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    alices = node(client(644, **fields), speaker=Speaker(64001, "alice's daemon"), uid=64001)
    kill = Request("terminate_and_kill", PIPE, clients=(ProcessKey(644, 1),), owner=typed)
    shown = preview(kill, alices)
    assert (shown.error_status, shown.error is None) == (status, status is ExitStatus.DONE)
    assert preview(kill._replace(action="terminate_client", owner=""), alices).error is None, "which ends no process"


def test_a_client_is_told_once_among_those_that_stay() -> None:
    """Of two that are ended, one shares a GPU with it, and of the other no GPU is known."""
    unknown = replace(client(644), contexts=())
    shown = preview(
        Request("terminate_client", PIPE, clients=(ProcessKey(643, 1), ProcessKey(644, 1))),
        node(client(643, GPU), unknown, client(645, GPU), client(646, OTHER_GPU)),
    )
    groups = {group.title.partition(" ")[0]: [line.split()[0] for line in group.clients] for group in shown.others}
    assert groups["Share"] == ["645"]
    assert [pid for pids in groups.values() for pid in pids].count("645") == 1
    assert "646" in [pid for pids in groups.values() for pid in pids]


def test_a_size_by_a_thousand_or_by_1024_is_refused_with_what_to_write() -> None:
    with pytest.raises(Refused, match=r"'10GB' is no memory limit: GB may count .* write 10G or 10GiB"):
        parse_memory("10GB")


def test_what_is_sent_and_shown_is_the_form_that_the_daemon_takes() -> None:
    """It makes 1M of 1.5G, and who knows what of 10 GiB (fact 26)."""
    request = Request("set_pinned_mem_limit", PIPE, value="10.0 GiB", device="0")
    assert operation("set_pinned_mem_limit").command(request) == "set_default_device_pinned_mem_limit 0 10G"


@pytest.mark.parametrize(
    "action", ["set_active_thread_percentage", "terminate_client", "terminate_and_kill", "start_server"]
)
def test_nothing_is_offered_before_it_is_known_whether_the_daemon_answers(action: str) -> None:
    """Seen: for the first five seconds of a blocked daemon, known by its logs, the foot offered K and l."""
    key = (client(643).key,)
    assert operation(action).unavailable(node(client(643)), PIPE, key) is None
    unasked = node(client(643), condition=condition.unasked("", condition.Moment()))
    assert operation(action).unavailable(unasked, PIPE, key) == "whether the daemon answers is not known yet"


def test_a_reason_does_not_say_twice_what_state_the_daemon_is_in() -> None:
    """Seen: the daemon is blocked: blocked by a second terminate_client."""
    found = condition.terminated_twice(ProcessKey(643, 1), None, condition.Moment())
    why = preview(set_threads("25"), node(condition=found)).error
    assert (why or "").startswith("the daemon is blocked: a second terminate_client waits for client 643"), why


@pytest.mark.parametrize(
    ("claimed", "words"), [(None, NOT_PROVED), ("own", NOT_PROVED), (1, ANOTHER_NAMESPACE)], ids=str
)
def test_a_client_is_in_another_namespace_where_its_daemon_says_another_one(
    claimed: int | str | None, words: str
) -> None:
    """One that /proc does not show was, in whatever namespace its daemon says that it is."""
    said = pid_namespace("self") if claimed == "own" else claimed
    assert isinstance(said, int | None)
    assert namespace_words(Client(ProcessKey(7), pid_namespace=said)) == words


@pytest.mark.parametrize(("key", "hidden"), [(ProcessKey(480, 1), False), (None, True)])
def test_of_a_daemon_that_is_not_found_it_is_said_where_its_process_cannot_be_seen(key, hidden) -> None:
    snapshot = node(key=key, condition=condition.not_found("its socket is gone", "", condition.Moment()))
    with pytest.raises(Refused, match="its socket is gone") as refused:
        reachable_daemon(Request("set_active_thread_percentage", PIPE, "25"), snapshot)
    assert refused.value.status is ExitStatus.NO_ANSWER
    assert ("; which process it is cannot be seen" in str(refused.value)) is hidden
