/* main.c - The program `qualm`: runs the subcommand, and reports output that cannot be written. */
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/interrupt.h"
#include "core/base/isa.h"
#include "core/base/name.h"
#include "core/base/read_set.h"
#include "core/base/threads.h"
#include "core/user_kernel/host.h"
#include "experiments/campaign/worker.h"
#include "experiments/cli/cli.h"
#include "experiments/command/command.h"
#include "experiments/machine/provenance.h"
#include "experiments/store/store.h"

static const struct {
    const char *text;
    int (*run)(int argc, char **argv);
} commands[] = {
#define X(name, text) {text, qm_cmd_##name},
    QM_COMMAND_LIST(X)
#undef X
};

enum { COMMANDS = sizeof commands / sizeof *commands };

static const char *const *names; /* qm_command_names() */

static void usage(FILE *to)
{
    fputs("Usage: qualm COMMAND [OPTION...] [ARGUMENT...]\n"
          "A harness for low-bit optimizer states.\n"
          "\nCommands:\n",
          to);
    for (int i = 0; i < COMMANDS; i++)
        fprintf(to, "  %-11s %s\n", names[i], commands[i].text);
    fputs("\nExamples:\n"
          "  qualm list variants  # what there is to study\n"
          "  qualm show dyn:4s/block:128/bisect/mid  # one quantizer, word by word\n"
          "  # states.h5 is a file of yours\n"
          "  qualm analyze states.h5 --tensor exp_avg  # error of saved tensors\n"
          "  qualm size --shapes llama7b  # bytes of optimizer state per variant\n"
          "  qualm check  # every variant against the oracle\n"
          "\n`qualm COMMAND --help` or `qualm help COMMAND` tells more; `qualm --version`.\n"
          "\nThreads: one for each processor that the process may use (by its affinity and\n"
          "the quotas of its control groups), or as many as OMP_NUM_THREADS says.\n"
          "\nExit codes:\n",
          to);
#define X(name, code, text) fprintf(to, "  %2d  %s\n", code, text);
    QM_STATUS_LIST(X)
#undef X
}

/* Says why no command runs; with --json stdout has it, too. */
static int failed_early(const char *text, qm_status st, int argc, char **argv)
{
    int code = qm_exit_code(st);
    fprintf(stderr, "qualm: %s\n", text);
    if (qm_cli_asks_json(argc, argv))
        qm_json_print(json_pack("{s:o, s:i}", "error", qm_json_text(text), "code", code));
    return code;
}

static int run(const char *name, int argc, char **argv)
{
    int i = qm_name_find(name, names, COMMANDS);
    if (i >= 0)
        return commands[i].run(argc, argv);
    const char *nearest = qm_name_nearest(name, names, COMMANDS);
    char *shown = qm_cli_shown(name), text[600];
    if (nearest)
        snprintf(text, sizeof text, "no command '%.200s'; did you mean '%s'?", shown ? shown : "",
                 nearest);
    else
        snprintf(text, sizeof text, "no command '%.400s'; `qualm --help` lists them",
                 shown ? shown : "");
    free(shown);
    return failed_early(text, QM_NO_MATCH, argc, argv);
}

/* Opens closed standard streams read-only.  Otherwise the next opened file would get the stream's
 * descriptor, and what is written to the stream would go into that file. */
static void hold_streams(void)
{
    int fd;
    do
        fd = open("/dev/null", O_RDONLY);
    while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd > STDERR_FILENO)
        close(fd);
}

static void tell(const char *path, enum qm_carried carried)
{
    /* later: where the command fails, the error is the one line */
    qm_note_later(
        carried == QM_CARRIED_none
            ? "%s: carries no digest, as files of older versions: damage may go unnoticed"
        : carried == QM_CARRIED_bare
            ? "%s: ends without its checksum: another program wrote it again, or cut that off; "
              "its digest is right, which covers all but /provenance and /timing: who wrote it, "
              "how and when may have been changed"
            : "%s: was changed by another program after it was written: it carries another "
              "digest than it has",
        path);
}

/* A closed terminal is SIGTERM, which commands handle, unless nohup ignores it. */
static void hang_up(int number)
{
    (void)number;
    raise(SIGTERM);
}

/* QUALM_SHARE names a folder with files that ship with the program. */
static qm_status share_check(void)
{
    const char *share = getenv("QUALM_SHARE");
    struct stat of;
    char path[PATH_MAX];
    if (!share || !*share)
        return QM_OK;
    if (stat(share, &of) != 0 || !S_ISDIR(of.st_mode))
        return qm_fail(QM_BAD_ARG, "QUALM_SHARE: '%.200s' is not a folder", share);
    snprintf(path, sizeof path, "%.4000s/experiments", share);
    if (stat(path, &of) != 0)
        qm_note("QUALM_SHARE: '%.200s' has no folder experiments: files that ship with the program "
                "are taken from beside it",
                share);
    return QM_OK;
}

/* Checks what the environment asks for, before anything is done. */
static int environment_check(const char *word, int argc, char **argv)
{
    qm_status st = qm_isa_check();
    if (st == QM_OK)
        st = qm_threads_check();
    if (st == QM_OK)
        st = share_check();
    qm_cli.json = st != QM_OK && qm_cli_asks_json(argc, argv);
    return st == QM_OK ? 0 : qm_cli_failed(word, st);
}

int main(int argc, char **argv)
{
    names = qm_command_names();
    hold_streams();
    qm_threads_default();
    qm_store_tell(tell);
    signal(SIGPIPE, SIG_IGN); /* a write fails instead, so files are still completed */
    signal(SIGCHLD, SIG_DFL); /* ignored, as a parent may have left it, no process has an end */
    signal(SIGXFSZ, SIG_IGN); /* a limit on file sizes makes a write fail, as a full disk does */
    if (argc < 2) {
        usage(stderr);
        return qm_exit_code(QM_BAD_ARG);
    }
    const char *word = argv[1];
    if (strcmp(word, QM_HOST_WORD) == 0)
        return qm_host_main();
    struct sigaction hup = {.sa_handler = hang_up}, was; /* without SA_RESTART, as the others */
    sigemptyset(&hup.sa_mask);
    if (sigaction(SIGHUP, NULL, &was) == 0 && was.sa_handler != SIG_IGN)
        sigaction(SIGHUP, &hup, NULL);
    if (strcmp(word, QM_CAMPAIGN_WORKER) == 0)
        return qm_campaign_worker(argc - 1, argv + 1);
    qm_interrupt_handle();
    qm_read_set_start();
    if (strcmp(word, "--version") == 0 || strcmp(word, "-V") == 0) {
        printf("qualm %s\n", qm_version());
        return qm_cli_finish(0);
    }
    if (strcmp(word, "help") == 0 && argc > 2) {
        char help[] = "--help", *help_argv[] = {argv[2], help, NULL};
        if (qm_name_find(argv[2], names, COMMANDS) < 0) /* the words after it may ask for JSON */
            return qm_cli_finish(run(argv[2], argc, argv));
        return qm_cli_finish(run(argv[2], 2, help_argv));
    }
    if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0 || strcmp(word, "-?") == 0 ||
        strcmp(word, "help") == 0) {
        usage(stdout);
        return qm_cli_finish(0);
    }
    if (word[0] == '-') {
        char *shown = qm_cli_shown(word), text[600];
        snprintf(text, sizeof text,
                 "option '%.400s' before a command; `qualm --help` tells the usage",
                 shown ? shown : "");
        free(shown);
        return qm_cli_finish(failed_early(text, QM_BAD_ARG, argc, argv));
    }
    int code = environment_check(word, argc, argv);
    return qm_cli_finish(code ? code : run(word, argc - 1, argv + 1));
}
