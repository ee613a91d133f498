/* state_file.h - optimizer states in files: all that a resumed run needs, to the bit.
 *
 * A file holds named tensors.  Each has its recipe, the number of steps done, the seed, its shape,
 * its number in the problem (part of the random counter), the parameter as it is stored, the
 * residual where the write-back keeps one, and every slot as packed codes and scales, or as float32
 * values.  A slot's quantizer is the one that this tensor really has, fallbacks applied, so that a
 * file can be decoded without knowing the variant.
 *
 * Both forms hold the same: a text DESCRIPTION (JSON, below) and arrays NAME/ARRAY, where ARRAY is
 *
 *     param            f32, bf16, f16, or u8 for e4m3; the tensor's shape
 *     residual         bf16, f16, i8 or i16; the tensor's shape; only where there is one
 *     SLOT             f32 values, in the slot's shape; for slots without codes
 *     SLOT.codes       u8[bytes], packed as the quantizer's pack word says
 *     SLOT.scales      f32[qm_scale_count], as they decode
 *
 *   .safetensors  "__metadata__" has format "qualm-state", version "1", tensors DESCRIPTION, and
 *                 digest.  The header is padded with spaces to 8 bytes; arrays go by element size,
 *                 widest first, so that all are aligned.  Equal states are equal files.
 *   .h5           a result file (store.h) of kind "state": the same texts are attributes of "/"
 *                 (or, when long, datasets /tensors ...), the arrays lie under /state.
 *
 *     [{"name": "w", "recipe": "adamw4_ao", "shape": [64, 64], "tensor": 0, "step": 10,
 *       "seed": "1", "param": "f32",
 *       "slots": [{"name": "exp_avg", "quantizer": "dyn:4s/block:128/...", "shape": [64, 64]}]}]
 *
 * digest is SHA-256 over DESCRIPTION in jansson's compact form with sorted keys, then over every
 * array's bytes, tensor by tensor, in the order above.  It is checked where it is there. */
#ifndef QM_STATE_STATE_FILE_H
#define QM_STATE_STATE_FILE_H

#include <jansson.h>

#include "core/recipe/backend.h"
#include "experiments/store/array_file.h"

enum { QM_STATE_NAME = 256, QM_STATE_SLOT_NAME = 48 };

struct qm_state_slot {
    char name[QM_STATE_SLOT_NAME];
    char quantizer[QM_QUANTIZER_TEXT];
    int is_plain; /* "f32", "bf16": no codes */
    struct qm_shape shape;
    struct qm_tensor codes;  /* u8; data NULL for a plain slot */
    struct qm_tensor scales; /* f32; for a plain slot the values */
};

struct qm_state_tensor {
    char name[QM_STATE_NAME];
    char recipe[QM_RECIPE_TEXT];
    struct qm_shape shape;
    uint32_t id;
    int64_t step; /* steps done */
    uint64_t seed;
    struct qm_param stored;
    struct qm_tensor param, residual; /* residual.data NULL: none */
    int n_slots;
    struct qm_state_slot slot[QM_MAX_SLOTS];
};

/* Starts as {0}; owns every array. */
struct qm_state {
    int n;
    struct qm_state_tensor *tensor;
};

void qm_state_free(struct qm_state *s); /* leaves {0} */

/* ---- plans ---------------------------------------------------------------------------------- */

/* Appends a copy of an open plan's state and of its parameter (as r->param stores it), after `step`
 * steps with this seed.  QM_BAD_ARG: a name that is taken, empty or no path ("a/b" is one; "/a",
 * "a//b", "a/../b" and control characters are not), or a recipe too long to print. */
qm_status qm_state_take(struct qm_state *s, const char *name, const struct qm_recipe *r,
                        const struct qm_shape *shape, uint32_t id, int64_t step, uint64_t seed,
                        const struct qm_backend *backend, void *plan, const void *param);

/* Called with one line for everything that could not be taken over bit by bit. */
typedef void qm_state_note(const char *line, void *context);

/* Puts a tensor's state into a plan opened for r, this shape and t->id, and its parameter into
 * param.  What both sides store alike is copied, so that the next step (number t->step + 1) has
 * the bits it would have had.  What they store differently is decoded to float32 and encoded anew
 * (stochastic rounding draws by the slot's role at step t->step); slots that r has not are dropped,
 * those the file has not keep their start: one note each.  QM_BAD_ARG: another shape. */
qm_status qm_state_give(const struct qm_state_tensor *t, const struct qm_recipe *r,
                        const struct qm_shape *shape, const struct qm_backend *backend, void *plan,
                        void *param, qm_state_note *note, void *context);

/* The element type of a stored parameter's residual. */
enum qm_dtype qm_state_residual_dtype(const struct qm_param *p);

/* ---- files ---------------------------------------------------------------------------------- */

/* Writes path, whole or not at all (atomic_file.h, store.h); the ending, .h5 or .safetensors, says which
 * form (QM_BAD_ARG for another).  argv: for the provenance of an .h5 file. */
qm_status qm_state_write(const struct qm_state *s, const char *path, int argc, char **argv);

/* Reads either form, by content.  QM_BAD_FILE, one line: missing, foreign, truncated, another
 * version, arrays missing or of other type or length than the description says, codes that the
 * quantizer has not, contents that do not match the digest. */
qm_status qm_state_read(const char *path, struct qm_state *out);

/* ---- shared by both ------------------------------------------------------------------------- */

/* The description, and a state without arrays (data NULL) from one.  QM_BAD_FILE says which part of
 * it is wrong. */
json_t *qm_state_describe(const struct qm_state *s);
qm_status qm_state_undescribe(const char *text, struct qm_state *out);

/* The arrays of all tensors, in the digest's order; name is "NAME/ARRAY". */
qm_status qm_state_arrays(const struct qm_state *s, struct qm_array **out, int *n);
void qm_state_arrays_free(struct qm_array *a, int n);

qm_status qm_state_digest(const struct qm_state *s, char out[65]);

/* A slot's codec and the views (without data) that it has for the slot's shape. */
qm_status qm_state_slot_layout(struct qm_state_slot *slot, struct qm_codec *c);

#endif
