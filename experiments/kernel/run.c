/* run.c - Runs the cases of a kernel check one after the other, each in a worker process. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "experiments/cli/cli.h"
#include "experiments/kernel/files.h"
#include "experiments/kernel/kernel.h"
#include "experiments/kernel/regime.h"
#include "experiments/kernel/wire.h"

enum { SPEED_N = 1 << 20 };

static volatile int stop;

static void on_signal(int sig)
{
    (void)sig;
    stop = 1;
}

static const char *const result_names[] = {
#define X(name) #name,
    QM_CASE_RESULT_LIST(X)
#undef X
};

const char *qm_case_result_name(enum qm_case_result r) { return result_names[r]; }

int qm_case_result_is_bad(enum qm_case_result r)
{
    return r != QM_CASE_passed && r != QM_CASE_refused && r != QM_CASE_unfit;
}

/* ---- one case -------------------------------------------------------------------------------- */

static qm_status keep(struct qm_kernel_run *r, const struct qm_kernel_case *c)
{
    r->count[c->result]++;
    r->last = c->result;
    if (r->o->forever && !qm_case_result_is_bad(c->result)) {
        free(c->text);
        return QM_OK;
    }
    if (r->n_cases == r->room) {
        int room = r->room ? 2 * r->room : 512;
        struct qm_kernel_case *more = realloc(r->cases, (size_t)room * sizeof *more);
        if (!more)
            return qm_fail(QM_NO_MEMORY, "%d results", room);
        r->cases = more;
        r->room = room;
    }
    r->cases[r->n_cases++] = *c;
    return QM_OK;
}

static void add_compared(struct qm_kernel_run *r, const json_t *from)
{
    int slots = r->subject.recipe.rule->n_slots;
    for (int i = 0; i <= slots; i++) {
        const json_t *c = json_array_get(from, (size_t)i);
        struct qm_kernel_compare_count *to = &r->compared[i < slots ? i : QM_MAX_SLOTS];
        to->n += json_integer_value(json_array_get(c, 0));
        to->codes += json_integer_value(json_array_get(c, 1));
        to->scales += json_integer_value(json_array_get(c, 2));
        to->values += json_integer_value(json_array_get(c, 3));
        to->steps += json_integer_value(json_array_get(c, 4));
        to->better += json_integer_value(json_array_get(c, 5));
        to->worse += json_integer_value(json_array_get(c, 6));
        to->error_new += json_number_value(json_array_get(c, 7));
        to->error_old += json_number_value(json_array_get(c, 8));
    }
}

/* Takes the result of case c, and its tally, from the worker's answer. */
static qm_status take_answer(struct qm_kernel_run *r, const json_t *reply, struct qm_kernel_case *c)
{
    const json_t *tally = json_object_get(reply, "tally");
    const char *refused = json_string_value(json_object_get(reply, "refused"));
    const char *error = json_string_value(json_object_get(reply, "error"));
    const json_t *findings = json_object_get(tally, "findings");
    if (error)
        return qm_fail((qm_status)json_integer_value(json_object_get(reply, "status")), "%s",
                       error);
    if (!qm_wire_add(&r->tally, tally))
        return qm_fail(QM_INTERNAL, "the worker's tally cannot be read");
    add_compared(r, json_object_get(reply, "against"));
    const char *text = json_string_value(json_object_get(json_array_get(findings, 0), "text"));
    c->result = text                                                        ? QM_CASE_failed
                : refused                                                   ? QM_CASE_refused
                : json_integer_value(json_object_get(tally, "skipped")) > 0 ? QM_CASE_unfit
                                                                            : QM_CASE_passed;
    if (text || refused)
        c->text = strdup(text ? text : refused);
    return QM_OK;
}

static enum qm_case_result result_of(enum qm_end e)
{
    return e == QM_END_crashed  ? QM_CASE_crashed
           : e == QM_END_hung   ? QM_CASE_hung
           : e == QM_END_memory ? QM_CASE_memory
           : e == QM_END_left   ? QM_CASE_left
                                : QM_CASE_garbage;
}

struct worker {
    struct qm_kernel_run *r;
    json_t *job;
    struct qm_child child;
    int is_up;
};

/* Starts a worker unless one is ready.  QM_CHECK_FAILED: loading the kernel ends the worker. */
static qm_status worker_up(struct worker *s)
{
    char why[400];
    int old;
    json_t *reply;
    if (s->is_up)
        return QM_OK;
    QM_TRY(qm_child_start(&s->child, "check", s->job, &stop));
    enum qm_end how =
        qm_child_ask(&s->child, NULL, &s->r->o->limits, &reply, why, sizeof why, &old);
    if (how == QM_END_stopped)
        return qm_fail(QM_INTERRUPTED, "interrupted");
    if (how != QM_END_answered)
        return qm_fail(QM_CHECK_FAILED, "%s while it was loaded: %s", qm_end_name(how), why);
    const char *as = json_string_value(json_object_get(reply, "as"));
    qm_status st = QM_OK;
    if (!as)
        st = qm_fail((qm_status)json_integer_value(json_object_get(reply, "status")), "%s",
                     json_string_value(json_object_get(reply, "error")));
    else if (!*s->r->recipe) { /* the first worker */
        snprintf(s->r->recipe, sizeof s->r->recipe, "%s", as);
        st = qm_recipe_parse(as, &s->r->subject.recipe);
        if (st == QM_OK && !qm_wire_add(&s->r->tally, json_object_get(reply, "tally")))
            st = qm_fail(QM_INTERNAL, "the worker's tally cannot be read");
    }
    json_decref(reply);
    s->is_up = st == QM_OK;
    if (st != QM_OK)
        qm_child_stop(&s->child);
    return st;
}

static int is_large_index(const char *name) { return strcmp(name, QM_LARGE_INDEX_CASE) == 0; }

static enum qm_end ask(struct worker *s, const struct qm_kernel_case *c, int against,
                       json_t **reply, char *why, size_t size, int *old)
{
    json_t *request =
        json_pack("{s:s, s:s, s:o, s:b}", "do", is_large_index(c->name) ? "large_index" : "judge",
                  "case", c->name, "seed", qm_wire_seed(c->seed), "against", against);
    enum qm_end how = qm_child_ask(&s->child, request, &s->r->o->limits, reply, why, size, old);
    if (how != QM_END_answered) {
        qm_child_stop(&s->child);
        s->is_up = 0;
    }
    return how;
}

/* Runs one case, in a fresh worker where the last one has ended.  Where two kernels run and the
 * worker ends, the case runs again without the old kernel, which tells the two apart. */
static qm_status one_case(struct worker *s, const char *name, uint64_t seed)
{
    struct qm_kernel_case c = {.seed = seed};
    char why[400];
    int old = 0, against = s->r->o->against && !*s->r->old_trouble && !is_large_index(name);
    json_t *reply = NULL;
    snprintf(c.name, sizeof c.name, "%s", name);
    QM_TRY(worker_up(s));
    double from = qm_seconds();
    enum qm_end how = ask(s, &c, against, &reply, why, sizeof why, &old);
    if (against && how != QM_END_answered && how != QM_END_stopped) {
        char first[400];
        snprintf(first, sizeof first, "%.90s: %.300s", c.name, why);
        QM_TRY(worker_up(s));
        how = ask(s, &c, 0, &reply, why, sizeof why, &old);
        if (how == QM_END_answered) /* the new kernel runs alone from now on */
            snprintf(s->r->old_trouble, sizeof s->r->old_trouble, "%s", first);
    }
    c.seconds = qm_seconds() - from;
    if (how == QM_END_stopped)
        return qm_fail(QM_INTERRUPTED, "interrupted");
    if (how == QM_END_answered) {
        qm_status st = take_answer(s->r, reply, &c);
        json_decref(reply);
        QM_TRY(st);
    } else if (is_large_index(name) && how == QM_END_hung) {
        c.result = QM_CASE_unfit; /* its threads loop over all 2^31 elements */
    } else {
        c.result = result_of(how);
        c.text = strdup(why);
        s->r->hangs += how == QM_END_hung;
    }
    return keep(s->r, &c);
}

/* ---- all ------------------------------------------------------------------------------------- */

static int is_over(const struct qm_kernel_run *r, double from)
{
    return stop || r->hangs >= QM_HANGS || (r->o->time > 0.0 && qm_seconds() - from >= r->o->time);
}

static int64_t bad_cases(const struct qm_kernel_run *r)
{
    int64_t sum = 0;
    for (int i = 0; i < QM_CASE_RESULT_COUNT; i++)
        sum += qm_case_result_is_bad((enum qm_case_result)i) ? r->count[i] : 0;
    return sum;
}

/* Prints the first failure at once, because --forever has no table at its end. */
static void note_first(const struct qm_kernel_run *r, double seconds)
{
    const struct qm_kernel_case *c = &r->cases[r->n_cases - 1];
    qm_note("first failure, after %.1f s: %s %s: %s", seconds, c->name,
            qm_case_result_name(c->result), c->text ? c->text : "");
}

static qm_status all_cases(struct worker *s, struct qm_regimes *regimes)
{
    struct qm_kernel_run *r = s->r;
    struct qm_progress progress;
    struct qm_case c;
    char name[QM_CASE_TEXT];
    double from = qm_seconds();
    int total = 0;
    qm_status st = QM_OK;
    if (r->o->one_case && is_large_index(r->o->one_case))
        return one_case(s, QM_LARGE_INDEX_CASE, r->seed);
    if (r->o->one_case) {
        QM_TRY(qm_case_parse(r->o->one_case, &c));
        return one_case(s, qm_case_print(&c, name), r->seed);
    }
    qm_regimes_draw_for(regimes, &r->subject.recipe);
    for (int64_t i = 0; !r->o->forever && i < qm_regimes_count(regimes); i++) {
        c = qm_regimes_at(regimes, r->seed, i);
        total += qm_regimes_take(regimes, &c);
    }
    if (total == 0 && !r->o->forever)
        return qm_fail(QM_NO_MATCH, "no case has these regimes together");
    qm_progress_start(&progress, "check", r->o->forever ? 0 : total);
    for (int64_t i = 0; st == QM_OK && i < qm_regimes_count(regimes); i++) {
        c = qm_regimes_at(regimes, r->seed, i);
        if (!qm_regimes_take(regimes, &c))
            continue;
        if (is_over(r, from)) {
            if (r->o->forever)
                break;
            r->left_out++;
            continue;
        }
        int64_t bad = bad_cases(r);
        st = one_case(s, qm_case_print(&c, name), r->o->forever ? r->seed + (uint64_t)i : r->seed);
        if (st == QM_OK && (r->last == QM_CASE_passed || r->last == QM_CASE_failed))
            qm_coverage_add(&r->coverage, &regimes->domain, &c);
        if (bad == 0 && bad_cases(r) > 0)
            note_first(r, qm_seconds() - from);
        qm_progress_add(&progress, 1, bad_cases(r) - bad);
    }
    if (st == QM_OK && qm_kernel_is_cuda(r->o->file) && !r->o->on_gpu && r->o->n_regimes == 0 &&
        !r->o->forever && !is_over(r, from))
        st = one_case(s, QM_LARGE_INDEX_CASE, r->seed);
    qm_progress_end(&progress);
    r->covered = qm_coverage_json(&r->coverage, &regimes->domain);
    if (st == QM_INTERRUPTED) {
        r->interrupted = 1;
        st = QM_OK;
    }
    return st;
}

/* Times both kernels, where possible; a kernel that fails cases is timed too. */
static void time_both(struct worker *s)
{
    char why[400];
    int old;
    json_t *reply = NULL, *request;
    struct qm_child_limits limits = s->r->o->limits;
    if (!s->r->o->against || s->r->hangs || stop || worker_up(s) != QM_OK)
        return;
    limits.seconds += 4.0;
    request = json_pack("{s:s, s:I, s:f}", "do", "speed", "n", (json_int_t)SPEED_N, "limit", 2.0);
    if (qm_child_ask(&s->child, request, &limits, &reply, why, sizeof why, &old) != QM_END_answered)
        return;
    if (json_object_get(reply, "new"))
        s->r->speed = json_incref(reply);
    s->r->speed_n = SPEED_N;
    json_decref(reply);
}

static qm_status run_with(struct qm_kernel_run *r, const struct qm_kernel_files *f)
{
    struct qm_regimes regimes;
    struct worker s = {.r = r};
    QM_TRY(qm_regimes_of(r->o, &regimes));
    s.job = json_pack("{s:s, s:s?, s:s?}", "object", f->object, "as", r->o->as, "against",
                      r->o->against ? f->old_object : NULL);
    qm_status st = worker_up(&s);
    if (st == QM_CHECK_FAILED) { /* loading the kernel crashes: no case can run */
        struct qm_kernel_case c = {.result = QM_CASE_crashed, .text = strdup(qm_message())};
        snprintf(c.name, sizeof c.name, "load");
        st = keep(r, &c);
    } else if (st == QM_OK) {
        st = all_cases(&s, &regimes);
        if (st == QM_OK)
            time_both(&s);
        qm_judge_end(&r->subject, &r->tally);
    }
    qm_child_stop(&s.child);
    json_decref(s.job);
    return st;
}

qm_status qm_kernel_run(const struct qm_kernel_options *o, struct qm_kernel_run *r)
{
    struct sigaction act = {.sa_handler = on_signal}, was_int, was_term;
    struct qm_kernel_files f;
    double from = qm_seconds();
    memset(r, 0, sizeof *r);
    r->o = o;
    r->seed = o->seed;
    if (o->forever && !o->has_seed) {
        if (getrandom(&r->seed, sizeof r->seed, 0) != sizeof r->seed)
            r->seed = (uint64_t)(1e9 * from);
        r->seed >>= 24; /* short enough to be typed */
    }
    stop = 0;
    sigemptyset(&act.sa_mask);
    sigaction(SIGINT, &act, &was_int);
    sigaction(SIGTERM, &act, &was_term);
    qm_status st = qm_kernel_files_open(o, &f);
    if (st == QM_OK)
        st = run_with(r, &f);
    qm_kernel_files_close(&f);
    sigaction(SIGINT, &was_int, NULL);
    sigaction(SIGTERM, &was_term, NULL);
    r->interrupted |= stop != 0;
    r->seconds = qm_seconds() - from;
    return st;
}

void qm_kernel_run_free(struct qm_kernel_run *r)
{
    for (int i = 0; i < r->n_cases; i++)
        free(r->cases[i].text);
    free(r->cases);
    json_decref(r->speed);
    json_decref(r->covered);
    memset(r, 0, sizeof *r);
}

int qm_kernel_run_passed(const struct qm_kernel_run *r)
{
    return bad_cases(r) == 0 && r->count[QM_CASE_passed] > 0 && qm_tally_passed(&r->tally);
}
