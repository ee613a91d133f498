/* fmad.c - The forms of a user's CUDA source: contracted or not. */
#include <string.h>

#include "core/compile/kernel_build.h"
#include "core/emu/emu_fast.h"

static enum qm_fmad used = QM_FMAD_false;

void qm_fmad_use(enum qm_fmad form) { used = form; }
enum qm_fmad qm_fmad_used(void) { return used; }

const char *qm_fmad_text(enum qm_fmad form)
{
    return form == QM_FMAD_true ? "contracted (--fmad=true)" : "uncontracted (--fmad=false)";
}

int qm_fmad_emulated(void) { return qm_emu_fast_flags() != NULL; }

qm_status qm_fmad_asked(const char *option, int has[QM_FMADS])
{
    struct qm_argv words = {0};
    const char *fmad;
    qm_cuda_flags(&words, &fmad);
    QM_TRY(qm_argv_status(&words));
    option = option ? option : fmad;
    has[QM_FMAD_true] = !option || strcmp(option, "true") == 0;
    has[QM_FMAD_false] = !has[QM_FMAD_true] || !option;
    return QM_OK;
}
