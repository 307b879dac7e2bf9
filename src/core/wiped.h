/* Memory that reads zero in every child, whoever forked it (MADV_WIPEONFORK): also of _Fork and a raw clone, where no handler runs.
 * Where the kernel cannot, there is none, and nothing is recorded. */
#ifndef LP_CORE_WIPED_H
#define LP_CORE_WIPED_H

#include <stddef.h>
#include <stdint.h>

void *lp__wiped_memory(size_t size); /* owned: munmap; NULL: errno */
/* Two words of it, never freed. Many to a page: a recorder's are kept for ever, and a program may make one recorder after another. */
volatile uint32_t *lp__guard_words(void);

#endif
