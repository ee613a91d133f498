/* conform.c - qualm conform: replays golden vectors made by the published systems. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/cli/cli.h"
#include "experiments/command/command.h"
#include "experiments/conform/conform.h"

struct options {
    const char *filter;
    char **files; /* has room for every word of the command line */
    int n_files;
};

static const struct argp_option option_list[] = {
    {"case", 'c', "REGEX", 0, "Only the cases whose name matches", 0},
    {0},
};

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
    struct options *o = state->input;
    switch (key) {
    case ARGP_KEY_INIT: state->child_inputs[0] = NULL; return 0;
    case 'c': o->filter = qm_cli_filter(state, "--case", arg); return 0;
    case ARGP_KEY_ARG: o->files[o->n_files++] = arg; return 0;
    case ARGP_KEY_NO_ARGS: argp_error(state, "expected at least one FILE.h5"); return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp_child children[] = {{&qm_cli_argp, 0, "Common options:", -1}, {0}};
static const struct argp argp = {
    option_list,
    parse_option,
    "FILE.h5...",
    "Replays golden vectors made by running the published systems, and judges every case: EQUAL "
    "(every bit), NEAR (within the stated tolerance), DIFFERS, skipped (with the reason)."
    "\vresults/CONFORM.md (installed: share/qualm/results/CONFORM.md) says what a file of your own "
    "must hold, system by system, and what an attribute means that is absent; an attribute or "
    "dataset that is missing, of another type or out of range is UNREADABLE, and one that is not "
    "read is named.  A recording of an installed PyTorch has sqrt=installed: its roots are an ulp "
    "off; without sqrt either is accepted.  -v prints the variant that was judged, with its "
    "overrides.  "
    "The system is recognised from the file's attributes.  Exit status: 0 no difference, 1 some "
    "case differs, 3 a file or a case cannot be read, 4 no case matched, 77 some file was "
    "skipped whole.  The recorded "
    "vectors are tests/golden/*.h5 of the source tree; `make install` leaves them there.\n\nNEAR "
    "allows rounding errors alone, and a code only where its number lies within its error of the "
    "edge between the two codes, however few they are; the table of "
    "tests/golden/README.md (installed: share/qualm/tests/golden/README.md) has every tolerance.  "
    "Of adafactor8bit they are derived, for one step "
    "from the recorded state before it, with u = 2^-24: means and averages 34 u of the largest; "
    "CAME's confidence 208 u, to 0.2.5 with sums of n terms 4.5 n u more, all times (sizes of "
    "terms / sum); scales 16 u; the ends of "
    "log codes 252 u; parameters 4 u, and of the step's largest change 276 u and 3 (n / 16 + 8) u, "
    "for "
    "torch sums the squares of a norm in eight lanes; codes off by one where these errors "
    "reach an edge; what APOLLO's sums of k products "
    "add.\n\nExamples:\n  qualm conform tests/golden/*.h5\n"
    "  qualm conform -v --case '^q4[su]_' tests/golden/torchao.h5\n",
    children,
    NULL,
    NULL};

struct output {
    const char *path;
    json_t *cases; /* NULL: print text */
    char *first;   /* "NAME: WHY" of the first case that cannot be read, or NULL */
};

/* Prints the kept message on stderr, --quiet or not, and leaves stdout to the one document. */
static void complain(qm_status st)
{
    int json = qm_cli.json;
    qm_cli.json = 0;
    qm_cli_failed("conform", st);
    qm_cli.json = json;
}

/* A JSON string; paths, and names in a damaged file, may be no UTF-8. */
static json_t *json_text(const char *text)
{
    json_t *t = json_string(text);
    return t ? t : json_string("(not UTF-8)");
}

static void print_case(void *context, const struct qm_golden_case *c)
{
    struct output *o = context;
    if (c->outcome == QM_CONFORM_unreadable && !o->first &&
        asprintf(&o->first, "%s: %s", c->name, c->text) < 0)
        o->first = NULL;
    if (o->cases) {
        json_array_append_new(
            o->cases, json_pack("{s:o, s:s, s:o, s:s, s:I, s:o}", "name", json_text(c->name),
                                "outcome", qm_conform_result_word(c->outcome), "text",
                                json_text(c->text), "recipe", c->how, "compared",
                                (json_int_t)c->compared, "of_tolerance", qm_json_number(c->worst)));
        return;
    }
    int quiet = qm_cli.quiet && (c->outcome == QM_CONFORM_equal || c->outcome == QM_CONFORM_near ||
                                 c->outcome == QM_CONFORM_skipped);
    if (quiet)
        return;
    qm_print("%-10s %s", qm_conform_result_word(c->outcome), c->name);
    if (c->text[0])
        qm_print("  %s", c->text);
    if (qm_cli.verbose)
        qm_print("  [%s; %lld values]", c->how[0] ? c->how : "-", (long long)c->compared);
    putchar('\n');
}

static void print_counts(const int64_t *count)
{
    for (int k = 0; k < QM_CONFORM_COUNT; k++)
        qm_print("%s%lld %s", k ? ", " : "", (long long)count[k],
                 qm_conform_result_word((enum qm_conform_result)k));
    putchar('\n');
}

static json_t *json_counts(const int64_t *count)
{
    json_t *o = json_object();
    for (int k = 0; k < QM_CONFORM_COUNT; k++)
        json_object_set_new(o, qm_conform_result_word((enum qm_conform_result)k),
                            json_integer(count[k]));
    return o;
}

/* 1: the file has cases, and all of them were skipped, so that nothing was compared. */
static int all_skipped(const int64_t *count)
{
    int64_t others = 0;
    for (int k = 0; k < QM_CONFORM_COUNT; k++)
        others += k == QM_CONFORM_skipped ? 0 : count[k];
    return count[QM_CONFORM_skipped] > 0 && others == 0;
}

/* Replays every file.  A file that cannot be read, or of which nothing was compared, does not stop
 * the others; the last such status is returned. */
static int any(const int64_t total[QM_CONFORM_COUNT])
{
    for (int k = 0; k < QM_CONFORM_COUNT; k++)
        if (total[k])
            return 1;
    return 0;
}

static qm_status run(const struct options *o, int64_t *total)
{
    json_t *files = qm_cli.json ? json_array() : NULL;
    qm_status worst = QM_OK;
    for (int i = 0; i < o->n_files; i++) {
        int64_t count[QM_CONFORM_COUNT] = {0};
        struct output out = {o->files[i], files ? json_array() : NULL, NULL};
        if (!files && !qm_cli.quiet)
            qm_print("%s\n", o->files[i]);
        qm_status st = qm_conform_file(o->files[i], o->filter, print_case, &out, count);
        for (int k = 0; k < QM_CONFORM_COUNT; k++)
            total[k] += count[k];
        int64_t unread = count[QM_CONFORM_unreadable];
        if (st == QM_OK && unread)
            st = qm_fail(QM_BAD_FILE, "%s: %lld %s UNREADABLE, first %s", o->files[i],
                         (long long)unread, unread == 1 ? "case is" : "cases are",
                         out.first ? out.first : "?");
        free(out.first);
        if (files)
            json_array_append_new(files,
                                  json_pack("{s:o, s:o, s:o, s:o}", "path", json_text(o->files[i]),
                                            "cases", out.cases, "counts", json_counts(count),
                                            "error", json_text(st == QM_OK ? "" : qm_message())));
        if (st == QM_OK && all_skipped(count) && worst == QM_OK) {
            worst = QM_SKIPPED;
            complain(qm_fail(QM_SKIPPED, "%s: every case was skipped", o->files[i]));
        }
        if (st != QM_OK) {
            worst = st;
            complain(st);
        }
    }
    if (files)
        qm_json_print(json_pack("{s:o, s:o}", "files", files, "counts", json_counts(total)));
    else if (any(total) || worst == QM_OK) /* files that cannot be opened have no counts */
        print_counts(total);
    return worst;
}

static int conform(const struct options *o)
{
    int64_t total[QM_CONFORM_COUNT] = {0};
    qm_status st = run(o, total);
    if (total[QM_CONFORM_differs] > 0)
        return qm_exit_code(QM_CHECK_FAILED);
    if (st != QM_OK && st != QM_SKIPPED)
        return qm_exit_code(st);
    if (total[QM_CONFORM_unreadable] > 0)
        return qm_exit_code(QM_BAD_FILE);
    if (!any(total)) {
        complain(o->filter ? qm_fail(QM_NO_MATCH, "no case matches '%s'", o->filter)
                           : qm_fail(QM_NO_MATCH, "no case in what was given; expected a file of "
                                                  "recorded steps (results/CONFORM.md)"));
        return qm_exit_code(QM_NO_MATCH);
    }
    return st == QM_SKIPPED ? qm_exit_code(st) : 0;
}

int qm_cmd_conform(int argc, char **argv)
{
    struct options o = {.files = calloc((size_t)argc, sizeof(char *))};
    if (!o.files)
        return qm_cli_failed("conform", qm_fail(QM_NO_MEMORY, "out of memory"));
    int rc = qm_cli_parse(&argp, argc, argv, &o);
    if (rc == 0)
        rc = conform(&o);
    free(o.files);
    return rc;
}
