/* size.c - qualm size: computes the bytes of optimizer state for a whole model. */
#include <stdlib.h>
#include <string.h>

#include "experiments/cli/cli.h"
#include "experiments/command/command.h"
#include "experiments/readers/shape_list.h"
#include "experiments/recipes/recipe_list.h"

struct options {
    const char *shapes, *filter;
    struct qm_recipes recipes;
    qm_status status; /* of --variant */
};

enum { KEY_TENSOR = 256 };

static const struct argp_option options[] = {
    {"shapes", 'S', "WHAT", 0, "gpt2, llama7b, vit_h, a text file or a tensor file", 0},
    {"variant", 'V', "LIST", 0,
     "variants or recipes, separated by commas; may be repeated (default: all)", 0},
    {"tensor", KEY_TENSOR, "REGEX", 0, "only tensors whose name matches", 0},
    {0}};

static error_t option(int key, char *arg, struct argp_state *state)
{
    struct options *o = state->input;
    switch (key) {
    case 'S': o->shapes = arg; return 0;
    case KEY_TENSOR: o->filter = qm_cli_filter(state, "--tensor", arg); return 0;
    case 'V':
        if (o->status == QM_OK)
            o->status = qm_recipes_add(&o->recipes, arg);
        return 0;
    case ARGP_KEY_ARG: argp_error(state, "unexpected word '%s'", arg); return 0;
    case ARGP_KEY_END:
        if (!o->shapes)
            argp_error(state, "--shapes is missing");
        return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

/* Totals of one recipe over a model. */
struct total {
    int64_t bytes, kept; /* kept: parameters of tensors that a fallback leaves in float32 */
};

/* Whether a slot that the recipe quantizes stays float32 for this shape. */
static int falls_back(const struct qm_recipe *r, const struct qm_shape *shape)
{
    for (int i = 0; i < r->rule->n_slots; i++)
        if (r->slot[i].bits > 0 && qm_recipe_slot(r, i, shape).bits == 0)
            return 1;
    return 0;
}

/* Whether the recipe quantizes no slot. */
static int all_f32(const struct qm_recipe *r)
{
    for (int i = 0; i < r->rule->n_slots; i++)
        if (r->slot[i].bits > 0)
            return 0;
    return 1;
}

static qm_status add_up(const struct qm_recipe *r, const struct qm_model_tensor *tensor, int n,
                        struct total *out)
{
    struct total sum = {0, 0};
    for (int i = 0; i < n; i++) {
        int64_t bytes;
        qm_status st = qm_recipe_bytes(r, &tensor[i].shape, &bytes);
        if (st != QM_OK)
            return qm_fail_in(st, tensor[i].name);
        sum.bytes += bytes + qm_recipe_padding(r, &tensor[i].shape);
        if (all_f32(r) || falls_back(r, &tensor[i].shape))
            sum.kept += qm_shape_numel(&tensor[i].shape);
    }
    *out = sum;
    return QM_OK;
}

static json_t *row(const struct qm_recipe *r, const struct total *sum, int64_t params)
{
    char name[QM_RECIPE_TEXT];
    double p = (double)params, bytes = (double)sum->bytes;
    return json_pack("{s:s, s:I, s:f, s:f, s:f, s:f}", "variant", qm_recipe_print(r, name),
                     "state_bytes", (json_int_t)sum->bytes, "gib", bytes * 0x1p-30,
                     "bytes_per_param", bytes / p, "share_kept_in_f32", (double)sum->kept / p,
                     "vs_adamw_f32", bytes / (8.0 * p)); /* two moments of four bytes */
}

static qm_status size(const struct options *o, json_t **out)
{
    struct qm_model_tensor *tensor;
    int n;
    int64_t params = 0;
    char remark[QM_FILE_REMARK];
    QM_TRY(qm_shapes_load(o->shapes, o->filter, &tensor, &n, remark));
    if (remark[0])
        qm_note_remark(o->shapes, remark);
    for (int i = 0; i < n; i++)
        params += qm_shape_numel(&tensor[i].shape);
    json_t *rows = json_array();
    for (int i = 0; i < o->recipes.n; i++) {
        const struct qm_recipe *r = &o->recipes.recipe[i];
        struct total sum = {0, 0};
        char name[QM_RECIPE_TEXT];
        if (add_up(r, tensor, n, &sum) == QM_OK)
            json_array_append_new(rows, row(r, &sum, params));
        else
            qm_note("qualm size: skipped %s: %s", qm_recipe_print(r, name), qm_message());
    }
    free(tensor);
    if (json_array_size(rows) == 0) {
        json_decref(rows);
        return qm_fail(QM_BAD_ARG, "no variant can hold these shapes: %s", qm_message());
    }
    *out = json_pack("{s:o, s:i, s:I, s:o}", "shapes", qm_json_text(o->shapes), "tensors", n,
                     "params", (json_int_t)params, "variants", rows);
    if (remark[0] && qm_cli.json)
        json_object_set_new(*out, "remark", qm_json_text(remark));
    return QM_OK;
}

int qm_cmd_size(int argc, char **argv)
{
    static const struct argp_child children[] = {{&qm_cli_argp, 0, "Common options:", -1}, {0}};
    static const struct argp argp = {
        options,
        option,
        "--shapes WHAT",
        "Bytes of optimizer state for a whole model, per variant: codes, scales and the tensors "
        "that a variant keeps in float32 because they are small, what fills the last block of "
        "codes where the variant's source stores it (adafactor8bit), the table of its map that it "
        "keeps with each tensor (torchao, SOLO: 1 KiB per moment of 8 bits, 64 bytes of 4; SOLO: "
        "64 of 3, 16 of 2), and "
        "single numbers (CAME, Adafactor of transformers, NAdam, LAMB and LARS of bitsandbytes), "
        "but no count of steps, nor the maps of 1 KiB (one or two) that all tensors of an "
        "optimizer of bitsandbytes share.  adafactor8bit's APOLLO to 0.2.6 and "
        "0.4.3 is counted as from its second step on.  Text files have a line \"name 768x2304\" "
        "per tensor; of tensor files (.h5, .npy, .npz, .safetensors, .pt, .pth) "
        "the float entries count, of those of qualm state the parameters."
        "\vExamples:\n"
        "  qualm size --shapes llama7b\n"
        "  qualm size --shapes gpt2 -V adamw4_lpmm,adamw4_ao,exp_avg.norm=row\n"
        "  # my_model.txt and states.h5 are files of yours\n"
        "  qualm size --shapes my_model.txt --json\n"
        "  qualm size --shapes states.h5 --tensor '/param$'\n",
        children,
        NULL,
        NULL};
    struct options o = {0};
    int code = qm_cli_parse(&argp, argc, argv, &o);
    if (code)
        return code;
    json_t *result = NULL;
    qm_status st = o.status;
    if (st == QM_OK && o.recipes.n == 0)
        st = qm_recipes_add_all(&o.recipes);
    if (st == QM_OK)
        st = size(&o, &result);
    qm_recipes_free(&o.recipes);
    if (st != QM_OK)
        return qm_cli_failed("size", st);
    qm_report(result);
    return 0;
}
