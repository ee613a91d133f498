/* problem_wrapper.c - Splits a wrapper's arguments at base= and opens the base problem. */
#include "experiments/problems/problem_wrapper.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The position of "base=" as a key, or the end of the text. */
static const char *find_base(const char *args)
{
    const char *at = args;
    while ((at = strstr(at, "base=")) && at != args && !strchr(",:", at[-1]))
        at++;
    return at ? at : args + strlen(args);
}

/* Splits args at base=: own[size] receives the text before it, *base and *base_args the problem
 * named there (or in base_default where args has no base=) and its arguments. */
static qm_status split(const char *who, const char *args, const char *base_default, char *own,
                       size_t size, const struct qm_problem **base, const char **base_args)
{
    char name[64];
    const char *at = find_base(args), *text = *at ? at + strlen("base=") : base_default;
    size_t length = (size_t)(at - args), stem = strcspn(text, ":,");
    if (length >= size || stem >= sizeof name)
        return qm_fail(QM_BAD_ARG, "%s: '%.20s...' is too long", who, args);
    memcpy(own, args, length);
    own[*at && length ? length - 1 : length] = 0; /* the comma before base= */
    memcpy(name, text, stem);
    name[stem] = 0;
    if (qm_problem_find(name, base) != QM_OK) {
        snprintf(name, sizeof name, "%s: base", who);
        return qm_fail_in(QM_BAD_ARG, name);
    }
    if (!(*base)->optimum)
        return qm_fail(QM_BAD_ARG, "%s: base is %s, expected a problem with a loss", who, name);
    *base_args = text + stem + (text[stem] != 0);
    return QM_OK;
}

qm_status qm_problem_wrapper_open(const char *who, const char *args, const char *base_default,
                                  uint64_t seed, struct qm_problem_wrapper *out, int *n_tensors,
                                  struct qm_shape *shapes)
{
    struct qm_problem_wrapper w = {0};
    const char *rest;
    QM_TRY(split(who, args ? args : "", base_default, w.own, sizeof w.own, &w.base, &rest));
    QM_TRY(w.base->open(rest, seed, &w.self, n_tensors, shapes));
    for (int i = 0; i < *n_tensors; i++)
        w.numel += qm_shape_numel(&shapes[i]);
    *out = w;
    return QM_OK;
}

qm_status qm_problem_wrapper_check(const struct qm_problem *p, const char *args)
{
    char own[sizeof((struct qm_problem_wrapper){0}).own];
    const char *usual = find_base(p->args), *rest = "";
    const struct qm_problem *base = NULL;
    args = args ? args : "";
    if (!*usual)
        return qm_args_check(p->name, args, p->arg, p->n_args);
    QM_TRY(split(p->name, args, usual + strlen("base="), own, sizeof own, &base, &rest));
    QM_TRY(qm_args_check(p->name, own, p->arg, p->n_args));
    return qm_problem_wrapper_check(base, rest);
}

int qm_problem_is_same(const struct qm_problem *p, const char *a, const struct qm_problem *q,
                       const char *b)
{
    enum { ARGS = 16 };
    char own[2][sizeof((struct qm_problem_wrapper){0}).own], usual[sizeof own[0]];
    const char *base_default = find_base(p->args), *text[2] = {a ? a : "", b ? b : ""}, *rest[2];
    const struct qm_problem *base[2];
    double value[2][ARGS];
    int is_wrapper = *base_default != 0, n = p->n_args - is_wrapper;
    if (p != q || n > ARGS)
        return 0;
    snprintf(usual, sizeof usual, "%.*s", (int)(base_default - p->args) - is_wrapper, p->args);
    for (int k = 0; k < 2; k++) {
        if (is_wrapper && split(p->name, text[k], base_default + strlen("base="), own[k],
                                sizeof own[k], &base[k], &rest[k]) != QM_OK)
            return 0;
        if (qm_args_read(p->name, usual, is_wrapper ? own[k] : text[k], p->arg, n, value[k]) !=
            QM_OK)
            return 0;
    }
    for (int i = 0; i < n; i++)
        if (value[0][i] != value[1][i])
            return 0;
    return !is_wrapper || qm_problem_is_same(base[0], rest[0], base[1], rest[1]);
}

/* The problem named at base= in *args, or NULL; *args becomes the arguments of that problem. */
static const struct qm_problem *base_of(const char **args)
{
    char name[64];
    const char *at = find_base(*args), *base = at + (*at ? strlen("base=") : 0);
    size_t stem = strcspn(base, ":,");
    const struct qm_problem *p;
    snprintf(name, sizeof name, "%.*s", (int)stem, base);
    *args = base + stem + (base[stem] != 0);
    return *at && qm_problem_find(name, &p) == QM_OK ? p : NULL;
}

const struct qm_problem *qm_problem_wrapper_suggests(const struct qm_problem *p, const char *args)
{
    const char *own = p->args;
    args = args ? args : "";
    const struct qm_problem *usual = base_of(&own), *base = usual ? base_of(&args) : NULL;
    return base && base != usual ? qm_problem_wrapper_suggests(base, args) : p;
}

double qm_problem_wrapper_work(const char *args, const char *base_default)
{
    char name[64];
    const char *at = find_base(args ? args : ""), *base = *at ? at + strlen("base=") : base_default;
    size_t stem = strcspn(base, ":,");
    const struct qm_problem *p;
    snprintf(name, sizeof name, "%.*s", (int)stem, base);
    if (qm_problem_find(name, &p) != QM_OK || !p->work)
        return 0;
    return p->work(base + stem + (base[stem] != 0));
}

/* The number of data_seed in a text of arguments, or -1; *at is where the key begins. */
static int64_t data_seed_in(const char *args, const char **at)
{
    *at = args;
    while ((*at = strstr(*at, "data_seed=")) && *at != args && (*at)[-1] != ',')
        ++*at;
    return *at ? strtoll(*at + strlen("data_seed="), NULL, 10) : -1;
}

/* Writes the arguments of an instance; returns whether there is a data_seed. */
static int write_instance(const struct qm_problem *p, const char *args, int64_t more, FILE *to)
{
    const char *usual = find_base(p->args), *given = find_base(args), *at, *none;
    if (*usual) {
        const char *text = (*given ? given : usual) + strlen("base=");
        char name[64];
        const struct qm_problem *base;
        int own = (int)(given - args), stem = (int)strcspn(text, ":,");
        snprintf(name, sizeof name, "%.*s", stem, text);
        fprintf(to, "%.*s%sbase=%s:", own, args, own && args[own - 1] != ',' ? "," : "", name);
        return qm_problem_find(name, &base) == QM_OK &&
               write_instance(base, text + stem + (text[stem] != 0), more, to);
    }
    int64_t seed = data_seed_in(args, &at), own = data_seed_in(p->args, &none);
    if (own < 0)
        return 0;
    if (at) {
        const char *rest = at + strcspn(at, ",");
        fprintf(to, "%.*s%s%s", (int)(at - args), args, rest + (*rest != 0), *rest ? "," : "");
    } else {
        fprintf(to, "%s%s", args, *args ? "," : "");
    }
    fprintf(to, "data_seed=%lld", (long long)((at ? seed : own) + more));
    return 1;
}

qm_status qm_problem_instance(const struct qm_problem *p, const char *args, int64_t instance,
                              char **out, int *has_data)
{
    char *text = NULL;
    size_t size;
    FILE *to = open_memstream(&text, &size);
    if (!to)
        return qm_fail(QM_NO_MEMORY, "arguments");
    args = args ? args : "";
    *has_data = write_instance(p, args, instance - 1, to);
    int failed = fclose(to) != 0;
    if (!failed && (!*has_data || instance == 1)) {
        free(text);
        text = strdup(args);
    }
    if (failed || !text) {
        free(text);
        return qm_fail(QM_NO_MEMORY, "arguments");
    }
    *out = text;
    return QM_OK;
}

void qm_problem_wrapper_close(struct qm_problem_wrapper *w)
{
    if (w->base)
        w->base->close(w->self);
}
