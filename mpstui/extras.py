"""What puts an optional part's packages into the environment that this program runs in: each way of installing has a
command of its own, and another one's puts them somewhere else, or is refused."""

from __future__ import annotations

import importlib.util
import os
import shlex
import shutil
import sys
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from mpstui.core.late import pattern
from mpstui.core.text import printable

NAME: Final = "mpstui"
_OF_EXTRA: Final = pattern(r"^([^;]*[^;\s])\s*;\s*(?:.* and )?extra\s*==\s*['\"]([\w-]+)['\"]$")
_UV: Final = pattern(r"(?:^|\n)uv\s*=")
_LINE: Final = 1000
"""Characters of a command at most."""


def how_to_install(extra: str, instead: str = "", prefix: str = sys.prefix) -> str:
    """The command line that installs ``mpstui[extra]`` into the environment at ``prefix``, ready to be typed; or
    ``instead``, a package of it in another version.

    Reads a file or two of the environment; asks no network.
    """
    return printable(shlex.join(_command(extra, instead, prefix)), _LINE)


def _command(extra: str, instead: str, prefix: str) -> list[str]:
    home, wanted = Path(prefix), instead or f"{NAME}[{extra}]"
    if (home / "pipx_metadata.json").exists():
        packages = ["--force", instead] if instead else _packages(extra) or [wanted]
        return ["pipx", "inject", home.name, *packages]
    if (receipt := _receipt(home / "uv-receipt.toml")) is not None:
        return _uv_tool(extra, instead, receipt)
    python = os.path.join(prefix, "bin", "python3")
    if importlib.util.find_spec("pip") is not None:
        own = (found := shutil.which("pip")) is not None and Path(found).parent == home / "bin"
        return [*(["pip"] if own else [python, "-m", "pip"]), "install", wanted]
    if _UV.search(_text(home / "pyvenv.cfg")):
        return ["uv", "pip", "install", "--python", python, wanted]
    return ["python3", "-m", "pip", "--python", python, "install", wanted]


def _packages(extra: str) -> list[str]:
    """As this version's metadata ask for them; empty where it has none, as in a bare checkout."""
    try:
        told = metadata.requires(NAME) or []
    except metadata.PackageNotFoundError:
        return []
    return [found[1] for each in told if (found := _OF_EXTRA.match(each)) and found[2] == extra]


def _uv_tool(extra: str, instead: str, requirements: list[dict[str, Any]]) -> list[str]:
    """uv makes the tool's environment anew of what is asked for: what it has so far is asked for again."""
    command, extras, source = ["uv", "tool", "install"], {extra}, ""
    for each in requirements:
        name, place = str(each.get("name", "")), ""
        for key in ("path", "directory", "editable", "url", "git"):
            if isinstance(each.get(key), str):
                place = f"{'git+' if key == 'git' else ''}{each[key]}"
        if name == NAME:
            extras |= {str(one) for one in each.get("extras", ())}
            source = place
            command += ["--editable"] if "editable" in each else []
        else:
            command += ["--with", f"{name} @ {place}" if place else f"{name}{each.get('specifier', '')}"]
    command += ["--with", instead] if instead else []
    wanted = f"{NAME}[{','.join(sorted(extras))}]"
    return [*command, f"{wanted} @ {source}" if source else wanted]


def _receipt(path: Path) -> list[dict[str, Any]] | None:
    """What a uv tool's environment was made of; None where it is none."""
    if not (text := _text(path)):
        return None
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        told = tomllib.loads(text)["tool"]["requirements"]
    except (ValueError, KeyError, TypeError):
        return []
    return [each for each in told if isinstance(each, dict)] if isinstance(told, list) else []


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8", "replace")
    except OSError:
        return ""
