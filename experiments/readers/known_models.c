/* known_models.c - The parameter tensors of GPT-2, LLaMA-7B and ViT-H/14. */
#include "experiments/readers/known_models.h"

#include <stdlib.h>
#include <string.h>

/* A tensor, or with layers > 1 one tensor per layer, "%d" in the name being the layer.  Successive
 * rows with equal `layers` repeat together, layer by layer. */
struct row {
    const char *name;
    int layers;
    const char *shape;
};

/* A. Radford et al., "Language models are unsupervised multitask learners" (2019), the 124M model;
 * names and shapes of openai/gpt-2's src/model.py as kept by Hugging Face's GPT2LMHeadModel
 * (Conv1D weights are in x out).  The output head is tied to wte and counts once. */
static const struct row gpt2[] = {{"wte.weight", 1, "50257x768"},
                                  {"wpe.weight", 1, "1024x768"},
                                  {"h.%d.ln_1.weight", 12, "768"},
                                  {"h.%d.ln_1.bias", 12, "768"},
                                  {"h.%d.attn.c_attn.weight", 12, "768x2304"},
                                  {"h.%d.attn.c_attn.bias", 12, "2304"},
                                  {"h.%d.attn.c_proj.weight", 12, "768x768"},
                                  {"h.%d.attn.c_proj.bias", 12, "768"},
                                  {"h.%d.ln_2.weight", 12, "768"},
                                  {"h.%d.ln_2.bias", 12, "768"},
                                  {"h.%d.mlp.c_fc.weight", 12, "768x3072"},
                                  {"h.%d.mlp.c_fc.bias", 12, "3072"},
                                  {"h.%d.mlp.c_proj.weight", 12, "3072x768"},
                                  {"h.%d.mlp.c_proj.bias", 12, "768"},
                                  {"ln_f.weight", 1, "768"},
                                  {"ln_f.bias", 1, "768"},
                                  {0}};

/* H. Touvron et al., arXiv:2302.13971, table 2 (dimension 4096, 32 layers, 32 heads); the feed
 * forward width 11008 is 2/3 * 4 * 4096 rounded up to a multiple of 256 (llama/model.py); names of
 * Hugging Face's LlamaForCausalLM.  No biases; the head is not tied. */
static const struct row llama7b[] = {
    {"model.embed_tokens.weight", 1, "32000x4096"},
    {"model.layers.%d.self_attn.q_proj.weight", 32, "4096x4096"},
    {"model.layers.%d.self_attn.k_proj.weight", 32, "4096x4096"},
    {"model.layers.%d.self_attn.v_proj.weight", 32, "4096x4096"},
    {"model.layers.%d.self_attn.o_proj.weight", 32, "4096x4096"},
    {"model.layers.%d.mlp.gate_proj.weight", 32, "11008x4096"},
    {"model.layers.%d.mlp.up_proj.weight", 32, "11008x4096"},
    {"model.layers.%d.mlp.down_proj.weight", 32, "4096x11008"},
    {"model.layers.%d.input_layernorm.weight", 32, "4096"},
    {"model.layers.%d.post_attention_layernorm.weight", 32, "4096"},
    {"model.norm.weight", 1, "4096"},
    {"lm_head.weight", 1, "32000x4096"},
    {0}};

/* A. Dosovitskiy et al., arXiv:2010.11929, table 1 (ViT-Huge: 32 layers, width 1280, MLP 5120);
 * patches of 14, images of 224 (257 positions), head of 1000 classes; names and shapes of
 * torchvision's vit_h_14, which publishes 632,045,800 parameters. */
static const struct row vit_h[] = {
    {"class_token", 1, "1x1x1280"},
    {"conv_proj.weight", 1, "1280x3x14x14"},
    {"conv_proj.bias", 1, "1280"},
    {"encoder.pos_embedding", 1, "1x257x1280"},
    {"encoder.layers.%d.ln_1.weight", 32, "1280"},
    {"encoder.layers.%d.ln_1.bias", 32, "1280"},
    {"encoder.layers.%d.self_attention.in_proj_weight", 32, "3840x1280"},
    {"encoder.layers.%d.self_attention.in_proj_bias", 32, "3840"},
    {"encoder.layers.%d.self_attention.out_proj.weight", 32, "1280x1280"},
    {"encoder.layers.%d.self_attention.out_proj.bias", 32, "1280"},
    {"encoder.layers.%d.ln_2.weight", 32, "1280"},
    {"encoder.layers.%d.ln_2.bias", 32, "1280"},
    {"encoder.layers.%d.mlp.0.weight", 32, "5120x1280"},
    {"encoder.layers.%d.mlp.0.bias", 32, "5120"},
    {"encoder.layers.%d.mlp.3.weight", 32, "1280x5120"},
    {"encoder.layers.%d.mlp.3.bias", 32, "1280"},
    {"encoder.ln.weight", 1, "1280"},
    {"encoder.ln.bias", 1, "1280"},
    {"heads.head.weight", 1, "1000x1280"},
    {"heads.head.bias", 1, "1000"},
    {0}};

static const struct qm_model models[] = {
    {"gpt2", "GPT-2 124M, tied head", "openai/gpt-2 src/model.py; Hugging Face GPT2LMHeadModel",
     124439808},
    {"llama7b", "LLaMA-7B", "arXiv:2302.13971, table 2; Hugging Face LlamaForCausalLM", 6738415616},
    {"vit_h", "ViT-H/14, 1000 classes", "arXiv:2010.11929, table 1; torchvision vit_h_14",
     632045800},
};

static const struct row *const rows_of[] = {gpt2, llama7b, vit_h};

int qm_model_count(void) { return (int)(sizeof models / sizeof *models); }

const struct qm_model *qm_model_at(int i) { return &models[i]; }

/* Writes the pattern with "%d" replaced by the layer. */
static void layer_name(const char *pattern, int layer, char *out, size_t size)
{
    const char *at = strstr(pattern, "%d");
    if (at)
        snprintf(out, size, "%.*s%d%s", (int)(at - pattern), pattern, layer, at + 2);
    else
        snprintf(out, size, "%s", pattern);
}

qm_status qm_model_tensors(int i, struct qm_model_tensor **out, int *n)
{
    int count = 0;
    for (const struct row *r = rows_of[i]; r->name; r++)
        count += r->layers;
    struct qm_model_tensor *list = calloc((size_t)count, sizeof *list);
    if (!list)
        return qm_fail(QM_NO_MEMORY, "%d tensors of %s", count, models[i].name);
    int k = 0;
    for (const struct row *r = rows_of[i], *next; r->name; r = next) {
        for (next = r; next->name && next->layers == r->layers;)
            next++;
        for (int layer = 0; layer < r->layers; layer++)
            for (const struct row *t = r; t < next; t++, k++) {
                layer_name(t->name, layer, list[k].name, sizeof list[k].name);
                qm_status st = qm_shape_parse(t->shape, &list[k].shape);
                if (st != QM_OK) {
                    free(list);
                    return st;
                }
            }
    }
    *out = list;
    *n = count;
    return QM_OK;
}
