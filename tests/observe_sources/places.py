"""Log directories for the tests of discovery."""

from __future__ import annotations

from pathlib import Path


def control_log(directory: Path, text: str = "") -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "control.log").write_text(text)
    return directory
