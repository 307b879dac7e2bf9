/* Memory between two rows: what several processes held together, from rows and the kernel's largest sizes. */
#include "check.h"

#include "analysis/usage_internal.h"

#define BINS 6u

typedef struct one {
    lp__high high;
    double through[BINS]; /* as the bins have it: its largest row of each, through which it lived */
} one;

/* A process with a row a bin of these sizes and largest sizes; NaN: not read. */
static one made(const double *rss, const double *most, lp__peak *peaks)
{
    one process = {.high.any = false};

    lp__high_init(&process.high);
    for (uint32_t i = 0; i < BINS; i++) {
        lp__high_row(&process.high, peaks, i, rss[i], most[i]);
        process.through[i] = rss[i];
    }
    lp__high_end(&process.high, peaks);
    return process;
}

static void a_rise_between_rows_is_added_to_what_the_others_hold(void)
{
    lp__peak peaks[BINS] = {{0}};
    one spiked = made((double[]){10, 12, 10, 10, 10, 10}, (double[]){10, 12, 400, 400, 400, 400}, peaks);
    one other = made((double[]){50, 70, 60, 90, 90, 90}, (double[]){50, 70, 70, 90, 90, 90}, peaks);
    double bins[BINS];

    for (uint32_t i = 0; i < BINS; i++)
        bins[i] = spiked.through[i] + other.through[i];
    CHECK_NEAR(lp__peaks_of(peaks, bins, BINS), 400 + 60, 1e-9); /* in bin 1 or 2: 70 or 60 were held by the other */
}

static void what_was_there_before_the_first_row_does_not_count(void)
{
    lp__peak peaks[BINS] = {{0}};
    double rss[BINS] = {10, 10, 10, 10, 10, 10}, most[BINS] = {900, 900, 900, 900, 900, 900};

    made(rss, most, peaks);
    CHECK_NEAR(lp__peaks_of(peaks, rss, BINS), 0, 1e-9);
    most[4] = most[5] = 950;
    made(rss, most, peaks);
    CHECK_NEAR(lp__peaks_of(peaks, rss, BINS), 950, 1e-9);
}

static void what_rows_show_is_not_added_twice(void)
{
    lp__peak peaks[BINS] = {{0}};
    double rss[BINS] = {10, 20, 30, 40, 50, 60};

    made(rss, rss, peaks);
    CHECK_NEAR(lp__peaks_of(peaks, rss, BINS), 0, 1e-9);
}

/* Two that rise in the same time need not have done so at the same moment. */
static void of_two_that_rise_one_counts(void)
{
    lp__peak peaks[BINS] = {{0}};
    double low[BINS] = {10, 10, 10, 10, 10, 10}, bins[BINS] = {20, 20, 20, 20, 20, 20};

    made(low, (double[]){10, 10, 100, 100, 100, 100}, peaks);
    made(low, (double[]){10, 10, 300, 300, 300, 300}, peaks);
    CHECK_NEAR(lp__peaks_of(peaks, bins, BINS), 300 + 10, 1e-9);
}

/* Where the largest size is read less often than the size, a rise may lie in each of the bins since. */
static void a_longer_time_has_the_least_of_its_bins(void)
{
    double unread = (double)NAN;
    lp__peak peaks[BINS] = {{0}};
    one spiked = made((double[]){10, 30, 20, 10, 10, 10}, (double[]){10, unread, unread, 100, unread, unread}, peaks);
    double other[BINS] = {50, 55, 90, 90, 40, 40}, bins[BINS];

    for (uint32_t i = 0; i < BINS; i++)
        bins[i] = spiked.through[i] + other[i];
    CHECK_NEAR(lp__peaks_of(peaks, bins, BINS), 100 + 50, 1e-9);
}

/* A bin of a long run has many rows. The largest of them is in the bin, wherever the rise was. */
static void a_bin_of_many_rows(void)
{
    lp__high high;
    lp__peak peaks[BINS] = {{0}};
    double bins[BINS] = {80 + 5, 5};

    lp__high_init(&high);
    CHECK(!lp__high_row(&high, peaks, 0, 10, 10));
    CHECK(lp__high_row(&high, peaks, 0, 20, 60));
    CHECK(!lp__high_row(&high, peaks, 0, 10, 60));
    CHECK(lp__high_row(&high, peaks, 0, 80, 80)); /* this row shows more than that rise did */
    CHECK(!lp__high_row(&high, peaks, 1, 0, 80));
    lp__high_end(&high, peaks);
    CHECK_NEAR(lp__peaks_of(peaks, bins, BINS), 0, 1e-9);
    lp__high_init(&high);
    lp__high_row(&high, peaks, 0, 10, 10);
    lp__high_row(&high, peaks, 0, 20, 100);
    lp__high_row(&high, peaks, 0, 80, 100);
    lp__high_end(&high, peaks);
    CHECK_NEAR(lp__peaks_of(peaks, bins, BINS), 100 + 5, 1e-9);
}

static void a_process_without_any_reading(void)
{
    double unread[BINS] = {(double)NAN, (double)NAN, (double)NAN, (double)NAN, (double)NAN, (double)NAN};
    lp__peak peaks[BINS] = {{0}};

    made((double[]){10, 20, 30, 20, 10, 10}, unread, peaks);
    made(unread, unread, peaks);
    CHECK_NEAR(lp__peaks_of(peaks, (double[BINS]){10, 20, 30, 20, 10, 10}, BINS), 0, 1e-9);
}

int main(void)
{
    RUN(a_rise_between_rows_is_added_to_what_the_others_hold);
    RUN(what_was_there_before_the_first_row_does_not_count);
    RUN(what_rows_show_is_not_added_twice);
    RUN(of_two_that_rise_one_counts);
    RUN(a_longer_time_has_the_least_of_its_bins);
    RUN(a_bin_of_many_rows);
    RUN(a_process_without_any_reading);
    return check_done();
}
