"""Phases as decorators: ``@phase("name")``, ``@profiler.profile``.

What is timed is the body: of a coroutine function from its first step to its end, of a generator function each step
from one ``yield`` to the next (one entry a step), so that the time of whoever consumes it is not in it and its phases
do not nest below it. Creating the coroutine or generator costs no entry. A wrapper keeps the kind of its function, so
that ``inspect`` and frameworks that ask see a coroutine, generator or async generator function still.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from lineprofiler import _lineprofiler

if TYPE_CHECKING:
    from lineprofiler._lineprofiler import Recorder

_F = TypeVar("_F")
_Scope = AbstractContextManager[None]
Options = tuple[bool | Literal["thread"], bool, float, bool]
"""(io, sync, sample, async_work), as ``phase`` takes them after the name."""

# Flags of a code object, as in inspect, which is not worth its 5 to 10 ms here.
_GENERATOR, _COROUTINE, _ITERABLE_COROUTINE, _ASYNC_GENERATOR = 0x20, 0x80, 0x100, 0x200

# inspect.markcoroutinefunction (3.12) and asyncio before it mark functions that only return a coroutine: (module that
# owns the mark, its name there, attribute of the function).
_COROUTINE_MARKS = (
    ("inspect", "_is_coroutine_marker", "_is_coroutine_marker"),  # 3.12.0 and 3.12.1
    ("inspect", "_is_coroutine_mark", "_is_coroutine_marker"),
    ("asyncio.coroutines", "_is_coroutine", "_is_coroutine"),
)


def name_of(func: Any) -> str:
    """The name that a phase gets from what it decorates.

    Raises TypeError for what has no name of its own.
    """
    while isinstance(func, (functools.partial, functools.partialmethod)):
        func = func.func
    func = getattr(func, "__func__", func)
    name = getattr(func, "__name__", None)
    return name if isinstance(name, str) else type(func).__name__


def decorate(recorder: Recorder | None, func: _F, name: str, options: Options = (False, False, 1.0, False)) -> _F:
    """A wrapper around `func` whose calls are entries of the phase `name`.

    `recorder` None: of the profiler that is installed when the call happens. Class methods, static methods and
    partials keep their kind. Raises TypeError for a class and for what cannot be called.
    """
    open_phase = functools.partial(_lineprofiler.phase if recorder is None else recorder.phase, name, *options)
    return _wrap(func, open_phase, None if recorder is None else open_phase())


def _wrap(func: _F, open_phase: Callable[[], _Scope], shared: _Scope | None) -> _F:
    """`shared` may be entered by many at once: the newest entry of a context is left first, as calls do. Steps of two
    generators or coroutines in one context can end in any order, so those get an object of their own each."""
    made: Any
    if isinstance(func, (classmethod, staticmethod)):
        made = type(func)(_wrap(func.__func__, open_phase, shared))
        return made  # type: ignore[no-any-return]
    if isinstance(func, functools.partialmethod):
        made = functools.partialmethod(_wrap(func.func, open_phase, shared), *func.args, **func.keywords)
        return made  # type: ignore[no-any-return]
    if isinstance(func, type):
        raise TypeError(f"a phase decorates functions and methods, not the class {func.__name__!r}")
    if not callable(func):
        raise TypeError(f"a phase decorates functions and methods, not {type(func).__name__}")
    flags = _flags(func)
    if flags & _ASYNC_GENERATOR:
        made = _async_generator(func, open_phase)
    elif flags & (_COROUTINE | _ITERABLE_COROUTINE):
        made = _coroutine(func, open_phase)
    elif flags & _GENERATOR:
        made = _generator(func, open_phase)
    else:
        made = _plain(func, open_phase, shared)
    return functools.wraps(func)(made)  # type: ignore[return-value]


def _flags(func: Any) -> int:
    """Flags of the code that a call runs; 0 where there is none, as of a builtin."""
    while True:
        if isinstance(func, functools.partial):
            func = func.func
        elif hasattr(func, "__func__"):
            func = func.__func__
        else:
            break
    code = getattr(func, "__code__", None)
    if code is None:
        code = getattr(getattr(type(func), "__call__", None), "__code__", None)  # noqa: B004 -- not whether, but what
    flags = getattr(code, "co_flags", 0)
    for module, name, attribute in _COROUTINE_MARKS:
        mark = getattr(sys.modules.get(module), name, None)
        if mark is not None and getattr(func, attribute, None) is mark:
            flags |= _COROUTINE
    return flags if isinstance(flags, int) else 0


def _plain(func: Callable[..., Any], open_phase: Callable[[], _Scope], shared: _Scope | None) -> Callable[..., Any]:
    if shared is not None:
        scope = shared

        def call_shared(*args: Any, **kwargs: Any) -> Any:
            with scope:
                return func(*args, **kwargs)

        return call_shared

    def call(*args: Any, **kwargs: Any) -> Any:
        with open_phase():
            return func(*args, **kwargs)

    return call


def _coroutine(func: Callable[..., Any], open_phase: Callable[[], _Scope]) -> Callable[..., Any]:
    async def call(*args: Any, **kwargs: Any) -> Any:
        with open_phase():
            return await func(*args, **kwargs)

    return call


def _generator(func: Callable[..., Any], open_phase: Callable[[], _Scope]) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
        body = func(*args, **kwargs)
        sent: Any = None
        error: BaseException | None = None
        while True:
            with open_phase():
                try:
                    item = body.send(sent) if error is None else body.throw(error)
                except StopIteration as stop:
                    return stop.value  # inside the phase: the end of a generator is no error
                finally:
                    error = None  # or this frame and the exception keep each other alive
            try:
                sent = yield item
            except GeneratorExit:
                with open_phase():
                    last = body.close()  # from 3.13 on what the body returns instead
                if last is None:
                    raise
                return last
            except BaseException as raised:
                error = raised

    return call


def _async_generator(func: Callable[..., Any], open_phase: Callable[[], _Scope]) -> Callable[..., Any]:
    async def call(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, Any]:
        body = func(*args, **kwargs)
        sent: Any = None
        error: BaseException | None = None
        while True:
            with open_phase():
                try:
                    item = await (body.asend(sent) if error is None else body.athrow(error))
                except StopAsyncIteration:
                    return
                finally:
                    error = None
            try:
                sent = yield item
            except GeneratorExit:
                with open_phase():
                    await body.aclose()
                raise
            except BaseException as raised:
                error = raised

    return call
