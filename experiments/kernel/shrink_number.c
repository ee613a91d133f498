/* shrink_number.c - Reduces numbers to 0, 1, powers of two, or few bits. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/kernel/shrink_parts.h"

/* An array of a call, whose n numbers may be simplified. */
struct field {
    unsigned char *at;
    size_t size;
    int64_t n;
    unsigned char zero; /* the bytes of a zero */
    int is_float;
    float simplest; /* simplest float: 0, or 1 for scales */
};

/* The code of the value nearest to 0. */
static unsigned char zero_code(const struct qm_decider *d)
{
    int best = 0;
    for (int k = 1; k < d->n; k++)
        if (fabs(d->value[k]) < fabs(d->value[best]))
            best = k;
    return d->code_of[best];
}

static int fields_of(const struct qm_shrink *s, int call, struct field *out)
{
    const struct qm_trial *t = &s->out->trial;
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
                c.codes[i], 1, t->slot_n[i], zero_code(&s->attempts->subject->decider[i]), 0, 0.0f};
        out[n++] = (struct field){(unsigned char *)c.scales[i], sizeof(float), t->n_scales[i], 0, 1,
                                  coded ? 1.0f : 0.0f};
    }
    return n;
}

enum { FIELDS = 3 + 2 * QM_MAX_SLOTS };

/* Sets elements [from, from + count) to the simplest value; 1: they changed and the trial still
 * fails. */
static int simplest(struct qm_shrink *s, const struct field *f, int64_t from, int64_t count)
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
        done = qm_shrink_fails(s, &s->out->trial);
        if (!done)
            memcpy(at, was, bytes);
    }
    free(was);
    return done;
}

int qm_shrink_zeroes(struct qm_shrink *s)
{
    struct field f[FIELDS];
    int done = 0;
    for (int call = 0; call < s->out->trial.n_calls; call++) {
        int n = fields_of(s, call, f);
        for (int i = 0; i < n; i++)
            for (int64_t run = f[i].n; run >= 1; run /= 2)
                for (int64_t from = 0; from < f[i].n && !qm_shrink_is_over(s); from += run)
                    done |= simplest(s, &f[i], from, f[i].n - from < run ? f[i].n - from : run);
    }
    return done;
}

/* Sets whole arrays at once, while the tensor is large. */
void qm_shrink_zero_all(struct qm_shrink *s)
{
    struct field f[FIELDS];
    for (int call = 0; call < s->out->trial.n_calls; call++) {
        int n = fields_of(s, call, f);
        for (int i = 0; i < n; i++)
            simplest(s, &f[i], 0, f[i].n);
    }
}

/* x rounded to `bits` fraction bits. */
static float shorter(float x, int bits)
{
    int e;
    float m = frexpf(x, &e);
    return ldexpf(rintf(ldexpf(m, bits + 1)), e - bits - 1);
}

/* Takes the first of +-1, a power of two, and more and more bits that still fails. */
static int shorter_float(struct qm_shrink *s, float *x)
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
        if (qm_shrink_fails(s, &s->out->trial))
            return 1;
    }
    *x = was;
    return 0;
}

void qm_shrink_floats(struct qm_shrink *s)
{
    struct field f[FIELDS];
    for (int call = 0; call < s->out->trial.n_calls; call++) {
        int n = fields_of(s, call, f);
        for (int i = 0; i < n; i++)
            for (int64_t k = 0; k < f[i].n && f[i].is_float && !qm_shrink_is_over(s); k++)
                shorter_float(s, (float *)(void *)f[i].at + k);
    }
}
