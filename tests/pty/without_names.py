"""mpstui on a Textual and a Rich in which some names are others: ``without_names.py NAME,NAME… ARGUMENTS…``.

Their sources are changed while they are imported, so that they work as before and only mpstui misses the names: as
after a release that has renamed what it had never promised to keep.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import CodeType
from typing import Any

SUFFIX = "_elsewhere"


class Renaming(MetaPathFinder):
    def __init__(self, names: Sequence[str]) -> None:
        self._names = re.compile(r"\b(" + "|".join(map(re.escape, names)) + r")\b")

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: object = None) -> ModuleSpec | None:
        if fullname.partition(".")[0] not in {"textual", "rich"}:
            return None
        package, _, name = fullname.rpartition(".")
        if self._names.fullmatch(name):
            raise ModuleNotFoundError(f"No module named {fullname!r}", name=fullname)
        found = PathFinder.find_spec(".".join(filter(None, (package, name.removesuffix(SUFFIX)))), path)
        if found is not None and isinstance(found.loader, SourceFileLoader):
            found.name = fullname
            found.loader = Renamed(fullname, found.loader.path, self._names)
        return found


class Renamed(SourceFileLoader):
    def __init__(self, fullname: str, path: str, names: re.Pattern[str]) -> None:
        super().__init__(fullname, path)
        self._renamed = names

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        source, renamed = self._renamed.subn(rf"\1{SUFFIX}", self.get_data(path).decode("utf-8"))
        if not renamed:  # compiled long ago: all of Textual anew takes longer than what the program does then
            return super().get_code(fullname)
        code: Any = compile(source, path, "exec", dont_inherit=True)
        return code


if __name__ == "__main__":
    if names := [name for name in sys.argv[1].split(",") if name]:
        sys.meta_path.insert(0, Renaming(names))
    from mpstui.cli import main

    sys.exit(main(sys.argv[2:]))
