/* check.h itself: a framework that cannot fail would make every other file here worthless. */
#include "check.h"

#include <errno.h>
#include <math.h>

/* Runs checks that must fail and takes the failures off the books again. The diagnostics are left in the output. */
static int failures_of(void (*checks)(void))
{
    int before = check_failures_here;
    checks();
    int seen = check_failures_here - before;
    check_failures_here = before;
    return seen;
}

static void all_wrong(void)
{
    int64_t minus_one = -1;
    CHECK(1 > 2);
    CHECK_EQ(minus_one, UINT64_MAX);
    CHECK_EQ(3, 4u);
    CHECK_NEAR(1.0, 1.5, 0.4);
    CHECK_NEAR((double)NAN, (double)NAN, 1.0);
    CHECK_STR("a\nb", "a\nc");
    CHECK_STR("a", NULL);
    CHECK_MEM("ab", "ac", 2);
}

static void all_right(void)
{
    uint8_t small = 200;
    const char *text = "x";
    CHECK(2 > 1);
    CHECK_EQ(small, 200);
    CHECK_EQ(-1, (int64_t)-1);
    CHECK_EQ(text, text);
    CHECK_NEAR(1.0, 1.5, 0.5);
    CHECK_STR("a\nb", "a\nb");
    CHECK_MEM("ab\0c", "ab\0c", 4);
}

static int after_require;

static void leaves_early(void)
{
    REQUIRE(errno == -12345);
    after_require++;
}

static void wrong_values_fail(void)
{
    int seen = failures_of(all_wrong);
    CHECK_EQ(seen, 8);
}

static void right_values_pass(void)
{
    int seen = failures_of(all_right);
    CHECK_EQ(seen, 0);
}

static void require_leaves_the_test(void)
{
    int seen = failures_of(leaves_early);
    CHECK_EQ(seen, 1);
    CHECK_EQ(after_require, 0);
}

static void arguments_are_evaluated_once(void)
{
    int n = 0;
    CHECK_EQ(++n, 1);
    CHECK(++n == 2);
    CHECK_EQ(n, 2);
}

int main(void)
{
    RUN(wrong_values_fail);
    RUN(right_values_pass);
    RUN(require_leaves_the_test);
    RUN(arguments_are_evaluated_once);
    return check_done();
}
