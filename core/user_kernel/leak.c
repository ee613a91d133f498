/* leak.c - Samples the private memory of a process after every 1024 calls. */
#include "core/user_kernel/leak.h"

#include "core/base/process_tree.h"

enum { CALLS = 1024, GROWTH = 24 /* KiB */, TIMES = 3 };

int qm_leak_grows(struct qm_leak *l, pid_t pid, int slot)
{
    if (l->pid != pid || l->slot != slot)
        *l = (struct qm_leak){.pid = pid, .slot = slot};
    if (++l->calls % CALLS != 0)
        return 0;
    long kib = qm_process_private(pid);
    if (l->calls > CALLS)
        l->growths = kib >= l->kib + GROWTH ? l->growths + 1 : 0;
    l->kib = kib;
    return l->growths >= TIMES;
}
