/* aimed_case.c - Draws cases that are aimed at what cases of any kind hardly ever meet. */
#include "experiments/check/domain_source.h"

/* A small bias of rounding by draws shows only in many draws near an end of their cells: planted
 * codes, parameters that stay, and parameters that move by 2^-9 to 2^-14 of a spacing: the rate
 * is such a part of the spacing of numbers around 1, for updates around 1. */
static int many_draws(const struct qm_domain *d, struct qm_domain_source *s, int64_t i,
                      struct qm_case *c)
{
    if (!d->rounds_by_draws || i % 20 != 13)
        return 0;
    *c = (struct qm_case){.shape = {1, {(1 << 17) - qm_domain_below(s, 99)}},
                          .kind = QM_CLASS_planted,
                          .t = qm_domain_first_step(d, s),
                          .forced = 1};
    struct qm_case still = *c;
    int spacing = d->recipe.param.format == QM_PARAM_f16    ? -10
                  : d->recipe.param.format == QM_PARAM_bf16 ? -7
                                                            : -3;
    still.given = (uint64_t)1 << QM_HYPER_lr | (uint64_t)1 << QM_HYPER_weight_decay;
    still.hyper[QM_HYPER_lr] = 0.0;
    if (i % 80 != 13) {
        still.kind = QM_CLASS_unit;
        still.t = 1 + qm_domain_below(s, 3);
        still.hyper[QM_HYPER_lr] = ldexp(1.0, spacing - 12 - (int)qm_domain_below(s, 2));
        still.shape.dim[0] *= d->largest > 1 << 20 ? 2 : 1;
    }
    if (d->recipe.param.write == QM_WRITE_stoch && i % 80 != 33 && qm_domain_takes(d, &still))
        *c = still;
    return 1;
}

/* A parameter of 16 or 8 bits meets ties only where arithmetic is exact: zero gradients and states,
 * and a decay by a power of two, p (1 - 2^-k). */
static int exact_decay(const struct qm_domain *d, struct qm_domain_source *s, int64_t i,
                       struct qm_case *c)
{
    const uint64_t both = (uint64_t)1 << QM_HYPER_lr | (uint64_t)1 << QM_HYPER_weight_decay;
    const struct qm_param *p = &d->recipe.param;
    if (p->format == QM_PARAM_f32 || p->write == QM_WRITE_stoch || i % 20 != 3 ||
        (d->reads & both) != both)
        return 0;
    struct qm_case to = {.shape = qm_domain_shape(d, s, i),
                         .kind = qm_domain_one_in(s, 2) ? QM_CLASS_zeros : QM_CLASS_signedzeros,
                         .t = qm_domain_first_step(d, s),
                         .forced = !qm_domain_one_in(s, 2),
                         .given = both};
    to.hyper[QM_HYPER_lr] = ldexp(1.0, -(int)qm_domain_below(s, 4));
    to.hyper[QM_HYPER_weight_decay] = ldexp(1.0, -2 - (int)qm_domain_below(s, 4));
    if (!qm_domain_takes(d, &to))
        return 0;
    *c = to;
    return 1;
}

/* Random numbers of a projection are made in groups of 16: sizes of every residue modulo 16, which
 * odd ranks have; every second matrix is square. */
static int projection_tail(const struct qm_domain *d, struct qm_domain_source *s, int64_t i,
                           struct qm_case *c)
{
    static const int residues[] = {1, 15, 8, 2, 9, 7, 13, 4}, inverse_of_3 = 11;
    if (!qm_domain_may_project(d) || i % 20 != 9)
        return 0;
    int64_t k = i / 20, residue = residues[k % 8];
    int is_square = (k + k / 8) % 2 == 0;
    int64_t rank = is_square || qm_domain_one_in(s, 2) ? 1 : 3;
    struct qm_case to = {.shape = {2, {0}},
                         .kind = QM_CLASS_normal,
                         .t = 1 + qm_domain_below(s, 30),
                         .forced = 1,
                         .given = (uint64_t)1 << QM_HYPER_rank};
    for (int a = 0; a < 2; a++)
        to.shape.dim[a] =
            16 * (1 + qm_domain_below(s, 4)) + (rank == 1 ? residue : residue * inverse_of_3 % 16);
    if (is_square)
        to.shape.dim[1] = to.shape.dim[0];
    to.hyper[QM_HYPER_rank] = (double)rank;
    if (!qm_domain_takes(d, &to))
        return 0;
    *c = to;
    return 1;
}

/* A parameter of 16 or 8 bits overflows by rounding where float32 does not: updates of 3/4 of a
 * spacing move the largest numbers of the format. */
static int rounds_to_inf(const struct qm_domain *d, struct qm_domain_source *s, int64_t i,
                         struct qm_case *c)
{
    static const struct {
        int top, spacing; /* powers of two */
    } ends[] = {[QM_PARAM_bf16] = {127, 120}, [QM_PARAM_f16] = {15, 5}, [QM_PARAM_e4m3] = {8, 5}};
    const uint64_t both = (uint64_t)1 << QM_HYPER_lr | (uint64_t)1 << QM_HYPER_weight_decay;
    const struct qm_param *p = &d->recipe.param;
    if (p->format == QM_PARAM_f32 || i % 40 != 11 || (d->reads & both) != both)
        return 0;
    struct qm_case to = {.shape = {1, {2000 + qm_domain_below(s, 2999)}},
                         .kind = QM_CLASS_normal,
                         .t = 1 + qm_domain_below(s, 3),
                         .forced = !qm_domain_one_in(s, 2),
                         .given = both,
                         .powered = 1u << QM_POWER_p};
    to.power[QM_POWER_p] = ends[p->format].top + 1;
    to.hyper[QM_HYPER_lr] = ldexp(0.75, ends[p->format].spacing);
    if (!qm_domain_takes(d, &to))
        return 0;
    *c = to;
    return 1;
}

/* Blocks of many elements, of any length that the rule takes and half of them in its upper half, in
 * tensors just below, of and just above one block or two, or of any part of them; of few numbers
 * each, because a window has so many rows of them. */
static int long_blocks(const struct qm_domain *d, struct qm_domain_source *s, int64_t i,
                       struct qm_case *c)
{
    enum { MOST = 1 << 15, WINDOW = 8 };
    const uint64_t given = (uint64_t)1 << QM_HYPER_d_block | (uint64_t)1 << QM_HYPER_window |
                           (uint64_t)1 << QM_HYPER_k_init;
    if ((d->reads & given) != given || i % 20 != 9)
        return 0;
    int64_t turn = i / 20, length = turn % 2 ? 41 + qm_domain_log_uniform(s, MOST - 41)
                                             : MOST - qm_domain_below(s, MOST / 2);
    int64_t n = turn % 4 < 2 ? length * (1 + turn / 4 % 2) - 1 + qm_domain_below(s, 3)
                             : length + qm_domain_below(s, length);
    struct qm_case to = {.shape = qm_domain_cut(s, n, 1 + (int)qm_domain_below(s, 2)),
                         .kind = qm_domain_one_in(s, 2) ? QM_CLASS_normal : QM_CLASS_unit,
                         .t = 1 + qm_domain_below(s, 30),
                         .forced = !qm_domain_one_in(s, 2),
                         .given = given};
    to.hyper[QM_HYPER_d_block] = (double)length;
    to.hyper[QM_HYPER_window] = (double)(1 + qm_domain_below(s, WINDOW));
    to.hyper[QM_HYPER_k_init] = 0.001 * (double)(1 + qm_domain_below(s, 20));
    if (!qm_domain_takes(d, &to))
        return 0;
    *c = to;
    return 1;
}

/* A projection onto more numbers than a warp or a buffer of 64 holds, or than 16 up to all. */
static int many_ranks(const struct qm_domain *d, struct qm_domain_source *s, int64_t i,
                      struct qm_case *c)
{
    if (!qm_domain_may_project(d) || i % 40 != 5)
        return 0;
    int is_many = i % 80 == 5;
    struct qm_case to = {.shape = {2, {66 + qm_domain_below(s, 40), 66 + qm_domain_below(s, 40)}},
                         .kind = QM_CLASS_normal,
                         .t = 1 + qm_domain_below(s, 30),
                         .forced = 1,
                         .given = (uint64_t)1 << QM_HYPER_rank};
    int64_t least = to.shape.dim[0] < to.shape.dim[1] ? to.shape.dim[0] : to.shape.dim[1];
    to.hyper[QM_HYPER_rank] =
        (double)(is_many                  ? 65 + qm_domain_below(s, least - 64)
                 : qm_domain_one_in(s, 3) ? least - qm_domain_below(s, 2)
                                          : 16 + qm_domain_log_uniform(s, 50));
    if (is_many && qm_domain_one_in(s, 2)) /* the same as a share of the smaller side */
        to.hyper[QM_HYPER_rank] = fmin((to.hyper[QM_HYPER_rank] + 0.5) / (double)least, 0.99);
    if (!qm_domain_takes(d, &to))
        return 0;
    *c = to;
    return 1;
}

/* 1: a rank beyond the sides of a matrix is that of the smaller side. */
static int clips_rank(const struct qm_domain *d)
{
    const struct qm_shape matrix = {2, {6, 5}};
    struct qm_hyper h = d->recipe.hyper;
    int64_t sum[2] = {0, 0};
    for (int k = 0; k < 2; k++) {
        h.rank = k ? 9.0 : 5.0;
        for (int i = 0; i < d->recipe.rule->n_slots; i++) {
            struct qm_shape of = matrix;
            qm_rule_slot_shape(d->recipe.rule, &h, i, &matrix, &of);
            sum[k] += qm_shape_numel(&of);
        }
    }
    return sum[0] == sum[1];
}

/* Ranks beyond 256.  Most are beyond the sides, too, so that a small matrix has a projection of
 * just more than 2^16 or 2^17 numbers; where the rule clips a rank there, the sides are as long. */
static int beyond_sides(const struct qm_domain *d, struct qm_domain_source *s, int64_t i,
                        struct qm_case *c)
{
    enum { RANKS = 256 };
    int64_t turn = i / 40;
    int clips = qm_domain_may_project(d) && clips_rank(d);
    if (!qm_domain_may_project(d) || i % 40 != 25 || (clips && turn % 4))
        return 0;
    struct qm_case to = {.shape = {2, {0}},
                         .kind = QM_CLASS_normal,
                         .t = 1 + qm_domain_below(s, 30),
                         .given = (uint64_t)1 << QM_HYPER_rank};
    int64_t least = 1 << 20,
            numbers = (turn % 4 == 1 ? 1 << 17 : 1 << 16) + qm_domain_below(s, 999);
    for (int a = 0; a < 2; a++) {
        to.shape.dim[a] = clips ? RANKS + 1 + qm_domain_below(s, 4) : 33 + qm_domain_below(s, 40);
        least = to.shape.dim[a] < least ? to.shape.dim[a] : least;
    }
    to.hyper[QM_HYPER_rank] = (double)(clips      ? RANKS + 1
                                       : turn % 2 ? numbers / least + 1
                                                  : RANKS + qm_domain_log_uniform(s, RANKS));
    if (!qm_domain_takes(d, &to))
        return 0;
    *c = to;
    return 1;
}

/* Sums along an axis, and over all elements, of numbers that one large number swamps: of every four
 * cases two have long columns, one long rows and one a single axis.  In every second case large
 * loaded states keep the update in proportion to the gradient, so that its norm is such a sum. */
static int swamped_sums(const struct qm_domain *d, struct qm_domain_source *s, int64_t i,
                        struct qm_case *c)
{
    enum { LARGE = 20, LESS = -6, BEYOND = 999 };
    const unsigned odd =
        1u << QM_PART_godd | 1u << QM_PART_gfirst | 1u << QM_PART_podd | 1u << QM_PART_sodd;
    if (d->recipe.rule->elementwise || i % 40 != 27)
        return 0;
    int64_t turn = i / 40, most = d->largest / 2 < 1 << 16 ? d->largest / 2 : 1 << 16,
            length = most - qm_domain_below(s, most < BEYOND ? most : BEYOND);
    struct qm_shape shape = {2, {length, 2}};
    if (turn % 4 == 1)
        shape = (struct qm_shape){2, {2, length}};
    if (turn % 4 == 2)
        shape = (struct qm_shape){1, {2 * length}};
    struct qm_case to = qm_large_settings(d, s, turn + 3, &shape);
    to.kind = QM_CLASS_swamped;
    to.powered &= ~(1u << QM_POWER_s | 1u << QM_POWER_g);
    to.part &= ~(odd | 1u << QM_PART_pzero);
    if (turn % 2) {
        to.powered |= 1u << QM_POWER_s;
        to.power[QM_POWER_s] = LARGE;
        if (d->reads >> QM_HYPER_beta1 & 1)
            qm_domain_put(d, QM_HYPER_beta1, 0.0, &to);
        if (d->reads >> QM_HYPER_clip & 1)
            qm_domain_put(d, QM_HYPER_clip, ldexp(1.0, LESS), &to);
    }
    *c = to;
    return 1;
}

/* A step of long memories, in turn any, one around which a count in float32 ends, and one beyond
 * the counts of 28 bits. */
static int64_t late_step(struct qm_domain_source *s, int64_t turn)
{
    static const int least[] = {0, 23, 28}, wide[] = {40, 4, 12}; /* powers of two */
    if (turn % 3 == 0)
        return qm_domain_log_uniform(s, QM_DOMAIN_LAST_STEP);
    int64_t most = (int64_t)1 << wide[turn % 3], at = qm_domain_log_uniform(s, most);
    at = ((int64_t)1 << least[turn % 3]) * at + qm_domain_below(s, 9999);
    return at < QM_DOMAIN_LAST_STEP ? at : QM_DOMAIN_LAST_STEP;
}

/* Averages that remember as many steps as were made, 1 - c/t with c from 1/4 to 4, or as a power of
 * t says, up to the last step of the domain: a count of steps that was cut short, rounded or looked
 * up shows only here. */
static int long_memory(const struct qm_domain *d, struct qm_domain_source *s, int64_t i,
                       struct qm_case *c)
{
    static const int betas[] = {QM_HYPER_beta1, QM_HYPER_beta2, QM_HYPER_momentum};
    int has_power = (int)(d->reads >> QM_HYPER_beta2_decay & 1);
    if (i % 20 != 15)
        return 0;
    struct qm_case to = {.shape = {1, {1 + qm_domain_log_uniform(s, 600)}},
                         .kind = qm_domain_one_in(s, 2) ? QM_CLASS_normal : QM_CLASS_unit,
                         .t = late_step(s, i / 20),
                         .forced = 1};
    for (int k = 0; k < 3; k++)
        if (d->reads >> betas[k] & 1 && (k || i / 20 % 3 == 1 || qm_domain_one_in(s, 2))) {
            to.given |= (uint64_t)1 << betas[k];
            to.hyper[betas[k]] =
                1.0 - (i / 20 % 3 == 1 /* the last float32 numbers below 1 */
                           ? ldexp(1.0, -22 - (int)qm_domain_below(s, 3))
                           : ldexp(1.0, (int)qm_domain_below(s, 5) - 2) / (double)to.t);
        }
    if (has_power) { /* which most rules read where beta2 is -1 */
        to.given |= (uint64_t)1 << QM_HYPER_beta2_decay;
        to.hyper[QM_HYPER_beta2_decay] = -0.01 * (double)(2 + qm_domain_below(s, 39));
        to.hyper[QM_HYPER_beta2] = -1.0;
    }
    if (to.t < 4 || !to.given || !qm_domain_takes(d, &to))
        return 0;
    *c = to;
    return 1;
}

/* A block that gives many of its elements away at once: a share above a quarter of blocks of any
 * length. */
static int large_share(const struct qm_domain *d, struct qm_domain_source *s, int64_t i,
                       struct qm_case *c)
{
    if (!(d->reads >> QM_HYPER_k_init & 1) || i % 40 != 25)
        return 0;
    struct qm_case to = {.shape = {1, {d->largest - qm_domain_log_uniform(s, d->largest / 2)}},
                         .kind = QM_CLASS_normal,
                         .t = 1 + qm_domain_below(s, 30),
                         .forced = 1,
                         .given = (uint64_t)1 << QM_HYPER_k_init};
    to.hyper[QM_HYPER_k_init] = 1.0 - 0.125 * (double)(i / 40 % 6);
    if (!qm_domain_takes(d, &to))
        return 0;
    *c = to;
    return 1;
}

/* A share in hundredths or thousandths of a round block that is a whole number of elements but for
 * a rounding of double, where in float32 it is one element more or fewer. */
static void decimal_share(const struct qm_domain *d, struct qm_domain_source *s, struct qm_case *to)
{
    enum { TRIES = 99, TENS = 40, HUNDREDTHS = 60 };
    for (int tries = 0; tries < TRIES; tries++) {
        int64_t block = 50 * (1 + qm_domain_below(s, TENS));
        double share = (double)(1 + qm_domain_below(s, HUNDREDTHS)) /
                       (qm_domain_one_in(s, 2) ? 100.0 : 1000.0);
        double apart = ceil((double)block * share) - (double)ceilf((float)block * (float)share);
        to->shape.dim[0] = block * (1 + qm_domain_below(s, 3));
        qm_domain_put(d, QM_HYPER_d_block, (double)block, to);
        qm_domain_put(d, QM_HYPER_k_init, share, to);
        if (apart != 0.0)
            return;
    }
}

/* A share of a block that is a little more than a whole number of elements, so that blocks of one
 * element fewer give one fewer away; in turns with these tensors of two to four elements, whose
 * error is coded twice, decimal shares, and blocks of the greatest length. */
static int narrow_share(const struct qm_domain *d, struct qm_domain_source *s, int64_t i,
                        struct qm_case *c)
{
    enum { LEAST = 100, LENGTHS = 1500, FEW = 24, TINY = 3, BLOCKS = 3, LONGEST = 32768 };
    if (!(d->reads >> QM_HYPER_k_init & 1) || i % 40 != 5)
        return 0;
    struct qm_case to = {.shape = {1, {2 + qm_domain_below(s, TINY)}},
                         .kind = qm_domain_one_in(s, 2) ? QM_CLASS_normal : QM_CLASS_unit,
                         .t = 1 + qm_domain_below(s, 30),
                         .forced = 1};
    if (i / 40 % 4 == 2) { /* the longest block that the rule takes, and indices beyond 2^15 */
        to.shape.dim[0] = LONGEST + qm_domain_below(s, LENGTHS);
        qm_domain_put(d, QM_HYPER_d_block, (double)(LONGEST - qm_domain_below(s, 2)), &to);
        qm_domain_put(d, QM_HYPER_k_init, qm_domain_one_in(s, 2) ? 0.9 : 0.002, &to);
        qm_domain_put(d, QM_HYPER_window, 2.0, &to);
    } else if (i / 40 % 4 == 3) {
        decimal_share(d, s, &to);
    } else if (i / 40 % 2) {
        qm_domain_put(d, QM_HYPER_alpha, 0.125 * (double)(1 + qm_domain_below(s, 7)), &to);
    } else {
        int64_t block = LEAST + qm_domain_below(s, LENGTHS), whole = 1 + qm_domain_below(s, FEW);
        to.shape.dim[0] = block * (1 + qm_domain_below(s, BLOCKS)) + qm_domain_below(s, block);
        qm_domain_put(d, QM_HYPER_d_block, (double)block, &to);
        qm_domain_put(d, QM_HYPER_k_init,
                      (double)whole * (1.0 + 0.5 / (double)block) / (double)block, &to);
    }
    if (!qm_domain_takes(d, &to))
        return 0;
    *c = to;
    return 1;
}

/* One or two whole blocks and a tail, or a little less than whole blocks, where a recipe's blocks
 * are longer than the sizes that other cases draw: what a kernel does wrongly in its second block,
 * or in a short one after it, shows only here.  Few elements are chosen and the window is short, so
 * that a case stays cheap.  The first tensor with a window has more than 2^17 elements. */
static int second_block(const struct qm_domain *d, struct qm_domain_source *s, int64_t i,
                        struct qm_case *c)
{
    int64_t block = 0;
    for (int k = 0; k < d->n_blocks; k++)
        block = d->block[k] > block ? d->block[k] : block;
    if (block <= QM_DOMAIN_DRAWN || i % 10 != 9)
        return 0;
    int is_tiny = qm_domain_one_in(s, 2); /* all of one sign, or one element that is both ends */
    int64_t tail = is_tiny                  ? qm_domain_log_uniform(s, 4)
                   : qm_domain_one_in(s, 4) ? -1 - qm_domain_below(s, 3)
                                            : qm_domain_log_uniform(s, block / 2);
    int has_window = (int)(d->reads >> QM_HYPER_window & 1);
    int64_t blocks = has_window && i < 10 ? 1 + (1 << 17) / block : 1 + qm_domain_below(s, 2);
    struct qm_case to = {.shape = {1, {block * blocks + tail}},
                         .kind = qm_domain_one_in(s, 3) ? QM_CLASS_unit : QM_CLASS_normal,
                         .t = 1 + qm_domain_below(s, 30),
                         .forced = 1};
    if (d->reads >> QM_HYPER_k_init & 1)
        qm_domain_put(d, QM_HYPER_k_init, ldexp(1.0, -7 - (int)qm_domain_below(s, 6)), &to);
    if (has_window)
        qm_domain_put(d, QM_HYPER_window, (double)(1 + qm_domain_below(s, 4)), &to);
    if (i / 10 % 2) {
        to.powered |= 1u << QM_POWER_s;
        to.power[QM_POWER_s] = (int)qm_domain_below(s, 8) - 6;
    }
    if (!qm_domain_takes(d, &to))
        return 0;
    *c = to;
    return 1;
}

/* Shampoo's statistics and roots that are due in one of the steps, or both, of orders around the 64
 * from which on they have codes, in one tile or two, of which the second one may be a little
 * smaller, and half of them from loaded vectors, which are far from orthonormal. */
static int due_preconditioners(const struct qm_domain *d, struct qm_domain_source *s, int64_t i,
                               struct qm_case *c)
{
    enum { GAPS = 4, LOADED = -4 };
    if (!(d->reads >> QM_HYPER_stat_gap & 1) || i % 40 != 39)
        return 0;
    int64_t order = 63 + qm_domain_below(s, 3), stat_gap = 1 + qm_domain_below(s, GAPS),
            root_gap = 1 + qm_domain_below(s, GAPS);
    struct qm_case to = {.shape = {2, {order, order}},
                         .kind = qm_domain_one_in(s, 2) ? QM_CLASS_normal : QM_CLASS_unit,
                         .t = stat_gap * root_gap * (1 + qm_domain_below(s, 99)),
                         .forced = qm_domain_one_in(s, 2),
                         .given = (uint64_t)1 << QM_HYPER_stat_gap |
                                  (uint64_t)1 << QM_HYPER_root_gap |
                                  (uint64_t)1 << QM_HYPER_max_order};
    int64_t *side = &to.shape.dim[qm_domain_below(s, 2)];
    int is_cut = qm_domain_one_in(s, 2);
    *side = is_cut ? 2 * order - qm_domain_below(s, 4) : order + qm_domain_below(s, 3) - 1;
    to.hyper[QM_HYPER_stat_gap] = (double)stat_gap;
    to.hyper[QM_HYPER_root_gap] = (double)root_gap;
    to.hyper[QM_HYPER_max_order] = (double)(is_cut ? order : order + 1);
    qm_domain_put(d, QM_HYPER_rect_stat, (double)(1 + i / 80 % 3), &to);
    if (i / 40 % 2) {
        to.powered |= 1u << QM_POWER_s;
        to.power[QM_POWER_s] = LOADED;
    }
    qm_domain_some_stat_decay(d, s, &to);
    if (!qm_domain_takes(d, &to))
        return 0;
    *c = to;
    return 1;
}

/* Steps beyond 2^31 of which one is due by an interval that divides no power of two, so that a step
 * number in 32 bits tells another one. */
static int late_interval(const struct qm_domain *d, struct qm_domain_source *s, int64_t i,
                         struct qm_case *c)
{
    enum { SIDES = 14, LONGEST = 100, FIRST = 31, LAST = 40 };
    if (!(d->reads >> QM_HYPER_stat_gap & 1) || i % 40 != 7)
        return 0;
    int64_t gap = 3 + 2 * qm_domain_below(s, LONGEST / 2),
            from = ((int64_t)1 << (FIRST + qm_domain_below(s, LAST - FIRST))) / gap,
            t = gap * (from + 1 + qm_domain_below(s, from)) - qm_domain_below(s, 2);
    struct qm_case to = {
        .shape = {2, {2 + qm_domain_below(s, SIDES), 2 + qm_domain_below(s, SIDES)}},
        .kind = QM_CLASS_unit,
        .t = t,
        .forced = 1,
        .powered = 1u << QM_POWER_s,
        .given = (uint64_t)1 << QM_HYPER_stat_gap | (uint64_t)1 << QM_HYPER_root_gap};
    to.power[QM_POWER_s] = -4;
    to.hyper[QM_HYPER_stat_gap] = (double)gap;
    to.hyper[QM_HYPER_root_gap] = (double)(i / 40 % 2 ? gap : 3 * gap);
    if (qm_domain_one_in(s, 2)) /* the first step that has roots, or the last one that has none */
        qm_domain_put(d, QM_HYPER_start, (double)(t + qm_domain_below(s, 2)), &to);
    if (!qm_domain_takes(d, &to))
        return 0;
    *c = to;
    return 1;
}

/* Loaded roots that no step renews, after and between steps of another tensor, which every other
 * time has the same sides (companion.c). */
static int kept_roots(const struct qm_domain *d, struct qm_domain_source *s, int64_t i,
                      struct qm_case *c)
{
    enum { SIDES = 20, STEPS = 90 }; /* fewer than the intervals are by default */
    if (!(d->reads >> QM_HYPER_stat_gap & 1) || i % 40 != 23)
        return 0;
    struct qm_case to = {
        .shape = {2, {2 + qm_domain_below(s, SIDES), 2 + qm_domain_below(s, SIDES)}},
        .kind = QM_CLASS_unit,
        .t = 2 + qm_domain_below(s, STEPS),
        .forced = 1,
        .part = 1u << QM_PART_warm | (unsigned)(i / 40 % 2) << QM_PART_second,
        .powered = 1u << QM_POWER_s,
        .power[QM_POWER_s] = -4};
    qm_domain_put(d, QM_HYPER_start, 0.0, &to);
    if (!qm_domain_takes(d, &to))
        return 0;
    *c = to;
    return 1;
}

/* Roots of factors of orders beyond 64, beside a large part of the largest eigenvalue that is added
 * to all: in turns of vectors and values that the same step found from graded gradients, and of
 * loaded ones that grow along the factor or against it, so that the largest stands anywhere. */
static int graded_roots(const struct qm_domain *d, struct qm_domain_source *s, int64_t i,
                        struct qm_case *c)
{
    enum { GAPS = 3, LEAST = 68, ORDERS = 60, QUARTERS = ORDERS / 4, LONGER = 6 };
    if (!(d->reads >> QM_HYPER_stat_gap & 1) || (i % 40 != 19 && i % 40 != 33))
        return 0;
    int is_loaded = i % 40 == 19;
    int64_t gap = is_loaded ? 2 + qm_domain_below(s, GAPS) : 1;
    struct qm_case to = {.shape = {2, {0}},
                         .kind = QM_CLASS_graded,
                         .t = 1 + gap * qm_domain_below(s, 99),
                         .forced = 1,
                         .given =
                             (uint64_t)1 << QM_HYPER_stat_gap | (uint64_t)1 << QM_HYPER_root_gap |
                             (uint64_t)1 << QM_HYPER_max_order | (uint64_t)1 << QM_HYPER_matrix_eps,
                         .powered = is_loaded ? 1u << QM_POWER_s : 0};
    for (int a = 0; a < 2; a++) /* odd multiples of 2, which are whole bytes of codes */
        to.shape.dim[a] = LEAST + 2 + 4 * qm_domain_below(s, QUARTERS);
    if (i / 40 % 4 == 1) /* longer than 128, and one piece */
        to.shape.dim[!is_loaded] = 2 * LEAST + 2 + 4 * qm_domain_below(s, LONGER);
    to.power[QM_POWER_s] = -4 - (int)qm_domain_below(s, 8);
    to.hyper[QM_HYPER_stat_gap] = (double)gap;
    to.hyper[QM_HYPER_root_gap] = 1.0;
    to.hyper[QM_HYPER_max_order] = (double)QM_ORDER_MOST;
    to.hyper[QM_HYPER_matrix_eps] = 0.01 * (double)(1 + qm_domain_log_uniform(s, 300));
    if (is_loaded)
        qm_domain_some_stat_decay(d, s, &to);
    if (!qm_domain_takes(d, &to))
        return 0;
    *c = to;
    return 1;
}

/* Factors of Muon with a shorter side beyond 16, in tiles of which the last is not whole, and with
 * rows beyond 256: products are computed in blocks there.  Two of eight, a wide one and a tall one,
 * have both sides beyond 256, mostly by a quarter: what a second tile of 256 does wrongly shows
 * little in a row of it.  Most others have a side beyond 320 of a multiple of 16 and one more or
 * one less. */
static int blocked_factor(const struct qm_domain *d, struct qm_domain_source *s, int64_t i,
                          struct qm_case *c)
{
    static const int64_t edges[] = {17, 33, 63, 257, 65, 257, 127, 129};
    enum { EDGES = sizeof edges / sizeof *edges, WIDE = 270, BOTH = 15, LONG = 320, MORE = 16 };
    if (!(d->reads >> QM_HYPER_adjust & 1) || i % 20 != 13)
        return 0;
    struct qm_case to = {
        .shape = {2, {0}}, .kind = QM_CLASS_normal, .t = 1 + qm_domain_below(s, 30), .forced = 1};
    int64_t turn = i / 20, edge = edges[turn % EDGES];
    int is_tall = (turn / 2 + turn / 16) % 2 == 0,
        is_long = edge >= 63 && (turn / EDGES % 2 == 0 || edge > 100);
    edge += edge == 257 && !qm_domain_one_in(s, 4) ? 64 : 0;
    to.shape.dim[is_tall] = edge;
    to.shape.dim[!is_tall] = edge + qm_domain_below(s, edge > WIDE - BOTH ? BOTH : WIDE);
    if (edge < WIDE - BOTH && is_long) /* a row too few shows beside a wide side */
        to.shape.dim[!is_tall] =
            LONG + 16 * qm_domain_below(s, MORE) + (qm_domain_one_in(s, 3) ? -1 : 1);
    if (!qm_domain_takes(d, &to))
        return 0;
    *c = to;
    return 1;
}

/* An update that is not finite, where a limiter drops it: what becomes of a float32 moment that
 * averages updates, as that of a small tensor is, factored or not. */
static int dropped_update(const struct qm_domain *d, struct qm_domain_source *s, int64_t i,
                          struct qm_case *c)
{
    if (!(d->reads >> QM_HYPER_limiter & 1) || i % 40 != 17)
        return 0;
    struct qm_case to = {.shape = {1, {2 + qm_domain_below(s, 4000)}},
                         .kind = QM_CLASS_inf,
                         .t = 1 + qm_domain_below(s, 30)};
    if (qm_domain_one_in(s, 2))
        to.shape = (struct qm_shape){2, {2 + qm_domain_below(s, 60), 2 + qm_domain_below(s, 60)}};
    const struct {
        int hyper;
        double value;
    } put[] = {{QM_HYPER_limiter, 1.0},
               {QM_HYPER_factored, (double)(i / 40 % 2)},
               {QM_HYPER_beta1, 0.5 + 0.0625 * (double)qm_domain_below(s, 8)},
               {QM_HYPER_beta2, 0.5 + 0.0625 * (double)qm_domain_below(s, 8)},
               {QM_HYPER_beta3, 0.0},
               {QM_HYPER_relative_step, 0.0}};
    for (size_t k = 0; k < sizeof put / sizeof *put; k++)
        if (d->reads >> put[k].hyper & 1) {
            to.given |= (uint64_t)1 << put[k].hyper;
            to.hyper[put[k].hyper] = put[k].value;
        }
    if (!qm_domain_takes(d, &to))
        return 0;
    *c = to;
    return 1;
}

int qm_aimed_case(const struct qm_domain *d, struct qm_domain_source *s, int64_t i,
                  struct qm_case *c)
{
    return many_draws(d, s, i, c) || exact_decay(d, s, i, c) || rounds_to_inf(d, s, i, c) ||
           projection_tail(d, s, i, c) || long_blocks(d, s, i, c) || many_ranks(d, s, i, c) ||
           long_memory(d, s, i, c) || large_share(d, s, i, c) || narrow_share(d, s, i, c) ||
           due_preconditioners(d, s, i, c) || late_interval(d, s, i, c) || kept_roots(d, s, i, c) ||
           graded_roots(d, s, i, c) || second_block(d, s, i, c) || beyond_sides(d, s, i, c) ||
           swamped_sums(d, s, i, c) || blocked_factor(d, s, i, c) || dropped_update(d, s, i, c);
}
