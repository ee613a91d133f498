/* analysis.h - the quantization error of one stored tensor under many quantizers, streamed. */
#ifndef QM_ANALYZE_ANALYSIS_H
#define QM_ANALYZE_ANALYSIS_H

#include "core/quant/quantizer.h"
#include "experiments/analyze/float_classes.h"
#include "experiments/readers/reader.h"
#include "oracle/metric/metric.h"

/* One quantizer's part: the caller sets codec, and skipped where the tensor is not to be tried. */
struct qm_analysis {
    struct qm_codec codec;
    struct qm_metrics *metrics; /* opened and closed by the caller at `level`, empty before */
    char skipped[256];          /* why it was not analyzed; "": it was */
};

/* Called with the number of elements that were read, now and then. */
typedef void qm_analysis_progress(int64_t elements, void *context);

/* Analyzes entry `index` of f, a float tensor with elements.
 *
 * The tensor is read in pieces of 2^18 elements (the largest multiple of the block up to that; one
 * block where that is longer), once for quantizers whose scales belong to blocks, twice for the
 * others: maxima first, then codes.  Results of pieces are merged in the pieces' order, so any
 * number of threads gives the same bits; round = stoch draws by (seed, element).  The exact values
 * are the file's as float32 (f64 is rounded first).  Besides f's own buffers memory stays below
 * about 250 MB whatever the tensor's size.
 *
 * Skipped with a reason: shapes that a norm does not fit, unsigned maps where there are negative
 * elements, blocks above 2^20 elements, more than 2^24 scales.  What a quantizer was skipped for
 * after the first pass leaves its metrics empty. */
qm_status qm_analyze_tensor(struct qm_file *f, int index, struct qm_analysis *a, int n_analyses,
                            enum qm_metrics_level level, uint64_t seed, int threads,
                            qm_analysis_progress *progress, void *context,
                            struct qm_float_classes *census);

#endif
