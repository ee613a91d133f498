/* joint_case.c - Draws cases in which two things meet that hardly ever do by chance.
 *
 * A late step and a decay that is small but shows; a tiny rate and a decay that makes up for it; a
 * matrix whose last element stands alone in its block; a weight of 0 and an infinity in the state
 * that it clears; many calls and other flags; a length of RAdam next to its limit; memories longer
 * than all steps before; a large tensor and parameters below the floor of their scale; a matrix
 * that is projected and a tensor of a large number. */
#include <math.h>
#include <string.h>

#include "experiments/check/domain_source.h"

static int reads(const struct qm_domain *d, int k) { return (int)(d->reads >> k & 1); }

static struct qm_case plain(struct qm_domain_source *s, int64_t t)
{
    return (struct qm_case){
        .shape = qm_domain_cut(s, 24 + qm_domain_below(s, 577), 1 + (int)qm_domain_below(s, 3)),
        .kind = qm_domain_one_in(s, 2) ? QM_CLASS_normal : QM_CLASS_unit,
        .t = t,
        .forced = !qm_domain_one_in(s, 4)};
}

/* A step beyond 2^20 as far as the domain has some, 60 % of them below 2^24, three quarters of them
 * odd. */
static int64_t late_step(const struct qm_domain *d, struct qm_domain_source *s)
{
    enum { LEAST = 20, WIDE = 20 };
    int wide = qm_domain_one_in(s, 2) ? WIDE : 4;
    int64_t power = (int64_t)1 << (LEAST + qm_domain_below(s, wide)),
            t = power + qm_domain_below(s, power);
    return t <= d->last_step ? t | qm_domain_one_in(s, 2) : 1 + qm_domain_below(s, d->last_step);
}

/* A rate and a decay whose product moves a parameter by 2^-23 of itself or more. */
static struct qm_case lasting_decay(const struct qm_domain *d, struct qm_domain_source *s,
                                    int is_late)
{
    enum { LEAST = 23, RATE = 20, TINY = 25, SMALL = 17 };
    struct qm_case c = plain(s, is_late ? late_step(d, s) : 1 + qm_domain_below(s, 30));
    int small = qm_domain_one_in(s, 2) ? SMALL : 0; /* least decays are favoured */
    double product = ldexp(1.0 + 0x1p-32 * (double)qm_domain_word(s),
                           -1 - small - (int)qm_domain_below(s, LEAST - small)),
           rate = ldexp(1.0, -(is_late ? 0 : TINY) - (int)qm_domain_below(s, RATE));
    qm_domain_put(d, QM_HYPER_lr, rate, &c);
    qm_domain_put(d, QM_HYPER_weight_decay, product / rate, &c);
    return c;
}

/* A rate of 1 to 2^19, parameters a few times as large, and a tiny decay whose product with the
 * rate moves them by 2^-1 to 2^-8 of themselves. */
static struct qm_case great_rate(const struct qm_domain *d, struct qm_domain_source *s)
{
    enum { LEAST = 8, RATE = 20, LARGER = 4 };
    struct qm_case c = plain(s, 1 + qm_domain_below(s, 30));
    int power = (int)qm_domain_below(s, RATE);
    double product =
        ldexp(1.0 + 0x1p-32 * (double)qm_domain_word(s), -2 - (int)qm_domain_below(s, LEAST - 1));
    qm_domain_put(d, QM_HYPER_lr, ldexp(1.0, power), &c);
    qm_domain_put(d, QM_HYPER_weight_decay, ldexp(product, -power), &c);
    c.powered |= 1u << QM_POWER_p;
    c.power[QM_POWER_p] = power + LARGER;
    return c;
}

/* A matrix of a quarter to all of 2^14 elements, or of the domain's largest size where matrices are
 * projected or windows kept and that is less, one more or, every third one, one fewer than whole
 * blocks; in every other one the largest element of a row or block is one of its last. */
static struct qm_case lonely_last(const struct qm_domain *d, struct qm_domain_source *s,
                                  int64_t turn)
{
    enum { MOST = 1 << 14, SIDE = 1500, TRIES = 64 };
    struct qm_case c = plain(s, 1 + qm_domain_below(s, 30));
    int is_small = qm_domain_is_projected(d) || d->largest == QM_DOMAIN_WINDOWED;
    int64_t block = d->block[qm_domain_below(s, d->n_blocks)],
            most = is_small && d->largest < MOST ? d->largest : MOST,
            rest = turn % 3 == 2 ? block - 1 : 1;
    for (int tries = 0; tries < TRIES; tries++) {
        int64_t side = 2 + qm_domain_log_uniform(s, SIDE), from = most / 4 / side;
        for (int64_t other = from + 1; other <= from + block && other * side <= most; other++) {
            if (other * side % block != rest % block)
                continue;
            int is_long = qm_domain_one_in(s, 2);
            c.shape = (struct qm_shape){2, {is_long ? other : side, is_long ? side : other}};
            c.kind = turn % 2 ? QM_CLASS_lastmax : c.kind;
            return c;
        }
    }
    return c;
}

/* 0 times Inf is NaN: an average of weight 0 does not clear an infinity. */
static struct qm_case kept_infinity(const struct qm_domain *d, struct qm_domain_source *s)
{
    static const int betas[] = {QM_HYPER_beta1, QM_HYPER_beta2, QM_HYPER_beta3, QM_HYPER_momentum};
    enum { BETAS = sizeof betas / sizeof *betas };
    struct qm_case c = plain(s, 2 + qm_domain_below(s, 9));
    int one = (int)qm_domain_below(s, BETAS);
    for (int i = 0; i < BETAS; i++) {
        int k = betas[(one + i) % BETAS];
        if (reads(d, k) && (c.given == 0 || qm_domain_one_in(s, 2)))
            qm_domain_put(d, k, 0.0, &c);
    }
    c.forced = qm_domain_one_in(s, 2);
    c.part |= 1u << (c.forced ? QM_PART_sodd : QM_PART_gfirst);
    if (c.forced) {
        c.powered |= 1u << QM_POWER_s;
        c.power[QM_POWER_s] = -(int)qm_domain_below(s, 8);
    }
    return c;
}

/* A step that 32 bits do not hold, as far as the domain has some: half of them just after a
 * multiple of 2^32, the others below 0 as an int. */
static int64_t wrapped_step(const struct qm_domain *d, struct qm_domain_source *s)
{
    enum { WORD = 32, MULTIPLES = 255, AFTER = 16, FIRST = 12 };
    int64_t t = (1 + qm_domain_below(s, MULTIPLES)) << WORD, half = (int64_t)1 << (WORD - 1);
    t += qm_domain_one_in(s, 2) ? qm_domain_below(s, AFTER) : half + qm_domain_below(s, half);
    return t <= d->last_step ? t : 1 + qm_domain_below(s, FIRST);
}

/* c with every flag that the rule reads drawn. */
static struct qm_case with_flags(const struct qm_domain *d, struct qm_domain_source *s,
                                 struct qm_case c)
{
    c.kind = QM_CLASS_normal;
    for (int k = 0; k < QM_HYPERS; k++)
        if (qm_hyper_is_flag(k) && reads(d, k))
            qm_domain_put(d, k, (double)qm_domain_below(s, 2), &c);
    return c;
}

int qm_late_flags(const struct qm_domain *d, struct qm_domain_source *s, struct qm_case *c)
{
    *c = with_flags(d, s, plain(s, wrapped_step(d, s)));
    return d->last_step > UINT32_MAX;
}

static struct qm_case busy_flags(const struct qm_domain *d, struct qm_domain_source *s)
{
    struct qm_case c = with_flags(d, s, plain(s, 1 + qm_domain_below(s, 12)));
    c.part |= 1u << QM_PART_busy;
    return c;
}

/* The length of the approximated average of RAdam (arXiv:1908.03265, equation 6). */
static double length_of(double beta2, double t)
{
    double power = pow(beta2, t);
    return 2.0 / (1.0 - beta2) - 1.0 - 2.0 * t * power / (1.0 - power);
}

/* A beta2 that makes the length, which grows with it, 5 (1 + apart), above and below in turn. */
static struct qm_case near_limit(const struct qm_domain *d, struct qm_domain_source *s,
                                 int64_t turn)
{
    enum { ROUNDS = 80, LEAST = 8, STRIDE = 7, WIDE = 24 };
    struct qm_case c = plain(s, 6 + qm_domain_log_uniform(s, 1 << 20));
    double apart = ldexp(turn % 2 ? 1.0 : -1.0,
                         -LEAST - (int)((turn / 2 * STRIDE + (int64_t)(s->seed % WIDE)) % WIDE)),
           low = 0.5, high = 1.0 - 0x1p-30;
    for (int i = 0; i < ROUNDS; i++) {
        double middle = 0.5 * (low + high);
        if (length_of(middle, (double)c.t) < 5.0 * (1.0 + apart))
            low = middle;
        else
            high = middle;
    }
    qm_domain_put(d, QM_HYPER_beta2, low, &c);
    return c;
}

/* Averages that remember from a quarter of the steps made to 2^18 times as many, and a schedule of
 * the momentum of any speed. */
static struct qm_case longest_memory(const struct qm_domain *d, struct qm_domain_source *s)
{
    static const int betas[] = {QM_HYPER_beta1, QM_HYPER_beta2, QM_HYPER_momentum};
    enum { SHORTER = 18, SPEEDS = 8 };
    struct qm_case c = plain(s, late_step(d, s));
    for (int i = 0; i < 3; i++) {
        int wide = qm_domain_one_in(s, 2) ? SHORTER + 3 : 4;
        double over = ldexp(1.0, 2 - (int)qm_domain_below(s, wide)) / (double)c.t;
        if (reads(d, betas[i]) && !qm_domain_one_in(s, 3))
            qm_domain_put(d, betas[i], 1.0 - over, &c);
    }
    if (reads(d, QM_HYPER_momentum_decay) && !qm_domain_one_in(s, 3))
        qm_domain_put(d, QM_HYPER_momentum_decay, ldexp(1.0, 3 - (int)qm_domain_below(s, SPEEDS)),
                      &c);
    return c;
}

static struct qm_case numbered_matrix(const struct qm_domain *d, struct qm_domain_source *s)
{
    enum { LEAST = 8, SIDES = 40, RANKS = 4 };
    struct qm_case c = plain(s, 1 + qm_domain_below(s, 30));
    c.shape.rank = 2;
    for (int a = 0; a < 2; a++)
        c.shape.dim[a] = LEAST + qm_domain_below(s, SIDES);
    c.tensor_after_one = qm_domain_word(s) >> qm_domain_below(s, 16);
    qm_domain_put(d, QM_HYPER_rank, (double)(1 + qm_domain_below(s, RANKS)), &c);
    return c;
}

/* A large tensor of small parameters, whose root mean square is below the floor that a rule takes
 * in its place. */
static struct qm_case floored_scale(const struct qm_domain *d, struct qm_domain_source *s)
{
    enum { SIDE = 64, SMALL = 20, FLOOR = 6, LARGE = 1 << 16 };
    struct qm_case c = plain(s, 1 + qm_domain_below(s, 30));
    c.shape = (struct qm_shape){2, {SIDE + qm_domain_below(s, SIDE), 0}};
    c.shape.dim[1] = LARGE / c.shape.dim[0] + 1 + qm_domain_below(s, SIDE);
    c.powered |= 1u << QM_POWER_p;
    c.power[QM_POWER_p] = -SMALL - (int)qm_domain_below(s, SMALL);
    qm_domain_put(d, QM_HYPER_eps2, ldexp(1.0, -(int)qm_domain_below(s, FLOOR)), &c);
    return c;
}

/* 1: numbers stand in blocks, or in rows and columns, so that an element may be the last of one. */
static int has_blocks(const struct qm_domain *d)
{
    int is = d->has_sides;
    for (int i = 0; i < d->recipe.rule->n_slots; i++)
        is |= d->recipe.slot[i].bits != 0;
    return is;
}

struct qm_case qm_joint_case(const struct qm_domain *d, struct qm_domain_source *s, int64_t number)
{
    switch (number % 8) {
    case 0:
    case 4: return lasting_decay(d, s, 1);
    case 7: return number / 8 % 2 ? great_rate(d, s) : lasting_decay(d, s, 0);
    case 2: return kept_infinity(d, s);
    case 3: return busy_flags(d, s);
    case 5: return longest_memory(d, s);
    default:
        return reads(d, QM_HYPER_eps2) && number % 8 == 1 && d->largest >= 1 << 18
                   ? floored_scale(d, s)
               : strncmp(d->recipe.rule->family, "radam", 5) == 0
                   ? near_limit(d, s, number / 8 * 2 + number % 8 / 6)
               : qm_domain_may_project(d) && (qm_domain_is_projected(d) || number / 8 % 2)
                   ? numbered_matrix(d, s)
               : has_blocks(d) ? lonely_last(d, s, number / 8 * 2 + number % 8 / 6)
                               : longest_memory(d, s);
    }
}
