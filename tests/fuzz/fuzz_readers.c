/* fuzz_readers.c - Mutates .npy, .safetensors and HDF5 files, which must be read or refused.
 *
 * Stand-alone, fuzz_readers [COUNT [SEED]] mutates the seed files COUNT times, the same way for
 * the same SEED, and reads every entry of a file that still opens; HDF5 files are only truncated,
 * once per 1000 of COUNT.  With -DQM_LIBFUZZER (clang -fsanitize=fuzzer) the input comes from
 * libFuzzer. tests/experiments/readers/test_readers.c includes this file with QM_FUZZ_NO_MAIN and
 * runs a few mutations. */
#include <hdf5.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/base/philox.h"
#include "experiments/foreign/reader_process.h"
#include "experiments/readers/reader.h"
#include "tests/fuzz/writers.h"

/* ---- checking one input ---- */

/* A file in memory, or in a directory for HDF5, which asks for the real path. */
struct place {
    int fd;
    char path[256];
};

static void place_open(struct place *p, int in_directory)
{
    const char *tmp = getenv("TMPDIR");
    snprintf(p->path, sizeof p->path, "%s/fuzz_readers_XXXXXX", tmp ? tmp : "/tmp");
    p->fd = in_directory ? mkstemp(p->path) : memfd_create("fuzz", MFD_CLOEXEC);
    if (p->fd < 0)
        abort();
    if (!in_directory)
        snprintf(p->path, sizeof p->path, "/proc/self/fd/%d", p->fd);
}

static void place_fill(const struct place *p, const unsigned char *data, size_t n)
{
    if (ftruncate(p->fd, 0) != 0 || pwrite(p->fd, data, n, 0) != (ssize_t)n)
        abort();
}

/* Reads the entry at once and in ranges of 1, 2, 3 ... elements, which must agree; NULL, or
 * the fault. */
static const char *check_entry(struct qm_file *f, int i, size_t file_size)
{
    const struct qm_entry *e = qm_file_entry(f, i);
    int hdf5 = strcmp(qm_file_format(f), "hdf5") == 0; /* may be compressed, or broken inside */
    if (e->numel < 0 || e->numel != qm_shape_numel(&e->shape))
        return "numel and shape disagree";
    if ((uint64_t)e->numel > file_size / qm_dtype_size(e->dtype))
        return hdf5 ? NULL : "more elements than the file holds";
    size_t n = (size_t)e->numel;
    float *whole = calloc(n + 1, sizeof *whole), *parts = calloc(n + 1, sizeof *parts);
    double *wide = calloc(n + 1, sizeof *wide);
    const char *bad = whole && parts && wide ? NULL : "no memory";
    int readable = !bad && qm_file_read(f, i, 0, e->numel, whole) == QM_OK;
    if (!bad && !readable && !hdf5)
        bad = "a mapped entry cannot be read";
    if (readable && qm_file_read_double(f, i, 0, e->numel, wide) != QM_OK)
        bad = "readable as float, not as double";
    for (int64_t from = 0, step = 1; readable && from < e->numel; from += step++) {
        step = step < e->numel - from ? step : e->numel - from;
        if (qm_file_read(f, i, from, step, parts + from) != QM_OK)
            bad = "readable as a whole, not in ranges";
    }
    if (readable && !bad && memcmp(whole, parts, n * sizeof *whole) != 0)
        bad = "ranges differ from the whole";
    if (!bad && qm_file_read(f, i, 0, e->numel + 1, whole) != QM_BAD_ARG)
        bad = "reads past the end";
    free(whole);
    free(parts);
    free(wide);
    return bad;
}

/* NULL, or the reader's fault with this file. */
static const char *check_file(const char *path, size_t size)
{
    struct qm_file *f = NULL;
    qm_status st = qm_file_open(path, &f);
    if (st != QM_OK) {
        const char *m = qm_message();
        if (f || st != QM_BAD_FILE)
            return "failed otherwise than with QM_BAD_FILE";
        return strncmp(m, path, strlen(path)) == 0 && !strchr(m, '\n') && strlen(m) < 1000
                   ? NULL
                   : "message is not one line that names the file";
    }
    const char *bad = NULL;
    for (int i = 0; !bad && i < qm_file_count(f); i++)
        bad = check_entry(f, i, size);
    qm_file_close(f);
    return bad;
}

#ifndef QM_LIBFUZZER
/* ---- seeds and mutations ---- */

#define SEEDS 9

static void make_seeds(struct bytes seed[SEEDS])
{
    double data[24];
    for (int k = 0; k < 24; k++)
        data[k] = 1.5 * k - 7;
    npy_file(&seed[0], 1, "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }", data, 48);
    npy_file(&seed[1], 2, "{'descr': '<f8', 'fortran_order': True, 'shape': (2, 3, 4), }", data,
             192);
    npy_file(&seed[2], 3, "{'descr': '>f2', 'fortran_order': True, 'shape': (5, 7), }", data, 70);
    npy_file(&seed[3], 1, "{'descr': '|V2', 'fortran_order': False, 'shape': (), }", data, 2);
    npy_file(&seed[4], 1, "{'descr': '>i4', 'fortran_order': False, 'shape': (0, 9), }", data, 0);
    st_file(&seed[5],
            "{\"__metadata__\":{\"format\":\"pt\"},"
            "\"b\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[8,32]},"
            "\"a\":{\"dtype\":\"I64\",\"shape\":[],\"data_offsets\":[0,8]}}  ",
            data, 32);
    st_file(&seed[6], "{\"x\":{\"dtype\":\"BF16\",\"shape\":[3,1,5],\"data_offsets\":[0,30]}}",
            data, 30);
    st_file(&seed[7],
            "{\"e\":{\"dtype\":\"F32\",\"shape\":[0,4],\"data_offsets\":[0,0]},"
            "\"\\u00e9\\n\":{\"dtype\":\"BOOL\",\"shape\":[4],\"data_offsets\":[0,4]},"
            "\"h\":{\"dtype\":\"F16\",\"shape\":[1],\"data_offsets\":[4,6]}}",
            data, 6);
    st_file(&seed[8], "{}", data, 0);
}

/* The numbers of one iteration. */
struct source {
    uint64_t seed;
    uint32_t iteration;
    uint64_t used;
};

static uint32_t below(struct source *s, size_t n)
{
    uint32_t word = qm_philox_stream(s->seed, s->iteration, s->used++);
    return n ? (uint32_t)(word % n) : 0;
}

static const char *const words[] = {"9223372036854775807",
                                    "18446744073709551615",
                                    "-1",
                                    "0",
                                    "4294967296",
                                    "'shape': (",
                                    "'descr': '>f8'",
                                    "'fortran_order': True",
                                    "((((",
                                    "[[[[",
                                    "{\"a\":",
                                    "\"dtype\":\"F64\"",
                                    "\"shape\":[",
                                    "\"data_offsets\":[0,",
                                    "\\",
                                    "\"",
                                    "1e3",
                                    ",",
                                    "\\u0000",
                                    "\xff\xfe"};
static const uint64_t lengths[] = {0,          1,          2,         63,        64,
                                   127,        128,        255,       256,       65535,
                                   65536,      100000000,  100000001, INT32_MAX, UINT32_MAX,
                                   1ull << 32, 1ull << 47, INT64_MAX, UINT64_MAX};

/* Replaces `cut` bytes at `at` with n bytes of src. */
static void replace(struct bytes *b, size_t at, size_t cut, const void *src, size_t n)
{
    struct bytes out = {NULL, 0, 0}, text = {NULL, 0, 0};
    bytes_put(&text, src, n); /* src may lie in b */
    bytes_put(&out, b->data, at);
    bytes_put(&out, text.data, text.size);
    bytes_put(&out, b->data + at + cut, b->size - at - cut);
    bytes_clear(&text);
    bytes_clear(b);
    *b = out;
}

static int is_npy(const struct bytes *b) { return b->size > 12 && b->data[0] == 0x93; }

static void set_length(struct bytes *b, uint64_t n)
{
    size_t at = is_npy(b) ? 8 : 0, wide = !is_npy(b) ? 8 : b->data[6] == 1 ? 2 : 4;
    if (b->size >= at + wide)
        memcpy(b->data + at, &n, wide);
}

static uint64_t get_length(const struct bytes *b)
{
    uint64_t n = 0;
    size_t at = is_npy(b) ? 8 : 0, wide = !is_npy(b) ? 8 : b->data[6] == 1 ? 2 : 4;
    if (b->size >= at + wide)
        memcpy(&n, b->data + at, wide);
    return n;
}

static void mutate_once(struct bytes *b, const struct bytes seed[SEEDS], struct source *s)
{
    static const char digits[] = "0123456789";
    size_t at = below(s, b->size), n = below(s, 16), size = b->size;
    uint64_t length = get_length(b);
    int resized = 1;
    if (n > size - at)
        n = size - at;
    switch (below(s, 10)) {
    case 0: b->data[at] ^= (unsigned char)(1u << below(s, 8)); break;
    case 1: b->data[at] = (unsigned char)below(s, 256); break;
    case 2:
        b->size = at + 1;
        resized = 0;
        break;
    case 3: set_length(b, lengths[below(s, sizeof lengths / sizeof *lengths)]); break;
    case 4: set_length(b, length + below(s, 9) - 4); break;
    case 5: replace(b, at, n, NULL, 0); break;
    case 6: replace(b, at, 0, b->data + at, n); break;
    case 7: {
        const char *w = words[below(s, sizeof words / sizeof *words)];
        replace(b, at, below(s, 2) ? n : 0, w, strlen(w));
        break;
    }
    case 8: {
        const struct bytes *other = &seed[below(s, SEEDS)];
        size_t from = below(s, other->size);
        size_t part = below(s, other->size - from + 1);
        replace(b, at, 0, other->data + from, part);
        break;
    }
    default: /* digits spell shapes, offsets and types */
        while (at < size && !strchr(digits, b->data[at]))
            at++;
        if (at < size)
            b->data[at] = (unsigned char)digits[below(s, 10)];
    }
    if (b->size == 0)
        bytes_put(b, "", 1);
    /* half of the time the header stays valid, so that the data are read */
    if (resized && b->size != size && below(s, 2))
        set_length(b, length + b->size - size);
}

/* Reads COUNT mutated files; NULL, or the first fault and its iteration. */
static const char *fuzz_mutations(uint64_t seed_number, uint32_t count, uint32_t *which)
{
    struct bytes seed[SEEDS] = {{NULL, 0, 0}}, b = {NULL, 0, 0};
    struct place p;
    const char *bad = NULL;
    make_seeds(seed);
    place_open(&p, 0);
    for (uint32_t k = 0; !bad && k < count; k++) {
        struct source s = {seed_number, k, 0};
        const struct bytes *from = &seed[k % SEEDS];
        b.size = 0;
        bytes_put(&b, from->data, from->size);
        for (uint32_t m = 1 + below(&s, 4); m > 0; m--)
            mutate_once(&b, seed, &s);
        place_fill(&p, b.data, b.size);
        bad = check_file(p.path, b.size);
        *which = k;
    }
    for (int k = 0; k < SEEDS; k++)
        bytes_clear(&seed[k]);
    bytes_clear(&b);
    close(p.fd);
    return bad;
}

/* An HDF5 file in memory: two groups, a chunked, compressed and a plain dataset. */
static void hdf5_seed(struct bytes *b)
{
    float data[64];
    hsize_t dims[2] = {8, 8}, chunk[2] = {3, 5};
    for (int k = 0; k < 64; k++)
        data[k] = (float)k;
    hid_t access = H5Pcreate(H5P_FILE_ACCESS), create = H5Pcreate(H5P_DATASET_CREATE);
    H5Pset_fapl_core(access, 1 << 16, 0);
    H5Pset_chunk(create, 2, chunk);
    H5Pset_deflate(create, 6);
    hid_t file = H5Fcreate("fuzz.h5", H5F_ACC_TRUNC, H5P_DEFAULT, access);
    hid_t group = H5Gcreate2(file, "g", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    hid_t space = H5Screate_simple(2, dims, NULL);
    hid_t set[2] = {
        H5Dcreate2(group, "x", H5T_IEEE_F32BE, space, H5P_DEFAULT, create, H5P_DEFAULT),
        H5Dcreate2(file, "y", H5T_STD_I16LE, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT)};
    for (int k = 0; k < 2; k++) {
        H5Dwrite(set[k], H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, data);
        H5Dclose(set[k]);
    }
    H5Sclose(space);
    H5Gclose(group);
    H5Fflush(file, H5F_SCOPE_GLOBAL);
    ssize_t size = H5Fget_file_image(file, NULL, 0);
    void *image = size > 0 ? malloc((size_t)size) : NULL;
    if (!image || H5Fget_file_image(file, image, (size_t)size) != size)
        abort();
    bytes_put(b, image, (size_t)size);
    free(image);
    H5Fclose(file);
    H5Pclose(create);
    H5Pclose(access);
}

static const char *fuzz_hdf5_truncations(uint64_t seed_number, uint32_t count)
{
    struct bytes b = {NULL, 0, 0};
    struct place p;
    const char *bad = NULL;
    hdf5_seed(&b);
    place_open(&p, 1);
    for (uint32_t k = 0; !bad && k <= count; k++) {
        struct source s = {seed_number, k, 1u << 16};
        size_t size = k == 0 ? b.size : 1 + below(&s, b.size - 1);
        place_fill(&p, b.data, size);
        bad = check_file(p.path, size);
    }
    bytes_clear(&b);
    unlink(p.path);
    close(p.fd);
    return bad;
}

#ifndef QM_FUZZ_NO_MAIN
int main(int argc, char **argv)
{
    uint32_t count = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : 20000, which = 0;
    uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
    const char *bad = fuzz_mutations(seed, count, &which);
    if (bad) {
        printf("iteration %u of seed %llu: %s\n", which, (unsigned long long)seed, bad);
        return 1;
    }
    bad = fuzz_hdf5_truncations(seed, 16 + count / 1000);
    if (bad) {
        printf("truncated HDF5, seed %llu: %s\n", (unsigned long long)seed, bad);
        return 1;
    }
    printf("%u mutated files, %u truncated HDF5 files\n", count, 17 + count / 1000);
    return 0;
}
#endif

#else /* QM_LIBFUZZER */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct place p = {-1, ""};
    static const unsigned char hdf5_magic[4] = {0x89, 'H', 'D', 'F'};
    if (size == 0 || memmem(data, size, hdf5_magic, sizeof hdf5_magic))
        return 0;
    if (p.fd < 0)
        place_open(&p, 0);
    place_fill(&p, data, size);
    if (check_file(p.path, size))
        abort();
    return 0;
}
#endif
