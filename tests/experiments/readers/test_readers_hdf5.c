/* test_readers_hdf5.c - HDF5 files: exact reads by path, refusals of broken files. */
#include "tests/support/readers.h"

#include <hdf5.h>

/* The type of IEEE binary16 or bfloat16, for which the library has no name. */
static hid_t half_type(size_t mantissa, H5T_order_t order)
{
    hid_t type = H5Tcopy(H5T_IEEE_F32LE);
    H5Tset_fields(type, 15, mantissa, 15 - mantissa, 0, mantissa);
    H5Tset_size(type, 2);
    H5Tset_ebias(type, mantissa == 10 ? 15 : 127);
    H5Tset_order(type, order);
    return type;
}

static void put_set(hid_t at, const char *name, hid_t type, int rank, const hsize_t *dims,
                    const hsize_t *chunk, const double *data)
{
    hid_t space = rank ? H5Screate_simple(rank, dims, NULL) : H5Screate(H5S_SCALAR);
    hid_t create = H5Pcreate(H5P_DATASET_CREATE), links = H5Pcreate(H5P_LINK_CREATE);
    H5Pset_create_intermediate_group(links, 1);
    if (chunk) {
        H5Pset_chunk(create, rank, chunk);
        H5Pset_shuffle(create);
        H5Pset_deflate(create, 4);
    }
    hid_t set = H5Dcreate2(at, name, type, space, links, create, H5P_DEFAULT);
    assert_true(set >= 0);
    if (data)
        assert_true(H5Dwrite(set, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, data) >= 0);
    H5Dclose(set);
    H5Pclose(links);
    H5Pclose(create);
    H5Sclose(space);
}

static void test_hdf5_types(void **state)
{
    hid_t half[4] = {half_type(10, H5T_ORDER_LE), half_type(10, H5T_ORDER_BE),
                     half_type(7, H5T_ORDER_LE), half_type(7, H5T_ORDER_BE)};
    const struct {
        const char *name, *code;
        hid_t type;
        enum qm_dtype dtype;
    } types[] = {
        {"/a", "f8", H5T_IEEE_F64LE, QM_DTYPE_f64}, {"/b", "f8", H5T_IEEE_F64BE, QM_DTYPE_f64},
        {"/c", "f4", H5T_IEEE_F32LE, QM_DTYPE_f32}, {"/d", "f4", H5T_IEEE_F32BE, QM_DTYPE_f32},
        {"/e", "f2", half[0], QM_DTYPE_f16},        {"/f", "f2", half[1], QM_DTYPE_f16},
        {"/g", "V2", half[2], QM_DTYPE_bf16},       {"/h", "V2", half[3], QM_DTYPE_bf16},
        {"/i", "i8", H5T_STD_I64LE, QM_DTYPE_i64},  {"/j", "i4", H5T_STD_I32BE, QM_DTYPE_i32},
        {"/k", "i2", H5T_STD_I16LE, QM_DTYPE_i16},  {"/l", "i1", H5T_STD_I8LE, QM_DTYPE_i8},
        {"/m", "u8", H5T_STD_U64BE, QM_DTYPE_u64},  {"/n", "u4", H5T_STD_U32LE, QM_DTYPE_u32},
        {"/o", "u2", H5T_STD_U16LE, QM_DTYPE_u16},  {"/p", "u1", H5T_STD_U8LE, QM_DTYPE_u8}};
    enum { N = sizeof types / sizeof *types };
    const hsize_t dims[4] = {2, 3, 4, 1}, chunk[4] = {2, 2, 3, 1}, zero[2] = {0, 4};
    double want[N][24];
    const char *path = path_of("types.h5");
    (void)state;
    hid_t file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    for (int t = N - 1; t >= 0; t--) {
        for (int k = 0; k < 24; k++)
            want[t][k] = value_of(types[t].code, k);
        put_set(file, types[t].name, types[t].type, 4, dims, t % 2 ? chunk : NULL, want[t]);
    }
    put_set(file, "q", H5T_IEEE_F32LE, 0, NULL, NULL, want[0]);
    put_set(file, "r", H5T_IEEE_F32LE, 2, zero, NULL, NULL);
    put_set(file, "s", H5T_IEEE_F64LE, 2, dims, chunk, NULL); /* never written */
    for (int k = 0; k < 4; k++)
        H5Tclose(half[k]);
    H5Fclose(file);
    struct qm_file *f = open_good(path);
    assert_string_equal(qm_file_format(f), "hdf5");
    assert_int_equal(qm_file_count(f), N + 3);
    for (int t = 0; t < N; t++) {
        expect_entry(f, t, types[t].name, types[t].dtype, "2x3x4x1");
        expect_values(f, t, want[t], 24);
    }
    expect_entry(f, N, "/q", QM_DTYPE_f32, "scalar");
    expect_values(f, N, want[0], 1);
    expect_entry(f, N + 1, "/r", QM_DTYPE_f32, "0x4");
    expect_values(f, N + 1, want[0], 0);
    expect_entry(f, N + 2, "/s", QM_DTYPE_f64, "2x3");
    expect_values(f, N + 2, (const double[6]){0}, 6);
    qm_file_close(f);
}

/* Every bit pattern of float16 and bfloat16 is read, NaN payloads included, in both byte orders. */
static void test_hdf5_half_patterns(void **state)
{
    static uint16_t bits[65536];
    static float x[65536];
    const hsize_t dims[1] = {65536};
    (void)state;
    for (int k = 0; k < 65536; k++)
        bits[k] = (uint16_t)k;
    for (int t = 0; t < 4; t++) {
        const char *path = path_of("half.h5");
        size_t mantissa = t < 2 ? 10 : 7;
        hid_t file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
        hid_t stored = half_type(mantissa, t % 2 ? H5T_ORDER_BE : H5T_ORDER_LE);
        hid_t memory = half_type(mantissa, H5T_ORDER_LE), space = H5Screate_simple(1, dims, NULL);
        hid_t set = H5Dcreate2(file, "x", stored, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
        assert_true(H5Dwrite(set, memory, H5S_ALL, H5S_ALL, H5P_DEFAULT, bits) >= 0);
        H5Dclose(set);
        H5Sclose(space);
        H5Tclose(stored);
        H5Tclose(memory);
        H5Fclose(file);
        struct qm_file *f = open_good(path);
        assert_int_equal(qm_file_read(f, 0, 0, 65536, x), QM_OK);
        int bad = 0;
        for (int k = 0; k < 65536; k++)
            bad += qm_bits(x[k]) !=
                   qm_bits(t < 2 ? qm_f16_to_float(bits[k]) : qm_bf16_to_float(bits[k]));
        assert_int_equal(bad, 0);
        qm_file_close(f);
    }
}

/* Ranges have more elements than are converted at a time, and end inside rows and chunks. */
static void test_hdf5_large(void **state)
{
    enum { ROWS = 1500, COLS = 1100 };
    const hsize_t dims[2] = {ROWS, COLS}, chunk[2] = {64, 333};
    double *data = malloc(sizeof *data * ROWS * COLS), *x = malloc(sizeof *x * ROWS * COLS);
    const char *path = path_of("large.h5");
    (void)state;
    assert_true(data && x);
    for (int k = 0; k < ROWS * COLS; k++)
        data[k] = k;
    hid_t file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    put_set(file, "f", H5T_IEEE_F32LE, 2, dims, chunk, data);
    H5Fclose(file);
    struct qm_file *f = open_good(path);
    static const int64_t ranges[][2] = {{0, ROWS * COLS}, {1, ROWS * COLS - 2}, {1099, 1200003},
                                        {COLS, COLS},     {COLS * 63 + 5, 77},  {7, 1}};
    for (size_t r = 0; r < sizeof ranges / sizeof *ranges; r++) {
        assert_int_equal(qm_file_read_double(f, 0, ranges[r][0], ranges[r][1], x), QM_OK);
        assert_memory_equal(x, data + ranges[r][0], sizeof *x * (size_t)ranges[r][1]);
    }
    qm_file_close(f);
    free(data);
    free(x);
}

static void test_hdf5_links(void **state)
{
    static const char *const names[] = {
        "/A/x", "/a/b/x",       "/a/b/y",           "/a/hard", "/a/more/x", "/a/more/y",
        "/a.0", "/elsewhere/a", "/elsewhere/sub/z", "/soft",   "/z"};
    const hsize_t dims[1] = {3}, nine[9] = {1, 1, 1, 1, 1, 1, 1, 1, 1};
    const double one[3] = {1, 2, 3}, two[3] = {4, 5, 6};
    char other[512];
    (void)state;
    snprintf(other, sizeof other, "%s", path_of("other.h5"));
    hid_t file = H5Fcreate(other, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    put_set(file, "a", H5T_IEEE_F32LE, 1, dims, NULL, two);
    put_set(file, "sub/z", H5T_IEEE_F32LE, 1, dims, NULL, two);
    H5Lcreate_soft("/sub", file, "sub/again", H5P_DEFAULT, H5P_DEFAULT);
    H5Fclose(file);
    const char *path = path_of("links.h5");
    file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    put_set(file, "z", H5T_IEEE_F32LE, 1, dims, NULL, two);
    put_set(file, "a/b/y", H5T_IEEE_F32LE, 1, dims, NULL, two);
    put_set(file, "a/b/x", H5T_IEEE_F32LE, 1, dims, NULL, one);
    put_set(file, "A/x", H5T_IEEE_F32LE, 1, dims, NULL, two);
    put_set(file, "a.0", H5T_IEEE_F32LE, 1, dims, NULL, one);
    H5Lcreate_hard(file, "/a/b/x", file, "/a/hard", H5P_DEFAULT, H5P_DEFAULT);
    H5Lcreate_hard(file, "/a/b", file, "/a/more", H5P_DEFAULT, H5P_DEFAULT);
    H5Lcreate_soft("a/b/x", file, "soft", H5P_DEFAULT, H5P_DEFAULT);
    H5Lcreate_soft("/a", file, "/a/b/up", H5P_DEFAULT, H5P_DEFAULT); /* links back up */
    H5Lcreate_soft("/", file, "/a/root", H5P_DEFAULT, H5P_DEFAULT);
    H5Lcreate_hard(file, "/a", file, "/a/self", H5P_DEFAULT, H5P_DEFAULT);
    H5Lcreate_external("other.h5", "/", file, "elsewhere", H5P_DEFAULT, H5P_DEFAULT);
    /* objects that are left out */
    hid_t text = H5Tcopy(H5T_C_S1), pair = H5Tcreate(H5T_COMPOUND, 8);
    hid_t colour = H5Tenum_create(H5T_NATIVE_INT8);
    H5Tinsert(pair, "u", 0, H5T_NATIVE_FLOAT);
    H5Tinsert(pair, "v", 4, H5T_NATIVE_FLOAT);
    H5Tenum_insert(colour, "red", &(signed char){1});
    put_set(file, "left/text", text, 1, dims, NULL, NULL);
    put_set(file, "left/pair", pair, 1, dims, NULL, NULL);
    put_set(file, "left/enum", colour, 1, dims, NULL, NULL);
    put_set(file, "left/long", H5T_NATIVE_LDOUBLE, 1, dims, NULL, NULL);
    put_set(file, "left/rank9", H5T_IEEE_F32LE, 9, nine, NULL, NULL);
    H5Tcommit2(file, "left/type", text, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    hid_t space = H5Screate(H5S_NULL), create = H5Pcreate(H5P_DATASET_CREATE);
    H5Dclose(H5Dcreate2(file, "left/null", H5T_IEEE_F32LE, space, H5P_DEFAULT, H5P_DEFAULT,
                        H5P_DEFAULT));
    H5Sclose(space);
    space = H5Screate_simple(1, dims, NULL);
    H5Pset_external(create, "raw.bin", 0, 12);
    H5Dclose(H5Dcreate2(file, "left/raw", H5T_IEEE_F32LE, space, H5P_DEFAULT, create, H5P_DEFAULT));
    H5Pclose(create);
    create = H5Pcreate(H5P_DATASET_CREATE);
    H5Pset_virtual(create, space, "other.h5", "/a", space);
    H5Dclose(
        H5Dcreate2(file, "left/view", H5T_IEEE_F32LE, space, H5P_DEFAULT, create, H5P_DEFAULT));
    H5Pclose(create);
    H5Sclose(space);
    H5Tclose(text);
    H5Tclose(pair);
    H5Tclose(colour);
    H5Fclose(file);
    expect_bad(path, "link '/elsewhere' leads out of the file; QM_FOLLOW_LINKS=1 follows it");
    setenv("QM_FOLLOW_LINKS", "1", 1);
    struct qm_file *f = open_good(path);
    unsetenv("QM_FOLLOW_LINKS");
    for (int i = 0; i < qm_file_count(f) && i < (int)(sizeof names / sizeof *names); i++)
        assert_string_equal(qm_file_entry(f, i)->name, names[i]);
    assert_int_equal(qm_file_count(f), sizeof names / sizeof *names);
    expect_values(f, find(f, "/soft"), one, 3);
    expect_values(f, find(f, "/a/hard"), one, 3);
    expect_values(f, find(f, "/a/more/x"), one, 3);
    expect_values(f, find(f, "/elsewhere/sub/z"), two, 3);
    expect_values(f, find(f, "/A/x"), two, 3);
    char said[1024];
    assert_true(qm_file_left_out(f, said, sizeof said) > 0);
    assert_string_equal(
        said, "left/enum (an enumeration); left/long (floats of 16 bytes that are none of IEEE and "
              "not bfloat16); left/null (no dataspace); left/pair (a compound type); left/rank9 (9 "
              "dimensions, at most 8 are read); left/raw (its data is in other files); left/text "
              "(a text); left/view (its data is in other files)");
    qm_file_close(f);
}

static void put_attr(hid_t at, const char *object, const char *name, hid_t type, int n,
                     const void *data, hid_t memory)
{
    hsize_t dims[1] = {(hsize_t)n};
    hid_t space = n ? H5Screate_simple(1, dims, NULL) : H5Screate(H5S_SCALAR);
    hid_t attr =
        H5Acreate_by_name(at, object, name, type, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    assert_true(H5Awrite(attr, memory, data) >= 0);
    H5Aclose(attr);
    H5Sclose(space);
}

static void test_hdf5_attributes(void **state)
{
    const char *path = path_of("attr.h5"), *utf8 = "caf\xc3\xa9", *two[2] = {"a", "b"};
    const hsize_t dims[1] = {1};
    const double lr = 0.25;
    const int64_t range[3] = {0, 128, -7};
    (void)state;
    hid_t file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    hid_t variable = H5Tcopy(H5T_C_S1), fixed = H5Tcopy(H5T_C_S1);
    H5Tset_size(variable, H5T_VARIABLE);
    H5Tset_cset(variable, H5T_CSET_UTF8);
    H5Tset_size(fixed, 5);
    H5Tset_strpad(fixed, H5T_STR_SPACEPAD);
    put_set(file, "run/x", H5T_IEEE_F32LE, 1, dims, NULL, &lr);
    put_attr(file, "/run", "lr", H5T_IEEE_F64BE, 0, &lr, H5T_NATIVE_DOUBLE);
    put_attr(file, "/run/x", "range", H5T_STD_I64LE, 3, range, H5T_NATIVE_INT64);
    put_attr(file, "/run/x", "model", variable, 0, &utf8, variable);
    put_attr(file, "/", "fixed", fixed, 0, "abc  ", fixed);
    put_attr(file, "/", "several", variable, 2, two, variable);
    H5Tclose(variable);
    H5Tclose(fixed);
    H5Fclose(file);
    struct qm_file *f = open_good(path);
    double x[3] = {9, 9, 9};
    char text[16] = "old";
    assert_int_equal(qm_file_attr_number(f, "/run", "lr", x, 3), 1);
    assert_true(x[0] == 0.25 && x[1] == 9);
    assert_int_equal(qm_file_attr_number(f, "/run/x", "range", x, 2), 2);
    assert_true(x[0] == 0 && x[1] == 128 && x[2] == 9);
    assert_int_equal(qm_file_attr_number(f, "/run/x", "range", x, 3), 3);
    assert_true(x[2] == -7);
    assert_int_equal(qm_file_attr_number(f, "/run/x", "model", x, 1), -1);
    assert_int_equal(qm_file_attr_number(f, "/run", "none", x, 1), -1);
    assert_int_equal(qm_file_attr_number(f, "/no/such", "lr", x, 1), -1);
    assert_int_equal(qm_file_attr_text(f, "/run/x", "model", text, sizeof text), 5);
    assert_string_equal(text, utf8);
    assert_int_equal(qm_file_attr_text(f, "/run/x", "model", text, 4), 3);
    assert_string_equal(text, "caf");
    assert_int_equal(qm_file_attr_text(f, "/", "fixed", text, sizeof text), 3);
    assert_string_equal(text, "abc");
    assert_int_equal(qm_file_attr_text(f, "/", "several", text, sizeof text), -1);
    assert_string_equal(text, "");
    assert_int_equal(qm_file_attr_text(f, "/run", "lr", text, sizeof text), -1);
    assert_int_equal(qm_file_attr_text(f, "/absent", "lr", text, sizeof text), -1);
    qm_file_close(f);
}

static void test_hdf5_broken(void **state)
{
    const hsize_t dims[1] = {4000}, chunk[1] = {1000};
    static double data[4000];
    const char *path = path_of("broken.h5");
    (void)state;
    for (int k = 0; k < 4000; k++)
        data[k] = k * 0.37;
    hid_t file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    put_set(file, "x", H5T_IEEE_F64LE, 1, dims, chunk, data);
    H5Fclose(file);
    struct stat info;
    assert_int_equal(stat(path, &info), 0);
    for (off_t left = info.st_size - 1; left > 8; left = left * 2 / 3) {
        assert_int_equal(truncate(path, left), 0);
        expect_bad(path, "HDF5");
    }

    /* the dataspace claims more than the file holds */
    struct bytes b = {NULL, 0, 0};
    uint64_t claimed = 4000, much = 1000000007;
    file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    put_set(file, "x", H5T_IEEE_F64LE, 1, dims, NULL, data);
    H5Fclose(file);
    unsigned char block[4096];
    FILE *in = fopen(path, "rb");
    assert_non_null(in);
    for (size_t n; (n = fread(block, 1, sizeof block, in)) > 0;)
        bytes_put(&b, block, n);
    fclose(in);
    unsigned char *at_dims = memmem(b.data, b.size, &claimed, 8);
    assert_non_null(at_dims);
    memcpy(at_dims, &much, 8);
    expect_bad(save("broken.h5", &b), "8000000056 bytes at");
    bytes_clear(&b);

    static const char *const messages[] = {"link '/g/soft' leads nowhere", "link '/out' leads",
                                           "link '/out' leads", "link '/loop' leads"};
    for (int k = 0; k < 4; k++) {
        file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
        H5Gclose(H5Gcreate2(file, "g", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
        if (k == 0)
            H5Lcreate_soft("/nothing/here", file, "/g/soft", H5P_DEFAULT, H5P_DEFAULT);
        else if (k == 1)
            H5Lcreate_external("absent.h5", "/", file, "/out", H5P_DEFAULT, H5P_DEFAULT);
        else if (k == 2)
            H5Lcreate_external("broken.h5", "/absent", file, "/out", H5P_DEFAULT, H5P_DEFAULT);
        else
            H5Lcreate_soft("/loop", file, "/loop", H5P_DEFAULT, H5P_DEFAULT);
        H5Fclose(file);
        expect_bad(path, messages[k]);
    }

    file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    hid_t at = file;
    for (int k = 0; k < 70; k++) {
        hid_t next = H5Gcreate2(at, "d", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
        if (at != file)
            H5Gclose(at);
        at = next;
    }
    H5Gclose(at);
    H5Fclose(file);
    expect_bad(path, "nests deeper than 64");

    /* each group has two links to the next one: 2^40 paths */
    file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    at = file;
    for (int k = 0; k < 40; k++) {
        hid_t next = H5Gcreate2(at, "l", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
        H5Lcreate_hard(at, "l", at, "r", H5P_DEFAULT, H5P_DEFAULT);
        if (at != file)
            H5Gclose(at);
        at = next;
    }
    H5Gclose(at);
    H5Fclose(file);
    expect_bad(path, "several names");
}

/* What a file's begin, where `what` stands, is made to say instead; returns the path. */
static const char *patched(const char *path, const void *what, size_t n, size_t at, int byte)
{
    static unsigned char all[1 << 20];
    FILE *in = fopen(path, "rb+");
    assert_non_null(in);
    size_t size = fread(all, 1, sizeof all, in), k = 0;
    while (k + n <= size && memcmp(all + k, what, n) != 0)
        k++;
    assert_true(k + n <= size);
    assert_int_equal(fseek(in, (long)(k + at), SEEK_SET), 0);
    fputc(byte, in);
    fclose(in);
    return path;
}

/* Every field of a float's type that is another than IEEE's leaves the dataset out. */
static void test_hdf5_damaged_floats(void **state)
{
    /* bit 0 at 0, 32 bits; exponent at 23 of 8; mantissa at 0 of 23; bias 127 */
    static const unsigned char f32[] = {0x11, 0x20, 0x1f, 0, 4, 0,  0,   0, 0, 0,
                                        32,   0,    23,   8, 0, 23, 127, 0, 0, 0};
    static const struct {
        int at, byte;
    } fields[] = {{2, 30},  {8, 1},   {10, 31},  {12, 22}, {13, 7},
                  {14, 20}, {15, 22}, {16, 126}, {17, 79}, {1, 0x00}};
    const hsize_t dims[1] = {3};
    const double data[3] = {1, 2, 3};
    const char *path = path_of("floats.h5");
    (void)state;
    for (size_t k = 0; k < sizeof fields / sizeof *fields; k++) {
        hid_t file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
        put_set(file, "x", H5T_IEEE_F32LE, 1, dims, NULL, data);
        put_set(file, "y", H5T_STD_I32LE, 1, dims, NULL, data);
        H5Fclose(file);
        char text[256];
        struct qm_file *f =
            open_good(patched(path, f32, sizeof f32, (size_t)fields[k].at, fields[k].byte));
        assert_int_equal(qm_file_count(f), 1);
        assert_true(qm_file_left_out(f, text, sizeof text) > 0);
        assert_non_null(strstr(text, "x (floats of 4 bytes that are none of IEEE"));
        qm_file_close(f);
    }
}

/* Storage of another size than the shape's, and chunks that lie in no place, or two in one. */
static void test_hdf5_damaged_storage(void **state)
{
    const hsize_t dims[1] = {40}, chunk[1] = {10}, most[1] = {H5S_UNLIMITED};
    static double data[40];
    const char *path = path_of("storage.h5");
    (void)state;
    for (int k = 0; k < 40; k++)
        data[k] = k + 1;
    hid_t file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    put_set(file, "x", H5T_IEEE_F32LE, 1, dims, NULL, data);
    H5Fclose(file);
    const uint64_t sides[2] = {40, 40}; /* the shape, and the largest that it may have */
    expect_bad(patched(path, sides, sizeof sides, 0, 39), "claims 156 bytes, and stores 160");
    const uint64_t other[2] = {39, 40};
    expect_bad(patched(path, other, sizeof other, 0, 0), "claims 0 bytes, and stores 160");
    for (int k = 0; k < 2; k++) {
        static const int byte[] = {0, 9}; /* 4 and 2308 instead of 260; HDF5 reads 261 as 260 */
        const hsize_t wide[1] = {520}, side[1] = {130};
        const uint64_t key[2] = {260, 0}; /* of the third chunk: its place, and in its element */
        static const double zeros[520];
        file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
        put_set(file, "x", H5T_IEEE_F32LE, 1, wide, side, zeros);
        H5Fclose(file);
        expect_bad(patched(path, key, sizeof key, 1, byte[k]),
                   "a chunk does not lie at a place of its own");
    }
    file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    hid_t space = H5Screate_simple(1, dims, most), create = H5Pcreate(H5P_DATASET_CREATE);
    H5Pset_chunk(create, 1, chunk);
    hid_t set = H5Dcreate2(file, "x", H5T_IEEE_F32LE, space, H5P_DEFAULT, create, H5P_DEFAULT);
    assert_true(H5Dwrite(set, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, data) >= 0);
    for (int k = 0; k < 2; k++) /* places without a chunk are no damage */
        H5Dset_extent(set, &(const hsize_t){k ? 95 : 15});
    H5Dclose(set);
    H5Pclose(create);
    H5Sclose(space);
    H5Fclose(file);
    struct qm_file *f = open_good(path);
    static double kept[95];
    memcpy(kept, data, 15 * sizeof *data);
    expect_values(f, 0, kept, 95);
    qm_file_close(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hdf5_types),          cmocka_unit_test(test_hdf5_half_patterns),
        cmocka_unit_test(test_hdf5_large),          cmocka_unit_test(test_hdf5_links),
        cmocka_unit_test(test_hdf5_attributes),     cmocka_unit_test(test_hdf5_broken),
        cmocka_unit_test(test_hdf5_damaged_floats), cmocka_unit_test(test_hdf5_damaged_storage),
    };
    return cmocka_run_group_tests_name("readers_hdf5", tests, make_dir, remove_dir);
}
