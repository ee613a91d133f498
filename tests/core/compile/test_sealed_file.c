/* test_sealed_file.c - Compiled code in the cache: only what is whole and one's own is loaded. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/philox.h"
#include "core/compile/cubin_cache.h"
#include "core/compile/sealed_file.h"

enum { SIZE = 5000, SEED = 11 };

static char folder[64];

static const char *path_of(const char *name)
{
    static char path[4][128];
    static int turn;
    turn = (turn + 1) % 4;
    snprintf(path[turn], sizeof path[turn], "%s/%s", folder, name);
    return path[turn];
}

static void write_bytes(const char *path, const void *bytes, size_t n)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
    assert_int_equal(chmod(path, 0600), 0);
}

static size_t read_bytes(const char *path, unsigned char *out, size_t room)
{
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    size_t n = fread(out, 1, room, f);
    fclose(f);
    return n;
}

static int setup(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/qm_sealed_XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int teardown(void **state)
{
    char command[96];
    (void)state;
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command);
}

static void seal_some(unsigned char *bytes, size_t *n)
{
    for (size_t i = 0; i < SIZE; i++)
        bytes[i] = (unsigned char)qm_philox_stream(SEED, 0, i);
    write_bytes(path_of("made"), bytes, SIZE);
    assert_int_equal(qm_sealed_copy(path_of("made"), path_of("a.so"), "a.so"), QM_OK);
    *n = read_bytes(path_of("a.so"), bytes, SIZE + 1000);
    assert_true(*n > SIZE);
}

/* Every drawn flip, every drawn cut and every drawn addition is seen; the loader would die
 * of some. */
static void damage_is_seen(void **state)
{
    static unsigned char bytes[SIZE + 1000];
    size_t n;
    (void)state;
    seal_some(bytes, &n);
    assert_true(qm_sealed_is_good(path_of("a.so"), "a.so"));
    for (uint64_t i = 0; i < 300; i++) {
        size_t at = qm_philox_stream(SEED, 1, 2 * i) % n;
        unsigned char bit = (unsigned char)(1 << qm_philox_stream(SEED, 1, 2 * i + 1) % 8);
        bytes[at] ^= bit;
        write_bytes(path_of("a.so"), bytes, n);
        assert_false(qm_sealed_is_good(path_of("a.so"), "a.so"));
        bytes[at] ^= bit;
        write_bytes(path_of("a.so"), bytes, at);
        assert_false(qm_sealed_is_good(path_of("a.so"), "a.so"));
        write_bytes(path_of("a.so"), bytes, n + 1 + at % 900);
        assert_false(qm_sealed_is_good(path_of("a.so"), "a.so"));
    }
    write_bytes(path_of("a.so"), bytes, n);
    assert_true(qm_sealed_is_good(path_of("a.so"), "a.so"));
}

/* The code of another key, a link, a pipe, a file that others may write to, no file. */
static void only_own_files_count(void **state)
{
    static unsigned char bytes[SIZE + 1000];
    size_t n;
    (void)state;
    seal_some(bytes, &n);
    assert_false(qm_sealed_is_good(path_of("a.so"), "b.so"));
    assert_int_equal(symlink(path_of("a.so"), path_of("link")), 0);
    assert_false(qm_sealed_is_good(path_of("link"), "a.so"));
    assert_int_equal(mkfifo(path_of("pipe"), 0600), 0);
    assert_false(qm_sealed_is_good(path_of("pipe"), "a.so"));
    assert_false(qm_sealed_is_good(path_of("none"), "a.so"));
    for (int mode = 0602; mode <= 0666; mode += 022) {
        assert_int_equal(chmod(path_of("a.so"), (mode_t)mode), 0);
        assert_false(qm_sealed_is_good(path_of("a.so"), "a.so"));
    }
    assert_int_equal(chmod(path_of("a.so"), 0644), 0);
    assert_true(qm_sealed_is_good(path_of("a.so"), "a.so"));
}

/* Whatever the umask, the folder and its files are for this user alone. */
static void folder_is_closed(void **state)
{
    char path[256];
    struct stat s;
    (void)state;
    mode_t old = umask(0);
    setenv("QM_CACHE", path_of("cache"), 1);
    assert_int_equal(qm_cache_path("x", path, sizeof path), 1);
    assert_int_equal(stat(path_of("cache"), &s), 0);
    assert_int_equal(s.st_mode & 0777, 0700);
    assert_int_equal(chmod(path_of("cache"), 0777), 0);
    assert_int_equal(qm_cache_path("x", path, sizeof path), 1);
    assert_int_equal(stat(path_of("cache"), &s), 0);
    assert_int_equal(s.st_mode & 0777, 0700);
    write_bytes(path_of("made"), "code", 4);
    assert_int_equal(qm_sealed_copy(path_of("made"), path, "x"), QM_OK);
    assert_int_equal(stat(path, &s), 0);
    assert_int_equal(s.st_mode & 0777, 0600);
    if (geteuid() == 0) { /* another user's folder is none */
        assert_int_equal(chown(path_of("cache"), 12345, 12345), 0);
        assert_int_equal(qm_cache_path("x", path, sizeof path), 0);
    }
    umask(old);
    unsetenv("QM_CACHE");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(damage_is_seen, setup, teardown),
        cmocka_unit_test_setup_teardown(only_own_files_count, setup, teardown),
        cmocka_unit_test_setup_teardown(folder_is_closed, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
