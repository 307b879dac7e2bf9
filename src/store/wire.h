/* Protobuf wire format, as far as our schema needs it: varints, zigzag, 64- and 32-bit numbers, bytes, messages.
 *
 * Writing appends to an lp_buffer whose failure is sticky: check `failed` once at the end. Numbers that are zero and
 * texts that are empty are left out, as proto3 does. Reading walks the fields of one message; a reader that met
 * nonsense has `problem` set and yields nothing more. */
#ifndef LP_STORE_WIRE_H
#define LP_STORE_WIRE_H

#include "store/internal.h"
#include "store/snapshot.h"
#include "store/track.h"

enum { LP__VARINT = 0, LP__FIXED64 = 1, LP__BYTES = 2, LP__FIXED32 = 5 };

void lp__put_raw(lp_buffer *out, const void *data, size_t size);
void lp__put_varint(lp_buffer *out, uint64_t value);
void lp__put_uint(lp_buffer *out, uint32_t field, uint64_t value);
void lp__put_sint(lp_buffer *out, uint32_t field, int64_t value);     /* zigzag */
void lp__put_optional(lp_buffer *out, uint32_t field, int64_t value); /* `optional int64`: left out if unknown */
void lp__put_fixed64(lp_buffer *out, uint32_t field, uint64_t value);
void lp__put_fixed32(lp_buffer *out, uint32_t field, uint32_t value); /* also when zero */
void lp__put_str(lp_buffer *out, uint32_t field, lp_str text);
void lp__put_element(lp_buffer *out, uint32_t field, lp_str text); /* of a repeated field: also when empty */
/* A message of a length not yet known: open, append its fields, close with the mark. */
size_t lp__put_open(lp_buffer *out, uint32_t field);
void lp__put_close(lp_buffer *out, size_t mark);

typedef struct lp__wire {
    const unsigned char *base; /* of the whole file, for offsets */
    const unsigned char *at, *end;
    const char *problem;        /* static text, NULL while all is well */
    const unsigned char *where; /* the byte that it is about */
    bool cut;                   /* the problem is that the bytes end */
} lp__wire;

typedef struct lp__field {
    uint32_t number, type;
    uint64_t value;             /* varint, fixed */
    lp_str bytes;               /* LP__BYTES; borrowed from the file */
    const unsigned char *start; /* of the tag */
} lp__field;

lp__wire lp__wire_of(const void *data, size_t size);
/* The message inside a field of `outer`. */
lp__wire lp__wire_in(const lp__wire *outer, const lp__field *field);
bool lp__wire_next(lp__wire *wire, lp__field *field);
bool lp__wire_varint(lp__wire *wire, uint64_t *value);
/* Sets the problem (the first one stays) at the field; returns false. */
bool lp__wire_fail(lp__wire *wire, const lp__field *field, const char *problem);
/* The problem of an inner message becomes the outer's; returns false if there is one. */
bool lp__wire_done(lp__wire *outer, const lp__wire *inner);

/* Value of a field; a wrong type or a value beyond the limit is a problem. */
bool lp__get_uint(lp__wire *wire, const lp__field *field, uint64_t *value);
bool lp__get_u32(lp__wire *wire, const lp__field *field, uint32_t *value);
bool lp__get_sint(lp__wire *wire, const lp__field *field, int64_t *value);
bool lp__get_int(lp__wire *wire, const lp__field *field, int64_t *value);
bool lp__get_fixed64(lp__wire *wire, const lp__field *field, uint64_t *value);
bool lp__get_bool(lp__wire *wire, const lp__field *field, bool *value);
bool lp__get_bytes(lp__wire *wire, const lp__field *field, lp_str *borrowed);
bool lp__get_str(lp__wire *wire, const lp__field *field, lp_arena *arena, lp_str *copy);

/* CRC-32C (Castagnoli, as iSCSI and ext4 use it). Start with 0; may be continued. */
uint32_t lp__crc32c(uint32_t crc, const void *data, size_t size);

/* Identity message, without the tag and length of a field around it. */
void lp__put_identity(lp_buffer *out, const lp_identity *id);
bool lp__get_identity(lp__wire *wire, lp_arena *arena, lp_identity *id);

/* Moments and steps of a track, as repeated fields of these numbers. What a track has no room for, or is out of order, is left out. */
void lp__put_track(lp_buffer *out, uint32_t moments, uint32_t steps, const lp_track *track);
bool lp__get_moment(lp__wire *wire, const lp__field *field, lp_track *track);
bool lp__get_step(lp__wire *wire, const lp__field *field, lp_track *track);

#endif
