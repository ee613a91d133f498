/* analysis.h - The quantization error of a stored tensor under many quantizers, streamed. */
#ifndef QM_ANALYZE_ANALYSIS_H
#define QM_ANALYZE_ANALYSIS_H

#include "core/quant/quantizer.h"
#include "experiments/analyze/float_classes.h"
#include "experiments/readers/reader.h"
#include "oracle/metric/metric.h"

/* One quantizer and its result.  The caller sets codec, opens metrics, and sets skipped to leave
 * the quantizer out. */
struct qm_analysis {
    struct qm_codec codec;
    struct qm_metrics *metrics; /* of the options' level, empty before; the caller closes it */
    char skipped[256];          /* why it was not analyzed; "": it was */
};

/* Called after each batch with the number of elements read in it. */
typedef void qm_analysis_progress(int64_t elements, void *context);

struct qm_analysis_options {
    enum qm_metrics_level level;
    uint64_t seed;                  /* of stochastic rounding */
    int threads;                    /* below 1: one */
    qm_analysis_progress *progress; /* or NULL */
    void *context;                  /* of progress */
};

/* Analyzes entry `index` of f, a float tensor with at least one element; *classes gets its counts.
 *
 * The tensor is read in pieces of 2^18 elements (the largest multiple of the block up to that; one
 * block if it is longer): once for quantizers with scales of blocks, two or three times for others,
 * first for the statistics of the scales, then for the codes.  Results are merged in the pieces'
 * order, so that any number of threads gives the same bits; stochastic rounding draws by (seed,
 * element).  The reference values are the file's as float32 (f64 is rounded first).  Besides f's
 * own buffers, memory stays below about 250 MB for tensors of any size.
 *
 * Skipped with a reason: shapes that a norm does not fit, unsigned maps on tensors with negative
 * elements, blocks above 2^20 elements, more than 2^24 scales.  A quantizer that is skipped after a
 * pass has empty metrics. */
qm_status qm_analyze_tensor(struct qm_file *f, int index, struct qm_analysis *a, int n_analyses,
                            const struct qm_analysis_options *o, struct qm_float_classes *classes);

#endif
