/* gpu_tasks.c - Lists what gpu-check measures, and takes rows of an earlier report over. */
#include "experiments/gpu/gpu_tasks.h"
#include "core/base/clock.h"

#include <stdlib.h>
#include <string.h>

#include "experiments/cli/cli.h"
#include "experiments/gpu/gpu_run.h"
#include "experiments/prove/prove.h"

/* The ten best-known variants: what the packages install as their main optimizer, first. */
static const char *const known[] = {
    "adamw_f32",  "adamw8_bnb_cuda", "adamw4_ao",      "adamw8_ao",   "adamw_fp8_ao",
    "adamw8_bnb", "adamw4_lpmm",     "lion8_bnb_cuda", "flash_adamw", "adafactor8_026"};
enum { KNOWN = sizeof known / sizeof *known };

/* Recipes without a variant: 16-bit parameters and gradients, for which kernels are used most. */
static const char *const extra[] = {
    "adamw_f32,param=bf16,grad=bf16", "adamw4_ao,param=bf16/stoch,grad=bf16",
    "adamw8_ao,param=bf16/stoch,grad=bf16", "adamw4_lpmm_group,param=bf16/kahan,grad=bf16"};
enum { EXTRA = sizeof extra / sizeof *extra };

static const struct qm_shape shapes[] = {
    {1, {257}},   {1, {1}},       {1, {31}},         {1, {32}},       {1, {33}},
    {1, {255}},   {1, {256}},     {2, {1, 257}},     {2, {61, 67}},   {3, {9, 23, 31}},
    {1, {65535}}, {1, {1048579}}, {2, {1021, 1027}}, {2, {7, 65537}},
};
enum { SHAPES = sizeof shapes / sizeof *shapes };
/* Of these shapes the gradients that are no ordinary numbers are tried: one block of a launch and
 * several, with a tail; a matrix; three dimensions. */
static const int special_shapes[] = {0, 8, 9, 10};
enum { QUICK = 50000 }; /* elements of the largest tensor of --quick */
enum { SPECIAL = sizeof special_shapes / sizeof *special_shapes };

const struct qm_shape *qm_gpu_shape(int i) { return &shapes[i]; }

/* ---- the list -------------------------------------------------------------------------------- */

/* Adds a task whose row has this key, which is taken over.  NULL: there is no memory. */
static struct qm_gpu_task *add(struct qm_gpu_tasks *t, enum qm_gpu_part part, int is_new_group,
                               json_t *key)
{
    enum { STEP = 256 };
    if (t->n % STEP == 0) {
        struct qm_gpu_task *more = realloc(t->at, sizeof *more * (size_t)(t->n + STEP));
        if (!more || !key) {
            json_decref(key);
            return NULL;
        }
        t->at = more;
    }
    struct qm_gpu_task *task = &t->at[t->n++];
    memset(task, 0, sizeof *task);
    task->part = part;
    task->group = t->n == 1 ? 0 : task[-1].group + is_new_group;
    task->key = key;
    task->name = json_string_value(json_object_get(key, qm_gpu_columns(part)[0].name));
    return task->name ? task : NULL;
}

static qm_status add_exact(struct qm_gpu_tasks *t, const struct qm_gpu_options *o, const char *name)
{
    char dims[80];
    for (int forced = 0, first = 1; forced < 2; forced++)
        for (int kind = 0; kind < QM_GRADIENTS_COUNT; kind++)
            for (int i = 0; i < (kind ? SPECIAL : SHAPES); i++, first = 0) {
                int shape = kind ? special_shapes[i] : i;
                if (o->quick && qm_shape_numel(&shapes[shape]) > QUICK)
                    continue;
                json_t *key = json_pack("{s:s, s:b, s:s, s:s}", "variant", name, "forced", forced,
                                        "gradients", qm_gradients_name((enum qm_gradients)kind),
                                        "shape", qm_shape_print(&shapes[shape], dims, sizeof dims));
                struct qm_gpu_task *task = add(t, QM_GPU_exact, first, key);
                if (!task)
                    return qm_fail(QM_NO_MEMORY, "a list of tasks");
                task->forced = forced;
                task->gradients = (enum qm_gradients)kind;
                task->shape = shape;
            }
    return QM_OK;
}

/* Adds both modes of part speed or check. */
static qm_status add_modes(struct qm_gpu_tasks *t, enum qm_gpu_part part, const char *name)
{
    for (int fast = 0; fast < 2; fast++) {
        struct qm_gpu_task *task = add(t, part, !fast,
                                       json_pack("{s:s, s:s}", qm_gpu_columns(part)[0].name, name,
                                                 "mode", fast ? "fast" : "exact"));
        if (!task)
            return qm_fail(QM_NO_MEMORY, "a list of tasks");
        task->mode = fast ? QM_MODE_fast : QM_MODE_exact;
    }
    return QM_OK;
}

static qm_status add_codes(struct qm_gpu_tasks *t)
{
    struct qm_routine_names *names = calloc(1, sizeof *names);
    t->routines = names;
    if (!names)
        return qm_fail(QM_NO_MEMORY, "a list of routines");
    QM_TRY(qm_routine_names_add(names, "all", &(struct qm_prove_options){0}));
    for (int i = 0; i < names->n; i++) {
        if (names->at[i].q.bits != 4 || qm_round_draws(names->at[i].q.round))
            continue;
        struct qm_gpu_task *task =
            add(t, QM_GPU_codes, 1, json_pack("{s:s}", "routine", names->at[i].name));
        if (!task)
            return qm_fail(QM_NO_MEMORY, "a list of tasks");
        task->q = &names->at[i].q;
    }
    return QM_OK;
}

static qm_status add_tables(struct qm_gpu_tasks *t, const struct qm_gpu_options *o)
{
    const char *name;
    int ways = 0;
    for (int i = 0; (name = qm_speed_table_recipe(i, &ways)); i++) {
        int is_wanted = o->n_recipes == 0, first = 1;
        for (int k = 0; k < o->n_recipes; k++)
            is_wanted |= strcmp(name, o->recipes[k]) == 0;
        for (int way = 0; way < QM_SPEED_WAYS && is_wanted; way++) {
            if (!(ways >> way & 1))
                continue;
            struct qm_gpu_task *task =
                add(t, QM_GPU_tables, first,
                    json_pack("{s:s, s:s}", "recipe", name, "way", qm_speed_way(way)));
            if (!task)
                return qm_fail(QM_NO_MEMORY, "a list of tasks");
            first = 0;
            task->way = way;
        }
    }
    return QM_OK;
}

static void send_names(void *command, int fd)
{
    json_t *names = NULL;
    if (qm_peers_names(command, &names) == QM_OK)
        qm_gpu_child_send(fd, names);
}

static qm_status add_peers(struct qm_gpu_tasks *t, const char *command, double limit,
                           const volatile sig_atomic_t *stop)
{
    struct qm_gpu_child c;
    json_t *names = NULL, *name;
    char how[200];
    size_t i;
    QM_TRY(qm_gpu_child_start(&c, send_names, (void *)(uintptr_t)command));
    enum qm_gpu_wait end = qm_gpu_child_wait(&c, qm_seconds() + limit, stop, &names);
    qm_gpu_child_end(&c, how, sizeof how);
    if (end == QM_GPU_WAIT_stopped)
        return qm_fail(QM_INTERRUPTED, "interrupted before anything was measured");
    if (!names) /* measuring fails too, and says why */
        names = json_pack("[s]", command);
    qm_status st = names ? QM_OK : qm_fail(QM_NO_MEMORY, "a list of peers");
    json_array_foreach (names, i, name) {
        if (!add(t, QM_GPU_peers, 1, json_pack("{s:O}", "peer", name)))
            st = qm_fail(QM_NO_MEMORY, "a list of tasks");
    }
    json_decref(names);
    return st;
}

/* ---- the order ------------------------------------------------------------------------------- */

static int wants(const struct qm_gpu_options *o, enum qm_gpu_part part)
{
    if (o->has_only)
        return o->only[part];
    return o->n_recipes == 0 || (part != QM_GPU_codes && part != QM_GPU_peers);
}

static qm_status add_recipes(struct qm_gpu_tasks *t, const struct qm_gpu_options *o,
                             enum qm_gpu_part part, const char *const *names, int n)
{
    for (int i = 0; i < n && wants(o, part); i++)
        QM_TRY(part == QM_GPU_exact ? add_exact(t, o, names[i]) : add_modes(t, part, names[i]));
    return QM_OK;
}

static int is_known(const char *name)
{
    for (int i = 0; i < KNOWN; i++)
        if (strcmp(name, known[i]) == 0)
            return 1;
    return 0;
}

/* Adds what does not depend on the recipes, and the recipes before and after it. */
static qm_status add_all(struct qm_gpu_tasks *t, const struct qm_gpu_options *o,
                         const char *const *rest, int n_rest, const volatile sig_atomic_t *stop)
{
    static const enum qm_gpu_part before[] = {QM_GPU_exact, QM_GPU_speed}, /* of each recipe */
        after[] = {QM_GPU_exact, QM_GPU_speed, QM_GPU_check};
    const char *const *first = o->n_recipes ? (const char *const *)o->recipes : known;
    int n = o->n_recipes ? o->n_recipes : KNOWN;
    for (int i = 0; i < 2 * n; i++)
        QM_TRY(add_recipes(t, o, before[i % 2], first + i / 2, 1));
    if (wants(o, QM_GPU_codes))
        QM_TRY(add_codes(t));
    QM_TRY(add_recipes(t, o, QM_GPU_check, first, n));
    if (wants(o, QM_GPU_tables))
        QM_TRY(add_tables(t, o));
    if (wants(o, QM_GPU_peers) && o->peers)
        QM_TRY(add_peers(t, o->peers, o->limit, stop));
    for (int i = 0; i < 3 && o->n_recipes == 0; i++)
        QM_TRY(add_recipes(t, o, after[i], rest, n_rest));
    return QM_OK;
}

qm_status qm_gpu_tasks_make(const struct qm_gpu_options *o, const volatile sig_atomic_t *stop,
                            struct qm_gpu_tasks *out)
{
    int n = 0, count = qm_variant_count();
    const char **rest = malloc(sizeof *rest * (size_t)(count + EXTRA));
    if (!rest)
        return qm_fail(QM_NO_MEMORY, "a list of recipes");
    for (int i = 0; i < EXTRA; i++)
        rest[n++] = extra[i];
    for (int i = 0; i < count; i++)
        if (!is_known(qm_variant_at(i)->name))
            rest[n++] = qm_variant_at(i)->name;
    memset(out, 0, sizeof *out);
    qm_status st = add_all(out, o, rest, n, stop);
    free(rest);
    if (st != QM_OK)
        qm_gpu_tasks_free(out);
    return st;
}

void qm_gpu_tasks_free(struct qm_gpu_tasks *t)
{
    for (int i = 0; i < t->n; i++) {
        json_decref(t->at[i].key);
        json_decref(t->at[i].rows);
    }
    free(t->at);
    if (t->routines)
        qm_routine_names_free(t->routines);
    free(t->routines);
    memset(t, 0, sizeof *t);
}

/* ---- rows ------------------------------------------------------------------------------------ */

int qm_gpu_task_is_open(const struct qm_gpu_task *t)
{
    json_t *row;
    size_t i;
    json_array_foreach (t->rows, i, row) {
        const char *status = json_string_value(json_object_get(row, "status"));
        if (qm_gpu_row_verdict(t->part, row) == QM_GPU_broken ||
            strncmp(status, QM_GPU_PART_OF_CODES, strlen(QM_GPU_PART_OF_CODES)) == 0)
            return 1;
    }
    return json_array_size(t->rows) == 0;
}

/* Adds a task for each peer that only the earlier report has measured: this call's command may name
 * others, or fail. */
static qm_status add_earlier_peers(struct qm_gpu_tasks *t, json_t *rows)
{
    json_t *row;
    size_t k;
    json_array_foreach (rows, k, row) {
        int i = 0;
        while (i < t->n && (t->at[i].part != QM_GPU_peers ||
                            !qm_gpu_row_is_same(QM_GPU_peers, t->at[i].key, row)))
            i++;
        if (i == t->n && qm_gpu_row_verdict(QM_GPU_peers, row) != QM_GPU_broken &&
            !add(t, QM_GPU_peers, 1, json_pack("{s:O}", "peer", json_object_get(row, "peer"))))
            return qm_fail(QM_NO_MEMORY, "a list of tasks");
    }
    return QM_OK;
}

/* QM_BAD_FILE: a row is of no task, so that writing the report again would lose it. */
static qm_status expect_tasks(const struct qm_gpu_tasks *t, enum qm_gpu_part part, json_t *rows)
{
    json_t *row;
    size_t k;
    json_array_foreach (rows, k, row) {
        json_t *name = json_object_get(row, qm_gpu_columns(part)->name);
        int i = 0;
        while (i < t->n && (t->at[i].part != part || !qm_gpu_row_is_same(part, t->at[i].key, row)))
            i++;
        if (i == t->n)
            return qm_fail(QM_BAD_FILE,
                           "contradicts itself: row %zu of part %s, of '%.60s', is none that this "
                           "program measures for its plan",
                           k, qm_gpu_part_name(part),
                           json_is_string(name) ? json_string_value(name) : "");
    }
    return QM_OK;
}

qm_status qm_gpu_tasks_take_own(struct qm_gpu_tasks *t, const struct qm_gpu_report *from)
{
    json_t *row;
    size_t k;
    for (int i = 0; i < QM_GPU_PARTS; i++)
        if (i != QM_GPU_peers)
            QM_TRY(expect_tasks(t, (enum qm_gpu_part)i, from->rows[i]));
    for (int i = 0; i < t->n; i++)
        json_array_foreach (from->rows[t->at[i].part], k, row) {
            if (!qm_gpu_row_is_same(t->at[i].part, t->at[i].key, row))
                continue;
            if (!t->at[i].rows)
                t->at[i].rows = json_array();
            json_array_append(t->at[i].rows, row);
        }
    return QM_OK;
}

qm_status qm_gpu_tasks_take(struct qm_gpu_tasks *t, const struct qm_gpu_report *from)
{
    QM_TRY(add_earlier_peers(t, from->rows[QM_GPU_peers]));
    return qm_gpu_tasks_take_own(t, from);
}

void qm_gpu_tasks_rows(const struct qm_gpu_tasks *t, struct qm_gpu_report *out)
{
    for (int i = 0; i < QM_GPU_PARTS; i++) {
        json_decref(out->rows[i]);
        out->rows[i] = json_array();
    }
    for (int i = 0; i < t->n; i++)
        if (t->at[i].rows)
            json_array_extend(out->rows[t->at[i].part], t->at[i].rows);
}
