/* verify.c - qualm verify: judges a program's answers in a golden file. */
#include "experiments/cli/cli.h"
#include "experiments/command/command.h"
#include "experiments/vectors/vectors.h"

static error_t option(int key, char *arg, struct argp_state *state)
{
    const char **path = state->input;
    switch (key) {
    case ARGP_KEY_ARG:
        if (*path)
            argp_error(state, "unexpected word '%s'", arg);
        *path = arg;
        return 0;
    case ARGP_KEY_NO_ARGS: argp_error(state, "FILE is missing; \"-\" is stdin"); return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

static json_t *failures_of(const struct qm_vectors_verdict *v)
{
    const struct qm_tally *t = &v->tally;
    json_t *out = json_array();
    for (int i = 0; i < t->n_findings; i++)
        json_array_append_new(
            out, json_pack("{s:s, s:s}", "step", t->finding[i].name, "what", t->finding[i].text));
    if (v->missing)
        json_array_append_new(out, json_pack("{s:s, s:o}", "step", v->first_missing, "what",
                                             json_sprintf("not there; %lld steps are not answered",
                                                          (long long)v->missing)));
    return out;
}

/* What the answered cases exercise of the domain that `qualm check` draws from. */
static json_t *domain_of(const struct qm_vectors_verdict *v)
{
    struct qm_recipe r;
    struct qm_domain d;
    if (qm_recipe_parse(v->recipe, &r) != QM_OK)
        return json_null();
    qm_domain_of(&r, &qm_backend_cpu, &d);
    return qm_coverage_json(&v->domain, &d);
}

static json_t *report(const char *path, const struct qm_vectors_verdict *v)
{
    const struct qm_tally *t = &v->tally;
    int met, of;
    char gaps[QM_COVER_GAPS];
    qm_cover_pairs(&v->cover, &met, &of);
    return json_pack(
        "{s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:o, s:s, s:i, s:i, s:s, "
        "s:s, s:o, s:o, s:o}",
        "file", path, "recipe", v->recipe, "steps", (json_int_t)v->steps, "steps_answered",
        (json_int_t)(v->steps - v->missing), "judged", (json_int_t)t->judged, "equal",
        (json_int_t)t->verdict[QM_VERDICT_EQUAL], "within_bound",
        (json_int_t)t->verdict[QM_VERDICT_WITHIN_BOUND], "boundary",
        (json_int_t)t->verdict[QM_VERDICT_BOUNDARY], "off_by_one",
        (json_int_t)t->verdict[QM_VERDICT_OFF_BY_ONE], "wrong",
        (json_int_t)t->verdict[QM_VERDICT_WRONG], "failed_steps", (json_int_t)t->failed_cases,
        "may_overflow", (json_int_t)t->unbounded, "worst_ratio", qm_json_number(t->worst_ratio),
        "worst_step", *t->worst_case ? t->worst_case : "-", "pairs", met, "of_pairs", of,
        "not_exercised", qm_cover_gaps(&v->cover, gaps), "verdict",
        qm_vectors_passed(v) ? "passed" : "FAILED", "coverage",
        qm_cover_report(&v->cover, !qm_cli.json), "domain", domain_of(v), "failures",
        failures_of(v));
}

int qm_cmd_verify(int argc, char **argv)
{
    static const struct argp_child children[] = {{&qm_cli_argp, 0, "Common options:", -1}, {0}};
    static const struct argp argp = {
        NULL,
        option,
        "FILE",
        "Judges the answers CASE/out/STEP/... that a program has added to a file of `qualm gen`, "
        "as `qualm check` judges the variants: parameters, scales and codes by the range that the "
        "rounding errors of the rule's own order allow, not by equality with our results.  Each "
        "step is judged from the program's own state before it.  The verdict names what the "
        "answered cases did not exercise.  Exit code 1 when something is out of bounds or a step "
        "is not answered, 3 when an array or text of `golden` that `gen` wrote, but for `want`, "
        "was "
        "changed, deleted, renamed or added (attributes of HDF5, such as units, are not looked "
        "at), or an "
        "answer has another type or size, 4 when no step is answered.  The format: "
        "results/GOLDEN.md."
        "\vExamples:\n"
        "  # golden.h5 holds answers of yours beside what `qualm gen` wrote\n"
        "  qualm verify golden.h5\n"
        "  qualm gen adamw4_ao --out - | your-kernel | qualm verify -\n"
        "  qualm verify answers.npz --json\n",
        children,
        NULL,
        NULL};
    const char *path = NULL;
    static struct qm_vectors_verdict v;
    int code = qm_cli_parse(&argp, argc, argv, &path);
    if (code)
        return code;
    qm_status st = qm_vectors_judge(path, &v);
    if (st != QM_OK)
        return qm_cli_failed("verify", st);
    qm_report(report(path, &v));
    return qm_vectors_passed(&v) ? 0 : qm_exit_code(QM_CHECK_FAILED);
}
