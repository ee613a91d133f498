/* test_readers.c - .npy, .npz and .safetensors files: exact reads, refusals of broken files. */
#include "tests/support/readers.h"

#include <fcntl.h>
#include <sys/stat.h>

#define QM_FUZZ_NO_MAIN
#include "tests/fuzz/fuzz_readers.c"

/* The elements as they are, in C order and in this machine's byte order, whatever the file's. */
static void expect_bytes(struct qm_file *f, const double *want, int n, const char *code)
{
    unsigned char got[60 * 8], raw[8];
    const size_t size = (size_t)(code[1] - '0');
    assert_int_equal(qm_file_read_bytes(f, 0, got), QM_OK);
    for (int k = 0; k < n; k++) {
        assert_int_equal(pack(want[k], code, 0, raw), size);
        assert_memory_equal(got + (size_t)k * size, raw, size);
    }
}

/* ---- .npy ---- */

static void test_npy_types(void **state)
{
    static const struct {
        const char *code;
        enum qm_dtype dtype;
    } types[] = {{"f8", QM_DTYPE_f64},  {"f4", QM_DTYPE_f32}, {"f2", QM_DTYPE_f16},
                 {"V2", QM_DTYPE_bf16}, {"i8", QM_DTYPE_i64}, {"i4", QM_DTYPE_i32},
                 {"i2", QM_DTYPE_i16},  {"i1", QM_DTYPE_i8},  {"u8", QM_DTYPE_u64},
                 {"u4", QM_DTYPE_u32},  {"u2", QM_DTYPE_u16}, {"u1", QM_DTYPE_u8},
                 {"b1", QM_DTYPE_bool}};
    struct bytes b = {NULL, 0, 0}, data = {NULL, 0, 0};
    (void)state;
    for (size_t t = 0; t < sizeof types / sizeof *types; t++)
        for (int order = 0; order < 3; order++) {
            const char *code = types[t].code;
            int plain = code[1] == '1' || code[0] == 'V';
            if (order == 2 ? !plain : order == 1 && code[0] == 'V')
                continue;
            double want[15];
            unsigned char raw[8];
            char dict[128];
            data.size = 0;
            for (int k = 0; k < 15; k++)
                bytes_put(&data, raw, pack(want[k] = value_of(code, k), code, order == 1, raw));
            snprintf(dict, sizeof dict,
                     "{'descr': '%c%s', 'fortran_order': False, 'shape': (3, 5), }", "<>|"[order],
                     code);
            npy_file(&b, 1 + (unsigned)order, dict, data.data, data.size);
            struct qm_file *f = open_good(save("types.v1.npy", &b));
            assert_string_equal(qm_file_format(f), "npy");
            assert_int_equal(qm_file_count(f), 1);
            expect_entry(f, 0, "types.v1", types[t].dtype, "3x5");
            expect_values(f, 0, want, 15);
            expect_bytes(f, want, 15, code);
            assert_int_equal(qm_file_attr_number(f, "/", "x", want, 1), -1);
            qm_file_close(f);
        }
    bytes_clear(&b);
    bytes_clear(&data);
}

/* Fortran order of every rank: each value is its row-major index; the first dimension
 * varies fastest. */
static void test_npy_fortran(void **state)
{
    static const struct {
        const char *tuple, *shape;
        int dim[4];
    } shapes[] = {{"()", "scalar", {1, 1, 1, 1}},       {"(7,)", "7", {7, 1, 1, 1}},
                  {"(3, 5)", "3x5", {3, 5, 1, 1}},      {"(3,4,5)", "3x4x5", {3, 4, 5, 1}},
                  {"(1, 6, 1)", "1x6x1", {1, 6, 1, 1}}, {"(2, 3, 2, 5,)", "2x3x2x5", {2, 3, 2, 5}},
                  {"(4, 0, 3)", "4x0x3", {4, 0, 3, 1}}};
    static const char *const descrs[] = {"<f4", "<f8", ">f2", ">i4"};
    struct bytes b = {NULL, 0, 0}, data = {NULL, 0, 0};
    (void)state;
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        for (size_t t = 0; t < sizeof descrs / sizeof *descrs; t++) {
            const int *d = shapes[s].dim;
            int n = d[0] * d[1] * d[2] * d[3];
            double want[60];
            unsigned char raw[8];
            char dict[128];
            data.size = 0;
            for (int k = 0; k < n; k++) { /* k counts in the file's order */
                int i0 = k % d[0], i1 = k / d[0] % d[1], i2 = k / d[0] / d[1] % d[2];
                int at = ((i0 * d[1] + i1) * d[2] + i2) * d[3] + k / d[0] / d[1] / d[2];
                want[at] = at;
                bytes_put(&data, raw, pack(at, descrs[t] + 1, descrs[t][0] == '>', raw));
            }
            snprintf(dict, sizeof dict, "{\"shape\":%s,'fortran_order' :True ,'descr':'%s'}",
                     shapes[s].tuple, descrs[t]);
            npy_file(&b, 1, dict, data.data, data.size);
            struct qm_file *f = open_good(save("fortran", &b));
            assert_string_equal(qm_file_entry(f, 0)->name, "fortran");
            expect_entry(f, 0, "fortran", qm_file_entry(f, 0)->dtype, shapes[s].shape);
            expect_values(f, 0, want, n);
            expect_bytes(f, want, n, descrs[t] + 1);
            qm_file_close(f);
        }
    bytes_clear(&b);
    bytes_clear(&data);
}

static void test_npy_broken(void **state)
{
    static const struct {
        const char *dict;
        size_t bytes;
        const char *message;
    } bad[] = {
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (3, -4)}", 48, "size of at least 0"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4)}", 47, "takes 48 bytes, but 47"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4)}", 49, "takes 48 bytes, but 49"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (3037000500, 3037000500)}", 4, "2^63"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387904,)}", 0, "2^63"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (9223372036854775808,)}", 0, "2^63"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (1,1,1,1,1,1,1,1,1)}", 4, "at most 8"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (3)}", 12, "','"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (3 4)}", 48, "','"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (,)}", 4, "size of at least 0"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': [3, 4]}", 48, "a tuple"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4)", 48, "'}'"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4)} x", 48, "after the dict"},
        {"{'descr': '<f4', 'fortran_order': 0, 'shape': (3, 4)}", 48, "True or False"},
        {"{'descr': '<f4', 'fortran_order': False}", 48, "lacks one of the keys"},
        {"{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': ()}", 4, "once"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (), 'x': ()}", 4, "only the keys"},
        {"{'descr': '<c32', 'fortran_order': False, 'shape': ()}", 8, "descr '<c32'"},
        {"{'descr': '|f4', 'fortran_order': False, 'shape': ()}", 4, "descr '|f4'"},
        {"{'descr': 'f4', 'fortran_order': False, 'shape': ()}", 4, "descr 'f4'"},
        {"{'descr': '', 'fortran_order': False, 'shape': ()}", 4, "descr ''"},
        {"{'descr': '|O', 'fortran_order': False, 'shape': ()}", 8, "descr '|O'"},
        {"{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': ()}", 4, "descr 'a table'"},
        {"{'descr': [('a]', '<f4'), 'fortran_order': False, 'shape': ()}", 4, "']' after"},
        {"{'descr': '<f4\\'', 'fortran_order': False, 'shape': ()}", 4, "short string"},
        {"{'descr': '<f4, 'fortran_order': False, 'shape': ()}", 4, "expected"},
        {"{'descr': '<f4' 'fortran_order': False, 'shape': ()}", 4, "','"},
        {"{'descr'  '<f4', 'fortran_order': False, 'shape': ()}", 4, "':'"},
        {"('descr', '<f4')", 4, "'{'"},
        {"", 4, "'{'"},
    };
    unsigned char data[64] = {0};
    struct bytes b = {NULL, 0, 0};
    (void)state;
    for (size_t k = 0; k < sizeof bad / sizeof *bad; k++) {
        npy_file(&b, 1, bad[k].dict, data, bad[k].bytes);
        expect_bad(save("broken.npy", &b), bad[k].message);
    }
    const char *good = "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }";
    npy_file(&b, 4, good, data, 48);
    expect_bad(save("broken.npy", &b), "version");
    npy_file(&b, 1, good, data, 48);
    b.data[7] = 1;
    expect_bad(save("broken.npy", &b), "version");
    npy_file(&b, 2, good, data, 48);
    b.data[11] = 0x7f;
    expect_bad(save("broken.npy", &b), "but the file ends at 176");
    npy_file(&b, 1, good, data, 48);
    for (b.size = 1; b.size < 128 + 48; b.size++)
        expect_bad(save("broken.npy", &b), "");
    bytes_clear(&b);
}

/* A file larger than the limit of mapped pages, so that pages are dropped; it consists mostly
 * of holes. */
static void test_npy_large(void **state)
{
    enum { ROWS = 3000, COLS = 9000 }; /* 108 MB of float32 */
    static const char *const orders[] = {"False", "True"};
    (void)state;
    for (int fortran = 0; fortran < 2; fortran++) {
        char dict[128];
        struct bytes b = {NULL, 0, 0};
        snprintf(dict, sizeof dict, "{'descr': '<f4', 'fortran_order': %s, 'shape': (%d, %d), }",
                 orders[fortran], ROWS, COLS);
        npy_file(&b, 1, dict, NULL, 0);
        const char *path = save("large.npy", &b);
        int fd = open(path, O_WRONLY);
        assert_int_equal(ftruncate(fd, (off_t)b.size + (off_t)ROWS * COLS * 4), 0);
        for (int r = 0; r < ROWS; r += 7) { /* one value per row, on a diagonal */
            float v = (float)(r + 1);
            off_t c = (off_t)r * 3, at = fortran ? c * ROWS + r : (off_t)r * COLS + c;
            assert_int_equal(pwrite(fd, &v, 4, (off_t)b.size + at * 4), 4);
        }
        close(fd);
        bytes_clear(&b);
        struct qm_file *f = open_good(path);
        static float x[40 * COLS + 77]; /* ranges end within rows */
        int64_t numel = qm_file_entry(f, 0)->numel, piece = sizeof x / sizeof *x;
        int bad = 0;
        for (int64_t from = 0; from < numel; from += piece) {
            int64_t n = piece < numel - from ? piece : numel - from;
            assert_int_equal(qm_file_read(f, 0, from, n, x), QM_OK);
            for (int64_t k = 0; k < n; k++) {
                int64_t r = (from + k) / COLS, c = (from + k) % COLS;
                bad += x[k] != (r % 7 == 0 && c == r * 3 ? (float)(r + 1) : 0.0f);
            }
        }
        assert_int_equal(bad, 0);
        qm_file_close(f);
        unlink(path);
    }
}

/* ---- .safetensors ---- */

/* A view is given only for contiguous native floats, and holds the values that reading gives. */
static void test_view(void **state)
{
    static const char *const dict[] = {
        "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 4), }",
        "{'descr': '<f4', 'fortran_order': True, 'shape': (8,), }",
        "{'descr': '<f4', 'fortran_order': True, 'shape': (2, 4), }",
        "{'descr': '>f4', 'fortran_order': False, 'shape': (2, 4), }",
        "{'descr': '<f2', 'fortran_order': False, 'shape': (2, 4), }",
        "{'descr': '<i4', 'fortran_order': False, 'shape': (2, 4), }"};
    static const float data[8] = {1.0f, 2.0f, 3.0f, 4.0f, 5.0f, 6.0f, 7.0f, 8.0f};
    struct bytes b = {NULL, 0, 0};
    float x[8];
    (void)state;
    for (int i = 0; i < 6; i++) {
        npy_file(&b, 1, dict[i], data, i == 4 ? 16 : 32);
        struct qm_file *f = open_good(save("view.npy", &b));
        const float *seen = qm_file_view(f, 0, 3, 5);
        assert_int_equal(seen != NULL, i < 2);
        assert_int_equal(qm_file_read(f, 0, 3, 5, x), QM_OK);
        if (seen)
            assert_memory_equal(seen, x, 5 * sizeof *x);
        assert_null(qm_file_view(f, 0, 3, 6));
        assert_null(qm_file_view(f, 0, -1, 2));
        assert_null(qm_file_view(f, 0, 8, 0));
        assert_null(qm_file_view(f, 1, 0, 1));
        qm_file_close(f);
    }
    for (int pad = 0; pad < 4; pad++) { /* the floats have every alignment */
        char json[96];
        snprintf(json, sizeof json, "{\"a\":{\"dtype\":\"F32\",\"shape\":[8],%*s%s}}", pad, "",
                 "\"data_offsets\":[0,32]");
        st_file(&b, json, data, 32);
        struct qm_file *f = open_good(save("view.safetensors", &b));
        const float *seen = qm_file_view(f, 0, 0, 8);
        assert_int_equal(seen != NULL, (8 + strlen(json)) % 4 == 0);
        if (seen)
            assert_memory_equal(seen, data, sizeof data);
        qm_file_close(f);
    }
    bytes_clear(&b);
}

static void test_safetensors(void **state)
{
    static const struct {
        const char *name, *code;
        enum qm_dtype dtype;
    } types[] = {
        {"F64", "f8", QM_DTYPE_f64},   {"F32", "f4", QM_DTYPE_f32}, {"F16", "f2", QM_DTYPE_f16},
        {"BF16", "V2", QM_DTYPE_bf16}, {"I64", "i8", QM_DTYPE_i64}, {"I32", "i4", QM_DTYPE_i32},
        {"I16", "i2", QM_DTYPE_i16},   {"I8", "i1", QM_DTYPE_i8},   {"U64", "u8", QM_DTYPE_u64},
        {"U32", "u4", QM_DTYPE_u32},   {"U16", "u2", QM_DTYPE_u16}, {"U8", "u1", QM_DTYPE_u8},
        {"BOOL", "b1", QM_DTYPE_bool}};
    enum { N = sizeof types / sizeof *types };
    char json[4096] = "{\"__metadata__\":{\"format\":\"pt\"}", tensor[160];
    struct bytes b = {NULL, 0, 0}, data = {NULL, 0, 0};
    double want[N][6];
    size_t begin[N + 1] = {0};
    unsigned char raw[8];
    (void)state;
    for (int t = 0; t < N; t++) {
        for (int k = 0; k < 6; k++)
            bytes_put(&data, raw,
                      pack(want[t][k] = value_of(types[t].code, k), types[t].code, 0, raw));
        begin[t + 1] = data.size;
    }
    for (int t = N - 1; t >= 0; t--) { /* the header's order differs from the data's */
        snprintf(tensor, sizeof tensor,
                 ",\"layer.%s\":{\"dtype\":\"%s\",\"shape\":[2,1,3],\"data_offsets\":[%zu,%zu]}",
                 types[t].name, types[t].name, begin[t], begin[t + 1]);
        strcat(json, tensor);
    }
    snprintf(tensor, sizeof tensor,
             ",\"empty\":{\"dtype\":\"F32\",\"shape\":[0,4],\"data_offsets\":[%zu,%zu]}"
             ",\"step\":{\"data_offsets\":[%zu,%zu],\"shape\":[],\"dtype\":\"I64\"}}   ",
             data.size, data.size, data.size, data.size + 8);
    strcat(json, tensor);
    bytes_put(&data, raw, pack(400, "i8", 0, raw));
    st_file(&b, json, data.data, data.size);
    struct qm_file *f = open_good(save("all.safetensors", &b));
    assert_string_equal(qm_file_format(f), "safetensors");
    assert_int_equal(qm_file_count(f), N + 2);
    for (int t = 0; t < N; t++) {
        snprintf(tensor, sizeof tensor, "layer.%s", types[t].name);
        expect_entry(f, N - 1 - t, tensor, types[t].dtype, "2x1x3");
        expect_values(f, N - 1 - t, want[t], 6);
    }
    expect_entry(f, N, "empty", QM_DTYPE_f32, "0x4");
    expect_values(f, N, want[0], 0);
    expect_entry(f, N + 1, "step", QM_DTYPE_i64, "scalar");
    expect_values(f, N + 1, (const double[]){400}, 1);
    qm_file_close(f);
    st_file(&b, "{}", "", 0);
    f = open_good(save("none.safetensors", &b));
    assert_int_equal(qm_file_count(f), 0);
    qm_file_close(f);
    bytes_clear(&b);
    bytes_clear(&data);
}

#define T(name, dtype, shape, begin, end)                                                          \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":[" #begin "," #end \
    "]}"

static void test_safetensors_broken(void **state)
{
    static const struct {
        const char *json;
        size_t bytes;
        const char *message;
    } bad[] = {
        {"{" T("a", "F32", "[2]", 0, 8) "," T("b", "F32", "[2]", 4, 12) "}", 12, "overlap"},
        {"{" T("a", "F32", "[2]", 0, 8) "," T("b", "F32", "[2]", 0, 8) "}", 8, "overlap"},
        {"{" T("a", "F32", "[2]", 0, 8) "," T("b", "F32", "[2]", 12, 20) "}", 20, "hole"},
        {"{" T("a", "F32", "[2]", 4, 12) "}", 12, "'a' begins at data byte 4, leaving a hole"},
        {"{" T("a", "F32", "[2]", 0, 8) "}", 12, "end at data byte 8, but there are 12"},
        {"{}", 1, "end at data byte 0, but there are 1"},
        {"{" T("a", "F32", "[2]", 0, 8) "}", 7, "outside the 7 bytes"},
        {"{" T("a", "F32", "[2]", -8, 0) "}", 8, "outside"},
        {"{" T("a", "F32", "[2]", 8, 0) "}", 8, "outside"},
        {"{" T("a", "F32", "[3]", 0, 8) "}", 8, "3 of F32 does not take the 8 bytes"},
        {"{" T("a", "F32", "[-2]", 0, 8) "}", 8, "size number 1 is not an integer of at least 0"},
        {"{" T("a", "F32", "[2.0]", 0, 8) "}", 8, "size number 1 is not an integer"},
        {"{" T("a", "F32", "[4294967296,4294967296]", 0, 0) "}", 0, "does not take"},
        {"{" T("a", "F64", "[2305843009213693952]", 0, 0) "}", 0, "does not take"},
        {"{" T("a", "F32", "[99999999999999999999]", 0, 8) "}", 8, "not JSON"},
        {"{" T("a", "F32", "[1,1,1,1,1,1,1,1,1]", 0, 4) "}", 4, "at most 8"},
        {"{" T("a", "F32", "2", 0, 8) "}", 8, "expected a list"},
        {"{" T("a", "F8_E4M3", "[2]", 0, 3) "}", 3, "2 of F8_E4M3 does not take"},
        {"{" T("a", "F4", "[4]", 0, 2) "}", 2, "no tensors that are read; left out: a (dtype F4)"},
        {"{\"a\":{\"shape\":[2],\"data_offsets\":[0,8]}}", 8, "dtype missing"},
        {"{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,8]}}", 8, "shape"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2]}}", 8, "data_offsets"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8,8]}}", 8, "data_offsets"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,\"8\"]}}", 8, "data_offsets"},
        {"{\"a\":7}", 0, "expected an object"},
        {"{" T("a", "F32", "[2]", 0, 8) "," T("a", "F32", "[2]", 8, 16) "}", 16, "duplicate"},
        {"{\"a\":{\"dtype\":\"F32\",\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]}}", 4,
         "duplicate"},
        {"{not json at all}", 0, "not JSON"},
        {"{} {}", 0, "not JSON"},
        {"{\"a\":", 0, "not JSON"},
        {"{\"__metadata__\":[[[[1]]]]}", 0, "nests deeper than 3"},
        {"{\"\\\"[[[[\":{\"x\":[[1]]}}", 0, "nests deeper than 3"},
        {"{\"\\\\\":7}", 0, "expected an object"},
        {"{\"two\\nlines\":7}", 0, "'two?lines'"},
    };
    unsigned char data[64] = {0};
    struct bytes b = {NULL, 0, 0};
    (void)state;
    for (size_t k = 0; k < sizeof bad / sizeof *bad; k++) {
        st_file(&b, bad[k].json, data, bad[k].bytes);
        expect_bad(save("broken.safetensors", &b), bad[k].message);
    }
    st_file(&b, "{" T("a", "F32", "[2]", 0, 8) "}", data, 8);
    size_t full = b.size;
    for (b.size = 1; b.size < full; b.size++)
        expect_bad(save("broken.safetensors", &b), "");
    b.size = full;
    memcpy(b.data, &(uint64_t){full - 7}, 8);
    expect_bad(save("broken.safetensors", &b), "but the file ends at");
    memcpy(b.data, &(uint64_t){100000001}, 8);
    expect_bad(save("broken.safetensors", &b), "expected at most 100000000");
    memcpy(b.data, &(uint64_t){UINT64_MAX}, 8);
    expect_bad(save("broken.safetensors", &b), "neither HDF5");
    b.size = 8;
    for (int k = 0; k < 1000000; k++) /* a megabyte of nested brackets */
        bytes_put(&b, k == 0 ? "{" : k == 1 ? "\"" : k == 2 ? "\"" : k == 3 ? ":" : "[", 1);
    memcpy(b.data, &(uint64_t){1000000}, 8);
    expect_bad(save("broken.safetensors", &b), "nests deeper than 3");
    bytes_clear(&b);
}

/* ---- other files ---- */

static void test_odd_files(void **state)
{
    struct bytes b = {NULL, 0, 0};
    char path[512];
    (void)state;
    expect_bad(path_of("absent.npy"), "No such file");
    expect_bad(dir, "is a directory");
    expect_bad(save("empty.npy", &b), "is empty");
    expect_bad("/dev/null", "not a regular file");
    snprintf(path, sizeof path, "%s", path_of("pipe"));
    assert_int_equal(mkfifo(path, 0600), 0);
    expect_bad(path, "not a regular file");
    bytes_put(&b, "PK\003\004 and more", 13);
    expect_bad(save("archive.npz", &b), "nor a torch checkpoint (13 bytes");
    struct qm_file *f = NULL; /* the message is one line even then */
    assert_int_equal(qm_file_open(save("two\nlines", &b), &f), QM_BAD_FILE);
    assert_null(strchr(qm_message(), '\n'));
    assert_non_null(strstr(qm_message(), "two?lines: "));
    bytes_clear(&b);
}

static void test_shortened_while_open(void **state)
{
    struct bytes b = {NULL, 0, 0};
    float data[12] = {0}, x[12];
    (void)state;
    npy_file(&b, 1, "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }", data, 48);
    const char *path = save("short.npy", &b);
    struct qm_file *f = open_good(path);
    assert_int_equal(qm_file_read(f, 0, 0, 12, x), QM_OK);
    assert_non_null(qm_file_view(f, 0, 0, 12));
    assert_int_equal(truncate(path, 100), 0);
    assert_null(qm_file_view(f, 0, 0, 12));
    assert_int_equal(qm_file_read(f, 0, 0, 12, x), QM_BAD_FILE);
    expect_message(path, "became shorter");
    assert_int_equal(qm_file_read(f, 1, 0, 1, x), QM_BAD_ARG);
    assert_int_equal(qm_file_read(f, -1, 0, 1, x), QM_BAD_ARG);
    qm_file_close(f);
    qm_file_close(NULL);
    bytes_clear(&b);
}

/* A view of pages that the file has no more: zeros, and the check says so, even once the file has
 * its size and its time again. */
static void test_view_of_lost_pages(void **state)
{
    enum { N = 1 << 14 };
    struct bytes b = {NULL, 0, 0};
    static float data[N];
    struct stat was;
    (void)state;
    for (int i = 0; i < N; i++)
        data[i] = 1.0f;
    npy_file(&b, 1, "{'descr': '<f4', 'fortran_order': False, 'shape': (16384,), }", data,
             sizeof data);
    const char *path = save("lost.npy", &b);
    struct qm_file *f = open_good(path);
    const float *x = qm_file_view(f, 0, 0, N);
    assert_non_null(x);
    assert_int_equal(stat(path, &was), 0);
    assert_int_equal(truncate(path, 4096), 0);
    assert_true(x[N - 1] == 0.0f);
    assert_true(x[0] == 1.0f);
    assert_int_equal(qm_file_check(f), QM_BAD_FILE);
    expect_message(path, "became shorter");
    assert_int_equal(truncate(path, was.st_size), 0);
    const struct timespec times[2] = {was.st_atim, was.st_mtim}; /* that of change stays */
    assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
    assert_int_equal(qm_file_check(f), QM_BAD_FILE);
    expect_message(path, "changed while it was read");
    qm_file_close(f);
    bytes_clear(&b);
}

static void test_changed_while_open(void **state)
{
    struct bytes b = {NULL, 0, 0};
    float data[12] = {0}, x[12];
    (void)state;
    npy_file(&b, 1, "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }", data, 48);
    const char *path = save("changed.npy", &b);
    struct qm_file *f = open_good(path);
    assert_int_equal(qm_file_read(f, 0, 0, 12, x), QM_OK);
    const struct timespec times[2] = {{1, 0}, {1, 0}};
    assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
    assert_int_equal(qm_file_read(f, 0, 0, 12, x), QM_BAD_FILE);
    expect_message(path, "changed while it was read");
    qm_file_close(f);
    bytes_clear(&b);
}

static void test_fuzzed(void **state)
{
    uint32_t which = 0;
    (void)state;
    qm_reader_in_this_process(1); /* thousands of files: a process for each takes too long */
    const char *bad = fuzz_mutations(7, 4000, &which);
    qm_reader_in_this_process(0);
    if (bad)
        fail_msg("iteration %u: %s", which, bad);
    bad = fuzz_hdf5_truncations(7, 20);
    if (bad)
        fail_msg("truncated HDF5: %s", bad);
}

/* ---- the shipped samples ---- */

#define VECTOR 256
#define MATRIX (64 * VECTOR)

static double *whole(struct qm_file *f, const char *name, int64_t n)
{
    double *x = malloc(sizeof *x * (size_t)n);
    assert_non_null(x);
    assert_int_equal(qm_file_read_double(f, find(f, name), 0, n, x), QM_OK);
    return x;
}

static double as_given(double x) { return x; }
static double as_bf16(double x) { return (double)qm_bf16_to_float(qm_float_to_bf16((float)x)); }
static double as_f16(double x) { return (double)qm_f16_to_float(qm_float_to_f16((float)x)); }
static double as_f16_1024(double x) { return as_f16(1024 * x); }

/* README.md of data/real, section 6: each sample is rows 0-63 of one tensor of gpt_austen.h5. */
static void test_samples(void **state)
{
    static const struct {
        const char *file, *name, *tensor;
        int64_t n;
        enum qm_dtype dtype;
        double (*as)(double);
    } samples[] = {{"sample.safetensors", "h.1.proj.weight.exp_avg", "h.1.proj.weight/exp_avg",
                    MATRIX, QM_DTYPE_f32, as_given},
                   {"sample.safetensors", "h.1.proj.weight.exp_avg_sq",
                    "h.1.proj.weight/exp_avg_sq", MATRIX, QM_DTYPE_f32, as_given},
                   {"sample.safetensors", "h.1.proj.weight.grad_bf16", "h.1.proj.weight/grad",
                    MATRIX, QM_DTYPE_bf16, as_bf16},
                   {"sample.safetensors", "h.1.proj.weight.param_f16", "h.1.proj.weight/param",
                    MATRIX, QM_DTYPE_f16, as_f16},
                   {"sample.safetensors", "h.1.ln1.weight.param_f64", "h.1.ln1.weight/param",
                    VECTOR, QM_DTYPE_f64, as_given},
                   {"sample_exp_avg_f32.npy", "sample_exp_avg_f32", "h.1.proj.weight/exp_avg",
                    MATRIX, QM_DTYPE_f32, as_given},
                   {"sample_exp_avg_f64_fortran.npy", "sample_exp_avg_f64_fortran",
                    "h.1.proj.weight/exp_avg", MATRIX, QM_DTYPE_f64, as_given},
                   {"sample_exp_avg_f16.npy", "sample_exp_avg_f16", "h.1.proj.weight/exp_avg",
                    MATRIX, QM_DTYPE_f16, as_f16_1024},
                   {"sample_exp_avg_f32_bigendian.npy", "sample_exp_avg_f32_bigendian",
                    "h.1.proj.weight/exp_avg", MATRIX, QM_DTYPE_f32, as_given},
                   {"sample_ln_param_f32_1d.npy", "sample_ln_param_f32_1d", "h.1.ln1.weight/param",
                    VECTOR, QM_DTYPE_f32, as_given}};
    const char *shared = getenv("QM_SHARED");
    char path[512], tensor[128];
    (void)state;
    snprintf(path, sizeof path, "%s/data/real/gpt_austen.h5", shared ? shared : "../shared");
    if (access(path, R_OK) != 0)
        skip();
    struct qm_file *real = open_good(path);
    for (size_t k = 0; k < sizeof samples / sizeof *samples; k++) {
        snprintf(path, sizeof path, "%s/data/real/%s", shared ? shared : "../shared",
                 samples[k].file);
        struct qm_file *f = open_good(path);
        snprintf(tensor, sizeof tensor, "/gpt_austen_b95/s000400/%s", samples[k].tensor);
        double *want = whole(real, tensor, samples[k].n);
        double *got = whole(f, samples[k].name, samples[k].n);
        const struct qm_entry *e = qm_file_entry(f, find(f, samples[k].name));
        assert_int_equal(e->dtype, samples[k].dtype);
        assert_int_equal(e->numel, samples[k].n);
        for (int64_t i = 0; i < samples[k].n; i++)
            if (got[i] != samples[k].as(want[i]))
                fail_msg("%s, element %d: %g, expected %g", samples[k].file, (int)i, got[i],
                         samples[k].as(want[i]));
        free(want);
        free(got);
        if (k == 0) {
            assert_int_equal(qm_file_count(f), 7);
            expect_values(f, find(f, "step"), (const double[]){400}, 1);
            expect_entry(f, find(f, "empty"), "empty", QM_DTYPE_f32, "0x4");
        }
        qm_file_close(f);
    }
    double step = 0;
    assert_int_equal(qm_file_attr_number(real, "/gpt_austen_b95/s000400", "step", &step, 1), 1);
    assert_true(step == 400);
    assert_true(qm_file_attr_text(real, "/gpt_austen_b95", "optimizer", path, sizeof path) > 0);
    qm_file_close(real);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_npy_types),
        cmocka_unit_test(test_npy_fortran),
        cmocka_unit_test(test_npy_broken),
        cmocka_unit_test(test_npy_large),
        cmocka_unit_test(test_view),
        cmocka_unit_test(test_safetensors),
        cmocka_unit_test(test_safetensors_broken),
        cmocka_unit_test(test_odd_files),
        cmocka_unit_test(test_shortened_while_open),
        cmocka_unit_test(test_view_of_lost_pages),
        cmocka_unit_test(test_changed_while_open),
        cmocka_unit_test(test_fuzzed),
        cmocka_unit_test(test_samples),
    };
    return cmocka_run_group_tests_name("readers", tests, make_dir, remove_dir);
}
