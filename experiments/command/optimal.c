/* optimal.c - qualm optimal: designs the best codebook for a distribution; compares the maps. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/name.h"
#include "core/quant/quantizer.h"
#include "experiments/cli/cli.h"
#include "experiments/command/command.h"
#include "experiments/source/distribution.h"
#include "oracle/theory/expected_error.h"
#include "oracle/theory/optimal_codebook.h"

enum { KEY_ZERO = 256, KEY_ENDS, KEY_FREE, KEY_EMA, KEY_DIST };

struct options {
    const char *dist, *metric;
    long bits, block;
    int zero, is_free, has_ends; /* has_ends: one of --ends and --free was given */
    double beta;                 /* of --ema; 0: not given */
};

static const struct argp_option options[] = {
    {"bits", 'b', "N", 0, "2^N levels, N = 2 to 8 (default 4)", 0},
    {"block", 'B', "N", 0,
     "elements per absmax scale, 2 or more; 0: no scales, the classical quantizer (default 128)",
     0},
    {"dist", KEY_DIST, "LAW", 0,
     "gauss, laplace, uniform, student:NU; of one sign: chi2:K, lognormal:SIGMA, ema2:BETA "
     "(default gauss)",
     0},
    {"metric", 'm', "LOSS", 0, "mse, mae; of x / absmax: unit_mse, unit_mae (default mse)", 0},
    {"ends", KEY_ENDS, NULL, 0, "keep -1 and 1, so that the maximum is exact (default)", 0},
    {"free", KEY_FREE, NULL, 0, "let the ends move too", 0},
    {"zero", KEY_ZERO, NULL, 0, "keep an exact 0", 0},
    {"ema", KEY_EMA, "BETA", 0,
     "each map in a running average, requantized at every step: its steady state under stochastic "
     "rounding, and the dead zone of nearest rounding",
     0},
    {0}};

static long whole(struct argp_state *state, const char *name, const char *text, long low, long high)
{
    char *end;
    long value = strtol(text, &end, 10);
    if (end == text || *end || value < low || value > high)
        argp_error(state, "--%s: expected a whole number from %ld to %ld, got '%s'", name, low,
                   high, text);
    return value;
}

static error_t option(int key, char *arg, struct argp_state *state)
{
    struct options *o = state->input;
    char *end;
    switch (key) {
    case 'b': o->bits = whole(state, "bits", arg, 2, 8); return 0;
    case 'B':
        o->block = whole(state, "block", arg, 0, 1 << 24);
        if (o->block == 1)
            argp_error(state, "--block: expected 0 or a whole number from 2 to %d, got '%s'",
                       1 << 24, arg);
        return 0;
    case KEY_DIST: o->dist = arg; return 0;
    case 'm': o->metric = arg; return 0;
    case KEY_ZERO: o->zero = 1; return 0;
    case KEY_ENDS:
    case KEY_FREE:
        if (o->has_ends && o->is_free != (key == KEY_FREE))
            argp_error(state, "--ends and --free exclude each other");
        o->has_ends = 1;
        o->is_free = key == KEY_FREE;
        return 0;
    case KEY_EMA:
        o->beta = strtod(arg, &end);
        if (end == arg || *end || !(o->beta > 0.0 && o->beta < 1.0))
            argp_error(state, "--ema: expected a number between 0 and 1, got '%s'", arg);
        return 0;
    case ARGP_KEY_ARG: argp_error(state, "unexpected word '%s'", arg); return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

/* The options, parsed. */
struct task {
    struct qm_law law;
    enum qm_loss loss;
    int n, sign;
    int64_t block;
    unsigned hold;
    struct qm_progress *progress; /* counts designs and maps */
};

static qm_status resolve(const struct options *o, struct task *t)
{
    static const char *const names[] = {
#define X(name, power, error, text) #name,
        QM_LOSS_LIST(X)
#undef X
    };
    struct qm_dist_bound dist;
    int loss = qm_name_find(o->metric, names, QM_LOSS_COUNT);
    if (loss < 0)
        return qm_name_unknown("metric", o->metric, names, QM_LOSS_COUNT);
    qm_status st = qm_dist_parse(o->dist, &dist);
    int is_other = st == QM_NO_MATCH && !strstr(qm_message(), "did you mean");
    if (st != QM_OK && !is_other)
        return st;
    if (is_other || !qm_dist_law(&dist, &t->law))
        return qm_fail(QM_BAD_ARG,
                       "no theory covers %s; gauss, laplace, uniform, student:NU, chi2:K, "
                       "lognormal:SIGMA and ema2:BETA have one",
                       o->dist);
    if (o->beta > 0.0 && o->block == 0)
        return qm_fail(QM_BAD_ARG, "--ema wants blocks");
    t->loss = (enum qm_loss)loss;
    t->n = 1 << o->bits;
    t->block = o->block;
    t->sign = qm_law_sign(&t->law);
    t->hold = (o->zero ? QM_HOLD_ZERO : 0) | (o->is_free || o->block == 0 ? 0 : QM_HOLD_ENDS);
    return QM_OK;
}

/* The loss in dB below 1: for mse E d^2 / E x^2, where d is the error of x; else the
 * loss itself. */
static double decibel(const struct task *t, double loss)
{
    if (t->loss == QM_LOSS_mse)
        loss /= qm_law_square(&t->law);
    return (qm_loss_is_squared(t->loss) ? -10.0 : -20.0) * log10(loss);
}

static json_t *numbers(const double *value, int n)
{
    json_t *a = json_array();
    for (int k = 0; k < n; k++)
        json_array_append_new(a, qm_json_number(value[k]));
    return a;
}

/* ---- the maps ------------------------------------------------------------------------------- */

/* A map and its loss. */
struct rival {
    char name[24];
    double db;
};

static int best_first(const void *a, const void *b)
{
    const struct rival *x = a, *y = b;
    return x->db > y->db ? -1 : x->db < y->db ? 1 : strcmp(x->name, y->name);
}

/* Writes the map's values in units of the absolute maximum, and returns their number; 0 when the
 * map does not exist at this width, or requires a curve. */
static int map_values(enum qm_map map, const struct task *t, int bits, double *value)
{
    struct qm_codec c;
    struct qm_quantizer q = {.map = map,
                             .bits = bits,
                             .sign = t->sign,
                             .norm = QM_NORM_block,
                             .block = t->block ? t->block : 128,
                             .search = QM_SEARCH_scan,
                             .round = QM_ROUND_mid,
                             .scale = {.zero = -1}};
    if (!qm_map_allows(map, bits, t->sign))
        return 0;
    if (qm_quantizer_applicable(&q) != QM_OK)
        q.search = QM_SEARCH_mids; /* as maps with two zeros need */
    if (qm_quantizer_applicable(&q) != QM_OK || qm_codec_init(&c, &q) != QM_OK)
        return 0;
    for (int k = 0; k < c.cb.n; k++)
        value[k] = (double)c.cb.value[k] * (double)c.cb.gain * (double)c.cb.post;
    return c.cb.n;
}

static const char *map_name(enum qm_map map, const struct task *t, int bits, char name[24])
{
    snprintf(name, 24, "%s:%d%c", qm_map_names[map], bits, t->sign ? 's' : 'u');
    return name;
}

static json_t *rivals(const struct task *t, const struct qm_unit_law *m, int bits, double best)
{
    struct rival list[QM_MAP_COUNT];
    double value[256];
    int n = 0;
    for (int map = 0; map < QM_MAP_COUNT; map++) {
        int size = map_values((enum qm_map)map, t, bits, value);
        qm_progress_add(t->progress, 1, 0);
        if (size == 0)
            continue;
        map_name((enum qm_map)map, t, bits, list[n].name);
        list[n++].db = decibel(t, qm_optimal_loss(m, t->loss, value, size));
    }
    qsort(list, (size_t)n, sizeof *list, best_first);
    json_t *rows = json_array();
    for (int i = 0; i < n; i++)
        json_array_append_new(rows, json_pack("{s:s, s:f, s:f}", "map", list[i].name, "db",
                                              list[i].db, "below_optimum_db", best - list[i].db));
    return rows;
}

/* ---- running averages ------------------------------------------------------------------------ */

/* Half of the wider gap next to the value nearest to 0: the change that nearest rounding needs to
 * leave that value. */
static double half_gap_at_zero(const double *value, int n)
{
    int k = 0;
    for (int i = 1; i < n; i++)
        k = fabs(value[i]) <= fabs(value[k]) ? i : k;
    double up = k + 1 < n ? value[k + 1] - value[k] : 0.0,
           down = k > 0 ? value[k] - value[k - 1] : 0.0;
    return 0.5 * fmax(up, down);
}

static qm_status average(const struct task *t, const char *name, const double *value, int n,
                         double beta, json_t *rows)
{
    struct qm_theory theory;
    QM_TRY(qm_theory_block(&t->law, value, NULL, n, t->block, &theory));
    json_array_append_new(
        rows,
        json_pack("{s:s, s:o, s:o, s:o}", "map", name, "stochastic_db",
                  qm_json_shown(theory.sqnr_db), "steady_state_db",
                  qm_json_shown(-10.0 * log10(qm_ema_steady(beta, theory.nmse))), "dead_zone_at_0",
                  qm_json_number(qm_ema_dead_zone(beta, half_gap_at_zero(value, n)))));
    return QM_OK;
}

/* Adds a row for the optimum and one for every map. */
static qm_status averages(const struct options *o, const struct task *t,
                          const struct qm_optimum *best, json_t *rows)
{
    double value[256];
    QM_TRY(average(t, "(optimum)", best->value, best->n, o->beta, rows));
    for (int map = 0; map < QM_MAP_COUNT; map++) {
        char name[24];
        int n = map_values((enum qm_map)map, t, (int)o->bits, value);
        if (n > 0)
            QM_TRY(average(t, map_name((enum qm_map)map, t, (int)o->bits, name), value, n, o->beta,
                           rows));
    }
    return QM_OK;
}

/* ---- references ---------------------------------------------------------------------------- */

static void reference(json_t *rows, const char *what, double bits, double db, double best)
{
    json_array_append_new(rows,
                          json_pack("{s:s, s:f, s:f, s:f}", "reference", what, "bits_per_element",
                                    bits, "db", db, "below_optimum_db", best - db));
}

static qm_status references(const struct task *t, double bits, double best, json_t *rows)
{
    static const struct {
        unsigned hold;
        const char *what;
    } holds[] = {{0, "optimum, all levels free"},
                 {QM_HOLD_ENDS, "optimum, ends kept"},
                 {QM_HOLD_ENDS | QM_HOLD_ZERO, "optimum, ends and zero kept"}};
    double with_scale = t->block ? bits + 32.0 / (double)t->block : bits;
    struct qm_optimum o;
    for (int i = 0; t->block && i < 3; i++) {
        if (holds[i].hold == 0 && !qm_loss_is_squared(t->loss))
            continue;
        QM_TRY(qm_optimal(&t->law, t->block, t->n, holds[i].hold, t->loss, &o));
        qm_progress_add(t->progress, 1, 0);
        reference(rows, holds[i].what, with_scale, decibel(t, o.loss), best);
    }
    if (t->loss != QM_LOSS_mse)
        return QM_OK;
    QM_TRY(qm_optimal(&t->law, 0, t->n, 0, t->loss, &o));
    reference(rows, "Lloyd-Max, no scales", bits, decibel(t, o.loss), best);
    const char *bound =
        t->law.kind == QM_LAW_normal ? "rate-distortion function" : "Shannon's bound on any code";
    for (int i = 0; i < 1 + (t->block > 0); i++) {
        double rate = i ? with_scale : bits;
        reference(rows, bound, rate, -10.0 * log10(qm_shannon_bound(&t->law, rate)), best);
    }
    return QM_OK;
}

static qm_status run(const struct options *o, json_t **out)
{
    struct task t;
    struct qm_optimum best;
    struct qm_unit_law *m;
    struct qm_progress progress;
    QM_TRY(resolve(o, &t));
    t.progress = &progress;
    qm_progress_start(&progress, "optimal", 1 + (t.block ? QM_MAP_COUNT + 3 : 0));
    QM_TRY(qm_optimal(&t.law, t.block, t.n, t.hold, t.loss, &best));
    qm_progress_add(&progress, 1, 0);
    QM_TRY(qm_unit_law_open(&t.law, t.block, qm_loss_power(t.loss), &m));
    double db = decibel(&t, best.loss);
    json_t *rows = json_array();
    json_t *maps = t.block ? rivals(&t, m, (int)o->bits, db) : NULL;
    qm_unit_law_close(m);
    qm_status st = references(&t, (double)o->bits, db, rows);
    qm_progress_end(&progress);
    json_t *result =
        json_pack("{s:s, s:I, s:I, s:s, s:b, s:b, s:f, s:f, s:f, s:o, s:o}", "dist", o->dist,
                  "bits", (json_int_t)o->bits, "block", (json_int_t)t.block, "metric",
                  qm_loss_name(t.loss), "ends_kept", (t.hold & QM_HOLD_ENDS) != 0, "zero_kept",
                  (t.hold & QM_HOLD_ZERO) != 0, "loss", best.loss,
                  t.loss == QM_LOSS_mse ? "sqnr_db" : "db", db, "largest_residual", best.residual,
                  "codebook", numbers(best.value, t.n), "decisions", numbers(best.cut, t.n - 1));
    if (maps)
        json_object_set_new(result, "maps", maps);
    json_object_set_new(result, "references", rows);
    if (st == QM_OK && o->beta > 0.0) {
        json_t *list = json_array();
        json_object_set_new(result, "running_averages", list);
        st = averages(o, &t, &best, list);
    }
    if (st == QM_OK)
        *out = result;
    else
        json_decref(result);
    return st;
}

int qm_cmd_optimal(int argc, char **argv)
{
    static const struct argp_child children[] = {{&qm_cli_argp, 0, "Common options:", -1}, {0}};
    static const struct argp argp = {
        options,
        option,
        NULL,
        "Designs the codebook of least expected error for values of a distribution that share a "
        "scale, the largest magnitude of their block, and prints how far each registered map of "
        "that width is from it, in dB; by quadrature, without samples."
        "\vExamples:\n"
        "  qualm optimal --bits 4 --block 128 --dist gauss  # how far is NF4 from it?\n"
        "  qualm optimal --zero --block 64  # the best with -1, 0 and 1\n"
        "  qualm optimal --dist chi2 --bits 8 --block 256  # a second moment\n"
        "  qualm optimal --block 0 --dist laplace  # Lloyd-Max\n"
        "  qualm optimal --ema 0.9  # each map in a running average\n"
        "  qualm optimal --metric mae --json\n",
        children,
        NULL,
        NULL};
    struct options o = {.dist = "gauss", .metric = "mse", .bits = 4, .block = 128};
    int code = qm_cli_parse(&argp, argc, argv, &o);
    if (code)
        return code;
    json_t *result = NULL;
    qm_status st = run(&o, &result);
    if (st != QM_OK)
        return qm_cli_failed("optimal", st);
    qm_report(result);
    return 0;
}
