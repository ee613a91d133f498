/* rate_file.c - Reads and writes files of tuned learning rates. */
#include "experiments/run/rate_file.h"

#include "core/base/sha256.h"
#include "experiments/cli/cli.h"
#include "experiments/foreign/text_file.h"
#include "experiments/machine/shipped_files.h"
#include "experiments/store/atomic_file.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { VERSION = 1, SUM = 17 };

/* ---- checks ---------------------------------------------------------------------------------- */

/* The sum of what a file says beside it; 0: no memory. */
static int sum_of(json_t *file, char sum[SUM])
{
    char hex[65], *text = qm_json_without(file, "sum");
    if (!text)
        return 0;
    qm_sha256_of(text, strlen(text), hex);
    snprintf(sum, SUM, "%.16s", hex);
    free(text);
    return 1;
}

/* QM_BAD_FILE: a key that the file does not have, as one of these with a flipped bit. */
static qm_status check_keys(const char *path, json_t *file)
{
    static const char *const keys[] = {"qualm_rates", "rates", "suite", "sum"};
    const char *key;
    json_t *value;
    json_object_foreach (file, key, value) {
        int i = 0;
        while (i < 4 && strcmp(key, keys[i]) != 0)
            i++;
        if (i == 4)
            return qm_fail(QM_BAD_FILE,
                           "%s: key '%.40s', expected qualm_rates, rates, suite and sum alone",
                           path, key);
    }
    return QM_OK;
}

static qm_status check_sum(const char *path, json_t *file)
{
    char sum[SUM];
    json_t *stored = json_object_get(file, "sum");
    if (!stored)
        return QM_OK;
    if (!sum_of(file, sum))
        return qm_fail(QM_NO_MEMORY, "%s: rates", path);
    const char *said = json_string_value(stored);
    return said && strcmp(said, sum) == 0
               ? QM_OK
               : qm_fail(QM_BAD_FILE,
                         "%s: was damaged or changed after it was written: its sum is %.16s, what "
                         "it says has %s; qualm tune --fresh makes it anew",
                         path, said ? said : "no text", sum);
}

static double number_or(const json_t *value, double other)
{
    return json_is_number(value) ? json_number_value(value) : other;
}

/* Checks the rate of an entry that has a curve: QM_BAD_FILE unless qm_rate_choose takes it. */
static qm_status check_curve(const char *path, const char *key, const json_t *entry)
{
    struct qm_rate_point point[QM_RATE_POINTS];
    const json_t *curve = json_object_get(entry, "curve"), *near = json_object_get(entry, "near");
    double rate = json_number_value(json_object_get(entry, "rate"));
    int n = 0;
    size_t i;
    json_t *value;
    if (!curve)
        return QM_OK;
    if (!json_is_array(curve) || json_array_size(curve) > QM_RATE_POINTS)
        return qm_fail(QM_BAD_FILE, "%s: '%.200s': its curve is no list of at most %d points", path,
                       key, QM_RATE_POINTS);
    json_array_foreach (curve, i, value)
        point[n++] = (struct qm_rate_point){number_or(json_array_get(value, 0), 0.0),
                                            number_or(json_array_get(value, 1), HUGE_VAL),
                                            number_or(json_array_get(value, 2), 0.0)};
    int chosen = qm_rate_choose(point, n, json_number_value(near)), own = -1;
    for (int j = 0; j < n; j++)
        own = point[j].rate == qm_rate_rounded(rate) ? j : own;
    int is_lowest = own >= 0 && (chosen < 0 || (!near && point[own].loss <= point[chosen].loss));
    if (is_lowest || (own >= 0 && own == chosen) || json_is_true(json_object_get(entry, "edge")))
        return QM_OK;
    const char *is = own >= 0 ? "not the one that its curve gives" : "no point of its curve";
    if (chosen < 0)
        return qm_fail(QM_BAD_FILE, "%s: '%.200s': its rate %.6g is %s", path, key, rate, is);
    return qm_fail(QM_BAD_FILE, "%s: '%.200s': its rate %.6g is %s; expected %.6g, the %s", path,
                   key, rate, is, point[chosen].rate,
                   near ? "nearest to the twin's of those that cannot be told apart from the lowest"
                        : "rate with the lowest loss");
}

/* Adds the entries of a list to rates. */
static qm_status take_entries(const char *path, const json_t *list, json_t *rates)
{
    size_t i;
    json_t *entry;
    json_array_foreach (list, i, entry) {
        const char *key = json_string_value(json_object_get(entry, "key"));
        double rate = json_number_value(json_object_get(entry, "rate"));
        if (!key || !(rate > 0.0 && rate < 1e30))
            return qm_fail(QM_BAD_FILE, "%s: entry %zu of rates has no key or no rate", path,
                           i + 1);
        if (json_object_get(rates, key))
            return qm_fail(QM_BAD_FILE, "%s: two rates for '%.200s'", path, key);
        QM_TRY(check_curve(path, key, entry));
        json_object_set(rates, key, entry);
    }
    return QM_OK;
}

/* ---- files ----------------------------------------------------------------------------------- */

/* Reads the JSON of a file that is there. */
static qm_status load(const char *path, json_t **out)
{
    json_error_t why;
    FILE *f = NULL;
    qm_status st = qm_text_open(path, &f);
    if (st == QM_BAD_ARG) /* nested too deep, which is no mistake in a suite here */
        return QM_BAD_FILE;
    QM_TRY(st);
    if (!(*out = json_loadf(f, JSON_REJECT_DUPLICATES, &why)))
        st = qm_fail(QM_BAD_FILE, "%s:%d: no file of `qualm tune`, which is JSON: %s", path,
                     why.line, why.text);
    fclose(f);
    return st;
}

qm_status qm_rate_file_read(const char *path, json_t **out)
{
    json_t *rates = json_object(), *file = NULL;
    qm_status st = rates ? QM_OK : qm_fail(QM_NO_MEMORY, "rates");
    if (st == QM_OK && access(path, F_OK) == 0)
        st = load(path, &file);
    json_t *list = json_object_get(file, "rates");
    if (st == QM_OK && file &&
        (json_integer_value(json_object_get(file, "qualm_rates")) != VERSION ||
         !json_is_array(list)))
        st = qm_fail(QM_BAD_FILE, "%s: no file of qualm tune, or of another version", path);
    if (st == QM_OK && file)
        st = check_keys(path, file);
    if (st == QM_OK && file)
        st = check_sum(path, file);
    if (st == QM_OK)
        st = take_entries(path, list, rates);
    if (st == QM_OK && file && !json_object_get(file, "sum"))
        qm_note("%s: has no checksum, as one written by hand; whether it was changed is not known",
                path);
    json_decref(file);
    if (st == QM_OK)
        *out = rates;
    else
        json_decref(rates);
    return st;
}

void qm_rate_file_set(json_t *rates, const struct qm_rate_unit *u, uint64_t first_seed, int seeds)
{
    char text[48];
    json_t *curve = json_array();
    for (int i = 0; i < QM_RATE_POINTS; i++) {
        const struct qm_rate_point *p = &u->point[i];
        if (isnan(p->loss))
            continue;
        json_t *point = json_pack("[f, o]", qm_rate_rounded(p->rate),
                                  isinf(p->loss) ? json_null() : json_real(p->loss));
        json_array_append_new(point, isnan(p->margin) ? json_null() : json_real(p->margin));
        json_array_append_new(curve, point);
    }
    snprintf(text, sizeof text, "%llu..%llu", (unsigned long long)first_seed,
             (unsigned long long)first_seed + (unsigned long long)seeds - 1);
    json_t *entry =
        json_pack("{s:s, s:f, s:b, s:s, s:o}", "key", u->key, "rate", qm_rate_at(u->chosen), "edge",
                  u->is_edge, "seeds", text, "curve", curve);
    if (!u->is_twin)
        json_object_set_new(entry, "near", json_real(qm_rate_at(u->centre)));
    json_object_set_new(rates, u->key, entry);
}

static int by_key(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

qm_status qm_rate_file_write(const char *path, const char *suite, const json_t *rates)
{
    size_t n = json_object_size(rates), i = 0;
    const char **key = calloc(n + 1, sizeof *key), *name;
    json_t *list = json_array(), *entry;
    struct qm_atomic_file file;
    if (!key || !list) {
        free(key);
        json_decref(list);
        return qm_fail(QM_NO_MEMORY, "rates");
    }
    json_object_foreach ((json_t *)(uintptr_t)rates, name, entry)
        key[i++] = name;
    qsort(key, n, sizeof *key, by_key);
    for (i = 0; i < n; i++)
        json_array_append(list, json_object_get(rates, key[i]));
    json_t *all =
        json_pack("{s:i, s:s, s:o}", "qualm_rates", VERSION, "suite", suite, "rates", list);
    char sum[SUM];
    int is_summed = all && sum_of(all, sum) && !json_object_set_new(all, "sum", json_string(sum));
    char *text = is_summed ? json_dumps(all, JSON_INDENT(1) | JSON_REAL_PRECISION(17)) : NULL;
    qm_status st = text ? qm_atomic_file_open(path, &file) : qm_fail(QM_NO_MEMORY, "rates");
    if (st == QM_OK) {
        st = qm_atomic_file_write(&file, text, strlen(text));
        if (st == QM_OK)
            st = qm_atomic_file_write(&file, "\n", 1);
        if (st == QM_OK)
            st = qm_atomic_file_commit(&file);
        if (st != QM_OK)
            qm_atomic_file_abort(&file);
    }
    free(text);
    json_decref(all);
    free(key);
    return st;
}

/* A seed of the suite that rates were tuned on, too, -1 for none.  said: "901..908". */
static long long tuned_seed(const struct qm_suite *s, const char *said)
{
    const struct qm_axis *a = &s->axis[qm_suite_axis(s, "seed")];
    long long first, last;
    if (sscanf(said, "%lld..%lld", &first, &last) != 2)
        return -1;
    for (int i = 0; i < a->n; i++) {
        long long seed = strtoll(a->value[i].text, NULL, 10);
        if (seed >= first && seed <= last)
            return seed;
    }
    return -1;
}

/* Notes that the runs of a suite chose their own rate. */
static void note_seeds(const struct qm_suite *s, const char *path, const json_t *rates)
{
    const char *key, *last = "";
    json_t *entry;
    json_object_foreach ((json_t *)(uintptr_t)rates, key, entry) {
        const char *said = json_string_value(json_object_get(entry, "seeds"));
        if (!said || strcmp(said, last) == 0)
            continue;
        long long seed = tuned_seed(s, last = said);
        if (seed >= 0) {
            qm_note(
                "%s: rates were tuned on seeds %.40s, of which the suite runs %lld: its results "
                "chose their own rate, and look better than they are; take other seeds",
                path, said, seed);
            return;
        }
    }
}

/* Notes how many rates of variants are not the lowest points of their curves. */
static void note_margins(const char *path, const json_t *rates)
{
    const char *key;
    json_t *entry, *point;
    long long variants = 0, within = 0;
    size_t i;
    json_object_foreach ((json_t *)(uintptr_t)rates, key, entry) {
        double own = HUGE_VAL, least = HUGE_VAL;
        const double rate = json_number_value(json_object_get(entry, "rate"));
        if (!json_object_get(entry, "near") || json_is_true(json_object_get(entry, "edge")))
            continue;
        json_array_foreach (json_object_get(entry, "curve"), i, point) {
            double loss = number_or(json_array_get(point, 1), HUGE_VAL);
            least = loss < least ? loss : least;
            if (json_number_value(json_array_get(point, 0)) == qm_rate_rounded(rate))
                own = loss;
        }
        variants++;
        within += own > least;
    }
    if (within)
        qm_note(
            "%s: of its %lld rates of variants %lld are not the lowest of their curves, but the "
            "nearest to the twin's of those that the seeds of tuning cannot tell from it",
            path, variants, within);
}

qm_status qm_rates_attach(struct qm_suite *s, const char *from)
{
    char name[PATH_MAX], path[PATH_MAX];
    const char *key;
    json_t *rates, *entry;
    qm_status st = QM_OK;
    from = from && strcmp(from, "none") == 0 ? "" : from;
    if (from && *from && access(from, F_OK) != 0)
        return qm_fail(QM_BAD_FILE, "%s: %s", from, strerror(errno));
    if (from && *from && (s->has_rates || !s->paired)) { /* it has to be a file of rates */
        QM_TRY(qm_rate_file_read(from, &rates));
        json_decref(rates);
        qm_note("%s: the rates of %s are not used: the suite %s", s->stem, from,
                s->paired ? "has its own" : "has no protocol: paired");
    }
    if (s->other_rates && !s->paired)
        return qm_fail(QM_BAD_ARG, "%s: rates: a suite without protocol: paired has no use for any",
                       s->path);
    if (s->has_rates || !s->paired || (from && !*from))
        return QM_OK;
    const char *stem = s->other_rates ? s->other_rates : s->stem;
    snprintf(path, sizeof path, "results/rates/%.255s.json", stem);
    if (from)
        snprintf(path, sizeof path, "%s", from);
    else if (access(path, F_OK) != 0) {
        snprintf(name, sizeof name, "experiments/rates/%.255s.json", stem);
        qm_shipped(name, path, sizeof path);
    }
    if (s->other_rates && !from && access(path, F_OK) != 0)
        return qm_fail(QM_BAD_ARG, "%s: no rates were tuned for a suite '%s' (results/rates, %s)",
                       s->path, stem, path);
    QM_TRY(qm_rate_file_read(path, &rates));
    json_object_foreach (rates, key, entry) {
        if (st == QM_OK && !json_is_true(json_object_get(entry, "edge")))
            st = qm_suite_add_rate(s, key, json_number_value(json_object_get(entry, "rate")));
    }
    qm_suite_sort_rates(s);
    note_seeds(s, path, rates);
    note_margins(path, rates);
    json_decref(rates);
    return st;
}
