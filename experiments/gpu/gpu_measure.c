/* gpu_measure.c - The work of a measuring process: one row after the other, for each part. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/cuda/nvml.h"
#include "core/device/cuda_guard.h"
#include "core/device/device_cuda.h"
#include "experiments/check/domain.h"
#include "experiments/check/judge.h"
#include "experiments/cli/cli.h"
#include "experiments/gpu/bench.h"
#include "experiments/gpu/gpu_run.h"

/* DRAWS: cases drawn from the domain beside the core, of each variant and mode. */
enum { STEPS = 3, SEED = 77, DRAWS = 40, QUICK_DRAWS = 8 };

struct context {
    const struct qm_gpu_run *run;
    int index, fd;
    struct qm_gpu_bench *bench; /* opened by the first row that is timed */
    int has_failed;             /* a step of ours beside peers: the process measures no other */
};

/* ---- parts ----------------------------------------------------------------------------------- */

static qm_status exact_row(const struct qm_gpu_task *t, json_t *row)
{
    struct qm_recipe r;
    char what[256];
    QM_TRY(qm_recipe_parse(t->name, &r));
    for (int i = 0; i < r.rule->n_slots && t->forced; i++)
        r.min_numel[i] = r.whole_blocks[i] = 0;
    QM_TRY(qm_exact_compare_of(t->gradients, &qm_backend_cuda, &r, qm_gpu_shape(t->shape), STEPS,
                               SEED, what, sizeof what));
    json_object_set_new(row, "equal", json_boolean(!*what));
    json_object_set_new(row, "difference", qm_json_text(what));
    return QM_OK;
}

static qm_status check_row(const struct qm_gpu_task *t, const struct qm_gpu_options *o, json_t *row)
{
    struct qm_subject s = {.backend = &qm_backend_cuda, .reorder = qm_step_reorder(t->mode)};
    const struct qm_judge_watch watch = {0};
    struct qm_domain domain;
    struct qm_tally *y = calloc(1, sizeof *y);
    if (!y)
        return qm_fail(QM_NO_MEMORY, "a tally");
    qm_backend_device_mode(t->mode);
    qm_status st = qm_recipe_parse(t->name, &s.recipe);
    if (st == QM_OK)
        st = qm_judge_begin(&s, y);
    if (st == QM_OK)
        st = qm_judge_list(&s, 0, o->quick ? 10 : 1, QM_CHECK_SEED, y, watch);
    if (st == QM_OK) {
        qm_domain_of(&s.recipe, s.backend, &domain);
        st =
            qm_judge_drawn(&s, &domain, 0, o->quick ? QUICK_DRAWS : DRAWS, QM_CHECK_SEED, y, watch);
    }
    qm_backend_device_mode(QM_MODE_exact);
    if (st == QM_OK) {
        qm_judge_end(&s, y);
        const struct {
            const char *name;
            int64_t count;
        } counts[] = {{"cases", y->cases},
                      {"judged", y->judged},
                      {"equal", y->verdict[QM_VERDICT_EQUAL]},
                      {"within_bound", y->verdict[QM_VERDICT_WITHIN_BOUND]},
                      {"boundary", y->verdict[QM_VERDICT_BOUNDARY]},
                      {"off_by_one", y->verdict[QM_VERDICT_OFF_BY_ONE]},
                      {"wrong", y->verdict[QM_VERDICT_WRONG]}};
        for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
            json_object_set_new(row, counts[i].name, json_integer((json_int_t)counts[i].count));
        json_object_set_new(row, "passed", json_boolean(qm_tally_passed(y)));
        json_object_set_new(row, "worst_ratio", json_real(y->worst_ratio));
        json_object_set_new(row, "worst_case",
                            qm_json_text(y->n_findings ? y->finding[0].text : y->worst_case));
    }
    free(y);
    return st;
}

static void fill_codes(const struct qm_gpu_task *t, const struct qm_codes_result *c, json_t *row)
{
    char first[16] = "";
    if (c->wrong)
        snprintf(first, sizeof first, "0x%08x", c->first_wrong);
    json_object_set_new(row, "inputs", json_integer((json_int_t)c->inputs));
    json_object_set_new(row, "runs", json_integer((json_int_t)c->runs));
    json_object_set_new(row, "compared", json_integer((json_int_t)c->compared));
    json_object_set_new(row, "wrong", json_integer((json_int_t)c->wrong));
    json_object_set_new(row, "first_wrong", json_string(first));
    json_object_set_new(row, "device_seconds", json_real(c->device_seconds));
    (void)t;
}

static void set_status(json_t *row, const char *status, double from)
{
    json_object_set_new(row, "status", qm_json_text(status));
    json_object_set_new(row, "took", json_real(qm_seconds() - from));
}

/* QM_INTERNAL: no GPU codes floats so fast. */
static qm_status expect_codes_plausible(const struct qm_codes_result *c)
{
    double most = qm_gpu_most_floats(qm_device_cuda.blocks());
    return (double)c->inputs <= most * c->device_seconds
               ? QM_OK
               : qm_fail(QM_INTERNAL,
                         "implausible: %lld floats are coded in %.3g s, and %d multiprocessors "
                         "code no more than %.3g in a second",
                         (long long)c->inputs, c->device_seconds, qm_device_cuda.blocks(), most);
}

/* The ends of the runs are compared first and sent, because all floats take long on few cores. */
static qm_status codes_row(const struct context *c, const struct qm_gpu_task *t, json_t *row)
{
    const uint64_t all = UINT64_C(1) << 32;
    double from = qm_seconds();
    struct qm_codes_result result;
    QM_TRY(qm_codes_compare(&qm_device_cuda, t->q, 0, all, 1, &result));
    QM_TRY(expect_codes_plausible(&result));
    fill_codes(t, &result, row);
    if (c->run->options.quick)
        return QM_OK;
    set_status(row, QM_GPU_PART_OF_CODES "; all floats: not compared yet", from);
    qm_gpu_child_send(c->fd, json_pack("{s:i, s:b, s:[O]}", "task", c->index, "more", 1, "rows",
                                       json_deep_copy(row)));
    QM_TRY(qm_codes_compare(&qm_device_cuda, t->q, 0, all, 0, &result));
    QM_TRY(expect_codes_plausible(&result));
    fill_codes(t, &result, row);
    return QM_OK;
}

static qm_status open_bench(struct context *c)
{
    const struct qm_gpu_options *o = &c->run->options;
    static struct qm_gpu_bench bench;
    double cap = 0.1 * o->limit;
    if (c->bench)
        return QM_OK;
    QM_TRY(qm_gpu_bench_open(o->n, o->rounds, cap < 5.0 ? cap : 5.0, &bench));
    c->bench = &bench;
    return QM_OK;
}

static qm_status time_once(void *of, const char *recipe, int is_many, json_t *rows)
{
    struct context *c = of;
    if (c->has_failed)
        return qm_fail(QM_INTERNAL, "not run, because one of our steps failed before");
    QM_TRY(qm_backend_cuda.probe());
    QM_TRY(open_bench(c));
    for (int fast = 0; fast < (is_many ? 1 : 2); fast++) {
        const char *mode = fast ? "fast" : "exact";
        json_t *row = is_many ? json_pack("{s:s, s:s}", "recipe", recipe, "way", qm_speed_way(0))
                              : json_pack("{s:s, s:s}", "recipe", recipe, "mode", mode);
        json_array_append_new(rows, row);
        QM_TRY(is_many ? qm_speed_table_row(c->bench, recipe, 0, row)
                       : qm_speed_row(c->bench, recipe, fast ? QM_MODE_fast : QM_MODE_exact, row));
    }
    return QM_OK;
}

/* Member `time` of struct qm_peers_ours: rows as those of parts speed, both modes, and tables. */
static qm_status time_ours(void *of, const char *recipe, int is_many, json_t *rows)
{
    struct context *c = of;
    qm_status st = time_once(c, recipe, is_many, rows);
    c->has_failed |= st != QM_OK && st != QM_SKIPPED && st != QM_NO_MATCH;
    return st;
}

static qm_status peers_rows(struct context *c, const struct qm_gpu_task *t, json_t *rows)
{
    const struct qm_gpu_run *run = c->run;
    const struct qm_peers_sizes s = {run->options.n, (int64_t)run->flush_bytes,
                                     run->options.rounds};
    const struct qm_peers_ours ours = {run->report.rows[QM_GPU_speed],
                                       run->report.rows[QM_GPU_tables], time_ours, c};
    return qm_peers_measure(run->options.peers, t->name, &s, &ours, rows);
}

/* ---- the card -------------------------------------------------------------------------------- */

/* "GPU-01234567-89ab-cdef-0123-456789abcdef"; "" where the driver does not tell. */
static qm_status uuid_of(const struct qm_cuda *cu, int device, char *text, size_t size)
{
    unsigned char u[16] = {0};
    size_t used = 0;
    *text = '\0';
    if (!cu->DeviceGetUuid)
        return QM_OK;
    QM_CU(cu, DeviceGetUuid, (u, device));
    used += (size_t)snprintf(text, size, "GPU-");
    for (int i = 0; i < 16 && used < size; i++)
        used += (size_t)snprintf(text + used, size - used, "%s%02x",
                                 i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", u[i]);
    return QM_OK;
}

/* Name and UUID. */
static qm_status name_of(const struct qm_cuda *cu, int device, json_t *about)
{
    enum { LENGTH = 256 };
    char name[LENGTH + 1] = "", uuid[64];
    QM_CU(cu, DeviceGetName, (name, LENGTH, device)); /* which may leave the NUL out */
    QM_TRY(uuid_of(cu, device, uuid, sizeof uuid));
    if (!*name)
        return qm_fail(QM_INTERNAL, "the driver says that the GPU has no name (cuDeviceGetName)");
    json_object_set_new(about, "name", qm_json_text(name));
    json_object_set_new(about, "uuid", json_string(uuid));
    return QM_OK;
}

/* QM_INTERNAL: this process has another card than the one that the report describes. */
static qm_status same_card(const json_t *was)
{
    const struct qm_cuda *cu;
    void *stream;
    int device;
    QM_TRY(qm_cuda_context(&cu, &stream, &device));
    json_t *now = json_object();
    qm_status st = name_of(cu, device, now);
    const char *key;
    json_t *value;
    json_object_foreach (now, key, value) {
        const json_t *of_report = json_object_get(was, key);
        if (st == QM_OK && of_report && !json_equal(of_report, value))
            st = qm_fail(QM_INTERNAL,
                         "this process has another GPU: %s %.120s, the report's is %.120s", key,
                         json_string_value(value), json_string_value(of_report));
    }
    json_decref(now);
    return st;
}

/* ---- rows ------------------------------------------------------------------------------------ */

/* Measures a task; *rows gets its rows but for status and time. */
static qm_status measure(struct context *c, const struct qm_gpu_task *t, json_t *rows)
{
    if (t->part == QM_GPU_peers)
        return peers_rows(c, t, rows);
    json_t *row = json_deep_copy(t->key);
    json_array_append_new(rows, row);
    switch (t->part) {
    case QM_GPU_exact: return exact_row(t, row);
    case QM_GPU_check: return check_row(t, &c->run->options, row);
    case QM_GPU_codes: return codes_row(c, t, row);
    case QM_GPU_speed: QM_TRY(open_bench(c)); return qm_speed_row(c->bench, t->name, t->mode, row);
    default: QM_TRY(open_bench(c)); return qm_speed_table_row(c->bench, t->name, t->way, row);
    }
}

static void drop_figures(enum qm_gpu_part part, json_t *row)
{
    for (const struct qm_gpu_column *c = qm_gpu_columns(part); c->name; c++)
        if (!c->is_key && c->type != 't')
            json_object_del(row, c->name);
}

/* Adds status and time; a task that failed keeps its key alone.  1: the process cannot go on. */
static int conclude(const struct qm_gpu_task *t, qm_status st, int is_gone, double from,
                    json_t *rows)
{
    char status[1200];
    json_t *row;
    size_t i;
    if (st != QM_OK) {
        json_array_clear(rows);
        json_array_append_new(rows, json_deep_copy(t->key));
    }
    snprintf(status, sizeof status, "%s%s",
             st == QM_OK                    ? "ok"
             : st == QM_SKIPPED && !is_gone ? "skipped: "
             : st == QM_NO_MEMORY           ? "out of memory: "
                                            : "failed: ",
             st == QM_OK ? "" : qm_message());
    json_array_foreach (rows, i, row) {
        const char *own = json_string_value(json_object_get(row, "status"));
        char kept[1200];
        snprintf(kept, sizeof kept, "%s", own ? own : status); /* peers have their own */
        const char *flaw = strncmp(kept, "ok", 2) == 0 ? qm_gpu_row_flaw(t->part, row) : NULL;
        if (flaw) {
            snprintf(kept, sizeof kept, "failed: %s is a number that none can be", flaw);
            drop_figures(t->part, row);
        }
        set_status(row, kept, from);
    }
    return st != QM_OK && (st != QM_SKIPPED || is_gone);
}

/* The next task of the list that is to be measured, or its end. */
static int next_of(const struct qm_gpu_work_list *list, int k)
{
    const struct qm_gpu_task *all = list->run->tasks.at;
    while (k < list->end && (!all[k].selected || all[k].tried))
        k++;
    return k;
}

/* Measures a task and cleans up after it; after the last one is_last is 1.  An error of cleaning up
 * may be one of the row's launches, so that the row has failed, as where something was written
 * beside a buffer. */
static qm_status measure_and_clean(struct context *c, const struct qm_gpu_task *t, int is_last,
                                   json_t *rows)
{
    char message[1200];
    qm_status st = measure(c, t, rows);
    int has_used = t->part != QM_GPU_peers || c->bench;
    snprintf(message, sizeof message, "%s", qm_message());
    if (is_last && c->bench)
        qm_gpu_bench_close(c->bench);
    if (is_last)
        c->bench = NULL;
    if (st == QM_OK || st == QM_SKIPPED) {
        qm_status after = has_used ? qm_cuda_guarded() : QM_OK;
        if (after == QM_OK && has_used)
            after = qm_cuda_unload_idle();
        if (after != QM_OK)
            return after == QM_SKIPPED ? QM_INTERNAL : after;
    }
    return st == QM_OK ? QM_OK : qm_fail(st, "%s", message);
}

void qm_gpu_measure(void *work_list, int fd)
{
    const struct qm_gpu_work_list *list = work_list;
    struct context c = {.run = list->run, .fd = fd};
    qm_cuda_guard();
    if (!list->run->nvml_has_failed && list->run->tasks.at[list->first].part == QM_GPU_speed)
        qm_nvml_start(qm_gpu_nvml_limit(list->run));
    for (int k = next_of(list, list->first), after; k < list->end; k = after) {
        const struct qm_gpu_task *t = &list->run->tasks.at[k];
        after = next_of(list, k + 1);
        json_t *rows = json_array();
        double from = qm_seconds();
        c.index = k;
        int is_gone = t->part != QM_GPU_peers && qm_backend_cuda.probe() != QM_OK;
        qm_status st = is_gone                   ? QM_SKIPPED
                       : t->part == QM_GPU_peers ? QM_OK
                                                 : same_card(list->run->report.device);
        if (st == QM_OK)
            st = measure_and_clean(&c, t, after == list->end, rows);
        int is_fatal = conclude(t, st, is_gone, from, rows);
        const char *why = t->part == QM_GPU_speed ? qm_nvml_failed() : NULL;
        qm_gpu_child_send(fd, json_pack("{s:i, s:o, s:b, s:o*}", "task", k, "rows", rows, "fatal",
                                        is_fatal, "nvml", why ? qm_json_text(why) : NULL));
        if (is_fatal)
            return;
    }
}

/* ---- the device ------------------------------------------------------------------------------ */

/* Names of the device, its driver and NVRTC. */
static qm_status names_of(const struct qm_cuda *cu, int device, json_t *about)
{
    enum { LENGTH = 256 };
    char pci[LENGTH + 1] = "", nvrtc[1024], api[32];
    int version = 0;
    QM_TRY(name_of(cu, device, about));
    QM_CU(cu, DeviceGetPCIBusId, (pci, LENGTH, device));
    QM_TRY(qm_cuda_version(cu, &version));
    struct qm_gpu_now now;
    qm_status st = qm_gpu_now(pci, &now); /* which is optional */
    char answers[sizeof now.missing + 16];
    snprintf(answers, sizeof answers, "answers%s%s", *now.missing ? "; " : "", now.missing);
    json_object_set_new(about, "nvml", qm_json_text(st == QM_OK ? answers : qm_message()));
    qm_nvrtc_text(nvrtc, sizeof nvrtc);
    snprintf(api, sizeof api, "%d.%d", version / 1000, version % 1000 / 10);
    json_object_set_new(about, "pci", qm_json_text(pci));
    json_object_set_new(about, "driver_api", json_string(api));
    json_object_set_new(about, "driver", qm_json_text(now.driver));
    json_object_set_new(about, "nvrtc", qm_json_text(nvrtc));
    json_object_set_new(about, "most_sm_mhz", json_integer((json_int_t)now.most_sm_mhz));
    json_object_set_new(about, "most_memory_mhz", json_integer((json_int_t)now.most_memory_mhz));
    return QM_OK;
}

/* Describes the GPU. */
static qm_status device_of(int64_t wanted, json_t **out)
{
    const struct qm_cuda *cu;
    void *stream;
    int device, sms = 0, threads = 0, l2 = 0, major = 0, minor = 0;
    size_t memory = 0, left = 0, total = 0;
    QM_TRY(qm_backend_cuda.probe());
    QM_TRY(qm_cuda_context(&cu, &stream, &device));
    QM_TRY(qm_cuda_attribute(cu, QM_CU_SM_COUNT, device, &sms));
    QM_TRY(qm_cuda_attribute(cu, QM_CU_THREADS_PER_SM, device, &threads));
    QM_TRY(qm_cuda_attribute(cu, QM_CU_L2_BYTES, device, &l2));
    QM_TRY(qm_cuda_attribute(cu, QM_CU_MAJOR, device, &major));
    QM_TRY(qm_cuda_attribute(cu, QM_CU_MINOR, device, &minor));
    QM_TRY(qm_cuda_total_memory(cu, device, &memory));
    QM_TRY(qm_cuda_memory(cu, &left, &total));
    json_t *about =
        json_pack("{s:i, s:i, s:f, s:i}", "compute_capability", 10 * major + minor,
                  "multiprocessors", sms, "memory_bytes", (double)memory, "l2_bytes", l2);
    qm_status st = about ? names_of(cu, device, about) : qm_fail(QM_NO_MEMORY, "a device");
    if (st == QM_OK)
        *out = json_pack("{s:O, s:I, s:I}", "device", about, "elements",
                         (json_int_t)qm_gpu_bench_size(wanted, left), "flush_bytes",
                         (json_int_t)qm_gpu_bench_flush(l2));
    json_decref(about);
    return st;
}

void qm_gpu_measure_device(void *of, int fd)
{
    const struct qm_gpu_run *run = of;
    json_t *out = NULL;
    qm_nvml_start(qm_gpu_nvml_limit(run));
    qm_status st = device_of(run->options.n, &out);
    if (st != QM_OK)
        out = json_pack("{s:o, s:i}", "error", qm_json_text(qm_message()), "status", (int)st);
    qm_gpu_child_send(fd, out);
}
