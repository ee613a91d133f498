/* peers.c - Runs the program that times other projects' optimizers, and derives ratios. */
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include "experiments/gpu/bench.h"
#include "experiments/gpu/gpu.h"

enum { NOTHING_TIMED = 77 };

/* Runs the command and parses its output; its stderr is the caller's. */
static qm_status run(const char *command, json_t **out)
{
    json_error_t error;
    FILE *f = popen(command, "re");
    if (!f)
        return qm_fail(QM_BAD_FILE, "%s: cannot be started", command);
    json_t *all = json_loadf(f, 0, &error);
    int status = pclose(f), code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    if (code != 0 && code != NOTHING_TIMED) {
        json_decref(all);
        return qm_fail(QM_BAD_FILE, "%s: exit code %d, expected 0 or %d", command, code,
                       NOTHING_TIMED);
    }
    if (!all)
        return qm_fail(QM_BAD_FILE, "%s: expected JSON, line %d: %s", command, error.line,
                       error.text);
    *out = all;
    return QM_OK;
}

struct peer_time {
    const char *peer, *version, *recipe;
    json_int_t tensors, elements;
    double seconds;
};

/* Adds a row where Qualm's time has the peer's recipe and sizes; 0: it has not. */
static int compare(const struct peer_time *t, json_t *ours, json_t *rows)
{
    const char *recipe, *mode, *way = "one launch";
    json_int_t tensors = 1, elements;
    double seconds;
    if (json_unpack(ours, "{s:s, s:s, s?s, s?I, s:I, s:F}", "recipe", &recipe, "mode", &mode, "way",
                    &way, "tensors", &tensors, "elements", &elements, "seconds", &seconds) != 0 ||
        strcmp(recipe, t->recipe) != 0 || tensors != t->tensors || elements != t->elements ||
        strncmp(way, "one launch", 10) != 0)
        return 0;
    json_array_append_new(rows,
                          json_pack("{s:s, s:s, s:s, s:s, s:I, s:I, s:f, s:f, s:f}", "peer",
                                    t->peer, "version", t->version, "recipe", recipe, "mode", mode,
                                    "tensors", tensors, "elements", elements, "seconds", seconds,
                                    "peer_seconds", t->seconds, "ratio", seconds / t->seconds));
    return 1;
}

static void skip(json_t *skipped, const char *peer, const char *reason)
{
    json_array_append_new(skipped, json_pack("{s:s, s:s}", "peer", peer, "reason", reason));
}

qm_status qm_peers_merge(json_t *from, const struct qm_speed *s, json_t *rows, json_t *skipped)
{
    json_t *row, *ours;
    size_t i, k;
    json_array_foreach(json_object_get(from, "rows"), i, row)
    {
        struct peer_time t;
        int found = 0;
        char why[256];
        if (json_unpack(row, "{s:s, s:s, s:s, s:I, s:I, s:F}", "peer", &t.peer, "version",
                        &t.version, "recipe", &t.recipe, "tensors", &t.tensors, "elements",
                        &t.elements, "seconds", &t.seconds) != 0 ||
            !(t.seconds > 0.0))
            return qm_fail(QM_BAD_FILE,
                           "row %zu of a peer: expected peer, version, recipe, tensors, "
                           "elements and seconds above 0",
                           i);
        json_array_foreach(s->rows, k, ours) found += compare(&t, ours, rows);
        json_array_foreach(s->tables, k, ours) found += compare(&t, ours, rows);
        snprintf(why, sizeof why, "%lld tensors of %lld elements: no time of %s",
                 (long long)t.tensors, (long long)t.elements, t.recipe);
        if (!found)
            skip(skipped, t.peer, why);
    }
    json_array_foreach(json_object_get(from, "skipped"), i, row)
    {
        const char *peer, *reason;
        if (json_unpack(row, "{s:s, s:s}", "peer", &peer, "reason", &reason) == 0)
            skip(skipped, peer, reason);
    }
    return QM_OK;
}

qm_status qm_peers_measure(const char *command, const struct qm_speed *s, json_t *rows,
                           json_t *skipped)
{
    char line[4096];
    json_t *all = NULL;
    int n = snprintf(line, sizeof line,
                     "%s --size %lld --columns %d --tensors %d --small %d --rounds %d --flush %lld",
                     command, (long long)s->n, QM_BENCH_COLUMNS, QM_BENCH_TENSORS,
                     qm_speed_small(s->n), s->rounds, (long long)s->flush_bytes);
    if (n >= (int)sizeof line)
        return qm_fail(QM_BAD_ARG, "--peers: a command of more than 4000 characters");
    QM_TRY(run(line, &all));
    qm_status st = qm_peers_merge(all, s, rows, skipped);
    json_decref(all);
    return st;
}
