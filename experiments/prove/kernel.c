/* kernel.c - Proves a user's routine in a worker process, which may crash or hang. */
#include <omp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/clock.h"
#include "core/base/name.h"
#include "core/cuda/cuda_driver.h"
#include "experiments/cli/cli.h"
#include "experiments/kernel/files.h"
#include "experiments/prove/child.h"
#include "experiments/prove/prove.h"
#include "experiments/prove/routine.h"

enum { REQUEST_BITS = 26, MEBIBYTES = 8192, MOST_INTERVALS = 4096 };

static volatile int stop;

static void on_stop(int sig)
{
    (void)sig;
    stop = 1;
}

static double at(int64_t key) { return (double)qm_unordered((int32_t)key); }

/* The verdict on a process that gave no answer about floats from .. to. */
static json_t *failure(enum qm_end how, const char *why, int64_t from, int64_t to)
{
    char verdict[512], low[40], high[40];
    int is_alive = how == QM_END_answered; /* `why` is the worker's own answer */
    snprintf(verdict, sizeof verdict, "WRONG: %s%s%.400s", is_alive ? "" : qm_end_name(how),
             is_alive ? "" : ": ", why);
    snprintf(low, sizeof low, "%.9g", at(from));
    snprintf(high, sizeof high, "%.9g", at(to));
    return json_pack("{s:s, s:s, s:b, s:s, s:s}", "routine", "", "verdict", verdict, "holds", 0,
                     "while_from", low, "while_to", high);
}

/* Makes one request; *out: the answer, or, where *has_ended is 1, the verdict on the
 * ended process. */
static qm_status ask(struct qm_child *c, json_t *request, double until, int64_t from, int64_t to,
                     json_t **out, int *has_ended)
{
    struct qm_child_limits limits = {until - qm_seconds(), MEBIBYTES};
    char why[512];
    int is_loaded = request != NULL;
    enum qm_end how = qm_child_ask(c, request, &limits, out, why, sizeof why);
    *has_ended = how != QM_END_answered;
    if (how == QM_END_stopped)
        return qm_fail(QM_INTERRUPTED, "interrupted");
    /* On the GPU the process holds the driver alone: a kernel there can only not return. */
    if (*has_ended && c->is_on_gpu && (how != QM_END_hung || !is_loaded))
        return qm_fail(QM_INTERNAL, "the driver failed, and nothing is known of the kernel: %s",
                       *why ? why : qm_end_name(how));
    if (*has_ended) {
        *out = failure(how, why, from, to);
        return QM_OK;
    }
    const char *error = json_string_value(json_object_get(*out, "error"));
    if (!error)
        return QM_OK;
    qm_status st = (qm_status)json_integer_value(json_object_get(*out, "status"));
    qm_fail(st, "%s", error);
    json_decref(*out);
    return st;
}

/* Requests all floats in ranges of 2^26, then the report. */
static qm_status walk(struct qm_child *c, const struct qm_prove_options *o, double until,
                      struct qm_progress *progress, json_t **out)
{
    json_t *reply;
    int has_ended;
    for (int64_t from = o->from, to; from <= o->to; from = to + 1) {
        to = ((from >> REQUEST_BITS) + 1) * (1 << REQUEST_BITS) - 1;
        to = to < o->to ? to : o->to;
        json_t *request = json_pack("{s:s, s:I, s:I, s:I}", "do", "walk", "case", (json_int_t)from,
                                    "from", (json_int_t)from, "to", (json_int_t)to);
        QM_TRY(ask(c, request, until, from, to, &reply, &has_ended));
        const char *broken = json_string_value(json_object_get(reply, "broken"));
        if (has_ended || broken)
            *out = has_ended ? reply : failure(QM_END_answered, broken, from, to);
        if (!has_ended)
            json_decref(reply);
        if (has_ended || broken)
            return QM_OK;
        qm_progress_add(progress, to - from + 1, 0);
    }
    json_t *request = json_pack("{s:s, s:s}", "do", "report", "case", "report");
    QM_TRY(ask(c, request, until, o->from, o->to, &reply, &has_ended));
    *out = has_ended ? reply : json_incref(json_object_get(reply, "proof"));
    if (!has_ended)
        json_decref(reply);
    return QM_OK;
}

static qm_status run_worker(const char *object, const char *path, const struct qm_prove_options *o,
                            json_t **out)
{
    int most = o->intervals < MOST_INTERVALS ? o->intervals : MOST_INTERVALS, has_ended = 0;
    double until = qm_seconds() + o->limit;
    struct qm_progress progress;
    struct qm_child c;
    json_t *reply = NULL;
    json_t *job =
        json_pack("{s:s, s:s, s:s?, s:s?, s:i, s:i}", "object", object, "map", o->map, "round",
                  o->round, "nan", o->nan, "intervals", most, "threads", omp_get_max_threads());
    qm_status st = qm_child_start(&c, "prove", job, &stop);
    const char *dot = strrchr(object, '.');
    c.is_on_gpu = dot && strcmp(dot, ".cubin") == 0;
    qm_progress_start(&progress, path, o->to - o->from + 1);
    if (st == QM_OK)
        st = ask(&c, NULL, until, o->from, o->to, &reply, &has_ended);
    if (st == QM_OK && has_ended)
        *out = reply;
    else if (st == QM_OK) {
        json_decref(reply);
        st = walk(&c, o, until, &progress, out);
    }
    qm_progress_end(&progress);
    qm_child_stop(&c);
    json_decref(job);
    return st;
}

/* Proves one form of a kernel; of other files than .cu there is one.  *is_same 1: it is that of
 * QM_FMAD_true, and contraction changed nothing in it. */
static qm_status prove_form(const char *path, int on_gpu, const struct qm_prove_options *o,
                            json_t **out, int *is_same)
{
    struct qm_kernel_options files = {.file = path, .on_gpu = on_gpu};
    struct qm_kernel_files f;
    qm_status st = qm_kernel_files_open(&files, &f);
    *is_same = st == QM_OK && !on_gpu && qm_fmad_used() == QM_FMAD_true && !*f.lines;
    if (st == QM_OK)
        st = run_worker(f.object, path, o, out);
    qm_kernel_files_close(&f);
    return st;
}

/* Appends the proof of a routine; form: which of a .cu file, or NULL. */
static void add(json_t *all, int *failed, const char *path, const char *form, json_t *proof)
{
    json_t *one = json_pack("{s:s, s:s*}", "routine", path, "form", form);
    json_object_del(proof, "routine");
    json_object_update(one, proof);
    json_decref(proof);
    *failed |= !json_is_true(json_object_get(one, "holds"));
    json_array_append_new(all, one);
}

/* Proves each form of a .cu file that is asked for; one where both are the same code. */
static qm_status prove_forms(const char *path, int on_gpu, const struct qm_prove_options *o,
                             json_t *all, int *failed)
{
    int has[QM_FMADS], is_same;
    const char *left_out = "";
    QM_TRY(qm_fmad_asked(o->fmad, has));
    int has_both = has[QM_FMAD_true] && has[QM_FMAD_false];
    if (has_both && !on_gpu && !qm_fmad_emulated()) {
        has[QM_FMAD_true] = 0;
        left_out = "; the other wants a processor with fused multiply-add";
    }
    for (int i = 0; i < QM_FMADS; i++) {
        json_t *proof = NULL;
        char form[128];
        if (!has[i])
            continue;
        qm_fmad_use((enum qm_fmad)i);
        QM_TRY(prove_form(path, on_gpu, o, &proof, &is_same));
        int is_both = has_both && i == QM_FMAD_true && is_same;
        snprintf(form, sizeof form, "%s%s",
                 is_both ? "the compiler contracts nothing" : qm_fmad_text((enum qm_fmad)i),
                 left_out);
        add(all, failed, path, form, proof);
        if (is_both)
            break;
    }
    return QM_OK;
}

qm_status qm_prove_kernel(const char *path, const struct qm_prove_options *o, json_t *all,
                          int *failed)
{
    int on_gpu = o->backend && strcmp(o->backend, "cuda") == 0;
    static const char *const backends[] = {"cpu", "cuda", "emu"};
    int is_same;
    json_t *proof = NULL;
    struct qm_cuda_gpu gpu;
    struct sigaction act = {.sa_handler = on_stop}, before[2];
    if (qm_kernel_is_cuda(path) && o->backend && strcmp(o->backend, "cpu") == 0)
        return qm_fail(QM_BAD_ARG, "%s: backend cpu runs no CUDA (.cu) sources", path);
    if (o->backend && qm_name_find(o->backend, backends, 3) < 0)
        return qm_name_unknown("backend", o->backend, backends, 3);
    if (!o->map)
        return qm_fail(QM_BAD_ARG, "a kernel wants --map: which values its codes mean");
    if (qm_kernel_is_cuda(path) && !on_gpu && o->to - o->from >= INT64_C(1) << QM_PROVE_EMU_BITS)
        return qm_fail(QM_BAD_ARG, "%s: backend emu takes at most 2^%d floats; say --range", path,
                       QM_PROVE_EMU_BITS);
    if (on_gpu)
        QM_TRY(qm_cuda_gpu_asked(&gpu)); /* the worker process opens it */
    sigaction(SIGINT, &act, &before[0]);
    sigaction(SIGTERM, &act, &before[1]);
    qm_status st = qm_kernel_is_cuda(path) ? prove_forms(path, on_gpu, o, all, failed)
                                           : prove_form(path, on_gpu, o, &proof, &is_same);
    sigaction(SIGINT, &before[0], NULL);
    sigaction(SIGTERM, &before[1], NULL);
    if (proof)
        add(all, failed, path, NULL, proof);
    return st;
}
