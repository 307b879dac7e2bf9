/* A snapshot file of any bytes: whole, its head, its check, the identity message alone. */
#include "../c/worker_builder.h"
#include "snapshot_tools.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    lp_worker *worker = NULL;
    lp_error error = {.offset = UINT64_MAX};

    lp_status status = lp_snapshot_decode(data, size, "input", &worker, &error);
    if (status == LP_OK) {
        FUZZ_MUST(lp_snapshot_check(data, size, "input", &error) == LP_OK);
        must_round_trip(worker);
        must_dump(worker);
        lp_worker_free(worker);
    } else {
        FUZZ_MUST(strncmp(error.text, "input: ", 7) == 0);
    }
    worker = NULL;
    if (lp_snapshot_head(data, size, "input", &worker, &error) == LP_OK)
        lp_worker_free(worker);
    worker = lp_worker_new();
    FUZZ_MUST(worker != NULL);
    lp_identity_decode(data, size, worker->arena, &worker->id, &error);
    lp_worker_free(worker);
    return 0;
}

size_t fuzz_seed(unsigned index, uint8_t *out)
{
    lp_worker *worker = index == 0 ? build_worker() : index == 1 ? lp_worker_new() : NULL;
    if (!worker)
        return 0;
    size_t size = snapshot_seed(worker, out, FUZZ_ROOM);
    lp_worker_free(worker);
    return size;
}

size_t fuzz_repair(uint8_t *data, size_t size, size_t room)
{
    return close_snapshot(data, size, room);
}
