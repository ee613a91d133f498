/* finding.c - Keeps the worst finding of a case. */
#include "experiments/check/slot_parts.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void qm_finding_place(struct qm_finding *f, enum qm_place place, int slot, int64_t at, double low,
                      double high)
{
    f->place = place;
    f->slot = slot;
    f->at = at;
    f->low = low;
    f->high = high;
}

char *qm_want_text(double want, double error, char text[QM_WANT_TEXT])
{
    if (isnan(want))
        snprintf(text, QM_WANT_TEXT, "NaN");
    else if (isinf(want))
        snprintf(text, QM_WANT_TEXT, "%sInf", want < 0.0 ? "-" : "");
    else
        snprintf(text, QM_WANT_TEXT, "%a within %.3g", want, error);
    return text;
}

void qm_finding_tidy(char *text)
{
    static const char number[] = "0123456789abcdefxpin.+-", to[] = " to ";
    char *at;
    while ((at = strstr(text, "-nan")))
        memmove(at, at + 1, strlen(at));
    for (at = text; (at = strstr(at, to)); at += at[0] != 0) {
        const char *high = at + strlen(to), *low = at;
        size_t n = strspn(high, number);
        while (low > text && strchr(number, low[-1]))
            low--;
        if (n > 0 && (size_t)(at - low) == n && strncmp(low, high, n) == 0)
            memmove(at, high + n, strlen(high + n) + 1);
    }
}

int qm_finding_set(struct qm_finding *f, int severity, const char *format, ...)
{
    va_list args;
    if (severity <= f->severity)
        return 0;
    f->severity = severity;
    qm_finding_place(f, QM_PLACE_NONE, QM_SLOT_NONE, -1, 0.0, 0.0);
    va_start(args, format);
    vsnprintf(f->text, sizeof f->text, format, args);
    va_end(args);
    qm_finding_tidy(f->text);
    return 1;
}
