/* cli.h - Shared by all subcommands: common options, errors, JSON output, tables, progress.
 *
 * Text for people goes to stderr, data to stdout.  With --json stdout carries only JSON.  Colour is
 * used only on a terminal and without NO_COLOR. */
#ifndef QM_CLI_CLI_H
#define QM_CLI_CLI_H

#include <argp.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>

#include "core/base/status.h"

/* Options that every subcommand takes: --json, -v/--verbose, -q/--quiet.  A command adds
 * {&qm_cli_argp, 0, "Common options:", -1} as a child of its argp. */
struct qm_cli {
    int json, verbose, quiet;
    int is_json_lost; /* qm_json_print was given NULL: the program ends with 3 */
};
extern struct qm_cli qm_cli;
extern const struct argp qm_cli_argp;

/* Prints "qualm COMMAND: MESSAGE" (and, with -v, where it was raised) on stderr; with --json also
 * {"error": ..., "code": ...} on stdout.  Returns the exit code of st. */
int qm_cli_failed(const char *command, qm_status st);

/* argp_parse with our exit codes: usage errors exit with 2, --help and --usage with 0.  Returns 0,
 * or the exit code of a failure.  argv[0] is the subcommand's name; messages say "qualm NAME".  An
 * option whose argument is a FILE, FOLDER or DIR is refused with an empty one, and one that names a
 * file to write with a file that the command reads (qm_cli_writes). */
int qm_cli_parse(const struct argp *argp, int argc, char **argv, void *input);

/* Keeps the name of what a command reads; qm_cli_parse does so with every word of the command line
 * but those of options that name a file to write: --out, --junit, --markdown, --latex, --archive.
 * Without memory the name is not kept. */
void qm_cli_reads(const char *path);
/* QM_BAD_ARG: a regular file that is there already, and is one of those that are read, under
 * whatever name.  qm_cli_parse asks for the options above; a command, where it finds a name
 * itself. */
qm_status qm_cli_writes(const char *path);
/* QM_BAD_ARG: the same file was named before to be written.  '-' may be named often. */
qm_status qm_cli_writes_once(const char *path);

/* Adds a word to a list of *n words; the caller frees *list, the word is
 * borrowed.  QM_NO_MEMORY. */
qm_status qm_cli_append(char ***list, int *n, char *word);

/* The whole number of option --name; a usage error unless it is from least to most. */
uint64_t qm_cli_number(struct argp_state *state, const char *name, const char *text, uint64_t least,
                       uint64_t most);
int qm_cli_whole(struct argp_state *state, const char *name, const char *text, int least, int most);

/* Options of a command and whether they were given; a list ends with name NULL. */
struct qm_cli_given {
    const char *name; /* "--out" */
    int is_given;
};

/* A usage error where one of the others was given beside `option`, whose work leaves no place for
 * them: "--list draws nothing and takes no --out". */
void qm_cli_alone(struct argp_state *state, const char *option, const char *work,
                  const struct qm_cli_given *others);

/* The text of option `name` ("--tensor"); a usage error unless it is a regular expression as
 * qm_name_matches takes it. */
const char *qm_cli_filter(struct argp_state *state, const char *name, const char *text);

/* Where data and where notes go: stdout and stderr, but in the process of qm_cli_apart to its
 * parent, which prints them when that process has ended well. */
FILE *qm_out(void);
FILE *qm_notes(void);
/* Control characters other than the end of a line become '?'. */
void qm_print(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Flushes qm_out().  Returns the code of the command, or that of a failure where the output could
 * not be written, as to a full disk; a reader who has closed it is none. */
int qm_cli_finish(int code);

/* For atexit(): the same where exit() ends the program before that was called, with its own code
 * where the output could not be written. */
void qm_cli_finish_at_exit(void);

/* Has work(of), the work of a command and its printing, done in a process of its own, because it
 * calls libraries that may crash, leave or write to stdout (cuda_apart.h).  What it printed is
 * printed here, once; progress alone it shows itself.  Returns the exit code that the work
 * returned, or that of the failure, which is printed in place of all else. */
int qm_cli_apart(const char *command, int (*work)(void *of), void *of);

/* Cuts a text of more than `most` bytes, or a few fewer between characters; "..." ends it then.  A
 * suite's title in a note has QM_CLI_SAID. */
enum { QM_CLI_SAID = 200 };
void qm_cli_cut(char *text, size_t most);

/* Prints a line on stderr, unless -q. */
void qm_note(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Notes what a file does not prove, also where an earlier file did not and this one keeps it. */
void qm_note_remark(const char *path, const char *remark);

/* Keeps a line until the command ends: qm_cli_failed says it at the end of its own, which stays the
 * only one, and else qm_cli_finish prints it. */
void qm_note_later(const char *format, ...) __attribute__((format(printf, 1, 2)));
void qm_cli_notes_end(void); /* prints what is kept */

/* Prints value as JSON and a newline on qm_out(), and releases it. */
void qm_json_print(json_t *value);

/* The bytes of the UTF-8 character at the start of text; 0: there is none. */
int qm_cli_utf8_bytes(const char *text);

/* The bytes of what a terminal may take for a command at the start of text: a control character of
 * ASCII or Latin-1 (U+0080 to U+009F), one that turns the direction of writing, or a byte that is
 * no UTF-8; 0: there is none. */
int qm_cli_control_bytes(const char *text);

/* A text as JSON, whatever its bytes: those that are no UTF-8 become U+FFFD.  NULL: there is
 * no memory. */
json_t *qm_json_text(const char *text);

/* An object without one member, in compact form by sorted names: what the sum that a file carries
 * is of.  The caller frees it; NULL: there is no memory. */
char *qm_json_without(json_t *object, const char *member);

/* x as a JSON number; null for NaN and infinities, which JSON lacks. */
json_t *qm_json_number(double x);
/* The same for a metric, which may be infinite: that is the text "inf" or "-inf", null is undefined
 * (NaN). */
json_t *qm_json_shown(double x);

/* Prints one value on stdout and releases it: with --json as qm_json_print, else as text.  Scalars
 * are aligned "key  value" lines, arrays of objects tables under their key (columns: the keys of
 * the first object), arrays of numbers lines of five; null is "-". */
void qm_report(json_t *value);

/* Progress on stderr: on a terminal at most 10 updates a second with rate and remaining time;
 * nothing elsewhere, and nothing with -q.  done has the units of total (0: unknown).  One
 * thread at a time. */
struct qm_progress {
    const char *what;
    int64_t total, done, failed;
    double started, shown; /* qm_seconds(): at the start, at the last update */
};
void qm_progress_start(struct qm_progress *p, const char *what, int64_t total);
void qm_progress_add(struct qm_progress *p, int64_t done, int64_t failed);
void qm_progress_end(struct qm_progress *p);
void qm_progress_clear(void); /* of a terminal: what another process may have left in the line */

/* Whether a stream may have colour: it is a terminal, TERM is not dumb, NO_COLOR is unset
 * or empty. */
int qm_colour(FILE *stream);

/* Writes '?' for every byte of a control character, so that the text is one line of the terminal,
 * whatever names of files it holds; with keeps_lines ends of lines and tabs stay. */
void qm_cli_make_plain(char *text, int keeps_lines);

/* The text with every control character (of ASCII and Latin-1, and those that turn the
 * direction of writing) written as \x1b or \u202e, so that names
 * of a file neither end a line nor steer the terminal; the caller frees it.  NULL: no memory. */
char *qm_cli_shown(const char *text);

/* Whether the words ask for JSON, -j or --json before "--": for errors before they are parsed. */
int qm_cli_asks_json(int argc, char **argv);

/* A text table on stdout with aligned columns; columns of numbers (and "-") are aligned
 * right.  Cells are added row by row. */
struct qm_table; /* opaque */
struct qm_table *qm_table_open(int n_columns, const char *const *heads);
void qm_table_cell(struct qm_table *t, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void qm_table_close(struct qm_table *t); /* prints and frees */

#endif
