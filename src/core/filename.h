/* Short texts put together without printf: names of files that a forked child makes at its first phase. The first use of printf in
 * a process costs it half a dozen page faults, more than what it prints. */
#ifndef LP_CORE_FILENAME_H
#define LP_CORE_FILENAME_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef struct lp_filename {
    char *at;    /* the next byte */
    size_t left; /* with the terminator; 0: it did not fit, and at is as far as it came */
} lp_filename;

static inline lp_filename lp_filename_start(char *room, size_t size)
{
    room[0] = '\0';
    return (lp_filename){room, size};
}

static inline void lp_filename_bytes(lp_filename *text, const char *bytes, size_t size)
{
    if (size >= text->left) {
        text->left = 0;
        return;
    }
    memcpy(text->at, bytes, size);
    text->at += size;
    text->left -= size;
    *text->at = '\0';
}

static inline void lp_filename_put(lp_filename *text, const char *string)
{
    lp_filename_bytes(text, string, strlen(string));
}

/* Base 10 or 16, lower case. */
static inline void lp_filename_number(lp_filename *text, uint64_t value, unsigned base)
{
    char digits[20];
    size_t first = sizeof digits;

    do
        digits[--first] = "0123456789abcdef"[value % base];
    while ((value /= base) != 0);
    lp_filename_bytes(text, digits + first, sizeof digits - first);
}

/* The decimal number at *at, *at behind it; false: there is none, or it is above INT64_MAX. */
static inline int lp_digits_read(const char **at, int64_t *value)
{
    const char *p = *at;
    int64_t sum = 0;

    if (*p < '0' || *p > '9')
        return 0;
    for (; *p >= '0' && *p <= '9'; p++)
        if (__builtin_mul_overflow(sum, (int64_t)10, &sum) || __builtin_add_overflow(sum, (int64_t)(*p - '0'), &sum))
            return 0;
    *at = p;
    *value = sum;
    return 1;
}

#endif
