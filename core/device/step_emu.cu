/* step_emu.cu - Launches step.cu's kernels on the emulator; device_emu.c appends it to step.cu. */

enum { STEP_REGION = 2 }; /* core/emu/emu_runtime.hpp: QM_REGION_STEP */
void qm_region_add(const char *name, const void *at, size_t bytes, int flags);
extern "C" {
extern char qm_emu_text[];
void qm_emu_step_begin(void);
void qm_emu_step_end(int is_refused);
}

#define CHUNKS                                                                      \
    *(const struct desc *const *)args[0], *(const struct qm_chunk *const *)args[1], \
        *(const int64_t *)args[2]
#define TABLES CHUNKS, *(const struct qm_step_scalars *)args[3]

/* One launch; kernel: numbered as enum qm_step_kernel; regions: all memory that it may touch.
 * Returns the text of the first finding, or "". */
extern "C" const char *qm_step_emu(int kernel, unsigned grid_x, unsigned grid_y, void **args,
                                   const struct qm_step_region *regions, int n_regions)
{
    dim3 grid(grid_x, grid_y);
    qm_emu_step_begin();
    for (int i = 0; i < n_regions; i++)
        qm_region_add(regions[i].name, regions[i].at, regions[i].bytes, STEP_REGION);
    switch (kernel) {
    case 0: qm_step<<<grid, QM_STEP_THREADS>>>(TABLES); break;
#if QM_FOLDS > 0
    case 1: qm_fold_1<<<grid, QM_STEP_THREADS>>>(TABLES); break;
    case 3: qm_scales<<<grid, QM_STEP_THREADS>>>(*(const struct desc *const *)args[0]); break;
#endif
#if QM_FOLDS > 1
    case 2: qm_fold_2<<<grid, QM_STEP_THREADS>>>(TABLES); break;
#endif
    case 4:
        qm_decode<<<grid, QM_STEP_THREADS>>>(CHUNKS, *(const int *)args[3],
                                             *(float *const *)args[4]);
        break;
#ifdef QM_BY_VALUE
    case 5:
        qm_step_by_value<<<grid, QM_STEP_THREADS>>>(*(const struct by_value *)args[0],
                                                    *(const int64_t *)args[1],
                                                    *(const struct qm_step_scalars *)args[2]);
        break;
#endif
#ifdef QM_CODES
    case 6:
        qm_codes<<<grid, QM_STEP_THREADS>>>(*(const uint64_t *)args[0], *(const uint64_t *)args[1],
                                            *(uint32_t *const *)args[2],
                                            *(uint32_t *const *)args[3], *(const uint32_t *)args[4],
                                            *(unsigned long long *const *)args[5]);
        break;
#endif
#ifdef QM_TENSOR_RULE
    case 7:
        qm_whole_load<<<grid, QM_STEP_THREADS>>>(CHUNKS, *(const int *)args[3],
                                                 *(const int *)args[4]);
        break;
    case 8: qm_whole_store<<<grid, QM_STEP_THREADS>>>(TABLES); break;
    case 9:
        qm_whole_sweep<<<grid, QM_STEP_THREADS>>>(*(const int *)args[0],
                                                  *(const struct qm_sweep *)args[1]);
        break;
    case 10:
        qm_whole_sums<<<grid, QM_STEP_THREADS>>>(*(const int *)args[0],
                                                 *(const struct qm_sweep *)args[1]);
        break;
    case 11:
        qm_whole_sweeps<<<grid, QM_STEP_THREADS>>>(
            *(const struct qm_sweep *const *)args[0], *(const int *const *)args[1],
            *(const int *const *)args[2], *(const int *)args[3]);
        break;
#endif
    default: return "there is no such kernel";
    }
    cudaDeviceSynchronize();
    qm_emu_step_end(0);
    return qm_emu_text;
}
