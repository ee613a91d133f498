/* steps.c - Times the step of every variant in turn with adamw_f32 and the roofs. */
#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/memory.h"
#include "core/base/name.h"
#include "core/recipe/backend.h"
#include "experiments/bench/bench.h"
#include "experiments/cli/cli.h"

enum { TENSOR_ROUNDS = 5 };
/* The most time for the rounds of one rule over whole tensors, without the warm-up. */
#define SLOW_SECONDS 10.0

static double slot_bytes(const struct qm_recipe *r, int i, const struct qm_shape *shape)
{
    struct qm_codec c = {.q = qm_recipe_slot(r, i, shape)};
    struct qm_shape own;
    qm_rule_slot_shape(r->rule, &r->hyper, i, shape, &own);
    return (double)qm_state_bytes(&c, &own);
}

/* Bytes that a step must move per parameter: p read and written, g read, the states read and
 * written, and the arrays that further passes read again (for slots with a global norm the gradient
 * and the slot; for rules over whole tensors the gradient and the states, once for each sum that
 * must be complete before the update). */
static double bytes_moved(const struct qm_recipe *r, const struct qm_shape *shape)
{
    double n = (double)qm_shape_numel(shape),
           again = r->rule->tensor ? r->rule->tensor->extra_passes : 0,
           sum = 4.0 + 2.0 * qm_param_bytes(&r->param) + 2.0 * qm_param_residual(&r->param);
    sum += again * 4.0;
    for (int i = 0; i < r->rule->n_slots; i++) {
        struct qm_quantizer q = qm_recipe_slot(r, i, shape);
        struct qm_codec c = {.q = q};
        double slot = slot_bytes(r, i, shape) / n;
        sum += (2.0 + again) * slot;
        if (q.bits && q.norm != QM_NORM_block && q.norm != QM_NORM_id)
            sum += qm_folds(&c) * (4.0 + slot);
    }
    return sum;
}

/* Adds a row for a recipe and opens its plans. */
static qm_status row_open(const struct qm_bench *b, struct qm_bench_rows *s,
                          const struct qm_bench_arrays *a, const struct qm_recipe *r,
                          struct qm_bench_bound *x)
{
    struct qm_bench_row *row = &s->row[s->count++];
    row->name = r->base->name;
    row->rounds = b->rounds;
    QM_TRY(qm_bench_bind(b, a, r, x));
    row->state_bytes = (double)qm_backend_cpu.bytes(x->plan[0]) / (double)b->n;
    row->moved = bytes_moved(r, &a->shape);
    return QM_OK;
}

/* Times round r of x[count] in turn, then the roofs: time[count + QM_BENCH_ROOFS][half].  The two
 * halves of each follow one another, so that a speed-up compares neighbours in time. */
static qm_status one_round(const struct qm_bench *b, const struct qm_bench_arrays *a,
                           const struct qm_bench_bound *x, int count, int r, double (*time)[2],
                           struct qm_progress *bar)
{
    for (int v = 0; v < count + QM_BENCH_ROOFS; v++)
        for (int h = 0; h < 2; h++) {
            if (v < count)
                QM_TRY(qm_bench_timed(b, a, &x[v], h, r + 2, &time[v][h]));
            else
                time[v][h] = qm_bench_roof_seconds(v - count, a->p, a->g, b->n, h ? b->threads : 1);
            if (bar)
                qm_progress_add(bar, 1, 0);
        }
    return QM_OK;
}

/* Stores a row's samples of round r; round -1 is the warm-up. */
static void add_sample(struct qm_bench_row *row, int r, const double *own, const double *f32,
                       double (*roof)[2])
{
    for (int h = 0; h < 2 && r >= 0; h++) {
        row->time[h][r] = own[h];
        row->f32[h][r] = f32[h];
        for (int y = 0; y < QM_BENCH_ROOFS; y++)
            row->roof[y][h][r] = roof[y][h];
    }
}

static int is_f32(const struct qm_recipe *r) { return strcmp(r->base->name, "adamw_f32") == 0; }

/* Finds the next wanted variant from *k on, elementwise or over whole tensors, and moves *k past
 * it; returns 0 where no more is left. */
static int next_step(const struct qm_bench *b, int over_tensor, int *k, struct qm_recipe *r)
{
    while (*k < qm_variant_count())
        if (qm_recipe_parse(qm_variant_at((*k)++)->name, r) == QM_OK &&
            (r->rule->elementwise == NULL) == over_tensor &&
            (is_f32(r) || qm_name_matches(r->base->name, b->step)))
            return 1;
    return 0;
}

/* The states of a recipe's two plans. */
static double plan_bytes(const struct qm_recipe *r, const struct qm_shape *shape)
{
    double sum = 0.0;
    for (int i = 0; i < r->rule->n_slots; i++)
        sum += 2.0 * slot_bytes(r, i, shape);
    return sum;
}

int64_t qm_bench_steps_fit(const struct qm_bench *b)
{
    enum { ROOM = 40 }; /* three arrays, the plans of adamw_f32, and work space of a rule */
    const struct qm_shape shape = {2, {1024, 1024}};
    double sum = 0.0, most = 0.0, available = (double)qm_memory_available();
    struct qm_recipe r;
    for (int k = 0; next_step(b, 0, &k, &r);)
        sum += plan_bytes(&r, &shape);
    for (int k = 0; !b->quick && next_step(b, 1, &k, &r);)
        most = fmax(most, plan_bytes(&r, &shape));
    sum = fmax(sum, most) + ROOM * 0x1p20;
    return available > 0.0 ? (int64_t)(0.9 * available / sum) : INT64_MAX;
}

/* QM_NO_MATCH where --step matches no variant that would be timed. */
static qm_status check_filter(const struct qm_bench *b)
{
    const char *names[QM_BENCH_STEPS];
    int n = 0, hits = 0, left_out = 0;
    for (int k = 0; k < qm_variant_count() && n < QM_BENCH_STEPS; k++) {
        struct qm_recipe r;
        QM_TRY(qm_recipe_parse(qm_variant_at(k)->name, &r));
        int hit = qm_name_matches(r.base->name, b->step), out = b->quick && !r.rule->elementwise;
        hits += hit && !out;
        left_out += hit && out;
        names[n++] = r.base->name;
    }
    if (hits)
        return QM_OK;
    if (left_out)
        return qm_fail(QM_NO_MATCH,
                       "--step '%s': only rules over whole tensors match, and --quick "
                       "leaves them out",
                       b->step);
    return qm_name_unknown("variant", b->step, names, n);
}

/* Times all elementwise rules in turn, round by round. */
static qm_status run_elementwise(const struct qm_bench *b, struct qm_bench_rows *s,
                                 const struct qm_bench_arrays *a)
{
    struct qm_bench_bound bound[QM_BENCH_STEPS] = {{.plan = {NULL}}};
    double time[QM_BENCH_STEPS + QM_BENCH_ROOFS][2];
    struct qm_recipe recipe;
    qm_status st = QM_OK;
    int f32 = 0;
    for (int k = 0; st == QM_OK && s->count < QM_BENCH_STEPS && next_step(b, 0, &k, &recipe);) {
        f32 = is_f32(&recipe) ? s->count : f32;
        st = row_open(b, s, a, &recipe, &bound[s->count]);
    }
    struct qm_progress bar;
    qm_progress_start(&bar, "steps", (int64_t)(b->rounds + 1) * 2 * (s->count + QM_BENCH_ROOFS));
    for (int r = -1; st == QM_OK && r < b->rounds; r++) {
        st = one_round(b, a, bound, s->count, r, time, &bar);
        for (int v = 0; st == QM_OK && v < s->count + QM_BENCH_ROOFS; v++)
            add_sample(&s->row[v], r, time[v], time[f32], time + s->count);
    }
    qm_progress_end(&bar);
    for (int v = 0; v < s->count; v++)
        qm_bench_release(&bound[v]);
    return st;
}

/* Times one rule over whole tensors: adamw_f32 (x[0]), the rule (x[1]) and the roofs in turn.  Its
 * projection is set once and not recomputed (the sources compute a new one every 200 steps). */
static qm_status run_tensor_rule(const struct qm_bench *b, struct qm_bench_rows *s,
                                 const struct qm_bench_arrays *a, struct qm_bench_bound *x,
                                 struct qm_recipe *recipe)
{
    struct qm_bench_row *row = &s->row[s->count];
    double time[2 + QM_BENCH_ROOFS][2];
    recipe->hyper.gap = 0.0;
    qm_status st = row_open(b, s, a, recipe, &x[1]);
    for (int i = 0; st == QM_OK && i < recipe->rule->n_slots; i++)
        for (int h = 0; h < 2 && strcmp(recipe->rule->slot[i], "proj") == 0; h++)
            st = qm_backend_cpu.load(x[1].plan[h], i, NULL, a->g);
    row->rounds = b->rounds < TENSOR_ROUNDS ? b->rounds : TENSOR_ROUNDS;
    for (int r = -1; st == QM_OK && r < row->rounds; r++) {
        st = one_round(b, a, x, 2, r, time, NULL);
        if (st == QM_OK)
            add_sample(row, r, time[1], time[0], time + 2);
        while (st == QM_OK && r < 0 && row->rounds > 1 &&
               row->rounds * (time[1][0] + time[1][1]) > SLOW_SECONDS)
            row->rounds--;
    }
    qm_bench_release(&x[1]);
    return st;
}

/* Times rules over whole tensors one after the other, so that memory holds the state of one. */
static qm_status run_tensor_rules(const struct qm_bench *b, struct qm_bench_rows *s,
                                  const struct qm_bench_arrays *a)
{
    struct qm_recipe r;
    struct qm_bench_bound x[2] = {{.plan = {NULL}}};
    int total = 0;
    QM_TRY(qm_recipe_parse("adamw_f32", &r));
    qm_status st = qm_bench_bind(b, a, &r, &x[0]);
    for (int k = 0; next_step(b, 1, &k, &r);)
        total++;
    struct qm_progress bar;
    qm_progress_start(&bar, "steps over whole tensors", total);
    for (int k = 0; st == QM_OK && s->count < QM_BENCH_STEPS && next_step(b, 1, &k, &r);) {
        st = run_tensor_rule(b, s, a, x, &r);
        qm_progress_add(&bar, 1, 0);
    }
    qm_progress_end(&bar);
    qm_bench_release(&x[0]);
    return st;
}

static qm_status measure(const struct qm_bench *b, struct qm_bench_rows *s,
                         const struct qm_bench_arrays *a)
{
    struct qm_bench_row roof[QM_BENCH_ROOFS];
    omp_set_num_threads(b->threads);
    qm_bench_fill(a->p, a->g, b->n);
    QM_TRY(run_elementwise(b, s, a));
    memcpy(roof, s->row + s->count, sizeof roof); /* the rows of the roofs stay the last */
    if (!b->quick)
        QM_TRY(run_tensor_rules(b, s, a));
    for (int y = 0; y < QM_BENCH_ROOFS; y++) {
        roof[y].name = y == QM_BENCH_MEMORY ? "a += s*b" : "registers";
        roof[y].rounds = b->rounds;
        roof[y].state_bytes = 0.0;
        roof[y].moved = y == QM_BENCH_MEMORY ? 12.0 : 0.0;
    }
    memcpy(s->row + s->count, roof, sizeof roof);
    return QM_OK;
}

static qm_status run(const struct qm_bench *b, void **data)
{
    QM_TRY(check_filter(b));
    struct qm_bench_arrays a;
    struct qm_bench_rows *s = calloc(1, sizeof *s);
    *data = s;
    qm_status st = s ? qm_bench_arrays_alloc(b, &a) : qm_fail(QM_NO_MEMORY, "rows of the bench");
    if (st == QM_OK) {
        st = measure(b, s, &a);
        qm_bench_arrays_free(&a);
    }
    omp_set_num_threads(b->threads);
    return st;
}

const struct qm_bench_part qm_bench_steps = {"steps", run, qm_bench_steps_print,
                                             qm_bench_steps_store};
