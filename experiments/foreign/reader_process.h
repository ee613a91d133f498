/* reader_process.h - Opens a file that others wrote in a process of its own.
 *
 * The reader process is forked, opens the file with a library that may crash, hang or ask for any
 * amount of memory, and hands over what it finds through memory that both share.  The program that
 * forked it checks every length that it takes from there.  A crash, QM_READER_SECONDS without
 * progress (those in which it waits for a processor do not count), or more memory than the limit
 * ends the reader process alone: the call fails with QM_BAD_FILE and one line, and every later call
 * fails likewise.
 *
 * The limit is 320 MiB of memory of the reader's own, and as much for what it hands over at once;
 * the environment's QM_READER_MEMORY is another number of MiB.  The process opens no further file
 * once qm_reader_close_doors() is called, writes nothing to stdout and stderr, and ends with the
 * thread that started it. */
#ifndef QM_FOREIGN_READER_PROCESS_H
#define QM_FOREIGN_READER_PROCESS_H

#include "core/base/status.h"
#include "experiments/foreign/blob.h"
#include "experiments/foreign/file_mark.h"

#define QM_READER_SECONDS 8
#define QM_READER_DELAY   60 /* seconds of waiting for a processor that are granted beside them */

/* Bytes that a byte of deflate yields at most: 258 for two bits (RFC 1951). */
enum { QM_DEFLATE_MOST = 1032 };

struct qm_reader_process; /* opaque */

/* What a reader process does. */
struct qm_reader_service {
    /* Opens path and puts what the caller needs at first; *object goes to `serve`.  context is
     * what the starter gave, as it was when the process was forked. */
    qm_status (*open)(const char *path, void *context, void **object, struct qm_blob *out);
    /* Serves one request; NULL: there are none, and the process ends once the file is open. */
    qm_status (*serve)(void *object, int request, struct qm_blob *in, struct qm_blob *out);
    void (*close)(void *object); /* where the service runs in this process; accepts NULL */
};

/* Starts a reader process with at most `room` bytes for an answer (0: the limit).  *first is what
 * `open` put; it is valid until the next request.  Fails as `open` did, and QM_BAD_FILE where the
 * file, which mark is of, changed since it was marked; after every later answer it is looked at
 * likewise.  The mark's fd is closed in the end, or on failure. */
qm_status qm_reader_start(const struct qm_reader_service *service, const char *path, void *context,
                          size_t room, const struct qm_file_mark *mark, struct qm_blob *first,
                          struct qm_reader_process **out);
void qm_reader_end(struct qm_reader_process *p); /* accepts NULL */

/* An empty request, to put its arguments into. */
struct qm_blob qm_reader_request(struct qm_reader_process *p);

/* Sends the request; *answer is valid until the next one.  Fails as `serve` did. */
qm_status qm_reader_ask(struct qm_reader_process *p, int request, const struct qm_blob *arguments,
                        struct qm_blob *answer);

/* QM_BAD_FILE: the file changed since it was marked. */
qm_status qm_reader_check(const struct qm_reader_process *p);

/* QM_BAD_FILE: an answer that ends too early or holds a wrong length. */
qm_status qm_reader_garbled(const struct qm_reader_process *p);

/* ---- within a reader process --------------------------------------------------------------- */

/* Says that there is progress; without effect in other processes. */
void qm_reader_progress(void);

/* QM_BAD_FILE: what a library opened at the path is not the file that the starter marked, or not as
 * it was then.  QM_OK in other processes. */
qm_status qm_reader_expect(const char *path, int fd);

/* From now on a reader process opens no file: links and storage that lead out of the file that is
 * open fail, and so do plug-ins.  Without effect in other processes, and when the environment's
 * QM_FOLLOW_LINKS is 1. */
void qm_reader_close_doors(void);
int qm_reader_follows_links(void); /* whether QM_FOLLOW_LINKS is 1 */

/* Bytes that a reader may use: QM_READER_MEMORY. */
int64_t qm_reader_memory(void);

/* Bytes that what a file of `stored` bytes holds may claim: the limit, or QM_READER_CLAIM times
 * what is stored.  Zeros that were deflated take a thousandth, moments of training and tables
 * more. */
#define QM_READER_CLAIM 64
uint64_t qm_reader_claim_most(uint64_t stored);

/* QM_BAD_FILE with "WHAT CLAIMED bytes, and ..."; `claimed` is more than qm_reader_claim_most(). */
qm_status qm_reader_claim_fail(const char *what, uint64_t claimed, uint64_t stored);

/* With on = 1, services run in this process from now on: for fuzzers, which watch its branches. */
void qm_reader_in_this_process(int on);

#endif
