/* report_sample.h - Writes a result file of a made-up campaign for tests of figures and pages.
 *
 * The real writer writes the file; its numbers mean nothing. */
#ifndef QM_SUPPORT_REPORT_SAMPLE_H
#define QM_SUPPORT_REPORT_SAMPLE_H

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/store/store.h"

enum { S_LABELS = 12, S_PROBLEMS = 8, S_SEEDS = 8, S_SCALES = 5, S_POINTS = 41, S_TARGETS = 51 };
enum { S_RUNS = S_LABELS * S_PROBLEMS * S_SEEDS * S_SCALES };

/* The last label is not a variant of the suite but a part of the error budget. */
static const char *const s_label[S_LABELS] = {
    "adamw_f32",   "adamw8_bnb",     "adamw8_ao",         "adamw_fp8_ao",
    "adamw4_ao",   "adamw4_lpmm",    "adamw4_lpmm_group", "adamw4_lpmm_factor",
    "flash_adamw", "nf4; block:128", "lion8_bnb",         "adamw4_ao without scales"};
static const char *const s_problem[S_PROBLEMS] = {
    "quad:cond=1e4,layout=dct", "quad:cond=1e4,layout=sorted", "nqm:n=1024", "rosen:n=64",
    "logreg:n=1000,d=20",       "lowrank:p=64,q=32",           "mlp:d=64",   "mclm:K=32"};
static const double s_scale[S_SCALES] = {0.25, 0.5, 1, 2, 4};
/* Texts that do harm unless they are escaped. */
static const char *const s_evil[3] = {"<script>alert(1)</script>",
                                      "a&b \"q\" 'r' |x| 100% $5 #_~^\\",
                                      "{brace} `tick` *star* \xce\xb2"};

/* How a second file differs from the first. */
struct s_change {
    int evil, seeds; /* seeds: added to every seed */
    double twin;     /* log10 of a factor on every gap and twin's gap */
    int64_t steps;   /* 0: 2000 */
    int limits; /* on the first problem label 2 diverges; label 3 and its twin are at the floor */
};

/* A uniform number in [-1, 1), a function of the four arguments. */
static inline double s_noise(int64_t a, int64_t b, int64_t c, int64_t d)
{
    uint64_t z = (uint64_t)(((a * 131 + b) * 137 + c) * 139 + d) + 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (double)((z ^ (z >> 31)) >> 11) * 0x1p-52 - 1;
}

/* The mean of d of a label on a problem; the first label is equivalent, and some are better on
 * one problem. */
static inline double s_effect(int64_t label, int64_t problem)
{
    double size = label == 0 ? 0.001 : 0.004 * pow(2.1, (double)(label % 9));
    return size * (problem == 2 && label % 4 == 3 ? -1 : 1) *
           (1 + 0.5 * s_noise(label, problem, 7, 1));
}

struct s_run {
    int64_t label, problem, seed, scale;
    const char *status;
    double d, gap, twin;
};

/* Run i of a file whose seeds start at `seeds`. */
static inline struct s_run s_run_of(int64_t i, int seeds)
{
    struct s_run r = {i / (S_PROBLEMS * S_SEEDS * S_SCALES),
                      i / (S_SEEDS * S_SCALES) % S_PROBLEMS,
                      i / S_SCALES % S_SEEDS + seeds,
                      i % S_SCALES,
                      "ok",
                      0,
                      0,
                      0};
    double lr = log2(s_scale[r.scale]);
    r.twin = pow(10, -3 - (double)(r.problem % 3) + 0.25 * lr * lr - 0.2 * lr +
                         0.05 * s_noise(r.problem, r.seed, 2, 2));
    r.d = s_effect(r.label, r.problem) * (1 + 0.3 * lr) +
          (0.002 + 0.02 * fabs(s_effect(r.label, r.problem))) *
              s_noise(r.label, r.problem, r.seed, 10 + r.scale);
    if (r.label == 10 && r.problem == 3 && r.scale == 4)
        r.status = "diverged";
    if (r.label == 9 && r.problem == 7)
        r.status = "failed";
    r.gap = strcmp(r.status, "ok") == 0 ? r.twin * pow(10, r.d) : nan("");
    return r;
}

/* A table under construction. */
struct s_table {
    int64_t rows;
    int n;
    struct qm_column column[32];
};

static inline void *s_column(struct s_table *t, const char *name, enum qm_column_type type,
                             const char *unit)
{
    void *data = calloc((size_t)t->rows + 1, 8);
    t->column[t->n++] = (struct qm_column){name, type, unit, "made up", data};
    return data;
}
#define S_TEXT(t, name)   const char **name = s_column(t, #name, QM_COLUMN_text, "")
#define S_WHOLE(t, name)  int64_t *name = s_column(t, #name, QM_COLUMN_i64, "1")
#define S_NUMBER(t, name) double *name = s_column(t, #name, QM_COLUMN_f64, "log10")

static inline qm_status s_table_store(struct qm_store *s, struct s_table *t, const char *path)
{
    qm_status st = qm_store_table(s, path, "Made up.", t->rows, t->n, t->column);
    for (int i = 0; i < t->n; i++)
        free((void *)t->column[i].data);
    return st;
}

static inline const char *s_name(int64_t label, int evil)
{
    return evil && label > S_LABELS - 5 && label < S_LABELS - 1 ? s_evil[label - S_LABELS + 4]
                                                                : s_label[label];
}

static inline qm_status s_cells(struct qm_store *s, struct s_change how)
{
    int evil = how.evil;
    static char source[S_PROBLEMS][64];
    struct s_table t = {.rows = S_RUNS};
    S_WHOLE(&t, cell);
    S_TEXT(&t, variant);
    S_TEXT(&t, recipe);
    S_TEXT(&t, source_at);
    S_TEXT(&t, coupling);
    S_WHOLE(&t, seed);
    S_WHOLE(&t, steps);
    S_TEXT(&t, status);
    S_TEXT(&t, reason);
    S_TEXT(&t, role);
    t.column[3].name = "source";
    for (int p = 0; p < S_PROBLEMS; p++)
        snprintf(source[p], sizeof source[p], "problem:%s", s_problem[p]);
    for (int64_t i = 0; i < S_RUNS; i++) {
        struct s_run r = s_run_of(i, how.seeds);
        cell[i] = i;
        variant[i] = r.label == 9 || r.label == 11 ? "adamw4_ao" : s_label[r.label];
        recipe[i] = evil ? s_name(r.label, evil) : variant[i];
        source_at[i] = source[r.problem];
        coupling[i] = "closed";
        role[i] = r.label == S_LABELS - 1 ? "without" : "plain";
        seed[i] = r.seed + 1;
        steps[i] = how.steps ? how.steps : 2000;
        status[i] = r.status;
        reason[i] = strcmp(r.status, "failed") != 0 ? ""
                    : evil                          ? s_evil[r.seed % 3]
                    : r.seed % 2                    ? "memory: 4.1 GB, limit 2 GB"
                                                    : "crashed: SIGSEGV";
    }
    return s_table_store(s, &t, "/cells");
}

static inline qm_status s_curves(struct qm_store *s, struct s_change how)
{
    static int64_t cell[S_RUNS], length[S_RUNS];
    static double value[3][S_RUNS * S_POINTS];
    static const char *const path[3] = {"/curves/step", "/curves/loss", "/curves/twin_loss"};
    struct qm_shape shape = {1, {S_RUNS}};
    int64_t at = 0;
    for (int64_t i = 0; i < S_RUNS; i++) {
        struct s_run r = s_run_of(i, how.seeds);
        cell[i] = i;
        length[i] = strcmp(r.status, "ok") == 0 ? S_POINTS : strcmp(r.status, "failed") ? 12 : 0;
        for (int64_t k = 0; k < length[i]; k++, at++) {
            double step = k == 0 ? 0 : floor(pow(2000, (double)k / (S_POINTS - 1))),
                   u = step / 2000;
            double twin = 50 * pow(1 + step, log(r.twin) / log(2001)) *
                          pow(10, 0.05 * s_noise(r.problem, r.seed, k, 5) * u);
            value[0][at] = step;
            value[1][at] =
                length[i] < S_POINTS ? 50 * pow(1.7, (double)k) : twin * pow(10, r.d * u);
            value[2][at] = twin;
        }
    }
    QM_TRY(
        qm_store_array(s, "/curves/cell", QM_DTYPE_i64, &shape, cell, "1", "row of /cells", NULL));
    for (int k = 0; k < 3; k++)
        QM_TRY(qm_store_ragged(s, path[k], S_RUNS, length, value[k], "1", "made up"));
    return QM_OK;
}

static inline qm_status s_runs(struct qm_store *s, struct s_change how)
{
    int evil = how.evil;
    struct s_table t = {.rows = S_RUNS};
    S_WHOLE(&t, cell);
    S_TEXT(&t, problem);
    S_TEXT(&t, variant);
    S_TEXT(&t, label);
    S_WHOLE(&t, seed);
    S_NUMBER(&t, lr_scale);
    S_NUMBER(&t, start_gap);
    S_NUMBER(&t, gap);
    S_NUMBER(&t, twin_gap);
    S_NUMBER(&t, d);
    S_NUMBER(&t, area);
    S_TEXT(&t, status);
    for (int64_t i = 0; i < S_RUNS; i++) {
        struct s_run r = s_run_of(i, how.seeds);
        int ok = strcmp(r.status, "ok") == 0;
        cell[i] = i;
        problem[i] = s_problem[r.problem];
        variant[i] = r.label == 9 || r.label == 11 ? "adamw4_ao" : s_label[r.label];
        label[i] = s_name(r.label, evil);
        seed[i] = r.seed + 1;
        lr_scale[i] = s_scale[r.scale];
        start_gap[i] = 50;
        gap[i] = r.gap * pow(10, how.twin);
        twin_gap[i] = r.twin * pow(10, how.twin);
        d[i] = ok ? r.d : nan("");
        area[i] = ok ? r.d / 2 : nan("");
        status[i] = r.status;
        if (how.limits && r.problem == 0 && r.label == 2) {
            status[i] = "diverged";
            gap[i] = 1000;
            d[i] = 3 - log10(twin_gap[i]);
        } else if (how.limits && r.problem == 0 && r.label == 3) {
            start_gap[i] = 50 + (double)r.seed;
            gap[i] = twin_gap[i] = 0x1p-52;
            d[i] = 0;
        }
    }
    return s_table_store(s, &t, "/protocol/runs");
}

static inline qm_status s_verdicts(struct qm_store *s, int evil)
{
    struct s_table t = {.rows = S_LABELS * S_PROBLEMS * S_SCALES};
    S_TEXT(&t, problem);
    S_TEXT(&t, label);
    S_NUMBER(&t, lr_scale);
    S_WHOLE(&t, n);
    S_WHOLE(&t, diverged);
    S_WHOLE(&t, failed);
    S_NUMBER(&t, mean);
    S_NUMBER(&t, lo95);
    S_NUMBER(&t, hi95);
    S_NUMBER(&t, lo90);
    S_NUMBER(&t, hi90);
    S_NUMBER(&t, median);
    S_NUMBER(&t, median_lo);
    S_NUMBER(&t, median_hi);
    S_NUMBER(&t, p);
    S_NUMBER(&t, q);
    S_NUMBER(&t, null_mean);
    S_NUMBER(&t, null_lo);
    S_NUMBER(&t, null_hi);
    S_NUMBER(&t, delta);
    S_TEXT(&t, verdict);
    for (int64_t i = 0; i < t.rows; i++) {
        int64_t k = i % S_SCALES, j = i / S_SCALES % S_LABELS, at = i / (S_SCALES * S_LABELS);
        double e = s_effect(j, at) * (1 + 0.3 * log2(s_scale[k])), w = 0.004 + 0.15 * fabs(e);
        int few = j == 9 && at == 7;
        problem[i] = s_problem[at];
        label[i] = s_name(j, evil);
        lr_scale[i] = s_scale[k];
        n[i] = few ? 0 : S_SEEDS;
        failed[i] = few ? S_SEEDS : 0;
        diverged[i] = j == 10 && at == 3 && k == 4 ? S_SEEDS : 0;
        mean[i] = median[i] = few ? nan("") : e;
        lo95[i] = median_lo[i] = few ? nan("") : e - w;
        hi95[i] = median_hi[i] = few ? nan("") : e + w;
        lo90[i] = few ? nan("") : e - 0.8 * w;
        hi90[i] = few ? nan("") : e + 0.8 * w;
        p[i] = few ? nan("") : exp(-fabs(e) / w);
        q[i] = j == 0 || j == S_LABELS - 1 ? nan("") : p[i];
        null_mean[i] = 0.0005;
        null_lo[i] = -0.003 - 0.02 * (at == 3);
        null_hi[i] = 0.004 + 0.02 * (at == 3);
        delta[i] = 0.0212;
        verdict[i] = few                                         ? "too few"
                     : lo90[i] > -delta[i] && hi90[i] < delta[i] ? "equivalent"
                     : lo95[i] > 0                               ? "worse"
                     : hi95[i] < 0                               ? "better"
                                                                 : "undecided";
    }
    return s_table_store(s, &t, "/protocol/verdicts");
}

static inline qm_status s_shares(struct qm_store *s, int evil, int profiles)
{
    enum { STEPS = 40 };
    struct s_table t = {.rows = (profiles ? 2 : 1) * S_LABELS * STEPS};
    S_TEXT(&t, label);
    S_NUMBER(&t, tau);
    S_NUMBER(&t, share);
    const char **kind = profiles ? s_column(&t, "kind", QM_COLUMN_text, "") : NULL;
    for (int64_t i = 0; i < t.rows; i++) {
        int64_t j = i / STEPS % S_LABELS, k = i % STEPS;
        int twin = i >= S_LABELS * STEPS;
        label[i] = j == 0 && !profiles ? "float64 twin (adamw)" : s_name(j, evil);
        tau[i] = profiles ? 1 + 3.0 * (double)k / (STEPS - 1) : pow(2000, (double)k / (STEPS - 1));
        share[i] = pow((double)(k + 1) / STEPS, 0.5 + 0.1 * (double)j + 0.3 * twin) *
                   (1 - 0.01 * (double)j);
        if (kind)
            kind[i] = twin ? "twin" : "classical";
    }
    return s_table_store(s, &t, profiles ? "/protocol/profiles" : "/protocol/ecdf");
}

static inline qm_status s_sensitivity(struct qm_store *s, int evil)
{
    struct s_table t = {.rows = S_LABELS * S_PROBLEMS * S_SCALES};
    S_TEXT(&t, problem);
    S_TEXT(&t, label);
    S_NUMBER(&t, lr_scale);
    S_NUMBER(&t, gap_median);
    S_NUMBER(&t, gap_q25);
    S_NUMBER(&t, gap_q75);
    S_NUMBER(&t, twin_median);
    S_NUMBER(&t, twin_q25);
    S_NUMBER(&t, twin_q75);
    for (int64_t i = 0; i < t.rows; i++) {
        int64_t k = i % S_SCALES, j = i / S_SCALES % S_LABELS, at = i / (S_SCALES * S_LABELS);
        struct s_run r = s_run_of(((j * S_PROBLEMS + at) * S_SEEDS) * S_SCALES + k, 0);
        problem[i] = s_problem[at];
        label[i] = s_name(j, evil);
        lr_scale[i] = s_scale[k];
        gap_median[i] = r.gap;
        gap_q25[i] = r.gap * 0.9;
        gap_q75[i] = r.gap * 1.1;
        twin_median[i] = r.twin;
        twin_q25[i] = r.twin * 0.9;
        twin_q75[i] = r.twin * 1.1;
    }
    return s_table_store(s, &t, "/protocol/sensitivity");
}

static inline qm_status s_budget(struct qm_store *s, int evil)
{
    static const char *const parts[6] = {
        "first-moment codes", "second-moment codes", "scales", "parameter", "rest", "all"};
    static const double shares[6] = {0.5, 0.3, 0.1, 0.15, -0.05, 1};
    struct s_table t = {.rows = S_LABELS * S_PROBLEMS * 6};
    S_TEXT(&t, problem);
    S_TEXT(&t, label);
    S_TEXT(&t, part);
    S_NUMBER(&t, mean);
    S_NUMBER(&t, lo95);
    S_NUMBER(&t, hi95);
    for (int64_t i = 0; i < t.rows; i++) {
        int64_t k = i % 6, j = i / 6 % S_LABELS, at = i / (6 * S_LABELS);
        double e = s_effect(j, at) * shares[k];
        problem[i] = s_problem[at];
        label[i] = s_name(j, evil);
        part[i] = parts[k];
        mean[i] = e;
        lo95[i] = e - 0.1 * fabs(e) - 0.001;
        hi95[i] = e + 0.1 * fabs(e) + 0.001;
    }
    return s_table_store(s, &t, "/protocol/budget");
}

static inline qm_status s_targets(struct qm_store *s)
{
    static int64_t hits[S_RUNS * S_TARGETS];
    struct qm_shape shape = {2, {S_RUNS, S_TARGETS}};
    struct s_table t = {.rows = S_PROBLEMS * S_TARGETS};
    S_TEXT(&t, problem);
    S_WHOLE(&t, index);
    S_NUMBER(&t, target);
    for (int64_t i = 0; i < t.rows; i++) {
        problem[i] = s_problem[i / S_TARGETS];
        index[i] = i % S_TARGETS;
        target[i] = pow(10, -(double)(i % S_TARGETS) / 12);
    }
    QM_TRY(s_table_store(s, &t, "/protocol/targets"));
    for (int64_t i = 0; i < S_RUNS * S_TARGETS; i++)
        hits[i] = i % S_TARGETS > 40 ? -1 : 1 + i % S_TARGETS * 50;
    return qm_store_array(s, "/protocol/hits", QM_DTYPE_i64, &shape, hits, "1", "made up", NULL);
}

/* Writes the file; how.evil: with texts that must be escaped. */
static inline qm_status s_write(const char *path, struct s_change how)
{
    int evil = how.evil;
    static char word[2][8] = {"run", "sample"};
    char *argv[] = {word[0], word[1], NULL};
    struct qm_store *s;
    QM_TRY(qm_store_open(path, "run", 2, argv, &s));
    int bad =
        qm_store_text(s, "/suite", "title", evil ? s_evil[0] : "a made-up campaign") ||
        qm_store_text(s, "/suite", "question", evil ? s_evil[1] : "What would a report show?") ||
        qm_store_text(s, "/suite", "plan", evil ? s_evil[2] : "variant: []\n") || s_cells(s, how) ||
        s_curves(s, how) || s_runs(s, how) || s_targets(s) || s_verdicts(s, evil) ||
        s_shares(s, evil, 0) || s_shares(s, evil, 1) || s_sensitivity(s, evil) || s_budget(s, evil);
    (void)bad; /* the store keeps the first failure */
    return qm_store_commit(s);
}

#endif
