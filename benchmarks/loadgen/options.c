#define _GNU_SOURCE
#include "options.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <getopt.h>
#include <netinet/in.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/un.h>

static const char USAGE[] =
    "usage: loadgen --port N | --unix PATH  --request FILE [options]\n"
    "  --host ADDRESS           IPv4 address of the server (127.0.0.1)\n"
    "  --request FILE           octets of one request, head and body; of the handshake for WebSockets\n"
    "  --mode MODE              http, echo, sessions, hold (http)\n"
    "  --websocket              with --mode hold: hold WebSockets\n"
    "  --connections N          at once (1)\n"
    "  --client-processes N     that share the connections (1)\n"
    "  --pipeline N             requests on their way on each connection (1)\n"
    "  --churn                  a fresh connection for each request\n"
    "  --rate R                 open loop: R exchanges per second (0: closed loop)\n"
    "  --warmup S  --duration S of load before, and of load that counts (0, 1)\n"
    "  --persistent-warmup      the connections of the warm-up are those that count\n"
    "  --connection-ramp S      seconds over which connections are opened (0)\n"
    "  --timeout S              for one answer, or one connect (10)\n"
    "  --read-rate OCTETS       slow readers: so many octets per second and connection\n"
    "  --message TEXT           of WebSockets; --messages N in one session (1)\n"
    "  --expect-status N        (200; 101 for WebSockets)\n"
    "  --expect-length N        octets of the body\n"
    "  --expect-sha256 HEX      of the body\n"
    "  --expect-field 'N: V'    repeatable\n"
    "  --check-every N          one response in N is checked exactly while timed (64)\n"
    "  --max-latency-samples N  a stratified reservoir of N (0: all are kept)\n"
    "  --seed N                 of the reservoir (1)\n"
    "  --sources N              source addresses in 127.0.0.0/8 (0: as many as the connections need)\n";

static void refuse(const char *format, ...) {
    va_list arguments;

    va_start(arguments, format);
    fprintf(stderr, "loadgen: ");
    vfprintf(stderr, format, arguments);
    fprintf(stderr, "\n");
    va_end(arguments);
    exit(2);
}

static double number(const char *option, const char *text, double least) {
    char *end;
    double value = strtod(text, &end);

    if (end == text || *end || !(value >= least))
        refuse("--%s %s: give a number of at least %g", option, text, least);
    return value;
}

static void read_request(struct plan *plan, const char *path) {
    FILE *file = fopen(path, "rb");

    if (!file)
        refuse("--request %s: cannot be read", path);
    fseek(file, 0, SEEK_END);
    plan->request_size = (size_t)ftell(file);
    rewind(file);
    plan->request = malloc(plan->request_size + 1);
    if (!plan->request || fread(plan->request, 1, plan->request_size, file) != plan->request_size ||
        !plan->request_size)
        refuse("--request %s: cannot be read, or is empty", path);
    fclose(file);
}

static void read_digest(struct plan *plan, const char *hex) {
    if (strlen(hex) != 2 * SHA256_SIZE || strspn(hex, "0123456789abcdef") != 2 * SHA256_SIZE)
        refuse("--expect-sha256 %s: give 64 digits in lower case", hex);
    for (int i = 0; i < SHA256_SIZE; i++)
        sscanf(hex + 2 * i, "%2hhx", &plan->expected.digest[i]);
    plan->expected.has_digest = true;
}

static void read_expected_field(struct plan *plan, const char *text) {
    struct expectation *expected = &plan->expected;
    char *name = strdup(text), *colon = strchr(name, ':');

    if (!colon || expected->field_count == EXPECTED_FIELDS)
        refuse("--expect-field %s: give 'name: value', at most %d of them", text, EXPECTED_FIELDS);
    *colon = 0;
    for (char *c = name; *c; c++)
        *c = (char)tolower((unsigned char)*c);
    expected->names[expected->field_count] = name;
    expected->values[expected->field_count++] = colon + 1 + strspn(colon + 1, " \t");
}

static void read_mode(struct plan *plan, const char *name) {
    static const char *const names[] = {"http", "echo", "sessions", "hold"};

    for (int i = 0; i < 4; i++) {
        if (strcmp(name, names[i]) == 0) {
            plan->mode = (enum mode)i;
            plan->websocket |= plan->mode == MODE_ECHO || plan->mode == MODE_SESSIONS;
            return;
        }
    }
    refuse("--mode %s: choose from http, echo, sessions, hold", name);
}

static void set_unix(struct plan *plan, const char *path) {
    struct sockaddr_un *address = (struct sockaddr_un *)&plan->address;

    if (strlen(path) >= sizeof address->sun_path)
        refuse("--unix %s: the path is too long", path);
    address->sun_family = AF_UNIX;
    strcpy(address->sun_path, path);
    plan->address_size = sizeof *address;
}

static void set_tcp(struct plan *plan, const char *host, unsigned port) {
    struct sockaddr_in *address = (struct sockaddr_in *)&plan->address;

    address->sin_family = AF_INET;
    address->sin_port = htons((uint16_t)port);
    if (!inet_aton(host, &address->sin_addr))
        refuse("--host %s: give an IPv4 address", host);
    plan->address_size = sizeof *address;
    if ((ntohl(address->sin_addr.s_addr) >> 24) != 127) {
        if (plan->sources > 1)
            refuse("--sources %u: they are loopback addresses, and %s is not", plan->sources, host);
        plan->sources = 1;
    }
}

static const struct option OPTIONS[] = {
    {"host", 1, 0, 'h'},     {"port", 1, 0, 'p'},        {"unix", 1, 0, 'u'},          {"request", 1, 0, 'q'},
    {"mode", 1, 0, 'm'},     {"websocket", 0, 0, 'w'},   {"connections", 1, 0, 'c'},   {"client-processes", 1, 0, 'P'},
    {"pipeline", 1, 0, 'l'}, {"churn", 0, 0, 'C'},       {"rate", 1, 0, 'r'},          {"warmup", 1, 0, 'W'},
    {"duration", 1, 0, 'd'}, {"persistent-warmup", 0, 0, 'k'}, {"connection-ramp", 1, 0, 'R'}, {"timeout", 1, 0, 't'},
    {"read-rate", 1, 0, 'b'}, {"message", 1, 0, 'g'},    {"messages", 1, 0, 'G'},      {"expect-status", 1, 0, '1'},
    {"expect-length", 1, 0, '2'}, {"expect-sha256", 1, 0, '3'}, {"expect-field", 1, 0, '4'}, {"check-every", 1, 0, '5'},
    {"max-latency-samples", 1, 0, 'n'}, {"seed", 1, 0, 's'}, {"sources", 1, 0, 'S'},   {"help", 0, 0, '?'},
    {0, 0, 0, 0},
};

/* The options that are plain numbers of the plan. */
static bool read_number(struct plan *plan, int letter, const char *name, const char *value) {
    switch (letter) {
    case 'c': plan->connections = (unsigned)number(name, value, 1); return true;
    case 'P': plan->processes = (unsigned)number(name, value, 1); return true;
    case 'l': plan->pipeline = (unsigned)number(name, value, 1); return true;
    case 'r': plan->rate = number(name, value, 0); return true;
    case 'W': plan->warmup = number(name, value, 0); return true;
    case 'd': plan->duration = number(name, value, 0.01); return true;
    case 'R': plan->ramp = number(name, value, 0); return true;
    case 't': plan->timeout = number(name, value, 0.01); return true;
    case 'b': plan->read_rate = number(name, value, 1); return true;
    case 'G': plan->messages = (unsigned)number(name, value, 1); return true;
    case '1': plan->expected.status = (int)number(name, value, 100); return true;
    case '2': plan->expected.length = (int64_t)number(name, value, 0); return true;
    case '5': plan->check_every = (unsigned)number(name, value, 1); return true;
    case 'n': plan->max_samples = (uint64_t)number(name, value, SAMPLE_STRATA); return true;
    case 's': plan->seed = (uint64_t)number(name, value, 0); return true;
    case 'S': plan->sources = (unsigned)number(name, value, 0); return true;
    default: return false;
    }
}

static void set_defaults(struct plan *plan) {
    memset(plan, 0, sizeof *plan);
    plan->connections = plan->processes = plan->pipeline = plan->messages = 1;
    plan->duration = 1;
    plan->timeout = 10;
    plan->check_every = 64;
    plan->seed = 1;
    plan->expected.status = 200;
    plan->expected.length = -1;
    plan->message = "a message of thirty-two octets!!";
}

/* What cannot go together, and what follows from the rest. */
static void settle(struct plan *plan) {
    if (!plan->request)
        refuse("--request is missing\n%s", USAGE);
    if (!plan->address_size)
        refuse("give --port or --unix\n%s", USAGE);
    if (plan->processes > plan->connections)
        refuse("--client-processes %u: more than the connections", plan->processes);
    if (plan->pipeline > 1 && (plan->churn || plan->rate > 0 || plan->mode != MODE_HTTP))
        refuse("--pipeline goes with a closed loop on connections that are kept");
    if (plan->rate > 0 && plan->mode != MODE_HTTP && plan->mode != MODE_ECHO)
        refuse("--rate goes with --mode http and --mode echo");
    if (plan->churn && plan->mode != MODE_HTTP)
        refuse("--churn goes with --mode http");
    if (plan->read_rate > 0 && plan->websocket)
        refuse("--read-rate goes with --mode http");
    if (plan->websocket)
        plan->expected.status = 101;
    if (!plan->sources)
        plan->sources = plan->churn || plan->mode == MODE_SESSIONS ? 64 : 1 + plan->connections / 4000;
    plan->message_size = strlen(plan->message);
}

void options_read(int argc, char **argv, struct plan *plan) {
    const char *host = "127.0.0.1", *path = NULL;
    unsigned port = 0;
    int letter, index = 0;

    set_defaults(plan);
    while ((letter = getopt_long(argc, argv, "", OPTIONS, &index)) != -1) {
        if (letter == '?')
            refuse("see the options below\n%s", USAGE);
        if (read_number(plan, letter, OPTIONS[index].name, optarg))
            continue;
        switch (letter) {
        case 'h': host = optarg; break;
        case 'p': port = (unsigned)number("port", optarg, 1); break;
        case 'u': path = optarg; break;
        case 'q': read_request(plan, optarg); break;
        case 'm': read_mode(plan, optarg); break;
        case 'w': plan->websocket = true; break;
        case 'C': plan->churn = true; break;
        case 'k': plan->persistent_warmup = true; break;
        case 'g': plan->message = optarg; break;
        case '3': read_digest(plan, optarg); break;
        case '4': read_expected_field(plan, optarg); break;
        }
    }
    if (path)
        set_unix(plan, path);
    else if (port)
        set_tcp(plan, host, port);
    settle(plan);
}
