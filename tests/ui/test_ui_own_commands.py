"""The user's own commands: what config.toml may say, what is filled in, what is refused, and what is run."""

from __future__ import annotations

import asyncio
import dataclasses
import gc
import json
import os
import pty
import signal
import subprocess
import sys
import termios
import time
from contextlib import suppress
from pathlib import Path

import pytest
from dialogs.dialog_host import PIPE, UUIDS, client, node

import mpstui.commands
from mpstui.commands import MOST, CommandTarget, Filled, RefusedError, fill, find_program, run, stopped_by
from mpstui.config import CommandSpec, Policy, load_config
from mpstui.core.model import Past, ProcessKey
from mpstui.core.trust import Speaker
from mpstui.system import own
from mpstui.system.procfs import read_stat
from mpstui.ui.keymap import LETTERS, places, usable

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: files of other users")
KEY = ProcessKey(4011, 401100)
ON_CLIENT = CommandTarget(PIPE, client=KEY)


def spec(*words: str, **options) -> CommandSpec:
    return CommandSpec("look", "f9", words, **options)


def words(*run: str, snapshot=None, target: CommandTarget = ON_CLIENT, **options) -> tuple[str, ...]:
    return fill(spec("/bin/echo", *run, **options), snapshot or node(), target).words[1:]


# The file.


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "config.toml"


GOOD = '[[commands]]\nname = "look"\nkey = "f9"\nrun = ["ps", "-fp", "{client.pid}"]\n'


def test_a_command_of_the_file(file: Path) -> None:
    file.write_text(GOOD + "terminal = true\nsafe = true\nseconds = 5\n")
    config, messages = load_config(file)
    assert messages == []
    assert config.commands == (
        CommandSpec("look", "f9", ("ps", "-fp", "{client.pid}"), True, True, 5.0, os.fspath(file)),
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("commands = 1", "must be tables, [[commands]]"),
        ("commands = [1]", "must be tables"),
        ('[[commands]]\nkey = "f9"\nrun = ["a"]', "name must be a line"),
        ('[[commands]]\nname = "a\\u001b[2J"\nkey = "f9"\nrun = ["a"]', "name must be a line"),
        ('[[commands]]\nname = "a"\nkey = "f 5"\nrun = ["a"]', "key must name one key"),
        ('[[commands]]\nname = "a"\nkey = "f9"\nrun = "rm -rf /"', "run must be a list of words"),
        ('[[commands]]\nname = "a"\nkey = "f9"\nrun = []', "run must be a list"),
        ('[[commands]]\nname = "a"\nkey = "f9"\nrun = ["a\\u0000b"]', "run must be a list"),
        ('[[commands]]\nname = "a"\nkey = "f9"\nrun = ["a"]\nshell = true', "“shell” is not known"),
        ('[[commands]]\nname = "a"\nkey = "f9"\nrun = ["a"]\nsafe = "yes"', "safe must be true or false"),
        ('[[commands]]\nname = "a"\nkey = "f9"\nrun = ["a"]\nseconds = 0', "seconds must be"),
        (GOOD + GOOD, "is that of another"),
        (GOOD + GOOD.replace("look", "other"), "the key f9 is that of another"),
    ],
)
def test_a_wrong_command_is_left_out_and_named(file: Path, text: str, said: str) -> None:
    file.write_text(text + "\n")
    config, (message,) = load_config(file)
    assert said in message
    assert len(config.commands) == text.count("look") - (text.count("look") > 1)


@as_root
def test_policy_and_root_s_own(tmp_path: Path, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    system = tmp_path / "system.toml"
    file.write_text(GOOD)
    for root, kept in (("any", ["root's", "look"]), ("system", ["root's"]), ("none", []), ("maybe", [])):
        system.write_text(f'[[commands]]\nname = "root\'s"\nkey = "f10"\nrun = ["id"]\n[policy]\ncommands = "{root}"\n')
        monkeypatch.setattr(os, "geteuid", lambda: 65534)
        config, messages = load_config(file, system)
        monkeypatch.undo()
        assert [each.name for each in config.commands] == kept
        assert bool(messages) == (root != "any"), "what is taken away is said"
    assert Policy().commands == "any"
    system.write_text("policy = 1\n" + GOOD)
    monkeypatch.setattr(os, "geteuid", lambda: 65534)
    assert load_config(file, system)[0].commands == (), "a policy that is not understood is the strictest"


@as_root
def test_a_stranger_s_file_is_not_read_and_one_that_he_can_change_runs_nothing(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text("refresh = 7\n" + GOOD)
    os.chown(file, 64101, 64101)
    config, (message,) = load_config(file)
    assert config.commands == ()
    assert "belongs to UID 64101; it is not read" in message
    assert config.refresh is None
    os.chown(file, 0, 0)
    for harm, mend, why in (
        (lambda: file.chmod(0o666), lambda: file.chmod(0o600), "can be changed by everybody"),
        (lambda: tmp_path.chmod(0o777), lambda: tmp_path.chmod(0o700), "is in a folder of others"),
        (lambda: os.chown(tmp_path, 64101, 0), lambda: os.chown(tmp_path, 0, 0), "is in a folder of others"),
        (
            lambda: os.link(file, tmp_path / "second"),
            lambda: os.unlink(tmp_path / "second"),
            "commands are not used",
        ),
    ):
        harm()
        config, (message,) = load_config(file)
        assert config.commands == (), message
        assert why in message
        mend()
    assert [each.name for each in load_config(file)[0].commands] == ["look"]
    link = tmp_path / "link.toml"
    link.symlink_to(file)
    assert [each.name for each in load_config(link)[0].commands] == ["look"], "dotfiles are often links"
    os.chown(link, 64101, 64101, follow_symlinks=False)
    assert load_config(link)[0].commands == ()


# Keys.


def test_only_a_free_key_is_given() -> None:
    def told(key: str, keymap: dict[str, str] | None = None) -> list[str]:
        return usable([CommandSpec("look", key, ("ps",))], keymap or {}, places())[1]

    for key in ("f9", "ctrl+t", "f10"):
        assert told(key) == [], key
    taken = {*LETTERS, "slash", "escape", "enter", "tab", "shift+tab", "up", "1", "f1", "f2", "ctrl+c", "ctrl+z"}
    for key in (*taken, "ctrl+p", "ctrl+i", "ctrl+m", "space", "question_mark", "f99", "banana", "any"):
        (message,) = told(key)
        assert "“look” has no key: " in message, key
    assert "the key f9 is taken: quit" in told("f9", {"quit": "f9"})[0]
    assert told("f2", {"columns": "f10"}) == [], "the user has freed it"
    bad = CommandSpec("look", "f9", ("ps", "{client.sise}"))
    assert "there is no field {client.sise}" in usable([bad], {}, places())[1][0]


# What is filled in.


def test_each_field_is_one_word_as_the_node_has_it() -> None:
    run = ("{client.pid}", "--user={client.user}", "{server.pid}", "{daemon.pipe_dir}", "{device.uuid}", "-x")
    assert words(*run) == ("4011", "--user=dave", "1402", os.fspath(PIPE), UUIDS[0], "-x")
    assert words("{client.command}") == ("python train.py --config configs/run-0.yaml",), "one word, blanks and all"
    assert words("$(id) `id` ; | {client.pid} {.Name} {{x}}") == ("$(id) `id` ; | 4011 {.Name} {{x}}",)
    assert words("{device.index}", target=CommandTarget(PIPE, device=UUIDS[1])) == ("1",)


@pytest.mark.parametrize(
    ("run", "changes", "target", "why"),
    [
        (["{client.pid}"], {}, CommandTarget(PIPE), "put the cursor on a client"),
        (["{client.pid}"], {}, ON_CLIENT._replace(many=3), "this command runs for one client only; 3 are chosen"),
        (["{client.pid}"], {}, CommandTarget(PIPE, client=ProcessKey(4011, 5)), "client 4011 is gone"),
        (["{client.user}"], {"user": None}, ON_CLIENT, "{client.user} is not known here"),
        (["{client.user}"], {"user": "—"}, ON_CLIENT, "is not known here"),
        (["{client.user}"], {"user": ""}, ON_CLIENT, "is not known here"),
        (["{client.command}"], {"command": "--output=/etc/passwd"}, ON_CLIENT, "could take for an option"),
        (["{client.command}"], {"command": "+!id"}, ON_CLIENT, "could take for an option"),
        (["--", "{client.command}"], {"command": "@/etc/shadow"}, ON_CLIENT, "could take for the name of a file"),
        (["--data={client.command}"], {"command": "@/etc/shadow"}, ON_CLIENT, "could take for the name of a file"),
        (["-F", "a=b;c:{client.command}"], {"command": "</etc/shadow"}, ON_CLIENT, "could take for the name of a file"),
        (["-d{client.command}"], {"command": "@/etc/shadow"}, ON_CLIENT, "could take for the name of a file"),
        (["{client.command}"], {"command": "|id"}, ON_CLIENT, "could take for the name of a file"),
        (["{client.command}"], {"command": "x" * 1001}, ON_CLIENT, "longer than 1000"),
        (["{client.pid}"], {"local": False}, ON_CLIENT, "in another PID namespace"),
        (["{client.pid_here}"], {"pid_here": 5}, ON_CLIENT, "is not proved"),
        (["{daemon.pid_there}"], {}, ON_CLIENT, "of another PID namespace"),
        (["{client.sise}"], {}, ON_CLIENT, "there is no field"),
        (["{clients.pid}"], {}, ON_CLIENT, "there is no {clients.…}"),
        (["{client.contexts}"], {}, ON_CLIENT, "has several values"),
        (["{device.uuid}"], {"gpu_memory": dict.fromkeys(UUIDS, 1)}, ON_CLIENT, "not on one GPU alone"),
        (["sh", "-c", "echo {client.command}"], {"command": "x; id"}, ON_CLIENT, "a shell could take for more"),
        (["/usr/bin/bash5.2", "{client.command}"], {"command": "$(id)"}, ON_CLIENT, "a shell could take for more"),
        (["ssh", "h", "ps", "{client.user}"], {"user": "a b"}, ON_CLIENT, "a shell could take for more"),
    ],
)
def test_what_is_not_known_or_could_be_more_than_a_word_is_refused(run, changes, target, why) -> None:
    with pytest.raises(RefusedError) as refused:
        words(*run, snapshot=node((client(4011, **changes),)), target=target)
    assert why in str(refused.value)


def test_nothing_is_run_for_a_row_of_the_past() -> None:
    past = Past("REPLAY", 1.0, 0.0, 2.0, False, 1.0, "this is a recording")
    for options in ({}, {"safe": True}):
        with pytest.raises(RefusedError, match="this is a recording"):
            words("{client.user}", snapshot=dataclasses.replace(node(), past=past), **options)


def test_behind_two_dashes_a_word_may_begin_with_one() -> None:
    snapshot = node((client(4011, command="-rf"),))
    assert words("--", "{client.command}", snapshot=snapshot) == ("--", "-rf")
    assert words("--pattern={client.command}", snapshot=snapshot) == ("--pattern=-rf",)


def test_a_daemon_s_word_is_enough_for_its_own_user_s_processes_alone() -> None:
    snapshot = node((client(4011, uid=0, user="root"),))
    (daemon,) = snapshot.daemons
    claimed = dataclasses.replace(snapshot, daemons=(dataclasses.replace(daemon, speaker=Speaker(1000, "alice's")),))
    with pytest.raises(
        RefusedError, match="belongs to root, and only this daemon says that it is a client, which is not proof"
    ):
        words("{client.pid}", snapshot=claimed)
    assert words("{client.user}", snapshot=claimed) == ("root",), "no PID, no harm to that process"
    assert words("{client.pid}", snapshot=claimed, safe=True) == ("4011",)


def test_a_number_that_is_another_process_now_is_not_given_away() -> None:
    own = read_stat(os.getpid())
    assert own is not None
    mine = Speaker(os.geteuid(), "mine")
    here = Filled("/bin/true", ("true",), "", (own.key,), mine)
    assert stopped_by(here) is None
    reused = here._replace(processes=(ProcessKey(own.key.pid, own.key.start_ticks + 1),))
    assert "has ended" in str(stopped_by(reused))
    claimed = here._replace(speaker=Speaker(64101, "mallory's daemon"))
    assert "mallory's daemon is trusted for its user only" in str(stopped_by(claimed))
    assert stopped_by(claimed._replace(speaker=None)) is None, "one that is marked safe"


@as_root
def test_root_runs_no_program_that_others_can_change(tmp_path: Path) -> None:
    program = tmp_path / "tool"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    path = f".:{tmp_path}"
    assert find_program("tool", path) == os.fspath(program)
    program.chmod(0o775)
    os.chown(program, 0, 64101)
    own._looks.clear()
    with pytest.raises(RefusedError, match=f"PATH leads to {program}, which is not used: .* changed by its group"):
        find_program("tool", path)
    program.chmod(0o755)
    tmp_path.chmod(0o777)
    with pytest.raises(RefusedError, match="can be changed by everybody"):
        find_program(os.fspath(program))
    for name, why in (
        ("./tool", "is not a whole path"),
        ("no-such-tool", "no-such-tool cannot be run: it is not on PATH"),
    ):
        with pytest.raises(RefusedError, match=why):
            find_program(name, path)


# Running.


async def ran(script: str, seconds: float = 60.0, most: int = MOST) -> tuple[mpstui.commands.Ended, list[str]]:
    lines: list[str] = []
    filled = Filled(sys.executable, ("python3", "-c", script), "", ())
    return await run(filled, seconds, lines.extend, most), lines


@pytest.mark.slow
async def test_output_status_and_bounds() -> None:
    script = "import sys; print('\\033[2Jone\\ttab'); print('two', file=sys.stderr, end=''); sys.exit(3)"
    ended, lines = await ran(script)
    assert (ended.status, ended.words) == (3, "ended with exit status 3")
    assert sorted("".join(lines).replace(" ", "")) == sorted("\\x1b[2Jonetabtwo"), "two streams, in any order"
    ended, lines = await ran("while True: print('x' * 1000)", most=50_000)
    assert ended.status is None
    assert "more than 50000 bytes" in ended.words
    assert sum(map(len, lines)) <= 50_000
    ended, _ = await ran("import time; time.sleep(600)", seconds=0.3)
    assert "stopped: it ran longer than 0.3 s" in ended.words
    gone = await run(Filled("/nowhere/tool", ("tool",), "", ()), 1, lambda _: None)
    assert "could not be started" in gone.words


async def test_what_is_given_up_ends_with_all_that_it_has_started() -> None:
    seen: asyncio.Queue[str] = asyncio.Queue()
    script = (
        "import subprocess, time; p = subprocess.Popen(['sleep', '600']); print(p.pid, flush=True); time.sleep(600)"
    )
    filled = Filled(sys.executable, ("python3", "-c", script), "", ())
    work = asyncio.create_task(run(filled, 60, lambda lines: [seen.put_nowait(line) for line in lines] and None))
    child = int(await asyncio.wait_for(seen.get(), 120))
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work
    for _ in range(2400):
        if (stat := read_stat(child)) is None or stat.gone:
            return
        await asyncio.sleep(0.05)
    raise AssertionError("its child lives")


def test_with_the_terminal_the_keyboard_is_the_program_s_and_who_ends_us_ends_it() -> None:
    """Ctrl-C reaches both; what asks mpstui to end is handed on, and remembered."""
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)

    def sh(script: str) -> tuple[mpstui.commands.Ended, int | None]:
        return mpstui.commands.run_in_terminal(Filled("/bin/sh", ("sh", "-c", script), "", ()))

    ended, asked = sh("kill -INT $PPID; exit 3")
    assert (ended.status, asked) == (3, None)
    ended, asked = sh("kill -TERM $PPID; exec sleep 600")
    assert (ended.words, asked) == ("ended by SIGTERM", signal.SIGTERM)
    ended, asked = mpstui.commands.run_in_terminal(Filled("/nowhere/tool", ("tool",), "", ()))
    assert "could not be started" in ended.words
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


def test_what_a_program_leaves_of_the_terminal_is_put_right() -> None:
    master, slave = pty.openpty()
    kept = os.dup(0)
    try:
        os.dup2(slave, 0)
        before = termios.tcgetattr(slave)
        script = Filled("/bin/sh", ("sh", "-c", "stty raw -echo; kill -KILL $$"), "", ())
        assert mpstui.commands.run_in_terminal(script)[0].words == "ended by SIGKILL"
        assert termios.tcgetattr(slave) == before
    finally:
        os.dup2(kept, 0)
        for each in (kept, master, slave):
            os.close(each)


def test_who_is_told_to_end_does_not_wait_for_a_deaf_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mpstui.commands, "GRACE", 0.2)
    script = "trap '' TERM; kill -TERM $PPID; exec sleep 600"
    ended, asked = mpstui.commands.run_in_terminal(Filled("/bin/sh", ("sh", "-c", script), "", ()))
    assert (ended.words, asked) == ("ended by SIGKILL", signal.SIGTERM)
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


STOPS = """
import os, signal, sys
sys.path.insert(0, sys.argv[1])
from mpstui.commands import Filled, run_in_terminal
script = "stty raw; kill -STOP $$; stty -a | grep -q -- -icanon && exit 7"
print(run_in_terminal(Filled("/bin/sh", ("sh", "-c", script), "", ()))[0].words, flush=True)
"""


@pytest.mark.slow
def test_a_program_that_stops_itself_is_no_end_of_the_screen(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a shell: where one can have the terminal meanwhile, mpstui stops too, and both go on with fg. Where nobody
    would say fg, the program goes on at once."""
    child, master = pty.fork()
    if child == 0:  # a session of its own, whose leader no shell waits for
        os.execv(sys.executable, [sys.executable, "-c", STOPS, os.fspath(Path(mpstui.__file__).parents[1])])
    told = b""
    with suppress(OSError):
        while part := os.read(master, 1024):
            told += part
    assert b"exit status 7" in told, "it goes on, with the terminal as it had it"
    os.waitpid(child, 0)
    os.close(master)

    master, slave = pty.openpty()
    words = [sys.executable, "-c", STOPS, os.fspath(Path(mpstui.__file__).parents[1])]
    # This process is what a shell is: it has the terminal, and its child is a group of its own.
    shell = """
import os, signal, subprocess, sys
os.setsid(); import fcntl, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0)
signal.signal(signal.SIGTTOU, signal.SIG_IGN)
child = subprocess.Popen(sys.argv[1:], preexec_fn=lambda: (os.setpgid(0, 0), os.tcsetpgrp(0, os.getpgrp()),
    signal.signal(signal.SIGTTOU, signal.SIG_DFL)))
pid, status = os.waitpid(child.pid, os.WUNTRACED)
print("stopped", os.WIFSTOPPED(status), flush=True)
os.tcsetpgrp(0, os.getpgrp()); subprocess.run(["stty", "sane"])
os.tcsetpgrp(0, child.pid); os.killpg(child.pid, signal.SIGCONT)
print("status", os.waitpid(child.pid, os.WUNTRACED)[1], flush=True)
"""
    done = subprocess.run(
        [sys.executable, "-c", shell, *words], stdin=slave, capture_output=True, text=True, timeout=120
    )
    os.close(slave)
    os.close(master)
    assert done.stdout == "stopped True\nended with exit status 7\nstatus 0\n"


@pytest.mark.slow
def test_a_program_with_the_terminal_does_not_outlive_a_killed_mpstui() -> None:
    """Also one that hears no hang-up."""
    code = STOPS.replace("stty raw; kill -STOP $$;", "trap '' HUP TERM INT; echo $$; while :; do sleep 0.05; done;")
    words = [sys.executable, "-c", code, os.fspath(Path(mpstui.__file__).parents[1])]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True) as ours:
        assert ours.stdout is not None
        program = int(ours.stdout.readline())
        ours.kill()
    for _ in range(2400):
        if (stat := read_stat(program)) is None or stat.gone:
            return
        time.sleep(0.05)
    os.kill(program, signal.SIGKILL)
    raise AssertionError("it lives")


@pytest.mark.parametrize("program", ["bash-5.1", "/opt/python3.11-dbg", "flock", "pdsh", "systemd-run"])
def test_other_names_of_what_takes_a_word_for_a_program(program: str) -> None:
    with pytest.raises(RefusedError, match="a shell could take for more"):
        words(program, "-c", "{client.command}")


def test_a_program_that_printed_too_much_leaves_nothing_to_complain_of(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pipe that somebody else still held was closed when the event loop was gone: a traceback behind the screen."""
    heard, lines = list[object](), list[str]()
    monkeypatch.setattr(sys, "unraisablehook", heard.append)
    filled = Filled("/bin/sh", ("sh", "-c", "setsid sleep 600 & echo $!; exec yes"), "", ())
    try:
        assert "more than 100000 bytes" in asyncio.run(run(filled, 60, lines.extend, 100_000)).words
        gc.collect()
        assert heard == []
    finally:
        os.kill(int(lines[0]), signal.SIGKILL)


async def test_a_program_that_closes_its_output_may_go_on() -> None:
    filled = Filled("/bin/sh", ("sh", "-c", "exec >&- 2>&-; sleep 1.2; exit 3"), "", ())
    assert (await run(filled, 60, lambda _: None)).status == 3


@pytest.mark.slow
def test_config_check_says_which_command_has_no_key(tmp_path: Path) -> None:
    folder = tmp_path / "mpstui"
    folder.mkdir()
    (folder / "config.toml").write_text(GOOD + GOOD.replace("look", "taken").replace("f9", "t"))
    env = {**os.environ, "XDG_CONFIG_HOME": os.fspath(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-m", "mpstui", "config", "check"], env=env, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 1
    assert "commands: “taken” has no key: the key t is taken: terminate" in done.stderr
    assert "look" not in done.stderr


# The screen.


@pytest.mark.slow
async def test_a_key_asks_runs_shows_and_leaves_audit_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from textual.widgets import Button

    from .screen import make_app, text_of, until

    monkeypatch.setenv("MPSTUI_AUDIT_LOG", os.fspath(tmp_path / "audit.jsonl"))
    specs = [
        CommandSpec("who is it", "f9", ("/bin/echo", "user", "{client.user}")),
        CommandSpec("safe look", "f10", ("/bin/echo", "cmd", "{client.command}"), safe=True),
        CommandSpec("of a pid", "f11", ("/bin/echo", "{client.pid}")),
        CommandSpec("wants a terminal", "f8", ("/bin/echo",), terminal=True),
    ]
    app = make_app(node())
    app.commands = specs
    async with app.run_test(size=(100, 40)) as pilot:
        await until(pilot, lambda: app.snapshot is not None and app.overview.clients.rows)
        await pilot.press("f9")
        await until(pilot, lambda: "user dave" not in text_of(app) and "client 4011 of dave" in text_of(app))
        assert app.focused is not None
        assert app.focused.id == "cancel", "Enter is Cancel"
        app.screen.query_one("#apply", Button).press()
        await until(pilot, lambda: "ended with exit status 0" in text_of(app))
        assert "user dave" in text_of(app)
        await pilot.press("escape", "f10")
        await until(pilot, lambda: "cmd python train.py" in text_of(app) and "ended with exit" in text_of(app))
        await pilot.press("escape", "f11")
        await until(pilot, lambda: "of a pid" in text_of(app))
        app.screen.query_one("#apply", Button).press()
        await until(pilot, lambda: "nothing was run" in text_of(app))
        assert "process 4011 has ended" in text_of(app)
        await pilot.press("escape", "f8")
        await until(pilot, lambda: any("it needs a terminal" in n.message for n in app._notifications))
        await pilot.press("question_mark")
        await until(pilot, lambda: "who is it: own command, /bin/echo user" in app.screen.query_one("#facts").text)
    lines = [json.loads(line) for line in (tmp_path / "audit.jsonl").read_text().splitlines()]
    assert [(line["action"], line["name"], line["status"]) for line in lines] == [
        ("own_command", "who is it", None),
        ("own_command", "who is it", 0),
        ("own_command", "safe look", None),
        ("own_command", "safe look", 0),
        ("own_command", "of a pid", None),
        ("own_command", "of a pid", None),
    ]
    assert lines[0]["command"] == "/bin/echo user dave"


@pytest.mark.slow
async def test_read_only_leaves_what_is_marked_safe() -> None:
    from .screen import make_app, text_of, until

    specs = [CommandSpec("change", "f9", ("/bin/echo",)), CommandSpec("look", "f10", ("/bin/echo", "seen"), safe=True)]
    app = make_app(node(), read_only=True)
    app.commands = specs
    async with app.run_test(size=(100, 40)) as pilot:
        await until(pilot, lambda: app.snapshot is not None)
        await pilot.press("f9")
        await until(pilot, lambda: any("only commands with safe = true run" in n.message for n in app._notifications))
        assert app.screen is app.overview
        await pilot.press("f10")
        await until(pilot, lambda: "ended with exit status 0" in text_of(app))
