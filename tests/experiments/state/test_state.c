/* test_state.c - State files: runs resume bit for bit, conversions note what they change.
 *
 * Files that are no states are refused in one line. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "experiments/foreign/file_sum.h"
#include "experiments/foreign/reader_process.h"
#include "experiments/state/state_file.h"
#include "experiments/store/store.h"
#include "tests/support/drawn.h"

static char folder[40], path_st[64], path_h5[64];
static char *no_argv[] = {"test", NULL};

static int make_folder(void **state)
{
    (void)state;
    /* the tests flush hundreds of files, so their folder is in memory where possible */
    snprintf(folder, sizeof folder, "%s/qualm_state_XXXXXX",
             access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    if (!mkdtemp(folder))
        return -1;
    snprintf(path_st, sizeof path_st, "%s/a.safetensors", folder);
    snprintf(path_h5, sizeof path_h5, "%s/a.h5", folder);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    unlink(path_st);
    unlink(path_h5);
    return rmdir(folder);
}

static const struct qm_shape shapes[] = {
    {1, {300}}, {2, {65, 64}}, {2, {0, 128}}, {3, {5, 7, 129}}, {1, {1}}, {2, {1, 4097}},
};
enum { SHAPES = sizeof shapes / sizeof *shapes, K = 3, SEED = 77 };

#define must(call)                                                      \
    do {                                                                \
        if ((call) != QM_OK)                                            \
            fail_msg("%s, line %d: %s", #call, __LINE__, qm_message()); \
    } while (0)

/* A tensor being trained. */
struct run {
    struct qm_recipe r;
    struct qm_shape shape;
    uint32_t id;
    int64_t t;
    void *plan, *param;
};

static int run_open(struct run *a, const char *recipe, const struct qm_shape *shape, uint32_t id)
{
    must(qm_recipe_parse(recipe, &a->r));
    a->shape = *shape;
    a->id = id;
    a->t = 0;
    if (qm_backend_cpu.open(&a->r, shape, id, &a->plan) != QM_OK)
        return 0;
    int64_t n = qm_shape_numel(shape);
    int bytes = qm_param_bytes(&a->r.param);
    a->param = calloc((size_t)n + 1, (size_t)bytes);
    for (int64_t i = 0; i < n; i++) {
        float x = 2.0f * qm_uniform(qm_philox_stream(SEED, id, (uint64_t)i)) - 1.0f;
        uint32_t h = qm_param_nearest(a->r.param.format, x);
        memcpy((char *)a->param + i * bytes, &h, (size_t)bytes);
    }
    return 1;
}

static void run_close(struct run *a)
{
    qm_backend_cpu.close(a->plan);
    free(a->param);
}

static void run_on(struct run *a, int steps)
{
    int64_t n = qm_shape_numel(&a->shape);
    float *g = malloc(sizeof(float) * ((size_t)n + 1));
    uint16_t *h = malloc(sizeof(uint16_t) * ((size_t)n + 1));
    struct qm_tensor p = {a->param, qm_param_dtype(&a->r.param), a->shape};
    struct qm_tensor gt = {a->r.grad == QM_DTYPE_f32 ? (void *)g : (void *)h, a->r.grad, a->shape};
    for (int k = 0; k < steps; k++) {
        a->t++;
        for (int64_t i = 0; i < n; i++) {
            float x = qm_uniform(qm_philox_stream(SEED + 1, (uint64_t)a->t, (uint64_t)i)) - 0.5f;
            g[i] = x * ldexpf(1.0f, -(int)(i / 32 % 9));
            h[i] = a->r.grad == QM_DTYPE_f16 ? qm_float_to_f16(g[i]) : qm_float_to_bf16(g[i]);
        }
        must(qm_backend_cpu.step(a->plan, &p, &gt, a->t, SEED));
    }
    free(g);
    free(h);
}

static struct qm_state_plan plan_of(const struct run *a)
{
    return (struct qm_state_plan){&a->r, &a->shape, &qm_backend_cpu, a->plan, a->param, a->id,
                                  a->t,  SEED};
}

static void take(struct qm_state *s, const char *name, struct run *a)
{
    struct qm_state_plan p = plan_of(a);
    must(qm_state_take(s, name, &p));
}

/* Opens a new plan and puts a stored tensor into it. */
static void take_up(struct run *b, const struct qm_state_tensor *t, const char *recipe,
                    qm_state_note *note, void *context)
{
    assert_true(run_open(b, recipe, &t->shape, t->id));
    struct qm_state_plan p = plan_of(b);
    must(qm_state_give(t, &p, note, context));
    b->t = t->step;
}

static void never(const char *line, void *context)
{
    fail_msg("%s: unexpected note: %s", (const char *)context, line);
}

static void same_digest(const struct qm_state *a, const struct qm_state *b, const char *what)
{
    char x[65], y[65];
    must(qm_state_digest(a, x));
    must(qm_state_digest(b, y));
    if (strcmp(x, y) != 0)
        fail_msg("%s: states differ", what);
}

/* k steps, a file, and k more steps in a new plan give the bits of 2k steps. */
static int resumes(const char *recipe, const struct qm_shape *shape, const char *path)
{
    struct run through, first, second;
    struct qm_state saved = {0}, read, end = {0}, whole = {0};
    if (!run_open(&through, recipe, shape, 5))
        return 0;
    run_on(&through, 2 * K);
    take(&whole, "a/w", &through);
    assert_true(run_open(&first, recipe, shape, 5));
    run_on(&first, K);
    take(&saved, "a/w", &first);
    must(qm_state_write(&saved, path, 1, no_argv));
    must(qm_state_read(path, &read));
    same_digest(&saved, &read, recipe);
    take_up(&second, &read.tensor[0], read.tensor[0].recipe, never, (void *)(uintptr_t)recipe);
    run_on(&second, K);
    take(&end, "a/w", &second);
    same_digest(&whole, &end, recipe);
    int64_t n = qm_shape_numel(shape);
    if (n > 0 && memcmp(through.param, second.param,
                        (size_t)n * (size_t)qm_param_bytes(&through.r.param)) != 0)
        fail_msg("%s: parameters differ", recipe);
    run_close(&through);
    run_close(&first);
    run_close(&second);
    qm_state_free(&saved);
    qm_state_free(&read);
    qm_state_free(&end);
    qm_state_free(&whole);
    return 1;
}

static void test_every_variant_resumes(void **state)
{
    (void)state;
    static const char *const stored[] = {"", ",param=bf16/near", ",param=bf16/stoch"};
    for (int v = 0; v < qm_variant_count(); v++) {
        int ran = 0;
        for (int s = 0; s < SHAPES; s++)
            for (int k = 0; k < 3; k++) {
                char recipe[QM_RECIPE_TEXT];
                if (k > 0 ? !is_drawn((v * SHAPES + s) * 3 + k) : !is_one_drawn_in(4, v))
                    continue;
                snprintf(recipe, sizeof recipe, "%s%s", qm_variant_at(v)->name, stored[k]);
                ran += resumes(recipe, &shapes[s], (v + s + k) % 2 ? path_st : path_h5);
            }
        if (ran == 0 && is_one_drawn_in(4, v))
            fail_msg("%s: no shape could be run", qm_variant_at(v)->name);
    }
}

static const char *const more_recipes[] = {
    "adamw4_lpmm,exp_avg.round=stoch,exp_avg_sq.round=stoch,exp_avg.min_numel=0",
    "adamw4_lpmm,exp_avg_sq.min_numel=0,param=bf16/kahan",
    "adamw4_ao,grad=bf16,exp_avg_sq=lin:4u/tensor/scan/near/lo,param=f16/ecc16",
    "adamw8_ao,grad=f16,param=bf16/ecc8",
    "adamw4_lpmm_group,exp_avg=de:5s/block:64/bisect/mid/lo,exp_avg.min_numel=0,param=e4m3/stoch",
    "adamw_f32,exp_avg=nf4:4s/block:64/bisect/stoch/hi/f16,param=f16/kahan",
    "apollo_f32,gap=2,param=bf16/kahan",
    "fira_f32,gap=4,rank=2",
    "adamw_f32,exp_avg=bf16,exp_avg_sq=f16,param=bf16/near",
    "shampoo4_sgd,stat_gap=1,root_gap=2,min_lowbit=25,max_order=6",
};

static void test_other_recipes_resume(void **state)
{
    (void)state;
    for (size_t k = 0; k < sizeof more_recipes / sizeof *more_recipes; k++)
        for (int s = 0; s < SHAPES; s++) {
            assert_true(resumes(more_recipes[k], &shapes[s], path_st));
            assert_true(resumes(more_recipes[k], &shapes[s], path_h5));
        }
}

/* Of Shampoo's slots for shorter last pieces a file has those that are not empty. */
static void test_empty_last_pieces_are_left_out(void **state)
{
    (void)state;
    for (int64_t rows = 8; rows < 10; rows++) {
        struct run a;
        struct qm_state s = {0};
        assert_true(run_open(&a, "shampoo4_sgd,max_order=4", &(struct qm_shape){2, {rows, 8}}, 0));
        take(&s, "w", &a);
        assert_int_equal(s.tensor[0].n_slots, rows % 4 ? 9 : 7);
        for (int k = 7; k < s.tensor[0].n_slots; k++)
            assert_string_equal(s.tensor[0].slot[k].name,
                                k == 7 ? "left_vectors_last" : "left_root_last");
        run_close(&a);
        qm_state_free(&s);
    }
}

/* Equal states give equal .safetensors files, and both forms hold equal states. */
static void test_forms_hold_the_same(void **state)
{
    (void)state;
    struct run a, b;
    struct qm_state s = {0}, from_st, from_h5;
    char other[80];
    assert_true(run_open(&a, "adamw4_ao,param=bf16/kahan,exp_avg.min_numel=0", &shapes[1], 0));
    assert_true(run_open(&b, "sgdm_f32", &(struct qm_shape){0, {0}}, 1));
    run_on(&a, 2);
    run_on(&b, 2);
    take(&s, "net/0/weight", &a);
    take(&s, "b", &b);
    must(qm_state_write(&s, path_st, 1, no_argv));
    must(qm_state_write(&s, path_h5, 1, no_argv));
    must(qm_state_read(path_st, &from_st));
    must(qm_state_read(path_h5, &from_h5));
    same_digest(&s, &from_st, "safetensors");
    same_digest(&s, &from_h5, "HDF5");
    assert_string_equal(from_h5.tensor[1].name, "b");
    assert_int_equal(from_h5.tensor[0].step, 2);
    snprintf(other, sizeof other, "%s/b.safetensors", folder);
    must(qm_state_write(&from_h5, other, 1, no_argv));
    char command[256];
    snprintf(command, sizeof command, "cmp -s %s %s", path_st, other);
    assert_int_equal(system(command), 0);
    unlink(other);
    run_close(&a);
    run_close(&b);
    qm_state_free(&s);
    qm_state_free(&from_st);
    qm_state_free(&from_h5);
}

/* ---- conversion ----------------------------------------------------------------------------- */

static void collect(const char *line, void *context)
{
    strcat(context, line);
    strcat(context, "\n");
}

static void test_conversion(void **state)
{
    (void)state;
    struct run a, b, c;
    struct qm_state s = {0};
    char notes[2048] = "";
    struct qm_shape shape = {2, {64, 128}};
    static float want[8192], got[8192];
    assert_true(run_open(&a, "adamw4_lpmm,param=bf16/kahan", &shape, 3));
    run_on(&a, 4);
    take(&s, "w", &a);

    take_up(&b, &s.tensor[0], "adamw_f32", collect, notes);
    for (int i = 0; i < 2; i++) { /* float32 slots hold the decoded values */
        must(qm_backend_cpu.decode(a.plan, i, want));
        must(qm_backend_cpu.decode(b.plan, i, got));
        assert_memory_equal(want, got, sizeof got);
    }
    const uint16_t *h = a.param, *residual = s.tensor[0].residual.data;
    for (int i = 0; i < 8192; i++)
        assert_true(((float *)b.param)[i] ==
                    qm_bf16_to_float(h[i]) + qm_bf16_to_float(residual[i]));
    assert_non_null(strstr(notes, "param: bf16/kahan -> f32 through float32\n"));
    assert_non_null(strstr(notes, "exp_avg: de:4s/block:128/bisect/mid/lo/nantop -> f32 through"));
    assert_non_null(strstr(notes, "exp_avg_sq: lin:4u/rank1/"));

    /* a slot with equal quantizers is copied: only the other one is noted */
    *notes = 0;
    take_up(&c, &s.tensor[0], "adamw4_lpmm_group,param=bf16/kahan", collect, notes);
    assert_null(strstr(notes, "exp_avg: "));
    assert_null(strstr(notes, "param: "));
    assert_non_null(strstr(notes, "exp_avg_sq: lin:4u/rank1/"));
    must(qm_backend_cpu.decode(a.plan, 0, want));
    must(qm_backend_cpu.decode(c.plan, 0, got));
    assert_memory_equal(want, got, sizeof got);
    run_close(&b);
    run_close(&c);

    /* slots of unknown names are dropped, missing ones start anew */
    *notes = 0;
    take_up(&b, &s.tensor[0], "sgdm_f32", collect, notes);
    assert_non_null(strstr(notes, "momentum_buffer: not in the file, starts anew\n"));
    assert_non_null(strstr(notes, "exp_avg: dropped, sgdm has no such slot\n"));
    assert_non_null(strstr(notes, "exp_avg_sq: dropped"));
    must(qm_backend_cpu.decode(b.plan, 0, got));
    for (int i = 0; i < 8192; i++)
        assert_true(got[i] == 0.0f);
    struct qm_shape other = {2, {64, 64}};
    struct qm_state_plan p = plan_of(&b);
    p.shape = &other;
    assert_int_equal(qm_state_give(&s.tensor[0], &p, NULL, NULL), QM_BAD_ARG);
    assert_non_null(strstr(qm_message(), "64x128 in the file, expected 64x64"));
    run_close(&a);
    run_close(&b);
    qm_state_free(&s);
}

/* Between residual formats the full-precision value survives if the target can hold it. */
static void test_residuals_convert(void **state)
{
    (void)state;
    static const char *const to[] = {"bf16/ecc8", "bf16/ecc16", "bf16/kahan", "f16/kahan"};
    /* relative bounds; below `least` the residual's smallest step bounds the error */
    static const double most[] = {0x1p-15, 0x1p-23, 0x1p-16, 0x1p-21}, least[] = {0, 0, 0, 0x1p-4};
    struct qm_shape shape = {1, {500}};
    struct run a, b, back;
    struct qm_state s = {0};
    assert_true(run_open(&a, "adamw_f32", &shape, 0));
    run_on(&a, 1);
    take(&s, "w", &a);
    for (int k = 0; k < 4; k++) {
        struct qm_state mid = {0};
        char recipe[64];
        snprintf(recipe, sizeof recipe, "adamw_f32,param=%s", to[k]);
        take_up(&b, &s.tensor[0], recipe, NULL, NULL);
        take(&mid, "w", &b);
        take_up(&back, &mid.tensor[0], "adamw_f32", NULL, NULL);
        for (int i = 0; i < 500; i++) {
            double x = (double)((float *)a.param)[i], y = (double)((float *)back.param)[i];
            assert_true(fabs(x - y) <= most[k] * fmax(fabs(x), least[k]));
        }
        run_close(&b);
        run_close(&back);
        qm_state_free(&mid);
    }
    run_close(&a);
    qm_state_free(&s);
}

/* ---- bad files ------------------------------------------------------------------------------ */

static size_t file_read(const char *path, unsigned char **out)
{
    FILE *f = fopen(path, "rb");
    struct stat info;
    assert_non_null(f);
    assert_int_equal(fstat(fileno(f), &info), 0);
    size_t n = (size_t)info.st_size;
    *out = malloc(n + 1);
    assert_int_equal(fread(*out, 1, n, f), n);
    fclose(f);
    return n;
}

static void file_write(const char *path, const void *bytes, size_t n)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

/* A file is refused in one line that begins with its path, or read to an equal state. */
static int refused_or_same(const char *path, const struct qm_state *s)
{
    struct qm_state got;
    qm_status st = qm_state_read(path, &got);
    if (st == QM_OK) {
        same_digest(s, &got, path);
        qm_state_free(&got);
        return 0;
    }
    if (st != QM_BAD_FILE && st != QM_NO_MEMORY)
        fail_msg("status %d: %s", (int)st, qm_message());
    if (strchr(qm_message(), '\n') || strncmp(qm_message(), path, strlen(path)) != 0)
        fail_msg("message '%s'", qm_message());
    return 1;
}

static void small_state(struct qm_state *s)
{
    struct run a, b;
    assert_true(run_open(&a,
                         "adamw4_lpmm,exp_avg.min_numel=0,exp_avg_sq.min_numel=0,param=bf16/"
                         "ecc8",
                         &(struct qm_shape){2, {3, 5}}, 0));
    assert_true(run_open(&b, "sgdm_f32", &(struct qm_shape){1, {2}}, 1));
    run_on(&a, 1);
    run_on(&b, 1);
    take(s, "w", &a);
    take(s, "b", &b);
    run_close(&a);
    run_close(&b);
}

static void test_truncated_and_flipped(void **state)
{
    (void)state;
    struct qm_state s = {0};
    unsigned char *good;
    small_state(&s);
    must(qm_state_write(&s, path_st, 1, no_argv));
    size_t n = file_read(path_st, &good);
    qm_reader_in_this_process(1); /* thousands of files: a process for each takes too long */
    for (size_t cut = 0; cut < n; cut++) {
        file_write(path_st, good, cut);
        assert_true(refused_or_same(path_st, &s));
    }
    int refused = 0;
    for (size_t at = 0; at < n; at++)
        for (int bit = 0; bit < 8; bit += 1 + (int)(at % 3)) {
            good[at] ^= (unsigned char)(1 << bit);
            file_write(path_st, good, n);
            refused += refused_or_same(path_st, &s);
            good[at] ^= (unsigned char)(1 << bit);
        }
    assert_true(refused > (int)n); /* all but a few: more padding is accepted */
    free(good);
    qm_reader_in_this_process(0);
    must(qm_state_write(&s, path_h5, 1, no_argv));
    n = file_read(path_h5, &good);
    for (size_t cut = 0; cut + QM_FILE_SUM_LINE < n; cut += n / 50) {
        file_write(path_h5, good, cut);
        assert_true(refused_or_same(path_h5, &s));
    }
    free(good);
    qm_state_free(&s);
}

/* Replaces one text of a state file by another of equal length, and checks the refusal's reason.
 * Where that is not the digest, the file carries none, as one of another program. */
static void tampered(const struct qm_state *s, const char *from, const char *to, const char *why)
{
    unsigned char *bytes;
    must(qm_state_write(s, path_st, 1, no_argv));
    size_t n = file_read(path_st, &bytes);
    assert_int_equal(strlen(from), strlen(to));
    unsigned char *at = memmem(bytes, n, from, strlen(from));
    if (!at)
        fail_msg("there is no '%s'", from);
    memcpy(at, to, strlen(to));
    at = memmem(bytes, n, "\"digest\":", 9);
    if (at && !strstr(why, "digest")) /* the comma before it, its key and its 64 digits */
        memset(at - 1, ' ', strlen(",\"digest\":\"\"") + 64);
    file_write(path_st, bytes, n);
    if (!refused_or_same(path_st, s))
        fail_msg("'%s' for '%s' was read", to, from);
    if (!strstr(qm_message(), why))
        fail_msg("'%s' for '%s': '%s' does not mention '%s'", to, from, qm_message(), why);
    free(bytes);
}

static void test_wrong_contents(void **state)
{
    (void)state;
    struct qm_state s = {0}, none;
    small_state(&s);
    tampered(&s, "qualm-state", "other-state", "expected 'qualm-state'");
    tampered(&s, "\"version\":\"1\"", "\"version\":\"2\"", "version is '2', expected '1'");
    tampered(&s, "\\\"shape\\\":[2]", "\\\"shape\\\":[3]", "expected 3 of f32");
    tampered(&s, "\"w/exp_avg.codes\"", "\"w/exp_avg.coded\"", "no array 'w/exp_avg.codes'");
    tampered(&s, "\"b/param\":{\"dtype\":\"F32\"", "\"b/param\":{\"dtype\":\"I32\"",
             "2 of i32, expected 2 of f32");
    tampered(&s, "/rank1/", "/rankl/", "exp_avg_sq");
    tampered(&s, "\\\"name\\\":\\\"w\\\"", "\\\"name\\\":\\\"/\\\"", "'/' is no name of a tensor");
    tampered(&s, "\\\"seed\\\":\\\"77\\\"", "\\\"seed\\\":\\\"-7\\\"", "seed");
    tampered(&s, "\\\"param\\\":\\\"f32\\\"", "\\\"param\\\":\\\"f33\\\"", "param");
    tampered(&s, "\\\"step\\\":1", "\\\"step\\\":2", "digest");
    tampered(&s, "\\\"step\\\":1", "\\\"step\\\":x", "not JSON");

    static const char plain[] = "{\"x\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}  ";
    unsigned char file[8 + sizeof plain] = {sizeof plain - 1};
    memcpy(file + 8, plain, sizeof plain);
    file_write(path_st, file, sizeof file);
    assert_true(refused_or_same(path_st, &s));
    assert_non_null(strstr(qm_message(), "not a state file"));
    file_write(path_st, "hello", 5);
    assert_true(refused_or_same(path_st, &s));
    file_write(path_st, "\x93NUMPY", 6);
    assert_true(refused_or_same(path_st, &s));
    struct qm_store *store;
    must(qm_store_open(path_h5, "run", 1, no_argv, &store));
    must(qm_store_commit(store));
    assert_true(refused_or_same(path_h5, &s));
    assert_non_null(strstr(qm_message(), "not a state file"));
    assert_int_equal(qm_state_read("/nowhere/x.h5", &none), QM_BAD_FILE);
    qm_state_free(&s);
}

/* Refuses a code beyond the table of a 15-value map, and bits that belong to no code. */
static void test_wrong_codes(void **state)
{
    (void)state;
    struct run a;
    struct qm_state s = {0};
    assert_true(run_open(&a, "adamw_f32,exp_avg=lint:4s/block:128/arith/even/hi",
                         &(struct qm_shape){1, {3}}, 0));
    run_on(&a, 1);
    take(&s, "w", &a);
    uint8_t *codes = s.tensor[0].slot[0].codes.data, kept[2] = {codes[0], codes[1]};
    for (int k = 0; k < 2; k++) {
        int refused = 0;
        for (int value = 1; value < 16;
             value++) { /* the code of element 1, or the bits after element 2 */
            struct qm_state got;
            codes[0] = k ? kept[0] : (uint8_t)((kept[0] & 0xf0) | value);
            codes[1] = k ? (uint8_t)(kept[1] | value) : kept[1];
            must(qm_state_write(&s, path_st, 1, no_argv));
            if (qm_state_read(path_st, &got) == QM_OK) {
                qm_state_free(&got);
                continue;
            }
            assert_non_null(strstr(qm_message(), k ? "unused bits" : "does not exist"));
            refused++;
        }
        assert_int_equal(refused, k ? 15 : 1); /* one of the sixteen codes does not exist */
    }
    run_close(&a);
    qm_state_free(&s);
}

static void test_writing_refuses(void **state)
{
    (void)state;
    static const char *const bad[] = {"", "/a", "a/", "a//b", "a/../b", ".", "a\nb"};
    struct run a;
    assert_true(run_open(&a, "sgdm_f32", &(struct qm_shape){1, {3}}, 0));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct qm_state s = {0};
        take(&s, bad[i], &a);
        assert_int_equal(qm_state_write(&s, path_st, 1, no_argv), QM_BAD_ARG);
        qm_state_free(&s);
    }
    struct qm_state s = {0};
    char path[96];
    take(&s, "w", &a);
    struct qm_state_plan p = plan_of(&a);
    assert_int_equal(qm_state_take(&s, "w", &p), QM_BAD_ARG);
    assert_int_equal(qm_state_write(&s, "/tmp/x.npz", 1, no_argv), QM_BAD_ARG);
    snprintf(path, sizeof path, "%s/none/a.safetensors", folder);
    assert_int_equal(qm_state_write(&s, path, 1, no_argv), QM_BAD_FILE);
    must(qm_state_write(&s, path_st, 1, no_argv)); /* leaves no temporary file */
    struct qm_state empty = {0}, got;
    must(qm_state_write(&empty, path_st, 1, no_argv));
    must(qm_state_read(path_st, &got));
    assert_int_equal(got.n, 0);
    qm_state_free(&got);
    qm_state_free(&s);
    run_close(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_variant_resumes),
        cmocka_unit_test(test_other_recipes_resume),
        cmocka_unit_test(test_forms_hold_the_same),
        cmocka_unit_test(test_conversion),
        cmocka_unit_test(test_residuals_convert),
        cmocka_unit_test(test_truncated_and_flipped),
        cmocka_unit_test(test_wrong_contents),
        cmocka_unit_test(test_wrong_codes),
        cmocka_unit_test(test_writing_refuses),
        cmocka_unit_test(test_empty_last_pieces_are_left_out),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
