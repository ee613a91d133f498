/* gpu_report.c - The parts and columns of a report, and what a row of it says. */
#include "experiments/gpu/gpu_report.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/gpu/bench.h"

static const char *const names[] = {
#define X(name, title, text) #name,
    QM_GPU_PART_LIST(X)
#undef X
};

const char *qm_gpu_part_name(enum qm_gpu_part part) { return names[part]; }

int qm_gpu_part_find(const char *name)
{
    for (int i = 0; i < QM_GPU_PARTS; i++)
        if (strcmp(name, names[i]) == 0)
            return i;
    return -1;
}

/* ---- columns --------------------------------------------------------------------------------- */

#define STATUS                                                \
    {                                                         \
        "status", 't', 0, "", "ok, or why there is no result" \
    }
#define TOOK                                                           \
    {                                                                  \
        "took", 'f', 0, "s", "wall clock of the row, with compilation" \
    }

/* clang-format off */
static const struct qm_gpu_column exact[] = {
    {"variant", 't', 1, "", "recipe"},
    {"forced", 'b', 1, "1", "without the recipe's fallbacks to float32"},
    {"gradients", 't', 1, "", "class of the gradients: finite, tiny, inf, nan"},
    {"shape", 't', 1, "", "of the tensor"},
    STATUS,
    {"equal", 'b', 0, "1", "all bits are the CPU's; any two NaNs of floats are equal"},
    {"difference", 't', 0, "", "the first difference"},
    TOOK, {0}};
static const struct qm_gpu_column speed[] = {
    {"recipe", 't', 1, "", "recipe"},
    {"mode", 't', 1, "", "exact: the CPU's bits; fast: contracted, approximate division and roots"},
    STATUS,
    {"elements", 'i', 0, "1", "parameters of the tensor"},
    {"bytes_per_parameter", 'f', 0, "B", "what a step must read and write"},
    {"seconds", 'f', 0, "s", "median of a step between events, the L2 cache full of other data"},
    {"least_seconds", 'f', 0, "s", "shortest step"},
    {"rounds", 'i', 0, "1", "timed steps"},
    {"graph_seconds", 'f', 0, "s", "median of the same launches from a CUDA graph"},
    {"rate", 'f', 0, "1/s", "parameters per second"},
    {"share_of_copy", 'f', 0, "1", "bytes per second over those of a copy of as many floats"},
    {"copy_rate", 'f', 0, "B/s", "of that copy, reads and writes"},
    {"registers", 'i', 0, "1", "of a thread"},
    {"spill_bytes", 'i', 0, "B", "spill stores and loads"},
    {"local_bytes", 'i', 0, "B", "local memory of a thread"},
    {"shared_bytes", 'i', 0, "B", "shared memory of a block"},
    {"occupancy", 'f', 0, "1", "resident threads over the most"},
    {"compile_seconds", 'f', 0, "s", "of NVRTC, or of reading the cache"},
    {"from_cache", 'b', 0, "1", "the kernels were compiled before"},
    {"sm_mhz", 'i', 0, "MHz", "clock of the multiprocessors while steps ran"},
    {"memory_mhz", 'i', 0, "MHz", "clock of the memory while steps ran"},
    {"watts", 'i', 0, "W", "power while steps ran"},
    {"wait_seconds", 'f', 0, "s", "lateness of a wait for the GPU, where above 0.1 ms; times are held from below less tightly"},
    TOOK, {0}};
static const struct qm_gpu_column codes[] = {
    {"routine", 't', 1, "", "words of the quantizer that matter to the search"},
    STATUS,
    {"used_by", 't', 0, "", "variants and packages"},
    {"inputs", 'i', 0, "1", "floats that the GPU coded"},
    {"runs", 'i', 0, "1", "runs of equal codes"},
    {"compared", 'i', 0, "1", "floats compared with the defining search"},
    {"wrong", 'i', 0, "1", "floats with another code"},
    {"first_wrong", 't', 0, "", "bits of the first"},
    {"device_seconds", 'f', 0, "s", "of the GPU"},
    TOOK, {0}};
static const struct qm_gpu_column check[] = {
    {"variant", 't', 1, "", "recipe"},
    {"mode", 't', 1, "", "exact or fast"},
    STATUS,
    {"passed", 'b', 0, "1", "no case failed, and numbers were judged"},
    {"cases", 'i', 0, "1", "cases"},
    {"judged", 'i', 0, "1", "numbers judged"},
    {"equal", 'i', 0, "1", "the float32 nearest to the oracle's value, or the exact code"},
    {"within_bound", 'i', 0, "1", "numbers within the derived bound"},
    {"boundary", 'i', 0, "1", "codes that some value within the bound gets"},
    {"off_by_one", 'i', 0, "1", "codes next to an allowed one"},
    {"wrong", 'i', 0, "1", "everything else"},
    {"worst_ratio", 'f', 0, "1", "largest error over its bound"},
    {"worst_case", 't', 0, "", "the case of it, or the first finding"},
    TOOK, {0}};
static const struct qm_gpu_column tables[] = {
    {"recipe", 't', 1, "", "recipe"},
    {"way", 't', 1, "", "how the tables of a launch are handed over"},
    {"mode", 't', 0, "", "exact"},
    STATUS,
    {"tensors", 'i', 0, "1", "tensors of a step"},
    {"elements", 'i', 0, "1", "of each"},
    {"seconds", 'f', 0, "s", "median of a step between events: for small tensors that is the CPU's launching"},
    {"least_seconds", 'f', 0, "s", "shortest step"},
    {"rounds", 'i', 0, "1", "timed steps"},
    {"graph_seconds", 'f', 0, "s", "median of the same launches from a CUDA graph: without the CPU"},
    {"wait_seconds", 'f', 0, "s", "lateness of a wait for the GPU, where above 0.1 ms; times are held from below less tightly"},
    TOOK, {0}};
static const struct qm_gpu_column peers[] = {
    {"peer", 't', 1, "", "package and class"},
    {"version", 't', 0, "", "of the package"},
    {"recipe", 't', 0, "", "that does the same here"},
    {"mode", 't', 0, "", "of our step"},
    STATUS,
    {"tensors", 'i', 0, "1", "tensors of a step"},
    {"elements", 'i', 0, "1", "of each"},
    {"seconds", 'f', 0, "s", "ours"},
    {"peer_seconds", 'f', 0, "s", "theirs"},
    {"ratio", 'f', 0, "1", "ours over theirs"},
    {"program", 't', 0, "", "the command that timed theirs"},
    TOOK, {0}};
/* clang-format on */

const struct qm_gpu_column *qm_gpu_columns(enum qm_gpu_part part)
{
    static const struct qm_gpu_column *const all[] = {
#define X(name, title, text) name,
        QM_GPU_PART_LIST(X)
#undef X
    };
    return all[part];
}

/* ---- rows ------------------------------------------------------------------------------------ */

int qm_gpu_row_is_same(enum qm_gpu_part part, json_t *a, json_t *b)
{
    for (const struct qm_gpu_column *c = qm_gpu_columns(part); c->name; c++)
        if (c->is_key && !json_equal(json_object_get(a, c->name), json_object_get(b, c->name)))
            return 0;
    return 1;
}

const char *qm_gpu_row_flaw(enum qm_gpu_part part, json_t *row)
{
    enum { MOST = 6 };
    static const char *const figures[QM_GPU_PARTS][MOST] = {
        [QM_GPU_speed] = {"elements", "seconds", "least_seconds", "rate", "share_of_copy",
                          "copy_rate"},
        [QM_GPU_tables] = {"tensors", "elements", "seconds", "least_seconds"},
        [QM_GPU_peers] = {"seconds", "peer_seconds", "ratio"}};
    /* of those that a row may lack; wider than those of any GPU */
    static const struct {
        const char *name;
        double least, most;
    } perhaps[] = {{"graph_seconds", 1e-30, 1e30},
                   {"device_seconds", 1e-30, 1e30},
                   {"bytes_per_parameter", 1e-30, 1e6},
                   {"rounds", 1, 1e9},
                   {"registers", 0, 65536},
                   {"spill_bytes", 0, 1 << 20},
                   {"local_bytes", 0, 1 << 20},
                   {"shared_bytes", 0, 1 << 20},
                   {"occupancy", 1e-30, 1},
                   {"compile_seconds", 0, 1e9},
                   {"wait_seconds", QM_BENCH_USUAL_WAIT, QM_BENCH_LATEST},
                   {"sm_mhz", 1, 1e5},
                   {"memory_mhz", 0, 1e5},
                   {"watts", 0, 1e5}};
    for (int i = 0; i < MOST && figures[part][i]; i++) {
        double x = json_number_value(json_object_get(row, figures[part][i]));
        if (!(x > 0.0 && isfinite(x)))
            return figures[part][i];
    }
    for (size_t i = 0; i < sizeof perhaps / sizeof *perhaps; i++) {
        json_t *at = json_object_get(row, perhaps[i].name);
        double x = json_number_value(at);
        if (at && !(x >= perhaps[i].least && x <= perhaps[i].most))
            return perhaps[i].name;
    }
    return NULL;
}

enum qm_gpu_verdict qm_gpu_row_verdict(enum qm_gpu_part part, json_t *row)
{
    const char *status = json_string_value(json_object_get(row, "status"));
    int is_good = 1;
    if (status && strncmp(status, "skipped", 7) == 0)
        return QM_GPU_skipped;
    if (!status || strncmp(status, "ok", 2) != 0 || qm_gpu_row_flaw(part, row))
        return QM_GPU_broken;
    if (part == QM_GPU_exact)
        is_good = json_is_true(json_object_get(row, "equal"));
    else if (part == QM_GPU_check)
        is_good = json_is_true(json_object_get(row, "passed"));
    else if (part == QM_GPU_codes)
        is_good = json_integer_value(json_object_get(row, "wrong")) == 0 &&
                  json_integer_value(json_object_get(row, "compared")) > 0;
    return is_good ? QM_GPU_good : QM_GPU_bad;
}

char *qm_gpu_report_programs(const struct qm_gpu_report *r, const char *was, const char *now)
{
    char *text = NULL;
    size_t size = 0, i;
    json_t *row, *named = json_object();
    FILE *f = open_memstream(&text, &size);
    json_array_foreach (r->rows[QM_GPU_peers], i, row) {
        const char *program = json_string_value(json_object_get(row, "program"));
        if (!f || !program || strcmp(program, now) == 0 || json_object_get(named, program))
            continue;
        fprintf(f, "%s`%s`", json_object_size(named) ? ", " : "", program);
        json_object_set_new(named, program, json_true());
    }
    if (f && i == 0 && *was)
        fprintf(f, "`%s`", was);
    json_decref(named);
    if (f && fclose(f) == 0)
        return text;
    free(text);
    return NULL;
}

void qm_gpu_report_free(struct qm_gpu_report *r)
{
    json_decref(r->device);
    json_decref(r->plan);
    for (int i = 0; i < QM_GPU_PARTS; i++)
        json_decref(r->rows[i]);
    memset(r, 0, sizeof *r);
}
