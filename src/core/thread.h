/* Between record.c and thread.c: memory of a thread's arena and its table of waiting stacks. */
#ifndef LP_CORE_THREAD_H
#define LP_CORE_THREAD_H

#include "core/record.h"

lp_seg_node *lp__node_make(lp_thread *th, lp_seg_node *parent, uint32_t name, uint32_t path);
lp_seg_counter *lp__counter_make(lp_thread *th, lp_seg_node *node, uint32_t name);
lp_off *lp__negative_make(lp_thread *th, lp_seg_counter *counter); /* LP_HIST_OCTAVES offsets for amounts < 0 */
lp_stack *lp__stack_find(const lp_thread *th, const void *context);
/* `entry` ends at `now`, and its context may be a suspended one: what the thread has used since then, others used. */
void lp__stack_leave(lp_thread *th, lp_entry *entry, uint64_t now);
void lp__stack_drop(lp_thread *th, lp_stack *stack);
/* At a thread's end: whoever leaves one of its open entries is another thread, also where it has this arena by then. */
void lp__orphan(lp_thread *th);

#endif
