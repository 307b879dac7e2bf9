#include "render/top_lines.h"

static uint64_t lines_with(const lp_top *top, uint32_t share)
{
    uint64_t needed = 0, most = (uint64_t)share + (top->role_count > 1);

    for (uint32_t r = 0; r < top->role_count; r++) {
        uint64_t rows = top->roles[r].row_count > 0 ? top->roles[r].row_count : 1; /* one says that there is none */
        needed += 1 + (rows < most ? rows : most);
    }
    return needed;
}

lp_top_division lp__top_divide(const lp_top *top, unsigned room)
{
    lp_top_division of = {.several = top->role_count > 1, .share = UINT32_MAX};
    uint32_t most = 0;

    if (room == LP_TOP_ALL_LINES)
        return of;
    for (uint32_t r = 0; r < top->role_count; r++)
        most = top->roles[r].row_count > most ? top->roles[r].row_count : most;
    for (of.share = 0; of.share < most && lines_with(top, of.share + 1) <= room;)
        of.share++;
    of.tight = of.several && of.share == 0 && most > 0;
    uint64_t used = of.tight ? top->role_count : lines_with(top, of.share);
    of.left = used < room ? room - (unsigned)used : of.tight;
    return of;
}

uint32_t lp__top_take_rows(lp_top_division *of, uint32_t rows)
{
    uint32_t share = of->share;

    if (of->share == UINT32_MAX)
        return rows;
    if (of->tight) {
        share = rows < of->left ? rows : of->left;
        of->left -= share;
        return share;
    }
    if (of->left > 0 && rows > share + of->several) {
        share++;
        of->left--;
    }
    return rows <= share + of->several ? rows : share; /* a row instead of a line about one row */
}
