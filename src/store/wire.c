#include "store/wire.h"

#include <stdlib.h>

void lp_buffer_free(lp_buffer *buffer)
{
    if (!buffer->borrowed)
        free(buffer->data);
    *buffer = (lp_buffer){0};
}

static bool reserve(lp_buffer *out, size_t more)
{
    if (out->failed || more > SIZE_MAX / 4 - out->size) {
        out->failed = true;
        return false;
    }
    if (out->size + more > out->capacity) {
        size_t capacity = out->capacity ? 2 * out->capacity : 4096;
        while (capacity < out->size + more)
            capacity *= 2;
        unsigned char *data = realloc(out->borrowed ? NULL : out->data, capacity);
        if (!data) {
            out->failed = true;
            return false;
        }
        if (out->borrowed)
            memcpy(data, out->data, out->size);
        out->borrowed = false;
        out->data = data;
        out->capacity = capacity;
    }
    return true;
}

void lp__put_raw(lp_buffer *out, const void *data, size_t size)
{
    if (size && reserve(out, size)) {
        memcpy(out->data + out->size, data, size);
        out->size += size;
    }
}

static unsigned encode_varint(unsigned char bytes[10], uint64_t value)
{
    unsigned n = 0;
    for (; value >= 0x80; value >>= 7)
        bytes[n++] = (unsigned char)(value | 0x80);
    bytes[n++] = (unsigned char)value;
    return n;
}

void lp__put_varint(lp_buffer *out, uint64_t value)
{
    unsigned char bytes[10];
    lp__put_raw(out, bytes, encode_varint(bytes, value));
}

static void put_tag(lp_buffer *out, uint32_t field, uint32_t type)
{
    lp__put_varint(out, (uint64_t)field << 3 | type);
}

void lp__put_uint(lp_buffer *out, uint32_t field, uint64_t value)
{
    if (value) {
        put_tag(out, field, LP__VARINT);
        lp__put_varint(out, value);
    }
}

void lp__put_sint(lp_buffer *out, uint32_t field, int64_t value)
{
    lp__put_uint(out, field, (uint64_t)value << 1 ^ (0 - (uint64_t)(value < 0)));
}

void lp__put_optional(lp_buffer *out, uint32_t field, int64_t value)
{
    if (value != LP_UNKNOWN_I64) {
        put_tag(out, field, LP__VARINT);
        lp__put_varint(out, (uint64_t)value);
    }
}

static void put_little(lp_buffer *out, uint64_t value, unsigned size)
{
    unsigned char bytes[8];
    for (unsigned i = 0; i < size; i++)
        bytes[i] = (unsigned char)(value >> (8 * i));
    lp__put_raw(out, bytes, size);
}

void lp__put_fixed64(lp_buffer *out, uint32_t field, uint64_t value)
{
    if (value) {
        put_tag(out, field, LP__FIXED64);
        put_little(out, value, 8);
    }
}

void lp__put_fixed32(lp_buffer *out, uint32_t field, uint32_t value)
{
    put_tag(out, field, LP__FIXED32);
    put_little(out, value, 4);
}

/* A text that no reader would take is cut, at the start of a character. */
static size_t sane_size(lp_str text)
{
    size_t size = text.size;

    if (size > LP__NAME_MAX) {
        size = LP__NAME_MAX;
        while (size > LP__NAME_MAX - 4 && ((unsigned char)text.data[size] & 0xc0) == 0x80)
            size--;
    }
    return size;
}

void lp__put_element(lp_buffer *out, uint32_t field, lp_str text)
{
    size_t size = sane_size(text);

    put_tag(out, field, LP__BYTES);
    lp__put_varint(out, size);
    lp__put_raw(out, text.data, size);
}

void lp__put_str(lp_buffer *out, uint32_t field, lp_str text)
{
    if (text.size)
        lp__put_element(out, field, text);
}

size_t lp__put_open(lp_buffer *out, uint32_t field)
{
    put_tag(out, field, LP__BYTES);
    lp__put_raw(out, "", 1); /* the length, while it is below 128 */
    return out->size;
}

void lp__put_close(lp_buffer *out, size_t mark)
{
    unsigned char bytes[10];

    if (out->failed)
        return;
    size_t size = out->size - mark;
    unsigned n = encode_varint(bytes, size);
    if (n > 1) {
        if (!reserve(out, n - 1))
            return;
        memmove(out->data + mark + n - 1, out->data + mark, size);
        out->size += n - 1;
    }
    memcpy(out->data + mark - 1, bytes, n);
}

/* ---- reading */

lp__wire lp__wire_of(const void *data, size_t size)
{
    const unsigned char *bytes = size ? data : (const unsigned char *)"";
    return (lp__wire){.base = bytes, .at = bytes, .end = bytes + size};
}

lp__wire lp__wire_in(const lp__wire *outer, const lp__field *field)
{
    const unsigned char *bytes = (const unsigned char *)field->bytes.data;
    lp__wire inner = {.base = outer->base, .at = bytes, .end = bytes + field->bytes.size};
    if (field->type != LP__BYTES) {
        inner.at = inner.end = field->start;
        lp__wire_fail(&inner, field, "a field has the wrong type");
    }
    return inner;
}

static bool fail_at(lp__wire *wire, const unsigned char *where, const char *problem, bool cut)
{
    if (!wire->problem) {
        wire->problem = problem;
        wire->where = where;
        wire->cut = cut;
    }
    wire->at = wire->end;
    return false;
}

bool lp__wire_fail(lp__wire *wire, const lp__field *field, const char *problem)
{
    return fail_at(wire, field ? field->start : wire->at, problem, false);
}

bool lp__wire_done(lp__wire *outer, const lp__wire *inner)
{
    return !inner->problem || fail_at(outer, inner->where, inner->problem, inner->cut);
}

bool lp__wire_varint(lp__wire *wire, uint64_t *value)
{
    const unsigned char *start = wire->at;
    uint64_t v = 0;

    for (unsigned shift = 0; shift < 70; shift += 7) {
        if (wire->at == wire->end)
            return fail_at(wire, start, "a number is cut off", true);
        unsigned char byte = *wire->at++;
        if (shift == 63 && byte > 1)
            break;
        v |= (uint64_t)(byte & 0x7f) << shift;
        if (!(byte & 0x80)) {
            *value = v;
            return true;
        }
    }
    return fail_at(wire, start, "a number has more than 64 bits", false);
}

bool lp__wire_next(lp__wire *wire, lp__field *field)
{
    uint64_t tag, size;

    if (wire->problem || wire->at == wire->end)
        return false;
    *field = (lp__field){.start = wire->at, .bytes = lp__empty};
    if (!lp__wire_varint(wire, &tag))
        return false;
    if (tag >> 3 == 0 || tag >> 3 > 0x1fffffff)
        return fail_at(wire, field->start, "a field number is out of range", false);
    field->number = (uint32_t)(tag >> 3);
    field->type = (uint32_t)(tag & 7);
    switch (field->type) {
    case LP__VARINT: return lp__wire_varint(wire, &field->value);
    case LP__FIXED64:
    case LP__FIXED32:
        size = field->type == LP__FIXED64 ? 8 : 4;
        if ((size_t)(wire->end - wire->at) < size)
            return fail_at(wire, field->start, "a number is cut off", true);
        for (unsigned i = 0; i < size; i++)
            field->value |= (uint64_t)*wire->at++ << (8 * i);
        return true;
    case LP__BYTES:
        if (!lp__wire_varint(wire, &size))
            return false;
        if (size > (uint64_t)(wire->end - wire->at))
            return fail_at(wire, field->start, "a field is longer than what is left", true);
        field->bytes = (lp_str){(const char *)wire->at, (size_t)size};
        wire->at += size;
        return true;
    default: return fail_at(wire, field->start, "a field has an unknown type", false);
    }
}

static bool typed(lp__wire *wire, const lp__field *field, uint32_t type)
{
    return field->type == type || lp__wire_fail(wire, field, "a field has the wrong type");
}

bool lp__get_uint(lp__wire *wire, const lp__field *field, uint64_t *value)
{
    if (!typed(wire, field, LP__VARINT))
        return false;
    *value = field->value;
    return true;
}

bool lp__get_u32(lp__wire *wire, const lp__field *field, uint32_t *value)
{
    if (!typed(wire, field, LP__VARINT))
        return false;
    if (field->value > UINT32_MAX)
        return lp__wire_fail(wire, field, "a number is out of range");
    *value = (uint32_t)field->value;
    return true;
}

bool lp__get_sint(lp__wire *wire, const lp__field *field, int64_t *value)
{
    if (!typed(wire, field, LP__VARINT))
        return false;
    *value = (int64_t)(field->value >> 1 ^ (0 - (field->value & 1)));
    return true;
}

bool lp__get_int(lp__wire *wire, const lp__field *field, int64_t *value)
{
    if (!typed(wire, field, LP__VARINT))
        return false;
    *value = (int64_t)field->value;
    return true;
}

bool lp__get_fixed64(lp__wire *wire, const lp__field *field, uint64_t *value)
{
    if (!typed(wire, field, LP__FIXED64))
        return false;
    *value = field->value;
    return true;
}

bool lp__get_bool(lp__wire *wire, const lp__field *field, bool *value)
{
    if (!typed(wire, field, LP__VARINT))
        return false;
    *value = field->value != 0;
    return true;
}

bool lp__get_bytes(lp__wire *wire, const lp__field *field, lp_str *borrowed)
{
    if (!typed(wire, field, LP__BYTES))
        return false;
    if (field->bytes.size > LP__NAME_MAX)
        return lp__wire_fail(wire, field, "a text is longer than 1 MiB");
    *borrowed = field->bytes;
    return true;
}

bool lp__get_str(lp__wire *wire, const lp__field *field, lp_arena *arena, lp_str *copy)
{
    lp_str borrowed;

    if (!lp__get_bytes(wire, field, &borrowed))
        return false;
    lp_str made = lp_arena_str(arena, borrowed.data, borrowed.size);
    if (!made.data)
        return lp__wire_fail(wire, field, "out of memory");
    *copy = made;
    return true;
}
