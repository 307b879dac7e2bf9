"""The Python functions inside a callable of any kind."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

from lineprofiler.lines.scopes import Scope

_HOLDERS = (functools.partial, functools.partialmethod, functools.cached_property, functools.singledispatchmethod)
_PARTS = 1000
"""Objects in a callable from which on it makes new ones whenever it is asked."""


def codes_of(thing: Any) -> Iterator[FunctionType]:
    """Each Python function that calling it runs itself: through methods, descriptors, partials and ``__wrapped__``."""
    seen: list[Any] = []
    pending = [thing]
    while pending and len(seen) < _PARTS:
        each = pending.pop(0)
        if each is None or any(each is other for other in seen):
            continue
        seen.append(each)
        if isinstance(each, FunctionType):
            yield each
            pending.append(_wrapped_by(each))
        elif isinstance(each, (MethodType, classmethod, staticmethod)):
            pending.append(each.__func__)
        elif isinstance(each, property):
            pending += [each.fget, each.fset, each.fdel]
        elif isinstance(each, _HOLDERS):
            pending.append(each.func)
        elif isinstance(each, type):
            pending += _own_members(each)
        elif not isinstance(each, (BuiltinFunctionType, ModuleType)):
            wrapped = _wrapped_by(each)  # functools.lru_cache, wrappers written in C
            pending.append(wrapped if wrapped is not None else _call_of(type(each)))


def _wrapped_by(thing: Any) -> Any:
    try:
        return getattr(thing, "__wrapped__", None)
    except Exception:  # a stand-in for an object that is not there, as frameworks have them
        return None


def _call_of(kind: type) -> Any:
    """What runs when an object of this type is called; None if nothing does."""
    return next((vars(base)["__call__"] for base in kind.__mro__ if "__call__" in vars(base)), None)


def _own_members(cls: type) -> list[Any]:
    """The inner classes that are written in the class, and its functions, but for those of other modules."""
    inner, near = Scope(cls, "children"), Scope(cls, "siblings")
    return [
        member
        for member in list(vars(cls).values())
        if (
            inner.has(member)
            if isinstance(member, type)
            else has_code(member) and any(near.has(function) for function in codes_of(member))
        )
    ]


def has_code(member: Any) -> bool:
    """Whether a member of a class or module is a callable, or holds some, with Python code."""
    kinds = (FunctionType, MethodType, classmethod, staticmethod, property, *_HOLDERS)
    if isinstance(member, (type, ModuleType)) or not (isinstance(member, kinds) or callable(member)):
        return False
    return next(codes_of(member), None) is not None
