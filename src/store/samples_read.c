/* Sample files, batch by batch: memory for one batch, the identity and the paths, however long the file is. Trusts nothing. */
#include <errno.h>
#include <stdlib.h>

#include "store/files.h"
#include "store/samples.h"
#include "store/wire.h"

#define WINDOW (64u << 10) /* bytes read at once */

struct lp_samples {
    int fd; /* borrowed; -1: memory */
    const unsigned char *memory;
    size_t memory_size;
    const char *name; /* owned by the arena */
    lp_arena *arena;  /* identity and paths */
    unsigned char *window;
    size_t window_size, window_room; /* bytes in it */
    uint64_t window_at;              /* where in the file it begins */
    uint64_t at;                     /* the next record */
    lp_identity id;
    lp_series series;
    uint64_t interval_ns;
    struct sample_path {
        uint32_t parent;
        lp_str name;
    } *paths; /* owned by the arena, grown by lp_arena_grow; [0] is the first */
    uint32_t path_count;
    size_t path_bytes;
    const char *lost; /* static */
    uint64_t lost_bytes;
    lp_sample_batch batch;
    lp_arena *batch_arena; /* values of the batch, renewed with each */
    lp_share *shares;
    uint32_t *share_end;
    uint64_t *time_us;
};

/* At least `need` bytes at r->at into the window, or as many as there are: *got. */
static bool fill(lp_samples *r, size_t need, const unsigned char **bytes, size_t *got)
{
    if (r->fd < 0) {
        size_t at = r->at < r->memory_size ? (size_t)r->at : r->memory_size;
        *bytes = r->memory + at;
        *got = r->memory_size - at;
        return true;
    }
    uint64_t skip = r->at - r->window_at;
    if (skip <= r->window_size && r->window_size - skip >= need) {
        *bytes = r->window + skip;
        *got = r->window_size - (size_t)skip;
        return true;
    }
    size_t room = need > WINDOW ? need : WINDOW;
    if (room > r->window_room) {
        unsigned char *grown = realloc(r->window, room);
        if (!grown) {
            errno = ENOMEM;
            return false;
        }
        r->window = grown;
        r->window_room = room;
    }
    r->window_at = r->at;
    r->window_size = 0;
    if (!lp__read_at(r->fd, r->window, room, r->at, got))
        return false;
    r->window_size = *got;
    *bytes = r->window;
    return true;
}

static lp_status no_memory(const lp_samples *r, lp_error *error)
{
    return lp__fail(error, LP_E_MEMORY, r->name, UINT64_MAX, "out of memory");
}

typedef enum found { RECORD, END, TORN, DAMAGED, TROUBLE } found;

/* The next record: a field of SampleFile with its checksum proven. *body without the checksum. */
static found next_record(lp_samples *r, uint32_t *field, lp__wire *body, size_t *size)
{
    const unsigned char *bytes;
    size_t got;

    if (!fill(r, 16, &bytes, &got))
        return TROUBLE;
    if (got == 0)
        return END;
    lp__wire wire = lp__wire_of(bytes, got < 16 ? got : 16);
    uint64_t tag, length;
    if (!lp__wire_varint(&wire, &tag) || !lp__wire_varint(&wire, &length))
        return wire.cut ? TORN : DAMAGED;
    if ((tag & 7) != LP__BYTES || tag >> 3 > UINT32_MAX || length > LP__SAMPLE_BATCH_MAX)
        return DAMAGED;
    size_t head = (size_t)(wire.at - bytes), whole = head + (size_t)length;
    if (got < whole && !fill(r, whole, &bytes, &got))
        return TROUBLE;
    if (got < whole)
        return TORN;
    const unsigned char *end = bytes + whole, *crc = end - 5;
    if (length < 5 || crc[0] != 0x7d)
        return DAMAGED;
    uint32_t stored = (uint32_t)crc[1] | (uint32_t)crc[2] << 8 | (uint32_t)crc[3] << 16 | (uint32_t)crc[4] << 24;
    if (stored != lp__crc32c(0, bytes + head, (size_t)(crc - bytes) - head))
        return DAMAGED;
    *field = (uint32_t)(tag >> 3);
    *body = lp__wire_of(bytes + head, (size_t)(crc - bytes) - head);
    *size = whole;
    return RECORD;
}

static bool get_head(lp_samples *r, lp__wire *wire)
{
    lp__field field;
    uint64_t series = 0;

    while (lp__wire_next(wire, &field)) {
        if (field.number == 1) {
            lp__get_uint(wire, &field, &series);
        } else if (field.number == 2) {
            lp__wire inner = lp__wire_in(wire, &field);
            lp__get_identity(&inner, r->arena, &r->id);
            lp__wire_done(wire, &inner);
        } else if (field.number == 3) {
            lp__get_uint(wire, &field, &r->interval_ns);
        }
    }
    if (series != LP_SERIES_PROCESS && series != LP_SERIES_HOST)
        return false;
    r->series = (lp_series)series;
    return !wire->problem;
}

bool lp_samples_is_start(const void *data, size_t size)
{
    const unsigned char *bytes = data;
    return size > 0 && bytes[0] == 0x70 && (size < 2 || bytes[1] != 0) && (size < 3 || bytes[2] == 0x12);
}

static lp_status read_start(lp_samples *r, lp_error *error)
{
    const unsigned char *bytes;
    lp__wire body;
    uint32_t field;
    size_t got, size;

    if (!fill(r, 3, &bytes, &got))
        return errno == ENOMEM ? no_memory(r, error) : lp__fail_sys(error, errno, r->name, "read");
    if (!lp_samples_is_start(bytes, got))
        return lp__fail(error, LP_E_FOREIGN, r->name, 0, "not a sample file of lineprofiler");
    if (got >= 2 && bytes[1] > LP_SAMPLE_VERSION)
        return lp__fail(error, LP_E_VERSION, r->name, 1, "written by a newer version of lineprofiler");
    r->at = 2;
    switch (next_record(r, &field, &body, &size)) {
    case RECORD: break;
    case END:
    case TORN: return lp__fail(error, LP_E_TRUNCATED, r->name, got, "ends within its head");
    case TROUBLE: return errno == ENOMEM ? no_memory(r, error) : lp__fail_sys(error, errno, r->name, "read");
    case DAMAGED: return lp__fail(error, LP_E_DAMAGED, r->name, 2, "the head is damaged");
    }
    if (field != 2 || !get_head(r, &body))
        return lp__fail(error, LP_E_DAMAGED, r->name, 2, "the head is damaged");
    r->at += size;
    return LP_OK;
}

static lp_status open_reader(int fd, const void *data, size_t size, const char *name, lp_samples **reader,
                             lp_error *error)
{
    lp_samples *r = calloc(1, sizeof *r);

    if (r)
        r->arena = lp_arena_new();
    if (!r || !r->arena) {
        free(r);
        return lp__fail(error, LP_E_MEMORY, name, UINT64_MAX, "out of memory");
    }
    r->fd = fd;
    r->memory = data;
    r->memory_size = size;
    r->lost = "";
    lp_str copy = lp__text(r->arena, name);
    r->name = copy.size || !*name ? copy.data : "";
    lp_identity_init(&r->id);
    lp_status status = read_start(r, error);
    if (status != LP_OK) {
        lp_samples_close(r);
        return status;
    }
    *reader = r;
    return LP_OK;
}

lp_status lp_samples_open(int fd, const char *name, lp_samples **reader, lp_error *error)
{
    return open_reader(fd, NULL, 0, name, reader, error);
}

lp_status lp_samples_open_memory(const void *data, size_t size, const char *name, lp_samples **reader, lp_error *error)
{
    return open_reader(-1, size ? data : (const unsigned char *)"", size, name, reader, error);
}

void lp_samples_close(lp_samples *reader)
{
    if (!reader)
        return;
    lp_arena_free(reader->batch_arena);
    lp_arena_free(reader->arena);
    free(reader->window);
    free(reader);
}

const lp_identity *lp_samples_identity(const lp_samples *reader)
{
    return &reader->id;
}

lp_series lp_samples_series(const lp_samples *reader)
{
    return reader->series;
}

uint64_t lp_samples_interval_ns(const lp_samples *reader)
{
    return reader->interval_ns;
}

const char *lp_samples_lost(const lp_samples *reader, uint64_t *bytes)
{
    *bytes = reader->lost_bytes;
    return reader->lost;
}

uint32_t lp_samples_path_count(const lp_samples *reader)
{
    return reader->path_count;
}

bool lp_samples_path(const lp_samples *reader, uint32_t path, uint32_t *parent, lp_str *name)
{
    if (path == 0 || path > reader->path_count)
        return false;
    *parent = reader->paths[path - 1].parent;
    *name = reader->paths[path - 1].name;
    return true;
}

/* ---- one batch */

/* Numbers of which zeros are only counted. */
typedef struct tokens {
    lp__wire wire;
    uint64_t zeros;
} tokens;

static bool get_token(tokens *t, uint64_t *value)
{
    if (t->zeros) {
        t->zeros--;
        *value = 0;
        return true;
    }
    if (!lp__wire_varint(&t->wire, value))
        return false;
    return *value != 0 || lp__wire_varint(&t->wire, &t->zeros);
}

static bool ended(const tokens *t)
{
    return t->zeros == 0 && t->wire.at == t->wire.end && !t->wire.problem;
}

static uint64_t from_zigzag(uint64_t v)
{
    return v >> 1 ^ (0 - (v & 1));
}

static const char *get_times(lp_samples *r, lp__wire in)
{
    tokens t = {.wire = in};
    r->time_us[0] = 0;
    for (uint32_t i = 1; i < r->batch.rows; i++) {
        uint64_t token;
        if (!get_token(&t, &token))
            return "a batch has fewer times than rows";
        uint64_t step = r->interval_ns / 1000 + from_zigzag(token);
        if (step > INT64_MAX || __builtin_add_overflow(r->time_us[i - 1], step, &r->time_us[i]) ||
            r->time_us[i] > INT64_MAX / 1000)
            return "a time of a batch is out of range";
    }
    return ended(&t) ? NULL : "a batch has more times than rows";
}

/* Grows at powers of two, so that no count is believed. */
static const char *add_share(lp_samples *r, uint32_t count, uint64_t path, uint64_t parts)
{
    if (path == 0 || path > r->path_count || parts == 0 || parts > LP_SAMPLE_WHOLE)
        return "a share of a batch has no path";
    lp_share *grown = lp_arena_grow(r->batch_arena, r->shares, count, sizeof *grown);
    if (!grown)
        return "out of memory";
    r->shares = grown;
    r->shares[count] = (lp_share){(uint32_t)path, (uint32_t)parts};
    return NULL;
}

static const char *get_shares(lp_samples *r, lp__wire in)
{
    tokens t = {.wire = in};
    uint32_t count = 0, before = 0;

    for (uint32_t i = 0; i < r->batch.rows; i++) {
        uint64_t token = 0, path, parts;
        uint32_t first = count;
        const char *problem;
        if (!get_token(&t, &token))
            return "a batch has fewer shares than rows";
        if (token > 1 + LP_SAMPLE_SHARES)
            return "a row of a batch has too many shares";
        if (token == 0) {
            for (uint32_t k = before; k < first; k++, count++)
                if ((problem = add_share(r, count, r->shares[k].path, r->shares[k].parts)) != NULL)
                    return problem;
        }
        uint32_t whole = 0;
        for (uint64_t k = 1; k < token; k++, count++) {
            if (!lp__wire_varint(&t.wire, &path) || !lp__wire_varint(&t.wire, &parts))
                return "a share of a batch is cut off";
            if ((problem = add_share(r, count, path, parts)) != NULL)
                return problem;
            whole += (uint32_t)parts;
        }
        if (whole > LP_SAMPLE_WHOLE)
            return "the shares of a row are more than all";
        before = first;
        r->share_end[i] = count;
    }
    return ended(&t) ? NULL : "a batch has more shares than rows";
}

static const lp_column_info *column_of(uint32_t number, unsigned *index)
{
    for (unsigned i = 0; i < LP_COLUMNS; i++)
        if (lp_column_table[i].number == number) {
            *index = i;
            return &lp_column_table[i];
        }
    return NULL;
}

typedef struct raw_column { /* as it stands in the file */
    uint32_t number, reason, step;
    int64_t first;
    bool has_runs, has_deltas; /* no deltas: all values equal the first */
    lp__wire runs, deltas;
} raw_column;

static const char *get_values(lp_samples *r, raw_column *raw, bool counter, int64_t *value)
{
    tokens t = {.wire = raw->deltas};
    uint64_t now = (uint64_t)raw->first, run = raw->has_runs ? 0 : r->batch.rows, token;
    bool with = raw->has_runs ? false : true, first = true;

    for (uint32_t i = 0; i < r->batch.rows; i++, run--) {
        while (run == 0) {
            if (!lp__wire_varint(&raw->runs, &run))
                return "a column of a batch has fewer runs than rows";
            with = !with;
            if (run > r->batch.rows - i || (run == 0 && i > 0))
                return "a run of a column of a batch is out of range";
        }
        if (!with) {
            value[i] = LP_UNKNOWN_I64;
            continue;
        }
        if (!first && raw->has_deltas) {
            if (!get_token(&t, &token))
                return "a column of a batch has fewer values than rows";
            uint64_t step = counter ? token : from_zigzag(token);
            if (counter && step > (uint64_t)INT64_MAX - now)
                return "a number of a batch is out of range";
            now += step;
        }
        first = false;
        if (now > INT64_MAX || __builtin_mul_overflow((int64_t)now, (int64_t)raw->step, &value[i]))
            return "a number of a batch is out of range";
    }
    return ended(&t) && raw->runs.at == raw->runs.end ? NULL : "a column of a batch has more values than rows";
}

static const char *get_column(lp_samples *r, lp__wire in)
{
    raw_column raw = {.step = 1, .runs = lp__wire_of("", 0), .deltas = lp__wire_of("", 0)};
    lp__field field;
    unsigned index = 0;

    while (lp__wire_next(&in, &field)) {
        switch (field.number) {
        case 1: lp__get_u32(&in, &field, &raw.number); break;
        case 2: lp__get_u32(&in, &field, &raw.reason); break;
        case 3:
            raw.runs = lp__wire_in(&in, &field);
            raw.has_runs = true;
            break;
        case 4: lp__get_sint(&in, &field, &raw.first); break;
        case 5:
            raw.deltas = lp__wire_in(&in, &field);
            raw.has_deltas = true;
            break;
        case 6: lp__get_u32(&in, &field, &raw.step); break;
        default: break;
        }
    }
    if (in.problem)
        return in.problem;
    if (raw.runs.problem || raw.deltas.problem)
        return "a field has the wrong type";
    const lp_column_info *info = column_of(raw.number, &index);
    if (!info)
        return NULL; /* of a newer version */
    if (r->batch.value[index])
        return "a column stands twice in a batch"; /* no file makes us take more memory than it has columns */
    r->batch.reason[index] = raw.reason;
    if (raw.reason != LP_REASON_NONE && !raw.has_runs)
        return NULL; /* none */
    int64_t *value = lp_arena_take(r->batch_arena, r->batch.rows * sizeof *value);
    if (!value)
        return "out of memory";
    r->batch.value[index] = value;
    return get_values(r, &raw, info->counter, value);
}

static const char *get_path(lp_samples *r, lp__wire in)
{
    uint32_t parent = 0;
    lp_str name = lp__empty;
    lp__field field;

    while (lp__wire_next(&in, &field)) {
        if (field.number == 1)
            lp__get_u32(&in, &field, &parent);
        else if (field.number == 2)
            lp__get_str(&in, &field, r->arena, &name);
    }
    if (in.problem)
        return in.problem;
    if (parent > r->path_count)
        return "a path of a batch has no parent";
    r->path_bytes += name.size + sizeof *r->paths;
    if (r->path_count >= LP_SAMPLE_PATHS || r->path_bytes > LP__SAMPLE_TOTAL_MAX)
        return "more paths than any file of this program has";
    struct sample_path *grown = lp_arena_grow(r->arena, r->paths, r->path_count, sizeof *grown);
    if (!grown)
        return "out of memory";
    r->paths = grown;
    r->paths[r->path_count].parent = parent;
    r->paths[r->path_count++].name = name;
    return NULL;
}

static bool is_list(const lp__field *field)
{
    return field->number == 6 || field->number == 7 || field->number == 9 || field->number == 10;
}

/* First the numbers, then what needs to know how many rows there are. */
static const char *get_batch(lp_samples *r, const lp__wire *body)
{
    lp_sample_batch *b = &r->batch;
    lp__wire wire = *body, times = lp__wire_of("", 0), shares = times;
    bool has_times = false, has_shares = false;
    const char *problem = NULL;
    uint64_t series = 0;
    lp__field field;

    *b = (lp_sample_batch){.label = lp__empty};
    for (unsigned i = 0; i < LP_COLUMNS; i++)
        b->reason[i] = LP_REASON_NEVER;
    while (lp__wire_next(&wire, &field)) {
        switch (field.number) {
        case 1: lp__get_uint(&wire, &field, &series); break;
        case 2: lp__get_u32(&wire, &field, &b->index); break;
        case 3: lp__get_str(&wire, &field, r->batch_arena, &b->label); break;
        case 4: lp__get_fixed64(&wire, &field, &b->unix_ns); break;
        case 5: lp__get_u32(&wire, &field, &b->rows); break;
        case 11: lp__get_fixed64(&wire, &field, &b->mono_ns); break;
        default:
            if (is_list(&field) && field.type != LP__BYTES)
                lp__wire_fail(&wire, &field, "a field has the wrong type");
        }
        if (field.number == 6) {
            times = lp__wire_in(&wire, &field);
            has_times = true;
        } else if (field.number == 9) {
            shares = lp__wire_in(&wire, &field);
            has_shares = true;
        }
    }
    if (wire.problem)
        return wire.problem;
    if (b->rows == 0 || b->rows > LP__SAMPLE_ROWS_MAX)
        return "a batch has no rows, or too many";
    if (b->unix_ns > INT64_MAX || b->mono_ns > INT64_MAX)
        return "a time of a batch is out of range";
    b->series = (lp_series)series;
    r->shares = NULL;
    r->time_us = lp_arena_take(r->batch_arena, b->rows * sizeof *r->time_us);
    r->share_end = lp_arena_take(r->batch_arena, b->rows * sizeof *r->share_end);
    if (!r->time_us || !r->share_end)
        return "out of memory";
    if (b->rows > 1 || has_times)
        problem = get_times(r, times);
    wire = *body;
    while (!problem && lp__wire_next(&wire, &field)) {
        if (field.number == 7)
            problem = get_path(r, lp__wire_in(&wire, &field));
        else if (field.number == 10)
            problem = get_column(r, lp__wire_in(&wire, &field));
    }
    if (!problem && has_shares)
        problem = get_shares(r, shares);
    b->time_us = r->time_us;
    b->shares = r->shares;
    b->share_end = r->share_end;
    return problem;
}

static lp_status lose(lp_samples *r, const char *why, const lp_sample_batch **batch)
{
    const unsigned char *bytes;
    size_t got;

    r->lost = why;
    if (r->fd < 0) {
        r->lost_bytes = r->at < r->memory_size ? r->memory_size - r->at : 0;
    } else { /* to the end, wherever that is by now */
        uint64_t start = r->at;
        while (fill(r, 1, &bytes, &got) && got > 0)
            r->at += got;
        r->lost_bytes = r->at - start;
        r->at = start;
    }
    *batch = NULL;
    return LP_OK;
}

lp_status lp_samples_next(lp_samples *r, const lp_sample_batch **batch, lp_error *error)
{
    lp__wire body;
    uint32_t field;
    size_t size;

    while (!*r->lost) {
        switch (next_record(r, &field, &body, &size)) {
        case RECORD: break;
        case END: *batch = NULL; return LP_OK;
        case TORN: return lose(r, "the last batch is cut off", batch);
        case DAMAGED: return lose(r, "a batch is damaged", batch);
        case TROUBLE: return errno == ENOMEM ? no_memory(r, error) : lp__fail_sys(error, errno, r->name, "read");
        }
        if (field != 3) /* new kinds of records would be new series: this is a changed bit */
            return lose(r, "a batch is damaged", batch);
        lp_arena_free(r->batch_arena);
        r->batch_arena = lp_arena_new();
        if (!r->batch_arena)
            return no_memory(r, error);
        uint32_t paths = r->path_count;
        const char *problem = get_batch(r, &body);
        if (problem) {
            r->path_count = paths;
            if (strcmp(problem, "out of memory") == 0)
                return no_memory(r, error);
            return lose(r, problem, batch);
        }
        r->at += size;
        if (r->batch.series < LP_SERIES_PROCESS || r->batch.series > LP_SERIES_PROCESS_GPU)
            continue; /* of a newer version: its paths count all the same */
        *batch = &r->batch;
        return LP_OK;
    }
    *batch = NULL;
    return LP_OK;
}
