/* A libFuzzer target for the head scanner: no fault of memory, and nothing that a naive reader of the grammar would not find.
 *
 * Input: two octets that choose the limits, then the head. The data stand in a block of their own size, so that
 * AddressSanitizer sees the first octet that is read beyond them. The second reading below knows nothing of scan.c: it goes
 * line by line with the words of RFC 9112 and RFC 9110, slowly.
 *
 *     make fuzz                             thirty seconds
 *     make fuzz ARGS="-max_total_time=3600"
 */
#include "scan.h"

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

static int is_token(uint8_t octet) {
    return octet && ((octet >= '0' && octet <= '9') || (octet >= 'A' && octet <= 'Z') || (octet >= 'a' && octet <= 'z') ||
                     strchr("!#$%&'*+-.^_`|~", octet));
}

static int is_target(uint8_t octet) { return octet > 0x20 && octet < 0x7f && octet != '#'; }

static int is_text(uint8_t octet) { return octet == '\t' || (octet >= 0x20 && octet != 0x7f); }

/* Octets of the line at `at` up to its CRLF; -1 if there is none within `size`. A CR or LF elsewhere stays in the line. */
static long line_length(const uint8_t *data, size_t size, size_t at) {
    for (size_t end = at; end + 1 < size; end++)
        if (data[end] == '\r' && data[end + 1] == '\n') return (long)(end - at);
    return -1;
}

/* Whether `line` is a request line that the scanner may take, and its parts in `head`. */
static int read_request_line(const uint8_t *line, size_t length, sv_head *head) {
    size_t first = 0, second;
    while (first < length && line[first] != ' ') first++;
    if (first == 0 || first == length) return 0;
    for (size_t at = 0; at < first; at++)
        if (!is_token(line[at])) return 0;
    if (first == 7 && !memcmp(line, "CONNECT", 7)) return 0;
    second = first + 1;
    while (second < length && line[second] != ' ') second++;
    if (second == length || line[first + 1] != '/') return 0;
    head->has_percent = 0;
    head->path_len = (uint32_t)(second - first - 1);
    for (size_t at = first + 1, in_path = 1; at < second; at++) {
        if (!is_target(line[at])) return 0;
        if (line[at] == '?' && in_path) {
            in_path = 0;
            head->path_len = (uint32_t)(at - first - 1);
        }
        if (line[at] == '%' && in_path) head->has_percent = 1;
    }
    if (length - second != 9) return 0;
    if (memcmp(line + second, " HTTP/1.0", 9) && memcmp(line + second, " HTTP/1.1", 9)) return 0;
    head->method_len = (uint32_t)first;
    head->target = (uint32_t)first + 1;
    head->target_len = (uint32_t)(second - first - 1);
    head->minor = line[length - 1] - '0';
    return 1;
}

/* Whether the line of `length` octets at `at` is a field line, and its parts in `field`. */
static int read_field(const uint8_t *data, size_t at, size_t length, sv_field *field) {
    const uint8_t *line = data + at;
    size_t colon = 0, begin, end = length;
    while (colon < length && line[colon] != ':') colon++;
    if (colon == 0 || colon == length) return 0;
    for (size_t index = 0; index < colon; index++)
        if (!is_token(line[index])) return 0;
    for (size_t index = colon + 1; index < length; index++)
        if (!is_text(line[index])) return 0;
    begin = colon + 1;
    while (begin < end && (line[begin] == ' ' || line[begin] == '\t')) begin++;
    while (end > begin && (line[end - 1] == ' ' || line[end - 1] == '\t')) end--;
    *field = (sv_field){(uint32_t)at, (uint32_t)colon, (uint32_t)(at + begin), (uint32_t)(end - begin), (uint32_t)length};
    return 1;
}

/* What sv_scan_head should say, found slowly. */
static int read_head(const uint8_t *data, size_t size, size_t most, size_t max_fields, sv_head *head) {
    if (max_fields > SV_MAX_FIELDS) max_fields = SV_MAX_FIELDS;
    long length = line_length(data, size, 0);
    if (length < 0 || !read_request_line(data, (size_t)length, head)) return SV_OTHER;
    size_t at = (size_t)length + 2;
    head->count = 0;
    while ((length = line_length(data, size, at)) > 0) {
        if (head->count == max_fields || !read_field(data, at, (size_t)length, &head->fields[head->count])) return SV_OTHER;
        head->count++;
        at += (size_t)length + 2;
    }
    if (length < 0 || head->count == 0 || at + 2 > most + 4) return SV_OTHER;
    head->end = (uint32_t)at + 2;
    return SV_ORDINARY;
}

static void compare(const sv_head *seen, const sv_head *right, size_t size) {
    CHECK(seen->end <= size);
    CHECK(seen->end == right->end);
    CHECK(seen->method_len == right->method_len);
    CHECK(seen->target == right->target && seen->target_len == right->target_len);
    CHECK(seen->path_len == right->path_len);
    CHECK(seen->minor == right->minor);
    CHECK(!seen->has_percent == !right->has_percent);
    CHECK(seen->count == right->count);
    CHECK(!memcmp(seen->fields, right->fields, seen->count * sizeof(sv_field)));
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size) {
    static sv_head seen, right;
    if (size < 2) return 0;
    size_t most = input[0] < 128 ? 8192 : (size_t)(input[0] - 128) * 4;
    size_t max_fields = input[1] < 128 ? 100 : input[1];
    if (input[1] >= 200) max_fields = input[1] - 200;
    size -= 2;
    uint8_t *data = malloc(size ? size : 1);
    if (!data) return 0;
    memcpy(data, input + 2, size);
    memset(&seen, 0xa5, sizeof seen);
    int kind = sv_scan_head(data, size, (uint32_t)most, (uint32_t)max_fields, &seen);
    CHECK(kind == read_head(data, size, most, max_fields, &right));
    if (kind == SV_ORDINARY) compare(&seen, &right, size);
    free(data);
    return 0;
}
