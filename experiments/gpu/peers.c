/* peers.c - Runs the program that times other projects' optimizers, and derives ratios. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "core/base/clock.h"
#include "experiments/cli/cli.h"
#include "experiments/gpu/bench.h"
#include "experiments/gpu/gpu.h"

enum { NOTHING_TIMED = 77, LINE = 4096 };

/* What a command line printed, whether it ended with NOTHING_TIMED, and its seconds. */
struct answer {
    json_t *all;
    int is_nothing;
    double wall;
};

/* Runs a command line of the shell and parses its output; its stderr is the caller's. */
static qm_status run(const char *line, struct answer *out)
{
    double start = qm_seconds();
    json_error_t error;
    FILE *f = popen(line, "re");
    if (!f)
        return qm_fail(QM_BAD_FILE, "%s: cannot be started", line);
    json_t *all = json_loadf(f, 0, &error);
    int status = pclose(f), code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    if (code != 0 && code != NOTHING_TIMED) {
        json_decref(all);
        return qm_fail(QM_BAD_FILE, "%s: exit code %d, expected 0 or %d", line, code,
                       NOTHING_TIMED);
    }
    if (!all)
        return qm_fail(QM_BAD_FILE, "%s: expected JSON, line %d: %s", line, error.line, error.text);
    *out = (struct answer){all, code == NOTHING_TIMED, qm_seconds() - start};
    return QM_OK;
}

qm_status qm_peers_names(const char *command, json_t **names)
{
    char line[LINE];
    struct answer got = {0};
    json_t *name;
    size_t i;
    if (snprintf(line, sizeof line, "%s --names", command) >= (int)sizeof line)
        return qm_fail(QM_BAD_ARG, "--peers: a command of more than 4000 characters");
    QM_TRY(run(line, &got));
    int is_good = json_array_size(got.all) > 0;
    json_array_foreach (got.all, i, name)
        is_good &= json_is_string(name);
    if (is_good)
        *names = got.all;
    else
        json_decref(got.all);
    return is_good ? QM_OK : qm_fail(QM_BAD_FILE, "%s: expected an array of names", line);
}

/* ---- ratios ---------------------------------------------------------------------------------- */

struct peer_time {
    const char *peer, *version, *recipe;
    json_int_t tensors, elements, rounds;
    double seconds, least; /* median and least of the rounds */
};

static json_t *row_of(const struct peer_time *t, const char *mode, const char *status)
{
    return json_pack("{s:s, s:s, s:s, s:s, s:s, s:I, s:I, s:f}", "peer", t->peer, "version",
                     t->version, "recipe", t->recipe, "mode", mode, "status", status, "tensors",
                     t->tensors, "elements", t->elements, "peer_seconds", t->seconds);
}

/* Adds a row where Qualm's time has the peer's recipe and sizes; 0: it has not. */
static int compare(const struct peer_time *t, json_t *ours, json_t *rows)
{
    const char *recipe, *mode, *way = "one launch";
    json_int_t tensors = 1, elements;
    double seconds;
    if (json_unpack(ours, "{s:s, s:s, s?s, s?I, s:I, s:F}", "recipe", &recipe, "mode", &mode, "way",
                    &way, "tensors", &tensors, "elements", &elements, "seconds", &seconds) != 0 ||
        strcmp(recipe, t->recipe) != 0 || tensors != t->tensors || elements != t->elements ||
        strncmp(way, "one launch", 10) != 0 || !(seconds > 0.0))
        return 0;
    json_t *row = row_of(t, mode, "ok");
    json_object_set_new(row, "seconds", json_real(seconds));
    json_object_set_new(row, "ratio", json_real(seconds / t->seconds));
    json_array_append_new(rows, row);
    return 1;
}

static int compare_all(const struct peer_time *t, json_t *ours, json_t *rows)
{
    size_t k;
    json_t *row;
    int found = 0;
    json_array_foreach (ours, k, row)
        found += compare(t, row, rows);
    return found;
}

/* A row without figures: a peer's time, and why it is compared with none. */
static void leave_out(const struct peer_time *t, const char *status, json_t *rows)
{
    json_array_append_new(rows,
                          json_pack("{s:s, s:s, s:s, s:o}", "peer", t->peer, "version", t->version,
                                    "recipe", t->recipe, "status", qm_json_text(status)));
}

/* The fastest copy that was timed here for these rows, in bytes per second; 0: none was. */
static double copy_of(json_t *rows)
{
    size_t i;
    json_t *row;
    double most = 0.0;
    json_array_foreach (rows, i, row)
        most = fmax(most, json_number_value(json_object_get(row, "copy_rate")));
    return most;
}

/* QM_INTERNAL: no GPU steps so fast: each parameter, of a byte at least, is read and written. */
static qm_status expect_plausible(const struct peer_time *t, double copy)
{
    struct qm_recipe r;
    double each = qm_recipe_parse(t->recipe, &r) == QM_OK ? (double)qm_param_bytes(&r.param) : 1.0;
    return qm_gpu_bench_plausible("their step", t->seconds,
                                  2.0 * each * (double)t->tensors * (double)t->elements, copy);
}

/* 1: another of the rows is of the same recipe and sizes as row i. */
static int is_repeated(json_t *rows, size_t i)
{
    static const char *const keys[] = {"recipe", "tensors", "elements"};
    json_t *own = json_array_get(rows, i), *row;
    size_t k;
    json_array_foreach (rows, k, row) {
        int same = k != i;
        for (size_t j = 0; j < sizeof keys / sizeof *keys && same; j++)
            same = json_equal(json_object_get(row, keys[j]), json_object_get(own, keys[j]));
        if (same)
            return 1;
    }
    return 0;
}

/* QM_INTERNAL: row i cannot be true as the program says it: half of its rounds take its seconds at
 * least, and the others its least ones. */
static qm_status expect_true(const struct peer_time *t, const struct answer *got, size_t i)
{
    json_int_t slow = t->rounds / 2 + t->rounds % 2, rest = t->rounds - slow;
    double all = (double)slow * t->seconds + (double)rest * t->least;
    if (got->is_nothing)
        return qm_fail(QM_INTERNAL, "a time, and exit code %d, which says that nothing was timed",
                       NOTHING_TIMED);
    if (is_repeated(json_object_get(got->all, "rows"), i))
        return qm_fail(QM_INTERNAL, "%s of %lld tensors of %lld elements is there more than once",
                       t->recipe, (long long)t->tensors, (long long)t->elements);
    if (t->tensors < 1 || t->elements < 1 || t->rounds < 1)
        return qm_fail(QM_INTERNAL,
                       "%lld tensors of %lld elements in %lld rounds, expected 1 at least",
                       (long long)t->tensors, (long long)t->elements, (long long)t->rounds);
    if (!(t->least >= 0.0 && t->least <= t->seconds))
        return qm_fail(QM_INTERNAL, "least_seconds %g, expected 0 to seconds, %g", t->least,
                       t->seconds);
    if (all > got->wall)
        return qm_fail(QM_INTERNAL,
                       "implausible: %lld rounds of %g s take %g s at least, and the program ran "
                       "for %.3g s",
                       (long long)t->rounds, t->seconds, all, got->wall);
    return QM_OK;
}

/* leave_out for the reason of the last failure. */
static void leave_out_failed(const struct peer_time *t, json_t *rows)
{
    char why[1400];
    snprintf(why, sizeof why, "failed: %s", qm_message());
    leave_out(t, why, rows);
}

/* Adds the rows of one time of a peer: beside ours, which is measured where there is none of these
 * sizes. */
static void merge_time(const struct peer_time *t, const struct qm_peers_sizes *s,
                       const struct qm_peers_ours *ours, json_t *rows)
{
    char why[1400];
    int is_large = t->tensors == 1 && t->elements == s->n;
    int is_many = t->tensors == QM_BENCH_TENSORS && t->elements == qm_speed_small(s->n);
    qm_status st = QM_OK;
    if (expect_plausible(t, copy_of(ours->speed)) != QM_OK) {
        leave_out_failed(t, rows);
        return;
    }
    int found = compare_all(t, ours->speed, rows) + compare_all(t, ours->tables, rows);
    if (!found && (is_large || is_many)) {
        json_t *own = json_array();
        st = ours->time(ours->of, t->recipe, is_many, own);
        int is_false = st == QM_OK && expect_plausible(t, copy_of(own)) != QM_OK;
        if (is_false)
            leave_out_failed(t, rows);
        else
            found = compare_all(t, own, rows);
        json_decref(own);
        if (is_false)
            return;
    }
    int is_broken = st != QM_OK && st != QM_SKIPPED && st != QM_NO_MATCH;
    snprintf(why, sizeof why, "%s: no time of %s for %lld tensors of %lld elements%s%s",
             is_broken ? "failed" : "skipped", t->recipe, (long long)t->tensors,
             (long long)t->elements, st == QM_OK ? "" : ": ", st == QM_OK ? "" : qm_message());
    if (!found)
        json_array_append_new(rows, row_of(t, "", why));
    else if (is_broken)
        leave_out(t, why, rows);
}

/* QM_BAD_FILE: this is of another peer than the one that was asked for. */
static qm_status expect_peer(const char *got, const char *asked)
{
    return strcmp(got, asked) == 0
               ? QM_OK
               : qm_fail(QM_BAD_FILE, "a row of peer '%s', and '%s' was asked for", got, asked);
}

static qm_status merge(const struct answer *got, const char *peer, const struct qm_peers_sizes *s,
                       const struct qm_peers_ours *ours, json_t *rows)
{
    json_t *row;
    size_t i;
    json_array_foreach (json_object_get(got->all, "rows"), i, row) {
        struct peer_time t = {.rounds = 1};
        if (json_unpack(row, "{s:s, s:s, s:s, s:I, s:I, s:F, s?F, s?I}", "peer", &t.peer, "version",
                        &t.version, "recipe", &t.recipe, "tensors", &t.tensors, "elements",
                        &t.elements, "seconds", &t.seconds, "least_seconds", &t.least, "rounds",
                        &t.rounds) != 0 ||
            !(t.seconds > 0.0 && isfinite(t.seconds)))
            return qm_fail(QM_BAD_FILE,
                           "row %zu of a peer: expected peer, version, recipe, tensors, "
                           "elements and seconds above 0, whole rounds and a least_seconds",
                           i);
        QM_TRY(expect_peer(t.peer, peer));
        if (expect_true(&t, got, i) == QM_OK)
            merge_time(&t, s, ours, rows);
        else
            leave_out_failed(&t, rows);
    }
    json_array_foreach (json_object_get(got->all, "skipped"), i, row) {
        const char *name, *reason;
        char status[512];
        if (json_unpack(row, "{s:s, s:s}", "peer", &name, "reason", &reason) != 0)
            return qm_fail(QM_BAD_FILE, "a skipped peer: expected peer and reason");
        QM_TRY(expect_peer(name, peer));
        snprintf(status, sizeof status, "skipped: %s", reason);
        json_array_append_new(rows, json_pack("{s:s, s:s}", "peer", peer, "status", status));
    }
    return QM_OK;
}

/* A word for the shell. */
static void quote(const char *word, char *out, size_t size)
{
    size_t n = 0;
    out[n++] = '\'';
    for (; *word && n + 6 < size; word++)
        if (*word == '\'')
            n += (size_t)snprintf(out + n, size - n, "'\\''");
        else
            out[n++] = *word;
    out[n++] = '\'';
    out[n] = '\0';
}

qm_status qm_peers_measure(const char *command, const char *peer, const struct qm_peers_sizes *s,
                           const struct qm_peers_ours *ours, json_t *rows)
{
    char line[LINE], word[512];
    struct answer got = {0};
    json_t *row;
    size_t i;
    quote(peer, word, sizeof word);
    int n = snprintf(line, sizeof line,
                     "%s --name %s --size %lld --columns %d --tensors %d --small %d --rounds %d "
                     "--flush %lld",
                     command, word, (long long)s->n, QM_BENCH_COLUMNS, QM_BENCH_TENSORS,
                     qm_speed_small(s->n), s->rounds, (long long)s->flush_bytes);
    if (n >= (int)sizeof line)
        return qm_fail(QM_BAD_ARG, "--peers: a command of more than 4000 characters");
    QM_TRY(run(line, &got));
    qm_status st = merge(&got, peer, s, ours, rows);
    json_decref(got.all);
    json_array_foreach (rows, i, row)
        json_object_set_new(row, "program", qm_json_text(command));
    if (st == QM_OK && json_array_size(rows) == 0)
        st = qm_fail(QM_BAD_FILE, "%s: neither timed nor skipped", line);
    return st;
}
