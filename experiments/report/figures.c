/* figures.c - Draws the figures of a page and reads them back. */
#include "experiments/report/figures.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "core/base/interrupt.h"
#include "experiments/cli/cli.h"
#include "experiments/report/fit.h"
#include "experiments/report/listing.h"
#include "experiments/report/texts.h"
#include "experiments/store/result_reader.h"

extern char **environ;

enum { MOST = 64 << 20 }; /* bytes of figures.json, or of an SVG, that were drawn beforehand */

static char python[] = "/usr/bin/python3";

/* ---- running ------------------------------------------------------------------------------- */

static void last_line(const char *path, char *out, size_t size);

/* Waits for the script pid, and shows how far it is by the lines "K/N" of its log, under the word
 * `what` (NULL: shows nothing). */
static pid_t wait_for(pid_t pid, int *state, const char *log, const char *what)
{
    struct qm_progress progress;
    const struct timespec tenth = {.tv_nsec = 100 * 1000 * 1000};
    pid_t ended;
    qm_progress_start(&progress, what ? what : "", 0);
    do {
        char line[1024];
        long long k, n;
        ended = waitpid(pid, state, WNOHANG);
        last_line(log, line, sizeof line);
        int is_count = sscanf(line, "%lld/%lld", &k, &n) == 2;
        progress.total = is_count ? n : progress.total;
        progress.shown = ended ? 0 : progress.shown; /* the last count is shown at any rate */
        if (what)
            qm_progress_add(&progress, is_count ? k - progress.done : 0, 0);
        if (!ended)
            nanosleep(&tenth, NULL);
    } while (!ended);
    qm_progress_end(&progress);
    return ended;
}

/* Runs argv with its output in the file `log`; returns the exit code, or -1.  The scripts limit
 * themselves (common.guarded).  what: as in wait_for. */
static int run(char **argv, const char *log, const char *what)
{
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t as;
    sigset_t ends, before;
    pid_t pid;
    int state = 0;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, log, O_WRONLY | O_CREAT | O_TRUNC,
                                     0666);
    posix_spawn_file_actions_adddup2(&actions, STDOUT_FILENO, STDERR_FILENO);
    sigemptyset(&ends);
    sigaddset(&ends, SIGINT);
    sigaddset(&ends, SIGTERM);
    sigprocmask(SIG_BLOCK, &ends, &before);
    posix_spawnattr_init(&as); /* a group of its own: the script draws in a process that it forks */
    posix_spawnattr_setpgroup(&as, 0);
    posix_spawnattr_setsigmask(&as, &before);
    posix_spawnattr_setflags(&as, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK);
    int failed = posix_spawn(&pid, argv[0], &actions, &as, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&as);
    qm_interrupt_child(failed ? 0 : pid);
    sigprocmask(SIG_SETMASK, &before, NULL);
    while (!failed && wait_for(pid, &state, log, what) < 0 && errno == EINTR)
        ;
    qm_interrupt_child(0);
    return failed || !WIFEXITED(state) ? -1 : WEXITSTATUS(state);
}

/* The last non-empty line of a file. */
static void last_line(const char *path, char *out, size_t size)
{
    char line[1024];
    FILE *f = fopen(path, "r");
    out[0] = 0;
    while (f && fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = 0;
        if (line[0])
            snprintf(out, size, "%s", line);
    }
    if (f)
        fclose(f);
}

static void show(const char *path)
{
    char line[1024];
    FILE *f = fopen(path, "r");
    while (f && fgets(line, sizeof line, f))
        fputs(line, stderr);
    if (f)
        fclose(f);
}

/* Checks that Python runs and finds the packages that the scripts import. */
static qm_status find_python(const char *log)
{
    static const char *const package[] = {"python3-numpy", "python3-h5py", "python3-matplotlib"};
    enum { FIRST = 11 }; /* exit code where the first package is missing */
    char flag[] = "-c", code[] = "import importlib.util as u, sys\n"
                                 "for i, m in enumerate(('numpy', 'h5py', 'matplotlib')):\n"
                                 "    if not u.find_spec(m): sys.exit(11 + i)\n";
    char *argv[] = {python, flag, code, NULL};
    if (access(python, X_OK) != 0)
        return qm_fail(QM_SKIPPED, "they need %s, Debian's package python3", python);
    int left = run(argv, log, NULL);
    if (left >= FIRST && left < FIRST + 3)
        return qm_fail(QM_SKIPPED, "they need Debian's package %s", package[left - FIRST]);
    return left == 0
               ? QM_OK
               : qm_fail(QM_SKIPPED, "%s cannot run: it fails where it looks for packages", python);
}

/* What a script said that ended with `code`: its exit codes are those of the program. */
static qm_status refused(int code, const char *path, const char *log)
{
    static const char by[] = "plots/report/draw: ";
    char line[1024];
    last_line(log, line, sizeof line);
    qm_status why = code == 2   ? QM_BAD_ARG
                    : code == 3 ? QM_BAD_FILE
                    : code == 4 ? QM_NO_MATCH
                                : QM_INTERNAL;
    if (code < 0 || strncmp(line, by, strlen(by)) != 0) /* Python's own words are for -v */
        return qm_fail(why, "%s: the script that draws it was ended; -v shows what it said", path);
    return qm_fail(why, "%s", line + strlen(by));
}

static qm_status draw(const char *path, const char *against, const char *pairs, const char *out,
                      const char *scripts, int verbose)
{
    char log[PATH_MAX + 16], script[PATH_MAX + 16];
    char no_cache[] = "-B", page[] = "--page", to[] = "--out", with[] = "--against",
         compared[] = "--pairs";
    snprintf(log, sizeof log, "%s/log", scripts);
    snprintf(script, sizeof script, "%s/draw.py", scripts);
    QM_TRY(find_python(log));
    QM_TRY(qm_report_scripts(scripts));
    char *argv[16] = {python, no_cache, script, (char *)path, page, to, (char *)out};
    int n = 7;
    if (against) {
        argv[n++] = with;
        argv[n++] = (char *)against;
    }
    if (pairs) {
        argv[n++] = compared;
        argv[n++] = (char *)pairs;
    }
    int code = run(argv, log, "figures");
    if (verbose)
        show(log);
    return code == 0 ? QM_OK : refused(code, path, log);
}

static int remove_one(const char *path, const struct stat *s, int type, struct FTW *at)
{
    (void)s;
    (void)type;
    (void)at;
    return remove(path);
}

void qm_folder_remove(const char *path)
{
    nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    qm_interrupt_forget(path);
}

/* A new folder for the scripts and their log. */
static qm_status make_folder(char scripts[PATH_MAX])
{
    return qm_interrupt_folder(scripts, PATH_MAX, "plots")
               ? QM_OK
               : qm_fail(QM_BAD_FILE, "%s: %s", scripts, strerror(errno));
}

qm_status qm_figures_draw(const char *path, const char *against, const char *pairs, const char *out,
                          int verbose)
{
    char scripts[PATH_MAX];
    QM_TRY(make_folder(scripts));
    qm_status st = draw(path, against, pairs, out, scripts, verbose);
    qm_folder_remove(scripts);
    return st;
}

/* The lines NAME\tTITLE of a log. */
static json_t *titles(const char *log)
{
    char line[4096];
    json_t *list = json_array();
    FILE *f = fopen(log, "r");
    while (f && fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = 0;
        char *tab = strchr(line, '\t');
        if (tab) {
            *tab = 0;
            json_array_append_new(list, json_pack("{s:s, s:s}", "name", line, "title", tab + 1));
        }
    }
    if (f)
        fclose(f);
    return list;
}

static qm_status plot(const struct qm_plot *p, const char *scripts, json_t **out)
{
    enum { FIXED = 10 };
    char log[PATH_MAX + 16], script[PATH_MAX + 16];
    char no_cache[] = "-B", what[] = "--what", pair[] = "--pair", to[] = "--plot",
         list[] = "--list";
    snprintf(log, sizeof log, "%s/log", scripts);
    snprintf(script, sizeof script, "%s/draw.py", scripts);
    QM_TRY(find_python(log));
    QM_TRY(qm_report_scripts(scripts));
    char **argv = calloc((size_t)(FIXED + 2 * p->n_out), sizeof *argv);
    if (!argv)
        return qm_fail(QM_NO_MEMORY, "plot");
    char *first[] = {python, no_cache, script, p->path, p->list ? list : NULL};
    int n = 4 + p->list;
    memcpy(argv, first, (size_t)n * sizeof *argv);
    char *named[][2] = {{what, p->what}, {pair, p->pair}};
    for (int i = 0; i < 2; i++)
        if (named[i][1]) {
            argv[n++] = named[i][0];
            argv[n++] = named[i][1];
        }
    for (int i = 0; i < p->n_out; i++) {
        argv[n++] = to;
        argv[n++] = p->out[i];
    }
    int code = run(argv, log, p->list ? "reading" : "drawing");
    free(argv);
    if (qm_cli.verbose && code != 0)
        show(log);
    if (code != 0)
        return refused(code, p->path, log);
    *out = titles(log);
    return QM_OK;
}

/* Opens and checks the file as qm_report_make does, so that Python sees none that is damaged. */
static qm_status check_file(const char *path)
{
    struct qm_result *r;
    struct qm_listing listing;
    QM_TRY(qm_result_open(path, &r));
    qm_status st = qm_listing_read(path, &listing);
    if (st == QM_OK) {
        st = qm_fit_check(r, path, &listing);
        qm_listing_free(&listing);
    }
    qm_result_close(r);
    return st;
}

qm_status qm_figures_plot(const struct qm_plot *p, json_t **out)
{
    char scripts[PATH_MAX];
    QM_TRY(check_file(p->path));
    QM_TRY(make_folder(scripts));
    qm_status st = plot(p, scripts, out);
    qm_folder_remove(scripts);
    return st;
}

/* ---- reading ------------------------------------------------------------------------------- */

/* Opens a regular file of at most MOST bytes: no pipe, which would block. */
static qm_status open_small(const char *path, FILE **out)
{
    struct stat info;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    int is_small =
        fd >= 0 && fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && info.st_size <= MOST;
    *out = is_small ? fdopen(fd, "r") : NULL;
    if (*out)
        return QM_OK;
    qm_status st =
        fd < 0 ? qm_fail(QM_BAD_FILE, "%s: %s", path, strerror(errno))
               : qm_fail(QM_BAD_FILE, "%s: is no regular file of at most %d MiB", path, MOST >> 20);
    if (fd >= 0)
        close(fd);
    return st;
}

static qm_status file_text(const char *path, char **out)
{
    FILE *f;
    size_t n = 0;
    char *text = NULL;
    QM_TRY(open_small(path, &f));
    ssize_t got = getdelim(&text, &n, 0, f);
    fclose(f);
    if (got < 0) {
        free(text);
        return qm_fail(QM_BAD_FILE, "%s: cannot be read", path);
    }
    *out = text;
    return QM_OK;
}

static qm_status read_panel(const char *folder, json_t *panel)
{
    char path[PATH_MAX], *text = NULL;
    const char *file = json_string_value(json_object_get(panel, "file"));
    if (!file || strchr(file, '/'))
        return qm_fail(QM_BAD_FILE, "%s/figures.json: a panel without a file", folder);
    snprintf(path, sizeof path, "%s/%s", folder, file);
    QM_TRY(file_text(path, &text));
    int is_svg = strncmp(text, "<svg", 4) == 0 && !strstr(text, "<script");
    if (is_svg)
        json_object_set_new(panel, "svg", json_string(text));
    free(text);
    return is_svg && json_object_get(panel, "svg")
               ? QM_OK
               : qm_fail(QM_BAD_FILE, "%s: is no SVG for a page", path);
}

qm_status qm_figures_read(const char *out, json_t **figures)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/figures.json", out);
    FILE *f = NULL;
    if (access(path, F_OK) == 0)
        QM_TRY(open_small(path, &f));
    json_t *list = json_array(), *panel;
    qm_status st = QM_OK;
    json_error_t error;
    char *line = NULL;
    size_t room = 0, i;
    while (f && st == QM_OK && getline(&line, &room, f) > 0) {
        json_t *one = json_loads(line, 0, &error);
        if (!json_is_object(one)) {
            st = qm_fail(QM_BAD_FILE, "%s: line %zu is no figure: %s", path,
                         json_array_size(list) + 1, one ? "expected an object" : error.text);
            json_decref(one);
            break;
        }
        json_array_append_new(list, one);
        json_array_foreach (json_object_get(one, "panels"), i, panel)
            if (st == QM_OK)
                st = read_panel(out, panel);
    }
    free(line);
    if (f)
        fclose(f);
    if (st == QM_OK)
        *figures = list;
    else
        json_decref(list);
    return st;
}
