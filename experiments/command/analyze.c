/* analyze.c - qualm analyze: measures the quantization error of stored tensors. */
#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/grow.h"
#include "core/base/name.h"
#include "experiments/analyze/analysis_rows.h"
#include "experiments/analyze/recipe_error.h"
#include "experiments/cli/cli.h"
#include "experiments/command/command.h"
#include "experiments/readers/slot_names.h"
#include "experiments/recipes/recipe_list.h"

/* A recipe of --variant, or a quantizer of --quantizer. */
struct judge {
    struct qm_recipe recipe; /* of --variant */
    struct qm_quantizer quantizer;
    int is_recipe;
};

struct options {
    const char *filter, *slot, *out;
    char **path;
    int n_paths, full, threads, has_seed;
    uint64_t seed;
    struct judge *judge; /* in the order of the options */
    const struct qm_metric **metric;
    int n_judges, n_metrics;
    int64_t judge_room, metric_room;
    enum qm_metrics_level level; /* the least that has all metrics */
    struct qm_recipes whole;     /* of --recipe */
    json_t *remarks;             /* what there is to say about the files, text by path */
    int64_t beyond, beyond_in;   /* float64 numbers of a file above any float32; tensors of these */
    qm_status status;            /* the first failure of an argument */
};

enum { KEY_SEED = 256, KEY_TENSOR, KEY_SLOT };

static const struct argp_option options[] = {
    {"tensor", KEY_TENSOR, "REGEX", 0, "only tensors whose name matches", 0},
    {"variant", 'V', "LIST", 0,
     "the quantizers of variants or recipes; may be repeated (default: all variants)", 0},
    {"quantizer", 'Q', "STRING", 0, "a quantizer; may be repeated", 0},
    {"recipe", 'R', "LIST", 0,
     "whole recipes instead: the error of the next update of recorded states, all slots quantized "
     "and the recorded gradient applied; of a checkpoint, which has no gradient, of the update "
     "that "
     "its averages make at its own step (sN names the step after it); may be repeated",
     0},
    {"slot", KEY_SLOT, "SLOT", 0,
     "slot of the variants, exp_avg or exp_avg_sq (default: what the tensor's name ends in)", 0},
    {"metrics", 'm', "LIST", 0, "names of metrics, separated by commas; may be repeated", 0},
    {"full", 'f', NULL, 0, "all metrics, and the error in every decade of magnitude", 0},
    {"out", 'o', "FILE", 0, "write the results to an HDF5 file as well", 0},
    {"threads", 't', "N", 0,
     "threads (default: one for each processor that it may use); the results do not depend on "
     "it",
     0},
    {"seed", KEY_SEED, "N", 0, "of stochastic rounding (default 1)", 0},
    {0}};

static const char *const whole_metrics[] = {"sqnr", "angle", "norm_ratio", "sign_flip"};
static const char *const default_metrics[] = {"sqnr", "nmse", "max_abs", "collapse",
                                              "code_entropy"};

/* ---- arguments ----------------------------------------------------------------------------- */

static qm_status add_judge(struct options *o, const struct judge *j)
{
    QM_TRY(qm_grow((void **)&o->judge, &o->judge_room, o->n_judges + 1, sizeof *o->judge));
    o->judge[o->n_judges++] = *j;
    return QM_OK;
}

static qm_status add_recipes(struct options *o, const char *text)
{
    struct qm_recipes list = {NULL, 0};
    qm_status st = text ? qm_recipes_add(&list, text) : qm_recipes_add_all(&list);
    for (int i = 0; st == QM_OK && i < list.n; i++) {
        struct judge j = {.recipe = list.recipe[i], .is_recipe = 1};
        st = add_judge(o, &j);
    }
    qm_recipes_free(&list);
    return st;
}

static qm_status add_quantizer(struct options *o, const char *text)
{
    struct judge j = {.is_recipe = 0};
    if (strchr(text, ','))
        return qm_fail(QM_BAD_ARG,
                       "--quantizer '%s': expected one quantizer; repeat --quantizer "
                       "for more",
                       text);
    QM_TRY(qm_quantizer_parse(text, &j.quantizer));
    return add_judge(o, &j);
}

static qm_status add_metric(struct options *o, const char *name)
{
    const struct qm_metric *m = qm_metric_find(name);
    if (!m) {
        const char *names[256];
        int n = 0;
        for (; n < qm_metric_count() && n < 256; n++)
            names[n] = qm_metric_at(n)->name;
        return qm_name_unknown("metric", name, names, n);
    }
    QM_TRY(qm_grow((void **)&o->metric, &o->metric_room, o->n_metrics + 1, sizeof *o->metric));
    o->metric[o->n_metrics++] = m;
    return QM_OK;
}

static qm_status add_metrics(struct options *o, const char *list)
{
    char *copy = strdup(list), *rest = copy, *name;
    qm_status st = copy ? QM_OK : qm_fail(QM_NO_MEMORY, "out of memory");
    while (st == QM_OK && (name = strsep(&rest, ",")))
        st = *name ? add_metric(o, name)
                   : qm_fail(QM_BAD_ARG, "--metrics '%s': a name between commas is empty", list);
    free(copy);
    return st;
}

static qm_status check_slot(const char *slot)
{
    const char *names[64];
    int n = 0;
    for (int i = 0; i < qm_rule_count(); i++)
        for (int s = 0; s < qm_rule_at(i)->n_slots && n < 64; s++)
            if (qm_name_find(qm_rule_at(i)->slot[s], names, n) < 0)
                names[n++] = qm_rule_at(i)->slot[s];
    if (qm_name_find(slot, names, n) >= 0)
        return QM_OK;
    const char *nearest = qm_name_nearest(slot, names, n);
    return qm_fail(QM_NO_MATCH, "no slot '%s'; did you mean '%s'?", slot,
                   nearest ? nearest : "exp_avg");
}

static error_t option(int key, char *arg, struct argp_state *state)
{
    struct options *o = state->input;
    int failed = o->status != QM_OK; /* the first failure is reported */
    switch (key) {
    case KEY_TENSOR: o->filter = qm_cli_filter(state, "--tensor", arg); return 0;
    case 'V': o->status = failed ? o->status : add_recipes(o, arg); return 0;
    case 'Q': o->status = failed ? o->status : add_quantizer(o, arg); return 0;
    case 'R': o->status = failed ? o->status : qm_recipes_add(&o->whole, arg); return 0;
    case KEY_SLOT:
        o->slot = arg;
        o->status = failed ? o->status : check_slot(arg);
        return 0;
    case 'm': o->status = failed ? o->status : add_metrics(o, arg); return 0;
    case 'f': o->full = 1; return 0;
    case 'o': o->out = arg; return 0;
    case 't': o->threads = (int)qm_cli_number(state, "threads", arg, 1, 1024); return 0;
    case KEY_SEED:
        o->seed = qm_cli_number(state, "seed", arg, 0, INT64_MAX);
        o->has_seed = 1;
        return 0;
    case ARGP_KEY_ARG:
        o->status = failed ? o->status : qm_cli_append(&o->path, &o->n_paths, arg);
        return 0;
    case ARGP_KEY_END:
        if (o->whole.n && (o->n_judges || o->slot || o->full))
            argp_error(state, "--recipe takes whole recipes: no --variant, --quantizer, --slot or "
                              "--full beside it");
        if (o->full)
            qm_cli_alone(state, "--full", "prints every metric",
                         (const struct qm_cli_given[]){{"--metrics", o->n_metrics > 0}, {0}});
        return 0;
    case ARGP_KEY_NO_ARGS: argp_error(state, "FILE is missing"); return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

/* Refuses a seed where nothing rounds by a draw. */
static qm_status check_seed(const struct options *o)
{
    int draws = o->whole.n > 0;
    for (int i = 0; i < o->n_judges; i++) {
        const struct judge *j = &o->judge[i];
        const struct qm_quantizer *q = j->is_recipe ? j->recipe.slot : &j->quantizer;
        for (int k = 0; k < (j->is_recipe ? j->recipe.rule->n_slots : 1); k++)
            draws |= q[k].bits > 0 && qm_round_draws(q[k].round);
    }
    return draws || !o->has_seed
               ? QM_OK
               : qm_fail(QM_BAD_ARG, "--seed has no effect: nothing here rounds by a draw");
}

/* Sets the quantizers and metrics that the options leave open. */
static qm_status defaults(struct options *o)
{
    const char *const *names = o->whole.n ? whole_metrics : default_metrics;
    size_t n_names = o->whole.n ? sizeof whole_metrics / sizeof *whole_metrics
                                : sizeof default_metrics / sizeof *default_metrics;
    if (o->n_judges == 0 && o->whole.n == 0)
        QM_TRY(add_recipes(o, NULL));
    if (o->n_judges == 0 && o->whole.n == 0)
        return qm_fail(QM_NO_MATCH, "there are no variants; give a --quantizer");
    QM_TRY(check_seed(o));
    if (o->full)
        o->n_metrics = 0;
    for (int i = 0; o->full && i < qm_metric_count(); i++)
        QM_TRY(add_metric(o, qm_metric_at(i)->name));
    int chosen = o->n_metrics > 0;
    for (size_t i = 0; !chosen && i < n_names; i++)
        QM_TRY(add_metric(o, names[i]));
    for (int i = 0; i < o->n_metrics; i++)
        if (o->metric[i]->level > o->level)
            o->level = o->metric[i]->level;
    return QM_OK;
}

/* ---- one tensor ---------------------------------------------------------------------------- */

/* The slot `asked` for, or if NULL the one that the tensor's name ends in ("/run/h.0/exp_avg_sq"
 * does, "exp_avg_sq.h.0" does not), by its name or one of slot_names.h; -1 when the rule has
 * none. */
static int slot_for(const struct qm_recipe *r, const char *tensor, const char *asked)
{
    size_t length = strlen(tensor), longest = 0;
    int found = -1;
    for (int i = 0; i < r->rule->n_slots; i++) {
        size_t n = strlen(r->rule->slot[i]);
        if (asked ? strcmp(asked, r->rule->slot[i]) == 0
                  : n > longest && n <= length &&
                        strcmp(tensor + length - n, r->rule->slot[i]) == 0) {
            found = i;
            longest = n;
        }
    }
    int alias = found < 0 && !asked ? qm_slot_alias(tensor) : -1;
    for (int i = 0; alias >= 0 && i < r->rule->n_slots; i++)
        if (strcmp(r->rule->slot[i], qm_slot_names(alias)[0]) == 0)
            found = i;
    return found;
}

/* Chooses judge j's quantizer and slot for a tensor.  Returns "", or the reason why there
 * is none. */
static const char *choose(const struct options *o, const struct judge *j, const struct qm_entry *e,
                          struct qm_quantizer *q, const char **slot)
{
    *slot = NULL;
    *q = j->quantizer;
    if (!j->is_recipe)
        return "";
    int i = slot_for(&j->recipe, e->name, o->slot);
    if (i < 0)
        return o->slot ? "the variant has no such slot"
                       : "its name ends in no slot of the variant; --slot says which it is";
    *slot = j->recipe.rule->slot[i];
    *q = qm_recipe_slot(&j->recipe, i, &e->shape);
    if (j->recipe.slot[i].bits == 0)
        return "the variant does not quantize this slot";
    return q->bits ? "" : "the variant keeps tensors of this shape in float32";
}

/* Adds a row per judge for an analyzed tensor. */
static qm_status add_rows(const struct options *o, const struct qm_row *label,
                          const struct qm_analysis *a, const char *const *slot,
                          const struct qm_float_classes *classes, struct qm_rows *rows)
{
    struct qm_decade decade[QM_DECADES];
    double value[256];
    char text[QM_QUANTIZER_TEXT], name[QM_RECIPE_TEXT];
    for (int i = 0; i < o->n_judges; i++) {
        struct qm_row r = *label;
        r.slot = slot[i];
        r.classes = *classes;
        r.skipped = a[i].skipped;
        r.quantizer = a[i].codec.q.bits ? qm_quantizer_print(&a[i].codec.q, text) : "";
        if (o->judge[i].is_recipe)
            r.variant = qm_recipe_print(&o->judge[i].recipe, name);
        if (!a[i].skipped[0]) {
            for (int m = 0; m < o->n_metrics; m++)
                value[m] = o->metric[m]->value(a[i].metrics);
            qm_metrics_decades(a[i].metrics, decade);
            r.value = value;
            r.decade = o->full ? decade : NULL;
        }
        QM_TRY(qm_rows_add(rows, &r));
    }
    return QM_OK;
}

static void advance(int64_t elements, void *progress) { qm_progress_add(progress, elements, 0); }

/* Prepares a[] for the tensor, an element per judge; slot[] gets the names of the slots. */
static qm_status bind(const struct options *o, const struct qm_entry *e, struct qm_analysis *a,
                      const char **slot)
{
    for (int i = 0; i < o->n_judges; i++) {
        struct qm_quantizer q;
        const char *why = choose(o, &o->judge[i], e, &q, &slot[i]);
        snprintf(a[i].skipped, sizeof a[i].skipped, "%s", why);
        QM_TRY(qm_codec_init(&a[i].codec, &q));
        if (!(a[i].metrics = qm_metrics_open(o->level)))
            return qm_fail(QM_NO_MEMORY, "metrics");
    }
    return QM_OK;
}

/* Counts the finite numbers of a float64 tensor that float32 makes infinite. */
static qm_status count_beyond(struct options *o, struct qm_file *f, int index)
{
    double x[512];
    int64_t found = 0, numel = qm_file_entry(f, index)->numel;
    for (int64_t at = 0, n; at < numel; at += n) {
        n = numel - at < 512 ? numel - at : 512;
        QM_TRY(qm_file_read_double(f, index, at, n, x));
        for (int64_t i = 0; i < n; i++)
            found += isfinite(x[i]) && isinf((float)x[i]);
    }
    o->beyond += found;
    o->beyond_in += found > 0;
    return QM_OK;
}

static qm_status analyze_entry(struct options *o, const char *path, struct qm_file *f, int index,
                               struct qm_progress *progress, struct qm_rows *rows)
{
    const struct qm_entry *e = qm_file_entry(f, index);
    struct qm_row label = {.file = path,
                           .tensor = e->name,
                           .variant = "",
                           .quantizer = "",
                           .skipped = "",
                           .dtype = qm_dtype_name(e->dtype)};
    struct qm_float_classes classes = {0};
    qm_shape_print(&e->shape, label.shape, sizeof label.shape);
    if (!qm_dtype_is_float(e->dtype) || e->numel == 0) {
        label.skipped = e->numel == 0 ? "it has no elements" : "its elements are not floats";
        return qm_rows_add(rows, &label);
    }
    struct qm_analysis *a = calloc((size_t)o->n_judges, sizeof *a);
    const char **slot = calloc((size_t)o->n_judges, sizeof *slot);
    qm_status st = a && slot ? bind(o, e, a, slot) : qm_fail(QM_NO_MEMORY, "quantizers");
    const struct qm_analysis_options how = {o->level, o->seed, o->threads, advance, progress};
    int wanted = 0, alike = 1;
    for (int i = 0; st == QM_OK && i < o->n_judges; i++) {
        wanted += !a[i].skipped[0];
        alike = alike && strcmp(a[i].skipped, a[0].skipped) == 0;
    }
    if (st == QM_OK && wanted)
        st = qm_analyze_tensor(f, index, a, o->n_judges, &how, &classes);
    if (st == QM_OK && e->dtype == QM_DTYPE_f64 && classes.inf > 0)
        st = count_beyond(o, f, index);
    if (st == QM_OK && !wanted && alike) { /* one row gives the reason for all judges */
        label.skipped = a[0].skipped;
        st = qm_rows_add(rows, &label);
    } else if (st == QM_OK) {
        st = add_rows(o, &label, a, slot, &classes, rows);
    }
    for (int i = 0; a && i < o->n_judges; i++)
        qm_metrics_close(a[i].metrics);
    free(a);
    free(slot);
    return st;
}

/* ---- remarks ------------------------------------------------------------------------------- */

/* Says what there is to say about a file, and keeps it for the results. */
static qm_status remark_on(const char *path, const char *text, void *context)
{
    struct options *o = context;
    json_t *key = qm_json_text(path);
    qm_note_remark(path, text);
    int failed =
        !key || json_object_set_new(o->remarks, json_string_value(key), qm_json_text(text)) != 0;
    json_decref(key);
    return failed ? qm_fail(QM_NO_MEMORY, "%s: remarks", path) : QM_OK;
}

/* Stores the remarks as one text, "FILE: TEXT; FILE: TEXT", in attribute `remarks` of a group. */
static qm_status store_remarks(const struct options *o, struct qm_store *s, const char *group)
{
    char *all = NULL;
    size_t size = 0;
    const char *path;
    json_t *text;
    if (json_object_size(o->remarks) == 0)
        return QM_OK;
    FILE *f = open_memstream(&all, &size);
    if (!f)
        return qm_fail(QM_NO_MEMORY, "remarks");
    json_object_foreach (o->remarks, path, text)
        fprintf(f, "%s%s: %s", ftell(f) ? "; " : "", path, json_string_value(text));
    qm_status st =
        fclose(f) == 0 ? qm_store_text(s, group, "remarks", all) : qm_fail(QM_NO_MEMORY, "remarks");
    free(all);
    return st;
}

/* ---- all files ----------------------------------------------------------------------------- */

/* A file of which no tensor matches has no remark: the error that follows says all. */
static qm_status analyze_file(struct options *o, const char *path, int *matched,
                              struct qm_rows *rows)
{
    struct qm_file *f;
    struct qm_progress progress;
    int64_t total = 0;
    int matching = 0;
    QM_TRY(qm_file_open_numbers(path, &f));
    for (int i = 0; i < qm_file_count(f); i++)
        if (qm_entry_matches(qm_file_entry(f, i)->name, o->filter)) {
            matching++;
            total += qm_file_entry(f, i)->numel;
        }
    qm_progress_start(&progress, path, 0);
    if (qm_cli.verbose)
        qm_note("%s: %s, %d tensors, %lld elements match", path, qm_file_format(f),
                qm_file_count(f), (long long)total);
    char remark[QM_FILE_REMARK + 200] = "";
    int has_remark = matching && qm_file_remark(f, remark);
    qm_status st = QM_OK;
    o->beyond = o->beyond_in = 0;
    for (int i = 0; st == QM_OK && i < qm_file_count(f); i++)
        if (qm_entry_matches(qm_file_entry(f, i)->name, o->filter)) {
            ++*matched;
            st = analyze_entry(o, path, f, i, &progress, rows);
        }
    if (st == QM_OK)
        st = qm_file_check(f);
    qm_progress_end(&progress);
    qm_file_close(f);
    if (o->beyond)
        snprintf(
            remark + strlen(remark), 200,
            "%s%lld numbers of float64, in %lld of its tensors, are larger than any float32 and "
            "are read as infinite",
            has_remark ? "; " : "", (long long)o->beyond, (long long)o->beyond_in);
    return st == QM_OK && remark[0] ? remark_on(path, remark, o) : st;
}

/* QM_NO_MATCH that names the first tensor of the first file. */
static qm_status no_tensor(const struct options *o)
{
    struct qm_file *f;
    char remark[QM_FILE_REMARK];
    QM_TRY(qm_file_open(o->path[0], &f));
    int has_remark = qm_file_remark(f, remark);
    qm_status st =
        o->filter
            ? qm_fail(QM_NO_MATCH, "no tensor matches '%s' (the first of %d is '%s')", o->filter,
                      qm_file_count(f), qm_file_count(f) ? qm_file_entry(f, 0)->name : "")
            : qm_fail(QM_NO_MATCH, "%s: no tensors%s%s", o->path[0], has_remark ? "; " : "",
                      has_remark ? remark : "");
    qm_file_close(f);
    return st;
}

/* Writes rows, or the errors of whole recipes where rows is NULL. */
static qm_status save(const struct options *o, int argc, char **argv, const struct qm_rows *rows,
                      const struct qm_recipe_errors *errors)
{
    struct qm_store *s;
    QM_TRY(qm_store_open(o->out, "analyze", argc, argv, &s));
    const char *group = rows ? "/analyze" : "/next_update";
    qm_status st = qm_store_number(s, group, "seed", (double)o->seed);
    if (st == QM_OK)
        st = store_remarks(o, s, group);
    if (st == QM_OK)
        st = rows ? qm_rows_store(rows, s) : qm_recipe_errors_store(errors, s);
    if (st != QM_OK) {
        qm_store_abort(s);
        return st;
    }
    QM_TRY(qm_store_commit(s));
    qm_note("wrote %s", o->out);
    return QM_OK;
}

/* QM_NO_MATCH: nothing was analyzed.  Names the first reasons, each with its number of rows. */
static qm_status none_analyzed(const struct qm_rows *rows, int matched)
{
    enum { MOST = 3 };
    const char *reason[MOST];
    char text[600] = "";
    size_t used = 0;
    int64_t n = 0;
    for (int64_t i = 0; i < rows->n && n < MOST && used < sizeof text; i++) {
        int64_t same = 0, k = 0;
        while (k < n && strcmp(reason[k], rows->row[i].skipped) != 0)
            k++;
        if (k < n)
            continue;
        reason[n++] = rows->row[i].skipped;
        for (int64_t j = i; j < rows->n; j++)
            same += strcmp(rows->row[j].skipped, reason[n - 1]) == 0;
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%s (%lld)", n > 1 ? "; " : "",
                                 reason[n - 1], (long long)same);
    }
    return qm_fail(QM_NO_MATCH,
                   "none of %d tensors could be analyzed (how often, by tensor and variant): %s",
                   matched, text);
}

static qm_status analyze(struct options *o, int argc, char **argv)
{
    struct qm_rows rows = {.metric = o->metric, .n_metrics = o->n_metrics};
    int matched = 0;
    qm_status st = QM_OK;
    for (int i = 0; st == QM_OK && i < o->n_paths; i++)
        st = analyze_file(o, o->path[i], &matched, &rows);
    if (st == QM_OK && !matched)
        st = no_tensor(o);
    if (st == QM_OK && !qm_rows_analyzed(&rows))
        st = none_analyzed(&rows, matched);
    if (st == QM_OK && o->out)
        st = save(o, argc, argv, &rows, NULL);
    if (st == QM_OK && o->n_judges == qm_variant_count())
        qm_note(
            "a row for each tensor and each of %d variants: --variant LIST takes some, --recipe "
            "LIST sums up",
            o->n_judges);
    if (st == QM_OK)
        qm_rows_report(&rows, o->full, o->remarks);
    qm_rows_free(&rows);
    return st;
}

/* ---- whole recipes ------------------------------------------------------------------------- */

static void show_progress(int64_t done, int64_t total, void *of)
{
    struct qm_progress *progress = of;
    progress->total = total;
    qm_progress_add(progress, done - progress->done, 0);
}

static qm_status analyze_recipes(struct options *o, int argc, char **argv)
{
    struct qm_recipe_errors errors = {
        .recipes = &o->whole, .metric = o->metric, .n_metrics = o->n_metrics};
    struct qm_progress progress;
    qm_progress_start(&progress, "next update", 0);
    const struct qm_recipe_error_options how = {o->filter, o->seed,   show_progress,
                                                &progress, remark_on, o};
    qm_status st = qm_recipe_errors_measure(o->path, o->n_paths, &how, &errors);
    qm_progress_end(&progress);
    if (st == QM_OK && !qm_recipe_errors_measured(&errors))
        st = qm_fail(QM_NO_MATCH, "none of %lld rows could be measured: %s", (long long)errors.n,
                     errors.row[0].skipped);
    if (st == QM_OK && o->out)
        st = save(o, argc, argv, NULL, &errors);
    if (st == QM_OK)
        st = qm_recipe_errors_report(&errors, o->remarks);
    qm_recipe_errors_free(&errors);
    return st;
}

int qm_cmd_analyze(int argc, char **argv)
{
    static const struct argp_child children[] = {{&qm_cli_argp, 0, "Common options:", -1}, {0}};
    static const struct argp argp = {
        options,
        option,
        "FILE...",
        "Quantization error of any tensor in .h5, .npy, .npz or .safetensors files and in "
        "checkpoints of PyTorch (.pt, .pth, .bin, folders of torch.distributed.checkpoint, shards "
        "by their *.index.json): a row per tensor and quantizer.  Tensors of any size are "
        "streamed; results do not depend on the number of threads.  A variant's quantizer is "
        "chosen by the slot that a tensor's name ends in; momentum_buffer and state1 count as "
        "exp_avg, state2 as exp_avg_sq.  With --recipe a row per recorded parameter (its states, "
        "and its gradient where there is one) and whole recipe, then a summary with intervals.  "
        "Tensors that are skipped for one reason are one row of text, with --verbose one each."
        "\vExamples:\n"
        "  # checkpoint.pt, m.npy and states.h5 are files of yours\n"
        "  qualm analyze checkpoint.pt --variant adamw4_ao\n"
        "  qualm analyze experiments/data/gpt_austen.h5 --tensor exp_avg\n"
        "  qualm analyze experiments/data/gpt_austen.h5 --tensor 'exp_avg_sq$' \\\n"
        "    --variant adamw4_ao,adamw4_lpmm\n"
        "  qualm analyze m.npy -Q nf4:4s/block:64/bisect/mid -Q dyn:4s/row/bisect/mid\n"
        "  qualm analyze m.npy --variant adamw8_bnb --slot exp_avg --full --json\n"
        "  qualm analyze experiments/data/gpt_austen.h5 --recipe adamw4_ao,adamw4_lpmm\n"
        "  qualm analyze states.h5 --metrics sqnr,nmse --out errors.h5\n",
        children,
        NULL,
        NULL};
    struct options o = {.seed = 1, .threads = omp_get_max_threads(), .remarks = json_object()};
    int code = qm_cli_parse(&argp, argc, argv, &o);
    qm_status st = code || o.status != QM_OK ? o.status : defaults(&o);
    if (!code && st == QM_OK)
        st = o.whole.n ? analyze_recipes(&o, argc, argv) : analyze(&o, argc, argv);
    qm_recipes_free(&o.whole);
    free(o.judge);
    free(o.metric);
    free(o.path);
    json_decref(o.remarks);
    return code ? code : st == QM_OK ? 0 : qm_cli_failed("analyze", st);
}
