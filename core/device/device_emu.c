/* device_emu.c - The device "emu": step.cu compiled for the CPU with the layer of core/emu.
 *
 * Each form of a step is a shared object, which is cached under the hash of its sources, compiler
 * and flags (cubin_cache.h names the folder). */
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/sha256.h"
#include "core/compile/cubin_cache.h"
#include "core/compile/embedded_text.h"
#include "core/compile/emu_layer.h"
#include "core/compile/kernel_build.h"
#include "core/compile/sealed_file.h"
#include "core/device/device.h"
#include "core/emu/emu_fast.h"

enum { ALIGN = 256, MODULES = 4096, LOADED = 8, REGIONS = 16000 };

typedef const char *run_fn(int kernel, unsigned grid_x, unsigned grid_y, void **args,
                           const struct qm_step_region *regions, int n_regions);

/* A loaded module has a thousand stacks, so at most LOADED of those that are cached stay loaded. */
static struct module {
    char key[QM_CACHE_KEY];
    enum qm_mode mode;
    int is_cached;
    long used; /* number of its last launch */
    void *handle;
    run_fn *run;
} modules[MODULES];
static int n_modules, n_loaded;
static long launches;

static struct qm_step_region regions[REGIONS];
static int n_regions;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* ---- memory ---------------------------------------------------------------------------------- */

static qm_status emu_reserve(size_t bytes, qm_address *out)
{
    size_t room = (bytes + ALIGN - 1) / ALIGN * ALIGN;
    void *p = aligned_alloc(ALIGN, room ? room : ALIGN);
    qm_status st = p ? QM_OK : qm_fail(QM_NO_MEMORY, "%zu bytes", bytes);
    if (p)
        memset(p, 0, room ? room : ALIGN);
    pthread_mutex_lock(&lock);
    if (p && n_regions == REGIONS)
        st = qm_fail(QM_NO_MEMORY, "the emulator keeps at most %d buffers", REGIONS);
    else if (p)
        regions[n_regions++] = (struct qm_step_region){"device memory", p, bytes};
    pthread_mutex_unlock(&lock);
    if (st != QM_OK)
        free(p);
    else
        *out = (qm_address)(uintptr_t)p;
    return st;
}

static void emu_release(qm_address at)
{
    void *p = (void *)(uintptr_t)at;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < n_regions; i++)
        if (regions[i].at == p) {
            regions[i] = regions[--n_regions];
            break;
        }
    pthread_mutex_unlock(&lock);
    free(p);
}

static qm_status emu_put(qm_address to, const void *from, size_t bytes)
{
    memcpy((void *)(uintptr_t)to, from, bytes);
    return QM_OK;
}

static qm_status emu_get(void *to, qm_address from, size_t bytes)
{
    memcpy(to, (const void *)(uintptr_t)from, bytes);
    return QM_OK;
}

/* ---- building -------------------------------------------------------------------------------- */

static const char *flags_of(enum qm_mode mode)
{
    return mode == QM_MODE_fast ? qm_emu_fast_flags() : "";
}

static void key_of(const char *recipe, enum qm_mode mode, char key[QM_CACHE_KEY])
{
    struct qm_sha256 h;
    qm_sha256_start(&h);
    qm_sha256_add_text(&h, "qualm emu 3");
    qm_emu_layer_hash(&h);
    qm_sha256_add_text(&h, flags_of(mode));
    qm_sha256_add_text(&h, recipe);
    for (int i = 0; qm_device_text_path(i); i++)
        qm_sha256_add_text(&h, qm_device_text(qm_device_text_path(i)));
    qm_sha256_hex(&h, key);
}

static qm_status write_text(const char *to, const char *name, const char *text)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", to, name);
    for (char *p = path + strlen(to) + 1; *p; p++)
        if (*p == '/') {
            *p = '\0';
            mkdir(path, 0777);
            *p = '/';
        }
    FILE *f = fopen(path, "w");
    if (!f)
        return qm_fail(QM_BAD_FILE, "%s: %s", path, strerror(errno));
    fputs(text, f);
    return fclose(f) == 0 ? QM_OK : qm_fail(QM_BAD_FILE, "%s: %s", path, strerror(errno));
}

/* Writes one of the device's sources; in mode fast with displaced
 * divisions (core/emu/emu_fast.h). */
static qm_status write_device_text(const char *to, const char *path, enum qm_mode mode)
{
    char *text = NULL;
    if (mode == QM_MODE_exact)
        return write_text(to, path, qm_device_text(path));
    QM_TRY(qm_emu_divisions(qm_device_text(path), &text));
    qm_status st = write_text(to, path, text);
    free(text);
    return st;
}

/* Writes all sources, and into `source` step.cu followed by step_emu.cu: the rewriter changes no
 * included file. */
static qm_status write_sources(const char *to, const char *recipe, enum qm_mode mode,
                               const char *source)
{
    char step[PATH_MAX], *text = NULL;
    size_t size;
    QM_TRY(write_text(to, "step_recipe.h", recipe));
    for (int i = 0; qm_device_text_path(i); i++)
        QM_TRY(write_device_text(to, qm_device_text_path(i), mode));
    snprintf(step, sizeof step, "%s/core/device/step.cu", to);
    QM_TRY(qm_build_read(step, &text, &size));
    FILE *f = fopen(source, "w");
    if (f)
        fprintf(f,
                "#define QM_TABLES_APART 1\n%s#line 1 \"step.cu\"\n%s#line 1 \"step_emu.cu\"\n%s",
                mode == QM_MODE_fast ? "#include \"qm_emu_fast.hpp\"\n" : "", text,
                qm_device_text("core/device/step_emu.cu"));
    free(text);
    return f && fclose(f) == 0 ? QM_OK : qm_fail(QM_BAD_FILE, "%s: %s", source, strerror(errno));
}

/* The folder of all builds, one after the other, so that the layer is compiled once. */
static char folder[] = "/tmp/qualm-emu-XXXXXX";

static void remove_folder(void)
{
    char command[64];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    if (system(command) != 0)
        (void)0; /* the temporary folder stays */
}

static qm_status open_folder(void)
{
    static int is_open;
    if (is_open)
        return QM_OK;
    if (!mkdtemp(folder))
        return qm_fail(QM_BAD_FILE, "%s: %s", folder, strerror(errno));
    is_open = 1;
    atexit(remove_folder);
    return QM_OK;
}

/* Builds the shared object, under a name of this process in the cache or in the
 * folder: object[size]. */
static qm_status build(const char *recipe, const struct module *m, char *object, size_t size)
{
    char source[64], made[PATH_MAX], name[QM_CACHE_KEY + 32], sealed[QM_CACHE_KEY + 8];
    QM_TRY(open_folder());
    snprintf(source, sizeof source, "%s/step_emu.cu", folder);
    QM_TRY(write_sources(folder, recipe, m->mode, source));
    QM_TRY(qm_emu_build(source, folder, flags_of(m->mode), made, sizeof made));
    snprintf(name, sizeof name, "%s.so.%d", m->key, (int)getpid());
    if (!qm_cache_path(name, object, size))
        snprintf(object, size, "%s/%s", folder, name);
    snprintf(sealed, sizeof sealed, "%s.so", m->key);
    return qm_sealed_copy(made, object, sealed);
}

/* Unloads the least recently used module where LOADED are loaded. */
static void make_room(void)
{
    struct module *oldest = NULL;
    for (int i = 0; i < n_modules; i++)
        if (modules[i].handle && modules[i].is_cached &&
            (!oldest || modules[i].used < oldest->used))
            oldest = &modules[i];
    if (n_loaded < LOADED || !oldest)
        return;
    dlclose(oldest->handle);
    oldest->handle = NULL;
    n_loaded--;
}

static qm_status module_bind(struct module *m, const char *object)
{
    make_room();
    m->handle = dlopen(object, RTLD_NOW | RTLD_LOCAL);
    void *at = m->handle ? dlsym(m->handle, "qm_step_emu") : NULL;
    if (!at) {
        qm_status st = qm_fail(QM_INTERNAL, "the emulated kernel does not load: %s", dlerror());
        if (m->handle)
            dlclose(m->handle);
        m->handle = NULL;
        return st;
    }
    memcpy(&m->run, &at, sizeof m->run);
    n_loaded++;
    return QM_OK;
}

/* Loads a module from the cache where it is good, else builds it and renames it into the cache. */
static qm_status module_open(struct module *m, const char *recipe)
{
    char name[QM_CACHE_KEY + 8], cached[PATH_MAX], object[PATH_MAX];
    snprintf(name, sizeof name, "%s.so", m->key);
    m->is_cached = qm_cache_path(name, cached, sizeof cached);
    if (m->is_cached && qm_sealed_is_good(cached, name) && module_bind(m, cached) == QM_OK)
        return QM_OK;
    if (!recipe)
        return qm_fail(QM_INTERNAL, "%s is gone", cached);
    QM_TRY(build(recipe, m, object, sizeof object));
    m->is_cached = m->is_cached && rename(object, cached) == 0;
    qm_status st = module_bind(m, m->is_cached ? cached : object);
    if (!m->is_cached)
        unlink(object);
    return st;
}

static qm_status module_load(const char *recipe, enum qm_mode mode, struct module **out)
{
    struct module *m = &modules[n_modules];
    if (n_modules == MODULES)
        return qm_fail(QM_NO_MEMORY, "more than %d different kernels", MODULES);
    memset(m, 0, sizeof *m);
    m->mode = mode;
    key_of(recipe, mode, m->key);
    for (int i = 0; i < n_modules; i++)
        if (strcmp(modules[i].key, m->key) == 0) {
            *out = &modules[i];
            return QM_OK;
        }
    QM_TRY(module_open(m, recipe));
    n_modules++;
    *out = m;
    return QM_OK;
}

qm_status qm_emu_load_text(const char *recipe, enum qm_mode mode, void **module)
{
    struct module *m = NULL;
    if (!flags_of(mode))
        return qm_fail(QM_SKIPPED, "mode fast on backend emu wants a processor with fma");
    pthread_mutex_lock(&lock);
    qm_status st = module_load(recipe, mode, &m);
    pthread_mutex_unlock(&lock);
    if (st == QM_OK)
        *module = m;
    return st;
}

void *qm_emu_variable(const void *module, const char *name)
{
    const struct module *m = module;
    return m->handle ? dlsym(m->handle, name) : NULL;
}

static qm_status emu_load(const struct qm_step_form *f, enum qm_mode mode, void **module)
{
    char *recipe = qm_step_text(f);
    qm_status st = recipe ? qm_emu_load_text(recipe, mode, module)
                          : qm_fail(QM_NO_MEMORY, "the source of a kernel");
    free(recipe);
    return st;
}

/* ---- running --------------------------------------------------------------------------------- */

static qm_status emu_launch(void *module, enum qm_step_kernel k, unsigned grid_x, unsigned grid_y,
                            void **args)
{
    struct module *m = module;
    pthread_mutex_lock(&lock);
    m->used = ++launches;
    qm_status st = m->handle ? QM_OK : module_open(m, NULL);
    const char *found = st == QM_OK ? m->run((int)k, grid_x, grid_y, args, regions, n_regions) : "";
    if (*found)
        st = qm_fail(QM_INTERNAL, "%s: %s", qm_step_kernel_name(k), found);
    pthread_mutex_unlock(&lock);
    return st;
}

static qm_status emu_sync(void) { return QM_OK; }
static int emu_blocks(void) { return 1; }

static qm_status emu_probe(void)
{
    return *qm_emu_compiler()
               ? QM_OK
               : qm_fail(QM_SKIPPED, "backend emu wants a C++ compiler (CXX names one; the Debian "
                                     "package is g++)");
}

const struct qm_device qm_device_emu = {
    .name = "emu",
    .probe = emu_probe,
    .reserve = emu_reserve,
    .release = emu_release,
    .put = emu_put,
    .get = emu_get,
    .load = emu_load,
    .launch = emu_launch,
    .sync = emu_sync,
    .blocks = emu_blocks,
};
