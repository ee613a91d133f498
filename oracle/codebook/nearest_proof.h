/* nearest_proof.h - Proves a nearest-code routine on every float32.
 *
 * Floats are numbered by their ordered bits, the key (qm_ordered, core/base/dual.h): key -2^31 is a
 * NaN, then follow the other NaNs with the sign bit, -Inf, the numbers in ascending order with -0
 * just below +0, +Inf and the other NaNs.  A rule of decision changes at finitely many numbers, so
 * over the keys it is a short list of pieces, each with the positions that are right there.  The
 * codes that a routine returns are seldom more than a few hundred runs of one code.  Judging
 * intersects the two lists: it costs little time compared with the routine, and each run is judged
 * as a whole and exactly.
 *
 * Positions refer to the ascending table.  Mid-points of float32 values are formed and compared in
 * double; where the sum of two values is not exact in double, QM_BAD_ARG is returned. */
#ifndef QM_CODEBOOK_NEAREST_PROOF_H
#define QM_CODEBOOK_NEAREST_PROOF_H

#include "core/base/dual.h"
#include "core/base/status.h"

#define QM_KEY_FIRST (-2147483647 - 1)
#define QM_KEY_LAST  2147483647

enum { QM_PIECES = 2048, QM_POSITIONS = 256 };

/* From key `first` up to the key before the next piece's, positions low .. high are right; it is a
 * tie where these positions have different values. */
struct qm_piece {
    int32_t first;
    int16_t low, high;
};
struct qm_decisions {
    int n; /* 0: nothing is claimed */
    struct qm_piece piece[QM_PIECES];
};

/* The smallest key whose float is at least b, or above b; b is a number. */
int64_t qm_key_at_least(double b);
int64_t qm_key_above(double b);

/* Builds the pieces of decide(of, y, &low, &high), which returns the right positions of a number y
 * and may change only at the n numbers of `at`, just below or just above them (any order,
 * repetitions allowed). For NaNs every position below `any` is right.  QM_BAD_ARG: more than
 * QM_PIECES pieces.  QM_NO_MEMORY. */
qm_status qm_decisions_build(void (*decide)(const void *of, double y, int *low, int *high),
                             const void *of, const double *at, int n, int any,
                             struct qm_decisions *out);

/* The pieces of exact nearest rounding to value[n] (ascending float32 values, no NaN): at a
 * mid-point both neighbours are right, of equal values all.  QM_BAD_ARG: a mid-point is not
 * exact in double. */
qm_status qm_decisions_nearest(const double *value, int n, struct qm_decisions *out);

/* Sets the positions that are right for NaNs. */
void qm_decisions_nan(struct qm_decisions *d, int low, int high);

/* clang-format off */
#define QM_ZONE_LIST(X) /* of keys, ascending; "inside" is the routine's own range */          \
    X(nan_minus,   "NaN with the sign bit") X(inf_minus,   "-Inf")                             \
    X(below,       "finite numbers below the range")                                           \
    X(negative,    "negative normal numbers inside") X(tiny_minus,  "negative subnormal numbers") \
    X(zero_minus,  "-0") X(zero_plus,   "+0") X(tiny_plus,   "positive subnormal numbers")     \
    X(positive,    "positive normal numbers inside")                                           \
    X(above,       "finite numbers above the range")                                           \
    X(inf_plus,    "+Inf") X(nan_plus,    "NaN without the sign bit")
#define QM_CLAIM_LIST(X)                                                                   \
    X(nearest,    "the exactly nearest value; at a tie either")                            \
    X(definition, "what the routine's own words and published thresholds say")             \
    X(engine,     "the edges that the engine encodes by")
/* clang-format on */

enum qm_zone {
#define X(name, text) QM_ZONE_##name,
    QM_ZONE_LIST(X)
#undef X
        QM_ZONE_COUNT
};
enum qm_claim_name {
#define X(name, text) QM_CLAIM_##name,
    QM_CLAIM_LIST(X)
#undef X
        QM_CLAIM_COUNT
};

/* What is claimed of one routine, and is to be proved. */
struct qm_claims {
    struct qm_decisions right[QM_CLAIM_COUNT]; /* of each claim */
    int n;                                     /* entries */
    double value[256];                         /* of each position */
    int16_t position_of[256];        /* of each code that the routine may return; -1: no code */
    float low, high;                 /* its range: [-1, 1], [0, 1], or in its own units */
    int64_t zone[QM_ZONE_COUNT + 1]; /* zone z: keys zone[z] .. zone[z + 1] - 1 */
};

/* Fills zone[] from low <= 0 and high > 0. */
void qm_claims_zones(struct qm_claims *c);

/* The first zone inside the range (the last one is `positive`); for unsigned ranges it
 * is zero_minus. */
enum qm_zone qm_claims_inside(const struct qm_claims *c);

/* A maximal interval of keys that got one position (-1: no code) where positions low .. high
 * are right. */
struct qm_span {
    int32_t first, last;
    int16_t got, low, high;
};
/* Spans in ascending order.  A record keeps at most QM_SPANS spans, a merged record
 * QM_SPANS_MERGED; left_out counts the others (once for each record that they lie in). */
enum { QM_SPANS = 4096, QM_SPANS_MERGED = 65536 };
struct qm_spans {
    struct qm_span *span;
    int64_t n, room, left_out;
};

/* What a routine returned, judged. */
struct qm_record {
    int64_t floats;                                 /* that the routine was run on */
    int64_t count[QM_ZONE_COUNT][QM_POSITIONS + 1]; /* by position returned; last: no code */
    int64_t wrong[QM_CLAIM_COUNT][QM_ZONE_COUNT];   /* floats that miss a claim */
    struct qm_spans missed[QM_CLAIM_COUNT];         /* inside the range, and NaNs */
    struct qm_spans outside;                        /* misses of claim nearest beyond the range */
    struct qm_spans ties; /* of claim nearest: positions returned where two are right */
    double worst;         /* largest |y - got| - |y - nearest| inside the range; 0: no miss */
    int32_t worst_key, first_wrong, last_wrong; /* inside the range, of claim nearest */
    int out_of_memory;
};

/* Starts a record; qm_record_close frees its lists and accepts a zeroed record. */
void qm_record_open(struct qm_record *r);
void qm_record_close(struct qm_record *r);

/* Adds code[n], returned for the keys first .. first + n - 1; calls must come in
 * ascending order. */
void qm_record_add(struct qm_record *r, const struct qm_claims *c, int64_t first, int64_t n,
                   const uint8_t *code);

/* Appends the record of the keys that follow; the result equals one record over both. */
void qm_record_merge(struct qm_record *into, const struct qm_record *next);

/* The number of floats that miss a claim in zones from .. to. */
int64_t qm_record_wrong(const struct qm_record *r, enum qm_claim_name claim, enum qm_zone from,
                        enum qm_zone to);

/* |y - value[got]| - |y - value[want]|, exact up to one rounding; got -1: Inf. */
double qm_excess(const struct qm_claims *c, double y, int got, int want);

#endif
