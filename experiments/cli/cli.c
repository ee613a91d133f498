/* cli.c - Shared by all subcommands: common options, errors, JSON output, progress. */
#include "experiments/cli/cli.h"
#include "core/base/clock.h"
#include "core/base/name.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct qm_cli qm_cli;

static const struct argp_option common_options[] = {
    {"json", 'j', NULL, 0, "JSON on stdout and nothing else there", 0},
    {"verbose", 'v', NULL, 0, "say more on stderr", 0},
    {"quiet", 'q', NULL, 0, "no notes and no progress on stderr", 0},
    {0}};

static error_t common_option(int key, char *arg, struct argp_state *state)
{
    (void)arg;
    (void)state;
    switch (key) {
    case 'j': qm_cli.json = 1; return 0;
    case 'v': qm_cli.verbose = 1; return 0;
    case 'q': qm_cli.quiet = 1; return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

const struct argp qm_cli_argp = {common_options, common_option, NULL, NULL, NULL, NULL, NULL};

static const struct argp *guarded;
static char **written; /* the files that options name to be written; borrowed */
static int n_written;

static const struct argp_option *option_of(int key)
{
    const struct argp_option *o = key ? guarded->options : NULL; /* ARGP_KEY_ARG, and of aliases */
    while (o && (o->name || o->key || o->doc) && o->key != key)
        o++;
    return o && o->name ? o : NULL;
}

/* Refuses a second value of an option whose help does not say that it may be repeated. */
static void expect_once(const struct argp_option *o, const char *arg, struct argp_state *state)
{
    enum { MOST = 128 };
    static struct {
        const struct argp_option *option;
        const char *arg;
    } given[MOST];
    int i = 0;
    while (i < MOST && given[i].option && given[i].option != o)
        i++;
    if (i < MOST && given[i].option && !strstr(o->doc ? o->doc : "", "may be repeated"))
        argp_error(state, "--%s is given twice, '%s' and '%s'", o->name, given[i].arg, arg);
    if (i < MOST) {
        given[i].option = o;
        given[i].arg = arg;
    }
}

/* Notes the file that an argument may name, to be read or to be written. */
static void note_file(const struct argp_option *o, int key, char *arg, struct argp_state *state)
{
    static const char *const names[] = {"out", "junit", "markdown", "latex", "archive"};
    int is_out = 0;
    for (size_t i = 0; o && i < sizeof names / sizeof *names; i++)
        is_out |= strcmp(o->name, names[i]) == 0;
    if (o && arg)
        expect_once(o, arg, state);
    if (is_out && arg)
        qm_cli_append(&written, &n_written, arg);
    if (!is_out && arg && (o || key == ARGP_KEY_ARG))
        qm_cli_reads(arg);
    for (int i = state->next; key == ARGP_KEY_ARGS && i < state->argc; i++)
        qm_cli_reads(state->argv[i]);
}

/* A command's parser, behind a check: a file or folder whose name is empty would be read or written
 * somewhere else. */
static error_t guard(int key, char *arg, struct argp_state *state)
{
    static const char *const kinds[] = {"FILE", "FOLDER", "DIR"};
    const struct argp_option *o = option_of(key);
    for (size_t i = 0; arg && !*arg && o && o->arg && i < sizeof kinds / sizeof *kinds; i++)
        if (strcmp(o->arg, kinds[i]) == 0)
            argp_error(state, "--%s is empty, expected a %s", o->name, i ? "folder" : "file");
    note_file(o, key, arg, state);
    return guarded->parser ? guarded->parser(key, arg, state) : ARGP_ERR_UNKNOWN;
}

/* Adds the long names of options to names[*n]. */
static void add_options(const struct argp_option *o, const char **names, int *n, int most)
{
    for (; o && (o->name || o->key || o->doc); o++)
        if (o->name && *n < most)
            names[(*n)++] = o->name;
}

/* What getopt's line on an unknown long option means by it, in near, or "". */
static void option_meant(const char *line, char near[QM_NAME_NEAR])
{
    enum { MOST = 128 };
    static const char mark[] = "unrecognized option '--";
    const char *names[MOST] = {"help", "usage", "version"}, *at = strstr(line, mark);
    int n = 3;
    near[0] = '\0';
    char word[64];
    if (!at || !guarded)
        return;
    at += sizeof mark - 1;
    snprintf(word, sizeof word, "%.*s", (int)strcspn(at, "='"), at);
    add_options(guarded->options, names, &n, MOST);
    for (const struct argp_child *c = guarded->children; c && c->argp; c++)
        add_options(c->argp->options, names, &n, MOST);
    const char *nearest = qm_name_nearest(word, names, n);
    if (nearest)
        snprintf(near, QM_NAME_NEAR, "; did you mean '--%s'?", nearest);
}

/* The first line that argp or getopt wrote, as JSON's error; "" while there is none. */
static char usage_error[1024];
static const char *parsed; /* the command whose words are parsed with --json; NULL: none */

int qm_cli_asks_json(int argc, char **argv)
{
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++)
        if (strcmp(argv[i], "-j") == 0 || strcmp(argv[i], "--json") == 0)
            return 1;
    return 0;
}

static void keep_error(const char *text)
{
    size_t n = strlen("qualm "), word = parsed ? strlen(parsed) : 0;
    if (!parsed || *usage_error)
        return;
    if (strncmp(text, "qualm ", n) == 0 && strncmp(text + n, parsed, word) == 0 &&
        strncmp(text + n + word, ": ", 2) == 0)
        text += n + word + 2;
    snprintf(usage_error, sizeof usage_error, "%.*s", (int)strcspn(text, "\n"), text);
}

/* argp ends the program after a usage error: with --json stdout has it, too. */
static void print_usage_error(void)
{
    if (parsed && *usage_error)
        qm_json_print(json_pack("{s:o, s:i}", "error", qm_json_text(usage_error), "code",
                                qm_exit_code(QM_BAD_ARG)));
    parsed = NULL;
}

/* A line for a stream, without control characters; one of getopt's gets the option that is near. */
static ssize_t say_plain(void *to, const char *text, size_t n)
{
    char *copy = strndup(text, n), near[QM_NAME_NEAR];
    if (!copy)
        return 0;
    option_meant(copy, near);
    char *end = *near ? strchr(copy, '\n') : NULL;
    if (end) {
        *end = '\0';
        qm_cli_make_plain(copy, 1);
        keep_error(copy);
        fprintf(to, "%s%s\n", copy, near);
        free(copy);
        return (ssize_t)n;
    }
    qm_cli_make_plain(copy, 1);
    keep_error(copy);
    fputs(copy, to);
    free(copy);
    return (ssize_t)n;
}

static FILE *plain_stream(FILE *to)
{
    FILE *f = fopencookie(to, "w", (cookie_io_functions_t){.write = say_plain});
    if (f)
        setvbuf(f, NULL, _IOLBF, 1 << 16);
    return f;
}

int qm_cli_parse(const struct argp *argp, int argc, char **argv, void *input)
{
    static char name[64]; /* argp points at it until the program ends */
    static char **own;    /* commands keep pointers into it */
    free(own);
    own = calloc((size_t)argc + 1, sizeof *own);
    if (!own)
        return qm_cli_failed(argv[0], qm_fail(QM_NO_MEMORY, "out of memory"));
    memcpy(own, argv, (size_t)argc * sizeof *own);
    atexit(qm_cli_finish_at_exit); /* argp ends the program after --help */
    atexit(print_usage_error);
    snprintf(name, sizeof name, "qualm %s", argv[0]);
    own[0] = name;
    argp_err_exit_status = qm_exit_code(QM_BAD_ARG);
    struct argp checked = *argp;
    checked.parser = guard;
    guarded = argp;
    parsed = qm_cli_asks_json(argc, argv) ? argv[0] : NULL;
    FILE *was = stderr, *plain = plain_stream(was); /* argp and getopt repeat words of the user */
    if (plain)
        stderr = plain;
    error_t failed = argp_parse(&checked, argc, own, 0, NULL, input);
    stderr = was;
    if (plain)
        fclose(plain);
    if (failed)
        print_usage_error();
    parsed = NULL;
    qm_status st = QM_OK;
    for (int i = 0; i < n_written && st == QM_OK; i++)
        if ((st = qm_cli_writes(written[i])) == QM_OK)
            st = qm_cli_writes_once(written[i]);
    free(written);
    written = NULL;
    n_written = 0;
    return failed ? qm_exit_code(QM_BAD_ARG) : st != QM_OK ? qm_cli_failed(argv[0], st) : 0;
}

int qm_cli_control_bytes(const char *text)
{
    const unsigned char *c = (const unsigned char *)text;
    if (*c < 0x20 || *c == 0x7f || !qm_cli_utf8_bytes(text))
        return 1;
    if (*c == 0xc2 && c[1] >= 0x80 && c[1] <= 0x9f)
        return 2;
    int turns = *c == 0xe2 && ((c[1] == 0x80 && c[2] >= 0x8e && c[2] <= 0x8f) ||
                               (c[1] == 0x80 && c[2] >= 0xa8 && c[2] <= 0xae) ||
                               (c[1] == 0x81 && c[2] >= 0xa6 && c[2] <= 0xa9));
    return turns ? 3 : 0;
}

/* Writes a character of two or three bytes as \\u and four digits; returns their number. */
static int write_code(char *at, const char *text, int n)
{
    const unsigned char *c = (const unsigned char *)text;
    return sprintf(at, "\\u%04x",
                   n == 2 ? (*c & 0x1fu) << 6 | (c[1] & 0x3fu)
                          : (*c & 0xfu) << 12 | (c[1] & 0x3fu) << 6 | (c[2] & 0x3fu));
}

char *qm_cli_shown(const char *text)
{
    char *out = malloc(4 * strlen(text) + 1), *at = out; /* at most four for one byte */
    while (out && *text) {
        const unsigned char *c = (const unsigned char *)text;
        int n = qm_cli_control_bytes(text);
        if (n == 0)
            for (int left = qm_cli_utf8_bytes(text); left > 0; left--)
                *at++ = *text++;
        else if (n == 1)
            at += sprintf(at, "\\x%02x", (unsigned)*c);
        else
            at += write_code(at, text, n);
        text += n;
    }
    if (out)
        *at = '\0';
    return out;
}

void qm_cli_make_plain(char *text, int keeps_lines)
{
    for (char *c = text; *c;) {
        int n = keeps_lines && (*c == '\n' || *c == '\t') ? 0 : qm_cli_control_bytes(c);
        for (int i = 0; i < n; i++)
            c[i] = '?';
        c += n ? n : qm_cli_utf8_bytes(c);
    }
}

/* Lines of qm_note_later, joined by "; "; NULL: none. */
static char *kept;

int qm_cli_failed(const char *command, qm_status st)
{
    int code = qm_exit_code(st);
    const char *said = *qm_message() ? qm_message() : "failed without a message";
    char text[2000];
    int is_plain = st != QM_NO_MEMORY || strncmp(said, "out of memory", 13) == 0;
    snprintf(text, sizeof text, "%s%s%s%s", is_plain ? "" : "out of memory: ", said,
             kept ? "; " : "", kept ? kept : "");
    free(kept);
    kept = NULL;
    qm_cli_make_plain(text, 0);
    fflush(qm_out());
    fprintf(qm_notes(), "qualm %s: %s\n", command, text);
    if (qm_cli.verbose)
        fprintf(qm_notes(), "  raised at %s\n", qm_message_where());
    if (qm_cli.json)
        qm_json_print(json_pack("{s:o, s:i}", "error", qm_json_text(text), "code", code));
    return code;
}

qm_status qm_cli_append(char ***list, int *n, char *word)
{
    char **more = realloc(*list, (size_t)(*n + 1) * sizeof *more);
    if (!more)
        return qm_fail(QM_NO_MEMORY, "options");
    *list = more;
    more[(*n)++] = word;
    return QM_OK;
}

uint64_t qm_cli_number(struct argp_state *state, const char *name, const char *text, uint64_t least,
                       uint64_t most)
{
    char *end;
    errno = 0;
    unsigned long long x = strtoull(text, &end, 10);
    if (*end || !isdigit((unsigned char)*text) || errno || x < least || x > most)
        argp_error(state, "--%s is '%s', expected a whole number from %llu to %llu", name, text,
                   (unsigned long long)least, (unsigned long long)most);
    return x;
}

int qm_cli_whole(struct argp_state *state, const char *name, const char *text, int least, int most)
{
    char *end;
    int is_plain = isdigit((unsigned char)text[*text == '-']); /* no blank, sign + or 0x */
    errno = 0;
    long x = strtol(text, &end, 10);
    if (*end || !is_plain || errno || x < least || x > most)
        argp_error(state, "--%s is '%s', expected %d to %d", name, text, least, most);
    return (int)x;
}

void qm_cli_alone(struct argp_state *state, const char *option, const char *work,
                  const struct qm_cli_given *others)
{
    for (; others->name; others++)
        if (others->is_given)
            argp_error(state, "%s %s and takes no %s", option, work, others->name);
}

const char *qm_cli_filter(struct argp_state *state, const char *name, const char *text)
{
    if (qm_name_check_filter(text) != QM_OK)
        argp_error(state, "%s: %s", name, qm_message());
    return text;
}

static int progress_open; /* the terminal's last line shows progress */

static void progress_clear(void)
{
    if (progress_open)
        fputs("\r\033[K", stderr);
    progress_open = 0;
}

void qm_progress_clear(void)
{
    if (!qm_cli.quiet && isatty(STDERR_FILENO))
        fputs("\r\033[K", stderr);
}

void qm_cli_cut(char *text, size_t most)
{
    if (strlen(text) <= most)
        return;
    size_t n = most > 3 ? most - 3 : 0;
    while (n > 0 && ((unsigned char)text[n] & 0xc0) == 0x80)
        n--;
    strcpy(text + n, "...");
}

void qm_note(const char *format, ...)
{
    if (qm_cli.quiet)
        return;
    progress_clear();
    va_list args;
    char *text = NULL;
    va_start(args, format);
    int n = vasprintf(&text, format, args);
    va_end(args);
    if (n < 0)
        return;
    /* A line's end within is a name's; one before the text sets it off. */
    qm_cli_make_plain(text + (*text == '\n'), 0);
    fprintf(qm_notes(), "%s\n", text);
    free(text);
}

void qm_note_remark(const char *path, const char *remark) { qm_note("%s: %s", path, remark); }

void qm_note_later(const char *format, ...)
{
    va_list args;
    char *text = NULL, *all = NULL;
    if (qm_cli.quiet)
        return;
    va_start(args, format);
    int n = vasprintf(&text, format, args);
    va_end(args);
    if (n >= 0 && asprintf(&all, "%s%s%s", kept ? kept : "", kept ? "; " : "", text) >= 0) {
        free(kept);
        kept = all;
    }
    free(n < 0 ? NULL : text);
}

void qm_cli_notes_end(void)
{
    if (kept)
        qm_note("%s", kept);
    free(kept);
    kept = NULL;
}

/* JSON in which the control characters that the library leaves as they are, DEL and those beyond
 * ASCII, stand as \\u0085; the caller frees it.  NULL: no memory. */
static char *json_shown(const char *text)
{
    char *out = malloc(6 * strlen(text) + 1), *at = out; /* at most six for one byte */
    while (out && *text) {
        int n = (unsigned char)*text < 0x80 ? 0 : qm_cli_control_bytes(text);
        if (n > 1)
            at += write_code(at, text, n);
        else if (*text == 0x7f)
            at += sprintf(at, "\\u007f");
        else
            *at++ = *text;
        text += n > 1 ? n : 1;
    }
    if (out)
        *at = '\0';
    return out;
}

void qm_json_print(json_t *value)
{
    if (!value) {
        static const char text[] = "a name or text is not UTF-8, which JSON cannot hold";
        qm_cli.is_json_lost = 1;
        fprintf(qm_notes(), "qualm: %s\n", text);
        value = json_pack("{s:s, s:i}", "error", text, "code", qm_exit_code(QM_BAD_FILE));
    }
    char *text = json_dumps(value, JSON_INDENT(2) | JSON_ENCODE_ANY);
    char *shown = text ? json_shown(text) : NULL;
    fprintf(qm_out(), "%s\n", shown ? shown : "null");
    free(text);
    free(shown);
    json_decref(value);
}

json_t *qm_json_number(double x) { return isfinite(x) ? json_real(x) : json_null(); }

json_t *qm_json_shown(double x)
{
    return isinf(x) ? json_string(x > 0.0 ? "inf" : "-inf") : qm_json_number(x);
}

int qm_colour(FILE *stream)
{
    const char *off = getenv("NO_COLOR"), *term = getenv("TERM");
    return !(off && *off) && term && strcmp(term, "dumb") != 0 && isatty(fileno(stream));
}

/* ---- progress ------------------------------------------------------------------------------ */

static void progress_show(struct qm_progress *p, double now)
{
    double spent = now - p->started;
    double rate = spent > 0 ? (double)p->done / spent : 0.0;
    fprintf(stderr, "\r%s: %lld", p->what, (long long)p->done);
    if (p->total > 0)
        fprintf(stderr, "/%lld (%.0f %%)", (long long)p->total,
                100.0 * (double)p->done / (double)p->total);
    fprintf(stderr, ", %.3g/s", rate);
    if (p->total > p->done && rate > 0)
        fprintf(stderr, ", %.0f s left", (double)(p->total - p->done) / rate);
    if (p->failed)
        fprintf(stderr, ", %lld failed", (long long)p->failed);
    fputs("\033[K", stderr);
    fflush(stderr);
    progress_open = 1;
    p->shown = now;
}

void qm_progress_start(struct qm_progress *p, const char *what, int64_t total)
{
    double now = qm_seconds();
    *p = (struct qm_progress){.what = what, .total = total, .started = now, .shown = now};
}

void qm_progress_add(struct qm_progress *p, int64_t done, int64_t failed)
{
    p->done += done;
    p->failed += failed;
    if (qm_cli.quiet || !isatty(STDERR_FILENO))
        return;
    double now = qm_seconds();
    if (now - p->shown >= 0.1)
        progress_show(p, now);
}

void qm_progress_end(struct qm_progress *p)
{
    (void)p;
    progress_clear(); /* the text that follows reports the result */
}
