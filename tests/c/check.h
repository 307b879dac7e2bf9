/* check.h - the whole test framework of tests/c: one header, TAP on stdout, one executable a file.
 *
 *     #include "check.h"
 *
 *     static void adds_counts(void)
 *     {
 *         CHECK(hist != NULL);
 *         CHECK_EQ(lp_hist_count(hist), 3u);        // any two integers or pointers; prints both
 *         CHECK_NEAR(quantile, 1000.0, 16.0);       // |a - b| <= tolerance
 *         CHECK_STR(name, "iteration");
 *         CHECK_MEM(bytes, expected, 16);
 *     }
 *
 *     int main(void)
 *     {
 *         RUN(adds_counts);
 *         return check_done();
 *     }
 *
 * A failed check prints file:line and both values to stderr (Meson shows it), marks the running function as failed and goes on;
 * REQUIRE leaves the function at once, for what the lines after it depend on. Each argument is evaluated
 * once. Not thread-safe: threads of a test hand their results to the main thread, which checks them.
 * Fork: check in the parent; a child reports by its exit status (_exit, or the buffered TAP comes twice).
 */
#ifndef LP_TESTS_CHECK_H
#define LP_TESTS_CHECK_H

#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* gcc says so by a macro, clang by a feature. */
#if defined(__SANITIZE_THREAD__)
#define CHECK_THREAD_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define CHECK_THREAD_SANITIZER 1
#endif
#endif

static int check_tests_run, check_tests_failed, check_failures_here;

/* An integer with its sign kept, so that -1 and UINT64_MAX differ and print as what they are. */
struct check_int {
    bool negative;
    uint64_t bits;
};

static inline struct check_int check_signed(int64_t v)
{
    return (struct check_int){v < 0, (uint64_t)v};
}

static inline struct check_int check_unsigned(uint64_t v)
{
    return (struct check_int){false, v};
}

static inline struct check_int check_pointer(const volatile void *p)
{
    return (struct check_int){false, (uint64_t)(uintptr_t)p};
}

#define CHECK_INT_(x)                                                                                                  \
    _Generic((x),                                                                                                      \
        bool: check_unsigned,                                                                                          \
        char: check_signed,                                                                                            \
        signed char: check_signed,                                                                                     \
        short: check_signed,                                                                                           \
        int: check_signed,                                                                                             \
        long: check_signed,                                                                                            \
        long long: check_signed,                                                                                       \
        unsigned char: check_unsigned,                                                                                 \
        unsigned short: check_unsigned,                                                                                \
        unsigned int: check_unsigned,                                                                                  \
        unsigned long: check_unsigned,                                                                                 \
        unsigned long long: check_unsigned,                                                                            \
        default: check_pointer)(x)

static inline void check_print_int(struct check_int v)
{
    if (v.negative)
        fprintf(stderr, "%" PRId64, (int64_t)v.bits);
    else
        fprintf(stderr, "%" PRIu64 " (0x%" PRIx64 ")", v.bits, v.bits);
}

static inline void check_failed(const char *file, int line, const char *what)
{
    check_failures_here++;
    fprintf(stderr, "# %s:%d: %s\n", file, line, what);
}

static inline bool check_true_(bool ok, const char *file, int line, const char *text)
{
    if (!ok)
        check_failed(file, line, text);
    return ok;
}

static inline bool check_eq_(struct check_int a, struct check_int b, const char *file, int line, const char *text)
{
    if (a.negative == b.negative && a.bits == b.bits)
        return true;
    check_failed(file, line, text);
    fprintf(stderr, "#   left  ");
    check_print_int(a);
    fprintf(stderr, "\n#   right ");
    check_print_int(b);
    fprintf(stderr, "\n");
    return false;
}

/* NaN is near nothing, itself included. */
static inline bool check_near_(double a, double b, double tolerance, const char *file, int line, const char *text)
{
    if (fabs(a - b) <= tolerance)
        return true;
    check_failed(file, line, text);
    fprintf(stderr, "#   left  %.17g\n#   right %.17g\n#   tolerance %.17g\n", a, b, tolerance);
    return false;
}

/* Values may hold anything; a terminal must not obey them. */
static inline void check_print_bytes(const void *data, size_t len)
{
    const unsigned char *bytes = data;
    fputc('"', stderr);
    for (size_t i = 0; i < len && i < 400; i++) {
        if (bytes[i] >= 0x20 && bytes[i] < 0x7f && bytes[i] != '"' && bytes[i] != '\\')
            fputc(bytes[i], stderr);
        else
            fprintf(stderr, "\\x%02x", (unsigned)bytes[i]);
    }
    fprintf(stderr, len > 400 ? "\"... (%zu bytes)\n" : "\"\n", len);
}

static inline bool check_mem_(const void *a, size_t a_len, const void *b, size_t b_len, const char *file, int line,
                              const char *text)
{
    if (a != NULL && b != NULL && a_len == b_len && memcmp(a, b, a_len) == 0)
        return true;
    check_failed(file, line, text);
    fprintf(stderr, "#   left  ");
    if (a != NULL)
        check_print_bytes(a, a_len);
    else
        fprintf(stderr, "NULL\n");
    fprintf(stderr, "#   right ");
    if (b != NULL)
        check_print_bytes(b, b_len);
    else
        fprintf(stderr, "NULL\n");
    return false;
}

static inline bool check_str_(const char *a, const char *b, const char *file, int line, const char *text)
{
    return check_mem_(a, a != NULL ? strlen(a) : 0, b, b != NULL ? strlen(b) : 0, file, line, text);
}

#define CHECK(cond) ((void)check_true_((cond), __FILE__, __LINE__, #cond))
#define REQUIRE(cond)                                                                                                  \
    do {                                                                                                               \
        if (!check_true_((cond), __FILE__, __LINE__, "required: " #cond))                                              \
            return;                                                                                                    \
    } while (0)
#define CHECK_EQ(a, b) ((void)check_eq_(CHECK_INT_(a), CHECK_INT_(b), __FILE__, __LINE__, #a " == " #b))
#define CHECK_NEAR(a, b, tolerance) ((void)check_near_((a), (b), (tolerance), __FILE__, __LINE__, #a " near " #b))
#define CHECK_STR(a, b) ((void)check_str_((a), (b), __FILE__, __LINE__, #a " is " #b))
#define CHECK_MEM(a, b, len) ((void)check_mem_((a), (len), (b), (len), __FILE__, __LINE__, #a " is " #b))

static inline void check_run_(void (*test)(void), const char *name)
{
    check_failures_here = 0;
    test();
    check_tests_run++;
    if (check_failures_here != 0)
        check_tests_failed++;
    printf("%s %d - %s\n", check_failures_here != 0 ? "not ok" : "ok", check_tests_run, name);
    fflush(stdout); /* a crash in the next test must not swallow this line */
}

#define RUN(test) check_run_((test), #test)

/* For a fact of the machine without which a test says nothing; the reason is printed and counted as a skip. */
static inline void check_skip(const char *name, const char *reason)
{
    printf("ok %d - %s # SKIP %s\n", ++check_tests_run, name, reason);
    fflush(stdout);
}

/* Prints the plan and gives main's result: 0, or 1 after a failure or when nothing ran. */
static inline int check_done(void)
{
    printf("1..%d\n", check_tests_run);
    fflush(stdout);
    return check_tests_failed != 0 || check_tests_run == 0;
}

#endif
