/* emu_layer.c - Keeps the compiled layer of the emulator in the cache. */
#include "core/compile/emu_layer.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/compile/cubin_cache.h"
#include "core/compile/embedded_text.h"
#include "core/compile/kernel_build.h"

static const char *environment(const char *name)
{
    const char *text = getenv(name);
    return text ? text : "";
}

static char compiler[256];

static void ask_compiler(void)
{
    struct qm_argv c = {0};
    qm_argv_compiler(&c, "CXX", "c++");
    qm_argv_add(&c, NULL, "--version");
    if (qm_argv_ask(&c, compiler, sizeof compiler) != 0)
        compiler[0] = '\0';
    compiler[strcspn(compiler, "\n")] = '\0';
}

const char *qm_emu_compiler(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, ask_compiler);
    return compiler;
}

void qm_emu_layer_hash(struct qm_sha256 *h)
{
    static const char *const layer[] = {
#define QM_TEXT(name, ...) name, __VA_ARGS__,
#include "emu.inc"
#undef QM_TEXT
    };
    qm_sha256_add_text(h, qm_emu_compiler());
    qm_sha256_add_text(h, environment("CXX"));
    qm_sha256_add_text(h, environment("CXXFLAGS"));
    for (size_t i = 0; i < sizeof layer / sizeof *layer; i++)
        qm_sha256_add_text(h, layer[i] ? layer[i] : "");
    for (int i = 0; i < 2; i++) /* the structs that the layer takes over from a step */
        qm_sha256_add_text(h,
                           qm_device_text(i ? "core/abi/kernel_cuda.h" : "core/abi/kernel_abi.h"));
}

static void key_of(const char *flags, char key[QM_CACHE_KEY])
{
    struct qm_sha256 h;
    qm_sha256_start(&h);
    qm_sha256_add_text(&h, "qualm layer 1");
    qm_sha256_add_text(&h, flags);
    qm_emu_layer_hash(&h);
    qm_sha256_hex(&h, key);
}

int qm_emu_layer_read(const char *flags, const char *object)
{
    char key[QM_CACHE_KEY];
    struct qm_device_binary b;
    key_of(flags, key);
    if (!*qm_emu_compiler() || !qm_cubin_read(key, &b))
        return 0;
    FILE *f = fopen(object, "we");
    int is_whole = f && fwrite(b.data, 1, b.size, f) == b.size;
    if (f && fclose(f) != 0)
        is_whole = 0;
    if (f && !is_whole)
        unlink(object);
    qm_device_binary_free(&b);
    return is_whole;
}

void qm_emu_layer_write(const char *flags, const char *object)
{
    char key[QM_CACHE_KEY], no_log[] = "", *data;
    struct qm_device_binary b = {.log = no_log};
    if (!*qm_emu_compiler() || qm_build_read(object, &data, &b.size) != QM_OK)
        return;
    key_of(flags, key);
    b.data = data;
    qm_cubin_write(key, &b);
    free(data);
}
