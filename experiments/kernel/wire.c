/* wire.c - Converts tallies to and from JSON, and writes JSON lines. */
#include "experiments/kernel/wire.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

/* clang-format off */
#define COUNT_LIST(X) \
    X(cases) X(skipped) X(judged) X(deviations) X(unbounded) X(failed_cases)
/* clang-format on */

static const char *const verdict_names[] = {
#define X(name) #name,
    QM_VERDICT_LIST(X)
#undef X
};

json_t *qm_wire_tally(const struct qm_tally *t)
{
    json_t *out = json_object(), *verdict = json_object(), *draws = json_array();
    json_t *findings = json_array(), *rmse = json_array();
#define X(name) json_object_set_new(out, #name, json_integer((json_int_t)t->name));
    COUNT_LIST(X)
#undef X
    for (int i = 0; i < QM_VERDICT_COUNT; i++)
        json_object_set_new(verdict, verdict_names[i], json_integer((json_int_t)t->verdict[i]));
    for (int i = 0; i < QM_RATES; i++)
        json_array_append_new(draws, json_pack("[f, f, f]", t->stoch_up[i], t->stoch_expected[i],
                                               t->stoch_variance[i]));
    for (int i = 0; i <= QM_MAX_SLOTS; i++)
        json_array_append_new(rmse, json_pack("[f, f, f, I]", t->rmse[i].judged, t->rmse[i].plain,
                                              t->rmse[i].worst, (json_int_t)t->rmse[i].steps));
    for (int i = 0; i < t->n_findings; i++) {
        const struct qm_finding *f = &t->finding[i];
        json_array_append_new(findings, json_pack("{s:s, s:s, s:i}", "case", f->name, "text",
                                                  f->text, "severity", f->severity));
    }
    json_object_set_new(out, "verdict", verdict);
    json_object_set_new(out, "draws", draws);
    json_object_set_new(out, "rmse", rmse);
    json_object_set_new(out, "findings", findings);
    json_object_set_new(out, "worst_ratio", json_real(t->worst_ratio));
    json_object_set_new(out, "worst_case", json_string(t->worst_case));
    return out;
}

static void add_finding(struct qm_tally *t, const json_t *from)
{
    const char *name = json_string_value(json_object_get(from, "case"));
    const char *text = json_string_value(json_object_get(from, "text"));
    if (!name || !text || t->n_findings == QM_FINDINGS)
        return;
    struct qm_finding *f = &t->finding[t->n_findings++];
    snprintf(f->name, sizeof f->name, "%s", name);
    snprintf(f->text, sizeof f->text, "%s", text);
    f->severity = (int)json_integer_value(json_object_get(from, "severity"));
}

int qm_wire_add(struct qm_tally *t, const json_t *from)
{
    const json_t *verdict = json_object_get(from, "verdict"),
                 *draws = json_object_get(from, "draws"), *rmse = json_object_get(from, "rmse");
    const json_t *findings = json_object_get(from, "findings"), *item;
    const char *worst = json_string_value(json_object_get(from, "worst_case"));
    double ratio = json_number_value(json_object_get(from, "worst_ratio"));
    size_t i;
    if (!json_is_object(verdict) || !json_is_array(draws) || !json_is_array(findings) || !worst ||
        json_array_size(draws) != QM_RATES || json_array_size(rmse) != QM_MAX_SLOTS + 1)
        return 0;
#define X(name) t->name += json_integer_value(json_object_get(from, #name));
    COUNT_LIST(X)
#undef X
    for (int k = 0; k < QM_VERDICT_COUNT; k++)
        t->verdict[k] += json_integer_value(json_object_get(verdict, verdict_names[k]));
    json_array_foreach(draws, i, item)
    {
        t->stoch_up[i] += json_number_value(json_array_get(item, 0));
        t->stoch_expected[i] += json_number_value(json_array_get(item, 1));
        t->stoch_variance[i] += json_number_value(json_array_get(item, 2));
    }
    json_array_foreach(rmse, i, item)
    {
        struct qm_rmse one = {json_number_value(json_array_get(item, 0)),
                              json_number_value(json_array_get(item, 1)),
                              json_number_value(json_array_get(item, 2)),
                              json_integer_value(json_array_get(item, 3))};
        qm_rmse_merge(&t->rmse[i], &one);
    }
    json_array_foreach(findings, i, item) add_finding(t, item);
    if (ratio > t->worst_ratio) {
        t->worst_ratio = ratio;
        snprintf(t->worst_case, sizeof t->worst_case, "%s", worst);
    }
    return 1;
}

int qm_wire_write(int fd, json_t *value)
{
    char *text = json_dumps(value, JSON_COMPACT);
    size_t size = text ? strlen(text) + 1 : 0, sent = 0;
    json_decref(value);
    if (!text)
        return 0;
    text[size - 1] = '\n';
    while (sent < size) {
        ssize_t n = send(fd, text + sent, size - sent, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            break;
        sent += (size_t)n;
    }
    free(text);
    return sent == size;
}

json_t *qm_wire_seed(uint64_t seed) { return json_sprintf("0x%llx", (unsigned long long)seed); }

uint64_t qm_wire_seed_of(const json_t *text)
{
    const char *s = json_string_value(text);
    return s ? strtoull(s, NULL, 16) : 0;
}
