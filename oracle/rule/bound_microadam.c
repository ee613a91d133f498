/* bound_microadam.c - The error bound of MicroAdam.
 *
 * a = bf16(g + e) is one sum and one rounding of numbers that are known, so that its ball holds a
 * single number but where a freedom of the judged side meets a rounding.  Then
 *
 *   index   any choice that the balls of a allow: k different elements of the block, none of which
 *           is certain to be smaller than one that is left out.  The judged choice is taken over
 *           where it is such a one, in its own order, so equal magnitudes decide nothing.
 *   value   the ball of a at these places
 *   error   the ball of a, exactly 0 at these places
 *   theta   from the judged window, in balls, with the roundings to the parameter's format between
 *           the operations (`between`).  Where alpha says so, the error is read as it is stored.
 *
 * alpha > 0 codes the error twice in a step and shows the second code alone.  The first is then
 * formed here: lo and hi of a block, and code and value of each element, in balls. */
#include "oracle/rule/microadam.h"

#include <float.h>
#include <stdlib.h>

enum { ERROR = QM_MICROADAM_ERROR, INDEX = QM_MICROADAM_INDEX, VALUE = QM_MICROADAM_VALUE };

/* What the blocks of a step share. */
struct step {
    const struct qm_bound_step *b;
    struct qm_ball *a, *coded, *m, *s; /* [n]; coded: the error that alpha > 0 reads */
    uint8_t *is_picked;
    int64_t *pick, k;
    struct qm_ball c1, c2, eps, decay, rate;
};

static struct qm_ball narrow(struct qm_ball x) { return qm_ball_round_to(&qm_microadam_bf16, x); }

/* x rounded as the parameter is between operations. */
static struct qm_ball between(const struct qm_bound_step *b, struct qm_ball x)
{
    return qm_ball_round_to(b->between, x);
}

/* (1 - beta) / (1 - beta^t) of the beta that float32 has, and its power by float32 products. */
static double of_float(double beta, int64_t t)
{
    float x = 1.0f, b = (float)beta;
    double below = 1.0 - (double)b;
    for (; t > 0; t >>= 1, b = b * b)
        x = t & 1 ? x * b : x;
    return below / (1.0 - (double)x);
}

/* The same by one power in double, rounded to float32 or not. */
static double of_power(double beta, int64_t t, int is_rounded)
{
    double b = (double)(float)beta, x = pow(b, (double)t);
    return (1.0 - b) / (1.0 - (is_rounded ? (double)(float)x : x));
}

/* (1 - beta) / (1 - beta^t), formed in double of double or of float32 numbers, rounded once. */
static struct qm_ball correction(const struct qm_bound_step *b, double beta)
{
    struct qm_ball below = qm_bound_correction(b, beta);
    double x = (1.0 - beta) / below.x, least = below.x - below.e;
    if (!(least > 0.0))
        return (struct qm_ball){x, HUGE_VAL};
    double apart = fmax(fabs(of_float(beta, b->t) - x),
                        fmax(fabs(of_power(beta, b->t, 0) - x), fabs(of_power(beta, b->t, 1) - x)));
    if (!(apart < HUGE_VAL))
        return (struct qm_ball){x, HUGE_VAL};
    return qm_ball_rounded(x, fmax(x * below.e / least, apart) + 0x1p-52 * x, QM_ETA);
}

/* beta^age by products of float32, or by one power that is rounded. */
static struct qm_ball power(double beta, int64_t age)
{
    struct qm_ball x = qm_ball_exact(1.0), b = qm_ball_scalar(beta);
    double exact = pow(beta, (double)age);
    for (; age > 0; age >>= 1, b = qm_ball_mul(b, b))
        x = age & 1 ? qm_ball_mul(x, b) : x;
    return qm_ball_either(x, qm_ball_scalar(exact));
}

/* ---- the window ------------------------------------------------------------------------------ */

/* The least and the largest magnitude that the numbers in a ball may have; NaN is above Inf. */
static double size_at(struct qm_ball x, int is_high)
{
    if (isnan(x.x))
        return HUGE_VAL;
    if (isinf(x.x)) /* below NaN, above every float32 */
        return DBL_MAX;
    if (!(x.e < HUGE_VAL))
        return is_high ? HUGE_VAL : 0.0;
    return is_high ? fabs(x.x) + x.e : fmax(fabs(x.x) - x.e, 0.0);
}

/* Whether the judged indices are k different ones of the block that the balls allow. */
static int is_allowed(const struct step *s, const struct qm_microadam_block *of, const double *got)
{
    const struct qm_ball *a = s->a + of->from;
    double least = HUGE_VAL, left = 0.0;
    for (int64_t i = 0; i < of->size; i++)
        s->is_picked[i] = 0;
    for (int64_t j = 0; j < of->k; j++) {
        if (!(got[j] >= 0.0 && got[j] < (double)of->size) || got[j] != floor(got[j]) ||
            s->is_picked[(int64_t)got[j]])
            return 0;
        s->is_picked[(int64_t)got[j]] = 1;
    }
    for (int64_t i = 0; i < of->size; i++) {
        if (s->is_picked[i])
            least = fmin(least, size_at(a[i], 1));
        else
            left = fmax(left, size_at(a[i], 0));
    }
    return least >= left;
}

/* Sets pick[] and is_picked[], from the judged row where that is allowed. */
static qm_status choose(const struct step *s, const struct qm_microadam_block *of, int64_t row)
{
    const double *got = s->b->stored && s->b->stored[INDEX] ? s->b->stored[INDEX] + row : NULL;
    if (got && is_allowed(s, of, got)) {
        for (int64_t j = 0; j < of->k; j++)
            s->pick[j] = (int64_t)got[j];
        return QM_OK;
    }
    double *x = malloc(sizeof *x * (size_t)(of->size + 1));
    if (!x)
        return qm_fail(QM_NO_MEMORY, "bound of %lld elements", (long long)of->size);
    for (int64_t i = 0; i < of->size; i++) {
        x[i] = s->a[of->from + i].x;
        s->is_picked[i] = 0;
    }
    qm_status st = qm_microadam_largest(x, of->size, of->k, s->pick);
    for (int64_t j = 0; j < of->k && st == QM_OK; j++)
        s->is_picked[s->pick[j]] = 1;
    free(x);
    return st;
}

/* The wanted row and error of a block. */
static qm_status states(const struct step *s, const struct qm_microadam_block *of)
{
    const struct qm_bound_step *b = s->b;
    int64_t row = (b->t - 1) % (int64_t)b->h->window * s->k + of->at;
    for (int64_t i = of->from; i < of->from + of->size; i++)
        s->a[i] = narrow(qm_ball_add(qm_ball_exact(qm_microadam_round(b->g[i])),
                                     narrow(qm_bound_old(b, ERROR, i))));
    QM_TRY(choose(s, of, row));
    for (int64_t j = 0; j < of->k; j++) {
        struct qm_ball *a = &s->a[of->from + s->pick[j]];
        b->want[INDEX][row + j] = (double)s->pick[j];
        b->want[VALUE][row + j] = a->x;
        b->e_slot[VALUE][row + j] = a->e;
    }
    for (int64_t i = 0; i < of->size; i++) {
        if (s->is_picked[i])
            s->a[of->from + i] = qm_ball_exact(0.0);
        b->want[ERROR][of->from + i] = s->a[of->from + i].x;
        b->e_slot[ERROR][of->from + i] = s->a[of->from + i].e;
    }
    return QM_OK;
}

/* ---- alpha > 0: the code that no state shows ------------------------------------------------- */

static struct qm_ball rounded_end(const struct qm_bound_affine *f, struct qm_ball x)
{
    return f->is_bf16 ? narrow(x) : x;
}

static void code_block(const struct qm_bound_affine *f, const struct qm_reorder *o,
                       const struct qm_ball *x, int64_t n, struct qm_ball *out)
{
    const struct qm_ball half = qm_ball_exact(0.5);
    struct qm_ball lo = qm_ball_negated(x[0]), hi = x[0], step;
    int has_nan = 0;
    for (int64_t i = 0; i < n; i++) {
        has_nan |= isnan(x[i].x);
        lo = qm_ball_max(lo, qm_ball_negated(x[i]));
        hi = qm_ball_max(hi, x[i]);
    }
    lo = rounded_end(f, qm_ball_negated(lo));
    hi = rounded_end(f, hi);
    step = qm_ball_div(o, qm_ball_add(hi, qm_ball_negated(lo)), qm_ball_exact((double)f->top));
    for (int64_t i = 0; i < n; i++) {
        struct qm_ball z, end[2];
        out[i] = has_nan ? qm_ball_exact((double)NAN) : lo;
        if (has_nan)
            continue;
        if (lo.x == hi.x && lo.e == 0.0 && hi.e == 0.0)
            continue;
        z = qm_ball_add(qm_ball_div(o, qm_ball_add(x[i], qm_ball_negated(lo)), step), half);
        if (!isfinite(z.x) || !(z.e < HUGE_VAL)) {
            out[i] = (struct qm_ball){x[i].x, HUGE_VAL};
            continue;
        }
        for (int k = 0; k < 2; k++) {
            double code = fmin(fmax(floor(k ? z.x + z.e : z.x - z.e), 0.0), (double)f->top);
            end[k] = qm_ball_add(qm_ball_mul(qm_ball_exact(code), step), lo);
        }
        out[i] = qm_ball_either(end[0], end[1]);
    }
}

/* coded <- the error as the first code decodes. */
static void code_error(const struct step *s)
{
    const struct qm_bound_affine *f = &s->b->affine[ERROR];
    int is_plain = s->b->plain >> ERROR & 1;
    for (int64_t i = 0; i < s->b->n; i += f->block) {
        int64_t n = f->block > 0 && s->b->n - i > f->block ? f->block : s->b->n - i;
        if (f->top > 0)
            code_block(f, &s->b->reorder, s->a + i, n, s->coded + i);
        for (int64_t j = i; j < i + n && f->top == 0; j++)
            s->coded[j] = is_plain ? s->a[j] : (struct qm_ball){s->a[j].x, HUGE_VAL};
        if (f->block <= 0)
            break;
    }
}

/* ---- the parameter --------------------------------------------------------------------------- */

/* The new number of a place of the window: the judged one where it is given. */
static double at_place(const struct qm_bound_step *b, int slot, int64_t j)
{
    return b->stored && b->stored[slot] ? b->stored[slot][j] : b->want[slot][j];
}

/* m and s of one block; s is -1 where no row has an element. */
static void gather(const struct step *s, const struct qm_microadam_block *of)
{
    const struct qm_bound_step *b = s->b;
    int64_t window = (int64_t)b->h->window;
    for (int64_t i = 0; i < of->size; i++) {
        s->m[i] = qm_ball_exact(0.0);
        s->s[i] = qm_ball_exact(-1.0);
    }
    for (int64_t r = 0; r < window && r < b->t; r++) {
        int64_t age = (b->t - 1 - r) % window;
        struct qm_ball first = power(b->h->beta1, age), second = power(b->h->beta2, age);
        for (int64_t j = r * s->k + of->at; j < r * s->k + of->at + of->k; j++) {
            double at = at_place(b, INDEX, j);
            struct qm_ball v = qm_ball_exact(at_place(b, VALUE, j)), square;
            if (!(at >= 0.0 && at < (double)of->size))
                continue;
            struct qm_ball *m = &s->m[(int64_t)at], *to = &s->s[(int64_t)at];
            square = qm_ball_mul(qm_ball_mul(second, v), v);
            if (b->reorder.average)
                square = qm_ball_either(square, qm_ball_mul(second, qm_ball_mul(v, v)));
            *m = qm_ball_add(*m, qm_ball_mul(first, v));
            *to = to->x == -1.0 ? square : qm_ball_add(*to, square);
        }
    }
}

static struct qm_ball update(const struct step *s, int64_t i)
{
    const struct qm_reorder *o = &s->b->reorder;
    if (s->s[i].x == -1.0)
        return qm_ball_exact(0.0);
    struct qm_ball root = qm_ball_sqrt(o, qm_ball_mul(s->c2, s->s[i]));
    return narrow(qm_ball_div(o, qm_ball_mul(s->c1, s->m[i]), qm_ball_add(root, s->eps)));
}

static void parameters(const struct step *s, const struct qm_microadam_block *of)
{
    const struct qm_bound_step *b = s->b;
    const struct qm_oracle_hyper *h = b->h;
    gather(s, of);
    for (int64_t i = 0; i < of->size; i++) {
        int64_t at = of->from + i;
        struct qm_ball p = qm_ball_exact(b->p[at]), u = update(s, i);
        if (h->weight_decay > 0.0)
            p = between(b, qm_bound_decayed(b, p, s->decay, h->lr, h->weight_decay));
        if (h->alpha == -2.0) {
            struct qm_ball e = {b->stored[ERROR][at], b->e_stored ? b->e_stored[ERROR][at] : 0.0};
            p = between(b, qm_ball_add(p, qm_ball_negated(s->a[at])));
            p = between(b, qm_ball_add(p, narrow(e)));
        }
        if (h->alpha > 0.0) {
            struct qm_ball e = s->coded[at], rest;
            u = narrow(qm_ball_add(u, narrow(qm_ball_mul(e, qm_ball_scalar(h->alpha)))));
            rest = narrow(qm_ball_mul(e, qm_ball_scalar(1.0 - h->alpha)));
            b->want[ERROR][at] = rest.x;
            b->e_slot[ERROR][at] = rest.e;
        }
        p = qm_ball_add(p, qm_ball_negated(qm_ball_mul(s->rate, u)));
        if (h->alpha > 0.0 && !(s->coded[at].e < HUGE_VAL)) /* nothing is known of the step */
            p = (struct qm_ball){b->p[at], HUGE_VAL};
        b->p_want[at] = p.x;
        b->e_p[at] = p.e;
    }
}

static qm_status all_blocks(const struct step *s)
{
    const struct qm_bound_step *b = s->b;
    struct qm_microadam_block of;
    for (int k = INDEX; k <= VALUE; k++)
        for (int64_t j = 0; j < b->slot_n[k]; j++)
            b->want[k][j] = b->slot[k][j];
    for (int64_t at = 0; (of = qm_microadam_block(b->h, b->n, at)).size > 0; at++)
        QM_TRY(states(s, &of));
    if (b->h->alpha > 0.0)
        code_error(s);
    for (int64_t at = 0; (of = qm_microadam_block(b->h, b->n, at)).size > 0; at++)
        parameters(s, &of);
    return QM_OK;
}

qm_status qm_microadam_bound(const struct qm_bound_step *b)
{
    size_t n = (size_t)b->n + 1;
    struct step s = {.b = b,
                     .a = malloc(4 * n * sizeof *s.a),
                     .is_picked = malloc(n),
                     .pick = malloc(n * sizeof *s.pick),
                     .k = qm_microadam_row(b->h, b->n),
                     .c1 = correction(b, b->h->beta1),
                     .c2 = correction(b, b->h->beta2),
                     .eps = qm_ball_scalar(b->h->eps),
                     .decay = qm_bound_one_minus(b, b->h->lr, b->h->weight_decay),
                     .rate = between(b, qm_ball_scalar(b->h->lr))};
    qm_status st = QM_OK;
    if (s.a && s.is_picked && s.pick) {
        s.coded = s.a + n;
        s.m = s.coded + n;
        s.s = s.m + n;
        st = all_blocks(&s);
    } else {
        st = qm_fail(QM_NO_MEMORY, "bound of %lld elements", (long long)b->n);
    }
    free(s.a);
    free(s.is_picked);
    free(s.pick);
    return st;
}
