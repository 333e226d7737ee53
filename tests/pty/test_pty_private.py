"""What Textual and Rich keep to themselves is used in one file, and where it is missing the program works without."""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
import pkgutil
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from program import WHOLE, Node
from terminal import Terminal
from textual.app import App
from textual.drivers.linux_driver import LinuxDriver

import mpstui.ui
from mpstui.ui import private

PRIVATE = re.compile(r"_[a-zA-Z]\w*")
PROGRAM = Path(__file__).with_name("without_names.py")


def modules() -> Iterator[str]:
    for found in pkgutil.walk_packages(mpstui.ui.__path__, "mpstui.ui."):
        if found.name != private.__name__:
            yield found.name


@functools.cache
def private_names_of(base: type) -> set[str]:
    """What a class of Textual's keeps to itself: methods, and what its methods make."""
    names = {name for name in vars(base) if PRIVATE.fullmatch(name)}
    return names | set(re.findall(r"self\.(_[a-zA-Z]\w*)\s*(?::[^=\n]+)?=[^=]", inspect.getsource(base)))


def owns(value: ast.expr) -> bool:
    """``self`` or ``super()``."""
    name = value.func if isinstance(value, ast.Call) and not value.args + value.keywords else value
    return isinstance(name, ast.Name) and name.id == ("self" if name is value else "super")


MADE_BY_TEXTUAL = {
    *("_abc_impl", "_reactives", "_computes", "_decorated_handlers", "_merged_bindings", "_has_hover_style"),
    *("_css_type_name", "_css_type_names", "_inherit_css", "_inherit_bindings", "_inherit_component_classes"),
}
"""What its machinery gives every class."""


def used_of_theirs(module: str) -> set[str]:
    """What is private of Textual or Rich there: a module that is imported, an attribute of another object that is
    touched, one of a base that is used or replaced."""
    loaded = importlib.import_module(module)
    tree = ast.parse(inspect.getsource(loaded))
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and re.match(r"(textual|rich)\b.*\._", f"{node.module}."):
            found.add(str(node.module))
        elif isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] in {"textual", "rich"}:
            found |= {f"{node.module}.{name.name}" for name in node.names if name.name.startswith("_")}
    defined = {name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) for name in [node.name]}
    defined |= {n.attr for n in ast.walk(tree) if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Store)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and PRIVATE.fullmatch(node.attr) and not isinstance(node.ctx, ast.Store):
            whose = node.value.id if isinstance(node.value, ast.Name) else ""
            if whose not in {"self", "cls"} and node.attr not in defined | {
                "_replace",
                "_make",
                "_fields",
            }:  # of a NamedTuple
                found.add(f"{ast.unparse(node)}")
    for node in (n for n in tree.body if isinstance(n, ast.ClassDef)):
        owner = getattr(loaded, node.name)
        theirs = {
            name
            for base in owner.__mro__
            if base.__module__.partition(".")[0] in {"textual", "rich"}
            for name in private_names_of(base)
        } - MADE_BY_TEXTUAL
        used = {n.attr for n in ast.walk(node) if isinstance(n, ast.Attribute) and owns(n.value)}
        used |= {n.name for n in node.body if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)}
        found |= {f"{node.name}.{name}" for name in used & theirs}
    return found


def test_no_other_file_uses_what_textual_keeps_to_itself() -> None:
    used = {module: used_of_theirs(module) for module in modules()}
    assert len(used) > 80
    assert {module: names for module, names in used.items() if names} == {}, "that belongs into mpstui/ui/private.py"


def borrowed() -> set[str]:
    """The names that ``private`` uses of Textual and Rich."""
    tree = ast.parse(inspect.getsource(private))
    own = {n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.ClassDef)}
    own |= {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    own -= {name for base in (App, LinuxDriver) for name in dir(base)}
    names = {n.attr for n in ast.walk(tree) if isinstance(n, ast.Attribute)}
    names |= {n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)}
    names |= {
        n.value.rpartition(".")[2] for n in ast.walk(tree) if isinstance(n, ast.Constant) and isinstance(n.value, str)
    }
    return {name for name in names - own if PRIVATE.fullmatch(name)}


def groups() -> list[list[str]]:
    names = sorted(borrowed())
    painting = [
        name for name in names if re.search("compositor|display|ansi|color|batch|layout|repaint|dirty|timer", name)
    ]
    rest = [name for name in names if name not in painting]
    return [names, painting, rest, ["_display"], ["_compositor"], ["_sigcont_application", "_get_terminal_size"]]


@pytest.mark.slow
@pytest.mark.parametrize("names", groups(), ids=["all", "painting", "others", "display", "compositor", "driver"])
def test_it_starts_paints_and_heeds_keys_where_names_are_missing(names: list[str], node: Node) -> None:
    assert names
    command = [sys.executable, str(PROGRAM), ",".join(names), "--pipe-dir", str(node.pipe_dir)]
    with Terminal(command, columns=120, lines=40) as terminal:  # each is painted whole again and again
        terminal.wait_for(WHOLE)
        terminal.wait_for(re.compile(rf"\b{node.client_pids()[0]}\b"))
        terminal.key("?")
        terminal.wait_for("Rows and panels")
        terminal.key("escape")
        terminal.wait_for(lambda t: "Rows and panels" not in t.text)
        terminal.resize(100, 30)
        terminal.wait_for(lambda t: any(line[:4].lstrip("╭─ ").startswith("⁴") for line in t.text.splitlines()[:30]))
        terminal.wait_for(lambda t: "q Quit" in t.text.splitlines()[29])
        terminal.key("q")
        assert terminal.wait_exit() == 0
