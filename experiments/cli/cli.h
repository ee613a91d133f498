/* cli.h - what all subcommands share: output discipline, JSON, progress.
 *
 * Text for people goes to stderr, data to stdout.  With --json stdout carries JSON and nothing
 * else.  Colour only on a tty and without NO_COLOR. */
#ifndef QM_CLI_CLI_H
#define QM_CLI_CLI_H

#include <argp.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdint.h>

#include "core/base/status.h"

#include "experiments/machine/version.h"

/* Options every subcommand takes: --json, -v/--verbose, -q/--quiet.  Add
 * {&qm_cli_argp, 0, "Common options:", -1} as a child of the command's argp. */
struct qm_cli {
    int json, verbose, quiet;
};
extern struct qm_cli qm_cli;
extern const struct argp qm_cli_argp;

/* Prints "qualm COMMAND: MESSAGE" (and, with -v, where it was raised) on stderr; with --json also
 * {"error": ..., "code": ...} on stdout.  Returns the exit code of st. */
int qm_cli_failed(const char *command, qm_status st);

/* argp_parse with our exit codes: usage errors leave with 2; --help and --usage with 0.  argv[0] is
 * the subcommand's name; messages say "qualm NAME". */
int qm_cli_parse(const struct argp *argp, int argc, char **argv, void *input);

/* Adds a word to a growing list of *n (realloc; the word is borrowed).  QM_NO_MEMORY. */
qm_status qm_cli_append(char ***list, int *n, char *word);

/* An option's whole number; a usage error unless it is from least to most. */
int qm_cli_whole(struct argp_state *state, const char *name, const char *text, int least, int most);

/* A line for people on stderr, unless -q. */
void qm_note(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Prints value as JSON with a newline on stdout and releases it. */
void qm_json_print(json_t *value);

/* A finite number, or null: JSON has no NaN. */
json_t *qm_json_number(double x);

/* One value for machines and people: with --json as qm_json_print; else as text on stdout, scalars
 * as aligned "key  value" lines, arrays of objects as tables under their key (columns: the keys of
 * the first object), arrays of numbers in lines, null as "-".  Releases value. */
void qm_report(json_t *value);

/* Progress on stderr: on a tty at most 10 updates a second with rate and ETA, otherwise a line
 * every 30 s; nothing with -q.  done counts in the same units as total (0: unknown).  Not for
 * several threads at once. */
struct qm_progress {
    const char *what;
    int64_t total, done, failed;
    double started, shown;
};
void qm_progress_start(struct qm_progress *p, const char *what, int64_t total);
void qm_progress_add(struct qm_progress *p, int64_t done, int64_t failed);
void qm_progress_end(struct qm_progress *p);

double qm_seconds(void); /* monotonic clock */

/* Whether a stream may carry colour: a terminal that is not dumb, and NO_COLOR unset or empty. */
int qm_colour(FILE *stream);

/* A plain text table on stdout: columns aligned, columns of numbers (and "-") to the right. */
struct qm_table; /* opaque */
struct qm_table *qm_table_open(int n_columns, const char *const *heads);
void qm_table_cell(struct qm_table *t, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void qm_table_close(struct qm_table *t); /* prints and frees */

#endif
