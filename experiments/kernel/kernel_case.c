/* kernel_case.c - Joins what the judge and what the system say of one case into a verdict. */
#include "experiments/kernel/kernel_case.h"

#include <stdlib.h>
#include <string.h>

#include "experiments/check/slot_parts.h"

static const char *const result_names[] = {
#define X(name) #name,
    QM_CASE_RESULT_LIST(X)
#undef X
};

struct qm_reorder qm_kernel_freedoms(const struct qm_reorder *fast)
{
    struct qm_reorder all = qm_reorder_any();
    all.div_ulp = fast->div_ulp;
    all.rsqrt_ulp = fast->rsqrt_ulp;
    return all;
}

const char *qm_case_result_name(enum qm_case_result r) { return result_names[r]; }

int qm_case_result_is_bad(enum qm_case_result r)
{
    return r != QM_CASE_passed && r != QM_CASE_refused && r != QM_CASE_unfit;
}

static enum qm_case_result result_of(enum qm_end e)
{
    return e == QM_END_crashed     ? QM_CASE_crashed
           : e == QM_END_hung      ? QM_CASE_hung
           : e == QM_END_memory    ? QM_CASE_memory
           : e == QM_END_left      ? QM_CASE_left
           : e == QM_END_processes ? QM_CASE_processes
                                   : QM_CASE_garbage;
}

/* Length of the hexadecimal float at `at`, or 0. */
static size_t hexadecimal(const char *at)
{
    size_t n = *at == '-';
    if (at[n] != '0' || at[n + 1] != 'x' || (at[n + 2] != '0' && at[n + 2] != '1'))
        return 0;
    n += 3;
    n += at[n] == '.';
    n += strspn(at + n, "0123456789abcdef");
    if (at[n] != 'p' || (at[n + 1] != '+' && at[n + 1] != '-'))
        return 0;
    return n + 2 + strspn(at + n + 2, "0123456789");
}

/* Whether two numbers of the text that differ are alike in so many digits. */
static int are_alike(const char *text, int digits)
{
    enum { NUMBERS = 16 };
    char seen[NUMBERS][32];
    double x[NUMBERS];
    int n = 0;
    for (size_t length; *text && n < NUMBERS; text += length ? length : 1) {
        if (!(length = hexadecimal(text)))
            continue;
        x[n] = strtod(text, NULL);
        snprintf(seen[n], sizeof *seen, "%.*g", digits, x[n]);
        for (int i = 0; i < n; i++)
            if (x[i] != x[n] && strcmp(seen[i], seen[n]) == 0)
                return 1;
        n++;
    }
    return 0;
}

void qm_decimal_text(const char *text, char *out, size_t size)
{
    size_t used = 0, n;
    int digits = 6;
    while (digits < 17 && are_alike(text, digits))
        digits++;
    *out = '\0';
    for (; *text && used + 1 < size; text += n) {
        n = hexadecimal(text);
        int length = n ? snprintf(out + used, size - used, "%.*s = %.*g", (int)n, text, digits,
                                  strtod(text, NULL))
                       : snprintf(out + used, size - used, "%c", *text);
        used += (size_t)length;
        n = n ? n : 1;
    }
}

/* The place of a finding that only its text tells. */
static enum qm_place place_of(const char *text)
{
    return strstr(text, " outside the buffer") ? QM_PLACE_OUTSIDE
           : strstr(text, " after its return") || strstr(text, ", which are const") ||
                   strstr(text, " refused the input")
               ? QM_PLACE_NONE
               : QM_PLACE_LAYER;
}

static void add_notes(struct qm_host *host, struct qm_kernel_verdict *v)
{
    const char *note;
    for (int i = 0; (note = qm_host_note(host, i)); i++) {
        size_t used = strlen(v->text);
        if (v->how != QM_CASE_failed || !v->finding.severity) {
            *v->text = '\0';
            used = 0;
            qm_finding_set(&v->finding, QM_BAD_MACHINERY, "it %s", note);
            v->finding.place = strstr(note, "rounding mode") || strstr(note, "denormals")
                                   ? QM_PLACE_MODE
                                   : QM_PLACE_NONE;
        }
        v->how = QM_CASE_failed;
        snprintf(v->text + used, sizeof v->text - used, "%s%s", used ? "; it " : "it ", note);
    }
}

qm_status qm_kernel_conclude(struct qm_kernel_file *kernel, qm_status st, const char *name,
                             const struct qm_finding *f, struct qm_kernel_verdict *v)
{
    struct qm_host *host = kernel ? qm_kernel_file_host(kernel) : NULL;
    size_t n = strlen(name);
    char why[QM_HOST_TEXT];
    snprintf(why, sizeof why, "%s",
             n > 0 && strncmp(qm_message(), name, n) == 0 ? qm_message() + n + 2 : qm_message());
    memset(v, 0, sizeof *v);
    if (host && qm_host_end(host) == QM_END_answered)
        qm_host_settle(host);
    if (host && qm_host_end(host) == QM_END_stopped)
        return qm_fail(QM_INTERRUPTED, "interrupted");
    if (host && qm_host_driver_failed(host))
        return qm_fail(QM_INTERNAL, "the driver failed, and nothing is known of the kernel: %s",
                       qm_host_why(host));
    if (host && qm_host_end(host) != QM_END_answered) {
        v->how = result_of(qm_host_end(host));
        v->signal = qm_host_signal(host);
        snprintf(v->text, sizeof v->text, "%s", qm_host_why(host));
        return QM_OK;
    }
    if (st == QM_OK) {
        v->how = f->severity ? QM_CASE_failed : QM_CASE_passed;
        v->finding = *f;
        qm_decimal_text(f->severity ? f->text : "", v->text, sizeof v->text);
    } else if (st == QM_CHECK_FAILED) {
        v->how = QM_CASE_failed;
        qm_finding_set(&v->finding, QM_BAD_MACHINERY, "%s", why);
        v->finding.place = place_of(why);
        qm_decimal_text(why, v->text, sizeof v->text);
    } else if (st == QM_SKIPPED) {
        v->how = QM_CASE_refused;
        snprintf(v->text, sizeof v->text, "%s", why);
    } else {
        return st;
    }
    if (host)
        add_notes(host, v);
    return QM_OK;
}

qm_status qm_kernel_judge(const struct qm_subject *s, struct qm_kernel_file *kernel,
                          const struct qm_case *c, uint64_t seed, struct qm_tally *t,
                          struct qm_kernel_verdict *v)
{
    static const struct qm_finding none;
    char name[QM_CASE_TEXT];
    int64_t skipped = t->skipped;
    int found = t->n_findings;
    qm_case_print(c, name);
    qm_host_begin(qm_kernel_file_host(kernel));
    qm_kernel_file_use(kernel);
    qm_status st = qm_judge_case(s, c, seed, t);
    const struct qm_finding *f = t->n_findings > found ? &t->finding[found] : &none;
    int is_unfit = t->skipped > skipped;
    char why[QM_HOST_TEXT];
    snprintf(why, sizeof why, "%s", is_unfit ? qm_message() : "");
    QM_TRY(qm_kernel_conclude(kernel, st, name, f, v));
    if (v->how == QM_CASE_passed && is_unfit) {
        v->how = QM_CASE_unfit;
        snprintf(v->text, sizeof v->text, "%s", why);
    }
    if (v->how != QM_CASE_failed)
        return QM_OK;
    if (st != QM_OK)
        t->cases++;
    if (t->n_findings == found) { /* only the backend or the process shows it */
        t->failed_cases++;
        if (found < QM_FINDINGS) {
            t->finding[t->n_findings++] = v->finding;
            snprintf(t->finding[found].name, sizeof t->finding[found].name, "%s", name);
        }
    }
    return QM_OK;
}
