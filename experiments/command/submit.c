/* submit.c - qualm submit: writes and submits the Slurm scripts of a campaign. */
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "experiments/campaign/campaign.h"
#include "experiments/campaign/queue.h"
#include "experiments/cli/cli.h"
#include "experiments/command/command.h"
#include "experiments/store/atomic_file.h"

enum { TASK_SECONDS = 600, TASKS_MOST = 64 }; /* estimated work of a task; most tasks by default */

struct options {
    const char *suite, *size, *out, *time, *partition;
    char **data, **line;
    int n_data, n_lines, slurm, tasks, cpus, dry_run, fresh;
    double seconds, mebibytes;
};

enum { KEY_SLURM = 256, KEY_TASKS, KEY_CPUS, KEY_TIME, KEY_SBATCH };

static const struct argp_option options[] = {
    {"slurm", KEY_SLURM, NULL, 0, "by sbatch: the engine there is", 0},
    {"tasks", KEY_TASKS, "N", 0,
     "array tasks, each a shard (default: about ten minutes of estimated work each, 64 at most)",
     0},
    {"cpus", KEY_CPUS, "N", 0, "processes per task (1)", 0},
    {"time", KEY_TIME, "LIMIT", 0, "time limit of a task, in sbatch's form (1:00:00)", 0},
    {"partition", 'p', "NAME", 0, "partition", 0},
    {"sbatch", KEY_SBATCH, "OPTION", 0,
     "another option for the array, as in a script; may be repeated; account, qos, reservation, "
     "wckey and clusters hold for the merge too",
     0},
    {"out", 'o', "FILE", 0, "result file (results/NAME.h5); the campaign lies beside it", 0},
    {"data", 'd', "GLOB", 0, "recorded data, instead of the suite's; may be repeated", 0},
    {"size", 'z', "SIZE", 0, "small, normal or large: the values that suites give for it", 0},
    {"time-limit", 'T', "S", 0, "seconds a cell may take (3600)", 0},
    {"memory-limit", 'M', "MIB", 0, "resident memory a cell's process may use", 0},
    {"fresh", 'F', NULL, 0, "throw away what an earlier campaign left", 0},
    {"dry-run", 'n', NULL, 0, "write the scripts and submit nothing", 0},
    {0}};

static const char doc[] =
    "Submit a suite to Slurm: an array whose tasks are shards, and a job that merges when they are "
    "done."
    "\v"
    "A task runs `qualm run DIR --shard I/N`.  Two minutes before its time is up Slurm sends it "
    "SIGUSR1: it finishes the cells under way and puts itself back into the queue; a task that is "
    "requeued for whatever reason goes on where it was.  The folder must be on a file system that "
    "all nodes see; the scripts are DIR/array.sh and DIR/merge.sh.\n"
    "\n"
    "Examples:\n"
    "  # mine.yaml is a suite of yours\n"
    "  qualm submit --slurm mine.yaml --dry-run\n"
    "  qualm submit --slurm mine.yaml --tasks 16 --cpus 8 --time 4:00:00 \\\n"
    "    --partition batch\n"
    "  qualm submit --slurm mine.yaml --sbatch=--account=p123\n"
    "  qualm status results/mine.run\n"
    "\n"
    "Exit codes: 0 submitted, 2 usage or a mistake in the suite, 3 sbatch failed or a file cannot "
    "be written, 77 there is no sbatch here.";

static error_t option(int key, char *arg, struct argp_state *state)
{
    struct options *o = state->input;
    switch (key) {
    case KEY_SLURM: o->slurm = 1; return 0;
    case KEY_TASKS: o->tasks = qm_cli_whole(state, "tasks", arg, 1, 100000); return 0;
    case KEY_CPUS: o->cpus = qm_cli_whole(state, "cpus", arg, 1, 256); return 0;
    case KEY_TIME: o->time = arg; return 0;
    case 'p': o->partition = arg; return 0;
    case KEY_SBATCH: return qm_cli_append(&o->line, &o->n_lines, arg) == QM_OK ? 0 : ENOMEM;
    case 'd': return qm_cli_append(&o->data, &o->n_data, arg) == QM_OK ? 0 : ENOMEM;
    case 'o': o->out = arg; return 0;
    case 'z': o->size = arg; return 0;
    case 'T': o->seconds = qm_cli_whole(state, "time-limit", arg, 1, INT_MAX); return 0;
    case 'M': o->mebibytes = qm_cli_whole(state, "memory-limit", arg, 1, INT_MAX); return 0;
    case 'F': o->fresh = 1; return 0;
    case 'n': o->dry_run = 1; return 0;
    case ARGP_KEY_ARG:
        if (o->suite)
            argp_error(state, "expected one SUITE");
        o->suite = arg;
        return 0;
    case ARGP_KEY_END:
        if (!o->suite)
            argp_error(state, "no SUITE given");
        if (!o->slurm)
            argp_error(state, "say --slurm: other engines need no submit (`qualm run --help`)");
        return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

/* ---- scripts --------------------------------------------------------------------------------- */

/* Paths and names that the scripts contain. */
struct place {
    char program[PATH_MAX], here[PATH_MAX]; /* this program, the working directory */
    char out[1024], dir[1100];              /* result file, campaign folder */
    const char *name;                       /* of the suite */
};

/* Quotes text for the shell: 'it'\''s'. */
static void quoted(FILE *f, const char *text)
{
    fputc('\'', f);
    for (; *text; text++)
        fputs(*text == '\'' ? "'\\''" : (char[2]){*text, 0}, f);
    fputc('\'', f);
}

/* Writes text between the double quotes of an #SBATCH line: backslashes escape quotes and
 * backslashes, a newline becomes a space, and characters of `doubled` are doubled (% in
 * file names). */
static void sbatch_words(FILE *f, const char *text, const char *doubled)
{
    for (; *text; text++) {
        if (strchr("\"\\", *text))
            fputc('\\', f);
        if (strchr(doubled, *text))
            fputc(*text, f);
        fputc(*text == '\n' ? ' ' : *text, f);
    }
}

static void head(FILE *f, const struct options *o, const struct place *p, const char *what,
                 const char *output)
{
    fputs("#!/bin/bash\n#SBATCH --job-name=\"qualm-", f);
    sbatch_words(f, p->name, "");
    fprintf(f, "%s\"\n#SBATCH --open-mode=append\n#SBATCH --output=\"", what);
    sbatch_words(f, p->dir, "%");
    fprintf(f, "/%s\"\n", output);
    if (o->partition)
        fprintf(f, "#SBATCH --partition=%s\n", o->partition);
}

static void program(FILE *f, const struct place *p)
{
    fputs("cd ", f);
    quoted(f, p->here);
    fputs(" || exit 3\n", f);
}

/* Slurm signals only the script (B:); its shell forwards the signal to qualm, and waits for
 * its end. */
static void array_script(FILE *f, const struct options *o, const struct place *p)
{
    head(f, o, p, "", "slurm-%a.out");
    fprintf(f, "#SBATCH --array=1-%d\n#SBATCH --ntasks=1\n#SBATCH --cpus-per-task=%d\n", o->tasks,
            o->cpus);
    fprintf(f, "#SBATCH --time=%s\n#SBATCH --requeue\n#SBATCH --signal=B:USR1@120\n", o->time);
    for (int i = 0; i < o->n_lines; i++)
        fprintf(f, "#SBATCH %s\n", o->line[i]);
    program(f, p);
    quoted(f, p->program);
    fputs(" run -q --keep ", f);
    quoted(f, p->dir);
    fprintf(f, " --workers %d --shard \"$SLURM_ARRAY_TASK_ID/%d\" --time-limit %.0f", o->cpus,
            o->tasks, o->seconds);
    if (o->mebibytes > 0.0)
        fprintf(f, " --memory-limit %.0f", o->mebibytes);
    fputs(" &\n"
          "run=$!\n"
          "trap 'kill -USR1 $run 2>/dev/null' USR1 TERM\n"
          "while wait $run; code=$?; kill -0 $run 2>/dev/null; do :; done\n"
          "# 75: interrupted with work left; the same task goes on later.  Pending: Slurm requeued "
          "it itself\n"
          "if [ $code = 75 ]; then\n"
          "    said=$(scontrol requeue \"${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID\" 2>&1) && "
          "sleep 60\n"
          "    [[ -z $said || $said == *pending* ]] || echo \"$said\" >&2\n"
          "fi\n"
          "exit $code\n",
          f);
}

/* Whether an sbatch option names who pays for a job or where it may run; Slurm could refuse the
 * merge without such options. */
static int is_for_merge(const char *line)
{
    static const char *const all[] = {"--account",     "-A",      "--qos", "-q", "--clusters",
                                      "--reservation", "--wckey", "-M"};
    size_t n = strcspn(line, "= ");
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (strncmp(line, all[i], n) == 0 && !all[i][n])
            return 1;
    return 0;
}

static void merge_script(FILE *f, const struct options *o, const struct place *p)
{
    head(f, o, p, "-merge", "slurm-merge.out");
    for (int i = 0; i < o->n_lines; i++)
        if (is_for_merge(o->line[i]))
            fprintf(f, "#SBATCH %s\n", o->line[i]);
    fputs("#SBATCH --ntasks=1\n", f);
    program(f, p);
    fputs("merge() {\n    ", f);
    quoted(f, p->program);
    fputs(" merge -q ", f);
    quoted(f, p->dir);
    fputs(" -o ", f);
    quoted(f, p->out);
    fputs("\n}\n"
          "merge\ncode=$?\n"
          "# 4: cells are missing.  A task that requeues itself may look ended, or gone, for a "
          "moment\n"
          "for try in 1 2 3; do\n"
          "    [ $code = 4 ] || break\n"
          "    sleep 5\n"
          "    if [ -n \"$(squeue -h -j \"$1\" 2>/dev/null)\" ]; then\n"
          "        sbatch --dependency=\"afterany:$1\" ",
          f);
    quoted(f, p->dir);
    fputs("/merge.sh \"$1\"\n        break\n    fi\n    merge\n    code=$?\ndone\nexit $code\n", f);
}

static qm_status write_script(const struct options *o, const struct place *p, const char *name,
                              void (*make)(FILE *, const struct options *, const struct place *),
                              char *path, size_t size)
{
    char *text = NULL;
    size_t n = 0;
    struct qm_atomic_file file;
    snprintf(path, size, "%s/%s", p->dir, name);
    FILE *f = open_memstream(&text, &n);
    if (!f)
        return qm_fail(QM_NO_MEMORY, "%s", path);
    make(f, o, p);
    qm_status st =
        fclose(f) == 0 ? qm_atomic_file_open(path, &file) : qm_fail(QM_NO_MEMORY, "%s", path);
    if (st == QM_OK && ((st = qm_atomic_file_write(&file, text, n)) != QM_OK ||
                        (st = qm_atomic_file_commit(&file)) != QM_OK))
        qm_atomic_file_abort(&file);
    free(text);
    if (st == QM_OK)
        chmod(path, 0755);
    return st;
}

/* ---- sbatch ---------------------------------------------------------------------------------- */

/* Submits a script, to start after job `after` (or NULL); job gets its number. */
static qm_status sbatch(const char *script, const char *after, char *job, size_t size)
{
    char *command = NULL, line[256] = "";
    size_t n = 0;
    FILE *f = open_memstream(&command, &n);
    if (!f)
        return qm_fail(QM_NO_MEMORY, "sbatch");
    fputs("sbatch --parsable ", f);
    if (after)
        fprintf(f, "--dependency=afterany:%s ", after);
    quoted(f, script);
    if (after)
        fprintf(f, " %s", after);
    fclose(f);
    FILE *out = popen(command, "re");
    char *got = out ? fgets(line, sizeof line, out) : NULL;
    int state = out ? pclose(out) : -1;
    free(command);
    line[strcspn(line, ";\n")] = 0; /* "123;cluster" */
    if (state != 0 || !got || !*line)
        return qm_fail(QM_BAD_FILE, "sbatch refused %s", script);
    snprintf(job, size, "%s", line);
    return QM_OK;
}

static int has_sbatch(void) { return system("command -v sbatch >/dev/null 2>&1") == 0; }

static qm_status find_place(const struct options *o, const struct qm_loaded_suite *job,
                            struct place *p)
{
    ssize_t n = readlink("/proc/self/exe", p->program, sizeof p->program - 1);
    if (n < 0 || !getcwd(p->here, sizeof p->here))
        return qm_fail(QM_INTERNAL, "cannot find this program: %s", strerror(errno));
    p->program[n] = 0;
    p->name = job->suite->stem;
    QM_TRY(qm_path_check(o->out ? o->out : ""));
    if (o->out)
        snprintf(p->out, sizeof p->out, "%s", o->out);
    else
        snprintf(p->out, sizeof p->out, "results/%s.h5", job->suite->stem);
    qm_campaign_dir(p->out, p->dir, sizeof p->dir);
    return QM_OK;
}

static void choose_tasks(struct options *o, const struct qm_loaded_suite *job)
{
    double cost = 0.0;
    for (int64_t i = 0; i < job->n_cells; i++)
        cost += qm_cell_cost(&job->cells[i]);
    if (o->tasks == 0)
        o->tasks = (int)fmin(TASKS_MOST, ceil(cost / (double)(TASK_SECONDS * o->cpus)));
}

static qm_status submit(struct options *o, json_t *into)
{
    char file[1024], array[1200], merge[1200], job_id[64] = "", merge_id[64] = "";
    struct place *p = calloc(1, sizeof *p);
    struct qm_loaded_suite job = {0};
    const struct qm_loaded_suite_changes changes = {
        .size = o->size, .data = o->data, .n_data = o->n_data};
    qm_status st =
        p ? qm_loaded_suite_find(o->suite, file, sizeof file) : qm_fail(QM_NO_MEMORY, "submit");
    if (st == QM_OK)
        st = qm_loaded_suite_open(file, &changes, &job);
    if (st == QM_OK)
        st = find_place(o, &job, p);
    if (st == QM_OK) {
        choose_tasks(o, &job);
        st = qm_campaign_begin(&job, p->dir, o->fresh);
    }
    if (st == QM_OK)
        st = write_script(o, p, "array.sh", array_script, array, sizeof array);
    if (st == QM_OK)
        st = write_script(o, p, "merge.sh", merge_script, merge, sizeof merge);
    if (st == QM_OK && !o->dry_run && !has_sbatch())
        st = qm_fail(QM_SKIPPED, "there is no sbatch here; %s is what it would be given", array);
    if (st == QM_OK && !o->dry_run)
        st = sbatch(array, NULL, job_id, sizeof job_id);
    if (st == QM_OK && !o->dry_run)
        st = sbatch(merge, job_id, merge_id, sizeof merge_id);
    if (st != QM_OK && *job_id)
        st = qm_fail(st, "sbatch refused %s, but job %s runs: qualm merge %s when it is done",
                     merge, job_id, p->dir);
    if (st == QM_OK)
        json_object_update_new(
            into, json_pack("{s:s, s:i, s:I, s:s, s:s, s:s, s:s}", "campaign", p->dir, "tasks",
                            o->tasks, "cells", (json_int_t)job.n_cells, "array_script", array,
                            "merge_script", merge, "job", job_id, "merge_job", merge_id));
    qm_loaded_suite_close(&job);
    free(p);
    return st;
}

int qm_cmd_submit(int argc, char **argv)
{
    static const struct argp_child children[] = {{&qm_cli_argp, 0, "Common options:", -1}, {0}};
    static const struct argp argp = {options, option, "SUITE", doc, children, NULL, NULL};
    struct options o = {.cpus = 1, .time = "1:00:00", .seconds = QM_CAMPAIGN_SECONDS};
    json_t *said = json_object();
    int code = qm_cli_parse(&argp, argc, argv, &o);
    if (code == 0) {
        qm_status st = submit(&o, said);
        if (st == QM_OK)
            qm_report(json_incref(said));
        else
            code = qm_cli_failed("submit", st);
    }
    json_decref(said);
    free(o.data);
    free(o.line);
    return code;
}
