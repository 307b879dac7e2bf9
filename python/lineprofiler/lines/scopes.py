"""Which members of a class or a module are added with it: line_profiler's scoping policies."""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType
from typing import Any

POLICIES = ("exact", "children", "descendants", "siblings", "none")
KINDS = ("func", "class", "module")
DEFAULT = {"func": "siblings", "class": "siblings", "module": "exact"}


def policies_of(given: str | Mapping[str, str] | None) -> dict[str, str]:
    """The policy of each kind of member. A name is for all kinds; a mapping has one for each; None: line_profiler's
    own, siblings and no modules. Raises ValueError."""
    if given is None:
        return dict(DEFAULT)
    each = dict.fromkeys(KINDS, given) if isinstance(given, str) else {kind: given.get(kind, "") for kind in KINDS}
    found = {kind: str(getattr(policy, "value", policy)).lower() for kind, policy in each.items()}
    for kind, policy in found.items():
        if policy not in POLICIES:
            what = f"{given!r}" if isinstance(given, str) else f"{kind}={each[kind]!r}"
            raise ValueError(f"scoping_policy {what}: {', '.join(POLICIES)}")
    return found


class Scope:
    """Says whether a member belongs to a class or module.

    "children" are defined in it, "descendants" also in what is defined in it, "siblings" also beside it: anywhere in
    the module of a class, in the package of a module. "none" are all. "exact" are children that are no classes or
    modules.
    """

    def __init__(self, owner: type | ModuleType, policy: str) -> None:
        self._owner = owner
        self._policy = policy

    def has(self, member: Any) -> bool:
        """Whether a function, class or module, which the owner has a name for, belongs to it."""
        if self._policy == "none":
            return not isinstance(member, ModuleType) or isinstance(self._owner, ModuleType)
        if self._policy == "exact" and isinstance(member, (type, ModuleType)):
            return False
        if isinstance(member, ModuleType):
            return isinstance(self._owner, ModuleType) and self._has_module(member.__name__)
        home = str(getattr(member, "__module__", ""))
        if isinstance(self._owner, ModuleType):
            return self._has_home(home)
        return home == self._owner.__module__ and self._has_name(
            str(getattr(member, "__qualname__", "")), str(getattr(member, "__name__", ""))
        )

    def _has_name(self, name: str, last: str) -> bool:
        inside = f"{self._owner.__qualname__}." if isinstance(self._owner, type) else ""
        if self._policy == "siblings":
            return True
        if self._policy == "descendants":
            return name.startswith(inside)
        return name == f"{inside}{last}"

    def _has_home(self, home: str) -> bool:
        own = self._owner.__name__
        if self._policy in ("exact", "children"):
            return home == own
        package = own.rpartition(".")[0]
        around = package if self._policy == "siblings" and package else own
        return home == around or home.startswith(f"{around}.")

    def _has_module(self, name: str) -> bool:
        own = self._owner.__name__
        package = own.rpartition(".")[0]
        if self._policy == "children":
            return name.rpartition(".")[0] == own
        if self._policy == "descendants":
            return name.startswith(f"{own}.")
        return bool(package) and name.startswith(f"{package}.")
