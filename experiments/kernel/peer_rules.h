/* peer_rules.h - the kernel under judgement, with a digest of what it makes and the acceptance rules of
 * other projects beside it.
 *
 * The rules are transplanted: they see the kernel's results and those of the composed step
 * (backend cpu) from the same start, in place of what their own suites compare.  That is generous to
 * them, as no quantization error lies in between.  Figures: the projects' own tests. */
#ifndef QM_KERNEL_PEER_RULES_H
#define QM_KERNEL_PEER_RULES_H

#include "core/user_kernel/backend_file.h"

/* clang-format off */
#define QM_FIELD_LIST(X)                                                                           \
    X(ggml_p,  "ggml test-backend-ops: NMSE of the parameters at most 1e-7, one step")             \
    X(ggml_s,  "the same with its limit for quantized types, 5e-4, of each decoded state")         \
    X(bnb,     "bitsandbytes test_optimizer8bit: parameters within 1e-5 + 1e-3 |p|, mean error "   \
               "below 6e-5, mean relative error below 6e-4, fewer than 20 elements of a state "    \
               "beyond 3e-3 + 1e-3 |s|; one step")                                                 \
    X(torchao, "torchao test_low_bit_optim: parameters within 1e-5 + 1e-5 |p| after two steps")    \
    X(flash2,  "FlashOptim: NMSE below 0.01 and cosine above 0.99 of the parameters' change in "   \
               "20 steps")                                                                         \
    X(flash4,  "the same with 5e-4 and 0.999")                                                     \
    X(te,      "TransformerEngine: float32 within 1e-6 + 5e-6 |x|, codes equal or adjacent; "      \
               "one step")
/* clang-format on */
enum qm_field {
#define X(name, text) QM_FIELD_##name,
    QM_FIELD_LIST(X)
#undef X
        QM_FIELD_COUNT
};
const char *qm_field_name(int rule);
const char *qm_field_text(int rule);

struct qm_watch_result {
    uint64_t digest; /* of parameters, codes, scales and float states after every step */
    unsigned killed; /* bit i: rule i rejects the kernel in one of the steps, or at the end */
};

/* The kernel of the plans opened from now on; the first of them is watched. */
void qm_watch_case(struct qm_kernel_file *kernel);
struct qm_watch_result qm_watch_result(void);

/* qm_backend_file, watched.  The long rules go on where the case ends, to 20 steps; steps 4 to 20
 * repeat its gradients. */
extern const struct qm_backend qm_backend_watch;

/* The rules themselves, on n numbers: got of the kernel, want of the reference.  1: within. */
int qm_field_nmse(const float *got, const float *want, int64_t n, double limit);
int qm_field_close(const float *got, const float *want, int64_t n, double atol, double rtol,
                   int64_t allowed); /* at most `allowed` elements are further */

#endif
