"""What the control binaries of drivers 470 to 555 said, replayed: which commands each has, and what is asked of it."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest
from contract.commands import Commands

from control.test_recordings import PARSERS
from mpstui.control.answer import Outcome
from mpstui.control.channel import ControlChannel, RawReply
from mpstui.control.commandline import PROOF, parse_command_line
from mpstui.control.drivers import COMMANDS, absent_from
from mpstui.control.grammar import LogParser
from mpstui.control.legacy import judge
from mpstui.control.mps import MpsControl
from mpstui.control.protocol import LEGACY, Capabilities, lacking, protocol_of
from mpstui.control.wire import Unreadable

DRIVERS = Path(__file__).parent.parent / "data" / "drivers"
NAMES = sorted(path.stem.removeprefix("daemon-") for path in DRIVERS.glob("daemon-*.txt"))
LACKS = {"470": 10, "535": 2, "550": 1, "555": 1}
_COMMAND = re.compile(r">>> (\S.*?) +\[rc (\d+).*\]")


def replies(driver: str) -> dict[str, bytes]:
    """The first answer to each command that was put to the daemon alone."""
    found: dict[str, bytes] = {}
    command = None
    for line in (DRIVERS / f"daemon-{driver}.txt").read_text().splitlines():
        if line.startswith("--- held"):
            break
        if match := _COMMAND.fullmatch(line):
            command = match[1] if match[1] not in found and match[2] == "0" else None
            if command is not None:
                found[command] = b""
        elif command is not None and line.startswith("out| "):
            found[command] += line.removeprefix("out| ").encode() + b"\n"
        else:
            command = None
    return found


def answers_in(text: str) -> dict[str, str]:
    """Of a recording's text: the first answer to each command by its first word."""
    found: dict[str, str] = {}
    for command, answer in re.findall(r"^>>> (\w+)[^\n]*\[rc 0[^\n]*\]\n((?:out\|[^\n]*\n)*)", text, re.MULTILINE):
        found.setdefault(command, "".join(line[5:] + "\n" for line in answer.splitlines()))
    return found


def unknown_in(driver: str) -> frozenset[str]:
    """The commands that the recorded binary did not know, of those that not every driver has."""
    said = replies(driver)
    return frozenset(c.split()[0] for c, text in said.items() if text.startswith(b"Unknown command")) & COMMANDS


class Recorded(ControlChannel):
    """Answers each line of a session as the binary of that driver did, and counts what it is asked."""

    def __init__(self, driver: str) -> None:
        super().__init__(Path("/mps"), ("none",), deadline=120.0)
        self._said = replies(driver)
        self.asked: Counter[str] = Counter()

    async def _send(self, command: str, lines: str, deadline: float) -> RawReply:
        told = [self._answer(line) for line in lines.splitlines()]
        return RawReply(command, b"".join(told), b"", 0)

    def _answer(self, line: str) -> bytes:
        verb, *words = line.split()
        self.asked[verb] += 1
        alike = {command: text for command, text in self._said.items() if command.split()[0] == verb}
        unknown = next((text for text in alike.values() if text.startswith(b"Unknown command")), None)
        if unknown is not None:
            return unknown
        if words and words[0].isdigit() and any(b"not found" in text for text in alike.values()):
            end = b"!\n1\n" if verb == "terminate_client" else b"\n"
            return b"Server %b not found" % words[0].encode() + end
        return alike.get(line, b"")


async def everything(control: Commands) -> None:
    """Each command that this program has, but quit."""
    await control.get_server_list()
    await control.get_server_status(7)
    await control.get_client_list(7)
    await control.get_device_client_list(7)
    await control.ps()
    await control.device_query()
    await control.change(LEGACY.set_default_percentage(50), LEGACY.default_percentage())
    await control.change(LEGACY.set_percentage(7, 50), LEGACY.percentage(7), 7)
    await control.get_default_device_pinned_mem_limit(0)
    await control.change(LEGACY.set_memory_limit(None, "0", "1G"), LEGACY.memory_limit(None, "0"))
    await control.change(LEGACY.set_memory_limit(7, "0", "1G"), LEGACY.memory_limit(7, "0"), 7)
    await control.change(LEGACY.set_priority(1), LEGACY.priority())
    await control.terminate_client(7, 8)
    await control.ask_all(LEGACY.priority(), LEGACY.devices(), LEGACY.server_status(7))


@pytest.mark.parametrize("driver", NAMES)
async def test_what_a_daemon_does_not_know_is_asked_once_and_never_again(driver: str) -> None:
    channel = Recorded(driver)
    control = Commands(channel)
    await everything(control)
    first = Counter(channel.asked)
    lacks = unknown_in(driver)
    assert len(lacks) == LACKS[driver[:3]]
    assert control.capabilities.unknown == lacks
    assert sum(first[verb] for verb in lacks & {"ps", "device_query", "get_server_status"}) == len(
        lacks & {"ps", "device_query", "get_server_status"}
    )
    for _ in range(3):
        await everything(control)
    assert {verb: channel.asked[verb] - first[verb] for verb in lacks} == dict.fromkeys(lacks, 0)
    assert channel.asked["get_server_list"] == 4
    if "priority" not in " ".join(lacks):
        assert channel.asked["set_default_client_priority"] == 4


@pytest.mark.parametrize("driver", NAMES)
async def test_the_refusal_says_that_nothing_was_asked(driver: str) -> None:
    control = MpsControl(Recorded(driver))
    first, again = await control.device_query(), await control.device_query()
    assert first.outcome is again.outcome is Outcome.REFUSED
    assert (first.asked, again.asked) == (True, False)
    assert "device_query" in again.message


@pytest.mark.parametrize("driver", NAMES)
def test_the_table_by_driver_is_what_its_binary_said(driver: str) -> None:
    assert absent_from(driver) == unknown_in(driver)


@pytest.mark.parametrize("driver", NAMES)
def test_its_log_says_the_same_whoever_asked(driver: str) -> None:
    parser, daemon = LogParser("control"), 0
    known = Capabilities()
    for line in (DRIVERS / f"daemon-{driver}.txt").read_bytes().split(b"\n"):
        if line.startswith(b"[20"):
            parser.feed(line)
            daemon = daemon or int(line[25:60].partition(b"]")[0].split()[-1])
    pid, logged = parser.unknown
    assert pid == daemon
    known.belong_to(daemon, logged)
    assert known.unknown == unknown_in(driver)


@pytest.mark.parametrize("feed_all", [False, True])
def test_a_client_s_name_in_the_answer_to_ps_teaches_nothing(feed_all: bool) -> None:
    at = b"[2026-11-21 16:47:05.418 Control 12055] "
    lines = [b"NEW UI", b"Cmd:ps", b"PID       ID        SERVER", b'Unknown command "ps"', b"UI closed"]
    parser = LogParser("control")
    if feed_all:
        list(parser.feed_all(b"".join(at + line + b"\n" for line in lines)))
    else:
        for line in lines:
            parser.feed(at + line)
    assert parser.unknown[1] == frozenset()


def test_of_a_driver_that_nobody_has_seen_nothing_is_assumed() -> None:
    assert [absent_from(driver) for driver in (None, "", "525.1", "570.133.20", "590.44", "x", "²")] == [
        frozenset()
    ] * 7


async def test_another_daemon_in_its_place_is_asked_again() -> None:
    channel = Recorded(NAMES[0])
    control = MpsControl(channel)
    control.capabilities.belong_to((1, 100))
    await control.ps()
    control.capabilities.belong_to((1, 100))
    await control.ps()
    assert channel.asked["ps"] == 1
    control.capabilities.belong_to((1, 200))
    await control.ps()
    assert channel.asked["ps"] == 2


def test_a_daemon_s_own_word_comes_before_the_table() -> None:
    known = Capabilities()
    known.learn("device_query", known=True)
    assert "device_query" not in lacking(known.unknown, known.known, "535.261.03")
    assert "get_server_status" in lacking(known.unknown, known.known, "535.261.03")


@pytest.mark.parametrize(
    ("argv", "name", "spoken"),
    [
        (["-d"], "legacy", True),
        (["-f", "-M"], "legacy", True),
        (["-d", "-S"], "legacy", True),
        (["-d", "--protocol=3"], "v3", False),
    ],
)
async def test_the_protocol_is_what_the_daemon_was_started_with(argv: list[str], name: str, spoken: bool) -> None:
    options = parse_command_line(["nvidia-cuda-mps-control", *argv])
    assert options is not None
    protocol = protocol_of(options.protocol, options.static_partitioning)
    assert (protocol.name, protocol.silent is None) == (name, spoken)
    channel = Recorded(NAMES[0])
    control = MpsControl(channel)
    control.speak(protocol)
    answer = await control.shutdown_server(7)
    assert answer.outcome is Outcome.REFUSED
    assert bool(channel.asked) == spoken
    if not spoken:
        assert control.capabilities.unknown == frozenset()


@pytest.mark.parametrize("name", sorted(path.stem for path in DRIVERS.glob("*.txt")))
def test_every_recorded_answer_is_read(name: str) -> None:
    """As a value or as a refusal: nothing that a binary of these drivers says is unreadable, but what a server that is
    starting does not say (fact 45)."""
    text = (DRIVERS / f"{name}.txt").read_text().partition("=== control.log")[0]
    found = re.findall(r"^>>> (\w[^\n]*?) *\[rc (\d+)[^\n]*\]\n((?:(?:out|err)\|[^\n]*\n)*)", text, re.MULTILINE)
    read = 0
    for command, status, printed in found:
        parser = PARSERS.get(command.split()[0])
        lines = [line.split("| ", 1) for line in printed.splitlines()]
        out, err = ("".join(f"{text}\n" for kind, text in lines if kind == which).encode() for which in ("out", "err"))
        outcome, message = judge(command, out, err, int(status))
        if parser is None or outcome is not Outcome.OK:
            beside_a_session = not printed and status == "1"
            assert outcome is not Outcome.UNREADABLE or beside_a_session, (command, message)
            continue
        starting = not out and re.match(r"[gs]et_active_thread_percentage \d", command)
        beside_a_session = not out and name.startswith("daemon")
        assert not isinstance(parser(out), Unreadable) or starting or beside_a_session, (command, out)
        read += 1
    if name.startswith(("daemon", "server")):
        assert read > 3


def test_the_proof_is_known_to_every_driver() -> None:
    assert all(replies(driver)[PROOF] == b"100.0\n" for driver in NAMES)
