/* report.c - Derives verdict, ties, intervals and special values of a proof, as JSON and table. */
#include "experiments/prove/report.h"

#include <string.h>

#include "experiments/cli/cli.h"

/* A JSON string, printed. */
static json_t *formatted(const char *format, ...) __attribute__((format(printf, 1, 2)));
static json_t *formatted(const char *format, ...)
{
    char line[128];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    return json_string(line);
}

static double at(int32_t key) { return (double)qm_unordered(key); }

/* ---- counts ---------------------------------------------------------------------------------- */

static int64_t wrong_inside(const struct qm_routine *r, const struct qm_record *p,
                            enum qm_claim_name claim)
{
    return qm_record_wrong(p, claim, qm_claims_inside(&r->claims), QM_ZONE_positive);
}

static int64_t without_code(const struct qm_record *p)
{
    int64_t sum = 0;
    for (int z = 0; z < QM_ZONE_COUNT; z++)
        sum += p->count[z][QM_POSITIONS];
    return sum;
}

/* Floats that violate the definition where it binds: inside the range, and NaN. */
static int64_t not_as_defined(const struct qm_routine *r, const struct qm_record *p)
{
    const int64_t *wrong = p->wrong[QM_CLAIM_definition];
    return wrong_inside(r, p, QM_CLAIM_definition) + wrong[QM_ZONE_nan_minus] +
           wrong[QM_ZONE_nan_plus] + wrong_inside(r, p, QM_CLAIM_engine);
}

int qm_proof_holds(const struct qm_routine *r, const struct qm_record *p)
{
    return not_as_defined(r, p) == 0 && without_code(p) == 0 &&
           !(r->kernel && wrong_inside(r, p, QM_CLAIM_nearest));
}

/* ---- special values -------------------------------------------------------------------------- */

/* The codes of the zones from .. to, ascending: "7", "0 15", "0 1 2 3 .. 15 (16 codes)". */
static json_t *codes_of(const struct qm_record *p, enum qm_zone from, enum qm_zone to)
{
    char line[96] = "";
    int n = 0, last = 0;
    size_t used = 0;
    for (int k = 0; k <= QM_POSITIONS; k++) {
        int64_t count = 0;
        for (int z = (int)from; z <= (int)to; z++)
            count += p->count[z][k];
        if (count == 0)
            continue;
        if (n < 4 && k < QM_POSITIONS)
            used += (size_t)snprintf(line + used, sizeof line - used, "%s%d", n ? " " : "", k);
        if (k == QM_POSITIONS)
            used += (size_t)snprintf(line + used, sizeof line - used, "%sno code", n ? " " : "");
        else
            last = k;
        n++;
    }
    if (n > 4)
        snprintf(line + used, sizeof line - used, " .. %d (%d codes)", last, n);
    return n ? json_string(line) : json_null();
}

static json_t *special(const struct qm_record *p)
{
    int distinct = 0;
    for (int k = 0; k <= QM_POSITIONS; k++)
        distinct += p->count[QM_ZONE_nan_minus][k] + p->count[QM_ZONE_nan_plus][k] > 0;
    return json_pack("{s:o, s:o, s:i, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "nan",
                     codes_of(p, QM_ZONE_nan_plus, QM_ZONE_nan_plus), "nan_with_sign",
                     codes_of(p, QM_ZONE_nan_minus, QM_ZONE_nan_minus), "nan_codes", distinct,
                     "plus_inf", codes_of(p, QM_ZONE_inf_plus, QM_ZONE_inf_plus), "minus_inf",
                     codes_of(p, QM_ZONE_inf_minus, QM_ZONE_inf_minus), "above_range",
                     codes_of(p, QM_ZONE_above, QM_ZONE_above), "below_range",
                     codes_of(p, QM_ZONE_below, QM_ZONE_below), "minus_zero",
                     codes_of(p, QM_ZONE_zero_minus, QM_ZONE_zero_minus), "plus_zero",
                     codes_of(p, QM_ZONE_zero_plus, QM_ZONE_zero_plus), "negative_subnormals",
                     codes_of(p, QM_ZONE_tiny_minus, QM_ZONE_tiny_minus), "positive_subnormals",
                     codes_of(p, QM_ZONE_tiny_plus, QM_ZONE_tiny_plus));
}

/* ---- ties ------------------------------------------------------------------------------------ */

struct ties {
    int64_t n, up, even, outward;
};

static struct ties count_ties(const struct qm_routine *r, const struct qm_record *p)
{
    struct ties t = {0, 0, 0, 0};
    const double *value = r->claims.value;
    for (int64_t i = 0; i < p->ties.n; i++) {
        const struct qm_span *s = &p->ties.span[i];
        int64_t n = (int64_t)s->last - s->first + 1;
        int up = value[s->got] == value[s->high];
        t.n += n;
        t.up += up ? n : 0;
        t.even += s->got % 2 == 0 ? n : 0;
        t.outward += up == (value[s->low] + value[s->high] >= 0.0) ? n : 0;
    }
    return t;
}

static const char *tie_rule(const struct ties *t)
{
    return t->n == 0            ? "none"
           : t->up == t->n      ? "up"
           : t->up == 0         ? "down"
           : t->even == t->n    ? "even"
           : t->outward == t->n ? "away from zero"
                                : "mixed";
}

/* ---- intervals ------------------------------------------------------------------------------- */

static json_t *intervals(const struct qm_routine *r, const struct qm_spans *s, int most)
{
    json_t *all = json_array();
    for (int64_t i = 0; i < s->n && i < most; i++) {
        const struct qm_span *x = &s->span[i];
        char want[24];
        double first = qm_excess(&r->claims, at(x->first), x->got, x->low);
        double last = qm_excess(&r->claims, at(x->last), x->got, x->low);
        snprintf(want, sizeof want, x->low == x->high ? "%d" : "%d..%d", x->low, x->high);
        json_array_append_new(
            all, json_pack("{s:o, s:o, s:o, s:o, s:I, s:i, s:s, s:o}", "from",
                           formatted("%.9g", at(x->first)), "to", formatted("%.9g", at(x->last)),
                           "from_hex", formatted("%a", at(x->first)), "to_hex",
                           formatted("%a", at(x->last)), "floats",
                           (json_int_t)((int64_t)x->last - x->first + 1), "got", (int)x->got,
                           "want", want, "excess", qm_json_number(first > last ? first : last)));
    }
    return all;
}

static const char *verdict(const struct qm_routine *r, const struct qm_record *p)
{
    int is_nearest = wrong_inside(r, p, QM_CLAIM_nearest) == 0;
    if (!qm_proof_holds(r, p))
        return without_code(p)            ? "WRONG: gives no code"
               : !r->kernel || is_nearest ? "WRONG: not as defined"
                                          : "WRONG: not nearest";
    if (!is_nearest)
        return "not nearest, as defined";
    return p->floats == (int64_t)QM_KEY_LAST - QM_KEY_FIRST + 1 ? "nearest"
                                                                : "nearest, of those run";
}

json_t *qm_proof_json(const struct qm_routine *r, const char *name, const struct qm_record *p,
                      double seconds, int most)
{
    struct ties t = count_ties(r, p);
    const struct qm_spans *wrong = &p->missed[QM_CLAIM_nearest];
    int64_t n = wrong_inside(r, p, QM_CLAIM_nearest);
    enum qm_zone inside = qm_claims_inside(&r->claims);
    json_t *o = json_pack(
        "{s:s, s:s, s:b, s:i, s:o, s:I, s:I, s:I, s:o, s:o, s:o, s:o, s:I, s:s, s:I, s:I, s:I, "
        "s:I, "
        "s:I, s:I}",
        "routine", name, "verdict", verdict(r, p), "holds", qm_proof_holds(r, p), "entries",
        r->claims.n, "range",
        formatted("[%.9g, %.9g]", (double)r->claims.low, (double)r->claims.high), "floats",
        (json_int_t)p->floats, "wrong", (json_int_t)n, "intervals",
        (json_int_t)(wrong->n + wrong->left_out), "first_wrong",
        n ? formatted("%.9g", at(p->first_wrong)) : json_null(), "last_wrong",
        n ? formatted("%.9g", at(p->last_wrong)) : json_null(), "worst_excess",
        qm_json_number(p->worst), "worst_at", n ? formatted("%.9g", at(p->worst_key)) : json_null(),
        "ties", (json_int_t)t.n, "ties_go", tie_rule(&t), "ties_up", (json_int_t)t.up, "ties_even",
        (json_int_t)t.even, "wrong_below_range",
        (json_int_t)qm_record_wrong(p, QM_CLAIM_nearest, QM_ZONE_inf_minus, inside - 1),
        "wrong_above_range",
        (json_int_t)qm_record_wrong(p, QM_CLAIM_nearest, QM_ZONE_above, QM_ZONE_inf_plus),
        "no_code", (json_int_t)without_code(p), "not_as_defined", (json_int_t)not_as_defined(r, p));
    json_object_set_new(o, "seconds", json_real(seconds));
    json_object_set_new(o, "special", special(p));
    json_object_set_new(o, "wrong_intervals", intervals(r, wrong, most));
    json_object_set_new(o, "wrong_outside_intervals",
                        intervals(r, &p->outside, most < 4 ? most : 4));
    json_object_set_new(o, "not_as_defined_intervals",
                        intervals(r, &p->missed[QM_CLAIM_definition], most));
    json_object_set_new(o, "not_as_engine_intervals",
                        intervals(r, &p->missed[QM_CLAIM_engine], most));
    return o;
}

/* ---- many ------------------------------------------------------------------------------------ */

static const char *cell(json_t *from, const char *key)
{
    static char number[8][32];
    static int k;
    json_t *v = json_object_get(from, key);
    if (json_is_string(v))
        return json_string_value(v);
    if (!v || json_is_null(v))
        return "-";
    char *out = number[k = (k + 1) % 8];
    if (json_is_integer(v))
        snprintf(out, sizeof number[0], "%lld", (long long)json_integer_value(v));
    else
        snprintf(out, sizeof number[0], "%.4g", json_number_value(v));
    return out;
}

void qm_proof_table(json_t *proofs)
{
    static const char *const heads[] = {
        "routine", "wrong", "intervals", "worst excess",  "at",     "ties", "go",
        "NaN",     "+Inf",  "-Inf",      "wrong outside", "verdict"};
    static const char *const keys[] = {"routine",  "wrong", "intervals", "worst_excess",
                                       "worst_at", "ties",  "ties_go"};
    struct qm_table *t = qm_table_open(sizeof heads / sizeof *heads, heads);
    json_t *o;
    size_t i;
    json_array_foreach (proofs, i, o) {
        json_t *s = json_object_get(o, "special");
        for (size_t k = 0; k < sizeof keys / sizeof *keys; k++)
            qm_table_cell(t, "%s", cell(o, keys[k]));
        qm_table_cell(t, "%s", cell(s, "nan"));
        qm_table_cell(t, "%s", cell(s, "plus_inf"));
        qm_table_cell(t, "%s", cell(s, "minus_inf"));
        qm_table_cell(t, "%lld",
                      (long long)(json_integer_value(json_object_get(o, "wrong_below_range")) +
                                  json_integer_value(json_object_get(o, "wrong_above_range"))));
        qm_table_cell(t, "%s", cell(o, "verdict"));
    }
    qm_table_close(t);
}
