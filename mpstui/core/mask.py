"""Replaces what tells of people: users, commands, containers, jobs, the machine's name. Pure, no I/O.

Of the support archive (``doctor --bundle``) and of a recording that is to be given away (``record --mask``).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, Final

from mpstui.core.codec import codec
from mpstui.core.late import pattern
from mpstui.core.suspects import program
from mpstui.core.text import MASKED

PERSON: Final = 100_000
"""In a recording, where a user's number has to be one: user3 is 100003."""
_SHORT: Final = 3
"""A name of fewer characters is masked where it stands alone as a JSON value, and not within a text."""
_QUOTED: Final = 4000
"""Commands that are known in texts; of more, the latest ones."""
_MEMORY: Final = 20_000
_SENTENCE: Final = pattern(
    r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d[^\]]*\](?! *\d+\s)|NVRM: Xid \(PCI:[0-9a-fA-F:.]+\): \d+, "
)
"""What a line of MPS' logs begins with, or the kernel's of a fault. One that goes on with a number is a row of an
answer, as of ``ps``, which has commands in it; so may what has no such beginning."""
_HEAD: Final = pattern(r"(?:\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d[.\d]* (?:Control|Server|Other) +\d+\] *)?")
_ROW_WORD: Final = pattern(
    r"(?:[\d.,:%()-]+[KMGT]?B?|0x[0-9a-fA-F]+|GPU-[0-9a-f-]+|MIG-[0-9a-f-]+|[A-Z][A-Z_]{1,30}|GPU|UUID|TRUE|FALSE)"
)
"""Numbers, devices and words in capitals: what an answer says of itself."""
_HOME: Final = pattern(r"/(?:home|users|data/home)/[^\s/\"][^\s\"]*", re.IGNORECASE)
_PATH: Final = pattern(r"/[^\s\"]*")
_NUMBER: Final = pattern(r"(?<![^\W_])\d{1,10}(?![^\W_])")
_RUN: Final = pattern(r"(/run/user/)(\d{1,10})(?=/|$|\W)")
_UID: Final = pattern(r"\b((?:from )?(?:[Uu]ser|[Uu][Ii][Dd])[ =:]+)(\d{2,10})\b")
_KERNELS: Final = pattern(r"(pid='?\d{1,10}'?, name=).*?(?=, [Cc]h|$)", re.MULTILINE)
"""The kernel's line of a fault names a program (fact 37)."""
_PRIVATE: Final = frozenset(
    {"command", "cgroup", "container", "container_name", "container_id", "pod", "pod_uid", "pod_name", "pod_namespace",
     "job", "job_step", "unit", "where", "variables", "terminal"}
)  # fmt: skip
"""Keys whose values are masked whole."""
_KINDS: Final = frozenset({"batch", "runtime"})
"""Within those, what names nobody: slurm, docker."""
_PRIVATE_CHECKS: Final = frozenset({"cgroup_memory"})
"""Checks of doctor's whose evidence has a cgroup's name, and with it a pod's or a user's."""
_OWN: Final = frozenset({"values"})
"""Keys of what a sentence of MPS' own holds: a command there is one of the daemon's."""
_LINES: Final = frozenset({"raw", "not_understood"})
"""Keys with lines of logs and of answers."""
_UIDS: Final = frozenset({"uid", "euid", "uids"})
_OF_VENDOR: Final = pattern(
    r"(?:(?:/usr)?(?:/local)?/s?bin/)?nvidia-cuda-mps-(?:control|server)(?: --?[A-Za-z][A-Za-z-]{0,20}=?[0-9]?| [0-9])*"
)
"""Commands that are nobody's secret: remedies and logs have them too."""
_OF_MPS: Final = ("CUDA_MPS_", "CUDA_VISIBLE_", "CUDA_DEVICE_")
"""Variables without which a recording comes to something else."""


class Mask:
    """Learns names, so that they are found within texts too. The same user has the same number everywhere.

    ``shaped``: every value keeps its type, and paths that differ still do, as a recording needs it that is folded
    again. ``names``: the name of a user of whom only the number was told; None where there is none.
    """

    def __init__(self, *, shaped: bool = False, names: Callable[[int], str | None] = lambda uid: None) -> None:
        self._shaped, self._names = shaped, names
        self._users: dict[str, str] = {}
        self._texts: dict[str, str] = {}
        """Names of users and of the machine, and what stands for them."""
        self._commands: dict[str, None] = {}
        """As sentences quote them."""
        self._homes: dict[str, str] = {}
        self._within: re.Pattern[str] | None = None
        self._known: dict[str, str] = {}
        """Texts and what became of them, for what is told each second."""

    # Learning.

    def learn_from(self, *values: object) -> None:
        """Who is named in frozen values of the program."""
        for value in values:
            kind: Any = type(value)
            self.learn(codec(kind).encode(value))

    def learn(self, value: Any) -> None:
        """Who is named in a JSON value."""
        if isinstance(value, list):
            for inner in value:
                if isinstance(inner, dict | list):
                    self.learn(inner)
        if not isinstance(value, dict):
            return
        if host := value.get("host"):
            self._machine(host)
        self._person(value.get("uid"), value.get("user"), value.get("command"), value.get("container"))
        for uid, name in value.get("_users", {}).items():
            self._person(int(uid), name)
        for uid in (value.get("euid"), *value.get("uids", {}).values()):
            self._person(uid, None)
        for name, inner in value.items():
            if isinstance(inner, dict | list) and name not in _OWN:
                self.learn(inner)

    def _machine(self, host: str) -> None:
        for name in filter(None, (host, host.partition(".")[0])):
            if name not in self._texts:
                self._texts[name] = "host"
                self._changed()

    def _person(self, uid: int | None, user: str | None, *texts: str | None) -> None:
        number = str(uid) if uid else None  # root's is no secret
        if number is not None and user is None and number not in self._users:
            user = self._names(int(number))
        known = [self._users[name] for name in (user, number) if name in self._users]
        if (user and user not in self._users) or (number and number not in self._users and user != "root"):
            alias = "root" if user == "root" else known[0] if known else self._next()
            if user:
                self._users[user] = alias
                if not user.isdecimal():  # a user without a name: his number is found as one
                    self._texts[user] = alias
            if number and user != "root":
                self._users[number] = alias
            self._changed()
        for text in filter(None, texts):
            if text in self._commands or _OF_VENDOR.fullmatch(text):
                continue
            for cut in (None, 60, 40, 39, 30, 20):  # as sentences quote it
                self._commands.setdefault(text[:cut].rstrip())
            self._commands.setdefault(program(text) or text)
            while len(self._commands) > _QUOTED:
                del self._commands[next(iter(self._commands))]
            self._changed()

    def _changed(self) -> None:
        self._within = None
        self._known.clear()

    def _next(self) -> str:
        return f"user{len(set(self._users.values()) - {'root'}) + 1}"

    # Masking.

    def user(self, name: str) -> str:
        """``user3``; somebody who was not learnt is a new one."""
        if name not in self._users:
            if name.isdecimal():
                self._person(int(name), None)
            self._users.setdefault(name, self._next())
        return self._users[name]

    def text(self, text: str) -> str:
        """With names, home directories and user numbers replaced."""
        found = self._known.get(text)
        if found is None:
            if len(self._known) > _MEMORY:
                self._known.clear()
            found = self._known[text] = self._text(text)
        return found

    def _text(self, text: str) -> str:
        if self._within is None:
            known = sorted((w for w in (*self._commands, *self._texts) if len(w) >= _SHORT), key=len, reverse=True)
            pattern = "|".join(rf"(?<![^\W_]){re.escape(name)}(?![^\W_])" for name in known) or r"(?!)"
            self._within = re.compile(pattern)
        text = self._within.sub(lambda match: self._texts.get(match[0], MASKED), text)
        text = _HOME.sub(lambda match: self._home(match[0]), text)
        text = _RUN.sub(lambda match: match[1] + self.user(match[2]) if match[2] != "0" else match[0], text)
        # A user's number in a path is his name: /tmp/mps_1001, /scratch/1001/mps.
        text = _PATH.sub(lambda path: _NUMBER.sub(lambda found: self._users.get(found[0], found[0]), path[0]), text)
        text = _KERNELS.sub(lambda match: match[1] + MASKED, text)
        return _UID.sub(lambda match: match[1] + self.user(match[2]), text)

    def _home(self, path: str) -> str:
        return self._homes.setdefault(path, f"/masked-{len(self._homes) + 1}") if self._shaped else MASKED

    def json(self, value: Any, key: str = "") -> Any:
        """The same, of everything in it."""
        if isinstance(value, dict):
            return self._object(value, key)
        if isinstance(value, list):
            return [self.json(inner, key) for inner in value]
        if value is None or isinstance(value, bool):
            return value
        if key in _PRIVATE:
            return MASKED if not self._shaped or isinstance(value, str) else value
        if key in _UIDS:
            return self._uid(value)
        if key in {"user", "speaks_for"} and value != "everybody":
            return self.user(str(value)) if value != "root" else value
        if key == "host":
            return "host"
        if not isinstance(value, str):
            return value
        return self.log(value).rstrip() if key in _LINES else self.text(value)

    def _uid(self, uid: int) -> int | str:
        alias = self.user(str(uid)) if uid else ""
        if not self._shaped:
            return alias or 0
        return PERSON + int(alias.removeprefix("user")) if alias else 0

    def _object(self, value: dict[str, Any], key: str) -> dict[str, Any] | str:
        if key in _PRIVATE:
            kept = {name: inner if name in _KINDS else self.json(inner, key) for name, inner in value.items()}
            return kept if self._shaped else MASKED
        if value.get("check") in _PRIVATE_CHECKS:
            value = {**value, "evidence": MASKED}
        if key == "_users":
            return {str(self._uid(int(uid))): self.json(name, "user") for uid, name in value.items()}
        if key == "uids":
            return {pid: self._uid(uid) for pid, uid in value.items()}
        if key in _OWN:
            return {name: self.json(inner) for name, inner in value.items()}
        if key == "environment":
            value = {name: inner for name, inner in value.items() if name.startswith(_OF_MPS)}
        if self._shaped:
            return {self._key(name): self.json(inner, name) for name, inner in value.items()}
        return {name: self.json(inner, name) for name, inner in value.items()}

    def _key(self, name: str) -> str:
        """Of a mapping: a path, or what the codec writes of a key that is no text."""
        if name[:1] == "[":
            return json.dumps(self.json(json.loads(name)), separators=(",", ":"))
        return self.text(name) if name[:1] == "/" else name

    def log(self, text: str) -> str:
        """A log's lines: of MPS' sentences the names are replaced, of anything else numbers and capitals are left."""
        lines = []
        for line in text.splitlines():
            if _SENTENCE.match(line):
                lines.append(self.text(line))
            else:
                head = _HEAD.match(line)[0]  # type: ignore[index]
                words = line[len(head) :].split()
                lines.append(head + " ".join(w if _ROW_WORD.fullmatch(w) else MASKED for w in words))
        return "\n".join(lines) + "\n" if lines else ""
