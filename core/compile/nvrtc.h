/* nvrtc.h - compiling device code at run time; needs the library, neither driver nor GPU.
 *
 * Headers are handed over as texts, so that no folder is read; a `folder` adds one. */
#ifndef QM_COMPILE_NVRTC_H
#define QM_COMPILE_NVRTC_H

#include <stddef.h>

#include "core/base/status.h"

struct qm_device_source {
    const char *name, *text; /* the program: "step.cu" */
    const char *header_name,
        *header_text;           /* one header besides those of device_text.h; NULL: none */
    const char *const *options; /* ended by NULL; "--fmad=false", "-DX=1", "-I/usr/include" */
    int arch;                   /* compute capability times ten: 90 */
};

struct qm_device_binary {
    void *data; /* a cubin, or PTX where this NVRTC does not know the architecture */
    size_t size;
    char *log; /* what the compiler said; "" at least */
    int is_ptx, from_cache;
    double seconds; /* that it took to compile, or to read */
};

/* QM_SKIPPED: no NVRTC, with the reason.  QM_BAD_ARG: the source does not compile; the first error, and all
 * of the log in *out, which is to be freed then too. */
qm_status qm_nvrtc_compile(const struct qm_device_source *s, struct qm_device_binary *out);

/* The same by way of the cache (cubin_cache.h). */
qm_status qm_device_compile(const struct qm_device_source *s, struct qm_device_binary *out);

void qm_device_binary_free(struct qm_device_binary *b);

/* Version and size of the library file: what a cache must not mix.  0: there is none. */
int qm_nvrtc_identity(int *major, int *minor, long long *bytes);

/* QM_OK, or QM_SKIPPED with the reason. */
qm_status qm_nvrtc_probe(void);

/* One line on what NVRTC is, or why there is none. */
void qm_nvrtc_text(char *text, size_t size);

/* One kernel's line of the compiler's resource report. */
struct qm_kernel_use {
    int registers, spill_bytes, local_bytes, shared_bytes;
};

/* 1 when the log reports on this kernel (option --ptxas-options=-v). */
int qm_kernel_use(const char *log, const char *kernel, struct qm_kernel_use *out);

#endif
