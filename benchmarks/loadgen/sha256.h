/* SHA-256 (FIPS 180-4), for the bodies that are checked. */
#ifndef LOADGEN_SHA256_H
#define LOADGEN_SHA256_H

#include <stddef.h>
#include <stdint.h>

#define SHA256_SIZE 32

struct sha256 {
    uint32_t state[8];
    uint64_t length;   /* octets so far */
    uint8_t block[64]; /* the unfinished block: length % 64 octets of it are filled */
};

void sha256_begin(struct sha256 *hash);
void sha256_add(struct sha256 *hash, const void *data, size_t size);
void sha256_end(struct sha256 *hash, uint8_t digest[SHA256_SIZE]);

#endif
