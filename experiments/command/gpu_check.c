/* gpu_check.c - qualm gpu-check: checks and measures the CUDA backend on this GPU. */
#include <stdlib.h>
#include <string.h>

#include "core/cuda/nvml.h"
#include "core/device/device_cuda.h"
#include "experiments/check/judge.h"
#include "experiments/cli/cli.h"
#include "experiments/command/command.h"
#include "experiments/gpu/gpu.h"

enum { KEY_ONLY = 256, KEY_OUT, KEY_QUICK, KEY_SIZE, KEY_ROUNDS, KEY_PEERS };

/* clang-format off */
#define PART_LIST(X)                                                                \
    X(exact, "steps of every variant with kernels equal the CPU's bit for bit")      \
    X(check, "qualm check on the GPU, exact and fast")                              \
    X(codes, "every 4-bit search over all 2^32 floats")                             \
    X(speed, "rates, as shares of a copy within the device's memory")
/* clang-format on */

enum part {
#define X(name, text) PART_##name,
    PART_LIST(X)
#undef X
        PARTS
};

static const char *const part_names[] = {
#define X(name, text) #name,
    PART_LIST(X)
#undef X
};

struct options {
    int only[PARTS], has_only, quick, rounds;
    int64_t n;
    const char *folder, *peers;
};

static const struct argp_option options[] = {
    {"only", KEY_ONLY, "PART", 0, "exact, check, codes or speed; may be repeated", 0},
    {"quick", KEY_QUICK, NULL, 0,
     "codes are compared at the ends of runs, one case in ten is checked", 0},
    {"out", KEY_OUT, "FOLDER", 0, "where GPU-DATE.h5 and .md go (default results/gpu)", 0},
    {"size", KEY_SIZE, "M", 0, "parameters of speed, in millions (default: 134, or as many as fit)",
     0},
    {"rounds", KEY_ROUNDS, "N", 0,
     "timed runs of each step, at least (default 30; up to four times as many until they agree)",
     0},
    {"peers", KEY_PEERS, "COMMAND", 0,
     "after speed, time other optimizers at the same sizes by this program, and add ratios (make "
     "bench-gpu: python3 tests/peers/peers.py)",
     0},
    {0}};

static error_t option(int key, char *arg, struct argp_state *state)
{
    struct options *o = state->input;
    switch (key) {
    case KEY_ONLY:
        for (int i = 0; i < PARTS; i++)
            if (strcmp(arg, part_names[i]) == 0) {
                o->only[i] = o->has_only = 1;
                return 0;
            }
        argp_error(state, "--only: expected exact, check, codes or speed, got '%s'", arg);
        return 0;
    case KEY_QUICK: o->quick = 1; return 0;
    case KEY_OUT: o->folder = arg; return 0;
    case KEY_SIZE: o->n = (int64_t)(1e6 * atof(arg)); return 0;
    case KEY_ROUNDS: o->rounds = atoi(arg); return 0;
    case KEY_PEERS: o->peers = arg; return 0;
    case ARGP_KEY_END:
        if (o->peers && o->has_only && !o->only[PART_speed])
            argp_error(state, "--peers needs the part speed");
        if (o->n < 0 || o->rounds < 1)
            argp_error(state, "--size and --rounds: expected positive numbers");
        return 0;
    case ARGP_KEY_ARG: argp_error(state, "unexpected word '%s'", arg); return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

static int wants(const struct options *o, enum part p) { return !o->has_only || o->only[p]; }

/* ---- parts ---------------------------------------------------------------------------------- */

/* Describes the GPU, its driver and NVRTC. */
static qm_status device_of(json_t **out)
{
    const struct qm_cuda *cu;
    void *stream;
    int device, sms = 0, l2 = 0, major = 0, minor = 0, version = 0;
    char name[128] = "", pci[32] = "", nvrtc[1024];
    size_t memory = 0;
    struct qm_gpu_now now = {0};
    QM_TRY(qm_cuda_context(&cu, &stream, &device));
    QM_CU(cu, DeviceGetName, (name, (int)sizeof name, device));
    QM_CU(cu, DeviceGetPCIBusId, (pci, (int)sizeof pci, device));
    QM_CU(cu, DeviceGetAttribute, (&sms, QM_CU_SM_COUNT, device));
    QM_CU(cu, DeviceGetAttribute, (&l2, QM_CU_L2_BYTES, device));
    QM_CU(cu, DeviceGetAttribute, (&major, QM_CU_MAJOR, device));
    QM_CU(cu, DeviceGetAttribute, (&minor, QM_CU_MINOR, device));
    QM_CU(cu, DeviceTotalMem, (&memory, device));
    QM_CU(cu, DriverGetVersion, (&version));
    (void)qm_gpu_now(pci, &now);
    qm_nvrtc_text(nvrtc, sizeof nvrtc);
    *out = json_pack("{s:s, s:i, s:i, s:f, s:i, s:f, s:s, s:i, s:i}", "name", name,
                     "compute_capability", 10 * major + minor, "multiprocessors", sms,
                     "memory_bytes", (double)memory, "l2_bytes", l2, "driver_api",
                     (double)version / 1000.0, "nvrtc", nvrtc, "most_sm_mhz", (int)now.most_sm_mhz,
                     "most_memory_mhz", (int)now.most_memory_mhz);
    return QM_OK;
}

static void count_case(void *progress) { qm_progress_add(progress, 1, 0); }

static qm_status check_one(const struct qm_variant *v, enum qm_mode mode, const struct options *o,
                           struct qm_progress *progress, json_t *rows, int *failed)
{
    struct qm_subject s = {.backend = &qm_backend_cuda, .reorder = qm_step_reorder(mode)};
    struct qm_tally t;
    qm_backend_device_mode(mode);
    QM_TRY(qm_recipe_from(v, &s.recipe));
    qm_status st = qm_judge_begin(&s, &t);
    if (st == QM_OK)
        st = qm_judge_list(&s, 0, o->quick ? 10 : 1, 20240501, &t,
                           (struct qm_judge_watch){.done = count_case, .user = progress});
    qm_backend_device_mode(QM_MODE_exact);
    if (st == QM_SKIPPED)
        return QM_OK;
    QM_TRY(st);
    qm_judge_end(&s, &t);
    *failed += !qm_tally_passed(&t);
    json_array_append_new(
        rows, json_pack("{s:s, s:s, s:b, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:s}", "variant",
                        v->name, "mode", mode == QM_MODE_fast ? "fast" : "exact", "passed",
                        qm_tally_passed(&t), "cases", (json_int_t)t.cases, "judged",
                        (json_int_t)t.judged, "equal", (json_int_t)t.verdict[QM_VERDICT_EQUAL],
                        "within_bound", (json_int_t)t.verdict[QM_VERDICT_WITHIN_BOUND], "boundary",
                        (json_int_t)t.verdict[QM_VERDICT_BOUNDARY], "off_by_one",
                        (json_int_t)t.verdict[QM_VERDICT_OFF_BY_ONE], "wrong",
                        (json_int_t)t.verdict[QM_VERDICT_WRONG], "worst_ratio", t.worst_ratio,
                        "worst_case", t.n_findings ? t.finding[0].text : t.worst_case));
    return QM_OK;
}

static qm_status check_all(const struct options *o, json_t *rows, int *failed)
{
    struct qm_progress progress;
    qm_status st = QM_OK;
    qm_progress_start(&progress, "check", 0);
    for (int i = 0; i < 2 * qm_variant_count() && st == QM_OK; i++) {
        const struct qm_variant *v = qm_variant_at(i / 2);
        const struct qm_rule *rule = qm_rule_find(v->rule);
        if (rule->elementwise || rule->tensor->on_device)
            st = check_one(v, i % 2 ? QM_MODE_fast : QM_MODE_exact, o, &progress, rows, failed);
    }
    qm_progress_end(&progress);
    return st;
}

static qm_status speed(const struct options *o, json_t *all)
{
    struct qm_speed s = {0};
    qm_status st = qm_speed_measure(NULL, o->n, o->rounds, &s);
    json_object_set_new(all, "speed", s.rows ? s.rows : json_array());
    json_object_set_new(all, "tables", s.tables ? s.tables : json_array());
    if (st == QM_OK)
        json_object_set_new(json_object_get(all, "device"), "copy_bytes_per_second",
                            json_real(s.copy));
    if (st == QM_OK && o->peers) {
        json_t *rows = json_array(), *skipped = json_array();
        st = qm_peers_measure(o->peers, &s, rows, skipped);
        json_object_set_new(all, "peers", rows);
        json_object_set_new(all, "peers_skipped", skipped);
    }
    return st;
}

static qm_status run_parts(const struct options *o, json_t *all, int *failed)
{
    json_t *rows = NULL;
    qm_status st = QM_OK;
    if (wants(o, PART_exact)) {
        st = qm_exact_all(&qm_backend_cuda, &rows, failed);
        json_object_set_new(all, "exact", rows);
    }
    if (st == QM_OK && wants(o, PART_check)) {
        json_object_set_new(all, "check", rows = json_array());
        st = check_all(o, rows, failed);
    }
    if (st == QM_OK && wants(o, PART_codes)) {
        st = qm_codes_all(&qm_device_cuda, o->quick, &rows, failed);
        json_object_set_new(all, "codes", rows);
    }
    return st == QM_OK && wants(o, PART_speed) ? speed(o, all) : st;
}

static void summarize(json_t *all)
{
    for (int i = 0; i < PARTS; i++) {
        json_t *rows = json_object_get(all, part_names[i]), *row;
        size_t k, good = 0;
        json_array_foreach(rows, k, row) good +=
            json_is_true(json_object_get(row, "equal")) ||
            json_is_true(json_object_get(row, "passed")) ||
            (json_object_get(row, "wrong") &&
             json_integer_value(json_object_get(row, "wrong")) == 0 &&
             !json_object_get(row, "passed"));
        if (rows && i != PART_speed)
            printf("%-6s %zu of %zu good\n", part_names[i], good, json_array_size(rows));
        else if (rows)
            printf("%-6s %zu measured\n", part_names[i], json_array_size(rows));
    }
}

int qm_cmd_gpu_check(int argc, char **argv)
{
    static const struct argp_child children[] = {{&qm_cli_argp, 0, "Common options:", -1}, {0}};
    static const struct argp argp = {
        .options = options,
        .parser = option,
        .doc =
            "Checks and measures the CUDA backend on this machine's GPU (number $QM_CUDA_DEVICE, "
            "0), and writes GPU-DATE.h5 and a page to read, GPU-DATE.md.  Needs a driver and "
            "NVRTC, no toolkit. Exit code 77 with one line where there is no GPU, 1 where "
            "something is wrong.\n"
            "exact: steps of every variant with kernels equal the CPU's bit for bit; check: the "
            "oracle's verdict, exact and fast; codes: every 4-bit search over all 2^32 floats; "
            "speed: rates."
            "\vExamples:\n"
            "  qualm gpu-check\n"
            "  qualm gpu-check --quick --out /tmp/gpu\n"
            "  qualm gpu-check --only speed --rounds 100\n"
            "  qualm gpu-check --only speed --peers 'python3 tests/peers/peers.py'\n",
        .children = children,
    };
    struct options o = {.rounds = 30, .folder = "results/gpu"};
    char path[4096] = "";
    int failed = 0, code = qm_cli_parse(&argp, argc, argv, &o);
    if (code)
        return code;
    qm_status st = qm_backend_cuda.probe();
    json_t *all = json_object(), *device = NULL;
    if (st == QM_OK)
        st = device_of(&device);
    if (st == QM_OK) {
        json_object_set_new(all, "device", device);
        st = run_parts(&o, all, &failed);
    }
    if (st == QM_OK)
        st = qm_gpu_report(o.folder, all, argc, argv, path, sizeof path);
    if (st == QM_OK && !qm_cli.json) {
        summarize(all);
        printf("written %s\n", path);
    }
    if (st == QM_OK && qm_cli.json)
        qm_json_print(json_incref(all));
    json_decref(all);
    if (st != QM_OK)
        return qm_cli_failed("gpu-check", st);
    return failed ? qm_exit_code(QM_CHECK_FAILED) : 0;
}
