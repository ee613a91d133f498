/* case_text.c - Prints the name of a case, and parses it back. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/name.h"
#include "core/base/number.h"
#include "experiments/check/cases.h"

enum { PARTS = 5 + QM_PARTS + QM_POWERS + 1 }; /* the most parts of a name */

static const char *const class_names[] = {
#define X(name, text) #name,
    QM_CLASS_LIST(X)
#undef X
};
static const char *const setting_names[] = {
#define X(name, lr, b1, b2, eps, wd, text) #name,
    QM_SETTING_LIST(X)
#undef X
};
static const char *const part_names[] = {
#define X(name, text) #name,
    QM_PART_LIST(X)
#undef X
};
static const char power_names[] = {
#define X(name, text) #name[0],
    QM_POWER_LIST(X)
#undef X
};

/* ---- printing -------------------------------------------------------------------------------- */

static void append(char *text, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void append(char *text, const char *format, ...)
{
    size_t used = strlen(text);
    va_list args;
    va_start(args, format);
    vsnprintf(text + used, QM_CASE_TEXT - used, format, args);
    va_end(args);
}

/* KEY=VALUE: a whole number below 10^9 in full, another without the "+" of its exponent, which
 * separates keys here. */
static void append_hyper(char *text, int k, double value)
{
    char number[QM_NUMBER_TEXT], *plus;
    qm_double_text(value, number);
    if (fabs(value) < 1e9 && value == floor(value) && value != 0.0)
        snprintf(number, sizeof number, "%.0f", value);
    while ((plus = strchr(number, '+')))
        memmove(plus, plus + 1, strlen(plus));
    append(text, "%s=%s", qm_hyper_names[k], number);
}

char *qm_case_print(const struct qm_case *c, char *text)
{
    char shape[QM_CASE_TEXT / 2];
    const char *join = "";
    *text = '\0';
    append(text, "%s/%s/", qm_shape_print(&c->shape, shape, sizeof shape), class_names[c->kind]);
    if (c->setting != QM_SETTING_default || !c->given) {
        append(text, "%s", setting_names[c->setting]);
        join = "+";
    }
    for (int k = 0; k < QM_HYPERS; k++)
        if (c->given >> k & 1) {
            append(text, "%s", join);
            append_hyper(text, k, c->hyper[k]);
            join = "+";
        }
    append(text, "/t%lld/%s", (long long)c->t, c->forced ? "forced" : "own");
    for (int i = 0; i < QM_POWERS; i++)
        if (c->powered >> i & 1)
            append(text, "/%c2^%d", power_names[i], c->power[i]);
    if (c->tensor_after_one)
        append(text, "/tensor%u", c->tensor_after_one + 1u);
    for (int i = 0; i < QM_PARTS; i++)
        if (c->part >> i & 1)
            append(text, "/%s", part_names[i]);
    return text;
}

/* ---- parsing --------------------------------------------------------------------------------- */

static qm_status word(const char *what, const char *text, const char *const *names, int n, int *out)
{
    int i = qm_name_find(text, names, n);
    if (i < 0) {
        const char *nearest = qm_name_nearest(text, names, n);
        return qm_fail(QM_NO_MATCH, "no %s '%s'%s%s%s; `qualm check --list-cases` shows them", what,
                       text, nearest ? "; did you mean '" : "", nearest ? nearest : "",
                       nearest ? "'?" : "");
    }
    *out = i;
    return QM_OK;
}

/* "wd", "lr=0.5+eps=1e-3" or "wd+lr=0.5". */
static qm_status parse_setting(char *text, struct qm_case *c)
{
    char *rest = text, *one, *end;
    for (int at = 0; (one = strsep(&rest, "+")); at++) {
        char *value = strchr(one, '=');
        int k = 0;
        if (at == 0 && !value) {
            QM_TRY(word("setting", one, setting_names, QM_SETTING_COUNT, &k));
            c->setting = (enum qm_setting)k;
            continue;
        }
        if (!value)
            return qm_fail(QM_BAD_ARG, "hyper-parameter '%s': expected KEY=VALUE", one);
        *value++ = '\0';
        QM_TRY(word("hyper-parameter", one, qm_hyper_names, QM_HYPERS, &k));
        c->hyper[k] = strtod(value, &end);
        if (end == value || *end || !isfinite(c->hyper[k]))
            return qm_fail(QM_BAD_ARG, "%s: expected a finite number, got '%s'", one, value);
        if (c->given >> k & 1)
            return qm_fail(QM_BAD_ARG, "%s is given twice", one);
        c->given |= (uint64_t)1 << k;
    }
    return QM_OK;
}

/* Takes "p2^K" and the like; 0: it is no such part. */
static int parse_power(const char *text, struct qm_case *c)
{
    char *end;
    for (int i = 0; i < QM_POWERS; i++) {
        if (text[0] != power_names[i] || strncmp(text + 1, "2^", 2) != 0)
            continue;
        long power = strtol(text + 3, &end, 10);
        if (end == text + 3 || *end || labs(power) > QM_CASE_POWER || c->powered >> i & 1)
            return 0;
        c->powered |= 1u << i;
        c->power[i] = (int)power;
        return 1;
    }
    return 0;
}

static qm_status parse_part(const char *text, struct qm_case *c)
{
    int k = 0;
    char *end;
    if (parse_power(text, c))
        return QM_OK;
    if (strncmp(text, "tensor", 6) == 0) {
        unsigned long long number = strtoull(text + 6, &end, 10);
        if (end == text + 6 || *end || text[6] == '-' || number > UINT32_MAX)
            return qm_fail(QM_BAD_ARG, "part '%s': expected tensor0 to tensor4294967295", text);
        c->tensor_after_one = (uint32_t)number - 1u;
        return QM_OK;
    }
    if (strstr(text, "2^"))
        return qm_fail(QM_BAD_ARG,
                       "part '%s': expected p2^K, g2^K or s2^K once each, K from -%d to %d", text,
                       QM_CASE_POWER, QM_CASE_POWER);
    QM_TRY(word("part", text, part_names, QM_PARTS, &k));
    c->part |= 1u << k;
    return QM_OK;
}

static qm_status parse_parts(char *const *part, int n, struct qm_case *c)
{
    static const char *const modes[] = {"own", "forced"};
    int kind = 0;
    char *end;
    QM_TRY(qm_shape_parse(part[0], &c->shape));
    QM_TRY(word("class of gradients", part[1], class_names, QM_CLASS_COUNT, &kind));
    c->kind = (enum qm_class)kind;
    QM_TRY(parse_setting(part[2], c));
    c->t = part[3][0] == 't' ? strtoll(part[3] + 1, &end, 10) : 0;
    if (c->t < 1 || *end || c->t > QM_CASE_LAST_STEP)
        return qm_fail(QM_BAD_ARG, "the first step is '%s', expected t1 to t%lld", part[3],
                       (long long)QM_CASE_LAST_STEP);
    QM_TRY(word("fallback", part[4], modes, 2, &c->forced));
    for (int i = 5; i < n; i++)
        QM_TRY(parse_part(part[i], c));
    if (qm_case_takes(c, QM_PART_sodd) && !qm_case_loads(c))
        return qm_fail(QM_BAD_ARG, "part sodd needs s2^K");
    int64_t numel = qm_shape_numel(&c->shape);
    if (numel < 0 || numel > 1 << 24)
        return qm_fail(QM_BAD_ARG, "at most 2^24 elements");
    return QM_OK;
}

qm_status qm_case_parse(const char *text, struct qm_case *out)
{
    char copy[QM_CASE_TEXT], *part[PARTS], *rest = copy;
    struct qm_case c = {.t = 0};
    int n = 0;
    snprintf(copy, sizeof copy, "%s", text);
    while (n < PARTS && rest)
        part[n++] = strsep(&rest, "/");
    if (n < 5 || rest || strlen(text) >= sizeof copy)
        return qm_fail(QM_BAD_ARG,
                       "case '%s': expected SHAPE/CLASS/SETTING/tSTEP/MODE, such as "
                       "4097/planted/default/t1/forced, and further parts",
                       text);
    qm_status st = parse_parts(part, n, &c);
    if (st != QM_OK) {
        char name[QM_CASE_TEXT + 16];
        snprintf(name, sizeof name, "case '%s'", text);
        return qm_fail_in(st, name);
    }
    *out = c;
    return QM_OK;
}
