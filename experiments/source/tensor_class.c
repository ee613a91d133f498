/* tensor_class.c - The class of a tensor, by its name and rank. */
#include "experiments/source/tensor_class.h"

#include <regex.h>
#include <stddef.h>

/* clang-format off */
static const struct { const char *pattern, *name; } class_rules[] = {
    {"pos_?emb|wpe|position", "position"},
    {"emb|wte",               "embedding"},
    {"head",                  "head"},
    {"qkv|proj|attn|attention|[qkvo]_proj", "attention"},
    {"mlp|ffn",               "mlp"},
    {"conv",                  "conv"},
    {"fc|linear",             "fc"},
};
static const char *const class_names[] = {"embedding", "position", "head", "attention", "mlp",
                                          "conv", "fc", "norm/bias", "other"};
/* clang-format on */

int qm_tensor_class_count(void) { return (int)(sizeof class_names / sizeof *class_names); }
const char *qm_tensor_class_at(int i) { return class_names[i]; }

const char *qm_tensor_class(const char *tensor, const struct qm_shape *shape)
{
    if (shape->rank < 2)
        return "norm/bias";
    const char *class = "other";
    for (size_t i = 0; i < sizeof class_rules / sizeof *class_rules; i++) {
        regex_t re;
        if (regcomp(&re, class_rules[i].pattern, REG_EXTENDED | REG_NOSUB | REG_ICASE) != 0)
            continue;
        int hit = regexec(&re, tensor, 0, NULL, 0) == 0;
        regfree(&re);
        if (hit) {
            class = class_rules[i].name;
            break;
        }
    }
    return class;
}
