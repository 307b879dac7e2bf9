/* What a fork does to memory, and what follows for ours.
 *
 * Memory that reads zero in every child, whoever forked it (MADV_WIPEONFORK): also of _Fork and a raw clone, where no handler runs.
 * Where the kernel cannot, there is none, and nothing is recorded. */
#ifndef LP_CORE_WIPED_H
#define LP_CORE_WIPED_H

#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

/* Every page that a forked child stores to is copied first, some 2 us each: variables that a child's first phase stores to stand
 * together in one section. */
#define LP_FORK_TOUCHES __attribute__((section("lp_fork_touches")))

/* fstat with an empty name of our own: glibc passes one of its constants, which would be the first thing that a child reads there,
 * at a page fault of 2 us. */
static inline int lp__fstat(int fd, struct stat *st)
{
    const char empty[1] = "";
    return fstatat(fd, empty, st, AT_EMPTY_PATH);
}

void *lp__wiped_memory(size_t size); /* owned: munmap; NULL: errno */
/* Two words of it, never freed. Many to a page: a recorder's are kept for ever, and a program may make one recorder after another. */
volatile uint32_t *lp__guard_words(void);

#endif
