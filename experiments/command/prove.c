/* prove.c - qualm prove: proves nearest-code routines exhaustively over all floats, and more. */
#include <stdlib.h>
#include <string.h>

#include <omp.h>

#include "core/base/clock.h"
#include "experiments/cli/cli.h"
#include "experiments/command/command.h"
#include "experiments/prove/prove.h"
#include "experiments/prove/report.h"

enum {
    KEY_AGAINST = 256,
    KEY_MAP,
    KEY_ROUND,
    KEY_NAN,
    KEY_RANGE,
    KEY_INTERVALS,
    KEY_LIMIT,
    KEY_SCALES,
    KEY_STEP,
    KEY_PARAM,
    KEY_LONG,
    KEY_BIAS,
    KEY_ALPHA,
    KEY_WORKER,
    KEY_ALL,
    KEY_BACKEND,
    KEY_FMAD
};

enum { WORDS = 64 };

struct options {
    struct qm_prove_options o;
    const char *word[WORDS], *worker;
    int n;
};

static const struct argp_option options[] = {
    {"all", KEY_ALL, NULL, 0, "every registered and published routine (the default)", 0},
    {"map", KEY_MAP, "MAP", 0, "the map of a SEARCH or a KERNEL: nf4, dyn:8s, ...", 0},
    {"round", KEY_ROUND, "WORD", 0,
     "of a SEARCH (default mid); of a KERNEL: where ties must go, by a "
     "nearest word of `qualm list rounds` (default: either way)",
     0},
    {"nan", KEY_NAN, "WORD", 0, "low, top or zero: the code of NaN (KERNEL: default any)", 0},
    {"against", KEY_AGAINST, "MAP", 0, "count what is not nearest of this map's values instead", 0},
    {"range", KEY_RANGE, "LO:HI", 0, "only the floats from LO to HI (default all 2^32)", 0},
    {"intervals", KEY_INTERVALS, "N", 0, "print at most N of each list (default 32)", 0},
    {"backend", KEY_BACKEND, "NAME", 0,
     "who runs a routine: cpu (default), cuda (a GPU), emu (CUDA emulated, at most 2^26 floats)",
     0},
    {"fmad", KEY_FMAD, "BOOL", 0,
     "of a .cu file: contracted (true) or not (false) alone; default: $CUDAFLAGS, else both", 0},
    {"threads", 't', "N", 0, "default: one for each processor that it may use", 0},
    {"time-limit", KEY_LIMIT, "S", 0,
     "seconds that a KERNEL, each form of a .cu file, may take (default 600)", 0},
    {"limit", 0, NULL, OPTION_ALIAS | OPTION_HIDDEN, NULL, 0},
    {"scales", KEY_SCALES, "M,V[;M,V...]", 0,
     "of step: the maxima of the slots' groups (default: ordinary, subnormal, tiny, huge ones)", 0},
    {"step", KEY_STEP, "T", 0, "of step: its number, from 1 (default 10)", 0},
    {"param", KEY_PARAM, "P", 0, "of step: the parameter (default 0.5)", 0},
    {"long", KEY_LONG, NULL, 0, "of step: also where there are more than 2^28 triples", 0},
    {"bias", KEY_BIAS, "D", 0,
     "of stoch: the bias in probability that the sequential test must find (default 0.002)", 0},
    {"alpha", KEY_ALPHA, "A", 0,
     "of stoch: of a false alarm, and of missing that bias (default 1e-6)", 0},
    {"kernel-worker", KEY_WORKER, "JOB", OPTION_HIDDEN, NULL, 0},
    {0}};

static void read_range(struct qm_prove_options *o, const char *arg, struct argp_state *state)
{
    char *colon, *end;
    float low = strtof(arg, &colon), high = *colon == ':' ? strtof(colon + 1, &end) : 0.0f;
    if (colon == arg || *colon != ':' || end == colon + 1 || *end || !(low <= high))
        argp_error(state, "--range: expected LO:HI with LO <= HI, got '%s'", arg);
    o->from = qm_ordered(low);
    o->to = qm_ordered(high);
}

static double number(const char *arg, const char *what, struct argp_state *state)
{
    char *end;
    double x = strtod(arg, &end);
    if (end == arg || *end || !(fabs(x) <= 3.4e38))
        argp_error(state, "--%s: expected a number, got '%s'", what, arg);
    return x;
}

static double positive(const char *arg, const char *what, struct argp_state *state)
{
    double x = number(arg, what, state);
    if (!(x > 0.0 && x <= 1e9))
        argp_error(state, "--%s: expected a number above 0, got '%s'", what, arg);
    return x;
}

static error_t option(int key, char *arg, struct argp_state *state)
{
    struct options *all = state->input;
    struct qm_prove_options *o = &all->o;
    switch (key) {
    case KEY_ALL: arg = (char *)"all"; /* fall through */
    case ARGP_KEY_ARG:
        if (all->n == WORDS)
            argp_error(state, "more than %d arguments", WORDS);
        all->word[all->n++] = arg;
        return 0;
    case KEY_MAP: o->map = arg; return 0;
    case KEY_ROUND: o->round = arg; return 0;
    case KEY_NAN:
        if (strcmp(arg, "low") != 0 && strcmp(arg, "top") != 0 && strcmp(arg, "zero") != 0)
            argp_error(state, "--nan: expected low, top or zero, got '%s'", arg);
        o->nan = arg;
        return 0;
    case KEY_BACKEND: o->backend = arg; return 0;
    case KEY_FMAD:
        if (strcmp(arg, "true") != 0 && strcmp(arg, "false") != 0)
            argp_error(state, "--fmad: expected true or false, got '%s'", arg);
        o->fmad = arg;
        return 0;
    case KEY_AGAINST: o->against = arg; return 0;
    case KEY_RANGE: read_range(o, arg, state); return 0;
    case KEY_INTERVALS:
        o->intervals = qm_cli_whole(state, "intervals", arg, 1, 1000000000);
        return 0;
    case 't': omp_set_num_threads(qm_cli_whole(state, "threads", arg, 1, 4096)); return 0;
    case KEY_LIMIT: o->limit = positive(arg, "time-limit", state); return 0;
    case KEY_SCALES: o->scales = arg; return 0;
    case KEY_STEP: o->t = qm_cli_whole(state, "step", arg, 1, 1000000000); return 0;
    case KEY_PARAM: o->param = number(arg, "param", state); return 0;
    case KEY_BIAS:
        if (!((o->bias = positive(arg, "bias", state)) < 0.25))
            argp_error(state, "--bias: expected a number below 0.25, got '%s'", arg);
        return 0;
    case KEY_WORKER: all->worker = arg; return 0;
    case KEY_ALPHA:
        if (!((o->alpha = positive(arg, "alpha", state)) < 0.5))
            argp_error(state, "--alpha: expected a number below 0.5, got '%s'", arg);
        return 0;
    case KEY_LONG: o->is_long = 1; return 0;
    case ARGP_KEY_END:
        if (all->n == 0 && (o->map || o->round || o->nan))
            argp_error(state, "--map, --round and --nan belong to a SEARCH or KERNEL, of which "
                              "none is named");
        return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

/* ---- a routine of this program -------------------------------------------------------------- */

static void advance(void *of, int64_t floats) { qm_progress_add(of, floats, 0); }

/* Proves one routine of this program over the floats from o->from to o->to.  *out gets an object
 * of what was found, which the caller releases (json_decref); *holds 0: the routine violates one
 * of its claims, which is no error.  QM_BAD_ARG: the round is not meant to be nearest, or
 * backend emu is to take more than 2^26 floats; QM_CHECK_FAILED: a code decodes to another value
 * than its definition's; QM_SKIPPED: there is no GPU; QM_NO_MEMORY. */
static qm_status prove_routine(const struct qm_routine_name *name, const struct qm_prove_options *o,
                               json_t **out, int *holds)
{
    struct qm_routine *r = calloc(1, sizeof *r);
    struct qm_record record = {0};
    struct qm_progress progress;
    struct qm_walk walk = {.from = o->from, .to = o->to, .progress = advance, .of = &progress};
    if (!r)
        return qm_fail(QM_NO_MEMORY, "a routine");
    int on_device = o->backend && strcmp(o->backend, "cpu") != 0;
    qm_status st = qm_routine_open(r, &name->q, o->against);
    if (st == QM_OK && on_device)
        st = qm_routine_on_device(r, o->backend, o->from, o->to);
    qm_progress_start(&progress, name->name, o->to - o->from + 1);
    if (st == QM_OK)
        st = qm_routine_walk(r, &walk, &record);
    qm_progress_end(&progress);
    if (st == QM_OK) {
        *holds = qm_proof_holds(r, &record);
        *out = qm_proof_json(r, name->name, &record, qm_seconds() - progress.started, o->intervals);
        if (on_device)
            json_object_set_new(*out, "device_seconds", json_real(r->runs.seconds));
        if (*name->used_by)
            json_object_set_new(*out, "used_by", json_string(name->used_by));
        if (o->against)
            json_object_set_new(*out, "against", json_string(o->against));
    }
    qm_record_close(&record);
    qm_routine_close(r);
    free(r);
    return st;
}

static qm_status prove_names(const char *word, const struct qm_prove_options *o, json_t *all,
                             int *failed)
{
    struct qm_routine_names names = {NULL, 0};
    qm_status st = qm_routine_names_add(&names, word, o);
    for (int i = 0; i < names.n && st == QM_OK; i++) {
        json_t *one = NULL;
        int holds = 0;
        st = prove_routine(&names.at[i], o, &one, &holds);
        if (st == QM_OK)
            json_array_append_new(all, one);
        *failed |= !holds;
    }
    qm_routine_names_free(&names);
    return st;
}

/* ---- dispatch ------------------------------------------------------------------------------- */

static int ends_in(const char *word, const char *end)
{
    size_t n = strlen(word), m = strlen(end);
    return n > m && strcmp(word + n - m, end) == 0;
}

static qm_status dispatch(const char *word, const struct qm_prove_options *o, json_t *all,
                          int *failed)
{
    int is_other = strncmp(word, "step:", 5) == 0 || strncmp(word, "stoch:", 6) == 0 ||
                   ends_in(word, ".c") || ends_in(word, ".so");
    if (is_other && o->backend && strcmp(o->backend, "cpu") != 0)
        return qm_fail(QM_BAD_ARG, "%s: backend %s runs routines of this program and .cu files",
                       word, o->backend);
    if (strncmp(word, "step:", 5) == 0)
        return qm_prove_step(word + 5, o, all, failed);
    if (strncmp(word, "stoch:", 6) == 0)
        return qm_prove_stoch(word + 6, o, all, failed);
    if (!is_other && !ends_in(word, ".cu"))
        return prove_names(word, o, all, failed);
    return qm_prove_kernel(word, o, all, failed);
}

/* Adds the proofs of a word, each with the backend that it ran on. */
static qm_status prove_word(const char *word, const struct qm_prove_options *o, json_t *all,
                            int *failed)
{
    const char *backend = o->backend ? o->backend : ends_in(word, ".cu") ? "emu" : "cpu";
    size_t i = json_array_size(all);
    qm_status st = dispatch(word, o, all, failed);
    for (; i < json_array_size(all); i++)
        json_object_set_new(json_array_get(all, i), "backend", json_string(backend));
    return st;
}

/* Prints proofs of one kind, which is recognised by the keys of the first one; clears the array. */
static void print_kind(json_t *some)
{
    if (json_array_size(some) == 1)
        qm_report(json_incref(json_array_get(some, 0)));
    else if (json_object_get(json_array_get(some, 0), "special")) {
        qm_proof_table(some);
        qm_print("backend %s\n",
                 json_string_value(json_object_get(json_array_get(some, 0), "backend")));
    } else if (json_array_size(some) > 1)
        qm_report(json_incref(some));
    json_array_clear(some);
}

/* Whether two proofs in turn are of one kind: with equally many keys, on one backend, and no form
 * of a .cu file, which is printed by itself. */
static int is_one_kind(const json_t *a, const json_t *b)
{
    return json_object_size(a) == json_object_size(b) &&
           json_equal(json_object_get(a, "backend"), json_object_get(b, "backend")) &&
           !json_object_get(a, "form") && !json_object_get(b, "form");
}

/* Prints all proofs, an empty line between those of two kinds. */
static void print_all(json_t *all, int failed)
{
    json_t *some = json_array(), *o;
    size_t i;
    if (qm_cli.json)
        qm_json_print(json_pack("{s:b, s:O}", "passed", !failed, "proofs", all));
    json_array_foreach (all, i, o) {
        json_t *last = json_array_get(some, json_array_size(some) - 1);
        if (last && !qm_cli.json && !is_one_kind(last, o)) {
            print_kind(some);
            qm_print("\n");
        }
        json_array_append(some, o);
    }
    if (!qm_cli.json)
        print_kind(some);
    json_decref(some);
}

static const char doc[] =
    "Runs a routine over all 2^32 floats and compares each code with exact decisions: the nearest "
    "value by mid-points in double, what the routine's own words and published thresholds say, "
    "and the edges that the engine encodes by.  Prints the floats whose code is not nearest as "
    "intervals, ties, and what NaN, Inf, zeros and numbers out of range get.  Codes are numbered "
    "by value, from 0 for the lowest."
    "\v"
    "What is run is the search itself (core/quant/search_loops.h), never the edges derived from "
    "it.  A SEARCH (scan, bisect, ...) without --map, a VARIANT or --all stands for the routines "
    "that are registered with it, each once.\n\n"
    "step:RECIPE enumerates a whole element update: every code of every slot x every bfloat16 "
    "gradient, for given maxima of the groups, against the oracle's derived bounds; fresh state "
    "and parameter within them, codes EQUAL or BOUNDARY.  4-bit states take 2^24 triples for each "
    "pair of maxima, 8-bit ones 2^32 (--long).\n\n"
    "stoch:bf16 (f16, e4m3, or a QUANTIZER with round stoch or dither) counts exactly how many of "
    "all draws send a number up, and runs a sequential test over the draws in use: it names the "
    "bias that it would have found, with what power.\n\n"
    "Exit code 1: a routine differs from its own definition (round word, thresholds; inside its "
    "range and for NaN), from the engine's edges inside its range, or returns what is no code.  A "
    "published routine that is as defined but not nearest is listed and passes.  A KERNEL of "
    "yours must be nearest inside its range, and as --round and --nan say; it is a .c or .so file "
    "that exports\n"
    "  void qm_nearest(const float *y, long n, unsigned char *code);\n"
    "(core/abi/kernel_nearest.h), compiled with $CC or cc and $CFLAGS, and run in a process of "
    "its own, so that a crash, a hang and a write outside the buffer are verdicts.  A .cu file "
    "holds a kernel qm_cuda_nearest (core/abi/kernel_cuda.h), and is proved contracted and "
    "uncontracted: a proof for each form, or one where the compiler contracts nothing (--fmad "
    "chooses one form).\n\n"
    "With --backend cuda the work is done in a process of its own, on GPU number $QM_CUDA_DEVICE "
    "(0): a driver or NVRTC that crashes, leaves, or takes longer than $QM_CUDA_LIMIT seconds (30; "
    "a "
    "compilation ten times as long) for one call, is one line and exit code 3.\n\n"
    "Exit codes: 0 all proofs hold, 1 one does not, 2 usage, a kernel does not compile or "
    "$QM_CUDA_DEVICE is no number, 3 a file cannot be read, or the driver failed, 4 no such "
    "routine, variant or backend, 75 interrupted, 77 the backend is not there.\n\n"
    "Examples:\n"
    "  qualm prove --all\n"
    "  qualm prove nf4:4s/ladder/mid\n"
    "  qualm prove argmin --map nf4\n"
    "  # my.c and my.cu are files of yours\n"
    "  qualm prove my.c --map nf4 --round mid --nan low\n"
    "  qualm prove nf4a8:4s/ladder/mid --against nf4 --intervals 100\n"
    "  qualm prove step:adamw4_ao --scales 1e-3,1e-7\n"
    "  qualm prove stoch:bf16 stoch:nf4:4s/scan/stoch\n"
    "  qualm prove ema4_nf4a8 --range -0.9:-0.7 --json\n"
    "  qualm prove my.cu --map nf4 --range 0.04:0.05\n"
    "  qualm prove --all --backend cuda\n"
    "  qualm prove nf4:4s/ladder/mid --backend emu --range 0.78:0.781\n";

static int prove_all(void *of)
{
    struct options *all = of;
    int failed = 0;
    qm_status st = QM_OK;
    json_t *proofs = json_array();
    for (int i = 0; i < all->n && st == QM_OK; i++)
        st = prove_word(all->word[i], &all->o, proofs, &failed);
    if (st == QM_OK)
        print_all(proofs, failed);
    json_decref(proofs);
    if (st != QM_OK)
        return qm_cli_failed("prove", st);
    return failed ? qm_exit_code(QM_CHECK_FAILED) : 0;
}

int qm_cmd_prove(int argc, char **argv)
{
    static const struct argp_child children[] = {{&qm_cli_argp, 0, "Common options:", -1}, {0}};
    static const struct argp argp = {
        .options = options,
        .parser = option,
        .args_doc = "[SEARCH|QUANTIZER|VARIANT|KERNEL|step:RECIPE|stoch:WHAT...]",
        .doc = doc,
        .children = children};
    struct options all = {.o = {.from = QM_KEY_FIRST,
                                .to = QM_KEY_LAST,
                                .intervals = 32,
                                .limit = 600.0,
                                .t = 10,
                                .param = 0.5,
                                .bias = 2e-3,
                                .alpha = 1e-6}};
    int code = qm_cli_parse(&argp, argc, argv, &all);
    if (code != 0)
        return code;
    if (all.worker)
        return qm_prove_worker(all.worker);
    if (all.n == 0)
        all.word[all.n++] = "all";
    int is_apart = all.o.backend && strcmp(all.o.backend, "cuda") == 0;
    return is_apart ? qm_cli_apart("prove", prove_all, &all) : prove_all(&all);
}
