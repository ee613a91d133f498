/* side_case.c - Draws cases by the sides of their matrices: equal, round and long ones, and rows of
 * whole blocks.
 *
 * A kernel that mixes up two axes shows it at other sides only where it takes one for the other by
 * their lengths; one that cuts a matrix into tiles or a row into blocks, where a side ends just
 * beyond one, or with one. */
#include "experiments/check/domain_source.h"

/* ---- equal sides ----------------------------------------------------------------------------- */

void qm_domain_equal_sides(struct qm_domain_source *s, int64_t side, struct qm_shape *shape)
{
    int rank = shape->rank, is_pair = rank > 2 && qm_domain_one_in(s, 2);
    int one = is_pair ? (int)qm_domain_below(s, rank) : -1;
    int other = is_pair ? (one + 1 + (int)qm_domain_below(s, rank - 1)) % rank : -1;
    for (int a = 0; a < rank; a++)
        if (!is_pair || a == one || a == other)
            shape->dim[a] = side;
}

int qm_domain_sides_bin(const struct qm_shape *shape)
{
    enum { NONE, DIFFERENT, TWO, TWO_ABOVE, ALL, ALL_ABOVE, TILE = 64 };
    int64_t most = 0; /* the longest side that another one equals */
    int all = 1;
    for (int a = 0; a < shape->rank; a++)
        for (int b = 0; b < a; b++) {
            int same = shape->dim[a] == shape->dim[b];
            most = same && shape->dim[a] > most ? shape->dim[a] : most;
            all &= same;
        }
    if (shape->rank < 2 || most < 2)
        return shape->rank < 2 ? NONE : DIFFERENT;
    return (all ? ALL : TWO) + (most > TILE);
}

/* 1: the rule keeps a factor of each axis, of pieces of at most 128 (cases.c). */
static int has_factors(const struct qm_domain *d)
{
    return (int)(d->reads >> QM_HYPER_max_order & 1);
}

/* The longest of equal sides, beyond which the reference takes seconds. */
static int64_t longest_equal(const struct qm_domain *d)
{
    enum { FACTORED = 128, SMALL = 136, WINDOW = 90, ANY = 1030, LISTED = 264 };
    return d->reads >> QM_HYPER_window & 1     ? WINDOW
           : has_factors(d)                    ? FACTORED
           : d->largest <= QM_DOMAIN_PROJECTED ? SMALL
           : d->can_restart                    ? ANY
                                               : LISTED;
}

/* The side of equal ones: around 64, 128 or 256, between them, or around 700 or 1000. */
static int64_t equal_side(const struct qm_domain *d, struct qm_domain_source *s, int64_t near)
{
    enum { LEAST = 65, MOST = 300 };
    int64_t longest = longest_equal(d), most = longest < MOST ? longest : MOST;
    if (near == 0 || near + 3 > longest)
        return LEAST + qm_domain_log_uniform(s, most - LEAST);
    return near - 3 + qm_domain_below(s, 7);
}

/* Three axes, of which two are equal, or all. */
static struct qm_shape equal_of_three(const struct qm_domain *d, struct qm_domain_source *s)
{
    enum { LEAST = 17, CUBES = 14, SLAB = 130 };
    int64_t side = equal_side(d, s, 0), few = 2 + qm_domain_below(s, 2);
    int64_t cube = LEAST + qm_domain_below(s, CUBES);
    struct qm_shape shape = {3, {cube, cube, cube}};
    if (qm_domain_one_in(s, 2))
        return shape;
    side = side < SLAB ? side : SLAB;
    shape = (struct qm_shape){3, {side, side, side}};
    shape.dim[qm_domain_below(s, 3)] = few;
    return shape;
}

/* ---- long matrices --------------------------------------------------------------------------- */

/* A side just or well beyond 2^16, where an index of 16 bits ends. */
static int64_t beyond_16_bits(struct qm_domain_source *s)
{
    return (1 << 16) +
           (qm_domain_one_in(s, 4) ? 1 + qm_domain_below(s, 4) : 8 * qm_domain_log_uniform(s, 512));
}

/* The other side of a long matrix of at most so many elements: log-uniform below the root of what
 * remains, or (wide) from there on. */
static int64_t other_side(struct qm_domain_source *s, int64_t length, int64_t elements, int is_wide)
{
    int64_t most = elements / length < 2 ? 2 : elements / length;
    int64_t root = (int64_t)sqrt((double)most), at = qm_domain_log_uniform(s, most / root);
    return is_wide ? root * at + qm_domain_below(s, root) / 2 : 1 + qm_domain_log_uniform(s, root);
}

static struct qm_shape matrix(int64_t length, int64_t other, int is_tall)
{
    return is_tall ? (struct qm_shape){2, {length, other}} : (struct qm_shape){2, {other, length}};
}

/* A long matrix with an other side as wide as the budget of elements allows. */
static struct qm_shape long_shape(const struct qm_domain *d, struct qm_domain_source *s,
                                  int is_tall)
{
    enum { ANY, SMALL, PROJECTED };
    static const struct {
        int least, most, elements;
    } kinds[] = {[ANY] = {1025, 13000, QM_COSTLY},
                 [SMALL] = {1025, 1 << 12, 1 << 14},
                 [PROJECTED] = {257, 1200, 1 << 14}};
    int k = qm_domain_is_projected(d) ? PROJECTED : d->largest <= QM_DOMAIN_WINDOWED ? SMALL : ANY;
    int64_t elements = kinds[k].elements,
            length = kinds[k].least + qm_domain_log_uniform(s, kinds[k].most - kinds[k].least);
    return matrix(length, other_side(s, length, elements, !qm_domain_one_in(s, 3)), is_tall);
}

/* ---- the cases ------------------------------------------------------------------------------- */

/* Ordinary settings; of a window few rows. */
static struct qm_case settings(const struct qm_domain *d, struct qm_domain_source *s, int64_t turn,
                               const struct qm_shape *shape)
{
    enum { WINDOW = 8 };
    struct qm_case c = qm_large_settings(d, s, turn, shape);
    if (d->reads >> QM_HYPER_window & 1)
        qm_domain_put(d, QM_HYPER_window, (double)(1 + qm_domain_below(s, WINDOW)), &c);
    return c;
}

/* Both sides are multiples of 8 to 128, as those of most networks are, where loops over whole
 * vectors or tiles have a path of their own: one matrix of each unit is square and one is not.
 * Settings are plain in three of four; Shampoo's statistics and roots are due at every step, and
 * its blocks of 64 in a row have one element more or fewer in two of three such matrices. */
static int round_sides(const struct qm_domain *d, struct qm_domain_source *s, int64_t i,
                       struct qm_case *c)
{
    static const int units[] = {64, 16, 128, 32, 8};
    enum { UNITS = sizeof units / sizeof *units, LONGEST = 256, MOST = 4, ELEMENTS = 1 << 15 };
    enum { LOADED = -4, ORDER_MOST = 128 };
    int64_t turn = i / 16, unit = units[turn % UNITS];
    int64_t most = (has_factors(d) ? ORDER_MOST : LONGEST) / unit;
    if (i % 16 != 0)
        return 0;
    int64_t elements = qm_domain_is_projected(d)          ? ELEMENTS / 2
                       : d->largest == QM_DOMAIN_WINDOWED ? QM_DOMAIN_WINDOWED
                                                          : ELEMENTS;
    most = most < MOST ? most : MOST;
    struct qm_shape shape = {2, {unit * (1 + qm_domain_below(s, most)), 0}};
    int is_square = turn % 2 == 0, is_tall = qm_domain_one_in(s, 2);
    int64_t more = unit * (1 + qm_domain_below(s, most));
    while (shape.dim[0] > unit && shape.dim[0] * shape.dim[0] > elements)
        shape.dim[0] -= unit;
    shape.dim[1] = shape.dim[0] + (is_square ? 0 : more);
    while (shape.dim[1] > unit && shape.dim[0] * shape.dim[1] >= elements)
        shape.dim[1] -= unit;
    shape = matrix(shape.dim[is_tall], shape.dim[!is_tall], 1);
    if (has_factors(d) && turn % UNITS == 0) {
        int one = (int)qm_domain_below(s, 2);
        shape.dim[!one] = unit;
        shape.dim[one] += 1 - turn / UNITS % 3;
    }
    int64_t two = 2 * shape.dim[0] * shape.dim[1];
    if (turn % 4 == 3 && two < elements && !has_factors(d)) /* a batch of them */
        shape = (struct qm_shape){3, {2, shape.dim[0], shape.dim[1]}};
    struct qm_case to = {.shape = shape,
                         .kind = qm_domain_one_in(s, 4) ? QM_CLASS_unit : QM_CLASS_normal,
                         .t = 1 + qm_domain_below(s, 30),
                         .forced = !qm_domain_one_in(s, 4)};
    if (qm_domain_one_in(s, 4))
        to = settings(d, s, turn, &shape);
    if (d->reads >> QM_HYPER_factored & 1)
        qm_domain_put(d, QM_HYPER_factored, (double)(turn % 3 > 0), &to);
    if (d->reads >> QM_HYPER_eps1 & 1 && turn % 2)
        qm_domain_put(d, QM_HYPER_eps1, 0x1p-7, &to);
    if (has_factors(d)) {
        qm_domain_put(d, QM_HYPER_stat_gap, 1.0, &to);
        qm_domain_put(d, QM_HYPER_root_gap, 1.0, &to);
        qm_domain_put(d, QM_HYPER_rect_stat, (double)(1 + turn % 3), &to);
        qm_domain_put(d, QM_HYPER_max_order, (double)QM_ORDER_MOST, &to);
    }
    if (qm_domain_one_in(s, 4)) {
        to.powered |= 1u << QM_POWER_s;
        to.power[QM_POWER_s] = LOADED;
    }
    if (has_factors(d))
        qm_domain_some_stat_decay(d, s, &to);
    if (!qm_domain_takes(d, &to))
        return 0;
    *c = to;
    return 1;
}

void qm_domain_some_stat_decay(const struct qm_domain *d, struct qm_domain_source *s,
                               struct qm_case *c)
{
    enum { KINDS = 6, GIVEN = 4, FAR = 9, NEAR = 11 };
    int kind = (int)qm_domain_below(s, KINDS), is_loaded = c->powered >> QM_POWER_s & 1;
    double near = 1.0 - ldexp(1.0, -1 - FAR - (int)qm_domain_below(s, NEAR)),
           far = 1.0 - ldexp(1.0, -1 - (int)qm_domain_below(s, FAR));
    if (kind < GIVEN && d->reads >> QM_HYPER_stat_decay & 1)
        qm_domain_put(d, QM_HYPER_stat_decay,
                      kind == 0   ? 0.0
                      : kind == 1 ? (is_loaded ? 1.0 : far)
                                  : near,
                      c);
}

/* A side beyond 192 or 256 that is one factor of Shampoo, beside a short one, for the cost of a
 * factor grows with the cube of its order. */
static int long_factor(const struct qm_domain *d, struct qm_domain_source *s, int64_t i,
                       struct qm_case *c)
{
    enum { SHORTER = 193, LONGER = 257, IDLE = 1100, MORE = 64, SHORT = 4, LOADED = -4 };
    if (i % 40 != 31 || !has_factors(d))
        return 0;
    int is_tall = qm_domain_one_in(s, 2), turn = (int)(i / 40);
    int64_t length = (turn % 2 ? SHORTER : LONGER) + qm_domain_below(s, MORE);
    struct qm_case to = {.kind = QM_CLASS_normal, .t = 1 + qm_domain_below(s, 30), .forced = 1};
    to.shape = matrix(length, 1 + qm_domain_below(s, SHORT), is_tall);
    if (turn % 4 == 1) { /* at the published order, of which the tiles alone are looked at */
        to.shape = matrix(IDLE + qm_domain_below(s, MORE), 2 + qm_domain_below(s, 2), is_tall);
        qm_domain_put(d, QM_HYPER_stat_gap, 500.0, &to);
        qm_domain_put(d, QM_HYPER_root_gap, 500.0, &to);
        qm_domain_put(d, QM_HYPER_max_order, (double)QM_ORDER_IDLE, &to);
        if (!qm_domain_takes(d, &to))
            return 0;
        *c = to;
        return 1;
    }
    qm_domain_put(d, QM_HYPER_stat_gap, 1.0, &to);
    qm_domain_put(d, QM_HYPER_root_gap, 1.0, &to);
    qm_domain_put(d, QM_HYPER_rect_stat, (double)(turn % 4 != 2), &to);
    qm_domain_put(d, QM_HYPER_rect_root, (double)(1 + turn % 3), &to);
    qm_domain_put(d, QM_HYPER_max_order, (double)QM_ORDER_LONG, &to);
    if (turn % 4 == 0) { /* vectors of its own, of eigenvalues apart: what rectifies them shows */
        to.kind = QM_CLASS_graded;
        to.t = 1;
        to.forced = 0;
        to.shape = matrix(length, SHORT - qm_domain_below(s, 2), is_tall);
    } else {
        to.powered = 1u << QM_POWER_s;
        to.power[QM_POWER_s] = LOADED;
        qm_domain_some_stat_decay(d, s, &to);
    }
    if (!qm_domain_takes(d, &to))
        return 0;
    *c = to;
    return 1;
}

/* Factors of order 65 and 129, whose rows have one element in their last block of 64.  The first
 * statistic, of a gradient of full rank, is well conditioned, so that its vectors and root are
 * known. */
static int lone_tails(const struct qm_domain *d, struct qm_domain_source *s, int64_t i,
                      struct qm_case *c)
{
    enum { ORDER = 64, MORE = 24 };
    if (i % 40 != 11 || !has_factors(d))
        return 0;
    int64_t turn = i / 40, order = ORDER * (1 + turn % 2) + 1;
    struct qm_case to = {.kind = QM_CLASS_normal, .t = 1 + qm_domain_below(s, 30), .forced = 1};
    to.shape = matrix(order, order + 6 + qm_domain_below(s, MORE), (int)(turn / 2 % 2));
    qm_domain_put(d, QM_HYPER_stat_gap, 1.0, &to);
    qm_domain_put(d, QM_HYPER_root_gap, 1.0, &to);
    qm_domain_put(d, QM_HYPER_max_order, (double)QM_ORDER_MOST, &to);
    qm_domain_some_stat_decay(d, s, &to);
    if (!qm_domain_takes(d, &to))
        return 0;
    *c = to;
    return 1;
}

/* Small factors whose statistic hardly takes a gradient in, by a weight 1 - beta that float32
 * hardly tells; in half of them nothing is added to the eigenvalues. */
static int slow_statistic(const struct qm_domain *d, struct qm_domain_source *s, int64_t i,
                          struct qm_case *c)
{
    enum { SIDES = 40, NEAREST = 24 };
    if (i % 40 != 21 || !has_factors(d))
        return 0;
    struct qm_case to = {.kind = QM_CLASS_normal, .t = 1 + qm_domain_below(s, 30), .forced = 1};
    to.shape = matrix(2 + qm_domain_below(s, SIDES), 2 + qm_domain_below(s, SIDES), 1);
    double left =
        ldexp(1.0 + 0x1p-32 * (double)qm_domain_word(s), -2 - (int)qm_domain_below(s, NEAREST));
    qm_domain_put(d, QM_HYPER_stat_gap, 1.0, &to);
    qm_domain_put(d, QM_HYPER_root_gap, 1.0, &to);
    qm_domain_put(d, QM_HYPER_start, 1.0, &to);
    qm_domain_put(d, QM_HYPER_stat_decay, 1.0 - left, &to);
    if (qm_domain_one_in(s, 2))
        qm_domain_put(d, QM_HYPER_matrix_eps, 0.0, &to);
    if (!qm_domain_takes(d, &to))
        return 0;
    *c = to;
    return 1;
}

/* More than 2^16 rows or columns beside one or two of the others, of a rule that projects matrices
 * and scales each channel by itself; projected to rank 1, for its cost. */
static int many_channels(const struct qm_domain *d, struct qm_domain_source *s, int64_t i,
                         struct qm_case *c)
{
    enum { STEPS = 3 };
    if (i % 40 != 31 || !qm_domain_is_projected(d))
        return 0;
    struct qm_case to = {.kind = qm_domain_one_in(s, 2) ? QM_CLASS_normal : QM_CLASS_unit,
                         .t = 1 + qm_domain_below(s, STEPS),
                         .forced = 1};
    int64_t length = beyond_16_bits(s);
    to.shape = matrix(length, 1 + qm_domain_below(s, 2), (int)(i / 40 % 2));
    qm_domain_put(d, QM_HYPER_rank, 1.0, &to);
    if (!qm_domain_takes(d, &to))
        return 0;
    *c = to;
    return 1;
}

/* More than 2^16 matrices of one or two elements, of a rule that takes each by itself (Muon). */
static int many_matrices(const struct qm_domain *d, struct qm_domain_source *s, int64_t i,
                         struct qm_case *c)
{
    if (i % 80 != 31 || !(d->reads >> QM_HYPER_adjust & 1))
        return 0;
    struct qm_case to = {.kind = QM_CLASS_normal, .t = 1 + qm_domain_below(s, 30), .forced = 1};
    int is_tall = qm_domain_one_in(s, 2);
    to.shape = (struct qm_shape){3, {beyond_16_bits(s), 1 + is_tall, 2 - is_tall}};
    if (d->reads >> QM_HYPER_flatten & 1)
        qm_domain_put(d, QM_HYPER_flatten, 0.0, &to);
    if (!qm_domain_takes(d, &to))
        return 0;
    *c = to;
    return 1;
}

/* Where a rule or its formats treat rows and columns apart: of ten cases seven have equal sides, of
 * which a quarter has one side shorter by one, and three are long. */
static int by_sides(const struct qm_domain *d, struct qm_domain_source *s, int64_t i,
                    struct qm_case *c)
{
    enum { TURNS = 10, LONG = -1, THREE = -2 };
    static const int kinds[TURNS] = {128, LONG, 64, THREE, 0, LONG, 256, THREE, 1000, LONG};
    int64_t turn = i / 16;
    int kind = kinds[turn % TURNS];
    if (i % 16 != 8 || (!d->has_sides && d->recipe.rule->elementwise))
        return 0;
    struct qm_shape shape;
    if (kind == LONG && !has_factors(d)) {
        shape = long_shape(d, s, (int)(turn % 4 == 1));
    } else if (kind == THREE) {
        shape = equal_of_three(d, s);
    } else {
        int near = kind == LONG ? 0 : kind == 1000 && qm_domain_one_in(s, 2) ? 700 : kind;
        int64_t side = equal_side(d, s, near);
        shape = (struct qm_shape){2, {side, side}};
        if (qm_domain_one_in(s, 4) && side > 1)
            shape.dim[qm_domain_below(s, 2)] -= 1;
    }
    *c = settings(d, s, turn + 3, &shape);
    return 1;
}

/* Rows of one to eight blocks, each number in turn, and of these in turn one element more, one less
 * and none: of a reference that judges small matrices alone. */
static int rows_of_blocks(const struct qm_domain *d, struct qm_domain_source *s, int64_t i,
                          struct qm_case *c)
{
    static const int tails[] = {1, -1, 1, 0};
    enum { BLOCKS = 8 };
    int64_t block = d->row_block, turn = i / 20;
    int64_t blocks = 1 + (5 * turn + (int64_t)(s->seed % BLOCKS)) % BLOCKS;
    if (i % 20 != 17 || block < 2 || block > QM_DOMAIN_PROJECTED ||
        d->largest > QM_DOMAIN_PROJECTED)
        return 0;
    struct qm_case to = {.shape = {2, {2 + qm_domain_below(s, 2), block * blocks}},
                         .kind = turn % 2 == 1            ? QM_CLASS_graded
                                 : qm_domain_one_in(s, 2) ? QM_CLASS_normal
                                                          : QM_CLASS_planted,
                         .t = 1 + qm_domain_below(s, 30),
                         .forced = 1};
    to.shape.dim[1] += turn % 8 < 7 ? tails[turn % 4] : qm_domain_below(s, 99);
    if (!qm_domain_takes(d, &to))
        return 0;
    *c = to;
    return 1;
}

/* Matrices with both sides beyond 128 or 256, which kernels cut into tiles; of each run of eight
 * one with two rows of more than 2^16 elements and one with two such columns, one each of some more
 * of over 8192 and 1024.  A reference that judges small matrices alone takes one of the first
 * kind. */
static int large_matrix(const struct qm_domain *d, struct qm_domain_source *s, int64_t i,
                        struct qm_case *c)
{
    int is_small = d->largest <= QM_DOMAIN_PROJECTED || d->largest < 1 << 17;
    if (i % 20 != 1 || (is_small && i % 160 != 1))
        return 0;
    struct qm_shape shape = {2, {0}};
    int64_t turn = i / 20, kind = is_small ? 0 : turn % 4, length = beyond_16_bits(s);
    int is_longest = turn % 8 < 4; /* which the first cases of a run have */
    for (int a = 0; a < 2; a++)
        shape.dim[a] = kind == 3 ? 257 + qm_domain_log_uniform(s, 128)
                                 : 129 + qm_domain_log_uniform(s, is_small ? 32 : 256);
    if (kind == 1 || kind == 2) { /* many rows, many columns */
        if (!is_longest)
            length = kind == 1 ? 1025 + qm_domain_log_uniform(s, 12000)
                               : 8193 + qm_domain_log_uniform(s, 24000);
        shape = matrix(length, is_longest ? 2 : other_side(s, length, QM_COSTLY, 1), kind == 1);
    }
    *c = qm_large_settings(d, s, turn + 3, &shape);
    return 1;
}

/* Long matrices, a quarter of them around 2^16, in which what a rule of matrices adds up along it
 * matters: settings are ordinary, and the case is that of some in which most of them have an
 * effect. */
static int thin_matrix(const struct qm_domain *d, struct qm_domain_source *s, int64_t i,
                       struct qm_case *c)
{
    enum { MOST = 1 << 13, LENGTHS = 4, ELEMENTS = 1 << 14 };
    if (d->largest != QM_DOMAIN_PROJECTED || qm_domain_is_projected(d) || i % 20 != 9)
        return 0;
    int64_t turn = i / 20, most = MOST >> turn % LENGTHS,
            length = most - qm_domain_below(s, most / 2) + 1;
    int64_t other = other_side(s, length, ELEMENTS, turn % 2 == 0);
    if (turn % LENGTHS == 0) {
        length = beyond_16_bits(s);
        other = 1 + (int64_t)(((uint64_t)(turn / LENGTHS) + s->seed) % 2); /* beyond 2^17, too */
    }
    struct qm_shape shape = matrix(length, other, (int)(turn / LENGTHS % 2));
    *c = qm_large_settings(d, s, turn + 3, &shape);
    return 1;
}

int qm_side_case(const struct qm_domain *d, struct qm_domain_source *s, int64_t i,
                 struct qm_case *c)
{
    return long_factor(d, s, i, c) || lone_tails(d, s, i, c) || slow_statistic(d, s, i, c) ||
           many_channels(d, s, i, c) || many_matrices(d, s, i, c) || round_sides(d, s, i, c) ||
           by_sides(d, s, i, c) || thin_matrix(d, s, i, c) || rows_of_blocks(d, s, i, c) ||
           large_matrix(d, s, i, c);
}
