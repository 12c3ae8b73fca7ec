#include "frames.h"

#include <string.h>

static uint64_t read_number(const char *from, int octets) {
    uint64_t number = 0;

    for (int i = 0; i < octets; i++)
        number = number << 8 | (uint8_t)from[i];
    return number;
}

enum frame_result frame_read(const char *data, size_t size, struct frame *frame) {
    if (size < 2)
        return FRAME_MORE;
    uint8_t first = (uint8_t)data[0], second = (uint8_t)data[1];
    uint64_t length = second & 0x7f;
    size_t header = length == 126 ? 4 : length == 127 ? 10 : 2;
    if (first & 0x70 || second & 0x80)
        return FRAME_BROKEN; /* an extension that was not agreed on, or a masked frame */
    if (size < header)
        return FRAME_MORE;
    if (header > 2)
        length = read_number(data + 2, (int)header - 2);
    if (length > FRAME_PAYLOAD_LIMIT)
        return FRAME_BROKEN;
    if (size < header + length)
        return FRAME_MORE;
    frame->opcode = first & 0x0f;
    frame->final = first & 0x80;
    frame->payload = data + header;
    frame->size = (size_t)length;
    frame->whole = header + (size_t)length;
    return FRAME_WHOLE;
}

size_t frame_write(char *to, enum opcode opcode, const char *payload, size_t size) {
    static const uint8_t mask[4] = {0x37, 0xfa, 0x21, 0x3d}; /* one mask is as good as another for a measurement */
    size_t at = 2;

    to[0] = (char)(0x80 | opcode);
    if (size < 126) {
        to[1] = (char)(0x80 | size);
    } else {
        int octets = size < 65536 ? 2 : 8;
        to[1] = (char)(0x80 | (octets == 2 ? 126 : 127));
        for (int i = octets - 1; i >= 0; i--)
            to[at++] = (char)((uint64_t)size >> (8 * i));
    }
    memcpy(to + at, mask, sizeof mask);
    at += sizeof mask;
    for (size_t i = 0; i < size; i++)
        to[at + i] = (char)((uint8_t)payload[i] ^ mask[i % 4]);
    return at + size;
}
