/* cell_list.c - Lists the cells of a suite as a table or as JSON. */
#include "experiments/suite/cell_list.h"

#include "experiments/cli/cli.h"

static const char *quantizer_of(const struct qm_cell *c, char *buffer)
{
    return c->recipe->base ? qm_quantizer_print(&c->recipe->slot[c->slot], buffer) : "";
}

static json_t *cell_json(const struct qm_cell *c)
{
    char quantizer[QM_QUANTIZER_TEXT], recipe[QM_RECIPE_TEXT];
    return json_pack("{s:I, s:s, s:s, s:s, s:s, s:s, s:I, s:s}", "cell", (json_int_t)c->index,
                     "recipe", c->recipe->base ? qm_recipe_print(c->recipe, recipe) : "",
                     "quantizer", quantizer_of(c, quantizer), "coupling",
                     qm_coupling_name(c->coupling), "source", c->source_text, "tensor", c->tensor,
                     "seed", (json_int_t)c->seed, "skipped", c->reason ? c->reason : "");
}

void qm_cells_list(const struct qm_suite *s, const struct qm_cell *cells, int64_t n, json_t *into)
{
    static const char *const heads[] = {"cell",   "recipe", "quantizer", "coupling",
                                        "source", "tensor", "seed",      "skipped"};
    char quantizer[QM_QUANTIZER_TEXT], recipe[QM_RECIPE_TEXT];
    if (qm_cli.json) {
        json_t *list = json_array();
        for (int64_t i = 0; i < n; i++)
            json_array_append_new(list, cell_json(&cells[i]));
        json_array_append_new(into, json_pack("{s:s, s:o}", "suite", s->stem, "cells", list));
        return;
    }
    struct qm_table *t = qm_table_open(8, heads);
    for (int64_t i = 0; i < n; i++) {
        const struct qm_cell *c = &cells[i];
        qm_table_cell(t, "%lld", (long long)i);
        qm_table_cell(t, "%s", c->recipe->base ? qm_recipe_print(c->recipe, recipe) : "");
        qm_table_cell(t, "%s", quantizer_of(c, quantizer));
        qm_table_cell(t, "%s", qm_coupling_name(c->coupling));
        qm_table_cell(t, "%s", c->source_text);
        qm_table_cell(t, "%s", c->tensor);
        qm_table_cell(t, "%llu", (unsigned long long)c->seed);
        qm_table_cell(t, "%s", c->reason ? c->reason : "");
    }
    qm_table_close(t);
}
