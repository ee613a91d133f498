/* gpu_plan.c - What a report of a GPU says of the run, and the options that it says. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/cli/cli.h"
#include "experiments/gpu/bench.h"
#include "experiments/gpu/gpu_tasks.h"
#include "experiments/machine/provenance.h"

/* The words of a list, one after the other with a separator; the caller frees them.  NULL: there is
 * no memory. */
static char *join(const char *separator, const char *const *words, int n)
{
    char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);
    for (int i = 0; f && i < n; i++)
        fprintf(f, "%s%s", i ? separator : "", words[i]);
    if (!f || fclose(f) != 0) {
        free(text);
        return NULL;
    }
    return text;
}

/* What no row shows, for who reads the report. */
static const char not_covered_text[] =
    "indices beyond 2^31 elements: no row has such a tensor.  On request, where the memory "
    "suffices, --only speed --millions 2148 times steps of 2^31 elements, without comparing bits; "
    "a kernel of your own is judged there by qualm check --kernel FILE.cu, on the emulator";

const char *qm_gpu_not_covered(int64_t n) { return n > INT64_C(1) << 31 ? "" : not_covered_text; }

json_t *qm_gpu_plan(const struct qm_gpu_options *o)
{
    const char *names[QM_GPU_PARTS];
    char date[24];
    int n = 0;
    for (int i = 0; i < QM_GPU_PARTS; i++)
        if (o->only[i])
            names[n++] = qm_gpu_part_name((enum qm_gpu_part)i);
    char *parts = join(",", names, n);
    char *recipes = join(" ", (const char *const *)o->recipes, o->n_recipes);
    json_t *plan =
        !parts || !recipes
            ? NULL
            : json_pack("{s:s, s:s, s:s, s:s, s:o, s:i, s:I, s:i, s:o, s:s, s:f}", "version",
                        qm_version(), "commit", qm_commit(), "begun", qm_utc(date), "parts",
                        n ? parts : "all", "recipes", qm_json_text(recipes), "quick", o->quick,
                        "elements", (json_int_t)o->n, "rounds", o->rounds, "peers",
                        qm_json_text(o->peers ? o->peers : ""), "not_covered",
                        qm_gpu_not_covered(o->n), "time_limit", o->limit);
    free(parts);
    free(recipes);
    return plan;
}

/* Reads "all", or names of parts with commas. */
static qm_status read_parts(const char *parts, struct qm_gpu_options *o)
{
    char word[16];
    memset(o->only, 0, sizeof o->only);
    o->has_only = strcmp(parts, "all") != 0;
    for (const char *at = parts; o->has_only; at++) {
        size_t n = strcspn(at, ",");
        snprintf(word, sizeof word, "%.*s", (int)n, at);
        int part = n < sizeof word ? qm_gpu_part_find(word) : -1;
        if (part < 0 || o->only[part])
            return qm_fail(QM_BAD_FILE, "its plan has parts '%.80s'", parts);
        o->only[part] = 1;
        at += n;
        if (!*at)
            break;
    }
    return QM_OK;
}

qm_status qm_gpu_plan_read(json_t *plan, struct qm_gpu_options *o, char **words)
{
    const char *parts, *recipes, *commit, *peers, *state, *begun, *version;
    json_int_t elements;
    double limit;
    *words = NULL;
    if (json_unpack(plan, "{s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:F, s:i, s:I, s:i}", "commit",
                    &commit, "parts", &parts, "recipes", &recipes, "peers", &peers, "state", &state,
                    "begun", &begun, "version", &version, "time_limit", &limit, "quick", &o->quick,
                    "elements", &elements, "rounds", &o->rounds) != 0 ||
        elements < 0 || elements > QM_GPU_MOST_ELEMENTS || o->rounds < 1 ||
        o->rounds > QM_GPU_BENCH_ROUNDS || (o->quick != 0 && o->quick != 1))
        return qm_fail(QM_BAD_FILE, "its plan is incomplete or damaged");
    o->n = (int64_t)elements;
    QM_TRY(read_parts(parts, o));
    char *rest = *words = strdup(recipes);
    for (char *word; *words && (word = strsep(&rest, " "));)
        if (*word)
            QM_TRY(qm_cli_append(&o->recipes, &o->n_recipes, word));
    return *words ? QM_OK : qm_fail(QM_NO_MEMORY, "a plan");
}
