/* Small text files of the kernel, and numbers in them. A file may be kept open: the kernel makes its content anew at each read
 * from the start, and one of a process that has ended says ESRCH for ever, whoever gets its pid. */
#ifndef LP_SAMPLE_TEXT_H
#define LP_SAMPLE_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "store/samples.h"

#define LP__TEXT_ROOM 4096u

/* A file below a directory that is read again and again. Zeroed: never tried. */
typedef struct lp__text_file {
    int fd;       /* owned, + 1, so that zero is none */
    bool gave_up; /* it could not be opened, for a reason that stays */
    lp_reason reason;
} lp__text_file;

/* From now on a file whose descriptor has that number or a greater one is not kept open. Numbers are given out from the lowest on, so
 * that they tell how many there are. Before the first is read; of the process. */
void lp__text_keep_below(int number);
/* Reads the file (up to LP__TEXT_ROOM - 1 bytes; terminated), opening it if it is not open. Size; -1: *reason. Where no
 * descriptor can be kept the file is opened each time. */
long lp__text_read(lp__text_file *file, int dirfd, const char *path, char text[LP__TEXT_ROOM], lp_reason *reason);
void lp__text_close(lp__text_file *file);
/* Once, without keeping it. */
long lp__text_once(int dirfd, const char *path, char text[LP__TEXT_ROOM], lp_reason *reason);
/* What an errno of a file of /proc, /sys or a cgroup means. */
lp_reason lp__reason_of(int sys);

/* A decimal number at *at, after blanks; *at behind it. false: none, or above INT64_MAX. */
bool lp__number(const char **at, int64_t *value);
/* The number behind `key` at the start of a line ("VmHWM:", "some avg10=… total=" takes two keys: see lp__number_within). */
bool lp__number_of(const char *text, const char *key, int64_t *value);
/* The number behind `key` in the line that starts with `line`. */
bool lp__number_within(const char *text, const char *line, const char *key, int64_t *value);

/* Sets the column to value, or to missing with `reason` if there is none. */
void lp__sample_put(lp_sample *sample, lp_column column, bool have, int64_t value, lp_reason reason);

#endif
