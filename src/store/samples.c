/* The columns and reasons of sample files, by number and name. */
#include "store/samples.h"

#define C true
#define G false
const lp_column_info lp_column_table[LP_COLUMNS] = {
#define ENTRY(number, constant, name, unit, step, kind, source) {number, step, name, unit, source, kind},
    LP_SAMPLE_COLUMN_LIST(ENTRY)
#undef ENTRY
};
#undef C
#undef G

const char *lp_reason_text(uint32_t reason)
{
    switch (reason) {
#define ENTRY(number, constant, text)                                                                                  \
    case number: return text;
        LP_REASON_LIST(ENTRY)
#undef ENTRY
    default: return "for a reason that this version does not know";
    }
}

void lp_sample_init(lp_sample *sample)
{
    *sample = (lp_sample){0};
    for (unsigned i = 0; i < LP_COLUMNS; i++)
        lp_sample_miss(sample, (lp_column)i, LP_REASON_NEVER);
}
