"""The configuration: root's config.toml for the machine, the user's above it, and theme files; checked, with a message
for whatever is wrong in them."""

from __future__ import annotations

import codecs
import errno
import json
import os
import re
import stat
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import field, fields, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, TypeVar

from mpstui.core.late import dataclass, pattern
from mpstui.core.requests import LONGEST_REFRESH, SHORTEST_REFRESH
from mpstui.core.text import error_text, path_text, printable, unprintable
from mpstui.core.trust import ANYBODY
from mpstui.system.own import roots
from mpstui.system.procfs import nameless_uid, user_name
from mpstui.system.trusted import (
    NotTrustedError,
    judge_directory,
    judge_open,
    judge_way,
    make_directory,
    open_trusted,
    walk,
)

SYSTEM: Final = Path("/etc/mpstui/config.toml")
"""Root's, for every user of the machine. No variable names another one: it may hold a policy."""
FILE_LIMIT: Final = 64 * 1024
"""Bytes of a configuration or theme file that are read at most; a larger one is refused."""
RECONCILE: Final = 60.0
THEME_FILES: Final = 100
"""Theme files of the user that are read at most."""
COLOR_KEYS: Final = frozenset(
    {"primary", "secondary", "accent", "success", "warning", "error", "foreground", "background", "surface", "panel"}
)
MARK_KEYS: Final = frozenset(
    {
        "ok",
        "warn",
        "error",
        "held",
        "gone",
        "muted",
        "outdated",
        "bar",
        "bar-memory",
        "bar-high",
        "bar-empty",
        "badge",
        "badge-text",
        "marked",
        "edge",
        "off",
    }
)
"""Colours of our own beside Textual's: states, bars, badges, marked rows, frames, and keys that do nothing now."""

COMMANDS: Final = 50
"""Commands of one's own at most."""
ARGUMENTS: Final = 100
"""Words of one of them at most."""
_COMMAND_KEYS: Final = frozenset({"name", "key", "run", "terminal", "safe", "seconds"})

_HEX = pattern(r"#([0-9a-fA-F]{3}|[0-9a-fA-F]{6})")
_ANSI = pattern(r"ansi_(default|(bright_)?(black|red|green|yellow|blue|magenta|cyan|white))")
_NAME = pattern(r"[a-z0-9][a-z0-9-]{0,39}")
_KEY = pattern(r"[A-Za-z0-9_+]{1,40}")
_ID = pattern(r"[a-z][a-z0-9_.-]{0,59}")
_NAMED: Final = 5
"""Of what is wrong in one place."""
_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class ThemeSpec:
    """The colours of one theme file, checked: ``#rrggbb``, or in an ``ansi`` theme the terminal's own ``ansi_red``."""

    name: str
    dark: bool
    ansi: bool
    colors: Mapping[str, str]
    """Textual's colours; ``primary`` is always there."""
    marks: Mapping[str, str] = field(default_factory=lambda: _NOTHING)
    """Our own colours, see ``MARK_KEYS``; a missing one is derived from ``colors``."""


@dataclass(frozen=True, slots=True)
class Policy:
    """What root has laid down for everybody else: no option, variable or file of a user's takes it back. It is about
    this program; what the system permits is the system's to say."""

    read_only: bool = False
    """Nobody but root changes anything."""
    see_commands: tuple[str, ...] | None = None
    """Users and ``@groups`` that see other users' command lines, beside root; None: everybody."""
    idle_minutes: float | None = None
    """A user may set fewer, and neither more nor never; None: as the user likes."""
    commands: str = "any"
    """Whose ``[[commands]]`` there are: ``any``, ``system`` for root's file alone, or ``none``."""


@dataclass(frozen=True, slots=True)
class CommandSpec:
    """A program of the user's that a key starts, as config.toml has it; ``mpstui.commands`` fills it in."""

    name: str
    key: str
    run: tuple[str, ...]
    """The program and its arguments; ``{client.pid}`` is a field of the row under the cursor."""
    terminal: bool = False
    """The program gets the terminal; otherwise its output is shown in a window."""
    safe: bool = False
    """It changes nothing: it is not asked about, and there in read-only mode too."""
    seconds: float = 60.0
    """How long it may take where it has no terminal."""
    origin: str = ""
    """The file that it is from."""


@dataclass(frozen=True, slots=True)
class Config:
    """What config.toml can say."""

    refresh: float | None = None
    """Seconds between two readings of the meters; None: as the watcher sees fit."""
    reconcile: float = RECONCILE
    """Seconds between two questions to a daemon in which nothing seems to change; 0: never."""
    theme: str | None = None
    read_only: bool = False
    keys: Mapping[str, str] = field(default_factory=lambda: _NOTHING)
    """Id of an action or binding to the key that starts it."""
    activity: bool = False
    """Whether the clients' kernel launches are counted while the screen is open."""
    idle_minutes: float = 0.0
    """Minutes without a launch after which a client is a problem, where launches are counted; 0: never."""
    dcgm: bool = False
    """Whether DCGM is asked for the meters of devices of which NVML has no SM activity."""
    commands: tuple[CommandSpec, ...] = ()
    policy: Policy = Policy()
    """As it binds the user who runs this: root is bound by nothing."""
    origins: Mapping[str, str] = field(default_factory=lambda: _NOTHING, compare=False)
    """Name of a value to the file that it is from; what is not here is the default."""


class _BadFileError(Exception):
    """Why a file cannot be used, in words."""


class _StrangersError(Exception):
    """Whose file it is, in words: another user's wishes are nobody's."""


_STATE: Final = ".local/state/mpstui"
_NO_HOME: Final = Path("/")
"""Of a user whom nobody gives a home, neither HOME nor an entry for him, as in a small container."""


def state_folder(environment: Mapping[str, str] = os.environ) -> Path:
    """``mpstui`` in the user's state folder, which root does not take from another user's environment (``sudo`` may
    leave it)."""
    from platformdirs import user_state_path

    home = environment.get("XDG_STATE_HOME") or environment.get("HOME")
    try:
        if os.geteuid() == 0 and home and _is_anothers(Path(home)):
            import pwd

            return Path(pwd.getpwuid(0).pw_dir) / _STATE
        return user_state_path("mpstui").absolute()
    except (KeyError, RuntimeError):
        return _NO_HOME / _STATE


def _is_anothers(place: Path) -> bool:
    """Whether another user than root has made some of the way there, as far as there is one."""
    try:
        judge_way(place.absolute(), roots())
    except NotTrustedError as error:
        return error.fault in {"owner", "steered"}
    except OSError:
        return False
    return False


def make_folder(path: Path) -> None:
    """Where it is missing, for this user alone. Behind sudo it may be in the home of whoever calls it, where root would
    follow his links. Raises NotTrustedError and OSError."""
    if os.geteuid() == 0:
        make_directory(path.absolute(), roots(), 0o700)
    else:
        path.mkdir(parents=True, exist_ok=True, mode=0o700)


def keep(path: Path, text: str) -> None:
    """Write a file of the user's, for this user alone, and its folder where that is missing. Raises OSError."""
    try:
        make_folder(path.parent)
    except NotTrustedError as error:
        raise PermissionError(errno.EPERM, str(error), path_text(path.parent)) from None
    put_file(path, text)


def _owner(path: str) -> int | None:
    try:
        return os.stat(path).st_uid
    except OSError:
        return None


def config_dir() -> Path:
    """``$XDG_CONFIG_HOME/mpstui``, usually ``~/.config/mpstui``; it need not exist."""
    import platformdirs

    try:
        return Path(platformdirs.user_config_dir("mpstui"))
    except RuntimeError:
        return _NO_HOME / ".config/mpstui"


class ScreenMemory:
    """What the screen keeps from one start to the next: a small JSON file, written in one step at each change.

    A file that cannot be read or written is no reason for a word: it is a convenience. Where another user could have
    written it, it is not read.
    """

    def __init__(self, path: Path, *, fresh: bool = False) -> None:
        """``fresh``: begin with nothing, and leave what is kept as it is: another start has it again."""
        self._path = None if fresh else path
        self._values: dict[str, Any] = {} if fresh else _kept(path)

    def get(self, name: str) -> object:
        """None where nothing is kept under that name."""
        return self._values.get(name)

    def put(self, name: str, value: object) -> None:
        """Keep a value that JSON has."""
        if self._values.get(name) == value:
            return
        self._values[name] = value
        if self._path is not None:
            with suppress(OSError):
                keep(self._path, json.dumps(self._values))


@contextmanager
def folder_of(path: Path) -> Iterator[Path]:
    """The directory that a file is to be written to, whoever owns it, under a name that nobody leads elsewhere as long
    as this lasts. Raises PermissionError where another user has made a link on the way there: somebody who named that
    directory has not named what its owner leads it to. And OSError."""
    with ExitStack() as held:
        way, steered = walk(path.absolute(), held, None)
        if others := steered - {0, os.geteuid()}:
            whose = "another user" if ANYBODY in others else user_name(min(others))
            raise PermissionError(errno.EPERM, f"{whose} has made a link on the way there", path_text(path))
        yield Path(f"/proc/self/fd/{way[-1]}")


def put_file(path: Path, text: str, mode: int = 0o600, *, sync: bool = False) -> None:
    """The file is as before or the whole text, never a part; a link is replaced, not followed. ``sync``: also where the
    machine stops. Raises OSError, also where another user's link leads there."""
    import tempfile

    with folder_of(path) as folder:
        descriptor, temporary = tempfile.mkstemp(prefix=".mpstui-", suffix=".tmp", dir=folder)
        try:
            with open(descriptor, "w", encoding="utf-8") as file:
                os.fchmod(descriptor, mode)
                file.write(text)
                if sync:
                    file.flush()
                    os.fsync(descriptor)
            os.replace(temporary, folder / path.name)
        except BaseException:
            with suppress(OSError):
                os.unlink(temporary)
            raise


def _kept(path: Path) -> dict[str, Any]:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)
        with open(descriptor, "rb") as file:
            found = os.fstat(descriptor)
            ours = stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o022
            raw = file.read(FILE_LIMIT + 1) if ours else b""
        data = json.loads(raw) if 0 < len(raw) <= FILE_LIMIT else {}
    except (OSError, ValueError, RecursionError):
        return {}
    return data if isinstance(data, dict) else {}


def shipped_themes_dir() -> Path:
    """The themes that come with the program: inside the package when installed, beside it in a checkout."""
    package = Path(__file__).resolve().parent
    installed = package / "_themes"
    return installed if installed.is_dir() else package.parent / "themes"


def load_config(path: Path | None = None, system: Path | None = None) -> tuple[Config, list[str]]:
    """The configuration, and a message for each thing wrong in it: root's file ``SYSTEM``, and above it the user's,
    ``config_dir()/config.toml``. ``path``: this file alone, or above ``system``.

    A key that is wrong keeps its value from below. Only ``read_only`` is different: where it, or a whole file, cannot
    be understood, the program is read-only, because that may have been the wish.
    """
    if path is None:
        path, system = config_dir() / "config.toml", SYSTEM if system is None else system
    below, messages = Config(), list[str]()
    if system is not None:
        below, messages = _load(system, Config(), system=True)
    config, more = _load(path, below, system=False)
    if config.commands and config.policy.commands != "any":
        kept = below.commands if config.policy.commands == "system" else ()
        forbidden = [each.name for each in config.commands if each not in kept]
        if forbidden:
            words = ", ".join(map(_quoted, forbidden[:_NAMED]))
            words += f" and {len(forbidden) - _NAMED} more" if len(forbidden) > _NAMED else ""
            more = [*more, f"commands: {words}: the policy in {path_text(system)} forbids commands of one's own"]
        config = replace(config, commands=kept)
    if config.policy.read_only:
        config = replace(config, read_only=True, origins={**config.origins, "read_only": path_text(system or path)})
    if (most := config.policy.idle_minutes) is not None and not 0 < config.idle_minutes <= most:
        origins = {**config.origins, "idle_minutes": path_text(system or path)}
        config = replace(config, idle_minutes=most, origins=origins)
    return config, messages + more


def knows_root() -> bool:
    """Whether root has a number here, as everywhere but in a user namespace of somebody else's: there root's files show
    as nobody's, and number 0 may be any user."""
    nameless = nameless_uid()
    return nameless is None or _owner("/etc") != nameless


def _is_root() -> bool:
    return os.geteuid() == 0 and knows_root()


def may_see_commands(policy: Policy) -> bool:
    """Whether the user who runs this may see the command lines of other users' processes."""
    if policy.see_commands is None or _is_root():
        return True
    import grp
    import pwd

    with suppress(KeyError):
        if pwd.getpwuid(os.geteuid()).pw_name in policy.see_commands:
            return True
    for number in {os.getegid(), *os.getgroups()}:
        with suppress(KeyError):
            if f"@{grp.getgrgid(number).gr_name}" in policy.see_commands:
                return True
    return False


def _load(path: Path, below: Config, *, system: bool) -> tuple[Config, list[str]]:
    """One file above what is known so far."""
    where = path_text(path)
    try:
        try:
            data = _read_toml(path, of_root=system)
        except FileNotFoundError:
            lost = next((each for each in (path, *path.parents) if os.path.islink(each)), None) if system else None
            if lost is None:
                return below, []
            # There is one, and nobody knows what it says: its file system is not mounted, perhaps.
            raise _BadFileError(f"is missing where the link {path_text(lost)} leads") from None
    except _StrangersError as error:
        return below, [f"{where}: {error}; it is not read"]
    except _BadFileError as error:
        policy = _STRICTEST if system and not _is_root() else below.policy
        origins = {**below.origins, "read_only": where, **({"policy": where} if system else {})}
        closed = replace(below, read_only=True, policy=policy, origins=origins)
        return closed, [f"{where}: {error}; read-only until it is corrected"]
    config, messages = below, list[str]()
    checks: dict[str, Callable[[Any], tuple[Any, str | None]]] = {
        "refresh": lambda value: _seconds(value, SHORTEST_REFRESH, LONGEST_REFRESH, config.refresh),
        "reconcile": lambda value: _reconcile(value, config.reconcile),
        "theme": lambda value: (value, None) if _matches(_NAME, value) else (below.theme, "is not the name of a theme"),
        "read_only": lambda value: (
            (value, None) if isinstance(value, bool) else (True, "must be true or false; taken as true")
        ),
        "activity": lambda value: (
            (value, None) if isinstance(value, bool) else (False, "must be true or false; taken as false")
        ),
        "dcgm": lambda value: (
            (value, None) if isinstance(value, bool) else (False, "must be true or false; taken as false")
        ),
        "idle_minutes": _minutes,
        "keys": lambda value: _keys(value, below.keys),
        "commands": lambda value: _commands(value, path, below.commands, system=system),
    }
    if system:
        checks["policy"] = _policy
    for key, value in data.items():
        check = checks.get(key)
        if check is None:
            known = f"is not known; known: {', '.join(sorted(checks))}"
            text = f"is root's: only {path_text(SYSTEM)} may have it" if key == "policy" else known
            if (meant := _forbids(key, system=system)) is not None:  # a slip of the pen opens nothing
                forbidden: Any = _bound(_STRICTEST) if meant == "policy" else True
                config = replace(config, **{meant: forbidden}, origins={**config.origins, meant: where})
                text = f"is not a known key; mpstui reads it as {meant}, at its strictest, until it is corrected"
            messages.append(f"{where}: {_quoted(key)} {text}")
            continue
        checked, problem = check(value)
        config = replace(config, **{key: checked}, origins={**config.origins, key: where})
        if problem is not None:
            messages.append(f"{where}: {key} {problem}")
    return config, messages


def _forbids(key: str, *, system: bool) -> str | None:
    """Which name that forbids something a misspelt one stands for."""
    from difflib import get_close_matches

    known = ("policy", "read_only") if system else ("read_only",)
    return next(iter(get_close_matches(key.lower().replace("-", "_"), known, 1, 0.7)), None)


_STRICTEST: Final = Policy(True, (), None, "none")
_POLICY: Final = frozenset(each.name for each in fields(Policy))


def _policy(value: object) -> tuple[Policy, str | None]:
    """A policy that is not understood is the strictest one."""
    if not isinstance(value, dict):
        return _bound(_STRICTEST), "must be a table, [policy]; everything is forbidden until it is"
    wrong = [f"{_quoted(name)} is not known" for name in value if name not in _POLICY]
    idle, problem = _minutes(value.get("idle_minutes", 1))
    if problem is not None or idle == 0:
        wrong.append("idle_minutes must be a number of minutes from 1 to 100000")
    read_only, seen = value.get("read_only", False), value.get("see_commands")
    if not isinstance(read_only, bool):
        wrong.append("read_only must be true or false")
    if seen is not None and not (isinstance(seen, list) and all(isinstance(name, str) and name for name in seen)):
        wrong.append('see_commands must be a list of users and groups, as ["alice", "@admins"]')
    if (commands := value.get("commands", "any")) not in ("any", "system", "none"):
        wrong.append('commands must be "any", "system" or "none"')
    if wrong:
        return _bound(_STRICTEST), f"{_several(wrong)}; everything is forbidden until that is corrected"
    seers = None if seen is None else tuple(seen)
    return _bound(Policy(bool(read_only), seers, idle if "idle_minutes" in value else None, commands)), None


def _bound(policy: Policy) -> Policy:
    """As it binds the user who runs this."""
    return Policy() if _is_root() else policy


def load_themes(user_dir: Path | None = None) -> tuple[list[ThemeSpec], list[str]]:
    """The shipped themes and those of ``user_dir`` (``config_dir()/themes``), and a message for each broken file."""
    shipped, messages = _themes_in(shipped_themes_dir(), frozenset(), shipped=True)
    mine, more = _themes_in(
        config_dir() / "themes" if user_dir is None else user_dir, frozenset(spec.name for spec in shipped)
    )
    return [*shipped, *mine], messages + more


def terminal_problem(env: Mapping[str, str], isatty: bool) -> str | None:
    """Why the screen cannot be shown here, or None. Textual would send true colours to a dumb terminal."""
    if not isatty:
        return "the screen needs a terminal; `mpstui status` prints one snapshot without one"
    if env.get("TERM", "") in {"", "dumb", "unknown"}:
        return f"the terminal says it can do nothing (TERM={env.get('TERM', '')}); set TERM, or use `mpstui status`"
    return None


def _themes_in(folder: Path, taken: frozenset[str], *, shipped: bool = False) -> tuple[list[ThemeSpec], list[str]]:
    specs: dict[str, ThemeSpec] = {}
    messages: list[str] = []
    try:
        files = sorted(entry for entry in folder.iterdir() if entry.suffix == ".toml")
    except FileNotFoundError:
        return [], []
    except OSError as error:
        return [], [f"{path_text(folder)}: {error.strerror}"]
    if len(files) > THEME_FILES:
        messages.append(f"{path_text(folder)}: {len(files)} theme files; only the first {THEME_FILES} are read")
    for file in files[:THEME_FILES]:
        try:
            spec = _theme(file.stem, _read_toml(file, shipped=shipped))
            if spec.name in taken or spec.name in specs:
                raise _BadFileError(f"there is already a theme named {_quoted(spec.name)}; choose another file name")
        except FileNotFoundError:
            messages.append(f"{path_text(file)}: is a link to nothing")
        except (_BadFileError, _StrangersError) as error:
            messages.append(f"{path_text(file)}: {error}")
        else:
            specs[spec.name] = spec
    return list(specs.values()), messages


def _theme(stem: str, data: Mapping[str, Any]) -> ThemeSpec:
    if not _NAME.fullmatch(stem):
        raise _BadFileError("the file name is the theme's name: small letters, digits and - only")
    _only(data, {"dark", "ansi", "colors", "marks"}, "")
    for key in ("dark", "ansi"):
        if not isinstance(data.get(key, False), bool):
            raise _BadFileError(f"{key} must be true or false")
    ansi = bool(data.get("ansi", False))
    colors = _colors(data, "colors", COLOR_KEYS, ansi)
    if "primary" not in colors:
        raise _BadFileError("colors.primary is missing")
    return ThemeSpec(stem, bool(data.get("dark", True)), ansi, colors, _colors(data, "marks", MARK_KEYS, ansi))


def _colors(data: Mapping[str, Any], table: str, known: frozenset[str], ansi: bool) -> Mapping[str, str]:
    values = data.get(table, {})
    if not isinstance(values, dict):
        raise _BadFileError(f"{table} must be a table, [{table}]")
    _only(values, known, f"{table}.")
    pattern, form = (_ANSI, "a colour of the terminal, as ansi_red") if ansi else (_HEX, "a colour, as #1e90ff")
    for key, value in values.items():
        if not _matches(pattern, value):
            raise _BadFileError(f"{table}.{key} must be {form}, not {_quoted(value)}")
    return MappingProxyType(dict(values))


def _only(values: Mapping[str, Any], known: Sequence[str] | frozenset[str] | set[str], prefix: str) -> None:
    for key in values:
        if key not in known:
            raise _BadFileError(f"{_quoted(prefix + key)} is not known; known: {', '.join(sorted(known))}")


def _matches(pattern: re.Pattern[str], value: object) -> bool:
    return isinstance(value, str) and pattern.fullmatch(value) is not None


def _quoted(value: object) -> str:
    return f"“{printable(str(value), 60)}”"


_Default = TypeVar("_Default", bound=float | None)


def _seconds(value: object, least: float, most: float, default: _Default) -> tuple[float | _Default, str | None]:
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
        return default, f"must be a number of seconds from {least:g} to {most:g}"
    return float(value), None


def _reconcile(value: object, default: float) -> tuple[float, str | None]:
    if value == 0 and not isinstance(value, bool):
        return 0.0, None
    seconds, problem = _seconds(value, 5, 86400, default)
    return seconds, problem and f"{problem}, or 0 for never"


def _minutes(value: object) -> tuple[float, str | None]:
    if isinstance(value, bool) or not isinstance(value, int | float) or not (value == 0 or 1 <= value <= 100_000):
        return 0.0, "must be a number of minutes from 1 to 100000, or 0 for never"
    return float(value), None


def _keys(value: object, below: Mapping[str, str]) -> tuple[Mapping[str, str], str | None]:
    """Above those of the file below: an id has one key, and a key one id."""
    if not isinstance(value, dict):
        return below, "must be a table, [keys]"
    keys: dict[str, str] = {}
    wrong: list[str] = []
    for name, key in _flat(value):
        if not _ID.fullmatch(name) or not isinstance(key, str) or not _matches(_KEY, key):
            wrong.append(f'{_quoted(name)} must name one key, as "t" or "ctrl+t"')
        else:
            keys[name] = key
    kept = {name: key for name, key in below.items() if name not in keys and key not in keys.values()}
    return MappingProxyType({**kept, **keys}), _several(wrong) or None


def _flat(table: Mapping[str, object]) -> Iterator[tuple[str, object]]:
    """``action.unblock = "u"`` without quotes is a table in a table to TOML."""
    for name, value in table.items():
        if isinstance(value, dict) and value:
            yield from ((f"{name}.{inner}", key) for inner, key in value.items())
        else:
            yield name, value


def _commands(
    value: object, path: Path, below: tuple[CommandSpec, ...], *, system: bool
) -> tuple[tuple[CommandSpec, ...], str | None]:
    """Behind those of root's file, whose names and keys they leave alone. A command that is wrong is left out; all are,
    where others may have written the file: it says what is run."""
    if not isinstance(value, list) or not all(isinstance(each, dict) for each in value):
        return below, "must be tables, [[commands]]"
    try:
        text = _trusted_text(path, {0} if system else {0, os.geteuid()})
    except (OSError, NotTrustedError) as error:
        return below, f"are not used: {error_text(error)}"
    try:
        if _toml(text).get("commands") != value:
            raise ValueError
    except ValueError:
        return below, "are not used: the file was changed while it was read"
    found, wrong = list(below), list[str]()
    for number, table in enumerate(value, 1):
        try:
            spec = _command(table, path_text(path))
            if len(found) >= COMMANDS:
                raise _BadFileError(f"more than {COMMANDS}")
            for other in found:
                if spec.name == other.name or spec.key == other.key:
                    what = f"the name {_quoted(spec.name)}" if spec.name == other.name else f"the key {spec.key}"
                    raise _BadFileError(f"{what} is that of another, of {other.origin}")
        except _BadFileError as error:
            wrong.append(f"[{number}]: {error}")
        else:
            found.append(spec)
    return tuple(found), _several(wrong) or None


def _several(wrong: Sequence[str]) -> str:
    """What is wrong, and how much more is."""
    more = len(wrong) - _NAMED
    return "; ".join((*wrong[:_NAMED], *([f"and {more} more"] if more > 0 else [])))


def _command(table: Mapping[str, Any], origin: str) -> CommandSpec:
    """Raises _BadFileError."""
    _only(table, _COMMAND_KEYS, "")
    name, key, run = (table.get(each) for each in ("name", "key", "run"))
    if not isinstance(name, str) or not name.strip() or len(name) > 40 or unprintable(name) is not None:
        raise _BadFileError("name must be a line of at most 40 characters")
    if not isinstance(key, str) or not _KEY.fullmatch(key):
        raise _BadFileError(f'{_quoted(name)}: key must name one key, as "f9" or "ctrl+t"')
    words = run if isinstance(run, list) and all(isinstance(word, str) and "\0" not in word for word in run) else []
    if not words or not words[0] or len(words) > ARGUMENTS:
        raise _BadFileError(f'{_quoted(name)}: run must be a list of words, as ["ps", "-fp", "{{client.pid}}"]')
    for flag in ("terminal", "safe"):
        if not isinstance(table.get(flag, False), bool):
            raise _BadFileError(f"{_quoted(name)}: {flag} must be true or false")
    seconds, problem = _seconds(table.get("seconds", 60), 1, 3600, 60.0)
    if problem is not None:
        raise _BadFileError(f"{_quoted(name)}: seconds {problem}")
    return CommandSpec(name, key, tuple(words), table.get("terminal", False), table.get("safe", False), seconds, origin)


def _toml(text: str) -> dict[str, Any]:
    """Raises ValueError. Imported here: most users have no file."""
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    return tomllib.loads(text)


def _trusted_text(path: Path, owners: set[int]) -> str:
    """A file that says what is run: nobody but ``owners`` can have written it, or led the way to it. A link as its last
    name counts where its owner does. Raises NotTrustedError, OSError."""
    place = path.absolute()
    judge_directory(place.parent, owners)
    if (found := os.lstat(place)) and stat.S_ISLNK(found.st_mode):
        if found.st_uid not in owners:
            raise NotTrustedError(f"{path_text(place)} is another user's link", "owner")
        place = Path(os.path.realpath(place))
    with open(open_trusted(place, os.O_RDONLY, owners), "rb") as file:
        return file.read(FILE_LIMIT + 1).decode("utf-8", "replace")


class PrivateFileError(Exception):
    """Why a file is not one of the user's own that nobody else reads or writes; one sentence."""


def private_file(path: Path, text: str) -> None:
    """Write a file, its folders too, that only the user can read. Raises PrivateFileError."""
    try:
        descriptor = open_trusted(path, os.O_WRONLY | os.O_CREAT, {0, os.geteuid()}, make=True)
        with open(descriptor, "w", encoding="utf-8") as file:
            os.fchmod(descriptor, 0o600)
            file.truncate(0)
            file.write(text)
    except (OSError, NotTrustedError) as error:
        raise PrivateFileError(f"{path_text(path)}: {error_text(error)}") from None


def read_private(path: Path) -> str:
    """A small text that only its owner, the user or root, can read. Raises PrivateFileError."""
    try:
        descriptor = open_trusted(path, os.O_RDONLY, {0, os.geteuid()})
        with open(descriptor, "rb") as file:
            mode = stat.S_IMODE(os.fstat(descriptor).st_mode)
            if mode & 0o044:
                raise PrivateFileError(f"others can read it (mode {mode:04o}); chmod 600 it, and take another secret")
            return file.read(FILE_LIMIT).decode("utf-8", "replace")
    except (OSError, NotTrustedError) as error:
        raise PrivateFileError(error_text(error)) from None


def judge_own_file(path: Path, descriptor: int) -> None:
    """Raises PrivateFileError where others than the user and root may have written the file that was opened, and
    OSError."""
    try:
        judge_open(path, descriptor, {0, os.geteuid()})
    except NotTrustedError as error:
        raise PrivateFileError(str(error)) from None


def _read_toml(path: Path, *, of_root: bool = False, shipped: bool = False) -> dict[str, Any]:
    """The data of a TOML file. Raises ``_BadFileError`` and ``_StrangersError`` in words, or ``FileNotFoundError``;
    never blocks on a FIFO.
    ``of_root``: nobody else may have written it. ``shipped``: it is the program's own, whoever has installed that."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, "rb") as file:
            found = os.fstat(descriptor)
            if not stat.S_ISREG(found.st_mode):
                raise _BadFileError("is not a file")
            # Where root has no number, a file of root's is one of the nameless; whose commands to run it does not say.
            root = 0 if knows_root() else nameless_uid()
            if of_root and (found.st_uid != root or found.st_mode & 0o022):
                raise _BadFileError("must be root's, and nobody else may write it")
            if not (of_root or shipped):
                judge_open(path, descriptor, {0, os.geteuid()})
            raw = file.read(FILE_LIMIT + 1).removeprefix(codecs.BOM_UTF8)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise _BadFileError(error.strerror or "cannot be read") from None
    except NotTrustedError as error:
        if error.fault == "owner":
            raise _StrangersError(str(error)) from None
        raise _BadFileError(str(error)) from None
    if len(raw) > FILE_LIMIT:
        raise _BadFileError(f"is larger than {FILE_LIMIT // 1024} KiB")
    try:
        return _toml(raw.decode("utf-8"))
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise _BadFileError(f"is not UTF-8 in line {line}") from None
    except ValueError as error:
        raise _BadFileError(f"is not TOML: {printable(str(error), 120)}") from None
    except RecursionError:
        raise _BadFileError("is nested too deeply") from None
