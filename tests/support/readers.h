/* readers.h - what the tests of the readers share; for one test program only. */
#ifndef QM_SUPPORT_READERS_H
#define QM_SUPPORT_READERS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/half.h"
#include "experiments/readers/reader.h"
#include "tests/fuzz/writers.h"

static char dir[256];

static inline const char *path_of(const char *name)
{
    static char path[512];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return path;
}

static inline const char *save(const char *name, const struct bytes *b)
{
    const char *path = path_of(name);
    FILE *out = fopen(path, "wb");
    assert_non_null(out);
    if (b->size > 0)
        assert_int_equal(fwrite(b->data, 1, b->size, out), b->size);
    assert_int_equal(fclose(out), 0);
    return path;
}

static inline struct qm_file *open_good(const char *path)
{
    struct qm_file *f = NULL;
    qm_status st = qm_file_open(path, &f);
    if (st != QM_OK)
        fail_msg("%s", qm_message());
    return f;
}

static inline void expect_message(const char *path, const char *part)
{
    const char *m = qm_message();
    if (strncmp(m, path, strlen(path)) != 0 || !strstr(m, part) || strchr(m, '\n'))
        fail_msg("message '%s' does not name '%s' or lacks '%s'", m, path, part);
}

static inline void expect_bad(const char *path, const char *part)
{
    struct qm_file *f = NULL;
    qm_status st = qm_file_open(path, &f);
    if (st == QM_OK)
        fail_msg("%s was not refused (%s)", path, part);
    assert_int_equal(st, QM_BAD_FILE);
    assert_null(f);
    expect_message(path, part);
}

static inline int find(const struct qm_file *f, const char *name)
{
    for (int i = 0; i < qm_file_count(f); i++)
        if (strcmp(qm_file_entry(f, i)->name, name) == 0)
            return i;
    fail_msg("no entry '%s'", name);
    return -1;
}

static inline void expect_entry(const struct qm_file *f, int i, const char *name,
                                enum qm_dtype dtype, const char *shape)
{
    char text[128];
    assert_in_range(i, 0, qm_file_count(f) - 1);
    const struct qm_entry *e = qm_file_entry(f, i);
    assert_string_equal(e->name, name);
    assert_string_equal(qm_dtype_name(e->dtype), qm_dtype_name(dtype));
    assert_string_equal(qm_shape_print(&e->shape, text, sizeof text), shape);
    assert_int_equal(e->numel, qm_shape_numel(&e->shape));
}

/* Every range [from, from + n) of entry i equals want; beyond the ends is refused. */
static inline void expect_values(struct qm_file *f, int i, const double *want, int64_t numel)
{
    float x[256];
    double y[256];
    assert_int_equal(qm_file_entry(f, i)->numel, numel);
    assert_true(numel <= 256);
    for (int64_t from = 0; from <= numel; from++)
        for (int64_t n = 0; n <= numel - from; n++) {
            assert_int_equal(qm_file_read(f, i, from, n, x), QM_OK);
            assert_int_equal(qm_file_read_double(f, i, from, n, y), QM_OK);
            for (int64_t k = 0; k < n; k++)
                if ((double)x[k] != (double)(float)want[from + k] || y[k] != want[from + k])
                    fail_msg("entry %d, element %d of [%d, +%d): %g and %g, expected %g", i, (int)k,
                             (int)from, (int)n, (double)x[k], y[k], want[from + k]);
        }
    assert_int_equal(qm_file_read(f, i, 0, numel + 1, x), QM_BAD_ARG);
    assert_int_equal(qm_file_read(f, i, numel + 1, 0, x), QM_BAD_ARG);
    assert_int_equal(qm_file_read(f, i, -1, 1, x), QM_BAD_ARG);
    assert_int_equal(qm_file_read(f, i, 0, -1, x), QM_BAD_ARG);
    assert_int_equal(qm_file_read(f, i, 1, INT64_MAX, x), QM_BAD_ARG);
}

/* One value as the bytes of a type; code as in .npy ("f4"), without byte order. */
static inline size_t pack(double v, const char *code, int big, unsigned char out[8])
{
    size_t size = (size_t)(code[1] - '0');
    float f = (float)v;
    uint64_t u = (uint64_t)(int64_t)v;
    uint32_t f_bits = qm_bits(f);
    if (strcmp(code, "b1") == 0)
        size = 1;
    if (strcmp(code, "f8") == 0)
        memcpy(&u, &v, 8);
    else if (strcmp(code, "f4") == 0)
        u = f_bits;
    else if (strcmp(code, "f2") == 0)
        u = qm_float_to_f16(f);
    else if (strcmp(code, "V2") == 0)
        u = qm_float_to_bf16(f);
    for (size_t k = 0; k < size; k++)
        out[big ? size - 1 - k : k] = (unsigned char)(u >> 8 * k);
    return size;
}

/* Values that the type holds exactly, both signs and a fraction where it has them. */
static inline double value_of(const char *code, int k)
{
    if (code[0] == 'b')
        return k % 3 == 0;
    if (code[0] == 'u')
        return k * 3;
    if (code[0] == 'i')
        return k * 3 - 40;
    return (k * 3 - 40) / 4.0;
}

static inline int make_dir(void **state)
{
    const char *tmp = getenv("TMPDIR");
    (void)state;
    snprintf(dir, sizeof dir, "%s/test_readers_XXXXXX", tmp ? tmp : "/tmp");
    return mkdtemp(dir) ? 0 : -1;
}

static inline int remove_dir(void **state)
{
    char command[300];
    (void)state;
    snprintf(command, sizeof command, "rm -rf '%s'", dir);
    return system(command);
}

#endif
