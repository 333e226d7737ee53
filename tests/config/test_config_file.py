"""config.toml: what it can say, and what is said about one that is wrong."""

from __future__ import annotations

import os

import pytest

from mpstui.config import Config, config_dir, load_config
from mpstui.system import trusted


@pytest.fixture
def file(tmp_path):
    return tmp_path / "config.toml"


def test_no_file_is_the_default(file):
    assert load_config(file) == (Config(), [])


def test_all_that_it_can_say(file):
    file.write_text(
        'refresh = 2\nreconcile = 0\ntheme = "mpstui-light"\nread_only = true\n'
        '[keys]\nterminate_client = "T"\nquit = "ctrl+x"\n'
    )
    config, messages = load_config(file)
    assert messages == []
    assert config == Config(2.0, 0.0, "mpstui-light", True, {"terminate_client": "T", "quit": "ctrl+x"})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("refresh = 0", "refresh must be a number of seconds from 0.1 to 3600"),
        ("refresh = nan", "refresh must be"),
        ("refresh = true", "refresh must be"),
        ('refresh = "1"', "refresh must be"),
        ("reconcile = 1", "reconcile must be a number of seconds from 5 to 86400, or 0 for never"),
        ("reconcile = false", "reconcile must be"),
        ("theme = 1", "theme is not the name of a theme"),
        ('theme = "../../x"', "theme is not the name of a theme"),
        ("keys = 1", "keys must be a table"),
        ('[keys]\nquit = ""', "“quit” must name one key"),
        ('[keys]\nquit = ["q"]', "“quit” must name one key"),
        ("colour = 1", "“colour” is not known; known: activity, commands, dcgm, idle_minutes, keys, read_only,"),
    ],
)
def test_a_wrong_value_keeps_the_default(file, text, said):
    file.write_text(text)
    config, messages = load_config(file)
    assert len(messages) == 1
    assert messages[0].startswith(f"{file}: ")
    assert said in messages[0]
    assert (config.refresh, config.reconcile, config.theme, config.read_only) == (None, 60.0, None, False)


@pytest.mark.parametrize("name", ["readonly", "read-only", "Read_Only", "raed_only"])
def test_a_misspelt_wish_to_be_read_only_is_one(file, name):
    file.write_text(f"{name} = true")
    config, (message,) = load_config(file)
    assert config.read_only
    assert f"“{name}” is not a known key; mpstui reads it as read_only, at its strictest, until" in message


@pytest.mark.parametrize(
    "text", ['[keys]\naction.unblock = "U"', '[keys.action]\nunblock = "U"', '[keys]\n"action.unblock" = "U"']
)
def test_an_id_with_a_dot_needs_no_quotes(file, text):
    file.write_text(text)
    config, messages = load_config(file)
    assert (dict(config.keys), messages) == ({"action.unblock": "U"}, [])


@pytest.mark.parametrize("text", ["[keys.action]", '[keys.a.b]\nc = "x"', "[keys.a]\nb = 1"])
def test_a_table_without_keys_is_named(file, text):
    file.write_text(text)
    config, (message,) = load_config(file)
    assert not config.keys
    assert "must name one key" in message


def test_one_wrong_key_does_not_cost_the_others(file):
    file.write_text('refresh = "x"\ntheme = "mpstui-light"\n[keys]\nBad = "q"\nquit = "x"\n')
    config, messages = load_config(file)
    assert config.theme == "mpstui-light"
    assert dict(config.keys) == {"quit": "x"}
    assert len(messages) == 2


@pytest.mark.parametrize("text", ['read_only = "yes"', "read_only = true\nrefresh = ", "x" * 70000, "read_only = 0"])
def test_what_may_have_wished_for_read_only_is_read_only(file, text):
    file.write_text(text)
    config, messages = load_config(file)
    assert config.read_only
    assert len(messages) == 1


def test_a_file_that_is_none(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    for path, said in ((tmp_path, "directory"), (tmp_path / "fifo", "is not a file")):
        config, messages = load_config(path)
        assert config.read_only
        assert said in messages[0].lower()


def test_the_folder_is_where_the_standard_says(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert config_dir() == tmp_path / "mpstui"


def test_how_much_more_is_wrong_is_said(file):
    file.write_text("".join(f'[[commands]]\nname = "c{n}"\nkey = "f9"\nrun = []\n' for n in range(7)))
    (message,) = load_config(file)[1]
    assert message.count("run must be") == 5
    assert message.endswith("; and 2 more")


@pytest.mark.parametrize("which", ["file", "folder", "target"])
def test_what_others_may_have_written_is_not_read(tmp_path, which):
    """As ssh has it; a link is judged where it stands and where it leads."""
    folder = tmp_path / "mine"
    folder.mkdir()
    file = folder / "config.toml"
    file.write_text("refresh = 7\n[keys]\nquit = 'x'\n")
    if which == "target":
        (folder / "dots").mkdir()
        file.rename(folder / "dots" / "c.toml")
        file.symlink_to("dots/c.toml")
    assert load_config(file)[0].refresh == 7
    wrong = {"file": file, "folder": folder, "target": folder / "dots"}[which]
    wrong.chmod(0o666 if which == "file" else 0o777)
    config, (message,) = load_config(file)
    assert (config.refresh, config.keys, config.read_only) == (None, {}, True)
    assert f"can be changed by everybody (mode {'0666' if which == 'file' else '0777'}): chmod go-w {wrong};" in message
    assert message.endswith("read-only until it is corrected")
    wrong.chmod(0o1777 if which == "folder" else 0o755)  # nobody else takes a file away there
    assert load_config(file)[1] == []


@pytest.mark.skipif(os.geteuid() != 0, reason="root alone gives a file away")
def test_whose_folder_it_is_is_not_told_where_not_everybody_has_a_number(file, monkeypatch):
    file.write_text("refresh = 7")
    os.chown(file.parent, 64103, -1)
    config, (message,) = load_config(file)
    assert (config.refresh, config.read_only) == (None, True), "it may have been to be read-only"
    assert f"{file}: is in a folder of others: {file.parent} belongs to UID 64103" in message
    monkeypatch.setattr(trusted, "nameless_uid", lambda: 64103)
    assert load_config(file)[0].refresh == 7
