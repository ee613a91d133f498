/* conform.h - Replays golden vectors: cases, their verdicts, and helpers shared by the systems.
 *
 * One file per published system turns each group of a golden-vector file into cases; a case reads
 * what it needs, runs this program's code on the recorded inputs and judges the outcome.  The
 * first difference decides; later comparisons of the same case are ignored.
 *
 * Memory that a case reads into lives until the case ends.  A read that fails returns NULL and
 * makes the case unreadable, with one line that says why; the body of a case reads and returns.
 * tests/golden/README.md states every tolerance. */
#ifndef QM_CONFORM_CONFORM_H
#define QM_CONFORM_CONFORM_H

#include "core/quant/quantizer.h"
#include "core/rule/param.h"
#include "experiments/conform/golden.h"

/* clang-format off */
#define QM_CONFORM_LIST(X)                                                 \
    X(equal,      "EQUAL",      "every bit")                               \
    X(near,       "NEAR",       "within the stated tolerance")             \
    X(differs,    "DIFFERS",    "outside of it")                           \
    X(skipped,    "skipped",    "not built, or nothing to compare")        \
    X(unreadable, "UNREADABLE", "a dataset is missing, of an unknown form, or damaged")
/* clang-format on */

enum qm_conform_result {
#define X(name, word, text) QM_CONFORM_##name,
    QM_CONFORM_LIST(X)
#undef X
        QM_CONFORM_COUNT
};

const char *qm_conform_result_word(enum qm_conform_result o);

struct qm_golden_case {
    char name[QM_GOLDEN_PATH]; /* the group, and "/part" where a group holds several */
    enum qm_conform_result outcome;
    char text[320];   /* figures, the first difference, or the reason of a skip */
    char unread[160]; /* what the case holds that its replay does not read, for the end of text */
    int unread_more;  /* how many of it have no room there */
    int has_unread;   /* a list said what is read */
    const char *arguments; /* words: attributes that a case must have whether a replay reads them
                            * or not, which are named last; NULL: none */
    char how[256];         /* the quantizer or recipe that ran */
    int64_t compared;      /* values */
    double worst;          /* largest difference in units of the tolerance; 0 when all are equal */
    int64_t unseen;        /* the first step, from 1, that the tolerance may hide; 0: none */
};

struct qm_conform {
    struct qm_golden *file;
    const char *system; /* "torchao", ... */
    const char *filter; /* of case names; NULL: all */
    void (*report)(void *context, const struct qm_golden_case *c);
    void *context;
    int64_t count[QM_CONFORM_COUNT];

    struct qm_golden_case now;
    char group[QM_GOLDEN_PATH];              /* the group that the case reads */
    void *memory;                            /* the chunks it has read into */
    const struct qm_golden_readers *readers; /* of qm_golden_read_all */
};

/* Replays every case of one file whose name matches filter; report may be NULL.  count: cases by
 * outcome, added to.  QM_BAD_FILE: no golden-vector file, with what was expected. */
qm_status qm_conform_file(const char *path, const char *filter,
                          void (*report)(void *context, const struct qm_golden_case *c),
                          void *context, int64_t count[QM_CONFORM_COUNT]);

/* The systems: every group of the file, in the order of their names. */
void qm_conform_torchao(struct qm_conform *c);
void qm_conform_bitsandbytes(struct qm_conform *c);
void qm_conform_lpmm(struct qm_conform *c);
void qm_conform_adafactor8bit(struct qm_conform *c);
void qm_conform_lion8bit(struct qm_conform *c);
void qm_conform_flashoptim(struct qm_conform *c);
void qm_conform_reference(struct qm_conform *c); /* torch.optim: adamw, sgd */
void qm_conform_solo(struct qm_conform *c);
void qm_conform_coat(struct qm_conform *c);
void qm_conform_microadam(struct qm_conform *c);
void qm_conform_muon(struct qm_conform *c);
void qm_conform_shampoo(struct qm_conform *c);
void qm_conform_philox(struct qm_conform *c);
void qm_conform_dtypes(struct qm_conform *c);

/* ---- a case ---- */

/* Starts the case "group" or, with part, "group/part"; 0 when the filter leaves it out.  At its
 * end the verdict is reported and counted and its memory released; a case that compared nothing
 * and has no verdict is unreadable. */
int qm_golden_case_begin(struct qm_conform *c, const char *group, const char *part);
void qm_golden_case_end(struct qm_conform *c);

/* A member of a group: "" is the root, and path is group/name. */
struct qm_golden_place {
    const char *group, *name, *path;
};

/* Visits the members of a group in the order of their names.  One whose path has more than 250
 * characters is a case of its own, which is unreadable. */
void qm_golden_each(struct qm_conform *c, const char *group,
                    void (*visit)(struct qm_conform *c, const struct qm_golden_place *at));
int qm_golden_groups(struct qm_conform *c, const char *group); /* whether a member is a group */

/* The readers of a recording that has the groups maps, whose members are datasets, optim, whose
 * members are runs, and others, whose members are quantizer cases. */
struct qm_golden_readers {
    void (*map)(struct qm_conform *c, const char *name); /* NULL: maps is no group apart */
    void (*run)(struct qm_conform *c);
    void (*quantizer)(struct qm_conform *c);
    const char *single; /* a group that is one case; NULL: none is */
    void (*replay_single)(struct qm_conform *c);
};

/* Calls, for every member of every group, the reader of its kind within a case of its own. */
void qm_golden_read_all(struct qm_conform *c, const struct qm_golden_readers *readers);

int qm_golden_case_open(const struct qm_conform *c); /* no difference, skip or failure so far */
void qm_golden_case_skip(struct qm_conform *c, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void qm_golden_case_differs(struct qm_conform *c, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void qm_golden_case_unreadable(struct qm_conform *c, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void qm_golden_case_failed(struct qm_conform *c); /* unreadable, with qm_message() */

/* What this side could not do, with qm_message(), is no difference: the case is skipped where a
 * recipe, a rule or a format refused what the recording asks for, else unreadable. */
void qm_golden_case_stopped(struct qm_conform *c, qm_status st);

/* Zeroed memory of the case; NULL when there is none left. */
void *qm_golden_case_memory(struct qm_conform *c, int64_t n, size_t size);

/* Whether this dataset of the group is the one that is read as the parameter at the start. */
int qm_golden_case_is_start(const struct qm_conform *c, const char *name);

/* Datasets of the case's group.  numel: the required count, -1 for any; qm_golden_case_numel
 * returns the count, 0 when the dataset is absent; qm_golden_case_per that of each of so many rows,
 * 0 where there are none.  One that is refused, a group in its place, a count that the rows do not
 * share out, and a parameter at the start without elements, make the case unreadable. */
int qm_golden_case_has(struct qm_conform *c, const char *name);
int64_t qm_golden_case_numel(struct qm_conform *c, const char *name);
int64_t qm_golden_case_per(struct qm_conform *c, const char *name, int64_t rows);
int qm_golden_case_shape(struct qm_conform *c, const char *name, struct qm_shape *out);
float *qm_golden_case_floats(struct qm_conform *c, const char *name, int64_t numel);
double *qm_golden_case_doubles(struct qm_conform *c, const char *name, int64_t numel);
int64_t *qm_golden_case_ints(struct qm_conform *c, const char *name, int64_t numel);
uint64_t *qm_golden_case_words(struct qm_conform *c, const char *name, int64_t numel);

/* Of n numbers of dataset `name`: 1 where each is one that the format has, or NaN; otherwise, and
 * where x is NULL, 0, and the case is unreadable. */
int qm_golden_case_fits(struct qm_conform *c, const char *name, enum qm_param_format format,
                        const float *x, int64_t n);
int qm_golden_case_fits_double(struct qm_conform *c, const char *name, enum qm_param_format format,
                               const double *x, int64_t n);

/* Floats of which each is one that the format has; NULL: unreadable. */
float *qm_golden_case_floats_of(struct qm_conform *c, const char *name, int64_t numel,
                                enum qm_param_format format);

/* The bits of numbers of 16 bits; NULL: unreadable, also where one has more. */
uint64_t *qm_golden_case_halves(struct qm_conform *c, const char *name, int64_t numel);

/* Numbers of a format of 32 or 16 bits, widened: those of 16 bits are stored as their bits,
 * integers of any type, or as their values, floats of which each must be one of the format. */
float *qm_golden_case_stored(struct qm_conform *c, const char *name, int64_t numel,
                             enum qm_param_format format);

/* What a kind of case needs in its group.  number: one number from least to most; text: one text;
 * data: a dataset.  may_lack: the attribute may be absent, or NaN, which is the files' None. */
enum qm_golden_need_kind { QM_NEED_number, QM_NEED_text, QM_NEED_data };
struct qm_golden_need {
    const char *name;
    enum qm_golden_need_kind kind;
    double least, most;
    int may_lack;
};

/* 1 when the group has all n of them; otherwise the case is unreadable, with the first that is
 * missing, of another type or out of range. */
int qm_golden_case_needs(struct qm_conform *c, const struct qm_golden_need *need, int n);

/* Exactly n numbers of an attribute of the case's group: 1, and they are in out.  0: it is absent,
 * or the case is unreadable, with how many there are. */
int qm_golden_case_numbers(struct qm_conform *c, const char *name, int n, double *out);

/* Attributes of the case's group; a number that is absent or NaN is the fallback.  An attribute of
 * another type, a list of numbers for instance, makes the case unreadable; so does of `whole` one
 * that is no whole number, and of `int` one that an int does not hold.  unsigned: 1, and all 64
 * bits of an integer; 0 where there is none. */
double qm_golden_case_number(struct qm_conform *c, const char *name, double fallback);
int qm_golden_case_unsigned(struct qm_conform *c, const char *name, uint64_t *out);
int64_t qm_golden_case_whole(struct qm_conform *c, const char *name, int64_t fallback);
int qm_golden_case_int(struct qm_conform *c, const char *name, int fallback);
int qm_golden_case_text(struct qm_conform *c, const char *name, char *out, size_t size);

/* The place of a text attribute among n words; `absent` where the group has none.  For any other
 * text -1, and the case is unreadable, with the words that are read. */
int qm_golden_case_choice(struct qm_conform *c, const char *name, const char *const *word, int n,
                          int absent);

/* Names in the text of the case its attributes and datasets that are none of these, lists of names
 * with spaces between them: for a reader that serves several classes and reads more than each has.
 * A number of 0 asks for nothing, and is not named. */
void qm_golden_case_unread(struct qm_conform *c, const char *attributes, const char *datasets);

/* Names, where no list did, what of a run (a group with gradients) nobody has read; a NaN, which is
 * None, asks for nothing.  A case that is skipped or differs was not read to its end. */
void qm_golden_case_left(struct qm_conform *c);

/* The learning rate of every step from dataset lr_per_step, or NULL where there is none. */
double *qm_golden_case_rates(struct qm_conform *c, int64_t steps);

/* Compares dataset state_step, where there is one, with the count of steps: t after step t. */
void qm_golden_case_step_count(struct qm_conform *c, int64_t steps);

/* 1 where there is no such dataset; otherwise the case is skipped, for its replay has one rate. */
int qm_golden_case_one_rate(struct qm_conform *c);

/* ---- comparing ---- */

/* Floats by their bits (any NaN equals any NaN; -0 is near +0), codes as numbers. */
void qm_match_floats(struct qm_conform *c, const char *what, const float *got, const float *want,
                     int64_t n);
void qm_match_codes(struct qm_conform *c, const char *what, const uint8_t *got, const int64_t *want,
                    int64_t n);
void qm_match_words(struct qm_conform *c, const char *what, const uint64_t *got,
                    const uint64_t *want, int64_t n);

/* |got - want| <= relative * |want| + absolute; equal bits count as equal. */
void qm_match_close(struct qm_conform *c, const char *what, const float *got, const float *want,
                    int64_t n, double relative, double absolute);

/* The recorded number, where a number within what this program's may be off by is rounded to it;
 * `got` is this program's own rounded number, and the case is near where that is another. */
double qm_match_take(struct qm_conform *c, const char *what, int64_t i, double got, double want);

/* The same with an allowance for each element. */
void qm_match_close_each(struct qm_conform *c, const char *what, const float *got,
                         const float *want, const double *allowed, int64_t n);
void qm_match_close_double(struct qm_conform *c, const char *what, const double *got,
                           const double *want, int64_t n, double absolute);
void qm_match_close_double_each(struct qm_conform *c, const char *what, const double *got,
                                const double *want, const double *allowed, int64_t n);

/* Notes that the tolerance may hide step t: parameters are not the recorded ones to the bit, and of
 * each that moves the tolerance is at least its step.  The case is skipped at its end unless it
 * differs, for a step that was not made would pass. */
void qm_match_steps(struct qm_conform *c, int64_t t, const float *got, const float *want,
                    const float *before, const double *allowed, int64_t n);

/* The same for all parameters at once, from what was found of them: how many are not the recorded
 * ones, how many move, and how many of these by more than the tolerance. */
struct qm_match_seen {
    int64_t off, moves, seen;
};
void qm_match_add_step(struct qm_match_seen *s, double got, double want, double before,
                       double allowed);
void qm_match_note_step(struct qm_conform *c, int64_t t, const struct qm_match_seen *s);

/* The size of the step that a change of a parameter stands for.  A decay that stands beside the
 * step took `decay` = lr weight_decay times the old parameter off it, which may cancel the step in
 * the change; 0 where there is none. */
double qm_match_step(double change, double decay, double old);

/* The share of a step by which it is larger where its second moment v is `off` smaller: the step is
 * divided by by sqrt(v) + eps.  HUGE_VAL: that may be 0. */
double qm_match_root_share(double v, double off, double by, double eps);

/* The largest finite magnitude of n numbers, 0 of none. */
double qm_match_largest(const float *x, int64_t n);
double qm_match_largest_double(const double *x, int64_t n);

/* The relative error of the largest update of n numbers by the products of gradient, row factor,
 * column factor, weight of the average and factor of the confidence, which are counts of 2^-149
 * where they are subnormal, each half of one off on either side; a row is at most n times the mean.
 * most: the largest finite magnitude of a gradient. */
double qm_match_subnormal(double most, int64_t n);

/* Takes the recorded code where both codes mean NaN: which of a float format's NaN codes was
 * recorded is the sign of the NaN that the recording machine made. */
void qm_take_nan_codes(const struct qm_quantizer *q, const struct qm_codebook *cb,
                       const int64_t *want, int64_t n, uint8_t *codes);

/* Of n codes `off` are other ones, each of which the error of its own number explains: near. */
void qm_match_count(struct qm_conform *c, const char *what, int64_t off, int64_t n);

/* ---- quantizers ---- */

/* The recorded data of a quantizer case; a NULL member is not compared. */
struct qm_golden_run {
    const float *scales;
    const int64_t *codes;  /* numel */
    const int64_t *packed; /* [packed_bytes]; codes beyond numel are the code of 0 */
    int64_t packed_bytes;
    const float *dequant; /* the first n_dequant decoded values */
    int64_t n_dequant;
};

/* Encodes x by the codec and compares scales, codes, packed bytes, and the decoding of the
 * recorded codes with the recorded scales.  Codes of a float format that mean NaN are equal. */
void qm_match_quantizer(struct qm_conform *c, const struct qm_codec *codec,
                        const struct qm_shape *shape, const float *x,
                        const struct qm_golden_run *want);

/* The codec of a quantizer string; 0, and the case skipped with the reason, if it is invalid. */
int qm_golden_case_codec(struct qm_conform *c, struct qm_codec *codec, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Replaces a codec's table by n ascending values, without published thresholds. */
void qm_codec_table(struct qm_codec *codec, const float *value, int n);

/* Compares a table of n values in code order with the map's own. */
void qm_match_map(struct qm_conform *c, const char *map, int bits, int sign, const float *table,
                  int64_t n);

/* x[n] followed by zeros up to a multiple of block. */
float *qm_golden_case_padded(struct qm_conform *c, const float *x, int64_t n, int64_t block,
                             int64_t *padded);

/* The n codes in packed bytes (values 0 to 255), one number per code. */
int64_t *qm_golden_case_unpacked(struct qm_conform *c, enum qm_pack order, int bits,
                                 const int64_t *packed, int64_t n);

struct qm_shape qm_shape_flat(int64_t n); /* rank 1 */

#endif
