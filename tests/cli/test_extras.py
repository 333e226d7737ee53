"""What a missing optional part is told to be installed by: the command of the way in which mpstui was installed."""

from __future__ import annotations

import importlib.util
import shlex
import shutil
from importlib import metadata
from pathlib import Path

import pytest

from mpstui.extras import how_to_install

ASKED = ["aiohttp<4,>=3.11; extra == 'web'", "textual-serve<2; python_version < '4' and extra == 'web'", "rich>=14",
         'bcrypt; extra == "exporter"', "tomli>=2.0; python_version < '3.11'"]  # fmt: skip


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An environment without pip."""
    monkeypatch.setattr(metadata, "requires", lambda name: ASKED)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    (tmp_path / "tool").mkdir()
    return tmp_path / "tool"


def told(home: Path, *words: str) -> list[str]:
    return shlex.split(how_to_install(*words, prefix=str(home)))


def test_pipx_injects_the_packages(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "pipx_metadata.json").write_text("{}")
    assert told(home, "web") == ["pipx", "inject", "tool", "aiohttp<4,>=3.11", "textual-serve<2"]
    assert told(home, "exporter") == ["pipx", "inject", "tool", "bcrypt"]
    assert told(home, "load", "cuda-bindings<13") == ["pipx", "inject", "tool", "--force", "cuda-bindings<13"]
    monkeypatch.setattr(metadata, "requires", lambda name: None)
    assert told(home, "web") == ["pipx", "inject", "tool", "mpstui[web]"]


@pytest.mark.parametrize(
    ("receipt", "command"),
    [
        ("{ name = 'mpstui' }", ["mpstui[web]"]),
        ("{ name = 'mpstui', path = '/a b/m.whl' }", ["mpstui[web] @ /a b/m.whl"]),
        ("{ name = 'mpstui', directory = '/src', extras = ['load'] }", ["mpstui[load,web] @ /src"]),
        ("{ name = 'mpstui', editable = '/src' }", ["--editable", "mpstui[web] @ /src"]),
        ("{ name = 'mpstui', git = 'https://forge/m' }", ["mpstui[web] @ git+https://forge/m"]),
        (
            "{ name = 'mpstui' }, { name = 'bcrypt', specifier = '>=4' }, { name = 'x', path = '/x' }",
            ["--with", "bcrypt>=4", "--with", "x @ /x", "mpstui[web]"],
        ),
    ],
)
def test_uv_makes_the_tool_anew_of_what_it_was_and_more(home: Path, receipt: str, command: list[str]) -> None:
    (home / "uv-receipt.toml").write_text(f"[tool]\nrequirements = [{receipt}]\n")
    assert told(home, "web") == ["uv", "tool", "install", *command]


@pytest.mark.parametrize(
    "receipt", ["[tool", "tool = 1", "[tool]\nrequirements = 3", "[tool]\nrequirements = [4]", "\0"]
)
def test_a_receipt_that_is_not_understood_is_one_still(home: Path, receipt: str) -> None:
    (home / "uv-receipt.toml").write_text(receipt)
    assert told(home, "web") == ["uv", "tool", "install", "mpstui[web]"]


def test_an_environment_of_its_own_gets_them_by_its_pip_or_by_another_s(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = str(home / "bin/python3")
    assert told(home, "web") == ["python3", "-m", "pip", "--python", python, "install", "mpstui[web]"]
    (home / "pyvenv.cfg").write_text("home = /usr/bin\nuv = 0.13\n")
    assert told(home, "web") == ["uv", "pip", "install", "--python", python, "mpstui[web]"]
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    assert told(home, "web") == [python, "-m", "pip", "install", "mpstui[web]"]
    monkeypatch.setattr(shutil, "which", lambda name: str(home / "bin" / name))
    assert told(home, "web") == ["pip", "install", "mpstui[web]"]
    assert told(home, "load", "cuda-bindings<13") == ["pip", "install", "cuda-bindings<13"]
