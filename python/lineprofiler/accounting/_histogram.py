"""The histogram of the result types: that of ``src/core/hist.h``, 32 cells an octave.

A quantile is within 1.6 % of the exact one, and cells of two histograms mean the same values in every thread,
process and host.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import ceil
from typing import Any, TypeVar

_SUB = 32
_OCTAVES = 52
_CELLS = _SUB * _OCTAVES

_H = TypeVar("_H", bound="DurationHistogram")


def _cell(value: int) -> int:
    """Cell of a value >= 0."""
    if value < _SUB:
        return value
    shift = value.bit_length() - 6
    return min((shift << 5) + (value >> shift), _CELLS - 1)


def _low(cell: int) -> int:
    """Smallest value of a cell."""
    return cell if cell < _SUB else (_SUB + (cell & 31)) << ((cell >> 5) - 1)


def _high(cell: int) -> int:
    """First value beyond a cell."""
    return cell + 1 if cell < _SUB else _low(cell) + (1 << ((cell >> 5) - 1))


def _middle(cell: int) -> float:
    """The value that stands for a cell; of a negative cell (AmountHistogram) the negative one."""
    if cell < 0:
        return -_middle(-cell)
    return float(cell) if cell < _SUB else (_low(cell) + _high(cell) - 1) / 2


class DurationHistogram:
    """Log-linear histogram of durations in ns; a quantile is within 1.6 % of the exact one.

    Histograms of threads, processes and hosts add without loss, and the difference of two cumulative ones is the
    histogram of the interval between them.
    """

    __slots__ = ("_cells", "count")
    __hash__ = None  # type: ignore[assignment]

    count: int
    """How many durations were observed (of a sampled phase: how many the observed ones stand for)."""

    def __init__(self) -> None:
        self._cells: dict[int, int] = {}
        self.count = 0

    @classmethod
    def _of(cls: type[_H], cells: dict[int, int]) -> _H:
        """From {cell: count}, which it takes over."""
        made = cls()
        made._cells = cells
        made.count = sum(cells.values())
        return made

    def observe(self, duration_ns: int) -> None:
        """Adds one duration in ns; a negative one counts as 0."""
        self._add(_cell(max(int(duration_ns), 0)), 1)

    def _add(self, cell: int, count: int) -> None:
        self._cells[cell] = self._cells.get(cell, 0) + count
        self.count += count

    def merge(self, other: DurationHistogram) -> None:
        """Adds the counts of `other`, which stays as it is."""
        cells = self._cells
        for cell, count in list(other._cells.items()):
            cells[cell] = cells.get(cell, 0) + count
        self.count += other.count

    def difference(self: _H, baseline: DurationHistogram) -> _H:
        """What came after `baseline`, an earlier state of the same histogram; clamped at 0."""
        before = baseline._cells
        after = ((cell, count - before.get(cell, 0)) for cell, count in self._cells.items())
        return self._of({cell: count for cell, count in after if count > 0})

    def quantile(self, q: float) -> float:
        """Duration in ns below which the share `q` (0..1) lies, by the nearest rank; 0.0 when empty.

        Raises ValueError for `q` outside 0..1.
        """
        if not 0.0 <= q <= 1.0:
            raise ValueError(f"a quantile lies in 0..1, got {q!r}")
        rank = max(1, ceil(q * self.count))
        for cell in sorted(self._cells):
            rank -= self._cells[cell]
            if rank <= 0:
                return _middle(cell)
        return 0.0

    def copy(self: _H) -> _H:
        """An independent copy."""
        return self._of(dict(self._cells))

    @property
    def buckets(self) -> list[int]:
        """All counts by cell, dense: 1664 cells, 32 an octave (a copy)."""
        dense = [0] * _CELLS
        for cell, count in self._cells.items():
            if cell >= 0:
                dense[cell] = count
        return dense

    def to_sparse(self) -> dict[str, int]:
        """The cells that are not empty, as ``{"cell": count}``, ascending."""
        return {str(cell): self._cells[cell] for cell in sorted(self._cells)}

    @classmethod
    def from_sparse(cls: type[_H], sparse: Mapping[str, int]) -> _H:
        """The reverse of `to_sparse`. Raises ValueError for what is no cell or no count."""
        cells: dict[int, int] = {}
        for key, count in sparse.items():
            cell = int(key)
            if not cls._lowest_cell() <= cell < _CELLS or count < 0:
                raise ValueError(f"no histogram cell: {key!r}: {count!r}")
            if count:
                cells[cell] = int(count)
        return cls._of(cells)

    @classmethod
    def _lowest_cell(cls) -> int:
        return 0

    def _bounds(self) -> tuple[int, int]:
        """Smallest and largest value that the cells allow; (0, 0) when empty."""
        if not self._cells:
            return 0, 0
        first, last = min(self._cells), max(self._cells)
        smallest = _low(first) if first >= 0 else 1 - _high(-first)
        largest = _high(last) - 1 if last >= 0 else -_low(-last)
        return smallest, largest

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, DurationHistogram):
            return NotImplemented
        return type(self) is type(other) and self._cells == other._cells

    def __iter__(self) -> Iterator[tuple[float, int]]:
        """(value that stands for the cell, count), ascending."""
        return iter([(_middle(cell), self._cells[cell]) for cell in sorted(self._cells)])

    def __repr__(self) -> str:
        return f"{type(self).__name__}.from_sparse({self.to_sparse()!r})"

    def __getstate__(self) -> dict[int, int]:
        return dict(self._cells)

    def __setstate__(self, cells: dict[int, int]) -> None:
        self._cells = dict(cells)
        self.count = sum(cells.values())

    def __reduce__(self) -> tuple[Any, ...]:
        # Without it an empty state would be skipped by pickle and leave the slots unset.
        return (type(self), (), dict(self._cells) or None)


class AmountHistogram(DurationHistogram):
    """Histogram of the amounts of one counter, one observation a ``count()`` call; amounts may be negative.

    Amounts of -31..31 are exact, others within 1.6 %. A negative amount has the cell of its absolute value, negated.
    """

    __slots__ = ()
    __hash__ = None

    def observe(self, duration_ns: int) -> None:
        """Adds one amount (the parameter has the name of the base class)."""
        amount = int(duration_ns)
        self._add(_cell(amount) if amount >= 0 else -_cell(-amount), 1)

    @classmethod
    def _lowest_cell(cls) -> int:
        return 1 - _CELLS
