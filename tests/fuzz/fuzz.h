/* What a fuzz target is: one file fuzz_<name>.c that defines the three functions below.
 *
 * The same files are linked twice: with libFuzzer (`make fuzz`, mutator.c), and with replay.c into a C test that runs the seeds
 * and a fixed number of damaged ones in seconds, with any compiler. Seeds are made at run time by the builders of tests/c,
 * so that no binary file lies in the tree and a change of a format changes its seeds. */
#ifndef LP_TESTS_FUZZ_H
#define LP_TESTS_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "render/sink.h"

#define FUZZ_ROOM (48u << 10) /* bytes of the longest input */

/* Reads any bytes and checks what must hold for every result; ends the process (abort) where it does not. Returns 0. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
/* Seed `index` into out[FUZZ_ROOM]; its size, 0 beyond the last. */
size_t fuzz_seed(unsigned index, uint8_t *out);
/* Makes right what a reader checks first (checksum, magic), so that damage reaches what lies behind. The new size. */
size_t fuzz_repair(uint8_t *data, size_t size, size_t room);

/* One change of the kinds that files of ours suffer by: bits, lying numbers, cut, moved and doubled parts, links that lead
 * elsewhere. `random` is advanced. The new size, <= room. */
size_t fuzz_damage(uint8_t *data, size_t size, size_t room, uint64_t *random);
uint64_t fuzz_random(uint64_t *random); /* xorshift64*: equal everywhere */

#define FUZZ_MUST(condition)                                                                                           \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s:%d: must hold: %s\n", __FILE__, __LINE__, #condition);                                 \
            abort();                                                                                                   \
        }                                                                                                              \
    } while (0)

/* Printable UTF-8, lines ended by \n, nothing that a terminal would obey. */
void fuzz_must_be_inert(const char *text, size_t size);
/* The sink took everything; its bytes are valid JSON in ASCII. */
void fuzz_must_be_json(lp_sink *sink);
/* A folder of this process's own, removed at its end; made at the first call. */
const char *fuzz_folder(void);

#endif
