/* vectors_judge.c - Judges the answers that a program has added to a golden file. */
#include "experiments/cli/cli.h"
#include <stdlib.h>
#include <string.h>

#include "core/base/half.h"
#include "experiments/check/backend_replay.h"
#include "experiments/vectors/vectors_file.h"

/* ---- arrays -------------------------------------------------------------------------------- */

/* Reads an array of a type of at most 16 bits in that type.  wide: scratch for n floats, which
 * represent every such value. */
static qm_status take_narrow(const struct qm_vectors_file *in, const char *name,
                             enum qm_dtype dtype, const struct qm_shape *shape, float *wide,
                             void *out)
{
    int64_t n = qm_shape_numel(shape);
    QM_TRY(qm_vectors_file_read(in, name, dtype, shape, wide));
    for (int64_t i = 0; i < n; i++)
        switch (dtype) {
        case QM_DTYPE_bf16: ((uint16_t *)out)[i] = qm_float_to_bf16(wide[i]); break;
        case QM_DTYPE_f16: ((uint16_t *)out)[i] = qm_float_to_f16(wide[i]); break;
        case QM_DTYPE_i16: ((int16_t *)out)[i] = (int16_t)wide[i]; break;
        case QM_DTYPE_i8: ((int8_t *)out)[i] = (int8_t)wide[i]; break;
        default: ((uint8_t *)out)[i] = (uint8_t)wide[i]; break;
        }
    return QM_OK;
}

/* Reads an array of f32 or of a type of at most 16 bits. */
static qm_status take_any(const struct qm_vectors_file *in, const char *name, enum qm_dtype dtype,
                          const struct qm_shape *shape, float *wide, void *out)
{
    return dtype == QM_DTYPE_f32 ? qm_vectors_file_read(in, name, dtype, shape, out)
                                 : take_narrow(in, name, dtype, shape, wide, out);
}

/* ---- a state ------------------------------------------------------------------------------- */

/* An array of a state: its name in the file, type and size, and where its elements go. */
struct part {
    char name[QM_STATE_NAME];
    enum qm_dtype dtype;
    struct qm_shape shape;
    int64_t n;
    void *to;
    int slot; /* the slot whose packed codes it holds, or -1 */
};

/* The arrays of a state, whose names begin with `at`. */
struct parts {
    const char *at;
    int n;
    struct part part[2 + 2 * QM_MAX_SLOTS];
};

static void add(struct parts *list, const char *array, const char *ending, struct part p)
{
    snprintf(p.name, sizeof p.name, "%s/%s%s", list->at, array, ending);
    list->part[list->n++] = p;
}

/* Lists the arrays of a trial's state, without those of no elements. */
static void parts_of(const struct qm_trial *t, const char *at, struct parts *list)
{
    struct qm_call c = qm_trial_call(t, 0);
    const struct qm_param *param = &t->recipe.param;
    list->at = at;
    list->n = 0;
    add(list, "param", "", (struct part){"", qm_param_dtype(param), t->shape, t->n, c.p, -1});
    if (qm_param_residual(param))
        add(list, "residual", "",
            (struct part){"", qm_state_residual_dtype(param), t->shape, t->n, c.residual, -1});
    for (int i = 0; i < t->recipe.rule->n_slots; i++) {
        const char *slot = t->recipe.rule->slot[i];
        struct qm_codec codec = {.q = t->slot[i]};
        if (t->slot_n[i] == 0)
            continue;
        int64_t bytes = t->slot[i].bits ? qm_code_bytes(&codec, t->slot_n[i]) : 0;
        const struct qm_shape packed = {1, {bytes}}, scales = {1, {t->n_scales[i]}};
        if (t->slot[i].bits)
            add(list, slot, ".codes", (struct part){"", QM_DTYPE_u8, packed, bytes, c.codes[i], i});
        add(list, slot, t->slot[i].bits ? ".scales" : "",
            (struct part){"", QM_DTYPE_f32, t->slot[i].bits ? scales : t->slot_shape[i],
                          t->n_scales[i], c.scales[i], -1});
    }
}

/* Reads packed codes and unpacks them, one per byte, to p->to, which has the slot's length. */
static qm_status read_codes(const struct qm_vectors_file *in, const struct qm_trial *t,
                            const struct part *p, float *wide)
{
    struct qm_codec c;
    QM_TRY(qm_codec_init(&c, &t->slot[p->slot]));
    uint8_t *packed = malloc((size_t)p->n + 1);
    qm_status st = packed ? take_narrow(in, p->name, p->dtype, &p->shape, wide, packed)
                          : qm_fail(QM_NO_MEMORY, "%s", p->name);
    if (st == QM_OK)
        qm_unpack_range(&c, packed, t->slot_n[p->slot], p->to);
    free(packed);
    return st;
}

/* Reads the state whose array names begin with `at`.  wide: scratch for the longest array. */
static qm_status state_read(const struct qm_vectors_file *in, const struct qm_trial *t,
                            const char *at, float *wide)
{
    struct parts list;
    parts_of(t, at, &list);
    for (int i = 0; i < list.n; i++) {
        const struct part *p = &list.part[i];
        if (p->slot >= 0)
            QM_TRY(read_codes(in, t, p, wide));
        else
            QM_TRY(take_any(in, p->name, p->dtype, &p->shape, wide, p->to));
    }
    return QM_OK;
}

/* ---- a case -------------------------------------------------------------------------------- */

/* Whether the state whose array names begin with `at` is in the file: 1, 0, or -1 for a part of it.
 * first[size] gets the first missing name, or "". */
static int answered(const struct qm_vectors_file *in, const struct qm_trial *t, const char *at,
                    char *first, size_t size)
{
    struct parts list;
    int there = 0;
    parts_of(t, at, &list);
    *first = '\0';
    for (int i = 0; i < list.n; i++) {
        int is_there = qm_vectors_file_find(in, list.part[i].name, NULL) != NULL;
        there += is_there;
        if (!is_there && !*first)
            snprintf(first, size, "%.*s", (int)size - 1, list.part[i].name);
    }
    return there == list.n ? 1 : there == 0 ? 0 : -1;
}

/* A case that is judged. */
struct work {
    const struct qm_vectors_file *in;
    const struct qm_subject *s;
    struct qm_vectors_case c;
    struct qm_trial before, after, first; /* first: as the case begins, without memory */
    float *wide;                          /* scratch for the longest array */
    struct qm_vectors_verdict *out;
};

/* Reads the gradient of step k into w->before. */
static qm_status read_gradient(struct work *w, int64_t k)
{
    char name[QM_STATE_NAME];
    struct qm_call c = qm_trial_call(&w->before, 0);
    snprintf(name, sizeof name, "%s/grad/%lld", w->c.name, (long long)k);
    return take_any(w->in, name, w->before.recipe.grad, &w->before.shape, w->wide, c.g);
}

/* Judges step k from w->before to the answer `at`, which becomes w->before. */
static qm_status judge_step(struct work *w, int64_t k, const char *at)
{
    *qm_trial_call(&w->before, 0).t = w->c.c.t + k - 1;
    w->before.recipe.hyper = qm_describe_hyper(&w->first, &w->c.c, (int)k - 1);
    QM_TRY(read_gradient(w, k));
    QM_TRY(state_read(w->in, &w->after, at, w->wide));
    QM_TRY(qm_backend_replay_judge(w->s, &w->before, &w->after, at, &w->out->tally));
    struct qm_trial swap = w->before;
    w->before = w->after;
    w->after = swap;
    return QM_OK;
}

/* Counts the case as exercised. */
static void cover(struct work *w)
{
    struct qm_domain d;
    qm_domain_of(&w->s->recipe, &qm_backend_cpu, &d);
    qm_cover_add(&w->out->cover, &w->s->recipe, &w->c.c);
    qm_coverage_add(&w->out->domain, &d, &w->c.c);
}

/* Judges the answered steps up to the first one that is not answered. */
static qm_status judge_steps(struct work *w)
{
    struct qm_vectors_verdict *out = w->out;
    char at[64], first[QM_STATE_NAME];
    snprintf(at, sizeof at, "%s/in", w->c.name);
    QM_TRY(state_read(w->in, &w->before, at, w->wide));
    for (int64_t k = 1; k <= w->c.steps; k++) {
        snprintf(at, sizeof at, "%s/out/%lld", w->c.name, (long long)k);
        int there = answered(w->in, &w->before, at, first, sizeof first);
        if (there < 0)
            return qm_fail(QM_BAD_FILE, "%s: there is no array '%s', but others of %s", w->in->path,
                           first, at);
        if (there == 0) {
            if (out->missing == 0)
                snprintf(out->first_missing, sizeof out->first_missing, "%s", first);
            out->missing += w->c.steps - k + 1;
            return QM_OK;
        }
        QM_TRY(judge_step(w, k, at));
        if (k == w->c.steps)
            cover(w);
    }
    return QM_OK;
}

/* Elements of the longest array. */
static int64_t longest(const struct qm_trial *t)
{
    struct parts list;
    int64_t most = t->n;
    parts_of(t, "", &list);
    for (int i = 0; i < list.n; i++)
        most = list.part[i].n > most ? list.part[i].n : most;
    return most;
}

static qm_status judge_case(const struct qm_vectors_file *in, const struct qm_subject *s, size_t i,
                            struct qm_vectors_verdict *out)
{
    struct work *w = calloc(1, sizeof *w);
    if (!w)
        return qm_fail(QM_NO_MEMORY, "a case");
    *w = (struct work){.in = in, .s = s, .out = out};
    qm_status st = qm_vectors_file_case(in, i, &w->c);
    if (st == QM_OK) {
        out->steps += w->c.steps;
        st = qm_trial_of_case(&s->recipe, &w->c.c, qm_vectors_file_seed(in), 1, &w->before);
    }
    w->before.n_plans = 1;
    w->before.part = 0; /* schedules are followed here; other tensors and plans are the program's */
    w->first = w->before;
    w->first.data = NULL;
    if (st == QM_OK)
        st = qm_trial_copy(&w->before, NULL, 1, &w->after);
    if (st == QM_OK) {
        w->wide = malloc(sizeof(float) * ((size_t)longest(&w->before) + 1));
        st = w->wide ? judge_steps(w) : qm_fail(QM_NO_MEMORY, "an array");
    }
    free(w->wide);
    qm_trial_close(&w->after);
    qm_trial_close(&w->before);
    free(w);
    return st;
}

/* ---- a file -------------------------------------------------------------------------------- */

/* Makes the subject of the file's recipe. */
static qm_status subject_of(const struct qm_vectors_file *in, struct qm_subject *s,
                            struct qm_vectors_verdict *out)
{
    const char *recipe = json_string_value(json_object_get(in->root, "recipe"));
    s->backend = &qm_backend_cpu;
    s->reorder = qm_reorder_any(); /* the answers are a program's as a user's kernel is */
    if (!recipe || qm_recipe_parse(recipe, &s->recipe) != QM_OK) {
        char why[256];
        snprintf(why, sizeof why, "%s", recipe ? qm_message() : "there is none");
        return qm_fail(QM_BAD_FILE, "%s: golden: recipe: %s", in->path, why);
    }
    qm_recipe_print(&s->recipe, out->recipe);
    QM_TRY(qm_judge_begin(s, &out->tally));
    qm_cover_start(&s->recipe, &out->cover);
    return QM_OK;
}

static qm_status judge_file(const struct qm_vectors_file *in, struct qm_vectors_verdict *out)
{
    struct qm_subject *s = calloc(1, sizeof *s);
    if (!s)
        return qm_fail(QM_NO_MEMORY, "%s", in->path);
    qm_status st = subject_of(in, s, out);
    if (st == QM_OK)
        st = qm_vectors_file_check(in, s);
    size_t n = json_array_size(json_object_get(in->root, "cases"));
    struct qm_progress progress;
    qm_progress_start(&progress, "verify", (int64_t)n);
    for (size_t i = 0; st == QM_OK && i < n; i++) {
        st = judge_case(in, s, i, out);
        qm_progress_add(&progress, 1, 0);
    }
    qm_progress_end(&progress);
    if (st == QM_OK)
        qm_judge_end(s, &out->tally);
    free(s);
    if (st == QM_OK && out->tally.cases == 0)
        return qm_fail(QM_NO_MATCH, "%s: nothing is answered; expected arrays such as '%s'",
                       in->path, out->first_missing);
    return st;
}

qm_status qm_vectors_judge(const char *path, struct qm_vectors_verdict *out)
{
    struct qm_vectors_file in = {.path = path};
    memset(out, 0, sizeof *out);
    qm_status st = qm_vectors_file_open(path, &in);
    if (st == QM_OK)
        st = judge_file(&in, out);
    qm_vectors_file_close(&in);
    return st;
}

int qm_vectors_passed(const struct qm_vectors_verdict *v)
{
    return v->missing == 0 && qm_tally_passed(&v->tally);
}
