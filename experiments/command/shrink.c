/* shrink.c - qualm shrink: reduces a failing check to the smallest input, as a C program. */
#include <stdlib.h>
#include <string.h>

#include "experiments/cli/cli.h"
#include "experiments/command/command.h"
#include "experiments/kernel/reduce.h"

enum { KEY_KERNEL = 256, KEY_AS, KEY_CASE, KEY_SHAPE, KEY_STEPS, KEY_TIME, KEY_LIMIT_MEMORY };

static const struct argp_option options[] = {
    {"kernel", KEY_KERNEL, "FILE", 0, "a .c, .cu or .so file that fails `qualm check --kernel`", 0},
    {"as", KEY_AS, "VARIANT", 0, "what it claims to be (default: what its QM_KERNEL says)", 0},
    {"case", KEY_CASE, "ID", 0, "start from this case (default: the first of the list that fails)",
     0},
    {"shape", KEY_SHAPE, "SHAPE", 0, "start from the first failing class at this shape (1000003)",
     0},
    {"steps", KEY_STEPS, "N", 0, "steps of the case (default 3)", 0},
    {"seed", 's', "N", 0, "of parameters and gradients (default " QM_CHECK_SEED_TEXT ")", 0},
    {"time", KEY_TIME, "S", 0,
     "stop after S seconds, of which the search for a failing case is a part (default 10)", 0},
    {"memory-limit", KEY_LIMIT_MEMORY, "MIB", 0, "resident memory of a step (default 2048)", 0},
    {"limit-memory", 0, NULL, OPTION_ALIAS | OPTION_HIDDEN, NULL, 0},
    {"out", 'o', "FILE", 0, "the program to write (default NAME-repro.c)", 0},
    {0}};

struct options {
    struct qm_reduction r;
    const char *variant;
};

static double number_of(struct argp_state *state, const char *option, const char *arg, double most)
{
    char *end;
    double x = strtod(arg, &end);
    if (end == arg || *end || !(x > 0.0 && x <= most))
        argp_error(state, "--%s: expected a positive number up to %g, got '%s'", option, most, arg);
    return x;
}

static error_t option(int key, char *arg, struct argp_state *state)
{
    struct options *o = state->input;
    switch (key) {
    case KEY_KERNEL: o->r.file = arg; return 0;
    case KEY_AS: o->r.as = arg; return 0;
    case KEY_CASE: o->r.one_case = arg; return 0;
    case KEY_SHAPE: o->r.shape = arg; return 0;
    case KEY_STEPS: o->r.steps = (int)number_of(state, "steps", arg, 1000.0); return 0;
    case KEY_TIME: o->r.seconds = number_of(state, "time", arg, 1e9); return 0;
    case KEY_LIMIT_MEMORY: o->r.mebibytes = number_of(state, "memory-limit", arg, 1e9); return 0;
    case 'o': o->r.out = arg; return 0;
    case 's': o->r.seed = qm_cli_number(state, "seed", arg, 0, UINT64_MAX); return 0;
    case ARGP_KEY_ARG:
        if (o->variant)
            argp_error(state, "one variant at a time, got '%s' too", arg);
        o->variant = arg;
        return 0;
    case ARGP_KEY_END:
        if (!o->r.file == !o->variant)
            argp_error(state, "expected a variant, or --kernel FILE");
        if (o->variant && (o->r.as || o->r.out))
            argp_error(state, "--as and --out need --kernel FILE");
        if (o->r.one_case && o->r.shape)
            argp_error(state, "--case names a shape already");
        return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

int qm_cmd_shrink(int argc, char **argv)
{
    static const struct argp_child children[] = {{&qm_cli_argp, 0, "Common options:", -1}, {0}};
    static const struct argp argp = {
        .options = options,
        .parser = option,
        .args_doc = "[VARIANT|RECIPE]",
        .doc =
            "Reduces a failing check to the smallest input that still fails in the same way: "
            "fewer steps, blocks, rows, columns and elements, numbers that are 0, settings of 0, "
            "1/2 or 1, floats of few bits.  Of a kernel it writes one C file that holds the "
            "kernel, this input and what is expected; it needs nothing else, prints expected and "
            "got and exits 1 until the kernel in it is mended.  Of a variant it prints the input."
            "\vExamples:\n"
            "  # mine.c is a kernel of yours that fails\n"
            "  qualm shrink --kernel mine.c\n"
            "  qualm shrink --kernel mine.c --case 4097/planted/wd/t1/forced --seed 7 \\\n"
            "    --out bug.c\n"
            "  qualm shrink --kernel mine.so --as adamw8_bnb --shape 1000003 --steps 20\n"
            "  qualm shrink adamw4_ao --case 129/exact/exact/t1/forced\n"
            "Exit code 0: it is shrunk; 4: nothing fails.",
        .children = children,
    };
    static struct options o;
    char out[256];
    o = (struct options){
        .r = {
            .seed = QM_CHECK_SEED, .steps = QM_CHECK_STEPS, .seconds = 10.0, .mebibytes = 2048.0}};
    int code = qm_cli_parse(&argp, argc, argv, &o);
    if (code != 0)
        return code;
    if (o.r.file && !o.r.out) {
        qm_reduction_name(o.r.file, out, sizeof out);
        o.r.out = out;
    }
    qm_status st = o.variant ? qm_recipe_parse(o.variant, &o.r.recipe) : QM_OK;
    if (st == QM_OK)
        st = qm_reduce(&o.r);
    if (st == QM_OK)
        qm_reduction_report(&o.r);
    qm_reduction_free(&o.r);
    return st == QM_OK ? 0 : qm_cli_failed("shrink", st);
}
