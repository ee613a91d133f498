/* pickle.h - Reads Python pickles into a tree of values, and runs nothing.
 *
 * A pickle is a program for a stack machine.  This reader knows the opcodes of protocols 0 to 5
 * that build values (Python's pickletools.py lists them); calls are kept as values: the name that
 * would be called and its arguments, but for calls that make dictionaries, lists and bytes, which
 * are these.  A name that the caller does not know refuses the pickle.
 * Memory grows with the bytes that were read: an opcode makes at most one value. */
#ifndef QM_READERS_PICKLE_H
#define QM_READERS_PICKLE_H

#include "experiments/readers/format.h"

enum qm_pickle_kind {
    QM_PICKLE_none,
    QM_PICKLE_bool,
    QM_PICKLE_whole,  /* whole number of at most 64 bits */
    QM_PICKLE_number, /* float, or a whole number beyond 64 bits, rounded */
    QM_PICKLE_text,   /* str and bytes */
    QM_PICKLE_tuple,
    QM_PICKLE_list, /* list, set, deque */
    QM_PICKLE_dict, /* dict, OrderedDict, defaultdict, Counter */
    QM_PICKLE_global,
    QM_PICKLE_call,      /* item[0]: what is called, [1]: arguments, [2], if n is 3: state */
    QM_PICKLE_persistent /* item[0]: the id */
};

struct qm_pickle {
    enum qm_pickle_kind kind;
    char is_fixed; /* 1: the items lie in the memory of the pickle, and grow to `room` at most */
    char is_taken, is_queued; /* marks of the caller, 0 at first */
    union {
        struct {
            int64_t whole; /* of bool and whole */
            double number; /* of bool, whole and number */
        };
        struct {
            const char *text;        /* of text; of a global "MODULE.NAME"; a NUL follows */
            size_t length;           /* bytes of text */
            struct qm_pickle *latin; /* of text: it as Latin-1, once a call asked for that */
        };
        struct {
            struct qm_pickle **item; /* of the others; of a dict keys and values in turn */
            int64_t n, room;         /* items */
        };
    };
};

struct qm_pickle_memory; /* opaque; owns values */

/* Whether a pickle may name the global "MODULE.NAME". */
typedef int qm_pickle_knows(const char *global);

/* Reads one pickle from bytes [*at, end) of `from` and moves *at behind it.  The values live until
 * their memory is freed; *memory is made where it is NULL.  Values may be shared, and lists and
 * dictionaries may hold themselves.  QM_BAD_FILE names f and the fault. */
qm_status qm_pickle_read(const struct qm_file *f, const unsigned char *from, size_t *at, size_t end,
                         qm_pickle_knows *knows, struct qm_pickle_memory **memory,
                         const struct qm_pickle **out);
void qm_pickle_free(struct qm_pickle_memory *m); /* accepts NULL */

struct qm_pickle_memory *qm_pickle_memory(void); /* NULL: there is no memory */

/* `size` bytes that live as long as the values; NULL: there is no memory. */
void *qm_pickle_take(struct qm_pickle_memory *m, size_t size);

/* Makes values in the memory of a pickle: an empty tuple or call with room for so many items, an
 * empty value, a text, a whole number; NULL: there is no memory.  qm_pickle_put appends v to the
 * items of `to`, and fails where either is NULL. */
struct qm_pickle *qm_pickle_make_fixed(struct qm_pickle_memory *m, enum qm_pickle_kind kind,
                                       int64_t room);
struct qm_pickle *qm_pickle_make(struct qm_pickle_memory *m, enum qm_pickle_kind kind);
struct qm_pickle *qm_pickle_make_text(struct qm_pickle_memory *m, enum qm_pickle_kind kind,
                                      const char *text, size_t length);
struct qm_pickle *qm_pickle_make_whole(struct qm_pickle_memory *m, int64_t x);
qm_status qm_pickle_put(struct qm_pickle_memory *m, struct qm_pickle *to, struct qm_pickle *v);

/* Values that were made, and the places of containers that they stand in. */
int64_t qm_pickle_count(const struct qm_pickle_memory *m);

/* Appends a persistent id. */
qm_status qm_pickle_note_id(struct qm_pickle_memory *m, struct qm_pickle *id);

/* Persistent id i of what was read so far, in the order of the pickles; NULL: there are not
 * so many. */
const struct qm_pickle *qm_pickle_persistent_id(const struct qm_pickle_memory *m, int64_t i);

/* *key: a text or a whole number that is a key twice in one of the dicts of this memory, which
 * Python writes of none; NULL: there is none. */
qm_status qm_pickle_key_twice(const struct qm_pickle_memory *m, const struct qm_pickle **key);

/* The value of a text key in a dict; NULL: none, or v (which may be NULL) is no dict. */
const struct qm_pickle *qm_pickle_find(const struct qm_pickle *v, const char *key);

int qm_pickle_is(const struct qm_pickle *v, enum qm_pickle_kind kind); /* 0 for NULL */
int qm_pickle_is_text(const struct qm_pickle *v, const char *text);
int qm_pickle_is_number(const struct qm_pickle *v); /* bool, whole or number */

/* Whether v calls the global, which stands as "MODULE.NAME". */
int qm_pickle_calls(const struct qm_pickle *v, const char *global);

/* The state of an object that a call made; NULL: it has none, or v is no call. */
const struct qm_pickle *qm_pickle_state(const struct qm_pickle *v);

/* Argument i of a call, or item i of a tuple or list; NULL: there is none. */
const struct qm_pickle *qm_pickle_argument(const struct qm_pickle *call, int64_t i);
const struct qm_pickle *qm_pickle_item(const struct qm_pickle *v, int64_t i);

#endif
