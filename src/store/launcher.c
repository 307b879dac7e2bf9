/* Rank, world size, job and launcher, by the variables that launchers set.
 *
 * Launchers nest: mpirun within a batch job, torchrun as the one task of srun on each node, a training library that sets RANK in
 * a process of Ray's. All their variables are inherited, so the outer one's stand there too, the same for all ranks of the inner
 * one. The innermost launcher's count, all of them together: it is the one that set its variables last, which the environments
 * tell that this process and its ancestors were started with (/proc/<pid>/environ). Where these cannot be read, or two launchers
 * speak for one start (srun for PMI), the order of `families` decides.
 *
 * Runs inside the user's program and in its forked children: no memory but the stack, no printf. Variables are anybody's: nonsense
 * is ignored. Batch systems that have no ranks give a job's name and nothing else. */
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

#include "core/filename.h"
#include "store/internal.h"

#define ANCESTORS 32
#define ENVIRON_MAX (4u << 20) /* bytes of one that are read */
#define ENTRY_MAX 320u         /* bytes of a variable that are compared */

#define VARIABLES(X)                                                                                                   \
    X(SLURM_PROCID)                                                                                                    \
    X(RANK)                                                                                                            \
    X(OMPI_COMM_WORLD_RANK)                                                                                            \
    X(PMI_RANK)                                                                                                        \
    X(MV2_COMM_WORLD_RANK)                                                                                             \
    X(PMIX_RANK)                                                                                                       \
    X(FLUX_TASK_RANK)                                                                                                  \
    X(SLURM_LOCALID)                                                                                                   \
    X(LOCAL_RANK)                                                                                                      \
    X(OMPI_COMM_WORLD_LOCAL_RANK)                                                                                      \
    X(MPI_LOCALRANKID)                                                                                                 \
    X(MV2_COMM_WORLD_LOCAL_RANK)                                                                                       \
    X(FLUX_TASK_LOCAL_ID)                                                                                              \
    X(SLURM_NTASKS)                                                                                                    \
    X(WORLD_SIZE)                                                                                                      \
    X(OMPI_COMM_WORLD_SIZE)                                                                                            \
    X(PMI_SIZE)                                                                                                        \
    X(MV2_COMM_WORLD_SIZE)                                                                                             \
    X(FLUX_JOB_SIZE)                                                                                                   \
    X(SLURM_JOB_ID)                                                                                                    \
    X(PBS_JOBID)                                                                                                       \
    X(LSB_JOBID)                                                                                                       \
    X(FLUX_JOB_ID)                                                                                                     \
    X(RAY_JOB_ID)                                                                                                      \
    X(RAY_RAYLET_PID)                                                                                                  \
    X(TORCHELASTIC_RUN_ID)                                                                                             \
    X(__DASK_PARENT_PID)
#define NUMBER(name) V_##name,
enum { VARIABLES(NUMBER) V_COUNT, V_NONE };
#undef NUMBER
_Static_assert(V_COUNT <= 32, "a set of variables is 32 bits");

#define NAME(name) {#name, sizeof #name - 1},
static const struct {
    char name[28];
    unsigned size;
} variables[] = {VARIABLES(NAME)};
#undef NAME

/* What one launcher sets, in the order that counts where nearness does not tell. */
static const struct {
    unsigned char rank, local_rank, size;
    unsigned char sign; /* set by this one alone; V_NONE: the rank is sign enough */
    char name[12];
} families[] = {
    {V_RANK, V_LOCAL_RANK, V_WORLD_SIZE, V_TORCHELASTIC_RUN_ID, "torchrun"},
    {V_OMPI_COMM_WORLD_RANK, V_OMPI_COMM_WORLD_LOCAL_RANK, V_OMPI_COMM_WORLD_SIZE, V_NONE, "openmpi"},
    {V_MV2_COMM_WORLD_RANK, V_MV2_COMM_WORLD_LOCAL_RANK, V_MV2_COMM_WORLD_SIZE, V_NONE, "mvapich2"},
    {V_PMI_RANK, V_MPI_LOCALRANKID, V_PMI_SIZE, V_MPI_LOCALRANKID, "mpich"}, /* hydra; srun's PMI has no local rank */
    {V_RANK, V_LOCAL_RANK, V_WORLD_SIZE, V_RAY_RAYLET_PID, "ray"},           /* set by its training library */
    {V_NONE, V_NONE, V_NONE, V_RAY_RAYLET_PID,
     "ray"}, /* else its workers are no ranks, not even of the batch job around */
    {V_SLURM_PROCID, V_SLURM_LOCALID, V_SLURM_NTASKS, V_NONE, "slurm"},
    {V_FLUX_TASK_RANK, V_FLUX_TASK_LOCAL_ID, V_FLUX_JOB_SIZE, V_NONE, "flux"},
    {V_PMI_RANK, V_NONE, V_PMI_SIZE, V_NONE, "mpich"},
    {V_RANK, V_LOCAL_RANK, V_WORLD_SIZE, V_WORLD_SIZE,
     "torch"}, /* torch's convention: deepspeed, or the program itself */
    {V_PMIX_RANK, V_NONE, V_NONE, V_NONE, ""},
};
#define FAMILIES (sizeof families / sizeof *families)

/* Whose job it is, where no family has a name for it: the nearest first. */
static const struct {
    unsigned char variable;
    char name[12];
} launchers[] = {
    {V_RAY_JOB_ID, "ray"}, {V_SLURM_PROCID, "slurm"}, {V_PBS_JOBID, "pbs"},
    {V_LSB_JOBID, "lsf"},  {V_SLURM_JOB_ID, "slurm"}, {V_FLUX_JOB_ID, "flux"},
};

/* Their values, NULL where there is none: one way through the environment instead of one for each. */
static void look_at_environment(const char *values[V_COUNT])
{
    for (size_t i = 0; i < V_COUNT; i++)
        values[i] = NULL;
    for (char **entry = environ; entry && *entry; entry++) {
        const char *text = *entry;
        for (size_t i = 0; i < V_COUNT; i++)
            if (text[0] == variables[i].name[0] && text[1] == variables[i].name[1] && !values[i] &&
                strncmp(text, variables[i].name, variables[i].size) == 0 && text[variables[i].size] == '=')
                values[i] = text + variables[i].size + 1;
    }
}

/* A launcher's number: plain decimal digits, no more than fit. */
static bool number_of(const char *text, int64_t *value)
{
    int64_t number = 0;

    if (!text || !*text || strlen(text) > 9)
        return false;
    for (; *text; text++) {
        if (*text < '0' || *text > '9')
            return false;
        number = 10 * number + (*text - '0');
    }
    *value = number;
    return true;
}

static int64_t number_in(const char *const values[V_COUNT], unsigned which)
{
    int64_t value;
    return which < V_COUNT && number_of(values[which], &value) ? value : LP_UNKNOWN_I64;
}

/* Text of a launcher: printable, of a sane length. */
static const char *text_of(const char *text)
{
    size_t size = text ? strlen(text) : 0;

    if (size == 0 || size > 256)
        return NULL;
    for (size_t i = 0; i < size; i++)
        if ((unsigned char)text[i] < 0x20 || text[i] == 0x7f)
            return NULL;
    return text;
}

/* torch's convention is two common words: one of them alone, or a rank beyond the world, is somebody else's. */
static bool speaks(const char *const values[V_COUNT], size_t family)
{
    unsigned sign = families[family].sign;
    int64_t rank = number_in(values, families[family].rank);

    if (families[family].rank != V_NONE && rank == LP_UNKNOWN_I64)
        return false;
    return sign == V_NONE || (sign == V_WORLD_SIZE ? rank < number_in(values, sign) : text_of(values[sign]) != NULL);
}

/* The variables of a family that are set. */
static uint32_t set_by(const char *const values[V_COUNT], size_t family)
{
    const unsigned char which[] = {families[family].rank, families[family].local_rank, families[family].size,
                                   families[family].sign};
    uint32_t set = 0;

    for (size_t i = 0; i < sizeof which; i++)
        if (which[i] < V_COUNT && values[which[i]])
            set |= UINT32_C(1) << which[i];
    return set;
}

/* Of an entry that is longer than ENTRY_MAX so much is compared. */
static uint32_t equal_to(const char *const values[V_COUNT], const char *entry, size_t size)
{
    for (size_t i = 0; i < V_COUNT; i++) {
        size_t name = variables[i].size;
        if (!values[i] || size <= name || entry[name] != '=' || memcmp(entry, variables[i].name, name) != 0)
            continue;
        size_t value = strlen(values[i]);
        if (value > ENTRY_MAX - name - 1)
            value = ENTRY_MAX - name - 1;
        return size == name + 1 + value && memcmp(entry + name + 1, values[i], value) == 0 ? UINT32_C(1) << i : 0;
    }
    return 0;
}

/* Which variables had the values of now when the process was started; false: it cannot be read. */
static bool compare_with(int64_t pid, const char *const values[V_COUNT], uint32_t *equal)
{
    char path[40], block[2048], entry[ENTRY_MAX];
    size_t size = 0, total = 0;
    ssize_t got;

    lp_filename name = lp_filename_start(path, sizeof path);
    lp_filename_put(&name, "/proc/");
    lp_filename_number(&name, (uint64_t)pid, 10);
    lp_filename_put(&name, "/environ");
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    *equal = 0;
    while ((got = read(fd, block, sizeof block)) != 0 && total < ENVIRON_MAX) {
        if (got < 0) {
            if (errno == EINTR)
                continue;
            break;
        }
        total += (size_t)got;
        for (ssize_t i = 0; i < got; i++) {
            if (block[i] == '\0') {
                *equal |= equal_to(values, entry, size);
                size = 0;
            } else if (size < sizeof entry) {
                entry[size++] = block[i];
            }
        }
    }
    close(fd);
    return got == 0 && total > 0; /* the process has ended: empty */
}

/* The family of `heard` whose variables were set last, the first of several; FAMILIES: the one that a fork inherits. */
static size_t innermost(const char *const values[V_COUNT], uint32_t heard, bool forked)
{
    int64_t pid = getpid();
    uint32_t equal;

    /* This process first: what it was not started with, it has set itself. */
    for (int i = 0; i <= ANCESTORS && pid > 0 && compare_with(pid, values, &equal); i++) {
        uint32_t as_it_was = 0;
        for (size_t family = 0; family < FAMILIES; family++)
            if ((heard >> family & 1) && (set_by(values, family) & ~equal) == 0)
                as_it_was |= UINT32_C(1) << family;
        if (as_it_was != heard) {
            heard &= ~as_it_was;
            break;
        }
        if (forked)
            return FAMILIES; /* nothing was set since its parent looked */
        pid = i == 0 ? getppid() : lp__describe_parent(pid);
    }
    return heard ? (size_t)__builtin_ctz(heard) : FAMILIES;
}

/* Families that speak. Two of one rank's variable have the same numbers, so the first stands for both. */
static uint32_t listen(const char *const values[V_COUNT])
{
    uint32_t heard = 0, ranks = 0;

    for (size_t i = 0; i < FAMILIES; i++) {
        unsigned rank = families[i].rank;
        if (!speaks(values, i) || (rank != V_NONE && (ranks >> rank & 1)))
            continue;
        heard |= UINT32_C(1) << i;
        if (rank != V_NONE)
            ranks |= UINT32_C(1) << rank;
    }
    return heard;
}

static bool differ(int64_t a, int64_t b)
{
    return a != b && a != LP_UNKNOWN_I64 && b != LP_UNKNOWN_I64;
}

/* All of `heard` give this process the same numbers: srun and its PMI, or a program that has set RANK by SLURM_PROCID. */
static bool agree(const char *const values[V_COUNT], uint32_t heard)
{
    size_t first = (size_t)__builtin_ctz(heard);

    for (size_t i = first + 1; i < FAMILIES; i++)
        if ((heard >> i & 1) &&
            (number_in(values, families[i].rank) != number_in(values, families[first].rank) ||
             differ(number_in(values, families[i].local_rank), number_in(values, families[first].local_rank)) ||
             differ(number_in(values, families[i].size), number_in(values, families[first].size))))
            return false;
    return true;
}

static void use_job(lp_arena *arena, lp_identity *id, const char *const values[V_COUNT])
{
    static const unsigned char jobs[] = {V_SLURM_JOB_ID, V_PBS_JOBID, V_LSB_JOBID, V_FLUX_JOB_ID, V_RAY_JOB_ID};
    const char *job = NULL;

    for (size_t i = 0; i < sizeof jobs && !job; i++)
        job = text_of(values[jobs[i]]);
    lp__keep_text(arena, &id->job_id, job);
}

void lp__describe_launcher(lp_arena *arena, lp_identity *id, bool forked)
{
    const char *values[V_COUNT], *launcher = NULL;

    look_at_environment(values);
    use_job(arena, id, values);
    uint32_t heard = listen(values);
    size_t family = FAMILIES;
    if (heard && agree(values, heard)) {
        family = (size_t)__builtin_ctz(heard);
    } else if (heard) {
        family = innermost(values, heard, forked);
        if (family == FAMILIES)
            return;
    }
    bool is_one = family < FAMILIES;
    id->rank = number_in(values, is_one ? families[family].rank : V_RANK);
    id->local_rank = number_in(values, is_one ? families[family].local_rank : V_LOCAL_RANK);
    id->world_size = number_in(values, is_one ? families[family].size : V_WORLD_SIZE);
    if (id->world_size == 0 || (id->world_size > 0 && id->rank >= id->world_size))
        id->world_size = LP_UNKNOWN_I64; /* they do not belong together */
    if (is_one && families[family].name[0])
        launcher = families[family].name;
    int64_t dask = LP_UNKNOWN_I64; /* set by its nannies and its client, so that children know that they are some */
    if (!launcher && number_of(values[V___DASK_PARENT_PID], &dask) && dask != getpid() && id->rank == LP_UNKNOWN_I64)
        launcher = "dask";
    for (size_t i = 0; i < sizeof launchers / sizeof *launchers && !launcher; i++)
        if (text_of(values[launchers[i].variable]))
            launcher = launchers[i].name;
    lp__keep_text(arena, &id->launcher, launcher);
}
