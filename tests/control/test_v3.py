"""The tables of protocol 3: both documented forms of a client's row, other orders, missing and unknown columns, and
what a stranger puts between the commas."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from mpstui.control.answer import Outcome
from mpstui.control.channel import ControlChannel, RawReply
from mpstui.control.mps import MpsControl
from mpstui.control.v3 import (
    judge_call,
    parse_clients,
    parse_devices,
    parse_namespaces,
    parse_partitions,
    parse_servers,
)
from mpstui.control.wire import Unreadable
from mpstui.core.v3 import Namespace, V3Client, V3Device, V3Partition, V3Server

DOCUMENTED = "training,1000,48201,Ready,/run/nvidia-mps/training,GPU-abcd-1234,-\n"
HEAD = "name,uid,pid,status,pipe-directory,allowed-devices,context-ids\n"
TRAINING = V3Server("training", 1000, 48201, "Ready", "/run/nvidia-mps/training", "GPU-abcd-1234")
FIRST = "51023,training,0,default,python train.py\n"
SECOND = "3167082,srv,GPU-cc97390c-11,srv/default (0),VLLM::EngineCore\n"
KILLED = "The control binary was killed or did not end, so its answer is not used."


def one(found):
    assert not isinstance(found, Unreadable), found
    (row,), odd = found
    assert odd == ()
    return row


@pytest.mark.parametrize(
    "text",
    [
        DOCUMENTED,
        HEAD + DOCUMENTED,
        HEAD.upper() + DOCUMENTED,
        "Status,Name,UID,PID,Pipe Directory,Allowed Devices,Context IDs\n"
        "Ready,training,1000,48201,/run/nvidia-mps/training,GPU-abcd-1234,-\n",
        HEAD.replace("\n", "\r\n") + DOCUMENTED.replace("\n", "\r\n") + "\r\n",
        HEAD + '"training","1000","48201","Ready","/run/nvidia-mps/training","GPU-abcd-1234","-"\n',
    ],
    ids=["no heading", "heading", "capitals", "another order", "line ends", "quoted"],
)
def test_a_server_is_read_by_the_names_of_its_columns(text: str) -> None:
    assert one(parse_servers(text.encode())) == TRAINING


def test_devices_with_commas_are_counted_from_both_ends() -> None:
    for head in (HEAD, ""):
        row = one(parse_servers((head + DOCUMENTED.replace("GPU-abcd-1234", "GPU-a,GPU-b,1")).encode()))
        assert (row.allowed_devices, row.pipe_dir) == ("GPU-a,GPU-b,1", "/run/nvidia-mps/training")


def test_missing_columns_are_not_known_and_unknown_ones_are_kept() -> None:
    row = one(parse_servers(b"name,pid,colour\ntraining,48201,blue\n"))
    assert row == V3Server("training", pid=48201, more={"colour": "blue"})
    space = one(parse_namespaces(b"server,name,client-priority,new-limit\ntraining,small,1,9\n"))
    assert space == Namespace("small", "training", client_priority=1, more={"new-limit": "9"})


@pytest.mark.parametrize("pid", ["-", "0", "", "none", "abc"])
def test_a_server_without_a_process_has_no_pid(pid: str) -> None:
    assert one(parse_servers((HEAD + DOCUMENTED.replace("48201", pid)).encode())).pid is None


@pytest.mark.parametrize(
    ("text", "client"),
    [
        (FIRST, V3Client(51023, "training", "0", "default", "python train.py")),
        (SECOND, V3Client(3167082, "srv", "GPU-cc97390c-11", "default", "VLLM::EngineCore")),
        ("7,s,-,ns_1,\n", V3Client(7, "s", None, "ns_1", None)),
        ("7,s,0,ns,a,b,,c\n", V3Client(7, "s", "0", "ns", "a,b,,c")),
        ('7,s,0,ns,python -c "print(1, 2)"\n', V3Client(7, "s", "0", "ns", 'python -c "print(1, 2)"')),
        ('7,s,0,ns,"unfinished\n', V3Client(7, "s", "0", "ns", '"unfinished')),
        ("7,s,0,ns,one\ntwo, three\n", V3Client(7, "s", "0", "ns", "one two, three")),
        ("7,s,0,ns,one\n8,BAD NAME,0,ns,x\n", V3Client(7, "s", "0", "ns", "one 8,BAD NAME,0,ns,x")),
    ],
)
def test_a_command_may_hold_anything_and_its_lines_belong_to_it(text: str, client: V3Client) -> None:
    assert one(parse_clients(text.encode())) == client


def test_a_command_with_escapes_is_printable_and_a_forged_row_is_one_that_two_claim() -> None:
    (row,), _ = parse_clients(b"7,s,0,ns,\x1b]52;c;aGk=\x07\xff\x9b2J\n")
    assert row.command is not None
    assert row.command.isprintable()
    rows, _ = parse_clients(b"7,s,0,ns,x\n8,s,0,ns,evil\n8,s,0,ns,real\n")
    assert [r.pid for r in rows] == [7, 8, 8]


def test_the_other_tables() -> None:
    space = one(
        parse_namespaces(
            b"name,server,server-status,pinned-memory-limit,active-thread-percentage,client-priority,pipe-directory\n"
            b"small,training,Ready,8G,30.00,1,/run/nvidia-mps/training/small\n"
        )
    )
    assert space == Namespace("small", "training", "Ready", "8G", 30.0, 1, "/run/nvidia-mps/training/small")
    assert (space.memory, space.unlimited) == (8 << 30, False)
    both = one(parse_namespaces(b"small,training,Ready,0=8G,1=4G,-,-,/p\n"))
    assert (both.pinned_mem_limit, both.active_thread_percentage, both.memory) == ("0=8G,1=4G", None, None)
    assert one(
        parse_devices(
            b"Ordinal,Server,PCI ID,Device UUID,Name,Total SMs,Total Chunks,Attributes\n"
            b"0,training,0000:06:00.0,GPU-a1,NVIDIA H100,132,16,N/A\n"
        )
    ) == V3Device("0", "training", "0000:06:00.0", "GPU-a1", "NVIDIA H100", 132, 16)
    assert one(
        parse_partitions(
            b"SERVER,DEVICE,NAME,CHUNKS,SM-COUNT,INCLUDE-REMAINDER,STATUS,VISIBLE-UUID\n"
            b"training,GPU-a1,large,4,34,true,created,GPU-a1/Kp8AAAA\n"
        )
    ) == V3Partition("large", "training", "GPU-a1", 4, 34, True, "created", "GPU-a1/Kp8AAAA")


@pytest.mark.parametrize("text", ["Server 'a' is there.\n", "usage: server list\n", "\x1b[2J\n", "a b c\n1 2 3\n"])
def test_words_that_are_no_table_are_not_understood(text: str) -> None:
    for parser in (parse_servers, parse_clients, parse_namespaces):
        found = parser(text.encode())
        assert isinstance(found, Unreadable)
        assert found.reason.isprintable()


def test_more_than_there_can_be_is_not_believed() -> None:
    assert isinstance(parse_servers(DOCUMENTED.encode() * 300), Unreadable)
    assert isinstance(parse_clients(FIRST.encode() * 5000), Unreadable)


def test_no_rows_are_none() -> None:
    for text in (b"", b"\n", HEAD.encode()):
        assert parse_servers(text) == ((), ())


@pytest.mark.parametrize(
    ("status", "stderr", "outcome", "why"),
    [
        (0, b"", Outcome.OK, ""),
        (0, b"a warning\n", Outcome.OK, ""),
        (1, b"Server 'x' not found\n", Outcome.REFUSED, "Server 'x' not found."),
        (2, b"", Outcome.REFUSED, "The control binary exited with status 2."),
        (1, b"Insufficient privileges for UID 2001\n", Outcome.NOT_PERMITTED, "Insufficient privileges for UID 2001."),
        (1, b"Cannot find MPS control daemon process\n", Outcome.ABSENT, "No control daemon answers there."),
        (-9, b"", Outcome.UNREADABLE, KILLED),
        (None, b"", Outcome.UNREADABLE, KILLED),
    ],
)
def test_the_status_tells_and_the_text_says_why(status: int | None, stderr: bytes, outcome: Outcome, why: str) -> None:
    assert judge_call(b"", stderr, status) == (outcome, why)


@pytest.mark.parametrize(
    ("said", "value"), [("100.00", 100.0), ("0.5", 0.5), ("100.01", None), ("0", None), ("-", None)]
)
def test_a_percentage_is_one_of_those_that_there_are(said: str, value: float | None) -> None:
    row = one(parse_namespaces(f"small,training,Ready,8G,{said},1,/p\n".encode()))
    assert row.active_thread_percentage == value


@pytest.mark.parametrize("words", [("-q",), ("server", "-q"), (), ("--quit", "now"), ("quit",), ("lspart",), ("", "x")])
async def test_q_and_whatever_is_no_module_is_never_sent(tmp_path, words: tuple[str, ...]) -> None:
    script, log = tmp_path / "binary", tmp_path / "sent"
    script.write_text(f'#!/bin/sh\necho "$@" >> {log}\n')
    script.chmod(0o755)
    channel = ControlChannel(tmp_path, (str(script),))
    reply = await channel.call(words)
    assert reply.failure is Outcome.REFUSED
    assert not log.exists()
    assert (await channel.call(("server", "list"))).failure is None
    assert log.read_text() == "server list\n"


@pytest.mark.slow
def test_no_mutation_of_a_table_is_an_error_or_prints_a_control_character() -> None:
    pick = random.Random(11)
    for good, parser in ((HEAD + DOCUMENTED, parse_servers), (FIRST + SECOND, parse_clients)):
        for _ in range(2000):
            raw = bytearray(good.encode())
            for _ in range(pick.randrange(1, 6)):
                raw[pick.randrange(len(raw))] = pick.randrange(256)
            found = parser(bytes(raw))
            assert repr(found).isprintable(), raw
            if not isinstance(found, Unreadable):
                for row in found[0]:
                    for value in (getattr(row, name) for name in row.__slots__):
                        assert not isinstance(value, str) or value.isprintable(), raw


async def test_while_nothing_moves_two_lists_are_asked_and_else_all(tmp_path: Path) -> None:
    """Who comes and goes is seen in them; what somebody has to set is taken over."""
    control = MpsControl(ControlChannel(tmp_path, ["control"]))
    servers = "srv,0,7,Ready,/run/srv,0,-\n"
    asked: list[str] = []
    answers = {
        "server": "name,uid,pid,status,pipe-directory,allowed-devices,context-ids\nstrange\n" + servers,
        "namespace": "name,server\ndefault,srv\nsmall,srv\nodd\n",
        "client": "pid,server,device,namespace,cmd\n51,srv,0,default,a\n",
        "device": "ordinal,server\n0,srv\n",
        "sm-partition": "name,server\n",
        "feature": "memacct: disabled\n",
    }

    async def call(words: Sequence[str], deadline: float | None = None) -> RawReply:
        asked.append(words[0])
        return RawReply(" ".join(words), stdout=answers[words[0]].encode(), exit_status=0)

    control.channel.call = call  # type: ignore[method-assign, assignment]
    _, first = await control.read_v3()
    assert first is not None
    assert len(asked) == 6
    assert [client.command for client in first.clients] == ["a"]
    hiding = MpsControl(control.channel, hidden="(hidden)")
    told = (await hiding.read_v3())[1]
    assert told is not None
    assert [client.command for client in told.clients] == ["(hidden)"]
    asked.clear()
    answers["client"] += "52,srv,0,small,b\n"
    answers["namespace"] = "name,server\n"  # by nobody's doing: not asked for
    _, again = await control.read_v3(first)
    assert again is not None
    assert asked == ["server", "client"]
    assert [client.pid for client in again.clients] == [51, 52]
    assert (again.namespaces, again.features) == (first.namespaces, first.features)
    assert [line.split(":")[0] for line in first.not_understood] == ["server list", "namespace list"]
    assert sorted(again.not_understood) == sorted(first.not_understood), "each once, however often it is asked"
    for name, change in {"client": "53,srv,0,new,c\n", "server": "other,0,8,Ready,/run/o,0,-\n"}.items():
        asked.clear()
        kept, answers[name] = answers[name], answers[name] + change
        await control.read_v3(first)
        assert asked == ["server", "client", "server", "namespace", "client", "device", "sm-partition", "feature"], name
        answers[name] = kept
