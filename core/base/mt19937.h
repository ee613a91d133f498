/* mt19937.h - Mersenne Twister MT19937, 32-bit words.
 *
 * Source: Matsumoto and Nishimura, ACM TOMACS 8 (1998), with the initialization of 2002
 * (init_genrand).  It serves only to reproduce the random matrices of a published implementation;
 * all other randomness is Philox. */
#ifndef QM_BASE_MT19937_H
#define QM_BASE_MT19937_H

#include <stdint.h>

enum { QM_MT_WORDS = 624, QM_MT_LAG = 397 };

struct qm_mt19937 {
    uint32_t word[QM_MT_WORDS];
    int next; /* index of the next word; QM_MT_WORDS: all words are used */
};

static inline void qm_mt_seed(struct qm_mt19937 *r, uint32_t seed)
{
    r->word[0] = seed;
    for (uint32_t i = 1; i < QM_MT_WORDS; i++)
        r->word[i] = 1812433253u * (r->word[i - 1] ^ (r->word[i - 1] >> 30)) + i;
    r->next = QM_MT_WORDS;
}

static inline uint32_t qm_mt_next(struct qm_mt19937 *r)
{
    if (r->next == QM_MT_WORDS) {
        for (int i = 0; i < QM_MT_WORDS; i++) {
            uint32_t low = r->word[(i + 1) % QM_MT_WORDS];
            uint32_t y = (r->word[i] & 0x80000000u) | (low & 0x7fffffffu);
            r->word[i] =
                r->word[(i + QM_MT_LAG) % QM_MT_WORDS] ^ (y >> 1) ^ (y & 1u ? 0x9908b0dfu : 0u);
        }
        r->next = 0;
    }
    uint32_t y = r->word[r->next++];
    y ^= y >> 11;
    y ^= (y << 7) & 0x9d2c5680u;
    y ^= (y << 15) & 0xefc60000u;
    return y ^ (y >> 18);
}

#endif
