/* The response parser of the client (RFC 9112): incremental, whatever the octets are cut into.
 *
 * It knows nothing of sockets and clocks. It frames exactly: Content-Length, chunked, until close, no body for 1xx, 204
 * and 304; what is ambiguous or malformed is BROKEN, with the reason in words.
 */
#ifndef LOADGEN_RESPONSE_H
#define LOADGEN_RESPONSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sha256.h"

#define RESPONSE_HEAD_LIMIT 65536 /* octets of a head; more is BROKEN */
#define EXPECTED_FIELDS 16        /* how many fields can be expected */

/* What a response has to be. */
struct expectation {
    int status;
    int64_t length; /* octets of the body; -1: any */
    bool has_digest;
    uint8_t digest[SHA256_SIZE];
    unsigned field_count;
    const char *names[EXPECTED_FIELDS]; /* lower case */
    const char *values[EXPECTED_FIELDS];
};

enum response_result { RESPONSE_MORE, RESPONSE_COMPLETE, RESPONSE_BROKEN };

enum response_state {
    IN_HEAD,
    IN_BODY,
    UNTIL_CLOSE,
    IN_CHUNK_SIZE,
    IN_CHUNK,
    AFTER_CHUNK,
    IN_TRAILERS,
};

struct response {
    enum response_state state;
    int status;
    bool keep_alive;
    bool chunked;
    uint64_t length;    /* octets of the body so far */
    uint64_t remaining; /* of the body or the chunk */
    const char *reason; /* why it is BROKEN */

    /* a head or a line that has not come whole */
    char *held;
    size_t held_size, held_room;

    /* set before the first octet when the response is checked exactly, else NULL */
    const struct expectation *expected;
    uint32_t fields_seen; /* one bit for each expected field that was met */
    struct sha256 hash;
};

/* Ready for the next response. `expected` asks for an exact check. Zeroed memory is a parser that never began. */
void response_begin(struct response *response, const struct expectation *expected);

/* Feeds octets; `used` says how many were of this response. After COMPLETE comes response_begin(). */
enum response_result response_feed(struct response *response, const char *data, size_t size, size_t *used);

/* The peer has closed. COMPLETE if that ends the body, MORE if nothing of a response had come. */
enum response_result response_close(struct response *response);

/* What a complete, checked response has that was not expected; NULL if it is as expected. */
const char *response_fault(struct response *response);

void response_free(struct response *response);

#endif
