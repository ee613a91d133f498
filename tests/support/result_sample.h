/* result_sample.h - Writes a result file with every kind of content, and with one thing changed. */
#ifndef QM_SUPPORT_RESULT_SAMPLE_H
#define QM_SUPPORT_RESULT_SAMPLE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <dirent.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "experiments/store/result_reader.h"

#define ROWS 20000 /* of the large table: chunked */

static char folder[64];

/* A path in the test's folder, in one of a few rotating buffers. */
static inline char *in_folder(const char *name)
{
    static char text[4][400];
    static int turn;
    turn = (turn + 1) % 4;
    snprintf(text[turn], sizeof text[turn], "%s/%s", folder, name);
    return text[turn];
}

static inline int files_in_folder(void)
{
    DIR *d = opendir(folder);
    assert_non_null(d);
    int n = 0;
    for (struct dirent *e; (e = readdir(d)) != NULL;)
        n += e->d_name[0] != '.';
    closedir(d);
    return n;
}

static inline void folder_empty(void)
{
    DIR *d = opendir(folder);
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d)) != NULL;)
        if (e->d_name[0] != '.')
            unlink(in_folder(e->d_name));
    closedir(d);
}

static inline int setup(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/qm_store_XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static inline int teardown(void **state)
{
    (void)state;
    folder_empty();
    return rmdir(folder);
}

/* ---- a sample with one thing changed ------------------------------------------------------- */

enum change {
    SAME,
    TIMING,
    NAN_SIGN,
    COMMAND_LINE, /* these four leave the digest as it is */
    KIND,
    CELL_TEXT,
    CELL_NUMBER,
    CELL_ZERO_SIGN,
    COLUMN_NAME,
    COLUMN_UNIT,
    COLUMN_TEXT,
    TABLE_TEXT,
    LAST_METRIC,
    ARRAY_VALUE,
    ARRAY_TYPE,
    ARRAY_SHAPE,
    ARRAY_UNIT,
    ARRAY_TEXT,
    ARRAY_PATH,
    NO_SCALE,
    CURVE_VALUE,
    CURVE_CUT,
    ATTRIBUTE_TEXT,
    ATTRIBUTE_NUMBER,
    ATTRIBUTE_NAME,
    LONG_TEXT,
    EMPTY_GROUP,
    CHANGES
};

static inline qm_status put_cells(struct qm_store *s, enum change c)
{
    const char *id[] = {"a1", "b22", NULL, "caf\xc3\xa9", c == CELL_TEXT ? "x" : "y"};
    int64_t seed[] = {1, -2, INT64_MAX, INT64_MIN, c == CELL_NUMBER ? 6 : 5};
    double loss[] = {0.5, c == CELL_ZERO_SIGN ? 0.0 : -0.0, HUGE_VAL,
                     c == NAN_SIGN ? -(double)NAN : (double)NAN, 1e-310};
    const struct qm_column columns[] = {
        {c == COLUMN_NAME ? "name" : "cell", QM_COLUMN_text, "", "which cell", id},
        {"seed", QM_COLUMN_i64, c == COLUMN_UNIT ? "s" : "1", "seed of the run", seed},
        {"loss", QM_COLUMN_f64, "1", c == COLUMN_TEXT ? "loss" : "final loss", loss},
    };
    return qm_store_table(s, "/cells", c == TABLE_TEXT ? "cells" : "one row per cell", 5, 3,
                          columns);
}

static inline qm_status put_metrics(struct qm_store *s, enum change c)
{
    double *x = malloc(ROWS * sizeof *x), *y = malloc(ROWS * sizeof *y);
    assert_true(x && y);
    for (int i = 0; i < ROWS; i++) {
        x[i] = sin(i);
        y[i] = i;
    }
    y[ROWS - 1] += c == LAST_METRIC;
    const struct qm_column columns[] = {{"sqnr", QM_COLUMN_f64, "dB", "SQNR", x},
                                        {"ulp", QM_COLUMN_f64, "ULP", "largest distance", y}};
    qm_status st =
        qm_store_table(s, "/metrics", "row i belongs to row i of /cells", ROWS, 2, columns);
    free(x);
    free(y);
    return st;
}

static uint8_t pixel(int i) { return (uint8_t)((unsigned)i * (unsigned)i >> 5); }

static inline qm_status put_arrays(struct qm_store *s, enum change c)
{
    int64_t code[16];
    float value[16];
    uint8_t *image = malloc(300 * 400 * 3);
    uint16_t half[4] = {0x3f80, 0xbf80, 0x7f80, 1};
    struct qm_shape line = {1, {16}}, box = {3, {300, 400, 3}}, scalar = {0, {0}},
                    none = {2, {0, 3}};
    struct qm_shape four = {c == ARRAY_SHAPE ? 2 : 1, {c == ARRAY_SHAPE ? 2 : 4, 2}};
    const char *scale[] = {c == NO_SCALE ? NULL : "/codebooks/code"};
    assert_non_null(image);
    for (int i = 0; i < 16; i++) {
        code[i] = i;
        value[i] = (float)i / 16.0f;
    }
    for (int i = 0; i < 300 * 400 * 3; i++)
        image[i] = pixel(i);
    image[300 * 400 * 3 - 1] ^= c == ARRAY_VALUE;
    qm_status st =
        qm_store_array(s, "/codebooks/code", QM_DTYPE_i64, &line, code, "1", "code", NULL);
    if (st == QM_OK)
        st = qm_store_array(s, "/codebooks/lin4u", QM_DTYPE_f32, &line, value,
                            c == ARRAY_UNIT ? "dB" : "1", c == ARRAY_TEXT ? "" : "values", scale);
    if (st == QM_OK)
        st = qm_store_array(s, c == ARRAY_PATH ? "/a/c/box" : "/a/b/box", QM_DTYPE_u8, &box, image,
                            "1", "bytes", NULL);
    if (st == QM_OK)
        st = qm_store_array(s, "/a/half", c == ARRAY_TYPE ? QM_DTYPE_f16 : QM_DTYPE_bf16, &four,
                            half, "1", "four", NULL);
    if (st == QM_OK)
        st = qm_store_array(s, "/a/scalar", QM_DTYPE_f32, &scalar, value + 5, "1", "one", NULL);
    if (st == QM_OK)
        st = qm_store_array(s, "/a/none", QM_DTYPE_bool, &none, NULL, "1", "nothing", NULL);
    free(image);
    return st;
}

static inline qm_status put_rest(struct qm_store *s, enum change c)
{
    int64_t length[] = {3, 0, 2};
    double value[] = {3, c == NAN_SIGN ? -(double)NAN : (double)NAN, 1, 5,
                      c == CURVE_VALUE ? 4.5 : 4};
    double wall[] = {c == TIMING ? 2.0 : 1.0};
    if (c == CURVE_CUT)
        length[0] = 2, length[1] = 1;
    char *longer = malloc(100001);
    assert_non_null(longer);
    memset(longer, 'q', 100000);
    longer[100000] = 0;
    longer[99999] = c == LONG_TEXT ? 'p' : 'q';
    qm_status st = qm_store_ragged(s, "/curves/loss", 3, length, value, "1", "loss by step");
    if (st == QM_OK)
        st = qm_store_text(s, "/", "question", c == ATTRIBUTE_TEXT ? "why?" : "which map is best?");
    if (st == QM_OK)
        st = qm_store_text(s, "/plan", "text", longer);
    if (st == QM_OK)
        st = qm_store_number(s, "/plan", c == ATTRIBUTE_NAME ? "steps" : "every",
                             c == ATTRIBUTE_NUMBER ? 11 : 10);
    if (st == QM_OK && c == EMPTY_GROUP)
        st = qm_store_text(s, "/provenances", "x", ""); /* not /provenance */
    if (st == QM_OK)
        st = qm_store_timing(s, "wall", 1, wall, "s", "time of the run");
    free(longer);
    return st;
}

static inline qm_status sample_open(const char *path, enum change c, struct qm_store **s)
{
    char *argv[] = {"qualm", "run", c == COMMAND_LINE ? "other.yaml" : "some.yaml"};
    QM_TRY(qm_store_open(path, c == KIND ? "bench" : "run", 3, argv, s));
    qm_status st = put_cells(*s, c);
    if (st == QM_OK)
        st = put_metrics(*s, c);
    if (st == QM_OK)
        st = put_arrays(*s, c);
    return st == QM_OK ? put_rest(*s, c) : st;
}

static inline qm_status sample(const char *path, enum change c)
{
    struct qm_store *s;
    QM_TRY(sample_open(path, c, &s));
    return qm_store_commit(s);
}

static inline void digest_of(const char *path, char out[65])
{
    qm_status st = qm_store_digest(path, out);
    if (st != QM_OK)
        print_message("%s\n", qm_message());
    assert_int_equal(st, QM_OK);
    assert_int_equal(strlen(out), 64);
}

static inline char *file_bytes(const char *path, size_t *n)
{
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    assert_int_equal(fseek(f, 0, SEEK_END), 0);
    *n = (size_t)ftell(f);
    rewind(f);
    char *bytes = malloc(*n);
    assert_non_null(bytes);
    assert_int_equal(fread(bytes, 1, *n, f), *n);
    fclose(f);
    return bytes;
}

static inline void file_from(const char *path, const char *bytes, size_t n)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    fclose(f);
}

static inline int have(const char *program)
{
    char command[128];
    snprintf(command, sizeof command, "command -v %s >/dev/null 2>&1", program);
    return system(command) == 0;
}

static inline void shell(const char *format, ...)
{
    char command[2000];
    va_list args;
    va_start(args, format);
    vsnprintf(command, sizeof command, format, args);
    va_end(args);
    if (system(command) != 0)
        fail_msg("failed: %s", command);
}

#endif
