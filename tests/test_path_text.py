"""A path is shown in one way only: what text.path_text makes of names, and that mypy finds every other way."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from mpstui.core.text import UNKNOWN, error_text, path_text

ROOT = Path(__file__).parents[1]

OTHER_WAYS = """
import os
from collections.abc import Sequence
from pathlib import Path, PurePath


def lines(path: Path, perhaps: Path | None, paths: Sequence[Path], by: dict[str, Path], error: OSError) -> list[str]:
    entry = next(os.scandir("/"))
    print(path)  # wrong
    print("in", perhaps, sep=" ")  # wrong
    print(f"{error.filename}: {error.strerror}")  # wrong
    return [
        f"{path}",  # wrong
        f"no daemon in {perhaps or 'nowhere'}",  # wrong
        f"{path!r}",  # wrong
        f"{path!s:>20}",  # wrong
        f"{path=}",  # wrong
        f"{path / 'control.log'}",  # wrong
        f"{path.parent}",  # wrong
        f"{path.name} holds nothing",  # wrong
        f"{path.name.upper()[:10] + '…'}",  # wrong
        f"{paths[0].stem if paths else ''}",  # wrong
        f"{paths}",  # wrong
        f"{by}",  # wrong
        f"{path.as_posix()}",  # wrong
        f"{os.fspath(path)}",  # wrong
        f"{os.path.join(path, 'x')}",  # wrong
        f"{os.getcwd()}",  # wrong
        f"{entry.name}",  # wrong
        f"{entry}",  # wrong
        f"{error}",  # wrong
        str(path),  # wrong
        str(PurePath("/")),  # wrong
        str(error),  # wrong
        repr(perhaps),  # wrong
        ascii(path),  # wrong
        format(path),  # wrong
        "{}".format(path),  # wrong
        "{x}".format(x=path),  # wrong
        ", ".join(map(str, paths)),  # wrong
        ", ".join(str(one) for one in paths),  # wrong
        *(f"{key}: {value}" for key, value in by.items()),  # wrong
    ]


def right(path: Path, paths: Sequence[Path], error: OSError, number: int, name: str) -> list[str]:
    from mpstui.core.text import error_text, path_text

    return [
        f"{path_text(path)}: {error_text(error)}, {error.strerror}, {number} {name!r}",
        ", ".join(map(path_text, paths)),
        os.fspath(path),
        str(number),
        f"{len(paths)} paths",
    ]
"""
"""Each line with ``# wrong`` shows a path in a way of its own."""


@pytest.fixture
def checked(tmp_path: Path) -> Path:
    """The folder in which mypy runs as it does in `make lint`, with a cache of its own."""
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    for name in ("mpstui", "scripts"):
        (tmp_path / name).symlink_to(ROOT / name)
    return tmp_path


def test_mypy_finds_every_other_way_to_show_a_path(checked: Path) -> None:
    (checked / "other_ways.py").write_text(OTHER_WAYS)
    program = "import sys; from mypy.main import main; main(args=sys.argv[1:], stdout=sys.stdout, stderr=sys.stderr)"

    done = subprocess.run(
        [sys.executable, "-c", program, "--no-incremental", "other_ways.py"],
        cwd=checked, capture_output=True, text=True, timeout=170, check=False,
    )  # fmt: skip

    found = {int(number) for number in re.findall(r"^other_ways\.py:(\d+): error: .*\[path-text\]$", done.stdout, re.M)}
    wrong = {number for number, line in enumerate(OTHER_WAYS.splitlines(), 1) if "# wrong" in line}
    assert found == wrong, done.stdout + done.stderr


def test_no_module_is_spared() -> None:
    """mypy with the plugin is part of `make lint`; nothing here may turn it off."""
    spared = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in sorted((ROOT / "mpstui").rglob("*.py"))
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if re.search(r"#\s*(type:\s*ignore|mypy:).*", line) and ("path-text" in line or "[" not in line)
    ]

    assert spared == []
    assert 'plugins = ["scripts/mypy_path_text.py"]' in (ROOT / "pyproject.toml").read_text()


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("/tmp/mps_0", "/tmp/mps_0"),
        ("/home/jürgen/mps ü", "/home/jürgen/mps ü"),
        ("/tmp/mps_\x1b]52;c;aGk=\x07", r"/tmp/mps_\x1b]52;c;aGk=\x07"),
        ("/tmp/mps_\n\r\x9b", r"/tmp/mps_\n\r\x9b"),
        ("/tmp/mps_\u202e0\u200b", r"/tmp/mps_\u202e0\u200b"),
        (b"/tmp/mps_\xff", r"/tmp/mps_\xff"),
        ("/tmp/mps_\ud800", r"/tmp/mps_\ud800"),
    ],
)
def test_a_path_as_text(name: str | bytes, text: str) -> None:
    assert path_text(Path(os.fsdecode(name))) == text
    assert path_text(name) == text, "as an error of the system has it"


def test_no_path_is_the_sign_of_what_is_not_known() -> None:
    assert path_text(None) == UNKNOWN


def test_what_the_system_says_is_said_without_the_name_that_it_said_it_of() -> None:
    with pytest.raises(OSError) as caught:
        os.stat("/nowhere/\x1b[2J/x")

    assert error_text(caught.value) == "No such file or directory"
    assert error_text(ValueError("no\x1bescape")) == r"no\x1bescape"
    assert error_text(OSError()) == "OSError"
