/* Runs a target of the fuzzers on inputs from stdin, without libFuzzer: each is its length, 4 octets big-endian, and its octets. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size);

int main(void) {
    uint8_t length[4];
    unsigned long count = 0;
    while (fread(length, 1, 4, stdin) == 4) {
        size_t size = (size_t)length[0] << 24 | (size_t)length[1] << 16 | (size_t)length[2] << 8 | length[3];
        uint8_t *input = malloc(size ? size : 1);
        if (!input || fread(input, 1, size, stdin) != size) return 2;
        LLVMFuzzerTestOneInput(input, size);
        free(input);
        count++;
    }
    printf("%lu\n", count);
    return 0;
}
