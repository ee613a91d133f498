/* code_edges.h - Which codes the error of a number allows: what every system is judged by.
 *
 * A recorded code may be another one than the code that is made here only where the number that was
 * coded lies within its error of the edge between the two.  How many codes are off says nothing: a
 * single false code far from every edge differs.  Positions and edges are computed in double from
 * the recorded numbers of the block; each error is that of the recording's own float32 operations,
 * u = 2^-24, and of its library's logarithms and powers. */
#ifndef QM_CONFORM_CODE_EDGES_H
#define QM_CONFORM_CODE_EDGES_H

#include "experiments/conform/run.h"

/* The codes from low to high, which a number within its error has; low > high: there is none but
 * the code made here. */
struct qm_code_range {
    int64_t low, high;
};

/* The case differs where `want` is neither `got` nor within the range.  1: the code is off, which
 * its error explains. */
int qm_code_judge(struct qm_conform *c, const char *what, int64_t k, int64_t got, int64_t want,
                  struct qm_code_range range);

/* Codes of a table, as places in it: of x, which is `off` off, over its block's scale, whose
 * quotient is rounded, or a product with its rounded reciprocal. */
struct qm_code_range qm_code_range_table(const struct qm_codec *codec, double x, double off,
                                         double scale);

/* Codes of log2 from -126 to -126 + span in 255 parts.  log2 is 2 ulp off; its sum with 126, the
 * quotient and its product with 255 are rounded, one of them twice where a reciprocal is taken. */
struct qm_code_range qm_code_range_log(const struct qm_codec *codec, double x, double off,
                                       double span);

/* Codes of adafactor8bit's adaptive logarithm (core/quant/adaptive_log.h) by its two numbers. */
struct qm_code_range qm_code_range_adaptive(double x, double span, double low, int levels);

/* A number of SOLO's logarithmic quantizer (core/quant/quantile_log.h): x, `off` off, in a block of
 * these numbers, by the draw u; top: the last code; is_unbiased: round bernoulli, else dither. */
struct qm_quantile_number {
    double x, off, scale, alpha, u;
    int top, is_unbiased;
};

/* Its codes.  Logarithms and powers are an ulp off, the quotient and the sum with the draw are
 * rounded; x / scale is the same bits where x is.  want: the recorded code, which counts where
 * alpha is 1: log2(x / scale) / 0 is NaN for the scale itself, which has code 0, and infinite for
 * numbers an ulp beside it, which have one of the ends, so that the codes are no range. */
struct qm_code_range qm_code_range_quantile(const struct qm_quantile_number *a, int64_t want);

/* ---- runs of the CPU backend ---- */

/* The numbers of coded slots of one step before they are coded, and their decoded old values;
 * of_l2[n]: what the L2 term makes of the error of each number of the slot that is judged. */
struct qm_run_numbers {
    float *old[QM_MAX_SLOTS], *x[QM_MAX_SLOTS], *p;
    double *of_l2;
};

/* Room for them, where the run allows codes to be off; 0: none left. */
int qm_run_numbers_open(struct qm_conform *c, const struct qm_run *run, struct qm_run_numbers *w);

/* The old values in the plan before step t, and the numbers that the step from parameters p by
 * gradients g makes of them; a rule that is not elementwise writes its own (run->seen). */
qm_status qm_run_numbers_of(const struct qm_run *run, void *plan, const struct qm_hyper *h,
                            int64_t t, const float *p, const float *g, struct qm_run_numbers *w);

/* Judges the codes of slot i after step t, every bit where the run allows none to be off. */
void qm_run_judge_codes(struct qm_conform *c, const struct qm_run *run,
                        const struct qm_run_numbers *w, const struct qm_codec *codec, int i,
                        int64_t t, uint8_t *codes);

#endif
