/* test_emu_order.c - Tests what the emulator takes for ordered: plain accesses beside atomic ones,
 * barriers, fences and tickets; launches that a GPU refuses; blocks that communicate. */
#include "core/user_kernel/large_index.h"
#include "tests/support/drawn.h"
#include "tests/support/emulated.h"

/* ---- order between threads and blocks: patches of last_block.cu ------------------------------ */

#define FENCED                                             \
    "        f.part[blockIdx.x] = __uint_as_float(top);\n" \
    "        __threadfence();\n"
#define WRITTEN "        f.part[blockIdx.x] = __uint_as_float(top);\n"
#define TICKET  "        is_last = atomicAdd(f.ticket, 1u) == gridDim.x - 1;\n"
#define BLOCKS  "no __threadfence and atomic operation between"

/* says NULL: nothing is found. */
static const struct {
    const char *what, *from, *to, *says;
} order[] = {
    {"the ticket and its fence", FENCED, FENCED, NULL},
    {"no barrier after the first store", "    __syncthreads(); /* top is 0 */\n", "",
     "thread (1,0,0) of block (0,0,0) changes atomically 4 bytes at byte 0 of shared top, which "
     "thread (0,0,0) of block (0,0,0) wrote"},
    {"a warp's barrier after the first store", "__syncthreads(); /* top is 0 */", "__syncwarp();",
     "changes atomically 4 bytes at byte 0 of shared top, which thread (0,0,0)"},
    {"a barrier of half a warp", "__syncthreads(); /* top is 0 */",
     "if (threadIdx.x < 16) __syncwarp(0xffffu);",
     "changes atomically 4 bytes at byte 0 of shared top, which thread (0,0,0)"},
    {"an atomic first store", "        top = 0;", "        atomicExch(&top, 0u);", NULL},
    {"no barrier before the read", "__syncthreads(); /* top is whole */", "__syncwarp();",
     "of shared top, which thread (0,0,0) of block (0,0,0) read"},
    {"no fence", FENCED, WRITTEN, BLOCKS},
    {"a fence before the store", FENCED, "        __threadfence();\n" WRITTEN, BLOCKS},
    {"a fence after the ticket", "        __threadfence();\n" TICKET,
     TICKET "        __threadfence();\n", BLOCKS},
    {"a fence of the block", "__threadfence();", "__threadfence_block();", BLOCKS},
    {"a fence in each thread, then a barrier", FENCED,
     WRITTEN "    }\n    __threadfence();\n    __syncthreads();\n    if (threadIdx.x == 0) {\n",
     NULL},
    {"a fence in another thread", FENCED,
     WRITTEN "    }\n    if (threadIdx.x == 1)\n        __threadfence();\n    __syncthreads();\n"
             "    if (threadIdx.x == 0) {\n",
     BLOCKS},
    {"the last block's other warps do not wait",
     "    __syncthreads(); /* is_last */\n    if (!is_last)\n        return;\n",
     "    if (threadIdx.x < 32 || blockIdx.x != gridDim.x - 1)\n        return;\n", BLOCKS},
    {"no ticket", TICKET, "        is_last = blockIdx.x == gridDim.x - 1;\n", BLOCKS},
    {"volatile reads", "raise(f.most, f.part[k]);", "raise(f.most, *(volatile float *)&f.part[k]);",
     NULL},
    {"block 0 stores what all add to", "        top = 0;",
     "        top = 0;\n    if (i == 0)\n        *f.count = 0.0f;",
     "of block (1,0,0) changes atomically 4 bytes at byte 0 of memory of cudaMalloc, which thread "
     "0 of another block wrote"},
    {"a plain read beside sums", "atomicMax(&top, __float_as_uint(x));",
     "atomicMax(&top, __float_as_uint(x + 0.0f * *f.count));",
     "reads 4 bytes at byte 0 of memory of cudaMalloc, which thread (0,0,0) of block (0,0,0) "
     "changed atomically"},
    {"a copy that is too long", "a->p, bytes, cudaMemcpyHost", "a->p, bytes + 4, cudaMemcpyHost",
     "reads 16416 bytes, and parameters ends after 16412"},
    {"a copy that is too short", "a->p, bytes, cudaMemcpyHost", "a->p, bytes - 4, cudaMemcpyHost",
     "of memory of cudaMalloc, which nothing has written"},
    {"launch bounds", "__launch_bounds__(THREADS)", "__launch_bounds__(THREADS / 2)",
     "the launch of look fails: __launch_bounds__ allows 32 threads a block, and it has 64"},
    {"launch bounds with a second number", "__launch_bounds__(THREADS)",
     "__launch_bounds__(sizeof(int[12]), 2)", "allows 48 threads a block, and it has 64"},
    {"launch bounds of a macro before the type", "__global__ void scale(",
     "#define MOST(n) (2 * n)\n__launch_bounds__(MOST(16),\n 1) __global__ void scale(",
     "the launch of scale fails: __launch_bounds__ allows 32"},
    {"a grid that is too high", "look<<<blocks, THREADS>>>", "look<<<dim3(1, 65536), THREADS>>>",
     "a grid's y is at most 65535 (grid 1,65536,1"},
    {"too much shared memory of both kinds", "look<<<blocks, THREADS>>>",
     "look<<<blocks, THREADS, 49150>>>",
     "bug.cu:28: shared top: 4 bytes of static and 49150 of dynamic shared memory, at most 49152"},
    {"a block that is too deep", "look<<<blocks, THREADS>>>", "look<<<blocks, dim3(1, 1, 65)>>>",
     "the launch of look fails: a block's z is at most 64 (grid"},
    {"a grid that is too deep", "look<<<blocks, THREADS>>>", "look<<<dim3(1, 1, 65536), THREADS>>>",
     "a grid's z is at most 65535"},
    {"too much dynamic shared memory", "look<<<blocks, THREADS>>>",
     "look<<<blocks, THREADS, 49153>>>", "more dynamic shared memory than allowed"},
};

static void threads_and_blocks_are_ordered(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof order / sizeof *order; i++) {
        struct qm_kernel_file *k;
        if (!is_drawn((int)i))
            continue;
        char *text = patched(source_of("last_block.cu"), order[i].from, order[i].to);
        assert_int_equal(build(text, &k), QM_OK);
        qm_status st = steps(k, NULL, 4103, 2, NULL);
        if (st != (order[i].says ? QM_CHECK_FAILED : QM_OK) ||
            (order[i].says && !strstr(qm_message(), order[i].says)))
            fail_msg("%s: %s", order[i].what, st == QM_OK ? "not found" : qm_message());
        free(text);
        qm_kernel_file_close(k);
    }
}

/* Blocks that communicate are left in a tensor of which few are run, and judged where all are. */
static void blocks_that_communicate(void **state)
{
    static const char *const copies[] = {"cudaMemcpy(a->p, p, bytes,",
                                         "cudaMemcpy(a->p, p, a->n > 100000 ? bytes - 4 : bytes,"};
    const int64_t whole = (1 << 20) + 7;
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct qm_kernel_file *k;
        struct qm_recipe r;
        int64_t judged;
        char *text = patched(source_of("last_block.cu"), copies[0], copies[i]);
        assert_int_equal(build(text, &k), QM_OK);
        assert_int_equal(qm_recipe_parse(qm_kernel_file_as(k), &r), QM_OK);
        assert_int_equal(qm_large_index(k, &r, QM_FAR_N, &judged), QM_SKIPPED);
        assert_non_null(strstr(qm_message(), "its blocks communicate by atomic operations, as at "
                                             "bug.cu:"));
        qm_status st = qm_large_index(k, &r, whole, &judged);
        if (st != (i ? QM_CHECK_FAILED : QM_OK))
            fail_msg("%d: %s", i, qm_message());
        assert_true(i ? strstr(qm_message(), "parameter 1048582 stays as it is") != NULL
                      : judged > 1000);
        free(text);
        qm_kernel_file_close(k);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_and_blocks_are_ordered),
        cmocka_unit_test(blocks_that_communicate),
    };
    if (system("c++ --version >/dev/null 2>&1") != 0) { /* NOLINT */
        puts("SKIP: no C++ compiler (c++)");
        return 77;
    }
    return cmocka_run_group_tests(tests, open_folder, close_folder);
}
