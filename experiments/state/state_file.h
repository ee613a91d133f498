/* state_file.h - Optimizer states in files: all that a run needs to resume bit for bit.
 *
 * A file holds named tensors.  Each has its recipe, the number of steps done, the seed, its shape,
 * its number in the problem (part of the random counter), the parameter as it is stored, the
 * residual where the write-back keeps one, and every slot as packed codes and scales, or as float32
 * values.  A slot's quantizer is the one of this tensor, fallbacks applied, so that a file can be
 * decoded without knowing the variant.
 *
 * Both forms hold a text DESCRIPTION (JSON, below) and arrays NAME/ARRAY, where ARRAY is
 *
 *     param            f32, bf16, f16, or u8 for e4m3; the tensor's shape
 *     residual         bf16, f16, i8 or i16; the tensor's shape; only where there is one
 *     SLOT             f32 values, in the slot's shape; for slots without codes
 *     SLOT.codes       u8[bytes], packed as the quantizer's pack word says
 *     SLOT.scales      f32[qm_scale_count], as decoding takes them
 *
 *   .safetensors  "__metadata__" has format "qualm-state", version "1", tensors DESCRIPTION, and
 *                 digest.  array_file.h says how it is laid out.  Equal states give equal files.
 *   .h5           a result file (store.h) of kind "state": these texts are attributes of "/"
 *                 (or, when long, datasets /tensors ...), the arrays lie under /state.
 *
 *     [{"name": "w", "recipe": "adamw4_ao", "shape": [64, 64], "tensor": 0, "step": 10,
 *       "seed": "1", "param": "f32",
 *       "slots": [{"name": "exp_avg", "quantizer": "dyn:4s/block:128/...", "shape": [64, 64]}]}]
 *
 * digest is SHA-256 over DESCRIPTION in jansson's compact form with sorted keys, then over every
 * array's bytes, tensor by tensor, in the order above.  A file without a digest is accepted, and a
 * note says so; one with another text beside these, as "Digest", is refused. */
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
    struct qm_tensor scales; /* f32; of a plain slot the values */
};

struct qm_state_tensor {
    char name[QM_STATE_NAME];
    char recipe[QM_RECIPE_TEXT];
    struct qm_shape shape;
    uint32_t id;  /* number of the tensor in its problem */
    int64_t step; /* steps done */
    uint64_t seed;
    struct qm_param stored;
    struct qm_tensor param, residual; /* residual.data NULL: none */
    int n_slots;
    struct qm_state_slot slot[QM_MAX_SLOTS];
};

/* Named tensors.  Starts as {0}; owns every array. */
struct qm_state {
    int n;
    struct qm_state_tensor *tensor;
    char *joined, *left_out; /* of the checkpoint that it was, "FILE: TEXT", as qm_file_joined and
                                qm_file_left_out say; NULL: nothing */
};

void qm_state_free(struct qm_state *s); /* leaves {0} */

/* ---- plans ---------------------------------------------------------------------------------- */

/* A tensor in training: an open plan and the parameter, as recipe->param stores it. */
struct qm_state_plan {
    const struct qm_recipe *recipe;
    const struct qm_shape *shape;
    const struct qm_backend *backend;
    void *plan, *param;
    uint32_t id;  /* number of the tensor in its problem */
    int64_t step; /* steps done; qm_state_give does not read it */
    uint64_t seed;
};

/* Appends a copy of the state and the parameter of p as tensor `name`.  QM_BAD_ARG: the name is
 * taken or too long, or the recipe is too long to print.  qm_state_write refuses a name that is
 * empty or no path ("a/b" is one; "/a", "a//b", "a/../b" and control characters are not). */
qm_status qm_state_take(struct qm_state *s, const char *name, const struct qm_state_plan *p);

/* Called with one line for each part that could not be copied bit by bit, and with "PATH: ..." for
 * what holds for the whole of a file. */
typedef void qm_state_note(const char *line, void *context);

/* The steps of a stored tensor that count under a rule: 0 where it has none of the rule's slots,
 * which all start anew. */
int64_t qm_state_steps(const struct qm_state_tensor *t, const struct qm_rule *rule);

/* Loads a stored tensor into p->plan, opened for p->recipe, p->shape and t->id, and its parameter
 * into p->param.  Parts that both sides store alike are copied, so that the next step (number
 * t->step + 1) gives the bits of an uninterrupted run.  Parts stored differently are decoded to
 * float32 and encoded anew; stochastic rounding draws by the slot's role at step t->step.  Slots
 * that the recipe lacks are dropped; slots that the file lacks keep their initial state.  note (or
 * NULL) is called for each. QM_BAD_ARG: the shapes differ. */
qm_status qm_state_give(const struct qm_state_tensor *t, const struct qm_state_plan *p,
                        qm_state_note *note, void *context);

/* Gives r, parsed from the text `target`, the hyper-parameters of the tensor's own recipe that
 * `target` does not state.  note (or NULL) is called for those that r's rule does not read (but
 * flags that are as usual) or that r cannot have, and where the tensor's recipe is not known. */
void qm_state_keep_hyper(const struct qm_state_tensor *t, const char *target, struct qm_recipe *r,
                         qm_state_note *note, void *context);

/* The element type of the residual that a parameter format keeps. */
enum qm_dtype qm_state_residual_dtype(const struct qm_param *p);

/* ---- files ---------------------------------------------------------------------------------- */

/* Writes path, whole or not at all, in the form of its ending, .h5 or .safetensors (QM_BAD_ARG: any
 * other).  s->joined and s->left_out are texts of these names in the file.  argv[argc]: for the
 * provenance of an .h5 file. */
qm_status qm_state_write(const struct qm_state *s, const char *path, int argc, char **argv);

/* Reads either form, recognised by content (tests alone need no more than this form of
 * qm_state_read_as).  QM_BAD_FILE, in one line: the file is missing,
 * foreign, truncated or of another version; an array is missing, or of another type or length than
 * described; a code does not exist in its quantizer; the contents do not match the digest. */
qm_status qm_state_read(const char *path, struct qm_state *out);

/* As qm_state_read, and reads a torch checkpoint too: every parameter that an optimizer of the file
 * has updated becomes a tensor of a float32 recipe (adamw_f32, sgdm_f32, ...) with the group's
 * hyper-parameters; the recipe is `as` (NULL: what the group's options and the states' names say),
 * and note is called for what was widened or left out.  QM_BAD_FILE names the tensor whose recipe
 * the file does not say, whose states no slot holds, or whose parameter is not in the file. */
qm_status qm_state_read_as(const char *path, const char *as, qm_state_note *note, void *context,
                           struct qm_state *out);

struct qm_file;

/* The part of qm_state_read_as that reads an open checkpoint. */
qm_status qm_state_from_checkpoint(struct qm_file *f, const char *path, const char *as,
                                   qm_state_note *note, void *context, struct qm_state *out);

/* ---- for both forms ------------------------------------------------------------------------- */

/* The description of a state; and from a description a state without arrays (data NULL), where
 * QM_BAD_FILE names the faulty part. */
json_t *qm_state_describe(const struct qm_state *s);
qm_status qm_state_undescribe(const char *text, struct qm_state *out);

/* Whether a name is a relative path without empty parts, "." and "..", as HDF5 needs. */
int qm_state_is_path(const char *name);

/* The *n arrays of all tensors, in the digest's order, with names "NAME/ARRAY". */
qm_status qm_state_arrays(const struct qm_state *s, struct qm_array **out, int *n);
void qm_state_arrays_free(struct qm_array *a, int n);

qm_status qm_state_digest(const struct qm_state *s, char out[65]);

/* Sets c from slot->quantizer, and type and shape of slot->codes and slot->scales
 * from slot->shape. */
qm_status qm_state_slot_layout(struct qm_state_slot *slot, struct qm_codec *c);

/* 1: files do not have slot i of a tensor of this shape, for it is like another slot
 * (qm_rule_slot_like) and empty. */
int qm_state_leaves_out(const struct qm_recipe *r, int i, const struct qm_shape *shape);

#endif
