#include "sample/cgroup.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PATH_ROOM 2048u
#define MOUNTS_MAX (1u << 20) /* bytes of mountinfo: a host of many containers has thousands of lines */
#define NO_LIMIT_V1 (INT64_C(1) << 60)

/* ---- where they are */

static char *read_long(int root, const char *path) /* owned; NULL */
{
    int fd = openat(root, path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    char *text = fd >= 0 ? malloc(MOUNTS_MAX) : NULL;
    size_t done = 0;

    while (text && done < MOUNTS_MAX - 1) {
        ssize_t n = read(fd, text + done, MOUNTS_MAX - 1 - done);
        if (n <= 0)
            break;
        done += (size_t)n;
    }
    if (fd >= 0)
        close(fd);
    if (text)
        text[done] = '\0';
    return text;
}

/* Is `word` among those of a list with commas? */
static bool has_word(const char *list, size_t size, const char *word)
{
    size_t length = strlen(word);

    for (const char *at = list, *end = list + size; at < end;) {
        const char *comma = memchr(at, ',', (size_t)(end - at));
        size_t here = (size_t)((comma ? comma : end) - at);
        if (here == length && memcmp(at, word, length) == 0)
            return true;
        at += here + 1;
    }
    return false;
}

/* The path in `controller`'s hierarchy ("" v2), of "4:cpu,cpuacct:/a/b" and "0::/a/b". false: not in one. */
static bool find_path(const char *cgroups, const char *controller, char path[PATH_ROOM])
{
    for (const char *line = cgroups; line && *line; line = strchr(line, '\n'), line = line ? line + 1 : NULL) {
        const char *list = strchr(line, ':'), *at = list ? strchr(list + 1, ':') : NULL, *end = strchr(line, '\n');
        if (!at || (end && at > end))
            continue;
        size_t listed = (size_t)(at - list - 1), size = end ? (size_t)(end - at - 1) : strlen(at + 1);
        if ((*controller ? !has_word(list + 1, listed, controller) : listed != 0) || size >= PATH_ROOM)
            continue;
        memcpy(path, at + 1, size);
        path[size] = '\0';
        return true;
    }
    return false;
}

/* mountinfo writes blanks, tabs, line ends and backslashes as \040 and so on. */
static void unescape(char *text)
{
    char *to = text;

    for (const char *from = text; *from; to++) {
        if (from[0] == '\\' && from[1] >= '0' && from[1] <= '3' && from[2] >= '0' && from[2] <= '7' && from[3] >= '0' &&
            from[3] <= '7') {
            *to = (char)((from[1] - '0') << 6 | (from[2] - '0') << 3 | (from[3] - '0'));
            from += 4;
        } else {
            *to = *from++;
        }
    }
    *to = '\0';
}

/* 36 35 98:0 ROOT POINT options … - TYPE SOURCE SUPER. Fills point and root of the mount that has the controller. */
static bool find_mount(const char *mounts, const char *controller, char point[PATH_ROOM], char top[PATH_ROOM])
{
    for (const char *line = mounts; line && *line; line = strchr(line, '\n'), line = line ? line + 1 : NULL) {
        char copy[PATH_ROOM * 2], *words[6] = {0}, *save = NULL;
        size_t size = strcspn(line, "\n");
        if (size >= sizeof copy)
            continue;
        memcpy(copy, line, size);
        copy[size] = '\0';
        char *rest = strstr(copy, " - ");
        if (!rest)
            continue;
        *rest = '\0';
        char *word = strtok_r(copy, " ", &save);
        for (unsigned i = 0; word && i < 6; i++, word = strtok_r(NULL, " ", &save))
            words[i] = word;
        char *type = strtok_r(rest + 3, " ", &save), *source = strtok_r(NULL, " ", &save),
             *super = source ? strtok_r(NULL, " ", &save) : NULL;
        if (!words[4] || !type || !super || strlen(words[3]) >= PATH_ROOM || strlen(words[4]) >= PATH_ROOM)
            continue;
        if (*controller ? strcmp(type, "cgroup") != 0 || !has_word(super, strlen(super), controller)
                        : strcmp(type, "cgroup2") != 0)
            continue;
        unescape(words[3]);
        unescape(words[4]);
        snprintf(top, PATH_ROOM, "%s", words[3]);
        snprintf(point, PATH_ROOM, "%s", words[4]);
        return true;
    }
    return false;
}

/* What `path` is below the root of the mount; "" where the mount shows no more of it than its own top (a container). */
static const char *below(const char *path, const char *top)
{
    size_t size = strlen(top);

    if (strcmp(top, "/") == 0)
        return strstr(path, "/..") ? "" : path;
    if (strncmp(path, top, size) == 0 && (path[size] == '/' || path[size] == '\0'))
        return path + size;
    return "";
}

static void open_levels(lp__cgroup_path *out, int root, const char *cgroups, const char *mounts, const char *controller)
{
    char path[PATH_ROOM], point[PATH_ROOM], top[PATH_ROOM], full[2 * PATH_ROOM];

    out->count = 0;
    if (!find_path(cgroups, controller, path) || !find_mount(mounts, controller, point, top))
        return;
    const char *start = point;
    while (*start == '/')
        start++;
    int size = snprintf(full, sizeof full, "%s%s", *start ? start : ".", below(path, top));
    size_t least = strlen(*start ? start : ".");
    for (size_t length = (size_t)size; length >= least && out->count < LP__CGROUP_LEVELS;) {
        while (length > least && full[length - 1] == '/')
            length--;
        full[length] = '\0';
        int fd = openat(root, full, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (fd >= 0)
            out->level[out->count++] = fd;
        if (length == least)
            break;
        while (length > least && full[length - 1] != '/')
            length--;
    }
    out->v2 = !*controller;
}

static bool level_has(const lp__cgroup_path *path, const char *file)
{
    return path->count > 0 && faccessat(path->level[0], file, F_OK, 0) == 0;
}

static void close_levels(lp__cgroup_path *path)
{
    for (unsigned i = 0; i < path->count; i++)
        close(path->level[i]);
    path->count = 0;
}

/* v1 where the controller has a hierarchy of its own, else v2. */
static void open_controller(lp__cgroup_path *out, int root, const char *cgroups, const char *mounts, const char *v1)
{
    open_levels(out, root, cgroups, mounts, v1);
    if (out->count == 0)
        open_levels(out, root, cgroups, mounts, "");
}

void lp_cgroup_open(lp_cgroup *cgroup, int root)
{
    char *cgroups = read_long(root, "proc/self/cgroup"), *mounts = read_long(root, "proc/self/mountinfo");

    *cgroup = (lp_cgroup){0};
    if (cgroups && mounts) {
        open_controller(&cgroup->cpu, root, cgroups, mounts, "cpu");
        open_controller(&cgroup->cpuacct, root, cgroups, mounts, "cpuacct");
        open_controller(&cgroup->memory, root, cgroups, mounts, "memory");
        if (cgroup->cpuacct.v2 && !level_has(&cgroup->cpuacct, "cpu.stat"))
            close_levels(&cgroup->cpuacct);
    }
    free(cgroups);
    free(mounts);
}

void lp_cgroup_close(lp_cgroup *cgroup)
{
    close_levels(&cgroup->cpu);
    close_levels(&cgroup->cpuacct);
    close_levels(&cgroup->memory);
}

/* ---- what they say */

static bool read_number(int dir, const char *file, int64_t *value, lp_reason *reason)
{
    char text[LP__TEXT_ROOM];
    const char *at = text;

    if (lp__text_once(dir, file, text, reason) < 0)
        return false;
    *reason = LP_REASON_UNREADABLE;
    return lp__number(&at, value);
}

/* In 1/1000 CPUs. false with LP_REASON_NO_LIMIT, or why it cannot be told. */
static bool read_quota(int dir, bool v2, int64_t *milli, lp_reason *reason)
{
    char text[LP__TEXT_ROOM];
    const char *at = text;
    int64_t quota, period;

    if (lp__text_once(dir, v2 ? "cpu.max" : "cpu.cfs_quota_us", text, reason) < 0)
        return false;
    if (strncmp(text, v2 ? "max" : "-1", 2) == 0) {
        *reason = LP_REASON_NO_LIMIT;
        return false;
    }
    *reason = LP_REASON_UNREADABLE;
    if (!lp__number(&at, &quota) ||
        !(v2 ? lp__number(&at, &period) : read_number(dir, "cpu.cfs_period_us", &period, reason)) || period == 0 ||
        quota > INT64_MAX / 1000)
        return false;
    *milli = quota * 1000 / period;
    return true;
}

/* In bytes. */
static bool read_limit(int dir, bool v2, int64_t *bytes, lp_reason *reason)
{
    char text[LP__TEXT_ROOM];
    const char *at = text;

    if (lp__text_once(dir, v2 ? "memory.max" : "memory.limit_in_bytes", text, reason) < 0)
        return false;
    *reason = LP_REASON_UNREADABLE;
    bool none = v2 && strncmp(text, "max", 3) == 0;
    if (!none && !lp__number(&at, bytes)) /* v1 writes none as the largest number of pages */
        return false;
    if (none || *bytes >= NO_LIMIT_V1) {
        *reason = LP_REASON_NO_LIMIT;
        return false;
    }
    return true;
}

typedef bool read_fn(int dir, bool v2, int64_t *value, lp_reason *reason);

/* The least of all levels; *where is its level, or the own one. A level that cannot be read (the top has no such file) is no
 * reason while another one can. */
static bool tightest(const lp__cgroup_path *path, read_fn *read, int64_t *least, unsigned *where, lp_reason *reason)
{
    bool found = false, none = false;

    *where = 0;
    *reason = LP_REASON_NO_FILE;
    for (unsigned i = 0; i < path->count; i++) {
        int64_t value;
        lp_reason here = LP_REASON_NONE;
        if (read(path->level[i], path->v2, &value, &here)) {
            if (!found || value < *least) {
                *least = value;
                *where = i;
            }
            found = true;
        } else if (here == LP_REASON_NO_LIMIT) {
            none = true;
        } else if (here != LP_REASON_NO_FILE) {
            *reason = here;
        }
    }
    if (none && *reason == LP_REASON_NO_FILE)
        *reason = LP_REASON_NO_LIMIT;
    return found;
}

/* Which group it is, for a reader that has rows of several collectors: two of them may be below one limit. */
static void sample_group(const lp__cgroup_path *path, unsigned where, lp_column column, lp_sample *sample)
{
    struct stat st;
    bool have = path->count > 0 && fstat(path->level[where], &st) == 0;

    lp__sample_put(sample, column, have, have ? (int64_t)st.st_ino : 0, LP_REASON_NO_FILE);
}

static void sample_cpu(const lp_cgroup *cgroup, lp_sample *sample)
{
    const lp__cgroup_path *cpu = &cgroup->cpu;
    char text[LP__TEXT_ROOM];
    lp_reason reason;
    unsigned where;
    int64_t value = 0;
    bool have = tightest(cpu, read_quota, &value, &where, &reason);

    lp__sample_put(sample, LP_COLUMN_CGROUP_QUOTA, have, value, reason);
    sample_group(cpu, where, LP_COLUMN_CGROUP_CPU_GROUP, sample);
    reason = LP_REASON_NO_FILE;
    bool stat = cpu->count > 0 && lp__text_once(cpu->level[where], "cpu.stat", text, &reason) >= 0;
    have = stat && lp__number_of(text, "nr_periods ", &value);
    if (stat && !have)
        reason = LP_REASON_NO_FILE; /* the top of v2 counts use alone */
    lp__sample_put(sample, LP_COLUMN_CGROUP_PERIODS, have, value, reason);
    have = stat && lp__number_of(text, "nr_throttled ", &value);
    lp__sample_put(sample, LP_COLUMN_CGROUP_THROTTLES, have, value, reason);
    have = stat &&
           (cpu->v2 ? lp__number_of(text, "throttled_usec ", &value) : lp__number_of(text, "throttled_time ", &value));
    lp__sample_put(sample, LP_COLUMN_CGROUP_THROTTLED, have, cpu->v2 ? value : value / 1000, reason);
    if (cgroup->cpuacct.v2) {
        have = stat && cpu->v2 && lp__number_of(text, "usage_usec ", &value);
        if (!have && cgroup->cpuacct.count > 0)
            have = lp__text_once(cgroup->cpuacct.level[0], "cpu.stat", text, &reason) >= 0 &&
                   lp__number_of(text, "usage_usec ", &value);
    } else {
        unsigned level = where < cgroup->cpuacct.count ? where : 0; /* mounted together, as a rule */
        have = cgroup->cpuacct.count > 0 && read_number(cgroup->cpuacct.level[level], "cpuacct.usage", &value, &reason);
        value /= 1000;
    }
    lp__sample_put(sample, LP_COLUMN_CGROUP_CPU, have, value, reason);
}

static void sample_memory(const lp_cgroup *cgroup, lp_sample *sample)
{
    const lp__cgroup_path *memory = &cgroup->memory;
    char text[LP__TEXT_ROOM];
    lp_reason reason;
    unsigned where;
    int64_t value = 0;
    bool have = tightest(memory, read_limit, &value, &where, &reason);

    lp__sample_put(sample, LP_COLUMN_CGROUP_LIMIT, have, value >> 10, reason);
    sample_group(memory, where, LP_COLUMN_CGROUP_MEMORY_GROUP, sample);
    reason = LP_REASON_NO_FILE;
    int dir = memory->count > 0 ? memory->level[where] : -1;
    have = dir >= 0 && read_number(dir, memory->v2 ? "memory.current" : "memory.usage_in_bytes", &value, &reason);
    lp__sample_put(sample, LP_COLUMN_CGROUP_MEMORY, have, value >> 10, reason);
    reason = LP_REASON_NO_FILE;
    have = dir >= 0 && lp__text_once(dir, "memory.stat", text, &reason) >= 0;
    if (have) {
        reason = LP_REASON_UNREADABLE;
        have = lp__number_of(text, memory->v2 ? "inactive_file " : "total_inactive_file ", &value);
    }
    lp__sample_put(sample, LP_COLUMN_CGROUP_CACHE, have, value >> 10, reason);
    reason = LP_REASON_NO_FILE;
    have = dir >= 0 && lp__text_once(dir, memory->v2 ? "memory.events" : "memory.oom_control", text, &reason) >= 0 &&
           lp__number_of(text, "oom_kill ", &value);
    lp__sample_put(sample, LP_COLUMN_CGROUP_KILLS, have, value, reason == LP_REASON_NONE ? LP_REASON_NO_FILE : reason);
}

void lp_cgroup_sample(const lp_cgroup *cgroup, lp_sample *sample)
{
    sample_cpu(cgroup, sample);
    sample_memory(cgroup, sample);
}
