/* repro.c - Writes the reproducer, compiles it and runs it. */
#include "experiments/kernel/repro.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/abi/kernel_abi.h"
#include "core/compile/kernel_build.h"
#include "core/user_kernel/backend_file.h"
#include "experiments/kernel/repro_text.h"
#include "experiments/store/atomic_file.h"

struct writing {
    const struct qm_shrunk *s;
    const struct qm_repro *r;
    const char *object, *draft; /* the kernel's shared object; the file to write */
    int is_quiet;
};

struct writer {
    const struct qm_trial *t;
    const struct qm_shrunk *s;
    FILE *f;
    void *plan;
    int is_direct; /* 1: one call of one plan; the step receives the arrays themselves */
    int column;
};

/* ---- arrays ---------------------------------------------------------------------------------- */

/* The arguments that the plan hands to the kernel in call k. */
static qm_status args_of(const struct writer *w, int k, const struct qm_kernel_args **out)
{
    const struct qm_trial *t = w->t;
    struct qm_call c = qm_trial_call(t, k);
    struct qm_tensor p = {c.p, qm_param_dtype(&t->recipe.param), t->shape};
    struct qm_tensor g = {c.g, t->recipe.grad, t->shape};
    const struct qm_backend *b = &qm_backend_file;
    QM_TRY(b->load(w->plan, QM_RESIDUAL, c.residual, NULL));
    for (int i = 0; i < t->recipe.rule->n_slots; i++)
        QM_TRY(b->load(w->plan, i, t->slot[i].bits ? c.codes[i] : NULL, c.scales[i]));
    return qm_plan_file_args(w->plan, &p, &g, *c.t, t->seed, out);
}

/* One buffer of a step. */
struct buffer {
    const char *name; /* the member of the arguments */
    char type;        /* f: float; 1, 2, 4: unsigned integer of 1, 2, 4 bytes */
    int64_t n;
    int is_const;
};

/* The buffers of the parameter (slot -1), then those of a slot. */
enum { PARAM, GRADIENT, RESIDUAL, PARAM_DRAWS, CODES, SCALES, VALUES, DRAWS, BUFFERS };

static const void *find(const struct qm_kernel_args *a, int which, int slot, struct buffer *out)
{
    static const char types[] = {'f', '2', '2', '1'};
    const struct qm_kernel_slot *s = slot < 0 ? NULL : &a->slot[slot];
    char residual = strstr(a->param, "ecc8") ? '1' : '2';
    switch (which) {
    case PARAM: *out = (struct buffer){"p", types[a->p_dtype], a->n, 0}; return a->p;
    case GRADIENT: *out = (struct buffer){"g", types[a->g_dtype], a->n, 1}; return a->g;
    case RESIDUAL: *out = (struct buffer){"residual", residual, a->n, 0}; return a->residual;
    case PARAM_DRAWS: *out = (struct buffer){"p_draws", '4', a->n, 1}; return a->p_draws;
    case CODES: *out = (struct buffer){"codes", '1', s->code_bytes, 0}; return s->codes;
    case SCALES: *out = (struct buffer){"scales", 'f', s->n_scales, 0}; return s->scales;
    case VALUES: *out = (struct buffer){"values", 'f', s->n, 0}; return s->values;
    default: *out = (struct buffer){"draws", '4', s->n, 1}; return s->draws;
    }
}

/* Writes an array of main that the step receives itself. */
static void put_direct(const struct writer *w, const char *name, const struct buffer *b,
                       const void *data)
{
    int column = qm_repro_own(w->f, name, b->type, b->n, b->is_const);
    qm_repro_row(w->f, b->type, data, b->n, column);
    fputs(";\n", w->f);
}

/* Writes one buffer of every call; nothing where the kernel gets none. */
static qm_status put_array(const struct writer *w, int which, int slot)
{
    const struct qm_kernel_args *a;
    struct buffer b;
    char name[32];
    QM_TRY(args_of(w, 0, &a));
    if (!find(a, which, slot, &b))
        return QM_OK;
    snprintf(name, sizeof name, slot < 0 ? "%s" : "%s%d", b.name, slot);
    if (w->is_direct) {
        put_direct(w, name, &b, find(a, which, slot, &b));
        return QM_OK;
    }
    int column = qm_repro_array(w->f, name, b.type, w->t->n_calls, b.n);
    for (int k = 0; k < w->t->n_calls; k++) {
        QM_TRY(args_of(w, k, &a));
        fputs(k > 0 ? ",\n    " : "", w->f);
        qm_repro_row(w->f, b.type, find(a, which, slot, &b), b.n, k > 0 ? 4 : column);
    }
    fputs("};\n", w->f);
    return QM_OK;
}

static qm_status put_arrays(const struct writer *w, const struct qm_kernel_args *a)
{
    for (int which = PARAM; which < CODES; which++)
        QM_TRY(put_array(w, which, -1));
    for (int i = 0; i < a->n_slots; i++) {
        char name[32];
        for (int which = CODES; which < BUFFERS; which++)
            QM_TRY(put_array(w, which, i));
        if (!a->slot[i].bits)
            continue;
        snprintf(name, sizeof name, "codebook%d", i);
        int64_t n = (int64_t)1 << a->slot[i].bits;
        if (w->is_direct) {
            struct buffer b = {name, 'f', n, 1};
            put_direct(w, name, &b, a->slot[i].codebook);
            continue;
        }
        int column = qm_repro_array(w->f, name, 'f', 1, n);
        qm_repro_row(w->f, 'f', a->slot[i].codebook, n, column);
        fputs("};\n", w->f);
    }
    if (w->t->n_calls > 1) {
        fprintf(w->f, "static const int64_t repro_t[%d] = {", w->t->n_calls);
        for (int k = 0; k < w->t->n_calls; k++)
            fprintf(w->f, "%lld, ", (long long)*qm_trial_call(w->t, k).t);
        fputs("};\n", w->f);
    }
    return QM_OK;
}

/* ---- arguments ------------------------------------------------------------------------------- */

/* Writes one more member of an initializer, on a new line where the current one is full. */
static void put_item(struct writer *w, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static void put_item(struct writer *w, const char *format, ...)
{
    char text[QM_RECIPE_TEXT + 64];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    fputc(',', w->f);
    if (w->column + n + 3 > 98)
        w->column = fprintf(w->f, "\n       ") - 1;
    w->column += 2 + fprintf(w->f, " %s", text);
}

static void put_buffer(struct writer *w, const struct qm_kernel_args *a, int which, int slot)
{
    static const char *const what[] = {"parameters", "gradients", "residuals", "draws",
                                       "codes",      "scales",    "values",    "draws"};
    enum qm_repro_memory memory = qm_repro_memory(&w->s->attempt);
    struct buffer b;
    char name[40], of[80] = "", is_const[8] = "";
    if (!find(a, which, slot, &b))
        return;
    snprintf(name, sizeof name, slot < 0 ? "%s" : "%s%d", b.name, slot);
    if (w->is_direct) {
        put_item(w, ".%s = repro_%s", b.name, name);
        return;
    }
    if (memory == QM_REPRO_LISTED)
        snprintf(of, sizeof of, "\"%s%s%.40s\", ", what[which], slot < 0 ? "" : " of ",
                 slot < 0 ? "" : a->slot[slot].name);
    if (memory != QM_REPRO_PLAIN)
        snprintf(is_const, sizeof is_const, ", %d", b.is_const);
    put_item(w, ".%s = repro_place(%srepro_%s[call], %lld%s)", b.name, of, name,
             (long long)(b.n * (b.type == 'f' ? 4 : b.type - '0')), is_const);
}

static void put_codebook(struct writer *w, const struct qm_kernel_slot *s, int i)
{
    enum qm_repro_memory memory = qm_repro_memory(&w->s->attempt);
    char of[80] = "";
    if (memory == QM_REPRO_LISTED)
        snprintf(of, sizeof of, "\"codebook of %.40s\", ", s->name);
    if (w->is_direct)
        put_item(w, ".codebook = repro_codebook%d", i);
    else
        put_item(w, ".codebook = repro_place(%srepro_codebook%d, %d%s)", of, i, 4 << s->bits,
                 memory == QM_REPRO_PLAIN ? "" : ", 1");
}

static void put_dims(struct writer *w, int ndim, const int64_t *dim)
{
    char text[256] = "";
    for (int i = 0; i < ndim; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s%lld", i ? ", " : "",
                 (long long)dim[i]);
    put_item(w, ".ndim = %d", ndim);
    if (ndim > 0)
        put_item(w, ".dim = {%s}", text);
}

static void put_slot(struct writer *w, const struct qm_kernel_args *a, int i)
{
    const struct qm_kernel_slot *s = &a->slot[i];
    fprintf(w->f, ",\n        ");
    w->column = 8 + fprintf(w->f, ".slot[%d] = {.name = \"%s\"", i, s->name);
    put_item(w, ".quantizer = \"%s\"", s->quantizer);
    put_item(w, ".bits = %d", s->bits);
    put_item(w, ".is_signed = %d", s->is_signed);
    put_item(w, ".block = %lld", (long long)s->block);
    put_item(w, ".n = %lld", (long long)s->n);
    put_dims(w, s->ndim, s->dim);
    if (s->bits) {
        put_item(w, ".code_bytes = %lld", (long long)s->code_bytes);
        put_item(w, ".n_scales = %lld", (long long)s->n_scales);
        put_codebook(w, s, i);
    }
    for (int which = CODES; which < BUFFERS; which++)
        put_buffer(w, a, which, i);
    fputc('}', w->f);
}

/* Writes the members of the arguments after .abi. */
static void put_args(struct writer *w, const struct qm_kernel_args *a)
{
    put_item(w, ".recipe = \"%s\"", a->recipe);
    put_item(w, ".n = %lld", (long long)a->n);
    put_dims(w, a->ndim, a->dim);
    put_item(w, ".p_dtype = %d", a->p_dtype);
    put_item(w, ".param = \"%s\"", a->param);
    put_item(w, ".g_dtype = %d", a->g_dtype);
    put_item(w, ".n_slots = %d", a->n_slots);
    if (w->t->n_calls > 1)
        put_item(w, ".t = repro_t[call]");
    else
        put_item(w, ".t = %lld", (long long)a->t);
    put_item(w, ".seed = %lluu", (unsigned long long)a->seed);
    put_item(w, ".tensor = %u", (unsigned)a->tensor);
#define X(name, value, text) \
    if (a->name != 0)        \
        put_item(w, ".%s = %.17g", #name, (double)a->name);
    QM_HYPER_LIST(X)
    QM_HYPER_FLAG_LIST(X)
#undef X
    for (int which = PARAM; which < CODES; which++)
        put_buffer(w, a, which, -1);
    for (int i = 0; i < a->n_slots; i++)
        put_slot(w, a, i);
}

static void put_step(struct writer *w, const struct qm_kernel_args *a)
{
    fputs("\nstatic void repro_step(int call, struct qm_kernel_args *out)\n{\n", w->f);
    w->column = fprintf(w->f, "    *out = (struct qm_kernel_args){.abi = QM_KERNEL_ABI");
    put_args(w, a);
    fputs("};\n    qm_kernel_step(out);\n}\n", w->f);
}

/* Writes a main with the arrays, the arguments and the only call. */
static qm_status put_once(struct writer *w)
{
    const struct qm_kernel_args *a;
    fputs("\nint main(void)\n{\n", w->f);
    QM_TRY(args_of(w, 0, &a));
    QM_TRY(put_arrays(w, a));
    QM_TRY(args_of(w, 0, &a));
    w->column = fprintf(w->f, "    struct qm_kernel_args a[1] = {{.abi = QM_KERNEL_ABI");
    put_args(w, a);
    fputs("}};\n    qm_kernel_step(a);\n", w->f);
    return QM_OK;
}

/* ---- the verdict ----------------------------------------------------------------------------- */

static void put_calls(const struct writer *w, const char *indent)
{
    if (w->t->n_calls == 1 && w->t->n_plans == 1) {
        fprintf(w->f, "%srepro_step(0, a);\n", indent);
        return;
    }
    fprintf(w->f,
            "%sfor (int call = 0; call < %d; call++)\n%s    for (int side = 0; side < %d; side++)\n"
            "%s        repro_step(call, &a[side]);\n",
            indent, w->t->n_calls, indent, w->t->n_plans, indent);
}

static void put_code_check(const struct writer *w, const struct qm_kernel_args *a)
{
    const struct qm_finding *f = &w->s->attempt.finding;
    const struct qm_kernel_slot *s = &a->slot[f->slot];
    int per = 8 / s->bits, is_hi = strstr(s->quantizer, "/hi") != NULL;
    int64_t byte = f->at;
    int shift = 0;
    if (s->bits < 8 && !strstr(s->quantizer, "/byte")) {
        byte = f->at / per;
        shift = s->bits * (int)(is_hi ? per - 1 - f->at % per : f->at % per);
    }
    fputs("    static const int want[] = {", w->f);
    for (int c = 0; c < 256; c++)
        if (f->takes[c])
            fprintf(w->f, "%d, ", c);
    fprintf(w->f,
            "-1};\n    int got = a->slot[%d].codes[%lld] >> %d & %d, ok = 0;\n"
            "    printf(\"code of %s %lld: expected\");\n"
            "    for (int i = 0; want[i] >= 0; ok |= got == want[i++])\n"
            "        printf(\" %%d (%%a = %%g)\", want[i],\n"
            "               (double)a->slot[%d].codebook[want[i]],\n"
            "               (double)a->slot[%d].codebook[want[i]]);\n"
            "    printf(\", got %%d (%%a = %%g)%%s\\n\", got, (double)a->slot[%d].codebook[got],\n"
            "           (double)a->slot[%d].codebook[got], ok ? \", passes\" : \"\");\n"
            "    return !ok;\n}\n",
            f->slot, (long long)byte, shift, (1 << s->bits) - 1, s->name, (long long)f->at, f->slot,
            f->slot, f->slot, f->slot);
}

/* A bound as a float32 number within: of the upper bound the largest one not above x, of the lower
 * one the least one not below x. */
static float inward(double x, int is_upper)
{
    float y = (float)x;
    if (is_upper ? (double)y > x : (double)y < x)
        y = nextafterf(y, is_upper ? -INFINITY : INFINITY);
    return y;
}

/* Writes `value`, the stored parameter of 16 bits that the finding is about. */
static void put_stored(const struct writer *w, int64_t at)
{
    if (w->t->recipe.param.format == QM_PARAM_bf16)
        fprintf(w->f,
                "    union { uint32_t bits; float x; } wide = "
                "{(uint32_t)((uint16_t *)a->p)[%lld] << 16};\n    float value = wide.x;\n",
                (long long)at);
    else
        fprintf(w->f,
                "    int h = ((uint16_t *)a->p)[%lld], e = h >> 10 & 31, m = h & 1023;\n"
                "    float x = e ? __builtin_ldexpf((float)(1024 + m), e - 25)\n"
                "                : __builtin_ldexpf((float)m, -24);\n"
                "    x = e < 31 ? x : m ? __builtin_nanf(\"\") : __builtin_inff();\n"
                "    float value = h >> 15 ? -x : x;\n",
                (long long)at);
}

/* The stored parameter nearest to x. */
static double stored_at(const struct writer *w, double x)
{
    enum qm_param_format format = w->t->recipe.param.format;
    uint32_t bits = qm_param_nearest(format, (float)x);
    float y;
    qm_to_float(&bits, qm_param_type(format), 0, 1, &y); /* the lowest bytes come first */
    return (double)y;
}

static void put_number_check(const struct writer *w, const struct qm_kernel_args *a)
{
    const struct qm_finding *f = &w->s->attempt.finding;
    int is_stored = f->slot < 0 && w->t->recipe.param.format != QM_PARAM_f32;
    double least = is_stored && !isnan(f->low) ? stored_at(w, f->low) : f->low;
    double most = is_stored && !isnan(f->low) ? stored_at(w, f->high) : f->high;
    const char *what = f->slot < 0 ? "parameter" : a->slot[f->slot].name;
    const char *part = f->place == QM_PLACE_SCALE ? "scales" : "values";
    if (is_stored)
        put_stored(w, f->at);
    if (is_stored)
        fputs("    float got = value", w->f);
    else if (f->slot < 0)
        fprintf(w->f, "    float got = ((float *)a->p)[%lld]", (long long)f->at);
    else
        fprintf(w->f, "    float got = a->slot[%d].%s[%lld]", f->slot, part, (long long)f->at);
    if (isnan(f->low)) {
        fprintf(w->f,
                ";\n    int ok = got - got != 0.0f;\n"
                "    printf(\"%s%s %lld: expected NaN or Inf, got %%a%%s\\n\", (double)got,\n"
                "           ok ? \", passes\" : \"\");\n    return !ok;\n}\n",
                f->place == QM_PLACE_SCALE ? "scale of " : "", what, (long long)f->at);
        return;
    }
    fprintf(
        w->f,
        ", low = %af, high = %af;\n"
        "    int ok = got >= low && got <= high;\n"
        "    printf(\"%s%s %lld: expected %%a to %%a, got %%a%%s\\n\", (double)low, (double)high,\n"
        "           (double)got, ok ? \", passes\" : \"\");\n    return !ok;\n}\n",
        (double)inward(least, 0), (double)inward(most, 1),
        f->place == QM_PLACE_SCALE ? "scale of " : "", what, (long long)f->at);
}

static void put_main(const struct writer *w, const struct qm_kernel_args *a)
{
    const struct qm_kernel_verdict *o = &w->s->attempt;
    if (!w->is_direct)
        fputs("\nint main(void)\n{\n    struct qm_kernel_args a[2];\n", w->f);
    if (o->how != QM_CASE_failed) {
        fputs("    pid_t child = fork();\n    int state = 0;\n    if (child == 0) {\n"
              "        alarm(2);\n",
              w->f);
        if (o->how == QM_CASE_memory)
            fputs("        setrlimit(RLIMIT_AS, &(struct rlimit){1 << 30, 1 << 30});\n", w->f);
        put_calls(w, "        ");
        fputs(qm_repro_died, w->f);
        return;
    }
    if (!w->is_direct && o->finding.place == QM_PLACE_REPEAT)
        fputs("    for (int round = 0; round < 2000; round++) {\n    repro_release();\n", w->f);
    if (!w->is_direct)
        put_calls(w, "    ");
    switch (o->finding.place) {
    case QM_PLACE_OUTSIDE: fputs(qm_repro_outside, w->f); break;
    case QM_PLACE_MODE: fputs(qm_repro_mode, w->f); break;
    case QM_PLACE_LAYER: fputs(qm_repro_layer, w->f); break;
    case QM_PLACE_REPEAT: fprintf(w->f, qm_repro_repeat, 2 * w->t->n_calls); break;
    case QM_PLACE_CODE: put_code_check(w, a); break;
    default: put_number_check(w, a);
    }
}

/* ---- the file -------------------------------------------------------------------------------- */

static const char *stem(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static void put_head(const struct writer *w, const struct writing *x)
{
    const char *more = getenv("CFLAGS"), *name = stem(x->r->path);
    char shape[64];
    fprintf(w->f, "/* cc -O2 -ffp-contract=off%s%s %s -lm%s -o repro && ./repro\n *\n",
            more && *more ? " " : "", more ? more : "", name, x->r->source ? "" : " -ldl");
    fprintf(w->f, " * %s of %s (%s), shrunk to %d step%s of a tensor of shape %s.\n",
            stem(x->r->source ? x->r->source : x->object), w->t->recipe.base->name, x->r->origin,
            w->t->n_calls, w->t->n_calls > 1 ? "s" : "",
            qm_shape_print(&w->t->shape, shape, sizeof shape));
    fputs(" * Found: ", w->f);
    qm_repro_comment(w->f, w->s->attempt.text);
    fputs(".\n * Prints what is expected and what comes; exits 1 while they differ. */\n", w->f);
}

static qm_status put_all(struct writer *w, const struct writing *x)
{
    const struct qm_kernel_args *a;
    put_head(w, x);
    QM_TRY(x->r->source ? qm_repro_source(w->f, x->r->source, x->is_quiet)
                        : qm_repro_object(w->f, x->object));
    fputs("\n/* ---- what the step gets, and what it must leave ---- */\n", w->f);
    w->is_direct = qm_repro_memory(&w->s->attempt) == QM_REPRO_PLAIN && w->t->n_calls == 1 &&
                   w->t->n_plans == 1;
    qm_repro_includes(w->f, &w->s->attempt, w->is_direct);
    if (w->is_direct) {
        QM_TRY(put_once(w));
    } else {
        QM_TRY(args_of(w, 0, &a));
        QM_TRY(put_arrays(w, a));
        qm_repro_place(w->f, qm_repro_memory(&w->s->attempt),
                       w->s->attempt.finding.place == QM_PLACE_REPEAT);
        QM_TRY(args_of(w, 0, &a));
        put_step(w, a);
    }
    QM_TRY(args_of(w, 0, &a));
    put_main(w, a);
    return QM_OK;
}

/* Writes the draft; the plan that makes the arguments runs no step. */
static qm_status write_draft(struct qm_kernel_file *kernel, const struct writing *x)
{
    struct writer w = {.t = &x->s->trial, .s = x->s, .f = fopen(x->draft, "w")};
    qm_kernel_file_use(kernel);
    qm_status st = w.f ? qm_backend_file.open(&w.t->recipe, &w.t->shape, 1, &w.plan)
                       : qm_fail(QM_BAD_FILE, "%s: %s", x->draft, strerror(errno));
    if (st == QM_OK)
        st = put_all(&w, x);
    qm_backend_file.close(w.plan);
    if (w.f && fclose(w.f) != 0 && st == QM_OK)
        st = qm_fail(QM_BAD_FILE, "%s: %s", x->draft, strerror(errno));
    return st;
}

/* 1: the draft compiles, without a warning where `strict` is 1, and exits with 1. */
static int fails(const struct qm_repro *r, int strict)
{
    struct qm_argv compile = {0}, run = {0};
    char source[PATH_MAX], program[PATH_MAX];
    snprintf(source, sizeof source, "%s/repro.c", r->folder);
    snprintf(program, sizeof program, "%s/repro", r->folder);
    const char *made[] = {source, "-o", program, "-lm", r->source ? NULL : "-ldl"};
    const char *runs[] = {"env", "-C", r->folder, "timeout", "10", "./repro"};
    unlink(program);
    qm_argv_compiler(&compile, "CC", "cc");
    qm_argv_words(&compile, NULL, "-O2 -ffp-contract=off");
    qm_argv_words(&compile, "CFLAGS", getenv("CFLAGS"));
    qm_argv_words(&compile, NULL, strict ? "-Wall -Wextra -Werror" : "-w");
    for (size_t i = 0; i < sizeof made / sizeof *made && made[i]; i++)
        qm_argv_add(&compile, NULL, made[i]);
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++)
        qm_argv_add(&run, NULL, runs[i]);
    return qm_argv_ask(&compile, NULL, 0) == 0 && qm_argv_ask(&run, NULL, 0) == 1;
}

static qm_status publish(const char *draft, const char *path)
{
    struct qm_atomic_file part;
    char chunk[8192];
    size_t n;
    FILE *f = fopen(draft, "r");
    if (!f)
        return qm_fail(QM_BAD_FILE, "%s: %s", draft, strerror(errno));
    qm_status st = qm_atomic_file_open(path, &part);
    if (st == QM_OK) {
        while (st == QM_OK && (n = fread(chunk, 1, sizeof chunk, f)) > 0)
            st = qm_atomic_file_write(&part, chunk, n);
        if (st == QM_OK)
            st = qm_atomic_file_commit(&part);
        qm_atomic_file_abort(&part);
    }
    fclose(f);
    return st;
}

/* Why no program can check the finding, or NULL. */
static const char *obstacle(const struct qm_shrunk *s)
{
    const struct qm_finding *f = &s->attempt.finding;
    if (s->attempt.how == QM_CASE_processes || s->attempt.how == QM_CASE_garbage)
        return "the failure is of its process, not of a number";
    if (s->attempt.how != QM_CASE_failed)
        return NULL;
    const struct qm_param *p = &s->trial.recipe.param;
    if (f->slot == QM_SLOT_PARAM && p->format != QM_PARAM_f32 &&
        (qm_param_residual(p) || p->write == QM_WRITE_stoch || qm_param_bytes(p) != 2))
        return "its stored parameter has a residual, random draws or 8 bits";
    return f->place == QM_PLACE_NONE ? "only the judge sees this failure" : NULL;
}

qm_status qm_repro_write(struct qm_attempts *attempts, const struct qm_shrunk *s,
                         const struct qm_repro *r, int *verified)
{
    char draft[PATH_MAX];
    struct writing x = {s, r, r->object, draft, 0};
    const char *why = obstacle(s);
    if (why)
        return qm_fail(QM_SKIPPED, "no reproducer: %s", why);
    snprintf(draft, sizeof draft, "%s/repro.c", r->folder);
    *verified = 0;
    for (; !*verified && x.is_quiet < 2; x.is_quiet++) {
        QM_TRY(write_draft(attempts->kernel, &x));
        *verified = fails(r, 1);
    }
    if (!*verified && !fails(r, 0))
        return qm_fail(QM_SKIPPED,
                       "no reproducer: a program with this input alone does not fail (what fails "
                       "depends on time, as a race does, or on more than the input)");
    return publish(draft, r->path);
}
