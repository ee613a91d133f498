/* peers.c - Times other projects' optimizers on this machine in turn with ours.
 *
 * A peer's program (tests/peers/peers.py --device cpu --serve) runs twice, on one thread and on
 * all.  Each waits for a line of its input and then times one step, so that a round is: their step,
 * our step, on one thread, then on all.  No two steps run at once. */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <omp.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/base/name.h"
#include "core/recipe/backend.h"
#include "experiments/bench/bench.h"
#include "experiments/cli/cli.h"

extern char **environ;

/* START_SECONDS: for imports, compilation and the warm-up; STEP_SECONDS: for one step. */
enum { START_SECONDS = 900, STEP_SECONDS = 120, LINE = 4096, PEERS = 16, TEXT = 160 };

/* ---- a peer's process ------------------------------------------------------------------------ */

struct process {
    pid_t pid; /* 0: none; it leads a process group */
    int to, from;
    size_t used;
    char line[LINE]; /* what was read */
};

static void process_end(struct process *p)
{
    if (p->pid <= 0)
        return;
    close(p->to);
    close(p->from);
    kill(-p->pid, SIGKILL);
    while (waitpid(p->pid, NULL, 0) < 0 && errno == EINTR)
        ;
    p->pid = 0;
}

/* Runs a command line of the shell; its stderr is the caller's.  Threads of OpenMP that have
 * nothing to do sleep, since the next step to be timed is of another process. */
static qm_status process_start(const char *line, struct process *p)
{
    char shell[] = "/bin/sh", flag[] = "-c", sleeping[LINE + 100],
         *argv[] = {shell, flag, sleeping, NULL};
    int in[2] = {-1, -1}, out[2] = {-1, -1};
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    snprintf(sleeping, sizeof sleeping, "OMP_WAIT_POLICY=passive KMP_BLOCKTIME=0 exec %s", line);
    *p = (struct process){0};
    if (pipe2(in, O_CLOEXEC) != 0)
        return qm_fail(QM_INTERNAL, "no pipe: %s", strerror(errno));
    if (pipe2(out, O_CLOEXEC) != 0) {
        close(in[0]);
        close(in[1]);
        return qm_fail(QM_INTERNAL, "no pipe: %s", strerror(errno));
    }
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, in[0], STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
    int failed = posix_spawn(&p->pid, shell, &actions, &attributes, argv, environ);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    close(in[0]);
    close(out[1]);
    p->to = in[1];
    p->from = out[0];
    if (!failed)
        return QM_OK;
    close(p->to);
    close(p->from);
    p->pid = 0;
    return qm_fail(QM_INTERNAL, "%s: cannot be started: %s", line, strerror(failed));
}

/* Sets *out to the next line of JSON that the process prints. */
static qm_status process_answer(struct process *p, int seconds, json_t **out)
{
    double end = qm_seconds() + seconds;
    for (;;) {
        char *newline = memchr(p->line, '\n', p->used);
        if (newline) {
            json_error_t why;
            *out = json_loadb(p->line, (size_t)(newline - p->line), 0, &why);
            p->used -= (size_t)(newline + 1 - p->line);
            memmove(p->line, newline + 1, p->used);
            return *out ? QM_OK : qm_fail(QM_BAD_FILE, "expected a line of JSON: %s", why.text);
        }
        struct pollfd wait = {.fd = p->from, .events = POLLIN};
        int left = (int)(1e3 * (end - qm_seconds()));
        if (p->used == sizeof p->line)
            return qm_fail(QM_BAD_FILE, "a line of more than %d characters", LINE);
        if (left <= 0 || poll(&wait, 1, left) == 0)
            return qm_fail(QM_BAD_FILE, "no answer within %d s", seconds);
        ssize_t n = read(p->from, p->line + p->used, sizeof p->line - p->used);
        if (n == 0)
            return qm_fail(QM_BAD_FILE, "it ended without an answer");
        if (n < 0 && errno != EINTR)
            return qm_fail(QM_BAD_FILE, "%s", strerror(errno));
        p->used += n > 0 ? (size_t)n : 0;
    }
}

/* Asks for one step. */
static qm_status process_step(struct process *p, double *seconds)
{
    json_t *answer;
    double start = qm_seconds();
    if (write(p->to, "step\n", 5) != 5)
        return qm_fail(QM_BAD_FILE, "it ended: %s", strerror(errno));
    QM_TRY(process_answer(p, STEP_SECONDS, &answer));
    int is_number = json_is_number(json_object_get(answer, "seconds"));
    *seconds = json_number_value(json_object_get(answer, "seconds"));
    json_decref(answer);
    if (!is_number || !(*seconds > 0.0) || *seconds > qm_seconds() - start)
        return qm_fail(QM_BAD_FILE,
                       "a step of %g s, expected above 0 and at most the %.3g s that "
                       "its answer took",
                       *seconds, qm_seconds() - start);
    return QM_OK;
}

/* ---- measuring ------------------------------------------------------------------------------- */

struct peer {
    char name[TEXT], version[TEXT], recipe[TEXT];
    char skipped[512]; /* why it was not timed; empty: it was */
    double theirs[2][QM_BENCH_ROUNDS], ours[2][QM_BENCH_ROUNDS]; /* seconds, [half][round] */
};

struct peers {
    int n;
    struct peer peer[PEERS];
};

static int is_yardstick(const struct peer *p) { return strcmp(p->recipe, "a += s*b") == 0; }

static void quote(const char *word, char *out, size_t size)
{
    size_t n = 0;
    out[n++] = '\'';
    for (; *word && n + 6 < size; word++)
        n += (size_t)snprintf(out + n, size - n, *word == '\'' ? "'\\''" : "%c", *word);
    snprintf(out + n, size - n, "'");
}

/* Starts the peer's program for one half, and takes what it says of itself. */
static qm_status start(const struct qm_bench *b, struct peer *p, int h, struct process *process)
{
    char line[LINE], word[4 * TEXT];
    json_t *answer;
    quote(p->name, word, sizeof word);
    snprintf(line, sizeof line,
             "%s --device cpu --serve --name %s --size %lld --columns 1024 "
             "--threads %d",
             b->peers, word, (long long)b->n, h ? b->threads : 1);
    QM_TRY(process_start(line, process));
    QM_TRY(process_answer(process, START_SECONDS, &answer));
    const char *version = json_string_value(json_object_get(answer, "version")),
               *recipe = json_string_value(json_object_get(answer, "recipe")),
               *skipped = json_string_value(json_object_get(answer, "skipped"));
    qm_status st = QM_OK;
    if (skipped)
        st = qm_fail(QM_SKIPPED, "%.400s", skipped);
    else if (!version || !recipe)
        st = qm_fail(QM_BAD_FILE, "expected {\"version\", \"recipe\"} or {\"skipped\"}");
    else {
        snprintf(p->version, TEXT, "%s", version);
        snprintf(p->recipe, TEXT, "%s", recipe);
    }
    json_decref(answer);
    return st;
}

/* Our step, or the yardstick. */
static qm_status our_seconds(const struct qm_bench *b, const struct qm_bench_arrays *a,
                             const struct peer *p, const struct qm_bench_bound *x, int h, int r,
                             double *seconds)
{
    if (!is_yardstick(p))
        return qm_bench_timed(b, a, x, h, r + 2, seconds);
    *seconds = qm_bench_roof_seconds(QM_BENCH_MEMORY, a->p, a->g, b->n, h ? b->threads : 1);
    return QM_OK;
}

/* Times the rounds of one peer; round -1 is our warm-up. */
static qm_status time_peer(const struct qm_bench *b, const struct qm_bench_arrays *a,
                           struct peer *p, struct qm_progress *bar)
{
    struct process process[2] = {{0}, {0}};
    struct qm_bench_bound x = {.plan = {NULL}};
    struct qm_recipe recipe;
    qm_status st = QM_OK;
    for (int h = 0; st == QM_OK && h < 2; h++)
        st = start(b, p, h, &process[h]);
    if (st == QM_OK && !is_yardstick(p)) {
        st = qm_recipe_parse(p->recipe, &recipe);
        st = st == QM_OK ? qm_bench_bind(b, a, &recipe, &x) : st;
    }
    for (int r = -1; st == QM_OK && r < b->rounds; r++) {
        for (int h = 0; st == QM_OK && h < 2; h++) {
            double theirs = 0.0, ours = 0.0;
            st = process_step(&process[h], &theirs);
            if (st == QM_OK)
                st = our_seconds(b, a, p, &x, h, r, &ours);
            if (r >= 0) {
                p->theirs[h][r] = theirs;
                p->ours[h][r] = ours;
            }
        }
        qm_progress_add(bar, 1, 0);
    }
    for (int h = 0; h < 2; h++)
        process_end(&process[h]);
    qm_bench_release(&x);
    return st;
}

/* Sets the names of the peers (COMMAND --device cpu --names). */
static qm_status list_peers(const struct qm_bench *b, struct peers *s)
{
    struct process p;
    char line[LINE];
    json_t *names = NULL, *name;
    size_t i;
    if (snprintf(line, sizeof line, "%s --device cpu --names", b->peers) > LINE / 2)
        return qm_fail(QM_BAD_ARG, "--peers: a command of more than %d characters", LINE / 2);
    qm_status st = process_start(line, &p);
    if (st == QM_OK)
        st = process_answer(&p, START_SECONDS, &names);
    process_end(&p);
    if (st != QM_OK || json_array_size(names) == 0) {
        char why[1000];
        snprintf(why, sizeof why, "%s", st == QM_OK ? "expected an array of names" : qm_message());
        json_decref(names);
        return qm_fail(QM_BAD_FILE, "--peers: %s: %s", line, why);
    }
    json_array_foreach (names, i, name)
        if (json_is_string(name) && s->n < PEERS &&
            qm_name_matches(json_string_value(name), b->step))
            snprintf(s->peer[s->n++].name, TEXT, "%s", json_string_value(name));
    json_decref(names);
    return s->n ? QM_OK : qm_fail(QM_NO_MATCH, "--step '%s': matches no peer of %s", b->step, line);
}

static qm_status run(const struct qm_bench *b, void **data)
{
    struct qm_bench_arrays a;
    struct peers *s = calloc(1, sizeof *s);
    struct qm_progress bar;
    *data = s;
    QM_TRY(s ? list_peers(b, s) : qm_fail(QM_NO_MEMORY, "peers"));
    QM_TRY(qm_bench_arrays_alloc(b, &a));
    omp_set_num_threads(b->threads);
    qm_bench_fill(a.p, a.g, b->n);
    void (*was)(int) = signal(SIGPIPE, SIG_IGN); /* a peer may end at any time */
    qm_progress_start(&bar, "peers", (int64_t)s->n * (b->rounds + 1));
    for (int i = 0; i < s->n; i++) {
        struct peer *p = &s->peer[i];
        if (time_peer(b, &a, p, &bar) != QM_OK)
            snprintf(p->skipped, sizeof p->skipped, "%s", qm_message());
    }
    qm_progress_end(&bar);
    signal(SIGPIPE, was);
    qm_bench_arrays_free(&a);
    omp_set_num_threads(b->threads);
    return QM_OK;
}

/* ---- results --------------------------------------------------------------------------------- */

/* The least (end 0), the median (1) or the greatest (2) over rounds of their seconds over ours. */
static double gain(const struct qm_bench *b, const struct peer *p, int h, int end)
{
    double x = qm_bench_ratio(b->rounds, p->theirs[h], p->ours[h], 1.0);
    for (int r = 0; end != 1 && r < b->rounds; r++) {
        double own = p->theirs[h][r] / p->ours[h][r];
        x = end ? fmax(x, own) : fmin(x, own);
    }
    return x;
}

/* One half of a peer that was timed, as figures. */
struct figures {
    int threads;
    double theirs, ours, ratio[3]; /* parameters per second; least, median, greatest */
};

static struct figures figures_of(const struct qm_bench *b, const struct peer *p, int h)
{
    double n = (double)b->n;
    return (struct figures){h ? b->threads : 1,
                            n / qm_bench_median(p->theirs[h], b->rounds),
                            n / qm_bench_median(p->ours[h], b->rounds),
                            {gain(b, p, h, 0), gain(b, p, h, 1), gain(b, p, h, 2)}};
}

static void print_row(struct qm_table *table, const struct peer *p, const struct figures *x)
{
    qm_table_cell(table, "%s", p->name);
    qm_table_cell(table, "%s", p->version);
    qm_table_cell(table, "%s", p->recipe);
    qm_table_cell(table, "%d", x->threads);
    qm_table_cell(table, "%.3f", 1e-9 * x->theirs);
    qm_table_cell(table, "%.3f", 1e-9 * x->ours);
    qm_table_cell(table, "%.3g", x->ratio[1]);
    qm_table_cell(table, "%.3g", x->ratio[0]);
    qm_table_cell(table, "%.3g", x->ratio[2]);
}

static json_t *print(const struct qm_bench *b, const void *data)
{
    static const char *const heads[] = {"peer",    "release",       "ours",  "threads", "their G/s",
                                        "our G/s", "ours / theirs", "least", "greatest"};
    const struct peers *s = data;
    json_t *list = json_array();
    struct qm_table *table =
        qm_cli.json ? NULL : qm_table_open(sizeof heads / sizeof *heads, heads);
    qm_note("peers: %lld M parameters in one tensor, %d rounds in turn with ours, %s; G/s: 10^9 "
            "parameters per second",
            (long long)(b->n >> 20), b->rounds, qm_cpu_isa());
    for (int i = 0; i < s->n; i++) {
        const struct peer *p = &s->peer[i];
        if (*p->skipped) {
            qm_note("%s: not timed: %s", p->name, p->skipped);
            json_array_append_new(list, json_pack("{s:s, s:o}", "peer", p->name, "skipped",
                                                  qm_json_text(p->skipped)));
        }
        for (int h = 0; h < 2 && !*p->skipped; h++) {
            struct figures x = figures_of(b, p, h);
            if (table)
                print_row(table, p, &x);
            json_array_append_new(list, json_pack("{s:s, s:s, s:s, s:i, s:f, s:f, s:f, s:f, s:f}",
                                                  "peer", p->name, "version", p->version, "recipe",
                                                  p->recipe, "threads", x.threads,
                                                  "their_params_per_s", x.theirs, "params_per_s",
                                                  x.ours, "ratio", x.ratio[1], "ratio_least",
                                                  x.ratio[0], "ratio_greatest", x.ratio[2]));
        }
    }
    if (table)
        qm_table_close(table);
    return list;
}

static qm_status store(const struct qm_bench *b, const void *data, struct qm_store *f)
{
    const struct peers *s = data;
    const char *name[2 * PEERS], *version[2 * PEERS], *recipe[2 * PEERS], *skipped[2 * PEERS];
    int64_t threads[2 * PEERS], rows = 0;
    double ratio[3][2 * PEERS], *raw[2];
    size_t samples = (size_t)(2 * s->n * b->rounds);
    raw[0] = calloc(2 * samples, sizeof **raw);
    if (!raw[0])
        return qm_fail(QM_NO_MEMORY, "raw samples");
    raw[1] = raw[0] + samples;
    for (int i = 0; i < s->n; i++)
        for (int h = 0; h < 2; h++, rows++) {
            const struct peer *p = &s->peer[i];
            struct figures x = {h ? b->threads : 1, 0.0, 0.0, {NAN, NAN, NAN}};
            x = *p->skipped ? x : figures_of(b, p, h);
            name[rows] = p->name;
            version[rows] = p->version;
            recipe[rows] = p->recipe;
            skipped[rows] = p->skipped;
            threads[rows] = x.threads;
            for (int end = 0; end < 3; end++)
                ratio[end][rows] = x.ratio[end];
            for (int r = 0; r < b->rounds; r++) {
                raw[0][rows * b->rounds + r] = *p->skipped ? (double)NAN : p->theirs[h][r];
                raw[1][rows * b->rounds + r] = *p->skipped ? (double)NAN : p->ours[h][r];
            }
        }
    const struct qm_column columns[] = {
        {"peer", QM_COLUMN_text, "", "another project's optimizer", name},
        {"version", QM_COLUMN_text, "", "its release; empty: not timed", version},
        {"recipe", QM_COLUMN_text, "", "the variant that does the same, or a += s*b", recipe},
        {"threads", QM_COLUMN_i64, "1", "threads", threads},
        {"skipped", QM_COLUMN_text, "", "why it was not timed; empty: it was", skipped},
    };
    qm_status st = qm_store_table(f, "/bench/peers", "other projects' steps beside ours", rows,
                                  sizeof columns / sizeof *columns, columns);
    static const char *const ends[] = {"peers_ratio_least", "peers_ratio", "peers_ratio_greatest"};
    for (int end = 0; st == QM_OK && end < 3; end++)
        st = qm_store_timing(f, ends[end], rows, ratio[end], "1",
                             "their seconds over ours in the same round: least, median or greatest "
                             "over rounds");
    if (st == QM_OK)
        st = qm_store_timing(
            f, "peers_seconds", (int64_t)samples, raw[0], "s",
            "raw samples of theirs: rounds of row 0 of /bench/peers, of row 1, ...");
    if (st == QM_OK)
        st = qm_store_timing(f, "peers_own_seconds", (int64_t)samples, raw[1], "s",
                             "raw samples of ours, likewise");
    free(raw[0]);
    return st;
}

const struct qm_bench_part qm_bench_peers = {"peers", run, print, store};
