/* routine.h - nearest-code routines over unit values, and what each claims to be. */
#ifndef QM_EXPERIMENTS_PROVE_ROUTINE_H
#define QM_EXPERIMENTS_PROVE_ROUTINE_H

#include "core/quant/quantizer.h"
#include "oracle/codebook/nearest_proof.h"

/* Stored codes that a device gave: change[k].code from the float with bits change[k].bits on, up to the
 * next; ascending bits.  Every float of the walk lies in a run. */
struct qm_code_change {
    uint32_t bits, code;
};
struct qm_code_runs {
    int64_t n;
    struct qm_code_change *change;
    double seconds; /* that the device took */
};

/* A routine: y[n] to code[n], elementwise. */
struct qm_routine {
    struct qm_quantizer q;
    struct qm_codec codec; /* of a quantizer string, or the map that a foreign routine is for */
    const uint8_t *grid;   /* search grid: its 65,536 entries, owned */
    void (*kernel)(const float *y, long n, unsigned char *code); /* foreign; or NULL */
    const char *(*trouble)(
        void);                /* of a foreign one, after a call: what it broke, or ""; or NULL */
    struct qm_code_runs runs; /* owned; n 0: the CPU runs the search */
    struct qm_claims claims;
};

/* The search and round of q themselves, as core/quant/search_loops.h loops (NaN as its nan word says; the
 * other axes do not matter).  Claims: nearest of its own table, or of the map `against` (NULL: its
 * own); the decisions that experiments/check/decide.h derives from the words; the engine's edges.
 * QM_BAD_ARG: float32, a curve with codes of its own (allog), a round that draws, or `against` has
 * another number of entries; also a table that is not its definition. */
qm_status qm_routine_open(struct qm_routine *r, const struct qm_quantizer *q, const char *against);

/* A foreign routine for the map and sign of q.  Claims: nearest; with a definition (round and nan word
 * of q) where `ties` or `nan` say so.  position_of is that of stored codes. */
qm_status qm_routine_foreign(struct qm_routine *r, const struct qm_quantizer *q, int ties, int nan);

/* Has the kernel of an open routine's quantizer run on a device, "cuda" or "emu", over the floats with keys
 * from .. to; a walk over them then judges what that gave.  QM_SKIPPED: there is no such device here;
 * QM_BAD_ARG: too many floats for the emulator, or no such name. */
qm_status qm_routine_on_device(struct qm_routine *r, const char *device, int64_t from, int64_t to);

void qm_routine_close(struct qm_routine *r);

/* The words that matter to the routine: "nf4:4s/bisect/mid/nantop"; text: QM_QUANTIZER_TEXT bytes. */
char *qm_routine_print(const struct qm_routine *r, char *text);

/* Reads "nf4:4s", or "nf4" where a map has one width and sign only. */
qm_status qm_map_parse(const char *text, struct qm_quantizer *out);

/* Runs floats with keys from .. to (inclusive), OpenMP over fixed chunks: the record does not depend
 * on the number of threads.  progress: called after each chunk with the floats done, by one thread
 * at a time; NULL: not.  QM_CHECK_FAILED: a foreign routine wrote outside its buffer, changed its input, or has
 * another trouble. */
struct qm_walk {
    int64_t from, to;
    void (*progress)(void *of, int64_t floats);
    void *of;
};
qm_status qm_routine_walk(const struct qm_routine *r, const struct qm_walk *w,
                          struct qm_record *out);

/* The first key of the batch that this thread is within, for signal handlers. */
extern _Thread_local volatile int64_t qm_walk_at;

#endif
