/* A libFuzzer target for the reader of frames: no fault of memory, and nothing but what a naive reader of RFC 6455 finds.
 *
 * Input: three octets that choose what was agreed on, where reading begins and the limit; then what a client sends. It is
 * read as a decoder does: a head, its content unmasked, the next head. Each head stands at the end of a block of its own
 * size, so that AddressSanitizer sees the first octet that is read beyond it, and is also read from every shorter block.
 *
 *     make fuzz ARGS="frames"                             thirty seconds
 *     make fuzz ARGS="frames -max_total_time=3600"
 */
#include "frames.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition)                                                     \
    do {                                                                     \
        if (!(condition)) {                                                  \
            fprintf(stderr, "line %d: not true: %s\n", __LINE__, #condition); \
            abort();                                                         \
        }                                                                    \
    } while (0)

/* A copy in a block of its own size. */
static uint8_t *copy_of(const uint8_t *data, size_t size) {
    uint8_t *copy = malloc(size ? size : 1);
    if (!copy) exit(2);
    if (size) memcpy(copy, data, size);
    return copy;
}

/* `count` bits of the data from bit `at` on, the first one the highest, as the figure in section 5.2 has them. */
static uint64_t bits(const uint8_t *data, size_t at, int count) {
    uint64_t value = 0;
    for (int index = 0; index < count; index++, at++) value = value << 1 | ((data[at / 8] >> (7 - at % 8)) & 1);
    return value;
}

/* Sections 5.2, 5.4 and 5.5, and section 6 of RFC 7692: whether the first octet may stand here. */
static int may_stand(const uint8_t *data, const sv_place *place) {
    uint64_t fin = bits(data, 0, 1), rsv1 = bits(data, 1, 1), rsv23 = bits(data, 2, 2);
    if (rsv23) return 0;
    switch (bits(data, 4, 4)) {
    case 0x0: return place->within && !rsv1;
    case 0x1:
    case 0x2: return !place->within && (!rsv1 || place->deflates);
    case 0x8:
    case 0x9:
    case 0xA: return fin && !rsv1;
    default: return 0;
    }
}

/* What sv_read_head should say, found slowly. */
static int read_head(const uint8_t *data, size_t size, const sv_place *place, sv_frame *frame) {
    if (size < 2) return SV_MORE;
    if (!may_stand(data, place) || !bits(data, 8, 1)) return SV_FAULT;
    uint64_t opcode = bits(data, 4, 4), length = bits(data, 9, 7);
    size_t before_mask = 2;
    if (length > 125 && opcode >= 8) return SV_FAULT;
    if (length == 126) {
        if (size < 4) return SV_MORE;
        length = bits(data, 16, 16);
        if (length < 126) return SV_FAULT;
        before_mask = 4;
    } else if (length == 127) {
        if (size < 10) return SV_MORE;
        length = bits(data, 16, 64);
        if (length < 65536 || length >= UINT64_C(1) << 63) return SV_FAULT;
        before_mask = 10;
    }
    int compressed = opcode == 0 ? place->compressed : (int)bits(data, 1, 1);
    if (opcode < 8 && !compressed && length > place->room) return SV_FAULT;
    if (size < before_mask + 4) return SV_MORE;
    *frame = (sv_frame){length, (uint32_t)before_mask + 4, (uint8_t)opcode, (uint8_t)bits(data, 0, 1), (uint8_t)bits(data, 1, 1)};
    return SV_FRAME;
}

static void compare(const sv_frame *seen, const sv_frame *right) {
    CHECK(seen->size == right->size);
    CHECK(seen->head == right->head);
    CHECK(seen->opcode == right->opcode);
    CHECK(!seen->final == !right->final);
    CHECK(!seen->compressed == !right->compressed);
}

/* Read the head that is at `data`, from blocks of every size up to that of the longest head and from a long one. */
static int check_head(const uint8_t *data, size_t size, const sv_place *place, sv_frame *frame) {
    int kind = SV_MORE, before = SV_MORE;
    sv_frame right;
    for (size_t length = 0; length <= size && length <= SV_HEAD_MOST + 2; length++) {
        uint8_t *block = copy_of(data, length);
        memset(frame, 0xa5, sizeof *frame);
        kind = sv_read_head(block, length, place, frame);
        CHECK(kind == read_head(block, length, place, &right));
        CHECK(before == SV_MORE || kind == before); /* more octets do not change what is known */
        if (kind == SV_FRAME) compare(frame, &right);
        before = kind;
        free(block);
    }
    if (size > SV_HEAD_MOST + 2) CHECK(sv_read_head(data, size, place, frame) == kind);
    return kind;
}

/* Unmask content that came, in a block that begins `shift` octets off any alignment. */
static void check_content(const uint8_t *data, size_t size, const uint8_t *mask, size_t shift) {
    uint8_t *in = copy_of(data - shift, size + shift), *out = malloc(size + 1);
    if (!out) exit(2);
    int ascii = 1;
    out[size] = 0x5a;
    int told = sv_unmask(out, in + shift, size, mask);
    for (size_t at = 0; at < size; at++) {
        CHECK(out[at] == (uint8_t)(data[at] ^ mask[at % 4]));
        if (out[at] >= 128) ascii = 0;
    }
    CHECK(out[size] == 0x5a);
    CHECK(!told == !ascii);
    free(in);
    free(out);
}

/* A head of ours is what a client would read, in its shortest form, and nothing is written behind it. */
static void check_written(uint8_t first, uint64_t size) {
    uint8_t head[12];
    memset(head, 0x5a, sizeof head);
    int width = sv_write_head(head, first, size);
    CHECK(width == (size < 126 ? 2 : size < 65536 ? 4 : 10));
    CHECK(head[0] == first);
    CHECK(head[1] == (size < 126 ? size : size < 65536 ? 126 : 127));
    if (width > 2) CHECK(bits(head, 16, (width - 2) * 8) == size);
    CHECK(head[width] == 0x5a);
}

/* Limits: the default one, small ones, none, and where numbers end. */
static uint64_t limit(uint8_t choice) {
    if (choice < 100) return 16777216;
    if (choice < 200) return (uint64_t)(choice - 100) * 7;
    return choice < 230 ? UINT64_C(1) << 63 : UINT64_C(1) << (choice - 200);
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size) {
    if (size < 3) return 0;
    uint64_t most = limit(input[2]), taken = 0;
    sv_place place = {most, input[0] & 1, (input[0] >> 1) & 1, (input[0] >> 1) & (input[0] >> 2) & 1};
    size_t at = 3;
    sv_frame frame;
    while (check_head(input + at, size - at, &place, &frame) == SV_FRAME) {
        const uint8_t *mask = input + at + frame.head - SV_MASK_SIZE;
        at += frame.head;
        size_t come = frame.size < size - at ? (size_t)frame.size : size - at;
        check_content(input + at, come, mask, input[1] % 3);
        check_written(input[at - 1], frame.size);
        at += come;
        if (frame.opcode >= SV_CONTROL) continue;
        if (frame.opcode) place.compressed = frame.compressed;
        place.within = !frame.final;
        taken = frame.final ? 0 : taken + frame.size;
        place.room = taken < most ? most - taken : 0;
    }
    return 0;
}
