#include "store/track.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "store/arena.h"
#include "store/files.h"
#include "store/wire.h"

__extension__ typedef unsigned __int128 u128;

/* Slewing (adjtime, NTP) moves both clocks alike; what is left is the distance between two reads of them, and what kernels are said to
 * let them drift, 500 ppm at the very most. A smaller step than this nobody would see in a report. */
#define STEP_NS 2000000
#define DRIFT 1000 /* one part in so many of the time between two looks */

static void remove_at(lp_track *track, uint32_t i)
{
    memmove(&track->at[i], &track->at[i + 1], (track->count - i - 1) * sizeof *track->at);
    uint32_t low = track->edge & ((1u << i) - 1);
    track->edge = low | ((track->edge >> 1) & ~((1u << i) - 1));
    track->count--;
}

/* Every second one goes, but the first and those beside a step. */
static void thin(lp_track *track)
{
    uint32_t i = 1;

    for (bool drop = true; i < track->count;) {
        if (drop && !(track->edge & (1u << i))) {
            remove_at(track, i);
            drop = false;
        } else {
            i++;
            drop = true;
        }
    }
    track->every *= 2;
}

static void keep(lp_track *track, const lp_moment *moment, bool edge)
{
    if (track->count > 0 && track->at[track->count - 1].mono_ns == moment->mono_ns) {
        track->edge |= edge ? 1u << (track->count - 1) : 0;
        return;
    }
    if (track->count == LP_TRACK_MOMENTS)
        thin(track);
    track->edge |= edge ? 1u << track->count : 0;
    track->at[track->count++] = *moment;
    track->skipped = 0;
}

static bool find_step(lp_track *track, const lp_moment *now, uint64_t boottime_ns)
{
    int64_t mono = (int64_t)(now->mono_ns - track->last.mono_ns), real = (int64_t)(now->real_ns - track->last.real_ns),
            boot = (int64_t)(boottime_ns - track->boot_ns), least = STEP_NS + mono / DRIFT;
    /* Differences wrap as unsigned ones do: a damaged .clock may hold any moments. */
    int64_t by = (int64_t)((uint64_t)real - (uint64_t)mono), slept = (int64_t)((uint64_t)boot - (uint64_t)mono);

    if (by < least && by > -least)
        return false;
    if (track->step_count == LP_TRACK_STEPS) {
        track->more_steps++;
        return true;
    }
    keep(track, &track->last, true);
    track->steps[track->step_count++] =
        (lp_clock_step){.mono_ns = now->mono_ns, .real_ns = now->real_ns, .by_ns = by, .slept = slept >= least};
    keep(track, now, true);
    return true;
}

bool lp_track_add(lp_track *track, const lp_moment *now, uint64_t boottime_ns)
{
    bool changed = false;

    if (track->count == 0) {
        track->every = 1;
        keep(track, now, false);
        changed = true;
    } else if (now->mono_ns > track->last.mono_ns) {
        changed = find_step(track, now, boottime_ns);
        if (++track->skipped >= track->every) {
            keep(track, now, false);
            changed = true;
        }
    }
    track->last = *now;
    track->boot_ns = boottime_ns;
    return changed;
}

static bool step_between(const lp_track *track, uint64_t from_ns, uint64_t to_ns)
{
    for (uint32_t i = 0; i < track->step_count; i++)
        if (track->steps[i].mono_ns > from_ns && track->steps[i].mono_ns <= to_ns)
            return true;
    return false;
}

static uint64_t scale(uint64_t part, uint64_t whole, uint64_t of)
{
    return whole ? (uint64_t)((u128)part * of / whole) : 0;
}

uint64_t lp_track_real_ns(const lp_track *track, uint64_t ticks, uint64_t mult, uint64_t fallback)
{
    uint32_t i = 0;

    if (track->count == 0 || ticks < track->at[0].ticks)
        return fallback;
    while (i + 1 < track->count && track->at[i + 1].ticks <= ticks)
        i++;
    const lp_moment *a = &track->at[i], *b = i + 1 < track->count ? a + 1 : &track->last;
    uint64_t after = ticks - a->ticks;
    if (b->ticks > ticks && b->real_ns > a->real_ns && !step_between(track, a->mono_ns, b->mono_ns))
        return a->real_ns + scale(after, b->ticks - a->ticks, b->real_ns - a->real_ns);
    if (b->ticks > a->ticks && b->ticks <= ticks && i + 1 == track->count) /* beyond the latest look */
        return b->real_ns + (uint64_t)((u128)(ticks - b->ticks) * mult >> 32);
    return a->real_ns + (uint64_t)((u128)after * mult >> 32);
}

void lp_track_apply(const lp_track *track, uint32_t clock_kind, uint64_t since_ns, lp_worker *worker)
{
    lp_track *copy = track->count ? lp_arena_take(worker->arena, sizeof *copy) : NULL;

    if (!copy)
        return;
    *copy = *track;
    /* the last look before it began stays: the moments of its first second lie between the two */
    while (copy->count > 1 && copy->at[1].mono_ns <= since_ns)
        remove_at(copy, 0);
    uint32_t kept = 0;
    for (uint32_t i = 0; i < copy->step_count; i++)
        if (copy->steps[i].mono_ns > since_ns)
            copy->steps[kept++] = copy->steps[i];
    copy->step_count = kept;
    if (copy->count == LP_TRACK_MOMENTS && copy->last.mono_ns > copy->at[copy->count - 1].mono_ns)
        copy->count--; /* the end of the track says more than the look before it */
    keep(copy, &copy->last, false);
    for (uint32_t i = 0; i < copy->count && clock_kind == LP_CLOCK_MONOTONIC; i++)
        copy->at[i].ticks = copy->at[i].mono_ns;
    copy->last = copy->at[copy->count - 1];
    worker->track = copy;
}

/* ---- on the wire */

void lp__put_track(lp_buffer *out, uint32_t moments, uint32_t steps, const lp_track *track)
{
    for (uint32_t i = 0; i < track->count; i++) {
        size_t message = lp__put_open(out, moments);
        lp__put_uint(out, 1, track->at[i].ticks);
        lp__put_uint(out, 2, track->at[i].mono_ns);
        lp__put_fixed64(out, 3, track->at[i].real_ns);
        lp__put_close(out, message);
    }
    for (uint32_t i = 0; i < track->step_count; i++) {
        size_t message = lp__put_open(out, steps);
        lp__put_uint(out, 1, track->steps[i].mono_ns);
        lp__put_fixed64(out, 2, track->steps[i].real_ns);
        lp__put_sint(out, 3, track->steps[i].by_ns);
        lp__put_uint(out, 4, track->steps[i].slept);
        lp__put_close(out, message);
    }
}

bool lp__get_moment(lp__wire *wire, const lp__field *field, lp_track *track)
{
    lp__wire in = lp__wire_in(wire, field);
    lp_moment moment = {0};
    lp__field f;

    while (lp__wire_next(&in, &f)) {
        switch (f.number) {
        case 1: lp__get_uint(&in, &f, &moment.ticks); break;
        case 2: lp__get_uint(&in, &f, &moment.mono_ns); break;
        case 3: lp__get_fixed64(&in, &f, &moment.real_ns); break;
        default: break;
        }
    }
    if (track->count < LP_TRACK_MOMENTS &&
        (track->count == 0 || moment.mono_ns > track->at[track->count - 1].mono_ns)) {
        track->at[track->count++] = moment;
        track->last = moment;
    }
    return lp__wire_done(wire, &in);
}

bool lp__get_step(lp__wire *wire, const lp__field *field, lp_track *track)
{
    lp__wire in = lp__wire_in(wire, field);
    lp_clock_step step = {0};
    lp__field f;

    while (lp__wire_next(&in, &f)) {
        switch (f.number) {
        case 1: lp__get_uint(&in, &f, &step.mono_ns); break;
        case 2: lp__get_fixed64(&in, &f, &step.real_ns); break;
        case 3: lp__get_sint(&in, &f, &step.by_ns); break;
        case 4: lp__get_uint(&in, &f, &step.slept); break;
        default: break;
        }
    }
    if (track->step_count < LP_TRACK_STEPS)
        track->steps[track->step_count++] = step;
    return lp__wire_done(wire, &in);
}

/* ---- the file */

#define NAME_ROOM 32

static void file_name(char out[NAME_ROOM], uint64_t time_ns)
{
    snprintf(out, NAME_ROOM, LP_TRACK_FILE "%" PRIx64, time_ns);
}

static lp_status write_bytes(int dirfd, uint64_t time_ns, const lp_buffer *bytes)
{
    char name[NAME_ROOM], temporary[NAME_ROOM + 32];
    lp_status status = LP_OK;

    file_name(name, time_ns);
    snprintf(temporary, sizeof temporary, "%s.%ld", name, (long)syscall(SYS_gettid));
    int fd = openat(dirfd, temporary, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return lp__status_of(errno);
    bool ok = lp__write_all(fd, bytes->data, bytes->size);
    ok = close(fd) == 0 && ok && renameat(dirfd, temporary, dirfd, name) == 0;
    if (!ok) {
        status = lp__status_of(errno);
        unlinkat(dirfd, temporary, 0);
    }
    return status;
}

lp_status lp_track_write(int dirfd, uint64_t time_ns, const lp_track *track)
{
    int saved = errno;
    lp_buffer bytes = {0};
    lp_track whole = *track;

    keep(&whole, &track->last, false);
    lp__put_track(&bytes, 1, 2, &whole);
    lp__put_uint(&bytes, 3, track->boot_ns);
    lp_status status = bytes.failed ? LP_E_MEMORY : write_bytes(dirfd, time_ns, &bytes);
    lp_buffer_free(&bytes);
    errno = saved;
    return status;
}

lp_status lp_track_read(int dirfd, uint64_t time_ns, lp_track *track)
{
    char name[NAME_ROOM], bytes[4096];
    int saved = errno;
    lp__field f;

    file_name(name, time_ns);
    long size = lp__read_text(dirfd, name, bytes, sizeof bytes - 1);

    *track = (lp_track){0};
    errno = saved;
    if (size < 0)
        return LP_E_MISSING;
    lp__wire wire = lp__wire_of(bytes, (size_t)size);
    while (lp__wire_next(&wire, &f)) {
        if (f.number == 1)
            lp__get_moment(&wire, &f, track);
        else if (f.number == 2)
            lp__get_step(&wire, &f, track);
        else if (f.number == 3)
            lp__get_uint(&wire, &f, &track->boot_ns);
    }
    track->every = 1;
    if (wire.problem)
        *track = (lp_track){0};
    return wire.problem ? LP_E_DAMAGED : LP_OK;
}
