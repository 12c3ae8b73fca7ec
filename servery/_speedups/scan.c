#include "scan.h"

#include <string.h>

/* What an octet may be part of. */
enum { TCHAR = 1, TARGET = 2, VALUE = 4 };

#define T (TCHAR | TARGET | VALUE) /* letters, digits and token punctuation are all of them */
#define V (TARGET | VALUE)
#define O VALUE
static const uint8_t octet_class[256] = {
    /* 00 */ 0, 0, 0, 0, 0, 0, 0, 0, 0, O, 0, 0, 0, 0, 0, 0,
    /* 10 */ 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    /* 20 */ O, T, V, TCHAR | VALUE, T, T, T, T, V, V, T, T, V, T, T, V,
    /* 30 */ T, T, T, T, T, T, T, T, T, T, V, V, V, V, V, V,
    /* 40 */ V, T, T, T, T, T, T, T, T, T, T, T, T, T, T, T,
    /* 50 */ T, T, T, T, T, T, T, T, T, T, T, V, V, V, T, T,
    /* 60 */ T, T, T, T, T, T, T, T, T, T, T, T, T, T, T, T,
    /* 70 */ T, T, T, T, T, T, T, T, T, T, T, V, T, V, T, 0,
    /* 80 */ O, O, O, O, O, O, O, O, O, O, O, O, O, O, O, O,
    /* 90 */ O, O, O, O, O, O, O, O, O, O, O, O, O, O, O, O,
    /* a0 */ O, O, O, O, O, O, O, O, O, O, O, O, O, O, O, O,
    /* b0 */ O, O, O, O, O, O, O, O, O, O, O, O, O, O, O, O,
    /* c0 */ O, O, O, O, O, O, O, O, O, O, O, O, O, O, O, O,
    /* d0 */ O, O, O, O, O, O, O, O, O, O, O, O, O, O, O, O,
    /* e0 */ O, O, O, O, O, O, O, O, O, O, O, O, O, O, O, O,
    /* f0 */ O, O, O, O, O, O, O, O, O, O, O, O, O, O, O, O,
};
#undef T
#undef V
#undef O

/* Where the first octet stands that cannot be in a field value: a control other than HTAB, so CR at the latest. */
/* SV_SCALAR asks for the plain code, which tests compare with the others. */
#if defined(__SSE2__) && !defined(SV_SCALAR)
#include <emmintrin.h>
#define SCAN_PATH "sse2"
static const uint8_t *skip_value(const uint8_t *at, const uint8_t *end) {
    const __m128i limit = _mm_set1_epi8(0x1f), del = _mm_set1_epi8(0x7f), tab = _mm_set1_epi8('\t');
    while (end - at >= 16) {
        __m128i octets = _mm_loadu_si128((const __m128i *)at);
        __m128i low = _mm_cmpeq_epi8(_mm_min_epu8(octets, limit), octets); /* unsigned octets <= 0x1f */
        __m128i bad = _mm_or_si128(_mm_andnot_si128(_mm_cmpeq_epi8(octets, tab), low), _mm_cmpeq_epi8(octets, del));
        int mask = _mm_movemask_epi8(bad);
        if (mask) return at + __builtin_ctz((unsigned)mask);
        at += 16;
    }
    while (at < end && octet_class[*at] & VALUE) at++;
    return at;
}
#elif defined(__aarch64__) && !defined(SV_SCALAR)
#include <arm_neon.h>
#define SCAN_PATH "neon"
static const uint8_t *skip_value(const uint8_t *at, const uint8_t *end) {
    const uint8x16_t space = vdupq_n_u8(0x20), del = vdupq_n_u8(0x7f), tab = vdupq_n_u8('\t');
    while (end - at >= 16) {
        uint8x16_t octets = vld1q_u8(at);
        uint8x16_t low = vbicq_u8(vcltq_u8(octets, space), vceqq_u8(octets, tab));
        if (vmaxvq_u8(vorrq_u8(low, vceqq_u8(octets, del)))) break;
        at += 16;
    }
    while (at < end && octet_class[*at] & VALUE) at++;
    return at;
}
#else
#define SCAN_PATH "scalar"
static const uint8_t *skip_value(const uint8_t *at, const uint8_t *end) {
    while (at < end && octet_class[*at] & VALUE) at++;
    return at;
}
#endif

const char *sv_scan_path(void) { return SCAN_PATH; }

static const uint8_t *skip_class(const uint8_t *at, const uint8_t *end, uint8_t kind) {
    while (at < end && octet_class[*at] & kind) at++;
    return at;
}

static int is_blank(uint8_t octet) { return octet == ' ' || octet == '\t'; }

/* method SP origin-form SP "HTTP/1." ("0" / "1") CRLF; returns what follows, or NULL. */
static const uint8_t *scan_request_line(const uint8_t *data, const uint8_t *end, sv_head *head) {
    const uint8_t *at = skip_class(data, end, TCHAR);
    head->method_len = (uint32_t)(at - data);
    if (at == data || end - at < 2 || at[0] != ' ' || at[1] != '/') return NULL;
    if (head->method_len == 7 && !memcmp(data, "CONNECT", 7)) return NULL;
    const uint8_t *target = ++at;
    head->has_percent = 0;
    for (; at < end && octet_class[*at] & TARGET && *at != '?'; at++) head->has_percent |= *at == '%';
    head->path_len = (uint32_t)(at - target);
    at = skip_class(at, end, TARGET);
    head->target = (uint32_t)(target - data);
    head->target_len = (uint32_t)(at - target);
    if (end - at < 11 || memcmp(at, " HTTP/1.", 8) || (at[8] != '0' && at[8] != '1')) return NULL;
    if (at[9] != '\r' || at[10] != '\n') return NULL;
    head->minor = at[8] - '0';
    return at + 11;
}

/* field-name ":" OWS field-value OWS CRLF; returns what follows, or NULL. */
static const uint8_t *scan_field(const uint8_t *data, const uint8_t *at, const uint8_t *end, sv_field *field) {
    const uint8_t *line = at;
    at = skip_class(at, end, TCHAR);
    if (at == line || at == end || *at != ':') return NULL;
    field->line = (uint32_t)(line - data);
    field->name_len = (uint32_t)(at - line);
    for (at++; at < end && is_blank(*at); at++) {
    }
    const uint8_t *value = at;
    at = skip_value(at, end);
    if (end - at < 2 || at[0] != '\r' || at[1] != '\n') return NULL;
    field->line_len = (uint32_t)(at - line);
    const uint8_t *last = at;
    while (last > value && is_blank(last[-1])) last--;
    field->value = (uint32_t)(value - data);
    field->value_len = (uint32_t)(last - value);
    return at + 2;
}

static const uint8_t *end_of(const uint8_t *data, size_t size, uint32_t most) {
    return data + (size < (size_t)most + 4 ? size : (size_t)most + 4);
}

uint32_t sv_scan_line(const uint8_t *data, size_t size, uint32_t most, sv_head *head) {
    const uint8_t *at = scan_request_line(data, end_of(data, size, most), head);
    return at ? (uint32_t)(at - data) : 0;
}

int sv_scan_fields(const uint8_t *data, size_t size, uint32_t most, uint32_t max_fields, uint32_t start, sv_head *head) {
    const uint8_t *end = end_of(data, size, most), *at = data + start;
    if (max_fields > SV_MAX_FIELDS) max_fields = SV_MAX_FIELDS;
    head->count = 0;
    while (end - at >= 2 && !(at[0] == '\r' && at[1] == '\n')) {
        if (head->count == max_fields) return SV_OTHER;
        at = scan_field(data, at, end, &head->fields[head->count]);
        if (!at) return SV_OTHER;
        head->count++;
    }
    if (end - at < 2 || !head->count) return SV_OTHER;
    head->end = (uint32_t)(at + 2 - data);
    return SV_ORDINARY;
}

int sv_scan_head(const uint8_t *data, size_t size, uint32_t most, uint32_t max_fields, sv_head *head) {
    uint32_t start = sv_scan_line(data, size, most, head);
    return start ? sv_scan_fields(data, size, most, max_fields, start, head) : SV_OTHER;
}
