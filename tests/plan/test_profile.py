"""Profiles: the schema, the line of what is wrong, and the files."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import pytest

from mpstui.plan import store
from mpstui.plan.amounts import PlanError
from mpstui.plan.cpus import cpu_list, cpu_text
from mpstui.plan.exports import ShareSettings
from mpstui.plan.profile import (
    DaemonProfile,
    Limits,
    PartitionProfile,
    Profile,
    ProfileError,
    ServerProfile,
    dump,
    parse,
)

GIB = 1 << 30
UUID = "GPU-c6233a33-3507-69ef-fed3-0090a2cbc745"
FULL = Profile(
    (
        DaemonProfile(
            Path("/run/mps/0"),
            Path('/var/log/it\'s "0"'),
            (UUID,),
            True,
            frozenset({0, 1, 2, 8}),
            Limits(50.0, 1, {UUID: 20 * GIB}),
            Limits(33.4, None, {"0": 10 * GIB}),
            (ShareSettings("train", 18.2, 10 * GIB, 0), ShareSettings("serve", 45.5)),
        ),
        DaemonProfile(Path("/run/mps/1")),
    ),
    "two tenants — 24 and 60 SMs",
)
GOOD = """\
schema = 1

[[daemon]]
pipe_dir = "/tmp/mps_0"
devices = [
    "GPU-1",
]

[daemon.limits]
active_thread_percentage = 50

[daemon.limits.pinned_mem_limit]
0 = "10G"

[[daemon.share]]
name = "a"

[[daemon.share]]
name = "b"
active_thread_percentage = 30
"""


def test_what_is_written_is_read_back() -> None:
    assert parse(dump(FULL)) == FULL


MODES = Profile(
    (
        DaemonProfile(
            Path("/run/mps/s"), static=True, partitions=(PartitionProfile(UUID, 7), PartitionProfile("1", 7))
        ),
        DaemonProfile(
            Path("/run/mps/3"),
            protocol=3,
            servers=(
                ServerProfile(
                    "training",
                    1000,
                    (UUID, "1"),
                    (ShareSettings("default", 50.0), ShareSettings("small", None, 8 * GIB, 1), ShareSettings("open")),
                    (PartitionProfile(UUID, 4, "large", True), PartitionProfile(UUID, 2, "rest")),
                ),
                ServerProfile("serving"),
            ),
            features=("memacct",),
        ),
    )
)


def test_partitions_and_named_servers_are_read_back() -> None:
    assert parse(dump(MODES)) == MODES


@pytest.mark.parametrize(
    ("old", "new", "line", "message"),
    [
        ("static = true\n", "", 6, "needs static = true"),
        ("static = true", "static = 1", 5, "true or false"),
        ("chunks = 7", "chunks = 0", 9, "whole number above 0"),
        ("chunks = 7", "chunks = 7.0", 9, "whole number above 0"),
        ("chunks = 7", 'chunks = 7\nname = "a"', 10, "is not known"),
        (f'device = "{UUID}"\n', "", 7, "needs its device"),
        ('device = "1"', 'device = "1;quit"', 12, "an ordinal as text"),
        ("protocol = 3", "protocol = 4", 17, "2 or 3"),
        ("protocol = 3\n", "", 19, "server needs protocol = 3"),
        ("protocol = 3", "protocol = 3\nstatic = true", 18, "is not of protocol 3"),
        ("protocol = 3", "protocol = 3\nlimits = {}", 18, "is not of protocol 3"),
        ('["memacct"]', '["x"]', 18, "memacct and context-share"),
        ('"training"', '"Training"', 21, "small letters"),
        ("uid = 1000", "uid = -1", 22, "number of a user"),
        ("uid = 1000", "uid = true", 22, "number of a user"),
        ('"serving"', '"training"', 49, "given twice"),
        ('"open"', '"small"', 35, "given twice"),
        ('"rest"', '"large"', 44, "given twice"),
        ('"rest"', '"re st"', 44, "small letters"),
        ("percentage = 50", "percentage = 0.5", 27, "1 to 100"),
        ("include_remainder = true", 'include_remainder = "x"', 41, "true or false"),
    ],
)
def test_what_is_wrong_with_partitions_and_servers(old: str, new: str, line: int, message: str) -> None:
    text = dump(MODES)
    assert old in text
    with pytest.raises(ProfileError, match=rf"^line {line}: .*{message}"):
        parse(text.replace(old, new, 1))


def test_a_profile_by_hand() -> None:
    (daemon,) = parse(GOOD).daemons
    assert daemon.limits == Limits(50.0, None, {"0": 10 * GIB})
    assert [share.name for share in daemon.shares] == ["a", "b"]
    found = parse(GOOD).share("b")
    assert found
    assert found[1].active_thread_percentage == 30
    assert parse(GOOD).share("c") is None


@pytest.mark.parametrize(
    ("old", "new", "line", "message"),
    [
        ("schema = 1", "schema = 2", 1, "schema must be 1"),
        ("pipe_dir", "pipedir", 4, "“pipedir” is not known"),
        ('"/tmp/mps_0"', '"tmp/mps_0"', 4, "absolute path"),
        ('"/tmp/mps_0"', '"/tmp/../etc"', 4, "absolute path"),
        ('"/tmp/mps_0"', '"/"', 4, "not /"),
        ('"/tmp/mps_0"', '"/tmp/a\\nb"', 4, "cannot be printed"),
        ('"GPU-1"', '"0"', 7, "list of UUIDs"),
        ('"GPU-1",', '"GPU-1", "GPU-1"', 7, "twice"),
        ("percentage = 50", "percentage = 0", 10, "from 0.1 to 100"),
        ("percentage = 50", "percentage = 101", 10, "from 0.1 to 100"),
        ("percentage = 50", "percentage = true", 10, "from 0.1 to 100"),
        ("percentage = 50", 'percentage = "50"', 10, "from 0.1 to 100"),
        ("percentage = 50", "percentage = nan", 10, "from 0.1 to 100"),
        ("active_thread_percentage = 50", "client_priority = 2", 10, "0 \\(normal\\)"),
        ('"10G"', '"10GB"', 13, "is no size"),
        ('"10G"', "10", 13, "size as text"),
        ('0 = "10G"', '"../x" = "10G"', 13, "is no device"),
        ('name = "a"', 'name = "../a"', 16, "letters, digits"),
        ('name = "b"', 'name = "a"', 19, "given twice"),
        ('name = "b"', "", 18, "needs a name"),
        ("percentage = 30", "percentage = -1", 20, "from 0.1 to 100"),
        ("[daemon.limits]", "[daemon.limit]", 9, "is not known"),
        ('pipe_dir = "/tmp/mps_0"', "server_limits = 3", 4, "must be a table"),
    ],
)
def test_the_line_of_what_is_wrong(old: str, new: str, line: int, message: str) -> None:
    assert old in GOOD
    with pytest.raises(ProfileError, match=rf"^line {line}: .*{message}"):
        parse(GOOD.replace(old, new, 1))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "schema must be 1"),
        ("schema = 1", "no \\[\\[daemon\\]\\]"),
        ("schema = 1\n[daemon]\n", "must be tables"),
        ("schema = 1\n[[daemon]\n", "line 2"),
        ('schema = 1\n[[daemon]]\npipe_dir = "/tmp/a', "line 3"),
        ("schema = 1\n[[daemon]]\n[[daemon]]\n", "each needs its own pipe_dir"),
        ('schema = 1\n[[daemon]]\npipe_dir = "/a"\n[[daemon]]\npipe_dir = "/a"\n', "line 5: .*twice"),
        ("a = " + "[" * 5000, "nested too deeply"),
        ("\x00", "not TOML"),
    ],
)
def test_texts_that_are_no_profile(text: str, message: str) -> None:
    with pytest.raises(ProfileError, match=message) as error:
        parse(text)
    assert str(error.value).isprintable()


def test_every_beginning_of_a_profile_is_a_profile_or_a_message() -> None:
    text = dump(FULL)
    messages = []
    for end in range(len(text)):
        with contextlib.suppress(ProfileError):
            parse(text[:end])
            continue
        messages.append(end)
    assert 0 < len(messages) < len(text)


def test_the_store(tmp_path: Path) -> None:
    folder = tmp_path / "profiles"
    assert store.names(folder) == ()
    path = store.write("two-tenants", FULL, folder)
    assert path.stat().st_mode & 0o777 == 0o600
    assert store.read("two-tenants", folder)[0] == FULL
    assert store.names(folder) == ("two-tenants",)
    with pytest.raises(ProfileError, match="already"):
        store.write("two-tenants", FULL, folder)
    store.write("two-tenants", Profile((DaemonProfile(),)), folder, replace=True)
    assert store.read("two-tenants", folder)[0] == Profile((DaemonProfile(),))
    assert [p.name for p in folder.iterdir()] == ["two-tenants.toml"]


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "mark.toml").write_text("\ufeff" + GOOD, encoding="utf-8")  # as some editors begin a file
    assert store.read("mark", tmp_path)[0] == parse(GOOD)
    os.mkfifo(tmp_path / "pipe.toml")
    (tmp_path / "folder.toml").mkdir()
    (tmp_path / "latin.toml").write_bytes(b"schema = 1\n# \xe9\n")
    (tmp_path / "large.toml").write_bytes(b"#" * 100_000)
    (tmp_path / "odd.toml").write_text(GOOD.replace("multi", "x").replace("pipe_dir", "pipe"))
    for name, message in [
        ("pipe", "not a file"),
        ("folder", "not a file|directory"),
        ("latin", "line 2: is not UTF-8"),
        ("large", "larger than"),
        ("odd", r"odd\.toml: line 4: "),
        ("none", "no profile “none”; there are: "),
        ("../odd", "cannot be the name"),
        ("a\nb", "cannot be the name"),
    ]:
        with pytest.raises(ProfileError, match=message):
            store.read(name, tmp_path)


@pytest.mark.skipif(os.geteuid() != 0, reason="root alone gives a file away")
@pytest.mark.parametrize("how", ["file", "link", "folder", "mode"])
def test_of_another_users_no_profile_is_read_and_none_is_written_there(tmp_path: Path, how: str) -> None:
    """Behind sudo the folder is that of whoever calls it, and what he has in it may lead anywhere."""
    folder = tmp_path / "profiles"
    path = store.write("his", FULL, folder)
    if how == "link":
        path.rename(tmp_path / "his.toml")
        path.symlink_to(path := tmp_path / "his.toml")
    if how == "mode":
        path.chmod(0o666)
        with pytest.raises(ProfileError, match=r"changed by everybody \(mode 0666\): chmod go-w .*his\.toml; it is"):
            store.read("his", folder)
        return
    os.chown(folder if how == "folder" else path, 64101, -1)
    if how != "folder":
        with pytest.raises(ProfileError, match=r"his\.toml: belongs to UID 64101; it is not read"):
            store.read("his", folder)
        return
    with pytest.raises(ProfileError, match=r"mine\.toml: is not written: .* belongs to UID 64101"):
        store.write("mine", FULL, folder)
    assert not (folder / "mine.toml").exists()


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ProfileError, match="could not be written"):
        store.write("a", FULL, tmp_path / "file" / "profiles")


@pytest.mark.parametrize(("text", "cpus"), [("0", {0}), ("0-3,8", {0, 1, 2, 3, 8}), ("2, 1", {1, 2})])
def test_cpu_lists(text: str, cpus: set[int]) -> None:
    assert cpu_list(text) == cpus
    assert cpu_list(cpu_text(cpus)) == cpus


@pytest.mark.parametrize("text", ["", "a", "3-1", "-1", "0-", "0-99999", "1,,2", "0x1"])
def test_wrong_cpu_lists(text: str) -> None:
    with pytest.raises(PlanError, match="list of CPUs"):
        cpu_list(text)


def test_limits_of_servers_fall_back_to_the_defaults() -> None:
    assert FULL.daemons[0].for_servers == Limits(33.4, 1, {UUID: 20 * GIB, "0": 10 * GIB})
    assert FULL.daemons[1].for_servers == Limits()
