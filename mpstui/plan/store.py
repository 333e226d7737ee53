"""The profiles of the config folder: listed, read, written in one step. Nothing else of mpstui is state."""

from __future__ import annotations

import codecs
import os
import stat
from pathlib import Path
from typing import Final

from mpstui.config import config_dir, make_folder, put_file
from mpstui.core.text import path_text, printable
from mpstui.plan.profile import NAME, Profile, ProfileError, dump, parse
from mpstui.system.trusted import NotTrustedError, judge_open

_LIMIT: Final = 64 * 1024
_FILES: Final = 500


def profiles_dir() -> Path:
    """``profiles`` in the config folder; it need not exist."""
    return config_dir() / "profiles"


def path_of(name: str, folder: Path | None = None) -> Path:
    """The file of a profile. Raises ProfileError where that cannot be a name."""
    if not NAME.fullmatch(name):
        raise ProfileError(
            f"“{printable(name, 60)}” cannot be the name of a profile: letters, digits, . _ and - only, at most 64"
        )
    return (folder or profiles_dir()) / f"{name}.toml"


def names(folder: Path | None = None) -> tuple[str, ...]:
    """The names of the profiles that are there, sorted. Raises ProfileError where the folder cannot be read."""
    folder = folder or profiles_dir()
    try:
        found = sorted(path.stem for path in folder.iterdir() if path.suffix == ".toml" and NAME.fullmatch(path.stem))
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise ProfileError(f"{path_text(folder)}: {error.strerror}") from None
    return tuple(found[:_FILES])


def read(name: str, folder: Path | None = None) -> tuple[Profile, str]:
    """A profile and its text. Raises ProfileError, which names the file and the line. As the configuration, it is read
    where it is root's or the user's own alone, and nobody else may change it: behind sudo or a link it may be
    somebody else's."""
    path = path_of(name, folder)
    where = path_text(path, 200)
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise ProfileError(f"{where}: is not a file")
            judge_open(path, descriptor, {0, os.geteuid()})
            raw = file.read(_LIMIT + 1).removeprefix(codecs.BOM_UTF8)
    except FileNotFoundError:
        present = ", ".join(names(folder)) or "none"
        raise ProfileError(f"there is no profile “{name}”; there are: {present} (in {where})") from None
    except OSError as error:
        raise ProfileError(f"{where}: {error.strerror or 'cannot be read'}") from None
    except NotTrustedError as error:
        raise ProfileError(f"{where}: {error}; it is not read") from None
    if len(raw) > _LIMIT:
        raise ProfileError(f"{where}: is larger than {_LIMIT // 1024} KiB")
    try:
        text = raw.decode("utf-8")
        return parse(text), text
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise ProfileError(f"{where}: line {line}: is not UTF-8") from None
    except ProfileError as error:
        raise ProfileError(f"{where}: {error}") from None


def write(name: str, profile: Profile, folder: Path | None = None, *, replace: bool = False) -> Path:
    """Keep a profile. Raises ProfileError; one that is there is replaced only where ``replace`` says so."""
    path = path_of(name, folder)
    where = path_text(path, 200)
    if not replace and os.path.lexists(path):
        raise ProfileError(f"there is a profile “{name}” already ({where}); --replace overwrites it")
    text = dump(profile)
    parse(text)  # what is written can be read
    try:
        make_folder(path.parent)
        put_file(path, text)
    except NotTrustedError as error:
        raise ProfileError(f"{where}: is not written: {error}") from None
    except OSError as error:
        raise ProfileError(f"{where}: could not be written: {error.strerror}") from None
    return path
