/* peer_rules.h - Judges a kernel by other projects' acceptance rules, and digests its results.
 *
 * The rules are transplanted: they compare the kernel's results with those of the composed step
 * (backend cpu) from equal inputs, instead of the results that their own suites compare.  This
 * favours the rules, because no quantization error lies between the two.  The numbers are those of
 * the projects' tests. */
#ifndef QM_KERNEL_PEER_RULES_H
#define QM_KERNEL_PEER_RULES_H

#include "core/user_kernel/backend_file.h"

/* clang-format off */
#define QM_PEER_RULE_LIST(X)                                                                           \
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
enum qm_peer_rule {
#define X(name, text) QM_PEER_RULE_##name,
    QM_PEER_RULE_LIST(X)
#undef X
        QM_PEER_RULE_COUNT
};
const char *qm_peer_rule_name(int rule);
const char *qm_peer_rule_text(int rule);

struct qm_peer_rules_result {
    uint64_t digest; /* of parameters, codes, scales and float states after every step */
    unsigned killed; /* bit i: rule i rejected the kernel in a step, or at the end */
};

/* Sets the kernel of the plans that are opened next, of which the first is judged; clears the
 * result. */
void qm_peer_rules_begin(struct qm_kernel_file *kernel);
struct qm_peer_rules_result qm_peer_rules_result(void);

/* qm_backend_file with the rules.  The rules over 20 steps continue after the case's last step;
 * steps 4 to 20 repeat its gradients. */
extern const struct qm_backend qm_backend_peer_rules;

/* The rules' comparisons of n numbers, got with the reference want; 1: within the limit. */
int qm_peer_rule_nmse(const float *got, const float *want, int64_t n, double limit);
int qm_peer_rule_close(const float *got, const float *want, int64_t n, double atol, double rtol,
                       int64_t allowed); /* elements that may exceed atol + rtol |want| */

#endif
