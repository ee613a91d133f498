/* nvrtc.h - Compiles device code at run time with NVRTC, which needs neither a driver nor a GPU.
 *
 * Headers are handed over as texts (embedded_text.h), so that no folder is read unless an option -I
 * names one. */
#ifndef QM_COMPILE_NVRTC_H
#define QM_COMPILE_NVRTC_H

#include <stddef.h>

#include "core/base/status.h"

struct qm_device_source {
    const char *name, *text;    /* the program, "step.cu" */
    const char *header_name;    /* one header besides the embedded ones; NULL: none */
    const char *header_text;    /* the text of that header */
    const char *const *options; /* ended by NULL: "--fmad=false", "-DX=1", "-I/usr/include" */
    const char *includes;       /* the hash of files that it includes (includes.h); NULL: none */
    int arch;                   /* ten times the compute capability: 90 */
};

struct qm_device_binary {
    void *data; /* a cubin, or PTX where this NVRTC does not know the architecture */
    size_t size;
    char *log; /* the compiler's messages, or "" */
    int is_ptx, from_cache;
    double seconds; /* of compiling, or of reading the cache */
};

/* Compiles; the caller frees *out.  QM_SKIPPED, with the reason: there is no NVRTC, or it knows no
 * architecture as old as this one.  QM_INTERNAL, QM_NO_MEMORY: NVRTC failed, nothing is known of
 * the source.  QM_BAD_ARG: the source does not compile; the message is the
 * first error, or the first line of a log without that word, out->log has all, and the caller frees
 * *out then too. */
qm_status qm_nvrtc_compile(const struct qm_device_source *s, struct qm_device_binary *out);

/* As qm_nvrtc_compile, but the binary is read from the cache where it is there, and written to it
 * where it is not (cubin_cache.h). */
qm_status qm_device_compile(const struct qm_device_source *s, struct qm_device_binary *out);

void qm_device_binary_free(struct qm_device_binary *b);

/* Version of NVRTC and size of its library file in bytes: binaries of different compilers must not
 * be mixed in a cache.  Returns 0 where there is no NVRTC. */
int qm_nvrtc_identity(int *major, int *minor, long long *bytes);

/* QM_OK, or with the reason QM_SKIPPED: there is no NVRTC; QM_INTERNAL: it tells no
 * version, or one that no NVRTC can have.  Of several NVRTCs that tell their version the first one
 * is used whose major version is not above the driver's: an older driver refuses what a newer
 * one makes. */
qm_status qm_nvrtc_probe(void);

/* Takes another NVRTC into use, after the driver has refused what the present one made.  0: there
 * is no other, and the present one stays.  One thread at a time. */
int qm_nvrtc_next(void);

/* Writes one line: path and version of NVRTC, or why there is none. */
void qm_nvrtc_text(char *text, size_t size);

/* A kernel's resources, from the compiler's report (option --ptxas-options=-v): registers of a
 * thread, bytes of spill stores and loads together, bytes of local memory and of shared memory. */
struct qm_kernel_use {
    int registers, spill_bytes, local_bytes, shared_bytes;
};

/* Returns whether the log reports on this kernel. */
int qm_kernel_use(const char *log, const char *kernel, struct qm_kernel_use *out);

#endif
