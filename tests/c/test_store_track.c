/* How a host's clocks went, from synthetic looks: 12 hours stay in 32 moments, ticks become times of day within what the looks allow,
 * a clock that was set and a night's sleep are seen and told apart; the file and the snapshot carry all of it. */
#include "check.h"
#include "store/arena.h"
#include "store/snapshot.h"
#include "store/track.h"
#include "test_folder.h"

#define S 1000000000ull
#define REAL (1750000000 * S)

/* A machine whose TSC runs at 2.5 GHz and 20 ppm beside what its first calibration says, and whose time of day is slewed by 100 ppm. */
static lp_moment look(uint64_t mono, int64_t set_ns)
{
    return (lp_moment){
        .ticks = 7000 + mono / 2 * 5, .mono_ns = mono, .real_ns = REAL + mono + mono / 10000 + (uint64_t)set_ns};
}

#define ROUGH_MULT ((uint64_t)(0x1p32 / 2.5 * 1.00002))

static void twelve_hours_stay_small(void)
{
    lp_track track = {0};
    unsigned changes = 0;
    const uint64_t hours = 12 * 3600;

    for (uint64_t s = 0; s <= hours; s++) {
        lp_moment m = look((1000 + s) * S, 0);
        changes += lp_track_add(&track, &m, m.mono_ns);
        REQUIRE(track.count <= LP_TRACK_MOMENTS);
    }
    CHECK_EQ(track.step_count, 0u); /* slewing is no step */
    CHECK_EQ(track.at[0].mono_ns, 1000 * S);
    CHECK(track.count > LP_TRACK_MOMENTS / 4);
    CHECK(changes < 400); /* each is a file written: 12 h are 43,200 looks */
    for (uint32_t i = 1; i < track.count; i++)
        CHECK(track.at[i].mono_ns > track.at[i - 1].mono_ns);
    for (uint64_t s = 1; s < hours; s += 997) {
        lp_moment m = look((1000 + s) * S + 123456, 0);
        uint64_t real = lp_track_real_ns(&track, m.ticks, ROUGH_MULT, 0);
        /* between two looks the way is straight, so the integer rounding of a line is all that is left; the first calibration alone
         * would err by 20 ppm of 12 h, 0.86 s, and the slewing by 4.3 s */
        CHECK_NEAR((double)(int64_t)(real - m.real_ns), 0.0, 10.0);
    }
    lp_moment after = look((1000 + hours + 1) * S, 0); /* beyond the last look: by the rough clock, for a second */
    CHECK_NEAR((double)(int64_t)(lp_track_real_ns(&track, after.ticks, ROUGH_MULT, 0) - after.real_ns), 0.0, 2e5);
    CHECK_EQ(lp_track_real_ns(&track, 7000, ROUGH_MULT, 42), 42u); /* before it began */
}

static void a_clock_that_was_set_is_seen(void)
{
    lp_track track = {0};
    int64_t set = 0;

    for (uint64_t s = 0; s <= 4000; s++) {
        if (s == 1801)
            set = -3600 * (int64_t)S; /* an hour back */
        lp_moment m = look(s * S + S, set);
        lp_track_add(&track, &m, m.mono_ns);
    }
    REQUIRE(track.step_count == 1);
    CHECK_EQ(track.steps[0].mono_ns, 1802 * S);
    CHECK_EQ(track.steps[0].slept, 0u);
    CHECK_NEAR((double)track.steps[0].by_ns, -3600e9, 1e6); /* a second's slewing, 0.1 ms */
    lp_moment before = look(1800 * S, 0), later = look(1900 * S, set);
    CHECK_NEAR((double)(int64_t)(lp_track_real_ns(&track, before.ticks, ROUGH_MULT, 0) - before.real_ns), 0.0, 10.0);
    CHECK_NEAR((double)(int64_t)(lp_track_real_ns(&track, later.ticks, ROUGH_MULT, 0) - later.real_ns), 0.0, 10.0);
    /* in the second of the step it may have been before or after: by the monotonic clock from the look before, not half an hour off */
    lp_moment inside = look(1801 * S + S / 2, 0);
    CHECK_NEAR((double)(int64_t)(lp_track_real_ns(&track, inside.ticks, ROUGH_MULT, 0) - inside.real_ns), 0.0, 1e5);
}

static void sleep_is_no_setting(void)
{
    lp_track track = {0};
    for (uint64_t s = 0; s < 100; s++) {
        uint64_t slept = s >= 50 ? 8 * 3600 * S : 0; /* the monotonic clock stands meanwhile, CLOCK_BOOTTIME does not */
        lp_moment m = look(s * S + S, (int64_t)slept);
        lp_track_add(&track, &m, m.mono_ns + slept);
    }
    REQUIRE(track.step_count == 1);
    CHECK_EQ(track.steps[0].slept, 1u);
    CHECK_NEAR((double)track.steps[0].by_ns, 8 * 3600e9, 1e6);
}

static void steps_are_bounded(void)
{
    lp_track track = {0};
    for (uint64_t s = 0; s < 1000; s++) {
        lp_moment m = look(s * S + S, (int64_t)(s / 10 * S)); /* somebody sets it every ten seconds */
        lp_track_add(&track, &m, m.mono_ns);
        REQUIRE(track.count <= LP_TRACK_MOMENTS);
    }
    CHECK_EQ(track.step_count, LP_TRACK_STEPS);
    CHECK_EQ(track.more_steps, 99 - LP_TRACK_STEPS);
}

static void a_worker_gets_its_part(void)
{
    lp_track track = {0};
    for (uint64_t s = 0; s < 600; s++) {
        lp_moment m = look(s * S + S, s >= 100 ? 5 * (int64_t)S : 0);
        if (s >= 400)
            m.real_ns -= 2 * S;
        lp_track_add(&track, &m, m.mono_ns);
    }
    CHECK_EQ(track.step_count, 2u);
    lp_worker *worker = lp_worker_new();
    REQUIRE(worker);
    lp_track_apply(&track, LP_CLOCK_TSC, 300 * S, worker);
    REQUIRE(worker->track);
    CHECK_EQ(worker->track->step_count, 1u);
    CHECK_EQ(worker->track->steps[0].mono_ns, 401 * S);
    CHECK(worker->track->at[0].mono_ns <= 300 * S);
    CHECK(worker->track->at[1].mono_ns > 300 * S);
    CHECK_EQ(worker->track->at[worker->track->count - 1].mono_ns, 600 * S); /* the latest look, kept or not */
    CHECK_EQ(worker->track->at[0].ticks, look(worker->track->at[0].mono_ns, 0).ticks);

    /* the snapshot has it */
    lp_buffer bytes = {0};
    lp_worker *back = NULL;
    CHECK_EQ(lp_snapshot_encode(worker, &bytes), LP_OK);
    REQUIRE(lp_snapshot_decode(bytes.data, bytes.size, "bytes", &back, NULL) == LP_OK);
    REQUIRE(back->track);
    CHECK_EQ(back->track->count, worker->track->count);
    CHECK_MEM(back->track->at, worker->track->at, worker->track->count * sizeof(lp_moment));
    CHECK_EQ(back->track->step_count, 1u);
    CHECK_MEM(back->track->steps, worker->track->steps, sizeof(lp_clock_step));
    lp_worker_free(back);
    lp_buffer_free(&bytes);

    lp_track_apply(&track, LP_CLOCK_MONOTONIC, 0, worker); /* a worker whose ticks are ns */
    CHECK_EQ(worker->track->at[3].ticks, worker->track->at[3].mono_ns);
    lp_worker_free(worker);
}

static void the_file_goes_round(void)
{
    char folder[64];
    lp_track track = {0}, back;
    make_folder(folder);
    int dir = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    CHECK_EQ(lp_track_read(dir, 0xabc, &back), LP_E_MISSING);
    for (uint64_t s = 0; s < 100; s++) {
        lp_moment m = look(s * S + S, s >= 50 ? -(int64_t)S : 0);
        lp_track_add(&track, &m, m.mono_ns + 7);
    }
    CHECK_EQ(lp_track_write(dir, 0xabc, &track), LP_OK);
    CHECK_EQ(lp_track_read(dir, 0xabd, &back), LP_E_MISSING); /* on other clocks */
    CHECK_EQ(lp_track_read(dir, 0xabc, &back), LP_OK);
    CHECK_EQ(back.last.mono_ns, track.last.mono_ns);
    CHECK_EQ(back.boot_ns, track.boot_ns);
    CHECK_EQ(back.step_count, 1u);
    CHECK_EQ(back.steps[0].by_ns, track.steps[0].by_ns);
    lp_moment next = look(200 * S, -(int64_t)S); /* the next collector goes on where this one ended */
    CHECK(lp_track_add(&back, &next, next.mono_ns + 7));
    CHECK_EQ(back.step_count, 1u);
    put_text(text("%s/%s", folder, LP_TRACK_FILE "abc"), "\x0a\xff rubbish");
    CHECK_EQ(lp_track_read(dir, 0xabc, &back), LP_E_DAMAGED);
    CHECK_EQ(back.count, 0u);
    close(dir);
    remove_folder(folder);
}

int main(void)
{
    RUN(twelve_hours_stay_small);
    RUN(a_clock_that_was_set_is_seen);
    RUN(sleep_is_no_setting);
    RUN(steps_are_bounded);
    RUN(a_worker_gets_its_part);
    RUN(the_file_goes_round);
    return check_done();
}
