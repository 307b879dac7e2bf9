/* Figures as people read them. Integer arithmetic only, so that a program's locale changes nothing.
 *
 * Every function fills `out` (terminated) and returns it. Rounding is to the nearest, and a figure that would round up
 * to 1000 of its unit takes the next one; minutes and hours are cut, as clocks do. NaN gives "n/a". What is above zero and
 * would round to it shows as less than the smallest figure ("<0.1%"): a zero is a measured one. */
#ifndef LP_RENDER_UNITS_H
#define LP_RENDER_UNITS_H

#include <stdint.h>

#include "store/model.h"

#define LP_UNIT_SIZE 96
typedef char lp_unit[LP_UNIT_SIZE];

char *lp_unit_ns(lp_unit out,
                 double ns); /* 0ns 2.5ns 999ns 1.2us 100.0us 1.5ms 1.00s 59.90s 1m 01s 1h 00m 99h 59m 100h */
char *lp_unit_about(lp_unit out, bool estimated, double ns); /* ~1.2us */
char *lp_unit_bytes(lp_unit out, double bytes);              /* 0 B 1023 B 1.5 KB 1.0 MB, powers of 1024 */
char *lp_unit_byte_rate(lp_unit out, double bytes_per_s);    /* 35.8 MB/s */
char *lp_unit_count(lp_unit out, lp_i128 count);             /* 6,325 */
/* The same in at most `columns` characters: 1.2T when it would not fit. */
char *lp_unit_count_in(lp_unit out, lp_i128 count, unsigned columns);
char *lp_unit_rate(lp_unit out, double per_s);                     /* 56,882.3/s 0.8/s 0.033/s 0.0033/s */
char *lp_unit_small_rate(lp_unit out, double per_s);               /* the same without its unit */
char *lp_unit_percent(lp_unit out, double share);                  /* 0.829 -> 82.9% */
char *lp_unit_whole_percent(lp_unit out, double share);            /* 0.98 -> 98%; above 0 and below 0.5 %: <1% */
char *lp_unit_fixed(lp_unit out, double value, unsigned decimals); /* 1.25; decimals <= 6 */
char *lp_unit_used(lp_unit out, double value, unsigned decimals);  /* the same of what is never negative: <0.01 */
char *lp_unit_amount(lp_unit out, double amount);                  /* of a counter, whole: 8, 4,096 */
/* From `then` to `now`, Unix ns: as lp_unit_ns, whole seconds; 68 days beyond two; 0s where it has not been yet. */
char *lp_unit_age(lp_unit out, uint64_t now, uint64_t then);
char *lp_unit_end(lp_unit out, lp_end end); /* SIGKILL; SIGSEGV, core dumped; exit code 3; "" not known */

#endif
