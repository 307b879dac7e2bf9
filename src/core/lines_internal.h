/* Between the files of the line engine. */
#ifndef LP_CORE_LINES_INTERNAL_H
#define LP_CORE_LINES_INTERNAL_H

#include "core/lines.h"

typedef struct lp__line_name {
    char *bytes; /* owned */
    uint32_t size;
} lp__line_name;

void lp__lines_lock(lp_lines *lines);
void lp__lines_unlock(lp_lines *lines);
/* A zeroed list of at least `need` elements of `size` bytes that keeps the first `*room`; NULL: no memory, nothing changed. */
void *lp__lines_grown(void *list, uint32_t *room, uint32_t need, size_t size);

/* lines.c: description of a code object into the segment, once. */
void lp__lines_describe(lp_lines *lines, lp_line_code *code);

/* line_threads.c */
void lp__lines_pause(lp_lines *lines); /* and takes the lock */
void lp__lines_go_on(lp_lines *lines);
lp_line_thread *lp__lines_attached(lp_lines *lines); /* also while off; NULL: no memory */
bool lp__lines_is_ours(const lp_lines *lines, const lp_line_thread *th);
void lp__lines_thread_free(lp_line_thread *th);

/* line_stack.c */
bool lp__lines_stack_make(lp_line_thread *th);
void lp__lines_settle(lp_line_thread *th, lp_line_frame *from, uint64_t v);
void lp__lines_close_all(lp_line_thread *th, uint64_t v);
void lp__lines_drop_code(lp_line_thread *th, const lp_line_code *code, uint64_t v);
bool lp__lines_shards_make(lp_lines *lines);
void lp__lines_shards_free(lp_lines *lines);
void lp__lines_shards_in_child(lp_lines *lines);

/* line_regions.c */
bool lp__lines_nodes_make(lp_line_thread *th);
void lp__lines_regions_clear(lp_line_thread *th, uint64_t v);
void lp__lines_regions_end(lp_line_thread *th, uint64_t v);
void lp__lines_regions_settle(lp_line_thread *th, uint64_t v);

#endif
