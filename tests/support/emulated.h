/* emulated.h - What tests of the emulator share: kernels from patched sources, and their steps.
 *
 * open_folder and close_folder are the set-up and the end of a cmocka group. */
#ifndef QM_SUPPORT_EMULATED_H
#define QM_SUPPORT_EMULATED_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/user_kernel/backend_file.h"

static char folder[64];

static inline int open_folder(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/qualm-test-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static inline int close_folder(void **state)
{
    char command[128];
    (void)state;
    snprintf(command, sizeof command, "rm -r '%s'", folder);
    return system(command);
}

/* ---- sources --------------------------------------------------------------------------------- */

static inline char *joined(const char *const *lines)
{
    size_t size = 1;
    for (const char *const *l = lines; *l; l++)
        size += strlen(*l);
    char *text = malloc(size), *to = text;
    assert_non_null(text);
    *text = '\0';
    for (; *lines; lines++)
        to = stpcpy(to, *lines);
    return text;
}

static inline char *file_text(const char *path)
{
    FILE *f = fopen(path, "r");
    char *text = calloc(1, 1 << 16);
    assert_non_null(f);
    assert_non_null(text);
    assert_true(fread(text, 1, (1 << 16) - 1, f) > 0);
    fclose(f);
    return text;
}

/* The text of a template or of a file of tests/emu. */
static inline char *source_of(const char *name)
{
    char path[80];
    const char *const *lines = qm_kernel_file_text(name);
    snprintf(path, sizeof path, "tests/emu/%s", name);
    return lines ? joined(lines) : file_text(path);
}

/* Replaces a piece of text that occurs exactly once; frees text. */
static inline char *patched(char *text, const char *from, const char *to)
{
    char *at = strstr(text, from);
    if (!at || strstr(at + 1, from))
        fail_msg("'%s' does not stand there once", from);
    char *out = malloc(strlen(text) + strlen(to) + 1);
    assert_non_null(out);
    sprintf(out, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
    free(text);
    return out;
}

static inline qm_status build(const char *text, struct qm_kernel_file **out)
{
    static int count; /* dlopen identifies files by their names */
    char source[128], object[256], own[320];
    snprintf(source, sizeof source, "%s/bug.cu", folder);
    FILE *f = fopen(source, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
    QM_TRY(qm_kernel_file_build(source, folder, object, sizeof object));
    snprintf(own, sizeof own, "%s/%d.so", folder, count++);
    assert_int_equal(rename(object, own), 0);
    return qm_kernel_file_open(own, out);
}

/* ---- steps ----------------------------------------------------------------------------------- */

/* Three steps of n elements with fixed numbers; a copy of p goes to *out unless out is NULL. */
static inline qm_status steps(struct qm_kernel_file *k, const char *as, int64_t n, int count,
                              float **out)
{
    struct qm_recipe r;
    struct qm_shape shape = {1, {n}};
    void *plan = NULL;
    float *p = calloc((size_t)n + 1, sizeof *p), *g = calloc((size_t)n + 1, sizeof *g);
    assert_non_null(p);
    assert_non_null(g);
    assert_int_equal(qm_recipe_parse(as ? as : qm_kernel_file_as(k), &r), QM_OK);
    qm_kernel_file_use(k);
    assert_int_equal(qm_backend_file.open(&r, &shape, 0, &plan), QM_OK);
    for (int64_t i = 0; i < n; i++) {
        p[i] = (float)(i % 1009 - 504) / 504.0f;
        g[i] = (float)(i % 757 - 378) / 37800.0f;
    }
    struct qm_tensor tp = {p, QM_DTYPE_f32, shape}, tg = {g, QM_DTYPE_f32, shape};
    qm_status st = QM_OK;
    for (int t = 1; st == QM_OK && t <= count; t++)
        st = qm_backend_file.step(plan, &tp, &tg, t, 1);
    qm_backend_file.close(plan);
    free(g);
    if (out)
        *out = p;
    else
        free(p);
    return st;
}

#endif
