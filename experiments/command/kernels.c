/* kernels.c - qualm kernels: compiles CUDA kernels of variants, and reports their resources. */
#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/clock.h"
#include "core/cuda/cuda_driver.h"
#include "core/device/step_kernels.h"
#include "core/device/tensor_rule_form.h"
#include "experiments/cli/cli.h"
#include "experiments/command/command.h"
#include "experiments/recipes/recipe_list.h"

enum { KEY_ARCH = 256, KEY_MODE, KEY_SHAPE, KEY_TEXT, ARCHS = 8 };

struct options {
    struct qm_recipes recipes;
    qm_status status;
    int arch[ARCHS], n_archs, text;
    enum qm_mode mode;
    struct qm_shape shape;
};

static const struct argp_option options[] = {
    {"arch", KEY_ARCH, "LIST", 0, "architectures (default sm_80,sm_90,sm_100)", 0},
    {"mode", KEY_MODE, "MODE", 0, "exact (default): the CPU's bits; fast: contracted, approximate",
     0},
    {"shape", KEY_SHAPE, "SHAPE", 0, "of the tensor, which chooses fallbacks (default 1024x1024)",
     0},
    {"text", KEY_TEXT, NULL, 0, "print the part of the source that depends on the recipe", 0},
    {0}};

static void read_archs(struct options *o, char *text, struct argp_state *state)
{
    o->n_archs = 0;
    for (char *word, *rest = text; (word = strsep(&rest, ","));) {
        char *end;
        long n = strncmp(word, "sm_", 3) == 0 ? strtol(word + 3, &end, 10) : 0;
        if (n < 50 || n > 999 || *end || o->n_archs == ARCHS)
            argp_error(state, "--arch: expected up to %d of sm_80, sm_90, ..., got '%s'", ARCHS,
                       word);
        o->arch[o->n_archs++] = (int)n;
    }
}

static error_t option(int key, char *arg, struct argp_state *state)
{
    struct options *o = state->input;
    switch (key) {
    case KEY_ARCH: read_archs(o, arg, state); return 0;
    case KEY_MODE:
        o->mode = strcmp(arg, "fast") == 0 ? QM_MODE_fast : QM_MODE_exact;
        if (strcmp(arg, "fast") != 0 && strcmp(arg, "exact") != 0)
            argp_error(state, "--mode: expected exact or fast, got '%s'", arg);
        return 0;
    case KEY_SHAPE:
        if (qm_shape_parse(arg, &o->shape) != QM_OK)
            argp_error(state, "--shape: %s", qm_message());
        return 0;
    case KEY_TEXT: o->text = 1; return 0;
    case ARGP_KEY_ARG:
        if (o->status == QM_OK)
            o->status = qm_recipes_add(&o->recipes, arg);
        return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

/* Result for a recipe on an architecture: resources of the step's kernel, and the largest
 * of any. */
struct result {
    qm_status st;
    char message[512];
    struct qm_kernel_use step, worst;
    size_t bytes;
    double seconds;
    int from_cache, is_ptx, has_report; /* has_report: of all kernels; PTX has none */
};

/* Adds the resources of the kernels of one form. */
static void take_uses(const struct qm_step_form *f, const struct qm_device_binary *b,
                      struct result *out)
{
    struct qm_kernel_use use = {0};
    for (int k = 0; k < QM_STEP_KERNELS; k++) {
        if (!qm_step_has_kernel(f, (enum qm_step_kernel)k))
            continue;
        if (!b->is_ptx)
            out->has_report &=
                qm_kernel_use(b->log, qm_step_kernel_name((enum qm_step_kernel)k), &use);
        if ((k == QM_KERNEL_step && out->step.registers == 0) || k == QM_KERNEL_whole_sweep)
            out->step = use;
#define X(member) \
    out->worst.member = use.member > out->worst.member ? use.member : out->worst.member;
        X(registers) X(spill_bytes) X(local_bytes) X(shared_bytes)
#undef X
    }
    out->bytes += b->size;
    out->seconds += b->seconds;
    out->from_cache &= b->from_cache;
    out->is_ptx |= b->is_ptx;
}

static void compile_one(const struct qm_recipe *r, const struct options *o, int arch,
                        struct result *out)
{
    struct qm_step_form *f = malloc(sizeof *f);
    int is_there = 1;
    out->st = f ? QM_OK : qm_fail(QM_NO_MEMORY, "a kernel");
    out->from_cache = out->has_report = 1;
    for (int part = 0; out->st == QM_OK && is_there; part++) {
        struct qm_device_binary b = {0};
        out->st = qm_recipe_form(r, part, &o->shape, r->grad, f, &is_there);
        if (out->st == QM_OK && is_there)
            out->st = qm_step_compile(f, o->mode, arch, &b);
        if (out->st == QM_OK && is_there)
            take_uses(f, &b, out);
        qm_device_binary_free(&b);
    }
    if (out->st != QM_OK)
        snprintf(out->message, sizeof out->message, "%s", qm_message());
    free(f);
}

static const char *const resources[] = {"registers", "most_registers", "spill_bytes", "local_bytes",
                                        "shared_bytes"};
enum { RESOURCES = sizeof resources / sizeof *resources };

/* A recipe on an architecture; resources are null where the compiler does not report on all its
 * kernels. */
static json_t *row(const char *name, int arch, const struct result *r)
{
    char sm[16];
    snprintf(sm, sizeof sm, "sm_%d", arch);
    json_t *row = json_pack(
        "{s:s, s:s, s:i, s:i, s:i, s:i, s:i, s:I, s:f, s:b, s:b, s:b}", "variant", name, "arch", sm,
        "registers", r->step.registers, "most_registers", r->worst.registers, "spill_bytes",
        r->worst.spill_bytes, "local_bytes", r->worst.local_bytes, "shared_bytes",
        r->worst.shared_bytes, "binary_bytes", (json_int_t)r->bytes, "seconds", r->seconds,
        "from_cache", r->from_cache, "is_ptx", r->is_ptx, "is_reported", r->has_report);
    for (int i = 0; !r->has_report && i < RESOURCES; i++)
        json_object_set_new(row, resources[i], json_null());
    return row;
}

/* Compiles every recipe for every architecture, in parallel over the cores. */
static void compile_all(const struct options *o, struct result *results)
{
    int jobs = o->recipes.n * o->n_archs;
    struct qm_progress progress;
    qm_progress_start(&progress, "kernels", jobs);
#pragma omp parallel for schedule(dynamic)
    for (int k = 0; k < jobs; k++) {
        compile_one(&o->recipes.recipe[k / o->n_archs], o, o->arch[k % o->n_archs], &results[k]);
#pragma omp critical(kernels_progress)
        qm_progress_add(&progress, 1, results[k].st != QM_OK && results[k].st != QM_SKIPPED);
    }
    qm_progress_end(&progress);
}

/* failed: a kernel spills or uses local memory; unknown: rows of which that is not known. */
struct judged {
    int failed, unknown;
};

/* Appends a row per result, and {variant, reason} per skipped recipe; returns the first error. */
static qm_status collect(const struct options *o, const struct result *results, json_t *rows,
                         json_t *skipped, struct judged *j)
{
    char name[QM_RECIPE_TEXT];
    for (int k = 0; k < o->recipes.n * o->n_archs; k++) {
        const struct result *r = &results[k];
        qm_recipe_print(&o->recipes.recipe[k / o->n_archs], name);
        if (r->st == QM_SKIPPED) {
            if (k % o->n_archs == 0)
                json_array_append_new(
                    skipped, json_pack("{s:s, s:s}", "variant", name, "reason", r->message));
            continue;
        }
        if (r->st != QM_OK)
            return qm_fail(r->st, "%s, sm_%d: %s", name, o->arch[k % o->n_archs], r->message);
        json_array_append_new(rows, row(name, o->arch[k % o->n_archs], r));
        j->failed |= r->worst.spill_bytes || r->worst.local_bytes;
        j->unknown += !r->has_report;
    }
    return QM_OK;
}

static void print_rows(json_t *rows, json_t *skipped)
{
    static const char *const heads[] = {"variant", "arch",   "registers", "most",   "spilled",
                                        "local",   "shared", "bytes",     "seconds"};
    struct qm_table *t = qm_table_open(9, heads);
    json_t *r;
    size_t i;
    json_array_foreach (rows, i, r) {
        qm_table_cell(t, "%s", json_string_value(json_object_get(r, "variant")));
        qm_table_cell(t, "%s", json_string_value(json_object_get(r, "arch")));
        int is_ptx = json_is_true(json_object_get(r, "is_ptx"));
        for (int k = 0; k < RESOURCES; k++) {
            const json_t *x = json_object_get(r, resources[k]);
            qm_table_cell(t,
                          is_ptx            ? "PTX"
                          : json_is_null(x) ? "-"
                                            : "%lld",
                          (long long)json_integer_value(x));
        }
        qm_table_cell(t, "%lld", (long long)json_integer_value(json_object_get(r, "binary_bytes")));
        qm_table_cell(t, json_is_true(json_object_get(r, "from_cache")) ? "cached" : "%.2f",
                      json_real_value(json_object_get(r, "seconds")));
    }
    qm_table_close(t);
    json_array_foreach (skipped, i, r)
        qm_note("skipped: %s: %s", json_string_value(json_object_get(r, "variant")),
                json_string_value(json_object_get(r, "reason")));
}

static void note_result(json_t *rows, double seconds, const struct judged *j)
{
    size_t i, n = json_array_size(rows), n_ptx = 0;
    json_t *r;
    json_array_foreach (rows, i, r)
        n_ptx += json_is_true(json_object_get(r, "is_ptx"));
    qm_note("%zu kernels in %.1f s%s", n, seconds,
            j->failed                  ? ": SPILLS OR LOCAL MEMORY"
            : n_ptx == n || j->unknown ? ""
                                       : ", none spills or uses local memory");
    if (n_ptx > 0)
        qm_note("%zu of them are PTX: this NVRTC does not know the architecture, and the driver "
                "will choose registers, spills and local memory",
                n_ptx);
}

static qm_status print_text(const struct qm_step_form *f)
{
    char *text = qm_step_text(f);
    if (!text)
        return qm_fail(QM_NO_MEMORY, "the source of a kernel");
    fputs(text, qm_out());
    free(text);
    return QM_OK;
}

static qm_status print_texts(const struct options *o)
{
    struct qm_step_form *f = malloc(sizeof *f);
    qm_status st = f ? QM_OK : qm_fail(QM_NO_MEMORY, "a kernel");
    for (int i = 0; i < o->recipes.n && st == QM_OK; i++) {
        const struct qm_recipe *r = &o->recipes.recipe[i];
        int is_there = 1;
        for (int part = 0; st == QM_OK && is_there; part++) {
            st = qm_recipe_form(r, part, &o->shape, r->grad, f, &is_there);
            if (st == QM_OK && is_there)
                st = print_text(f);
        }
    }
    free(f);
    return st;
}

static qm_status compile(const struct options *o, struct judged *j)
{
    QM_TRY(qm_nvrtc_probe());
    struct result *results = calloc((size_t)(o->recipes.n * o->n_archs), sizeof *results);
    if (!results)
        return qm_fail(QM_NO_MEMORY, "results");
    json_t *rows = json_array(), *skipped = json_array();
    double from = qm_seconds();
    compile_all(o, results);
    qm_status st = collect(o, results, rows, skipped, j);
    if (st == QM_OK && json_array_size(rows) == 0)
        st = qm_fail(QM_SKIPPED, "%s", results[0].message);
    if (st == QM_OK && !qm_cli.json)
        print_rows(rows, skipped);
    if (st == QM_OK)
        note_result(rows, qm_seconds() - from, j);
    if (st == QM_OK && qm_cli.json)
        qm_json_print(json_pack("{s:o, s:O, s:O}", "passed",
                                j->unknown && !j->failed ? json_null() : json_boolean(!j->failed),
                                "kernels", rows, "skipped", skipped));
    json_decref(rows);
    json_decref(skipped);
    free(results);
    return st;
}

static int work(void *of)
{
    struct judged j = {0, 0};
    qm_status st = compile(of, &j);
    if (st != QM_OK)
        return qm_cli_failed("kernels", st);
    if (j.unknown)
        fprintf(qm_notes(),
                "qualm kernels: %d of them not judged: NVRTC does not report the registers, spills "
                "and local memory of all their kernels\n",
                j.unknown);
    return qm_exit_code(j.failed ? QM_CHECK_FAILED : j.unknown ? QM_SKIPPED : QM_OK);
}

/* Asks the driver, which is not needed, before the process that compiles is forked: where the
 * driver crashes, NVRTC can still compile. */
static int run(struct options *o)
{
    int version;
    qm_status st = o->status;
    if (st == QM_OK && o->recipes.n == 0)
        st = qm_recipes_add_all(&o->recipes);
    if (st == QM_OK && o->text)
        st = print_texts(o);
    if (st != QM_OK)
        return qm_cli_failed("kernels", st);
    if (o->text)
        return 0;
    double limit; /* else this call and the work would each say that it is wrong */
    if ((st = qm_cuda_limit(&limit)) != QM_OK)
        return qm_cli_failed("kernels", st);
    if (qm_cuda_driver_asked(&version) != QM_OK)
        qm_note("qualm kernels: NVRTC is chosen without the driver: %s", qm_message());
    return qm_cli_apart("kernels", work, o);
}

int qm_cmd_kernels(int argc, char **argv)
{
    static const struct argp_child children[] = {{&qm_cli_argp, 0, "Common options:", -1}, {0}};
    static const struct argp argp = {
        .options = options,
        .parser = option,
        .args_doc = "[VARIANT|RECIPE...]",
        .doc = "Compiles the CUDA kernels of each variant (default: all) with NVRTC, which needs "
               "no GPU, and prints what they use: registers of the step itself and of the largest "
               "kernel, bytes spilled, local and shared memory.  Binaries are cached "
               "(QM_CACHE=FOLDER, or off).  One compilation may take ten times $QM_CUDA_LIMIT (30) "
               "seconds."
               "\vExit codes: 0 all compile, 1 one spills or uses local memory, 2 usage, a recipe "
               "that makes no sense or does not compile, 3 out of memory or internal "
               "error, or NVRTC failed, crashed, left or did not answer, 4 no "
               "such variant, 75 interrupted, 77 no NVRTC, no kernel for any of the recipes, or "
               "NVRTC does not report what they use.\n\n"
               "Examples:\n"
               "  qualm kernels\n"
               "  qualm kernels adamw4_ao --arch sm_90 --mode fast\n"
               "  qualm kernels adamw4_lpmm,grad=bf16,param=bf16/stoch --json\n"
               "  qualm kernels adamw4_ao --text  # the constants that make it this recipe\n",
        .children = children,
    };
    struct options o = {
        .arch = {80, 90, 100}, .n_archs = 3, .mode = QM_MODE_exact, .shape = {2, {1024, 1024}}};
    int code = qm_cli_parse(&argp, argc, argv, &o);
    if (code == 0)
        code = run(&o);
    qm_recipes_free(&o.recipes);
    return code;
}
