/* What every fallible function of the core and the store returns.
 *
 * One list gives the codes and their texts. Details that a person needs (which file, which byte) go into an
 * lp_error that the caller may pass; NULL means that it wants only the code. Out-parameters are written on
 * LP_OK only. Nothing here allocates. */
#ifndef LP_CORE_STATUS_H
#define LP_CORE_STATUS_H

#include <stddef.h>
#include <stdint.h>

#define LP_STATUS_LIST(X)                                                                                              \
    X(LP_OK, "ok")                                                                                                     \
    X(LP_E_MEMORY, "out of memory")                                                                                    \
    X(LP_E_ARGUMENT, "invalid argument")                                                                               \
    X(LP_E_IO, "input/output error")                                                                                   \
    X(LP_E_MISSING, "no such file or directory")                                                                       \
    X(LP_E_FOREIGN, "not a file of this program")                                                                      \
    X(LP_E_VERSION, "written by a newer version of lineprofiler")                                                      \
    X(LP_E_TRUNCATED, "truncated")                                                                                     \
    X(LP_E_DAMAGED, "damaged")                                                                                         \
    X(LP_E_LIMIT, "larger than any file that this program writes")                                                     \
    X(LP_E_UNSAFE, "belongs to another user or can be written by others")                                              \
    X(LP_E_BUSY, "in use")                                                                                             \
    X(LP_E_FULL, "no space left")                                                                                      \
    X(LP_E_UNSUPPORTED, "not supported here")

typedef enum lp_status {
#define LP_STATUS_ENUM(code, text) code,
    LP_STATUS_LIST(LP_STATUS_ENUM)
#undef LP_STATUS_ENUM
} lp_status;

typedef struct lp_error {
    lp_status status;
    int sys;         /* errno of the failed call, 0 if none */
    uint64_t offset; /* byte offset in the file, UINT64_MAX if none */
    char text[256];  /* one line, starts with the file's path where there is one; always terminated */
} lp_error;

/* Static text of a code; never NULL. */
const char *lp_status_text(lp_status status);

/* Text of an errno, in `room` or static; borrowed. Never NULL. */
const char *lp_system_text(int sys, char *room, size_t size);

/* Fills *error (NULL is allowed) with "subject: what", keeps errno as it was and returns `status`. `offset`
 * UINT64_MAX means none. */
lp_status lp_error_set(lp_error *error, lp_status status, int sys, uint64_t offset, const char *format, ...)
    __attribute__((format(printf, 5, 6)));

#endif
