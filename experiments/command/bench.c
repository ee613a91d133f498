/* bench.c - qualm bench: measures the speed of steps, searches and analyze (experiments/bench). */
#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/bench/bench.h"
#include "experiments/cli/cli.h"
#include "experiments/command/command.h"

static const struct qm_bench_part *const parts[] = {&qm_bench_steps, &qm_bench_searches,
                                                    &qm_bench_analyze, &qm_bench_peers};
enum { PARTS = sizeof parts / sizeof *parts };

struct options {
    struct qm_bench bench;
    int has_millions;          /* --millions was given */
    int only[PARTS], has_only; /* the parts that --only names */
    const char *out;
};

enum { KEY_QUICK = 256, KEY_STEP, KEY_ONLY, KEY_MILLIONS, KEY_ROUNDS, KEY_GIB, KEY_PEERS };

static const struct argp_option options[] = {
    {"quick", KEY_QUICK, NULL, 0,
     "Elementwise steps of 16 M parameters and searches, few rounds; no rules over whole tensors",
     0},
    {"millions", KEY_MILLIONS, "M", 0,
     "Millions of parameters (default 64, or what fits into the memory that is free)", 0},
    {"size", 0, NULL, OPTION_ALIAS | OPTION_HIDDEN, NULL, 0},
    {"rounds", KEY_ROUNDS, "N", 0, "Interleaved rounds (default 9)", 0},
    {"threads", 't', "N", 0,
     "Threads of the many-threads half (default: one for each processor that it may use)", 0},
    {"gib", KEY_GIB, "N", 0, "Size of the file that analyze streams (default 4, in TMPDIR)", 0},
    {"only", KEY_ONLY, "WHAT", 0, "steps, searches, analyze, peers; may be repeated", 0},
    {"step", KEY_STEP, "REGEX", 0,
     "Only steps of variants whose name matches, beside adamw_f32 and the yardsticks", 0},
    {"peers", KEY_PEERS, "COMMAND", 0,
     "Time other projects' optimizers on this processor in turn with ours, by COMMAND: PYTHON "
     "tests/peers/peers.py, of a Python that has torch (make bench-peers)",
     0},
    {"out", 'o', "FILE", 0, "Write an HDF5 file with every raw sample", 0},
    {0},
};

static qm_status read_int(const char *what, const char *text, long low, long high, long *out)
{
    char *end;
    long v = strtol(text, &end, 10);
    if (end == text || *end || v < low || v > high)
        return qm_fail(QM_BAD_ARG, "--%s: expected a whole number from %ld to %ld, got '%s'", what,
                       low, high, text);
    *out = v;
    return QM_OK;
}

static qm_status read_only(struct options *o, const char *arg)
{
    for (int i = 0; i < PARTS; i++)
        if (strcmp(parts[i]->name, arg) == 0) {
            o->only[i] = o->has_only = 1;
            return QM_OK;
        }
    return qm_fail(QM_BAD_ARG, "--only: expected steps, searches, analyze or peers, got '%s'", arg);
}

static int wanted(const struct options *o, const struct qm_bench_part *part)
{
    for (int i = 0; i < PARTS; i++)
        if (o->has_only && parts[i] == part)
            return o->only[i];
    if (part == &qm_bench_peers)
        return o->bench.peers != NULL;
    return part == &qm_bench_steps ||
           (!o->bench.step && !(part == &qm_bench_analyze && o->bench.quick));
}

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
    struct options *o = state->input;
    struct qm_bench *b = &o->bench;
    long v = 0;
    qm_status st = QM_OK;
    switch (key) {
    case KEY_QUICK:
        b->quick = 1;
        b->n = 16 << 20;
        b->rounds = 5;
        break;
    case KEY_GIB:
        st = read_int("gib", arg, 1, 64, &v);
        b->gib = v;
        break;
    case KEY_MILLIONS:
        st = read_int("millions", arg, 1, 4096, &v);
        b->n = (int64_t)v << 20;
        o->has_millions = 1;
        break;
    case KEY_ROUNDS:
        st = read_int("rounds", arg, 1, QM_BENCH_ROUNDS, &v);
        b->rounds = (int)v;
        break;
    case 't':
        st = read_int("threads", arg, 1, 1024, &v);
        b->threads = (int)v;
        break;
    case KEY_PEERS: b->peers = arg; break;
    case KEY_ONLY: st = read_only(o, arg); break;
    case 'o': o->out = arg; break;
    case KEY_STEP: b->step = qm_cli_filter(state, "--step", arg); break;
    case ARGP_KEY_END:
        if (wanted(o, &qm_bench_peers) && !b->peers)
            st = qm_fail(QM_BAD_ARG, "--only peers: by which program? --peers COMMAND says it");
        if (b->peers && !wanted(o, &qm_bench_peers))
            st = qm_fail(QM_BAD_ARG, "--peers: --only leaves peers out");
        if (b->step && !wanted(o, &qm_bench_steps) && !wanted(o, &qm_bench_peers))
            st = qm_fail(QM_BAD_ARG, "--step '%s' chooses steps; --only %s has none", b->step,
                         o->only[1] ? parts[1]->name : parts[2]->name);
        break;
    case ARGP_KEY_ARG: st = qm_fail(QM_BAD_ARG, "bench takes no argument '%s'", arg); break;
    case ARGP_KEY_INIT: state->child_inputs[0] = NULL; break;
    default: return ARGP_ERR_UNKNOWN;
    }
    if (st != QM_OK)
        argp_failure(state, 2, 0, "%s", qm_message());
    return 0;
}

/* Takes fewer parameters where the memory does not hold the default number, and says so. */
static qm_status fit(struct options *o)
{
    struct qm_bench *b = &o->bench;
    int64_t fits = wanted(o, &qm_bench_steps) ? qm_bench_steps_fit(b) : INT64_MAX;
    int64_t asked = b->n >> 20;
    if (asked <= fits)
        return QM_OK;
    if (o->has_millions || fits < 1)
        return qm_fail(QM_BAD_ARG,
                       "steps of %lld million parameters do not fit into the memory that is free: "
                       "expected at most --millions %lld, or fewer variants (--step)",
                       (long long)asked, (long long)fits);
    qm_note("steps of %lld million parameters instead of %lld: more do not fit into the memory "
            "that is free",
            (long long)fits, (long long)asked);
    b->n = fits << 20;
    return QM_OK;
}

/* Measures all parts before it prints any. */
static qm_status bench(const struct options *o, struct qm_store *f, void **data)
{
    const struct qm_bench *b = &o->bench;
    json_t *out = json_object();
    qm_status st = QM_OK;
    for (int i = 0; st == QM_OK && i < PARTS; i++)
        if (wanted(o, parts[i]))
            st = parts[i]->run(b, &data[i]);
    for (int i = 0; st == QM_OK && i < PARTS; i++)
        if (wanted(o, parts[i]))
            json_object_set_new(out, parts[i]->name, parts[i]->print(b, data[i]));
    for (int i = 0; st == QM_OK && f && i < PARTS; i++)
        if (wanted(o, parts[i]))
            st = parts[i]->store(b, data[i], f);
    if (st == QM_OK && f)
        st = qm_store_commit(f);
    else
        qm_store_abort(f);
    if (st == QM_OK && qm_cli.json)
        qm_json_print(out);
    else
        json_decref(out);
    return st;
}

int qm_cmd_bench(int argc, char **argv)
{
    static const struct argp_child children[] = {{&qm_cli_argp, 0, "Common options:", -1}, {0}};
    static const struct argp argp = {
        .options = options,
        .parser = parse_option,
        .children = children,
        .doc =
            "Speed of every variant's step and of every search, as ratios within one run.\v"
            "Examples:\n"
            "  qualm bench --quick\n"
            "  qualm bench --millions 64 --out results/bench.h5\n"
            "  qualm bench --only searches\n"
            "  qualm bench --step '^adamw4_ao$|lion8'\n"
            "  qualm bench --only peers --peers 'python3 tests/peers/peers.py'\n\n"
            "Steps run on one thread and on all, interleaved with two yardsticks: a += s*b in "
            "place, which is this machine's bandwidth, and multiplications and additions in "
            "registers (12 vectors of the widest kind in use). Ratios are medians over rounds of "
            "ratios within a round. speed-up: from one thread to all; scaling: the same over that "
            "of a += s*b, or (regs) over that of the arithmetic in registers, which bounds what "
            "another thread adds to a step that memory does not hold up; on shared machines a "
            "second virtual processor is often not a whole one.\n\n"
            "Rules over whole tensors (sums before the first update) come last, up to 5 rounds "
            "each, fewer where a step takes seconds, of a matrix with 1024 columns; bytes moved "
            "count a read more for every such sum. --step leaves out searches and analyze, but for "
            "what --only names.\n\n"
            "Peers are stepped in turn with ours on one large tensor: their step, our step, on one "
            "thread, then on all; the ratio is their seconds over ours in the same round, above 1 "
            "where ours is faster, with the median, the least and the greatest of the rounds. A "
            "call of theirs has Python's time in it, microseconds. --step chooses peers by their "
            "names, too.\n\n"
            "Exit codes: 0 done, 2 usage, 3 I/O, 4 no step matches.",
    };
    struct options o = {
        .bench = {.n = 64 << 20, .gib = 4, .rounds = 9, .threads = omp_get_max_threads()}};
    int code = qm_cli_parse(&argp, argc, argv, &o);
    if (code)
        return code;
    struct qm_store *f = NULL;
    void *data[PARTS] = {NULL};
    qm_status st = fit(&o);
    if (st == QM_OK && o.out)
        st = qm_store_open(o.out, "bench", argc, argv, &f);
    if (st == QM_OK)
        st = bench(&o, f, data);
    for (int i = 0; i < PARTS; i++)
        free(data[i]);
    return st == QM_OK ? 0 : qm_cli_failed("bench", st);
}
