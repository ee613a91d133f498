/* repro_text.c - Writes the input-independent parts of a reproducer, and arrays as C. */
#include "experiments/kernel/repro_text.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/user_kernel/backend_file.h"

enum { COLUMNS = 98 };

/* ---- the interface's header ------------------------------------------------------------------ */

/* kernel_abi.h as one string, without comments, and with the continued lines of macros joined. */
static char *header(void)
{
    const char *const *lines = qm_kernel_file_text("kernel_abi.h");
    size_t size = 1;
    for (const char *const *l = lines; *l; l++)
        size += strlen(*l);
    char *text = malloc(size), *to = text;
    for (const char *const *l = lines; *l && text; l++)
        to = stpcpy(to, *l);
    to = text;
    for (const char *at = text; text && *at; at++) {
        if (at[0] == '/' && at[1] == '*') {
            const char *end = strstr(at, "*/");
            at = end ? end + 1 : at;
        } else if (at[0] == '\\' && at[1] == '\n') {
            at++;
        } else {
            *to++ = *at;
        }
    }
    if (text)
        *to = '\0';
    return text;
}

/* Writes a directive on its own line, without runs of blanks.  Include guards are left out. */
static void put_directive(FILE *f, const char *line)
{
    if (!strstr(line, "#define") || strstr(line, "_H") == line + strlen(line) - 2) {
        if (strstr(line, "#include"))
            fprintf(f, "%s\n", line);
        return;
    }
    for (const char *c = line; *c; c++)
        if (!isspace((unsigned char)*c) || !(isspace((unsigned char)c[1]) || !c[1]))
            fputc(*c, f);
    fputc('\n', f);
}

/* Writes words in full lines; returns the column. */
static int put_words(FILE *f, char *line, int column)
{
    for (char *word, *rest = line; (word = strsep(&rest, " \t"));) {
        int n = (int)strlen(word);
        if (n == 0)
            continue;
        if (column > 0 && column + 1 + n > COLUMNS) {
            fputc('\n', f);
            column = 0;
        }
        column += fprintf(f, "%s%s", column > 0 ? " " : "", word);
        if (strcmp(word, "};") == 0) {
            fputc('\n', f);
            column = 0;
        }
    }
    return column;
}

static qm_status put_header(FILE *f)
{
    char *text = header(), *rest = text;
    int column = 0, is_cpp = 0;
    if (!text)
        return qm_fail(QM_NO_MEMORY, "kernel_abi.h");
    for (char *line; (line = strsep(&rest, "\n"));) {
        if (strstr(line, "#ifdef __cplusplus"))
            is_cpp = 1;
        if (*line == '#' && column > 0) {
            fputc('\n', f);
            column = 0;
        }
        if (*line == '#' && !is_cpp)
            put_directive(f, line);
        else if (*line != '#' && !is_cpp)
            column = put_words(f, line, column);
        if (strstr(line, "#endif"))
            is_cpp = 0;
    }
    if (column > 0)
        fputc('\n', f);
    free(text);
    return QM_OK;
}

/* ---- the kernel ------------------------------------------------------------------------------ */

/* The name of the file that a line includes, or "". */
static void included(const char *line, char *name, size_t size)
{
    char close = 0;
    *name = '\0';
    line += strspn(line, " \t");
    if (*line++ != '#')
        return;
    line += strspn(line, " \t");
    if (strncmp(line, "include", 7) != 0)
        return;
    line += 7 + strspn(line + 7, " \t");
    close = *line == '"' ? '"' : *line == '<' ? '>' : 0;
    const char *end = close ? strchr(line + 1, close) : NULL;
    if (end && (size_t)(end - line) < size)
        snprintf(name, size, "%.*s", (int)(end - line - 1), line + 1);
}

static void put_include(FILE *f, const char *source, const char *name, const char *line)
{
    char path[2 * PATH_MAX];
    const char *slash = strrchr(source, '/');
    snprintf(path, sizeof path, "%.*s%s", slash ? (int)(slash - source + 1) : 0, source, name);
    char *whole = strchr(line, '"') ? realpath(path, NULL) : NULL;
    if (whole)
        fprintf(f, "#include \"%s\"\n", whole);
    else
        fputs(line, f);
    free(whole);
}

/* Turns off the warnings of the kernel's own source. */
static void put_quiet(FILE *f)
{
    static const char *const words[] = {"pragmas",
                                        "unknown-warning-option",
                                        "unknown-pragmas",
                                        "unused-variable",
                                        "unused-function",
                                        "unused-parameter",
                                        "unused-but-set-variable",
                                        "uninitialized",
                                        "maybe-uninitialized",
                                        "misleading-indentation",
                                        "sign-compare",
                                        "parentheses",
                                        "array-bounds",
                                        "stringop-overflow",
                                        "stringop-overread",
                                        "type-limits",
                                        "implicit-fallthrough",
                                        "missing-field-initializers",
                                        "empty-body",
                                        "unused-value",
                                        "unused-label",
                                        "unused-const-variable",
                                        "infinite-recursion",
                                        "nonnull",
                                        "div-by-zero"};
    fputs("#pragma GCC diagnostic push\n", f);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        fprintf(f, "#pragma GCC diagnostic ignored \"-W%s\"\n", words[i]);
}

qm_status qm_repro_source(FILE *f, const char *path, int is_quiet)
{
    if (is_quiet)
        put_quiet(f);
    FILE *in = fopen(path, "r");
    char *line = NULL, name[PATH_MAX];
    size_t room = 0;
    int headers = 0;
    qm_status st = in ? QM_OK : qm_fail(QM_BAD_FILE, "%s: %s", path, strerror(errno));
    while (st == QM_OK && getline(&line, &room, in) >= 0) {
        included(line, name, sizeof name);
        const char *base = strrchr(name, '/') ? strrchr(name, '/') + 1 : name;
        if (strcmp(base, "kernel_abi.h") == 0)
            st = headers++ ? QM_OK : put_header(f);
        else if (*name)
            put_include(f, path, name, line);
        else
            fputs(line, f);
    }
    free(line);
    if (in)
        fclose(in);
    if (is_quiet)
        fputs("#pragma GCC diagnostic pop\n", f);
    return st;
}

qm_status qm_repro_object(FILE *f, const char *object)
{
    QM_TRY(put_header(f));
    fprintf(f,
            "\n#include <dlfcn.h>\n#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n\n"
            "static void *repro_object;\n\n"
            "int qm_kernel_step(const struct qm_kernel_args *a)\n{\n"
            "    int (*step)(const struct qm_kernel_args *);\n"
            "    repro_object = dlopen(\"%s\", RTLD_NOW);\n"
            "    void *at = repro_object ? dlsym(repro_object, \"qm_kernel_step\") : NULL;\n"
            "    if (!at) {\n        fprintf(stderr, \"%%s\\n\", dlerror());\n        exit(3);\n"
            "    }\n    memcpy(&step, &at, sizeof at);\n    return step(a);\n}\n",
            object);
    return QM_OK;
}

/* ---- data ------------------------------------------------------------------------------------ */

static const char *word_of(char type)
{
    return type == 'f' ? "float" : type == '1' ? "uint8_t" : type == '2' ? "uint16_t" : "uint32_t";
}

int qm_repro_array(FILE *f, const char *name, char type, int calls, int64_t n)
{
    return fprintf(f, "static const %s repro_%s[%d][%lld] = {", word_of(type), name, calls,
                   (long long)(n > 0 ? n : 1));
}

int qm_repro_own(FILE *f, const char *name, char type, int64_t n, int is_const)
{
    return fprintf(f, "    _Alignas(64) static %s%s repro_%s[%lld] = ", is_const ? "const " : "",
                   word_of(type), name, (long long)(n > 0 ? n : 1));
}

static void spell(char *text, size_t size, char type, const void *x, int64_t i)
{
    const unsigned char *at = (const unsigned char *)x + i * (type == 'f' ? 4 : type - '0');
    uint32_t bits = 0;
    float value;
    memcpy(&bits, at, type == 'f' ? 4 : (size_t)(type - '0')); /* little-endian */
    memcpy(&value, &bits, sizeof value);
    if (type != 'f')
        snprintf(text, size, "0x%x", (unsigned)bits);
    else if (isnan(value))
        snprintf(text, size, "%s__builtin_nanf(\"\")", signbit(value) ? "-" : "");
    else if (isinf(value))
        snprintf(text, size, "%s__builtin_inff()", value < 0.0f ? "-" : "");
    else if (bits == 0)
        snprintf(text, size, "0");
    else
        snprintf(text, size, "%af", (double)value);
}

void qm_repro_row(FILE *f, char type, const void *x, int64_t n, int column)
{
    char text[40];
    fputc('{', f);
    column++;
    for (int64_t i = 0; i < (n > 0 ? n : 1); i++) {
        spell(text, sizeof text, type, n > 0 ? x : "\0\0\0", n > 0 ? i : 0);
        if (i > 0)
            column += fprintf(f, ",");
        if (column + (int)strlen(text) + 2 > COLUMNS)
            column = fprintf(f, "\n   ") - 1;
        column += fprintf(f, "%s%s", i > 0 ? " " : "", text);
    }
    fputc('}', f);
}

void qm_repro_comment(FILE *f, const char *text)
{
    int column = 10;
    for (const char *c = text; *c; c++, column++) {
        if (*c == ' ' && column > 84) {
            fputs("\n *  ", f);
            column = 4;
        }
        fputc(*c == '\n' || (*c == '*' && c[1] == '/') ? ' ' : *c, f);
    }
}

/* ---- fixed parts ----------------------------------------------------------------------------- */

void qm_repro_includes(FILE *f, const struct qm_kernel_verdict *o, int is_direct)
{
    int died = o->how != QM_CASE_failed, is_guarded = qm_repro_memory(o) != QM_REPRO_PLAIN;
    if (!died && o->finding.place == QM_PLACE_MODE)
        fputs("#include <fenv.h>\n", f);
    fputs("#include <stdio.h>\n", f);
    if (is_direct)
        return;
    fputs(is_guarded ? "#include <string.h>\n#include <sys/mman.h>\n"
                     : "#include <stdlib.h>\n#include <string.h>\n",
          f);
    if (o->how == QM_CASE_memory)
        fputs("#include <sys/resource.h>\n", f);
    if (died)
        fputs("#include <sys/wait.h>\n", f);
    fputs(is_guarded ? "#include <unistd.h>\n\n" : "\n", f);
}

enum qm_repro_memory qm_repro_memory(const struct qm_kernel_verdict *o)
{
    enum qm_place place = o->finding.place;
    if (o->how != QM_CASE_failed)
        return QM_REPRO_GUARDED;
    return place == QM_PLACE_OUTSIDE || place == QM_PLACE_REPEAT ? QM_REPRO_LISTED : QM_REPRO_PLAIN;
}

static const char *const plain_place =
    "\n/* A copy at a multiple of 64 bytes. */\n"
    "static void *repro_place(const void *data, size_t bytes)\n{\n"
    "    void *at = aligned_alloc(64, (bytes + 64) / 64 * 64);\n"
    "    return at ? memcpy(at, data, bytes) : NULL;\n}\n";

void qm_repro_place(FILE *f, enum qm_repro_memory memory, int is_repeated)
{
    if (memory == QM_REPRO_PLAIN) {
        fputs(plain_place, f);
        return;
    }
    if (memory == QM_REPRO_LISTED)
        fputs("\nstatic struct {\n    const char *what;\n    unsigned char *from, *at, *end;\n"
              "    size_t bytes;\n} repro_buffer[4096];\nstatic int repro_buffers;\n",
              f);
    fprintf(f,
            "\n/* A copy between pages that are not mapped; 0xA5 beside it. */\n"
            "static void *repro_place(%sconst void *data, size_t bytes, int is_const)\n{\n"
            "    size_t page = (size_t)sysconf(_SC_PAGESIZE), room = (bytes + 63) / 64 * 64;\n"
            "    size_t all = (room + page - 1) / page * page;\n"
            "    int flags = MAP_PRIVATE | MAP_ANONYMOUS;\n"
            "    unsigned char *map = mmap(NULL, all + 2 * page, PROT_NONE, flags, -1, 0);\n"
            "    unsigned char *from = map + page, *at = from + all - room;\n"
            "    mprotect(from, all, PROT_READ | PROT_WRITE);\n    memset(from, 0xA5, all);\n"
            "    memcpy(at, data, bytes);\n    if (is_const)\n        mprotect(from, all, "
            "PROT_READ);\n",
            memory == QM_REPRO_LISTED ? "const char *what, " : "");
    if (memory == QM_REPRO_LISTED)
        fputs("    repro_buffer[repro_buffers].what = what;\n"
              "    repro_buffer[repro_buffers].from = from;\n"
              "    repro_buffer[repro_buffers].at = at;\n"
              "    repro_buffer[repro_buffers].end = from + all;\n"
              "    repro_buffer[repro_buffers++].bytes = bytes;\n",
              f);
    fputs("    return at;\n}\n", f);
    if (memory == QM_REPRO_LISTED && is_repeated)
        fputs("\nstatic void repro_release(void)\n{\n"
              "    for (int i = 0; i < repro_buffers; i++) {\n"
              "        size_t page = (size_t)sysconf(_SC_PAGESIZE);\n"
              "        unsigned char *from = repro_buffer[i].from - page;\n"
              "        munmap(from, (size_t)(repro_buffer[i].end - from) + page);\n"
              "    }\n    repro_buffers = 0;\n}\n",
              f);
}

const char *const qm_repro_died =
    "        _exit(42);\n    }\n    waitpid(child, &state, 0);\n"
    "    int ok = WIFEXITED(state) && WEXITSTATUS(state) == 42;\n"
    "    printf(\"expected: the step returns; got: %s\\n\", ok ? \"it does\" : WIFSIGNALED(state)\n"
    "           ? strsignal(WTERMSIG(state)) : \"it called exit\");\n    return !ok;\n}\n";

const char *const qm_repro_outside =
    "    for (int i = 0; i < repro_buffers; i++)\n"
    "        for (unsigned char *c = repro_buffer[i].from; c < repro_buffer[i].end; c++)\n"
    "            if ((c < repro_buffer[i].at || c >= repro_buffer[i].at + repro_buffer[i].bytes)\n"
    "                && *c != 0xA5) {\n"
    "                printf(\"%s: expected 0xa5 %ld bytes from its %s, got 0x%x\\n\",\n"
    "                       repro_buffer[i].what, c < repro_buffer[i].at\n"
    "                       ? (long)(repro_buffer[i].at - c)\n"
    "                       : (long)(c - repro_buffer[i].at - repro_buffer[i].bytes),\n"
    "                       c < repro_buffer[i].at ? \"start\" : \"end\", (unsigned)*c);\n"
    "                return 1;\n            }\n"
    "    puts(\"expected and got: nothing is written outside the buffers\");\n    return 0;\n}\n";

const char *const qm_repro_mode =
    "    volatile float tiny = 0x1p-140f, one = 1.0f;\n"
    "    int ok = fegetround() == FE_TONEAREST && tiny * one == tiny && tiny > 0.0f;\n"
    "    fesetround(FE_TONEAREST);\n"
    "    printf(\"expected: rounding to nearest, denormals kept; got: %s\\n\", ok ? \"so\" : "
    "\"changed\");\n    return !ok;\n}\n";

const char *const qm_repro_layer =
    "    const char *(*finding)(void);\n"
    "    void *at = dlsym(repro_object, \"qm_emu_finding\");\n"
    "    if (!at)\n        return 3;\n"
    "    memcpy(&finding, &at, sizeof at);\n"
    "    printf(\"expected: nothing found; got: %s\\n\", *finding() ? finding() : \"so\");\n"
    "    return *finding() != 0;\n}\n";

const char *const qm_repro_repeat =
    "    int n = repro_buffers / %d, first = repro_buffers - 2 * n; /* the last call's, twice */\n"
    "    for (int i = 0; i < n; i++) {\n"
    "        const unsigned char *x = repro_buffer[first + i].at;\n"
    "        const unsigned char *y = repro_buffer[first + n + i].at;\n"
    "        for (size_t k = 0; k < repro_buffer[first + i].bytes; k++)\n"
    "            if (x[k] != y[k]) {\n"
    "                printf(\"%%s, byte %%zu: expected the same twice, got 0x%%x, then "
    "0x%%x\\n\",\n"
    "                       repro_buffer[first + i].what, k, (unsigned)x[k], (unsigned)y[k]);\n"
    "                return 1;\n            }\n    }\n    }\n"
    "    puts(\"expected and got: the same twice\");\n    return 0;\n}\n";
