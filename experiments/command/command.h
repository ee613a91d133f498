/* command.h - The list of subcommands.  A subcommand is a file NAME.c and a line here. */
#ifndef QM_COMMAND_COMMAND_H
#define QM_COMMAND_COMMAND_H

/* clang-format off */
#define QM_COMMAND_LIST(X)                                                                        \
    X(list,       "variants, axis words, rules, problems, distributions, metrics")     \
    X(show,       "everything about one variant, axis word, quantizer or problem")                \
    X(run,        "run a suite of experiments and write an HDF5 file")                            \
    X(tune,       "the learning rates that a paired suite is judged at")                          \
    X(plan,       "what a suite would do: cells, cost, what is skipped and why")                  \
    X(status,     "how far a campaign has come, from its ledgers")                                \
    X(merge,      "the shards of a campaign as one result file")                                 \
    X(submit,     "a campaign as a job array of Slurm, and the job that merges it")              \
    X(compare,    "two result files, paired cell by cell: did anything become worse?")           \
    X(predict,    "do errors without training order the outcomes of training?")                   \
    X(report,     "one self-contained HTML page of a result file; tables for papers")             \
    X(plot,       "one figure of a result file, whose title is the answer")  \
    X(analyze,    "quantization error of any tensor in checkpoints, .safetensors, .npz, .h5") \
    X(search,     "the best formats for a budget of bits, by the error of the next update")       \
    X(import,     "the tensors of checkpoints as one .npz, .safetensors or .h5 file")              \
    X(check,      "every variant against the double-precision oracle, over planted edge cases")   \
    X(prove,      "nearest-code routines over all floats: proofs and counter-examples")              \
    X(mutate,     "bugs planted in kernels, and whether the judge finds them: the kill matrix")          \
    X(shrink,     "a failing check, reduced to the smallest input, as a C program of its own")     \
    X(conform,    "replay golden vectors made by the published systems")                          \
    X(gen,        "golden vectors for programs that do not link this one")                        \
    X(verify,     "the verdict on the answers in such a file")                                    \
    X(bench,      "speed of steps and searches, as ratios within one run")                        \
    X(state,      "optimizer states in files: make, step, convert, show")                         \
    X(optimal,    "the best codebook for a distribution, and how far each map is from it")         \
    X(size,       "bytes of optimizer state for a whole model")                                   \
    X(digest,     "hash of a result file, without what may differ between two runs")              \
    X(kernels,    "compile the CUDA kernels of variants: registers, spills, memory")                \
    X(gpu_check,  "the CUDA backend on this GPU: equal bits, every code, verdicts, speed")      \
    X(doctor,     "environment, floating-point mode, CPU features, CUDA found or why not")        \
    X(completion, "print a bash completion script")
/* clang-format on */

/* The names as users write them, with '-' for C's '_', in the list's order; static. */
const char *const *qm_command_names(void);

/* Each returns an exit code (core/base/status.h); argv[0] is the subcommand's name. */
#define X(name, text) int qm_cmd_##name(int argc, char **argv);
QM_COMMAND_LIST(X)
#undef X

#endif
