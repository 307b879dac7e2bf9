/* Rows of samples into batches: columns of differences, zeros counted. What a second of an ordinary process takes is told by
 * tests/c/test_store_samples.c: 12 hours of one are below 1.5 MB. */
#include <stdlib.h>

#include "store/samples.h"
#include "store/wire.h"

#define FIRST_ROWS 2u /* of the first batch */
#define LABEL_ROOM 128u
#define MS_NS 1000000u

typedef struct path {
    uint32_t parent;
    char *name; /* owned */
    uint32_t size;
} path;

struct lp_sample_writer {
    lp_series series;
    uint32_t index;
    uint64_t interval_ns;
    char label[LABEL_ROOM];
    uint32_t label_size;
    uint32_t target; /* rows of this batch */
    uint32_t rows;
    uint64_t total;            /* rows put so far */
    uint32_t paths, paths_put; /* given; in batches already */
    path *fresh;               /* owned: paths that no batch has yet */
    uint32_t fresh_room;
    size_t fresh_bytes;
    uint64_t unix_ns, mono_ns; /* of the first row */
    uint64_t time_us[LP_SAMPLE_ROWS];
    int64_t value[LP_SAMPLE_ROWS]
                 [LP_COLUMNS];  /* a row is put once a second and in one piece, a column read once a minute */
    uint8_t reason[LP_COLUMNS]; /* of what is missing so far */
    lp_share share[LP_SAMPLE_ROWS][LP_SAMPLE_SHARES];
    uint32_t share_count[LP_SAMPLE_ROWS];
};

/* A record of the file: a field of SampleFile whose message ends in its own checksum. */
static size_t open_record(lp_buffer *out, uint32_t field)
{
    return lp__put_open(out, field);
}

/* lp__put_close moves the content behind a length of its own size, so the checksum comes first. */
static void close_record(lp_buffer *out, size_t mark)
{
    if (!out->failed)
        lp__put_fixed32(out, 15, lp__crc32c(0, out->data + mark, out->size - mark));
    lp__put_close(out, mark);
}

lp_status lp_samples_put_head(lp_buffer *out, const lp_sample_head *head)
{
    lp__put_uint(out, 14, LP_SAMPLE_VERSION);
    size_t record = open_record(out, 2);
    lp__put_uint(out, 1, head->series);
    size_t identity = lp__put_open(out, 2);
    lp__put_identity(out, head->id);
    lp__put_close(out, identity);
    lp__put_uint(out, 3, head->interval_ns);
    lp__put_uint(out, 4, (uint64_t)head->collector_pid);
    lp__put_uint(out, 5, head->collector_start);
    close_record(out, record);
    return out->failed ? LP_E_MEMORY : LP_OK;
}

lp_sample_writer *lp_sample_writer_new(lp_series series, uint32_t index, uint64_t interval_ns)
{
    lp_sample_writer *writer = calloc(1, sizeof *writer);

    if (!writer)
        return NULL;
    writer->series = series;
    writer->index = index;
    writer->interval_ns = interval_ns;
    writer->target = FIRST_ROWS;
    return writer;
}

static void drop_paths(lp_sample_writer *writer)
{
    for (uint32_t i = 0; i < writer->paths - writer->paths_put; i++)
        free(writer->fresh[i].name);
    writer->fresh_bytes = 0;
    writer->paths_put = writer->paths;
}

void lp_sample_writer_free(lp_sample_writer *writer)
{
    if (!writer)
        return;
    drop_paths(writer);
    free(writer->fresh);
    free(writer);
}

void lp_sample_writer_label(lp_sample_writer *writer, lp_str label)
{
    writer->label_size = label.size < LABEL_ROOM ? (uint32_t)label.size : LABEL_ROOM - 1;
    memcpy(writer->label, label.data, writer->label_size);
}

uint32_t lp_sample_writer_path(lp_sample_writer *writer, uint32_t parent, lp_str name)
{
    uint32_t waiting = writer->paths - writer->paths_put;

    if (parent > writer->paths || writer->paths >= LP_SAMPLE_PATHS ||
        name.size > LP__SAMPLE_NAMES_MAX - writer->fresh_bytes)
        return 0;
    if (waiting == writer->fresh_room) {
        uint32_t room = waiting ? 2 * waiting : 16;
        path *grown = realloc(writer->fresh, room * sizeof *grown);
        if (!grown)
            return 0;
        writer->fresh = grown;
        writer->fresh_room = room;
    }
    char *copy = malloc(name.size + 1);
    if (!copy)
        return 0;
    memcpy(copy, name.data, name.size);
    writer->fresh_bytes += name.size;
    writer->fresh[waiting] = (path){parent, copy, (uint32_t)name.size};
    return ++writer->paths;
}

/* ---- columns */

/* Numbers, but of zeros only how many there are. */
typedef struct tokens {
    lp_buffer *out;
    uint32_t zeros;
} tokens;

static void put_zeros(tokens *t)
{
    if (t->zeros) {
        lp__put_varint(t->out, 0);
        lp__put_varint(t->out, t->zeros - 1);
        t->zeros = 0;
    }
}

static void put_token(tokens *t, uint64_t value)
{
    if (value == 0) {
        t->zeros++;
        return;
    }
    put_zeros(t);
    lp__put_varint(t->out, value);
}

static uint64_t zigzag(uint64_t difference) /* as a signed number of 64 bits */
{
    return difference << 1 ^ (0 - (difference >> 63));
}

static void put_times(const lp_sample_writer *writer, lp_buffer *out)
{
    if (writer->rows < 2)
        return;
    size_t field = lp__put_open(out, 6);
    tokens t = {.out = out};
    for (uint32_t i = 1; i < writer->rows; i++) {
        uint64_t distance = writer->time_us[i] - writer->time_us[i - 1];
        put_token(&t, zigzag(distance - writer->interval_ns / 1000));
    }
    put_zeros(&t);
    lp__put_close(out, field);
}

static bool same_shares(const lp_sample_writer *writer, uint32_t a, uint32_t b)
{
    if (writer->share_count[a] != writer->share_count[b])
        return false;
    for (uint32_t i = 0; i < writer->share_count[a]; i++)
        if (writer->share[a][i].path != writer->share[b][i].path ||
            writer->share[a][i].parts != writer->share[b][i].parts)
            return false;
    return true;
}

/* Of each row: as the one before (a zero, counted), or 1 + how many shares, then path and parts of each. Before the first
 * row no phase is open. */
static void put_shares(const lp_sample_writer *writer, lp_buffer *out)
{
    bool any = false;
    for (uint32_t i = 0; i < writer->rows; i++)
        any |= writer->share_count[i] > 0;
    if (!any)
        return;
    size_t field = lp__put_open(out, 9);
    tokens t = {.out = out};
    for (uint32_t i = 0; i < writer->rows; i++) {
        if (i ? same_shares(writer, i - 1, i) : writer->share_count[0] == 0) {
            put_token(&t, 0);
            continue;
        }
        put_token(&t, 1 + (uint64_t)writer->share_count[i]);
        for (uint32_t k = 0; k < writer->share_count[i]; k++) {
            lp__put_varint(out, writer->share[i][k].path);
            lp__put_varint(out, writer->share[i][k].parts);
        }
    }
    put_zeros(&t);
    lp__put_close(out, field);
}

static void put_column(const lp_sample_writer *writer, lp_buffer *out, lp_column column)
{
    int64_t value[LP_SAMPLE_ROWS], step = lp_column_table[column].step, last = LP_UNKNOWN_I64;
    uint32_t known = 0;
    bool equal = true;

    for (uint32_t i = 0; i < writer->rows; i++)
        if ((value[i] = writer->value[i][column]) != LP_UNKNOWN_I64) {
            known++;
            equal &= last == LP_UNKNOWN_I64 || value[i] / step == last;
            last = value[i] / step;
        }
    if (known == 0 && writer->reason[column] == LP_REASON_NEVER)
        return;
    size_t field = lp__put_open(out, 10);
    lp__put_uint(out, 1, lp_column_table[column].number);
    lp__put_uint(out, 2, writer->reason[column]);
    if (known > 0 && known < writer->rows) { /* lengths of runs, with a value and without in turn */
        size_t runs = lp__put_open(out, 3);
        bool with = true;
        for (uint32_t i = 0; i < writer->rows; with = !with) {
            uint32_t run = 0;
            while (i + run < writer->rows && (value[i + run] != LP_UNKNOWN_I64) == with)
                run++;
            lp__put_varint(out, run);
            i += run;
        }
        lp__put_close(out, runs);
    }
    if (step != 1)
        lp__put_uint(out, 6, (uint64_t)step);
    uint64_t before = 0;
    bool first = true;
    size_t deltas = 0;
    tokens t = {.out = out};
    for (uint32_t i = 0; i < writer->rows; i++) {
        if (value[i] == LP_UNKNOWN_I64)
            continue;
        uint64_t now = (uint64_t)(value[i] / step);
        if (first) {
            lp__put_sint(out, 4, (int64_t)now);
            if (equal)
                break;
            else
                deltas = lp__put_open(out, 5);
            first = false;
        } else {
            put_token(&t, lp_column_table[column].counter ? now - before : zigzag(now - before));
        }
        before = now;
    }
    if (deltas) {
        put_zeros(&t);
        lp__put_close(out, deltas);
    }
    lp__put_close(out, field);
}

lp_status lp_sample_writer_flush(lp_sample_writer *writer, lp_buffer *out)
{
    if (writer->rows == 0)
        return LP_OK;
    size_t record = open_record(out, 3);
    lp__put_uint(out, 1, writer->series);
    lp__put_uint(out, 2, writer->index);
    lp__put_str(out, 3, (lp_str){writer->label, writer->label_size});
    lp__put_fixed64(out, 4, writer->unix_ns);
    lp__put_fixed64(out, 11, writer->mono_ns);
    lp__put_uint(out, 5, writer->rows);
    put_times(writer, out);
    for (uint32_t i = 0; i < writer->paths - writer->paths_put; i++) {
        size_t one = lp__put_open(out, 7);
        lp__put_uint(out, 1, writer->fresh[i].parent);
        lp__put_str(out, 2, (lp_str){writer->fresh[i].name, writer->fresh[i].size});
        lp__put_close(out, one);
    }
    put_shares(writer, out);
    for (unsigned i = 0; i < LP_COLUMNS; i++)
        put_column(writer, out, (lp_column)i);
    close_record(out, record);
    if (out->failed)
        return LP_E_MEMORY;
    drop_paths(writer);
    writer->total += writer->rows;
    writer->rows = 0;
    /* What a reader cannot see yet is never more than half of what there is. */
    writer->target = writer->total + 1 < LP_SAMPLE_ROWS ? (uint32_t)writer->total + 1 : LP_SAMPLE_ROWS;
    return LP_OK;
}

/* Can the row stand in one batch with those that wait? */
static bool fits(const lp_sample_writer *writer, const lp_sample *row)
{
    uint32_t last = writer->rows - 1;

    if (row->mono_ns / 1000 < writer->mono_ns / 1000 + writer->time_us[last])
        return false;
    for (unsigned i = 0; i < LP_COLUMNS; i++) {
        if (row->value[i] < 0) {
            uint8_t reason = row->reason[i] ? row->reason[i] : LP_REASON_UNREADABLE;
            if (reason != writer->reason[i] && (writer->reason[i] != LP_REASON_NONE || reason == LP_REASON_NEVER))
                return false;
        } else if (writer->reason[i] == LP_REASON_NEVER) {
            return false;
        } else if (lp_column_table[i].counter) {
            for (uint32_t k = writer->rows; k-- > 0;)
                if (writer->value[k][i] != LP_UNKNOWN_I64) {
                    if (row->value[i] < writer->value[k][i])
                        return false;
                    break;
                }
        }
    }
    return true;
}

lp_status lp_sample_writer_add(lp_sample_writer *writer, const lp_sample *row, lp_buffer *out)
{
    lp_status status = LP_OK;

    if (writer->rows > 0 && !fits(writer, row))
        status = lp_sample_writer_flush(writer, out);
    if (status != LP_OK)
        return status;
    uint32_t at = writer->rows;
    if (at == 0) {
        writer->unix_ns = row->unix_ns;
        writer->mono_ns = row->mono_ns;
        memset(writer->reason, 0, sizeof writer->reason);
    }
    writer->time_us[at] = row->mono_ns / 1000 - writer->mono_ns / 1000;
    for (unsigned i = 0; i < LP_COLUMNS; i++) {
        writer->value[at][i] = row->value[i] < 0 ? LP_UNKNOWN_I64 : row->value[i];
        if (row->value[i] < 0)
            writer->reason[i] = row->reason[i] ? row->reason[i] : LP_REASON_UNREADABLE;
    }
    uint32_t shares = 0, parts = 0;
    for (uint32_t i = 0; i < row->share_count && i < LP_SAMPLE_SHARES; i++) {
        lp_share share = row->share[i];
        if (share.path == 0 || share.path > writer->paths || share.parts == 0 || share.parts > LP_SAMPLE_WHOLE - parts)
            continue;
        parts += share.parts;
        writer->share[at][shares++] = share;
    }
    writer->share_count[at] = shares;
    writer->rows++;
    if (writer->rows >= writer->target)
        status = lp_sample_writer_flush(writer, out);
    return status;
}
