/* conform.c - Begins and ends cases of a golden file, and reads their attributes and datasets. */
#include "experiments/conform/conform.h"
#include "experiments/conform/run.h"

#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/name.h"
#include "experiments/conform/tensor_rule_run.h"

const char *qm_conform_result_word(enum qm_conform_result o)
{
    static const char *const words[] = {
#define X(name, word, text) word,
        QM_CONFORM_LIST(X)
#undef X
    };
    return words[o];
}

/* ---- systems ---- */

/* A root attribute that contains a text identifies the system of a file.  The reference files name
 * no system; the executed function identifies them. */
static const struct {
    const char *name, *attribute, *holds;
    void (*replay)(struct qm_conform *c); /* NULL: known, not built */
} systems[] = {
    {"torchao", "source_repo", "pytorch/ao", qm_conform_torchao},
    {"bitsandbytes", "source_repo", "bitsandbytes", qm_conform_bitsandbytes},
    {"lpmm", "system", "lpmm", qm_conform_lpmm},
    {"adafactor8bit", "system", "adafactor8bit", qm_conform_adafactor8bit},
    {"lion8bit", "system", "lion8bit", qm_conform_lion8bit},
    {"flashoptim", "system", "flashoptim", qm_conform_flashoptim},
    {"solo", "system", "SOLO", qm_conform_solo},
    {"coat", "system", "COAT", qm_conform_coat},
    {"philox", "system", "philox", qm_conform_philox},
    {"dtypes", "system", "dtypes", qm_conform_dtypes},
    {"muon", "system", "Muon 8-bit", qm_conform_muon},
    {"microadam", "system", "MicroAdam", qm_conform_microadam},
    {"shampoo", "system", "4-bit Shampoo", qm_conform_shampoo},
    {"adamw", "executed", "torch/optim/adamw.py", qm_conform_reference},
    {"sgd", "executed", "torch/optim/sgd.py", qm_conform_reference},
    {"adamw", "executed", "torch/optim/adam.py", qm_conform_reference},
    {"lion", "executed", "lion_pytorch", qm_conform_reference},
    {"adafactor", "executed", "adafactor.py", qm_conform_adafactor},
    {"came", "executed", "CAME.py", qm_conform_came},
    {"apollo", "executed", "apollo_torch/apollo.py", qm_conform_apollo},
    {"fira", "executed", "optimizer_torch/fira_", qm_conform_fira},
};

static int system_find(struct qm_golden *file)
{
    char text[1024];
    for (size_t i = 0; i < sizeof systems / sizeof *systems; i++)
        if (qm_golden_text(file, "", systems[i].attribute, text, sizeof text) &&
            strstr(text, systems[i].holds))
            return (int)i;
    return -1;
}

/* A group of a file whose system has no replay. */
static void skip(struct qm_conform *c, const struct qm_golden_place *at)
{
    if (!qm_golden_case_begin(c, at->path, NULL))
        return;
    qm_golden_case_skip(c, "no replay is built for this system");
    qm_golden_case_end(c);
}

qm_status qm_conform_file(const char *path, const char *filter,
                          void (*report)(void *context, const struct qm_golden_case *c),
                          void *context, int64_t count[QM_CONFORM_COUNT])
{
    struct qm_conform c = {.filter = filter, .report = report, .context = context};
    char text[256];
    QM_TRY(qm_golden_open(path, &c.file));
    int i = system_find(c.file);
    qm_status st = QM_OK;
    if (i >= 0) {
        c.system = systems[i].name;
        systems[i].replay(&c);
    } else if (qm_golden_text(c.file, "", "source_repo", text, sizeof text) ||
               qm_golden_text(c.file, "", "source", text, sizeof text) ||
               qm_golden_text(c.file, "", "executed", text, sizeof text)) {
        c.system = "unknown";
        qm_golden_each(&c, "", skip);
    } else {
        st = qm_fail(QM_BAD_FILE,
                     "%s: not a file of golden vectors: the root has none of the attributes "
                     "system, source_repo, source, executed",
                     path);
    }
    qm_golden_close(c.file);
    for (int k = 0; k < QM_CONFORM_COUNT; k++)
        count[k] += c.count[k];
    return st;
}

/* ---- the life of a case ---- */

struct chunk {
    struct chunk *next;
    _Alignas(16) unsigned char bytes[];
};

int qm_golden_case_begin(struct qm_conform *c, const char *group, const char *part)
{
    memset(&c->now, 0, sizeof c->now);
    if (part)
        snprintf(c->now.name, sizeof c->now.name, "%.250s/%.60s", group, part);
    else
        snprintf(c->now.name, sizeof c->now.name, "%.310s", group);
    if (strcmp(c->group, group) != 0)
        qm_golden_forget(c->file);
    snprintf(c->group, sizeof c->group, "%.310s", group);
    return qm_name_matches(c->now.name, c->filter);
}

/* Attributes shape and ndim of a case, which describe its parameter or what it quantizes. */
static void judge_shape(struct qm_conform *c, const char *data)
{
    int64_t n = 0;
    enum qm_golden_attribute kind = qm_golden_attribute(c->file, c->group, "shape", &n);
    if (kind == QM_GOLDEN_TEXT || kind == QM_GOLDEN_OTHER)
        qm_golden_case_unreadable(c, "attribute shape of %.100s is not numbers", c->group);
    (void)qm_run_shape(c, "shape", qm_golden_case_numel(c, data));
    int64_t rank = qm_golden_case_whole(c, "ndim", n);
    if (kind == QM_GOLDEN_NUMBERS && rank != n && !(rank == 0 && n == 1))
        qm_golden_case_unreadable(c, "attribute ndim of %.100s is %lld, and shape has %lld numbers",
                                  c->group, (long long)rank, (long long)n);
}

void qm_golden_case_end(struct qm_conform *c)
{
    if (qm_golden_case_open(c) && qm_golden_case_has(c, "param0")) /* by any of its names */
        judge_shape(c, "param0");
    else if (qm_golden_case_open(c) && qm_golden_case_has(c, "x"))
        judge_shape(c, "x");
    if (qm_golden_case_open(c) && c->now.compared == 0) {
        c->now.outcome = QM_CONFORM_unreadable;
        snprintf(c->now.text, sizeof c->now.text, "nothing in the group could be compared");
    }
    if (c->now.unseen > 0)
        qm_golden_case_skip(c, "step %lld: the tolerance is as large as the step",
                            (long long)c->now.unseen);
    qm_golden_case_left(c);
    size_t used = strlen(c->now.text);
    snprintf(c->now.text + used, sizeof c->now.text - used, "%s%s",
             used && c->now.unread[0] ? "; " : "", c->now.unread);
    c->count[c->now.outcome]++;
    if (c->report)
        c->report(c->context, &c->now);
    for (struct chunk *m = c->memory, *next; m; m = next) {
        next = m->next;
        free(m);
    }
    c->memory = NULL;
}

int qm_golden_case_open(const struct qm_conform *c)
{
    return c->now.outcome == QM_CONFORM_equal || c->now.outcome == QM_CONFORM_near;
}

static void settle(struct qm_conform *c, enum qm_conform_result outcome, const char *format,
                   va_list args)
{
    if (!qm_golden_case_open(c))
        return;
    c->now.outcome = outcome;
    vsnprintf(c->now.text, sizeof c->now.text, format, args);
}

void qm_golden_case_skip(struct qm_conform *c, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    settle(c, QM_CONFORM_skipped, format, args);
    va_end(args);
}

void qm_golden_case_differs(struct qm_conform *c, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    settle(c, QM_CONFORM_differs, format, args);
    va_end(args);
}

void qm_golden_case_unreadable(struct qm_conform *c, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    settle(c, QM_CONFORM_unreadable, format, args);
    va_end(args);
}

void qm_golden_case_failed(struct qm_conform *c)
{
    qm_golden_case_unreadable(c, "%.310s", qm_message());
}

void qm_golden_case_stopped(struct qm_conform *c, qm_status st)
{
    if (st == QM_BAD_ARG)
        qm_golden_case_skip(c, "%.310s", qm_message());
    else if (st != QM_OK)
        qm_golden_case_failed(c);
}

void *qm_golden_case_memory(struct qm_conform *c, int64_t n, size_t size)
{
    struct chunk *m = NULL;
    if (n >= 0 && (uint64_t)n < ((uint64_t)1 << 40) / size)
        m = calloc(1, sizeof *m + ((size_t)n + 1) * size);
    if (!m) {
        (void)qm_fail(QM_NO_MEMORY, "%lld values of %zu bytes", (long long)n, size);
        qm_golden_case_failed(c);
        return NULL;
    }
    m->next = c->memory;
    c->memory = m;
    return m->bytes;
}

/* ---- reading ---- */

/* The path of a dataset.  The parameter before the first step has three names, of which any is read
 * where the group does not have the one that is asked for. */
static char *dataset_path(const struct qm_conform *c, const char *name, char *out, size_t size)
{
    static const char *const starts[] = {"p0", "param0", "params0"};
    enum { STARTS = sizeof starts / sizeof *starts };
    int is_start = 0;
    snprintf(out, size, "%s/%s", c->group, name);
    for (int i = 0; i < STARTS; i++)
        is_start |= strcmp(name, starts[i]) == 0;
    for (int i = 0; is_start && i < STARTS; i++) {
        if (qm_golden_at(c->file, out) == QM_GOLDEN_DATASET)
            return out;
        snprintf(out, size, "%s/%s", c->group, starts[i]);
    }
    if (is_start && qm_golden_at(c->file, out) != QM_GOLDEN_DATASET)
        snprintf(out, size, "%s/%s", c->group, name);
    return out;
}

int qm_golden_case_is_start(const struct qm_conform *c, const char *name)
{
    char path[2 * QM_GOLDEN_PATH];
    return strcmp(strrchr(dataset_path(c, "param0", path, sizeof path), '/') + 1, name) == 0;
}

int qm_golden_case_has(struct qm_conform *c, const char *name)
{
    char path[2 * QM_GOLDEN_PATH];
    enum qm_golden_kind kind = qm_golden_at(c->file, dataset_path(c, name, path, sizeof path));
    if (kind == QM_GOLDEN_GROUP)
        qm_golden_case_unreadable(c, "%s is a group, expected a dataset", path);
    return kind == QM_GOLDEN_DATASET;
}

int64_t qm_golden_case_numel(struct qm_conform *c, const char *name)
{
    char path[2 * QM_GOLDEN_PATH];
    struct qm_shape s;
    qm_status st = qm_golden_shape(c->file, dataset_path(c, name, path, sizeof path), &s);
    if (st != QM_OK && st != QM_NO_MATCH)
        qm_golden_case_failed(c);
    if (st == QM_OK && qm_shape_numel(&s) == 0 &&
        qm_golden_case_is_start(c, strrchr(path, '/') + 1))
        qm_golden_case_unreadable(c, "%s has no elements", path);
    return st == QM_OK ? qm_shape_numel(&s) : 0;
}

int64_t qm_golden_case_per(struct qm_conform *c, const char *name, int64_t rows)
{
    int64_t n = rows > 0 ? qm_golden_case_numel(c, name) : 0;
    if (n > 0 && n % rows != 0)
        qm_golden_case_unreadable(c, "%s holds %lld numbers, expected a multiple of %lld", name,
                                  (long long)n, (long long)rows);
    return n > 0 ? n / rows : 0;
}

int qm_golden_case_shape(struct qm_conform *c, const char *name, struct qm_shape *out)
{
    char path[2 * QM_GOLDEN_PATH];
    if (qm_golden_shape(c->file, dataset_path(c, name, path, sizeof path), out) == QM_OK)
        return 1;
    qm_golden_case_failed(c);
    return 0;
}

static void *dataset_read(struct qm_conform *c, const char *name, int64_t numel, enum qm_dtype want)
{
    char path[2 * QM_GOLDEN_PATH];
    struct qm_shape s;
    if (!qm_golden_case_open(c) || !qm_golden_case_shape(c, name, &s))
        return NULL;
    dataset_path(c, name, path, sizeof path);
    int64_t n = qm_shape_numel(&s);
    if (numel >= 0 && n != numel) {
        (void)qm_fail(QM_BAD_FILE, "%s holds %lld values, expected %lld", path, (long long)n,
                      (long long)numel);
        qm_golden_case_failed(c);
        return NULL;
    }
    void *out = qm_golden_case_memory(c, n, qm_dtype_size(want));
    if (out && qm_golden_read(c->file, path, want, out) != QM_OK) {
        qm_golden_case_failed(c);
        return NULL;
    }
    return out;
}

float *qm_golden_case_floats(struct qm_conform *c, const char *name, int64_t numel)
{
    return dataset_read(c, name, numel, QM_DTYPE_f32);
}

double *qm_golden_case_doubles(struct qm_conform *c, const char *name, int64_t numel)
{
    return dataset_read(c, name, numel, QM_DTYPE_f64);
}

int64_t *qm_golden_case_ints(struct qm_conform *c, const char *name, int64_t numel)
{
    return dataset_read(c, name, numel, QM_DTYPE_i64);
}

uint64_t *qm_golden_case_words(struct qm_conform *c, const char *name, int64_t numel)
{
    return dataset_read(c, name, numel, QM_DTYPE_u64);
}

static int fits(struct qm_conform *c, const char *name, enum qm_param_format format, double x,
                int64_t i)
{
    float narrow = (float)x;
    if (format != QM_PARAM_f32)
        narrow = qm_param_widen(format, qm_param_nearest(format, narrow));
    if ((double)narrow == x || isnan(x))
        return 1;
    (void)qm_fail(QM_BAD_FILE, "%s of %s: number %lld is %.17g, which %s does not have", name,
                  c->group, (long long)i, x,
                  format == QM_PARAM_f32    ? "float32"
                  : format == QM_PARAM_bf16 ? "bfloat16"
                                            : "float16");
    qm_golden_case_failed(c);
    return 0;
}

int qm_golden_case_fits(struct qm_conform *c, const char *name, enum qm_param_format format,
                        const float *x, int64_t n)
{
    for (int64_t i = 0; x && format != QM_PARAM_f32 && i < n; i++)
        if (!fits(c, name, format, (double)x[i], i))
            return 0;
    return x != NULL;
}

int qm_golden_case_fits_double(struct qm_conform *c, const char *name, enum qm_param_format format,
                               const double *x, int64_t n)
{
    for (int64_t i = 0; x && i < n; i++)
        if (!fits(c, name, format, x[i], i))
            return 0;
    return x != NULL;
}

float *qm_golden_case_floats_of(struct qm_conform *c, const char *name, int64_t numel,
                                enum qm_param_format format)
{
    float *x = qm_golden_case_floats(c, name, numel);
    return qm_golden_case_fits(c, name, format, x, x ? qm_golden_case_numel(c, name) : 0) ? x
                                                                                          : NULL;
}

uint64_t *qm_golden_case_halves(struct qm_conform *c, const char *name, int64_t numel)
{
    uint64_t *bits = qm_golden_case_words(c, name, numel);
    int64_t n = bits ? qm_golden_case_numel(c, name) : 0;
    for (int64_t i = 0; i < n; i++)
        if (bits[i] > 0xffff) {
            (void)qm_fail(QM_BAD_FILE, "%s of %s: number %lld is 0x%llx, more than 16 bits", name,
                          c->group, (long long)i, (unsigned long long)bits[i]);
            qm_golden_case_failed(c);
            return NULL;
        }
    return bits;
}

float *qm_golden_case_stored(struct qm_conform *c, const char *name, int64_t numel,
                             enum qm_param_format format)
{
    char path[2 * QM_GOLDEN_PATH];
    struct qm_shape s;
    if (format == QM_PARAM_f32)
        return qm_golden_case_floats(c, name, numel);
    if (!qm_golden_case_open(c) || !qm_golden_case_shape(c, name, &s))
        return NULL;
    int64_t n = qm_shape_numel(&s);
    uint64_t *bits = qm_golden_case_memory(c, n, sizeof *bits);
    float *out = qm_golden_case_memory(c, n, sizeof *out);
    if (!bits || !out)
        return NULL;
    dataset_path(c, name, path, sizeof path);
    if (qm_golden_read(c->file, path, QM_DTYPE_u64, bits) != QM_OK) /* no integers: their values */
        return qm_golden_case_floats_of(c, name, numel, format);
    bits = qm_golden_case_halves(c, name, numel);
    for (int64_t i = 0; bits && i < n; i++)
        out[i] = qm_param_widen(format, (uint32_t)bits[i]);
    return bits ? out : NULL;
}

/* 1 where the attribute is absent, or what is expected, of `count` elements; otherwise the case is
 * unreadable. */
static int attribute_is(struct qm_conform *c, const char *name, enum qm_golden_attribute want,
                        int count)
{
    int64_t n;
    char expected[32], list[48];
    enum qm_golden_attribute is = qm_golden_attribute(c->file, c->group, name, &n);
    if (is == QM_GOLDEN_ABSENT || (is == want && n == count))
        return 1;
    snprintf(expected, sizeof expected, count == 1 ? "one number" : "%d numbers", count);
    snprintf(list, sizeof list, "a list of numbers, %lld", (long long)n);
    (void)qm_fail(QM_BAD_FILE, "attribute %s of %s is %s, expected %s", name, c->group,
                  is == QM_GOLDEN_TEXT      ? "a text"
                  : is == QM_GOLDEN_NUMBERS ? (n == 1 ? "a number" : list)
                  : want == QM_GOLDEN_TEXT  ? "no text, or one with more behind a NUL"
                                            : "of a type that is not read",
                  want == QM_GOLDEN_TEXT ? "one text" : expected);
    qm_golden_case_failed(c);
    return 0;
}

int qm_golden_case_numbers(struct qm_conform *c, const char *name, int n, double *out)
{
    return attribute_is(c, name, QM_GOLDEN_NUMBERS, n) &&
           qm_golden_numbers(c->file, c->group, name, out, n) == n;
}

int qm_golden_case_unsigned(struct qm_conform *c, const char *name, uint64_t *out)
{
    return attribute_is(c, name, QM_GOLDEN_NUMBERS, 1) &&
           qm_golden_unsigned(c->file, c->group, name, out);
}

/* 1 where one need is met. */
static int need_met(struct qm_conform *c, const struct qm_golden_need *need)
{
    char text[8];
    double x = (double)NAN;
    if (need->kind == QM_NEED_data && !need->may_lack && !qm_golden_case_has(c, need->name)) {
        (void)qm_fail(QM_BAD_FILE, "there is no dataset %s in %s", need->name, c->group);
        return 0;
    }
    if (need->kind == QM_NEED_data)
        return 1;
    int is_text = need->kind == QM_NEED_text;
    if (!attribute_is(c, need->name, is_text ? QM_GOLDEN_TEXT : QM_GOLDEN_NUMBERS, 1))
        return 0;
    int there = is_text ? qm_golden_text(c->file, c->group, need->name, text, sizeof text)
                        : qm_golden_numbers(c->file, c->group, need->name, &x, 1) > 0;
    if ((!there || (!is_text && isnan(x))) && need->may_lack)
        return 1;
    if (there && (is_text || (x >= need->least && x <= need->most)))
        return 1;
    if (is_text)
        (void)qm_fail(QM_BAD_FILE, "attribute %s of %s is missing, expected a text", need->name,
                      c->group);
    else if (!there)
        (void)qm_fail(QM_BAD_FILE, "attribute %s of %s is missing, expected a number", need->name,
                      c->group);
    else
        (void)qm_fail(QM_BAD_FILE, "attribute %s of %s is %g, expected %g to %g", need->name,
                      c->group, x, need->least, need->most);
    return 0;
}

int qm_golden_case_needs(struct qm_conform *c, const struct qm_golden_need *need, int n)
{
    for (int i = 0; i < n && qm_golden_case_open(c); i++)
        if (!need_met(c, &need[i]))
            qm_golden_case_failed(c);
    return qm_golden_case_open(c);
}

int qm_golden_case_one_rate(struct qm_conform *c)
{
    if (qm_golden_case_has(c, "lr_per_step"))
        qm_golden_case_skip(c, "lr_per_step: this system is replayed at one learning rate");
    return qm_golden_case_open(c);
}

void qm_golden_case_step_count(struct qm_conform *c, int64_t steps)
{
    if (!qm_golden_case_has(c, "state_step"))
        return;
    const double *count = qm_golden_case_doubles(c, "state_step", steps);
    for (int64_t t = 1; count && t <= steps; t++)
        if (count[t - 1] != (double)t)
            qm_golden_case_differs(c, "state_step[%lld]: got %lld, want %.9g", (long long)t - 1,
                                   (long long)t, count[t - 1]);
    c->now.compared += count ? steps : 0;
}

double *qm_golden_case_rates(struct qm_conform *c, int64_t steps)
{
    if (!qm_golden_case_has(c, "lr_per_step"))
        return NULL;
    double *rate = qm_golden_case_doubles(c, "lr_per_step", steps);
    for (int64_t t = 0; rate && t < steps; t++)
        if (!isfinite(rate[t])) {
            (void)qm_fail(QM_BAD_FILE, "lr_per_step of %s is %g in step %lld", c->group, rate[t],
                          (long long)t + 1);
            qm_golden_case_failed(c);
        }
    return rate;
}

double qm_golden_case_number(struct qm_conform *c, const char *name, double fallback)
{
    double x;
    return qm_golden_case_numbers(c, name, 1, &x) && !isnan(x) ? x : fallback;
}

int64_t qm_golden_case_whole(struct qm_conform *c, const char *name, int64_t fallback)
{
    double x = qm_golden_case_number(c, name, (double)fallback);
    if (!(fabs(x) < 9e15 && x == floor(x)))
        qm_golden_case_unreadable(c, "attribute %s of %.100s is %.9g, expected a whole number",
                                  name, c->group, x);
    return fabs(x) < 9e15 ? (int64_t)x : fallback;
}

int qm_golden_case_int(struct qm_conform *c, const char *name, int fallback)
{
    int64_t x = qm_golden_case_whole(c, name, fallback);
    if (x < INT_MIN || x > INT_MAX) {
        qm_golden_case_unreadable(c, "attribute %s of %.100s is %lld", name, c->group,
                                  (long long)x);
        return fallback;
    }
    return (int)x;
}

int qm_golden_case_text(struct qm_conform *c, const char *name, char *out, size_t size)
{
    out[0] = '\0';
    return attribute_is(c, name, QM_GOLDEN_TEXT, 1) &&
           qm_golden_text(c->file, c->group, name, out, size);
}

int qm_golden_case_choice(struct qm_conform *c, const char *name, const char *const *word, int n,
                          int absent)
{
    char text[64], list[160] = "";
    if (!qm_golden_case_text(c, name, text, sizeof text))
        return qm_golden_case_open(c) ? absent : -1;
    for (int i = 0; i < n; i++) {
        size_t used = strlen(list);
        if (strcmp(text, word[i]) == 0)
            return i;
        snprintf(list + used, sizeof list - used, "%s%s", i ? ", " : "", word[i]);
    }
    qm_golden_case_unreadable(c, "attribute %s of %.100s is '%.40s', expected one of %s", name,
                              c->group, text, list);
    return -1;
}
