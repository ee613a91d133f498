/* suite_rates.c - Tuned learning rates of a suite: their keys, reading, and look-up. */
#include "experiments/suite/suite_yaml.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/grow.h"

char *qm_rate_key(const struct qm_cell *c, const struct qm_recipe *r, char text[QM_RATE_TEXT])
{
    char recipe[QM_RECIPE_TEXT], steps[24] = "own", training[64] = "", clip[32] = "";
    if (c->steps)
        snprintf(steps, sizeof steps, "%lld", (long long)c->steps);
    if (c->clip > 0.0)
        snprintf(clip, sizeof clip, " clip=%.9g", c->clip);
    if (c->schedule || c->clip > 0.0)
        snprintf(training, sizeof training, " schedule=%s%s", qm_schedule_name(c->schedule), clip);
    snprintf(text, QM_RATE_TEXT, "%.400s instance=%lld steps=%s warmup=%lld%s decay_rank=%d %s",
             c->source_text, (long long)c->instance, steps, (long long)c->warmup, training,
             c->decay_rank, qm_recipe_print(r, recipe));
    return text;
}

qm_status qm_suite_add_rate(struct qm_suite *s, const char *key, double rate)
{
    QM_TRY(qm_grow((void **)&s->rate, &s->rates_room, s->n_rates + 1, sizeof *s->rate));
    s->rate[s->n_rates] = (struct qm_rate){.key = strdup(key), .rate = rate};
    if (!s->rate[s->n_rates].key)
        return qm_fail(QM_NO_MEMORY, "rates");
    s->n_rates++;
    return QM_OK;
}

static int by_key(const void *a, const void *b)
{
    return strcmp(((const struct qm_rate *)a)->key, ((const struct qm_rate *)b)->key);
}

void qm_suite_sort_rates(struct qm_suite *s)
{
    if (s->n_rates > 0)
        qsort(s->rate, (size_t)s->n_rates, sizeof *s->rate, by_key);
}

static qm_status one_rate(struct qm_yaml_walk *w, const yaml_node_t *n)
{
    char *key = NULL, *word = NULL, *end = NULL;
    if (n->type != YAML_SEQUENCE_NODE || qm_yaml_items(n) != 2)
        return qm_yaml_fail(w, n, QM_BAD_ARG, "a rate is a list of a key and a number");
    qm_status st = qm_yaml_scalar(w, qm_yaml_item(w, n, 0), "rates", &key);
    if (st == QM_OK)
        st = qm_yaml_scalar(w, qm_yaml_item(w, n, 1), "rates", &word);
    double rate = word ? strtod(word, &end) : 0.0;
    if (st == QM_OK && (*end || end == word || !(rate > 0.0 && rate < 1e30)))
        st = qm_yaml_fail(w, n, QM_BAD_ARG, "a rate is '%s', expected a number above 0", word);
    if (st == QM_OK)
        st = qm_suite_add_rate(w->s, key, rate);
    free(word);
    free(key);
    return st;
}

qm_status qm_suite_read_rates(struct qm_yaml_walk *w, const yaml_node_t *n)
{
    const char *name = n->type == YAML_SCALAR_NODE ? qm_yaml_text(n) : NULL;
    if (name && *name && strcmp(name, "none") != 0) {
        if (strchr(name, '/'))
            return qm_yaml_fail(w, n, QM_BAD_ARG, "'rates' is '%s', expected the name of a suite",
                                name);
        free(w->s->other_rates);
        w->s->other_rates = strdup(name);
        return w->s->other_rates ? QM_OK : qm_fail(QM_NO_MEMORY, "rates");
    }
    w->s->has_rates = 1;
    if (name && *name)
        return QM_OK;
    if (n->type != YAML_SEQUENCE_NODE)
        return qm_yaml_fail(w, n, QM_BAD_ARG,
                            "'rates' takes none, the name of a suite, or what qualm tune finds");
    for (int i = 0; i < qm_yaml_items(n); i++)
        QM_TRY(one_rate(w, qm_yaml_item(w, n, i)));
    qm_suite_sort_rates(w->s);
    return QM_OK;
}

double qm_suite_rate(const struct qm_suite *s, const struct qm_cell *c, const struct qm_recipe *r)
{
    char key[QM_RATE_TEXT];
    struct qm_rate wanted = {.key = key}, *found = NULL;
    if (s->n_rates == 0)
        return nan("");
    qm_rate_key(c, r, key);
    found = bsearch(&wanted, s->rate, (size_t)s->n_rates, sizeof *s->rate, by_key);
    if (!found)
        return nan("");
    found->is_used = 1;
    return found->rate;
}

void qm_suite_prune_rates(struct qm_suite *s)
{
    int kept = 0;
    for (int i = 0; i < s->n_rates; i++)
        if (s->rate[i].is_used)
            s->rate[kept++] = s->rate[i];
        else
            free(s->rate[i].key);
    s->n_rates = kept;
}

void qm_suite_free_rates(struct qm_suite *s)
{
    for (int i = 0; i < s->n_rates; i++)
        free(s->rate[i].key);
    free(s->rate);
}
