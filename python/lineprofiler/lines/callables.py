"""The Python functions inside a callable of any kind, a class, a module."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

_HOLDERS = (functools.partial, functools.partialmethod, functools.cached_property, functools.singledispatchmethod)
POLICIES = ("exact", "children", "descendants", "siblings", "none")


def codes_of(thing: Any) -> Iterator[FunctionType]:
    """Each Python function that calling it runs itself: through methods, descriptors, partials and ``__wrapped__``."""
    seen: list[Any] = []
    pending = [thing]
    while pending:
        each = pending.pop(0)
        if each is None or any(each is other for other in seen):
            continue
        seen.append(each)
        if isinstance(each, FunctionType):
            yield each
            pending.append(getattr(each, "__wrapped__", None))
        elif isinstance(each, (MethodType, classmethod, staticmethod)):
            pending.append(each.__func__)
        elif isinstance(each, property):
            pending += [each.fget, each.fset, each.fdel]
        elif isinstance(each, _HOLDERS):
            pending.append(each.func)
        elif isinstance(each, type):
            pending += list(functions_of_class(each, None))
        elif not isinstance(each, (BuiltinFunctionType, ModuleType)):
            wrapped = getattr(each, "__wrapped__", None)  # functools.lru_cache, wrappers written in C
            pending.append(wrapped if wrapped is not None else _call_of(type(each)))


def _call_of(kind: type) -> Any:
    """What runs when an object of this type is called; None if nothing does."""
    return next((vars(base)["__call__"] for base in kind.__mro__ if "__call__" in vars(base)), None)


def functions_of_class(cls: type, policy: str | None) -> Iterator[Any]:
    """The members of a class that have Python code, those of its inner classes as the policy says."""
    _checked(policy)
    seen: set[type] = set()
    pending = [cls]
    while pending:
        each = pending.pop()
        if each in seen:
            continue
        seen.add(each)
        for name, member in list(vars(each).items()):
            if name in ("__class__", "__base__"):
                continue
            if isinstance(member, type):
                if policy != "exact" and _in_scope(policy, member.__module__, cls.__module__):
                    pending.append(member)
            elif _has_code(member):
                yield member


def functions_of_module(module: ModuleType, policy: str | None) -> Iterator[Any]:
    """The functions and classes of a module that are defined in it, or where the policy says."""
    _checked(policy)
    for member in list(vars(module).values()):
        if not _in_scope(policy, getattr(member, "__module__", None), module.__name__):
            continue
        if isinstance(member, type):
            if policy != "exact":
                yield from functions_of_class(member, policy)
        elif _has_code(member):
            yield member


def _in_scope(policy: str | None, home: str | None, module: str) -> bool:
    """Whether what is defined in the module `home` belongs to `module`, as line_profiler's policies say."""
    if policy == "none" or home == module:
        return True
    if home is None or policy in (None, "exact"):
        return False
    if policy == "children":
        return home.rpartition(".")[0] == module
    if home.startswith(f"{module}."):
        return True
    parent = module.rpartition(".")[0]
    return policy == "siblings" and parent != "" and home.startswith(f"{parent}.")


def _has_code(member: Any) -> bool:
    kinds = (FunctionType, MethodType, classmethod, staticmethod, property, *_HOLDERS)
    return (isinstance(member, kinds) or hasattr(member, "__wrapped__")) and next(codes_of(member), None) is not None


def _checked(policy: str | None) -> None:
    if policy is not None and policy not in POLICIES:
        raise ValueError(f"scoping_policy {policy!r}: {', '.join(POLICIES)}")
