/* Linked with libFuzzer: its own changes and ours in turn, most of them repaired so that they get past the checksum. */
#include "fuzz.h"

size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t room);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t room, unsigned seed);

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t room, unsigned seed)
{
    uint64_t random = seed * 0x9e3779b97f4a7c15u + 1;

    if (fuzz_random(&random) % 3)
        size = LLVMFuzzerMutate(data, size, room);
    else
        for (uint64_t i = 1 + fuzz_random(&random) % 3; i > 0; i--)
            size = fuzz_damage(data, size, room, &random);
    return fuzz_random(&random) % 16 ? fuzz_repair(data, size, room) : size;
}
