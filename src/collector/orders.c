#include "collector/orders.h"

#include <stdio.h>
#include <unistd.h>

#include "core/clock.h"
#include "sample/process.h"

#define LIVING_ROOM (LP__ORDERS / 4) /* of a batch: deaths without end must not keep the living waiting */
#define BUSY_NS 20000000u            /* until we look again at what another process is adopting */
#define RETRY_NS 100000000u          /* after the first failure; doubles */
#define RETRY_MAX_NS 30000000000u

static void failed(lp__watched *w)
{
    uint64_t pause = RETRY_NS;

    for (uint32_t i = 0; i < w->failures && pause < RETRY_MAX_NS; i++)
        pause *= 2;
    w->failures++;
    w->failed++;
    w->retry_ns = lp__now_ns() + (pause < RETRY_MAX_NS ? pause : RETRY_MAX_NS);
}

static lp__order *give_order(lp__batch *batch, lp__watched *w)
{
    lp__order *o = &batch->orders[batch->count++];

    *o = (lp__order){.who = w,
                     .fd = w->fd,
                     .dev = w->dev,
                     .ino = w->ino,
                     .content = w->content,
                     .living = w->living,
                     .failed = w->failed};
    snprintf(o->name, sizeof o->name, "%s", w->name);
    w->busy = true;
    return o;
}

void lp__order_dead(lp__watch *watch, lp__batch *batch, bool look)
{
    uint64_t now = lp__now_ns();

    for (lp__watched *w = watch->list; w && batch->count < LP__ORDERS - LIVING_ROOM; w = w->next)
        if (w->fd >= 0 && !w->busy && now >= w->retry_ns && (look || w->dead || w->gone) && lp__watch_is_dead(w)) {
            /* Found by its free lock before its pidfd was heard: how it ended must be in the segment before it is written. */
            if (w->pidfd >= 0 && lp__watch_has_ended(w))
                lp__watch_died(watch, w);
            give_order(batch, w)->dead = true;
        }
}

/* In step with the beginning, without making up for what was missed. */
static void put_off(lp__watched *w, uint64_t now)
{
    if (!w->snapshot_ns)
        return;
    w->due_ns = lp__watch_due(w->due_ns, w->snapshot_ns);
    if (w->due_ns <= now)
        w->due_ns = lp__watch_due(now, w->snapshot_ns);
}

/* What the process has used, if that tells whether it has done anything: a kernel without a cycle counter may count CPU time by
 * ticks of some ms. */
static int64_t used_by(const lp__watched *w)
{
    return w->pidfd >= 0 && lp__clock_kind != LP_CLOCK_MONOTONIC ? lp_process_cpu_ns(w->pid) : LP_UNKNOWN_I64;
}

bool lp__order_living(lp__watch *watch, lp__batch *batch, bool all)
{
    uint64_t now = lp__now_ns();

    for (lp__watched *w = watch->list; w; w = w->next) {
        if (w->fd < 0 || w->busy || w->dead || (!all && (now < w->due_ns || now < w->retry_ns)) ||
            (all && w->asked == watch->asked))
            continue;
        int64_t used = used_by(w); /* before its segment is read: what it does meanwhile is seen the next time */
        if (!all && used != LP_UNKNOWN_I64 && used == w->cpu_ns) {
            put_off(w, now);
            continue;
        }
        if (batch->count == LP__ORDERS)
            return false;
        lp__order *o = give_order(batch, w);
        o->anyway = all;
        o->cpu_ns = used;
        if (all)
            w->asked = watch->asked;
        put_off(w, now);
    }
    return true;
}

/* A damaged one stays where it is, and is looked at no more. */
static void give_up(lp__watch *watch, lp__watched *w)
{
    lp__watch_forget_process(watch, w);
    close(w->fd);
    w->fd = -1;
    watch->count--;
}

static void settle_living(lp__watched *w, const lp__order *o)
{
    if (o->outcome == LP__WRITTEN) {
        w->content = o->content;
        w->living = o->living;
        w->cpu_ns = o->cpu_ns;
        w->failures = 0;
        w->failed = 0;
    } else if (o->outcome == LP__UNCHANGED && o->same) {
        w->cpu_ns = o->cpu_ns;
    } else if (o->outcome == LP__REFUSED) {
        failed(w);
    }
}

static void settle_dead(lp__watch *watch, lp__watched *w, const lp__order *o)
{
    w->living = o->living;
    switch (o->outcome) {
    case LP__WRITTEN:
    case LP__OVER: lp__watch_drop(watch, w); break;
    case LP__BROKEN: give_up(watch, w); break;
    case LP__LATER: w->retry_ns = lp__now_ns() + BUSY_NS; break;
    case LP__REFUSED: failed(w); break;
    case LP__UNCHANGED: break; /* of the living alone */
    }
}

bool lp__settle_orders(lp__watch *watch, const lp__batch *batch)
{
    bool dead = false;

    for (unsigned i = 0; i < batch->count; i++) {
        lp__watched *w = batch->orders[i].who;
        w->busy = false;
        dead |= batch->orders[i].dead;
        if (batch->orders[i].dead)
            settle_dead(watch, w, &batch->orders[i]);
        else
            settle_living(w, &batch->orders[i]);
    }
    return dead;
}
