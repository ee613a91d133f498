/* launch_queue.c - Runs tensor rules as coroutines and turns their operations into launches. */
#include "core/device/launch_queue.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

enum { ARRAYS = 16, STACK = 1 << 19, GUARD = 4096 };

/* A recorded operation.  A transfer is a copy of words; its end in the table (PUT: the source) or
 * in the buffer of results (GET: the target) gets its address when the operation is launched. */
struct operation {
    enum qm_sweep_kind kind;
    enum { OPERATION_SWEEP, OPERATION_PUT, OPERATION_GET } what;
    size_t at; /* of a transfer: its byte in `put` or `got` */
    struct qm_sweep a;
};

/* The run of the rule's code for one tensor. */
struct task {
    struct qm_launch_queue *queue;
    struct {
        qm_address at;
        size_t bytes;
        int is_used;
    } array[ARRAYS]; /* that the rule has asked for; kept from step to step */
    struct {
        qm_address at;
        int64_t key;
        int is_there;
    } kept;       /* what the rule has kept, struct qm_tensor_rule_device */
    qm_status st; /* the first failure, or what the work returned */
    /* Where there are several tasks, each is a coroutine: */
    ucontext_t context;
    char *stack;
    struct operation *operation;
    int n_operations, most_operations, next, is_done; /* next: the first that is not launched */
    const struct qm_tensor_rule_args *w;
};

struct bytes {
    unsigned char *at;
    size_t used, room;
};

struct qm_launch_queue {
    const struct qm_device *d;
    void *module;
    int n;
    struct task *task;
    qm_status (*work)(const struct qm_tensor_rule_args *);
    ucontext_t host;
    struct bytes table;    /* operations in the order of their launches, then `put` */
    struct bytes put, got; /* data for the device, and from it */
    qm_address table_at, got_at;
    size_t table_room, got_room; /* bytes reserved at these addresses */
};

static _Thread_local struct task *current; /* whose code runs */

/* Keeps the first failure of a task. */
static void keep(qm_status st)
{
    if (current->st == QM_OK)
        current->st = st;
}

static void *pointer(qm_address at) { return (void *)(uintptr_t)at; }
static qm_address address(const void *p) { return (qm_address)(uintptr_t)p; }

static int64_t blocks_of(const struct qm_sweep *a)
{
    return (a->n + QM_STEP_THREADS - 1) / QM_STEP_THREADS;
}

/* Appends `more` bytes, whose address it returns; NULL: no memory. */
static void *grow(struct bytes *b, size_t more)
{
    if (b->used + more > b->room) {
        size_t room = 2 * b->room + more + 4096;
        unsigned char *at = realloc(b->at, room);
        if (!at)
            return NULL;
        b->at = at;
        b->room = room;
    }
    b->used += more;
    return b->at + b->used - more;
}

/* ---- the rule's operations: launched at once, or recorded ------------------------------------ */

static struct operation *record(enum qm_sweep_kind kind, const struct qm_sweep *a)
{
    struct task *t = current;
    if (t->st != QM_OK)
        return NULL;
    if (t->n_operations == t->most_operations) {
        int most = 2 * t->most_operations + 16;
        struct operation *more = realloc(t->operation, sizeof *more * (size_t)most);
        if (!more) {
            keep(qm_fail(QM_NO_MEMORY, "%d operations", most));
            return NULL;
        }
        t->operation = more;
        t->most_operations = most;
    }
    t->operation[t->n_operations] = (struct operation){.kind = kind, .a = *a};
    return &t->operation[t->n_operations++];
}

static void sweep(enum qm_sweep_kind kind, const struct qm_sweep *a)
{
    struct qm_sweep copy = *a;
    int number = (int)kind;
    int64_t blocks = blocks_of(a);
    void *args[] = {&number, &copy};
    if (current->queue->n > 1)
        (void)record(kind, a);
    else if (current->st == QM_OK)
        keep(current->queue->d->launch(current->queue->module,
                                       number < QM_SWEEP_SUMS ? QM_KERNEL_whole_sums
                                                              : QM_KERNEL_whole_sweep,
                                       (unsigned)(blocks < 65535 ? blocks : 65535), 1, args));
}

static qm_status room(size_t bytes, void **out)
{
    struct task *t = current;
    for (int i = 0; i < ARRAYS; i++) {
        if (t->array[i].at && (t->array[i].is_used || t->array[i].bytes < bytes))
            continue;
        if (!t->array[i].at) {
            keep(t->queue->d->reserve(bytes, &t->array[i].at));
            QM_TRY(t->st);
            t->array[i].bytes = bytes;
        }
        t->array[i].is_used = 1;
        *out = pointer(t->array[i].at);
        return QM_OK;
    }
    keep(qm_fail(QM_NO_MEMORY, "a rule asks for more than %d arrays at once", ARRAYS));
    return t->st;
}

static void release(void *p)
{
    for (int i = 0; p && i < ARRAYS; i++)
        if (current->array[i].at == address(p))
            current->array[i].is_used = 0;
}

static qm_status kept(int64_t key, size_t bytes, void **out, int *is_new)
{
    struct task *t = current;
    if (!t->kept.at)
        keep(t->queue->d->reserve(bytes, &t->kept.at));
    QM_TRY(t->st);
    *is_new = !t->kept.is_there || t->kept.key != key;
    t->kept.is_there = 1;
    t->kept.key = key;
    *out = pointer(t->kept.at);
    return QM_OK;
}

/* A transfer of several tasks: a copy of words, launched like any operation. */
static struct qm_sweep copy_of(size_t bytes, const void *from, const void *to)
{
    return (struct qm_sweep){.n = (int64_t)(bytes / sizeof(float)), .x = {QM_AT(to), QM_AT(from)}};
}

static void get(void *to, const void *from, size_t bytes)
{
    struct task *t = current;
    memset(to, 0, bytes);
    if (t->queue->n == 1 && t->st == QM_OK)
        keep(t->queue->d->get(to, address(from), bytes));
    if (t->queue->n == 1 || bytes == 0)
        return;
    struct qm_sweep a = copy_of(bytes, from, NULL);
    struct operation *op = record(QM_SWEEP_copy, &a);
    size_t at = t->queue->got.used;
    if (!op)
        return;
    if (!grow(&t->queue->got, bytes)) {
        keep(qm_fail(QM_NO_MEMORY, "%zu bytes from the device", bytes));
        t->n_operations--;
        return;
    }
    op->what = OPERATION_GET;
    op->at = at;
    swapcontext(&t->context, &t->queue->host); /* until the bytes are here */
    if (t->st == QM_OK)
        memcpy(to, t->queue->got.at + at, bytes);
}

static void put(void *to, const void *from, size_t bytes)
{
    struct task *t = current;
    if (t->queue->n == 1) {
        if (t->st == QM_OK)
            keep(t->queue->d->put(address(to), from, bytes));
        return;
    }
    struct qm_sweep a = copy_of(bytes, NULL, to);
    struct operation *op = bytes ? record(QM_SWEEP_copy, &a) : NULL;
    size_t at = t->queue->put.used;
    void *data = op ? grow(&t->queue->put, bytes) : NULL;
    if (op && !data) {
        keep(qm_fail(QM_NO_MEMORY, "%zu bytes to the device", bytes));
        t->n_operations--;
    }
    if (!data)
        return;
    memcpy(data, from, bytes);
    op->what = OPERATION_PUT;
    op->at = at;
}

/* The functions of struct qm_tensor_rule_loops as operations; n > 0, as QM_CHUNKS hands over. */
#define BLOCK(name, list, ...)                     \
    static void name list                          \
    {                                              \
        struct qm_sweep a = {.n = n, __VA_ARGS__}; \
        sweep(QM_SWEEP_##name, &a);                \
    }
BLOCK(divide, (int64_t n, float by, float *x), .c = {[QM_DIVIDE_BY] = by}, .x = {x})
BLOCK(multiply, (int64_t n, float by, float *x), .c = {[QM_MULTIPLY_BY] = by}, .x = {x})
BLOCK(decay, (int64_t n, float by, float *p), .c = {[QM_DECAY_BY] = by}, .x = {p})
BLOCK(add_scaled, (int64_t n, float by, const float *u, float *p),
      .c = {[QM_ADD_SCALED_ALPHA] = by}, .x = {p, QM_AT(u)})
BLOCK(residual, (int64_t n, float add, const float *m, float *u), .c = {[QM_RESIDUAL_ADD] = add},
      .x = {u, QM_AT(m)})
BLOCK(decay_step, (int64_t n, float keep_, float by, const float *u, float *p),
      .c = {[QM_DECAY_STEP_KEEP] = keep_, [QM_DECAY_STEP_LR] = by}, .x = {p, QM_AT(u)})
BLOCK(average, (int64_t n, float keep_, float weight, const float *x, float *old),
      .c = {[QM_AVERAGE_KEEP] = keep_, [QM_AVERAGE_WEIGHT] = weight}, .x = {old, QM_AT(x)})
#undef BLOCK

static struct qm_sweep of_moment(const struct qm_moment *m, int64_t n, float *x0, const float *x1)
{
    return (struct qm_sweep){.n = n,
                             .c = {[QM_MOMENT_KEEP] = m->keep, [QM_MOMENT_WEIGHT] = m->weight},
                             .flag = {[QM_MOMENT_IS_LERP] = m->is_lerp,
                                      [QM_MOMENT_TURNS] = m->turns,
                                      [QM_MOMENT_ONLY_FINITE] = m->only_finite},
                             .x = {x0, QM_AT(x1)}};
}

static void moment(const struct qm_moment *m, int64_t n, const float *x, float *old)
{
    struct qm_sweep a = of_moment(m, n, old, x);
    sweep(QM_SWEEP_moment, &a);
}

static void taken(const struct qm_moment *m, int64_t n, const float *x, float *out)
{
    struct qm_sweep a = of_moment(m, n, out, x);
    sweep(QM_SWEEP_taken, &a);
}

static void lpmm_lerp(const struct qm_rule_step *s, int64_t n, const float *g, float *m)
{
    struct qm_sweep a = {.n = n, .x = {m, QM_AT(g)}};
    memcpy(a.c, s->c, sizeof a.c);
    a.flag[QM_FLAG_MAXIMIZE] = s->flag[QM_FLAG_MAXIMIZE];
    sweep(QM_SWEEP_lpmm_lerp, &a);
}

static const struct qm_tensor_rule_loops blocks = {.moment = moment,
                                                   .taken = taken,
                                                   .divide = divide,
                                                   .multiply = multiply,
                                                   .residual = residual,
                                                   .decay_step = decay_step,
                                                   .average = average,
                                                   .decay = decay,
                                                   .add_scaled = add_scaled,
                                                   .lpmm_lerp = lpmm_lerp};

static const struct qm_tensor_rule_device functions = {&blocks, room,  release, get,
                                                       put,     sweep, kept};

/* ---- recorded operations to launches --------------------------------------------------------- */

/* Reserves at least `bytes` on the device, unless that many are; kept from step to step. */
static qm_status fit(const struct qm_device *d, size_t bytes, qm_address *at, size_t *reserved)
{
    if (bytes <= *reserved)
        return QM_OK;
    d->release(*at);
    *at = 0;
    *reserved = 0;
    QM_TRY(d->reserve(2 * bytes, at));
    *reserved = 2 * bytes;
    return QM_OK;
}

/* Operations [at, at + count) of the table; `wanted`: the blocks they would have by themselves. */
struct launch {
    int at, count;
    int64_t wanted;
};

/* The next operation of every task that has one: fills their part of the table.  data: the address
 * of `put` on the device. */
static struct launch next_launch(struct qm_launch_queue *queue, int at, struct qm_sweep *list,
                                 int *kind, qm_address data)
{
    struct launch now = {at, 0, 0};
    for (int k = 0; k < queue->n; k++) {
        struct task *t = &queue->task[k];
        if (t->next == t->n_operations)
            continue;
        const struct operation *op = &t->operation[t->next++];
        int i = now.count++;
        kind[i] = (int)op->kind;
        list[i] = op->a;
        if (op->what == OPERATION_PUT)
            list[i].x[1] = pointer(data + op->at);
        if (op->what == OPERATION_GET)
            list[i].x[0] = pointer(queue->got_at + op->at);
        now.wanted += blocks_of(&op->a);
    }
    return now;
}

/* The first block of each operation of a launch, first[count + 1]: at least one block each, and in
 * all about MOST at most, which keep any device busy. */
static void share_blocks(const struct launch *l, const struct qm_sweep *list, int *first)
{
    enum { MOST = 16384 };
    first[0] = 0;
    for (int i = 0; i < l->count; i++) {
        int64_t own = blocks_of(&list[i]);
        if (l->wanted > MOST)
            own = (int64_t)((double)own * MOST / (double)l->wanted);
        first[i + 1] = first[i] + (int)(own > 0 ? own : 1);
    }
}

/* Writes the table to the device (n operations, their kinds, the blocks of each launch, the data
 * for the device) and launches it; then fetches the results. */
static qm_status launch_table(struct qm_launch_queue *queue, int n, int launches,
                              struct launch *launch)
{
    size_t kinds_at = sizeof(struct qm_sweep) * (size_t)n,
           first_at = kinds_at + sizeof(int) * (size_t)n;
    size_t data_at = first_at + sizeof(int) * (size_t)(n + launches);
    size_t bytes = data_at + queue->put.used;
    queue->table.used = 0;
    unsigned char *table = grow(&queue->table, bytes);
    if (!table)
        return qm_fail(QM_NO_MEMORY, "%d operations", n);
    struct qm_sweep *list = (struct qm_sweep *)(void *)table;
    int *kind = (int *)(void *)(table + kinds_at), *first = (int *)(void *)(table + first_at);
    QM_TRY(fit(queue->d, bytes, &queue->table_at, &queue->table_room));
    QM_TRY(fit(queue->d, queue->got.used, &queue->got_at, &queue->got_room));
    for (int i = 0, at = 0; i < launches; i++) {
        launch[i] = next_launch(queue, at, list + at, kind + at, queue->table_at + data_at);
        share_blocks(&launch[i], list + at, first + at + i);
        at += launch[i].count;
    }
    if (queue->put.used)
        memcpy(table + data_at, queue->put.at, queue->put.used);
    QM_TRY(queue->d->put(queue->table_at, table, bytes));
    for (int i = 0; i < launches; i++) {
        size_t at = (size_t)launch[i].at;
        qm_address list_at = queue->table_at + sizeof *list * at;
        qm_address kind_at = queue->table_at + kinds_at + sizeof(int) * at;
        qm_address own_at = queue->table_at + first_at + sizeof(int) * (at + (size_t)i);
        void *args[] = {&list_at, &own_at, &kind_at, &launch[i].count};
        QM_TRY(queue->d->launch(queue->module, QM_KERNEL_whole_sweeps,
                                (unsigned)first[at + (size_t)(i + launch[i].count)], 1, args));
    }
    return queue->got.used ? queue->d->get(queue->got.at, queue->got_at, queue->got.used) : QM_OK;
}

/* Launches everything recorded, in as many launches as the longest task has operations. */
static qm_status flush(struct qm_launch_queue *queue)
{
    int n = 0, launches = 0;
    for (int k = 0; k < queue->n; k++) {
        n += queue->task[k].n_operations;
        launches = queue->task[k].n_operations > launches ? queue->task[k].n_operations : launches;
    }
    struct launch *launch = calloc((size_t)launches + 1, sizeof *launch);
    qm_status st = !launch ? qm_fail(QM_NO_MEMORY, "%d launches", launches)
                   : n > 0 ? launch_table(queue, n, launches, launch)
                           : QM_OK;
    for (int k = 0; k < queue->n; k++)
        queue->task[k].n_operations = queue->task[k].next = 0;
    queue->put.used = 0;
    free(launch);
    return st;
}

/* ---- tasks ----------------------------------------------------------------------------------- */

static void run_task(void)
{
    struct task *t = current;
    qm_status st = t->queue->work(t->w);
    keep(st);
    t->is_done = 1;
    swapcontext(&t->context, &t->queue->host);
}

static qm_status stack_of(struct task *t)
{
    if (t->stack)
        return QM_OK;
    char *at = mmap(NULL, GUARD + STACK, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED)
        return qm_fail(QM_NO_MEMORY, "a stack of %d bytes", STACK);
    t->stack = at;
    return mprotect(at, GUARD, PROT_NONE) == 0 ? QM_OK : qm_fail(QM_INTERNAL, "mprotect");
}

static void context_of(struct task *t)
{
    getcontext(&t->context);
    t->context.uc_stack.ss_sp = t->stack + GUARD;
    t->context.uc_stack.ss_size = STACK;
    t->context.uc_link = NULL;
    makecontext(&t->context, run_task, 0);
}

/* Runs each task until it waits or ends, then launches what they recorded, until all have ended.
 * After a failure the tasks still run to their ends, without operations. */
static void run_many(struct qm_launch_queue *queue)
{
    for (int left = queue->n; left > 0;) {
        queue->got.used = 0;
        left = 0;
        for (int k = 0; k < queue->n; k++) {
            current = &queue->task[k];
            if (!current->is_done)
                swapcontext(&queue->host, &current->context);
            left += !queue->task[k].is_done;
        }
        qm_status st = flush(queue);
        for (int k = 0; k < queue->n && st != QM_OK; k++)
            queue->task[k].st = st;
    }
}

static qm_status begin_many(struct qm_launch_queue *queue, const uint8_t *takes_part)
{
    for (int k = 0; k < queue->n; k++) {
        struct task *t = &queue->task[k];
        t->n_operations = t->next = 0;
        t->is_done = takes_part && !takes_part[k];
        QM_TRY(stack_of(t));
        context_of(t);
    }
    queue->put.used = 0;
    return QM_OK;
}

qm_status qm_launch_queue_run(struct qm_launch_queue *queue, void *module,
                              qm_status (*work)(const struct qm_tensor_rule_args *),
                              const struct qm_tensor_rule_args *w, const uint8_t *takes_part)
{
    qm_status st = QM_OK;
    queue->module = module;
    queue->work = work;
    for (int k = 0; k < queue->n; k++) {
        queue->task[k].w = &w[k];
        queue->task[k].st = QM_OK;
    }
    if (queue->n > 1)
        st = begin_many(queue, takes_part);
    current = queue->task;
    qm_tensor_rule_set_device(&functions);
    if (queue->n > 1 && st == QM_OK)
        run_many(queue);
    else if (st == QM_OK && (!takes_part || takes_part[0]))
        st = work(w);
    qm_tensor_rule_set_device(NULL);
    current = NULL;
    for (int k = 0; k < queue->n && st == QM_OK; k++)
        st = queue->task[k].st;
    for (int k = 0; k < queue->n && st != QM_OK; k++)
        queue->task[k].kept.is_there = 0;
    return st;
}

void qm_launch_queue_begin(struct qm_launch_queue *queue)
{
    for (int k = 0; k < queue->n; k++)
        for (int i = 0; i < ARRAYS; i++)
            queue->task[k].array[i].is_used = 0;
}

qm_status qm_launch_queue_open(const struct qm_device *d, int n, struct qm_launch_queue **out)
{
    struct qm_launch_queue *queue = calloc(1, sizeof *queue);
    struct task *task = calloc((size_t)(n > 0 ? n : 1), sizeof *task);
    if (!queue || !task) {
        free(queue);
        free(task);
        return qm_fail(QM_NO_MEMORY, "%d tensors", n);
    }
    *queue = (struct qm_launch_queue){.d = d, .n = n, .task = task};
    for (int k = 0; k < n; k++)
        task[k].queue = queue;
    *out = queue;
    return QM_OK;
}

void qm_launch_queue_close(struct qm_launch_queue *queue)
{
    if (!queue)
        return;
    for (int k = 0; k < queue->n; k++) {
        struct task *t = &queue->task[k];
        for (int i = 0; i < ARRAYS; i++)
            queue->d->release(t->array[i].at);
        queue->d->release(t->kept.at);
        if (t->stack)
            munmap(t->stack, GUARD + STACK);
        free(t->operation);
    }
    queue->d->release(queue->table_at);
    queue->d->release(queue->got_at);
    free(queue->table.at);
    free(queue->put.at);
    free(queue->got.at);
    free(queue->task);
    free(queue);
}
