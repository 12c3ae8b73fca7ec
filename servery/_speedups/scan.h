/* The head scanner: finds the parts of an ordinary request head, and leaves every other head to somebody else.
 *
 * No Python, no allocation, no globals that change. Pointer and length in, offsets out; the caller owns `data` and the
 * result points into nothing. The grammar is that of servery/grammar.py: CRLF only, one SP, token names, no folding.
 */
#ifndef SERVERY_SCAN_H
#define SERVERY_SCAN_H

#include <stddef.h>
#include <stdint.h>

#define SV_MAX_FIELDS 128

typedef struct {
    uint32_t line;       /* offset of the line */
    uint32_t name_len;   /* octets of the name, which begins the line */
    uint32_t value;      /* offset of the value, without whitespace around it */
    uint32_t value_len;
    uint32_t line_len;   /* octets of the line without CRLF */
} sv_field;

typedef struct {
    uint32_t method_len; /* the method begins the data */
    uint32_t target;     /* offset of the target, which begins with '/' */
    uint32_t target_len;
    uint32_t path_len;   /* octets of the target before '?', or all of them */
    uint32_t minor;      /* 0 or 1 */
    uint32_t count;      /* fields */
    uint32_t end;        /* octets of the head, with the empty line */
    int has_percent;     /* the path has a '%' */
    sv_field fields[SV_MAX_FIELDS];
} sv_head;

enum {
    SV_ORDINARY = 0, /* `head` is filled in */
    SV_OTHER = 1     /* incomplete, invalid, near a limit, or merely unusual: not decided here */
};

/* Scan a head at `data`. `most` is the number of octets up to the empty line, and `max_fields` the number of fields, from
 * which on limits have to be looked at more closely. */
int sv_scan_head(const uint8_t *data, size_t size, uint32_t most, uint32_t max_fields, sv_head *head);

/* The same in two steps: the request line, which returns where the fields start or 0, and the fields from there on. */
uint32_t sv_scan_line(const uint8_t *data, size_t size, uint32_t most, sv_head *head);
int sv_scan_fields(const uint8_t *data, size_t size, uint32_t most, uint32_t max_fields, uint32_t start, sv_head *head);

/* The name of the code path that scans field values on this machine: "avx2", "sse2", "neon" or "scalar". */
const char *sv_scan_path(void);

#endif
