/* vectors_cases.c - Chooses the cases of a golden file, so that values or pairs of values meet. */
#include <stdlib.h>
#include <string.h>

#include "core/quant/quantizer.h"
#include "experiments/check/domain.h"
#include "experiments/vectors/vectors.h"

/* Shapes of every rank.  64x68 is large enough for the variants' own limits, and a whole number of
 * blocks of 128 and 256; most others end in a short block.  Those of `single` meet one case. */
static const char *const shapes[] = {"64x68", "41x53", "3x11x29", "5x7x3x3", "2x3x1x7x5", "300",
                                     "129",   "1x257", "257x1",   "1",       "scalar"};
static const char *const single[] = {"0", "0x128"};
static const int64_t firsts[] = {1, 12, 1000, 1000000};

enum { DRAWN = 2048 }; /* elements of the largest drawn tensor */

enum { SHAPE, CLASS, SETTING, FIRST, MODE, COORDINATES };

/* What has been met so far. */
struct grid {
    struct qm_vectors_choice from; /* with every list filled in */
    int only_exact;                /* setting exact is there for class exact alone */
    int n[COORDINATES], uses[COORDINATES][QM_VECTORS_VALUES];
    unsigned char pair[COORDINATES][COORDINATES][QM_VECTORS_VALUES][QM_VECTORS_VALUES];
};

/* ---- the lists ------------------------------------------------------------------------------- */

static int holds(const int *list, int n, int value)
{
    for (int i = 0; i < n; i++)
        if (list[i] == value)
            return 1;
    return 0;
}

/* Fills empty lists in; *only_exact: whether setting exact was added for class exact. */
static qm_status fill(struct qm_vectors_choice *c, int *only_exact)
{
    int all_shapes = c->n_shapes == 0, all_firsts = c->n_firsts == 0;
    for (size_t i = 0; all_shapes && i < sizeof shapes / sizeof *shapes; i++)
        QM_TRY(qm_shape_parse(shapes[i], &c->shape[c->n_shapes++]));
    for (size_t i = 0; all_firsts && i < sizeof firsts / sizeof *firsts; i++)
        c->first[c->n_firsts++] = firsts[i];
    if (c->n_classes == 0)
        while (c->n_classes < QM_CLASS_COUNT) {
            c->kind[c->n_classes] = c->n_classes;
            c->n_classes++;
        }
    if (c->n_settings == 0)
        while (c->n_settings < QM_SETTING_COUNT) {
            c->setting[c->n_settings] = c->n_settings;
            c->n_settings++;
        }
    else if (holds(c->kind, c->n_classes, QM_CLASS_exact) &&
             !holds(c->setting, c->n_settings, QM_SETTING_exact) &&
             c->n_settings < QM_VECTORS_VALUES) {
        c->setting[c->n_settings++] = QM_SETTING_exact;
        *only_exact = 1;
    }
    if (c->n_modes == 0) {
        c->forced[0] = 0;
        c->forced[1] = 1;
        c->n_modes = 2;
    }
    return QM_OK;
}

/* ---- combinations ---------------------------------------------------------------------------- */

/* Whether the class and the setting can be of one case. */
static int is_possible(const struct grid *g, const int *row)
{
    int kind = row[CLASS] < 0 ? -1 : g->from.kind[row[CLASS]];
    int setting = row[SETTING] < 0 ? -1 : g->from.setting[row[SETTING]];
    if (kind < 0 || setting < 0)
        return 1;
    return setting == QM_SETTING_exact ? kind == QM_CLASS_exact || !g->only_exact
                                       : kind != QM_CLASS_exact;
}

/* What the values of a row that are set would meet for the first time. */
static int gain(const struct grid *g, const int *row)
{
    int n = 0;
    for (int a = 0; a < COORDINATES; a++) {
        if (row[a] < 0)
            continue;
        if (g->from.extent == QM_VECTORS_QUICK)
            n += g->uses[a][row[a]] == 0;
        else
            for (int b = a + 1; b < COORDINATES; b++)
                n += row[b] >= 0 && !g->pair[a][b][row[a]][row[b]];
    }
    return n;
}

/* Sets the values of a row that are not set: each the one that meets most that is new; among equals
 * the one used least. */
static void complete(const struct grid *g, int *row)
{
    for (int a = 0; a < COORDINATES; a++) {
        int best = -1, most = -1;
        if (row[a] >= 0)
            continue;
        for (int i = 0; i < g->n[a]; i++) {
            row[a] = i;
            int meets = is_possible(g, row) ? gain(g, row) : -1;
            if (meets > most || (meets == most && best >= 0 && g->uses[a][i] < g->uses[a][best])) {
                most = meets;
                best = i;
            }
        }
        row[a] = best;
    }
}

static void meet(struct grid *g, const int *row)
{
    for (int a = 0; a < COORDINATES; a++) {
        g->uses[a][row[a]]++;
        for (int b = a + 1; b < COORDINATES; b++)
            g->pair[a][b][row[a]][row[b]] = 1;
    }
}

/* ---- the list of cases ----------------------------------------------------------------------- */

struct list {
    const struct qm_recipe *recipe;
    struct qm_vectors_case *out;
    int n, left_out;
    int64_t steps;
};

/* Elements of state for each element of the tensor: a projection of a rank above the tensor's size
 * has more, and cases of it are left out. */
enum { STATE_RATIO = 16 };

/* Whether the quantizers take the shape and the state is no larger than the tensor by far. */
static int fits(const struct qm_recipe *r, const struct qm_case *c)
{
    struct qm_recipe at = *r;
    int64_t n = qm_shape_numel(&c->shape), state = 0;
    qm_case_apply(c, &at);
    if (qm_rule_takes(at.rule, &at.hyper, &c->shape) != QM_OK)
        return 0;
    for (int i = 0; i < r->rule->n_slots; i++) {
        struct qm_codec codec = {.q = qm_recipe_slot(&at, i, &c->shape)};
        struct qm_shape own = c->shape;
        qm_rule_slot_shape(r->rule, &at.hyper, i, &c->shape, &own);
        state += qm_shape_numel(&own);
        if (qm_codec_fits(&codec, &own) != QM_OK)
            return 0;
    }
    return state <= STATE_RATIO * (n + 64);
}

static qm_status append(struct list *l, const struct qm_case *c)
{
    if (!fits(l->recipe, c)) {
        l->left_out++;
        return QM_OK;
    }
    if (l->n == QM_VECTORS_CASES)
        return qm_fail(QM_BAD_ARG, "more than %d cases", QM_VECTORS_CASES);
    struct qm_vectors_case *at = &l->out[l->n];
    memset(at, 0, sizeof *at);
    snprintf(at->name, sizeof at->name, "t%d", l->n++);
    at->c = *c;
    at->steps = l->steps;
    return QM_OK;
}

static struct qm_case case_of(const struct grid *g, const int *row)
{
    struct qm_case c = {.shape = g->from.shape[row[SHAPE]],
                        .kind = (enum qm_class)g->from.kind[row[CLASS]],
                        .setting = (enum qm_setting)g->from.setting[row[SETTING]],
                        .t = g->from.first[row[FIRST]],
                        .forced = g->from.forced[row[MODE]]};
    return c;
}

/* Adds a case that has values i and k of coordinates a and b (b < 0: i alone), unless they have met
 * already or cannot. */
static qm_status add_with(struct grid *g, struct list *l, const int from[4])
{
    int row[COORDINATES] = {-1, -1, -1, -1, -1};
    row[from[0]] = from[1];
    if (from[2] >= 0)
        row[from[2]] = from[3];
    if (!is_possible(g, row) || gain(g, row) == 0)
        return QM_OK;
    complete(g, row);
    meet(g, row);
    struct qm_case c = case_of(g, row);
    return append(l, &c);
}

static qm_status combine(struct grid *g, struct list *l)
{
    for (int a = 0; a < COORDINATES; a++)
        for (int i = 0; i < g->n[a]; i++) {
            if (g->from.extent == QM_VECTORS_QUICK)
                QM_TRY(add_with(g, l, (const int[4]){a, i, -1, -1}));
            for (int b = a + 1; b < COORDINATES && g->from.extent != QM_VECTORS_QUICK; b++)
                for (int k = 0; k < g->n[b]; k++)
                    QM_TRY(add_with(g, l, (const int[4]){a, i, b, k}));
        }
    return QM_OK;
}

/* Adds the shapes that meet one case each, and the list of `qualm check`. */
static qm_status add_listed(const struct qm_vectors_choice *given, struct list *l)
{
    for (size_t i = 0; given->n_shapes == 0 && i < sizeof single / sizeof *single; i++) {
        struct qm_case c = {.t = given->n_firsts ? given->first[0] : 1,
                            .kind = given->n_classes ? (enum qm_class)given->kind[0] : 0,
                            .setting = given->n_settings ? (enum qm_setting)given->setting[0] : 0,
                            .forced = given->n_modes ? given->forced[0] : 1};
        if (c.kind == QM_CLASS_exact)
            c.setting = QM_SETTING_exact;
        QM_TRY(qm_shape_parse(single[i], &c.shape));
        QM_TRY(append(l, &c));
    }
    for (int i = 0; given->extent == QM_VECTORS_ALL && i < qm_case_count(); i++) {
        struct qm_case c = qm_case_at(i);
        QM_TRY(append(l, &c));
    }
    return QM_OK;
}

/* Adds cases of the domain, of small tensors.  What a case does beside its own tensor (other
 * tensors, fresh plans) is the business of the program that steps a file's cases. */
static qm_status add_drawn(const struct qm_vectors_choice *given, struct list *l)
{
    struct qm_domain d;
    qm_domain_of(l->recipe, &qm_backend_cpu, &d);
    d.largest = d.largest < DRAWN ? d.largest : DRAWN;
    for (int i = 0; i < given->draws; i++) {
        struct qm_case c = qm_domain_draw(&d, given->seed, i);
        c.tensor_after_one = 0;
        c.part &= 1u << QM_PART_podd | 1u << QM_PART_sodd | 1u << QM_PART_schedule;
        QM_TRY(append(l, &c));
    }
    return QM_OK;
}

qm_status qm_vectors_choose(const struct qm_recipe *r, const struct qm_vectors_choice *choice,
                            struct qm_vectors_case **out, int *n, int *left_out)
{
    struct grid *g = calloc(1, sizeof *g);
    struct list l = {r, calloc(QM_VECTORS_CASES, sizeof *l.out), 0, 0, choice->steps};
    qm_status st = g && l.out ? QM_OK : qm_fail(QM_NO_MEMORY, "cases");
    if (st == QM_OK) {
        g->from = *choice;
        st = fill(&g->from, &g->only_exact);
    }
    if (st == QM_OK) {
        const int sizes[] = {g->from.n_shapes, g->from.n_classes, g->from.n_settings,
                             g->from.n_firsts, g->from.n_modes};
        memcpy(g->n, sizes, sizeof sizes);
        st = combine(g, &l);
    }
    if (st == QM_OK)
        st = add_listed(choice, &l);
    if (st == QM_OK)
        st = add_drawn(choice, &l);
    if (st == QM_OK && l.n == 0)
        st = qm_fail(QM_BAD_ARG, "the quantizers take none of these shapes");
    free(g);
    if (st != QM_OK) {
        free(l.out);
        return st;
    }
    *out = l.out;
    *n = l.n;
    *left_out = l.left_out;
    return QM_OK;
}
