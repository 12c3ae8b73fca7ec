/* See frames.h. */
#include "frames.h"

#include <string.h>

/* Whether the first octet may stand here. */
static int may_begin(uint8_t first, const sv_place *place) {
    uint8_t opcode = first & 15;
    if (first & 0x30)
        return 0;
    if (opcode >= SV_CONTROL)
        return opcode <= 10 && (first & SV_FIN) && !(first & SV_RSV1);
    if (opcode == 0)
        return place->within && !(first & SV_RSV1);
    return opcode <= 2 && !place->within && (place->deflates || !(first & SV_RSV1));
}

static uint64_t big_endian(const uint8_t *data, uint32_t width) {
    uint64_t value = 0;
    for (uint32_t at = 0; at < width; at++)
        value = value << 8 | data[at];
    return value;
}

int sv_read_head(const uint8_t *data, size_t size, const sv_place *place, sv_frame *frame) {
    if (size < 2)
        return SV_MORE;
    uint8_t first = data[0], second = data[1];
    if (!may_begin(first, place) || second < 128)
        return SV_FAULT;
    uint32_t at = 2;
    frame->opcode = first & 15;
    frame->final = first >= SV_FIN;
    frame->compressed = (first & SV_RSV1) != 0;
    frame->size = second & 127;
    if (frame->size > SV_CONTROL_SIZE) {
        uint32_t width = frame->size == 126 ? 2 : 8;
        if (frame->opcode >= SV_CONTROL)
            return SV_FAULT;
        if (size < at + width)
            return SV_MORE;
        frame->size = big_endian(data + at, width);
        if (frame->size <= (width == 2 ? SV_CONTROL_SIZE : 0xFFFF) || frame->size >> 63)
            return SV_FAULT;
        at += width;
    }
    if (frame->opcode < SV_CONTROL) {
        int compressed = frame->opcode ? frame->compressed : place->compressed;
        if (!compressed && frame->size > place->room)
            return SV_FAULT;
    }
    if (size < at + SV_MASK_SIZE)
        return SV_MORE;
    frame->head = at + SV_MASK_SIZE;
    return SV_FRAME;
}

/* Words go through memcpy: nothing is aligned, and compilers make vectors of it. */
int sv_unmask(uint8_t *out, const uint8_t *data, size_t size, const uint8_t mask[SV_MASK_SIZE]) {
    uint64_t key, seen = 0;
    size_t at = 0;
    memcpy(&key, mask, SV_MASK_SIZE);
    memcpy((uint8_t *)&key + SV_MASK_SIZE, mask, SV_MASK_SIZE);
    for (; at + 8 <= size; at += 8) {
        uint64_t word;
        memcpy(&word, data + at, 8);
        word ^= key;
        seen |= word;
        memcpy(out + at, &word, 8);
    }
    for (; at < size; at++) {
        out[at] = data[at] ^ mask[at & 3];
        seen |= out[at];
    }
    return (seen & UINT64_C(0x8080808080808080)) == 0;
}

int sv_write_head(uint8_t *out, uint8_t first, uint64_t size) {
    int width = size <= SV_CONTROL_SIZE ? 0 : size <= 0xFFFF ? 2 : 8;
    out[0] = first;
    out[1] = width == 0 ? (uint8_t)size : width == 2 ? 126 : 127;
    for (int at = 0; at < width; at++)
        out[2 + at] = (uint8_t)(size >> 8 * (width - 1 - at));
    return 2 + width;
}
