/* device.h - The interface of a device that runs kernels: a GPU through the driver, or the
 * emulator.
 *
 * Addresses are the device's own; those of the emulator are addresses of the host.  Work is queued
 * in order; get and sync wait for it. */
#ifndef QM_DEVICE_DEVICE_H
#define QM_DEVICE_DEVICE_H

#include "core/device/step_kernels.h"

typedef uint64_t qm_address;

struct qm_device {
    const char *name;

    /* QM_OK, or QM_SKIPPED: it cannot run here, with the reason. */
    qm_status (*probe)(void);

    /* Zeroed memory at a multiple of 256 bytes; 0 bytes give a valid address too.  release
     * accepts 0. */
    qm_status (*reserve)(size_t bytes, qm_address *out);
    void (*release)(qm_address at);
    qm_status (*put)(qm_address to, const void *from, size_t bytes);
    qm_status (*get)(void *to, qm_address from, size_t bytes);

    /* The kernels of a form, compiled unless they are loaded or cached; they stay until the program
     * ends, or qm_cuda_unload_idle. */
    qm_status (*load)(const struct qm_step_form *f, enum qm_mode mode, void **module);

    /* Queues one launch in blocks of QM_STEP_THREADS threads; args: pointers to the
     * kernel's arguments. */
    qm_status (*launch)(void *module, enum qm_step_kernel k, unsigned grid_x, unsigned grid_y,
                        void **args);
    qm_status (*sync)(void);

    int (*blocks)(void); /* the number of its multiprocessors */
};

extern const struct qm_device qm_device_cuda, qm_device_emu;

/* Member `load` of the emulator, from the text of step_recipe.h (qm_step_text). */
qm_status qm_emu_load_text(const char *recipe, enum qm_mode mode, void **module);

/* For tests: the address of a variable of a module of the emulator; NULL: it has none of that
 * name. */
void *qm_emu_variable(const void *module, const char *name);

#endif
