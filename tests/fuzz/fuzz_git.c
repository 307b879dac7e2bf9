/* The files of a repository, of any bytes: HEAD, packed-refs, a loose reference, commondir, and the .git file of a second work
 * tree. Whatever they say, the commit is a hash or unknown. */
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "parts.h"
#include "store/arena.h"
#include "store/describe.h"

static const char *const names[] = {"tree/.git/HEAD", "tree/.git/packed-refs", "tree/.git/refs/heads/main",
                                    "tree/.git/commondir", "linked/.git"};
#define NAMES (sizeof names / sizeof *names)

static int base(void)
{
    static const char *const folders[] = {"tree",   "tree/.git", "tree/.git/refs", "tree/.git/refs/heads",
                                          "linked", "tree/deep"};
    static int fd = -1;

    if (fd >= 0)
        return fd;
    fd = open(fuzz_folder(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    FUZZ_MUST(fd >= 0);
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++)
        FUZZ_MUST(mkdirat(fd, folders[i], 0700) == 0);
    return fd;
}

static void must_describe(const char *folder)
{
    char path[160];
    lp_identity id;
    lp_arena *arena = lp_arena_new();

    FUZZ_MUST(arena != NULL);
    lp_identity_init(&id);
    snprintf(path, sizeof path, "%s/%s", fuzz_folder(), folder);
    FUZZ_MUST(lp_describe_source(arena, path, &id) == LP_OK);
    FUZZ_MUST(id.source_commit.size == 0 || id.source_commit.size == 40 || id.source_commit.size == 64);
    for (size_t i = 0; i < id.source_commit.size; i++)
        FUZZ_MUST(strchr("0123456789abcdef", id.source_commit.data[i]) != NULL);
    lp_arena_free(arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *at = data, *end = data + size;
    int dir = base();

    for (size_t i = 0; i < NAMES; i++) {
        fuzz_part part = next_part(&at, end);
        unlinkat(dir, names[i], 0);
        if (part.size == 0)
            continue; /* not there: the other way through */
        int fd = openat(dir, names[i], O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
        FUZZ_MUST(fd >= 0 && write(fd, part.data, part.size) == (ssize_t)part.size);
        close(fd);
    }
    must_describe("tree");
    must_describe("tree/deep");
    must_describe("linked");
    return 0;
}

#define HASH "0123456789abcdef0123456789abcdef01234567"
#define LONG "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

size_t fuzz_seed(unsigned index, uint8_t *out)
{
    static const char *const seeds[][NAMES] = {
        {HASH "\n", "", "", "", "gitdir: ../tree/.git\n"},
        {"ref: refs/heads/main\n", "", HASH "\n", "", "gitdir: ../tree/.git\n"},
        {"ref: refs/heads/main\n", "# pack-refs with: peeled\n" HASH " refs/heads/main\n^" HASH "\n", "", ".\n",
         "gitdir: x"},
        {"ref: refs/heads/main\n", LONG " refs/tags/v1\n" LONG " refs/heads/main\n", "ref: refs/heads/main\n",
         "../.git", ""},
        {"ref: refs/../../x", HASH " refs/heads/main", LONG, "", "gitdir: ../linked"},
    };
    size_t at = 0;

    if (index >= sizeof seeds / sizeof *seeds)
        return 0;
    for (size_t i = 0; i < NAMES; i++)
        at = add_part(out, at, seeds[index][i], strlen(seeds[index][i]));
    return at;
}

size_t fuzz_repair(uint8_t *data, size_t size, size_t room)
{
    (void)data, (void)room;
    return size;
}
