#include "output.h"

#include <stdlib.h>
#include <string.h>

typedef unsigned long long wide;

static const char *const FAILURE_NAMES[FAILURES] = {
    "connect", "ports", "reset", "timeout", "protocol", "status", "length", "fields", "body",
};

/* Quantiles of the latency curve: every hundredth, then towards 1 in steps of a tenth of what is left. */
static const double TAIL[] = {0.991, 0.992, 0.993, 0.994, 0.995, 0.996, 0.997, 0.998, 0.999, 0.9995, 0.9999, 1};

void output_text(FILE *out, const char *text, size_t size) {
    fputc('"', out);
    for (size_t i = 0; i < size; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c == '"' || c == '\\')
            fprintf(out, "\\%c", c);
        else if (c < 0x20 || c > 0x7e)
            fprintf(out, "\\u%04x", c);
        else
            fputc(c, out);
    }
    fputc('"', out);
}

static void add(struct counts *sum, const struct counts *part) {
    sum->completed += part->completed;
    sum->sent += part->sent;
    sum->checked += part->checked;
    sum->read_octets += part->read_octets;
    sum->body_octets += part->body_octets;
    sum->written_octets += part->written_octets;
    sum->connects += part->connects;
    sum->reconnects += part->reconnects;
    sum->sessions += part->sessions;
    for (int i = 0; i < FAILURES; i++)
        sum->failed[i] += part->failed[i];
    for (int i = 0; i < 1000; i++)
        sum->statuses[i] += part->statuses[i];
}

static void output_counts(FILE *out, const struct counts *counts) {
    const char *comma = "";

    fprintf(out,
            "{\"completed\": %llu, \"sent\": %llu, \"checked\": %llu, \"read_octets\": %llu, \"body_octets\": %llu, "
            "\"written_octets\": %llu, \"connects\": %llu, \"reconnects\": %llu, \"sessions\": %llu, \"failed\": {",
            (wide)counts->completed, (wide)counts->sent, (wide)counts->checked, (wide)counts->read_octets,
            (wide)counts->body_octets, (wide)counts->written_octets, (wide)counts->connects,
            (wide)counts->reconnects, (wide)counts->sessions);
    for (int i = 0; i < FAILURES; i++)
        fprintf(out, "%s\"%s\": %llu", i ? ", " : "", FAILURE_NAMES[i], (wide)counts->failed[i]);
    fprintf(out, "}, \"statuses\": {");
    for (int i = 0; i < 1000; i++) {
        if (!counts->statuses[i])
            continue;
        fprintf(out, "%s\"%d\": %llu", comma, i, (wide)counts->statuses[i]);
        comma = ", ";
    }
    fprintf(out, "}}");
}

static void output_quantile(FILE *out, double quantile, uint64_t nanoseconds, const char *comma) {
    fprintf(out, "%s[%g, %.1f]", comma, quantile, (double)nanoseconds / 1e3);
}

/* One pass over the sorted values writes the whole curve: quantile, microseconds. */
static void output_curve(FILE *out, const struct weighted *values, uint64_t count, double total) {
    unsigned tail = sizeof TAIL / sizeof *TAIL, point = 0;
    double sum = 0;

    for (uint64_t i = 0; i < count; i++) {
        sum += values[i].weight;
        while (point < 100 + tail - 1) {
            double quantile = point < 99 ? (point + 1) / 100.0 : TAIL[point - 99];
            if (sum < quantile * total * (1 - 1e-12))
                break;
            output_quantile(out, quantile, values[i].value, point++ ? ", " : "");
        }
    }
}

static void output_latency(FILE *out, const struct plan *plan, struct samples *const *samples) {
    uint64_t kept = 0, seen = 0, lost = 0;
    static const double quantiles[] = {0.5, 0.9, 0.99, 0.999, 1};
    static const char *const names[] = {"p50_us", "p90_us", "p99_us", "p99_9_us", "max_us"};

    for (unsigned i = 0; i < plan->processes; i++) {
        kept += samples_kept(samples[i]);
        lost += samples[i]->lost;
        for (unsigned j = 0; j < SAMPLE_STRATA; j++)
            seen += samples[i]->strata[j].seen;
    }
    struct weighted *values = malloc((kept + 1) * sizeof *values);
    uint64_t taken = 0;
    for (unsigned i = 0; values && i < plan->processes; i++)
        taken += samples_take(samples[i], values + taken);
    double total = weighted_sort(values, taken), sum = 0;
    for (uint64_t i = 0; i < taken; i++)
        sum += (double)values[i].value * values[i].weight;
    fprintf(out, "{\"seen\": %llu, \"kept\": %llu, \"lost\": %llu", (wide)seen, (wide)kept, (wide)lost);
    for (int i = 0; taken && i < 5; i++)
        fprintf(out, ", \"%s\": %.1f", names[i],
                (double)weighted_quantile(values, taken, total, quantiles[i]) / 1e3);
    if (taken)
        fprintf(out, ", \"mean_us\": %.1f", sum / total / 1e3);
    fprintf(out, ", \"curve\": [");
    output_curve(out, values, taken, total);
    fprintf(out, "]}");
    free(values);
}

static void output_client(FILE *out, const struct plan *plan, struct outcome *const *outcomes, double seconds) {
    double cpu = 0, busiest = 0, delay = 0;

    for (unsigned i = 0; i < plan->processes; i++) {
        cpu += outcomes[i]->cpu;
        busiest = outcomes[i]->cpu > busiest ? outcomes[i]->cpu : busiest;
        delay = outcomes[i]->delay > delay ? outcomes[i]->delay : delay;
    }
    fprintf(out, "{\"processes\": %u, \"cpu_seconds\": %.6f, \"cpu_share\": %.4f, ", plan->processes, cpu, cpu / seconds);
    fprintf(out, "\"busiest_share\": %.4f, \"delay_share\": %.4f}", busiest / seconds, delay / seconds);
}

void output_result(FILE *out, const struct plan *plan, const struct phases *phases, struct outcome *const *outcomes,
                   struct samples *const *samples, const struct live *live) {
    static struct counts warm, timed;
    double seconds = (double)(phases->end - phases->timed) / 1e9;
    uint64_t served = 0, unfinished = 0;
    const char *reason = "";

    for (unsigned i = 0; i < plan->processes; i++) {
        add(&warm, &outcomes[i]->warm);
        add(&timed, &outcomes[i]->timed);
        served += outcomes[i]->served;
        unfinished += outcomes[i]->unfinished;
        reason = *reason ? reason : outcomes[i]->reason;
    }
    fprintf(out, "{\"event\": \"result\", \"seconds\": %.6f, \"rate\": %.3f, \"timed\": ", seconds,
            (double)timed.completed / seconds);
    output_counts(out, &timed);
    fprintf(out, ", \"warmup\": ");
    output_counts(out, &warm);
    fprintf(out, ", \"connections\": {\"wanted\": %u, \"begin\": %lld, \"end\": %lld, \"least\": %lld, \"most\": %lld, ",
            plan->connections, (long long)live->begin, (long long)live->end, (long long)live->least,
            (long long)live->most);
    fprintf(out, "\"served\": %llu}, \"unfinished\": %llu, \"reason\": ", (wide)served, (wide)unfinished);
    output_text(out, reason, strlen(reason));
    fprintf(out, ", \"latency\": ");
    output_latency(out, plan, samples);
    fprintf(out, ", \"client\": ");
    output_client(out, plan, outcomes, seconds);
    fprintf(out, "}\n");
    fflush(out);
}
