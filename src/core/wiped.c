#include "core/wiped.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef MADV_WIPEONFORK
#define MADV_WIPEONFORK 18 /* Linux 4.14 */
#endif

void *lp__wiped_memory(size_t size)
{
    void *at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (at == MAP_FAILED)
        return NULL;
    if (madvise(at, size, MADV_WIPEONFORK) != 0) {
        munmap(at, size);
        return NULL;
    }
    return at;
}

typedef struct guards {
    _Atomic uint32_t taken; /* not in the page, which is wiped in a child */
    volatile uint32_t *words;
} guards;

#define WORDS 2u

volatile uint32_t *lp__guard_words(void)
{
    static guards *_Atomic newest;
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    uint32_t room = (uint32_t)(page / (WORDS * sizeof(uint32_t)));

    for (;;) {
        guards *some = atomic_load(&newest), *more;
        uint32_t at = some ? atomic_fetch_add(&some->taken, 1) : room;
        if (at < room)
            return &some->words[WORDS * at];
        more = calloc(1, sizeof *more);
        if (more)
            more->words = lp__wiped_memory(page);
        if (!more || !more->words) {
            free(more);
            return NULL;
        }
        if (!atomic_compare_exchange_strong(&newest, &some, more)) { /* another thread was as quick */
            munmap((void *)(uintptr_t)more->words, page);
            free(more);
        }
    }
}
