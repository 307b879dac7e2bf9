/* Log-linear histogram: 32 sub-buckets an octave.
 *
 * A value v < 32 has a cell of its own; above, octave k >= 1 covers [32 * 2^(k-1), 64 * 2^(k-1)) in 32 cells of
 * width 2^(k-1). The middle of a cell is at most 1/64 = 1.6 % away from any value in it. Cells of two
 * histograms are the same values everywhere, so counts of threads, processes and hosts simply add. The scheme
 * is that of HdrHistogram (Tene), written for cells that are touched sparsely. */
#ifndef LP_CORE_HIST_H
#define LP_CORE_HIST_H

#include <stdint.h>

#define LP_HIST_SUB 32u     /* cells an octave */
#define LP_HIST_OCTAVES 52u /* octave 51 ends at 2^56 ns = 834 days; larger values land in the last cell */
#define LP_HIST_CELLS (LP_HIST_SUB * LP_HIST_OCTAVES)

/* Cell of `value`, 0 .. LP_HIST_CELLS - 1. */
static inline uint32_t lp_hist_cell(uint64_t value)
{
    if (value < LP_HIST_SUB)
        return (uint32_t)value;
    uint32_t shift = 58u - (uint32_t)__builtin_clzll(value); /* log2(value) - 5 */
    uint32_t cell = (shift << 5) + (uint32_t)(value >> shift);
    return cell < LP_HIST_CELLS ? cell : LP_HIST_CELLS - 1;
}

/* Smallest value of a cell. */
static inline uint64_t lp_hist_low(uint32_t cell)
{
    if (cell < LP_HIST_SUB)
        return cell;
    return (uint64_t)(LP_HIST_SUB + (cell & 31u)) << ((cell >> 5) - 1);
}

/* First value beyond a cell. */
static inline uint64_t lp_hist_high(uint32_t cell)
{
    return cell < LP_HIST_SUB ? cell + 1ull : lp_hist_low(cell) + (1ull << ((cell >> 5) - 1));
}

/* The value that stands for a cell: exact below 32, else its middle. */
static inline double lp_hist_value(uint32_t cell)
{
    if (cell < LP_HIST_SUB)
        return (double)cell;
    return ((double)lp_hist_low(cell) + (double)(lp_hist_high(cell) - 1)) / 2.0;
}

#endif
