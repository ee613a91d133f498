/* walk.c - Runs a routine over all floats, in chunks of keys that do not depend on the threads. */
#include <stdlib.h>

#include "core/quant/search_loops.h"
#include "core/quant/simd.h"
#include "experiments/prove/routine.h"

_Thread_local volatile int64_t qm_walk_at;

enum { CHUNK_BITS = 22, BATCH = 4096, GUARD = 64, POISON = 0xA5 };

/* The floats of keys first .. first + n - 1, which are all below 0 or all at least 0. */
static void floats(int64_t first, int64_t n, float *y)
{
    uint32_t *u = (uint32_t *)y;
    uint32_t base = first < 0 ? 0x80000000u - (uint32_t)(first + 1) : (uint32_t)first;
    uint32_t step = first < 0 ? 0xffffffffu : 1u;
    for (int64_t i = 0; i < n; i++)
        u[i] = base + step * (uint32_t)i;
}

/* Runs the quantizer's loops; NaN, which they do not take, goes through qm_code_of. */
static void run_search(const struct qm_routine *r, const float *y, int64_t n, uint8_t *code)
{
    const struct qm_codec *c = &r->codec;
    if (qm_isnan(y[0]) || qm_isnan(y[n - 1])) {
        for (int64_t i = 0; i < n; i++)
            code[i] = (uint8_t)qm_code_of(c, y[i], 0);
        return;
    }
    int fused = r->q.search == QM_SEARCH_arith && r->q.unit == QM_UNIT_recip;
    if (fused && qm_simd_has_arith(r->q.round))
        qm_simd()->arith(c, y, c->cb.steps, n, code);
    else if (fused)
        for (int64_t i = 0; i < n; i++)
            code[i] = (uint8_t)qm_search_arith(r->q.round, 1, y[i], c->cb.steps, &c->cb, 0);
    else
        qm_searches()->by[r->q.search](c, y, n, code, r->grid);
    for (int64_t i = 0; i < n && r->q.scale.least; i++)
        code[i] = code[i] < r->q.scale.least ? (uint8_t)r->q.scale.least : code[i];
}

/* Takes the codes of the runs that the floats lie in.  The bits of y ascend or descend by one. */
static void run_device_codes(const struct qm_routine *r, const float *y, int64_t n, uint8_t *code)
{
    const struct qm_code_change *c = r->runs.change;
    int64_t k = 0;
    for (int64_t low = 0, high = r->runs.n; high - low > 1; k = low) {
        int64_t middle = low + (high - low) / 2;
        *(c[middle].bits <= qm_bits(y[0]) ? &low : &high) = middle;
        k = low;
    }
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits = qm_bits(y[i]);
        while (k > 0 && c[k].bits > bits)
            k--;
        while (k + 1 < r->runs.n && c[k + 1].bits <= bits)
            k++;
        code[i] = (uint8_t)c[k].code;
    }
}

enum broken { INTACT, WROTE_OUTSIDE, CHANGED_INPUT, TROUBLE };

/* Runs a foreign routine, which must write exactly n codes and leave y unchanged. */
static enum broken run_foreign(const struct qm_routine *r, const float *y, int64_t n, uint8_t *code)
{
    float copy[BATCH];
    memcpy(copy, y, sizeof *y * (size_t)n);
    memset(code - GUARD, POISON, (size_t)n + 2 * GUARD);
    r->kernel(y, (long)n, code);
    if (r->trouble && *r->trouble())
        return TROUBLE;
    for (int i = 0; i < GUARD; i++)
        if (code[i - GUARD] != POISON || code[n + i] != POISON)
            return WROTE_OUTSIDE;
    return memcmp(copy, y, sizeof *y * (size_t)n) == 0 ? INTACT : CHANGED_INPUT;
}

static enum broken run_chunk(const struct qm_routine *r, int64_t first, int64_t last,
                             struct qm_record *record)
{
    /* Batches of many lengths, because foreign routines have tails. */
    static const int lengths[] = {BATCH, 4095, 1000, 257, 33, 16, 7, 1, 2048};
    _Alignas(64) float y[BATCH];
    _Alignas(64) uint8_t buffer[BATCH + 2 * GUARD];
    for (int64_t at = first, i = 0; at <= last; i++) {
        int64_t n = r->kernel ? lengths[i % (int64_t)(sizeof lengths / sizeof *lengths)] : BATCH;
        n = at + n - 1 > last ? last - at + 1 : n;
        for (int z = 1; z < QM_ZONE_COUNT;
             z++) { /* no batch mixes NaN and numbers, or both signs */
            int64_t edge = r->claims.zone[z];
            n = at < edge && at + n > edge ? edge - at : n;
        }
        floats(at, n, y);
        qm_walk_at = at;
        enum broken how = r->kernel ? run_foreign(r, y, n, buffer + GUARD) : INTACT;
        if (how != INTACT)
            return how;
        if (r->runs.n)
            run_device_codes(r, y, n, buffer + GUARD);
        else if (!r->kernel)
            run_search(r, y, n, buffer + GUARD);
        qm_record_add(record, &r->claims, at, n, buffer + GUARD);
        at += n;
    }
    return INTACT;
}

qm_status qm_routine_walk(const struct qm_routine *r, const struct qm_walk *w,
                          struct qm_record *out)
{
    int64_t first_chunk = w->from >> CHUNK_BITS, chunks = (w->to >> CHUNK_BITS) - first_chunk + 1;
    struct qm_record *part = calloc((size_t)chunks, sizeof *part);
    if (!part)
        return qm_fail(QM_NO_MEMORY, "records of %lld chunks", (long long)chunks);
    char trouble[300] = "";
    int outside = 0, changed = 0;
#pragma omp parallel for schedule(dynamic, 1) reduction(| : outside, changed)
    for (int64_t k = 0; k < chunks; k++) {
        int64_t from = (first_chunk + k) * (1 << CHUNK_BITS), to = from + (1 << CHUNK_BITS) - 1;
        from = from < w->from ? w->from : from;
        to = to > w->to ? w->to : to;
        qm_record_open(&part[k]);
        enum broken how = run_chunk(r, from, to, &part[k]);
        outside |= how == WROTE_OUTSIDE;
        changed |= how == CHANGED_INPUT;
#pragma omp critical(qm_walk_progress)
        {
            if (how == TROUBLE && !*trouble)
                snprintf(trouble, sizeof trouble, "%s", r->trouble());
            if (w->progress)
                w->progress(w->of, to - from + 1);
        }
    }
    qm_record_open(out);
    for (int64_t k = 0; k < chunks; k++) {
        qm_record_merge(out, &part[k]);
        qm_record_close(&part[k]);
    }
    free(part);
    if (!out->out_of_memory && !outside && !changed && !*trouble)
        return QM_OK;
    qm_record_close(out);
    if (*trouble)
        return qm_fail(QM_CHECK_FAILED, "%s", trouble);
    if (outside || changed)
        return qm_fail(QM_CHECK_FAILED,
                       outside ? "it wrote outside its buffer" : "it changed its input");
    return qm_fail(QM_NO_MEMORY, "lists of intervals");
}
