#include "analysis/tree_math.h"

#include <string.h>

void lp__tree_extents(const lp_tree *tree, const uint64_t *open_entries, uint64_t *wall, uint64_t *open)
{
    for (uint32_t i = 0; i < tree->count; i++)
        wall[i] = i == 0 ? 0 : tree->phases[i].wall_ns;
    if (tree->count > 0)
        open[0] = 0;
    /* A parent stands before its children, so going backwards every child is complete when it is added. */
    for (uint32_t i = tree->count; i-- > 1;) {
        uint32_t parent = tree->phases[i].parent;

        if (parent == 0 || lp__phase_is_synthetic(&tree->phases[parent], open_entries[parent])) {
            wall[parent] = lp__add_u64(wall[parent], wall[i]);
            open[parent] = lp__add_u64(open[parent], open[i]);
        }
    }
}

int lp__str_compare(lp_str a, lp_str b)
{
    size_t shorter = a.size < b.size ? a.size : b.size;
    int order = shorter > 0 ? memcmp(a.data, b.data, shorter) : 0;

    if (order != 0)
        return order;
    return a.size < b.size ? -1 : a.size > b.size;
}
