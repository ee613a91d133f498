/* shrink.c - leaves out, zeroes and rounds while it still fails. */
#include "experiments/kernel/shrink.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/half.h"
#include "experiments/check/slot.h"
#include "experiments/cli.h"

enum { KEPT_MOST = 1 << 22 }; /* elements of all steps that are recorded at once */

struct shrink {
    struct qm_lab *lab;
    struct qm_shrunk *s; /* its trial fails, and its attempt says how */
    struct qm_attempt first;
    double until;
};

/* ---- the same failure ------------------------------------------------------------------------ */

static int group(const struct qm_finding *f)
{
    return f->severity == QM_BAD_MACHINERY ? 2 + (int)f->place : f->severity == QM_BAD_SPECIAL;
}

static int same(const struct qm_attempt *a, const struct qm_attempt *b)
{
    return a->how == b->how && a->signal == b->signal &&
           (a->how != QM_CASE_failed ||
            (a->finding.slot == b->finding.slot && group(&a->finding) == group(&b->finding)));
}

static int is_over(struct shrink *s)
{
    int over = qm_seconds() >= s->until || (s->lab->stop && *s->lab->stop);
    s->s->is_cut |= over;
    return over;
}

/* One attempt: elements take a share of the time, a hang is soon called one. */
static double limit(const struct shrink *s, const struct qm_trial *t)
{
    double per = 2e-5 * (double)t->n * t->n_calls;
    return (s->first.how == QM_CASE_hung ? 0.2 : 2.0) + per;
}

static int fails(struct shrink *s, const struct qm_trial *t)
{
    int slot = s->first.how == QM_CASE_failed ? s->first.finding.slot : QM_SLOT_NONE;
    if (is_over(s))
        return 0;
    const struct qm_attempt *o = qm_lab_judge(s->lab, t, slot, limit(s, t));
    if (!same(o, &s->first))
        return 0;
    s->s->attempt = *o;
    return 1;
}

/* Takes the candidate over where it fails, or closes it. */
static int take(struct shrink *s, struct qm_trial *candidate)
{
    int is_smaller = fails(s, candidate);
    if (is_smaller) {
        qm_trial_close(&s->s->trial);
        s->s->trial = *candidate;
    } else {
        qm_trial_close(candidate);
    }
    return is_smaller;
}

/* ---- steps ----------------------------------------------------------------------------------- */

static int without_calls(struct shrink *s, int start, int count)
{
    const struct qm_trial *t = &s->s->trial;
    struct qm_trial candidate;
    int *from = malloc(sizeof *from * (size_t)t->n_calls), n = 0;
    for (int k = 0; k < t->n_calls && from; k++)
        if (k < start || k >= start + count)
            from[n++] = k;
    int done = from && qm_trial_copy(t, from, n, &candidate) == QM_OK && take(s, &candidate);
    free(from);
    return done;
}

static void fewer_calls(struct shrink *s)
{
    struct qm_trial *t = &s->s->trial;
    if (t->n_calls > 1)
        without_calls(s, 0, t->n_calls - 1);
    for (int count = t->n_calls / 2; count >= 1; count /= 2)
        for (int start = 0; start < t->n_calls && t->n_calls > 1;)
            if (count >= t->n_calls || !without_calls(s, start, count))
                start += count;
}

static void one_side(struct shrink *s)
{
    struct qm_trial *t = &s->s->trial;
    t->n_sides = 1;
    if (s->first.finding.place == QM_PLACE_REPEAT || !fails(s, t))
        t->n_sides = 2;
}

/* ---- shapes ---------------------------------------------------------------------------------- */

/* The same elements in one dimension. */
static void flatten(struct shrink *s)
{
    const struct qm_trial *t = &s->s->trial;
    struct qm_shape flat = {1, {t->n}};
    struct qm_trial candidate;
    int64_t *map = malloc(sizeof *map * (size_t)(t->n + 1));
    for (int64_t i = 0; i < t->n && map; i++)
        map[i] = i;
    if (t->shape.rank != 1 && map && qm_trial_remap(t, &flat, map, &candidate) == QM_OK)
        take(s, &candidate);
    free(map);
}

/* Indices [from, to) of an axis only, or all others. */
static int slice(struct shrink *s, int axis, int64_t from, int64_t to, int keeps)
{
    const struct qm_trial *t = &s->s->trial;
    struct qm_shape shape = t->shape;
    struct qm_trial candidate;
    int64_t inner = 1, length = t->shape.dim[axis], n = 0, left = keeps ? to - from : 0;
    for (int a = axis + 1; a < shape.rank; a++)
        inner *= shape.dim[a];
    shape.dim[axis] = keeps ? left : length - (to - from);
    if (shape.dim[axis] == length)
        return 0;
    int64_t *map = malloc(sizeof *map * (size_t)(t->n + 1));
    for (int64_t i = 0; i < t->n && map; i++) {
        int64_t at = i / inner % length;
        if ((at >= from && at < to) == keeps)
            map[n++] = i;
    }
    int done = map && qm_trial_remap(t, &shape, map, &candidate) == QM_OK && take(s, &candidate);
    free(map);
    return done;
}

/* The element that the finding is about, or -1. */
static int64_t element(const struct shrink *s)
{
    const struct qm_finding *f = &s->s->attempt.finding;
    const struct qm_trial *t = &s->s->trial;
    int64_t block = qm_trial_block(t), at = f->at;
    if (s->first.how != QM_CASE_failed || f->slot < QM_SLOT_PARAM || at < 0)
        return -1;
    if (f->slot >= 0 && t->slot_n[f->slot] != t->n)
        return -1;
    if (f->place == QM_PLACE_SCALE)
        at = t->shape.rank == 1 && block > 0 ? at * block : -1;
    return at < t->n ? at : -1;
}

/* A few elements of a 1-D tensor, from the one at fault on or up to it; else the first or the last. */
static int window(struct shrink *s, int64_t length)
{
    const struct qm_trial *t = &s->s->trial;
    int64_t at = element(s), n = t->shape.dim[0], on = at < 0 ? 0 : at, up = at < 0 ? n - 1 : at;
    if (t->shape.rank != 1 || length >= n)
        return 0;
    return (on + length <= n && slice(s, 0, on, on + length, 1)) ||
           (up + 1 >= length && slice(s, 0, up + 1 - length, up + 1, 1));
}

/* Lengths from..to in turn; what depends on the length itself (n % 5 == 2) is found so. */
static int windows(struct shrink *s, int64_t from, int64_t to)
{
    for (int64_t length = from; length <= to && !is_over(s); length++)
        if (window(s, length))
            return 1;
    return 0;
}

/* The block of the finding alone; of other axes its index alone. */
static int localize(struct shrink *s, int axis)
{
    const struct qm_trial *t = &s->s->trial;
    int64_t at = element(s), block = t->shape.rank == 1 ? qm_trial_block(t) : 1, inner = 1;
    if (at < 0)
        return 0;
    for (int a = axis + 1; a < t->shape.rank; a++)
        inner *= t->shape.dim[a];
    at = at / inner % t->shape.dim[axis];
    block = block > 0 ? block : 1;
    int64_t from = at / block * block, to = from + block;
    int64_t length = t->shape.dim[axis];
    if (slice(s, axis, from, to < length ? to : length, 1))
        return 1;
    return to < length && slice(s, axis, to, length, 0);
}

/* At once to the elements that matter, where a guess finds them. */
static void guess(struct shrink *s)
{
    int64_t block = qm_trial_block(&s->s->trial);
    if (windows(s, 1, 8))
        return;
    int found = 0;
    for (int axis = 0; axis < s->s->trial.shape.rank; axis++)
        found |= localize(s, axis);
    if (!found && !windows(s, 9, 33))
        windows(s, block - 1, block + 1);
}

/* Runs of indices, half of them first; whole blocks while runs are longer than one.  Where no number
 * is at fault, which run it is matters little: the first and the last only. */
static int shorten(struct shrink *s, int axis)
{
    const struct qm_trial *t = &s->s->trial;
    int is_number = s->first.how == QM_CASE_failed && s->first.finding.slot >= QM_SLOT_PARAM;
    int64_t block = t->shape.rank == 1 ? qm_trial_block(t) : 1, before = t->shape.dim[axis];
    for (int64_t run = before / 2 > 0 ? before / 2 : 1; run >= 1; run /= 2) {
        int64_t step = block > 1 && run > block ? run / block * block : run;
        for (int64_t from = 0; from < t->shape.dim[axis] && !is_over(s);) {
            int64_t length = t->shape.dim[axis], to = from + step < length ? from + step : length;
            if (to - from < length && slice(s, axis, from, to, 0))
                continue;
            from += is_number || from > 0 || length <= 2 * step ? step : length - step;
        }
    }
    return t->shape.dim[axis] < before;
}

/* Axes of one index are left out. */
static void drop_axes(struct shrink *s)
{
    const struct qm_trial *t = &s->s->trial;
    for (int axis = 0; axis < t->shape.rank && t->shape.rank > 1; axis++) {
        struct qm_shape shape = {.rank = t->shape.rank - 1};
        struct qm_trial candidate;
        for (int a = 0, b = 0; a < t->shape.rank; a++)
            if (a != axis)
                shape.dim[b++] = t->shape.dim[a];
        int64_t *map = malloc(sizeof *map * (size_t)(t->n + 1));
        for (int64_t i = 0; i < t->n && map; i++)
            map[i] = i;
        if (map && t->shape.dim[axis] == 1 && qm_trial_remap(t, &shape, map, &candidate) == QM_OK &&
            take(s, &candidate))
            axis--;
        free(map);
    }
}

static void fewer_elements(struct shrink *s)
{
    for (int more = 1; more && !is_over(s);) {
        more = 0;
        for (int axis = 0; axis < s->s->trial.shape.rank; axis++)
            more |= shorten(s, axis);
        more &= s->s->trial.n < 4096; /* one pass through many is enough */
    }
}

/* ---- numbers --------------------------------------------------------------------------------- */

/* n numbers of a call that may be simplified. */
struct field {
    unsigned char *at;
    size_t size;
    int64_t n;
    unsigned char zero; /* every byte of a zero */
    int is_float;
    float simplest; /* of floats: 0, or 1 for scales */
};

static unsigned char zero_code(const struct qm_decider *d)
{
    int best = 0;
    for (int k = 1; k < d->n; k++)
        if (fabs(d->value[k]) < fabs(d->value[best]))
            best = k;
    return d->code_of[best];
}

static int fields_of(const struct shrink *s, int call, struct field *out)
{
    const struct qm_trial *t = &s->s->trial;
    struct qm_call c = qm_trial_call(t, call);
    size_t p_size = (size_t)qm_param_bytes(&t->recipe.param),
           g_size = qm_dtype_size(t->recipe.grad);
    size_t residual = (size_t)qm_param_residual(&t->recipe.param);
    int n = 0;
    out[n++] = (struct field){c.g, g_size, t->n, 0, t->recipe.grad == QM_DTYPE_f32, 0.0f};
    out[n++] = (struct field){c.p, p_size, t->n, 0, t->recipe.param.format == QM_PARAM_f32, 0.0f};
    if (residual)
        out[n++] = (struct field){c.residual, residual, t->n, 0, 0, 0.0f};
    for (int i = 0; i < t->recipe.rule->n_slots; i++) {
        int coded = t->slot[i].bits > 0;
        if (coded)
            out[n++] = (struct field){
                c.codes[i], 1, t->slot_n[i], zero_code(&s->lab->subject->decider[i]), 0, 0.0f};
        out[n++] = (struct field){(unsigned char *)c.scales[i], sizeof(float), t->n_scales[i], 0, 1,
                                  coded ? 1.0f : 0.0f};
    }
    return n;
}

enum { FIELDS = 3 + 2 * QM_MAX_SLOTS };

/* Elements [from, from + count) to the simplest value; 1: that changed something, and it fails. */
static int simplest(struct shrink *s, const struct field *f, int64_t from, int64_t count)
{
    unsigned char *at = f->at + (size_t)from * f->size, *was;
    size_t bytes = (size_t)count * f->size;
    int done = 0;
    if (count < 1 || !(was = malloc(bytes)))
        return 0;
    memcpy(was, at, bytes);
    memset(at, f->zero, bytes);
    for (int64_t i = 0; i < count && f->is_float; i++)
        memcpy(at + (size_t)i * f->size, &f->simplest, sizeof f->simplest);
    if (memcmp(was, at, bytes) != 0) {
        done = fails(s, &s->s->trial);
        if (!done)
            memcpy(at, was, bytes);
    }
    free(was);
    return done;
}

static int zeroes(struct shrink *s)
{
    struct field f[FIELDS];
    int done = 0;
    for (int call = 0; call < s->s->trial.n_calls; call++) {
        int n = fields_of(s, call, f);
        for (int i = 0; i < n; i++)
            for (int64_t run = f[i].n; run >= 1; run /= 2)
                for (int64_t from = 0; from < f[i].n && !is_over(s); from += run)
                    done |= simplest(s, &f[i], from, f[i].n - from < run ? f[i].n - from : run);
    }
    return done;
}

/* Everything of one kind at once, while the tensor is large. */
static void zero_all(struct shrink *s)
{
    struct field f[FIELDS];
    for (int call = 0; call < s->s->trial.n_calls; call++) {
        int n = fields_of(s, call, f);
        for (int i = 0; i < n; i++)
            simplest(s, &f[i], 0, f[i].n);
    }
}

/* x with `bits` bits behind the leading one. */
static float shorter(float x, int bits)
{
    int e;
    float m = frexpf(x, &e);
    return ldexpf(rintf(ldexpf(m, bits + 1)), e - bits - 1);
}

/* The simplest of 1, a power of two, few bits, that still fails. */
static int shorter_float(struct shrink *s, float *x)
{
    static const int bits[] = {0, 1, 2, 3, 4, 6, 8, 12, 16};
    float was = *x, one = copysignf(1.0f, was);
    if (!isfinite(was) || was == 0.0f || was == one)
        return 0;
    for (int i = -1; i < (int)(sizeof bits / sizeof *bits); i++) {
        float to = i < 0 ? one : shorter(was, bits[i]);
        if (to == was)
            break;
        memcpy(x, &to, sizeof to);
        if (fails(s, &s->s->trial))
            return 1;
    }
    *x = was;
    return 0;
}

static void shorter_floats(struct shrink *s)
{
    struct field f[FIELDS];
    for (int call = 0; call < s->s->trial.n_calls; call++) {
        int n = fields_of(s, call, f);
        for (int i = 0; i < n; i++)
            for (int64_t k = 0; k < f[i].n && f[i].is_float && !is_over(s); k++)
                shorter_float(s, (float *)(void *)f[i].at + k);
    }
}

/* ---- hyper-parameters ------------------------------------------------------------------------ */

/* Whether the trial's memory still fits its recipe. */
static int lies_the_same(const struct qm_trial *t)
{
    struct qm_trial again = *t;
    if (qm_recipe_applicable(&t->recipe) != QM_OK || qm_trial_open(&again) != QM_OK)
        return 0;
    qm_trial_close(&again);
    return again.call_bytes == t->call_bytes &&
           memcmp(again.slot_n, t->slot_n, sizeof t->slot_n) == 0;
}

static void simpler_hyper(struct shrink *s, double *h, const double *to, int n)
{
    double was = *h;
    for (int i = 0; i < n && *to != was; i++) {
        if (to[i] == was)
            return;
        *h = to[i];
        if (lies_the_same(&s->s->trial) && fails(s, &s->s->trial))
            return;
        *h = was;
    }
}

static void simpler_settings(struct shrink *s)
{
    static const double small[] = {0.0, 0.5, 1.0, 2.0}, rate[] = {1.0, 0.5, 0.0};
    static const int64_t step[] = {1, 2, 3, 10, 100};
    struct qm_trial *t = &s->s->trial;
    struct qm_hyper *h = &t->recipe.hyper;
#define X(name, value, text)                                            \
    simpler_hyper(s, &h->name, strcmp(#name, "lr") == 0 ? rate : small, \
                  strcmp(#name, "lr") == 0 ? 3 : 4);
    QM_HYPER_LIST(X)
#undef X
#define X(name, value, text)                                                    \
    if (h->name) {                                                              \
        int was = h->name;                                                      \
        h->name = 0;                                                            \
        if (strcmp(#name, "amsgrad") == 0 || !lies_the_same(t) || !fails(s, t)) \
            h->name = was;                                                      \
    }
    QM_HYPER_FLAG_LIST(X)
#undef X
    for (int k = 0; k < t->n_calls; k++) {
        int64_t *at = qm_trial_call(t, k).t, was = *at;
        for (size_t i = 0; i < sizeof step / sizeof *step && step[i] < was; i++) {
            *at = step[i];
            if (fails(s, t))
                break;
            *at = was;
        }
    }
    uint64_t seed = t->seed;
    t->seed = 0;
    if (!fails(s, t))
        t->seed = seed;
}

/* ---- all ------------------------------------------------------------------------------------- */

/* The failing step's inputs; all steps' where that one alone does not fail. */
static qm_status begin(struct shrink *s, const struct qm_case *c, uint64_t seed, int steps)
{
    struct qm_trial *t = &s->s->trial;
    int64_t n = qm_shape_numel(&c->shape);
    int room = n * steps <= KEPT_MOST ? steps : 1;
    double long_enough = 5.0 + 2e-5 * (double)n * steps;
    for (;;) {
        QM_TRY(qm_trial_of_case(&s->lab->subject->recipe, c, seed, room, t));
        s->first = *qm_lab_record(s->lab, c, steps, t, long_enough);
        int begun = s->first.begun;
        if (s->first.how == QM_CASE_refused)
            return qm_fail(QM_SKIPPED, "%s", s->first.text);
        if (!qm_case_result_is_bad(s->first.how) || begun < 1)
            return qm_fail(QM_NO_MATCH, "nothing to shrink: no step of this case fails");
        s->s->attempt = s->first;
        s->s->steps_before = begun;
        if (room >= begun) {
            t->n_calls = begun;
            return QM_OK;
        }
        if (fails(s, t))
            return QM_OK;
        qm_trial_close(t);
        room = steps;
    }
}

qm_status qm_shrink(struct qm_lab *lab, const struct qm_case *c, uint64_t seed, int steps,
                    double seconds, struct qm_shrunk *out)
{
    struct shrink s = {.lab = lab, .s = out};
    double from = qm_seconds();
    memset(out, 0, sizeof *out);
    s.until = from + 1e9;
    qm_status st = begin(&s, c, seed, steps);
    s.until = from + seconds;
    if (st != QM_OK) {
        qm_trial_close(&out->trial);
        return st;
    }
    out->elements_before = out->trial.n;
    fewer_calls(&s);
    one_side(&s);
    flatten(&s);
    guess(&s);
    zero_all(&s);
    fewer_elements(&s);
    flatten(&s);
    drop_axes(&s);
    simpler_settings(&s);
    if (zeroes(&s))
        fewer_elements(&s);
    shorter_floats(&s);
    simpler_settings(&s);
    out->attempts = lab->attempts;
    out->seconds = qm_seconds() - from;
    return QM_OK;
}

int64_t qm_shrunk_blocks(const struct qm_shrunk *s)
{
    int64_t block = qm_trial_block(&s->trial);
    return block > 0 ? (s->trial.n + block - 1) / block : 1;
}
