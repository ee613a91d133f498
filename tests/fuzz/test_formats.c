/* test_formats.c - Fuzzes the reader of every format: each input is read or refused with one line.
 *
 *     test_formats                        every target for a second, as `make test` does
 *     test_formats TARGET SECONDS [SEED]  one target; QM_FUZZ_SEEDS: the folder of seeds, else made
 *
 * Seeds come from make_seeds.sh, words from dict/; mutations are drawn by the printed seed.  With
 * -DQM_LIBFUZZER (`make fuzz`) inputs come from libFuzzer instead, and QM_FUZZ names the target.
 * A target is a row of the table below.  Formats of HDF5 are read in reader processes, so that a
 * crash of that library is a refusal; all others run in this process. */
#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "core/base/philox.h"
#include "experiments/campaign/campaign.h"
#include "experiments/conform/golden.h"
#include "experiments/foreign/reader_process.h"
#include "experiments/readers/shape_list.h"
#include "experiments/recipes/lpmm_config.h"
#include "experiments/state/state_file.h"
#include "experiments/store/result_reader.h"
#include "experiments/suite/suite.h"
#include "experiments/vectors/vectors_file.h"
#include "tests/fuzz/h5_text.h"
#include "tests/fuzz/writers.h"

/* ---- one input per target ------------------------------------------------------------------ */

/* Reads every entry at once and in two parts, which must agree. */
static qm_status read_tensors(const char *path)
{
    struct qm_file *f;
    QM_TRY(qm_file_open(path, &f));
    qm_status st = QM_OK;
    for (int i = 0; st == QM_OK && i < qm_file_count(f) && i < 50; i++) {
        int64_t n = qm_file_entry(f, i)->numel, half = n / 2;
        if (n > 1 << 16)
            continue;
        float *x = calloc((size_t)n + 1, sizeof *x), *y = calloc((size_t)n + 1, sizeof *y);
        st = qm_file_read(f, i, 0, n, x);
        if (st == QM_OK && (qm_file_read(f, i, 0, half, y) != QM_OK ||
                            qm_file_read(f, i, half, n - half, y + half) != QM_OK ||
                            memcmp(x, y, (size_t)n * sizeof *x) != 0))
            abort();
        free(x);
        free(y);
    }
    double lr;
    char text[64];
    (void)qm_file_attr_number(f, "/", "lr", &lr, 1);
    (void)qm_file_attr_text(f, "/", "tensors", text, sizeof text);
    (void)qm_file_attr_text(f, "/", "options", text, sizeof text);
    (void)qm_file_attr_text(f, "/", "left_out", text, sizeof text);
    qm_file_close(f);
    return st;
}

static qm_status read_results(const char *path)
{
    static const char *const tables[] = {"/cells", "/metrics"};
    struct qm_result *r;
    QM_TRY(qm_result_open(path, &r));
    struct qm_result_columns c = {0};
    struct qm_result_curves curves;
    int64_t rows;
    qm_status st = QM_OK;
    for (int t = 0; t < 2 && st == QM_OK; t++) {
        st = qm_result_columns(r, tables[t], &c);
        for (int i = 0; st == QM_OK && i < c.n; i++) {
            char **texts = NULL;
            double *x = NULL;
            st = c.type[i] == QM_COLUMN_text
                     ? qm_result_texts(r, tables[t], c.name[i], &rows, &texts)
                     : qm_result_f64(r, tables[t], c.name[i], &rows, &x);
            free(texts);
            free(x);
        }
        if (st == QM_OK)
            qm_result_columns_free(&c);
    }
    if (st == QM_OK && qm_result_ragged(r, "/curves/loss", &curves) == QM_OK)
        qm_result_curves_free(&curves);
    qm_result_close(r);
    return st == QM_NO_MATCH || st == QM_BAD_ARG ? QM_BAD_FILE : st;
}

static qm_status read_state(const char *path)
{
    struct qm_state s;
    QM_TRY(qm_state_read(path, &s));
    qm_state_free(&s);
    return QM_OK;
}

static void read_group(struct qm_golden *g, const char *group, int depth)
{
    char name[128], path[QM_GOLDEN_PATH], text[64];
    double x[8];
    for (int i = 0; i < 6 && qm_golden_member(g, group, i, name, sizeof name); i++) {
        struct qm_shape shape;
        if ((size_t)snprintf(path, sizeof path, "%s/%s", group, name) >= sizeof path)
            continue;
        (void)qm_golden_text(g, path, "system", text, sizeof text);
        (void)qm_golden_numbers(g, path, "lr", x, 8);
        if (qm_golden_at(g, path) == QM_GOLDEN_GROUP && depth < 3)
            read_group(g, path, depth + 1);
        if (qm_golden_shape(g, path, &shape) == QM_OK && qm_shape_numel(&shape) < 1 << 16) {
            double *all = calloc((size_t)qm_shape_numel(&shape) + 1, sizeof *all);
            (void)qm_golden_read(g, path, QM_DTYPE_f64, all);
            free(all);
        }
    }
}

static qm_status read_golden(const char *path)
{
    struct qm_golden *g;
    QM_TRY(qm_golden_open(path, &g));
    read_group(g, "", 0);
    qm_golden_close(g);
    return QM_OK;
}

static qm_status read_vectors(const char *path)
{
    struct qm_vectors_file in = {0};
    struct qm_vectors_case c;
    qm_status st = qm_vectors_file_open(path, &in);
    for (size_t i = 0; st == QM_OK && i < 4; i++)
        (void)qm_vectors_file_case(&in, i, &c);
    qm_vectors_file_close(&in);
    return st;
}

static qm_status read_suite(const char *path)
{
    struct qm_suite *s;
    QM_TRY(qm_suite_read(path, &s));
    qm_suite_free(s);
    return QM_OK;
}

static qm_status read_lpmm(const char *path)
{
    struct qm_lpmm_config c;
    return qm_lpmm_config_read(path, NULL, NULL, &c);
}

static qm_status read_ledger(const char *path)
{
    struct qm_ledger_index index = {0};
    int64_t line[8];
    qm_status st = qm_ledger_index_read(&index, path);
    if (st == QM_OK) {
        qm_ledger_index_check(&index);
        st = qm_ledger_index_heal(&index);
        qm_ledger_index_limit(&index, 8);
        (void)qm_ledger_index_resolve(&index, 8, NULL, line);
    }
    qm_ledger_index_free(&index);
    return st;
}

static qm_status read_segment(const char *path)
{
    struct qm_segment s = {0};
    qm_status st = qm_segment_read(path, &s);
    qm_segment_free(&s);
    return st;
}

static void load(const char *path, struct bytes *out)
{
    unsigned char block[4096];
    FILE *f = fopen(path, "rb");
    for (size_t n; f && (n = fread(block, 1, sizeof block, f)) > 0;)
        bytes_put(out, block, n);
    if (f)
        fclose(f);
}

/* The file is lines of h5_text.h; the file that they make is read in this process, it is a sound
 * one. */
static qm_status read_golden_text(const char *path)
{
    char made[300];
    struct bytes text = {NULL, 0, 0};
    load(path, &text);
    bytes_put(&text, "", 1);
    snprintf(made, sizeof made, "%s.h5", path);
    h5_text_make(made, (char *)text.data, text.size);
    bytes_clear(&text);
    return read_golden(made);
}

/* Writes the parts of a text into the files of a campaign's folder; a line "== NAME" begins one. */
static void campaign_unpack(const char *folder, char *text)
{
    static const char *const names[] = {"campaign.json", "suite.yaml", "1of2.jsonl", "2of2.jsonl"};
    char path[300];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        remove(path);
    }
    for (size_t i = 0; text; i++) {
        char *next = strstr(text, "\n== ");
        if (next)
            *next++ = '\0';
        for (size_t k = 0; i > 0 && k < sizeof names / sizeof *names; k++)
            if (strncmp(text + 3, names[k], strlen(names[k])) == 0)
                i = k;
        snprintf(path, sizeof path, "%s/%s", folder, names[i % (sizeof names / sizeof *names)]);
        const char *from = strncmp(text, "== ", 3) == 0 ? strchr(text, '\n') : text;
        FILE *f = fopen(path, "wb");
        if (!f || (from && fputs(from + (*from == '\n'), f) < 0) || fclose(f) != 0)
            abort();
        text = next;
    }
}

/* A campaign's folder, packed into one text: its head, its suite, and what its ledgers say. */
static qm_status read_campaign(const char *path)
{
    char folder[256], suite[300];
    struct qm_campaign_head head;
    struct qm_ledger_index index = {0};
    struct qm_suite *s = NULL;
    struct bytes text = {NULL, 0, 0};
    int64_t line[8];
    load(path, &text);
    bytes_put(&text, "", 1);
    snprintf(folder, sizeof folder, "%.*s", (int)(strrchr(path, '/') - path), path);
    campaign_unpack(folder, (char *)text.data);
    bytes_clear(&text);
    qm_status st = qm_campaign_head(folder, &head);
    if (st == QM_OK && qm_ledger_index_read_all(&index, folder) == QM_OK) {
        qm_ledger_index_check(&index);
        (void)qm_ledger_index_heal(&index);
        qm_ledger_index_limit(&index, 8);
        (void)qm_ledger_index_resolve(&index, 8, NULL, line);
    }
    qm_ledger_index_free(&index);
    snprintf(suite, sizeof suite, "%s/suite.yaml", folder);
    if (st == QM_OK && qm_suite_read(suite, &s) == QM_OK)
        qm_suite_free(s);
    return st;
}

static qm_status read_shapes(const char *path)
{
    struct qm_model_tensor *t;
    int n;
    char remark[QM_FILE_REMARK];
    QM_TRY(qm_shapes_load(path, NULL, &t, &n, remark));
    free(t);
    return QM_OK;
}

/* A checkpoint: its tensors, and its states as those of float32 recipes. */
static qm_status read_checkpoint(const char *path)
{
    struct qm_state s;
    QM_TRY(read_tensors(path));
    if (qm_state_read(path, &s) == QM_OK)
        qm_state_free(&s);
    return QM_OK;
}

/* path is FOLDER/.metadata; the shard of its seed lies beside it. */
static qm_status read_folder(const char *path)
{
    char folder[256], from[256], beside[300];
    static const char shard[] = "checkpoints/distributed/__0_0.distcp";
    snprintf(folder, sizeof folder, "%.*s", (int)(strrchr(path, '/') - path), path);
    snprintf(beside, sizeof beside, "%s/__0_0.distcp", folder);
    if (access(beside, F_OK) != 0 && getcwd(from, sizeof from)) {
        char target[400];
        snprintf(target, sizeof target, "%s/tests/experiments/readers/%s", from, shard);
        if (symlink(target, beside) != 0)
            abort();
    }
    return read_checkpoint(path);
}

static qm_status read_digest(const char *path)
{
    char digest[65];
    return qm_store_digest(path, digest);
}

/* name, function, dictionary, whether in a reader process, name of the file */
/* clang-format off */
#define TARGET_LIST(X)                                            \
    X(npy,         read_tensors,  "npy",  0, "x.npy")             \
    X(npz,         read_tensors,  "zip",  0, "x.npz")             \
    X(safetensors, read_tensors,  "json", 0, "x.safetensors")     \
    X(tensors,     read_tensors,  "hdf5", 1, "x.h5")              \
    X(results,     read_results,  "hdf5", 1, "x.h5")              \
    X(digest,      read_digest,   "hdf5", 1, "x.h5")              \
    X(state_h5,    read_state,    "hdf5", 1, "x.h5")              \
    X(state,       read_state,    "json", 0, "x.safetensors")     \
    X(golden,      read_golden_text, "h5text", 0, "x.txt")        \
    X(golden_file, read_golden,   "hdf5", 1, "x.h5")              \
    X(vectors,     read_vectors,  "zip",  0, "x.npz")             \
    X(suite,       read_suite,    "yaml", 0, "x.yaml")            \
    X(lpmm,        read_lpmm,     "yaml", 0, "x.yml")             \
    X(ledger,      read_ledger,   "json", 0, "1of1.jsonl")        \
    X(segment,     read_segment,  "hdf5", 1, "1of1.0001.h5")      \
    X(campaign,    read_campaign, "json", 0, "campaign.txt")      \
    X(shapes,      read_shapes,   "yaml", 0, "x.txt")             \
    X(checkpoint,  read_checkpoint, "pickle", 0, "x.pt")          \
    X(distributed, read_folder,   "pickle", 0, ".metadata")       \
    X(index,       read_tensors,  "json", 0, "x.index.json")
/* clang-format on */

struct target {
    const char *name;
    qm_status (*read)(const char *path);
    const char *dictionary;
    int is_apart;
    const char *file;
};

static const struct target targets[] = {
#define X(name, read, dictionary, is_apart, file) {#name, read, dictionary, is_apart, file},
    TARGET_LIST(X)
#undef X
};

enum { TARGETS = sizeof targets / sizeof *targets };

static char folder[64];

static const struct target *target_of(const char *name)
{
    for (int i = 0; name && i < TARGETS; i++)
        if (strcmp(targets[i].name, name) == 0)
            return &targets[i];
    fprintf(stderr, "no target '%s'; there are", name ? name : "");
    for (int i = 0; i < TARGETS; i++)
        fprintf(stderr, " %s", targets[i].name);
    fputc('\n', stderr);
    exit(2);
}

static void remove_folder(void)
{
    char command[96];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    if (system(command) != 0)
        perror(folder);
}

static void begin(const struct target *t)
{
    const char *shm = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
    if (!*folder) {
        snprintf(folder, sizeof folder, "%s/qm_formats_XXXXXX", shm);
        if (!mkdtemp(folder))
            abort();
        atexit(remove_folder);
    }
    qm_reader_in_this_process(!t->is_apart);
}

static const char *const codes[] = {"OK", "CHECK_FAILED", "BAD_ARG"};

/* Writes the input to a file and reads that; aborts where it is neither read nor refused with one
 * line.  A child that forked in between must not remove the folder, so readers end by _exit. */
static void run_one(const struct target *t, const void *data, size_t n)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, t->file);
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(data, 1, n, f) != n || fclose(f) != 0)
        abort();
    qm_status st = t->read(path);
    int code = qm_exit_code(st);
    const char *said = qm_message();
    if (code > 4 || code == 1 || (st != QM_OK && (!*said || strlen(said) > 1000)) ||
        st == QM_INTERNAL) {
        fprintf(stderr, "%s: status %d (%s): '%s'\n", t->name, (int)st,
                st <= QM_BAD_ARG ? codes[st] : "", said);
        abort();
    }
}

#ifdef QM_LIBFUZZER
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct target *t;
    if (!t) {
        t = target_of(getenv("QM_FUZZ"));
        begin(t);
    }
    run_one(t, data, size);
    return 0;
}

#else

/* ---- mutations ----------------------------------------------------------------------------- */

enum { SEEDS_MOST = 64, WORDS_MOST = 64, SIZE_MOST = 1 << 20 };

struct corpus {
    struct bytes seed[SEEDS_MOST], word[WORDS_MOST];
    int seeds, words;
};

/* A line of a dictionary: a quoted word with \xAB, \" and \\. */
static void word_of(const char *line, struct bytes *out)
{
    const char *at = strchr(line, '"');
    unsigned value;
    for (at = at ? at + 1 : ""; *at && *at != '"'; at++) {
        unsigned char c = (unsigned char)*at;
        if (c == '\\' && at[1] == 'x' && sscanf(at + 2, "%2x", &value) == 1) {
            c = (unsigned char)value;
            at += 3;
        } else if (c == '\\' && at[1]) {
            c = (unsigned char)*++at;
        }
        bytes_put(out, &c, 1);
    }
}

static void load_corpus(const struct target *t, const char *seeds, struct corpus *c)
{
    char path[1100], line[256];
    snprintf(path, sizeof path, "%s/%s", seeds, t->name);
    DIR *d = opendir(path);
    for (struct dirent *e; d && (e = readdir(d)) && c->seeds < SEEDS_MOST;)
        if (e->d_name[0] != '.') {
            snprintf(path, sizeof path, "%s/%s/%s", seeds, t->name, e->d_name);
            load(path, &c->seed[c->seeds]);
            c->seeds += c->seed[c->seeds].size > 0;
        }
    if (d)
        closedir(d);
    snprintf(path, sizeof path, "tests/fuzz/dict/%s.dict", t->dictionary);
    FILE *f = fopen(path, "r");
    while (f && fgets(line, sizeof line, f) && c->words < WORDS_MOST)
        if (line[0] == '"')
            word_of(line, &c->word[c->words++]);
    if (f)
        fclose(f);
}

struct draws {
    uint64_t seed, run, used;
};

static size_t below(struct draws *d, size_t n)
{
    return n ? qm_philox_stream(d->seed, d->run, d->used++) % n : 0;
}

/* Replaces `cut` bytes at `at` by n bytes. */
static void splice(struct bytes *b, size_t at, size_t cut, const void *with, size_t n)
{
    struct bytes out = {NULL, 0, 0};
    bytes_put(&out, b->data, at);
    bytes_put(&out, with, n);
    bytes_put(&out, b->data + at + cut, b->size - at - cut);
    bytes_clear(b);
    *b = out;
}

static void mutate(struct bytes *b, const struct corpus *c, struct draws *d)
{
    static const uint64_t numbers[] = {0,         1,          127,        255,       65535,
                                       INT32_MAX, UINT32_MAX, 1ull << 40, INT64_MAX, UINT64_MAX};
    size_t at = below(d, b->size), n = below(d, 24);
    n = n < b->size - at ? n : b->size - at;
    const struct bytes *other = &c->seed[below(d, (size_t)c->seeds)];
    switch (below(d, 7)) {
    case 0: b->data[at] ^= (unsigned char)(1u << below(d, 8)); break;
    case 1: b->data[at] = (unsigned char)below(d, 256); break;
    case 2: memcpy(b->data + at, &numbers[below(d, 10)], n < 8 ? n : 8); break;
    case 3: splice(b, at, n, NULL, 0); break;
    case 4:
        if (c->words) {
            const struct bytes *w = &c->word[below(d, (size_t)c->words)];
            splice(b, at, below(d, 2) ? n : 0, w->data, w->size);
        }
        break;
    case 5: {
        size_t from = below(d, other->size), part = below(d, 200);
        part = part < other->size - from ? part : other->size - from;
        splice(b, at, below(d, 2) ? n : 0, other->data + from, part);
        break;
    }
    default: b->size = below(d, 4) ? b->size : at;
    }
    if (b->size == 0)
        bytes_put(b, "", 1);
}

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Runs a target for so many seconds; returns the number of inputs. */
static uint64_t fuzz(const struct target *t, const char *seeds, double most, uint64_t seed)
{
    struct corpus c = {0};
    struct bytes b = {NULL, 0, 0};
    double until = seconds() + most;
    uint64_t run = 0;
    load_corpus(t, seeds, &c);
    if (c.seeds == 0) {
        printf("%s: no seeds in %s\n", t->name, seeds);
        exit(1);
    }
    begin(t);
    for (int i = 0; i < c.seeds; i++) /* whole seeds first */
        run_one(t, c.seed[i].data, c.seed[i].size);
    for (; run == 0 || seconds() < until; run++) { /* one even on a machine that is busy */
        struct draws d = {seed, run, 0};
        const struct bytes *from = &c.seed[run % (uint64_t)c.seeds];
        b.size = 0;
        bytes_put(&b, from->data, from->size);
        for (size_t k = 1 + below(&d, 5); k > 0 && b.size < SIZE_MOST; k--)
            mutate(&b, &c, &d);
        run_one(t, b.data, b.size);
    }
    for (int i = 0; i < c.seeds; i++)
        bytes_clear(&c.seed[i]);
    for (int i = 0; i < c.words; i++)
        bytes_clear(&c.word[i]);
    bytes_clear(&b);
    return run;
}

static char seed_folder[512];

static int setup(void **state)
{
    char command[700];
    const char *given = getenv("QM_FUZZ_SEEDS");
    (void)state;
    if (given) {
        snprintf(seed_folder, sizeof seed_folder, "%s", given);
        return 0;
    }
    begin(&targets[0]);
    snprintf(seed_folder, sizeof seed_folder, "%s/seeds", folder);
    snprintf(command, sizeof command, "tests/fuzz/make_seeds.sh ./qualm '%s'", seed_folder);
    return system(command) == 0 ? 0 : -1;
}

static void one_target(void **state)
{
    const struct target *t = *state;
    uint64_t n = fuzz(t, seed_folder, 1.0, 20240501);
    print_message("%s: %llu inputs of seed 20240501\n", t->name, (unsigned long long)n);
    assert_true(n > 0);
}

int main(int argc, char **argv)
{
    struct CMUnitTest tests[TARGETS];
    if (argc > 2) {
        const struct target *t = target_of(argv[1]);
        if (setup(NULL) != 0)
            return 1;
        uint64_t n =
            fuzz(t, seed_folder, strtod(argv[2], NULL), argc > 3 ? strtoull(argv[3], NULL, 10) : 1);
        printf("%s: %llu inputs\n", t->name, (unsigned long long)n);
        return 0;
    }
    for (int i = 0; i < TARGETS; i++)
        tests[i] = (struct CMUnitTest){targets[i].name, one_target, NULL, NULL,
                                       (void *)(uintptr_t)&targets[i]};
    return _cmocka_run_group_tests("formats", tests, TARGETS, setup, NULL);
}
#endif
