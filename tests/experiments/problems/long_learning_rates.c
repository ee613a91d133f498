/* long_learning_rates.c - Repeats the search for the learning rates that the problems suggest.
 *
 *     long_learning_rates [NAME ...]
 *
 * problem.h describes the search.  The program prints, for every problem with a loss and every
 * family, the normalised gap at each rate (with * where float32 and double parameters end apart),
 * and exits 1 when the best rate is not the one in the problem's file.  It also compares the noisy
 * quadratic model at full size with its closed form over 10^4 steps, and exits 1 when a mean is off
 * by more than 3 standard errors.  `make check-long` runs it; it takes minutes. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/rule/rule.h"
#include "experiments/problems/problem.h"
#include "oracle/oracle.h"

enum { FAMILIES = 3, RATES = 14, POINTS = 16, MOST = 16 };

/* The largest ratio between the gaps of runs with double parameters and with parameters rounded to
 * float32 after each step. */
#define NULL_ROOM 1.05
#define LEAST     1e-12 /* smaller gaps are below the resolution of double */

static const char *const family[FAMILIES] = {"adamw", "sgdm", "lion"};
static const double highest[FAMILIES] = {0.1, 100, 0.01};

struct run {
    const struct qm_problem *p;
    void *self;
    int n_tensors;
    struct qm_shape shape[QM_PROBLEM_TENSORS];
    int64_t n;
    double *x, *g, *slot[2];
};

static struct run opened(const struct qm_problem *p, const char *args, uint64_t seed)
{
    struct run r = {.p = p};
    if (p->open(args, seed, &r.self, &r.n_tensors, r.shape) != QM_OK) {
        fprintf(stderr, "%s: %s\n", p->name, qm_message());
        exit(3);
    }
    for (int i = 0; i < r.n_tensors; i++)
        r.n += qm_shape_numel(&r.shape[i]);
    r.x = calloc(4 * (size_t)r.n, sizeof *r.x);
    r.g = r.x + r.n;
    r.slot[0] = r.g + r.n;
    r.slot[1] = r.slot[0] + r.n;
    p->start(r.self, r.x);
    return r;
}

static void done(struct run *r)
{
    r->p->close(r->self);
    free(r->x);
}

static void step(struct run *r, const struct qm_oracle *o, const struct qm_oracle_hyper *h,
                 int64_t t)
{
    int64_t at = 0;
    r->p->eval(r->self, r->x, t, r->g);
    for (int i = 0; i < r->n_tensors; i++) {
        double *slot[QM_ORACLE_SLOTS] = {r->slot[0] + at, r->slot[1] + at};
        qm_oracle_step(o, r->x + at, slot, r->g + at, &r->shape[i], (uint32_t)i, h, t);
        at += qm_shape_numel(&r->shape[i]);
    }
}

/* Instances on which a rate is tried.  AdamW solves the sorted quadratic to the last bit at
 * any rate; suites also start it at random and shuffle it, and Adam then oscillates late at
 * high rates. */
static const struct {
    const char *name, *args;
    uint64_t seed;
} instances[] = {
    {"quad", "layout=dct,start=normal", 1},      {"quad", "layout=dct,start=normal", 2},
    {"quad", "layout=shuffled,start=normal", 1}, {"quad", "layout=shuffled,start=normal", 2},
    {"quad", "layout=shuffled,start=normal", 3},
};

/* The mean gap over the last eighth of the steps, over the gap of the start; infinite where the
 * run diverges. */
static double gap_on(const struct qm_problem *p, const char *args, uint64_t seed, int f, double lr,
                     int narrow)
{
    struct run r = opened(p, args, seed);
    const struct qm_oracle *o = qm_oracle_find(family[f]);
    struct qm_hyper d = qm_hyper_default();
    struct qm_oracle_hyper h = {
#define X(name, value, text) .name = d.name,
        QM_HYPER_LIST(X) QM_HYPER_FLAG_LIST(X)
#undef X
    };
    h.lr = lr;
    h.weight_decay = 0;
    if (f == 2)
        h.beta2 = 0.99;
    double floor_value = p->optimum(r.self), start = p->eval(r.self, r.x, 1, NULL) - floor_value;
    double sum = 0;
    int64_t every = p->steps / 8 / POINTS > 0 ? p->steps / 8 / POINTS : 1;
    for (int64_t t = 1; t <= p->steps && sum < HUGE_VAL; t++) {
        step(&r, o, &h, t);
        for (int64_t i = 0; narrow && i < r.n; i++)
            r.x[i] = (double)(float)r.x[i];
        if (p->steps - t >= POINTS * every || (p->steps - t) % every)
            continue;
        double loss = p->eval(r.self, r.x, 1, NULL) - floor_value;
        sum = loss < 1e3 * start ? sum + loss / POINTS : HUGE_VAL;
    }
    done(&r);
    return sum / start;
}

/* Sets gap[] to the gaps on all listed instances of a problem, or at its default arguments and seed
 * 1; returns their number. */
static int gaps_at(const struct qm_problem *p, int f, double lr, int narrow, double *gap)
{
    int n = 0;
    for (size_t i = 0; i < sizeof instances / sizeof *instances; i++)
        if (strcmp(p->name, instances[i].name) == 0)
            gap[n++] = gap_on(p, instances[i].args, instances[i].seed, f, lr, narrow);
    if (n == 0)
        gap[n++] = gap_on(p, "", 1, f, lr, narrow);
    return n;
}

static double frozen(const struct qm_problem *p, int f)
{
    return f == 0 ? p->lr_adamw : f == 1 ? p->lr_sgdm : p->lr_lion;
}

static int null_agrees(const struct qm_problem *p, int f, double lr, const double *gap)
{
    double narrow[MOST];
    int same = 1, n = gaps_at(p, f, lr, 1, narrow);
    for (int i = 0; i < n; i++)
        same &= narrow[i] < NULL_ROOM * gap[i] && narrow[i] * NULL_ROOM > gap[i];
    printf("%s", same ? "" : "*"); /* float32 and double parameters end apart */
    return same;
}

/* Whether the search ends at the rate in the problem's file. */
static int search(const struct qm_problem *p, int f)
{
    double best = HUGE_VAL, best_lr = 0, above = HUGE_VAL;
    printf("%-8s %-6s", p->name, family[f]);
    for (int k = 0; k < RATES; k++) {
        double lr = highest[f] * pow(10, -0.5 * k), each[MOST], gap = 1;
        int n = gaps_at(p, f, lr, 0, each);
        for (int i = 0; i < n; i++) /* the geometric mean */
            gap *= pow(each[i], 1.0 / n);
        printf(" %.2g:%.3g", lr, gap);
        if (gap < best && gap > LEAST && (f != 1 || above < 1) && null_agrees(p, f, lr, each)) {
            best = gap;
            best_lr = lr;
        }
        above = gap;
        fflush(stdout);
        if (gap > 10 * best) /* smaller rates are slower still */
            break;
    }
    int same = fabs(best_lr - frozen(p, f)) <= 1e-6 * best_lr;
    if (best_lr > 0)
        printf("  best %.9g%s\n", best_lr, same ? "" : "  THE FILE HAS ANOTHER");
    else
        printf("  none: no rate lowers the gap without float32 and double ending apart\n");
    return same;
}

/* The mean loss of 48 runs of SGDM (lr 0.05, momentum 0.9) at n = 1000 against the closed form, in
 * standard errors; returns the number of marks that are off by more than 3. */
static int against_closed_form(const char *args)
{
    enum { RUNS = 48, MARKS = 5 };
    static const int64_t mark[MARKS] = {1, 10, 100, 1000, 10000};
    double sum[MARKS] = {0}, sum2[MARKS] = {0}, want[MARKS];
    const struct qm_problem *p;
    int bad = 0;
    if (qm_problem_find("nqm", &p) != QM_OK)
        return 1;
    for (uint64_t seed = 1; seed <= RUNS; seed++) {
        struct run r = opened(p, args, seed);
        for (int64_t t = 1, k = 0; k < MARKS; t++) {
            p->eval(r.self, r.x, t, r.g);
            for (int64_t i = 0; i < r.n; i++) {
                r.slot[0][i] = 0.9 * r.slot[0][i] + r.g[i];
                r.x[i] -= 0.05 * r.slot[0][i];
            }
            if (t != mark[k])
                continue;
            double loss = p->eval(r.self, r.x, 1, NULL);
            sum[k] += loss / RUNS;
            sum2[k] += loss * loss / RUNS;
            want[k] = p->expected(r.self, "sgdm", 0.05, 0.9, t);
            k++;
        }
        done(&r);
    }
    printf("nqm %-10s standard errors off at 1, 10, ... 10^4 steps:", args);
    for (int k = 0; k < MARKS; k++) {
        double off = (sum[k] - want[k]) / sqrt((sum2[k] - sum[k] * sum[k]) / (RUNS - 1));
        printf(" %.2f", off);
        bad += !(fabs(off) <= 3);
    }
    printf("\n");
    return bad;
}

int main(int argc, char **argv)
{
    int bad = 0;
    for (int i = 0; i < qm_problem_count(); i++) {
        const struct qm_problem *p = qm_problem_at(i);
        int wanted = argc == 1;
        for (int k = 1; k < argc; k++)
            wanted |= strcmp(argv[k], p->name) == 0;
        if (wanted && strcmp(p->name, "nqm") == 0)
            bad += against_closed_form("") + against_closed_form("nu=3");
        const struct qm_problem *quad;
        if (wanted && strcmp(p->name, "spike") == 0 && qm_problem_find("quad", &quad) == QM_OK)
            for (int f = 0; f < FAMILIES; f++) /* spikes are studied at the base's rates */
                bad += frozen(p, f) != frozen(quad, f) || p->steps != quad->steps;
        else
            for (int f = 0; wanted && p->optimum && f < FAMILIES; f++)
                bad += !search(p, f);
    }
    return bad ? 1 : 0;
}
