/* launch_queue.c - see launch_queue.h. */
#include "core/device/launch_queue.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

enum { ROOMS = 16, STACK = 1 << 19, GUARD = 4096 };

/* An operation that was noted.  The address of what is handed over or fetched is known when it is launched. */
struct note {
    enum qm_sweep_kind kind;
    enum { NOTE_PLAIN, NOTE_PUT, NOTE_GET } what;
    size_t at; /* in what is handed over, or fetched */
    struct qm_sweep a;
};

struct lane {
    struct qm_launch_queue *all;
    struct {
        qm_address at;
        size_t bytes;
        int is_used;
    } room[ROOMS]; /* what the rule asked for so far */
    struct {
        qm_address at;
        int64_t key;
        int is_there;
    } kept;
    qm_status st; /* the first failure, and what the work returned */
    /* Of many lanes: */
    ucontext_t context;
    char *stack;
    struct note *note;
    int n_notes, most_notes, next, is_done;
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
    struct lane *lane;
    qm_status (*work)(const struct qm_tensor_rule_args *);
    ucontext_t host;
    struct bytes table, put,
        got; /* operations in the order of their launches; data for and from there */
    qm_address table_at, got_at;
    size_t table_room, got_room;
};

static _Thread_local struct lane *current;

static void keep(qm_status st)
{
    if (current->st == QM_OK)
        current->st = st;
}

static void *pointer(qm_address at) { return (void *)(uintptr_t)at; }
static qm_address address(const void *p) { return (qm_address)(uintptr_t)p; }

unsigned qm_lanes_blocks(int64_t n, int64_t each)
{
    int64_t blocks = (n + each - 1) / each;
    return (unsigned)(blocks < 65535 ? blocks : 65535);
}

/* Room for more bytes behind those in use; NULL: there is none. */
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

/* ---- what the rule's operations become ---------------------------------------------------------- */

static struct note *note_of(enum qm_sweep_kind kind, const struct qm_sweep *a)
{
    struct lane *l = current;
    if (l->st != QM_OK)
        return NULL;
    if (l->n_notes == l->most_notes) {
        int most = 2 * l->most_notes + 16;
        struct note *more = realloc(l->note, sizeof *more * (size_t)most);
        if (!more) {
            keep(qm_fail(QM_NO_MEMORY, "%d operations", most));
            return NULL;
        }
        l->note = more;
        l->most_notes = most;
    }
    l->note[l->n_notes] = (struct note){.kind = kind, .a = *a};
    return &l->note[l->n_notes++];
}

static void sweep(enum qm_sweep_kind kind, const struct qm_sweep *a)
{
    struct qm_sweep copy = *a;
    int number = (int)kind;
    void *args[] = {&number, &copy};
    if (current->all->n > 1)
        (void)note_of(kind, a);
    else if (current->st == QM_OK)
        keep(current->all->d->launch(current->all->module,
                                     number < QM_SWEEP_SUMS ? QM_KERNEL_whole_sums
                                                            : QM_KERNEL_whole_sweep,
                                     qm_lanes_blocks(a->n, QM_STEP_THREADS), 1, args));
}

static qm_status room(size_t bytes, void **out)
{
    struct lane *l = current;
    for (int i = 0; i < ROOMS; i++) {
        if (l->room[i].at && (l->room[i].is_used || l->room[i].bytes < bytes))
            continue;
        if (!l->room[i].at) {
            keep(l->all->d->reserve(bytes, &l->room[i].at));
            QM_TRY(l->st);
            l->room[i].bytes = bytes;
        }
        l->room[i].is_used = 1;
        *out = pointer(l->room[i].at);
        return QM_OK;
    }
    keep(qm_fail(QM_NO_MEMORY, "a rule asks for more than %d arrays at once", ROOMS));
    return l->st;
}

static void release(void *p)
{
    for (int i = 0; p && i < ROOMS; i++)
        if (current->room[i].at == address(p))
            current->room[i].is_used = 0;
}

static qm_status kept(int64_t key, size_t bytes, void **out, int *is_new)
{
    struct lane *l = current;
    if (!l->kept.at)
        keep(l->all->d->reserve(bytes, &l->kept.at));
    QM_TRY(l->st);
    *is_new = !l->kept.is_there || l->kept.key != key;
    l->kept.is_there = 1;
    l->kept.key = key;
    *out = pointer(l->kept.at);
    return QM_OK;
}

/* Transfers of many lanes are copies of words beside the other operations. */
static struct qm_sweep copy_of(size_t bytes, const void *from, const void *to)
{
    return (struct qm_sweep){.n = (int64_t)(bytes / sizeof(float)), .x = {QM_AT(to), QM_AT(from)}};
}

static void get(void *to, const void *from, size_t bytes)
{
    struct lane *l = current;
    memset(to, 0, bytes);
    if (l->all->n == 1 && l->st == QM_OK)
        keep(l->all->d->get(to, address(from), bytes));
    if (l->all->n == 1 || bytes == 0)
        return;
    struct qm_sweep a = copy_of(bytes, from, NULL);
    struct note *n = note_of(QM_SWEEP_copy, &a);
    size_t at = l->all->got.used;
    if (!n)
        return;
    if (!grow(&l->all->got, bytes)) {
        keep(qm_fail(QM_NO_MEMORY, "%zu bytes from the device", bytes));
        l->n_notes--;
        return;
    }
    n->what = NOTE_GET;
    n->at = at;
    swapcontext(&l->context, &l->all->host); /* until it is there */
    if (l->st == QM_OK)
        memcpy(to, l->all->got.at + at, bytes);
}

static void put(void *to, const void *from, size_t bytes)
{
    struct lane *l = current;
    if (l->all->n == 1) {
        if (l->st == QM_OK)
            keep(l->all->d->put(address(to), from, bytes));
        return;
    }
    struct qm_sweep a = copy_of(bytes, NULL, to);
    struct note *n = bytes ? note_of(QM_SWEEP_copy, &a) : NULL;
    size_t at = l->all->put.used;
    void *data = n ? grow(&l->all->put, bytes) : NULL;
    if (n && !data) {
        keep(qm_fail(QM_NO_MEMORY, "%zu bytes to the device", bytes));
        l->n_notes--;
    }
    if (!data)
        return;
    memcpy(data, from, bytes);
    n->what = NOTE_PUT;
    n->at = at;
}

static struct qm_sweep of(int64_t n, float *x0, const float *x1, float c0, float c1)
{
    return (struct qm_sweep){.n = n, .c = {c0, c1}, .x = {x0, QM_AT(x1)}};
}

/* Argument lists of struct qm_tensor_rule_loops to operations; n > 0, as chunks are. */
#define BLOCK(name, list, ...)           \
    static void name list                \
    {                                    \
        struct qm_sweep a = __VA_ARGS__; \
        sweep(QM_SWEEP_##name, &a);      \
    }
BLOCK(divide, (int64_t n, float by, float *x), of(n, x, NULL, by, 0.0f))
BLOCK(multiply, (int64_t n, float by, float *x), of(n, x, NULL, by, 0.0f))
BLOCK(decay, (int64_t n, float by, float *p), of(n, p, NULL, by, 0.0f))
BLOCK(add_scaled, (int64_t n, float by, const float *u, float *p), of(n, p, u, by, 0.0f))
BLOCK(residual, (int64_t n, float add, const float *m, float *u), of(n, u, m, add, 0.0f))
BLOCK(decay_step, (int64_t n, float keep_, float by, const float *u, float *p),
      of(n, p, u, keep_, by))
BLOCK(average, (int64_t n, float keep_, float weight, const float *x, float *old),
      of(n, old, x, keep_, weight))
#undef BLOCK

static struct qm_sweep of_moment(const struct qm_moment *m, int64_t n, float *x0, const float *x1)
{
    struct qm_sweep a = of(n, x0, x1, m->keep, m->weight);
    a.flag[0] = m->is_lerp;
    a.flag[1] = m->turns;
    a.flag[2] = m->only_finite;
    return a;
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
    struct qm_sweep a = of(n, m, g, 0.0f, 0.0f);
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

static const struct qm_tensor_rule_device there = {&blocks, room, release, get, put, sweep, kept};

/* ---- notes to launches ------------------------------------------------------------------------------ */

/* Memory there for so many bytes, kept from step to step. */
static qm_status fit(const struct qm_device *d, size_t bytes, qm_address *at, size_t *there_is)
{
    if (bytes <= *there_is)
        return QM_OK;
    d->release(*at);
    *at = 0;
    *there_is = 0;
    QM_TRY(d->reserve(2 * bytes, at));
    *there_is = 2 * bytes;
    return QM_OK;
}

/* Operations at[0 .. count] of the table; `wanted` blocks. */
struct launch {
    int at, count;
    int64_t wanted;
};

static int64_t blocks_of(const struct qm_sweep *a)
{
    return (a->n + QM_STEP_THREADS - 1) / QM_STEP_THREADS;
}

/* The next operation of every lane that has one; they fill the table and the kinds. */
static struct launch next_launch(struct qm_launch_queue *all, int at, struct qm_sweep *list,
                                 int *kind, qm_address data)
{
    struct launch now = {at, 0, 0};
    for (int k = 0; k < all->n; k++) {
        struct lane *l = &all->lane[k];
        if (l->next == l->n_notes)
            continue;
        const struct note *note = &l->note[l->next++];
        int i = now.count++;
        kind[i] = (int)note->kind;
        list[i] = note->a;
        if (note->what == NOTE_PUT)
            list[i].x[1] = pointer(data + note->at);
        if (note->what == NOTE_GET)
            list[i].x[0] = pointer(all->got_at + note->at);
        now.wanted += blocks_of(&note->a);
    }
    return now;
}

/* Blocks of each operation of a launch: first[count + 1].  At least one each, and no more in all than keep a
 * device busy. */
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

/* The table there: n operations, their kinds, the blocks of each launch, what is handed over. */
static qm_status launch_table(struct qm_launch_queue *all, int n, int launches,
                              struct launch *launch)
{
    size_t kinds_at = sizeof(struct qm_sweep) * (size_t)n,
           first_at = kinds_at + sizeof(int) * (size_t)n;
    size_t data_at = first_at + sizeof(int) * (size_t)(n + launches);
    size_t bytes = data_at + all->put.used;
    all->table.used = 0;
    unsigned char *table = grow(&all->table, bytes);
    if (!table)
        return qm_fail(QM_NO_MEMORY, "%d operations", n);
    struct qm_sweep *list = (struct qm_sweep *)(void *)table;
    int *kind = (int *)(void *)(table + kinds_at), *first = (int *)(void *)(table + first_at);
    QM_TRY(fit(all->d, bytes, &all->table_at, &all->table_room));
    QM_TRY(fit(all->d, all->got.used, &all->got_at, &all->got_room));
    for (int i = 0, at = 0; i < launches; i++) {
        launch[i] = next_launch(all, at, list + at, kind + at, all->table_at + data_at);
        share_blocks(&launch[i], list + at, first + at + i);
        at += launch[i].count;
    }
    if (all->put.used)
        memcpy(table + data_at, all->put.at, all->put.used);
    QM_TRY(all->d->put(all->table_at, table, bytes));
    for (int i = 0; i < launches; i++) {
        size_t at = (size_t)launch[i].at;
        qm_address list_at = all->table_at + sizeof *list * at;
        qm_address kind_at = all->table_at + kinds_at + sizeof(int) * at;
        qm_address own_at = all->table_at + first_at + sizeof(int) * (at + (size_t)i);
        void *args[] = {&list_at, &own_at, &kind_at, &launch[i].count};
        QM_TRY(all->d->launch(all->module, QM_KERNEL_whole_sweeps,
                              (unsigned)first[at + (size_t)(i + launch[i].count)], 1, args));
    }
    return all->got.used ? all->d->get(all->got.at, all->got_at, all->got.used) : QM_OK;
}

/* As many launches as the lane that noted most has operations. */
static qm_status flush(struct qm_launch_queue *all)
{
    int n = 0, launches = 0;
    for (int k = 0; k < all->n; k++) {
        n += all->lane[k].n_notes;
        launches = all->lane[k].n_notes > launches ? all->lane[k].n_notes : launches;
    }
    struct launch *launch = calloc((size_t)launches + 1, sizeof *launch);
    qm_status st = !launch ? qm_fail(QM_NO_MEMORY, "%d launches", launches)
                   : n > 0 ? launch_table(all, n, launches, launch)
                           : QM_OK;
    for (int k = 0; k < all->n; k++)
        all->lane[k].n_notes = all->lane[k].next = 0;
    all->put.used = 0;
    free(launch);
    return st;
}

/* ---- lanes ------------------------------------------------------------------------------------------ */

static void run_lane(void)
{
    struct lane *l = current;
    qm_status st = l->all->work(l->w);
    keep(st);
    l->is_done = 1;
    swapcontext(&l->context, &l->all->host);
}

static qm_status stack_of(struct lane *l)
{
    if (l->stack)
        return QM_OK;
    char *at = mmap(NULL, GUARD + STACK, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED)
        return qm_fail(QM_NO_MEMORY, "a stack of %d bytes", STACK);
    l->stack = at;
    return mprotect(at, GUARD, PROT_NONE) == 0 ? QM_OK : qm_fail(QM_INTERNAL, "mprotect");
}

static void context_of(struct lane *l)
{
    getcontext(&l->context);
    l->context.uc_stack.ss_sp = l->stack + GUARD;
    l->context.uc_stack.ss_size = STACK;
    l->context.uc_link = NULL;
    makecontext(&l->context, run_lane, 0);
}

/* Each lane as far as it gets, then what they noted, until all are done; they end after a failure too. */
static void run_many(struct qm_launch_queue *all)
{
    for (int left = all->n; left > 0;) {
        all->got.used = 0;
        left = 0;
        for (int k = 0; k < all->n; k++) {
            current = &all->lane[k];
            if (!current->is_done)
                swapcontext(&all->host, &current->context);
            left += !all->lane[k].is_done;
        }
        qm_status st = flush(all);
        for (int k = 0; k < all->n && st != QM_OK; k++)
            all->lane[k].st = st;
    }
}

static qm_status begin_many(struct qm_launch_queue *all, const uint8_t *takes_part)
{
    for (int k = 0; k < all->n; k++) {
        struct lane *l = &all->lane[k];
        l->n_notes = l->next = 0;
        l->is_done = takes_part && !takes_part[k];
        QM_TRY(stack_of(l));
        context_of(l);
    }
    all->put.used = 0;
    return QM_OK;
}

qm_status qm_lanes_run(struct qm_launch_queue *all, void *module,
                       qm_status (*work)(const struct qm_tensor_rule_args *),
                       const struct qm_tensor_rule_args *w, const uint8_t *takes_part)
{
    qm_status st = QM_OK;
    all->module = module;
    all->work = work;
    for (int k = 0; k < all->n; k++) {
        all->lane[k].w = &w[k];
        all->lane[k].st = QM_OK;
    }
    if (all->n > 1)
        st = begin_many(all, takes_part);
    current = all->lane;
    qm_tensor_rule_set_device(&there);
    if (all->n > 1 && st == QM_OK)
        run_many(all);
    else if (st == QM_OK && (!takes_part || takes_part[0]))
        st = work(w);
    qm_tensor_rule_set_device(NULL);
    current = NULL;
    for (int k = 0; k < all->n && st == QM_OK; k++)
        st = all->lane[k].st;
    for (int k = 0; k < all->n && st != QM_OK; k++)
        all->lane[k].kept.is_there = 0;
    return st;
}

void qm_lanes_begin(struct qm_launch_queue *all)
{
    for (int k = 0; k < all->n; k++)
        for (int i = 0; i < ROOMS; i++)
            all->lane[k].room[i].is_used = 0;
}

qm_status qm_lanes_open(const struct qm_device *d, int n, struct qm_launch_queue **out)
{
    struct qm_launch_queue *all = calloc(1, sizeof *all);
    struct lane *lane = calloc((size_t)(n > 0 ? n : 1), sizeof *lane);
    if (!all || !lane) {
        free(all);
        free(lane);
        return qm_fail(QM_NO_MEMORY, "%d tensors", n);
    }
    *all = (struct qm_launch_queue){.d = d, .n = n, .lane = lane};
    for (int k = 0; k < n; k++)
        lane[k].all = all;
    *out = all;
    return QM_OK;
}

void qm_lanes_close(struct qm_launch_queue *all)
{
    if (!all)
        return;
    for (int k = 0; k < all->n; k++) {
        struct lane *l = &all->lane[k];
        for (int i = 0; i < ROOMS; i++)
            all->d->release(l->room[i].at);
        all->d->release(l->kept.at);
        if (l->stack)
            munmap(l->stack, GUARD + STACK);
        free(l->note);
    }
    all->d->release(all->table_at);
    all->d->release(all->got_at);
    free(all->table.at);
    free(all->put.at);
    free(all->got.at);
    free(all->lane);
    free(all);
}
