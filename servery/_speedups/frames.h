/* Frames of a WebSocket's client: their heads are read, their content is unmasked (RFC 6455 section 5).
 *
 * No Python, no allocation, no globals. Pointer and length in, numbers out; the caller owns all memory, and no result points
 * into it.
 */
#ifndef SERVERY_FRAMES_H
#define SERVERY_FRAMES_H

#include <stddef.h>
#include <stdint.h>

enum { SV_MASK_SIZE = 4, SV_HEAD_MOST = 14, SV_CONTROL = 8, SV_CONTROL_SIZE = 125, SV_FIN = 0x80, SV_RSV1 = 0x40 };

typedef struct {
    uint64_t size;    /* octets of content; less than 2 ** 63 */
    uint32_t head;    /* octets of the head; its last four are the mask */
    uint8_t opcode;
    uint8_t final;
    uint8_t compressed; /* what RSV1 says */
} sv_frame;

/* What a frame may be, here. */
typedef struct {
    uint64_t room;      /* octets that a frame may add to a message that is not compressed */
    uint8_t deflates;   /* RSV1 has a meaning */
    uint8_t within;     /* a message is under way */
    uint8_t compressed; /* and it is compressed */
} sv_place;

enum {
    SV_FRAME = 0, /* `frame` is filled in */
    SV_MORE = 1,  /* what has come is no fault, and not the whole head */
    SV_FAULT = 2  /* a frame that must not be: the caller knows how to say why */
};

/* Read a head at `data`. A fault is found with the octet that makes it one. */
int sv_read_head(const uint8_t *data, size_t size, const sv_place *place, sv_frame *frame);

/* Write `size` octets of `data`, unmasked, to `out`, which may not overlap with it. Returns whether all of them are ASCII. */
int sv_unmask(uint8_t *out, const uint8_t *data, size_t size, const uint8_t mask[SV_MASK_SIZE]);

/* Write the head of an unmasked frame of ours to `out`, which has room for ten octets; returns how many they are. */
int sv_write_head(uint8_t *out, uint8_t first, uint64_t size);

#endif
