/* Figures of lines that are read from the segment of a process that runs, at moments that the test chooses. */
#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#include "core/lines.h"
#include "store/lines_read.h"

#include "check.h"
#include "test_folder.h"

static char folder[64];
static const char key;

static bool open_segment(void *user, lp_lines *lines)
{
    lp_error error = {0};
    int dirfd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    bool made = lp_segment_create(&lines->segment, dirfd, folder, "one.lines", &error) == LP_OK;

    (void)user;
    close(dirfd);
    return made;
}

static void add_code(lp_lines *lines, const void *address)
{
    static const uint16_t entries[] = {0 << LP_LINE_SLOT, 1 << LP_LINE_SLOT};
    static const int32_t numbers[] = {10, 11};
    const lp_line_code code = {.key = address,
                               .bytes = sizeof entries,
                               .narrow = entries,
                               .lines = numbers,
                               .slots = 2,
                               .first_line = 10,
                               .file = "f",
                               .name = "n",
                               .file_size = 1,
                               .name_size = 1};

    REQUIRE(lp_lines_code_add(lines, &code) != NULL);
}

static lp_line_figures *read_now(void)
{
    lp_line_figures *figures = NULL;
    lp_error error = {0};
    int fd = open(text("%s/one.lines", folder), O_RDONLY | O_CLOEXEC);

    if (lp_line_figures_read(fd, "one.lines", &figures, &error) != LP_OK)
        abort();
    close(fd);
    return figures;
}

/* The copy that is read is of several moments: a callee may have begun in it after the clock was looked at. What is around it is open
 * all the same. */
static void a_callee_that_has_just_begun(void)
{
    const struct timespec pause = {.tv_nsec = 2000000};
    const uint64_t ahead = (uint64_t)1 << 40; /* minutes, whatever a tick is */
    lp_lines *lines = lp_lines_new(&(lp_line_hooks){.open = open_segment}, false);
    static const char inner;

    make_folder(folder);
    add_code(lines, &key);
    add_code(lines, &inner);
    lp_lines_set_on(lines, true);
    lp_line_thread *th = lp_lines_enter(lines, false);
    REQUIRE(th != NULL);
    uint64_t begin = lp_clock_ns(CLOCK_MONOTONIC), now = lp_ticks();
    lp_lines_call(th, lp_lines_code(lines, &key), (const void *)0x1000, NULL, now);
    CHECK(lp_lines_line(th, (const void *)0x1000, &key, 0, now));
    lp_lines_call(th, lp_lines_code(lines, &inner), (const void *)0x2000, NULL, now + ahead);
    CHECK(lp_lines_line(th, (const void *)0x2000, &inner, 0, now + ahead));
    nanosleep(&pause, NULL);
    lp_line_figures *figures = read_now();
    uint64_t wall = lp_clock_ns(CLOCK_MONOTONIC) - begin;

    CHECK(figures->living);
    CHECK_EQ(figures->open_count, 2u);
    CHECK_EQ(figures->open[1].since_ns, 0u);
    uint64_t outer_ns = 0, inner_ns = 0;
    for (uint32_t i = 0; i < figures->call_count; i++)
        *(figures->calls[i].code == 0 ? &outer_ns : &inner_ns) += figures->calls[i].time_ns;
    CHECK(outer_ns >= (uint64_t)pause.tv_nsec - 2000 &&
          outer_ns <= wall + wall / 100); /* the rate of the clock is a guess yet */
    CHECK_EQ(inner_ns, 0u);
    CHECK_EQ(figures->row_count, 2u);
    for (uint32_t i = 0; i < figures->row_count; i++)
        CHECK_EQ(figures->rows[i].self_ns, figures->rows[i].code == 0 ? outer_ns : 0u);
    lp_line_figures_free(figures);
    lp_lines_free(lines);
    remove_folder(folder);
}

int main(void)
{
    lp_clock_init(-1);
    RUN(a_callee_that_has_just_begun);
    return check_done();
}
