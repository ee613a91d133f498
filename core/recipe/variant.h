/* variant.h - The constant that a variant's file provides, and the registry of variants. */
#ifndef QM_RECIPE_VARIANT_H
#define QM_RECIPE_VARIANT_H

#include "core/rule/rule.h"

/* A slot of the rule that is like no other one (qm_rule_slot_like). */
struct qm_variant_slot {
    const char *name;      /* the rule's slot name; qm_recipe_from checks it */
    const char *quantizer; /* "dyn:4s/block:128/bisect/near/hi" or "f32" */
    int64_t min_numel;     /* smaller tensors keep this slot plain; 0: none do */
    int whole_blocks;      /* 1: tensors that are no multiple of the block too (torchao); with norm
                            * divblock those whose codes do not fill whole bytes (SOLO) */
    const char *plain;     /* the plain format: "f32" (also NULL), "bf16" or "f16" */
    int init_code;         /* every code at first; every scale is init_scale */
    float init_scale;
};

/* What the source holds beside codes and scales (qm_recipe_padding). */
enum qm_pads {
    QM_PADS_none,
    QM_PADS_blocks, /* codes that fill the last block of each slot (adafactor8bit 0.4) */
    QM_PADS_moment, /* these, and with APOLLO a moment of the parameter's size from the second step
                     * on, which nothing reads (adafactor8bit 0.2, 0.4.3) */
    QM_PADS_tables, /* a float32 table of its map with each quantized slot (torchao, SOLO) */
    QM_PADS_spare, /* two spare numbers of 2 bytes of a slot of affine code whose last block is full
                    * or that has less than one block (MicroAdam) */
    QM_PADS_number, /* one number of each tensor, of the type of the parameter, that no step reads:
                     * CAME */
    QM_PADS_product /* one float32 number of each tensor: NAdam's product of momenta, the norm of
                     * the update of bitsandbytes' LAMB and LARS, the RMS of transformers'
                     * Adafactor; they are formed anew here */
};

struct qm_variant {
    const char *name;       /* required: the file's stem */
    const char *summary;    /* required: one line */
    const char *source;     /* required: paper; project and file */
    const char *rule;       /* required: a name in core/rule */
    const char *small_rule; /* optional: the rule of tensors that are smaller than every slot's
                             * min_numel, with the same slots and hyper-parameters */
    struct qm_variant_slot slot[QM_MAX_SLOTS];
    struct qm_hyper hyper;  /* the source's defaults */
    const char *param;      /* optional, NULL: "f32"; the stored parameter (core/rule/param.h) */
    const char *state_used; /* optional, NULL: "fresh"; "stored": the step reads the codes back */
    enum qm_pads pads;      /* optional */
    double state_bits;      /* per parameter at 1024 x 1024, scales included: tested */
    double step_sqnr_db;    /* floor of the states' SQNR after one step from the oracle's: tested */
};

int qm_variant_count(void);
const struct qm_variant *qm_variant_at(int i); /* sorted by name */

/* The path of the file that registers v, which must be in the
 * table: "variants/torchao/adamw4_ao.c". */
const char *qm_variant_file(const struct qm_variant *v);

/* QM_NO_MATCH with the nearest name when there is none. */
qm_status qm_variant_find(const char *name, const struct qm_variant **out);

#endif
