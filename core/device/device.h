/* device.h - where kernels run: a GPU through the driver, or the emulator.
 *
 * Addresses are the device's (the emulator's are the host's).  Work is queued in order; get, sync and the
 * end of a program wait for it. */
#ifndef QM_DEVICE_DEVICE_H
#define QM_DEVICE_DEVICE_H

#include "core/device/step_kernels.h"

typedef uint64_t qm_address;

struct qm_device {
    const char *name;

    /* QM_OK, or QM_SKIPPED with why it cannot run here. */
    qm_status (*probe)(void);

    /* Memory at a multiple of 256, all zeros; 0 bytes: some address.  release accepts 0. */
    qm_status (*reserve)(size_t bytes, qm_address *out);
    void (*release)(qm_address at);
    qm_status (*put)(qm_address to, const void *from, size_t bytes);
    qm_status (*get)(void *to, qm_address from, size_t bytes);

    /* The kernels of a form, compiled or found; they stay until the program ends. */
    qm_status (*load)(const struct qm_step_form *f, enum qm_mode mode, void **module);

    /* One launch in blocks of QM_STEP_THREADS; args: pointers to the kernel's arguments. */
    qm_status (*launch)(void *module, enum qm_step_kernel k, unsigned grid_x, unsigned grid_y,
                        void **args);
    qm_status (*sync)(void);

    int (*blocks)(void); /* how many blocks it can keep busy */
};

extern const struct qm_device qm_device_cuda, qm_device_emu;

/* load of the emulator, from the text of step_recipe.h. */
qm_status qm_emu_load_text(const char *recipe, enum qm_mode mode, void **module);

#endif
