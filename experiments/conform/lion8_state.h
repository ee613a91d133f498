/* lion8_state.h - Converts states of 8-bit Lion to the tensors of its state dictionaries, and back.
 *
 * Source: llm-foundry optim/lion8b.py, _MaybeQuantizedTensor.state_dict and load_state_dict, and
 * the storage of errors.  A dictionary holds the momentum either plain,
 *     exp_avg               the decoded momentum in bf16, quantized or not: lossy
 * or, with compress_state_dict and a quantized momentum, compressed,
 *     exp_avg::quantized    int8 codes in -127 .. 127, the parameter's shape
 *     exp_avg::scales       float16, one per 32 elements of the flattened tensor
 * and the error-correction bytes as bf16 values 0 .. 255, padded to an even count.  The engine's
 * codes are sorted positions: the int8 code minus the map's lowest one.
 *
 * The framework first casts loaded tensors to the parameter's type: with bf16 parameters scales
 * come back with 8 bits, errors and codes exactly. */
#ifndef QM_CONFORM_LION8_STATE_H
#define QM_CONFORM_LION8_STATE_H

#include "core/quant/quantizer.h"
#include "core/rule/param.h"

#define QM_LION8_PLAIN  "exp_avg"
#define QM_LION8_CODES  "exp_avg::quantized"
#define QM_LION8_SCALES "exp_avg::scales"

/* The form of the n keys of one tensor; keys that do not start with exp_avg are ignored.
 * QM_BAD_ARG: the plain key beside others (all are listed), or a compressed one without
 * its pair. */
qm_status qm_lion8_keys(const char *const *key, int n, int *is_compressed);

/* positions[n] and stored scales of a codec (map lint, 8 bits signed) to codes and float16, and
 * back.  QM_BAD_ARG: another map, n_scales that does not fit the shape (both counts), a code that
 * the map does not have (-128). */
qm_status qm_lion8_compress(const struct qm_codec *c, const struct qm_shape *shape,
                            const uint8_t *positions, const float *scales, int8_t *codes,
                            uint16_t *scales_f16);
qm_status qm_lion8_expand(const struct qm_codec *c, const struct qm_shape *shape,
                          const int8_t *codes, const uint16_t *scales_f16, int64_t n_scales,
                          uint8_t *positions, float *scales);

/* The plain form of a momentum, and the quantization of a plain one. */
void qm_lion8_plain(const float *exp_avg, int64_t n, uint16_t *bf16);
qm_status qm_lion8_requantize(const struct qm_codec *c, const struct qm_shape *shape,
                              const uint16_t *bf16, uint8_t *positions, float *scales);

/* n error bytes as bf16 values, n + n % 2 of them, and back.  QM_BAD_ARG: a count that is neither n
 * nor its padding, or a value that is no byte. */
void qm_lion8_errors_save(const uint8_t *errors, int64_t n, uint16_t *bf16);
qm_status qm_lion8_errors_load(const uint16_t *bf16, int64_t count, int64_t n, uint8_t *errors);

/* FlashOptim's optional check that steps are not lost in the master weights: QM_BAD_ARG when
 * lr * k < 2^floor(log2 largest) * 2^-(mantissa bits of parameter and residual) / 0.49.
 * largest: max |w|; k: 1 for Lion, 0.1 for Adam.  lr 0 passes. */
qm_status qm_param_lr_check(const struct qm_param *p, double largest, double lr, double k);

#endif
