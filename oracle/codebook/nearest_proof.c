/* nearest_proof.c - Builds the pieces of a decision rule and judges runs of codes against them. */
#include "oracle/codebook/nearest_proof.h"

#include <assert.h>
#include <stdlib.h>

#include "oracle/codebook/codebook.h"

/* ---- decisions ------------------------------------------------------------------------------- */

static double number(int64_t key) { return (double)qm_unordered((int32_t)key); }

int64_t qm_key_at_least(double b)
{
    int64_t k = qm_ordered((float)b);
    while (number(k) < b)
        k++;
    while (k > qm_ordered(-INFINITY) && number(k - 1) >= b)
        k--;
    return k;
}

int64_t qm_key_above(double b)
{
    int64_t k = qm_key_at_least(b);
    while (k <= qm_ordered(INFINITY) && number(k) <= b)
        k++;
    return k;
}

static int ascending(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static qm_status append(struct qm_decisions *d, int64_t first, int low, int high)
{
    if (d->n > 0 && d->piece[d->n - 1].low == low && d->piece[d->n - 1].high == high)
        return QM_OK;
    if (d->n == QM_PIECES)
        return qm_fail(QM_BAD_ARG, "more than %d pieces of decisions", QM_PIECES);
    d->piece[d->n++] = (struct qm_piece){(int32_t)first, (int16_t)low, (int16_t)high};
    return QM_OK;
}

qm_status qm_decisions_build(void (*decide)(const void *of, double y, int *low, int *high),
                             const void *of, const double *at, int n, int any,
                             struct qm_decisions *out)
{
    int64_t from = qm_ordered(-INFINITY), to = qm_ordered(INFINITY), m = 0;
    int64_t *key = malloc(sizeof *key * (size_t)(2 * n + 1));
    qm_status st = QM_OK;
    if (!key)
        return qm_fail(QM_NO_MEMORY, "decisions");
    key[m++] = from;
    for (int i = 0; i < n; i++) {
        key[m++] = qm_key_at_least(at[i]);
        key[m++] = qm_key_above(at[i]);
    }
    qsort(key, (size_t)m, sizeof *key, ascending);
    out->n = 1;
    out->piece[0] = (struct qm_piece){QM_KEY_FIRST, 0, (int16_t)(any - 1)};
    for (int64_t i = 0; i < m && st == QM_OK; i++) {
        int low, high;
        if (key[i] > to || (i > 0 && key[i] == key[i - 1]))
            continue;
        decide(of, number(key[i]), &low, &high);
        if (i == 0) /* a piece of its own, even if its positions are those of the NaNs */
            out->piece[out->n++] = (struct qm_piece){(int32_t)from, (int16_t)low, (int16_t)high};
        else
            st = append(out, key[i], low, high);
    }
    if (st == QM_OK && out->n == QM_PIECES)
        st = qm_fail(QM_BAD_ARG, "more than %d pieces of decisions", QM_PIECES);
    if (st == QM_OK)
        out->piece[out->n++] = (struct qm_piece){(int32_t)(to + 1), 0, (int16_t)(any - 1)};
    free(key);
    return st;
}

void qm_decisions_nan(struct qm_decisions *d, int low, int high)
{
    struct qm_piece *first = &d->piece[0], *last = &d->piece[d->n - 1];
    first->low = last->low = (int16_t)low;
    first->high = last->high = (int16_t)high;
}

struct table {
    const double *value;
    int n;
};

/* The nearest positions with ties down and with ties up, extended over equal values. */
static void nearest(const void *of, double y, int *low, int *high)
{
    const struct table *t = of;
    int a = qm_oracle_nearest(t->value, t->n, y, -1), b = qm_oracle_nearest(t->value, t->n, y, 1);
    while (a > 0 && t->value[a - 1] == t->value[a])
        a--;
    while (b + 1 < t->n && t->value[b + 1] == t->value[b])
        b++;
    *low = a;
    *high = b;
}

qm_status qm_decisions_nearest(const double *value, int n, struct qm_decisions *out)
{
    double at[256];
    struct table t = {value, n};
    for (int k = 0; k + 1 < n; k++) {
        double a = value[k], b = value[k + 1], s = a + b, z = s - a;
        if ((a - (s - z)) + (b - z) != 0.0) /* two-sum: the rounding error of s */
            return qm_fail(QM_BAD_ARG, "the mid-point of %a and %a is not exact in double", a, b);
        at[k] = 0.5 * s;
    }
    return qm_decisions_build(nearest, &t, at, n - 1, QM_POSITIONS, out);
}

void qm_claims_zones(struct qm_claims *c)
{
    int64_t infinite = qm_ordered(INFINITY), tiny = qm_ordered(0x1p-126f);
    int64_t low = c->low < 0.0f ? qm_ordered(c->low) : -tiny;
    const int64_t from[QM_ZONE_COUNT + 1] = {
        [QM_ZONE_nan_minus] = QM_KEY_FIRST,
        [QM_ZONE_inf_minus] = -infinite - 1,
        [QM_ZONE_below] = -infinite,
        [QM_ZONE_negative] = low,
        [QM_ZONE_tiny_minus] = -tiny,
        [QM_ZONE_zero_minus] = -1,
        [QM_ZONE_zero_plus] = 0,
        [QM_ZONE_tiny_plus] = 1,
        [QM_ZONE_positive] = tiny,
        [QM_ZONE_above] = qm_ordered(c->high) + 1,
        [QM_ZONE_inf_plus] = infinite,
        [QM_ZONE_nan_plus] = infinite + 1,
        [QM_ZONE_COUNT] = (int64_t)QM_KEY_LAST + 1,
    };
    memcpy(c->zone, from, sizeof from);
}

enum qm_zone qm_claims_inside(const struct qm_claims *c)
{
    return c->low < 0.0f ? QM_ZONE_negative : QM_ZONE_zero_minus;
}

/* ---- records --------------------------------------------------------------------------------- */

void qm_record_open(struct qm_record *r)
{
    memset(r, 0, sizeof *r);
    r->first_wrong = QM_KEY_LAST;
    r->last_wrong = QM_KEY_FIRST;
}

void qm_record_close(struct qm_record *r)
{
    for (int i = 0; i < QM_CLAIM_COUNT; i++)
        free(r->missed[i].span);
    free(r->outside.span);
    free(r->ties.span);
    memset(r, 0, sizeof *r);
}

/* Appends a span; joins it to the last one where it continues that. */
static void spans_add(struct qm_record *r, struct qm_spans *s, const struct qm_span *x,
                      int64_t limit)
{
    struct qm_span *last = s->n > 0 ? &s->span[s->n - 1] : NULL;
    if (last && s->left_out == 0 && (int64_t)last->last + 1 == x->first && last->got == x->got &&
        last->low == x->low && last->high == x->high) {
        last->last = x->last;
        return;
    }
    if (s->n >= limit) {
        s->left_out++;
        return;
    }
    if (s->n == s->room) {
        int64_t room = s->room ? 2 * s->room : 16;
        struct qm_span *more = realloc(s->span, sizeof *more * (size_t)room);
        if (!more) {
            r->out_of_memory = 1;
            s->left_out++;
            return;
        }
        s->span = more;
        s->room = room;
    }
    s->span[s->n++] = *x;
}

double qm_excess(const struct qm_claims *c, double y, int got, int want)
{
    if (got < 0)
        return (double)INFINITY;
    double g = c->value[got], w = c->value[want], gap = fabs(w - g);
    double d = g < w ? 2.0 * y - g - w : g + w - 2.0 * y;
    return d < -gap ? -gap : d > gap ? gap : d;
}

/* Updates the worst miss.  The excess is monotone over a span, so its largest value is at
 * an end. */
static void worst_of(struct qm_record *r, const struct qm_claims *c, const struct qm_span *s)
{
    const int32_t end[2] = {s->first, s->last};
    for (int i = 0; i < 2; i++) {
        double e = qm_excess(c, number(end[i]), s->got, s->low);
        if (e > r->worst) {
            r->worst = e;
            r->worst_key = end[i];
        }
    }
    r->first_wrong = s->first < r->first_wrong ? s->first : r->first_wrong;
    r->last_wrong = s->last > r->last_wrong ? s->last : r->last_wrong;
}

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

static int zone_of(const struct qm_claims *c, int64_t key)
{
    int z = 0;
    while (key >= c->zone[z + 1])
        z++;
    return z;
}

/* The piece that holds a key. */
static int piece_at(const struct qm_decisions *d, int64_t key)
{
    int from = 0, to = d->n - 1;
    while (from < to) {
        int k = (from + to + 1) / 2;
        if (d->piece[k].first <= key)
            from = k;
        else
            to = k - 1;
    }
    return from;
}

static int is_tie(const struct qm_claims *c, const struct qm_piece *p, int64_t key)
{
    return p->low != p->high && c->value[p->low] != c->value[p->high] &&
           key >= c->zone[QM_ZONE_inf_minus] && key < c->zone[QM_ZONE_nan_plus];
}

/* Records a span that misses a claim, zone by zone: inside the range, NaN, or outside. */
static void miss(struct qm_record *r, const struct qm_claims *c, int claim, struct qm_span s)
{
    int64_t end = s.last;
    for (int64_t at = s.first; at <= end; at = (int64_t)s.last + 1) {
        int z = zone_of(c, at), is_inside = z >= (int)qm_claims_inside(c) && z <= QM_ZONE_positive;
        int is_nan = z == QM_ZONE_nan_minus || z == QM_ZONE_nan_plus;
        s.first = (int32_t)at;
        s.last = (int32_t)smaller(end, c->zone[z + 1] - 1);
        r->wrong[claim][z] += (int64_t)s.last - s.first + 1;
        if (is_inside || is_nan)
            spans_add(r, &r->missed[claim], &s, QM_SPANS);
        else if (claim == QM_CLAIM_nearest)
            spans_add(r, &r->outside, &s, QM_SPANS);
        if (is_inside && claim == QM_CLAIM_nearest)
            worst_of(r, c, &s);
    }
}

/* Judges a run of one position against one claim. */
static void judge(struct qm_record *r, const struct qm_claims *c, int claim, int64_t first,
                  int64_t last, int got)
{
    const struct qm_decisions *d = &c->right[claim];
    if (d->n == 0)
        return;
    for (int k = piece_at(d, first); first <= last; k++) {
        const struct qm_piece *p = &d->piece[k];
        int64_t end = k + 1 < d->n ? smaller(last, (int64_t)d->piece[k + 1].first - 1) : last;
        struct qm_span s = {(int32_t)first, (int32_t)end, (int16_t)got, p->low, p->high};
        int is_right = got >= p->low && got <= p->high;
        if (!is_right)
            miss(r, c, claim, s);
        else if (claim == QM_CLAIM_nearest && is_tie(c, p, first))
            spans_add(r, &r->ties, &s, QM_SPANS);
        first = end + 1;
    }
}

static void add_run(struct qm_record *r, const struct qm_claims *c, int64_t first, int64_t last,
                    uint8_t code)
{
    int got = c->position_of[code];
    for (int64_t at = first; at <= last;) {
        int z = zone_of(c, at);
        int64_t to = smaller(last, c->zone[z + 1] - 1);
        r->count[z][got < 0 ? QM_POSITIONS : got] += to - at + 1;
        at = to + 1;
    }
    for (int i = 0; i < QM_CLAIM_COUNT; i++)
        judge(r, c, i, first, last, got);
}

/* Whether all n codes are equal; the compiler vectorizes the loop. */
static int is_uniform(const uint8_t *code, int64_t n)
{
    uint8_t differs = 0, first = code[0];
    for (int64_t i = 0; i < n; i++)
        differs |= code[i] ^ first;
    return differs == 0;
}

void qm_record_add(struct qm_record *r, const struct qm_claims *c, int64_t first, int64_t n,
                   const uint8_t *code)
{
    enum { STRIDE = 256 };
    int64_t start = 0; /* of the current run */
    for (int64_t i = 0; i < n; i += STRIDE) {
        int64_t m = smaller(n - i, STRIDE);
        if (code[i] == code[start] && is_uniform(code + i, m))
            continue;
        for (int64_t j = i; j < i + m; j++)
            if (code[j] != code[start]) {
                add_run(r, c, first + start, first + j - 1, code[start]);
                start = j;
            }
    }
    if (n > 0)
        add_run(r, c, first + start, first + n - 1, code[start]);
    r->floats += n;
}

static void spans_merge(struct qm_record *r, struct qm_spans *into, const struct qm_spans *next)
{
    for (int64_t i = 0; i < next->n; i++)
        spans_add(r, into, &next->span[i], QM_SPANS_MERGED);
    into->left_out += next->left_out;
}

void qm_record_merge(struct qm_record *into, const struct qm_record *next)
{
    into->floats += next->floats;
    for (int z = 0; z < QM_ZONE_COUNT; z++)
        for (int k = 0; k <= QM_POSITIONS; k++)
            into->count[z][k] += next->count[z][k];
    for (int i = 0; i < QM_CLAIM_COUNT; i++) {
        for (int z = 0; z < QM_ZONE_COUNT; z++)
            into->wrong[i][z] += next->wrong[i][z];
        spans_merge(into, &into->missed[i], &next->missed[i]);
    }
    spans_merge(into, &into->outside, &next->outside);
    spans_merge(into, &into->ties, &next->ties);
    into->first_wrong =
        next->first_wrong < into->first_wrong ? next->first_wrong : into->first_wrong;
    into->last_wrong = next->last_wrong > into->last_wrong ? next->last_wrong : into->last_wrong;
    if (next->worst > into->worst) {
        into->worst = next->worst;
        into->worst_key = next->worst_key;
    }
    into->out_of_memory |= next->out_of_memory;
}

int64_t qm_record_wrong(const struct qm_record *r, enum qm_claim_name claim, enum qm_zone from,
                        enum qm_zone to)
{
    int64_t sum = 0;
    for (int z = (int)from; z <= (int)to; z++)
        sum += r->wrong[claim][z];
    return sum;
}
