#define _GNU_SOURCE
#include "response.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define LINE_LIMIT 4096 /* octets of a chunk-size line or of a trailer line */

static enum response_result broken(struct response *response, const char *reason) {
    response->reason = reason;
    return RESPONSE_BROKEN;
}

void response_begin(struct response *response, const struct expectation *expected) {
    response->state = IN_HEAD;
    response->status = 0;
    response->keep_alive = true;
    response->chunked = false;
    response->length = 0;
    response->remaining = 0;
    response->reason = NULL;
    response->held_size = 0;
    response->expected = expected;
    response->fields_seen = 0;
    if (expected)
        sha256_begin(&response->hash);
}

void response_free(struct response *response) {
    free(response->held);
    response->held = NULL;
    response->held_size = response->held_room = 0;
}

static bool hold(struct response *response, const char *data, size_t size) {
    size_t wanted = response->held_size + size;

    if (wanted > response->held_room) {
        char *grown = realloc(response->held, wanted * 2);
        if (!grown)
            return false;
        response->held = grown;
        response->held_room = wanted * 2;
    }
    memcpy(response->held + response->held_size, data, size);
    response->held_size = wanted;
    return true;
}

/* Everything up to and with `end`, from what is held and what has come. MORE keeps it; COMPLETE sets `whole`. */
static enum response_result collect(struct response *response, const char *end, size_t limit, const char *data,
                                    size_t size, size_t *used, const char **whole, size_t *whole_size) {
    size_t end_size = strlen(end);

    if (!response->held_size) {
        const char *found = memmem(data, size, end, end_size);
        if (found) {
            *whole = data;
            *whole_size = *used = (size_t)(found - data) + end_size;
            return *whole_size > limit ? broken(response, "a head or line beyond the limit") : RESPONSE_COMPLETE;
        }
    }
    size_t before = response->held_size, from = before > end_size ? before - end_size : 0;
    if (!hold(response, data, size))
        return broken(response, "out of memory");
    const char *found = memmem(response->held + from, response->held_size - from, end, end_size);
    if (!found) {
        *used = size;
        return response->held_size > limit ? broken(response, "a head or line beyond the limit") : RESPONSE_MORE;
    }
    *whole = response->held;
    *whole_size = (size_t)(found - response->held) + end_size;
    *used = *whole_size - before;
    response->held_size = 0;
    return *whole_size > limit ? broken(response, "a head or line beyond the limit") : RESPONSE_COMPLETE;
}

static bool same_word(const char *text, size_t size, const char *word) {
    return size == strlen(word) && strncasecmp(text, word, size) == 0;
}

/* Is `word` an element of a comma-separated list? */
static bool has_element(const char *list, size_t size, const char *word) {
    const char *end = list + size;

    while (list < end) {
        const char *comma = memchr(list, ',', (size_t)(end - list));
        const char *stop = comma ? comma : end;
        const char *from = list, *to = stop;
        while (from < to && (*from == ' ' || *from == '\t'))
            from++;
        while (to > from && (to[-1] == ' ' || to[-1] == '\t'))
            to--;
        if (same_word(from, (size_t)(to - from), word))
            return true;
        list = stop + 1;
    }
    return false;
}

static bool read_length(const char *text, size_t size, uint64_t *length) {
    *length = 0;
    if (!size || size > 18)
        return false;
    for (size_t i = 0; i < size; i++) {
        if (!isdigit((unsigned char)text[i]))
            return false;
        *length = *length * 10 + (uint64_t)(text[i] - '0');
    }
    return true;
}

static void meet_expected(struct response *response, const char *name, size_t name_size, const char *value,
                          size_t value_size) {
    for (unsigned i = 0; i < response->expected->field_count; i++) {
        const char *wanted = response->expected->values[i];
        if (same_word(name, name_size, response->expected->names[i]) && value_size == strlen(wanted) &&
            memcmp(value, wanted, value_size) == 0)
            response->fields_seen |= 1u << i;
    }
}

/* A bare CR or LF, or another control: some would take it for the end of the line (RFC 9112, section 2.2). */
static bool has_control(const char *text, size_t size) {
    for (size_t i = 0; i < size; i++)
        if ((unsigned char)text[i] < 0x20 && text[i] != '\t')
            return true;
    return false;
}

/* What framing needs to know of a head. */
struct framing {
    bool has_length;
    bool close, keep;
    uint64_t length;
};

static const char *read_field(struct response *response, const char *line, size_t size, struct framing *framing) {
    const char *colon = memchr(line, ':', size);
    const char *value, *end = line + size;
    uint64_t length;

    if (has_control(line, size) || !colon || colon == line || *line == ' ' || *line == '\t' || colon[-1] == ' ' || colon[-1] == '\t')
        return "a malformed field line";
    for (value = colon + 1; value < end && (*value == ' ' || *value == '\t');)
        value++;
    while (end > value && (end[-1] == ' ' || end[-1] == '\t'))
        end--;
    size_t name_size = (size_t)(colon - line), value_size = (size_t)(end - value);
    if (response->expected)
        meet_expected(response, line, name_size, value, value_size);
    if (same_word(line, name_size, "content-length")) {
        if (!read_length(value, value_size, &length))
            return "a malformed Content-Length";
        if (framing->has_length && length != framing->length)
            return "two Content-Lengths that differ";
        framing->has_length = true;
        framing->length = length;
    } else if (same_word(line, name_size, "transfer-encoding")) {
        if (response->chunked || !same_word(value, value_size, "chunked"))
            return "a Transfer-Encoding that is not chunked";
        response->chunked = true;
    } else if (same_word(line, name_size, "connection")) {
        framing->close |= has_element(value, value_size, "close");
        framing->keep |= has_element(value, value_size, "keep-alive");
    }
    return NULL;
}

/* The status line; returns where the next line begins, or NULL. */
static const char *read_status(struct response *response, const char *head, size_t size, bool *is_old) {
    const char *end = memmem(head, size, "\r\n", 2);

    if (!end || end - head < 12 || memcmp(head, "HTTP/1.", 7) != 0 || head[8] != ' ')
        return NULL;
    if (has_control(head, (size_t)(end - head)) || (end - head > 12 && head[12] != ' '))
        return NULL;
    if (head[7] != '0' && head[7] != '1')
        return NULL;
    for (int i = 9; i < 12; i++)
        if (!isdigit((unsigned char)head[i]))
            return NULL;
    *is_old = head[7] == '0';
    response->status = (head[9] - '0') * 100 + (head[10] - '0') * 10 + (head[11] - '0');
    return response->status >= 100 ? end + 2 : NULL;
}

/* After a head: which body follows? 101 ends the head like a response without a body. */
static enum response_result choose_body(struct response *response, const struct framing *framing) {
    bool bare = response->status < 200 || response->status == 204 || response->status == 304;

    if (response->chunked && framing->has_length)
        return broken(response, "both Content-Length and Transfer-Encoding");
    if (response->status < 200 && response->status != 101) {
        const struct expectation *expected = response->expected;
        response_begin(response, expected);
        return RESPONSE_MORE;
    }
    if (bare)
        return RESPONSE_COMPLETE;
    if (response->chunked) {
        response->state = IN_CHUNK_SIZE;
    } else if (framing->has_length) {
        response->state = IN_BODY;
        response->remaining = framing->length;
        if (!framing->length)
            return RESPONSE_COMPLETE;
    } else {
        response->state = UNTIL_CLOSE;
        response->keep_alive = false;
    }
    return RESPONSE_MORE;
}

static enum response_result read_head(struct response *response, const char *head, size_t size) {
    struct framing framing = {0};
    bool is_old = false;
    const char *line = read_status(response, head, size, &is_old), *end = head + size - 2;

    if (!line)
        return broken(response, "a malformed status line");
    while (line < end) {
        const char *stop = memmem(line, (size_t)(end - line + 2), "\r\n", 2);
        const char *fault = read_field(response, line, (size_t)(stop - line), &framing);
        if (fault)
            return broken(response, fault);
        line = stop + 2;
    }
    response->keep_alive = is_old ? framing.keep && !framing.close : !framing.close;
    return choose_body(response, &framing);
}

static size_t take_body(struct response *response, const char *data, size_t size) {
    size_t take = size;

    if (response->state != UNTIL_CLOSE) {
        take = size < response->remaining ? size : (size_t)response->remaining;
        response->remaining -= take;
    }
    response->length += take;
    if (response->expected)
        sha256_add(&response->hash, data, take);
    return take;
}

static enum response_result read_chunk_size(struct response *response, const char *line, size_t size) {
    size_t digits = 0;
    uint64_t value = 0;

    while (digits < size && isxdigit((unsigned char)line[digits])) {
        char c = (char)tolower((unsigned char)line[digits++]);
        value = value * 16 + (uint64_t)(c <= '9' ? c - '0' : c - 'a' + 10);
    }
    if (!digits || digits > 15 || (line[digits] != '\r' && line[digits] != ';'))
        return broken(response, "a malformed chunk size");
    response->remaining = value;
    response->state = value ? IN_CHUNK : IN_TRAILERS;
    return RESPONSE_MORE;
}

static enum response_result read_line(struct response *response, const char *line, size_t size) {
    if (response->state == IN_CHUNK_SIZE)
        return read_chunk_size(response, line, size);
    if (response->state == IN_TRAILERS)
        return size == 2 ? RESPONSE_COMPLETE : RESPONSE_MORE;
    if (size != 2)
        return broken(response, "a chunk that is longer than its size");
    response->state = IN_CHUNK_SIZE;
    return RESPONSE_MORE;
}

/* One step: the head, a line, or a piece of body. */
static enum response_result step(struct response *response, const char *data, size_t size, size_t *used) {
    const char *whole = NULL;
    size_t whole_size = 0;
    bool in_head = response->state == IN_HEAD;

    if (response->state == IN_BODY || response->state == IN_CHUNK || response->state == UNTIL_CLOSE) {
        *used = take_body(response, data, size);
        if (response->state == UNTIL_CLOSE || response->remaining)
            return RESPONSE_MORE;
        if (response->state == IN_BODY)
            return RESPONSE_COMPLETE;
        response->state = AFTER_CHUNK;
        return RESPONSE_MORE;
    }
    enum response_result result = collect(response, in_head ? "\r\n\r\n" : "\r\n",
                                          in_head ? RESPONSE_HEAD_LIMIT : LINE_LIMIT, data, size, used, &whole,
                                          &whole_size);
    if (result != RESPONSE_COMPLETE)
        return result;
    return in_head ? read_head(response, whole, whole_size) : read_line(response, whole, whole_size);
}

enum response_result response_feed(struct response *response, const char *data, size_t size, size_t *used) {
    enum response_result result = RESPONSE_MORE;

    *used = 0;
    while (*used < size && result == RESPONSE_MORE) {
        size_t taken = 0;
        result = step(response, data + *used, size - *used, &taken);
        *used += taken;
    }
    return result;
}

enum response_result response_close(struct response *response) {
    if (response->state == UNTIL_CLOSE)
        return RESPONSE_COMPLETE;
    if (response->state == IN_HEAD && !response->held_size)
        return RESPONSE_MORE;
    return broken(response, "closed within a response");
}

const char *response_fault(struct response *response) {
    const struct expectation *expected = response->expected;
    uint8_t digest[SHA256_SIZE];

    if (response->status != expected->status)
        return "status";
    if (expected->length >= 0 && response->length != (uint64_t)expected->length)
        return "length";
    if (response->fields_seen != (1u << expected->field_count) - 1)
        return "fields";
    if (!expected->has_digest)
        return NULL;
    sha256_end(&response->hash, digest);
    return memcmp(digest, expected->digest, SHA256_SIZE) == 0 ? NULL : "body";
}
