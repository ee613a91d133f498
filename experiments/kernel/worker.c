/* worker.c - Loads a kernel and judges the cases that the parent asks for. */
#include "experiments/kernel/worker.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "core/user_kernel/backend_file.h"
#include "core/user_kernel/emu_large_index.h"
#include "experiments/cli/cli.h"
#include "experiments/kernel/kernel_compare.h"
#include "experiments/kernel/peer_rules.h"
#include "experiments/kernel/wire.h"

enum { STACK = 65536, ROUNDS_LEAST = 5, ROUNDS_MOST = 101 };

static struct qm_kernel_file *kernel, *old_kernel;

/* ---- signals --------------------------------------------------------------------------------- */

static void append(char *text, size_t size, const char *more)
{
    size_t used = strlen(text);
    for (; *more && used + 1 < size; more++)
        text[used++] = *more;
    text[used] = '\0';
}

/* Tells the parent which buffer the address belongs to; the exit status tells it the signal. */
static void on_fault(int sig, siginfo_t *info, void *context)
{
    char line[320] = "{\"where\":\"", where[200];
    (void)context;
    qm_kernel_file_where(info->si_addr, where, sizeof where);
    append(line, sizeof line, sig == SIGSEGV || sig == SIGBUS ? where : "");
    append(line, sizeof line, "\",\"old\":");
    append(line, sizeof line,
           old_kernel && qm_kernel_file_running() == old_kernel ? "true" : "false");
    append(line, sizeof line, "}\n");
    ssize_t written = write(QM_WORKER_FD, line, strlen(line));
    (void)written;
    signal(sig, SIG_DFL);
    raise(sig);
}

static void catch_signals(void)
{
    static const int signals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
    static char room[STACK];
    stack_t stack = {.ss_sp = room, .ss_size = sizeof room};
    struct sigaction act = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    sigaltstack(&stack, NULL); /* the kernel may have exhausted its own stack */
    sigemptyset(&act.sa_mask);
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
        sigaction(signals[i], &act, NULL);
}

/* ---- requests -------------------------------------------------------------------------------- */

static json_t *against_counts(int slots)
{
    const struct qm_kernel_compare_count *all = qm_kernel_compare_counts();
    json_t *out = json_array();
    for (int i = 0; i <= slots; i++) {
        const struct qm_kernel_compare_count *c = &all[i < slots ? i : QM_MAX_SLOTS];
        json_array_append_new(out, json_pack("[I, I, I, I, I, I, I, f, f]", (json_int_t)c->n,
                                             (json_int_t)c->codes, (json_int_t)c->scales,
                                             (json_int_t)c->values, (json_int_t)c->steps,
                                             (json_int_t)c->better, (json_int_t)c->worse,
                                             c->error_new, c->error_old));
    }
    return out;
}

static json_t *failed(qm_status st)
{
    return json_pack("{s:s, s:i}", "error", qm_message(), "status", (int)st);
}

/* The text of the last failure from a word on, without the case before it, which the parent
 * knows. */
static const char *message_from(const char *word)
{
    const char *text = strstr(qm_message(), word);
    return text ? text : qm_message();
}

/* Adds a finding that the backend itself made. */
static void add_verdict(struct qm_tally *t, const char *name)
{
    struct qm_finding *f = &t->finding[t->n_findings++];
    t->cases++;
    t->failed_cases++;
    *f = (struct qm_finding){.severity = 1};
    snprintf(f->name, sizeof f->name, "%s", name);
    snprintf(f->text, sizeof f->text, "%s", message_from("step "));
}

static json_t *judge(struct qm_subject *s, const json_t *request)
{
    const char *name = json_string_value(json_object_get(request, "case"));
    int against = json_is_true(json_object_get(request, "against"));
    int peer_rules = json_is_true(json_object_get(request, "peer_rules"));
    static struct qm_tally t;
    struct qm_case c;
    memset(&t, 0, sizeof t);
    qm_status st = qm_case_parse(name, &c);
    if (st != QM_OK)
        return failed(st);
    s->backend = against      ? &qm_backend_compare
                 : peer_rules ? &qm_backend_peer_rules
                              : &qm_backend_file;
    qm_kernel_file_use(kernel);
    qm_kernel_compare_begin();
    qm_peer_rules_begin(kernel);
    st = qm_judge_case(s, &c, qm_wire_seed_of(json_object_get(request, "seed")), &t);
    if (st == QM_CHECK_FAILED)
        add_verdict(&t, name);
    else if (st != QM_OK && st != QM_SKIPPED)
        return failed(st);
    json_t *reply = json_pack("{s:s, s:o}", "case", name, "tally", qm_wire_tally(&t));
    if (st == QM_SKIPPED)
        json_object_set_new(reply, "refused", json_string(message_from("the kernel ")));
    if (against)
        json_object_set_new(reply, "against", against_counts(s->recipe.rule->n_slots));
    if (peer_rules) {
        struct qm_peer_rules_result w = qm_peer_rules_result();
        json_object_set_new(reply, "digest", qm_wire_seed(w.digest));
        json_object_set_new(reply, "killed", json_integer((json_int_t)w.killed));
    }
    return reply;
}

/* Judges the case with indices beyond 32 bits. */
static json_t *large_index(struct qm_subject *s, const json_t *request)
{
    const char *name = json_string_value(json_object_get(request, "case"));
    static struct qm_tally t;
    memset(&t, 0, sizeof t);
    qm_status st = qm_emu_far(kernel, &s->recipe);
    if (st == QM_CHECK_FAILED)
        add_verdict(&t, name);
    else if (st == QM_SKIPPED)
        t.skipped = 1;
    else if (st != QM_OK)
        return failed(st);
    else
        t.cases = 1;
    return json_pack("{s:s, s:o}", "case", name, "tally", qm_wire_tally(&t));
}

/* Makes one step and appends the seconds that the kernel took. */
static qm_status timed_step(void *plan, const struct qm_shape *shape, float *p, float *g, int64_t t,
                            json_t *to)
{
    struct qm_tensor tp = {p, QM_DTYPE_f32, *shape}, tg = {g, QM_DTYPE_f32, *shape};
    QM_TRY(qm_backend_file.step(plan, &tp, &tg, t, 1));
    if (t > 1) /* the first step touches fresh pages */
        json_array_append_new(to, json_real(qm_plan_file_seconds(plan)));
    return QM_OK;
}

static qm_status time_both(void *const plan[2], const struct qm_shape *shape, double limit,
                           json_t *const to[2])
{
    int64_t n = qm_shape_numel(shape);
    float *p = malloc(2 * sizeof *p * (size_t)n), *g = p + n;
    double from = qm_seconds();
    qm_status st = p ? QM_OK : qm_fail(QM_NO_MEMORY, "%lld elements", (long long)n);
    for (int64_t i = 0; i < n && p; i++) {
        p[i] = (float)(i % 1009 - 504) / 504.0f;
        g[i] = (float)(i % 757 - 378) / 37800.0f;
    }
    for (int k = 1; st == QM_OK && k <= ROUNDS_MOST + 1; k++) {
        if (k > ROUNDS_LEAST + 1 && qm_seconds() - from > limit)
            break;
        for (int i = 0; i < 2 && st == QM_OK; i++) /* alternates which kernel is first */
            st = timed_step(plan[(i + k) % 2], shape, p, g, k, to[(i + k) % 2]);
    }
    free(p);
    return st;
}

static json_t *speed(const struct qm_subject *s, const json_t *request)
{
    struct qm_shape shape = {1, {json_integer_value(json_object_get(request, "n"))}};
    double limit = json_number_value(json_object_get(request, "limit"));
    void *plan[2] = {NULL, NULL};
    json_t *to[2] = {json_array(), json_array()};
    qm_kernel_file_use(kernel);
    qm_status st = qm_backend_file.open(&s->recipe, &shape, 1, &plan[0]);
    qm_kernel_file_use(old_kernel);
    if (st == QM_OK)
        st = qm_backend_file.open(&s->recipe, &shape, 1, &plan[1]);
    if (st == QM_OK)
        st = time_both(plan, &shape, limit, to);
    qm_backend_file.close(plan[0]);
    qm_backend_file.close(plan[1]);
    json_t *reply = json_pack("{s:o, s:o}", "new", to[0], "old", to[1]);
    if (st == QM_OK)
        return reply;
    json_decref(reply);
    return failed(st);
}

/* ---- the process ----------------------------------------------------------------------------- */

static qm_status load(const json_t *job, struct qm_subject *s)
{
    const char *object = json_string_value(json_object_get(job, "object"));
    const char *as = json_string_value(json_object_get(job, "as"));
    const char *old = json_string_value(json_object_get(job, "against"));
    QM_TRY(qm_kernel_file_open(object, &kernel));
    if (!as)
        as = qm_kernel_file_as(kernel);
    if (!as)
        return qm_fail(QM_BAD_ARG, "the kernel does not say which variant it is; give --as");
    QM_TRY(qm_recipe_parse(as, &s->recipe));
    if (old) {
        qm_status st = qm_kernel_file_open(old, &old_kernel);
        if (st != QM_OK)
            return qm_fail_in(st, "--against");
        qm_kernel_compare_use(kernel, old_kernel);
    }
    qm_kernel_file_use(kernel);
    return QM_OK;
}

static json_t *ready(const json_t *job, struct qm_subject *s)
{
    static struct qm_tally t;
    char text[QM_RECIPE_TEXT];
    s->backend = &qm_backend_file;
    s->reorder = qm_reorder_any();
    qm_status st = load(job, s);
    if (st == QM_OK)
        st = qm_judge_begin(s, &t);
    if (st != QM_OK)
        return failed(st);
    return json_pack("{s:s, s:o}", "as", qm_recipe_print(&s->recipe, text), "tally",
                     qm_wire_tally(&t));
}

int qm_worker_main(const char *text)
{
    static struct qm_subject s;
    json_t *job = json_loads(text, 0, NULL), *request;
    const struct rlimit none = {0, 0};
    setrlimit(RLIMIT_CORE, &none);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    close_range(3, QM_WORKER_FD - 1, 0); /* the kernel gets no descriptors of the user's shell */
    close_range(QM_WORKER_FD + 1, ~0u, 0);
    fcntl(QM_WORKER_FD, F_SETFD, FD_CLOEXEC); /* not for processes that the kernel starts */
    FILE *in = fdopen(dup(QM_WORKER_FD), "r");
    if (!job || !in)
        return qm_exit_code(QM_INTERNAL);
    fcntl(fileno(in), F_SETFD, FD_CLOEXEC);
    catch_signals();
    int is_up = qm_wire_write(QM_WORKER_FD, ready(job, &s));
    while (is_up && (request = json_loadf(in, JSON_DISABLE_EOF_CHECK, NULL))) {
        const char *what = json_string_value(json_object_get(request, "do"));
        json_t *reply = what && strcmp(what, "speed") == 0         ? speed(&s, request)
                        : what && strcmp(what, "large_index") == 0 ? large_index(&s, request)
                                                                   : judge(&s, request);
        is_up = qm_wire_write(QM_WORKER_FD, reply);
        json_decref(request);
    }
    _exit(0); /* the kernel's destructors do not run */
}
