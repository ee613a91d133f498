/* adafactor8bit.h - Declarations shared by the replays of adafactor8bit. */
#ifndef QM_CONFORM_ADAFACTOR8BIT_H
#define QM_CONFORM_ADAFACTOR8BIT_H

#include "experiments/conform/run.h"

/* The momentum format of a release and path; cases name it ("v024r", "nf4_024_cudahost").
 * variants/README.md lists the formats by release. */
struct qm_adafactor8_release {
    const char *map, *words; /* of the first moment: "int:4s", and the words after the block */
    int init_code;           /* the code of 0 */
    int is_026, is_cuda;
};

/* Quantizer strings of the two moments. */
void qm_adafactor8_moment_text(const struct qm_adafactor8_release *r, int64_t block,
                               char text[QM_QUANTIZER_TEXT]);
void qm_adafactor8_square_text(int is_cuda, double cap, int64_t block,
                               char text[QM_QUANTIZER_TEXT]);

/* Whole optimizer steps: kinds "optimizer" and "cudahost_step". */
void qm_adafactor8_replay_optimizer(struct qm_conform *c);
void qm_adafactor8_replay_cudahost(struct qm_conform *c);

/* One average in a quantized state: kinds "m_ema", "v_ema" and "stall". */
void qm_adafactor8_replay_moments(struct qm_conform *c,
                                  const struct qm_adafactor8_release *release);
void qm_adafactor8_replay_squares(struct qm_conform *c, int is_026, int is_cuda);
void qm_adafactor8_replay_stall(struct qm_conform *c);

#endif
