/* test_npz.c - .npz files: exact reads, refusals of broken archives and of archives in archives. */
#include "experiments/store/array_file.h"
#include "tests/support/readers.h"

/* Three arrays of array_file.h are read back; then every truncation and every flipped byte
 * is tried. */
static void test_npz(void **state)
{
    (void)state;
    float x[6] = {1.5f, -2.0f, 0.0f, 1e-40f, INFINITY, 7.0f};
    uint8_t code[5] = {0, 1, 127, 128, 255};
    uint16_t half[1] = {0x3f80};
    struct qm_tensor t[3] = {{x, QM_DTYPE_f32, {2, {2, 3}}},
                             {code, QM_DTYPE_u8, {1, {5}}},
                             {half, QM_DTYPE_bf16, {0, {0}}}};
    struct qm_array a[3] = {{"t0/in/param", &t[0]}, {"codes", &t[1]}, {"scalar", &t[2]}};
    char path[512];
    snprintf(path, sizeof path, "%s", path_of("three.npz"));
    assert_int_equal(qm_arrays_write(path, QM_CONTAINER_npz, NULL, a, 3), QM_OK);
    struct qm_file *f = open_good(path);
    assert_string_equal(qm_file_format(f), "npz");
    assert_int_equal(qm_file_count(f), 3);
    for (int i = 0; i < 3; i++) {
        const struct qm_entry *e = qm_file_entry(f, i);
        unsigned char got[64];
        assert_string_equal(e->name, a[i].name);
        assert_int_equal(e->dtype, t[i].dtype);
        assert_int_equal(e->shape.rank, t[i].shape.rank);
        assert_int_equal(e->numel, qm_shape_numel(&t[i].shape));
        assert_int_equal(qm_file_read_bytes(f, i, got), QM_OK);
        assert_memory_equal(got, t[i].data, qm_tensor_bytes(&t[i]));
    }
    qm_file_close(f);

    struct bytes b = {NULL, 0, 0};
    unsigned char *all = malloc(8192);
    FILE *in = fopen(path, "rb");
    assert_non_null(in);
    size_t size = fread(all, 1, 8192, in);
    fclose(in);
    assert_true(size > 500 && size < 8192);
    bytes_put(&b, all, size);
    for (b.size = 1; b.size < size; b.size += b.size < 60 ? 1 : 13)
        expect_bad(save("broken.npz", &b), "");
    b.size = size;
    for (size_t i = 0; i < size; i++) { /* refused, or read to equal values */
        b.data[i] ^= 0x11;
        float got[6];
        if (qm_file_open(save("broken.npz", &b), &f) == QM_OK) {
            if (qm_file_count(f) == 3 && strcmp(qm_file_entry(f, 0)->name, "t0/in/param") == 0 &&
                qm_file_entry(f, 0)->numel == 6) {
                assert_int_equal(qm_file_read(f, 0, 0, 6, got), QM_OK);
                assert_memory_equal(got, x, sizeof x);
            }
            qm_file_close(f);
        } else {
            assert_null(strchr(qm_message(), '\n'));
        }
        b.data[i] ^= 0x11;
    }
    b.size = 0; /* two archives, joined, or one in the comment of the other */
    bytes_put(&b, all, size);
    bytes_put(&b, all, size);
    expect_bad(save("joined.npz", &b), "");
    b.data[size - 2] = (unsigned char)(size % 256);
    b.data[size - 1] = (unsigned char)(size / 256);
    expect_bad(save("within.npz", &b), "two end records of zip");
    b.size = 0;
    bytes_put(&b, "some bytes before", 17);
    bytes_put(&b, all, size);
    expect_bad(save("behind.npz", &b), "");
    free(all);
    bytes_clear(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_npz)};
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
