/* emu_build.c - Builds a CUDA source into a shared object that runs on the CPU.
 *
 * The source is preprocessed, rewritten to C++ (core/emu/emu_rewrite.h), compiled with a call
 * before every memory access and linked with the layer of core/emu, which answers these calls.  In
 * form QM_FMAD_true the compiler contracts, and its assembly tells where. */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/compile/embedded_text.h"
#include "core/compile/emu_layer.h"
#include "core/compile/kernel_build.h"
#include "core/emu/emu_contracted.h"
#include "core/emu/emu_device.h"
#include "core/emu/emu_fast.h"
#include "core/emu/emu_nan.h"
#include "core/emu/emu_rewrite.h"

/* Texts that are written into the folder; and CUDA's headers, which name what qm_emu.hpp has read
 * before the file. */
static const char *const texts[] = {
#define QM_TEXT(name, ...) name,
#include "emu.inc"
#undef QM_TEXT
    "kernel_abi.h", "kernel_cuda.h", NULL};
#define HALF "namespace qm_emu_half {}\nusing namespace qm_emu_half;\n"
#define CUB  "namespace cub {\nusing namespace qm_emu_cub::cub;\n}\n"
#define CUDA                                                                 \
    "namespace cuda {\nusing namespace qm_emu_cub::cuda;\nnamespace std {\n" \
    "using namespace qm_emu_cub::cuda::std;\n}\n}\n"
static const struct {
    const char *name, *text; /* a header of CUDA's; its text here */
} stands_in[] = {
    {"cuda.h", ""},
    {"cuda_runtime.h", ""},
    {"cuda_runtime_api.h", ""},
    {"device_launch_parameters.h", ""},
    {"device_functions.h", ""},
    {"vector_types.h", ""},
    {"math_constants.h", ""},
    {"cuda_fp16.h", HALF},
    {"cuda_bf16.h", HALF},
    {"cuda_fp8.h", HALF},
    {"cub/cub.cuh", CUB CUDA},
    {"cub/block/block_load.cuh", CUB},
    {"cub/block/block_store.cuh", CUB},
    {"cub/block/block_reduce.cuh", CUB},
    {"cub/warp/warp_reduce.cuh", CUB},
    {"cuda/std/functional", CUDA},
};
#undef HALF
#undef CUB
#undef CUDA

/* Headers of CUDA's that nothing stands in for; where one is included the rewriter refuses the
 * source (core/emu/emu_rewrite.c). */
static const struct {
    const char *name, *what;
} refused[] = {
    {"cooperative_groups.h", "cooperative groups"},
    {"cooperative_groups/reduce.h", "cooperative groups"},
    {"cooperative_groups/scan.h", "cooperative groups"},
    {"cooperative_groups/memcpy_async.h", "cooperative groups"},
    {"mma.h", "tensor cores"},
    {"cuda_pipeline.h", "asynchronous copies"},
    {"cuda/pipeline", "asynchronous copies"},
    {"cuda/barrier", "barriers of libcu++"},
    {"cuda/atomic", "atomics of libcu++"},
    {"cuda/std/atomic", "atomics of libcu++"},
    {"cuda_fp4.h", "the types of cuda_fp4.h"},
    {"cuda_fp6.h", "the types of cuda_fp6.h"},
    {"curand_kernel.h", "cuRAND's generators"},
    {"cublas_v2.h", "cuBLAS"},
    {"thrust/device_vector.h", "Thrust"},
    {"torch/extension.h", "PyTorch's C++ library"},
    {"ATen/ATen.h", "PyTorch's C++ library"},
};

/* -fsanitize=thread: each access calls a function __tsan_...; the other sanitizers call __ubsan_...
 * where a check fails.  core/emu/emu_access.cpp and emu_checks.cpp define these functions; no
 * sanitizer's library is linked. */
#define KERNEL_FLAGS                                                                             \
    "-std=c++17 -O1 -g1 -gdwarf-4 -fPIC -ffp-contract=off -fno-math-errno -fno-strict-aliasing " \
    "-fsanitize=thread,alignment,bounds,signed-integer-overflow,integer-divide-by-zero,shift,"   \
    "float-cast-overflow -Wno-unknown-pragmas -Wno-ignored-optimization-argument "               \
    "-Dqm_kernel_step=qm_emu_user_step " QM_EMU_NAN_FLAGS
#define MARK_FLAGS  "-std=c++17 -fPIC -w"
#define LAYER_FLAGS "-std=c++17 -O2 -g1 -fPIC"
#define LINK_FLAGS                                                                       \
    "-shared -Wl,-Bsymbolic -Wl,--wrap=memcpy,--wrap=memmove,--wrap=memset,--wrap=exit," \
    "--wrap=_exit,--wrap=_Exit,--wrap=quick_exit,--wrap=abort,--wrap=__assert_fail"
#define HINT "CXX chooses another; the Debian package is g++"

/* Writes a header of one line, a format with one text in it. */
static qm_status header_write(const char *folder, const char *name, const char *line,
                              const char *text)
{
    char path[PATH_MAX];
    QM_TRY(qm_embedded_folder(folder, name));
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "w");
    if (!f)
        return qm_fail(QM_BAD_FILE, "%s: %s", path, strerror(errno));
    fprintf(f, line, text);
    return fclose(f) == 0 ? QM_OK : qm_fail(QM_BAD_FILE, "%s: %s", path, strerror(errno));
}

static int is_dual(const char *name)
{
    return strcmp(name, "dual.h") == 0 || strcmp(name, "half.h") == 0 || strcmp(name, "fp8.h") == 0;
}

static qm_status texts_write(const char *folder)
{
    for (int i = 0; texts[i]; i++) {
        char name[80]; /* dual headers include each other by path */
        snprintf(name, sizeof name, "%s%s", is_dual(texts[i]) ? "core/base/" : "", texts[i]);
        QM_TRY(qm_embedded_write(folder, name));
    }
    for (size_t i = 0; i < sizeof stands_in / sizeof *stands_in; i++)
        QM_TRY(header_write(folder, stands_in[i].name, "#pragma GCC system_header\n%s",
                            stands_in[i].text));
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        QM_TRY(header_write(folder, refused[i].name, "#pragma " QM_EMU_REFUSED " %s\n",
                            refused[i].what));
    return QM_OK;
}

qm_status qm_build_read(const char *path, char **out, size_t *size)
{
    FILE *f = fopen(path, "r");
    size_t used = 0, room = 1 << 20;
    char *text = malloc(room);
    while (f && text) {
        used += fread(text + used, 1, room - used - 1, f);
        if (used < room - 1)
            break;
        char *more = realloc(text, room *= 2);
        if (!more)
            free(text);
        text = more;
    }
    int is_read = f && text && !ferror(f);
    if (f)
        fclose(f);
    if (!is_read) {
        free(text);
        return qm_fail(QM_BAD_FILE, "%s: %s", path, strerror(errno));
    }
    text[used] = '\0';
    *out = text;
    *size = used;
    return QM_OK;
}

/* Reads a file of text.  clang++ writes NULs into comments of assembly: they become blanks. */
static qm_status text_read(const char *path, char **out)
{
    size_t size;
    QM_TRY(qm_build_read(path, out, &size));
    for (size_t i = 0; i < size; i++)
        if (!(*out)[i])
            (*out)[i] = ' ';
    return QM_OK;
}

/* Sets the command line: $CXX, the fixed flags, those of the form, $CXXFLAGS, and `words` up to
 * NULL. */
static void compile_with(struct qm_argv *c, const char *fixed, const char *form,
                         const char *const *words)
{
    memset(c, 0, sizeof *c);
    qm_argv_compiler(c, "CXX", "c++");
    qm_argv_words(c, NULL, fixed);
    qm_argv_words(c, NULL, form);
    qm_argv_words(c, "CXXFLAGS", getenv("CXXFLAGS"));
    for (; *words; words++)
        qm_argv_add(c, NULL, *words);
}

/* ---- contraction ----------------------------------------------------------------------------- */

static char lines[4096];

const char *qm_fmad_lines(void) { return lines; }

/* Appends "mine.cu:20: TEXT" to lines. */
static void add_line(const char *path, int number)
{
    char text[400] = "";
    const char *slash = strrchr(path, '/');
    FILE *f = fopen(path, "r");
    for (int i = 0; f && i < number; i++)
        if (!fgets(text, sizeof text, f))
            *text = '\0';
    if (f)
        fclose(f);
    text[strcspn(text, "\n")] = '\0';
    size_t used = strlen(lines);
    snprintf(lines + used, sizeof lines - used, "%s%s:%d: %.120s", used ? "\n" : "",
             slash ? slash + 1 : path, number, text + strspn(text, " \t"));
}

/* Finds what the flags of form QM_FMAD_true contracted: the assembly beside that of the same flags
 * without contraction. */
static qm_status find_lines(const char *source, const char *folder, const char *assembly)
{
    static const char *const plain[] = {"-ffp-contract=off", NULL};
    struct qm_contracted found;
    struct qm_argv *k = calloc(1, sizeof *k);
    char path[PATH_MAX], other[PATH_MAX], flags[256], *text[2] = {NULL, NULL};
    snprintf(path, sizeof path, "%s/kernel.emu.ii", folder);
    snprintf(other, sizeof other, "%s/plain.s", folder);
    snprintf(flags, sizeof flags, "%s %s", qm_emu_fast_flags(), plain[0]);
    qm_status st = k ? QM_OK : qm_fail(QM_NO_MEMORY, "a command");
    if (st == QM_OK) {
        compile_with(k, KERNEL_FLAGS, flags, (const char *const[]){"-S", path, "-o", other, NULL});
        st = qm_argv_run(k, source, HINT);
    }
    if (st == QM_OK)
        st = text_read(assembly, &text[0]);
    if (st == QM_OK)
        st = text_read(other, &text[1]);
    if (st == QM_OK)
        st = qm_emu_contracted(text[0], text[1], &found);
    for (int i = 0; st == QM_OK && i < found.n && i < QM_CONTRACTED_LINES; i++)
        add_line(found.at[i].file, found.at[i].line);
    free(text[0]);
    free(text[1]);
    free(k);
    return st;
}

/* Writes the assembly `from` to `to`, changed so that float32 arithmetic makes NVIDIA's NaNs. */
static qm_status nans_change(const char *from, const char *to)
{
    char *text = NULL, *changed = NULL;
    QM_TRY(text_read(from, &text));
    qm_status st = qm_emu_nans(text, &changed);
    free(text);
    QM_TRY(st);
    FILE *f = fopen(to, "w");
    if (f)
        fputs(changed, f);
    free(changed);
    return f && fclose(f) == 0 ? QM_OK : qm_fail(QM_BAD_FILE, "%s: %s", to, strerror(errno));
}

/* ---- a kernel -------------------------------------------------------------------------------- */

/* kernel.ii, whose text this is, -> the file `rewritten` */
static qm_status rewrite_to(const char *text, const char *folder, enum qm_emu_purpose purpose,
                            const char *rewritten)
{
    char *new_text = NULL;
    QM_TRY(qm_emu_rewrite(text, folder, purpose, &new_text));
    FILE *f = fopen(rewritten, "w");
    if (f)
        fputs(new_text, f);
    free(new_text);
    if (!f || fclose(f) != 0)
        return qm_fail(QM_BAD_FILE, "%s: %s", rewritten, strerror(errno));
    return QM_OK;
}

/* Checks device code by an unoptimized build of kernel.ii, and appends the list of its variables to
 * the assembly `built`. */
static qm_status device_check(const char *source, const char *folder, const char *built,
                              struct qm_argv *k)
{
    char path[PATH_MAX], marked[PATH_MAX], assembly[PATH_MAX], *text[3] = {NULL, NULL, NULL};
    char *variables = NULL;
    snprintf(path, sizeof path, "%s/kernel.ii", folder);
    snprintf(marked, sizeof marked, "%s/marked.ii", folder);
    snprintf(assembly, sizeof assembly, "%s/marked.s", folder);
    qm_status st = text_read(path, &text[0]);
    if (st == QM_OK)
        st = rewrite_to(text[0], folder, QM_EMU_MARK, marked);
    if (st == QM_OK) {
        compile_with(k, MARK_FLAGS, "",
                     (const char *const[]){"-O0", "-g1", "-gdwarf-4", "-fno-lto", "-S", marked,
                                           "-o", assembly, NULL});
        st = qm_argv_run(k, source, HINT);
    }
    if (st == QM_OK)
        st = text_read(assembly, &text[1]);
    if (st == QM_OK)
        st = text_read(built, &text[2]);
    if (st == QM_OK)
        st = qm_emu_device(text[1], text[0], folder, text[2], &variables);
    FILE *f = st == QM_OK ? fopen(built, "a") : NULL;
    if (f)
        fputs(variables, f);
    if (st == QM_OK && (!f || fclose(f) != 0))
        st = qm_fail(QM_BAD_FILE, "%s: %s", built, strerror(errno));
    free(variables);
    for (int i = 0; i < 3; i++)
        free(text[i]);
    return st;
}

/* source -> kernel.ii -> kernel.emu.ii */
static qm_status kernel_rewrite(const char *source, const char *folder, const char *flags,
                                const char *rewritten, struct qm_argv *k)
{
    char layer[PATH_MAX], plain[PATH_MAX], left[8192], *text = NULL;
    struct qm_argv taken;
    snprintf(layer, sizeof layer, "%s/qm_emu.hpp", folder);
    snprintf(plain, sizeof plain, "%s/kernel.ii", folder);
    compile_with(k, KERNEL_FLAGS, flags,
                 (const char *const[]){"-x", "c++", "-E", "-isystem", folder, "-include", layer,
                                       source, "-o", plain, NULL});
    qm_cuda_flags_emulated(&taken, left, sizeof left);
    QM_TRY(qm_argv_status(&taken));
    for (int i = 0; i < taken.n; i++)
        qm_argv_add(k, "CUDAFLAGS", taken.argv[i]);
    QM_TRY(qm_argv_run(k, source, HINT));
    QM_TRY(text_read(plain, &text));
    qm_status st = rewrite_to(text, folder, QM_EMU_RUN, rewritten);
    free(text);
    return st;
}

/* kernel.emu.ii -> kernel.s -> kernel.o */
static qm_status kernel_compile(const char *source, const char *folder, const char *flags,
                                struct qm_argv *k)
{
    char rewritten[PATH_MAX], assembly[PATH_MAX], changed[PATH_MAX], object[PATH_MAX];
    int is_contracted = strstr(flags, "-ffp-contract=fast") != NULL;
    pid_t pid;
    snprintf(rewritten, sizeof rewritten, "%s/kernel.emu.ii", folder);
    snprintf(assembly, sizeof assembly, "%s/kernel.s", folder);
    snprintf(changed, sizeof changed, "%s/kernel.nan.s", folder);
    snprintf(object, sizeof object, "%s/kernel.o", folder);
    *lines = '\0';
    QM_TRY(kernel_rewrite(source, folder, flags, rewritten, k));
    compile_with(k, KERNEL_FLAGS, flags,
                 (const char *const[]){"-S", rewritten, "-o", assembly, NULL});
    QM_TRY(qm_argv_run(k, source, HINT));
    QM_TRY(nans_change(assembly, changed));
    QM_TRY(device_check(source, folder, changed, k));
    compile_with(k, "", "", (const char *const[]){"-c", changed, "-o", object, NULL});
    QM_TRY(qm_argv_start(k, HINT, &pid));
    qm_status st = is_contracted ? find_lines(source, folder, assembly) : QM_OK;
    qm_status other = qm_argv_wait(k, pid, source);
    return st == QM_OK ? other : st;
}

qm_status qm_emu_build(const char *source, const char *folder, const char *flags, char *object,
                       size_t size)
{
    struct qm_argv *layer = calloc(1, sizeof *layer), *kernel = calloc(1, sizeof *kernel);
    char from[PATH_MAX], made[PATH_MAX], part[PATH_MAX];
    pid_t pid = 0;
    snprintf(object, size, "%s/kernel.so", folder);
    snprintf(from, sizeof from, "%s/emu_layer.cpp", folder);
    snprintf(made, sizeof made, "%s/emu_layer.o", folder);
    snprintf(part, sizeof part, "%s/kernel.o", folder);
    qm_status st = layer && kernel ? texts_write(folder) : qm_fail(QM_NO_MEMORY, "a command");
    int has_layer = access(made, R_OK) == 0 || /* from an earlier build in this folder */
                    (st == QM_OK && qm_emu_layer_read(LAYER_FLAGS, made));
    if (st == QM_OK && !has_layer) {
        compile_with(layer, LAYER_FLAGS, "", (const char *const[]){"-c", from, "-o", made, NULL});
        st = qm_argv_start(layer, HINT, &pid);
    }
    if (st == QM_OK) {
        st = kernel_compile(source, folder, flags, kernel);
        qm_status other = has_layer ? QM_OK : qm_argv_wait(layer, pid, "the layer of backend emu");
        if (other == QM_OK && !has_layer)
            qm_emu_layer_write(LAYER_FLAGS, made);
        st = st == QM_OK ? other : st;
    }
    if (st == QM_OK) {
        compile_with(kernel, LINK_FLAGS, "", (const char *const[]){part, made, "-o", object, NULL});
        st = qm_argv_run(kernel, source, HINT);
    }
    free(layer);
    free(kernel);
    return st;
}
