/* match_recorded.c - Compares computed values, codes and quantizers with recorded ones. */
#include "experiments/conform/conform.h"

#include <math.h>
#include <stdarg.h>
#include <string.h>

static int same_float(float a, float b)
{
    return qm_bits(a) == qm_bits(b) || (qm_isnan(a) && qm_isnan(b));
}

/* An error of at most `allowed` makes the case near; a larger one makes it differ.  HUGE_VAL: the
 * number may be any, NaN too. */
static void weigh(struct qm_conform *c, const char *what, int64_t i, double got, double want,
                  double error, double allowed)
{
    if (error <= allowed || allowed == HUGE_VAL) {
        double share = allowed > 0 && allowed < HUGE_VAL ? error / allowed : 0;
        if (share < c->now.worst)
            return;
        c->now.worst = share;
        c->now.outcome = QM_CONFORM_near;
        if (error > 0.0)
            snprintf(c->now.text, sizeof c->now.text, "%s[%lld] off by %.2g, allowed %.2g", what,
                     (long long)i, error, allowed);
        else
            snprintf(c->now.text, sizeof c->now.text, "%s[%lld]: the sign of a zero", what,
                     (long long)i);
        return;
    }
    qm_golden_case_differs(c, "%s[%lld]: got %.9g, want %.9g: off by %.3g, allowed %.3g", what,
                           (long long)i, got, want, error, allowed);
}

/* Zeros of different signs are near, as with the tolerances below. */
void qm_match_floats(struct qm_conform *c, const char *what, const float *got, const float *want,
                     int64_t n)
{
    if (!got || !want)
        return;
    for (int64_t i = 0; i < n && qm_golden_case_open(c); i++)
        if (got[i] == 0.0f && want[i] == 0.0f && !same_float(got[i], want[i]))
            weigh(c, what, i, 0.0, 0.0, 0.0, 0.0);
        else if (!same_float(got[i], want[i]))
            qm_golden_case_differs(c, "%s[%lld]: got 0x%08x (%.9g), want 0x%08x (%.9g)", what,
                                   (long long)i, qm_bits(got[i]), (double)got[i], qm_bits(want[i]),
                                   (double)want[i]);
    c->now.compared += n;
}

void qm_match_codes(struct qm_conform *c, const char *what, const uint8_t *got, const int64_t *want,
                    int64_t n)
{
    if (!got || !want)
        return;
    for (int64_t i = 0; i < n && qm_golden_case_open(c); i++)
        if (got[i] != want[i])
            qm_golden_case_differs(c, "%s[%lld]: got 0x%02x, want 0x%02llx", what, (long long)i,
                                   got[i], (unsigned long long)want[i]);
    c->now.compared += n;
}

void qm_match_words(struct qm_conform *c, const char *what, const uint64_t *got,
                    const uint64_t *want, int64_t n)
{
    if (!got || !want)
        return;
    for (int64_t i = 0; i < n && qm_golden_case_open(c); i++)
        if (got[i] != want[i])
            qm_golden_case_differs(c, "%s[%lld]: got 0x%08llx, want 0x%08llx", what, (long long)i,
                                   (unsigned long long)got[i], (unsigned long long)want[i]);
    c->now.compared += n;
}

void qm_match_close(struct qm_conform *c, const char *what, const float *got, const float *want,
                    int64_t n, double relative, double absolute)
{
    if (!got || !want)
        return;
    for (int64_t i = 0; i < n && qm_golden_case_open(c); i++) {
        double g = (double)got[i], w = (double)want[i];
        if (!same_float(got[i], want[i]))
            weigh(c, what, i, g, w, fabs(g - w), relative * fabs(w) + absolute);
    }
    c->now.compared += n;
}

double qm_match_take(struct qm_conform *c, const char *what, int64_t i, double got, double want)
{
    if (got != want && !(isnan(got) && isnan(want)) && c->now.outcome == QM_CONFORM_equal) {
        c->now.outcome = QM_CONFORM_near;
        snprintf(c->now.text, sizeof c->now.text,
                 "%s[%lld]: %.9g here, and what may be off is rounded to %.9g", what, (long long)i,
                 got, want);
    }
    return want;
}

void qm_match_close_each(struct qm_conform *c, const char *what, const float *got,
                         const float *want, const double *allowed, int64_t n)
{
    if (!got || !want || !allowed)
        return;
    for (int64_t i = 0; i < n && qm_golden_case_open(c); i++) {
        double g = (double)got[i], w = (double)want[i];
        if (!same_float(got[i], want[i]))
            weigh(c, what, i, g, w, fabs(g - w), allowed[i]);
    }
    c->now.compared += n;
}

void qm_match_close_double(struct qm_conform *c, const char *what, const double *got,
                           const double *want, int64_t n, double absolute)
{
    if (!got || !want)
        return;
    for (int64_t i = 0; i < n && qm_golden_case_open(c); i++)
        if (memcmp(&got[i], &want[i], sizeof *got) != 0 && !(isnan(got[i]) && isnan(want[i])))
            weigh(c, what, i, got[i], want[i], fabs(got[i] - want[i]), absolute);
    c->now.compared += n;
}

void qm_match_add_step(struct qm_match_seen *s, double got, double want, double before,
                       double allowed)
{
    double step = fabs(got - before);
    s->off += got != want && !(isnan(got) && isnan(want));
    s->moves += isfinite(step) && step > 0.0;
    s->seen += isfinite(step) && step > allowed;
}

void qm_match_note_step(struct qm_conform *c, int64_t t, const struct qm_match_seen *s)
{
    if (s->off > 0 && s->moves > 0 && s->seen == 0 && c->now.unseen == 0)
        c->now.unseen = t;
}

void qm_match_steps(struct qm_conform *c, int64_t t, const float *got, const float *want,
                    const float *before, const double *allowed, int64_t n)
{
    struct qm_match_seen s = {0, 0, 0};
    for (int64_t i = 0; i < n; i++)
        qm_match_add_step(&s, (double)got[i], (double)want[i], (double)before[i], allowed[i]);
    qm_match_note_step(c, t, &s);
}

double qm_match_step(double change, double decay, double old)
{
    double taken = fabs(decay * old);
    return (isfinite(change) ? fabs(change) : 0.0) + (isfinite(taken) ? taken : 0.0);
}

double qm_match_root_share(double v, double off, double by, double eps)
{
    double least = by * sqrt(fmax(v - off, 0.0)) + eps, root = by * sqrt(v) + eps;
    return off <= 0.0 ? 0.0 : least > 0.0 ? root / least - 1.0 : HUGE_VAL;
}

double qm_match_largest(const float *x, int64_t n)
{
    double m = 0.0;
    for (int64_t i = 0; i < n; i++)
        m = isfinite(x[i]) ? fmax(m, fabs((double)x[i])) : m;
    return m;
}

double qm_match_largest_double(const double *x, int64_t n)
{
    double m = 0.0;
    for (int64_t i = 0; i < n; i++)
        m = isfinite(x[i]) ? fmax(m, fabs(x[i])) : m;
    return m;
}

double qm_match_subnormal(double most, int64_t n)
{
    return most > 0.0 && most < 0x1p-100 ? 4.0 * 0x1p-149 * sqrt((double)n) / most : 0.0;
}

void qm_match_close_double_each(struct qm_conform *c, const char *what, const double *got,
                                const double *want, const double *allowed, int64_t n)
{
    if (!got || !want || !allowed)
        return;
    for (int64_t i = 0; i < n && qm_golden_case_open(c); i++)
        if (memcmp(&got[i], &want[i], sizeof *got) != 0 && !(isnan(got[i]) && isnan(want[i])))
            weigh(c, what, i, got[i], want[i], fabs(got[i] - want[i]), allowed[i]);
    c->now.compared += n;
}

void qm_match_count(struct qm_conform *c, const char *what, int64_t off, int64_t n)
{
    c->now.compared += n;
    if (off == 0 || !qm_golden_case_open(c))
        return;
    if (c->now.outcome == QM_CONFORM_equal)
        snprintf(c->now.text, sizeof c->now.text,
                 "%s: %lld of %lld codes off, each within the error of its number", what,
                 (long long)off, (long long)n);
    c->now.outcome = QM_CONFORM_near;
}

/* ---- quantizers ---- */

struct qm_shape qm_shape_flat(int64_t n) { return (struct qm_shape){.rank = 1, .dim = {n}}; }

int qm_golden_case_codec(struct qm_conform *c, struct qm_codec *codec, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(c->now.how, sizeof c->now.how, format, args);
    va_end(args);
    if (qm_codec_parse(codec, c->now.how) == QM_OK)
        return 1;
    qm_golden_case_skip(c, "%.200s: %.100s", c->now.how, qm_message());
    return 0;
}

void qm_codec_table(struct qm_codec *codec, const float *value, int n)
{
    codec->cb.n = n;
    codec->cb.has_cuts = codec->cb.is_permuted = 0;
    codec->cb.zero = -1;
    for (int k = 0; k < n; k++) {
        codec->cb.value[k] = value[k];
        codec->cb.perm[k] = codec->cb.position_of[k] = (uint8_t)k;
        if (value[k] == 0.0f)
            codec->cb.zero = k;
    }
    qm_codec_rebuild(codec);
}

float *qm_golden_case_padded(struct qm_conform *c, const float *x, int64_t n, int64_t block,
                             int64_t *padded)
{
    if (!x || block < 1)
        return NULL;
    *padded = (n + block - 1) / block * block;
    float *out = qm_golden_case_memory(c, *padded, sizeof *out);
    if (out)
        memcpy(out, x, (size_t)n * sizeof *out);
    return out;
}

int64_t *qm_golden_case_unpacked(struct qm_conform *c, enum qm_pack order, int bits,
                                 const int64_t *packed, int64_t n)
{
    int64_t bytes = qm_pack_bytes(order, bits, n);
    uint8_t *b = qm_golden_case_memory(c, bytes, 1), *codes = qm_golden_case_memory(c, n, 1);
    int64_t *out = qm_golden_case_memory(c, n, sizeof *out);
    if (!packed || !b || !codes || !out)
        return NULL;
    for (int64_t i = 0; i < bytes; i++)
        b[i] = (uint8_t)packed[i];
    qm_unpack_codes(order, bits, b, n, codes);
    for (int64_t i = 0; i < n; i++)
        out[i] = codes[i];
    return out;
}

static uint8_t *narrow(struct qm_conform *c, const int64_t *codes, int64_t n)
{
    uint8_t *out = qm_golden_case_memory(c, n, 1);
    for (int64_t i = 0; out && i < n; i++)
        out[i] = (uint8_t)codes[i];
    return out;
}

/* The packed stream may be longer than the tensor; the rest holds the code of 0. */
static void judge_packed(struct qm_conform *c, const struct qm_codec *codec, const uint8_t *codes,
                         int64_t n, const struct qm_golden_run *want)
{
    int bits = codec->q.bits;
    int64_t total =
        codec->q.pack == QM_PACK_byte ? want->packed_bytes : want->packed_bytes * 8 / bits;
    if (total < n) {
        qm_golden_case_differs(c, "packed: %lld bytes recorded for %lld codes",
                               (long long)want->packed_bytes, (long long)n);
        return;
    }
    uint8_t *all = qm_golden_case_memory(c, total, 1),
            *bytes = qm_golden_case_memory(c, total + 1, 1);
    if (!all || !bytes)
        return;
    memcpy(all, codes, (size_t)n);
    memset(all + n, codec->cb.perm[qm_code_of(codec, 0.0f, 0)], (size_t)(total - n));
    qm_pack_codes(codec->q.pack, bits, all, total, bytes);
    qm_match_codes(c, "packed", bytes, want->packed, want->packed_bytes);
}

void qm_take_nan_codes(const struct qm_quantizer *q, const struct qm_codebook *cb,
                       const int64_t *want, int64_t n, uint8_t *codes)
{
    for (int64_t i = 0; i < n && cb->is_float && want; i++)
        if (qm_isnan(qm_unit_value(q, cb, codes[i])) &&
            qm_isnan(qm_unit_value(q, cb, (uint8_t)want[i])))
            codes[i] = (uint8_t)want[i];
}

void qm_match_quantizer(struct qm_conform *c, const struct qm_codec *codec,
                        const struct qm_shape *shape, const float *x,
                        const struct qm_golden_run *want)
{
    if (!qm_golden_case_open(c) || !x)
        return;
    if (qm_codec_fits(codec, shape) != QM_OK) {
        qm_golden_case_skip(c, "%s", qm_message());
        return;
    }
    int64_t n = qm_shape_numel(shape), n_scales = qm_scale_count(codec, shape);
    uint8_t *codes = qm_golden_case_memory(c, n, 1);
    float *scales = qm_golden_case_memory(c, n_scales, sizeof *scales);
    float *out = qm_golden_case_memory(c, n, sizeof *out);
    if (!codes || !scales || !out)
        return;
    qm_status st = qm_encode(codec, shape, x, NULL, codes, scales);
    if (st != QM_OK) {
        qm_golden_case_stopped(c, st);
        return;
    }
    qm_match_floats(c, "scale", scales, want->scales, n_scales);
    qm_take_nan_codes(&codec->q, &codec->cb, want->codes, n, codes);
    qm_match_codes(c, "code", codes, want->codes, n);
    if (want->packed)
        judge_packed(c, codec, codes, n, want);
    if (!want->dequant || !qm_golden_case_open(c))
        return;
    const uint8_t *stored = want->codes ? narrow(c, want->codes, n) : codes;
    const float *by = want->scales ? want->scales : scales;
    if (!stored)
        return;
    qm_decode(codec, shape, stored, by, out);
    qm_match_floats(c, "decoded", out, want->dequant, want->n_dequant);
}

void qm_match_map(struct qm_conform *c, const char *map, int bits, int sign, const float *table,
                  int64_t n)
{
    struct qm_codebook cb;
    float got[256];
    snprintf(c->now.how, sizeof c->now.how, "%s:%d%c", map, bits, sign ? 's' : 'u');
    for (int m = 0; m < QM_MAP_COUNT; m++) {
        if (strcmp(qm_map_names[m], map) != 0)
            continue;
        if (!qm_map_allows((enum qm_map)m, bits, sign)) {
            qm_golden_case_skip(c, "map %s does not exist", c->now.how);
            return;
        }
        qm_codebook_build((enum qm_map)m, bits, sign, &cb);
        for (int k = 0; k < cb.n; k++)
            got[cb.is_permuted ? cb.perm[k] : k] = cb.value[k];
        if (n != cb.n)
            qm_golden_case_differs(c, "%d entries, want %lld", cb.n, (long long)n);
        qm_match_floats(c, "value", got, table, cb.n);
        return;
    }
    qm_golden_case_skip(c, "map %s is not built", map);
}
