/* A target without libFuzzer: every seed as it is, then a fixed number of damaged ones, the same on each machine.
 *
 *     replay_<target> [ROUNDS]        seeds and ROUNDS damaged inputs (the C test)
 *     replay_<target> --seeds FOLDER  writes the seeds as files, for libFuzzer
 *     replay_<target> FILE…           reads these files, for what `make fuzz` has kept */
#include <ctype.h>
#include <string.h>

#include "fuzz.h"

#define ROUNDS 3000
#define STEPS 8 /* changes of one seed at most */

static uint8_t input[FUZZ_ROOM];

static int write_seeds(const char *folder)
{
    for (unsigned i = 0;; i++) {
        char path[4096];
        size_t size = fuzz_seed(i, input);
        if (size == 0)
            return 0;
        snprintf(path, sizeof path, "%s/seed-%02u", folder, i);
        FILE *file = fopen(path, "wb");
        if (!file || fwrite(input, 1, size, file) != size || fclose(file) != 0) {
            fprintf(stderr, "%s: cannot be written\n", path);
            return 2;
        }
    }
}

/* From the heap and exactly as long as it is, so that a sanitizer sees a step beyond. */
static void run(size_t size)
{
    uint8_t *data = malloc(size ? size : 1);
    FUZZ_MUST(data != NULL);
    memcpy(data, input, size);
    LLVMFuzzerTestOneInput(data, size);
    free(data);
}

static int read_file(const char *path)
{
    FILE *file = fopen(path, "rb");
    if (!file) {
        fprintf(stderr, "%s: cannot be opened\n", path);
        return 2;
    }
    size_t size = fread(input, 1, sizeof input, file);
    fclose(file);
    run(size);
    printf("%s: %zu bytes, nothing found\n", path, size);
    return 0;
}

int main(int argc, char **argv)
{
    unsigned long rounds = ROUNDS;
    unsigned seeds = 0;
    uint64_t random = 1;
    int result = 0;

    if (argc == 3 && strcmp(argv[1], "--seeds") == 0)
        return write_seeds(argv[2]);
    if (argc == 2 && isdigit((unsigned char)argv[1][0]))
        rounds = strtoul(argv[1], NULL, 10);
    else if (argc > 1) {
        for (int i = 1; i < argc && result == 0; i++)
            result = read_file(argv[i]);
        return result;
    }
    for (size_t size; (size = fuzz_seed(seeds, input)) > 0; seeds++)
        run(size);
    FUZZ_MUST(seeds > 0);
    run(0);
    for (unsigned long i = 0; i < rounds; i++) {
        size_t size = fuzz_seed((unsigned)(i % seeds), input);
        for (uint64_t steps = 1 + fuzz_random(&random) % STEPS; steps > 0; steps--)
            size = fuzz_damage(input, size, sizeof input, &random);
        if (fuzz_random(&random) % 8)
            size = fuzz_repair(input, size, sizeof input);
        run(size);
    }
    printf("%u seeds, %lu damaged\n", seeds, rounds);
    return 0;
}
