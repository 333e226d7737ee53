"""The man page and the completions that are installed: they tell every command and option that there is."""

from __future__ import annotations

import argparse
import re
import runpy
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pexpect
import pytest

from mpstui.cli.parser import parse

ROOT = Path(__file__).parents[2]
SHARE = ROOT / "share"
made: dict[str, Any] = runpy.run_path(str(ROOT / "scripts" / "manual"))
FILES = [*made["COMPLETIONS"].values(), made["MAN"]]


def words(parser: argparse.ArgumentParser) -> Iterator[str]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, inner in action.choices.items():
                yield name
                yield from words(inner)
        elif action.help is not argparse.SUPPRESS:
            yield from (option for option in action.option_strings if option.startswith("--"))


@pytest.fixture(scope="module")
def texts() -> dict[str, str]:
    """As `make manual` makes them now."""
    told: dict[str, str] = made["texts"]()
    return told


@pytest.mark.parametrize("place", FILES)
def test_each_word_of_the_command_line_is_there(place: str, texts: dict[str, str]) -> None:
    text = texts[place].replace("\\-", "-")
    known = {word for word in words(made["whole_parser"]()) if word not in {"--demo", "--help"}}
    assert len(known) > 100
    plain = text.replace("-l ", "--") if place.endswith(".fish") else text
    assert sorted(word for word in known if word not in plain) == []


def test_each_command_has_an_example_that_it_takes(texts: dict[str, str]) -> None:
    """In its ``--help``, on the page of the command line and in the manual, which are made of it."""
    without, wrong = [], []
    for each in made["leaves"](made["whole_parser"]()):
        name = each.prog.removeprefix("mpstui ")
        if name.startswith("experiment"):
            continue  # their own descriptions have them
        found = re.fullmatch(r"example: (.*)", each.epilog or "")
        if found is None:
            without.append(name)
            continue
        for line in re.findall(r"mpstui ([^,]+)", found[1]):
            try:
                options = parse(shlex.split(line))
            except SystemExit:
                wrong.append(line)
            else:
                assert name.split()[0] == options.command
    assert (without, wrong) == ([], [])
    page = texts[made["MAN"]].replace("\\-", "-")
    assert "\n.B mpstui terminate 4711 --kill\n" in page


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_what_there_is_of_a_kind_is_completed(shell: str, texts: dict[str, str]) -> None:
    """Names that a table of the program has: schemas, tours, errors, scenarios, themes."""
    text = texts[made["COMPLETIONS"][shell]]
    for name in ("partitioning", "profile-diff", "cudaErrorMpsClientTerminated", "nostart"):
        assert name in text, name


@pytest.mark.parametrize("place", FILES)
def test_the_file_is_that_of_today(place: str, texts: dict[str, str]) -> None:
    """But for where lines end: each Python's argparse has its own way, and here the terminal may be narrower."""
    kept, now = ("".join(text.split()) for text in ((SHARE / place).read_text(), texts[place]))
    assert kept == now, f"share/{place}: make manual"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_shell_understands_its_completions(shell: str, texts: dict[str, str], tmp_path: Path) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    file = tmp_path / "completions"
    file.write_text(texts[made["COMPLETIONS"][shell]])
    told = subprocess.run([shell, "-n", file], capture_output=True, text=True, timeout=60)
    assert (told.returncode, told.stderr) == (0, "")


def test_bash_completes() -> None:
    file = SHARE / made["COMPLETIONS"]["bash"]
    script = (
        f"source {file}; COMP_WORDS=(mpstui exporter --tex); COMP_CWORD=2; COMP_LINE='mpstui exporter --tex'; "
        "COMP_POINT=${#COMP_LINE}; $(complete -p mpstui | sed 's/.*-F \\([^ ]*\\).*/\\1/') mpstui --tex exporter; "
        "printf '%s\\n' \"${COMPREPLY[@]}\""
    )
    told = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=60)
    assert "--textfile" in told.stdout.split(), told


@pytest.mark.skipif(shutil.which("fish") is None, reason="fish is not installed")
def test_fish_completes() -> None:
    file = SHARE / made["COMPLETIONS"]["fish"]
    typed = ("mpstui exporter --tex", "mpstui daem", "mpstui daemon sta", "mpstui experiment st")
    script = "; ".join([f"source {file}", *(f"complete -C '{each}'" for each in typed)])
    told = subprocess.run(["fish", "--no-config", "-c", script], capture_output=True, text=True, timeout=60)
    about = dict(line.split("\t") for line in told.stdout.splitlines())
    assert sorted(about) == ["--textfile", "daemon", "start", "stop", "streams"], told
    assert about["stop"] == "what each way to end a client does to its neighbours", "a choice has its own words"


@pytest.mark.skipif(shutil.which("zsh") is None, reason="zsh is not installed")
def test_zsh_completes(tmp_path: Path) -> None:
    folder = (SHARE / made["COMPLETIONS"]["zsh"]).parent
    plain = {"TERM": "dumb", "PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "LC_ALL": "C.UTF-8"}
    with pexpect.spawn("zsh", ["-f", "-i"], encoding="utf-8", dimensions=(40, 120), env=plain, timeout=60) as zsh:
        zsh.sendline(f"fpath=({folder} $fpath); autoload -Uz compinit; compinit -D -u; echo rea''dy")
        zsh.expect_exact("ready")
        for typed, completed in (
            ("exporter --textf", "exporter --textfile"),
            ("daem", "daemon"),
            ("daemon sta", "daemon start"),
        ):
            zsh.send(f"mpstui {typed}\t")
            zsh.expect_exact(f"mpstui {completed} ")
            zsh.send("\x15")  # begin the line again
        zsh.sendline("exit")


@pytest.mark.skipif(shutil.which("man") is None, reason="there is no man")
def test_the_man_page_is_one() -> None:
    told = subprocess.run(
        ["man", "--warnings", "-l", SHARE / made["MAN"]],
        capture_output=True,
        text=True,
        timeout=60,
        env={"MANWIDTH": "80", "LC_ALL": "C.UTF-8"},
    )
    if "minimized" in told.stdout or "minimized" in told.stderr:
        pytest.skip("this machine has no manual pages")
    assert told.returncode == 0
    assert told.stderr == ""
    assert "mpstui exporter" in told.stdout
