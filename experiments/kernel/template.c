/* template.c - Finds and prints the shipped kernel of a variant, compiles it, and runs single cases
 * on it. */
#include "experiments/kernel/template.h"
#include "core/base/interrupt.h"

#include <omp.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- names and texts ------------------------------------------------------------------------- */

/* Word k of the lines "Also:" of file number i; 0: it has fewer. */
static int also(int i, int k, char *word, size_t size)
{
    static const char head[] = " * Also: ";
    const char *const *line = qm_kernel_file_text(qm_kernel_file_name(i));
    for (; *line && strncmp(*line, "#include", 8) != 0; line++) {
        const char *at = *line + strlen(head);
        if (strncmp(*line, head, strlen(head)) != 0)
            continue;
        for (size_t n; (n = strcspn(at, " \n")) > 0; at += n + (at[n] == ' '), k--)
            if (strncmp(at, "*/", 2) == 0) {
                break;
            } else if (k == 0) {
                snprintf(word, size, "%.*s", (int)n, at);
                return 1;
            }
    }
    return 0;
}

/* The name that users say: without .c. */
static void said(const char *file, char *name, size_t size)
{
    size_t n = strlen(file);
    int is_c = n > 2 && strcmp(file + n - 2, ".c") == 0;
    snprintf(name, size, "%.*s", (int)(n - (is_c ? 2 : 0)), file);
}

int qm_template_name(int i, char *name, size_t size)
{
    const char *file;
    for (int k = 0; (file = qm_kernel_file_name(k)); k++) {
        if (i-- == 0) {
            said(file, name, size);
            return 1;
        }
        int words = 0;
        for (; also(k, words, name, size); words++)
            if (i-- == 0)
                return 1;
    }
    return 0;
}

/* Number of the file that has or serves this name, or -1. */
static int file_of(const char *name)
{
    const char *file;
    char word[64];
    for (int k = 0; (file = qm_kernel_file_name(k)); k++) {
        said(file, word, sizeof word);
        int is_it = strcmp(file, name) == 0 || strcmp(word, name) == 0;
        for (int w = 0; !is_it && also(k, w, word, sizeof word); w++)
            is_it = strcmp(word, name) == 0;
        if (is_it)
            return k;
    }
    return -1;
}

int qm_template_print(FILE *f, const char *name)
{
    int k = file_of(name);
    char own[64], word[96];
    if (k < 0)
        return 0;
    said(qm_kernel_file_name(k), own, sizeof own);
    int is_own = strcmp(own, name) == 0 || strcmp(qm_kernel_file_name(k), name) == 0;
    int variant = (int)strcspn(own, "."); /* letters, without .cu */
    const char *head = own[variant] ? "QM_CUDA_KERNEL(\"" : "QM_KERNEL(\"";
    size_t n = (size_t)snprintf(word, sizeof word, "%s%.*s", head, variant, own);
    for (const char *const *line = qm_kernel_file_text(qm_kernel_file_name(k)); *line; line++)
        if (!is_own && strncmp(*line, word, n) == 0)
            fprintf(f, "%s%.*s%s", head, (int)strcspn(name, "."), name, *line + n);
        else
            fputs(*line, f);
    return 1;
}

/* ---- a kernel that is asked ------------------------------------------------------------------ */

struct qm_template {
    const struct qm_subject *subject;
    const struct qm_host_limits *limits;
    omp_lock_t lock;
    int is_tried;
    char folder[256];              /* of its files; empty: none */
    struct qm_kernel_file *kernel; /* NULL: there is none, or not yet */
};

qm_status qm_template_open(const struct qm_subject *s, const struct qm_host_limits *limits,
                           struct qm_template **out)
{
    struct qm_template *t = calloc(1, sizeof *t);
    if (!t)
        return qm_fail(QM_NO_MEMORY, "a template");
    t->subject = s;
    t->limits = limits;
    omp_init_lock(&t->lock);
    *out = t;
    return QM_OK;
}

/* The files stay until the end: a case may start the template's process again. */
static void remove_folder(const struct qm_template *t)
{
    static const char *const made[] = {"template.c", "kernel.so", "kernel_abi.h",
                                       "kernel_nearest.h"};
    char path[320];
    if (!*t->folder)
        return;
    for (size_t i = 0; i < sizeof made / sizeof *made; i++) {
        snprintf(path, sizeof path, "%s/%s", t->folder, made[i]);
        unlink(path);
    }
    rmdir(t->folder);
    qm_interrupt_forget(t->folder);
}

void qm_template_close(struct qm_template *t)
{
    if (!t)
        return;
    qm_kernel_file_close(t->kernel);
    remove_folder(t);
    omp_destroy_lock(&t->lock);
    free(t);
}

/* Writes the source into the folder, compiles and loads it. */
static qm_status build(struct qm_template *t, const char *folder)
{
    char source[512], object[512];
    const char *name = t->subject->recipe.base->name;
    if (file_of(name) < 0)
        return qm_fail(QM_NO_MATCH, "there is no template %s", name);
    snprintf(source, sizeof source, "%s/template.c", folder);
    FILE *f = fopen(source, "w");
    if (f)
        qm_template_print(f, name);
    if (!f || fclose(f) != 0)
        return qm_fail(QM_BAD_FILE, "%s", source);
    QM_TRY(qm_kernel_file_build(source, folder, object, sizeof object));
    QM_TRY(qm_kernel_file_apart(object, t->limits, &t->kernel));
    return qm_host_up(qm_kernel_file_host(t->kernel));
}

static void try_once(struct qm_template *t)
{
    t->is_tried = 1;
    if (!qm_interrupt_folder(t->folder, sizeof t->folder, "template")) {
        *t->folder = '\0';
        return;
    }
    if (build(t, t->folder) != QM_OK) {
        qm_kernel_file_close(t->kernel);
        t->kernel = NULL;
    }
}

int qm_template_refuses(struct qm_template *t, const struct qm_case *c, uint64_t seed)
{
    struct qm_kernel_verdict *v = calloc(1, sizeof *v);
    struct qm_tally *tally = calloc(1, sizeof *tally);
    struct qm_subject s = *t->subject;
    int refuses = 0;
    omp_set_lock(&t->lock);
    if (!t->is_tried)
        try_once(t);
    if (t->kernel && v && tally) {
        s.backend = &qm_backend_file;
        refuses =
            qm_kernel_judge(&s, t->kernel, c, seed, tally, v) == QM_OK && v->how == QM_CASE_refused;
    }
    omp_unset_lock(&t->lock);
    free(tally);
    free(v);
    return refuses;
}
