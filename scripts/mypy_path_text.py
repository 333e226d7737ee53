"""mypy's plugin for a rule of the house: a path reaches people through ``mpstui.core.text.path_text`` alone.

The name of a directory is a stranger's to choose, and ``str``, ``repr``, ``print`` and f-strings write it as it is.
mypy knows of every expression whether it is a path, or an error of the system with a path in it, however it is called.
What the system is to have is written ``os.fspath(path)``, outside of f-strings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from mypy.errorcodes import ErrorCode
from mypy.nodes import CallExpr, ConditionalExpr, Expression, IndexExpr, MemberExpr, OpExpr, RefExpr
from mypy.plugin import FunctionContext, MethodContext, Plugin
from mypy.types import Instance, TupleType, Type, UnionType, get_proper_type

CODE: Final = ErrorCode("path-text", "A path is shown by something else than path_text", "General")
MESSAGE: Final = (
    "a path, or an error with one in it, is shown by path_text(path) and given to the system by os.fspath(path)"
)
_BASES: Final = {"pathlib.PurePath", "pathlib.types._JoinablePath", "os.PathLike", "os.DirEntry", "builtins.OSError"}
_FUNCTIONS: Final = {f"builtins.{name}" for name in ("str", "repr", "ascii", "format", "print", "map")}
_METHODS: Final = {"builtins.str.format", "builtins.str.format_map", "builtins.str.__mod__"}
_PARTS: Final = {"name", "stem", "suffix", "suffixes", "parts", "anchor", "filename", "filename2"}
_TEXTS: Final = {"as_posix", "as_uri", "__str__", "__repr__", "__fspath__"}
_CALLS: Final = ("os.fspath", "os.fsdecode", "os.getcwd", "os.readlink", "posixpath.")


def _holds_path(kind: Type | None) -> bool:
    found = get_proper_type(kind) if kind is not None else None
    if isinstance(found, Instance):
        return any(base.fullname in _BASES for base in found.type.mro) or any(map(_holds_path, found.args))
    return isinstance(found, UnionType | TupleType) and any(map(_holds_path, found.items))


def _within(expression: Expression) -> Iterator[Expression]:
    """The expressions whose text this one's text may be, or have in it."""
    yield expression
    if isinstance(expression, ConditionalExpr):
        yield from _within(expression.if_expr)
        yield from _within(expression.else_expr)
    elif isinstance(expression, OpExpr):
        yield from _within(expression.left)
        yield from _within(expression.right)
    elif isinstance(expression, IndexExpr):
        yield from _within(expression.base)
    elif isinstance(expression, CallExpr):
        yield from _within(expression.callee)
    elif isinstance(expression, MemberExpr):
        yield from _within(expression.expr)  # a method of a text


def _is_path(context: FunctionContext | MethodContext, expression: Expression) -> bool:
    def kind(inner: Expression) -> Type | None:
        return context.api.get_expression_type(inner)

    for one in _within(expression):
        if isinstance(one, MemberExpr) and one.name in _PARTS | _TEXTS and _holds_path(kind(one.expr)):
            return True
        if isinstance(one, CallExpr) and isinstance(one.callee, RefExpr) and one.callee.fullname.startswith(_CALLS):
            return True
    return False


def _check(context: FunctionContext | MethodContext) -> Type:
    shown = zip(
        (kind for kinds in context.arg_types for kind in kinds),
        (arg for args in context.args for arg in args),
        strict=True,
    )
    if any(_holds_path(kind) or _is_path(context, arg) for kind, arg in shown):
        context.api.fail(MESSAGE, context.context, code=CODE)
    return context.default_return_type


def _check_map(context: FunctionContext) -> Type:
    """``map(str, paths)``: the function is not called here."""
    function, *rest = (arg for args in context.args for arg in args)
    makes_text = isinstance(function, RefExpr) and function.fullname in _FUNCTIONS
    if makes_text and any(_holds_path(context.api.get_expression_type(arg)) for arg in rest):
        context.api.fail(MESSAGE, context.context, code=CODE)
    return context.default_return_type


class PathText(Plugin):
    """Looks at every call that makes text, f-strings among them."""

    def get_function_hook(self, fullname: str) -> Callable[[FunctionContext], Type] | None:
        if fullname == "builtins.map":
            return _check_map
        return _check if fullname in _FUNCTIONS else None

    def get_method_hook(self, fullname: str) -> Callable[[MethodContext], Type] | None:
        return _check if fullname in _METHODS else None


def plugin(version: str) -> type[Plugin]:
    """What mypy asks for."""
    return PathText
