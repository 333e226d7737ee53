"""Theme files: the shipped ones can be read by people, the broken ones are messages."""

from __future__ import annotations

import itertools
import os
from pathlib import Path

import pytest
from textual.color import Color

import mpstui.config
from mpstui.config import FILE_LIMIT, MARK_KEYS, THEME_FILES, load_themes, terminal_problem
from mpstui.ui.theme import DEFAULT, TERMINAL, build_themes, choose_theme, variable_defaults
from mpstui.ui.theme import contrast as of_colors

SHIPPED = ["mpstui-contrast", "mpstui-dark", "mpstui-light", "terminal"]
NOBODYS = Path("/nonexistent")
"""No folder of the user: a developer's own themes must not change the tests."""
GOOD = '[colors]\nprimary = "#123456"\n'


def shipped(name: str):
    specs, messages = load_themes(NOBODYS)
    assert messages == []
    return next(theme for theme in build_themes(specs) if theme.name == name)


def contrast(one: str, other: str) -> float:
    return of_colors(Color.parse(one), Color.parse(other))


def test_contrast_is_that_of_the_standard():
    assert contrast("#ffffff", "#000000") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)


def test_the_four_themes_ship():
    specs, messages = load_themes(NOBODYS)
    assert [spec.name for spec in specs if spec.name in SHIPPED] == SHIPPED
    assert messages == []


@pytest.mark.skipif(os.geteuid() != 0, reason="root alone gives files away")
def test_they_do_whoever_has_installed_the_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A user of the software's own; and in a user namespace all that is root's seems somebody else's."""
    (tmp_path / "blue.toml").write_text(GOOD)
    os.chown(tmp_path / "blue.toml", 65534, 65534)
    monkeypatch.setattr(mpstui.config, "shipped_themes_dir", lambda: tmp_path)
    specs, messages = load_themes(NOBODYS)
    assert ([spec.name for spec in specs], messages) == (["blue"], [])
    assert load_themes(tmp_path)[1] != [], "but a user's own are his"
    os.chown(tmp_path / "blue.toml", 0, 0)
    (tmp_path / "blue.toml").chmod(0o666)
    monkeypatch.setattr(mpstui.config, "shipped_themes_dir", lambda: NOBODYS)
    specs, (message,) = load_themes(tmp_path)
    assert specs == []
    assert message.endswith(f"can be changed by everybody (mode 0666): chmod go-w {tmp_path / 'blue.toml'}")


@pytest.mark.parametrize("name", ["mpstui-dark", "mpstui-light", "mpstui-contrast"])
def test_text_can_be_read_on_every_ground(name: str):
    theme = shipped(name)
    variables = {**theme.to_color_system().generate(), **theme.variables}
    texts = ["foreground", "text", "text-muted", "primary", "secondary", "accent", "success", "warning", "error"]
    texts += ["text-primary", "text-warning", "text-error", "text-success", "text-accent", "footer-key-foreground"]
    texts += [f"mps-{mark}" for mark in ("ok", "warn", "error", "held", "gone", "muted", "outdated")]
    least = 7 if name == "mpstui-contrast" else 4.5
    pairs = list(itertools.product(texts, ["background", "surface", "panel"]))
    pairs += [("mps-badge-text", "mps-badge"), ("foreground", "mps-marked"), ("text-muted", "mps-marked")]
    pairs += [("block-cursor-foreground", "block-cursor-background")]
    low = {pair: ratio for pair in pairs if (ratio := contrast(variables[pair[0]], variables[pair[1]])) < least}
    assert low == {}


@pytest.mark.parametrize("name", ["mpstui-dark", "mpstui-light", "mpstui-contrast"])
def test_bars_can_be_told_from_their_ground(name: str):
    variables = shipped(name).variables
    background = shipped(name).background
    assert background is not None
    for bar in ("mps-bar", "mps-bar-memory", "mps-bar-high"):
        assert contrast(variables[bar], background) >= 3
        assert contrast(variables[bar], variables["mps-bar-empty"]) >= 2


def test_the_terminal_theme_has_the_sixteen_colours_only():
    theme = shipped("terminal")
    variables = {**theme.to_color_system().generate(), **theme.variables}
    assert theme.ansi
    assert {
        value for name, value in variables.items() if name.startswith("mps-") and not value.startswith("ansi_")
    } == set()


def test_every_theme_has_all_our_colours():
    for theme in build_themes(load_themes(NOBODYS)[0]):
        assert {f"mps-{mark}" for mark in MARK_KEYS} <= set(theme.variables)
        bands = {"mps-cursor", "mps-cursor-blur", "mps-chosen"}
        assert set(variable_defaults(theme)) == {f"mps-{mark}" for mark in MARK_KEYS} | bands <= set(theme.variables)


def test_a_theme_of_the_user_needs_a_primary_colour_only(tmp_path):
    (tmp_path / "mine.toml").write_text(GOOD)
    specs, messages = load_themes(tmp_path)
    theme = next(theme for theme in build_themes(specs) if theme.name == "mine")
    assert messages == []
    assert theme.primary == "#123456"
    assert theme.variables["mps-ok"] == "#123456"
    assert theme.to_color_system().generate()["primary"] == "#123456"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[colors\nprimary = 1", "line 1"),
        ("[colors]\nprimary = ", "at end of document"),
        ("[colors]\nprimary = \n#", "line 2"),
        ("", "colors.primary is missing"),
        ('[colors]\nprimary = "reddish"', "colors.primary must be a colour, as #1e90ff, not “reddish”"),
        ('[colors]\nprimary = "ansi_red"', "colors.primary must be a colour"),
        ('ansi = true\n[colors]\nprimary = "#ff0000"', "a colour of the terminal"),
        ("[colors]\nprimary = 7", "colors.primary must be a colour"),
        ('[colors]\nprimary = ["#123456"]', "colors.primary must be a colour"),
        ('[colors]\nprimary = "#123456"\nprimry = "#123456"', "“colors.primry” is not known"),
        ('colors = "#123456"', "colors must be a table"),
        (GOOD + '[marks]\nOK = "#123456"', "“marks.OK” is not known"),
        ('dark = "yes"\n' + GOOD, "dark must be true or false"),
        ('css = "Screen {}"\n' + GOOD, "“css” is not known"),
        ('"\\u001b[31m" = 1\n' + GOOD, "“\\x1b[31m” is not known"),
        ("x = " + "[" * 20000, ""),
        ("# " + "x" * FILE_LIMIT, "is larger than 64 KiB"),
    ],
)
def test_a_broken_theme_is_a_message(tmp_path, text, said):
    (tmp_path / "broken.toml").write_text(text)
    (tmp_path / "good.toml").write_text(GOOD)
    specs, messages = load_themes(tmp_path)
    assert [spec.name for spec in specs] == [*SHIPPED, "good"]
    assert len(messages) == 1
    assert messages[0].startswith(f"{tmp_path}/broken.toml: ")
    assert said in messages[0]
    assert "\x1b" not in messages[0]


def test_files_that_are_no_files_are_messages(tmp_path):
    os.mkfifo(tmp_path / "fifo.toml")
    (tmp_path / "folder.toml").mkdir()
    (tmp_path / "bytes.toml").write_bytes(b"# \xff\n")
    (tmp_path / "link.toml").symlink_to(tmp_path / "nowhere")
    (tmp_path / "mpstui-dark.toml").write_text(GOOD)
    (tmp_path / "Bad Name.toml").write_text(GOOD)
    (tmp_path / "bad\x1b[31m.toml").write_text(GOOD)
    specs, messages = load_themes(tmp_path)
    assert [spec.name for spec in specs] == SHIPPED
    assert len(messages) == 7
    assert any("already a theme named “mpstui-dark”" in message for message in messages)
    assert any("is not UTF-8 in line 1" in message for message in messages)
    (tmp_path / "mark.toml").write_bytes(b"\xef\xbb\xbf" + GOOD.encode())
    assert "mark" in {spec.name for spec in load_themes(tmp_path)[0]}
    assert all("\x1b" not in message for message in messages)


def test_a_flood_of_themes_is_cut(tmp_path):
    for number in range(THEME_FILES + 5):
        (tmp_path / f"t{number:03}.toml").write_text(GOOD)
    specs, messages = load_themes(tmp_path)
    assert len(specs) == len(SHIPPED) + THEME_FILES
    assert messages == [f"{tmp_path}: {THEME_FILES + 5} theme files; only the first {THEME_FILES} are read"]


def test_a_folder_that_is_not_there_is_no_problem(tmp_path):
    assert load_themes(tmp_path / "no")[1] == []
    (tmp_path / "file").write_text("")
    assert load_themes(tmp_path / "file")[1] == [f"{tmp_path}/file: Not a directory"]


@pytest.mark.parametrize(
    ("wanted", "env", "chosen"),
    [
        (None, {"TERM": "xterm-256color"}, DEFAULT),
        (None, {"TERM": "xterm", "COLORTERM": "truecolor"}, DEFAULT),
        (None, {"TERM": "xterm-kitty"}, DEFAULT),
        (None, {"TERM": "xterm"}, TERMINAL),
        (None, {"TERM": "linux"}, TERMINAL),
        (None, {"TERM": "screen", "COLORTERM": ""}, TERMINAL),
        ("mpstui-light", {"TERM": "linux"}, "mpstui-light"),
        (None, {"TERM": "xterm-256color", "NO_COLOR": "1"}, TERMINAL),
        ("mpstui-light", {"TERM": "xterm-256color", "NO_COLOR": "1"}, TERMINAL),
        (None, {"TERM": "xterm-256color", "NO_COLOR": ""}, DEFAULT),
    ],
)
def test_the_choice_of_a_theme(wanted, env, chosen):
    assert choose_theme(wanted, env) == chosen


def test_where_the_screen_cannot_be_shown():
    assert terminal_problem({"TERM": "xterm"}, True) is None
    assert "needs a terminal" in (terminal_problem({"TERM": "xterm"}, False) or "")
    for term in ({}, {"TERM": ""}, {"TERM": "dumb"}, {"TERM": "unknown"}):
        assert "TERM=" in (terminal_problem(term, True) or "")
