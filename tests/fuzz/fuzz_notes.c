/* The small files in the folder of segments: what git said (.source), a collector's signature, how the clocks went (.clock-…). */
#include <fcntl.h>
#include <sched.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "parts.h"
#include "store/arena.h"
#include "store/election.h"
#include "store/source_facts.h"
#include "store/track.h"

#define LONG "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define LOCK ".collector-fuzz.lock"

static int folder_fd(void)
{
    static int fd = -1;
    if (fd < 0)
        fd = open(fuzz_folder(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    FUZZ_MUST(fd >= 0);
    return fd;
}

static void put(const char *name, const uint8_t *data, size_t size)
{
    int fd = openat(folder_fd(), name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    FUZZ_MUST(fd >= 0 && write(fd, data, size) == (ssize_t)size);
    close(fd);
}

static void must_be_hash(const char *text)
{
    size_t size = strspn(text, "0123456789abcdef");
    FUZZ_MUST(size <= 64 && text[size] == '\0');
}

static void facts(const uint8_t *data, size_t size)
{
    lp_source_facts got = {.dirty = -7}, again;
    lp_identity id;

    put(LP_SOURCE_FACTS, data, size);
    lp_status status = lp_source_facts_read(folder_fd(), &got);
    if (status != LP_OK) {
        FUZZ_MUST(got.dirty == -7); /* set on success only */
        return;
    }
    must_be_hash(got.commit);
    must_be_hash(got.diff);
    FUZZ_MUST(got.dirty >= 0);
    FUZZ_MUST(lp_source_facts_write(folder_fd(), &got) == LP_OK);
    FUZZ_MUST(lp_source_facts_read(folder_fd(), &again) == LP_OK);
    FUZZ_MUST(strcmp(got.commit, again.commit) == 0 && strcmp(got.diff, again.diff) == 0 && got.dirty == again.dirty);
    lp_arena *arena = lp_arena_new();
    FUZZ_MUST(arena != NULL);
    lp_identity_init(&id);
    id.source_commit = (lp_str){got.commit, strlen(got.commit)};
    lp_source_facts_apply(&got, arena, &id);
    FUZZ_MUST(id.source_dirty == (got.commit[0] ? got.dirty : LP_UNKNOWN_I64));
    lp_arena_free(arena);
}

/* Who walks through /proc/PID/fd at the moment of a close() keeps the file, and with it its lock, an instant longer. */
static bool free_soon(int fd)
{
    for (int i = 0; i < 10000; i++, sched_yield())
        if (flock(fd, LOCK_EX | LOCK_NB) == 0)
            return true;
    return false;
}

/* Whatever a lock file says, the lock itself decides who may collect. */
static void election(const uint8_t *data, size_t size)
{
    put(LOCK, data, size);
    (void)lp_election_is_held(folder_fd(), LOCK);
    int fd = lp_election_take(folder_fd(), LOCK);
    FUZZ_MUST(fd >= 0 && lp_election_is_ours(folder_fd(), LOCK, fd));
    FUZZ_MUST(lp_election_sign(fd) && lp_election_is_held(folder_fd(), LOCK));
    close(fd);
    /* held by another descriptor: taken only from the dead */
    int other = openat(folder_fd(), LOCK, O_RDWR | O_CLOEXEC);
    FUZZ_MUST(other >= 0 && free_soon(other));
    FUZZ_MUST(ftruncate(other, 0) == 0 && pwrite(other, data, size, 0) == (ssize_t)size);
    fd = lp_election_take(folder_fd(), LOCK);
    if (fd >= 0)
        close(fd);
    close(other);
    unlinkat(folder_fd(), LOCK, 0);
}

static void track(const uint8_t *data, size_t size)
{
    lp_track got = {.count = 77};

    put(LP_TRACK_FILE "0", data, size);
    if (lp_track_read(folder_fd(), 0, &got) != LP_OK)
        return;
    FUZZ_MUST(got.count <= LP_TRACK_MOMENTS && got.step_count <= LP_TRACK_STEPS);
    (void)lp_track_real_ns(&got, 1000, 1ull << 32, 5);
    lp_worker *worker = lp_worker_new();
    FUZZ_MUST(worker != NULL);
    lp_track_apply(&got, 0, 0, worker);
    lp_worker_free(worker);
    lp_moment now = {UINT64_MAX, UINT64_MAX, 7};
    (void)lp_track_add(&got, &now, UINT64_MAX);
    FUZZ_MUST(got.count <= LP_TRACK_MOMENTS && got.step_count <= LP_TRACK_STEPS);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    facts(data, size);
    track(data, size);
    election(data, size);
    return 0;
}

static size_t track_seed(uint8_t *out)
{
    lp_track made = {0};
    lp_moment now = {1000, 1000, 1700000000000000000u};

    for (unsigned i = 0; i < 100; i++) {
        now.ticks += 1000000000u;
        now.mono_ns += 1000000000u;
        now.real_ns += i == 50 ? 5000000000u : 1000000000u;                  /* the clock is set */
        lp_track_add(&made, &now, now.mono_ns + (i > 70 ? 9000000000u : 0)); /* and the machine slept */
    }
    FUZZ_MUST(lp_track_write(folder_fd(), 0, &made) == LP_OK);
    int fd = openat(folder_fd(), LP_TRACK_FILE "0", O_RDONLY | O_CLOEXEC);
    ssize_t size = fd >= 0 ? read(fd, out, FUZZ_ROOM) : -1;
    FUZZ_MUST(size > 0);
    close(fd);
    return (size_t)size;
}

/* A .clock whose only moment lies half the range of 64 bits from every other one: once its step overflowed. */
static size_t far_seed(uint8_t *out)
{
    static const uint8_t bytes[] = {0x0a, 0x15, 0x08, 0xe8, 0x9b, 0xeb, 0x9c, 0x03, 0x10, 0xe8, 0x9b,
                                    0xeb, 0xdc, 0x03, 0x19, 0x12, 0x00, 0x12, 0x00, 0x00, 0x00, 0x00,
                                    0x80, 0x12, 0x00, 0x12, 0x00, 0x40, 0x00, 0x12, 0x00};
    memcpy(out, bytes, sizeof bytes);
    return sizeof bytes;
}

size_t fuzz_seed(unsigned index, uint8_t *out)
{
    static const char *const seeds[] = {
        "lineprofiler source\n0123456789abcdef0123456789abcdef01234567\n3\n97d29e\n",
        "lineprofiler source\n\n0\n\n",
        "lineprofiler source\n" LONG "\n9223372036854775807\n" LONG "\n",
        "lineprofiler collector 1 1\n",
        "lineprofiler collector -1 -1\n",
        "lineprofiler collector 99999999999999999999 18446744073709551616\n",
    };
    if (index == sizeof seeds / sizeof *seeds)
        return track_seed(out);
    if (index == sizeof seeds / sizeof *seeds + 1)
        return far_seed(out);
    if (index > sizeof seeds / sizeof *seeds)
        return 0;
    memcpy(out, seeds[index], strlen(seeds[index]));
    return strlen(seeds[index]);
}

size_t fuzz_repair(uint8_t *data, size_t size, size_t room)
{
    (void)data, (void)room;
    return size;
}
