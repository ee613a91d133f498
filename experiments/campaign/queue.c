/* queue.c - Costs of cells, groups of cells, shards of groups, and the order in which cells run. */
#include "experiments/campaign/queue.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/fnv1a.h"
#include "experiments/lockstep/lockstep.h"

/* ---- costs --------------------------------------------------------------------------------- */

/* "n=4096" in the cell's problem arguments, else in the problem's defaults, else 1024. */
static double problem_elements(const struct qm_cell *c)
{
    const char *texts[] = {c->problem_args ? c->problem_args : "", c->problem->args};
    for (int i = 0; i < 2; i++)
        for (const char *at = texts[i]; at && *at;) {
            if (strncmp(at, "n=", 2) == 0)
                return fmax(1.0, strtod(at + 2, NULL));
            at = strchr(at, ',');
            at += at != NULL;
        }
    return 1024.0;
}

double qm_cell_cost(const struct qm_cell *c)
{
    if (c->reason)
        return 1e-5;
    if (c->kind == QM_SOURCE_empty)
        return 1e-4;
    double elements = c->recorded  ? (double)c->recorded->numel
                      : c->problem ? problem_elements(c)
                                   : (double)c->n;
    if (c->coupling == QM_COUPLING_oneshot)
        return 1e-3 + 5e-7 * elements;
    int64_t own = c->recorded ? c->recorded->n_steps : c->problem ? c->problem->steps : 100;
    double steps = (double)(c->steps > 0 ? c->steps : own);
    double work = c->problem && c->problem->work ? c->problem->work(c->problem_args) : 0.0;
    return 1e-3 +
           steps * (2e-6 + 1.2e-7 * elements + 1.2e-10 * work); /* the variant and its twin */
}

/* ---- groups -------------------------------------------------------------------------------- */

struct keyed {
    uint64_t key;
    int64_t cell;
};

/* Hashes what the twin of a closed cell depends on, approximately; other cells get a key of
 * their own. */
static uint64_t key_of(const struct qm_cell *c)
{
    const char *family = c->recipe->rule ? c->recipe->rule->family : "";
    uint64_t h = qm_fnv1a(QM_FNV1A, c->source_text, strlen(c->source_text) + 1);
    if (c->coupling != QM_COUPLING_closed || c->reason || c->kind != QM_SOURCE_problem)
        return qm_fnv1a(h, &c->index, sizeof c->index);
    h = qm_fnv1a(h, family, strlen(family) + 1);
    uint64_t seed = qm_cell_seed(c);
    h = qm_fnv1a(h, &seed, sizeof seed);
    h = qm_fnv1a(h, &c->recipe->hyper.lr, sizeof c->recipe->hyper.lr);
    double scale = c->lr_scale * c->rate;
    h = qm_fnv1a(h, &scale, sizeof scale);
    h = qm_fnv1a(h, &c->warmup, sizeof c->warmup);
    if (c->schedule || c->clip > 0.0) { /* only then: shards of other suites stay as they were */
        int schedule = c->schedule;     /* of the width that it had when shards were first dealt */
        h = qm_fnv1a(h, &schedule, sizeof schedule);
        h = qm_fnv1a(h, &c->clip, sizeof c->clip);
    }
    int decay_rank = c->decay_rank;
    h = qm_fnv1a(h, &decay_rank, sizeof decay_rank);
    return qm_fnv1a(h, &c->steps, sizeof c->steps);
}

static int by_key(const void *a, const void *b)
{
    const struct keyed *x = a, *y = b;
    if (x->key != y->key)
        return x->key < y->key ? -1 : 1;
    return (x->cell > y->cell) - (x->cell < y->cell);
}

/* The cells of all groups in order, for by_cost: qsort passes no context. */
static const int64_t *sorted_cells;

/* Most expensive group first; ties by the group's first cell. */
static int by_cost(const void *a, const void *b)
{
    const struct qm_cell_group *x = a, *y = b;
    if (x->cost != y->cost)
        return x->cost > y->cost ? -1 : 1;
    int64_t i = sorted_cells[x->next], j = sorted_cells[y->next];
    return (i > j) - (i < j);
}

/* Groups of cells with equal keys; a group that would cost more than `most` is split. */
static int64_t make_groups(const struct qm_cell *cells, int64_t n, const struct keyed *key,
                           double most, struct qm_cell_group *group)
{
    int64_t n_groups = 0;
    for (int64_t i = 0; i < n; i++) {
        double cost = qm_cell_cost(&cells[key[i].cell]);
        struct qm_cell_group *g = n_groups ? &group[n_groups - 1] : NULL;
        if (!g || key[i].key != key[i - 1].key || g->cost + cost > most) {
            g = &group[n_groups++];
            *g = (struct qm_cell_group){i, i, 0.0};
        }
        g->end = i + 1;
        g->cost += cost;
    }
    return n_groups;
}

/* to[]: the shard of each group, always the one with the least cost so far. */
static qm_status share_out(const struct qm_cell_group *group, int64_t n_groups, int shards, int *to)
{
    double *load = calloc((size_t)shards, sizeof *load);
    if (!load)
        return qm_fail(QM_NO_MEMORY, "%d shards", shards);
    for (int64_t g = 0; g < n_groups; g++) {
        int least = 0;
        for (int s = 1; s < shards; s++)
            least = load[s] < load[least] ? s : least;
        to[g] = least;
        load[least] += group[g].cost;
    }
    free(load);
    return QM_OK;
}

/* Reduces the queue to the wanted cells of one shard's groups. */
static void keep(struct qm_queue *q, const struct keyed *key, const int *to, int shard,
                 const char *wanted)
{
    int64_t n_groups = 0;
    for (int64_t g = 0; g < q->n_groups; g++) {
        struct qm_cell_group was = q->group[g];
        int64_t from = q->n;
        for (int64_t i = was.next; to[g] == shard && i < was.end; i++)
            if (!wanted || wanted[key[i].cell])
                q->cell[q->n++] = key[i].cell;
        if (q->n > from)
            q->group[n_groups++] = (struct qm_cell_group){from, q->n, was.cost};
    }
    q->n_groups = n_groups;
    q->left = q->n;
}

static qm_status fill(const struct qm_cell *cells, int64_t n, int shard, int shards,
                      const char *wanted, struct keyed *key, int *to, struct qm_queue *q)
{
    double total = 0.0;
    for (int64_t i = 0; i < n; i++) {
        key[i] = (struct keyed){key_of(&cells[i]), i};
        total += qm_cell_cost(&cells[i]);
    }
    qsort(key, (size_t)n, sizeof *key, by_key);
    for (int64_t i = 0; i < n; i++)
        q->returned[i] = key[i].cell; /* lent to by_cost; it holds returned cells later */
    q->n_groups = make_groups(cells, n, key, total / (8.0 * shards), q->group);
    sorted_cells = q->returned;
    qsort(q->group, (size_t)q->n_groups, sizeof *q->group, by_cost);
    QM_TRY(share_out(q->group, q->n_groups, shards, to));
    keep(q, key, to, shard, wanted);
    return QM_OK;
}

qm_status qm_queue_open(const struct qm_cell *cells, int64_t n, int shard, int shards,
                        const char *wanted, struct qm_queue *out)
{
    size_t room = (size_t)(n > 0 ? n : 1);
    struct qm_queue q = {0};
    struct keyed *key = calloc(room, sizeof *key);
    int *to = calloc(room, sizeof *to);
    q.cell = calloc(room, sizeof *q.cell);
    q.returned = calloc(room, sizeof *q.returned);
    q.group = calloc(room, sizeof *q.group);
    qm_status st = key && to && q.cell && q.returned && q.group
                       ? fill(cells, n, shard, shards, wanted, key, to, &q)
                       : qm_fail(QM_NO_MEMORY, "a queue of %lld cells", (long long)n);
    free(key);
    free(to);
    if (st == QM_OK)
        *out = q;
    else
        qm_queue_close(&q);
    return st;
}

void qm_queue_close(struct qm_queue *q)
{
    free(q->cell);
    free(q->returned);
    free(q->group);
    *q = (struct qm_queue){0};
}

/* ---- the order of cells -------------------------------------------------------------------- */

/* The first group that no worker has begun, else the one with most cells left. */
static int64_t choose(struct qm_queue *q)
{
    int64_t best = 0;
    if (q->n_begun < q->n_groups)
        return q->n_begun++;
    for (int64_t g = 1; g < q->n_groups; g++)
        if (q->group[g].end - q->group[g].next > q->group[best].end - q->group[best].next)
            best = g;
    return best;
}

int64_t qm_queue_take(struct qm_queue *q, int64_t *group)
{
    if (q->left == 0)
        return -1;
    q->left--;
    if (q->n_returned > 0)
        return q->returned[--q->n_returned];
    if (*group < 0 || q->group[*group].next == q->group[*group].end)
        *group = choose(q);
    return q->cell[q->group[*group].next++];
}

void qm_queue_return(struct qm_queue *q, int64_t cell)
{
    q->returned[q->n_returned++] = cell;
    q->left++;
}

/* ---- shards -------------------------------------------------------------------------------- */

qm_status qm_shard_parse(const char *text, int *shard, int *shards)
{
    char *end, *last;
    long i = strtol(text, &end, 10);
    long n = *end == '/' ? strtol(end + 1, &last, 10) : 0;
    if (end == text || *end != '/' || last == end + 1 || *last || n < 1 || n > 1000000 || i < 1 ||
        i > n)
        return qm_fail(QM_BAD_ARG, "--shard '%s' is no shard; expected I/N with 1 <= I <= N", text);
    *shard = (int)i - 1;
    *shards = (int)n;
    return QM_OK;
}

/* Whether an environment variable holds a whole number of at least 0. */
static int number(const char *name, long *out)
{
    const char *text = getenv(name);
    char *end;
    if (!text || !*text)
        return 0;
    *out = strtol(text, &end, 10);
    return *end == 0 && *out >= 0;
}

/* Rank and size as the launcher says.  Slurm sets SLURM_PROCID in a batch script too, so the size
 * is the step's: only in a step are there other ranks. */
static int launched(long *rank, long *size, const char **who)
{
    static const char *const names[][3] = {
        {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "mpirun"},
        {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "srun"},
        {"PMI_RANK", "PMI_SIZE", "PMI"},
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (number(names[i][0], rank) && number(names[i][1], size) && *size > 1 && *rank < *size) {
            *who = names[i][2];
            return 1;
        }
    return 0;
}

int qm_shard_from_environment(int *shard, int *shards, char *from, size_t size)
{
    long rank = 0, ranks = 1, task = 0, least = 0, step = 1, tasks = 1;
    const char *who = NULL;
    int is_rank = launched(&rank, &ranks, &who);
    int is_task = number("SLURM_ARRAY_TASK_ID", &task) &&
                  number("SLURM_ARRAY_TASK_COUNT", &tasks) &&
                  number("SLURM_ARRAY_TASK_MIN", &least);
    if (!number("SLURM_ARRAY_TASK_STEP", &step) || step < 1)
        step = 1;
    is_task = is_task && tasks > 1 && task >= least && (task - least) / step < tasks;
    if (!is_task) {
        task = least = 0;
        tasks = 1;
    }
    if (!is_rank && !is_task)
        return 0;
    *shard = (int)((task - least) / step * ranks + rank);
    *shards = (int)(tasks * ranks);
    snprintf(from, size, "%s%s%s", is_task ? "Slurm's array task" : "",
             is_task && is_rank ? " and the rank of "
             : is_rank          ? "the rank of "
                                : "",
             is_rank ? who : "");
    return 1;
}
