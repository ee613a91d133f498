/* backend_replay.c - Backend that replays recorded results instead of computing a step. */
#include "experiments/check/backend_replay.h"

#include <stdlib.h>
#include <string.h>

/* The recorded inputs and results of the judgement that runs on this thread.  The interface of a
 * backend hands no argument through to `open`, so a thread-local variable does.  A plan shows the
 * inputs until it is stepped and the results afterwards. */
static _Thread_local const struct qm_trial *inputs, *results;

struct plan {
    const struct qm_trial *shown; /* inputs or results */
};

static qm_status replay_probe(void) { return QM_OK; }

static qm_status replay_open(const struct qm_recipe *r, const struct qm_shape *shape,
                             uint32_t tensor, void **out)
{
    struct plan *p = malloc(sizeof *p);
    (void)r;
    (void)shape;
    (void)tensor;
    if (!p)
        return qm_fail(QM_NO_MEMORY, "a plan");
    p->shown = inputs;
    *out = p;
    return QM_OK;
}

static qm_status replay_step(void *plan, struct qm_tensor *p, const struct qm_tensor *g, int64_t t,
                             uint64_t seed)
{
    const struct qm_param *param = &results->recipe.param;
    (void)g;
    (void)t;
    (void)seed;
    ((struct plan *)plan)->shown = results;
    memcpy(p->data, qm_trial_call(results, 0).p,
           (size_t)results->n * (size_t)qm_param_bytes(param));
    return QM_OK;
}

static qm_status replay_save(void *plan, int slot, uint8_t *codes, float *scales)
{
    const struct qm_trial *t = ((const struct plan *)plan)->shown;
    struct qm_call c = qm_trial_call(t, 0);
    if (slot == QM_RESIDUAL && codes) {
        memcpy(codes, c.residual, (size_t)t->n * (size_t)qm_param_residual(&t->recipe.param));
        return QM_OK;
    }
    if (codes)
        memcpy(codes, c.codes[slot], (size_t)t->slot_n[slot]);
    if (scales)
        memcpy(scales, c.scales[slot], sizeof *scales * (size_t)t->n_scales[slot]);
    return QM_OK;
}

/* A loaded state is ignored: the plan shows the recorded inputs already. */
static qm_status replay_load(void *plan, int slot, const uint8_t *codes, const float *scales)
{
    (void)plan;
    (void)slot;
    (void)codes;
    (void)scales;
    return QM_OK;
}

static qm_status replay_decode(void *plan, int slot, float *out)
{
    const struct qm_trial *t = ((const struct plan *)plan)->shown;
    struct qm_call call = qm_trial_call(t, 0);
    struct qm_codec c;
    if (t->slot[slot].bits == 0)
        return replay_save(plan, slot, NULL, out);
    QM_TRY(qm_codec_init(&c, &t->slot[slot]));
    if (t->slot_n[slot] > 0)
        qm_decode(&c, &t->slot_shape[slot], call.codes[slot], call.scales[slot], out);
    return QM_OK;
}

static int64_t replay_bytes(const void *plan)
{
    (void)plan;
    return 0;
}

static const struct qm_backend backend = {
    .name = "replay",
    .probe = replay_probe,
    .open = replay_open,
    .step = replay_step,
    .decode = replay_decode,
    .save = replay_save,
    .load = replay_load,
    .bytes = replay_bytes,
    .close = free,
};

qm_status qm_backend_replay_judge(const struct qm_subject *s, const struct qm_trial *before,
                                  const struct qm_trial *after, const char *name,
                                  struct qm_tally *t)
{
    struct qm_subject given = *s;
    given.backend = &backend;
    inputs = before;
    results = after;
    qm_status st = qm_judge_given(&given, before, name, t);
    inputs = results = NULL;
    return st;
}
