"""Root's config.toml below the user's, and the policy in it that a user cannot take back."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from folders import simulated_node

import mpstui.config
from mpstui.config import Config, Policy, load_config, may_see_commands
from mpstui.control.channel import ControlChannel
from mpstui.control.mps import MpsControl
from mpstui.core.model import ProcessKey
from mpstui.node import OwnCommands, open_node
from mpstui.sim.marker import control_binary
from mpstui.system.procfs import ProcessFacts

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: only root's file counts")
NOBODY = 65534


@pytest.fixture
def system(tmp_path: Path) -> Path:
    return tmp_path / "system.toml"


@pytest.fixture
def user(tmp_path: Path) -> Path:
    return tmp_path / "config.toml"


@pytest.fixture
def public() -> Iterator[Path]:
    """A folder that everybody may read, as /etc."""
    with tempfile.TemporaryDirectory(prefix="mpstui-etc-") as folder:
        os.chmod(folder, 0o755)
        yield Path(folder)


@pytest.fixture
def nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who runs this is not root, as far as the configuration goes."""
    monkeypatch.setattr(os, "geteuid", lambda: NOBODY)


@as_root
def test_the_user_s_file_is_above_root_s(system: Path, user: Path) -> None:
    system.write_text('refresh = 5\nreconcile = 30\nread_only = true\n[keys]\nquit = "Q"\ncopy = "c"\nhelp = "h"\n')
    user.write_text('refresh = 2\nread_only = false\n[keys]\ncopy = "C"\nfilter = "h"\n')
    config, messages = load_config(user, system)
    assert messages == []
    assert (config.refresh, config.reconcile, config.read_only) == (2.0, 30.0, False)
    assert dict(config.keys) == {"quit": "Q", "copy": "C", "filter": "h"}
    assert config.origins["reconcile"] == str(system)
    assert config.origins["refresh"] == str(user)
    user.write_text('refresh = "x"\ntheme = 3\nreconcile = 1\n')
    config, messages = load_config(user, system)
    assert (config.refresh, config.reconcile, len(messages)) == (5.0, 30.0, 3)


@as_root
@pytest.mark.usefixtures("nobody")
def test_a_policy_is_not_taken_back(system: Path, user: Path) -> None:
    system.write_text("[policy]\nread_only = true\nsee_commands = []\n")
    user.write_text("read_only = false\n[policy]\nread_only = false\n")
    config, (message,) = load_config(user, system)
    assert config.read_only
    assert not may_see_commands(config.policy)
    assert "is root's" in message


@as_root
@pytest.mark.usefixtures("nobody")
@pytest.mark.parametrize(
    ("asked", "is_"), [("", 60), ("idle_minutes = 0", 60), ("idle_minutes = 90", 60), ("idle_minutes = 5", 5)]
)
def test_an_idle_threshold_is_lowered_alone(system: Path, user: Path, asked: str, is_: int) -> None:
    system.write_text("[policy]\nidle_minutes = 60\n")
    user.write_text(asked)
    config, messages = load_config(user, system)
    assert (config.idle_minutes, messages) == (is_, [])


@as_root
def test_root_is_not_bound(system: Path, user: Path) -> None:
    system.write_text("[policy]\nread_only = true\nsee_commands = []\n")
    config, messages = load_config(user, system)
    assert (config, messages) == (Config(), [])
    assert may_see_commands(config.policy)


@as_root
@pytest.mark.usefixtures("nobody")
@pytest.mark.parametrize(
    "text",
    ["[policy]\nread_only = 1", "[policy]\nsee_commands = 'alice'", "[policy]\nsee_commands = ['']", "policy = true",
     "[policy]\nreadonly = false", "[policy]\nidle_minutes = 0", "[policy", "\x00", "[polcy]\nread_only = true",
     "[Policy]\n", "[policies]\ncommands = 'none'", "[[policys]]"],
)  # fmt: skip
def test_a_policy_that_is_not_understood_is_the_strictest(system: Path, user: Path, text: str) -> None:
    system.write_text(text)
    user.write_text("read_only = false")
    config, (message,) = load_config(user, system)
    assert config.read_only
    assert not may_see_commands(config.policy)
    assert message.startswith(str(system))


@as_root
@pytest.mark.usefixtures("nobody")
@pytest.mark.parametrize(("mode", "owner"), [(0o666, 0), (0o664, 0), (0o644, NOBODY)])
def test_a_file_that_another_may_write_is_no_root_s(system: Path, user: Path, mode: int, owner: int) -> None:
    system.write_text("refresh = 5\n")
    system.chmod(mode)
    os.chown(system, owner, 0)
    config, (message,) = load_config(user, system)
    assert config.read_only
    assert config.refresh is None
    assert "must be root's" in message
    assert config.origins["policy"] == str(system)


@pytest.mark.usefixtures("nobody")
@pytest.mark.parametrize("name", ["config.toml", "mpstui/config.toml"])
def test_a_link_that_leads_nowhere_is_no_missing_file(tmp_path: Path, user: Path, name: str) -> None:
    """As where the file system that it leads to is not mounted."""
    system = tmp_path / "etc" / name
    assert load_config(user, system) == (Config(), [])
    link = tmp_path / "etc" if "/" not in name else tmp_path / "etc" / "mpstui"
    link.parent.mkdir(exist_ok=True)
    link.symlink_to(tmp_path / "away")
    config, (message,) = load_config(user, system)
    assert config.read_only
    assert not may_see_commands(config.policy)
    assert message == f"{system}: is missing where the link {link} leads; read-only until it is corrected"


@pytest.mark.usefixtures("nobody")
def test_who_sees_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getgroups", lambda: [0])
    monkeypatch.setattr(os, "getegid", lambda: NOBODY)
    assert may_see_commands(Policy())
    assert may_see_commands(Policy(see_commands=("nobody",)))
    assert may_see_commands(Policy(see_commands=("@root",)))
    assert not may_see_commands(Policy(see_commands=("root", "@adm", "nobod")))


class Facts:
    def facts(self, pids: object) -> dict[int, ProcessFacts]:
        own, names = os.geteuid(), {1: "mine --x", 2: "theirs --secret", 3: "/usr/bin/nvidia-cuda-mps-server", 4: ""}
        return {pid: ProcessFacts(ProcessKey(pid), uid=own if pid == 1 else 7, command=c) for pid, c in names.items()}


def test_the_commands_of_others_are_not_shown() -> None:
    shown = {pid: each.command for pid, each in OwnCommands(Facts()).facts(()).items()}
    assert shown == {1: "mine --x", 2: OwnCommands.HIDDEN, 3: "/usr/bin/nvidia-cuda-mps-server", 4: ""}


async def test_nor_those_that_a_daemon_tells(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a client in a container, or of a process that /proc hides, its word is all that is known."""
    monkeypatch.setattr("mpstui.node.real_processes", lambda: OwnCommands(Facts()))
    hidden = open_node((), {})[0].hidden
    assert hidden == OwnCommands.HIDDEN
    with simulated_node() as node:
        node.spawn("busy", argv0=b"theirs --secret")
        channel = ControlChannel(node.pipe_dir, control_binary())
        for word, commands in (("", ["theirs --secret"]), (hidden, [hidden])):
            told = await MpsControl(channel, hidden=word).ps()
            assert [row.command for row in told.value or ()] == commands


def as_nobody(
    system: Path, *arguments: str, within: tuple[str, ...] = (), python: str = sys.executable, **variables: str
) -> subprocess.CompletedProcess[str]:
    """mpstui as another user, with ``system`` in the place of root's file."""
    program = (
        "import sys; from pathlib import Path; import mpstui.config as c; c.SYSTEM = Path(sys.argv[1]); "
        "from mpstui.cli import main; sys.exit(main(sys.argv[2:]))"
    )
    environment = {**os.environ, "MPSTUI_AUDIT_LOG": "/dev/null", **variables}
    become = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
    command = [*become, *within, python, "-c", program, str(system), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment)


@pytest.mark.slow
@as_root
def test_no_option_variable_or_file_of_a_user_s_takes_a_policy_back(public: Path) -> None:
    system = public / "system.toml"
    system.write_text("[policy]\nread_only = true\n")
    (public / "mpstui").mkdir()
    (public / "mpstui" / "config.toml").write_text("read_only = false\n")
    given = {"XDG_CONFIG_HOME": str(public), "MPSTUI_SYSTEM": "/nonexistent", "MPSTUI_CONFIG": "/nonexistent"}
    ended = as_nobody(system, "set", "client-priority", "1", "--pipe-dir", "/nonexistent", **given)
    if ended.returncode in {126, 127}:
        pytest.skip(f"another user may not run this Python: {ended.stderr.strip()}")
    assert ended.returncode == 6, ended.stderr
    assert "policy" in ended.stderr
    told = as_nobody(system, "config", "show", "--json", **given)
    values = {each["name"]: (each["value"], each["from"]) for each in json.loads(told.stdout)["values"]}
    assert values["read_only"] == (True, str(system))
    assert values["policy.read_only"] == (True, str(system))


@pytest.mark.slow
@as_root
@pytest.mark.parametrize("within", [("--user", "--map-root-user"), ("--user",)], ids=" ".join)
def test_a_user_namespace_does_not_take_a_policy_back(public: Path, within: tuple[str, ...]) -> None:
    """There root's file shows as nobody's, as everybody else's, and a user may be number 0."""
    system = public / "system.toml"
    system.write_text("reconcile = 30\n[policy]\nread_only = true\nsee_commands = []\nidle_minutes = 60\n")
    folder = public / "mpstui"
    folder.mkdir()
    (folder / "config.toml").write_text("read_only = false\nrefresh = 2\nidle_minutes = 90\n")
    for place in (public, folder, folder / "config.toml"):
        os.chown(place, *((0, 0) if place == public else (NOBODY, NOBODY)))
    given = {"XDG_CONFIG_HOME": str(public), "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    apart = ("unshare", *within)
    for python in (sys.executable, "/usr/bin/python3"):  # the first may be in a home of root's
        told = as_nobody(system, "config", "show", "--json", within=apart, python=python, **given)
        if told.returncode not in {126, 127}:
            break
    if told.stderr.startswith("unshare:"):
        pytest.skip(f"no user namespace here: {told.stderr.strip()}")
    assert "Traceback" not in told.stderr
    values = {each["name"]: (each["value"], each["from"]) for each in json.loads(told.stdout)["values"]}
    assert values["read_only"] == (True, str(system))
    assert values["reconcile"] == (30.0, str(system)), "root's file is read, whoever it seems to belong to"
    assert values["refresh"] == (2.0, str(folder / "config.toml"))
    assert values["idle_minutes"] == (60.0, str(system))
    assert values["policy.read_only"] == (True, str(system))
    assert values["policy.sees_commands"] == (False, str(system))
    assert "user namespace" in told.stderr
    assert "nobody" not in told.stderr.replace("seems to belong to nobody", "")


@pytest.mark.slow
@as_root
@pytest.mark.parametrize("command", [("why", "{pid}"), ("why", "{pid}", "--json")])
def test_a_closer_look_does_not_take_it_back_either(public: Path, command: tuple[str, ...]) -> None:
    system = public / "system.toml"
    system.write_text("[policy]\nsee_commands = []\n")
    with subprocess.Popen(["sh", "-c", "read x", "--secret-of-root"], stdin=subprocess.PIPE) as other:
        try:
            asked = [each.format(pid=other.pid) for each in command]
            ended = as_nobody(system, "--pipe-dir", "/nonexistent", *asked)
        finally:
            other.kill()
    if ended.returncode in {126, 127}:
        pytest.skip(f"another user may not run this Python: {ended.stderr.strip()}")
    assert "Traceback" not in ended.stderr
    assert "secret-of-root" not in ended.stdout + ended.stderr
    assert OwnCommands.HIDDEN in ended.stdout


def test_the_python_interface_does_not_take_it_back(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import mpstui.api

    monkeypatch.setenv("MPSTUI_AUDIT_LOG", str(tmp_path / "audit"))
    bound = Config(read_only=True, policy=Policy(read_only=True))
    monkeypatch.setattr(mpstui.config, "load_config", lambda: (bound, []))
    with mpstui.api.open([tmp_path], read_only=False) as node:
        request = mpstui.api.Request("set_client_priority", tmp_path, "1")
        assert node.do(request).status == 6


def test_show_and_check(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from mpstui.cli import main

    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setattr(mpstui.config, "SYSTEM", tmp_path / "none.toml")
    assert main(["config", "check"]) == 0
    (tmp_path / "mpstui").mkdir()
    (tmp_path / "mpstui" / "config.toml").write_text('refresh = 3\ntheme = "a b"\n[keys]\nquit = "Q"\n')
    assert main(["config", "check"]) == 1
    assert "theme is not the name of a theme" in capsys.readouterr().err
    assert main(["config", "show"]) == 0
    shown = capsys.readouterr().out
    assert [line.split()[1] for line in shown.splitlines() if line.startswith(("refresh ", "keys.quit "))] == ["3", "Q"]
    assert str(tmp_path / "mpstui" / "config.toml") in shown
