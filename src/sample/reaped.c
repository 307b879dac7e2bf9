#include "sample/reaped.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPECTED_MAX 1024u /* ended and never waited for: the oldest is forgotten */

static const lp_column columns[LP_REAPED_COLUMNS] = {LP_COLUMN_READ_CHARS, LP_COLUMN_WRITE_CHARS, LP_COLUMN_READ_BYTES,
                                                     LP_COLUMN_WRITE_BYTES, LP_COLUMN_CANCELLED_BYTES};

static void forget(lp_reaped *reaped, uint32_t i)
{
    memmove(reaped->at + i, reaped->at + i + 1, (--reaped->count - i) * sizeof *reaped->at);
}

void lp_reaped_expect(lp_reaped *reaped, const lp_process *child)
{
    if (reaped->count == EXPECTED_MAX)
        forget(reaped, 0);
    if (reaped->count == reaped->room) {
        uint32_t room = reaped->room ? 2 * reaped->room : 8;
        lp_reaped_child *grown = realloc(reaped->at, room * sizeof *grown);
        if (!grown)
            return;
        reaped->at = grown;
        reaped->room = room;
    }
    lp_reaped_child *one = &reaped->at[reaped->count++];
    *one = (lp_reaped_child){.pid = child->pid,
                             .start = child->start,
                             .ticks = child->total_ticks,
                             .faults = child->total_faults,
                             .faults_before = reaped->faults};
    for (uint32_t c = 0; c < LP_REAPED_COLUMNS; c++) {
        int64_t bytes = child->full.value[columns[c]];
        one->bytes[c] = bytes == LP_UNKNOWN_I64 ? 0 : bytes;
    }
}

bool lp_reaped_is_gone(int root, int64_t pid, int64_t start)
{
    char path[48], text[LP__TEXT_ROOM];
    lp_reason reason;
    lp__stat stat;

    snprintf(path, sizeof path, "proc/%" PRId64 "/stat", pid);
    if (lp__text_once(root, path, text, &reason) < 0)
        return reason == LP_REASON_NO_FILE || reason == LP_REASON_GONE;
    return lp__stat_parse(text, &stat) && stat.start != start;
}

static bool fits(const lp_reaped_child *one, int64_t faults, const int64_t left[LP_REAPED_COLUMNS])
{
    for (uint32_t c = 0; c < LP_REAPED_COLUMNS; c++)
        if (one->bytes[c] > left[c])
            return false;
    return faults - one->faults_before >= one->faults;
}

/* `left`: by how much the bytes have grown since the row before. */
static void match(lp_reaped *reaped, int root, int64_t faults, int64_t left[LP_REAPED_COLUMNS])
{
    for (uint32_t i = 0; i < reaped->count;) {
        lp_reaped_child one = reaped->at[i];
        if (!fits(&one, faults, left) || !lp_reaped_is_gone(root, one.pid, one.start)) {
            i++;
            continue;
        }
        forget(reaped, i);
        reaped->off_ticks += one.ticks;
        for (uint32_t c = 0; c < LP_REAPED_COLUMNS; c++) {
            reaped->off_bytes[c] += one.bytes[c];
            left[c] -= one.bytes[c];
        }
        for (uint32_t k = 0; k < reaped->count; k++) /* that growth is explained */
            reaped->at[k].faults_before += one.faults;
    }
}

void lp_reaped_take_off(lp_reaped *reaped, int root, const lp_process *process, lp_sample *sample)
{
    int64_t left[LP_REAPED_COLUMNS];

    for (uint32_t c = 0; c < LP_REAPED_COLUMNS; c++) {
        int64_t now = sample->value[columns[c]];
        left[c] = now == LP_UNKNOWN_I64 || !reaped->any || reaped->bytes[c] == LP_UNKNOWN_I64 ? INT64_MAX
                                                                                              : now - reaped->bytes[c];
        reaped->bytes[c] = now;
    }
    if (reaped->any && reaped->count > 0)
        match(reaped, root, process->ended_faults, left);
    reaped->any = true;
    reaped->faults = process->ended_faults;
    for (uint32_t c = 0; c < LP_REAPED_COLUMNS; c++)
        if (reaped->off_bytes[c] > 0 && reaped->bytes[c] != LP_UNKNOWN_I64)
            lp_sample_set(sample, columns[c], reaped->bytes[c] - reaped->off_bytes[c]);
}

void lp_reaped_free(lp_reaped *reaped)
{
    free(reaped->at);
    *reaped = (lp_reaped){0};
}
