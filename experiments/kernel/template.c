/* template.c - Compiles the shipped kernel of a variant, and runs single cases on it. */
#include "experiments/kernel/template.h"

#include <omp.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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
    const char *const *lines;
    snprintf(source, sizeof source, "%s.c", t->subject->recipe.base->name);
    lines = qm_kernel_file_text(source);
    if (!lines)
        return qm_fail(QM_NO_MATCH, "there is no template %s", source);
    snprintf(source, sizeof source, "%s/template.c", folder);
    FILE *f = fopen(source, "w");
    for (; f && *lines; lines++)
        fputs(*lines, f);
    if (!f || fclose(f) != 0)
        return qm_fail(QM_BAD_FILE, "%s", source);
    QM_TRY(qm_kernel_file_build(source, folder, object, sizeof object));
    QM_TRY(qm_kernel_file_apart(object, t->limits, &t->kernel));
    return qm_host_up(qm_kernel_file_host(t->kernel));
}

static void try_once(struct qm_template *t)
{
    const char *tmp = getenv("TMPDIR");
    t->is_tried = 1;
    snprintf(t->folder, sizeof t->folder, "%.200s/qualm-XXXXXX", tmp && *tmp ? tmp : "/tmp");
    if (!mkdtemp(t->folder)) {
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
