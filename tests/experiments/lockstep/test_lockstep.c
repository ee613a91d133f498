/* test_lockstep.c - Couplings against hand computation, recorded files, threads,
 * published tables. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <hdf5_hl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "experiments/run/summary.h"
#include "experiments/source/tensor_class.h"

enum { ROWS = 8, COLS = 32, N = ROWS * COLS, STEPS = 6 };

static char suite_path[] = "/tmp/qm_lockstep_XXXXXX", data_path[64];

/* ---- a recorded file of our own -------------------------------------------------------------- */

static float exp_avg[N], exp_avg_sq[N], grad[STEPS * N], param[N], lion_avg[N];

static void write_dataset(hid_t at, const char *name, int rank, const hsize_t *dims, const float *x)
{
    assert_true(H5LTmake_dataset_float(at, name, rank, dims, x) >= 0);
}

static hid_t group(hid_t at, const char *name)
{
    hid_t g = H5Gcreate2(at, name, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    assert_true(g >= 0);
    return g;
}

static void write_number(hid_t at, const char *name, double x)
{
    assert_true(H5LTset_attribute_double(at, ".", name, &x, 1) >= 0);
}

static void write_data(void)
{
    hsize_t dims[3] = {STEPS, ROWS, COLS};
    for (int i = 0; i < STEPS * N; i++)
        grad[i] = sinf(0.37f * (float)i + 0.1f) * expf(-0.01f * (float)(i % 97));
    for (int i = 0; i < N; i++) {
        param[i] = cosf((float)i);
        exp_avg[i] = sinf((float)(i * i)) * 1e-3f;
        lion_avg[i] = exp_avg[i] * 100;
        exp_avg_sq[i] = 1e-6f * (1.5f + sinf((float)(3 * i)));
    }
    hid_t f = H5Fcreate(data_path, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    hid_t run = group(f, "run"), state = group(run, "s000005"), trace = group(run, "trace");
    hid_t w = group(state, "w"), small = group(state, "small"), tw = group(trace, "w");
    assert_true(H5LTset_attribute_string(run, ".", "optimizer", "adamw") >= 0);
    write_number(run, "beta1", 0.8);
    write_number(run, "beta2", 0.9);
    write_number(run, "eps", 1e-8);
    write_number(state, "lr", 0.25);
    write_number(trace, "first_step", 11);
    write_number(tw, "weight_decay", 0.5);
    write_dataset(w, "exp_avg", 2, dims + 1, exp_avg);
    write_dataset(w, "exp_avg_sq", 2, dims + 1, exp_avg_sq);
    write_dataset(w, "grad", 2, dims + 1, grad);
    write_dataset(w, "param", 2, dims + 1, param);
    hsize_t three = 3;
    write_dataset(small, "exp_avg", 1, &three, exp_avg);
    write_dataset(tw, "grad", 3, dims, grad);
    write_dataset(tw, "param_init", 2, dims + 1, param);
    write_dataset(tw, "exp_avg_init", 2, dims + 1, exp_avg);
    write_dataset(tw, "exp_avg_sq_init", 2, dims + 1, exp_avg_sq);
    hid_t lion = group(f, "run_lion"), lion_state = group(lion, "s000005");
    hid_t of_lion = group(lion_state, "of_lion");
    assert_true(H5LTset_attribute_string(lion, ".", "optimizer", "lion") >= 0);
    write_number(lion, "beta1", 0.8);
    write_number(lion, "beta2", 0.9);
    write_number(lion_state, "lr", 0.25);
    write_dataset(of_lion, "exp_avg", 2, dims + 1, lion_avg);
    write_dataset(of_lion, "grad", 2, dims + 1, grad);
    double lr[STEPS] = {0.1, 0.1, 0.1, 0.05, 0.05, 0.05};
    hsize_t steps = STEPS;
    assert_true(H5LTmake_dataset_double(trace, "lr", 1, &steps, lr) >= 0);
    hid_t all[] = {tw, small, w, trace, state, run, of_lion, lion_state, lion};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        H5Gclose(all[i]);
    H5Fclose(f);
}

static int make_files(void **state)
{
    (void)state;
    int fd = mkstemp(suite_path);
    if (fd < 0)
        return -1;
    close(fd);
    snprintf(data_path, sizeof data_path, "%s.h5", suite_path);
    write_data();
    return 0;
}

static int drop_files(void **state)
{
    (void)state;
    return unlink(suite_path) | unlink(data_path);
}

/* ---- a suite, run ---------------------------------------------------------------------------- */

struct ran {
    struct qm_suite *s;
    struct qm_replay *replay;
    struct qm_results r;
};

static void open_and_run(const char *text, char *glob, int threads, struct ran *out)
{
    FILE *f = fopen(suite_path, "w");
    struct qm_cell *cells;
    int64_t n;
    memset(out, 0, sizeof *out);
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
    if (qm_suite_read(suite_path, &out->s) != QM_OK)
        fail_msg("%s", qm_message());
    if (qm_suite_wants_data(out->s) && qm_replay_open(&glob, 1, &out->replay) != QM_OK)
        fail_msg("%s", qm_message());
    if (qm_suite_cells(out->s, out->replay, &cells, &n) != QM_OK)
        fail_msg("%s", qm_message());
    for (int64_t i = 0; i < n; i++)
        if (cells[i].recorded)
            assert_int_equal(qm_replay_load(out->replay, cells[i].recorded), QM_OK);
    if (qm_results_run(out->s, cells, n, threads, 0, NULL, &out->r) != QM_OK)
        fail_msg("%s", qm_message());
}

static void run_text(const char *text, struct ran *out) { open_and_run(text, data_path, 2, out); }

static void release(struct ran *a)
{
    struct qm_cell *cells = a->r.cell;
    qm_results_free(&a->r);
    free(cells);
    qm_replay_close(a->replay);
    qm_suite_free(a->s);
}

static double value(const struct ran *a, int64_t cell, const char *name)
{
    int i = qm_value_find(name);
    assert_true(i >= 0);
    if (a->r.outcome[cell].reason)
        fail_msg("cell %d was skipped: %s", (int)cell, a->r.outcome[cell].reason);
    return a->r.outcome[cell].value[i];
}

static int close_to(double x, double want, double relative)
{
    return fabs(x - want) <= relative * fabs(want);
}

/* ---- recorded data --------------------------------------------------------------------------- */

static void test_replay(void **state)
{
    struct qm_replay *r;
    char *globs[] = {data_path, data_path}, *none[] = {"/dev/null/*.h5"};
    (void)state;
    assert_int_equal(qm_replay_open(none, 1, &r), QM_NO_MATCH);
    assert_int_equal(qm_replay_open(globs, 2, &r), QM_OK);
    assert_int_equal(qm_replay_count(r), 4);
    struct qm_recorded *small = qm_replay_at(r, 0), *w = qm_replay_at(r, 1),
                       *t = qm_replay_at(r, 2);
    assert_string_equal(small->name, "run/s000005/small");
    assert_string_equal(w->name, "run/s000005/w");
    assert_string_equal(t->name, "run/trace/w");
    assert_string_equal(w->group, "run/s000005");
    assert_string_equal(w->tensor, "w");
    assert_string_equal(w->optimizer, "adamw");
    assert_int_equal(w->first_step, 5);
    assert_int_equal(w->n_steps, 1);
    assert_true(w->hyper.beta1 == 0.8 && w->hyper.beta2 == 0.9 && w->hyper.lr == 0.25);
    assert_false(small->has_grad || small->has_slot[1]);
    assert_true(t->is_trace && t->has_slot[0] && t->has_slot[1] && t->has_param);
    assert_int_equal(t->first_step, 11);
    assert_int_equal(t->n_steps, STEPS);
    assert_int_equal(t->shape.rank, 2);
    assert_int_equal(t->numel, N);
    assert_true(t->hyper.weight_decay == 0.5);
    assert_int_equal(qm_replay_load(r, w), QM_OK);
    assert_int_equal(qm_replay_load(r, t), QM_OK);
    assert_true(w->lr[0] == 0.25 && t->lr[2] == 0.1 && t->lr[3] == 0.05);
    assert_memory_equal(w->slot[1], exp_avg_sq, sizeof exp_avg_sq);
    assert_memory_equal(t->grad, grad, sizeof grad);
    assert_memory_equal(t->param, param, sizeof param);
    qm_replay_close(r);
}

static double db_of(const double *want, const double *got, int n)
{
    double signal = 0, noise = 0;
    for (int i = 0; i < n; i++) {
        signal += want[i] * want[i];
        noise += (got[i] - want[i]) * (got[i] - want[i]);
    }
    return 10 * log10(signal / noise);
}

/* State and update SQNR by the definition, with the codec alone. */
static void test_oneshot(void **state)
{
    struct ran a;
    struct qm_codec codec;
    struct qm_shape shape = {.rank = 2, .dim = {ROWS, COLS}};
    uint8_t codes[N];
    float scales[N], got[N];
    double want[N], decoded[N], update[N], got_update[N];
    (void)state;
    run_text("variant: adamw4_ao\nsource: \"states:*/w\"\nslot: [exp_avg, exp_avg_sq]\n"
             "exp_avg: \"nf4:4s/block:64/bisect/mid/lo\"\n"
             "exp_avg_sq: \"lin:4u/rank1/bisect/mid/lo\"\n",
             &a);
    assert_int_equal(a.r.n_cells, 2);
    for (int s = 0; s < 2; s++) {
        const float *x = s ? exp_avg_sq : exp_avg;
        const char *text = s ? "lin:4u/rank1/bisect/mid/lo" : "nf4:4s/block:64/bisect/mid/lo";
        assert_int_equal(qm_codec_parse(&codec, text), QM_OK);
        assert_int_equal(qm_encode(&codec, &shape, x, NULL, codes, scales), QM_OK);
        qm_decode(&codec, &shape, codes, scales, got);
        double correction = 1 - pow(0.9, 4); /* the state before update 5 */
        for (int i = 0; i < N; i++) {
            double m = (double)exp_avg[i], v = (double)exp_avg_sq[i];
            want[i] = (double)x[i];
            decoded[i] = (double)got[i];
            update[i] = m / (sqrt(v / correction) + 1e-8);
            got_update[i] = s ? m / (sqrt(decoded[i] / correction) + 1e-8)
                              : decoded[i] / (sqrt(v / correction) + 1e-8);
        }
        assert_true(close_to(value(&a, s, "sqnr"), db_of(want, decoded, N), 1e-12));
        assert_true(close_to(value(&a, s, "step_sqnr"), db_of(update, got_update, N), 1e-12));
        assert_true(
            close_to(a.r.outcome[s].bits, 4 + 32.0 * (s ? ROWS + COLS : N / 64) / N, 1e-12));
    }
    release(&a);
}

static int sign(double x) { return (x > 0) - (x < 0); }

/* Lion's update also uses the recorded gradient; other rules have no update on such a record. */
static void test_oneshot_lion(void **state)
{
    struct ran a;
    float got[N], scales[N];
    uint8_t codes[N];
    struct qm_codec codec;
    struct qm_shape shape = {.rank = 2, .dim = {ROWS, COLS}};
    int other = 0;
    (void)state;
    run_text("variant: [ema4_uniform, lion_f32]\nsource: \"states:run_lion/*\"\n"
             "exp_avg: \"int:4s/block:64/arith/even\"\n",
             &a);
    assert_int_equal(qm_codec_parse(&codec, "int:4s/block:64/arith/even"), QM_OK);
    assert_int_equal(qm_encode(&codec, &shape, lion_avg, NULL, codes, scales), QM_OK);
    qm_decode(&codec, &shape, codes, scales, got);
    for (int i = 0; i < N; i++) {
        double fresh = (1 - 0.8) * (double)grad[i];
        other += sign(0.8 * (double)lion_avg[i] + fresh) != sign(0.8 * (double)got[i] + fresh);
    }
    assert_true(other > 0 && isnan(value(&a, 0, "step_sign")));
    assert_true(value(&a, 1, "step_sign") == (double)other / N);
    release(&a);
}

/* Updates measured in the parameter, for rules whose states do not give them: the sign for
 * Lion, the gradient for the first step of SGD, which is lambda_i = 1e4^(-i/63) on quad's start
 * of ones. */
static void test_updates_made(void **state)
{
    struct ran a;
    double squares = 0;
    (void)state;
    run_text("variant: [lion_f32, sgdm_f32]\nsource: \"problem:quad:n=64\"\n"
             "coupling: [local, closed]\nweight_decay: 0\nsteps: 1\nlr: 0.125\n",
             &a);
    for (int i = 0; i < 64; i++)
        squares += pow(1e4, -2.0 * i / 63.0) / 64;
    assert_int_equal(a.r.n_cells, 4);
    for (int64_t i = 0; i < 4; i++) {
        int is_lion = strcmp(a.r.cell[i].recipe->rule->family, "lion") == 0;
        assert_true(close_to(value(&a, i, "step_rms"), is_lion ? 1.0 : sqrt(squares), 1e-5));
        assert_true(value(&a, i, "step_sqnr") > 100);
    }
    release(&a);
}

static void test_theory(void **state)
{
    struct ran a;
    (void)state;
    run_text("variant: ema4_uniform\nsource: [\"dist:gauss\", \"dist:laplace\", \"dist:uniform\"]\n"
             "exp_avg: [\"int:4s/block:64/arith/even\", \"nf4:4s/block:64\", "
             "\"nf4a8:4s/block:64/ladder\"]\nn: 65536\n",
             &a);
    for (int64_t i = 0; i < a.r.n_cells; i++) {
        assert_true(fabs(value(&a, i, "theory_z")) < 5);
        assert_true(fabs(10 * log10(value(&a, i, "theory_nmse")) + value(&a, i, "sqnr")) < 0.2);
    }
    release(&a);
    /* second moments, stochastic rounding, a floor that is never met */
    run_text("variant: adamw_f32\nslot: exp_avg_sq\nsource: [\"dist:chi2\", \"dist:chi2:4\", "
             "\"dist:ema2:0.9\", \"dist:lognormal\"]\nexp_avg_sq: [\"lin:4u/block:64/bisect/mid\", "
             "\"dyn:8u/block:64/bisect/stoch\", \"lint:4u/block:64/arith/even/floor:1e-12\"]\n"
             "n: 65536\nsummary:\n  - {name: a, by: source, across: exp_avg_sq, value: sqnr}\n"
             "  - {name: b, by: source, value: collapse}\n",
             &a);
    for (int64_t i = 0; i < a.r.n_cells; i++)
        if (!(fabs(value(&a, i, "theory_z")) < 5))
            fail_msg("cell %d: %g standard errors", (int)i, value(&a, i, "theory_z"));
    release(&a);
    /* a floor that is met: no theory */
    run_text("variant: ema4_uniform\nsource: \"dist:gauss\"\n"
             "exp_avg: [\"nf4:4s/block:64/floor:1\"]\nn: 4096\n",
             &a);
    assert_true(isnan(value(&a, 0, "theory_z")));
    release(&a);
}

/* The average by hand: the variant's after each recorded gradient, and the exact one. */
static void test_trace(void **state)
{
    struct ran a;
    double exact[N], got[N];
    float held[N], scales[N];
    uint8_t codes[N];
    struct qm_codec codec;
    struct qm_shape shape = {.rank = 2, .dim = {ROWS, COLS}};
    (void)state;
    run_text("variant: ema4_uniform\nsource: \"trace:*\"\ncoupling: [global, local]\n"
             "exp_avg: \"nf4:4s/block:64/bisect/mid\"\nexp_avg.min_numel: 0\nevery: 2\n",
             &a);
    assert_int_equal(qm_codec_parse(&codec, "nf4:4s/block:64/bisect/mid"), QM_OK);
    assert_int_equal(qm_encode(&codec, &shape, exp_avg, NULL, codes, scales), QM_OK);
    qm_decode(&codec, &shape, codes, scales, held);
    for (int i = 0; i < N; i++)
        exact[i] = (double)exp_avg[i];
    for (int t = 0; t < STEPS; t++) {
        for (int i = 0; i < N; i++) {
            double g = (double)grad[t * N + i];
            exact[i] = 0.8 * exact[i] + (1 - 0.8) * g;
            held[i] = (float)(0.8 * (double)held[i] + (1 - 0.8) * g);
        }
        assert_int_equal(qm_encode(&codec, &shape, held, NULL, codes, scales), QM_OK);
        qm_decode(&codec, &shape, codes, scales, held);
    }
    for (int i = 0; i < N; i++)
        got[i] = (double)held[i];
    double want =
        db_of(exact, got, N); /* decisions at a float's distance may differ: a wide bound */
    assert_true(fabs(value(&a, 0, "sqnr") - want) < 0.3);
    assert_true(fabs(value(&a, 0, "state0_sqnr") - value(&a, 0, "sqnr")) < 1e-9);
    assert_int_equal(a.r.outcome[0].n_points, 3);
    assert_true(a.r.outcome[0].track[QM_TRACK_step][2] == STEPS);
    assert_true(value(&a, 1, "sqnr") > value(&a, 0, "sqnr")); /* one step errs less than six */
    assert_int_equal((int64_t)value(&a, 1, "count"), 3 * N);
    release(&a);
}

/* Float32 states follow the twin to float precision, with the run's own lr, decay and step. */
static void test_full_precision(void **state)
{
    struct ran a;
    (void)state;
    run_text("variant: adamw_f32\nsource: [\"trace:*\", \"states:*/w\", \"problem:quad:n=64\"]\n"
             "coupling: [local, global]\nsteps: 20\n",
             &a);
    for (int64_t i = 0; i < a.r.n_cells; i++) {
        assert_true(value(&a, i, "state0_sqnr") > 100);
        assert_true(value(&a, i, "state1_sqnr") > 100);
        if (a.r.cell[i].coupling == QM_COUPLING_global)
            assert_true(value(&a, i, "param_sqnr") > 100);
    }
    assert_int_equal(a.r.outcome[0].steps, STEPS); /* a trace is not replayed beyond its end */
    release(&a);
}

static void test_closed(void **state)
{
    struct ran a;
    (void)state;
    run_text("variant: [adamw_f32, adamw4_ao]\nsource: \"problem:quad:n=256,layout=dct\"\n"
             "coupling: closed\nweight_decay: 0\nexp_avg.min_numel: 0\nexp_avg_sq.min_numel: 0\n"
             "steps: 60\nevery: 20\n",
             &a);
    assert_true(fabs(value(&a, 0, "loss_ratio")) < 1e-4);
    assert_true(value(&a, 0, "twin_loss") == value(&a, 1, "twin_loss")); /* the twin is the same */
    assert_true(fabs(value(&a, 1, "loss_ratio")) > 1e-3);
    const struct qm_outcome *o = &a.r.outcome[1];
    assert_int_equal(o->n_points, 4);
    assert_true(o->track[QM_TRACK_loss][0] == o->track[QM_TRACK_twin_loss][0]);
    assert_true(o->track[QM_TRACK_loss][3] < 0.9 * o->track[QM_TRACK_loss][0]);
    assert_true(close_to(value(&a, 1, "loss_ratio"),
                         log10(o->track[QM_TRACK_loss][3] / o->track[QM_TRACK_twin_loss][3]),
                         1e-12));
    assert_true(o->bits > 8 && o->bits < 12);
    release(&a);
}

static void test_divergence(void **state)
{
    struct ran a;
    (void)state;
    run_text("variant: adamw4_ao\nsource: \"problem:quad:n=256\"\ncoupling: closed\nlr: 1e6\n"
             "weight_decay: 0\nsteps: 50\n",
             &a);
    assert_true(a.r.outcome[0].diverged && a.r.outcome[0].steps < 50);
    assert_string_equal(qm_outcome_status(&a.r.outcome[0]), "diverged");
    release(&a);
}

static void test_run_refusals(void **state)
{
    struct ran a;
    (void)state;
    run_text("variant: [adamw4_ao, ema4_nf4]\nsource: [\"states:*/small\", \"trace:*\"]\n"
             "coupling: [local, oneshot]\nlr: 0.1\nslot: exp_avg\n",
             &a);
    static const char *const words[] = {
        "recorded no",      "no effect here",   "own lr",           "oneshot needs",
        "does not read it", "does not read it", "does not read it", "does not read it",
    };
    for (int64_t i = 0; i < a.r.n_cells; i++) {
        const char *why = a.r.outcome[i].reason;
        if (words[i] ? !why || !strstr(why, words[i]) : why != NULL)
            fail_msg("cell %d: '%s'", (int)i, why ? why : "(ran)");
    }
    release(&a);
}

/* ---- threads, interruption, the real tables -------------------------------------------------- */

static const char mixed[] =
    "variant: [ema4_nf4, adamw4_ao]\nsource: [\"states:*/w\", \"dist:student:3\", "
    "\"problem:nqm:n=64\"]\ncoupling: [oneshot, global, closed]\nseed: [1, 2]\nn: 2048\nsteps: 9\n"
    "exp_avg.round: [mid, stoch]\nexp_avg.search: bisect\nexp_avg.min_numel: 0\n";

static void test_threads(void **state)
{
    struct ran a, b;
    (void)state;
    open_and_run(mixed, data_path, 1, &a);
    open_and_run(mixed, data_path, 4, &b);
    assert_int_equal(a.r.n_cells, b.r.n_cells);
    int seeds_differ = 0;
    for (int64_t i = 0; i < a.r.n_cells; i++) {
        const struct qm_outcome *x = &a.r.outcome[i], *y = &b.r.outcome[i];
        assert_memory_equal(x->value, y->value, (size_t)qm_value_count() * sizeof(double));
        assert_int_equal(x->n_points, y->n_points);
        for (int t = 0; t < QM_TRACK_COUNT && x->n_points; t++)
            assert_memory_equal(x->track[t], y->track[t], (size_t)x->n_points * sizeof(double));
        if (a.r.cell[i].recipe->slot[0].round == QM_ROUND_stoch && !x->reason && i >= 2 &&
            a.r.cell[i].seed == 2)
            seeds_differ |= memcmp(x->value, a.r.outcome[i - 2].value,
                                   (size_t)qm_value_count() * sizeof(double)) != 0;
    }
    assert_true(seeds_differ);
    release(&a);
    release(&b);
}

static void test_stop(void **state)
{
    struct ran a;
    struct qm_results r;
    volatile sig_atomic_t stop = 1;
    (void)state;
    run_text("variant: adamw_f32\nsource: problem:quad\ncoupling: closed\nsteps: 3\n", &a);
    assert_int_equal(qm_results_run(a.s, a.r.cell, a.r.n_cells, 2, 0, &stop, &r), QM_INTERRUPTED);
    release(&a);
}

/* The published tables of the recorded data, where the data exist: medians to the printed digit. */
static void test_real(void **state)
{
    char glob[512];
    const char *shared = getenv("QM_SHARED");
    struct ran a;
    (void)state;
    snprintf(glob, sizeof glob, "%s/data/real/*.h5", shared ? shared : "../shared");
    char *globs[] = {glob};
    struct qm_replay *probe;
    if (qm_replay_open(globs, 1, &probe) != QM_OK)
        skip();
    qm_replay_close(probe);
    open_and_run("variant: ema4_uniform\nsource: \"states:*\"\nmin_numel: 128\n"
                 "exp_avg: [\"int:4s/block:128/arith/even\", \"nf4:4s/block:128\", "
                 "\"nf4a8:4s/block:128/argmin\", \"nf4a8:4s/block:128/ladder\"]\n"
                 "summary:\n"
                 "  - {by: exp_avg, value: [sqnr, step_sqnr]}\n"
                 "  - {by: [class, exp_avg], value: sqnr}\n",
                 glob, 2, &a);
    static const double want[4][2] = {{18.5, 15.8}, {20.2, 18.9}, {20.0, 18.5}, {19.6, 18.4}};
    static const int classes[9] = {5, 5, 14, 10, 10, 27, 15, 30, 0};
    struct qm_summary *t;
    assert_int_equal(qm_summary_make(&a.r, &a.s->summary[0], &t), QM_OK);
    for (int row = 0; row < 4; row++) {
        assert_int_equal(qm_summary_n(t, row), 116);
        for (int v = 0; v < 2; v++)
            assert_true(fabs(qm_summary_value(t, row, v, 0) - want[row][v]) <= 0.05);
    }
    qm_summary_free(t);
    assert_int_equal(qm_summary_make(&a.r, &a.s->summary[1], &t), QM_OK);
    for (int row = 0; row < qm_summary_rows(t); row++)
        for (int k = 0; k < qm_tensor_class_count(); k++)
            if (strcmp(qm_summary_key(t, row, 0), qm_tensor_class_at(k)) == 0)
                assert_int_equal(qm_summary_n(t, row), classes[k]);
    assert_int_equal(qm_summary_rows(t), 8 * 4);
    qm_summary_free(t);
    release(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_replay),
                                       cmocka_unit_test(test_oneshot),
                                       cmocka_unit_test(test_oneshot_lion),
                                       cmocka_unit_test(test_updates_made),
                                       cmocka_unit_test(test_theory),
                                       cmocka_unit_test(test_trace),
                                       cmocka_unit_test(test_full_precision),
                                       cmocka_unit_test(test_closed),
                                       cmocka_unit_test(test_divergence),
                                       cmocka_unit_test(test_run_refusals),
                                       cmocka_unit_test(test_threads),
                                       cmocka_unit_test(test_stop),
                                       cmocka_unit_test(test_real)};
    return cmocka_run_group_tests(tests, make_files, drop_files);
}
