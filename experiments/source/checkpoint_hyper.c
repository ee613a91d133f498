/* checkpoint_hyper.c - Reads and checks the hyper-parameters of a checkpoint's parameter. */
#include "experiments/source/checkpoint_hyper.h"

#include <math.h>
#include <stdio.h>

qm_status qm_checkpoint_hyper(const char *path, struct qm_file *f, double step,
                              struct qm_recorded *p)
{
    enum { NEEDED = 3 };
    struct qm_hyper *h = &p->hyper;
    const struct {
        const char *name;
        double *to, least, end;
    } numbers[] = {{"beta1", &h->beta1, 0.0, 1.0},
                   {"beta2", &h->beta2, 0.0, 1.0},
                   {"eps", &h->eps, 0.0, HUGE_VAL},
                   {"lr", &h->lr, 0.0, HUGE_VAL},
                   {"weight_decay", &h->weight_decay, 0.0, HUGE_VAL},
                   {"momentum", &h->momentum, -HUGE_VAL, HUGE_VAL},
                   {"dampening", &h->dampening, -HUGE_VAL, HUGE_VAL}};
    char at[512];
    snprintf(at, sizeof at, "/%s", p->tensor);
    if (!(step >= 0.0 && step < 0x1p53 && step == floor(step)))
        return qm_fail(QM_BAD_FILE, "%s: %s: step %g, expected a whole number of at least 0", path,
                       p->tensor, step);
    for (int i = 0; i < (int)(sizeof numbers / sizeof *numbers); i++) {
        double *x = numbers[i].to;
        int found = qm_file_attr_number(f, at, numbers[i].name, x, 1) == 1;
        if (!found && i < NEEDED && !p->unknown)
            p->unknown = numbers[i].name;
        if (found && !(*x >= numbers[i].least && *x < numbers[i].end))
            return qm_fail(QM_BAD_FILE, "%s: %s: %s is %g, expected a finite number%s", path,
                           p->tensor, numbers[i].name, *x,
                           numbers[i].end == 1.0     ? " from 0 to below 1"
                           : numbers[i].least == 0.0 ? " of at least 0"
                                                     : "");
    }
    return QM_OK;
}
