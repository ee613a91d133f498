/* cmd_prove.c - qualm prove: nearest-code routines over all floats, and other exhaustive proofs. */
#include <stdlib.h>
#include <string.h>

#include <omp.h>

#include "experiments/cli.h"
#include "experiments/command.h"
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
    KEY_CFLAGS,
    KEY_RESULT,
    KEY_PULSE,
    KEY_FROM,
    KEY_TO,
    KEY_ALL
};

enum { WORDS = 64 };

struct options {
    struct qm_prove_options o;
    const char *word[WORDS];
    int n;
};

static const struct argp_option options[] = {
    {"all", KEY_ALL, NULL, 0, "every registered and published routine (the default)", 0},
    {"map", KEY_MAP, "MAP", 0, "the map of a SEARCH or a KERNEL: nf4, dyn:8s, ...", 0},
    {"round", KEY_ROUND, "WORD", 0,
     "of a SEARCH (default mid); of a KERNEL: where ties must go, near "
     "(up), mid (down), even or away (default: either way)",
     0},
    {"nan", KEY_NAN, "WORD", 0, "low, top or zero: the code of NaN (KERNEL: default any)", 0},
    {"against", KEY_AGAINST, "MAP", 0, "count what is not nearest of this map's values instead", 0},
    {"range", KEY_RANGE, "LO:HI", 0, "only the floats from LO to HI (default all 2^32)", 0},
    {"intervals", KEY_INTERVALS, "N", 0, "print at most N of each list (default 32)", 0},
    {"threads", 't', "N", 0, "default: all cores", 0},
    {"limit", KEY_LIMIT, "S", 0, "seconds that a KERNEL may take (default 600)", 0},
    {"cflags", KEY_CFLAGS, "WORDS", 0, "for a KERNEL's source, after -O2 -ffp-contract=off", 0},
    {"result", KEY_RESULT, "FILE", OPTION_HIDDEN, NULL, 0},
    {"pulse", KEY_PULSE, "FILE", OPTION_HIDDEN, NULL, 0},
    {"from", KEY_FROM, "KEY", OPTION_HIDDEN, NULL, 0},
    {"to", KEY_TO, "KEY", OPTION_HIDDEN, NULL, 0},
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

static double positive(const char *arg, const char *what, struct argp_state *state)
{
    char *end;
    double x = strtod(arg, &end);
    if (end == arg || *end || !(x > 0.0 && x <= 1e9))
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
    case KEY_AGAINST: o->against = arg; return 0;
    case KEY_RANGE: read_range(o, arg, state); return 0;
    case KEY_INTERVALS: o->intervals = (int)positive(arg, "intervals", state); return 0;
    case 't': omp_set_num_threads((int)positive(arg, "threads", state)); return 0;
    case KEY_LIMIT: o->limit = positive(arg, "limit", state); return 0;
    case KEY_CFLAGS: o->cflags = arg; return 0;
    case KEY_RESULT: o->result = arg; return 0;
    case KEY_PULSE: o->pulse = arg; return 0;
    case KEY_FROM: o->from = strtoll(arg, NULL, 10); return 0;
    case KEY_TO: o->to = strtoll(arg, NULL, 10); return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

/* ---- a routine of this program ----------------------------------------------------------------- */

static void advance(void *of, int64_t floats) { qm_progress_add(of, floats, 0); }

qm_status qm_prove_routine(const struct qm_routine_name *name, const struct qm_prove_options *o,
                           json_t **out, int *holds)
{
    struct qm_routine *r = calloc(1, sizeof *r);
    struct qm_record record = {0};
    struct qm_progress progress;
    struct qm_walk walk = {.from = o->from, .to = o->to, .progress = advance, .of = &progress};
    if (!r)
        return qm_fail(QM_NO_MEMORY, "a routine");
    qm_status st = qm_routine_open(r, &name->q, o->against);
    qm_progress_start(&progress, name->name, o->to - o->from + 1);
    if (st == QM_OK)
        st = qm_routine_walk(r, &walk, &record);
    qm_progress_end(&progress);
    if (st == QM_OK) {
        *holds = qm_proof_holds(r, &record);
        *out = qm_proof_json(r, name->name, &record, qm_seconds() - progress.started, o->intervals);
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
        st = qm_prove_routine(&names.at[i], o, &one, &holds);
        if (st == QM_OK)
            json_array_append_new(all, one);
        *failed |= !holds;
    }
    qm_routine_names_free(&names);
    return st;
}

/* ---- dispatch ------------------------------------------------------------------------------------ */

static int ends_in(const char *word, const char *end)
{
    size_t n = strlen(word), m = strlen(end);
    return n > m && strcmp(word + n - m, end) == 0;
}

static qm_status prove_word(const char *word, const struct qm_prove_options *o, json_t *all,
                            int *failed)
{
    json_t *one = NULL;
    int holds = 0;
    if (!ends_in(word, ".c") && !ends_in(word, ".so"))
        return prove_names(word, o, all, failed);
    QM_TRY(qm_prove_kernel(word, o, &one, &holds));
    json_array_append_new(all, one);
    *failed |= !holds;
    return QM_OK;
}

static void print_all(json_t *all, int failed)
{
    if (qm_cli.json) {
        qm_json_print(json_pack("{s:b, s:O}", "passed", !failed, "proofs", all));
        return;
    }
    if (json_array_size(all) == 1)
        qm_report(json_incref(json_array_get(all, 0)));
    else
        qm_proof_table(all);
}

static const char doc[] =
    "Runs a routine over all 2^32 floats and compares each code with exact decisions: the nearest "
    "value by mid-points in double, what the routine's own words and published thresholds say, and "
    "the edges that the engine encodes by.  Prints the floats whose code is not nearest as "
    "intervals, "
    "ties, and what NaN, Inf, zeros and numbers out of range get.  Codes are numbered by value, "
    "from "
    "0 for the lowest."
    "\v"
    "What is run is the search itself (core/quant/searches.h), never the edges derived from it.  A "
    "SEARCH (scan, bisect, ...) without --map, a VARIANT or --all stands for the routines that are "
    "registered with it, each once.\n\n"
    "Exit code 1: a routine differs from its own definition (round word, thresholds; inside its "
    "range "
    "and for NaN), from the engine's edges inside its range, or returns what is no code.  A "
    "published "
    "routine that is as defined but not nearest is listed and passes.  A KERNEL of yours must be "
    "nearest inside its range, and as --round and --nan say; it is a .c or .so file that exports\n"
    "  void qm_nearest(const float *y, long n, unsigned char *code);\n"
    "(core/kernel_nearest.h), compiled with $CC or cc and run in a process of its own, so that a "
    "crash, "
    "a hang and a write outside the buffer are verdicts.\n\n"
    "Examples:\n"
    "  qualm prove --all\n"
    "  qualm prove nf4:4s/ladder/mid\n"
    "  qualm prove argmin --map nf4\n"
    "  qualm prove my.c --map nf4 --round mid --nan low\n"
    "  qualm prove nf4a8:4s/ladder/mid --against nf4 --intervals 100\n"
    "  qualm prove ema4_nf4a8 --range -0.9:-0.7 --json\n";

int qm_cmd_prove(int argc, char **argv)
{
    static const struct argp_child children[] = {{&qm_cli_argp, 0, "Common options:", -1}, {0}};
    static const struct argp argp = {.options = options,
                                     .parser = option,
                                     .args_doc = "[SEARCH|QUANTIZER|VARIANT|KERNEL...]",
                                     .doc = doc,
                                     .children = children};
    struct options all = {
        .o = {.from = QM_KEY_FIRST, .to = QM_KEY_LAST, .intervals = 32, .limit = 600.0}};
    int failed = 0, code = qm_cli_parse(&argp, argc, argv, &all);
    if (code != 0)
        return code;
    if (all.o.result && all.o.pulse && all.n == 1) { /* a kernel's own process */
        qm_status st = qm_prove_kernel_child(all.word[0], &all.o);
        return st == QM_OK ? 0 : qm_cli_failed("prove", st);
    }
    if (all.n == 0)
        all.word[all.n++] = "all";
    json_t *proofs = json_array();
    qm_status st = QM_OK;
    for (int i = 0; i < all.n && st == QM_OK; i++)
        st = prove_word(all.word[i], &all.o, proofs, &failed);
    if (st == QM_OK)
        print_all(proofs, failed);
    json_decref(proofs);
    if (st != QM_OK)
        return qm_cli_failed("prove", st);
    return failed ? qm_exit_code(QM_VERDICT) : 0;
}
