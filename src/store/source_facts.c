#include "store/source_facts.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "store/files.h"

#define HEAD "lineprofiler source\n"

static bool is_hex(const char *text, size_t size)
{
    return size < sizeof(((lp_source_facts *)NULL)->commit) && strspn(text, "0123456789abcdef") >= size;
}

lp_status lp_source_facts_write(int dirfd, const lp_source_facts *facts)
{
    char text[256], temporary[64];
    int size = snprintf(text, sizeof text, HEAD "%s\n%" PRId64 "\n%s\n%" PRId64 "\n", facts->commit, facts->dirty,
                        facts->diff, facts->untracked);

    snprintf(temporary, sizeof temporary, LP_SOURCE_FACTS ".%ld", (long)getpid());
    int fd = openat(dirfd, temporary, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return lp__status_of(errno);
    bool ok = lp__write_all(fd, text, (size_t)size);
    ok = close(fd) == 0 && ok && renameat(dirfd, temporary, dirfd, LP_SOURCE_FACTS) == 0;
    if (!ok) {
        int reason = errno;
        unlinkat(dirfd, temporary, 0);
        return lp__status_of(reason);
    }
    return LP_OK;
}

/* One line of hex digits into out[65]; the rest after it, NULL if it is something else. */
static const char *hex_line(const char *at, char *out)
{
    size_t size = strcspn(at, "\n");

    if (at[size] != '\n' || !is_hex(at, size))
        return NULL;
    memcpy(out, at, size);
    out[size] = '\0';
    return at + size + 1;
}

lp_status lp_source_facts_read(int dirfd, lp_source_facts *facts)
{
    char text[256], *end;
    lp_source_facts got = {.dirty = LP_UNKNOWN_I64, .untracked = LP_UNKNOWN_I64};

    if (lp__read_text(dirfd, LP_SOURCE_FACTS, text, sizeof text - 1) <= 0)
        return LP_E_MISSING;
    const char *at = strncmp(text, HEAD, sizeof HEAD - 1) == 0 ? hex_line(text + sizeof HEAD - 1, got.commit) : NULL;
    if (!at)
        return LP_E_DAMAGED;
    got.dirty = strtoll(at, &end, 10);
    if (end == at || *end != '\n' || got.dirty < 0 || !(at = hex_line(end + 1, got.diff)))
        return LP_E_DAMAGED;
    got.untracked = strtoll(at, &end, 10);
    if (end == at || *end != '\n')
        return LP_E_DAMAGED;
    if (got.untracked < 0)
        got.untracked = LP_UNKNOWN_I64;
    *facts = got;
    return LP_OK;
}

void lp_source_facts_apply(const lp_source_facts *facts, lp_arena *arena, lp_identity *id)
{
    size_t size = strlen(facts->commit);

    if (id->source_dirty != LP_UNKNOWN_I64 || id->source_extra_count || size == 0 || id->source_commit.size != size ||
        memcmp(id->source_commit.data, facts->commit, size) != 0)
        return;
    id->source_dirty = facts->dirty;
    id->source_untracked = facts->untracked;
    id->source_diff = lp__text(arena, facts->diff);
}
