/* run.c - Runs the cases of a kernel check on several processes, joins their results in order. */
#include <math.h>
#include <omp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/user_kernel/large_index.h"
#include "experiments/check/specials_table.h"
#include "experiments/cli/cli.h"
#include "experiments/kernel/extra_cases.h"
#include "experiments/kernel/far_case.h"
#include "experiments/kernel/files.h"
#include "experiments/kernel/kernel.h"
#include "experiments/kernel/regime.h"
#include "experiments/kernel/speed.h"
#include "experiments/kernel/template.h"

/* FAR_AFTER: cases before the one with large indices, which takes longest. */
enum { MOST_THREADS = 16, AHEAD = 256, FAR_AFTER = 32, WAIT_US = 200 };

static volatile int stop;

static void on_signal(int sig)
{
    (void)sig;
    stop = 1;
}

/* ---- one case -------------------------------------------------------------------------------- */

/* The result of a case, until those before it are there too. */
struct result {
    struct qm_kernel_case c;
    struct qm_case which;
    int is_excused; /* 1: refused, as the shipped template refuses it */
    struct qm_tally tally;
    struct qm_kernel_compare_count compared[QM_MAX_SLOTS + 1];
    char old_trouble[400], not_far[400];
    qm_status status; /* not QM_OK: a failure that is not the kernel's, or an interruption */
    char why[400];
};

/* One judging thread with its processes, in each form that is judged; NULL: not that form, or no
 * --against. */
struct judge {
    struct qm_kernel_run *r;
    struct qm_kernel_file *now[QM_FMADS], *old[QM_FMADS];
    struct qm_subject subject;
    struct qm_template *template;
};

static void judge_close(struct judge *j)
{
    for (int i = 0; i < QM_FMADS; i++) {
        qm_kernel_file_close(j->now[i]);
        qm_kernel_file_close(j->old[i]);
    }
}

static qm_status judge_open(struct judge *j, const struct qm_kernel_files *f)
{
    struct qm_host_limits limits = j->r->o->limits;
    limits.stop = &stop;
    j->subject = j->r->subject;
    for (int i = 0; i < QM_FMADS; i++) {
        if (*f[i].object)
            QM_TRY(qm_kernel_file_apart(f[i].object, &limits, &j->now[i]));
        if (*f[i].old_object)
            QM_TRY(qm_kernel_file_apart(f[i].old_object, &limits, &j->old[i]));
    }
    return QM_OK;
}

static void judge_case(struct judge *j, const struct qm_case *c, struct result *out)
{
    struct qm_kernel_verdict *v = calloc(1, sizeof *v);
    struct qm_kernel_file *now = j->now[out->c.form], *old = j->old[out->c.form];
    double from = qm_seconds();
    qm_status st = v ? QM_OK : qm_fail(QM_NO_MEMORY, "a verdict");
    if (st == QM_OK && qm_far_case(out->c.name)) {
        st = qm_far_case_run(j->r, now, &out->c, &out->tally, out->not_far, v);
    } else if (st == QM_OK) {
        j->subject.backend = old ? &qm_backend_compare : &qm_backend_file;
        qm_kernel_compare_begin(now, old);
        if (old)
            qm_host_begin(qm_kernel_file_host(old));
        st = qm_kernel_judge(&j->subject, now, c, out->c.seed, &out->tally, v);
        memcpy(out->compared, qm_kernel_compare_counts(), sizeof out->compared);
    }
    if (old && qm_host_end(qm_kernel_file_host(old)) != QM_END_answered)
        snprintf(out->old_trouble, sizeof out->old_trouble, "%.90s: %.300s", out->c.name,
                 qm_host_why(qm_kernel_file_host(old)));
    if (st == QM_OK && v->how == QM_CASE_refused && !qm_far_case(out->c.name))
        out->is_excused = qm_template_refuses(j->template, c, out->c.seed);
    out->c.seconds = qm_seconds() - from;
    out->status = st;
    snprintf(out->why, sizeof out->why, "%s", st != QM_OK ? qm_message() : "");
    if (st == QM_OK) {
        out->c.result = v->how;
        out->c.slot = v->finding.severity ? v->finding.slot : QM_SLOT_ANY;
        out->c.severity = v->finding.severity;
        out->c.place = v->finding.severity ? v->finding.place : QM_PLACE_NONE;
        out->c.text = *v->text ? strdup(v->text) : NULL;
    }
    free(v);
}

/* ---- results in order ------------------------------------------------------------------------ */

static int64_t bad_cases(const struct qm_kernel_run *r)
{
    int64_t sum = 0;
    for (int i = 0; i < QM_CASE_RESULT_COUNT; i++)
        sum += qm_case_result_is_bad((enum qm_case_result)i) ? r->count[i] : 0;
    return sum;
}

static qm_status keep(struct qm_kernel_run *r, const struct qm_kernel_case *c)
{
    r->count[c->result]++;
    r->forms.bad[c->form] += qm_case_result_is_bad(c->result);
    r->forms.judged[c->form] += c->result != QM_CASE_refused && c->result != QM_CASE_unfit;
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

static void add_compared(struct qm_kernel_run *r, const struct result *x)
{
    for (int i = 0; i <= QM_MAX_SLOTS && !*r->old_trouble; i++) {
        const struct qm_kernel_compare_count *from = &x->compared[i];
        struct qm_kernel_compare_count *to = &r->compared[i];
        to->n += from->n;
        to->codes += from->codes;
        to->scales += from->scales;
        to->values += from->values;
        to->steps += from->steps;
        to->better += from->better;
        to->worse += from->worse;
        to->error_new += from->error_new;
        to->error_old += from->error_old;
    }
    if (!*r->old_trouble)
        memcpy(r->old_trouble, x->old_trouble, sizeof r->old_trouble);
}

/* The cases of a run and the results that wait for those before them. */
struct cases {
    struct qm_kernel_run *r;
    struct qm_regimes *regimes;
    struct qm_progress progress;
    double from;
    int64_t next, given, merged; /* index of the next case; cases given out and joined */
    int is_far_left;             /* 1: the case with large indices is still to come */
    struct qm_extra_cases extra;
    int form; /* of the last case given out; QM_FMADS: all its forms are */
    struct qm_case last;
    struct qm_kernel_case last_as;
    struct result *waiting[AHEAD];
    qm_status status;
    char why[400];
};

/* Joins one result to the run.  Results behind the third hang are left out, so that the report does
 * not depend on the number of threads. */
static void join(struct cases *all, struct result *x)
{
    struct qm_kernel_run *r = all->r;
    int64_t bad = bad_cases(r);
    if (all->status == QM_OK && x->status != QM_OK) {
        all->status = x->status;
        memcpy(all->why, x->why, sizeof all->why);
    }
    if (all->status != QM_OK || r->hangs >= QM_HANGS) {
        r->left_out += all->status == QM_OK;
        free(x->c.text);
        return;
    }
    qm_tally_merge(&r->tally, &x->tally);
    add_compared(r, x);
    r->hangs += x->c.result == QM_CASE_hung;
    r->excused += x->is_excused;
    if ((x->c.result == QM_CASE_passed || x->c.result == QM_CASE_failed) && x->which.t > 0)
        qm_coverage_add(&r->coverage, &all->regimes->domain, &x->which);
    if (x->c.result == QM_CASE_refused && x->which.t > 0)
        qm_coverage_refuse(&r->coverage, &all->regimes->domain, &x->which);
    if (*x->not_far)
        memcpy(r->not_far, x->not_far, sizeof r->not_far);
    all->status = keep(r, &x->c);
    if (bad == 0 && bad_cases(r) > 0) /* at once, because --forever has no table at its end */
        qm_note("first failure, after %.1f s: %s %s: %s", qm_seconds() - all->from, x->c.name,
                qm_case_result_name(x->c.result), x->c.text ? x->c.text : "");
    qm_progress_add(&all->progress, 1, bad_cases(r) - bad);
}

static void put_result(struct cases *all, int64_t at, struct result *x)
{
    all->waiting[at % AHEAD] = x;
    for (; (x = all->waiting[all->merged % AHEAD]); all->merged++) {
        all->waiting[all->merged % AHEAD] = NULL;
        join(all, x);
        free(x);
    }
}

/* ---- all cases ------------------------------------------------------------------------------- */

static int is_over(const struct cases *all)
{
    const struct qm_kernel_run *r = all->r;
    return stop || all->status != QM_OK || r->hangs >= QM_HANGS ||
           (r->o->time > 0.0 && qm_seconds() - all->from >= r->o->time);
}

/* Draws or finds the next case of the run; 0: there are no more, -1: not yet. */
static int find_case(struct cases *all)
{
    const struct qm_kernel_run *r = all->r;
    const char *one = r->o->one_case;
    int64_t i = all->next;
    int is_far = one && qm_far_case(one) > 0;
    all->last_as = (struct qm_kernel_case){.seed = r->seed};
    if (one && all->next++ > 0)
        return 0;
    if (one && !is_far)
        qm_case_parse(one, &all->last); /* all_cases has tried it */
    while (!one) {
        is_far = all->is_far_left && all->next >= FAR_AFTER;
        if (is_far)
            break;
        i = all->next++;
        if (i >= qm_regimes_count(all->regimes)) {
            int found = qm_extra_cases_next(&all->extra, r, &all->regimes->domain,
                                            all->given == all->merged, &all->last);
            if (found < 0) {
                all->next--;
                return -1;
            }
            is_far = !found;
            break;
        }
        all->last = qm_regimes_at(all->regimes, r->seed, i);
        if (qm_regimes_take(all->regimes, &all->last))
            break;
    }
    if (is_far && !one && !all->is_far_left)
        return 0;
    if (is_far)
        all->is_far_left = 0;
    if (r->o->forever && !one)
        all->last_as.seed = r->seed + (uint64_t)i;
    if (is_far)
        snprintf(all->last_as.name, sizeof all->last_as.name, "%lld/far",
                 (long long)(one ? qm_far_case(one) : qm_far_elements(r)));
    else
        qm_case_print(&all->last, all->last_as.name);
    return 1;
}

/* Takes the next case in the next form; returns 0 where there is none.  *at -1: none yet, because
 * the results of too many are waited for. */
static int next_case(struct cases *all, const struct judge *j, struct qm_case *c, int64_t *at,
                     struct qm_kernel_case *out)
{
    *at = -1;
    if (is_over(all))
        return 0;
    if (all->given - all->merged >= AHEAD)
        return 1;
    do
        all->form++;
    while (all->form < QM_FMADS && !j->now[all->form]);
    if (all->form >= QM_FMADS) {
        int found = find_case(all);
        if (found <= 0)
            return found < 0;
        all->form = j->now[0] ? 0 : 1;
    }
    *c = all->last;
    *out = all->last_as;
    out->form = (enum qm_fmad)all->form;
    *at = all->given++;
    return 1;
}

/* Joins what happens to a process after its last case: threads of the kernel that go on. */
static void linger(struct cases *all, struct qm_kernel_file *kernel, enum qm_fmad form)
{
    struct qm_host *host = qm_kernel_file_host(kernel);
    struct qm_finding none = {0};
    struct result *x = calloc(1, sizeof *x);
    struct qm_kernel_verdict *v = calloc(1, sizeof *v);
    qm_host_begin(host);
    if (x && v && qm_host_linger(host) == QM_CHECK_FAILED &&
        qm_kernel_conclude(kernel, QM_CHECK_FAILED, "", &none, v) == QM_OK) {
        x->c = (struct qm_kernel_case){.seed = all->r->seed, .result = v->how, .form = form};
        snprintf(x->c.name, sizeof x->c.name, "after the last case");
        x->c.text = strdup(v->text);
#pragma omp critical(qm_kernel_cases)
        join(all, x);
    }
    free(x);
    free(v);
}

static void run_cases(struct cases *all, struct judge *j)
{
    for (int more = 1; more;) {
        struct qm_case c;
        struct result *x = calloc(1, sizeof *x);
        int64_t at = -1;
#pragma omp critical(qm_kernel_cases)
        {
            more = next_case(all, j, &c, &at, &x->c);
        }
        if (more && at < 0)
            usleep(WAIT_US);
        if (!more || at < 0) {
            free(x);
            continue;
        }
        if (!qm_far_case(x->c.name))
            x->which = c;
        judge_case(j, &c, x);
#pragma omp critical(qm_kernel_cases)
        put_result(all, at, x);
    }
    for (int i = 0; i < QM_FMADS && all->status == QM_OK && !stop; i++)
        if (j->now[i])
            linger(all, j->now[i], (enum qm_fmad)i);
}

static int64_t listed(const struct qm_kernel_run *r, const struct qm_regimes *regimes)
{
    int64_t total = 0;
    for (int64_t i = 0; !r->o->forever && !r->o->one_case && i < qm_regimes_count(regimes); i++) {
        struct qm_case c = qm_regimes_at(regimes, r->seed, i);
        total += qm_regimes_take(regimes, &c);
    }
    return total;
}

static qm_status all_cases(struct qm_kernel_run *r, const struct qm_kernel_files *f,
                           struct judge *first)
{
    struct qm_regimes regimes;
    struct cases all = {.r = r, .regimes = &regimes, .from = qm_seconds(), .form = QM_FMADS};
    const struct qm_shape flat = {1, {QM_FAR_N}};
    struct qm_case c;
    int levels = omp_get_max_active_levels(), threads = omp_get_max_threads();
    QM_TRY(qm_regimes_of(r->o, &regimes));
    if (r->o->one_case && !qm_far_case(r->o->one_case)) {
        char limits[200];
        QM_TRY(qm_case_parse(r->o->one_case, &c));
        qm_case_limits(&c, &r->subject.recipe, limits, sizeof limits);
        if (*limits)
            qm_note("%s", limits);
    }
    qm_regimes_draw_for(&regimes, &r->subject.recipe);
    int64_t total = listed(r, &regimes);
    if (!r->o->one_case && !r->o->forever && total == 0)
        return qm_fail(QM_NO_MATCH, "no case has these regimes together");
    int is_emulated = qm_kernel_is_cuda(r->o->file) && !r->o->on_gpu, forms = 0;
    int is_all = r->o->n_regimes == 0 && !r->o->forever && !r->o->one_case;
    all.is_far_left = is_all && !r->o->on_gpu && (is_emulated || !r->o->quick);
    if (!(is_emulated && is_all) && !(r->o->one_case && qm_far_case(r->o->one_case) == QM_FAR_N))
        snprintf(r->not_far, sizeof r->not_far, "%s",
                 is_emulated    ? "this check is not of all cases"
                 : r->o->on_gpu ? "not tried on a GPU; --backend emu does"
                 : qm_large_index_is_row(&r->subject.recipe)
                     ? "of one row: a check of all cases has 2^24 + 1"
                 : qm_rule_takes(r->subject.recipe.rule, &r->subject.recipe.hyper, &flat) != QM_OK
                     ? qm_message()
                     : "takes a minute; --case " QM_LARGE_INDEX_CASE);
    for (int i = 0; i < QM_FMADS; i++)
        forms += first->now[i] != NULL;
    total = (total + all.is_far_left) * forms;
    threads = r->o->one_case || r->o->on_gpu ? 1 : threads < MOST_THREADS ? threads : MOST_THREADS;
    qm_progress_start(&all.progress, "check", r->o->forever || r->o->one_case ? 0 : total);
    omp_set_max_active_levels(2); /* backend cpu, where the judge asks it */
#pragma omp parallel num_threads(threads)
    {
        struct judge own = {.r = r, .template = first->template},
                     *j = omp_get_thread_num() == 0 ? first : &own;
        qm_status st = j == &own ? judge_open(j, f) : QM_OK;
        if (st == QM_OK)
            run_cases(&all, j);
        judge_close(&own); /* the first has judges enough where this one cannot be opened */
    }
    omp_set_max_active_levels(levels);
    qm_progress_end(&all.progress);
    if (!r->o->one_case)
        r->covered = qm_coverage_json(&r->coverage, &regimes.domain);
    for (int i = 0; i < AHEAD; i++)
        free(all.waiting[i]);
    if (all.status == QM_OK && !r->o->forever && !r->o->one_case)
        r->left_out +=
            total + all.is_far_left > all.given ? total + all.is_far_left - all.given : 0;
    if (all.status == QM_INTERRUPTED) {
        r->interrupted = 1;
        return QM_OK;
    }
    return all.status == QM_OK ? QM_OK : qm_fail(all.status, "%s", all.why);
}

/* ---- the run --------------------------------------------------------------------------------- */

/* Loads a kernel for the first time.  QM_CHECK_FAILED: that ends its process, which is the result
 * of a case "load". */
static qm_status load(struct qm_kernel_run *r, struct qm_kernel_file *kernel, enum qm_fmad form)
{
    struct qm_kernel_case c = {.name = "load", .form = form, .slot = QM_SLOT_ANY};
    struct qm_kernel_verdict v;
    struct qm_finding none = {0};
    char text[QM_VERDICT_TEXT + 64];
    qm_status st = qm_host_up(qm_kernel_file_host(kernel));
    if (st != QM_CHECK_FAILED)
        return st == QM_OK || strstr(qm_message(), r->o->file) ? st : qm_fail_in(st, r->o->file);
    QM_TRY(qm_kernel_conclude(kernel, st, "", &none, &v));
    snprintf(text, sizeof text, "%s while it was loaded: %s", qm_case_result_name(v.how), v.text);
    c.result = v.how;
    c.text = strdup(text);
    QM_TRY(keep(r, &c));
    return qm_fail(QM_CHECK_FAILED, "%s", text);
}

/* Loads the kernels: which recipe is judged?  QM_CHECK_FAILED: no case can run. */
static qm_status begin(struct qm_kernel_run *r, const struct qm_kernel_files *f, struct judge *j)
{
    QM_TRY(judge_open(j, f));
    for (int i = 0; i < QM_FMADS; i++)
        if (j->now[i])
            QM_TRY(load(r, j->now[i], (enum qm_fmad)i));
    int form = j->now[0] ? 0 : 1;
    const char *as = r->o->as ? r->o->as : qm_kernel_file_as(j->now[form]);
    if (!as)
        return qm_fail(QM_BAD_ARG, "the kernel does not say which variant it is; give --as");
    QM_TRY(qm_recipe_parse(as, &r->subject.recipe));
    qm_recipe_print(&r->subject.recipe, r->recipe);
    for (int i = 0; i < QM_FMADS; i++) {
        struct qm_host *host = j->old[i] ? qm_kernel_file_host(j->old[i]) : NULL;
        qm_status st = host ? qm_host_up(host) : QM_OK;
        if (st == QM_CHECK_FAILED)
            st = qm_fail(QM_BAD_ARG, "it ended while it was loaded: %s", qm_host_why(host));
        if (st != QM_OK)
            return qm_fail_in(st, "--against");
    }
    r->subject.backend = &qm_backend_file;
    r->subject.reorder = qm_kernel_freedoms(&r->o->fast);
    qm_kernel_file_use(j->now[form]);
    qm_status st = qm_judge_begin(&r->subject, &r->tally);
    j->subject = r->subject;
    return st;
}

/* Compiles the forms that are judged, and tells where the compiler contracts nothing. */
static qm_status build_forms(struct qm_kernel_run *r, struct qm_kernel_files f[QM_FMADS])
{
    struct qm_kernel_forms *forms = &r->forms;
    int is_cuda = qm_kernel_is_cuda(r->o->file), is_emulated = is_cuda && !r->o->on_gpu;
    forms->has[QM_FMAD_false] = 1; /* of a .c file, its only form */
    qm_kernel_build_wraps(r->o->one_case && qm_far_case(r->o->one_case) > 0);
    if (is_cuda)
        QM_TRY(qm_fmad_asked(r->o->fmad, forms->has));
    QM_TRY(qm_kernel_files_fit(r->o, forms->has));
    if (is_emulated && forms->has[QM_FMAD_true] && forms->has[QM_FMAD_false] &&
        !qm_fmad_emulated()) {
        forms->left_out = "this processor has no fused multiply-add";
        forms->has[QM_FMAD_true] = 0;
    }
    for (int i = 0; i < QM_FMADS; i++) {
        if (!forms->has[i] || (i == QM_FMAD_false && forms->is_same))
            continue;
        qm_fmad_use((enum qm_fmad)i);
        QM_TRY(qm_kernel_files_open(r->o, &f[i]));
        if (!is_emulated || i != QM_FMAD_true)
            continue;
        snprintf(forms->lines, sizeof forms->lines, "%s", f[i].lines);
        forms->is_same = !*forms->lines && forms->has[QM_FMAD_false] && !r->o->against;
    }
    return QM_OK;
}

/* Judges the special values on the first form. */
static qm_status specials(struct qm_kernel_run *r, struct judge *j)
{
    struct qm_kernel_file *kernel = j->now[0] ? j->now[0] : j->now[1];
    int failed = 0;
    r->specials = json_array();
    qm_host_begin(qm_kernel_file_host(kernel));
    qm_kernel_file_use(kernel);
    qm_status st = qm_specials_rows(&r->subject, r->recipe, r->seed, r->specials, &failed);
    if (st == QM_CHECK_FAILED && *qm_host_why(qm_kernel_file_host(kernel)))
        return qm_fail(QM_CHECK_FAILED, "%s: %s",
                       qm_end_name(qm_host_end(qm_kernel_file_host(kernel))),
                       qm_host_why(qm_kernel_file_host(kernel)));
    r->tally.failed_cases += failed;
    return st;
}

static qm_status run_with(struct qm_kernel_run *r, struct qm_kernel_files f[QM_FMADS])
{
    struct judge first = {.r = r};
    struct qm_host_limits limits = r->o->limits;
    limits.stop = &stop;
    QM_TRY(build_forms(r, f));
    QM_TRY(qm_template_open(&r->subject, &limits, &first.template));
    qm_status st = begin(r, f, &first);
    int form = first.now[0] ? 0 : 1;
    if (st == QM_CHECK_FAILED) {
        st = QM_OK;
    } else if (st == QM_OK) {
        st = r->o->specials ? specials(r, &first) : all_cases(r, f, &first);
        if (st == QM_OK && first.old[form] && !r->hangs && !stop)
            qm_kernel_speed(r, first.now[form], first.old[form]);
        qm_judge_end(&r->subject, &r->tally);
    }
    qm_template_close(first.template);
    judge_close(&first);
    return st;
}

qm_status qm_kernel_run(const struct qm_kernel_options *o, struct qm_kernel_run *r)
{
    struct sigaction act = {.sa_handler = on_signal}, was_int, was_term;
    static struct qm_kernel_files f[QM_FMADS];
    double from = qm_seconds();
    memset(r, 0, sizeof *r);
    memset(f, 0, sizeof f);
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
    qm_status st = run_with(r, f);
    for (int i = 0; i < QM_FMADS; i++)
        qm_kernel_files_close(&f[i]);
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
    json_decref(r->specials);
    memset(r, 0, sizeof *r);
}

int qm_kernel_run_failed(const struct qm_kernel_run *r)
{
    return bad_cases(r) > 0 || r->tally.failed_cases > 0 ||
           r->tally.verdict[QM_VERDICT_OFF_BY_ONE] > 0 || r->tally.verdict[QM_VERDICT_WRONG] > 0 ||
           r->count[QM_CASE_refused] - r->excused > r->o->allow_refused;
}

int qm_kernel_run_passed(const struct qm_kernel_run *r)
{
    return !qm_kernel_run_failed(r) && r->count[QM_CASE_passed] > 0 && qm_tally_passed(&r->tally);
}
