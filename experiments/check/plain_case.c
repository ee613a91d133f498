/* plain_case.c - Draws cases of ordinary numbers in which many hyper-parameters have an effect. */
#include <math.h>

#include "experiments/check/domain_source.h"
#include "experiments/check/effect.h"

/* Values that a number is given as a subject; its own first. */
static const enum qm_hyper_bin bins[] = {QM_HYPER_BIN_own, QM_HYPER_BIN_zero, QM_HYPER_BIN_one,
                                         QM_HYPER_BIN_ordinary};
enum { BINS = sizeof bins / sizeof *bins };

/* How many subjects hyper-parameter k is. */
static int subjects_of(const struct qm_domain *d, int k)
{
    uint64_t from = d->subjects ? d->subjects : d->reads;
    return !(from & d->reads & (uint64_t)1 << k) ? 0 : qm_hyper_is_flag(k) ? 2 : BINS;
}

/* Subject number `at` of the rule, in turn. */
static void subject(const struct qm_domain *d, int64_t at, int *k, enum qm_hyper_bin *bin)
{
    int n = 0;
    for (int i = 0; i < QM_HYPERS; i++)
        n += subjects_of(d, i);
    at = n ? at % n : 0;
    for (int i = 0; i < QM_HYPERS; i++) {
        int own = subjects_of(d, i);
        if (at >= 0 && at < own) {
            *k = i;
            *bin = bins[at];
        }
        at -= own;
    }
}

/* Draws a candidate with hyper-parameter k in the bin (k < 0: no subject). */
static struct qm_case candidate(const struct qm_domain *d, struct qm_domain_source *s, int k,
                                enum qm_hyper_bin bin, enum qm_class kind)
{
    static const enum qm_part parts[] = {QM_PART_second, QM_PART_group, QM_PART_warm};
    int projects = (int)(d->reads >> QM_HYPER_rank & 1), from = (int)qm_domain_below(s, QM_HYPERS);
    int rank = qm_domain_one_in(s, 4) ? 1 : 2 + (int)qm_domain_below(s, 3);
    struct qm_case c = {.forced = qm_domain_one_in(s, 2), .kind = kind, .shape = {rank, {0}}};
    for (int a = 0; a < rank; a++)
        c.shape.dim[a] = a < rank - 2 ? 1 + qm_domain_below(s, 3)
                                      : 1 + qm_domain_log_uniform(s, rank == 1 ? 1000 : 40);
    if (rank > 1 && qm_domain_one_in(s, 6))
        qm_domain_equal_sides(s, 2 + qm_domain_log_uniform(s, rank == 2 ? 40 : 8), &c.shape);
    c.t = qm_domain_one_in(s, 3)   ? 1
          : qm_domain_one_in(s, 2) ? 2 + qm_domain_below(s, 14)
                                   : qm_domain_log_uniform(s, projects ? 40 : 2000);
    if (k >= 0)
        qm_domain_give(d, k, bin, qm_domain_word(s), &c);
    for (int i = 0; i < QM_HYPERS; i++) {
        int at = (from + i) % QM_HYPERS, is_flag = qm_hyper_is_flag(at);
        enum qm_hyper_bin to = bins[1 + qm_domain_below(s, BINS - 1)];
        uint32_t word = qm_domain_word(s);
        if (at != k && d->reads >> at & 1 &&
            qm_domain_one_in(s, is_flag || at == QM_HYPER_weight_decay ? 2 : 3))
            qm_domain_give(d, at, to, word, &c);
    }
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        c.part |= qm_domain_one_in(s, parts[i] == QM_PART_group ? 2 : 5) ? 1u << parts[i] : 0;
    c.part |= qm_domain_one_in(s, 10) ? 1u << QM_PART_pzero : 0;
    if (qm_domain_one_in(s, 4))
        c.tensor_after_one = (uint32_t)qm_domain_below(s, 300);
    if (qm_domain_one_in(s, 5)) { /* what compares with the size of parameters */
        c.powered |= 1u << QM_POWER_p;
        c.power[QM_POWER_p] = -6 - 6 * (int)qm_domain_below(s, 4);
    }
    return c;
}

struct qm_case qm_plain_case(const struct qm_domain *d, struct qm_domain_source *s, int64_t plain)
{
    static const enum qm_class kinds[] = {QM_CLASS_normal, QM_CLASS_normal, QM_CLASS_planted,
                                          QM_CLASS_unit};
    static const enum qm_class still[] = {QM_CLASS_zeros, QM_CLASS_sparse, QM_CLASS_constant,
                                          QM_CLASS_sparse};
    /* STILL: one case of so many.  MOST: so many times the candidates where none has an effect. */
    enum { KINDS = sizeof kinds / sizeof *kinds, STILL = 4, MOST = 5 };
    int is_still = !d->subjects && plain % STILL == STILL - 1, k = -1, best = -1;
    enum qm_hyper_bin bin = QM_HYPER_BIN_own;
    enum qm_class kind = is_still ? still[plain / STILL % STILL] : kinds[qm_domain_below(s, KINDS)];
    struct qm_case out = {.forced = 1};
    if (!is_still)
        subject(d, (d->subjects ? plain : plain - plain / STILL) + (int64_t)(s->seed % 1024), &k,
                &bin);
    int most = d->candidates > 0 && !is_still ? MOST * d->candidates : 1;
    for (int i = 0; i < most && (i < d->candidates || best < QM_HYPERS); i++) {
        struct qm_case c = candidate(d, s, k, bin, kind);
        c.effects = d->candidates > 0 ? qm_case_effects(d, &c) : 0;
        int score = __builtin_popcountll(c.effects);
        score += k >= 0 && c.effects >> k & 1 ? QM_HYPERS : 0;
        if (score > best) {
            best = score;
            out = c;
        }
    }
    return out;
}

/* A matrix of about as many elements as the vector has, of the shape that the word draws. */
static void fold(uint64_t word, struct qm_case *c)
{
    int64_t n = qm_shape_numel(&c->shape), rows = 1;
    for (int64_t most = 1 + (int64_t)(word % 64); rows < most && rows * rows < n;)
        rows++;
    int is_tall = word >> 8 & 1;
    c->shape = (struct qm_shape){2, {0}};
    c->shape.dim[is_tall] = rows;
    c->shape.dim[!is_tall] = n / rows;
}

void qm_domain_finish(const struct qm_domain *d, uint64_t word, struct qm_case *c)
{
    static const struct qm_shape vector = {1, {8}}, matrix = {2, {2, 4}};
    const struct qm_recipe *r = &d->recipe;
    word = word * 0x9e3779b97f4a7c15u ^ word >> 17;
    int is_given = c->given >> QM_HYPER_limiter & 1;
    if (c->shape.rank < 2 && qm_rule_takes(r->rule, &r->hyper, &vector) != QM_OK &&
        qm_rule_takes(r->rule, &r->hyper, &matrix) == QM_OK)
        fold(word >> 20, c);
    if (d->reads >> QM_HYPER_limiter & 1 && c->t > 1 && !qm_case_loads(c) && !is_given &&
        word >> 63)
        (void)qm_domain_put(d, QM_HYPER_limiter, 0.0, c);
    if (c->given >> QM_HYPER_lr & 1 && c->hyper[QM_HYPER_lr] == 0.0 && word >> 62 & 1)
        c->part |= 1u << QM_PART_godd;
}
