/* WebSocket frames from the client's side (RFC 6455): what is sent is masked, what is read must not be. */
#ifndef LOADGEN_FRAMES_H
#define LOADGEN_FRAMES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FRAME_HEADER_MAX 14
#define FRAME_PAYLOAD_LIMIT (1u << 24)

enum opcode { OP_CONTINUATION = 0, OP_TEXT = 1, OP_BINARY = 2, OP_CLOSE = 8, OP_PING = 9, OP_PONG = 10 };

struct frame {
    enum opcode opcode;
    bool final;
    const char *payload;
    size_t size;
    size_t whole; /* octets with the header */
};

enum frame_result { FRAME_MORE, FRAME_WHOLE, FRAME_BROKEN };

/* Reads the frame at the beginning of `data`. */
enum frame_result frame_read(const char *data, size_t size, struct frame *frame);

/* Writes a masked frame to `to`, which has room for FRAME_HEADER_MAX + size octets; returns how many there are. */
size_t frame_write(char *to, enum opcode opcode, const char *payload, size_t size);

#endif
